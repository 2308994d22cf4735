/* SPDX-License-Identifier: MIT
 * Overrides and bans: slots that say of a key what its limit is, or how often it was refused. */
#ifndef STINT_OVERRIDE_SET_H
#define STINT_OVERRIDE_SET_H

#include "decision.h"

/* A decision by a policy of these traits, with a ban, has given a first refusal: counts a strike.
 * If the key is banned by it, the verdict says so. */
void stint_strike(struct stint_limiter *limiter, uint32_t policy_id, uint32_t traits, stint_key key,
                  uint64_t now, struct stint_verdict *verdict);

/* Whether a strike is to be counted after a decision. */
static ALWAYS_INLINE bool strikes(const struct decision *decision) {
    return UNLIKELY((decision->flags & STINT_FIRST_REFUSAL) != 0) &&
           (decision->terms.traits & STINT_OVERRIDES) != 0 &&
           (decision->terms.part & PART_OVERRIDDEN) == 0 &&
           limiter_ban(decision->limiter, decision->policy_id).word != 0;
}

/* Lifts a key's ban, and forgets its strikes. Returns whether there was any. */
bool stint_strikes_reset(struct stint_limiter *limiter, uint32_t policy_id, stint_key key);

#endif
