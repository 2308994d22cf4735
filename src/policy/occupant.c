/* SPDX-License-Identifier: MIT
 * The occupants of slots: which can be taken over, and by whom. Read slot.h first. */
#include "policy/occupant.h"

bool stint_bucket_rule(const struct stint_limiter *limiter, uint32_t id, struct bucket *bucket) {
    for (;;) {
        const uint32_t traits = (uint32_t)policy_word(&limiter->policies[id]);
        if ((traits & RULE_BUCKET) == 0)
            return false;
        if (limiter_bucket_load(limiter, id, traits, true, bucket))
            return true;
    }
}

uint64_t stint_bucket_used(const struct stint_limiter *limiter, const struct policy *policy,
                           uint64_t state, uint64_t now) {
    struct terms terms = {0};
    struct bucket bucket;

    if (!stint_bucket_rule(limiter, (uint32_t)(policy - limiter->policies), &bucket))
        return 0; /* it is gone */
    bucket_terms(&terms, &bucket, 0);
    return bucket_tokens(
        &terms, bucket_count(end_of(state_id(state), tick_of(now)), bucket_ns(state), now));
}

bool stint_mark_passed(const struct stint_limiter *limiter, uint32_t policy_id, uint64_t from,
                       uint64_t to) {
    const uint64_t version = atomic_load_acquire(&limiter->policies[policy_id].version); /* M15 */
    return from != to && mark_passed(from, to, limiter_bucket_window(limiter, policy_id, version));
}

uint64_t stint_bucket_later(const struct stint_limiter *limiter, uint64_t hash, uint64_t now) {
    const uint64_t *watermark = &table_shard_of(&limiter->table, hash)->watermark;
    const uint64_t times[3] = {limiter_now(limiter),
                               /* M8: of the claim whose slot was seen. */
                               tick_ns((tick_t)atomic_load_relaxed(watermark)),
                               stint_limiter_latest_now(limiter, now)};
    uint64_t late = 0;

    for (uint32_t i = 0; i < 3; i++)
        if (GUARD(BUCKET_AGAIN, times[i] > now + late && times[i] - now <= ALLOWANCE_NS))
            late = times[i] - now;
    return now + late;
}

/* A fetch-add may have met
 *   - the window that was seen, without room: the token is the key's, and is taken back;
 *   - a claim, as the slot changed meanwhile: the commit drops the token;
 *   - another window. If that is the key's next one, the token is taken back from it. Else it is
 *     another key's, and is left to it until its window ends: the exception of promise B.
 * The swap tells whose it is: it succeeds only if the slot has the key's tag and the end that was
 * added to, so it was the key's when it was added to (I1). That does not hold if an end fell and
 * came again (shard_end_falls), which is asked after the state was loaded (M8). In the window that
 * was seen the tag tells, unless the policy is back (policy.c, stint_policy_make). A key that was
 * reset meanwhile may have nothing left to take back, or another's token (A). */
void stint_token_back(const struct stint_limiter *limiter, struct slot *slot, uint64_t tag,
                      tick_t end, uint64_t used) {
    const uint64_t added = used + state_of(end, 0) - 1;
    const bool seen = state_same_window(added, state_of(end, 0));
    const struct shard *shard = table_shard_at(&limiter->table, slot);
    /* Not 0: the policy's id was used again, and its slots have lost their counts. */
    const uint32_t *again = &limiter->records[tag_policy(&limiter->table, tag)].generation;

    if (state_pending(added) || !GUARDED(BACK))
        return;
    for (;;) {
        const uint64_t state = atomic_load_acquire(&slot->state); /* M1 */
        if (GUARD(BACK_TAG, atomic_load_acquire(&slot->tag) != tag) ||
            GUARD(BACK_WINDOW, !state_same_window(state, added)) ||
            /* M15: it was written before the version by which the loaded state was. */
            ((!seen || atomic_load_relaxed_32(again) != 0) &&
             GUARD(BACK_FALLEN, shard_end_fell(shard, end_of(state_id(added), end)))))
            break;
        if (GUARD(BACK_ZERO, state_used(state) == 0) || slot_swap(slot, tag, state, state - 1))
            return;
    }
    if (!seen)
        limiter_count_table(limiter, COUNT_STRAY);
}

bool stint_slot_live(const struct stint_limiter *limiter, uint64_t tag, uint64_t state,
                     tick_t now) {
    if (tag == 0 || tag == table_tombstone(&limiter->table) || state_pending(state))
        return false;
    const struct policy *policy = limiter_tag_policy(limiter, tag);
    const tick_t ahead = slot_end(limiter, policy, state, now) - now;
    if (policy != NULL && ahead > 0 && ahead - ALLOWANCE_TICKS <= policy_reach(policy))
        return !slot_lifted(policy, state);
    return slot_carries(policy, state, now);
}

tick_t stint_clock_read(const struct stint_limiter *limiter, uint64_t *now) {
    const uint64_t clock = limiter_now(limiter);
    if (tick_of(clock) > tick_of(*now))
        *now = clock;
    return tick_of(clock);
}

/* A slot whose end is ahead of now by more than its policy's window and the allowance is met by a
 * late thread, or was written before the clock stepped back. The clock, read after the slot was
 * loaded, tells. If the slot is too far ahead of that, too, no thread can have written it by the
 * clock as it is, and it counts as over. (What that means for I1, A and B: slot.h.) */
bool stint_beyond_clock(const struct stint_limiter *limiter, uint64_t *now, uint64_t id,
                        tick_t length) {
    const tick_t tick = tick_of(*now);
    if (LIKELY(end_of(id, tick) - tick - ALLOWANCE_TICKS <= length))
        return false;
    const tick_t clock = stint_clock_read(limiter, now);
    return end_of(id, clock) - clock - ALLOWANCE_TICKS > length;
}

/* A caller's now may be early, and another process' clock behind, by the allowance each. So a slot
 * is over by seat->over, the earlier of now and the clock; in a table that would be full then, by
 * an early now, too. An override, a ban or a strike is over when it is so by all clocks. */
enum when { ON_TIME, EARLY };

/* Whether a used slot can be taken over: its key is judged the same without it. */
static bool slot_reusable(struct seat *seat, struct seen *seen, enum when when) {
    const struct stint_limiter *limiter = seat->limiter;
    bool key = seen->tag != table_tombstone(&limiter->table) && !state_pending(seen->state);
    const struct policy *policy = key ? limiter_tag_policy(limiter, seen->tag) : NULL;
    const tick_t over = tick_of(seat->over), end = slot_end(limiter, policy, seen->state, over);

    if (end <= over) {
        const bool told = policy != NULL && override_says(policy, seen->state);
        const tick_t before = (when == EARLY ? 2 : 1) * ALLOWANCE_TICKS;
        if (GUARD(REUSE_OVERRIDE, told && end > over - before))
            return false;
        return policy == NULL || !GUARD(REUSE_CARRIES, slot_carries(policy, seen->state, over));
    }
    /* A claim is ahead by a tick at most, and so is a companion's slot that was lifted. */
    const bool counts = policy != NULL && !slot_lifted(policy, seen->state);
    seen->stepped = stint_beyond_clock(limiter, &seat->now, state_id(seen->state),
                                       counts ? policy_reach(policy) : 1);
    /* It may owe tokens for longer than 497 days. */
    return seen->stepped && !(policy != NULL && slot_carries(policy, seen->state, over));
}

/* The first slot of the sequence, from number `position` on, that is not plainly live; behind the
 * last one if there is none. A slot is plainly live if slot_reusable would find it live by its
 * policy's window alone, as nearly all of a full table are. Lines of one policy are seen whole. */
static uint32_t next_not_live(const struct seat *seat, uint32_t position) {
    const struct table *table = &seat->limiter->table;
    const struct policy *policies = seat->limiter->policies;
    const uint64_t max_policies = seat->limiter->max_policies;
    const uint64_t policy_mask = table_tombstone(table) - 1;
    const uint64_t next = state_of(tick_of(seat->now) + 1, 0);
    const uint32_t length = sequence_length(table);
    struct line *line = sequence_line(table, seat->hash, position / LINE_SLOTS);
    struct line *const end = shard_end(table, seat->hash);

    if (position < length && position % LINE_SLOTS == 0) {
        const uint64_t tag = atomic_load_acquire(&line->slots[0].tag); /* M15 */
        const uint64_t policy = (tag & policy_mask) - 1;
        const bool known = policy < max_policies;
        struct slot_pattern live = live_others(table, seat->tag, tick_of(seat->now),
                                               known ? policy_reach(&policies[policy]) : 0);
        live.flip[0] = (uint32_t)policy + 1;
        live.below[0] = known;
        const uint32_t lines = sequence_all_match(table, seat->hash, position / LINE_SLOTS, &live);
        position = lines * LINE_SLOTS;
        line = sequence_line(table, seat->hash, lines);
    }
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

/* Looks, from a line on, for a slot that the key may claim. */
static bool find_free(struct seat *seat, uint32_t line, enum when when, struct seen *seen) {
    const struct table *table = &seat->limiter->table;
    const uint64_t most = limiter_now(seat->limiter) + (when == EARLY ? ALLOWANCE_NS : 0);
    const uint32_t end = sequence_length(table);

    seat->over = seat->now < most ? seat->now : most;
    for (uint32_t i = line * LINE_SLOTS; /* the tag (M15), then the state (M9) */
         (i = next_not_live(seat, i)) < end; i++) {
        *seen =
            slot_load(sequence_slot(table, seat->hash, i), i); /* 0 with tag 0, but of nonsense */
        if (seen->tag == 0 || slot_reusable(seat, seen, when))
            return true;
    }
    return false;
}

enum found stint_slot_find(struct seat *seat, struct seen *seen) {
    const struct table *table = &seat->limiter->table;
    const uint64_t hash = seat->hash, tag = seat->tag;
    struct search search = stint_search(table, hash, tag, tick_of(seat->now));

    if (search.slot == NULL) {
        /* An early now may be past windows that the clock is not past; a late one may move. */
        if (!find_free(seat, search.line, ON_TIME, seen) &&
            !(UNLIKELY(GUARD(FULL_EARLY, tick_of(seat->now) > tick_of(seat->over))) &&
              find_free(seat, search.line, EARLY, seen)))
            return FULL;
        /* Look again, as far as this slot: another thread's claim for the key is likely to be
         * before it by now. Two claims of a key would use up a slot until the next tick. */
        search = stint_find_tag(table, hash, tag, 0, seen->position / LINE_SLOTS + 1);
        if (search.slot == NULL)
            return ABSENT;
    }
    const uint32_t number =
        (uint32_t)((uintptr_t)search.slot % sizeof(struct line) / sizeof(struct slot));
    *seen = (struct seen){
        .slot = search.slot, .tag = tag, .position = search.line * LINE_SLOTS + number};
    return FOUND;
}

static bool claim_counted(const struct seat *seat, tick_t done, struct seen *seen) {
    const struct stint_limiter *limiter = seat->limiter;

    if (!stint_claim_slot(&limiter->table, seat->hash, seat->tag, tick_of(seat->over), done, seen))
        return false;
    if (UNLIKELY(seen->stepped))
        limiter_count_table(limiter, COUNT_CLOCK_STEP);
    limiter_count_table(limiter, COUNT_PLACED);
    return true;
}

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

bool stint_claim_free(const struct seat *seat, struct seen *seen) {
    const tick_t over = tick_of(seat->over);
    tick_t done = 0;

    INSTANT(INSTANT_ABSENT);
    if (seen->tag != 0) {
        const struct policy *policy = limiter_tag_policy(seat->limiter, seen->tag);
        done = slot_done(policy, seen->state, slot_end(seat->limiter, policy, seen->state, over));
        /* A step of the clock made it later than now, or another rule. */
        done = done < over ? done : over;
    }
    return claim_counted(seat, done, seen);
}

/* ---- A full table ---------------------------------------------------------------------------- */

static uint64_t slot_tokens(const struct stint_limiter *limiter, uint64_t tag, uint64_t state,
                            uint64_t now) {
    const struct policy *policy = limiter_tag_policy(limiter, tag);
    if (policy == NULL)
        return 0;
    uint64_t count = state_used(state);
    const uint64_t traits = policy_word(policy);
    if (UNLIKELY((traits & TRAIT_COMPANION) != 0))
        return UINT64_MAX; /* an override: it is never replaced */
    if (UNLIKELY(traits == 0))
        return 0; /* of a policy that is gone */
    if ((traits & RULE_BUCKET) != 0)
        return stint_bucket_used(limiter, policy, state, now);
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

enum least_used stint_claim_least(const struct seat *seat, struct seen *claim) {
    const struct table *table = &seat->limiter->table;
    /* Without policies of two counts a slot holds what it counts: few lines need a closer look. */
    bool counts = atomic_load_acquire(&seat->limiter->header->smooth) == 0; /* M12 */
    struct slot_pattern enough = used_at_least(table, seat->tag, UINT64_MAX);
    const tick_t over = tick_of(seat->over);
    uint64_t fewest = UINT64_MAX;

    atomic_fence_acquire(); /* M9 */
    for (uint32_t i = 0; i < table->probe_lines; i++) {
        if (counts)
            i = sequence_all_match(table, seat->hash, i, &enough);
        if (i == table->probe_lines)
            break;
        struct line *line = sequence_line(table, seat->hash, i);
        for (uint32_t j = 0; j < LINE_SLOTS; j++) {
            const struct seen seen = slot_load(&line->slots[j], i * LINE_SLOTS + j);
            if (GUARD(REPLACE_OWN, seen.tag == seat->tag))
                return LOST;
            if (seen.tag == 0 || GUARD(REPLACE_FREE, seen.tag == table_tombstone(table) ||
                                                         state_pending(seen.state)))
                continue;
            uint64_t tokens = slot_tokens(seat->limiter, seen.tag, seen.state, seat->now);
            if (tokens < fewest) {
                fewest = tokens;
                *claim = seen;
            }
        }
        enough = used_at_least(table, seat->tag, fewest);
    }
    if (fewest == UINT64_MAX)
        return NONE;
    shard_end_falls(table_shard_of(table, seat->hash), end_of(state_id(claim->state), over), over);
    return claim_counted(seat, 0, claim) ? LEAST : LOST;
}
