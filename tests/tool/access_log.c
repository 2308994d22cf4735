/* SPDX-License-Identifier: MIT
 * Reading access logs: every form of a time, and JSON. (The ends of lines, and fields:
 * fuzz_log_line.c. Whole logs of each form, long lines, gzip, and damage: replay.py.) */
#include "../../src/tool/log_json.h"
#include "../../src/tool/log_line.h"
#include "../../src/tool/log_time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "test.h"

/* ---- Times ---------------------------------------------------------------------------------- */

#define S UINT64_C(1000000000)

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

#define READ(ns, ...)    .time_ns = (ns), .lines = {__VA_ARGS__}
#define WRONG(what, ...) .why = (what), .lines = {__VA_ARGS__}

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
        {READ(1431857103 * S, "h - - [17/May/2015:10:05:03 +0000] \"GET\"",
              "[17/May/2015:10:05:03 +0000]", "[17/May/2015:12:05:03 +0200]",
              "[17/May/2015:06:35:03 -0330]", "[18/May/2015:00:05:03 +1400]",
              "[::1] - - [17/May/2015:10:05:03 +0000] \"GET\"",
              "h - a\\\"b [17/May/2015:10:05:03 +0000]", "h \"a\" [17/May/2015:10:05:03 +0000]",
              "\"[18/May/2015:10:05:03 +0000]\" h [17/May/2015:10:05:03 +0000] \"GET\"",
              "\"a\\\"[18/May/2015:10:05:03 +0000]\" h [17/May/2015:10:05:03 +0000] \"GET\"",
              "h - [18/May/2035:10:05:03 +0000] [17/May/2015:10:05:03 +0000] \"GET\"",
              "h - [18/May/2035:10:05:03 +0000] \\\"GET [17/May/2015:10:05:03 +0000] \"GET\"",
              "h - [32/May/2035:10:05:03 +0000] [17/May/2015:10:05:03 +0000] \"GET\"",
              "h [17/May/2015:10:05:03 +0000] \"GET\" [18/May/2015:10:05:03 +0000]")},
        {READ(0, "[01/Jan/1970:00:00:00 +0000]", "[31/Dec/1969:23:00:00 -0100]")},
        {WRONG("before 1970", "[01/Jan/1970:00:00:00 +0001]", "[31/Dec/1969:23:59:59 +0000]",
               "[17/May/2015:10:05:03 +0000] [31/Dec/1969:23:59:59 +0000]",
               "[01/Jan/0000:00:00:00 +0000]")},
        {READ(1456704000 * S, "[29/Feb/2016:00:00:00 +0000]")},
        {READ(1456790400 * S, "[01/Mar/2016:00:00:00 +0000]")},
        {READ(951825600 * S, "[29/Feb/2000:12:00:00 +0000]")},
        {WRONG("no such day", "[29/Feb/2015:00:00:00 +0000]", "[29/Feb/2100:00:00:00 +0000]",
               "[31/Apr/2015:00:00:00 +0000]", "[00/May/2015:00:00:00 +0000]")},
        {READ(1483228800 * S, "[31/Dec/2016:23:59:60 +0000]")},
        {WRONG("time of day", "[17/May/2015:24:00:00 +0000]", "[17/May/2015:10:60:00 +0000]",
               "[17/May/2015:10:05:61 +0000]")},
        {WRONG("time zone", "[17/May/2015:10:05:03 +2400]", "[17/May/2015:10:05:03 +0060]")},
        {READ(7258118399 * S, "[31/Dec/2199:23:59:59 +0000]")},
        {WRONG("after the year 2199", "[01/Jan/2200:00:00:00 +0000]",
               "[31/Dec/9999:23:59:59 +0000]")},
        {WRONG("no time in brackets", "h - \"a [17/May/2015:10:05:03 +0000]",
               "h - - - \"GET /[17/May/2015:10:05:03 +0000]\"", "", "\\")},
        {WRONG("hold no time", "h - - [x] \"GET /[17/May/2015:10:05:03 +0000]\"", "[",
               "[17/May/2015:10:05:03 +0000", "[17/May/2015:10:05:03 +0000)",
               "[17/may/2015:10:05:03 +0000]", "[17/Mai/2015:10:05:03 +0000]",
               "[17-May-2015:10:05:03 +0000]", "[17/May/2015 10:05:03 +0000]",
               "[17/May/2015:10.05:03 +0000]", "[17/May/2015:10:05.03 +0000]",
               "[17/May/2015:10:05:03T+0000]", "[17/May/2015:10:05:03 *0000]",
               "[17/May/2015:10:05:03 +00:0]", "[1x/May/2015:10:05:03 +0000]",
               "[17/May/20 5:10:05:03 +0000]", "[17/May/2015:-1:05:03 +0000]",
               "[17/May/2015:10:05:03]     ]")},
    };
    check_times(time_clf, cases, sizeof(cases) / sizeof(cases[0]));
}

/* Every day of the range once, by the C library. */
TEST(clf_days) {
    for (time_t day = 0; day < (time_t)LOG_SECONDS_MAX; day += 86400) {
        char line[64];
        struct tm tm;
        uint64_t time_ns;
        assert_non_null(gmtime_r(&day, &tm));
        assert_true(strftime(line, sizeof(line), "[%d/%b/%Y:00:00:00 +0000]", &tm) > 0);
        assert_null(time_clf((struct text){line, strlen(line)}, &time_ns));
        assert_int_equal(time_ns, (uint64_t)day * S);
    }
}

TEST(epoch_times) {
    static const struct time_case cases[] = {
        {READ(1431857103 * S, "1431857103 h")},
        {READ(1431857103 * S + 500000000, "1431857103.5 h")},
        {READ(1431857103 * S + 42000000, "  1431857103.042\th")},
        {READ(1431857103 * S + 123456789, "1431857103.123456789", "1431857103.1234567899")},
        {READ(0, "0")},
        {READ(1, "0.000000001")},
        {READ(1 * S, "000000000000000000001.0")},
        {READ(7258118399 * S + 999999999, "7258118399.999999999")},
        {WRONG("after the year 2199", "7258118400", "1431857103123",
               "99999999999999999999999999999999")},
        {WRONG("before 1970", "-1", "-1431857103.5 h")},
        {WRONG("empty", "", " \t")},
        {WRONG("no time", "-", "+1", ".5", "5.", "1.2.3", "1,5", "1e9", "0x10", "h 1431857103",
               "-x")},
    };
    check_times(time_epoch, cases, sizeof(cases) / sizeof(cases[0]));
}

TEST(haproxy_times) {
    static const struct time_case cases[] = {
        {READ(1431857103 * S + 42000000,
              "May 17 10:05:03 lb haproxy[1]: 192.0.2.1:80 [17/May/2015:10:05:03.042] fe",
              "::1:80 [17/May/2015:10:05:03.042]")},
        {WRONG("no such day", "a [31/Apr/2015:10:05:03.042]")},
        {WRONG("no time like", "", "[", "a [17/May/2015:10:05:03 +0000]",
               "a [17/May/2015:10:05:03.04]", "a [17/May/2015:10:05:03.0422]",
               "a [17/May/2015:10:05:03.04x]", "a [17/May/2015:10:05:03.042",
               "a [17/May/2015:10:05:03,042]")},
    };
    check_times(time_haproxy, cases, sizeof(cases) / sizeof(cases[0]));
}

TEST(times_of_json) {
    static const struct time_case cases[] = {
        {READ(1431857103 * S, "1431857103", "1431857103000", "1431857103000000",
              "1431857103000000000", "17/May/2015:10:05:03 +0000", "2015-05-17T10:05:03Z",
              "2015-05-17 10:05:03Z", "2015-05-17T12:05:03+02:00", "2015-05-17T06:35:03-0330",
              "2015-05-17T10:05:03.000Z")},
        {READ(1431857103 * S + 42000000, "1431857103.042", "1431857103042", "1431857103042.0",
              "1431857103042000", "1431857103042000000.7", "2015-05-17T10:05:03.042Z",
              "2015-05-17T10:05:03.042+0000")},
        {READ(1431857103 * S + 42000500, "1431857103042.0005", "2015-05-17T10:05:03.0420005Z")},
        {WRONG("no such day", "2015-04-31T10:05:03Z")},
        {WRONG("before 1970", "1969-12-31T23:59:59Z")},
        {WRONG("with its zone", "", "-", "1e9", "x", "-1", "99999999999999999999999999",
               "2015-05-17T10:05:03", "2015-05-17T10:05:03.Z", "2015-05-17T10:05:03.042",
               "2015-05-17T10:05:03z", "2015-05-17T10:05:03+2", "2015-05-17T10:05:03+00.00",
               "2015-05-17x10:05:03Z", "2015-05-17", "17/May/2015:10:05:03",
               "[17/May/2015:10:05:03 +0000]")},
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
        told[at] = '-';
        at += parts[i].found ? json_part_copy(&parts[i], told + at) : 1;
        told[at++] = i + 1 < JSON_NAMES ? ' ' : '\0';
    }
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
    };
    static const char *const wrong[] = {
        "",          "[]",    "\"a\"",       "{\"a\":1",     "{\"a\":1}x",        "{\"a\":}",
        "{\"a\" 1}", "{a:1}", "{\"a\":\"x}", "{\"a\":\"x\\", "{\"a\":1 \"b\":2}", "{\"a\":[1 2]}",
        "{\"a\":[1}"};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_string_equal(json_told(cases[i][0]), cases[i][1]);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_string_equal(json_told(wrong[i]), "wrong");
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
