/* SPDX-License-Identifier: MIT
 * Text in a shared table: bytes, and a seal of them, of their length and of whose they are.
 *
 * The bytes are stored word by word, and the seal last. Nobody waits for a writer: two may write
 * over each other, or one may die half-way. Then the seal is not that of the bytes, and readers
 * show nothing until they are written again. So no torn text is shown, and the loads and stores
 * need no order. */
#ifndef STINT_SEALED_H
#define STINT_SEALED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "limiter/table.h"
#include "sys/atomic.h"

#define SEALED_LENGTH UINT64_C(127) /* the bits of a seal that are the length, in bytes */

static inline uint64_t seal_of(uint64_t whose, const uint64_t *words, size_t count,
                               uint64_t length) {
    uint64_t seal = mix(whose, length + 1);
    for (size_t i = 0; i < count; i++)
        seal = mix(seal, words[i] + i + 1);
    return (seal & ~SEALED_LENGTH) | length;
}

/* Loads the two words that a place begins with, its key first. A CAS compares both; a reader checks
 * the seal. */
static inline void place_load(const void *place, uint64_t seen[2]) {
    const uint64_t *words = place;
    seen[0] = atomic_load_acquire(&words[0]);
    seen[1] = atomic_load_acquire(&words[1]);
}

/* Loads the `count` words of a text. Returns whether they are whole, and `whose`. */
static inline bool sealed_load(const uint64_t *seal, const uint64_t *bytes, size_t count,
                               uint64_t whose, uint64_t *words, uint64_t *length) {
    const uint64_t seen = atomic_load_acquire(seal);
    *length = seen & SEALED_LENGTH;
    for (size_t i = 0; i < count; i++)
        words[i] = atomic_load_relaxed(&bytes[i]);
    return *length <= count * sizeof(uint64_t) && seal_of(whose, words, count, *length) == seen;
}

/* Stores a text; the words behind its length are 0. */
static inline void sealed_store(uint64_t *seal, uint64_t *bytes, size_t count, uint64_t whose,
                                const uint64_t *words, uint64_t length) {
    for (size_t i = 0; i < count; i++) {
        STEP(&bytes[i]); /* stores are none of themselves */
        atomic_store_relaxed(&bytes[i], words[i]);
    }
    STEP(seal);
    atomic_store_release(seal, seal_of(whose, words, count, length));
}

#endif
