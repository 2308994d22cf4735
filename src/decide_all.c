/* SPDX-License-Identifier: MIT
 * Several requests decided as one, and many such groups. Read take.c first: each part goes through
 * the same steps, but all are judged before any is charged.
 *
 *     1 to 4  part_judge    of each part, from what was loaded of its slot
 *     5       part_charge   of each, by one add or swap, if all fit
 *
 * decide_group is these steps for the commonest group: one token each by plain policies. It keeps
 * no more of a part than its slot and state. What is not so simple begins anew in group_any, and a
 * lost race goes on in group_raced.
 *
 * Every part is judged by a state that was loaded, before any is charged. Then each is charged by
 * an add or a swap of its own, which confirms that state (slot.h, slot_look). A part that writes
 * nothing, or does not fit, is confirmed when it is judged.
 *
 * Of parts that share a slot only the first is judged by a load. The others are judged by what the
 * one before will make of the slot, if that is the same key's. Such a predicted state is only used
 * with a swap, which succeeds only if it has come true. It is never added to: if the earlier part
 * loses its race, the slot may be another key's, whose window ends at the same end, and what the
 * add returns would not tell.
 *
 * Some parts cannot be judged so: of a key without a slot near its home, a claim, a later window,
 * stripes. They make the whole group go the long way: a look at each part, then a decision on each.
 * A part that loses its race is decided alone, the long way, too. If it is refused then, what the
 * others took is given back, each into its own window (all_give_back). */
#include "overrides.h"
#include "refund.h"
#include "settle.h"
#include "stripes.h"

/* What part_judge found, and part_charge does about it. */
struct part {
    struct slot *slot;
    uint64_t tag;
    uint64_t seen;  /* the slot's state, as it was loaded */
    uint64_t state; /* that, or what an earlier part will make of it */
    uint64_t next;  /* what it is to be; PART_LONG: the tokens that the part would take, or took */
    enum {
        PART_DONE, /* nothing is to be written */
        PART_ADD,
        PART_SWAP,
        PART_STRIKE, /* likewise; it marks a first refusal, for which a strike is counted */
        /* nothing, if the slot is what earlier parts make of it: decide again after them */
        PART_AGAIN,
        PART_LONG, /* it was only looked at: decide the long way; or it was */
    } how;
    bool last;   /* what it takes may be carried: it could not be given back after a boundary */
    bool shadow; /* PART_STRIKE: by a policy that was a shadow */
};

/* ---- Parts, one by one: the long way --------------------------------------------------------- */

/* Decides on one request as a part of the whole. `took` receives how many tokens it took. */
static NOINLINE bool part_decide(struct stint_limiter *limiter, const struct stint_request *request,
                                 uint32_t part, uint64_t now, struct stint_verdict *verdict,
                                 uint64_t *took) {
    struct decision decision;
    uint32_t why = decision_begin(&decision, limiter, request, now, nothing_known);

    *took = 0;
    if (why != 0)
        why = stint_decision_begin_now(&decision, limiter, request, now, why);
    if (why != 0)
        return stint_decision_void(limiter, why, verdict);
    decision.terms.part |= part;
    const bool allowed = stint_decision_settle(&decision, request, verdict);
    *took = charge_counted(&decision.charge);
    return allowed;
}

/* Asks what would become of a request if `before` tokens of its key had been taken. `would`
 * receives how many it would take. */
static bool part_look(struct stint_limiter *limiter, const struct stint_request *request,
                      uint64_t before, uint64_t now, struct stint_verdict *verdict,
                      uint64_t *would) {
    struct decision decision;
    uint32_t why = decision_begin(&decision, limiter, request, now, nothing_known);

    *would = 0;
    if (why != 0)
        why = stint_decision_begin_now(&decision, limiter, request, now, why);
    if (why == 0 && is_charge(&decision.terms)) /* it could not be refused */
        why = STINT_BAD_REQUEST;
    if (why != 0)
        return stint_decision_void(limiter, why, verdict);
    decision.terms.flags = (request->flags | STINT_PEEK) & ~(uint32_t)STINT_CHARGE;
    decision.terms.before = before;
    bool fits = stint_decision_settle(&decision, request, verdict);
    if (decision.charge.fits && (request->flags & STINT_PEEK) == 0)
        *would = decision.charge.total - decision.charge.used;
    return fits;
}

/* Whether a part is counted as allowed or refused. */
static inline bool counts(const struct stint_request *request) {
    return (request->flags & (STINT_PEEK | STINT_CHARGE)) != STINT_PEEK;
}

/* ---- Judge: steps 1 to 4 --------------------------------------------------------------------- */

/* Tokens that a part would take, or took. */
static inline uint64_t part_tokens(const struct part *part, const struct stint_verdict *verdict) {
    return part->how == PART_LONG ? part->next : verdict->granted;
}

/* The last of the first n parts that is of this slot, or NULL. */
static ALWAYS_INLINE const struct part *part_of_slot(const struct part *parts, size_t n,
                                                     const struct slot *slot) {
    for (size_t i = n; i-- > 0;)
        if (UNLIKELY(parts[i].slot == slot))
            return &parts[i];
    return NULL;
}

/* Judges a part whose key's tag was seen in a slot. Returns false if it is not that simple. */
static ALWAYS_INLINE bool part_judge_in(struct decision *decision, struct slot *slot,
                                        struct part *parts, size_t n,
                                        struct stint_verdict *verdict) {
    struct part *part = &parts[n];
    struct sight sight;

    if (UNLIKELY(slot == NULL))
        return false;
    /* What an earlier part will make of it, or what it is. */
    const struct part *earlier = part_of_slot(parts, n, slot);
    if (UNLIKELY(earlier != NULL && earlier->tag != decision->tag))
        return false; /* it has gone from that key to this one since */
    /* M1: slot_look loads the tag again. */
    uint64_t state = earlier != NULL ? earlier->next : atomic_load_acquire(&slot->state), next;
    if (UNLIKELY(slot_look(decision, slot, state, &sight) != LOOK_GOOD))
        return false;
    decision->charge = judge(&decision->terms, sight.count, tick_ns(decision->end) - decision->now);
    /* No charge will confirm what is refused: another look at the state does. */
    const struct sight seen = {.slot = slot, .state = earlier != NULL ? earlier->seen : state};
    if (!decision->charge.fits && !slot_unchanged(&seen))
        return false;
    if (slot_next(decision, &sight, &next)) {
        /* Not by an add: if an earlier part of the slot loses its race, the slot may be another
         * key's. */
        part->how = PART_SWAP;
        if (strikes(decision)) {
            part->how = PART_STRIKE;
            part->shadow = (decision->terms.traits & STINT_SHADOW) != 0;
        }
    } else {
        if (earlier == NULL && !slot_unchanged(&sight))
            return false;
        part->how = earlier == NULL ? PART_DONE : PART_AGAIN;
        next = state;
    }
    part->slot = slot;
    part->tag = decision->tag;
    part->seen = seen.state;
    part->state = state;
    part->next = next;
    decision->terms.part |= PART_SILENT; /* counted when all are charged */
    (void)decision_end(decision, verdict);
    return true;
}

/* What is seen of the slot of one token by a plain policy. */
struct plain {
    struct slot *slot;
    uint64_t state;
    uint64_t capacity;
    tick_t end;
};

/* Sees such a part by the steps of take() in take.c. Returns false if it is not that simple, or
 * does not fit. */
static ALWAYS_INLINE bool plain_see(const struct stint_limiter *limiter,
                                    const struct stint_request *request, uint64_t now,
                                    struct plain *plain) {
    if (UNLIKELY((request->flags | request->limit | request->reserved) != 0) ||
        UNLIKELY(request->cost != 1) || UNLIKELY(request->policy >= limiter->deciding))
        return false;
    const struct policy *policy = &limiter->policies[request->policy];
    /* Hints (I7): another window, or a policy that is not hot, leaves. */
    const tick_t end = (tick_t)atomic_load_relaxed(&policy->current_end);
    const uint64_t left = tick_ns(end) - now;
    const uint64_t tag = table_tag(&limiter->table, request->key, request->policy);

    /* M10: a limit by which it is charged was raised before. */
    if (UNLIKELY(GUARD(TAKE_WINDOW, left == 0 || atomic_less(&policy->hot_window, left))))
        return false;
    struct slot *slot = slot_near(&limiter->table, request->key, tag);
    if (UNLIKELY(slot == NULL))
        return false;
    /* M10. The state, then the tag again (M1), then the add (M2). */
    const uint64_t capacity = atomic_load_relaxed(&policy->hot_capacity);
    const uint64_t state = atomic_load_acquire(&slot->state); /* M1 */
    *plain = (struct plain){slot, state, capacity, end};
    return !UNLIKELY(GUARD(TAKE_ROOM, state - state_of(end, 0) >= capacity)) &&
           !UNLIKELY(GUARD(TAKE_TAG, atomic_differs(&slot->tag, tag)));
}

/* The verdict on such a part, if the add finds the state that was seen. */
static ALWAYS_INLINE void plain_tell(struct stint_limiter *limiter, uint32_t policy_id,
                                     uint64_t now, const struct plain *plain,
                                     struct stint_verdict *verdict) {
    const uint64_t used = plain->state - state_of(plain->end, 0) + 1;
    struct decision decision = plain_decision(limiter, policy_id, now, plain->end, plain->capacity);
    decision.charge = (struct charge){used, used, used, 1, true};
    decision.terms.part = PART_SILENT; /* counted when all are charged */
    (void)decision_end(&decision, verdict);
}

/* As in take(): an overshoot of one is harmless where one token is asked for, by the policy's own
 * limit. */
static ALWAYS_INLINE struct part plain_part(const struct plain *plain, uint64_t tag) {
    return (struct part){.slot = plain->slot,
                         .tag = tag,
                         .state = plain->state,
                         .seen = plain->state,
                         .next = plain->state + 1,
                         .how = PART_ADD};
}

/* Judges request n of a group by what is loaded of its slot. Returns false if it is not that
 * simple. */
static ALWAYS_INLINE bool part_judge(struct stint_limiter *limiter,
                                     const struct stint_request *request, uint64_t now,
                                     struct part *parts, size_t n, struct stint_verdict *verdict) {
    struct part *part = &parts[n];
    struct plain plain;

    if (plain_see(limiter, request, now, &plain) && part_of_slot(parts, n, plain.slot) == NULL) {
        *part = plain_part(&plain, table_tag(&limiter->table, request->key, request->policy));
        plain_tell(limiter, request->policy, now, &plain, verdict);
        return true;
    }
    struct decision decision = {0};
    *part = (struct part){.how = PART_LONG};
    if (UNLIKELY(decision_begin(&decision, limiter, request, now, nothing_known) != 0))
        return false;
    part->last = (decision.terms.traits & TRAIT_CARRIES) != 0;
    if (UNLIKELY(is_charge(&decision.terms) || traits_striped(decision.terms.traits)) ||
        UNLIKELY((decision.terms.part & PART_ENDLESS) != 0)) /* more is granted than it takes */
        return false;
    return part_judge_in(&decision, slot_near(&limiter->table, decision.hash, decision.tag), parts,
                         n, verdict);
}

/* Whether two requests are judged by one count. */
static inline bool same_count(const struct stint_request *one, const struct stint_request *other) {
    return one->key == other->key && one->policy == other->policy;
}

/* Tokens of the same key that earlier parts would take, of those that were only looked at. */
static uint64_t taken_before(const struct stint_request *requests, const struct part *parts,
                             size_t n) {
    uint64_t tokens = 0;
    for (size_t i = 0; i < n; i++)
        if (parts[i].how == PART_LONG && same_count(&requests[i], &requests[n]))
            tokens += parts[i].next;
    return tokens;
}

/* ---- Charge: step 5 -------------------------------------------------------------------------- */

/* A fetch-add returned another state than was judged. If it was of the same window, and there was
 * room, only the verdict changes. Returns whether the tokens were had. */
static NOINLINE bool part_added(struct stint_limiter *limiter, const struct stint_request *request,
                                struct part *part, uint64_t now, uint64_t added,
                                struct stint_verdict *verdict) {
    const uint64_t window = part->state & ~USED_MASK, used = added - window;
    struct decision decision;

    if (LIKELY(!GUARD(PARTS_ADDED, used >= verdict->capacity))) {
        verdict->used = (uint32_t)used + 1;
        verdict->remaining = verdict->capacity - verdict->used;
        return true;
    }
    part->how = PART_LONG;
    if (decision_begin(&decision, limiter, request, now, nothing_known) != 0) /* it is gone */
        return part_decide(limiter, request, PART_QUIET, now, verdict, &part->next);
    decision.terms.part |= PART_QUIET;
    stint_slot_settle_added(&decision,
                            &(struct added){part->slot, window, added, verdict->capacity});
    if (UNLIKELY((decision.flags & DECISION_GONE) != 0))
        return part_decide(limiter, request, PART_QUIET, now, verdict, &part->next);
    part->next = charge_counted(&decision.charge);
    return decision_end(&decision, verdict);
}

/* Charges a part as it was judged; what lost a race goes the long way. Returns whether it was
 * allowed. */
static ALWAYS_INLINE bool part_charge(struct stint_limiter *limiter,
                                      const struct stint_request *request, struct part *part,
                                      uint64_t now, struct stint_verdict *verdict) {
    switch (part->how) {
    case PART_DONE:
        return true;
    case PART_ADD: {
        INSTANT(INSTANT_LOADED);
        /* M2, M3 */
        uint64_t added = atomic_fetch_add_seq(&part->slot->state, 1);
        return LIKELY(added == part->state) ||
               part_added(limiter, request, part, now, added, verdict);
    }
    case PART_SWAP:
        if (LIKELY(slot_swap(part->slot, part->tag, part->state, part->next)))
            return true;
        break;
    case PART_STRIKE:
        if (!slot_swap(part->slot, part->tag, part->state, part->next))
            break;
        stint_strike(limiter, request->policy, part->shadow ? STINT_SHADOW : 0, request->key, now,
                     verdict);
        return true;
    default:
        break;
    }
    part->how = PART_LONG;
    return part_decide(limiter, request, PART_QUIET, now, verdict, &part->next);
}

/* ---- The whole ------------------------------------------------------------------------------- */

/* Whether there is no verdict on a request but that it makes no sense, or has no policy. */
static inline bool is_void(const struct stint_verdict *verdict) {
    return (verdict->flags & (STINT_UNKNOWN_POLICY | STINT_BAD_REQUEST)) != 0;
}

/* ns until all requests that are judged by the count of request `part` fit, one after the other:
 * each beside the whole costs of those before it, whatever these would take now. 0: it is the only
 * one, or all fit. */
static uint64_t wait_together(struct stint_limiter *limiter, const struct stint_request *requests,
                              size_t n, size_t part, uint64_t now,
                              const struct stint_verdict *verdicts) {
    uint64_t taken = 0, wait = 0;
    bool alone = true;

    for (size_t i = 0; i < n; i++)
        alone &= i == part || is_void(&verdicts[i]) || !same_count(&requests[i], &requests[part]);
    for (size_t i = 0; !alone && i < n; i++) {
        if (is_void(&verdicts[i]) || !same_count(&requests[i], &requests[part]))
            continue;
        struct stint_request look = requests[i];
        struct stint_verdict verdict;
        uint64_t would, cost = taken + look.cost;
        if ((look.flags & STINT_PEEK) == 0)
            taken = cost;
        look.cost = cost < UINT32_MAX ? (uint32_t)cost : UINT32_MAX; /* more never fits */
        look.flags &= ~(uint32_t)STINT_PARTIAL;
        if (!part_look(limiter, &look, 0, now, &verdict, &would) && verdict.retry_after > wait)
            wait = verdict.retry_after;
    }
    return wait;
}

/* What an earlier part of the same count was told to wait, if nothing was marked since; 0: nothing.
 * So a count is looked at twice for each part, at most. */
static uint64_t wait_told(const struct stint_request *requests, size_t part,
                          const struct stint_verdict *verdicts) {
    for (size_t i = 0; i < part; i++)
        if (!verdicts[i].allowed && !is_void(&verdicts[i]) &&
            same_count(&requests[i], &requests[part]) &&
            (counts(&requests[i]) || !counts(&requests[part])))
            return verdicts[i].retry_after;
    return 0;
}

/* Refuses the whole. A part that does not fit is refused in earnest, marked and counted. Of the
 * others the verdict is that of a look. */
static NOINLINE bool all_refuse(struct stint_limiter *limiter, const struct stint_request *requests,
                                size_t n, uint64_t now, struct stint_verdict *verdicts) {
    for (size_t i = 0; i < n; i++) {
        const struct stint_request *request = &requests[i];
        struct stint_verdict *verdict = &verdicts[i];
        if (is_void(verdict))
            continue;
        uint64_t would;
        if (verdict->allowed && part_look(limiter, request, 0, now, verdict, &would))
            continue;
        if (counts(request)) { /* told beside the tokens of earlier parts of the key */
            struct stint_verdict marked;
            uint64_t took;
            (void)part_decide(limiter, request, PART_REFUSED, now, &marked, &took);
            if (UNLIKELY(marked.allowed)) { /* by a shadow since the look, or without a slot */
                marked.allowed = false;
                marked.flags &= ~(uint32_t)STINT_SHADOWED;
                marked.granted = 0;
            }
            /* A policy that has replaced it since counts anew. */
            if (!is_void(&marked) && !policy_gone(&limiter->policies[request->policy]) &&
                marked.used < verdict->used) {
                marked.flags |= verdict->flags & STINT_NEAR_LIMIT;
                marked.used = verdict->used;
                marked.remaining =
                    marked.used < marked.capacity ? marked.capacity - marked.used : 0;
            }
            *verdict = marked;
        }
        if (is_void(verdict)) /* its policy is gone since */
            continue;
        /* After the mark, which may have put a late caller's key into a later window, or have
         * banned the key. */
        uint64_t wait = wait_told(requests, i, verdicts);
        if (wait == 0 && GUARDED(PARTS_WAIT))
            wait = wait_together(limiter, requests, n, i, now, verdicts);
        if (wait != 0)
            verdict->retry_after = wait;
    }
    return false;
}

/* Gives back what the parts took before one was refused after all: what was counted, as a key
 * that is never refused is granted more than that. */
static NOINLINE bool all_give_back(struct stint_limiter *limiter,
                                   const struct stint_request *requests, const struct part *parts,
                                   size_t n, uint64_t taken, struct stint_verdict *verdicts) {
    size_t refused = 0;

    for (size_t i = 0; i < n; i++) {
        struct stint_verdict *verdict = &verdicts[i];
        const uint32_t tokens = (uint32_t)part_tokens(&parts[i], verdict);
        bool had = (taken >> i & 1) != 0; /* else it was only judged */
        if (had &&
            (verdict->flags & STINT_FIRST_REFUSAL) != 0) /* a shadow's: it is not seen again */
            limiter_count(limiter, requests[i].policy, COUNT_FIRST_REFUSAL);
        if (!verdict->allowed) {
            refused = i;
            continue;
        }
        if (!had)
            verdict->flags &= ~(uint32_t)STINT_FIRST_REFUSAL; /* it was not marked */
        if (GUARD(PARTS_BACK, had && tokens != 0))
            (void)stint_key_refund(limiter, requests[i].policy, requests[i].key, tokens,
                                   verdict->window);
        verdict->used -= tokens < verdict->used ? tokens : verdict->used;
        verdict->remaining =
            verdict->used < verdict->capacity ? verdict->capacity - verdict->used : 0;
        verdict->granted = 0;
        if ((verdict->flags & STINT_SHADOWED) == 0)
            verdict->retry_after = 0;
    }
    struct stint_verdict *verdict = &verdicts[refused];
    const uint64_t now = verdict->window - verdict->reset_after; /* untracked: unknown */
    const uint64_t wait =
        verdict->window == 0 ? 0 : wait_together(limiter, requests, n, refused, now, verdicts);
    if (wait != 0)
        verdict->retry_after = wait;
    return false;
}

/* Refuses requests that are no group: too many, or what is left where the ends of groups fall. */
static NOINLINE bool all_bad(struct stint_limiter *limiter, size_t n,
                             struct stint_verdict *verdicts) {
    for (size_t i = 0; i < n; i++)
        (void)stint_decision_void(limiter, STINT_BAD_REQUEST,
                                  verdicts == NULL ? NULL : &verdicts[i]);
    return false;
}

/* What a group has come to that was asked for anew. */
enum again { NOT_REPLACED, AGAIN_REFUSED, AGAIN_ALLOWED };

static enum again group_by_replacements(struct stint_limiter *limiter,
                                        const struct stint_request *requests, size_t n,
                                        uint64_t now, struct stint_verdict *verdicts);

/* Counts the parts of a group that was allowed. */
static bool all_count(struct stint_limiter *limiter, const struct stint_request *requests, size_t n,
                      const struct stint_verdict *verdicts) {
    for (size_t i = 0; i < n; i++)
        if (counts(&requests[i]))
            decision_count(limiter, requests[i].policy, verdicts[i].flags, true);
    return true;
}

/* Where a group of plain parts has lost a race. */
struct lost {
    const struct plain *plain;
    size_t part;
    uint64_t added; /* what its add returned */
};

/* The parts before that one were charged as they were judged; the others are now, as those of any
 * group. */
static NOINLINE bool group_raced(struct stint_limiter *limiter,
                                 const struct stint_request *requests, size_t n, uint64_t now,
                                 struct stint_verdict *verdicts, const struct lost *lost) {
    struct stint_verdict own[STINT_ALL_MAX];
    struct part parts[STINT_ALL_MAX];

    if (verdicts == NULL)
        verdicts = own;
    for (size_t i = 0; i < n; i++) {
        const uint64_t tag = table_tag(&limiter->table, requests[i].key, requests[i].policy);
        parts[i] = plain_part(&lost->plain[i], tag);
        if (verdicts == own || i >= lost->part)
            plain_tell(limiter, requests[i].policy, now, &lost->plain[i], &verdicts[i]);
    }
    for (size_t i = lost->part; i < n; i++)
        if (!(i == lost->part
                  ? part_added(limiter, &requests[i], &parts[i], now, lost->added, &verdicts[i])
                  : part_charge(limiter, &requests[i], &parts[i], now, &verdicts[i])))
            return all_give_back(limiter, requests, parts, n, (UINT64_C(1) << i) - 1, verdicts);
    return all_count(limiter, requests, n, verdicts);
}

static ALWAYS_INLINE bool group_decide(struct stint_limiter *limiter,
                                       const struct stint_request *requests, size_t n, uint64_t now,
                                       struct stint_verdict *verdicts) {
    struct stint_verdict own[STINT_ALL_MAX];
    struct part parts[STINT_ALL_MAX];
    uint64_t taken = 0; /* a bit for each request */
    bool fit = true, last = false;

    if (verdicts == NULL)
        verdicts = own;
    for (size_t i = 0; i < n; i++) {
        if (UNLIKELY(!part_judge(limiter, &requests[i], now, parts, i, &verdicts[i]))) {
            if (requests[i].policy < limiter->deciding &&
                policy_gone(&limiter->policies[requests[i].policy])) {
                enum again again = group_by_replacements(limiter, requests, n, now, verdicts);
                if (again != NOT_REPLACED)
                    return again == AGAIN_ALLOWED;
            }
            (void)part_look(limiter, &requests[i], taken_before(requests, parts, i), now,
                            &verdicts[i], &parts[i].next);
        }
        fit &= verdicts[i].allowed;
        last |= parts[i].last;
    }
    if (!fit)
        return all_refuse(limiter, requests, n, now, verdicts);
    /* Those last that could not be given back after a boundary. */
    for (size_t i = 0; i < n; i++) {
        if (UNLIKELY(parts[i].last))
            continue;
        if (UNLIKELY(!part_charge(limiter, &requests[i], &parts[i], now, &verdicts[i])))
            return all_give_back(limiter, requests, parts, n, taken, verdicts);
        taken |= UINT64_C(1) << i;
    }
    for (size_t i = 0; last && i < n; i++) {
        if (!parts[i].last)
            continue;
        if (!part_charge(limiter, &requests[i], &parts[i], now, &verdicts[i]))
            return all_give_back(limiter, requests, parts, n, taken, verdicts);
        taken |= UINT64_C(1) << i;
    }
    return all_count(limiter, requests, n, verdicts);
}

/* A part's policy has no decisions. If it was replaced, asks anew by the policies that are there
 * now: parts of one key must find each other, whatever ids they have. Nothing was charged yet, nor
 * counted. Not by stint_decide_all, which would no longer be inlined if it called itself. */
static NOINLINE enum again group_by_replacements(struct stint_limiter *limiter,
                                                 const struct stint_request *requests, size_t n,
                                                 uint64_t now, struct stint_verdict *verdicts) {
    struct stint_request by_now[STINT_ALL_MAX];
    bool replaced = false;

    for (size_t i = 0; i < n; i++) {
        by_now[i] = requests[i];
        uint32_t id = stint_limiter_policy_now(limiter, requests[i].policy);
        if (id == requests[i].policy || id == POLICY_NONE)
            continue;
        by_now[i].policy = id;
        replaced = true;
    }
    if (!replaced)
        return NOT_REPLACED;
    return group_decide(limiter, by_now, n, now, verdicts) ? AGAIN_ALLOWED : AGAIN_REFUSED;
}

/* Any group, from the beginning. */
static NOINLINE bool group_any(struct stint_limiter *limiter, const struct stint_request *requests,
                               size_t n, uint64_t now, struct stint_verdict *verdicts) {
    return UNLIKELY(n > STINT_ALL_MAX) ? all_bad(limiter, n, verdicts)
                                       : group_decide(limiter, requests, n, now, verdicts);
}

/* A group of plain parts that fit, of slots that differ, is charged from what was seen; any other
 * is decided from the beginning. */
static ALWAYS_INLINE bool decide_group(struct stint_limiter *limiter,
                                       const struct stint_request *requests, size_t n, uint64_t now,
                                       struct stint_verdict *verdicts) {
    struct plain plain[STINT_ALL_MAX];

    if (n == 1 && (requests->flags & STINT_CHARGE) == 0)
        return stint_decide(limiter, requests, now, verdicts);
    if (UNLIKELY(n > STINT_ALL_MAX))
        return group_any(limiter, requests, n, now, verdicts);
    for (size_t i = 0; i < n; i++) {
        if (UNLIKELY(!plain_see(limiter, &requests[i], now, &plain[i])))
            return group_any(limiter, requests, n, now, verdicts);
        for (size_t j = 0; j < i; j++)
            if (UNLIKELY(plain[j].slot == plain[i].slot))
                return group_any(limiter, requests, n, now, verdicts);
    }
    for (size_t i = 0; i < n; i++) {
        INSTANT(INSTANT_LOADED);
        uint64_t added = atomic_fetch_add_seq(&plain[i].slot->state, 1); /* M2, M3 */
        if (UNLIKELY(added != plain[i].state)) {
            const struct lost lost = {plain, i, added};
            return group_raced(limiter, requests, n, now, verdicts, &lost);
        }
        plain_tell(limiter, requests[i].policy, now, &plain[i],
                   verdicts == NULL ? NULL : &verdicts[i]);
    }
    for (size_t i = 0; i < n; i++)
        limiter_count(limiter, requests[i].policy, COUNT_ALLOWED);
    return true;
}

bool stint_decide_all(struct stint_limiter *limiter, const struct stint_request *requests, size_t n,
                      uint64_t now, struct stint_verdict *verdicts) {
    for (size_t i = 0; n > 1 && i < n && i < STINT_ALL_MAX; i++)
        fetch_lines(&limiter->table, requests[i].key);
    if (now == STINT_NOW)
        now = limiter_now(limiter);
    return decide_group(limiter, requests, n, now, verdicts);
}

size_t stint_decide_groups(struct stint_limiter *limiter, const struct stint_request *requests,
                           const size_t *ends, size_t groups, uint64_t now,
                           struct stint_verdict *verdicts) {
    const size_t n = groups == 0 ? 0 : ends[groups - 1];
    size_t fetched = 0, begin = 0, allowed = 0;

    if (now == STINT_NOW)
        now = limiter_now(limiter);
    for (size_t i = 0; i < groups; begin = ends[i++]) {
        /* It falls, or a later one does. */
        if (UNLIKELY(GUARD(GROUPS_ENDS, ends[i] - begin > n - begin))) {
            (void)all_bad(limiter, n - begin, verdicts == NULL ? NULL : verdicts + begin);
            break;
        }
        for (; fetched < n && fetched < ends[i] + AHEAD; fetched++)
            fetch_lines(&limiter->table, requests[fetched].key);
        allowed += decide_group(limiter, requests + begin, ends[i] - begin, now,
                                verdicts == NULL ? NULL : verdicts + begin);
    }
    return allowed;
}

uint64_t stint_refund_all(struct stint_limiter *limiter, const struct stint_request *requests,
                          const struct stint_verdict *verdicts, size_t n) {
    uint64_t back = 0;

    for (size_t i = 0; i < n; i++)
        if (verdicts[i].granted != 0)
            back += stint_refund(limiter, requests[i].policy, requests[i].key, verdicts[i].granted,
                                 verdicts[i].window);
    return back;
}
