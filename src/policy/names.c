/* SPDX-License-Identifier: MIT
 * Policies by their names, and ids that are free: all ids are looked at in turn. */
#include <errno.h>
#include <string.h>

#include "policy/names.h"
#include "sys/message.h"

/* A name is written once, before its policy's version (M15), and stays until the id is free. So
 * this needs no lock. A policy that was replaced leads to the one in its place. So a policy that is
 * replaced meanwhile is found, whichever of the two ids comes first. */
uint32_t stint_names_find(const struct stint_limiter *limiter, const char *name) {
    const uint32_t count = limiter_policy_count(limiter);

    for (uint32_t id = 0; id < count; id++) {
        if (limiter_policy(limiter, id) == NULL || is_companion(limiter, id) ||
            strncmp(limiter->records[id].name, name, STINT_NAME_SIZE) != 0)
            continue;
        const uint32_t now = stint_limiter_policy_now(limiter, id);
        if (now != POLICY_NONE)
            return now;
    }
    return POLICY_NONE;
}

uint32_t stint_names_free_id(const struct stint_limiter *limiter) {
    const uint32_t count = limiter_policy_count(limiter);
    uint32_t id = 0;

    while (id < count && limiter_policy(limiter, id) != NULL)
        id++;
    return id;
}

uint32_t stint_names_free_ids(const struct stint_limiter *limiter) {
    const uint32_t count = limiter_policy_count(limiter);
    uint32_t free_ids = limiter->max_policies - count;

    for (uint32_t id = 0; id < count; id++)
        free_ids += limiter_policy(limiter, id) == NULL;
    return free_ids;
}

int stint_policy_find(const struct stint_limiter *limiter, const char *name, uint32_t *id) {
    if (limiter == NULL || name == NULL)
        return stint_failed(EINVAL, "limiter or name is NULL");
    const uint32_t found = stint_names_find(limiter, name);
    const int error = stint_limiter_whole(limiter); /* else a cut amid a change leaves a name */
    if (error != 0)
        return error;
    if (found == POLICY_NONE)
        return stint_failed(ENOENT, "there is no policy of that name");
    if (id != NULL)
        *id = found;
    return 0;
}
