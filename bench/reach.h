/* SPDX-License-Identifier: MIT
 * What only the library's own headers tell. */
#ifndef STINT_BENCH_REACH_H
#define STINT_BENCH_REACH_H

#include <stint.h>

#include <stdint.h>

/* How many lines from home the farthest claim in the table ever was: a request for a key that is
 * not there searches as far. */
uint64_t table_reach(const struct stint_limiter *limiter);

#endif
