/* SPDX-License-Identifier: MIT
 * One token by a policy with overrides, where it is not take.c's. `now` is no STINT_NOW. */
#ifndef STINT_FILTERED_H
#define STINT_FILTERED_H

#include <stdbool.h>
#include <stdint.h>

#include <stint.h>

#include "window.h"

/* By a key that may have one. The policy is hot but for these, and the window of now ends at
 * `end`. */
NOINLINE bool stint_take_filtered(struct stint_limiter *limiter, uint32_t policy_id, stint_key key,
                                  uint64_t now, struct stint_verdict *verdict, tick_t end);

/* By any key and any such policy. */
NOINLINE bool stint_take_overrides(struct stint_limiter *limiter, uint32_t policy_id, stint_key key,
                                   uint64_t now, struct stint_verdict *verdict);

#endif
