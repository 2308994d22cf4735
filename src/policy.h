/* SPDX-License-Identifier: MIT
 * What policy.c shares with notation.c and limiter.c. */
#ifndef STINT_POLICY_H
#define STINT_POLICY_H

#include "limiter.h"

/* 0, or -EINVAL with a reason. */
int stint_policy_check(const struct stint_policy *policy);

/* Looks at all policies of a table that somebody else wrote: 0, or -EPROTO with a reason. Under the lock. */
int stint_policies_check(const struct stint_limiter *limiter);

/* Finishes or takes back what somebody left half done who died in policy.c. Under the lock. */
void stint_policies_repair(struct stint_limiter *limiter);

/* A policy that exists, as clients are told of it: one that was given no name is called by its
 * rate, as that is now. */
struct stint_policy stint_policy_told(const struct stint_limiter *limiter, uint32_t id);

/* An index of names, of each handle its own. NULL: there is no memory. */
struct names *stint_names_make(uint32_t max_policies);
void stint_names_free(struct names *names);

/* Writes "100/minute" or "100/15 minutes" as snprintf does. */
int stint_rate_format(const struct stint_policy *policy, char *buffer, size_t size);

#endif
