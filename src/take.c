/* SPDX-License-Identifier: MIT
 * The decision: read this file first. A request goes through four steps, each in a file of its own,
 * and each hands a value on the stack to the next:
 *
 *     1  key bytes     ->  hash              key.c      the caller did this: stint_key_of
 *     2  hash          ->  line              table.h
 *     3  now + policy  ->  window            window.h
 *     4  line + tag    ->  slot -> verdict   slot.h, slot.c
 *
 * decide() below is the hot path: cost 1, the key present, its window current. Everything else
 * leaves it for slot_decide. */
#include "slot.h"

/* Verdict of a decision that could not begin. */
static const struct stint_verdict unknown_policy = {
    .flags = STINT_UNKNOWN_POLICY,
    .retry_after = STINT_NEVER,
};

/* What the hot path leaves: finds the policy and the window the long way. `slot` is NULL, or one to
 * which the hot path added, `added` being what it returned and `seen` what it had loaded before.
 * Not inlined, so that the hot path needs no more registers than its own. */
static __attribute__((noinline)) bool decide_rest(struct stint_limiter *limiter,
                                                  const struct stint_request *request, uint64_t now,
                                                  struct stint_verdict *verdict, struct slot *slot,
                                                  uint64_t seen, uint64_t added) {
    assert((request->flags & ~(uint32_t)(STINT_PEEK | STINT_PARTIAL | STINT_DRAIN)) == 0);
    struct policy *policy = limiter_policy(limiter, request->policy);
    if (UNLIKELY(policy == NULL)) {
        limiter_count(limiter, limiter->max_policies, COUNT_UNKNOWN_POLICY);
        if (verdict != NULL)
            *verdict = unknown_policy;
        return false;
    }
    uint64_t rule = atomic_load_acquire(&policy->rule);
    uint64_t limit = request->limit == 0 ? rule_limit(rule) : request->limit;
    struct decision decision = {
        .limiter = limiter,
        .policy = policy,
        .hash = request->key,
        .tag = table_tag(&limiter->table, request->key, request->policy),
        .now = now,
        .policy_id = request->policy,
        .cost = request->cost,
        .flags = request->flags,
        .policy_flags = rule_flags(rule),
        .capacity = limit < STINT_LIMIT_MAX ? limit : STINT_LIMIT_MAX,
    };
    /* Let the next decision find the window without a division. */
    tick_t end = window_end(tick_of(now), policy->start, policy->length);
    if ((uint64_t)end != atomic_load_relaxed(&policy->current_end))
        atomic_store_relaxed(&policy->current_end, (uint64_t)end);
    if (slot != NULL)
        return slot_decide_added(&decision, slot, seen, added, verdict);
    return slot_decide(&decision, verdict);
}

static __attribute__((noinline)) bool take_rest(struct stint_limiter *limiter, uint32_t policy,
                                                stint_key key, uint32_t cost, uint64_t now,
                                                struct stint_verdict *verdict) {
    const struct stint_request request = {.key = key, .policy = policy, .cost = cost};
    return decide_rest(limiter, &request, now, verdict, NULL, 0, 0);
}

static __attribute__((noinline)) bool take_added(struct stint_limiter *limiter, uint32_t policy,
                                                 stint_key key, uint64_t now,
                                                 struct stint_verdict *verdict, struct slot *slot,
                                                 uint64_t seen, uint64_t added) {
    const struct stint_request request = {.key = key, .policy = policy, .cost = 1};
    return decide_rest(limiter, &request, now, verdict, slot, seen, added);
}

/* Ends a granted request of cost 1, after which `used` tokens are taken. */
static CK_CC_FORCE_INLINE bool take_granted(struct stint_limiter *limiter, uint32_t policy_id,
                                            uint64_t now, struct stint_verdict *verdict, tick_t end,
                                            uint64_t capacity, uint64_t used) {
    limiter_count(limiter, policy_id, COUNT_ALLOWED);
    if (verdict != NULL)
        *verdict = (struct stint_verdict){
            .allowed = true,
            .capacity = (uint32_t)capacity,
            .used = (uint32_t)used,
            .remaining = (uint32_t)(capacity - used),
            .granted = 1,
            .window = tick_ns(end),
            .reset_after = tick_ns(end) - now,
        };
    return true;
}

/* The two edges of a window, short of the slow path: a key's first request in it, when its slot is
 * in an earlier one, and a refusal after the first. */
static __attribute__((noinline)) bool take_edge(struct stint_limiter *limiter, uint32_t policy_id,
                                                stint_key key, uint64_t now,
                                                struct stint_verdict *verdict, struct slot *slot,
                                                tick_t end) {
    uint64_t window = state_of(end, 0);
    uint64_t rule = atomic_load_relaxed(&limiter->policies[policy_id].rule);
    uint64_t state = atomic_load_acquire(&slot->state);
    uint64_t tag = table_tag(&limiter->table, key, policy_id);

    if (atomic_load_acquire(&slot->tag) != tag || state_pending(state))
        return take_rest(limiter, policy_id, key, 1, now, verdict);
    /* The id is in the top bits: an earlier one makes the difference negative. It is of a window of
     * the same policy, so that one is over. */
    if ((int64_t)(state - window) < 0) {
        if (atomic_cas_seq(&slot->state, state, window | 1))
            return take_granted(limiter, policy_id, now, verdict, end, rule_limit(rule), 1);
    } else if (state_same_window(state, window) && (state & STATE_REFUSED) != 0 &&
               state_used(state) >= rule_limit(rule) && rule_flags(rule) == 0 &&
               state_same_window(atomic_load_acquire(&slot->state), state)) {
        limiter_count(limiter, policy_id, COUNT_REFUSED);
        if (verdict != NULL)
            *verdict = (struct stint_verdict){
                .capacity = rule_limit(rule),
                .used = (uint32_t)state_used(state),
                .window = tick_ns(end),
                .reset_after = tick_ns(end) - now,
                .retry_after = tick_ns(end) - now,
            };
        return false;
    }
    return take_rest(limiter, policy_id, key, 1, now, verdict);
}

/* The second half of the hot path: the key's tag was seen in `slot`, and `end` is the window's. */
static CK_CC_FORCE_INLINE bool take_in(struct stint_limiter *limiter, uint32_t policy_id,
                                       stint_key key, uint64_t now, struct stint_verdict *verdict,
                                       struct slot *slot, uint64_t tag, tick_t end) {
    /* The state, then the tag again (slot.h, "Find"). A state of this window, neither pending nor
     * refused, is `used` when its window is subtracted; any other is far more than a limit. */
    uint64_t window = state_of(end, 0);
    uint64_t capacity = rule_limit(atomic_load_relaxed(&limiter->policies[policy_id].rule));
    uint64_t state = atomic_load_acquire(&slot->state);
    if (state - window >= capacity || atomic_load_relaxed(&slot->tag) != tag)
        return take_edge(limiter, policy_id, key, now, verdict, slot, end);
    INSTANT(INSTANT_LOADED);
    uint64_t added = atomic_fetch_add_seq(&slot->state, 1);
    uint64_t used = added - window;
    if (UNLIKELY(used >= capacity))
        return take_added(limiter, policy_id, key, now, verdict, slot, state, added);

    return take_granted(limiter, policy_id, now, verdict, end, capacity, used + 1);
}

/* The hot path of a key that is not in its home line: a new one, or one that found it full when it
 * was new, as 1 in 25 does at a load of 50%. `end` was checked to be that of the window of `now`:
 * the policy's hint may be another by now. */
static __attribute__((noinline)) bool take_displaced(struct stint_limiter *limiter,
                                                     uint32_t policy_id, stint_key key,
                                                     uint64_t now, struct stint_verdict *verdict,
                                                     tick_t end) {
    struct table *table = &limiter->table;
    uint64_t tag = table_tag(table, key, policy_id);

    if (line_match(&table->lines[table_home(table, key)], 0) != 0) { /* so it is nowhere (I5) */
        if (!slot_claim_unused(limiter, key, tag, tick_of(now), end))
            return take_rest(limiter, policy_id, key, 1, now, verdict);
        uint64_t rule = atomic_load_relaxed(&limiter->policies[policy_id].rule);
        return take_granted(limiter, policy_id, now, verdict, end, rule_limit(rule), 1);
    }
    struct slot *slot = table_find_displaced(table, key, tag);
    if (slot == NULL)
        return take_rest(limiter, policy_id, key, 1, now, verdict);
    return take_in(limiter, policy_id, key, now, verdict, slot, tag, end);
}

/* One request, by the hot path if it can. `now` is a time, not STINT_NOW. */
static CK_CC_FORCE_INLINE bool take(struct stint_limiter *limiter, uint32_t policy_id,
                                    stint_key key, uint32_t cost, uint64_t now,
                                    struct stint_verdict *verdict) {
    if (UNLIKELY(cost != 1 || policy_id >= limiter->max_policies))
        return take_rest(limiter, policy_id, key, cost, now, verdict);

    /* The window: end > now >= end - window, or the hint is of another window (or of no policy). */
    struct policy *policy = &limiter->policies[policy_id];
    tick_t end = (tick_t)atomic_load_relaxed(&policy->current_end);
    if (UNLIKELY(tick_ns(end) - now - 1 >= atomic_load_relaxed(&policy->window_ns)))
        return take_rest(limiter, policy_id, key, cost, now, verdict);

    /* The line, and the key's slot in it. */
    uint64_t tag = table_tag(&limiter->table, key, policy_id);
    struct slot *slot = line_find(&limiter->table.lines[table_home(&limiter->table, key)], tag);
    if (UNLIKELY(slot == NULL))
        return take_displaced(limiter, policy_id, key, now, verdict, end);
    return take_in(limiter, policy_id, key, now, verdict, slot, tag, end);
}

bool stint_take(struct stint_limiter *limiter, uint32_t policy, stint_key key, uint32_t cost,
                uint64_t now, struct stint_verdict *verdict) {
    if (now == STINT_NOW)
        now = limiter_now(limiter);
    return take(limiter, policy, key, cost, now, verdict);
}

static CK_CC_FORCE_INLINE bool decide(struct stint_limiter *limiter,
                                      const struct stint_request *request, uint64_t now,
                                      struct stint_verdict *verdict) {
    if (UNLIKELY((request->limit | request->flags) != 0))
        return decide_rest(limiter, request, now, verdict, NULL, 0, 0);
    return take(limiter, request->policy, request->key, request->cost, now, verdict);
}

bool stint_decide(struct stint_limiter *limiter, const struct stint_request *request, uint64_t now,
                  struct stint_verdict *verdict) {
    if (now == STINT_NOW)
        now = limiter_now(limiter);
    return decide(limiter, request, now, verdict);
}

/* Lines fetched ahead at once: about as many misses as a core keeps under way (10 to 24 line fill
 * buffers on x86-64 of the last ten years). */
#define BATCH_AHEAD 16

size_t stint_decide_batch(struct stint_limiter *limiter, const struct stint_request *requests,
                          size_t n, uint64_t now, struct stint_verdict *verdicts) {
    size_t allowed = 0;

    if (now == STINT_NOW)
        now = limiter_now(limiter);
    for (size_t i = 0; i < n && i < BATCH_AHEAD; i++)
        stint_prefetch(limiter, requests[i].key);
    for (size_t i = 0; i < n; i++) {
        if (n - i > BATCH_AHEAD)
            stint_prefetch(limiter, requests[i + BATCH_AHEAD].key);
        allowed += decide(limiter, &requests[i], now, verdicts == NULL ? NULL : &verdicts[i]);
    }
    return allowed;
}

uint32_t stint_refund(struct stint_limiter *limiter, uint32_t policy_id, stint_key key,
                      uint32_t tokens, uint64_t window) {
    const struct policy *policy = limiter_policy(limiter, policy_id);
    if (policy == NULL)
        return 0;
    return slot_refund(&limiter->table, key, table_tag(&limiter->table, key, policy_id),
                       id_of(tick_of(window)), tokens,
                       rule_limit(atomic_load_relaxed(&policy->rule)));
}

void stint_reset(struct stint_limiter *limiter, uint32_t policy_id, stint_key key) {
    if (limiter_policy(limiter, policy_id) != NULL)
        slot_reset(&limiter->table, key, table_tag(&limiter->table, key, policy_id));
}

void stint_prefetch(const struct stint_limiter *limiter, stint_key key) {
    __builtin_prefetch(&limiter->table.lines[table_home(&limiter->table, key)]);
}

uint64_t stint_now(const struct stint_limiter *limiter) {
    return limiter_now(limiter);
}
