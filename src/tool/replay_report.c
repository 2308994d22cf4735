/* SPDX-License-Identifier: MIT */
#include "replay.h"

#include <inttypes.h>
#include <string.h>

#include "common.h"

enum { COLUMNS = 100, LABEL = 14 };

static uint64_t decisions_per_second(const struct limit_result *limit) {
    double seconds = limit->elapsed_ns == 0 ? 1e-9 : (double)limit->elapsed_ns / 1e9;
    return (uint64_t)((double)(limit->allowed + limit->refused) / seconds);
}

/* ---- The table ------------------------------------------------------------------------------ */

static void print_left_out(FILE *out, const struct log_summary *log) {
    char a[40], b[40], time[40];

    if (log->left_out == 0)
        return;
    fprintf(out, "%-*s%s, out of order by more than a day:\n", LABEL, "Left out",
            grouped(a, log->left_out));
    for (size_t i = 0; i < log->left_out_runs && i < REPLAY_LEFT_OUT_MAX; i++) {
        const struct run *run = &log->left_out_run[i];
        fprintf(out, "%*s  line%s %s", LABEL, "", run->count == 1 ? "" : "s",
                grouped(a, run->line));
        if (run->count != 1)
            fprintf(out, " to %s", grouped(b, run->last_line));
        fprintf(out, ": %s\n", time_text(time, run->first_ns, ' ', " UTC"));
    }
    if (log->left_out_runs > REPLAY_LEFT_OUT_MAX)
        fprintf(out, "%*s  and %s more places\n", LABEL, "",
                grouped(a, log->left_out_runs - REPLAY_LEFT_OUT_MAX));
}

static void print_log(FILE *out, const struct log_summary *log) {
    char a[40], b[40], c[40], text[COLUMNS];
    uint64_t unreadable = log->lines - log->readable;
    bool standard_input = strcmp(log->file, "-") == 0;

    fprintf(out, "%-*s%s\n", LABEL, "Log",
            standard_input ? "standard input"
                           : printable(text, COLUMNS - LABEL, log->file, strlen(log->file)));
    fprintf(out, "%-*s%s", LABEL, "Lines", grouped(a, log->lines));
    if (unreadable == 0)
        fputs(", all readable\n", out);
    else
        fprintf(out, ", of which %s unreadable:\n", grouped(a, unreadable));
    for (size_t i = 0; i < unreadable && i < REPLAY_UNREADABLE_MAX; i++)
        fprintf(out, "%*s  line %s: %s\n", LABEL, "", grouped(a, log->unreadable[i].number),
                log->unreadable[i].why);
    if (unreadable > REPLAY_UNREADABLE_MAX)
        fprintf(out, "%*s  and %s more\n", LABEL, "",
                grouped(a, unreadable - REPLAY_UNREADABLE_MAX));
    print_left_out(out, log);
    if (log->time == TIME_NONE) {
        fprintf(out, "%-*snone: all requests happen at one instant\n", LABEL, "Time");
    } else {
        fprintf(out, "%-*s%s to %s UTC, %s\n", LABEL, "Time", time_text(a, log->first_ns, ' ', ""),
                time_text(b, log->last_ns, ' ', ""), span_text(c, log->last_ns - log->first_ns));
        fprintf(out, "%-*sthe latest time seen so far", LABEL, "Clock");
        if (log->late != 0)
            fprintf(out, "; %s requests stand behind a later one", grouped(a, log->late));
        fputc('\n', out);
    }
    fprintf(out, "%-*s%s by field%s", LABEL, "Keys", grouped(a, log->keys),
            log->field_count == 1 ? "" : "s");
    for (size_t i = 0; i < log->field_count; i++)
        fprintf(out, "%s %u", i == 0 ? "" : ",", log->fields[i]);
    fputc('\n', out);
}

static void print_count(FILE *out, const char *label, uint64_t count, uint64_t of) {
    char number[32];
    fprintf(out, "  %-*s%14s %8.2f%%\n", LABEL, label, grouped(number, count),
            of == 0 ? 0 : 100 * (double)count / (double)of);
}

static void print_over_time(FILE *out, const struct log_summary *log,
                            const struct limit_result *limit) {
    static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    enum { LEVELS = sizeof(blocks) / sizeof(blocks[0]) - 1 };
    char a[40], b[40];
    size_t peak = 0;

    if (limit->bucket_count == 0)
        return;
    for (size_t i = 1; i < limit->bucket_count; i++)
        if (limit->buckets[i] > limit->buckets[peak])
            peak = i;
    uint64_t most = limit->buckets[peak];
    fprintf(out, "\n  Refused over time, in steps of %s; peak %s", span_text(a, limit->bucket_ns),
            grouped(b, most));
    fprintf(out, " at %s\n  │", time_text(a, log->first_ns + peak * limit->bucket_ns, ' ', ""));
    for (size_t column = 0; column < REPLAY_BUCKETS_MAX; column++) {
        /* Fewer buckets than columns are drawn wide, so that the line always spans the log. */
        uint64_t refused = limit->buckets[column * limit->bucket_count / REPLAY_BUCKETS_MAX];
        /* Rounded up: one refusal is seen, however high the peak. */
        size_t level = (size_t)(((double)refused * LEVELS + (double)most - 1) / (double)most);
        fputs(blocks[level > LEVELS ? LEVELS : level], out);
    }
    time_text(a, log->first_ns, ' ', "");
    fprintf(out, "│\n  %s%*s\n", a, REPLAY_BUCKETS_MAX + 2 - (int)strlen(a),
            time_text(b, log->last_ns, ' ', ""));
}

static void print_top(FILE *out, const struct limit_result *limit) {
    enum { NAME_MAX_COLUMNS = 64 };
    static const char heading[] = "Most refused keys";
    char a[40], b[40], name[NAME_MAX_COLUMNS + 1];
    size_t width = sizeof(heading) - 1;

    if (limit->top_count == 0)
        return;
    for (size_t i = 0; i < limit->top_count; i++) {
        const struct refused_key *key = &limit->top[i];
        size_t length = strlen(printable(name, sizeof(name), key->name.bytes, key->name.length));
        width = length > width ? length : width;
    }
    fprintf(out, "\n  %-*s %14s %14s\n", (int)width, heading, "refused", "allowed");
    for (size_t i = 0; i < limit->top_count; i++) {
        const struct refused_key *key = &limit->top[i];
        fprintf(out, "  %-*s %14s %14s\n", (int)width,
                printable(name, sizeof(name), key->name.bytes, key->name.length),
                grouped(a, key->refused), grouped(b, key->allowed));
    }
}

static void print_limit(FILE *out, const struct log_summary *log,
                        const struct limit_result *limit) {
    char a[40], text[COLUMNS];

    fprintf(out, "\n%s\n", printable(text, COLUMNS, limit->notation, strlen(limit->notation)));
    print_count(out, "Requests", log->requests, log->requests);
    print_count(out, "Allowed", limit->allowed, log->requests);
    print_count(out, "Refused", limit->refused, log->requests);
    print_count(out, "Keys refused", limit->keys_refused, log->keys);
    if (limit->banning)
        fprintf(out, "  %-*s%14s\n", LABEL, "Bans", grouped(a, limit->bans));
    fprintf(out, "  %-*s%14s decisions per second\n", LABEL, "Speed",
            grouped(a, decisions_per_second(limit)));
    if (limit->refused == 0)
        return;
    print_over_time(out, log, limit);
    print_top(out, limit);
}

bool replay_print_table(FILE *out, const struct log_summary *log, const struct limit_result *limits,
                        size_t count) {
    print_log(out, log);
    for (size_t i = 0; i < count; i++)
        print_limit(out, log, &limits[i]);
    return !ferror(out);
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static json_t *json_time(const struct log_summary *log, uint64_t time_ns) {
    char text[40];
    return log->time == TIME_NONE ? json_null() : json_string(time_text(text, time_ns, 'T', "Z"));
}

static json_t *json_count(uint64_t count) {
    return json_integer((json_int_t)count);
}

static json_t *json_log(const struct log_summary *log) {
    static const char *const times[] = {"clf", "epoch", "none"};
    uint64_t unreadable = log->lines - log->readable;
    json_t *lines = json_array(), *left_out = json_array();

    for (size_t i = 0; i < log->left_out_runs && i < REPLAY_LEFT_OUT_MAX; i++) {
        const struct run *run = &log->left_out_run[i];
        json_array_append_new(
            left_out, json_pack("{s:o, s:o, s:o, s:o}", "line", json_count(run->line), "last_line",
                                json_count(run->last_line), "count", json_count(run->count), "time",
                                json_time(log, run->first_ns)));
    }
    for (size_t i = 0; i < unreadable && i < REPLAY_UNREADABLE_MAX; i++)
        json_array_append_new(lines,
                              json_pack("{s:o, s:s}", "line", json_count(log->unreadable[i].number),
                                        "why", log->unreadable[i].why));
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:o, s:o, s:o}", "file",
                     json_text(log->file, strlen(log->file)), "lines", json_count(log->lines),
                     "readable", json_count(log->readable), "unreadable", json_count(unreadable),
                     "unreadable_lines", lines, "left_out", json_count(log->left_out),
                     "left_out_lines", left_out, "time", times[log->time], "late",
                     json_count(log->late), "first_time", json_time(log, log->first_ns),
                     "last_time", json_time(log, log->last_ns));
}

static json_t *json_limit(const struct log_summary *log, const struct limit_result *limit) {
    json_t *top = json_array(), *over_time = json_array();

    for (size_t i = 0; i < limit->top_count; i++) {
        const struct refused_key *key = &limit->top[i];
        json_array_append_new(top, json_pack("{s:o, s:o, s:o}", "key",
                                             json_text(key->name.bytes, key->name.length),
                                             "refused", json_count(key->refused), "allowed",
                                             json_count(key->allowed)));
    }
    for (size_t i = 0; i < limit->bucket_count; i++)
        json_array_append_new(over_time,
                              json_pack("{s:o, s:o}", "start",
                                        json_time(log, log->first_ns + i * limit->bucket_ns),
                                        "refused", json_count(limit->buckets[i])));
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "notation",
                     json_text(limit->notation, strlen(limit->notation)), "name",
                     json_text(limit->name, strlen(limit->name)), "requests",
                     json_count(log->requests), "allowed", json_count(limit->allowed), "refused",
                     json_count(limit->refused), "keys_refused", json_count(limit->keys_refused),
                     "bans", json_count(limit->bans), "decisions_per_second",
                     json_count(decisions_per_second(limit)), "top", top, "over_time", over_time);
}

bool replay_print_json(FILE *out, const struct log_summary *log, const struct limit_result *limits,
                       size_t count) {
    json_t *fields = json_array(), *results = json_array();

    for (size_t i = 0; i < log->field_count; i++)
        json_array_append_new(fields, json_integer(log->fields[i]));
    for (size_t i = 0; i < count; i++)
        json_array_append_new(results, json_limit(log, &limits[i]));
    return put_json(
        out, must_have(json_pack("{s:o, s:o, s:o, s:o}", "log", json_log(log), "key_fields", fields,
                                 "distinct_keys", json_count(log->keys), "limits", results)));
}
