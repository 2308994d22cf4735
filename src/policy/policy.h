/* SPDX-License-Identifier: MIT
 * The policies of a table, as set-up sees them. */
#ifndef STINT_POLICY_H
#define STINT_POLICY_H

#include "limiter/records.h"

/* The name that a policy will have: its own, or its rate in the text notation. */
void stint_policy_name_of(const struct stint_policy *policy, char name[STINT_NAME_SIZE]);

struct stint_policy stint_policy_read(const struct stint_limiter *limiter, uint32_t id);

/* The first field in which a policy differs from one that exists, or NULL. */
const char *stint_policy_difference(const struct stint_limiter *limiter, uint32_t id,
                                    const struct stint_policy *policy);

/* The reason why a policy that exists cannot be changed to another; NULL: it can. */
const char *stint_policy_stays(const struct stint_limiter *limiter, uint32_t id,
                               const struct stint_policy *policy);

/* The ids of a policy to be added, changed or replaced. POLICY_NONE: none, or one that is free. */
struct policy_ids {
    uint32_t old;       /* by which its name decides */
    uint32_t id;        /* by which it will: `old`, or that of a policy that is gone */
    uint32_t companion; /* that it keeps or takes over, or that is gone */
    bool again;         /* one of these was gone: sweep.c is called before it is used */
};

/* A policy that is changed keeps its id; else it gets one of its name from which it could be. */
struct policy_ids stint_policy_ids(const struct stint_limiter *limiter,
                                   const struct stint_policy *policy, uint32_t old);

/* Takes what a policy needs from `room`, the number of free ids. 0, or -ENOSPC with a reason. */
int stint_policy_room(const struct stint_limiter *limiter, const struct stint_policy *policy,
                      const struct policy_ids *ids, uint32_t *room);

/* Adds, changes or replaces a policy, which was checked and has room, under the lock. Its id. */
uint32_t stint_policy_make(struct stint_limiter *limiter, const struct stint_policy *policy,
                           const struct policy_ids *ids);

void stint_policy_end(struct stint_limiter *limiter, uint32_t id);

/* After stint_policy_make: leads each id that was replaced straight to the one that decides. */
void stint_policies_link(struct stint_limiter *limiter);

/* Frees an id that no slot and no other policy names. */
void stint_policy_free(struct stint_limiter *limiter, uint32_t id);

/* Takes the lock for set-up, and repairs what a holder left that died. 0; -EBUSY; -EPROTO. */
int stint_policies_lock(struct stint_limiter *limiter);

/* The same for a handle that must be able to write, and takes lanes of dead processes back. */
int stint_policies_begin(struct stint_limiter *limiter);

/* Under the lock: checks what decisions trust of a table. 0, or -EPROTO with a reason. */
int stint_policies_check(const struct stint_limiter *limiter);

/* Finishes or takes back what a process that died left half done. Under the lock. */
void stint_policies_repair(struct stint_limiter *limiter);

/* Frees the ids of policies that are gone. Nobody else uses the table, which was swept. */
void stint_policies_free(struct stint_limiter *limiter);

/* Whether a policy or a companion is one that stint_policy_make can have made, of so many. */
bool stint_policy_whole(const struct stint_limiter *limiter, uint32_t id, uint32_t count);

/* Finishes what a death left half done; gives a companion to the policy that has it, or ends it. */
void stint_policy_mend(struct stint_limiter *limiter, uint32_t id);

#endif
