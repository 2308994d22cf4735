/* SPDX-License-Identifier: MIT
 * What a replay found out, and how it is shown. */
#ifndef STINT_TOOL_REPLAY_H
#define STINT_TOOL_REPLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <stint.h>

#include "access_log.h"
#include "order.h"

/* The command `stint replay`; argv[0] is "replay". Returns an exit code. */
int tool_replay(int argc, char **argv);

enum time_format { TIME_CLF, TIME_EPOCH, TIME_NONE };

enum {
    REPLAY_FIELDS_MAX = 16,     /* of a key */
    REPLAY_UNREADABLE_MAX = 10, /* unreadable lines that are shown; the others are counted */
    REPLAY_LEFT_OUT_MAX = 10,   /* likewise of runs of lines that are left out */
    REPLAY_BUCKETS_MAX = 60,    /* of the refusals over time; the columns of the table's line */
};

struct unreadable_line {
    uint64_t number; /* from 1 */
    const char *why;
};

struct log_summary {
    const char *file; /* "-": standard input */
    enum time_format time;
    uint64_t lines, readable;
    struct unreadable_line unreadable[REPLAY_UNREADABLE_MAX]; /* the first of lines - readable */
    uint64_t left_out; /* lines that stand far from where their times belong (order.h) */
    uint64_t left_out_runs;
    struct run left_out_run[REPLAY_LEFT_OUT_MAX]; /* the first of them */
    uint64_t requests;                            /* that are decided: readable - left_out */
    uint64_t late;              /* requests with a time before one that was already seen */
    uint64_t first_ns, last_ns; /* the clock at the first and at the last request */
    unsigned fields[REPLAY_FIELDS_MAX];
    size_t field_count;
    uint64_t keys; /* distinct */
};

struct refused_key {
    struct text name;
    uint64_t refused, allowed;
};

struct limit_result {
    const char *notation;       /* as it was given */
    char name[STINT_NAME_SIZE]; /* of the policy */
    uint64_t allowed, refused;
    uint64_t keys_refused;
    uint64_t bans;           /* or, by a shadow, what would have been */
    bool banning;            /* the policy has a ban */
    struct refused_key *top; /* the most refused first */
    size_t top_count;
    uint64_t bucket_ns;
    size_t bucket_count;                  /* 0: the log has no times */
    uint64_t buckets[REPLAY_BUCKETS_MAX]; /* refused, from first_ns on */
    uint64_t elapsed_ns;                  /* of hashing and deciding, nothing else */
};

/* Prints the report. Returns whether all was written. */
typedef bool replay_print(FILE *out, const struct log_summary *log,
                          const struct limit_result *limits, size_t count);
replay_print replay_print_table, replay_print_json;

#endif
