/* SPDX-License-Identifier: MIT
 * The decision: read this file first. Every request goes the same way, from its key to its verdict:
 *
 *     key bytes -> hash   key.c                the caller did this: stint_key_of
 *     1  policy           decision_begin       slot.h: one or two lines hold all that is read of it
 *     2  window           window_of            slot.h: the policy's hint or the slot, or computed
 *     3  line             slot_near            slot.h: the home line, or the next: 4 tags at once
 *     4  judge            slot_look, judge     slot.h, charge.h: what becomes of the count
 *     5  charge           slot_charge          slot.h: one compare-and-swap of the slot
 *     6  verdict          decision_end         slot.h: the one writer
 *
 * decide_as() in decide.c is that text. Here are its three instances that are asked for most:
 *
 *     take          one token by a plain policy. One atomic add charges, because an overshoot of
 *                   one is harmless where every request is for one token
 *     take_tokens   a cost, a limit of the request's own, a policy that carries tokens over: one
 *                   swap charges
 *     the batch     take, with the lines of the next requests on their way
 *
 * What they are not for goes to the whole path (decide.c), and what finds no slot in the key's
 * first two lines to stint_slot_decide, the long way (stripes.c, settle.c). Striped policies are
 * stripes.c's, those with overrides filtered.c's, several requests as one decide_all.c's. */
#include "decide.h"
#include "filtered.h"
#include "settle.h"
#include "slot.h"
#include "stripes.h"

/* What the hot path has found so far. */
struct found {
    struct line *home;
    tick_t end; /* of the window of now */
    struct slot *slot;
};
static bool take(struct stint_limiter *limiter, uint32_t policy_id, stint_key key, uint64_t now,
                 struct stint_verdict *verdict);
static bool take_home(struct stint_limiter *limiter, uint32_t policy_id, stint_key key,
                      uint64_t now, struct stint_verdict *verdict, struct found found);
static bool take_next(struct stint_limiter *limiter, uint32_t policy_id, stint_key key,
                      uint64_t now, struct stint_verdict *verdict, tick_t end);
static bool take_other(struct stint_limiter *limiter, uint32_t policy_id, stint_key key,
                       uint64_t now, struct stint_verdict *verdict, const struct policy *policy);
static bool take_settled(struct stint_limiter *limiter, uint32_t policy_id, stint_key key,
                         uint64_t now, struct stint_verdict *verdict, const struct found *found);
static bool take_tokens(struct stint_limiter *limiter, const struct stint_request *request,
                        uint64_t now, struct stint_verdict *verdict, uint64_t word);
static bool take_cost(struct stint_limiter *limiter, uint32_t policy_id, stint_key key,
                      uint32_t cost, uint64_t now, struct stint_verdict *verdict);
static uint64_t now_fetching(const struct stint_limiter *limiter, const struct line *home,
                             uint64_t now);

/* ---- What callers call ----------------------------------------------------------------------- */

bool stint_take(struct stint_limiter *limiter, uint32_t policy, stint_key key, uint32_t cost,
                uint64_t now, struct stint_verdict *verdict) {
    if (LIKELY(cost == 1 && policy < limiter->deciding))
        return take(limiter, policy, key, now, verdict);
    return policy < limiter->deciding ? take_cost(limiter, policy, key, cost, now, verdict)
                                      : stint_decision_void(limiter, STINT_UNKNOWN_POLICY, verdict);
}

bool stint_decide(struct stint_limiter *limiter, const struct stint_request *request, uint64_t now,
                  struct stint_verdict *verdict) {
    if (LIKELY((request->flags | request->limit | request->reserved) == 0))
        return stint_take(limiter, request->policy, request->key, request->cost, now, verdict);
    if (UNLIKELY(request->policy >= limiter->deciding))
        return stint_decide_unknown(limiter, request, now, verdict);
    now = now_fetching(limiter, home_of(&limiter->table, request->key), now);
    if ((request->flags | request->reserved) != 0)
        return stint_decide_more(limiter, request, now, verdict);
    return take_tokens(limiter, request, now, verdict,
                       policy_traits(&limiter->policies[request->policy]));
}

size_t stint_decide_batch(struct stint_limiter *limiter, const struct stint_request *requests,
                          size_t n, uint64_t now, struct stint_verdict *verdicts) {
    const struct table *table = &limiter->table;
    uint32_t policy = UINT32_MAX;                 /* of the last request; none yet */
    const uint64_t none = 0, *hot_window = &none; /* that policy's */
    uint64_t left = UINT64_MAX;                   /* of its window of now, ns */
    struct found found = {0};
    struct line *homes[AHEAD];
    size_t allowed = 0;

    /* All home lines first: each is needed, and together with the next ones they are more misses
     * than a core keeps under way. */
    for (size_t i = 0; i < n && i < AHEAD; i++)
        __builtin_prefetch(homes[i] = home_of(table, requests[i].key));
    for (size_t i = 0; i < n && i < AHEAD; i++)
        fetch_next(homes[i]);
    if (now == STINT_NOW)
        now = limiter_now(limiter);
    for (size_t i = 0; i < n; i++) {
        const struct stint_request *request = &requests[i];
        struct stint_verdict *verdict = verdicts == NULL ? NULL : &verdicts[i];
        found.home = homes[i % AHEAD];
        if (i + AHEAD < n)
            homes[i % AHEAD] = fetch_lines(table, request[AHEAD].key);
        /* Requests by one policy after the other find its window once. Each asks whether the hot
         * path is for it: it may have come to have overrides. */
        if (UNLIKELY(request->policy != policy)) {
            policy = request->policy;
            hot_window = &none;
            if (LIKELY(policy < limiter->deciding)) {
                hot_window = &limiter->policies[policy].hot_window;
                /* I7. As in window_hot, in two steps. */
                found.end = (tick_t)atomic_load_relaxed(&limiter->policies[policy].current_end);
                left = tick_ns(found.end) - now;
                left = left != 0 ? left : UINT64_MAX;
            }
        }
        if (LIKELY(!atomic_less(hot_window, left)) && /* M10 */
            LIKELY((request->flags | request->limit | request->reserved) == 0 &&
                   request->cost == 1))
            allowed += take_home(limiter, policy, request->key, now, verdict, found);
        else
            allowed += stint_decide(limiter, request, now, verdict);
    }
    return allowed;
}

/* ---- One token by a plain policy ------------------------------------------------------------- */

/* Steps 4 to 6: the key's tag was seen in the slot. */
static ALWAYS_INLINE bool take_in(struct stint_limiter *limiter, uint32_t policy_id, stint_key key,
                                  uint64_t now, struct stint_verdict *verdict, struct found found) {
    const uint64_t capacity =
        atomic_load_relaxed(&limiter->policies[policy_id].hot_capacity); /* M10 */
    const uint64_t window = state_of(found.end, 0);
    const uint64_t tag = table_tag(&limiter->table, key, policy_id);

    /* A state of this window, neither pending nor refused, is `used` when its window is subtracted;
     * any other is far more than a limit. */
    uint64_t state = atomic_load_acquire(&found.slot->state); /* M1: then the tag again (M2) */
    if (UNLIKELY(GUARD(TAKE_ROOM, state - window >= capacity)) ||
        UNLIKELY(GUARD(TAKE_TAG, atomic_differs(&found.slot->tag, tag)))) {
        const struct found left = {found.home, found.end, found.slot};
        return take_settled(limiter, policy_id, key, now, verdict, &left);
    }
    INSTANT(INSTANT_LOADED);
    uint64_t added = atomic_fetch_add_seq(&found.slot->state, 1); /* M2, M3 */
    uint64_t used = added - window + 1;
    if (UNLIKELY(GUARD(TAKE_ADDED, used - 1 >= capacity))) {
        const struct stint_request request = {.key = key, .policy = policy_id, .cost = 1};
        const struct added overshot = {found.slot, window, added, capacity};
        return stint_slot_decide_added(limiter, &request, now, verdict, &overshot);
    }
    struct decision decision = plain_decision(limiter, policy_id, now, found.end, capacity);
    decision.charge = (struct charge){used, used, used, 1, true};
    return decision_end(&decision, verdict);
}

/* Step 2: whether the hot path is for a policy, and its hint is of the window of now, which ends at
 * `end`. */
static ALWAYS_INLINE bool window_hot(const struct policy *policy, uint64_t now, tick_t *end) {
    *end = (tick_t)atomic_load_relaxed(&policy->current_end); /* I7 */
    /* end > now >= end - window, or the hint is of another window, or of no hot policy (M10). */
    uint64_t left = tick_ns(*end) - now;
    return LIKELY(!GUARD(TAKE_WINDOW, left == 0 || atomic_less(&policy->hot_window, left)));
}

/* Likewise, by a policy that is hot but for its overrides: without a window. */
static ALWAYS_INLINE bool window_filtered(const struct policy *policy, uint64_t now, tick_t end) {
    return atomic_load_relaxed(&policy->hot_capacity) != 0 && /* M10 */
           !GUARD(HINT_WINDOW, tick_ns(end) - now - 1 >= policy->window);
}

/* Step 3. */
static ALWAYS_INLINE bool take_home(struct stint_limiter *limiter, uint32_t policy_id,
                                    stint_key key, uint64_t now, struct stint_verdict *verdict,
                                    struct found found) {
    found.slot = line_find(found.home, table_tag(&limiter->table, key, policy_id));
    if (UNLIKELY(found.slot == NULL))
        return take_next(limiter, policy_id, key, now, verdict, found.end);
    return take_in(limiter, policy_id, key, now, verdict, found);
}

/* The time of a decision. Where the clock has to be read, the key's line comes meanwhile. */
static ALWAYS_INLINE uint64_t now_fetching(const struct stint_limiter *limiter,
                                           const struct line *home, uint64_t now) {
    if (UNLIKELY(now != STINT_NOW))
        return now;
    __builtin_prefetch(home);
    return limiter_now(limiter);
}

static ALWAYS_INLINE bool take(struct stint_limiter *limiter, uint32_t policy_id, stint_key key,
                               uint64_t now, struct stint_verdict *verdict) {
    const struct policy *policy = &limiter->policies[policy_id];
    struct found found = {.home = home_of(&limiter->table, key)};

    now = now_fetching(limiter, found.home, now);
    if (UNLIKELY(!window_hot(policy, now, &found.end))) {
        if (!window_filtered(policy, now, found.end))
            return take_other(limiter, policy_id, key, now, verdict, policy);
        if (GUARD(OVERRIDE_SEEN, override_possible(&limiter->table, key)))
            return stint_take_filtered(limiter, policy_id, key, now, verdict, found.end);
    }
    return take_home(limiter, policy_id, key, now, verdict, found);
}

/* The key is not in its home line: it is new, or was displaced, as 1 in 25 is at a load of 50%. */
static NOINLINE bool take_next(struct stint_limiter *limiter, uint32_t policy_id, stint_key key,
                               uint64_t now, struct stint_verdict *verdict, tick_t end) {
    const struct table *table = &limiter->table;
    uint64_t tag = table_tag(table, key, policy_id);
    struct slot *slot = line_find(table_next(table, key, home_of(table, key)), tag);

    if (slot != NULL)
        return take_in(limiter, policy_id, key, now, verdict, (struct found){NULL, end, slot});
    const struct stint_request request = {.key = key, .policy = policy_id, .cost = 1};
    return stint_slot_decide(limiter, &request, now, verdict);
}

/* A fetch-add may not count: the slot is in another window, or full, or another key's by now. */
static NOINLINE bool take_settled(struct stint_limiter *limiter, uint32_t policy_id, stint_key key,
                                  uint64_t now, struct stint_verdict *verdict,
                                  const struct found *found) {
    const struct policy *policy = &limiter->policies[policy_id];
    uint64_t traits = policy_traits(policy);
    struct decision decision = plain_decision(limiter, policy_id, now, found->end, traits >> 32);
    struct sight sight;
    bool allowed;

    decision.tag = table_tag(&limiter->table, key, policy_id);
    if (LIKELY((traits & TRAIT_PLAIN) != 0) && /* M1 */
        LIKELY(slot_look(&decision, found->slot, atomic_load_acquire(&found->slot->state),
                         &sight) == LOOK_GOOD)) {
        decision.charge = judge(&decision.terms, sight.count, 0);
        if (LIKELY(slot_finish(&decision, &sight, verdict, &allowed)))
            return allowed;
    }
    return take_other(limiter, policy_id, key, now, verdict, policy);
}

/* ---- Tokens by a policy of one count --------------------------------------------------------- */

/* Any number of tokens, perhaps up to a limit of the request's own, by a policy that is plain or
 * carries tokens over: steps 1 to 6, in the window of its hint, as far as the tokens fit. One swap
 * charges, which compares the tag. All else leaves below, with a request that is built there, so
 * that the path keeps its registers. */
static ALWAYS_INLINE bool take_tokens(struct stint_limiter *limiter,
                                      const struct stint_request *request, uint64_t now,
                                      struct stint_verdict *verdict, uint64_t word) {
    const struct policy *policy = &limiter->policies[request->policy];
    const uint64_t cost = request->cost;
    const uint64_t capacity = request->limit != 0 ? request->limit : word >> 32;
    const uint32_t traits = (uint32_t)word;
    const tick_t end = (tick_t)atomic_load_relaxed(&policy->current_end); /* I7 */
    const bool known =
        traits == (TRAIT_EXISTS | TRAIT_PLAIN) || traits == (TRAIT_EXISTS | TRAIT_CARRIES);

    if (LIKELY(known) && LIKELY(cost - 1 < capacity) &&
        LIKELY(!GUARD(HINT_WINDOW, tick_ns(end) - now - 1 >= policy->window)) &&
        /* Else it is raised before such a limit counts (M10). */
        LIKELY(request->limit <= atomic_load_relaxed(&policy->largest))) {
        const uint64_t tag = table_tag(&limiter->table, request->key, request->policy);
        struct line *home = home_of(&limiter->table, request->key);
        struct slot *slot = slot_near_home(&limiter->table, request->key, home, tag);
        if (LIKELY(slot != NULL)) {
            const uint64_t state = atomic_load_acquire(&slot->state); /* the swap confirms it: M2 */
            const uint64_t used = state - state_of(end, 0) + cost;
            if (LIKELY(!GUARD(TAKE_ROOM, used - cost > capacity - cost)) &&
                LIKELY(slot_swap(slot, tag, state, state + cost))) {
                struct decision decision =
                    plain_decision(limiter, request->policy, now, end, capacity);
                decision.charge = (struct charge){used, used, used, request->cost, true};
                return decision_end(&decision, verdict);
            }
        }
    }
    const struct stint_request same = {.key = request->key,
                                       .policy = request->policy,
                                       .cost = request->cost,
                                       .limit = request->limit};
    return (traits & TRAITS_APART) != 0 ? stint_decide_apart(limiter, &same, now, verdict)
                                        : stint_decide_policy(limiter, &same, now, verdict);
}

/* One token by a policy that is not apart, which the hot path is not for, or whose hint is of
 * another window. */
static NOINLINE bool take_one(struct stint_limiter *limiter, uint32_t policy_id, stint_key key,
                              uint64_t now, struct stint_verdict *verdict, uint64_t word) {
    const struct stint_request request = {.key = key, .policy = policy_id, .cost = 1};
    return take_tokens(limiter, &request, now, verdict, word);
}

/* Likewise, by any such policy. All arguments stay in their registers. */
static NOINLINE bool take_other(struct stint_limiter *limiter, uint32_t policy_id, stint_key key,
                                uint64_t now, struct stint_verdict *verdict,
                                const struct policy *policy) {
    const uint64_t word = policy_traits(policy);
    if ((word & TRAITS_APART) == 0)
        return take_one(limiter, policy_id, key, now, verdict, word);
    return traits_striped((uint32_t)word)
               ? stint_stripe_take(limiter, policy_id, key, now, verdict, word)
               : stint_take_overrides(limiter, policy_id, key, now, verdict);
}

static NOINLINE bool take_cost(struct stint_limiter *limiter, uint32_t policy_id, stint_key key,
                               uint32_t cost, uint64_t now, struct stint_verdict *verdict) {
    const struct stint_request request = {.key = key, .policy = policy_id, .cost = cost};
    now = now_fetching(limiter, home_of(&limiter->table, key), now);
    const uint64_t word = policy_traits(&limiter->policies[policy_id]);
    if (traits_striped((uint32_t)word))
        return stint_stripe_take_cost(limiter, policy_id, key, cost, now, verdict);
    return take_tokens(limiter, &request, now, verdict, word);
}
