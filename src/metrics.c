/* SPDX-License-Identifier: MIT
 * All counts as OpenMetrics text 1.0, which Prometheus scrapes. A family is what is counted; it has
 * one sample for the table, or some for each policy. Samples of counters end in _total, names in
 * their unit where they have one. */
#include <errno.h>
#include <limits.h>

#include "counters.h"
#include "message.h"
#include "text.h"

struct family {
    const char *name;
    const char *type;
    const char *unit; /* NULL: none */
    const char *help;
};

#define COUNTER "counter"
#define GAUGE   "gauge"

static const struct {
    struct family family;
    size_t offset; /* of its value in struct stint_stats */
} table_families[] = {
    {{"stint_table_memory_bytes", GAUGE, "bytes", "Memory mapped."},
     offsetof(struct stint_stats, memory)},
    {{"stint_table_slots", GAUGE, NULL, "Keys that fit, one for each policy that limits it."},
     offsetof(struct stint_stats, slots)},
    {{"stint_table_used_slots", GAUGE, NULL, "Slots that ever held a key."},
     offsetof(struct stint_stats, used)},
    {{"stint_table_live_slots", GAUGE, NULL, "Slots that are not free to be reused."},
     offsetof(struct stint_stats, live)},
    {{"stint_table_placed", COUNTER, NULL, "Times that a key was given a slot."},
     offsetof(struct stint_stats, placed)},
    {{"stint_table_untracked_decisions", COUNTER, NULL,
      "Decisions on keys without a slot, the table being full."},
     offsetof(struct stint_stats, untracked)},
    {{"stint_table_replaced", COUNTER, NULL, "Live keys that lost their slot to another."},
     offsetof(struct stint_stats, replaced)},
    {{"stint_table_clock_steps", COUNTER, NULL,
      "Slots and shards started anew after a backward step of the clock."},
     offsetof(struct stint_stats, clock_steps)},
    {{"stint_table_stray_tokens", COUNTER, NULL,
      "Tokens charged to another key by a thread that slept past a window, as far as seen."},
     offsetof(struct stint_stats, stray_tokens)},
    {{"stint_table_unknown_policy_decisions", COUNTER, NULL,
      "Decisions refused because there was no such policy."},
     offsetof(struct stint_stats, unknown_policy)},
    {{"stint_table_bad_requests", COUNTER, NULL,
      "Decisions refused because the request made no sense."},
     offsetof(struct stint_stats, bad_requests)},
    {{"stint_table_resets", COUNTER, NULL, "Keys found and reset."},
     offsetof(struct stint_stats, resets)},
};

static const struct family limit_family = {"stint_policy_limit", GAUGE, NULL,
                                           "Tokens granted per window."};
static const struct family window_family = {"stint_policy_window_seconds", GAUGE, "seconds",
                                            "Length of a window."};
static const struct family decisions_family = {
    "stint_decisions", COUNTER, NULL,
    "Decisions. Shadowed: let through, but would have been refused."};

static const struct {
    uint32_t counter;
    const char *outcome;
} outcomes[] = {
    {COUNT_ALLOWED, "allowed"},
    {COUNT_REFUSED, "refused"},
    {COUNT_SHADOWED, "shadowed"},
};

static const struct {
    struct family family;
    uint32_t counter;
} policy_families[] = {
    {{"stint_near_limit_decisions", COUNTER, NULL, "Allowed, with most of the capacity used."},
     COUNT_NEAR_LIMIT},
    {{"stint_first_refusals", COUNTER, NULL, "Keys refused, counted once per window."},
     COUNT_FIRST_REFUSAL},
    {{"stint_untracked_decisions", COUNTER, NULL, "Decided without a slot, the table being full."},
     COUNT_UNTRACKED},
    {{"stint_charged_tokens", COUNTER, NULL, "Tokens charged whatever was left."}, COUNT_CHARGED},
    {{"stint_refunded_tokens", COUNTER, NULL, "Tokens given back."}, COUNT_REFUNDED},
};

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* More than a sample takes, with the longest names and numbers; so the length of any text is an
 * int. A policy has a limit and a window besides its counters. */
#define SAMPLE_MAX 256
static_assert((STINT_POLICIES_MAX + 64) * (2 + LENGTH(outcomes) + LENGTH(policy_families)) *
                      SAMPLE_MAX <
                  INT_MAX,
              "the text of all the policies that there can be has a length that is an int");

static void add_about(struct text *text, const char *what, const char *name, const char *about) {
    add_text(text, what);
    add_text(text, name);
    add_letter(text, ' ');
    add_text(text, about);
    add_letter(text, '\n');
}

static void add_family(struct text *text, const struct family *family) {
    add_about(text, "# TYPE ", family->name, family->type);
    if (family->unit != NULL)
        add_about(text, "# UNIT ", family->name, family->unit);
    add_about(text, "# HELP ", family->name, family->help);
}

/* A sample up to its value. `policy` and `outcome` may be NULL: no such label. */
static void add_sample(struct text *text, const struct family *family, const char *policy,
                       const char *outcome) {
    add_text(text, family->name);
    if (family->type[0] == COUNTER[0])
        add_text(text, "_total");
    if (policy != NULL) {
        add_text(text, "{policy=");
        add_quoted(text, policy);
        if (outcome != NULL) {
            add_text(text, ",outcome=");
            add_quoted(text, outcome);
        }
        add_letter(text, '}');
    }
    add_letter(text, ' ');
}

static void add_value(struct text *text, uint64_t value) {
    add_number(text, value);
    add_letter(text, '\n');
}

/* Windows are whole ticks, hundredths of a second. */
static void add_window(struct text *text, uint64_t window_ns) {
    uint64_t hundredths = window_ns / STINT_TICK_NS;
    add_number(text, hundredths / 100);
    if (hundredths % 100 != 0) {
        add_letter(text, '.');
        add_number(text, hundredths / 10 % 10);
        add_number(text, hundredths % 10);
    }
    add_letter(text, '\n');
}
static_assert(STINT_TICK_NS == 10000000, "a tick is a hundredth of a second");

static void add_table(struct text *text, const struct stint_stats *stats) {
    for (size_t i = 0; i < LENGTH(table_families); i++) {
        const char *value = (const char *)stats + table_families[i].offset;
        add_family(text, &table_families[i].family);
        add_sample(text, &table_families[i].family, NULL, NULL);
        add_value(text, *(const uint64_t *)(const void *)value);
    }
}

/* The limits and windows of the first `count` policies. */
static void add_policies(struct text *text, const struct stint_limiter *limiter, uint32_t count) {
    struct stint_policy policy = STINT_POLICY_INIT;

    add_family(text, &limit_family);
    for (uint32_t id = 0; id < count; id++) {
        (void)stint_policy_get(limiter, id, &policy); /* it exists: none is ever removed */
        add_sample(text, &limit_family, policy.name, NULL);
        add_value(text, policy.limit);
    }
    add_family(text, &window_family);
    for (uint32_t id = 0; id < count; id++) {
        (void)stint_policy_get(limiter, id, &policy);
        add_sample(text, &window_family, policy.name, NULL);
        add_window(text, policy.window);
    }
}

static void add_decisions(struct text *text, const struct stint_limiter *limiter, uint32_t count) {
    add_family(text, &decisions_family);
    for (uint32_t id = 0; id < count; id++) {
        for (size_t i = 0; i < LENGTH(outcomes); i++) {
            add_sample(text, &decisions_family, limiter->records[id].name, outcomes[i].outcome);
            add_value(text, stint_limiter_counted(limiter, id, outcomes[i].counter));
        }
    }
    for (size_t i = 0; i < LENGTH(policy_families); i++) {
        add_family(text, &policy_families[i].family);
        for (uint32_t id = 0; id < count; id++) {
            add_sample(text, &policy_families[i].family, limiter->records[id].name, NULL);
            add_value(text, stint_limiter_counted(limiter, id, policy_families[i].counter));
        }
    }
}

int stint_metrics(struct stint_limiter *limiter, char *buffer, size_t size) {
    struct stint_stats stats = STINT_STATS_INIT;
    struct text text = {.buffer = buffer, .size = size};

    if (limiter == NULL)
        return stint_failed(EINVAL, "limiter is NULL");
    if (buffer == NULL && size != 0)
        return stint_failed(EINVAL, "buffer is NULL");
    (void)stint_stats(limiter, &stats); /* its arguments are right */
    add_table(&text, &stats);
    add_policies(&text, limiter, stats.policies);
    add_decisions(&text, limiter, stats.policies);
    add_text(&text, "# EOF\n");
    return end_text(&text);
}
