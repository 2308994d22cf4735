/* SPDX-License-Identifier: MIT
 * What the subcommands of stint share: options and what is wrong with them, progress, text that is
 * safe to print, JSON. */
#ifndef STINT_TOOL_COMMON_H
#define STINT_TOOL_COMMON_H

#include <getopt.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define BYTE_ORDER_MARK "\xEF\xBB\xBF" /* what some editors put before a text */

/* Exit codes. */
enum { EXIT_GOOD = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

/* What tool_option returns when there is something wrong, or no option left. */
enum { OPTION_WRONG = '?', OPTIONS_END = -1 };

/* Reads the next option as getopt_long does. If something is wrong with it, a message names it.
 *   letters  the short options, after a ':', which has getopt_long tell a missing value from an
 *            unknown option, and print neither */
int tool_option(const char *command, int argc, char **argv, const char *letters,
                const struct option *options);

/* Prints "stint COMMAND: MESSAGE" and where to find help to stderr. Returns EXIT_USAGE. */
int usage_error(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* stint_reason(), in the words of the command instead of those of C: valid until the next call. */
const char *reason(void);

/* Says by reason() why a policy's notation is wrong, with a caret under the character
 * `wrong`; NULL: the first. `what` is the option or operand that it is the value of. Returns
 * EXIT_USAGE. */
int notation_error(const char *command, const char *what, const char *text, const char *wrong);

/* Reads how many bits of an address count: "24,64", or "24", which leaves the second. Returns false
 * unless they are 1 to 32 (IPv4) and 1 to 128. */
bool parse_prefixes(const char *text, unsigned *prefix4, unsigned *prefix6);

/* Reads the value of an option that is one of the words: its index, or n if it is none. */
size_t parse_word(const char *text, const char *const *words, size_t n);

/* Reads a count such as 1000, 1k, 10M (k, M, G are powers of 1000). Returns false unless all of it
 * is a number in [low, high]. */
bool parse_count(const char *text, uint64_t low, uint64_t high, uint64_t *value);

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

/* 1234567 -> 1,234,567. Returns where in the buffer it begins. */
const char *grouped(char buffer[32], uint64_t number);

/* 1 client, 1,234 clients. Returns `buffer`. */
const char *counted(char buffer[48], uint64_t number, const char *noun);

/* A time in UTC, ns since the epoch, with as many decimals as it needs, by threes. Returns
 * `buffer`. */
const char *time_text(char buffer[40], uint64_t time_ns, char between, const char *zone);

/* "since 14:02", of another day with the date, in UTC. Returns `buffer`. */
const char *since_text(char buffer[40], uint64_t since_ns, uint64_t now_ns);

/* Cuts a text to so many columns, in its middle, in place: both ends tell names apart. */
void text_cut(char *text, size_t width);

/* A span in its two largest units: 3 d 11 h, 1 min 5 s, 250 ms. Returns `buffer`. */
const char *span_text(char buffer[40], uint64_t span_ns);

/* A JSON string; each byte that is not UTF-8 becomes U+FFFD. */
json_t *json_text(const char *bytes, size_t length);

/* Writes it in ASCII, and frees it; no terminal takes it for commands. Returns whether all was
 * written. */
bool put_json(FILE *out, json_t *json);

/* Writes the bytes as a JSON string, quotes and all, likewise. */
void put_json_text(FILE *out, const char *bytes, size_t length);

/* Whether all that was printed was written. */
bool all_written(void);

/* CLOCK_MONOTONIC, ns. */
uint64_t monotonic_ns(void);

/* Returns `memory`, or ends the process if it is NULL. */
void *must_have(void *memory);

#endif
