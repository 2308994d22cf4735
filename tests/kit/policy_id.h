/* SPDX-License-Identifier: MIT
 * The id of a policy, or -errno, in one: for tests that look at either. */
#ifndef STINT_TESTS_POLICY_ID_H
#define STINT_TESTS_POLICY_ID_H

#include <stdlib.h>

#include "stint.h"

#define NO_POLICY_ID UINT32_C(0xA5A5A5A5)

/* What a call that wrote the id, or failed and did not, has come to. */
static inline int policy_id_or_error(int error, uint32_t id) {
    if (error > 0 || (error < 0) != (id == NO_POLICY_ID))
        abort();
    return error != 0 ? error : (int)id;
}

static inline int policy_added(struct stint_limiter *limiter, const struct stint_policy *policy) {
    uint32_t id = NO_POLICY_ID;
    int error = stint_policy_add(limiter, policy, &id);
    return policy_id_or_error(error, id);
}

static inline int policy_found(const struct stint_limiter *limiter, const char *name) {
    uint32_t id = NO_POLICY_ID;
    int error = stint_policy_find(limiter, name, &id);
    return policy_id_or_error(error, id);
}

#endif
