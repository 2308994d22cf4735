/* SPDX-License-Identifier: MIT
 * What take.c, decide.c, refund.c and override_set.c do for others of this folder. */
#ifndef STINT_CALLS_H
#define STINT_CALLS_H

#include "search.h"

/* Any request, from its beginning to its verdict. `now` is no STINT_NOW. */
bool stint_decide_any(struct stint_limiter *limiter, const struct stint_request *request,
                      uint64_t now, struct stint_verdict *verdict);

/* Tells why a request is not decided. A read-only handle decides none: it tells
 * STINT_BAD_REQUEST. One whose table is lost lets the request through. Returns verdict.allowed. */
bool stint_decision_void(struct stint_limiter *limiter, const struct stint_request *request,
                         uint32_t why, struct stint_verdict *verdict);

/* Decides in any state of the table; _looked: after a look for the key's slot. */
void stint_decide_by_slot(struct decision *decision);
void stint_decide_looked(struct decision *decision, struct far far);

/* Gives tokens back to a key (of a striped policy: to that stripe of it, whose hash `hash` is)
 * while its slot is in the window `id` (two counts: or in the next one). Returns how many. */
uint32_t stint_slot_refund(const struct stint_limiter *limiter, uint32_t policy_id,
                           uint64_t identity, uint64_t hash, uint64_t id, uint32_t tokens);

/* Gives tokens of a verdict back to its key. It reads no `granted`. Returns how many. */
uint32_t stint_key_refund(const struct stint_limiter *limiter, uint64_t key,
                          struct stint_verdict *verdict, uint32_t tokens);

/* The slot of a key's bucket, by the rate that stands. Returns false if it has none. */
bool stint_bucket_find(const struct stint_limiter *limiter, uint32_t policy_id, uint64_t key,
                       struct seen *seen, struct bucket *bucket);

/* A decision by a policy with a ban has given a first refusal: counts a strike. If the key is
 * banned by it, the verdict says so. */
void stint_strike(struct stint_limiter *limiter, uint32_t policy_id, uint64_t key, uint64_t now,
                  struct stint_verdict *verdict);

/* Lifts a key's ban, and forgets its strikes. Returns whether there was any. */
bool stint_strikes_reset(struct stint_limiter *limiter, uint32_t policy_id, uint64_t key);

#endif
