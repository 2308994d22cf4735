/* SPDX-License-Identifier: MIT
 * One token by one atomic add, which is faster than a swap: by a policy that is hot (policy.c,
 * policy_heat), in the window of its hint, of a key whose slot is near and has room. Price: B1, B2.
 *
 * It is the core's steps (core.h) with all known beforehand. With -Dfast=false it takes nothing,
 * and the core decides all: the answers are the same. */
#ifndef STINT_FAST_H
#define STINT_FAST_H

#include "core.h"
#include "map/search.h"

#ifdef STINT_SWAPS_ONLY /* -Dfast=false */
#define FAST(condition) (false && (condition))
#else
#define FAST(condition) LIKELY(condition)
#endif

struct hot {
    words_2 identity; /* of the policy */
    struct line *home;
    struct slot *slot;
    uint64_t tag;
    uint64_t capacity;
    uint64_t count; /* with the token, once it is charged */
    tick_t end;     /* of the window of now */
};

/* Whether now is in the window of a policy's hint, and one token of it may be added to any key.
 * (Without this way its hot window is 0: M12.) */
static ALWAYS_INLINE bool hot_window(const struct policy *policy, uint64_t now, struct hot *hot) {
    hot->end = (tick_t)atomic_load_relaxed(&policy->current_end); /* M16 */
    const uint64_t left = tick_ns(hot->end) - now;
    return FAST(!GUARD(TAKE_WINDOW, left == 0 || atomic_less(&policy->hot_window, left)));
}

/* The same, after hot_window has set hot->end, of keys without an override, by a policy that may
 * have some. That has a hot capacity, and no hot window. */
static ALWAYS_INLINE bool hot_unless_overridden(const struct policy *policy, uint64_t now,
                                                const struct hot *hot) {
    return FAST(atomic_load_relaxed(&policy->hot_capacity) != 0) && /* M12 */
           !hint_foreign(hot->end, atomic_load_relaxed(&policy->window), now);
}

/* The key's slot in its first two lines; NULL: it has none there. */
static ALWAYS_INLINE void hot_near(const struct stint_limiter *limiter, uint32_t policy_id,
                                   uint64_t key, struct hot *hot) {
    hot->tag = table_tag(&limiter->table, key, policy_id);
    hot->slot = slot_near_home(&limiter->table, key, hot->home, hot->tag);
}

/* What else is read of the policy, and whether the slot has room. `limit`: of the request, or 0. */
static ALWAYS_INLINE bool hot_room(const struct policy *policy, uint64_t limit, struct hot *hot) {
    uint64_t state;

    hot->capacity = limit != 0 ? own_capacity(EXACT_PLAIN, limit)
                               : atomic_load_relaxed(&policy->hot_capacity); /* M12 */
    hot->identity = policy_identity(policy);
    return slot_room(hot->slot, hot->tag, hot->end, hot->capacity, &state);
}

static ALWAYS_INLINE bool hot_add(const struct stint_limiter *limiter, struct hot *hot) {
    return LIKELY(token_add(limiter, hot->slot, hot->tag, hot->end, hot->capacity, &hot->count));
}

/* All but the capacity is constant, so the compiler folds what is computed from it. */
static ALWAYS_INLINE void hot_answer(struct stint_limiter *limiter, uint32_t policy_id,
                                     uint64_t now, const struct hot *hot,
                                     struct stint_verdict *verdict) {
    const struct decision decision = {
        .identity = hot->identity,
        .limiter = limiter,
        .policy = &limiter->policies[policy_id],
        .policy_id = policy_id,
        .now = now,
        .end = hot->end,
        .terms = {.traits = EXACT_PLAIN,
                  .cost = 1,
                  .capacity = hot->capacity,
                  .room = hot->capacity,
                  .unit = 1},
        .charge = {hot->count, hot->count, hot->count, 1, true, 1},
    };
    (void)decision_answer(&decision, verdict);
}

#endif
