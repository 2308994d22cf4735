/* SPDX-License-Identifier: MIT
 * A key without a slot gets one: claim it, look at the others, commit. Read slot.h first.
 *
 * Two threads that see a key for the first time may pick different slots. So a claim is first
 * PENDING: nobody counts in it. Then each thread looks at all other slots of the key's sequence
 * (stint_claim_stands). Both claims precede both looks (M5), so at least one thread sees the
 * other's. Who sees a committed slot, or an earlier claim, gives its own up; who sees a later claim
 * cancels that. So one claim is left, and commits.
 *
 * Who meets a pending slot of its key does the same for it: none waits for one that stopped (E). */
#ifndef STINT_CLAIM_H
#define STINT_CLAIM_H

#include "map/search.h"

/* Raises the watermark of a key's shard before a used slot is taken over: to the tick from which on
 * the slot's key is judged the same without it.
 *
 * A thread of that key with a late `now` must not open its window again in a new slot. So a commit
 * looks at the watermark. It is raised no further: keys without a slot begin at it or later. */
static inline void watermark_raise(struct shard *shard, tick_t done) {
    /* M7: seen high enough, or raised, then the claim. */
    if ((tick_t)atomic_load_relaxed(&shard->watermark) < done && GUARDED(WATERMARK_RAISE))
        atomic_raise(&shard->watermark, (uint64_t)done); /* M7 */
}

/* Whether a key that is nowhere would begin later than now, by the shard's watermark. */
static ALWAYS_INLINE bool begins_later(const struct shard *shard, tick_t now) {
    atomic_fence_acquire(); /* M8: the look, then the watermark */
    return (tick_t)atomic_load_relaxed(&shard->watermark) > now; /* M8 */
}

/* Claims a slot as it was seen, if it has not changed: `seen` becomes the claim. */
static ALWAYS_INLINE bool claim_swap(struct seen *seen, uint64_t tag, uint64_t state) {
    const uint64_t expected[2] = {seen->tag, seen->state}, claim[2] = {tag, state};

    /* I2: the watermark (M7), then the claim, then the look (M5). */
    if (UNLIKELY(!atomic_cas2_seq(seen->slot, expected, claim)))
        return false;
    seen->tag = tag;
    seen->state = state;
    return true;
}

/* Claims a slot that was seen, for the key with this tag; the claim ends with the tick after
 * `over`. `done`: for the watermark; 0: no key had the slot, or it is replaced. */
bool stint_claim_slot(const struct table *table, uint64_t hash, uint64_t tag, tick_t over,
                      tick_t done, struct seen *seen);

/* Looks at the other slots of the sequence for the key. Returns whether the claim may be committed:
 * then later ones have been cancelled, else it has. What is loaded after this is no older (M8). */
bool stint_claim_stands(const struct table *table, uint64_t hash, const struct seen *claim);

/* Cancels a claim, unless it was committed meanwhile. */
bool stint_claim_cancel(const struct table *table, struct slot *slot, uint64_t tag, uint64_t state);

/* Commits a claim as `next`, whoever claimed it. Returns false if it was resolved. */
bool stint_claim_commit(const struct seen *claim, uint64_t next);

/* ---- Where nothing is in the way ------------------------------------------------------------- */

/* Whether a claim is the only one after a look for others, and may open a window at now. */
static ALWAYS_INLINE bool claim_alone(const struct shard *shard, uint32_t others, tick_t now) {
    if (UNLIKELY(GUARD(SHORT_LOOK, others != 0)))
        return false;
    INSTANT(INSTANT_LOOKED);
    return LIKELY(!GUARD(SHORT_WATERMARK, begins_later(shard, now)));
}

/* Claims a never-used slot (`unused`: unused_near) of a key's first two lines, which have not got
 * the key, and looks at these. Returns false if it is not that simple: who meets `claim` ends it.
 *
 * The refused bit of the claim says that it is the first of its slot; no later one has it. So who
 * finds this state finds this claim, with the key's tag, and the commit compares the state alone:
 * on some processors that costs half of a double-width CAS. Without the bit it could commit another
 * key's claim of the same tick, which has replaced this key's slot after somebody else had
 * committed it. (Where nothing is replaced, I1 keeps the two apart.) Nor can a stray add have
 * changed `used`: nobody has seen room in this slot before.
 *
 * Both lines are looked at, and no branch asks in which the slot is: at a load of 50%, 1 new key in
 * 8 finds its home line full, and 1 in 6 takes its last slot, at random. */
static ALWAYS_INLINE bool claim_unused(const struct table *table, uint64_t hash, uint64_t tag,
                                       tick_t now, uint64_t unused, struct seen *claim) {
    struct line *home = home_of(table, hash), *next = table_next(table, hash, home);
    const uint32_t in_home = (uint32_t)unused;
    /* The two looks have no order, and a shard may be one line: nothing in it is displaced. */
    const bool displaced = in_home == 0 && next != home;
    struct shard *shard = table_shard_of(table, hash);

    *claim = (struct seen){.slot = in_home != 0 ? line_slot(home, in_home)
                                                : line_slot(next, (uint32_t)(unused >> 32))};
    INSTANT(INSTANT_ABSENT);
    atomic_raise(&shard->reach, displaced); /* that of the two lines needs none (I6) */
    if (UNLIKELY(!claim_swap(claim, tag, state_of(now + 1, STATE_PENDING | STATE_REFUSED))))
        return false;
    INSTANT(INSTANT_CLAIMED);
    /* The look: a slot that is still never-used ends the sequence in these lines (I5). */
    const uint32_t others =
        match4_rest(line_match(home, tag) << 16 | (next == home ? 0 : line_match(next, tag)));
    if (UNLIKELY((line_match(home, 0) | line_match(next, 0)) == 0))
        return false;
    return claim_alone(shard, others, now);
}

/* The same in a slot of the home line that was seen, and is over: after watermark_raise. */
static inline bool claim_over(const struct table *table, uint64_t hash, uint64_t tag, tick_t now,
                              tick_t over, struct seen *claim) {
    struct line *line = home_of(table, hash), *const end = shard_end(table, hash);

    /* Each reach has this line. */
    if (UNLIKELY(!claim_swap(claim, tag, state_of(over + 1, STATE_PENDING))))
        return false;
    INSTANT(INSTANT_CLAIMED);
    uint32_t others = match4_rest(line_match(line, tag));
    for (uint32_t i = 1, lines = sequence_reach(table, hash); i < lines; i++)
        others |= line_match(line = line_after(table, line, end), tag);
    return claim_alone(table_shard_of(table, hash), others, now);
}

#endif
