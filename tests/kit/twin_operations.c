/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors */
#include "twin.h"

#include "kinds.h"

enum { BATCH = 20, GROUPS = 3 };

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
    if (once_in(6)) { /* a charge, or the look before one */
        request.limit = 0;
        request.flags = STINT_CHARGE | (once_in(2) ? STINT_PEEK : 0);
    }
    request.flags &= ~unfit_flags(policy);
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
    compare(&request, key, 1, now, ALONE, &got, take ? "take" : "decide");
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
        else if (m.policies[requests[i].policy].ban && now < test_time)
            n = i + 1; /* it may show the time of the clock to those behind */
    }
    /* n is smaller now, so what was decided with more new pairs still is. */
    memset(got, 0xa5, sizeof got);
    size_t allowed = stint_decide_batch(m.limiter, requests, n, argument, got);
    for (size_t i = 0; i < n; i++) {
        compare(&requests[i], keys[i], 1, now, ALONE, &got[i], "batch");
        allowed -= got[i].allowed;
    }
    assert_int_equal(allowed, 0);
}

/* Several requests of one whole, which is decided by what was before. */
struct whole {
    struct stint_request requests[WHOLE];
    uint32_t keys[WHOLE];
    size_t n;
};

static bool same_pair(const struct whole *whole, size_t i, size_t j) {
    return whole->keys[i] == whole->keys[j] &&
           whole->requests[i].policy == whole->requests[j].policy;
}

/* Whether the contract says what several of a pair get. */
static bool is_decided_beside(const struct stint_request *request, const struct subject *s) {
    const bool refusal_takes =
        (request->flags & STINT_DRAIN) || (s->policy->flags & STINT_COUNT_REFUSED);
    /* A late caller looks at a key without a slot in the window of his time, but the first
     * refusal that is marked may put it into a later one. */
    const bool late_to_lost = test_time < m.highest_yet && (!s->pair->key.known || may_be_lost(s));
    return !s->pair->may_have_gone && !late_to_lost && !refusal_takes && !s->policy->ban;
}

/* Picks one beside which `more` pairs may be placed. Returns false if the contract does not say
 * what it gets. */
static bool pick_whole(struct whole *whole, size_t more) {
    const bool same = once_in(4);
    whole->n = below(WHOLE + 1);
    for (size_t i = 0; i < whole->n; i++) {
        struct stint_request *request = &whole->requests[i];
        *request = pick_request(&whole->keys[i]);
        if (request->flags & STINT_CHARGE) /* of which only the look is a part */
            request->flags |= STINT_PEEK;
        if (i > 0 && (same || once_in(8))) {
            whole->keys[i] = whole->keys[0];
            request->key = whole->requests[0].key;
            request->policy = whole->requests[0].policy;
            request->flags &= ~unfit_flags(&m.policies[request->policy]);
        }
        if (!is_decided(request, whole->keys[i], test_time, more))
            return false;
    }
    for (size_t i = 0; i < whole->n; i++)
        for (size_t j = 0; j < whole->n; j++) {
            const struct subject s = subject_of(whole->keys[i], whole->requests[i].policy);
            if (j != i && same_pair(whole, i, j) && !is_decided_beside(&whole->requests[i], &s))
                return false;
        }
    return true;
}

/* Those of each pair by themselves: the whole is granted if all of them fit. */
static void check_whole(const struct whole *whole, bool all, const struct stint_verdict *got) {
    bool fit = true;
    for (size_t i = 0; i < whole->n; i++) {
        struct stint_request requests[WHOLE];
        struct stint_verdict verdicts[WHOLE];
        size_t n = 0, first = 0;
        while (!same_pair(whole, first, i))
            first++;
        for (size_t j = i; j < whole->n && first == i; j++)
            if (same_pair(whole, j, i)) {
                requests[n] = whole->requests[j];
                verdicts[n++] = got[j];
            }
        if (n > 0)
            fit &= compare(requests, whole->keys[i], n, test_time, all ? GRANTED : REFUSED,
                           verdicts, all ? "all, taken" : "all, refused");
    }
    assert_int_equal(fit, all);
    show(test_time);
}

/* Gives back what a whole has taken. */
static void give_back(const struct whole *whole, const struct stint_verdict *got) {
    uint64_t back = 0;
    for (size_t i = 0; i < whole->n; i++) {
        struct subject s = subject_of(whole->keys[i], whole->requests[i].policy);
        if (m.may_be_largest[s.id] || (s.pair->lowered && is_striped(s.policy)))
            return;
    }
    for (size_t i = 0; i < whole->n; i++) {
        struct subject s = subject_of(whole->keys[i], whole->requests[i].policy);
        const uint32_t gives =
            model_refund(s.policy, m.largest[s.id], got[i].granted, got[i].window, &s.pair->key);
        m.counts[s.id].refunded += gives;
        back += gives;
    }
    uint64_t refunded = stint_refund_all(m.limiter, whole->requests, got, whole->n);
    for (size_t i = 0; refunded != back && i < whole->n; i++) {
        explain(&whole->requests[i], test_time, "refund of all");
        print_verdict("got", &got[i]);
    }
    assert_int_equal(refunded, back);
    m.compared++;
}

static void do_all(void) {
    struct whole whole;
    struct stint_verdict got[WHOLE];
    if (!pick_whole(&whole, WHOLE))
        return;
    memset(got, 0xa5, sizeof got);
    bool all = stint_decide_all(m.limiter, whole.requests, whole.n,
                                once_in(2) ? STINT_NOW : test_time, got);
    check_whole(&whole, all, got);
    if (all && once_in(4))
        give_back(&whole, got);
}

static void do_groups(void) {
    struct whole wholes[GROUPS];
    struct stint_request requests[GROUPS * WHOLE];
    struct stint_verdict got[GROUPS * WHOLE];
    size_t ends[GROUPS], groups = below(GROUPS + 1), n = 0;
    for (size_t g = 0; g < groups; g++) {
        if (!pick_whole(&wholes[g], GROUPS * WHOLE))
            return;
        memcpy(&requests[n], wholes[g].requests, wholes[g].n * sizeof requests[0]);
        ends[g] = n += wholes[g].n;
    }
    memset(got, 0xa5, sizeof got);
    size_t allowed = stint_decide_groups(m.limiter, requests, ends, groups,
                                         once_in(2) ? STINT_NOW : test_time, got);
    for (size_t g = 0; g < groups; g++) {
        const struct stint_verdict *of_group = got + (ends[g] - wholes[g].n);
        bool all = true;
        for (size_t i = 0; i < wholes[g].n; i++)
            all &= of_group[i].allowed;
        check_whole(&wholes[g], all, of_group);
        allowed -= all;
    }
    assert_int_equal(allowed, 0);
}

/* Requests that make no sense do nothing. */
static void do_bad_request(void) {
    uint32_t key;
    struct stint_request request = pick_request(&key);
    static const uint32_t together[] = {STINT_PARTIAL, STINT_DRAIN, STINT_RESERVE};
    if (is_in_flight(&m.policies[request.policy]) && once_in(2))
        request.flags |= once_in(2) ? STINT_DRAIN : STINT_CHARGE;
    else if (once_in(2))
        request.flags |= STINT_CHARGE | together[below(3)];
    else
        request.flags |= UINT32_C(1) << (5 + below(27));
    struct stint_verdict expected = {.flags = STINT_BAD_REQUEST, .retry_after = STINT_NEVER};
    struct stint_verdict got;
    memset(&got, 0xa5, sizeof got);
    assert_false(stint_decide(m.limiter, &request, once_in(2) ? STINT_NOW : test_time, &got));
    if (!same_verdict(&got, &expected)) {
        explain(&request, test_time, "bad request");
        print_verdict("got", &got);
        fail();
    }
    m.bad_requests++;
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
    struct model_key *had = &s.pair->key, left;
    bool largest_open = m.may_be_largest[id] && !carries(s.policy) && had->used > m.largest[id];
    if (s.pair->unsure || (s.pair->lowered && is_striped(s.policy)) || largest_open)
        return;
    uint64_t window = had->window;
    if (!had->known || once_in(8))
        window = window_end(&s, test_time) - longest_window(s.policy) * below(2);
    uint32_t tokens = pick_tokens(capacity_of(s.policy));
    left = *had;
    uint32_t back = model_refund(s.policy, m.largest[id], tokens, window, &left);
    uint32_t got = stint_refund(m.limiter, id, m.keys[key], tokens, window);

    /* A stripe may be in an older window than the key. */
    bool stale_stripe =
        is_striped(s.policy) && (!had->known || window != had->window) && got <= tokens;
    /* Of the stripes of a window that is over, some may have gone. */
    bool some_gone = is_striped(s.policy) && got <= back;
    /* Or its first one has had none of it: then the clock tells that it is over. */
    bool none_first = some_gone && test_time >= window;
    if (got != back && !(may_be_lost(&s) && (got == 0 || some_gone)) && !stale_stripe &&
        !none_first) {
        print_error("refund: seed %" PRIu64 ", round %" PRIu64 ", operation %" PRIu64
                    ": policy %" PRIu32 ", flags %#" PRIx32 ", limit %" PRIu32 ", capacity %" PRIu32
                    ", used %" PRIu32 ", previous %" PRIu32 ", tokens %" PRIu32 ", window %" PRIu64
                    " of %" PRIu64 ": got %" PRIu32 ", expected %" PRIu32 "\n",
                    m.seed, m.round, m.operation, id, s.policy->flags, s.policy->limit,
                    capacity_of(s.policy), had->used, had->previous, tokens, window, had->window,
                    got, back);
        fail();
    }
    m.compared++;
    m.counts[id].refunded += got;
    if (stale_stripe)
        return;
    if (got != back)
        make_unsure(&s, free_at(&s));
    else
        *had = left;
}

static void do_reset(void) {
    uint32_t key = (uint32_t)below(m.key_count), id = (uint32_t)below(m.policy_count);
    struct subject s = subject_of(key, id);
    stint_reset(m.limiter, id, m.keys[key]);
    if (s.ruled->is.strikes || s.ruled->is.banned)
        *s.ruled = (struct ruled){0};
    if (!s.pair->key.known)
        return;
    /* A reset need not touch a slot that is free, or that was counted before a step. */
    uint64_t end = free_at(&s);
    bool open = may_be_lost(&s) || end <= test_time ||
                is_far_ahead(s.policy, s.pair->key.window, test_time);
    s.pair->key.used = s.pair->key.previous = 0;
    if (open)
        make_unsure(&s, end);
}

/* Sets an override of a key, or clears it. */
static void do_override(void) {
    uint32_t key = (uint32_t)below(m.key_count), id = (uint32_t)below(m.policy_count);
    const struct subject s = subject_of(key, id);
    struct model_ruling *ruling = &s.ruled->is;
    if (!(s.policy->flags & STINT_OVERRIDES) || ruling->until > test_time + 366 * DAY)
        return;
    if (once_in(3)) {
        int error = stint_override_clear(m.limiter, id, m.keys[key]);
        const bool none = !model_rules(s.policy, ruling, test_time);
        /* One that was over before a step back may be there again. */
        if (!s.ruled->open && (none || ruling->until > m.highest_yet))
            assert_int_equal(error, none ? -ENOENT : 0);
        if (error == 0)
            *s.ruled = (struct ruled){0};
        return;
    }
    uint64_t length = below(once_in(2) ? 3 * longest_window(s.policy) : 366 * DAY) + 1;
    if (length > 366 * DAY)
        length = 366 * DAY;
    *s.ruled = (struct ruled){0};
    ruling->limit = once_in(4)   ? 0
                    : once_in(4) ? STINT_LIMIT_MAX
                                 : (uint32_t)below(2 * (uint64_t)capacity_of(s.policy)) + 1;
    if (ruling->limit > STINT_LIMIT_MAX)
        ruling->limit = STINT_LIMIT_MAX;
    assert_int_equal(stint_override(m.limiter, id, m.keys[key], ruling->limit, test_time + length),
                     0);
    show(test_time); /* it claims by the clock */
    ruling->until = model_override_end(test_time + length);
}

/* Applies a text of one policy. What is not named in it stays. */
static int apply_one(struct stint_policy policy, const char *name) {
    char text[400];
    snprintf(policy.name, sizeof policy.name, "%s", name);
    int length = stint_policy_format(&policy, text, sizeof text);
    assert_in_range(length, 1, sizeof text - 1);
    return stint_policies_apply(m.limiter, text, 0, NULL, NULL, NULL);
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
    if (once_in(2) && !looks_back(&old) && !is_striped(&old)) {
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
    if (policy.ban && once_in(4))
        policy.ban_after = (uint32_t)below(5);
    if (policy.ban && once_in(4)) /* a shorter one would make those void that hold */
        policy.ban +=
            below(policy.ban < 100 * DAY ? policy.ban : 1) / STINT_TICK_NS * STINT_TICK_NS;
    if (once_in(2))
        policy.name[0] = '\0';

    /* Which slots were free until now. */
    for (uint32_t k = 0; k < m.key_count; k++) {
        struct subject s = subject_of(k, id);
        s.pair->may_have_gone |= s.pair->key.known && may_be_lost(&s);
    }
    /* Counted refusals would become debts. */
    bool to_debts = m.refusals_counted[id] && carries(&policy);
    int error = model_valid(&policy) && !to_debts && once_in(3)
                    ? apply_one(policy, old.name)
                    : stint_policy_change(m.limiter, id, &policy);
    if (!model_valid(&policy) || to_debts) {
        assert_int_equal(error, -EINVAL);
        return;
    }
    if (error)
        fail_msg("change: %s", stint_reason());
    memcpy(policy.name, old.name, sizeof policy.name);
    m.policies[id] = policy;
    m.refusals_counted[id] |= (policy.flags & STINT_COUNT_REFUSED) != 0;
    note_capacity(id, (uint64_t)capacity_of(&policy) + policy.max_reserved);
    for (uint32_t k = 0; k < m.key_count; k++) {
        struct subject s = subject_of(k, id);
        if (policy.limit < old.limit || s.pair->key.used > capacity_of(&old))
            s.pair->lowered = true;
        if (policy.jitter != old.jitter)
            s.lesson->jitter.window = 0;
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
            s.ruled->open |= s.ruled->is.until > test_time + ruled_reach(&s);
            if (s.pair->key.known &&
                (may_be_lost(&s) || is_striped(s.policy) ||
                 is_far_ahead(s.policy, s.pair->key.window, test_time - 2 * SECOND)))
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
        test_time += below(2 * longest_window(policy));
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
        test_time += below(longest_window(policy) / 50 + 2);
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

static uint64_t draw(void *source, uint64_t n) {
    (void)source;
    return below(n);
}

/* A policy of any kind, or of two at once, for a table where a key may take `most_stripes` slots.
 * Overrides come later. */
static struct stint_policy pick_policy(const char *name, uint32_t most_stripes) {
    static const enum kind kinds[] = {PLAIN,     COUNTING, CAPPED,  ROLLING,  RESERVING, SMOOTH,
                                      STRIPED,   HELD,     HELD,    BY_FIRST, BY_FIRST,  PER_KEY,
                                      SHADOWING, NEARING,  MONTHLY, YEARLY};
    int64_t start = 0;
    if (once_in(2)) { /* 1887 to 2161 */
        start = (int64_t)(below(100000) * DAY + below(DAY / STINT_TICK_NS) * STINT_TICK_NS) -
                (int64_t)(30000 * DAY);
    }
    uint32_t limit = (uint32_t)below(once_in(3) ? 1000 : 12) + 1;
    struct stint_policy policy = make_policy(name, limit, pick_window(), start, 0);
    policy = kind_drawn(kinds[below(14 + (m.on_full == STINT_FULL_REPLACE ? 0 : 2))], &policy, draw,
                        NULL);
    for (int i = 0; i < 3; i++) {
        const struct stint_policy both = kind_drawn(kinds[below(14)], &policy, draw, NULL);
        if (model_valid(&both))
            policy = both;
    }
    if (is_striped(&policy)) {
        policy.stripes = UINT32_C(1) << below(7);
        policy.limit += policy.stripes;
        while (policy.stripes > most_stripes || policy.stripes > capacity_of(&policy))
            policy.stripes /= 2;
    }
    assert_true(model_valid(&policy));
    return policy;
}

/* Looks at a key to learn the phase of its windows. */
static void learn_phase(uint32_t key, uint32_t id) {
    struct subject s = subject_of(key, id);
    struct stint_request request = {m.keys[key], id, 0, 0, STINT_PEEK, 0};
    struct stint_verdict v;
    stint_decide(m.limiter, &request, STINT_NOW, &v);
    assert_true(v.window > test_time && v.window - test_time <= s.policy->window);
    assert_int_equal(v.window % STINT_TICK_NS, 0);
    s.lesson->phase = s.policy->window - (window_end_at(s.policy, 0, v.window) - v.window);
    assert_true(window_end(&s, test_time) == v.window);
}

static void add_policies(uint32_t most_stripes) {
    for (uint32_t p = 0; p < m.policy_count; p++) {
        char name[16];
        snprintf(name, sizeof name, "p%" PRIu32, p);
        m.policies[p] = pick_policy(name, most_stripes);
        int id = policy_added(m.limiter, &m.policies[p]);
        if (id != (int)p)
            fail_msg("add: %s", stint_reason());
        m.largest[p] = capacity_of(&m.policies[p]) + m.policies[p].max_reserved;
        m.refusals_counted[p] = (m.policies[p].flags & STINT_COUNT_REFUSED) != 0;
        m.most_slots +=
            (uint64_t)m.key_count * (is_striped(&m.policies[p]) ? m.policies[p].stripes : 1);
    }
    /* Last, so that companions have the ids behind. */
    for (uint32_t p = 0; m.ruled_is_placed && p < m.policy_count; p++) {
        if (is_striped(&m.policies[p]) || (m.policies[p].flags & STINT_IN_FLIGHT) || once_in(2))
            continue;
        m.policies[p].flags |= STINT_OVERRIDES;
        if (once_in(2)) {
            uint64_t windows = 30 * longest_window(&m.policies[below(m.policy_count)]);
            uint64_t most = once_in(4) ? SECOND : windows < 366 * DAY ? windows : 366 * DAY;
            m.policies[p].ban = (below(most / STINT_TICK_NS) + 1) * STINT_TICK_NS;
            do
                m.policies[p].ban_after = (uint32_t)below(5);
            while (!model_valid(&m.policies[p])); /* such a ban would never come */
        }
        change_made(m.limiter, p, &m.policies[p]);
        m.most_slots += m.key_count;
    }
}

void start_round(void) {
    /* A table of one line, one that is often as full as was promised, one that never is. All slots
     * of a key are looked for from one line on, up to ten of these 500: so that has more room. */
    static const struct {
        uint64_t max_keys, certain;
        uint32_t keys, shards;
        bool one_line;
        uint32_t most_stripes;
    } tables[] = {
        {2, 4, 4, 1, true, 1},         {2, 4, 7, 0, true, 1},
        {40, 40, 30, 1, false, 1},     {20000, 5000, 500, 0, false, 2},
        {5000, 5000, 3, 4, false, 64}, {30000, 30000, KEYS, 0, false, 1},
    };
    size_t table = below(sizeof tables / sizeof tables[0]);

    struct stint_options options = STINT_OPTIONS_INIT;
    options.max_keys = tables[table].max_keys;
    options.shards = tables[table].shards;
    options.on_full = (uint32_t)below(3);
    options.clock = test_clock;
    unsigned char secret[STINT_SECRET_SIZE];
    for (size_t i = 0; i < sizeof secret; i++)
        secret[i] = (unsigned char)random_bits();
    options.secret = secret;

    memset(m.pairs, 0, sizeof m.pairs);
    memset(m.lessons, 0, sizeof m.lessons);
    memset(m.counts, 0, sizeof m.counts);
    m.limiter = open_with(&options);
    m.on_full = options.on_full;
    m.certain = tables[table].certain;
    m.one_line = tables[table].one_line;
    m.key_count = tables[table].keys;
    m.policy_count = (uint32_t)below(POLICIES) + 1;
    memset(m.may_be_largest, 0, sizeof m.may_be_largest);
    m.untracked = m.replaced = m.unknown_policy = m.bad_requests = 0;
    memset(m.ruled, 0, sizeof m.ruled);
    m.ruled_is_placed = tables[table].certain == 5000;
    m.most_slots = 0;
    m.stepped = false;
    test_time = once_in(10) ? 2000 * DAY : T0 + below(20000 * DAY);
    for (uint32_t k = 0; k < m.key_count; k++)
        m.keys[k] = k == 0 ? STINT_KEY_GLOBAL : number_key(m.limiter, k);
    add_policies(tables[table].most_stripes);
    m.highest_yet = test_time;
    test_time =
        window_end_at(&m.policies[0], 0, test_time) - below(longest_window(&m.policies[0])) / 8 - 1;
    m.round_start = m.highest = test_time;
    if (m.highest_yet < test_time)
        m.highest_yet = test_time;
    for (uint32_t p = 0; p < m.policy_count; p++)
        for (uint32_t k = 0; k < m.key_count && (m.policies[p].flags & STINT_START_PER_KEY); k++)
            learn_phase(k, p);
}

/* Another policy takes the name and the place of the first: nothing of it is used, by either id. */
static void replace_first(void) {
    struct stint_policy other = make_policy("p0", 7, 13 * SECOND, 0, 0);
    uint32_t id;
    assert_int_equal(apply_one(other, "p0"), 0);
    assert_int_equal(stint_policy_find(m.limiter, "p0", &id), 0);
    assert_true(id >= m.policy_count);
    for (uint32_t k = 0; k < m.key_count && k < 4; k++) {
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t asked = i % 2 == 0 ? 0 : id;
            struct stint_verdict v;
            assert_true(stint_take(m.limiter, asked, m.keys[k], 1, STINT_NOW, &v));
            if ((v.flags & (STINT_UNTRACKED | STINT_REPLACED)) != 0) /* others' keys fill it */
                return;
            assert_int_equal(v.capacity, 7);
            assert_int_equal(v.used, i + 1);
        }
    }
}

/* No policy is left, by whichever id, and no slot in use. */
static void remove_all(void) {
    /* A text of no policy takes none away; one of another leaves that. */
    assert_int_equal(stint_policies_apply(m.limiter, "", STINT_PRUNE, NULL, NULL, NULL), -EINVAL);
    for (uint32_t p = 0; p < STINT_POLICIES_MAX && get_stats(m.limiter).policies > 0; p++)
        (void)stint_policy_remove(m.limiter, p);
    assert_int_equal(get_stats(m.limiter).live, 0);
    for (uint32_t p = 0; p <= m.policy_count; p++) {
        struct stint_verdict v;
        assert_false(stint_take(m.limiter, p, m.keys[0], 1, STINT_NOW, &v));
        assert_int_equal(v.flags, STINT_UNKNOWN_POLICY);
    }
}

void end_round(void) {
    struct stint_stats stats = get_stats(m.limiter);
    assert_int_equal(stats.untracked, m.untracked);
    assert_int_equal(stats.replaced, m.replaced);
    assert_int_equal(stats.unknown_policy, m.unknown_policy);
    assert_int_equal(stats.bad_requests, m.bad_requests);
    assert_int_equal(stats.stray_tokens, 0);
    /* Promise H: late callers are not a step of the clock. */
    if (!m.stepped)
        assert_int_equal(stats.clock_steps, 0);
    if (!m.stepped && test_time >= m.highest) {
        uint64_t least = 0, most = 0, overrides = 0, banned = 0, struck = 0;
        for (uint32_t k = 0; k < m.key_count; k++) {
            for (uint32_t p = 0; p < m.policy_count; p++) {
                struct subject s = subject_of(k, p);
                bool live = s.pair->key.known && free_at(&s) > test_time;
                bool open = s.pair->key.known && (s.pair->may_have_gone || s.pair->unsure);
                least += live && !open;
                most += live || open ? (is_striped(s.policy) ? s.policy->stripes : 1) : 0;
            }
        }
        for (uint32_t k = 0; k < m.key_count; k++) {
            for (uint32_t p = 0; p < m.policy_count; p++) {
                const struct model_ruling *ruling = &m.ruled[k][p].is;
                if (ruling->until > test_time)
                    *(ruling->strikes || model_ruling_void(&m.policies[p], ruling) ? &struck
                      : ruling->banned                                             ? &banned
                                       : &overrides) += 1;
            }
        }
        least += overrides + banned + struck;
        most += overrides + banned + struck;
        assert_true(least <= stats.live && stats.live <= most);
        assert_int_equal(stats.overrides, overrides);
        assert_int_equal(stats.banned, banned);
    }
    for (uint32_t p = 0; p < m.policy_count; p++) {
        struct stint_policy_stats counts = get_policy_stats(m.limiter, p);
        assert_int_equal(counts.allowed, m.counts[p].allowed);
        assert_int_equal(counts.refused, m.counts[p].refused);
        assert_int_equal(counts.shadowed, m.counts[p].shadowed);
        assert_int_equal(counts.first_refusals, m.counts[p].first_refusals);
        assert_int_equal(counts.untracked, m.counts[p].untracked);
        assert_int_equal(counts.near_limit, m.counts[p].near_limit);
        assert_int_equal(counts.charged, m.counts[p].charged);
        assert_int_equal(counts.refunded, m.counts[p].refunded);
        assert_int_equal(counts.bans, m.counts[p].bans);
        assert_int_equal(counts.strikes_lost, 0);
    }
    if (m.on_full != STINT_FULL_REFUSE)
        replace_first();
    remove_all();
    stint_close(m.limiter);
}

void do_operation(void) {
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
        once_in(5)                       ? do_change()
        : m.ruled_is_placed &&once_in(2) ? do_override()
        : once_in(2)                     ? do_unknown_policy()
                                         : do_bad_request();
        break;
    case 13:
        do_groups();
        break;
    case 14:
        do_override();
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
