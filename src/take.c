/* SPDX-License-Identifier: MIT
 * The decision: read this file first. Every request goes the same way, from its key to its verdict:
 *
 *     key bytes -> hash   key.c                the caller did this: stint_key_of
 *     1  policy           decision_begin       one or two lines hold all that is read of it
 *     2  window           window_of            the policy's hint or the slot, or computed
 *     3  line             slot_near            the home line, or the next: 4 tags at once
 *     4  look, judge      slot_look, judge     what becomes of the count
 *     5  charge           slot_charge          one compare-and-swap of the slot
 *     6  verdict          decision_end         the one writer
 *
 * The steps are in decision.h, search.h (3) and judge.h (judge). A short way is these steps on a
 * slot near its key's home, with what is known of the policy and the request folded in. It answers,
 * or does nothing and leaves the request to the next way:
 *
 *     take_hot        one token by a plain policy: one atomic add charges             25 for 30
 *     take_new        the same where the key has no slot: one that was never used     184 for 225 *
 *                     or one of its home line whose window is over                    253 for 461 *
 *     take_seen       the same where the slot has no room, or is in another window    28 for 48
 *     take_tokens     a cost, or a limit of the request's own: one swap charges       32 for 41
 *     take_bucket     tokens of a token bucket: one swap charges                      43 for 53
 *                     or it is empty, and marked so: nothing is written               49 for 73
 *     take_ruled      one token of a key that may have an override                    52 for 79
 *     stripe_take     tokens of the stripe that is the thread's own (stripes.h)       41 for 165
 *     short_as        any request, by the steps as they stand above                   47 for 119
 *     stint_decide_long   any request, in any state of the table (stripes.c, decide.c)
 *
 * These are short_as with more folded in. The way that comes next is stint_decide_any, which has
 * nothing folded in:
 *
 *     decide_look     a look by a plain policy                                        27 for 43
 *                     of a key without a slot, for which the long way is next         16 for 71 **
 *     decide_charge   a charge by a plain policy                                      40 for 56
 *     decide_reserve  a reservation by a policy that carries over, and no more        38 for 53
 *     decide_bucket   no flags, a token bucket: what take_bucket leaves               53 for 69
 *     decide_windows  no flags, any policy of windows without stripes or overrides    47 for 60
 *
 * Groups have group_of_few and group_of_many beside these (group.c).
 *
 * The figures are ns: the request with this way, and without it, by the way that comes next. (On an
 * Intel Xeon, 2026-11-28: gcc 12 -O3, `bench/run run --keys 1000`, with the clock and the key's
 * hash: take, refuse, cost-5, bucket, bucket-refused, overridden, striped, smooth, peek, charge,
 * reserve. *: first-seen and churn, a million keys. **: `now` given, the hash known.) */
#include "take.h"

#include "claim.h"
#include "decide.h"
#include "override_set.h"
#include "search.h"
#include "see.h"
#include "stripes.h"

/* ---- One token by a plain policy ------------------------------------------------------------- */

/* Steps 4 to 6, in the window that ends at sight->end, of a key that was looked for (see_near). */
static ALWAYS_INLINE enum answer take_at(struct stint_limiter *limiter, uint32_t policy_id,
                                         uint64_t now, struct stint_verdict *verdict,
                                         struct sight *sight) {
    if (UNLIKELY(sight->slot == NULL))
        return NEXT;
    see_one(&limiter->policies[policy_id], sight);
    return see_found(sight) && sight_add(limiter, sight)
               ? sight_answer(limiter, policy_id, sight, now, verdict)
               : NEXT;
}

/* NEXT, and sight->tag is 0: the key was not looked for. */
static ALWAYS_INLINE enum answer take_hot(struct stint_limiter *limiter, uint32_t policy_id,
                                          uint64_t key, uint64_t now, struct stint_verdict *verdict,
                                          struct sight *sight) {
    const struct policy *policy = &limiter->policies[policy_id];
    struct line *home = home_of(&limiter->table, key);

    sight->slot = NULL;
    sight->tag = 0;
    if (UNLIKELY(!window_hot(policy, now, &sight->end)) &&
        (!window_ruled(policy, now, sight->end) ||
         GUARD(OVERRIDE_SEEN, companion_possible(&limiter->table, key))))
        return NEXT;
    see_near(limiter, policy_id, key, home, sight);
    return take_at(limiter, policy_id, now, verdict, sight);
}

/* Steps 4 to 6, where the key's tag was seen. What fits and what is refused go separate ways, so
 * that the compiler knows which it is. */
static ALWAYS_INLINE enum answer answer_in(struct decision *decision, struct slot *slot,
                                           struct stint_verdict *verdict) {
    struct seen seen = {.slot = slot};

    seen.state = atomic_load_acquire(&slot->state); /* M1 */
    if (UNLIKELY(slot_look(decision, &seen) != LOOK_GOOD))
        return NEXT;
    decision_judge(decision, &seen);
    if (decision->charge.fits) {
        if (UNLIKELY(!slot_charge(decision, &seen, false)))
            return NEXT;
        return decision_end(decision, verdict) ? ALLOWED : REFUSED;
    }
    if (UNLIKELY(!slot_charge(decision, &seen, false)))
        return NEXT;
    return decision_end(decision, verdict) ? ALLOWED : REFUSED;
}

/* One token of a key whose tag was seen in a slot: it is refused there, or begins a window. */
static ALWAYS_INLINE enum answer take_seen(struct stint_limiter *limiter, uint32_t policy_id,
                                           uint64_t key, uint64_t now,
                                           struct stint_verdict *verdict, struct slot *slot) {
    const struct policy *policy = &limiter->policies[policy_id];
    const uint64_t word = policy_word(policy);
    const tick_t end = (tick_t)atomic_load_relaxed(&policy->current_end); /* M16 */
    struct decision decision =
        plain_decision(limiter, policy_id, policy_identity(policy), now, end, word >> 32);

    if (UNLIKELY((uint32_t)word != (TRAIT_EXISTS | TRAIT_PLAIN)) ||
        UNLIKELY(GUARD(HINT_WINDOW, tick_ns(end) - now - 1 >= policy->window)))
        return NEXT;
    decision.tag = table_tag(&limiter->table, key, policy_id);
    return answer_in(&decision, slot, verdict);
}

/* ---- Tokens that fit (see.h) ----------------------------------------------------------------- */

static ALWAYS_INLINE enum answer take_tokens(struct stint_limiter *limiter,
                                             const struct stint_request *request, uint64_t now,
                                             struct stint_verdict *verdict, uint64_t capacity) {
    struct sight sight = {.capacity = capacity};
    return see_tokens(limiter, request->policy, request->key.hash, request->cost, now, &sight) &&
                   sight_swap(&sight)
               ? sight_answer(limiter, request->policy, &sight, now, verdict)
               : NEXT;
}

static ALWAYS_INLINE enum answer take_bucket(struct stint_limiter *limiter, uint32_t policy_id,
                                             uint64_t key, uint32_t cost, uint64_t now,
                                             struct stint_verdict *verdict) {
    struct sight sight;
    if (!see_bucket(limiter, policy_id, key, cost, now, &sight))
        return NEXT;
    if (sight_empty(&sight))
        return sight_refuse_bucket(limiter, policy_id, &sight, key, now, verdict);
    return sight_swap(&sight) ? sight_answer_bucket(limiter, policy_id, &sight, true, now, verdict)
                              : NEXT;
}

static ALWAYS_INLINE enum answer take_ruled(struct stint_limiter *limiter, uint32_t policy_id,
                                            uint64_t key, uint64_t now,
                                            struct stint_verdict *verdict) {
    struct sight sight;
    return see_ruled(limiter, policy_id, key, now, &sight) && sight_swap(&sight)
               ? sight_answer(limiter, policy_id, &sight, now, verdict)
               : NEXT;
}

/* ---- Any request ----------------------------------------------------------------------------- */

/* A look by a plain policy at a key that has no slot, and for which there is one. */
static ALWAYS_INLINE enum answer look_absent(struct decision *decision,
                                             struct stint_verdict *verdict) {
    if (UNLIKELY(begins_later(&decision->limiter->table, decision->hash, tick_of(decision->now))))
        return NEXT;
    decision->charge = judge(&decision->terms, 0, tick_ns(decision->end) - decision->now);
    return decision_end(decision, verdict) ? ALLOWED : REFUSED;
}

/* The six steps. */
static ALWAYS_INLINE enum answer short_as(struct stint_limiter *limiter,
                                          const struct stint_request *request, uint64_t now,
                                          struct stint_verdict *verdict, struct known known) {
    struct decision decision = {0};

    if (UNLIKELY(decision_begin(&decision, limiter, request, now, known) != 0))
        return NEXT;
    if (known.overrides && traits_striped(decision.terms.traits))
        return NEXT;
    struct slot *slot = slot_near(&limiter->table, decision.hash, decision.tag);
    if (UNLIKELY(slot == NULL)) {
        const bool look = known.flags && known.of_request == STINT_PEEK;
        if (look && absent_near(&limiter->table, decision.hash))
            return look_absent(&decision, verdict);
        slot = stint_slot_far(&limiter->table, decision.hash, decision.tag);
        if (slot == NULL)
            return look && stint_absent_far(&limiter->table, decision.hash)
                       ? look_absent(&decision, verdict)
                       : NEXT;
    }
    return answer_in(&decision, slot, verdict);
}

/* The six steps; if they leave the request, the long way. */
static ALWAYS_INLINE bool decide_as(struct stint_limiter *limiter,
                                    const struct stint_request *request, uint64_t now,
                                    struct stint_verdict *verdict, struct known known) {
    const enum answer answer = WAY(short_as, limiter, request, now, verdict, known);
    return LIKELY(answer != NEXT) ? answer == ALLOWED
                                  : WAY(stint_decide_long, limiter, request, now, verdict);
}

#define KNOWN(of_policy, of_flags)                                                                 \
    ((struct known){.traits = TRAIT_EXISTS | (of_policy), .flags = true, .of_request = (of_flags)})

static NOINLINE bool decide_look(struct stint_limiter *limiter, const struct stint_request *request,
                                 uint64_t now, struct stint_verdict *verdict) {
    return decide_as(limiter, request, now, verdict, KNOWN(TRAIT_PLAIN, STINT_PEEK));
}

static NOINLINE bool decide_charge(struct stint_limiter *limiter,
                                   const struct stint_request *request, uint64_t now,
                                   struct stint_verdict *verdict) {
    return decide_as(limiter, request, now, verdict, KNOWN(TRAIT_PLAIN, STINT_CHARGE));
}

static NOINLINE bool decide_reserve(struct stint_limiter *limiter,
                                    const struct stint_request *request, uint64_t now,
                                    struct stint_verdict *verdict) {
    return decide_as(limiter, request, now, verdict, KNOWN(TRAIT_CARRIES, STINT_RESERVE));
}

static NOINLINE bool decide_bucket(struct stint_limiter *limiter,
                                   const struct stint_request *request, uint64_t now,
                                   struct stint_verdict *verdict) {
    return decide_as(limiter, request, now, verdict, KNOWN(RULE_BUCKET, 0));
}

static NOINLINE bool decide_windows(struct stint_limiter *limiter,
                                    const struct stint_request *request, uint64_t now,
                                    struct stint_verdict *verdict) {
    return decide_as(limiter, request, now, verdict,
                     (struct known){.flags = true, .windows = true});
}

NOINLINE bool stint_decide_any(struct stint_limiter *limiter, const struct stint_request *request,
                               uint64_t now, struct stint_verdict *verdict) {
    return decide_as(limiter, request, now, verdict, nothing_known);
}

/* ---- The long way ---------------------------------------------------------------------------- */

uint32_t stint_decision_open(struct decision *decision, struct stint_limiter *limiter,
                             const struct stint_request *request, uint64_t now) {
    struct stint_request same = *request;
    uint32_t why;

    /* Each round but the first: the policy was replaced once more. */
    while ((why = decision_begin(decision, limiter, &same, now, nothing_known)) ==
           STINT_UNKNOWN_POLICY) {
        same.policy = stint_limiter_policy_now(limiter, request->policy);
        if (same.policy >= limiter->deciding) /* POLICY_NONE, and all by a read-only handle */
            break;
    }
    return why;
}

/* A request by a lost table, which knows no policies. */
static bool decide_lost(struct stint_limiter *limiter, const struct stint_request *request,
                        struct stint_verdict *verdict) {
    const uint32_t asked = request->flags & (STINT_PEEK | STINT_CHARGE);

    if (asked == 0 || asked == (STINT_PEEK | STINT_CHARGE)) /* a decision */
        limiter_count_table(limiter, COUNT_UNTRACKED_GONE);
    if (verdict != NULL)
        *verdict = (struct stint_verdict){.allowed = true,
                                          .flags = STINT_UNTRACKED,
                                          .granted = asked == 0 ? request->cost : 0,
                                          .policy = POLICY_NONE};
    return true;
}

bool stint_decision_void(struct stint_limiter *limiter, const struct stint_request *request,
                         uint32_t why, struct stint_verdict *verdict) {
    if (limiter->looking != NULL)
        why = STINT_BAD_REQUEST;
    if (why == STINT_UNKNOWN_POLICY && request->policy < limiter->max_policies &&
        stint_limiter_lost(limiter)) {
        if (request->reserved == 0 && request_good(request->flags, request->limit))
            return decide_lost(limiter, request, verdict);
        why = STINT_BAD_REQUEST;
    }
    limiter_count_table(limiter,
                        why == STINT_BAD_REQUEST ? COUNT_BAD_REQUEST : COUNT_UNKNOWN_POLICY);
    if (verdict != NULL)
        *verdict =
            (struct stint_verdict){.flags = why, .retry_after = STINT_NEVER, .policy = POLICY_NONE};
    return false;
}

bool stint_decide_opened(struct decision *decision, const struct stint_request *request,
                         struct stint_verdict *verdict) {
    const uint64_t now = decision->now;

    for (;;) {
        if (traits_striped(decision->terms.traits))
            stint_decide_by_stripes(decision);
        else
            stint_decide_by_slot(decision);
        if (LIKELY((decision->flags & DECISION_GONE) == 0))
            break;
        /* The policy is gone: the one in its place decides. */
        const uint32_t flags = decision->terms.flags; /* a group's look at a look before a charge */
        const uint32_t why = stint_decision_open(decision, decision->limiter, request, now);
        if (why != 0)
            return stint_decision_void(decision->limiter, request, why, verdict);
        decision->terms.flags = flags;
    }
    const bool allowed = decision_end(decision, verdict);
    if (strikes(decision))
        stint_strike(decision->limiter, decision->policy_id, decision->hash, decision->now,
                     verdict);
    return allowed;
}

bool stint_decide_long(struct stint_limiter *limiter, const struct stint_request *request,
                       uint64_t now, struct stint_verdict *verdict) {
    struct decision decision;
    const uint32_t why = stint_decision_open(&decision, limiter, request, now);

    return UNLIKELY(why != 0) ? stint_decision_void(limiter, request, why, verdict)
                              : stint_decide_opened(&decision, request, verdict);
}

/* ---- What callers call ----------------------------------------------------------------------- */

/* The time of a decision. Where the clock has to be read, the key's line comes meanwhile. */
static ALWAYS_INLINE uint64_t now_fetching(const struct stint_limiter *limiter, uint64_t key,
                                           uint64_t now) {
    if (UNLIKELY(now != STINT_NOW))
        return now;
    __builtin_prefetch(home_of(&limiter->table, key));
    return limiter_now(limiter);
}

/* A request by an id that it may not name. There is no such policy; or the handle is read-only, and
 * the request may be a look. */
static NOINLINE bool decide_unknown(struct stint_limiter *limiter,
                                    const struct stint_request *request, uint64_t now,
                                    struct stint_verdict *verdict) {
    if (limiter->looking == NULL || (request->flags & (STINT_PEEK | STINT_CHARGE)) != STINT_PEEK)
        return stint_decision_void(limiter, request, STINT_UNKNOWN_POLICY, verdict);
    return stint_decide_long(limiter->looking, request, now, verdict);
}

/* A request with flags. */
static ALWAYS_INLINE bool decide_flagged(struct stint_limiter *limiter,
                                         const struct stint_request *request, uint64_t now,
                                         struct stint_verdict *verdict) {
    const uint32_t traits = (uint32_t)policy_word(&limiter->policies[request->policy]);
    const uint32_t flags = request->flags;

    if (LIKELY(request->reserved == 0)) {
        if (traits == (TRAIT_EXISTS | TRAIT_PLAIN) && flags == STINT_PEEK)
            return decide_look(limiter, request, now, verdict);
        if (traits == (TRAIT_EXISTS | TRAIT_PLAIN) && flags == STINT_CHARGE)
            return decide_charge(limiter, request, now, verdict);
        if (traits == (TRAIT_EXISTS | TRAIT_CARRIES) && flags == STINT_RESERVE)
            return decide_reserve(limiter, request, now, verdict);
    }
    return stint_decide_any(limiter, request, now, verdict);
}

/* Whether a policy is plain, or carries tokens over and does nothing else. */
static ALWAYS_INLINE bool traits_swapped(uint32_t traits) {
    return (traits & ~(uint32_t)(TRAIT_CARRIES | TRAIT_PLAIN)) == TRAIT_EXISTS;
}

/* Tokens that are not hot go one of these ways, all arguments in their registers. */

static NOINLINE bool take_any(struct stint_limiter *limiter, uint32_t policy, uint64_t key,
                              uint32_t cost, uint64_t now, struct stint_verdict *verdict) {
    const struct stint_request request = {.key = {key}, .policy = policy, .cost = cost};
    return decide_windows(limiter, &request, now, verdict);
}

static NOINLINE bool take_by_bucket(struct stint_limiter *limiter, uint32_t policy, uint64_t key,
                                    uint32_t cost, uint64_t now, struct stint_verdict *verdict) {
    const enum answer answer = WAY(take_bucket, limiter, policy, key, cost, now, verdict);
    if (LIKELY(answer != NEXT))
        return answer == ALLOWED;
    const struct stint_request request = {.key = {key}, .policy = policy, .cost = cost};
    return decide_bucket(limiter, &request, now, verdict);
}

static NOINLINE bool take_by_swap(struct stint_limiter *limiter, uint32_t policy, uint64_t key,
                                  uint32_t cost, uint64_t now, struct stint_verdict *verdict) {
    const struct stint_request request = {.key = {key}, .policy = policy, .cost = cost};
    /* Once more: traits and capacity are of one rule, which may have changed since. */
    const uint64_t word = policy_word(&limiter->policies[policy]);
    return (LIKELY(traits_swapped((uint32_t)word)) &&
            ANSWERS(take_tokens, limiter, &request, now, verdict, word >> 32)) ||
           take_any(limiter, policy, key, cost, now, verdict);
}

static NOINLINE bool take_by_stripe(struct stint_limiter *limiter, uint32_t policy, uint64_t key,
                                    uint32_t cost, uint64_t now, struct stint_verdict *verdict) {
    if (cost == 1 ? ANSWERS(stripe_take, limiter, policy, key, 1, now, verdict)
                  : ANSWERS(stripe_take, limiter, policy, key, cost, now, verdict))
        return true;
    const struct stint_request request = {.key = {key}, .policy = policy, .cost = cost};
    return WAY(stint_decide_long, limiter, &request, now, verdict);
}

static NOINLINE bool take_by_override(struct stint_limiter *limiter, uint32_t policy, uint64_t key,
                                      uint32_t cost, uint64_t now, struct stint_verdict *verdict) {
    /* A bucket has no hot capacity. */
    if (LIKELY(cost == 1) && ANSWERS(take_ruled, limiter, policy, key, now, verdict))
        return true;
    const struct stint_request request = {.key = {key}, .policy = policy, .cost = cost};
    return stint_decide_any(limiter, &request, now, verdict);
}

static NOINLINE bool take_by_traits(struct stint_limiter *limiter, uint32_t policy, uint64_t key,
                                    uint32_t cost, uint64_t now, struct stint_verdict *verdict) {
    if (UNLIKELY(policy >= limiter->deciding)) {
        const struct stint_request request = {.key = {key}, .policy = policy, .cost = cost};
        return decide_unknown(limiter, &request, now, verdict);
    }
    const uint32_t traits = (uint32_t)policy_word(&limiter->policies[policy]);
    return traits_swapped(traits) ? take_by_swap(limiter, policy, key, cost, now, verdict)
           : traits == (TRAIT_EXISTS | RULE_BUCKET)
               ? take_by_bucket(limiter, policy, key, cost, now, verdict)
           : traits_striped(traits) ? take_by_stripe(limiter, policy, key, cost, now, verdict)
           : (traits & (STINT_OVERRIDES | RULE_BUCKET)) != 0
               ? take_by_override(limiter, policy, key, cost, now, verdict)
               : take_any(limiter, policy, key, cost, now, verdict);
}

/* One token by a plain policy that found no room in the key's slot, or a slot far from home. */
static NOINLINE bool take_full(struct stint_limiter *limiter, uint32_t policy, uint64_t key,
                               uint64_t now, struct stint_verdict *verdict, struct slot *slot) {
    const enum answer answer = WAY(take_seen, limiter, policy, key, now, verdict, slot);
    return LIKELY(answer != NEXT) ? answer == ALLOWED
                                  : take_by_traits(limiter, policy, key, 1, now, verdict);
}

static NOINLINE bool take_long(struct stint_limiter *limiter, uint32_t policy, uint64_t key,
                               uint64_t now, struct stint_verdict *verdict) {
    const struct stint_request request = {.key = {key}, .policy = policy, .cost = 1};
    return stint_decide_long(limiter, &request, now, verdict);
}

/* One token of a key that is in neither of its first two lines. It gets a slot: one of these that
 * was never used; or, if it is not far from home either, one of its home line that is over. It has
 * 320 instructions, and the long way 755. That decides how many misses a processor has under
 * way. */
static NOINLINE bool take_new(struct stint_limiter *limiter, uint32_t policy_id, uint64_t key,
                              uint64_t now, struct stint_verdict *verdict, tick_t end) {
    const struct policy *policy = &limiter->policies[policy_id];
    const uint64_t capacity = atomic_load_relaxed(&policy->hot_capacity); /* M12 */
    const uint64_t tag = table_tag(&limiter->table, key, policy_id), state = state_of(end, 1);
    const words_2 identity = policy_identity(policy);

    if (UNLIKELY(capacity == 0))
        return WAY(take_long, limiter, policy_id, key, now, verdict);
    const bool unused = absent_near(&limiter->table, key);
    struct slot *slot = unused ? NULL : stint_slot_behind(&limiter->table, key, tag);
    if (slot != NULL)
        return take_full(limiter, policy_id, key, now, verdict, slot);
    if (UNLIKELY(!(unused ? claim_unused(limiter, policy, key, tag, tick_of(now), state)
                          : stint_claim_over(limiter, policy, key, tag, now, state))))
        return WAY(take_long, limiter, policy_id, key, now, verdict);
    struct decision decision = plain_decision(limiter, policy_id, identity, now, end, capacity);
    (void)taken_end(&decision, 1, 1, verdict);
    return true;
}

/* The way that comes after take_hot. */
static ALWAYS_INLINE bool take_next(struct stint_limiter *limiter, uint32_t policy, uint64_t key,
                                    uint64_t now, struct stint_verdict *verdict,
                                    const struct sight *sight) {
    return sight->slot != NULL ? take_full(limiter, policy, key, now, verdict, sight->slot)
           : sight->tag != 0   ? WAY(take_new, limiter, policy, key, now, verdict, sight->end)
                               : take_by_traits(limiter, policy, key, 1, now, verdict);
}

bool stint_take(struct stint_limiter *limiter, uint32_t policy, stint_key key, uint32_t cost,
                uint64_t now, struct stint_verdict *verdict) {
    struct sight sight;

    now = now_fetching(limiter, key.hash, now);
    if (UNLIKELY(cost != 1) || UNLIKELY(policy >= limiter->deciding))
        return take_by_traits(limiter, policy, key.hash, cost, now, verdict);
    return ANSWERS(take_hot, limiter, policy, key.hash, now, verdict, &sight) ||
           take_next(limiter, policy, key.hash, now, verdict, &sight);
}

/* Any request, by a time that is no STINT_NOW. */
static NOINLINE bool decide_at(struct stint_limiter *limiter, const struct stint_request *request,
                               uint64_t now, struct stint_verdict *verdict) {
    if (UNLIKELY(request->policy >= limiter->deciding))
        return decide_unknown(limiter, request, now, verdict);
    if ((request->flags | request->reserved) != 0)
        return decide_flagged(limiter, request, now, verdict);
    if (request->limit == 0)
        return take_by_traits(limiter, request->policy, request->key.hash, request->cost, now,
                              verdict);
    const uint32_t traits = (uint32_t)policy_word(&limiter->policies[request->policy]);
    return (LIKELY(traits_swapped(traits)) &&
            ANSWERS(take_tokens, limiter, request, now, verdict, request->limit)) ||
           stint_decide_any(limiter, request, now, verdict);
}

bool stint_decide(struct stint_limiter *limiter, const struct stint_request *request, uint64_t now,
                  struct stint_verdict *verdict) {
    if (LIKELY((request->flags | request->limit | request->reserved) == 0))
        return stint_take(limiter, request->policy, request->key, request->cost, now, verdict);
    return decide_at(limiter, request, now_fetching(limiter, request->key.hash, now), verdict);
}

size_t stint_decide_batch(struct stint_limiter *limiter, const struct stint_request *requests,
                          size_t n, uint64_t now, struct stint_verdict *verdicts) {
    const struct table *table = &limiter->table;
    uint32_t policy = UINT32_MAX;                 /* of the last request; none yet */
    const uint64_t none = 0, *hot_window = &none; /* that policy's */
    uint64_t left = UINT64_MAX;                   /* of its window of now, ns */
    struct sight sight = {0};
    struct line *homes[AHEAD];
    size_t allowed = 0;

    /* All home lines first: each is needed, and together with the next ones they are more misses
     * than a core keeps under way. */
    for (size_t i = 0; i < n && i < AHEAD; i++)
        __builtin_prefetch(homes[i] = home_of(table, requests[i].key.hash));
    for (size_t i = 0; i < n && i < AHEAD; i++)
        fetch_next(homes[i]);
    if (now == STINT_NOW)
        now = limiter_now(limiter);
    for (size_t i = 0; i < n; i++) {
        const struct stint_request *request = &requests[i];
        struct stint_verdict *verdict = verdicts == NULL ? NULL : &verdicts[i];
        struct line *home = homes[i % AHEAD];
        if (i + AHEAD < n)
            homes[i % AHEAD] = fetch_lines(table, request[AHEAD].key.hash);
        /* Requests by one policy after the other find its window once. Each asks whether the hot
         * way is open: the policy may have got overrides. */
        if (UNLIKELY(request->policy != policy)) {
            policy = request->policy;
            hot_window = &none;
            if (LIKELY(policy < limiter->deciding)) {
                hot_window = &limiter->policies[policy].hot_window;
                /* M16. As in window_hot, in two steps. */
                sight.end = (tick_t)atomic_load_relaxed(&limiter->policies[policy].current_end);
                left = tick_ns(sight.end) - now;
                left = left != 0 ? left : UINT64_MAX;
            }
        }
        if (LIKELY(!atomic_less(hot_window, left)) && /* M12 */
            LIKELY((request->flags | request->limit | request->reserved) == 0 &&
                   request->cost == 1)) {
            see_near(limiter, policy, request->key.hash, home, &sight);
            allowed += ANSWERS(take_at, limiter, policy, now, verdict, &sight) ||
                       take_next(limiter, policy, request->key.hash, now, verdict, &sight);
        } else {
            allowed += decide_at(limiter, request, now, verdict);
        }
    }
    return allowed;
}
