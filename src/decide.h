/* SPDX-License-Identifier: MIT
 * What take.c's short paths leave to the whole path. */
#ifndef STINT_DECIDE_H
#define STINT_DECIDE_H

#include <stdbool.h>
#include <stdint.h>

#include <stint.h>

/* Any request by a policy id that requests may not name: there is none, or the handle is read-only
 * and the request may only be a look. */
bool stint_decide_unknown(struct stint_limiter *limiter, const struct stint_request *request,
                          uint64_t now, struct stint_verdict *verdict);

/* Any request with flags, by a policy id that requests may name. `now` is no STINT_NOW. */
bool stint_decide_more(struct stint_limiter *limiter, const struct stint_request *request,
                       uint64_t now, struct stint_verdict *verdict);

/* Likewise, by a policy that is apart: it is striped, or has overrides. */
bool stint_decide_apart(struct stint_limiter *limiter, const struct stint_request *request,
                        uint64_t now, struct stint_verdict *verdict);
bool stint_decide_overrides(struct stint_limiter *limiter, const struct stint_request *request,
                            uint64_t now, struct stint_verdict *verdict);

/* Likewise, a request without flags, and nothing in its reserved word, by a policy that is not
 * apart. */
bool stint_decide_policy(struct stint_limiter *limiter, const struct stint_request *request,
                         uint64_t now, struct stint_verdict *verdict);

#endif
