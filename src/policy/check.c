/* SPDX-License-Identifier: MIT
 * What a policy may be: each number by itself, and what goes with what. */
#include <stdio.h>
#include <string.h>

#include "policy/check.h"
#include "rule/judge.h"
#include "sys/text.h"

#define VALUE(name, word, field) {name, word}, offsetof(struct stint_policy, field)
#define FIELD(field, word)       VALUE("policy." #field, word, field)
#define TOKENS(what)             NUMBER(STINT_LIMIT_MAX, what " must be 1 to 2^28 (268,435,456)")
#define NUMBER(most, range)      KIND_NUMBER, 0, most, range, NULL
#define PERCENTAGE               KIND_PERCENT, 0, 100, "the percentage must be 1% to 100%", NULL
#define TIME(what, flag)                                                                           \
    KIND_TIME, flag, 0, what " must be 10 ms to 366 days", what " must be a multiple of 10 ms"
#define FLAG(flag, word)                                                                           \
    { {#flag, word}, 0, KIND_FLAG, flag, 0, NULL, NULL }

const struct policy_option stint_policy_options[] = {
    [OPTION_LIMIT] = {FIELD(limit, "the limit"), TOKENS("the number of tokens")},
    [OPTION_WINDOW] = {VALUE("policy.calendar", "a month or a year", window),
                       TIME("the window", 0)},
    [OPTION_NAME] = {FIELD(name, "name="), KIND_NAME, 0, 0, NULL, NULL},
    [OPTION_PER_KEY] = FLAG(STINT_START_PER_KEY, "start=per-key"),
    [OPTION_FIRST] = FLAG(STINT_START_FIRST, "start=first"),
    [OPTION_START] = {FIELD(start, "start="), KIND_START, 0, 0, NULL, NULL},
    [OPTION_BURST] = {FIELD(burst, "burst="), TOKENS("the burst")},
    [OPTION_CAPACITY] = {FIELD(capacity, "capacity="), TOKENS("the capacity")},
    [OPTION_RESERVE] = {FIELD(max_reserved, "reserve="), TOKENS("the reserve")},
    [OPTION_STRIPES] = {FIELD(stripes, "stripes="),
                        NUMBER(STRIPES_OF_KEY_MAX, "the stripes must be 1 to 64")},
    [OPTION_NEAR] = {FIELD(near_limit, "near="), PERCENTAGE},
    [OPTION_JITTER] = {FIELD(jitter, "jitter="), PERCENTAGE},
    [OPTION_SMOOTH] = FLAG(STINT_SMOOTH, "smooth"),
    [OPTION_IN_FLIGHT] = FLAG(STINT_IN_FLIGHT, "in-flight"),
    [OPTION_SHADOW] = FLAG(STINT_SHADOW, "shadow"),
    [OPTION_COUNT_REFUSED] = FLAG(STINT_COUNT_REFUSED, "count-refused"),
    [OPTION_BAN] = {FIELD(ban, "ban="), TIME("the ban", STINT_OVERRIDES)},
    [OPTION_OVERRIDES] = FLAG(STINT_OVERRIDES, "overrides"),
    [OPTION_AFTER] = {FIELD(ban_after, "after="),
                      NUMBER(STINT_BAN_AFTER_MAX, "the windows must be 1 to 65,535")},
    [OPTION_WITHIN] = {FIELD(ban_within, "within="), TIME("the time", 0)},
    [OPTION_BELOW] = {.names = {"policy.capacity below the limit", "capacity= below the limit"}},
    [OPTION_ABOVE] = {.names = {"policy.capacity above the limit", "capacity= above the limit"}},
    [OPTION_OFFSET] = {.names = {"policy.offset", "the offset of start="}},
};

uint64_t stint_policy_value(const struct stint_policy *policy, enum option option) {
    const struct policy_option *its = &stint_policy_options[option];
    const void *field = (const char *)policy + its->field;

    return its->kind == KIND_FLAG    ? policy->flags & its->flag
           : its->kind == KIND_NAME  ? policy->name[0] != '\0'
           : its->kind == KIND_START ? policy->start != 0 || policy->offset != 0
           : its->kind == KIND_TIME  ? *(const uint64_t *)field
                                     : *(const uint32_t *)field;
}

#define BIT(option) (UINT32_C(1) << (option))
#define CARRY       (BIT(OPTION_ABOVE) | BIT(OPTION_RESERVE))

/* What does not go together: the table of doc/promises.md (WHAT GOES TOGETHER), each pair once. The
 * first pair that a policy has is named, so a ban stands before what it needs. */
static const struct {
    enum option option;
    uint32_t without;
} features[] = {
    {OPTION_BELOW, BIT(OPTION_SMOOTH)},
    {OPTION_ABOVE, 0},
    {OPTION_RESERVE, 0},
    {OPTION_STRIPES, CARRY},
    {OPTION_COUNT_REFUSED, CARRY | BIT(OPTION_STRIPES)},
    {OPTION_SMOOTH, CARRY | BIT(OPTION_STRIPES) | BIT(OPTION_COUNT_REFUSED)},
    {OPTION_START, 0},
    {OPTION_PER_KEY, BIT(OPTION_STRIPES) | BIT(OPTION_START)},
    {OPTION_FIRST,
     CARRY | BIT(OPTION_STRIPES) | BIT(OPTION_SMOOTH) | BIT(OPTION_START) | BIT(OPTION_PER_KEY)},
    {OPTION_WINDOW,
     CARRY | BIT(OPTION_STRIPES) | BIT(OPTION_SMOOTH) | BIT(OPTION_PER_KEY) | BIT(OPTION_FIRST)},
    {OPTION_IN_FLIGHT, CARRY | BIT(OPTION_BELOW) | BIT(OPTION_STRIPES) | BIT(OPTION_COUNT_REFUSED) |
                           BIT(OPTION_SMOOTH) | BIT(OPTION_START) | BIT(OPTION_PER_KEY) |
                           BIT(OPTION_FIRST) | BIT(OPTION_WINDOW)},
    {OPTION_CAPACITY, 0},
    {OPTION_BURST, BIT(OPTION_CAPACITY) | BIT(OPTION_STRIPES) | BIT(OPTION_COUNT_REFUSED) |
                       BIT(OPTION_SMOOTH) | BIT(OPTION_START) | BIT(OPTION_PER_KEY) |
                       BIT(OPTION_FIRST) | BIT(OPTION_WINDOW) | BIT(OPTION_IN_FLIGHT)},
    {OPTION_BAN, BIT(OPTION_STRIPES) | BIT(OPTION_IN_FLIGHT)},
    {OPTION_OVERRIDES, BIT(OPTION_STRIPES) | BIT(OPTION_IN_FLIGHT)},
};
#define FEATURES (sizeof(features) / sizeof(features[0]))

static enum option said_by(enum option option) {
    const bool start =
        option == OPTION_PER_KEY || option == OPTION_FIRST || option == OPTION_OFFSET;
    return start ? OPTION_START : option >= OPTIONS ? OPTION_CAPACITY : option;
}

static int refuse(enum option wrong[2], enum option one, enum option other, const char *format) {
    const bool text = wrong != NULL;

    if (text) {
        wrong[0] = said_by(one);
        wrong[1] = said_by(other);
    }
    return stint_failed_with(EINVAL, format, stint_policy_options[one].names[text],
                             stint_policy_options[other].names[text]);
}

static bool has(const struct stint_policy *policy, enum option option) {
    return option == OPTION_BELOW     ? policy->capacity != 0 && policy->capacity < policy->limit
           : option == OPTION_ABOVE   ? policy->capacity > policy->limit
           : option == OPTION_STRIPES ? policy->stripes > 1
           : option == OPTION_START   ? policy->start != 0
           : option == OPTION_WINDOW  ? policy->calendar != 0
                                      : stint_policy_value(policy, option) != 0;
}

static int check_bucket(const struct stint_policy *policy, enum option wrong[2]) {
    const uint64_t tokens = (uint64_t)policy->burst + policy->max_reserved;

    if (policy->window / policy->limit < BUCKET_UNIT_MIN)
        return refuse(wrong, OPTION_LIMIT, OPTION_BURST,
                      "%s must be at most 10 million a second with %s");
    if (tokens > STINT_WINDOW_MAX / bucket_unit(policy->window, policy->limit))
        return refuse(wrong, OPTION_BURST,
                      policy->max_reserved != 0 ? OPTION_RESERVE : OPTION_LIMIT,
                      "%s is too large beside %s: all must come back within 366 days");
    return 0;
}

static int check_together(const struct stint_policy *policy, enum option wrong[2]) {
    const uint64_t capacity = policy_capacity(policy);

    if (capacity + policy->max_reserved > STINT_LIMIT_MAX)
        return refuse(wrong,
                      policy->burst != 0      ? OPTION_BURST
                      : policy->capacity != 0 ? OPTION_CAPACITY
                                              : OPTION_LIMIT,
                      OPTION_RESERVE, "%s and %s must be at most 2^28 together");
    for (size_t i = 0; i < FEATURES; i++)
        for (size_t j = 0; j < FEATURES; j++) {
            const enum option one = features[i].option, other = features[j].option;
            if ((features[i].without & BIT(other)) != 0 && has(policy, one) && has(policy, other))
                return refuse(wrong, one, other, "%s does not go with %s");
        }
    if (policy->burst != 0)
        return check_bucket(policy, wrong);
    if ((policy->flags & TWO_COUNTS) != 0 && policy->limit > SMOOTH_MAX)
        return refuse(wrong, OPTION_LIMIT, OPTION_LIMIT,
                      (policy->flags & STINT_SMOOTH) != 0
                          ? "%s of a smooth policy must be at most 16,383"
                          : "%s of an in-flight policy must be at most 16,383");
    if (policy->stripes <= 1)
        return 0;
    if (policy->stripes > STRIPES_OF_KEY_MAX || (policy->stripes & (policy->stripes - 1)) != 0)
        return refuse(wrong, OPTION_STRIPES, OPTION_STRIPES,
                      "%s must be a power of two, at most 64");
    if (policy->stripes > policy->limit || policy->stripes > capacity)
        return refuse(wrong, OPTION_STRIPES, OPTION_STRIPES,
                      "%s must be at most the limit and the capacity");
    return 0;
}

static int check_time(uint64_t ns, const char *name) {
    if (ns < STINT_WINDOW_MIN || ns > STINT_WINDOW_MAX)
        return stint_failed_with(EINVAL, "policy.%s must be 10 ms to 366 days", name);
    if (ns % STINT_TICK_NS != 0)
        return stint_failed_with(EINVAL, "policy.%s must be a multiple of 10 ms", name);
    return 0;
}

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
    if (policy->offset < -720 || policy->offset > 840)
        return refuse(wrong, OPTION_OFFSET, OPTION_OFFSET,
                      "%s must be -720 to 840 minutes (-12:00 to +14:00)");
    if (month_into(policy->start / (int64_t)STINT_TICK_NS) >= 28 * TICKS_IN_DAY)
        return refuse(wrong, OPTION_START, OPTION_START,
                      "%s must be on one of the days 1 to 28, which every month has");
    return 0;
}

/* Whether a key can be refused first in `ban_after` windows within `ban` of the first refusal: at
 * the end of a window, in each window between, and at the begin of the last (override_set.c). */
static bool ban_can_come(const struct stint_policy *policy) {
    const uint32_t between = policy->ban_after > 2 ? policy->ban_after - 2 : 0;
    const tick_t shortest = policy->calendar != 0
                                ? calendar_shortest(policy->calendar, between)
                                : (tick_t)(policy->window / STINT_TICK_NS) * between;
    /* The instant at which a bucket is full may pass so many windows at once. */
    const uint64_t bucket = policy->burst * bucket_unit(policy->window, policy->limit);
    const uint64_t within = policy->ban_within != 0 ? policy->ban_within : policy->ban;
    return tick_of(within) + tick_of(bucket) > shortest;
}

static int check_ban(const struct stint_policy *policy, enum option wrong[2]) {
    const enum option needs = policy->ban_after != 0 ? OPTION_AFTER : OPTION_WITHIN;

    if (policy->ban == 0)
        return has(policy, needs) ? refuse(wrong, needs, OPTION_BAN, "%s needs %s, the time") : 0;
    if ((policy->flags & STINT_OVERRIDES) == 0)
        return stint_failed(EINVAL, "policy.ban needs STINT_OVERRIDES in policy.flags");
    int error = check_time(policy->ban, "ban");
    if (error == 0 && policy->ban_within != 0)
        error = check_time(policy->ban_within, "ban_within");
    if (error != 0)
        return error;
    if (policy->ban_after > STINT_BAN_AFTER_MAX)
        return stint_failed(EINVAL, "policy.ban_after must be at most 65,535 windows");
    if (!ban_can_come(policy))
        return refuse(wrong, policy->ban_within != 0 ? OPTION_WITHIN : OPTION_BAN, OPTION_AFTER,
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
        return stint_failed(
            EINVAL,
            "policy.flags has a flag that is none of enum stint_policy_flags: leave it out");
    if (policy->reserved != 0)
        return stint_failed(EINVAL, "the reserved word of a policy must be 0");
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

/* ---- What is allowed, and hardly meant ------------------------------------------------------- */

#define BURST_LEAST (2 * STINT_TICK_NS) /* it should last so long: two steps of the default clock */

/* Adds to a text what printf would write; `note` has room for it. */
#define add_note(text, ...)                                                                        \
    (add_text(text, (text)->length != 0 ? "; " : ""),                                              \
     (void)snprintf(note, sizeof(note), __VA_ARGS__), add_text(text, note))

int stint_policy_note(const struct stint_policy *given, char *buffer, size_t size) {
    struct stint_policy policy;
    struct text text = {.buffer = buffer, .size = size};
    char note[256];

    if (buffer == NULL && size != 0)
        return stint_failed(EINVAL, "buffer is NULL");
    int error = stint_policy_given(given, &policy);
    if (error != 0)
        return error;
    const uint64_t unit = policy.burst != 0 ? bucket_unit(policy.window, policy.limit) : 0;
    if (policy.burst != 0 && policy.burst * unit < BURST_LEAST)
        add_note(&text,
                 "burst=%u lasts less than 20 ms at this rate. The default clock stands still for "
                 "up to 10 ms, so a key may get less than its rate: take burst=%u or more",
                 policy.burst, (unsigned)((BURST_LEAST + unit - 1) / unit));
    if ((policy.flags & STINT_SMOOTH) != 0 && policy.limit <= 2)
        add_note(&text,
                 "smooth with a limit of %u grants about half to steady demand: burst=%u in its "
                 "place grants all",
                 policy.limit, policy.limit);
    if (policy.capacity != 0 && policy.capacity < policy.limit && policy.max_reserved == 0)
        add_note(&text,
                 "no window grants more than capacity=%u, and a larger cost never fits, though "
                 "the limit is %u",
                 policy.capacity, policy.limit);
    const uint64_t window =
        policy.calendar != 0 ? tick_ns(calendar_shortest(policy.calendar, 1)) : policy.window;
    /* A ban that begins early in its window ends before anything would be granted. */
    if (policy.ban != 0 && policy.ban < (unit != 0 ? unit : window))
        add_note(&text, "ban= is shorter than %s: a ban that ends before that keeps nobody out",
                 unit != 0 ? "a token takes to come back" : "the window");
    if (policy.ban != 0 && (policy.flags & STINT_SHADOW) != 0)
        add_note(&text, "a shadow counts no strikes: bans begin once it is lifted");
    return end_text(&text);
}
