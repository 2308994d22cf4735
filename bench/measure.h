/* SPDX-License-Identifier: MIT
 * One row: a table is filled, its answers are checked, workload and floor are timed by turns, and
 * the answers of all that are checked again. */
#ifndef STINT_BENCH_MEASURE_H
#define STINT_BENCH_MEASURE_H

#include <stdbool.h>
#include <stdint.h>

#include "row.h"

/* Measures the row.
 *   seconds   of timed work, all repeats together; a workload that needs a whole pass over its keys
 *             may take longer
 *   cache     bytes of the last-level cache, 0: unknown; decides which floor is the right one
 *   progress  is told the part that is done, 0 to 1; may be NULL
 * Look at row->checked before any number. Ends the process, after a message, if there is no memory.
 */
void row_measure(struct row *row, double seconds, uint64_t cache,
                 void (*progress)(void *context, double part), void *context);

struct ratio {
    double median, min, max; /* of the repeats */
};

/* Measures two rows by turns, so that what disturbs the one disturbs the other: of some
 * milliseconds if both draw from a sequence, of a repeat if both ask for each key once. Both tables
 * are there at once.
 *   ratio  receives b's ns to a's, if the answers of both were right */
void rows_measure_beside(struct row *a, struct row *b, double seconds, struct ratio *ratio);

#endif
