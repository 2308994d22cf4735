/* SPDX-License-Identifier: MIT
 * The steps of a decision (take.c), and the protocol of the slots that they keep.
 *
 * THE SLOT PROTOCOL
 *
 *     word 0   tag     whose slot it is (table.h)
 *     word 1   state   id 33 | pending 1 | refused 1 | used 29        (bit 63 ... bit 0)
 *
 *   id       the end of the slot's window in ticks, 33 bits of it (window.h)
 *   pending  the slot is claimed, but nobody may count in it yet
 *   refused  the key was refused in this window: FIRST_REFUSAL has been given. Pending: see "Short claim"
 *   used     tokens taken
 *
 * "End" below is the full end that the id stands for. A slot is OVER when its end <= now.
 *
 * States of a slot and who may change them. D: double-width CAS on tag and state; S: CAS on the
 * state alone; +: fetch-add on it. A take is one token that an add counts: by take_in, by
 * stint_stripe_decide, or as a part of a group (part_charge). A decide is whatever else changes a count:
 * slot_charge, a part that is swapped, STINT_CHARGE, the cost of a stripe.
 *
 *     from        to          how  by               condition
 *     NEVER       PENDING     D    claim            no other slot of the sequence has the key's tag
 *     COMMITTED   PENDING     D    claim            it is over and carries nothing; the shard's
 *                                                   watermark was raised first
 *     TOMBSTONE   PENDING     D    claim            likewise
 *     PENDING     PENDING     D    claim            likewise (its claimer died)
 *     PENDING     COMMITTED   D    resolve, anyone  no other committed or earlier slot of the key
 *     PENDING     COMMITTED   S    resolve, claimer likewise; the slot was never used before
 *     PENDING     TOMBSTONE   D    resolve, anyone  another slot of the key is committed or earlier
 *     COMMITTED   COMMITTED   +    take             a load showed the key's tag, this window and room
 *     COMMITTED   COMMITTED   D    decide, refund,  same window: used or refused change
 *                                  reset
 *     COMMITTED   COMMITTED   D    decide           it is over: a new window of the same key
 *     COMMITTED   PENDING     D    replace          STINT_FULL_REPLACE only; it is live
 *     PENDING     PENDING     +    take             a stray add: the slot changed under the adder
 *     TOMBSTONE   TOMBSTONE   +    take             likewise
 *
 * Invariants (clock steps and STINT_FULL_REPLACE apart, which say so):
 *   I1  The end of a slot only grows, and each change of tag makes it grow. So no (slot, end) ever
 *       stands for two occupants: whoever sees the same end twice, not pending, saw one occupancy.
 *   I2  A tag changes only by a double-width CAS.
 *   I3  At most one slot of a key is committed.
 *   I4  `used` falls only by a new window, a commit, a refund or a reset; or by tokens that were
 *       never granted ("Overshoot").
 *   I5  A used slot never becomes never-used again: a search may stop at a never-used slot.
 *   I6  The shard's reach only grows, and is at least the line, counted from home, of every claim
 *       that was ever made: it is raised before the claim. A search may stop behind it.
 *   I7  The table's latest is at least the begin of every window that was ever opened in a slot: it
 *       is raised before, by 30 s at a time. But it is lowered, too, and then only windows count
 *       that begin within 60 s of the clock ("Latest").
 *
 * Why a decision is right (A, B):
 *
 * Find. The tag is loaded, then the state s, then the tag again (take_in, slot_look). If the tag is
 * not the key's, s may be another's: start over. If it is, s may still be another's: the slot may
 * have gone to another key and come back between the two loads of the tag. But it is the key's if
 * the slot still has the end of s at any time after the second load of the tag (I1), and every path
 * below makes sure of that:
 *   - fetch-add: what it returns has the end of s, committed;
 *   - CAS: it succeeds only if tag and state are what they were;
 *   - a look, or a refusal that writes nothing: the state is loaded once more and has the end of s,
 *     committed (slot_unchanged).
 *   Without the second load of the tag another key's window is charged; without the second load of
 *   the state a key is refused for another's count.
 *
 * Window of a key's own (STINT_START_PER_KEY). The slot tells its end, so slot_look takes it from
 * s, if it holds now. What confirms s confirms the end. A pending s is no window: its end is the
 * claim's.
 *
 * A full table. One search compares the tags, and on the way sees for how many lines from home on
 * all slots are live (slot_search). A slot once seen live stays so at this now, whoever's it is
 * (I1), so it is the same as if all of them had been seen when the last one was. A glance at a line
 * shows them to be live, whatever their policies, if they end after now: provided that latest,
 * loaded after all of them, is within the allowance of now (I7), so that no step of the clock has
 * left any that count as over ("Clock steps"), nor did this thread sleep so long that the clock
 * must be read. What a glance does not show is looked at slot by slot, by the policy of each. Once
 * no slot may be claimed, the tags are compared again (found_again), where one is to be replaced by
 * the search for the fewest tokens (find_least_used): the key may have got the last free slot
 * behind the first search's back. The tags of the first search are but hints, so nothing depends on
 * which of them are before which glance.
 *
 * Fetch-add. It is issued only after a load that showed room, so `used` passes the limit by at most
 * one for each thread, and never reaches the refused bit (2^28 threads). If what it returns has
 * another end, or is pending, the slot changed in between. If tag and state then show the key,
 * committed, with the end that was returned, the add was into the key's next window (I1,
 * stint_slot_added_ours): decide by it. Else the token is another's by now, and is left to it until its
 * window ends: the exception of B. It is never taken back: that could take another's.
 *
 * Overshoot. A fetch-add that finds no room is refused, and it cuts off what it has added: the
 * request is decided again (take_overshot, part_added), and its refusal writes the count without
 * what is above every limit that there ever was (count_granted, sight.cut), be the key marked
 * refused already or not. Whatever else swaps the count does likewise, and a refund: so one whose
 * thread was killed in between is cut off by the next. The largest limit is loaded after the state
 * (M11), so no token that was granted is cut off. If it stayed, a policy that is changed so that
 * counts are carried would make a debt of it. Of a stripe the largest is its share; of a policy
 * that was ever charged it is all that a charge may bring a count to. Where refusals are meant to
 * count (TRAIT_REFUSALS) nothing is cut off.
 *
 * Groups. Every part is judged by a state that was loaded, before any is charged (part_judge). Then
 * each is charged by an add or a swap of its own (part_charge), which confirms that state as in
 * "Find"; one that writes nothing, or does not fit, is confirmed when it is judged. Of parts that
 * share a slot only the first is judged by a load; the others are judged by what the one before
 * will make of the slot, if that is the same key's. Such a state is only used with a swap, which
 * succeeds only if it has come true. It is never added to: if the earlier part loses its race, the
 * slot may be another key's, whose window ends at the same end, and what the add returns would not
 * tell. What loses its race is decided alone, the long way. If it is refused then, all that the
 * others took is given back, each into its own window (all_give_back).
 *
 * New window in place. The slot is the key's and over. One CAS changes window and count together,
 * so of two threads that meet at a boundary one opens the window and the other counts in it. A late
 * thread may open a window that is over by the clock: it is later than any that this slot had (I1),
 * and the key has no other slot (I3), so nothing is counted in it twice.
 *
 * Claim. Two threads that see a key for the first time may pick different slots. So a claim is
 * first PENDING: nobody counts in it (stint_claim_slot). After claiming, each looks at all other slots of
 * the key's sequence (claim_stands). Both claims precede both looks (they are sequentially
 * consistent), so at least one sees the other. The one that sees a committed slot or an earlier
 * claim gives up its own; the one that sees a later claim cancels that; so one is left, and it
 * commits (stint_claim_resolve). Anyone who meets a pending slot of his key does the same work for it, so
 * nobody waits for a thread that stopped (E). Only what leaves nothing behind, as a look, does not:
 * it tells of the committed slot, if there is one beside the claim (stint_find_committed). A cancelled
 * claim becomes a tombstone by a double-width CAS (claim_cancel), which fails when the slot was
 * committed meanwhile, and keeps its end, so that the slot cannot be taken again before the next
 * tick (I1).
 *
 * Reach. The look goes as far as the shard's reach, loaded after the claim (I6). A claim that came
 * before this one raised the reach before, so the look finds it; one that comes later looks itself.
 *
 * Watermark. The key may have had a slot before, whose window ended and which another key took. A
 * thread with a late `now` must not open that window again in a new slot. So whoever takes over a
 * used slot first raises the shard's watermark to his `now`, at which that slot was over; and a
 * window is committed at max(now, watermark, end of the claim - 1), where the watermark is loaded
 * after the look at the other slots: if an older slot of the key is gone by the time of the look,
 * its takeover raised the watermark before.
 *
 * Commit is one CAS, whatever `used` is by then: a stray add into a pending slot must not hold it
 * up, and is dropped.
 *
 * Short claim. While the table is young a key without a slot claims a never-used slot of its first
 * two lines, looks at these, and commits (stint_claim_short). Every request that would leave a count
 * tries it, but one whose now is so late that the clock must be asked ("Latest"), and a stripe's
 * that must stay in its window (PART_HERE). The claim's state has the refused bit, too: it is the
 * first of its slot. No later claim has it, so whoever finds that state in the slot finds that
 * claim, whose key has the tag, and the commit compares the state alone, which on some processors
 * costs half of a double-width CAS. Without the mark it could commit another key's claim of the
 * same tick, one that has replaced this key's slot after somebody else had committed it (where
 * nothing is replaced, I1 keeps them apart). Nor can a stray add have changed `used`: nobody has
 * seen room in this slot before.
 *
 * Latest. It is raised before a window is opened that begins later, and before such a window
 * becomes a policy's hint (limiter_latest). A decision looks at it to see whether a glance is
 * enough ("A full table"), and whether a key without a slot is asked for so late that the clock
 * decides on its window (stint_claim_short, slot_find). Somebody's now far ahead would make both slow for
 * good, so it is lowered, never below the clock + 60 s, and the hints with it:
 *   - by who opens a table that nobody else uses (latest_lower), with the slots beyond it;
 *   - by decisions on a full table, which search all of it in turns, some lines each, and find that
 *     no slot counts as over for being so far ahead (latest_sweep).
 *   After the second a slot may have a window that begins later than latest says: one that was
 *   opened behind the search, by a now far ahead of the clock; one in lines whose searcher slept;
 *   or, if the last searcher slept between the clock and its CAS, one that was opened meanwhile.
 *   Where it counts as over ("Clock steps"), a glance shows it to be live: a full table may be
 *   called full although that slot could be taken. And a thread that is late by more than 60 s may
 *   not notice. No count depends on latest: A and B hold.
 *
 * Refund. A verdict tells the end of the window in which its tokens were counted, and a refund is a
 * swap of the count of that window, of a smooth policy perhaps as the previous one. It takes no
 * more than is there and was granted. A verdict of no slot has no window (0), and nothing is given
 * back by it: by now the key may have a slot, whose tokens are others'.
 *
 * Memory order. The machine may do a thread's loads and stores in another order than the program's,
 * as aarch64 does. But what one other thread has seen, all see; and a double-width CAS changes tag
 * and state at once, whichever of the two is loaded. So there is one order in which all operations
 * are done, and "before" and "after" above mean that order. It keeps those of the program's orders
 * that are here, and no more is needed. atomic.h has what the named orders give; on x86-64 loads
 * and stores do all of it but M5 of themselves. tests/model/weak.pml has every one, and what goes
 * wrong without it.
 *
 *   M1   state, then the tag again            the load of the state is an acquire
 *   M2   that tag, then what confirms both    fetch-add and CAS are barriers; before a second load of the
 *                                             state, the load of the tag is an acquire
 *   M3   fetch-add, then the tag              the fetch-add is a barrier
 *   M4   that tag, then the state             the load of the tag is an acquire
 *   M5   claim, then the look: reach, tags,   the CAS is a barrier: a store before loads
 *        never-used slots
 *   M6   another's claim seen, then the look  the load of its state is an acquire
 *        in its place
 *   M7   reach and watermark raised, or seen  the CAS is a barrier; so are the store of current_end, a
 *        high enough, then the claim; latest  release, and the CAS of who opens a window by it
 *        likewise, then the open window
 *   M8   look, then the watermark; glances,   a fence, whatever the look was made of
 *        then latest
 *   M9   all slots seen live, then the        a fence, or the loads of their states are acquires
 *        second search and its reach
 *   M10  a policy's largest limit raised, or  atomic_raise: its CAS is a barrier, its load an acquire; and
 *        seen high enough, then the limit     what charges is a barrier
 *        stored, or a charge made by it
 *   M11  state, then the largest limit        the load of the state is an acquire
 *   M12  a policy's words, then its version   the store of the version is a release
 *   M13  a rule's words, then the version     the loads of the words are acquires
 *        again
 *   M14  a version, then the words of the     the stores of the words are releases
 *        next
 *   M15  a policy's version, or a slot's tag  the loads of the version and of the tag are acquires
 *        that names it, then its words
 *
 * Operation by operation:
 *   Find.      The tags of a line are compared relaxed: a match is a hint, which M1 and M2 check; a
 *              key that was missed has a claim to make, whose look sees it (M5), or is looked for
 *              again (M9). Whether all slots of a line are live is seen in loads of which only the
 *              tag of a slot is before its state (a never-used slot, whose state is no window's,
 *              shows by its tag); that the tag and the state may be of two occupants does no harm:
 *              the state is one that the slot had (I1), and of the tag only the policy matters,
 *              only when the clock was stepped back. The reach is an acquire; relaxed would do: a
 *              search that ends short of a claim is one that was made before that claim. Two loads
 *              of one word never go back, so a key that stays in its slot is not missed.
 *   Take.      The second load of the tag is relaxed, as a fetch-add follows (M2). After a
 *              fetch-add that returns what was expected, nothing is loaded: only M3 needs the
 *              barrier after it.
 *   Look,      Without a write: M1, M2, by acquires. The refused bit, and a count that is cut off:
 *   refuse     a CAS, as in decide.
 *   Decide,    (refund, reset, a new window) one CAS, which compares the tag itself. What it writes
 *              comes from the state, and from the largest limit by M11. Nothing of the slot is
 *              loaded after it.
 *   Group.     Each part as take, or as decide. A predicted state was loaded by nobody: the CAS
 *              compares it.
 *   Latest.    As the watermark: raised by M7, loaded by M8 (before the glances, it only picks what
 *              they ask). It is lowered by a CAS from what was seen, so not over what somebody has
 *              raised since.
 *   Claim.     M7 before, M5 after. The tag and the state of a slot that seems reusable may be of
 *              two occupants: the CAS compares both. The policy that the tag names is read by M15.
 *   Look at    Relaxed comparisons, each after the claim; what they find is loaded as in find, by
 *   others     acquires. Nor need they be in order among themselves, or after the reach.
 *   Cancel,    CAS, which compares both (the short claim's compares the state, which tells both);
 *   commit     what is loaded after a failure (the tag relaxed) decides only whether it is tried
 *              again. The commit's window is computed from the watermark, so it comes after it. A
 *              pending slot is nobody's count, so what was charged before the commit is none.
 *   Clock.     Read after the state: an acquire. Clocks may be read a little early all the same: by
 *              nanoseconds, where the allowance is 60 s.
 *   Policies.  The version says that a policy exists. It is stored last (M12), and loaded by
 *              whoever reads more (M15). What may change is read by it: a whole rule (policy_rule,
 *              M12 to M14), or the traits, which with the capacity are one word, so that these two
 *              are always of one rule (policy_traits: nothing is compared after it, so it may be
 *              the next rule, just before that counts; what charges are compared with was raised
 *              before, M10). current_end, hot_window and hot_capacity are relaxed: 0, or no window
 *              that holds now, leads to decision_begin, which loads the version. Whether an older
 *              or a newer limit is read is the same as to be earlier or later. A policy's length,
 *              window, start and name are plain: written once, before the version. What a table's
 *              header says of its shape is plain, too: written before its magic (a release), read
 *              after (an acquire).
 *   Counters.  Relaxed: each is a word of its own, and sums are of no one instant. A thread's
 *              number goes from one thread to the next by two CAS, a lane of a shared table from
 *              one process to the next by a release or CAS and a CAS: so the next sees what the
 *              last has added without atomicity (x86-64; elsewhere the adds are atomic).
 *
 * A CAS that is a loop of exclusive loads and stores is lock-free (E) as far as the machine
 * promises that some such loop succeeds; between the two there is nothing but arithmetic, which is
 * all that ARMv8 asks.
 *
 * What a stale read costs: a stale tag or state makes a CAS fail or an end differ, and the decision
 * starts over. A stale watermark is impossible to tell from an earlier one, and harmless: it was
 * read after the look, which is all that is needed. A stale `current_end` of a policy costs a
 * division.
 *
 * Clock steps. A slot whose end is ahead of now by more than its policy's window and the allowance
 * is either met by a late thread or was written before the clock stepped back. The clock, read
 * after the slot was loaded, tells (stint_beyond_clock): if the slot is too far ahead of it too, no
 * thread can have written it by the clock as it is now, and it counts as over. Windows are then
 * counted again, and ends fall: I1, and with it A and B, hold between steps of the clock, not
 * across them.
 *
 * The literature: Purcell and Harris, "Non-blocking hashtables with open addressing" (2005). */
#ifndef STINT_SLOT_H
#define STINT_SLOT_H

#include "limiter.h"
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

/* Changes the state of a key's slot, if tag and state are what they were. By I1 the state alone
 * would do, but for STINT_FULL_REPLACE, under which two keys may have the same end in one slot. */
static ALWAYS_INLINE bool slot_swap(struct slot *slot, uint64_t tag, uint64_t state,
                                    uint64_t next) {
    const uint64_t expected[2] = {tag, state}, desired[2] = {tag, next};
    return atomic_cas2_seq(slot, expected, desired);
}

/* ---- A decision, handed from step to step -------------------------------------------------------- */

struct decision {
    struct stint_limiter *limiter;
    struct policy *policy;
    uint64_t hash;
    uint64_t tag;
    uint64_t now; /* ns since the epoch */
    tick_t end;   /* of the window of now; 0: not known yet (a window of the key's own) */
    uint32_t policy_id;
    uint32_t stripe; /* of a striped policy's key: the hash is that stripe's */
    tick_t here;     /* PART_HERE: the end of the only window to do anything in */
    struct terms terms;
    /* What came of it, in the window that ends at `end`. */
    struct charge charge;
    uint32_t flags; /* of the verdict */
};

/* What the decision has come to so far: STALE: the slots changed meanwhile, or its now moved, start over. */
enum progress { DONE, STALE };

/* ---- 2  Window ----------------------------------------------------------------------------------- */

/* The end of the window that holds a tick, by a policy with these flags, for a key with this hash. I7 is seen
 * to: the window may be opened. */
tick_t stint_window_at(const struct stint_limiter *limiter, const struct policy *policy,
                       uint32_t flags, uint64_t hash, tick_t tick);

/* Likewise of an instant. The policy's own window becomes its hint. (Not of a struct decision, whose fields would
 * have to be in memory for it on the path.) */
tick_t stint_window_compute(const struct stint_limiter *limiter, struct policy *policy,
                            uint32_t flags, uint64_t hash, uint64_t now);

/* The end of the window of now, of a key of its own: computed. */
static ALWAYS_INLINE tick_t window_anew(const struct decision *decision) {
    return stint_window_compute(decision->limiter, decision->policy, decision->terms.traits,
                                decision->hash, decision->now);
}

/* Finds the window of now by the policy's hint, which a window of a key's own has not got. */
static ALWAYS_INLINE tick_t window_of(const struct decision *decision) {
    tick_t end = (tick_t)atomic_load_relaxed(&decision->policy->current_end);
    if ((decision->terms.traits & STINT_START_PER_KEY) != 0)
        return 0;
    /* end > now >= end - length, or the hint is of another window. */
    if (LIKELY(!GUARD(HINT_WINDOW, tick_ns(end) - decision->now - 1 >= decision->terms.window)))
        return end;
    return window_anew(decision);
}

/* ---- 1  Policy ----------------------------------------------------------------------------------- */

/* What a request of known flags must not combine. */
static ALWAYS_INLINE bool request_good(uint32_t flags, uint32_t limit) {
    return (flags & ~(uint32_t)(STINT_PEEK | STINT_PARTIAL | STINT_DRAIN | STINT_RESERVE |
                                STINT_CHARGE)) == 0 &&
           ((flags & STINT_CHARGE) == 0 ||
            ((flags & (STINT_PARTIAL | STINT_DRAIN | STINT_RESERVE)) == 0 && limit == 0));
}

/* What an instance of the path knows before it begins, as constants, which fold what is made of them. */
struct known {
    uint32_t traits; /* all that the policy has; 0: not known */
    bool flags;      /* those of the request are `of_request` */
    uint32_t of_request;
};

static const struct known nothing_known = {0};

/* Reads all that a decision must know of its policy, and of what the request asks of it. Returns 0; else the flag
 * of a verdict that says why there is none (STINT_UNKNOWN_POLICY, too, where the policy has not got the known
 * traits any more). */
static ALWAYS_INLINE uint32_t decision_begin(struct decision *decision,
                                             struct stint_limiter *limiter,
                                             const struct stint_request *request, uint64_t now,
                                             struct known known) {
    if (UNLIKELY(request->policy >= limiter->max_policies))
        return STINT_UNKNOWN_POLICY;
    const uint32_t flags = known.flags ? known.of_request : request->flags;
    const uint64_t reserved = known.flags ? 0 : request->reserved;
    if (UNLIKELY(reserved != 0 || !request_good(flags, request->limit)))
        return STINT_BAD_REQUEST;
    struct policy *policy = &limiter->policies[request->policy];
    const uint64_t word = policy_traits(policy);
    const uint32_t traits = known.traits != 0 ? known.traits : (uint32_t)word;
    if (UNLIKELY(known.traits != 0 ? (uint32_t)word != known.traits : word == 0))
        return STINT_UNKNOWN_POLICY;
    uint64_t capacity = word >> 32;
    bool own = false;

    if (request->limit != 0) {
        uint64_t most = (traits & STINT_SMOOTH) != 0  ? SMOOTH_MAX
                        : traits_stripes(traits) == 1 ? STINT_LIMIT_MAX
                                                      : capacity;
        /* Of a striped policy, other requests would not know of larger shares. */
        own = request->limit < capacity;
        capacity = request->limit < most ? request->limit : most;
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
                  .reciprocal = policy->reciprocal,
                  .cost = request->cost,
                  .capacity = capacity,
                  .room = capacity,
                  .most = capacity,
                  .own = own,
                  .unlike = request->limit != 0,
                  .flags = flags},
    };
    if ((flags & (STINT_RESERVE | STINT_CHARGE)) != 0) {
        const struct rule rule = policy_rule(policy); /* all that counts is of this one */
        if (request->limit == 0)
            decision->terms.capacity = capacity = rule.capacity;
        uint64_t room = capacity + ((flags & STINT_RESERVE) != 0 ? rule.max_reserved : 0);
        decision->terms.room = room < STINT_LIMIT_MAX ? room : STINT_LIMIT_MAX;
        decision->terms.most =
            is_charge(&decision->terms) ? charge_most(&rule) : decision->terms.room;
    }
    /* Before it is charged (M10). */
    if ((request->limit != 0 || (flags & (STINT_RESERVE | STINT_CHARGE)) != 0) &&
        UNLIKELY(decision->terms.most > atomic_load_relaxed(&policy->largest)))
        atomic_raise(&policy->largest, decision->terms.most);
    decision->end = window_of(decision);
    return 0;
}

/* A decision on one token by a plain policy, whose window of now ends at `end`. All but the capacity is
 * constant, which folds what is made of it. */
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

/* Ends a decision that could not begin, and tells why. Returns false. */
bool stint_decision_void(struct stint_limiter *limiter, uint32_t why,
                         struct stint_verdict *verdict);

/* ---- 3  Line ------------------------------------------------------------------------------------- */

static inline struct line *home_of(const struct table *table, uint64_t hash) {
    return &table->lines[table_home(table, hash)];
}

/* Which slots of this line have the tag; 0 if none. All four are compared before the one branch
 * that follows, which is predictable: an early exit would not be. No order among the four. */
static inline uint32_t line_match(const struct line *line, uint64_t tag) {
    return atomic_match4(&line->slots[0].tag, tag);
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

/* Likewise of a key's first two lines, in which nearly every key is: 1 in 25 is in the second at a load of 50%. */
static ALWAYS_INLINE struct slot *slot_near(const struct table *table, uint64_t hash,
                                            uint64_t tag) {
    struct line *home = home_of(table, hash);
    struct slot *slot = line_find(home, tag);
    return LIKELY(slot != NULL) ? slot : line_find(table_next(table, hash, home), tag);
}

/* Fetches the line after a home line: it would stop the processor for a whole miss. To the second-level cache
 * only: out of cache that takes 2 ns less of a decision, because the first-level cache has few misses under way at
 * once. */
static ALWAYS_INLINE void fetch_next(const struct line *home) {
    __builtin_prefetch(home + 1, 0, 2); /* harmless where it is another shard's, or none */
}

/* Requests whose lines are on their way while one is decided: about as many misses as a core keeps under
 * way (10 to 24 line fill buffers on x86-64 of the last ten years). */
#define AHEAD 16

/* Fetches both lines of a key. Returns the first. */
static ALWAYS_INLINE struct line *fetch_lines(const struct table *table, uint64_t hash) {
    struct line *home = home_of(table, hash);
    __builtin_prefetch(home);
    fetch_next(home);
    return home;
}

/* ---- 4  Judge (charge.h) what was seen ----------------------------------------------------------- */

/* A slot of the decision's key as it was seen, and what the decision begins with. */
struct sight {
    struct slot *slot;
    uint64_t state;   /* as it was loaded */
    uint64_t count;   /* tokens in the window of the decision */
    uint64_t refused; /* STATE_REFUSED, if the key was refused in that window */
    bool cut;     /* the count is less than the slot's: refused requests had been counted, too */
    bool stepped; /* the slot starts anew because the clock was stepped back */
};

/* A slot's count less what fetch-adds of refused requests have left above every limit that there ever
 * was. The largest limit is loaded after the state, so that no token that was granted is cut off (M11). */
static ALWAYS_INLINE uint64_t count_granted(const struct decision *decision, uint64_t count) {
    const struct policy *policy = decision->policy;
    const uint32_t traits = decision->terms.traits, stripes = traits_stripes(traits);
    if (!GUARDED(BELIEVED) || (traits & STINT_SMOOTH) != 0)
        return count; /* two counts in one */
    uint64_t largest = atomic_load_relaxed(&policy->largest);
    if (LIKELY(count <= largest) && stripes == 1)
        return count;
    if ((traits & TRAIT_REFUSALS) != 0)
        return count; /* they are meant to count */
    uint64_t most = stripes == 1 || largest >= STINT_LIMIT_MAX
                        ? largest
                        : stripe_share(largest, stripes, decision->stripe);
    return count < most ? count : most;
}

/* Makes the terms of the request those of a rule that was read later, by which its window begins. */
static ALWAYS_INLINE void rule_adopt(struct terms *terms, const struct rule *rule) {
    if (UNLIKELY(terms->capacity > rule->capacity) && !terms->unlike) {
        uint64_t more = terms->room - terms->capacity;
        terms->capacity = rule->capacity;
        terms->room = rule->capacity + (more < rule->max_reserved ? more : rule->max_reserved);
    }
}

/* What slot_look has come to. */
enum look {
    LOOK_GOOD,
    LOOK_STALE,   /* the slot is not the key's any more */
    LOOK_PENDING, /* it is claimed, and not committed */
    LOOK_AHEAD,   /* it is in a later window than that of now */
};

/* Looks at `state`, which was loaded of a slot of the key, in the decision's window: if the slot is in an
 * earlier one, that one is over, and its window begins with what is carried. A window of the key's own is
 * found in the slot, if it holds now: nothing has to be computed. */
static ALWAYS_INLINE enum look slot_look(struct decision *decision, struct slot *slot,
                                         uint64_t state, struct sight *sight) {
    const struct terms *terms = &decision->terms;

    /* The state, then the tag, then whatever confirms the two: see "Find" (M1, M2). */
    if (UNLIKELY(GUARD(FOUND_TAG, atomic_load_acquire(&slot->tag) != decision->tag)))
        return LOOK_STALE;

    if ((terms->traits & STINT_START_PER_KEY) != 0 && decision->end == 0) {
        if (UNLIKELY(GUARD(KEY_PENDING, state_pending(state))))
            return LOOK_PENDING; /* the end is the claim's */
        tick_t now = tick_of(decision->now), end = end_of(state_id(state), now);
        decision->end = LIKELY(end > now && end - now <= decision->policy->length)
                            ? end
                            : window_anew(decision);
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
                    count_carry(&rule, count, apart / (uint64_t)decision->policy->length);
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

/* ---- 5  Charge ----------------------------------------------------------------------------------- */

/* Whether a refusal sets the refused bit. */
static ALWAYS_INLINE bool refusal_marked(const struct terms *terms) {
    return is_decision(terms) &&
           ((terms->part & PART_SILENT) == 0 || (terms->part & PART_REFUSED) != 0);
}

/* Finds what is to be written of what was judged of a sight. Returns false if nothing is. */
static ALWAYS_INLINE bool slot_next(struct decision *decision, const struct sight *sight,
                                    uint64_t *next) {
    const struct terms *terms = &decision->terms;
    struct charge *charge = &decision->charge;
    bool first_refusal =
        !charge->fits && GUARD(FOUND_MARK, sight->refused == 0) && refusal_marked(terms);
    bool writes = !is_look(terms) && (charge->count != sight->count || sight->cut);

    if (UNLIKELY((terms->part & PART_HERE) != 0 && decision->end != decision->here)) {
        *charge = (struct charge){.count = sight->count, .used = sight->count};
        first_refusal = writes = false;
    }
    uint64_t marked = first_refusal ? STATE_REFUSED : sight->refused;
    decision->flags = first_refusal ? STINT_FIRST_REFUSAL : 0;
    *next = state_of(decision->end, marked | charge->count);
    return first_refusal || writes;
}

/* Whether the slot is in the window in which it was seen: what confirms a decision that writes nothing. */
static ALWAYS_INLINE bool slot_unchanged(const struct sight *sight) {
    return !GUARD(FOUND_STATE,
                  !state_same_window(atomic_load_acquire(&sight->slot->state), sight->state));
}

/* Does to the slot what was judged of a sight of it: one swap, if there is anything to write. Returns false
 * if the slot has changed since. */
static ALWAYS_INLINE bool slot_charge(struct decision *decision, const struct sight *sight) {
    uint64_t next;
    return slot_next(decision, sight, &next)
               ? slot_swap(sight->slot, decision->tag, sight->state, next)
               : slot_unchanged(sight);
}

/* ---- 6  Verdict ---------------------------------------------------------------------------------- */

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

/* What the verdict's retry_after is computed from where it is not simply the end of the window. */
struct waiting {
    const struct policy *policy;
    struct terms terms;
    struct charge charge;
    uint64_t hash;
    uint64_t left; /* ns to the end of the window */
    tick_t end;
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
    uint32_t flags = decision->flags | (shadowed ? STINT_SHADOWED : 0);
    uint64_t wait = 0;

    if ((terms->traits & TRAIT_NEAR) != 0 &&
        charge->used * 100 > terms->capacity * policy_rule(decision->policy).near_limit)
        flags |= STINT_NEAR_LIMIT;
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
    if (!within && !charge->fits && (terms->traits & (TRAIT_CARRIES | TRAIT_JITTER)) == 0) {
        wait = terms->cost > terms->room ? STINT_NEVER : left;
    } else if (!within &&
               !(charge->fits &&
                 charge->total <=
                     terms->capacity)) { /* built here, so that the path keeps its registers */
        const struct waiting waiting = {
            .policy = decision->policy,
            .terms = {.cost = terms->cost,
                      .capacity = terms->capacity,
                      .room = terms->room,
                      .window = terms->window,
                      .flags = terms->flags},
            .charge = {.count = charge->count, .total = charge->total, .fits = charge->fits},
            .hash = decision->hash,
            .left = left,
            .end = decision->end,
            .untracked = untracked,
        };
        wait = stint_decision_wait(&waiting);
    }
    uint64_t remaining = 0;
    if ((within && !is_charge(terms)) ||
        (charge->used < terms->capacity && !(untracked && !charge->fits)))
        remaining = terms->capacity - charge->used;
    /* Both at once, with what is between them; bytes put together in memory would be waited for. */
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

/* Steps 5 and 6 of what was judged of a sight. What fits and what is refused each go by themselves, so that the rest
 * of the path knows which it is. Returns false if the slot has changed since. */
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

/* ---- The long way -------------------------------------------------------------------------------- */

/* Decides whatever it is: the key is not in its first lines, or its slot changed, is pending or in another
 * window than it should be. What came of it is in the decision. */
void stint_slot_settle(struct decision *decision);

/* Likewise, of a striped policy too, and ends it. */
bool stint_decision_settle(struct decision *decision, struct stint_verdict *verdict);

/* Any request but those of take.c's short paths, by a policy id below max_policies: decide.c. `now` is no
 * STINT_NOW. */
bool stint_decide_more(struct stint_limiter *limiter, const struct stint_request *request,
                       uint64_t now, struct stint_verdict *verdict);

/* Likewise, a request from its beginning to its verdict, the long way: where the paths leave. */
bool stint_slot_decide(struct stint_limiter *limiter, const struct stint_request *request,
                       uint64_t now, struct stint_verdict *verdict);

/* Decides on a request of cost 1 whose fetch-add on `slot` returned `added`, after a load that had shown
 * the window of `seen`: `added` is of another window, or shows no room. */
void stint_slot_settle_added(struct decision *decision, struct slot *slot, uint64_t seen,
                             uint64_t added);

/* Whether that fetch-add counted for the key of the decision; if not, it went astray. */
bool stint_slot_added_ours(const struct decision *decision, struct slot *slot, uint64_t seen,
                           uint64_t added);

/* Gives tokens back to a key (of a striped policy: to that stripe of it, whose hash `hash` is) while its
 * slot is in the window `id` (smooth: or in the next one). Returns how many. */
uint32_t stint_slot_refund(const struct stint_limiter *limiter, uint32_t policy_id, uint64_t hash,
                           uint32_t stripe, uint64_t id, uint32_t tokens);

/* Tokens that are given back. */
struct giving {
    const struct policy *policy;
    uint32_t traits; /* of it */
    uint32_t stripe; /* of a striped policy's key */
    uint64_t tag;
    uint64_t id; /* of the window in which they were taken */
};

/* Gives back `back` tokens in a slot of the key that was seen with this state, if that is of their window (smooth: or
 * the next one). `back` receives how many. Returns false if the slot has changed since. */
static ALWAYS_INLINE bool slot_give_back(const struct giving *giving, struct slot *slot,
                                         uint64_t state, uint32_t *back) {
    const uint32_t traits = giving->traits;
    const bool smooth = (traits & STINT_SMOOTH) != 0;
    const uint64_t mask = smooth ? SMOOTH_MAX : USED_MASK;
    const uint32_t tokens = *back;
    uint32_t shift = 0; /* which of the two counts of a smooth policy; the only count of others */

    *back = 0;
    if (GUARD(REFUND_WINDOW, state_id(state) != giving->id)) {
        if (!smooth ||
            ((giving->id + (uint64_t)giving->policy->length) & ID_MASK) != state_id(state))
            return true;
        shift = SMOOTH_BITS;
    }
    uint64_t held = state_used(state) >> shift & mask;
    /* Where a fetch-add may have counted refused requests past a limit, what is above every limit that there ever
     * was is none that was granted. It is loaded after the state, or tokens granted by a limit that was raised
     * since would be cut off (M11). */
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

/* Sets what a key has used to 0. Returns whether it had a slot. */
bool stint_slot_reset(const struct table *table, uint64_t hash, uint64_t tag);

/* Whether what is left of a window that is over may still matter to its key. `policy` may be NULL. */
static inline bool slot_carries(const struct policy *policy, uint64_t state, tick_t now) {
    if (policy == NULL || LIKELY((policy_traits(policy) & TRAIT_CARRIES) == 0))
        return false;
    struct rule rule = policy_rule(policy);
    tick_t over = now - end_of(state_id(state), now);
    return count_carry(&rule, state_used(state), (uint64_t)(over / policy->length) + 1) != 0;
}

#endif
