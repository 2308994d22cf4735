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

/* What is compressed otherwise, by its first bytes (? is any), and what unpacks it. No log begins
 * like that. */
static const struct {
    const char *name, *command, *magic;
} packers[] = {{"zstd", "zstd -dc", "\x28\xB5\x2F\xFD"}, {"xz", "xz -dc", "\xFD\x37zXZ"},
               {"bzip2", "bzip2 -dc", "BZh?1A"},         {"lz4", "lz4 -dc", "\x04\x22\x4D\x18"},
               {"compress", "gzip -dc", "\x1F\x9D"},     {"zip", "unzip -p", "PK\x03\x04"}};
enum { PACKERS = sizeof(packers) / sizeof(packers[0]), MAGIC_MAX = 6 };

static bool is_plain(struct access_log *log, size_t have) {
    for (size_t i = 0; i < PACKERS; i++) {
        const char *magic = packers[i].magic;
        size_t at = 0;
        while (at < have && magic[at] != '\0' &&
               (magic[at] == '?' || log->plain[at] == (unsigned char)magic[at]))
            at++;
        if (magic[at] != '\0')
            continue;
        snprintf(log->error, sizeof(log->error),
                 "it is compressed by %s; pipe it in, FILE being -: %s FILE | stint ...",
                 packers[i].name, packers[i].command);
        return false;
    }
    log->kind = KIND_PLAIN;
    log->at = log->plain;
    log->end = log->plain + have;
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
    } while (have < MAGIC_MAX && got != 0);

    if (have < 2 || log->plain[0] != 0x1F || log->plain[1] != 0x8B)
        return is_plain(log, have);
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

int text_order(struct text one, struct text other) {
    size_t shorter = one.length < other.length ? one.length : other.length;
    int order = memcmp(one.bytes, other.bytes, shorter);
    return order != 0 ? order : (one.length > other.length) - (one.length < other.length);
}
