/* SPDX-License-Identifier: MIT */
#include "ticks.h"

#include <stdlib.h>

enum {
    CALIBRATION_NS = 50000000, /* reading both clocks is off by tens of ns: by 1 in a million */
    TRIES = 20,
    SECTIONS = 20001,
};

struct ticks ticks;

/* Reads both at one instant: of some tries, the one that was interrupted least. */
static void read_both(uint64_t *count, uint64_t *clock) {
    uint64_t shortest = UINT64_MAX;

    for (int i = 0; i < TRIES; i++) {
        uint64_t before = ticks_start(), time = ticks_clock(), after = ticks_stop();
        if (after - before >= shortest)
            continue;
        shortest = after - before;
        *count = before + (after - before) / 2;
        *clock = time;
    }
}

static void calibrate(void) {
    uint64_t count[2] = {0, 0}, clock[2] = {0, 0};

    read_both(&count[0], &clock[0]);
    while (ticks_clock() - clock[0] < CALIBRATION_NS)
        continue;
    read_both(&count[1], &clock[1]);
    if (count[1] > count[0])
        ticks.ns = (double)(clock[1] - clock[0]) / (double)(count[1] - count[0]);
    else
        ticks.tsc = false; /* it went back: whatever the flags say */
}

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

void ticks_open(bool tsc) {
    static uint64_t sections[SECTIONS];

    if (ticks.ns != 0)
        return;
    ticks.ns = 1;
    ticks.tsc = tsc;
    if (ticks.tsc)
        calibrate();
    for (int i = 0; i < SECTIONS; i++) {
        uint64_t started = ticks_start();
        sections[i] = ticks_stop() - started;
    }
    qsort(sections, SECTIONS, sizeof(sections[0]), compare);
    ticks.overhead = sections[SECTIONS / 2];
    uint64_t step = UINT64_MAX;
    for (int i = 1; i < SECTIONS; i++)
        if (sections[i] != sections[i - 1] && sections[i] - sections[i - 1] < step)
            step = sections[i] - sections[i - 1];
    ticks.step_ns = step == UINT64_MAX ? ticks.ns : (double)step * ticks.ns;
    ticks.overhead_ns = (double)ticks.overhead * ticks.ns;
}

const char *ticks_name(void) {
    return ticks.tsc ? "tsc" : "clock_gettime";
}
