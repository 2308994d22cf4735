/* SPDX-License-Identifier: MIT
 * What a policy may be: each number by itself, and what goes with what. */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "calendar.h"
#include "charge.h"
#include "message.h"
#include "policy_check.h"

/* What a policy may have besides its rate. STINT_SHADOW, near_limit and jitter go with all. */
enum feature {
    CAPACITY_BELOW,
    CAPACITY_ABOVE,
    MAX_RESERVED,
    STRIPES,
    COUNT_REFUSED,
    SMOOTH,
    START,
    PER_KEY,
    FIRST,
    CALENDAR,
    IN_FLIGHT,
    BAN, /* before what it needs, so that it is named */
    OVERRIDES,
    FEATURES
};

#define BIT(feature) (UINT32_C(1) << (feature))

/* The table of stint.h, above struct stint_policy: each pair stands once. */
static const struct {
    const char *name;
    uint32_t without; /* what it does not go with */
} features[FEATURES] = {
    [CAPACITY_BELOW] = {"policy.capacity below the limit", BIT(SMOOTH)},
    [CAPACITY_ABOVE] = {"policy.capacity above the limit", 0},
    [MAX_RESERVED] = {"policy.max_reserved", 0},
    [STRIPES] = {"policy.stripes", BIT(CAPACITY_ABOVE) | BIT(MAX_RESERVED)},
    [COUNT_REFUSED] = {"STINT_COUNT_REFUSED",
                       BIT(CAPACITY_ABOVE) | BIT(MAX_RESERVED) | BIT(STRIPES)},
    [SMOOTH] = {"STINT_SMOOTH",
                BIT(CAPACITY_ABOVE) | BIT(MAX_RESERVED) | BIT(STRIPES) | BIT(COUNT_REFUSED)},
    [START] = {"policy.start", 0},
    [PER_KEY] = {"STINT_START_PER_KEY", BIT(STRIPES) | BIT(START)},
    [FIRST] = {"STINT_START_FIRST", BIT(CAPACITY_ABOVE) | BIT(MAX_RESERVED) | BIT(STRIPES) |
                                        BIT(SMOOTH) | BIT(START) | BIT(PER_KEY)},
    [CALENDAR] = {"policy.calendar", BIT(CAPACITY_ABOVE) | BIT(MAX_RESERVED) | BIT(STRIPES) |
                                         BIT(SMOOTH) | BIT(PER_KEY) | BIT(FIRST)},
    [IN_FLIGHT] = {"STINT_IN_FLIGHT", BIT(IN_FLIGHT) - 1}, /* none of those above */
    [BAN] = {"policy.ban", BIT(STRIPES) | BIT(IN_FLIGHT)},
    [OVERRIDES] = {"STINT_OVERRIDES", BIT(STRIPES) | BIT(IN_FLIGHT)},
};

static uint32_t features_of(const struct stint_policy *policy) {
    const uint32_t flags = policy->flags;
    const bool given = policy->capacity != 0;
    const bool has[FEATURES] = {
        [CAPACITY_BELOW] = given && policy->capacity < policy->limit,
        [CAPACITY_ABOVE] = given && policy->capacity > policy->limit,
        [MAX_RESERVED] = policy->max_reserved != 0,
        [STRIPES] = policy->stripes > 1,
        [COUNT_REFUSED] = (flags & STINT_COUNT_REFUSED) != 0,
        [SMOOTH] = (flags & STINT_SMOOTH) != 0,
        [START] = policy->start != 0,
        [PER_KEY] = (flags & STINT_START_PER_KEY) != 0,
        [FIRST] = (flags & STINT_START_FIRST) != 0,
        [CALENDAR] = policy->calendar != 0,
        [IN_FLIGHT] = (flags & STINT_IN_FLIGHT) != 0,
        [BAN] = policy->ban != 0,
        [OVERRIDES] = (flags & STINT_OVERRIDES) != 0,
    };
    uint32_t bits = 0;

    for (int i = 0; i < FEATURES; i++)
        bits |= has[i] ? BIT(i) : 0;
    return bits;
}

/* Checks what goes with what. */
static int check_together(const struct stint_policy *policy) {
    const uint64_t capacity = policy->capacity == 0 ? policy->limit : policy->capacity;
    const uint32_t has = features_of(policy);

    if (capacity + policy->max_reserved > STINT_LIMIT_MAX)
        return stint_failed(
            EINVAL, "policy.capacity and policy.max_reserved must be at most 2^28 together");
    for (int i = 0; i < FEATURES; i++)
        for (int j = 0; j < FEATURES; j++)
            if ((has & BIT(i)) != 0 && (has & features[i].without & BIT(j)) != 0)
                return stint_failed_with(EINVAL, "%s does not go with %s", features[i].name,
                                         features[j].name);
    if ((policy->flags & STINT_SMOOTH) != 0 && policy->limit > SMOOTH_MAX)
        return stint_failed(EINVAL, "policy.limit of a smooth policy must be at most 16,383");
    if ((policy->flags & STINT_IN_FLIGHT) != 0 && policy->limit > SMOOTH_MAX)
        return stint_failed(EINVAL, "policy.limit of an in-flight policy must be at most 16,383");
    if (policy->stripes <= 1)
        return 0;
    if (policy->stripes > STRIPES_OF_KEY_MAX || (policy->stripes & (policy->stripes - 1)) != 0)
        return stint_failed(EINVAL, "policy.stripes must be a power of two, at most 64");
    if (policy->stripes > policy->limit || policy->stripes > capacity)
        return stint_failed(EINVAL, "policy.stripes must be at most the limit and the capacity");
    return 0;
}

/* Checks the window: its length, or the calendar. */
static int check_window(const struct stint_policy *policy) {
    if (policy->start % (int64_t)STINT_TICK_NS != 0)
        return stint_failed(EINVAL, "policy.start must be a multiple of 10 ms");
    if (policy->calendar > STINT_CALENDAR_YEAR)
        return stint_failed(EINVAL, "policy.calendar must be 0, STINT_CALENDAR_MONTH or "
                                    "STINT_CALENDAR_YEAR");
    if (policy->calendar != 0) {
        if (policy->window != 0)
            return stint_failed(EINVAL,
                                "policy.window must be 0 with policy.calendar, which says how long "
                                "windows are");
        if (policy->offset < -OFFSET_WEST_MAX || policy->offset > OFFSET_EAST_MAX)
            return stint_failed(EINVAL,
                                "policy.offset must be -720 to 840 minutes (-12:00 to +14:00)");
        if (month_into(policy->start / (int64_t)STINT_TICK_NS) >= CALENDAR_DAY_MAX * TICKS_IN_DAY)
            return stint_failed(EINVAL,
                                "policy.start must be on one of the days 1 to 28, which every "
                                "month of policy.calendar has");
        return 0;
    }
    if (policy->offset != 0)
        return stint_failed(EINVAL, "policy.offset must be 0 without policy.calendar");
    if (policy->window < STINT_WINDOW_MIN || policy->window > STINT_WINDOW_MAX)
        return stint_failed(EINVAL, "policy.window must be 10 ms to 366 days");
    if (policy->window % STINT_TICK_NS != 0)
        return stint_failed(EINVAL, "policy.window must be a multiple of 10 ms");
    return 0;
}

/* Checks a ban. */
static int check_ban(const struct stint_policy *policy) {
    if (policy->ban == 0)
        return policy->ban_after == 0
                   ? 0
                   : stint_failed(EINVAL, "policy.ban_after needs policy.ban, the time");
    if ((policy->flags & STINT_OVERRIDES) == 0)
        return stint_failed(EINVAL, "policy.ban needs STINT_OVERRIDES in policy.flags");
    if (policy->ban < STINT_WINDOW_MIN || policy->ban > STINT_WINDOW_MAX)
        return stint_failed(EINVAL, "policy.ban must be 10 ms to 366 days");
    if (policy->ban % STINT_TICK_NS != 0)
        return stint_failed(EINVAL, "policy.ban must be a multiple of 10 ms");
    if (policy->ban_after > STINT_BAN_AFTER_MAX)
        return stint_failed(EINVAL, "policy.ban_after must be at most 65,535 windows");
    return 0;
}

int stint_policy_check(const struct stint_policy *policy) {
    if (policy == NULL)
        return stint_failed(EINVAL, "policy is NULL");
    int error = stint_struct_check(policy, policy->size, sizeof(*policy),
                                   "policy.size is wrong: " WRONG_SIZE);
    if (error != 0)
        return error;
    if (memchr(policy->name, '\0', sizeof(policy->name)) == NULL)
        return stint_failed(EINVAL,
                            "policy.name has no terminating NUL: it may have 63 characters");
    for (const char *at = policy->name; *at != '\0'; at++)
        if (*at < 0x20 || *at > 0x7E)
            return stint_failed(EINVAL, "policy.name has a character that is not printable ASCII");
    if (policy->limit == 0 || policy->limit > STINT_LIMIT_MAX)
        return stint_failed(EINVAL, "policy.limit must be 1 to 2^28 (268,435,456) tokens");
    error = check_window(policy);
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
    error = check_ban(policy);
    return error != 0 ? error : check_together(policy);
}
