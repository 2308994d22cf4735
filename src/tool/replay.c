/* SPDX-License-Identifier: MIT
 * stint replay: what limits would have done to the requests in access logs.
 *
 *     options -> read the logs into requests (time, key) -> for each limit: decide all, tell by key
 *     and by time who was refused -> report
 *
 * All requests are read before the first is decided, so that deciding is timed alone and the
 * limiter is opened with room for every key of the logs. */
#include "replay.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"

/* What a limit has done to a key. */
struct tally {
    uint64_t allowed, refused;
};

struct replay {
    struct log_options log;
    struct requests requests;
    replay_print *print;
    uint64_t top;
    const char **limits; /* the notations */
    size_t limit_count;
};

static const char command[] = "replay";

/* ---- Options -------------------------------------------------------------------------------- */

static const char help[] =
    "Usage: stint replay --limit LIMIT [OPTIONS] LOG...\n"
    "\n"
    "Reads access logs and shows what limits would have done to their requests.\n"
    "\n";
static const char more_help[] =
    "  --limit LIMIT          a policy, such as 20/minute; several are told apart, each by itself\n"
    "  --format table|json    [table]\n"
    "  --top N                how many of the most refused keys to name [10]\n"
    "\n"
    "Requests are decided in the order of their times. Those that a policy would refuse count as\n"
    "refused, even if it is a shadow. stint advise says which limits to try.\n"
    "Exit codes: 0 good, 1 a log cannot be read, or more than 5% of the lines, 2 wrong usage.\n";

/* Returns EXIT_GOOD, EXIT_USAGE, or -1 if there is nothing more to do. */
static int parse_options(struct replay *replay, int argc, char **argv) {
    static const char *const formats[] = {"table", "json"};
    static replay_print *const prints[] = {replay_print_table, replay_print_json, NULL};
    enum { LIMIT = 256, FORMAT, TOP, HELP };
    static const struct option options[] = {
        {"limit", required_argument, NULL, LIMIT},   LOG_OPTIONS,
        {"format", required_argument, NULL, FORMAT}, {"top", required_argument, NULL, TOP},
        {"help", no_argument, NULL, HELP},           {NULL, 0, NULL, 0},
    };
    struct stint_policy policy = STINT_POLICY_INIT;
    const char *wrong = NULL;
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
        case LOG_OPTION_KEY:
        case LOG_OPTION_ADDRESS:
        case LOG_OPTION_TIME:
            if (log_option(&replay->log, option) != EXIT_GOOD)
                return EXIT_USAGE;
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
            printf("%s%s%s", help, log_options_help, more_help);
            return -1;
        default:
            return EXIT_USAGE;
        }
    }
    if (replay->limit_count == 0)
        return usage_error(command, "--limit is missing");
    return log_operands(&replay->log, argc, argv);
}

/* ---- Deciding ------------------------------------------------------------------------------- */

/* The limiter's clock. The limiter asks it when a slot looks as if the clock had been stepped back;
 * this one stands where the log stands. */
static uint64_t log_clock_ns;
static uint64_t log_clock(void) {
    return log_clock_ns;
}

/* Decides all requests in order; refused[i] says which were refused, or would have been if the
 * policy were not a shadow. Returns how many found the table full. */
static uint64_t decide_all(const struct replay *replay, struct stint_limiter *limiter,
                           uint32_t policy, bool *refused, uint64_t *elapsed_ns) {
    enum { STRETCH = 1 << 16 }; /* between two looks at the progress bar, which are not timed */
    /* A server has just read the key's bytes; here they are fetched ahead, so that what is timed is
     * the decision and not this program's walk through its own memory. */
    enum { AHEAD = 16 };
    const struct requests *requests = &replay->requests;
    const size_t count = requests->count;
    uint64_t untracked = 0;
    struct progress progress;

    progress_start(&progress, "deciding", count);
    *elapsed_ns = 0;
    for (size_t from = 0; from < count; from += STRETCH) {
        size_t to = count - from < STRETCH ? count : from + STRETCH;
        uint64_t start_ns = monotonic_ns();
        for (size_t i = from; i < to; i++) {
            const struct request *request = &requests->all[i];
            struct stint_verdict verdict;
            if (count - i > AHEAD)
                __builtin_prefetch(log_key_name(&requests->keys, request[AHEAD].key).bytes);
            const struct text name = log_key_name(&requests->keys, request->key);
            log_clock_ns = request->now;
            stint_key key = stint_key_of(limiter, name.bytes, name.length);
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
    options.max_entries = replay->requests.keys.count;
    do {
        struct stint_limiter *limiter;
        struct stint_policy added = STINT_POLICY_INIT;
        log_clock_ns = replay->requests.first_ns;
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

static int compare_refused(const void *a, const void *b) {
    const struct refused_key *x = a, *y = b;
    if (x->refused != y->refused)
        return x->refused < y->refused ? 1 : -1;
    return text_order(x->name, y->name);
}

/* Counts by key and by time who was refused. */
static void count_refused(struct replay *replay, const bool *refused, struct limit_result *result) {
    const struct requests *requests = &replay->requests;
    struct tally *tallies = must_have(calloc(requests->keys.count, sizeof(*tallies)));

    result->step_ns = requests_step(requests, REPLAY_STEPS_MAX);
    if (requests->timed)
        result->step_count = (requests->last_ns - requests->first_ns) / result->step_ns + 1;
    for (size_t i = 0; i < requests->count; i++) {
        const struct request *request = &requests->all[i];
        struct tally *tally = &tallies[request->key];
        if (!refused[i]) {
            result->allowed++;
            tally->allowed++;
            continue;
        }
        result->refused++;
        result->keys_refused += tally->refused++ == 0;
        if (requests->timed)
            result->steps[(request->now - requests->first_ns) / result->step_ns]++;
    }

    struct refused_key *all = must_have(malloc((result->keys_refused + 1) * sizeof(*all)));
    size_t count = 0;
    for (uint32_t i = 0; i < requests->keys.count; i++)
        if (tallies[i].refused != 0)
            all[count++] = (struct refused_key){log_key_name(&requests->keys, i),
                                                tallies[i].refused, tallies[i].allowed};
    qsort(all, count, sizeof(*all), compare_refused);
    result->top = all;
    result->top_count = count < replay->top ? count : (size_t)replay->top;
    free(tallies);
}

static int decide_limits(struct replay *replay, struct limit_result *results) {
    bool *refused = must_have(calloc(replay->requests.count, sizeof(*refused)));
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
    int code = requests_read(&replay->log, &replay->requests);
    if (code != EXIT_GOOD)
        return code;
    struct limit_result *results = must_have(calloc(replay->limit_count, sizeof(*results)));
    code = decide_limits(replay, results);
    if (code == EXIT_GOOD) {
        if (!replay->print(stdout, &replay->requests, results, replay->limit_count) ||
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
        .log = {.command = command, .time = LOG_UNKNOWN}, .top = 10, .print = replay_print_table};

    /* No more than there are arguments. */
    replay.limits = must_have(calloc((size_t)argc, sizeof(*replay.limits)));
    int code = parse_options(&replay, argc, argv);
    if (code == EXIT_GOOD)
        code = replay_log(&replay);
    requests_free(&replay.requests);
    free(replay.limits);
    return code == -1 ? EXIT_GOOD : code;
}
