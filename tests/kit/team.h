/* SPDX-License-Identifier: MIT
 * What the tests with threads share: a clock that they turn, and threads that start together. */
#ifndef STINT_TESTS_TEAM_H
#define STINT_TESTS_TEAM_H

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "fixture.h"
#include "random.h"
#include "sys/testing.h"

#define EPOCH UINT64_C(1700000000000000000) /* ns: a multiple of every window here */
#define TICK  STINT_TICK_NS

enum { THREADS = 4 };

static inline void set_time(uint64_t ns) {
    __atomic_store_n(&test_time, ns, __ATOMIC_SEQ_CST);
}

/* With another secret in each run, so that keys meet in other lines. */
static inline struct stint_limiter *open_anywhere(uint64_t max_entries) {
    struct stint_options options = fixture_options(max_entries, STINT_FULL_REFUSE);
    options.secret = NULL;
    return open_with(&options);
}

/* Threads that lose their core, now and then, before an atomic operation: what takes days
 * without. */
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
