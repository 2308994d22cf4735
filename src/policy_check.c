/* SPDX-License-Identifier: MIT
 * What a policy may be: each number by itself, and what goes with what. */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "charge.h"
#include "message.h"
#include "policy_check.h"

/* Checks what goes with what. */
static int check_together(const struct stint_policy *policy) {
    uint64_t capacity = policy->capacity == 0 ? policy->limit : policy->capacity;
    bool refused = (policy->flags & STINT_COUNT_REFUSED) != 0;
    bool carries = capacity > policy->limit || policy->max_reserved > 0;

    if (capacity + policy->max_reserved > STINT_LIMIT_MAX)
        return stint_failed(
            EINVAL, "policy.capacity and policy.max_reserved must be at most 2^28 together");
    if (refused && carries)
        return stint_failed(EINVAL,
                            "STINT_COUNT_REFUSED does not go with a capacity above the limit, nor "
                            "with max_reserved");
    if ((policy->flags & STINT_START_PER_KEY) != 0 && policy->start != 0)
        return stint_failed(EINVAL, "policy.start must be 0 with STINT_START_PER_KEY");
    if ((policy->flags & STINT_SMOOTH) != 0) {
        if (policy->limit > SMOOTH_MAX)
            return stint_failed(EINVAL, "policy.limit of a smooth policy must be at most 16,383");
        if (capacity != policy->limit || policy->max_reserved != 0)
            return stint_failed(EINVAL,
                                "STINT_SMOOTH does not go with policy.capacity or max_reserved");
        if (refused)
            return stint_failed(EINVAL, "STINT_SMOOTH does not go with STINT_COUNT_REFUSED");
    }
    if (policy->stripes <= 1)
        return 0;
    if (policy->stripes > STRIPES_OF_KEY_MAX || (policy->stripes & (policy->stripes - 1)) != 0)
        return stint_failed(EINVAL, "policy.stripes must be a power of two, at most 64");
    if (policy->stripes > policy->limit || policy->stripes > capacity)
        return stint_failed(EINVAL, "policy.stripes must be at most the limit and the capacity");
    if (carries || refused || (policy->flags & (STINT_SMOOTH | STINT_START_PER_KEY)) != 0)
        return stint_failed(EINVAL,
                            "policy.stripes goes with plain policies only: no capacity above the "
                            "limit, max_reserved, smooth, start per key or count-refused");
    return 0;
}

int stint_policy_check(const struct stint_policy *policy) {
    if (policy == NULL)
        return stint_failed(EINVAL, "policy is NULL");
    int error = stint_struct_check(policy, policy->size, sizeof(*policy),
                                   "policy.size is wrong: " WRONG_SIZE);
    if (error != 0)
        return error;
    if (memchr(policy->name, '\0', sizeof(policy->name)) == NULL)
        return stint_failed(EINVAL,
                            "policy.name has no terminating NUL: it may have 63 characters");
    for (const char *at = policy->name; *at != '\0'; at++)
        if (*at < 0x20 || *at > 0x7E)
            return stint_failed(EINVAL, "policy.name has a character that is not printable ASCII");
    if (policy->limit == 0 || policy->limit > STINT_LIMIT_MAX)
        return stint_failed(EINVAL, "policy.limit must be 1 to 2^28 (268,435,456) tokens");
    if (policy->window < STINT_WINDOW_MIN || policy->window > STINT_WINDOW_MAX)
        return stint_failed(EINVAL, "policy.window must be 10 ms to 366 days");
    if (policy->window % STINT_TICK_NS != 0)
        return stint_failed(EINVAL, "policy.window must be a multiple of 10 ms");
    if (policy->start % (int64_t)STINT_TICK_NS != 0)
        return stint_failed(EINVAL, "policy.start must be a multiple of 10 ms");
    if ((policy->flags &
         ~(uint32_t)(STINT_COUNT_REFUSED | STINT_SHADOW | STINT_START_PER_KEY | STINT_SMOOTH)) != 0)
        return stint_failed(EINVAL, "policy.flags has bits that this version does not know");
    if (policy->near_limit > 100)
        return stint_failed(EINVAL, "policy.near_limit must be at most 100 percent");
    if (policy->jitter > 100)
        return stint_failed(EINVAL, "policy.jitter must be at most 100 percent");
    if (policy->reserved != 0)
        return stint_failed(EINVAL, "policy.reserved must be 0");
    return check_together(policy);
}
