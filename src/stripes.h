/* SPDX-License-Identifier: MIT
 * Striped policies: a key split over several slots, each with its share of the limit.
 *
 * One slot is one cache line, and all cores that decide on one key take turns at it. With n stripes
 * a thread begins at a stripe of its own and goes round all of them before it refuses, so the
 * shares together are the limit, and nothing is refused early. Each stripe is a slot like any
 * other, found by a hash of its own; stripe 0 has the key's, and remembers the first refusal. */
#ifndef STINT_STRIPES_H
#define STINT_STRIPES_H

#include "decision.h"

/* The short way: takes 1 or more tokens of a key of a striped policy from this thread's own stripe.
 * The request has no flags, and no limit of its own. `word`: the policy's traits and capacity. */
NOINLINE enum answer stint_stripe_take(struct stint_limiter *limiter,
                                       const struct stint_request *request, uint64_t now,
                                       struct stint_verdict *verdict, uint64_t word);

/* The long way: decides on a key of a striped policy. What came of it is in the decision. */
void stint_stripes_settle(struct decision *whole);

#endif
