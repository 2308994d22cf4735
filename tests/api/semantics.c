/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * Late callers, by policies of all kinds. (What else a decision means: features.c.) */
#include "kinds.h"
#include "told.h"

static struct stint_verdict take_one(struct stint_limiter *limiter, uint32_t id, stint_key key,
                                     uint64_t now) {
    struct stint_verdict v;
    memset(&v, 0xa5, sizeof v);
    bool allowed = stint_take(limiter, id, key, 1, now, &v);
    assert_int_equal(allowed, v.allowed);
    return v;
}

/* Who is later than two minutes is decided at the time of the clock, also by the first request of a
 * key; but for windows that hold both. */
TEST(test_late_without_a_slot) {
    static const uint64_t lates[] = {2 * HOUR, 62 * MINUTE, 3 * MINUTE, 30 * DAY};
    enum { TAKE, DECIDE_3, REFUSED, BATCH, ALL, CALLS };
    struct stint_limiter *limiter = open_limiter(1000, STINT_FULL_ADMIT);
    add_kinds(limiter, KINDS);
    test_time = T0 + 40 * DAY + 17 * SECOND;
    uint64_t number = 0;
    assert_true(take_one(limiter, PLAIN, number_key(limiter, number++), STINT_NOW).allowed);
    for (uint32_t i = 0; i < sizeof lates / sizeof lates[0] * KINDS * CALLS; i++) {
        const uint32_t id = i / CALLS % KINDS, call = i % CALLS;
        const uint64_t late = lates[i / CALLS / KINDS], now = test_time - late;
        const bool shadow = id == SHADOWING && call == REFUSED;
        if (id == MONTHLY || id == YEARLY)
            continue;
        struct stint_request request = {.key = number_key(limiter, number++),
                                        .policy = id,
                                        .cost = call == DECIDE_3  ? 3
                                                : call == REFUSED ? 100
                                                                  : 1};
        struct stint_verdict v;
        if (call == TAKE)
            stint_take(limiter, id, request.key, 1, now, &v);
        else if (call == BATCH)
            stint_decide_batch(limiter, &request, 1, now, &v);
        else if (call == ALL)
            stint_decide_all(limiter, &request, 1, now, &v);
        else
            stint_decide(limiter, &request, now, &v);
        assert_int_equal(v.flags, (call == REFUSED ? FIRST : 0) | (shadow ? SHADOWED : 0) |
                                      STINT_MISTAKEN_NOW);
        /* The clock has moved between its readings. */
        assert_in_range(v.window - v.reset_after, test_time, test_time + READINGS_MOST * test_step);
        test_time = v.window - v.reset_after;
        struct stint_verdict look = ask(limiter, id, request.key, 0, PEEK);
        if (v.window != look.window || v.reset_after != v.window - test_time)
            fail_msg("%s, call %" PRIu32 ", late by %" PRIu64 " s: window ends %" PRId64
                     " s after the clock, %" PRIu64 " s after now",
                     kind_names[id], call, late / SECOND,
                     ((int64_t)v.window - (int64_t)test_time) / (int64_t)SECOND,
                     v.reset_after / SECOND);
        /* The first refusal has a slot, too. */
        assert_int_equal(look.used, call != REFUSED || id == COUNTING ? request.cost : 0);
    }
    assert_int_equal(get_stats(limiter).clock_steps, 0);
    stint_close(limiter);
}

/* A charge is of the window of now; of who is late, of the newer one that the key is in; and by
 * whoever is later than the window and 60 s, of the clock's. */
TEST(test_windows_of_charges) {
    struct stint_limiter *limiter = open_kinds(1000, STINT_FULL_REFUSE);
    static const uint64_t lates[] = {0, 1, 30 * SECOND, 2 * HOUR};
    for (uint32_t id = 0; id < MINUTES; id++) {
        for (size_t late = 0; late < sizeof lates / sizeof lates[0]; late++) {
            stint_key key = number_key(limiter, 10 * late + 1);
            test_time += 5 * MINUTE;
            struct stint_verdict begin = ask(limiter, id, key, 1, CHARGE);
            test_time = begin.window;
            struct stint_verdict next = ask(limiter, id, key, 0, PEEK);
            assert_true(next.window == begin.window + MINUTE);
            assert_int_equal(next.used, id == SMOOTH);
            assert_int_equal(ask(limiter, id, key, 40, CHARGE).granted, id == ROLLING     ? 20
                                                                        : id == RESERVING ? 25
                                                                                          : 40);
            struct stint_request request = {.key = key, .policy = id, .cost = 2, .flags = CHARGE};
            struct stint_verdict v;
            uint32_t used = used_of(limiter, id, key);
            assert_true(stint_decide(limiter, &request, test_time - lates[late], &v));
            assert_true(v.window == next.window);
            assert_int_equal(used_of(limiter, id, key), used + v.granted);
            assert_int_equal(v.granted, id == ROLLING || id == RESERVING ? 0 : 2);
        }
    }
    stint_close(limiter);
}

/* Promise A: a late caller never opens a window again whose slot other keys may have taken. */
TEST(test_lost_window_stays_over) {
    for (uint64_t others = 0; others < 4; others++) {
        test_time = T0;
        struct stint_limiter *limiter = open_limiter(2, STINT_FULL_ADMIT);
        uint32_t id = add_policy(limiter, "p", 1, SECOND, 0, 0);
        stint_key key = number_key(limiter, 100);
        assert_true(take_one(limiter, id, key, T0).allowed);
        test_time = T0 + SECOND;
        for (uint64_t k = 0; k < others; k++)
            assert_true(take_one(limiter, id, number_key(limiter, k), test_time).allowed);
        struct stint_verdict v = take_one(limiter, id, key, T0 + 5);
        if (v.window == T0 + SECOND)
            assert_false(v.allowed);
        else
            assert_true(v.window == T0 + 2 * SECOND);
        assert_int_equal(v.flags & STINT_UNTRACKED, 0);
        stint_close(limiter);
    }
}
