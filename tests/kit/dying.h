/* SPDX-License-Identifier: MIT
 * A process that a test forks, and that dies before its step of some number. */
#ifndef STINT_TESTS_DYING_H
#define STINT_TESTS_DYING_H

#include <signal.h>

#include "children.h"
#include "sys/testing.h"

static uint64_t steps_left;

static inline void die_at_step(const void *word) {
    (void)word;
    if (steps_left-- == 0)
        (void)raise(SIGKILL);
}

/* Each store of set-up is a step, too; or the first of them is the first step. */
static inline void die_at_set_up(enum stint_test_instant instant) {
    if (instant != INSTANT_SET_UP)
        return;
    stint_test_step = die_at_step;
    die_at_step(NULL);
}

/* Forks one that dies before the step of that number from here on, or from set-up on. Returns 0 in
 * it: it ends with _exit. */
static inline pid_t forked_to_die(uint64_t step, bool from_set_up) {
    pid_t child = forked();
    if (child == 0) {
        steps_left = step;
        stint_test_step = from_set_up ? NULL : die_at_step;
        stint_test_hook = die_at_set_up;
    }
    return child;
}

/* Whether it died; else it came to its end, and was content. */
static inline bool has_died(pid_t child) {
    const int status = status_of(child);
    if (WIFSIGNALED(status))
        assert_int_equal(WTERMSIG(status), SIGKILL);
    else
        assert_int_equal(status, 0);
    return WIFSIGNALED(status);
}

#endif
