/* SPDX-License-Identifier: MIT
 * stint override: a key's own limit for a while. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "attach.h"
#include "common.h"
#include "key_form.h"
#include "report.h"

struct asked {
    uint32_t policy;
    stint_key key;
    char note[STINT_NOTE_SIZE + 1]; /* empty: none */
    bool used;                      /* somebody uses the key */
    char forms[FORMS_SIZE];         /* others in which somebody has; empty: there are none */
};

/* Reads the note that the key has now. */
static bool read_note(void *context, const struct stint_entry *entry) {
    struct asked *asked = context;

    if (entry->note != NULL && entry->policy == asked->policy)
        snprintf(asked->note, sizeof(asked->note), "%s", entry->note);
    return true;
}

/* Tells what the key has now. */
static void tell(const struct arguments *arguments, const struct stint_limiter *limiter,
                 const struct asked *asked) {
    const size_t note = strlen(asked->note);
    uint32_t limit = 0;
    uint64_t until = 0;
    const bool there = stint_override_get(limiter, asked->policy, asked->key, &limit, &until) == 0;
    struct report report;
    char text[40], count[32];

    if (arguments->quiet)
        return;
    if (arguments->json) {
        report_begin(&report, stdout, REPORT_LINE);
        report_key(&report, "key", asked->key);
        report_truth(&report, "overridden", there);
        if (there) {
            report_count(&report, "limit", limit);
            report_count(&report, "until", until);
        } else {
            report_text(&report, "limit", NULL, 0);
            report_text(&report, "until", NULL, 0);
        }
        report_text(&report, "note", note == 0 ? NULL : asked->note, note);
        report_truth(&report, "known", asked->used);
        report_end(&report);
        return;
    }
    if (!there)
        puts("the policy's limit");
    else if (limit == 0)
        printf("refused everything until %s\n", time_text(text, until, ' ', " UTC"));
    else if (limit == STINT_LIMIT_MAX)
        printf("never refused until %s\n", time_text(text, until, ' ', " UTC"));
    else
        printf("%s until %s\n", grouped(count, limit), time_text(text, until, ' ', " UTC"));
    if (!asked->used && *asked->forms == '\0' && there)
        puts("nobody uses this key now: do servers have it in this form?");
}

/* Whether a time that was given may be one; else says why not. */
static int until_check(const struct arguments *arguments, uint64_t now) {
    const uint64_t until = arguments->until;
    char shown[40], latest[40];

    if (until <= now)
        return usage_error(arguments->command->name, "--until: it is not after now, %s",
                           time_text(shown, now, ' ', " UTC"));
    if (until - now > STINT_WINDOW_MAX)
        return usage_error(
            arguments->command->name,
            "--until: it is more than 366 days from now; the latest is %s",
            time_text(latest, (now + STINT_WINDOW_MAX) / 1000000000 * 1000000000, ' ', " UTC"));
    return EXIT_GOOD;
}

static int override(const struct arguments *arguments, struct stint_limiter *limiter) {
    struct asked asked = {0};
    int code = attach_policy(arguments, limiter, &asked.policy);

    if (code == EXIT_GOOD)
        code = key_read(arguments, limiter, &asked.key);
    const uint64_t now = stint_now(limiter);
    if (code == EXIT_GOOD && arguments->until != 0)
        code = until_check(arguments, now);
    if (code != EXIT_GOOD)
        return code;
    asked.used = key_used(limiter, UINT32_MAX, asked.key);
    if (!asked.used)
        key_forms(arguments, limiter, asked.policy, asked.key, asked.forms);
    const uint64_t until = arguments->until != 0 ? arguments->until : now + arguments->span;
    int error = arguments->clear ? stint_override_clear(limiter, asked.policy, asked.key)
                                 : stint_override_note(limiter, asked.policy, asked.key,
                                                       arguments->limit, until, arguments->note);
    if (error == 0)
        error = stint_each_of(limiter, asked.key, read_note, &asked);
    if (error != 0)
        return failure(arguments, "%s%s", reason(), asked.forms);
    if (arguments->note != NULL && strcmp(arguments->note, asked.note) != 0)
        return failure(arguments, "the limit was set, but the key does not have this note: another "
                                  "process has set a limit of the key meanwhile");
    tell(arguments, limiter, &asked);
    if (!all_written())
        return unwritten(arguments, "the answer");
    /* A server that has the key in another form goes by that: this changed nothing for it. */
    return arguments->clear || *asked.forms == '\0'
               ? EXIT_GOOD
               : failure(arguments, "it was set, but nobody uses the key in this form%s",
                         asked.forms);
}

int tool_override(const struct arguments *arguments) {
    struct stint_limiter *limiter = NULL;
    int code = attach(arguments, 0, &limiter);

    if (code == EXIT_GOOD)
        code = override(arguments, limiter);
    stint_close(limiter);
    return code;
}
