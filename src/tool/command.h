/* SPDX-License-Identifier: MIT
 * What a subcommand is, and what it was told: one table of options for all of them. */
#ifndef STINT_TOOL_COMMAND_H
#define STINT_TOOL_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct arguments;

struct command {
    const char *name;
    int (*run)(const struct arguments *arguments); /* returns an exit code */
    int (*run_alone)(int argc, char **argv); /* instead of run: it reads its arguments itself */
    const char *operands; /* their letters, in order: F the table's file, P a policy, K a key of one
                           * or more parts, T a text of policies, L a limit, behind the key */
    uint64_t options;     /* OPTION(name) of each that it takes, or-ed; all take --help */
    int failed;           /* its exit code if it cannot do what it was told */
    const char *summary;  /* half a line */
    const char *about;    /* what --help adds */
};

enum option_name {
    OPTION_JSON,
    OPTION_QUIET,
    OPTION_HEX,
    OPTION_HASH,
    OPTION_ADDRESS,
    OPTION_ID,
    OPTION_NAME,
    OPTION_COST,
    OPTION_LIMIT,
    OPTION_BURST,
    OPTION_PARTIAL,
    OPTION_ADD,
    OPTION_FULL,
    OPTION_NUMBER,
    OPTION_BY,
    OPTION_POLICY,
    OPTION_PREFIX,
    OPTION_BANNED,
    OPTION_INTERVAL,
    OPTION_COUNT,
    OPTION_ENTRIES,
    OPTION_LABELS,
    OPTION_MAX_POLICIES,
    OPTION_SHARDS,
    OPTION_MODE,
    OPTION_POLICIES,
    OPTION_DRY_RUN,
    OPTION_PRUNE,
    OPTION_FOR,
    OPTION_UNTIL,
    OPTION_CLEAR,
    OPTION_REPLACE,
    OPTION_REASON,
    OPTION_LABEL,
    OPTION_NO_SCAN,
    OPTION_NO_EOF,
    OPTION_HELP,
    OPTIONS_COUNT,
};
#define OPTION(name) (UINT64_C(1) << OPTION_##name)

enum {
    METRICS_LABELS_MAX = 16, /* that are given to stint_metrics */
    INTERVAL_MAX_S = 86400,
};

/* What the command line says; an option that was not given has the value that --help names. */
struct arguments {
    const struct command *command;
    const char *file, *policy, *text;
    char *const *keys; /* the parts of the key */
    size_t key_count;

    bool json, quiet, banned, hex, hash, address, id, name, partial, add, dry_run, prune, no_scan,
        no_eof, clear, replace;
    enum top_by { BY_USED, BY_REFUSED, BY_POLICY } by; /* the last two: of keys that were refused */
    unsigned prefix4, prefix6;
    struct network { /* --prefix */
        const char *text;
        unsigned char bytes[16]; /* IPv4 as IPv6 has it */
        unsigned bits;
    } network;
    uint32_t cost, limit, burst, on_full, shards, max_policies, labels, mode;
    uint64_t max_entries, number, count, interval_ns;
    uint64_t span, until;                                  /* --for, --until: ns; 0: not given */
    const char *reason;                                    /* --reason */
    const char *policies;                                  /* --policies: a file */
    const char *only_policy;                               /* --policy */
    const char *metric_labels[2 * METRICS_LABELS_MAX + 1]; /* as stint_metrics_options.labels */
};

/* Reads the command line. Returns EXIT_GOOD; EXIT_USAGE, and a message says what is wrong; or -1:
 * help was printed, and there is nothing more to do. */
int command_read(const struct command *command, int argc, char **argv, struct arguments *arguments);

/* The commands, by the file that they are in. */
int tool_take(const struct arguments *arguments); /* decide.c */
int tool_peek(const struct arguments *arguments);
int tool_charge(const struct arguments *arguments);
int tool_reset(const struct arguments *arguments);
int tool_override(const struct arguments *arguments); /* override.c */
int tool_watch(const struct arguments *arguments);    /* watch.c */
int tool_status(const struct arguments *arguments);   /* status.c */
int tool_policies(const struct arguments *arguments);
int tool_metrics(const struct arguments *arguments);
int tool_top(const struct arguments *arguments); /* entries.c */
int tool_overrides(const struct arguments *arguments);
int tool_bans(const struct arguments *arguments);
int reset_banned(const struct arguments *arguments);
int tool_dump(const struct arguments *arguments);
int tool_key(const struct arguments *arguments);  /* key.c */
int tool_make(const struct arguments *arguments); /* change.c */
int tool_apply(const struct arguments *arguments);
int tool_resize(const struct arguments *arguments);

/* Reads an address into the bytes that a network has. Returns its bits; 0: it is none. */
unsigned address_bytes(const char *text, unsigned char bytes[16]);

/* Prints "stint COMMAND: MESSAGE" to stderr, safely. Returns the command's exit code of failure. */
int failure(const struct arguments *arguments, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The same, when the system has not taken all of the output (all_written). */
int unwritten(const struct arguments *arguments, const char *what);

#endif
