/* SPDX-License-Identifier: MIT
 */
#ifndef STINT_DECIDE_H
#define STINT_DECIDE_H

#include <stdbool.h>
#include <stdint.h>

#include <stint.h>

/* Any request but those of take.c's short paths, by a policy id below max_policies. `now` is no
 * STINT_NOW. */
bool stint_decide_more(struct stint_limiter *limiter, const struct stint_request *request,
                       uint64_t now, struct stint_verdict *verdict);

#endif
