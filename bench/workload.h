/* SPDX-License-Identifier: MIT
 * The workloads and the floors (timed.h), by name. */
#ifndef STINT_BENCH_WORKLOAD_H
#define STINT_BENCH_WORKLOAD_H

#include "timed.h"

struct floor_kind {
    const char *name;
    timed_function *run; /* NULL: what the workload runs */
    bool present;        /* asks the limiter for keys that this pass has brought */
    bool alone;          /* one thread runs it and the others wait */
};
extern const struct floor_kind floors[FLOORS];

enum { PATH_FEW = 1000 };

enum workload {
    TAKE,
    TAKE_AT,
    BATCH_16,
    REFUSE,
    FIRST_SEEN,
    ROLL,
    CHURN,
    ROLL_ALL,
    PATHS, /* from here on all are paths */
    PATH_COST = PATHS,
    PATH_OWN_LIMIT,
    PATH_ROLL_OVER,
    PATH_RESERVABLE,
    PATH_RESERVE,
    PATH_SHADOW,
    PATH_COUNTED,
    PATH_PEEK,
    PATH_REFUND,
    PATH_SMOOTH,
    PATH_PER_KEY,
    PATH_FIRST,
    PATH_CALENDAR,
    PATH_STRIPED,
    PATH_ALL_1,
    PATH_ALL_2,
    PATH_ALL_3,
    PATH_ALL_2_KEYS,
    PATH_ALL_3_KEYS,
    PATH_GROUPS,
    PATH_CHARGE,
    WORKLOADS
};
struct workload_kind {
    const char *name;
    const char *help;
    timed_function *run;     /* NULL: only --latency */
    timed_function *timed;   /* the same, each call by itself; NULL: not with --latency */
    enum floor floor;        /* while the table is in cache, or near */
    enum floor far_floor;    /* when it is far larger than the cache */
    bool used_up;            /* every key is at its limit before the first repeat */
    bool windows;            /* every epoch is a window of its own */
    bool each_once;          /* every key once per pass, and every pass is an epoch */
    bool new_keys;           /* every pass has keys of its own */
    bool new_table;          /* every pass has a table of its own */
    const struct path *path; /* NULL: plain takes */
};
extern const struct workload_kind workloads[WORKLOADS];

/* take, of keys that are spread over several policies. */
timed_function policies_take;

/* The clock of limiters whose windows the benchmark turns: what the calling thread set. */
extern _Thread_local uint64_t bench_now;
uint64_t bench_clock(void);

/* The same, after reading the clock that the limiter would have read. */
uint64_t bench_still_clock(void);

#endif
