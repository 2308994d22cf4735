/* SPDX-License-Identifier: MIT
 * The policies of a table under its lock. */
#ifndef STINT_REPAIR_H
#define STINT_REPAIR_H

#include "limiter/records.h"

/* Takes the table's lock for set-up, which stint_limiter_unlock gives back. If its last holder
 * died, finishes or takes back what was left half done. Returns 0; -EBUSY if the lock was held for
 * too long; -EPROTO. */
int stint_policies_lock(struct stint_limiter *limiter);

/* The same for a handle that must be able to write, and takes lanes of dead processes back. */
int stint_policies_begin(struct stint_limiter *limiter);

/* Checks what decisions trust of a table that somebody else wrote: its shards and all policies. 0,
 * or -EPROTO with a reason. Under the lock. */
int stint_policies_check(const struct stint_limiter *limiter);

/* Finishes or takes back what a process that died left half done. Under the lock. */
void stint_policies_repair(struct stint_limiter *limiter);

/* Makes the ids of policies that are gone free. Nobody else uses the table, and no slot has a tag
 * of such a policy (sweep.c). */
void stint_policies_free(struct stint_limiter *limiter);

#endif
