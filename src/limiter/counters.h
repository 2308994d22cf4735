/* SPDX-License-Identifier: MIT
 * Counting: each thread adds to a lane of its own, and readers sum the lanes. */
#ifndef STINT_COUNTERS_H
#define STINT_COUNTERS_H

#include "limiter/limiter.h"

/* A lane has a line for each policy, and one for the table. The first LANES_MAX - 1 threads have a
 * lane each, and add to it without a lock prefix. All others share lane 0. */
enum {
    COUNT_ALLOWED,
    COUNT_REFUSED,
    COUNT_SHADOWED,
    COUNT_FIRST_REFUSAL,
    COUNT_UNTRACKED,
    COUNT_NEAR_LIMIT,
    COUNT_CHARGED,
    COUNT_REFUNDED,
};
/* Of a companion: what it did for its policy. */
enum { COUNT_BANNED, COUNT_STRIKE_LOST };
enum {
    COUNT_PLACED,
    COUNT_REPLACED,
    COUNT_CLOCK_STEP,
    COUNT_STRAY,
    COUNT_UNKNOWN_POLICY,
    COUNT_RESET,
    COUNT_BAD_REQUEST,
    COUNT_UNTRACKED_GONE, /* COUNT_UNTRACKED of policies whose ids are free */
};

struct counters {
    _Alignas(CACHE_LINE) uint64_t count[CACHE_LINE / sizeof(uint64_t)];
};

/* Counts of a policy that are seldom added to: one line, which all threads share. */
enum { RARE_REFUND_LOST, RARE_NOW_MISTAKEN };

/* A thread's number is 1 to LANES_MAX - 1; 0: none yet; THREAD_NUMBERS - 1: none was free. */
#define THREAD_NUMBERS (LANES_MAX + 1)

/* By thread number. If the table is shared, a child finds these pages empty, and takes its own. */
struct own_lanes {
    struct {
        _Alignas(CACHE_LINE) uint64_t now; /* ns: the latest by which a bucket has decided */
    } latest[THREAD_NUMBERS];
    struct counters *rows[THREAD_NUMBERS]; /* NULL: none so far */
    uint64_t left;                         /* enum lanes_left */
    uint8_t firsts[THREAD_NUMBERS];        /* what stint_limiter_stripe says; 0: nothing so far */
};

enum lanes_left {
    LANES_TO_TRY, /* there may be one left for a thread that has none */
    LANES_NONE,   /* none was when somebody looked */
    LANES_GIVEN,  /* there never will be: they are not taken one by one */
};

/* initial-exec: the access never allocates, so a signal handler may count, after dlopen too. */
extern _Thread_local uint64_t stint_thread_number __attribute__((tls_model("initial-exec")));

/* A lock of this process, which a child finds free. Returns the number of forks before this one. */
uint64_t stint_limiter_process_lock(void);
void stint_limiter_process_unlock(void);

/* The slow half of limiter_add: a thread's first count, or one that has no lane of its own. */
void stint_limiter_count_shared(const struct stint_limiter *limiter, uint32_t row, uint32_t counter,
                                uint64_t number);

/* Adds to a counter of a policy, or of the table (row max_policies). */
static ALWAYS_INLINE void limiter_add(const struct stint_limiter *limiter, uint32_t row,
                                      uint32_t counter, uint64_t number) {
    struct counters *rows = limiter->own->rows[stint_thread_number];
    if (UNLIKELY(rows == NULL))
        stint_limiter_count_shared(limiter, row, counter, number);
    else
        atomic_add_own(&rows[row].count[counter], number);
}

static ALWAYS_INLINE void limiter_count(const struct stint_limiter *limiter, uint32_t row,
                                        uint32_t counter) {
    limiter_add(limiter, row, counter, 1);
}

/* Notes the now by which a bucket has decided, if it is the latest of this thread's number. */
static ALWAYS_INLINE void limiter_raise_now(const struct stint_limiter *limiter, uint64_t now) {
    uint64_t *latest = &limiter->own->latest[stint_thread_number].now;
    if (atomic_less(latest, now) && GUARDED(BUCKET_NOW))
        atomic_store_relaxed(latest, now);
}

/* The latest now by which a bucket has decided for this thread, but `now` at least. If it is
 * further ahead than BACK_NS, the clock was wrong or stepped back: it begins anew. */
uint64_t stint_limiter_latest_now(const struct stint_limiter *limiter, uint64_t now);

/* Where this thread begins among the stripes of a key, before the remainder. Threads of all
 * processes share numbers as little as can be. A thread's number stays the same. */
uint32_t stint_limiter_stripe(const struct stint_limiter *limiter);

/* Of a private table each thread number has a lane at once. Returns false if there is no memory. */
bool stint_limiter_lanes_open(struct stint_limiter *limiter);

void stint_limiter_lanes_close(struct stint_limiter *limiter);

/* Frees the lanes of processes that are gone; of all others, if this one is `alone`. */
void stint_limiter_lanes_reclaim(struct stint_limiter *limiter, bool alone);

uint32_t stint_limiter_processes(const struct stint_limiter *limiter);

/* A counter of a policy, or of the table (row max_policies): the sum of its lanes. */
uint64_t stint_limiter_counted(const struct stint_limiter *limiter, uint32_t row, uint32_t counter);

void stint_limiter_count_rare(const struct stint_limiter *limiter, uint32_t id, uint32_t rare);

static inline uint64_t limiter_rare(const struct stint_limiter *limiter, uint32_t id,
                                    uint32_t rare) {
    return atomic_load_relaxed(&limiter->rare[id].count[rare]);
}

/* Begins the counters of a policy anew. Nobody else uses the table. */
void stint_limiter_counters_clear(const struct stint_limiter *limiter, uint32_t row);

static inline void limiter_count_table(const struct stint_limiter *limiter, uint32_t counter) {
    limiter_count(limiter, limiter->max_policies, counter);
}

#endif
