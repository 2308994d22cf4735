/* SPDX-License-Identifier: MIT
 * stint replay: what limits would have done to the requests in an access log.
 *
 *     options -> read the log into requests (time, key) -> for each limit: decide all, tell by key
 *     and by time who was refused -> report
 *
 * All requests are read before the first is decided, so that deciding is timed alone and the
 * limiter is opened with room for every key of the log. */
#include "replay.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"

/* uthash, because refusals are told by the name of the key, which the limiter does not keep, and
 * because the C library's own hash tables take terminated strings only. */
#define uthash_fatal(message) must_have(NULL)
#include <uthash.h>

struct key {
    UT_hash_handle hh;
    bool decided;              /* some request of it is */
    uint64_t allowed, refused; /* by the limit in hand */
    size_t length;
    char bytes[]; /* the fields, a blank between two: no field has one in it */
};

struct request {
    uint64_t now; /* ns since the epoch: as it was read; then the latest time seen up to here */
    struct key *key;
};

struct replay {
    struct log_summary log;
    replay_print *print;
    uint64_t top;
    const char **limits; /* the notations */
    size_t limit_count;

    struct key *keys; /* uthash */
    struct request *requests;
    size_t request_room; /* log.readable of them are filled; then log.requests */
    struct run *runs;    /* all of them, in the order of the log */
    size_t run_count, run_room;
};

static const char command[] = "replay";

/* ---- Options -------------------------------------------------------------------------------- */

static const char help[] =
    "Usage: stint replay --limit LIMIT [OPTIONS] FILE\n"
    "\n"
    "Reads an access log and shows what limits would have done to its requests.\n"
    "\n"
    "  FILE                   plain or gzip; - is the standard input\n"
    "  --limit LIMIT          a policy, such as 20/minute; several are told apart, each by itself\n"
    "  --key FIELD[,FIELD..]  what is limited: fields counted from 1, as awk does [1]\n"
    "  --time clf|epoch|none  where the time stands [clf]\n"
    "                           clf    [17/May/2015:10:05:03 +0000]: common and combined format\n"
    "                           epoch  the first field, seconds with or without decimals\n"
    "                           none   nowhere: all requests happen at one instant\n"
    "  --format table|json    [table]\n"
    "  --top N                how many of the most refused keys to name [10]\n"
    "\n"
    "The clock is the latest time seen so far, as a live server would have had it. Lines that are "
    "out of\n"
    "order by more than a day are told and left out, as one time far ahead would be the clock for "
    "all\n"
    "that follow. Requests that a policy would refuse count as refused, even if it is a shadow.\n"
    "Exit codes: 0 good, 1 the log cannot be read or no line of it can, 2 wrong usage.\n";

/* Reads "1" or "1,7". */
static bool parse_fields(const char *text, struct log_summary *log) {
    for (log->field_count = 0; log->field_count < REPLAY_FIELDS_MAX;) {
        unsigned number = 0;
        size_t digits = strspn(text, "0123456789");
        if (digits == 0 || digits > 6)
            return false;
        for (size_t i = 0; i < digits; i++)
            number = number * 10 + (unsigned)(text[i] - '0');
        if (number == 0)
            return false;
        log->fields[log->field_count++] = number;
        if (text[digits] == '\0')
            return true;
        if (text[digits] != ',')
            return false;
        text += digits + 1;
    }
    return false;
}

/* Returns EXIT_GOOD, EXIT_USAGE, or -1 if there is nothing more to do. */
static int parse_options(struct replay *replay, int argc, char **argv) {
    static const char *const times[] = {"clf", "epoch", "none"};
    static const char *const formats[] = {"table", "json"};
    static replay_print *const prints[] = {replay_print_table, replay_print_json, NULL};
    enum { LIMIT = 256, KEY, TIME, FORMAT, TOP, HELP };
    static const struct option options[] = {
        {"limit", required_argument, NULL, LIMIT},
        {"key", required_argument, NULL, KEY},
        {"time", required_argument, NULL, TIME},
        {"format", required_argument, NULL, FORMAT},
        {"top", required_argument, NULL, TOP},
        {"help", no_argument, NULL, HELP},
        {NULL, 0, NULL, 0},
    };
    struct stint_policy policy = STINT_POLICY_INIT;
    const char *wrong = NULL;
    bool key_given = false;
    int option;

    while ((option = tool_option(command, argc, argv, ":h", options)) != OPTIONS_END) {
        switch (option) {
        case LIMIT:
            if (stint_policy_parse(optarg, &policy, &wrong) != 0)
                return notation_error(command, "--limit", optarg, wrong);
            if ((policy.flags & STINT_IN_FLIGHT) != 0)
                return usage_error(command,
                                   "--limit '%s': a log does not tell how long each request was in "
                                   "flight",
                                   optarg);
            replay->limits[replay->limit_count++] = optarg;
            break;
        case KEY:
            if (!parse_fields(optarg, &replay->log))
                return usage_error(command,
                                   "--key '%s': not up to %d field numbers from 1 on, such as 1,7",
                                   optarg, REPLAY_FIELDS_MAX);
            key_given = true;
            break;
        case TIME:
            replay->log.time = (enum time_format)parse_word(optarg, times, 3);
            if (replay->log.time > TIME_NONE)
                return usage_error(command, "--time '%s': not clf, epoch or none", optarg);
            break;
        case FORMAT:
            replay->print = prints[parse_word(optarg, formats, 2)];
            if (replay->print == NULL)
                return usage_error(command, "--format '%s': not table or json", optarg);
            break;
        case TOP:
            if (!parse_count(optarg, 0, 1000000000, &replay->top))
                return usage_error(command, "--top '%s': not a number from 0 to 1G", optarg);
            break;
        case HELP:
        case 'h':
            fputs(help, stdout);
            return -1;
        default:
            return EXIT_USAGE;
        }
    }
    if (replay->limit_count == 0)
        return usage_error(command, "--limit is missing");
    if (optind == argc)
        return usage_error(command, "FILE is missing");
    if (optind + 1 < argc)
        return usage_error(command, "'%s': one FILE is enough", argv[optind + 1]);
    replay->log.file = argv[optind];
    if (replay->log.time == TIME_EPOCH && !key_given)
        fputs("stint replay: note: the key is field 1, which is the time; --key names "
              "another\n",
              stderr);
    return EXIT_GOOD;
}

/* ---- Reading -------------------------------------------------------------------------------- */

/* Finds a key by its bytes, and adds it if it is new. */
static struct key *key_named(struct replay *replay, struct text name) {
    struct key *key;
    unsigned hash;

    HASH_VALUE(name.bytes, name.length, hash);
    HASH_FIND_BYHASHVALUE(hh, replay->keys, name.bytes, name.length, hash, key);
    if (key != NULL)
        return key;
    key = must_have(malloc(sizeof(*key) + name.length));
    key->decided = false;
    key->length = name.length;
    memcpy(key->bytes, name.bytes, name.length);
    HASH_ADD_KEYPTR_BYHASHVALUE(hh, replay->keys, key->bytes, name.length, hash, key);
    return key;
}

/* Joins the key's fields. One field is left where it is; several are put together in a buffer that
 * stays for the next line. Returns NULL, or why there is no key. */
static const char *name_of(const struct log_summary *log, struct text line, struct text *name) {
    static char *buffer;
    static size_t room;
    size_t length = 0;

    if (log->field_count == 1)
        return text_field(line, log->fields[0], name) ? NULL : "a field of the key is missing";
    for (size_t i = 0; i < log->field_count; i++) {
        struct text field;
        if (!text_field(line, log->fields[i], &field))
            return "a field of the key is missing";
        if (length + field.length + 1 > room) {
            room = 2 * (length + field.length + 1);
            buffer = must_have(realloc(buffer, room));
        }
        if (i > 0)
            buffer[length++] = ' ';
        memcpy(buffer + length, field.bytes, field.length);
        length += field.length;
    }
    *name = (struct text){buffer, length};
    return NULL;
}

/* Adds a line that has this time to the present run, or begins another. */
static void run_add(struct replay *replay, uint64_t time_ns, uint64_t number) {
    struct run *run = replay->run_count == 0 ? NULL : &replay->runs[replay->run_count - 1];

    if (run == NULL || time_ns > run->last_ns + ORDER_FAR_NS ||
        time_ns + ORDER_FAR_NS < run->last_ns) {
        if (replay->run_count == replay->run_room) {
            replay->run_room = 2 * replay->run_room + 16;
            replay->runs =
                must_have(realloc(replay->runs, replay->run_room * sizeof(*replay->runs)));
        }
        run = &replay->runs[replay->run_count++];
        *run = (struct run){.first_ns = time_ns, .line = number};
    }
    run->last_ns = time_ns;
    run->last_line = number;
    run->count++;
}

/* Makes a request of a line. Returns NULL, or why it cannot be read. */
static const char *read_line(struct replay *replay, struct text line, uint64_t number) {
    struct log_summary *log = &replay->log;
    struct text name, field;
    const char *why = NULL;
    uint64_t time_ns = 0;

    if (!text_field(line, 1, &field))
        return "the line is empty";
    /* Without times any instant does; this one is a Saturday's midnight, and no edge of the
     * clock. */
    if (log->time == TIME_NONE)
        time_ns = UINT64_C(946684800000000000);
    else
        why =
            log->time == TIME_CLF ? text_time_clf(line, &time_ns) : text_time_epoch(line, &time_ns);
    if (why == NULL)
        why = name_of(log, line, &name);
    if (why != NULL)
        return why;

    if (log->readable == replay->request_room) {
        replay->request_room = replay->request_room == 0 ? 4096 : 2 * replay->request_room;
        replay->requests =
            must_have(realloc(replay->requests, replay->request_room * sizeof(*replay->requests)));
    }
    run_add(replay, time_ns, number);
    replay->requests[log->readable++] =
        (struct request){.now = time_ns, .key = key_named(replay, name)};
    return NULL;
}

/* A request that is decided: the clock is the latest time seen so far. */
static void request_keep(struct replay *replay, struct request request) {
    struct log_summary *log = &replay->log;

    if (log->requests == 0)
        log->first_ns = request.now;
    else if (request.now < log->last_ns)
        log->late++;
    if (request.now > log->last_ns)
        log->last_ns = request.now;
    log->keys += !request.key->decided;
    request.key->decided = true;
    request.now = log->last_ns;
    replay->requests[log->requests++] = request;
}

/* Leaves out what is far out of order, and sets the clock for the rest. */
static void requests_order(struct replay *replay) {
    struct log_summary *log = &replay->log;
    size_t from = 0;

    order_runs(replay->runs, replay->run_count);
    for (size_t i = 0; i < replay->run_count; i++) {
        const struct run *run = &replay->runs[i];
        const size_t end = from + run->count;
        if (!run->kept) {
            if (log->left_out_runs < REPLAY_LEFT_OUT_MAX)
                log->left_out_run[log->left_out_runs] = *run;
            log->left_out_runs++;
            log->left_out += run->count;
            from = end;
        }
        for (; from < end; from++)
            request_keep(replay, replay->requests[from]);
    }
}

static bool read_log(struct replay *replay) {
    struct log_summary *log = &replay->log;
    const char *name = strcmp(log->file, "-") == 0 ? "standard input" : log->file;
    struct access_log file;
    struct progress progress = {0};
    enum access_log_outcome outcome;
    struct text line;
    uint64_t unreadable = 0;

    if (!access_log_open(&file, log->file)) {
        fprintf(stderr, "stint replay: %s: %s\n", name, file.error);
        return false;
    }
    if (file.size != 0)
        progress_start(&progress, "reading", file.size);
    while ((outcome = access_log_next(&file, &line)) == LOG_LINE || outcome == LOG_TOO_LONG) {
        const char *why =
            outcome == LOG_LINE ? read_line(replay, line, file.lines) : "it is too long";
        if (why != NULL) {
            if (unreadable < REPLAY_UNREADABLE_MAX)
                log->unreadable[unreadable] = (struct unreadable_line){file.lines, why};
            unreadable++;
        }
        if (file.lines % 1024 == 0)
            progress_update(&progress, file.consumed);
    }
    progress_end(&progress);
    log->lines = file.lines;
    if (outcome == LOG_FAILED) {
        fprintf(stderr, "stint replay: %s: %s", name, file.error);
        if (file.lines != 0)
            fprintf(stderr, ", after line %llu", (unsigned long long)file.lines);
        fputc('\n', stderr);
    }
    access_log_close(&file);
    if (outcome == LOG_FAILED)
        return false;

    if (log->readable != 0) {
        requests_order(replay);
        return true;
    }
    fprintf(stderr, "stint replay: %s: %s\n", name,
            log->lines == 0 ? "it is empty" : "no line of it can be read");
    for (size_t i = 0; i < unreadable && i < REPLAY_UNREADABLE_MAX; i++)
        fprintf(stderr, "  line %llu: %s\n", (unsigned long long)log->unreadable[i].number,
                log->unreadable[i].why);
    if (unreadable > REPLAY_UNREADABLE_MAX)
        fprintf(stderr, "  and %llu more\n",
                (unsigned long long)(unreadable - REPLAY_UNREADABLE_MAX));
    return false;
}

/* ---- Deciding ------------------------------------------------------------------------------- */

/* The limiter's clock. The limiter asks it when a slot looks as if the clock had been stepped back;
 * this one stands where the log stands. */
static uint64_t log_clock_ns;
static uint64_t log_clock(void) {
    return log_clock_ns;
}

static stint_key hash_key(const struct stint_limiter *limiter, const struct key *key,
                          size_t field_count) {
    if (field_count == 1)
        return stint_key_of(limiter, key->bytes, key->length);

    const char *at = key->bytes, *end = key->bytes + key->length;
    const char *blank = memchr(at, ' ', key->length);
    stint_key joined = stint_key_of(limiter, at, (size_t)(blank - at));
    while (blank != NULL) {
        at = blank + 1;
        blank = memchr(at, ' ', (size_t)(end - at));
        joined = stint_key_join(limiter, joined, at, (size_t)((blank != NULL ? blank : end) - at));
    }
    return joined;
}

/* Decides all requests in order; refused[i] says which were refused, or would have been if the
 * policy were not a shadow. Returns how many found the table full. */
static uint64_t decide_all(const struct replay *replay, struct stint_limiter *limiter,
                           uint32_t policy, bool *refused, uint64_t *elapsed_ns) {
    enum { STRETCH = 1 << 16 }; /* between two looks at the progress bar, which are not timed */
    /* A server has just read the key's bytes; here they are fetched ahead, so that what is timed is
     * the decision and not this program's walk through its own memory. */
    enum { AHEAD = 16 };
    size_t count = replay->log.requests, fields = replay->log.field_count;
    uint64_t untracked = 0;
    struct progress progress;

    progress_start(&progress, "deciding", count);
    *elapsed_ns = 0;
    for (size_t from = 0; from < count; from += STRETCH) {
        size_t to = count - from < STRETCH ? count : from + STRETCH;
        uint64_t start_ns = monotonic_ns();
        for (size_t i = from; i < to; i++) {
            const struct request *request = &replay->requests[i];
            struct stint_verdict verdict;
            if (count - i > AHEAD) {
                __builtin_prefetch(&request[AHEAD].key->length);
                __builtin_prefetch(request[AHEAD].key->bytes);
            }
            log_clock_ns = request->now;
            stint_key key = hash_key(limiter, request->key, fields);
            bool allowed = stint_take(limiter, policy, key, 1, request->now, &verdict);
            refused[i] = !allowed || (verdict.flags & STINT_SHADOWED) != 0;
            untracked += (verdict.flags & STINT_UNTRACKED) != 0;
        }
        *elapsed_ns += monotonic_ns() - start_ns;
        progress_update(&progress, to);
    }
    progress_end(&progress);
    return untracked;
}

/* Opens a limiter with room for all keys, adds the policy and decides. */
static int run_limiter(const struct replay *replay, const struct stint_policy *policy,
                       struct limit_result *result, bool *refused) {
    struct stint_options options = STINT_OPTIONS_INIT;
    uint64_t untracked;

    options.clock = log_clock;
    options.flags = STINT_PREFAULT; /* so that page faults are not timed */
    options.max_entries = replay->log.keys;
    do {
        struct stint_limiter *limiter;
        struct stint_policy added = STINT_POLICY_INIT;
        log_clock_ns = replay->log.first_ns;
        if (stint_open(&options, &limiter) < 0) {
            fprintf(stderr, "stint replay: a limiter for %llu keys: %s\n",
                    (unsigned long long)options.max_entries, reason());
            return EXIT_FAILED;
        }
        uint32_t id;
        if (stint_policy_add(limiter, policy, &id) != 0) {
            stint_close(limiter);
            return notation_error(command, "--limit", result->notation, NULL);
        }
        stint_policy_get(limiter, id, &added);
        memcpy(result->name, added.name, sizeof(result->name));
        untracked = decide_all(replay, limiter, id, refused, &result->elapsed_ns);
        struct stint_policy_stats stats = STINT_POLICY_STATS_INIT;
        stint_policy_stats_get(limiter, id, &stats);
        result->bans = stats.bans;
        result->banning = added.ban != 0;
        stint_close(limiter);
        /* A key found no slot: hardly ever, but then the counts are off. */
        options.max_entries *= 2;
    } while (untracked != 0);
    return EXIT_GOOD;
}

/* How long a bucket is: the log's span in REPLAY_BUCKETS_MAX parts, rounded up to a unit that fits
 * the times; in a short log there are then fewer buckets. */
static uint64_t bucket_length(const struct log_summary *log) {
    const uint64_t second = 1000000000, millisecond = 1000000;
    uint64_t length = (log->last_ns - log->first_ns) / REPLAY_BUCKETS_MAX + 1;
    uint64_t unit = log->time == TIME_CLF || length >= 60 * second ? second
                    : length >= millisecond                        ? millisecond
                                                                   : 1;
    return (length + unit - 1) / unit * unit;
}

static int compare_refused(const void *a, const void *b) {
    const struct refused_key *x = a, *y = b;
    if (x->refused != y->refused)
        return x->refused < y->refused ? 1 : -1;
    size_t shorter = x->name.length < y->name.length ? x->name.length : y->name.length;
    int order = memcmp(x->name.bytes, y->name.bytes, shorter);
    return order != 0 ? order
                      : (x->name.length > y->name.length) - (x->name.length < y->name.length);
}

/* Counts by key and by time who was refused. */
static void count_refused(struct replay *replay, const bool *refused, struct limit_result *result) {
    const struct log_summary *log = &replay->log;
    struct key *key, *next;

    HASH_ITER(hh, replay->keys, key, next) {
        key->allowed = key->refused = 0;
    }
    result->bucket_ns = bucket_length(log);
    if (log->time != TIME_NONE)
        result->bucket_count = (log->last_ns - log->first_ns) / result->bucket_ns + 1;
    for (size_t i = 0; i < log->requests; i++) {
        const struct request *request = &replay->requests[i];
        if (!refused[i]) {
            result->allowed++;
            request->key->allowed++;
            continue;
        }
        result->refused++;
        result->keys_refused += request->key->refused++ == 0;
        if (log->time != TIME_NONE)
            result->buckets[(request->now - log->first_ns) / result->bucket_ns]++;
    }

    if (result->keys_refused == 0 || replay->top == 0)
        return;
    struct refused_key *all = must_have(malloc(result->keys_refused * sizeof(*all)));
    size_t count = 0;
    HASH_ITER(hh, replay->keys, key, next) {
        if (key->refused != 0)
            all[count++] =
                (struct refused_key){{key->bytes, key->length}, key->refused, key->allowed};
    }
    qsort(all, count, sizeof(*all), compare_refused);
    result->top = all;
    result->top_count = count < replay->top ? count : (size_t)replay->top;
}

static int decide_limits(struct replay *replay, struct limit_result *results) {
    bool *refused = must_have(calloc(replay->log.requests, sizeof(*refused)));
    int code = EXIT_GOOD;

    for (size_t i = 0; i < replay->limit_count && code == EXIT_GOOD; i++) {
        struct stint_policy policy = STINT_POLICY_INIT;
        results[i].notation = replay->limits[i];
        if (stint_policy_parse(replay->limits[i], &policy, NULL) != 0)
            abort(); /* it was read once before */
        code = run_limiter(replay, &policy, &results[i], refused);
        if (code == EXIT_GOOD)
            count_refused(replay, refused, &results[i]);
    }
    free(refused);
    return code;
}

/* ---- The command ---------------------------------------------------------------------------- */

static int replay_log(struct replay *replay) {
    if (!read_log(replay))
        return EXIT_FAILED;
    struct limit_result *results = must_have(calloc(replay->limit_count, sizeof(*results)));
    int code = decide_limits(replay, results);
    if (code == EXIT_GOOD) {
        if (!replay->print(stdout, &replay->log, results, replay->limit_count) ||
            fflush(stdout) != 0) {
            fprintf(stderr, "stint replay: the report cannot be written: %s\n", strerror(errno));
            code = EXIT_FAILED;
        }
    }
    for (size_t i = 0; i < replay->limit_count; i++)
        free(results[i].top);
    free(results);
    return code;
}

int tool_replay(int argc, char **argv) {
    struct replay replay = {
        .log = {.fields = {1}, .field_count = 1}, .top = 10, .print = replay_print_table};
    struct key *key, *next;

    /* No more than there are arguments. */
    replay.limits = must_have(calloc((size_t)argc, sizeof(*replay.limits)));
    int code = parse_options(&replay, argc, argv);
    if (code == EXIT_GOOD)
        code = replay_log(&replay);
    HASH_ITER(hh, replay.keys, key, next) {
        HASH_DEL(replay.keys, key);
        free(key);
    }
    free(replay.requests);
    free(replay.runs);
    free(replay.limits);
    return code == -1 ? EXIT_GOOD : code;
}
