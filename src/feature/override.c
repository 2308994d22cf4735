/* SPDX-License-Identifier: MIT
 * The look for a key's override (override.h). */
#include "feature/override.h"

bool stint_override_holds(const struct stint_limiter *limiter, uint32_t policy_id, uint64_t state,
                          uint64_t now) {
    const bool set = (state & STATE_REFUSED) != 0; /* by hand */
    const uint64_t longest =
        set ? COMPANION_LENGTH : limiter_ban(limiter, policy_id).word >> BAN_TICKS;
    const tick_t most = (tick_t)longest + 1 + ALLOWANCE_TICKS;
    tick_t tick = tick_of(now);

    if (!set && !override_banned(state)) /* strikes */
        return false;
    tick_t left = end_of(state_id(state), tick) - tick;
    if (LIKELY(left <= most))
        return left > 0;
    tick = tick_of(limiter_now(limiter)); /* as stint_beyond_clock: a thread may be late */
    return end_of(state_id(state), tick) - tick <= most;
}

uint64_t stint_override_find(const struct stint_limiter *limiter, uint32_t policy_id, uint64_t hash,
                             uint64_t now) {
    const struct table *table = &limiter->table;
    const uint64_t tag = table_tag(table, hash, limiter_companion(limiter, policy_id));
    struct line *line = home_of(table, hash);

    /* Nearly every one is in its key's home line. */
    for (uint64_t i = 0; i == 0 || (i < table->probe_lines && i <= filter_reach(table, hash));
         i++) {
        for (uint32_t match = line_match(line, tag); match != 0; match = match4_rest(match)) {
            uint64_t state = override_in(line_slot(line, match), tag);
            if (state != 0 && stint_override_holds(limiter, policy_id, state, now))
                return state;
        }
        line = table_next(table, hash, line);
    }
    /* It may have been swept, after all slots of the policy (sweep.c). */
    atomic_fence_acquire(); /* M9 */
    return 0;
}

bool stint_override_told(const struct stint_limiter *limiter, uint64_t tag, uint64_t state,
                         uint64_t now, struct stint_entry *entry) {
    const struct policy *policy = limiter_tag_policy(limiter, tag);
    const tick_t end = end_of(state_id(state), tick_of(now));

    if (policy == NULL || (policy_word(policy) & TRAIT_COMPANION) == 0 || state_pending(state) ||
        end <= tick_of(now))
        return false;
    const uint32_t of = limiter_companion(limiter, tag_policy(&limiter->table, tag));
    uint32_t traits;
    const uint32_t id =
        stint_limiter_policy_and_traits(limiter, of, &traits); /* it may be replaced */
    if (id == POLICY_NONE || (traits & STINT_OVERRIDES) == 0)
        return false;
    const bool holds = stint_override_holds(limiter, id, state, now);
    const bool set = (state & STATE_REFUSED) != 0;
    entry->policy = id;
    entry->limit = holds ? override_limit(state) : 0;
    entry->used = holds ? 0 : state_used(state);
    entry->end = tick_ns(end);
    entry->flags = !holds ? STINT_ENTRY_STRIKES
                   : set  ? STINT_ENTRY_OVERRIDE
                          : STINT_ENTRY_OVERRIDE | STINT_ENTRY_BAN;
    return holds || (!set && entry->used != 0);
}
