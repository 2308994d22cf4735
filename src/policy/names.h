/* SPDX-License-Identifier: MIT
 * The policies of a table by their names. */
#ifndef STINT_NAMES_H
#define STINT_NAMES_H

#include "limiter/records.h"

/* The id of the policy with that name that decides, or POLICY_NONE. */
uint32_t stint_names_find(const struct stint_limiter *limiter, const char *name);

/* An id for another policy: the first that is free; max_policies: there is none. Under the table's
 * lock. */
uint32_t stint_names_free_id(const struct stint_limiter *limiter);

/* How many ids are free. Under the table's lock, or for a reader. */
uint32_t stint_names_free_ids(const struct stint_limiter *limiter);

#endif
