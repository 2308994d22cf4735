/* SPDX-License-Identifier: MIT
 * The start of the mapping. */
#ifndef STINT_HEADER_H
#define STINT_HEADER_H

#include <pthread.h>

#include <stint.h>

#include "sys/atomic.h"

/* Threads of all processes that have lanes of counters (counters.h). */
#define LANES_MAX 64

/* What stands before the lock never changes; each process that attaches checks it (open.c). */
struct header {
    _Alignas(CACHE_LINE) uint64_t magic; /* HEADER_MAGIC; written last. 0: not a table yet */
    uint32_t layout;                     /* HEADER_LAYOUT */
    uint32_t shards;
    uint64_t max_entries;
    uint32_t max_policies;
    uint32_t lanes;
    uint64_t size;     /* bytes, of the mapping */
    uint64_t features; /* a bit for each thing that an opener must know of: FEATURE_LOCK */
    uint64_t labels;   /* the offset of the labels, bytes; 0: there are none */
    uint64_t labels_count;
    _Alignas(CACHE_LINE) uint8_t secret[STINT_SECRET_SIZE];

    pthread_mutex_t lock; /* for set-up. Robust: after its holder died, the next one repairs */
    uint64_t unused[3];   /* 0; layout 5 has notes of overrides */

    _Alignas(CACHE_LINE) uint64_t policy_count;
    uint64_t smooth; /* a policy has two counts (TWO_COUNTS): those of slots are not tokens */
    uint64_t known;  /* the clock, as it was last read for a now (limiter_knows_now); ticks */
    _Alignas(CACHE_LINE) uint64_t lane_owners[LANES_MAX]; /* 0: nobody's, or lane 0 */
};

/* "stint", a line end that text transfers change, and 1. It tells the byte order, too. */
#define HEADER_MAGIC  UINT64_C(0x010a0d746e697473)
/* The upper half of the magic while a table is made. The lower half tells for which options. */
#define HEADER_MAKING UINT64_C(0x656b616d) /* "make" */
#define BEGIN_ANEW    "or remove the table to begin anew"
#define LATER_TABLE                                                                                \
    "what this version of stint does not know: use the version that made the table, " BEGIN_ANEW

/* Changes with anything that two processes must see alike: parts and sizes, tags and states, the
 * protocol, the hash. stint_resize reads the layout before its own, too. */
#define HEADER_LAYOUT 6

/* The set-up lock is not glibc's but, most likely, musl's. */
#define FEATURE_LOCK UINT64_C(1)
#ifdef __GLIBC__
#define HEADER_FEATURES UINT64_C(0)
#else
#define HEADER_FEATURES FEATURE_LOCK
#endif

#endif
