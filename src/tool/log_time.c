/* SPDX-License-Identifier: MIT
 * The times of access logs. */
#include "log_time.h"

#include <string.h>

#include "access_log.h"

static const char too_early[] = "the time is before 1970";
static const char too_late[] = "the time is after the year 2199";

static const char *time_from(int64_t seconds, uint32_t ns, uint64_t *time_ns) {
    if (seconds < 0)
        return too_early;
    if (seconds >= LOG_SECONDS_MAX)
        return too_late;
    *time_ns = (uint64_t)seconds * 1000000000u + ns;
    return NULL;
}

/* ---- Dates ---- */

struct civil {
    int year, month, day, hour, minute, second, zone_hour, zone_minute; /* -1: no number */
    bool west;
    uint32_t ns;
};

/* Days from 1970-01-01 in the Gregorian calendar, negative before. Years are counted from March, so
 * that the leap day is the last of a year. */
static int64_t days_from(int year, int month, int day) {
    int64_t y = month <= 2 ? year - 1 : year;
    int64_t leap_days = y / 4 - y / 100 + y / 400;
    int64_t march_days = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5;
    return 365 * y + leap_days + march_days + day - 1 - 719468;
}

static int days_in(int year, int month) {
    static const int days[12] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    return days[month - 1] + (month == 2 && leap);
}

static bool all_numbers(const struct civil *civil) {
    return civil->year >= 0 && civil->month > 0 && civil->month <= 12 && civil->day >= 0 &&
           civil->hour >= 0 && civil->minute >= 0 && civil->second >= 0 && civil->zone_hour >= 0 &&
           civil->zone_minute >= 0;
}

static const char *time_of(const struct civil *civil, uint64_t *time_ns) {
    if (civil->day == 0 || civil->day > days_in(civil->year, civil->month))
        return "there is no such day";
    if (civil->hour > 23 || civil->minute > 59 || civil->second > 60) /* 60: a leap second */
        return "there is no such time of day";
    if (civil->zone_hour > 23 || civil->zone_minute > 59)
        return "there is no such time zone";
    int64_t zone = (civil->zone_hour * 60 + civil->zone_minute) * (civil->west ? -60 : 60);
    return time_from(days_from(civil->year, civil->month, civil->day) * 86400 + civil->hour * 3600 +
                         civil->minute * 60 + civil->second - zone,
                     civil->ns, time_ns);
}

/* ---- Pieces ---- */

/* Reads `digits` digits; -1 if one is not. */
static int number_at(const char *at, int digits) {
    int number = 0;
    for (int i = 0; i < digits; i++) {
        if (at[i] < '0' || at[i] > '9')
            return -1;
        number = number * 10 + (at[i] - '0');
    }
    return number;
}

/* 1 to 12; 0: it is none. */
static int month_at(const char *at) {
    static const char months[12][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                       "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    for (int month = 0; month < 12; month++)
        if (memcmp(at, months[month], 3) == 0)
            return month + 1;
    return 0;
}

/* Reads digits behind a point, to the ninth. Returns where they end; NULL: there are none. */
static const char *decimals(const char *at, const char *end, uint32_t *ns) {
    const char *digits = at;

    *ns = 0;
    for (uint32_t scale = 100000000; at < end && *at >= '0' && *at <= '9'; at++, scale /= 10)
        *ns += scale * (uint32_t)(*at - '0'); /* past the ninth the scale is 0 */
    return at == digits ? NULL : at;
}

/* 17/May/2015:10:05:03, 20 bytes. */
enum { CLF_DATE = 20, CLF_LENGTH = 26 };
static bool clf_date(const char *at, struct civil *civil) {
    *civil = (struct civil){.year = number_at(at + 7, 4),
                            .month = month_at(at + 3),
                            .day = number_at(at, 2),
                            .hour = number_at(at + 12, 2),
                            .minute = number_at(at + 15, 2),
                            .second = number_at(at + 18, 2)};
    return at[2] == '/' && at[6] == '/' && at[11] == ':' && at[14] == ':' && at[17] == ':' &&
           all_numbers(civil);
}

/* 17/May/2015:10:05:03 +0000, 26 bytes. */
static bool clf_time(const char *at, struct civil *civil) {
    if (!clf_date(at, civil) || at[20] != ' ' || (at[21] != '+' && at[21] != '-'))
        return false;
    civil->zone_hour = number_at(at + 22, 2);
    civil->zone_minute = number_at(at + 24, 2);
    civil->west = at[21] == '-';
    return all_numbers(civil);
}

/* ---- The forms ---- */

const char *log_time_clf(struct text line, struct text *brackets, uint64_t *time_ns) {
    enum { FORM = CLF_LENGTH + 2 };
    const char *at = line.bytes, *end = line.bytes + line.length;
    const char *why = "there is no time in brackets";
    struct civil civil;
    uint64_t found_ns = 0;

    *brackets = (struct text){NULL, 0};
    for (; at < end; at++) {
        if (*at == '\\') { /* an escaped quote in a user's name */
            at += end - at > 1;
        } else if (*at == '"') {
            if (brackets->bytes != NULL)
                break;
            for (at++; at < end && *at != '"'; at++)
                at += *at == '\\' && end - at > 1;
        } else if (*at == '[' && end - at >= FORM && at[FORM - 1] == ']' &&
                   clf_time(at + 1, &civil)) {
            why = time_of(&civil, &found_ns);
            *brackets = (struct text){at, FORM};
            at += FORM - 1;
        } else if (*at == '[' && brackets->bytes == NULL) {
            why = "the brackets hold no time like [17/May/2015:10:05:03 +0000]";
        }
    }
    if (why == NULL)
        *time_ns = found_ns;
    return why;
}

const char *log_time_haproxy(struct text line, struct text *brackets, uint64_t *time_ns) {
    enum { FORM = CLF_DATE + 6 }; /* and [.042] */
    const char *at = line.bytes, *end = line.bytes + line.length;
    struct civil civil;

    while (at < end && (at = memchr(at, '[', (size_t)(end - at))) != NULL) {
        if (end - at >= FORM && at[FORM - 1] == ']' && clf_date(at + 1, &civil) &&
            at[1 + CLF_DATE] == '.' &&
            decimals(at + 2 + CLF_DATE, at + FORM - 1, &civil.ns) == at + FORM - 1) {
            *brackets = (struct text){at, FORM};
            return time_of(&civil, time_ns);
        }
        at++;
    }
    return "there is no time like [17/May/2015:10:05:03.042]";
}

/* Seconds since the epoch, or with `any` what else a number of its size may count. */
static const char *number_time(const char *at, const char *end, bool any, uint64_t *time_ns) {
    static const char malformed[] = "the first field is no time in seconds";
    bool negative = at < end && *at == '-', huge = false;
    uint64_t number = 0, unit = 1000000000;
    uint32_t part = 0;

    at += negative;
    const char *digits = at;
    for (; at < end && *at >= '0' && *at <= '9'; at++)
        huge = huge || __builtin_mul_overflow(number, 10u, &number) ||
               __builtin_add_overflow(number, (uint64_t)(*at - '0'), &number);
    if (at == digits)
        return malformed;
    if (at < end && *at == '.' && (at = decimals(at + 1, end, &part)) == NULL)
        return malformed;
    if (at != end)
        return malformed;
    if (negative)
        return too_early;
    if (huge)
        return too_late;
    /* 1e11 seconds are the year 5138, 1e11 ms 1973. */
    for (uint64_t least = UINT64_C(100000000000); any && unit > 1 && number >= least; least *= 1000)
        unit /= 1000;
    const uint64_t in_second = 1000000000 / unit;
    if (number / in_second >= (uint64_t)LOG_SECONDS_MAX)
        return too_late;
    return time_from((int64_t)(number / in_second),
                     (uint32_t)(number % in_second * unit + part / in_second), time_ns);
}

const char *log_time_epoch(struct text field, uint64_t *time_ns) {
    return number_time(field.bytes, field.bytes + field.length, false, time_ns);
}

/* 2015-05-17T10:05:03.042+00:00, its parts of a second left out or not, Z or +0000. */
static bool iso_time(struct text value, struct civil *civil) {
    enum { DATE = 19 };
    const char *at = value.bytes, *end = at + value.length;

    if (value.length <= DATE)
        return false;
    *civil = (struct civil){.year = number_at(at, 4),
                            .month = number_at(at + 5, 2),
                            .day = number_at(at + 8, 2),
                            .hour = number_at(at + 11, 2),
                            .minute = number_at(at + 14, 2),
                            .second = number_at(at + 17, 2)};
    if (at[4] != '-' || at[7] != '-' || (at[10] != 'T' && at[10] != ' ') || at[13] != ':' ||
        at[16] != ':' || !all_numbers(civil))
        return false;
    at += DATE;
    if (*at == '.' && (at = decimals(at + 1, end, &civil->ns)) == NULL)
        return false;
    if (end - at == 1)
        return *at == 'Z';
    bool colon = end - at == 6 && at[3] == ':';
    if ((end - at != 5 && !colon) || (*at != '+' && *at != '-'))
        return false;
    civil->west = *at == '-';
    civil->zone_hour = number_at(at + 1, 2);
    civil->zone_minute = number_at(end - 2, 2);
    return all_numbers(civil);
}

const char *log_time_value(struct text value, uint64_t *time_ns) {
    struct civil civil;
    bool number = value.length > 0 && strspn((char[2]){value.bytes[0], 0}, "-0123456789") == 1;

    if (iso_time(value, &civil) || (value.length == CLF_LENGTH && clf_time(value.bytes, &civil)))
        return time_of(&civil, time_ns);
    if (!number || number_time(value.bytes, value.bytes + value.length, true, time_ns) != NULL)
        return "the time is none like 1431857103.042 or 2015-05-17T10:05:03Z, with its zone";
    return NULL;
}
