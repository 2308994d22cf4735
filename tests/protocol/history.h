/* SPDX-License-Identifier: MIT
 * Histories: short runs of random operations on few keys, by a few threads on a clock that they
 * turn, recorded and checked against a sequential model (history.c says how, and what the model
 * allows). */
#ifndef STINT_TESTS_HISTORY_H
#define STINT_TESTS_HISTORY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* How the threads of a history run. */
enum history_threads {
    /* One at a time, and at each of their atomic operations chance decides who goes on: what
     * happens is a function of the seed alone. */
    HISTORY_SCHEDULED,
    /* At once, with random delays at their atomic operations. */
    HISTORY_FREE,
};

/* What histories have been made of, summed up. */
struct history_totals {
    uint64_t operations;
    uint64_t overlapping; /* operations on a key under way at once with another one on it */
    uint64_t refusals;
    uint64_t strays; /* the exception of promise B */
    uint64_t states; /* of the model that were visited */
};

/* Makes one history and checks it. Adds to `totals`. Returns whether the library kept its promises;
 * if not, writes the history and what is wrong with it to `report` (NULL: nowhere). */
bool history_holds(uint64_t seed, enum history_threads threads, struct history_totals *totals,
                   FILE *report);

/* What was wrong with the last history that did not hold. */
const char *history_wrong(void);

#endif
