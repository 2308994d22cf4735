/* SPDX-License-Identifier: MIT */
#include "workload.h"

#include <ck_pr.h>
#include <time.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "keys.h"
#include "ticks.h"

_Thread_local uint64_t bench_now;

uint64_t bench_clock(void) {
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

/* The clock is read once for a batch: a server has the requests of one wake-up in hand. It fetches a key's line as
 * soon as it knows the key. */
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
                          "                 windows of all keys end; with --latency only",
                  .timed = time_take_at,
                  .floor = FLOOR_TAKE_AT,
                  .far_floor = FLOOR_LOAD,
                  .windows = true},
};

/* ---- Floors ---- */

static inline uint64_t hash_of(const struct target *target, const struct chunk *chunk, size_t i) {
    return XXH3_64bits_withSecret(chunk->bytes + i * target->key_length, target->key_length,
                                  target->secret, STINT_SECRET_SIZE);
}

static inline uint64_t add_one(const struct target *target, uint64_t line) {
    return ck_pr_faa_64(&target->lines[line].count, 1);
}

static uint64_t floor_take(const struct target *target, const struct chunk *chunk) {
    uint64_t sum = 0;

    for (size_t i = 0; i < chunk->n; i++) {
        struct timespec time;
        clock_gettime(CLOCK_REALTIME_COARSE, &time);
        uint64_t now = (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
        uint64_t line = scale64(hash_of(target, chunk, i), target->line_count);
        sum += add_one(target, line) < now;
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
};
