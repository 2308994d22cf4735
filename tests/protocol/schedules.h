/* SPDX-License-Identifier: MIT
 * Every schedule of a few calls on one key (schedules.c). */
#ifndef STINT_TESTS_SCHEDULES_H
#define STINT_TESTS_SCHEDULES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "testing.h"

enum { SCENE_THREADS = 3, SCENE_CALLS = 2 };

/* Who does what in which table. */
struct scene {
    unsigned policy, state;
    unsigned threads, calls; /* of each */
    unsigned kinds[SCENE_THREADS][SCENE_CALLS];
};

struct schedules_totals {
    uint64_t scenes;
    uint64_t schedules;
    uint64_t plays;  /* that were made of them: what follows a state is played once */
    uint64_t states; /* in which a thread went on */
    uint64_t tables; /* different ones of each scene; likewise the next two */
    uint64_t answers;
    uint64_t excused; /* answers that stint.h allows, though they are as in no order */
    uint64_t ends;    /* of all answers with the tables that they left, a sum */
    uint64_t most;    /* plays of a scene, which is then left; 0: no end */
    uint64_t left;    /* scenes that were */
    unsigned taken;   /* preemptions of the last play */
    bool forgets;     /* states are not remembered */
    bool all_steps;   /* may be preempted, be it between two that it does not matter for */
};

extern const unsigned schedule_policies, schedule_states, schedule_kinds;

/* Whether a call of the scene is of set-up, and whether the scene can be judged. */
bool schedules_sets_up(const struct scene *scene);
bool schedules_playable(const struct scene *scene);

void schedules_begin(void);
void schedules_end(void);

/* Plays a scene in every schedule of at most so many preemptions, with these guards (testing.h)
 * taken away. Returns what was broken in the first that does not hold, which is then told to
 * `report` (NULL: to nobody); NULL: nothing. */
const char *schedules_play(const struct scene *scene, unsigned preemptions, guard_set removed,
                           struct schedules_totals *totals, FILE *report);

/* The scene as a sentence. */
void schedules_tell(const struct scene *scene, char *text, size_t size);

#endif
