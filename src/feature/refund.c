/* SPDX-License-Identifier: MIT
 * What is done to a key beside deciding: tokens given back, its count reset, its line fetched. */
#include "feature/override.h"
#include "feature/rate.h"
#include "feature/stripe.h"

struct giving {
    const struct policy *policy;
    uint32_t traits;   /* of it */
    uint64_t identity; /* policy_identity when they were taken */
    uint64_t tag;
    uint64_t id; /* of the window in which they were taken */
};

/* What policy_identity was when a verdict was given. */
static ALWAYS_INLINE uint64_t verdict_identity(const struct stint_verdict *verdict) {
    return (uint64_t)verdict->generation << 32 | verdict->policy;
}

/* Gives back `back` tokens in a slot of the key that was seen with this state, if that is of their
 * window (two counts: or of the next one), and no more than its count has. `back` receives how
 * many. Returns false if the slot has changed since.
 *
 * In flight, too, tokens that are held since the window before come off the previous count. The
 * verdict of a key without a slot has no window (0), and gives nothing back: by now the key may
 * have a slot, with tokens of others. */
static ALWAYS_INLINE bool slot_give_back(const struct giving *giving, struct slot *slot,
                                         uint64_t state, uint32_t *back) {
    const uint32_t traits = giving->traits;
    const bool two = (traits & TWO_COUNTS) != 0;
    uint64_t mask = two ? THIS_MASK : USED_MASK;
    const uint32_t tokens = *back;
    uint32_t shift = 0; /* which of the two counts; the only one */

    *back = 0;
    /* After the state: who counts in a slot by a later generation has read that before (M15). */
    if (UNLIKELY(atomic_differs(&giving->policy->identity, giving->identity)))
        return true;
    if (GUARD(REFUND_WINDOW, state_id(state) != giving->id)) {
        if (!two || GUARD(REFUND_FORGOTTEN, ((giving->id + (uint64_t)giving->policy->length) &
                                             ID_MASK) != state_id(state)))
            return true;
        shift = THIS_BITS;
        mask = SMOOTH_MAX;
    }
    uint64_t held = state_used(state) >> shift & mask;
    uint64_t given = GUARD(REFUND_ZERO, tokens > held) ? held : tokens;
    if (given == 0)
        return true;
    *back = (uint32_t)given;
    return slot_swap(slot, giving->tag, state,
                     (state & ~(mask << shift)) | (held - given) << shift);
}

uint32_t stint_slot_refund(const struct stint_limiter *limiter, uint32_t policy_id,
                           uint64_t identity, uint64_t hash, uint64_t id, uint32_t tokens) {
    const struct policy *policy = &limiter->policies[policy_id];
    const struct giving giving = {policy, (uint32_t)policy_word(policy), identity,
                                  table_tag(&limiter->table, hash, policy_id), id};
    struct seen seen;
    uint32_t back;

    INSTANT(INSTANT_REFUND);
    do {
        if (!stint_find_committed(&limiter->table, hash, giving.tag, &seen))
            return 0;
        back = tokens;
    } while (!slot_give_back(&giving, seen.slot, seen.state, &back));
    return back;
}

static uint64_t time_of(const struct stint_verdict *verdict, uint32_t tokens) {
    uint64_t time;
    return __builtin_mul_overflow(verdict->unit, tokens, &time) ? UINT64_MAX : time;
}

/* Moves back the instant at which a key's bucket is full: by the time that so many tokens of a
 * verdict took, by no more than is left to its window, and to now at the earliest. Returns how many
 * tokens that gives back. The verdict is told by the rate that stands. Without a verdict, it moves
 * to now, a mark of a refusal goes, and 1 is returned if anything changed.
 *
 * Tokens may have had other units. Counted in ns, A holds all the same: what is ahead of now is
 * what was taken, less what came back and what was given back. (Overrides scale it: A2.)
 *
 * The slot's end falls (I1; late adds of other keys: shard_end_falls). It stays above the shard's
 * watermark: whoever had the slot before was over by then, so no end of theirs comes back. */
static uint32_t bucket_move_back(const struct stint_limiter *limiter, uint32_t policy_id,
                                 uint64_t key, struct stint_verdict *verdict, uint32_t tokens) {
    struct shard *shard = table_shard_of(&limiter->table, key);
    const uint64_t kept = verdict != NULL ? STATE_REFUSED : 0;
    struct stint_verdict then = {0};
    struct bucket bucket;
    struct seen seen;

    while (stint_bucket_find(limiter, policy_id, key, &seen, &bucket)) {
        uint64_t most = UINT64_MAX, window = UINT64_MAX;
        if (verdict != NULL) {
            then = *verdict;
            if (!stint_rate_verdict(limiter, &bucket, &then)) /* of another generation */
                return 0;
            most = time_of(&then, tokens);
            window = then.window;
        }
        uint64_t now = limiter_now(limiter);
        /* After the tag, whose claim raised it (M7). */
        const uint64_t over = tick_ns((tick_t)atomic_load_relaxed(&shard->watermark));
        /* A clock that was wrong has raised one that is further ahead. */
        if (GUARD(BUCKET_OVER, over > now && over - now <= ALLOWANCE_NS))
            now = over;
        const tick_t end = end_of(state_id(seen.state), tick_of(now));
        const uint64_t full = bucket_full(end, bucket_ns(seen.state));
        const uint64_t left = bucket_count(end, bucket_ns(seen.state), now);
        const uint64_t taken = window > now ? window - now : 0;
        uint64_t back = most < left ? most : left;
        if (GUARD(BUCKET_TAKEN, back > taken))
            back = taken;
        /* A mark counts until the slot is over. */
        const bool unmarked = (seen.state & STATE_REFUSED & ~kept) != 0 && end > tick_of(now);
        if (back == 0 && !unmarked)
            return 0;
        if (GUARDED(BUCKET_FALLS) && back != 0)
            shard_end_falls(shard, end, tick_of(full - back) + 1);
        const uint64_t next = bucket_state(full - back, bucket.rate) | (seen.state & kept);
        if (!slot_swap(seen.slot, seen.tag, seen.state, next))
            continue;
        if (verdict == NULL)
            return 1;
        *verdict = then;
        return (uint32_t)(back / then.unit + (back % then.unit != 0));
    }
    return 0;
}

/* Whether the first stripe of a key, which has what was charged past the shares, has passed the
 * window that ends at `window`. From then on all tokens of the others may be granted: if some were
 * given back, a late thread could be granted them once more (A). Without a slot, it has had none of
 * that window, or the clock has shown its end, as it must before another key takes a slot (H). */
static bool first_stripe_passed(const struct stint_limiter *limiter, uint32_t policy_id,
                                uint64_t key, uint64_t window) {
    const uint64_t hash = stripe_key(key, 0);
    const tick_t end = tick_of_end(window);
    struct seen seen;

    return stint_find_committed(&limiter->table, hash, table_tag(&limiter->table, hash, policy_id),
                                &seen)
               ? end_of(state_id(seen.state), end) > end
               : tick_of(limiter_now(limiter)) >= end;
}

uint32_t stint_key_refund(const struct stint_limiter *limiter, uint64_t key,
                          struct stint_verdict *verdict, uint32_t tokens) {
    if (verdict->policy >= limiter->deciding ||
        GUARD(REFUND_NONE, verdict->window == 0)) /* nothing was counted */
        return 0;
    const uint32_t traits = (uint32_t)policy_word(&limiter->policies[verdict->policy]);
    if ((traits & RULE_BUCKET) != 0)
        return verdict->unit == 0 /* no bucket's */
                   ? 0
                   : bucket_move_back(limiter, verdict->policy, key, verdict, tokens);
    /* A policy that is gone has no slot to give back to. */
    const uint32_t stripes = (traits & TRAIT_EXISTS) != 0 ? traits_stripes(traits) : 0;
    uint32_t back = 0;

    for (uint32_t stripe = 0; stripe < stripes && back < tokens; stripe++) {
        if (stripe == 1 && first_stripe_passed(limiter, verdict->policy, key, verdict->window))
            break;
        back += stint_slot_refund(limiter, verdict->policy, verdict_identity(verdict),
                                  stripe_key(key, stripe), id_of(tick_of_end(verdict->window)),
                                  tokens - back);
    }
    HOLDS(I4, back <= tokens);
    return back;
}

/* slot_of for a line that the caller has most likely just charged. It compares one tag after the
 * other: a load of 16 bytes would wait until the 8 that the atomic add wrote are in the cache. A
 * take and its refund are 21 ns, by stint_key_refund 32 (measured as in take.c). */
static ALWAYS_INLINE struct slot *slot_near_charged(const struct table *table, uint64_t hash,
                                                    uint64_t tag) {
    struct line *home = home_of(table, hash);
    uint32_t match = 0;

    for (uint32_t i = 0; i < LINE_SLOTS; i++) /* the tag is confirmed by the swap: M2 */
        match |= (uint32_t)!atomic_differs(&home->slots[i].tag, tag) << i;
    return LIKELY(match != 0) ? &home->slots[__builtin_ctz(match)]
                              : line_find(table_next(table, hash, home), tag);
}

/* In a slot that has the key's tag. Returns false if it has changed or is pending. */
static ALWAYS_INLINE bool refund_in(const struct giving *giving, struct slot *slot,
                                    uint32_t *back) {
    uint64_t state = atomic_load_acquire(&slot->state); /* M1; the swap confirms it (M2) */
    return LIKELY(!GUARD(REFUND_TAG, atomic_load_acquire(&slot->tag) != giving->tag)) &&
           LIKELY(!state_pending(state)) && LIKELY(slot_give_back(giving, slot, state, back));
}

static NOINLINE bool refund_in_two(const struct policy *policy, uint64_t tag,
                                   const struct stint_verdict *verdict, struct slot *slot,
                                   uint32_t *back) {
    const struct giving giving = {policy, TWO_COUNTS, verdict_identity(verdict), tag,
                                  id_of(tick_of_end(verdict->window))};
    return refund_in(&giving, slot, back);
}

static NOINLINE uint32_t refund_far(const struct stint_limiter *limiter, uint64_t key,
                                    struct stint_verdict *verdict, uint32_t tokens) {
    const uint32_t back = stint_key_refund(limiter, key, verdict, tokens);
    const uint64_t time = time_of(verdict, tokens);

    verdict->window -= time < verdict->window ? time : verdict->window; /* of a window's it is 0 */
    return back;
}

/* What was granted is over, or was given back by a copy. The policy in its place counts it. */
static NOINLINE uint32_t refund_lost(const struct stint_limiter *limiter,
                                     struct stint_verdict *verdict) {
    const uint32_t id = stint_limiter_policy_now(limiter, verdict->policy);

    verdict->granted = 0;
    stint_limiter_count_rare(limiter, id < limiter->deciding ? id : verdict->policy,
                             RARE_REFUND_LOST);
    return 0;
}

uint32_t stint_refund(struct stint_limiter *limiter, stint_key key, struct stint_verdict *verdict,
                      uint32_t tokens) {
    const uint64_t identity = verdict_identity(verdict);
    const uint32_t policy_id = (uint32_t)identity, granted = verdict->granted;

    tokens = tokens < granted ? tokens : granted;
    if (UNLIKELY(tokens == 0))
        return 0;
    if (UNLIKELY(policy_id >= limiter->deciding) ||
        GUARD(REFUND_NONE, verdict->window == 0)) { /* 0: nothing was counted */
        verdict->granted = 0;
        return 0;
    }
    const struct policy *policy = &limiter->policies[policy_id];
    const uint32_t traits = (uint32_t)policy_word(policy);
    const uint64_t tag = table_tag(&limiter->table, key.hash, policy_id);
    struct slot *slot = slot_near_charged(&limiter->table, key.hash, tag);
    uint32_t back = tokens, of_two = tokens;

    INSTANT(INSTANT_REFUND);
    /* One slot near its home, with one count or two; else the long way. */
    if (UNLIKELY(slot == NULL) ||
        (traits & (TWO_COUNTS | RULE_BUCKET | TRAIT_EXISTS)) != TRAIT_EXISTS ||
        traits_striped(traits)) {
        back = slot != NULL && (traits & TWO_COUNTS) != 0 &&
                       refund_in_two(policy, tag, verdict, slot, &of_two)
                   ? of_two
                   : refund_far(limiter, key.hash, verdict, tokens);
    } else {
        const struct giving giving = {policy, 0, identity, tag,
                                      id_of(tick_of_end(verdict->window))};
        if (UNLIKELY(!refund_in(&giving, slot, &back)))
            back = refund_far(limiter, key.hash, verdict, tokens);
    }
    if (UNLIKELY(back == 0))
        return refund_lost(limiter, verdict);
    verdict->granted = granted - back;
    limiter_add(limiter, policy_id, COUNT_REFUNDED, back);
    return back;
}

/* Takes a key's count and its mark of a refusal. Returns whether any of it still counted. */
static bool slot_reset(const struct stint_limiter *limiter, uint32_t policy_id, uint64_t hash) {
    const uint64_t tag = table_tag(&limiter->table, hash, policy_id);
    struct seen seen;

    while (stint_find_committed(&limiter->table, hash, tag, &seen)) {
        if (slot_swap(seen.slot, tag, seen.state, seen.state & ~(STATE_REFUSED | USED_MASK)))
            return (seen.state & (STATE_REFUSED | USED_MASK)) != 0 &&
                   stint_slot_live(limiter, tag, seen.state, tick_of(limiter_now(limiter)));
    }
    return false;
}

bool stint_reset(struct stint_limiter *limiter, uint32_t policy_id, stint_key key) {
    policy_id = stint_limiter_policy_now(limiter, policy_id);
    if (policy_id >= limiter->deciding) /* POLICY_NONE, too */
        return false;
    const struct rule rule = policy_rule(&limiter->policies[policy_id]);
    const uint32_t stripes = (rule.flags & RULE_BUCKET) != 0 ? 0 : rule.stripes;
    bool had = stint_strikes_reset(limiter, policy_id, key.hash);

    if (stripes == 0)
        had |= bucket_move_back(limiter, policy_id, key.hash, NULL, 0) != 0;
    for (uint32_t stripe = 0; stripe < stripes; stripe++)
        had |= slot_reset(limiter, policy_id, stripe_key(key.hash, stripe));
    if (had)
        limiter_count_table(limiter, COUNT_RESET);
    return had;
}

void stint_prefetch(const struct stint_limiter *limiter, stint_key key) {
    /* To the second-level cache, as most of many at once would have to wait for the first. */
    __builtin_prefetch(home_of(&limiter->table, key.hash), 0, 2);
}

uint64_t stint_now(const struct stint_limiter *limiter) {
    return limiter_now(limiter);
}
