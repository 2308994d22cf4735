/* SPDX-License-Identifier: MIT
 * One token by a policy with overrides, where it is not take.c's. */
#ifndef STINT_FILTERED_H
#define STINT_FILTERED_H

#include <stdbool.h>
#include <stdint.h>

#include <stint.h>

#include "window.h"

/* `now` is no STINT_NOW. */
NOINLINE bool stint_take_filtered(struct stint_limiter *limiter, uint32_t policy_id, stint_key key,
                                  uint64_t now, struct stint_verdict *verdict);

#endif
