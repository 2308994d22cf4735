/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * Drawn operations under policies of all kinds, on a limiter and on its naive twin: start_round(),
 * do_operation() as often as wanted, end_round(). Who includes this says where the draws come from. */
#ifndef STINT_TESTS_TWIN_OPERATIONS_H
#define STINT_TESTS_TWIN_OPERATIONS_H

#include "twin_model.h"

enum { BATCH = 20 };

/* 64 bits of a secret. */
static uint64_t random_bits(void);

/* A draw from [0, n). */
static uint64_t below(uint64_t n);

static bool once_in(uint64_t n) {
    return below(n) == 0;
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
    const struct stint_policy *policy = &m.policies[request.policy];
    uint32_t capacity = capacity_of(policy);
    request.cost = pick_tokens(capacity);
    if (once_in(6))
        request.limit = once_in(50) ? UINT32_MAX : (uint32_t)below((uint64_t)capacity * 2) + 1;
    if (once_in(3))
        request.flags = (uint32_t)below(16);
    if (policy->max_reserved && once_in(3)) {
        request.flags |= STINT_RESERVE;
        request.cost += (uint32_t)below((uint64_t)policy->max_reserved + 2);
    }
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
    struct stint_request requests[BATCH] = {{0}};
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

static void compare_part(const struct stint_request *request, uint64_t now, bool all,
                         const struct stint_verdict *expected, const struct stint_verdict *got) {
    m.compared++;
    if (same_verdict(expected, got))
        return;
    explain(request, now, all ? "all, taken" : "all, refused");
    print_verdict("expected", expected);
    print_verdict("got     ", got);
    fail();
}

/* All fit, each alone: they take in order, and if one is refused after all, give back. The requests
 * are of one pair, or of a pair each, of which none is refused then. */
static void take_all(const struct stint_request *requests, const uint32_t *keys, size_t n, bool all,
                     const struct stint_verdict *got) {
    struct stint_policy_stats counts[POLICIES];
    uint32_t taken = 0;
    memcpy(counts, m.counts, sizeof counts);
    for (size_t i = 0; i < n; i++) {
        struct stint_verdict got_now = got[i];
        if (!all && got[i].allowed) /* its jitter, but not what was given back since */
            got_now.granted = requests[i].cost;
        struct stint_verdict v = expect(&requests[i], keys[i], test_time, &got_now);
        if (all || !v.allowed)
            compare_part(&requests[i], test_time, all, &v, &got[i]);
        else
            assert_true(got[i].allowed && got[i].granted == 0);
        taken += v.granted;
        if (v.allowed)
            continue;
        memcpy(m.counts, counts, sizeof counts);
        if (!(requests[i].flags & STINT_PEEK))
            count(&m.counts[requests[i].policy], &v);
        m.pairs[keys[i]][requests[i].policy].used -= taken;
        return;
    }
    for (size_t i = 0; i < n && !all; i++) {
        explain(&requests[i], test_time, "all fit, but were refused");
        print_verdict("got", &got[i]);
    }
    assert_true(all);
}

static void do_all(void) {
    enum { MOST = 6 };
    struct stint_request requests[MOST];
    uint32_t keys[MOST];
    struct stint_verdict got[MOST], expected[MOST];
    size_t n = below(MOST + 1);
    bool same = once_in(4), fit = true;
    if (test_time < m.highest)
        return;
    for (size_t i = 0; i < n; i++) {
        requests[i] = pick_request(&keys[i]);
        if (i > 0 && same) {
            keys[i] = keys[0];
            requests[i].key = requests[0].key;
            requests[i].policy = requests[0].policy;
        }
        bool refusal_takes = (requests[i].flags & STINT_DRAIN) ||
                             (m.policies[requests[i].policy].flags & STINT_COUNT_REFUSED);
        bool again = false;
        for (size_t j = 0; j < i; j++)
            again |= keys[j] == keys[i] && requests[j].policy == requests[i].policy;
        struct subject s = subject_of(keys[i], requests[i].policy);
        if (!is_decided(&requests[i], keys[i], test_time, n) || (same && s.pair->may_have_gone) ||
            (same && refusal_takes) || (!same && again))
            return;
    }
    for (size_t i = 0; i < n; i++)
        note_request(&requests[i]);
    memset(got, 0xa5, sizeof got);
    bool all = stint_decide_all(m.limiter, requests, n, once_in(2) ? STINT_NOW : test_time, got);
    for (size_t i = 0; i < n && !all; i++) {
        struct stint_request look = requests[i];
        look.flags |= STINT_PEEK;
        struct lesson *lesson = &m.lessons[keys[i]][look.policy], before = *lesson;
        expected[i] = expect(&look, keys[i], test_time, &got[i]);
        if (!(requests[i].flags & STINT_PEEK)) /* what was got is no look's */
            *lesson = before;
        fit &= expected[i].allowed;
    }
    if (fit) {
        take_all(requests, keys, n, all, got);
    } else {
        /* Those that did not fit are refused in earnest. */
        for (size_t i = 0; i < n; i++) {
            if (!expected[i].allowed && !(requests[i].flags & STINT_PEEK))
                expected[i] = expect(&requests[i], keys[i], test_time, &got[i]);
            compare_part(&requests[i], test_time, all, &expected[i], &got[i]);
        }
    }
    show(test_time);
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
    struct subject s = subject_of(key, id);
    struct pair *pair = s.pair;
    if (pair->unsure || (pair->lowered && is_striped(s.policy)))
        return;
    uint64_t window = pair->window;
    if (!pair->known || once_in(8))
        window = window_end(&s, test_time) - s.policy->window * below(2);
    uint32_t tokens = pick_tokens(capacity_of(s.policy));
    uint32_t got = stint_refund(m.limiter, id, m.keys[key], tokens, window);

    /* More than the capacity is used by refusals, unless it is a debt. */
    bool now = pair->known && window == pair->window;
    bool before = pair->known && is_smooth(s.policy) && window + s.policy->window == pair->window;
    uint32_t *count = before ? &pair->previous : &pair->used;
    uint32_t most = *count, back = 0;
    if (!carries(s.policy) && most > m.largest[id])
        most = m.largest[id];
    if (now || before)
        back = tokens < most ? tokens : most;
    /* A stripe may be in an older window than the key. */
    bool stale_stripe = is_striped(s.policy) && !now && got <= tokens;
    /* Of the stripes of a window that is over, some may have gone. */
    bool some_gone = is_striped(s.policy) && got <= back;
    if (got != back && !(may_be_lost(&s) && (got == 0 || some_gone)) && !stale_stripe) {
        print_error("refund: seed %" PRIu64 ", round %" PRIu64 ", operation %" PRIu64
                    ": policy %" PRIu32 ", flags %#" PRIx32 ", limit %" PRIu32 ", capacity %" PRIu32
                    ", used %" PRIu32 ", previous %" PRIu32 ", tokens %" PRIu32 ", window %" PRIu64
                    " of %" PRIu64 ": got %" PRIu32 ", expected %" PRIu32 "\n",
                    m.seed, m.round, m.operation, id, s.policy->flags, s.policy->limit,
                    capacity_of(s.policy), pair->used, pair->previous, tokens, window, pair->window,
                    got, back);
        fail();
    }
    m.compared++;
    if (stale_stripe)
        return;
    if (got != back)
        make_unsure(&s, free_at(&s));
    else if (back > 0)
        *count = most - got;
}

static void do_reset(void) {
    uint32_t key = (uint32_t)below(m.key_count), id = (uint32_t)below(m.policy_count);
    struct subject s = subject_of(key, id);
    stint_reset(m.limiter, id, m.keys[key]);
    if (!s.pair->known)
        return;
    /* A reset need not touch a slot that is free, or that was counted before a step. */
    uint64_t end = free_at(&s);
    bool open =
        may_be_lost(&s) || end <= test_time || far_ahead(s.policy, s.pair->window, test_time);
    s.pair->used = s.pair->previous = 0;
    if (open)
        make_unsure(&s, end);
}

static void do_change(void) {
    uint32_t id = (uint32_t)below(m.policy_count);
    struct stint_policy old = m.policies[id], policy = old;
    if (once_in(2))
        policy.limit = (uint32_t)below((uint64_t)policy.limit + 10) + 1;
    else if (once_in(10))
        policy.limit = STINT_LIMIT_MAX - (uint32_t)below(2);
    else
        policy.limit = (uint32_t)below(20) + 1;
    if (once_in(2) && !is_smooth(&old) && !is_striped(&old)) {
        if (once_in(2))
            policy.capacity = (uint32_t)below((uint64_t)capacity_of(&policy) * 3);
        if (once_in(2))
            policy.max_reserved = (uint32_t)below(40);
    }
    if (once_in(4))
        policy.flags ^= (uint32_t)below(4);
    if (once_in(2))
        policy.near_limit = (uint32_t)below(102);
    if (once_in(4))
        policy.jitter = (uint32_t)below(102);
    if (once_in(2))
        policy.name[0] = '\0';

    /* Which slots were free until now. */
    for (uint32_t k = 0; k < m.key_count; k++) {
        struct subject s = subject_of(k, id);
        s.pair->may_have_gone |= s.pair->known && may_be_lost(&s);
    }
    int error = stint_policy_change(m.limiter, id, &policy);
    /* Counted refusals would become debts. */
    bool to_debts = m.refusals_counted[id] && carries(&policy);
    if (!is_valid(&policy) || to_debts) {
        assert_int_equal(error, -EINVAL);
        return;
    }
    if (error)
        fail_msg("change: %s", stint_reason());
    memcpy(policy.name, old.name, sizeof policy.name);
    m.policies[id] = policy;
    m.refusals_counted[id] |= (policy.flags & STINT_COUNT_REFUSED) != 0;
    note_capacity(id, capacity_of(&policy) + policy.max_reserved);
    for (uint32_t k = 0; k < m.key_count; k++) {
        struct subject s = subject_of(k, id);
        if (policy.limit < old.limit)
            s.pair->lowered = true;
        if (policy.jitter != old.jitter)
            s.lesson->jitter_window = 0;
        if (s.pair->unsure)
            make_unsure(&s, UINT64_MAX);
    }
}

/* A step back beyond the allowance. What was free before it may have gone to other keys, and what
 * is far ahead now may go to them. */
static void step_back(uint64_t step) {
    test_time -= step;
    m.stepped = true;
    for (uint32_t k = 0; k < m.key_count; k++) {
        for (uint32_t p = 0; p < m.policy_count; p++) {
            struct subject s = subject_of(k, p);
            if (s.pair->known && (may_be_lost(&s) || is_striped(s.policy) ||
                                  far_ahead(s.policy, s.pair->window, test_time - 2 * SECOND)))
                make_unsure(&s, free_at(&s));
        }
    }
    m.highest = test_time;
}

/* Rounds stay within 120 days, so that with a window of 366 no window's 33-bit id is ambiguous. */
static void move_time(void) {
    struct subject s = subject_of((uint32_t)below(m.key_count), (uint32_t)below(m.policy_count));
    const struct stint_policy *policy = s.policy;
    uint64_t before = test_time;
    switch (below(40)) {
    case 0: /* the border of a window, and the nanoseconds beside it */
    case 1:
    case 2:
        test_time = window_end(&s, test_time) - 1 + below(3);
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

/* A policy of any kind, for a table where a key may take `most_stripes` slots. */
static struct stint_policy pick_policy(const char *name, uint32_t most_stripes) {
    int64_t start = 0;
    if (once_in(2)) { /* 1887 to 2161 */
        start = (int64_t)(below(100000) * DAY + below(DAY / STINT_TICK_NS) * STINT_TICK_NS) -
                (int64_t)(30000 * DAY);
    }
    uint32_t limit = (uint32_t)below(once_in(3) ? 1000 : 12) + 1;
    struct stint_policy policy = make_policy(name, limit, pick_window(), start, 0);
    if (once_in(4))
        policy.flags |= STINT_SHADOW;
    if (once_in(3))
        policy.near_limit = (uint32_t)below(100) + 1;
    if (once_in(4))
        policy.jitter = (uint32_t)below(100) + 1;
    switch (below(6)) {
    case 0:
        policy.capacity = (uint32_t)below(limit * 4) + 1;
        break;
    case 1:
        policy.capacity = once_in(2) ? (uint32_t)below(limit * 4) + 1 : 0;
        policy.max_reserved = (uint32_t)below(limit * 3) + 1;
        break;
    case 2:
        policy.flags |= STINT_SMOOTH;
        break;
    case 3:
        policy.stripes = UINT32_C(1) << below(7);
        while (policy.stripes > most_stripes)
            policy.stripes /= 2;
        if (policy.limit < policy.stripes)
            policy.limit += policy.stripes;
        break;
    default:
        if (once_in(3))
            policy.flags |= STINT_COUNT_REFUSED;
    }
    if (!is_striped(&policy) && once_in(4)) {
        policy.flags |= STINT_START_PER_KEY;
        policy.start = 0;
    }
    assert_true(is_valid(&policy));
    return policy;
}

/* Looks at a key to learn the phase of its windows. */
static void learn_phase(uint32_t key, uint32_t id) {
    struct subject s = subject_of(key, id);
    struct stint_request request = {m.keys[key], id, 0, 0, STINT_PEEK};
    struct stint_verdict v;
    stint_decide(m.limiter, &request, STINT_NOW, &v);
    assert_true(v.window > test_time && v.window - test_time <= s.policy->window);
    assert_int_equal(v.window % STINT_TICK_NS, 0);
    s.lesson->phase = s.policy->window - (window_end_at(s.policy, 0, v.window) - v.window);
    assert_true(window_end(&s, test_time) == v.window);
}

static void start_round(void) {
    /* A table of one line, one that is often as full as was promised, one that never is. */
    static const struct {
        uint64_t max_keys, certain;
        uint32_t keys, shards;
        bool one_line;
        uint32_t most_stripes;
    } tables[] = {
        {2, 4, 4, 1, true, 1},         {2, 4, 7, 0, true, 1},
        {40, 40, 30, 1, false, 1},     {5000, 5000, 500, 0, false, 2},
        {5000, 5000, 3, 4, false, 64}, {30000, 30000, KEYS, 0, false, 1},
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
    memset(m.lessons, 0, sizeof m.lessons);
    memset(m.counts, 0, sizeof m.counts);
    m.limiter = limiter;
    m.on_full = options.on_full;
    m.certain = tables[table].certain;
    m.one_line = tables[table].one_line;
    m.key_count = tables[table].keys;
    m.policy_count = (uint32_t)below(POLICIES) + 1;
    m.untracked = m.replaced = m.unknown_policy = 0;
    m.most_slots = 0;
    m.stepped = false;
    test_time = once_in(10) ? 2000 * DAY : T0 + below(20000 * DAY);
    for (uint32_t k = 0; k < m.key_count; k++)
        m.keys[k] = k == 0 ? STINT_KEY_GLOBAL : number_key(limiter, k);
    for (uint32_t p = 0; p < m.policy_count; p++) {
        char name[16];
        snprintf(name, sizeof name, "p%" PRIu32, p);
        m.policies[p] = pick_policy(name, tables[table].most_stripes);
        int id = stint_policy_add(limiter, &m.policies[p]);
        if (id != (int)p)
            fail_msg("add: %s", stint_reason());
        m.largest[p] = capacity_of(&m.policies[p]) + m.policies[p].max_reserved;
        m.refusals_counted[p] = (m.policies[p].flags & STINT_COUNT_REFUSED) != 0;
        m.most_slots +=
            (uint64_t)m.key_count * (is_striped(&m.policies[p]) ? m.policies[p].stripes : 1);
    }
    test_time = window_end_at(&m.policies[0], 0, test_time) - below(m.policies[0].window) / 8 - 1;
    m.round_start = m.highest = m.highest_yet = test_time;
    for (uint32_t p = 0; p < m.policy_count; p++)
        for (uint32_t k = 0; k < m.key_count && (m.policies[p].flags & STINT_START_PER_KEY); k++)
            learn_phase(k, p);
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
        uint64_t least = 0, most = 0;
        for (uint32_t k = 0; k < m.key_count; k++) {
            for (uint32_t p = 0; p < m.policy_count; p++) {
                struct subject s = subject_of(k, p);
                bool live = s.pair->known && free_at(&s) > test_time;
                bool open = s.pair->known && (s.pair->may_have_gone || s.pair->unsure);
                least += live && !open;
                most += live || open ? (is_striped(s.policy) ? s.policy->stripes : 1) : 0;
            }
        }
        assert_true(least <= stats.live && stats.live <= most);
    }
    for (uint32_t p = 0; p < m.policy_count; p++) {
        struct stint_policy_stats counts = get_policy_stats(m.limiter, p);
        assert_int_equal(counts.allowed, m.counts[p].allowed);
        assert_int_equal(counts.refused, m.counts[p].refused);
        assert_int_equal(counts.shadowed, m.counts[p].shadowed);
        assert_int_equal(counts.first_refusals, m.counts[p].first_refusals);
        assert_int_equal(counts.untracked, m.counts[p].untracked);
        assert_int_equal(counts.near_limit, m.counts[p].near_limit);
    }
    stint_close(m.limiter);
}

static void do_operation(void) {
    switch (below(64)) {
    case 0:
    case 1:
        do_batch();
        break;
    case 2:
    case 3:
        do_all();
        break;
    case 4:
    case 11:
    case 12:
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

#endif
