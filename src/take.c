/* SPDX-License-Identifier: MIT
 * The decision: read this file first. A request goes through four steps, each in a file of its own,
 * and each hands a value on the stack to the next:
 *
 *     1  key bytes     ->  hash              key.c      the caller did this: stint_key_of
 *     2  hash          ->  line              table.h
 *     3  now + policy  ->  window            window.h
 *     4  line + tag    ->  slot -> verdict   slot.h, slot.c
 *
 * take() and take_in() below are the hot path: cost 1, the key present, its window current. What
 * stands before them is what they leave: its edges, and the long way round. */
#include "slot.h"
#include "stripes.h"

static inline struct line *home_of(const struct stint_limiter *limiter, stint_key key) {
    return &limiter->table.lines[table_home(&limiter->table, key)];
}

/* Verdict of a decision that could not begin. */
static const struct stint_verdict unknown_policy = {
    .flags = STINT_UNKNOWN_POLICY,
    .retry_after = STINT_NEVER,
};

/* Fills in a decision by a policy that exists. */
static void decision_begin(struct decision *decision, struct stint_limiter *limiter,
                           struct policy *policy, const struct stint_request *request,
                           uint64_t now) {
    struct rule rule = policy_rule(policy);
    uint64_t limit = request->limit < STINT_LIMIT_MAX ? request->limit : STINT_LIMIT_MAX;
    uint64_t most = (rule.flags & STINT_SMOOTH) != 0 ? SMOOTH_MAX : STINT_LIMIT_MAX;
    uint64_t capacity = limit == 0 ? rule.capacity : limit < most ? limit : most;
    if (rule.stripes > 1 && capacity > rule.capacity)
        capacity = rule.capacity; /* other requests would not know of the larger shares */
    uint64_t reserve = (request->flags & STINT_RESERVE) != 0 ? rule.max_reserved : 0;
    uint64_t room = capacity + reserve < STINT_LIMIT_MAX ? capacity + reserve : STINT_LIMIT_MAX;
    if (UNLIKELY(room > atomic_load_relaxed(&limiter->records[request->policy].largest)))
        atomic_raise(&limiter->records[request->policy].largest, room);

    *decision = (struct decision){
        .limiter = limiter,
        .policy = policy,
        .hash = request->key,
        .tag = table_tag(&limiter->table, request->key, request->policy),
        .now = now,
        .start = policy->start,
        .policy_id = request->policy,
        .terms = {.rule = rule,
                  .length = policy->length,
                  .cost = request->cost,
                  .capacity = capacity,
                  .room = room,
                  .flags = request->flags},
    };
    if ((rule.flags & STINT_START_PER_KEY) != 0) {
        /* A phase of its own: whole ticks in [0, window), from the hash alone. */
        decision->start += (tick_t)part_of(mix(request->key, 1), (uint64_t)policy->length);
    } else {
        /* Let the next decision find the window without a division. */
        tick_t end = window_end(tick_of(now), policy->start, policy->length);
        if ((uint64_t)end != atomic_load_relaxed(&policy->current_end)) {
            limiter_latest(limiter, end - policy->length); /* for whoever opens it by the hint */
            atomic_store_release(&policy->current_end, (uint64_t)end);
        }
    }
}

/* Decides the long way whatever the hot path leaves. `slot` is NULL, or one to which the hot path
 * added, `added` being what it returned and `seen` what it had loaded before. `searched` is NULL, or what the
 * hot path's search for the key has shown, which has not found it. */
static CK_CC_FORCE_INLINE bool decide_long(struct stint_limiter *limiter,
                                           const struct stint_request *request, uint64_t now,
                                           struct stint_verdict *verdict, struct slot *slot,
                                           uint64_t seen, uint64_t added,
                                           const struct search *searched) {
    struct policy *policy = limiter_policy(limiter, request->policy);
    struct decision decision;

    if (UNLIKELY(policy == NULL)) {
        limiter_count_table(limiter, COUNT_UNKNOWN_POLICY);
        if (verdict != NULL)
            *verdict = unknown_policy;
        return false;
    }
    decision_begin(&decision, limiter, policy, request, now);
    if (decision.terms.rule.stripes > 1)
        return stripes_decide(&decision, slot, seen, added, verdict);
    if (slot != NULL)
        return slot_decide_added(&decision, slot, seen, added, verdict);
    decision.searched = searched;
    return slot_decide(&decision, verdict);
}

/* Not inlined, so that the hot path needs no more registers than its own. */
static __attribute__((noinline)) bool decide_rest(struct stint_limiter *limiter,
                                                  const struct stint_request *request, uint64_t now,
                                                  struct stint_verdict *verdict, struct slot *slot,
                                                  uint64_t seen, uint64_t added) {
    return decide_long(limiter, request, now, verdict, slot, seen, added, NULL);
}

/* Ends a granted request of cost 1, after which `used` tokens are taken. */
static CK_CC_FORCE_INLINE bool take_granted(struct stint_limiter *limiter, uint32_t policy_id,
                                            uint64_t now, struct stint_verdict *verdict, tick_t end,
                                            uint64_t capacity, uint64_t used) {
    limiter_count(limiter, policy_id, COUNT_ALLOWED);
    if (verdict != NULL) { /* in parts, so that each byte is written once */
        static const struct stint_verdict granted = {.allowed = true};
        memcpy(verdict, &granted, offsetof(struct stint_verdict, capacity));
        verdict->capacity = (uint32_t)capacity;
        verdict->used = (uint32_t)used;
        verdict->remaining = (uint32_t)(capacity - used);
        verdict->granted = 1;
        verdict->window = tick_ns(end);
        verdict->reset_after = tick_ns(end) - now;
        verdict->retry_after = 0;
    }
    return true;
}

/* The hot path of striped policies, at this thread's own stripe; the long way goes round the
 * others. */
static bool take_stripe(struct stint_limiter *limiter, const struct stint_request *request,
                        uint64_t now, struct stint_verdict *verdict, uint64_t edges) {
    struct policy *policy = &limiter->policies[request->policy];
    uint32_t stripes = UINT32_C(1) << (edges >> EDGE_STRIPES & 7);
    uint32_t stripe = limiter_stripe(limiter) & (stripes - 1);
    uint64_t capacity = atomic_load_relaxed_32(&policy->hot_capacity);
    uint64_t share = stripe_share(capacity, stripes, stripe);
    tick_t end = (tick_t)atomic_load_relaxed(&policy->current_end);

    if (atomic_load_acquire(&policy->version) == 0 ||
        GUARD(STRIPE_WINDOW, tick_ns(end) - now - 1 >= tick_ns(policy->length)))
        return decide_rest(limiter, request, now, verdict, NULL, 0, 0);
    stint_key hash = stripe_key(request->key, stripe);
    uint64_t tag = table_tag(&limiter->table, hash, request->policy);
    struct slot *slot = line_find(&limiter->table.lines[table_home(&limiter->table, hash)], tag);
    if (slot == NULL)
        return decide_rest(limiter, request, now, verdict, NULL, 0, 0);
    uint64_t window = state_of(end, 0);
    uint64_t state = atomic_load_acquire(&slot->state);
    if (GUARD(STRIPE_ROOM, state - window >= share) ||
        GUARD(STRIPE_TAG, atomic_load_relaxed(&slot->tag) != tag))
        return decide_rest(limiter, request, now, verdict, NULL, 0, 0);
    INSTANT(INSTANT_LOADED);
    uint64_t added = atomic_fetch_add_seq(&slot->state, 1);
    uint64_t used = added - window;
    if (GUARD(STRIPE_ADDED, used >= share))
        return decide_rest(limiter, request, now, verdict, slot, state, added);
    return take_granted(limiter, request->policy, now, verdict, end, capacity,
                        stripe_estimate(used + 1, capacity, stripes));
}

static __attribute__((noinline)) bool take_rest(struct stint_limiter *limiter, uint32_t policy,
                                                stint_key key, uint32_t cost, uint64_t now,
                                                struct stint_verdict *verdict) {
    const struct stint_request request = {.key = key, .policy = policy, .cost = cost};

    if (now == STINT_NOW)
        now = limiter_now(limiter);
    if (cost == 1 && policy < limiter->max_policies) {
        uint64_t edges = atomic_load_relaxed(&limiter->policies[policy].edges);
        if ((edges & EDGE_STRIPED) != 0)
            return take_stripe(limiter, &request, now, verdict, edges);
    }
    return decide_rest(limiter, &request, now, verdict, NULL, 0, 0);
}

static __attribute__((noinline)) bool take_added(struct stint_limiter *limiter, uint32_t policy,
                                                 stint_key key, uint64_t now,
                                                 struct stint_verdict *verdict, struct slot *slot,
                                                 uint64_t seen, uint64_t added) {
    const struct stint_request request = {.key = key, .policy = policy, .cost = 1};

    if (now == STINT_NOW)
        now = limiter_now(limiter);
    return decide_rest(limiter, &request, now, verdict, slot, seen, added);
}

/* The edges of the hot path, short of the long way: a key's first request in a window, when its
 * slot is in an earlier one; a count that only a CAS may raise, because one past the capacity would
 * be carried over; and a refusal after the first. */
static __attribute__((noinline)) bool take_edge(struct stint_limiter *limiter, uint32_t policy_id,
                                                stint_key key, uint64_t now,
                                                struct stint_verdict *verdict, struct slot *slot,
                                                tick_t end) {
    struct policy *policy = &limiter->policies[policy_id];
    uint64_t window = state_of(end, 0);
    uint64_t edges = atomic_load_relaxed(&policy->edges), capacity = edges >> 32;
    uint64_t state = atomic_load_acquire(&slot->state);
    uint64_t tag = table_tag(&limiter->table, key, policy_id);

    if (GUARD(EDGE_TAG, atomic_load_acquire(&slot->tag) != tag) || state_pending(state))
        return take_rest(limiter, policy_id, key, 1, now, verdict);
    uint64_t used = state_used(state);
    /* The id is in the top bits: an earlier one makes the difference negative. It is of a window of
     * the same policy, so that one is over. */
    if ((int64_t)(state - window) < 0) {
        if ((edges & EDGE_OPEN) != 0 && slot_swap(slot, tag, state, window | 1))
            return take_granted(limiter, policy_id, now, verdict, end, capacity, 1);
    } else if (state_same_window(state, window)) {
        /* Both: the policy may be changing. */
        if (!GUARDED(EDGE_FULL) ||
            (used < capacity && used < atomic_load_relaxed_32(&policy->edge_capacity))) {
            if (slot_swap(slot, tag, state, state + 1))
                return take_granted(limiter, policy_id, now, verdict, end, capacity, used + 1);
        } else if ((edges & EDGE_REFUSE) != 0 && used >= capacity &&
                   !GUARD(EDGE_MARK, (state & STATE_REFUSED) == 0) &&
                   !GUARD(EDGE_STATE,
                          !state_same_window(atomic_load_acquire(&slot->state), state))) {
            limiter_count(limiter, policy_id, COUNT_REFUSED);
            if (verdict != NULL)
                *verdict = (struct stint_verdict){
                    .capacity = (uint32_t)capacity,
                    .used = (uint32_t)used,
                    .window = tick_ns(end),
                    .reset_after = tick_ns(end) - now,
                    .retry_after = tick_ns(end) - now,
                };
            return false;
        }
    }
    return take_rest(limiter, policy_id, key, 1, now, verdict);
}

/* What the hot path knows of a policy and of the window that holds `now`. */
struct hot {
    tick_t end;        /* of the window */
    uint64_t window;   /* state of a slot in that window in which nothing is used */
    uint64_t capacity; /* tokens up to which a fetch-add counts */
};

static CK_CC_FORCE_INLINE struct hot hot_of(const struct policy *policy, tick_t end) {
    return (struct hot){end, state_of(end, 0), atomic_load_relaxed_32(&policy->hot_capacity)};
}

/* Returns whether a policy is the hot path's and its hint is of the window that holds `now`. */
static CK_CC_FORCE_INLINE bool hot_begin(const struct policy *policy, uint64_t now,
                                         struct hot *hot) {
    *hot = hot_of(policy, (tick_t)atomic_load_relaxed(&policy->current_end));
    /* end > now >= end - window, or the hint is of another window (or of no policy). */
    uint64_t left = tick_ns(hot->end) - now;
    return LIKELY(!GUARD(TAKE_WINDOW, left == 0 || atomic_less(&policy->hot_window, left)));
}

/* The second half of the hot path: the key's tag was seen in `slot`. `now` may be STINT_NOW if there is no
 * verdict to write. */
static CK_CC_FORCE_INLINE bool take_in(struct stint_limiter *limiter, uint32_t policy_id,
                                       stint_key key, uint64_t now, struct stint_verdict *verdict,
                                       const struct hot *hot, struct slot *slot, uint64_t tag) {
    /* The state, then the tag again (slot.h, "Find"). A state of this window, neither pending nor
     * refused, is `used` when its window is subtracted; any other is far more than a limit. */
    uint64_t state = atomic_load_acquire(&slot->state);
    if (UNLIKELY(GUARD(TAKE_ROOM, state - hot->window >= hot->capacity)) ||
        UNLIKELY(GUARD(TAKE_TAG, atomic_differs(&slot->tag, tag))))
        return take_edge(limiter, policy_id, key, now, verdict, slot, hot->end);
    INSTANT(INSTANT_LOADED);
    uint64_t added = atomic_fetch_add_seq(&slot->state, 1);
    uint64_t used = added - hot->window;
    if (UNLIKELY(GUARD(TAKE_ADDED, used >= hot->capacity)))
        return take_added(limiter, policy_id, key, now, verdict, slot, hot->window, added);

    return take_granted(limiter, policy_id, now, verdict, hot->end, hot->capacity, used + 1);
}

/* A key that the hot path has not found. */
static __attribute__((noinline)) bool take_absent(struct stint_limiter *limiter, uint32_t policy,
                                                  stint_key key, uint64_t now,
                                                  struct stint_verdict *verdict,
                                                  const struct search *searched) {
    const struct stint_request request = {.key = key, .policy = policy, .cost = 1};
    return decide_long(limiter, &request, now, verdict, NULL, 0, 0, searched);
}

/* The hot path of a key that is not in its home line: a new one, or one that found it full when it
 * was new, as 1 in 25 does at a load of 50%. `end` was checked to be that of the window of `now`:
 * the policy's hint may be another by now. */
static __attribute__((noinline)) bool take_displaced(struct stint_limiter *limiter,
                                                     uint32_t policy_id, stint_key key,
                                                     uint64_t now, struct stint_verdict *verdict,
                                                     tick_t end, struct line *home) {
    const struct policy *policy = &limiter->policies[policy_id];
    uint64_t tag = table_tag(&limiter->table, key, policy_id);

    /* That window was stored by somebody who had found the policy: `edges` must not be from before the
     * policy was added. */
    atomic_fence_acquire();
    uint64_t edges = atomic_load_relaxed(&policy->edges);
    struct line *next = table_next(&limiter->table, key, home);
    struct slot *slot = line_find(next, tag);
    uint32_t unused = line_match(home, 0), unused_next = line_match(next, 0);
    if (slot == NULL && (unused | unused_next) != 0 && /* so it is nowhere (I5) */
        atomic_load_relaxed_32(&policy->edge_capacity) > 0) {
        slot = unused != 0 ? line_slot(home, unused) : line_slot(next, unused_next);
        /* The two looks have no order, and a shard may be one line: nothing in it is displaced. */
        bool displaced = unused == 0 && next != home;
        if (!slot_claim_unused(limiter, home, next, slot, displaced, key, tag, tick_of(now), end))
            return take_rest(limiter, policy_id, key, 1, now, verdict);
        return take_granted(limiter, policy_id, now, verdict, end, edges >> 32, 1);
    }
    if (slot == NULL) {
        struct search search = slot_search(limiter, key, tag, tick_of(now));
        if (search.slot == NULL)
            return take_absent(limiter, policy_id, key, now, verdict, &search);
        slot = search.slot;
    }
    struct hot hot = hot_of(policy, end);
    return take_in(limiter, policy_id, key, now, verdict, &hot, slot, tag);
}

/* The hot path of a request of cost 1: `home` is the key's home line. */
static CK_CC_FORCE_INLINE bool take_hot(struct stint_limiter *limiter, uint32_t policy_id,
                                        stint_key key, struct line *home, uint64_t now,
                                        struct stint_verdict *verdict, const struct hot *hot) {
    uint64_t tag = table_tag(&limiter->table, key, policy_id);
    struct slot *slot = line_find(home, tag);
    if (UNLIKELY(slot == NULL))
        return take_displaced(limiter, policy_id, key, now, verdict, hot->end, home);
    return take_in(limiter, policy_id, key, now, verdict, hot, slot, tag);
}

/* One request, by the hot path if it can. `any` is nothing: it stands where stint_take has the cost, so that
 * the other arguments need not be moved (which holds as long as the compiler does not see what is done here). */
#if __has_attribute(noipa)
__attribute__((noipa))
#endif
static __attribute__((noinline)) bool
take_verdict(struct stint_limiter *limiter, uint32_t policy_id, stint_key key, uint32_t any,
             uint64_t now, struct stint_verdict *verdict) {
    struct line *home = home_of(limiter, key);
    struct hot hot;

    (void)any;
    if (LIKELY(now == STINT_NOW)) {
        __builtin_prefetch(home); /* the line comes while the clock is read */
        now = limiter_now(limiter);
    }
    if (UNLIKELY(!hot_begin(&limiter->policies[policy_id], now, &hot)))
        return take_rest(limiter, policy_id, key, 1, now, verdict);
    return take_hot(limiter, policy_id, key, home, now, verdict, &hot);
}

/* Likewise, for who asks for the answer alone, now, by a policy whose windows begin and end at whole seconds: the
 * second decides. time() loads it, of the clock of which clock_gettime computes the rest, for which there is no
 * use here: what leaves this path before it has charged starts over, and what has charged reads the clock
 * (STINT_NOW). */
static __attribute__((noinline)) bool take_answer(struct stint_limiter *limiter, uint32_t policy_id,
                                                  stint_key key) {
    tick_t now = (tick_t)((uint64_t)time(NULL) * limiter->time_ticks);
    const struct policy *policy = &limiter->policies[policy_id];
    struct hot hot = hot_of(policy, (tick_t)atomic_load_relaxed(&policy->current_end));
    uint64_t left = (uint64_t)(hot.end - now);
    uint64_t tag = table_tag(&limiter->table, key, policy_id);

    if (UNLIKELY(GUARD(ANSWER_WINDOW, left == 0 || atomic_less(&policy->hot_ticks, left))))
        return take_verdict(limiter, policy_id, key, 0, STINT_NOW, NULL);
    struct slot *slot = line_find(home_of(limiter, key), tag);
    if (UNLIKELY(slot == NULL))
        return take_verdict(limiter, policy_id, key, 0, STINT_NOW, NULL);
    return take_in(limiter, policy_id, key, STINT_NOW, NULL, &hot, slot, tag);
}

/* Neither is inlined: what each saves of the caller's registers, the other need not. */
static CK_CC_FORCE_INLINE bool take(struct stint_limiter *limiter, uint32_t policy_id,
                                    stint_key key, uint32_t cost, uint64_t now,
                                    struct stint_verdict *verdict) {
    if (UNLIKELY(cost != 1 || policy_id >= limiter->max_policies))
        return take_rest(limiter, policy_id, key, cost, now, verdict);
    if (verdict == NULL && limiter->time_ticks != 0 && now == STINT_NOW)
        return take_answer(limiter, policy_id, key);
    uint32_t any;
    __asm__("" : "=r"(any)); /* whatever is there */
    return take_verdict(limiter, policy_id, key, any, now, verdict);
}

bool stint_take(struct stint_limiter *limiter, uint32_t policy, stint_key key, uint32_t cost,
                uint64_t now, struct stint_verdict *verdict) {
    return take(limiter, policy, key, cost, now, verdict);
}

bool stint_decide(struct stint_limiter *limiter, const struct stint_request *request, uint64_t now,
                  struct stint_verdict *verdict) {
    assert((request->flags & ~(uint32_t)(STINT_PEEK | STINT_PARTIAL | STINT_DRAIN | STINT_RESERVE |
                                         DECIDE_MARK | DECIDE_QUIET)) == 0);
    if (UNLIKELY((request->limit | request->flags) != 0)) {
        if (now == STINT_NOW)
            now = limiter_now(limiter);
        return decide_rest(limiter, request, now, verdict, NULL, 0, 0);
    }
    return take(limiter, request->policy, request->key, request->cost, now, verdict);
}

/* Requests whose lines are on their way while one is decided: about as many misses as a core keeps under
 * way (10 to 24 line fill buffers on x86-64 of the last ten years). */
#define AHEAD 16

/* Fetches the line after a home line: 1 key in 25 is there at a load of 50%, and would stop the processor for a
 * whole miss. To the second-level cache only: out of cache that takes 2 ns less of a decision, because the
 * first-level cache has few misses under way at once. */
static CK_CC_FORCE_INLINE void fetch_next(const struct line *home) {
    __builtin_prefetch(home + 1, 0, 2); /* harmless where it is another shard's, or none */
}

/* Fetches both lines of a request. */
static CK_CC_FORCE_INLINE struct line *fetch(const struct stint_limiter *limiter,
                                             const struct stint_request *request) {
    struct line *home = home_of(limiter, request->key);
    __builtin_prefetch(home);
    fetch_next(home);
    return home;
}

size_t stint_decide_batch(struct stint_limiter *limiter, const struct stint_request *requests,
                          size_t n, uint64_t now, struct stint_verdict *verdicts) {
    struct line *homes[AHEAD];
    struct hot hot;
    const struct policy *policy = NULL; /* the policy of `hot`; NULL: none yet */
    uint32_t policy_id = 0;
    size_t allowed = 0;

    /* As fetch, but all home lines first: each is needed, and together with the next ones they are more misses
     * than a core keeps under way. */
    for (size_t i = 0; i < n && i < AHEAD; i++) {
        homes[i] = home_of(limiter, requests[i].key);
        __builtin_prefetch(homes[i]);
    }
    for (size_t i = 0; i < n && i < AHEAD; i++)
        fetch_next(homes[i]);
    if (now == STINT_NOW)
        now = limiter_now(limiter);
    for (size_t i = 0; i < n; i++) {
        const struct stint_request *request = &requests[i];
        struct stint_verdict *verdict = verdicts == NULL ? NULL : &verdicts[i];
        struct line *home = homes[i % AHEAD];
        if (i + AHEAD < n)
            homes[i % AHEAD] = fetch(limiter, request + AHEAD);
        /* Requests by one policy after the other read it once. */
        if (UNLIKELY(policy == NULL || request->policy != policy_id)) {
            policy_id = request->policy;
            policy = policy_id < limiter->max_policies ? &limiter->policies[policy_id] : NULL;
            if (policy != NULL && !hot_begin(policy, now, &hot))
                policy = NULL;
        }
        if (UNLIKELY(policy == NULL || request->cost != 1 || request->limit != 0 ||
                     request->flags != 0))
            allowed += stint_decide(limiter, request, now, verdict);
        else
            allowed += take_hot(limiter, policy_id, request->key, home, now, verdict, &hot);
    }
    return allowed;
}

uint32_t stint_refund(struct stint_limiter *limiter, uint32_t policy_id, stint_key key,
                      uint32_t tokens, uint64_t window) {
    const struct policy *policy = limiter_policy(limiter, policy_id);
    if (policy == NULL)
        return 0;
    struct rule rule = policy_rule(policy);
    uint64_t id = id_of(tick_of_end(window));
    uint32_t back = 0;

    for (uint32_t stripe = 0; stripe < rule.stripes && back < tokens; stripe++)
        back += slot_refund(limiter, policy_id, &rule, stripe_key(key, stripe), stripe, id,
                            tokens - back);
    return back;
}

void stint_reset(struct stint_limiter *limiter, uint32_t policy_id, stint_key key) {
    const struct policy *policy = limiter_policy(limiter, policy_id);
    if (policy == NULL)
        return;
    uint32_t stripes = policy_rule(policy).stripes;
    bool found = false;

    for (uint32_t stripe = 0; stripe < stripes; stripe++) {
        stint_key hash = stripe_key(key, stripe);
        found |= slot_reset(&limiter->table, hash, table_tag(&limiter->table, hash, policy_id));
    }
    if (found)
        limiter_count_table(limiter, COUNT_RESET);
}

void stint_prefetch(const struct stint_limiter *limiter, stint_key key) {
    /* To the second-level cache, as most of many at once would have to wait for the first. */
    __builtin_prefetch(home_of(limiter, key), 0, 2);
}

uint64_t stint_now(const struct stint_limiter *limiter) {
    return limiter_now(limiter);
}
