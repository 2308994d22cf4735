/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * The text notation of policies, read and written. */
#include "fixture.h"
#include "random.h"

#include <time.h>

/* A copy whose end is the end of its memory, so that a sanitizer sees a reader go past it. */
static char *exact_copy(const char *text, size_t length) {
    char *copy = malloc(length + 1);
    assert_non_null(copy);
    memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

static struct stint_policy parse(const char *text) {
    struct stint_policy policy;
    memset(&policy, 0x5a, sizeof policy);
    policy.size = sizeof policy;
    char *copy = exact_copy(text, strlen(text));
    const char *untouched = "untouched", *wrong = untouched;
    int error = stint_policy_parse(copy, &policy, &wrong);
    if (error != 0)
        fail_msg("\"%s\": %s at %td", text, stint_reason(), wrong - copy);
    assert_ptr_equal(wrong, untouched);
    free(copy);
    return policy;
}

static void assert_parses(const char *text, const char *name, uint32_t limit, uint64_t window,
                          int64_t start, uint32_t flags) {
    struct stint_policy got = parse(text);
    struct stint_policy expected = make_policy(name, limit, window, start, flags);
    if (strcmp(got.name, name) != 0 || got.limit != limit || got.window != window ||
        got.start != start || got.flags != flags)
        fail_msg("\"%s\": name \"%s\", limit %" PRIu32 ", window %" PRIu64 ", start %" PRId64
                 ", flags %" PRIu32,
                 text, got.name, got.limit, got.window, got.start, got.flags);
    assert_memory_equal(&got, &expected, sizeof got);
}

static void assert_rate(const char *text, uint32_t limit, uint64_t window) {
    assert_parses(text, "", limit, window, 0, 0);
}

static void assert_start(const char *time, int64_t start) {
    char text[100];
    snprintf(text, sizeof text, "1/day start=%s", time);
    assert_parses(text, "", 1, DAY, start, 0);
}

/* The character at `place` is wrong, and nothing is written but where. */
static void assert_wrong(const char *text, ptrdiff_t place) {
    struct stint_policy policy = make_policy("untouched", 7, HOUR, 0, 0), before = policy;
    char *copy = exact_copy(text, strlen(text));
    const char *wrong = NULL;
    int error = stint_policy_parse(copy, &policy, &wrong);
    if (error != -EINVAL || !wrong || wrong - copy != place)
        fail_msg("\"%s\": result %d, wrong at %td, not %td", text, error, wrong ? wrong - copy : -1,
                 place);
    assert_true(stint_reason()[0] != '\0');
    assert_int_equal(stint_policy_parse(copy, &policy, NULL), -EINVAL);
    assert_memory_equal(&policy, &before, sizeof policy);
    free(copy);
}

/* ---- What is right ------------------------------------------------------------------------- */

TEST(test_rates) {
    assert_rate("100/minute", 100, MINUTE);
    assert_rate("5/s", 5, SECOND);
    assert_rate("100/15m", 100, 15 * MINUTE);
    assert_rate("10r/s", 10, SECOND);
    assert_rate("10r/m", 10, MINUTE);
    assert_rate("1M/day", 1000000, DAY);
    assert_rate("100 per 15 minutes", 100, 15 * MINUTE);
    assert_rate("100 per minute", 100, MINUTE);
    assert_rate("100 per 1 minute", 100, MINUTE);
    assert_rate("100 per 15m", 100, 15 * MINUTE);
    assert_rate("100/15 minutes", 100, 15 * MINUTE);
    assert_rate("100 PER 15 MINUTES", 100, 15 * MINUTE);
    assert_rate("2000/hour", 2000, HOUR);
    assert_rate("60K/h", 60000, HOUR);
    assert_rate("00100/01m", 100, MINUTE);
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
    static const char *const forms[] = {"3/20%s", "3/20 %s", "3 per 20%s", "3 per 20 %s"};
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        /* as it is, in capitals, and with one */
        for (int capitals = 0; capitals < 3; capitals++) {
            char unit[20], text[60];
            snprintf(unit, sizeof unit, "%s", units[i].name);
            for (size_t c = 0; unit[c] && (capitals == 1 || (capitals == 2 && c == 0)); c++)
                unit[c] = (char)(unit[c] - 'a' + 'A');
            for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
                snprintf(text, sizeof text, forms[f], unit);
                assert_rate(text, 3, 20 * units[i].ns);
            }
            if (units[i].ns > MS) {
                snprintf(text, sizeof text, "3/%s", unit);
                assert_rate(text, 3, units[i].ns);
                snprintf(text, sizeof text, "3 per %s", unit);
                assert_rate(text, 3, units[i].ns);
            }
        }
        /* A letter more or less makes another word, or none. */
        char text[60];
        snprintf(text, sizeof text, "3/20%sx", units[i].name);
        assert_wrong(text, 4);
    }
}

TEST(test_limits_of_numbers) {
    assert_rate("1/s", 1, SECOND);
    assert_wrong("0/s", 0);
    assert_wrong("000/s", 0);
    assert_rate("268435456/s", STINT_LIMIT_MAX, SECOND);
    assert_wrong("268435457/s", 0);
    assert_wrong("4294967296/s", 0);
    assert_wrong("4294967297/s", 0);
    assert_wrong("18446744073709551617/s", 0);
    assert_wrong("99999999999999999999999999999999999999999/s", 0);
    assert_rate("1K/s", 1000, SECOND);
    assert_rate("268435K/s", 268435000, SECOND);
    assert_wrong("268436K/s", 0);
    assert_wrong("0K/s", 0);
    assert_rate("268M/s", 268000000, SECOND);
    assert_wrong("269M/s", 0);
    assert_wrong("18446744073710M/s", 0); /* 2^64 and a little */

    assert_rate("1/10ms", 1, 10 * MS);
    assert_wrong("1/9ms", 2);
    assert_wrong("1/ms", 2);
    assert_wrong("1/0ms", 2);
    assert_wrong("1/0s", 2);
    assert_wrong("1 per 0 hours", 6);
    assert_wrong("1/11ms", 2);
    assert_wrong("1/1005ms", 2);
    assert_rate("1/1010ms", 1, 1010 * MS);
    assert_rate("1/366d", 1, 366 * DAY);
    assert_wrong("1/367d", 2);
    assert_rate("1/52w", 1, 364 * DAY);
    assert_wrong("1/53w", 2);
    assert_rate("1/8784h", 1, 366 * DAY);
    assert_wrong("1/8785h", 2);
    assert_rate("1/527040m", 1, 366 * DAY);
    assert_wrong("1/527041m", 2);
    assert_rate("1/31622400s", 1, 366 * DAY);
    assert_wrong("1/31622401s", 2);
    assert_rate("1/31622400000ms", 1, 366 * DAY);
    assert_wrong("1/31622400010ms", 2);
    assert_wrong("1/18446744073709551616s", 2);
    assert_wrong("1/18446744073709551617s", 2);
    assert_wrong("1/30500568904943w", 2); /* 2^64 ns and a little, in weeks times 10^6 */
    assert_wrong("1/30501w", 2);          /* 2^64 ns and a little */
}

TEST(test_options) {
    const int64_t start = 1704085200 * INT64_C(1000000000);
    assert_parses("2000/hour name=search", "search", 2000, HOUR, 0, 0);
    assert_parses("2000/hour name=\"search\"", "search", 2000, HOUR, 0, 0);
    assert_parses("60/minute shadow", "", 60, MINUTE, 0, STINT_SHADOW);
    assert_parses("60/minute count-refused", "", 60, MINUTE, 0, STINT_COUNT_REFUSED);
    assert_parses("1000/day start=2024-01-01T05:00:00Z", "", 1000, DAY, start, 0);

    /* All orders of all options. */
    static const char *const options[4] = {"name=\"a b\"", "start=2024-01-01T05:00:00Z", "shadow",
                                           "count-refused"};
    for (int a = 0; a < 4; a++) {
        for (int b = 0; b < 4; b++) {
            for (int c = 0; c < 4; c++) {
                int d = 6 - a - b - c;
                if (a == b || a == c || b == c)
                    continue;
                char text[200];
                snprintf(text, sizeof text, "7 per 2 days %s %s  %s %s", options[a], options[b],
                         options[c], options[d]);
                assert_parses(text, "a b", 7, 2 * DAY, start, STINT_SHADOW | STINT_COUNT_REFUSED);
            }
        }
    }
}

/* Parses, and has the rate 100/minute and these fields. */
static void assert_fields(const char *options, uint32_t capacity, uint32_t max_reserved,
                          uint32_t stripes, uint32_t flags, uint32_t near_limit, uint32_t jitter) {
    char text[200];
    snprintf(text, sizeof text, "100/minute%s", options);
    struct stint_policy got = parse(text), expected = make_policy("", 100, MINUTE, 0, flags);
    expected.capacity = capacity;
    expected.max_reserved = max_reserved;
    expected.stripes = stripes;
    expected.near_limit = near_limit;
    expected.jitter = jitter;
    if (memcmp(&got, &expected, sizeof got) != 0)
        fail_msg("\"%s\": capacity %" PRIu32 ", max_reserved %" PRIu32 ", stripes %" PRIu32
                 ", flags %#" PRIx32 ", near_limit %" PRIu32 ", jitter %" PRIu32,
                 text, got.capacity, got.max_reserved, got.stripes, got.flags, got.near_limit,
                 got.jitter);
}

TEST(test_options_of_features) {
    const uint32_t smooth = STINT_SMOOTH, per_key = STINT_START_PER_KEY, shadow = STINT_SHADOW,
                   first = STINT_START_FIRST, in_flight = STINT_IN_FLIGHT;
    assert_fields("", 0, 0, 0, 0, 0, 0);
    assert_fields(" capacity=1", 1, 0, 0, 0, 0, 0);
    assert_fields(" capacity=150", 150, 0, 0, 0, 0, 0);
    assert_fields(" capacity=2K", 2000, 0, 0, 0, 0, 0);
    assert_fields(" capacity=268M", 268000000, 0, 0, 0, 0, 0);
    assert_fields(" capacity=268435456", STINT_LIMIT_MAX, 0, 0, 0, 0, 0);
    assert_fields(" reserve=200", 0, 200, 0, 0, 0, 0);
    assert_fields(" reserve=1M", 0, 1000000, 0, 0, 0, 0);
    assert_fields(" reserve=268435356", 0, STINT_LIMIT_MAX - 100, 0, 0, 0, 0);
    assert_fields(" stripes=2", 0, 0, 2, 0, 0, 0);
    assert_fields(" stripes=64", 0, 0, 64, 0, 0, 0);
    assert_fields(" start=per-key", 0, 0, 0, per_key, 0, 0);
    assert_fields(" start=first", 0, 0, 0, first, 0, 0);
    assert_fields(" Start=First capacity=9 count-refused", 9, 0, 0, first | STINT_COUNT_REFUSED, 0,
                  0);
    assert_fields(" smooth", 0, 0, 0, smooth, 0, 0);
    assert_fields(" in-flight", 0, 0, 0, in_flight, 0, 0);
    assert_fields(" near=9% In-Flight jitter=7% shadow", 0, 0, 0, in_flight | shadow, 9, 7);
    assert_fields(" near=80%", 0, 0, 0, 0, 80, 0);
    assert_fields(" near=1%", 0, 0, 0, 0, 1, 0);
    assert_fields(" near=100%", 0, 0, 0, 0, 100, 0);
    assert_fields(" jitter=10%", 0, 0, 0, 0, 0, 10);
    assert_fields(" jitter=100%", 0, 0, 0, 0, 0, 100);
    assert_fields(" smooth start=per-key", 0, 0, 0, smooth | per_key, 0, 0);
    assert_fields(" stripes=8 shadow near=9%", 0, 0, 8, shadow, 9, 0);
    assert_fields(" jitter=2% near=3% reserve=4 capacity=5 start=per-key shadow", 5, 4, 0,
                  per_key | shadow, 3, 2);
    assert_fields(" shadow  start=per-key capacity=5 reserve=4  near=3% jitter=2% ", 5, 4, 0,
                  per_key | shadow, 3, 2);
}

static void assert_ban(const char *text, uint64_t ban, uint32_t after, const char *written) {
    struct stint_policy got = parse(text), expected = make_policy("", 100, MINUTE, 0, 0);
    char buffer[200];
    expected.flags = STINT_OVERRIDES;
    expected.ban = ban;
    expected.ban_after = after;
    assert_memory_equal(&got, &expected, sizeof got);
    assert_true(stint_policy_format(&got, buffer, sizeof buffer) > 0);
    assert_string_equal(buffer, written);
}

TEST(test_overrides_and_bans) {
    assert_ban("100/minute overrides", 0, 0, "100/minute overrides");
    assert_ban("100/minute ban=10m after=3", 10 * MINUTE, 3, "100/minute ban=10m after=3");
    assert_ban("100/minute after=3 overrides ban=10minutes", 10 * MINUTE, 3,
               "100/minute ban=10m after=3");
    assert_ban("100/minute ban=1w", 7 * DAY, 0, "100/minute ban=1w");
    assert_ban("100/minute ban=36H", 36 * HOUR, 0, "100/minute ban=36h");
    assert_ban("100/minute ban=366d after=65535", 366 * DAY, 65535,
               "100/minute ban=366d after=65535");
    assert_ban("100/minute ban=90s after=1", 90 * SECOND, 1, "100/minute ban=90s after=1");
    assert_ban("100/minute ban=1010ms", 1010 * MS, 0, "100/minute ban=1010ms");
    assert_wrong("100/minute ban=10", 17);
    assert_wrong("100/minute ban=m", 15);
    assert_wrong("100/minute ban=10 m", 17);
    assert_wrong("100/minute ban=0m", 15);
    assert_wrong("100/minute ban=367d", 15);
    assert_wrong("100/minute ban=15ms", 15);
    assert_wrong("100/minute ban=1m after=0", 24);
    assert_wrong("100/minute ban=1m after=65536", 24);
    assert_wrong("100/minute after=2", 11);
    assert_wrong("100/minute overrides stripes=4", 21);
    assert_wrong("100/minute ban=1m ban=1m", 18);
}

/* Each part right, together wrong: at what stands later, in the words of the text. */
static void check_contradictions(void) {
    static const struct {
        const char *text;
        ptrdiff_t place;
        const char *reason;
    } cases[] = {
        {"9/m capacity=10 count-refused", 16,
         "count-refused does not go with capacity= above the limit"},
        {"9/m count-refused capacity=10", 18,
         "count-refused does not go with capacity= above the limit"},
        {"9/m reserve=5 count-refused", 14, "count-refused does not go with reserve="},
        {"9/m smooth capacity=10", 11, "smooth does not go with capacity= above the limit"},
        {"9/m smooth capacity=8", 11, "capacity= below the limit does not go with smooth"},
        {"9/m reserve=1 smooth", 14, "smooth does not go with reserve="},
        {"9/m smooth stripes=2", 11, "smooth does not go with stripes="},
        {"9/m smooth count-refused", 11, "smooth does not go with count-refused"},
        {"9/m stripes=4 capacity=10", 14, "stripes= does not go with capacity= above the limit"},
        {"9/m stripes=4 reserve=1", 14, "stripes= does not go with reserve="},
        {"9/m stripes=4 start=per-key", 14, "start=per-key does not go with stripes="},
        {"9/m start=first stripes=4", 16, "start=first does not go with stripes="},
        {"9/m capacity=10 start=first", 16,
         "start=first does not go with capacity= above the limit"},
        {"9/m reserve=5 start=first", 14, "start=first does not go with reserve="},
        {"9/m  smooth  start=first", 13, "start=first does not go with smooth"},
        {"9/m in-flight smooth", 14, "in-flight does not go with smooth"},
        {"9/m in-flight count-refused", 14, "in-flight does not go with count-refused"},
        {"9/m in-flight capacity=8", 14, "in-flight does not go with capacity= below the limit"},
        {"9/m in-flight capacity=20", 14, "in-flight does not go with capacity= above the limit"},
        {"9/m reserve=5 in-flight", 14, "in-flight does not go with reserve="},
        {"9/m in-flight stripes=2", 14, "in-flight does not go with stripes="},
        {"9/m in-flight start=2024-01-01T00:00:05Z", 14, "in-flight does not go with start="},
        {"9/m in-flight start=per-key", 14, "in-flight does not go with start=per-key"},
        {"9/m in-flight start=first", 14, "in-flight does not go with start=first"},
        {"9/m stripes=4 count-refused", 14, "count-refused does not go with stripes="},
        {"9/m ban=1h stripes=4", 11, "ban= does not go with stripes="},
        {"9/m in-flight overrides", 14, "overrides does not go with in-flight"},
        {"9/m near=5% stripes=4 ban=1h overrides", 22, "ban= does not go with stripes="},
        {"9/month smooth", 8, "a month or a year does not go with smooth"},
        {"9 per year start=per-key", 11, "a month or a year does not go with start=per-key"},
        {"9/month capacity=10", 8, "a month or a year does not go with capacity= above the limit"},
        {"9/month start=2024-01-29", 8, "start= must be on one of the days 1 to 28"},
        {"9/month start=2024-01-01T00:00:00+14:01", 8, "the offset of start= must be -720 to 840"},
        {"9/m stripes=3", 4, "stripes= must be a power of two, at most 64"},
        {"9/m stripes=16", 4, "stripes= must be at most the limit and the capacity"},
        {"9/m stripes=4 capacity=3", 4, "stripes= must be at most the limit and the capacity"},
        {"9/m capacity=268435456 reserve=1", 23, "capacity= and reserve= must be at most 2^28"},
        {"9/m reserve=57 capacity=268435400", 15, "capacity= and reserve= must be at most 2^28"},
        {"268435400/m reserve=57", 12, "the limit and reserve= must be at most 2^28"},
        {" 16384/minute smooth", 1, "the limit of a smooth policy must be at most 16,383"},
        {"16384/minute in-flight", 0, "the limit of an in-flight policy must be at most 16,383"},
        {"9/m after=3", 4, "after= needs ban=, the time"},
        {"9/2s ban=1s after=3", 12, "ban= must be longer than the windows"},
        {"9/2s after=3 ban=1s", 13, "ban= must be longer than the windows"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_wrong(cases[i].text, cases[i].place);
        if (strncmp(stint_reason(), cases[i].reason, strlen(cases[i].reason)) != 0)
            fail_msg("\"%s\": %s", cases[i].text, stint_reason());
        assert_null(strstr(stint_reason(), "policy."));
        assert_null(strstr(stint_reason(), "STINT_"));
    }
}

TEST(test_options_of_features_wrong) {
    static const struct {
        const char *options;
        ptrdiff_t place; /* after "100/minute " */
    } cases[] = {
        {"capacity", 0},
        {"capacity=", 9},
        {"capacity=x", 9},
        {"capacity=-5", 9},
        {"capacity=0", 9},
        {"capacity=268435457", 9},
        {"capacity=269M", 9},
        {"capacity=18446744073709551617", 9},
        {"capacity=5x", 10},
        {"capacity=1.5", 10},
        {"capacity=5%", 10},
        {"capacity= 5", 9},
        {"capacity=5 capacity=5", 11},
        {"reserve", 0},
        {"reserve=", 8},
        {"reserve=0", 8},
        {"reserve=268435457", 8},
        {"reserve=5,", 9},
        {"reserve=1 shadow reserve=2", 17},
        {"stripes", 0},
        {"stripes=", 8},
        {"stripes=0", 8},
        {"stripes=65", 8},
        {"stripes=128", 8},
        {"stripes=4294967298", 8},
        {"stripes=2 stripes=2", 10},
        {"start=per-ke", 6},
        {"start=firs", 6},
        {"start=firstly", 11},
        {"start=first start=per-key", 12},
        {"start=perkey", 6},
        {"start=per-keys", 13},
        {"start=per-key start=2024-01-01", 14},
        {"start=2024-01-01 start=per-key", 17},
        {"start=per-key start=per-key", 14},
        {"smoot", 0},
        {"smooth=1", 6},
        {"smoothly", 6},
        {"smooth smooth", 7},
        {"in-flight=1", 9},
        {"in-flights", 9},
        {"in-fligh", 0},
        {"in-flight in-flight", 10},
        {"near", 0},
        {"near=", 5},
        {"near=80", 7},
        {"near=%", 5},
        {"near=0%", 5},
        {"near=101%", 5},
        {"near=80 %", 7},
        {"near=80%%", 8},
        {"near=8.5%", 6},
        {"near=-1%", 5},
        {"near=4294967376%", 5},
        {"near=1K%", 6},
        {"near=80% near=80%", 9},
        {"jitter", 0},
        {"jitter=", 7},
        {"jitter=10", 9},
        {"jitter=0%", 7},
        {"jitter=101%", 7},
        {"jitter=10%x", 10},
        {"jitter=5% jitter=5%", 10},
    };
    char text[200];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(text, sizeof text, "100/minute %s", cases[i].options);
        assert_wrong(text, 11 + cases[i].place);
        snprintf(text, sizeof text, "100/minute shadow %s", cases[i].options);
        if (!strstr(cases[i].options, "shadow"))
            assert_wrong(text, 18 + cases[i].place);
    }

    check_contradictions();
    snprintf(text, sizeof text, "16384/minute smooth");
    struct stint_policy policy = STINT_POLICY_INIT;
    assert_int_equal(stint_policy_parse(text, &policy, NULL), -EINVAL);
    assert_int_equal(stint_policy_parse("16383/minute smooth", &policy, NULL), 0);
    assert_int_equal(stint_policy_parse("16384/minute in-flight", &policy, NULL), -EINVAL);
    assert_int_equal(stint_policy_parse("16383/minute in-flight", &policy, NULL), 0);
    assert_int_equal(stint_policy_parse("63/minute stripes=64", &policy, NULL), -EINVAL);
    assert_int_equal(stint_policy_parse("64/minute stripes=64", &policy, NULL), 0);
}

TEST(test_names) {
    assert_parses("1/s name=a", "a", 1, SECOND, 0, 0);
    assert_parses("1/s name=a-b_c.d/e:f", "a-b_c.d/e:f", 1, SECOND, 0, 0);
    assert_parses("1/s name=\"a b\"", "a b", 1, SECOND, 0, 0);
    assert_parses("1/s name=\" \" shadow", " ", 1, SECOND, 0, STINT_SHADOW);
    assert_parses("1/s name=\"shadow start=x\"", "shadow start=x", 1, SECOND, 0, 0);
    assert_parses("1/s name=\"say \\\"hi\\\"\"", "say \"hi\"", 1, SECOND, 0, 0);
    assert_parses("1/s name=\"\\\\\"", "\\", 1, SECOND, 0, 0);
    char name[STINT_NAME_SIZE], text[200];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    snprintf(text, sizeof text, "1/s name=%s", name);
    assert_parses(text, name, 1, SECOND, 0, 0);
    snprintf(text, sizeof text, "1/s name=\"%s\"", name);
    assert_parses(text, name, 1, SECOND, 0, 0);
    snprintf(text, sizeof text, "1/s name=%sn", name);
    assert_wrong(text, 9 + 63);
    snprintf(text, sizeof text, "1/s name=\"%sn\"", name);
    assert_wrong(text, 10 + 63);

    assert_wrong("1/s name=", 9);
    assert_wrong("1/s name= shadow", 9);
    assert_wrong("1/s name=\"\"", 9);
    assert_wrong("1/s name=\"", 10);
    assert_wrong("1/s name=\"ab", 12);
    assert_wrong("1/s name=\"a\\", 11);
    assert_wrong("1/s name=\"a\\b\"", 11);
    assert_wrong("1/s name=\"a\"b", 12);
    assert_wrong("1/s name=a\"b", 10);
    assert_wrong("1/s name=a\x01", 10);
    assert_wrong("1/s name=a\x7f", 10);
    assert_wrong("1/s name=a\xc3\xa9", 10);
    assert_wrong("1/s name=\"a\tb\"", 11);
    assert_wrong("1/s name=\"a\n\"", 11);
    assert_wrong("1/s name=\"a\xff\"", 11);
}

TEST(test_starts) {
    const int64_t s = 1000000000, day = 86400 * s;
    assert_start("1970-01-01T00:00:00Z", 0);
    assert_start("1970-01-01", 0);
    assert_start("1970-01-02", day);
    assert_start("1969-12-31", -day);
    assert_start("1969-12-31T23:59:59.99Z", -10000000);
    assert_start("2024-01-01", 1704067200 * s);
    assert_start("2024-01-01T05:00:00Z", 1704085200 * s);
    assert_start("2024-01-01t05:00:00z", 1704085200 * s);

    /* Leap years: those of 4, not of 100, but of 400. */
    assert_start("2024-02-29", 1709164800 * s);
    assert_start("2024-03-01", 1709251200 * s);
    assert_start("2023-03-01", 1677628800 * s);
    assert_start("2000-02-29", 951782400 * s);
    assert_start("2000-12-31", 978220800 * s);
    assert_start("1972-02-29", 68169600 * s);
    assert_start("1900-03-01", -2203891200 * s);
    assert_start("2100-03-01", 4107542400 * s);
    assert_start("1900-02-28", -2203977600 * s);

    /* Offsets are of the local time ahead of UTC. */
    assert_start("2024-01-01T05:00:00+00:00", 1704085200 * s);
    assert_start("2024-01-01T05:00:00-00:00", 1704085200 * s);
    assert_start("2024-01-01T05:00:00+01:30", 1704079800 * s);
    assert_start("2024-01-01T05:00:00-01:30", 1704090600 * s);
    assert_start("2024-01-01T00:00:00+23:59", 1703980860 * s);
    assert_start("2023-12-31T23:59:59-23:59", 1704153539 * s);
    assert_start("1970-01-01T00:00:00+00:01", -60 * s);

    /* Fractions of whole ticks, however long they are written. */
    assert_start("2024-01-01T05:00:00.5Z", 1704085200 * s + 500000000);
    assert_start("2024-01-01T05:00:00.05Z", 1704085200 * s + 50000000);
    assert_start("2024-01-01T05:00:00.25+01:30", 1704079800 * s + 250000000);
    assert_start("2024-01-01T05:00:00.01Z", 1704085200 * s + 10000000);
    assert_start("2024-01-01T05:00:00.99Z", 1704085200 * s + 990000000);
    assert_start("2024-01-01T05:00:00.0Z", 1704085200 * s);
    assert_start("2024-01-01T05:00:00.010000000Z", 1704085200 * s + 10000000);
    assert_start("2024-01-01T05:00:00.0100000000000Z", 1704085200 * s + 10000000);

    /* The first and the last that int64_t nanoseconds can say. */
    assert_start("1677-09-21T00:12:43.15Z", -INT64_C(9223372036850000000));
    assert_start("2262-04-11T23:47:16.85Z", INT64_C(9223372036850000000));
    assert_start("2262-04-11T23:48:16.85+00:01", INT64_C(9223372036850000000));

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
    assert_wrong("", 0);
    assert_wrong("x", 0);
    assert_wrong("/minute", 0);
    assert_wrong("per minute", 0);
    assert_wrong("-1/s", 0);
    assert_wrong("+1/s", 0);
    assert_wrong("100", 3);
    assert_wrong("100K", 4);
    assert_wrong("100 ", 4);
    assert_wrong("100x/s", 3);
    assert_wrong("100G/s", 3);
    assert_wrong("100r", 3);
    assert_wrong("1.5/s", 1);
    assert_wrong("100 minute", 4);
    assert_wrong("100 pe minute", 4);
    assert_wrong("100 perminute", 4);
    assert_wrong("100//s", 4);
    assert_wrong("100/", 4);
    assert_wrong("100 per", 4);
    assert_wrong("100 per ", 8);
    assert_wrong("100/15", 6);
    assert_wrong("100/15 ", 7);
    assert_wrong("100/fortnight", 4);
    assert_wrong("100/minu", 4);
    assert_wrong("100/minutely", 4);
    assert_wrong("100/15 fortnights", 7);
    assert_wrong("100/1.5m", 5);
    assert_wrong("100/-1m", 4);
    assert_wrong("100/M1", 5);
    assert_wrong("100/minute,shadow", 10);
    assert_wrong("100/minute;", 10);
    assert_wrong("100/minute\n", 10);
    assert_wrong("100/minute foo", 11);
    assert_wrong("100/minute shado", 11);
    assert_wrong("100/minute shadows", 17);
    assert_wrong("100/minute shadow=1", 17);
    assert_wrong("100/minute count-refuse", 11);
    assert_wrong("100/minute count_refused", 11);
    assert_wrong("100/minute name", 11);
    assert_wrong("100/minute name = x", 11);
    assert_wrong("100/minute =x", 11);

    /* Each option at most once. */
    assert_wrong("100/minute shadow shadow", 18);
    assert_wrong("100/minute count-refused shadow count-refused", 32);
    assert_wrong("100/minute name=a name=a", 18);
    assert_wrong("100/minute name=a name=b", 18);
    assert_wrong("1/s start=2024-01-01 start=2024-01-01", 21);

    assert_wrong("1/s start=", 10);
    assert_wrong("1/s start=now", 10);
    assert_wrong("1/s start=\"2024-01-01\"", 10);
    assert_wrong("1/s start=24-01-01", 12);
    assert_wrong("1/s start=2024", 14);
    assert_wrong("1/s start=2024/01/01", 14);
    assert_wrong("1/s start=20240101", 14);
    assert_wrong("1/s start=2024-1-01", 16);
    assert_wrong("1/s start=2024-00-01", 15);
    assert_wrong("1/s start=2024-13-01", 15);
    assert_wrong("1/s start=2024-01", 17);
    assert_wrong("1/s start=2024-01-00", 18);
    assert_wrong("1/s start=2024-01-32", 18);
    assert_wrong("1/s start=2024-04-31", 18);
    assert_wrong("1/s start=2024-02-30", 18);
    assert_wrong("1/s start=2023-02-29", 18);
    assert_wrong("1/s start=1900-02-29", 18);
    assert_wrong("1/s start=2100-02-29", 18);
    assert_wrong("1/s start=2024-01-01x", 20);
    assert_wrong("1/s start=2024-01-01T", 21);
    assert_wrong("1/s start=2024-01-01T5:00:00Z", 22);
    assert_wrong("1/s start=2024-01-01T24:00:00Z", 21);
    assert_wrong("1/s start=2024-01-01T05:60:00Z", 24);
    assert_wrong("1/s start=2024-01-01T05:00:60Z", 27);
    assert_wrong("1/s start=2024-01-01T05:00Z", 26);
    assert_wrong("1/s start=2024-01-01T05:00:61Z", 27);
    assert_wrong("1/s start=2024-01-01T05:00:00", 29);
    assert_wrong("1/s start=2024-01-01T05:00:00 shadow", 29);
    assert_wrong("1/s start=2024-01-01T05:00:00.Z", 30);
    assert_wrong("1/s start=2024-01-01T05:00:00.5", 31);
    assert_wrong("1/s start=2024-01-01T05:00:00,5Z", 29);
    assert_wrong("1/s start=2024-01-01T05:00:00Zx", 30);
    assert_wrong("1/s start=2024-01-01T05:00:00+24:00", 30);
    assert_wrong("1/s start=2024-01-01T05:00:00+01:60", 33);
    assert_wrong("1/s start=2024-01-01T05:00:00+0100", 32);
    assert_wrong("1/s start=2024-01-01T05:00:00+01", 32);
    /* Not whole ticks. */
    assert_wrong("1/s start=2024-01-01T05:00:00.001Z", 10);
    assert_wrong("1/s start=2024-01-01T05:00:00.015Z", 10);
    assert_wrong("1/s start=2024-01-01T05:00:00.010000001Z", 10);
    assert_wrong("1/s start=2024-01-01T05:00:00.0100000000001Z", 10);
    /* Before and after what int64_t nanoseconds can say. */
    assert_wrong("1/s start=0000-01-01", 10);
    assert_wrong("1/s start=1677-09-21T00:12:43.14Z", 10);
    assert_wrong("1/s start=2262-04-11T23:47:16.86Z", 10);
    assert_wrong("1/s start=2262-04-11T23:47:16.85-00:01", 10);
    assert_wrong("1/s start=2262-12-31", 10);
    assert_wrong("1/s start=1677-01-01", 10);
    assert_wrong("1/s start=2263-01-01", 10);
    assert_wrong("1/s start=9999-12-31", 10);
}

TEST(test_arguments) {
    struct stint_policy policy = STINT_POLICY_INIT;
    const char *wrong = NULL;
    assert_int_equal(stint_policy_parse(NULL, &policy, &wrong), -EINVAL);
    assert_int_equal(stint_policy_parse("1/s", NULL, &wrong), -EINVAL);
    policy.size = offsetof(struct stint_policy, offset) - 1;
    assert_int_equal(stint_policy_parse("1/s", &policy, &wrong), -EINVAL);
    assert_reason("size");
    policy.size = 0;
    assert_int_equal(stint_policy_parse("1/s", &policy, NULL), -EINVAL);
    policy.size = sizeof policy;
    assert_int_equal(stint_policy_parse("1/s", &policy, NULL), 0);

    char buffer[10];
    assert_int_equal(stint_policy_format(NULL, buffer, sizeof buffer), -EINVAL);
    assert_int_equal(stint_policy_format(&policy, NULL, 10), -EINVAL);
}

/* Months and years of the calendar. */
TEST(test_calendar) {
    const int64_t day = (int64_t)DAY, hour = (int64_t)HOUR, minute = (int64_t)MINUTE;
    const int64_t year_2024 = 19723 * day, march = (31 + 29) * day;
    const struct {
        const char *text, *written; /* NULL: the same */
        uint32_t calendar;
        int32_t offset;
        int64_t start;
    } cases[] = {
        {"5/month", NULL, STINT_CALENDAR_MONTH, 0, 0},
        {"5/year", NULL, STINT_CALENDAR_YEAR, 0, 0},
        {"5 per Month", "5/month", STINT_CALENDAR_MONTH, 0, 0},
        {"5r/ YEAR", "5/year", STINT_CALENDAR_YEAR, 0, 0},
        {"5/month start=2024-03-15", "5/month start=2024-03-15T00:00:00Z", STINT_CALENDAR_MONTH, 0,
         year_2024 + march + 14 * day},
        {"5/month start=2024-03-15T09:30:00.25Z", NULL, STINT_CALENDAR_MONTH, 0,
         year_2024 + march + 14 * day + 9 * hour + 30 * minute + (int64_t)(250 * MS)},
        {"5/month start=2024-03-15T09:30:00+14:00", NULL, STINT_CALENDAR_MONTH, 840,
         year_2024 + march + 14 * day + 9 * hour + 30 * minute},
        {"5/year start=2024-01-01T00:00:00-12:00", NULL, STINT_CALENDAR_YEAR, -720, year_2024},
        {"5/year start=1970-01-01T00:00:00+05:45", NULL, STINT_CALENDAR_YEAR, 345, 0},
        {"5/year start=1969-12-28T23:59:59.99-00:30", NULL, STINT_CALENDAR_YEAR, -30,
         -3 * day - (int64_t)(10 * MS)},
        {"5/month start=2024-03-15T09:30:00-00:00", "5/month start=2024-03-15T09:30:00Z",
         STINT_CALENDAR_MONTH, 0, year_2024 + march + 14 * day + 9 * hour + 30 * minute},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct stint_policy got = parse(cases[i].text), expected = make_policy("", 5, 0, 0, 0);
        expected.calendar = cases[i].calendar;
        expected.offset = cases[i].offset;
        expected.start = cases[i].start;
        if (memcmp(&got, &expected, sizeof got) != 0)
            fail_msg("\"%s\": start %" PRId64 ", offset %d", cases[i].text, got.start, got.offset);
        char text[100];
        assert_true(stint_policy_format(&got, text, sizeof text) > 0);
        assert_string_equal(text, cases[i].written != NULL ? cases[i].written : cases[i].text);
    }
    assert_wrong("5/2 months", 4);
    assert_wrong("5/months", 2);
    assert_wrong("5/mon", 2);
    assert_wrong("5/2 month", 2);
    assert_wrong("5/1year", 2);
    assert_wrong("5/yearly", 2);
    assert_wrong("5/month start=2024-02-30", 22);
    static const char *const contradictions[] = {
        "5/month start=2024-01-29",
        "5/year start=2024-02-29",
        "5/month start=2024-01-31T23:00:00-02:00",
        "5/month start=2024-01-01T00:00:00+14:01",
        "5/month start=2024-01-01T00:00:00-12:01",
        "5/month start=per-key",
        "5/month start=first",
        "5/month capacity=6",
        "5/month reserve=6",
        "5/month stripes=2",
        "5/month smooth",
        "5/month in-flight",
    };
    for (size_t i = 0; i < sizeof contradictions / sizeof contradictions[0]; i++) {
        struct stint_policy policy = STINT_POLICY_INIT;
        if (stint_policy_parse(contradictions[i], &policy, NULL) != -EINVAL)
            fail_msg("\"%s\" parses", contradictions[i]);
    }
}

/* Whatever a text is cut to, it parses, or the wrong character is in it or is its end. */
TEST(test_prefixes) {
    static const char *const texts[] = {
        ("268435456 per 15 minutes name=\"a \\\"b\\\\\" start=2024-02-29T05:00:00.25+01:30 shadow "
         "count-refused"),
        "1M/31622400000ms count-refused name=search start=2024-01-01 shadow",
        "10r/s shadow",
        "  100 / 15 Minutes  shadow  ",
        "10K/hour capacity=20K reserve=200 near=80% jitter=10% start=per-key shadow",
        "100/5s shadow stripes=16 near=7%",
        "100/5s shadow smooth jitter=100%",
        "10000 per month shadow start=2024-01-28T05:00:00.25-11:30",
        "7/year start=2024-01-28 shadow near=5%",
        "7/s start=first shadow near=5%",
        "7/s in-flight shadow near=5%",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        assert_int_equal(parse(texts[i]).flags & STINT_SHADOW, STINT_SHADOW);
        for (size_t length = 0; length < strlen(texts[i]); length++) {
            char *copy = exact_copy(texts[i], length);
            struct stint_policy policy = make_policy("untouched", 7, HOUR, 0, 0), before = policy;
            const char *wrong = NULL;
            int error = stint_policy_parse(copy, &policy, &wrong);
            if (error) {
                assert_int_equal(error, -EINVAL);
                assert_true(wrong >= copy && wrong <= copy + length);
                assert_memory_equal(&policy, &before, sizeof policy);
            } else {
                assert_null(wrong);
                assert_true(policy.limit > 0 && (policy.window > 0) == (policy.calendar == 0));
            }
            free(copy);
        }
    }
}

/* ---- Writing ------------------------------------------------------------------------------- */

static struct random draws = {7};

static uint64_t below(uint64_t n) {
    return random_below(&draws, n);
}

static void assert_round_trip(const struct stint_policy *policy) {
    char text[400], cut[400];
    int length = stint_policy_format(policy, text, sizeof text);
    assert_true(length > 0 && length < (int)sizeof text);
    assert_int_equal(length, strlen(text));
    assert_int_equal(stint_policy_format(policy, NULL, 0), length);
    struct stint_policy again = parse(text);
    if (memcmp(&again, policy, sizeof again) != 0)
        fail_msg("\"%s\" is another policy", text);
    char second[400];
    assert_int_equal(stint_policy_format(&again, second, sizeof second), length);
    assert_string_equal(second, text);

    /* Cut as snprintf cuts. */
    size_t size = below((uint64_t)length + 2) + 1;
    memset(cut, '#', sizeof cut);
    assert_int_equal(stint_policy_format(policy, cut, size), length);
    size_t written = size <= (size_t)length ? size - 1 : (size_t)length;
    assert_memory_equal(cut, text, written);
    assert_int_equal(cut[written], '\0');
    for (size_t i = size; i < sizeof cut; i++)
        assert_int_equal(cut[i], '#');
}

TEST(test_round_trip) {
    static const uint64_t units[] = {10 * MS, SECOND, MINUTE, HOUR, DAY, 7 * DAY};
    for (int round = 0; round < 50000; round++) {
        struct stint_policy policy = STINT_POLICY_INIT;
        size_t letters = below(3) ? below(10) : below(STINT_NAME_SIZE);
        for (size_t i = 0; i < letters; i++)
            policy.name[i] = below(5) ? (char)(' ' + below(0x7f - ' ')) : "\"\\ "[below(3)];
        uint64_t unit = units[below(6)];
        policy.limit = (uint32_t)below(below(2) ? 5000 : STINT_LIMIT_MAX) + 1;
        policy.flags = (uint32_t)below(4);
        policy.window = unit * (below(below(2) ? 10 : STINT_WINDOW_MAX / unit) + 1);
        if (policy.window > STINT_WINDOW_MAX)
            policy.window = STINT_WINDOW_MAX;
        if (below(2)) {
            /* all that int64_t can say, or near the epoch */
            int64_t range = below(2) ? INT64_MAX / 10000000 : 1000;
            policy.start = ((int64_t)below(2 * (uint64_t)range + 1) - range) * 10000000;
        }
        policy.near_limit = below(2) ? (uint32_t)below(101) : 0;
        policy.jitter = below(2) ? (uint32_t)below(101) : 0;
        switch (below(4)) {
        case 0:
            policy.flags &= ~(uint32_t)STINT_COUNT_REFUSED;
            policy.capacity = (uint32_t)below(STINT_LIMIT_MAX / 2 + 1);
            policy.max_reserved = (uint32_t)below(below(2) ? 5000 : STINT_LIMIT_MAX / 2);
            if (policy.limit > STINT_LIMIT_MAX / 2)
                policy.limit /= 2;
            break;
        case 1:
            policy.flags &= ~(uint32_t)STINT_COUNT_REFUSED;
            policy.flags |= below(2) ? STINT_SMOOTH : STINT_IN_FLIGHT;
            policy.limit = policy.limit % 16383 + 1;
            if ((policy.flags & STINT_IN_FLIGHT) != 0)
                policy.start = 0;
            break;
        case 2:
            policy.flags &= ~(uint32_t)STINT_COUNT_REFUSED;
            policy.stripes = 2u << below(6);
            policy.limit = policy.limit < 64 ? 64 : policy.limit;
            break;
        }
        bool plain = policy.capacity == 0 && policy.max_reserved == 0 && policy.stripes == 0 &&
                     (policy.flags & (STINT_SMOOTH | STINT_IN_FLIGHT)) == 0;
        if (plain && below(2)) {
            if (below(2)) {
                policy.flags |= STINT_START_FIRST;
                policy.start = 0;
            } else { /* within the days of January 1971 */
                policy.window = 0;
                policy.calendar = 1 + (uint32_t)below(2);
                policy.offset = (int32_t)below(840 + 720 + 1) - 720;
                policy.start =
                    (int64_t)(365 * DAY + below(28 * DAY / STINT_TICK_NS) * STINT_TICK_NS);
            }
        } else if (policy.stripes == 0 && (policy.flags & STINT_IN_FLIGHT) == 0 && below(3) == 0) {
            policy.flags |= STINT_START_PER_KEY;
            policy.start = 0;
        }
        assert_round_trip(&policy);
    }
}

TEST(test_round_trip_of_extremes) {
    static const int64_t starts[] = {0, 10000000, -10000000, INT64_MAX / 10000000 * 10000000,
                                     INT64_MIN / 10000000 * 10000000};
    static const uint64_t windows[] = {STINT_WINDOW_MIN, STINT_WINDOW_MAX,
                                       STINT_WINDOW_MAX - 10 * MS};
    static const uint32_t limits[] = {1, 1000, 1000000, STINT_LIMIT_MAX};
    for (size_t s = 0; s < 5; s++)
        for (size_t w = 0; w < 3; w++)
            for (size_t l = 0; l < 4; l++) {
                struct stint_policy policy = make_policy("n", limits[l], windows[w], starts[s], 3);
                memset(policy.name, '"', sizeof policy.name - 1);
                assert_round_trip(&policy);
            }
}

TEST(test_format) {
    struct stint_policy policy = make_policy("", 100, MINUTE, 0, 0);
    char text[100];
    assert_int_equal(stint_policy_format(&policy, text, sizeof text), 10);
    assert_string_equal(text, "100/minute");
    assert_int_equal(stint_policy_format(&policy, text, 10), 10);
    assert_string_equal(text, "100/minut");
    assert_int_equal(stint_policy_format(&policy, text, 1), 10);
    assert_string_equal(text, "");
    text[0] = '#';
    assert_int_equal(stint_policy_format(&policy, text, 0), 10);
    assert_int_equal(text[0], '#');
    /* Errors write nothing. */
    policy.limit = 0;
    assert_int_equal(stint_policy_format(&policy, text, sizeof text), -EINVAL);
    assert_int_equal(text[0], '#');
}
