/* SPDX-License-Identifier: MIT
 * All counts as OpenMetrics text 1.0, which Prometheus scrapes. A family is one thing that is told,
 * by one sample for the table, or some for each policy. Those of counters end in _total. */
#include <limits.h>
#include <string.h>

#include "limiter/counters.h"
#include "policy/check.h"
#include "policy/policy.h"
#include "sys/text.h"
#include "table/parts.h"

/* What a family tells, and of what: first the gauges, then the counters. */
enum family_kind {
    OF_RULES,    /* a number of each policy that has it */
    OF_WINDOWS,  /* one in ns, told in seconds */
    OF_TABLE,    /* a member of struct stint_stats */
    OF_BYTES,    /* one in bytes */
    OF_SLOTS,    /* one that needs a look at every slot */
    OF_TOTALS,   /* a counter among these members; the others are of each policy */
    OF_OUTCOMES, /* the first three counters of each policy */
    OF_POLICIES, /* a counter of each policy */
    OF_BANNING,  /* a counter of its companion */
    OF_RARE,     /* a rare count of each policy */
};

struct family {
    const char *name;
    enum family_kind kind;
    uint32_t value; /* the member, the option (check.h) or the counter */
    const char *help;
};

#define NARROW (UINT32_C(1) << 31) /* beside a member's offset: it has 32 bits */
#define STATS(member)                                                                              \
    (offsetof(struct stint_stats, member) |                                                        \
     (sizeof((struct stint_stats){0}.member) == sizeof(uint32_t) ? NARROW : 0))
#define TABLE(member) OF_TABLE, STATS(member)
#define SLOTS(member) OF_SLOTS, STATS(member)
#define TOTAL(member) OF_TOTALS, STATS(member)

static const struct family families[] = {
    {"stint_table_memory_bytes", OF_BYTES, STATS(memory), "Memory mapped."},
    {"stint_table_slots", TABLE(slots), "Keys that fit, one for each policy that limits it."},
    {"stint_table_used_slots", SLOTS(used), "Slots that ever held a key."},
    {"stint_table_live_slots", SLOTS(live), "Slots that are not free to be reused."},
    {"stint_table_overrides", SLOTS(overrides), "Keys with a limit of their own for a while."},
    {"stint_table_barred_keys", SLOTS(barred), "Of these: refused everything."},
    {"stint_table_banned_keys", SLOTS(banned), "Keys that are banned for having been refused."},
    {"stint_table_max_entries", TABLE(max_entries), "Entries that the table was made for."},
    {"stint_table_processes", TABLE(processes), "Processes that decide by the table."},
    {"stint_table_max_policies", TABLE(max_policies), "Ids that there are for policies."},
    {"stint_table_policy_ids", TABLE(policy_ids), "Of these: that are taken."},
    {"stint_table_gone_policy_ids", TABLE(gone_ids),
     "Of the taken: of policies that were removed or replaced."},
    {"stint_table_labels", TABLE(labels), "Names of keys that there is room for."},
    {"stint_table_used_labels", SLOTS(used_labels), "Of these: that have a key."},
    {"stint_table_max_reach_lines", TABLE(max_reach),
     "Lines that a key may be away from its first."},
    {"stint_table_reach_lines", SLOTS(reach), "Lines that a key was away at most so far."},
    {"stint_table_lost", TABLE(lost),
     "Whether the table's file was cut off while it was open: 1, or 0."},
    {"stint_table_removed", TABLE(removed),
     "Whether the table's file has no name any more: 1, or 0."},
    {"stint_table_placed", TOTAL(placed), "Times that a key was given a slot."},
    {"stint_table_untracked_decisions", TOTAL(untracked),
     "Decisions on keys without a slot, the table being full."},
    {"stint_table_replaced", TOTAL(replaced), "Live keys that lost their slot to another."},
    {"stint_table_clock_steps", TOTAL(clock_steps),
     "Slots and shards started anew after a backward step of the clock."},
    {"stint_table_stray_tokens", TOTAL(stray_tokens),
     "Tokens charged to another key by a thread that slept past a window, as far as seen."},
    {"stint_table_unknown_policy_decisions", TOTAL(unknown_policy),
     "Decisions refused because there was no such policy."},
    {"stint_table_bad_requests", TOTAL(bad_requests),
     "Decisions refused because the request made no sense."},
    {"stint_table_resets", TOTAL(resets), "Keys found and reset."},
    {"stint_policy_limit", OF_RULES, OPTION_LIMIT, "Tokens granted per window, or held at once."},
    {"stint_policy_window_seconds", OF_WINDOWS, OPTION_WINDOW,
     "Length of a window, where all are alike."},
    {"stint_decisions", OF_OUTCOMES, 0,
     "Decisions. Shadowed: let through, but would have been refused."},
    {"stint_near_limit_decisions", OF_POLICIES, COUNT_NEAR_LIMIT,
     "Allowed, with most of the capacity used."},
    {"stint_first_refusals", OF_POLICIES, COUNT_FIRST_REFUSAL,
     "Keys refused, counted once per window."},
    {"stint_untracked_decisions", OF_POLICIES, COUNT_UNTRACKED,
     "Decided without a slot, the table being full."},
    {"stint_charged_tokens", OF_POLICIES, COUNT_CHARGED, "Tokens charged whatever was left."},
    {"stint_refunded_tokens", OF_POLICIES, COUNT_REFUNDED, "Tokens given back."},
    {"stint_lost_refunds", OF_RARE, RARE_REFUND_LOST,
     "Refunds of granted tokens that gave nothing back."},
    {"stint_mistaken_nows", OF_RARE, RARE_NOW_MISTAKEN,
     "Requests whose time was more than two minutes from the clock's, which decided."},
    {"stint_bans", OF_BANNING, COUNT_BANNED, "Times that a key was banned."},
    {"stint_lost_strikes", OF_BANNING, COUNT_STRIKE_LOST,
     "Refusals that did not count for a ban, the table being full."},
    {"stint_policy_burst", OF_RULES, OPTION_BURST, "Tokens that a token bucket holds."},
};

static const char *const outcomes[] = {
    [COUNT_ALLOWED] = "allowed", [COUNT_REFUSED] = "refused", [COUNT_SHADOWED] = "shadowed"};

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

#define LABELS_MAX 1000 /* bytes that the labels of all samples may take */

/* A sample takes less than 256 bytes, with the longest names and numbers, and its labels. */
static_assert((STINT_POLICIES_MAX + 64) * (LENGTH(families) + LENGTH(outcomes)) *
                      (256 + LABELS_MAX) <
                  INT_MAX,
              "the text of all the policies that there can be has a length that is an int");

struct metrics {
    struct text text;
    char labels[LABELS_MAX + 1];   /* a="b",c="d"; empty: none */
    bool told[STINT_POLICIES_MAX]; /* which policies have samples */
};

/* Picks the policies once, so that all families have the same, and no two of them one name. */
static void policies_pick(struct metrics *metrics, const struct stint_limiter *limiter,
                          uint32_t count) {
    for (uint32_t id = 0; id < count; id++) {
        const uint32_t now = stint_limiter_policy_now(limiter, id);
        if (now < count)
            metrics->told[now] = true;
    }
    for (uint32_t id = 0; id < count; id++)
        metrics->told[id] &= limiter_decides_by(limiter, id);
}

/* As OpenMetrics writes it: only these three are escaped. */
static void add_label_value(struct text *text, const char *value) {
    add_letter(text, '"');
    for (; *value != '\0'; value++) {
        if (*value == '"' || *value == '\\')
            add_letter(text, '\\');
        add_text(text, *value == '\n' ? "\\n" : (const char[]){*value, '\0'});
    }
    add_letter(text, '"');
}

/* UTF-8 (RFC 3629): no letter is cut, longer than it need be, a surrogate, or beyond U+10FFFF. */
static bool is_utf8(const char *text) {
    const unsigned char *byte = (const unsigned char *)text;

    while (*byte != '\0') {
        const uint32_t first = *byte++;
        const uint32_t more = first < 0x80 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
        uint32_t letter = more == 0 ? first : first & (0x3fu >> more);
        if (first >= 0x80 && (first < 0xc2 || first > 0xf4))
            return false;
        for (uint32_t i = 0; i < more; i++, byte++) {
            if ((*byte & 0xc0) != 0x80)
                return false;
            letter = letter << 6 | (*byte & 0x3f);
        }
        if ((more == 2 && letter < 0x800) || (more == 3 && letter < 0x10000) || letter > 0x10ffff ||
            letter - 0xd800 < 0x800)
            return false;
    }
    return true;
}

static int labels_write(struct metrics *metrics, const char *const *labels) {
    struct text text = {.buffer = metrics->labels, .size = sizeof(metrics->labels)};

    for (size_t i = 0; labels != NULL && labels[i] != NULL; i += 2) {
        const char *name = labels[i];
        const size_t length =
            strspn(name, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_");
        /* The first letter is there, and no digit. */
        if (name[0] <= '9' || name[length] != '\0' || strcmp(name, "policy") == 0 ||
            strcmp(name, "outcome") == 0)
            return stint_failed(EINVAL,
                                "options.labels has a name that is not [a-zA-Z_][a-zA-Z0-9_]*, or "
                                "is \"policy\" or \"outcome\"");
        if (labels[i + 1] == NULL)
            return stint_failed(EINVAL, "options.labels has a name without a value");
        if (!is_utf8(labels[i + 1]))
            return stint_failed_with(EINVAL, "options.labels: the value of %s is no UTF-8", name);
        for (size_t j = 0; j < i; j += 2)
            if (strcmp(name, labels[j]) == 0)
                return stint_failed(EINVAL, "options.labels has a name twice");
        if (i != 0)
            add_letter(&text, ',');
        add_text(&text, name);
        add_letter(&text, '=');
        add_label_value(&text, labels[i + 1]);
        if (text.length > LABELS_MAX)
            return stint_failed(EINVAL, "options.labels takes more than 1,000 bytes");
    }
    (void)end_text(&text);
    return 0;
}

static void add_about(struct text *text, const char *what, const char *name, const char *about) {
    add_text(text, what);
    add_text(text, name);
    add_letter(text, ' ');
    add_text(text, about);
    add_letter(text, '\n');
}

/* Windows are whole ticks, hundredths of a second. */
static void add_seconds(struct text *text, uint64_t window_ns) {
    uint64_t hundredths = window_ns / STINT_TICK_NS;
    add_number(text, hundredths / 100);
    if (hundredths % 100 != 0) {
        add_letter(text, '.');
        add_number(text, hundredths / 10 % 10);
        add_number(text, hundredths % 10);
    }
}
static_assert(STINT_TICK_NS == 10000000, "a tick is a hundredth of a second");

/* `policy` and `outcome` may be NULL: no such label. */
static void add_sample(struct metrics *metrics, const struct family *family, const char *policy,
                       const char *outcome, uint64_t value) {
    struct text *text = &metrics->text;
    const char *before = "{"; /* a label */

    add_text(text, family->name);
    if (family->kind >= OF_TOTALS)
        add_text(text, "_total");
    if (policy != NULL) {
        add_text(text, "{policy=");
        add_quoted(text, policy);
        before = ",";
    }
    if (outcome != NULL) {
        add_text(text, ",outcome=");
        add_quoted(text, outcome);
    }
    if (metrics->labels[0] != '\0') {
        add_text(text, before);
        add_text(text, metrics->labels);
        before = ",";
    }
    add_text(text, before[0] == ',' ? "} " : " ");
    if (family->kind == OF_WINDOWS)
        add_seconds(text, value);
    else
        add_number(text, value);
    add_letter(text, '\n');
}

static void add_policy(struct metrics *metrics, const struct stint_limiter *limiter,
                       const struct family *family, uint32_t id) {
    const char *name = limiter->records[id].name;
    const uint32_t row = family->kind == OF_BANNING ? limiter_companion(limiter, id) : id;

    if (family->kind == OF_RULES || family->kind == OF_WINDOWS) {
        const struct stint_policy policy = stint_policy_read(limiter, id);
        const uint64_t value = stint_policy_value(&policy, (enum option)family->value);
        if (value != 0)
            add_sample(metrics, family, name, NULL, value);
    } else if (family->kind == OF_OUTCOMES) {
        for (uint32_t i = 0; i < LENGTH(outcomes); i++)
            add_sample(metrics, family, name, outcomes[i], stint_limiter_counted(limiter, id, i));
    } else if (family->kind == OF_RARE) {
        add_sample(metrics, family, name, NULL, limiter_rare(limiter, id, family->value));
    } else if (row != POLICY_NONE) {
        add_sample(metrics, family, name, NULL, stint_limiter_counted(limiter, row, family->value));
    }
}

static void add_families(struct metrics *metrics, const struct stint_limiter *limiter,
                         const struct stint_stats *stats, bool scanned) {
    const uint32_t count = limiter_policy_count(limiter);
    struct text *text = &metrics->text;

    policies_pick(metrics, limiter, count);
    for (size_t i = 0; i < LENGTH(families); i++) {
        const struct family *family = &families[i];
        const bool table = family->kind >= OF_TABLE && family->kind <= OF_TOTALS;
        if (family->kind == OF_SLOTS && !scanned)
            continue;
        add_about(text, "# TYPE ", family->name, family->kind >= OF_TOTALS ? "counter" : "gauge");
        if (family->kind == OF_BYTES || family->kind == OF_WINDOWS)
            add_about(text, "# UNIT ", family->name,
                      family->kind == OF_BYTES ? "bytes" : "seconds");
        add_about(text, "# HELP ", family->name, family->help);
        if (table) {
            const void *member = (const char *)stats + (family->value & ~NARROW);
            add_sample(metrics, family, NULL, NULL,
                       (family->value & NARROW) != 0 ? *(const uint32_t *)member
                                                     : *(const uint64_t *)member);
        }
        for (uint32_t id = 0; !table && id < count; id++)
            if (metrics->told[id])
                add_policy(metrics, limiter, family, id);
    }
}

int stint_metrics(struct stint_limiter *limiter, const struct stint_metrics_options *given,
                  char *buffer, size_t size) {
    struct stint_metrics_options options = STINT_METRICS_OPTIONS_INIT;
    struct metrics metrics = {.text = {.buffer = buffer, .size = size}};
    struct stint_stats stats;

    if (limiter == NULL)
        return stint_failed(EINVAL, "limiter is NULL");
    if (buffer == NULL && size != 0)
        return stint_failed(EINVAL, "buffer is NULL");
    int error = 0;
    if (given != NULL)
        error = stint_struct_read(&options, sizeof(options), given,
                                  SIZE_THROUGH(struct stint_metrics_options, reserved), "options");
    if (error == 0 &&
        (options.flags & ~(uint32_t)(STINT_METRICS_NO_EOF | STINT_METRICS_NO_SCAN)) != 0)
        error = stint_failed(
            EINVAL,
            "options.flags has a flag that is none of enum stint_metrics_flags: leave it out");
    if (error == 0 && options.reserved != 0)
        error = stint_failed(EINVAL, "options.reserved must be 0");
    if (error == 0)
        error = labels_write(&metrics, options.labels);
    if (error != 0)
        return error;
    const bool scan = (options.flags & STINT_METRICS_NO_SCAN) == 0;
    stint_stats_read(limiter, &stats, scan);
    add_families(&metrics, limiter, &stats, scan);
    if ((options.flags & STINT_METRICS_NO_EOF) == 0)
        add_text(&metrics.text, "# EOF\n");
    return end_text(&metrics.text);
}
