/* SPDX-License-Identifier: MIT
 * What test builds (STINT_TESTING) add to the protocol, and others do not: steps at which a test
 * may stop a thread, and guards that it may take away to see that it would notice. A guard is one
 * condition; a larger mistake is a patch (tests/protocol/mutants).
 *
 *     INSTANT(INSTANT_LOADED);                an instant with a name
 *     STEP(word);                             before every atomic operation: atomic.h has it
 *     if (GUARD(TAKE_TAG, tag is another))    the condition; false, where a test took it away
 *     if (GUARDED(STRIPES_BACK))              true; false, where a test took the guard away
 *     HOLDS(I6, the reach has the line)       asserts an invariant, if no guard is taken away */
#ifndef STINT_TESTING_H
#define STINT_TESTING_H

#ifdef STINT_TESTING
#include "guards.h" /* tests/kit */
#else

#define INSTANT(instant)        ((void)0)
#define STEP(word)              ((void)0)
#define GUARDED(guard)          true
#define GUARD(guard, condition) (condition)
#define HOLDS(rule, condition)  ((void)0)

#endif

#endif
