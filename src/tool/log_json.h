/* SPDX-License-Identifier: MIT
 * Fields of a line that is an object of JSON, by their names. */
#ifndef STINT_TOOL_LOG_JSON_H
#define STINT_TOOL_LOG_JSON_H

#include <stdbool.h>
#include <stddef.h>

#include "access_log.h"

/* A string, without its quotes, or a number, true or false; null is no value. */
struct json_part {
    struct text raw;
    bool found, escaped; /* escaped: there are escapes in it */
};

/* Looks for values by name. The names of the objects that a field is in stand before its own, with
 * dots between (request.host). Of a name that is there twice, and of an array, the first counts.
 * Returns whether the line is an object as a whole, or `why` says what is wrong, a constant. */
bool json_line_find(struct text line, const char *const *names, struct json_part *values,
                    size_t count, const char **why);

/* Writes a value as it is meant, and \x5b as nginx writes it, too. `to` has room for raw.length
 * bytes. Returns how many were written. */
size_t json_part_copy(const struct json_part *value, char *to);

#endif
