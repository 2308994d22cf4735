/* SPDX-License-Identifier: MIT
 * Step 4 of a decision: line + tag -> slot, slot + window -> verdict.
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
 * States of a slot and who may change them. D: double-width CAS on tag and state; S: CAS on the state
 * alone; +: fetch-add on it.
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
 *   I4  `used` falls only by a new window, a commit, a refund or a reset.
 *   I5  A used slot never becomes never-used again: a search may stop at a never-used slot.
 *   I6  The shard's reach only grows, and is at least the line, counted from home, of every claim that
 *       was ever made: it is raised before the claim. A search may stop behind it.
 *   I7  The table's latest only grows, and is at least the begin of every window that was ever opened in a
 *       slot: it is raised before, by 30 s at a time.
 *
 * Why a decision is right (A, B):
 *
 * Find. The tag is loaded, then the state s, then the tag again. If the tag is not the key's, s may
 * be another's: start over. If it is, s may still be another's: the slot may have gone to another
 * key and come back between the two loads of the tag. But it is the key's if the slot still has the
 * end of s at any time after the second load of the tag (I1), and every path below makes sure of
 * that:
 *   - fetch-add: what it returns has the end of s, committed;
 *   - CAS: it succeeds only if tag and state are what they were;
 *   - refusing without a write: the state is loaded once more and has the end of s, committed.
 *   Without the second load of the tag another key's window is charged; without the second load of
 *   the state a key is refused for another's count.
 *
 * A full table. One search compares the tags, and on the way sees for how many lines from home on all slots
 * are live (slot_search). A slot once seen live stays so at this now, whoever's it is (I1), so it is the same
 * as if all of them had been seen when the last one was. A glance at a line shows them to be live, whatever
 * their policies, if they end after now: provided that latest, loaded after all of them, is within the
 * allowance of now (I7), so that no step of the clock has left any that count as over ("Clock steps"), nor did
 * this thread sleep so long that the clock must be read. What a glance does not show is looked at slot by slot,
 * by the policy of each. Once no slot may be claimed, the tags are compared again,
 * where one is to be replaced by the search for the fewest tokens: the key may have got the last free slot
 * behind the first search's back. The tags of the first search are but hints, so nothing depends on which of
 * them are before which glance.
 *
 * Fetch-add. It is issued only after a load that showed room, so `used` passes the limit by at most
 * one for each thread, and never reaches the refused bit (2^28 threads). What is above every limit that
 * there ever was is cut off by the next decision that is not the hot path's, and by a refund. If what
 * it returns has another end, or is pending, the slot changed in between. If tag and state then show the key,
 * committed, with the end that was returned, the add was into the key's next window (I1): decide by
 * it. Else the token is another's by now, and is left to it until its window ends: the exception of
 * B. It is never taken back: that could take another's.
 *
 * New window in place. The slot is the key's and over. One CAS changes window and
 * count together, so of two threads that meet at a boundary one opens the window and the other
 * counts in it. A late thread may open a window that is over by the clock: it is later than any
 * that this slot had (I1), and the key has no other slot (I3), so nothing is counted in it twice.
 *
 * Claim. Two threads that see a key for the first time may pick different slots. So a claim is
 * first PENDING: nobody counts in it. After claiming, each looks at all other slots of the key's
 * sequence. Both claims precede both looks (they are sequentially consistent), so at least one sees
 * the other. The one that sees a committed slot or an earlier claim gives up its own; the one that
 * sees a later claim cancels that; so one is left, and it commits. Anyone who meets a pending slot
 * of his key does the same work for it, so nobody waits for a thread that stopped (E). A cancelled
 * claim becomes a tombstone by a double-width CAS, which fails when the slot was committed
 * meanwhile, and keeps its end, so that the slot cannot be taken again before the next tick (I1).
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
 * Commit is one CAS, whatever `used` is by then: a stray add into a pending slot must
 * not hold it up, and is dropped.
 *
 * Short claim. While the table is young a new key claims a never-used slot of its first two lines, looks
 * at these, and commits (slot_claim_unused). The claim's state has the refused bit, too: it is the first of
 * its slot. No later claim has it, so whoever finds that state in the slot finds that claim, whose key has
 * the tag, and the commit compares the state alone, which on some processors costs half of a double-width
 * CAS. Without the mark it could commit another key's claim of the same tick, one that has replaced this
 * key's slot after somebody else had committed it (where nothing is replaced, I1 keeps them apart). Nor can
 * a stray add have changed `used`: nobody has seen room in this slot before.
 *
 * Memory order. The machine may do a thread's loads and stores in another order than the program's, as
 * aarch64 does. But what one other thread has seen, all see; and a double-width CAS changes tag and state
 * at once, whichever of the two is loaded. So there is one order in which all operations are done, and
 * "before" and "after" above mean that order. It keeps those of the program's orders that are here, and no
 * more is needed. atomic.h has what the named orders give; on x86-64 loads and stores do all of it but M5
 * of themselves. tests/model/weak.pml has every one, and what goes wrong without it.
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
 *   M15  what names a policy, its             a fence (take_displaced); the load of the tag is an acquire
 *        current_end or a slot's tag, then
 *        its words
 *
 * Operation by operation:
 *   Find.      The tags of a line are compared relaxed: a match is a hint, which M1 and M2 check; a key
 *              that was missed has a claim to make, whose look sees it (M5), or is looked for again (M9).
 *              Whether all slots of a line are live is seen in loads of which only the tag of a slot is
 *              before its state (a never-used slot, whose state is no window's, shows by its tag); that
 *              the tag and the state may be of two occupants does no harm: the state is one that the slot
 *              had (I1), and of the tag only the policy matters, only when the clock was stepped back.
 *              The reach is an acquire; relaxed would do: a search that ends short of a claim is one that
 *              was made before that claim. Two loads of one word never go back, so a key that stays in
 *              its slot is not missed.
 *   Take.      The second load of the tag is relaxed, as a fetch-add or CAS follows (M2). After a fetch-add
 *              that returns what was expected, nothing is loaded: only M3 needs the barrier after it.
 *   Refuse.    Without a write: M1, M2, by acquires. The refused bit: a CAS, as in decide.
 *   Decide,    (refund, reset, a new window) one CAS, which compares the tag itself. What it writes comes
 *              from the state, and from the largest limit by M11. Nothing of the slot is loaded after it.
 *   Latest.    As the watermark: raised by M7, loaded by M8 (before the glances, it only picks what they ask).
 *   Claim.     M7 before, M5 after. The tag and the state of a slot that seems reusable may be of two
 *              occupants: the CAS compares both. The policy that the tag names is read by M15.
 *   Look.      Relaxed comparisons, each after the claim; what they find is loaded as in find, by acquires.
 *              Nor need they be in order among themselves, or after the reach.
 *   Cancel,    CAS, which compares both (the short claim's compares the state, which tells both); what is
 *   commit     loaded after a failure (the tag relaxed) decides only whether it is tried again. The commit's
 *              window is computed from the watermark, so it comes after it. A pending slot is nobody's count,
 *              so what was charged before the commit is none.
 *   Clock.     Read after the state: an acquire. Clocks may be read a little early all the same: by
 *              nanoseconds, where the allowance is 60 s.
 *   Policies.  current_end, and what the hot path reads of a policy, are relaxed: 0, or no window that
 *              holds now, leads to the long way, which begins with the version (M12); whether an older
 *              or a newer limit is read is the same as to be earlier or later; but see M15. A policy's
 *              length, start and name are plain: written once, before the version.
 *              What a table's header says of its shape is plain, too: written before its magic (a
 *              release), read after (an acquire).
 *   Counters.  Relaxed: each is a word of its own, and sums are of no one instant. A thread's number goes
 *              from one thread to the next by two CAS, a stripe of a shared table from one process to the
 *              next by a release or CAS and a CAS: so the next sees what the last has added without
 *              atomicity (x86-64; elsewhere the adds are atomic).
 *
 * A CAS that is a loop of exclusive loads and stores is lock-free (E) as far as the machine promises that
 * some such loop succeeds; between the two there is nothing but arithmetic, which is all that ARMv8 asks.
 *
 * What a stale read costs: a stale tag or state makes a CAS fail or an end differ, and the decision
 * starts over. A stale watermark is impossible to tell from an earlier one, and harmless: it was
 * read after the look, which is all that is needed. A stale `current_end` of a policy costs a
 * division.
 *
 * Clock steps. A slot whose end is ahead of now by more than its policy's window and the allowance
 * is either met by a late thread or was written before the clock stepped back. The clock, read
 * after the slot was loaded, tells: if the slot is too far ahead of it too, no thread can have
 * written it by the clock as it is now, and it counts as over. Windows are then counted again, and
 * ends fall: I1, and with it A and B, hold between steps of the clock, not across them.
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
static inline bool slot_swap(struct slot *slot, uint64_t tag, uint64_t state, uint64_t next) {
    if (!GUARDED(SWAP_TAG))
        tag = atomic_load_relaxed(&slot->tag);
    const uint64_t expected[2] = {tag, state}, desired[2] = {tag, next};
    return atomic_cas2_seq(slot, expected, desired);
}

/* One decision, handed from step to step on the stack. */
struct decision {
    struct stint_limiter *limiter;
    struct policy *policy;
    uint64_t hash;
    uint64_t tag;
    uint64_t now; /* ns since the epoch */
    tick_t start; /* of the policy's windows, for this key */
    uint32_t policy_id;
    uint32_t stripe;               /* of a striped policy's key: the hash is that stripe's */
    const struct search *searched; /* at this now, without having found the key; NULL: not yet */
    tick_t here;                   /* DECIDE_HERE: the end of the only window to do anything in */
    struct terms terms;
};

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

/* Lines of a search for a tag that are looked at for a never-used slot (I5): it ends most searches while a
 * table is young, when one is nearly always in the first two lines; later there is none, and looking costs. (slot_search
 * looks in the line at which it stops, too.) */
#define UNUSED_LINES 2

/* What a search for a key has shown. */
struct search {
    struct slot *slot; /* which has the key's tag; NULL: none */
    uint32_t
        line; /* its line, counted from home; NULL: so many from home on are live (slot_search) */
};

/* Looks for a tag in the lines that its key may be in, and on the way, which costs nearly nothing more, for
 * how many of them, from home on, have only live slots: as of the tick `now`, hence for good at this `now`
 * (I1). */
struct search slot_search(const struct stint_limiter *limiter, uint64_t hash, uint64_t tag,
                          tick_t now);

/* Claims a never-used slot of a key's first two lines, which have not got the key, and commits it with one
 * token used in the window that ends at `end`: the short way through find, claim and resolve while the
 * table is young. Returns false if it is not that simple, whatever state the claim is left in.
 *
 * Both lines are looked at whichever the slot is in, and no branch asks which: at a load of 50%, 1 new key
 * in 8 finds its home line full, and 1 in 6 takes its last slot, at random. */
static CK_CC_FORCE_INLINE bool slot_claim_unused(struct stint_limiter *limiter,
                                                 const struct line *home, const struct line *next,
                                                 struct slot *slot, bool displaced, uint64_t hash,
                                                 uint64_t tag, tick_t now, tick_t end) {
    const uint64_t never_used[2] = {0, 0};
    const uint64_t first = GUARDED(SHORT_FIRST) ? STATE_REFUSED : 0;
    const uint64_t claim[2] = {tag, state_of(now + 1, STATE_PENDING | first)};
    struct shard *shard = table_shard_of(&limiter->table, hash);

    atomic_raise(&shard->reach, GUARDED(REACH_RAISE) && displaced);
    if (!atomic_cas2_seq(slot, never_used, claim))
        return false;
    limiter_count_table(limiter, COUNT_PLACED);
    INSTANT(INSTANT_CLAIMED);
    /* The look: a slot that is still never-used ends the sequence in these lines (I5). */
    uint32_t in_home = line_match(home, tag), in_next = line_match(next, tag);
    bool others = (match4_rest(in_home) | match4_rest(in_next)) != 0 ||
                  (in_home != 0 && in_next != 0 && home != next); /* a shard may be one line */
    if (GUARD(SHORT_LOOK, others) ||
        GUARD(SHORT_UNUSED, (line_match(home, 0) | line_match(next, 0)) == 0))
        return false;
    atomic_fence_acquire();
    INSTANT(INSTANT_LOOKED);
    if (GUARD(SHORT_WATERMARK, (tick_t)atomic_load_relaxed(&shard->watermark) > now))
        return false;
    return atomic_cas_seq(&slot->state, claim[1], state_of(end, 1));
}

/* Whether what is left of a window that is over may still matter to its key. `policy` may be NULL. */
static inline bool slot_carries(const struct policy *policy, uint64_t state, tick_t now) {
    if (policy == NULL || LIKELY((atomic_load_relaxed(&policy->edges) & EDGE_CARRIES) == 0))
        return false;
    struct rule rule = policy_rule(policy);
    tick_t over = now - end_of(state_id(state), now);
    return count_carry(&rule, state_used(state), (uint64_t)(over / policy->length) + 1) != 0;
}

/* Decides whatever it is: all that the hot path of take.c leaves. The policy exists. */
bool slot_decide(struct decision *decision, struct stint_verdict *verdict);

/* Writes the verdict of a charge in the window that ends at `end`, and counts the decision. `used`
 * is what the verdict shows. Returns verdict.allowed. */
bool decision_end(struct decision *decision, const struct charge *charge, uint64_t used, tick_t end,
                  uint32_t flags, struct stint_verdict *verdict);

/* Adds to the statistics what a verdict says of a decision that was DECIDE_QUIET. */
void slot_count(struct stint_limiter *limiter, uint32_t policy_id, uint32_t flags, bool allowed);

/* Ends a decision of cost 1 whose fetch-add on `slot` returned `added`, after a load that had shown
 * the window of `seen`: `added` is of another window, or shows no room. */
bool slot_decide_added(struct decision *decision, struct slot *slot, uint64_t seen, uint64_t added,
                       struct stint_verdict *verdict);

/* Whether that fetch-add counted for the key of the decision; if not, it went astray. */
bool slot_added_ours(const struct decision *decision, struct slot *slot, uint64_t seen,
                     uint64_t added);

/* Gives tokens back to a key (of a striped policy: to that stripe of it, whose hash `hash` is) while its
 * slot is in the window `id` (smooth: or in the next one). Returns how many. */
uint32_t slot_refund(const struct stint_limiter *limiter, uint32_t policy_id,
                     const struct rule *rule, uint64_t hash, uint32_t stripe, uint64_t id,
                     uint32_t tokens);

/* Sets what a key has used to 0. Returns whether it had a slot. */
bool slot_reset(const struct table *table, uint64_t hash, uint64_t tag);

#endif
