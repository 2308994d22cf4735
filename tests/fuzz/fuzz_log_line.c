/* SPDX-License-Identifier: MIT
 * What `stint advise` and `stint replay` read of an access log: the lines of a file, plain or gzip,
 * and the fields and times of a line. The input is the file, and its lines are the lines. */
#include "../../src/tool/log_line.h"
#include "../../src/tool/log_time.h"
#include "fuzz.h"

#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { FIELDS = 20 };

/* ---- Fields --------------------------------------------------------------------------------- */

static bool is_blank(char byte) {
    return byte == ' ' || byte == '\t';
}

/* Byte by byte: a field starts where a blank, or nothing, stands before what is none. */
static void check_fields(struct text line) {
    unsigned number = 0;
    for (size_t i = 0; i < line.length; i++) {
        if (is_blank(line.bytes[i]) || (i > 0 && !is_blank(line.bytes[i - 1])))
            continue;
        struct text field = {0};
        if (++number > FIELDS)
            return;
        assert(text_field(line, number, &field));
        assert(field.bytes == line.bytes + i && field.length > 0);
        for (size_t j = 0; j < field.length; j++)
            assert(!is_blank(field.bytes[j]));
        assert(i + field.length == line.length || is_blank(field.bytes[field.length]));
    }
    struct text none;
    assert(!text_field(line, 0, &none) && !text_field(line, number + 1, &none));
    assert(!text_field(line, UINT32_MAX, &none));
}

/* ---- Times ---------------------------------------------------------------------------------- */

/* A time that was read is in range, and is read again when it is written by the C library. Returns
 * whether there is one. */
static bool check_clf(struct text line) {
    uint64_t time_ns = 0, again_ns = 0;
    struct text brackets, again;
    const char *why = log_time_clf(line, &brackets, &time_ns);
    char text[64];
    struct tm tm, read = {0};
    if (why != NULL) {
        assert(why[0] != '\0' && time_ns == 0);
        return false;
    }
    time_t seconds = (time_t)(time_ns / 1000000000);
    assert(time_ns % 1000000000 == 0 && seconds < LOG_SECONDS_MAX);
    assert(gmtime_r(&seconds, &tm) != NULL);
    size_t length = strftime(text, sizeof text, "x - [%d/%b/%Y:%H:%M:%S +0000] \"", &tm);
    assert(log_time_clf((struct text){text, length}, &again, &again_ns) == NULL);
    assert(again_ns == time_ns);

    /* The C library's own reader agrees on what stands there. */
    char piece[sizeof "[17/May/2015:10:05:03"];
    assert(brackets.length == sizeof "[17/May/2015:10:05:03 +0000]" - 1);
    assert(brackets.bytes >= line.bytes);
    assert(brackets.bytes + brackets.length <= line.bytes + line.length);
    memcpy(piece, brackets.bytes, sizeof piece - 1);
    piece[sizeof piece - 1] = '\0';
    const char *end = strptime(piece, "[%d/%b/%Y:%H:%M:%S", &read);
    const char *zone = brackets.bytes + sizeof piece;
    assert(end != NULL && *end == '\0' && zone[5] == ']');
    int minutes =
        ((zone[1] - '0') * 10 + zone[2] - '0') * 60 + (zone[3] - '0') * 10 + zone[4] - '0';
    assert(seconds == timegm(&read) - (zone[0] == '-' ? -60 : 60) * minutes);
    return true;
}

static void check_epoch(struct text line) {
    uint64_t time_ns = 0, again_ns = 0;
    struct text first;
    char text[64];
    if (!text_field(line, 1, &first))
        return;
    const char *why = log_time_epoch(first, &time_ns);
    if (why != NULL) {
        assert(why[0] != '\0' && time_ns == 0);
        return;
    }
    assert(time_ns / 1000000000 < LOG_SECONDS_MAX);
    int length = snprintf(text, sizeof text, "%llu.%09u", (unsigned long long)time_ns / 1000000000,
                          (unsigned)(time_ns % 1000000000));
    assert(log_time_epoch((struct text){text, (size_t)length}, &again_ns) == NULL);
    assert(again_ns == time_ns);
}

/* Every part of a line lies in it, whatever its form, and is no longer without its escapes. */
static void check_parts(struct text line) {
    static const char *const names[] = {"client", "user",  "host",  "method", "path",
                                        "status", "agent", "a.b.c", "3",      "msg"};
    enum { PARTS = sizeof names / sizeof names[0] };
    struct log_form form = log_form_find(&line, 1);
    if (form.kind == LOG_UNKNOWN || (form.kind == LOG_JSON && form.time_name == NULL))
        return;
    form.client = form.client == 0 ? 1 : form.client;
    for (size_t i = 0; i < PARTS; i++) {
        struct log_part part = log_part_read(names[i]);
        struct json_part value;
        uint64_t time_ns;
        const char *why = log_line_read(&form, line, &part, 1, &time_ns, &value);
        if (why != NULL)
            continue;
        assert(time_ns / 1000000000 < LOG_SECONDS_MAX);
        assert(value.raw.bytes >= line.bytes);
        assert(value.raw.bytes + value.raw.length <= line.bytes + line.length);
        char *copy = malloc(value.raw.length + 1);
        assert(copy != NULL);
        assert(json_part_copy(&value, copy) <= value.raw.length);
        free(copy);
    }
}

/* In memory of just its size. */
static void check_line(struct text line) {
    char *copy = exact_copy(line.bytes, line.length);
    line.bytes = copy;
    check_fields(line);
    if (check_clf(line) && line.bytes[0] != '{')
        assert(log_form_find(&line, 1).kind == LOG_BRACKETS);
    check_epoch(line);
    check_parts(line);
    free(copy);
}

/* ---- Lines ---------------------------------------------------------------------------------- */

static bool is_gzip(const uint8_t *data, size_t size) {
    return size >= 2 && data[0] == 0x1F && data[1] == 0x8B;
}

/* Whether it begins as what another program has packed: it is refused, and the reason told. */
static bool is_packed(const uint8_t *data, size_t size) {
    static const char *const magics[] = {"\x28\xB5\x2F\xFD", "\xFD\x37zXZ", "\x04\x22\x4D\x18",
                                         "\x1F\x9D", "PK\x03\x04"};
    for (size_t i = 0; i < sizeof magics / sizeof *magics; i++) {
        const size_t length = strlen(magics[i]);
        if (size >= length && memcmp(data, magics[i], length) == 0)
            return true;
    }
    return size >= 6 && memcmp(data, "BZh", 3) == 0 && memcmp(data + 4, "1A", 2) == 0;
}

/* The line of a plain file that starts at `*at`, which moves on to the next. */
static struct text plain_line(const uint8_t *data, size_t size, size_t *at) {
    const char *bytes = (const char *)data + *at;
    size_t length = 0;
    while (*at + length < size && bytes[length] != '\n')
        length++;
    *at += length + 1;
    return (struct text){bytes, length > 0 && bytes[length - 1] == '\r' ? length - 1 : length};
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct access_log log = {0};
    struct text line;
    enum access_log_outcome outcome;
    char path[64];
    size_t at = 0;
    uint64_t lines = 0;
    int fd = memfd_create("log", MFD_CLOEXEC);
    bool written = fd >= 0 && write(fd, data, size) == (ssize_t)size;
    assert(written);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    bool opened = access_log_open(&log, path);
    assert(opened);
    while ((outcome = access_log_next(&log, &line)) == LOG_LINE) {
        assert(log.lines == ++lines);
        if (!is_gzip(data, size)) {
            struct text expected = plain_line(data, size, &at);
            assert(line.length == expected.length);
            assert(memcmp(line.bytes, expected.bytes, line.length) == 0);
        }
        check_line(line);
    }
    if (is_packed(data, size))
        assert(outcome == LOG_FAILED && lines == 0);
    else
        assert(outcome == LOG_ENDED || (outcome == LOG_FAILED && is_gzip(data, size)));
    assert(outcome == LOG_ENDED || log.error[0] != '\0');
    if (outcome == LOG_ENDED && !is_gzip(data, size))
        assert(at >= size); /* past the end where the last line has none */
    access_log_close(&log);
    close(fd);
    return 0;
}
