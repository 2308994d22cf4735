/* SPDX-License-Identifier: MIT
 * stint override: a key's own limit for a while. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "attach.h"
#include "common.h"
#include "key_form.h"
#include "report.h"
#include "trail.h"

/* What limit a key has. */
struct own {
    bool there, ban;
    uint64_t limit, until;
};

struct asked {
    uint32_t policy;
    stint_key key;
    struct own was, is;
    bool used;              /* somebody uses the key by the policy */
    char forms[FORMS_SIZE]; /* others in which somebody has; empty: there are none */
};

static bool keep_was(void *context, const struct stint_entry *entry) {
    struct asked *asked = context;

    if (entry->policy == asked->policy && (entry->flags & STINT_ENTRY_OVERRIDE) != 0)
        asked->was =
            (struct own){true, (entry->flags & STINT_ENTRY_BAN) != 0, entry->limit, entry->end};
    return true;
}

enum { SAID_SIZE = 96 };

static const char *own_said(char said[SAID_SIZE], const struct own *own) {
    char text[40], count[32];

    if (!own->there)
        return "the policy's limit";
    snprintf(said, SAID_SIZE, "%s until %s",
             own->ban                        ? "banned"
             : own->limit == 0               ? "refused everything"
             : own->limit == STINT_LIMIT_MAX ? "unlimited"
                                             : grouped(count, own->limit),
             time_text(text, own->until, ' ', " UTC"));
    return said;
}

static void print_own(struct report *report, const struct own *own, const char *limit,
                      const char *until) {
    if (own->there) {
        report_count(report, limit, own->limit);
        report_count(report, until, own->until);
    } else {
        report_text(report, limit, NULL, 0);
        report_text(report, until, NULL, 0);
    }
}

/* Tells what the key has now, and what it had. */
static void tell(const struct arguments *arguments, const struct stint_limiter *limiter,
                 const struct asked *asked) {
    struct stint_policy policy = STINT_POLICY_INIT;
    struct report report;
    char was[SAID_SIZE], is[SAID_SIZE];

    if (arguments->quiet)
        return;
    if (arguments->json) {
        report_begin(&report, stdout, REPORT_LINE);
        report_key(&report, "key", asked->key);
        report_truth(&report, "overridden", asked->is.there);
        print_own(&report, &asked->is, "limit", "until");
        report_truth(&report, "was_banned", asked->was.ban);
        print_own(&report, &asked->was, "was_limit", "was_until");
        report_truth(&report, "known", asked->used);
        report_end(&report);
        return;
    }
    printf("%s%s%s\n", own_said(is, &asked->is), asked->was.there ? "; it was " : "",
           asked->was.there ? own_said(was, &asked->was) : "");
    if (!asked->used && asked->is.there)
        puts("nobody uses this key now: do servers have it in this form?");
    if (asked->is.there && stint_policy_get(limiter, asked->policy, &policy) == 0 &&
        (policy.flags & STINT_SHADOW) != 0)
        puts("the policy is a shadow, and refuses nobody");
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

/* Sets or ends what was asked for, and keeps what the key had and has. */
static int change(const struct arguments *arguments, struct stint_limiter *limiter,
                  struct asked *asked, uint64_t until) {
    char was[SAID_SIZE], is[SAID_SIZE];
    uint32_t limit = 0;

    if (stint_each_of(limiter, asked->key, keep_was, asked) != 0)
        return failure(arguments, "%s", reason());
    if (!arguments->clear && !arguments->replace && asked->was.there && !asked->was.ban &&
        asked->was.limit != arguments->limit)
        return failure(arguments, "the key has another limit: %s. --replace takes its place",
                       own_said(was, &asked->was));
    const int error = arguments->clear ? stint_override_clear(limiter, asked->policy, asked->key)
                                       : stint_override(limiter, asked->policy, asked->key,
                                                        arguments->limit, until);
    if (error != 0)
        return failure(arguments, "%s%s", reason(), asked->forms);
    asked->is.there =
        stint_override_get(limiter, asked->policy, asked->key, &limit, &asked->is.until) == 0;
    asked->is.limit = limit;
    trail(arguments, arguments->policy, own_said(was, &asked->was), own_said(is, &asked->is));
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
    asked.used = key_used(limiter, asked.policy, asked.key);
    if (!asked.used &&
        *key_forms(arguments, limiter, asked.policy, asked.key, asked.forms) == '\0' &&
        !arguments->clear)
        key_form_of_others(arguments, limiter, asked.policy, asked.key, asked.forms);
    /* A server that has the key in another form goes by that: this would change nothing for it. */
    if (!arguments->clear && *asked.forms != '\0')
        return failure(arguments, "nothing was set: nobody uses the key in this form%s",
                       asked.forms);
    code = change(arguments, limiter, &asked,
                  arguments->until != 0 ? arguments->until : now + arguments->span);
    if (code != EXIT_GOOD)
        return code;
    tell(arguments, limiter, &asked);
    return all_written() ? EXIT_GOOD : unwritten(arguments, "the answer");
}

int tool_override(const struct arguments *arguments) {
    struct stint_limiter *limiter = NULL;
    int code = attach(arguments, 0, &limiter);

    if (code == EXIT_GOOD)
        code = override(arguments, limiter);
    stint_close(limiter);
    return code;
}
