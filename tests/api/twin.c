/* SPDX-License-Identifier: MIT
 * Random operations under policies of all kinds on a limiter and on its naive twin
 * (kit/twin.c), every field of every verdict compared.
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
    twin_run.seed = environment_number("STINT_TEST_SEED", 1);
    uint64_t rounds = environment_number("STINT_TEST_ROUNDS", 500);
    uint64_t first = environment_number("STINT_TEST_FIRST", 0);
    print_message("STINT_TEST_SEED=%" PRIu64 " STINT_TEST_ROUNDS=%" PRIu64 "\n", twin_run.seed,
                  rounds);
    for (twin_run.round = first; twin_run.round < rounds; twin_run.round++) {
        draws.state = twin_run.seed * 1000003 + twin_run.round;
        start_round();
        for (twin_run.operation = 0; twin_run.operation < ROUND_OPERATIONS; twin_run.operation++)
            do_operation();
        end_round();
    }
    print_message("%" PRIu64 " verdicts compared\n", twin_run.compared);
    /* Most operations must be ones whose answer the contract gives. Few rounds may be unlike. */
    if (first == 0 && rounds >= 500)
        assert_true(twin_run.compared > rounds * ROUND_OPERATIONS / 2);
}
