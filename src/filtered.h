/* SPDX-License-Identifier: MIT
 * One token by a policy with overrides. */
#ifndef STINT_FILTERED_H
#define STINT_FILTERED_H

#include <stdbool.h>
#include <stdint.h>

#include <stint.h>

/* What take.c does by a plain policy, by one that may be plain but for its overrides. `now` is no
 * STINT_NOW. */
bool stint_take_filtered(struct stint_limiter *limiter, uint32_t policy_id, stint_key key,
                         uint64_t now, struct stint_verdict *verdict);

#endif
