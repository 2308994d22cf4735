/* SPDX-License-Identifier: MIT
 * What the subcommands of stint-bench share: usage errors, progress, JSON strings, times. */
#ifndef STINT_BENCH_COMMON_H
#define STINT_BENCH_COMMON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Exit codes of every subcommand. */
enum { EXIT_GOOD = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

enum output_format { FORMAT_TABLE, FORMAT_JSON };

/* The subcommands. argv[0] is the subcommand's name. Each returns an exit code. */
int bench_run(int argc, char **argv);
int bench_growth(int argc, char **argv);
int bench_goals(int argc, char **argv);
int bench_peers(int argc, char **argv);
int bench_load(int argc, char **argv);

/* Prints "stint-bench COMMAND: MESSAGE" and where to find help to stderr. Returns EXIT_USAGE. */
int usage_error(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Says by stint_reason() why a policy's notation, the value of --limit, is wrong, with a caret under
 * the character `wrong`; NULL: the first. Returns EXIT_USAGE. */
int limit_error(const char *command, const char *text, const char *wrong);

/* A bar on stderr while it is a terminal; otherwise nothing is printed. */
struct progress {
    const char *label;
    uint64_t total;
    uint64_t shown_ns; /* when it was last drawn */
    bool on;
};
void progress_start(struct progress *progress, const char *label, uint64_t total);
void progress_update(struct progress *progress, uint64_t done);
void progress_end(struct progress *progress); /* wipes the bar */

/* Bytes made safe for a terminal: printable ASCII stays, all else becomes \xHH; what does not fit
 * in `size` is cut, which "..." at the end shows. Returns `buffer`. */
char *printable(char *buffer, size_t size, const char *bytes, size_t length);

/* Writes a JSON string, quotes included; bytes that are not UTF-8 are written as U+FFFD. */
void put_json_string(FILE *out, const char *bytes, size_t length);

/* Reads a count such as 1000, 1k, 10M (k, M, G are powers of 1000). Returns false unless all of it
 * is a number in [low, high]. */
bool parse_count(const char *text, uint64_t low, uint64_t high, uint64_t *value);

/* CLOCK_MONOTONIC, ns. */
uint64_t monotonic_ns(void);

/* CPU time of the calling thread, ns. */
uint64_t thread_cpu_ns(void);

/* The median, the least and the most of n values, at least one, which are put in order. */
void summarize(double *values, size_t n, double *median, double *min, double *max);

#endif
