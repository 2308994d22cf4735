/* SPDX-License-Identifier: MIT
 * A group in which each part takes what it asks for, from a slot that its key has, or one that it
 * claims near its home: the steps of core.h, taken together (group_few, group_near). If a part
 * cannot be charged after all, the tokens before it are given back. */
#ifndef STINT_GROUP_NEAR_H
#define STINT_GROUP_NEAR_H

#include "decide.h"
#include "fast.h"
#include "feature/stripe.h"

static ALWAYS_INLINE struct stint_verdict *verdict_at(struct stint_verdict *verdicts, size_t i) {
    return verdicts == NULL ? NULL : &verdicts[i];
}

/* A part that fits: what was seen of it, and what it makes of that. */
struct part {
    struct hot hot; /* its slot, and what an add charges and answers */
    bool swaps;     /* no add counts it, but a swap, and the rest is of that: */
    uint64_t state, next;
    uint64_t count;
    uint64_t now; /* it may have moved */
    uint64_t unit, reciprocal;
    uint32_t traits, special;
};

/* Parts of a group whose steps are taken together, at most: their structs are on the stack. */
#define NEAR_MOST 8

/* Looks at one token by a policy with the fast way, in the window of its hint. */
static ALWAYS_INLINE bool part_hot(const struct stint_limiter *limiter,
                                   const struct stint_request *request, uint64_t now,
                                   struct hot *hot) {
    const uint32_t id = request->policy;
    const struct policy *policy = &limiter->policies[id];

    if (UNLIKELY((request->flags | request->limit | request_rest(request)) != 0) ||
        UNLIKELY(request->cost != 1) || UNLIKELY(id >= limiter->deciding) ||
        !hot_window(policy, now, hot))
        return false;
    hot->tag = table_tag(&limiter->table, request->key.hash, id);
    const struct far far = look_for(&limiter->table, request->key.hash, hot->tag);
    hot->slot = far.slot;
    if (LIKELY(far.slot != NULL))
        return hot_room(policy, 0, hot);
    hot->identity = policy_identity(policy);
    hot->capacity = atomic_load_relaxed(&policy->hot_capacity); /* M12 */
    hot->count = 1;
    return far.unused != 0 && hot->capacity != 0 && (uint32_t)policy_word(policy) == EXACT_PLAIN;
}

/* Claims a slot for a token of a new key. Returns the end of its window; 0: it is not simple. */
static NOINLINE tick_t part_claim(struct stint_limiter *limiter,
                                  const struct stint_request *request, uint64_t now) {
    struct decision decision;

    return place_token(&decision, limiter, request->policy, request->key.hash, now) ? decision.end
                                                                                    : 0;
}

static ALWAYS_INLINE bool part_as(struct stint_limiter *limiter,
                                  const struct stint_request *request, uint64_t now, uint64_t word,
                                  struct part *part) {
    const struct stint_request own = {.key = request->key,
                                      .policy = request->policy,
                                      .cost = request->cost,
                                      .limit = request->limit};
    struct decision decision;
    struct seen seen;
    uint64_t next;
    tick_t end;

    /* As decision_begin_known; through that, gcc takes what is begun for uninitialized. */
    decision.limiter = limiter;
    decision.terms.special = 0;
    if (UNLIKELY(
            !moment_known(limiter, &limiter->policies[own.policy], (uint32_t)word, now, &end)) ||
        UNLIKELY(decision_begin_at(&decision, own.policy, &own, (struct moment){now, end}, word,
                                   false) != 0))
        return false;
    seen.slot = slot_of(&limiter->table, decision.hash, decision.tag);
    if (UNLIKELY(seen.slot == NULL))
        return false;
    seen.state = atomic_load_acquire(&seen.slot->state); /* M1; the swap confirms it: M2 */
    if (UNLIKELY(slot_look(&decision, &seen) != LOOK_GOOD))
        return false;
    decision_judge(&decision, &seen);
    if (!decision.charge.fits || !slot_next(&decision, &seen, &next))
        return false;
    part->hot.identity = decision.identity;
    part->hot.slot = seen.slot;
    part->hot.tag = decision.tag;
    part->hot.capacity = decision.terms.capacity;
    part->hot.count = decision.charge.used;
    part->hot.end = decision.end;
    part->swaps = true;
    part->state = seen.state;
    part->next = next;
    part->count = decision.charge.count;
    part->now = decision.now;
    part->unit = decision.terms.unit;
    part->reciprocal = decision.terms.reciprocal;
    part->traits = (uint32_t)word;
    part->special = decision.terms.special;
    return true;
}

/* By any other word. */
static NOINLINE bool part_other(struct stint_limiter *limiter, const struct stint_request *request,
                                uint64_t now, uint64_t word, struct part *part) {
    return (word & RULE_BUCKET) == 0
               ? part_as(limiter, request, now, word & ~(uint64_t)TRAITS_STRIPED, part)
               : part_as(limiter, request, now, word | RULE_BUCKET, part);
}

/* Looks at a part that takes tokens, and does nothing else; none that carries over (all_twice). */
static ALWAYS_INLINE bool part_near(struct stint_limiter *limiter,
                                    const struct stint_request *request, uint64_t now,
                                    struct part *part) {
    struct hot hot = {.count = 0}; /* until it is charged */

    if (part_hot(limiter, request, now, &hot)) {
        part->hot = hot;
        part->swaps = false;
        return true;
    }
    if (UNLIKELY((request->flags | request_rest(request)) != 0) ||
        UNLIKELY(request->policy >= limiter->deciding))
        return false;
    const uint64_t word = policy_word(&limiter->policies[request->policy]);
    if (UNLIKELY((word & TRAIT_EXISTS) == 0) || (word & (TRAITS_STRIPED | TRAIT_CARRIES)) != 0)
        return false;
    if ((uint32_t)word == EXACT_PLAIN)
        return part_as(limiter, request, now, WORD_EXACT(word, EXACT_PLAIN), part);
    if ((uint32_t)word == EXACT_BUCKET)
        return part_as(limiter, request, now, EXACT_BUCKET, part);
    struct part seen; /* so that *part need not be in memory */
    if (!part_other(limiter, request, now, word, &seen))
        return false;
    *part = seen;
    return true;
}

/* Gives back the tokens of the first n parts, as the next one could not be charged after all. */
static NOINLINE bool parts_give_back(const struct stint_limiter *limiter,
                                     const struct stint_request *requests, const struct part *parts,
                                     size_t n) {
    while (n-- > 0) {
        const struct part *part = &parts[n];
        struct stint_verdict verdict = {.window = tick_ns(part->hot.end)};

        if (part->swaps && (part->traits & RULE_BUCKET) != 0) {
            verdict.window = part->now + part->count;
            verdict.unit = part->unit;
        }
        memcpy(&verdict.policy, &part->hot.identity, sizeof(uint64_t));
        if (GUARDED(PARTS_BACK))
            (void)stint_key_refund(limiter, requests[n].key.hash, &verdict, requests[n].cost);
    }
    return false;
}

/* Charges a part. Returns false if its slot has changed since it was looked at. */
static ALWAYS_INLINE bool part_charge(struct stint_limiter *limiter,
                                      const struct stint_request *request, uint64_t now,
                                      struct part *part) {
    if (part->swaps)
        return slot_swap(part->hot.slot, part->hot.tag, part->state, part->next);
    if (LIKELY(part->hot.slot != NULL))
        return hot_add(limiter, &part->hot);
    part->hot.end = part_claim(limiter, request, now);
    return part->hot.end != 0;
}

static ALWAYS_INLINE void part_answer(struct stint_limiter *limiter,
                                      const struct stint_request *request, uint64_t now,
                                      const struct part *part, struct stint_verdict *verdict) {
    const uint64_t capacity = part->hot.capacity, used = part->hot.count;

    if (!part->swaps) {
        hot_answer(limiter, request->policy, now, &part->hot, verdict);
        return;
    }
    const struct decision decision = {
        .identity = part->hot.identity,
        .limiter = limiter,
        .policy = &limiter->policies[request->policy],
        .policy_id = request->policy,
        .now = part->now,
        .end = part->hot.end,
        .terms = {.traits = part->traits,
                  .special = part->special,
                  .cost = request->cost,
                  .capacity = capacity,
                  .room = capacity,
                  .unit = part->unit,
                  .reciprocal = part->reciprocal},
        .charge = {part->count, used, used, request->cost, true, request->cost},
    };
    (void)decision_answer(&decision, verdict);
}

/* Two or three parts (`n` is constant): what is known of them stays in registers, as far as may be.
 * All are charged before the first verdict is written: a charge waits for the stores before it. */
static ALWAYS_INLINE bool group_few(struct stint_limiter *limiter,
                                    const struct stint_request *requests, size_t n, uint64_t now,
                                    struct stint_verdict *verdicts) {
    struct part one, two, three = {.swaps = false};

    if (!part_near(limiter, &requests[0], now, &one) ||
        !part_near(limiter, &requests[1], now, &two) || UNLIKELY(one.hot.tag == two.hot.tag))
        return false;
    if (n > 2 && (!part_near(limiter, &requests[2], now, &three) ||
                  UNLIKELY(one.hot.tag == three.hot.tag) || UNLIKELY(two.hot.tag == three.hot.tag)))
        return false;
    if (UNLIKELY(!part_charge(limiter, &requests[0], now, &one)))
        return false;
    const bool both = LIKELY(part_charge(limiter, &requests[1], now, &two));
    if (UNLIKELY(!both) || (n > 2 && UNLIKELY(!part_charge(limiter, &requests[2], now, &three)))) {
        const struct part charged[2] = {one, two}; /* so that these need not be in memory */
        return parts_give_back(limiter, requests, charged, both ? 2 : 1);
    }
    part_answer(limiter, &requests[0], now, &one, verdict_at(verdicts, 0));
    part_answer(limiter, &requests[1], now, &two, verdict_at(verdicts, 1));
    if (n > 2)
        part_answer(limiter, &requests[2], now, &three, verdict_at(verdicts, 2));
    return true;
}

static NOINLINE bool group_near(struct stint_limiter *limiter, const struct stint_request *requests,
                                size_t n, uint64_t now, struct stint_verdict *verdicts) {
    struct part parts[NEAR_MOST];

    for (size_t i = 0; i < n; i++) {
        if (!part_near(limiter, &requests[i], now, &parts[i]))
            return false;
        for (size_t j = 0; j < i; j++)
            if (UNLIKELY(parts[j].hot.tag == parts[i].hot.tag))
                return false;
    }
    for (size_t i = 0; i < n; i++)
        if (UNLIKELY(!part_charge(limiter, &requests[i], now, &parts[i])))
            return parts_give_back(limiter, requests, parts, i);
    for (size_t i = 0; i < n; i++)
        part_answer(limiter, &requests[i], now, &parts[i], verdict_at(verdicts, i));
    return true;
}

#endif
