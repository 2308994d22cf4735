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
    uint32_t policy; /* the first, and the only one but in policies_take and of parts */
    const struct path *path;
    struct stint_request request; /* of a path, but for its key */
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
    uint32_t policy[CHUNK_KEYS]; /* for policies_take */
    bool *answers;               /* NULL, or CHUNK_KEYS that receive the workload's answers */
    struct timings *timings;     /* for those that time each call */
};

/* Returns how many were allowed. A floor returns what keeps the compiler from leaving work out. */
typedef uint64_t timed_function(const struct target *target, const struct chunk *chunk);

enum floor {
    FLOOR_TAKE,
    FLOOR_TAKE_AT,
    FLOOR_XADD,
    FLOOR_LOAD,
    FLOOR_PRESENT,
    FLOOR_ALONE,
    FLOOR_SWAP,
    FLOOR_ADD_SWAP,
    FLOOR_PARTS,
    FLOOR_PLAIN,
    FLOOR_TAKES,
    FLOOR_BATCH,
    FLOORS
};

/* How a decision differs from a plain take, beside which it is measured: by turns, in a table of
 * its own. The goals are ratios to that. A decision within 15% of its floor, which does the same
 * locked operations, has reached them too. */
struct path {
    uint32_t cost, flags; /* of a request */
    bool own_limit;       /* the request's limit is one below the policy's */
    uint32_t policy_flags, max_reserved, calendar;
    bool roll_over; /* the policy's capacity is one above its limit */
    bool still;     /* the limiter's clock stands still, but costs what it always does */
    unsigned stripes, parts;
    bool each_key; /* each part has a key of its own; else the same key, by a policy of its own */
    unsigned windows;       /* in which each key is asked for before the time is taken; 0: one */
    bool leaves_nothing;    /* what is used is the same after it */
    timed_function *before; /* asks for each key before the time is taken; NULL: what is timed */
    enum floor locked;
    double goal[2]; /* of few keys, in cache, and of many, out of it */
};

#endif
