/* SPDX-License-Identifier: MIT
 * Making and checking a table, for resize.c. */
#ifndef STINT_OPEN_H
#define STINT_OPEN_H

#include "limiter/records.h"

/* Reads a caller's options, of whatever size: 0, or -EINVAL with a reason. */
int stint_options_read(const struct stint_options *given, struct stint_options *options);

/* Opens a copy of the table at made->path, which nobody else has open. The file stays as it is:
 * what a killed process has left half done is finished in the copy. `made` has clock and secret.
 * It receives the options that the table was made with; shards 0: their number was chosen. */
int stint_table_copy(struct stint_options *made, struct stint_limiter **opened);

/* Whether the file is still the one that was copied. A copy keeps pages that it has written to. */
int stint_table_whole(const struct stint_limiter *copy);

/* Makes a table in a file beside options.path that has no name yet. */
int stint_table_make(const struct stint_options *options, struct stint_limiter **made);

#endif
