/* SPDX-License-Identifier: MIT
 * stint: the command. */
#include <stint.h>

#include <stdio.h>
#include <string.h>

#include "common.h"
#include "replay.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
    {"replay", tool_replay, "read an access log and show what limits would have done"},
};

static void print_help(FILE *out) {
    fputs("Usage: stint COMMAND [OPTIONS]\n\n", out);
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].help);
    fputs("\nstint COMMAND --help lists the options of a command.\n", out);
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
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    if (argv[1][0] == '-')
        fprintf(stderr, "stint: there is no option '%s'\n", argv[1]);
    else
        fprintf(stderr, "stint: there is no command '%s'\n", argv[1]);
    print_help(stderr);
    return EXIT_USAGE;
}
