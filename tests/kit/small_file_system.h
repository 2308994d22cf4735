/* SPDX-License-Identifier: MIT
 * Tests in a small file system of their own, which a child process mounts over the directory of
 * directory.h where nobody else sees it. */
#ifndef STINT_TESTS_SMALL_FILE_SYSTEM_H
#define STINT_TESTS_SMALL_FILE_SYSTEM_H

#include "children.h"
#include "directory.h"

#include <sched.h>
#include <sys/mount.h>

enum { NO_MOUNT = 77 };

/* Checks of a child, which has no cmocka to fail to. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return __LINE__ % 64 + 10;                                                             \
    } while (0)

/* Mounts one with these options of tmpfs. Returns false if that is not allowed here. */
static inline bool small_file_system_mount_at(const char *place, const char *options) {
    return (unshare(CLONE_NEWNS) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0) &&
           mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("tmpfs", place, "tmpfs", 0, options) == 0;
}

static inline bool small_file_system_mount(const char *options) {
    return small_file_system_mount_at(directory, options);
}

/* Runs in a child what returns 0, NO_MOUNT, or what CHECK says. */
static inline void small_file_system_test(int (*use)(void)) {
    pid_t child = forked();
    if (child == 0)
        _exit(use());
    const int status = status_of(child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == NO_MOUNT) {
        print_message("skipped: no file system can be mounted here\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

#endif
