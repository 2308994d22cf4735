/* SPDX-License-Identifier: MIT
 * The names of the keys of a log, each once, numbered from 0 in the order of their first lines. */
#ifndef STINT_TOOL_LOG_KEYS_H
#define STINT_TOOL_LOG_KEYS_H

#include <stddef.h>
#include <stdint.h>

#include "access_log.h"

struct log_keys {
    char *bytes; /* of all names, one behind the other */
    size_t length, room;
    struct log_name *names;
    uint32_t count, name_room;
    uint32_t *slots; /* 1 + number; 0: none. A power of two, at most half of them taken */
    uint32_t slot_count;
    uint64_t seed; /* so that nobody writes a log whose names all want one slot */
};

/* Finds a key by its name, and adds it if it is new. Returns its number. */
uint32_t log_key_named(struct log_keys *keys, struct text name);

struct text log_key_name(const struct log_keys *keys, uint32_t number);

void log_keys_free(struct log_keys *keys);

#endif
