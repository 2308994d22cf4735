/* SPDX-License-Identifier: MIT
 * stint: the command. */
#include <stint.h>

#include <stdio.h>
#include <string.h>

#include "command.h"
#include "common.h"
#include "replay.h"

/* What a key is made of. */
#define OPTIONS_KEY    (OPTION(HEX) | OPTION(HASH) | OPTION(ADDRESS))
/* What a shell script asks for. */
#define OPTIONS_ANSWER (OPTION(JSON) | OPTION(QUIET))

static const struct command commands[] = {
    {"status", tool_status, NULL, "F", OPTION(JSON) | OPTION(INTERVAL), EXIT_FAILED,
     "how full a table is, and what its policies decide",
     "Shows how full a table is, how many processes use it, and what each policy has decided:\n"
     "altogether, and in a second, for which it looks twice (--interval 0: once)."},
    {"watch", tool_watch, NULL, "F", OPTION(JSON) | OPTION(INTERVAL) | OPTION(COUNT), EXIT_FAILED,
     "the same again and again",
     "Shows the status again and again: on a terminal in place, else a line for each look."},
    {"policies", tool_policies, NULL, "F", OPTION(JSON), EXIT_FAILED,
     "the policies and all that they count",
     "Lists the policies with all that they have counted since the table was made."},
    {"take", tool_take, NULL, "FPK",
     OPTIONS_KEY | OPTIONS_ANSWER | OPTION(COST) | OPTION(LIMIT) | OPTION(PARTIAL) | OPTION(FULL),
     EXIT_USAGE, "take tokens of a key: a rate limiter for scripts",
     "Takes tokens of a key if they are left. POLICY is the name of one in the table, or a "
     "notation\n"
     "such as 5/hour, which is added if it is not there. A key that is refused for the first time\n"
     "in a window leaves its name in a table with room for names."},
    {"peek", tool_peek, NULL, "FPK",
     OPTIONS_KEY | OPTIONS_ANSWER | OPTION(COST) | OPTION(LIMIT) | OPTION(FULL), EXIT_USAGE,
     "whether they are left", "Says whether a take would be granted, and takes nothing."},
    {"charge", tool_charge, NULL, "FPK", OPTIONS_KEY | OPTIONS_ANSWER | OPTION(COST) | OPTION(FULL),
     EXIT_FAILED, "take them, left or not",
     "Takes the whole cost whatever is left: for costs that are known after the work only."},
    {"reset", tool_reset, NULL, "FPK", OPTIONS_KEY | OPTIONS_ANSWER, EXIT_FAILED,
     "let a key begin anew", "Makes a key as good as new under a policy: nothing used."},
    {"top", tool_top, NULL, "F", OPTION(JSON) | OPTION(NUMBER) | OPTION(BY) | OPTION(POLICY),
     EXIT_FAILED, "the keys that use most, or are refused most",
     "Lists the keys that have used the most tokens in their present window, or were refused in "
     "the\n"
     "most windows (which is counted for keys with names). --hash takes what stands under "
     "\"key\"."},
    {"dump", tool_dump, NULL, "F", OPTION(POLICY), EXIT_FAILED, "all live keys, as JSON lines",
     "Writes each live key as a line of JSON, in no order."},
    {"metrics", tool_metrics, NULL, "F", OPTION(LABEL) | OPTION(NO_SCAN) | OPTION(NO_EOF),
     EXIT_FAILED, "all counts, as OpenMetrics text",
     "Writes all counts in the text format that Prometheus reads."},
    {"make", tool_make, NULL, "F",
     OPTION(KEYS) | OPTION(LABELS) | OPTION(MAX_POLICIES) | OPTION(SHARDS) | OPTION(MODE),
     EXIT_FAILED, "make a table",
     "Makes a table, with policies if some are given. One that is there with the same options is\n"
     "left as it is, and gets the policies. --keys is required."},
    {"resize", tool_resize, NULL, "F",
     OPTION(KEYS) | OPTION(LABELS) | OPTION(MAX_POLICIES) | OPTION(SHARDS), EXIT_FAILED,
     "move all keys into a larger or smaller table",
     "Moves all that is live into a table of another size, which takes the place of FILE at once.\n"
     "Nobody else may have it open. What is not given stays as it was. Tables of stint 0.1 become\n"
     "tables of this version."},
    {.name = "replay",
     .run_alone = tool_replay,
     .summary = "read an access log and show what limits would have done"},
};

enum { COMMANDS = sizeof(commands) / sizeof(commands[0]) };

static void print_help(FILE *out) {
    fputs("Usage: stint COMMAND [OPTIONS] FILE ...\n\n", out);
    for (size_t i = 0; i < COMMANDS; i++)
        fprintf(out, "  %-8s  %s\n", commands[i].name, commands[i].summary);
    fputs("\nstint COMMAND --help lists the options of a command; stint(1) has examples.\n", out);
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
    if (argc < 2) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help(stdout);
        return EXIT_GOOD;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("stint %s\n", stint_version());
        return EXIT_GOOD;
    }
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return run(&commands[i], argc - 1, argv + 1);
    fprintf(stderr, "stint: there is no %s '%s'\n", argv[1][0] == '-' ? "option" : "command",
            argv[1]);
    print_help(stderr);
    return EXIT_USAGE;
}
