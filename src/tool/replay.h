/* SPDX-License-Identifier: MIT
 * What a replay found out, and how it is shown. */
#ifndef STINT_TOOL_REPLAY_H
#define STINT_TOOL_REPLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <stint.h>

#include "requests.h"

/* The command `stint replay`; argv[0] is "replay". Returns an exit code. */
int tool_replay(int argc, char **argv);

enum { REPLAY_STEPS_MAX = 60 }; /* of the refusals over time; the columns of the table's line */

struct refused_key {
    struct text name;
    uint64_t refused, allowed;
};

struct limit_result {
    const char *notation;       /* as it was given */
    char name[STINT_NAME_SIZE]; /* of the policy */
    uint64_t allowed, refused;
    uint64_t keys_refused;
    uint64_t bans;
    bool banning;            /* the policy has a ban */
    struct refused_key *top; /* the most refused first */
    size_t top_count;
    uint64_t step_ns;
    size_t step_count;                /* 0: the log has no times */
    uint64_t steps[REPLAY_STEPS_MAX]; /* refused, from first_ns on */
    uint64_t elapsed_ns;              /* of hashing and deciding, nothing else */
};

/* Prints the report. Returns whether all was written. */
typedef bool replay_print(FILE *out, const struct requests *requests,
                          const struct limit_result *limits, size_t count);
replay_print replay_print_table, replay_print_json;

#endif
