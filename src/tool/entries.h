/* SPDX-License-Identifier: MIT
 * The keys that stint watch shows. */
#ifndef STINT_TOOL_ENTRIES_H
#define STINT_TOOL_ENTRIES_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "command.h"

/* What was listed at an instant: what keys have used since then is their rate. */
struct looked {
    struct kept *kept; /* by key and policy */
    size_t count;
    uint64_t at_ns; /* of the monotonic clock; 0: nothing was looked at */
};
void looked_free(struct looked *looked);

/* Writes the keys as stint top finds them, in lines for a page.
 *   before   NULL: without rates
 *   now      receives what is listed; may be NULL
 *   columns  of the page */
int top_page(const struct arguments *arguments, FILE *out, const struct looked *before,
             struct looked *now, unsigned columns);

#endif
