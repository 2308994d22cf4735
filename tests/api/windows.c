/* SPDX-License-Identifier: MIT
 * The calendar's arithmetic, beside the C library's; and which policies there may be, as the model
 * has it from the contract. */
#include "fixture.h"
#include "limiter/limiter.h"
#include "model.h"
#include "random.h"

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

/* ---- What a field may be, and what goes together --------------------------------------------- */

/* Values around the borders of what a field may be. */
static const struct field {
    const char *name; /* in the reason */
    size_t at, size;  /* bytes */
    bool added;       /* to the bits that are there */
    uint64_t values[12];
} fields[] = {
#define FIELD(field, ...)                                                                          \
    {                                                                                              \
        "policy." #field, offsetof(struct stint_policy, field),                                    \
            sizeof(((struct stint_policy *)0)->field), false, {                                    \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define FLAG(flag)                                                                                 \
    {                                                                                              \
#flag, offsetof(struct stint_policy, flags), sizeof(uint32_t), true, {                     \
            flag                                                                                   \
        }                                                                                          \
    }
#define MOST ((uint64_t)STINT_LIMIT_MAX)
    FIELD(limit, 0, 1, 7, 8, 16383, 16384, MOST, MOST + 1, UINT32_MAX),
    FIELD(window, 0, STINT_WINDOW_MIN, STINT_WINDOW_MAX, 1, STINT_WINDOW_MIN - 1,
          STINT_WINDOW_MIN + 1, 15 * MS, MINUTE + 1, STINT_WINDOW_MAX + STINT_TICK_NS, UINT64_MAX),
    FIELD(start, STINT_TICK_NS, -STINT_TICK_NS, 28 * DAY - STINT_TICK_NS, 28 * DAY, 1, -UINT64_C(1),
          5 * MS, INT64_MAX, (uint64_t)INT64_MIN, INT64_MAX / 10000000 * 10000000,
          (uint64_t)(INT64_MIN / 10000000 * 10000000)),
    FIELD(capacity, 1, 9, 10, 11, 99, 101, MOST - 5, MOST, MOST + 1, UINT32_MAX),
    FIELD(max_reserved, 1, 5, 6, MOST - 100, MOST - 99, MOST - 10, MOST - 9, UINT32_MAX),
    FIELD(stripes, 1, 2, 3, 6, 8, 16, 64, 128, UINT32_C(1) << 31, UINT32_MAX),
    FIELD(near_limit, 1, 100, 101, UINT32_MAX),
    FIELD(jitter, 1, 100, 101, UINT32_MAX),
    FIELD(calendar, STINT_CALENDAR_MONTH, STINT_CALENDAR_YEAR, 3, UINT32_MAX),
    FIELD(offset, 840, 841, (uint32_t)-720, (uint32_t)-721, (uint32_t)INT32_MIN, 60),
    FIELD(burst, 1, 50, MOST - 5, MOST, MOST + 1, UINT32_MAX),
    FIELD(ban, 0, STINT_WINDOW_MIN, MINUTE, HOUR, STINT_WINDOW_MAX, 1, STINT_WINDOW_MIN + 1,
          STINT_WINDOW_MAX + STINT_TICK_NS),
    FIELD(ban_after, 1, 2, 3, 4, STINT_BAN_AFTER_MAX, STINT_BAN_AFTER_MAX + 1, UINT32_MAX),
    FIELD(ban_within, MINUTE, 2 * MINUTE, HOUR, HOUR + 1, STINT_WINDOW_MAX + STINT_TICK_NS),
    FLAG(STINT_COUNT_REFUSED),
    FLAG(STINT_SHADOW),
    FLAG(STINT_START_PER_KEY),
    FLAG(STINT_SMOOTH),
    FLAG(STINT_START_FIRST),
    FLAG(STINT_IN_FLIGHT),
    FLAG(STINT_OVERRIDES),
};
enum { FIELDS = sizeof fields / sizeof fields[0], VALUES = 12 };

static struct stint_policy with(struct stint_policy policy, const struct field *field, int value) {
    uint64_t whole = field->values[value];
    if (field->added)
        whole |= policy.flags;
    memcpy((char *)&policy + field->at, &whole, field->size); /* little end first */
    return policy;
}

/* A policy is valid if the contract says so, whatever is done with it. Else the reason names a
 * field that is not as before, or each of two that do not go together, and nothing is changed. */
static void check_policy(struct stint_limiter *limiter, const struct stint_policy *policy,
                         bool plain, const struct field *one, const struct field *other) {
    const bool valid = model_valid(policy);
    char text[400];
    const int length = stint_policy_format(policy, text, sizeof text);
    if (valid ? length <= 0 : length != -EINVAL)
        fail_msg("%s and %s: %s, but %s", one->name, other->name, valid ? "valid" : "not valid",
                 length > 0 ? text : stint_reason());
    const bool names[] = {strstr(stint_reason(), one->name) != NULL,
                          strstr(stint_reason(), other->name) != NULL};
    const bool both = plain && strstr(stint_reason(), "does not go with") != NULL;
    const bool base = strstr(stint_reason(), "no key would be banned") != NULL; /* its ban */
    if (!valid && !base && (both ? !names[0] || !names[1] : !names[0] && !names[1]))
        fail_msg("%s and %s: \"%s\"", one->name, other->name, stint_reason());
    if (one != other)
        return;
    struct stint_policy before = STINT_POLICY_INIT, got = STINT_POLICY_INIT;
    const uint32_t policies = get_stats(limiter).policies;
    assert_int_equal(stint_policy_get(limiter, 0, &before), 0);
    const int id = policy_added(limiter, policy);
    assert_true(valid ? id > 0 : id == -EINVAL);
    assert_int_equal(get_stats(limiter).policies, policies + valid);
    if (valid) {
        assert_int_equal(stint_policy_get(limiter, (uint32_t)id, &got), 0);
        got.stripes = policy->stripes == 1 ? 1 : got.stripes;
        assert_memory_equal(&got, policy, sizeof got);
        assert_int_equal(stint_policy_remove(limiter, (uint32_t)id), 0);
        return;
    }
    assert_int_equal(stint_policy_change(limiter, 0, policy), -EINVAL);
    assert_int_equal(stint_policy_get(limiter, 0, &got), 0);
    assert_memory_equal(&got, &before, sizeof got);
}

/* All values of each field, and all pairs of values of two, in policies of four kinds. */
TEST(test_policies) {
    static const char *const bases[] = {"10/m name=\"p\"", "100/m ban=1h after=3 name=\"p\"",
                                        "10/month name=\"p\"", "100/s burst=50 name=\"p\""};
    for (size_t b = 0; b < sizeof bases / sizeof bases[0]; b++) {
        struct stint_options options = fixture_options(100, STINT_FULL_REFUSE);
        options.max_policies = 500;
        struct stint_limiter *limiter = open_with(&options);
        const struct stint_policy base = parsed(bases[b]);
        add_text(limiter, "10/m");
        for (const struct field *one = fields; one < fields + FIELDS; one++)
            for (int v = 0; v < VALUES && (v == 0 || one->values[v] != 0); v++) {
                const struct stint_policy first = with(base, one, v);
                check_policy(limiter, &first, b == 0, one, one);
                for (const struct field *other = one + 1; other < fields + FIELDS; other++)
                    for (int w = 0; w < VALUES && (w == 0 || other->values[w] != 0); w++) {
                        const struct stint_policy both = with(first, other, w);
                        check_policy(limiter, &both, b == 0, one, other);
                    }
            }
        stint_close(limiter);
    }
}
