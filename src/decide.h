/* SPDX-License-Identifier: MIT
 * What take.c's short paths leave to the whole path. */
#ifndef STINT_DECIDE_H
#define STINT_DECIDE_H

#include <stdbool.h>
#include <stdint.h>

#include <stint.h>

#include "window.h"

/* Any request by a policy id that requests may not name: there is none, or the handle is read-only
 * and the request may only be a look. */
bool stint_decide_unknown(struct stint_limiter *limiter, const struct stint_request *request,
                          uint64_t now, struct stint_verdict *verdict);

/* Any request with flags, by a policy id that requests may name. `now` is no STINT_NOW. */
bool stint_decide_more(struct stint_limiter *limiter, const struct stint_request *request,
                       uint64_t now, struct stint_verdict *verdict);

/* Likewise, by a policy of one slot a key that may have overrides. */
bool stint_decide_overrides(struct stint_limiter *limiter, const struct stint_request *request,
                            uint64_t now, struct stint_verdict *verdict);

/* One token of a key that may have an override, by a policy that is plain but for those, whose
 * window of now ends at `end`. */
NOINLINE bool stint_take_overridden(struct stint_limiter *limiter, uint32_t policy_id,
                                    stint_key key, uint64_t now, struct stint_verdict *verdict,
                                    tick_t end);

/* Likewise, a request without flags, and nothing in its reserved word, by a policy that has one
 * slot a key, and no overrides. */
bool stint_decide_policy(struct stint_limiter *limiter, const struct stint_request *request,
                         uint64_t now, struct stint_verdict *verdict);

#endif
