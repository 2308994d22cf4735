/* SPDX-License-Identifier: MIT
 * Rows as a table for people, of at most 100 columns, or as one JSON object. */
#ifndef STINT_BENCH_REPORT_H
#define STINT_BENCH_REPORT_H

#include <stdint.h>
#include <stdio.h>

#include "common.h"
#include "machine.h"
#include "row.h"

struct report {
    FILE *out;
    enum output_format format;
    unsigned rows;      /* written so far */
    uint64_t preempted; /* of all rows */
};

void report_start(struct report *report, FILE *out, enum output_format format,
                  const struct machine *machine, double seconds);
void report_row(struct report *report, const struct row *row);
void report_end(struct report *report);

/* Writes a count as 1k, 10M or, if it is not round, as it is. */
void format_count(uint64_t count, char *text, size_t size);

#endif
