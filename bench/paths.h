/* SPDX-License-Identifier: MIT
 * What the workloads called paths run, and what they are measured beside. */
#ifndef STINT_BENCH_PATHS_H
#define STINT_BENCH_PATHS_H

#include "timed.h"

timed_function path_takes, path_batch;
timed_function path_take_5, path_decide, path_refund, path_all, path_groups;

#endif
