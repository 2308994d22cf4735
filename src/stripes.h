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

static inline stint_key stripe_key(stint_key key, uint32_t stripe) {
    return stripe == 0 ? key : mix(key, stripe + 1);
}

/* What the key has used if all its stripes have used as much as one: the verdict's estimate. */
static inline uint64_t stripe_estimate(uint64_t used, uint64_t capacity, uint32_t stripes) {
    return used * stripes < capacity ? used * stripes : capacity;
}

/* Decides on a key of a striped policy. `slot` is NULL, or that of this thread's own stripe, to
 * which the hot path added (see slot_decide_added). */
bool stripes_decide(struct decision *decision, struct slot *slot, uint64_t seen, uint64_t added,
                    struct stint_verdict *verdict);

#endif
