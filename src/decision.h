/* SPDX-License-Identifier: MIT
 * A decision, and what its steps (core.h) need seldom, out of line. */
#ifndef STINT_DECISION_H
#define STINT_DECISION_H

#include <string.h>

#include "policy/occupant.h"

/* What a request asked for, whatever became of it. */
struct asked {
    uint32_t cost, limit, burst, flags; /* a limit and a burst of the request's own; 0: none */
};

struct decision {
    words_2 identity; /* of the policy, read before anything is charged */
    struct stint_limiter *limiter;
    struct policy *policy;
    uint64_t hash;
    uint64_t tag;
    uint64_t now; /* ns since the epoch */
    tick_t end;   /* of the window of now; 0: not known yet (a window of the key's own) */
    uint32_t policy_id;
    uint32_t flags;    /* of the verdict */
    uint64_t override; /* the state of the slot of the key's override; 0: there is none in force */
    struct asked asked;
    uint64_t version; /* of a bucket's policy, by which the terms are */
    struct terms terms;
    struct charge charge; /* what came of it, in the window that ends at `end` */
    /* Of what is not near: */
    tick_t only_end;    /* PART_SAME_WINDOW: in any other window, nothing is done */
    uint64_t whole_now; /* of a stripe: the now of the whole's caller */
};

/* An internal flag: the decision's policy is gone, or has another rule; it did nothing. */
#define DECISION_GONE STINT_UNKNOWN_POLICY

/* STALE: look again. */
enum progress { DONE, STALE };

/* What few requests have: a burst, and the reserved word. */
static ALWAYS_INLINE uint32_t request_rest(const struct stint_request *request) {
    return request->reserved | request->burst;
}

/* Whether a request is one by itself. */
static ALWAYS_INLINE bool request_good(const struct stint_request *request) {
    const uint32_t flags = request->flags;
    return request->reserved == 0 &&
           (flags & ~(uint32_t)(STINT_PEEK | STINT_PARTIAL | STINT_DRAIN | STINT_RESERVE |
                                STINT_CHARGE | STINT_TENTATIVE)) == 0 &&
           ((flags & STINT_CHARGE) == 0 ||
            ((flags & (STINT_PARTIAL | STINT_DRAIN | STINT_RESERVE)) == 0 &&
             (request->limit | request->burst) == 0));
}

/* Whether a request goes with a policy (why not: decision.c, request_unsuited). */
static ALWAYS_INLINE bool request_suits(const struct stint_request *request, uint32_t traits) {
    const uint32_t flags = request->flags;
    return (request->burst == 0 || (traits & RULE_BUCKET) != 0) &&
           ((traits & STINT_IN_FLIGHT) == 0 || (flags & (STINT_DRAIN | STINT_CHARGE)) == 0) &&
           (!traits_striped(traits) ||
            ((flags & (STINT_DRAIN | STINT_PARTIAL)) == 0 && request->limit == 0));
}

/* A time, and the end of the window that holds it; 0: of the key's own, which the slot tells. */
struct moment {
    uint64_t now;
    tick_t end;
};

/* The time by which a request is decided that came with this now: the now if it is one of the
 * clock's (which is read if need be); else the clock's time, and the now was mistaken. So windows
 * are opened at most the allowance ahead of the clock (A). A now in the window of a policy's hint
 * needs no check: that window was opened by one that was checked. */
uint64_t stint_now_checked(const struct stint_limiter *limiter, uint64_t now);

/* The moment of a request that came with this now, which is not known (moment_known). */
struct moment stint_moment_odd(const struct stint_limiter *limiter, struct policy *policy,
                               uint32_t traits, uint64_t hash, uint64_t now);

/* The end of the window that holds a tick, by a policy with these traits, of a key. */
tick_t stint_window_at(const struct stint_limiter *limiter, const struct policy *policy,
                       uint32_t traits, uint64_t hash, tick_t tick);

/* The same of an instant. A window of the policy's becomes its hint. */
tick_t stint_window_compute(const struct stint_limiter *limiter, struct policy *policy,
                            uint32_t traits, uint64_t hash, uint64_t now);

/* The same of a decision. */
static ALWAYS_INLINE tick_t window_anew(const struct decision *decision) {
    return stint_window_compute(decision->limiter, decision->policy, decision->terms.traits,
                                decision->hash, decision->now);
}

/* The same of a policy's window. A key's own: 0, as the slot tells. */
static inline tick_t window_of(const struct decision *decision) {
    return (decision->terms.traits & TRAITS_OWN_WINDOW) != 0 ? 0 : window_anew(decision);
}

/* What two counts amount to, `left` ns before the end of their window. */
uint64_t stint_total_of_two(const struct policy *policy, uint64_t count, uint64_t left);

/* Counts what a verdict says beside whether it was allowed. */
void stint_answer_count(const struct stint_limiter *limiter, uint32_t policy_id, uint32_t flags,
                        bool allowed);

/* The wait of what does not simply wait for the end of its window, `left` ns ahead. */
uint64_t stint_answer_wait(struct decision *decision, uint64_t left);

static ALWAYS_INLINE uint64_t answer_wait_odd(const struct decision *decision, uint64_t left) {
    struct decision copy = *decision; /* so that *decision need not be in memory */
    return stint_answer_wait(&copy, left);
}

#endif
