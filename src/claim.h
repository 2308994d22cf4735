/* SPDX-License-Identifier: MIT
 * A key without a slot gets one: claim, look at the others, commit. Or it does without. */
#ifndef STINT_CLAIM_H
#define STINT_CLAIM_H

#include "search.h"

/* Whether a claim may not be committed. Its policy is gone: its key may have had a slot, which was
 * swept (sweep.c), and what it had used is no longer known. If the policy is there after the look
 * (M8), the sweep had not begun when the look was made; or the policy is back, and what was swept
 * counts no more. Or a bucket's rate changed, and the claim's state may be by a rate of which no
 * slot may be any more (rate.h). The decision begins anew. */
static ALWAYS_INLINE bool claim_void(const struct decision *decision) {
    const struct policy *policy = decision->policy;

    return GUARD(CLAIM_GONE, policy_word(policy) == 0) || /* M8 */
           ((decision->terms.traits & RULE_BUCKET) != 0 &&
            GUARD(RATE_CLAIM, atomic_load_relaxed(&policy->version) != decision->version)); /* M8 */
}

/* Claims a never-used slot (`unused`: unused_near) of a key's first two lines, which have not got
 * the key, looks at these, and commits `state`. Returns false if it is not that simple, whatever
 * the claim is left in: the key is looked for again.
 *
 * The refused bit of the claim says that it is the first of its slot; no later one has it. So who
 * finds this state finds this claim, with the key's tag, and the commit compares the state alone:
 * on some processors that costs half of a double-width CAS. Without the bit it could commit another
 * key's claim of the same tick, which has replaced this key's slot after somebody else had
 * committed it. (Where nothing is replaced, I1 keeps the two apart.) Nor can a stray add have
 * changed `used`: nobody has seen room in this slot before.
 *
 * Both lines are looked at, and no branch asks in which the slot is: at a load of 50%, 1 new key in
 * 8 finds its home line full, and 1 in 6 takes its last slot, at random. */
static ALWAYS_INLINE bool claim_unused(const struct decision *decision, uint64_t unused,
                                       uint64_t state) {
    struct stint_limiter *limiter = decision->limiter;
    const struct table *table = &limiter->table;
    const uint64_t hash = decision->hash, tag = decision->tag;
    const tick_t now = tick_of(decision->now);
    struct line *home = home_of(table, hash), *next = table_next(table, hash, home);
    const uint32_t in_home = (uint32_t)unused;
    struct slot *slot =
        in_home != 0 ? line_slot(home, in_home) : line_slot(next, (uint32_t)(unused >> 32));
    /* The two looks have no order, and a shard may be one line: nothing in it is displaced. */
    const bool displaced = in_home == 0 && next != home;
    const uint64_t never_used[2] = {0, 0};
    const uint64_t claim[2] = {tag, state_of(now + 1, STATE_PENDING | STATE_REFUSED)};
    struct shard *shard = table_shard_of(table, hash);

    INSTANT(INSTANT_ABSENT);
    atomic_raise(&shard->reach, displaced); /* that of the two lines needs none (I6) */
    /* I2: the claim, then the look (M5). */
    if (UNLIKELY(!atomic_cas2_seq(slot, never_used, claim)))
        return false;
    limiter_count_table(limiter, COUNT_PLACED);
    INSTANT(INSTANT_CLAIMED);
    /* The look: a slot that is still never-used ends the sequence in these lines (I5). */
    const uint32_t others =
        match4_rest(line_match(home, tag) << 16 | (next == home ? 0 : line_match(next, tag)));
    if (UNLIKELY(GUARD(SHORT_LOOK, others != 0)) ||
        UNLIKELY((line_match(home, 0) | line_match(next, 0)) == 0))
        return false;
    atomic_fence_acquire(); /* M8: the look, then the watermark */
    INSTANT(INSTANT_LOOKED);
    if (UNLIKELY(GUARD(SHORT_WATERMARK, (tick_t)atomic_load_relaxed(&shard->watermark) > now)))
        return false;
    if (UNLIKELY(claim_void(decision))) { /* M8 */
        const uint64_t tombstone[2] = {table_tombstone(table), state_of(now + 1, 0)};
        (void)atomic_cas2_seq(slot, claim, tombstone); /* I2; fails if it was resolved */
        return false;
    }
    /* I3. The state alone tells the claim: see above. */
    return atomic_cas_seq(&slot->state, claim[1], state);
}

/* The same in a slot of the home line that is over, of a key that was found nowhere. `state` is of
 * the window of now. */
bool stint_claim_over(const struct decision *decision, uint64_t state);

/* Decides on a key that was found nowhere, by these two. STALE: it is not that simple. A stripe's
 * request that must stay in its window (PART_SAME_WINDOW) does not try it. One that leaves nothing
 * ends here: there is a slot, and no need of it. */
static ALWAYS_INLINE enum progress claim_short(struct decision *decision, uint64_t unused) {
    if (decision->end == 0)
        decision->end = window_anew(decision);
    decision->charge = judge(&decision->terms, 0, 0);
    if ((decision->terms.special & PART_SAME_WINDOW) != 0)
        return STALE;
    decision->flags = 0;
    if (leaves_nothing(&decision->terms, &decision->charge))
        return unused != 0 && !begins_later(&decision->limiter->table, decision->hash,
                                            tick_of(decision->now))
                   ? DONE
                   : STALE;
    if (!decision->charge.fits)
        return STALE;
    const uint64_t state = decision_state(decision, &(struct seen){0});
    return (LIKELY(unused != 0) ? claim_unused(decision, unused, state)
                                : stint_claim_over(decision, state))
               ? DONE
               : STALE;
}

/* Claims a free slot that was seen. If a key had it before, the watermark is raised first. */
bool stint_claim_free(struct decision *decision, struct seen *seen);

/* Commits a claim with this request's charge, whoever claimed it. */
enum progress stint_claim_resolve(struct decision *decision, const struct seen *claim,
                                  uint32_t flags);

/* Commits a claim of a companion's slot. Its state is `end` and `rest`. */
enum progress stint_claim_override(struct decision *decision, const struct seen *claim, tick_t end,
                                   uint64_t rest);

/* Ends a request that writes nothing, of a key that has no slot. */
enum progress stint_decide_nothing(struct decision *decision, uint32_t flags);

/* The key may claim no slot, and has none: the outcome that the user chose (G). */
enum progress stint_decide_full(struct decision *decision);

#endif
