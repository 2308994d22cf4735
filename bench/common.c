/* SPDX-License-Identifier: MIT */
#include "common.h"

#include <stint.h>

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int usage_error(const char *command, const char *format, ...) {
    va_list arguments;
    fprintf(stderr, "stint-bench %s: ", command);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\nstint-bench %s --help lists the options.\n", command);
    return EXIT_USAGE;
}

int limit_error(const char *command, const char *text, const char *wrong) {
    char shown[512], before[512];
    size_t length = strlen(text);

    if (wrong == NULL || wrong < text || wrong > text + length)
        wrong = text;
    printable(shown, sizeof(shown), text, length);
    printable(before, sizeof(before), text, (size_t)(wrong - text));
    return usage_error(command, "--limit '%s': %s\n    %s\n    %*s^", shown, stint_reason(), shown,
                       (int)strlen(before), "");
}

uint64_t monotonic_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

uint64_t thread_cpu_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void summarize(double *values, size_t n, double *median, double *min, double *max) {
    qsort(values, n, sizeof(*values), compare_doubles);
    *median = values[n / 2];
    *min = values[0];
    *max = values[n - 1];
}

void progress_start(struct progress *progress, const char *label, uint64_t total) {
    *progress = (struct progress){.label = label, .total = total, .on = isatty(STDERR_FILENO)};
    progress_update(progress, 0);
}

void progress_update(struct progress *progress, uint64_t done) {
    enum { WIDTH = 40 };
    char bar[WIDTH + 1];

    if (!progress->on)
        return;
    uint64_t now = monotonic_ns();
    if (done != 0 && done < progress->total && now - progress->shown_ns < 50000000)
        return;
    progress->shown_ns = now;
    double part = progress->total == 0 ? 1 : (double)done / (double)progress->total;
    size_t full = part >= 1 ? WIDTH : (size_t)(part * WIDTH);
    memset(bar, '.', WIDTH);
    memset(bar, '#', full);
    bar[WIDTH] = '\0';
    fprintf(stderr, "\r[%s] %3.0f%% %-36.36s", bar, part * 100, progress->label);
    fflush(stderr);
}

void progress_end(struct progress *progress) {
    if (progress->on)
        fprintf(stderr, "\r%85s\r", "");
    progress->on = false;
}

char *printable(char *buffer, size_t size, const char *bytes, size_t length) {
    size_t at = 0, whole = 0; /* whole: where to cut so that "..." still fits */

    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)bytes[i];
        char piece[5];
        size_t piece_length = (size_t)snprintf(
            piece, sizeof(piece), byte >= 0x20 && byte < 0x7F ? "%c" : "\\x%02x", byte);
        if (at + piece_length >= size) {
            strcpy(buffer + whole, "...");
            return buffer;
        }
        memcpy(buffer + at, piece, piece_length);
        at += piece_length;
        if (at + sizeof("...") <= size)
            whole = at;
    }
    buffer[at] = '\0';
    return buffer;
}

/* Length of the UTF-8 sequence at bytes (RFC 3629), 0 if there is none. */
static size_t utf8_length(const unsigned char *bytes, size_t length) {
    unsigned char lead = bytes[0];
    size_t size = lead < 0x80   ? 1
                  : lead < 0xC2 ? 0
                  : lead < 0xE0 ? 2
                  : lead < 0xF0 ? 3
                  : lead < 0xF5 ? 4
                                : 0;

    if (size == 0 || size > length)
        return 0;
    for (size_t i = 1; i < size; i++)
        if ((bytes[i] & 0xC0) != 0x80)
            return 0;
    if ((lead == 0xE0 && bytes[1] < 0xA0) || (lead == 0xED && bytes[1] > 0x9F) ||
        (lead == 0xF0 && bytes[1] < 0x90) || (lead == 0xF4 && bytes[1] > 0x8F))
        return 0;
    return size;
}

void put_json_string(FILE *out, const char *bytes, size_t length) {
    const unsigned char *at = (const unsigned char *)bytes, *end = at + length;

    fputc('"', out);
    while (at < end) {
        size_t size = utf8_length(at, (size_t)(end - at));
        if (size == 0) {
            fputs("\xEF\xBF\xBD", out);
            at++;
        } else if (size == 1) {
            if (*at == '"' || *at == '\\')
                fprintf(out, "\\%c", *at);
            else if (*at < 0x20 || *at == 0x7F)
                fprintf(out, "\\u%04x", *at);
            else
                fputc(*at, out);
            at++;
        } else {
            fwrite(at, 1, size, out);
            at += size;
        }
    }
    fputc('"', out);
}

bool parse_count(const char *text, uint64_t low, uint64_t high, uint64_t *value) {
    uint64_t number = 0, scale = 1;
    const char *at = text;

    if (*at < '0' || *at > '9')
        return false;
    for (; *at >= '0' && *at <= '9'; at++)
        if (__builtin_mul_overflow(number, 10u, &number) ||
            __builtin_add_overflow(number, (uint64_t)(*at - '0'), &number))
            return false;
    switch (*at) {
    case 'k':
    case 'K':
        scale = 1000;
        at++;
        break;
    case 'm':
    case 'M':
        scale = 1000000;
        at++;
        break;
    case 'g':
    case 'G':
        scale = 1000000000;
        at++;
        break;
    default:
        break;
    }
    if (*at != '\0' || __builtin_mul_overflow(number, scale, &number) || number < low ||
        number > high)
        return false;
    *value = number;
    return true;
}
