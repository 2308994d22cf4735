/* SPDX-License-Identifier: MIT
 * The workloads and the floors (timed.h), by name. */
#ifndef STINT_BENCH_WORKLOAD_H
#define STINT_BENCH_WORKLOAD_H

#include "timed.h"

/* NULL if there is none of that name. */
timed_function *timed_named(const char *name);

/* The clock of limiters whose windows the benchmark turns: what the calling thread set. */
extern _Thread_local uint64_t bench_now;
uint64_t bench_clock(void);

/* The same, after reading the clock that the limiter would have read. */
uint64_t bench_still_clock(void);

#endif
