/* SPDX-License-Identifier: MIT */
#include "kinds.h"

#include "limiter/limiter.h" /* for the bytes of the table */
#include "model.h"

const char *const kind_names[KINDS] = {
    "plain",     "rolling",  "reserving", "smooth",  "per key",  "striped",
    "shadowing", "counting", "capped",    "nearing", "by first", "monthly",
    "yearly",    "held",     "banning",   "bucket",  "delaying", "bucket banning"};

static const char *const texts[KINDS] = {
    [PLAIN] = "10/minute",
    [ROLLING] = "10/minute capacity=20",
    [RESERVING] = "10/minute reserve=15",
    [SMOOTH] = "10/minute smooth",
    [PER_KEY] = "10/minute start=per-key",
    [STRIPED] = "10/minute stripes=4",
    [SHADOWING] = "10/minute shadow",
    [COUNTING] = "10/minute count-refused",
    [CAPPED] = "10/minute capacity=6",
    [NEARING] = "10/minute near=50% jitter=10%",
    [BY_FIRST] = "10/minute start=first",
    [MONTHLY] = "10/month start=2024-01-15T09:00:00+05:30",
    [YEARLY] = "10/year",
    [BANNING] = "10/minute ban=1h after=2",
    [HELD] = "10/minute in-flight",
    [BUCKET] = "10/minute burst=10",
    [DELAYING] = "10/minute burst=5 reserve=15",
    [BUCKET_BANNING] = "10/minute burst=10 ban=1h after=2",
};

struct stint_policy kind_policy(enum kind kind) {
    struct stint_policy policy = STINT_POLICY_INIT;
    assert_int_equal(stint_policy_parse(texts[kind], &policy, NULL), 0);
    snprintf(policy.name, sizeof policy.name, "%s", kind_names[kind]);
    return policy;
}

/* Makes it a bucket that fills in time. A limit above 10 million a second is lowered. */
static void draw_bucket(struct stint_policy *policy, bool reserves,
                        uint64_t (*below)(void *source, uint64_t n), void *source) {
    policy->burst = 1;
    if (policy->calendar) /* no policy is both */
        return;
    const uint64_t limit_most = policy->window / 100;
    policy->limit = policy->limit < limit_most ? policy->limit : (uint32_t)limit_most;
    const uint64_t fills = STINT_WINDOW_MAX / token_time(policy),
                   most = 3 * (uint64_t)policy->limit;
    const uint32_t all = (uint32_t)(fills < most ? fills : most);
    policy->start = 0;
    policy->burst = 1 + (uint32_t)below(source, all);
    if (reserves)
        policy->max_reserved = (uint32_t)below(source, all - policy->burst + 1);
}

struct stint_policy kind_drawn(enum kind kind, const struct stint_policy *base,
                               uint64_t (*below)(void *source, uint64_t n), void *source) {
    struct stint_policy policy = *base;
    const uint32_t limit = policy.limit;
    policy.flags |= kind_policy(kind).flags;
    switch (kind) {
    case CAPPED:
        policy.capacity = (uint32_t)below(source, limit) + 1;
        break;
    case ROLLING:
        policy.capacity = limit + 1 + (uint32_t)below(source, 2 * (uint64_t)limit);
        if (below(source, 3) != 0)
            break;
        /* fall through */
    case RESERVING:
        policy.max_reserved = 1 + (uint32_t)below(source, 3 * (uint64_t)limit);
        break;
    case STRIPED:
        policy.stripes = UINT32_C(2) << below(source, 2);
        policy.limit += policy.stripes;
        break;
    case NEARING:
        policy.near_limit = 1 + (uint32_t)below(source, 100);
        policy.jitter = 1 + (uint32_t)below(source, 100);
        break;
    case PER_KEY:
    case BY_FIRST:
    case HELD:
        policy.start = 0;
        break;
    case MONTHLY:
    case YEARLY:
        policy.window = 0;
        policy.calendar = kind == YEARLY ? STINT_CALENDAR_YEAR : STINT_CALENDAR_MONTH;
        policy.offset = below(source, 3) == 0 ? 0 : (int32_t)below(source, 840 + 720 + 1) - 720;
        policy.start += (int64_t)(below(source, 365 * DAY / STINT_TICK_NS) * STINT_TICK_NS);
        while (calendar_start(&policy).tm_mday > 28)
            policy.start += (int64_t)DAY;
        break;
    case BUCKET:
        draw_bucket(&policy, below(source, 3) == 0, below, source);
        break;
    case DELAYING:
        draw_bucket(&policy, true, below, source);
        break;
    case BUCKET_BANNING:
        draw_bucket(&policy, false, below, source);
        /* fall through */
    case BANNING:
        policy.ban = (1 + below(source, 10)) * policy.window;
        policy.ban_after = (uint32_t)below(source, 3);
        break;
    default:
        break;
    }
    return policy;
}

void add_kinds(struct stint_limiter *limiter, enum kind end) {
    for (enum kind kind = PLAIN; kind < end; kind++) {
        struct stint_policy policy = kind_policy(kind);
        policy.flags &= ~(uint32_t)STINT_OVERRIDES;
        policy.ban = policy.ban_after = 0;
        assert_int_equal(add_made(limiter, &policy), kind);
    }
    for (enum kind kind = PLAIN; kind < end; kind++) {
        const struct stint_policy policy = kind_policy(kind);
        change_made(limiter, kind, &policy);
    }
}

struct stint_limiter *open_kinds(uint64_t max_entries, enum stint_on_full on_full) {
    test_time = T0;
    struct stint_limiter *limiter = open_limiter(max_entries, on_full);
    add_kinds(limiter, MINUTES);
    return limiter;
}

struct copied copy_table(const struct stint_limiter *limiter) {
    struct copied copied = {.size = limiter->table.line_count * sizeof(struct line)};
    copied.lines = malloc(copied.size);
    assert_non_null(copied.lines);
    memcpy(copied.lines, limiter->table.lines, copied.size);
    return copied;
}

void assert_untouched(const struct stint_limiter *limiter, struct copied *copied) {
    assert_memory_equal(copied->lines, limiter->table.lines, copied->size);
    free(copied->lines);
}
