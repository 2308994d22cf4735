/* SPDX-License-Identifier: MIT
 * A key without a slot: claim one, look at the others, commit; or do without. Read slot.h first.
 *
 * Two threads that see a key for the first time may pick different slots. So a claim is first
 * PENDING: nobody counts in it. Then each thread looks at all other slots of the key's sequence
 * (claim_stands). Both claims precede both looks (M5), so at least one thread sees the other's.
 * Who sees a committed slot, or an earlier claim, gives its own up; who sees a later claim cancels
 * that. So one claim is left, and commits (stint_claim_resolve).
 *
 * A thread that meets a pending slot of its key does the same work for it, so nobody waits for one
 * that stopped (E). A request that leaves nothing behind does not (decide.c, decide_absent). */
#include "claim.h"

/* ---- Claim and resolve ----------------------------------------------------------------------- */

/* The tick from which on a key is judged the same without its slot: the end of the slot's window,
 * or of the last window in which something of it counts. */
static tick_t slot_done(const struct policy *policy, uint64_t state, tick_t end) {
    if (policy == NULL || (policy_word(policy) & TRAIT_CARRIES) == 0)
        return end;
    const struct rule rule = policy_rule(policy);
    const uint64_t used = state_used(state), limit = rule.limit != 0 ? rule.limit : 1;
    const uint64_t windows = (rule.flags & TWO_COUNTS) != 0 ? 1
                             : used == 0                    ? 0
                                                            : (used - 1) / limit;
    return end + (tick_t)windows * policy_length(policy);
}

/* Raises the watermark of the key's shard before a used slot is taken over: to slot_done.
 *
 * A thread of that key with a late `now` must not open its window again in a new slot. So a commit
 * looks at the watermark (commit_tick). It is raised no further, as all keys of the shard without a
 * slot begin no earlier. */
static void watermark_raise(uint64_t *watermark, tick_t done) {
    /* M7: seen high enough, or raised, then the claim. */
    if ((tick_t)atomic_load_relaxed(watermark) < done && GUARDED(WATERMARK_RAISE))
        atomic_raise(watermark, (uint64_t)done); /* M7 */
}

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
        const tick_t clock = latest > now + ALLOWANCE_TICKS
                                 ? stint_decision_read_clock(decision)
                                 : tick_of(limiter_now(decision->limiter));
        now = tick_of(decision->now);
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

/* Cancels a claim, unless it was committed meanwhile. (Whatever `used`: strays may have come.) */
static bool claim_cancel(const struct decision *decision, struct slot *slot, uint64_t claim) {
    uint64_t state = claim;
    do {
        if (slot_cancel(&decision->limiter->table, slot, decision->tag, state))
            return true;
        state = atomic_load_acquire(&slot->state); /* M6 */
    } while (state_same_window(state, claim) && atomic_load_relaxed(&slot->tag) == decision->tag);
    return false;
}

/* Whether a claim may stand beside another slot that had the tag. If not, it has been cancelled. */
static bool claim_outranks(const struct decision *decision, const struct seen *claim,
                           struct slot *other, uint32_t position) {
    /* As in find: tag, state, tag again (M1). A thread that helps a claim looks after it (M6). */
    while (atomic_load_acquire(&other->tag) == decision->tag) {
        uint64_t state = atomic_load_acquire(&other->state); /* M1 */
        if (atomic_load_acquire(&other->tag) != decision->tag)
            break;
        if (GUARD(RIVAL_COMMITTED, !state_pending(state)) || position < claim->position) {
            (void)claim_cancel(decision, claim->slot, claim->state);
            return false;
        }
        if (!GUARDED(RIVAL_LATER) || claim_cancel(decision, other, state))
            break;
        /* It was committed meanwhile, or is another's: look again. */
    }
    return true;
}

/* Looks at the other slots of the sequence for the key. Returns whether the claim may be committed:
 * then later ones have been cancelled, else it has.
 *
 * The look goes as far as the home line's reach, loaded after the claim (M5, I6). A claim that came
 * before this one raised the reach before (M7), so the look finds it. One that comes later looks
 * itself. */
static bool claim_stands(const struct decision *decision, const struct seen *claim) {
    const struct table *table = &decision->limiter->table;
    struct line *line = home_of(table, decision->hash);
    struct line *const end = shard_end(table, decision->hash);
    uint32_t lines = sequence_reach(table, decision->hash);

    for (uint32_t i = 0; i < lines; i++, line = line_after(table, line, end)) {
        for (uint32_t match = line_match(line, decision->tag); match != 0;
             match = match4_rest(match)) {
            struct slot *other = line_slot(line, match);
            uint32_t position = i * LINE_SLOTS + (uint32_t)(other - line->slots);
            if (position != claim->position && !claim_outranks(decision, claim, other, position))
                return false;
        }
        if (i < UNUSED_LINES && line_match(line, 0) != 0) /* I5 */
            break;
    }
    atomic_fence_acquire(); /* M8: the watermark is loaded after all of these */
    return true;
}

/* Commits a claim as `next`, whoever claimed it. A stray add into a pending slot must not hold the
 * commit up, and is dropped. */
static enum progress claim_commit(const struct decision *decision, const struct seen *claim,
                                  uint64_t next) {
    uint64_t state = claim->state;

    while (!slot_swap(claim->slot, decision->tag, state, next)) {
        state = atomic_load_acquire(&claim->slot->state); /* M1 */
        /* It was resolved; or by STINT_FULL_REPLACE it is another key's, maybe of this end. */
        if (!state_same_window(state, claim->state) ||
            /* I2 */
            GUARD(COMMIT_TAG, atomic_load_relaxed(&claim->slot->tag) != decision->tag))
            return STALE;
    }
    return DONE;
}

/* Cancels a claim that may not be committed. Returns whether it was one. */
static bool claim_gone(struct decision *decision, const struct seen *claim) {
    if (!claim_void(decision))
        return false;
    (void)claim_cancel(decision, claim->slot, claim->state);
    decision->charge = (struct charge){0};
    decision->flags = DECISION_GONE;
    return true;
}

/* Whether a claim may be committed. If not, `progress` receives what became of it. */
static bool claim_holds(struct decision *decision, const struct seen *claim,
                        enum progress *progress) {
    *progress = STALE;
    INSTANT(INSTANT_CLAIMED);
    if (GUARD(PENDING, !claim_stands(decision, claim)))
        return false;
    INSTANT(INSTANT_LOOKED);
    *progress = DONE;
    return !claim_gone(decision, claim);
}

enum progress stint_claim_resolve(struct decision *decision, const struct seen *claim,
                                  uint32_t flags) {
    struct charge *charge = &decision->charge;
    enum progress progress;

    if (!claim_holds(decision, claim, &progress))
        return progress;
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
    if (claim_commit(decision, claim, next) == STALE)
        return STALE;
    decision->flags = flags | (first_refusal ? STINT_FIRST_REFUSAL : 0);
    return DONE;
}

/* The slot ends at `end`, but not before the claim (I1). A claim that seems further ahead than
 * another clock may be was left 497 days ago, or longer. No window is opened, so none is opened
 * again: the watermark is not asked. */
enum progress stint_claim_override(struct decision *decision, const struct seen *claim, tick_t end,
                                   uint64_t rest) {
    const tick_t now = tick_of(decision->now), ahead = end_of(state_id(claim->state), now);
    const tick_t claimed = ahead - now <= ALLOWANCE_TICKS + 1 ? ahead : 0;
    enum progress progress;

    if (!claim_holds(decision, claim, &progress))
        return progress;
    return claim_commit(decision, claim, state_of(end > claimed ? end : claimed, rest));
}

static bool claim_slot(struct decision *decision, struct seen *seen) {
    const struct table *table = &decision->limiter->table;
    const uint64_t line = seen->position / LINE_SLOTS;
    reach_raise(table, decision->hash, line); /* I6: before the claim (M7) */
    HOLDS(I6, reach_of(table, decision->hash) >= line);
    atomic_raise(&table_shard_of(table, decision->hash)->reach, line);
    tick_t end = tick_of(decision->over) + 1;
    const uint64_t expected[2] = {seen->tag, seen->state};
    const uint64_t claim[2] = {decision->tag, state_of(end, STATE_PENDING)};

    /* I2. Then comes the look (M5). */
    if (!atomic_cas2_seq(seen->slot, expected, claim))
        return false;
    seen->tag = claim[0];
    seen->state = claim[1];
    if (UNLIKELY(seen->stepped))
        limiter_count_table(decision->limiter, COUNT_CLOCK_STEP);
    limiter_count_table(decision->limiter, COUNT_PLACED);
    return true;
}

bool stint_claim_free(struct decision *decision, struct seen *seen) {
    INSTANT(INSTANT_ABSENT);
    if (seen->tag != 0) {
        const tick_t over = tick_of(decision->over);
        const struct policy *policy = limiter_tag_policy(decision->limiter, seen->tag);
        const tick_t done =
            slot_done(policy, seen->state, slot_end(decision->limiter, policy, seen->state, over));
        /* A step of the clock made it later than now, or another rule. */
        watermark_raise(&table_shard_of(&decision->limiter->table, decision->hash)->watermark,
                        done < over ? done : over);
    }
    return claim_slot(decision, seen);
}

/* A committed slot of the home line that is over, and carries nothing: slot_reusable has more. */
static bool home_over(const struct stint_limiter *limiter, uint64_t hash, tick_t over,
                      struct seen *seen) {
    struct line *home = home_of(&limiter->table, hash);

    for (uint32_t i = 0; i < LINE_SLOTS; i++) {
        seen->slot = &home->slots[i];
        seen->tag = atomic_load_acquire(&seen->slot->tag);     /* M15 */
        seen->state = atomic_load_acquire(&seen->slot->state); /* the claim compares both */
        const struct policy *policy = limiter_tag_policy(limiter, seen->tag);
        if (policy != NULL && !state_pending(seen->state) &&
            slot_end(limiter, policy, seen->state, over) <= over &&
            (policy_word(policy) & (TRAIT_CARRIES | TRAIT_COMPANION)) == 0)
            return true;
    }
    return false;
}

/* stint_claim_free and stint_claim_resolve in one, where nothing is in the way. Else the claim is
 * left for whoever meets it: this thread, by the long way. */
bool stint_claim_over(const struct decision *decision, uint64_t state) {
    struct stint_limiter *limiter = decision->limiter;
    const struct table *table = &limiter->table;
    const uint64_t hash = decision->hash, tag = decision->tag, now = decision->now;
    const uint64_t clock = limiter_now(limiter);
    const tick_t over = tick_of(now < clock ? now : clock);
    const uint64_t claim[2] = {tag, state_of(over + 1, STATE_PENDING)};
    uint64_t *watermark = &table_shard_of(table, hash)->watermark;
    struct seen seen;

    if (UNLIKELY(!home_over(limiter, hash, over, &seen)))
        return false;
    INSTANT(INSTANT_ABSENT);
    watermark_raise(watermark,
                    slot_end(limiter, limiter_tag_policy(limiter, seen.tag), seen.state, over));
    const uint64_t expected[2] = {seen.tag, seen.state};
    /* I2: the watermark (M7), then the claim, then the look (M5). Each reach has the home line. */
    if (UNLIKELY(!atomic_cas2_seq(seen.slot, expected, claim)))
        return false;
    limiter_count_table(limiter, COUNT_PLACED);
    INSTANT(INSTANT_CLAIMED);
    struct line *line = home_of(table, hash), *const end = shard_end(table, hash);
    const uint32_t lines = sequence_reach(table, hash);
    uint32_t others = match4_rest(line_match(line, tag));
    for (uint32_t i = 1; i < lines; i++)
        others |= line_match(line = line_after(table, line, end), tag);
    if (UNLIKELY(GUARD(SHORT_LOOK, others != 0)))
        return false;
    atomic_fence_acquire(); /* M8: the look, then the watermark */
    INSTANT(INSTANT_LOOKED);
    if (UNLIKELY(GUARD(SHORT_WATERMARK, (tick_t)atomic_load_relaxed(watermark) > tick_of(now))) ||
        UNLIKELY(claim_void(decision))) /* M8 */
        return false;
    return slot_swap(seen.slot, tag, claim[1], state);
}

/* ---- A full table ---------------------------------------------------------------------------- */

/* One search compared the tags, and saw all slots to be live (search.c, slot_search), as they stay
 * at this now (I1). But the key may have got the last free one behind its back: without a second
 * look, a key that has a slot is treated as if it had none. (Where a slot is to be replaced,
 * find_least_used looks on its way.) */
static bool found_again(const struct decision *decision) {
    const struct table *table = &decision->limiter->table;

    atomic_fence_acquire(); /* M9 */
    uint32_t lines = sequence_reach(table, decision->hash);
    return GUARD(FULL_AGAIN,
                 stint_find_tag(table, decision->hash, decision->tag, 0, lines).slot != NULL);
}

static uint64_t slot_tokens(const struct decision *decision, const struct seen *seen) {
    const struct policy *policy = limiter_tag_policy(decision->limiter, seen->tag);
    if (policy == NULL)
        return 0;
    uint64_t count = state_used(seen->state);
    const uint64_t traits = policy_word(policy);
    if (UNLIKELY((traits & TRAIT_COMPANION) != 0))
        return UINT64_MAX; /* an override: it is never replaced */
    if (UNLIKELY(traits == 0))
        return 0; /* of a policy that is gone */
    if ((traits & RULE_BUCKET) != 0)
        return stint_bucket_used(decision->limiter, policy, seen->state, decision->now);
    if (LIKELY((traits & TRAIT_CARRIES) == 0)) /* as those of two counts do */
        return count;
    struct rule rule = policy_rule(policy);
    return (rule.flags & TWO_COUNTS) == 0 ? count : (count & THIS_MASK) + (count >> THIS_BITS);
}

/* The pattern of slots that have used at least `fewest` tokens (UINT64_MAX: no slot matches). Their
 * ids do not matter, but a range of all ids cannot be written: one is left out. With it a new key
 * replaces another in 260 ns, without it in 470 (Intel Xeon, 2026-11-26; 1,000 keys in cache). */
static inline struct slot_pattern used_at_least(const struct table *table, uint64_t tag,
                                                uint64_t fewest) {
    struct slot_pattern asked = others_of(table, tag);
    asked.flip[1] = (uint32_t)USED_MASK;
    asked.mask[1] = (uint32_t)(STATE_PENDING | USED_MASK);
    asked.below[1] = fewest <= USED_MASK ? (uint32_t)(USED_MASK - fewest) + 1 : 0;
    asked.range[1] = UINT32_MAX;
    return asked;
}

/* NONE: all are claims or tombstones, which are free in the next tick. OWN: the key has got one. */
enum least_used { LEAST, NONE, OWN };

static enum least_used find_least_used(const struct decision *decision, struct seen *least) {
    const struct table *table = &decision->limiter->table;
    /* Without policies of two counts a slot holds what it counts: few lines need a closer look. */
    bool counts = atomic_load_acquire(&decision->limiter->header->smooth) == 0; /* M12 */
    struct slot_pattern enough = used_at_least(table, decision->tag, UINT64_MAX);
    uint64_t fewest = UINT64_MAX;

    atomic_fence_acquire(); /* M9 */
    for (uint32_t i = 0; i < table->probe_lines; i++) {
        if (counts)
            i = sequence_all_match(table, decision->hash, i, &enough);
        if (i == table->probe_lines)
            break;
        struct line *line = sequence_line(table, decision->hash, i);
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
    const tick_t now = tick_of(decision->now);

    if ((flags & STINT_UNTRACKED) == 0 &&
        UNLIKELY(begins_later(&decision->limiter->table, decision->hash, now)))
        commit_at(decision, id_of(now + 1)); /* as if it claimed a slot now */
    if (decision->end == 0)
        decision->end = window_anew(decision);
    decision->flags = flags;
    return DONE;
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

enum progress stint_decide_full(struct decision *decision) {
    const uint32_t on_full = decision->limiter->on_full;
    const bool look = is_look(&decision->terms), replace = on_full == STINT_FULL_REPLACE;
    struct charge *charge = &decision->charge;

    *charge = judge(&decision->terms, 0, 0);
    const bool nothing =
        leaves_nothing(&decision->terms, charge) && !(look && look_untracked(decision, replace));
    /* A refusal that leaves nothing behind but its mark replaces nobody. */
    if (replace && !look && !nothing && (charge->fits || charge->count != 0)) {
        struct seen seen;
        enum least_used found = find_least_used(decision, &seen);
        const tick_t now = tick_of(decision->over);
        if (found == OWN)
            return STALE;
        if (found == LEAST) {
            shard_end_falls(table_shard_of(&decision->limiter->table, decision->hash),
                            end_of(state_id(seen.state), now), now);
            if (!claim_slot(decision, &seen))
                return STALE;
            limiter_count_table(decision->limiter, COUNT_REPLACED);
            return stint_claim_resolve(decision, &seen, STINT_REPLACED);
        }
        /* Every slot is changing hands at this instant: admit rather than wait. */
    } else {
        if (found_again(decision))
            return STALE;
        if (nothing)
            return stint_decide_nothing(decision, 0);
    }
    if (is_charge(&decision->terms))
        *charge = (struct charge){.fits = true}; /* nothing to charge */
    else if (on_full == STINT_FULL_REFUSE)
        *charge = (struct charge){.fits = false};
    else if (!charge->fits)
        charge->used = charge->count = 0;
    return stint_decide_nothing(decision, STINT_UNTRACKED);
}
