/* SPDX-License-Identifier: MIT
 * Were the answers right? Nothing here is timed. */
#ifndef STINT_BENCH_CHECK_H
#define STINT_BENCH_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "bed.h"
#include "row.h"

static inline uint64_t smaller(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* Notes in row->wrong what is wrong. Returns false. */
bool row_wrong(struct row *row, const char *what, uint64_t right, uint64_t found);

/* Adds what the threads asked of each key since the bed was opened. */
void count_demand(const struct bed *bed, uint32_t *demand);

/* A small table with a small limit before the large one, asked the same way by as many threads:
 * each key must be granted min(demand, limit) in each window, counted one by one. */
bool rehearse(struct row *row);

/* What every key has used, against what it asked for. */
struct audit {
    struct bed *bed;
    const uint32_t *demand; /* tokens, by each part of a run; NULL: `each` */
    uint32_t each;
    uint64_t epoch;
    struct found {
        uint64_t tokens;                   /* used by keys with a slot */
        uint64_t lost, lost_tokens;        /* keys without one, and what they asked for */
        uint64_t lost_used_up;             /* of them, those that used up their limit */
        uint64_t wrong, right_was, it_was; /* keys with another count; the first of them */
        char padding[8];
    } found[TEAM_MAX];
};

/* Every key used min(demand, limit); what was allowed is the sum of that; the limiter counted the
 * same answers as we did. Raises row->unplaced to the keys that have no slot, row->reach to the
 * reach. */
bool audit_table(struct row *row, struct audit *audit);

#endif
