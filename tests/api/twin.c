/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * Random operations under policies of all kinds on a limiter and on its naive twin
 * (twin_table.c), every field of every verdict compared.
 *
 *     STINT_TEST_SEED=7      repeat the run of this seed
 *     STINT_TEST_ROUNDS=100  how many limiters are tried, ROUND_OPERATIONS operations each
 *     STINT_TEST_FIRST=42    leave out those before: to repeat the round that a failure tells
 * */
#include "twin.h"

#include "random.h"

enum { ROUND_OPERATIONS = 20000 };

static struct random draws;

uint64_t random_bits(void) {
    return random_next(&draws);
}

uint64_t below(uint64_t n) {
    return random_below(&draws, n);
}

TEST(test_twin) {
    m.seed = environment_number("STINT_TEST_SEED", 1);
    uint64_t rounds = environment_number("STINT_TEST_ROUNDS", 800);
    uint64_t first = environment_number("STINT_TEST_FIRST", 0);
    print_message("STINT_TEST_SEED=%" PRIu64 " STINT_TEST_ROUNDS=%" PRIu64 "\n", m.seed, rounds);
    for (m.round = first; m.round < rounds; m.round++) {
        draws.state = m.seed * 1000003 + m.round;
        start_round();
        for (m.operation = 0; m.operation < ROUND_OPERATIONS; m.operation++)
            do_operation();
        end_round();
    }
    print_message("%" PRIu64 " verdicts compared\n", m.compared);
    /* Most operations must be ones whose answer the contract gives. Few rounds may be unlike. */
    if (first == 0 && rounds >= 500)
        assert_true(m.compared > rounds * ROUND_OPERATIONS / 2);
}
