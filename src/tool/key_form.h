/* SPDX-License-Identifier: MIT
 * What the KEYs of a command line are, and what else they could have meant: a key is other bytes,
 * and so another key, for each form in which a server may have it. */
#ifndef STINT_TOOL_KEY_FORM_H
#define STINT_TOOL_KEY_FORM_H

#include <stdbool.h>

#include <stint.h>

#include "command.h"

enum { FORMS_SIZE = 512 };

/* The key, from the same bytes as the library's functions make it. Returns EXIT_GOOD; or a message
 * says what is wrong, and the exit code is returned. */
int key_read(const struct arguments *arguments, struct stint_limiter *limiter, stint_key *key);

/* Whether the table has more of a key by a policy than a limit that was set by hand. UINT32_MAX: by
 * any policy, or a name. */
bool key_used(struct stint_limiter *limiter, uint32_t policy, stint_key key);

/* Looks for a key that nobody uses in other forms than it is asked for. Returns `said`: those that
 * are used, as the end of a sentence; empty: there are none. */
const char *key_forms(const struct arguments *arguments, struct stint_limiter *limiter,
                      uint32_t policy, stint_key key, char said[FORMS_SIZE]);

/* Looks at what a policy has of other addresses, by their names, for one that it has nothing of.
 * Returns `said`: in which form they are, if none is in that of the key; a network is none. */
const char *key_form_of_others(const struct arguments *arguments, struct stint_limiter *limiter,
                               uint32_t policy, stint_key key, char said[FORMS_SIZE]);

#endif
