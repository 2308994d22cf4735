/* SPDX-License-Identifier: MIT
 * Token buckets: what their slots' states say, and their rules. */
#ifndef STINT_BUCKET_H
#define STINT_BUCKET_H

#include "limiter/records.h"
#include "map/slot.h"

/* Of a bucket's state: the number of the rate by which it counts. Below it are the ns. 2^24 stray
 * tokens in one slot would reach it. */
#define STATE_RATE (UINT64_C(15) << STATE_RATE_SHIFT)
#define STATE_NS   ((UINT64_C(1) << STATE_RATE_SHIFT) - 1)

/* The state of a bucket that is full at this instant, by this rate (judge.h, bucket_full). */
static inline uint64_t bucket_state(uint64_t full, uint64_t rate) {
    return state_of(tick_of(full) + 1, full % STINT_TICK_NS | rate);
}

/* The state of a bucket that is full so many ns later. Nothing of a state that was loaded is
 * divided: the swap waits for it. Its ns are less than a tick, but for strays. */
static ALWAYS_INLINE uint64_t bucket_moved(uint64_t state, uint64_t ns) {
    const uint64_t carry = (UINT64_C(1) << STATE_ID) - STINT_TICK_NS;

    if (ns >= STINT_TICK_NS) { /* the branch is predicted: tokens of one policy are alike */
        const uint64_t ticks = ns / STINT_TICK_NS;
        state += ticks << STATE_ID;
        ns -= ticks * STINT_TICK_NS;
    }
    return state + ns + ((state & STATE_NS) + ns >= STINT_TICK_NS ? carry : 0);
}

static inline uint64_t bucket_ns(uint64_t state) {
    return state & STATE_NS;
}

static inline bool rate_differs(uint64_t state, uint64_t rate) {
    return ((state ^ rate) & STATE_RATE) != 0;
}

/* The whole rule of a policy. Returns false if it is no bucket, or gone. */
bool stint_bucket_rule(const struct stint_limiter *limiter, uint32_t id, struct bucket *bucket);

/* Tokens that a bucket's slot with this state holds at `now`. */
uint64_t stint_bucket_used(const struct stint_limiter *limiter, const struct policy *policy,
                           uint64_t state, uint64_t now);

/* The window of a policy's bucket, ns. */
uint64_t stint_bucket_window(const struct stint_limiter *limiter, uint32_t id);

/* The time at which a bucket that refuses at `now` is asked once more: the latest of the clock, the
 * shard's watermark, and the nows by which buckets have decided for this thread, each if it is
 * within the allowance of now. So nobody is refused for a clock that was read a moment ago, while
 * others of the shard went on, nor for one that goes back a little. */
uint64_t stint_bucket_later(const struct stint_limiter *limiter, uint64_t hash, uint64_t now);

/* The same as mark_passed (judge.h), by the window that the policy has. */
bool stint_mark_passed(const struct stint_limiter *limiter, uint32_t policy_id, uint64_t from,
                       uint64_t to);

#endif
