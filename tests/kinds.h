/* SPDX-License-Identifier: MIT
 * A limiter with a policy of each kind, and whether anything of its table was written. */
#ifndef STINT_TESTS_KINDS_H
#define STINT_TESTS_KINDS_H

#include "fixture.h"

#include "limiter.h" /* for the bytes of the table */

/* Their ids. */
enum kind { PLAIN, ROLLING, RESERVING, SMOOTH, PER_KEY, STRIPED, SHADOWING, COUNTING, KINDS };

/* 10 tokens a minute each. */
static inline struct stint_policy kind_policy(enum kind kind) {
    static const char *const names[KINDS] = {"plain",   "rolling", "reserving", "smooth",
                                             "per key", "striped", "shadowing", "counting"};
    struct stint_policy policy = make_policy(names[kind], 10, MINUTE, 0, 0);
    switch (kind) {
    case ROLLING:
        policy.capacity = 20;
        break;
    case RESERVING:
        policy.max_reserved = 15;
        break;
    case SMOOTH:
        policy.flags = STINT_SMOOTH;
        break;
    case PER_KEY:
        policy.flags = STINT_START_PER_KEY;
        break;
    case STRIPED:
        policy.stripes = 4;
        break;
    case SHADOWING:
        policy.flags = STINT_SHADOW;
        break;
    case COUNTING:
        policy.flags = STINT_COUNT_REFUSED;
        break;
    default:
        break;
    }
    return policy;
}

static inline struct stint_limiter *open_kinds(uint64_t max_keys, enum stint_on_full on_full) {
    struct stint_limiter *limiter = open_limiter(max_keys, on_full);
    for (int kind = 0; kind < KINDS; kind++) {
        struct stint_policy policy = kind_policy((enum kind)kind);
        assert_int_equal(policy_added(limiter, &policy), kind);
    }
    test_time = T0;
    return limiter;
}

/* A copy of all that decisions write in a table, but for the counters. */
struct copied {
    struct line *lines;
    size_t size;
};

static inline struct copied copy_table(const struct stint_limiter *limiter) {
    struct copied copied = {.size = limiter->table.line_count * sizeof(struct line)};
    copied.lines = malloc(copied.size);
    assert_non_null(copied.lines);
    memcpy(copied.lines, limiter->table.lines, copied.size);
    return copied;
}

static inline void assert_untouched(const struct stint_limiter *limiter, struct copied *copied) {
    assert_memory_equal(copied->lines, limiter->table.lines, copied->size);
    free(copied->lines);
}

#endif
