/* SPDX-License-Identifier: MIT
 * The whole path: any request whose slot is in its key's first two lines. take.c has the hot ones
 * of it, and the introduction. What finds no slot there, or another window or claim in it than it
 * should, leaves by stint_slot_decide, the long way (stripes.c, settle.c). */
#include "decide.h"

#include "overrides.h"
#include "slot.h"
#include "stripes.h"

/* The whole path. */
static ALWAYS_INLINE bool decide_as(struct stint_limiter *limiter,
                                    const struct stint_request *request, uint64_t now,
                                    struct stint_verdict *verdict, struct known known) {
    struct decision decision = {0};
    struct sight sight;
    bool allowed;

    if (UNLIKELY(decision_begin(&decision, limiter, request, now, known) != 0))
        return stint_slot_decide(limiter, request, now, verdict);
    struct slot *slot = slot_near(&limiter->table, decision.hash, decision.tag);
    if (UNLIKELY(slot == NULL) || /* M1 */
        UNLIKELY(slot_look(&decision, slot, atomic_load_acquire(&slot->state), &sight) !=
                 LOOK_GOOD))
        return stint_slot_decide(limiter, request, now, verdict);
    decision.charge = judge(&decision.terms, sight.count, tick_ns(decision.end) - decision.now);
    if (UNLIKELY(!slot_finish(&decision, &sight, verdict, &allowed)))
        return stint_slot_decide(limiter, request, now, verdict);
    if (known.overrides && strikes(&decision))
        stint_strike(limiter, request->policy, decision.terms.traits, request->key, decision.now,
                     verdict);
    return allowed;
}

/* A look at a plain policy's. */
static NOINLINE bool decide_look(struct stint_limiter *limiter, const struct stint_request *request,
                                 uint64_t now, struct stint_verdict *verdict) {
    const struct known known = {
        .traits = TRAIT_EXISTS | TRAIT_PLAIN, .flags = true, .of_request = STINT_PEEK};
    return decide_as(limiter, request, now, verdict, known);
}

/* A charge by a plain policy. */
static NOINLINE bool decide_charge(struct stint_limiter *limiter,
                                   const struct stint_request *request, uint64_t now,
                                   struct stint_verdict *verdict) {
    const struct known known = {
        .traits = TRAIT_EXISTS | TRAIT_PLAIN, .flags = true, .of_request = STINT_CHARGE};
    return decide_as(limiter, request, now, verdict, known);
}

/* A reservation by a policy that carries tokens over, and does nothing else. */
static NOINLINE bool decide_reserve(struct stint_limiter *limiter,
                                    const struct stint_request *request, uint64_t now,
                                    struct stint_verdict *verdict) {
    const struct known known = {
        .traits = TRAIT_EXISTS | TRAIT_CARRIES, .flags = true, .of_request = STINT_RESERVE};
    return decide_as(limiter, request, now, verdict, known);
}

/* Tokens by any policy of one slot a key. */
bool stint_decide_policy(struct stint_limiter *limiter, const struct stint_request *request,
                         uint64_t now, struct stint_verdict *verdict) {
    return decide_as(limiter, request, now, verdict, (struct known){.flags = true});
}

static NOINLINE bool decide_any(struct stint_limiter *limiter, const struct stint_request *request,
                                uint64_t now, struct stint_verdict *verdict) {
    return decide_as(limiter, request, now, verdict, (struct known){0});
}

bool stint_decide_overrides(struct stint_limiter *limiter, const struct stint_request *request,
                            uint64_t now, struct stint_verdict *verdict) {
    return decide_as(limiter, request, now, verdict, (struct known){.overrides = true});
}

bool stint_decide_apart(struct stint_limiter *limiter, const struct stint_request *request,
                        uint64_t now, struct stint_verdict *verdict) {
    const uint64_t word = policy_traits(&limiter->policies[request->policy]);
    return traits_striped((uint32_t)word) ? stint_slot_decide(limiter, request, now, verdict)
                                          : stint_decide_overrides(limiter, request, now, verdict);
}

bool stint_decide_more(struct stint_limiter *limiter, const struct stint_request *request,
                       uint64_t now, struct stint_verdict *verdict) {
    const uint32_t traits = (uint32_t)policy_traits(&limiter->policies[request->policy]);
    if (UNLIKELY(request->reserved != 0) || UNLIKELY((traits & TRAITS_APART) != 0))
        return stint_decide_apart(limiter, request, now, verdict);
    if (traits == (TRAIT_EXISTS | TRAIT_PLAIN)) {
        if (request->flags == STINT_PEEK)
            return decide_look(limiter, request, now, verdict);
        if (request->flags == STINT_CHARGE)
            return decide_charge(limiter, request, now, verdict);
    }
    if (traits == (TRAIT_EXISTS | TRAIT_CARRIES) && request->flags == STINT_RESERVE)
        return decide_reserve(limiter, request, now, verdict);
    return decide_any(limiter, request, now, verdict);
}

bool stint_decide_unknown(struct stint_limiter *limiter, const struct stint_request *request,
                          uint64_t now, struct stint_verdict *verdict) {
    if (limiter->looking == NULL || (request->flags & (STINT_PEEK | STINT_CHARGE)) != STINT_PEEK)
        return stint_decision_void(limiter, STINT_UNKNOWN_POLICY, verdict);
    return stint_slot_decide(limiter->looking, request,
                             now == STINT_NOW ? limiter_now(limiter) : now, verdict);
}
