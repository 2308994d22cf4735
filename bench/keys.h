/* SPDX-License-Identifier: MIT
 * Which key comes next, and its bytes. */
#ifndef STINT_BENCH_KEYS_H
#define STINT_BENCH_KEYS_H

#include <stddef.h>
#include <stdint.h>

enum distribution { UNIFORM, ZIPF, HOT, DISTRIBUTIONS };
extern const char *const distribution_names[DISTRIBUTIONS];

#define ZIPF_EXPONENT 0.99 /* YCSB's, so that results can be compared */

/* The order in which every thread asks for keys. It is a function of (thread, position) and nothing
 * else, so that a check can ask again and count what each key was asked for. */
struct sequence {
    enum distribution distribution;
    uint64_t keys;
    uint32_t *drawn; /* ZIPF: threads * period indices, drawn in advance, below 2^32; else NULL */
    uint64_t period; /* a power of two */
};

void sequence_open(struct sequence *sequence, enum distribution distribution, uint64_t keys,
                   unsigned threads, uint64_t period);
void sequence_close(struct sequence *sequence);

/* splitmix64's finalizer: a bijection that looks random. */
static inline uint64_t mix64(uint64_t x) {
    x += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

/* x * n / 2^64: maps a 64-bit hash onto 0 .. n - 1. */
static inline uint64_t scale64(uint64_t x, uint64_t n) {
    __extension__ typedef unsigned __int128 wide;
    return (uint64_t)(((wide)x * n) >> 64);
}

/* Index, 0 .. keys - 1, of the key that the thread asks for at this position. */
static inline uint64_t sequence_index(const struct sequence *sequence, unsigned thread,
                                      uint64_t position) {
    switch (sequence->distribution) {
    case UNIFORM:
        return scale64(mix64(((uint64_t)thread << 48) + position), sequence->keys);
    case ZIPF:
        return sequence->drawn[thread * sequence->period + (position & (sequence->period - 1))];
    default:
        return 0;
    }
}

/* Writes the bytes of the key with this index: [bytes, bytes+length), length at least
 * KEY_LENGTH_MIN. Different indices below 2^32 give different bytes. */
enum { KEY_LENGTH_MIN = 4, KEY_LENGTH_MAX = 1024 };
void key_bytes(uint64_t index, unsigned char *bytes, size_t length);

/* The same as sixteen hexadecimal digits, which every server takes as a key. */
void key_text(uint64_t index, char *text);

#endif
