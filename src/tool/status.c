/* SPDX-License-Identifier: MIT
 * stint status, watch, policies, metrics: a table as a whole. They attach to it for reading only,
 * which no writer notices. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "attach.h"
#include "common.h"
#include "removed.h"
#include "report.h"

/* What the table counted up to an instant. */
struct sample {
    uint64_t at_ns; /* of the monotonic clock; 0: there is no sample */
    uint64_t now;   /* of the table's clock */
    struct stint_stats stats;
    struct policies policies;
    struct stint_policy_stats *counts; /* of each policy, by id */
};

static void sample_free(struct sample *sample) {
    policies_free(&sample->policies);
    free(sample->counts);
    *sample = (struct sample){0};
}

static void sample_policies(struct sample *sample, const struct stint_limiter *limiter) {
    struct policies *policies = &sample->policies;

    policies_read(policies, limiter);
    sample->counts = must_have(calloc(policies->count + 1, sizeof(*sample->counts)));
    for (uint32_t id = 0; id < policies->count; id++) {
        sample->counts[id].size = sizeof(*sample->counts);
        (void)stint_policy_stats_get((struct stint_limiter *)limiter, id, &sample->counts[id]);
    }
}

/* Looks at a table. `scan`: at its slots, too. */
static int sample_take(struct sample *sample, const struct arguments *arguments, bool scan) {
    struct stint_limiter *limiter;
    int code = attach(arguments, STINT_READ_ONLY, &limiter);

    if (code != EXIT_GOOD)
        return code;
    *sample = (struct sample){.at_ns = monotonic_ns(), .now = stint_now(limiter)};
    sample->stats.size = sizeof(sample->stats);
    if (scan)
        (void)stint_stats_get(limiter, &sample->stats);
    sample_policies(sample, limiter);
    stint_close(limiter);
    return EXIT_GOOD;
}

static void sleep_until(uint64_t at_ns) {
    struct timespec until = {.tv_sec = (time_t)(at_ns / 1000000000u),
                             .tv_nsec = (long)(at_ns % 1000000000u)};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        continue;
}

/* How much a count grew in a second. A table that was made anew has smaller counts. */
static double rate(const struct sample *before, const struct sample *after, uint64_t from,
                   uint64_t to) {
    return to <= from ? 0 : (double)(to - from) * 1e9 / (double)(after->at_ns - before->at_ns);
}

/* The counts of a policy in an earlier sample. */
static const struct stint_policy_stats *counts_at(const struct sample *sample, uint32_t id) {
    static const struct stint_policy_stats none;
    return id < sample->policies.count ? &sample->counts[id] : &none;
}

/* ---- Policies ---- */

static void print_policy(struct report *report, const struct sample *sample, uint32_t id) {
    const struct policy_here *here = &sample->policies.of[id];
    const struct stint_policy_stats *counts = &sample->counts[id];

    report_row(report);
    report_count(report, "id", id);
    report_text(report, "name", here->policy.name, strlen(here->policy.name));
    report_text(report, "notation", here->notation, strlen(here->notation));
    report_count(report, "allowed", counts->allowed);
    report_count(report, "refused", counts->refused);
    report_count(report, "shadowed", counts->shadowed);
}

/* What only `policies` says of each, and JSON. */
static void print_more(struct report *report, const struct stint_policy_stats *counts) {
    report_count(report, "first_refusals", counts->first_refusals);
    report_count(report, "untracked", counts->untracked);
    report_count(report, "near_limit", counts->near_limit);
    report_count(report, "charged", counts->charged);
    report_count(report, "refunded", counts->refunded);
    report_count(report, "bans", counts->bans);
    report_count(report, "strikes_lost", counts->strikes_lost);
}

static void print_policies(struct report *report, const struct sample *sample,
                           const struct sample *before, bool more) {
    report_table(report, "policies");
    for (uint32_t id = 0; id < sample->policies.count; id++) {
        if (policies_at(&sample->policies, id) == NULL)
            continue;
        const struct stint_policy_stats *counts = &sample->counts[id];
        print_policy(report, sample, id);
        if (more)
            print_more(report, counts);
        if (before->at_ns == 0)
            continue;
        const struct stint_policy_stats *then = counts_at(before, id);
        report_rate(report, "allowed_per_s", rate(before, sample, then->allowed, counts->allowed));
        report_rate(report, "refused_per_s", rate(before, sample, then->refused, counts->refused));
    }
    report_table_end(report);
}

int tool_policies(const struct arguments *arguments) {
    struct sample sample, none = {0};
    struct report report;
    int code = sample_take(&sample, arguments, false);

    if (code != EXIT_GOOD)
        return code;
    report_begin(&report, stdout, arguments->json ? REPORT_JSON : REPORT_TEXT);
    print_policies(&report, &sample, &none, true);
    if (report_is_text(&report) && sample.policies.count == 0)
        puts("the table has no policies");
    report_end(&report);
    sample_free(&sample);
    return all_written() ? EXIT_GOOD : failure(arguments, "the policies cannot be written");
}

/* ---- Status ---- */

/* Since when the file is there, if its system knows. */
static uint64_t age_of(const char *path, uint64_t now) {
    struct statx about;

    if (statx(AT_FDCWD, path, 0, STATX_BTIME, &about) != 0 || (about.stx_mask & STATX_BTIME) == 0)
        return 0;
    uint64_t made =
        (uint64_t)about.stx_btime.tv_sec * 1000000000u + (uint64_t)about.stx_btime.tv_nsec;
    return made < now ? now - made : 0;
}

/* A count that is 0 mostly: people are told if it is not. */
static void print_oddity(struct report *report, const char *name, uint64_t count) {
    if (count != 0 || !report_is_text(report))
        report_count(report, name, count);
}

/* How much of something is taken, and what that means once it is most of it. */
static void print_room(struct report *report, const char *name, uint64_t taken, uint64_t of,
                       const char *note) {
    report_bar(report, name, taken, of);
    if (taken >= of - of / 5 && taken != 0)
        report_note(report, "note", note);
}

/* What there is room for, and how much of it is taken. */
static void print_rooms(struct report *report, const struct stint_stats *stats) {
    print_room(report, "keys", stats->live, stats->slots / 2,
               "most keys that it was made for are there: see stint resize --keys");
    print_room(report, "policy_ids", stats->policy_ids, stats->max_policies,
               "few are left: gone ones are free again once nobody has the table open, or see "
               "stint resize --max-policies");
    if (stats->labels != 0)
        print_room(report, "labels", stats->used_labels, stats->labels,
                   "names of keys make room for others: see stint resize --labels");
    print_room(report, "reach", stats->reach, stats->max_reach,
               "some keys nearly found no slot: see stint resize --keys");
    if (report_is_text(report))
        return;
    report_count(report, "max_keys", stats->max_keys);
    report_count(report, "slots", stats->slots);
    report_count(report, "used", stats->used);
    report_count(report, "live", stats->live);
    report_count(report, "placed", stats->placed);
    report_count(report, "shards", stats->shards);
    report_count(report, "reach", stats->reach);
    report_count(report, "max_reach", stats->max_reach);
    report_count(report, "policy_ids", stats->policy_ids);
    report_count(report, "max_policies", stats->max_policies);
    report_count(report, "used_labels", stats->used_labels);
    report_count(report, "labels", stats->labels);
    report_count(report, "resets", stats->resets);
}

static void print_status(struct report *report, const struct arguments *arguments,
                         const struct sample *sample, const struct sample *before) {
    const struct stint_stats *stats = &sample->stats;
    uint64_t age = age_of(arguments->file, sample->now);

    report_text(report, "table", arguments->file, strlen(arguments->file));
    report_bytes(report, "memory", stats->memory);
    if (age != 0)
        report_span(report, "age", age);
    report_count(report, "processes", stats->processes);
    print_rooms(report, stats);
    print_oddity(report, "gone_ids", stats->gone_ids);
    print_oddity(report, "overrides", stats->overrides);
    print_oddity(report, "banned", stats->banned);
    print_oddity(report, "untracked", stats->untracked);
    print_oddity(report, "replaced", stats->replaced);
    print_oddity(report, "clock_steps", stats->clock_steps);
    print_oddity(report, "stray_tokens", stats->stray_tokens);
    print_oddity(report, "unknown_policy", stats->unknown_policy);
    print_oddity(report, "bad_requests", stats->bad_requests);
    if (report_is_text(report) && sample->policies.count != 0)
        fputc('\n', report->out);
    print_policies(report, sample, before, !report_is_text(report));
}

/* Tells of processes that decide by a table that had this path. */
static void print_removed(struct report *report, const struct arguments *arguments) {
    uint64_t *users;
    const size_t count = removed_users(arguments->file, &users);

    if (!report_is_text(report)) {
        report_table(report, "removed");
        for (size_t i = 0; i < count; i++) {
            report_row(report);
            report_count(report, "process", users[i]);
        }
        report_table_end(report);
    } else if (count != 0) {
        fputs("\nNote: a table that was removed from here is still in use, by process",
              report->out);
        for (size_t i = 0; i < count; i++)
            fprintf(report->out, "%s%" PRIu64, i == 0 ? " " : ", ", users[i]);
        fputs(count == 1 ? ": restart it\n" : ": restart them\n", report->out);
    }
    free(users);
}

int tool_status(const struct arguments *arguments) {
    struct sample before = {0}, sample;
    struct report report;
    int code = EXIT_GOOD;

    if (arguments->interval_ns != 0) {
        code = sample_take(&before, arguments, false);
        if (code == EXIT_GOOD)
            sleep_until(before.at_ns + arguments->interval_ns);
    }
    if (code == EXIT_GOOD)
        code = sample_take(&sample, arguments, true);
    if (code != EXIT_GOOD) {
        report_begin(&report, stderr, REPORT_TEXT);
        print_removed(&report, arguments);
        report_end(&report);
        sample_free(&before);
        return code;
    }
    report_begin(&report, stdout, arguments->json ? REPORT_JSON : REPORT_TEXT);
    print_status(&report, arguments, &sample, &before);
    print_removed(&report, arguments);
    report_end(&report);
    sample_free(&before);
    sample_free(&sample);
    return all_written() ? EXIT_GOOD : failure(arguments, "the status cannot be written");
}

/* ---- Watch ---- */

/* The status on a terminal: as many lines and columns of it as fit. */
static void draw(const struct arguments *arguments, const struct sample *sample,
                 const struct sample *before) {
    struct winsize window = {0};
    struct report report;
    char *text;
    size_t size;
    FILE *out = must_have(open_memstream(&text, &size));

    report_begin(&report, out, REPORT_TEXT);
    print_status(&report, arguments, sample, before);
    report_end(&report);
    fclose(out);
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) != 0 || window.ws_row == 0)
        window = (struct winsize){.ws_row = 24, .ws_col = 80};
    fputs("\x1b[H", stdout); /* the first line and column */
    const char *at = text;
    for (unsigned row = 1; row < window.ws_row && *at != '\0'; row++) {
        size_t length = strcspn(at, "\n");
        fwrite(at, 1, length < window.ws_col ? length : window.ws_col, stdout);
        fputs("\x1b[K\n", stdout); /* nothing is left of the line before */
        at += length + (at[length] == '\n');
    }
    fputs("\x1b[J", stdout); /* nor of the lines below */
    free(text);
}

static void print_line(const struct sample *sample, const struct sample *before) {
    uint64_t allowed[2] = {0, 0}, refused[2] = {0, 0};
    char time[40], a[32], b[32];

    for (uint32_t id = 0; id < sample->policies.count; id++) {
        allowed[0] += counts_at(before, id)->allowed;
        allowed[1] += sample->counts[id].allowed;
        refused[0] += counts_at(before, id)->refused;
        refused[1] += sample->counts[id].refused;
    }
    printf("%s  live %s of %s  allowed %.1f/s  refused %.1f/s",
           time_text(time, sample->now / 1000000000u * 1000000000u, 'T', "Z"),
           grouped(a, sample->stats.live), grouped(b, sample->stats.slots / 2),
           rate(before, sample, allowed[0], allowed[1]),
           rate(before, sample, refused[0], refused[1]));
    if (sample->stats.overrides != 0)
        printf("  overrides %s", grouped(a, sample->stats.overrides));
    if (sample->stats.banned != 0)
        printf("  banned %s", grouped(a, sample->stats.banned));
    if (sample->stats.untracked != 0)
        printf("  untracked %s", grouped(a, sample->stats.untracked));
    putchar('\n');
}

/* Says what was seen, in the form that is asked for. Returns whether it could be written. */
static bool show(const struct arguments *arguments, bool terminal, const struct sample *sample,
                 const struct sample *before) {
    struct report report;

    if (arguments->json) {
        report_begin(&report, stdout, REPORT_LINE);
        report_count(&report, "now", sample->now);
        print_status(&report, arguments, sample, before);
        report_end(&report);
    } else if (terminal) {
        draw(arguments, sample, before);
    } else {
        print_line(sample, before);
    }
    return all_written();
}

/* It attaches anew for each look: the table may have been moved by a resize. */
int tool_watch(const struct arguments *arguments) {
    bool terminal = isatty(STDOUT_FILENO) != 0 && !arguments->json, written = true;
    struct sample before = {0}, sample = {0};
    int code = EXIT_GOOD;

    if (arguments->interval_ns == 0)
        return usage_error(arguments->command->name, "--interval '0': not more than 0 seconds");
    code = sample_take(&before, arguments, terminal);
    if (terminal && code == EXIT_GOOD)
        written = show(arguments, terminal, &before, &sample);
    for (uint64_t i = 0; code == EXIT_GOOD && written; i++) {
        if (arguments->count != 0 && i == arguments->count)
            break;
        sleep_until(before.at_ns + arguments->interval_ns);
        code = sample_take(&sample, arguments, true);
        if (code != EXIT_GOOD)
            break;
        written = show(arguments, terminal, &sample, &before);
        sample_free(&before);
        before = sample;
    }
    sample_free(&before);
    return written ? code : failure(arguments, "what is seen cannot be written");
}

/* ---- Metrics ---- */

int tool_metrics(const struct arguments *arguments) {
    struct stint_metrics_options options = STINT_METRICS_OPTIONS_INIT;
    struct stint_limiter *limiter;
    char *text = NULL;
    int size = 0, length;
    int code = attach(arguments, STINT_READ_ONLY, &limiter);

    if (code != EXIT_GOOD)
        return code;
    options.labels = arguments->metric_labels;
    options.flags = (arguments->no_scan ? (uint32_t)STINT_METRICS_NO_SCAN : 0) |
                    (arguments->no_eof ? (uint32_t)STINT_METRICS_NO_EOF : 0);
    /* The counts grow while they are written; so may the text. */
    while ((length = stint_metrics(limiter, &options, text, (size_t)size)) >= size) {
        size = length + 4096;
        text = must_have(realloc(text, (size_t)size));
    }
    if (length < 0)
        code = usage_error(arguments->command->name, "%s", reason());
    else if (fwrite(text, 1, (size_t)length, stdout) != (size_t)length || !all_written())
        code = failure(arguments, "the metrics cannot be written");
    free(text);
    stint_close(limiter);
    return code;
}
