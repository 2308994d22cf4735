/* SPDX-License-Identifier: MIT
 * What take.c and decide.c do for others of this folder; and how a key without a slot is given one,
 * where nothing is in the way. */
#ifndef STINT_DECIDE_H
#define STINT_DECIDE_H

#include "core.h"

/* Any request, from its beginning to its verdict. `now` is no STINT_NOW. */
bool stint_decide_any(struct stint_limiter *limiter, const struct stint_request *request,
                      uint64_t now, struct stint_verdict *verdict);

/* Tells why a request is not decided. A read-only handle decides none: it tells
 * STINT_BAD_REQUEST. One whose table is lost lets the request through. Returns verdict.allowed. */
bool stint_decision_void(struct stint_limiter *limiter, const struct stint_request *request,
                         uint32_t why, struct stint_verdict *verdict);

/* Decides in any state of the table; _looked: after a look for the key's slot. */
void stint_decide_by_slot(struct decision *decision);
void stint_decide_looked(struct decision *decision, struct far far);

static ALWAYS_INLINE bool decision_claim_void(const struct decision *decision) {
    return claim_void(decision->policy, (decision->terms.traits & RULE_BUCKET) != 0,
                      decision->version);
}

/* Gives a key that is nowhere a never-used slot of its first two lines (`unused`), with this state.
 * Returns false if it is not that simple, whatever the claim is left in: the caller looks again. */
static ALWAYS_INLINE bool place_unused(const struct decision *decision, uint64_t unused,
                                       uint64_t state) {
    const struct table *table = &decision->limiter->table;
    struct seen claim;
    const bool alone =
        claim_unused(table, decision->hash, decision->tag, tick_of(decision->now), unused, &claim);

    if (LIKELY(state_pending(claim.state)))
        limiter_count_table(decision->limiter, COUNT_PLACED);
    if (UNLIKELY(!alone))
        return false;
    if (LIKELY(!decision_claim_void(decision)))                        /* M8 */
        return atomic_cas_seq(&claim.slot->state, claim.state, state); /* I3; claim_unused */
    (void)slot_cancel(table, claim.slot, claim.tag, claim.state); /* fails if it was resolved */
    return false;
}

/* The same in a slot of the home line that is over. `state` is of the window of now. */
bool stint_place_over(const struct decision *decision, uint64_t state);

/* Decides on a key that was found nowhere, by these two, or without a slot. STALE: it is not that
 * simple. A stripe's request that must stay in its window (PART_SAME_WINDOW) does not try it. One
 * that leaves nothing ends here: there is a slot, and no need of it. */
static ALWAYS_INLINE enum progress claim_short(struct decision *decision, uint64_t unused) {
    if (decision->end == 0)
        decision->end = window_anew(decision);
    decision->charge = judge(&decision->terms, 0, 0);
    if ((decision->terms.special & PART_SAME_WINDOW) != 0)
        return STALE;
    decision->flags = 0;
    if (leaves_nothing(&decision->terms, &decision->charge))
        return unused != 0 &&
                       !begins_later(table_shard_of(&decision->limiter->table, decision->hash),
                                     tick_of(decision->now))
                   ? DONE
                   : STALE;
    if (!decision->charge.fits)
        return STALE;
    const uint64_t state = decision_state(decision, &(struct seen){0});
    return (LIKELY(unused != 0) ? place_unused(decision, unused, state)
                                : stint_place_over(decision, state))
               ? DONE
               : STALE;
}

/* The same for one token of a key that is in neither of its first two lines, from the beginning:
 * if a slot there was never used, the key is nowhere. Returns false if it is not that simple. */
static ALWAYS_INLINE bool place_token(struct decision *decision, struct stint_limiter *limiter,
                                      uint32_t policy_id, uint64_t key, uint64_t now) {
    const struct stint_request request = {.key = {key}, .policy = policy_id, .cost = 1};
    const uint64_t word = policy_word(&limiter->policies[policy_id]);
    const uint64_t unused = unused_near(&limiter->table, key);

    return LIKELY(unused != 0) && (uint32_t)word == EXACT_PLAIN &&
           LIKELY(decision_begin_known(decision, limiter, &request, now,
                                       WORD_EXACT(word, EXACT_PLAIN), false) == 0) &&
           LIKELY(claim_short(decision, unused) == DONE);
}

#endif
