/* SPDX-License-Identifier: MIT
 * Several requests decided as one, and many such groups. Read take.c first: each part goes through
 * the same steps, but all are judged before any is charged.
 *
 * group_of_few and group_of_many are the short ways, for the commonest groups: see, charge and
 * answer, as takes do (see.h). All parts are seen to fit, then each is charged. If one cannot be
 * charged after all, the tokens before it are given back. What they leave goes the long way,
 * group_decide:
 *
 *     1 to 4  part_judge    of each part, from what was loaded of its slot
 *     5       part_charge   of each, by one swap, if all fit
 *     6       all_refuse    else: marks the parts that refuse, then tells the others (part_tell),
 *                           then all waits (all_wait), by looks
 *
 * Every part is judged by a state that was loaded, before any is charged. Then each is charged by a
 * swap of its own, which confirms that state (decision.h, slot_look). A part that writes nothing,
 * or does not fit, is confirmed when it is judged.
 *
 * Of parts that share a slot only the first is judged by a load. Each other part of the same key is
 * judged by the state that the part before will write. Its swap succeeds only if that state was
 * written.
 *
 * Some parts cannot be judged so: those of a key without a slot near its home, in a claim or a
 * later window, or with stripes. They are looked at by the long way, and then decided by it. So is
 * a part whose swap failed. If one is refused then, the tokens of the others are given back, each
 * in its own window (all_give_back). */
#include "refund.h"
#include "search.h"
#include "see.h"
#include "take.h"

/* What part_judge found, and part_charge does about it. */
struct part {
    struct seen seen; /* the slot; its state is the one that was judged: what was loaded, or what an
                       * earlier part will make of it */
    uint64_t loaded;
    uint64_t next; /* what the state is to be; PART_LONG: what the part would add to the count, or
                    * the tokens that it took */
    enum {
        PART_DONE, /* nothing is to be written */
        PART_SWAP,
        PART_AGAIN, /* nothing, by what an earlier part is to write: decide again after that. Or a
                     * strike is to be counted, which the long way does */
        PART_LONG,  /* it was only looked at: decide the long way; or it was decided so */
    } how;
    uint32_t back; /* it was given back: flags of its verdict that stay, as no look tells them */
    bool last;     /* what it takes may be carried: it could not be given back after a boundary */
};

/* A group that goes the long way. */
struct group {
    const struct stint_request *requests;
    struct stint_verdict *verdicts;
    struct part *parts;
    size_t n;
    uint64_t now;
    bool again; /* it is asked once more (group_again) */
};

/* A caller may ask for no verdicts. */
static ALWAYS_INLINE struct stint_verdict *verdict_at(struct stint_verdict *verdicts, size_t i) {
    return verdicts == NULL ? NULL : &verdicts[i];
}

/* ---- Parts, one by one: the long way --------------------------------------------------------- */

/* Decides on one request as a part of the whole. `took` receives how many tokens it took. */
static NOINLINE bool part_decide(struct stint_limiter *limiter, const struct stint_request *request,
                                 uint32_t part, uint64_t now, struct stint_verdict *verdict,
                                 uint64_t *took) {
    struct decision decision;
    const uint32_t why = stint_decision_open(&decision, limiter, request, now);

    *took = 0;
    if (why != 0)
        return stint_decision_void(limiter, request, why, verdict);
    decision.terms.special |= part;
    const bool allowed = stint_decide_opened(&decision, request, verdict);
    *took = decision.charge.granted;
    return allowed;
}

/* Opens a look at what would become of a request. Returns as stint_decision_open. */
static uint32_t look_open(struct decision *decision, struct stint_limiter *limiter,
                          const struct stint_request *request, uint64_t now) {
    const uint32_t why = stint_decision_open(decision, limiter, request, now);

    if (why == 0 && is_charge(&decision->terms)) /* it could not be refused */
        return STINT_BAD_REQUEST;
    decision->terms.flags = (request->flags | STINT_PEEK) & ~(uint32_t)STINT_CHARGE;
    decision->terms.special |= PART_THIS_NOW;
    return why;
}

/* Asks what would become of a request if `before` had been added to its key's count. `would`
 * receives what it would add. */
static bool part_look(struct stint_limiter *limiter, const struct stint_request *request,
                      uint64_t before, uint64_t now, struct stint_verdict *verdict,
                      uint64_t *would) {
    struct decision decision;
    const uint32_t why = look_open(&decision, limiter, request, now);

    *would = 0;
    if (why != 0)
        return stint_decision_void(limiter, request, why, verdict);
    decision.terms.before = before;
    bool fits = stint_decide_opened(&decision, request, verdict);
    if (decision.charge.fits && (request->flags & STINT_PEEK) == 0)
        *would = (decision.charge.total - decision.charge.used) * decision.terms.unit;
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
        if (UNLIKELY(parts[i].seen.slot == slot))
            return &parts[i];
    return NULL;
}

/* Judges a part whose key's tag was seen in a slot. Returns false if it must go the long way. */
static ALWAYS_INLINE bool part_judge_in(struct decision *decision, struct slot *slot,
                                        struct part *parts, size_t n,
                                        struct stint_verdict *verdict) {
    struct part *part = &parts[n];
    struct seen *seen = &part->seen;
    /* The slot as an earlier part will leave it, or as it is. */
    const struct part *earlier = part_of_slot(parts, n, slot);

    if (UNLIKELY(slot == NULL) || /* it has gone from an earlier part's key to this one since */
        UNLIKELY(earlier != NULL && earlier->seen.tag != decision->tag))
        return false;
    /* M1: slot_look loads the tag again. */
    seen->state = earlier != NULL ? earlier->next : atomic_load_acquire(&slot->state);
    part->loaded = earlier != NULL ? earlier->loaded : seen->state;
    seen->slot = slot;
    if (UNLIKELY(slot_look(decision, seen) != LOOK_GOOD))
        return false;
    decision->charge = judge(&decision->terms, seen->count, tick_ns(decision->end) - decision->now);
    const bool writes = slot_next(decision, seen, &part->next);
    /* No charge confirms a part that is refused or writes nothing: the state is loaded once
     * more. */
    if ((!decision->charge.fits || (!writes && earlier == NULL)) &&
        !slot_unchanged(slot, part->loaded, decision->terms.traits))
        return false;
    part->how = strikes(decision) ? PART_AGAIN
                : writes          ? PART_SWAP
                : earlier == NULL ? PART_DONE
                                  : PART_AGAIN;
    if (!writes)
        part->next = seen->state;
    decision->terms.special |= PART_SILENT; /* counted when all are charged */
    (void)decision_end(decision, verdict);
    return true;
}

/* Judges request n of a group by its slot. Returns false if it must go the long way. */
static ALWAYS_INLINE bool part_judge(struct stint_limiter *limiter,
                                     const struct stint_request *request, uint64_t now,
                                     struct part *parts, size_t n, struct stint_verdict *verdict) {
    struct part *part = &parts[n];
    struct decision decision = {0};

    *part = (struct part){.how = PART_LONG};
    if (UNLIKELY(decision_begin(&decision, limiter, request, now, nothing_known) != 0))
        return false;
    part->last = (decision.terms.traits & TRAIT_CARRIES) != 0;
    if (UNLIKELY(is_charge(&decision.terms) || traits_striped(decision.terms.traits)))
        return false;
    if (part_judge_in(&decision, slot_of(&limiter->table, decision.hash, decision.tag), parts, n,
                      verdict))
        return true;
    part->seen.slot = NULL;
    part->how = PART_LONG;
    return false;
}

/* Whether two requests are judged by one count. */
static inline bool same_count(const struct stint_request *one, const struct stint_request *other) {
    return one->key.hash == other->key.hash && one->policy == other->policy;
}

/* What earlier parts of the same key would add to its count. */
static uint64_t taken_before(const struct group *group, size_t part) {
    uint64_t tokens = 0;
    for (size_t i = 0; i < part; i++) {
        const struct stint_verdict *verdict = &group->verdicts[i];
        const uint64_t unit = verdict->unit != 0 ? verdict->unit : 1;
        if (same_count(&group->requests[i], &group->requests[part]))
            tokens +=
                group->parts[i].how == PART_LONG ? group->parts[i].next : verdict->granted * unit;
    }
    return tokens;
}

/* ---- Charge: step 5 -------------------------------------------------------------------------- */

/* Charges a part as it was judged; what lost a race goes the long way. Returns whether it was
 * allowed. */
static ALWAYS_INLINE bool part_charge(struct stint_limiter *limiter,
                                      const struct stint_request *request, struct part *part,
                                      uint64_t now, struct stint_verdict *verdict) {
    switch (part->how) {
    case PART_DONE:
        return true;
    case PART_SWAP:
        if (LIKELY(slot_swap(part->seen.slot, part->seen.tag, part->seen.state, part->next)))
            return true;
        break;
    default:
        break;
    }
    part->how = PART_LONG;
    return part_decide(limiter, request, PART_QUIET, now, verdict, &part->next);
}

/* ---- The whole ------------------------------------------------------------------------------- */

/* Whether a verdict only says that the request makes no sense, or has no policy. */
static inline bool is_void(const struct stint_verdict *verdict) {
    return (verdict->flags & (STINT_UNKNOWN_POLICY | STINT_BAD_REQUEST)) != 0;
}

/* Whether request i is judged by the count of request `part`, and makes sense. */
static bool part_of_count(const struct group *group, size_t i, size_t part) {
    return !is_void(&group->verdicts[i]) && same_count(&group->requests[i], &group->requests[part]);
}

/* What parts of one count take at their whole costs. */
struct together {
    uint64_t tokens;
    uint64_t ns; /* of a bucket: a request's own limit changes the ns of a token */
};

/* A wait that counts from `at`, as one that counts from `now`. None, never, and what is too long
 * for 64 bits stay so. */
static uint64_t wait_since(uint64_t wait, uint64_t at, uint64_t now) {
    if (wait == 0 || wait >= STINT_NEVER - 1)
        return wait;
    return at >= now ? wait_add(wait, at - now) : wait > now - at ? wait - (now - at) : 1;
}

/* ns until a request fits after those that are `taken`, to which it is added. Others make it wait
 * for `from` ns anyway, when an override that lets it through now may be over. */
static uint64_t wait_after(struct stint_limiter *limiter, const struct stint_request *request,
                           uint64_t now, uint64_t from, struct together *taken) {
    struct stint_verdict verdict = {.retry_after = 0};
    struct decision decision;
    struct terms *terms = &decision.terms;

    if (look_open(&decision, limiter, request, now) != 0)
        return 0;
    terms->flags &= ~(uint32_t)STINT_PARTIAL;
    const struct together before = *taken;
    if ((request->flags & STINT_PEEK) == 0) {
        taken->tokens += terms->cost; /* more than there is room for never fits */
        taken->ns += (terms->cost <= terms->room ? terms->cost : terms->room + 1) * terms->unit;
    }
    if ((terms->traits & RULE_BUCKET) != 0 && (terms->special & KEY_OVERRIDDEN) == 0)
        terms->before = before.ns;
    else
        terms->cost += before.tokens;
    uint64_t wait = stint_decide_opened(&decision, request, &verdict) ? 0 : verdict.retry_after;
    const bool untracked = (verdict.flags & STINT_UNTRACKED) != 0;
    if (untracked && from != 0) /* the table has become full since: its wait was told before that */
        wait = 0;
    /* It may have moved to the clock, which may have leapt meanwhile. The verdict of a full table
     * does not tell the time that its wait counts from. */
    const uint64_t at = untracked ? now : decision.now;
    const uint64_t moved = at - now;
    const uint64_t later = from <= moved ? 0 : stint_decision_wait_from(&decision, from - moved);
    wait = later > wait ? later : wait;
    return wait_since(wait, at, now);
}

/* ns from `now` until all requests of the same count as request `part` fit, one after the other,
 * each at its whole cost; `from` as for wait_after. */
static uint64_t wait_together(struct stint_limiter *limiter, const struct group *group, size_t part,
                              uint64_t now, uint64_t from) {
    struct together taken = {0, 0};
    uint64_t wait = 1; /* in a later window, where they were marked, all fit */

    for (size_t i = 0; i < group->n; i++) {
        if (!part_of_count(group, i, part))
            continue;
        const uint64_t then = wait_after(limiter, &group->requests[i], now, from, &taken);
        wait = then > wait ? then : wait;
    }
    return wait;
}

/* When a verdict was decided. A late caller's part is decided at the clock's time, which is
 * later. */
static uint64_t decided_at(const struct stint_verdict *verdict, uint64_t now) {
    return verdict->window == 0 ? now : verdict->window - verdict->reset_after; /* 0: no slot */
}

/* The wait of a part that refuses, from `now`, when its verdict was decided. */
static uint64_t part_wait(struct stint_limiter *limiter, const struct group *group, size_t part,
                          uint64_t now) {
    const struct stint_verdict *verdict = &group->verdicts[part];
    /* Else its window ended since it was judged, or an override, or others gave back. */
    bool own = verdict->window == 0 ||
               (uint64_t)verdict->used + group->requests[part].cost > verdict->capacity;

    for (size_t i = 0; i < group->n; i++) {
        if (i == part || !part_of_count(group, i, part))
            continue;
        /* So a count is looked at twice for each part, at most. */
        const struct stint_verdict *told = &group->verdicts[i];
        if (i < part && !told->allowed)
            return wait_since(told->retry_after, decided_at(told, group->now), now);
        own = false;
    }
    return own ? verdict->retry_after : wait_together(limiter, group, part, now, 0);
}

/* Tells the parts that refuse how long to wait, after all of them were marked: a mark may put a
 * late caller's key into a later window, drain it, count a refusal or ban the key. The longest wait
 * is until the whole fits: also the parts whose overrides end meanwhile. */
static void all_wait(struct stint_limiter *limiter, const struct group *group) {
    struct stint_verdict *longest = NULL;

    for (size_t i = 0; i < group->n; i++) {
        struct stint_verdict *verdict = &group->verdicts[i];
        if (verdict->allowed || is_void(verdict))
            continue;
        verdict->retry_after = part_wait(limiter, group, i, decided_at(verdict, group->now));
        if (longest == NULL || verdict->retry_after > longest->retry_after)
            longest = verdict;
    }
    size_t again = group->n; /* longer waits that are found: each time another override is over */
    for (size_t i = 0; longest != NULL && i < group->n && longest->retry_after != STINT_NEVER;
         i++) {
        const struct stint_verdict *verdict = &group->verdicts[i];
        if (is_void(verdict) || (verdict->flags & STINT_OVERRIDDEN) == 0)
            continue;
        const uint64_t wait =
            wait_together(limiter, group, i, decided_at(longest, group->now), longest->retry_after);
        if (wait > longest->retry_after && again != 0) { /* by then, others may be over, too */
            longest->retry_after = wait;
            again--;
            i = SIZE_MAX;
        }
    }
}

/* Marks a part that refuses. It goes on telling what it was judged beside: earlier parts of its
 * key. */
static void part_mark(struct stint_limiter *limiter, const struct group *group, size_t part) {
    const struct stint_request *request = &group->requests[part];
    struct stint_verdict *verdict = &group->verdicts[part];
    const struct stint_verdict judged = *verdict;
    bool beside = false; /* earlier parts of the key */
    uint64_t took;

    (void)part_decide(limiter, request, PART_REFUSED, group->now, verdict, &took);
    if (UNLIKELY(verdict->allowed)) { /* by a shadow since the look, or without a slot */
        verdict->allowed = false;
        verdict->flags &= ~(uint32_t)STINT_SHADOWED;
        verdict->granted = 0;
    }
    /* A policy that has replaced it since counts anew; a key without a slot has no window. */
    if (verdict->window == 0 || policy_gone(&limiter->policies[request->policy]))
        return;
    for (size_t i = 0; i < part; i++)
        beside |= same_count(&group->requests[i], request);
    const bool bucket = judged.unit != 0;
    if (!beside || (bucket ? verdict->window >= judged.window : verdict->used >= judged.used))
        return;
    verdict->flags |= judged.flags & STINT_NEAR_LIMIT;
    verdict->used = judged.used;
    verdict->remaining = judged.used < verdict->capacity ? verdict->capacity - judged.used : 0;
    if (bucket) {
        verdict->window = judged.window;
        verdict->reset_after = judged.reset_after;
    }
}

/* Tells of a part that fits what a look says of it. Whatever others have taken since it was judged,
 * it does not refuse the whole. It does after all if the table is full by now. */
static void part_tell(struct stint_limiter *limiter, const struct group *group, size_t part) {
    const struct stint_request *request = &group->requests[part];
    struct stint_verdict *verdict = &group->verdicts[part];
    uint64_t would;

    const bool fits = part_look(limiter, request, 0, group->now, verdict, &would);
    if (is_void(verdict)) /* its policy is gone */
        return;
    if ((verdict->flags & STINT_UNTRACKED) != 0) {
        if (!fits && counts(request))
            decision_count(limiter, request->policy, verdict->flags, false);
        return;
    }
    verdict->flags |= group->parts[part].back;
    if (!fits) {
        verdict->allowed = true;
        verdict->retry_after = 0;
    }
}

/* Refuses the whole, after what it took was given back. A part that does not fit is marked and
 * counted, but part `refused`, which was decided (n: none was). */
static NOINLINE enum answer all_refuse(struct stint_limiter *limiter, const struct group *group,
                                       size_t refused) {
    for (size_t i = 0; i < group->n; i++) {
        const struct stint_request *request = &group->requests[i];
        const struct stint_verdict *verdict = &group->verdicts[i];
        if (verdict->allowed || i == refused || is_void(verdict) || !counts(request))
            continue;
        if (group->parts[i].how == PART_DONE || (verdict->flags & STINT_UNTRACKED) != 0)
            /* Nothing to mark: it was marked before, or the key has no slot in a full table. */
            decision_count(limiter, request->policy, verdict->flags, false);
        else
            part_mark(limiter, group, i);
    }
    for (size_t i = 0; i < group->n; i++)
        if (group->verdicts[i].allowed)
            part_tell(limiter, group, i);
    if (GUARDED(PARTS_WAIT))
        all_wait(limiter, group);
    return REFUSED;
}

/* Gives back what was counted of the parts that are `taken` (a bit for each), as part `refused` was
 * refused after all. */
static NOINLINE enum answer all_give_back(struct stint_limiter *limiter, const struct group *group,
                                          uint64_t taken, size_t refused) {
    for (size_t i = 0; i < group->n; i++) {
        struct stint_verdict *verdict = &group->verdicts[i];
        if ((taken >> i & 1) == 0)
            continue;
        group->parts[i].back =
            verdict->flags & (STINT_FIRST_REFUSAL | STINT_SHADOWED | STINT_REPLACED);
        if ((verdict->flags & STINT_FIRST_REFUSAL) != 0) /* a shadow's: it is not seen again */
            limiter_count(limiter, group->requests[i].policy, COUNT_FIRST_REFUSAL);
        const uint32_t tokens = (uint32_t)part_tokens(&group->parts[i], verdict);
        if (GUARD(PARTS_BACK, tokens != 0))
            (void)stint_key_refund(limiter, group->requests[i].key.hash, verdict, tokens);
    }
    return all_refuse(limiter, group, refused);
}

/* Refuses requests that are no group: too many, or what the sizes of groups do not fit. */
static NOINLINE bool all_bad(struct stint_limiter *limiter, const struct stint_request *requests,
                             size_t n, struct stint_verdict *verdicts) {
    for (size_t i = 0; i < n; i++)
        (void)stint_decision_void(limiter, &requests[i], STINT_BAD_REQUEST,
                                  verdict_at(verdicts, i));
    return false;
}

static enum answer group_by_replacements(struct stint_limiter *limiter, const struct group *group);
static enum answer group_again(struct stint_limiter *limiter, const struct group *group);

/* Counts the parts of a group that was allowed. */
static enum answer all_count(struct stint_limiter *limiter, const struct group *group) {
    for (size_t i = 0; i < group->n; i++)
        if (counts(&group->requests[i]))
            decision_count(limiter, group->requests[i].policy, group->verdicts[i].flags, true);
    return ALLOWED;
}

/* Any group of STINT_ALL_MAX at most. If it does not fit and is asked `again`, NEXT. */
static enum answer group_at(struct stint_limiter *limiter, const struct stint_request *requests,
                            size_t n, uint64_t now, struct stint_verdict *verdicts, bool again) {
    struct stint_verdict own[STINT_ALL_MAX];
    struct part parts[STINT_ALL_MAX];
    const struct group group = {requests, verdicts != NULL ? verdicts : own, parts, n, now, again};
    uint64_t taken = 0; /* a bit for each request */
    bool fit = true, last = false, looked = false;

    verdicts = group.verdicts;
    for (size_t i = 0; i < n; i++) {
        /* The slot knows nothing of parts that were only looked at. */
        if (UNLIKELY(!part_judge(limiter, &requests[i], now, parts, i, &verdicts[i])) ||
            (UNLIKELY(looked) && taken_before(&group, i) != 0)) {
            if (requests[i].policy < limiter->deciding &&
                policy_gone(&limiter->policies[requests[i].policy])) {
                const enum answer answer = group_by_replacements(limiter, &group);
                if (answer != NEXT)
                    return answer;
            }
            (void)part_look(limiter, &requests[i], taken_before(&group, i), now, &verdicts[i],
                            &parts[i].next);
            parts[i].seen.slot = NULL;
            parts[i].how = PART_LONG;
            looked = true;
        }
        fit &= verdicts[i].allowed;
        last |= parts[i].last;
    }
    if (!fit) {
        const enum answer answer = again ? NEXT : group_again(limiter, &group);
        return again || answer != NEXT ? answer : all_refuse(limiter, &group, n);
    }
    /* Parts that could not be given back after a boundary come last. */
    for (size_t i = 0; i < n; i++) {
        if (UNLIKELY(parts[i].last))
            continue;
        if (UNLIKELY(!part_charge(limiter, &requests[i], &parts[i], now, &verdicts[i])))
            return all_give_back(limiter, &group, taken, i);
        taken |= UINT64_C(1) << i;
        /* A shadow's ban begins: later parts of the key are judged by it. */
        for (size_t j = i + 1; UNLIKELY((verdicts[i].flags & STINT_BANNED) != 0) && j < n; j++)
            if (same_count(&requests[i], &requests[j]) && parts[j].how != PART_LONG)
                parts[j].how = PART_AGAIN;
    }
    for (size_t i = 0; last && i < n; i++) {
        if (!parts[i].last)
            continue;
        if (!part_charge(limiter, &requests[i], &parts[i], now, &verdicts[i]))
            return all_give_back(limiter, &group, taken, i);
        taken |= UINT64_C(1) << i;
    }
    return all_count(limiter, &group);
}

/* The policy of a part decides nothing. If it was replaced, asks anew by the policies that are
 * there now: parts of one key must find each other, whatever ids they have. Nothing was charged or
 * counted yet. (stint_decide_all would no longer be inlined if it called itself.) */
static NOINLINE enum answer group_by_replacements(struct stint_limiter *limiter,
                                                  const struct group *group) {
    struct stint_request by_now[STINT_ALL_MAX];
    bool replaced = false;

    for (size_t i = 0; i < group->n; i++) {
        by_now[i] = group->requests[i];
        uint32_t id = stint_limiter_policy_now(limiter, by_now[i].policy);
        if (id == by_now[i].policy || id == POLICY_NONE)
            continue;
        by_now[i].policy = id;
        replaced = true;
    }
    return replaced ? group_at(limiter, by_now, group->n, group->now, group->verdicts, group->again)
                    : NEXT;
}

static bool is_bucket(const struct stint_limiter *limiter, uint32_t policy_id) {
    return policy_id < limiter->deciding &&
           (policy_word(&limiter->policies[policy_id]) & RULE_BUCKET) != 0;
}

/* Asks once more, as a whole, for a group that does not fit and has buckets that refuse it
 * (stint_bucket_later). NEXT: it does not fit then, either, and nothing was done. */
static NOINLINE enum answer group_again(struct stint_limiter *limiter, const struct group *group) {
    struct stint_verdict told[STINT_ALL_MAX];
    uint64_t later = group->now;

    for (size_t i = 0; i < group->n; i++) {
        if (group->verdicts[i].allowed || !is_bucket(limiter, group->requests[i].policy))
            continue;
        const uint64_t then = stint_bucket_later(limiter, group->requests[i].key.hash, group->now);
        later = then > later ? then : later;
    }
    const enum answer answer =
        later == group->now ? NEXT
                            : group_at(limiter, group->requests, group->n, later, told, true);
    if (answer != NEXT)
        memcpy(group->verdicts, told, group->n * sizeof(*told));
    return answer;
}

/* Checks the now of a group, once, so that all parts have the same. */
static NOINLINE uint64_t group_now(const struct stint_limiter *limiter,
                                   const struct stint_request *requests, size_t n, uint64_t given) {
    const uint64_t now = stint_now_checked(limiter, given);

    for (size_t i = 0; UNLIKELY(now != given) && i < n; i++) {
        const uint32_t id = stint_limiter_policy_now(limiter, requests[i].policy);
        if (id != POLICY_NONE)
            stint_limiter_count_rare(limiter, id, RARE_NOW_MISTAKEN);
    }
    return now;
}

/* Any group of STINT_ALL_MAX at most. */
static bool group_decide(struct stint_limiter *limiter, const struct stint_request *requests,
                         size_t n, uint64_t now, struct stint_verdict *verdicts) {
    if (UNLIKELY(!limiter_knows_now(limiter, tick_of(now))))
        now = group_now(limiter, requests, n, now);
    return group_at(limiter, requests, n, now, verdicts, false) == ALLOWED;
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
    while (n > 0 && !counts(&requests[n - 1]))
        n--;
    return n == 0;
}

/* A group by a lost table, which knows no policies. */
static NOINLINE bool all_lost(struct stint_limiter *limiter, const struct stint_request *requests,
                              size_t n, struct stint_verdict *verdicts) {
    bool all = true;

    for (size_t i = 0; i < n; i++)
        all &= stint_decision_void(limiter, &requests[i],
                                   (requests[i].flags & (STINT_PEEK | STINT_CHARGE)) == STINT_CHARGE
                                       ? STINT_BAD_REQUEST
                                       : STINT_UNKNOWN_POLICY,
                                   verdict_at(verdicts, i));
    for (size_t i = 0; !all && verdicts != NULL && i < n; i++)
        verdicts[i].granted = 0;
    return all;
}

/* What group_of_many leaves. */
static NOINLINE bool group_rest(struct stint_limiter *limiter, const struct stint_request *requests,
                                size_t n, uint64_t now, struct stint_verdict *verdicts) {
    if (UNLIKELY(n > STINT_ALL_MAX))
        return all_bad(limiter, requests, n, verdicts);
    if (UNLIKELY(limiter->deciding == 0)) {
        if (limiter->looking != NULL && all_look(requests, n))
            limiter = limiter->looking;
        if (limiter->deciding == 0 && limiter->looking == NULL)
            return all_lost(limiter, requests, n, verdicts);
    }
    if (n == 1 && (requests->flags & STINT_CHARGE) == 0)
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
