/* SPDX-License-Identifier: MIT
 * The requests of access logs, in the order of their times: what `replay` and `advise` read.
 *
 *     options -> each file: a sample says its form, each line gives a time and a key -> sorted */
#ifndef STINT_TOOL_REQUESTS_H
#define STINT_TOOL_REQUESTS_H

#include <getopt.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "log_keys.h"
#include "log_line.h"

enum {
    UNREADABLE_MAX = 10,    /* lines that are shown; the others are counted */
    UNREADABLE_PERCENT = 5, /* of the lines: with more of them no figure is worth much */
};

/* What the command line says of logs. */
struct log_options {
    const char *command;
    char *const *files; /* "-": the standard input */
    size_t file_count;
    struct log_part parts[LOG_PARTS_MAX];
    size_t part_count;
    enum log_kind time; /* LOG_UNKNOWN: it is recognised */
    bool agents;        /* the first agent of each key is wanted, too */
    bool address;       /* the first part is an address, of which these bits count */
    unsigned prefix4, prefix6;
};

/* The options of logs, for getopt_long, and what --help says of them. */
enum { LOG_OPTION_KEY = 512, LOG_OPTION_ADDRESS, LOG_OPTION_TIME };
#define LOG_OPTIONS                                                                                \
    {"key", required_argument, NULL, LOG_OPTION_KEY},                                              \
        {"address", optional_argument, NULL, LOG_OPTION_ADDRESS}, {                                \
        "time", required_argument, NULL, LOG_OPTION_TIME                                           \
    }
extern const char log_options_help[];

/* Takes one of them; `optarg` has its value. Returns EXIT_GOOD or EXIT_USAGE. */
int log_option(struct log_options *options, int option);

/* Takes the files, which stand behind all options, and checks the whole. Likewise. */
int log_operands(struct log_options *options, int argc, char **argv);

struct request {
    uint64_t now;         /* ns since the epoch */
    uint32_t key, number; /* number: in the order of the lines */
};

struct log_file {
    const char *path;
    struct log_form form;
    uint64_t lines, readable;
};

struct requests {
    const struct log_options *options;
    struct log_file *files; /* as many as the options have */
    struct request *all;
    size_t count, room;
    struct log_keys keys;
    struct log_keys agents; /* each once; an empty one is none */
    uint32_t *agent_of;     /* of each key */
    size_t agent_room;
    uint64_t lines; /* of all files; lines - count of them are unreadable */
    uint64_t late;  /* requests that stood behind one with a later time */
    uint64_t first_ns, last_ns;
    uint64_t ipv6, networks; /* keys that are IPv6 addresses, and the /64 that they are in */
    bool timed;              /* there are times */
    bool whole_seconds;
    struct unreadable_line {
        const char *path;
        uint64_t number; /* from 1 */
        const char *why;
    } unreadable[UNREADABLE_MAX];
};

/* Reads all files. Returns EXIT_GOOD, or EXIT_FAILED and a message says what is wrong. */
int requests_read(const struct log_options *options, struct requests *requests);

/* How long a step is: the span of the logs in so many parts, rounded up to a unit that fits the
 * times; in short logs there are then fewer steps. */
uint64_t requests_step(const struct requests *requests, uint64_t parts);

/* What a key called itself when it came first; empty if that is not known. */
struct text requests_agent(const struct requests *requests, uint32_t key);

void requests_free(struct requests *requests);

/* A file's path as it is shown. */
const char *requests_path(const char *path);

/* The first lines that cannot be read, and why. */
void requests_print_unreadable(FILE *out, const struct requests *requests, int indent);

/* What was read: the first lines of a report, and the object `log` of one in JSON. */
void requests_print(FILE *out, const struct requests *requests);
json_t *requests_json(const struct requests *requests);

/* A time of a request; null if there are none. */
json_t *requests_json_time(const struct requests *requests, uint64_t time_ns);

enum { REPORT_COLUMNS = 100, REPORT_LABEL = 14 };

#endif
