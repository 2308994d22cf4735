/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * The naive twin: random operations on a limiter and on a model written in the most obvious way,
 * one record per key and policy, every field of every verdict compared.
 *
 *     STINT_TEST_SEED=7      repeat the run of this seed
 *     STINT_TEST_ROUNDS=100  how many limiters are tried, ROUND_OPERATIONS operations each
 *
 * The model is exact while time only goes forward. Where the contract leaves a choice, it accepts
 * each of the answers that the contract allows, and goes on from the one that it got:
 *  - A slot whose window is over at the latest time that any caller has shown may have gone to
 *    another key. A late caller then either joins that window or starts the key in a later one,
 *    never in the one that was lost (promise A); a look takes nothing, and may see it as new.
 *  - A late caller that starts a key may be put into any window from its own to that of the latest
 *    time shown.
 *  - A caller who is later than the allowance may be decided at the clock's time instead of his.
 *  - A refund does not look at the time. It works as long as the slot holds the window, so once
 *    the window is over it gives back all or nothing.
 *  - When the clock was stepped back, a key is not asked about while it is open whether it still
 *    has the slot of a window that was counted before the step.
 */
#include "fixture.h"

enum { KEYS = 4096, POLICIES = 5, BATCH = 20, ROUND_OPERATIONS = 20000 };

/* ---- Random numbers ------------------------------------------------------------------------ */

static uint64_t random_state;

static uint64_t random_bits(void) {
    uint64_t z = random_state += UINT64_C(0x9e3779b97f4a7c15); /* splitmix64 */
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint64_t below(uint64_t n) {
    return random_bits() % n;
}

static bool once_in(uint64_t n) {
    return below(n) == 0;
}

/* ---- The model ----------------------------------------------------------------------------- */

struct pair {
    bool known;      /* it was given a slot */
    bool unsure;     /* a step of the clock left open whether it still has it */
    bool refused;    /* it had its first refusal in this window */
    uint32_t used;   /* tokens */
    uint64_t window; /* its end, ns */
};

static struct {
    struct stint_limiter *limiter;
    stint_key keys[KEYS];
    struct stint_policy policies[POLICIES];
    uint32_t
        largest[POLICIES]; /* limit that there ever was, of the policy or of a request: a refund
                                 * takes no more than this for granted */
    struct stint_policy_stats counts[POLICIES];
    struct pair pairs[KEYS][POLICIES];
    uint32_t key_count, policy_count;
    uint32_t on_full;
    uint64_t certain;     /* live pairs that are placed for certain */
    bool one_line;        /* and one more is not */
    uint64_t highest;     /* latest time that a caller has shown since the last step back */
    uint64_t highest_yet; /* and before it */
    uint64_t untracked, replaced, unknown_policy;
    bool stepped; /* the clock was stepped back in this round */
    uint64_t round_start;
    uint64_t seed, round, operation, compared;
} m;

static void note_limit(uint32_t id, uint32_t limit) {
    if (limit > STINT_LIMIT_MAX)
        limit = STINT_LIMIT_MAX;
    if (limit > m.largest[id])
        m.largest[id] = limit;
}

static uint64_t window_end(const struct stint_policy *policy, uint64_t now) {
    int64_t window = (int64_t)policy->window;
    int64_t into = ((int64_t)now - policy->start) % window;
    if (into < 0)
        into += window;
    return (uint64_t)((int64_t)now - into + window);
}

/* Too far ahead for a slot of this policy, unless the clock was stepped back. */
static bool far_ahead(const struct stint_policy *policy, uint64_t window, uint64_t now) {
    return window > now && window - now > policy->window + ALLOWANCE;
}

/* Within two ticks of the border, where rounding decides. */
static bool about_far_ahead(const struct stint_policy *policy, uint64_t window, uint64_t now) {
    int64_t over = (int64_t)(window - now - policy->window - ALLOWANCE);
    return over >= -(int64_t)(2 * STINT_TICK_NS) && over <= (int64_t)(2 * STINT_TICK_NS);
}

static bool starts_anew(const struct stint_policy *policy, const struct pair *pair, uint64_t now) {
    return far_ahead(policy, pair->window, now) && far_ahead(policy, pair->window, test_time);
}

static bool is_live(const struct stint_policy *policy, const struct pair *pair, uint64_t now) {
    return pair->known && pair->window > now && !starts_anew(policy, pair, now);
}

/* A caller was there when the window was over, so the slot may have gone. */
static bool may_be_lost(const struct pair *pair) {
    return pair->window <= m.highest;
}

enum place { PLACED, FULL, OPEN };

/* Whether a decision on the pair finds or gets a slot, with `more` new pairs before it. A pair that
 * a clock step left in doubt counts as one that is in the way and as one that is not. */
static enum place foresee(const struct pair *self, uint64_t now, uint64_t more) {
    if (m.certain >= (uint64_t)m.key_count * m.policy_count)
        return PLACED;
    if (self->known && self->window > now && !self->unsure && !may_be_lost(self))
        return PLACED;
    uint64_t in_the_way = 0, certainly = 0;
    for (uint32_t k = 0; k < m.key_count; k++) {
        for (uint32_t p = 0; p < m.policy_count; p++) {
            const struct pair *pair = &m.pairs[k][p];
            if (pair == self || !pair->known || pair->window <= now)
                continue;
            in_the_way++;
            if (!pair->unsure && !may_be_lost(pair) &&
                !far_ahead(&m.policies[p], pair->window, now) &&
                !far_ahead(&m.policies[p], pair->window, test_time))
                certainly++;
        }
    }
    if (in_the_way + more + 1 <= m.certain)
        return PLACED;
    return m.one_line && certainly == m.certain && in_the_way == certainly ? FULL : OPEN;
}

/* The other pair with the fewest tokens used, which STINT_FULL_REPLACE takes; NULL if there are
 * two. */
static struct pair *fewest_used(const struct pair *self, uint64_t now) {
    struct pair *fewest = NULL;
    bool unique = true;
    for (uint32_t k = 0; k < m.key_count; k++) {
        for (uint32_t p = 0; p < m.policy_count; p++) {
            struct pair *pair = &m.pairs[k][p];
            if (pair == self || !pair->known || pair->window <= now)
                continue;
            if (!fewest || pair->used < fewest->used) {
                fewest = pair;
                unique = true;
            } else if (pair->used == fewest->used) {
                unique = false;
            }
        }
    }
    return unique ? fewest : NULL;
}

static bool is_decided_at(const struct stint_request *request, uint32_t key, uint64_t now,
                          uint64_t more) {
    const struct stint_policy *policy = &m.policies[request->policy];
    const struct pair *pair = &m.pairs[key][request->policy];
    if (pair->known && pair->window > now) {
        bool anew = starts_anew(policy, pair, now);
        if (about_far_ahead(policy, pair->window, now) ||
            about_far_ahead(policy, pair->window, test_time) || (pair->unsure && !anew))
            return false;
    }
    enum place place = foresee(pair, now, more);
    if (place != FULL)
        return place == PLACED;
    uint32_t capacity = request->limit ? request->limit : policy->limit;
    if (capacity > STINT_LIMIT_MAX)
        capacity = STINT_LIMIT_MAX;
    if (more || request->cost == 0 || request->cost > capacity || (policy->flags & STINT_SHADOW))
        return false;
    return m.on_full != STINT_FULL_REPLACE || fewest_used(pair, now);
}

/* A caller so late that a live slot may be too far ahead of it may be decided at the clock's time.
 */
static bool is_very_late(uint64_t now) {
    return now + ALLOWANCE < m.highest_yet;
}

/* Whether the contract says what a request will do. */
static bool is_decided(const struct stint_request *request, uint32_t key, uint64_t now,
                       uint64_t more) {
    return is_decided_at(request, key, now, more) &&
           (!is_very_late(now) || is_decided_at(request, key, test_time, more));
}

static void count(struct stint_policy_stats *counts, const struct stint_verdict *verdict) {
    counts->allowed += verdict->allowed && !(verdict->flags & STINT_SHADOWED);
    counts->refused += !verdict->allowed;
    counts->shadowed += !!(verdict->flags & STINT_SHADOWED);
    counts->first_refusals += !!(verdict->flags & STINT_FIRST_REFUSAL);
    counts->untracked += !!(verdict->flags & STINT_UNTRACKED);
}

/* The window that a key without one is started in: that of `now`, or for a late caller a later one
 * up to that of the latest time shown, but after `lost` (0: none). `got` chooses among those. */
static uint64_t started_window(const struct stint_policy *policy, uint64_t lost, uint64_t now,
                               uint64_t got) {
    uint64_t first = window_end(policy, now);
    uint64_t latest = m.highest_yet;
    if (latest > test_time + ALLOWANCE)
        latest = test_time + ALLOWANCE;
    if (latest < now)
        latest = now;
    bool is_an_end = got > 0 && window_end(policy, got - 1) == got;
    if (is_an_end && got >= first && got <= window_end(policy, latest) && got > lost)
        return got;
    return first;
}

/* What the request must get, `got` being what it got, and its effect on the model. */
static struct stint_verdict expect(const struct stint_request *request, uint32_t key, uint64_t now,
                                   const struct stint_verdict *got) {
    const struct stint_policy *policy = &m.policies[request->policy];
    struct pair *pair = &m.pairs[key][request->policy];
    bool peek = request->flags & STINT_PEEK;
    bool partial = request->flags & STINT_PARTIAL;
    bool drain = request->flags & STINT_DRAIN;
    uint32_t cost = request->cost;
    struct stint_verdict v = {0};
    v.capacity = request->limit ? request->limit : policy->limit;
    if (v.capacity > STINT_LIMIT_MAX)
        v.capacity = STINT_LIMIT_MAX;

    if (foresee(pair, now, 0) == FULL && m.on_full != STINT_FULL_REPLACE) {
        v.allowed = m.on_full == STINT_FULL_ADMIT;
        v.flags = STINT_UNTRACKED;
        v.granted = v.allowed && !peek ? cost : 0;
        v.used = v.granted;
        v.remaining = v.allowed ? v.capacity - v.used : 0;
        v.window = window_end(policy, now);
        v.reset_after = v.window - now;
        v.retry_after = v.allowed ? 0 : v.reset_after;
        if (!peek) {
            m.untracked++;
            count(&m.counts[request->policy], &v);
        }
        return v;
    }
    if (foresee(pair, now, 0) == FULL && !peek) {
        fewest_used(pair, now)->known = false;
        pair->known = false; /* all slots are others', so it has lost what it had */
        v.flags |= STINT_REPLACED;
        m.replaced++;
    }

    struct pair next = {.known = true};
    bool takes = !peek && cost > 0;
    bool lost =
        may_be_lost(pair) && (got->window != pair->window || (!takes && got->used != pair->used));
    if (is_live(policy, pair, now) && !lost) {
        next = *pair;
    } else {
        bool past_it = takes && is_live(policy, pair, now);
        next.window = started_window(policy, past_it ? pair->window : 0, now, got->window);
    }

    bool fits = cost == 0 || (uint64_t)next.used + cost <= v.capacity;
    if (!fits && partial && next.used < v.capacity) {
        cost = v.capacity - next.used;
        fits = true;
    }
    v.allowed = fits;
    if (fits && !peek) {
        next.used += cost;
        v.granted = cost;
    }
    if (!fits && !peek) {
        if (!next.refused)
            v.flags |= STINT_FIRST_REFUSAL;
        next.refused = true;
        if (drain && next.used < v.capacity)
            next.used = v.capacity;
        if (policy->flags & STINT_COUNT_REFUSED) {
            uint64_t counted = (uint64_t)next.used + cost;
            if (counted > STINT_LIMIT_MAX)
                counted = STINT_LIMIT_MAX;
            if (counted > next.used)
                next.used = (uint32_t)counted;
        }
    }
    v.used = next.used;
    v.remaining = v.used < v.capacity ? v.capacity - v.used : 0;
    v.window = next.window;
    v.reset_after = v.window - now;
    if (!fits) {
        v.retry_after = cost > v.capacity ? STINT_NEVER : v.reset_after;
        if (policy->flags & STINT_SHADOW) {
            v.allowed = true;
            v.flags |= STINT_SHADOWED;
        }
    }
    if (peek)
        return v;
    if (cost > 0 || !fits)
        *pair = next;
    count(&m.counts[request->policy], &v);
    return v;
}

static void explain(const struct stint_request *request, uint64_t now, const char *what) {
    print_error("%s: seed %" PRIu64 ", round %" PRIu64 ", operation %" PRIu64 ": policy %" PRIu32
                " (limit %" PRIu32 ", window %" PRIu64 ", start %" PRId64 ", flags %#" PRIx32
                "), key %#" PRIx64 ", cost %" PRIu32 ", limit %" PRIu32 ", flags %#" PRIx32
                ", now %" PRIu64 ", clock %" PRIu64 ", on_full %" PRIu32 "\n",
                what, m.seed, m.round, m.operation, request->policy,
                m.policies[request->policy].limit, m.policies[request->policy].window,
                m.policies[request->policy].start, m.policies[request->policy].flags, request->key,
                request->cost, request->limit, request->flags, now, test_time, m.on_full);
}

static void show(uint64_t now) {
    if (now > m.highest)
        m.highest = now;
    if (now > m.highest_yet)
        m.highest_yet = now;
}

static void compare(const struct stint_request *request, uint32_t key, uint64_t now,
                    const struct stint_verdict *got, const char *what) {
    struct pair before = m.pairs[key][request->policy];
    if (is_very_late(now) && got->window - got->reset_after == test_time)
        now = test_time;
    struct stint_verdict expected = expect(request, key, now, got);
    m.compared++;
    note_limit(request->policy, request->limit);
    show(now);
    if (same_verdict(got, &expected))
        return;
    explain(request, now, what);
    print_error("before: known %d, unsure %d, refused %d, used %" PRIu32 ", window %" PRIu64 "\n",
                before.known, before.unsure, before.refused, before.used, before.window);
    print_verdict("expected", &expected);
    print_verdict("got     ", got);
    fail();
}

/* ---- Operations ---------------------------------------------------------------------------- */

/* Picks the time of a call. Returns what to pass; `now` receives what it means. */
static uint64_t pick_now(uint64_t *now) {
    *now = test_time;
    if (once_in(3))
        return STINT_NOW;
    if (once_in(8))
        *now -= below(ALLOWANCE - SECOND);
    else if (once_in(400))
        *now -= below(DAY);
    return *now;
}

static uint32_t pick_tokens(uint32_t limit) {
    switch (below(12)) {
    case 0:
        return 0;
    case 1:
        return limit;
    case 2:
        return limit + 1;
    case 3:
        return (uint32_t)below((uint64_t)limit * 2) + 1;
    case 4:
        return once_in(20) ? UINT32_MAX - (uint32_t)below(3) : (uint32_t)below(limit) + 1;
    case 5:
        return limit / 3 + 1;
    default:
        return (uint32_t)below(3) + 1;
    }
}

static struct stint_request pick_request(uint32_t *key) {
    *key = (uint32_t)below(m.key_count);
    struct stint_request request = {.key = m.keys[*key], .policy = (uint32_t)below(m.policy_count)};
    uint32_t limit = m.policies[request.policy].limit;
    request.cost = pick_tokens(limit);
    if (once_in(6))
        request.limit = once_in(50) ? UINT32_MAX : (uint32_t)below((uint64_t)limit * 2) + 1;
    if (once_in(3))
        request.flags = (uint32_t)below(8);
    return request;
}

static void do_decide(void) {
    uint32_t key;
    struct stint_request request = pick_request(&key);
    uint64_t now, argument = pick_now(&now);
    bool take = once_in(2);
    if (take)
        request.limit = request.flags = 0;
    if (!is_decided(&request, key, now, 0))
        return;
    struct stint_verdict got;
    memset(&got, 0xa5, sizeof got);
    bool allowed =
        take ? stint_take(m.limiter, request.policy, request.key, request.cost, argument, &got)
             : stint_decide(m.limiter, &request, argument, &got);
    compare(&request, key, now, &got, take ? "take" : "decide");
    assert_int_equal(allowed, got.allowed);
}

static void do_batch(void) {
    struct stint_request requests[BATCH];
    uint32_t keys[BATCH];
    struct stint_verdict got[BATCH];
    uint64_t now, argument = pick_now(&now);
    size_t n = is_very_late(now) ? 1 : below(once_in(2) ? 4 : BATCH + 1);
    for (size_t i = 0; i < n; i++) {
        requests[i] = pick_request(&keys[i]);
        if (i > 0 && once_in(3)) {
            keys[i] = keys[i - 1];
            requests[i].key = requests[i - 1].key;
        }
        if (!is_decided(&requests[i], keys[i], now, n))
            n = i;
    }
    /* n is smaller now, so what was decided with more new pairs still is. */
    memset(got, 0xa5, sizeof got);
    size_t allowed = stint_decide_batch(m.limiter, requests, n, argument, got);
    for (size_t i = 0; i < n; i++) {
        compare(&requests[i], keys[i], now, &got[i], "batch");
        allowed -= got[i].allowed;
    }
    assert_int_equal(allowed, 0);
}

static void do_unknown_policy(void) {
    struct stint_verdict expected = {.flags = STINT_UNKNOWN_POLICY, .retry_after = STINT_NEVER};
    struct stint_verdict got;
    memset(&got, 0xa5, sizeof got);
    uint32_t id = m.policy_count + (uint32_t)below(UINT32_MAX - m.policy_count);
    assert_false(stint_take(m.limiter, id, m.keys[0], 1, STINT_NOW, &got));
    assert_true(same_verdict(&got, &expected));
    m.unknown_policy++;
}

static void do_refund(void) {
    uint32_t key = (uint32_t)below(m.key_count), id = (uint32_t)below(m.policy_count);
    const struct stint_policy *policy = &m.policies[id];
    struct pair *pair = &m.pairs[key][id];
    if (pair->unsure)
        return;
    uint64_t window = pair->window;
    if (!pair->known || once_in(8))
        window = window_end(policy, test_time) - policy->window * below(2);
    uint32_t tokens = pick_tokens(policy->limit);
    uint32_t got = stint_refund(m.limiter, id, m.keys[key], tokens, window);
    uint32_t most = pair->used < m.largest[id] ? pair->used : m.largest[id];
    uint32_t back = pair->known && window == pair->window ? most : 0;
    if (back > tokens)
        back = tokens;
    if (got != back && !(got == 0 && may_be_lost(pair))) {
        print_error("refund: seed %" PRIu64 ", round %" PRIu64 ", operation %" PRIu64
                    ": policy %" PRIu32 ", limit %" PRIu32 ", used %" PRIu32 ", tokens %" PRIu32
                    ", window %" PRIu64 " of %" PRIu64 ": got %" PRIu32 ", expected %" PRIu32 "\n",
                    m.seed, m.round, m.operation, id, policy->limit, pair->used, tokens, window,
                    pair->window, got, back);
        fail();
    }
    m.compared++;
    if (got != back)
        pair->unsure = true;
    else if (pair->known && window == pair->window && tokens > 0)
        pair->used = most - got;
}

static void do_reset(void) {
    uint32_t key = (uint32_t)below(m.key_count), id = (uint32_t)below(m.policy_count);
    struct pair *pair = &m.pairs[key][id];
    stint_reset(m.limiter, id, m.keys[key]);
    pair->used = 0;
    if (!pair->known)
        return;
    /* A reset need not touch a window that is over, or that was counted before a step. */
    if (may_be_lost(pair) || pair->window <= test_time ||
        far_ahead(&m.policies[id], pair->window, test_time))
        pair->unsure = true;
}

static void do_change(void) {
    uint32_t id = (uint32_t)below(m.policy_count);
    struct stint_policy policy = m.policies[id];
    if (once_in(2))
        policy.limit = (uint32_t)below((uint64_t)policy.limit + 10) + 1;
    else if (once_in(10))
        policy.limit = STINT_LIMIT_MAX - (uint32_t)below(2);
    else
        policy.limit = (uint32_t)below(20) + 1;
    if (once_in(4))
        policy.flags = (uint32_t)below(4);
    if (once_in(2))
        policy.name[0] = '\0';
    assert_int_equal(stint_policy_change(m.limiter, id, &policy), 0);
    m.policies[id].limit = policy.limit;
    note_limit(id, policy.limit);
    m.policies[id].flags = policy.flags;
}

/* A step back beyond the allowance. What was over before it may have gone to other keys, and what
 * is far ahead now may go to them. */
static void step_back(uint64_t step) {
    test_time -= step;
    m.stepped = true;
    for (uint32_t k = 0; k < m.key_count; k++) {
        for (uint32_t p = 0; p < m.policy_count; p++) {
            struct pair *pair = &m.pairs[k][p];
            pair->unsure |=
                pair->known && (may_be_lost(pair) ||
                                far_ahead(&m.policies[p], pair->window, test_time - 2 * SECOND));
        }
    }
    m.highest = test_time;
}

/* Rounds stay within 120 days, so that with a window of 366 no window's 33-bit id is ambiguous. */
static void move_time(void) {
    const struct stint_policy *policy = &m.policies[below(m.policy_count)];
    uint64_t before = test_time;
    switch (below(40)) {
    case 0: /* the border of a window, and the nanoseconds beside it */
    case 1:
    case 2:
        test_time = window_end(policy, test_time) - 1 + below(3);
        break;
    case 3:
        test_time += below(2 * policy->window);
        break;
    case 4:
        if (once_in(100))
            test_time += below(20 * DAY);
        break;
    case 5: /* a small step back, which is like being late */
        if (once_in(20) && m.highest_yet - (test_time - 10 * SECOND) < ALLOWANCE - SECOND)
            test_time -= below(10 * SECOND);
        break;
    case 6:
        if (once_in(100)) {
            uint64_t step = ALLOWANCE + below(once_in(2) ? 10 * MINUTE : 60 * DAY);
            if (test_time - step > m.round_start - 60 * DAY)
                step_back(step);
        }
        break;
    default:
        test_time += below(policy->window / 50 + 2);
    }
    if (test_time > m.round_start + 60 * DAY)
        test_time = before;
}

/* ---- Rounds -------------------------------------------------------------------------------- */

static uint64_t pick_window(void) {
    static const uint64_t windows[] = {10 * MS,
                                       20 * MS,
                                       130 * MS,
                                       SECOND,
                                       MINUTE,
                                       15 * MINUTE,
                                       HOUR,
                                       DAY,
                                       7 * DAY,
                                       366 * DAY,
                                       31 * SECOND + 10 * MS};
    return windows[below(sizeof windows / sizeof windows[0])];
}

static void start_round(void) {
    /* A table of one line, one that is often as full as was promised, one that never is. */
    static const struct {
        uint64_t max_keys, certain;
        uint32_t keys, shards;
        bool one_line;
    } tables[] = {
        {2, 4, 4, 1, true},      {2, 4, 7, 0, true},    {40, 40, 30, 1, false},
        {5000, 5000, 500, 0, 0}, {5000, 5000, 3, 4, 0}, {30000, 30000, KEYS, 0, false},
    };
    size_t table = below(sizeof tables / sizeof tables[0]);

    struct stint_limiter *limiter = NULL;
    struct stint_options options = STINT_OPTIONS_INIT;
    options.max_keys = tables[table].max_keys;
    options.shards = tables[table].shards;
    options.on_full = (uint32_t)below(3);
    options.clock = test_clock;
    unsigned char secret[STINT_SECRET_SIZE];
    for (size_t i = 0; i < sizeof secret; i++)
        secret[i] = (unsigned char)random_bits();
    options.secret = secret;
    assert_int_equal(stint_open(&options, &limiter), 0);

    memset(m.pairs, 0, sizeof m.pairs);
    memset(m.counts, 0, sizeof m.counts);
    m.limiter = limiter;
    m.on_full = options.on_full;
    m.certain = tables[table].certain;
    m.one_line = tables[table].one_line;
    m.key_count = tables[table].keys;
    m.policy_count = (uint32_t)below(POLICIES) + 1;
    m.untracked = m.replaced = m.unknown_policy = 0;
    m.stepped = false;
    test_time = once_in(10) ? 2000 * DAY : T0 + below(20000 * DAY);
    for (uint32_t k = 0; k < m.key_count; k++)
        m.keys[k] = k == 0 ? STINT_KEY_GLOBAL : number_key(limiter, k);
    for (uint32_t p = 0; p < m.policy_count; p++) {
        char name[16];
        snprintf(name, sizeof name, "p%" PRIu32, p);
        int64_t start = 0;
        if (once_in(2)) { /* 1887 to 2161 */
            start = (int64_t)(below(100000) * DAY + below(DAY / STINT_TICK_NS) * STINT_TICK_NS) -
                    (int64_t)(30000 * DAY);
        }
        uint32_t limit = (uint32_t)below(once_in(3) ? 1000 : 12) + 1;
        uint32_t flags = once_in(2) ? (uint32_t)below(4) : 0;
        m.policies[p] = make_policy(name, limit, pick_window(), start, flags);
        assert_int_equal(stint_policy_add(limiter, &m.policies[p]), p);
        m.largest[p] = limit;
    }
    test_time = window_end(&m.policies[0], test_time) - below(m.policies[0].window) / 8 - 1;
    m.round_start = m.highest = m.highest_yet = test_time;
}

static void end_round(void) {
    struct stint_stats stats = get_stats(m.limiter);
    assert_int_equal(stats.untracked, m.untracked);
    assert_int_equal(stats.replaced, m.replaced);
    assert_int_equal(stats.unknown_policy, m.unknown_policy);
    assert_int_equal(stats.stray_tokens, 0);
    /* Promise H: late callers are not a step of the clock. */
    if (!m.stepped)
        assert_int_equal(stats.clock_steps, 0);
    if (!m.stepped && test_time >= m.highest) {
        uint64_t live = 0;
        for (uint32_t k = 0; k < m.key_count; k++)
            for (uint32_t p = 0; p < m.policy_count; p++)
                live += m.pairs[k][p].known && m.pairs[k][p].window > test_time;
        assert_int_equal(stats.live, live);
    }
    for (uint32_t p = 0; p < m.policy_count; p++) {
        struct stint_policy_stats counts = get_policy_stats(m.limiter, p);
        assert_int_equal(counts.allowed, m.counts[p].allowed);
        assert_int_equal(counts.refused, m.counts[p].refused);
        assert_int_equal(counts.shadowed, m.counts[p].shadowed);
        assert_int_equal(counts.first_refusals, m.counts[p].first_refusals);
        assert_int_equal(counts.untracked, m.counts[p].untracked);
    }
    stint_close(m.limiter);
}

static uint64_t number_from(const char *variable, uint64_t otherwise) {
    const char *text = getenv(variable);
    return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

static void test_twin(void **state) {
    (void)state;
    m.seed = number_from("STINT_TEST_SEED", 1);
    uint64_t rounds = number_from("STINT_TEST_ROUNDS", 2000);
    print_message("STINT_TEST_SEED=%" PRIu64 " STINT_TEST_ROUNDS=%" PRIu64 "\n", m.seed, rounds);
    for (m.round = 0; m.round < rounds; m.round++) {
        random_state = m.seed * 1000003 + m.round;
        start_round();
        for (m.operation = 0; m.operation < ROUND_OPERATIONS; m.operation++) {
            switch (below(64)) {
            case 0:
            case 1:
                do_batch();
                break;
            case 2:
            case 3:
            case 4:
                do_refund();
                break;
            case 5:
                do_reset();
                break;
            case 6:
                once_in(5) ? do_change() : do_unknown_policy();
                break;
            case 7:
            case 8:
            case 9:
            case 10:
                move_time();
                break;
            default:
                do_decide();
            }
        }
        end_round();
    }
    print_message("%" PRIu64 " verdicts compared\n", m.compared);
    /* Most operations must be ones whose answer the contract gives. */
    assert_true(m.compared > rounds * ROUND_OPERATIONS / 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_twin)};
    return cmocka_run_group_tests_name("twin", tests, NULL, NULL);
}
