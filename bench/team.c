/* SPDX-License-Identifier: MIT */
#include "team.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pages.h"

unsigned team_cores(void) {
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof(set), &set) != 0)
        return 1;
    unsigned cores = (unsigned)CPU_COUNT(&set);
    return cores < TEAM_MAX ? cores : TEAM_MAX;
}

int compare_floats(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

void team_wait(struct member *member) {
    if (member->team->crowded) {
        pthread_barrier_wait(&member->team->sleeping);
        return;
    }
    ck_barrier_centralized(&member->team->barrier, &member->barrier, member->team->threads);
}

/* Keeps the calling thread on the nth core that the process may run on. A core that was taken away
 * since is no error: the thread then runs where it may. */
static void pin(unsigned nth) {
    cpu_set_t all, one;

    if (sched_getaffinity(0, sizeof(all), &all) != 0)
        return;
    nth %= (unsigned)CPU_COUNT(&all);
    for (size_t core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &all) && nth-- == 0) {
            CPU_ZERO(&one);
            CPU_SET(core, &one);
            pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
            return;
        }
}

/* Threads stay for the next team: a limiter gives the first threads of a process counters of their
 * own, and a server's threads stay too. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t called, done;
    struct member members[TEAM_MAX];
    unsigned started; /* threads that there are */
    unsigned wanted;  /* of them, those that are called */
    unsigned working;
    uint64_t call;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER,
          .called = PTHREAD_COND_INITIALIZER,
          .done = PTHREAD_COND_INITIALIZER};

static void *work_when_called(void *argument) {
    unsigned thread = (unsigned)(uintptr_t)argument;
    uint64_t answered = 0;

    pin(thread);
    pthread_mutex_lock(&pool.lock);
    for (;;) {
        while (pool.call == answered || thread >= pool.wanted) {
            answered = pool.call;
            pthread_cond_wait(&pool.called, &pool.lock);
        }
        answered = pool.call;
        pthread_mutex_unlock(&pool.lock);
        struct member *member = &pool.members[thread];
        team_wait(member);
        member->work(member, member->context);
        pthread_mutex_lock(&pool.lock);
        if (--pool.working == 0)
            pthread_cond_signal(&pool.done);
    }
    return NULL;
}

static void start_thread(unsigned thread) {
    pthread_t id;
    int error = pthread_create(&id, NULL, work_when_called, (void *)(uintptr_t)thread);

    if (error != 0) {
        fprintf(stderr, "stint-bench: thread %u cannot be started: %s\n", thread + 1,
                strerror(error));
        exit(EXIT_FAILURE);
    }
    pthread_detach(id);
}

void team_run(unsigned threads, void (*work)(struct member *, void *), void *context) {
    struct team team = {
        .barrier = CK_BARRIER_CENTRALIZED_INITIALIZER,
        .crowded = threads > team_cores(),
        .threads = threads,
    };

    if (pthread_barrier_init(&team.sleeping, NULL, threads) != 0)
        must_have(NULL);
    pthread_mutex_lock(&pool.lock);
    for (unsigned i = 0; i < threads; i++)
        pool.members[i] = (struct member){
            &team, i, CK_BARRIER_CENTRALIZED_STATE_INITIALIZER, work, context,
        };
    while (pool.started < threads)
        start_thread(pool.started++);
    pool.wanted = pool.working = threads;
    pool.call++;
    pthread_cond_broadcast(&pool.called);
    while (pool.working != 0)
        pthread_cond_wait(&pool.done, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
    pthread_barrier_destroy(&team.sleeping);
}
