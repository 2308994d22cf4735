/* SPDX-License-Identifier: MIT
 * stint take, peek, charge, reset: what one key has, and what is done about it. */
#include <stdio.h>
#include <string.h>

#include "attach.h"
#include "common.h"
#include "key_form.h"
#include "report.h"
#include "trail.h"

enum access { READS, WRITES };

struct decision {
    const struct arguments *arguments;
    struct stint_limiter *limiter;
    uint32_t policy;
    stint_key key;
    enum access access;
    bool used;                /* somebody used the key before */
    struct stint_policy rule; /* the policy's own */
    struct stint_request request;
    struct stint_verdict verdict;
};

/* It counts what is held. */
static bool in_flight(const struct decision *decision) {
    return (decision->rule.flags & STINT_IN_FLIGHT) != 0;
}

/* What a request of these flags and this cost is answered. */
static void decide(struct decision *decision, uint32_t flags, uint32_t cost) {
    decision->request = (struct stint_request){.key = decision->key,
                                               .policy = decision->policy,
                                               .cost = cost,
                                               .limit = decision->arguments->limit,
                                               .burst = decision->arguments->burst,
                                               .flags = flags};
    stint_decide(decision->limiter, &decision->request, STINT_NOW, &decision->verdict);
}

/* ---- What is said ---- */

static void print_flags(struct report *report, uint32_t flags) {
    static const char *const names[] = {"first_refusal",  "shadowed",    "untracked",   "replaced",
                                        "unknown_policy", "near_limit",  "bad_request", "banned",
                                        "overridden",     "mistaken_now"};

    report_table(report, "flags");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if ((flags >> i & 1) != 0)
            report_item(report, names[i]);
    report_table_end(report);
}

/* All of the verdict, in the numbers that the library gives. */
static void print_json(const struct decision *decision) {
    const struct stint_verdict *verdict = &decision->verdict;
    struct report report;

    report_begin(&report, stdout, REPORT_LINE);
    report_truth(&report, "allowed", verdict->allowed);
    report_key(&report, "key", decision->key);
    report_text(&report, "policy", decision->rule.name, strlen(decision->rule.name));
    report_count(&report, "capacity", verdict->capacity);
    report_count(&report, "used", verdict->used);
    report_count(&report, "remaining", verdict->remaining);
    report_count(&report, "granted", verdict->granted);
    report_count(&report, "window", verdict->window);
    report_span(&report, "reset_after", verdict->reset_after);
    report_span(&report, "retry_after", verdict->retry_after);
    print_flags(&report, verdict->flags);
    report_truth(&report, "known", decision->used);
    report_end(&report);
}

/* The verdict in a line. */
static void print_text(const struct decision *decision) {
    const struct stint_verdict *verdict = &decision->verdict;
    char a[32], b[32], span[40];

    if ((verdict->flags & STINT_UNTRACKED) != 0) {
        printf("%s: the table is full, and nothing was counted\n",
               verdict->allowed ? "allowed" : "refused");
        return;
    }
    const bool unlimited = verdict->capacity == STINT_LIMIT_MAX;
    printf("%s: %s%s%s %s%s", verdict->allowed ? "allowed" : "refused", grouped(a, verdict->used),
           unlimited ? "" : " of ", unlimited ? "" : grouped(b, verdict->capacity),
           in_flight(decision) ? "held" : "used", unlimited ? ", unlimited" : "");
    if ((verdict->flags & STINT_SHADOWED) != 0)
        printf(", the policy is a shadow and would have refused it");
    if ((verdict->flags & STINT_BANNED) != 0)
        printf(", banned");
    else if ((verdict->flags & STINT_OVERRIDDEN) != 0)
        printf(", by a limit of its own");
    if (!verdict->allowed && verdict->retry_after == STINT_NEVER)
        printf(", and the cost is more than can ever fit");
    else if (!verdict->allowed)
        printf(", try again in %s%s", in_flight(decision) ? "at most " : "",
               span_text(span, verdict->retry_after));
    else if (decision->rule.burst != 0 && verdict->reset_after == 0)
        printf(", full");
    else if (!in_flight(decision)) /* those are forgotten one by one */
        printf(", %s in %s", decision->rule.burst != 0 ? "full" : "anew",
               span_text(span, verdict->reset_after));
    puts(decision->access == READS && !decision->used ? "; nobody uses this key now" : "");
}

/* Says what came out. Returns whether it could be written. */
static bool tell(const struct decision *decision) {
    if (decision->arguments->quiet)
        return true;
    if (decision->arguments->json)
        print_json(decision);
    else
        print_text(decision);
    return all_written();
}

/* ---- What is done ---- */

/* Attaches, and finds policy and key. */
static int begin(struct decision *decision, const struct arguments *arguments, enum access access) {
    *decision =
        (struct decision){.arguments = arguments, .access = access, .rule = STINT_POLICY_INIT};
    int code = attach(arguments, access == READS ? STINT_READ_ONLY : 0, &decision->limiter);
    if (code == EXIT_GOOD)
        code = attach_policy(arguments, decision->limiter, &decision->policy);
    if (code == EXIT_GOOD)
        code = key_read(arguments, decision->limiter, &decision->key);
    if (code == EXIT_GOOD) {
        (void)stint_policy_get(decision->limiter, decision->policy, &decision->rule);
        decision->used = key_used(decision->limiter, UINT32_MAX, decision->key);
    } else {
        stint_close(decision->limiter);
    }
    return code;
}

/* The exit code, when all is done. */
static int end(const struct decision *decision, int code) {
    if ((decision->verdict.flags & STINT_BAD_REQUEST) != 0 &&
        stint_request_check(decision->limiter, &decision->request) != 0) {
        stint_close(decision->limiter);
        return failure(decision->arguments, "%s", reason());
    }
    const bool told = tell(decision);

    stint_close(decision->limiter);
    return told ? code : unwritten(decision->arguments, "the answer");
}

/* A refused key gets its name in the table, if that has room for names: once in a window. */
static void label(const struct decision *decision) {
    const struct arguments *arguments = decision->arguments;
    char name[256];
    size_t length = 0;

    if ((decision->verdict.flags & STINT_FIRST_REFUSAL) == 0 || arguments->hash || arguments->name)
        return;
    for (size_t i = 0; i < arguments->key_count; i++) {
        size_t part = strlen(arguments->keys[i]), room = sizeof(name) - length;
        if (i > 0 && room > 0) {
            name[length++] = ' ';
            room--;
        }
        part = part < room ? part : room;
        memcpy(name + length, arguments->keys[i], part);
        length += part;
    }
    stint_label(decision->limiter, decision->key, name, length);
}

int tool_take(const struct arguments *arguments) {
    struct decision decision;
    int code = begin(&decision, arguments, WRITES);

    if (code != EXIT_GOOD)
        return code;
    decide(&decision, arguments->partial ? STINT_PARTIAL : 0, arguments->cost);
    label(&decision);
    return end(&decision, decision.verdict.allowed ? 0 : 1);
}

/* Tells whoever looks at the wrong form of a key. */
static void note_forms(const struct decision *decision) {
    char forms[FORMS_SIZE] = "";

    if (!decision->used && !decision->arguments->quiet)
        key_forms(decision->arguments, decision->limiter, decision->policy, decision->key, forms);
    if (*forms != '\0')
        fprintf(stderr, "stint: note: nobody uses this key now%s\n", forms);
}

int tool_peek(const struct arguments *arguments) {
    struct decision decision;
    int code = begin(&decision, arguments, READS);

    if (code != EXIT_GOOD)
        return code;
    note_forms(&decision);
    decide(&decision, STINT_PEEK, arguments->cost);
    return end(&decision, decision.verdict.allowed ? 0 : 1);
}

#define HELD_BY_NOBODY                                                                             \
    "a charge does not go with an in-flight policy: nobody would hold what it takes"

int tool_charge(const struct arguments *arguments) {
    struct stint_policy policy = STINT_POLICY_INIT;
    struct decision decision;

    /* Before it is added. */
    if (stint_policy_parse(arguments->policy, &policy, NULL) == 0 &&
        (policy.flags & STINT_IN_FLIGHT) != 0)
        return failure(arguments, HELD_BY_NOBODY);
    int code = begin(&decision, arguments, WRITES);

    if (code != EXIT_GOOD)
        return code;
    if (in_flight(&decision)) {
        stint_close(decision.limiter);
        return failure(arguments, HELD_BY_NOBODY);
    }
    decide(&decision, STINT_CHARGE, arguments->cost);
    return end(&decision,
               (decision.verdict.flags & STINT_UNTRACKED) == 0 ? EXIT_GOOD : EXIT_FAILED);
}

/* What a reset leaves: a limit that was set by hand and refuses everything; empty: none. */
static const char *barred(const struct decision *decision, char said[160]) {
    uint32_t limit = 1;
    uint64_t until;
    char text[40];

    *said = '\0';
    if (stint_override_get(decision->limiter, decision->policy, decision->key, &limit, &until) ==
            0 &&
        limit == 0)
        snprintf(said, 160,
                 "the key is refused everything until %s by a limit that was set by hand: stint "
                 "override --clear ends that",
                 time_text(text, until, ' ', " UTC"));
    return said;
}

/* Says why there was nothing to forget. */
static int nothing(const struct decision *decision) {
    char forms[FORMS_SIZE] = "", by_hand[160];

    if (!decision->used)
        key_forms(decision->arguments, decision->limiter, decision->policy, decision->key, forms);
    barred(decision, by_hand);
    return failure(decision->arguments,
                   "the key had nothing to forget: nothing that it used of '%s' still counts, and "
                   "it has no ban and no strikes%s%s%s",
                   decision->rule.name, forms, *by_hand == '\0' ? "" : ". But ", by_hand);
}

/* What the verdict tells of a key's count, for the log. */
static void said_of(const struct decision *decision, char said[40]) {
    snprintf(said, 40, "%u used%s", (unsigned)decision->verdict.used,
             (decision->verdict.flags & STINT_BANNED) != 0 ? ", banned" : "");
}

int tool_reset(const struct arguments *arguments) {
    struct decision decision;
    char by_hand[160], was[40], is[40];

    if (arguments->banned)
        return reset_banned(arguments);
    if (arguments->only_policy != NULL || arguments->network.text != NULL)
        return usage_error(arguments->command->name, "--policy and --prefix go with --banned");
    int code = begin(&decision, arguments, WRITES);

    if (code != EXIT_GOOD)
        return code;
    decide(&decision, STINT_PEEK, 0);
    said_of(&decision, was);
    if (!stint_reset(decision.limiter, decision.policy, decision.key)) {
        code = nothing(&decision);
        stint_close(decision.limiter);
        return code;
    }
    if (*barred(&decision, by_hand) != '\0')
        fprintf(stderr, "stint: note: %s\n", by_hand);
    decide(&decision, STINT_PEEK, 0);
    said_of(&decision, is);
    trail(arguments, decision.rule.name, was, is);
    return end(&decision, EXIT_GOOD);
}
