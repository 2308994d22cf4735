/* SPDX-License-Identifier: MIT
 * One token by a policy that is plain but for its overrides: the path of take.c once more, behind a
 * look at the filter (table.h), which is one word. A key that may have an override goes a second
 * path, on which one swap charges. All else is decide.c's. */
#include "filtered.h"

#include "decide.h"
#include "settle.h"
#include "slot.h"
#include "stripes.h"

static NOINLINE bool filtered_left(struct stint_limiter *limiter, uint32_t policy_id, stint_key key,
                                   uint64_t now, struct stint_verdict *verdict) {
    const struct stint_request request = {.key = key, .policy = policy_id, .cost = 1};
    return stint_decide_overrides(limiter, &request, now, verdict);
}

/* As in take.c, take_overshot. */
static NOINLINE bool filtered_overshot(struct stint_limiter *limiter,
                                       const struct stint_request *request, uint64_t now,
                                       struct stint_verdict *verdict, struct slot *slot,
                                       const uint64_t states[2]) {
    struct decision decision;

    if (decision_begin(&decision, limiter, request, now, nothing_known) != 0)
        return stint_slot_decide(limiter, request, now, verdict); /* the policy is gone */
    stint_slot_settle_added(&decision, slot, states[0], states[1]);
    return stint_decision_settled(&decision, request, verdict);
}

/* A key that may have an override, in the window that ends at `end`. */
static NOINLINE bool take_overridden(struct stint_limiter *limiter, uint32_t policy_id,
                                     stint_key key, uint64_t now, struct stint_verdict *verdict,
                                     tick_t end) {
    const struct policy *policy = &limiter->policies[policy_id];
    struct line *home = home_of(&limiter->table, key);
    const uint64_t tag = table_tag(&limiter->table, key, policy_id);
    const uint64_t hot = atomic_load_relaxed(&policy->hot_capacity); /* M10 */
    const uint64_t override = override_of(limiter, policy_id, key, home, now);
    const uint64_t capacity = override != 0 && hot != 0 ? override_limit(override) : hot;
    struct slot *slot = slot_near_home(&limiter->table, key, home, tag);

    /* Not one that never refuses; and what counts was raised before (M10). */
    if (LIKELY(slot != NULL) && LIKELY(capacity < STINT_LIMIT_MAX) &&
        LIKELY(capacity <= atomic_load_relaxed(&policy->largest))) {
        const uint64_t state = atomic_load_acquire(&slot->state); /* the swap confirms it: M2 */
        const uint64_t used = state - state_of(end, 0) + 1;
        if (LIKELY(!GUARD(TAKE_ROOM, used - 1 >= capacity)) &&
            LIKELY(slot_swap(slot, tag, state, state + 1))) {
            struct decision decision = plain_decision(limiter, policy_id, now, end, capacity);
            decision.terms.part = override != 0 ? PART_OVERRIDDEN : 0;
            decision.charge = (struct charge){used, used, used, 1, true};
            return decision_end(&decision, verdict);
        }
    }
    return filtered_left(limiter, policy_id, key, now, verdict);
}

bool stint_take_filtered(struct stint_limiter *limiter, uint32_t policy_id, stint_key key,
                         uint64_t now, struct stint_verdict *verdict) {
    const struct policy *policy = &limiter->policies[policy_id];
    const tick_t end = (tick_t)atomic_load_relaxed(&policy->current_end); /* I7 */
    const uint64_t capacity = atomic_load_relaxed(&policy->hot_capacity); /* M10 */
    const uint64_t window = state_of(end, 0);

    /* Capacity 0: it is not plain but for its overrides. */
    if (UNLIKELY(GUARD(TAKE_WINDOW, tick_ns(end) - now - 1 >= policy->window)))
        return filtered_left(limiter, policy_id, key, now, verdict);
    if (UNLIKELY(GUARD(OVERRIDE_SEEN, override_possible(&limiter->table, key))))
        return take_overridden(limiter, policy_id, key, now, verdict, end);
    const uint64_t tag = table_tag(&limiter->table, key, policy_id);
    struct slot *slot = slot_near(&limiter->table, key, tag);
    if (UNLIKELY(slot == NULL))
        return filtered_left(limiter, policy_id, key, now, verdict);
    const uint64_t state = atomic_load_acquire(&slot->state); /* M1: then the tag again (M2) */
    if (UNLIKELY(GUARD(TAKE_ROOM, state - window >= capacity)) ||
        UNLIKELY(GUARD(TAKE_TAG, atomic_differs(&slot->tag, tag))))
        return filtered_left(limiter, policy_id, key, now, verdict);
    INSTANT(INSTANT_LOADED);
    const uint64_t added = atomic_fetch_add_seq(&slot->state, 1); /* M2, M3 */
    const uint64_t used = added - window + 1;
    if (UNLIKELY(GUARD(TAKE_ADDED, used - 1 >= capacity))) {
        const struct stint_request request = {.key = key, .policy = policy_id, .cost = 1};
        const uint64_t states[2] = {window, added};
        return filtered_overshot(limiter, &request, now, verdict, slot, states);
    }
    struct decision decision = plain_decision(limiter, policy_id, now, end, capacity);
    decision.charge = (struct charge){used, used, used, 1, true};
    return decision_end(&decision, verdict);
}
