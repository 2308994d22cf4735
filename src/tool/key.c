/* SPDX-License-Identifier: MIT
 * stint key: all that a table has of one key. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "attach.h"
#include "common.h"
#include "key_form.h"
#include "report.h"

/* What there is by one policy. What there is not has the end 0. */
struct by_policy {
    struct stint_entry count, limit, strikes; /* limit: an override or a ban */
};

struct asked {
    const struct arguments *arguments;
    struct stint_limiter *limiter;
    struct policies policies;
    stint_key key;
    struct by_policy *of;         /* by the id of the policy */
    struct stint_entry any;       /* one of the entries, for what all have of the label */
    char label[STINT_LABEL_SIZE]; /* that of `any` is gone when it was told */
    size_t entries;
    uint64_t first, last; /* refusals, ns; 0: none is known */
};

/* ---- What there is ---- */

static bool keep(void *context, const struct stint_entry *entry) {
    struct asked *asked = context;

    asked->entries++;
    asked->any = *entry;
    if (entry->label_length != 0)
        memcpy(asked->label, entry->label, entry->label_length);
    if (asked->last < entry->refused_last)
        asked->last = entry->refused_last;
    if ((entry->flags & (STINT_ENTRY_BAN | STINT_ENTRY_STRIKES)) != 0) {
        if (asked->last < entry->since)
            asked->last = entry->since;
        if (asked->first == 0 || asked->first > entry->since)
            asked->first = entry->since;
    }
    if (policies_at(&asked->policies, entry->policy) == NULL)
        return true;
    struct by_policy *of = &asked->of[entry->policy];
    *((entry->flags & STINT_ENTRY_STRIKES) != 0    ? &of->strikes
      : (entry->flags & STINT_ENTRY_OVERRIDE) != 0 ? &of->limit
                                                   : &of->count) = *entry;
    return true;
}

/* ---- What is said ---- */

static void print_time(struct report *report, const char *name, uint64_t ns) {
    if (ns != 0)
        report_time(report, name, ns);
    else
        report_text(report, name, NULL, 0);
}

static void print_word(struct report *report, const char *name, const char *word) {
    report_text(report, name, word, strlen(word));
}

static void print_policy(struct report *report, const struct asked *asked, uint32_t id) {
    const struct policy_here *here = &asked->policies.of[id];
    const struct by_policy *of = &asked->of[id];
    const struct stint_request request = {
        .key = asked->key, .policy = id, .cost = 1, .flags = STINT_PEEK};
    struct stint_verdict verdict;

    (void)stint_decide(asked->limiter, &request, STINT_NOW, &verdict);
    const uint64_t now = stint_now(asked->limiter);
    const bool shadowed = (verdict.flags & STINT_SHADOWED) != 0;
    const bool refused = !verdict.allowed || shadowed;
    const bool banned = (of->limit.flags & STINT_ENTRY_BAN) != 0;
    const uint64_t since = !refused ? 0 : entry_refused_since(banned ? &of->limit : &of->count);
    char text[40], said[60];
    print_word(report, "policy", here->policy.name);
    print_word(report, "notation", here->notation);
    report_limit(report, "limit", verdict.capacity);
    print_word(report, "limit_by", of->limit.end == 0 ? "policy" : entry_kind(&of->limit));
    print_time(report, "until", of->limit.end);
    report_count(report, "used", verdict.used);
    if (report_is_text(report) && verdict.capacity == STINT_LIMIT_MAX)
        report_limit(report, "remaining", verdict.capacity);
    else
        report_count(report, "remaining", verdict.remaining);
    if (report_is_text(report)) {
        snprintf(said, sizeof(said), "%s%s%s", shadowed ? "would be" : "",
                 shadowed && since != 0 ? ", " : "",
                 since != 0  ? since_text(text, since, now)
                 : !refused  ? "no"
                 : !shadowed ? "yes"
                             : "");
        print_word(report, "refused", said);
    } else {
        report_truth(report, "refused", !verdict.allowed);
        report_truth(report, "shadowed", shadowed);
        print_time(report, "since", since);
    }
    print_time(report, "again_at",
               !refused || verdict.retry_after >= STINT_NEVER - 1 ? 0 : now + verdict.retry_after);
    report_count(report, "strikes", of->strikes.used);
}

static void print_key(struct report *report, const struct asked *asked) {
    const bool text = report_is_text(report);

    report_key(report, "key", asked->key);
    if (!text || asked->any.label_length != 0)
        report_text(report, "label", asked->any.label_length == 0 ? NULL : asked->label,
                    asked->any.label_length);
    if (!text || asked->any.refused_windows != 0)
        report_count(report, "refused_windows", asked->any.refused_windows);
    if (!text || asked->first != 0)
        print_time(report, "first_refusal", asked->first);
    if (!text || asked->last != 0)
        print_time(report, "last_refusal", asked->last);
    if (text)
        fputc('\n', report->out);
    report_table(report, "policies");
    for (uint32_t id = 0; id < asked->policies.count; id++) {
        if (policies_at(&asked->policies, id) == NULL)
            continue;
        report_row(report);
        print_policy(report, asked, id);
    }
    report_table_end(report);
}

static int tell(struct asked *asked) {
    struct report report;
    char forms[FORMS_SIZE];

    policies_read(&asked->policies, asked->limiter);
    asked->of = must_have(calloc(asked->policies.count + 1, sizeof(*asked->of)));
    if (stint_each_of(asked->limiter, asked->key, keep, asked) != 0)
        return failure(asked->arguments, "%s", reason());
    if (asked->entries == 0)
        return failure(asked->arguments, "the table has nothing of the key %016" PRIx64 "%s",
                       asked->key.hash,
                       key_forms(asked->arguments, asked->limiter, UINT32_MAX, asked->key, forms));
    report_begin(&report, stdout, asked->arguments->json ? REPORT_JSON : REPORT_TEXT);
    print_key(&report, asked);
    report_end(&report);
    return all_written() ? EXIT_GOOD : unwritten(asked->arguments, "the key");
}

int tool_key(const struct arguments *arguments) {
    struct asked asked = {.arguments = arguments};
    int code = attach(arguments, STINT_READ_ONLY, &asked.limiter);

    if (code != EXIT_GOOD)
        return code;
    code = key_read(arguments, asked.limiter, &asked.key);
    if (code == EXIT_GOOD)
        code = tell(&asked);
    policies_free(&asked.policies);
    free(asked.of);
    stint_close(asked.limiter);
    return code;
}
