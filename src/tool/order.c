/* SPDX-License-Identifier: MIT
 * The heaviest chain of runs in which times do not fall far: as a longest increasing subsequence is
 * found, by a tree of prefix maxima over the times at which runs end. */
#include "order.h"

#include <stdlib.h>

#include "common.h"

enum { NONE = 0 }; /* runs are counted from 1 in the tree */

static int by_time(const void *one, const void *other) {
    const uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return (a > b) - (a < b);
}

/* How many of the sorted times are not after this one. */
static size_t rank_of(const uint64_t *times, size_t n, uint64_t time) {
    size_t low = 0;

    for (size_t high = n; low < high;) {
        const size_t middle = low + (high - low) / 2;
        if (times[middle] <= time)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The heavier of two; of equals the one that ends later, so that it is nearer to what follows. */
static size_t heavier(const struct run *runs, size_t a, size_t b) {
    if (a == NONE || b == NONE)
        return a == NONE ? b : a;
    if (runs[a - 1].weight != runs[b - 1].weight)
        return runs[a - 1].weight > runs[b - 1].weight ? a : b;
    return runs[a - 1].last_ns > runs[b - 1].last_ns ? a : b;
}

void order_runs(struct run *runs, size_t n) {
    uint64_t *ends = must_have(calloc(n + 1, sizeof(*ends)));
    size_t *tree = must_have(calloc(n + 1, sizeof(*tree))), best = NONE;

    for (size_t i = 0; i < n; i++)
        ends[i] = runs[i].last_ns;
    qsort(ends, n, sizeof(*ends), by_time);
    for (size_t i = 0; i < n; i++) {
        struct run *run = &runs[i];
        run->before = NONE;
        run->kept = false;
        for (size_t at = rank_of(ends, n, run->first_ns + ORDER_FAR_NS); at > 0; at -= at & -at)
            run->before = heavier(runs, run->before, tree[at]);
        run->weight = run->count + (run->before == NONE ? 0 : runs[run->before - 1].weight);
        if (best == NONE || run->weight >= runs[best - 1].weight)
            best = i + 1;
        for (size_t at = rank_of(ends, n, run->last_ns); at <= n; at += at & -at)
            tree[at] = heavier(runs, tree[at], i + 1);
    }
    for (; best != NONE; best = runs[best - 1].before)
        runs[best - 1].kept = true;
    free(tree);
    free(ends);
}
