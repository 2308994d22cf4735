/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * In-flight policies (STINT_IN_FLIGHT): callers ahead of the clock, and two processes. (What they
 * mean, case by case: features.c.) */
#include "children.h"
#include "fixture.h"

/* ---- Windows that are left ------------------------------------------------------------------- */

/* A caller ahead by a window drops what was held since the one before; one by two windows, all. */
TEST(test_ahead) {
    for (uint64_t windows = 0; windows <= 2; windows++) {
        struct stint_limiter *limiter = open_limiter(100, STINT_FULL_REFUSE);
        uint32_t id = add_policy(limiter, "held", 9, 10 * SECOND, 0, STINT_IN_FLIGHT);
        test_time = T0;
        (void)ask(limiter, id, 7, 2, 0);
        test_time += 10 * SECOND;
        (void)ask(limiter, id, 7, 3, 0);
        assert_true(stint_take(limiter, id, 7, 1, test_time + windows * 10 * SECOND, NULL));
        assert_int_equal(used_of(limiter, id, 7), windows == 0 ? 6 : windows == 1 ? 4 : 1);
        stint_close(limiter);
    }
}

/* ---- Processes ------------------------------------------------------------------------------- */

/* Each of two processes gives back what the other holds. */
TEST(test_processes_release_each_other) {
    struct stint_options options = fixture_options(100, STINT_FULL_REFUSE);
    struct stint_limiter *limiter;
    size_t size = stint_memory_size(&options);
    assert_int_equal(stint_open_in(&options, shared_memory(size), size, &limiter), 0);
    uint64_t *window = shared_memory(sizeof *window); /* of what the child holds */
    uint32_t id = add_policy(limiter, "held", 3, MINUTE, 0, STINT_IN_FLIGHT);
    test_time = T0;
    const uint64_t parents = ask(limiter, id, 7, 2, 0).window;
    pid_t child = forked();
    if (child == 0) {
        struct stint_verdict verdict;
        bool good = refund_by(limiter, id, 7, 2, parents) == 2;
        test_time += MINUTE;
        good = good && stint_take(limiter, id, 7, 3, STINT_NOW, &verdict);
        *window = verdict.window;
        _exit(good ? 0 : 1);
    }
    assert_good(child);
    test_time += MINUTE;
    assert_false(ask(limiter, id, 7, 1, 0).allowed);
    assert_int_equal(refund_by(limiter, id, 7, 3, parents), 0);
    assert_int_equal(refund_by(limiter, id, 7, 3, *window), 3);
    assert_int_equal(ask(limiter, id, 7, 3, 0).granted, 3);
    stint_close(limiter);
}
