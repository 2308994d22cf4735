/* SPDX-License-Identifier: MIT
 * Looking for a key in all lines that it may be in, and for a slot that it may claim. Read slot.h first. */
#include "search.h"

/* ---- Time ----------------------------------------------------------------------------------- */

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
        (void)atomic_cas_seq(&header->latest_begin, latest, (uint64_t)(clock + ALLOWANCE_TICKS));
    }
    atomic_store_relaxed(&header->swept, 0);
}

/* Some window begins so late that this thread is late, or the clock was stepped back, or somebody's now was
 * ahead of it: the clock tells. A thread that is late by more than the allowance is not late any more after
 * this. Returns whether now has moved. */
static bool latest_recover(struct decision *decision) {
    uint64_t latest = atomic_load_relaxed(&decision->limiter->header->latest_begin);
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

/* ---- A slot that may be claimed ------------------------------------------------------------------ */

/* Whether a used slot can be taken over: it says no more than its absence would, whoever's it is.
 */
static bool slot_reusable(struct decision *decision, struct snapshot *snapshot) {
    const struct table *table = &decision->limiter->table;
    bool key = snapshot->tag != table_tombstone(table) && !state_pending(snapshot->state);
    const struct policy *policy = key ? limiter_tag_policy(decision->limiter, snapshot->tag) : NULL;
    tick_t now = tick_of(decision->now);

    if (end_of(state_id(snapshot->state), now) <= now)
        return policy == NULL || !GUARD(REUSE_CARRIES, slot_carries(policy, snapshot->state, now));
    if (!GUARDED(REUSE_TOMBSTONE) && snapshot->tag == table_tombstone(table))
        return true;
    snapshot->stepped = stint_beyond_clock(decision, state_id(snapshot->state),
                                           policy == NULL ? 1 : policy->length);
    return snapshot->stepped;
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
static inline struct slot_pattern plainly_live(const struct table *table, uint64_t tag,
                                               tick_t longest, tick_t now) {
    struct slot_pattern asked = others_of(table, tag);
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
    const tick_t longest = beyond ? 1 : (tick_t)atomic_load_relaxed(&limiter->header->bulk_window);
    const struct slot_pattern plain = plainly_live(table, tag, longest, now);
    uint32_t i = 0;

    /* Most searches end in the home line, unless the table is full. */
    if (atomic_all_match(&sequence.home->slots[0].tag, &plain))
        i = sequence_all_match(&sequence, 1, table->probe_lines, &plain);
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

static struct snapshot snapshot_of(const struct search *search, uint64_t tag) {
    struct slot *slot = search->slot;
    uint32_t number = (uint32_t)((uintptr_t)slot % sizeof(struct line) / sizeof(*slot));
    return (struct snapshot){
        .slot = slot, .tag = tag, .position = search->line * LINE_SLOTS + number};
}

enum found stint_slot_find(struct decision *decision, struct snapshot *snapshot) {
    const struct table *table = &decision->limiter->table;
    uint64_t now = decision->now;
    tick_t tick = tick_of(now);
    struct search search = slot_search(decision->limiter, decision->hash, decision->tag, tick);

    if (search.slot != NULL) {
        *snapshot = snapshot_of(&search, decision->tag);
        return FOUND;
    }
    /* Loaded after the glances: this thread may have slept in between. */
    if (UNLIKELY(GUARD(LATEST_AGAIN, latest_beyond(decision->limiter, tick)))) {
        if (latest_recover(decision))
            return stint_slot_find(decision, snapshot);
        search.line = 0; /* what was glanced at is looked at slot by slot */
    }
    struct sequence sequence = sequence_of(table, decision->hash);
    uint32_t end = sequence_length(table);
    for (uint32_t i = search.line * LINE_SLOTS;
         (i = next_not_live(decision, &sequence, i, tick)) < end; i++) {
        struct slot *slot = sequence_slot(&sequence, i);
        *snapshot =
            (struct snapshot){.slot = slot, .tag = atomic_load_acquire(&slot->tag), .position = i};
        snapshot->state = atomic_load_acquire(&slot->state); /* 0 with tag 0, but of nonsense */
        if (snapshot->tag == 0 || slot_reusable(decision, snapshot)) {
            /* It is a while since that search, and two claims of a key use up a slot until the next tick.
             * Another thread's is likely to be in a slot that this one would have taken: before this one. */
            search = stint_find_tag(table, decision->hash, decision->tag, 0, i / LINE_SLOTS + 1);
            if (search.slot == NULL)
                return ABSENT;
            *snapshot = snapshot_of(&search, decision->tag);
            return FOUND;
        }
        tick = tick_of(decision->now); /* it may have moved */
    }
    if (GUARD(FULL_LATE, decision->now != now))
        /* this thread was late, and judged the first slots by a `now` of then */
        return stint_slot_find(decision, snapshot);
    return FULL;
}

/* The committed slot of a key as it was seen (I3: there is one at most), or none. */
bool stint_find_committed(const struct table *table, uint64_t hash, uint64_t tag,
                          struct snapshot *snapshot) {
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
            *snapshot = (struct snapshot){.slot = slot, .tag = tag, .state = state, .position = i};
            return true;
        }
    }
    return false;
}
