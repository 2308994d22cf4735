/* SPDX-License-Identifier: MIT */
#include "advise.h"

#include <inttypes.h>
#include <string.h>

#include "common.h"

/* ---- The table ------------------------------------------------------------------------------ */

static double percent(uint64_t count, uint64_t of) {
    return of == 0 ? 0 : 100 * (double)count / (double)of;
}

static void print_peaks(FILE *out, const struct advice *advice) {
    char number[32];

    fprintf(out, "\nThe most requests that a client has sent within one\n%*s", 12, "");
    for (size_t i = 0; i < ADVISE_SHARES; i++)
        fprintf(out, "%14s", i == 0 ? "half of them" : advise_shares[i].name);
    fputc('\n', out);
    for (size_t i = 0; i < ADVISE_UNITS; i++) {
        if (!advice->units[i].judged)
            continue;
        fprintf(out, "  %-10s", advice->units[i].name);
        for (size_t share = 0; share < ADVISE_SHARES; share++)
            fprintf(out, "%14s", grouped(number, advice->units[i].peaks[share]));
        fputc('\n', out);
    }
}

static void print_tally(FILE *out, const struct advice *advice, struct tally tally) {
    char a[32], b[32];

    fprintf(out, "%11s %6.2f%%%11s %6.2f%%", grouped(a, tally.clients),
            percent(tally.clients, advice->requests.keys.count), grouped(b, tally.requests),
            percent(tally.requests, advice->requests.count));
}

static void print_limits(FILE *out, const struct advice *advice) {
    fprintf(out,
            "\nClients hit and requests refused, by a window such as 20/minute\n%*sand by a bucket "
            "such as 20/minute burst=20\n  %-16s%12s%18s%20s%18s\n",
            34, "", "limit", "clients", "requests", "clients", "requests");
    for (size_t i = 0; i < ADVISE_UNITS; i++) {
        const struct advise_unit *unit = &advice->units[i];
        for (size_t row = 0; row < unit->row_count; row++) {
            char limit[40];
            snprintf(limit, sizeof(limit), "%" PRIu64 "/%s", unit->rows[row].limit, unit->name);
            fprintf(out, "  %-12s", limit);
            print_tally(out, advice, unit->rows[row].window);
            fputs("  ", out);
            print_tally(out, advice, unit->rows[row].bucket);
            fputc('\n', out);
        }
    }
}

static void print_lines(FILE *out, const struct advice *advice) {
    char a[32], b[48], line[ADVISE_NOTATION];

    fputs("\nTo copy into a file for stint apply: they hit at most 1 of 1,000 clients, and refuse\n"
          "nothing until you take `shadow` away\n",
          out);
    for (size_t i = 0; i < ADVISE_UNITS; i++) {
        const struct advise_unit *unit = &advice->units[i];
        const struct tally tally = unit->suggested.tally;
        if (!unit->judged)
            continue;
        snprintf(line, sizeof(line), "%.40s shadow", unit->suggested.notation);
        fprintf(out, "  %-32s # ", line);
        if (tally.clients == 0)
            fputs("hits nobody\n", out);
        else
            fprintf(out, "hits %s of %s, %s\n", grouped(a, tally.clients),
                    counted(line, advice->requests.keys.count, "client"),
                    counted(b, tally.requests, "request"));
    }
}

static void print_notes(FILE *out, const struct advice *advice) {
    const struct requests *requests = &advice->requests;
    char span[40];
    const char *unit = NULL;

    for (size_t i = ADVISE_UNITS; i-- > 0;)
        if (!advice->units[i].judged)
            unit = advice->units[i].name;
    if (requests->keys.count < 1000)
        fprintf(out, "\n%s\n", ADVISE_FEW);
    if (unit != NULL)
        fprintf(out, "\nThe logs cover %s, too little to advise a limit of a%s %s or more.\n",
                span_text(span, requests->last_ns - requests->first_ns), unit[0] == 'h' ? "n" : "",
                unit);
}

bool advise_print_table(FILE *out, const struct advice *advice) {
    requests_print(out, &advice->requests);
    print_peaks(out, advice);
    print_limits(out, advice);
    print_lines(out, advice);
    print_notes(out, advice);
    return !ferror(out);
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static json_t *json_count(uint64_t count) {
    return json_integer((json_int_t)count);
}

static json_t *json_tally(struct tally tally) {
    return json_pack("{s:o, s:o}", "clients", json_count(tally.clients), "requests",
                     json_count(tally.requests));
}

static json_t *json_limit(const struct advice *advice, const struct advise_limit *limit) {
    json_t *over_time = json_array();

    for (size_t i = 0; i < advice->step_count; i++)
        json_array_append_new(
            over_time, json_pack("{s:o, s:o}", "start",
                                 requests_json_time(&advice->requests, advice->requests.first_ns +
                                                                           i * advice->step_ns),
                                 "refused", json_count(limit->steps[i])));
    return json_pack("{s:s, s:o, s:o}", "notation", limit->notation, "refused",
                     json_tally(limit->tally), "over_time", over_time);
}

static json_t *json_top(const struct advice *advice, const struct advise_unit *unit) {
    json_t *top = json_array();

    for (size_t i = 0; i < unit->top_count; i++) {
        const struct advise_client *client = &unit->top[i];
        struct text name = log_key_name(&advice->requests.keys, client->key);
        json_array_append_new(
            top, json_pack("{s:o, s:o, s:o, s:o, s:o}", "key", json_text(name.bytes, name.length),
                           "peak", json_count(client->peak), "requests",
                           json_count(client->requests), "refused", json_count(client->refused),
                           "refused_strictly", json_count(client->refused_strictly)));
    }
    return top;
}

static json_t *json_unit(const struct advice *advice, const struct advise_unit *unit) {
    json_t *peaks = json_object(), *limits = json_array();

    for (size_t i = 0; i < ADVISE_SHARES; i++)
        json_object_set_new(peaks, advise_shares[i].name, json_count(unit->peaks[i]));
    for (size_t i = 0; i < unit->row_count; i++)
        json_array_append_new(limits,
                              json_pack("{s:o, s:o, s:o}", "limit", json_count(unit->rows[i].limit),
                                        "window", json_tally(unit->rows[i].window), "bucket",
                                        json_tally(unit->rows[i].bucket)));
    json_t *object = json_pack("{s:s, s:b, s:o, s:o}", "unit", unit->name, "judged", unit->judged,
                               "peaks", peaks, "limits", limits);
    if (unit->judged) {
        json_object_set_new(object, "suggested", json_limit(advice, &unit->suggested));
        json_object_set_new(object, "strict", json_limit(advice, &unit->strict));
        json_object_set_new(object, "top", json_top(advice, unit));
    }
    return object;
}

bool advise_print_json(FILE *out, const struct advice *advice) {
    json_t *units = json_array();

    for (size_t i = 0; i < ADVISE_UNITS; i++)
        json_array_append_new(units, json_unit(advice, &advice->units[i]));
    return put_json(out, must_have(json_pack("{s:o, s:o}", "log", requests_json(&advice->requests),
                                             "units", units)));
}
