/* SPDX-License-Identifier: MIT
 * What the steps of a decision (slot.h) need seldom, out of line so that the path keeps its
 * registers. */
#include "slot.h"

#ifdef STINT_TESTING
void (*stint_test_hook)(enum stint_test_instant instant);
void (*stint_test_step)(const void *word);
uint64_t stint_test_removed;
#endif

/* ---- 2  Window ------------------------------------------------------------------------------- */

tick_t stint_window_at(const struct stint_limiter *limiter, const struct policy *policy,
                       uint32_t flags, uint64_t hash, tick_t tick) {
    tick_t start = policy->start, length = policy->length;
    if ((flags & STINT_START_PER_KEY) != 0)
        start += key_phase(hash, length);
    tick_t end = window_end(tick, start, length);
    limiter_raise_latest_begin(limiter, end - length);
    return end;
}

tick_t stint_window_compute(const struct stint_limiter *limiter, struct policy *policy,
                            uint32_t flags, uint64_t hash, uint64_t now) {
    tick_t end = stint_window_at(limiter, policy, flags, hash, tick_of(now));
    /* The first and the last window of 64 bits of ns are no hints: each would be taken for the
     * other. */
    if ((flags & STINT_START_PER_KEY) == 0 && end >= policy->length &&
        end <= (tick_t)(UINT64_MAX / STINT_TICK_NS) &&
        /* I7: latest_begin first, then the hint (M7). */
        (uint64_t)end != atomic_load_relaxed(&policy->current_end))
        atomic_store_release(&policy->current_end, (uint64_t)end);
    return end;
}

/* ---- 1  Policy ------------------------------------------------------------------------------- */

uint32_t stint_decision_begin_now(struct decision *decision, struct stint_limiter *limiter,
                                  const struct stint_request *request, uint64_t now, uint32_t why) {
    struct stint_request same = *request;

    /* Each round but the first: the policy was replaced once more. */
    while (why == STINT_UNKNOWN_POLICY) {
        same.policy = stint_limiter_policy_now(limiter, request->policy);
        if (same.policy == POLICY_NONE)
            break;
        why = decision_begin(decision, limiter, &same, now, nothing_known);
    }
    return why;
}

/* ---- 5  Charge: what a fetch-add was that met something else --------------------------------- */

bool stint_slot_added_ours(const struct decision *decision, struct slot *slot, uint64_t seen,
                           uint64_t added) {
    if (state_same_window(added, seen))
        return true;
    if (GUARD(ADDED_PENDING, state_pending(added))) /* the commit drops it */
        return false;
    /* Tag (M3), then state (M4): if both are the key's with the end that was added to, it was the
     * key's when it was added to (I1). */
    if (!GUARD(ADDED_TAG, atomic_load_acquire(&slot->tag) != decision->tag) &&
        !GUARD(ADDED_STATE, !state_same_window(atomic_load_acquire(&slot->state), added)))
        return true;
    limiter_count_table(decision->limiter, COUNT_STRAY);
    return false;
}

/* ---- 6  Verdict ------------------------------------------------------------------------------ */

bool stint_decision_void(struct stint_limiter *limiter, uint32_t why,
                         struct stint_verdict *verdict) {
    limiter_count_table(limiter,
                        why == STINT_BAD_REQUEST ? COUNT_BAD_REQUEST : COUNT_UNKNOWN_POLICY);
    if (verdict != NULL)
        *verdict = (struct stint_verdict){.flags = why, .retry_after = STINT_NEVER};
    return false;
}

uint64_t stint_decision_wait(const struct waiting *waiting) {
    const struct rule rule = policy_rule(waiting->policy);
    uint64_t wait = charge_wait(&waiting->terms, &rule, &waiting->charge, waiting->left);

    if (waiting->charge.fits)
        return wait;
    if (waiting->untracked && wait < waiting->left)
        wait = waiting->left; /* of nothing that this key could be given */
    if (rule.jitter != 0 && wait != STINT_NEVER)
        wait = wait_add(wait, part_of(mix(waiting->hash, (uint64_t)waiting->end),
                                      waiting->terms.window / 100 * rule.jitter));
    return wait;
}
