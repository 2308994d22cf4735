/* SPDX-License-Identifier: MIT
 * stint: the command. */
#include <stint.h>

#include <stdio.h>
#include <string.h>

#include "advise.h"
#include "command.h"
#include "common.h"
#include "complete.h"
#include "replay.h"

/* What a key is made of. */
#define OPTIONS_KEY    (OPTION(HEX) | OPTION(HASH) | OPTION(ADDRESS) | OPTION(ID) | OPTION(NAME))
/* What a shell script asks for. */
#define OPTIONS_ANSWER (OPTION(JSON) | OPTION(QUIET))

static const struct command commands[] = {
    {.name = "status",
     .run = tool_status,
     .operands = "F",
     .options = OPTION(JSON) | OPTION(INTERVAL),
     .failed = EXIT_FAILED,
     .summary = "how full a table is, and what its policies decide",
     .about =
         "Shows how full a table is, which processes have it open, and what each policy has\n"
         "decided: altogether, and in a second, for which it looks twice (--interval 0: once)."},
    {.name = "watch",
     .run = tool_watch,
     .operands = "F",
     .options = OPTION(JSON) | OPTION(INTERVAL) | OPTION(COUNT),
     .failed = EXIT_FAILED,
     .summary = "the same again and again, with the keys on a terminal",
     .about =
         "Shows the status again and again: on a terminal in place, with the keys that were\n"
         "refused or use most; else as a line for each look. On a terminal s chooses by what keys\n"
         "are sorted, p the policy; arrows scroll, q ends it."},
    {.name = "policies",
     .run = tool_policies,
     .operands = "F",
     .options = OPTION(JSON),
     .failed = EXIT_FAILED,
     .summary = "the policies and all that they count",
     .about = "Lists the policies with all that they have counted since the table was made."},
    {.name = "take",
     .run = tool_take,
     .operands = "FPK",
     .options = OPTIONS_KEY | OPTIONS_ANSWER | OPTION(COST) | OPTION(LIMIT) | OPTION(BURST) |
                OPTION(PARTIAL) | OPTION(ADD) | OPTION(FULL),
     .failed = EXIT_USAGE,
     .summary = "take tokens of a key: a rate limiter for scripts",
     .about =
         "Takes tokens of a key if they are left. POLICY is the name of one in the table, or a\n"
         "notation such as 5/hour, which --add adds if it is not there. A key that is refused for\n"
         "the first time in a window leaves its name in a table with room for names."},
    {.name = "peek",
     .run = tool_peek,
     .operands = "FPK",
     .options =
         OPTIONS_KEY | OPTIONS_ANSWER | OPTION(COST) | OPTION(LIMIT) | OPTION(BURST) | OPTION(FULL),
     .failed = EXIT_USAGE,
     .summary = "whether they are left",
     .about = "Says whether a take would be granted, and takes nothing."},
    {.name = "charge",
     .run = tool_charge,
     .operands = "FPK",
     .options = OPTIONS_KEY | OPTIONS_ANSWER | OPTION(COST) | OPTION(ADD) | OPTION(FULL),
     .failed = EXIT_FAILED,
     .summary = "take them, left or not",
     .about =
         "Takes the whole cost whatever is left: for costs that are known after the work only."},
    {.name = "reset",
     .run = tool_reset,
     .operands = "FPK",
     .options = OPTIONS_KEY | OPTIONS_ANSWER | OPTION(BANNED) | OPTION(POLICY) | OPTION(PREFIX) |
                OPTION(REASON),
     .failed = EXIT_FAILED,
     .summary = "let a key begin anew",
     .about =
         "Makes a key as good as new under a policy: nothing used. --banned FILE does so with\n"
         "all keys that are banned, or those of one --policy, or in one network."},
    {.name = "override",
     .run = tool_override,
     .operands = "FPKL",
     .options = OPTIONS_KEY | OPTIONS_ANSWER | OPTION(FOR) | OPTION(UNTIL) | OPTION(CLEAR) |
                OPTION(REPLACE) | OPTION(REASON),
     .failed = EXIT_FAILED,
     .summary = "give a key another limit for a while, or ban it",
     .about =
         "Gives a key a limit of its own, for a time or until one; 0 refuses everything,\n"
         "unlimited (268435456) nothing. --clear ends it, and a ban; LIMIT is then left out. The\n"
         "policy needs the option `overrides`. --for, --until and --clear may also stand behind\n"
         "LIMIT, and --replace and --reason behind such a time."},
    {.name = "top",
     .run = tool_top,
     .operands = "F",
     .options = OPTION(JSON) | OPTION(NUMBER) | OPTION(BY) | OPTION(POLICY),
     .failed = EXIT_FAILED,
     .summary = "the keys that use most, or are refused most",
     .about =
         "Lists the keys that have used the most tokens in their present window, or were refused\n"
         "in the most windows (which is counted for keys with names). --hash takes what stands\n"
         "under \"key\"."},
    {.name = "key",
     .run = tool_key,
     .operands = "FK",
     .options = OPTION(JSON) | OPTIONS_KEY,
     .failed = EXIT_FAILED,
     .summary = "all that the table has of one key",
     .about =
         "Shows what one key may take and has used by each policy, which limit is in force for\n"
         "it and until when, whether it is refused, since when, and when it is let through again."},
    {.name = "overrides",
     .run = tool_overrides,
     .operands = "F",
     .options = OPTION(JSON) | OPTION(POLICY) | OPTION(PREFIX),
     .failed = EXIT_FAILED,
     .summary = "the limits that were set by hand",
     .about = "Lists the keys that have a limit of their own, set by hand; what ends first first."},
    {.name = "bans",
     .run = tool_bans,
     .operands = "F",
     .options = OPTION(JSON) | OPTION(POLICY) | OPTION(PREFIX),
     .failed = EXIT_FAILED,
     .summary = "the keys that are banned",
     .about = "Lists the keys that are banned; what ends first first."},
    {.name = "dump",
     .run = tool_dump,
     .operands = "F",
     .options = OPTION(POLICY),
     .failed = EXIT_FAILED,
     .summary = "all live keys, as JSON lines",
     .about = "Writes each live key as a line of JSON, in no order."},
    {.name = "metrics",
     .run = tool_metrics,
     .operands = "F",
     .options = OPTION(LABEL) | OPTION(NO_SCAN) | OPTION(NO_EOF),
     .failed = EXIT_FAILED,
     .summary = "all counts, as OpenMetrics text",
     .about = "Writes all counts in the text format that Prometheus reads."},
    {.name = "make",
     .run = tool_make,
     .operands = "F",
     .options = OPTION(ENTRIES) | OPTION(LABELS) | OPTION(MAX_POLICIES) | OPTION(SHARDS) |
                OPTION(MODE) | OPTION(POLICIES) | OPTION(REASON),
     .failed = EXIT_FAILED,
     .summary = "make a table",
     .about = "Makes a table, with policies if some are given. One that is there with the same\n"
              "options is left as it is, and gets the policies. --entries is required."},
    {.name = "apply",
     .run = tool_apply,
     .operands = "FT",
     .options = OPTION(JSON) | OPTION(DRY_RUN) | OPTION(PRUNE) | OPTION(REASON),
     .failed = EXIT_FAILED,
     .summary = "make the policies those of a file",
     .about =
         "Makes the policies of a table those of a file, one a line; # begins a comment, - is\n"
         "the standard input. Nothing is changed if a line is wrong."},
    {.name = "resize",
     .run = tool_resize,
     .operands = "F",
     .options = OPTION(JSON) | OPTION(ENTRIES) | OPTION(LABELS) | OPTION(MAX_POLICIES) |
                OPTION(SHARDS) | OPTION(MODE) | OPTION(REASON),
     .failed = EXIT_FAILED,
     .summary = "move all keys into a larger or smaller table",
     .about =
         "Moves all that is live into a table of another size, which takes the place of FILE at\n"
         "once. Nobody else may have it open. What is not given stays as it was. It says by which\n"
         "options servers can open the table now."},
    {.name = "advise",
     .run_alone = tool_advise,
     .summary = "which limits the clients of access logs would need"},
    {.name = "replay",
     .run_alone = tool_replay,
     .summary = "read an access log and show what limits would have done"},
};

enum { COMMANDS = sizeof(commands) / sizeof(commands[0]) };

static void print_help(FILE *out) {
    fputs("Usage: stint COMMAND [OPTIONS] FILE ...\n\n", out);
    for (size_t i = 0; i < COMMANDS; i++)
        fprintf(out, "  %-9s  %s\n", commands[i].name, commands[i].summary);
    fputs("\nstint help COMMAND lists the options of a command; stint(1) has examples.\n", out);
}

static int run(const struct command *command, int argc, char **argv) {
    struct arguments arguments;

    if (command->run_alone != NULL)
        return command->run_alone(argc, argv);
    int code = command_read(command, argc, argv, &arguments);
    if (code != EXIT_GOOD)
        return code < 0 ? EXIT_GOOD : code;
    return command->run(&arguments);
}

int main(int argc, char **argv) {
    static char option[] = "--help";

    if (argc < 2) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    if (argc > 2 && strcmp(argv[1], "help") == 0) {
        argv[1] = argv[2];
        argv[2] = option;
        argc = 3;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return EXIT_GOOD;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("stint %s\n", stint_version());
        return EXIT_GOOD;
    }
    if (strcmp(argv[1], "complete") == 0)
        return complete(commands, COMMANDS, argc - 1, argv + 1);
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return run(&commands[i], argc - 1, argv + 1);
    fprintf(stderr, "stint: there is no %s '%s'\n", argv[1][0] == '-' ? "option" : "command",
            argv[1]);
    print_help(stderr);
    return EXIT_USAGE;
}
