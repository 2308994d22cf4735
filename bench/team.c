/* SPDX-License-Identifier: MIT */
#include "team.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common.h"

unsigned team_cores(void) {
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof(set), &set) != 0)
        return 1;
    unsigned cores = (unsigned)CPU_COUNT(&set);
    return cores < TEAM_MAX ? cores : TEAM_MAX;
}

void *must_have(void *memory) {
    if (memory == NULL || memory == MAP_FAILED) {
        fputs("stint-bench run: there is no memory left\n", stderr);
        exit(EXIT_FAILED);
    }
    return memory;
}

void team_wait(struct member *member) {
    ck_barrier_centralized(&member->team->barrier, &member->barrier, member->team->threads);
}

/* Keeps the calling thread on the nth core that the process may run on. A core that was taken away
 * since is no error: the thread then runs where it may. */
static void pin(unsigned nth) {
    cpu_set_t all, one;

    if (sched_getaffinity(0, sizeof(all), &all) != 0)
        return;
    for (size_t core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &all) && nth-- == 0) {
            CPU_ZERO(&one);
            CPU_SET(core, &one);
            pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
            return;
        }
}

static void *start(void *argument) {
    struct member *member = argument;

    pin(member->thread);
    team_wait(member);
    member->work(member, member->context);
    return NULL;
}

void team_run(unsigned threads, void (*work)(struct member *, void *), void *context) {
    static struct member members[TEAM_MAX];
    static pthread_t ids[TEAM_MAX];
    struct team team = {CK_BARRIER_CENTRALIZED_INITIALIZER, threads};

    for (unsigned i = 0; i < threads; i++) {
        members[i] = (struct member){
            &team, i, CK_BARRIER_CENTRALIZED_STATE_INITIALIZER, work, context,
        };
        int error = pthread_create(&ids[i], NULL, start, &members[i]);
        if (error != 0) {
            /* The threads before it wait on the barrier for ever: there is no way back. */
            fprintf(stderr, "stint-bench: thread %u cannot be started: %s\n", i + 1,
                    strerror(error));
            exit(EXIT_FAILED);
        }
    }
    for (unsigned i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
}
