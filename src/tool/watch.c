/* SPDX-License-Identifier: MIT
 * stint watch: what matters first, in a page that fits. What does not fit ends with CUT. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common.h"
#include "entries.h"
#include "sample.h"
#include "screen.h"
#include "status.h"
#include "users.h"

#define CUT ">"

/* ---- The page ---- */

struct page {
    struct arguments top; /* by what keys are sorted, and of which policy */
    struct sample sample, before;
    struct users users;
    char *keys;            /* lines of text */
    struct looked looked;  /* the keys of the look before */
    struct looked present; /* those of this look */
    size_t scrolled;       /* lines of the keys above those that are shown */
    size_t shown;          /* lines of the keys, without their heading */
};

static size_t lines_of(const char *text) {
    size_t lines = 0;

    for (; (text = strchr(text, '\n')) != NULL; text++)
        lines++;
    return lines;
}

/* Renews what the page says of the keys. `look`: their rates are from now on since now. */
static int page_keys(struct page *page, bool look) {
    size_t size;
    int code;

    if (look) {
        looked_free(&page->looked);
        page->looked = page->present;
        page->present = (struct looked){.kept = NULL};
    }
    free(page->keys);
    FILE *out = must_have(open_memstream(&page->keys, &size));
    code = top_page(&page->top, out, &page->looked, look ? &page->present : NULL,
                    screen_size().columns);
    fclose(out);
    return code;
}

/* Writes as much of a line as fits. Returns the line after it. */
static const char *draw_line(const char *line, unsigned columns) {
    const size_t length = strcspn(line, "\n");

    if (length <= columns)
        printf("%.*s\x1b[K\n", (int)length, line);
    else
        printf("%.*s" CUT "\x1b[K\n", (int)columns - 1, line);
    return line + length + (line[length] == '\n');
}

/* Words that stand beside each other, in as many lines as they need. */
struct flow {
    FILE *out;
    unsigned columns, at;
};

static void put_words(struct flow *flow, const char *words) {
    const unsigned length = (unsigned)strlen(words);

    if (flow->at != 0 && flow->at + 2 + length > flow->columns) {
        fputc('\n', flow->out);
        flow->at = 0;
    }
    fprintf(flow->out, "%s%s", flow->at == 0 ? "" : "  ", words);
    flow->at += length + (flow->at == 0 ? 0 : 2);
}

static void put_count(struct flow *flow, const char *name, uint64_t count) {
    char words[80], text[32];

    if (count == 0)
        return;
    snprintf(words, sizeof(words), "%s %s", name, grouped(text, count));
    put_words(flow, words);
}

/* What is nearly full, in one line. */
static void put_notes(FILE *out, const struct stint_stats *stats) {
    const struct {
        const char *name;
        uint64_t taken, of;
    } rooms[] = {{"entries", stats->live, stats->slots / 2},
                 {"policy ids", stats->policy_ids, stats->max_policies},
                 {"labels", stats->used_labels, stats->labels},
                 {"reach", stats->reach, stats->max_reach}};
    unsigned notes = 0;

    for (size_t i = 0; i < sizeof(rooms) / sizeof(rooms[0]); i++)
        if (rooms[i].of != 0 && nearly_full(rooms[i].taken, rooms[i].of))
            fprintf(out, "%s%s %.0f%%", notes++ == 0 ? "Note: " : ", ", rooms[i].name,
                    100.0 * (double)rooms[i].taken / (double)rooms[i].of);
    if (notes != 0)
        fputs(": stint status says what to do\n", out);
}

/* How the table is. */
static void put_table(struct flow *flow, const struct page *page) {
    const struct stint_stats *stats = &page->sample.stats;
    char words[128], a[32], b[32], path[128];
    size_t open = 0;

    for (size_t i = 0; i < page->users.count; i++)
        open += !page->users.of[i].removed;
    put_words(flow, printable(path, sizeof(path), page->top.file, strlen(page->top.file)));
    snprintf(words, sizeof(words), "live %s of %s", grouped(a, stats->live),
             grouped(b, stats->slots / 2));
    put_words(flow, words);
    snprintf(words, sizeof(words), "open in %zu", open);
    put_words(flow, words);
    put_count(flow, "removed table open in", page->users.count - open);
    put_count(flow, "overrides", stats->overrides);
    put_count(flow, "banned", stats->banned);
    put_count(flow, "untracked", stats->untracked);
    put_count(flow, "replaced", stats->replaced);
    put_count(flow, "clock steps", stats->clock_steps);
    put_count(flow, "stray tokens", stats->stray_tokens);
    put_count(flow, "unknown policy", stats->unknown_policy);
    put_count(flow, "bad requests", stats->bad_requests);
    fputc('\n', flow->out);
}

/* ---- Its policies ---- */

struct ranked {
    uint32_t id;
    double refused, allowed; /* a second */
    uint64_t all_refused;
};

/* Who refuses most stands first; of others, who did so, and who is asked most. */
static int by_refusals(const void *a, const void *b) {
    const struct ranked *one = a, *other = b;

    if (one->refused != other->refused)
        return one->refused > other->refused ? -1 : 1;
    if (one->all_refused != other->all_refused)
        return one->all_refused > other->all_refused ? -1 : 1;
    if (one->allowed != other->allowed)
        return one->allowed > other->allowed ? -1 : 1;
    return one->id < other->id ? -1 : one->id > other->id;
}

/* Those that there are, by rank. Returns how many. */
static size_t rank_policies(const struct page *page, struct ranked *ranked) {
    const struct sample *sample = &page->sample, *before = &page->before;
    size_t count = 0;

    for (uint32_t id = 0; id < sample->policies.count; id++) {
        if (policies_at(&sample->policies, id) == NULL)
            continue;
        const struct stint_policy_stats *counts = &sample->counts[id],
                                        *then = counts_at(before, id);
        const bool rates = before->at_ns != 0;
        ranked[count++] = (struct ranked){
            id, rates ? rate(before, sample, then->refused, counts->refused) : 0,
            rates ? rate(before, sample, then->allowed, counts->allowed) : 0, counts->refused};
    }
    if (count != 0)
        qsort(ranked, count, sizeof(*ranked), by_refusals);
    return count;
}

/* As many as there are lines for, and how many more there are. */
static void put_policies(FILE *out, const struct page *page, size_t lines, unsigned columns) {
    const struct sample *sample = &page->sample;
    struct ranked *ranked = must_have(calloc(sample->policies.count + 1, sizeof(*ranked)));
    const size_t count = rank_policies(page, ranked);
    const size_t shown = count <= lines ? count : lines > 1 ? lines - 1 : 1;
    struct report report;

    report_begin(&report, out, REPORT_TEXT);
    report.widest = cell_columns(columns);
    report.room = 0; /* lines are cut */
    report_table(&report, "policies");
    for (size_t i = 0; i < shown && i < count; i++) {
        const struct policy_here *here = &sample->policies.of[ranked[i].id];
        const struct stint_policy_stats *counts = &sample->counts[ranked[i].id];
        report_row(&report);
        report_text(&report, "policy", here->policy.name, strlen(here->policy.name));
        if (page->before.at_ns != 0) {
            report_rate(&report, "refused/s", ranked[i].refused);
            report_rate(&report, "allowed/s", ranked[i].allowed);
        }
        report_count(&report, "refused", counts->refused);
        report_count(&report, "allowed", counts->allowed);
        report_count(&report, "shadowed", counts->shadowed);
        report_text(&report, "notation", here->notation, strlen(here->notation));
    }
    report_table_end(&report);
    report_end(&report);
    if (count > shown)
        fprintf(out, "and %zu more\n", count - shown);
    free(ranked);
}

/* ---- Its lines ---- */

/* The table and its policies, in the upper half at most. */
static char *page_status(const struct page *page, struct screen_size size) {
    const unsigned half = (size.rows + 1) / 2;
    char *text;
    size_t length;
    FILE *out = must_have(open_memstream(&text, &length));
    struct flow flow = {.out = out, .columns = size.columns};

    put_table(&flow, page);
    put_notes(out, &page->sample.stats);
    fflush(out);
    const size_t taken = lines_of(text) + 2; /* the heading, and the line below all */
    put_policies(out, page, half > taken ? half - taken : 1, size.columns);
    fclose(out);
    return text;
}

/* The status, in the upper half at most; the table's keys; what the keyboard's do. */
static void draw(struct page *page) {
    const struct screen_size size = screen_size();
    char *status = page_status(page, size);
    const char *at = status;
    unsigned row = 1;
    static const char *const sorted[] = {
        [BY_USED] = "used", [BY_REFUSED] = "refusals", [BY_POLICY] = "policy"};
    char foot[256];

    fputs("\x1b[H", stdout); /* the first line and column */
    for (; *at != '\0' && row < (size.rows + 1) / 2; row++)
        at = draw_line(at, size.columns);
    if (row < size.rows)
        draw_line("", size.columns), row++;
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
    const size_t last = page->scrolled + page->shown;
    const int length = snprintf(
        foot, sizeof(foot),
        "keys %zu-%zu of %zu  s: sorted by %s  p: policy %s  arrows: scroll  q: quit",
        lines == 0 ? 0 : page->scrolled + 1, last < lines ? last : lines, lines,
        sorted[page->top.by], page->top.only_policy == NULL ? "any" : page->top.only_policy);
    const bool cut = length > (int)size.columns;
    printf("\x1b[J\x1b[%u;1H\x1b[7m%.*s%s\x1b[m", size.rows, (int)size.columns - cut, foot,
           cut ? CUT : "");
    free(status);
}

/* ---- Its keys ---- */

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
static bool page_key(struct page *page, int key) {
    const struct policies *policies = &page->sample.policies;
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
    case SCREEN_SIZE: /* what fits is another */
        return true;
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
static int page_look(struct page *page) {
    const bool first = page->sample.at_ns == 0;
    uint32_t id = 0;

    sample_free(&page->before);
    page->before = page->sample;
    page->sample = (struct sample){0};
    int code = sample_take(&page->sample, &page->top, true);
    if (code != EXIT_GOOD)
        return code;
    users_free(&page->users);
    users_find(&page->users, page->top.file);
    if (policy_from(&page->sample.policies, &id, page->top.only_policy) == NULL)
        page->top.only_policy = NULL;
    if (first) /* without names only refusals of windows that last are known */
        page->top.by = page->sample.stats.labels != 0 ? BY_REFUSED : BY_USED;
    return page_keys(page, true);
}

/* It attaches anew for each look: the table may have been moved by a resize. */
static int watch_screen(const struct arguments *arguments) {
    struct page page = {.top = *arguments};
    uint64_t looks = 0;
    int event = SCREEN_TIME, code = EXIT_GOOD;

    page.top.number = 1000;
    screen_begin();
    while (event != SCREEN_END && event != 'q') {
        if (event == SCREEN_TIME) {
            if (arguments->count != 0 && looks++ > arguments->count)
                break;
            code = page_look(&page);
        } else if (page_key(&page, event)) {
            code = page_keys(&page, false);
        }
        if (code != EXIT_GOOD)
            break;
        draw(&page);
        event = screen_wait(page.sample.at_ns + arguments->interval_ns);
    }
    screen_end();
    sample_free(&page.before);
    sample_free(&page.sample);
    users_free(&page.users);
    looked_free(&page.looked);
    looked_free(&page.present);
    free(page.keys);
    return code != EXIT_GOOD || all_written() ? code : unwritten(arguments, "the page");
}

/* ---- Lines ---- */

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
        status_print(&report, arguments, sample, before);
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
    return written ? code : unwritten(arguments, "what is seen");
}
