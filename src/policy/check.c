/* SPDX-License-Identifier: MIT
 * What a policy may be: each number by itself, and what goes with what. */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/calendar.h"
#include "base/judge.h"
#include "policy/check.h"

/* What a reason names of a policy. */
enum word {
    /* What it may have besides its rate. STINT_SHADOW, near_limit and jitter go with all. */
    WORD_CAPACITY_BELOW,
    WORD_CAPACITY_ABOVE,
    WORD_MAX_RESERVED,
    WORD_STRIPES,
    WORD_COUNT_REFUSED,
    WORD_SMOOTH,
    WORD_START,
    WORD_PER_KEY,
    WORD_FIRST,
    WORD_CALENDAR,
    WORD_IN_FLIGHT,
    WORD_BAN, /* before what it needs, so that the reason names it */
    WORD_OVERRIDES,
    FEATURES,
    /* Numbers. */
    WORD_LIMIT = FEATURES,
    WORD_CAPACITY,
    WORD_OFFSET,
    WORD_BAN_AFTER,
};

/* How it is named in a program and in a text, and which option of a text says it. */
static const struct {
    const char *names[2];
    enum option option;
} words[] = {
    [WORD_CAPACITY_BELOW] = {{"policy.capacity below the limit", "capacity= below the limit"},
                             OPTION_CAPACITY},
    [WORD_CAPACITY_ABOVE] = {{"policy.capacity above the limit", "capacity= above the limit"},
                             OPTION_CAPACITY},
    [WORD_MAX_RESERVED] = {{"policy.max_reserved", "reserve="}, OPTION_RESERVE},
    [WORD_STRIPES] = {{"policy.stripes", "stripes="}, OPTION_STRIPES},
    [WORD_COUNT_REFUSED] = {{"STINT_COUNT_REFUSED", "count-refused"}, OPTION_COUNT_REFUSED},
    [WORD_SMOOTH] = {{"STINT_SMOOTH", "smooth"}, OPTION_SMOOTH},
    [WORD_START] = {{"policy.start", "start="}, OPTION_START},
    [WORD_PER_KEY] = {{"STINT_START_PER_KEY", "start=per-key"}, OPTION_START},
    [WORD_FIRST] = {{"STINT_START_FIRST", "start=first"}, OPTION_START},
    [WORD_CALENDAR] = {{"policy.calendar", "a month or a year"}, OPTION_WINDOW},
    [WORD_IN_FLIGHT] = {{"STINT_IN_FLIGHT", "in-flight"}, OPTION_IN_FLIGHT},
    [WORD_BAN] = {{"policy.ban", "ban="}, OPTION_BAN},
    [WORD_OVERRIDES] = {{"STINT_OVERRIDES", "overrides"}, OPTION_OVERRIDES},
    [WORD_LIMIT] = {{"policy.limit", "the limit"}, OPTION_LIMIT},
    [WORD_CAPACITY] = {{"policy.capacity", "capacity="}, OPTION_CAPACITY},
    [WORD_OFFSET] = {{"policy.offset", "the offset of start="}, OPTION_START},
    [WORD_BAN_AFTER] = {{"policy.ban_after", "after="}, OPTION_AFTER},
};

#define BIT(feature) (UINT32_C(1) << (feature))
#define CARRY        (BIT(WORD_CAPACITY_ABOVE) | BIT(WORD_MAX_RESERVED))

/* What a feature does not go with: the table of stint.h, above struct stint_policy. Each pair
 * stands once. */
static const uint32_t without[FEATURES] = {
    [WORD_CAPACITY_BELOW] = BIT(WORD_SMOOTH),
    [WORD_STRIPES] = CARRY,
    [WORD_COUNT_REFUSED] = CARRY | BIT(WORD_STRIPES),
    [WORD_SMOOTH] = CARRY | BIT(WORD_STRIPES) | BIT(WORD_COUNT_REFUSED),
    [WORD_PER_KEY] = BIT(WORD_STRIPES) | BIT(WORD_START),
    [WORD_FIRST] =
        CARRY | BIT(WORD_STRIPES) | BIT(WORD_SMOOTH) | BIT(WORD_START) | BIT(WORD_PER_KEY),
    [WORD_CALENDAR] =
        CARRY | BIT(WORD_STRIPES) | BIT(WORD_SMOOTH) | BIT(WORD_PER_KEY) | BIT(WORD_FIRST),
    [WORD_IN_FLIGHT] = BIT(WORD_IN_FLIGHT) - 1, /* none of those above */
    [WORD_BAN] = BIT(WORD_STRIPES) | BIT(WORD_IN_FLIGHT),
    [WORD_OVERRIDES] = BIT(WORD_STRIPES) | BIT(WORD_IN_FLIGHT),
};

/* Refuses a policy for one or two words, which may be the same. */
static int refuse(enum option wrong[2], enum word one, enum word other, const char *format) {
    const bool text = wrong != NULL;

    if (text) {
        wrong[0] = words[one].option;
        wrong[1] = words[other].option;
    }
    return stint_failed_with(EINVAL, format, words[one].names[text], words[other].names[text]);
}

static int check_features(const struct stint_policy *policy, enum option wrong[2]) {
    const uint32_t flags = policy->flags;
    const bool has[FEATURES] = {
        [WORD_CAPACITY_BELOW] =
            policy->capacity != 0 &&
            policy->capacity<policy->limit, [WORD_CAPACITY_ABOVE] = policy->capacity> policy->limit,
        [WORD_MAX_RESERVED] = policy->max_reserved != 0,
        [WORD_STRIPES] = policy->stripes > 1,
        [WORD_COUNT_REFUSED] = (flags & STINT_COUNT_REFUSED) != 0,
        [WORD_SMOOTH] = (flags & STINT_SMOOTH) != 0,
        [WORD_START] = policy->start != 0,
        [WORD_PER_KEY] = (flags & STINT_START_PER_KEY) != 0,
        [WORD_FIRST] = (flags & STINT_START_FIRST) != 0,
        [WORD_CALENDAR] = policy->calendar != 0,
        [WORD_IN_FLIGHT] = (flags & STINT_IN_FLIGHT) != 0,
        [WORD_BAN] = policy->ban != 0,
        [WORD_OVERRIDES] = (flags & STINT_OVERRIDES) != 0,
    };

    for (enum word i = 0; i < FEATURES; i++)
        for (enum word j = 0; j < FEATURES; j++)
            if (has[i] && has[j] && (without[i] & BIT(j)) != 0)
                return refuse(wrong, i, j, "%s does not go with %s");
    return 0;
}

/* Checks what goes with what. */
static int check_together(const struct stint_policy *policy, enum option wrong[2]) {
    const uint64_t capacity = policy->capacity == 0 ? policy->limit : policy->capacity;

    if (capacity + policy->max_reserved > STINT_LIMIT_MAX)
        return refuse(wrong, policy->capacity == 0 ? WORD_LIMIT : WORD_CAPACITY, WORD_MAX_RESERVED,
                      "%s and %s must be at most 2^28 together");
    int error = check_features(policy, wrong);
    if (error != 0)
        return error;
    if ((policy->flags & TWO_COUNTS) != 0 && policy->limit > SMOOTH_MAX)
        return refuse(wrong, WORD_LIMIT, WORD_LIMIT,
                      (policy->flags & STINT_SMOOTH) != 0
                          ? "%s of a smooth policy must be at most 16,383"
                          : "%s of an in-flight policy must be at most 16,383");
    if (policy->stripes <= 1)
        return 0;
    if (policy->stripes > STRIPES_OF_KEY_MAX || (policy->stripes & (policy->stripes - 1)) != 0)
        return refuse(wrong, WORD_STRIPES, WORD_STRIPES, "%s must be a power of two, at most 64");
    if (policy->stripes > policy->limit || policy->stripes > capacity)
        return refuse(wrong, WORD_STRIPES, WORD_STRIPES,
                      "%s must be at most the limit and the capacity");
    return 0;
}

/* Checks a time of a policy. */
static int check_time(uint64_t ns, const char *name) {
    if (ns < STINT_WINDOW_MIN || ns > STINT_WINDOW_MAX)
        return stint_failed_with(EINVAL, "policy.%s must be 10 ms to 366 days", name);
    if (ns % STINT_TICK_NS != 0)
        return stint_failed_with(EINVAL, "policy.%s must be a multiple of 10 ms", name);
    return 0;
}

/* Checks the window: its length, or the calendar. */
static int check_window(const struct stint_policy *policy, enum option wrong[2]) {
    if (policy->start % (int64_t)STINT_TICK_NS != 0)
        return stint_failed(EINVAL, "policy.start must be a multiple of 10 ms");
    if (policy->calendar > STINT_CALENDAR_YEAR)
        return stint_failed(EINVAL, "policy.calendar must be 0, STINT_CALENDAR_MONTH or "
                                    "STINT_CALENDAR_YEAR");
    if (policy->calendar == 0)
        return policy->offset != 0
                   ? stint_failed(EINVAL, "policy.offset must be 0 without policy.calendar")
                   : check_time(policy->window, "window");
    if (policy->window != 0)
        return stint_failed(EINVAL, "policy.window must be 0 with policy.calendar, which says how "
                                    "long windows are");
    if (policy->offset < -OFFSET_WEST_MAX || policy->offset > OFFSET_EAST_MAX)
        return refuse(wrong, WORD_OFFSET, WORD_OFFSET,
                      "%s must be -720 to 840 minutes (-12:00 to +14:00)");
    if (month_into(policy->start / (int64_t)STINT_TICK_NS) >= CALENDAR_DAY_MAX * TICKS_IN_DAY)
        return refuse(wrong, WORD_START, WORD_START,
                      "%s must be on one of the days 1 to 28, which every month has");
    return 0;
}

/* Whether a key can be refused first in `ban_after` windows within `ban` of the first refusal
 * (override_set.c): at the end of a window, in each window between, and at the begin of the
 * last. */
static bool ban_can_come(const struct stint_policy *policy) {
    const uint32_t between = policy->ban_after > 2 ? policy->ban_after - 2 : 0;
    const tick_t shortest = policy->calendar != 0
                                ? calendar_shortest(policy->calendar, between)
                                : (tick_t)(policy->window / STINT_TICK_NS) * between;
    return (tick_t)(policy->ban / STINT_TICK_NS) > shortest;
}

/* Checks a ban. The window is right. */
static int check_ban(const struct stint_policy *policy, enum option wrong[2]) {
    if (policy->ban == 0)
        return policy->ban_after == 0
                   ? 0
                   : refuse(wrong, WORD_BAN_AFTER, WORD_BAN, "%s needs %s, the time");
    if ((policy->flags & STINT_OVERRIDES) == 0)
        return stint_failed(EINVAL, "policy.ban needs STINT_OVERRIDES in policy.flags");
    int error = check_time(policy->ban, "ban");
    if (error != 0)
        return error;
    if (policy->ban_after > STINT_BAN_AFTER_MAX)
        return stint_failed(EINVAL, "policy.ban_after must be at most 65,535 windows");
    if (!ban_can_come(policy))
        return refuse(wrong, WORD_BAN, WORD_BAN_AFTER,
                      "%s must be longer than the windows between the first refusal and the last, "
                      "%s less 2: no key would be banned");
    return 0;
}

int stint_policy_check(const struct stint_policy *policy, enum option wrong[2]) {
    if (memchr(policy->name, '\0', sizeof(policy->name)) == NULL)
        return stint_failed(EINVAL,
                            "policy.name has no terminating NUL: it may have 63 characters");
    for (const char *at = policy->name; *at != '\0'; at++)
        if (*at < 0x20 || *at > 0x7E)
            return stint_failed(EINVAL, "policy.name has a character that is not printable ASCII");
    if (policy->limit == 0 || policy->limit > STINT_LIMIT_MAX)
        return stint_failed(EINVAL, "policy.limit must be 1 to 2^28 (268,435,456) tokens");
    int error = check_window(policy, wrong);
    if (error != 0)
        return error;
    if ((policy->flags &
         ~(uint32_t)(STINT_COUNT_REFUSED | STINT_SHADOW | STINT_START_PER_KEY | STINT_SMOOTH |
                     STINT_START_FIRST | STINT_IN_FLIGHT | STINT_OVERRIDES)) != 0)
        return stint_failed(EINVAL, "policy.flags has bits that this version does not know");
    if (policy->near_limit > 100)
        return stint_failed(EINVAL, "policy.near_limit must be at most 100 percent");
    if (policy->jitter > 100)
        return stint_failed(EINVAL, "policy.jitter must be at most 100 percent");
    error = check_ban(policy, wrong);
    return error != 0 ? error : check_together(policy, wrong);
}

int stint_policy_given(const struct stint_policy *given, struct stint_policy *policy) {
    if (given == NULL)
        return stint_failed(EINVAL, "policy is NULL");
    int error = stint_struct_read(policy, sizeof(*policy), given, POLICY_LEAST, "policy");
    return error != 0 ? error : stint_policy_check(policy, NULL);
}
