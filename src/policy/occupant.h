/* SPDX-License-Identifier: MIT
 * The occupant of a slot: what a state means by the policy that the tag has. */
#ifndef STINT_OCCUPANT_H
#define STINT_OCCUPANT_H

#include "limiter/counters.h"
#include "policy/bucket.h"

/* The tick at which a slot is over, at the latest. A bucket that counts by the rate before may be
 * full later than it says, by the time in which the longest one fills. */
static inline tick_t slot_end(const struct stint_limiter *limiter, const struct policy *policy,
                              uint64_t state, tick_t now) {
    const tick_t end = end_of(state_id(state), now);

    if (policy == NULL || LIKELY((policy_word(policy) & RULE_BUCKET) == 0))
        return end;
    const struct policy_record *record = limiter_record(limiter, policy);
    const uint64_t version = atomic_load_acquire(&policy->version); /* M15 */
    const uint64_t rate = atomic_load_relaxed(&record->bucket[version % 2][0]) >> RATE_NUMBER;
    const tick_t latest =
        tick_of(atomic_load_relaxed(&record->rate_changed)) + policy_reach(policy); /* M12 */
    return UNLIKELY(rate_differs(state, rate << STATE_RATE_SHIFT)) && latest > end ? latest : end;
}

/* Whether a window that is over leaves a count to the next one. `policy` may be NULL. */
static inline bool slot_carries(const struct policy *policy, uint64_t state, tick_t now) {
    if (policy == NULL || LIKELY((policy_word(policy) & TRAIT_CARRIES) == 0))
        return false;
    struct rule rule = policy_rule(policy);
    const tick_t over = now - end_before(state_id(state), now);
    return count_carry(&rule, state_used(state), (uint64_t)(over / policy_length(policy)) + 1) != 0;
}

/* Whether a slot with this state is a companion's, and its override was lifted. */
static inline bool slot_lifted(const struct policy *policy, uint64_t state) {
    return (state & (STATE_REFUSED | USED_MASK)) == 0 &&
           (policy_word(policy) & TRAIT_COMPANION) != 0;
}

/* Whether a slot with this state is a companion's, and is a limit, a ban or strikes. */
static inline bool override_says(const struct policy *policy, uint64_t state) {
    return (state & (STATE_REFUSED | USED_MASK)) != 0 &&
           (policy_word(policy) & TRAIT_COMPANION) != 0;
}

/* Whether a slot with this tag and state counts for its key: it is committed, not over, and not so
 * far ahead of the clock's `now` that it counts as over. */
bool stint_slot_live(const struct stint_limiter *limiter, uint64_t tag, uint64_t state, tick_t now);

/* Takes back the token that slot_add counted without room; a stray is counted. */
NOINLINE void stint_token_back(const struct stint_limiter *limiter, struct slot *slot, uint64_t tag,
                               tick_t end, uint64_t used);

/* Adds one token after slot_room. `used` receives the count with it. Returns false if there was no
 * room: then nothing was taken. */
static ALWAYS_INLINE bool token_add(const struct stint_limiter *limiter, struct slot *slot,
                                    uint64_t tag, tick_t end, uint64_t capacity, uint64_t *used) {
    if (LIKELY(slot_add(slot, end, capacity, used)))
        return true;
    stint_token_back(limiter, slot, tag, end, *used);
    return false;
}

#endif
