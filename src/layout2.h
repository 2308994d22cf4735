/* SPDX-License-Identifier: MIT
 * Tables of stint 0.1 become tables of this layout: in a copy of them, of which the slots stay as
 * they are, and the counters and shards, too. */
#ifndef STINT_LAYOUT2_H
#define STINT_LAYOUT2_H

#include "limiter.h"

#define LAYOUT_2 2

/* Makes a header of this layout, without policies, of one of layout 2. Returns false if it is none:
 * then it stays as it is. */
bool stint_layout2_header(struct header *header);

/* Puts that header, and no policies, in the first `size` bytes of a copy of the table, up to the
 * counters. `front` receives what was there, to be freed. 0, or -ENOMEM. */
int stint_layout2_begin(char *start, size_t size, const struct header *header, void **front);

/* Adds the policies that were there to the table, with their ids: 0, or -EPROTO with a reason. */
int stint_layout2_policies(struct stint_limiter *limiter, const void *front);

#endif
