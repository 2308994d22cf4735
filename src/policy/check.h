/* SPDX-License-Identifier: MIT
 * What a policy may be, and which flags go together. */
#ifndef STINT_POLICY_CHECK_H
#define STINT_POLICY_CHECK_H

#include <stint.h>

#include "base/message.h"

/* The size that struct stint_policy began with. */
#define POLICY_LEAST SIZE_THROUGH(struct stint_policy, calendar)

/* What a reason names of a policy. */
enum policy_word {
    /* What it may have besides its rate. STINT_SHADOW, near_limit and jitter go with all. */
    WORD_CAPACITY_BELOW,
    WORD_CAPACITY_ABOVE,
    WORD_MAX_RESERVED,
    WORD_STRIPES,
    WORD_COUNT_REFUSED,
    WORD_SMOOTH,
    WORD_START,
    WORD_PER_KEY,
    WORD_FIRST,
    WORD_CALENDAR,
    WORD_IN_FLIGHT,
    WORD_BAN, /* before what it needs, so that it is named */
    WORD_OVERRIDES,
    FEATURES,
    /* Numbers. */
    WORD_LIMIT = FEATURES,
    WORD_CAPACITY,
    WORD_OFFSET,
    WORD_BAN_AFTER,
    POLICY_WORDS
};

/* Whether a policy is one: 0, or -EINVAL with a reason. */
int stint_policy_check(const struct stint_policy *policy);

/* The same of a policy that was read from a text, whose numbers are in their ranges: the reason is
 * in the words of the notation. `wrong` receives what it names; both may be the same. */
int stint_policy_check_text(const struct stint_policy *policy, enum policy_word wrong[2]);

/* Reads a caller's policy, of whatever size, and checks it: 0, or -EINVAL with a reason. */
int stint_policy_given(const struct stint_policy *given, struct stint_policy *policy);

#endif
