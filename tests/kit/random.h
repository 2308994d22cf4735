/* SPDX-License-Identifier: MIT
 * Random numbers of the tests: seeded, printed, and the same on every machine. */
#ifndef STINT_TESTS_RANDOM_H
#define STINT_TESTS_RANDOM_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct random {
    uint64_t state;
};

/* splitmix64 (Steele, Lea and Flood, 2014). */
static inline uint64_t random_next(struct random *random) {
    uint64_t x = random->state += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

/* In [0, below). */
static inline uint64_t random_below(struct random *random, uint64_t below) {
    return random_next(random) % below;
}

static inline uint64_t environment_number(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text == NULL || *text == '\0' ? otherwise : strtoull(text, NULL, 0);
}

/* The seed: STINT_TEST_SEED, or another one in every run. */
static inline uint64_t test_seed(void) {
    uint64_t seed = environment_number("STINT_TEST_SEED", (uint64_t)time(NULL));
    printf("STINT_TEST_SEED=%" PRIu64 "\n", seed);
    return seed;
}

/* How often to do something: `rounds`, times STINT_TEST_FACTOR (the stress suite's) or divided by
 * STINT_TEST_DIVISOR (slow builds'). */
static inline uint64_t test_rounds(uint64_t rounds) {
    rounds *= environment_number("STINT_TEST_FACTOR", 1);
    rounds /= environment_number("STINT_TEST_DIVISOR", 1);
    return rounds == 0 ? 1 : rounds;
}

#endif
