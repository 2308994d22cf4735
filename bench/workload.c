/* SPDX-License-Identifier: MIT */
#include "workload.h"

#include <ck_pr.h>
#include <time.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "keys.h"
#include "paths.h"
#include "ticks.h"

_Thread_local uint64_t bench_now;

uint64_t bench_clock(void) {
    return bench_now;
}

uint64_t bench_still_clock(void) {
    struct timespec time;

    clock_gettime(CLOCK_REALTIME_COARSE, &time);
    return bench_now;
}

/* ---- Workloads ---- */

/* The answers are added up in a register, and kept only in a rehearsal: a store between two atomic
 * adds is not free, the second waits for it. */

static inline uint64_t take_each(const struct target *target, const struct chunk *chunk,
                                 uint64_t now) {
    size_t length = target->key_length;
    uint64_t count = 0;
    struct stint_verdict verdict;

    for (size_t i = 0; i < chunk->n; i++) {
        stint_key key = stint_key_of(target->limiter, chunk->bytes + i * length, length);
        bool allowed = stint_take(target->limiter, target->policy, key, 1, now, &verdict);
        count += allowed;
        if (chunk->answers != NULL)
            chunk->answers[i] = allowed;
    }
    return count;
}

static uint64_t take(const struct target *target, const struct chunk *chunk) {
    return take_each(target, chunk, STINT_NOW);
}

static uint64_t take_at(const struct target *target, const struct chunk *chunk) {
    return take_each(target, chunk, chunk->now);
}

/* The clock is read once for a batch: a server has the requests of one wake-up in hand. It fetches
 * a key's line as soon as it knows the key. */
static uint64_t batch(const struct target *target, const struct chunk *chunk) {
    size_t length = target->key_length;
    uint64_t count = 0;
    struct stint_request requests[BATCH];
    struct stint_verdict verdicts[BATCH];

    for (size_t i = 0; i < chunk->n; i += BATCH) {
        size_t n = chunk->n - i < BATCH ? chunk->n - i : BATCH;
        for (size_t j = 0; j < n; j++) {
            stint_key key = stint_key_of(target->limiter, chunk->bytes + (i + j) * length, length);
            stint_prefetch(target->limiter, key);
            requests[j] = (struct stint_request){.key = key, .policy = target->policy, .cost = 1};
        }
        count += stint_decide_batch(target->limiter, requests, n, STINT_NOW, verdicts);
        for (size_t j = 0; chunk->answers != NULL && j < n; j++)
            chunk->answers[i + j] = verdicts[j].allowed;
    }
    return count;
}

uint64_t policies_take(const struct target *target, const struct chunk *chunk) {
    size_t length = target->key_length;
    uint64_t count = 0;
    struct stint_verdict verdict;

    for (size_t i = 0; i < chunk->n; i++) {
        stint_key key = stint_key_of(target->limiter, chunk->bytes + i * length, length);
        bool allowed = stint_take(target->limiter, chunk->policy[i], key, 1, STINT_NOW, &verdict);
        count += allowed;
        if (chunk->answers != NULL)
            chunk->answers[i] = allowed;
    }
    return count;
}

/* Each call by itself: fences on both sides, so that nothing overlaps it. The empty section follows
 * at once, so that whatever disturbs the one is as likely to disturb the other. */
static inline uint64_t time_each(const struct target *target, const struct chunk *chunk,
                                 uint64_t now) {
    size_t length = target->key_length;
    uint64_t count = 0;
    struct stint_verdict verdict;

    for (size_t i = 0; i < chunk->n; i++) {
        uint64_t started = ticks_start();
        stint_key key = stint_key_of(target->limiter, chunk->bytes + i * length, length);
        bool allowed = stint_take(target->limiter, target->policy, key, 1, now, &verdict);
        uint64_t stopped = ticks_stop();
        uint64_t empty_started = ticks_start(), empty_stopped = ticks_stop();
        count += allowed;
        if (chunk->answers != NULL)
            chunk->answers[i] = allowed;
        if (chunk->timings != NULL) {
            histogram_add(&chunk->timings->call, ticks_ns(started, stopped));
            histogram_add(&chunk->timings->empty, ticks_ns(empty_started, empty_stopped));
        }
    }
    return count;
}

static uint64_t time_take(const struct target *target, const struct chunk *chunk) {
    return time_each(target, chunk, STINT_NOW);
}

static uint64_t time_take_at(const struct target *target, const struct chunk *chunk) {
    return time_each(target, chunk, chunk->now);
}

const struct workload_kind workloads[WORKLOADS] = {
    [TAKE] = {.name = "take",
              .help = "one request at a time; the limiter reads its clock",
              .run = take,
              .timed = time_take,
              .floor = FLOOR_TAKE,
              .far_floor = FLOOR_LOAD},
    [TAKE_AT] = {.name = "take-at",
                 .help = "the same with `now` given",
                 .run = take_at,
                 .timed = time_take_at,
                 .floor = FLOOR_TAKE_AT,
                 .far_floor = FLOOR_LOAD},
    [BATCH_16] = {.name = "batch",
                  .help = "16 requests in one call",
                  .run = batch,
                  .floor = FLOOR_XADD,
                  .far_floor = FLOOR_XADD},
    [REFUSE] = {.name = "refuse",
                .help = "take, of keys that have used up their limit",
                .run = take,
                .timed = time_take,
                .floor = FLOOR_TAKE,
                .far_floor = FLOOR_LOAD,
                .used_up = true},
    [FIRST_SEEN] = {.name = "first-seen",
                    .help = "take-at, of the last eighth of the keys that fill a new table",
                    .run = take_at,
                    .timed = time_take_at,
                    .floor = FLOOR_PRESENT,
                    .far_floor = FLOOR_PRESENT,
                    .windows = true,
                    .each_once = true,
                    .new_keys = true,
                    .new_table = true},
    [ROLL] = {.name = "roll",
              .help = "take-at, of keys whose window is over",
              .run = take_at,
              .timed = time_take_at,
              .floor = FLOOR_TAKE_AT,
              .far_floor = FLOOR_LOAD,
              .windows = true,
              .each_once = true},
    [CHURN] = {.name = "churn",
               .help = "take-at, of new keys in a table full of keys whose windows are over",
               .run = take_at,
               .timed = time_take_at,
               .floor = FLOOR_PRESENT,
               .far_floor = FLOOR_PRESENT,
               .windows = true,
               .each_once = true,
               .new_keys = true},
    [ROLL_ALL] = {.name = "roll-all",
                  .help = "take-at, as many as there are keys, from the instant at which the\n"
                          "             windows of all keys end; with --latency only",
                  .timed = time_take_at,
                  .floor = FLOOR_TAKE_AT,
                  .far_floor = FLOOR_LOAD,
                  .windows = true},

/* Beside what it is measured, and its struct path. */
#define PATH(beside, ...)                                                                          \
    .floor = (beside), .far_floor = (beside), .path = &(const struct path) {                       \
        __VA_ARGS__                                                                                \
    }
    /* Where 1 is the goal, it is one with the noise. */
    [PATH_COST] = {.name = "cost-5",
                   .help = "take, of cost 5",
                   .run = path_take_5,
                   PATH(FLOOR_PLAIN, .cost = 5, .parts = 1, .locked = FLOOR_SWAP,
                        .goal = {1.5, 1.2})},
    [PATH_OWN_LIMIT] = {.name = "own-limit",
                        .help = "take, by a limit of the request's own",
                        .run = path_decide,
                        PATH(FLOOR_PLAIN, .cost = 1, .own_limit = true, .parts = 1,
                             .locked = FLOOR_SWAP, .goal = {1.5, 1.2})},
    [PATH_ROLL_OVER] = {.name = "roll-over",
                        .help = "take, by a policy with a capacity above its limit",
                        .run = take,
                        PATH(FLOOR_PLAIN, .cost = 1, .roll_over = true, .parts = 1,
                             .locked = FLOOR_TAKE, .goal = {1.3, 1.1})},
    [PATH_RESERVABLE] = {.name = "reservable",
                         .help = "take, by a policy with max_reserved",
                         .run = take,
                         PATH(FLOOR_PLAIN, .cost = 1, .max_reserved = 1, .parts = 1,
                              .locked = FLOOR_TAKE, .goal = {1.3, 1.1})},
    [PATH_RESERVE] = {.name = "reserve",
                      .help = "the same, by a request that may reserve",
                      .run = path_decide,
                      PATH(FLOOR_PLAIN, .cost = 1, .flags = STINT_RESERVE, .max_reserved = 1,
                           .parts = 1, .locked = FLOOR_SWAP, .goal = {2, 1.6})},
    [PATH_SHADOW] = {.name = "shadow",
                     .help = "take, by a policy that lets all through",
                     .run = take,
                     PATH(FLOOR_PLAIN, .cost = 1, .policy_flags = STINT_SHADOW, .parts = 1,
                          .locked = FLOOR_TAKE, .goal = {1.05, 1.05})},
    [PATH_COUNTED] = {.name = "counted",
                      .help = "take, by a policy that counts what it refuses",
                      .run = take,
                      PATH(FLOOR_PLAIN, .cost = 1, .policy_flags = STINT_COUNT_REFUSED, .parts = 1,
                           .locked = FLOOR_TAKE, .goal = {1.05, 1.05})},
    [PATH_PEEK] = {.name = "peek",
                   .help = "a look",
                   .run = path_decide,
                   PATH(FLOOR_PLAIN, .cost = 1, .flags = STINT_PEEK, .parts = 1,
                        .leaves_nothing = true, .before = take, .locked = FLOOR_TAKE,
                        .goal = {1.3, 1.1})},
    [PATH_REFUND] = {.name = "refund",
                     .help = "take, and give back",
                     .run = path_refund,
                     PATH(FLOOR_PLAIN, .cost = 1, .parts = 1, .leaves_nothing = true,
                          .before = take, .locked = FLOOR_ADD_SWAP, .goal = {2.1, 1.4})},
    [PATH_SMOOTH] = {.name = "smooth",
                     .help = "take, by a sliding window",
                     .run = take,
                     PATH(FLOOR_PLAIN, .cost = 1, .policy_flags = STINT_SMOOTH, .still = true,
                          .parts = 1, .windows = 2, .locked = FLOOR_SWAP, .goal = {2, 1.6})},
    [PATH_PER_KEY] = {.name = "per-key",
                      .help = "take, by windows of each key's own",
                      .run = take,
                      PATH(FLOOR_PLAIN, .cost = 1, .policy_flags = STINT_START_PER_KEY,
                           .still = true, .parts = 1, .locked = FLOOR_TAKE, .goal = {2, 1.6})},
    [PATH_FIRST] = {.name = "first",
                    .help = "take, by windows that begin with each key's first request",
                    .run = take,
                    PATH(FLOOR_PLAIN, .cost = 1, .policy_flags = STINT_START_FIRST, .parts = 1,
                         .locked = FLOOR_TAKE, .goal = {2, 1.6})},
    [PATH_CALENDAR] = {.name = "calendar",
                       .help = "take, by years of the calendar",
                       .run = take,
                       PATH(FLOOR_PLAIN, .cost = 1, .calendar = STINT_CALENDAR_YEAR, .parts = 1,
                            .locked = FLOOR_TAKE, .goal = {2, 1.6})},
    [PATH_STRIPED] = {.name = "striped",
                      .help = "take, of keys in two stripes",
                      .run = take,
                      PATH(FLOOR_PLAIN, .cost = 1, .stripes = 2, .parts = 1, .locked = FLOOR_TAKE,
                           .goal = {2, 1.6})},

/* stint_decide_all. */
#define PATH_ALL(n, ...)                                                                           \
    .run = path_all, PATH(FLOOR_TAKES, .cost = 1, .parts = (n), .locked = FLOOR_PARTS, __VA_ARGS__)
    [PATH_ALL_1] = {.name = "all-1",
                    .help = "stint_decide_all of one request, `now` given",
                    PATH_ALL(1, .goal = {1.3, 1.3})},
    [PATH_ALL_2] = {.name = "all-2",
                    .help = "of a key by two policies",
                    PATH_ALL(2, .goal = {1.3, 1.3})},
    [PATH_ALL_3] = {.name = "all-3",
                    .help = "of a key by three policies",
                    PATH_ALL(3, .goal = {1.3, 1.3})},
    [PATH_ALL_2_KEYS] = {.name = "all-2-keys",
                         .help = "of two keys by a policy",
                         PATH_ALL(2, .each_key = true, .goal = {1.3, 1})},
    [PATH_ALL_3_KEYS] = {.name = "all-3-keys",
                         .help = "of three keys by a policy",
                         PATH_ALL(3, .each_key = true, .goal = {1.3, 1})},
    [PATH_GROUPS] = {.name = "groups",
                     .help = "a key by two policies as one, 32 keys in a call",
                     .run = path_groups,
                     PATH(FLOOR_BATCH, .cost = 1, .parts = 2, .locked = FLOOR_PARTS,
                          .goal = {1.5, 1.5})},
    [PATH_CHARGE] = {.name = "charge",
                     .help = "a charge, which is never refused",
                     .run = path_decide,
                     PATH(FLOOR_PLAIN, .cost = 1, .flags = STINT_CHARGE, .parts = 1, .before = take,
                          .locked = FLOOR_SWAP, .goal = {2, 1.6})},
};

/* ---- Floors ---- */

static inline uint64_t hash_of(const struct target *target, const struct chunk *chunk, size_t i) {
    return XXH3_64bits_withSecret(chunk->bytes + i * target->key_length, target->key_length,
                                  target->secret, STINT_SECRET_SIZE);
}

static inline uint64_t add_one(const struct target *target, uint64_t line) {
    return ck_pr_faa_64(&target->lines[line].count, 1);
}

static inline uint64_t coarse_now(void) {
    struct timespec time;

    clock_gettime(CLOCK_REALTIME_COARSE, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static uint64_t floor_take(const struct target *target, const struct chunk *chunk) {
    uint64_t sum = 0;

    for (size_t i = 0; i < chunk->n; i++) {
        uint64_t now = coarse_now();
        sum += add_one(target, scale64(hash_of(target, chunk, i), target->line_count)) < now;
    }
    return sum;
}

/* A slot is two words, which are swapped as one. */
static inline uint64_t swap_one(const struct target *target, uint64_t line) {
    struct line *slot = &target->lines[line];
    uint64_t old[2] = {ck_pr_load_64(&slot->count), ck_pr_load_64(&slot->zero)};
    uint64_t new[2] = {old[0] + 1, old[1]};

    return ck_pr_cas_64_2((void *)slot, old, new);
}

static inline uint64_t floor_swap_each(const struct target *target, const struct chunk *chunk,
                                       bool add) {
    uint64_t sum = 0;

    for (size_t i = 0; i < chunk->n; i++) {
        uint64_t now = coarse_now();
        uint64_t line = scale64(hash_of(target, chunk, i), target->line_count);
        if (add)
            sum += add_one(target, line);
        sum += swap_one(target, line) < now;
    }
    return sum;
}

static uint64_t floor_swap(const struct target *target, const struct chunk *chunk) {
    return floor_swap_each(target, chunk, false);
}

static uint64_t floor_add_swap(const struct target *target, const struct chunk *chunk) {
    return floor_swap_each(target, chunk, true);
}

/* An add for each part: to as many slots of a line, or to as many lines. */
static uint64_t floor_parts(const struct target *target, const struct chunk *chunk) {
    unsigned parts = target->path->parts, keys = target->path->each_key ? parts : 1;
    uint64_t sum = 0;

    for (size_t i = 0; i < chunk->n; i++)
        for (unsigned key = 0; key < keys; key++) {
            uint64_t line = scale64(hash_of(target, chunk, i * keys + key), target->line_count);
            for (unsigned part = 0; part < parts / keys; part++)
                sum += ck_pr_faa_64(&target->lines[line].count + 2 * part, 1);
        }
    return sum;
}

static uint64_t floor_take_at(const struct target *target, const struct chunk *chunk) {
    uint64_t sum = 0;

    for (size_t i = 0; i < chunk->n; i++)
        sum += add_one(target, scale64(hash_of(target, chunk, i), target->line_count));
    return sum;
}

static uint64_t floor_xadd(const struct target *target, const struct chunk *chunk) {
    uint64_t sum = 0;

    for (size_t i = 0; i < chunk->n; i++)
        sum += add_one(target, chunk->line[i]);
    return sum;
}

/* The address of each load needs the value of the one before it (which is 0, but the processor must
 * wait to see that). */
static uint64_t floor_load(const struct target *target, const struct chunk *chunk) {
    uint64_t zero = 0;

    for (size_t i = 0; i < chunk->n; i++)
        zero = ck_pr_load_64(&target->lines[chunk->line[i] + zero].zero);
    return zero;
}

const struct floor_kind floors[FLOORS] = {
    [FLOOR_TAKE] = {.name = "clock+hash+xadd", .run = floor_take},
    [FLOOR_TAKE_AT] = {.name = "hash+xadd", .run = floor_take_at},
    [FLOOR_XADD] = {.name = "xadd", .run = floor_xadd},
    [FLOOR_LOAD] = {.name = "dependent load", .run = floor_load},
    [FLOOR_PRESENT] = {.name = "present key", .run = take_at, .present = true},
    [FLOOR_ALONE] = {.name = "one alone", .alone = true},
    [FLOOR_SWAP] = {.name = "clock+hash+cas", .run = floor_swap},
    [FLOOR_ADD_SWAP] = {.name = "xadd+cas", .run = floor_add_swap},
    [FLOOR_PARTS] = {.name = "hash+xadds", .run = floor_parts},
    [FLOOR_PLAIN] = {.name = "plain take", .run = take},
    [FLOOR_TAKES] = {.name = "as many takes", .run = path_takes},
    [FLOOR_BATCH] = {.name = "batch of 64", .run = path_batch},
};
