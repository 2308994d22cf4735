/* SPDX-License-Identifier: MIT
 * A row of the result: what is asked, and what came out. */
#ifndef STINT_BENCH_ROW_H
#define STINT_BENCH_ROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "keys.h"
#include "workload.h"

struct row {
    /* what is asked */
    enum workload workload;
    enum distribution distribution;
    uint64_t keys;
    unsigned threads;
    size_t key_length;
    double load; /* keys / slots of the table */

    /* what came out */
    double ns_per_op, ns_min, ns_max; /* of one decision on its thread; median of the repeats */
    double mops;                      /* millions a second, all threads together */
    enum floor floor;
    double floor_ns; /* median of the repeats */
    uint64_t allowed, refused;
    uint64_t unplaced;  /* keys that got no slot; of several tables, in the worst */
    uint64_t preempted; /* times that a thread was pushed off its core while it was timed */
    unsigned repeats;
    bool checked;    /* every answer was right */
    char wrong[256]; /* else the first that was not */
};

#endif
