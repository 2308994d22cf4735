/* SPDX-License-Identifier: MIT
 * What policy.c shares with notation.c and limiter.c. */
#ifndef STINT_POLICY_H
#define STINT_POLICY_H

#include "limiter.h"

/* 0, or -EINVAL with a reason. */
int policy_check(const struct stint_policy *policy);

/* Looks at all policies of a table that somebody else wrote: 0, or -EPROTO with a reason. Under the lock. */
int policies_check(const struct stint_limiter *limiter);

/* Finishes or takes back what somebody left half done who died in policy.c. Under the lock. */
void policies_repair(struct stint_limiter *limiter);

/* Writes "100/minute" or "100/15 minutes" as snprintf does. */
int rate_format(const struct stint_policy *policy, char *buffer, size_t size);

#endif
