/* SPDX-License-Identifier: MIT
 * How a set-up call tells why it failed, and how structs of callers are read and written. */
#ifndef STINT_MESSAGE_H
#define STINT_MESSAGE_H

#include <errno.h>

#include <stint.h>

/* Notes why a set-up call failed, for stint_reason. Returns -error. */
int stint_failed(int error, const char *reason);

/* Notes a reason that is formatted as by printf, and cut to 511 characters. Returns -error. */
int stint_failed_with(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Notes what a process does that is in the way; 0: one that is not known. Returns -EBUSY. */
int stint_failed_held(long process, const char *does);

/* Puts the path of a table's file before the reason for an error, which it returns. */
int stint_failed_at(int error, const char *path);

/* The size of a struct that ends with this member: what it began with, of those that have grown. */
#define SIZE_THROUGH(type, member) (offsetof(type, member) + sizeof(((type *)0)->member))

/* Checks a caller's struct, which begins with its size: what it began with at least, at most a
 * page. What this version does not know must be 0. 0, or -EINVAL with a reason that names it. */
int stint_struct_check(const void *given, size_t least, size_t known_size, const char *name);

/* Checks it, and reads it into one of this version; what the caller's does not have is 0. */
int stint_struct_read(void *known, size_t known_size, const void *given, size_t least,
                      const char *name);

#define READ_ONLY                                                                                  \
    "the limiter was attached with STINT_READ_ONLY: attach without it, or open the table"

/* Copies a struct that was checked to one that says its own size: cut, or filled with 0. */
void stint_struct_copy(void *to, const void *from, size_t from_size);

#endif
