/* SPDX-License-Identifier: MIT
 * The search for a key, and for a slot that it may claim. Read slot.h first. */
#include "search.h"

tick_t stint_decision_read_clock(struct decision *decision) {
    uint64_t clock = limiter_now(decision->limiter);
    if (tick_of(clock) > tick_of(decision->now)) {
        decision->now = clock;
        decision->end = window_of(decision);
    }
    return tick_of(clock);
}

/* A slot whose end is ahead of now by more than its policy's window and the allowance is met by a
 * late thread, or was written before the clock stepped back. The clock, read after the slot was
 * loaded, tells. If the slot is too far ahead of that, too, no thread can have written it by the
 * clock as it is, and it counts as over. (What that means for I1, A and B: slot.h.) */
bool stint_beyond_clock(struct decision *decision, uint64_t id, tick_t length) {
    tick_t now = tick_of(decision->now);
    if (LIKELY(end_of(id, now) - now - ALLOWANCE_TICKS <= length))
        return false;
    tick_t clock = stint_decision_read_clock(decision);
    return end_of(id, clock) - clock - ALLOWANCE_TICKS > length;
}

struct far stint_look_far(const struct table *table, uint64_t hash, uint64_t tag) {
    const uint64_t unused = unused_near(table, hash);

    if (LIKELY(unused != 0))
        return (struct far){NULL, unused};
    return (struct far){
        stint_find_tag(table, hash, tag, UNUSED_LINES, sequence_reach(table, hash)).slot, 0};
}

/* A caller's now may be early, and another process' clock behind, by the allowance each. So a slot
 * is over by decision->over, the earlier of now and the clock; in a table that would be full then,
 * by an early now, too. An override, a ban or a strike is over when it is so by all clocks. */
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
    const tick_t over = tick_of(decision->over),
                 end = slot_end(decision->limiter, policy, seen->state, over);

    if (end <= over) {
        const bool told = policy != NULL && override_says(policy, seen->state);
        const tick_t before = (when == EARLY ? 2 : 1) * ALLOWANCE_TICKS;
        if (GUARD(REUSE_OVERRIDE, told && end > over - before))
            return false;
        return policy == NULL || !GUARD(REUSE_CARRIES, slot_carries(policy, seen->state, over));
    }
    /* A claim is ahead by a tick at most, and so is a companion's slot that was lifted. */
    const bool counts = policy != NULL && !slot_lifted(policy, seen->state);
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
            /* The id is in the top bits: one that is behind makes the difference more. */
            uint64_t most = ((uint64_t)policy_reach(&policies[policy]) + ALLOWANCE_TICKS)
                            << STATE_ID;
            if (UNLIKELY(state - next >= most))
                return position;
        } while (++position % LINE_SLOTS != 0);
        line = line_after(table, line, end);
    }
    return length;
}

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

/* The pattern of the slots of a line that are others' (others_of), and live by any window: ahead of
 * now by the allowance at most. The high half of a state has the id without its last bit. So the
 * range begins at the first even id behind that of now. */
static inline struct slot_pattern plainly_live(const struct table *table, uint64_t tag,
                                               tick_t now) {
    struct slot_pattern asked = others_of(table, tag);
    asked.base[1] = (uint32_t)(id_of(now) >> 1) + 1;
    asked.range[1] = (uint32_t)(ALLOWANCE_TICKS / 2);
    return asked;
}

/* Looks for the key's tag, and on the way sees for how many lines from home on all slots are live.
 *
 * A slot once seen live stays so at this now, whoever's it is (I1): it is as if all were seen when
 * the last one was. One bulk check of a line shows slots to be live, whatever their policies, that
 * end within the allowance. Longer ones are looked at one by one, by the policy of each
 * (next_not_live): a step of the clock may have left some that count as over although they end
 * later (stint_beyond_clock).
 *
 * The tags found here are only hints: which was seen before which bulk check does not matter. */
static struct search slot_search(const struct table *table, uint64_t hash, uint64_t tag,
                                 tick_t now) {
    const struct slot_pattern plain = plainly_live(table, tag, now);
    /* Most searches end in the home line, unless the table is full. */
    const uint32_t i = sequence_all_match(table, hash, 0, &plain);

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

/* Looks, from a line on, for a slot that the key may claim. */
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
    struct search search =
        slot_search(table, decision->hash, decision->tag, tick_of(decision->now));

    if (search.slot != NULL) {
        *seen = seen_of(&search, decision->tag);
        return FOUND;
    }
    /* An early now may be past windows that the clock is not past; a late now may have moved. */
    if (find_free(decision, search.line, ON_TIME, seen) ||
        (UNLIKELY(GUARD(FULL_EARLY, tick_of(decision->now) > tick_of(decision->over))) &&
         find_free(decision, search.line, EARLY, seen))) {
        /* Look again, as far as this slot: another thread's claim for the key is likely to be
         * before it by now. Two claims of a key would use up a slot until the next tick. */
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
