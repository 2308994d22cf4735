/* SPDX-License-Identifier: MIT
 * The slot protocol: what a slot's two words say, how it changes hands, and how it is charged.
 *
 *     word 0   tag     64: whose slot it is (lines.h)
 *     word 1   state   id 33 | pending 1 | refused 1 | used 29        (bit 63 ... bit 0)
 *
 *   id       the end of the slot's window in ticks, 33 bits of it (window.h)
 *   pending  the slot is claimed, but nobody may count in it yet
 *   refused  the key was refused in this window: FIRST_REFUSAL has been given. In a pending slot it
 *            marks the slot's first claim (claim.h, claim_unused)
 *   used     tokens taken, or what else the kind of policy counts (occupant.h; override.h)
 *
 * A slot is in one of four states:
 *
 *     NEVER       tag = 0                     never used: a search for a key may stop at it (I5)
 *     PENDING     tag = a key's, pending = 1  a claim: its key may have another slot
 *     COMMITTED   tag = a key's, pending = 0  the one slot of its key: tokens are counted in it
 *     TOMBSTONE   tag = table_tombstone       a claim that was cancelled
 *
 * "End" below is the full end that the id stands for. A slot is OVER when its end <= now:
 *
 *     NEVER --claim--> PENDING --commit--> COMMITTED --+
 *                       ^   |                          |  over, and nothing is carried
 *                       |   +----cancel--> TOMBSTONE --+
 *                       +------------claim-------------+
 *
 * Transitions, and the functions that make them. D: double-width CAS on tag and state; S: CAS on
 * the state alone; +: fetch-add on it. Functions without a file are in this one. tests/spin/run
 * compares this table with the model.
 *
 *     from        to          how  by
 *     NEVER       PENDING     D    claim: claim.h, claim_unused; claim.c, stint_claim_slot
 *                                  No other slot of the sequence has the key's tag.
 *     COMMITTED   PENDING     D    claim: claim.h, claim_over; claim.c, stint_claim_slot
 *                                  It is over and carries nothing (occupant.c, slot_reusable). The
 *                                  shard's watermark was raised first.
 *     TOMBSTONE   PENDING     D    claim: claim.c, stint_claim_slot
 *     PENDING     PENDING     D    claim: claim.c, stint_claim_slot; its claimer died
 *     PENDING     COMMITTED   D    resolve: claim.c, stint_claim_commit, by anyone; after
 *                                  claim_over decide.c, stint_place_over, by the claimer
 *                                  No other slot of the key is committed, or an earlier claim.
 *     PENDING     COMMITTED   S    resolve: decide.h, place_unused, by the claimer
 *                                  No other slot of the first lines has the key's tag, and this
 *                                  one was never used before.
 *     PENDING     TOMBSTONE   D    resolve: claim.c, stint_claim_cancel, by anyone; decide.h,
 *                                  place_unused. Another slot is the key's, or it may not be
 *                                  committed (occupant.h, claim_void). rate: rate.c, slot_sweep
 *     COMMITTED   COMMITTED   +    take: slot_add. slot_room showed the key's tag, this window
 *                                  and room.
 *     COMMITTED   COMMITTED   D    take back: occupant.c, stint_token_back, by the adder alone
 *     COMMITTED   COMMITTED   D    decide: core.h, slot_charge; group_near.h, part_charge
 *                                  Same window, or it is over: a new one of the same key.
 *                                  refund: refund.c, slot_give_back. reset: refund.c, slot_reset.
 *                                  The end may fall (I1): refund.c, bucket_move_back; override:
 *                                  override_set.c, bucket_keep, companion_write, companion_clear;
 *                                  rate: rate.c, recount_slot
 *     COMMITTED   PENDING     D    replace: occupant.c, stint_claim_least
 *                                  STINT_FULL_REPLACE only; it is live.
 *     PENDING     PENDING     +    take: a stray add; the slot changed under the adder
 *     TOMBSTONE   TOMBSTONE   +    take: a stray add; the claim was cancelled under the adder
 *
 * Invariants (clock steps, policies that are gone and STINT_FULL_REPLACE apart, which say so):
 *   I1  The end of a slot only grows, and each change of tag makes it grow. So no (slot, end) ever
 *       stands for two occupants: a thread that sees the same end twice, not pending, saw one
 *       occupant. Where an end may fall, it stays above the shard's watermark, or the clock's tick;
 *       shard_end_falls tells of it before.
 *   I2  A tag changes only by a double-width CAS.
 *   I3  At most one slot of a key is committed.
 *   I4  `used` falls only by a new window, a commit, a refund, a reset, or by a token that its own
 *       adder takes back. So it is what was granted or charged, strays, tokens on the way back.
 *   I5  A used slot never becomes never-used again: a search may stop at a never-used slot.
 *   I6  A home line's reach only grows, and is at least the line, counted from it, of each claim
 *       that its keys ever made: it is raised before. A search for one may stop behind it. The
 *       shard's filter has the bits of each key for which a rare slot was claimed.
 *
 * Ends also fall where a policy is gone (sweep.c): an exception of B, and A3 if it comes back. And
 * they fall when the clock was stepped back: I1, and with it promises A and B, hold between steps
 * of the clock, not across them (occupant.c, stint_beyond_clock).
 *
 * Why each step is right stands above its function: what confirms a state that was loaded at
 * slot_look (core.h), the fetch-add at slot_add, claims in claim.h. Each atomic operation cites the
 * M (ordering.md) or I that it serves. tests/README.md says what holds it.
 *
 * The literature: Purcell and Harris, "Non-blocking hashtables with open addressing" (2005). */
#ifndef STINT_SLOT_H
#define STINT_SLOT_H

#include "map/lines.h"
#include "sys/testing.h"

#define USED_BITS     29
#define USED_MASK     ((UINT64_C(1) << USED_BITS) - 1)
#define STATE_REFUSED (UINT64_C(1) << 29)
#define STATE_PENDING (UINT64_C(1) << 30)
#define STATE_ID      31 /* shift */

static_assert(STATE_ID + ID_BITS == 64, "id, pending, refused and used fill the word");
static_assert(2 * (uint64_t)STINT_LIMIT_MAX - 1 <= USED_MASK,
              "adds past the limit do not reach the refused bit");

static inline uint64_t state_of(tick_t end, uint64_t rest) {
    return id_of(end) << STATE_ID | rest;
}

static inline uint64_t state_id(uint64_t state) {
    return state >> STATE_ID;
}

static inline uint64_t state_used(uint64_t state) {
    return state & USED_MASK;
}

static inline bool state_pending(uint64_t state) {
    return (state & STATE_PENDING) != 0;
}

/* Same end, and pending or not alike. */
static inline bool state_same_window(uint64_t one, uint64_t other) {
    return ((one ^ other) & ~(STATE_REFUSED | USED_MASK)) == 0;
}

/* The two ways to count: a token is added, or the state is swapped. Both follow a load that showed
 * the key's tag and room in the window that ends at `end`.
 *
 * An add is the faster one, and may count too much: room was seen a moment ago. Whose add found no
 * room takes that token back, and nobody else does. So `used` passes the
 * limit by one for each thread at most, and never reaches the refused bit (2^28 threads). An add
 * that is granted was counted at or below the capacity, in the window that was seen: no two
 * requests are granted the same token (A). */

/* Whether a slot that has the key's tag shows room for one token in the window that ends at `end`.
 * `state` receives what was loaded. A state of that window, neither pending nor refused, is `used`
 * when the window is subtracted; any other is far more than a limit. */
static ALWAYS_INLINE bool slot_room(const struct slot *slot, uint64_t tag, tick_t end,
                                    uint64_t capacity, uint64_t *state) {
    *state = atomic_load_acquire(&slot->state); /* M1: then the tag again (M2) */
    return LIKELY(*state - state_of(end, 0) < capacity) &&
           LIKELY(!GUARD(TAKE_TAG, atomic_differs(&slot->tag, tag)));
}

/* Adds one token after slot_room. `used` receives the count with it. Returns false if there was no
 * room: the token is to be taken back (occupant.h, token_add). */
static ALWAYS_INLINE bool slot_add(struct slot *slot, tick_t end, uint64_t capacity,
                                   uint64_t *used) {
    INSTANT(INSTANT_LOADED);
    *used = atomic_fetch_add_seq(&slot->state, 1) - state_of(end, 0) + 1; /* M2 */
    return LIKELY(!GUARD(TAKE_ADDED, *used - 1 >= capacity));
}

/* Changes the state of a key's slot, if tag and state are what they were. By I1 the state alone
 * would do, but for STINT_FULL_REPLACE, under which two keys may have the same end in one slot. */
static ALWAYS_INLINE bool slot_swap(struct slot *slot, uint64_t tag, uint64_t state,
                                    uint64_t next) {
    const uint64_t expected[2] = {tag, state}, desired[2] = {tag, next};
    /* I2. It confirms what was loaded (M2). */
    return atomic_cas2_seq(slot, expected, desired);
}

/* Turns a claim that was seen with this state into a tombstone. That keeps the claim's end: the
 * slot cannot be taken again before the next tick (I1). Returns false if the claim has changed. */
static inline bool slot_cancel(const struct table *table, struct slot *slot, uint64_t tag,
                               uint64_t state) {
    const uint64_t expected[2] = {tag, state};
    const uint64_t kept = state & ~(STATE_PENDING | STATE_REFUSED | USED_MASK);
    const uint64_t tombstone[2] = {table_tombstone(table), kept};
    return atomic_cas2_seq(slot, expected, tombstone); /* I2 */
}

struct seen {
    struct slot *slot; /* NULL: none */
    uint64_t tag;
    uint64_t state;
    uint64_t count;    /* what that is in the window of now (core.h, slot_look) */
    uint64_t refused;  /* STATE_REFUSED, if the key was refused in that window */
    uint32_t position; /* in the sequence of the key's slots */
    bool stepped;      /* it counts as over only because the clock was stepped back */
};

/* What is in a slot. Who claims it compares both words. */
static inline struct seen slot_load(struct slot *slot, uint32_t position) {
    struct seen seen = {.slot = slot, .position = position};
    seen.tag = atomic_load_acquire(&slot->tag);     /* M15 */
    seen.state = atomic_load_acquire(&slot->state); /* M9 */
    return seen;
}

#endif
