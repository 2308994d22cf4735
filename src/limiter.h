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
#include "private_names.h"
#include "table.h"
#include "window.h"

#define LIKELY(condition)   CK_CC_LIKELY(condition)
#define UNLIKELY(condition) CK_CC_UNLIKELY(condition)

/* Start of the part of the secret that joins keys. XXH3 reads the first 72 bytes of what it is
 * given for keys of up to 16 bytes, so hashes of short keys and of pairs use bytes of their own. */
#define JOIN_SECRET_OFFSET 56

struct policy {
    /* First line: all that the hot path and its edges read. */
    _Alignas(CACHE_LINE) uint64_t hot_capacity; /* tokens up to which a fetch-add counts; 0: it may
                                                 * not, because a count past the capacity would be
                                                 * carried over, or because the verdict says more */
    uint64_t
        current_end; /* end (tick) of the window that somebody last decided in: a hint that saves
                      * the division. Any value is safe: a subtraction tells if it holds now */
    uint64_t hot_window;    /* ns; 0: neither the hot path nor its edges are for this policy */
    uint64_t edge_capacity; /* tokens up to which one CAS counts */
    uint64_t edges;         /* enum edge, and the capacity << 32 */
    tick_t length;          /* of the window */
    tick_t start;           /* a tick at which a window starts, but for a key's own phase */
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

/* Counters. Threads do not share lines: each of the first STRIPES - 1 threads of a process has a
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

/* The start of the mapping. */
struct header {
    _Alignas(CACHE_LINE) uint64_t policy_count;
};

struct stint_limiter {
    /* Read by every decision, never written after open. */
    _Alignas(CACHE_LINE) struct table table;
    struct policy *policies;
    struct policy_record *records; /* of policies */
    struct counters *counters;
    uint32_t max_policies;
    uint32_t stripes;
    uint64_t (*clock)(void); /* NULL: clock_gettime(clock_id) */
    clockid_t clock_id;
    uint32_t on_full;
    _Alignas(CACHE_LINE) uint8_t secret[STINT_SECRET_SIZE];

    /* Set-up and monitoring. */
    struct header *header;

    void *mapping;
    size_t mapping_size;
    pthread_mutex_t
        policy_lock; /* held while policies are added or changed; no decision takes it */
};

/* Stripes of the counters at most. */
#define STRIPES_MAX 64

/* Number of this thread in the process, 1 .. STRIPES_MAX - 1 while it lives; UINT32_MAX: all numbers were
 * taken at its first decision; 0: it has made none yet.
 * initial-exec: the access never allocates, so it is safe in a signal handler, in a library loaded
 * with dlopen too. */
extern _Thread_local uint32_t stint_thread_number __attribute__((tls_model("initial-exec")));

/* Once in a process, before the first decision. */
void limiter_thread_numbers_begin(void);

/* Gives this thread a number if it has none. */
uint32_t limiter_thread_number_new(void);

static inline uint32_t limiter_thread_number(void) {
    return LIKELY(stint_thread_number != 0) ? stint_thread_number : limiter_thread_number_new();
}

/* The slow half of limiter_count: a thread's first count, or one that has no stripe of its own. */
void limiter_count_shared(struct stint_limiter *limiter, uint32_t row, uint32_t counter);

/* Adds one to a counter of a policy, or of the table (row max_policies). */
static inline void limiter_count(struct stint_limiter *limiter, uint32_t row, uint32_t counter) {
    uint32_t stripe = stint_thread_number;
    if (UNLIKELY(stripe - 1 >= limiter->stripes - 1)) {
        limiter_count_shared(limiter, row, counter);
        return;
    }
    size_t index = (size_t)stripe * (limiter->max_policies + 1) + row;
    atomic_add_own(&limiter->counters[index].count[counter], 1);
}

/* What a counter of a policy, or of the table (row max_policies), has come to: the sum of its
 * stripes, each read at an instant of its own. */
uint64_t limiter_counted(const struct stint_limiter *limiter, uint32_t row, uint32_t counter);

/* Adds one to a counter of the table. */
static inline void limiter_count_table(struct stint_limiter *limiter, uint32_t counter) {
    limiter_count(limiter, limiter->max_policies, counter);
}

static inline uint64_t limiter_now(const struct stint_limiter *limiter) {
    struct timespec time;

    if (UNLIKELY(limiter->clock != NULL))
        return limiter->clock();
    (void)clock_gettime(limiter->clock_id, &time); /* fails only for unknown clocks */
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* A policy that exists, or NULL. What was written before its version is visible to the caller. */
static inline struct policy *limiter_policy(const struct stint_limiter *limiter, uint32_t id) {
    if (UNLIKELY(id >= limiter->max_policies))
        return NULL;
    struct policy *policy = &limiter->policies[id];
    return atomic_load_acquire(&policy->version) == 0 ? NULL : policy;
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

/* Notes why a set-up call failed, for stint_reason. Returns -error. */
int failed(int error, const char *reason);

/* Checks a caller's struct that begins with its size. A larger one, of a later version, will do if
 * all that this version does not know is 0. Returns 0, or -EINVAL with that reason. */
int struct_check(const void *given, size_t given_size, size_t known_size, const char *reason);

#define WRONG_SIZE                                                                                 \
    "start from the _INIT macro, and compile with the stint.h of this library or an older one"

/* Writes a caller's struct whose size was checked: it keeps that size, and what is not known is 0.
 */
void struct_write(void *given, size_t given_size, const void *known, size_t known_size);

#endif
