/* SPDX-License-Identifier: MIT
 * The occupant of a slot: what a state means by the policy of its tag; and which slots are free. */
#ifndef STINT_OCCUPANT_H
#define STINT_OCCUPANT_H

#include "limiter/counters.h"
#include "limiter/records.h"
#include "map/claim.h"

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

/* The time at which a bucket that refuses at `now` is asked once more: the latest of the clock, the
 * shard's watermark, and the nows by which buckets have decided for this thread, each if it is
 * within the allowance of now. So nobody is refused for a clock that was read a moment ago, while
 * others of the shard went on, nor for one that goes back a little. */
uint64_t stint_bucket_later(const struct stint_limiter *limiter, uint64_t hash, uint64_t now);

/* The same as mark_passed (judge.h), by the window that the policy has. */
bool stint_mark_passed(const struct stint_limiter *limiter, uint32_t policy_id, uint64_t from,
                       uint64_t to);

/* The tick at which a slot is over, at the latest. A bucket that counts by the rate before may be
 * full later than it says, by the time in which the longest one fills. */
static inline tick_t slot_end(const struct stint_limiter *limiter, const struct policy *policy,
                              uint64_t state, tick_t now) {
    const tick_t end = end_of(state_id(state), now);

    if (policy == NULL || LIKELY((policy_word(policy) & RULE_BUCKET) == 0))
        return end;
    const struct policy_record *record = limiter_record(limiter, policy);
    const uint64_t version = atomic_load_acquire(&policy->version); /* M15 */
    const uint64_t rate = atomic_load_relaxed(&record->bucket[version % 2][0]) >> RATE_NUMBER;
    const tick_t latest =
        tick_of(atomic_load_relaxed(&record->rate_changed)) + policy_reach(policy); /* M12 */
    return UNLIKELY(rate_differs(state, rate << STATE_RATE_SHIFT)) && latest > end ? latest : end;
}

/* Whether a window that is over leaves a count to the next one. `policy` may be NULL. */
static inline bool slot_carries(const struct policy *policy, uint64_t state, tick_t now) {
    if (policy == NULL || LIKELY((policy_word(policy) & TRAIT_CARRIES) == 0))
        return false;
    struct rule rule = policy_rule(policy);
    const tick_t over = now - end_before(state_id(state), now);
    return count_carry(&rule, state_used(state), (uint64_t)(over / policy_length(policy)) + 1) != 0;
}

/* Whether a slot with this state is a companion's, and its override was lifted. */
static inline bool slot_lifted(const struct policy *policy, uint64_t state) {
    return (state & (STATE_REFUSED | USED_MASK)) == 0 &&
           (policy_word(policy) & TRAIT_COMPANION) != 0;
}

/* Whether a slot with this state is a companion's, and is a limit, a ban or strikes. */
static inline bool override_says(const struct policy *policy, uint64_t state) {
    return (state & (STATE_REFUSED | USED_MASK)) != 0 &&
           (policy_word(policy) & TRAIT_COMPANION) != 0;
}

/* Whether a slot with this tag and state counts for its key: it is committed, not over, and not so
 * far ahead of the clock's `now` that it counts as over. */
bool stint_slot_live(const struct stint_limiter *limiter, uint64_t tag, uint64_t state, tick_t now);

/* Whether a claim may not be committed. Its policy is gone: its key may have had a slot, which was
 * swept (sweep.c), and what it had used is no longer known. If the policy is there after the look
 * (M8), the sweep had not begun when the look was made; or the policy is back, and what was swept
 * counts no more. Or a bucket's rate changed, and the claim's state may be by a rate of which no
 * slot may be any more (rate.h): `version` is that which was read of it. */
static ALWAYS_INLINE bool claim_void(const struct policy *policy, bool bucket, uint64_t version) {
    return GUARD(CLAIM_GONE, policy_word(policy) == 0) ||                                   /* M8 */
           (bucket && GUARD(RATE_CLAIM, atomic_load_relaxed(&policy->version) != version)); /* M8 */
}

/* Takes back the token that slot_add counted without room, or in another window. */
NOINLINE void stint_token_back(const struct stint_limiter *limiter, struct slot *slot, uint64_t tag,
                               tick_t end, uint64_t used);

/* Adds one token after slot_room. `used` receives the count with it. Returns false if there was no
 * room: then nothing was taken. */
static ALWAYS_INLINE bool token_add(const struct stint_limiter *limiter, struct slot *slot,
                                    uint64_t tag, tick_t end, uint64_t capacity, uint64_t *used) {
    if (LIKELY(slot_add(slot, end, capacity, used)))
        return true;
    stint_token_back(limiter, slot, tag, end, *used);
    return false;
}

/* ---- Which slot a key may claim -------------------------------------------------------------- */

/* Reads the clock, as something is too far ahead of this now, which moves to it. After this a late
 * thread is late no more. (In its own tick none is.) Returns the clock's tick. */
tick_t stint_clock_read(const struct stint_limiter *limiter, uint64_t *now);

/* Whether an end that was loaded before is so far ahead that only a step of the clock explains it.
 * `length` is that of the window it ends. Reads the clock once at most: now may move. */
bool stint_beyond_clock(const struct stint_limiter *limiter, uint64_t *now, uint64_t id,
                        tick_t length);

/* A key that is looked for, and may claim a slot. */
struct seat {
    const struct stint_limiter *limiter;
    uint64_t hash, tag;
    uint64_t now;  /* ns; it may move to the clock's */
    uint64_t over; /* the now by which a slot is over that may be taken over; of the search */
};

enum found { FOUND, ABSENT, FULL };

/* Looks for the key. FOUND: `seen` is its slot; only the tag was loaded. ABSENT: `seen` is the
 * first slot that it may claim. FULL: none, and look for it again. */
enum found stint_slot_find(struct seat *seat, struct seen *seen);

/* Claims a slot that was found so. If a key had it before, the watermark is raised first. */
bool stint_claim_free(const struct seat *seat, struct seen *seen);

/* LEAST: `claim` is one on the slot of the key that has used least. NONE: all are claims or
 * tombstones, which are free in the next tick. LOST: it has changed, or the key has got one. */
enum least_used { LEAST, NONE, LOST };

/* Claims a slot that is live (STINT_FULL_REPLACE). */
enum least_used stint_claim_least(const struct seat *seat, struct seen *claim);

#endif
