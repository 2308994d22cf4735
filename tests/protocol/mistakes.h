/* SPDX-License-Identifier: MIT
 * The known mistakes of the slot protocol, each as a story: what one thread does, and what
 * others do while it is stopped. With the guards in their places the promises hold, wherever it
 * is stopped; with the story's guards taken away, or its patches applied, there is a place at
 * which they do not. */
#ifndef STINT_TESTS_MISTAKES_H
#define STINT_TESTS_MISTAKES_H

#include <stdbool.h>
#include <stdint.h>

#include "testing.h"

struct play; /* what is done in a story, and by whom */

struct mistake {
    const char *name;
    const char *mutant;  /* the guard that keeps it out, or the patch that lets it in */
    guard_set guards;    /* bits of that, and of another one that would as well */
    const char *patches; /* those that the library must have (tests/protocol/mutants); NULL: none */
    /* 1, 2: of the thread. 3: it is stopped, a second thread begins and is stopped, it goes on
     * and is stopped again, and the second thread goes on. 0: none. */
    unsigned stops;
    const struct play *play;
};

extern const struct mistake mistakes[];
extern const unsigned mistake_count;

/* Whether a story can be played in this build: ThreadSanitizer does not know other stacks. */
bool mistake_playable(const struct mistake *mistake);

/* What came of a story played with the thread stopped at all its steps in turn. */
struct outcome {
    const char *broken; /* promise that was broken; NULL: none */
    unsigned stops[3];  /* steps at which threads were stopped then */
    unsigned plays;     /* until then, or of all */
};

/* Plays a story with these guards taken away. Of the many plays of one with two threads that are
 * stopped, one in `one_in` is drawn. */
struct outcome mistake_play(const struct mistake *mistake, guard_set removed, uint64_t one_in);

#endif
