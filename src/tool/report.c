/* SPDX-License-Identifier: MIT */
#include "report.h"

#include <stint.h>

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "screen.h"

enum {
    LABEL = 15, /* columns of a value's name */
    ROOM_MIN = 60,
};

void report_begin(struct report *report, FILE *out, enum report_form form) {
    const unsigned room = screen_size().columns;

    *report = (struct report){
        .out = out, .form = form, .first = true, .room = room < ROOM_MIN ? ROOM_MIN : room};
    if (form != REPORT_TEXT)
        fputc('{', out);
}

void report_end(struct report *report) {
    if (report->form == REPORT_JSON)
        fputs("\n}\n", report->out);
    if (report->form == REPORT_LINE)
        fputs("}\n", report->out);
    free(report->cells);
    free(report->names);
}

/* ---- Tables ---- */

void report_table(struct report *report, const char *name) {
    report->in_table = true;
    report->rows = report->columns = report->cell_count = 0;
    if (report_is_text(report))
        return;
    fputs(report->first ? "" : ",", report->out);
    fputs(report->form == REPORT_JSON ? "\n  " : report->first ? "" : " ", report->out);
    fprintf(report->out, "\"%s\": [", name);
}

static void end_row(struct report *report) {
    if (report->in_row && !report_is_text(report))
        fputc('}', report->out);
    report->in_row = false;
}

void report_row(struct report *report) {
    end_row(report);
    if (!report_is_text(report)) {
        fputs(report->rows == 0 ? "" : ",", report->out);
        fputs(report->form == REPORT_JSON ? "\n    {"
              : report->rows == 0         ? "{"
                                          : " {",
              report->out);
    }
    report->rows++;
    report->in_row = report->first = true;
}

/* What people call a value: "first_refusals" is "first refusals". */
static const char *spoken(char buffer[32], const char *name) {
    size_t i = 0;

    for (; name[i] != '\0' && i < 31; i++)
        buffer[i] = name[i] == '_' ? ' ' : name[i];
    buffer[i] = '\0';
    return buffer;
}

/* A cell of a line, after which `gap` blanks are due if anything follows in it. */
static void put_cell(FILE *out, const char *text, size_t width, bool right, int *gap) {
    int pad = (int)(width - strlen(text));

    if (*text != '\0') {
        fprintf(out, "%*s%s", *gap + (right ? pad : 0), "", text);
        *gap = 2 + (right ? 0 : pad);
    } else {
        *gap += 2 + pad;
    }
}

/* The columns' widths. What has no room beside the first column is cut; that takes half at most.
 * 0: all its cells are empty, and it is left out. */
static size_t *widths_of(struct report *report) {
    size_t *widths = must_have(calloc(report->columns, sizeof(*widths)));

    for (size_t column = 0; column < report->columns; column++) {
        const size_t room = column == 0 ? report->room / 2 : report->room - widths[0] - 2;
        for (size_t i = column; i < report->cell_count; i += report->columns) {
            if (report->room != 0)
                text_cut(report->cells[i].text, room);
            const size_t length = strlen(report->cells[i].text);
            widths[column] = length > widths[column] ? length : widths[column];
        }
        const size_t name = strlen(report->names[column]);
        if ((column == 0 || widths[column] != 0) && widths[column] < name)
            widths[column] = name;
    }
    return widths;
}

/* The first column, which says of what a line is, and those from one to before another. */
static void put_columns(struct report *report, const size_t *widths, size_t from, size_t to) {
    char name[32];
    int gap = 0;

    for (size_t i = 0; i < report->columns; i++)
        if (i == 0 || (i >= from && i < to && widths[i] != 0))
            put_cell(report->out, spoken(name, report->names[i]), widths[i], report->cells[i].right,
                     &gap);
    for (size_t i = 0; i < report->cell_count; i++) {
        const size_t column = i % report->columns;
        if (column == 0) {
            fputc('\n', report->out);
            gap = 0;
        }
        if (column == 0 || (column >= from && column < to && widths[column] != 0))
            put_cell(report->out, report->cells[i].text, widths[column], report->cells[i].right,
                     &gap);
    }
    fputc('\n', report->out);
}

/* All cells, aligned; what does not fit beside the others stands below, behind the first column
 * again. */
static void lay_out(struct report *report) {
    size_t *widths = widths_of(report), to = 1;

    do {
        const size_t from = to;
        size_t width = widths[0];
        while (to < report->columns &&
               (report->room == 0 || widths[to] == 0 || width == widths[0] ||
                width + 2 + widths[to] <= report->room)) {
            width += widths[to] == 0 ? 0 : 2 + widths[to];
            to++;
        }
        if (from > 1)
            fputc('\n', report->out);
        put_columns(report, widths, from, to);
    } while (to < report->columns);
    free(widths);
}

void report_table_end(struct report *report) {
    end_row(report);
    if (report_is_text(report)) {
        if (report->cell_count != 0)
            lay_out(report);
        for (size_t i = 0; i < report->cell_count; i++)
            free(report->cells[i].text);
    } else {
        fputs(report->form == REPORT_JSON && report->rows != 0 ? "\n  ]" : "]", report->out);
    }
    report->in_table = report->first = false;
}

void report_item(struct report *report, const char *word) {
    if (!report_is_text(report))
        fprintf(report->out, "%s\"%s\"", report->rows++ == 0 ? "" : ", ", word);
}

/* ---- Values ---- */

/* A dump writes millions of fields, so these go past locks and formats. */
static void put(const struct report *report, const char *text) {
    fputs_unlocked(text, report->out);
}

static void put_number(const struct report *report, uint64_t number) {
    char digits[24], *at = digits + sizeof(digits) - 1;

    *at = '\0';
    do
        *--at = (char)('0' + number % 10);
    while ((number /= 10) != 0);
    put(report, at);
}

/* The name of a field of JSON, after which its value follows. */
static void json_name(struct report *report, const char *name) {
    put(report, report->first ? "" : ",");
    if (report->form == REPORT_JSON && !report->in_row)
        put(report, "\n  ");
    else if (!report->first)
        put(report, " ");
    put(report, "\"");
    put(report, name);
    put(report, "\": ");
    report->first = false;
}

static void add_cell(struct report *report, const char *name, const char *text, bool right) {
    if (report->cell_count == report->cell_room) {
        report->cell_room = 2 * report->cell_room + 64;
        report->cells =
            must_have(realloc(report->cells, report->cell_room * sizeof(*report->cells)));
    }
    if (report->rows == 1) {
        report->names =
            must_have(realloc(report->names, (report->columns + 1) * sizeof(*report->names)));
        report->names[report->columns++] = name;
    }
    char *copy = must_have(strdup(text));
    if (report->widest != 0)
        text_cut(copy, report->widest);
    report->cells[report->cell_count++] = (struct report_cell){copy, right};
}

/* A value for people, in a line of its own or in its row. */
static void put_text(struct report *report, const char *name, const char *text, bool right) {
    if (report->in_row) {
        add_cell(report, name, text, right);
        return;
    }
    char label[32];
    spoken(label, name);
    label[0] = (char)toupper((unsigned char)label[0]);
    fprintf(report->out, "%-*s", LABEL, label);
    for (size_t at = LABEL, blanks = 0, length; *text != '\0'; text += blanks + length) {
        blanks = strspn(text, " ");
        length = strcspn(text + blanks, " ");
        if (at > LABEL && report->room != 0 && at + blanks + length > report->room) {
            fprintf(report->out, "\n%*s", LABEL, "");
            at = LABEL;
            text += blanks;
            blanks = 0;
        }
        fprintf(report->out, "%s%.*s", at == LABEL ? " " : "", (int)(blanks + length), text);
        at += 1 + blanks + length;
    }
    fputc('\n', report->out);
}

void report_note(struct report *report, const char *name, const char *text) {
    if (report_is_text(report))
        put_text(report, name, text, false);
}

void report_count(struct report *report, const char *name, uint64_t count) {
    char buffer[32];

    if (report_is_text(report)) {
        put_text(report, name, grouped(buffer, count), true);
        return;
    }
    json_name(report, name);
    put_number(report, count);
}

void report_limit(struct report *report, const char *name, uint64_t limit) {
    if (report_is_text(report) && limit == STINT_LIMIT_MAX)
        put_text(report, name, "unlimited", true);
    else
        report_count(report, name, limit);
}

void report_bytes(struct report *report, const char *name, uint64_t bytes) {
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    char buffer[32];
    double size = (double)bytes;
    size_t unit = 0;

    if (!report_is_text(report)) {
        report_count(report, name, bytes);
        return;
    }
    for (; size >= 1024 && unit < 4; unit++)
        size /= 1024;
    snprintf(buffer, sizeof(buffer), size < 10 && unit > 0 ? "%.1f %s" : "%.0f %s", size,
             units[unit]);
    put_text(report, name, buffer, true);
}

void report_span(struct report *report, const char *name, uint64_t ns) {
    char buffer[40];

    if (report_is_text(report)) {
        put_text(report, name, ns == UINT64_MAX ? "never" : span_text(buffer, ns), true);
        return;
    }
    json_name(report, name);
    if (ns == UINT64_MAX)
        put(report, "null");
    else
        put_number(report, ns);
}

void report_time(struct report *report, const char *name, uint64_t ns) {
    char buffer[40];

    if (report_is_text(report))
        put_text(report, name, time_text(buffer, ns, ' ', ""), false);
    else
        report_count(report, name, ns);
}

void report_rate(struct report *report, const char *name, double per_second) {
    char buffer[64];

    if (report_is_text(report)) {
        snprintf(buffer, sizeof(buffer), per_second < 10 ? "%.1f" : "%.0f", per_second);
        put_text(report, name, per_second >= 1000 ? grouped(buffer, (uint64_t)per_second) : buffer,
                 true);
        return;
    }
    json_name(report, name);
    fprintf(report->out, "%.3f", per_second);
}

void report_truth(struct report *report, const char *name, bool truth) {
    if (report_is_text(report)) {
        put_text(report, name, truth ? "yes" : "no", false);
        return;
    }
    json_name(report, name);
    put(report, truth ? "true" : "false");
}

void report_key(struct report *report, const char *name, stint_key key) {
    char buffer[17] = "";

    for (unsigned i = 0; i < 16; i++)
        buffer[i] = "0123456789abcdef"[key.hash >> (60 - 4 * i) & 15];
    report_text(report, name, buffer, 16);
}

/* Whether JSON may have the bytes as they are. */
static bool plain(const char *bytes, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (bytes[i] < 0x20 || bytes[i] >= 0x7F || bytes[i] == '"' || bytes[i] == '\\')
            return false;
    return true;
}

void report_text(struct report *report, const char *name, const char *bytes, size_t length) {
    char shown[REPORT_WIDEST + 1];

    if (report_is_text(report)) {
        put_text(report, name, bytes == NULL ? "" : printable(shown, sizeof(shown), bytes, length),
                 false);
        return;
    }
    json_name(report, name);
    if (bytes == NULL) {
        put(report, "null");
    } else if (plain(bytes, length)) {
        put(report, "\"");
        fwrite_unlocked(bytes, 1, length, report->out);
        put(report, "\"");
    } else {
        put_json_text(report->out, bytes, length);
    }
}

void report_bar(struct report *report, const char *name, uint64_t part, uint64_t whole) {
    enum { BAR = 24 };
    char bar[BAR + 1], a[32], b[32], text[160];
    double ratio = whole == 0 ? 0 : (double)part / (double)whole;
    size_t full = ratio >= 1 ? BAR : (size_t)(ratio * BAR);

    if (!report_is_text(report))
        return;
    memset(bar, '.', BAR);
    memset(bar, '#', full);
    bar[BAR] = '\0';
    snprintf(text, sizeof(text), "[%s] %.1f%%, %s of %s", bar, ratio * 100, grouped(a, part),
             grouped(b, whole));
    put_text(report, name, text, false);
}
