/* SPDX-License-Identifier: MIT
 * Statistics of a table and its policies, for metrics.c and stint_stats. */
#ifndef STINT_STATS_H
#define STINT_STATS_H

#include <stdbool.h>

#include <stint.h>

/* Reads what stint_stats_get tells; without a scan, what takes one is 0. */
void stint_stats_read(struct stint_limiter *limiter, struct stint_stats *stats, bool scan);

#endif
