/* SPDX-License-Identifier: MIT */
#include "access_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 1 << 16 };

/* ---- The bytes ------------------------------------------------------------------------------ */

static bool fail(struct access_log *log, const char *why) {
    snprintf(log->error, sizeof(log->error), "%s", why);
    return false;
}

bool access_log_open(struct access_log *log, const char *path) {
    struct stat about;

    *log = (struct access_log){.fd = STDIN_FILENO};
    if (strcmp(path, "-") != 0) {
        log->fd = open(path, O_RDONLY | O_CLOEXEC);
        if (log->fd < 0)
            return fail(log, strerror(errno));
    }
    if (fstat(log->fd, &about) == 0 && S_ISREG(about.st_mode))
        log->size = (uint64_t)about.st_size;
    log->packed = malloc(BLOCK);
    log->plain = malloc(BLOCK);
    if (log->packed == NULL || log->plain == NULL) {
        access_log_close(log);
        return fail(log, strerror(ENOMEM));
    }
    return true;
}

void access_log_close(struct access_log *log) {
    if (log->kind == KIND_GZIP)
        inflateEnd(&log->inflater);
    if (log->fd != STDIN_FILENO)
        close(log->fd);
    free(log->packed);
    free(log->plain);
    free(log->line);
    *log = (struct access_log){.fd = STDIN_FILENO};
}

/* Reads up to `room` bytes; 0 at the end of the file. */
static bool read_block(struct access_log *log, unsigned char *bytes, size_t room, size_t *length) {
    ssize_t got;
    do
        got = read(log->fd, bytes, room);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return fail(log, strerror(errno));
    log->consumed += (uint64_t)got;
    *length = (size_t)got;
    return true;
}

/* Tells gzip from plain by the two bytes that every gzip member starts with. A pipe may give them
 * one at a time. */
static bool find_kind(struct access_log *log) {
    size_t have = 0, got;
    do {
        if (!read_block(log, log->plain + have, BLOCK - have, &got))
            return false;
        have += got;
    } while (have < 2 && got != 0);

    if (have < 2 || log->plain[0] != 0x1F || log->plain[1] != 0x8B) {
        log->kind = KIND_PLAIN;
        log->at = log->plain;
        log->end = log->plain + have;
        return true;
    }
    memcpy(log->packed, log->plain, have);
    log->inflater = (z_stream){.next_in = log->packed, .avail_in = (uInt)have};
    if (inflateInit2(&log->inflater, 16 + MAX_WBITS) != Z_OK) /* 16: gzip and nothing else */
        return fail(log, strerror(ENOMEM));
    log->kind = KIND_GZIP;
    log->in_member = true;
    return true;
}

/* Inflates the next bytes, member after member. zlib's own gzread() would do, but it takes bytes
 * after a member that are not a member for the end of the file, so a damaged header in a file of
 * several members would drop the rest of the log without a word. */
static bool inflate_block(struct access_log *log) {
    z_stream *stream = &log->inflater;

    log->at = log->end = stream->next_out = log->plain;
    stream->avail_out = BLOCK;
    while (stream->next_out == log->plain) {
        if (stream->avail_in == 0) {
            size_t got;
            if (!read_block(log, log->packed, BLOCK, &got))
                return false;
            stream->next_in = log->packed;
            stream->avail_in = (uInt)got;
            if (got == 0)
                return log->in_member ? fail(log, "the gzip data ends too early") : true;
        }
        if (!log->in_member) {
            if (*stream->next_in == 0) { /* tapes pad with zeros; gzip itself reads over them */
                log->in_padding = true;
                stream->next_in++;
                stream->avail_in--;
                continue;
            }
            if (log->in_padding || *stream->next_in != 0x1F)
                return fail(log, "bytes that are not gzip follow the gzip data");
            inflateReset(stream);
            log->in_member = true;
        }
        switch (inflate(stream, Z_NO_FLUSH)) {
        case Z_OK:
        case Z_BUF_ERROR: /* all input is used up: more is read */
            break;
        case Z_STREAM_END:
            log->in_member = false;
            break;
        case Z_MEM_ERROR:
            return fail(log, strerror(ENOMEM));
        default:
            snprintf(log->error, sizeof(log->error), "the gzip data is damaged%s%s",
                     stream->msg != NULL ? ": " : "", stream->msg != NULL ? stream->msg : "");
            return false;
        }
    }
    log->end = stream->next_out;
    return true;
}

/* Gets more bytes between `at` and `end`; none at the end of the file. */
static bool fill(struct access_log *log) {
    if (log->kind == KIND_UNKNOWN) {
        if (!find_kind(log))
            return false;
        if (log->kind == KIND_PLAIN)
            return true;
    }
    if (log->kind == KIND_GZIP)
        return inflate_block(log);
    size_t got;
    if (!read_block(log, log->plain, BLOCK, &got))
        return false;
    log->at = log->plain;
    log->end = log->plain + got;
    return true;
}

/* ---- The lines ------------------------------------------------------------------------------ */

/* Puts aside the start of a line that goes on in the next block. */
static bool keep(struct access_log *log, const unsigned char *bytes, size_t length) {
    if (length > log->line_room - log->line_length) {
        size_t room = 2 * (log->line_length + length);
        char *line = realloc(log->line, room);
        if (line == NULL)
            return fail(log, strerror(ENOMEM));
        log->line = line;
        log->line_room = room;
    }
    memcpy(log->line + log->line_length, bytes, length);
    log->line_length += length;
    return true;
}

static struct text without_cr(const char *bytes, size_t length) {
    return (struct text){bytes, length > 0 && bytes[length - 1] == '\r' ? length - 1 : length};
}

enum access_log_outcome access_log_next(struct access_log *log, struct text *line) {
    bool started = false, too_long = false;

    log->line_length = 0;
    for (;;) {
        if (log->at == log->end) {
            if (!fill(log))
                return LOG_FAILED;
            if (log->at == log->end) {
                if (!started)
                    return LOG_ENDED;
                break; /* the last line has no end */
            }
        }
        const unsigned char *from = log->at;
        const unsigned char *lf = memchr(from, '\n', (size_t)(log->end - from));
        size_t length = (size_t)((lf != NULL ? lf : log->end) - from);
        log->at = lf != NULL ? lf + 1 : log->end;
        if (lf != NULL && !started) { /* the common case: nothing is copied */
            log->lines++;
            *line = without_cr((const char *)from, length);
            return LOG_LINE;
        }
        started = true;
        too_long = too_long || length > ACCESS_LOG_LINE_MAX - log->line_length;
        if (!too_long && length > 0 && !keep(log, from, length))
            return LOG_FAILED;
        if (lf != NULL)
            break;
    }
    log->lines++;
    if (too_long)
        return LOG_TOO_LONG;
    *line = without_cr(log->line, log->line_length);
    return LOG_LINE;
}

/* ---- The fields ----------------------------------------------------------------------------- */

static bool is_blank(char byte) {
    return byte == ' ' || byte == '\t';
}

bool text_field(struct text line, unsigned number, struct text *field) {
    const char *at = line.bytes, *end = line.bytes + line.length;

    for (unsigned i = 1;; i++) {
        while (at < end && is_blank(*at))
            at++;
        if (at == end)
            return false;
        const char *from = at;
        while (at < end && !is_blank(*at))
            at++;
        if (i == number) {
            *field = (struct text){from, (size_t)(at - from)};
            return true;
        }
    }
}

/* ---- The times ------------------------------------------------------------------------------ */

static const char too_early[] = "the time is before 1970";
static const char too_late[] = "the time is after the year 2199";

static const char *time_from(int64_t seconds, uint32_t ns, uint64_t *time_ns) {
    if (seconds < 0)
        return too_early;
    if (seconds >= ACCESS_LOG_SECONDS_MAX)
        return too_late;
    *time_ns = (uint64_t)seconds * 1000000000u + ns;
    return NULL;
}

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

const char *text_time_clf(struct text line, uint64_t *time_ns) {
    static const char form[] = "[17/May/2015:10:05:03 +0000]";
    static const char months[12][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                       "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    const char *at = line.bytes, *end = line.bytes + line.length;
    bool bracket = false;

    /* Brackets that hold no time are passed over (an IPv6 address, a user's name); what the client
     * wrote is quoted, and not looked at. */
    for (; at < end && *at != '"'; at++) {
        if (*at == '\\') { /* an escaped quote in a user's name */
            at += end - at > 1;
            continue;
        }
        if (*at != '[')
            continue;
        bracket = true;
        if ((size_t)(end - at) < sizeof(form) - 1)
            break;
        int month = 0;
        while (month < 12 && memcmp(at + 4, months[month], 3) != 0)
            month++;
        int day = number_at(at + 1, 2), year = number_at(at + 8, 4);
        int hour = number_at(at + 13, 2), minute = number_at(at + 16, 2);
        int second = number_at(at + 19, 2);
        int zone_hour = number_at(at + 23, 2), zone_minute = number_at(at + 25, 2);
        if (month == 12 || day < 0 || year < 0 || hour < 0 || minute < 0 || second < 0 ||
            zone_hour < 0 || zone_minute < 0 || at[3] != '/' || at[7] != '/' || at[12] != ':' ||
            at[15] != ':' || at[18] != ':' || at[21] != ' ' || (at[22] != '+' && at[22] != '-') ||
            at[27] != ']')
            continue;
        month++;
        if (day == 0 || day > days_in(year, month))
            return "there is no such day";
        if (hour > 23 || minute > 59 || second > 60) /* 60: a leap second */
            return "there is no such time of day";
        if (zone_hour > 23 || zone_minute > 59)
            return "there is no such time zone";
        int64_t zone = (zone_hour * 60 + zone_minute) * (at[22] == '-' ? -60 : 60);
        return time_from(days_from(year, month, day) * 86400 + hour * 3600 + minute * 60 + second -
                             zone,
                         0, time_ns);
    }
    return bracket ? "the brackets hold no time like [17/May/2015:10:05:03 +0000]"
                   : "there is no time in brackets";
}

const char *text_time_epoch(struct text line, uint64_t *time_ns) {
    static const char malformed[] = "the first field is no time in seconds";
    struct text field;

    if (!text_field(line, 1, &field))
        return "the line is empty";
    const char *at = field.bytes, *end = field.bytes + field.length;
    bool negative = *at == '-';
    int64_t seconds = 0;
    uint32_t ns = 0;

    at += negative;
    const char *digits = at;
    for (; at < end && *at >= '0' && *at <= '9'; at++)
        if (seconds < ACCESS_LOG_SECONDS_MAX) /* beyond, it is too late whatever follows */
            seconds = seconds * 10 + (*at - '0');
    if (at == digits)
        return malformed;
    if (at < end && *at == '.') {
        digits = ++at;
        for (uint32_t scale = 100000000; at < end && *at >= '0' && *at <= '9'; at++, scale /= 10)
            ns += scale * (uint32_t)(*at - '0'); /* past the ninth the scale is 0 */
        if (at == digits)
            return malformed;
    }
    if (at != end)
        return malformed;
    return negative ? too_early : time_from(seconds, ns, time_ns);
}
