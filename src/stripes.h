/* SPDX-License-Identifier: MIT
 * Striped policies: a key split over several slots, each with its share of the limit.
 *
 * All cores that decide on one key take turns at its slot's cache line. With n stripes a thread
 * begins at one of its own and goes round all of them before it refuses. So the shares together are
 * the limit, and nothing is refused early. Each stripe is a slot like any other, found by a hash of
 * its own; stripe 0 has the key's, and remembers the first refusal. */
#ifndef STINT_STRIPES_H
#define STINT_STRIPES_H

#include "fast.h"
#include "feature/stripe.h"

/* The verdict's estimate of what the key has used: in each of its stripes as much as in one. */
static inline uint64_t stripe_estimate(uint64_t used, uint64_t capacity, uint32_t stripes) {
    return used * stripes < capacity ? used * stripes : capacity;
}

/* Takes 1 or more tokens of a key of a striped policy, of which this is the word, from this
 * thread's own stripe: near, by the steps of core.h; one token by an add (fast.h). What fits is
 * told of no trait but the near limit. Returns false if it has done nothing. */
static ALWAYS_INLINE bool stripe_take(struct stint_limiter *limiter,
                                      const struct stint_request *request, uint64_t now,
                                      uint64_t word, struct stint_verdict *verdict) {
    const uint32_t stripes = traits_stripes((uint32_t)word),
                   stripe = stint_limiter_stripe(limiter) & (stripes - 1);
    const uint64_t capacity = word >> 32, share = stripe_share(capacity, stripes, stripe),
                   hash = stripe_key(request->key.hash, stripe);
    const uint32_t cost = request->cost;
    const struct stint_request own = {.key = {hash}, .policy = request->policy, .cost = cost};
    struct decision part;
    struct seen seen;
    uint64_t used;

    if (UNLIKELY(decision_begin_known(&part, limiter, &own, now, word & TRAIT_NEAR, false) != 0))
        return false;
    part.terms.capacity = part.terms.room = share;
    seen.slot = slot_of(&limiter->table, hash, part.tag);
    if (UNLIKELY(seen.slot == NULL))
        return false;
    if (FAST(cost == 1) && slot_room(seen.slot, part.tag, part.end, share, &seen.state)) {
        if (UNLIKELY(!token_add(limiter, seen.slot, part.tag, part.end, share, &used)))
            return false;
    } else if (cost == 0) { /* all stripes tell of it */
        return false;
    } else {
        seen.state = atomic_load_acquire(&seen.slot->state); /* M1; the swap confirms it: M2 */
        if (UNLIKELY(slot_look(&part, &seen) != LOOK_GOOD))
            return false;
        decision_judge(&part, &seen);
        if (UNLIKELY(!part.charge.fits) || !slot_charge(&part, &seen))
            return false;
        used = part.charge.used;
    }
    used = stripe_estimate(used, capacity, stripes); /* not below the cost, which fits the share */
    part.terms.capacity = capacity;
    part.charge = (struct charge){used, used, used, cost, true, cost};
    return decision_answer(&part, verdict);
}

/* Decides on a key of a striped policy by all of its stripes: what came of it is in `whole`. */
void stint_decide_by_stripes(struct decision *whole);

#endif
