/* SPDX-License-Identifier: MIT
 * What limits the clients of a log would need, and how it is shown. */
#ifndef STINT_TOOL_ADVISE_H
#define STINT_TOOL_ADVISE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "requests.h"

/* The command `stint advise`; argv[0] is "advise". Returns an exit code. */
int tool_advise(int argc, char **argv);

enum {
    ADVISE_UNITS = 4,
    ADVISE_SHARES = 5,
    ADVISE_ROWS_MAX = ADVISE_SHARES + 1,
    ADVISE_POINTS_MAX = 128, /* of a curve: limits up to 2^32, each 1.4 times the one before */
    ADVISE_TOP = 10,         /* clients that are named */
    ADVISE_STEPS = 60,       /* of the refusals over time */
    ADVISE_NOTATION = 64,
};

/* What a limit does to the requests of the logs. */
struct tally {
    uint64_t clients, requests; /* clients of which it refuses some; requests that it refuses */
};

/* A number of requests in a unit, as a window (20/minute) and as a bucket of the same size, which
 * is full at first (20/minute burst=20). */
struct advise_row {
    uint64_t limit;
    struct tally window, bucket;
};

/* A limit that is looked at closely. */
struct advise_limit {
    char notation[ADVISE_NOTATION];
    uint64_t limit;
    bool bucket;
    struct tally tally;
    uint64_t steps[ADVISE_STEPS]; /* refused, over time */
};

/* A client among those with the highest peaks. */
struct advise_client {
    uint32_t key;
    uint64_t peak, requests;
    uint64_t refused, refused_strictly; /* by the limits that are suggested */
};

struct advise_unit {
    const char *name; /* "minute" */
    uint64_t ns;
    bool judged;                   /* the logs are no shorter than it */
    uint64_t peaks[ADVISE_SHARES]; /* that shares of the clients stay within */
    struct advise_row rows[ADVISE_ROWS_MAX];
    size_t row_count;
    struct advise_row points[ADVISE_POINTS_MAX]; /* of the curves, with --html */
    size_t point_count;
    struct advise_limit suggested, strict;
    struct advise_client top[ADVISE_TOP];
    size_t top_count;
};

struct advice {
    struct requests requests;
    struct advise_unit units[ADVISE_UNITS];
    uint64_t step_ns;
    size_t step_count;
};

/* Shares of clients, in parts of a thousand, and what they are called. */
extern const struct advise_share {
    const char *name;
    unsigned thousandths;
} advise_shares[ADVISE_SHARES];

/* What is said of the lines to copy, if the clients are too few for 1 of 1,000 to be one. */
#define ADVISE_FEW                                                                                 \
    "With fewer than 1,000 clients that is nobody, robots included. See whom a lower limit hits."

/* By which a page is known as one. */
#define ADVISE_PAGE_BEGIN "<!DOCTYPE html>"

/* Prints the report. Returns whether all was written. */
typedef bool advise_print(FILE *out, const struct advice *advice);
advise_print advise_print_table, advise_print_json, advise_print_page;

#endif
