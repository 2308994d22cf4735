/* SPDX-License-Identifier: MIT
 * Striped policies: a key split over several slots, each with its share of the limit.
 *
 * One slot is one cache line, and all cores that decide on one key take turns at it. With n stripes
 * a thread begins at a stripe of its own and goes round all of them before it refuses, so the
 * shares together are the limit, and nothing is refused early. Each stripe is a slot like any
 * other, found by a hash of its own; stripe 0 has the key's, and remembers the first refusal. */
#ifndef STINT_STRIPES_H
#define STINT_STRIPES_H

#include "see.h"

/* The verdict's estimate of what the key has used: as if all its stripes had used as much as
 * one. */
static inline uint64_t stripe_estimate(uint64_t used, uint64_t capacity, uint32_t stripes) {
    return used * stripes < capacity ? used * stripes : capacity;
}

/* The short way: takes 1 or more tokens of a key of a striped policy from this thread's own
 * stripe. */
static ALWAYS_INLINE enum answer stripe_take(struct stint_limiter *limiter, uint32_t policy_id,
                                             uint64_t key, uint32_t cost, uint64_t now,
                                             struct stint_verdict *verdict) {
    const struct policy *policy = &limiter->policies[policy_id];
    const uint64_t word = policy_word(policy), capacity = word >> 32;
    const uint32_t stripes = traits_stripes((uint32_t)word);
    const uint32_t stripe = stint_limiter_stripe(limiter) & (stripes - 1);
    const uint64_t hash = stripe_key(key, stripe);
    const tick_t end = (tick_t)atomic_load_relaxed(&policy->current_end); /* M16 */
    struct sight sight = {.end = end, .capacity = stripe_share(capacity, stripes, stripe)};

    if (cost == 1) {
        sight.identity = policy_identity(policy);
        if (UNLIKELY(GUARD(HINT_WINDOW, tick_ns(end) - now - 1 >= policy->window)) ||
            !see_room(limiter, policy_id, hash, &sight) || !sight_add(limiter, &sight))
            return NEXT;
    } else if (!see_tokens(limiter, policy_id, hash, cost, now, &sight) || !sight_swap(&sight)) {
        return NEXT;
    }
    struct decision whole =
        plain_decision(limiter, policy_id, sight.identity, now, sight.end, capacity);
    /* It is no bucket, so the compiler folds what is asked of one. */
    whole.terms.traits = (uint32_t)word & ~RULE_BUCKET;
    /* Not below the cost, which fits the share. */
    return taken_end(&whole, stripe_estimate(sight.count, capacity, stripes), cost, verdict);
}

/* The long way: decides on a key of a striped policy. What came of it is in the decision. */
void stint_decide_by_stripes(struct decision *whole);

#endif
