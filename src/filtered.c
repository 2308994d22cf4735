/* SPDX-License-Identifier: MIT
 * One token of a key that may have an override, by a policy that is plain but for those: the steps
 * of take.c, where one swap charges. All else is decide.c's. */
#include "filtered.h"

#include "decide.h"
#include "slot.h"

/* The override of a key that may have one, which is mostly in its home line: the state of its slot;
 * 0: there is none. One that lasts until the window of now is over, at `end`, and is not too far
 * ahead by any clock, needs no closer look, nor a division. */
static ALWAYS_INLINE uint64_t override_of(const struct stint_limiter *limiter, uint32_t policy_id,
                                          uint64_t hash, uint64_t now, tick_t end) {
    /* Plus one, as a tag has it. M15 */
    const uint64_t companion = atomic_load_relaxed_32(&limiter->records[policy_id].companion);
    const uint64_t tag = hash * limiter->table.tag_unit + companion;
    const struct slot *slot = line_find(home_of(&limiter->table, hash), tag);

    if (LIKELY(slot != NULL)) {
        const uint64_t state = override_in(slot, tag);
        const uint64_t later = (state_id(state) - id_of(end)) & ID_MASK;
        if (LIKELY((state & (STATE_REFUSED | OVERRIDE_ENDLESS)) == STATE_REFUSED) &&
            LIKELY(later <= COMPANION_LENGTH - (uint64_t)limiter->policies[policy_id].length))
            return state;
    }
    return stint_override_seen(limiter, policy_id,
                               (uint32_t)policy_traits(&limiter->policies[policy_id]), hash, now);
}

bool stint_take_overrides(struct stint_limiter *limiter, uint32_t policy_id, stint_key key,
                          uint64_t now, struct stint_verdict *verdict) {
    const struct stint_request request = {.key = key, .policy = policy_id, .cost = 1};
    return stint_decide_overrides(limiter, &request, now, verdict);
}

bool stint_take_filtered(struct stint_limiter *limiter, uint32_t policy_id, stint_key key,
                         uint64_t now, struct stint_verdict *verdict, tick_t end) {
    const struct policy *policy = &limiter->policies[policy_id];
    const uint64_t hot = atomic_load_relaxed(&policy->hot_capacity); /* M10 */
    const uint64_t override = override_of(limiter, policy_id, key, now, end);
    const uint64_t capacity = LIKELY(override != 0) ? override_limit(override) : hot;
    const uint64_t tag = table_tag(&limiter->table, key, policy_id);
    struct slot *slot = slot_near(&limiter->table, key, tag);
    /* Not one that never refuses; and what counts was raised before (M10). */
    if (UNLIKELY(slot == NULL) || UNLIKELY(capacity >= STINT_LIMIT_MAX) ||
        UNLIKELY(capacity > atomic_load_relaxed(&policy->largest)))
        return stint_take_overrides(limiter, policy_id, key, now, verdict);
    const uint64_t state = atomic_load_acquire(&slot->state); /* the swap confirms it: M2 */
    const uint64_t used = state - state_of(end, 0) + 1;
    if (UNLIKELY(GUARD(TAKE_ROOM, used - 1 >= capacity)) ||
        UNLIKELY(!slot_swap(slot, tag, state, state + 1)))
        return stint_take_overrides(limiter, policy_id, key, now, verdict);
    struct decision decision = plain_decision(limiter, policy_id, now, end, capacity);
    decision.terms.part = override != 0 ? PART_OVERRIDDEN : 0;
    decision.charge = (struct charge){used, used, used, 1, true};
    return decision_end(&decision, verdict);
}
