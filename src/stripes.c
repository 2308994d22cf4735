/* SPDX-License-Identifier: MIT */
#include "stripes.h"

/* What has been taken from each stripe so far. */
struct gathered {
    uint32_t taken[STRIPES_OF_KEY_MAX];
    uint64_t window; /* of all of them */
    uint64_t total;
    uint64_t used; /* of the first stripe that gave */
    uint64_t seen; /* tokens that all of them had used before */
    uint32_t flags;
};

static tick_t window_of(const struct decision *whole) {
    return window_end(tick_of(whole->now), whole->start, whole->terms.length);
}

/* The decision on one stripe that is a part of the whole one: neither counted nor marked. */
static struct decision stripe_decision(const struct decision *whole, uint32_t stripe, uint64_t cost,
                                       uint32_t flags) {
    struct decision part = *whole;
    part.hash = stripe_key(whole->hash, stripe);
    part.stripe = stripe;
    part.tag = table_tag(&whole->limiter->table, part.hash, whole->policy_id);
    part.terms.cost = cost;
    part.terms.capacity = stripe_share(whole->terms.capacity, whole->terms.rule.stripes, stripe);
    part.terms.room = part.terms.capacity;
    part.terms.flags = flags | DECIDE_PART;
    return part;
}

static void give_back(const struct decision *whole, const struct gathered *gathered) {
    uint64_t id = id_of(tick_of_end(gathered->window));

    for (uint32_t i = 0; i < whole->terms.rule.stripes; i++)
        if (gathered->taken[i] != 0)
            (void)slot_refund(whole->limiter, whole->policy_id, &whole->terms.rule,
                              stripe_key(whole->hash, i), i, id, gathered->taken[i]);
}

/* Moves the whole into the newer window that a part was in, because a window has just turned, the clock was
 * stepped back, or this thread is late. `now` is the caller's, for whom the verdict is: it is moved to the
 * clock's if that had to be read. */
static void move_on(struct decision *whole, const struct decision *part, uint64_t window,
                    uint64_t *now) {
    if (part->now > whole->now)
        *now = whole->now = part->now;
    else
        whole->now = window - tick_ns(whole->terms.length);
}

/* Sums what all stripes have used in the window of whole->now, or in a newer one that a stripe is in. */
static uint64_t sum_used(struct decision *whole, uint64_t *now) {
    tick_t end = window_of(whole);
    uint64_t used = 0;

    for (uint32_t i = 0; i < whole->terms.rule.stripes; i++) {
        struct decision part = stripe_decision(whole, i, 0, STINT_PEEK);
        struct stint_verdict verdict;
        (void)slot_decide(&part, &verdict);
        used += verdict.used;
        if (LIKELY(verdict.window == tick_ns(end)))
            continue;
        move_on(whole, &part, verdict.window, now);
        return sum_used(whole, now); /* each round has a later `now` */
    }
    return used;
}

/* Takes from the stripes in turn until the cost is met, all in the window of whole->now. Returns false, and
 * all was given back, if a stripe is in a newer one, because a window has just turned or because this
 * thread is late: whole->now is in that one then. `now` is as for move_on.
 *
 * Nothing is taken in the newer window on the way (DECIDE_HERE): who came between that and the giving back
 * could be refused the last token for nothing. So a request for one token gives none back, ever. */
static bool gather(struct decision *whole, uint64_t *now, struct gathered *gathered) {
    uint32_t stripes = whole->terms.rule.stripes, first = limiter_stripe(whole->limiter);
    uint32_t flags = STINT_PARTIAL | (GUARDED(STRIPES_HERE) ? DECIDE_HERE : 0);
    uint64_t cost = whole->terms.cost;

    whole->here = window_of(whole);
    *gathered = (struct gathered){.window = tick_ns(whole->here)};
    for (uint32_t i = 0; i < stripes && gathered->total < cost; i++) {
        uint32_t stripe = (first + i) % stripes;
        struct decision part = stripe_decision(whole, stripe, cost - gathered->total, flags);
        struct stint_verdict verdict;
        (void)slot_decide(&part, &verdict);
        gathered->flags |= verdict.flags & (STINT_UNTRACKED | STINT_REPLACED);
        if ((verdict.flags & STINT_UNTRACKED) != 0)
            return true; /* the table is full: so much for the whole */
        if (GUARD(STRIPES_WINDOW, verdict.window != gathered->window)) {
            give_back(whole, gathered);
            *gathered = (struct gathered){.window = verdict.window};
            gathered->taken[stripe] = verdict.granted; /* none, but for STRIPES_HERE */
            give_back(whole, gathered);
            move_on(whole, &part, verdict.window, now);
            return false;
        }
        gathered->taken[stripe] = verdict.granted;
        if (gathered->total == 0 && verdict.granted != 0)
            gathered->used = verdict.used;
        gathered->total += verdict.granted;
        gathered->seen += verdict.used - verdict.granted;
    }
    return true;
}

/* Refuses in the window of whole->now, in which `used` tokens were seen. The first refusal is marked in
 * stripe 0. Returns false, and nothing was refused, if the window has turned since: whole->now is in the next
 * one then. `now` is as for move_on. */
static bool refuse(struct decision *whole, uint64_t *now, uint64_t used,
                   struct stint_verdict *verdict, bool *allowed) {
    uint32_t drain = whole->terms.flags & STINT_DRAIN;
    uint32_t flags = drain | DECIDE_MARK | DECIDE_HERE;
    tick_t end = whole->here = window_of(whole);
    struct decision part = stripe_decision(whole, 0, whole->terms.cost, flags);
    struct stint_verdict marked;

    (void)slot_decide(&part, &marked);
    if ((marked.flags & STINT_UNTRACKED) == 0 && marked.window != tick_ns(end)) {
        move_on(whole, &part, marked.window, now);
        return false;
    }
    for (uint32_t i = 1; drain != 0 && i < whole->terms.rule.stripes; i++) {
        struct decision other = stripe_decision(whole, i, whole->terms.cost, flags);
        (void)slot_decide(&other, NULL);
    }
    if (drain != 0 && used < whole->terms.capacity)
        used = whole->terms.capacity;
    struct charge charge = {.count = used, .total = used};
    whole->now = *now;
    *allowed = decision_end(whole, &charge, used, end,
                            marked.flags & (STINT_FIRST_REFUSAL | STINT_UNTRACKED), verdict);
    return true;
}

/* Ends a decision whose fetch-add to the own stripe was not as expected, if that can be. */
static bool added_fits(struct decision *whole, struct slot *slot, uint64_t seen, uint64_t added,
                       struct stint_verdict *verdict) {
    uint32_t stripes = whole->terms.rule.stripes;
    struct decision part = stripe_decision(whole, limiter_stripe(whole->limiter) % stripes, 1, 0);

    if (!slot_added_ours(&part, slot, seen, added) ||
        GUARD(STRIPES_ADDED, state_used(added) >= part.terms.capacity))
        return false;
    uint64_t used = stripe_estimate(state_used(added) + 1, whole->terms.capacity, stripes);
    struct charge charge = {used, used, 1, true};
    return decision_end(whole, &charge, used, end_of(state_id(added), tick_of(whole->now)), 0,
                        verdict);
}

bool stripes_decide(struct decision *whole, struct slot *slot, uint64_t seen, uint64_t added,
                    struct stint_verdict *verdict) {
    struct terms *terms = &whole->terms;
    uint32_t stripes = terms->rule.stripes;
    uint64_t now = whole->now; /* of the caller, for whom the verdict is */

    if (slot != NULL && added_fits(whole, slot, seen, added, verdict))
        return true;
    bool partial = (terms->flags & STINT_PARTIAL) != 0;
    bool peek = (terms->flags & STINT_PEEK) != 0, look = peek || terms->cost == 0;
    /* No window has room for it, or another of several requests that are one has none. */
    bool never = (terms->flags & DECIDE_MARK) != 0 || (terms->cost > terms->capacity && !partial);
    /* A limit of the request's own has shares of its own, of which other requests know nothing. */
    bool own = terms->capacity < terms->rule.capacity;
    const uint64_t cost = terms->cost;
    struct gathered gathered;
    bool allowed;

    for (;;) { /* each round has a later `now` */
        terms->cost = cost;
        if (look || never || own) {
            uint64_t used = sum_used(whole, &now), room = 0;
            struct charge charge = charge_of(terms, used, 0);
            if (look && (peek || charge.fits)) {
                tick_t end = window_of(whole);
                whole->now = now;
                return decision_end(whole, &charge, used, end, 0, verdict);
            }
            if (used < terms->capacity)
                room = terms->capacity - used;
            if (look || never || room == 0 || (room < cost && !partial)) {
                if (refuse(whole, &now, used, verdict, &allowed))
                    return allowed;
                continue;
            }
            terms->cost = room < cost ? room : cost;
        }
        if (!gather(whole, &now, &gathered))
            continue;
        if ((gathered.flags & STINT_UNTRACKED) != 0 || gathered.total == terms->cost ||
            (partial && gathered.total > 0))
            break;
        if (GUARDED(STRIPES_BACK))
            give_back(whole, &gathered);
        if (refuse(whole, &now, gathered.seen, verdict, &allowed))
            return allowed;
    }
    tick_t end = window_of(whole);
    whole->now = now;
    if ((gathered.flags & STINT_UNTRACKED) != 0) {
        give_back(whole, &gathered);
        bool admit = whole->limiter->on_full != STINT_FULL_REFUSE;
        uint64_t granted = admit ? terms->cost : 0;
        struct charge charge = {granted, granted, (uint32_t)granted, admit};
        return decision_end(whole, &charge, granted, end, STINT_UNTRACKED, verdict);
    }
    uint64_t used = stripe_estimate(gathered.used, terms->capacity, stripes);
    if (used < gathered.total)
        used = gathered.total;
    struct charge charge = {used, used, (uint32_t)gathered.total, true};
    return decision_end(whole, &charge, used, tick_of_end(gathered.window), gathered.flags,
                        verdict);
}
