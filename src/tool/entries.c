/* SPDX-License-Identifier: MIT
 * stint top, dump: the keys of a table, slot by slot. */
#include <stdlib.h>
#include <string.h>

#include "attach.h"
#include "common.h"
#include "report.h"

enum { LABEL_BYTES = 256 };

/* An entry with a name of its own: the callback's is gone when it returns. */
struct kept {
    struct stint_entry entry;
    char label[LABEL_BYTES];
};

struct listing {
    const struct arguments *arguments;
    struct stint_limiter *limiter;
    struct policies policies;
    bool chosen; /* one policy only */
    uint32_t policy;
    bool overrides; /* of some policy keys may have limits of their own */
    /* Of top: the largest so far, a heap whose first is the smallest of them. */
    struct kept *heap;
    size_t count, room;
};

static int listing_begin(struct listing *listing, const struct arguments *arguments) {
    *listing = (struct listing){.arguments = arguments};
    int code = attach(arguments, STINT_READ_ONLY, &listing->limiter);

    if (code != EXIT_GOOD)
        return code;
    if (arguments->only_policy != NULL) {
        listing->chosen = true;
        if (stint_policy_find(listing->limiter, arguments->only_policy, &listing->policy) != 0) {
            code = failure(arguments, "--policy '%s': there is no policy of that name",
                           arguments->only_policy);
            stint_close(listing->limiter);
            return code;
        }
    }
    policies_read(&listing->policies, listing->limiter);
    for (uint32_t id = 0; id < listing->policies.count; id++) {
        const struct stint_policy *policy = policies_at(&listing->policies, id);
        listing->overrides |= policy != NULL && (policy->flags & STINT_OVERRIDES) != 0;
    }
    return EXIT_GOOD;
}

static void listing_end(struct listing *listing) {
    policies_free(&listing->policies);
    stint_close(listing->limiter);
    free(listing->heap);
}

static bool wanted(const struct listing *listing, const struct stint_entry *entry) {
    return !listing->chosen || entry->policy == listing->policy;
}

/* The limit of its own that a key has now. */
static void print_override(struct report *report, const struct listing *listing,
                           const struct stint_entry *entry) {
    uint32_t limit;
    uint64_t until;

    if (stint_override_get(listing->limiter, entry->policy, entry->key, &limit, &until) == 0) {
        report_count(report, "own_limit", limit);
        report_time(report, "until", until);
    } else {
        report_text(report, "own_limit", NULL, 0);
        report_text(report, "until", NULL, 0);
    }
}

/* What dump and top say of a key. */
static void print_entry(struct report *report, const struct listing *listing,
                        const struct stint_entry *entry) {
    const struct stint_policy *policy = policies_at(&listing->policies, entry->policy);

    if ((entry->flags & (STINT_ENTRY_KEY_PART | STINT_ENTRY_KEY_STRIPE)) == 0)
        report_key(report, "key", entry->key);
    else
        report_text(report, "key", NULL, 0); /* what no request finds */
    report_text(report, "policy", policy == NULL ? NULL : policy->name,
                policy == NULL ? 0 : strlen(policy->name));
    report_count(report, "used", entry->used);
    report_count(report, "refused_windows", entry->refused_windows);
    if (report_is_text(report)) {
        uint64_t now = stint_now(listing->limiter);
        report_span(report, "ends_in", entry->end > now ? entry->end - now : 0);
    } else {
        report_count(report, "end", entry->end);
        report_truth(report, "refused", (entry->flags & STINT_ENTRY_REFUSED) != 0);
    }
    report_text(report, "label", entry->label, entry->label_length);
    if (listing->overrides)
        print_override(report, listing, entry);
}

/* ---- Dump ---- */

static bool dump_entry(void *context, const struct stint_entry *entry) {
    struct listing *listing = context;
    struct report report;

    if (!wanted(listing, entry))
        return true;
    report_begin(&report, stdout, REPORT_LINE);
    print_entry(&report, listing, entry);
    report_end(&report);
    return !ferror(stdout);
}

int tool_dump(const struct arguments *arguments) {
    enum { BUFFER = 1 << 16 };
    struct listing listing;
    int code = listing_begin(&listing, arguments);

    if (code != EXIT_GOOD)
        return code;
    setvbuf(stdout, NULL, _IOFBF, BUFFER);
    int error = stint_each(listing.limiter, dump_entry, &listing);
    if (error != 0)
        code = failure(arguments, "%s", stint_reason());
    else if (!all_written())
        code = failure(arguments, "the keys cannot be written");
    listing_end(&listing);
    return code;
}

/* ---- Top ---- */

/* What keys are ordered by. A key without a name in the table was refused once at least if it was
 * refused in its present window. */
static uint64_t rank(const struct listing *listing, const struct stint_entry *entry) {
    if (!listing->arguments->by_refused)
        return entry->used;
    return entry->refused_windows != 0 ? entry->refused_windows
                                       : (entry->flags & STINT_ENTRY_REFUSED) != 0;
}

/* Whether `a` stands behind `b`: of equals that of the larger key. */
static bool behind(const struct listing *listing, const struct stint_entry *a,
                   const struct stint_entry *b) {
    uint64_t of_a = rank(listing, a), of_b = rank(listing, b);

    if (of_a != of_b)
        return of_a < of_b;
    return a->key != b->key ? a->key > b->key : a->policy > b->policy;
}

/* A name is copied when it is kept, as the library's is gone after the call. */
static void keep(struct kept *kept, const struct stint_entry *entry) {
    size_t length = entry->label_length < LABEL_BYTES ? entry->label_length : LABEL_BYTES;

    kept->entry = *entry;
    kept->entry.label_length = (uint32_t)length;
    if (entry->label != NULL)
        memcpy(kept->label, entry->label, length);
}

static void heap_swap(struct kept *a, struct kept *b) {
    struct kept kept = *a;

    *a = *b;
    *b = kept;
}

/* Moves the entry at `at` to its place among those below it. */
static void heap_down(struct listing *listing, size_t at, size_t count) {
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        struct kept *heap = listing->heap;
        if (child + 1 < count && behind(listing, &heap[child + 1].entry, &heap[child].entry))
            child++;
        if (!behind(listing, &heap[child].entry, &heap[at].entry))
            return;
        heap_swap(&heap[at], &heap[child]);
    }
}

static void heap_up(struct listing *listing, size_t at) {
    for (; at > 0; at = (at - 1) / 2) {
        struct kept *parent = &listing->heap[(at - 1) / 2];
        if (!behind(listing, &listing->heap[at].entry, &parent->entry))
            return;
        heap_swap(&listing->heap[at], parent);
    }
}

static bool top_entry(void *context, const struct stint_entry *entry) {
    struct listing *listing = context;

    if (!wanted(listing, entry) || rank(listing, entry) == 0 ||
        (entry->flags & STINT_ENTRY_OVERRIDE) != 0)
        return true;
    if (listing->count < listing->arguments->number) {
        if (listing->count == listing->room) {
            listing->room = 2 * listing->room + 16;
            listing->heap =
                must_have(realloc(listing->heap, listing->room * sizeof(*listing->heap)));
        }
        keep(&listing->heap[listing->count], entry);
        heap_up(listing, listing->count++);
    } else if (behind(listing, &listing->heap[0].entry, entry)) {
        keep(&listing->heap[0], entry);
        heap_down(listing, 0, listing->count);
    }
    return true;
}

/* The largest first. */
static void heap_sort(struct listing *listing) {
    for (size_t left = listing->count; left > 1; left--) {
        heap_swap(&listing->heap[0], &listing->heap[left - 1]);
        heap_down(listing, 0, left - 1);
    }
}

int tool_top(const struct arguments *arguments) {
    struct listing listing;
    struct report report;
    int code = listing_begin(&listing, arguments);

    if (code != EXIT_GOOD)
        return code;
    if (stint_each(listing.limiter, top_entry, &listing) != 0)
        code = failure(arguments, "%s", stint_reason());
    if (code == EXIT_GOOD) {
        heap_sort(&listing);
        report_begin(&report, stdout, arguments->json ? REPORT_JSON : REPORT_TEXT);
        report_table(&report, "top");
        for (size_t i = 0; i < listing.count; i++) {
            struct kept *kept = &listing.heap[i];
            kept->entry.label = kept->entry.label_length == 0 ? NULL : kept->label;
            report_row(&report);
            print_entry(&report, &listing, &kept->entry);
        }
        report_table_end(&report);
        report_end(&report);
        if (!all_written())
            code = failure(arguments, "the keys cannot be written");
    }
    listing_end(&listing);
    return code;
}
