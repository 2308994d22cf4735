/* SPDX-License-Identifier: MIT
 * Times, counted in buckets whose width grows with them: any time fits, in a fixed size, and a
 * percentile is never too small, and too large by at most 1 in HISTOGRAM_STEPS. (The layout of
 * HdrHistogram: each power of two is cut into as many equal steps.) */
#ifndef STINT_BENCH_HISTOGRAM_H
#define STINT_BENCH_HISTOGRAM_H

#include <stdint.h>

enum {
    HISTOGRAM_STEP_BITS = 7,
    HISTOGRAM_STEPS = 1 << HISTOGRAM_STEP_BITS, /* of a power of two */
    /* Below 2 * STEPS each value has a bucket; above, each of the powers of two that are left has
     * STEPS. */
    HISTOGRAM_BUCKETS = (64 - HISTOGRAM_STEP_BITS + 1) * HISTOGRAM_STEPS,
};

/* All zeroes: empty. One thread at a time. */
struct histogram {
    uint64_t count, max;
    uint64_t buckets[HISTOGRAM_BUCKETS];
};

void histogram_add(struct histogram *histogram, uint64_t ns);

/* The smallest time that at least `percent` of the values do not exceed, rounded up by less than
 * itself / HISTOGRAM_STEPS; exact below 2 * HISTOGRAM_STEPS and at the maximum. 0 if it is empty.
 *   percent  0 to 100 */
uint64_t histogram_percentile(const struct histogram *histogram, double percent);

void histogram_merge(struct histogram *into, const struct histogram *from);

#endif
