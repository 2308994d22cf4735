/* SPDX-License-Identifier: MIT */
#include "report.h"

#include <stint.h>

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "team.h"
#include "ticks.h"

enum { QUIET = 10 }; /* preemptions a row, about one second, that a machine with no work shows */

void format_count(uint64_t count, char *text, size_t size) {
    static const struct {
        uint64_t scale;
        const char *letter;
    } units[] = {{1000000000, "G"}, {1000000, "M"}, {1000, "k"}, {1, ""}};

    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
        if (count % units[i].scale == 0 && count >= units[i].scale) {
            snprintf(text, size, "%llu%s", (unsigned long long)(count / units[i].scale),
                     units[i].letter);
            return;
        }
    snprintf(text, size, "0");
}

void format_ns(double ns, char *text, size_t size) {
    snprintf(text, size, ns < 100 ? "%.2f" : ns < 10000 ? "%.1f" : "%.0f", ns);
}

static void today(char *text, size_t size) {
    time_t now = time(NULL);
    struct tm utc;

    if (gmtime_r(&now, &utc) == NULL || strftime(text, size, "%Y-%m-%dT%H:%M:%SZ", &utc) == 0)
        text[0] = '\0';
}

/* ---- Machine and build ---- */

static void table_start(FILE *out, const struct machine *machine, double seconds) {
    char date[32];

    today(date, sizeof(date));
    fprintf(out, "machine  %.60s, %u %s, %.1f GiB\n", machine->cpu, machine->cores,
            machine->cores == 1 ? "core" : "cores", (double)machine->memory / 0x1p30);
    fprintf(out, "         %.60s, huge pages: %s\n", machine->kernel, machine->huge_pages);
    fprintf(out, "build    stint %s, commit %.20s, %.50s\n", stint_version(), build_commit,
            build_compiler);
    fprintf(out, "         %.88s\n", build_flags);
    fprintf(out, "run      %s, ", date);
    if (seconds > 0) /* none: nothing is timed */
        fprintf(out, "%g s a row; ", seconds);
}

static void json_text(FILE *out, const char *text) {
    put_json_string(out, text, strlen(text));
}

static void json_start(FILE *out, const struct machine *machine, double seconds,
                       const char *command) {
    char date[32];

    today(date, sizeof(date));
    fprintf(out, "{\n  \"command\": \"%s\",\n  \"machine\": {\"cpu\": ", command);
    json_text(out, machine->cpu);
    fprintf(out,
            ", \"cores\": %u, \"memory\": %llu, \"cache\": %llu, \"huge_pages\": ", machine->cores,
            (unsigned long long)machine->memory, (unsigned long long)machine->cache);
    json_text(out, machine->huge_pages);
    fputs(", \"kernel\": ", out);
    json_text(out, machine->kernel);
    fputs("},\n  \"build\": {\"version\": ", out);
    json_text(out, stint_version());
    fputs(", \"commit\": ", out);
    json_text(out, build_commit);
    fputs(", \"compiler\": ", out);
    json_text(out, build_compiler);
    fputs(", \"flags\": ", out);
    json_text(out, build_flags);
    fprintf(out, "},\n  \"date\": \"%s\",\n  \"seconds\": %g,\n  \"rows\": [", date, seconds);
}

/* ---- Rows, as a table ---- */

static void rows_head(FILE *out, double seconds) {
    (void)seconds;
    fputs("ns are the median of the repeats\n\n", out);
    fprintf(out, "%-10s %-7s %6s %3s %4s %7s %7s %7s %8s  %-15s %7s %6s\n", "workload", "order",
            "keys", "thr", "load", "ns/op", "min", "max", "Mop/s", "floor", "ns", "ratio");
}

static void rows_numbers(FILE *out, const struct row *row) {
    char ns[16], min[16], max[16], floor_ns[16];

    if (!row->checked) {
        fprintf(out, "WRONG ANSWERS\n");
        return;
    }
    format_ns(row->ns_per_op, ns, sizeof(ns));
    format_ns(row->ns_min, min, sizeof(min));
    format_ns(row->ns_max, max, sizeof(max));
    format_ns(row->floor_ns, floor_ns, sizeof(floor_ns));
    fprintf(out, "%7s %7s %7s %8.2f  %-15s %7s %6.2f\n", ns, min, max, row->mops,
            floors[row->floor].name, floor_ns, row->ns_per_op / row->floor_ns);
}

static const char *locked_name(const struct row *row) {
    return floors[workloads[row->workload].path->locked].name;
}

static void rows_table(FILE *out, const void *item) {
    const struct row *row = item;
    char keys[24];

    format_count(row->keys, keys, sizeof(keys));
    fprintf(out, "%-10s %-7s %6s %3u %4.2g ", workloads[row->workload].name,
            distribution_names[row->distribution], keys, row->threads, row->load);
    rows_numbers(out, row);
    if (row->checked && row->unplaced != 0)
        fprintf(out, "%-10s %llu of %llu keys unplaced\n", "", (unsigned long long)row->unplaced,
                (unsigned long long)row->keys);
    if (row->checked && workloads[row->workload].new_keys)
        fprintf(out, "%-10s the farthest claim is %llu lines from home\n", "",
                (unsigned long long)row->reach);
    if (row->checked && row_goal(row) != 0)
        fprintf(out, "%62s %-6s %4g  %-15s %7.2f %6.2f\n", "goal",
                row_reached(row) ? "met" : "MISSED", row_goal(row), locked_name(row),
                row->locked_ns, row->ns_per_op / row->locked_ns);
}

static void rows_foot(FILE *out) {
    fputs("\nns/op: one decision on its thread. Mop/s: all threads together. ratio: ns/op to its "
          "floor:\n"
          "  clock+hash+xadd  reads the clock, hashes the key, one atomic add to a line of memory\n"
          "  hash+xadd        the same without the clock\n"
          "  xadd             nothing but the add, to lines that are known in advance\n"
          "  dependent load   one load from a line whose address needs the load before it\n"
          "  present key      take-at of keys that are there, in the same table\n"
          "  one alone        the same work by one thread while the others wait\n"
          "The first four go to as many lines as the table has, in the same order. A repeat's ns "
          "are\n"
          "the median of its stretches of 512; work and floor have 16 of them by turns.\n"
          "Other kinds of decisions stand beside a plain take (as many takes, batches of 64) of "
          "the same\n"
          "keys in a table of its own, by turns. Their second line has their goal, and the floor "
          "that\n"
          "does the same locked operations: who is within 15% of it has met the goal, too. The "
          "fastest\n"
          "repeat counts; of up to 1k keys each has tables of its own.\n",
          out);
}

/* ---- Series: what one thing costs as it grows ---- */

static void series_value(const struct row *row, char *text, size_t size) {
    if (strcmp(row->series, "load") == 0)
        snprintf(text, size, "%.0f%%", row->load * 100);
    else if (strcmp(row->series, "threads") == 0)
        snprintf(text, size, "%u", row->threads);
    else if (strcmp(row->series, "key-length") == 0)
        snprintf(text, size, "%zu", row->key_length);
    else if (strcmp(row->series, "policies") == 0)
        snprintf(text, size, "%u", row->policies);
    else if (strcmp(row->series, "refused") == 0)
        snprintf(text, size, "%.0f%%", row->refused_part * 100);
    else
        format_count(row->keys, text, size);
}

static void series_head(FILE *out, double seconds) {
    (void)seconds;
    fputs("ns are the median of the repeats\n\n", out);
    fprintf(out, "%-10s %5s %-10s %-7s %7s %7s %7s %8s  %-15s %7s %6s\n", "as grows", "to",
            "workload", "order", "ns/op", "min", "max", "Mop/s", "floor", "ns", "ratio");
}

static void series_table(FILE *out, const void *item) {
    const struct row *row = item;
    char value[24], keys[24];

    series_value(row, value, sizeof(value));
    fprintf(out, "%-10s %5s %-10s %-7s ", row->series, value, workloads[row->workload].name,
            row->stripes > 1 ? "striped" : distribution_names[row->distribution]);
    rows_numbers(out, row);
    format_count(row->keys, keys, sizeof(keys));
    if (row->checked && (row->unplaced != 0 || strcmp(row->series, "load") == 0))
        fprintf(out, "%-10s %5s %llu of %s keys unplaced\n", "", "",
                (unsigned long long)row->unplaced, keys);
}

/* ---- Tails ---- */

static void tails_head(FILE *out, double seconds) {
    (void)seconds;
    fprintf(out, "ns of each call, of all repeats\n");
    fprintf(out,
            "timer    %s%s, in steps of %.1f ns; an empty section takes %.1f ns, which is "
            "subtracted\n\n",
            ticks_name(), ticks.tsc ? "" : " (no steady TSC here)", ticks.step_ns,
            ticks.overhead_ns);
    fprintf(out, "%-10s %-7s %6s %3s %-6s", "workload", "order", "keys", "thr", "timed");
    for (unsigned i = 0; i < TAIL_POINTS; i++)
        fprintf(out, " %8s", tail_names[i]);
    fprintf(out, " %9s\n", "calls");
}

static void tails_line(FILE *out, const struct tail *tail) {
    for (unsigned i = 0; i < TAIL_POINTS; i++)
        fprintf(out, " %8llu", (unsigned long long)tail->ns[i]);
}

static void tails_table(FILE *out, const void *item) {
    const struct row *row = item;
    char keys[24];

    format_count(row->keys, keys, sizeof(keys));
    fprintf(out, "%-10s %-7s %6s %3u ", workloads[row->workload].name,
            distribution_names[row->distribution], keys, row->threads);
    if (!row->checked) {
        fprintf(out, "WRONG ANSWERS\n");
        return;
    }
    fprintf(out, "%-6s", "call");
    tails_line(out, &row->call);
    fprintf(out, " %9llu\n%-29s %-6s", (unsigned long long)row->calls, "", "empty");
    tails_line(out, &row->empty);
    fputc('\n', out);
}

static void tails_foot(FILE *out) {
    fputs(
        "\ncall: hashing the key and deciding, by itself: fences keep other work from overlapping "
        "it.\nempty: a section with nothing in it after each call. What the two share is the "
        "machine's noise.\n",
        out);
}

/* ---- JSON ---- */

void put_json_real(FILE *out, const char *name, bool known, double value) {
    if (known)
        fprintf(out, ", \"%s\": %.6g", name, value);
    else
        fprintf(out, ", \"%s\": null", name);
}

static void json_asked(FILE *out, const struct row *row) {
    fputc('{', out);
    if (row->series != NULL)
        fprintf(out, "\"series\": \"%s\", ", row->series);
    fprintf(out,
            "\"workload\": \"%s\", \"distribution\": \"%s\", \"keys\": %llu, \"threads\": %u, "
            "\"key_length\": %zu, \"load\": %g, \"policies\": %u, \"stripes\": %u, "
            "\"refused_part\": %g, \"latency\": %s",
            workloads[row->workload].name, distribution_names[row->distribution],
            (unsigned long long)row->keys, row->threads, row->key_length, row->load, row->policies,
            row->stripes > 1 ? row->stripes : 1,
            workloads[row->workload].used_up ? 1 : row->refused_part,
            row->latency ? "true" : "false");
}

static void json_counts(FILE *out, const struct row *row) {
    fprintf(out,
            ", \"repeats\": %u, \"allowed\": %llu, \"refused\": %llu, \"unplaced\": %llu, "
            "\"reach\": %llu, \"preempted\": %llu, \"checked\": %s",
            row->repeats, (unsigned long long)row->allowed, (unsigned long long)row->refused,
            (unsigned long long)row->unplaced, (unsigned long long)row->reach,
            (unsigned long long)row->preempted, row->checked ? "true" : "false");
    if (!row->checked) {
        fputs(", \"wrong\": ", out);
        json_text(out, row->wrong);
    }
    fputc('}', out);
}

static void rows_json(FILE *out, const void *item) {
    const struct row *row = item;
    bool good = row->checked;

    json_asked(out, row);
    put_json_real(out, "ns_per_op", good, row->ns_per_op);
    put_json_real(out, "ns_min", good, row->ns_min);
    put_json_real(out, "ns_max", good, row->ns_max);
    put_json_real(out, "mops", good, row->mops);
    fprintf(out, ", \"floor\": \"%s\"", floors[row->floor].name);
    put_json_real(out, "floor_ns", good, row->floor_ns);
    put_json_real(out, "ratio", good, row->ns_per_op / row->floor_ns);
    put_json_real(out, "ratio_min", good, row->ratio_min);
    put_json_real(out, "ratio_max", good, row->ratio_max);
    if (row_goal(row) != 0) {
        fprintf(out, ", \"goal\": %g, \"locked\": \"%s\"", row_goal(row), locked_name(row));
        put_json_real(out, "locked_ns", good, row->locked_ns);
        fprintf(out, ", \"reached\": %s", good && row_reached(row) ? "true" : "false");
    }
    json_counts(out, row);
}

static void tails_json(FILE *out, const void *item) {
    const struct row *row = item;

    json_asked(out, row);
    if (row->checked) {
        tail_put_json(out, "call", &row->call);
        tail_put_json(out, "empty", &row->empty);
    }
    fprintf(out, ", \"calls\": %llu, \"timer\": \"%s\", \"overhead_ns\": %.4g, \"step_ns\": %.4g",
            (unsigned long long)row->calls, ticks_name(), ticks.overhead_ns, ticks.step_ns);
    json_counts(out, row);
}

/* ---- Either ---- */

static const struct report_format formats[] = {
    [REPORT_ROWS] = {rows_head, rows_table, rows_json, rows_foot},
    [REPORT_TAILS] = {tails_head, tails_table, tails_json, tails_foot},
    [REPORT_SERIES] = {series_head, series_table, rows_json, rows_foot},
};

void report_start_other(struct report *report, const struct report_format *format,
                        struct output *output, const struct machine *machine, double seconds) {
    *report = (struct report){.output = output, .format = *format};
    if (output->plot != NULL || output->compare != NULL) {
        report->copy = must_have(open_memstream(&report->copy_text, &report->copy_size));
        json_start(report->copy, machine, seconds, output->command);
    }
    if (output->format == FORMAT_JSON) {
        json_start(stdout, machine, seconds, output->command);
    } else {
        table_start(stdout, machine, seconds);
        format->head(stdout, seconds);
    }
    fflush(stdout);
}

void report_start(struct report *report, enum report_kind kind, struct output *output,
                  const struct machine *machine, double seconds) {
    if (kind == REPORT_TAILS)
        ticks_open();
    report_start_other(report, &formats[kind], output, machine, seconds);
}

static void put_json(struct report *report, FILE *out, const void *row) {
    fprintf(out, "%s\n    ", report->rows == 0 ? "" : ",");
    report->format.json(out, row);
}

void report_other(struct report *report, const void *row) {
    if (report->copy != NULL)
        put_json(report, report->copy, row);
    if (report->output->format == FORMAT_JSON)
        put_json(report, stdout, row);
    else
        report->format.table(stdout, row);
    report->rows++;
    fflush(stdout);
}

void report_row(struct report *report, const struct row *row) {
    report->preempted += row->preempted;
    report_other(report, row);
}

/* What is done with the whole result. Returns an exit code. */
static int use_copy(struct report *report) {
    struct output *output = report->output;
    int result = EXIT_GOOD;

    fputs("\n  ]\n}\n", report->copy);
    fclose(report->copy);
    json_t *json = json_loadb(report->copy_text, report->copy_size, 0, NULL);
    if (json != NULL && output->compare != NULL) {
        if (output->format == FORMAT_JSON)
            fputs(",\n  \"compare\": ", stdout);
        compare_results(stdout, output->format, output->compare, output->old, json);
    }
    if (json != NULL && output->plot != NULL)
        result = plot_result(json, output->plot);
    json_decref(json);
    free(report->copy_text);
    return json == NULL ? EXIT_FAILED : result;
}

int report_end(struct report *report) {
    int result = EXIT_GOOD;

    if (report->output->format == FORMAT_JSON)
        fputs("\n  ]", stdout);
    else
        report->format.foot(stdout);
    if (report->output->format != FORMAT_JSON && report->preempted > QUIET * report->rows)
        printf("\nNOT QUIET: other work took the cores %llu times while this was measured.\n",
               (unsigned long long)report->preempted);
    if (report->copy != NULL)
        result = use_copy(report);
    if (report->output->format == FORMAT_JSON)
        fputs("\n}\n", stdout);
    fflush(stdout);
    return ferror(stdout) ? EXIT_FAILED : result;
}
