/* SPDX-License-Identifier: MIT
 * The policies of a table, as set-up sees them. */
#ifndef STINT_POLICY_H
#define STINT_POLICY_H

#include "base/limiter.h"

/* Takes the table's lock for set-up, which stint_limiter_unlock gives back. If its last holder
 * died, finishes or takes back what was left half done. Returns 0; -EBUSY if the lock was held for
 * too long; -EPROTO. */
int stint_policies_lock(struct stint_limiter *limiter);

/* The same for a handle that must be able to write, and takes lanes of dead processes back. */
int stint_policies_begin(struct stint_limiter *limiter);

/* Checks what decisions trust of a table that somebody else wrote: its shards and all policies. 0,
 * or -EPROTO with a reason. Under the lock. */
int stint_policies_check(const struct stint_limiter *limiter);

/* Finishes or takes back what a process that died in policy.c left half done. Under the lock. */
void stint_policies_repair(struct stint_limiter *limiter);

/* Makes the ids of policies that are gone free. Nobody else uses the table, and no slot has a tag
 * of such a policy (sweep.c). */
void stint_policies_free(struct stint_limiter *limiter);

/* The name that a policy will have: its own, or its rate in the text notation. */
void stint_policy_name_of(const struct stint_policy *policy, char name[STINT_NAME_SIZE]);

/* Reads a policy from the table. */
struct stint_policy stint_policy_read(const struct stint_limiter *limiter, uint32_t id);

/* Reads a policy as clients are told of it: one that was given no name has its present rate for a
 * name. */
struct stint_policy stint_policy_told(const struct stint_limiter *limiter, uint32_t id);

/* The first field in which a policy differs from one that exists, or NULL. */
const char *stint_policy_difference(const struct stint_limiter *limiter, uint32_t id,
                                    const struct stint_policy *policy);

/* The reason why a policy that exists cannot be changed to another; NULL: it can. */
const char *stint_policy_stays(const struct stint_limiter *limiter, uint32_t id,
                               const struct stint_policy *policy);

/* Takes from `room`, the number of free ids, those that a policy needs: `another` one for itself,
 * and one for a companion (override.h) if the old policy (POLICY_NONE: none) leaves it none.
 * Returns 0, or -ENOSPC with a reason. */
int stint_policy_room(const struct stint_limiter *limiter, const struct stint_policy *policy,
                      uint32_t old, bool another, uint32_t *room);

/* These three add, change and remove a policy. Under the lock; the policy was checked, and there is
 * room. `id` is one of stint_names_free_id. An old policy (POLICY_NONE: none) is replaced: its id
 * leads to the new one from then on. */
void stint_policy_create(struct stint_limiter *limiter, const struct stint_policy *policy,
                         uint32_t id, uint32_t old);
void stint_policy_rewrite(struct stint_limiter *limiter, uint32_t id,
                          const struct stint_policy *policy);
void stint_policy_end(struct stint_limiter *limiter, uint32_t id);

#endif
