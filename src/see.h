/* SPDX-License-Identifier: MIT
 * The commonest requests in three phases, which takes, stripes and groups share. See: it fits, in
 * the slot that its key has, in the window of now. Charge: by one add, or one swap. Answer. What a
 * see does not know, or what does not fit, is left to the ways that come after. */
#ifndef STINT_SEE_H
#define STINT_SEE_H

#include "decision.h"
#include "search.h"

/* What was seen of a request that fits. (Its fields are written one by one: zeros for the others
 * would cost 15 ns where it is in memory.) */
struct sight {
    struct slot *slot;
    uint64_t tag;
    uint64_t state; /* what a swap confirms (M2) */
    uint64_t next;  /* what a swap makes of it; 0: one token is added; see sight_empty, too */
    uint64_t count; /* with the tokens, once they are charged; of a bucket, ns */
    uint64_t capacity;
    uint64_t unit, reciprocal; /* of a bucket; else 0 */
    words_2 identity;
    tick_t end; /* of the window of now, but of no bucket */
    uint32_t cost;
    uint32_t special; /* KEY_OVERRIDDEN, or 0 */
};

/* ---- See ------------------------------------------------------------------------------------- */

/* Whether now is in the window of a policy's hint, which ends at `end`, and one token of it may be
 * added. (A policy without a hot way has a hot window of 0: M12.) */
static ALWAYS_INLINE bool window_hot(const struct policy *policy, uint64_t now, tick_t *end) {
    *end = (tick_t)atomic_load_relaxed(&policy->current_end); /* M16 */
    const uint64_t left = tick_ns(*end) - now;
    return LIKELY(!GUARD(TAKE_WINDOW, left == 0 || atomic_less(&policy->hot_window, left)));
}

/* One token by a plain policy: what is read of the policy. */
static ALWAYS_INLINE void see_one(const struct policy *policy, struct sight *sight) {
    sight->capacity = atomic_load_relaxed(&policy->hot_capacity); /* M12 */
    sight->identity = policy_identity(policy);
    sight->cost = 1;
    sight->next = 0;
    sight->unit = 0;
    sight->special = 0;
}

/* The same in its hot window. */
static ALWAYS_INLINE bool see_hot(const struct policy *policy, uint64_t now, struct sight *sight) {
    if (!window_hot(policy, now, &sight->end))
        return false;
    see_one(policy, sight);
    return true;
}

/* The slot of a key in its first two lines; NULL: it has none there. */
static ALWAYS_INLINE void see_near(const struct stint_limiter *limiter, uint32_t policy_id,
                                   uint64_t key, struct line *home, struct sight *sight) {
    sight->tag = table_tag(&limiter->table, key, policy_id);
    sight->slot = slot_near_home(&limiter->table, key, home, sight->tag);
}

/* Whether the slot that was found shows room for one token. */
static ALWAYS_INLINE bool see_found(const struct sight *sight) {
    uint64_t state;
    return slot_room(sight->slot, sight->tag, sight->end, sight->capacity, &state);
}

/* The same, wherever the slot is. */
static ALWAYS_INLINE bool see_room(const struct stint_limiter *limiter, uint32_t policy_id,
                                   uint64_t key, struct sight *sight) {
    sight->tag = table_tag(&limiter->table, key, policy_id);
    sight->slot = slot_of(&limiter->table, key, sight->tag);
    return LIKELY(sight->slot != NULL) && see_found(sight);
}

/* 1 or more tokens, by a policy that is plain or carries tokens over: in the window of its hint.
 * sight->capacity is there: the policy's, the request's own, or the override's. */
static ALWAYS_INLINE bool see_tokens(const struct stint_limiter *limiter, uint32_t policy_id,
                                     uint64_t key, uint32_t cost, uint64_t now,
                                     struct sight *sight) {
    const struct policy *policy = &limiter->policies[policy_id];
    const uint64_t capacity = sight->capacity;
    const tick_t end = (tick_t)atomic_load_relaxed(&policy->current_end); /* M16 */
    const uint64_t tag = table_tag(&limiter->table, key, policy_id);
    const words_2 identity = policy_identity(policy);

    if (UNLIKELY((uint64_t)cost - 1 >= capacity) || UNLIKELY(capacity > STINT_LIMIT_MAX) ||
        UNLIKELY(GUARD(HINT_WINDOW, tick_ns(end) - now - 1 >= policy->window)))
        return false;
    struct slot *slot = slot_near(&limiter->table, key, tag);
    uint64_t state, used;
    if (UNLIKELY(slot == NULL) || !slot_fits(slot, end, cost, capacity, &state, &used))
        return false;
    sight->slot = slot;
    sight->tag = tag;
    sight->state = state;
    sight->next = state + cost;
    sight->count = used;
    sight->identity = identity;
    sight->end = end;
    sight->cost = cost;
    sight->unit = 0;
    sight->special = 0;
    return true;
}

/* Whether a bucket was seen empty, and its slot marked as refused: nothing is to be written. */
static ALWAYS_INLINE bool sight_empty(const struct sight *sight) {
    return sight->next == sight->state;
}

/* 1 or more tokens of a bucket that does nothing else. In a slot without a mark they must fit; in
 * one that is marked as refused they must not (sight_empty). */
static ALWAYS_INLINE bool see_bucket(const struct stint_limiter *limiter, uint32_t policy_id,
                                     uint64_t key, uint32_t cost, uint64_t now,
                                     struct sight *sight) {
    const uint64_t tag = table_tag(&limiter->table, key, policy_id);
    const tick_t tick = tick_of(now);
    const words_2 identity = policy_identity(&limiter->policies[policy_id]);
    struct bucket bucket;

    struct slot *slot = slot_near(&limiter->table, key, tag);
    if (UNLIKELY(
            !limiter_bucket_load(limiter, policy_id, TRAIT_EXISTS | RULE_BUCKET, false, &bucket)) ||
        UNLIKELY(slot == NULL))
        return false;
    const uint64_t state = atomic_load_acquire(&slot->state); /* M1; what is done confirms it: M2 */
    if (UNLIKELY(!limiter_knows_now(limiter, tick)) || UNLIKELY(cost - 1 >= bucket.burst))
        return false;
    const uint64_t taken = cost * bucket.unit, room = bucket.burst * bucket.unit;
    sight->slot = slot;
    sight->tag = tag;
    sight->state = state;
    sight->capacity = bucket.burst;
    sight->unit = bucket.unit;
    sight->reciprocal = bucket.reciprocal;
    sight->identity = identity;
    sight->cost = cost;
    sight->special = 0;
    sight->count = bucket_count(end_of(state_id(state), tick), state_used(state), now);
    sight->next = state;
    if (UNLIKELY((state & (STATE_PENDING | STATE_REFUSED)) != 0))
        /* Else it fits, or is ahead: this thread is late, or the clock was stepped back. */
        return (state & STATE_PENDING) == 0 && room - sight->count < taken;
    sight->count += taken;
    sight->next = bucket_state(now + sight->count);
    return LIKELY(!GUARD(TAKE_ROOM, sight->count > room));
}

/* Whether a policy may have overrides, and is hot for keys without one. It has a hot capacity, and
 * no hot window. */
static ALWAYS_INLINE bool window_ruled(const struct policy *policy, uint64_t now, tick_t end) {
    return atomic_load_relaxed(&policy->hot_capacity) != 0 && /* M12 */
           !GUARD(HINT_WINDOW, tick_ns(end) - now - 1 >= atomic_load_relaxed(&policy->window));
}

/* The override of a key that may have one, which is mostly in its home line: the state of its slot;
 * 0: there is none. Fast case, without a division: the override ends after this window, which ends
 * at `end`, and within its longest length. */
static ALWAYS_INLINE uint64_t override_of(const struct stint_limiter *limiter, uint32_t policy_id,
                                          uint64_t hash, uint64_t now, tick_t end) {
    /* Plus one, as a tag has it. M15 */
    const uint64_t companion = atomic_load_relaxed_32(&limiter->records[policy_id].companion);
    const uint64_t tag = hash * limiter->table.tag_unit + companion;
    const struct slot *slot = line_find(home_of(&limiter->table, hash), tag);

    if (LIKELY(slot != NULL)) {
        const uint64_t state = override_in(slot, tag);
        const uint64_t later = (state_id(state) - id_of(end)) & ID_MASK;
        if (LIKELY((state & (STATE_REFUSED | OVERRIDE_ENDLESS)) == STATE_REFUSED) &&
            LIKELY(later <= COMPANION_LENGTH - (uint64_t)limiter->policies[policy_id].length))
            return state;
    }
    return stint_override_find(limiter, policy_id, hash, now);
}

/* One token by a policy that window_ruled is true of. One swap charges, as the limit is the
 * key's. */
static ALWAYS_INLINE bool see_ruled(const struct stint_limiter *limiter, uint32_t policy_id,
                                    uint64_t key, uint64_t now, struct sight *sight) {
    const struct policy *policy = &limiter->policies[policy_id];
    const tick_t end = (tick_t)atomic_load_relaxed(&policy->current_end); /* M16 */
    const uint64_t hot = atomic_load_relaxed(&policy->hot_capacity);      /* M12 */

    if (!window_ruled(policy, now, end))
        return false;
    const uint64_t override = override_of(limiter, policy_id, key, now, end);
    sight->capacity = LIKELY(override != 0) ? override_limit(override) : hot;
    /* Not a key that is never refused, or always. */
    if (UNLIKELY(sight->capacity - 1 >= STINT_LIMIT_MAX - 1) ||
        !see_tokens(limiter, policy_id, key, 1, now, sight))
        return false;
    sight->special = override != 0 ? KEY_OVERRIDDEN : 0;
    return true;
}

/* ---- Charge ---------------------------------------------------------------------------------- */

/* Adds one token where room was seen. */
static ALWAYS_INLINE bool sight_add(const struct stint_limiter *limiter, struct sight *sight) {
    return LIKELY(
        slot_add(limiter, sight->slot, sight->tag, sight->end, sight->capacity, &sight->count));
}

static ALWAYS_INLINE bool sight_swap(const struct sight *sight) {
    HOLDS(I1, sight->unit != 0 || state_same_window(sight->state, sight->next));
    HOLDS(A, sight->count <= sight->capacity * (sight->unit != 0 ? sight->unit : 1));
    return LIKELY(slot_swap(sight->slot, sight->tag, sight->state, sight->next));
}

/* ---- Answer ---------------------------------------------------------------------------------- */

/* Of a window. */
static ALWAYS_INLINE enum answer sight_answer(struct stint_limiter *limiter, uint32_t policy_id,
                                              const struct sight *sight, uint64_t now,
                                              struct stint_verdict *verdict) {
    struct decision decision =
        plain_decision(limiter, policy_id, sight->identity, now, sight->end, sight->capacity);
    decision.terms.special = sight->special & KEY_OVERRIDDEN; /* so tests of other bits fold */
    return taken_end(&decision, sight->count, sight->cost, verdict);
}

/* Of a bucket. `fits` is constant. */
static ALWAYS_INLINE enum answer sight_answer_bucket(struct stint_limiter *limiter,
                                                     uint32_t policy_id, const struct sight *sight,
                                                     bool fits, uint64_t now,
                                                     struct stint_verdict *verdict) {
    struct decision decision = {
        .limiter = limiter,
        .policy = &limiter->policies[policy_id],
        .policy_id = policy_id,
        .identity = sight->identity,
        .now = now,
        .terms = {.traits = TRAIT_EXISTS | RULE_BUCKET,
                  .reciprocal = sight->reciprocal,
                  .unit = sight->unit,
                  .cost = sight->cost,
                  .capacity = sight->capacity,
                  .room = sight->capacity},
    };
    const uint64_t used = bucket_tokens(&decision.terms, sight->count);
    decision.charge = (struct charge){sight->count, used, used, fits ? sight->cost : 0, fits};
    (void)decision_end(&decision, verdict);
    return fits ? ALLOWED : REFUSED;
}

/* Refuses by an empty bucket, as no later time fills it (stint_bucket_later). */
static ALWAYS_INLINE enum answer sight_refuse_bucket(struct stint_limiter *limiter,
                                                     uint32_t policy_id, const struct sight *sight,
                                                     uint64_t key, uint64_t now,
                                                     struct stint_verdict *verdict) {
    const uint64_t late = stint_bucket_later(limiter, key, now) - now;
    const uint64_t room = (sight->capacity - sight->cost) * sight->unit;

    if (UNLIKELY(sight->count <= late + room) ||
        UNLIKELY(GUARD(FOUND_TAG, atomic_load_acquire(&sight->slot->tag) != sight->tag)) || /* M1 */
        UNLIKELY(!slot_unchanged(sight->slot, sight->state, RULE_BUCKET)))
        return NEXT;
    return sight_answer_bucket(limiter, policy_id, sight, false, now, verdict);
}

#endif
