/* SPDX-License-Identifier: MIT
 * A request for a key that has no slot and gets none. */
#ifndef STINT_FULL_H
#define STINT_FULL_H

#include "claim.h"

/* Ends a request that writes nothing for a key that has no slot. */
enum progress stint_decide_nothing(struct decision *decision, uint32_t flags);

/* Whether a request leaves a key without a slot without one: a look, or one for no tokens. The
 * charge is what was judged of a count of 0. */
static inline bool leaves_nothing(const struct decision *decision) {
    const struct charge *charge = &decision->charge;
    return (charge->count == 0 || is_look(&decision->terms)) &&
           (charge->fits || !refusal_marked(&decision->terms));
}

/* The key may claim no slot, and has none: the outcome that the user chose (G). */
enum progress stint_decide_full(struct decision *decision);

#endif
