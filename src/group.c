/* SPDX-License-Identifier: MIT
 * Several requests decided as one, and many such groups: looks, then decisions, then refunds.
 *
 *     part_look     looks at each part alone
 *     all_take      all fit: decides each; if one is refused after all, gives the others back
 *     all_refuse    else: decides each that does not fit, so that it is counted and marked
 *
 * A caller could write the same with stint_decide and stint_refund. So nothing holds for a part
 * that does not hold for a request alone.
 *
 * group_of_few and group_of_many are the short ways, for the commonest groups: see, charge and
 * answer, as takes do (see.h). All parts are seen to fit, then each is charged. If one cannot be
 * charged after all, the tokens before it are given back. What they leave goes to group_decide. */
#include "refund.h"
#include "search.h"
#include "see.h"
#include "take.h"

/* A caller may ask for no verdicts. */
static ALWAYS_INLINE struct stint_verdict *verdict_at(struct stint_verdict *verdicts, size_t i) {
    return verdicts == NULL ? NULL : &verdicts[i];
}

/* ---- Any group ------------------------------------------------------------------------------- */

/* Whether a part is decided if all fit. Else its look is its answer. */
static inline bool decides(const struct stint_request *request) {
    return (request->flags & (STINT_PEEK | STINT_CHARGE)) != STINT_PEEK;
}

/* Looks at what would become of a part alone. */
static bool part_look(struct stint_limiter *limiter, const struct stint_request *request,
                      uint64_t now, struct stint_verdict *verdict) {
    const uint32_t flags = request->flags;
    struct stint_request look = *request;
    uint32_t traits = 0;

    if ((flags & STINT_CHARGE) != 0) /* which no look has */
        (void)stint_limiter_policy_and_traits(limiter, request->policy, &traits);
    if (UNLIKELY((flags & (STINT_PEEK | STINT_CHARGE)) == STINT_CHARGE) || /* never refused */
        UNLIKELY(!request_good(flags, request->limit)) ||
        UNLIKELY(!request_suits(flags, request->limit, traits)))
        return stint_decision_void(limiter, request, STINT_BAD_REQUEST, verdict);
    look.flags = (flags | STINT_PEEK) & ~(uint32_t)STINT_CHARGE;
    return stint_decide_any(limiter, &look, now, verdict);
}

/* Gives back what a part took. Its look stands, with what no look tells. */
static void part_give_back(struct stint_limiter *limiter, const struct stint_request *request,
                           struct stint_verdict *decided, struct stint_verdict *look) {
    const uint32_t shadowed = look->allowed ? STINT_SHADOWED : 0; /* a shadow's first refusal */

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

/* Decides each part, as all fit: those in `last` after the others (a bit for each part). `verdicts`
 * are the looks. */
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

/* Refuses requests that are no group. */
static NOINLINE bool all_bad(struct stint_limiter *limiter, const struct stint_request *requests,
                             size_t n, struct stint_verdict *verdicts) {
    for (size_t i = 0; i < n; i++)
        (void)stint_decision_void(limiter, &requests[i], STINT_BAD_REQUEST,
                                  verdict_at(verdicts, i));
    return false;
}

/* Whether two parts are of one key by one policy. `last` receives those whose tokens carry over:
 * after a boundary they could not be given back. */
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

/* Says in each verdict of a group that its now was mistaken. */
static void all_mistaken(const struct stint_limiter *limiter, struct stint_verdict *verdicts,
                         size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (verdicts[i].policy == POLICY_NONE) /* it was not decided */
            continue;
        verdicts[i].flags |= STINT_MISTAKEN_NOW;
        stint_limiter_count_rare(limiter, verdicts[i].policy, RARE_NOW_MISTAKEN);
    }
}

/* Any group, of two requests or more. Its now is checked once, so that all parts have the same. */
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

/* ---- Tokens that fit (see.h) ----------------------------------------------------------------- */

/* Whether it is a request for one token, with nothing else. */
static ALWAYS_INLINE bool part_simple(const struct stint_request *request) {
    return LIKELY((request->flags | request->limit | request->reserved) == 0) &&
           LIKELY(request->cost == 1);
}

/* A simple request by a hot policy: all of it but the slot. */
static ALWAYS_INLINE bool part_hot(const struct stint_limiter *limiter,
                                   const struct stint_request *request, uint64_t now,
                                   struct sight *sight) {
    return LIKELY(request->policy < limiter->deciding) &&
           see_hot(&limiter->policies[request->policy], now, sight);
}

/* A request of any of the kinds that see.h knows. What is carried over could not be given back
 * after a boundary. */
static ALWAYS_INLINE bool part_see(const struct stint_limiter *limiter,
                                   const struct stint_request *request, uint64_t now,
                                   struct sight *sight) {
    const uint32_t id = request->policy, cost = request->cost;
    const uint64_t key = request->key.hash;

    if (part_simple(request) && part_hot(limiter, request, now, sight))
        return see_room(limiter, id, key, sight);
    if (UNLIKELY((request->flags | request->reserved) != 0) || UNLIKELY(id >= limiter->deciding))
        return false;
    const uint64_t word = policy_word(&limiter->policies[id]);
    if ((uint32_t)word == (TRAIT_EXISTS | TRAIT_PLAIN)) {
        sight->capacity = request->limit != 0 ? request->limit : word >> 32;
        return see_tokens(limiter, id, key, cost, now, sight);
    }
    return request->limit == 0 &&
           ((uint32_t)word == (TRAIT_EXISTS | RULE_BUCKET)
                ? see_bucket(limiter, id, key, cost, now, sight) && !sight_empty(sight)
                : cost == 1 && see_ruled(limiter, id, key, now, sight));
}

/* Gives back the tokens of the first n parts, as the next one could not be charged after all. */
static NOINLINE enum answer parts_give_back(const struct stint_limiter *limiter,
                                            const struct stint_request *requests,
                                            const struct sight *sights, size_t n, uint64_t now) {
    while (n-- > 0) {
        const struct sight *sight = &sights[n];
        struct stint_verdict verdict = {
            .window = sight->unit != 0 ? now + sight->count : tick_ns(sight->end),
            .unit = sight->unit,
        };
        memcpy(&verdict.policy, &sight->identity, sizeof(uint64_t));
        if (GUARDED(PARTS_BACK))
            (void)stint_key_refund(limiter, requests[n].key.hash, &verdict, sight->cost);
    }
    return NEXT;
}

/* Answers a part that one token was added for. */
static ALWAYS_INLINE void room_answer(struct stint_limiter *limiter, uint32_t policy_id,
                                      struct sight *sight, uint64_t now,
                                      struct stint_verdict *verdict) {
    __asm__(""
            : "+r"(sight->end)); /* what was computed of it is not kept: an add waits for all
                                     * stores */
    (void)sight_answer(limiter, policy_id, sight, now, verdict);
}

/* One token each of one to three parts, which are simple (`n` is constant). What is known of them
 * stays in registers, and all adds come before the first verdict: an add waits for the stores
 * before it. 2 parts take 37 ns, by group_of_many 53 (measured as in take.c). */
static ALWAYS_INLINE enum answer group_of_few(struct stint_limiter *limiter,
                                              const struct stint_request *requests, size_t n,
                                              uint64_t now, struct stint_verdict *verdicts) {
    struct sight a, b, c;

    if (!part_hot(limiter, &requests[0], now, &a) ||
        (n > 1 && !part_hot(limiter, &requests[1], now, &b)) ||
        (n > 2 && !part_hot(limiter, &requests[2], now, &c)))
        return NEXT;
    if (!see_room(limiter, requests[0].policy, requests[0].key.hash, &a) ||
        (n > 1 && (!see_room(limiter, requests[1].policy, requests[1].key.hash, &b) ||
                   UNLIKELY(b.slot == a.slot))) ||
        (n > 2 && (!see_room(limiter, requests[2].policy, requests[2].key.hash, &c) ||
                   UNLIKELY(c.slot == a.slot) || UNLIKELY(c.slot == b.slot))))
        return NEXT;
    if (!sight_add(limiter, &a))
        return NEXT;
    if (n > 1 && !sight_add(limiter, &b))
        return parts_give_back(limiter, requests, (const struct sight[]){a}, 1, now);
    if (n > 2 && !sight_add(limiter, &c))
        return parts_give_back(limiter, requests, (const struct sight[]){a, b}, 2, now);
    room_answer(limiter, requests[0].policy, &a, now, verdict_at(verdicts, 0));
    if (n > 1)
        room_answer(limiter, requests[1].policy, &b, now, verdict_at(verdicts, 1));
    if (n > 2)
        room_answer(limiter, requests[2].policy, &c, now, verdict_at(verdicts, 2));
    return ALLOWED;
}

/* Any number of parts, each of any kind that see.h knows. */
static ALWAYS_INLINE enum answer group_of_many(struct stint_limiter *limiter,
                                               const struct stint_request *requests, size_t n,
                                               uint64_t now, struct stint_verdict *verdicts) {
    struct sight sights[STINT_ALL_MAX];

    for (size_t i = 0; i < n; i++) {
        if (!part_see(limiter, &requests[i], now, &sights[i]))
            return NEXT;
        for (size_t j = 0; j < i; j++)
            if (UNLIKELY(sights[j].slot == sights[i].slot))
                return NEXT;
    }
    for (size_t i = 0; i < n; i++)
        if (UNLIKELY(
                !(sights[i].next == 0 ? sight_add(limiter, &sights[i]) : sight_swap(&sights[i]))))
            return parts_give_back(limiter, requests, sights, i, now);
    for (size_t i = 0; i < n; i++)
        (void)(sights[i].unit != 0 ? sight_answer_bucket(limiter, requests[i].policy, &sights[i],
                                                         true, now, verdict_at(verdicts, i))
                                   : sight_answer(limiter, requests[i].policy, &sights[i], now,
                                                  verdict_at(verdicts, i)));
    return ALLOWED;
}

/* ---- What callers call ----------------------------------------------------------------------- */

/* Whether a group is one of looks, which a read-only handle answers. */
static bool all_look(const struct stint_request *requests, size_t n) {
    while (n > 0 && !decides(&requests[n - 1]))
        n--;
    return n == 0;
}

/* What group_of_many leaves. */
static NOINLINE bool group_rest(struct stint_limiter *limiter, const struct stint_request *requests,
                                size_t n, uint64_t now, struct stint_verdict *verdicts) {
    if (UNLIKELY(n > STINT_ALL_MAX))
        return all_bad(limiter, requests, n, verdicts);
    if (UNLIKELY(limiter->looking != NULL) && all_look(requests, n))
        limiter = limiter->looking;
    if (n == 1 && (requests->flags & (STINT_PEEK | STINT_CHARGE)) != STINT_CHARGE)
        return stint_decide_any(limiter, requests, now, verdicts);
    return WAY(group_decide, limiter, requests, n, now, verdicts);
}

/* Any group of more than three, and what group_of_few leaves. */
static NOINLINE bool group_next(struct stint_limiter *limiter, const struct stint_request *requests,
                                size_t n, uint64_t now, struct stint_verdict *verdicts) {
    return (n <= STINT_ALL_MAX && ANSWERS(group_of_many, limiter, requests, n, now, verdicts)) ||
           group_rest(limiter, requests, n, now, verdicts);
}

/* A group of one to three simple parts. (It is no part of decide_group, where it would make other
 * groups save the registers that it needs.) */
static NOINLINE bool group_simple(struct stint_limiter *limiter,
                                  const struct stint_request *requests, size_t n, uint64_t now,
                                  struct stint_verdict *verdicts) {
    const bool few = n == 2   ? ANSWERS(group_of_few, limiter, requests, 2, now, verdicts)
                     : n == 3 ? ANSWERS(group_of_few, limiter, requests, 3, now, verdicts)
                              : ANSWERS(group_of_few, limiter, requests, 1, now, verdicts);
    return few || group_next(limiter, requests, n, now, verdicts);
}

static ALWAYS_INLINE bool decide_group(struct stint_limiter *limiter,
                                       const struct stint_request *requests, size_t n, uint64_t now,
                                       struct stint_verdict *verdicts) {
    const bool simple = n == 2   ? part_simple(&requests[0]) && part_simple(&requests[1])
                        : n == 3 ? part_simple(&requests[0]) && part_simple(&requests[1]) &&
                                       part_simple(&requests[2])
                                 : n == 1 && part_simple(&requests[0]);
    return simple ? group_simple(limiter, requests, n, now, verdicts)
                  : group_next(limiter, requests, n, now, verdicts);
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
