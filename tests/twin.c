/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * Random operations under policies of all kinds on a limiter and on its naive twin (twin_model.h), every
 * field of every verdict compared.
 *
 *     STINT_TEST_SEED=7      repeat the run of this seed
 *     STINT_TEST_ROUNDS=100  how many limiters are tried, ROUND_OPERATIONS operations each
 */
#include "twin_operations.h"

enum { ROUND_OPERATIONS = 20000 };

/* ---- Random numbers ------------------------------------------------------------------------ */

static uint64_t random_state;

static uint64_t random_bits(void) {
    uint64_t z = random_state += UINT64_C(0x9e3779b97f4a7c15); /* splitmix64 */
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint64_t below(uint64_t n) {
    return random_bits() % n;
}

static uint64_t number_from(const char *variable, uint64_t otherwise) {
    const char *text = getenv(variable);
    return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

static void test_twin(void **state) {
    (void)state;
    m.seed = number_from("STINT_TEST_SEED", 1);
    uint64_t rounds = number_from("STINT_TEST_ROUNDS", 2000);
    print_message("STINT_TEST_SEED=%" PRIu64 " STINT_TEST_ROUNDS=%" PRIu64 "\n", m.seed, rounds);
    for (m.round = 0; m.round < rounds; m.round++) {
        random_state = m.seed * 1000003 + m.round;
        start_round();
        for (m.operation = 0; m.operation < ROUND_OPERATIONS; m.operation++)
            do_operation();
        end_round();
    }
    print_message("%" PRIu64 " verdicts compared\n", m.compared);
    /* Most operations must be ones whose answer the contract gives. */
    assert_true(m.compared > rounds * ROUND_OPERATIONS / 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_twin)};
    return cmocka_run_group_tests_name("twin", tests, NULL, NULL);
}
