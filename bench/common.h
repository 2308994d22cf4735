/* SPDX-License-Identifier: MIT
 * Clocks, and what repeats come to. */
#ifndef STINT_BENCH_COMMON_H
#define STINT_BENCH_COMMON_H

#include <stddef.h>
#include <stdint.h>

/* CLOCK_MONOTONIC, ns. */
uint64_t monotonic_ns(void);

/* CPU time of the calling thread, ns. */
uint64_t thread_cpu_ns(void);

/* The median, the least and the most of n values, at least one, which are put in order. */
void summarize(double *values, size_t n, double *median, double *min, double *max);

#endif
