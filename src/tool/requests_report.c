/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "common.h"
#include "log_time.h"
#include "requests.h"

const char *requests_path(const char *path) {
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

void requests_print_unreadable(FILE *out, const struct requests *requests, int indent) {
    uint64_t unreadable = requests->lines - requests->count;
    char number[32], path[64];

    for (size_t i = 0; i < unreadable && i < UNREADABLE_MAX; i++) {
        const struct unreadable_line *line = &requests->unreadable[i];
        fprintf(out, "%*s", indent, "");
        if (requests->options->file_count > 1)
            fprintf(out, "%s ", printable(path, sizeof(path), line->path, strlen(line->path)));
        fprintf(out, "line %s: %s\n", grouped(number, line->number), line->why);
    }
    if (unreadable > UNREADABLE_MAX)
        fprintf(out, "%*sand %s more\n", indent, "", grouped(number, unreadable - UNREADABLE_MAX));
}

static void print_files(FILE *out, const struct requests *requests) {
    char path[REPORT_COLUMNS - 40];

    for (size_t i = 0; i < requests->options->file_count; i++) {
        const struct log_file *file = &requests->files[i];
        const char *name = requests_path(file->path);
        fprintf(out, "%-*s%s: %s", REPORT_LABEL, i == 0 ? "Log" : "",
                printable(path, sizeof(path), name, strlen(name)), file->form.name);
        if (file->form.kind == LOG_JSON)
            fprintf(out, ", time %s", file->form.time_name);
        if (file->form.kind == LOG_HAPROXY)
            fputs(", no zone, taken for UTC", out);
        fputc('\n', out);
    }
}

static void print_keys(FILE *out, const struct requests *requests) {
    const struct log_options *options = requests->options;
    const struct log_file *file = &requests->files[0];
    char number[32], name[REPORT_COLUMNS - 40];
    struct text first = log_key_name(&requests->keys, 0);

    fprintf(out, "%-*s%s by", REPORT_LABEL, "Keys", grouped(number, requests->keys.count));
    for (size_t i = 0; i < options->part_count; i++) {
        const struct log_part *part = &options->parts[i];
        bool renamed = part->kind == PART_CLIENT && file->form.kind == LOG_JSON;
        const char *shown = renamed ? file->form.client_name : part->name;
        fprintf(out, "%s %s%s", i == 0 ? "" : ",", part->kind == PART_FIELD ? "field " : "",
                printable(name, sizeof(name), shown, strlen(shown)));
    }
    if (options->address)
        fprintf(out, " as addresses of %u and %u bits", options->prefix4, options->prefix6);
    fprintf(out, "; the first is %s\n", printable(name, sizeof(name), first.bytes, first.length));
    if (requests->ipv6 == requests->networks)
        return;
    fprintf(out, "%-*s%s addresses of %s /64; --address=32,64 counts each /64 as one\n",
            REPORT_LABEL, "IPv6", grouped(number, requests->ipv6),
            grouped(name, requests->networks));
}

void requests_print(FILE *out, const struct requests *requests) {
    uint64_t unreadable = requests->lines - requests->count;
    char a[40], b[40], c[40];

    print_files(out, requests);
    fprintf(out, "%-*s%s", REPORT_LABEL, "Lines", grouped(a, requests->lines));
    if (unreadable == 0)
        fputs(", all readable\n", out);
    else
        fprintf(out, ", of which %s unreadable:\n", grouped(a, unreadable));
    requests_print_unreadable(out, requests, REPORT_LABEL + 2);
    if (!requests->timed) {
        fprintf(out, "%-*snone: all requests happen at one instant\n", REPORT_LABEL, "Time");
    } else {
        fprintf(out, "%-*s%s to %s UTC, %s\n", REPORT_LABEL, "Time",
                time_text(a, requests->first_ns, ' ', ""), time_text(b, requests->last_ns, ' ', ""),
                span_text(c, requests->last_ns - requests->first_ns));
        if (requests->late != 0)
            fprintf(out, "%-*sby time; in the logs %s stood behind a later one\n", REPORT_LABEL,
                    "Order", grouped(a, requests->late));
    }
    print_keys(out, requests);
}

static json_t *json_count(uint64_t count) {
    return json_integer((json_int_t)count);
}

json_t *requests_json_time(const struct requests *requests, uint64_t time_ns) {
    char text[40];
    return requests->timed ? json_string(time_text(text, time_ns, 'T', "Z")) : json_null();
}

json_t *requests_json(const struct requests *requests) {
    const struct log_options *options = requests->options;
    uint64_t unreadable = requests->lines - requests->count;
    json_t *files = json_array(), *lines = json_array(), *key = json_array();
    struct text first = log_key_name(&requests->keys, 0);

    for (size_t i = 0; i < options->file_count; i++) {
        const struct log_file *file = &requests->files[i];
        json_array_append_new(files,
                              json_pack("{s:o, s:s, s:o, s:o}", "file",
                                        json_text(file->path, strlen(file->path)), "format",
                                        file->form.name, "lines", json_count(file->lines),
                                        "unreadable", json_count(file->lines - file->readable)));
    }
    for (size_t i = 0; i < unreadable && i < UNREADABLE_MAX; i++) {
        const struct unreadable_line *line = &requests->unreadable[i];
        json_array_append_new(lines, json_pack("{s:o, s:o, s:s}", "file",
                                               json_text(line->path, strlen(line->path)), "line",
                                               json_count(line->number), "why", line->why));
    }
    for (size_t i = 0; i < options->part_count; i++)
        json_array_append_new(key,
                              json_text(options->parts[i].name, strlen(options->parts[i].name)));
    return must_have(json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "files", files,
        "lines", json_count(requests->lines), "readable", json_count(requests->count), "unreadable",
        json_count(unreadable), "unreadable_lines", lines, "late", json_count(requests->late),
        "first_time", requests_json_time(requests, requests->first_ns), "last_time",
        requests_json_time(requests, requests->last_ns), "key", key, "keys",
        json_count(requests->keys.count), "first_key", json_text(first.bytes, first.length),
        "ipv6_keys", json_count(requests->ipv6), "ipv6_networks", json_count(requests->networks)));
}
