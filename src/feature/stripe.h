/* SPDX-License-Identifier: MIT
 * The hashes of a key's stripes (stripes.h), and tokens given back to it. */
#ifndef STINT_STRIPE_H
#define STINT_STRIPE_H

#include "map/lines.h"

static inline uint64_t stripe_key(uint64_t key, uint32_t stripe) {
    return stripe == 0 ? key : mix(key, stripe + 1);
}

/* Inverts stripe_key: returns the key's stripe_base plus the stripe, which is not 0. So hashes
 * alone tell the stripes of a key: they are close together, which others are not. */
static inline uint64_t stripe_index(uint64_t hash) {
    uint64_t x = hash;
    static_assert(UINT64_C(0x94D049BB133111EB) * UINT64_C(0x319642B2D24D8EC3) == 1 &&
                      UINT64_C(0xBF58476D1CE4E5B9) * UINT64_C(0x96DE1B173F119089) == 1 &&
                      UINT64_C(0x9E3779B97F4A7C15) * UINT64_C(0xF1DE83E19937733D) == 1,
                  "the steps of mix, backwards");
    x = (x ^ x >> 31 ^ x >> 62) * UINT64_C(0x319642B2D24D8EC3);
    x = (x ^ x >> 27 ^ x >> 54) * UINT64_C(0x96DE1B173F119089);
    x = x ^ x >> 30 ^ x >> 60;
    return x * UINT64_C(0xF1DE83E19937733D) - 1;
}

/* The same for a key's stripe 0. */
static inline uint64_t stripe_base(uint64_t key) {
    return key * UINT64_C(0xF1DE83E19937733D);
}

static inline uint64_t stripe_base_key(uint64_t base) {
    return base * UINT64_C(0x9E3779B97F4A7C15);
}

/* Gives tokens back to a key (of a striped policy: to that stripe of it, whose hash `hash` is)
 * while its slot is in the window `id` (two counts: or in the next one). Returns how many. */
uint32_t stint_slot_refund(const struct stint_limiter *limiter, uint32_t policy_id,
                           uint64_t identity, uint64_t hash, uint64_t id, uint32_t tokens);

/* Gives tokens of a verdict back to its key. It reads no `granted`. Returns how many. */
uint32_t stint_key_refund(const struct stint_limiter *limiter, uint64_t key,
                          struct stint_verdict *verdict, uint32_t tokens);

#endif
