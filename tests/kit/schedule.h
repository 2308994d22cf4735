/* SPDX-License-Identifier: MIT
 * A scheduler for tests: threads that run one at a time, on stacks of their own in one thread of
 * the system, and change at their atomic operations (STEP in sys/testing.h) as a seed decides. */
#ifndef STINT_TESTS_SCHEDULE_H
#define STINT_TESTS_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

/* Whether threads can have stacks of their own: ThreadSanitizer knows no other stacks. */
#ifdef STINT_THREAD_SANITIZER
#define SCHEDULABLE false
#else
#define SCHEDULABLE true
#endif

enum { SCHEDULED_MAX = 4 };

struct schedule {
    unsigned threads;
    void (*body)(unsigned thread);
    void (*switched)(unsigned thread); /* called when a thread is about to go on */
    uint64_t seed;
    uint64_t most_steps;               /* of all threads, after which they are stuck */
    uint64_t usual_steps;              /* about as many as there will be */
    bool stops;                        /* one of the threads stops for good on its way */
    bool (*may_stop)(unsigned thread); /* there and then; NULL: anywhere */
    /* Results */
    bool stuck;
    unsigned stopped; /* the thread that has stopped; SCHEDULED_MAX: none */
};

/* Runs the threads until each has ended or stopped. */
void schedule_run(struct schedule *schedule);

/* An instant at which another thread may go on; of a thread that schedule_run runs. */
void schedule_step(void);

/* Likewise; a thread that waits for another one lets all others go on first. */
void schedule_wait(void);

#endif
