/* SPDX-License-Identifier: MIT
 * What is not near: a search, then the steps of core.h in the slot that was found, or a claim, or
 * neither, until nothing has changed on the way. Read core.h and slot.h first. */
#include "decide.h"

#include "feature/rate.h"

/* Moves a decision to a later now, by which its window may be another. */
static inline void decision_move(struct decision *decision, uint64_t now) {
    if (now == decision->now)
        return;
    decision->now = now;
    decision->end = window_of(decision);
}

/* ---- Without a slot -------------------------------------------------------------------------- */

/* The tick in whose window a claim is committed: max(now, watermark, end of the claim - 1). The
 * watermark is loaded after the look at the other slots (M8): if an older slot of the key was gone
 * by then, its takeover had raised it before. */
static tick_t commit_tick(struct decision *decision, uint64_t claim_id) {
    const struct table *table = &decision->limiter->table;
    uint64_t *watermark = &table_shard_of(table, decision->hash)->watermark;
    uint64_t seen = atomic_load_acquire(watermark); /* M8 */
    tick_t now = tick_of(decision->now);
    tick_t claimed = end_of(claim_id, now) - 1;

    if (UNLIKELY((tick_t)seen > now || claimed > now)) {
        const tick_t latest = (tick_t)seen > claimed ? (tick_t)seen : claimed;
        /* A thread that is late by more than the allowance moves on. */
        uint64_t moved = decision->now;
        const tick_t clock = latest > now + ALLOWANCE_TICKS
                                 ? stint_clock_read(decision->limiter, &moved)
                                 : tick_of(limiter_now(decision->limiter));
        decision_move(decision, moved);
        now = tick_of(moved);
        if ((tick_t)seen > clock + ALLOWANCE_TICKS) { /* the clock was stepped back */
            /* Not over what somebody has raised since (M7). */
            if (!decision->limiter->memory.read_only &&
                atomic_cas_seq(watermark, seen, (uint64_t)clock))
                limiter_count_table(decision->limiter, COUNT_CLOCK_STEP);
            seen = (uint64_t)clock;
        }
        if (claimed > clock + ALLOWANCE_TICKS)
            claimed = clock;
    }
    tick_t tick = now > claimed ? now : claimed;
    return tick > (tick_t)seen ? tick : (tick_t)seen;
}

/* Moves a decision into the window of a claim's commit. The slot may have been another key's
 * bucket, which is full by that tick and not before. */
static void commit_at(struct decision *decision, uint64_t claim_id) {
    const tick_t tick = commit_tick(decision, claim_id);

    if (GUARD(BUCKET_CLAIM, (decision->terms.traits & RULE_BUCKET) != 0) &&
        tick > tick_of(decision->now))
        decision->now = tick_ns(tick);
    decision->end = stint_window_at(decision->limiter, decision->policy, decision->terms.traits,
                                    decision->hash, tick);
}

/* Commits a claim with this request's charge, whoever claimed it. */
static enum progress claim_resolve(struct decision *decision, const struct seen *claim,
                                   uint32_t flags) {
    struct charge *charge = &decision->charge;

    if (!stint_claim_stands(&decision->limiter->table, decision->hash, claim))
        return STALE;
    if (decision_claim_void(decision)) {
        (void)stint_claim_cancel(&decision->limiter->table, claim->slot, claim->tag, claim->state);
        *charge = (struct charge){0};
        decision->flags = DECISION_GONE;
        return DONE;
    }
    commit_at(decision, state_id(claim->state));
    *charge = judge(&decision->terms, 0, 0);
    bool first_refusal = !charge->fits && refusal_marked(&decision->terms);
    if (UNLIKELY((decision->terms.special & PART_SAME_WINDOW) != 0 &&
                 decision->end != decision->only_end)) {
        *charge = (struct charge){0};
        first_refusal = false;
    }
    const uint64_t next =
        decision_state(decision, &(struct seen){0}) | (first_refusal ? STATE_REFUSED : 0);
    if (!stint_claim_commit(claim, next))
        return STALE;
    decision->flags = flags | (first_refusal ? STINT_FIRST_REFUSAL : 0);
    return DONE;
}

/* A committed slot of the home line that is over, and carries nothing. `done` receives its end. */
static bool home_over(const struct stint_limiter *limiter, uint64_t hash, tick_t over,
                      struct seen *seen, tick_t *done) {
    struct line *home = home_of(&limiter->table, hash);

    for (uint32_t i = 0; i < LINE_SLOTS; i++) {
        *seen = slot_load(&home->slots[i], i);
        if (LIKELY(end_of(state_id(seen->state), over) > over)) /* slot_end is no earlier */
            continue;
        const struct policy *policy = limiter_tag_policy(limiter, seen->tag);
        if (policy != NULL && !state_pending(seen->state) &&
            (*done = slot_end(limiter, policy, seen->state, over)) <= over &&
            (policy_word(policy) & (TRAIT_CARRIES | TRAIT_COMPANION)) == 0)
            return true;
    }
    return false;
}

bool stint_place_over(const struct decision *decision, uint64_t state) {
    struct stint_limiter *limiter = decision->limiter;
    const struct table *table = &limiter->table;
    const uint64_t hash = decision->hash, now = decision->now, clock = limiter_now(limiter);
    const tick_t over = tick_of(now < clock ? now : clock);
    struct seen claim;
    tick_t done;

    if (UNLIKELY(!home_over(limiter, hash, over, &claim, &done)))
        return false;
    INSTANT(INSTANT_ABSENT);
    watermark_raise(table_shard_of(table, hash), done);
    const bool alone = claim_over(table, hash, decision->tag, tick_of(now), over, &claim);
    if (LIKELY(state_pending(claim.state)))
        limiter_count_table(limiter, COUNT_PLACED);
    return LIKELY(alone) && LIKELY(!decision_claim_void(decision)) && /* M8 */
           slot_swap(claim.slot, claim.tag, claim.state, state);
}

/* ---- In a slot ------------------------------------------------------------------------------- */

/* The key has no slot. It may claim that at `seen`, or (no seat) has a claim there. */
static enum progress decide_absent(struct decision *decision, const struct seat *seat,
                                   struct seen *seen);

/* A key's slot is in a later window than that of now: this thread is late, and joins it; or the
 * clock was stepped back, and the slot starts anew. Returns whether to look at the slot again,
 * which finds it in no later window than the decision. */
static bool look_ahead(struct decision *decision, struct seen *seen) {
    uint64_t id = state_id(seen->state);
    const tick_t reach = policy_reach(decision->policy);
    uint64_t moved = decision->now, whole = decision->whole_now;
    bool stepped = stint_beyond_clock(decision->limiter, &moved, id, reach);
    const tick_t now = tick_of(moved);

    decision_move(decision, moved);
    if (decision->end == 0)
        (void)window_in(decision, seen->state);
    const tick_t end = end_of(id, now);
    if (end <= decision->end)
        return true; /* this thread was late; now it is not */
    if (traits_striped(decision->terms.traits) && !stepped)
        /* The whole may have moved ahead of its caller, to where another stripe is. */
        stepped = stint_beyond_clock(decision->limiter, &whole, id, reach);
    /* Stripes must agree on a window. A window that is left over from 2^33 ticks ago is none of the
     * policy's, and they could not agree on it. */
    if ((decision->terms.special & PART_SILENT) != 0 &&
        (end - policy_start(decision->policy)) % policy_length(decision->policy) != 0)
        stepped = true;
    if (stepped) { /* or it was touched by nobody for 497 days: it may owe tokens since */
        seen->stepped = true;
        seen->count = slot_carried(decision, seen->state);
        return false;
    }
    decision->end = end;
    return true;
}

/* The key's bucket counts by another rate than the decision. If that is not the policy's any more,
 * the decision begins anew; else the slot counts by the rate before, and is counted anew. A reader
 * stores nothing: it is told what the state means. */
static enum progress decide_changed(struct decision *decision, struct seen *seen) {
    struct bucket bucket;

    if (!stint_bucket_rule(decision->limiter, decision->policy_id, &bucket) ||
        bucket.rate != decision->terms.rate) {
        decision->charge = (struct charge){0};
        decision->flags = DECISION_GONE;
        return DONE;
    }
    if (!decision->limiter->memory.read_only) {
        stint_rate_settle(decision->limiter, decision->policy_id, decision->hash, seen, &bucket);
        return STALE;
    }
    const uint64_t state = seen->state;
    uint64_t next;
    seen->state =
        stint_rate_means(decision->limiter, decision->policy_id, decision->hash, state, &bucket);
    if (slot_look(decision, seen) == LOOK_AHEAD && look_ahead(decision, seen))
        (void)slot_look(decision, seen);
    decision_judge(decision, seen);
    (void)slot_next(decision, seen, &next);
    seen->state = state;
    return slot_as_seen(seen, decision->terms.traits) ? DONE : STALE;
}

static enum progress decide_found(struct decision *decision, struct seen *seen) {
    seen->state = atomic_load_acquire(&seen->slot->state); /* M1, M6 */
    seen->stepped = false;
    if (atomic_load_acquire(&seen->slot->tag) != decision->tag) /* M1 */
        return STALE;
    enum look look = slot_look(decision, seen);
    if (look == LOOK_AHEAD && look_ahead(decision, seen))
        look = slot_look(decision, seen);
    if (look == LOOK_PENDING)
        return decide_absent(decision, NULL, seen);
    if (UNLIKELY(look == LOOK_CHANGED))
        return decide_changed(decision, seen);
    decision_judge(decision, seen);
    if (!slot_charge(decision, seen))
        return STALE;
    if (UNLIKELY(seen->stepped) && (decision->charge.count != 0 || decision->flags != 0))
        limiter_count_table(decision->limiter, COUNT_CLOCK_STEP);
    return DONE;
}

/* Ends a request that writes nothing, of a key that has no slot. */
static enum progress decide_nothing(struct decision *decision, uint32_t flags) {
    const tick_t now = tick_of(decision->now);

    if ((flags & STINT_UNTRACKED) == 0 &&
        UNLIKELY(begins_later(table_shard_of(&decision->limiter->table, decision->hash), now)))
        commit_at(decision, id_of(now + 1)); /* as if it claimed a slot now */
    if (decision->end == 0)
        decision->end = window_anew(decision);
    decision->flags = flags;
    return DONE;
}

static enum progress decide_absent(struct decision *decision, const struct seat *seat,
                                   struct seen *seen) {
    decision->charge = judge(&decision->terms, 0, 0);
    if (leaves_nothing(&decision->terms, &decision->charge)) {
        /* If a committed slot is beside the claim meanwhile, that one decides. */
        if (seat == NULL &&
            stint_find_committed(&decision->limiter->table, decision->hash, decision->tag, seen))
            return decide_found(decision, seen);
        return decide_nothing(decision, 0);
    }
    if (seat != NULL && !stint_claim_free(seat, seen))
        return STALE;
    return claim_resolve(decision, seen, 0);
}

/* Whether a look at a full table is untracked, as its request would be; of a stripe, its slot. */
static bool look_untracked(const struct decision *decision, bool replace) {
    struct terms asked = decision->terms;

    if (traits_striped(asked.traits))
        return !replace;
    asked.flags &= ~(uint32_t)(STINT_PEEK | STINT_CHARGE);
    const struct charge charge = judge(&asked, 0, 0);
    return !leaves_nothing(&asked, &charge) && !(replace && (charge.fits || charge.count != 0));
}

/* The key may claim no slot, and has none: the outcome that the user chose (G).
 *
 * One search compared the tags, and saw all slots to be live (stint_search), as they stay at this
 * now (I1). But the key may have got the last free one behind its back: without a second look, it
 * is treated as if it had none. (Who replaces a slot sees that on the way.) */
static enum progress decide_full(struct decision *decision, const struct seat *seat) {
    const struct stint_limiter *limiter = decision->limiter;
    const uint32_t on_full = limiter->on_full;
    const bool look = is_look(&decision->terms), replace = on_full == STINT_FULL_REPLACE;
    struct charge *charge = &decision->charge;

    *charge = judge(&decision->terms, 0, 0);
    const bool nothing =
        leaves_nothing(&decision->terms, charge) && !(look && look_untracked(decision, replace));
    /* A refusal that leaves nothing behind but its mark replaces nobody. */
    if (replace && !look && !nothing && (charge->fits || charge->count != 0)) {
        struct seen seen;
        const enum least_used found = stint_claim_least(seat, &seen);
        if (found == LOST)
            return STALE;
        if (found == LEAST) {
            limiter_count_table(limiter, COUNT_REPLACED);
            return claim_resolve(decision, &seen, STINT_REPLACED);
        }
        /* Every slot is changing hands at this instant: admit rather than wait. */
    } else {
        if (GUARD(FULL_AGAIN, stint_find_again(&limiter->table, decision->hash, decision->tag)))
            return STALE;
        if (nothing)
            return decide_nothing(decision, 0);
    }
    if (is_charge(&decision->terms))
        *charge = (struct charge){.fits = true}; /* nothing to charge */
    else if (on_full == STINT_FULL_REFUSE)
        *charge = (struct charge){.fits = false};
    else if (!charge->fits)
        charge->used = charge->count = 0;
    return decide_nothing(decision, STINT_UNTRACKED);
}

void stint_decide_by_slot(struct decision *decision) {
    stint_decide_looked(decision,
                        look_for(&decision->limiter->table, decision->hash, decision->tag));
}

void stint_decide_looked(struct decision *decision, struct far far) {
    const struct moment begun = {decision->now, decision->end};
    struct seen seen;
    struct seat seat = {decision->limiter, decision->hash, decision->tag, 0, 0};
    enum progress progress = far.slot != NULL ? STALE : claim_short(decision, far.unused);

    /* Each round that ends STALE saw another thread's write. */
    while (UNLIKELY(progress == STALE)) {
        decision->now = seat.now = begun.now;
        decision->end = begun.end;
        const enum found found = stint_slot_find(&seat, &seen);
        decision_move(decision, seat.now);
        switch (found) {
        case FOUND:
            progress = decide_found(decision, &seen);
            break;
        case ABSENT:
            progress = decide_absent(decision, &seat, &seen);
            break;
        default:
            progress = decide_full(decision, &seat);
        }
    }
}
