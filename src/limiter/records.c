/* SPDX-License-Identifier: MIT
 * The policy that decides for an id or by a name; free ids. */
#include <string.h>

#include "limiter/records.h"
#include "sys/message.h"

/* Wakes the policy `next`, which takes the place of one that is gone.
 *
 * A policy is replaced by one store: its end (policy.c, rule_write). The next one's version is
 * stored after that, by whoever finds it missing: nobody waits for a thread that was killed.
 *
 * `asleep` is loaded first. Then the alias has the bit, which the call that wakes the policy clears
 * after it has stored the version, and the old policy is gone. If the CAS finds the same version,
 * the policy slept all the time. So nobody wakes one that decided, and was replaced since. */
static void policy_wake(const struct stint_limiter *limiter, uint32_t id, uint32_t next) {
    const uint32_t *alias = &limiter->records[id].alias;
    struct policy *policy = &limiter->policies[next];
    const uint64_t asleep = atomic_load_acquire(&policy->version); /* M15 */
    /* 0: the table has lost a page. */
    const uint64_t to_be =
        atomic_load_acquire(&policy->rules[(asleep + 1) % 2][RULE_TRAITS]); /* M15 */

    if (limiter->memory.read_only || asleep == 0 || to_be == 0 || policy_word(policy) != 0)
        return;
    const bool wakes = atomic_load_relaxed_32(alias) == ((next + 1) | ALIAS_WAKES); /* M13 */
    atomic_fence_acquire();
    if (wakes && policy_gone(&limiter->policies[id]))
        (void)atomic_cas_seq(&policy->version, asleep, asleep + 1); /* M12 */
}

uint32_t stint_limiter_policy_and_traits(const struct stint_limiter *limiter, uint32_t id,
                                         uint32_t *traits) {
    /* In no whole table an id leads on more often while it is looked up. */
    for (uint32_t steps = 0; steps < 64 && id < limiter->max_policies; steps++) {
        *traits = (uint32_t)policy_word(&limiter->policies[id]);
        if (*traits != 0) /* no request names a companion */
            return (*traits & TRAIT_EXISTS) != 0 ? id : POLICY_NONE;
        if (limiter_policy(limiter, id) == NULL) /* its record may be being written, plainly */
            break;
        /* After the traits, which are an acquire (M15). */
        const uint32_t alias = (uint32_t)atomic_load_relaxed_32(&limiter->records[id].alias);
        const uint32_t next = (alias & ~ALIAS_WAKES) - 1; /* of 0: POLICY_NONE */
        if ((alias & ALIAS_WAKES) != 0 && next < limiter->max_policies)
            policy_wake(limiter, id, next);
        id = next;
    }
    return POLICY_NONE;
}

uint32_t stint_limiter_policy_now(const struct stint_limiter *limiter, uint32_t id) {
    uint32_t traits;
    return stint_limiter_policy_and_traits(limiter, id, &traits);
}

/* A name is written once, before its policy's version (M15), and stays until the id is free: no
 * lock is needed. One that is replaced meanwhile leads on, whichever of the two ids comes first. */
uint32_t stint_limiter_find(const struct stint_limiter *limiter, const char *name) {
    for (uint32_t id = 0; id < limiter_policy_count(limiter); id++) {
        if (limiter_policy(limiter, id) == NULL || is_companion(limiter, id) ||
            strncmp(limiter->records[id].name, name, STINT_NAME_SIZE) != 0)
            continue;
        const uint32_t now = stint_limiter_policy_now(limiter, id);
        if (now != POLICY_NONE)
            return now;
    }
    return POLICY_NONE;
}

uint32_t stint_limiter_free_id(const struct stint_limiter *limiter) {
    uint32_t id = 0;

    while (id < limiter_policy_count(limiter) && limiter_policy(limiter, id) != NULL)
        id++;
    return id;
}

uint32_t stint_limiter_free_ids(const struct stint_limiter *limiter) {
    const uint32_t count = limiter_policy_count(limiter);
    uint32_t free_ids = limiter->max_policies - count;

    for (uint32_t id = 0; id < count; id++)
        free_ids += limiter_policy(limiter, id) == NULL;
    return free_ids;
}

int stint_policy_find(const struct stint_limiter *limiter, const char *name, uint32_t *id) {
    if (limiter == NULL || name == NULL)
        return stint_failed(EINVAL, "limiter or name is NULL");
    const uint32_t found = stint_limiter_find(limiter, name);
    const int error = stint_limiter_whole(limiter); /* else a cut amid a change leaves a name */
    if (error != 0)
        return error;
    if (found == POLICY_NONE)
        return stint_failed(ENOENT, "there is no policy of that name");
    if (id != NULL)
        *id = found;
    return 0;
}
