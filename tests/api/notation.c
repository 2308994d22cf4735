/* SPDX-License-Identifier: MIT
 * The text notation of policies, read and written. In a text that is wrong, a ^ marks the character
 * that must be told. (Texts cut anywhere, and any bytes: fuzz target `notation`.) */
#include "fixture.h"

#include <time.h>

#define COUNT(rows) (sizeof(rows) / sizeof(rows)[0])

/* A copy whose end is the end of its memory, so that a sanitizer sees a reader go past it. */
static char *exact_copy(const char *text) {
    char *copy = strdup(text);
    assert_non_null(copy);
    return copy;
}

static struct stint_policy parse(const char *text) {
    struct stint_policy policy;
    memset(&policy, 0x5a, sizeof policy);
    policy.size = sizeof policy;
    char *copy = exact_copy(text);
    const char *untouched = "untouched", *wrong = untouched;
    int error = stint_policy_parse(copy, &policy, &wrong);
    if (error != 0)
        fail_msg("\"%s\": %s at %td", text, stint_reason(), wrong - copy);
    assert_ptr_equal(wrong, untouched);
    free(copy);
    return policy;
}

/* It is this policy, whose size need not be said, and is written so (NULL: however), and read again
 * from that. */
static void assert_parses(const char *text, struct stint_policy expected, const char *written) {
    const struct stint_policy got = parse(text);
    char is[400], other[400];
    expected.size = sizeof expected;
    assert_true(stint_policy_format(&got, is, sizeof is) > 0);
    assert_true(stint_policy_format(&expected, other, sizeof other) > 0);
    if (memcmp(&got, &expected, sizeof got) != 0)
        fail_msg("\"%s\": %s, not %s", text, is, other);
    if (written != NULL)
        assert_string_equal(is, written);
    const struct stint_policy again = parse(is);
    assert_memory_equal(&again, &got, sizeof again);
}

/* Each text, and how it is written then. */
static void assert_written(const char *before, const char *const (*rows)[2], size_t count) {
    for (size_t i = 0; i < count; i++) {
        char text[200], written[200];
        snprintf(text, sizeof text, "%s%s", before, rows[i][0]);
        snprintf(written, sizeof written, "%s%s", before, rows[i][1]);
        assert_parses(text, parse(written), written);
    }
}

static void assert_start(const char *time, int64_t start) {
    char text[100];
    snprintf(text, sizeof text, "1/day start=%s", time);
    assert_parses(text, (struct stint_policy){.limit = 1, .window = DAY, .start = start}, NULL);
}

/* The marked character is wrong, and nothing is written but where. */
static void assert_wrong(const char *marked) {
    struct stint_policy policy = make_policy("untouched", 7, HOUR, 0, 0), before = policy;
    const ptrdiff_t place = strchr(marked, '^') - marked;
    char *copy = exact_copy(marked + 1);
    const char *wrong = NULL;
    memcpy(copy, marked, (size_t)place);
    int error = stint_policy_parse(copy, &policy, &wrong);
    if (error != -EINVAL || !wrong || wrong - copy != place)
        fail_msg("\"%s\": result %d, wrong at %td", marked, error, wrong ? wrong - copy : -1);
    assert_true(stint_reason()[0] != '\0');
    assert_int_equal(stint_policy_parse(copy, &policy, NULL), -EINVAL);
    assert_memory_equal(&policy, &before, sizeof policy);
    free(copy);
}

/* Each of them, after what `before` says. */
static void assert_all_wrong(const char *before, const char *const *marked, size_t count) {
    for (size_t i = 0; i < count; i++) {
        char text[200];
        snprintf(text, sizeof text, "%s%s", before, marked[i]);
        assert_wrong(text);
    }
}

/* ---- What is right ------------------------------------------------------------------------- */

/* Each field by itself. */
TEST(test_fields) {
    enum { MONTH = STINT_CALENDAR_MONTH, YEAR = STINT_CALENDAR_YEAR };
    const int64_t start = 1704085200 * INT64_C(1000000000);
#define PLUS(...)                                                                                  \
    { .limit = 100, .window = MINUTE, __VA_ARGS__ }
    const struct {
        const char *text;
        struct stint_policy policy;
    } rows[] = {
        {"100/15m", {.limit = 100, .window = 15 * MINUTE}},
        {"268435456/10ms", {.limit = STINT_LIMIT_MAX, .window = STINT_WINDOW_MIN}},
        {"1/366 days", {.limit = 1, .window = STINT_WINDOW_MAX}},
        {"5/month", {.limit = 5, .calendar = MONTH}},
        {"5/year start=2024-01-01T05:00:00-12:00",
         {.limit = 5, .calendar = YEAR, .offset = -720, .start = start}},
        {"100/m name=\"a b\"", PLUS(.name = "a b")},
        {"100/m start=2024-01-01T05:00:00Z", PLUS(.start = start)},
        {"100/m shadow", PLUS(.flags = STINT_SHADOW)},
        {"100/m count-refused", PLUS(.flags = STINT_COUNT_REFUSED)},
        {"100/m start=per-key", PLUS(.flags = STINT_START_PER_KEY)},
        {"100/m start=first", PLUS(.flags = STINT_START_FIRST)},
        {"100/m smooth", PLUS(.flags = STINT_SMOOTH)},
        {"100/m in-flight", PLUS(.flags = STINT_IN_FLIGHT)},
        {"100/m overrides", PLUS(.flags = STINT_OVERRIDES)},
        {"100/m ban=90s", PLUS(.flags = STINT_OVERRIDES, .ban = 90 * SECOND)},
        {"100/m ban=1h after=3 within=2h",
         PLUS(.flags = STINT_OVERRIDES, .ban = HOUR, .ban_after = 3, .ban_within = 2 * HOUR)},
        {"100/m capacity=150", PLUS(.capacity = 150)},
        {"100/m reserve=1M", PLUS(.max_reserved = 1000000)},
        {"100/m burst=20", PLUS(.burst = 20)},
        {"100/m stripes=8", PLUS(.stripes = 8)},
        {"100/m near=80%", PLUS(.near_limit = 80)},
        {"100/m jitter=10%", PLUS(.jitter = 10)},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        assert_parses(rows[i].text, rows[i].policy, NULL);
}

TEST(test_texts) {
    static const char *const rates[][2] = {
        {"100/minute", "100/minute"},
        {"5/s", "5/second"},
        {"100/15m", "100/15 minutes"},
        {"10r/s", "10/second"},
        {"10r/m", "10/minute"},
        {"1M/day", "1000000/day"},
        {"100 per 15 minutes", "100/15 minutes"},
        {"100 per 1 minute", "100/minute"},
        {"100 per 15m", "100/15 minutes"},
        {"100/15 minutes", "100/15 minutes"},
        {"100 PER 15 MINUTES", "100/15 minutes"},
        {"60K/h", "60000/hour"},
        {"00100/01m", "100/minute"},
        /* Calendars. */
        {"5 per Month", "5/month"},
        {"5r/ YEAR", "5/year"},
        {"5/month start=2024-03-15", "5/month start=2024-03-15T00:00:00Z"},
        {"5/month start=2024-03-15T09:30:00.25Z", "5/month start=2024-03-15T09:30:00.25Z"},
        {"5/month start=2024-03-15T09:30:00+14:00", "5/month start=2024-03-15T09:30:00+14:00"},
        {"5/year start=1970-01-01T00:00:00+05:45", "5/year start=1970-01-01T00:00:00+05:45"},
        {"5/year start=1969-12-28T23:59:59.99-00:30", "5/year start=1969-12-28T23:59:59.99-00:30"},
        {"5/month start=2024-03-15T09:30:00-00:00", "5/month start=2024-03-15T09:30:00Z"}};
    static const char *const options[][2] = {
        {"capacity=1", "capacity=1"},
        {"capacity=2K", "capacity=2000"},
        {"capacity=268M", "capacity=268000000"},
        {"capacity=268435456", "capacity=268435456"},
        {"reserve=268435356", "reserve=268435356"},
        {"stripes=2", "stripes=2"},
        {"stripes=64", "stripes=64"},
        {"Start=First capacity=9 count-refused", "start=first capacity=9 count-refused"},
        {"near=9% In-Flight jitter=7% shadow", "near=9% jitter=7% in-flight shadow"},
        {"near=1%", "near=1%"},
        {"near=100%", "near=100%"},
        {"jitter=100%", "jitter=100%"},
        {"smooth start=per-key", "start=per-key smooth"},
        {"stripes=8 shadow near=9%", "stripes=8 near=9% shadow"},
        {"jitter=2% near=3% reserve=4 capacity=5 start=per-key shadow name=\"a b\"",
         "name=\"a b\" start=per-key capacity=5 reserve=4 near=3% jitter=2% shadow"},
        {"shadow  start=per-key capacity=5 reserve=4  near=3% name=x jitter=2% ",
         "name=\"x\" start=per-key capacity=5 reserve=4 near=3% jitter=2% shadow"},
        {"after=3 overrides ban=10minutes", "ban=10m after=3"},
        {"ban=1w", "ban=1w"},
        {"ban=36H", "ban=36h"},
        {"ban=366d after=65535", "ban=366d after=65535"},
        {"ban=90s after=1", "ban=90s after=1"},
        {"ban=1010ms", "ban=1010ms"}};
    assert_written("", rates, COUNT(rates));
    assert_written("100/minute ", options, COUNT(options));
}

TEST(test_units) {
    static const struct {
        const char *name;
        uint64_t ns;
    } units[] = {
        {"ms", MS},          {"millisecond", MS}, {"milliseconds", MS}, {"s", SECOND},
        {"sec", SECOND},     {"secs", SECOND},    {"second", SECOND},   {"seconds", SECOND},
        {"m", MINUTE},       {"min", MINUTE},     {"mins", MINUTE},     {"minute", MINUTE},
        {"minutes", MINUTE}, {"h", HOUR},         {"hr", HOUR},         {"hrs", HOUR},
        {"hour", HOUR},      {"hours", HOUR},     {"d", DAY},           {"day", DAY},
        {"days", DAY},       {"w", 7 * DAY},      {"week", 7 * DAY},    {"weeks", 7 * DAY},
    };
    static const struct {
        const char *form;
        uint64_t units;
    } forms[] = {{"3/20%s", 20},      {"3/20 %s", 20}, {"3 per 20%s", 20},
                 {"3 per 20 %s", 20}, {"3/%s", 1},     {"3 per %s", 1}};
    char text[60];
    for (size_t i = 0; i < COUNT(units); i++) {
        /* as it is, in capitals, and with one */
        for (int capitals = 0; capitals < 3; capitals++) {
            char unit[20];
            snprintf(unit, sizeof unit, "%s", units[i].name);
            for (size_t c = 0; unit[c] && (capitals == 1 || (capitals == 2 && c == 0)); c++)
                unit[c] = (char)(unit[c] - 'a' + 'A');
            for (size_t f = 0; f < COUNT(forms); f++) {
                const uint64_t window = forms[f].units * units[i].ns;
                snprintf(text, sizeof text, forms[f].form, unit);
                if (window >= STINT_WINDOW_MIN && strcmp(unit, "M") != 0)
                    assert_parses(text, (struct stint_policy){.limit = 3, .window = window}, NULL);
            }
        }
        /* A letter more or less makes another word, or none. */
        snprintf(text, sizeof text, "3/20^%sx", units[i].name);
        assert_wrong(text);
    }
}

TEST(test_limits_of_numbers) {
    static const char *const right[][2] = {
        {"1K/s", "1000/second"},        {"268435K/s", "268435000/second"},
        {"268M/s", "268000000/second"}, {"1/1010ms", "1/1010 milliseconds"},
        {"1/366d", "1/366 days"},       {"1/52w", "1/52 weeks"},
        {"1/8784h", "1/366 days"},      {"1/527040m", "1/366 days"},
        {"1/31622400s", "1/366 days"},  {"1/31622400000ms", "1/366 days"}};
    static const char *const wrong[] = {
        /* Limits; 18446744073710M is 2^64 and a little. */
        "^0/s", "^000/s", "^268435457/s", "^4294967296/s", "^4294967297/s",
        "^18446744073709551617/s", "^99999999999999999999999999999999999999999/s", "^268436K/s",
        "^0K/s", "^269M/s", "^18446744073710M/s",
        /* Windows; the last two are 2^64 ns and a little, one of them in weeks times 10^6. */
        "1/^9ms", "1/^ms", "1/^0ms", "1/^0s", "1 per ^0 hours", "1/^11ms", "1/^1005ms", "1/^367d",
        "1/^53w", "1/^8785h", "1/^527041m", "1/^31622401s", "1/^31622400010ms",
        "1/^18446744073709551616s", "1/^18446744073709551617s", "1/^30500568904943w", "1/^30501w"};
    assert_written("", right, COUNT(right));
    assert_all_wrong("", wrong, COUNT(wrong));
}

struct wrong {
    const char *text, *reason;
};

/* The reason begins so, in the words of the text. */
static void assert_reasons(const struct wrong *rows, size_t count) {
    for (size_t i = 0; i < count; i++) {
        assert_wrong(rows[i].text);
        if (strncmp(stint_reason(), rows[i].reason, strlen(rows[i].reason)) != 0)
            fail_msg("\"%s\": %s", rows[i].text, stint_reason());
        assert_true(strstr(stint_reason(), "policy.") == NULL &&
                    strstr(stint_reason(), "STINT_") == NULL);
    }
}

/* Each part right, together wrong: at what stands later, in the words of the text. (All pairs:
 * windows.c.) */
TEST(test_contradictions) {
    static const struct wrong rows[] = {
        {"9/m capacity=10 ^count-refused",
         "count-refused does not go with capacity= above the limit"},
        {"9/m count-refused ^capacity=10",
         "count-refused does not go with capacity= above the limit"},
        {"9/m reserve=5 ^count-refused", "count-refused does not go with reserve="},
        {"9/m smooth ^capacity=8", "capacity= below the limit does not go with smooth"},
        {"9/m smooth ^stripes=2", "smooth does not go with stripes="},
        {"9/m stripes=4 ^start=per-key", "start=per-key does not go with stripes="},
        {"9/m  smooth  ^start=first", "start=first does not go with smooth"},
        {"9/m in-flight ^start=2024-01-01T00:00:05Z", "in-flight does not go with start="},
        {"9/m ban=1h ^stripes=4", "ban= does not go with stripes="},
        {"9/m in-flight ^overrides", "overrides does not go with in-flight"},
        {"9/m near=5% stripes=4 ^ban=1h overrides", "ban= does not go with stripes="},
        {"9/month ^smooth", "a month or a year does not go with smooth"},
        {"9/month ^start=2024-01-29", "start= must be on one of the days 1 to 28"},
        {"9/month ^start=2024-01-01T00:00:00+14:01", "the offset of start= must be -720 to 840"},
        {"9/m ^stripes=3", "stripes= must be a power of two, at most 64"},
        {"9/m ^stripes=16", "stripes= must be at most the limit and the capacity"},
        {"9/m ^stripes=4 capacity=3", "stripes= must be at most the limit and the capacity"},
        {"9/m capacity=268435456 ^reserve=1", "capacity= and reserve= must be at most 2^28"},
        {"9/m reserve=57 ^capacity=268435400", "capacity= and reserve= must be at most 2^28"},
        {"268435400/m ^reserve=57", "the limit and reserve= must be at most 2^28"},
        {" ^16384/minute smooth", "the limit of a smooth policy must be at most 16,383"},
        {"^16384/minute in-flight", "the limit of an in-flight policy must be at most 16,383"},
        {"9/m ^after=3", "after= needs ban=, the time"},
        {"9/m ^within=3m", "within= needs ban=, the time"},
        {"9/m ban=1h after=4 ^within=1m", "within= must be longer than the windows"},
        {"9/m ban=1h within=^5ms", "the time must be 10 ms to 366 days"},
        /* spring-cloud/spring-cloud-gateway#168 */
        {"9/m burst=^0", "the burst must be 1 to 2^28"},
        {"9/m burst=9 ^smooth", "burst= does not go with smooth"},
        {"20M/s ^burst=9", "the limit must be at most 10 million a second with burst="},
        {"1/d ^burst=367", "burst= is too large beside the limit"},
        {"9/2s ban=1s ^after=3", "ban= must be longer than the windows"},
        {"9/2s after=3 ^ban=1s", "ban= must be longer than the windows"},
    };
    assert_reasons(rows, COUNT(rows));
}

/* The wrong word is named, with what was probably meant or how it is written. */
TEST(test_reasons) {
    static const struct wrong rows[] = {
        {"10/sec ^burst 20", "burst takes a number: burst=20"},
        {"10/sec ^Burst  = 35", "burst takes a number: burst=35"},
        {"10/sec ^burst", "burst takes a number: burst=20"},
        {"10/sec ^burst 20x", "burst takes a number: burst=20"},
        {"10/sec ^burst 9876543210", "burst takes a number: burst=20"},
        {"10/sec burst=^ 35", "burst takes a number: burst=20"},
        {"10/sec burst=^-5 near=8%", "burst takes a number: burst=20"},
        {"10/sec ^near 75", "near takes a percentage: near=75%"},
        {"10/sec ^near 7% shadow", "near takes a percentage: near=7%"},
        {"10/sec near=90^ shadow", "near takes a percentage: near=90%"},
        {"10/sec near=^", "near takes a percentage: near=80%"},
        {"10/sec ^ban 10", "ban takes a number and a unit: ban=10m"},
        {"10/sec ban=^", "ban takes a number and a unit: ban=10m"},
        {"10/sec ^name api", "name takes a name: name=api"},
        {"10/sec ^start first", "start takes per-key, first or a time: start=2024-01-01T05:00:00Z"},
        {"10/s start=^perkey", "start takes per-key, first or a time: start=2024-01-01T05:00:00Z"},
        {"10/sec smooth^=1", "smooth takes no value"},
        {"10/sec smooth ^smooth", "smooth stands twice"},
        {"10/sec start=first ^start=per-key", "start= stands twice"},
        /* Slips. */
        {"10/sec ^busrt=20", "'busrt' is no option: burst= was probably meant"},
        {"10/sec ^bursts", "'bursts' is no option: burst= was probably meant"},
        {"10/sec ^Capcity=20", "'Capcity' is no option: capacity= was probably meant"},
        {"10/sec ^inflight", "'inflight' is no option: in-flight was probably meant"},
        {"10/sec ^count_refused", "'count_refused' is no option: count-refused was probably meant"},
        {"10/sec ^cap=20", "'cap' is no option: capacity= was probably meant"},
        {"10/sec ^strt=first", "'strt' is no option: start= was probably meant"},
        {"10/sec ^nme=x", "'nme' is no option: name= was probably meant"},
        {"10/sec ^ses=2", "'ses' is no option: expected name=, start=, "}, /* not stripes= */
        {"10/sec ^jitter-of=5%", "'jitter-of' is no option: jitter= was probably meant"},
        {"10/sec ^window=5", "'window' is no option: expected name=, start=, burst=, capacity=, "
                             "reserve=, stripes=, near=, jitter=, ban=, after=, within=, shadow, "
                             "smooth, in-flight, overrides or count-refused"},
        {"1/s ^an-option-of-twenty-four-letters", "'an-option-of-twenty-four' is no option: exp"},
        {"10/sec ^\xc3\xa9", "expected name=, start=, "},
        {"10/sec ^=20", "expected name=, start=, "},
        /* Units. */
        {"10/^mintue", "'mintue' is no unit: minute was probably meant"},
        {"10 per 5 ^mon", "'mon' is no unit: month was probably meant"},
        {"10/^minu", "'minu' is no unit: minute was probably meant"},
        {"9/s ban=5^dasy", "'dasy' is no unit: day was probably meant"},
        {"1^.5/s", "a limit is a whole number of tokens: 3/2s was probably meant"},
        {"0^.1/s", "a limit is a whole number of tokens: 1/10s was probably meant"},
        {"2^.50r/ 10 Minutes", "a limit is a whole number of tokens: 5/20m was probably meant"},
        {"1^.1\t/5s5s", "a limit is a whole number of tokens: 11/50s was probably meant"},
        {"0^.0/s", "a limit is a whole number of tokens"},
        {"1^.5/month", "a limit is a whole number of tokens"},
        {"0^.5/300d", "a limit is a whole number of tokens"},
        {"10/1^.5h", "a time is a whole number of units: 90m was probably meant"},
        {"10/0^.25 s", "a time is a whole number of units: 250ms was probably meant"},
        {"10/0^.001s", "a time is a whole number of units"},
        {"10/99999999999^.5w", "a time is a whole number of units"},
        {"9/s ban=2^.5d", "a time is a whole number of units: 60h was probably meant"},
        {"2/^3 months", "a month or a year has no number before it: write 2/90d"},
        {"2/^12months", "a month or a year has no number before it: 2/year was probably meant"},
        {"9 per ^1 Month", "a month or a year has no number before it: 9/month was probably meant"},
        {"2/^0years", "a month or a year has no number before it"},
        {"2/s ban=^1month", "a month or a year has no number before it"},
        {"2/s ban=^1year", "a month or a year has no number before it"},
        {"2/^2 years", "a month or a year has no number before it"},
        {"10/^yrs", "'yrs' is no unit: expected ms, s, m, h, d, w or a longer form of these, month "
                    "or year"},
        {"10/^\x01", "expected ms, s, m, h, d, w or a longer form of these, month or year"},
        /* Both readings. */
        {"10/^M", "M may be a minute or a month: write 10/m or 10/month"},
        {"25r/ ^M shadow", "M may be a minute or a month: write 25/m or 25/month"},
        {"2K per ^M", "M may be a minute or a month: write 2000/m or 2000/month"},
        {"10/15^M",
         "M may be minutes or months: write m for minutes; a month has no number before"},
        {"10/15 ^M", "M may be minutes or months: write m for minutes"},
        {"10/s ban=5^M", "M may be minutes or months: write m for minutes"},
    };
    assert_reasons(rows, COUNT(rows));
}

TEST(test_options_of_features_wrong) {
    static const char *const cases[] = {
        /* Tokens. */
        "^capacity", "capacity=^", "capacity=^x", "capacity=^-5", "capacity=^0",
        "capacity=^268435457", "capacity=^269M", "capacity=^18446744073709551617", "capacity=5^x",
        "capacity=1^.5", "capacity=5^%", "capacity=^ 5", "reserve=^268435457", "reserve=5^,",
        /* Stripes. */
        "stripes=^0", "stripes=^65", "stripes=^128", "stripes=^4294967298",
        /* Starts. */
        "start=^per-ke", "start=^firs", "start=first^ly", "start=per-key^s",
        "start=per-key ^start=2024-01-01", "start=2024-01-01 ^start=per-key",
        /* Words. */
        "^smoot", "smooth^ly", "smooth^shadow", "in-flight^=1", "in-flight^s",
        /* Percentages. */
        "near=80^", "near=^%", "near=^0%", "near=^101%", "near=80^ %", "near=80%^%", "near=8^.5%",
        "near=^-1%", "near=^4294967376%", "near=1^K%", "jitter=^0%", "jitter=^101%",
        /* Bans (animir/node-rate-limiter-flexible#231); how often, and what goes together. */
        "ban=10^", "ban=^m", "ban=10^ m", "ban=^0m", "ban=^367d", "ban=^1000000000s", "ban=^15ms",
        "ban=1m after=^0", "ban=1m after=^65536", "^after=2",
        /* Each at most once. */
        "near=80% ^near=80%", "reserve=1 ^reserve=2", "ban=1m ^ban=1m", "in-flight ^in-flight",
        "name=a ^name=b", "start=2024-01-01 ^start=2024-01-01"};
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_all_wrong("100/minute ", &cases[i], 1);
        if (strstr(cases[i], "shadow") == NULL)
            assert_all_wrong("100/minute shadow ", &cases[i], 1);
    }
    /* What is just inside. */
    (void)parse("16383/minute smooth");
    (void)parse("16383/minute in-flight");
    (void)parse("64/minute stripes=64");
    assert_wrong("63/minute ^stripes=64");
}

TEST(test_names) {
    static const char *const right[][2] = {
        {"a", "a"},
        {"a-b_c.d/e:f", "a-b_c.d/e:f"},
        {"\"a b\"", "a b"},
        {"\" \" shadow", " "},
        {"\"shadow start=x\"", "shadow start=x"},
        {"\"say \\\"hi\\\"\"", "say \"hi\""},
        {"\"\\\\\"", "\\"},
    };
    char text[200];
    for (size_t i = 0; i < COUNT(right); i++) {
        const uint32_t flags = strcmp(right[i][1], " ") == 0 ? STINT_SHADOW : 0;
        snprintf(text, sizeof text, "1/s name=%s", right[i][0]);
        assert_parses(text, make_policy(right[i][1], 1, SECOND, 0, flags), NULL);
    }
    /* As long as can be, and a letter longer. */
    char name[STINT_NAME_SIZE];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    for (int quoted = 0; quoted < 2; quoted++) {
        snprintf(text, sizeof text, quoted ? "1/s name=\"%s\"" : "1/s name=%s", name);
        assert_parses(text, make_policy(name, 1, SECOND, 0, 0), NULL);
        snprintf(text, sizeof text, quoted ? "1/s name=\"%s^n\"" : "1/s name=%s^n", name);
        assert_wrong(text);
    }
    static const char *const wrong[] = {"^",         "^ shadow", "^\"\"",     "\"^",
                                        "\"ab^",     "\"a^\\",   "\"a^\\b\"", "\"a\"^b",
                                        "a^\"b",     "a^\x01",   "a^\x7f",    "a^\xc3\xa9",
                                        "\"a^\tb\"", "\"a^\n\"", "\"a^\xff\""};
    assert_all_wrong("1/s name=", wrong, COUNT(wrong));
}

TEST(test_starts) {
    const int64_t s = 1000000000, day = 86400 * s;
    const struct {
        const char *time;
        int64_t start;
    } starts[] = {
        {"1970-01-01T00:00:00Z", 0},
        {"1970-01-01", 0},
        {"1970-01-02", day},
        {"1969-12-31", -day},
        {"1969-12-31T23:59:59.99Z", -10000000},
        {"2024-01-01", 1704067200 * s},
        {"2024-01-01T05:00:00Z", 1704085200 * s},
        {"2024-01-01t05:00:00z", 1704085200 * s},
        /* Leap years: those of 4, not of 100, but of 400. */
        {"2024-02-29", 1709164800 * s},
        {"2024-03-01", 1709251200 * s},
        {"2023-03-01", 1677628800 * s},
        {"2000-02-29", 951782400 * s},
        {"2000-12-31", 978220800 * s},
        {"1972-02-29", 68169600 * s},
        {"1900-03-01", -2203891200 * s},
        {"2100-03-01", 4107542400 * s},
        {"1900-02-28", -2203977600 * s},
        /* Offsets are of the local time ahead of UTC. */
        {"2024-01-01T05:00:00+00:00", 1704085200 * s},
        {"2024-01-01T05:00:00-00:00", 1704085200 * s},
        {"2024-01-01T05:00:00+01:30", 1704079800 * s},
        {"2024-01-01T05:00:00-01:30", 1704090600 * s},
        {"2024-01-01T00:00:00+23:59", 1703980860 * s},
        {"2023-12-31T23:59:59-23:59", 1704153539 * s},
        {"1970-01-01T00:00:00+00:01", -60 * s},
        /* Fractions of whole ticks, however long they are written. */
        {"2024-01-01T05:00:00.5Z", 1704085200 * s + 500000000},
        {"2024-01-01T05:00:00.05Z", 1704085200 * s + 50000000},
        {"2024-01-01T05:00:00.25+01:30", 1704079800 * s + 250000000},
        {"2024-01-01T05:00:00.01Z", 1704085200 * s + 10000000},
        {"2024-01-01T05:00:00.99Z", 1704085200 * s + 990000000},
        {"2024-01-01T05:00:00.0Z", 1704085200 * s},
        {"2024-01-01T05:00:00.010000000Z", 1704085200 * s + 10000000},
        {"2024-01-01T05:00:00.0100000000000Z", 1704085200 * s + 10000000},
        /* The first and the last that int64_t nanoseconds can say. */
        {"1677-09-21T00:12:43.15Z", -INT64_C(9223372036850000000)},
        {"2262-04-11T23:47:16.85Z", INT64_C(9223372036850000000)},
        {"2262-04-11T23:48:16.85+00:01", INT64_C(9223372036850000000)},
    };
    for (size_t i = 0; i < COUNT(starts); i++)
        assert_start(starts[i].time, starts[i].start);

    /* Days against the C library's calendar. */
    for (int64_t days = -100000; days <= 100000; days += 7) {
        time_t seconds = (time_t)(days * 86400);
        struct tm tm;
        char time[40];
        assert_non_null(gmtime_r(&seconds, &tm));
        assert_true(strftime(time, sizeof time, "%Y-%m-%d", &tm) > 0);
        assert_start(time, days * day);
    }
}

/* ---- What is wrong, and where -------------------------------------------------------------- */

TEST(test_wrong) {
    static const char *const texts[] = {
        /* Limits. */
        "^", "^x", "^/minute", "^per minute", "^-1/s", "^+1/s", "100^", "100K^", "100 ^", "100^x/s",
        "100^G/s", "100^r", "1^.5/s",
        /* What stands between. */
        "100 ^minute", "100 ^pe minute", "100 ^perminute", "100/^/s", "100/^", "100 ^per",
        "100 per ^",
        /* Windows (systemd/systemd#17572). */
        "100/^infinity", "100/15^", "100/15 ^", "100/^fortnight", "100/^minu", "100/^minutely",
        "100/15 ^fortnights", "100/1^.5m", "100/^-1m", "100/m^1", "100/minute^,shadow",
        "100/minute^;", "100/minute^\n", "5/^yearly", "5/^months", "5/^1year", "100/minute ^foo",
        "100/minute shadow^s", "100/minute ^=x"};
    static const char *const starts[] = {
        "^", "^now", "^\"2024-01-01\"", "24^-01-01", "2024^", "2024^/01/01", "2024^0101",
        "2024-1^-01", "2024-^00-01", "2024-^13-01", "2024-01^", "2024-01-^00", "2024-01-^32",
        "2024-04-^31", "2024-02-^30", "2023-02-^29", "1900-02-^29", "2100-02-^29", "2024-01-01^x",
        "2024-01-01T^", "2024-01-01T5^:00:00Z", "2024-01-01T^24:00:00Z", "2024-01-01T05:^60:00Z",
        "2024-01-01T05:00:^60Z", "2024-01-01T05:00^Z", "2024-01-01T05:00:^61Z",
        "2024-01-01T05:00:00^", "2024-01-01T05:00:00^ shadow", "2024-01-01T05:00:00.^Z",
        "2024-01-01T05:00:00.5^", "2024-01-01T05:00:00^,5Z", "2024-01-01T05:00:00Z^x",
        "2024-01-01T05:00:00+^24:00", "2024-01-01T05:00:00+01:^60", "2024-01-01T05:00:00+01^00",
        "2024-01-01T05:00:00+01^",
        /* Not whole ticks. */
        "^2024-01-01T05:00:00.001Z", "^2024-01-01T05:00:00.015Z", "^2024-01-01T05:00:00.010000001Z",
        "^2024-01-01T05:00:00.0100000000001Z",
        /* Before and after what int64_t nanoseconds can say. */
        "^0000-01-01", "^1677-09-21T00:12:43.14Z", "^2262-04-11T23:47:16.86Z",
        "^2262-04-11T23:47:16.85-00:01", "^2262-12-31", "^1677-01-01", "^2263-01-01",
        "^9999-12-31"};
    assert_all_wrong("", texts, COUNT(texts));
    assert_all_wrong("1/s start=", starts, COUNT(starts));
}

/* ---- What is allowed, and hardly meant ------------------------------------------------------ */

#define BURST(burst, least)                                                                        \
    "burst=" burst " lasts less than 20 ms at this rate. The default clock stands still for up "   \
    "to 10 ms, so a key may get less than its rate: take burst=" least " or more"
#define HALF(limit)                                                                                \
    "smooth with a limit of " limit " grants about half to steady demand: burst=" limit            \
    " in its place grants all"
#define SHADOW    "a shadow counts no strikes: bans begin once it is lifted"
#define BAN(time) "ban= is shorter than " time ": a ban that ends before that keeps nobody out"

TEST(test_notes) {
    static const char *const rows[][2] = {
        {"1000/s burst=20", ""},
        {"1000/s burst=19", BURST("19", "20")},
        {"50/s burst=1 shadow", ""},
        {"51/s burst=1 shadow", BURST("1", "2")},
        {"3/10ms burst=5", BURST("5", "6")},
        {"10M/s burst=1", BURST("1", "200000")},
        {"1/366d burst=1", ""},
        {"1/s smooth", HALF("1")},
        {"2/10s smooth start=per-key", HALF("2")},
        {"3/10s smooth", ""},
        {"2/10s", ""},
        {"9/m capacity=8",
         "no window grants more than capacity=8, and a larger cost never fits, though the limit "
         "is 9"},
        {"9/m capacity=9", ""},
        {"9/m capacity=10", ""},
        {"9/m capacity=8 reserve=1", ""},
        {"9/m ban=59s", BAN("the window")},
        {"9/m ban=60s", ""},
        {"9/m ban=1h after=3", ""},
        {"9/month ban=27d", BAN("the window")},
        {"9/month ban=28d", ""},
        {"9/year ban=364d", BAN("the window")},
        {"9/year ban=365d", ""},
        {"6/m burst=3 ban=9990ms", BAN("a token takes to come back")},
        {"6/m burst=3 ban=10s", ""},
        {"70/s burst=1 ban=10ms", BURST("1", "2") "; " BAN("a token takes to come back")},
        {"2/m smooth ban=30s", HALF("2") "; " BAN("the window")},
        {"9/m shadow ban=1h", SHADOW},
        {"9/m shadow ban=59s", BAN("the window") "; " SHADOW},
    };
    struct stint_policy policy = STINT_POLICY_INIT;
    char text[] = "untouched", note[1000];
    for (size_t i = 0; i < COUNT(rows); i++) {
        policy = parse(rows[i][0]);
        assert_int_equal(stint_policy_note(&policy, note, sizeof note), strlen(rows[i][1]));
        assert_string_equal(note, rows[i][1]);
    }
    policy.limit = 0;
    assert_int_equal(stint_policy_note(&policy, text, sizeof text), -EINVAL);
    assert_string_equal(text, "untouched");
}
