/* SPDX-License-Identifier: MIT
 * Now and a policy -> the window, named by its end. Integers; no atomics, no clock, no state.
 *
 * Time is a signed 64-bit number of ticks of 10 ms since the Unix epoch: times before it, or before
 * a policy's start, are ordinary numbers. Windows and starts are whole ticks: nothing is rounded.
 *
 * In a slot, an end is cut to 33 bits, its id. Ids are compared by difference: an id stands for the
 * end that lies within 2^32 ticks (1.36 years) of a time that is known. */
#ifndef STINT_WINDOW_H
#define STINT_WINDOW_H

#include <assert.h>

#include <stint.h>

/* For functions of the short ways: what they are given by pointer stays in registers. */
#define ALWAYS_INLINE       inline __attribute__((always_inline))
/* For functions that a short way leaves for: they take none of its registers. */
#define NOINLINE            __attribute__((noinline))
#define LIKELY(condition)   __builtin_expect(!!(condition), 1)
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)

typedef int64_t tick_t;

#define ID_BITS 33
#define ID_MASK ((UINT64_C(1) << ID_BITS) - 1)

#define TICKS_IN_SECOND ((tick_t)(1000000000 / STINT_TICK_NS))

/* How far a slot may be ahead of the clock, beyond its own window, before the clock counts as
 * stepped back: promise H's allowance. It covers the small steps that NTP makes. */
#define ALLOWANCE_TICKS ((tick_t)6000) /* 60 s */
#define ALLOWANCE_NS    ((uint64_t)ALLOWANCE_TICKS * STINT_TICK_NS)

/* How far a thread's clock may go back, ns, before the time that passes must count again. */
#define BACK_NS ((uint64_t)10 * STINT_TICK_NS)

/* Ids, 2^33 ticks apart, are not mistaken while no live end is 2^32 ticks ahead. */
static_assert(STINT_WINDOW_MAX / STINT_TICK_NS + 2 * 6000 < UINT64_C(1) << (ID_BITS - 1),
              "a window and twice the allowance fit in half the range of an id");
/* UINT64_MAX ns is 1.8e12 ticks: sums of a few such numbers are far from overflow. */
static_assert(UINT64_MAX / STINT_TICK_NS < INT64_MAX / 1024, "ticks do not overflow");

static inline tick_t tick_of(uint64_t ns) {
    return (tick_t)(ns / STINT_TICK_NS);
}

/* The tick of the last ns, in the year 2554. */
#define LAST_TICK ((tick_t)(UINT64_MAX / STINT_TICK_NS))

/* The first ns of a tick since the epoch. Past 2554 it wraps, but differences are right. */
static inline uint64_t tick_ns(tick_t tick) {
    return (uint64_t)tick * STINT_TICK_NS;
}

/* The tick of an end of tick_ns. One past 2554 has wrapped, and is no whole tick, as 2^64 none. */
static inline tick_t tick_of_end(uint64_t ns) {
    const uint64_t wrapped = STINT_TICK_NS - (UINT64_MAX % STINT_TICK_NS + 1);
    return tick_of(ns) +
           (ns % STINT_TICK_NS == wrapped ? (tick_t)(UINT64_MAX / STINT_TICK_NS) + 1 : 0);
}

/* A window: [begin, end). */
struct span {
    tick_t begin, end;
};

/* The window that holds tick `now`, of windows [start + k * length, start + (k+1) * length), k any
 * integer: the division is rounded down, also for times before start. */
static inline struct span window_span(tick_t now, tick_t start, tick_t length) {
    tick_t into = (now - start) % length;
    if (into < 0)
        into += length;
    return (struct span){now - into, now - into + length};
}

static inline uint64_t id_of(tick_t end) {
    return (uint64_t)end & ID_MASK;
}

/* The end that an id stands for: the one within [near - 2^32, near + 2^32). */
static inline tick_t end_of(uint64_t id, tick_t near) {
    uint64_t ahead = (id - (uint64_t)near) & ID_MASK;
    return near + (tick_t)ahead - (tick_t)((ahead >> (ID_BITS - 1)) << ID_BITS);
}

/* The latest end by `now` that an id stands for: that of a slot which is over. */
static inline tick_t end_before(uint64_t id, tick_t now) {
    return now - (tick_t)(((uint64_t)now - id) & ID_MASK);
}

/* ---- Months and years of the calendar -------------------------------------------------------- */

/* Days are counted from the epoch, by the Gregorian calendar as if it had always been there; months
 * from March of the year 0: a leap day is the last of its year, and moves no month. */

#define TICKS_IN_MINUTE (60 * TICKS_IN_SECOND)
#define TICKS_IN_DAY    (86400 * TICKS_IN_SECOND)

/* The longest windows: slots are compared with the clock by these. */
#define CALENDAR_MONTH_MAX (31 * TICKS_IN_DAY)
#define CALENDAR_YEAR_MAX  (366 * TICKS_IN_DAY)

static_assert(CALENDAR_YEAR_MAX <= (tick_t)(STINT_WINDOW_MAX / STINT_TICK_NS),
              "an id holds the end of a year as of any window");

/* From 1 March of the year 0 to the epoch. */
#define EPOCH_DAY 719468

static inline int64_t floor_div(int64_t number, int64_t by) {
    return number / by - (number % by < 0);
}

static inline int64_t month_day(int64_t month) {
    /* Before each month, from March on. */
    static const int16_t days[12] = {0, 31, 61, 92, 122, 153, 184, 214, 245, 275, 306, 337};
    int64_t year = floor_div(month, 12);
    int64_t leap_days = floor_div(year, 4) - floor_div(year, 100) + floor_div(year, 400);
    return 365 * year + leap_days + days[month - 12 * year] - EPOCH_DAY;
}

static inline int64_t day_month(int64_t day) {
    /* 400 years have 4,800 months and 146,097 days. The estimate is off by one at most. */
    int64_t month = floor_div((day + EPOCH_DAY) * 4800, 146097);
    while (month_day(month) > day)
        month--;
    while (month_day(month + 1) <= day)
        month++;
    return month;
}

static inline tick_t month_into(tick_t tick) {
    return tick - month_day(day_month(floor_div(tick, TICKS_IN_DAY))) * TICKS_IN_DAY;
}

/* The shortest time of so many months or years in a row: from a February on, before leap years. (Of
 * two years and more one may be a leap year; no policy has a time that long.) */
static inline tick_t calendar_shortest(uint32_t calendar, uint32_t count) {
    const int64_t february = 11, months = calendar == STINT_CALENDAR_YEAR ? 12 : 1;
    return (month_day(february + count * months) - month_day(february)) * TICKS_IN_DAY;
}

/* The window that holds tick `now`, by a clock that is `offset` minutes ahead of UTC. Months begin
 * on the day, 28 at most, and at the time of `start`; years in its month, too. */
static inline struct span calendar_window(tick_t now, tick_t start, uint32_t calendar,
                                          int32_t offset) {
    const int64_t months = calendar == STINT_CALENDAR_YEAR ? 12 : 1;
    const int64_t first = day_month(floor_div(start, TICKS_IN_DAY));
    /* From ticks of UTC to those of a clock by which windows begin with the month. */
    const tick_t ahead = offset * TICKS_IN_MINUTE - month_into(start);
    int64_t month = day_month(floor_div(now + ahead, TICKS_IN_DAY));
    month = first + floor_div(month - first, months) * months;
    return (struct span){month_day(month) * TICKS_IN_DAY - ahead,
                         month_day(month + months) * TICKS_IN_DAY - ahead};
}

#endif
