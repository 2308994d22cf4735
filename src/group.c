/* SPDX-License-Identifier: MIT
 * Several requests decided as one, and many such groups: looks, then decisions, then refunds.
 *
 *     part_look     looks at each part alone
 *     all_take      all fit: decides each; if one is refused after all, gives the others back
 *     all_refuse    else: decides each that does not fit, so that it is counted and marked
 *
 * A caller could write the same with stint_decide and stint_refund: nothing holds for a part that
 * does not hold for a request alone.
 *
 * Where each part takes what it asks for, from a slot that its key has, the steps of core.h are
 * taken together (group_few, group_near). If one cannot be charged after all, the tokens before it
 * are given back. What they leave goes to group_decide. */
#include "calls.h"
#include "fast.h"

static ALWAYS_INLINE struct stint_verdict *verdict_at(struct stint_verdict *verdicts, size_t i) {
    return verdicts == NULL ? NULL : &verdicts[i];
}

/* ---- Any group ------------------------------------------------------------------------------- */

/* Whether a part is decided if all fit. Else its look is its answer. */
static inline bool decides(const struct stint_request *request) {
    return (request->flags & (STINT_PEEK | STINT_CHARGE)) != STINT_PEEK;
}

static bool part_look(struct stint_limiter *limiter, const struct stint_request *request,
                      uint64_t now, struct stint_verdict *verdict) {
    const uint32_t flags = request->flags;
    struct stint_request look = *request;
    uint32_t traits = 0;

    if ((flags & STINT_CHARGE) != 0) /* which no look has */
        (void)stint_limiter_policy_and_traits(limiter, request->policy, &traits);
    if (UNLIKELY((flags & (STINT_PEEK | STINT_CHARGE)) == STINT_CHARGE) || /* never refused */
        UNLIKELY(!request_good(request)) ||
        UNLIKELY(traits != 0 && !request_suits(request, traits)))
        return stint_decision_void(limiter, request, STINT_BAD_REQUEST, verdict);
    look.flags = (flags | STINT_PEEK) & ~(uint32_t)STINT_CHARGE;
    return stint_decide_any(limiter, &look, now, verdict);
}

/* Gives back what a part took. Its look stands, with what no look tells. */
static void part_give_back(struct stint_limiter *limiter, const struct stint_request *request,
                           struct stint_verdict *decided, struct stint_verdict *look) {
    const uint32_t shadowed = /* of a shadow's first refusal */
        look->allowed && (decided->flags & STINT_FIRST_REFUSAL) != 0 ? STINT_SHADOWED : 0;

    look->flags |= decided->flags & (STINT_FIRST_REFUSAL | STINT_REPLACED | shadowed);
    if (GUARDED(PARTS_BACK))
        (void)stint_refund(limiter, request->key, decided, decided->granted);
}

/* Decides each part that does not fit. `verdicts` are the looks. */
static bool all_refuse(struct stint_limiter *limiter, const struct stint_request *requests,
                       size_t n, uint64_t now, struct stint_verdict *verdicts) {
    const uint32_t is_void = STINT_UNKNOWN_POLICY | STINT_BAD_REQUEST;

    for (size_t i = 0; i < n; i++) {
        struct stint_verdict decided;
        if (verdicts[i].allowed || (verdicts[i].flags & is_void) != 0 || !decides(&requests[i]))
            continue;
        if (stint_decide_any(limiter, &requests[i], now, &decided)) /* it fits by now */
            part_give_back(limiter, &requests[i], &decided, &verdicts[i]);
        else
            verdicts[i] = decided;
    }
    return false;
}

/* Decides those in `last` after the others (a bit for each part). `verdicts` are the looks. */
static NOINLINE bool all_take(struct stint_limiter *limiter, const struct stint_request *requests,
                              size_t n, uint64_t last, uint64_t now,
                              struct stint_verdict *verdicts) {
    struct stint_verdict decided[STINT_ALL_MAX];
    size_t order[STINT_ALL_MAX], parts = 0, taken = 0;

    for (uint64_t late = 0; late < 2; late++)
        for (size_t i = 0; i < n; i++)
            if (decides(&requests[i]) && (last >> i & 1) == late)
                order[parts++] = i;
    while (taken < parts &&
           stint_decide_any(limiter, &requests[order[taken]], now, &decided[order[taken]]))
        taken++;
    for (size_t i = 0; i < taken; i++) {
        const size_t part = order[i];
        if (LIKELY(taken == parts))
            verdicts[part] = decided[part];
        else
            part_give_back(limiter, &requests[part], &decided[part], &verdicts[part]);
    }
    if (UNLIKELY(taken < parts))
        verdicts[order[taken]] = decided[order[taken]];
    return taken == parts;
}

static NOINLINE bool all_bad(struct stint_limiter *limiter, const struct stint_request *requests,
                             size_t n, struct stint_verdict *verdicts) {
    for (size_t i = 0; i < n; i++)
        (void)stint_decision_void(limiter, &requests[i], STINT_BAD_REQUEST,
                                  verdict_at(verdicts, i));
    return false;
}

/* Whether two parts are of one key by one policy. `last` receives those that carry over: after a
 * boundary their tokens could not be given back. */
static bool all_twice(const struct stint_limiter *limiter, const struct stint_request *requests,
                      size_t n, uint64_t *last) {
    uint32_t ids[STINT_ALL_MAX];
    bool twice = false;

    *last = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t traits = 0;
        ids[i] = stint_limiter_policy_and_traits(limiter, requests[i].policy, &traits);
        if (ids[i] == POLICY_NONE)
            continue;
        if ((traits & TRAIT_CARRIES) != 0)
            *last |= UINT64_C(1) << i;
        for (size_t j = 0; j < i; j++)
            twice |= requests[i].key.hash == requests[j].key.hash && ids[i] == ids[j];
    }
    return twice;
}

static void all_mistaken(const struct stint_limiter *limiter, struct stint_verdict *verdicts,
                         size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (verdicts[i].policy >= limiter->deciding) /* it was not decided */
            continue;
        verdicts[i].flags |= STINT_MISTAKEN_NOW;
        stint_limiter_count_rare(limiter, verdicts[i].policy, RARE_NOW_MISTAKEN);
    }
}

/* Any group, of two or more. Its now is checked once, so that all parts have the same. */
static bool group_decide(struct stint_limiter *limiter, const struct stint_request *requests,
                         size_t n, uint64_t given, struct stint_verdict *verdicts) {
    struct stint_verdict own[STINT_ALL_MAX];
    uint64_t last;
    bool fit = true;

    if (UNLIKELY(all_twice(limiter, requests, n, &last)))
        return all_bad(limiter, requests, n, verdicts);
    const uint64_t now = limiter->deciding == 0 ? given : stint_now_checked(limiter, given);
    verdicts = verdicts != NULL ? verdicts : own;
    for (size_t i = 0; i < n; i++)
        fit &= part_look(limiter, &requests[i], now, &verdicts[i]);
    const bool allowed = fit ? all_take(limiter, requests, n, last, now, verdicts)
                             : all_refuse(limiter, requests, n, now, verdicts);
    if (UNLIKELY(now != given))
        all_mistaken(limiter, verdicts, n);
    return allowed;
}

/* ---- Near ------------------------------------------------------------------------------------ */

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

static ALWAYS_INLINE bool part_simple(const struct stint_request *request) {
    return LIKELY((request->flags | request->limit | request_rest(request)) == 0) &&
           LIKELY(request->cost == 1);
}

/* Looks at a simple request by a policy with the fast way, whose window holds now (hot_window). */
static ALWAYS_INLINE bool part_hot(const struct stint_limiter *limiter,
                                   const struct stint_request *request, struct hot *hot) {
    const uint32_t id = request->policy;
    const uint64_t key = request->key.hash;

    hot->tag = table_tag(&limiter->table, key, id);
    hot->slot = slot_of(&limiter->table, key, hot->tag);
    return LIKELY(hot->slot != NULL) && hot_room(&limiter->policies[id], hot);
}

static ALWAYS_INLINE bool part_window(const struct stint_limiter *limiter,
                                      const struct stint_request *request, uint64_t now,
                                      struct hot *hot) {
    return LIKELY(request->policy < limiter->deciding) &&
           hot_window(&limiter->policies[request->policy], now, hot);
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

    /* As decision_begin_near; through that, gcc takes what is begun for uninitialized. */
    decision.terms.special = 0;
    if (UNLIKELY(
            !moment_known(limiter, &limiter->policies[own.policy], (uint32_t)word, now, &end)) ||
        UNLIKELY(decision_begin_at(&decision, limiter, own.policy, &own, (struct moment){now, end},
                                   word) != 0))
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

static NOINLINE bool part_windows(struct stint_limiter *limiter,
                                  const struct stint_request *request, uint64_t now, uint64_t word,
                                  struct part *part) {
    return part_as(limiter, request, now, word & ~(uint64_t)(RULE_BUCKET | TRAITS_STRIPED), part);
}

static NOINLINE bool part_bucket(struct stint_limiter *limiter, const struct stint_request *request,
                                 uint64_t now, uint64_t word, struct part *part) {
    return part_as(limiter, request, now, word | RULE_BUCKET, part);
}

/* Looks at a part that takes tokens, and does nothing else; none that carries over (all_twice). */
static ALWAYS_INLINE bool part_near(struct stint_limiter *limiter,
                                    const struct stint_request *request, uint64_t now,
                                    struct part *part) {
    struct hot hot = {.count = 0}; /* until it is charged */

    part->swaps = false;
    if (part_simple(request) && part_window(limiter, request, now, &hot) &&
        part_hot(limiter, request, &hot)) {
        part->hot = hot;
        return true;
    }
    if (UNLIKELY((request->flags | request_rest(request)) != 0) ||
        UNLIKELY(request->policy >= limiter->deciding))
        return false;
    const uint64_t word = policy_word(&limiter->policies[request->policy]);
    if (UNLIKELY((word & TRAIT_EXISTS) == 0) || (word & (TRAITS_STRIPED | TRAIT_CARRIES)) != 0)
        return false;
    if ((uint32_t)word == EXACT_BUCKET)
        return part_as(limiter, request, now, EXACT_BUCKET, part);
    return (word & RULE_BUCKET) == 0 ? part_windows(limiter, request, now, word, part)
                                     : part_bucket(limiter, request, now, word, part);
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
static ALWAYS_INLINE bool part_charge(const struct stint_limiter *limiter, struct part *part) {
    return part->swaps ? slot_swap(part->hot.slot, part->hot.tag, part->state, part->next)
                       : hot_add(limiter, &part->hot);
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
        .charge = {part->count, used, used, request->cost, true},
    };
    (void)decision_answer(&decision, verdict);
}

/* Two or three parts (`n` is constant): what is known of them stays in registers, as far as may be.
 * All are charged before the first verdict is written: a charge waits for the stores before it. */
static ALWAYS_INLINE bool group_few(struct stint_limiter *limiter,
                                    const struct stint_request *requests, size_t n, uint64_t now,
                                    struct stint_verdict *verdicts) {
    struct part parts[3];

    if (!part_near(limiter, &requests[0], now, &parts[0]) ||
        !part_near(limiter, &requests[1], now, &parts[1]) ||
        UNLIKELY(parts[0].hot.slot == parts[1].hot.slot))
        return false;
    if (n > 2 && (!part_near(limiter, &requests[2], now, &parts[2]) ||
                  UNLIKELY(parts[0].hot.slot == parts[2].hot.slot) ||
                  UNLIKELY(parts[1].hot.slot == parts[2].hot.slot)))
        return false;
    if (UNLIKELY(!part_charge(limiter, &parts[0])))
        return false;
    if (UNLIKELY(!part_charge(limiter, &parts[1])))
        return parts_give_back(limiter, requests, parts, 1);
    if (n > 2 && UNLIKELY(!part_charge(limiter, &parts[2])))
        return parts_give_back(limiter, requests, parts, 2);
    part_answer(limiter, &requests[0], now, &parts[0], verdict_at(verdicts, 0));
    part_answer(limiter, &requests[1], now, &parts[1], verdict_at(verdicts, 1));
    if (n > 2)
        part_answer(limiter, &requests[2], now, &parts[2], verdict_at(verdicts, 2));
    return true;
}

static NOINLINE bool group_near(struct stint_limiter *limiter, const struct stint_request *requests,
                                size_t n, uint64_t now, struct stint_verdict *verdicts) {
    struct part parts[NEAR_MOST];

    for (size_t i = 0; i < n; i++) {
        if (!part_near(limiter, &requests[i], now, &parts[i]))
            return false;
        for (size_t j = 0; j < i; j++)
            if (UNLIKELY(parts[j].hot.slot == parts[i].hot.slot))
                return false;
    }
    for (size_t i = 0; i < n; i++)
        if (UNLIKELY(!part_charge(limiter, &parts[i])))
            return parts_give_back(limiter, requests, parts, i);
    for (size_t i = 0; i < n; i++)
        part_answer(limiter, &requests[i], now, &parts[i], verdict_at(verdicts, i));
    return true;
}

/* ---- What callers call ----------------------------------------------------------------------- */

static bool all_look(const struct stint_request *requests, size_t n) {
    while (n > 0 && !decides(&requests[n - 1]))
        n--;
    return n == 0;
}

static NOINLINE bool group_rest(struct stint_limiter *limiter, const struct stint_request *requests,
                                size_t n, uint64_t now, struct stint_verdict *verdicts) {
    if (UNLIKELY(n > STINT_ALL_MAX))
        return all_bad(limiter, requests, n, verdicts);
    if (UNLIKELY(limiter->reader != NULL)) {
        if (!all_look(requests, n))
            return all_bad(limiter, requests, n, verdicts);
        limiter = limiter->reader;
    }
    if (n == 1 && (requests->flags & (STINT_PEEK | STINT_CHARGE)) != STINT_CHARGE)
        return stint_decide_any(limiter, requests, now, verdicts);
    return group_decide(limiter, requests, n, now, verdicts);
}

static NOINLINE bool decide_group(struct stint_limiter *limiter,
                                  const struct stint_request *requests, size_t n, uint64_t now,
                                  struct stint_verdict *verdicts) {
    if ((n == 2   ? LIKELY(group_few(limiter, requests, 2, now, verdicts))
         : n == 3 ? LIKELY(group_few(limiter, requests, 3, now, verdicts))
                  : n > 3 && n <= NEAR_MOST && group_near(limiter, requests, n, now, verdicts)))
        return true;
    return group_rest(limiter, requests, n, now, verdicts);
}

/* Fetches the lines of all parts before the first is decided, and reads the clock meanwhile. */
static NOINLINE bool decide_fetched(struct stint_limiter *limiter,
                                    const struct stint_request *requests, size_t n, uint64_t now,
                                    struct stint_verdict *verdicts) {
    for (size_t i = 0; i < n && i < STINT_ALL_MAX; i++)
        fetch_lines(&limiter->table, requests[i].key.hash);
    if (now == STINT_NOW)
        now = limiter_now(limiter);
    return decide_group(limiter, requests, n, now, verdicts);
}

bool stint_decide_all(struct stint_limiter *limiter, const struct stint_request *requests, size_t n,
                      uint64_t now, struct stint_verdict *verdicts) {
    /* The misses of two or three parts go on side by side anyway, unless the clock is read. */
    return now == STINT_NOW || n > 3 ? decide_fetched(limiter, requests, n, now, verdicts)
                                     : decide_group(limiter, requests, n, now, verdicts);
}

size_t stint_decide_groups(struct stint_limiter *limiter, const struct stint_request *requests,
                           size_t n, const size_t *sizes, size_t groups, uint64_t now,
                           struct stint_verdict *verdicts) {
    size_t fetched = 0, begin = 0, allowed = 0;

    if (now == STINT_NOW)
        now = limiter_now(limiter);
    for (size_t i = 0; i < groups; begin += sizes[i++]) {
        if (UNLIKELY(GUARD(GROUPS_SIZES, sizes[i] > n - begin)))
            break;
        for (; fetched < n && fetched < begin + sizes[i] + AHEAD; fetched++)
            fetch_lines(&limiter->table, requests[fetched].key.hash);
        allowed +=
            decide_group(limiter, requests + begin, sizes[i], now, verdict_at(verdicts, begin));
    }
    if (UNLIKELY(begin < n)) /* the sizes are wrong */
        (void)all_bad(limiter, requests + begin, n - begin, verdict_at(verdicts, begin));
    return allowed;
}

uint64_t stint_refund_all(struct stint_limiter *limiter, const struct stint_request *requests,
                          struct stint_verdict *verdicts, size_t n) {
    uint64_t back = 0;

    for (size_t i = 0; i < n; i++)
        back += stint_refund(limiter, requests[i].key, &verdicts[i], verdicts[i].granted);
    return back;
}
