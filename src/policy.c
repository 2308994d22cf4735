/* SPDX-License-Identifier: MIT
 * Policies: add, change, find, get. Set-up functions: they take the limiter's lock, which no
 * decision takes. Decisions read a policy through its `rule` word (limiter.h). */
#include <errno.h>
#include <string.h>

#include "policy.h"

static uint64_t rule_of(const struct stint_policy *policy) {
    return (uint64_t)policy->flags << 32 | policy->limit;
}

int policy_check(const struct stint_policy *policy) {
    if (policy == NULL)
        return fail(EINVAL, "policy is NULL");
    int error =
        struct_check(policy, policy->size, sizeof(*policy), "policy.size is wrong: " WRONG_SIZE);
    if (error != 0)
        return error;
    if (memchr(policy->name, '\0', sizeof(policy->name)) == NULL)
        return fail(EINVAL, "policy.name has no terminating NUL: it may have 63 characters");
    for (const char *at = policy->name; *at != '\0'; at++)
        if (*at < 0x20 || *at > 0x7E)
            return fail(EINVAL, "policy.name has a character that is not printable ASCII");
    if (policy->limit == 0 || policy->limit > STINT_LIMIT_MAX)
        return fail(EINVAL, "policy.limit must be 1 to 2^28 (268,435,456) tokens");
    if (policy->window < STINT_WINDOW_MIN || policy->window > STINT_WINDOW_MAX)
        return fail(EINVAL, "policy.window must be 10 ms to 366 days");
    if (policy->window % STINT_TICK_NS != 0)
        return fail(EINVAL, "policy.window must be a multiple of 10 ms");
    if (policy->start % (int64_t)STINT_TICK_NS != 0)
        return fail(EINVAL, "policy.start must be a multiple of 10 ms");
    if ((policy->flags & ~(uint32_t)(STINT_COUNT_REFUSED | STINT_SHADOW)) != 0)
        return fail(EINVAL, "policy.flags has bits that this version does not know");
    return 0;
}

/* The name that the policy will have: its own, or its rate in the text notation. */
static void name_of(const struct stint_policy *policy, char name[STINT_NAME_SIZE]) {
    memset(name, 0, STINT_NAME_SIZE);
    if (policy->name[0] == '\0')
        rate_format(policy, name, STINT_NAME_SIZE);
    else
        memcpy(name, policy->name, strlen(policy->name));
}

static uint32_t policy_count(const struct stint_limiter *limiter) {
    return (uint32_t)atomic_load_acquire(&limiter->header->policy_count);
}

/* Id of the policy of that name among the first `count`, or -1. */
static int find_name(const struct stint_limiter *limiter, uint32_t count, const char *name) {
    for (uint32_t id = 0; id < count; id++)
        if (strcmp(limiter->policies[id].name, name) == 0)
            return (int)id;
    return -1;
}

static int add_locked(struct stint_limiter *limiter, const struct stint_policy *policy) {
    uint32_t id = policy_count(limiter);
    char name[STINT_NAME_SIZE];

    name_of(policy, name);
    if (find_name(limiter, id, name) >= 0)
        return fail(EEXIST, "a policy of that name exists");
    if (id == limiter->max_policies)
        return fail(ENOSPC, "options.max_policies policies have been added");
    struct policy *added = &limiter->policies[id];
    memcpy(added->name, name, sizeof(added->name));
    added->length = (tick_t)(policy->window / STINT_TICK_NS);
    added->start = policy->start / (int64_t)STINT_TICK_NS;
    atomic_store_relaxed(&added->window_ns, policy->window);
    atomic_store_release(&added->rule, rule_of(policy)); /* from here on decisions find it */
    atomic_store_release(&limiter->header->policy_count, id + 1);
    return (int)id;
}

int stint_policy_add(struct stint_limiter *limiter, const struct stint_policy *policy) {
    if (limiter == NULL)
        return fail(EINVAL, "limiter is NULL");
    int error = policy_check(policy);
    if (error != 0)
        return error;
    pthread_mutex_lock(&limiter->policy_lock);
    int id = add_locked(limiter, policy);
    pthread_mutex_unlock(&limiter->policy_lock);
    return id;
}

int stint_policy_change(struct stint_limiter *limiter, uint32_t id,
                        const struct stint_policy *policy) {
    if (limiter == NULL)
        return fail(EINVAL, "limiter is NULL");
    int error = policy_check(policy);
    if (error != 0)
        return error;
    struct policy *changed = limiter_policy(limiter, id);
    if (changed == NULL)
        return fail(ENOENT, "there is no policy of that id");
    if (policy->name[0] != '\0' && strcmp(policy->name, changed->name) != 0)
        return fail(EINVAL, "policy.name is not the name of the policy of that id");
    if (policy->window != changed->window_ns)
        return fail(EINVAL, "policy.window cannot change: add another policy");
    if (policy->start / (int64_t)STINT_TICK_NS != changed->start)
        return fail(EINVAL, "policy.start cannot change: add another policy");
    atomic_store_release(&changed->rule, rule_of(policy));
    return 0;
}

int stint_policy_find(const struct stint_limiter *limiter, const char *name) {
    if (limiter == NULL || name == NULL)
        return fail(EINVAL, "limiter or name is NULL");
    int id = find_name(limiter, policy_count(limiter), name);
    return id >= 0 ? id : fail(ENOENT, "there is no policy of that name");
}

int stint_policy_get(const struct stint_limiter *limiter, uint32_t id,
                     struct stint_policy *policy) {
    if (limiter == NULL || policy == NULL)
        return fail(EINVAL, "limiter or policy is NULL");
    int error =
        struct_check(policy, policy->size, sizeof(*policy), "policy.size is wrong: " WRONG_SIZE);
    if (error != 0)
        return error;
    const struct policy *got = limiter_policy(limiter, id);
    if (got == NULL)
        return fail(ENOENT, "there is no policy of that id");
    uint64_t rule = atomic_load_relaxed(&got->rule);
    struct stint_policy known = {
        .limit = rule_limit(rule),
        .flags = rule_flags(rule),
        .window = got->window_ns,
        .start = got->start * (int64_t)STINT_TICK_NS,
    };
    memcpy(known.name, got->name, sizeof(known.name));
    struct_write(policy, policy->size, &known, sizeof(known));
    return 0;
}
