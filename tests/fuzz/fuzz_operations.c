/* SPDX-License-Identifier: MIT
 * Sequences of operations on a limiter and on its naive twin, each field of each verdict compared.
 * The input is where tests/api/twin.c has random numbers: it chooses the table, the policies, the
 * keys, the times, and then operation after operation up to its end. */
#include "fuzz.h"
#include "twin.h"

static struct input draws;
static uint64_t secret_state;

/* The same secret for all: to choose one is not what an input is for. */
uint64_t random_bits(void) {
    secret_state = secret_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return secret_state >> 32;
}

uint64_t below(uint64_t n) {
    return input_below(&draws, n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    setenv("CMOCKA_TEST_ABORT", "1", 1); /* a failed assertion is not a test's that goes on */
    draws = (struct input){data, size};
    secret_state = 1;
    twin_run.operation = twin_run.compared = 0;
    start_round();
    for (; draws.left > 0; twin_run.operation++)
        do_operation();
    end_round();
    return 0;
}
