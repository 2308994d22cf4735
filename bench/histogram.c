/* SPDX-License-Identifier: MIT */
#include "histogram.h"

#include <math.h>

/* A value of 2^e to 2^(e+1) is cut to its first STEP_BITS + 1 bits: what is left is STEPS to
 * 2 * STEPS - 1, in front of which stand the buckets of all smaller powers of two. */
static unsigned bucket_shift(uint64_t ns) {
    return ns < 2 * HISTOGRAM_STEPS ? 0 : 63u - (unsigned)__builtin_clzll(ns) - HISTOGRAM_STEP_BITS;
}

static unsigned bucket_of(uint64_t ns) {
    unsigned shift = bucket_shift(ns);
    return shift * HISTOGRAM_STEPS + (unsigned)(ns >> shift);
}

/* The largest value in the bucket. */
static uint64_t bucket_last(unsigned bucket) {
    if (bucket < 2 * HISTOGRAM_STEPS)
        return bucket;
    unsigned shift = bucket / HISTOGRAM_STEPS - 1;
    uint64_t first = (uint64_t)(bucket - shift * HISTOGRAM_STEPS) << shift;
    return first + ((UINT64_C(1) << shift) - 1);
}

void histogram_add(struct histogram *histogram, uint64_t ns) {
    histogram->buckets[bucket_of(ns)]++;
    histogram->count++;
    if (ns > histogram->max)
        histogram->max = ns;
}

uint64_t histogram_percentile(const struct histogram *histogram, double percent) {
    /* 99.9% of 1,000 is 999, whatever 0.999 is in binary. */
    double wanted = ceil(percent / 100 * (double)histogram->count * (1 - 1e-12));
    uint64_t rank = wanted < 1 ? 1 : (uint64_t)wanted, seen = 0;

    if (histogram->count == 0)
        return 0;
    if (rank > histogram->count)
        rank = histogram->count;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += histogram->buckets[i];
        if (seen >= rank)
            return bucket_last(i) < histogram->max ? bucket_last(i) : histogram->max;
    }
    return histogram->max;
}

void histogram_merge(struct histogram *into, const struct histogram *from) {
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
        into->buckets[i] += from->buckets[i];
    into->count += from->count;
    if (from->max > into->max)
        into->max = from->max;
}
