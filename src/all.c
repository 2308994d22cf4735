/* SPDX-License-Identifier: MIT
 * Several requests decided as one: looked at, then taken, and given back if another thread was faster. */
#include "slot.h"

/* Whether what a request takes may be carried into later windows, so that it cannot be given back
 * after a boundary. */
static bool carries(const struct stint_limiter *limiter, uint32_t policy_id) {
    const struct policy *policy = limiter_policy(limiter, policy_id);
    return policy != NULL && (atomic_load_relaxed(&policy->edges) & EDGE_CARRIES) != 0;
}

static bool decide_part(struct stint_limiter *limiter, const struct stint_request *request,
                        uint32_t flag, uint64_t now, struct stint_verdict *verdict) {
    struct stint_request part = *request;
    part.flags |= flag;
    return stint_decide(limiter, &part, now, verdict);
}

/* Looks at all requests. If one does not fit, refuses it in earnest: marked and counted. */
static bool all_fit(struct stint_limiter *limiter, const struct stint_request *requests, size_t n,
                    uint64_t now, struct stint_verdict *verdicts) {
    bool fit = true;
    for (size_t i = 0; i < n; i++)
        fit &= decide_part(limiter, &requests[i], STINT_PEEK, now, &verdicts[i]);
    for (size_t i = 0; i < n && !fit; i++)
        if (!verdicts[i].allowed && (requests[i].flags & STINT_PEEK) == 0 &&
            (verdicts[i].flags & STINT_UNKNOWN_POLICY) == 0)
            (void)decide_part(limiter, &requests[i], DECIDE_MARK, now, &verdicts[i]);
    return fit;
}

/* Takes what all requests ask for, those last that could not be given back after a boundary. If one
 * is refused after all, gives back what the others took. */
static bool all_take(struct stint_limiter *limiter, const struct stint_request *requests, size_t n,
                     uint64_t now, struct stint_verdict *verdicts) {
    uint64_t taken = 0, last = 0; /* a bit for each request */
    size_t refused = n;

    for (size_t i = 0; i < n; i++) /* once: the policies may change */
        last |= (uint64_t)carries(limiter, requests[i].policy) << i;
    for (uint64_t round = 0; round < 2; round++)
        for (size_t i = 0; i < n && refused == n; i++) {
            if ((last >> i & 1) != round)
                continue;
            if (decide_part(limiter, &requests[i], DECIDE_QUIET, now, &verdicts[i]))
                taken |= UINT64_C(1) << i;
            else
                refused = i;
        }
    for (size_t i = 0; i < n; i++) {
        struct stint_verdict *verdict = &verdicts[i];
        if ((taken >> i & 1) == 0)
            continue;
        if (refused == n) {
            if ((requests[i].flags & STINT_PEEK) == 0)
                slot_count(limiter, requests[i].policy, verdict->flags, true);
            continue;
        }
        if ((verdict->flags & STINT_FIRST_REFUSAL) != 0) /* a shadow's: it is not seen again */
            limiter_count(limiter, requests[i].policy, COUNT_FIRST_REFUSAL);
        if (verdict->granted != 0 && (verdict->flags & STINT_UNTRACKED) == 0)
            (void)stint_refund(limiter, requests[i].policy, requests[i].key, verdict->granted,
                               verdict->window);
        verdict->used -= verdict->granted < verdict->used ? verdict->granted : verdict->used;
        verdict->remaining =
            verdict->used < verdict->capacity ? verdict->capacity - verdict->used : 0;
        verdict->granted = 0;
        verdict->retry_after = 0;
    }
    return refused == n;
}

bool stint_decide_all(struct stint_limiter *limiter, const struct stint_request *requests, size_t n,
                      uint64_t now, struct stint_verdict *verdicts) {
    struct stint_verdict own[STINT_ALL_MAX];

    if (n > STINT_ALL_MAX)
        return false;
    if (verdicts == NULL)
        verdicts = own;
    if (now == STINT_NOW)
        now = limiter_now(limiter);
    return all_fit(limiter, requests, n, now, verdicts) &&
           all_take(limiter, requests, n, now, verdicts);
}
