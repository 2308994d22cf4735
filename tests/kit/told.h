/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * Short ways to write a test of one table: what it begins with, and what a verdict must say. */
#ifndef STINT_TESTS_TOLD_H
#define STINT_TESTS_TOLD_H

#include "fixture.h"

/* A test of a table that has one policy, `id`, when the clock says T0. */
#define TEST_OF(name, max_entries, on_full, text)                                                  \
    static void name##_of(struct stint_limiter *limiter, uint32_t id);                             \
    TEST(name) {                                                                                   \
        test_time = T0;                                                                            \
        struct stint_limiter *limiter = open_limiter(max_entries, on_full);                        \
        name##_of(limiter, add_text(limiter, text));                                               \
        stint_close(limiter);                                                                      \
    }                                                                                              \
    static void name##_of(struct stint_limiter *limiter, uint32_t id)

/* Flags. */
enum {
    FIRST = STINT_FIRST_REFUSAL,
    SHADOWED = STINT_SHADOWED,
    NEAR = STINT_NEAR_LIMIT,
    OVER = STINT_OVERRIDDEN,
    BANNED = STINT_BANNED,
    PEEK = STINT_PEEK,
    PARTIAL = STINT_PARTIAL,
    DRAIN = STINT_DRAIN,
    RESERVE = STINT_RESERVE,
    CHARGE = STINT_CHARGE,
    LOOK = STINT_PEEK | STINT_CHARGE, /* before a charge */
    TENTATIVE = STINT_TENTATIVE,
    MOST = STINT_LIMIT_MAX,
};

#define ANY UINT32_MAX /* number of tokens */

/* The verdict says that, whatever else it says. */
static inline void assert_told(struct stint_verdict verdict, bool allowed, uint32_t flags,
                               uint32_t used, uint32_t granted, int line) {
    if (verdict.allowed == allowed && verdict.flags == flags && verdict.granted == granted &&
        (used == (uint32_t)ANY || verdict.used == used))
        return;
    print_verdict("got", &verdict);
    fail_msg("line %d: allowed %d, flags %#" PRIx32 ", used %" PRIu32 ", granted %" PRIu32, line,
             allowed, flags, used, granted);
}
#define TOLD(verdict, ...)                     assert_told(verdict, __VA_ARGS__, __LINE__)
#define ALLOWED(verdict, flags, used, granted) TOLD(verdict, true, flags, used, granted)
#define REFUSED(verdict, flags, used)          TOLD(verdict, false, flags, used, 0)

#endif
