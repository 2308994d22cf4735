/* SPDX-License-Identifier: MIT
 * The long way of a decision: read the protocol in slot.h first. Functions stand in the order in which a
 * decision may need them: settle, find; then refund and reset. */
#include "search.h"
#include "stripes.h"

#ifdef STINT_TESTING
void (*stint_test_hook)(enum stint_test_instant instant);
void (*stint_test_step)(const void *word);
uint64_t stint_test_removed;
#endif

/* ---- Time ----------------------------------------------------------------------------------- */

tick_t stint_window_at(const struct stint_limiter *limiter, const struct policy *policy,
                       uint32_t flags, uint64_t hash, tick_t tick) {
    tick_t start = policy->start, length = policy->length;
    if ((flags & STINT_START_PER_KEY) != 0) /* whole ticks later, from the hash alone */
        start += (tick_t)part_of(mix(hash, 1), (uint64_t)length);
    tick_t end = window_end(tick, start, length);
    limiter_latest(limiter, end - length);
    return end;
}

tick_t stint_window_compute(const struct stint_limiter *limiter, struct policy *policy,
                            uint32_t flags, uint64_t hash, uint64_t now) {
    tick_t end = stint_window_at(limiter, policy, flags, hash, tick_of(now));
    /* The first and the last window of 64 bits of ns are no hints: each would be taken for the other. */
    if ((flags & STINT_START_PER_KEY) == 0 && end >= policy->length &&
        end <= (tick_t)(UINT64_MAX / STINT_TICK_NS) &&
        (uint64_t)end != atomic_load_relaxed(&policy->current_end))
        atomic_store_release(&policy->current_end, (uint64_t)end);
    return end;
}

tick_t stint_decision_read_clock(struct decision *decision) {
    uint64_t clock = limiter_now(decision->limiter);
    if (clock > decision->now) {
        decision->now = clock;
        decision->end = window_of(decision);
    }
    return tick_of(clock);
}

bool stint_beyond_clock(struct decision *decision, uint64_t id, tick_t length) {
    tick_t now = tick_of(decision->now);
    if (LIKELY(end_of(id, now) - now <= length + ALLOWANCE_TICKS))
        return false;
    tick_t clock = stint_decision_read_clock(decision);
    return end_of(id, clock) - clock > length + ALLOWANCE_TICKS;
}

/* Lines that a decision sweeps on its way. */
#define SWEPT_LINES 8

/* Somebody's now was far ahead of the clock, or the clock was stepped back: latest is too late, and decisions on a
 * full table have to look at every slot, to find those that count as over for it. When they have all been taken,
 * which a sweep of the table shows, latest comes back to the clock and the allowance. Each such decision sweeps
 * some lines. (A window that is opened behind the sweep, by a now as far ahead, is not found: a full table may be
 * called full although that slot could be taken.) */
static void latest_sweep(struct stint_limiter *limiter, uint64_t latest, tick_t clock) {
    const struct table *table = &limiter->table;
    struct header *header = limiter->header;
    uint64_t line = atomic_fetch_add_seq(&header->swept, SWEPT_LINES), last = line + SWEPT_LINES;

    if (line == 0) {
        atomic_store_relaxed(&header->swept_from, latest);
        atomic_store_relaxed(&header->strays, 0);
    }
    for (; line < last && line < table->line_count; line++) {
        for (uint32_t i = 0; i < LINE_SLOTS; i++) {
            const struct slot *slot = &table->lines[line].slots[i];
            const struct policy *policy =
                limiter_tag_policy(limiter, atomic_load_acquire(&slot->tag));
            tick_t end = end_of(state_id(atomic_load_acquire(&slot->state)), clock);
            if (policy != NULL && end - clock > policy->length + ALLOWANCE_TICKS)
                atomic_add_relaxed(&header->strays, 1);
        }
    }
    if (last < table->line_count)
        return;
    if (atomic_load_relaxed(&header->strays) == 0 &&
        atomic_load_relaxed(&header->swept_from) == latest) {
        /* By a hint that begins later, a window would be opened without telling (I7). */
        stint_limiter_hints_reset(limiter, clock + ALLOWANCE_TICKS);
        (void)atomic_cas_seq(&header->latest, latest, (uint64_t)(clock + ALLOWANCE_TICKS));
    }
    atomic_store_relaxed(&header->swept, 0);
}

/* Some window begins so late that this thread is late, or the clock was stepped back, or somebody's now was
 * ahead of it: the clock tells. A thread that is late by more than the allowance is not late any more after
 * this. Returns whether now has moved. */
static bool latest_recover(struct decision *decision) {
    uint64_t latest = atomic_load_relaxed(&decision->limiter->header->latest);
    uint64_t clock = limiter_now(decision->limiter);
    tick_t most = tick_of(clock) + ALLOWANCE_TICKS;

    if ((tick_t)latest > most)
        latest_sweep(decision->limiter, latest, tick_of(clock));
    if (most - tick_of(decision->now) <= 2 * ALLOWANCE_TICKS)
        return false;
    decision->now = clock;
    decision->end = window_of(decision);
    return true;
}

/* Whether a used slot can be taken over: it says no more than its absence would, whoever's it is.
 */
static bool slot_reusable(struct decision *decision, struct place *place) {
    const struct table *table = &decision->limiter->table;
    bool key = place->tag != table_tombstone(table) && !state_pending(place->state);
    const struct policy *policy = key ? limiter_tag_policy(decision->limiter, place->tag) : NULL;
    tick_t now = tick_of(decision->now);

    if (end_of(state_id(place->state), now) <= now)
        return policy == NULL || !GUARD(REUSE_CARRIES, slot_carries(policy, place->state, now));
    place->stepped =
        stint_beyond_clock(decision, state_id(place->state), policy == NULL ? 1 : policy->length);
    return place->stepped;
}

/* The first slot of the sequence, from number `position` on, that is not plainly live; sequence_length if
 * there is none. Plainly live is a slot that slot_reusable would find live by its policy's window alone: those
 * of a full table nearly all are. */
static uint32_t next_not_live(const struct decision *decision, const struct sequence *sequence,
                              uint32_t position, tick_t now) {
    const struct table *table = &decision->limiter->table;
    const struct policy *policies = decision->limiter->policies;
    const uint64_t max_policies = decision->limiter->max_policies;
    const uint64_t policy_mask = table_tombstone(table) - 1;
    const uint64_t next = state_of(now + 1, 0);
    const uint32_t length = sequence_length(table);
    struct line *line = sequence_line(sequence, position / LINE_SLOTS);

    while (position < length) {
        do {
            const struct slot *slot = &line->slots[position % LINE_SLOTS];
            uint64_t tag = atomic_load_acquire(&slot->tag);
            uint64_t state = atomic_load_acquire(&slot->state);
            uint64_t policy = (tag & policy_mask) - 1; /* no number: never used, tombstone */
            if (UNLIKELY(policy >= max_policies || state_pending(state)))
                return position;
            /* The id is in the top bits: one that is behind makes the difference more than any of these. */
            uint64_t most = (uint64_t)(policies[policy].length + ALLOWANCE_TICKS) << STATE_ID;
            if (UNLIKELY(state - next >= most))
                return position;
        } while (++position % LINE_SLOTS != 0);
        line = sequence_next(sequence, line);
    }
    return length;
}

/* ---- Find ----------------------------------------------------------------------------------- */

enum found { FOUND, ABSENT, FULL };

/* Looks for a tag in the lines from number `from` on to before `lines`, as far as it can be (I5). */
struct search stint_find_tag(const struct table *table, uint64_t hash, uint64_t tag, uint32_t from,
                             uint32_t lines) {
    struct sequence sequence = sequence_of(table, hash);

    for (uint32_t i = from; i < lines; i++) {
        if (i >= UNUSED_LINES)
            i = sequence_match(&sequence, i, lines, tag);
        if (i == lines)
            break;
        struct line *line = sequence_line(&sequence, i);
        struct slot *slot = line_find(line, tag);
        if (slot != NULL)
            return (struct search){slot, i};
        if (i < UNUSED_LINES && line_match(line, 0) != 0) /* I5 */
            break;
    }
    return (struct search){0};
}

/* Likewise, and that all are live, whatever their policies: by a window of `longest` ticks. Of an id it compares
 * all but the last bit: those from the first even one behind that of now on, as far as the odd ones are not
 * beyond what a live slot may be ahead. */
static inline struct all4 plainly_live(const struct table *table, uint64_t tag, tick_t longest,
                                       tick_t now) {
    struct all4 asked = others_of(table, tag);
    asked.base[1] = (uint32_t)(id_of(now) >> 1) + 1;
    asked.range[1] = (uint32_t)((longest + ALLOWANCE_TICKS - 1) / 2);
    return asked;
}

static struct search slot_search(const struct stint_limiter *limiter, uint64_t hash, uint64_t tag,
                                 tick_t now) {
    const struct table *table = &limiter->table;
    const struct sequence sequence = sequence_of(table, hash);
    /* What is ahead by the allowance at most is live by any window. */
    const bool beyond = latest_beyond(limiter, now);
    const tick_t longest =
        beyond ? 1 : (tick_t)atomic_load_relaxed(&limiter->header->longest_glanced);
    const struct all4 plain = plainly_live(table, tag, longest, now);
    uint32_t i = 0;

    /* Most searches end in the home line, unless the table is full. */
    if (atomic_all4(&sequence.home->slots[0].tag, &plain))
        i = sequence_all4(&sequence, 1, table->probe_lines, &plain);
    atomic_fence_acquire(); /* latest is loaded again after the glances (M8) */
    if (i == table->probe_lines)
        return (struct search){NULL, i};
    struct line *line = sequence_line(&sequence, i);
    struct slot *slot = line_find(line, tag);
    if (slot != NULL)
        return (struct search){slot, i};
    struct search rest = {0};
    if (line_match(line, 0) == 0) /* I5 */
        rest = stint_find_tag(table, hash, tag, i + 1, sequence_reach(table, hash));
    return rest.slot != NULL ? rest : (struct search){NULL, i};
}

static struct place place_found(const struct search *search, uint64_t tag) {
    struct slot *slot = search->slot;
    uint32_t number = (uint32_t)((uintptr_t)slot % sizeof(struct line) / sizeof(*slot));
    return (struct place){.slot = slot, .tag = tag, .position = search->line * LINE_SLOTS + number};
}

/* Looks for the key. FOUND: `place` is its slot, of which only the tag was seen. ABSENT: `place` is the
 * first slot that it may claim. FULL: it may claim none; whether it has one is to be looked at again. */
static enum found slot_find(struct decision *decision, struct place *place) {
    const struct table *table = &decision->limiter->table;
    uint64_t now = decision->now;
    tick_t tick = tick_of(now);
    struct search search = slot_search(decision->limiter, decision->hash, decision->tag, tick);

    if (search.slot != NULL) {
        *place = place_found(&search, decision->tag);
        return FOUND;
    }
    /* Loaded after the glances: this thread may have slept in between. */
    if (UNLIKELY(GUARD(LATEST_AGAIN, latest_beyond(decision->limiter, tick)))) {
        if (latest_recover(decision))
            return slot_find(decision, place);
        search.line = 0; /* what was glanced at is looked at slot by slot */
    }
    struct sequence sequence = sequence_of(table, decision->hash);
    uint32_t end = sequence_length(table);
    for (uint32_t i = search.line * LINE_SLOTS;
         (i = next_not_live(decision, &sequence, i, tick)) < end; i++) {
        struct slot *slot = sequence_slot(&sequence, i);
        *place =
            (struct place){.slot = slot, .tag = atomic_load_acquire(&slot->tag), .position = i};
        place->state = atomic_load_acquire(&slot->state); /* 0 with tag 0, but of nonsense */
        if (place->tag == 0 || slot_reusable(decision, place)) {
            /* It is a while since that search, and two claims of a key use up a slot until the next tick.
             * Another thread's is likely to be in a slot that this one would have taken: before this one. */
            search = stint_find_tag(table, decision->hash, decision->tag, 0, i / LINE_SLOTS + 1);
            if (search.slot == NULL)
                return ABSENT;
            *place = place_found(&search, decision->tag);
            return FOUND;
        }
        tick = tick_of(decision->now); /* it may have moved */
    }
    if (GUARD(FULL_LATE, decision->now != now))
        /* this thread was late, and judged the first slots by a `now` of then */
        return slot_find(decision, place);
    return FULL;
}

/* The committed slot of a key as it was seen (I3: there is one at most), or none. */
bool stint_find_committed(const struct table *table, uint64_t hash, uint64_t tag,
                          struct place *place) {
    struct sequence sequence = sequence_of(table, hash);

    for (uint32_t i = 0, n = sequence_reach(table, hash) * LINE_SLOTS; i < n; i++) {
        struct slot *slot = sequence_slot(&sequence, i);
        uint64_t seen = atomic_load_acquire(&slot->tag);
        if (seen == 0)
            return false;
        if (seen != tag)
            continue;
        uint64_t state = atomic_load_acquire(&slot->state);
        if (!GUARD(REFUND_TAG, atomic_load_acquire(&slot->tag) != tag) && !state_pending(state)) {
            *place = (struct place){.slot = slot, .tag = tag, .state = state, .position = i};
            return true;
        }
    }
    return false;
}

/* ---- Settle --------------------------------------------------------------------------------- */

/* A key's slot is in a later window than that of now. Either this thread is late, and joins it; or the clock was
 * stepped back, and the slot starts anew. Returns whether the slot is to be looked at again. */
static bool look_ahead(struct decision *decision, struct sight *sight) {
    uint64_t id = state_id(sight->state), now = decision->now;
    bool stepped = stint_beyond_clock(decision, id, decision->policy->length);

    if (decision->now != now)
        return true; /* this thread was late; now it is not */
    tick_t end = end_of(id, tick_of(now));
    if (end <=
        tick_of(now)) /* left over from 2^32 ticks ago: over, and nothing is carried so far */
        return false;
    /* Stripes must agree on a window, and could not on one that is left over from 2^33 ticks ago, which is
     * none of the policy's. */
    if ((decision->terms.part & PART_SILENT) != 0 &&
        (end - decision->policy->start) % decision->policy->length != 0)
        stepped = true;
    if (stepped) {
        if (decision->end == 0)
            decision->end = window_anew(decision);
        sight->stepped = true;
        return false;
    }
    decision->end = end;
    return true;
}

enum progress stint_decide_found(struct decision *decision, struct place *place) {
    struct sight sight;
    enum look look;

    place->state = atomic_load_acquire(&place->slot->state);
    do {
        look = slot_look(decision, place->slot, place->state, &sight);
        if (look == LOOK_STALE)
            return STALE;
        if (look == LOOK_PENDING)
            return stint_decide_absent(decision, place, true);
    } while (look == LOOK_AHEAD && look_ahead(decision, &sight));
    uint64_t left = tick_ns(decision->end) - decision->now;
    decision->charge = judge(&decision->terms, sight.count, left);
    if (!slot_charge(decision, &sight))
        return STALE;
    if (UNLIKELY(sight.stepped) && (decision->charge.count != 0 || decision->flags != 0))
        limiter_count_table(decision->limiter, COUNT_CLOCK_STEP);
    return DONE;
}

void stint_slot_settle(struct decision *decision) {
    struct place place;
    enum progress progress = stint_claim_short(decision);

    /* Each round that ends STALE saw another thread's write, or moved its own now to the clock's. */
    while (UNLIKELY(progress == STALE)) {
        decision->end = window_of(decision);
        switch (slot_find(decision, &place)) {
        case FOUND:
            progress = stint_decide_found(decision, &place);
            break;
        case ABSENT:
            progress = stint_decide_absent(decision, &place, false);
            break;
        default:
            progress = stint_decide_full(decision);
        }
    }
}

bool stint_decision_settle(struct decision *decision, struct stint_verdict *verdict) {
    if (traits_striped(decision->terms.traits))
        return stint_stripes_decide(decision, verdict);
    stint_slot_settle(decision);
    return decision_end(decision, verdict);
}

bool stint_slot_decide(struct stint_limiter *limiter, const struct stint_request *request,
                       uint64_t now, struct stint_verdict *verdict) {
    struct decision decision;
    uint32_t why = decision_begin(&decision, limiter, request, now, nothing_known);

    if (UNLIKELY(why != 0))
        return stint_decision_void(limiter, why, verdict);
    return stint_decision_settle(&decision, verdict);
}

bool stint_decision_void(struct stint_limiter *limiter, uint32_t why,
                         struct stint_verdict *verdict) {
    limiter_count_table(limiter,
                        why == STINT_BAD_REQUEST ? COUNT_BAD_REQUEST : COUNT_UNKNOWN_POLICY);
    if (verdict != NULL)
        *verdict = (struct stint_verdict){.flags = why, .retry_after = STINT_NEVER};
    return false;
}

uint64_t stint_decision_wait(const struct waiting *waiting) {
    const struct rule rule = policy_rule(waiting->policy);
    uint64_t wait = charge_wait(&waiting->terms, &rule, &waiting->charge, waiting->left);

    if (waiting->charge.fits)
        return wait;
    if (waiting->untracked && wait < waiting->left)
        wait = waiting->left; /* of nothing that this key could be given */
    if (rule.jitter != 0 && wait != STINT_NEVER)
        wait = wait_add(wait, part_of(mix(waiting->hash, (uint64_t)waiting->end),
                                      waiting->terms.window / 100 * rule.jitter));
    return wait;
}

/* ---- After a fetch-add ---------------------------------------------------------------------- */

bool stint_slot_added_ours(const struct decision *decision, struct slot *slot, uint64_t seen,
                           uint64_t added) {
    if (state_same_window(added, seen))
        return true;
    if (GUARD(ADDED_PENDING, state_pending(added))) /* the commit drops it */
        return false;
    /* Tag, then state: if both are the key's with the end that was added to, it was the key's when
     * it was added to (I1). */
    if (!GUARD(ADDED_TAG, atomic_load_acquire(&slot->tag) != decision->tag) &&
        !GUARD(ADDED_STATE, !state_same_window(atomic_load_acquire(&slot->state), added)))
        return true;
    limiter_count_table(decision->limiter, COUNT_STRAY);
    return false;
}

void stint_slot_settle_added(struct decision *decision, struct slot *slot, uint64_t seen,
                             uint64_t added) {
    bool ours = stint_slot_added_ours(decision, slot, seen, added);

    if (ours && !GUARD(ADDED_ROOM, state_used(added) >= decision->terms.capacity)) {
        uint64_t used = state_used(added) + 1;
        decision->charge = (struct charge){used, used, used, 1, true};
        decision->end = end_of(state_id(added), tick_of(decision->now));
        decision->flags = 0;
        return;
    }
    decision->terms.counted = GUARD(ADDED_ONCE, ours);
    stint_slot_settle(decision);
}

/* ---- Refund and reset ------------------------------------------------------------------------ */

uint32_t stint_slot_refund(const struct stint_limiter *limiter, uint32_t policy_id, uint64_t hash,
                           uint32_t stripe, uint64_t id, uint32_t tokens) {
    const struct policy *policy = &limiter->policies[policy_id];
    const struct giving giving = {.policy = policy,
                                  .traits = (uint32_t)policy_traits(policy),
                                  .stripe = stripe,
                                  .tag = table_tag(&limiter->table, hash, policy_id),
                                  .id = id};
    struct place place;
    uint32_t back;

    INSTANT(INSTANT_REFUND);
    do {
        if (!stint_find_committed(&limiter->table, hash, giving.tag, &place))
            return 0;
        back = tokens;
    } while (!slot_give_back(&giving, place.slot, place.state, &back));
    return back;
}

bool stint_slot_reset(const struct table *table, uint64_t hash, uint64_t tag) {
    struct place place;

    while (stint_find_committed(table, hash, tag, &place))
        if (slot_swap(place.slot, tag, place.state, place.state & ~USED_MASK))
            return true;
    return false;
}
