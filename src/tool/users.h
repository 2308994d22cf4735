/* SPDX-License-Identifier: MIT
 * The processes that have a table open: the one that is at a path, and those that were there. */
#ifndef STINT_TOOL_USERS_H
#define STINT_TOOL_USERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct user {
    uint64_t process;
    char program[16];
    bool writes;  /* it may write: it decides, or changes something */
    bool removed; /* its table was removed from the path, or replaced there; it may write to it */
};

struct users {
    struct user *of;
    size_t count;
    size_t hidden; /* processes that this one may not look at */
};

/* Finds the processes, but for this one, in the order of their ids. A table that is mapped is open,
 * whoever opened it: also by a child that decides by what its parent opened. Cost: reads
 * what /proc has of each process. */
void users_find(struct users *users, const char *path);
void users_free(struct users *users);

#endif
