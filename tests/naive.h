/* SPDX-License-Identifier: MIT
 * The arithmetic of policies, written in the most obvious way from stint.h alone, for the tests
 * that hold the library against a model. It shares nothing with src/charge.h and src/window.h. */
#ifndef STINT_TESTS_NAIVE_H
#define STINT_TESTS_NAIVE_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "stint.h"

__extension__ typedef unsigned __int128 wide;

static inline uint32_t capacity_of(const struct stint_policy *policy) {
    return policy->capacity ? policy->capacity : policy->limit;
}

static inline bool is_smooth(const struct stint_policy *policy) {
    return policy->flags & STINT_SMOOTH;
}

/* What was taken is held until it is given back, or until the window after its own ends. */
static inline bool is_in_flight(const struct stint_policy *policy) {
    return policy->flags & STINT_IN_FLIGHT;
}

/* The window before counts, too. */
static inline bool looks_back(const struct stint_policy *policy) {
    return is_smooth(policy) || is_in_flight(policy);
}

static inline bool is_striped(const struct stint_policy *policy) {
    return policy->stripes > 1;
}

/* A key's window begins with its first request. */
static inline bool is_first(const struct stint_policy *policy) {
    return policy->flags & STINT_START_FIRST;
}

static inline bool is_calendar(const struct stint_policy *policy) {
    return policy->calendar != 0;
}

/* What is used is paid back by new windows, instead of forgotten. */
static inline bool carries(const struct stint_policy *policy) {
    return capacity_of(policy) > policy->limit || policy->max_reserved > 0;
}

/* Most tokens that the count of a key's window holds: STINT_CHARGE stops there. */
static inline uint32_t count_most(const struct stint_policy *policy) {
    if (looks_back(policy))
        return 16383;
    return carries(policy) ? capacity_of(policy) + policy->max_reserved : STINT_LIMIT_MAX;
}

static inline uint64_t ceil_div(uint64_t a, uint64_t b) {
    return a / b + (a % b != 0);
}

static inline uint64_t sum_or_most(uint64_t base, uint64_t n, uint64_t window) {
    wide sum = (wide)n * window + base;
    return sum > UINT64_MAX ? UINT64_MAX : (uint64_t)sum;
}

/* A request that takes nothing. */
static inline bool takes_nothing(const struct stint_request *request) {
    return request->flags & STINT_PEEK;
}

/* The flags of requests that make no sense with a policy: nobody would hold what they take. */
static inline uint32_t unfit_flags(const struct stint_policy *policy) {
    return is_in_flight(policy) ? STINT_DRAIN | STINT_CHARGE : 0;
}

/* One that marks no refusal and is not counted either, as the look before a charge is. */
static inline bool merely_looks(const struct stint_request *request) {
    return (request->flags & (STINT_PEEK | STINT_CHARGE)) == STINT_PEEK;
}

static inline bool makes_charge(const struct stint_request *request) {
    return (request->flags & (STINT_PEEK | STINT_CHARGE)) == STINT_CHARGE;
}

/* The date and time at which one window starts, by the policy's clock. */
static inline struct tm calendar_start(const struct stint_policy *policy) {
    time_t seconds = policy->start / 1000000000 - (policy->start % 1000000000 < 0);
    struct tm start;
    gmtime_r(&seconds, &start);
    return start;
}

/* When a calendar policy's window begins in that month of that year (both as struct tm has them; a
 * month may be any number), or would if each month began one. */
static inline int64_t calendar_begin(const struct stint_policy *policy, int year, int month) {
    struct tm start = calendar_start(policy), begin = {.tm_year = year, .tm_mon = month};
    int64_t ns = policy->start % 1000000000;
    if (ns < 0)
        ns += 1000000000;
    begin.tm_mday = start.tm_mday;
    begin.tm_hour = start.tm_hour;
    begin.tm_min = start.tm_min;
    begin.tm_sec = start.tm_sec;
    return (timegm(&begin) - policy->offset * 60) * 1000000000 + ns;
}

/* When the window of `now` ends, or when it began. */
static inline uint64_t calendar_edge(const struct stint_policy *policy, uint64_t now, bool end) {
    bool yearly = policy->calendar == STINT_CALENDAR_YEAR;
    int start_month = calendar_start(policy).tm_mon;
    time_t seconds = (time_t)(now / 1000000000);
    int64_t last = 0;
    struct tm tm;
    gmtime_r(&seconds, &tm);
    for (int month = tm.tm_mon - (yearly ? 24 : 3);; month++) {
        if (yearly && (month - start_month) % 12 != 0)
            continue;
        int64_t begin = calendar_begin(policy, tm.tm_year, month);
        if (begin > (int64_t)now)
            return (uint64_t)(end ? begin : last);
        last = begin;
    }
}

/* How long its windows are at most, by which a step of the clock is told. */
static inline uint64_t longest_window(const struct stint_policy *policy) {
    const uint64_t day = UINT64_C(86400000000000);
    if (!is_calendar(policy))
        return policy->window;
    return policy->calendar == STINT_CALENDAR_YEAR ? 366 * day : 31 * day;
}

/* How long the window is that ends at `end`. */
static inline uint64_t window_length(const struct stint_policy *policy, uint64_t end) {
    return is_calendar(policy) ? end - calendar_edge(policy, end - 1, false) : policy->window;
}

/* The end of the window that holds `now`, for a key whose windows start `phase` later; of the one
 * that a first request begins then. */
static inline uint64_t window_end_at(const struct stint_policy *policy, uint64_t phase,
                                     uint64_t now) {
    if (is_calendar(policy))
        return calendar_edge(policy, now, true);
    if (is_first(policy))
        return now - now % STINT_TICK_NS + policy->window;
    int64_t window = (int64_t)policy->window;
    int64_t into = ((int64_t)now - policy->start - (int64_t)phase) % window;
    if (into < 0)
        into += window;
    return (uint64_t)((int64_t)now - into + window);
}

/* Tokens used of a key by the end of one of its windows, and of the window before (looks_back). */
struct count {
    uint32_t used;
    uint32_t previous;
    uint64_t window; /* its end, ns */
};

/* The time from which a slot says no more than its absence would. */
static inline uint64_t count_free_at(const struct stint_policy *policy, struct count count) {
    if (looks_back(policy))
        return count.window + (count.used > 0 ? policy->window : 0);
    if (!carries(policy) || count.used <= policy->limit)
        return count.window;
    return sum_or_most(count.window, ceil_div(count.used, policy->limit) - 1, policy->window);
}

/* The count in the window that ends at `end`, at or after its own. */
static inline struct count count_passed_to(const struct stint_policy *policy, struct count count,
                                           uint64_t end) {
    uint64_t passed =
        is_calendar(policy) ? end != count.window : (end - count.window) / policy->window;
    uint64_t paid = carries(policy) ? passed * policy->limit : UINT64_MAX;
    if (passed == 0)
        return count;
    return (struct count){
        .used = count.used > paid ? (uint32_t)(count.used - paid) : 0,
        .previous = looks_back(policy) && passed == 1 ? count.used : 0,
        .window = end,
    };
}

/* The tokens that are compared with the limit. */
static inline uint64_t count_sum(const struct stint_policy *policy, struct count count,
                                 uint64_t now) {
    uint64_t window = policy->window, left = count.window - now;
    if (is_in_flight(policy))
        return (uint64_t)count.previous + count.used;
    if (!is_smooth(policy))
        return count.used;
    if (left > window)
        left = window;
    return (uint64_t)(((wide)count.previous * left + window - 1) / window) + count.used;
}

/* Until when a limit by which the window before counts does not let `cost` through, which it can at
 * some time, if nothing is given back. */
static inline uint64_t count_fits_at(const struct stint_policy *policy, struct count count,
                                     uint32_t cost, uint64_t limit) {
    uint64_t window = policy->window;
    if (is_in_flight(policy)) /* when what is in the way is forgotten */
        return count.window + (count.used + (uint64_t)cost <= limit ? 0 : window);
    if (count.used + (uint64_t)cost <= limit)
        return count.window -
               (uint64_t)((wide)(limit - count.used - cost) * window / count.previous);
    return count.window + window - (uint64_t)((wide)(limit - cost) * window / count.used);
}

/* The time until `cost` fits into `room`, of which more is used now. */
static inline uint64_t count_wait(const struct stint_policy *policy, struct count count,
                                  uint32_t cost, uint64_t room, uint64_t now) {
    uint64_t first = count.window - now;
    if (!carries(policy))
        return first;
    uint64_t windows = ceil_div(count.used + (uint64_t)cost - room, policy->limit);
    return sum_or_most(first, windows - 1, policy->window);
}

#endif
