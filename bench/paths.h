/* SPDX-License-Identifier: MIT
 * The kinds of decisions beside the plain take, as a server would ask for them; and the takes that
 * those of several parts stand beside. */
#ifndef STINT_BENCH_PATHS_H
#define STINT_BENCH_PATHS_H

#include "timed.h"

timed_function path_decide, path_refund, path_all, path_groups, path_takes, path_batch;

#endif
