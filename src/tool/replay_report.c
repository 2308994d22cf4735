/* SPDX-License-Identifier: MIT */
#include "replay.h"

#include <inttypes.h>
#include <string.h>

#include "common.h"

enum { COLUMNS = REPORT_COLUMNS, LABEL = REPORT_LABEL };

static uint64_t decisions_per_second(const struct limit_result *limit) {
    double seconds = limit->elapsed_ns == 0 ? 1e-9 : (double)limit->elapsed_ns / 1e9;
    return (uint64_t)((double)(limit->allowed + limit->refused) / seconds);
}

/* ---- The table ------------------------------------------------------------------------------ */

static void print_count(FILE *out, const char *label, uint64_t count, uint64_t of) {
    char number[32];
    fprintf(out, "  %-*s%14s %8.2f%%\n", LABEL, label, grouped(number, count),
            of == 0 ? 0 : 100 * (double)count / (double)of);
}

static void print_over_time(FILE *out, const struct requests *requests,
                            const struct limit_result *limit) {
    static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    enum { LEVELS = sizeof(blocks) / sizeof(blocks[0]) - 1 };
    char a[40], b[40];
    size_t peak = 0;

    if (limit->step_count == 0)
        return;
    for (size_t i = 1; i < limit->step_count; i++)
        if (limit->steps[i] > limit->steps[peak])
            peak = i;
    uint64_t most = limit->steps[peak];
    fprintf(out, "\n  Refused over time, in steps of %s; peak %s", span_text(a, limit->step_ns),
            grouped(b, most));
    fprintf(out, " at %s\n  │", time_text(a, requests->first_ns + peak * limit->step_ns, ' ', ""));
    for (size_t column = 0; column < REPLAY_STEPS_MAX; column++) {
        /* Fewer buckets than columns are drawn wide, so that the line always spans the log. */
        uint64_t refused = limit->steps[column * limit->step_count / REPLAY_STEPS_MAX];
        /* Rounded up: one refusal is seen, however high the peak. */
        size_t level = (size_t)(((double)refused * LEVELS + (double)most - 1) / (double)most);
        fputs(blocks[level > LEVELS ? LEVELS : level], out);
    }
    time_text(a, requests->first_ns, ' ', "");
    fprintf(out, "│\n  %s%*s\n", a, REPLAY_STEPS_MAX + 2 - (int)strlen(a),
            time_text(b, requests->last_ns, ' ', ""));
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

static void print_limit(FILE *out, const struct requests *requests,
                        const struct limit_result *limit) {
    char a[40], text[COLUMNS];

    fprintf(out, "\n%s\n", printable(text, COLUMNS, limit->notation, strlen(limit->notation)));
    print_count(out, "Requests", requests->count, requests->count);
    print_count(out, "Allowed", limit->allowed, requests->count);
    print_count(out, "Refused", limit->refused, requests->count);
    print_count(out, "Keys refused", limit->keys_refused, requests->keys.count);
    if (limit->banning)
        fprintf(out, "  %-*s%14s\n", LABEL, "Bans", grouped(a, limit->bans));
    fprintf(out, "  %-*s%14s decisions per second\n", LABEL, "Speed",
            grouped(a, decisions_per_second(limit)));
    if (limit->refused == 0)
        return;
    print_over_time(out, requests, limit);
    print_top(out, limit);
}

bool replay_print_table(FILE *out, const struct requests *requests,
                        const struct limit_result *limits, size_t count) {
    requests_print(out, requests);
    for (size_t i = 0; i < count; i++)
        print_limit(out, requests, &limits[i]);
    return !ferror(out);
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static json_t *json_count(uint64_t count) {
    return json_integer((json_int_t)count);
}

static json_t *json_limit(const struct requests *requests, const struct limit_result *limit) {
    json_t *top = json_array(), *over_time = json_array();

    for (size_t i = 0; i < limit->top_count; i++) {
        const struct refused_key *key = &limit->top[i];
        json_array_append_new(top, json_pack("{s:o, s:o, s:o}", "key",
                                             json_text(key->name.bytes, key->name.length),
                                             "refused", json_count(key->refused), "allowed",
                                             json_count(key->allowed)));
    }
    for (size_t i = 0; i < limit->step_count; i++)
        json_array_append_new(
            over_time,
            json_pack("{s:o, s:o}", "start",
                      requests_json_time(requests, requests->first_ns + i * limit->step_ns),
                      "refused", json_count(limit->steps[i])));
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "notation",
                     json_text(limit->notation, strlen(limit->notation)), "name",
                     json_text(limit->name, strlen(limit->name)), "requests",
                     json_count(requests->count), "allowed", json_count(limit->allowed), "refused",
                     json_count(limit->refused), "keys_refused", json_count(limit->keys_refused),
                     "bans", json_count(limit->bans), "decisions_per_second",
                     json_count(decisions_per_second(limit)), "top", top, "over_time", over_time);
}

bool replay_print_json(FILE *out, const struct requests *requests,
                       const struct limit_result *limits, size_t count) {
    json_t *results = json_array();

    for (size_t i = 0; i < count; i++)
        json_array_append_new(results, json_limit(requests, &limits[i]));
    return put_json(
        out, must_have(json_pack("{s:o, s:o}", "log", requests_json(requests), "limits", results)));
}
