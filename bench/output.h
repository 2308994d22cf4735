/* SPDX-License-Identifier: MIT
 * Where a result goes beside the terminal: into pictures, and beside an earlier result. Both work
 * on the result's JSON, so that every measuring subcommand has them for its rows. */
#ifndef STINT_BENCH_OUTPUT_H
#define STINT_BENCH_OUTPUT_H

#include <jansson.h>
#include <stdio.h>

#include "common.h"
#include "options.h"

struct output {
    const char *command; /* the subcommand */
    enum output_format format;
    const char *plot;    /* directory; NULL: no pictures */
    const char *compare; /* file; NULL: nothing to compare with */
    json_t *old;         /* what is in it */
};

#define FORMAT_HELP "  --format F           table or json (table)\n"
#define COMPARE_HELP                                                                               \
    "  --compare OLD.json   what got faster or slower since that --format json; a difference is\n" \
    "                       one only if the repeats of then and now do not overlap\n"              \
    "  --help\n"
#define OUTPUT_HELP                                                                                \
    FORMAT_HELP                                                                                    \
    "  --plot DIR           draws what the rows show into DIR, as SVG (needs "                     \
    "gnuplot)\n" COMPARE_HELP

/* Takes one of --seconds, --format, --plot, --compare. Returns an exit code, after a message unless
 * it is EXIT_GOOD. */
int measure_option(const char *command, const struct option *option, double *seconds,
                   struct output *output);

/* Sees to it, before anything is measured, that there is gnuplot, a directory for it, and a result
 * to compare with. Returns an exit code. */
int output_open(struct output *output, const char *command);
void output_close(struct output *output);

/* Draws the pictures that the result has data for, and says which. Returns an exit code. */
int plot_result(const json_t *result, const char *directory);

/* Writes, as a table or as a JSON object, what changed from one result to another, row by row. */
void compare_results(FILE *out, enum output_format format, const char *old_path, const json_t *old,
                     const json_t *result);

#endif
