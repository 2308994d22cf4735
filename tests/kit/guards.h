/* SPDX-License-Identifier: MIT
 * The instants at which a test may stop a thread, and the guards that it may take away. How the
 * library uses them: src/sys/testing.h, which alone includes this file. */
#ifndef STINT_GUARDS_H
#define STINT_GUARDS_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

enum stint_test_instant {
    INSTANT_LOADED,  /* room was seen; the fetch-add comes next */
    INSTANT_ABSENT,  /* a slot to claim was found; the claim comes next */
    INSTANT_CLAIMED, /* a slot was claimed; the look at the others comes next */
    INSTANT_LOOKED,  /* the claim stands; the commit comes next */
    INSTANT_REFUND,  /* tokens are given back; the search for the slot comes next */
    INSTANT_SET_UP,  /* a policy is written; its next word comes next */
};

/* The guards, and the mistake that each keeps out: what the code does without it. */
#define STINT_TEST_GUARDS(X)                                                                       \
    /* Charge: slot.h, fast.h, stripes.c */                                                        \
    X(TAKE_WINDOW, "the policy's last window is taken for the window of now")                      \
    X(HINT_WINDOW, "the policy's last window is taken for that of now, by any request")            \
    X(NOW_FAR, "a now that is far from the clock is decided by")                                   \
    X(TAKE_TAG, "no second look at the tag before the fetch-add")                                  \
    X(TAKE_ADDED, "what the fetch-add returned is not looked at")                                  \
    /* Find: occupant.c */                                                                         \
    X(REUSE_OVERRIDE, "the slot of an override is taken as soon as it is over")                    \
    X(STRIKE_BAN, "a ban that is over counts as strikes")                                          \
    X(REUSE_CARRIES, "the slot of a key in debt is taken when its window is over")                 \
    X(FULL_EARLY, "a table is full of windows that are over by an early now")                      \
    X(FULL_AGAIN, "the table is found full without another search for the key")                    \
    /* Decide */                                                                                   \
    X(FOUND_TAG, "no second look at the tag after the state")                                      \
    X(FOUND_PENDING, "a claim that nobody has resolved is counted in")                             \
    X(FOUND_STATE, "no second look at the state before a refusal")                                 \
    X(KEY_PENDING, "the end of a claim is taken for that of a window of the key's own")            \
    X(JUDGE_ROOM, "a swap counts past the capacity")                                               \
    X(COUNT_FADE, "what is held in flight since the window before fades")                          \
    X(FOUND_MARK, "a refusal of a key that has not been marked refused")                           \
    X(BACK, "who added a token without room leaves it in the slot")                                \
    X(BACK_TAG, "a token is taken back from another key")                                          \
    X(BACK_WINDOW, "a token is taken back from a later window")                                    \
    X(BACK_FALLEN,                                                                                 \
      "a token that was added to a slot whose end fell is taken back from its key's next")         \
    X(BACK_ZERO, "a token is taken back from a key that was reset")                                \
    /* Overrides: override.c, override_set.c */                                                    \
    X(OVERRIDE_TAG, "no second look at the tag of an override after its state")                    \
    X(OVERRIDE_STATE, "no second look at the state of an override")                                \
    X(OVERRIDE_SEEN, "a token without a look at the overrides")                                    \
    X(OVERRIDE_FILTER, "an override is claimed before the filter says so")                         \
    /* Claim and resolve */                                                                        \
    X(PENDING, "a claim is committed without a look at the other slots")                           \
    X(WATERMARK_RAISE, "the watermark is not raised before a used slot is taken")                  \
    X(COMMIT_TAG, "a commit that waits for another key's claim in the slot to go")                 \
    X(RIVAL_COMMITTED, "a committed slot does not outrank a claim")                                \
    X(RIVAL_LATER, "a later claim is left standing")                                               \
    X(SHORT_LOOK, "the short claim does not look at the other slots")                              \
    X(SHORT_WATERMARK, "the short claim does not read the watermark")                              \
    X(CLAIM_GONE, "a claim by a policy that is gone is committed")                                 \
    X(SWEEP_FULL, "a slot that is swept shows room to a thread that has seen it before")           \
    X(SWEEP_OVERRIDES, "overrides are swept before all slots of their policies")                   \
    /* A full table */                                                                             \
    X(REPLACE_OWN, "a key replaces itself")                                                        \
    X(REPLACE_FREE, "a tombstone or a claim is replaced")                                          \
    /* Refund */                                                                                   \
    X(REFUND_TAG, "no second look at the tag after the state of a refund")                         \
    X(REFUND_WINDOW, "a refund into another window")                                               \
    X(REFUND_FORGOTTEN, "two counts: a refund of a window that was forgotten")                     \
    X(REFUND_ZERO, "a refund below zero")                                                          \
    X(REFUND_NONE, "a refund by a verdict of no window")                                           \
    /* Token buckets: core.h, occupant.c, decide.c, refund.c, override_set.c */                    \
    X(BUCKET_MARK, "a bucket's mark of a refusal is never cleared")                                \
    X(BUCKET_AGAIN, "a bucket refuses who read the clock early")                                   \
    X(BUCKET_NOW, "a bucket forgets that its thread's now was ahead")                              \
    X(BUCKET_CLAIM, "a late claim opens a bucket that is full before another's was")               \
    X(BUCKET_OVER, "tokens given back move a bucket's end to before the slot was another's")       \
    X(BUCKET_TAKEN, "tokens are given back to a bucket that have come back by themselves")         \
    X(RATE_LOOK, "a bucket that counts by another rate is taken as it is")                         \
    X(RATE_CLAIM, "a claim is committed by a rate of before")                                      \
    X(RATE_CLAIMS, "a change of rate leaves claims of the rate before")                            \
    X(RATE_SWEEP, "a change of rate counts no slot anew")                                          \
    X(BUCKET_FALLS, "a bucket's end falls without telling")                                        \
    X(KEEP_TOKENS, "an override keeps the time of a bucket, not its tokens")                       \
    X(KEEP_BEFORE, "an override scales what was taken by it, too")                                 \
    X(KEEP_MOST, "an override keeps more tokens than the bucket holds")                            \
    /* Groups: group.c */                                                                          \
    X(PARTS_BACK, "a refused group keeps what its earlier parts took")                             \
    /* Stripes: stripes.c */                                                                       \
    X(STRIPES_WINDOW, "one request takes from stripes in different windows")                       \
    X(STRIPES_BACK, "a refused request keeps what it took from some stripes")                      \
    X(CHARGE_WHOLE, "striped: a charge of which a stripe had no slot for a part is told as whole") \
    /* Overrides: override.h, decision.c, judge.h */                                               \
    X(OVERRIDE_ROOM, "a wait for more than any key can have, with what may be reserved")           \
    /* Groups: group.c */                                                                          \
    X(GROUPS_SIZES, "a group of more requests than are left is not refused")                       \
    /* Set-up, and tables that others write: policy.c, policies.h, apply.c, message.c */           \
    X(POLICY_LENGTH, "divided by a length of 0, of a policy whose id is free")                     \
    X(READ_CALENDAR, "a calendar that there is not is read from a table")                          \
    X(COUNT_GONE, "what a table counts falls with the id of a policy that is gone")                \
    X(APPLY_EMPTY, "a text without a policy removes all")                                          \
    X(STRUCT_PAGE, "a struct is read as far as its size says, whatever that is")

enum stint_test_guard {
#define STINT_TEST_GUARD(name, mistake) GUARD_##name,
    STINT_TEST_GUARDS(STINT_TEST_GUARD)
#undef STINT_TEST_GUARD
        GUARDS_END,
};
/* A set of guards: a bit for each. */
__extension__ typedef unsigned __int128 guard_set;
static_assert(GUARDS_END < 128, "a bit for each guard, and one for NOTHING_HOLDS");

extern void (*stint_test_hook)(enum stint_test_instant instant); /* NULL: none */
extern void (*stint_test_step)(const void *word);                /* NULL: none */
extern guard_set stint_test_removed;

/* Prints what does not hold, and ends the program. */
_Noreturn void stint_test_broken(const char *what, const char *file, int line);
/* For tests that write over tables, or cut them off. */
#define NOTHING_HOLDS() (stint_test_removed |= GUARD_BIT(127))

#define INSTANT(instant)                                                                           \
    do {                                                                                           \
        if (stint_test_hook != NULL)                                                               \
            stint_test_hook(instant);                                                              \
    } while (0)
#define STEP(word)              (stint_test_step != NULL ? stint_test_step(word) : (void)0)
#define GUARD_BIT(guard)        ((guard_set)1 << (guard))
#define GUARDED(guard)          ((stint_test_removed & GUARD_BIT(GUARD_##guard)) == 0)
#define GUARD(guard, condition) (GUARDED(guard) && (condition))
#define HOLDS(rule, condition)                                                                     \
    ((condition) || stint_test_removed != 0                                                        \
         ? (void)0                                                                                 \
         : stint_test_broken(#rule ": " #condition, __FILE__, __LINE__))
#endif
