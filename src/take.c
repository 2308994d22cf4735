/* SPDX-License-Identifier: MIT
 * What callers call to decide on one request, and on a batch. Read core.h first: it has the steps.
 *
 * Here they are taken in the slot of a key that has one (decide_begun). That stands once, and is
 * compiled several times: each time for policies of which the compiler knows traits (judge.h,
 * EXACT_PLAIN; below, KIND). A key without a slot goes on in decide.c, or by take_new. */
#include "decide.h"
#include "fast.h"
#include "stripes.h"

/* ---- The long way ---------------------------------------------------------------------------- */

/* By a lost table, which knows no policies. */
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
    if (limiter->reader != NULL)
        why = STINT_BAD_REQUEST;
    if (why == STINT_UNKNOWN_POLICY && request->policy < limiter->max_policies &&
        stint_limiter_lost(limiter)) {
        if (request_good(request))
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

/* Begins a decision by the policy that decides for the request now: the one that it names, or the
 * one that has replaced it. Returns 0, or why there is none. */
static uint32_t decision_open(struct decision *decision, struct stint_limiter *limiter,
                              const struct stint_request *request, uint64_t now) {
    uint32_t id = request->policy;

    if (UNLIKELY(id >= limiter->deciding))
        return STINT_UNKNOWN_POLICY;
    if (UNLIKELY(!request_good(request)))
        return STINT_BAD_REQUEST;
    /* Each round but the first: the policy was changed, or replaced once more. */
    for (; id < limiter->deciding; /* POLICY_NONE is none */
         id = stint_limiter_policy_now(limiter, request->policy)) {
        struct policy *policy = &limiter->policies[id];
        const uint64_t word = policy_word(policy);
        if ((word & TRAIT_EXISTS) == 0)
            continue;
        if (UNLIKELY(!request_suits(request, (uint32_t)word)))
            return STINT_BAD_REQUEST;
        struct moment moment = {.now = now};
        if (!moment_known(limiter, policy, (uint32_t)word, now, &moment.end))
            moment = stint_moment_odd(limiter, policy, (uint32_t)word, request->key.hash, now);
        decision->limiter = limiter;
        decision->terms.special = UNLIKELY(moment.now != now) ? NOW_MISTAKEN : 0;
        if (LIKELY(decision_begin_at(decision, id, request, moment, word, false) == 0))
            return 0;
    }
    return STINT_UNKNOWN_POLICY;
}

static NOINLINE bool decide_struck(const struct decision *decision, struct stint_verdict *verdict) {
    const bool allowed = decision_answer(decision, verdict);

    stint_strike(decision->limiter, decision->policy_id, decision->hash, decision->now, verdict);
    return allowed;
}

static void decide_anywhere(struct decision *decision) {
    if (traits_striped(decision->terms.traits))
        stint_decide_by_stripes(decision);
    else
        stint_decide_by_slot(decision);
}

/* Ends a decision, whatever came of it. `now`: that by which it had begun. */
static NOINLINE bool decide_end(struct decision *decision, uint64_t now,
                                struct stint_verdict *verdict) {
    /* While the policy is gone, the one in its place decides. */
    while (UNLIKELY((decision->flags & DECISION_GONE) != 0)) {
        const struct stint_request request = {.key = {decision->hash},
                                              .policy = decision->policy_id,
                                              .cost = decision->asked.cost,
                                              .flags = decision->asked.flags,
                                              .limit = decision->asked.limit,
                                              .burst = decision->asked.burst};
        const uint32_t mistaken = decision->terms.special & NOW_MISTAKEN;
        const uint32_t why = decision_open(decision, decision->limiter, &request, now);
        if (why != 0)
            return stint_decision_void(decision->limiter, &request, why, verdict);
        decision->terms.special |= mistaken;
        decide_anywhere(decision);
    }
    return UNLIKELY(strikes(decision)) ? decide_struck(decision, verdict)
                                       : decision_answer(decision, verdict);
}

static NOINLINE bool decide_anew(struct stint_limiter *limiter, const struct stint_request *request,
                                 uint64_t now, struct stint_verdict *verdict) {
    struct decision decision;
    const uint32_t why = decision_open(&decision, limiter, request, now);

    if (UNLIKELY(why != 0))
        return stint_decision_void(limiter, request, why, verdict);
    const uint64_t begun = decision.now;
    decide_anywhere(&decision);
    return decide_end(&decision, begun, verdict);
}

/* The same, of a copy: what is near stays in registers. */
static ALWAYS_INLINE bool decide_copy(struct stint_limiter *limiter,
                                      const struct stint_request *request, uint64_t now,
                                      struct stint_verdict *verdict) {
    const struct stint_request again = *request;
    return decide_anew(limiter, &again, now, verdict);
}

/* ---- Near ------------------------------------------------------------------------------------ */

/* Steps 2 to 5 in a slot that has the key's tag. What has changed on the way begins anew: nothing
 * that has begun is kept for that. */
static ALWAYS_INLINE bool decide_in(struct decision *decision, struct slot *slot,
                                    const struct stint_request *request, uint64_t now,
                                    struct stint_verdict *verdict) {
    struct seen seen = {.slot = slot};

    seen.state = atomic_load_acquire(&slot->state); /* M1; what ends the decision confirms it: M2 */
    if (LIKELY(slot_look(decision, &seen) == LOOK_GOOD)) {
        decision_judge(decision, &seen);
        /* Separate ways, so that the compiler knows whether it fits. */
        if (decision->charge.fits) {
            if (LIKELY(slot_charge(decision, &seen)))
                return decision_answer(decision, verdict);
        } else if (LIKELY(slot_charge(decision, &seen))) {
            if (LIKELY(!strikes(decision)))
                return decision_answer(decision, verdict);
            const struct decision struck = *decision;
            return decide_struck(&struck, verdict);
        }
    }
    return decide_copy(decision->limiter, request, now, verdict);
}

static ALWAYS_INLINE bool decide_begun(struct decision *decision,
                                       const struct stint_request *request, uint64_t now,
                                       struct stint_verdict *verdict) {
    const struct far far = look_for(&decision->limiter->table, decision->hash, decision->tag);

    if (LIKELY(far.slot != NULL))
        return decide_in(decision, far.slot, request, now, verdict);
    struct decision rest = *decision; /* a copy, too */
    stint_decide_looked(&rest, far);
    return decide_end(&rest, decision->now, verdict);
}

/* All steps of a request by a policy that was there a moment ago, of which this is the word.
 * `slot`: the key's, as somebody has looked; NULL: nobody has. */
static ALWAYS_INLINE bool decide_slot(struct stint_limiter *limiter,
                                      const struct stint_request *request, uint64_t now,
                                      uint64_t word, struct slot *slot,
                                      struct stint_verdict *verdict) {
    struct decision decision;

    if (UNLIKELY(!request_suits(request, (uint32_t)word)) ||
        UNLIKELY(decision_begin_known(&decision, limiter, request, now, word, false) != 0))
        return decide_copy(limiter, request, now, verdict);
    return slot != NULL ? decide_in(&decision, slot, request, now, verdict)
                        : decide_begun(&decision, request, now, verdict);
}

static ALWAYS_INLINE bool decide_known(struct stint_limiter *limiter,
                                       const struct stint_request *request, uint64_t now,
                                       uint64_t word, struct stint_verdict *verdict) {
    return decide_slot(limiter, request, now, word, NULL, verdict);
}

/* The request of a take. `tokens`: its cost, and above that the request's own limit. */
#define TAKE(id, hash, tokens)                                                                     \
    {                                                                                              \
        .key = {(hash)}, .policy = (id), .cost = (uint32_t)(tokens),                               \
        .limit = (uint32_t)((tokens) >> 32)                                                        \
    }

/* A word that the caller has just stored: a load of several would wait for their stores. */
#define APART(word) (*(const volatile uint32_t *)&(word))

/* A caller's request. It stays in registers. */
#define OWN(request)                                                                               \
    {                                                                                              \
        .key = (request)->key, .policy = APART((request)->policy), .cost = APART((request)->cost), \
        .limit = APART((request)->limit), .flags = APART((request)->flags),                        \
        .burst = APART((request)->burst)                                                           \
    }

/* Words of policies of which the compiler knows traits: all of them, or what their kind tells. */
#define KIND                ((uint32_t)(TRAIT_EXISTS | TRAITS_STRIPED) | RULE_BUCKET)
#define KIND_WINDOWS        ((uint32_t)TRAIT_EXISTS)
#define KIND_BUCKET         EXACT_BUCKET
#define WORD_OF(word, kind) (((word) & ~(uint64_t)KIND) | (kind))

static ALWAYS_INLINE bool decide_as(struct stint_limiter *limiter,
                                    const struct stint_request *request, uint64_t now,
                                    uint64_t word, struct stint_verdict *verdict) {
    if ((word & KIND) == KIND_WINDOWS)
        return decide_known(limiter, request, now, WORD_OF(word, KIND_WINDOWS), verdict);
    if ((word & KIND) == KIND_BUCKET)
        return decide_known(limiter, request, now, WORD_OF(word, KIND_BUCKET), verdict);
    return decide_copy(limiter, request, now, verdict);
}

/* Tokens by a policy that was striped a moment ago; by any other kind the request begins anew. */
static NOINLINE bool take_striped(struct stint_limiter *limiter, uint32_t policy_id, uint64_t key,
                                  uint64_t tokens, uint64_t now, struct stint_verdict *verdict) {
    const struct stint_request request = TAKE(policy_id, key, tokens);
    const uint64_t word = policy_word(&limiter->policies[policy_id]);

    return (traits_striped((uint32_t)word) && request.limit == 0 &&
            stripe_take(limiter, &request, now, word, verdict)) ||
           decide_copy(limiter, &request, now, verdict);
}

/* Tokens by any policy. Exact words have their steps here. (Where a policy changes after its word
 * was read, the request is one of before.) */
static NOINLINE bool take_tokens(struct stint_limiter *limiter, uint32_t policy_id, uint64_t key,
                                 uint64_t tokens, uint64_t now, struct stint_verdict *verdict) {
    const struct stint_request request = TAKE(policy_id, key, tokens);
    const uint64_t word = policy_word(&limiter->policies[policy_id]);

    if ((uint32_t)word == EXACT_PLAIN)
        return decide_known(limiter, &request, now, WORD_EXACT(word, EXACT_PLAIN), verdict);
    if ((uint32_t)word == EXACT_BUCKET && request.limit == 0) /* begin_bucket reads its capacity */
        return decide_known(limiter, &request, now, EXACT_BUCKET, verdict);
    if (traits_striped((uint32_t)word))
        return take_striped(limiter, policy_id, key, tokens, now, verdict);
    return decide_as(limiter, &request, now, word, verdict);
}

/* One token by a policy that would be hot without its overrides, of a key that may have one. */
static NOINLINE bool take_overridden(struct stint_limiter *limiter, uint32_t policy_id,
                                     uint64_t key, uint64_t now, struct stint_verdict *verdict) {
    const struct stint_request request = TAKE(policy_id, key, UINT64_C(1));
    const uint64_t word = policy_word(&limiter->policies[policy_id]);
    struct decision decision;

    return LIKELY((uint32_t)word == EXACT_OVERRIDES) &&
                   LIKELY(decision_begin_known(&decision, limiter, &request, now,
                                               WORD_EXACT(word, EXACT_OVERRIDES), true) == 0)
               ? decide_begun(&decision, &request, now, verdict)
               : take_tokens(limiter, policy_id, key, 1, now, verdict);
}

/* One token that fast.h has left, as the key is in neither of its first two lines. If a slot there
 * was never used, the key is nowhere; by a plain policy it claims that. */
static NOINLINE bool take_new(struct stint_limiter *limiter, uint32_t policy_id, uint64_t key,
                              uint64_t now, struct stint_verdict *verdict) {
    struct decision decision;

    return place_token(&decision, limiter, policy_id, key, now)
               ? decision_answer(&decision, verdict)
               : take_tokens(limiter, policy_id, key, 1, now, verdict);
}

/* One token that fast.h has left, as its slot has no room, or is in another window. */
static NOINLINE bool take_slot(struct stint_limiter *limiter, uint32_t policy_id, uint64_t key,
                               uint64_t now, struct slot *slot, struct stint_verdict *verdict) {
    const struct stint_request request = TAKE(policy_id, key, UINT64_C(1));
    const uint64_t word = policy_word(&limiter->policies[policy_id]);

    return LIKELY((uint32_t)word == EXACT_PLAIN)
               ? decide_slot(limiter, &request, now, WORD_EXACT(word, EXACT_PLAIN), slot, verdict)
               : take_tokens(limiter, policy_id, key, 1, now, verdict);
}

/* One token in the window of the policy's hint (hot_window, hot_unless_overridden). */
static ALWAYS_INLINE bool take_near(struct stint_limiter *limiter, uint32_t policy_id, uint64_t key,
                                    uint64_t now, struct hot *hot, struct stint_verdict *verdict) {
    hot_near(limiter, policy_id, key, hot);
    if (UNLIKELY(hot->slot == NULL))
        return take_new(limiter, policy_id, key, now, verdict);
    if (!hot_room(&limiter->policies[policy_id], 0, hot) || !hot_add(limiter, hot))
        return take_slot(limiter, policy_id, key, now, hot->slot, verdict);
    hot_answer(limiter, policy_id, now, hot, verdict);
    return true;
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

/* There is no such policy; or the handle is read-only, and the request may be a look. */
static NOINLINE bool decide_unknown(struct stint_limiter *limiter,
                                    const struct stint_request *request, uint64_t now,
                                    struct stint_verdict *verdict) {
    if (limiter->reader == NULL || (request->flags & (STINT_PEEK | STINT_CHARGE)) != STINT_PEEK)
        return stint_decision_void(limiter, request, STINT_UNKNOWN_POLICY, verdict);
    return decide_anew(limiter->reader, request, now, verdict);
}

/* One token, by a limit of the request's own. */
static NOINLINE bool take_limited(struct stint_limiter *limiter, uint32_t policy_id, uint64_t key,
                                  uint64_t limit, uint64_t now, struct stint_verdict *verdict) {
    const struct policy *policy = &limiter->policies[policy_id];
    struct hot hot;

    if (LIKELY(hot_window(policy, now, &hot))) {
        hot.home = home_of(&limiter->table, key);
        hot_near(limiter, policy_id, key, &hot);
        if (LIKELY(hot.slot != NULL) && hot_room(policy, limit, &hot) && hot_add(limiter, &hot)) {
            hot_answer(limiter, policy_id, now, &hot, verdict);
            return true;
        }
    }
    return take_tokens(limiter, policy_id, key, limit << 32 | 1, now, verdict);
}

/* With flags, or a burst. */
static NOINLINE bool decide_flagged(struct stint_limiter *limiter,
                                    const struct stint_request *request, uint64_t now,
                                    struct stint_verdict *verdict) {
    if (UNLIKELY(!request_good(request)))
        return stint_decision_void(limiter, request, STINT_BAD_REQUEST, verdict);
    const uint64_t word = policy_word(&limiter->policies[request->policy]);
    const struct stint_request own = OWN(request);
    if ((uint32_t)word == EXACT_CARRIES)
        return decide_known(limiter, &own, now, WORD_EXACT(word, EXACT_CARRIES), verdict);
    if ((uint32_t)word == EXACT_PLAIN && own.flags == STINT_PEEK && (own.limit | own.burst) == 0) {
        const struct stint_request look = {
            .key = own.key, .policy = own.policy, .cost = own.cost, .flags = STINT_PEEK};
        return decide_known(limiter, &look, now, WORD_EXACT(word, EXACT_PLAIN), verdict);
    }
    if ((uint32_t)word == EXACT_PLAIN)
        return decide_known(limiter, &own, now, WORD_EXACT(word, EXACT_PLAIN), verdict);
    return decide_as(limiter, &own, now, word, verdict);
}

bool stint_decide_any(struct stint_limiter *limiter, const struct stint_request *request,
                      uint64_t now, struct stint_verdict *verdict) {
    if (UNLIKELY(request->policy >= limiter->deciding))
        return decide_unknown(limiter, request, now, verdict);
    if (UNLIKELY((request->flags | request_rest(request)) != 0))
        return decide_flagged(limiter, request, now, verdict);
    const uint64_t limit = APART(request->limit), key = request->key.hash;
    return limit != 0 && APART(request->cost) == 1
               ? take_limited(limiter, request->policy, key, limit, now, verdict)
               : take_tokens(limiter, request->policy, key, limit << 32 | request->cost, now,
                             verdict);
}

static NOINLINE bool take_any(struct stint_limiter *limiter, uint32_t policy, uint64_t key,
                              uint32_t cost, uint64_t now, struct stint_verdict *verdict) {
    const struct stint_request request = {.key = {key}, .policy = policy, .cost = cost};
    return stint_decide_any(limiter, &request, now, verdict);
}

bool stint_take(struct stint_limiter *limiter, uint32_t policy_id, stint_key key, uint32_t cost,
                uint64_t now, struct stint_verdict *verdict) {
    const struct policy *policy = &limiter->policies[policy_id];
    struct hot hot;

    now = now_fetching(limiter, key.hash, now);
    if (UNLIKELY(policy_id >= limiter->deciding))
        return take_any(limiter, policy_id, key.hash, cost, now, verdict);
    if (UNLIKELY(cost != 1))
        return take_tokens(limiter, policy_id, key.hash, cost, now, verdict);
    if (UNLIKELY(!hot_window(policy, now, &hot))) {
        if (!hot_unless_overridden(policy, now, &hot))
            return traits_striped((uint32_t)policy_word(policy))
                       ? take_striped(limiter, policy_id, key.hash, cost, now, verdict)
                       : take_tokens(limiter, policy_id, key.hash, cost, now, verdict);
        if (GUARD(OVERRIDE_SEEN, filter_has(&limiter->table, key.hash)))
            return take_overridden(limiter, policy_id, key.hash, now, verdict);
    }
    hot.home = home_of(&limiter->table, key.hash);
    return take_near(limiter, policy_id, key.hash, now, &hot, verdict);
}

bool stint_decide(struct stint_limiter *limiter, const struct stint_request *request, uint64_t now,
                  struct stint_verdict *verdict) {
    if (LIKELY((request->flags | request->limit | request_rest(request)) == 0))
        return stint_take(limiter, request->policy, request->key, request->cost, now, verdict);
    return stint_decide_any(limiter, request, now_fetching(limiter, request->key.hash, now),
                            verdict);
}

size_t stint_decide_batch(struct stint_limiter *limiter, const struct stint_request *requests,
                          size_t n, uint64_t now, struct stint_verdict *verdicts) {
    const struct table *table = &limiter->table;
    struct hot hot;
    struct line *homes[AHEAD];
    size_t allowed = 0;

    /* All home lines first: with the next ones they are more misses than a core keeps under way. */
    for (size_t i = 0; i < n && i < AHEAD; i++)
        __builtin_prefetch(homes[i] = home_of(table, requests[i].key.hash));
    for (size_t i = 0; i < n && i < AHEAD; i++)
        fetch_next(homes[i]);
    if (now == STINT_NOW)
        now = limiter_now(limiter);
    for (size_t i = 0; i < n; i++) {
        const struct stint_request *request = &requests[i];
        struct stint_verdict *verdict = verdicts == NULL ? NULL : &verdicts[i];
        hot.home = homes[i % AHEAD];
        if (i + AHEAD < n)
            homes[i % AHEAD] = fetch_lines(table, request[AHEAD].key.hash);
        const uint32_t policy_id = request->policy;
        const struct policy *policy = &limiter->policies[policy_id];
        if (UNLIKELY(policy_id >= limiter->deciding) ||
            UNLIKELY((request->flags | request->limit | request_rest(request)) != 0) ||
            UNLIKELY(request->cost != 1) || UNLIKELY(!hot_window(policy, now, &hot))) {
            allowed += stint_decide(limiter, request, now, verdict);
            continue;
        }
        allowed += take_near(limiter, policy_id, request->key.hash, now, &hot, verdict);
    }
    return allowed;
}
