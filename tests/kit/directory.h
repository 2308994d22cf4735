/* SPDX-License-Identifier: MIT
 * A temporary directory for the file of a table: set-up and teardown of tests that share one. */
#ifndef STINT_TESTS_DIRECTORY_H
#define STINT_TESTS_DIRECTORY_H

#include "fixture.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

static char directory[PATH_MAX], path[PATH_MAX + 16];

static inline int directory_make(void **state) {
    (void)state;
    test_time = T0;
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

/* A test whose table is in that file. */
#define TEST_IN_DIRECTORY(name) TEST_WITH(name, directory_make, directory_remove)

/* The path of another file there. It holds for three more such calls. */
static inline const char *file_beside(const char *name) {
    static char paths[4][PATH_MAX + NAME_MAX + 2];
    static unsigned calls;
    char *found = paths[calls++ % 4];
    snprintf(found, sizeof paths[0], "%s/%s", directory, name);
    return found;
}

/* Options of a table in that file. */
static inline struct stint_options shared_options(uint64_t max_entries) {
    struct stint_options options = STINT_OPTIONS_INIT;
    options.max_entries = max_entries;
    options.clock = test_clock;
    options.path = path;
    return options;
}

/* Those of who attaches to it. */
static inline struct stint_options attach_options(uint32_t flags) {
    struct stint_options options = shared_options(0);
    options.flags = flags;
    return options;
}

static inline struct stint_limiter *attach(uint32_t flags) {
    const struct stint_options options = attach_options(flags);
    struct stint_limiter *limiter = NULL;
    if (stint_attach(&options, &limiter) != 0)
        fail_msg("%s", stint_reason());
    return limiter;
}

/* It cannot be opened; options without a shape attach. The reason has this part. */
static inline void assert_not_opened(const struct stint_options *options, int error,
                                     const char *reason) {
    struct stint_limiter *limiter = NULL;
    const int opened =
        options->max_entries == 0 ? stint_attach(options, &limiter) : stint_open(options, &limiter);
    if (opened != -error || strstr(stint_reason(), reason) == NULL ||
        (error != EINVAL && strncmp(stint_reason(), options->path, strlen(options->path)) != 0))
        fail_msg("%d and \"%s\", not %d and \"%s\"", opened, stint_reason(), -error, reason);
    assert_null(limiter);
}

/* Gives the table of a file room for so many entries; 0: for as many as it has. */
static inline int file_resize(const char *name, uint64_t max_entries) {
    struct stint_options options = STINT_OPTIONS_INIT;
    options.max_entries = max_entries;
    options.clock = test_clock;
    return stint_resize(name, &options);
}

/* ---- Files ----------------------------------------------------------------------------------- */

/* Of a file. */
struct bytes {
    unsigned char *start;
    size_t size;
};

static inline struct bytes file_read(const char *name) {
    struct stat about;
    int file = open(name, O_RDONLY);
    if (file < 0 || fstat(file, &about) != 0)
        fail_msg("%s: %s", name, strerror(errno));
    struct bytes bytes = {malloc((size_t)about.st_size + 1), (size_t)about.st_size};
    assert_non_null(bytes.start);
    assert_int_equal(read(file, bytes.start, bytes.size), bytes.size);
    close(file);
    return bytes;
}

static inline void file_write(const char *name, struct bytes bytes) {
    int file = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(file >= 0);
    assert_int_equal(write(file, bytes.start, bytes.size), bytes.size);
    close(file);
}

/* The table's file must be what it was, to the byte. */
static inline void assert_file(struct bytes expected) {
    struct bytes bytes = file_read(path);
    assert_int_equal(bytes.size, expected.size);
    assert_memory_equal(bytes.start, expected.start, expected.size);
    free(bytes.start);
}

static inline unsigned entries_of_directory(void) {
    unsigned entries = 0;
    DIR *opened = opendir(directory);
    while (opened != NULL && readdir(opened) != NULL)
        entries++;
    if (opened != NULL)
        closedir(opened);
    return entries - 2; /* . and .. */
}

#endif
