/* SPDX-License-Identifier: MIT
 * What a limiter is made of: the process's own handle, and the policies and counters that live in
 * the mapping beside the table. */
#ifndef STINT_LIMITER_H
#define STINT_LIMITER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <stint.h>

#include "atomic.h"
#include "charge.h"
#include "memory.h"
#include "private_names.h"
#include "table.h"
#include "window.h"

#define LIKELY(condition)   CK_CC_LIKELY(condition)
#define UNLIKELY(condition) CK_CC_UNLIKELY(condition)

/* Start of the part of the secret that joins keys. XXH3 reads the first 72 bytes of what it is
 * given for keys of up to 16 bytes, so hashes of short keys and of pairs use bytes of their own. */
#define JOIN_SECRET_OFFSET 56

struct policy {
    /* First line: all that the hot path and its edges read. In front, the tokens up to which a fetch-add counts
     * (0: it may not, because a count past the capacity would be carried over, or because the verdict says
     * more), and those up to which one CAS counts. */
    _Alignas(CACHE_LINE) uint32_t hot_capacity;
    uint32_t edge_capacity;
    uint64_t
        current_end; /* end (tick) of the window that somebody last decided in: a hint that saves
                      * the division. Any end is safe whose begin latest has: a subtraction tells
                      * if it holds now */
    uint64_t hot_window; /* ns; 0: neither the hot path nor its edges are for this policy */
    uint64_t
        hot_ticks;    /* the same in ticks; 0 also where a window begins or ends within a second */
    uint64_t edges;   /* enum edge, and the capacity << 32 */
    tick_t length;    /* of the window */
    tick_t start;     /* a tick at which a window starts, but for a key's own phase */
    uint64_t version; /* rules[version % 2] is the rule; 0: there is no such policy. Written last */
    /* Second line: what may change, twice, so that a reader has always a whole one. */
    _Alignas(CACHE_LINE) uint64_t rules[2][sizeof(struct rule) / sizeof(uint64_t)];
};
static_assert(sizeof(struct policy) == (size_t)2 * CACHE_LINE, "a policy is two lines");

/* What the edges of the hot path may do (take.c), and what others must know at a glance. */
enum edge {
    EDGE_OPEN = 1 << 0,    /* begin a new window: nothing is carried over */
    EDGE_REFUSE = 1 << 1,  /* refuse with nothing to count, to wait for but the end, or to say */
    EDGE_CARRIES = 1 << 2, /* a window that is over may still matter */
    EDGE_STRIPED = 1 << 3,
};

/* Stripes of a key at most. */
#define STRIPES_OF_KEY_MAX 64

/* edges of a striped policy: log2 of the number of stripes. */
#define EDGE_STRIPES 8 /* shift, of 3 bits */

/* The rest of a policy. */
struct policy_record {
    _Alignas(CACHE_LINE) char name[STINT_NAME_SIZE];
    uint64_t refusals_count; /* the policy has had STINT_COUNT_REFUSED at some time */
    uint64_t largest; /* most tokens that any request was ever allowed to count up to: the largest
                       * of the policy's capacities with what may be reserved, and of the requests'
                       * own limits */
};

/* More than any request was ever allowed to count up to. */
#define LARGEST_MAX (2 * (uint64_t)STINT_LIMIT_MAX)

/* Counters. Threads do not share lines: each of the first STRIPES_MAX - 1 threads that use a table has a
 * stripe of its own, to which it adds without a lock prefix; those after it share stripe 0. A
 * stripe has one line for each policy, and one for the table. Readers sum the stripes. */
enum {
    COUNT_ALLOWED,
    COUNT_REFUSED,
    COUNT_SHADOWED,
    COUNT_FIRST_REFUSAL,
    COUNT_UNTRACKED,
    COUNT_NEAR_LIMIT,
};
enum {
    COUNT_PLACED,
    COUNT_REPLACED,
    COUNT_CLOCK_STEP,
    COUNT_STRAY,
    COUNT_UNKNOWN_POLICY,
    COUNT_RESET,
};

struct counters {
    _Alignas(CACHE_LINE) uint64_t count[CACHE_LINE / sizeof(uint64_t)];
};

/* Stripes of the counters at most. */
#define STRIPES_MAX 64

/* The start of the mapping. Made once; what attaches later checks it (limiter.c), and nobody changes it
 * but for what stands after the secret. */
struct header {
    _Alignas(CACHE_LINE) uint64_t magic; /* HEADER_MAGIC; written last. 0: not a table yet */
    uint32_t layout;                     /* HEADER_LAYOUT */
    uint32_t shards;
    uint64_t max_keys;
    uint32_t max_policies;
    uint32_t stripes;
    uint64_t size; /* bytes, of the mapping */
    uint8_t secret[STINT_SECRET_SIZE];

    /* Held while policies are added or changed, and while the table is attached to; no decision takes it.
     * Robust: if its holder dies, the next one repairs what he may have left half done. */
    pthread_mutex_t lock;

    _Alignas(CACHE_LINE) uint64_t policy_count;
    uint64_t longest_glanced; /* ticks: the longest window of all policies, GLANCED_MOST at most */
    uint64_t smooth;          /* a policy is smooth: counts of slots are not tokens */
    uint64_t latest;          /* no window of a slot begins after this tick (limiter_latest) */
    /* Whose each stripe of the counters is: 0: nobody's (of stripe 0: it is for all). */
    _Alignas(CACHE_LINE) uint64_t stripe_owners[STRIPES_MAX];
};

/* "stint", a line end that text transfers change, and 1: read by a machine of the other byte order, another
 * number. */
#define HEADER_MAGIC  UINT64_C(0x010a0d746e697473)
#define HEADER_MAKING UINT64_C(1) /* somebody is making a table */
/* Changes with anything that two processes must see alike: the parts of the mapping and their sizes, the
 * meaning of tags and states, the protocol, the hash. */
#define HEADER_LAYOUT 2

/* Numbers of threads in a process: 1 .. STRIPES_MAX - 1; 0: it has none yet; THREAD_NUMBERS - 1: all were
 * taken at its first decision. */
#define THREAD_NUMBERS (STRIPES_MAX + 1)

/* The counters that each thread of this process adds to. In a page that a child after fork finds empty
 * (unless the table itself is private), so that it takes stripes of its own. */
struct own_stripes {
    struct counters
        *rows[THREAD_NUMBERS]; /* by thread number: its stripe; NULL: none yet, or none left */
    uint64_t exhausted;        /* none was left when somebody asked */
    uint8_t stripes[THREAD_NUMBERS]; /* their numbers */
};

#define CLOCK_GIVEN ((clockid_t)-1)

struct stint_limiter {
    /* Read by every decision, never written after open. */
    _Alignas(CACHE_LINE) struct table table;
    struct policy *policies;
    struct policy_record *records; /* of policies */
    struct own_stripes *own;
    struct counters *counters;
    uint32_t max_policies;
    uint32_t stripes;
    uint64_t (*clock)(void);
    clockid_t clock_id; /* CLOCK_GIVEN: `clock` */
    uint32_t on_full;
    uint64_t
        time_ticks; /* TICKS_IN_SECOND if time() is this limiter's clock in seconds, else 0. (The
                          * C library's may be ahead of it by a clock tick, musl's is: no promise
                          * minds, the other callers are then late.) */
    _Alignas(CACHE_LINE) uint8_t secret[STINT_SECRET_SIZE];
    struct header *header;

    /* Set-up and monitoring. */
    struct memory memory;
};

/* Number of this thread in the process.
 * initial-exec: the access never allocates, so it is safe in a signal handler, in a library loaded
 * with dlopen too. */
extern _Thread_local uint32_t stint_thread_number __attribute__((tls_model("initial-exec")));

/* Once in a process, before the first decision. */
void limiter_thread_numbers_begin(void);

/* The slow half of limiter_count: a thread's first count, or one that has no stripe of its own. */
void limiter_count_shared(struct stint_limiter *limiter, uint32_t row, uint32_t counter);

/* Adds one to a counter of a policy, or of the table (row max_policies). */
static inline void limiter_count(struct stint_limiter *limiter, uint32_t row, uint32_t counter) {
    struct counters *rows = limiter->own->rows[stint_thread_number];
    if (UNLIKELY(rows == NULL))
        limiter_count_shared(limiter, row, counter);
    else
        atomic_add_own(&rows[row].count[counter], 1);
}

/* The stripe of the counters that this thread adds to: a number that threads of all processes share with
 * as few others as can be. */
uint32_t limiter_stripe(struct stint_limiter *limiter);

/* Gives each thread number a stripe of a private table. */
void limiter_stripes_begin(struct stint_limiter *limiter);

/* Gives back the stripes that this process has, when it closes the table. */
void limiter_stripes_release(struct stint_limiter *limiter);

/* Makes the stripes of processes that are gone free again: of all others, if nobody else is `alone`. */
void limiter_stripes_reclaim(struct header *header, bool alone);

/* What a counter of a policy, or of the table (row max_policies), has come to: the sum of its
 * stripes, each read at an instant of its own. */
uint64_t limiter_counted(const struct stint_limiter *limiter, uint32_t row, uint32_t counter);

/* Adds one to a counter of the table. */
static inline void limiter_count_table(struct stint_limiter *limiter, uint32_t counter) {
    limiter_count(limiter, limiter->max_policies, counter);
}

static inline uint64_t limiter_now(const struct stint_limiter *limiter) {
    struct timespec time;

    if (UNLIKELY(limiter->clock_id == CLOCK_GIVEN))
        return limiter->clock();
    (void)clock_gettime(limiter->clock_id, &time); /* fails only for unknown clocks */
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* Longer windows are looked at slot by slot in a full table: so a slot left over from 2^33 ticks ago is not
 * taken for a live one for longer than this. */
#define GLANCED_MOST (7 * 86400 * TICKS_IN_SECOND)

/* Ticks by which header.latest is raised further than it must be, so that it is written every 30 s only. */
#ifdef STINT_TESTING
#define LATEST_STEP ((tick_t)0) /* whoever does not raise it is found out */
#else
#define LATEST_STEP ((tick_t)3000)
#endif
static_assert(LATEST_STEP < ALLOWANCE_TICKS, "without steps of the clock nothing is too late");

/* To be called before a window that begins at a tick, or earlier, is opened in a slot, or becomes a policy's
 * current_end, by which others open it. */
static inline void limiter_latest(struct stint_limiter *limiter, tick_t begin) {
    uint64_t *latest = &limiter->header->latest;
    if (UNLIKELY((tick_t)atomic_load_relaxed(latest) < begin) && GUARDED(LATEST_RAISE))
        atomic_raise(latest, (uint64_t)(begin + LATEST_STEP));
}

/* Policies that were added. Never more than there can be, even if the table was scribbled over. */
static inline uint32_t limiter_policy_count(const struct stint_limiter *limiter) {
    uint64_t count = atomic_load_acquire(&limiter->header->policy_count);
    return count < limiter->max_policies ? (uint32_t)count : limiter->max_policies;
}

/* A policy that exists, or NULL. What was written before its version is visible to the caller. */
static inline struct policy *limiter_policy(const struct stint_limiter *limiter, uint32_t id) {
    if (UNLIKELY(id >= limiter->max_policies))
        return NULL;
    struct policy *policy = &limiter->policies[id];
    return atomic_load_acquire(&policy->version) == 0 ? NULL : policy;
}

/* The policy of a slot's tag, or NULL: a tombstone's, or of a tag that no policy of this table explains. */
static inline struct policy *limiter_tag_policy(const struct stint_limiter *limiter, uint64_t tag) {
    return limiter_policy(limiter, tag_policy(&limiter->table, tag));
}

/* A consistent copy of what may change. A writer writes the rule that is not in use before it moves
 * the version on, so one that was killed in the middle holds up nobody, and a reader reads again
 * only if the version has moved. */
static inline struct rule policy_rule(const struct policy *policy) {
    uint64_t words[sizeof(struct rule) / sizeof(uint64_t)];
    struct rule rule;
    uint64_t version;

    do {
        version = atomic_load_acquire(&policy->version);
        for (uint32_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
            words[i] = atomic_load_acquire(&policy->rules[version % 2][i]);
    } while (UNLIKELY(atomic_load_relaxed(&policy->version) != version));
    memcpy(&rule, words, sizeof(rule));
    return rule;
}

/* How long a set-up call waits for another one, of another process perhaps, before it says -EBUSY: policies
 * are added in microseconds. It tries again and again, so that one that was stopped is told. */
#define SET_UP_WAIT  10 /* s */
#define SET_UP_TRIES (SET_UP_WAIT * 1000)

static inline void set_up_pause(void) {
    const struct timespec pause = {.tv_nsec = SET_UP_WAIT * INT64_C(1000000000) / SET_UP_TRIES};
    (void)nanosleep(&pause, NULL);
}

/* The table's lock, for set-up. Returns 0; -EBUSY if somebody has held it for too long, -EPROTO. */
int limiter_lock(struct stint_limiter *limiter);
void limiter_unlock(struct stint_limiter *limiter);

/* Notes why a set-up call failed, for stint_reason. Returns -error. */
int failed(int error, const char *reason);

/* Likewise, formatted as printf does, cut to 255 characters. */
int failed_with(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Checks a caller's struct that begins with its size. A larger one, of a later version, will do if
 * all that this version does not know is 0. Returns 0, or -EINVAL with that reason. */
int struct_check(const void *given, size_t given_size, size_t known_size, const char *reason);

#define WRONG_SIZE                                                                                 \
    "start from the _INIT macro, and compile with the stint.h of this library or an older one"

/* Writes a caller's struct whose size was checked: it keeps that size, and what is not known is 0.
 */
void struct_write(void *given, size_t given_size, const void *known, size_t known_size);

#endif
