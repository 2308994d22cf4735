/* SPDX-License-Identifier: MIT
 * Rows as a table for people, of at most 100 columns, or as one JSON object, of one shape whatever
 * was measured: command, machine, build, date, seconds, rows. */
#ifndef STINT_BENCH_REPORT_H
#define STINT_BENCH_REPORT_H

#include <stdint.h>
#include <stdio.h>

#include "common.h"
#include "machine.h"
#include "output.h"
#include "row.h"

/* A row of another kind than struct row is printed by its subcommand. */
struct report_format {
    void (*head)(FILE *out, double seconds);
    void (*table)(FILE *out, const void *row);
    void (*json)(FILE *out, const void *row);
    void (*foot)(FILE *out);
};

enum report_kind { REPORT_ROWS, REPORT_TAILS, REPORT_SERIES, REPORT_OTHER };

struct report {
    struct output *output;
    struct report_format format;
    FILE *copy; /* the JSON in memory, for pictures and comparison; else NULL */
    char *copy_text;
    size_t copy_size;
    unsigned rows;      /* written so far */
    uint64_t preempted; /* of all rows */
};

/* Starts a result on stdout. */
void report_start(struct report *report, enum report_kind kind, struct output *output,
                  const struct machine *machine, double seconds);
void report_start_other(struct report *report, const struct report_format *format,
                        struct output *output, const struct machine *machine, double seconds);

void report_row(struct report *report, const struct row *row);
void report_other(struct report *report, const void *row);

/* Ends it: draws and compares, if that is asked for. Returns an exit code. */
int report_end(struct report *report);

/* Writes a member of a JSON object, after a comma: a number, or null if it is not known. */
void put_json_real(FILE *out, const char *name, bool known, double value);

/* Writes a count as 1k, 10M or, if it is not round, as it is. */
void format_count(uint64_t count, char *text, size_t size);

/* A time that does not outgrow 7 columns. */
void format_ns(double ns, char *text, size_t size);

#endif
