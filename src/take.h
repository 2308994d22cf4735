/* SPDX-License-Identifier: MIT
 * Any request, from its beginning to its verdict. */
#ifndef STINT_TAKE_H
#define STINT_TAKE_H

#include "core.h"

/* Any request. `now` is no STINT_NOW. */
bool stint_decide_any(struct stint_limiter *limiter, const struct stint_request *request,
                      uint64_t now, struct stint_verdict *verdict);

/* Tells why a request is not decided. A read-only handle decides none: it tells
 * STINT_BAD_REQUEST. One whose table is lost lets the request through. Returns verdict.allowed. */
bool stint_decision_void(struct stint_limiter *limiter, const struct stint_request *request,
                         uint32_t why, struct stint_verdict *verdict);

#endif
