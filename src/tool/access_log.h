/* SPDX-License-Identifier: MIT
 * Reading an access log: lines out of a plain or gzip file. (What is in a line: log_line.h.) */
#ifndef STINT_TOOL_ACCESS_LOG_H
#define STINT_TOOL_ACCESS_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zlib.h>

/* Bytes of a log, not terminated; NUL may be among them. */
struct text {
    const char *bytes;
    size_t length;
};

/* In the order of their bytes, as qsort asks. */
int text_order(struct text one, struct text other);

/* A longer line is skipped, so that a file without line ends cannot take all memory. */
#define ACCESS_LOG_LINE_MAX ((size_t)64 << 20)

enum access_log_outcome {
    LOG_LINE,     /* a line, without its end (LF or CR LF) */
    LOG_TOO_LONG, /* a line of more than ACCESS_LOG_LINE_MAX bytes was skipped */
    LOG_ENDED,
    LOG_FAILED, /* error says why */
};

struct access_log {
    uint64_t lines;    /* read so far, those too long included */
    uint64_t size;     /* of the file, bytes; 0: not known */
    uint64_t consumed; /* bytes of the file, compressed if it is */
    char error[128];   /* after a failure: why, without the name of the file */

    int fd;
    enum { KIND_UNKNOWN, KIND_PLAIN, KIND_GZIP } kind;
    bool in_member;  /* gzip: between the header and the trailer of a member */
    bool in_padding; /* gzip: in the zeros that may follow the last member */
    z_stream inflater;
    unsigned char *packed; /* what read() gave, if compressed */
    unsigned char *plain;
    const unsigned char *at, *end; /* what of `plain` is not yet given out */
    char *line;                    /* a line that does not lie in `plain` as a whole */
    size_t line_length, line_room;
};

/* Opens a file; "-" is the standard input. On failure `error` is set, and nothing is to be closed.
 */
bool access_log_open(struct access_log *log, const char *path);

/* Reads the next line, which is valid until the next call. */
enum access_log_outcome access_log_next(struct access_log *log, struct text *line);

void access_log_close(struct access_log *log);

#endif
