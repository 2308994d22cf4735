/* SPDX-License-Identifier: MIT
 * Reading access logs: every form of a time, and JSON. (The ends of lines, and fields:
 * fuzz_log_line.c. Whole logs of each form, long lines, gzip, and damage: replay.py.) */
#include "../../src/tool/log_json.h"
#include "../../src/tool/log_line.h"
#include "../../src/tool/log_time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

/* ---- Times ---------------------------------------------------------------------------------- */

#define S UINT64_C(1000000000)

static struct text text_of(const char *string) {
    return (struct text){string, strlen(string)};
}

static const char *time_clf(struct text line, uint64_t *time_ns) {
    struct text brackets;
    return log_time_clf(line, &brackets, time_ns);
}

static const char *time_haproxy(struct text line, uint64_t *time_ns) {
    struct text brackets;
    return log_time_haproxy(line, &brackets, time_ns);
}

/* The first field, as `--time epoch` takes it. */
static const char *time_epoch(struct text line, uint64_t *time_ns) {
    static const struct log_form form = {.kind = LOG_EPOCH};
    return log_line_read(&form, line, NULL, 0, time_ns, NULL);
}

/* Lines that have one time, or none for one reason. */
struct time_case {
    const char *why; /* NULL: the time is read */
    uint64_t time_ns;
    const char *lines[18]; /* NULL behind the last */
};

static void check_time(const char *(*read)(struct text, uint64_t *), const char *line,
                       const struct time_case *expected) {
    /* In a block of its own size, so that a sanitizer sees a read beyond the end. */
    size_t length = strlen(line);
    char *bytes = malloc(length + (length == 0));
    uint64_t time_ns = 12345;
    assert_non_null(bytes);
    memcpy(bytes, line, length);
    const char *why = read((struct text){bytes, length}, &time_ns);
    free(bytes);
    if ((why == NULL) != (expected->why == NULL) ||
        (why != NULL && strstr(why, expected->why) == NULL))
        fail_msg("%s: %s", line, why == NULL ? "was read" : why);
    /* It is written only on success. */
    if (time_ns != (why == NULL ? expected->time_ns : 12345))
        fail_msg("%s: %llu", line, (unsigned long long)time_ns);
}

static void check_times(const char *(*read)(struct text, uint64_t *), const struct time_case *cases,
                        size_t count) {
    for (size_t i = 0; i < count; i++)
        for (size_t n = 0; cases[i].lines[n] != NULL; n++)
            check_time(read, cases[i].lines[n], &cases[i]);
}

TEST(clf_times) {
    /* Brackets before the time are passed over, those that a client wrote do not count. 23:59:60 is
     * a leap second. */
    static const struct time_case cases[] = {
        {NULL,
         1431857103 * S,
         {"h - - [17/May/2015:10:05:03 +0000] \"GET\"", "[17/May/2015:10:05:03 +0000]",
          "[17/May/2015:12:05:03 +0200]", "[17/May/2015:06:35:03 -0330]",
          "[18/May/2015:00:05:03 +1400]", "[::1] - - [17/May/2015:10:05:03 +0000] \"GET\"",
          "h - a\\\"b [17/May/2015:10:05:03 +0000]", "h \"a\" [17/May/2015:10:05:03 +0000]",
          "\"[18/May/2015:10:05:03 +0000]\" h [17/May/2015:10:05:03 +0000] \"GET\"",
          "\"a\\\"[18/May/2015:10:05:03 +0000]\" h [17/May/2015:10:05:03 +0000] \"GET\"",
          "h - [18/May/2035:10:05:03 +0000] [17/May/2015:10:05:03 +0000] \"GET\"",
          "h - [18/May/2035:10:05:03 +0000] \\\"GET [17/May/2015:10:05:03 +0000] \"GET\"",
          "h - [32/May/2035:10:05:03 +0000] [17/May/2015:10:05:03 +0000] \"GET\"",
          "h [17/May/2015:10:05:03 +0000] \"GET\" [18/May/2015:10:05:03 +0000]"}},
        {NULL, 0, {"[01/Jan/1970:00:00:00 +0000]", "[31/Dec/1969:23:00:00 -0100]"}},
        {"before 1970",
         0,
         {"[01/Jan/1970:00:00:00 +0001]", "[31/Dec/1969:23:59:59 +0000]",
          "[17/May/2015:10:05:03 +0000] [31/Dec/1969:23:59:59 +0000]",
          "[01/Jan/0000:00:00:00 +0000]"}},
        {NULL, 1456704000 * S, {"[29/Feb/2016:00:00:00 +0000]"}},
        {NULL, 1456790400 * S, {"[01/Mar/2016:00:00:00 +0000]"}},
        {NULL, 951825600 * S, {"[29/Feb/2000:12:00:00 +0000]"}},
        {"no such day",
         0,
         {"[29/Feb/2015:00:00:00 +0000]", "[29/Feb/2100:00:00:00 +0000]",
          "[31/Apr/2015:00:00:00 +0000]", "[00/May/2015:00:00:00 +0000]"}},
        {NULL, 1483228800 * S, {"[31/Dec/2016:23:59:60 +0000]"}},
        {"time of day",
         0,
         {"[17/May/2015:24:00:00 +0000]", "[17/May/2015:10:60:00 +0000]",
          "[17/May/2015:10:05:61 +0000]"}},
        {"time zone", 0, {"[17/May/2015:10:05:03 +2400]", "[17/May/2015:10:05:03 +0060]"}},
        {NULL, 7258118399 * S, {"[31/Dec/2199:23:59:59 +0000]"}},
        {"after the year 2199",
         0,
         {"[01/Jan/2200:00:00:00 +0000]", "[31/Dec/9999:23:59:59 +0000]"}},
        {"no time in brackets",
         0,
         {"h - \"a [17/May/2015:10:05:03 +0000]", "h - - - \"GET /[17/May/2015:10:05:03 +0000]\"",
          "", "\\"}},
        {"hold no time",
         0,
         {"h - - [x] \"GET /[17/May/2015:10:05:03 +0000]\"", "[", "[17/May/2015:10:05:03 +0000",
          "[17/May/2015:10:05:03 +0000)", "[17/may/2015:10:05:03 +0000]",
          "[17/Mai/2015:10:05:03 +0000]", "[17-May-2015:10:05:03 +0000]",
          "[17/May/2015 10:05:03 +0000]", "[17/May/2015:10.05:03 +0000]",
          "[17/May/2015:10:05.03 +0000]", "[17/May/2015:10:05:03T+0000]",
          "[17/May/2015:10:05:03 *0000]", "[17/May/2015:10:05:03 +00:0]",
          "[1x/May/2015:10:05:03 +0000]", "[17/May/20 5:10:05:03 +0000]",
          "[17/May/2015:-1:05:03 +0000]", "[17/May/2015:10:05:03]     ]"}},
    };
    check_times(time_clf, cases, sizeof(cases) / sizeof(cases[0]));
}

/* Every day of the range once: the naive twin counts days, months and leap years. */
TEST(clf_days) {
    static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    static const int lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    uint64_t days = 0;
    for (int year = 1970; year < 2200; year++) {
        bool leap = (year % 4 == 0 && year % 100 != 0) || year == 2000;
        for (int month = 0; month < 12; month++)
            for (int day = 1; day <= lengths[month] + (month == 1 && leap); day++) {
                char line[64];
                uint64_t time_ns;
                snprintf(line, sizeof(line), "[%02d/%s/%d:00:00:00 +0000]", day, months[month],
                         year);
                assert_null(time_clf(text_of(line), &time_ns));
                assert_int_equal(time_ns, days++ * 86400 * S);
            }
    }
    assert_int_equal(days * 86400, LOG_SECONDS_MAX);
}

TEST(epoch_times) {
    static const struct time_case cases[] = {
        {NULL, 1431857103 * S, {"1431857103 h"}},
        {NULL, 1431857103 * S + 500000000, {"1431857103.5 h"}},
        {NULL, 1431857103 * S + 42000000, {"  1431857103.042\th"}},
        {NULL, 1431857103 * S + 123456789, {"1431857103.123456789", "1431857103.1234567899"}},
        {NULL, 0, {"0"}},
        {NULL, 1, {"0.000000001"}},
        {NULL, 1 * S, {"000000000000000000001.0"}},
        {NULL, 7258118399 * S + 999999999, {"7258118399.999999999"}},
        {"after the year 2199",
         0,
         {"7258118400", "1431857103123", "99999999999999999999999999999999"}},
        {"before 1970", 0, {"-1", "-1431857103.5 h"}},
        {"empty", 0, {"", " \t"}},
        {"no time",
         0,
         {"-", "+1", ".5", "5.", "1.2.3", "1,5", "1e9", "0x10", "h 1431857103", "-x"}},
    };
    check_times(time_epoch, cases, sizeof(cases) / sizeof(cases[0]));
}

TEST(haproxy_times) {
    static const struct time_case cases[] = {
        {NULL,
         1431857103 * S + 42000000,
         {"May 17 10:05:03 lb haproxy[1]: 192.0.2.1:80 [17/May/2015:10:05:03.042] fe",
          "::1:80 [17/May/2015:10:05:03.042]"}},
        {"no such day", 0, {"a [31/Apr/2015:10:05:03.042]"}},
        {"no time like",
         0,
         {"", "[", "a [17/May/2015:10:05:03 +0000]", "a [17/May/2015:10:05:03.04]",
          "a [17/May/2015:10:05:03.0422]", "a [17/May/2015:10:05:03.04x]",
          "a [17/May/2015:10:05:03.042", "a [17/May/2015:10:05:03,042]"}},
    };
    check_times(time_haproxy, cases, sizeof(cases) / sizeof(cases[0]));
}

TEST(times_of_json) {
    static const struct time_case cases[] = {
        {NULL,
         1431857103 * S,
         {"1431857103", "1431857103000", "1431857103000000", "1431857103000000000",
          "17/May/2015:10:05:03 +0000", "2015-05-17T10:05:03Z", "2015-05-17 10:05:03Z",
          "2015-05-17T12:05:03+02:00", "2015-05-17T06:35:03-0330", "2015-05-17T10:05:03.000Z"}},
        {NULL,
         1431857103 * S + 42000000,
         {"1431857103.042", "1431857103042", "1431857103042.0", "1431857103042000",
          "1431857103042000000.7", "2015-05-17T10:05:03.042Z", "2015-05-17T10:05:03.042+0000"}},
        {NULL, 1431857103 * S + 42000500, {"1431857103042.0005", "2015-05-17T10:05:03.0420005Z"}},
        {"no such day", 0, {"2015-04-31T10:05:03Z"}},
        {"before 1970", 0, {"1969-12-31T23:59:59Z"}},
        {"with its zone",
         0,
         {"", "-", "1e9", "x", "-1", "99999999999999999999999999", "2015-05-17T10:05:03",
          "2015-05-17T10:05:03.Z", "2015-05-17T10:05:03.042", "2015-05-17T10:05:03z",
          "2015-05-17T10:05:03+2", "2015-05-17T10:05:03+00.00", "2015-05-17x10:05:03Z",
          "2015-05-17", "17/May/2015:10:05:03", "[17/May/2015:10:05:03 +0000]"}},
    };
    check_times(log_time_value, cases, sizeof(cases) / sizeof(cases[0]));
}

TEST(a_nul_in_a_time_is_no_end) {
    uint64_t time_ns;
    assert_non_null(time_epoch((struct text){"12\0", 3}, &time_ns));
    struct text line = {"h\0 - - [17/May/2015:10:05:03 +0000]", 35};
    assert_null(time_clf(line, &time_ns));
    assert_int_equal(time_ns, 1431857103 * S);
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static const char *const json_names[] = {"a", "b.c", "d.e.f", ""};
enum { JSON_NAMES = sizeof(json_names) / sizeof(json_names[0]) };

/* Finds the names in a line in memory of just its size. Returns what they are, "-" for none. */
static char *json_told(const char *line) {
    static char told[256];
    struct json_part parts[JSON_NAMES];
    const char *why = NULL;
    size_t length = strlen(line), at = 0;
    char *bytes = malloc(length + (length == 0));
    assert_non_null(bytes);
    memcpy(bytes, line, length);
    if (!json_line_find((struct text){bytes, length}, json_names, parts, JSON_NAMES, &why)) {
        assert_non_null(why);
        free(bytes);
        return strcpy(told, "wrong");
    }
    for (size_t i = 0; i < JSON_NAMES; i++) {
        at += (size_t)sprintf(told + at, i == 0 ? "" : " ");
        if (parts[i].found)
            at += json_part_copy(&parts[i], told + at);
        else
            at += (size_t)sprintf(told + at, "-");
    }
    told[at] = '\0';
    free(bytes);
    return told;
}

TEST(json_fields) {
    static const char *const cases[][2] = {
        {"{}", "- - - -"},
        {" { \"a\" : 1.5 , \"b\" : { \"c\" : \"x\" } } ", "1.5 x - -"},
        {"{\"a\":null,\"b.c\":true,\"d\":{\"x\":[1,{\"y\":{}}],\"e\":{\"f\":false}}}",
         "- true false -"},
        {"{\"a\":[\"first\",\"second\"],\"a\":\"third\"}", "first - - -"},
        {"{\"x\":{\"a\":1},\"b\":{\"cc\":1},\"aa\":1,\"\":7}", "- - - 7"},
        {"{\"a\":\"q\\\"\\\\ \\/ \\x5b \\x5 \\u00e4 \\ud83d\\ude00 \\u12\"}",
         "q\"\\ / [ x5 \xC3\xA4 \xF0\x9F\x98\x80 u12 - - -"},
        {"{\"a\":\"\\n\\t\"}", "\n\t - - -"},
        {"", "wrong"},
        {"[]", "wrong"},
        {"\"a\"", "wrong"},
        {"{\"a\":1", "wrong"},
        {"{\"a\":1}x", "wrong"},
        {"{\"a\":}", "wrong"},
        {"{\"a\" 1}", "wrong"},
        {"{a:1}", "wrong"},
        {"{\"a\":\"x}", "wrong"},
        {"{\"a\":\"x\\", "wrong"},
        {"{\"a\":1 \"b\":2}", "wrong"},
        {"{\"a\":[1 2]}", "wrong"},
        {"{\"a\":[1}", "wrong"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_string_equal(json_told(cases[i][0]), cases[i][1]);
}

/* A line may be 64 MiB of brackets. */
TEST(json_is_not_nested_without_end) {
    enum { DEEP = 1 << 20 };
    char *line = malloc(DEEP + 6);
    assert_non_null(line);
    for (size_t depth = 1; depth <= DEEP; depth = depth * 31) {
        memcpy(line, "{\"a\":", 6);
        memset(line + 6, '[', depth - 1);
        line[5 + depth] = '\0';
        assert_string_equal(json_told(line), "wrong");
    }
    free(line);
    assert_string_equal(json_told("{\"a\":[[[[[[[[[[[[[[[[3]]]]]]]]]]]]]]]]}"), "3 - - -");
}
