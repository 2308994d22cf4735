/* SPDX-License-Identifier: MIT
 * Striped keys, the long way. Read slot.h and stripes.h first. */
#include "stripes.h"

#include "decide.h"

struct gathered {
    uint32_t taken[2 * STRIPES_OF_KEY_MAX]; /* as many as 3 bits can say, in a damaged table */
    uint64_t total;                         /* tokens taken */
    uint64_t used;                          /* of the first stripe that gave */
    uint64_t had;                           /* tokens that all of them had used before */
    uint32_t flags;
};

/* The decision on one stripe, as a part of the whole. It is neither counted nor marked. */
static struct decision stripe_decide(const struct decision *whole, uint64_t now, uint32_t stripe,
                                     uint64_t cost, uint32_t flags, uint32_t part_flags) {
    struct decision part = *whole;
    part.only_end = whole->end;
    part.whole_now = now;
    part.hash = stripe_key(whole->hash, stripe);
    part.tag = table_tag(&whole->limiter->table, part.hash, whole->policy_id);
    part.terms.cost = (uint32_t)cost;
    part.terms.capacity =
        stripe_share(whole->terms.capacity, traits_stripes(whole->terms.traits), stripe);
    part.terms.room = flags == STINT_CHARGE ? whole->terms.room : part.terms.capacity;
    part.terms.flags = flags;
    part.terms.special = part_flags | PART_SILENT;
    stint_decide_by_slot(&part);
    return part;
}

/* Gives back what was taken. A stripe may hold less than was taken from it: another refund took
 * those tokens out of it, and its own are in the other stripes. So the rest is given back there. */
static void give_back(const struct decision *whole, const struct gathered *gathered) {
    const uint32_t stripes = traits_stripes(whole->terms.traits);
    uint64_t rest = 0;

    for (uint32_t i = 0; i < 2 * stripes; i++) {
        uint64_t tokens = i < stripes ? gathered->taken[i] : rest;
        uint32_t stripe = i % stripes;
        if (tokens == 0)
            continue;
        uint32_t back =
            stint_slot_refund(whole->limiter, whole->policy_id, whole->identity[0],
                              stripe_key(whole->hash, stripe), id_of(whole->end), (uint32_t)tokens);
        rest = i < stripes ? rest + tokens - back : rest - back;
    }
}

/* If a part is in a newer window, moves the whole there: it has just turned, the clock was stepped
 * back, or this thread is late. Then the round begins anew. The verdict is for `now`, the caller's,
 * which moves to the clock's if that had to be read. */
static bool moved_on(struct decision *whole, const struct decision *part, uint64_t *now) {
    if (part->end == whole->end)
        return false;
    if (part->now > whole->now)
        *now = whole->now = part->now;
    else
        whole->now = tick_ns(part->end) - whole->policy->window;
    whole->end = window_of(whole);
    return true;
}

/* Sums what all stripes have used in the window of whole->now. `lost` receives the shares of those
 * without a slot, as the table is full. Returns false if it has moved on. */
static bool sum_used(struct decision *whole, uint64_t *now, uint64_t *used, uint64_t *lost) {
    *used = *lost = 0;
    for (uint32_t i = 0; i < traits_stripes(whole->terms.traits); i++) {
        const struct decision part = stripe_decide(whole, *now, i, 0, STINT_PEEK, 0);
        if (UNLIKELY((part.flags & STINT_UNTRACKED) != 0)) {
            *lost += part.terms.capacity;
            continue;
        }
        *used += part.charge.used;
        if (UNLIKELY(moved_on(whole, &part, now)))
            return false;
    }
    return true;
}

/* Takes from the stripes in turn until the cost is met, all in the window of whole->now. Returns
 * false if it has moved on: then all is given back.
 *
 * Nothing is taken in the newer window on the way (PART_SAME_WINDOW): a token that is given back
 * could have refused another request for nothing. So a request for one token gives none back. */
static bool gather(struct decision *whole, uint64_t *now, struct gathered *gathered) {
    const uint32_t stripes = traits_stripes(whole->terms.traits),
                   first = stint_limiter_stripe(whole->limiter);
    const bool charge = is_charge(&whole->terms);
    uint64_t rest = whole->terms.cost;

    *gathered = (struct gathered){0};
    /* When all shares are filled, what a charge has left goes to stripe 0, in one more round. */
    for (uint32_t i = 0; rest > 0 && i < stripes + charge; i++) {
        uint32_t stripe = i < stripes ? (first + i) % stripes : 0;
        if (i == stripes) { /* as many as a count holds */
            uint64_t used = gathered->had + gathered->total;
            uint64_t most = used < STINT_LIMIT_MAX ? STINT_LIMIT_MAX - used : 0;
            rest = rest < most ? rest : most;
        }
        const uint32_t flags = i < stripes ? STINT_PARTIAL : STINT_CHARGE;
        const struct decision part =
            stripe_decide(whole, *now, stripe, rest, flags, PART_SAME_WINDOW);
        gathered->flags |= part.flags & (STINT_UNTRACKED | STINT_REPLACED);
        if ((part.flags & STINT_UNTRACKED) != 0) {
            gathered->had += part.terms.capacity; /* this key cannot be given any of it */
            continue;
        }
        if (GUARD(STRIPES_WINDOW, part.end != whole->end)) {
            give_back(whole, gathered);
            (void)moved_on(whole, &part, now);
            return false;
        }
        if (gathered->total == 0 && part.charge.granted != 0)
            gathered->used = part.charge.used;
        gathered->taken[stripe] += part.charge.granted;
        gathered->total += part.charge.granted;
        gathered->had += i < stripes ? part.charge.used - part.charge.granted : 0;
        rest -= part.charge.granted;
    }
    return true;
}

/* Refuses in the window of whole->now, in which `used` tokens were seen, and marks the first
 * refusal in stripe 0. Returns false if it has moved on: then nothing is refused. */
static bool refuse(struct decision *whole, uint64_t *now, uint64_t used) {
    const struct terms *terms = &whole->terms;

    whole->flags = 0;
    if (is_decision(terms)) {
        const struct decision part = stripe_decide(whole, *now, 0, terms->cost, terms->flags,
                                                   PART_REFUSED | PART_SAME_WINDOW);
        if ((part.flags & STINT_UNTRACKED) == 0 && moved_on(whole, &part, now))
            return false;
        whole->flags = part.flags & (STINT_FIRST_REFUSAL | STINT_UNTRACKED);
    }
    whole->charge = (struct charge){.count = used, .used = used, .total = used};
    return true;
}

/* A stripe has no slot in a full table, and the others have too little: as on_full says. */
static void untracked(struct decision *whole) {
    whole->charge = judge(&whole->terms, 0, 0);
    if (whole->limiter->on_full == STINT_FULL_REFUSE || !whole->charge.fits)
        whole->charge = (struct charge){.fits = false};
    whole->flags = STINT_UNTRACKED;
}

/* MOVED: the window has turned. */
enum looked { TAKE, REFUSE, DECIDED, MOVED };

static enum looked look_first(struct decision *whole, uint64_t *now) {
    const struct terms *terms = &whole->terms;
    const bool look = is_look(terms);
    uint64_t used, lost;

    if (!sum_used(whole, now, &used, &lost))
        return MOVED;
    if (terms->cost == 0) /* leaves nothing behind, slot or no slot */
        lost = 0;
    whole->charge = judge(terms, used + lost, used + lost);
    if (lost != 0 && (!whole->charge.fits || (look && lost == terms->capacity)))
        return untracked(whole), DECIDED;
    if (!whole->charge.fits)
        return REFUSE;
    if (look) { /* what is lost is nobody's */
        whole->charge.used -= lost;
        whole->charge.total -= lost;
    }
    return look || terms->cost == 0 ? DECIDED : TAKE;
}

/* Decides in the window of whole->now. Returns false if that has moved on, or a token came back. */
static bool stripes_round(struct decision *whole, uint64_t *now) {
    const struct terms *terms = &whole->terms;
    /* One token is taken where it is found. A request for more looks first: if it does not fit, it
     * takes nothing that another could have, and claims no slot. */
    const bool look = is_look(terms) || terms->cost != 1;
    struct gathered gathered;

    if (look && !is_charge(terms)) {
        const enum looked looked = look_first(whole, now);
        if (looked == REFUSE)
            return refuse(whole, now, whole->charge.used);
        if (looked != TAKE)
            return looked == DECIDED;
    }
    if (!gather(whole, now, &gathered))
        return false;
    if (gathered.total == terms->cost || is_charge(terms)) {
        /* After a charge: the sum. If the window has turned, it is what the charge saw, as it stays
         * in its window: a refund by its verdict is for that one. */
        struct decision after = *whole;
        uint64_t then = whole->now, used, lost;
        if (!is_charge(terms))
            used = stripe_estimate(gathered.used, terms->capacity, traits_stripes(terms->traits));
        else if (!sum_used(&after, &then, &used, &lost))
            used = gathered.had + gathered.total;
        if (used < gathered.total)
            used = gathered.total;
        whole->charge = (struct charge){.count = used,
                                        .used = used,
                                        .total = used,
                                        .granted = (uint32_t)gathered.total,
                                        .fits = true};
        /* A stripe without a slot may have lost some of a charge. */
        const bool tracked = GUARD(CHARGE_WHOLE, is_charge(terms)) ? gathered.total == terms->cost
                                                                   : gathered.total != 0;
        whole->flags = gathered.flags & (tracked ? STINT_REPLACED : ~UINT32_C(0));
        return true;
    }
    if (GUARDED(STRIPES_BACK))
        give_back(whole, &gathered);
    if ((gathered.flags & STINT_UNTRACKED) != 0) {
        untracked(whole);
        return true;
    }
    /* A token may have come back to a stripe that was passed: start again. */
    const enum looked looked = look ? REFUSE : look_first(whole, now);
    return looked != TAKE && looked != MOVED && refuse(whole, now, gathered.had);
}

/* In each round but the first the window has turned, or a token has come back: both seldom twice.
 * More rounds there are only in a table that is written over: the request is refused. */
#define ROUNDS_MOST 100

void stint_decide_by_stripes(struct decision *whole) {
    uint64_t now = whole->now; /* of the caller, for whom the verdict is */
    bool decided = false, gone = false;

    for (uint32_t round = 0; !decided && !gone && round < ROUNDS_MOST; round++) {
        decided = stripes_round(whole, &now);
        /* If it is gone, swept stripes tell nothing, and no claim is committed. */
        gone = policy_word(whole->policy) == 0; /* M8 */
    }
    whole->now = now;
    if (UNLIKELY(!decided))
        whole->charge = (struct charge){.fits = is_charge(&whole->terms)};
    if (UNLIKELY(gone))
        whole->flags = DECISION_GONE;
}
