/* SPDX-License-Identifier: MIT
 * stint itself, asked as a server asks it, and the floor under everything that counts. */
#include <stint.h>

#include <ck_pr.h>
#include <stdlib.h>
#include <string.h>

#include "peer.h"

static const uint64_t SECOND = UINT64_C(1000000000);

struct stint_peer {
    struct stint_limiter *limiter;
    uint32_t policy;
};

static void stint_peer_close(void *state) {
    struct stint_peer *peer = state;

    stint_close(peer->limiter);
    free(peer);
}

static bool stint_peer_open(const struct peer_setup *setup, void **state) {
    struct stint_options options = STINT_OPTIONS_INIT;
    struct stint_policy policy = STINT_POLICY_INIT;
    struct stint_peer *peer = calloc(1, sizeof(*peer));

    if (peer == NULL)
        return peer_fail("no memory");
    options.max_keys = setup->keys;
    options.flags = STINT_PREFAULT;
    memcpy(policy.name, "peers", sizeof("peers"));
    policy.limit = setup->limit;
    policy.window = setup->window * SECOND;
    int error = stint_open(&options, &peer->limiter);
    if (error == 0)
        error = stint_policy_add(peer->limiter, &policy);
    if (error < 0) {
        peer_fail("%s (%s)", stint_strerror(error), stint_reason());
        stint_peer_close(peer);
        return false;
    }
    peer->policy = (uint32_t)error;
    *state = peer;
    return true;
}

static inline bool stint_one(struct stint_peer *peer, const char *key) {
    struct stint_verdict verdict;
    return stint_take(peer->limiter, peer->policy, stint_key_of(peer->limiter, key, PEER_KEY), 1,
                      STINT_NOW, &verdict);
}

PEER_DECIDE(stint_peer, stint_one)

static bool stint_batches(void *state, unsigned thread, const char *keys, size_t n, unsigned depth,
                          uint64_t *answers) {
    struct stint_peer *peer = state;
    struct stint_request requests[PEER_DEPTH];
    struct stint_verdict verdicts[PEER_DEPTH];
    uint64_t word = 0;

    (void)thread;
    (void)depth;
    for (size_t at = 0; at < n; at += PEER_DEPTH) {
        size_t batch = n - at < PEER_DEPTH ? n - at : PEER_DEPTH;
        for (size_t i = 0; i < batch; i++)
            requests[i] = (struct stint_request){
                .key = stint_key_of(peer->limiter, keys + (at + i) * PEER_KEY, PEER_KEY),
                .policy = peer->policy,
                .cost = 1,
            };
        stint_decide_batch(peer->limiter, requests, batch, STINT_NOW, verdicts);
        for (size_t i = 0; i < batch; i++)
            word |= (uint64_t)verdicts[i].allowed << ((at + i) % PEER_ANSWERS);
        answers[at / PEER_ANSWERS] = word;
        if ((at + PEER_DEPTH) % PEER_ANSWERS == 0)
            word = 0;
    }
    return true;
}
_Static_assert(PEER_ANSWERS % PEER_DEPTH == 0, "a batch does not straddle two words");

const struct peer peer_stint = {
    .name = "stint",
    .label = "stint, one at a time",
    .help = "one request at a time; the limiter reads its clock",
    .depth = 1,
    .bytes_per_key = 64,
    .open = stint_peer_open,
    .close = stint_peer_close,
    .decide = stint_one_each,
};

const struct peer peer_stint_batch = {
    .name = "stint-batch",
    .label = "stint, 16 in a call",
    .help = "16 requests in one call",
    .depth = PEER_DEPTH,
    .bytes_per_key = 64,
    .open = stint_peer_open,
    .close = stint_peer_close,
    .decide = stint_batches,
};

/* ---- Counter ---- */

struct counter {
    _Alignas(64) uint64_t count;
};

static bool counter_open(const struct peer_setup *setup, void **state) {
    struct counter *counter = aligned_alloc(64, sizeof(*counter));

    (void)setup;
    if (counter == NULL)
        return peer_fail("no memory");
    counter->count = 0;
    *state = counter;
    return true;
}

static inline bool counter_one(struct counter *counter, const char *key) {
    (void)key;
    return ck_pr_faa_64(&counter->count, 1) != UINT64_MAX;
}

PEER_DECIDE(counter, counter_one)

const struct peer peer_counter = {
    .name = "counter",
    .label = "floor: one count for all keys",
    .help = "floor: one atomic add to one count for all; no keys, no limit, no clock",
    .depth = 1,
    .one_count = true,
    .open = counter_open,
    .close = free,
    .decide = counter_one_each,
};
