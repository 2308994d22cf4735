/* SPDX-License-Identifier: MIT
 * A temporary directory for the file of a table: set-up and teardown of tests that share one. */
#ifndef STINT_TESTS_DIRECTORY_H
#define STINT_TESTS_DIRECTORY_H

#include "fixture.h"

#include <limits.h>
#include <unistd.h>

static char directory[PATH_MAX], path[PATH_MAX + 16];

static inline int directory_make(void **state) {
    (void)state;
    const char *parent = getenv("TMPDIR");
    snprintf(directory, sizeof directory, "%s/stint-XXXXXX", parent == NULL ? "/tmp" : parent);
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/table", directory);
    return 0;
}

/* Fails if anything but the table was left. */
static inline int directory_remove(void **state) {
    (void)state;
    (void)unlink(path);
    return rmdir(directory);
}

/* Those of a table in that file. */
static inline struct stint_options shared_options(uint64_t max_keys) {
    struct stint_options options = STINT_OPTIONS_INIT;
    options.max_keys = max_keys;
    options.clock = test_clock;
    options.path = path;
    return options;
}

#endif
