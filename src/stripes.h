/* SPDX-License-Identifier: MIT
 * Striped policies: a key split over several slots, each with its share of the limit.
 *
 * One slot is one cache line, and all cores that decide on one key take turns at it. With n stripes
 * a thread begins at a stripe of its own and goes round all of them before it refuses, so the
 * shares together are the limit, and nothing is refused early. Each stripe is a slot like any
 * other, found by a hash of its own; stripe 0 has the key's, and remembers the first refusal. */
#ifndef STINT_STRIPES_H
#define STINT_STRIPES_H

#include "slot.h"

/* Takes a token of a key of a striped policy: from this thread's own stripe, by the steps of
 * take.c, if there is one; else it goes the long way. `word`: the policy's traits and capacity. */
NOINLINE bool stint_stripe_take(struct stint_limiter *limiter, uint32_t policy_id, stint_key key,
                                uint64_t now, struct stint_verdict *verdict, uint64_t word);

/* Likewise, tokens. */
NOINLINE bool stint_stripe_take_cost(struct stint_limiter *limiter, uint32_t policy_id,
                                     stint_key key, uint32_t cost, uint64_t now,
                                     struct stint_verdict *verdict);

/* The long way of any request, striped or not, and its end. If the policy is gone on the way, the
 * request is decided by the one in its place. */
bool stint_decision_settle(struct decision *decision, const struct stint_request *request,
                           struct stint_verdict *verdict);

/* The rest of a request for one token whose fetch-add met another window, or no room: others were
 * faster. */
NOINLINE bool stint_slot_decide_added(struct stint_limiter *limiter,
                                      const struct stint_request *request, uint64_t now,
                                      struct stint_verdict *verdict, const struct added *added);

/* The long way of a request from its beginning to its verdict: where the path of take.c leaves. */
bool stint_slot_decide(struct stint_limiter *limiter, const struct stint_request *request,
                       uint64_t now, struct stint_verdict *verdict);

#endif
