/* SPDX-License-Identifier: MIT
 * Tables that were removed from a path, or replaced there, while processes decide by them. */
#ifndef STINT_TOOL_REMOVED_H
#define STINT_TOOL_REMOVED_H

#include <stddef.h>
#include <stdint.h>

/* Finds the processes that have such a table open for writing, as far as this one may look at their
 * descriptors.
 *   users  receives their ids, which the caller frees
 * Returns how many there are. */
size_t removed_users(const char *path, uint64_t **users);

#endif
