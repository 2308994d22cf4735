/* SPDX-License-Identifier: MIT
 * The start of the mapping, and the process's own handle of a limiter.
 *
 * A limiter is one mapping without pointers inside, so that it can be shared:
 *
 *     +--------+----------+---------+----------+------+--------+-------+-------+--------+
 *     | header | policies | records | counters | rare | shards | lines | reach | labels |
 *     +--------+----------+---------+----------+------+--------+-------+-------+--------+
 *
 * Counters have a row for each lane, and rare counts none. The reach has a byte for each line. */
#ifndef STINT_LIMITER_H
#define STINT_LIMITER_H

#include <pthread.h>

#include "limiter/policies.h"
#include "map/lines.h"
#include "sys/clock.h"
#include "sys/memory.h"

#define LANES_MAX 64 /* threads of all processes that have lanes of counters (counters.h) */

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

/* Changes with what processes must see alike: sizes, tags and states, the protocol, the hash. */
#define HEADER_LAYOUT 6

#define FEATURE_LOCK UINT64_C(1) /* the set-up lock is not glibc's but, most likely, musl's */
#ifdef __GLIBC__
#define HEADER_FEATURES UINT64_C(0)
#else
#define HEADER_FEATURES FEATURE_LOCK
#endif

#define CLOCK_GIVEN ((clockid_t)-1)

struct stint_limiter {
    /* Read by every decision, never written after open (but for `deciding`). */
    _Alignas(CACHE_LINE) struct table table;
    struct policy *policies;
    struct policy_record *records; /* of policies */
    struct own_lanes *own;
    struct counters *counters;
    uint32_t deciding; /* requests may name ids below this: max_policies; read-only, lost: 0 */
    uint32_t lanes;
    uint64_t (*clock)(void);
    clock_read *clock_read;
    clockid_t clock_id; /* for `clock_read`; CLOCK_GIVEN: `clock` is asked */
    uint32_t on_full;
    uint32_t max_policies;
    struct label *labels; /* NULL: there are none */
    uint64_t label_sets;
    _Alignas(CACHE_LINE) uint8_t secret[STINT_SECRET_SIZE];
    struct header *header;

    /* Set-up and monitoring. */
    struct counters *rare; /* of policies */
    struct memory memory;
    uint64_t forks; /* stint_limiter_process_lock, when the lock of private memory was made */
    /* Of a read-only handle: one that names all policies, for looks, which store nothing. */
    struct stint_limiter *reader;
    struct stint_limiter *next; /* of those whose table is shared (counters.c) */
};

static inline uint64_t limiter_now(const struct stint_limiter *limiter) {
    struct timespec time;

    if (UNLIKELY(limiter->clock_id == CLOCK_GIVEN))
        return limiter->clock();
    if (UNLIKELY(limiter->clock_read(limiter->clock_id, &time) != 0)) /* the vDSO cannot */
        (void)clock_gettime(limiter->clock_id, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* Whether a caller's now is within the allowance of the clock, as any process last read it for a
 * now. If that is long ago, who is early is less so, who is late later. No count depends on it. */
static ALWAYS_INLINE bool limiter_knows_now(const struct stint_limiter *limiter, tick_t now) {
    const uint64_t known = atomic_load_relaxed(&limiter->header->known); /* M16 */
    return known - (uint64_t)now + (uint64_t)ALLOWANCE_TICKS <= 2 * (uint64_t)ALLOWANCE_TICKS;
}

/* Whether the table is lost: its file was cut off. A SIGBUS shows it (memory.c), or a header of
 * zeros, if the file has grown again. Decisions ask only if they find no policy. */
bool stint_limiter_lost(const struct stint_limiter *limiter);

int stint_limiter_whole(const struct stint_limiter *limiter);

/* Returns -ENOENT, as there is no policy of that id; of a lost table -EPROTO. */
int stint_limiter_no_policy(const struct stint_limiter *limiter);

void stint_limiter_lock_make(pthread_mutex_t *lock);

/* For stint_policies_lock alone. 0; EOWNERDEAD: the caller repairs; -EBUSY: too long; -EPROTO. */
int stint_limiter_lock(struct stint_limiter *limiter);

/* Gives the lock back. Returns the caller's error, or -EPROTO: the table was lost meanwhile. */
int stint_limiter_unlock(struct stint_limiter *limiter, int error);

#endif
