/* SPDX-License-Identifier: MIT
 * Windows that are not all alike: weeks, months and years of the calendar, and windows that begin
 * with a key's first request; and what goes together with what. (The calendar's arithmetic is
 * compared with the C library's.) */
#include "fixture.h"
#include "limiter/limiter.h"
#include "model.h"
#include "random.h"

#include <time.h>

static struct random draws = {11};

static uint64_t below(uint64_t n) {
    return random_below(&draws, n);
}

/* ---- The calendar's arithmetic -------------------------------------------------------------- */

/* Every day that 64 bits of ns since the epoch reach, and those to which a start reaches back. */
TEST(test_every_day) {
    for (int64_t day = -107000; day < 215000; day++) {
        time_t seconds = day * 86400;
        struct tm tm;
        gmtime_r(&seconds, &tm);
        int64_t month = day_month(day);
        assert_int_equal(month_day(month), day - (tm.tm_mday - 1));
        /* From March of the year 0 on. */
        assert_int_equal(month, ((int64_t)tm.tm_year + 1900) * 12 + tm.tm_mon - 2);
        assert_int_equal(month_into(day * TICKS_IN_DAY + 7), (tm.tm_mday - 1) * TICKS_IN_DAY + 7);
    }
}

/* Nonsense in a table that somebody wrote over ends, too. */
TEST(test_any_day) {
    for (int i = 0; i < 100000; i++) {
        int64_t day = (int64_t)below(UINT64_C(1) << 40) - (INT64_C(1) << 39);
        int64_t month = day_month(day);
        assert_true(month_day(month) <= day && day < month_day(month + 1));
        int64_t days = month_day(month + 1) - month_day(month);
        assert_true(days >= 28 && days <= 31);
    }
}

enum { MONTHLY = STINT_CALENDAR_MONTH, YEARLY = STINT_CALENDAR_YEAR };

/* At the border of what a field may be, and beyond it: refused when it is added, changed to or
 * written as text, with the field in the reason. */
TEST(test_policies) {
#define AT(length, ...)                                                                            \
    { .window = length, __VA_ARGS__ }
#define OF(...) AT(MINUTE, __VA_ARGS__)
#define BY(...)                                                                                    \
    { .limit = 10, .calendar = __VA_ARGS__ }
#define BAN(...)                                                                                   \
    { .window = MINUTE, .limit = 10, .flags = STINT_OVERRIDES, __VA_ARGS__ }
    enum { MOST = STINT_LIMIT_MAX };
    static const struct {
        const char *word; /* of the reason; NULL: it is valid */
        struct stint_policy policy;
    } cases[] = {
        {NULL, AT(STINT_WINDOW_MIN, .limit = 1, .start = -10000000)},
        {NULL, AT(STINT_WINDOW_MAX, .limit = MOST, .start = INT64_MAX / 10000000 * 10000000,
                  .flags = STINT_COUNT_REFUSED | STINT_SHADOW)},
        {"policy.limit", OF(.limit = 0)},
        {"policy.limit", OF(.limit = MOST + 1u)},
        {"policy.limit", OF(.limit = UINT32_MAX)},
        {"policy.window", AT(0, .limit = 10)},
        {"policy.window", AT(1, .limit = 10)},
        {"policy.window", AT(10 * MS - 1, .limit = 10)},
        {"policy.window", AT(10 * MS + 1, .limit = 10)},
        {"policy.window", AT(15 * MS, .limit = 10)},
        {"policy.window", AT(MINUTE + 1, .limit = 10)},
        {"policy.window", AT(STINT_WINDOW_MAX + 10 * MS, .limit = 10)},
        {"policy.window", AT(UINT64_MAX, .limit = 10)},
        {"policy.start", OF(.limit = 10, .start = 1)},
        {"policy.start", OF(.limit = 10, .start = -1)},
        {"policy.start", OF(.limit = 10, .start = (int64_t)(5 * MS))},
        {"policy.start", OF(.limit = 10, .start = -(int64_t)(10 * MS + 1))},
        {"policy.start", OF(.limit = 10, .start = INT64_MAX)},
        {"policy.start", OF(.limit = 10, .start = INT64_MIN)},
        {NULL, OF(.limit = 10, .capacity = MOST)},
        {"capacity", OF(.limit = 10, .capacity = MOST + 1u)},
        {"capacity", OF(.limit = 10, .capacity = UINT32_MAX)},
        {NULL, OF(.limit = 10, .capacity = MOST - 5, .max_reserved = 5)},
        {"capacity", OF(.limit = 10, .capacity = MOST - 5, .max_reserved = 6)},
        {NULL, OF(.limit = 10, .max_reserved = MOST - 10)},
        {"max_reserved", OF(.limit = 10, .max_reserved = MOST - 9)},
        {NULL, OF(.limit = 10, .capacity = 5, .max_reserved = MOST - 5)},
        {"max_reserved", OF(.limit = 10, .capacity = 5, .max_reserved = MOST - 4)},
        {"max_reserved", OF(.limit = 10, .capacity = 5, .max_reserved = UINT32_MAX)},
        {"capacity", OF(.limit = 10, .capacity = UINT32_MAX, .max_reserved = UINT32_MAX)},
        {NULL, OF(.limit = 16383, .flags = STINT_SMOOTH)},
        {"limit", OF(.limit = 16384, .flags = STINT_SMOOTH)},
        {NULL, OF(.limit = 10, .stripes = 1, .flags = STINT_SMOOTH)},
        {NULL, OF(.limit = 10, .stripes = 1)},
        {NULL, OF(.limit = 10, .stripes = 8)},
        {"stripes", OF(.limit = 10, .stripes = 3)},
        {"stripes", OF(.limit = 10, .stripes = 6)},
        {"stripes", OF(.limit = 10, .stripes = 16)},
        {NULL, OF(.limit = 64, .stripes = 64)},
        {"stripes", OF(.limit = 63, .stripes = 64)},
        {"stripes", OF(.limit = 1000, .stripes = 128)},
        {"stripes", OF(.limit = 1000, .stripes = UINT32_C(1) << 31)},
        {"stripes", OF(.limit = 1000, .stripes = UINT32_MAX)},
        {NULL, OF(.limit = 10, .near_limit = 100)},
        {NULL, OF(.limit = 10, .near_limit = 1)},
        {"near_limit", OF(.limit = 10, .near_limit = 101)},
        {"near_limit", OF(.limit = 10, .near_limit = UINT32_MAX)},
        {NULL, OF(.limit = 10, .jitter = 100)},
        {"jitter", OF(.limit = 10, .jitter = 101)},
        {"jitter", OF(.limit = 10, .jitter = UINT32_MAX)},

        {NULL, BY(MONTHLY)},
        {NULL, BY(YEARLY, .offset = 840)},
        {NULL, BY(YEARLY, .offset = -720)},
        {NULL, BY(MONTHLY, .start = (int64_t)(27 * DAY + 24 * HOUR - 10 * MS))},
        {"policy.start", BY(MONTHLY, .start = (int64_t)(28 * DAY))},
        {"policy.start", BY(YEARLY, .start = -(int64_t)(10 * MS))},
        {"policy.start", BY(MONTHLY, .start = 1)},
        {NULL, BY(MONTHLY, .start = INT64_MAX / 10000000 * 10000000)},
        {NULL, BY(MONTHLY, .start = INT64_MIN / 10000000 * 10000000)},
        {"policy.offset", BY(MONTHLY, .offset = 841)},
        {"policy.offset", BY(MONTHLY, .offset = -721)},
        {"policy.offset", BY(MONTHLY, .offset = INT32_MIN)},
        {"policy.calendar", BY(3)},
        {"policy.calendar", BY(UINT32_MAX)},
        {"policy.window", BY(MONTHLY, .window = MINUTE)},
        {"policy.window", BY(MONTHLY, .window = 31 * DAY)},
        {"policy.window", BY(0)},
        {"policy.offset", OF(.limit = 10, .offset = 60)},

        {NULL, BAN(.ban = 10 * MS, .ban_after = 1)},
        {NULL, BAN(.ban = 366 * DAY, .ban_after = 2)},
        {"policy.ban", BAN(.ban_after = 1)},
        {"10 ms to 366 days", BAN(.ban = 1)},
        {"10 ms to 366 days", BAN(.ban = 367 * DAY)},
        {"multiple", BAN(.ban = 10 * MS + 1)},
        {"ban_after", BAN(.ban = MINUTE, .ban_after = STINT_BAN_AFTER_MAX + 1)},
        {"STINT_OVERRIDES", OF(.limit = 10, .ban = MINUTE, .ban_after = 1)},
        {"policy.ban_within must be a multiple", BAN(.ban = HOUR, .ban_within = HOUR + 1)},
        {"policy.ban_within must be longer",
         BAN(.ban = HOUR, .ban_after = 4, .ban_within = MINUTE)},
        {"policy.ban_within needs policy.ban", BAN(.ban_within = HOUR)},
    };
    struct stint_limiter *limiter = open_limiter(100, STINT_FULL_REFUSE);
    struct stint_policy before = make_policy("changed", 10, MINUTE, 0, 0), got = STINT_POLICY_INIT;
    const uint32_t changed = add_made(limiter, &before);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct stint_policy policy = cases[i].policy;
        char text[200];
        policy.size = sizeof policy;
        snprintf(policy.name, sizeof policy.name, "%zu", i);
        const uint32_t policies = get_stats(limiter).policies;
        const int id = policy_added(limiter, &policy);
        if (cases[i].word == NULL ? id < 0 : id != -EINVAL)
            fail_msg("case %zu: %d, %s", i, id, stint_reason());
        if (cases[i].word == NULL) {
            assert_int_equal(stint_policy_get(limiter, (uint32_t)id, &got), 0);
            if (policy.stripes == 1)
                policy.stripes = got.stripes;
            assert_memory_equal(&got, &policy, sizeof got);
            assert_true(stint_policy_format(&policy, text, sizeof text) > 0);
            continue;
        }
        if (strstr(stint_reason(), cases[i].word) == NULL)
            fail_msg("case %zu: \"%s\" does not name %s", i, stint_reason(), cases[i].word);
        assert_int_equal(get_stats(limiter).policies, policies);
        assert_int_equal(stint_policy_format(&policy, text, sizeof text), -EINVAL);
        policy.name[0] = '\0';
        assert_int_equal(stint_policy_change(limiter, changed, &policy), -EINVAL);
        assert_int_equal(stint_policy_get(limiter, changed, &got), 0);
        assert_memory_equal(&got, &before, sizeof got);
    }
    stint_close(limiter);
}

/* ---- What goes together ---------------------------------------------------------------------- */

/* The table of doc/promises.md (WHAT GOES TOGETHER) once more: what each has that does not go with
 * one of those before it. */
enum feature {
    BELOW,
    ABOVE,
    RESERVED,
    STRIPES,
    REFUSED,
    SLIDING,
    START,
    OWN,
    BY_FIRST,
    CALENDAR,
    HELD,
    BURST,
    BANNING,
    RULED,
    SHADOW,
    NEARLY,
    JITTER,
    FEATURES
};
#define X(feature) (UINT32_C(1) << (feature))

static const struct {
    const char *name; /* in the reason */
    uint32_t without;
    struct stint_policy has; /* what it adds to 100 a minute */
} features[FEATURES] = {
    [BELOW] = {"policy.capacity below", 0, {.capacity = 80}},
    [ABOVE] = {"policy.capacity above", X(BELOW), {.capacity = 120}},
    [RESERVED] = {"policy.max_reserved", 0, {.max_reserved = 10}},
    [STRIPES] = {"policy.stripes", X(ABOVE) | X(RESERVED), {.stripes = 2}},
    [REFUSED] = {"STINT_COUNT_REFUSED",
                 X(ABOVE) | X(RESERVED) | X(STRIPES),
                 {.flags = STINT_COUNT_REFUSED}},
    [SLIDING] = {"STINT_SMOOTH",
                 X(BELOW) | X(ABOVE) | X(RESERVED) | X(STRIPES) | X(REFUSED),
                 {.flags = STINT_SMOOTH}},
    [START] = {"policy.start", 0, {.start = 10000000}},
    [OWN] = {"STINT_START_PER_KEY", X(STRIPES) | X(START), {.flags = STINT_START_PER_KEY}},
    [BY_FIRST] = {"STINT_START_FIRST",
                  X(ABOVE) | X(RESERVED) | X(STRIPES) | X(SLIDING) | X(START) | X(OWN),
                  {.flags = STINT_START_FIRST}},
    [CALENDAR] = {"policy.calendar",
                  X(ABOVE) | X(RESERVED) | X(STRIPES) | X(SLIDING) | X(OWN) | X(BY_FIRST),
                  {.calendar = STINT_CALENDAR_MONTH}},
    [HELD] = {"STINT_IN_FLIGHT", X(HELD) - 1, {.flags = STINT_IN_FLIGHT}},
    [BURST] = {"policy.burst", (X(BURST) - 1) & ~X(RESERVED), {.burst = 50}},
    [BANNING] = {"policy.ban", X(STRIPES) | X(HELD), {.ban = HOUR, .flags = STINT_OVERRIDES}},
    [RULED] = {"STINT_OVERRIDES", X(STRIPES) | X(HELD), {.flags = STINT_OVERRIDES}},
    [SHADOW] = {"STINT_SHADOW", 0, {.flags = STINT_SHADOW}},
    [NEARLY] = {"policy.near_limit", 0, {.near_limit = 50}},
    [JITTER] = {"policy.jitter", 0, {.jitter = 10}},
};

static void add_feature(struct stint_policy *policy, enum feature feature) {
    const struct stint_policy *has = &features[feature].has;
    policy->capacity += has->capacity;
    policy->max_reserved += has->max_reserved;
    policy->stripes += has->stripes;
    policy->start += has->start;
    policy->flags |= has->flags;
    policy->ban += has->ban;
    policy->burst += has->burst;
    policy->calendar += has->calendar;
    policy->near_limit += has->near_limit;
    policy->jitter += has->jitter;
    if (policy->calendar != 0)
        policy->window = 0;
}

TEST(test_every_pair) {
    struct stint_options options = fixture_options(20000, STINT_FULL_REFUSE);
    options.max_policies = 2 * FEATURES * FEATURES;
    struct stint_limiter *limiter = open_with(&options);
    unsigned good = 0, wrong = 0;
    test_time = T0 + 5 * SECOND;
    for (int i = 0; i < FEATURES; i++)
        for (int j = 0; j <= i; j++) {
            char pair[STINT_NAME_SIZE], text[200];
            snprintf(pair, sizeof pair, "%s, %s", features[i].name, features[j].name);
            struct stint_policy policy = make_policy(pair, 100, MINUTE, 0, 0);
            add_feature(&policy, (enum feature)i);
            if (i != j)
                add_feature(&policy, (enum feature)j);
            if ((features[i].without & X(j)) == 0) {
                (void)add_made(limiter, &policy);
                good++;
                continue;
            }
            if (i == ABOVE) /* it has one capacity */
                continue;
            assert_int_equal(policy_added(limiter, &policy), -EINVAL);
            char other[STINT_NAME_SIZE];
            snprintf(other, sizeof other, "%s", features[j].name);
            if (i == BURST && strchr(other, ' ') != NULL) /* it has no capacity at all */
                *strchr(other, ' ') = '\0';
            if (strstr(stint_reason(), features[i].name) == NULL ||
                strstr(stint_reason(), other) == NULL)
                fail_msg("%s: \"%s\" does not name both", pair, stint_reason());
            assert_int_equal(stint_policy_format(&policy, text, sizeof text), -EINVAL);
            wrong++;
        }
    print_message("%u pairs go together, %u do not\n", good, wrong);
    stint_close(limiter);
}
