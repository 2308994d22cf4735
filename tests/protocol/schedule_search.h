/* SPDX-License-Identifier: MIT
 * All schedules of a few threads that take up to so many preemptions, but what follows a state is
 * played once only (schedule_search.c). */
#ifndef STINT_TESTS_SCHEDULE_SEARCH_H
#define STINT_TESTS_SCHEDULE_SEARCH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "schedule.h"

enum { PREEMPTIONS_MAX = 7 };

struct search {
    unsigned threads;
    unsigned preemptions;
    void (*body)(unsigned thread);
    void (*switched)(unsigned thread); /* as of struct schedule */
    void (*begin)(void);               /* comes before each play */
    /* At a choice: all that what follows depends on, but for who goes on; a hash. 0: nothing is to
     * follow, `end` says why. */
    uint64_t (*state)(void);
    /* After a play that came to its end, or was stopped by `state` or as stuck. Returns what ends
     * the search; NULL: nothing. */
    const char *(*end)(bool stuck);
    bool to_the_end; /* no play is left on its way: its threads would keep what they hold */
    bool forgets;    /* takes every state for a new one */
    uint64_t most;   /* plays, after which the rest is left; 0: no end */
    /* Results */
    uint64_t plays;
    uint64_t nodes;     /* different (state, who goes on) */
    uint64_t schedules; /* that the plays stand for; 0: not all were played */
    unsigned taken;     /* preemptions of the last play */
    bool left;          /* some were, by `most` */
};

/* Plays those without preemptions first, then those with one, and so on. Returns what `end` did. */
const char *search_all(struct search *search);

/* Where threads were changed in the last play. */
void search_tell(FILE *file);

void search_free(void);

#endif
