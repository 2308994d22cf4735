/* SPDX-License-Identifier: MIT */
#include "timed.h"

#include <ck_cc.h>
#include <ck_pr.h>
#include <string.h>
#include <time.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "keys.h"

_Thread_local uint64_t bench_now;

uint64_t bench_clock(void) {
    return bench_now;
}

uint64_t bench_still_clock(void) {
    struct timespec time;

    clock_gettime(CLOCK_REALTIME_COARSE, &time);
    return bench_now;
}

/* ---- One request ---- */

enum { PARTS_MAX = 3 };

/* Of a chunk, what stays in registers. */
struct keys {
    struct stint_limiter *limiter;
    const unsigned char *bytes;
    size_t length;
};

static inline struct keys keys_of(const struct target *target, const struct chunk *chunk) {
    return (struct keys){target->limiter, chunk->bytes, target->key_length};
}

static CK_CC_FORCE_INLINE stint_key key_at(struct keys keys, size_t i) {
    return stint_key_of(keys.limiter, keys.bytes + i * keys.length, keys.length);
}

/* Whether no answers are kept, and keys are as long as most are: what a server knows beforehand is
 * a constant in a loop of its own. */
static inline bool is_usual(const struct target *target, const struct chunk *chunk) {
    return chunk->answers == NULL && target->key_length == PEER_KEY;
}

static CK_CC_FORCE_INLINE uint64_t take_each(const struct target *target, const struct chunk *chunk,
                                             uint64_t now, uint32_t cost, bool usual) {
    const struct keys keys = {target->limiter, chunk->bytes, usual ? PEER_KEY : target->key_length};
    const size_t n = chunk->n;
    const uint32_t policy = target->policy;
    bool *answers = usual ? NULL : chunk->answers;
    uint64_t count = 0;
    struct stint_verdict verdict;

    for (size_t i = 0; i < n; i++) {
        bool allowed = stint_take(keys.limiter, policy, key_at(keys, i), cost, now, &verdict);
        count += allowed;
        answer(answers, i, allowed);
    }
    return count;
}

static CK_CC_FORCE_INLINE uint64_t take_all(const struct target *target, const struct chunk *chunk,
                                            uint64_t now, uint32_t cost) {
    return is_usual(target, chunk) ? take_each(target, chunk, now, cost, true)
                                   : take_each(target, chunk, now, cost, false);
}

static uint64_t take(const struct target *target, const struct chunk *chunk) {
    return take_all(target, chunk, STINT_NOW, 1);
}

static uint64_t take_at(const struct target *target, const struct chunk *chunk) {
    return take_all(target, chunk, chunk->now, 1);
}

static uint64_t take_5(const struct target *target, const struct chunk *chunk) {
    return take_all(target, chunk, STINT_NOW, 5);
}

static uint64_t decide(const struct target *target, const struct chunk *chunk) {
    const struct keys keys = keys_of(target, chunk);
    const struct stint_request like = target->request;
    uint64_t count = 0;
    struct stint_verdict verdict;

    for (size_t i = 0; i < chunk->n; i++) {
        struct stint_request request = like;
        request.key = key_at(keys, i);
        bool allowed = stint_decide(target->limiter, &request, STINT_NOW, &verdict);
        count += allowed;
        answer(chunk->answers, i, allowed);
    }
    return count;
}

static uint64_t refund(const struct target *target, const struct chunk *chunk) {
    const struct keys keys = keys_of(target, chunk);
    uint64_t count = 0;
    struct stint_verdict verdict;

    for (size_t i = 0; i < chunk->n; i++) {
        stint_key key = key_at(keys, i);
        bool allowed = stint_take(target->limiter, target->policy, key, 1, STINT_NOW, &verdict) &&
                       stint_refund(target->limiter, key, &verdict, 1) == 1;
        count += allowed;
        answer(chunk->answers, i, allowed);
    }
    return count;
}

/* The clock is read once for a batch: a server has the requests of one wake-up in hand. It fetches
 * a key's line as soon as it knows the key. */
static CK_CC_FORCE_INLINE uint64_t batch_each(const struct target *target,
                                              const struct chunk *chunk, bool usual) {
    const struct keys keys = {target->limiter, chunk->bytes, usual ? PEER_KEY : target->key_length};
    const uint32_t policy = target->policy;
    const size_t all_n = chunk->n;
    bool *answers = usual ? NULL : chunk->answers;
    uint64_t count = 0;
    struct stint_request requests[BATCH];
    struct stint_verdict verdicts[BATCH];

    for (size_t i = 0; i < all_n; i += BATCH) {
        size_t n = all_n - i < BATCH ? all_n - i : BATCH;
        for (size_t j = 0; j < n; j++) {
            stint_key key = key_at(keys, i + j);
            stint_prefetch(keys.limiter, key);
            requests[j] = (struct stint_request){.key = key, .policy = policy, .cost = 1};
        }
        count += stint_decide_batch(keys.limiter, requests, n, STINT_NOW, verdicts);
        for (size_t j = 0; answers != NULL && j < n; j++)
            answers[i + j] = verdicts[j].allowed;
    }
    return count;
}

static uint64_t batch(const struct target *target, const struct chunk *chunk) {
    return is_usual(target, chunk) ? batch_each(target, chunk, true)
                                   : batch_each(target, chunk, false);
}

/* ---- Several requests ---- */

/* The requests of op number i: of one key by each policy, or of several keys by one. */
static CK_CC_FORCE_INLINE void parts_at(const struct target *target, const struct chunk *chunk,
                                        size_t i, unsigned parts, struct stint_request *requests) {
    const struct keys keys = keys_of(target, chunk);
    bool each_key = target->each_key;
    stint_key key = key_at(keys, each_key ? i * parts : i);

    for (unsigned part = 0; part < parts; part++) {
        if (each_key && part != 0)
            key = key_at(keys, i * parts + part);
        requests[part] = (struct stint_request){.key = key,
                                                .policy = target->policy + (each_key ? 0 : part),
                                                .cost = part + 1 == parts ? target->last_cost : 1};
    }
}

/* As one, or one by one: then all get the same answer, as all are asked for the same. */
static CK_CC_FORCE_INLINE uint64_t parts_each(const struct target *target,
                                              const struct chunk *chunk, unsigned parts,
                                              bool as_one) {
    struct stint_request requests[PARTS_MAX];
    struct stint_verdict verdicts[PARTS_MAX];
    uint64_t count = 0;

    for (size_t i = 0; i < chunk->n; i++) {
        bool allowed = true;
        parts_at(target, chunk, i, parts, requests);
        if (as_one)
            allowed = stint_decide_all(target->limiter, requests, parts, chunk->now, verdicts);
        else
            for (unsigned part = 0; part < parts; part++)
                allowed = stint_take(target->limiter, requests[part].policy, requests[part].key,
                                     requests[part].cost, chunk->now, &verdicts[part]);
        count += allowed;
        answer(chunk->answers, i, allowed);
    }
    return count;
}

/* The number of limits is a constant of the server. */
static CK_CC_FORCE_INLINE uint64_t parts_run(const struct target *target, const struct chunk *chunk,
                                             bool as_one) {
    switch (target->parts) {
    case 1:
        return parts_each(target, chunk, 1, as_one);
    case 2:
        return parts_each(target, chunk, 2, as_one);
    default:
        return parts_each(target, chunk, PARTS_MAX, as_one);
    }
}

static uint64_t all(const struct target *target, const struct chunk *chunk) {
    return parts_run(target, chunk, true);
}

static uint64_t takes(const struct target *target, const struct chunk *chunk) {
    return parts_run(target, chunk, false);
}

/* The same after each key was given a limit of its own, which nobody comes to, for longer than the
 * window. Of several parts the last has it. */
static uint64_t override_take(const struct target *target, const struct chunk *chunk) {
    const struct keys keys = keys_of(target, chunk);
    const uint32_t policy = target->policy + target->parts - 1;
    const uint64_t until = stint_now(target->limiter) + 200 * UINT64_C(86400000000000);

    for (size_t i = 0; i < chunk->n; i++) {
        stint_key key = key_at(keys, i);
        if (stint_override(target->limiter, policy, key, STINT_LIMIT_MAX - 1, until) != 0)
            return 0; /* then fewer are allowed than must be */
    }
    return target->parts > 1 ? all(target, chunk) : take(target, chunk);
}

/* ---- Peers ---- */

static uint64_t ask_peer(const struct target *target, const struct chunk *chunk) {
    uint64_t words[CHUNK_KEYS / PEER_ANSWERS] = {0}, count = 0;

    if (!target->peer->decide(target->state, chunk->thread, (const char *)chunk->bytes, chunk->n,
                              target->depth, words))
        return UINT64_MAX;
    for (size_t i = 0; i < chunk->n; i++) {
        bool allowed = words[i / PEER_ANSWERS] >> (i % PEER_ANSWERS) & 1;
        count += allowed;
        answer(chunk->answers, i, allowed);
    }
    return count;
}

/* ---- References: a hash of the key and an atomic add, with the clock or without ---- */

static CK_CC_FORCE_INLINE uint64_t add_each(const struct target *target, const struct chunk *chunk,
                                            bool clock) {
    uint64_t sum = 0;

    for (size_t i = 0; i < chunk->n; i++) {
        struct timespec time = {0};
        if (clock)
            clock_gettime(CLOCK_REALTIME_COARSE, &time);
        uint64_t hash = XXH3_64bits(chunk->bytes + i * target->key_length, target->key_length);
        uint64_t *line = target->lines + 8 * scale64(hash, target->line_count);
        sum += ck_pr_faa_64(line, 1) < (uint64_t)time.tv_nsec;
    }
    return sum;
}

static uint64_t clock_hash_add(const struct target *target, const struct chunk *chunk) {
    return add_each(target, chunk, true);
}

static uint64_t hash_add(const struct target *target, const struct chunk *chunk) {
    return add_each(target, chunk, false);
}

/* ---- Names ---- */

timed_function *timed_named(const char *name, bool *reference) {
    static const struct {
        const char *name;
        timed_function *run;
        bool reference;
    } each[] = {
        {"take", take, false},
        {"take-at", take_at, false},
        {"take-5", take_5, false},
        {"override-take", override_take, false},
        {"batch", batch, false},
        {"decide", decide, false},
        {"refund", refund, false},
        {"all", all, false},
        {"as many takes", takes, false},
        {"peer", ask_peer, false},
        {"clock+hash+add", clock_hash_add, true},
        {"hash+add", hash_add, true},
    };

    for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++)
        if (strcmp(each[i].name, name) == 0) {
            *reference = each[i].reference;
            return each[i].run;
        }
    return NULL;
}
