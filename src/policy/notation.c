/* SPDX-License-Identifier: MIT
 * The text notation of policies: stint.h has the grammar, NOTATION of doc/promises.md the rest. */
#include <stdio.h>
#include <string.h>
#include <sys/param.h>
#include <time.h>

#include "policy/check.h"
#include "rule/judge.h"
#include "sys/text.h"

#define SECOND UINT64_C(1000000000)

/* The longest first. A window is written with the first spelling, another time with the second. */
static const struct unit {
    const char *spellings[6]; /* up to a NULL */
    uint64_t ns;
    uint32_t calendar; /* not 0: the unit has no number, and divides no time */
} units[] = {
    {{"week", "w", "weeks"}, 604800 * SECOND, 0},
    {{"day", "d", "days"}, 86400 * SECOND, 0},
    {{"hour", "h", "hours", "hr", "hrs"}, 3600 * SECOND, 0},
    {{"minute", "m", "minutes", "min", "mins"}, 60 * SECOND, 0},
    {{"second", "s", "seconds", "sec", "secs"}, SECOND, 0},
    {{"millisecond", "ms", "milliseconds"}, SECOND / 1000, 0},
    {{"month"}, 0, STINT_CALENDAR_MONTH},
    {{"year"}, 0, STINT_CALENDAR_YEAR},
};
#define UNITS (sizeof(units) / sizeof(units[0]))

struct reader {
    const char *text, *at;
    const char *wrong;
    size_t begins[OPTIONS]; /* of an option in the text; 0: it has none */
};

/* ASCII only: what a configuration means does not depend on the locale. */
static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_space(char c) {
    return c == ' ' || c == '\t';
}

static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool is_letter(char c) {
    return lower(c) >= 'a' && lower(c) <= 'z';
}

/* Writes, as printf does, why the text is wrong at `at`. Returns false. */
#define refuse(reader, at, ...)                                                                    \
    ((reader)->wrong = (at), stint_failed_with(EINVAL, __VA_ARGS__) == 0)

static void skip_spaces(struct reader *reader) {
    reader->at += strspn(reader->at, " \t");
}

/* Steps over a word of lower case, if the text has it here in any case. */
static bool skip_word(struct reader *reader, const char *word) {
    size_t length = strlen(word);
    for (size_t i = 0; i < length; i++)
        if (lower(reader->at[i]) != word[i])
            return false;
    reader->at += length;
    return true;
}

static bool read_end(struct reader *reader) {
    return *reader->at == '\0' || is_space(*reader->at) ||
           refuse(reader, reader->at, "expected a space or the end");
}

/* Reads digits. A number past 2^40, which is out of every range, becomes 2^40. */
static uint64_t read_digits(struct reader *reader) {
    const uint64_t most = UINT64_C(1) << 40;
    uint64_t number = 0;
    for (; is_digit(*reader->at); reader->at++) {
        number = number * 10 + (uint64_t)(*reader->at - '0');
        number = number < most ? number : most;
    }
    return number;
}

#define WORD_MAX 24 /* letters that a reason repeats */

/* A word of the text, and the nearest of those that might stand there. */
struct guess {
    const char *word;
    size_t length;
    const char *nearest; /* NULL: none is near */
    size_t distance;     /* letters to put in, to leave out or to change */
};

static struct guess guess_at(const char *at) {
    struct guess guess = {.word = at};

    while (guess.length < WORD_MAX && (is_letter(at[guess.length]) || is_digit(at[guess.length]) ||
                                       at[guess.length] == '-' || at[guess.length] == '_'))
        guess.length++;
    guess.distance = guess.length;
    return guess;
}

/* Takes another word for what was meant if it is nearer than those before, and returns true: the
 * word begins it, or is a few slips away, not in the first letter (`yrs` is no slip for hrs). */
static bool guess_try(struct guess *guess, const char *other) {
    const size_t length = strcspn(other, "="); /* of an option */
    size_t row[WORD_MAX + 1], same = 0;        /* row[i]: from the first i letters of the word */

    while (same < guess->length && lower(guess->word[same]) == other[same])
        same++;
    for (size_t i = 0; i <= guess->length; i++)
        row[i] = i;
    for (size_t j = 1; j <= length; j++)
        for (size_t i = 0, change = 0; i <= guess->length; i++) {
            const size_t before = row[i];
            row[i] = i == 0 ? j : MIN(change, MIN(before, row[i - 1]) + 1);
            change = before + (i < guess->length && lower(guess->word[i]) != other[j - 1]);
        }
    const size_t distance = same == guess->length && same > 1 ? 0 : row[guess->length];
    if (same == 0 || distance > (guess->length + 1) / 3 || distance >= guess->distance)
        return false;
    guess->nearest = other;
    guess->distance = distance;
    return true;
}

/* Refuses a word: it is no `what`. Tells the one that was probably meant, else all. */
static bool refuse_word(struct reader *reader, const struct guess *guess, const char *what,
                        const char *all) {
    const int length = (int)guess->length;

    if (length == 0)
        return refuse(reader, guess->word, "expected %s", all);
    if (guess->nearest == NULL)
        return refuse(reader, guess->word, "'%.*s' is no %s: expected %s", length, guess->word,
                      what, all);
    return refuse(reader, guess->word, "'%.*s' is no %s: %s was probably meant", length,
                  guess->word, what, guess->nearest);
}

/* Refuses the value of an option. Tells how it is written, with the number at `said` if it can. */
static bool refuse_value(struct reader *reader, const char *wrong, enum option option,
                         const char *said) {
    static const char *const values[][2] = {
        /* What is taken, and an example. */
        [KIND_NAME] = {"a name", "api"},
        [KIND_START] = {"per-key, first or a time", "2024-01-01T05:00:00Z"},
        [KIND_NUMBER] = {"a number", "20"},
        [KIND_PERCENT] = {"a percentage", "80"},
        [KIND_TIME] = {"a number and a unit", "10m"},
    };
    const char *name = stint_policy_options[option].names[1];
    const enum kind kind = stint_policy_options[option].kind;
    const size_t digits = strspn(said, "0123456789");
    const bool good = (kind == KIND_NUMBER || kind == KIND_PERCENT) && digits > 0 && digits < 10 &&
                      (said[digits] == '\0' || is_space(said[digits]) || said[digits] == '%');
    const char *value = good ? said : values[kind][1];

    return refuse(reader, wrong, "%.*s takes %s: %s%.*s%s", (int)strcspn(name, "="), name,
                  values[kind][0], name, (int)(good ? digits : strlen(value)), value,
                  kind == KIND_PERCENT ? "%" : "");
}

static bool read_per(struct reader *reader) {
    if (reader->at[0] == 'r' && reader->at[1] == '/') /* nginx writes requests as 10r/s */
        reader->at++;
    skip_spaces(reader);
    const char *start = reader->at;
    if (!skip_word(reader, "/") && (!skip_word(reader, "per") || !is_space(*reader->at)))
        return refuse(reader, start, "expected '/' or 'per' and a time");
    skip_spaces(reader);
    return true;
}

static const struct unit *read_unit(struct reader *reader) {
    const char *start = reader->at;
    struct guess guess = guess_at(start);

    for (const struct unit *unit = units; unit < units + UNITS; unit++)
        for (size_t i = 0; unit->spellings[i] != NULL; i++, reader->at = start)
            if (skip_word(reader, unit->spellings[i]) && !is_letter(*reader->at))
                return unit;
    for (const struct unit *unit = units; unit < units + UNITS; unit++)
        for (size_t i = 0; unit->spellings[i] != NULL; i++)
            (void)guess_try(&guess, unit->spellings[i]);
    refuse_word(reader, &guess, "unit",
                "ms, s, m, h, d, w or a longer form of these, month or year");
    return NULL;
}

/* The longest unit that divides a time. */
static const struct unit *unit_of(uint64_t ns) {
    const struct unit *unit = units;
    while (ns % unit->ns != 0)
        unit++; /* ends: the time is a multiple of a millisecond */
    return unit;
}

/* Reads a number that begins at `start` and has a point here: so many parts of a whole. */
static bool read_fraction(struct reader *reader, const char *start, uint64_t *number,
                          uint64_t *parts) {
    const size_t digits = strspn(reader->at + 1, "0123456789");

    reader->at = start;
    *number = read_digits(reader);
    for (*parts = 1, reader->at++; is_digit(*reader->at) && digits <= 6; *parts *= 10)
        *number = 10 * *number + (uint64_t)(*reader->at++ - '0');
    for (uint64_t by = 2; by <= 5; by += 3)
        for (; *parts % by == 0 && *number % by == 0; *parts /= by)
            *number /= by;
    return digits > 0 && digits <= 6 && *number > 0; /* of more digits 2^40 are too many */
}

/* Refuses a number with a point. Tells how it is written without: 1/10s for 0.1/s, 90m for 1.5h. */
static bool refuse_fraction(struct reader *reader, const char *start, bool tokens) {
    const char *point = reader->at, *what = tokens ? "a limit is a whole number of tokens"
                                                   : "a time is a whole number of units";
    const struct unit *unit = NULL;
    uint64_t number, parts;
    char written[48] = "";

    if (read_fraction(reader, start, &number, &parts) && (!tokens || read_per(reader))) {
        parts *= tokens && is_digit(*reader->at) ? read_digits(reader) : 1;
        skip_spaces(reader);
        unit = read_unit(reader);
    }
    if (unit == NULL || unit->calendar != 0)
        return refuse(reader, point, "%s", what);
    if (tokens && number <= STINT_LIMIT_MAX && parts <= STINT_WINDOW_MAX / unit->ns)
        (void)snprintf(written, sizeof(written), "%llu/%llu%s", (unsigned long long)number,
                       (unsigned long long)parts, unit->spellings[1]);
    else if (!tokens && !__builtin_mul_overflow(number, unit->ns, &number) &&
             number % (parts * STINT_TICK_NS) == 0)
        (void)snprintf(written, sizeof(written), "%llu%s",
                       (unsigned long long)(number / parts / unit_of(number / parts)->ns),
                       unit_of(number / parts)->spellings[1]);
    return *written == '\0' ? refuse(reader, point, "%s", what)
                            : refuse(reader, point, "%s: %s was probably meant", what, written);
}

/* Refuses a number before a month or a year, if one stands here. */
static bool refuse_calendar(struct reader *reader, const char *start, uint64_t number,
                            uint32_t limit) {
    static const char why[] = "a month or a year has no number before it";
    const bool year = skip_word(reader, "year");
    const uint64_t months = number * (year ? 12 : 1);

    if (!year && !skip_word(reader, "month"))
        return false;
    if (number == 1 || months == 12)
        (void)refuse(reader, start, "%s: %u/%s was probably meant", why, limit,
                     months == 12 ? "year" : "month");
    else if (months > 0 && months < 12)
        (void)refuse(reader, start, "%s: write %u/%ud", why, limit, 30 * (unsigned)months);
    else
        (void)refuse(reader, start, "%s", why);
    return true;
}

static bool read_number(struct reader *reader, enum option option, struct stint_policy *policy) {
    const struct policy_option *its = &stint_policy_options[option];
    const char *start = reader->at;
    if (!is_digit(*start))
        return option == OPTION_LIMIT ? refuse(reader, start, "expected a number of tokens")
                                      : refuse_value(reader, start, option, start);
    uint64_t number = read_digits(reader);
    if (option == OPTION_LIMIT && *reader->at == '.')
        return refuse_fraction(reader, start, true);
    if (its->kind == KIND_PERCENT) {
        if (*reader->at != '%')
            return refuse_value(reader, reader->at, option, start);
        reader->at++;
    } else if (skip_word(reader, "k")) {
        number *= 1000;
    } else if (*reader->at == 'M') { /* a small m would be taken for minutes */
        number *= 1000000;
        reader->at++;
    }
    if (number == 0 || number > its->most)
        return refuse(reader, start, "%s", its->range);
    void *field = (char *)policy + its->field;
    *(uint32_t *)field = (uint32_t)number;
    return true;
}

/* Reads [N] UNIT as a window, or NUNIT as another time. */
static bool read_time(struct reader *reader, enum option option, struct stint_policy *policy) {
    const struct policy_option *its = &stint_policy_options[option];
    const bool window = option == OPTION_WINDOW;
    const char *start = reader->at;
    const bool numbered = is_digit(*start);

    if (!window && !numbered)
        return refuse_value(reader, start, option, start);
    const uint64_t number = numbered ? read_digits(reader) : 1;
    if (numbered && *reader->at == '.')
        return refuse_fraction(reader, start, false);
    if (window)
        skip_spaces(reader);
    if (numbered && refuse_calendar(reader, start, window ? number : 0, policy->limit))
        return false;
    /* In other notations M is months. */
    if (reader->at[0] == 'M' && !is_letter(reader->at[1]))
        return numbered ? refuse(reader, reader->at,
                                 "M may be minutes or months: write m for minutes; a month has no "
                                 "number before it")
                        : refuse(reader, reader->at,
                                 "M may be a minute or a month: write %u/m or %u/month",
                                 policy->limit, policy->limit);
    const struct unit *unit = read_unit(reader);
    if (unit == NULL)
        return false;
    if (unit->calendar != 0) {
        policy->calendar = unit->calendar;
        return true;
    }
    if (number == 0 || number > STINT_WINDOW_MAX / unit->ns || number * unit->ns < STINT_WINDOW_MIN)
        return refuse(reader, start, "%s", its->range);
    if (number * unit->ns % STINT_TICK_NS != 0)
        return refuse(reader, start, "%s", its->no_tick);
    void *field = (char *)policy + its->field;
    *(uint64_t *)field = number * unit->ns;
    return true;
}

#define A_TIME "a time such as 2024-01-01T05:00:00Z"

/* Reads a letter (0: none), then so many digits: a number in [low, high]. */
static bool read_field(struct reader *reader, char before, int digits, int low, int high,
                       int *value) {
    if (before != '\0' && lower(*reader->at++) != before)
        return refuse(reader, reader->at - 1, "expected " A_TIME);
    const char *start = reader->at;
    int number = 0;
    for (int i = 0; i < digits; i++, reader->at++) {
        if (!is_digit(*reader->at))
            return refuse(reader, reader->at, "expected a digit of " A_TIME);
        number = number * 10 + (*reader->at - '0');
    }
    if (number < low || number > high)
        return refuse(reader, start, "there is no such date or time");
    *value = number;
    return true;
}

static bool read_offset(struct reader *reader, int *minutes) {
    const char sign = *reader->at;
    int hour, minute;

    if (skip_word(reader, "z"))
        return true;
    if (sign != '+' && sign != '-')
        return refuse(reader, reader->at, "expected Z or an offset such as +01:00");
    if (!read_field(reader, sign, 2, 0, 23, &hour) || !read_field(reader, ':', 2, 0, 59, &minute))
        return false;
    *minutes = (sign == '+' ? 1 : -1) * (hour * 60 + minute);
    return true;
}

/* Reads a full-date or a date-time of RFC 3339. Leap seconds, which have no Unix time, are none. */
static bool read_start(struct reader *reader, struct stint_policy *policy) {
    const char *text = reader->at;
    int year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0, offset = 0;
    tick_t ticks = 0; /* of the second */
    bool whole_ticks = true;

    if (!is_digit(*text))
        return refuse_value(reader, text, OPTION_START, text);
    if (!read_field(reader, '\0', 4, 1677, 2262, &year) || /* int64_t ns reach into these */
        !read_field(reader, '-', 2, 1, 12, &month))
        return false;
    const int64_t months = 12 * year + month - 3; /* as window.h counts */
    const int days = (int)(month_day(months + 1) - month_day(months));
    if (!read_field(reader, '-', 2, 1, days, &day))
        return false;
    if (lower(*reader->at) == 't') {
        if (!read_field(reader, 't', 2, 0, 23, &hour) ||
            !read_field(reader, ':', 2, 0, 59, &minute) ||
            !read_field(reader, ':', 2, 0, 59, &second))
            return false;
        if (skip_word(reader, ".")) {
            if (!is_digit(*reader->at))
                return refuse(reader, reader->at, "expected digits of a second");
            for (int unit = TICKS_IN_SECOND / 10; is_digit(*reader->at); unit /= 10) {
                const int digit = *reader->at++ - '0';
                whole_ticks = whole_ticks && (unit != 0 || digit == 0);
                ticks += digit * unit;
            }
        }
        if (!read_offset(reader, &offset))
            return false;
    }
    if (!whole_ticks)
        return refuse(reader, text, "the start must be a multiple of 10 ms");
    if (policy->calendar != 0)
        policy->offset = offset;
    else
        minute -= offset;
    ticks += (month_day(months) + day - 1) * TICKS_IN_DAY + (hour * 60 + minute) * TICKS_IN_MINUTE +
             second * TICKS_IN_SECOND;
    if (__builtin_mul_overflow(ticks, (int64_t)STINT_TICK_NS, &policy->start))
        return refuse(reader, text, "the start must be in the years 1678 to 2261");
    return true;
}

/* Reads a name: up to the next space, or a structured-field string (RFC 9651). */
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
    return length != 0 || refuse(reader, start, "the name is empty");
}

static bool read_value(struct reader *reader, enum option option, struct stint_policy *policy) {
    const enum kind kind = stint_policy_options[option].kind;

    policy->flags |= stint_policy_options[option].flag;
    return kind == KIND_NAME    ? read_name(reader, policy->name)
           : kind == KIND_START ? read_start(reader, policy)
           : kind == KIND_TIME  ? read_time(reader, option, policy)
           : kind == KIND_FLAG  ? true
                                : read_number(reader, option, policy);
}

/* Refuses a word that begins no option: a misspelt one, or one that has no = before its value. */
static bool refuse_option(struct reader *reader) {
    struct guess guess = guess_at(reader->at);
    const char *behind = guess.word + guess.length;
    enum option meant = OPTIONS;

    for (enum option option = OPTIONS; option-- > OPTION_NAME;) /* start= before start=first */
        if (guess_try(&guess, stint_policy_options[option].names[1]))
            meant = option;
    if (meant == OPTIONS || strcspn(guess.nearest, "=") != guess.length || guess.distance != 0)
        return refuse_word(reader, &guess, "option",
                           "name=, start=, burst=, capacity=, reserve=, stripes=, near=, jitter=, "
                           "ban=, after=, within=, shadow, smooth, in-flight, overrides or "
                           "count-refused");
    return refuse_value(reader, guess.word, meant, behind + strspn(behind, " \t="));
}

static bool read_option(struct reader *reader, struct stint_policy *policy) {
    const char *start = reader->at;
    enum option option = OPTION_NAME;

    while (option < OPTIONS && !skip_word(reader, stint_policy_options[option].names[1]))
        option++;
    if (option == OPTIONS)
        return refuse_option(reader);
    if (!read_value(reader, option, policy))
        return false;
    if (stint_policy_options[option].kind == KIND_FLAG && *reader->at == '=')
        return refuse(reader, reader->at, "%s takes no value",
                      stint_policy_options[option].names[1]);
    if (!read_end(reader))
        return false;
    if (option == OPTION_PER_KEY || option == OPTION_FIRST)
        option = OPTION_START; /* the three are one option */
    if (reader->begins[option] != 0)
        return refuse(reader, start, "%s stands twice", stint_policy_options[option].names[1]);
    reader->begins[option] = (size_t)(start - reader->text);
    return true;
}

static bool read_policy(struct reader *reader, struct stint_policy *policy) {
    skip_spaces(reader);
    reader->begins[OPTION_LIMIT] = (size_t)(reader->at - reader->text);
    if (!read_value(reader, OPTION_LIMIT, policy) || !read_per(reader))
        return false;
    reader->begins[OPTION_WINDOW] = (size_t)(reader->at - reader->text);
    if (!read_value(reader, OPTION_WINDOW, policy) || !read_end(reader))
        return false;
    for (skip_spaces(reader); *reader->at != '\0'; skip_spaces(reader))
        if (!read_option(reader, policy))
            return false;
    return true;
}

int stint_policy_parse(const char *text, struct stint_policy *policy, const char **wrong) {
    if (text == NULL || policy == NULL)
        return stint_failed(EINVAL, "text or policy is NULL");
    int error = stint_struct_check(policy, POLICY_LEAST, sizeof(*policy), "policy");
    if (error != 0)
        return error;
    struct stint_policy parsed = STINT_POLICY_INIT;
    struct reader reader = {.text = text, .at = text, .wrong = text};
    enum option pair[2];
    if (!read_policy(&reader, &parsed)) {
        error = -EINVAL;
    } else if ((error = stint_policy_check(&parsed, pair)) != 0) {
        /* at the later of the two that do not go together */
        const size_t one = reader.begins[pair[0]], other = reader.begins[pair[1]];
        reader.wrong = text + (one > other ? one : other);
    }
    for (size_t i = policy->size; error == 0 && i < sizeof(parsed); i++)
        if (((const char *)&parsed)[i] != 0)
            error =
                stint_failed(EINVAL, "the text says what policy.size has no room for: the program "
                                     "was compiled with the stint.h of an earlier version");
    if (error == 0)
        stint_struct_copy(policy, &parsed, sizeof(parsed));
    else if (wrong != NULL)
        *wrong = reader.wrong;
    return error;
}

int stint_rate_format(const struct stint_policy *policy, char *buffer, size_t size) {
    if (policy->calendar != 0)
        return snprintf(buffer, size, "%u/%s", policy->limit,
                        policy->calendar == STINT_CALENDAR_MONTH ? "month" : "year");
    const struct unit *unit = unit_of(policy->window);
    const uint64_t number = policy->window / unit->ns;
    if (number == 1)
        return snprintf(buffer, size, "%u/%s", policy->limit, unit->spellings[0]);
    return snprintf(buffer, size, "%u/%llu %ss", policy->limit, (unsigned long long)number,
                    unit->spellings[0]);
}

static void add_start(struct text *text, const struct stint_policy *policy) {
    const int64_t ticks = policy->start / (int64_t)STINT_TICK_NS;
    const time_t seconds = floor_div(ticks, TICKS_IN_SECOND);
    const int rest = (int)(ticks - seconds * TICKS_IN_SECOND);
    const int32_t offset = policy->offset, minutes = offset < 0 ? -offset : offset;
    char date[64], fraction[8] = "", zone[16] = "Z";
    struct tm time;

    (void)gmtime_r(&seconds, &time);
    (void)strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &time);
    if (rest != 0)
        (void)snprintf(fraction, sizeof(fraction), ".%02u", (unsigned)rest % 100);
    if (offset != 0)
        (void)snprintf(zone, sizeof(zone), "%c%02u:%02u", offset < 0 ? '-' : '+',
                       (unsigned)minutes / 60 % 100, (unsigned)minutes % 60);
    add_text(text, date);
    add_text(text, fraction);
    add_text(text, zone);
}

static void add_option(struct text *text, enum option option, const struct stint_policy *policy) {
    const enum kind kind = stint_policy_options[option].kind;
    const uint64_t value = stint_policy_value(policy, option);

    if (value == 0)
        return;
    add_letter(text, ' ');
    add_text(text, stint_policy_options[option].names[1]);
    if (kind == KIND_NAME) {
        add_quoted(text, policy->name);
    } else if (kind == KIND_START) {
        add_start(text, policy);
    } else if (kind == KIND_TIME) {
        add_number(text, value / unit_of(value)->ns);
        add_text(text, unit_of(value)->spellings[1]);
    } else if (kind != KIND_FLAG) {
        add_number(text, value);
        add_text(text, kind == KIND_PERCENT ? "%" : "");
    }
}

int stint_policy_format(const struct stint_policy *given, char *buffer, size_t size) {
    struct stint_policy policy;
    struct text text = {.buffer = buffer, .size = size};
    char rate[64];

    if (buffer == NULL && size != 0)
        return stint_failed(EINVAL, "buffer is NULL");
    int error = stint_policy_given(given, &policy);
    if (error != 0)
        return error;
    stint_rate_format(&policy, rate, sizeof(rate));
    add_text(&text, rate);
    if (policy.ban != 0)
        policy.flags &= ~(uint32_t)STINT_OVERRIDES; /* the ban says so */
    for (enum option option = OPTION_NAME; option < OPTIONS; option++)
        add_option(&text, option, &policy);
    return end_text(&text);
}
