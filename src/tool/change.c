/* SPDX-License-Identifier: MIT
 * stint make, apply, resize: tables as they are set up. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attach.h"
#include "common.h"
#include "plan.h"
#include "report.h"
#include "trail.h"

static struct stint_options options_of(const struct arguments *arguments) {
    struct stint_options options = STINT_OPTIONS_INIT;

    options.path = arguments->file;
    options.max_entries = arguments->max_entries;
    options.shards = arguments->shards;
    options.max_policies = arguments->max_policies;
    options.labels = arguments->labels;
    options.mode = arguments->mode;
    return options;
}

/* What a table has room for, for the log. NULL: it cannot be read. */
static const char *room_said(const struct arguments *arguments, char said[120]) {
    struct stint_options options = STINT_OPTIONS_INIT;
    struct stint_stats stats = STINT_STATS_INIT;
    struct stint_limiter *limiter;

    options.path = arguments->file;
    options.flags = STINT_READ_ONLY;
    if (stint_attach(&options, &limiter) != 0)
        return NULL;
    (void)stint_stats_get(limiter, &stats);
    stint_close(limiter);
    snprintf(said, 120, "%" PRIu64 " entries, %u policies, %" PRIu64 " labels, %u shards",
             stats.max_entries, (unsigned)stats.max_policies, stats.labels, (unsigned)stats.shards);
    return said;
}

/* ---- Policies ---- */

/* Says why a text of policies is wrong: the reason names the line; a caret stands under the
 * character. */
static int wrong_text(const struct arguments *arguments, const char *name, const char *text,
                      const char *wrong) {
    char shown[512], before[512];
    int code = failure(arguments, "%s: %s", name, reason());

    if (wrong == NULL)
        return code;
    const char *line = wrong;
    while (line > text && line[-1] != '\n')
        line--;
    printable(shown, sizeof(shown), line, strcspn(line, "\n"));
    printable(before, sizeof(before), line, (size_t)(wrong - line));
    fprintf(stderr, "    %s\n    %*s^\n", shown, (int)strlen(before), "");
    return code;
}

static const char *name_of(const char *path) {
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

/* Tells what a new or a changed policy hardly means. */
static void note_policy(const struct stint_change *change) {
    struct stint_policy policy = STINT_POLICY_INIT;
    char note[512], name[2 * STINT_NAME_SIZE];

    if (change->text != NULL && change->kind != STINT_POLICY_UNCHANGED &&
        stint_policy_parse(change->text, &policy, NULL) == 0 &&
        stint_policy_note(&policy, note, sizeof(note)) > 0)
        fprintf(stderr, "stint: note: '%s': %s\n",
                printable(name, sizeof(name), change->name, strlen(change->name)), note);
}

/* Of a table that is made with policies. */
static void made_policy(void *context, const struct stint_change *change) {
    note_policy(change);
    if (change->kind != STINT_POLICY_UNCHANGED)
        trail(context, change->name, change->was, change->text);
}

struct told {
    const struct arguments *arguments;
    struct report *report;
    bool removes;            /* a policy */
    const struct plan *plan; /* of a dry run; else NULL */
};

/* Tells programs what a change ends. */
static void tell_ends(struct report *report, const struct planned *planned) {
    static const struct planned nothing;

    planned = planned == NULL ? &nothing : planned;
    report_count(report, "ends_counts", planned->counts);
    report_count(report, "ends_overrides", planned->overrides);
    report_count(report, "ends_bans", planned->bans);
}

static void put_name(FILE *out, const struct stint_policy *policy) {
    char name[2 * STINT_NAME_SIZE];

    fprintf(out, "'%s'", printable(name, sizeof(name), policy->name, strlen(policy->name)));
}

/* Tells people what all changes end, and which policies they leave as they are. */
static void tell_plan(FILE *out, const struct plan *plan) {
    size_t unnamed = 0;
    char a[32], b[32], c[32];

    for (uint32_t id = 0; id < plan->policies.count; id++) {
        const struct planned *of = &plan->of[id];
        if (of->counts + of->overrides + of->bans == 0)
            continue;
        fputs("\nOf ", out);
        put_name(out, &plan->policies.of[id].policy);
        fprintf(out, " end: %s counts, %s overrides, %s bans.\n", grouped(a, of->counts),
                grouped(b, of->overrides), grouped(c, of->bans));
    }
    for (uint32_t id = 0; id < plan->policies.count; id++) {
        if (policies_at(&plan->policies, id) == NULL || plan->of[id].named)
            continue;
        fputs(unnamed++ == 0 ? "\nNot in the text, and left as they are: " : ", ", out);
        put_name(out, &plan->policies.of[id].policy);
    }
    if (unnamed != 0)
        fputs(" (--prune removes them)\n", out);
}

/* Tells programs which policies are left as they are. */
static void tell_unnamed(struct report *report, const struct plan *plan) {
    report_table(report, "not_named");
    for (uint32_t id = 0; id < plan->policies.count; id++)
        if (policies_at(&plan->policies, id) != NULL && !plan->of[id].named) {
            report_row(report);
            report_text(report, "name", plan->policies.of[id].policy.name,
                        strlen(plan->policies.of[id].policy.name));
        }
    report_table_end(report);
}

/* People are told of what is not as it was; programs of all. */
static void tell_change(void *context, const struct stint_change *change) {
    static const char *const kinds[] = {
        [STINT_POLICY_UNCHANGED] = "unchanged", [STINT_POLICY_ADDED] = "added",
        [STINT_POLICY_CHANGED] = "changed",     [STINT_POLICY_REPLACED] = "replaced",
        [STINT_POLICY_REMOVED] = "removed",
    };
    struct told *told = context;
    struct report *report = told->report;
    const char *kind = kinds[change->kind];

    note_policy(change);
    if (change->kind != STINT_POLICY_UNCHANGED && told->plan == NULL)
        trail(told->arguments, change->name, change->was, change->text);
    told->removes |= change->kind == STINT_POLICY_REMOVED;
    if (report_is_text(report) && change->kind == STINT_POLICY_UNCHANGED)
        return;
    report_row(report);
    report_text(report, "name", change->name, strlen(change->name));
    report_text(report, "change", kind, strlen(kind));
    if (change->id != UINT32_MAX)
        report_count(report, "id", change->id);
    else
        report_text(report, "id", NULL, 0); /* it would get one */
    report_count(report, "decided", change->decided);
    report_text(report, "policy", change->text, change->text == NULL ? 0 : strlen(change->text));
    report_text(report, "was", change->was, change->was == NULL ? 0 : strlen(change->was));
    if (told->plan != NULL && !report_is_text(report))
        tell_ends(report, plan_of(told->plan, change->name));
}

/* Applies a text, and says what changed, if that is all that could. */
static int apply_text(const struct arguments *arguments, struct stint_limiter *limiter,
                      const char *text) {
    uint32_t flags = (arguments->dry_run ? (uint32_t)STINT_DRY_RUN : 0) |
                     (arguments->prune ? (uint32_t)STINT_PRUNE : 0);
    const char *wrong = NULL;
    struct report report;
    struct plan plan = {.of = NULL};
    struct told told = {
        .arguments = arguments, .report = &report, .plan = arguments->dry_run ? &plan : NULL};
    char *said;
    size_t size;
    FILE *out = must_have(open_memstream(&said, &size));
    int code = EXIT_GOOD;

    if (arguments->dry_run)
        (void)plan_make(&plan, limiter, text, flags); /* what is wrong, the next says */
    report_begin(&report, out, arguments->json ? REPORT_JSON : REPORT_TEXT);
    report_table(&report, "changes");
    int error = stint_policies_apply(limiter, text, flags, &wrong, tell_change, &told);
    if (error != 0)
        code = wrong_text(arguments, name_of(arguments->text), text, wrong);
    if (report_is_text(&report) && report.rows == 0)
        fputs("nothing changes\n", out);
    report_table_end(&report);
    if (report_is_text(&report) && told.removes)
        fputs("\nServers that ask by the id of a removed policy are refused.\n", out);
    if (!report_is_text(&report))
        report_truth(&report, "dry_run", arguments->dry_run);
    if (arguments->dry_run && report_is_text(&report))
        tell_plan(out, &plan);
    else if (arguments->dry_run)
        tell_unnamed(&report, &plan);
    report_end(&report);
    plan_free(&plan);
    fclose(out);
    if (error == 0 && (fwrite(said, 1, size, stdout) != size || !all_written()))
        code = unwritten(arguments, "the changes");
    free(said);
    return code;
}

int tool_apply(const struct arguments *arguments) {
    struct stint_limiter *limiter = NULL;
    char *text = NULL;
    int code = attach_text(arguments, arguments->text, &text);

    if (code == EXIT_GOOD)
        code = attach(arguments, arguments->dry_run ? STINT_READ_ONLY : 0, &limiter);
    if (code == EXIT_GOOD)
        code = apply_text(arguments, limiter, text);
    free(text);
    stint_close(limiter);
    return code;
}

/* ---- Make ---- */

/* Makes a table and applies the text, if there is one. */
static int make_policies(const struct arguments *arguments, const struct stint_options *options,
                         const char *text, bool told) {
    struct stint_limiter *limiter;
    const char *wrong = NULL;
    const bool there = access(arguments->file, F_OK) == 0;
    char said[120];

    if ((options->path == NULL ? stint_open(options, &limiter)
                               : attach_writer(arguments, stint_open, options, &limiter)) != 0)
        return failure(arguments, "%s", reason());
    if (told && !there)
        trail(arguments, NULL, NULL, room_said(arguments, said));
    int error = text == NULL ? 0
                             : stint_policies_apply(limiter, text, 0, &wrong,
                                                    told ? made_policy : NULL, (void *)arguments);
    int code =
        error == 0 ? EXIT_GOOD : wrong_text(arguments, name_of(arguments->policies), text, wrong);
    stint_close(limiter);
    return code;
}

int tool_make(const struct arguments *arguments) {
    struct stint_options options = options_of(arguments), trial = STINT_OPTIONS_INIT;
    const bool there = access(arguments->file, F_OK) == 0;
    char *text = NULL;
    int code = EXIT_GOOD;

    if (options.max_entries == 0)
        return usage_error(arguments->command->name, "--entries is missing");
    if (arguments->policies !=
        NULL) { /* a wrong text makes no table: it is tried in memory first */
        code = attach_text(arguments, arguments->policies, &text);
        trial.max_entries = 1;
        trial.max_policies = options.max_policies;
        if (code == EXIT_GOOD)
            code = make_policies(arguments, &trial, text, false);
    }
    if (code == EXIT_GOOD)
        code = make_policies(arguments, &options, text, true);
    free(text);
    if (code == EXIT_GOOD && there)
        puts(arguments->policies == NULL
                 ? "the table was there already, and stays as it is"
                 : "the table was there already, and stays as it is but for its policies");
    return code;
}

/* ---- Resize ---- */

/* Whether a number of shards is the one that is chosen for a table of this size. */
static bool shards_chosen(struct stint_options options) {
    struct stint_limiter *limiter;

    options.shards = 0;
    if (stint_open(&options, &limiter) != 0)
        return false;
    stint_close(limiter);
    return true;
}

/* Says by which options the table can be opened now. */
static int tell_options(const struct arguments *arguments) {
    struct stint_stats stats = STINT_STATS_INIT;
    struct stint_limiter *limiter;
    struct report report;
    int code = attach(arguments, STINT_READ_ONLY, &limiter);

    if (code != EXIT_GOOD)
        return code;
    (void)stint_stats_get(limiter, &stats);
    stint_close(limiter);
    struct stint_options options = STINT_OPTIONS_INIT;
    options.path = arguments->file;
    options.flags = STINT_READ_ONLY;
    options.max_entries = stats.max_entries;
    options.max_policies = stats.max_policies;
    options.labels = (uint32_t)stats.labels;
    report_begin(&report, stdout, arguments->json ? REPORT_JSON : REPORT_TEXT);
    report_note(&report, "options", "that servers must open it with now:");
    report_count(&report, "max_entries", stats.max_entries);
    report_count(&report, "max_policies", stats.max_policies);
    report_count(&report, "labels", stats.labels);
    const uint32_t shards = shards_chosen(options) ? 0 : stats.shards;
    if (shards != 0 || arguments->json)
        report_count(&report, "shards", shards);
    report_end(&report);
    return all_written() ? EXIT_GOOD : unwritten(arguments, "the options");
}

int tool_resize(const struct arguments *arguments) {
    struct stint_options options = options_of(arguments);

    char texts[2][120];

    options.path = NULL;
    tell_lock(arguments);
    const char *was = room_said(arguments, texts[0]);
    const int error = stint_resize(arguments->file, &options);
    if (error == 0)
        trail(arguments, NULL, was, room_said(arguments, texts[1]));
    if (error == -EBUSY) /* the library names one at most, and none that only inherited the table */
        return failure(arguments, "%s (stint status names all that have it open)", reason());
    return error != 0 ? failure(arguments, "%s", reason()) : tell_options(arguments);
}
