/* SPDX-License-Identifier: MIT
 * What the measuring subcommands share in reading their arguments. */
#ifndef STINT_BENCH_OPTIONS_H
#define STINT_BENCH_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LIST_MAX = 32 };

struct list {
    uint64_t values[LIST_MAX];
    size_t n;
};

/* Reads a list separated by commas: of the names, as their indices, or without names of counts from
 * 1 to high. Returns false if a part of it, copied to `wrong`, is none. */
bool list_read(struct list *list, const char *text, const char *const *names, size_t n,
               uint64_t high, char *wrong, size_t wrong_size);

/* Reads a number in [low, high]. Returns false unless all of the text is one. */
bool read_real(const char *text, double low, double high, double *value);

struct option {
    size_t which; /* index in `known` */
    const char *name, *value;
};

/* Reads the option at argv[*at], --NAME=VALUE or --NAME VALUE, and moves *at to its end. Returns an
 * exit code, after a message unless it is EXIT_GOOD. */
int option_next(const char *command, int argc, char **argv, int *at, const char *const *known,
                size_t n, struct option *option);

/* Whether --help is among the arguments. */
bool help_wanted(int argc, char **argv);

#endif
