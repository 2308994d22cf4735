/* SPDX-License-Identifier: MIT
 * What a measurement must have: threads, one per core, pinned, started on a barrier; a clock. */
#ifndef STINT_BENCH_TEAM_H
#define STINT_BENCH_TEAM_H

#include <ck_barrier.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

enum { TEAM_MAX = 1024 };

struct team {
    ck_barrier_centralized_t barrier;
    pthread_barrier_t sleeping; /* in its place when there are more threads than cores */
    bool crowded;
    unsigned threads;
};

struct member {
    struct team *team;
    unsigned thread; /* 0 .. threads - 1 */
    ck_barrier_centralized_state_t barrier;
    void (*work)(struct member *member, void *context);
    void *context;
};

/* The cores that this process may run on, at most TEAM_MAX. */
unsigned team_cores(void);

/* Runs work(member, context) in `threads` threads, 1 .. TEAM_MAX, each on a core of its own as long
 * as there are cores; returns when all have returned. Ends the process if a thread cannot be had.
 */
void team_run(unsigned threads, void (*work)(struct member *, void *), void *context);

/* For qsort. */
int compare_floats(const void *a, const void *b);

static inline uint64_t clock_ns(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* Waits until every member of the team has come here. */
void team_wait(struct member *member);

#endif
