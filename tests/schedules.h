/* SPDX-License-Identifier: MIT
 * Every schedule of a few calls on one key (schedules.c). */
#ifndef STINT_TESTS_SCHEDULES_H
#define STINT_TESTS_SCHEDULES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

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
    uint64_t steps;
    uint64_t states;  /* of the table, different ones of each scene */
    uint64_t excused; /* answered as stint.h allows, though not as in any order */
    uint64_t most;    /* schedules of a scene, which is then left; 0: no end */
    uint64_t left;    /* scenes that were */
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
const char *schedules_play(const struct scene *scene, unsigned preemptions, uint64_t removed,
                           struct schedules_totals *totals, FILE *report);

/* The scene as a sentence. */
void schedules_tell(const struct scene *scene, char *text, size_t size);

#endif
