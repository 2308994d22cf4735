/* SPDX-License-Identifier: MIT
 * stint top, overrides, bans, dump: the keys of a table, slot by slot. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attach.h"
#include "common.h"
#include "entries.h"
#include "report.h"
#include "screen.h"
#include "trail.h"

/* An entry with a name of its own: the callback's is gone when it returns. */
struct kept {
    struct stint_entry entry;
    uint64_t rank; /* what keys are ordered by */
    char label[STINT_LABEL_SIZE];
};

struct listing {
    const struct arguments *arguments;
    struct stint_limiter *limiter;
    struct policies policies;
    bool chosen; /* one policy only */
    uint32_t policy;
    bool overrides; /* of some policy keys may have limits of their own */
    /* What is listed; of top the first of those so far, and others. */
    struct kept *kept;
    size_t count, room;
    uint64_t least;   /* of top: the rank below which an entry is not among the first */
    bool bans;        /* of overrides and bans, which are meant */
    uint64_t unnamed; /* of those: keys without a name, of which --prefix tells nothing */
    uint64_t *others; /* of those: how many each policy has that was not chosen */
};

static int listing_begin(struct listing *listing, const struct arguments *arguments,
                         uint32_t flags) {
    char said[POLICIES_SAID];

    *listing = (struct listing){.arguments = arguments};
    int code = attach(arguments, flags, &listing->limiter);

    if (code != EXIT_GOOD)
        return code;
    if (arguments->only_policy != NULL) {
        listing->chosen = true;
        if (stint_policy_find(listing->limiter, arguments->only_policy, &listing->policy) != 0) {
            failure(arguments, "--policy '%s': there is no policy of that name: %s",
                    arguments->only_policy, policies_said(listing->limiter, said));
            stint_close(listing->limiter);
            return EXIT_USAGE;
        }
    }
    policies_read(&listing->policies, listing->limiter);
    listing->others = must_have(calloc(listing->policies.count + 1, sizeof(*listing->others)));
    for (uint32_t id = 0; id < listing->policies.count; id++) {
        const struct stint_policy *policy = policies_at(&listing->policies, id);
        listing->overrides |= policy != NULL && (policy->flags & STINT_OVERRIDES) != 0;
    }
    return EXIT_GOOD;
}

static void listing_end(struct listing *listing) {
    policies_free(&listing->policies);
    stint_close(listing->limiter);
    free(listing->kept);
    free(listing->others);
}

static bool wanted(const struct listing *listing, const struct stint_entry *entry) {
    return !listing->chosen || entry->policy == listing->policy;
}

static void print_no_override(struct report *report) {
    report_text(report, "own_limit", NULL, 0);
    report_text(report, "until", NULL, 0);
}

/* The limit of its own that a key has now. */
static void print_override(struct report *report, const struct listing *listing,
                           const struct stint_entry *entry) {
    uint32_t limit;
    uint64_t until;

    if (stint_override_get(listing->limiter, entry->policy, entry->key, &limit, &until) == 0) {
        report_limit(report, "own_limit", limit);
        report_time(report, "until", until);
    } else {
        print_no_override(report);
    }
}

/* Whether the key was refused in the window of its count, or its limit refuses it. */
static bool refused(const struct stint_entry *entry) {
    if ((entry->flags & STINT_ENTRY_OVERRIDE) == 0)
        return (entry->flags & STINT_ENTRY_REFUSED) != 0;
    return entry->limit == 0;
}

/* How a key was refused: since when, if that lasts, and in how many windows, if that is known. How
 * often in a window nothing counts. */
static void print_refused(struct report *report, const struct listing *listing,
                          const struct stint_entry *entry) {
    const uint64_t since = entry_refused_since(entry);
    const uint32_t windows = entry->refused_windows;
    char text[40] = "", said[80], count[32];

    if (!report_is_text(report)) {
        if (windows == 0 && since != 0)
            report_text(report, "refused_windows", NULL, 0);
        else
            report_count(report, "refused_windows", windows);
        if (since != 0)
            report_count(report, "refused_since", since);
        else
            report_text(report, "refused_since", NULL, 0);
        return;
    }
    if (since != 0)
        since_text(text, since, stint_now(listing->limiter));
    snprintf(said, sizeof(said), "%s%s%s%s", text, since != 0 && windows > 1 ? ", in " : "",
             windows > 1 || (windows == 1 && since == 0) ? grouped(count, windows) : "",
             windows > 1                  ? " windows"
             : windows == 1 && since == 0 ? " window"
                                          : "");
    report_text(report, "refused", said, strlen(said));
}

/* What dump and top say of a key. `known`: the policy and the window are those that are meant. */
static void print_entry(struct report *report, const struct listing *listing,
                        const struct stint_entry *entry, bool known) {
    const struct stint_policy *policy =
        known ? policies_at(&listing->policies, entry->policy) : NULL;

    if ((entry->flags & STINT_ENTRY_KEY_STRIPE) == 0)
        report_key(report, "key", entry->key);
    else
        report_text(report, "key", NULL, 0); /* what no request finds */
    report_text(report, "policy", policy == NULL ? NULL : policy->name,
                policy == NULL ? 0 : strlen(policy->name));
    if (known)
        report_count(report, "used", entry->used);
    else
        report_text(report, "used", NULL, 0);
    print_refused(report, listing, entry);
    if (!known) {
        report_text(report, report_is_text(report) ? "anew_in" : "end", NULL, 0);
        if (!report_is_text(report))
            report_truth(report, "refused", false);
    } else if (report_is_text(report)) {
        uint64_t now = stint_now(listing->limiter);
        report_span(report, "anew_in", entry->end > now ? entry->end - now : 0);
    } else {
        report_count(report, "end", entry->end);
        report_truth(report, "refused", refused(entry));
    }
    report_text(report, "label", entry->label, entry->label_length);
    if (listing->overrides && known)
        print_override(report, listing, entry);
    else if (listing->overrides)
        print_no_override(report);
}

/* ---- Dump ---- */

static bool dump_entry(void *context, const struct stint_entry *entry) {
    struct listing *listing = context;
    struct report report;

    if (!wanted(listing, entry))
        return true;
    const char *kind = entry_kind(entry);
    report_begin(&report, stdout, REPORT_LINE);
    report_text(&report, "kind", kind, strlen(kind));
    print_entry(&report, listing, entry, true);
    report_end(&report);
    return !ferror(stdout);
}

int tool_dump(const struct arguments *arguments) {
    enum { BUFFER = 1 << 16 };
    struct listing listing;
    int code = listing_begin(&listing, arguments, STINT_READ_ONLY);

    if (code != EXIT_GOOD)
        return code;
    setvbuf(stdout, NULL, _IOFBF, BUFFER);
    int error = attach_each(listing.limiter, isatty(STDOUT_FILENO) == 0, dump_entry, &listing);
    if (error != 0)
        code = failure(arguments, "%s", reason());
    else if (!all_written())
        code = unwritten(arguments, "the keys");
    listing_end(&listing);
    return code;
}

/* ---- Top ----
 *
 * Names count windows in which a key was refused, by whichever policy. Which one it was, the slots
 * tell: they mark the policies by which the key was refused in its present window, and those by
 * which it is banned. When that is over nobody knows any more. */

enum { REFUSED_BY_IT = STINT_ENTRY_REFUSED | STINT_ENTRY_BAN };

/* What keys are ordered by. A key without a name in the table was refused once at least if it was
 * refused in its present window. */
static uint64_t rank(const struct listing *listing, const struct stint_entry *entry) {
    const enum top_by by = listing->arguments->by;
    const bool override = (entry->flags & STINT_ENTRY_OVERRIDE) != 0;
    const bool refused = (entry->flags & REFUSED_BY_IT) != 0;

    if (by == BY_USED)
        return override ? 0 : entry->used;
    if ((listing->chosen || by == BY_POLICY) && !refused)
        return 0;
    const uint64_t windows = entry->refused_windows != 0 ? entry->refused_windows : refused;
    /* By policy: those of the first one first. */
    return by == BY_POLICY ? (uint64_t)~entry->policy << 32 | windows : windows;
}

static int compare(uint64_t a, uint64_t b) {
    return a < b ? -1 : a > b;
}

/* The largest first; of equals the one that was refused last, then by name. */
static int by_rank(const void *a, const void *b) {
    const struct kept *one = a, *other = b;
    int order = compare(other->rank, one->rank);

    if (order == 0)
        order = compare(other->entry.since, one->entry.since);
    if (order == 0)
        order = compare(one->entry.label_length == 0, other->entry.label_length == 0);
    if (order == 0) /* what is behind a label is 0 */
        order = memcmp(one->label, other->label, sizeof(one->label));
    if (order == 0)
        order = compare(one->entry.key.hash, other->entry.key.hash);
    return order != 0 ? order : compare(one->entry.policy, other->entry.policy);
}

static int by_key(const void *a, const void *b) {
    const struct kept *one = a, *other = b;
    int order = compare(one->entry.key.hash, other->entry.key.hash);

    if (order == 0) /* its name may have been counted in between */
        order = compare(other->entry.since, one->entry.since);
    return order != 0 ? order : by_rank(a, b);
}

/* Leaves the first ones. Of a key that was refused, whose name counts for all policies, one. */
static void keep_first(struct listing *listing) {
    struct kept *kept = listing->kept;
    size_t left = 0;

    if (listing->count == 0)
        return;
    if (listing->arguments->by != BY_USED) {
        qsort(kept, listing->count, sizeof(*kept), by_key);
        for (size_t i = 0; i < listing->count; i++)
            if (left == 0 || !stint_key_equal(kept[i].entry.key, kept[left - 1].entry.key))
                kept[left++] = kept[i];
        listing->count = left;
    }
    qsort(kept, listing->count, sizeof(*kept), by_rank);
    if (listing->count > listing->arguments->number)
        listing->count = (size_t)listing->arguments->number;
    /* Where a key stands once there is nothing else to know of one that has less. */
    if (listing->count == listing->arguments->number && listing->arguments->by == BY_USED)
        listing->least = kept[listing->count - 1].rank;
}

/* Keeps an entry, with its name. */
static void keep(struct listing *listing, const struct stint_entry *entry, uint64_t its_rank) {
    if (listing->count == listing->room) {
        listing->room = listing->room * 2 + 1024;
        listing->kept = must_have(realloc(listing->kept, listing->room * sizeof(*listing->kept)));
    }
    struct kept *kept = &listing->kept[listing->count++];
    *kept = (struct kept){.entry = *entry, .rank = its_rank};
    if (entry->label_length != 0)
        memcpy(kept->label, entry->label, entry->label_length);
}

/* The label of an entry that was kept, which has moved since. */
static void label_again(struct kept *kept) {
    kept->entry.label = kept->entry.label_length == 0 ? NULL : kept->label;
}

static bool top_entry(void *context, const struct stint_entry *entry) {
    enum { MORE = 1024 }; /* than are listed, between two sorts */
    struct listing *listing = context;
    const size_t most = 2 * (size_t)listing->arguments->number + MORE;
    const uint64_t its_rank = rank(listing, entry);

    if (!wanted(listing, entry) || its_rank == 0 || its_rank < listing->least)
        return true;
    if (listing->count == most)
        keep_first(listing);
    keep(listing, entry, its_rank);
    if (listing->least != 0 && by_rank(&listing->kept[listing->count - 1],
                                       &listing->kept[listing->arguments->number - 1]) > 0)
        listing->count--;
    return true;
}

/* A ban's entry is no count: asks for that. */
static void look(const struct listing *listing, struct stint_entry *entry) {
    const struct stint_request request = {
        .key = entry->key, .policy = entry->policy, .flags = STINT_PEEK};
    struct stint_verdict verdict;

    (void)stint_decide(listing->limiter, &request, STINT_NOW, &verdict);
    entry->used = verdict.used;
}

/* The keys that are first, looked at anew where an entry is no count. */
static int top_find(struct listing *listing, bool shown) {
    if (attach_each(listing->limiter, shown, top_entry, listing) != 0)
        return failure(listing->arguments, "%s", reason());
    keep_first(listing);
    for (size_t i = 0; i < listing->count; i++) {
        label_again(&listing->kept[i]);
        if ((listing->kept[i].entry.flags & STINT_ENTRY_BAN) != 0)
            look(listing, &listing->kept[i].entry);
    }
    return EXIT_GOOD;
}

/* The policy and the window of the entry are those that are meant. */
static bool known(const struct listing *listing, const struct stint_entry *entry) {
    return listing->arguments->by == BY_USED || (entry->flags & REFUSED_BY_IT) != 0;
}

static const char *no_keys(const struct arguments *arguments) {
    return arguments->by == BY_USED ? "no key has used anything"
                                    : "no key is known to have been refused";
}

int tool_top(const struct arguments *arguments) {
    struct listing listing;
    struct report report;
    int code = listing_begin(&listing, arguments, STINT_READ_ONLY);

    if (code != EXIT_GOOD)
        return code;
    code = top_find(&listing, true);
    if (code == EXIT_GOOD) {
        report_begin(&report, stdout, arguments->json ? REPORT_JSON : REPORT_TEXT);
        report_table(&report, "top");
        for (size_t i = 0; i < listing.count; i++) {
            report_row(&report);
            print_entry(&report, &listing, &listing.kept[i].entry,
                        known(&listing, &listing.kept[i].entry));
        }
        report_table_end(&report);
        report_end(&report);
        if (listing.count == 0 && !arguments->json)
            puts(no_keys(arguments));
        if (!all_written())
            code = unwritten(arguments, "the keys");
    }
    listing_end(&listing);
    return code;
}

/* ---- The keys of a page ---- */

void looked_free(struct looked *looked) {
    free(looked->kept);
    *looked = (struct looked){.kept = NULL};
}

static int by_key_and_policy(const void *a, const void *b) {
    const struct kept *one = a, *other = b;
    const int order = compare(one->entry.key.hash, other->entry.key.hash);
    return order != 0 ? order : compare(one->entry.policy, other->entry.policy);
}

/* What a key has used in a second since a look that listed it. In another window that is what it
 * has used there. Of a bucket, what came back meanwhile was used as well. */
static bool key_rate(const struct listing *listing, const struct looked *before,
                     const struct kept *kept, double *tokens) {
    const struct kept *then =
        before == NULL || before->count == 0
            ? NULL
            : bsearch(kept, before->kept, before->count, sizeof(*kept), by_key_and_policy);
    const struct stint_policy *policy = policies_at(&listing->policies, kept->entry.policy);
    const double seconds = before == NULL ? 0 : (double)(monotonic_ns() - before->at_ns) / 1e9;

    if (then == NULL || policy == NULL || !known(listing, &then->entry) || seconds <= 0)
        return false;
    double was = (double)then->entry.used;
    if (policy->burst != 0)
        was -= seconds * (double)policy->limit * 1e9 / (double)policy->window;
    else if (then->entry.end != kept->entry.end)
        was = 0;
    was = was > 0 ? was : 0;
    const double used = (double)kept->entry.used;
    *tokens = used > was ? (used - was) / seconds : 0;
    return true;
}

/* A key in a line: by its name, or else its hash. */
static void print_line(struct report *report, const struct listing *listing,
                       const struct looked *before, const struct kept *kept) {
    const struct stint_entry *entry = &kept->entry;
    const bool meant = known(listing, entry);
    const struct stint_policy *policy =
        meant ? policies_at(&listing->policies, entry->policy) : NULL;
    const uint64_t now = stint_now(listing->limiter);
    double tokens;

    report_row(report);
    if (entry->label != NULL)
        report_text(report, "key", entry->label, entry->label_length);
    else if ((entry->flags & STINT_ENTRY_KEY_STRIPE) == 0)
        report_key(report, "key", entry->key);
    else
        report_text(report, "key", NULL, 0);
    report_text(report, "policy", policy == NULL ? NULL : policy->name,
                policy == NULL ? 0 : strlen(policy->name));
    if (before != NULL && before->at_ns != 0 && meant && key_rate(listing, before, kept, &tokens))
        report_rate(report, "used/s", tokens);
    else
        report_text(report, "used/s", NULL, 0);
    if (meant)
        report_count(report, "used", entry->used);
    else
        report_text(report, "used", NULL, 0);
    print_refused(report, listing, entry);
    if (meant)
        report_span(report, "anew in", entry->end > now ? entry->end - now : 0);
    else
        report_text(report, "anew in", NULL, 0);
    if (listing->overrides && meant)
        print_override(report, listing, entry);
    else if (listing->overrides)
        print_no_override(report);
}

int top_page(const struct arguments *arguments, FILE *out, const struct looked *before,
             struct looked *now, unsigned columns) {
    struct listing listing;
    struct report report;
    int code = listing_begin(&listing, arguments, STINT_READ_ONLY);

    if (code != EXIT_GOOD)
        return code;
    code = top_find(&listing, false);
    if (code == EXIT_GOOD) {
        report_begin(&report, out, REPORT_TEXT);
        report.widest = cell_columns(columns);
        report.room = 0; /* lines are cut */
        report_table(&report, "top");
        for (size_t i = 0; i < listing.count; i++)
            print_line(&report, &listing, before, &listing.kept[i]);
        report_table_end(&report);
        report_end(&report);
        if (listing.count == 0)
            fprintf(out, "%s\n", no_keys(arguments));
    }
    if (code == EXIT_GOOD && now != NULL) {
        *now = (struct looked){listing.kept, listing.count, monotonic_ns()};
        if (now->count != 0)
            qsort(now->kept, now->count, sizeof(*now->kept), by_key_and_policy);
        listing.kept = NULL;
    }
    listing_end(&listing);
    return code;
}

/* ---- Overrides and bans ---- */

/* Whether a name, or its first part, is an address in the network, or a network in it. */
static bool in_network(const struct network *network, const char *label, size_t length) {
    unsigned char bytes[16];
    char text[STINT_LABEL_SIZE + 1];
    unsigned i = 0;

    memcpy(text, label, length);
    text[length] = '\0';
    text[strcspn(text, " /")] = '\0';
    if (address_bytes(text, bytes) == 0)
        return false;
    while (i < network->bits && (((bytes[i / 8] ^ network->bytes[i / 8]) >> (7 - i % 8)) & 1) == 0)
        i++;
    return i == network->bits;
}

static bool limit_entry(void *context, const struct stint_entry *entry) {
    struct listing *listing = context;
    const struct arguments *arguments = listing->arguments;

    if ((entry->flags & STINT_ENTRY_OVERRIDE) == 0 ||
        ((entry->flags & STINT_ENTRY_BAN) != 0) != listing->bans)
        return true;
    const bool meant = arguments->network.text == NULL ||
                       (entry->label != NULL &&
                        in_network(&arguments->network, entry->label, entry->label_length));
    if (meant && wanted(listing, entry))
        keep(listing, entry, entry->end);
    else if (meant && entry->policy < listing->policies.count)
        listing->others[entry->policy]++;
    else if (!meant && wanted(listing, entry) && entry->label == NULL)
        listing->unnamed++;
    return true;
}

/* What ends first stands first. */
static int by_end(const void *a, const void *b) {
    const struct kept *one = a, *other = b;
    const int order = compare(one->rank, other->rank);
    return order != 0 ? order : by_rank(a, b);
}

static void print_limits(struct report *report, struct listing *listing) {
    report_table(report, listing->bans ? "bans" : "overrides");
    for (size_t i = 0; i < listing->count; i++) {
        const struct stint_entry *entry = &listing->kept[i].entry;
        const struct stint_policy *policy = policies_at(&listing->policies, entry->policy);
        const char *kind = entry_kind(entry);
        label_again(&listing->kept[i]);
        report_row(report);
        report_key(report, "key", entry->key);
        report_text(report, "policy", policy == NULL ? NULL : policy->name,
                    policy == NULL ? 0 : strlen(policy->name));
        report_text(report, "kind", kind, strlen(kind));
        if (listing->bans)
            report_time(report, "since", entry->since);
        else
            report_limit(report, "limit", entry->limit);
        report_time(report, "until", entry->end);
        if (!report_is_text(report))
            report_truth(report, "refused", refused(entry));
        report_text(report, "label", entry->label, entry->label_length);
    }
    report_table_end(report);
}

/* What of the table is meant: overrides or bans. Returns the exit code, which is that of failure if
 * --prefix could not tell of any. */
static int limits_find(struct listing *listing) {
    char count[32];

    if (attach_each(listing->limiter, true, limit_entry, listing) != 0)
        return failure(listing->arguments, "%s", reason());
    if (listing->count == 0 && listing->unnamed != 0)
        return failure(listing->arguments,
                       "--prefix goes by names, and the table has none of %s such keys (see stint "
                       "resize --labels)",
                       grouped(count, listing->unnamed));
    if (listing->count != 0)
        qsort(listing->kept, listing->count, sizeof(*listing->kept), by_end);
    return EXIT_GOOD;
}

static void print_unnamed(struct report *report, const struct listing *listing) {
    char count[32];

    if (!report_is_text(report))
        report_count(report, "unnamed", listing->unnamed);
    else if (listing->unnamed != 0)
        fprintf(report->out, "%s more have no name, by which --prefix goes\n",
                grouped(count, listing->unnamed));
}

/* That there is none; and what others have of policies, if one was chosen. To be freed. */
static char *none_said(const struct listing *listing) {
    const char *between = "; ", *chosen = listing->arguments->only_policy;
    char count[32], name[4 * STINT_NAME_SIZE], *said;
    size_t size;
    FILE *out = must_have(open_memstream(&said, &size));

    fputs(listing->bans ? "no key is banned" : "no key has a limit of its own", out);
    if (chosen != NULL)
        fprintf(out, " by '%s'", printable(name, sizeof(name), chosen, strlen(chosen)));
    for (uint32_t id = 0; id < listing->policies.count; id++) {
        const struct stint_policy *policy = policies_at(&listing->policies, id);
        if (listing->others[id] == 0 || policy == NULL)
            continue;
        fprintf(out, "%s%s by '%s'", between, grouped(count, listing->others[id]),
                printable(name, sizeof(name), policy->name, strlen(policy->name)));
        between = ", ";
    }
    fclose(out);
    return said;
}

static int limits(const struct arguments *arguments, bool bans) {
    struct listing listing;
    struct report report;
    char *said;
    int code = listing_begin(&listing, arguments, STINT_READ_ONLY);

    if (code != EXIT_GOOD)
        return code;
    listing.bans = bans;
    code = limits_find(&listing);
    if (code == EXIT_GOOD) {
        report_begin(&report, stdout, arguments->json ? REPORT_JSON : REPORT_TEXT);
        print_limits(&report, &listing);
        if (listing.count == 0 && !arguments->json) {
            puts(said = none_said(&listing));
            free(said);
        }
        print_unnamed(&report, &listing);
        report_end(&report);
        if (!all_written())
            code = unwritten(arguments, "the keys");
    }
    listing_end(&listing);
    return code;
}

/* stint reset --banned. */
int reset_banned(const struct arguments *arguments) {
    struct listing listing;
    struct report report;
    uint64_t count = 0;
    char bans[64], keys[48], *said;
    int code;

    if (arguments->hex || arguments->hash || arguments->address || arguments->id || arguments->name)
        return usage_error(arguments->command->name,
                           "--banned goes without KEYs, and without what says what they are");
    code = listing_begin(&listing, arguments, 0);
    if (code != EXIT_GOOD)
        return code;
    listing.bans = true;
    code = limits_find(&listing);
    for (size_t i = 0; i < listing.count; i++)
        count +=
            stint_reset(listing.limiter, listing.kept[i].entry.policy, listing.kept[i].entry.key);
    if (code == EXIT_GOOD && count == 0) {
        code = failure(arguments, "%s", said = none_said(&listing));
        free(said);
    }
    snprintf(bans, sizeof(bans), "banned: %s", counted(keys, count, "key"));
    if (count != 0)
        trail(arguments, arguments->only_policy, bans, NULL);
    if (code == EXIT_GOOD && !arguments->quiet) {
        report_begin(&report, stdout, arguments->json ? REPORT_LINE : REPORT_TEXT);
        report_count(&report, arguments->json ? "reset" : "bans_lifted", count);
        print_unnamed(&report, &listing);
        report_end(&report);
        if (!all_written())
            code = unwritten(arguments, "the answer");
    }
    listing_end(&listing);
    return code;
}

int tool_overrides(const struct arguments *arguments) {
    return limits(arguments, false);
}

int tool_bans(const struct arguments *arguments) {
    return limits(arguments, true);
}
