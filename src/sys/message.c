/* SPDX-License-Identifier: MIT
 * What the library says to people: errors, reasons, its version. */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sys/message.h"
#include "sys/testing.h"

static _Thread_local const char *last_reason = "";

int stint_failed(int error, const char *reason) {
    last_reason = reason;
    return -error;
}

#define STRUCT_MAX 4096 /* bytes of a caller's struct: far more than any will have */

/* Bytes of a reason, and of a path in it: of a longer one the end is told. */
#define REASON_SIZE 512
#define PATH_TOLD   200

int stint_failed_with(int error, const char *format, ...) {
    static _Thread_local char reason[REASON_SIZE];
    char made[REASON_SIZE]; /* the last reason may be among the arguments */
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(made, sizeof(made), format, arguments);
    va_end(arguments);
    memcpy(reason, made, sizeof(reason));
    return stint_failed(error, reason);
}

int stint_failed_held(long process, const char *does) {
    return process == 0 ? stint_failed_with(EBUSY, "another process %s", does)
                        : stint_failed_with(EBUSY, "process %ld %s", process, does);
}

int stint_failed_at(int error, const char *path) {
    size_t length = strlen(path);
    const char *told = length <= PATH_TOLD ? path : path + length - PATH_TOLD;

    return stint_failed_with(-error, "%s%s: %s", told == path ? "" : "...", told, last_reason);
}

int stint_struct_check(const void *given, size_t least, size_t known_size, const char *name) {
    const size_t size = *(const size_t *)given; /* its first member */

    /* No struct is larger than a page: this is no size, and what is there is not read. */
    if (size < least || GUARD(STRUCT_PAGE, size > STRUCT_MAX))
        return stint_failed_with(EINVAL,
                                 "%s.size is wrong (%zu; %zu to %d): start from the _INIT macro",
                                 name, size, least, STRUCT_MAX);
    for (size_t i = known_size; i < size; i++)
        if (((const char *)given)[i] != 0)
            return stint_failed_with(EINVAL,
                                     "%s.size is that of a later version, and something is set "
                                     "that this one does not know: start from the _INIT macro, or "
                                     "use a later library",
                                     name);
    return 0;
}

int stint_struct_read(void *known, size_t known_size, const void *given, size_t least,
                      const char *name) {
    int error = stint_struct_check(given, least, known_size, name);

    if (error != 0)
        return error;
    memcpy(known, &known_size, sizeof(known_size));
    stint_struct_copy(known, given, *(const size_t *)given);
    return 0;
}

void stint_struct_copy(void *to, const void *from, size_t from_size) {
    const size_t size = *(const size_t *)to;

    memset(to, 0, size);
    memcpy(to, from, size < from_size ? size : from_size);
    memcpy(to, &size, sizeof(size));
}

const char *stint_reason(void) {
    return last_reason;
}

const char *stint_strerror(int error) {
    static const struct {
        long error;
        const char *meaning;
    } meanings[] = {
        {0, "no error"},
        {EINVAL, "an argument is out of range, contradictory, or of another version"},
        {ENOMEM, "the memory cannot be had"},
        {EEXIST, "a policy of that name exists, with other numbers"},
        {ENOSPC, "there is no room for another policy, or on the file system for the table"},
        {ENOENT, "there is no such policy, or no directory for the table's file"},
        {EAGAIN, "the system has no random bytes to give for the secret"},
        {EPROTO, "what is there is not a table that can be used"},
        {EBUSY, "another process is setting the table up, and does not come to an end"},
        {ENAMETOOLONG, "the path of the table's file is too long"},
        {ELOOP, "the path of the table's file is a symbolic link"},
        {EOPNOTSUPP, "the file system cannot hold the table's file"},
        {EACCES, "the table's file may not be opened for reading and writing"},
        {EPERM, "the table's file may not be opened for reading and writing"},
        {EROFS,
         "the table may only be read: its file system is so, or STINT_READ_ONLY was asked for"},
    };

    for (size_t i = 0; i < sizeof(meanings) / sizeof(meanings[0]); i++)
        if (meanings[i].error == (error < 0 ? -(long)error : error))
            return meanings[i].meaning;
    return "an error of the system: see errno(3)";
}

#define TEXT_OF(number)                   #number
#define VERSION_TEXT(major, minor, patch) TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(patch)

static_assert(STINT_VERSION == BUILD_VERSION,
              "stint.h and meson.build say the same version: change both");

const char *stint_version(void) {
    return VERSION_TEXT(STINT_VERSION_MAJOR, STINT_VERSION_MINOR, STINT_VERSION_PATCH);
}

#ifdef STINT_TESTING
void (*stint_test_hook)(enum stint_test_instant instant);
void (*stint_test_step)(const void *word);
guard_set stint_test_removed;

void stint_test_broken(const char *what, const char *file, int line) {
    (void)fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
    abort();
}
#endif
