/* SPDX-License-Identifier: MIT
 * The search for a key in all lines that it may be in, and for a slot that it may claim. Read
 * slot.h first. */
#include "search.h"

/* ---- Time ------------------------------------------------------------------------------------ */

tick_t stint_decision_read_clock(struct decision *decision) {
    uint64_t clock = limiter_now(decision->limiter);
    if (tick_of(clock) > tick_of(decision->now)) {
        decision->now = clock;
        decision->end = window_of(decision);
    }
    return tick_of(clock);
}

/* A slot whose end is ahead of now by more than its policy's window and the allowance is either met
 * by a late thread, or was written before the clock stepped back. The clock, read after the slot
 * was loaded, tells. If the slot is too far ahead of the clock, too, no thread can have written it
 * by the clock as it is now, and it counts as over. Windows are then counted again, and ends fall:
 * I1, and with it promises A and B, hold between steps of the clock, not across them. */
bool stint_beyond_clock(struct decision *decision, uint64_t id, tick_t length) {
    tick_t now = tick_of(decision->now);
    if (LIKELY(end_of(id, now) - now - ALLOWANCE_TICKS <= length))
        return false;
    tick_t clock = stint_decision_read_clock(decision);
    return end_of(id, clock) - clock - ALLOWANCE_TICKS > length;
}

/* Lines that a decision sweeps on its way. */
#define SWEPT_LINES 8

/* Lowers latest_begin to the clock and the allowance, if no slot needs it any more. Each decision
 * on a full table sweeps some lines; the last one lowers it.
 *
 * latest_begin is raised before a window is opened that begins later, and before such a window
 * becomes a policy's hint (limiter_raise_latest_begin). A decision compares it with its now, to see
 * whether the bulk check of lines is enough (slot_search), and whether the clock must decide on the
 * window of a key without a slot (stint_claim_short, stint_slot_find). If somebody's now was far
 * ahead of the clock, or the clock was stepped back, both would be slow for good. So it is lowered
 * again, never below the clock and 60 s, and the hints with it: a hint that begins later would open
 * a window without raising latest_begin (I7). Two do that:
 *   - a process that opens a table that nobody else uses (open.c), with the slots beyond it;
 *   - this function, once no slot of the table counts as over for being so far ahead. (The slot of
 *     a short month may begin later than the clock and 60 s, and not count as over: its policy's
 *     longest window reaches further back. When it counts as over, latest_begin is too late, too.)
 *
 * After the second a slot may have a window that begins later than latest_begin says:
 *   - one that was opened behind the sweep, by a now far ahead of the clock;
 *   - one in lines whose sweeper slept;
 *   - if the last sweeper slept between the clock and its CAS, one that was opened meanwhile.
 * If such a slot counts as over (stint_beyond_clock), the bulk check still shows it to be live: the
 * table may be called full although that slot could be taken. A thread that is late by more than 60
 * s may not notice. No count depends on latest_begin: promises A and B hold. */
static void latest_sweep(struct stint_limiter *limiter, uint64_t latest, tick_t clock) {
    const struct table *table = &limiter->table;
    struct header *header = limiter->header;
    /* I7: the sweep, then the CAS below. The counts of the sweep are relaxed. */
    uint64_t line = atomic_fetch_add_seq(&header->swept, SWEPT_LINES), last = line + SWEPT_LINES;

    if (line == 0) {
        /* I7: the CAS is from what was seen when the sweep began. */
        atomic_store_relaxed(&header->swept_from, latest);
        atomic_store_relaxed(&header->strays, 0);
    }
    for (; line < last && line < table->line_count; line++) {
        for (uint32_t i = 0; i < LINE_SLOTS; i++) {
            const struct slot *slot = &table->lines[line].slots[i];
            const struct policy *policy =
                /* M15 */
                limiter_tag_policy(limiter, atomic_load_acquire(&slot->tag));
            tick_t end = end_of(state_id(atomic_load_acquire(&slot->state)), clock);
            /* One that begins later than latest_begin has been over for 497 days, or longer. */
            const tick_t begin = policy == NULL ? 0 : tick_back(end, policy_reach(policy));
            if (begin > clock + ALLOWANCE_TICKS && begin <= (tick_t)latest)
                atomic_add_relaxed(&header->strays, 1); /* I7 */
        }
    }
    if (last < table->line_count)
        return;
    /* I7: the hints first, then latest_begin, unless somebody has raised it since. */
    if (atomic_load_relaxed(&header->strays) == 0 &&
        atomic_load_relaxed(&header->swept_from) == latest) {
        stint_limiter_hints_reset(limiter, clock + ALLOWANCE_TICKS);
        /* I7 */
        (void)atomic_cas_seq(&header->latest_begin, latest, (uint64_t)(clock + ALLOWANCE_TICKS));
    }
    atomic_store_relaxed(&header->swept, 0); /* I7 */
}

/* Some window begins far ahead of now: this thread is late, the clock was stepped back, or another
 * thread's now was ahead of the clock. The clock tells which. A thread that is late by more than
 * the allowance moves its now to the clock. Returns whether now has moved. */
static bool latest_recover(struct decision *decision) {
    uint64_t latest = atomic_load_relaxed(&decision->limiter->header->latest_begin); /* M8 */
    uint64_t clock = limiter_now(decision->limiter);
    tick_t most = tick_of(clock) + ALLOWANCE_TICKS;

    if ((tick_t)latest > most && !decision->limiter->memory.read_only)
        latest_sweep(decision->limiter, latest, tick_of(clock));
    if (most - tick_of(decision->now) <= 2 * ALLOWANCE_TICKS)
        return false;
    decision->now = clock;
    decision->end = window_of(decision);
    return true;
}

/* ---- A key far from home --------------------------------------------------------------------- */

struct slot *stint_slot_far(const struct table *table, uint64_t hash, uint64_t tag) {
    return absent_near(table, hash) ? NULL : stint_slot_behind(table, hash, tag);
}

struct slot *stint_slot_behind(const struct table *table, uint64_t hash, uint64_t tag) {
    return stint_find_tag(table, hash, tag, UNUSED_LINES, sequence_reach(table, hash)).slot;
}

bool stint_absent_far(const struct table *table, uint64_t hash) {
    return stint_find_tag(table, hash, 0, UNUSED_LINES, table->probe_lines).slot != NULL;
}

/* ---- A slot that may be claimed -------------------------------------------------------------- */

/* A caller's now may be early, and another process' clock behind, by the allowance each. So a slot
 * is over by decision->over: the earlier of the caller's now and the clock. If the table would be
 * full then, it is over by an early now, too. An override, a ban or a strike is over when it is so
 * by all clocks. */
enum when { ON_TIME, EARLY };

static void over_set(struct decision *decision, enum when when) {
    const uint64_t most = limiter_now(decision->limiter) + (when == EARLY ? ALLOWANCE_NS : 0);
    decision->over = decision->now < most ? decision->now : most;
}

/* Whether a used slot can be taken over: its key is judged the same without it. */
static bool slot_reusable(struct decision *decision, struct seen *seen, enum when when) {
    const struct table *table = &decision->limiter->table;
    bool key = seen->tag != table_tombstone(table) && !state_pending(seen->state);
    const struct policy *policy = key ? limiter_tag_policy(decision->limiter, seen->tag) : NULL;
    const tick_t over = tick_of(decision->over), end = end_of(state_id(seen->state), over);

    if (end <= over) {
        const bool told = policy != NULL && override_says(policy, seen->state);
        const tick_t before = (when == EARLY ? 2 : 1) * ALLOWANCE_TICKS;
        if (GUARD(REUSE_OVERRIDE, told && end > over - before))
            return false;
        return policy == NULL || !GUARD(REUSE_CARRIES, slot_carries(policy, seen->state, over));
    }
    /* A claim is ahead by a tick at most, and so is a companion's slot that was lifted. */
    const bool counts = policy != NULL && !override_lifted(policy, seen->state);
    seen->stepped =
        stint_beyond_clock(decision, state_id(seen->state), counts ? policy_reach(policy) : 1);
    /* It may owe tokens for longer than 497 days. */
    return seen->stepped && !(policy != NULL && slot_carries(policy, seen->state, over));
}

/* The first slot of the sequence, from number `position` on, that is not plainly live;
 * sequence_length if there is none. A slot is plainly live if slot_reusable would find it live by
 * its policy's window alone. Nearly all slots of a full table are. */
static uint32_t next_not_live(const struct decision *decision, uint32_t position, tick_t now) {
    const struct table *table = &decision->limiter->table;
    const struct policy *policies = decision->limiter->policies;
    const uint64_t max_policies = decision->limiter->max_policies;
    const uint64_t policy_mask = table_tombstone(table) - 1;
    const uint64_t next = state_of(now + 1, 0);
    const uint32_t length = sequence_length(table);
    struct line *line = sequence_line(table, decision->hash, position / LINE_SLOTS);
    struct line *const end = shard_end(table, decision->hash);

    while (position < length) {
        do {
            const struct slot *slot = &line->slots[position % LINE_SLOTS];
            uint64_t tag = atomic_load_acquire(&slot->tag);     /* M15 */
            uint64_t state = atomic_load_acquire(&slot->state); /* M9 */
            uint64_t policy = (tag & policy_mask) - 1; /* no number: never used, tombstone */
            if (UNLIKELY(policy >= max_policies || state_pending(state)))
                return position;
            /* The id is in the top bits: one that is behind makes the difference more than any of
             * these. */
            uint64_t most = ((uint64_t)policy_reach(&policies[policy]) + ALLOWANCE_TICKS)
                            << STATE_ID;
            if (UNLIKELY(state - next >= most))
                return position;
        } while (++position % LINE_SLOTS != 0);
        line = line_after(table, line, end);
    }
    return length;
}

/* ---- Find ------------------------------------------------------------------------------------ */

struct search stint_find_tag(const struct table *table, uint64_t hash, uint64_t tag, uint32_t from,
                             uint32_t lines) {
    struct line *line = sequence_line(table, hash, from), *const end = shard_end(table, hash);

    for (uint32_t i = from; i < lines; i++, line = line_after(table, line, end)) {
        struct slot *slot = line_find(line, tag);
        if (slot != NULL)
            return (struct search){slot, i};
        if (i < UNUSED_LINES && line_match(line, 0) != 0) /* I5 */
            break;
    }
    return (struct search){0};
}

/* The pattern of the slots of a line that are others' (others_of), and live by a window of
 * `longest` ticks. The pattern compares ids without their last bit, in the high half of a state. So
 * the range begins at the first even id behind that of now. It ends where an odd id, too, is no
 * further ahead than a live slot may be. */
static inline struct slot_pattern plainly_live(const struct table *table, uint64_t tag,
                                               tick_t longest, tick_t now) {
    struct slot_pattern asked = others_of(table, tag);
    asked.base[1] = (uint32_t)(id_of(now) >> 1) + 1;
    asked.range[1] = (uint32_t)(((uint64_t)longest + ALLOWANCE_TICKS - 1) / 2);
    return asked;
}

/* Looks for the key's tag, and on the way sees for how many lines from home on all slots are live.
 *
 * A slot once seen live stays so at this now, whoever's it is (I1). So it is as if all of them were
 * seen when the last one was. One bulk check of a line shows its slots to be live, whatever their
 * policies, if they end after now. But a step of the clock may have left slots that count as over
 * although they end later (stint_beyond_clock), and this thread may have slept so long that the
 * clock must be read. Neither is so if latest_begin, loaded after all the checks, is within the
 * allowance of now (I7). What a bulk check does not show is looked at slot by slot, by the policy
 * of each (next_not_live). A new key finds the table full in 164 ns, slot by slot in 277 (Intel
 * Xeon, 2026-11-26; 1,000 keys in cache).
 *
 * The tags found here are only hints. So it does not matter which of them were seen before which
 * bulk check. */
static struct search slot_search(const struct stint_limiter *limiter, uint64_t hash, uint64_t tag,
                                 tick_t now) {
    const struct table *table = &limiter->table;
    /* What is ahead by the allowance at most is live by any window. bulk_window was raised before a
     * longer window could be opened (M12). */
    const bool beyond = latest_beyond(limiter, now);
    const tick_t longest = beyond ? 1 : (tick_t)atomic_load_relaxed(&limiter->header->bulk_window);
    const struct slot_pattern plain = plainly_live(table, tag, longest, now);
    /* Most searches end in the home line, unless the table is full. */
    const uint32_t i = sequence_all_match(table, hash, 0, &plain);

    atomic_fence_acquire(); /* M8: latest_begin is loaded again after the checks */
    if (i == table->probe_lines)
        return (struct search){NULL, i};
    struct line *line = sequence_line(table, hash, i);
    struct slot *slot = line_find(line, tag);
    if (slot != NULL)
        return (struct search){slot, i};
    struct search rest = {0};
    if (line_match(line, 0) == 0) /* I5 */
        rest = stint_find_tag(table, hash, tag, i + 1, sequence_reach(table, hash));
    return rest.slot != NULL ? rest : (struct search){NULL, i};
}

static struct seen seen_of(const struct search *search, uint64_t tag) {
    struct slot *slot = search->slot;
    uint32_t number = (uint32_t)((uintptr_t)slot % sizeof(struct line) / sizeof(*slot));
    return (struct seen){.slot = slot, .tag = tag, .position = search->line * LINE_SLOTS + number};
}

/* Looks in the sequence, from a line on, for a slot that the key may claim. */
static bool find_free(struct decision *decision, uint32_t line, enum when when, struct seen *seen) {
    const struct table *table = &decision->limiter->table;
    const uint32_t end = sequence_length(table);

    over_set(decision, when);
    for (uint32_t i = line * LINE_SLOTS; /* the tag (M15), then the state (M9) */
         (i = next_not_live(decision, i, tick_of(decision->now))) < end; i++) {
        struct slot *slot = sequence_slot(table, decision->hash, i);
        *seen = (struct seen){.slot = slot, .position = i};
        seen->tag = atomic_load_acquire(&slot->tag);     /* M15 */
        seen->state = atomic_load_acquire(&slot->state); /* M9; 0 with tag 0, but of nonsense */
        if (seen->tag == 0 || slot_reusable(decision, seen, when))
            return true;
    }
    return false;
}

enum found stint_slot_find(struct decision *decision, struct seen *seen) {
    const struct table *table = &decision->limiter->table;
    const tick_t tick = tick_of(decision->now);
    struct search search = slot_search(decision->limiter, decision->hash, decision->tag, tick);

    if (search.slot != NULL) {
        *seen = seen_of(&search, decision->tag);
        return FOUND;
    }
    /* Loaded after the bulk checks (M8): this thread may have slept in between. */
    if (UNLIKELY(GUARD(LATEST_AGAIN, latest_beyond(decision->limiter, tick)))) {
        if (latest_recover(decision))
            return stint_slot_find(decision, seen);
        search.line = 0; /* look slot by slot at what was checked in bulk, too */
    }
    /* An early now may be past the end of windows that the clock is not past; a late now may have
     * moved. */
    if (find_free(decision, search.line, ON_TIME, seen) ||
        (UNLIKELY(GUARD(FULL_EARLY, tick_of(decision->now) > tick_of(decision->over))) &&
         find_free(decision, search.line, EARLY, seen))) {
        /* Look again, as far as this slot: it is a while since that search. Another thread's claim
         * for the key is likely to be in a slot before this one. Two claims of a key would use up a
         * slot until the next tick. */
        search = stint_find_tag(table, decision->hash, decision->tag, 0,
                                seen->position / LINE_SLOTS + 1);
        if (search.slot == NULL)
            return ABSENT;
        *seen = seen_of(&search, decision->tag);
        return FOUND;
    }
    return FULL;
}

bool stint_find_committed(const struct table *table, uint64_t hash, uint64_t tag,
                          struct seen *seen) {
    struct line *line = home_of(table, hash), *const end = shard_end(table, hash);

    for (uint32_t i = 0, n = sequence_reach(table, hash) * LINE_SLOTS; i < n; i++) {
        if (i != 0 && i % LINE_SLOTS == 0)
            line = line_after(table, line, end);
        struct slot *slot = &line->slots[i % LINE_SLOTS];
        uint64_t has = atomic_load_acquire(&slot->tag); /* I5 */
        if (has == 0)
            return false;
        if (has != tag)
            continue;
        uint64_t state = atomic_load_acquire(&slot->state); /* M1 */
        if (!GUARD(REFUND_TAG, atomic_load_acquire(&slot->tag) != tag) && !state_pending(state)) {
            *seen = (struct seen){.slot = slot, .tag = tag, .state = state, .position = i};
            return true;
        }
    }
    return false;
}
