/* SPDX-License-Identifier: MIT
 * One result beside an earlier one of the same subcommand. Rows are paired by what was asked, as
 * far as both say it, so that results of older versions can be read; a row that has no partner is
 * only counted. */
#include "output.h"

#include <stdlib.h>
#include <string.h>

#include "tail.h"

/* What rows are paired by. */
static const char *const asked[] = {
    "series",  "workload",     "distribution", "peer",       "point", "goal",
    "rate",    "keys",         "threads",      "key_length", "load",  "policies",
    "stripes", "refused_part", "latency",      "limits",
};

struct value {
    double value, min, max;
};

struct tallied {
    FILE *out;
    enum output_format format;
    unsigned pairs, faster, slower, only_old, only_new;
};

static bool same_row(const json_t *a, const json_t *b) {
    for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
        const json_t *x = json_object_get(a, asked[i]), *y = json_object_get(b, asked[i]);
        if (x == NULL || y == NULL)
            continue;
        if (json_is_number(x) && json_is_number(y) ? json_number_value(x) != json_number_value(y)
                                                   : !json_equal(x, y))
            return false;
    }
    return true;
}

static const json_t *find_row(const json_t *rows, const json_t *like) {
    for (size_t i = 0; i < json_array_size(rows); i++)
        if (same_row(json_array_get(rows, i), like))
            return json_array_get(rows, i);
    return NULL;
}

/* "take uniform 1000 keys threads=2": what is usual is left out. */
static void name_row(const json_t *row, char *text, size_t size) {
    size_t at = 0;

    text[0] = '\0';
    for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
        const json_t *value = json_object_get(row, asked[i]);
        int n = 0;
        if (json_is_string(value))
            n = snprintf(text + at, size - at, "%s%s", at == 0 ? "" : " ",
                         json_string_value(value));
        else if (json_is_number(value) && strcmp(asked[i], "keys") == 0)
            n = snprintf(text + at, size - at, " %.0f keys", json_number_value(value));
        else if (json_is_number(value) && strcmp(asked[i], "rate") == 0)
            n = snprintf(text + at, size - at, " %.0f/s", json_number_value(value));
        else if (json_is_number(value) && strcmp(asked[i], "point") == 0)
            n = snprintf(text + at, size - at, "%.0f", json_number_value(value));
        else if (json_is_number(value)) {
            double usual = strcmp(asked[i], "load") == 0           ? 0.5
                           : strcmp(asked[i], "key_length") == 0   ? 16
                           : strcmp(asked[i], "refused_part") == 0 ? 0
                                                                   : 1;
            if (json_number_value(value) != usual)
                n = snprintf(text + at, size - at, " %s=%g", asked[i], json_number_value(value));
        }
        if (n > 0)
            at = at + (size_t)n < size ? at + (size_t)n : size - 1;
    }
}

static bool read_value(const json_t *object, const char *value, const char *min, const char *max,
                       struct value *read) {
    const json_t *v = json_object_get(object, value), *low = json_object_get(object, min),
                 *high = json_object_get(object, max);

    if (!json_is_number(v))
        return false;
    read->value = json_number_value(v);
    read->min = json_is_number(low) ? json_number_value(low) : read->value;
    read->max = json_is_number(high) ? json_number_value(high) : read->value;
    return true;
}

static void compare_values(struct tallied *tallied, const char *name, const char *what,
                           struct value old, struct value new, bool higher) {
    FILE *out = tallied->out;
    bool less = new.max<old.min, more = new.min> old.max;
    bool faster = higher ? more : less, slower = higher ? less : more;
    const char *change = faster ? "faster" : slower ? "slower" : "same";

    if (tallied->format == FORMAT_JSON) {
        fprintf(out, "%s\n      {\"row\": ", tallied->pairs == 0 ? "" : ",");
        put_json_string(out, name, strlen(name));
        fprintf(out,
                ", \"what\": \"%s\", \"old\": {\"value\": %.6g, \"min\": %.6g, \"max\": %.6g}, "
                "\"new\": {\"value\": %.6g, \"min\": %.6g, \"max\": %.6g}, \"ratio\": ",
                what, old.value, old.min, old.max, new.value, new.min, new.max);
        if (old.value != 0)
            fprintf(out, "%.6g", new.value / old.value);
        else
            fputs("null", out);
        fprintf(out, ", \"change\": \"%s\"}", change);
    } else {
        fprintf(out, "%-44.44s %-11s ", name, what);
        fprintf(out, "%8.4g [%.4g, %.4g] ", old.value, old.min, old.max);
        fprintf(out, "%8.4g [%.4g, %.4g]", new.value, new.min, new.max);
        if (old.value != 0)
            fprintf(out, " %6.2f", new.value / old.value);
        fprintf(out, "%s\n", faster || slower ? (faster ? "  FASTER" : "  SLOWER") : "");
    }
    tallied->pairs++;
    tallied->faster += faster;
    tallied->slower += slower;
}

static void compare_tails(struct tallied *tallied, const char *name, const char *tail,
                          const json_t *old, const json_t *new) {
    const json_t *a = json_object_get(old, tail), *b = json_object_get(new, tail);
    struct value then, now;
    char what[16];

    for (unsigned i = 0; i < TAIL_POINTS; i++) {
        snprintf(what, sizeof(what), "%s %s", tail, tail_names[i]);
        if (read_value(json_object_get(a, tail_names[i]), "ns", "min", "max", &then) &&
            read_value(json_object_get(b, tail_names[i]), "ns", "min", "max", &now))
            compare_values(tallied, name, what, then, now, false);
    }
}

static void compare_rows(struct tallied *tallied, const json_t *old, const json_t *new) {
    const char *better = json_string_value(json_object_get(new, "better"));
    struct value a, b;
    char name[160];

    name_row(new, name, sizeof(name));
    if (read_value(old, "ns_per_op", "ns_min", "ns_max", &a) &&
        read_value(new, "ns_per_op", "ns_min", "ns_max", &b))
        compare_values(tallied, name, "ns_per_op", a, b, false);
    if (read_value(old, "measured", "measured_min", "measured_max", &a) &&
        read_value(new, "measured", "measured_min", "measured_max", &b))
        compare_values(tallied, name, "measured", a, b,
                       better != NULL && strcmp(better, "higher") == 0);
    compare_tails(tallied, name, "call", old, new);
    compare_tails(tallied, name, "late", old, new);
}

static const char *text_of(const json_t *result, const char *object, const char *name) {
    const json_t *from = object == NULL ? result : json_object_get(result, object);
    const char *text = json_string_value(json_object_get(from, name));
    return text == NULL ? "unknown" : text;
}

void compare_results(FILE *out, enum output_format format, const char *old_path, const json_t *old,
                     const json_t *result) {
    struct tallied tallied = {.out = out, .format = format};
    bool same_machine =
        json_equal(json_object_get(old, "machine"), json_object_get(result, "machine")) == 1;
    const char *date = text_of(old, NULL, "date"), *commit = text_of(old, "build", "commit");

    if (format == FORMAT_JSON) {
        fputs("{\"old\": ", out);
        put_json_string(out, old_path, strlen(old_path));
        fputs(", \"date\": ", out);
        put_json_string(out, date, strlen(date));
        fputs(", \"commit\": ", out);
        put_json_string(out, commit, strlen(commit));
        fprintf(out, ", \"same_machine\": %s, \"pairs\": [", same_machine ? "true" : "false");
    } else {
        fprintf(out, "\nCompared with %s, %s, commit %s%s:\n", old_path, date, commit,
                same_machine ? "" : " (ANOTHER MACHINE)");
        fprintf(out, "%-44s %-11s %8s [min, max] %8s [min, max]  ratio\n", "row", "what", "old",
                "new");
    }
    const json_t *olds = json_object_get(old, "rows"), *news = json_object_get(result, "rows");
    for (size_t at = 0; at < json_array_size(news); at++) {
        const json_t *new = json_array_get(news, at), *pair = find_row(olds, new);
        if (pair == NULL)
            tallied.only_new++;
        else
            compare_rows(&tallied, pair, new);
    }
    for (size_t at = 0; at < json_array_size(olds); at++)
        tallied.only_old += find_row(news, json_array_get(olds, at)) == NULL;
    if (format == FORMAT_JSON)
        fprintf(out, "\n    ], \"faster\": %u, \"slower\": %u, \"only_old\": %u, \"only_new\": %u}",
                tallied.faster, tallied.slower, tallied.only_old, tallied.only_new);
    else
        fprintf(out,
                "%u faster, %u slower, %u within the noise (their ranges overlap); %u rows only "
                "then, %u only now\n",
                tallied.faster, tallied.slower, tallied.pairs - tallied.faster - tallied.slower,
                tallied.only_old, tallied.only_new);
}
