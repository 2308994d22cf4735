/* SPDX-License-Identifier: MIT
 * stint itself, asked as a server asks it. */
#include <stint.h>

#include <ck_cc.h>
#include <stdio.h>

#include "peer.h"

static const uint64_t SECOND = UINT64_C(1000000000);

/* Of the one table at a time. Its policies' ids follow on each other. */
static uint32_t first_policy;
static unsigned limits; /* of a request */

static void stint_peer_close(void *state) {
    stint_close(state);
}

static bool peer_open(const struct peer_setup *setup, bool bucket, void **state) {
    struct stint_options options = STINT_OPTIONS_INIT;
    struct stint_policy policy = STINT_POLICY_INIT;
    struct stint_limiter *limiter = NULL;

    /* Three slots of a key crowd its home line: at a load of a half about 1 in 100,000 finds none.
     * */
    options.max_entries = setup->keys * (setup->limits > 2 ? 2 * setup->limits : setup->limits);
    options.flags = STINT_PREFAULT;
    int error = stint_open(&options, &limiter);
    for (unsigned i = 0; error >= 0 && i < setup->limits; i++) {
        snprintf(policy.name, sizeof(policy.name), "peers-%u", i);
        policy.limit = setup->each[i].limit;
        policy.window = setup->each[i].window * SECOND;
        policy.burst = bucket ? policy.limit : 0;
        error = stint_policy_add(limiter, &policy, i == 0 ? &first_policy : NULL);
    }
    if (error < 0) {
        peer_fail("%s (%s)", stint_strerror(error), stint_reason());
        stint_close(limiter);
        return false;
    }
    limits = setup->limits;
    *state = limiter;
    return true;
}

static bool stint_peer_open(const struct peer_setup *setup, void **state) {
    return peer_open(setup, false, state);
}

static bool stint_bucket_open(const struct peer_setup *setup, void **state) {
    return peer_open(setup, true, state);
}

/* May it? That is all that the tables behind locks tell. */
static inline bool stint_one(struct stint_limiter *limiter, const char *key) {
    return stint_take(limiter, first_policy, stint_key_of(limiter, key, PEER_KEY), 1, STINT_NOW,
                      NULL);
}

PEER_DECIDE(stint_limiter, stint_one)

static inline bool stint_verdict_one(struct stint_limiter *limiter, const char *key) {
    struct stint_verdict verdict;
    return stint_take(limiter, first_policy, stint_key_of(limiter, key, PEER_KEY), 1, STINT_NOW,
                      &verdict);
}

PEER_DECIDE(stint_limiter, stint_verdict_one)

/* The line of each key is on its way as soon as the key is known: while a server still reads
 * other requests. */
static bool stint_batches(void *state, unsigned thread, const char *keys, size_t n, unsigned depth,
                          uint64_t *answers) {
    struct stint_limiter *limiter = state;
    struct stint_request requests[PEER_ANSWERS];
    struct stint_verdict verdicts[PEER_ANSWERS];
    uint64_t word = 0;

    (void)thread;
    if (depth > PEER_ANSWERS) /* when the table is filled */
        depth = PEER_ANSWERS;
    for (size_t at = 0; at < n; at += depth) {
        size_t batch = n - at < depth ? n - at : depth;
        for (size_t i = 0; i < batch; i++) {
            stint_key key = stint_key_of(limiter, keys + (at + i) * PEER_KEY, PEER_KEY);
            stint_prefetch(limiter, key);
            requests[i] = (struct stint_request){.key = key, .policy = first_policy, .cost = 1};
        }
        if (stint_decide_batch(limiter, requests, batch, STINT_NOW, verdicts) == batch)
            word |= UINT64_MAX >> (PEER_ANSWERS - batch) << at % PEER_ANSWERS;
        else
            for (size_t i = 0; i < batch; i++)
                word |= (uint64_t)verdicts[i].allowed << ((at + i) % PEER_ANSWERS);
        answers[at / PEER_ANSWERS] = word;
        if ((at + depth) % PEER_ANSWERS == 0)
            word = 0;
    }
    return true;
}

/* ---- Several limits ---- */

static CK_CC_FORCE_INLINE void requests_of(const struct stint_limiter *limiter, const char *key,
                                           struct stint_request *requests) {
    stint_key hash = stint_key_of(limiter, key, PEER_KEY);

    for (unsigned i = 0; i < limits; i++)
        requests[i] = (struct stint_request){.key = hash, .policy = first_policy + i, .cost = 1};
}

static inline bool stint_all_one(struct stint_limiter *limiter, const char *key) {
    struct stint_request requests[PEER_LIMITS];

    requests_of(limiter, key, requests);
    return stint_decide_all(limiter, requests, limits, STINT_NOW, NULL);
}

PEER_DECIDE(stint_limiter, stint_all_one)

/* One after the other: what the first took stays taken if another refuses. */
static inline bool stint_takes_one(struct stint_limiter *limiter, const char *key) {
    stint_key hash = stint_key_of(limiter, key, PEER_KEY);
    uint64_t now = stint_now(limiter);
    bool allowed = true;

    for (unsigned i = 0; allowed && i < limits; i++)
        allowed = stint_take(limiter, first_policy + i, hash, 1, now, NULL);
    return allowed;
}

PEER_DECIDE(stint_limiter, stint_takes_one)

enum { GROUPS = 32 };
_Static_assert(PEER_ANSWERS % GROUPS == 0, "a call does not straddle two words");

static bool stint_grouped(void *state, unsigned thread, const char *keys, size_t n, unsigned depth,
                          uint64_t *answers) {
    struct stint_limiter *limiter = state;
    struct stint_request requests[GROUPS * PEER_LIMITS];
    struct stint_verdict verdicts[GROUPS * PEER_LIMITS];
    size_t sizes[GROUPS];
    uint64_t word = 0;

    (void)thread;
    (void)depth;
    for (size_t at = 0; at < n; at += GROUPS) {
        size_t groups = n - at < GROUPS ? n - at : GROUPS;
        for (size_t i = 0; i < groups; i++) {
            requests_of(limiter, keys + (at + i) * PEER_KEY, requests + i * limits);
            stint_prefetch(limiter, requests[i * limits].key);
            sizes[i] = limits;
        }
        stint_decide_groups(limiter, requests, groups * limits, sizes, groups, STINT_NOW, verdicts);
        for (size_t i = 0; i < groups; i++) /* granted to one is granted to all */
            word |= (uint64_t)(verdicts[i * limits].granted != 0) << ((at + i) % PEER_ANSWERS);
        answers[at / PEER_ANSWERS] = word;
        if ((at + GROUPS) % PEER_ANSWERS == 0)
            word = 0;
    }
    return true;
}

/* ---- Peers ---- */

#define STINT_PEER(its_name, decide_by)                                                            \
    {                                                                                              \
        .name = (its_name), .open = stint_peer_open, .close = stint_peer_close,                    \
        .decide = (decide_by)                                                                      \
    }

const struct peer peer_stint = STINT_PEER("stint", stint_one_each);
const struct peer peer_stint_verdict = STINT_PEER("stint-verdict", stint_verdict_one_each);
const struct peer peer_stint_batch = STINT_PEER("stint-batch", stint_batches);
const struct peer peer_stint_all = STINT_PEER("stint-all", stint_all_one_each);
const struct peer peer_stint_groups = STINT_PEER("stint-groups", stint_grouped);
const struct peer peer_stint_takes = STINT_PEER("stint-takes", stint_takes_one_each);
const struct peer peer_stint_bucket = {.name = "stint-bucket",
                                       .open = stint_bucket_open,
                                       .close = stint_peer_close,
                                       .decide = stint_one_each};
