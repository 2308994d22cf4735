/* SPDX-License-Identifier: MIT
 * How a set-up call tells why it failed, and how structs of callers are read and written. */
#ifndef STINT_MESSAGE_H
#define STINT_MESSAGE_H

#include <stddef.h>

/* Notes why a set-up call failed, for stint_reason. Returns -error. */
int stint_failed(int error, const char *reason);

/* Likewise, formatted as printf does, cut to 511 characters. */
int stint_failed_with(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts the path of a table's file before the reason for an error. Returns -error. */
int stint_failed_at(int error, const char *path);

/* Checks a caller's struct that begins with its size. A larger one, of a later version, will do if
 * all that this version does not know is 0. Returns 0, or -EINVAL with that reason. */
int stint_struct_check(const void *given, size_t given_size, size_t known_size, const char *reason);

/* What a handle that may not write says to a call that would. */
#define READ_ONLY                                                                                  \
    "the limiter was attached with STINT_READ_ONLY: attach without it, or open the table"

#define WRONG_SIZE                                                                                 \
    "start from the _INIT macro, and compile with the stint.h of this library or an older one"

/* Writes a caller's struct whose size was checked: it keeps that size, and what is not known is 0.
 */
void stint_struct_write(void *given, size_t given_size, const void *known, size_t known_size);

#endif
