/* SPDX-License-Identifier: MIT
 * stint status, watch, policies, metrics: a table as a whole. They attach to it for reading only,
 * which no writer notices. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "attach.h"
#include "common.h"
#include "report.h"
#include "screen.h"
#include "users.h"

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

static void print_status(struct report *report, const struct arguments *arguments,
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
    print_status(&report, arguments, &sample, &before);
    report_end(&report);
    sample_free(&before);
    sample_free(&sample);
    return all_written() ? EXIT_GOOD : failure(arguments, "the status cannot be written");
}

/* ---- Watch ---- */

/* What a terminal shows. */
struct page {
    struct arguments top; /* by what keys are sorted, and of which policy */
    char *status, *keys;  /* lines of text */
    size_t scrolled;      /* lines of the keys above those that are shown */
    size_t shown;         /* lines of the keys, without their heading */
};

static size_t lines_of(const char *text) {
    size_t lines = 0;

    for (; (text = strchr(text, '\n')) != NULL; text++)
        lines++;
    return lines;
}

/* Renews what the page says of the keys. */
static int page_keys(struct page *page) {
    size_t size;
    int code;

    free(page->keys);
    FILE *out = must_have(open_memstream(&page->keys, &size));
    code = top_print(&page->top, out);
    fclose(out);
    return code;
}

static void page_status(struct page *page, const struct sample *sample,
                        const struct sample *before) {
    struct report report;
    size_t size;

    free(page->status);
    FILE *out = must_have(open_memstream(&page->status, &size));
    report_begin(&report, out, REPORT_TEXT);
    print_status(&report, &page->top, sample, before);
    report_end(&report);
    fclose(out);
}

/* Writes a line, as much as fits. Returns the one after it. */
static const char *draw_line(const char *line, unsigned columns) {
    const size_t length = strcspn(line, "\n");

    printf("%.*s\x1b[K\n", (int)(length < columns ? length : columns), line);
    return line + length + (line[length] == '\n');
}

/* The status, in the upper half at most; the table's keys; what the keyboard's do. */
static void draw(struct page *page) {
    const struct screen_size size = screen_size();
    const char *at = page->status;
    unsigned row = 1;
    static const char *const sorted[] = {
        [BY_USED] = "used", [BY_REFUSED] = "refusals", [BY_POLICY] = "policy"};
    char foot[128];

    fputs("\x1b[H", stdout); /* the first line and column */
    for (; *at != '\0' && row < (size.rows + 1) / 2; row++)
        at = draw_line(at, size.columns);
    if (row < size.rows)
        at = draw_line("", size.columns), row++;
    at = page->keys;
    if (row < size.rows)
        at = draw_line(at, size.columns), row++;
    page->shown = size.rows - row;
    const size_t lines = lines_of(at);
    if (page->scrolled + page->shown > lines)
        page->scrolled = lines > page->shown ? lines - page->shown : 0;
    for (size_t i = 0; i < page->scrolled; i++)
        at += strcspn(at, "\n") + 1;
    for (; *at != '\0' && row < size.rows; row++)
        at = draw_line(at, size.columns);
    snprintf(foot, sizeof(foot), "s: sorted by %s   p: policy %s   arrows: scroll   q: quit",
             sorted[page->top.by], page->top.only_policy == NULL ? "any" : page->top.only_policy);
    printf("\x1b[J\x1b[%u;1H\x1b[7m%.*s\x1b[m", size.rows, (int)size.columns, foot);
}

/* The first policy from an id on that has this name, or any (NULL); NULL: there is none. */
static const struct stint_policy *policy_from(const struct policies *policies, uint32_t *id,
                                              const char *name) {
    for (; *id < policies->count; ++*id) {
        const struct stint_policy *policy = policies_at(policies, *id);
        if (policy != NULL && (name == NULL || strcmp(policy->name, name) == 0))
            return policy;
    }
    return NULL;
}

/* Does what a key asks for. Returns whether the keys are to be looked at again. */
static bool page_key(struct page *page, int key, const struct policies *policies) {
    static char name[sizeof(((struct stint_policy *)0)->name)]; /* the policies are read anew */
    struct arguments *top = &page->top;

    const struct stint_policy *policy;
    uint32_t id = 0;

    switch (key) {
    case 's': /* refusals, policy, used */
        top->by = (enum top_by)((top->by + 1) % (BY_POLICY + 1));
        break;
    case 'p': /* the next one; after the last one any */
        if (top->only_policy != NULL && policy_from(policies, &id, top->only_policy) != NULL)
            id++;
        policy = policy_from(policies, &id, NULL);
        top->only_policy = policy == NULL ? NULL : strcpy(name, policy->name);
        break;
    case SCREEN_UP:
        page->scrolled -= page->scrolled != 0;
        return false;
    case SCREEN_DOWN:
        page->scrolled++;
        return false;
    case SCREEN_PAGE_UP:
        page->scrolled -= page->scrolled < page->shown ? page->scrolled : page->shown;
        return false;
    case SCREEN_PAGE_DOWN:
        page->scrolled += page->shown;
        return false;
    case SCREEN_BOTTOM:
        page->scrolled = SIZE_MAX / 2;
        return false;
    case SCREEN_HOME:
        page->scrolled = 0;
        return false;
    default:
        return false;
    }
    page->scrolled = 0;
    return true;
}

/* Looks again. A policy that is gone is no longer asked for. */
static int page_look(struct page *page, struct sample *sample, struct sample *before) {
    sample_free(before);
    *before = *sample;
    *sample = (struct sample){0};
    uint32_t id = 0;
    int code = sample_take(sample, &page->top, true);
    if (code != EXIT_GOOD)
        return code;
    if (policy_from(&sample->policies, &id, page->top.only_policy) == NULL)
        page->top.only_policy = NULL;
    if (before->at_ns == 0) /* without names only refusals of windows that last are known */
        page->top.by = sample->stats.labels != 0 ? BY_REFUSED : BY_USED;
    page_status(page, sample, before);
    return page_keys(page);
}

/* It attaches anew for each look: the table may have been moved by a resize. */
static int watch_screen(const struct arguments *arguments) {
    struct page page = {.top = *arguments, .status = NULL};
    struct sample sample = {0}, before = {0};
    uint64_t looks = 0;
    int event = SCREEN_TIME, code = EXIT_GOOD;

    page.top.number = 1000;
    screen_begin();
    while (event != SCREEN_END && event != 'q') {
        if (event == SCREEN_TIME) {
            if (arguments->count != 0 && looks++ > arguments->count)
                break;
            code = page_look(&page, &sample, &before);
        } else if (page_key(&page, event, &sample.policies)) {
            code = page_keys(&page);
        }
        if (code != EXIT_GOOD)
            break;
        draw(&page);
        event = screen_wait(sample.at_ns + arguments->interval_ns);
    }
    screen_end();
    sample_free(&before);
    sample_free(&sample);
    free(page.status);
    free(page.keys);
    return code != EXIT_GOOD || all_written() ? code
                                              : failure(arguments, "the page cannot be written");
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

/* Says what was seen, in a line. Returns whether it could be written. */
static bool show(const struct arguments *arguments, const struct sample *sample,
                 const struct sample *before) {
    struct report report;

    if (arguments->json) {
        report_begin(&report, stdout, REPORT_LINE);
        report_count(&report, "now", sample->now);
        print_status(&report, arguments, sample, before);
        report_end(&report);
    } else {
        print_line(sample, before);
    }
    return all_written();
}

/* Attaches anew for each look, as watch_screen does. */
int tool_watch(const struct arguments *arguments) {
    struct sample before = {0}, sample = {0};
    bool written = true;
    int code;

    if (arguments->interval_ns == 0)
        return usage_error(arguments->command->name, "--interval '0': not more than 0 seconds");
    if (isatty(STDOUT_FILENO) != 0 && !arguments->json)
        return watch_screen(arguments);
    code = sample_take(&before, arguments, false);
    for (uint64_t i = 0; code == EXIT_GOOD && written; i++) {
        if (arguments->count != 0 && i == arguments->count)
            break;
        sleep_until(before.at_ns + arguments->interval_ns);
        code = sample_take(&sample, arguments, true);
        if (code != EXIT_GOOD)
            break;
        written = show(arguments, &sample, &before);
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
