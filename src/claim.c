/* SPDX-License-Identifier: MIT
 * A key without a slot: claim one, look at the others, commit. Read the protocol in slot.h first ("Claim"). */
#include "search.h"

/* ---- The short way -------------------------------------------------------------------------- */

/* Claims a never-used slot of a key's first two lines, which have not got the key, and commits it: the short
 * way through find, claim and resolve while the table is young. STALE if it is not that simple, whatever
 * state the claim is left in.
 *
 * Both lines are looked at whichever the slot is in, and no branch asks which: at a load of 50%, 1 new key
 * in 8 finds its home line full, and 1 in 6 takes its last slot, at random. */
enum progress stint_claim_short(struct decision *decision) {
    const struct table *table = &decision->limiter->table;
    const uint64_t hash = decision->hash, tag = decision->tag;
    const tick_t now = tick_of(decision->now);
    struct line *home = home_of(table, hash), *next = table_next(table, hash, home);
    uint32_t unused = line_match(home, 0), unused_next = line_match(next, 0);

    /* Where a slot was never used, the key is nowhere behind it (I5). A caller who is late by so much that
     * the clock must be read goes the long way. */
    if ((unused | unused_next) == 0 || (line_match(home, tag) | line_match(next, tag)) != 0 ||
        GUARD(SHORT_LATEST, latest_beyond(decision->limiter, now)))
        return STALE;
    if (decision->end == 0)
        decision->end = window_anew(decision);
    decision->charge = judge(&decision->terms, 0, tick_ns(decision->end) - decision->now);
    if (!decision->charge.fits || decision->charge.count == 0 || is_look(&decision->terms) ||
        (decision->terms.part & PART_HERE) != 0)
        return STALE;
    struct slot *slot = unused != 0 ? line_slot(home, unused) : line_slot(next, unused_next);
    /* The two looks have no order, and a shard may be one line: nothing in it is displaced. */
    const bool displaced = unused == 0 && next != home;
    const uint64_t never_used[2] = {0, 0};
    const uint64_t claim[2] = {tag, state_of(now + 1, STATE_PENDING | STATE_REFUSED)};
    struct shard *shard = table_shard_of(table, hash);

    INSTANT(INSTANT_ABSENT);
    atomic_raise(&shard->reach, displaced);
    if (!atomic_cas2_seq(slot, never_used, claim))
        return STALE;
    limiter_count_table(decision->limiter, COUNT_PLACED);
    INSTANT(INSTANT_CLAIMED);
    /* The look: a slot that is still never-used ends the sequence in these lines (I5). */
    uint32_t in_home = line_match(home, tag), in_next = line_match(next, tag);
    bool others = (match4_rest(in_home) | match4_rest(in_next)) != 0 ||
                  (in_home != 0 && in_next != 0 && home != next); /* a shard may be one line */
    if (GUARD(SHORT_LOOK, others) ||
        GUARD(SHORT_UNUSED, (line_match(home, 0) | line_match(next, 0)) == 0))
        return STALE;
    atomic_fence_acquire();
    INSTANT(INSTANT_LOOKED);
    if (GUARD(SHORT_WATERMARK, (tick_t)atomic_load_relaxed(&shard->watermark) > now))
        return STALE;
    decision->flags = 0;
    return atomic_cas_seq(&slot->state, claim[1], state_of(decision->end, decision->charge.count))
               ? DONE
               : STALE;
}

/* ---- Claim and resolve ---------------------------------------------------------------------- */

/* Raises the watermark of the key's shard to now: but not beyond the clock and the allowance, so
 * that no caller with a wrong `now` can spoil the windows of all keys of the shard. */
static void watermark_raise(struct decision *decision) {
    const struct table *table = &decision->limiter->table;
    uint64_t *watermark = &table_shard_of(table, decision->hash)->watermark;
    uint64_t seen = atomic_load_relaxed(watermark);
    tick_t now = tick_of(decision->now);

    if (LIKELY((tick_t)seen >= now) || !GUARDED(WATERMARK_RAISE))
        return;
    tick_t most = tick_of(limiter_now(decision->limiter)) + ALLOWANCE_TICKS;
    tick_t raised = now < most ? now : most;
    atomic_raise(watermark, (uint64_t)raised);
}

/* The tick in whose window a claim is committed, loaded after the look at the other slots. */
static tick_t commit_tick(struct decision *decision, uint64_t claim_id) {
    const struct table *table = &decision->limiter->table;
    uint64_t *watermark = &table_shard_of(table, decision->hash)->watermark;
    uint64_t seen = atomic_load_acquire(watermark);
    tick_t now = tick_of(decision->now);
    tick_t claimed = end_of(claim_id, now) - 1;

    if (UNLIKELY((tick_t)seen > now + ALLOWANCE_TICKS || claimed > now + ALLOWANCE_TICKS)) {
        tick_t clock = stint_decision_read_clock(decision);
        now = tick_of(decision->now);
        if ((tick_t)seen > clock + ALLOWANCE_TICKS) { /* the clock was stepped back */
            if (atomic_cas_seq(watermark, seen, (uint64_t)clock))
                limiter_count_table(decision->limiter, COUNT_CLOCK_STEP);
            seen = (uint64_t)clock;
        }
        if (claimed > clock + ALLOWANCE_TICKS)
            claimed = clock;
    }
    tick_t tick = now > claimed ? now : claimed;
    return tick > (tick_t)seen ? tick : (tick_t)seen;
}

/* Turns a claim into a tombstone, unless it is no longer as it was (whatever `used`). */
static bool claim_cancel(const struct decision *decision, struct slot *slot, uint64_t claim) {
    uint64_t state = claim;
    do {
        const uint64_t expected[2] = {decision->tag, state};
        const uint64_t kept = state & ~(STATE_PENDING | STATE_REFUSED | USED_MASK);
        const uint64_t tombstone[2] = {table_tombstone(&decision->limiter->table), kept};
        if (atomic_cas2_seq(slot, expected, tombstone))
            return true;
        state = atomic_load_acquire(&slot->state);
    } while (state_same_window(state, claim) && atomic_load_relaxed(&slot->tag) == decision->tag);
    return false;
}

/* Deals with another slot of the sequence that had the key's tag. Returns whether the claim may
 * still stand; if not, it has been cancelled. */
static bool claim_outranks(const struct decision *decision, const struct place *claim,
                           struct slot *other, uint32_t position) {
    while (atomic_load_acquire(&other->tag) == decision->tag) {
        uint64_t state = atomic_load_acquire(&other->state);
        if (GUARD(RIVAL_TAG, atomic_load_acquire(&other->tag) != decision->tag))
            break;
        if (GUARD(RIVAL_COMMITTED, !state_pending(state)) ||
            GUARD(RIVAL_EARLIER, position < claim->position)) {
            (void)claim_cancel(decision, claim->slot, claim->state);
            return false;
        }
        if (!GUARDED(RIVAL_LATER) || claim_cancel(decision, other, state))
            break;
        /* It was committed meanwhile, or is another's: look again. */
    }
    return true;
}

/* Looks at the other slots of the sequence for the key. Returns whether this claim may be
 * committed; if not, it has been cancelled. Later claims have been cancelled then. */
static bool claim_stands(const struct decision *decision, const struct place *claim) {
    const struct table *table = &decision->limiter->table;
    struct sequence sequence = sequence_of(table, decision->hash);

    uint32_t lines = sequence_reach(table, decision->hash);

    for (uint32_t i = 0; i < lines; i++) {
        if (i >= UNUSED_LINES)
            i = sequence_match(&sequence, i, lines, decision->tag);
        if (i == lines)
            break;
        struct line *line = sequence_line(&sequence, i);
        for (uint32_t match = line_match(line, decision->tag); match != 0;
             match = match4_rest(match)) {
            uint32_t position = i * LINE_SLOTS + match4_index(match);
            if (position != claim->position &&
                !claim_outranks(decision, claim, &line->slots[position % LINE_SLOTS], position))
                return false;
        }
        if (i < UNUSED_LINES && line_match(line, 0) != 0) /* I5 */
            break;
    }
    atomic_fence_acquire(); /* the watermark is loaded after all of these */
    return true;
}

/* Commits a claim with this request's charge, whoever claimed it. */
enum progress stint_claim_resolve(struct decision *decision, const struct place *claim,
                                  uint32_t flags) {
    struct charge *charge = &decision->charge;

    INSTANT(INSTANT_CLAIMED);
    if (GUARD(PENDING, !claim_stands(decision, claim)))
        return STALE;
    INSTANT(INSTANT_LOOKED);
    tick_t tick = commit_tick(decision, state_id(claim->state));
    decision->end = stint_window_at(decision->limiter, decision->policy, decision->terms.traits,
                                    decision->hash, tick);
    *charge = judge(&decision->terms, 0, tick_ns(decision->end) - decision->now);
    bool first_refusal = !charge->fits && refusal_marked(&decision->terms);
    if (UNLIKELY((decision->terms.part & PART_HERE) != 0 && decision->end != decision->here)) {
        *charge = (struct charge){0};
        first_refusal = false;
    }
    uint64_t next = state_of(decision->end, (first_refusal ? STATE_REFUSED : 0) | charge->count);
    uint64_t state = claim->state;
    while (!slot_swap(claim->slot, decision->tag, state, next)) {
        state = atomic_load_acquire(&claim->slot->state);
        /* Another thread resolved it; or with STINT_FULL_REPLACE the slot is another key's by now, whose
         * claim may have the same end. */
        if (!state_same_window(state, claim->state) ||
            GUARD(COMMIT_TAG, atomic_load_relaxed(&claim->slot->tag) != decision->tag))
            return STALE;
    }
    decision->flags = flags | (first_refusal ? STINT_FIRST_REFUSAL : 0);
    return DONE;
}

/* Claims the slot seen at `place` with one double-width CAS. */
bool stint_claim_slot(struct decision *decision, struct place *place) {
    atomic_raise(&table_shard_of(&decision->limiter->table, decision->hash)->reach,
                 place->position / LINE_SLOTS);
    tick_t end = tick_of(decision->now) + 1;
    const uint64_t expected[2] = {place->tag, place->state};
    const uint64_t claim[2] = {decision->tag, state_of(end, STATE_PENDING)};

    if (!atomic_cas2_seq(place->slot, expected, claim))
        return false;
    place->tag = claim[0];
    place->state = claim[1];
    if (UNLIKELY(place->stepped))
        limiter_count_table(decision->limiter, COUNT_CLOCK_STEP);
    limiter_count_table(decision->limiter, COUNT_PLACED);
    return true;
}

enum progress stint_decide_nothing(struct decision *decision, uint32_t flags) {
    if (decision->end == 0)
        decision->end = window_anew(decision);
    decision->flags = flags;
    return DONE;
}

enum progress stint_decide_absent(struct decision *decision, struct place *place, bool pending) {
    decision->charge = judge(&decision->terms, 0, 0);
    if (leaves_nothing(decision)) {
        /* A claim may stand, for a while, beside the slot that the key has. */
        if (pending &&
            stint_find_committed(&decision->limiter->table, decision->hash, decision->tag, place))
            return stint_decide_found(decision, place);
        return stint_decide_nothing(decision, 0);
    }
    if (!pending) {
        INSTANT(INSTANT_ABSENT);
        if (place->tag != 0)
            watermark_raise(decision);
        if (!stint_claim_slot(decision, place))
            return STALE;
    }
    return stint_claim_resolve(decision, place, 0);
}
