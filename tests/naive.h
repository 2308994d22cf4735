/* SPDX-License-Identifier: MIT
 * The arithmetic of policies, written in the most obvious way from stint.h alone, for the tests
 * that hold the library against a model. It shares nothing with src/charge.h and src/window.h. */
#ifndef STINT_TESTS_NAIVE_H
#define STINT_TESTS_NAIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "stint.h"

__extension__ typedef unsigned __int128 wide;

static inline uint32_t capacity_of(const struct stint_policy *policy) {
    return policy->capacity ? policy->capacity : policy->limit;
}

static inline bool is_smooth(const struct stint_policy *policy) {
    return policy->flags & STINT_SMOOTH;
}

static inline bool is_striped(const struct stint_policy *policy) {
    return policy->stripes > 1;
}

/* What is used is paid back by new windows, instead of forgotten. */
static inline bool carries(const struct stint_policy *policy) {
    return capacity_of(policy) > policy->limit || policy->max_reserved > 0;
}

/* Most tokens that the count of a key's window holds: STINT_CHARGE stops there. */
static inline uint32_t count_most(const struct stint_policy *policy) {
    if (is_smooth(policy))
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

/* One that marks no refusal and is not counted either, as the look before a charge is. */
static inline bool merely_looks(const struct stint_request *request) {
    return (request->flags & (STINT_PEEK | STINT_CHARGE)) == STINT_PEEK;
}

static inline bool makes_charge(const struct stint_request *request) {
    return (request->flags & (STINT_PEEK | STINT_CHARGE)) == STINT_CHARGE;
}

/* The end of the window that holds `now`, for a key whose windows start `phase` later. */
static inline uint64_t window_end_at(const struct stint_policy *policy, uint64_t phase,
                                     uint64_t now) {
    int64_t window = (int64_t)policy->window;
    int64_t into = ((int64_t)now - policy->start - (int64_t)phase) % window;
    if (into < 0)
        into += window;
    return (uint64_t)((int64_t)now - into + window);
}

/* Tokens used of a key by the end of one of its windows, and of the window before (smooth). */
struct count {
    uint32_t used;
    uint32_t previous;
    uint64_t window; /* its end, ns */
};

/* The time from which a slot says no more than its absence would. */
static inline uint64_t count_free_at(const struct stint_policy *policy, struct count count) {
    if (is_smooth(policy))
        return count.window + (count.used > 0 ? policy->window : 0);
    if (!carries(policy) || count.used <= policy->limit)
        return count.window;
    return sum_or_most(count.window, ceil_div(count.used, policy->limit) - 1, policy->window);
}

/* The count in the window that ends at `end`, at or after its own. */
static inline struct count count_passed_to(const struct stint_policy *policy, struct count count,
                                           uint64_t end) {
    uint64_t passed = (end - count.window) / policy->window;
    uint64_t paid = carries(policy) ? passed * policy->limit : UINT64_MAX;
    if (passed == 0)
        return count;
    return (struct count){
        .used = count.used > paid ? (uint32_t)(count.used - paid) : 0,
        .previous = is_smooth(policy) && passed == 1 ? count.used : 0,
        .window = end,
    };
}

/* The tokens that are compared with the limit. */
static inline uint64_t count_sum(const struct stint_policy *policy, struct count count,
                                 uint64_t now) {
    uint64_t window = policy->window, left = count.window - now;
    if (!is_smooth(policy))
        return count.used;
    if (left > window)
        left = window;
    return (uint64_t)(((wide)count.previous * left + window - 1) / window) + count.used;
}

/* Until when a smooth limit does not let `cost` through, which it can at some time. */
static inline uint64_t count_smooth_fits_at(const struct stint_policy *policy, struct count count,
                                            uint32_t cost, uint64_t limit) {
    uint64_t window = policy->window;
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
