/* SPDX-License-Identifier: MIT
 * The code that is timed, by name: what a server does with a chunk of requests; what stands beside
 * it; and references, which do a part of the same work on memory of their own.
 *
 * All get the same chunks: keys whose bytes were just written, so they are in cache as after
 * parsing, in an order that is known to nobody before. A chunk is made outside the timed stretch.
 * The processor cannot overlap misses across the ends of a stretch; that costs one memory latency
 * in 512 decisions. */
#ifndef STINT_BENCH_TIMED_H
#define STINT_BENCH_TIMED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stint.h>

#include "peer.h"

enum {
    BATCH = 16,       /* requests in a batch */
    CHUNK_KEYS = 512, /* requests in a timed stretch, a multiple of BATCH */
};

/* What a stretch acts on; the same for all threads. */
struct target {
    struct stint_limiter *limiter;
    uint32_t policy;              /* the first, and the only one but of parts */
    struct stint_request request; /* of "decide", but for its key */
    unsigned parts;               /* requests that are decided together */
    uint32_t last_cost;           /* of the last of them; that of the others is 1 */
    bool each_key; /* each part has a key of its own; else the same key, by a policy of its own */
    size_t key_length;
    uint64_t *lines; /* NULL, or the references' memory: 64 bytes each, so one add is one miss */
    uint64_t line_count;     /* of the limiter's table */
    const struct peer *peer; /* NULL, or what is asked in stint's place */
    void *state;             /* the peer's */
    unsigned depth;          /* the peer's requests in flight */
};

struct chunk {
    _Alignas(64) size_t n;
    unsigned thread;
    uint64_t now;         /* ns; for those that are given it */
    unsigned char *bytes; /* n * key_length; of parts that have keys of their own, each */
    bool *answers;        /* NULL, or CHUNK_KEYS that receive the answers */
};

/* Returns how many were allowed; UINT64_MAX: a peer failed, see peer_failure. A reference returns
 * what keeps the compiler from leaving work out. */
typedef uint64_t timed_function(const struct target *target, const struct chunk *chunk);

/* NULL if there is none of that name. */
timed_function *timed_named(const char *name, bool *reference);

/* Answers are added up in a register, and kept only in a rehearsal: a store between two atomic adds
 * is not free, the second waits for it. */
static inline void answer(bool *answers, size_t i, bool allowed) {
    if (answers != NULL)
        answers[i] = allowed;
}

/* The clock of limiters whose windows the benchmark turns: what the calling thread set. */
extern _Thread_local uint64_t bench_now;
uint64_t bench_clock(void);

/* The same, after reading the clock that the limiter would have read. */
uint64_t bench_still_clock(void);

#endif
