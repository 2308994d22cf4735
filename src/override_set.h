/* SPDX-License-Identifier: MIT
 * Overrides and bans: slots that say of a key what its limit is, or how often it was refused. */
#ifndef STINT_OVERRIDE_SET_H
#define STINT_OVERRIDE_SET_H

#include "decision.h"

/* A decision by a policy with a ban has given a first refusal: counts a strike. If the key is
 * banned by it, the verdict says so. */
void stint_strike(struct stint_limiter *limiter, uint32_t policy_id, uint64_t key, uint64_t now,
                  struct stint_verdict *verdict);

/* Lifts a key's ban, and forgets its strikes. Returns whether there was any. */
bool stint_strikes_reset(struct stint_limiter *limiter, uint32_t policy_id, uint64_t key);

#endif
