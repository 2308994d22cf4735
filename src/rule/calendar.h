/* SPDX-License-Identifier: MIT
 * Windows that are months or years of the calendar; otherwise as window.h.
 *
 * Days are counted from the epoch, by the Gregorian calendar as if it had always been there; months
 * from March of the year 0: a leap day is the last of its year, and moves no month. */
#ifndef STINT_CALENDAR_H
#define STINT_CALENDAR_H

#include "rule/window.h"

#define TICKS_IN_MINUTE (60 * TICKS_IN_SECOND)
#define TICKS_IN_DAY    (86400 * TICKS_IN_SECOND)

/* The longest windows: slots are compared with the clock by these. */
#define CALENDAR_MONTH_MAX (31 * TICKS_IN_DAY)
#define CALENDAR_YEAR_MAX  (366 * TICKS_IN_DAY)

static_assert(CALENDAR_YEAR_MAX <= (tick_t)(STINT_WINDOW_MAX / STINT_TICK_NS),
              "an id holds the end of a year as of any window");

/* Every month has this day. */
#define CALENDAR_DAY_MAX 28

/* The most that a clock differs from UTC, in minutes. */
#define OFFSET_WEST_MAX 720
#define OFFSET_EAST_MAX 840

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

static inline tick_t calendar_longest(uint32_t calendar) {
    return calendar == STINT_CALENDAR_YEAR ? CALENDAR_YEAR_MAX : CALENDAR_MONTH_MAX;
}

/* The shortest time of so many months or years in a row: from a February on, before leap years. (Of
 * two years and more one may be a leap year; no policy has a time that long.) */
static inline tick_t calendar_shortest(uint32_t calendar, uint32_t count) {
    const int64_t february = 11, months = calendar == STINT_CALENDAR_YEAR ? 12 : 1;
    return (month_day(february + count * months) - month_day(february)) * TICKS_IN_DAY;
}

/* The window that holds tick `now`, by a clock that is `offset` minutes ahead of UTC. Months begin
 * on the day of the month and at the time of `start`, which is a tick of that clock; years in its
 * month, too. That day is CALENDAR_DAY_MAX at most. So every window begins in another month of the
 * calendar, always by as much later than the month. */
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
