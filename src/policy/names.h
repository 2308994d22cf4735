/* SPDX-License-Identifier: MIT
 * The policies of a table by their names. Each handle has an index of its own. */
#ifndef STINT_NAMES_H
#define STINT_NAMES_H

#include "limiter/limiter.h"

/* Makes an index, which free() takes back. NULL: there is no memory. */
struct names *stint_names_make(uint32_t max_policies);

/* The id of the policy with that name that decides, or POLICY_NONE. */
uint32_t stint_names_find(const struct stint_limiter *limiter, const char *name);

/* Whether a policy has or had this name, of those whose ids are not free. */
bool stint_names_had(const struct stint_limiter *limiter, const char *name);

/* An id for another policy: the first that is free; max_policies: there is none. Under the table's
 * lock. */
uint32_t stint_names_free_id(const struct stint_limiter *limiter);

/* How many ids are free. Under the table's lock, or for a reader. */
uint32_t stint_names_free_ids(const struct stint_limiter *limiter);

/* Makes all handles of the table begin their index anew. Under the table's lock. */
void stint_names_forget(const struct stint_limiter *limiter);

/* Tells all handles of the table of a policy that was added under a free id below policy_count.
 * Under the table's lock. */
void stint_names_refilled(const struct stint_limiter *limiter, uint32_t id);

/* Whether this process inherited the table by a fork, in private memory, since the last call. Then
 * a thread of the parent may have had the table's lock. The caller has a new one. */
bool stint_names_inherited(const struct stint_limiter *limiter);

#endif
