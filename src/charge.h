/* SPDX-License-Identifier: MIT
 * What windows and requests do to a count: roll-over, smooth windows, fitting, waiting. Pure
 * arithmetic in integers: no atomics, no clock, no state.
 *
 * A count is the 29 bits of a slot's state that hold what was taken. For most policies that is
 * `used`; for smooth ones it is two numbers of 14 bits:
 *
 *     28 | 27 ... 14  previous window | 13 ... 0  this window */
#ifndef STINT_CHARGE_H
#define STINT_CHARGE_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "window.h"

#define SMOOTH_BITS 14
#define SMOOTH_MAX  ((UINT64_C(1) << SMOOTH_BITS) - 1)

/* Flags beside those of enum stint_request_flags, of decisions that are parts of others. */
enum {
    DECIDE_MARK =
        1 << 16, /* refuse whatever is left: the whole was refused on account of this one */
    DECIDE_QUIET = 1 << 17, /* count it in the statistics only if it is refused */
    DECIDE_PART = 1 << 18,  /* do not count it, nor mark its refusal (unless DECIDE_MARK) */
    DECIDE_HERE = 1 << 19,  /* do nothing if the key is in a later window (decision.here) */
};

/* What may change of a policy. */
struct rule {
    uint32_t limit;
    uint32_t capacity;
    uint32_t max_reserved;
    uint32_t stripes; /* 1: none */
    uint32_t flags;
    uint32_t near_limit;     /* percent */
    uint32_t jitter;         /* percent */
    uint32_t capacity_given; /* 0: none, so that the capacity follows the limit */
};
static_assert(sizeof(struct rule) == 32, "two rules fill a line");

/* A request, and the instant in the window for which it is judged. */
struct terms {
    struct rule rule;
    tick_t length;     /* of the window */
    uint64_t cost;     /* tokens */
    uint64_t capacity; /* most tokens that count as held; the request's own or the policy's */
    uint64_t room; /* most that may be used after this request: capacity, and what it may reserve */
    uint32_t flags; /* of the request */
    bool counted;   /* a fetch-add has counted this request already, whether it fits or not */
};

/* Whether a new window may begin with another count than 0. */
static inline bool rule_carries(const struct rule *rule) {
    return rule->capacity > rule->limit || rule->max_reserved > 0 ||
           (rule->flags & STINT_SMOOTH) != 0;
}

/* The count with which a window begins, `windows` >= 1 after the one that ended with `count`. */
static inline uint64_t count_carry(const struct rule *rule, uint64_t count, uint64_t windows) {
    if (!rule_carries(rule))
        return 0; /* whatever it was: refused requests may have counted */
    if ((rule->flags & STINT_SMOOTH) != 0)
        return windows == 1 ? (count & SMOOTH_MAX) << SMOOTH_BITS : 0;
    /* No overflow: 2^28 tokens, 2^33 windows. */
    uint64_t paid = rule->limit * windows;
    return count > paid ? count - paid : 0;
}

/* ceil(count * left / window) of the previous window's count. */
static inline uint64_t smooth_share(uint64_t previous, uint64_t left, uint64_t window) {
    __extension__ typedef unsigned __int128 wide;
    if (left >= window) /* a late thread's */
        return previous;
    return (uint64_t)(((wide)previous * left + window - 1) / window);
}

/* A stripe's tokens: the shares of all stripes add up to the capacity. */
static inline uint64_t stripe_share(uint64_t capacity, uint32_t stripes, uint32_t stripe) {
    return capacity / stripes + (stripe < capacity % stripes);
}

/* What a count amounts to, `left` ns before the end of its window. */
static inline uint64_t count_total(const struct terms *terms, uint64_t count, uint64_t left) {
    if ((terms->rule.flags & STINT_SMOOTH) == 0)
        return count;
    return smooth_share(count >> SMOOTH_BITS & SMOOTH_MAX, left, tick_ns(terms->length)) +
           (count & SMOOTH_MAX);
}

/* What a request does to a count. */
struct charge {
    uint64_t count; /* afterwards */
    uint64_t total; /* what that amounts to */
    uint32_t granted;
    bool fits;
};

static inline struct charge charge_of(const struct terms *terms, uint64_t count, uint64_t left) {
    uint64_t total = count_total(terms, count, left);
    uint64_t taken = 0;

    if ((terms->flags & DECIDE_MARK) == 0) {
        if (total + terms->cost <= terms->room)
            return (struct charge){count + terms->cost, total + terms->cost, (uint32_t)terms->cost,
                                   true};
        if ((terms->flags & STINT_PARTIAL) != 0 && total < terms->room) {
            taken = terms->room - total;
            return (struct charge){count + taken, terms->room, (uint32_t)taken, true};
        }
    }
    if ((terms->flags & STINT_PEEK) != 0) /* drains nothing, counts nothing */
        return (struct charge){count, total, 0, false};
    if ((terms->flags & STINT_DRAIN) != 0 && total < terms->capacity)
        taken = terms->capacity - total;
    if ((terms->rule.flags & STINT_COUNT_REFUSED) != 0 && !terms->counted) {
        uint64_t most = total + taken < STINT_LIMIT_MAX ? STINT_LIMIT_MAX - total - taken : 0;
        taken += terms->cost < most ? terms->cost : most;
    }
    return (struct charge){count + taken, total + taken, 0, false};
}

/* Sums of waits end just below STINT_NEVER. */
static inline uint64_t wait_add(uint64_t one, uint64_t other) {
    uint64_t sum;
    return __builtin_add_overflow(one, other, &sum) || sum == STINT_NEVER ? STINT_NEVER - 1 : sum;
}

/* ns from the end of a window to that of the one in which all but `room` of `over` is paid back. */
static inline uint64_t wait_windows(const struct terms *terms, uint64_t total, uint64_t room) {
    if (!rule_carries(&terms->rule) || total <= room)
        return 0;
    uint64_t windows = (total - room + terms->rule.limit - 1) / terms->rule.limit;
    uint64_t wait;
    return __builtin_mul_overflow(windows - 1, tick_ns(terms->length), &wait) ? STINT_NEVER - 1
                                                                              : wait;
}

/* ns until `room` is enough for the previous window's share, `left` ns before the end of the
 * window. */
static inline uint64_t wait_share(uint64_t previous, uint64_t room, uint64_t left,
                                  uint64_t window) {
    __extension__ typedef unsigned __int128 wide;
    if (previous <= room)
        return 0;
    uint64_t enough =
        (uint64_t)((wide)room * window / previous); /* left, when it is small enough */
    return left > enough ? left - enough : 0;
}

static inline uint64_t wait_smooth(const struct terms *terms, uint64_t count, uint64_t left) {
    uint64_t window = tick_ns(terms->length);
    uint64_t previous = count >> SMOOTH_BITS & SMOOTH_MAX, current = count & SMOOTH_MAX;

    if (left >
        window) /* a late thread's: as if the window had just begun, and what is before that */
        return left - window + wait_smooth(terms, count, window);
    if (current + terms->cost <= terms->capacity)
        return wait_share(previous, terms->capacity - current - terms->cost, left, window);
    return left + wait_share(current, terms->capacity - terms->cost, window, window);
}

/* The verdict's retry_after, without jitter, after a charge of a request of which `count` is left.
 */
static inline uint64_t charge_wait(const struct terms *terms, const struct charge *charge,
                                   uint64_t left) {
    if (charge->fits) /* a reservation waits until what it took is there */
        return charge->total > terms->capacity
                   ? wait_add(left, wait_windows(terms, charge->total, terms->capacity))
                   : 0;
    if (terms->cost > terms->room)
        return STINT_NEVER;
    if ((terms->rule.flags & STINT_SMOOTH) != 0)
        return wait_smooth(terms, charge->count, left);
    /* What drained or counted refusals took has to be paid back, too. */
    return wait_add(left, wait_windows(terms, charge->total + terms->cost, terms->room));
}

/* Mixes a hash and a number: the finalizer of splitmix64. */
static inline uint64_t mix(uint64_t hash, uint64_t number) {
    uint64_t x = hash + number * UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

/* A part of `whole` that a hash picks: uniform in [0, whole). */
static inline uint64_t part_of(uint64_t hash, uint64_t whole) {
    __extension__ typedef unsigned __int128 wide;
    return (uint64_t)((wide)hash * whole >> 64);
}

#endif
