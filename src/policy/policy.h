/* SPDX-License-Identifier: MIT
 * The policies of a table, as set-up sees them. */
#ifndef STINT_POLICY_H
#define STINT_POLICY_H

#include "base/limiter.h"

/* Takes the table's lock for set-up. If its last holder died, what was left half done is finished
 * or taken back. Returns 0; -EBUSY if it was held for too long; -EPROTO. stint_limiter_unlock gives
 * it back. */
int stint_policies_lock(struct stint_limiter *limiter);

/* Looks at all policies of a table that somebody else wrote: 0, or -EPROTO with a reason. Under the
 * lock. */
int stint_policies_check(const struct stint_limiter *limiter);

/* Finishes or takes back what a process that died in policy.c left half done. Under the lock. */
void stint_policies_repair(struct stint_limiter *limiter);

/* Takes the lock, and takes lanes of dead processes back. */
int stint_policies_begin(struct stint_limiter *limiter);

/* Makes the ids of policies that are gone free. Nobody else uses the table, and no slot has a tag
 * of such a policy (sweep.c). */
void stint_policies_free(struct stint_limiter *limiter);

/* The name that a policy will have: its own, or its rate in the text notation. */
void stint_policy_name_of(const struct stint_policy *policy, char name[STINT_NAME_SIZE]);

/* What a policy is, by its parts in the table. */
struct stint_policy stint_policy_read(const struct stint_limiter *limiter, uint32_t id);

/* In what a policy differs from one that exists; NULL: in nothing that matters. */
const char *stint_policy_difference(const struct stint_limiter *limiter, uint32_t id,
                                    const struct stint_policy *policy);

/* Why a policy that exists cannot be changed to another, as a reason; or NULL: it can. */
const char *stint_policy_stays(const struct stint_limiter *limiter, uint32_t id,
                               const struct stint_policy *policy);

/* Takes from `room`, the number of free ids, those that a policy needs: `another` one for itself,
 * and one for a companion (override.h) if it takes over none of an old one (POLICY_NONE: of none).
 * Returns 0, or -ENOSPC with a reason. */
int stint_policy_room(const struct stint_limiter *limiter, const struct stint_policy *policy,
                      uint32_t old, bool another, uint32_t *room);

/* Each under the lock, with a policy that was checked, and with a free id for a companion that it
 * needs. */

/* Adds one under an id of stint_names_free_id, in the place of an old one (POLICY_NONE: of none),
 * whose id leads to it from then on. */
void stint_policy_create(struct stint_limiter *limiter, const struct stint_policy *policy,
                         uint32_t id, uint32_t old);

/* Changes one. */
void stint_policy_rewrite(struct stint_limiter *limiter, uint32_t id,
                          const struct stint_policy *policy);

/* Takes one away. */
void stint_policy_end(struct stint_limiter *limiter, uint32_t id);

/* A policy that exists, as clients are told of it. One that was given no name has its present rate
 * for a name. */
struct stint_policy stint_policy_told(const struct stint_limiter *limiter, uint32_t id);

#endif
