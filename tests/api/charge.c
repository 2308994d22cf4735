/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * Charges and the look before a charge, where the twin does not come: of who is late, on full
 * tables, striped. (What they do to a count, case by case: features.c.) */
#include "kinds.h"

enum {
    FIRST = STINT_FIRST_REFUSAL,
    PEEK = STINT_PEEK,
    CHARGE = STINT_CHARGE,
    LOOK = STINT_PEEK | STINT_CHARGE,
};

/* ---- Windows -------------------------------------------------------------------------------- */

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

/* ---- Full tables ---------------------------------------------------------------------------- */

/* C: looks, and charges that find no slot, write nothing. (What they tell: the twin.) */
TEST(test_full_table_stays) {
    for (uint32_t on_full = STINT_FULL_ADMIT; on_full <= STINT_FULL_REPLACE; on_full++) {
        struct stint_limiter *limiter = open_kinds(2, (enum stint_on_full)on_full);
        uint32_t hour = add_policy(limiter, "hour", 9, HOUR, 0, 0);
        for (uint64_t k = 0; k < 4; k++) /* all slots */
            assert_int_equal(ask(limiter, hour, number_key(limiter, k), 3, 0).flags, 0);
        struct copied copied = copy_table(limiter);
        for (uint32_t id = 0; id < MINUTES; id++) {
            stint_key key = number_key(limiter, 100);
            ask(limiter, id, key, 3, LOOK);
            ask(limiter, id, key, 1000, LOOK);
            if (on_full != STINT_FULL_REPLACE)
                assert_int_equal(ask(limiter, id, key, 1000, CHARGE).granted, 0);
        }
        assert_untouched(limiter, &copied);
        stint_close(limiter);
    }
}

/* ---- Stripes --------------------------------------------------------------------------------- */

/* What is charged of a striped key on a full table is told, and so is that it is not all. */
TEST(test_striped_on_a_full_table) {
    bool partly = false;
    for (uint64_t others = 1; others < 60; others++) {
        struct stint_limiter *limiter = open_limiter(24, STINT_FULL_ADMIT);
        uint32_t id = add_text(limiter, "40/day stripes=8 name=striped");
        uint32_t plain = add_policy(limiter, "plain", 1, DAY, 0, 0);
        test_time = T0;
        for (uint64_t i = 1; i <= others; i++)
            (void)stint_take(limiter, plain, number_key(limiter, i), 1, STINT_NOW, NULL);
        struct stint_verdict v = ask(limiter, id, 5, 100, CHARGE);
        assert_true(v.allowed);
        assert_true(v.granted == 100 ? v.flags == 0 && v.window != 0
                                     : v.flags == STINT_UNTRACKED && v.window == 0);
        partly |= v.granted > 0 && v.granted < 100;
        assert_true(get_policy_stats(limiter, id).charged == v.granted);
        stint_close(limiter);
    }
    assert_true(partly);
}
