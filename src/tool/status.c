/* SPDX-License-Identifier: MIT
 * stint status, policies, metrics: a table as a whole. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attach.h"
#include "common.h"
#include "report.h"
#include "sample.h"
#include "status.h"
#include "users.h"

/* ---- Policies ---- */

static void print_policy(struct report *report, const struct sample *sample, uint32_t id) {
    const struct policy_here *here = &sample->policies.of[id];
    const struct stint_policy_stats *counts = &sample->counts[id];

    report_row(report);
    report_text(report, "name", here->policy.name, strlen(here->policy.name));
    report_count(report, "id", id);
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
    report_count(report, "refunds_lost", counts->refunds_lost);
    report_count(report, "mistaken_nows", counts->mistaken_nows);
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
    return all_written() ? EXIT_GOOD : unwritten(arguments, "the policies");
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
    if (nearly_full(taken, of))
        report_note(report, "note", note);
}

enum { NOTE_SIZE = 256 };

/* Why some keys found no slot, or nearly none. The reach never falls, so it is compared with the
 * slots that were ever used: hashed keys reach so far once half of all slots are. */
static const char *reach_note(const struct stint_stats *stats, char note[NOTE_SIZE]) {
    snprintf(note, NOTE_SIZE, "some keys %sfound no slot%s",
             stats->untracked + stats->replaced != 0 ? "" : "nearly ",
             stats->used < stats->slots / 4
                 ? ", in a table that is nearly empty: they are no hashes (stint_key_of, "
                   "stint_key_of_id), or each is limited by many policies"
                 : ": see stint resize --entries");
    return note;
}

/* What the table was made for, and what takes it. */
static const char *entries_note(const struct stint_stats *stats, char note[NOTE_SIZE]) {
    const uint64_t limits = stats->overrides + stats->banned;
    char count[32], more[96] = "";

    if (limits != 0)
        snprintf(more, sizeof(more), ", %s of them overrides and bans, which take one each",
                 grouped(count, limits));
    snprintf(note, NOTE_SIZE,
             "most entries that it was made for are there%s: see stint resize --entries", more);
    return note;
}

/* What there is room for, and how much of it is taken. */
static void print_rooms(struct report *report, const struct stint_stats *stats) {
    char note[NOTE_SIZE];

    print_room(report, "entries", stats->live, stats->slots / 2, entries_note(stats, note));
    print_room(report, "policy_ids", stats->policy_ids, stats->max_policies,
               "few are left: gone ones are free again once nobody has the table open, or see "
               "stint resize --max-policies");
    if (stats->labels != 0)
        print_room(report, "labels", stats->used_labels, stats->labels,
                   "names of keys make room for others: see stint resize --labels");
    print_room(report, "reach", stats->reach, stats->max_reach, reach_note(stats, note));
    if (report_is_text(report))
        return;
    report_count(report, "max_entries", stats->max_entries);
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

/* Who has the table open, for people: "2 processes: 4711 nginx, 4712 stint (reads)". */
static void print_open(struct report *report, const struct users *users) {
    enum { MOST = 8 };
    char text[MOST * 48 + 160], program[64];
    size_t open = 0, told = 0, at;

    for (size_t i = 0; i < users->count; i++)
        open += !users->of[i].removed;
    at = (size_t)snprintf(text, sizeof(text), "%zu process%s", open, open == 1 ? "" : "es");
    for (size_t i = 0; i < users->count && told < MOST; i++) {
        const struct user *user = &users->of[i];
        if (user->removed)
            continue;
        at += (size_t)snprintf(
            text + at, sizeof(text) - at, "%s %" PRIu64 " %.20s%s", told++ == 0 ? ":" : ",",
            user->process,
            printable(program, sizeof(program), user->program, strlen(user->program)),
            user->writes ? "" : " (reads)");
    }
    if (open > told)
        snprintf(text + at, sizeof(text) - at, ", and %zu more", open - told);
    report_note(report, "open_in", text);
    if (users->hidden != 0) {
        snprintf(text, sizeof(text), "%zu process%s, which this user may not look at%s",
                 users->hidden, users->hidden == 1 ? "" : "es",
                 geteuid() == 0 ? "" : ": ask as root");
        report_note(report, "not_seen", text);
    }
}

/* Who has the table open, and who decides by one that had its path, for programs. */
static void print_users(struct report *report, const struct users *users) {
    for (int removed = 0; removed <= 1; removed++) {
        report_table(report, removed ? "removed" : "open");
        for (size_t i = 0; i < users->count; i++) {
            const struct user *user = &users->of[i];
            if (user->removed != removed)
                continue;
            report_row(report);
            report_count(report, "process", user->process);
            report_text(report, "program", user->program, strlen(user->program));
            report_truth(report, "writes", user->writes);
        }
        report_table_end(report);
    }
    report_count(report, "not_seen", users->hidden);
}

/* Tells people of processes that decide by a table that had this path. */
static void print_removed(FILE *out, const struct users *users) {
    size_t count = 0;

    for (size_t i = 0; i < users->count; i++)
        if (users->of[i].removed)
            fprintf(out, "%s %" PRIu64,
                    count++ != 0 ? ","
                                 : "\nNote: a table that was removed from here is still in use, by "
                                   "process",
                    users->of[i].process);
    if (count != 0)
        fputs(count == 1 ? ": restart it\n" : ": restart them\n", out);
}

void status_print(struct report *report, const struct arguments *arguments,
                  const struct sample *sample, const struct sample *before) {
    const struct stint_stats *stats = &sample->stats;
    uint64_t age = age_of(arguments->file, sample->now);
    struct users users;

    users_find(&users, arguments->file);

    report_text(report, "table", arguments->file, strlen(arguments->file));
    report_bytes(report, "memory", stats->memory);
    if (age != 0)
        report_span(report, "age", age);
    if (report_is_text(report))
        print_open(report, &users);
    else
        print_users(report, &users);
    report_count(report, "have_decided", stats->processes);
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
    if (report_is_text(report))
        print_removed(report->out, &users);
    users_free(&users);
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
        struct users users;
        users_find(&users, arguments->file);
        print_removed(stderr, &users);
        users_free(&users);
        sample_free(&before);
        return code;
    }
    report_begin(&report, stdout, arguments->json ? REPORT_JSON : REPORT_TEXT);
    status_print(&report, arguments, &sample, &before);
    report_end(&report);
    sample_free(&before);
    sample_free(&sample);
    return all_written() ? EXIT_GOOD : unwritten(arguments, "the status");
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
        code = unwritten(arguments, "the metrics");
    free(text);
    stint_close(limiter);
    return code;
}
