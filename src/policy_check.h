/* SPDX-License-Identifier: MIT
 */
#ifndef STINT_POLICY_CHECK_H
#define STINT_POLICY_CHECK_H

#include <stint.h>

/* Whether a caller's policy is one: 0, or -EINVAL with a reason. */
int stint_policy_check(const struct stint_policy *policy);

#endif
