/* SPDX-License-Identifier: MIT
 * What commands do first: the table of FILE, the policy of POLICY. */
#ifndef STINT_TOOL_ATTACH_H
#define STINT_TOOL_ATTACH_H

#include <stint.h>

#include "command.h"

/* Each returns EXIT_GOOD; or a message says what is wrong, and the exit code is returned. */

/* Attaches to the table; its shape is the file's. */
int attach(const struct arguments *arguments, uint32_t flags, struct stint_limiter **limiter);

/* stint_open or stint_attach, of one that writes. Says so if another process holds it up: that
 * which makes or resizes the table, or those that have it open and are stopped. */
typedef int open_call(const struct stint_options *options, struct stint_limiter **limiter);
int attach_writer(const struct arguments *arguments, open_call *call,
                  const struct stint_options *options, struct stint_limiter **limiter);

/* The id of the policy that has this name, or else that the notation describes. If there is none,
 * --add adds the notation's. A policy that the table does not have is wrong usage. */
int attach_policy(const struct arguments *arguments, struct stint_limiter *limiter, uint32_t *id);

/* Tells the policies of a table, for an error: "there are 'login' and 'api'". Returns `said`. */
enum { POLICIES_SAID = 512 };
const char *policies_said(const struct stint_limiter *limiter, char said[POLICIES_SAID]);

/* Says so if another process is making or resizing the table, and has been for a while: whoever
 * writes to it waits. */
void tell_lock(const struct arguments *arguments);

/* stint_each. If that takes more than a second, a terminal at stderr shows how far it is, if
 * `shown`. */
int attach_each(struct stint_limiter *limiter, bool shown,
                bool (*callback)(void *context, const struct stint_entry *entry), void *context);

/* When the refusals began that last: a refusal is told once in a window, and no more are counted.
 * 0: it is not refused now. */
uint64_t entry_refused_since(const struct stint_entry *entry);

/* What an entry is, in a word. */
const char *entry_kind(const struct stint_entry *entry);

/* Reads a whole text, "-": standard input; the caller frees it. */
int attach_text(const struct arguments *arguments, const char *path, char **text);

/* The policies of a table by their ids. */
struct policies {
    uint32_t count; /* ids that are asked for: 0 .. count - 1 */
    struct policy_here {
        bool there;
        struct stint_policy policy;
        char notation[256]; /* without its name */
    } * of;
};
void policies_read(struct policies *policies, const struct stint_limiter *limiter);
void policies_free(struct policies *policies);

/* A policy by an id that may be none; NULL: there is none. */
const struct stint_policy *policies_at(const struct policies *policies, uint32_t id);

#endif
