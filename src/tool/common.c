/* SPDX-License-Identifier: MIT */
#include "common.h"

#include <stint.h>

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void *must_have(void *memory) {
    if (memory == NULL) {
        fputs("stint: out of memory\n", stderr);
        exit(EXIT_FAILED);
    }
    return memory;
}

bool all_written(void) {
    return fflush(stdout) == 0 && !ferror(stdout);
}

uint64_t monotonic_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* ---- Options ---- */

int usage_error(const char *command, const char *format, ...) {
    va_list arguments;
    fprintf(stderr, "stint %s: ", command);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\nstint %s --help lists the options.\n", command);
    return EXIT_USAGE;
}

/* The library speaks to programs, of fields and functions; people know options. Each row stands
 * before those that are part of it. */
static const char *const in_words[][2] = {
    {"another secret than options.secret", "another secret"},
    {"options.labels has", "--label has"}, /* of metrics */
    {"options.labels takes", "--label takes"},
    {"options.labels", "--labels"},
    {"options.max_entries", "--entries"},
    {"max_entries", "--entries"},
    {"options.max_policies ids of policies are taken", "the table has no more ids of policies"},
    {"open a limiter with more of them", "make a table with a larger --max-policies"},
    {"options.max_policies", "--max-policies"},
    {"max_policies", "--max-policies"},
    {"options.shards", "--shards"},
    {"options.mode", "--mode"},
    {"options.path", "FILE"},
    {"options.on_full", "--full"},
    {"the policy has no STINT_OVERRIDES: stint_policy_change gives it to a policy that exists",
     "the policy has no option `overrides`: stint apply gives it to a policy that exists"},
    {"STINT_OVERRIDES in policy.flags", "`overrides`"},
    {"STINT_START_FIRST", "`start=first`"},
    {"STINT_START_PER_KEY", "`start=per-key`"},
    {"STINT_COUNT_REFUSED", "`count-refused`"},
    {"STINT_SMOOTH", "`smooth`"},
    {"STINT_IN_FLIGHT", "`in-flight`"},
    {"STINT_PARTIAL", "--partial"},
    {"a limit of the request's own", "--limit"},
    {"request.burst", "--burst"},
    {"policy.limit", "the limit"},
    {"policy.window must be 0 with policy.calendar", "a window of the calendar has no length"},
    {"policy.window", "the window"},
    {"policy.calendar", "a window of the calendar"},
    {"policy.offset", "the offset of `start=`"},
    {"policy.start", "`start=`"},
    {"policy.capacity", "`capacity=`"},
    {"policy.max_reserved", "`reserve=`"},
    {"policy.burst", "`burst=`"},
    {"policy.stripes", "`stripes=`"},
    {"policy.near_limit", "`near=`"},
    {"policy.jitter", "`jitter=`"},
    {"policy.ban_after", "`after=`"},
    {"policy.ban_within", "`within=`"},
    {"policy.ban", "`ban=`"},
    {"policy.name", "the name"},
    {"STINT_OVERRIDES", "`overrides`"},
    {"stint_policy_change or stint_policies_apply does it", "stint apply does it"},
    {"stint_policies_apply replaces", "stint apply replaces"},
    {"stint_resize, or `stint resize`, makes", "stint resize makes"},
    {"stint_resize", "stint resize"},
    {"stint_open makes one", "stint make makes one"},
    {"the limiter was attached with STINT_READ_ONLY: attach without it, or open the table",
     "the table may only be read"},
};

const char *reason(void) {
    enum { COUNT = sizeof(in_words) / sizeof(*in_words) };
    static char told[1024];
    const char *from = stint_reason();
    size_t at = 0;

    while (*from != '\0' && at + 128 < sizeof(told)) {
        size_t i = 0;
        while (i < COUNT && strncmp(from, in_words[i][0], strlen(in_words[i][0])) != 0)
            i++;
        /* Not within a word, which may be of a path. */
        if (i == COUNT || (at > 0 && strchr(" (`", told[at - 1]) == NULL)) {
            told[at++] = *from++;
            continue;
        }
        from += strlen(in_words[i][0]);
        at += (size_t)snprintf(told + at, sizeof(told) - at, "%s", in_words[i][1]);
    }
    told[at] = '\0';
    return told;
}

int notation_error(const char *command, const char *what, const char *text, const char *wrong) {
    char shown[512], before[512];
    size_t length = strlen(text);

    if (wrong == NULL || wrong < text || wrong > text + length)
        wrong = text;
    printable(shown, sizeof(shown), text, length);
    printable(before, sizeof(before), text, (size_t)(wrong - text));
    return usage_error(command, "%s '%s': %s\n    %s\n    %*s^", what, shown, reason(), shown,
                       (int)strlen(before), "");
}

static bool has_format(const struct option *options) {
    while (options->name != NULL && strcmp(options->name, "format") != 0)
        options++;
    return options->name != NULL;
}

int tool_option(const char *command, int argc, char **argv, const char *letters,
                const struct option *options) {
    int option = getopt_long(argc, argv, letters, options, NULL);

    if (option != OPTION_WRONG && option != ':')
        return option;
    if (option == ':')
        usage_error(command, "%s: its value is missing", argv[optind - 1]);
    else if (optopt > 0 && optopt < 256)
        usage_error(command, "there is no option '-%c'", optopt);
    else if (optopt >= 256)
        usage_error(command, "'%s': this option takes no value", argv[optind - 1]);
    else
        usage_error(command, "there is no option '%s'%s", argv[optind - 1],
                    strcmp(argv[optind - 1], "--json") == 0 && has_format(options)
                        ? ": it is --format json here"
                        : "");
    return OPTION_WRONG;
}

bool parse_prefixes(const char *text, unsigned *prefix4, unsigned *prefix6) {
    unsigned *const prefixes[2] = {prefix4, prefix6};
    char *end;

    for (size_t i = 0; i < 2; i++) {
        if (*text < '0' || *text > '9')
            return false;
        const unsigned long value = strtoul(text, &end, 10);
        if (value < 1 || value > (i == 0 ? 32 : 128))
            return false;
        *prefixes[i] = (unsigned)value;
        if (*end != ',')
            break;
        text = end + 1;
    }
    return *end == '\0';
}

size_t parse_word(const char *text, const char *const *words, size_t n) {
    size_t i = 0;

    while (i < n && strcmp(text, words[i]) != 0)
        i++;
    return i;
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

/* ---- Terminal ---- */

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
            memcpy(buffer + whole, "...", sizeof("..."));
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

/* ---- Figures ---- */

#define DAY_NS UINT64_C(86400000000000)

const char *grouped(char buffer[32], uint64_t number) {
    char *at = buffer + 31;
    *at = '\0';
    for (int digits = 0; digits == 0 || number != 0; digits++, number /= 10) {
        if (digits != 0 && digits % 3 == 0)
            *--at = ',';
        *--at = (char)('0' + number % 10);
    }
    return at;
}

const char *counted(char buffer[48], uint64_t number, const char *noun) {
    char digits[32];

    snprintf(buffer, 48, "%s %s%s", grouped(digits, number), noun, number == 1 ? "" : "s");
    return buffer;
}

const char *time_text(char buffer[40], uint64_t time_ns, char between, const char *zone) {
    time_t seconds = (time_t)(time_ns / 1000000000u);
    unsigned ns = (unsigned)(time_ns % 1000000000u);
    struct tm tm;

    gmtime_r(&seconds, &tm);
    size_t at = strftime(buffer, 40, "%Y-%m-%d", &tm);
    buffer[at++] = between;
    at += strftime(buffer + at, 40 - at, "%H:%M:%S", &tm);
    if (ns % 1000000 != 0)
        at += (size_t)snprintf(buffer + at, 40 - at, ".%09u", ns);
    else if (ns != 0)
        at += (size_t)snprintf(buffer + at, 40 - at, ".%03u", ns / 1000000);
    snprintf(buffer + at, 40 - at, "%s", zone);
    return buffer;
}

const char *since_text(char buffer[40], uint64_t since_ns, uint64_t now_ns) {
    const time_t seconds = (time_t)(since_ns / 1000000000u);
    const bool today = since_ns / DAY_NS == now_ns / DAY_NS;
    struct tm tm;

    gmtime_r(&seconds, &tm);
    strftime(buffer, 40, today ? "since %H:%M" : "since %Y-%m-%d %H:%M", &tm);
    return buffer;
}

void text_cut(char *text, size_t width) {
    const size_t length = strlen(text), tail = (width - 1) / 2;

    if (length <= width || width == 0)
        return;
    text[width - tail - 1] = '~';
    memmove(text + width - tail, text + length - tail, tail + 1);
}

const char *span_text(char buffer[40], uint64_t span_ns) {
    static const struct {
        uint64_t ns;
        const char *name;
    } units[] = {{DAY_NS, "d"},
                 {UINT64_C(3600000000000), "h"},
                 {UINT64_C(60000000000), "min"},
                 {1000000000, "s"},
                 {1000000, "ms"},
                 {1000, "us"},
                 {1, "ns"}};
    enum { COUNT = sizeof(units) / sizeof(units[0]) };
    size_t i = 0;

    while (i < COUNT - 1 && span_ns < units[i].ns)
        i++;
    int at = snprintf(buffer, 40, "%" PRIu64 " %s", span_ns / units[i].ns, units[i].name);
    if (i < COUNT - 1 && span_ns % units[i].ns / units[i + 1].ns != 0)
        snprintf(buffer + at, 40 - (size_t)at, " %" PRIu64 " %s",
                 span_ns % units[i].ns / units[i + 1].ns, units[i + 1].name);
    return buffer;
}

/* ---- JSON ---- */

/* Length of the UTF-8 sequence at the bytes, 0 if there is none. */
static size_t utf8_length(const char *bytes, size_t left) {
    for (size_t length = 1; length <= 4 && length <= left; length++) {
        json_t *one = json_stringn(bytes, length);
        json_decref(one);
        if (one != NULL)
            return length;
    }
    return 0;
}

json_t *json_text(const char *bytes, size_t length) {
    json_t *whole = json_stringn(bytes, length);
    char *text;
    size_t size;

    if (whole != NULL)
        return whole;
    FILE *out = must_have(open_memstream(&text, &size));
    for (size_t at = 0; at < length;) {
        size_t good = utf8_length(bytes + at, length - at);
        fwrite(good == 0 ? "\xEF\xBF\xBD" : bytes + at, 1, good == 0 ? 3 : good, out);
        at += good == 0 ? 1 : good;
    }
    fclose(out);
    whole = must_have(json_stringn(text, size));
    free(text);
    return whole;
}

/* JSON may have a DEL in its strings as it is; a terminal may not. */
static int put_escaped(const char *bytes, size_t size, void *out) {
    for (const char *del; (del = memchr(bytes, 0x7F, size)) != NULL; bytes = del + 1) {
        fwrite(bytes, 1, (size_t)(del - bytes), out);
        fputs("\\u007f", out);
        size -= (size_t)(del + 1 - bytes);
    }
    fwrite(bytes, 1, size, out);
    return ferror(out) ? -1 : 0;
}

static bool put_any(FILE *out, json_t *json, size_t flags) {
    bool good = json_dump_callback(json, put_escaped, out, JSON_ENSURE_ASCII | flags) == 0;

    json_decref(json);
    return good;
}

bool put_json(FILE *out, json_t *json) {
    bool good = put_any(out, json, JSON_INDENT(2));

    fputc('\n', out);
    return good;
}

void put_json_text(FILE *out, const char *bytes, size_t length) {
    put_any(out, json_text(bytes, length), JSON_ENCODE_ANY);
}
