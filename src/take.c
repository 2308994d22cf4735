/* SPDX-License-Identifier: MIT
 * The decision: read this file first. Every request goes the same way, from its key to its verdict:
 *
 *     key bytes -> hash   key.c                the caller did this: stint_key_of
 *     1  policy           decision_begin       slot.h: one or two lines hold all that is read of it
 *     2  window           window_of            slot.h: the policy's hint, or the key's slot; else computed
 *     3  line             slot_near            slot.h: the home line, or the next: four tags at once
 *     4  judge            slot_look, judge     slot.h, charge.h: what becomes of the count
 *     5  charge           slot_charge          slot.h: one compare-and-swap of the slot
 *     6  verdict          decision_end         slot.h: the one writer
 *
 * decide() is that text. take() is what is left of it for one token by a plain policy: the same steps,
 * with all but the capacity constant, and one atomic add to charge, because an overshoot of one is
 * harmless where every request is for one token. What finds no slot in the key's first two lines, or
 * another window or claim in it than it should, leaves by one exit: stint_slot_decide, the long way (stripes.c, settle.c).
 * Striped policies are stripes.c's, several requests as one decide_all.c's. */
#include "settle.h"
#include "slot.h"
#include "stripes.h"

/* What the hot path has found so far. */
struct found {
    struct line *home;
    tick_t end; /* of the window of now */
    struct slot *slot;
    uint64_t added; /* what a fetch-add has returned */
};
static bool take(struct stint_limiter *limiter, uint32_t policy_id, stint_key key, uint64_t now,
                 struct stint_verdict *verdict);
static bool window_hot(const struct policy *policy, uint64_t now, tick_t *end);
static bool take_home(struct stint_limiter *limiter, uint32_t policy_id, stint_key key,
                      uint64_t now, struct stint_verdict *verdict, struct found found);
static bool take_next(struct stint_limiter *limiter, uint32_t policy_id, stint_key key,
                      uint64_t now, struct stint_verdict *verdict, tick_t end);
static bool take_carried(struct stint_limiter *limiter, uint32_t policy_id, stint_key key,
                         uint64_t now, struct stint_verdict *verdict);
static bool take_settled(struct stint_limiter *limiter, uint32_t policy_id, stint_key key,
                         uint64_t now, struct stint_verdict *verdict, const struct found *found);
static bool take_overshot(struct stint_limiter *limiter, uint32_t policy_id, stint_key key,
                          uint64_t now, struct stint_verdict *verdict, const struct found *found);
static bool decide(struct stint_limiter *limiter, const struct stint_request *request, uint64_t now,
                   struct stint_verdict *verdict);
static bool decide_tokens(struct stint_limiter *limiter, uint32_t policy_id, stint_key key,
                          uint32_t cost, uint64_t now, struct stint_verdict *verdict);

/* ---- What callers call --------------------------------------------------------------------------- */

bool stint_take(struct stint_limiter *limiter, uint32_t policy, stint_key key, uint32_t cost,
                uint64_t now, struct stint_verdict *verdict) {
    if (LIKELY(cost == 1 && policy < limiter->max_policies))
        return take(limiter, policy, key, now, verdict);
    return decide_tokens(limiter, policy, key, cost, now, verdict);
}

bool stint_decide(struct stint_limiter *limiter, const struct stint_request *request, uint64_t now,
                  struct stint_verdict *verdict) {
    if (LIKELY((request->flags | request->limit) == 0))
        return stint_take(limiter, request->policy, request->key, request->cost, now, verdict);
    return decide(limiter, request, now, verdict);
}

size_t stint_decide_batch(struct stint_limiter *limiter, const struct stint_request *requests,
                          size_t n, uint64_t now, struct stint_verdict *verdicts) {
    const struct table *table = &limiter->table;
    uint32_t policy = UINT32_MAX; /* of the last request; none yet */
    bool hot = false;             /* the hot path is for it, in the window of now */
    struct found found = {0};
    struct line *homes[AHEAD];
    size_t allowed = 0;

    /* All home lines first: each is needed, and together with the next ones they are more misses than a core
     * keeps under way. */
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
        /* Requests by one policy after the other find its window once. */
        if (UNLIKELY(request->policy != policy)) {
            policy = request->policy;
            hot = policy < limiter->max_policies &&
                  window_hot(&limiter->policies[policy], now, &found.end);
        }
        if (LIKELY(hot) && LIKELY((request->flags | request->limit) == 0 && request->cost == 1))
            allowed += take_home(limiter, policy, request->key, now, verdict, found);
        else
            allowed += stint_decide(limiter, request, now, verdict);
    }
    return allowed;
}

/* ---- One token by a plain policy ----------------------------------------------------------------- */

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
        const struct found left = {found.home, found.end, found.slot, 0};
        return take_settled(limiter, policy_id, key, now, verdict, &left);
    }
    INSTANT(INSTANT_LOADED);
    uint64_t added = atomic_fetch_add_seq(&found.slot->state, 1); /* M2, M3 */
    uint64_t used = added - window + 1;
    if (UNLIKELY(GUARD(TAKE_ADDED, used - 1 >= capacity))) {
        const struct found left = {found.home, found.end, found.slot, added};
        return take_overshot(limiter, policy_id, key, now, verdict, &left);
    }
    struct decision decision = plain_decision(limiter, policy_id, now, found.end, capacity);
    decision.charge = (struct charge){used, used, used, 1, true};
    return decision_end(&decision, verdict);
}

/* Step 2: whether the hot path is for a policy, and its hint is of the window of now, which ends at `end`. */
static ALWAYS_INLINE bool window_hot(const struct policy *policy, uint64_t now, tick_t *end) {
    *end = (tick_t)atomic_load_relaxed(&policy->current_end); /* I7 */
    /* end > now >= end - window, or the hint is of another window, or of no hot policy (M10). */
    uint64_t left = tick_ns(*end) - now;
    return LIKELY(!GUARD(TAKE_WINDOW, left == 0 || atomic_less(&policy->hot_window, left)));
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

static ALWAYS_INLINE bool take(struct stint_limiter *limiter, uint32_t policy_id, stint_key key,
                               uint64_t now, struct stint_verdict *verdict) {
    struct line *home = home_of(&limiter->table, key);

    if (LIKELY(now == STINT_NOW)) {
        __builtin_prefetch(home); /* it comes while the clock is read */
        now = limiter_now(limiter);
    }
    struct found found = {.home = home};
    if (UNLIKELY(!window_hot(&limiter->policies[policy_id], now, &found.end)))
        return take_carried(limiter, policy_id, key, now, verdict);
    return take_home(limiter, policy_id, key, now, verdict, found);
}

/* The key is not in its home line: it is new, or was displaced, as 1 in 25 is at a load of 50%. */
static NOINLINE bool take_next(struct stint_limiter *limiter, uint32_t policy_id, stint_key key,
                               uint64_t now, struct stint_verdict *verdict, tick_t end) {
    const struct table *table = &limiter->table;
    uint64_t tag = table_tag(table, key, policy_id);
    struct slot *slot = line_find(table_next(table, key, home_of(table, key)), tag);

    if (slot != NULL)
        return take_in(limiter, policy_id, key, now, verdict, (struct found){NULL, end, slot, 0});
    const struct stint_request request = {.key = key, .policy = policy_id, .cost = 1};
    return stint_slot_decide(limiter, &request, now, verdict);
}

/* A fetch-add may not count: the slot is in another window, or full, or another key's by now. */
static NOINLINE bool take_settled(struct stint_limiter *limiter, uint32_t policy_id, stint_key key,
                                  uint64_t now, struct stint_verdict *verdict,
                                  const struct found *found) {
    uint64_t traits = policy_traits(&limiter->policies[policy_id]);
    struct decision decision = plain_decision(limiter, policy_id, now, found->end, traits >> 32);
    struct sight sight;
    bool allowed;

    decision.tag = table_tag(&limiter->table, key, policy_id);
    /* M1 */
    if (LIKELY((traits & TRAIT_PLAIN) != 0) &&
        LIKELY(slot_look(&decision, found->slot, atomic_load_acquire(&found->slot->state),
                         &sight) == LOOK_GOOD)) {
        decision.charge = judge(&decision.terms, sight.count, 0);
        if (LIKELY(slot_finish(&decision, &sight, verdict, &allowed)))
            return allowed;
    }
    return decide_tokens(limiter, policy_id, key, 1, now, verdict);
}

/* The fetch-add met another window, or no room: others were faster. */
static NOINLINE bool take_overshot(struct stint_limiter *limiter, uint32_t policy_id, stint_key key,
                                   uint64_t now, struct stint_verdict *verdict,
                                   const struct found *found) {
    const struct stint_request request = {.key = key, .policy = policy_id, .cost = 1};
    struct decision decision;

    if (decision_begin(&decision, limiter, &request, now, nothing_known) != 0)
        return false; /* nobody takes a policy away */
    stint_slot_settle_added(&decision, found->slot, state_of(found->end, 0), found->added);
    return decision_end(&decision, verdict);
}

/* ---- Any request --------------------------------------------------------------------------------- */

/* The long way of a request. It is built here, so that the path keeps its registers. */
static ALWAYS_INLINE bool leave(struct stint_limiter *limiter, const struct stint_request *request,
                                uint64_t now, struct stint_verdict *verdict) {
    const struct stint_request rest = {request->key, request->policy, request->cost, request->limit,
                                       request->flags};
    return stint_slot_decide(limiter, &rest, now, verdict);
}

/* The whole path. */
static ALWAYS_INLINE bool decide_as(struct stint_limiter *limiter,
                                    const struct stint_request *request, uint64_t now,
                                    struct stint_verdict *verdict, struct known known) {
    struct decision decision = {0};
    struct sight sight;
    bool allowed;

    if (UNLIKELY(decision_begin(&decision, limiter, request, now, known) != 0))
        return leave(limiter, request, now, verdict);
    struct slot *slot = slot_near(&limiter->table, decision.hash, decision.tag);
    if (UNLIKELY(slot == NULL) || /* M1 */
        UNLIKELY(slot_look(&decision, slot, atomic_load_acquire(&slot->state), &sight) !=
                 LOOK_GOOD))
        return leave(limiter, request, now, verdict);
    decision.charge = judge(&decision.terms, sight.count, tick_ns(decision.end) - decision.now);
    return LIKELY(slot_finish(&decision, &sight, verdict, &allowed))
               ? allowed
               : leave(limiter, request, now, verdict);
}

/* Tokens by a plain policy, as many as are asked for, up to a limit of the request's own perhaps. */
static NOINLINE bool decide_plain(struct stint_limiter *limiter,
                                  const struct stint_request *request, uint64_t now,
                                  struct stint_verdict *verdict) {
    const struct known known = {.traits = TRAIT_EXISTS | TRAIT_PLAIN, .flags = true};
    return decide_as(limiter, request, now, verdict, known);
}

/* A look at a plain policy's. */
static NOINLINE bool decide_look(struct stint_limiter *limiter, const struct stint_request *request,
                                 uint64_t now, struct stint_verdict *verdict) {
    const struct known known = {
        .traits = TRAIT_EXISTS | TRAIT_PLAIN, .flags = true, .of_request = STINT_PEEK};
    return decide_as(limiter, request, now, verdict, known);
}

/* Tokens by any policy of one slot a key. */
static NOINLINE bool decide_policy(struct stint_limiter *limiter,
                                   const struct stint_request *request, uint64_t now,
                                   struct stint_verdict *verdict) {
    return decide_as(limiter, request, now, verdict, (struct known){.flags = true});
}

static NOINLINE bool decide_any(struct stint_limiter *limiter, const struct stint_request *request,
                                uint64_t now, struct stint_verdict *verdict) {
    return decide_as(limiter, request, now, verdict, nothing_known);
}

/* Any request, by the instance of the path that is for it. */
static ALWAYS_INLINE bool decide(struct stint_limiter *limiter, const struct stint_request *request,
                                 uint64_t now, struct stint_verdict *verdict) {
    __builtin_prefetch(home_of(&limiter->table, request->key));
    if (now == STINT_NOW)
        now = limiter_now(limiter);
    if (UNLIKELY(request->policy >= limiter->max_policies))
        return stint_slot_decide(limiter, request, now, verdict);
    uint32_t traits = (uint32_t)policy_traits(&limiter->policies[request->policy]);
    if (UNLIKELY(traits_striped(traits)))
        return stint_stripe_decide(limiter, request, now, verdict);
    if (LIKELY(request->flags == 0))
        return traits == (TRAIT_EXISTS | TRAIT_PLAIN)
                   ? decide_plain(limiter, request, now, verdict)
                   : decide_policy(limiter, request, now, verdict);
    if (request->flags == STINT_PEEK && traits == (TRAIT_EXISTS | TRAIT_PLAIN))
        return decide_look(limiter, request, now, verdict);
    return decide_any(limiter, request, now, verdict);
}

static NOINLINE bool decide_tokens(struct stint_limiter *limiter, uint32_t policy_id, stint_key key,
                                   uint32_t cost, uint64_t now, struct stint_verdict *verdict) {
    const struct stint_request request = {.key = key, .policy = policy_id, .cost = cost};
    return decide(limiter, &request, now, verdict);
}

/* A token by a policy that is not the hot path's: by one that carries tokens over, or may reserve them, and has
 * nothing else; or by another. */
static NOINLINE bool take_carried(struct stint_limiter *limiter, uint32_t policy_id, stint_key key,
                                  uint64_t now, struct stint_verdict *verdict) {
    const struct known known = {.traits = TRAIT_EXISTS | TRAIT_CARRIES, .flags = true};
    const struct stint_request request = {.key = key, .policy = policy_id, .cost = 1};
    const uint32_t traits = (uint32_t)policy_traits(&limiter->policies[policy_id]);

    if (traits == known.traits)
        return decide_as(limiter, &request, now, verdict, known);
    if (!traits_striped(traits))
        return decide_tokens(limiter, policy_id, key, 1, now, verdict);
    const struct stint_request striped = {.key = key, .policy = policy_id, .cost = 1};
    return stint_stripe_decide(limiter, &striped, now, verdict);
}
