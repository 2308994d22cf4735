/* SPDX-License-Identifier: MIT
 * What test builds (STINT_TESTING) add to the protocol: instants at which a test may stop a thread,
 * and guards that a test may take away to see that it would notice. In other builds all of it is
 * nothing. */
#ifndef STINT_TESTING_H
#define STINT_TESTING_H

#ifdef STINT_TESTING

enum stint_test_instant {
    INSTANT_LOADED,  /* room was seen; the fetch-add comes next */
    INSTANT_ABSENT,  /* a slot to claim was found; the claim comes next */
    INSTANT_CLAIMED, /* a slot was claimed; the look at the others comes next */
    INSTANT_LOOKED,  /* the claim stands; the commit comes next */
    INSTANT_REFUND,  /* tokens are given back; the search for the slot comes next */
};

enum stint_test_guard {
    GUARD_NONE,
    GUARD_PENDING, /* a claim is not counted in before it is resolved */
};

extern void (*stint_test_hook)(enum stint_test_instant instant); /* NULL: none */
extern enum stint_test_guard stint_test_removed;

#define INSTANT(instant)                                                                           \
    do {                                                                                           \
        if (stint_test_hook != NULL)                                                               \
            stint_test_hook(instant);                                                              \
    } while (0)
#define GUARDED(guard) (stint_test_removed != (guard))

#else

#define INSTANT(instant) ((void)0)
#define GUARDED(guard)   true

#endif

#endif
