/* SPDX-License-Identifier: MIT
 * Claims, where several threads may meet at one. Read claim.h first. */
#include "map/claim.h"

bool stint_claim_slot(const struct table *table, uint64_t hash, uint64_t tag, tick_t over,
                      tick_t done, struct seen *seen) {
    const uint64_t line = seen->position / LINE_SLOTS;
    struct shard *shard = table_shard_of(table, hash);

    if (done != 0)
        watermark_raise(shard, done);
    reach_raise(table, hash, line); /* I6: before the claim (M7) */
    HOLDS(I6, reach_of(table, hash) >= line);
    atomic_raise(&shard->reach, line);
    return claim_swap(seen, tag, state_of(over + 1, STATE_PENDING));
}

/* Whatever `used`: strays may have come. */
bool stint_claim_cancel(const struct table *table, struct slot *slot, uint64_t tag,
                        uint64_t claim) {
    uint64_t state = claim;
    do {
        if (slot_cancel(table, slot, tag, state))
            return true;
        state = atomic_load_acquire(&slot->state); /* M6 */
    } while (state_same_window(state, claim) && atomic_load_relaxed(&slot->tag) == tag);
    return false;
}

/* Whether a claim may stand beside another slot that had the tag. If not, it has been cancelled. */
static bool claim_outranks(const struct table *table, const struct seen *claim, struct slot *other,
                           uint32_t position) {
    /* As in find: tag, state, tag again (M1). A thread that helps a claim looks after it (M6). */
    while (atomic_load_acquire(&other->tag) == claim->tag) {
        uint64_t state = atomic_load_acquire(&other->state); /* M1 */
        if (atomic_load_acquire(&other->tag) != claim->tag)
            break;
        if (GUARD(RIVAL_COMMITTED, !state_pending(state)) || position < claim->position) {
            (void)stint_claim_cancel(table, claim->slot, claim->tag, claim->state);
            return false;
        }
        if (!GUARDED(RIVAL_LATER) || stint_claim_cancel(table, other, claim->tag, state))
            break;
        /* It was committed meanwhile, or is another's: look again. */
    }
    return true;
}

/* The look goes as far as the home line's reach, loaded after the claim (M5, I6). A claim that came
 * before this one raised the reach before (M7), so the look finds it. A later one looks itself. */
bool stint_claim_stands(const struct table *table, uint64_t hash, const struct seen *claim) {
    struct line *line = home_of(table, hash), *const end = shard_end(table, hash);
    const uint64_t tag = claim->tag;
    INSTANT(INSTANT_CLAIMED);
    const uint32_t lines = sequence_reach(table, hash);

    for (uint32_t i = 0; i < lines; i++, line = line_after(table, line, end)) {
        for (uint32_t match = line_match(line, tag); match != 0; match = match4_rest(match)) {
            struct slot *other = line_slot(line, match);
            uint32_t position = i * LINE_SLOTS + (uint32_t)(other - line->slots);
            if (position != claim->position &&
                GUARD(PENDING, !claim_outranks(table, claim, other, position)))
                return false;
        }
        if (i < UNUSED_LINES && line_match(line, 0) != 0) /* I5 */
            break;
    }
    atomic_fence_acquire(); /* M8: the watermark is loaded after all of these */
    INSTANT(INSTANT_LOOKED);
    return true;
}

/* A stray add into a pending slot must not hold the commit up, and is dropped. */
bool stint_claim_commit(const struct seen *claim, uint64_t next) {
    uint64_t state = claim->state;

    while (!slot_swap(claim->slot, claim->tag, state, next)) {
        state = atomic_load_acquire(&claim->slot->state); /* M1 */
        /* It was resolved; or by STINT_FULL_REPLACE it is another key's, maybe of this end. */
        if (!state_same_window(state, claim->state) ||
            /* I2 */
            GUARD(COMMIT_TAG, atomic_load_relaxed(&claim->slot->tag) != claim->tag))
            return false;
    }
    return true;
}
