/* SPDX-License-Identifier: MIT
 * What a histogram of times is told by: percentiles, and how far they differ from repeat to repeat
 * or, where there are none, from one part of the run to another. */
#ifndef STINT_BENCH_TAIL_H
#define STINT_BENCH_TAIL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "histogram.h"

enum { TAIL_POINTS = 6 };

struct tail {
    uint64_t ns[TAIL_POINTS];                    /* of all */
    uint64_t min[TAIL_POINTS], max[TAIL_POINTS]; /* the least and the most of a part */
};

/* Lets a part, the first or another, count for min and max. */
void tail_add(struct tail *tail, const struct histogram *part, bool first);

/* Sets ns, from all parts together. */
void tail_total(struct tail *tail, const struct histogram *all);

/* An object with a member for each point. */
json_t *tail_answer(const struct tail *tail);

#endif
