/* SPDX-License-Identifier: MIT
 * Policies of all kinds, in one table; and whether anything of a limiter's table was written. */
#ifndef STINT_TESTS_KINDS_H
#define STINT_TESTS_KINDS_H

#include "fixture.h"

/* A kind is what a key's count does, and when its windows begin. */
enum kind {
    PLAIN,
    ROLLING,
    RESERVING,
    SMOOTH,
    PER_KEY,
    STRIPED,
    SHADOWING,
    COUNTING, /* refusals */
    MINUTES,  /* those before are of 10 tokens a minute, and may be charged */
    CAPPED = MINUTES,
    NEARING, /* with jitter, too */
    BY_FIRST,
    MONTHLY,
    YEARLY,
    HELD,    /* in flight */
    BANNING, /* it has overrides, too */
    BUCKET,  /* those before count in windows */
    DELAYING,
    BUCKET_BANNING,
    KINDS
};
extern const char *const kind_names[KINDS];

/* 10 tokens a minute, or a month, or a year. */
struct stint_policy kind_policy(enum kind kind);

/* Draws a policy of the kind. What it has beside that is as in `base`: it has a limit, a window and
 * maybe a start. `below`: a draw from [0, n), of `source`. */
struct stint_policy kind_drawn(enum kind kind, const struct stint_policy *base,
                               uint64_t (*below)(void *source, uint64_t n), void *source);

/* Adds those before `end`. The id of each is its kind. Slots of overrides are of policies that have
 * the next ids. */
void add_kinds(struct stint_limiter *limiter, enum kind end);

/* A limiter with those of MINUTES, at T0. */
struct stint_limiter *open_kinds(uint64_t max_entries, enum stint_on_full on_full);

/* A copy of all that decisions write in a table, but for the counters. */
struct copied {
    void *lines;
    size_t size;
};
struct copied copy_table(const struct stint_limiter *limiter);
void assert_untouched(const struct stint_limiter *limiter, struct copied *copied);

#endif
