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
 * What group_near.h leaves goes to group_decide. */
#include "group_near.h"

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
