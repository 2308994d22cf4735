/* SPDX-License-Identifier: MIT
 * Overrides: what a companion's slot says of its key, and the look for it. */
#ifndef STINT_OVERRIDE_H
#define STINT_OVERRIDE_H

#include "policy/occupant.h"

/* A policy with STINT_OVERRIDES has a companion: a hidden policy, whose slots are no counts
 * (override_set.c). Such a slot sets a key's limit until the slot's end; `used` is that limit. The
 * refused bit says that a caller set it; else the library did.
 *
 *     refused 1   used < 2^28            the limit
 *                 2^28 <= used < BARRED  never refused
 *                 BARRED <= used         refused everything
 *     refused 0   used < 2^28            strikes: windows with refusals; 0: it was lifted
 *                 2^28 <= used           banned
 *
 * So a stray token in it adds at most one to a limit, or to strikes. */
#define OVERRIDE_ENDLESS ((uint64_t)STINT_LIMIT_MAX)
#define OVERRIDE_BARRED  (OVERRIDE_ENDLESS + OVERRIDE_ENDLESS / 2)

/* Overrides can be set as far ahead as the longest window reaches. */
#define COMPANION_LENGTH (STINT_WINDOW_MAX / STINT_TICK_NS) /* ticks */

static inline bool override_banned(uint64_t state) {
    return (state & STATE_REFUSED) == 0 && state_used(state) >= OVERRIDE_ENDLESS;
}

/* The limit that an override sets. */
static inline uint32_t override_limit(uint64_t state) {
    const uint64_t used = state_used(state);
    return used >= OVERRIDE_BARRED || override_banned(state) ? 0
           : used < OVERRIDE_ENDLESS                         ? (uint32_t)used
                                                             : STINT_LIMIT_MAX;
}

/* The ns in which a token of a bucket comes back, by the state of an override in force; 0: none. */
static inline uint64_t override_unit(const struct bucket *bucket, uint64_t state) {
    const uint32_t limit = state != 0 ? override_limit(state) : 0;
    const uint64_t unit =
        limit == 0 || limit == STINT_LIMIT_MAX ? bucket->unit : bucket_unit(bucket->window, limit);
    return LIKELY(unit != 0) ? unit : 1; /* 0: the table was written over */
}

/* The state of a companion's slot that was seen with this tag; 0: it is another's, or pending.
 *
 * As in slot_look (core.h): tag, state, tag again, state again. That must be the same as a whole:
 * overrides of two keys often have one end (I1), and one that is lifted lets its slot go before. */
static ALWAYS_INLINE uint64_t override_in(const struct slot *slot, uint64_t tag) {
    for (;;) {
        uint64_t state = atomic_load_acquire(&slot->state); /* M1 */
        if (GUARD(OVERRIDE_TAG, atomic_load_acquire(&slot->tag) != tag) || state_pending(state))
            return 0;
        uint64_t again = atomic_load_acquire(&slot->state); /* I1, M2 */
        if (!GUARD(OVERRIDE_STATE, state != again))
            return again;
    }
}

/* Whether a companion's slot of this state sets a limit by a policy at `now`. One that is further
 * ahead than it can have been set is void: the clock was stepped back (H). */
bool stint_override_holds(const struct stint_limiter *limiter, uint32_t policy_id, uint64_t state,
                          uint64_t now);

/* Reads a slot that was seen with this tag and state: all of an entry but `key` and `since`.
 * Returns false if it is no companion's, or holds neither a limit nor strikes at `now`. */
bool stint_override_told(const struct stint_limiter *limiter, uint64_t tag, uint64_t state,
                         uint64_t now, struct stint_entry *entry);

/* The state of the override that is in force, by a policy, of a key that may have one; 0: none. */
uint64_t stint_override_find(const struct stint_limiter *limiter, uint32_t policy_id, uint64_t hash,
                             uint64_t now);

/* A decision by a policy with a ban has given a first refusal: counts a strike. If the key is
 * banned by it, the verdict says so. */
void stint_strike(struct stint_limiter *limiter, uint32_t policy_id, uint64_t key, uint64_t now,
                  struct stint_verdict *verdict);

/* Lifts a key's ban, and forgets its strikes. Returns whether there was any. */
bool stint_strikes_reset(struct stint_limiter *limiter, uint32_t policy_id, uint64_t key);

#endif
