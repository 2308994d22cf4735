/* SPDX-License-Identifier: MIT */
#include "schedule.h"

#include <string.h>
#include <ucontext.h>

#include "random.h"

#if defined(__SANITIZE_ADDRESS__)
#define ADDRESS_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ADDRESS_SANITIZER
#endif
#endif
#ifdef ADDRESS_SANITIZER
#include <pthread.h>
#include <sanitizer/common_interface_defs.h>
#endif

enum { STACK = 256 * 1024, CHANGES_MAX = 4 };

static struct schedule *schedule;
static ucontext_t contexts[SCHEDULED_MAX + 1]; /* the last: who called schedule_run */
static char stacks[SCHEDULED_MAX][STACK] __attribute__((aligned(64)));
static bool gone[SCHEDULED_MAX]; /* ended or stopped */
static unsigned current;
static uint64_t steps;
static uint64_t stop_at; /* step at which the thread that takes it stops; 0: none */
static struct random chance;

/* How the next thread is chosen. By chance: at each step with probability 1/n. Or by priorities,
 * which only change at a few steps drawn beforehand (Burckhardt et al., "A randomized scheduler
 * with probabilistic guarantees of finding bugs", 2010): a thread may then sleep while others do a
 * lot. */
static uint64_t one_in; /* 0: by priorities */
static unsigned priorities[SCHEDULED_MAX], lowest;
static uint64_t changes[CHANGES_MAX];
static unsigned change_count;

static void go_on(unsigned next) {
    unsigned from = current;
    if (next == from)
        return;
    current = next;
    if (next < SCHEDULED_MAX && schedule->switched != NULL)
        schedule->switched(next);
#ifdef ADDRESS_SANITIZER
    static void *fakes[SCHEDULED_MAX + 1], *bottom;
    static size_t size;
    if (bottom == NULL) {
        pthread_attr_t own;
        pthread_getattr_np(pthread_self(), &own);
        pthread_attr_getstack(&own, &bottom, &size);
        pthread_attr_destroy(&own);
    }
    bool ends = from < SCHEDULED_MAX && gone[from] && from != schedule->stopped;
    if (next < SCHEDULED_MAX)
        __sanitizer_start_switch_fiber(ends ? NULL : &fakes[from], stacks[next], STACK);
    else
        __sanitizer_start_switch_fiber(ends ? NULL : &fakes[from], bottom, size);
    swapcontext(&contexts[from], &contexts[next]);
    __sanitizer_finish_switch_fiber(fakes[from], NULL, NULL);
#else
    swapcontext(&contexts[from], &contexts[next]);
#endif
}

static unsigned alive(unsigned *threads) {
    unsigned count = 0;
    for (unsigned i = 0; i < schedule->threads; i++)
        if (!gone[i])
            threads[count++] = i;
    return count;
}

static unsigned choose(bool must) {
    unsigned threads[SCHEDULED_MAX], count = alive(threads);
    if (count == 0)
        return SCHEDULED_MAX;
    if (one_in != 0)
        return must || random_below(&chance, one_in) == 0 ? threads[random_below(&chance, count)]
                                                          : current;
    unsigned first = threads[0];
    for (unsigned i = 1; i < count; i++)
        if (priorities[threads[i]] > priorities[first])
            first = threads[i];
    return first;
}

static void leave(void) {
    schedule->stuck = true;
    go_on(SCHEDULED_MAX);
}

void schedule_step(void) {
    if (++steps >= schedule->most_steps)
        leave();
    bool stops = stop_at != 0 && steps >= stop_at &&
                 (schedule->may_stop == NULL ? steps == stop_at : schedule->may_stop(current));
    if (stops) {
        stop_at = 0;
        gone[current] = true;
        schedule->stopped = current;
    }
    for (unsigned i = 0; i < change_count; i++)
        if (changes[i] == steps)
            priorities[current] = --lowest;
    go_on(choose(stops));
}

void schedule_wait(void) {
    priorities[current] = --lowest;
    if (++steps >= schedule->most_steps)
        leave();
    go_on(choose(true));
}

static void thread_main(void) {
#ifdef ADDRESS_SANITIZER
    __sanitizer_finish_switch_fiber(NULL, NULL, NULL);
#endif
    schedule->body(current);
    gone[current] = true;
    go_on(choose(true));
    abort(); /* a thread that has ended does not go on */
}

/* Not inlined: getcontext returns like setjmp, and locals of the caller might be lost. */
static __attribute__((noinline)) void make_context(unsigned thread) {
    getcontext(&contexts[thread]);
    contexts[thread].uc_stack.ss_sp = stacks[thread];
    contexts[thread].uc_stack.ss_size = STACK;
    contexts[thread].uc_link = NULL;
    makecontext(&contexts[thread], thread_main, 0);
}

void schedule_run(struct schedule *run) {
    schedule = run;
    run->stuck = false;
    run->stopped = SCHEDULED_MAX;
    memset(gone, 0, sizeof(gone));
    chance = (struct random){run->seed};
    steps = 0;
    stop_at = run->stops ? 1 + random_below(&chance, run->usual_steps) : 0;
    static const uint64_t odds[] = {2, 3, 6, 15, 40};
    one_in = random_below(&chance, 2) == 0 ? 0 : odds[random_below(&chance, 5)];
    change_count = 1 + (unsigned)random_below(&chance, CHANGES_MAX);
    for (unsigned i = 0; i < change_count; i++)
        changes[i] = 1 + random_below(&chance, run->usual_steps);
    lowest = 1000;
    for (unsigned i = 0; i < run->threads; i++) {
        priorities[i] = 2000 + (unsigned)random_below(&chance, 1000);
        make_context(i);
    }
    current = SCHEDULED_MAX;
    go_on(choose(true));
}
