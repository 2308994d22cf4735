/* SPDX-License-Identifier: MIT
 * What a policy may be, and what goes with what. */
#ifndef STINT_POLICY_CHECK_H
#define STINT_POLICY_CHECK_H

#include <stint.h>

#include "sys/message.h"

/* The size that struct stint_policy began with. */
#define POLICY_LEAST SIZE_THROUGH(struct stint_policy, calendar)

/* What a text says of a policy: its rate in two parts, then the options in the order of texts. */
enum option {
    OPTION_LIMIT,
    OPTION_WINDOW,
    OPTION_NAME,
    OPTION_PER_KEY,
    OPTION_FIRST,
    OPTION_START,
    OPTION_BURST,
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
    OPTION_WITHIN,
    OPTIONS,
    /* What reasons name besides. */
    OPTION_BELOW = OPTIONS, /* a capacity below the limit */
    OPTION_ABOVE,
    OPTION_OFFSET, /* of the start */
};

/* Of the value of an option; a flag has none. */
enum kind { KIND_NAME, KIND_START, KIND_NUMBER, KIND_PERCENT, KIND_TIME, KIND_FLAG };

struct policy_option {
    const char *names[2]; /* in a program, and in a text: how the option begins */
    size_t field;         /* of its value, in struct stint_policy */
    enum kind kind;
    uint32_t flag;       /* enum stint_policy_flags: what it sets */
    uint64_t most;       /* of a number, which begins at 1 */
    const char *range;   /* why a number or a time of a text is refused */
    const char *no_tick; /* why a time that is no multiple of a tick is refused */
};

extern const struct policy_option stint_policy_options[];

/* The most tokens that a key of a policy can hold. */
static inline uint32_t policy_capacity(const struct stint_policy *policy) {
    return policy->burst != 0      ? policy->burst
           : policy->capacity != 0 ? policy->capacity
                                   : policy->limit;
}

/* The value of an option in a policy; not 0 if the policy has the option. */
uint64_t stint_policy_value(const struct stint_policy *policy, enum option option);

/* Checks a policy: 0, or -EINVAL with a reason. `wrong`: NULL; of a policy from a text, whose
 * numbers are in their ranges, it receives the two options that the reason names, or one twice. */
int stint_policy_check(const struct stint_policy *policy, enum option wrong[2]);

/* Reads a caller's policy, of whatever size, and checks it: 0, or -EINVAL with a reason. */
int stint_policy_given(const struct stint_policy *given, struct stint_policy *policy);

/* Writes "100/minute" or "100/15 minutes" as snprintf does (notation.c). */
int stint_rate_format(const struct stint_policy *policy, char *buffer, size_t size);

#endif
