/* SPDX-License-Identifier: MIT
 * The known mistakes of the slot protocol, each with a scene. With the guards in their places the
 * promises hold, wherever the threads are stopped; with the story's guards taken away, or its
 * patches applied, there is a place at which they do not. */
#ifndef STINT_TESTS_STORIES_H
#define STINT_TESTS_STORIES_H

#include "scene.h"

/* All slots of the line were used by others, whose windows are over. */
#define USED_LINE "take one h10; take one h11; take one h12; take one h13; turn 10"

struct story {
    const char *mutant;  /* the guard that keeps the mistake out, or the patch that lets it in */
    guard_set guards;    /* bits of that, and of another one that would as well */
    const char *patches; /* those that the library must have (tests/protocol/mutants); NULL: none */
    struct scene scene;
};

extern const struct story stories[];
extern const unsigned story_count;

#endif
