/* SPDX-License-Identifier: MIT
 * The core: the steps of every decision, in the order in which they run. Read this file first.
 *
 *     1  begin    decision_begin_at the policy, the window of now, the cost, the override, the room
 *     2  look     slot_look         what the key's slot holds in that window
 *     3  judge    decision_judge    what becomes of the count (judge.h)
 *     4  charge   slot_charge       one compare-and-swap of the slot (slot.h)
 *     5  answer   decision_answer   the statistics, and the verdict
 *
 * take.c takes them in the slot of a key that has one. A key without a slot goes on in decide.c,
 * with what was begun; what has changed on the way, and a late caller, begin anew there.
 * group_near.h takes each step for all parts of a group at once; stripes.c, stripe after stripe.
 *
 * What is ordinary stays in registers. What is odd is asked where its trait is, by a function of
 * decision.c that takes few numbers, or a copy: a struct decision whose address is given away is in
 * memory, 6 to 8 ns. Little is stored before a swap, which waits for all stores.
 *
 * The structs are in decision.h, judge.h (terms, charge) and slot.h (seen); what M and I cite, in
 * ordering.md and slot.h; GUARD, in sys/testing.h. */
#ifndef STINT_CORE_H
#define STINT_CORE_H

#include "decision.h"
#include "feature/override.h" /* asked in step 1 alone */

/* A word of a policy of which the compiler knows all traits. */
#define WORD_EXACT(word, traits) ((word) >> 32 << 32 | (traits))

/* ---- 1  Begin -------------------------------------------------------------------------------- */

/* Whether a now is in the window of the policy's hint, or, where the slot tells the window (then
 * `end` receives 0), near what is known of the clock. It changes nothing: who goes the long way
 * then (stint_moment_odd) finds the same. */
static ALWAYS_INLINE bool moment_known(const struct stint_limiter *limiter,
                                       const struct policy *policy, uint32_t traits, uint64_t now,
                                       tick_t *end) {
    *end = 0;
    if (UNLIKELY((traits & TRAITS_OWN_WINDOW) != 0))
        return LIKELY(limiter_knows_now(limiter, tick_of(now)));
    const uint64_t hint = atomic_load_relaxed(&policy->current_end); /* M16 */
    if (UNLIKELY((traits & TRAIT_CALENDAR) != 0)) {
        *end = hint_end(hint);
        return LIKELY(!hint_foreign(*end, hint_window(hint), now));
    }
    *end = (tick_t)hint;
    return LIKELY(!hint_foreign(*end, policy->window, now));
}

/* As stint_override_find. Fast case, without a division: it is in the key's home line, ends after
 * the window that ends at `end`, and within its longest length. */
static ALWAYS_INLINE uint64_t override_of(const struct stint_limiter *limiter, uint32_t policy_id,
                                          uint32_t traits, uint64_t hash, uint64_t now,
                                          tick_t end) {
    /* Plus one, as a tag has it. M15 */
    const uint64_t companion = atomic_load_relaxed_32(&limiter->records[policy_id].companion);
    const uint64_t tag = hash * limiter->table.tag_unit + companion;
    const struct slot *slot = line_find(home_of(&limiter->table, hash), tag);

    if (LIKELY(slot != NULL) && LIKELY((traits & TRAITS_OWN_WINDOW) == 0)) {
        const uint64_t state = override_in(slot, tag);
        const uint64_t later = (state_id(state) - id_of(end)) & ID_MASK;
        if (LIKELY((state & (STATE_REFUSED | OVERRIDE_ENDLESS)) == STATE_REFUSED) &&
            LIKELY(later <= COMPANION_LENGTH - (uint64_t)limiter->policies[policy_id].length))
            return state;
    }
    return stint_override_find(limiter, policy_id, hash, now);
}

static ALWAYS_INLINE uint64_t own_capacity(uint32_t traits, uint64_t limit) {
    const uint64_t most = (traits & TWO_COUNTS) != 0 ? SMOOTH_MAX : STINT_LIMIT_MAX;
    return limit < most ? limit : most;
}

/* By an override's limit or the request's (0: neither). Returns false if the policy was changed. */
static ALWAYS_INLINE bool begin_bucket(struct decision *decision, uint32_t limit, bool overridden) {
    struct terms *terms = &decision->terms;
    const bool all =
        limit != 0 || overridden || (terms->flags & (STINT_RESERVE | STINT_CHARGE)) != 0;
    struct bucket bucket = {0};

    if (UNLIKELY(!limiter_bucket_load(decision->limiter, decision->policy_id, terms->traits, all,
                                      &bucket)))
        return false;
    if (overridden && limit == STINT_LIMIT_MAX) /* never refused */
        limit = 0;
    decision->version = bucket.version;
    bucket_terms(terms, &bucket, limit);
    terms_cut(terms, decision->asked.burst);
    return true;
}

/* Of a request that reserves or charges, by windows. Returns false if the policy has changed. */
static ALWAYS_INLINE bool begin_room(const struct policy *policy, uint64_t word,
                                     struct terms *terms) {
    const uint32_t traits = (uint32_t)word;
    const bool reserves = (terms->flags & STINT_RESERVE) != 0;

    if (!reserves && is_look(terms)) /* the look before a charge */
        return true;
    if (!reserves && (traits & (TRAIT_CARRIES | STINT_SMOOTH)) != TRAIT_CARRIES) {
        terms->room = (traits & STINT_SMOOTH) != 0 ? SMOOTH_MAX : STINT_LIMIT_MAX;
        return true;
    }
    const uint64_t version = atomic_load_acquire(&policy->version); /* M15 */
    const uint64_t *words = policy->rules[version % 2];
    const uint64_t reserved = (uint32_t)atomic_load_acquire(&words[1]); /* M13 */
    const uint64_t room = reserved + (reserves ? terms->capacity : word >> 32);
    terms->room = room < STINT_LIMIT_MAX ? room : STINT_LIMIT_MAX;
    return LIKELY(atomic_load_acquire(&words[RULE_TRAITS]) == word) && /* M13 */
           LIKELY(atomic_load_relaxed(&policy->version) == version);   /* M13 */
}

/* By an override, whose limit is the capacity by now. A key that is never refused takes nothing:
 * its request is one for no tokens. */
static ALWAYS_INLINE void begin_overridden(struct terms *terms, uint64_t override, uint32_t limit) {
    terms->special |= KEY_OVERRIDDEN;
    if (UNLIKELY(limit == 0)) {
        terms->special |= KEY_BARRED | (override_banned(override) ? KEY_BANNED : 0);
        terms->capacity = 0;
        terms->room = is_charge(terms) ? terms->room : 0;
    } else if (UNLIKELY(limit == STINT_LIMIT_MAX)) {
        terms->capacity = STINT_LIMIT_MAX;
        terms->room = INT64_MAX / terms->unit; /* whatever was used before */
        terms->cost = 0;
        terms->flags &= ~(uint32_t)STINT_RESERVE;
    }
}

/* Reads what a decision at this moment must know of its policy, of which this is the word (a
 * bucket's capacity is read here, whatever the word says), and of the request, which suits it.
 * `possible`: the key is known to be one that may have an override. The limiter and terms.special
 * are set. Returns 0, or STINT_UNKNOWN_POLICY if the policy was changed meanwhile. */
static ALWAYS_INLINE uint32_t decision_begin_at(struct decision *decision, uint32_t policy_id,
                                                const struct stint_request *request,
                                                struct moment moment, uint64_t word,
                                                bool possible) {
    const uint32_t traits = (uint32_t)word, flags = request->flags, limit = request->limit;
    const uint64_t hash = request->key.hash;
    struct stint_limiter *limiter = decision->limiter;
    struct terms *terms = &decision->terms;
    uint64_t override = 0;

    if (UNLIKELY((traits & STINT_OVERRIDES) != 0) &&
        (possible || filter_has(&limiter->table, hash)))
        override = override_of(limiter, policy_id, traits, hash, moment.now, moment.end);
    const uint32_t other = UNLIKELY(override != 0) ? override_limit(override) : limit;
    decision->policy = &limiter->policies[policy_id];
    decision->policy_id = policy_id;
    decision->hash = hash;
    decision->tag = table_tag(&limiter->table, hash, policy_id);
    decision->now = moment.now;
    decision->end = moment.end;
    decision->identity = policy_identity(decision->policy);
    decision->flags = 0;
    decision->asked = (struct asked){request->cost, limit, request->burst, flags};
    decision->override = override;
    terms->traits = traits;
    terms->flags = flags;
    terms->cost = request->cost;
    terms->capacity = UNLIKELY((limit | override) != 0) ? own_capacity(traits, other) : word >> 32;
    terms->room = terms->capacity;
    terms->unit = 1;
    terms->reciprocal = 0;
    terms->rate = 0;
    if ((traits & RULE_BUCKET) != 0) {
        if (UNLIKELY(!begin_bucket(decision, other, override != 0)))
            return STINT_UNKNOWN_POLICY;
    } else if ((flags & (STINT_RESERVE | STINT_CHARGE)) != 0 &&
               UNLIKELY(!begin_room(decision->policy, word, terms))) {
        return STINT_UNKNOWN_POLICY;
    }
    if (UNLIKELY(override != 0))
        begin_overridden(terms, override, other);
    return 0;
}

/* The same at this now, by the request's policy. By one that is not known it goes the long way. */
static ALWAYS_INLINE uint32_t decision_begin_known(struct decision *decision,
                                                   struct stint_limiter *limiter,
                                                   const struct stint_request *request,
                                                   uint64_t now, uint64_t word, bool possible) {
    const uint32_t id = request->policy;
    struct moment moment = {.now = now};

    decision->limiter = limiter;
    decision->terms.special = 0;
    if (UNLIKELY(!moment_known(limiter, &limiter->policies[id], (uint32_t)word, now, &moment.end)))
        return STINT_UNKNOWN_POLICY;
    return decision_begin_at(decision, id, request, moment, word, possible);
}

/* ---- 2  Look --------------------------------------------------------------------------------- */

/* Fits the terms of a request to a rule that was read later, by which its window begins. */
static ALWAYS_INLINE void rule_adopt(struct decision *decision, const struct rule *rule) {
    struct terms *terms = &decision->terms;
    const bool own = (decision->override | decision->asked.limit) != 0;

    if (UNLIKELY(terms->capacity > rule->capacity) && !own) {
        const uint64_t more = terms->room - terms->capacity;
        terms->capacity = rule->capacity;
        terms->room = rule->capacity + (more < rule->max_reserved ? more : rule->max_reserved);
        /* Else a request could be refused that both rules let through, one of them as a shadow. */
        terms->traits ^= (terms->traits ^ rule->flags) & STINT_SHADOW;
    }
}

/* What a slot that is over leaves to the decision's window. */
static ALWAYS_INLINE uint64_t slot_carried(struct decision *decision, uint64_t state) {
    if ((decision->terms.traits & TRAIT_CARRIES) == 0)
        return 0;
    const struct rule rule = policy_rule(decision->policy);
    const tick_t over = decision->end - end_before(state_id(state), tick_of(decision->now));
    rule_adopt(decision, &rule);
    return count_carry(&rule, state_used(state),
                       (uint64_t)(over / policy_length(decision->policy)));
}

/* Finds the end of the key's own window. Returns whether it is that of the slot, as it was seen. */
static ALWAYS_INLINE bool window_in(struct decision *decision, uint64_t state) {
    const tick_t now = tick_of(decision->now);
    const uint64_t ahead = (state_id(state) - (uint64_t)now) & ID_MASK;

    if (LIKELY(ahead - 1 < (uint64_t)policy_reach(decision->policy))) {
        decision->end = now + (tick_t)ahead;
        return true;
    }
    decision->end = (decision->terms.traits & RULE_BUCKET) != 0 ? now + 1 : window_anew(decision);
    return false;
}

enum look {
    LOOK_GOOD,
    LOOK_PENDING, /* it is claimed, and not committed */
    LOOK_AHEAD,   /* it is in a later window than that of now */
    LOOK_CHANGED, /* it is a bucket's, and counts by another rate than the decision does */
};

/* Looks at the state that was loaded of a slot of the key (seen->state), in the decision's window.
 * If the slot is in an earlier window, that is over, and the new one begins with what is carried.
 *
 * Why the state is the key's. The tag was seen, then the state s was loaded. The slot may have been
 * another key's in between, and may be now. But s is the key's if, at any time after this, the slot
 * has the key's tag and then the end of s (I1). Whatever ends the decision makes sure that it has:
 *   - a swap: it succeeds only if tag and state are what they were;
 *   - the fetch-add of fast.h, after a second look at the tag: it returns the end of s, committed;
 *   - a look, or a refusal that writes nothing: the tag is loaded again, and then the state, which
 *     has the end of s, committed (slot_as_seen).
 * What fails begins anew, or goes on elsewhere. Without the second look at the tag another key's
 * window is charged. Without the second load of the state a key is refused for another's count.
 *
 * A window of the key's own (TRAITS_OWN_WINDOW) is found in the slot, if it holds now; what
 * confirms s confirms the end. A pending s is no window: its end is the claim's. Else the window of
 * now is that of the key's phase, or begins with this request (decision.c, window_at). */
static ALWAYS_INLINE enum look slot_look(struct decision *decision, struct seen *seen) {
    const uint32_t traits = decision->terms.traits;
    const uint64_t state = seen->state;
    bool inside = false;

    seen->tag = decision->tag;
    seen->count = seen->refused = 0;
    if (UNLIKELY((traits & TRAITS_OWN_WINDOW) != 0) && decision->end == 0) {
        if (UNLIKELY(GUARD(KEY_PENDING, state_pending(state))))
            return LOOK_PENDING; /* the end is the claim's */
        inside = window_in(decision, state);
    }
    if ((traits & RULE_BUCKET) != 0 &&
        UNLIKELY(GUARD(RATE_LOOK, rate_differs(state, decision->terms.rate))) &&
        !state_pending(state))
        return LOOK_CHANGED;
    /* The id is in the top bits: an earlier one makes the difference negative. */
    if (!inside && UNLIKELY(state - state_of(decision->end, 0) >= STATE_PENDING)) {
        if (GUARD(FOUND_PENDING, state_pending(state)))
            return LOOK_PENDING;
        /* The ids of two ends are not compared: one may be long over, the other 366 days ahead. */
        const tick_t end = end_of(state_id(state), tick_of(decision->now));
        if (end > decision->end)
            return LOOK_AHEAD;
        if (end < decision->end) {
            seen->count = slot_carried(decision, state);
            return LOOK_GOOD;
        }
    }
    seen->count = (traits & RULE_BUCKET) != 0
                      ? bucket_count(decision->end, bucket_ns(state), decision->now)
                      : state_used(state);
    seen->refused = state & STATE_REFUSED;
    return LOOK_GOOD;
}

/* Confirms a decision that writes nothing: the slot still has the key's tag, and the window in
 * which it was seen. A bucket's end falls, and may come again: its whole state must be the same. */
static ALWAYS_INLINE bool slot_as_seen(const struct seen *seen, uint32_t traits) {
    if (UNLIKELY(GUARD(FOUND_TAG, atomic_load_acquire(&seen->slot->tag) != seen->tag))) /* M1 */
        return false;
    const uint64_t again = atomic_load_acquire(&seen->slot->state); /* M2 */
    return LIKELY(!GUARD(FOUND_STATE, (traits & RULE_BUCKET) != 0
                                          ? again != seen->state
                                          : !state_same_window(again, seen->state)));
}

/* ---- 3  Judge -------------------------------------------------------------------------------- */

/* Judges a bucket that has no room once more, at the latest of the times that others know
 * (stint_bucket_later). If it has room then, the decision moves there. Else it stays. */
static ALWAYS_INLINE void bucket_again(struct decision *decision, struct seen *seen) {
    const struct terms *terms = &decision->terms;
    const bool partial = (terms->flags & STINT_PARTIAL) != 0;
    const uint32_t least = partial && terms->cost != 0 ? 1 : terms->cost;
    if ((terms->special & KEY_BARRED) != 0 || (never_fits(terms) && !partial) ||
        bucket_wait(terms, seen->count, least, terms->room) >
            ALLOWANCE_NS) /* it has none at any of these times */
        return;
    const uint64_t later = stint_bucket_later(decision->limiter, decision->hash, decision->now);
    const uint64_t late = later - decision->now;
    const uint64_t count = seen->count > late ? seen->count - late : 0;
    if (LIKELY(bucket_wait(terms, count, terms->cost, terms->room) != 0) && !partial)
        return;
    const struct charge charge = judge(terms, count, bucket_tokens(terms, count));
    if (!charge.fits)
        return;
    decision->charge = charge;
    decision->now = later;
    seen->count = count;
}

static ALWAYS_INLINE void decision_judge(struct decision *decision, struct seen *seen) {
    struct terms *terms = &decision->terms;
    const uint64_t room = terms->room;
    uint64_t used = seen->count;

    if ((terms->traits & RULE_BUCKET) != 0) {
        used = bucket_tokens(terms, seen->count);
    } else if (UNLIKELY((terms->traits & TWO_COUNTS) != 0)) {
        used = stint_total_of_two(decision->policy, seen->count,
                                  tick_ns(decision->end) - decision->now);
        if (is_charge(terms)) /* it may fill the count of this window */
            terms->room = used + SMOOTH_MAX - (seen->count & THIS_MASK);
    }
    decision->charge = judge(terms, seen->count, used);
    terms->room = room;
    if ((terms->traits & RULE_BUCKET) != 0 && !decision->charge.fits)
        bucket_again(decision, seen);
}

/* ---- 4  Charge ------------------------------------------------------------------------------- */

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

/* The state that a decision's count makes of what was seen, without a mark. A bucket's instant
 * moves ahead: from where it is, or from now. */
static ALWAYS_INLINE uint64_t decision_state(const struct decision *decision,
                                             const struct seen *seen) {
    const uint64_t count = decision->charge.count;

    if ((decision->terms.traits & RULE_BUCKET) == 0)
        return state_of(decision->end, count);
    return bucket_moved(seen->count != 0 ? seen->state & ~STATE_REFUSED
                                         : bucket_state(decision->now, decision->terms.rate),
                        decision->charge.added);
}

/* The state to be written after what was seen was judged. Returns false if nothing is.
 *
 * The mark of a bucket that is full moves its instant to now, as a mark counts until the slot is
 * over. Without that instant, a late caller would be granted once more what was taken just before
 * his now (A). The mark ends as the instant passes a multiple of the window (mark_passed). */
static ALWAYS_INLINE bool slot_next(struct decision *decision, const struct seen *seen,
                                    uint64_t *next) {
    const struct terms *terms = &decision->terms;
    struct charge *charge = &decision->charge;
    uint64_t refused = seen->refused;
    const bool bucket = (terms->traits & RULE_BUCKET) != 0;
    if (bucket && UNLIKELY(refused != 0) && charge->added != 0 &&
        GUARD(BUCKET_MARK, stint_mark_passed(decision->limiter, decision->policy_id,
                                             bucket_full(decision->end, bucket_ns(seen->state)),
                                             decision->now + charge->count)))
        refused = 0;
    bool first_refusal = !charge->fits && GUARD(FOUND_MARK, refused == 0) && refusal_marked(terms);
    bool writes = charge->added != 0;

    if (UNLIKELY((terms->special & PART_SAME_WINDOW) != 0) && decision->end != decision->only_end) {
        *charge = (struct charge){.count = seen->count, .used = seen->count};
        first_refusal = writes = false;
    }
    decision->flags = first_refusal ? STINT_FIRST_REFUSAL : 0;
    HOLDS(A, charge->granted == 0 || is_charge(terms) || charge->used <= terms->room);
    if (!first_refusal && !writes)
        return false;
    *next = decision_state(decision, seen) | (first_refusal ? STATE_REFUSED : refused);
    return true;
}

/* Writes what was judged, by one swap. Returns false if the slot has changed since it was seen.
 *
 * A new window in place: the slot is the key's, and over. One CAS changes window and count
 * together: of two threads that meet at a boundary one opens the window and the other counts in it.
 * A late thread may open a window that is over by the clock. That is later than any that this slot
 * had (I1), and the key has no other slot (I3): nothing is counted in it twice. */
static ALWAYS_INLINE bool slot_charge(struct decision *decision, const struct seen *seen) {
    uint64_t next;
    return slot_next(decision, seen, &next)
               ? LIKELY(slot_swap(seen->slot, decision->tag, seen->state, next))
               : slot_as_seen(seen, decision->terms.traits);
}

/* ---- 5  Answer ------------------------------------------------------------------------------- */

/* Whether a strike is to be counted. A shadow counts none. */
static ALWAYS_INLINE bool strikes(const struct decision *decision) {
    return UNLIKELY((decision->flags & STINT_FIRST_REFUSAL) != 0) &&
           (decision->terms.traits & (STINT_OVERRIDES | STINT_SHADOW)) == STINT_OVERRIDES &&
           (decision->terms.special & KEY_OVERRIDDEN) == 0;
}

static ALWAYS_INLINE void decision_count(const struct decision *decision, uint32_t flags,
                                         bool allowed) {
    const uint32_t rare = STINT_FIRST_REFUSAL | STINT_UNTRACKED | STINT_NEAR_LIMIT;

    limiter_count(decision->limiter, decision->policy_id,
                  UNLIKELY((flags & STINT_SHADOWED) != 0) ? COUNT_SHADOWED
                  : allowed                               ? COUNT_ALLOWED
                                                          : COUNT_REFUSED);
    if (UNLIKELY((flags & rare) != 0))
        stint_answer_count(decision->limiter, decision->policy_id, flags, allowed);
}

/* STINT_NEAR_LIMIT, if a key that has used so much is near its policy's limit; else 0. */
static ALWAYS_INLINE uint32_t answer_near(const struct policy *policy, uint64_t used,
                                          uint64_t capacity) {
    const uint64_t version = atomic_load_acquire(&policy->version); /* M15 */
    const uint64_t near_limit =
        atomic_load_acquire(&policy->rules[version % 2][1]) >> RULE_NEAR & 127; /* M13 */

    return near_limit != 0 && /* it was taken from the policy a moment ago */
                   used * 100 > capacity * near_limit
               ? STINT_NEAR_LIMIT
               : 0;
}

/* ns to wait, `left` ns before the end of the window. What fits waits only if it takes ahead; what
 * is refused for that end, as a rule; by a bucket, for its tokens. */
static ALWAYS_INLINE uint64_t answer_wait(const struct decision *decision, uint64_t left) {
    const struct terms *terms = &decision->terms;
    const struct charge *charge = &decision->charge;
    const bool bucket = (terms->traits & RULE_BUCKET) != 0;

    if (charge->fits)
        return UNLIKELY((terms->flags & STINT_RESERVE) != 0) &&
                       UNLIKELY(charge->total > terms->capacity)
                   ? answer_wait_odd(decision, left)
                   : 0;
    if (UNLIKELY((terms->traits & (TRAIT_CARRIES | TRAIT_JITTER)) != 0) ||
        UNLIKELY((terms->special & KEY_OVERRIDDEN) != 0) ||
        UNLIKELY((decision->flags & STINT_UNTRACKED) != 0))
        return answer_wait_odd(decision, left);
    return never_fits(terms) ? STINT_NEVER
           : bucket          ? bucket_wait(terms, charge->count, terms->cost, terms->room)
                             : left;
}

/* Two fields of 32 bits as one word: one store is faster than two, and fields that are joined in
 * memory would make the next load wait. (The machine is little-endian: atomic.h.) */
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

static ALWAYS_INLINE void verdict_word(struct stint_verdict *verdict, size_t i, uint64_t word) {
    memcpy((char *)verdict + i * sizeof(word), &word, sizeof(word));
}

static ALWAYS_INLINE void verdict_write(const struct decision *decision, uint64_t used,
                                        bool allowed, uint32_t flags,
                                        struct stint_verdict *verdict) {
    const struct terms *terms = &decision->terms;
    const struct charge *charge = &decision->charge;
    const bool untracked = (decision->flags & STINT_UNTRACKED) != 0;
    const bool bucket = (terms->traits & RULE_BUCKET) != 0;
    const uint64_t end = bucket ? decision->now + charge->count : tick_ns(decision->end);
    const uint64_t left = end - decision->now;
    uint64_t remaining = 0;

    if (LIKELY(used < terms->capacity) && !(untracked && !charge->fits))
        remaining = terms->capacity - used;
    verdict_word(verdict, 0, PAIR(allowed, flags));
    verdict_word(verdict, 1, PAIR(terms->capacity, used));
    verdict_word(verdict, 2, PAIR(remaining, charge->granted));
    verdict->window = untracked ? 0 : end;
    verdict->reset_after = left;
    verdict->retry_after = answer_wait(decision, left);
    memcpy(&verdict->policy, &decision->identity, sizeof(decision->identity));
    if (bucket)
        verdict->unit = terms->unit;
}

/* Ends a decision: counts it and tells it. Returns verdict.allowed. */
static ALWAYS_INLINE bool decision_answer(const struct decision *decision,
                                          struct stint_verdict *verdict) {
    const struct terms *terms = &decision->terms;
    const struct charge *charge = &decision->charge;
    const bool shadowed = !charge->fits && UNLIKELY((terms->traits & STINT_SHADOW) != 0);
    const bool allowed = charge->fits || shadowed;
    /* A bucket's are computed here: a swap need not wait for that. */
    const uint64_t used =
        (terms->traits & RULE_BUCKET) != 0 ? bucket_tokens(terms, charge->count) : charge->used;
    uint32_t flags =
        decision->flags | (shadowed ? STINT_SHADOWED : 0) | (terms->special & SPECIAL_TOLD);

    if (UNLIKELY((terms->traits & TRAIT_NEAR) != 0))
        flags |= answer_near(decision->policy, used, terms->capacity);
    if (UNLIKELY((terms->special & NOW_MISTAKEN) != 0))
        stint_limiter_count_rare(decision->limiter, decision->policy_id, RARE_NOW_MISTAKEN);
    if (LIKELY((terms->special & PART_SILENT) == 0)) {
        if (is_charge(terms))
            limiter_add(decision->limiter, decision->policy_id, COUNT_CHARGED, charge->granted);
        else if (is_decision(terms))
            decision_count(decision, flags, allowed);
    }
    if ((terms->traits & RULE_BUCKET) != 0 && (is_decision(terms) || is_charge(terms)))
        limiter_raise_now(decision->limiter, decision->now);
    if (verdict != NULL)
        verdict_write(decision, used, allowed, flags, verdict);
    return allowed;
}

#endif
