/* SPDX-License-Identifier: MIT */
#include "workload.h"

#include <ck_cc.h>
#include <ck_pr.h>
#include <string.h>
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

static CK_CC_FORCE_INLINE uint64_t take_each(const struct target *target, const struct chunk *chunk,
                                             uint64_t now, uint32_t cost, bool policies) {
    size_t length = target->key_length;
    uint64_t count = 0;
    struct stint_verdict verdict;

    for (size_t i = 0; i < chunk->n; i++) {
        stint_key key = stint_key_of(target->limiter, chunk->bytes + i * length, length);
        uint32_t policy = policies ? chunk->policy[i] : target->policy;
        bool allowed = stint_take(target->limiter, policy, key, cost, now, &verdict);
        count += allowed;
        answer(chunk, i, allowed);
    }
    return count;
}

static uint64_t take(const struct target *target, const struct chunk *chunk) {
    return take_each(target, chunk, STINT_NOW, 1, false);
}

static uint64_t take_at(const struct target *target, const struct chunk *chunk) {
    return take_each(target, chunk, chunk->now, 1, false);
}

static uint64_t take_5(const struct target *target, const struct chunk *chunk) {
    return take_each(target, chunk, STINT_NOW, 5, false);
}

/* Of keys that are spread over several policies. */
static uint64_t take_policies(const struct target *target, const struct chunk *chunk) {
    return take_each(target, chunk, STINT_NOW, 1, true);
}

/* The same after each key was given a limit of its own, which nobody comes to, for longer than the
 * window. Of several parts the last has it. */
static uint64_t override_take(const struct target *target, const struct chunk *chunk) {
    const uint32_t policy = target->policy + target->parts - 1;
    const uint64_t until = stint_now(target->limiter) + 200 * UINT64_C(86400000000000);

    for (size_t i = 0; i < chunk->n; i++) {
        stint_key key = stint_key_of(target->limiter, chunk->bytes + i * target->key_length,
                                     target->key_length);
        if (stint_override(target->limiter, policy, key, STINT_LIMIT_MAX - 1, until) != 0)
            return 0; /* then fewer are allowed than must be */
    }
    return target->parts > 1 ? path_all(target, chunk) : take(target, chunk);
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
        answer(chunk, i, allowed);
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
    unsigned parts = target->parts, keys = target->each_key ? parts : 1;
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

/* ---- Names ---- */

timed_function *timed_named(const char *name) {
    static const struct {
        const char *name;
        timed_function *run;
    } all[] = {
        {"take", take},
        {"take-at", take_at},
        {"take-5", take_5},
        {"take-policies", take_policies},
        {"override-take", override_take},
        {"batch", batch},
        {"time-take", time_take},
        {"time-take-at", time_take_at},
        {"decide", path_decide},
        {"refund", path_refund},
        {"all", path_all},
        {"groups", path_groups},
        {"as many takes", path_takes},
        {"batch of 64", path_batch},
        {"clock+hash+xadd", floor_take},
        {"hash+xadd", floor_take_at},
        {"xadd", floor_xadd},
        {"dependent load", floor_load},
        {"clock+hash+cas", floor_swap},
        {"xadd+cas", floor_add_swap},
        {"hash+xadds", floor_parts},
    };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (strcmp(all[i].name, name) == 0)
            return all[i].run;
    return NULL;
}
