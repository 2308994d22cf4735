/* SPDX-License-Identifier: MIT
 * The policies of a table by their names. Each handle has an index of its own. */
#ifndef STINT_NAMES_H
#define STINT_NAMES_H

#include "base/limiter.h"

/* NULL: there is no memory. */
struct names *stint_names_make(uint32_t max_policies);
void stint_names_free(struct names *names);

/* The id of the policy with that name that decides, or -1. */
int stint_names_find(const struct stint_limiter *limiter, const char *name);

/* An id for another policy, but not the id `but`: a free one below policy_count; or the first from
 * there on, which may be max_policies. Under the table's lock. */
uint32_t stint_names_free_id(const struct stint_limiter *limiter, uint32_t but);

/* How many such ids there are. */
uint32_t stint_names_free_ids(const struct stint_limiter *limiter);

/* Makes all handles of the table begin their index anew. Under the table's lock. */
void stint_names_forget(const struct stint_limiter *limiter);

/* Tells all handles of the table of a policy that was added under a free id below policy_count.
 * Under the table's lock. */
void stint_names_refilled(const struct stint_limiter *limiter, uint32_t id);

/* Whether this process has inherited the table by a fork, in private memory, since it was last
 * asked. Then a thread that is not there may have had the table's lock: this one has it now. */
bool stint_names_inherited(const struct stint_limiter *limiter);

#endif
