/* SPDX-License-Identifier: MIT
 * What the steps of a decision (slot.h) need seldom, out of line so that the path keeps its
 * registers. */
#include "slot.h"

#ifdef STINT_TESTING
void (*stint_test_hook)(enum stint_test_instant instant);
void (*stint_test_step)(const void *word);
guard_set stint_test_removed;
#endif

/* ---- 2  Window ------------------------------------------------------------------------------- */

/* The window that holds a tick.
 *
 * One that begins with a key's first request (STINT_START_FIRST) begins with the tick itself. It
 * is nowhere but in the slot, and holds [end - length, end). Two of one key have no tick in
 * common, so the promises hold for each as for any window, and its end is its id:
 *
 *   - In place. The slot's window is over at the now of whoever begins another (slot_look), and
 *     that begins with this now. One swap of the slot begins it (slot_charge). Of two threads that
 *     do this at once, one wins. The other finds the window that has begun, and counts in it: it
 *     holds his now, or began after it, as he is late (LOOK_AHEAD; settle.c, look_ahead).
 *   - By a claim. The key's slot was not found. If another key took it, the watermark was raised
 *     before, to a now at which the old window was over. The commit's tick is at or after the
 *     watermark, which is loaded after the look at the other slots (claim.c, commit_tick and
 *     stint_claim_short; M7, M8). So the new window begins at or after the end of the old one,
 *     however late its opener.
 *   - A window that ends further ahead than its length began after now. It is a late thread's to
 *     join, or was left by a clock that was stepped back (stint_beyond_clock): as of any policy, a
 *     key waits for its window and the allowance at most (H).
 *   - A refund finds its window by the end, or finds another and gives nothing back. A reset
 *     leaves the end. A part of a group that begins a window predicts the end, which later parts
 *     of the key find as if it were loaded (decide_all.c); it comes true by the swap, or they are
 *     decided anew.
 *   - A replaced key's window is forgotten with its count (STINT_FULL_REPLACE; G).
 *
 * The end grows by the length at least, so I1 holds as with windows that are computed. The window
 * begins at no later tick than the opener's now, the watermark or the claim, to which latest_begin
 * is raised before (I7).
 *
 * Months and years (TRAIT_CALENDAR) differ in length. A window is known by its end all the same. A
 * slot is held against the clock by the longest (policy.length): one that is further ahead than
 * that was left by a step. One of a shorter month may be joined from so many days before it: after
 * a step of the clock into the month before, a key may stay in its window for up to 31 days, or
 * 366, and the allowance. */
static struct span window_at(const struct stint_limiter *limiter, const struct policy *policy,
                             uint32_t flags, uint64_t hash, tick_t tick) {
    tick_t start = policy->start, length = policy_length(policy);
    if ((flags & TRAIT_CALENDAR) != 0)
        return limiter_calendar_window(limiter, policy, tick);
    if ((flags & STINT_START_FIRST) != 0)
        return (struct span){tick, tick + length};
    if ((flags & STINT_START_PER_KEY) != 0)
        start += key_phase(hash, length);
    tick_t end = window_end(tick, start, length);
    return (struct span){end - length, end};
}

tick_t stint_window_at(const struct stint_limiter *limiter, const struct policy *policy,
                       uint32_t flags, uint64_t hash, tick_t tick) {
    const struct span window = window_at(limiter, policy, flags, hash, tick);
    limiter_raise_latest_begin(limiter, window.begin);
    return window.end;
}

tick_t stint_window_compute(const struct stint_limiter *limiter, struct policy *policy,
                            uint32_t flags, uint64_t hash, uint64_t now) {
    const struct span window = window_at(limiter, policy, flags, hash, tick_of(now));
    limiter_raise_latest_begin(limiter, window.begin);
    /* The first and the last window of 64 bits of ns are no hints: each would be taken for the
     * other. */
    if ((flags & TRAITS_OWN_WINDOW) == 0 && window.begin >= 0 &&
        window.end <= (tick_t)(UINT64_MAX / STINT_TICK_NS)) {
        const uint64_t hint = hint_of(window, (flags & TRAIT_CALENDAR) != 0);
        /* I7: latest_begin first, then the hint (M7). */
        if (hint != atomic_load_relaxed(&policy->current_end) && !limiter->memory.read_only)
            atomic_store_release(&policy->current_end, hint);
    }
    return window.end;
}

/* ---- 1  Policy ------------------------------------------------------------------------------- */

uint32_t stint_decision_begin_now(struct decision *decision, struct stint_limiter *limiter,
                                  const struct stint_request *request, uint64_t now, uint32_t why) {
    struct stint_request same = *request;

    /* Each round but the first: the policy was replaced once more. */
    while (why == STINT_UNKNOWN_POLICY) {
        same.policy = stint_limiter_policy_now(limiter, request->policy);
        if (same.policy >= limiter->deciding) /* POLICY_NONE, and all by a read-only handle */
            break;
        why = decision_begin(decision, limiter, &same, now, nothing_known);
    }
    return why;
}

/* ---- 1  Policy: a key's override ------------------------------------------------------------- */

bool stint_override_holds(const struct stint_limiter *limiter, uint32_t policy_id, uint32_t traits,
                          uint64_t state, uint64_t now) {
    const bool set = (state & STATE_REFUSED) != 0; /* by hand */
    const uint64_t longest =
        set ? STINT_WINDOW_MAX / STINT_TICK_NS : limiter_ban(limiter, policy_id) >> BAN_TICKS;
    const tick_t most = (tick_t)longest + 1 + ALLOWANCE_TICKS;
    tick_t tick = tick_of(now);

    if (!set && (!override_banned(state) || override_void(state, traits))) /* or strikes */
        return false;
    tick_t left = end_of(state_id(state), tick) - tick;
    if (LIKELY(left <= most))
        return left > 0;
    tick = tick_of(limiter_now(limiter)); /* as stint_beyond_clock: a thread may be late */
    return end_of(state_id(state), tick) - tick <= most;
}

uint64_t stint_override_seen(const struct stint_limiter *limiter, uint32_t policy_id,
                             uint32_t traits, uint64_t hash, uint64_t now) {
    const struct table *table = &limiter->table;
    const uint64_t tag = table_tag(table, hash, limiter_companion(limiter, policy_id));
    const uint64_t reach = filter_bit_set(filter_far(table, hash))
                               ? atomic_load_acquire(&table_shard_of(table, hash)->reach) /* I6 */
                               : 1;
    struct line *line = home_of(table, hash);

    for (uint64_t i = 0; i <= reach && i < table->probe_lines; i++) {
        for (uint32_t match = line_match(line, tag); match != 0; match = match4_rest(match)) {
            uint64_t state = override_in(line_slot(line, match), tag);
            if (state != 0 && stint_override_holds(limiter, policy_id, traits, state, now))
                return state;
        }
        line = table_next(table, hash, line);
    }
    /* It may have been swept, after all slots of the policy (sweep.c). */
    atomic_fence_acquire(); /* M9 */
    return 0;
}

bool stint_override_told(const struct stint_limiter *limiter, uint64_t tag, uint64_t state,
                         uint64_t now, struct override_told *told) {
    const struct policy *policy = limiter_tag_policy(limiter, tag);
    const tick_t end = end_of(state_id(state), tick_of(now));

    if (policy == NULL || (policy_traits(policy) & TRAIT_COMPANION) == 0 || state_pending(state) ||
        end <= tick_of(now))
        return false;
    const uint32_t of = limiter_companion(limiter, tag_policy(&limiter->table, tag));
    uint32_t traits;
    const uint32_t id = stint_limiter_policy_seen(limiter, of, &traits); /* it may be replaced */
    if (id == POLICY_NONE || (traits & STINT_OVERRIDES) == 0 || override_void(state, traits))
        return false;
    const bool holds = stint_override_holds(limiter, id, traits, state, now);
    const bool set = (state & STATE_REFUSED) != 0;
    *told = (struct override_told){
        .policy_id = id,
        .limit = holds ? override_limit(state) : 0,
        .strikes = set || holds ? 0 : (uint32_t)(state_used(state) & ~OVERRIDE_BY_SHADOW),
        .set = set,
        .until = tick_ns(end),
    };
    return holds || told->strikes != 0;
}

/* ---- 5  Charge: what a fetch-add was that met something else --------------------------------- */

bool stint_slot_added_ours(const struct decision *decision, struct slot *slot, uint64_t seen,
                           uint64_t added) {
    if (state_same_window(added, seen))
        return true;
    if (GUARD(ADDED_PENDING, state_pending(added))) /* the commit drops it */
        return false;
    /* Tag (M3), then state (M4): if both are the key's with the end that was added to, it was the
     * key's when it was added to (I1); unless that was another's, whose end fell and has come
     * again. So whether one fell is asked last (M8). */
    if (!GUARD(ADDED_TAG, atomic_load_acquire(&slot->tag) != decision->tag) &&
        !GUARD(ADDED_STATE, !state_same_window(atomic_load_acquire(&slot->state), added)) &&
        !GUARD(ADDED_FALLEN,
               shard_end_fell(table_shard_of(&decision->limiter->table, decision->hash),
                              end_of(state_id(added), tick_of(decision->now)))))
        return true;
    limiter_count_table(decision->limiter, COUNT_STRAY);
    return false;
}

uint64_t stint_now_before(const struct stint_limiter *limiter, const struct policy *policy,
                          tick_t end, uint64_t now) {
    const tick_t left = end - tick_of(now);
    if (UNLIKELY(left <= 0 || left > policy_length(policy) + ALLOWANCE_TICKS))
        now = limiter_now(limiter);
    return LIKELY(end > tick_of(now)) ? now : tick_ns(end) - 1;
}

/* ---- 6  Verdict ------------------------------------------------------------------------------ */

bool stint_decision_void(struct stint_limiter *limiter, uint32_t why,
                         struct stint_verdict *verdict) {
    if (limiter->looking != NULL)
        why = STINT_BAD_REQUEST;
    limiter_count_table(limiter,
                        why == STINT_BAD_REQUEST ? COUNT_BAD_REQUEST : COUNT_UNKNOWN_POLICY);
    if (verdict != NULL)
        *verdict = (struct stint_verdict){.flags = why, .retry_after = STINT_NEVER};
    return false;
}

/* The length of the window that is waited for, ns. */
static uint64_t waiting_window(const struct waiting *waiting) {
    if (limiter_record(waiting->limiter, waiting->policy)->calendar == 0)
        return waiting->terms.window;
    struct span window =
        limiter_calendar_window(waiting->limiter, waiting->policy, waiting->end - 1);
    return tick_ns(window.end - window.begin);
}

uint64_t stint_decision_wait(const struct waiting *waiting) {
    const struct rule rule = policy_rule(waiting->policy);
    const struct terms *terms = &waiting->terms;
    const struct charge *charge = &waiting->charge;
    uint64_t wait;

    if (UNLIKELY((terms->part & PART_OVERRIDDEN) != 0) && !charge->fits) {
        const tick_t now = waiting->end - (tick_t)(waiting->left / STINT_TICK_NS);
        const uint64_t until = tick_ns(end_of(state_id(waiting->override), now));
        const uint64_t at = tick_ns(waiting->end) - waiting->left;
        /* A late caller's override can be over by the time of the clock, at which he is decided. */
        const uint64_t over = until > at ? until - at : 0;
        const uint64_t most = (rule.flags & STINT_SMOOTH) != 0 ? SMOOTH_MAX : STINT_LIMIT_MAX;
        uint64_t capacity = waiting->without != 0 ? waiting->without : rule.capacity;
        if (capacity > most)
            capacity = most;
        const uint64_t reserved = (terms->flags & STINT_RESERVE) != 0 ? rule.max_reserved : 0;
        const uint64_t room = capacity + reserved;
        const struct after_override then_by = {
            waiting->untracked ? waiting->left : 0, over, capacity,
            GUARD(OVERRIDE_ROOM, room > STINT_LIMIT_MAX) ? STINT_LIMIT_MAX : room};
        wait = charge_wait_over(terms, &rule, charge, waiting->left, &then_by);
        if (wait == over)
            return wait; /* exact: there is no window for whose end all wait */
    } else {
        wait = charge_wait(terms, &rule, charge, waiting->left);
    }
    if (charge->fits)
        return wait;
    if (waiting->untracked && wait < waiting->left)
        wait = waiting->left; /* of nothing that this key could be given */
    if (rule.jitter != 0 && wait != STINT_NEVER)
        wait = wait_add(wait, part_of(mix(waiting->hash, (uint64_t)waiting->end),
                                      waiting_window(waiting) / 100 * rule.jitter));
    return wait;
}

/* ---- Watching -------------------------------------------------------------------------------- */

bool stint_slot_live(const struct stint_limiter *limiter, uint64_t tag, uint64_t state,
                     tick_t now) {
    if (tag == 0 || tag == table_tombstone(&limiter->table) || state_pending(state))
        return false;
    const struct policy *policy = limiter_tag_policy(limiter, tag);
    const tick_t ahead = end_of(state_id(state), now) - now;
    if (ahead > 0)
        return policy != NULL && ahead <= policy->length + ALLOWANCE_TICKS &&
               !((state & (STATE_REFUSED | USED_MASK)) == 0 && /* an override that was lifted */
                 (policy_traits(policy) & TRAIT_COMPANION) != 0);
    return slot_carries(policy, state, now);
}
