/* SPDX-License-Identifier: MIT
 * What policy.c and notation.c share. */
#ifndef STINT_POLICY_H
#define STINT_POLICY_H

#include "limiter.h"

/* 0, or -EINVAL with a reason. */
int policy_check(const struct stint_policy *policy);

/* Writes "100/minute" or "100/15 minutes" as snprintf does. */
int rate_format(const struct stint_policy *policy, char *buffer, size_t size);

#endif
