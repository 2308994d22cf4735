/* SPDX-License-Identifier: MIT
 * Tokens given back. */
#ifndef STINT_REFUND_H
#define STINT_REFUND_H

#include "slot.h"

/* Gives tokens back to a key (of a striped policy: to that stripe of it, whose hash `hash` is)
 * while its slot is in the window `id` (two counts: or in the next one). Returns how many. */
uint32_t stint_slot_refund(const struct stint_limiter *limiter, uint32_t policy_id,
                           uint64_t identity, uint64_t hash, uint64_t id, uint32_t tokens);

/* Gives tokens of a verdict back to its key, striped or not (stint_refund). It reads no `granted`.
 * Returns how many. */
uint32_t stint_key_refund(const struct stint_limiter *limiter, uint64_t key,
                          struct stint_verdict *verdict, uint32_t tokens);

#endif
