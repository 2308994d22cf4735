/* SPDX-License-Identifier: MIT
 * Processes that a test forks. */
#ifndef STINT_TESTS_CHILDREN_H
#define STINT_TESTS_CHILDREN_H

#include "test.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static inline pid_t forked(void) {
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    return child;
}

/* What waitpid says of it. */
static inline int status_of(pid_t child) {
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

/* It ended with exit code 0. */
static inline void assert_good(pid_t child) {
    const int status = status_of(child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("the child ended with status %#x", (unsigned)status);
}

#endif
