/* SPDX-License-Identifier: MIT
 * What the protocol (slot.h) needs seldom, out of line: the short ways keep their registers. */
#include "slot.h"

#ifdef STINT_TESTING
#include <stdio.h>
#include <stdlib.h>

void (*stint_test_hook)(enum stint_test_instant instant);
void (*stint_test_step)(const void *word);
guard_set stint_test_removed;

void stint_test_broken(const char *what, const char *file, int line) {
    (void)fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
    abort();
}
#endif

/* Whether the policy's id was used again: its slots have lost their counts. */
static bool id_again(const struct stint_limiter *limiter, uint64_t tag) {
    /* M15: it was written before the version by which the loaded state was. */
    return atomic_load_relaxed_32(&limiter->records[tag_policy(&limiter->table, tag)].generation) !=
           0;
}

/* A fetch-add may have met
 *   - the window that was seen, without room: the token is the key's, and is taken back;
 *   - a claim, as the slot changed meanwhile: the commit drops the token;
 *   - another window. If that is the key's next one, the token is taken back from it. Else it is
 *     another key's, and is left to it until its window ends: the exception of promise B.
 * The swap tells whose it is: it succeeds only if the slot has the key's tag and the end that was
 * added to, so it was the key's when it was added to (I1). That does not hold if an end fell and
 * came again (shard_end_falls), which is asked after the state was loaded (M8). In the window that
 * was seen the tag tells, unless the policy is back (policy.c, stint_policy_make). A key that was
 * reset meanwhile may have nothing left to take back, or another's token (A). */
void stint_slot_take_back(const struct stint_limiter *limiter, struct slot *slot, uint64_t tag,
                          tick_t end, uint64_t added) {
    const bool seen = state_same_window(added, state_of(end, 0));
    const struct shard *shard = table_shard_at(&limiter->table, slot);

    if (state_pending(added) || !GUARDED(BACK))
        return;
    for (;;) {
        const uint64_t state = atomic_load_acquire(&slot->state); /* M1 */
        if (GUARD(BACK_TAG, atomic_load_acquire(&slot->tag) != tag) ||
            GUARD(BACK_WINDOW, !state_same_window(state, added)) ||
            ((!seen || id_again(limiter, tag)) &&
             GUARD(BACK_FALLEN, shard_end_fell(shard, end_of(state_id(added), end)))))
            break;
        if (GUARD(BACK_ZERO, state_used(state) == 0) || slot_swap(slot, tag, state, state - 1))
            return;
    }
    if (!seen)
        limiter_count_table(limiter, COUNT_STRAY);
}

bool stint_bucket_rule(const struct stint_limiter *limiter, uint32_t id, struct bucket *bucket) {
    for (;;) {
        const uint32_t traits = (uint32_t)policy_word(&limiter->policies[id]);
        if ((traits & RULE_BUCKET) == 0)
            return false;
        if (limiter_bucket_load(limiter, id, traits, true, bucket))
            return true;
    }
}

uint64_t stint_bucket_used(const struct stint_limiter *limiter, const struct policy *policy,
                           uint64_t state, uint64_t now) {
    struct terms terms = {0};
    struct bucket bucket;

    if (!stint_bucket_rule(limiter, (uint32_t)(policy - limiter->policies), &bucket))
        return 0; /* it is gone */
    bucket_terms(&terms, &bucket, 0);
    return bucket_tokens(
        &terms, bucket_count(end_of(state_id(state), tick_of(now)), bucket_ns(state), now));
}

bool stint_slot_live(const struct stint_limiter *limiter, uint64_t tag, uint64_t state,
                     tick_t now) {
    if (tag == 0 || tag == table_tombstone(&limiter->table) || state_pending(state))
        return false;
    const struct policy *policy = limiter_tag_policy(limiter, tag);
    const tick_t ahead = slot_end(limiter, policy, state, now) - now;
    if (policy != NULL && ahead > 0 && ahead - ALLOWANCE_TICKS <= policy_reach(policy))
        return !slot_lifted(policy, state);
    return slot_carries(policy, state, now);
}
