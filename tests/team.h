/* SPDX-License-Identifier: MIT
 * What the tests with threads share: a clock that they turn, and threads that start together. */
#ifndef STINT_TESTS_TEAM_H
#define STINT_TESTS_TEAM_H

#ifdef NDEBUG
#error "tests need their assertions"
#endif

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "policy_id.h"
#include "random.h"
#include "stint.h"
#include "testing.h"

#define EPOCH UINT64_C(1700000000000000000) /* ns: a multiple of every window here */
#define TICK  STINT_TICK_NS

enum { THREADS = 4 };

static uint64_t test_time; /* ns; turned by the tests, read by all */

static inline uint64_t test_clock(void) {
    return __atomic_load_n(&test_time, __ATOMIC_SEQ_CST);
}

static inline void set_time(uint64_t ns) {
    __atomic_store_n(&test_time, ns, __ATOMIC_SEQ_CST);
}

static inline struct stint_limiter *open_limiter(uint64_t max_keys) {
    struct stint_options options = STINT_OPTIONS_INIT;
    options.max_keys = max_keys;
    options.on_full = STINT_FULL_REFUSE;
    options.clock = test_clock;
    struct stint_limiter *limiter;
    assert_int_equal(stint_open(&options, &limiter), 0);
    return limiter;
}

static inline uint64_t stray_tokens(struct stint_limiter *limiter) {
    struct stint_stats stats = STINT_STATS_INIT;
    assert_int_equal(stint_stats_get(limiter, &stats), 0);
    return stats.stray_tokens;
}

/* Threads that lose their core, now and then, before an atomic operation: what takes days without. */
static inline void team_step(const void *word) {
    static _Thread_local struct random random;
    (void)word;
    if (random.state == 0)
        random.state = (uintptr_t)&random;
    uint64_t drawn = random_below(&random, 12800);
    if (drawn == 0)
        (void)nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    else if (drawn < 32)
        sched_yield();
}

/* For the teams that follow. */
static inline void lose_cores(bool lose) {
    stint_test_step = lose ? team_step : NULL;
}

/* Runs `body` in THREADS threads that start together. The barrier sleeps: there may be fewer cores
 * than threads. */
struct team {
    pthread_barrier_t barrier;
    void (*body)(unsigned member, void *shared);
    void *shared;
};

struct member {
    struct team *team;
    unsigned number;
};

static inline void *member_main(void *argument) {
    struct member *member = argument;
    pthread_barrier_wait(&member->team->barrier);
    member->team->body(member->number, member->team->shared);
    return NULL;
}

static inline void run_team(void (*body)(unsigned member, void *shared), void *shared) {
    struct team team = {.body = body, .shared = shared};
    pthread_t threads[THREADS];
    struct member members[THREADS];

    pthread_barrier_init(&team.barrier, NULL, THREADS);
    for (unsigned i = 0; i < THREADS; i++) {
        members[i] = (struct member){&team, i};
        assert_int_equal(pthread_create(&threads[i], NULL, member_main, &members[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&team.barrier);
}

#endif
