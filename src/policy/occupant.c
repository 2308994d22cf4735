/* SPDX-License-Identifier: MIT
 * What a slot's state means by the policy that its tag has, where it is asked seldom. */
#include "policy/occupant.h"

#include "limiter/counters.h"

void stint_token_back(const struct stint_limiter *limiter, struct slot *slot, uint64_t tag,
                      tick_t end, uint64_t used) {
    const uint32_t id = tag_policy(&limiter->table, tag);
    if (!stint_slot_take_back(&limiter->table, slot, tag, end, used,
                              &limiter->records[id].generation))
        limiter_count_table(limiter, COUNT_STRAY);
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
