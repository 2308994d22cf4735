/* SPDX-License-Identifier: MIT
 * The key has no slot, and gets none: it needs none, or the table is full. Read slot.h first.
 *
 * One search compared the tags, and saw all slots to be live (search.c, slot_search). Now that no
 * slot may be claimed, the tags are compared again: the key may have got the last free slot behind
 * the first search's back. found_again does that; where a slot is to be replaced, find_least_used
 * does it on its way. */
#include "full.h"

/* All slots were live, and stay so at this now (I1). But the key may have got the last free one
 * since it was looked for: without a second look, a key that has a slot is treated as if it had
 * none. */
static bool found_again(const struct decision *decision) {
    const struct table *table = &decision->limiter->table;

    atomic_fence_acquire(); /* M9 */
    uint32_t lines = sequence_reach(table, decision->hash);
    return GUARD(FULL_AGAIN,
                 stint_find_tag(table, decision->hash, decision->tag, 0, lines).slot != NULL);
}

/* Tokens that a slot of a key holds. */
static uint64_t slot_tokens(const struct decision *decision, const struct seen *seen) {
    const struct policy *policy = limiter_tag_policy(decision->limiter, seen->tag);
    if (policy == NULL)
        return 0;
    uint64_t count = state_used(seen->state);
    const uint64_t traits = policy_traits(policy);
    if (UNLIKELY((traits & TRAIT_COMPANION) != 0))
        return UINT64_MAX; /* an override: it is never replaced */
    if (UNLIKELY(traits == 0))
        return 0;                              /* of a policy that is gone */
    if (LIKELY((traits & TRAIT_CARRIES) == 0)) /* as those of two counts do */
        return count;
    struct rule rule = policy_rule(policy);
    return (rule.flags & TWO_COUNTS) == 0 ? count : (count & THIS_MASK) + (count >> THIS_BITS);
}

/* The pattern of the slots of a line among which none has used fewer tokens (UINT64_MAX: no slot
 * matches). It asks nothing of the ids, except that a range of all of them cannot be written. */
static inline struct slot_pattern used_at_least(const struct table *table, uint64_t tag,
                                                uint64_t fewest) {
    struct slot_pattern asked = others_of(table, tag);
    asked.flip[1] = (uint32_t)USED_MASK;
    asked.mask[1] = (uint32_t)(STATE_PENDING | USED_MASK);
    asked.below[1] = fewest <= USED_MASK ? (uint32_t)(USED_MASK - fewest) + 1 : 0;
    asked.range[1] = UINT32_MAX;
    return asked;
}

/* LEAST: a slot was found. NONE: all are claims or tombstones, which are free in the next tick.
 * OWN: the key has got a slot meanwhile. */
enum least_used { LEAST, NONE, OWN };

/* Finds the slot of the sequence with the fewest tokens used. */
static enum least_used find_least_used(const struct decision *decision, struct seen *least) {
    const struct table *table = &decision->limiter->table;
    struct sequence sequence = sequence_of(table, decision->hash);
    /* Without policies of two counts a slot holds as many tokens as it counts. Then most lines need
     * no closer look. */
    bool counts = atomic_load_acquire(&decision->limiter->header->smooth) == 0; /* M12 */
    struct slot_pattern enough = used_at_least(table, decision->tag, UINT64_MAX);
    uint64_t fewest = UINT64_MAX;

    atomic_fence_acquire(); /* M9 */
    for (uint32_t i = 0; i < table->probe_lines; i++) {
        if (counts)
            i = sequence_all_match(&sequence, i, table->probe_lines, &enough);
        if (i == table->probe_lines)
            break;
        struct line *line = sequence_line(&sequence, i);
        for (uint32_t j = 0; j < LINE_SLOTS; j++) {
            struct seen seen = {.slot = &line->slots[j], .position = i * LINE_SLOTS + j};
            seen.tag = atomic_load_acquire(&seen.slot->tag); /* M15 */
            seen.state =
                atomic_load_acquire(&seen.slot->state); /* I1: what replaces it compares both */
            if (GUARD(REPLACE_OWN, seen.tag == decision->tag))
                return OWN;
            if (seen.tag == 0 || GUARD(REPLACE_FREE, seen.tag == table_tombstone(table) ||
                                                         state_pending(seen.state)))
                continue;
            uint64_t tokens = slot_tokens(decision, &seen);
            if (tokens < fewest) {
                fewest = tokens;
                *least = seen;
            }
        }
        enough = used_at_least(table, decision->tag, fewest);
    }
    return fewest != UINT64_MAX ? LEAST : NONE;
}

enum progress stint_decide_nothing(struct decision *decision, uint32_t flags) {
    if (decision->end == 0)
        decision->end = window_anew(decision);
    decision->flags = flags;
    return DONE;
}

enum progress stint_decide_full(struct decision *decision) {
    const uint32_t on_full = decision->limiter->on_full;
    const bool look = is_look(&decision->terms), replace = on_full == STINT_FULL_REPLACE;
    struct charge *charge = &decision->charge;

    *charge = judge(&decision->terms, 0, 0);
    const bool nothing = leaves_nothing(decision);
    /* A refusal that leaves nothing behind but its mark replaces nobody. */
    if (replace && !look && !nothing && (charge->fits || charge->count != 0)) {
        struct seen seen;
        enum least_used found = find_least_used(decision, &seen);
        const tick_t now = tick_of(decision->now);
        if (found == OWN)
            return STALE;
        if (found == LEAST) {
            shard_end_falls(table_shard_of(&decision->limiter->table, decision->hash),
                            end_of(state_id(seen.state), now), now);
            if (!stint_claim_slot(decision, &seen))
                return STALE;
            limiter_count_table(decision->limiter, COUNT_REPLACED);
            return stint_claim_resolve(decision, &seen, STINT_REPLACED);
        }
        /* Every slot is changing hands at this instant: admit rather than wait. */
    } else {
        if (found_again(decision))
            return STALE;
        if (look ? replace && nothing : nothing)
            return stint_decide_nothing(decision, 0);
    }
    if (is_charge(&decision->terms))
        *charge = (struct charge){.fits = true}; /* nothing to charge */
    else if (on_full == STINT_FULL_REFUSE && (decision->terms.part & PART_ENDLESS) == 0)
        *charge = (struct charge){.fits = false};
    else if (!charge->fits)
        charge->used = 0;
    return stint_decide_nothing(decision, STINT_UNTRACKED);
}
