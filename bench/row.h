/* SPDX-License-Identifier: MIT
 * A row of the result: what is asked, and what came out. */
#ifndef STINT_BENCH_ROW_H
#define STINT_BENCH_ROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "keys.h"
#include "tail.h"
#include "workload.h"

struct row {
    /* what is asked */
    enum workload workload;
    enum distribution distribution;
    uint64_t keys;
    unsigned threads;
    size_t key_length;
    double load;         /* keys / slots of the table */
    unsigned policies;   /* that the keys are spread over */
    double refused_part; /* of the keys that have used up their limit, 0 to 1; refuse: all */
    unsigned stripes;    /* of each key; 0: not striped */
    bool floor_given;    /* `floor` is asked for, not chosen by the workload and the cache */
    bool latency;        /* the time of each call, not of many */
    bool bare;           /* the workload's floor in place of the workload */
    bool beside;         /* what the path is measured beside, in place of the path */

    /* What came out. A repeat's ns are the median of its stretches of 512 decisions, so what other
     * work on the machine takes away now and then does not show; a row's are the median of the
     * repeats, beside the least and the most of them. */
    double ns_per_op, ns_min, ns_max; /* of one decision on its thread */
    double mops;                      /* millions a second, all threads together */
    enum floor floor;
    double floor_ns, floor_min;
    double ratio, ratio_min, ratio_max; /* to the floor of the same repeat */
    double locked_ns;                   /* of a path: its second floor, path->locked */
    struct tail call, empty;            /* with `latency` */
    uint64_t calls;
    uint64_t allowed, refused;
    uint64_t unplaced;  /* keys that got no slot; of several tables, in the worst */
    uint64_t reach;     /* lines from home to the farthest claim; likewise */
    uint64_t preempted; /* times that a thread was pushed off its core while it was timed */
    unsigned repeats;
    bool checked;    /* every answer was right */
    char wrong[256]; /* else the first that was not */
};

/* The goal of a path's ratio; 0: it is no path. */
static inline double row_goal(const struct row *row) {
    const struct path *path = workloads[row->workload].path;
    return path == NULL ? 0 : path->goal[row->keys > PATH_FEW];
}

static inline bool row_reached(const struct row *row) {
    return row->ns_per_op <= row_goal(row) * row->floor_ns ||
           row->ns_per_op <= 1.15 * row->locked_ns;
}

#endif
