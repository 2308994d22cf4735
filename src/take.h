/* SPDX-License-Identifier: MIT
 * The long way of a request, from its beginning to its verdict. */
#ifndef STINT_TAKE_H
#define STINT_TAKE_H

#include "decision.h"

/* Begins a decision by the policy that decides for the request now: its own, or the one that has
 * replaced it. Returns 0, or why there is none. */
uint32_t stint_decision_open(struct decision *decision, struct stint_limiter *limiter,
                             const struct stint_request *request, uint64_t now);

/* Tells why a decision on a request could not begin. A read-only handle begins none: it tells
 * STINT_BAD_REQUEST. One whose table is lost lets the request through. Returns verdict.allowed. */
bool stint_decision_void(struct stint_limiter *limiter, const struct stint_request *request,
                         uint32_t why, struct stint_verdict *verdict);

/* Any request. `now` is no STINT_NOW. */
bool stint_decide_long(struct stint_limiter *limiter, const struct stint_request *request,
                       uint64_t now, struct stint_verdict *verdict);

/* Any request by any policy: the six steps, and the long way if they leave it. */
bool stint_decide_any(struct stint_limiter *limiter, const struct stint_request *request,
                      uint64_t now, struct stint_verdict *verdict);

/* A decision on `request` that has begun, to its end. If its policy is gone on the way, it is made
 * by the one in its place. */
bool stint_decide_opened(struct decision *decision, const struct stint_request *request,
                         struct stint_verdict *verdict);

#endif
