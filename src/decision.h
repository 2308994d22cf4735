/* SPDX-License-Identifier: MIT
 * A decision, and its steps as take.c lists them: policy, window, look, judge, charge, verdict. The
 * short ways (take.c) and the long way (decide.c) are made of these. */
#ifndef STINT_DECISION_H
#define STINT_DECISION_H

#include <string.h>

#include "override.h"
#include "slot.h"

struct decision {
    words_2 identity; /* of the policy, read before anything is charged */
    struct stint_limiter *limiter;
    struct policy *policy;
    uint64_t hash;
    uint64_t tag;
    uint64_t now;  /* ns since the epoch */
    uint64_t over; /* the now by which a slot is over that may be taken over (search.c) */
    tick_t end;    /* of the window of now; 0: not known yet (a window of the key's own) */
    uint32_t policy_id;
    uint32_t flags;    /* of the verdict */
    tick_t only_end;   /* PART_SAME_WINDOW: in any other window, nothing is done */
    uint64_t override; /* KEY_OVERRIDDEN: the state of the override's slot */
    union {
        uint64_t without; /* KEY_OVERRIDDEN: the capacity without the override; 0: the policy's */
        uint64_t asked;   /* of a part of a striped policy's key: the now of the whole's caller */
    };
    struct terms terms;
    /* What came of it, in the window that ends at `end`. */
    struct charge charge;
};

/* An internal flag: the decision's policy is gone, and it did nothing. */
#define DECISION_GONE STINT_UNKNOWN_POLICY

/* How far a decision is. STALE: the slots changed meanwhile; start over. */
enum progress { DONE, STALE };

/* ---- 2  Window ------------------------------------------------------------------------------- */

/* The end of the window that holds a tick, by a policy with these flags, for a key with this
 * hash. */
tick_t stint_window_at(const struct stint_limiter *limiter, const struct policy *policy,
                       uint32_t flags, uint64_t hash, tick_t tick);

/* The end of the window that holds an instant. A window of the policy's becomes its hint. (It does
 * not take a struct decision: in a short way that would force the struct's fields into memory.) */
tick_t stint_window_compute(const struct stint_limiter *limiter, struct policy *policy,
                            uint32_t flags, uint64_t hash, uint64_t now);

/* Computes the end of the window of now: the policy's, or the key's own. */
static ALWAYS_INLINE tick_t window_anew(const struct decision *decision) {
    return stint_window_compute(decision->limiter, decision->policy, decision->terms.traits,
                                decision->hash, decision->now);
}

/* Whether a policy's hint is of the window of now, which ends at `end`. A calendar's hint tells the
 * window's length, too. */
static ALWAYS_INLINE bool window_hinted(const struct policy *policy, uint32_t traits, uint64_t now,
                                        tick_t *end) {
    const uint64_t hint = atomic_load_relaxed(&policy->current_end); /* M16 */
    if (UNLIKELY((traits & TRAIT_CALENDAR) != 0)) {
        *end = hint_end(hint);
        return !GUARD(HINT_WINDOW, tick_ns(*end) - now - 1 >= hint_window(hint));
    }
    *end = (tick_t)hint;
    /* Unless end > now >= end - length, now is outside the hint's window. */
    return !GUARD(HINT_WINDOW, tick_ns(*end) - now - 1 >= policy->window);
}

/* Finds the end of the window of now by the policy's hint. A window of the key's own has no hint:
 * 0. */
static ALWAYS_INLINE tick_t window_of(const struct decision *decision) {
    const uint32_t traits = decision->terms.traits;
    tick_t end;

    if ((traits & TRAITS_OWN_WINDOW) != 0)
        return 0;
    return window_hinted(decision->policy, traits, decision->now, &end) ? end
                                                                        : window_anew(decision);
}

/* A time, and the end of the window that holds it, as window_of tells it. */
struct moment {
    uint64_t now;
    tick_t end;
};

/* The time by which a request is decided that came with this now: the now if it is one of the
 * clock's, which is read if it is not near what is known of that; else the clock's time, and the
 * now was mistaken.
 *
 * No request is decided by a now that is none of the clock's, so windows are opened at most the
 * allowance ahead of it (A). A now in the window of a policy's hint needs no check: that window was
 * opened by one that was checked. */
uint64_t stint_now_checked(const struct stint_limiter *limiter, uint64_t now);

/* The moment of a request that came with this now, if no hint has its window. */
struct moment stint_moment_anew(const struct stint_limiter *limiter, struct policy *policy,
                                uint32_t traits, uint64_t hash, uint64_t now);

/* The moment of a request that came with this now. */
static ALWAYS_INLINE struct moment moment_of(struct stint_limiter *limiter, uint32_t policy_id,
                                             uint32_t traits, uint64_t hash, uint64_t now) {
    struct moment moment = {now, 0};
    if (LIKELY((traits & TRAITS_OWN_WINDOW) != 0
                   ? limiter_knows_now(limiter, tick_of(now))
                   : window_hinted(&limiter->policies[policy_id], traits, now, &moment.end)))
        return moment;
    return stint_moment_anew(limiter, &limiter->policies[policy_id], traits, hash, now);
}

/* ---- 1  Policy ------------------------------------------------------------------------------- */

/* What a request of known flags must not combine. */
static ALWAYS_INLINE bool request_good(uint32_t flags, uint32_t limit) {
    return (flags & ~(uint32_t)(STINT_PEEK | STINT_PARTIAL | STINT_DRAIN | STINT_RESERVE |
                                STINT_CHARGE | STINT_TENTATIVE)) == 0 &&
           ((flags & STINT_CHARGE) == 0 ||
            ((flags & (STINT_PARTIAL | STINT_DRAIN | STINT_RESERVE)) == 0 && limit == 0));
}

/* Whether a request goes with a policy. What a drain and a charge take in flight is nobody's to
 * give back. Stripes that are read one by one do not tell what is left. */
static ALWAYS_INLINE bool request_suits(uint32_t flags, uint32_t limit, uint32_t traits) {
    return ((traits & STINT_IN_FLIGHT) == 0 || (flags & (STINT_DRAIN | STINT_CHARGE)) == 0) &&
           (!traits_striped(traits) ||
            ((flags & (STINT_DRAIN | STINT_PARTIAL)) == 0 && limit == 0));
}

/* What an instance of the short way knows before it begins. These are constants, so the compiler
 * folds what is computed from them. */
struct known {
    uint32_t traits; /* all that the policy has; 0: not known */
    bool flags;      /* those of the request are `of_request` */
    uint32_t of_request;
    bool overrides; /* the policy may have them */
    bool windows;   /* it is no bucket */
};

static const struct known nothing_known = {.overrides = true};

/* Decides by an override, whose limit is the capacity by now. `limit`: the request's own. */
static ALWAYS_INLINE void decision_override(struct decision *decision, uint64_t override,
                                            uint32_t limit) {
    struct terms *terms = &decision->terms;

    decision->override = override;
    decision->without = limit;
    terms->special |= KEY_OVERRIDDEN | (override_banned(override) ? KEY_BANNED : 0);
    if (override_limit(override) == 0)
        terms->special |= KEY_BARRED;
    if (override_limit(override) == STINT_LIMIT_MAX) {
        terms->special |= KEY_ENDLESS;
        terms->capacity = terms->room = STINT_LIMIT_MAX;
    }
}

/* Finds the room of a request that reserves or charges, by one rule. */
static ALWAYS_INLINE void decision_by_rule(struct decision *decision) {
    struct terms *terms = &decision->terms;
    const struct rule rule = policy_rule(decision->policy);

    /* Whether the policy is a shadow may have changed since its traits were read: the rule tells. A
     * charge is never refused. */
    if (!is_charge(terms))
        terms->traits ^= (terms->traits ^ rule.flags) & STINT_SHADOW;
    if (!terms->unlike)
        terms->capacity = rule.capacity;
    const uint64_t room =
        terms->capacity + ((terms->flags & STINT_RESERVE) != 0 ? rule.max_reserved : 0);
    terms->room = room < STINT_LIMIT_MAX ? room : STINT_LIMIT_MAX;
    terms->most = is_charge(terms) ? charge_most(&rule) : terms->room;
}

/* Fits a decision to a bucket, by an override's limit or the request's own (0: neither). Returns
 * false if the policy was changed meanwhile. */
static ALWAYS_INLINE bool decision_by_bucket(struct decision *decision, uint32_t limit,
                                             bool overridden) {
    struct terms *terms = &decision->terms;
    struct bucket bucket;

    if (UNLIKELY(!limiter_bucket(decision->limiter, decision->policy_id, terms->traits, &bucket)))
        return false;
    if (!overridden)
        limit = bucket_own(&bucket, limit);
    else if (limit == STINT_LIMIT_MAX) /* never refused: it counts by the policy's own */
        limit = 0;
    bucket_terms(terms, &bucket, limit);
    if (overridden && limit == 0)
        terms->capacity = terms->room = 0; /* refused everything, or see decision_override */
    return true;
}

/* The capacity by another limit than the policy's. */
static ALWAYS_INLINE uint64_t own_capacity(uint32_t traits, uint64_t limit) {
    const uint64_t most = (traits & TWO_COUNTS) != 0 ? SMOOTH_MAX : STINT_LIMIT_MAX;
    return limit < most ? limit : most;
}

/* Reads what a decision must know of its policy and of the request. Returns 0, or the verdict's
 * flag that says why there is no decision. STINT_UNKNOWN_POLICY, too, if the policy no longer has
 * the known traits. */
static ALWAYS_INLINE uint32_t decision_begin(struct decision *decision,
                                             struct stint_limiter *limiter,
                                             const struct stint_request *request, uint64_t now,
                                             struct known known) {
    if (UNLIKELY(request->policy >= limiter->deciding))
        return STINT_UNKNOWN_POLICY;
    const uint32_t flags = known.flags ? known.of_request : request->flags;
    if (UNLIKELY((!known.flags && request->reserved != 0) || !request_good(flags, request->limit)))
        return STINT_BAD_REQUEST;
    struct policy *policy = &limiter->policies[request->policy];
    const uint64_t word = policy_word(policy);
    if (UNLIKELY(known.traits != 0 ? (uint32_t)word != known.traits : (word & TRAIT_EXISTS) == 0) ||
        (known.windows && UNLIKELY((word & RULE_BUCKET) != 0)))
        return STINT_UNKNOWN_POLICY;
    const uint32_t traits = known.traits != 0 ? known.traits
                            : known.windows   ? (uint32_t)word & ~RULE_BUCKET
                                              : (uint32_t)word;
    if (UNLIKELY(!request_suits(flags, request->limit, traits)))
        return STINT_BAD_REQUEST;
    uint64_t capacity = word >> 32;
    const struct moment moment =
        moment_of(limiter, request->policy, traits, request->key.hash, now);
    const uint64_t override =
        known.overrides && (traits & STINT_OVERRIDES) != 0 &&
                companion_possible(&limiter->table, request->key.hash)
            ? stint_override_find(limiter, request->policy, request->key.hash, moment.now)
            : 0;
    const uint32_t limit = UNLIKELY(override != 0) ? override_limit(override) : request->limit;
    const bool unlike = request->limit != 0 || override != 0;
    if (unlike)
        capacity = own_capacity(traits, limit);
    *decision = (struct decision){
        .limiter = limiter,
        .policy = policy,
        .hash = request->key.hash,
        .tag = table_tag(&limiter->table, request->key.hash, request->policy),
        .now = moment.now,
        .end = moment.end,
        .policy_id = request->policy,
        .identity = policy_identity(policy),
        .terms = {.traits = traits,
                  .window = policy->window,
                  .fade = policy->fade,
                  .reciprocal = policy->reciprocal,
                  .unit = 1,
                  .cost = request->cost,
                  .capacity = capacity,
                  .room = capacity,
                  .most = capacity,
                  .special = moment.now != now ? NOW_MISTAKEN : 0,
                  .unlike = unlike,
                  .flags = flags},
    };
    if ((traits & RULE_BUCKET) != 0 &&
        UNLIKELY(!decision_by_bucket(decision, limit, override != 0)))
        return STINT_UNKNOWN_POLICY;
    if ((traits & RULE_BUCKET) == 0 && (flags & (STINT_RESERVE | STINT_CHARGE)) != 0)
        decision_by_rule(decision);
    if (UNLIKELY(override != 0))
        decision_override(decision, override, request->limit);
    return 0;
}

/* A decision on one token by a plain policy of this generation, whose window of now ends at `end`.
 * All but the capacity is constant, so the compiler folds what is computed from it. */
static ALWAYS_INLINE struct decision plain_decision(struct stint_limiter *limiter,
                                                    uint32_t policy_id, words_2 identity,
                                                    uint64_t now, tick_t end, uint64_t capacity) {
    return (struct decision){
        .limiter = limiter,
        .policy = &limiter->policies[policy_id],
        .policy_id = policy_id,
        .identity = identity,
        .now = now,
        .end = end,
        .terms = {.traits = TRAIT_EXISTS | TRAIT_PLAIN,
                  .unit = 1,
                  .cost = 1,
                  .capacity = capacity,
                  .room = capacity},
    };
}

/* ---- 4  Look, judge (judge.h) ---------------------------------------------------------------- */

/* Fits the terms of a request to a rule that was read later, by which its window begins. */
static ALWAYS_INLINE void rule_adopt(struct terms *terms, const struct rule *rule) {
    if (UNLIKELY(terms->capacity > rule->capacity) && !terms->unlike) {
        uint64_t more = terms->room - terms->capacity;
        terms->capacity = rule->capacity;
        terms->room = rule->capacity + (more < rule->max_reserved ? more : rule->max_reserved);
        /* Else a request could be refused that both rules let through, one of them as a shadow. */
        terms->traits ^= (terms->traits ^ rule->flags) & STINT_SHADOW;
    }
}

/* The end of the window of now, which is the key's own, and whose slot was seen with this state. */
static ALWAYS_INLINE tick_t window_in(const struct decision *decision, uint64_t state) {
    const tick_t now = tick_of(decision->now), end = end_of(state_id(state), now);
    if (UNLIKELY(end <= now || end - now > policy_reach(decision->policy)))
        return window_anew(decision);
    return end;
}

/* What a slot that is over leaves to the decision's window. */
static ALWAYS_INLINE uint64_t slot_carried(struct decision *decision, uint64_t state) {
    if ((decision->terms.traits & TRAIT_CARRIES) == 0)
        return 0;
    const struct rule rule = policy_rule(decision->policy);
    const tick_t over = decision->end - end_before(state_id(state), tick_of(decision->now));
    rule_adopt(&decision->terms, &rule);
    return count_carry(&rule, state_used(state),
                       (uint64_t)(over / policy_length(decision->policy)));
}

/* What slot_look has found. */
enum look {
    LOOK_GOOD,
    LOOK_STALE,   /* the slot is not the key's any more */
    LOOK_PENDING, /* it is claimed, and not committed */
    LOOK_AHEAD,   /* it is in a later window than that of now */
};

/* Looks at the state that was loaded of a slot of the key (seen->state), in the decision's window.
 * If the slot is in an earlier window, that one is over, and the new one begins with what is
 * carried.
 *
 * Why the state is the key's. The tag was loaded, then the state s; now the tag is loaded again. If
 * it is not the key's, s may be another's: start over. If it is, s may still be another's: the slot
 * may have gone to another key and come back between the two loads of the tag. But s is the key's
 * if the slot still has the end of s at any time after this second load of the tag (I1), and every
 * way makes sure that it has:
 *   - fetch-add: what it returns has the end of s, committed;
 *   - CAS: it succeeds only if tag and state are what they were;
 *   - a look, or a refusal that writes nothing: the state is loaded once more, and has the end of
 *     s, committed (slot_unchanged).
 * Without the second load of the tag another key's window is charged. Without the second load of
 * the state a key is refused for another's count.
 *
 * A window of the key's own (TRAITS_OWN_WINDOW) is found in the slot, if it holds now: nothing has
 * to be computed. What confirms s confirms the end. A pending s is no window: its end is the
 * claim's. If the slot's window does not hold now, the window of now is that of the key's phase, or
 * begins with this request (decision.c, window_at). */
static ALWAYS_INLINE enum look slot_look(struct decision *decision, struct seen *seen) {
    const struct terms *terms = &decision->terms;
    const uint64_t state = seen->state;

    seen->tag = decision->tag;
    seen->count = seen->refused = 0;
    /* The state, then the tag (M1), then whatever confirms the two (M2). */
    if (UNLIKELY(GUARD(FOUND_TAG, atomic_load_acquire(&seen->slot->tag) != decision->tag)))
        return LOOK_STALE;

    if ((terms->traits & TRAITS_OWN_WINDOW) != 0 && decision->end == 0) {
        if (UNLIKELY(GUARD(KEY_PENDING, state_pending(state))))
            return LOOK_PENDING; /* the end is the claim's */
        decision->end = window_in(decision, state);
    }
    /* The id is in the top bits: an earlier one makes the difference negative. */
    const uint64_t ahead = state - state_of(decision->end, 0), used = state_used(state);
    if (UNLIKELY(ahead >= STATE_PENDING)) {
        if (GUARD(FOUND_PENDING, state_pending(state)))
            return LOOK_PENDING;
        /* The ids of two ends are not compared: one may be long over, the other 366 days ahead. */
        const tick_t end = end_of(state_id(state), tick_of(decision->now));
        if (end < decision->end) {
            seen->count = slot_carried(decision, state);
            return LOOK_GOOD;
        }
        if (end > decision->end)
            return LOOK_AHEAD;
    }
    seen->count = (terms->traits & RULE_BUCKET) != 0
                      ? bucket_count(decision->end, used, decision->now)
                      : used;
    seen->refused = state & STATE_REFUSED;
    return LOOK_GOOD;
}

/* The time at which a bucket that refuses at `now` is asked once more: the latest of the clock, the
 * shard's watermark, each if it is within the allowance of now, and the nows by which buckets have
 * decided for this thread. So nobody is refused for a clock that was read a moment ago, while
 * another thread of the key, or of its shard, went on, nor for one that goes back a little. */
uint64_t stint_bucket_later(const struct stint_limiter *limiter, uint64_t hash, uint64_t now);

/* Judges a bucket that has no room at this now once more, at that time. If it has room then, the
 * decision moves there. Else it stays at its own now. (Were it a call, all structs of the short way
 * would be in memory, and their zeros written: 40 ns.) */
static ALWAYS_INLINE void bucket_again(struct decision *decision, struct seen *seen) {
    const struct terms *terms = &decision->terms;

    if ((terms->special & KEY_BARRED) != 0 ||
        (never_fits(terms) && (terms->flags & STINT_PARTIAL) == 0))
        return;
    const uint64_t later = stint_bucket_later(decision->limiter, decision->hash, decision->now);
    const uint64_t late = later - decision->now;
    const uint64_t count = seen->count > late ? seen->count - late : 0;
    const struct charge charge = judge(terms, count, 0);
    if (!charge.fits)
        return;
    decision->charge = charge;
    decision->now = later;
    seen->count = count;
}

/* Step 4: judges what was seen. */
static ALWAYS_INLINE void decision_judge(struct decision *decision, struct seen *seen) {
    decision->charge = judge(&decision->terms, seen->count, tick_ns(decision->end) - decision->now);
    if ((decision->terms.traits & RULE_BUCKET) != 0 && !decision->charge.fits)
        bucket_again(decision, seen);
}

/* ---- 5  Charge ------------------------------------------------------------------------------- */

/* Whether a refusal sets the refused bit. A banned key's refusal writes nothing. */
static ALWAYS_INLINE bool refusal_marked(const struct terms *terms) {
    return is_decision(terms) && (terms->flags & STINT_TENTATIVE) == 0 &&
           (terms->special & KEY_BANNED) == 0 &&
           ((terms->special & PART_SILENT) == 0 || (terms->special & PART_REFUSED) != 0);
}

/* Whether a request needs no slot of a key that has none: a look, or one for no tokens. The charge
 * is what was judged of a count of 0. */
static inline bool leaves_nothing(const struct terms *terms, const struct charge *charge) {
    return (charge->count == 0 || is_look(terms)) && (charge->fits || !refusal_marked(terms));
}

/* The state that a decision's count makes, without a mark. A bucket's moves its end. */
static ALWAYS_INLINE uint64_t decision_state(struct decision *decision) {
    const uint64_t count = decision->charge.count;

    if ((decision->terms.traits & RULE_BUCKET) != 0) {
        decision->end = tick_of(decision->now + count) + 1;
        return bucket_state(decision->now + count);
    }
    return state_of(decision->end, count);
}

/* Whether a bucket's first refusal is over: the instant at which it is full passes a multiple of
 * the policy's window. */
static ALWAYS_INLINE bool mark_passed(uint64_t from, uint64_t to, uint64_t window) {
    return from != to && (window == 0 || from / window != to / window); /* 0: it is freed */
}

static ALWAYS_INLINE bool mark_over(const struct decision *decision, const struct seen *seen) {
    return mark_passed(bucket_full(decision->end, state_used(seen->state)),
                       decision->now + decision->charge.count, decision->terms.window);
}

/* Finds the state to be written after what was seen was judged. Returns false if nothing is to be
 * written.
 *
 * The mark of a bucket that is full moves its instant to now, as a mark counts until the slot is
 * over. A sign that says "full" to everybody would forget that instant: a late caller would be
 * granted once more what was taken just before his now (A). */
static ALWAYS_INLINE bool slot_next(struct decision *decision, const struct seen *seen,
                                    uint64_t *next) {
    const struct terms *terms = &decision->terms;
    struct charge *charge = &decision->charge;
    uint64_t refused = seen->refused;
    const bool bucket = (terms->traits & RULE_BUCKET) != 0;
    if (bucket && UNLIKELY(refused != 0) && GUARD(BUCKET_MARK, mark_over(decision, seen)))
        refused = 0;
    bool first_refusal = !charge->fits && GUARD(FOUND_MARK, refused == 0) && refusal_marked(terms);
    bool writes = !is_look(terms) && charge->count != seen->count;

    if (UNLIKELY((terms->special & PART_SAME_WINDOW) != 0 && decision->end != decision->only_end)) {
        *charge = (struct charge){.count = seen->count, .used = seen->count};
        first_refusal = writes = false;
    }
    decision->flags = first_refusal ? STINT_FIRST_REFUSAL : 0;
    HOLDS(A, charge->granted == 0 || is_charge(terms) || charge->used <= terms->room);
    *next = decision_state(decision) | (first_refusal ? STATE_REFUSED : refused);
    return first_refusal || writes;
}

/* Whether a strike is to be counted after a decision. A shadow counts none. */
static ALWAYS_INLINE bool strikes(const struct decision *decision) {
    return UNLIKELY((decision->flags & STINT_FIRST_REFUSAL) != 0) &&
           (decision->terms.traits & (STINT_OVERRIDES | STINT_SHADOW)) == STINT_OVERRIDES &&
           (decision->terms.special & KEY_OVERRIDDEN) == 0 &&
           limiter_ban(decision->limiter, decision->policy_id).word != 0;
}

/* Writes to the slot what was judged of it: one swap, if there is anything to write. Returns false
 * if the slot has changed since it was seen, or a strike would have to follow and `strike` is
 * false.
 *
 * A new window in place: the slot is the key's, and over. One CAS changes window and count
 * together, so of two threads that meet at a boundary one opens the window and the other counts in
 * it. A late thread may open a window that is over by the clock. That window is later than any that
 * this slot had (I1), and the key has no other slot (I3), so nothing is counted in it twice. */
static ALWAYS_INLINE bool slot_charge(struct decision *decision, const struct seen *seen,
                                      bool strike) {
    uint64_t next;
    const bool writes = slot_next(decision, seen, &next);
    if (!strike && strikes(decision))
        return false;
    return writes ? slot_swap(seen->slot, decision->tag, seen->state, next)
                  : slot_unchanged(seen->slot, seen->state, decision->terms.traits);
}

/* ---- 6  Verdict ------------------------------------------------------------------------------ */

/* Adds what a verdict says of a decision to the statistics. */
static ALWAYS_INLINE void decision_count(const struct stint_limiter *limiter, uint32_t policy_id,
                                         uint32_t flags, bool allowed) {
    bool shadowed = (flags & STINT_SHADOWED) != 0;

    limiter_count(limiter, policy_id,
                  shadowed  ? COUNT_SHADOWED
                  : allowed ? COUNT_ALLOWED
                            : COUNT_REFUSED);
    if ((flags & STINT_FIRST_REFUSAL) != 0)
        limiter_count(limiter, policy_id, COUNT_FIRST_REFUSAL);
    if ((flags & STINT_UNTRACKED) != 0)
        limiter_count(limiter, policy_id, COUNT_UNTRACKED);
    if ((flags & STINT_NEAR_LIMIT) != 0 && allowed && !shadowed)
        limiter_count(limiter, policy_id, COUNT_NEAR_LIMIT);
}

/* What retry_after is computed from, where it is not simply the end of the window. */
struct waiting {
    const struct stint_limiter *limiter;
    const struct policy *policy;
    uint32_t policy_id;
    struct terms terms;
    struct charge charge;
    uint64_t hash;
    uint64_t now;
    uint64_t left; /* ns to the end of the window; bucket: until there is a token */
    tick_t end;
    uint64_t override; /* as in the decision */
    uint64_t without;
    bool untracked;
};
uint64_t stint_decision_wait(const struct waiting *waiting);

/* Two fields of 32 bits as one word. One store for both is faster than two. And fields that are
 * joined in memory would make the next load wait. (The machine is little-endian: atomic.h.) */
#define PAIR(first, second) ((uint64_t)(second) << 32 | (uint32_t)(first))
static_assert(offsetof(struct stint_verdict, allowed) == 0 &&
                  offsetof(struct stint_verdict, flags) == 4 &&
                  offsetof(struct stint_verdict, capacity) == 8 &&
                  offsetof(struct stint_verdict, used) == 12 &&
                  offsetof(struct stint_verdict, remaining) == 16 &&
                  offsetof(struct stint_verdict, granted) == 20 &&
                  offsetof(struct stint_verdict, window) == 24 &&
                  offsetof(struct stint_verdict, policy) == 48 &&
                  offsetof(struct stint_verdict, generation) == 52 &&
                  offsetof(struct stint_verdict, unit) == 56,
              "pairs of fields fill words");
static_assert(sizeof(struct stint_request) == 32 && sizeof(struct stint_verdict) == 64,
              "arrays of them keep their places");

/* What the time to wait is computed from. It is copied, so that the short ways keep their
 * registers. */
static ALWAYS_INLINE struct waiting decision_waiting(const struct decision *decision,
                                                     uint64_t left) {
    const struct terms *terms = &decision->terms;
    const struct charge *charge = &decision->charge;
    return (struct waiting){
        .limiter = decision->limiter,
        .policy = decision->policy,
        .policy_id = decision->policy_id,
        .terms = {.traits = terms->traits,
                  .special = terms->special,
                  .cost = terms->cost,
                  .capacity = terms->capacity,
                  .room = terms->room,
                  .window =
                      (terms->traits & RULE_BUCKET) != 0 ? terms->window : decision->policy->window,
                  .fade = decision->policy->fade,
                  .reciprocal = terms->reciprocal,
                  .unit = terms->unit,
                  .flags = terms->flags},
        .charge = {.count = charge->count,
                   .used = charge->used,
                   .total = charge->total,
                   .fits = charge->fits},
        .hash = decision->hash,
        .now = decision->now,
        .left = (terms->traits & RULE_BUCKET) != 0 ? terms->unit : left,
        .end = decision->end,
        .override = decision->override,
        .without = decision->without,
        .untracked = (decision->flags & STINT_UNTRACKED) != 0,
    };
}

/* The time to wait of a decision that does not simply wait for the window's end. */
static ALWAYS_INLINE uint64_t decision_wait(const struct decision *decision, uint64_t left) {
    const struct waiting waiting = decision_waiting(decision, left);
    return stint_decision_wait(&waiting);
}

/* Writes a word of a verdict. */
static ALWAYS_INLINE void word_write(struct stint_verdict *verdict, size_t i, uint64_t word) {
    memcpy((char *)verdict + i * sizeof(word), &word, sizeof(word));
}

/* Tells a decision that was made. */
static ALWAYS_INLINE void verdict_write(const struct decision *decision, bool allowed,
                                        uint32_t flags, struct stint_verdict *verdict) {
    const struct terms *terms = &decision->terms;
    const struct charge *charge = &decision->charge;
    const bool untracked = (decision->flags & STINT_UNTRACKED) != 0;
    const bool bucket = (terms->traits & RULE_BUCKET) != 0;
    const uint64_t end = bucket ? decision->now + charge->count : tick_ns(decision->end);
    const uint64_t left = end - decision->now;
    /* What fits without a reservation is not above the capacity, unless it is charged. */
    const bool within = charge->fits && terms->room == terms->capacity;
    uint64_t wait = 0, remaining = 0;

    if (!within && !charge->fits && (terms->traits & (TRAIT_CARRIES | TRAIT_JITTER)) == 0 &&
        (terms->special & KEY_OVERRIDDEN) == 0 && !(bucket && untracked))
        wait = never_fits(terms) ? STINT_NEVER
               : bucket          ? bucket_wait(terms, charge->count, terms->cost, terms->room)
                                 : left;
    else if (!within && !(charge->fits && charge->total <= terms->capacity))
        wait = decision_wait(decision, left);
    if ((within && !is_charge(terms) && (terms->special & KEY_ENDLESS) == 0) ||
        (charge->used < terms->capacity && !(untracked && !charge->fits)))
        remaining = terms->capacity - charge->used;
    word_write(verdict, 0, PAIR(allowed, flags));
    word_write(verdict, 1, PAIR(terms->capacity, charge->used));
    word_write(verdict, 2, PAIR(remaining, charge->granted));
    verdict->window = untracked ? 0 : end;
    verdict->reset_after = left;
    verdict->retry_after = wait;
    memcpy(&verdict->policy, &decision->identity, sizeof(decision->identity));
    if (bucket)
        verdict->unit = terms->unit;
}

/* Ends a decision: counts it and tells it. Returns verdict.allowed. */
static ALWAYS_INLINE bool decision_end(const struct decision *decision,
                                       struct stint_verdict *verdict) {
    const struct terms *terms = &decision->terms;
    const struct charge *charge = &decision->charge;
    const bool shadowed = !charge->fits && (terms->traits & STINT_SHADOW) != 0;
    const bool allowed = charge->fits || shadowed;
    uint32_t flags =
        decision->flags | (shadowed ? STINT_SHADOWED : 0) | (terms->special & SPECIAL_TOLD);

    if ((terms->traits & TRAIT_NEAR) != 0) {
        const uint32_t near_limit = policy_rule(decision->policy).near_limit;
        if (near_limit != 0 && /* it was taken from the policy a moment ago */
            charge->used * 100 > terms->capacity * near_limit)
            flags |= STINT_NEAR_LIMIT;
    }
    if (UNLIKELY((flags & STINT_MISTAKEN_NOW) != 0))
        stint_limiter_count_rare(decision->limiter, decision->policy_id, RARE_NOW_MISTAKEN);
    if ((terms->special & PART_SILENT) == 0) {
        if (is_charge(terms))
            limiter_add(decision->limiter, decision->policy_id, COUNT_CHARGED, charge->granted);
        else if (is_decision(terms))
            decision_count(decision->limiter, decision->policy_id, flags, allowed);
    }
    if ((terms->traits & RULE_BUCKET) != 0 && (is_decision(terms) || is_charge(terms)))
        limiter_raise_now(decision->limiter, decision->now);
    if (verdict != NULL)
        verdict_write(decision, allowed, flags, verdict);
    return allowed;
}

/* What a short way returns: an answer; or NEXT: it did nothing, and the request goes on to the next
 * way. */
enum answer { REFUSED, ALLOWED, NEXT };
#define ANSWERS(...) LIKELY(WAY(__VA_ARGS__) != NEXT)

/* Step 6 of a request whose `cost` tokens one of the primitives of slot.h has charged: the count is
 * `used` by then. All but the counts is constant, so the compiler folds what is computed from
 * it. */
static ALWAYS_INLINE enum answer taken_end(struct decision *decision, uint64_t used, uint32_t cost,
                                           struct stint_verdict *verdict) {
    decision->charge = (struct charge){used, used, used, cost, true};
    (void)decision_end(decision, verdict);
    return ALLOWED;
}

#endif
