/* SPDX-License-Identifier: MIT
 * Tokens given back. */
#ifndef STINT_REFUND_H
#define STINT_REFUND_H

#include "slot.h"

/* Gives tokens back to a key (of a striped policy: to that stripe of it, whose hash `hash` is)
 * while its slot is in the window `id` (two counts: or in the next one). Returns how many. */
uint32_t stint_slot_refund(const struct stint_limiter *limiter, uint32_t policy_id, uint64_t hash,
                           uint64_t id, uint32_t tokens);

/* Gives tokens back to a key, striped or not (stint_refund). Returns how many. */
uint32_t stint_key_refund(const struct stint_limiter *limiter, uint32_t policy_id, uint64_t key,
                          uint32_t tokens, uint64_t window);

#endif
