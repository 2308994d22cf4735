/* SPDX-License-Identifier: MIT
 * The policies of a table, as set-up sees them. */
#ifndef STINT_POLICY_H
#define STINT_POLICY_H

#include "limiter.h"

/* Takes the table's lock for set-up. If its last holder died, it looks at the table, and finishes
 * or takes back what he left half done. Returns 0; -EBUSY if somebody has held it for too long,
 * -EPROTO. It is given back by stint_limiter_unlock. */
int stint_policies_lock(struct stint_limiter *limiter);

/* Looks at all policies of a table that somebody else wrote: 0, or -EPROTO with a reason. Under the
 * lock. */
int stint_policies_check(const struct stint_limiter *limiter);

/* Finishes or takes back what somebody left half done who died in policy.c. Under the lock. */
void stint_policies_repair(struct stint_limiter *limiter);

/* A policy that exists, as clients are told of it. One that was given no name has its present rate
 * for a name. */
struct stint_policy stint_policy_told(const struct stint_limiter *limiter, uint32_t id);

/* An index of names, of each handle its own. NULL: there is no memory. */
struct names *stint_names_make(uint32_t max_policies);
void stint_names_free(struct names *names);

#endif
