/* SPDX-License-Identifier: MIT
 * The time of a single call: by the processor's time-stamp counter where it runs at one rate in all
 * states of power, else by clock_gettime, which is dearer and coarser. */
#ifndef STINT_BENCH_TICKS_H
#define STINT_BENCH_TICKS_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* Set once by ticks_open, before threads start. */
struct ticks {
    bool tsc;           /* else CLOCK_MONOTONIC_RAW, a tick is a nanosecond */
    double ns;          /* of a tick */
    uint64_t overhead;  /* ticks that an empty section takes: the median */
    double overhead_ns; /* the same */
    double step_ns;     /* the finest difference that was seen */
};
extern struct ticks ticks;

/* Calibrates the counter, in 50 ms. The second call does nothing.
 *   tsc  the time-stamp counter is there, and runs at one rate, in sleeping cores too */
void ticks_open(bool tsc);

/* "tsc" or "clock_gettime" */
const char *ticks_name(void);

static inline uint64_t clock_ns(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static inline uint64_t ticks_clock(void) {
    return clock_ns(CLOCK_MONOTONIC_RAW);
}

/* The fences keep work outside from drifting in, and work inside from drifting out: the first waits
 * until all before it is done, the second holds the section back until the counter was read. */
static inline uint64_t ticks_start(void) {
#if defined(__x86_64__)
    if (ticks.tsc) {
        uint32_t low, high;
        __asm__ volatile("lfence\n\trdtsc\n\tlfence" : "=a"(low), "=d"(high) : : "memory");
        return (uint64_t)high << 32 | low;
    }
#endif
    return ticks_clock();
}

/* rdtscp waits for the section by itself; the fence keeps what follows from starting earlier. */
static inline uint64_t ticks_stop(void) {
#if defined(__x86_64__)
    if (ticks.tsc) {
        uint32_t low, high, core;
        __asm__ volatile("rdtscp\n\tlfence" : "=a"(low), "=d"(high), "=c"(core) : : "memory");
        return (uint64_t)high << 32 | low;
    }
#endif
    return ticks_clock();
}

#endif
