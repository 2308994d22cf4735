/* SPDX-License-Identifier: MIT
 * The slot protocol, and the steps of a decision (take.c) on a slot.
 *
 *     word 0   tag     64: whose slot it is (table.h)
 *     word 1   state   id 33 | pending 1 | refused 1 | used 29        (bit 63 ... bit 0)
 *
 *   id       the end of the slot's window in ticks, 33 bits of it (window.h)
 *   pending  the slot is claimed, but nobody may count in it yet
 *   refused  the key was refused in this window: FIRST_REFUSAL has been given. In a pending slot it
 *            marks the slot's first claim (claim.c, stint_claim_short)
 *   used     tokens taken
 *
 * A slot is in one of four states:
 *
 *     NEVER       tag = 0                     never used: a search for a key may stop at it (I5)
 *     PENDING     tag = a key's, pending = 1  a claim: its key may have another slot
 *     COMMITTED   tag = a key's, pending = 0  the one slot of its key: tokens are counted in it
 *     TOMBSTONE   tag = table_tombstone       a claim that was cancelled
 *
 * "End" below is the full end that the id stands for. A slot is OVER when its end <= now. Then it
 * can be taken over:
 *
 *     NEVER --claim--> PENDING --commit--> COMMITTED --+
 *                       ^   |                          |  over, and nothing is carried
 *                       |   +----cancel--> TOMBSTONE --+
 *                       +------------claim-------------+
 *
 * Transitions, and the functions that make them. D: double-width CAS on tag and state; S: CAS on
 * the state alone; +: fetch-add on it. Functions without a file are in this one. tests/spin/run
 * compares this table with the model.
 *
 *     from        to          how  by
 *     NEVER       PENDING     D    claim: claim.c, stint_claim_short, stint_claim_slot
 *                                  No other slot of the sequence has the key's tag.
 *     COMMITTED   PENDING     D    claim: claim.c, stint_claim_free
 *                                  It is over and carries nothing (search.c, slot_reusable). The
 *                                  shard's watermark was raised first.
 *     TOMBSTONE   PENDING     D    claim: likewise
 *     PENDING     PENDING     D    claim: likewise; its claimer died
 *     PENDING     COMMITTED   D    resolve: claim.c, stint_claim_resolve, by anyone
 *                                  No other slot of the key is committed, or an earlier claim.
 *     PENDING     COMMITTED   S    resolve: claim.c, stint_claim_short, by the claimer
 *                                  Likewise; and the slot was never used before.
 *     PENDING     TOMBSTONE   D    resolve: claim.c, claim_cancel, by anyone
 *                                  Another slot of the key is committed, or an earlier claim.
 *     COMMITTED   COMMITTED   +    take: take.c, take_in; stripes.c, own_take;
 *                                  decide_all.c, part_charge. Each adds one token after a load that
 *                                  showed the key's tag, this window and room.
 *     COMMITTED   COMMITTED   D    decide: slot_charge; take.c, take_tokens;
 *                                  stripes.c, own_take; decide_all.c, part_charge;
 *                                  filtered.c, stint_take_filtered.
 *                                  Same window: used or refused change.
 *                                  Or it is over: a new window of the same key.
 *                                  refund: slot_give_back. reset: refund.c, slot_reset.
 *                                  override: overrides.c, companion_write, companion_clear. Only
 *                                  of a companion. Its end may fall (I1).
 *     COMMITTED   PENDING     D    replace: full.c, find_least_used; claim.c, stint_claim_slot
 *                                  STINT_FULL_REPLACE only; it is live.
 *     PENDING     PENDING     +    take: a stray add; the slot changed under the adder
 *     TOMBSTONE   TOMBSTONE   +    take: likewise
 *
 * Invariants (clock steps, policies that are gone and STINT_FULL_REPLACE apart, which say so):
 *   I1  The end of a slot only grows, and each change of tag makes it grow. So no (slot, end) ever
 *       stands for two occupants: whoever sees the same end twice, not pending, saw one occupancy.
 *       (Of companions it may fall, to the clock's next tick at the least: overrides.c. Before an
 *       end falls, the table's fallen_end is raised to it: limiter_end_falls.)
 *   I2  A tag changes only by a double-width CAS.
 *   I3  At most one slot of a key is committed.
 *   I4  `used` falls only by a new window, a commit, a refund or a reset; or by tokens that were
 *       never granted (count_granted).
 *   I5  A used slot never becomes never-used again: a search may stop at a never-used slot.
 *   I6  The shard's reach only grows, and is at least the line, counted from home, of every claim
 *       that was ever made: it is raised before the claim. A search may stop behind it. Likewise
 *       the shard's filter has the bits of each key for which a companion's slot was claimed.
 *   I7  The table's latest_begin is at least the begin of every window that was ever opened in a
 *       slot: it is raised before, by 30 s at a time. But it is lowered, too, and then only windows
 *       count that begin within 60 s of the clock (search.c, latest_sweep).
 *
 * Policies that are gone. When a policy is removed or replaced, its slots become tombstones, whose
 * ends fall (sweep.c). Threads that still decide by it may count in a slot that is another key's by
 * then, as after a replacement: the exception of B, at most a token for each.
 *
 * Clock steps. Ends fall when the clock was stepped back: I1, and with it promises A and B, hold
 * between steps of the clock, not across them (search.c, stint_beyond_clock).
 *
 * Why each step is right stands above its function: what confirms a state that was loaded at
 * slot_look, the fetch-add at stint_slot_added_ours, claims in claim.c, a full table in full.c,
 * groups in decide_all.c. ordering.md has the orders of memory, M1 to M15. Each atomic operation
 * cites the M or I that it serves.
 *
 * What holds it: tests/spin (every run of small cases, and the orders), tests/kit/watch.c (I1, I3
 * and I5 to I7, after each atomic operation of histories and scenes), and in tests/protocol
 * scenes.c (what goes wrong without each guard) and deaths.c (a process dies before each atomic
 * operation).
 *
 * The literature: Purcell and Harris, "Non-blocking hashtables with open addressing" (2005). */
#ifndef STINT_SLOT_H
#define STINT_SLOT_H

#include <string.h>

#include "counters.h"
#include "testing.h"

#define USED_BITS     29
#define USED_MASK     ((UINT64_C(1) << USED_BITS) - 1)
#define STATE_REFUSED (UINT64_C(1) << 29)
#define STATE_PENDING (UINT64_C(1) << 30)
#define STATE_ID      31 /* shift */

static_assert(STATE_ID + ID_BITS == 64, "id, pending, refused and used fill the word");
static_assert(2 * (uint64_t)STINT_LIMIT_MAX - 1 <= USED_MASK,
              "adds past the limit do not reach the refused bit");

static inline uint64_t state_of(tick_t end, uint64_t rest) {
    return id_of(end) << STATE_ID | rest;
}

static inline uint64_t state_id(uint64_t state) {
    return state >> STATE_ID;
}

static inline uint64_t state_used(uint64_t state) {
    return state & USED_MASK;
}

static inline bool state_pending(uint64_t state) {
    return (state & STATE_PENDING) != 0;
}

/* Same end, and pending or not alike. */
static inline bool state_same_window(uint64_t one, uint64_t other) {
    return ((one ^ other) & ~(STATE_REFUSED | USED_MASK)) == 0;
}

/* Whether a state, which is not pending, is of a later window than the one that ends at `end`. */
static inline bool state_ahead(uint64_t state, tick_t end) {
    return (int64_t)(state - state_of(end, 0)) >= INT64_C(1) << STATE_ID;
}

/* Changes the state of a key's slot, if tag and state are what they were. By I1 the state alone
 * would do, but for STINT_FULL_REPLACE, under which two keys may have the same end in one slot. */
static ALWAYS_INLINE bool slot_swap(struct slot *slot, uint64_t tag, uint64_t state,
                                    uint64_t next) {
    const uint64_t expected[2] = {tag, state}, desired[2] = {tag, next};
    /* I2. It confirms what was loaded (M2). */
    return atomic_cas2_seq(slot, expected, desired);
}

/* ---- A decision, handed from step to step ---------------------------------------------------- */

struct decision {
    struct stint_limiter *limiter;
    struct policy *policy;
    uint64_t hash;
    uint64_t tag;
    uint64_t now; /* ns since the epoch */
    tick_t end;   /* of the window of now; 0: not known yet (a window of the key's own) */
    uint32_t policy_id;
    uint32_t stripe;   /* of a striped policy's key: the hash is that stripe's */
    tick_t only_end;   /* PART_SAME_WINDOW: the end of the only window to do anything in */
    uint64_t override; /* PART_OVERRIDDEN: the state of its slot */
    union {
        uint64_t without; /* likewise: the capacity, if it were not there */
        uint64_t asked;   /* of a part of a striped policy's key: the now of the whole's caller */
    };
    struct terms terms;
    /* What came of it, in the window that ends at `end`. */
    struct charge charge;
    uint32_t flags; /* of the verdict */
};

/* An internal flag of a decision that has come to nothing: its policy is gone. */
#define DECISION_GONE STINT_UNKNOWN_POLICY

/* What a decision has come to so far. STALE: the slots changed meanwhile, or its now moved; start
 * over. */
enum progress { DONE, STALE };

/* ---- 2  Window ------------------------------------------------------------------------------- */

/* The end of the window that holds a tick, by a policy with these flags, for a key with this hash.
 * It raises latest_begin (I7), so the window may be opened. */
tick_t stint_window_at(const struct stint_limiter *limiter, const struct policy *policy,
                       uint32_t flags, uint64_t hash, tick_t tick);

/* Likewise of an instant. The policy's own window becomes its hint. (It does not take a struct
 * decision: on the path that would force the struct's fields into memory.) */
tick_t stint_window_compute(const struct stint_limiter *limiter, struct policy *policy,
                            uint32_t flags, uint64_t hash, uint64_t now);

/* Computes the end of the window of now: the policy's, or the key's own. */
static ALWAYS_INLINE tick_t window_anew(const struct decision *decision) {
    return stint_window_compute(decision->limiter, decision->policy, decision->terms.traits,
                                decision->hash, decision->now);
}

/* Likewise by a calendar policy's hint, which has the length of its window. */
static ALWAYS_INLINE tick_t window_of_calendar(const struct decision *decision, uint64_t hint) {
    const tick_t end = hint_end(hint);
    if (LIKELY(!GUARD(HINT_WINDOW, tick_ns(end) - decision->now - 1 >= hint_window(hint))))
        return end;
    return window_anew(decision);
}

/* Finds the end of the window of now by the policy's hint. A window of the key's own has no hint:
 * 0. */
static ALWAYS_INLINE tick_t window_of(const struct decision *decision) {
    const uint32_t traits = decision->terms.traits;
    /* A hint, whose begin latest_begin has (I7). */
    const uint64_t hint = atomic_load_relaxed(&decision->policy->current_end);
    if ((traits & (TRAITS_OWN_WINDOW | TRAIT_CALENDAR)) != 0)
        return (traits & TRAIT_CALENDAR) != 0 ? window_of_calendar(decision, hint) : 0;
    const tick_t end = (tick_t)hint;
    /* end > now >= end - length, or the hint is of another window. */
    if (LIKELY(!GUARD(HINT_WINDOW, tick_ns(end) - decision->now - 1 >= decision->policy->window)))
        return end;
    return window_anew(decision);
}

/* ---- 1  Policy ------------------------------------------------------------------------------- */

/* Overrides. A policy with STINT_OVERRIDES has a companion: a hidden policy, whose slots are no
 * counts (overrides.c). Such a slot says until when a key has another limit: its end, and that
 * limit for `used`. The refused bit says that somebody set it; else the library did.
 *
 *     refused 1   used < 2^28            the limit
 *                 2^28 <= used < BARRED  never refused
 *                 BARRED <= used         refused everything
 *     refused 0   used < 2^28            refused in so many windows: strikes, no override. 0: it
 *                                        was lifted, and says nothing
 *                 2^28 <= used           banned
 *                 used & BY_SHADOW       strikes, or a ban, while the policy was a shadow: void
 *                                        where it is none
 *
 * So a stray token in it adds at most one to a limit, or to strikes. */
#define OVERRIDE_ENDLESS   ((uint64_t)STINT_LIMIT_MAX)
#define OVERRIDE_BY_SHADOW (OVERRIDE_ENDLESS / 2)
#define OVERRIDE_BARRED    (OVERRIDE_ENDLESS + OVERRIDE_BY_SHADOW)
static_assert(2 * (uint64_t)STINT_BAN_AFTER_MAX < OVERRIDE_BY_SHADOW, "strikes are below it");

/* Overrides can be set as far ahead as the longest window reaches. */
#define COMPANION_LENGTH (STINT_WINDOW_MAX / STINT_TICK_NS) /* ticks */

static inline bool override_banned(uint64_t state) {
    return (state & STATE_REFUSED) == 0 && state_used(state) >= OVERRIDE_ENDLESS;
}

/* The limit that an override sets. */
static inline uint32_t override_limit(uint64_t state) {
    const uint64_t used = state_used(state);
    return used >= OVERRIDE_BARRED || override_banned(state) ? 0
           : used < OVERRIDE_ENDLESS                         ? (uint32_t)used
                                                             : STINT_LIMIT_MAX;
}

/* Whether the library wrote this state of a companion's slot as the policy was a shadow, and by
 * these traits it is none: who was let through is not punished for it. */
static inline bool override_void(uint64_t state, uint32_t traits) {
    return GUARD(OVERRIDE_SHADOW, (state & STATE_REFUSED) == 0 &&
                                      (state & OVERRIDE_BY_SHADOW) != 0 &&
                                      (traits & STINT_SHADOW) == 0);
}

/* Whether a companion's slot of this state sets a limit by a policy of these traits, and does so at
 * `now`. One that is further ahead than it can have been set is void: the clock was stepped back
 * (H). */
bool stint_override_holds(const struct stint_limiter *limiter, uint32_t policy_id, uint32_t traits,
                          uint64_t state, uint64_t now);

/* What a companion's slot says. */
struct override_told {
    uint32_t policy_id; /* whose key it is */
    uint32_t limit;     /* 0: refused everything; STINT_LIMIT_MAX: never refused */
    uint32_t strikes;   /* of one that sets no limit (yet) */
    bool set;           /* it was set by hand */
    uint64_t until;     /* ns */
};

/* Reads a slot that was seen with this tag and state. Returns false if it is no companion's, or
 * says nothing at `now`. */
bool stint_override_told(const struct stint_limiter *limiter, uint64_t tag, uint64_t state,
                         uint64_t now, struct override_told *told);

static ALWAYS_INLINE bool filter_bit_set(struct filter_bit asked) {
    return (atomic_load_acquire(asked.word) & asked.bit) != 0; /* I6 */
}

/* Whether a key may have a slot of a companion. Its bits were set before such a slot was claimed,
 * and are there as long as it is (I6). */
static ALWAYS_INLINE bool override_possible(const struct table *table, uint64_t hash) {
    return filter_bit_set(filter_any(table, hash));
}

/* Looks for the override that is in force, by a policy of these traits, of a key that may have one.
 * Returns the state of its slot; 0: there is none. */
uint64_t stint_override_seen(const struct stint_limiter *limiter, uint32_t policy_id,
                             uint32_t traits, uint64_t hash, uint64_t now);

/* What a request of known flags must not combine. */
static ALWAYS_INLINE bool request_good(uint32_t flags, uint32_t limit) {
    return (flags & ~(uint32_t)(STINT_PEEK | STINT_PARTIAL | STINT_DRAIN | STINT_RESERVE |
                                STINT_CHARGE)) == 0 &&
           ((flags & STINT_CHARGE) == 0 ||
            ((flags & (STINT_PARTIAL | STINT_DRAIN | STINT_RESERVE)) == 0 && limit == 0));
}

/* Whether a request of these flags goes with a policy. What a drain and a charge take in flight is
 * nobody's to give back. */
static ALWAYS_INLINE bool request_suits(uint32_t flags, uint32_t traits) {
    return (traits & STINT_IN_FLIGHT) == 0 || (flags & (STINT_DRAIN | STINT_CHARGE)) == 0;
}

/* What an instance of the path knows before it begins. These are constants, so the compiler folds
 * what is computed from them. */
struct known {
    uint32_t traits; /* all that the policy has; 0: not known */
    bool flags;      /* those of the request are `of_request` */
    uint32_t of_request;
    bool overrides; /* the policy may have them */
};

static const struct known nothing_known = {.overrides = true};

/* Decides by an override, whose limit is the capacity by now. `limit`: the request's own. */
static ALWAYS_INLINE void decision_override(struct decision *decision, uint64_t override,
                                            uint32_t limit) {
    struct terms *terms = &decision->terms;

    decision->override = override;
    decision->without = limit;
    terms->part |= PART_OVERRIDDEN | (override_banned(override) ? PART_BANNED : 0);
    if (override_limit(override) == 0)
        terms->part |= PART_BARRED;
    if (override_limit(override) == STINT_LIMIT_MAX) {
        terms->part |= PART_ENDLESS;
        terms->capacity = terms->room = STINT_LIMIT_MAX; /* smooth: more than the count holds */
    }
}

/* Reads what a decision must know of its policy and of the request. Returns 0; else there is no
 * decision, and the verdict's flag that says why is returned. That is STINT_UNKNOWN_POLICY, too,
 * where the policy no longer has the known traits. */
static ALWAYS_INLINE uint32_t decision_begin(struct decision *decision,
                                             struct stint_limiter *limiter,
                                             const struct stint_request *request, uint64_t now,
                                             struct known known) {
    if (UNLIKELY(request->policy >= limiter->deciding))
        return STINT_UNKNOWN_POLICY;
    const uint32_t flags = known.flags ? known.of_request : request->flags;
    const uint64_t reserved = known.flags ? 0 : request->reserved;
    if (UNLIKELY(reserved != 0 || !request_good(flags, request->limit)))
        return STINT_BAD_REQUEST;
    struct policy *policy = &limiter->policies[request->policy];
    const uint64_t word = policy_traits(policy);
    const uint32_t traits = known.traits != 0 ? known.traits : (uint32_t)word;
    if (UNLIKELY(known.traits != 0 ? (uint32_t)word != known.traits : (word & TRAIT_EXISTS) == 0))
        return STINT_UNKNOWN_POLICY;
    if ((flags & (STINT_DRAIN | STINT_CHARGE)) != 0 && UNLIKELY(!request_suits(flags, traits)))
        return STINT_BAD_REQUEST;
    uint64_t capacity = word >> 32;
    const uint64_t override =
        known.overrides && (traits & STINT_OVERRIDES) != 0 &&
                override_possible(&limiter->table, request->key)
            ? stint_override_seen(limiter, request->policy, traits, request->key, now)
            : 0;
    const uint32_t limit = UNLIKELY(override != 0) ? override_limit(override) : request->limit;
    const bool unlike = request->limit != 0 || override != 0;
    bool own = false;

    if (unlike) {
        uint64_t most = (traits & TWO_COUNTS) != 0    ? SMOOTH_MAX
                        : traits_stripes(traits) == 1 ? STINT_LIMIT_MAX
                                                      : capacity;
        /* Of a striped policy, other requests would not know of larger shares. */
        own = limit < capacity;
        capacity = limit < most ? limit : most;
    }
    *decision = (struct decision){
        .limiter = limiter,
        .policy = policy,
        .hash = request->key,
        .tag = table_tag(&limiter->table, request->key, request->policy),
        .now = now,
        .policy_id = request->policy,
        .terms = {.traits = traits,
                  .window = policy->window,
                  .fade = policy->fade,
                  .reciprocal = policy->reciprocal,
                  .cost = request->cost,
                  .capacity = capacity,
                  .room = capacity,
                  .most = capacity,
                  .own = own,
                  .unlike = unlike,
                  .flags = flags},
    };
    if (UNLIKELY(override != 0))
        decision_override(decision, override, request->limit);
    const bool endless = override != 0 && limit == STINT_LIMIT_MAX;
    if ((flags & (STINT_RESERVE | STINT_CHARGE)) != 0 || endless) {
        const struct rule rule = policy_rule(policy); /* all that counts is of this one */
        if (UNLIKELY(((rule.flags ^ traits) & STINT_SHADOW) != 0) && !endless)
            return STINT_UNKNOWN_POLICY; /* it was changed meanwhile: once more */
        if (!unlike)
            decision->terms.capacity = rule.capacity;
        uint64_t room =
            decision->terms.capacity + ((flags & STINT_RESERVE) != 0 ? rule.max_reserved : 0);
        decision->terms.room = room < STINT_LIMIT_MAX ? room : STINT_LIMIT_MAX;
        decision->terms.most =
            is_charge(&decision->terms) || endless ? charge_most(&rule) : decision->terms.room;
    }
    /* Before it is charged. A look charges nothing, and a read-only handle only looks. */
    if ((unlike || (flags & (STINT_RESERVE | STINT_CHARGE)) != 0) &&
        UNLIKELY(decision->terms.most > atomic_load_relaxed(&policy->largest)) && /* M10 */
        (flags & STINT_PEEK) == 0)
        atomic_raise(&policy->largest, decision->terms.most); /* M10 */
    decision->end = window_of(decision);
    return 0;
}

/* After decision_begin has said `why` there is no decision: begins the one by the policy that is
 * now in the place of the request's, if that was replaced. Returns 0, or why there is none. */
uint32_t stint_decision_begin_now(struct decision *decision, struct stint_limiter *limiter,
                                  const struct stint_request *request, uint64_t now, uint32_t why);

/* A decision on one token by a plain policy, whose window of now ends at `end`. All but the
 * capacity is constant, so the compiler folds what is computed from it. */
static ALWAYS_INLINE struct decision plain_decision(struct stint_limiter *limiter,
                                                    uint32_t policy_id, uint64_t now, tick_t end,
                                                    uint64_t capacity) {
    return (struct decision){
        .limiter = limiter,
        .policy = &limiter->policies[policy_id],
        .policy_id = policy_id,
        .now = now,
        .end = end,
        .terms = {.traits = TRAIT_EXISTS | TRAIT_PLAIN,
                  .cost = 1,
                  .capacity = capacity,
                  .room = capacity},
    };
}

/* Ends a decision that could not begin, and tells why: of a read-only handle, which begins none,
 * that the request makes no sense. Returns false. */
bool stint_decision_void(struct stint_limiter *limiter, uint32_t why,
                         struct stint_verdict *verdict);

/* ---- 3  Line --------------------------------------------------------------------------------- */

static inline struct line *home_of(const struct table *table, uint64_t hash) {
    return &table->lines[table_home(table, hash)];
}

/* Which slots of this line have the tag; 0 if none. All four are compared, in no order, before one
 * branch follows. That branch is predictable; an early exit would not be. */
static inline uint32_t line_match(const struct line *line, uint64_t tag) {
    return atomic_match4(&line->slots[0].tag, tag); /* a hint, which M1 and M2 check */
}

/* The first of the slots of a line that match. */
static inline struct slot *line_slot(struct line *line, uint32_t match) {
    return (struct slot *)((char *)line + match4_offset(match));
}

/* The slot of this line that has the tag, or NULL: a hint, which the loads that follow it check. */
static inline struct slot *line_find(struct line *line, uint64_t tag) {
    uint32_t match = line_match(line, tag);
    return match == 0 ? NULL : line_slot(line, match);
}

/* Likewise of a key's first two lines, in which nearly every key is: 1 in 25 is in the second at a
 * load of 50%. */
static ALWAYS_INLINE struct slot *slot_near_home(const struct table *table, uint64_t hash,
                                                 struct line *home, uint64_t tag) {
    struct slot *slot = line_find(home, tag);
    return LIKELY(slot != NULL) ? slot : line_find(table_next(table, hash, home), tag);
}

static ALWAYS_INLINE struct slot *slot_near(const struct table *table, uint64_t hash,
                                            uint64_t tag) {
    return slot_near_home(table, hash, home_of(table, hash), tag);
}

/* The state of a companion's slot that was seen with this tag; 0: by now it is another key's, or
 * nobody may count on it yet.
 *
 * As in slot_look: the tag was seen, then the state s is loaded, then the tag again. If it is still
 * the companion's, s may be another occupant's all the same, before the slot came back. So the
 * state is loaded once more, and has to be the same as a whole: overrides of two keys often have
 * one end (I1), and whoever clears one lets the slot go before that. */
static ALWAYS_INLINE uint64_t override_in(const struct slot *slot, uint64_t tag) {
    for (;;) {
        uint64_t state = atomic_load_acquire(&slot->state); /* M1 */
        if (GUARD(OVERRIDE_TAG, atomic_load_acquire(&slot->tag) != tag) || state_pending(state))
            return 0;
        uint64_t again = atomic_load_acquire(&slot->state); /* I1, M2 */
        if (!GUARD(OVERRIDE_STATE, state != again))
            return again;
    }
}

/* Fetches the line after a home line, whose miss would stop the processor. It goes to the
 * second-level cache only: the first-level cache has few misses under way at once, and out of cache
 * a decision takes 2 ns less so. */
static ALWAYS_INLINE void fetch_next(const struct line *home) {
    __builtin_prefetch(home + 1, 0, 2); /* harmless where it is another shard's, or none */
}

/* Requests whose lines are on their way while one is decided: about as many misses as a core keeps
 * under way (10 to 24 line fill buffers on x86-64 of the last ten years). */
#define AHEAD 16

/* Fetches both lines of a key. Returns the first. */
static ALWAYS_INLINE struct line *fetch_lines(const struct table *table, uint64_t hash) {
    struct line *home = home_of(table, hash);
    __builtin_prefetch(home);
    fetch_next(home);
    return home;
}

/* ---- 4  Judge (charge.h) what was seen ------------------------------------------------------- */

/* A slot of the decision's key as it was seen, and what the decision begins with. */
struct sight {
    struct slot *slot;
    uint64_t state;   /* as it was loaded */
    uint64_t count;   /* tokens in the window of the decision */
    uint64_t refused; /* STATE_REFUSED, if the key was refused in that window */
    bool cut;     /* the count is less than the slot's: refused requests had been counted, too */
    bool stepped; /* the slot starts anew because the clock was stepped back */
};

/* A slot's count without the overshoot: tokens that fetch-adds of refused requests have left in it.
 *
 * A fetch-add that finds no room is refused, and what it added must go again. The request is
 * decided once more (stint_slot_settle_added), and its refusal writes the count without what is
 * above every limit that there ever was: whether the key is marked refused already or not. So does
 * whatever else swaps the count, and so does a refund. If a thread is killed in between, the next
 * one cuts its overshoot off.
 *
 * The largest limit is loaded after the state (M11), so no token that was granted is cut off. Of a
 * stripe the largest is its share. Of a policy that was ever charged it is all that a charge may
 * bring a count to. If overshoot stayed, a policy that is changed so that counts are carried over
 * would make a debt of it. Where refusals are meant to count (TRAIT_REFUSALS) nothing is cut. */
static ALWAYS_INLINE uint64_t count_granted(const struct decision *decision, uint64_t count) {
    const struct policy *policy = decision->policy;
    const uint32_t traits = decision->terms.traits, stripes = traits_stripes(traits);
    if (!GUARDED(COUNT_GRANTED) || (traits & TWO_COUNTS) != 0)
        return count;                                         /* two counts in one */
    uint64_t largest = atomic_load_relaxed(&policy->largest); /* M11 */
    if (LIKELY(count <= largest) && stripes == 1)
        return count;
    if ((traits & TRAIT_REFUSALS) != 0)
        return count; /* they are meant to count */
    uint64_t most = stripes == 1 || largest >= STINT_LIMIT_MAX
                        ? largest
                        : stripe_share(largest, stripes, decision->stripe);
    return count < most ? count : most;
}

/* Fits the terms of a request to a rule that was read later: the request's window begins by that
 * rule. */
static ALWAYS_INLINE void rule_adopt(struct terms *terms, const struct rule *rule) {
    if (UNLIKELY(terms->capacity > rule->capacity) && !terms->unlike) {
        uint64_t more = terms->room - terms->capacity;
        terms->capacity = rule->capacity;
        terms->room = rule->capacity + (more < rule->max_reserved ? more : rule->max_reserved);
        /* Else it may be refused though the rule before lets it through, and this one is a
         * shadow. */
        terms->traits ^= (terms->traits ^ rule->flags) & STINT_SHADOW;
    }
}

/* The end of the window of now where it is the key's own, whose slot was seen with this state. */
static ALWAYS_INLINE tick_t window_in(const struct decision *decision, uint64_t state) {
    const tick_t now = tick_of(decision->now), end = end_of(state_id(state), now);
    return LIKELY(end > now && end - now <= decision->policy->length) ? end : window_anew(decision);
}

/* What slot_look has come to. */
enum look {
    LOOK_GOOD,
    LOOK_STALE,   /* the slot is not the key's any more */
    LOOK_PENDING, /* it is claimed, and not committed */
    LOOK_AHEAD,   /* it is in a later window than that of now */
};

/* Looks at `state`, which was loaded of a slot of the key, in the decision's window. If the slot is
 * in an earlier window, that one is over, and the new one begins with what is carried.
 *
 * Why the state is the key's. The tag was loaded, then the state s; now the tag is loaded again. If
 * it is not the key's, s may be another's: start over. If it is, s may still be another's: the slot
 * may have gone to another key and come back between the two loads of the tag. But s is the key's
 * if the slot still has the end of s at any time after this second load of the tag (I1), and every
 * path makes sure of that:
 *   - fetch-add: what it returns has the end of s, committed;
 *   - CAS: it succeeds only if tag and state are what they were;
 *   - a look, or a refusal that writes nothing: the state is loaded once more, and has the end of
 *     s, committed (slot_unchanged).
 * Without the second load of the tag another key's window is charged. Without the second load of
 * the state a key is refused for another's count.
 *
 * A window of the key's own (TRAITS_OWN_WINDOW) is found in the slot, if it holds now: nothing has
 * to be computed. What confirms s confirms the end. A pending s is no window: its end is the
 * claim's. If it does not hold now, the window of now is the key's phase's, or one that would begin
 * with this request (slot.c, window_at). */
static ALWAYS_INLINE enum look slot_look(struct decision *decision, struct slot *slot,
                                         uint64_t state, struct sight *sight) {
    const struct terms *terms = &decision->terms;

    /* The state, then the tag (M1), then whatever confirms the two (M2). */
    if (UNLIKELY(GUARD(FOUND_TAG, atomic_load_acquire(&slot->tag) != decision->tag)))
        return LOOK_STALE;

    if ((terms->traits & TRAITS_OWN_WINDOW) != 0 && decision->end == 0) {
        if (UNLIKELY(GUARD(KEY_PENDING, state_pending(state))))
            return LOOK_PENDING; /* the end is the claim's */
        decision->end = window_in(decision, state);
    }
    /* The id is in the top bits: an earlier one makes the difference negative. */
    const uint64_t ahead = state - state_of(decision->end, 0);
    const uint64_t used = state_used(state), count = count_granted(decision, used);
    *sight = (struct sight){.slot = slot, .state = state};
    if (UNLIKELY(ahead >= STATE_PENDING)) {
        if (GUARD(FOUND_PENDING, state_pending(state)))
            return LOOK_PENDING;
        if ((int64_t)ahead < 0) {
            if ((terms->traits & TRAIT_CARRIES) != 0) {
                const struct rule rule = policy_rule(decision->policy);
                rule_adopt(&decision->terms, &rule);
                uint64_t apart = (id_of(decision->end) - state_id(state)) & ID_MASK;
                sight->count =
                    count_carry(&rule, count, apart / (uint64_t)policy_length(decision->policy));
            }
            return LOOK_GOOD;
        }
        if (ahead >= UINT64_C(1) << STATE_ID)
            return LOOK_AHEAD;
    }
    sight->count = count;
    sight->refused = state & STATE_REFUSED;
    sight->cut = GUARD(OVERSHOT_CUT, count != used);
    return LOOK_GOOD;
}

/* ---- 5  Charge ------------------------------------------------------------------------------- */

/* Whether a refusal sets the refused bit. That of a key that is banned writes nothing. */
static ALWAYS_INLINE bool refusal_marked(const struct terms *terms) {
    return is_decision(terms) && (terms->part & PART_BANNED) == 0 &&
           ((terms->part & PART_SILENT) == 0 || (terms->part & PART_REFUSED) != 0);
}

/* Finds the state to be written after a sight was judged. Returns false if nothing is to be
 * written. */
static ALWAYS_INLINE bool slot_next(struct decision *decision, const struct sight *sight,
                                    uint64_t *next) {
    const struct terms *terms = &decision->terms;
    struct charge *charge = &decision->charge;
    bool first_refusal =
        !charge->fits && GUARD(FOUND_MARK, sight->refused == 0) && refusal_marked(terms);
    bool writes = !is_look(terms) && (charge->count != sight->count || sight->cut);

    if (UNLIKELY((terms->part & PART_SAME_WINDOW) != 0 && decision->end != decision->only_end)) {
        *charge = (struct charge){.count = sight->count, .used = sight->count};
        first_refusal = writes = false;
    }
    uint64_t marked = first_refusal ? STATE_REFUSED : sight->refused;
    decision->flags = first_refusal ? STINT_FIRST_REFUSAL : 0;
    *next = state_of(decision->end, marked | charge->count);
    return first_refusal || writes;
}

/* Whether the slot is still in the window in which it was seen. This confirms a decision that
 * writes nothing. */
static ALWAYS_INLINE bool slot_unchanged(const struct sight *sight) {
    /* M2 */
    return !GUARD(FOUND_STATE,
                  !state_same_window(atomic_load_acquire(&sight->slot->state), sight->state));
}

/* Does to the slot what was judged of a sight of it: one swap, if there is anything to write.
 * Returns false if the slot has changed since.
 *
 * A new window in place: the slot is the key's, and over. One CAS changes window and count
 * together, so of two threads that meet at a boundary one opens the window and the other counts in
 * it. A late thread may open a window that is over by the clock. That window is later than any that
 * this slot had (I1), and the key has no other slot (I3), so nothing is counted in it twice. */
static ALWAYS_INLINE bool slot_charge(struct decision *decision, const struct sight *sight) {
    uint64_t next;
    return slot_next(decision, sight, &next)
               ? slot_swap(sight->slot, decision->tag, sight->state, next)
               : slot_unchanged(sight);
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
    struct terms terms;
    struct charge charge;
    uint64_t hash;
    uint64_t left; /* ns to the end of the window */
    tick_t end;
    uint64_t override; /* as in the decision */
    uint64_t without;
    bool untracked;
};
uint64_t stint_decision_wait(const struct waiting *waiting);

/* The first two fields of a verdict as one word. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define VERDICT_BEGIN(allowed, flags) ((uint64_t)(flags) << 32 | (uint64_t)(allowed))
#else
#define VERDICT_BEGIN(allowed, flags) ((uint64_t)(allowed) << 56 | (uint64_t)(flags))
#endif
static_assert(offsetof(struct stint_verdict, allowed) == 0 &&
                  offsetof(struct stint_verdict, flags) == 4 &&
                  offsetof(struct stint_verdict, capacity) == 8,
              "the first two fields fill a word");
static_assert(sizeof(struct stint_request) == 32 && sizeof(struct stint_verdict) == 64,
              "they can grow into their reserved words");

/* The one writer of verdicts: counts the decision and tells it. Returns verdict.allowed. */
static ALWAYS_INLINE bool decision_end(const struct decision *decision,
                                       struct stint_verdict *verdict) {
    const struct terms *terms = &decision->terms;
    const struct charge *charge = &decision->charge;
    const bool shadowed = !charge->fits && (terms->traits & STINT_SHADOW) != 0;
    const bool allowed = charge->fits || shadowed;
    const bool untracked = (decision->flags & STINT_UNTRACKED) != 0;
    const uint64_t end = tick_ns(decision->end), left = end - decision->now;
    uint32_t flags = decision->flags | (shadowed ? STINT_SHADOWED : 0) | (terms->part & PARTS_TOLD);
    uint64_t wait = 0;

    if ((terms->traits & TRAIT_NEAR) != 0) {
        const uint32_t near_limit = policy_rule(decision->policy).near_limit;
        if (near_limit != 0 && /* it was taken from the policy a moment ago */
            charge->used * 100 > terms->capacity * near_limit)
            flags |= STINT_NEAR_LIMIT;
    }
    if ((terms->part & PART_SILENT) == 0) {
        if (is_charge(terms))
            limiter_add(decision->limiter, decision->policy_id, COUNT_CHARGED, charge->granted);
        else if (is_decision(terms) && !(allowed && (terms->part & PART_QUIET) != 0))
            decision_count(decision->limiter, decision->policy_id, flags, allowed);
    }
    if (verdict == NULL)
        return allowed;
    /* What fits without a reservation is not above the capacity, unless it is charged. */
    const bool within = charge->fits && terms->room == terms->capacity;
    if (!within && !charge->fits && (terms->traits & (TRAIT_CARRIES | TRAIT_JITTER)) == 0 &&
        (terms->part & PART_OVERRIDDEN) == 0) {
        wait = terms->cost > terms->room ? STINT_NEVER : left;
    } else if (!within &&
               !(charge->fits &&
                 charge->total <=
                     terms->capacity)) { /* built here, so that the path keeps its registers */
        const struct waiting waiting = {
            .limiter = decision->limiter,
            .policy = decision->policy,
            .terms = {.traits = terms->traits,
                      .part = terms->part,
                      .cost = terms->cost,
                      .capacity = terms->capacity,
                      .room = terms->room,
                      .window = decision->policy->window,
                      .fade = decision->policy->fade,
                      .flags = terms->flags},
            .charge = {.count = charge->count, .total = charge->total, .fits = charge->fits},
            .hash = decision->hash,
            .left = left,
            .end = decision->end,
            .override = decision->override,
            .without = decision->without,
            .untracked = untracked,
        };
        wait = stint_decision_wait(&waiting);
    }
    uint64_t remaining = 0;
    if ((within && !is_charge(terms)) ||
        (charge->used < terms->capacity && !(untracked && !charge->fits)))
        remaining = terms->capacity - charge->used;
    /* One store for both. Bytes that are joined in memory would make the next load wait. */
    const uint64_t begin = VERDICT_BEGIN(allowed, flags);
    memcpy(verdict, &begin, sizeof(begin));
    verdict->capacity = (uint32_t)terms->capacity;
    verdict->used = (uint32_t)charge->used;
    verdict->remaining = (uint32_t)remaining;
    verdict->granted = charge->granted;
    verdict->window = untracked ? 0 : end;
    verdict->reset_after = left;
    verdict->retry_after = wait;
    verdict->reserved[0] = verdict->reserved[1] = 0;
    return allowed;
}

/* Steps 5 and 6, after a sight was judged. What fits and what is refused go separate ways, so that
 * the compiler knows which it is. Returns false if the slot has changed since. */
static ALWAYS_INLINE bool slot_finish(struct decision *decision, const struct sight *sight,
                                      struct stint_verdict *verdict, bool *allowed) {
    if (decision->charge.fits) {
        if (UNLIKELY(!slot_charge(decision, sight)))
            return false;
        *allowed = decision_end(decision, verdict);
        return true;
    }
    if (UNLIKELY(!slot_charge(decision, sight)))
        return false;
    *allowed = decision_end(decision, verdict);
    return true;
}

/* What a fetch-add for one token has returned of a slot that was seen in the window of `seen`, with
 * room for it in `capacity`. */
struct added {
    struct slot *slot;
    uint64_t seen;
    uint64_t state;
    uint64_t capacity;
};

/* Whether there was room for what a fetch-add counted, by the capacity of now, too. If there was
 * none by that of then, the token may have been cut off since (count_granted): a capacity that was
 * raised meanwhile gives it nothing. */
static inline bool added_had_room(const struct added *added, uint64_t capacity) {
    const uint64_t used = state_used(added->state);
    return used < capacity && !GUARD(ADDED_THEN, used >= added->capacity);
}

/* Whether a fetch-add counted for the key of the decision; if not, it went astray. It was issued on
 * `slot`, after a load that had shown the window of `seen`, and returned `added`.
 *
 * A fetch-add follows only a load that showed room. So `used` passes the limit by at most one for
 * each thread, and never reaches the refused bit (2^28 threads). If what it returns has another
 * end, or is pending, the slot changed in between. If then the tag, and after it the state, show
 * the key, committed, with the end that was returned, the add was into the key's next window (I1):
 * decide by it, unless that end may have fallen and come again (limiter_end_falls). Else the token
 * is another's by now, and is left to it until its window ends: the exception of promise B. It is
 * never taken back: that could take another's token. */
bool stint_slot_added_ours(const struct decision *decision, struct slot *slot, uint64_t seen,
                           uint64_t added);

/* The now of a request that a fetch-add counted in the policy's window that ends at `end`. If that
 * is over by its own, the clock was stepped back meanwhile; if it began more than the allowance
 * after it, the request is late. Either way the clock has the say. */
uint64_t stint_now_before(const struct stint_limiter *limiter, const struct policy *policy,
                          tick_t end, uint64_t now);

/* ---- Give back ------------------------------------------------------------------------------- */

/* Tokens that are given back. */
struct giving {
    const struct policy *policy;
    uint32_t traits; /* of it */
    uint32_t stripe; /* of a striped policy's key */
    uint64_t tag;
    uint64_t id; /* of the window in which they were taken */
};

/* Gives back `back` tokens in a slot of the key that was seen with this state, if that is of their
 * window (two counts: or of the next one). `back` receives how many. Returns false if the slot has
 * changed since.
 *
 * A verdict tells the end of the window in which its tokens were counted. A refund is a swap of the
 * count of that window; of two counts that may be the previous one's. In flight, too: what is held
 * since the window before is told by its end, and comes off that count. It takes no more than
 * is there and was granted. A verdict of no slot has no window (0), and nothing is given back by
 * it: by now the key may have a slot, whose tokens are others'. */
static ALWAYS_INLINE bool slot_give_back(const struct giving *giving, struct slot *slot,
                                         uint64_t state, uint32_t *back) {
    const uint32_t traits = giving->traits;
    const bool two = (traits & TWO_COUNTS) != 0;
    uint64_t mask = two ? THIS_MASK : USED_MASK;
    const uint32_t tokens = *back;
    uint32_t shift = 0; /* which of the two counts; the only one */

    *back = 0;
    if (GUARD(REFUND_WINDOW, state_id(state) != giving->id)) {
        if (!two || GUARD(REFUND_FORGOTTEN, ((giving->id + (uint64_t)giving->policy->length) &
                                             ID_MASK) != state_id(state)))
            return true;
        shift = THIS_BITS;
        mask = SMOOTH_MAX;
    }
    uint64_t held = state_used(state) >> shift & mask;
    /* Overshoot is not given back (count_granted). The largest limit is loaded after the state, or
     * tokens granted by a limit that was raised since would be cut off (M11). */
    if ((traits & TRAIT_CARRIES) == 0) {
        uint64_t most = atomic_load_relaxed(&giving->policy->largest);
        if (traits_stripes(traits) > 1 && most < STINT_LIMIT_MAX)
            most = stripe_share(most, traits_stripes(traits), giving->stripe);
        if (GUARD(REFUND_MOST, held > most))
            held = most;
    }
    uint64_t given = GUARD(REFUND_ZERO, tokens > held) ? held : tokens;
    if (given == 0)
        return true;
    *back = (uint32_t)given;
    return slot_swap(slot, giving->tag, state,
                     (state & ~(mask << shift)) | (held - given) << shift);
}

/* Whether what is left of a window that is over may still matter to its key. `policy` may be
 * NULL. */
static inline bool slot_carries(const struct policy *policy, uint64_t state, tick_t now) {
    if (policy == NULL || LIKELY((policy_traits(policy) & TRAIT_CARRIES) == 0))
        return false;
    struct rule rule = policy_rule(policy);
    tick_t over = now - end_of(state_id(state), now);
    return count_carry(&rule, state_used(state), (uint64_t)(over / policy_length(policy)) + 1) != 0;
}

/* Whether a slot that was seen so counts for its key: it is committed, and neither over nor so far
 * ahead of the clock, which says `now`, that it counts as over. */
bool stint_slot_live(const struct stint_limiter *limiter, uint64_t tag, uint64_t state, tick_t now);

#endif
