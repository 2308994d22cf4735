/* SPDX-License-Identifier: MIT
 * What the files of this folder have for each other, and for metrics.c. */
#ifndef STINT_PARTS_H
#define STINT_PARTS_H

#include "limiter/records.h"

/* Reads what stint_stats_get tells; without a scan, what takes one is 0. */
void stint_stats_read(struct stint_limiter *limiter, struct stint_stats *stats, bool scan);

/* Reads a caller's options, of whatever size: 0, or -EINVAL with a reason. */
int stint_options_read(const struct stint_options *given, struct stint_options *options);

/* Opens a copy of the table at made->path, which nobody else has open, and finishes in it what was
 * left half done. `made` has clock and secret, and receives the rest (shards 0: chosen). */
int stint_table_copy(struct stint_options *made, struct stint_limiter **opened);

/* Whether the file is still the one that was copied. A copy keeps pages that it has written to. */
int stint_table_whole(const struct stint_limiter *copy);

/* Makes a table in a file beside options.path that has no name yet. */
int stint_table_make(const struct stint_options *options, struct stint_limiter **made);

/* Frees the slots of policies that are gone. Returns whether there are any such policies. */
bool stint_sweep(struct stint_limiter *limiter);

#endif
