/* SPDX-License-Identifier: MIT */
#include "requests.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "log_time.h"

enum { SAMPLE_LINES = 1000, SAMPLE_BYTES = 1 << 20 };

/* ---- Options -------------------------------------------------------------------------------- */

const char log_options_help[] =
    "  LOG                    plain or gzip, several in any order; - is the standard input.\n"
    "                           Known: common, combined and vhost_combined, also with fields in\n"
    "                           quotes before the time; HAProxy's httplog; JSON, one object a\n"
    "                           line, with the fields that Caddy, Traefik, nginx and Envoy use\n"
    "  --key PART[,PART..]    what is limited [client]: client; method, path or status; user or\n"
    "                           agent, of common and combined; host, of vhost_combined; a field's\n"
    "                           number, counted from 1 as awk does; of JSON a field's name, such\n"
    "                           as request.host\n"
    "  --address[=PREFIXES]   the first PART is an IP address, by its first bits [32,64]\n"
    "  --time clf|epoch|none  how the time is written [recognised]\n"
    "                           clf    [17/May/2015:10:05:03 +0000]\n"
    "                           epoch  the first field, seconds with or without decimals\n"
    "                           none   nowhere: all requests happen at one instant\n";

static bool read_parts(struct log_options *options, const char *text) {
    static char names[4096]; /* for as long as the command runs */
    char *rest;

    options->part_count = 0;
    if (strlen(text) >= sizeof(names) || text[strlen(text) - (text[0] != '\0')] == ',' ||
        text[0] == ',' || strstr(text, ",,") != NULL)
        return false;
    memcpy(names, text, strlen(text) + 1);
    for (char *name = strtok_r(names, ",", &rest); name != NULL;
         name = strtok_r(NULL, ",", &rest)) {
        struct log_part part = log_part_read(name);
        if (part.kind == PART_NONE || options->part_count == LOG_PARTS_MAX)
            return false;
        options->parts[options->part_count++] = part;
    }
    return options->part_count > 0;
}

static bool read_prefixes(struct log_options *options, const char *text) {
    options->address = true;
    options->prefix4 = 32;
    options->prefix6 = 64;
    return text == NULL || parse_prefixes(text, &options->prefix4, &options->prefix6);
}

int log_option(struct log_options *options, int option) {
    static const char *const times[] = {"clf", "epoch", "none"};
    static const enum log_kind kinds[] = {LOG_BRACKETS, LOG_EPOCH, LOG_TIMELESS, LOG_UNKNOWN};

    switch (option) {
    case LOG_OPTION_KEY:
        if (!read_parts(options, optarg))
            return usage_error(options->command,
                               "--key '%s': not up to %d fields, such as client or 1,7", optarg,
                               LOG_PARTS_MAX);
        break;
    case LOG_OPTION_ADDRESS:
        if (!read_prefixes(options, optarg))
            return usage_error(options->command, "--address '%s': not prefixes such as 24 or 24,64",
                               optarg);
        break;
    case LOG_OPTION_TIME:
        options->time = kinds[parse_word(optarg, times, 3)];
        if (options->time == LOG_UNKNOWN)
            return usage_error(options->command, "--time '%s': not clf, epoch or none", optarg);
        break;
    default:
        break;
    }
    return EXIT_GOOD;
}

int log_operands(struct log_options *options, int argc, char **argv) {
    bool named = options->time != LOG_EPOCH && options->time != LOG_TIMELESS, input = false;

    if (optind == argc)
        return usage_error(options->command, "LOG is missing");
    options->files = argv + optind;
    options->file_count = (size_t)(argc - optind);
    for (size_t i = 0; i < options->file_count; i++) {
        bool standard = strcmp(options->files[i], "-") == 0;
        if (standard && input)
            return usage_error(options->command, "- is the standard input, and stands there twice");
        input = input || standard;
    }
    if (options->part_count == 0 && options->time == LOG_EPOCH)
        return usage_error(options->command,
                           "--key is missing: with --time epoch field 1 is the time");
    if (options->part_count == 0)
        options->parts[options->part_count++] = log_part_read(named ? "client" : "1");
    for (size_t i = 0; i < options->part_count && !named; i++)
        if (options->parts[i].kind != PART_FIELD)
            return usage_error(options->command,
                               "--key '%s': with --time epoch or none a field has a number, and no "
                               "name",
                               options->parts[i].name);
    return EXIT_GOOD;
}

/* ---- Names of keys -------------------------------------------------------------------------- */

/* Bytes that grow as they are needed, and stay for the next line. */
struct buffer {
    char *bytes;
    size_t length, room;
};

static char *buffer_room(struct buffer *buffer, size_t more) {
    if (buffer->length + more > buffer->room) {
        buffer->room = 2 * (buffer->length + more);
        buffer->bytes = must_have(realloc(buffer->bytes, buffer->room));
    }
    return buffer->bytes + buffer->length;
}

/* Makes the network of an address of what stands in the buffer. Returns NULL, or why it cannot. */
static const char *to_network(const struct log_options *options, struct buffer *buffer) {
    struct text text = text_without_port((struct text){buffer->bytes, buffer->length});
    char copy[INET6_ADDRSTRLEN];
    unsigned char address[16];
    static const unsigned char mapped[12] = {[10] = 0xFF, 0xFF};
    bool four;

    if (text.length >= sizeof(copy))
        return "the key is no IP address";
    memcpy(copy, text.bytes, text.length);
    copy[text.length] = '\0';
    four = inet_pton(AF_INET, copy, address) == 1;
    if (!four && inet_pton(AF_INET6, copy, address) != 1)
        return "the key is no IP address";
    if (!four && memcmp(address, mapped, sizeof(mapped)) == 0) { /* as stint_key_address */
        memmove(address, address + 12, 4);
        four = true;
    }
    unsigned bits = four ? options->prefix4 : options->prefix6, whole = four ? 32 : 128;
    for (unsigned i = bits; i < whole; i++)
        address[i / 8] &= (unsigned char)~(0x80u >> i % 8);
    inet_ntop(four ? AF_INET : AF_INET6, address, copy, sizeof(copy));
    buffer->length = 0;
    enum { ROOM = INET6_ADDRSTRLEN + 8 };
    char *to = buffer_room(buffer, ROOM);
    buffer->length = bits == whole ? (size_t)snprintf(to, ROOM, "%s", copy)
                                   : (size_t)snprintf(to, ROOM, "%s/%u", copy, bits);
    return NULL;
}

/* Adds a part to others: in quotes if it has blanks or begins with a quote, so that none runs into
 * the next. A field that is counted as awk does has no blank in it, and stays as it is. */
static void add_part(struct buffer *buffer, enum log_part_kind kind,
                     const struct json_part *value) {
    size_t length = value->raw.length;
    char *to = buffer_room(buffer, 3 * length + 3);

    if (buffer->length > 0) {
        *to++ = ' ';
        buffer->length++;
    }
    char *plain = to + length + 1; /* where it can be read while it is written */
    length = json_part_copy(value, plain);
    if (kind == PART_FIELD ||
        (memchr(plain, ' ', length) == NULL && (length == 0 || *plain != '"'))) {
        memmove(to, plain, length);
        buffer->length += length;
        return;
    }
    char *from = to;
    *to++ = '"';
    for (size_t i = 0; i < length; i++) {
        char byte = plain[i];
        if (byte == '"' || byte == '\\')
            *to++ = '\\';
        *to++ = byte;
    }
    *to++ = '"';
    buffer->length += (size_t)(to - from);
}

static const char *name_of(const struct log_options *options, const struct json_part *values,
                           struct text *name) {
    static struct buffer buffer;
    const char *why = NULL;

    if (options->part_count == 1 && !options->address && !values[0].escaped) {
        *name = values[0].raw; /* the common case: nothing is copied */
        return NULL;
    }
    buffer.length = 0;
    buffer_room(&buffer, values[0].raw.length + 1);
    if (options->part_count == 1 || options->address)
        buffer.length = json_part_copy(&values[0], buffer.bytes);
    else
        add_part(&buffer, options->parts[0].kind, &values[0]);
    if (options->address)
        why = to_network(options, &buffer);
    for (size_t i = 1; i < options->part_count; i++)
        add_part(&buffer, options->parts[i].kind, &values[i]);
    *name = (struct text){buffer.bytes, buffer.length};
    return why;
}

/* ---- Reading -------------------------------------------------------------------------------- */

static void request_add(struct requests *requests, uint64_t time_ns, uint32_t key) {
    if (requests->count == requests->room) {
        requests->room = requests->room == 0 ? 4096 : 2 * requests->room;
        requests->all = must_have(realloc(requests->all, requests->room * sizeof(*requests->all)));
    }
    if (requests->count == 0)
        requests->first_ns = requests->last_ns = time_ns;
    requests->late += time_ns < requests->last_ns;
    requests->last_ns = time_ns > requests->last_ns ? time_ns : requests->last_ns;
    requests->first_ns = time_ns < requests->first_ns ? time_ns : requests->first_ns;
    requests->whole_seconds = requests->whole_seconds && time_ns % 1000000000 == 0;
    requests->all[requests->count] = (struct request){time_ns, key, (uint32_t)requests->count};
    requests->count++;
}

/* Notes the agent of a key that is new. */
static void note_agent(struct requests *requests, const struct log_form *form, struct text line,
                       uint32_t key) {
    const struct log_part part = {form->kind == LOG_JSON ? PART_NAME : PART_AGENT, 0,
                                  form->agent_name};
    static struct buffer buffer;
    struct json_part agent = {.found = false};
    uint64_t time_ns;

    if (key == requests->agent_room) {
        requests->agent_room = 2 * requests->agent_room + 1024;
        requests->agent_of = must_have(
            realloc(requests->agent_of, requests->agent_room * sizeof(*requests->agent_of)));
    }
    if (log_line_read(form, line, &part, 1, &time_ns, &agent) != NULL)
        agent = (struct json_part){.found = false};
    char *to = buffer_room(&buffer, agent.raw.length + 1);
    size_t length = agent.found ? json_part_copy(&agent, to) : 0;
    if (length == 1 && *to == '-')
        length = 0;
    requests->agent_of[key] = log_key_named(&requests->agents, (struct text){to, length});
}

static void read_line(struct requests *requests, struct log_file *file, struct text line) {
    const struct log_options *options = requests->options;
    struct json_part values[LOG_PARTS_MAX];
    struct text name;
    uint64_t time_ns;
    const char *why = "it is too long";

    file->lines++;
    if (line.bytes != NULL)
        why =
            log_line_read(&file->form, line, options->parts, options->part_count, &time_ns, values);
    if (why == NULL)
        why = name_of(options, values, &name);
    if (why == NULL && requests->count == UINT32_MAX)
        why = "there are 4,294,967,295 requests before it";
    if (why == NULL) {
        const uint32_t known = requests->keys.count, key = log_key_named(&requests->keys, name);
        if (options->agents && key == known)
            note_agent(requests, &file->form, line, key);
        request_add(requests, time_ns, key);
        file->readable++;
    } else if (requests->lines - requests->count < UNREADABLE_MAX) {
        requests->unreadable[requests->lines - requests->count] =
            (struct unreadable_line){file->path, file->lines, why};
    }
    requests->lines++;
}

/* The first lines of a file, kept until its form is known. */
struct sample {
    struct buffer bytes;
    struct text lines[SAMPLE_LINES];
    size_t ends[SAMPLE_LINES], count;
};

/* A line that is too long has no bytes. */
static enum access_log_outcome next_line(struct access_log *log, struct text *line) {
    enum access_log_outcome outcome = access_log_next(log, line);

    if (outcome == LOG_LINE && log->lines == 1 && line->length >= 3 &&
        memcmp(line->bytes, BYTE_ORDER_MARK, 3) == 0)
        *line = (struct text){line->bytes + 3, line->length - 3};
    if (outcome == LOG_TOO_LONG)
        *line = (struct text){NULL, 0};
    return outcome == LOG_TOO_LONG ? LOG_LINE : outcome;
}

static enum access_log_outcome take_sample(struct access_log *log, struct sample *sample) {
    enum access_log_outcome outcome = LOG_LINE;
    struct text line;

    while (sample->count < SAMPLE_LINES && sample->bytes.length < SAMPLE_BYTES &&
           (outcome = next_line(log, &line)) == LOG_LINE) {
        sample->lines[sample->count] = line;
        memcpy(buffer_room(&sample->bytes, line.length + 1), line.bytes == NULL ? "" : line.bytes,
               line.length);
        sample->bytes.length += line.length;
        sample->ends[sample->count++] = sample->bytes.length;
    }
    for (size_t i = 0, at = 0; i < sample->count; at = sample->ends[i++])
        if (sample->lines[i].bytes != NULL)
            sample->lines[i] = (struct text){sample->bytes.bytes + at, sample->ends[i] - at};
    return outcome;
}

/* Whether a line of the sample has a field of this name. */
static bool has_field(const struct sample *sample, const char *name) {
    struct json_part value = {.found = false};
    const char *why;

    for (size_t i = 0; i < sample->count && !value.found; i++)
        if (sample->lines[i].bytes != NULL)
            (void)json_line_find(sample->lines[i], &name, &value, 1, &why);
    return value.found;
}

/* Which logs have a part, if those of this form have not; else NULL. */
static const char *elsewhere(const struct log_form *form, enum log_part_kind kind) {
    if (kind == PART_HOST && (form->kind != LOG_BRACKETS || form->client != 2))
        return "vhost_combined has it";
    if ((kind == PART_USER || kind == PART_AGENT) && form->kind != LOG_BRACKETS)
        return kind == PART_USER ? "common and combined have it" : "combined has it";
    return NULL;
}

/* Whether a part of the key can be in the file. Returns an exit code. */
static int check_part(const struct log_options *options, const struct log_file *file,
                      const struct sample *sample, const struct log_part *part) {
    const char *path = requests_path(file->path), *others = elsewhere(&file->form, part->kind);
    const bool json = file->form.kind == LOG_JSON;

    if (part->kind == PART_CLIENT &&
        (json ? file->form.client_name == NULL
              : file->form.kind == LOG_BRACKETS && file->form.client == 0)) {
        fprintf(stderr, "stint %s: %s: %s\n", options->command, path,
                json ? "no field is known to have the client. Name it: --key FIELD"
                     : "no word before the time is an address, so which is the client? Name it by "
                       "its number: --key N");
        return EXIT_FAILED;
    }
    if (json ? part->kind == PART_FIELD : part->kind == PART_NAME)
        return usage_error(options->command, "--key '%s': %s is %s, where fields have %s",
                           part->name, path, file->form.name,
                           json ? "names, and no numbers"
                                : "numbers. Names are client, user, host, method, path, "
                                  "status and agent");
    if (json && part->kind != PART_CLIENT && !has_field(sample, part->name))
        return usage_error(options->command,
                           "--key '%s': %s is %s, and its first lines have no such field",
                           part->name, path, file->form.name);
    return json || others == NULL ? EXIT_GOOD
                                  : usage_error(options->command, "--key '%s': %s is %s; %s",
                                                part->name, path, file->form.name, others);
}

/* Finds out how the file is read, and whether it can be for these keys. Returns an exit code. */
static int find_form(const struct log_options *options, struct log_file *file,
                     const struct sample *sample) {
    static const char *const names[] = {
        [LOG_BRACKETS] = "the time in brackets", [LOG_EPOCH] = "epoch", [LOG_TIMELESS] = "none"};
    const char *path = requests_path(file->path);

    file->form = log_form_find(sample->lines, sample->count);
    if (file->form.kind == LOG_UNKNOWN) { /* each line says why it is none of the usual */
        file->form.kind = LOG_BRACKETS;
        file->form.name = sample->count == 0 ? "empty" : "unknown";
        file->form.client = 1;
    }
    if (options->time != LOG_UNKNOWN && options->time != file->form.kind)
        file->form =
            (struct log_form){.kind = options->time, .name = names[options->time], .client = 1};
    if (file->form.kind == LOG_JSON && file->form.time_name == NULL) {
        fprintf(stderr,
                "stint %s: %s: no field is known to have the time. Known are ts, StartUTC, "
                "StartLocal, msec, time_iso8601, time_local, time, start_time, @timestamp and "
                "timestamp\n",
                options->command, path);
        return EXIT_FAILED;
    }
    int code = EXIT_GOOD;
    for (size_t i = 0; i < options->part_count && code == EXIT_GOOD; i++)
        code = check_part(options, file, sample, &options->parts[i]);
    return code;
}

static int failed(const struct requests *requests, const struct access_log *log,
                  const struct log_file *file) {
    fprintf(stderr, "stint %s: %s: %s", requests->options->command, requests_path(file->path),
            log->error);
    if (file->lines != 0)
        fprintf(stderr, ", after line %" PRIu64, file->lines);
    fputc('\n', stderr);
    return EXIT_FAILED;
}

static int read_file(struct requests *requests, struct log_file *file) {
    struct progress progress = {.on = false};
    struct sample *sample = must_have(calloc(1, sizeof(*sample)));
    struct access_log log;
    struct text line;
    int code = EXIT_FAILED;

    if (!access_log_open(&log, file->path)) {
        free(sample);
        return failed(requests, &log, file);
    }
    enum access_log_outcome outcome = take_sample(&log, sample);
    code = find_form(requests->options, file, sample);
    if (code == EXIT_GOOD) {
        if (log.size != 0)
            progress_start(&progress, "reading", log.size);
        for (size_t i = 0; i < sample->count; i++)
            read_line(requests, file, sample->lines[i]);
        while (outcome == LOG_LINE && (outcome = next_line(&log, &line)) == LOG_LINE) {
            read_line(requests, file, line);
            if (file->lines % 1024 == 0)
                progress_update(&progress, log.consumed);
        }
        progress_end(&progress);
        if (outcome == LOG_FAILED)
            code = failed(requests, &log, file);
    }
    access_log_close(&log);
    free(sample->bytes.bytes);
    free(sample);
    return code;
}

static int by_bytes(const void *one, const void *other) {
    return memcmp(one, other, 8);
}

/* How many of the keys are IPv6 addresses, and in how many networks of 64 bits: whoever has one of
 * these may use all its addresses. */
static void count_networks(struct requests *requests) {
    unsigned char(*networks)[8] = must_have(malloc((size_t)requests->keys.count * 8 + 8));
    char copy[INET6_ADDRSTRLEN];
    unsigned char address[16];
    size_t count = 0;

    for (uint32_t i = 0; i < requests->keys.count; i++) {
        const struct text name = log_key_name(&requests->keys, i);
        if (name.length >= sizeof(copy) || memchr(name.bytes, ':', name.length) == NULL)
            continue;
        memcpy(copy, name.bytes, name.length);
        copy[name.length] = '\0';
        if (inet_pton(AF_INET6, copy, address) == 1)
            memcpy(networks[count++], address, 8);
    }
    qsort(networks, count, 8, by_bytes);
    requests->ipv6 = count;
    for (size_t i = 0; i < count; i++)
        requests->networks += i == 0 || memcmp(networks[i - 1], networks[i], 8) != 0;
    free(networks);
}

static int by_time(const void *one, const void *other) {
    const struct request *a = one, *b = other;
    if (a->now != b->now)
        return a->now < b->now ? -1 : 1;
    return (a->number > b->number) - (a->number < b->number);
}

/* ---- What cannot be read -------------------------------------------------------------------- */

/* Says what is wrong with what was read, if no figure can be made of it. */
static int check(const struct requests *requests) {
    const char *command = requests->options->command;
    uint64_t unreadable = requests->lines - requests->count;
    char a[32], b[32];
    bool unknown = false;

    for (size_t i = 0; i < requests->options->file_count; i++) {
        const struct log_file *file = &requests->files[i];
        if (file->readable != 0 || (file->lines == 0 && requests->lines != 0))
            continue;
        fprintf(stderr, "stint %s: %s: %s\n", command, requests_path(file->path),
                file->lines == 0 ? "it is empty" : "no line of it can be read");
        unknown = true;
    }
    if (!unknown && unreadable * 100 <= requests->lines * UNREADABLE_PERCENT)
        return EXIT_GOOD;
    if (!unknown)
        fprintf(stderr, "stint %s: %s of %s lines cannot be read, more than %d%%:\n", command,
                grouped(a, unreadable), grouped(b, requests->lines), UNREADABLE_PERCENT);
    requests_print_unreadable(stderr, requests, 2);
    if (requests->lines != 0)
        fprintf(stderr,
                "Leave out what is no request (with grep, say), or tell how lines are read: stint "
                "%s --help\n",
                command);
    return EXIT_FAILED;
}

/* Whether it may be the name of a client: an address, or what comes again. */
static bool is_client(const struct text name, uint32_t count) {
    unsigned char address[16];
    char copy[INET6_ADDRSTRLEN + 4];

    if (count > 1 || name.length >= sizeof(copy))
        return count > 1;
    memcpy(copy, name.bytes, name.length);
    copy[name.length] = '\0';
    copy[strcspn(copy, " /")] = '\0';
    return inet_pton(AF_INET, copy, address) == 1 || inet_pton(AF_INET6, copy, address) == 1;
}

/* Says if the keys hardly look like clients. */
static void doubt(const struct requests *requests) {
    enum { LOOKED_AT = 1000, FEW = 10 };
    const uint32_t keys = requests->keys.count < LOOKED_AT ? requests->keys.count : LOOKED_AT;
    uint32_t *counts = must_have(calloc(keys + 1, sizeof(*counts))), clients = 0;
    const struct text first = log_key_name(&requests->keys, 0);
    char shown[80];

    for (size_t i = 0; i < requests->count; i++)
        if (requests->all[i].key < keys)
            counts[requests->all[i].key]++;
    for (uint32_t key = 0; key < keys; key++)
        clients += is_client(log_key_name(&requests->keys, key), counts[key]);
    if (keys > FEW && clients * 2 < keys)
        fprintf(stderr,
                "stint %s: note: most keys are no addresses, and do not come again: is '%s' a "
                "client? --key says what is one\n",
                requests->options->command,
                printable(shown, sizeof(shown), first.bytes, first.length));
    free(counts);
}

int requests_read(const struct log_options *options, struct requests *requests) {
    int code = EXIT_GOOD;

    *requests = (struct requests){
        .options = options, .whole_seconds = true, .timed = options->time != LOG_TIMELESS};
    requests->files = must_have(calloc(options->file_count, sizeof(*requests->files)));
    for (size_t i = 0; i < options->file_count && code == EXIT_GOOD; i++) {
        requests->files[i].path = options->files[i];
        code = read_file(requests, &requests->files[i]);
    }
    if (code == EXIT_GOOD)
        code = check(requests);
    if (code == EXIT_GOOD && requests->late != 0)
        qsort(requests->all, requests->count, sizeof(*requests->all), by_time);
    if (code == EXIT_GOOD) {
        count_networks(requests);
        doubt(requests);
    }
    return code;
}

uint64_t requests_step(const struct requests *requests, uint64_t parts) {
    const uint64_t second = 1000000000, millisecond = 1000000;
    uint64_t length = (requests->last_ns - requests->first_ns) / parts + 1;
    uint64_t unit = requests->whole_seconds || length >= 60 * second ? second
                    : length >= millisecond                          ? millisecond
                                                                     : 1;
    return (length + unit - 1) / unit * unit;
}

struct text requests_agent(const struct requests *requests, uint32_t key) {
    return log_key_name(&requests->agents, requests->agent_of[key]);
}

void requests_free(struct requests *requests) {
    log_keys_free(&requests->keys);
    log_keys_free(&requests->agents);
    free(requests->agent_of);
    free(requests->all);
    free(requests->files);
}
