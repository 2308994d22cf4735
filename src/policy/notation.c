/* SPDX-License-Identifier: MIT
 * The text notation of policies: stint.h has the grammar. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/judge.h"
#include "base/message.h"
#include "base/text.h"
#include "policy/check.h"
#include "policy/notation.h"

/* Where the reader is, and where and why it failed. */
struct reader {
    const char *at;
    const char *wrong;
    const char *reason;
    const char *places[POLICY_WORDS]; /* where the text says what; NULL: it does not */
};

/* ASCII only: the locale has no say in what a configuration means. */
static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_space(char c) {
    return c == ' ' || c == '\t';
}

static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool refuse(struct reader *reader, const char *wrong, const char *reason) {
    reader->wrong = wrong;
    reader->reason = reason;
    return false;
}

static void skip_spaces(struct reader *reader) {
    while (is_space(*reader->at))
        reader->at++;
}

/* Steps over `word` (lower case) if the text has it here, in any case. */
static bool skip_word(struct reader *reader, const char *word) {
    size_t length = strlen(word);
    for (size_t i = 0; i < length; i++)
        if (lower(reader->at[i]) != word[i])
            return false;
    reader->at += length;
    return true;
}

/* Reads digits. Numbers past 2^40 become 2^40: all that may stand in the notation are far below. */
static uint64_t read_digits(struct reader *reader) {
    const uint64_t most = UINT64_C(1) << 40;
    uint64_t number = 0;
    for (; is_digit(*reader->at); reader->at++) {
        number = number * 10 + (uint64_t)(*reader->at - '0');
        if (number > most)
            number = most;
    }
    return number;
}

/* K: thousand, M: million, nothing: 1. A small m would be taken for minutes. */
static uint64_t read_scale(struct reader *reader) {
    uint64_t scale = *reader->at == 'K' || *reader->at == 'k' ? 1000
                     : *reader->at == 'M'                     ? 1000000
                                                              : 1;
    reader->at += scale != 1;
    return scale;
}

static bool read_count(struct reader *reader, uint32_t *limit) {
    const char *start = reader->at;
    if (!is_digit(*start))
        return refuse(reader, start, "expected a number of tokens");
    uint64_t count = read_digits(reader) * read_scale(reader);
    if (count == 0 || count > STINT_LIMIT_MAX)
        return refuse(reader, start, "the number of tokens must be 1 to 2^28 (268,435,456)");
    *limit = (uint32_t)count;
    return true;
}

static bool read_per(struct reader *reader) {
    if (reader->at[0] == 'r' && reader->at[1] == '/') /* nginx writes requests as 10r/s */
        reader->at++;
    skip_spaces(reader);
    const char *start = reader->at;
    if (*start == '/') {
        reader->at++;
        skip_spaces(reader);
        return true;
    }
    if (!skip_word(reader, "per") || !is_space(*reader->at))
        return refuse(reader, start, "expected '/' or 'per' and a time");
    skip_spaces(reader);
    return true;
}

#define SECOND UINT64_C(1000000000)

/* Longest unit first. Of its spellings a window is written with the first, a ban with the last. */
static const struct unit {
    const char *name;
    uint64_t ns;
} units[] = {
    {"week", 604800 * SECOND},
    {"weeks", 604800 * SECOND},
    {"w", 604800 * SECOND},
    {"day", 86400 * SECOND},
    {"days", 86400 * SECOND},
    {"d", 86400 * SECOND},
    {"hour", 3600 * SECOND},
    {"hours", 3600 * SECOND},
    {"hr", 3600 * SECOND},
    {"hrs", 3600 * SECOND},
    {"h", 3600 * SECOND},
    {"minute", 60 * SECOND},
    {"minutes", 60 * SECOND},
    {"min", 60 * SECOND},
    {"mins", 60 * SECOND},
    {"m", 60 * SECOND},
    {"second", SECOND},
    {"seconds", SECOND},
    {"sec", SECOND},
    {"secs", SECOND},
    {"s", SECOND},
    {"millisecond", SECOND / 1000},
    {"milliseconds", SECOND / 1000},
    {"ms", SECOND / 1000},
};
#define UNITS (sizeof(units) / sizeof(units[0]))

/* They have no number, and are no unit of another. */
static const char *const calendar_words[] = {
    [STINT_CALENDAR_MONTH] = "month",
    [STINT_CALENDAR_YEAR] = "year",
};

/* Reads [N] UNIT, or a unit of the calendar, as a window; or NUNIT, as a ban. */
static bool read_time(struct reader *reader, bool ban, struct stint_policy *policy) {
    uint64_t *window = ban ? &policy->ban : &policy->window;
    const char *start = reader->at;
    uint64_t number = 1;
    if (ban && !is_digit(*start))
        return refuse(reader, start, "expected a time such as 10m");
    if (is_digit(*start)) {
        number = read_digits(reader);
        if (!ban)
            skip_spaces(reader);
    }
    const char *word = reader->at;
    while (is_letter(*reader->at))
        reader->at++;
    const struct unit *unit = NULL;
    for (size_t i = 0; i < UNITS && unit == NULL; i++) {
        struct reader copy = {.at = word};
        if (skip_word(&copy, units[i].name) && copy.at == reader->at)
            unit = &units[i];
    }
    for (uint32_t i = STINT_CALENDAR_MONTH; i <= STINT_CALENDAR_YEAR; i++) {
        struct reader copy = {.at = word};
        if (!skip_word(&copy, calendar_words[i]) || copy.at != reader->at)
            continue;
        if (word != start)
            return refuse(reader, start, "a month or a year has no number before it");
        policy->calendar = i;
        return true;
    }
    if (unit == NULL)
        return refuse(reader, word,
                      "expected ms, s, m, h, d, w or a longer form of these, month or year");
    if (number == 0 || number > STINT_WINDOW_MAX / unit->ns || number * unit->ns < STINT_WINDOW_MIN)
        return refuse(reader, start,
                      ban ? "the ban must be 10 ms to 366 days"
                          : "the window must be 10 ms to 366 days");
    *window = number * unit->ns;
    if (*window % STINT_TICK_NS != 0)
        return refuse(reader, start,
                      ban ? "the ban must be a multiple of 10 ms"
                          : "the window must be a multiple of 10 ms");
    return true;
}

/* Reads exactly `digits` digits, a number in [low, high]. */
static bool read_field(struct reader *reader, int digits, int low, int high, int *value) {
    const char *start = reader->at;
    int number = 0;
    for (int i = 0; i < digits; i++, reader->at++) {
        if (!is_digit(*reader->at))
            return refuse(reader, reader->at,
                          "expected a digit of a time such as "
                          "2024-01-01T05:00:00Z");
        number = number * 10 + (*reader->at - '0');
    }
    if (number < low || number > high)
        return refuse(reader, start, "there is no such date or time");
    *value = number;
    return true;
}

static bool read_char(struct reader *reader, char c) {
    if (lower(*reader->at) != c)
        return refuse(reader, reader->at, "expected a time such as 2024-01-01T05:00:00Z");
    reader->at++;
    return true;
}

static int days_of_month(int year, int month) {
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return days[month - 1] + (month == 2 && leap);
}

/* The years that int64_t nanoseconds reach into. */
#define YEAR_FIRST 1677
#define YEAR_LAST  2262

/* RFC 3339: full-date, or date-time. Leap seconds have no Unix time and are refused. Of a calendar
 * policy the start is by the clock of its offset. */
static bool read_start(struct reader *reader, struct stint_policy *policy) {
    const bool calendar = policy->calendar != 0;
    const char *text = reader->at;
    int year, month, day, hour = 0, minute = 0, second = 0, offset_hour = 0, offset_minute = 0;
    int64_t fraction = 0;
    bool whole_ticks = true;
    int sign = 0;

    if (!read_field(reader, 4, YEAR_FIRST, YEAR_LAST, &year) || !read_char(reader, '-') ||
        !read_field(reader, 2, 1, 12, &month) || !read_char(reader, '-') ||
        !read_field(reader, 2, 1, days_of_month(year, month), &day))
        return false;
    if (lower(*reader->at) == 't') {
        reader->at++;
        if (!read_field(reader, 2, 0, 23, &hour) || !read_char(reader, ':') ||
            !read_field(reader, 2, 0, 59, &minute) || !read_char(reader, ':') ||
            !read_field(reader, 2, 0, 59, &second))
            return false;
        if (*reader->at == '.') {
            reader->at++;
            if (!is_digit(*reader->at))
                return refuse(reader, reader->at, "expected digits of a second");
            for (int64_t unit = (int64_t)SECOND / 10; is_digit(*reader->at); unit /= 10) {
                int digit = *reader->at++ - '0';
                whole_ticks = whole_ticks && (unit >= (int64_t)STINT_TICK_NS || digit == 0);
                fraction += digit * unit;
            }
        }
        if (lower(*reader->at) == 'z') {
            reader->at++;
        } else if (*reader->at == '+' || *reader->at == '-') {
            sign = *reader->at == '+' ? 1 : -1;
            reader->at++;
            if (!read_field(reader, 2, 0, 23, &offset_hour) || !read_char(reader, ':') ||
                !read_field(reader, 2, 0, 59, &offset_minute))
                return false;
        } else {
            return refuse(reader, reader->at, "expected Z or an offset such as +01:00");
        }
    }
    struct tm time = {.tm_year = year - 1900,
                      .tm_mon = month - 1,
                      .tm_mday = day,
                      .tm_hour = hour,
                      .tm_min = minute,
                      .tm_sec = second};
    const int offset = sign * (offset_hour * 60 + offset_minute);
    int64_t seconds = timegm(&time) - (calendar ? 0 : offset * 60);
    policy->offset = calendar ? offset : 0;
    if (!whole_ticks)
        return refuse(reader, text, "the start must be a multiple of 10 ms");
    /* Seconds before the epoch have their fraction after them, so the product alone may overflow
     * where the sum does not. */
    int64_t ticks = seconds * (int64_t)(SECOND / STINT_TICK_NS) + fraction / (int64_t)STINT_TICK_NS;
    if (__builtin_mul_overflow(ticks, (int64_t)STINT_TICK_NS, &policy->start))
        return refuse(reader, text, "the start must be in the years 1678 to 2261");
    return true;
}

/* Plain up to the next space, or quoted with \" and \\ as a structured-field string (RFC 9651). */
static bool read_name(struct reader *reader, char name[STINT_NAME_SIZE]) {
    const char *start = reader->at;
    bool quoted = *start == '"';
    size_t length = 0;

    reader->at += quoted;
    while (quoted ? *reader->at != '"' : *reader->at != '\0' && !is_space(*reader->at)) {
        if (quoted && reader->at[0] == '\\') {
            if (reader->at[1] != '"' && reader->at[1] != '\\')
                return refuse(reader, reader->at, "only \\\" and \\\\ may stand in a name");
            reader->at++;
        } else if (!quoted && *reader->at == '"') {
            return refuse(reader, reader->at, "a name with a quote in it must be quoted");
        }
        if (*reader->at < 0x20 || *reader->at > 0x7E)
            return refuse(reader, reader->at,
                          *reader->at == '\0' ? "the name has no closing quote"
                                              : "a name has printable ASCII letters only");
        if (length == STINT_NAME_SIZE - 1)
            return refuse(reader, reader->at, "a name has at most 63 letters");
        name[length++] = *reader->at++;
    }
    reader->at += quoted;
    if (length == 0)
        return refuse(reader, start, "the name is empty");
    return true;
}

/* A count that stands as a value, 1 .. most. */
static bool read_number(struct reader *reader, uint64_t most, const char *reason, uint32_t *value) {
    const char *start = reader->at;
    if (!is_digit(*start))
        return refuse(reader, start, "expected a number");
    uint64_t number = read_digits(reader) * read_scale(reader);
    if (number == 0 || number > most)
        return refuse(reader, start, reason);
    *value = (uint32_t)number;
    return true;
}

static bool read_percent(struct reader *reader, uint32_t *value) {
    const char *start = reader->at;
    if (!is_digit(*start))
        return refuse(reader, start, "expected a percentage such as 80%");
    uint64_t number = read_digits(reader);
    if (*reader->at != '%')
        return refuse(reader, reader->at, "expected %");
    reader->at++;
    if (number == 0 || number > 100)
        return refuse(reader, start, "the percentage must be 1% to 100%");
    *value = (uint32_t)number;
    return true;
}

enum option {
    OPTION_NAME,
    OPTION_START,
    OPTION_CAPACITY,
    OPTION_RESERVE,
    OPTION_STRIPES,
    OPTION_NEAR,
    OPTION_JITTER,
    OPTION_SHADOW,
    OPTION_SMOOTH,
    OPTION_IN_FLIGHT,
    OPTION_COUNT_REFUSED,
    OPTION_OVERRIDES,
    OPTION_BAN,
    OPTION_AFTER,
    OPTIONS
};

static const char *const option_words[OPTIONS] = {
    [OPTION_NAME] = "name=",
    [OPTION_START] = "start=",
    [OPTION_CAPACITY] = "capacity=",
    [OPTION_RESERVE] = "reserve=",
    [OPTION_STRIPES] = "stripes=",
    [OPTION_NEAR] = "near=",
    [OPTION_JITTER] = "jitter=",
    [OPTION_SHADOW] = "shadow",
    [OPTION_SMOOTH] = "smooth",
    [OPTION_IN_FLIGHT] = "in-flight",
    [OPTION_COUNT_REFUSED] = "count-refused",
    [OPTION_OVERRIDES] = "overrides",
    [OPTION_BAN] = "ban=",
    [OPTION_AFTER] = "after=",
};

/* Of options without a value. */
static const uint32_t option_flags[OPTIONS] = {
    [OPTION_SHADOW] = STINT_SHADOW,       [OPTION_SMOOTH] = STINT_SMOOTH,
    [OPTION_IN_FLIGHT] = STINT_IN_FLIGHT, [OPTION_COUNT_REFUSED] = STINT_COUNT_REFUSED,
    [OPTION_OVERRIDES] = STINT_OVERRIDES,
};

static bool read_value(struct reader *reader, enum option option, struct stint_policy *policy) {
    switch (option) {
    case OPTION_NAME:
        return read_name(reader, policy->name);
    case OPTION_START:
        if (skip_word(reader, "per-key")) {
            policy->flags |= STINT_START_PER_KEY;
            return true;
        }
        if (skip_word(reader, "first")) {
            policy->flags |= STINT_START_FIRST;
            return true;
        }
        return read_start(reader, policy);
    case OPTION_CAPACITY:
        return read_number(reader, STINT_LIMIT_MAX, "the capacity must be 1 to 2^28 (268,435,456)",
                           &policy->capacity);
    case OPTION_RESERVE:
        return read_number(reader, STINT_LIMIT_MAX, "the reserve must be 1 to 2^28 (268,435,456)",
                           &policy->max_reserved);
    case OPTION_STRIPES:
        return read_number(reader, STRIPES_OF_KEY_MAX, "the stripes must be 1 to 64",
                           &policy->stripes);
    case OPTION_NEAR:
        return read_percent(reader, &policy->near_limit);
    case OPTION_JITTER:
        return read_percent(reader, &policy->jitter);
    case OPTION_BAN:
        policy->flags |= STINT_OVERRIDES;
        return read_time(reader, true, policy);
    case OPTION_AFTER:
        return read_number(reader, STINT_BAN_AFTER_MAX, "the windows must be 1 to 65,535",
                           &policy->ban_after);
    default:
        policy->flags |= option_flags[option];
        return true;
    }
}

/* What a reason may name of an option. */
static void note_place(struct reader *reader, enum option option, const char *place) {
    static const enum policy_word words[OPTIONS][4] = {
        [OPTION_NAME] = {POLICY_WORDS},
        [OPTION_START] = {WORD_START, WORD_PER_KEY, WORD_FIRST, WORD_OFFSET},
        [OPTION_CAPACITY] = {WORD_CAPACITY, WORD_CAPACITY_BELOW, WORD_CAPACITY_ABOVE, POLICY_WORDS},
        [OPTION_RESERVE] = {WORD_MAX_RESERVED, POLICY_WORDS},
        [OPTION_STRIPES] = {WORD_STRIPES, POLICY_WORDS},
        [OPTION_NEAR] = {POLICY_WORDS},
        [OPTION_JITTER] = {POLICY_WORDS},
        [OPTION_SHADOW] = {POLICY_WORDS},
        [OPTION_SMOOTH] = {WORD_SMOOTH, POLICY_WORDS},
        [OPTION_IN_FLIGHT] = {WORD_IN_FLIGHT, POLICY_WORDS},
        [OPTION_COUNT_REFUSED] = {WORD_COUNT_REFUSED, POLICY_WORDS},
        [OPTION_OVERRIDES] = {WORD_OVERRIDES, POLICY_WORDS},
        [OPTION_BAN] = {WORD_BAN, POLICY_WORDS},
        [OPTION_AFTER] = {WORD_BAN_AFTER, POLICY_WORDS},
    };
    for (size_t i = 0; i < 4 && words[option][i] != POLICY_WORDS; i++)
        reader->places[words[option][i]] = place;
}

static bool read_option(struct reader *reader, struct stint_policy *policy, unsigned *seen) {
    const char *start = reader->at;
    enum option option = OPTION_NAME;

    while (option < OPTIONS && !skip_word(reader, option_words[option]))
        option++;
    if (option == OPTIONS)
        return refuse(reader, start,
                      "expected name=, start=, capacity=, reserve=, stripes=, near=, "
                      "jitter=, ban=, after=, shadow, smooth, in-flight, overrides or "
                      "count-refused");
    if (!read_value(reader, option, policy))
        return false;
    if (*reader->at != '\0' && !is_space(*reader->at))
        return refuse(reader, reader->at, "expected a space or the end");
    if ((*seen & 1U << option) != 0)
        return refuse(reader, start, "the option stands twice");
    *seen |= 1U << option;
    note_place(reader, option, start);
    return true;
}

static bool read_policy(struct reader *reader, struct stint_policy *policy) {
    unsigned seen = 0;

    skip_spaces(reader);
    reader->places[WORD_LIMIT] = reader->at;
    if (!read_count(reader, &policy->limit) || !read_per(reader))
        return false;
    reader->places[WORD_CALENDAR] = reader->at;
    if (!read_time(reader, false, policy))
        return false;
    if (*reader->at != '\0' && !is_space(*reader->at))
        return refuse(reader, reader->at, "expected a space or the end");
    for (;;) {
        skip_spaces(reader);
        if (*reader->at == '\0')
            return true;
        if (!read_option(reader, policy, &seen))
            return false;
    }
}

int stint_policy_parse(const char *text, struct stint_policy *policy, const char **wrong) {
    if (text == NULL || policy == NULL)
        return stint_failed(EINVAL, "text or policy is NULL");
    int error = stint_struct_check(policy, POLICY_LEAST, sizeof(*policy), "policy");
    if (error != 0)
        return error;
    struct stint_policy parsed = STINT_POLICY_INIT;
    struct reader reader = {.at = text};
    if (!read_policy(&reader, &parsed)) {
        if (wrong != NULL)
            *wrong = reader.wrong;
        return stint_failed(EINVAL, reader.reason);
    }
    enum policy_word apart[2];
    error = stint_policy_check_text(&parsed, apart);
    if (error != 0) { /* at the later of the two that do not go together */
        const char *one = reader.places[apart[0]], *other = reader.places[apart[1]];
        if (other != NULL && (one == NULL || other > one))
            one = other;
        if (wrong != NULL)
            *wrong = one == NULL ? text : one;
        return error;
    }
    for (size_t i = policy->size; i < sizeof(parsed); i++) {
        if (((const char *)&parsed)[i] == 0)
            continue;
        if (wrong != NULL)
            *wrong = text;
        return stint_failed(EINVAL, "the text says what policy.size has no room for: the program "
                                    "was compiled with the stint.h of an earlier version");
    }
    stint_struct_write(policy, &parsed, sizeof(parsed));
    return 0;
}

/* The longest unit that divides a time, by its first spelling. */
static const struct unit *unit_of(uint64_t ns) {
    const struct unit *unit = units;
    while (ns % unit->ns != 0)
        unit++; /* ends: it is a multiple of a millisecond */
    return unit;
}

int stint_rate_format(const struct stint_policy *policy, char *buffer, size_t size) {
    if (policy->calendar != 0)
        return snprintf(buffer, size, "%u/%s", policy->limit, calendar_words[policy->calendar]);
    const struct unit *unit = unit_of(policy->window);
    uint64_t number = policy->window / unit->ns;
    if (number == 1)
        return snprintf(buffer, size, "%u/%s", policy->limit, unit->name);
    return snprintf(buffer, size, "%u/%llu %ss", policy->limit, (unsigned long long)number,
                    unit->name);
}

/* An option with a number; nothing if it is 0. */
static void add_option(struct text *text, const char *before, uint32_t number, const char *after) {
    if (number == 0)
        return;
    add_text(text, before);
    add_number(text, number);
    add_text(text, after);
}

static void add_start(struct text *text, int64_t start, int32_t offset) {
    int64_t ns = start % (int64_t)SECOND;
    time_t seconds = start / (int64_t)SECOND;
    if (ns < 0) {
        ns += (int64_t)SECOND;
        seconds--;
    }
    struct tm time;
    char piece[64];

    (void)gmtime_r(&seconds, &time);
    (void)strftime(piece, sizeof(piece), " start=%Y-%m-%dT%H:%M:%S", &time);
    add_text(text, piece);
    if (ns != 0) {
        (void)snprintf(piece, sizeof(piece), ".%02d", (int)(ns / (int64_t)STINT_TICK_NS));
        add_text(text, piece);
    }
    if (offset == 0) {
        add_text(text, "Z");
        return;
    }
    const unsigned minutes = (unsigned)(offset < 0 ? -offset : offset);
    (void)snprintf(piece, sizeof(piece), "%c%02u:%02u", offset < 0 ? '-' : '+', minutes / 60,
                   minutes % 60);
    add_text(text, piece);
}

/* As short as it can be read. */
static void add_ban(struct text *text, uint64_t ban) {
    const struct unit *unit = unit_of(ban);
    while (unit + 1 < units + UNITS && unit[1].ns == unit->ns)
        unit++;
    add_text(text, " ban=");
    add_number(text, ban / unit->ns);
    add_text(text, unit->name);
}

int stint_policy_format(const struct stint_policy *given, char *buffer, size_t size) {
    struct stint_policy known;
    const struct stint_policy *policy = &known;
    struct text text = {.buffer = buffer, .size = size};
    char piece[64];

    if (buffer == NULL && size != 0)
        return stint_failed(EINVAL, "buffer is NULL");
    int error = stint_policy_given(given, &known);
    if (error != 0)
        return error;
    stint_rate_format(policy, piece, sizeof(piece));
    add_text(&text, piece);
    if (policy->name[0] != '\0') {
        add_text(&text, " name=");
        add_quoted(&text, policy->name);
    }
    if (policy->start != 0 || policy->offset != 0)
        add_start(&text, policy->start, policy->offset);
    if ((policy->flags & STINT_START_PER_KEY) != 0)
        add_text(&text, " start=per-key");
    if ((policy->flags & STINT_START_FIRST) != 0)
        add_text(&text, " start=first");
    add_option(&text, " capacity=", policy->capacity, "");
    add_option(&text, " reserve=", policy->max_reserved, "");
    add_option(&text, " stripes=", policy->stripes, "");
    add_option(&text, " near=", policy->near_limit, "%");
    add_option(&text, " jitter=", policy->jitter, "%");
    if ((policy->flags & STINT_SMOOTH) != 0)
        add_text(&text, " smooth");
    if ((policy->flags & STINT_IN_FLIGHT) != 0)
        add_text(&text, " in-flight");
    if ((policy->flags & STINT_SHADOW) != 0)
        add_text(&text, " shadow");
    if ((policy->flags & STINT_COUNT_REFUSED) != 0)
        add_text(&text, " count-refused");
    if (policy->ban != 0)
        add_ban(&text, policy->ban);
    else if ((policy->flags & STINT_OVERRIDES) != 0)
        add_text(&text, " overrides");
    add_option(&text, " after=", policy->ban_after, "");
    return end_text(&text);
}
