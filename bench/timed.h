/* SPDX-License-Identifier: MIT
 * The code that is timed: what a server would do with a chunk of requests, and the floors, which do
 * the part of it that no limiter could leave out.
 *
 * Workload and floor get the same chunks: keys whose bytes were just written, so they are in cache
 * as after parsing, and whose order is known to nobody before. The chunk is made outside the timed
 * stretch, and making it does not touch the memory under test, so it can neither be counted nor
 * hide a miss. A stretch is CHUNK_KEYS long because the processor cannot overlap misses across its
 * ends; that costs one memory latency in 512 operations, and both sides pay it. */
#ifndef STINT_BENCH_TIMED_H
#define STINT_BENCH_TIMED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stint.h>

#include "histogram.h"

enum {
    BATCH = 16,       /* requests in a batch */
    CHUNK_KEYS = 512, /* requests in a timed stretch, a multiple of BATCH */
};

/* What a stretch acts on; the same for all threads. */
struct target {
    struct stint_limiter *limiter;
    uint32_t policy; /* the first, and the only one but in take_policies and of parts */
    struct stint_request request; /* of path_decide, but for its key */
    unsigned parts;               /* requests that are decided together */
    uint32_t last_cost;           /* of the last of them; that of the others is 1 */
    bool each_key; /* each part has a key of its own; else the same key, by a policy of its own */
    size_t key_length;
    const void *secret; /* the limiter's, STINT_SECRET_SIZE bytes */
    struct line *lines; /* the floors' memory, as large as the limiter's lines */
    uint64_t line_count;
};

/* As a line of the limiter: 64 bytes, so one access is one miss. */
struct line {
    uint64_t count; /* what the floors add to */
    uint64_t zero;  /* what the dependent load reads; never written */
    uint64_t padding[6];
};
_Static_assert(sizeof(struct line) == 64, "a floor's line is the limiter's line");

/* Times of single calls, and of as many sections with nothing in them, by turns. */
struct timings {
    struct histogram call, empty;
};

struct chunk {
    _Alignas(64) size_t n;
    uint64_t now;                /* ns; for those that are given it */
    unsigned char *bytes;        /* n * key_length; of parts that have keys of their own, each */
    uint64_t line[CHUNK_KEYS];   /* where the floors go, in the limiter's order */
    uint32_t policy[CHUNK_KEYS]; /* for take_policies */
    bool *answers;               /* NULL, or CHUNK_KEYS that receive the workload's answers */
    struct timings *timings;     /* for those that time each call */
};

/* Returns how many were allowed. A floor returns what keeps the compiler from leaving work out. */
typedef uint64_t timed_function(const struct target *target, const struct chunk *chunk);

/* Answers are added up in a register, and kept only in a rehearsal: a store between two atomic adds
 * is not free, the second waits for it. */
static inline void answer(const struct chunk *chunk, size_t i, bool allowed) {
    if (chunk->answers != NULL)
        chunk->answers[i] = allowed;
}

#endif
