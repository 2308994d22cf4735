/* SPDX-License-Identifier: MIT
 * The one writer of what commands say: for people, or as JSON. A report is a list of named values,
 * with tables among them; it is written once, and the form decides how it looks.
 *
 *     text                                     JSON
 *     Memory        305 MiB                    {"memory": 320000000,
 *                                               "policies": [
 *     name   allowed                              {"name": "login", "allowed": 1234},
 *     login    1,234                              ...]}
 */
#ifndef STINT_TOOL_REPORT_H
#define STINT_TOOL_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <stint.h>

enum { REPORT_WIDEST = 4 * STINT_LABEL_SIZE }; /* columns of bytes that are shown: all of a name */

enum report_form {
    REPORT_TEXT,
    REPORT_JSON,
    REPORT_LINE, /* JSON in one line */
};

struct report {
    FILE *out;
    enum report_form form;
    bool first; /* nothing is in this object yet */
    bool in_table, in_row;
    /* The cells of a table of text, laid out when it ends. */
    struct report_cell {
        char *text;
        bool right;
    } * cells;
    size_t cell_count, cell_room;
    const char **names; /* of the columns: of the cells of the first row */
    size_t columns;
    uint64_t rows;
    size_t widest; /* columns of a cell of text; what is longer is cut in its middle. 0: any */
    size_t room;   /* columns of a line of text: those of the terminal, or 80; 0: any */
};

void report_begin(struct report *report, FILE *out, enum report_form form);
void report_end(struct report *report);

/* Rows follow, each begun by report_row. All rows of a table have the same names in one order. */
void report_table(struct report *report, const char *name);
void report_row(struct report *report);
void report_table_end(struct report *report);
void report_item(struct report *report, const char *word); /* instead of rows; in JSON only */

/* A value by its name, which is the field of JSON; '_' is a blank for people. Times are ns. */
void report_count(struct report *report, const char *name, uint64_t count);
void report_limit(struct report *report, const char *name, uint64_t limit); /* 2^28: unlimited */
void report_bytes(struct report *report, const char *name, uint64_t bytes);
void report_span(struct report *report, const char *name, uint64_t ns); /* UINT64_MAX: never */
void report_time(struct report *report, const char *name, uint64_t ns);
void report_rate(struct report *report, const char *name, double per_second);
void report_truth(struct report *report, const char *name, bool truth);
void report_key(struct report *report, const char *name, stint_key key);
/* Any bytes; NULL: there are none. */
void report_text(struct report *report, const char *name, const char *bytes, size_t length);
/* For people only. */
void report_note(struct report *report, const char *name, const char *text);
void report_bar(struct report *report, const char *name, uint64_t part, uint64_t whole);

static inline bool report_is_text(const struct report *report) {
    return report->form == REPORT_TEXT;
}

#endif
