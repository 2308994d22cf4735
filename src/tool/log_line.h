/* SPDX-License-Identifier: MIT
 * What a line of an access log says: when, and of whom.
 *
 *     a sample of lines -> the form that most of them have -> time and parts of each line */
#ifndef STINT_TOOL_LOG_LINE_H
#define STINT_TOOL_LOG_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "access_log.h"
#include "log_json.h"

enum log_kind {
    LOG_BRACKETS, /* [17/May/2015:10:05:03 +0000]: common, combined, and what is like them */
    LOG_HAPROXY,  /* address:port [17/May/2015:10:05:03.042], without a zone */
    LOG_JSON,     /* an object in each line */
    LOG_EPOCH,    /* the first field is the time in seconds */
    LOG_TIMELESS, /* all requests happen at one instant */
    LOG_UNKNOWN,
};

/* How the lines of a file are read. */
struct log_form {
    enum log_kind kind;
    const char *name;        /* for people: "combined" */
    unsigned client;         /* LOG_BRACKETS: which word is the client's address; 0: not known */
    const char *client_name; /* LOG_JSON: the field that has it; NULL: none is known */
    const char *time_name;   /* LOG_JSON */
    const char *agent_name;  /* LOG_JSON; NULL: none is known */
};

/* What a key is made of. */
struct log_part {
    enum log_part_kind {
        PART_NONE,  /* the text is none */
        PART_FIELD, /* by its number, counted as awk does */
        PART_NAME,  /* of JSON: a field's name, those of the objects that it is in before it, with
                     * dots between: request.host */
        PART_CLIENT,
        PART_USER,
        PART_HOST,
        PART_METHOD,
        PART_PATH, /* without what follows a ? */
        PART_STATUS,
        PART_AGENT,
    } kind;
    unsigned number;
    const char *name;
};
enum { LOG_PARTS_MAX = 16 };

/* Reads one part of a key as the command line gives it. */
struct log_part log_part_read(const char *text);

/* Finds the form that most of the lines have: LOG_UNKNOWN if no line has one. One without bytes is
 * left out. */
struct log_form log_form_find(const struct text *lines, size_t count);

/* Reads the time of a line, ns since the epoch, and its parts. Returns NULL, or why they cannot be
 * read, a constant. */
const char *log_line_read(const struct log_form *form, struct text line,
                          const struct log_part *parts, size_t count, uint64_t *time_ns,
                          struct json_part *values);

/* Finds field `number`, from 1, as awk counts them: runs of blanks (space, tab) separate, and those
 * at the ends of the line count for nothing. */
bool text_field(struct text line, unsigned number, struct text *field);

/* The address of 192.0.2.1:80 and of [2001:db8::1]:80; others as they are. */
struct text text_without_port(struct text address);

#endif
