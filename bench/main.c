/* SPDX-License-Identifier: MIT
 * stint-bench: what a core of this machine decides per second. */
#include <stint.h>

#include <stdio.h>
#include <string.h>

#include "common.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
    {"run", bench_run, "decide under load; ns per decision beside the floors of this machine"},
    {"growth", bench_growth, "how that grows with keys, load, threads, policies and more"},
    {"goals", bench_goals, "whether the library is as fast as it is meant to be, point by point"},
    {"peers", bench_peers, "the same decisions by mutexes, Redis and memcached"},
    {"load", bench_load, "arrivals on a schedule: the share of a core, and how late they are"},
};

static void print_help(FILE *out) {
    fputs("Usage: stint-bench COMMAND [OPTIONS]\n\n", out);
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].help);
    fputs("\nstint-bench COMMAND --help lists the options of a command.\n"
          "Exit codes: 0 good, 1 failed, 2 wrong usage.\n",
          out);
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
        printf("stint-bench %s\n", stint_version());
        return EXIT_GOOD;
    }
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    fprintf(stderr, "stint-bench: there is no command '%s'\n", argv[1]);
    print_help(stderr);
    return EXIT_USAGE;
}
