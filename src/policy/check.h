/* SPDX-License-Identifier: MIT
 * What a policy may be, and what goes with what. */
#ifndef STINT_POLICY_CHECK_H
#define STINT_POLICY_CHECK_H

#include <stint.h>

#include "base/message.h"

/* The size that struct stint_policy began with. */
#define POLICY_LEAST SIZE_THROUGH(struct stint_policy, calendar)

/* What a policy's text says: the two parts of its rate, then the options, in the order in which
 * they are written. */
enum option {
    OPTION_LIMIT,
    OPTION_WINDOW,
    OPTION_NAME,
    OPTION_PER_KEY,
    OPTION_FIRST,
    OPTION_START,
    OPTION_CAPACITY,
    OPTION_RESERVE,
    OPTION_STRIPES,
    OPTION_NEAR,
    OPTION_JITTER,
    OPTION_SMOOTH,
    OPTION_IN_FLIGHT,
    OPTION_SHADOW,
    OPTION_COUNT_REFUSED,
    OPTION_BAN,
    OPTION_OVERRIDES,
    OPTION_AFTER,
    OPTIONS,
    /* What a reason names apart. */
    OPTION_BELOW = OPTIONS, /* capacity below the limit */
    OPTION_ABOVE,
    OPTION_OFFSET, /* of the start */
};

/* Checks a policy. Returns 0, or -EINVAL with a reason.
 *   wrong  NULL; or the policy was read from a text, in which all numbers are in their ranges. Then
 *          the reason is in the words of the text, and `wrong` receives the two options that it is
 *          about, which may be the same */
int stint_policy_check(const struct stint_policy *policy, enum option wrong[2]);

/* Reads a caller's policy, of whatever size, and checks it: 0, or -EINVAL with a reason. */
int stint_policy_given(const struct stint_policy *given, struct stint_policy *policy);

#endif
