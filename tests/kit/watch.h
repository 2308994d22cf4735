/* SPDX-License-Identifier: MIT
 * The watch: after each atomic operation it looks at all slots of a small table, and says which
 * invariant of map/slot.h the last writes have broken. I2 and I4 are of single writes, and are not
 * seen in what they leave. */
#ifndef STINT_TESTS_WATCH_H
#define STINT_TESTS_WATCH_H

#include "limiter/limiter.h"

enum { WATCHED_LINES = 4, WATCHED_SHARDS = 4 };

struct watch {
    const struct stint_limiter *limiter;
    bool replaces;     /* STINT_FULL_REPLACE: ends may fall */
    bool stepped_back; /* the clock was, beyond the allowance: I5 and I6 alone hold */
    /* What was there at the last look */
    struct slot slots[WATCHED_LINES * LINE_SLOTS];
    struct shard shards[WATCHED_SHARDS];
    uint8_t reach[WATCHED_LINES];
    const char *broken; /* the first invariant that was; NULL: none */
};

/* Takes what is there for what was there. */
void watch_begin(struct watch *watch, const struct stint_limiter *limiter);

/* Looks at all slots. `now` is the clock's. Returns whether a slot has changed. */
bool watch_look(struct watch *watch);

#endif
