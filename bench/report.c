/* SPDX-License-Identifier: MIT */
#include "report.h"

#include <stint.h>

#include <string.h>
#include <time.h>

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

/* A time that does not outgrow 7 columns. */
static void format_ns(double ns, char *text, size_t size) {
    snprintf(text, size, ns < 100 ? "%.2f" : ns < 10000 ? "%.1f" : "%.0f", ns);
}

static void today(char *text, size_t size) {
    time_t now = time(NULL);
    struct tm utc;

    if (gmtime_r(&now, &utc) == NULL || strftime(text, size, "%Y-%m-%dT%H:%M:%SZ", &utc) == 0)
        text[0] = '\0';
}

/* ---- Table ---- */

static void table_start(struct report *report, const struct machine *machine, double seconds) {
    char date[32];

    today(date, sizeof(date));
    fprintf(report->out, "machine  %.60s, %u %s, %.1f GiB\n", machine->cpu, machine->cores,
            machine->cores == 1 ? "core" : "cores", (double)machine->memory / 0x1p30);
    fprintf(report->out, "         %.60s, huge pages: %s\n", machine->kernel, machine->huge_pages);
    fprintf(report->out, "build    stint %s, commit %.20s, %.50s\n", stint_version(), build_commit,
            build_compiler);
    fprintf(report->out, "         %.88s\n", build_flags);
    fprintf(report->out, "run      %s, %g s a row; ns are the median of the repeats\n\n", date,
            seconds);
    fprintf(report->out, "%-10s %-7s %6s %3s %4s %7s %7s %7s %8s  %-15s %7s %6s\n", "workload",
            "order", "keys", "thr", "load", "ns/op", "min", "max", "Mop/s", "floor", "ns", "ratio");
}

static void table_row(struct report *report, const struct row *row) {
    char keys[24], ns[16], min[16], max[16], floor_ns[16];

    format_count(row->keys, keys, sizeof(keys));
    fprintf(report->out, "%-10s %-7s %6s %3u %4.2g ", workloads[row->workload].name,
            distribution_names[row->distribution], keys, row->threads, row->load);
    if (!row->checked) {
        fprintf(report->out, "WRONG ANSWERS\n");
        return;
    }
    format_ns(row->ns_per_op, ns, sizeof(ns));
    format_ns(row->ns_min, min, sizeof(min));
    format_ns(row->ns_max, max, sizeof(max));
    format_ns(row->floor_ns, floor_ns, sizeof(floor_ns));
    fprintf(report->out, "%7s %7s %7s %8.2f  %-15s %7s %6.2f\n", ns, min, max, row->mops,
            floors[row->floor].name, floor_ns, row->ns_per_op / row->floor_ns);
    if (row->unplaced != 0)
        fprintf(report->out, "%-10s %llu of %llu keys unplaced\n", "",
                (unsigned long long)row->unplaced, (unsigned long long)row->keys);
}

static void table_end(struct report *report) {
    fputs("\nns/op: one decision on its thread. Mop/s: all threads together. ratio: ns/op to its "
          "floor:\n"
          "  clock+hash+xadd  reads the clock, hashes the key, one atomic add to a line of memory\n"
          "  hash+xadd        the same without the clock\n"
          "  xadd             nothing but the add, to lines that are known in advance\n"
          "  dependent load   one load from a line whose address needs the load before it\n"
          "  present key      take-at of keys that are there, in the same table\n"
          "  one alone        the same work by one thread while the others wait\n"
          "The first four go to as many lines as the table has, in the same order.\n",
          report->out);
    if (report->preempted > QUIET * report->rows)
        fprintf(report->out,
                "\nNOT QUIET: other work took the cores %llu times while this was measured.\n",
                (unsigned long long)report->preempted);
}

/* ---- JSON ---- */

static void json_text(FILE *out, const char *text) {
    json_string(out, text, strlen(text));
}

static void json_start(struct report *report, const struct machine *machine, double seconds) {
    FILE *out = report->out;
    char date[32];

    today(date, sizeof(date));
    fputs("{\n  \"machine\": {\"cpu\": ", out);
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

/* A number, or null: a row with wrong answers has none. */
static void json_number(FILE *out, const char *name, bool known, double value) {
    if (known)
        fprintf(out, ", \"%s\": %.6g", name, value);
    else
        fprintf(out, ", \"%s\": null", name);
}

static void json_row(struct report *report, const struct row *row) {
    FILE *out = report->out;
    bool good = row->checked;

    fprintf(out,
            "%s\n    {\"workload\": \"%s\", \"distribution\": \"%s\", \"keys\": %llu, "
            "\"threads\": %u, \"key_length\": %zu, \"load\": %g",
            report->rows == 0 ? "" : ",", workloads[row->workload].name,
            distribution_names[row->distribution], (unsigned long long)row->keys, row->threads,
            row->key_length, row->load);
    json_number(out, "ns_per_op", good, row->ns_per_op);
    json_number(out, "ns_min", good, row->ns_min);
    json_number(out, "ns_max", good, row->ns_max);
    json_number(out, "mops", good, row->mops);
    fprintf(out, ", \"floor\": \"%s\"", floors[row->floor].name);
    json_number(out, "floor_ns", good, row->floor_ns);
    json_number(out, "ratio", good, row->ns_per_op / row->floor_ns);
    fprintf(out,
            ", \"repeats\": %u, \"allowed\": %llu, \"refused\": %llu, \"unplaced\": %llu, "
            "\"preempted\": %llu, \"checked\": %s",
            row->repeats, (unsigned long long)row->allowed, (unsigned long long)row->refused,
            (unsigned long long)row->unplaced, (unsigned long long)row->preempted,
            good ? "true" : "false");
    if (!good) {
        fputs(", \"wrong\": ", out);
        json_text(out, row->wrong);
    }
    fputc('}', out);
}

/* ---- Either ---- */

void report_start(struct report *report, FILE *out, enum output_format format,
                  const struct machine *machine, double seconds) {
    *report = (struct report){.out = out, .format = format};
    (format == FORMAT_JSON ? json_start : table_start)(report, machine, seconds);
    fflush(out);
}

void report_row(struct report *report, const struct row *row) {
    (report->format == FORMAT_JSON ? json_row : table_row)(report, row);
    report->rows++;
    report->preempted += row->preempted;
    fflush(report->out);
}

void report_end(struct report *report) {
    if (report->format == FORMAT_JSON)
        fputs("\n  ]\n}\n", report->out);
    else
        table_end(report);
    fflush(report->out);
}
