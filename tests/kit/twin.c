/* SPDX-License-Identifier: MIT
 * The twin of a limiter: a model of each key and policy (model.h), of which is known whether it
 * has a slot. Time goes forward, and each caller asks at the clock's time, so the contract leaves
 * little open, and what it does is not asked:
 *  - In a table that may or may not have a slot for a key, that key.
 *  - A refund into a window that is over gives back all or nothing, or of a striped key anything
 *    between: its first stripe tells whether the window is over, or without one the clock.
 *  - In the window in which the limit was lowered, or changed after more was charged, what stripes
 *    do is not compared.
 *
 * Callers who are late, and steps of the clock, are left to the world and time.c. So are bans that
 * become shorter. */
#include "twin.h"

#include "kinds.h"
#include "model.h"

enum { KEYS = 4096, POLICIES = 5, WHOLE = 6, BATCH = 20, GROUPS = 3 };

struct pair {
    struct model_key key; /* known: it was given a slot */
    bool lowered;   /* striped: the limit was lowered in this window, or changed after more was
                           * charged: some stripes may be above their share, others below */
    uint64_t phase; /* STINT_START_PER_KEY: how much later its windows start, ns */
    struct model_jitter jitter;
    struct model_ruling ruling;
};

static struct twin {
    struct stint_limiter *limiter;
    stint_key keys[KEYS];
    struct stint_policy policies[POLICIES];
    struct stint_policy_stats counts[POLICIES];
    struct model_rate rates[POLICIES];
    struct pair pairs[KEYS][POLICIES];
    bool ruled_is_placed; /* there is room for an override of each pair */
    uint32_t key_count, policy_count;
    enum stint_on_full on_full;
    uint64_t certain;    /* live slots that are placed for certain */
    uint64_t most_slots; /* that all pairs can take */
    bool one_line;       /* of four slots, and a fifth is not placed */
    uint64_t untracked, replaced;
    uint64_t round_start;
    bool mistaken; /* the last now was */
} m;
struct twin_run twin_run;
const char *twin_path;

/* A key under a policy. */
struct subject {
    uint32_t key, id;
    const struct stint_policy *policy;
    struct pair *pair;
};

static struct subject subject_of(uint32_t key, uint32_t id) {
    return (struct subject){key, id, &m.policies[id], &m.pairs[key][id]};
}

static struct model_by by_of(const struct subject *s) {
    struct model_by by = model_by(s->policy);
    by.phase = s->pair->phase;
    by.ruling = model_rules(s->policy, &s->pair->ruling, test_time) ? &s->pair->ruling : NULL;
    return by;
}

static uint64_t window_end(const struct subject *s) {
    return window_end_at(s->policy, s->pair->phase, test_time);
}

/* Whether the key's slot says more than its absence would. */
static bool is_live(const struct subject *s) {
    return s->pair->key.known && model_free_at(s->policy, s->pair->key) > test_time;
}

/* ---- The table ----------------------------------------------------------------------------- */

enum place { PLACED, FULL, OPEN };

/* Whether a decision on the pair finds or gets a slot, with `more` new pairs before it. */
static enum place foresee(const struct subject *self, uint64_t more) {
    uint64_t others = 0;
    if (m.certain >= m.most_slots || is_live(self))
        return PLACED;
    for (uint32_t k = 0; k < m.key_count; k++)
        for (uint32_t p = 0; p < m.policy_count; p++) {
            const struct subject s = subject_of(k, p);
            others += is_live(&s);
        }
    if (others + more + 1 <= m.certain)
        return PLACED;
    return m.one_line && others == m.certain ? FULL : OPEN;
}

/* The other pair with the fewest tokens used, which STINT_FULL_REPLACE takes; NULL if there are
 * two, or if one has tokens of other windows too. */
static struct pair *least_used(const struct pair *self) {
    struct pair *fewest = NULL;
    uint64_t fewest_used = 0;
    bool unique = true;
    for (uint32_t k = 0; k < m.key_count; k++) {
        for (uint32_t p = 0; p < m.policy_count; p++) {
            struct subject s = subject_of(k, p);
            if (s.pair == self || !is_live(&s))
                continue;
            if (carries(s.policy) || looks_back(s.policy))
                return NULL;
            const uint64_t used = model_sum(s.policy, &s.pair->key, test_time);
            if (!fewest || used < fewest_used) {
                fewest = s.pair;
                fewest_used = used;
                unique = true;
            } else if (used == fewest_used) {
                unique = false;
            }
        }
    }
    return unique ? fewest : NULL;
}

/* Whether the contract says what a request will do, with `more` new pairs before it. */
static bool is_decided(const struct stint_request *request, uint32_t key, uint64_t more) {
    const struct subject s = subject_of(key, request->policy);
    if (is_striped(s.policy) && s.pair->lowered && s.pair->key.window > test_time)
        return false;
    const enum place place = foresee(&s, more);
    if (place != FULL || more)
        return place == PLACED;
    return m.on_full != STINT_FULL_REPLACE || least_used(s.pair) != NULL;
}

/* ---- Comparing ----------------------------------------------------------------------------- */

/* What a request may get, and what it makes of the key. */
struct expected {
    struct model_answer answer;
    struct model_key key;
    struct model_jitter jitter;
    struct model_ruling ruling;
};

/* Whether a verdict counts a strike. "A shadow counts no strikes." */
static bool strikes(const struct subject *s, const struct stint_verdict *v) {
    return s->policy->ban && !(s->policy->flags & STINT_SHADOW) &&
           (v->flags & STINT_FIRST_REFUSAL) && !(v->flags & STINT_OVERRIDDEN);
}

/* What it may get, and whether that is what it got. `flags`: what the verdict tells beside. */
static bool expect(const struct subject *s, const struct stint_request *request, uint32_t flags,
                   const struct stint_verdict *got, struct expected *expected) {
    const struct model_by by = by_of(s);
    /* A bucket that is full is not forgotten at once: its mark may stay. */
    const struct model_key had =
        is_live(s) || is_bucket(s->policy) ? s->pair->key : (struct model_key){0};
    struct model_answer *answer = &expected->answer;
    *expected = (struct expected){.key = model_at(s->policy, by.phase, had, test_time),
                                  .jitter = s->pair->jitter,
                                  .ruling = s->pair->ruling};
    *answer = model_decide(&by, request, test_time, &expected->key);
    answer->verdict.flags |= flags;
    answer->verdict.generation = got->generation; /* compare() looks at it */
    model_settle(answer, got);
    if (strikes(s, &answer->verdict)) {
        expected->ruling = model_struck(s->policy, &expected->ruling, test_time);
        if (expected->ruling.banned)
            model_ban(answer, test_time, expected->ruling.until);
    }
    return model_allows(answer, got, &expected->jitter);
}

/* Brings the twin to what it did. */
static void follow(const struct subject *s, const struct expected *expected) {
    s->pair->jitter = expected->jitter;
    if (strikes(s, &expected->answer.verdict)) {
        s->pair->ruling = expected->ruling;
        m.counts[s->id].bans += expected->ruling.banned;
    }
    if (!expected->answer.touched)
        return;
    s->pair->lowered &= s->pair->key.known && s->pair->key.window == expected->key.window;
    s->pair->key = expected->key;
}

static void explain(const struct stint_request *request, const char *what) {
    print_error("%s: seed %" PRIu64 ", round %" PRIu64 ", operation %" PRIu64 ": %s, key %#" PRIx64
                ", cost %" PRIu32 ", limit %" PRIu32 ", burst %" PRIu32 ", flags %#" PRIx32
                ", at %" PRIu64 ", on_full %d\n",
                what, twin_run.seed, twin_run.round, twin_run.operation,
                policy_text(&m.policies[request->policy]), request->key.hash, request->cost,
                request->limit, request->burst, request->flags, test_time, (int)m.on_full);
}

static void tell_wrong(const struct stint_request *request, const struct pair *before,
                       const struct model_answer *answer, const struct stint_verdict *got,
                       const char *what) {
    const struct model_key *key = &before->key;
    const struct model_ruling *ruling = &before->ruling;
    explain(request, what);
    print_error("before: known %" PRIu32 ", refused %" PRIu32 ", used %" PRIu32
                ", previous %" PRIu32 ", window %" PRIu64 "\n",
                key->known, key->refused, key->used, key->previous, key->window);
    print_error("override: limit %" PRIu32 ", strikes %" PRIu32 ", banned %d, until %" PRIu64 "\n",
                ruling->limit, ruling->strikes, ruling->banned, ruling->until);
    print_verdict("expected", &answer->verdict);
    print_error("jitter below %" PRIu64 ", wait of a ban %" PRIu64 ", off %" PRIu32 "\n",
                answer->jitter_below, answer->wait_least, answer->off);
    print_verdict("got     ", got);
}

/* Compares what a request got with what it may get, and brings the twin to what it did. Fails if it
 * may not get it. */
static void compare(const struct stint_request *request, uint32_t key,
                    const struct stint_verdict *got, const char *what) {
    const struct subject s = subject_of(key, request->policy);
    const struct pair before = *s.pair;
    const struct model_by by = by_of(&s);
    struct expected expected = {0};
    enum model_full full = MODEL_NEEDS_NONE;
    bool allowed;
    if (foresee(&s, 0) == FULL)
        full = model_on_full(&by, m.on_full, request, test_time);
    if (full == MODEL_UNTRACKED) {
        expected = (struct expected){.jitter = s.pair->jitter};
        expected.answer = model_untracked(&by, m.on_full, request, test_time);
        expected.answer.verdict.generation = got->generation;
        allowed = model_allows(&expected.answer, got, &expected.jitter);
    } else {
        if (full == MODEL_REPLACES)
            least_used(s.pair)->key.known = false;
        allowed = expect(&s, request, full == MODEL_REPLACES ? STINT_REPLACED : 0, got, &expected);
    }
    twin_run.compared++;
    allowed &= got->generation == m.rates[s.id].generation;
    if (!allowed)
        tell_wrong(request, &before, &expected.answer, got, what);
    assert_true(allowed);
    follow(&s, &expected);
    model_count(&m.counts[request->policy], request, got);
    if (!merely_looks(request)) {
        m.replaced += (got->flags & STINT_REPLACED) != 0;
        m.untracked += !makes_charge(request) && (got->flags & STINT_UNTRACKED) != 0;
    }
}

static bool once_in(uint64_t n) {
    return below(n) == 0;
}

/* ---- Operations ---------------------------------------------------------------------------- */

/* The clock's time, asked or told; or one that is no time of the clock, which decides. */
static uint64_t pick_now(void) {
    const uint64_t mistakes[] = {test_time / SECOND, test_time / MS, test_time / 1000};
    const uint64_t way = below(3);
    m.mistaken = way == 1 && test_time % 5 == 0;
    return way == 0 ? STINT_NOW : m.mistaken ? mistakes[test_time / 5 % 3] : test_time;
}

/* The verdict says so of a now that was mistaken, which is counted once, unless the request makes
 * no sense. All else is as by the clock. */
static void check_now(const struct stint_request *requests, struct stint_verdict *got, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const bool due =
            m.mistaken && (got[i].flags & (STINT_BAD_REQUEST | STINT_UNKNOWN_POLICY)) == 0;
        assert_int_equal(got[i].flags & STINT_MISTAKEN_NOW, due ? STINT_MISTAKEN_NOW : 0);
        got[i].flags &= ~(uint32_t)STINT_MISTAKEN_NOW;
        m.counts[requests[i].policy].mistaken_nows += due;
    }
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

/* In place of what a request's own limit, or an override, is. */
static uint32_t own_limit_of(const struct stint_policy *policy) {
    return is_bucket(policy) ? policy->limit : capacity_of(policy);
}

/* Takes from a request what does not go with its policy. */
static void fit(struct stint_request *request) {
    const struct stint_policy *policy = &m.policies[request->policy];
    request->flags &= ~unfit_flags(policy);
    if (is_striped(policy))
        request->limit = 0;
    if (!is_bucket(policy) || (request->flags & STINT_CHARGE))
        request->burst = 0;
}

static struct stint_request pick_request(uint32_t *key) {
    *key = (uint32_t)below(m.key_count);
    struct stint_request request = {.key = m.keys[*key], .policy = (uint32_t)below(m.policy_count)};
    const struct stint_policy *policy = &m.policies[request.policy];
    const uint32_t capacity = capacity_of(policy), limit = own_limit_of(policy);
    request.cost = pick_tokens(capacity);
    if (once_in(6))
        request.limit = once_in(50) ? UINT32_MAX : (uint32_t)below(2 * (uint64_t)limit) + 1;
    if (once_in(3))
        request.flags = STINT_PEEK * (uint32_t)below(16);
    if (once_in(6))
        request.burst = once_in(50) ? UINT32_MAX : (uint32_t)below(2 * (uint64_t)capacity) + 1;
    if (policy->max_reserved && once_in(3)) {
        request.flags |= STINT_RESERVE;
        request.cost += (uint32_t)below((uint64_t)policy->max_reserved + 2);
    }
    if (once_in(6)) { /* a charge, or the look before one */
        request.limit = 0;
        request.flags = STINT_CHARGE | (once_in(2) ? STINT_PEEK : 0);
    }
    fit(&request);
    request.flags |= once_in(6) ? STINT_TENTATIVE : 0;
    return request;
}

static void do_decide(void) {
    uint32_t key;
    struct stint_request request = pick_request(&key);
    const uint64_t now = pick_now();
    bool take = once_in(2);
    if (take)
        request.limit = request.flags = request.burst = 0;
    if (!is_decided(&request, key, 0))
        return;
    struct stint_verdict got;
    memset(&got, 0xa5, sizeof got);
    bool allowed = take
                       ? stint_take(m.limiter, request.policy, request.key, request.cost, now, &got)
                       : stint_decide(m.limiter, &request, now, &got);
    check_now(&request, &got, 1);
    compare(&request, key, &got, take ? "take" : "decide");
    assert_int_equal(allowed, got.allowed);
}

static void do_batch(void) {
    struct stint_request requests[BATCH] = {0};
    uint32_t keys[BATCH];
    struct stint_verdict got[BATCH];
    size_t n = below(once_in(2) ? 4 : BATCH + 1);
    for (size_t i = 0; i < n; i++) {
        requests[i] = pick_request(&keys[i]);
        if (i > 0 && once_in(3)) {
            keys[i] = keys[i - 1];
            requests[i].key = requests[i - 1].key;
        }
        if (!is_decided(&requests[i], keys[i], n))
            n = i;
    }
    /* n is smaller now, so what was decided with more new pairs still is. */
    memset(got, 0xa5, sizeof got);
    size_t allowed = stint_decide_batch(m.limiter, requests, n, pick_now(), got);
    check_now(requests, got, n);
    for (size_t i = 0; i < n; i++) {
        compare(&requests[i], keys[i], &got[i], "batch");
        allowed -= got[i].allowed;
    }
    assert_int_equal(allowed, 0);
}

/* Several requests of one whole. */
struct whole {
    struct stint_request requests[WHOLE];
    uint32_t keys[WHOLE];
    size_t n;
    bool twice; /* two are of one key by one policy */
};

/* Picks one beside which `more` pairs may be placed. Returns false if the contract does not say
 * what it gets. */
static bool pick_whole(struct whole *whole, size_t more) {
    *whole = (struct whole){.n = below(WHOLE + 1)};
    for (size_t i = 0; i < whole->n; i++) {
        struct stint_request *request = &whole->requests[i];
        *request = pick_request(&whole->keys[i]);
        if (request->flags & STINT_CHARGE) /* of which only the look is a part */
            request->flags |= STINT_PEEK;
        for (size_t j = 0; j < i; j++)
            whole->twice |=
                whole->keys[i] == whole->keys[j] && request->policy == whole->requests[j].policy;
        if (!is_decided(request, whole->keys[i], more))
            return false;
    }
    return true;
}

/* "each part is looked at alone": if all fit, each is decided; else those that do not. */
static void check_whole(const struct whole *whole, bool all, const struct stint_verdict *got) {
    for (size_t i = 0; i < whole->n; i++) {
        struct stint_request request = whole->requests[i];
        if (whole->twice) {
            assert_false(got[i].allowed);
            assert_int_equal(got[i].flags, STINT_BAD_REQUEST);
            continue;
        }
        if (!all && got[i].allowed)
            request.flags = (request.flags & ~(uint32_t)STINT_CHARGE) | STINT_PEEK;
        compare(&request, whole->keys[i], &got[i], all ? "all, taken" : "all, refused");
    }
}

/* "What is given back is taken off `granted`. If nothing is, it is 0." */
static void assert_granted(const struct stint_verdict *verdict, uint32_t granted, uint32_t back) {
    assert_int_equal(verdict->granted, back != 0 ? granted - back : 0);
}

/* Gives back what a whole has taken. */
static void give_back(const struct whole *whole, struct stint_verdict *got) {
    uint64_t back = 0;
    for (size_t i = 0; i < whole->n; i++) {
        struct subject s = subject_of(whole->keys[i], whole->requests[i].policy);
        if (s.pair->lowered && is_striped(s.policy))
            return;
    }
    uint32_t granted[WHOLE], given[WHOLE];
    for (size_t i = 0; i < whole->n; i++) {
        struct subject s = subject_of(whole->keys[i], whole->requests[i].policy);
        const uint32_t gives =
            model_refund(s.policy, &got[i], got[i].granted, test_time, &s.pair->key);
        granted[i] = got[i].granted;
        given[i] = gives;
        m.counts[s.id].refunded += gives;
        m.counts[s.id].refunds_lost += gives == 0 && got[i].granted != 0 && got[i].window != 0;
        back += gives;
    }
    uint64_t refunded = stint_refund_all(m.limiter, whole->requests, got, whole->n);
    for (size_t i = 0; refunded != back && i < whole->n; i++) {
        explain(&whole->requests[i], "refund of all");
        print_verdict("got", &got[i]);
    }
    assert_int_equal(refunded, back);
    for (size_t i = 0; i < whole->n; i++)
        assert_granted(&got[i], granted[i], given[i]);
    twin_run.compared++;
}

static void do_groups(void) {
    struct whole wholes[GROUPS];
    struct stint_request requests[GROUPS * WHOLE];
    struct stint_verdict got[GROUPS * WHOLE];
    size_t sizes[GROUPS], groups = below(2 * GROUPS), n = 0;
    groups = groups > GROUPS ? 1 : groups;
    for (size_t g = 0; g < groups; g++) {
        if (!pick_whole(&wholes[g], groups * WHOLE))
            return;
        memcpy(&requests[n], wholes[g].requests, wholes[g].n * sizeof requests[0]);
        n += sizes[g] = wholes[g].n;
    }
    memset(got, 0xa5, sizeof got);
    size_t allowed =
        groups == 1 && once_in(2)
            ? stint_decide_all(m.limiter, requests, n, pick_now(), got)
            : stint_decide_groups(m.limiter, requests, n, sizes, groups, pick_now(), got);
    check_now(requests, got, n);
    struct stint_verdict *of_group = got;
    for (size_t g = 0; g < groups; of_group += sizes[g++]) {
        bool all = true;
        for (size_t i = 0; i < wholes[g].n; i++)
            all &= of_group[i].allowed;
        check_whole(&wholes[g], all, of_group);
        allowed -= all;
        if (all && g + 1 == groups && once_in(4))
            give_back(&wholes[g], of_group);
    }
    assert_int_equal(allowed, 0);
}

static void do_refund(void) {
    uint32_t key = (uint32_t)below(m.key_count), id = (uint32_t)below(m.policy_count);
    struct subject s = subject_of(key, id);
    struct model_key *had = &s.pair->key, left;
    if (s.pair->lowered && is_striped(s.policy))
        return;
    uint64_t window = had->window;
    if (!had->known || once_in(8))
        window = window_end(&s) - longest_window(s.policy) * below(2);
    if (is_bucket(s.policy)) /* of an earlier take, or of none */
        window += below(6 * token_time(s.policy)) - 5 * token_time(s.policy);
    struct stint_verdict verdict = {.policy = id,
                                    .granted = pick_tokens(capacity_of(s.policy)),
                                    .window = window,
                                    .unit = is_bucket(s.policy) ? token_time(s.policy) : 0};
    const struct model_rate *rate = &m.rates[id];
    if (is_bucket(s.policy) && rate->generation != 0 && once_in(2)) /* from before a change */
        verdict.unit = token_time(&rate->before);
    if (is_bucket(s.policy))
        verdict.flags = once_in(4) ? STINT_OVERRIDDEN : 0;
    verdict.generation = rate->generation - (uint32_t)below(rate->generation < 2 ? 1 : 3);
    const uint32_t tokens = verdict.granted;
    struct stint_verdict now = verdict;
    left = *had;
    uint32_t back = !is_bucket(s.policy) || model_rate_verdict(rate, s.policy, &now)
                        ? model_refund(s.policy, &now, tokens, test_time, &left)
                        : 0;
    uint32_t got = stint_refund(m.limiter, m.keys[key], &verdict, tokens);

    /* A stripe may be in an older window than the key. */
    bool stale_stripe =
        is_striped(s.policy) && (!had->known || window != had->window) && got <= tokens;
    /* Of the stripes of a window that is over, some may have gone. */
    bool some_gone = is_striped(s.policy) && got <= back;
    /* Or its first one has had none of it: then the clock tells that it is over. */
    bool none_first = some_gone && test_time >= window;
    if (got != back && !(!is_live(&s) && (got == 0 || some_gone)) && !stale_stripe && !none_first) {
        const struct stint_request request = {.key = m.keys[key], .policy = id, .cost = tokens};
        explain(&request, "refund");
        fail_msg("used %" PRIu32 ", previous %" PRIu32 ", window %" PRIu64 " of %" PRIu64
                 ": got %" PRIu32 ", expected %" PRIu32,
                 had->used, had->previous, window, had->window, got, back);
    }
    assert_granted(&verdict, tokens, got);
    twin_run.compared++;
    m.counts[id].refunded += got;
    m.counts[id].refunds_lost += got == 0 && tokens != 0 && window != 0;
    if (got == back && !stale_stripe)
        *had = left;
}

static void do_reset(void) {
    uint32_t key = (uint32_t)below(m.key_count), id = (uint32_t)below(m.policy_count);
    struct subject s = subject_of(key, id);
    stint_reset(m.limiter, id, m.keys[key]);
    if (s.pair->ruling.strikes || s.pair->ruling.banned)
        s.pair->ruling = (struct model_ruling){0};
    model_reset(s.policy, test_time, &s.pair->key);
}

/* Sets an override of a key, or clears it. */
static void do_override(void) {
    uint32_t key = (uint32_t)below(m.key_count), id = (uint32_t)below(m.policy_count);
    const struct subject s = subject_of(key, id);
    struct model_ruling *ruling = &s.pair->ruling;
    const struct model_ruling was = *ruling, *had = by_of(&s).ruling ? &was : NULL;
    if (!(s.policy->flags & STINT_OVERRIDES))
        return;
    if (once_in(3)) {
        int error = stint_override_clear(m.limiter, id, m.keys[key]);
        assert_int_equal(error, had ? 0 : -ENOENT);
        if (error == 0)
            *ruling = (struct model_ruling){0};
        model_ruled(s.policy, had, NULL, test_time, &s.pair->key);
        return;
    }
    uint64_t length = below(once_in(2) ? 3 * longest_window(s.policy) : 366 * DAY) + 1;
    if (length > 366 * DAY)
        length = 366 * DAY;
    *ruling = (struct model_ruling){0};
    ruling->limit = once_in(4)   ? 0
                    : once_in(4) ? STINT_LIMIT_MAX
                                 : (uint32_t)below(2 * (uint64_t)own_limit_of(s.policy)) + 1;
    if (ruling->limit > STINT_LIMIT_MAX)
        ruling->limit = STINT_LIMIT_MAX;
    assert_int_equal(stint_override(m.limiter, id, m.keys[key], ruling->limit, test_time + length),
                     0);
    ruling->until = model_override_end(test_time + length);
    model_ruled(s.policy, had, ruling, test_time, &s.pair->key);
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
    if (!once_in(4)) /* what comes after one is to be seen, too */
        return;
    uint32_t id = (uint32_t)below(m.policy_count);
    struct stint_policy old = m.policies[id], policy = old;
    if (once_in(2))
        policy.limit = (uint32_t)below((uint64_t)policy.limit + 10) + 1;
    else if (once_in(10))
        policy.limit = STINT_LIMIT_MAX - (uint32_t)below(2);
    else
        policy.limit = (uint32_t)below(20) + 1;
    if (is_bucket(&old) && once_in(2)) {
        policy.burst = 1 + (uint32_t)below(3 * (uint64_t)old.burst);
        policy.max_reserved = once_in(2) ? 0 : (uint32_t)below(40);
    } else if (once_in(2) && !looks_back(&old) && !is_striped(&old)) {
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

    /* A slot that was free until now may be gone. */
    for (uint32_t k = 0; k < m.key_count; k++) {
        const struct subject s = subject_of(k, id);
        if (s.pair->key.known && !is_live(&s) && model_free_at(&policy, s.pair->key) > test_time)
            return;
    }
    const bool turns = !is_bucket(&policy) && carries(&policy) != carries(&old);
    int error = model_valid(&policy) && !turns && once_in(3)
                    ? apply_one(policy, old.name)
                    : stint_policy_change(m.limiter, id, &policy);
    if (!model_valid(&policy) || turns) {
        assert_int_equal(error, -EINVAL);
        return;
    }
    if (error)
        fail_msg("change: %s", stint_reason());
    memcpy(policy.name, old.name, sizeof policy.name);
    m.policies[id] = policy;
    const bool rate = model_rate_change(&m.rates[id], &old, &policy, test_time);
    for (uint32_t k = 0; k < m.key_count; k++) {
        struct subject s = subject_of(k, id);
        if (rate)
            model_rate_keep(&m.rates[id], &policy, by_of(&s).ruling, &s.pair->key);
        if (policy.limit < old.limit || s.pair->key.used > capacity_of(&old))
            s.pair->lowered = true;
        if (policy.jitter != old.jitter)
            s.pair->jitter.window = 0;
    }
}

/* When a bucket has so many tokens to go until it is full, or is at a multiple of its window. */
static uint64_t pick_filling(const struct subject *s) {
    const uint64_t token = token_time(s->policy), full = s->pair->key.window,
                   left = full > test_time ? full - test_time : 0,
                   multiple = full - full % s->policy->window;
    uint64_t then = full - below(left / token + 1) * token - 1 + below(3);
    if (once_in(4))
        then = multiple - 1 + below(3);
    return then > test_time ? then : test_time;
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
        test_time = is_bucket(policy) ? pick_filling(&s) : window_end(&s) - 1 + below(3);
        break;
    case 3:
        test_time += below(2 * longest_window(policy));
        break;
    case 4:
        if (once_in(100))
            test_time += below(20 * DAY);
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
    static const enum kind kinds[] = {PLAIN,    COUNTING,  CAPPED,  ROLLING, RESERVING,
                                      SMOOTH,   STRIPED,   HELD,    HELD,    BY_FIRST,
                                      BY_FIRST, BUCKET,    BUCKET,  BUCKET,  DELAYING,
                                      PER_KEY,  SHADOWING, NEARING, MONTHLY, YEARLY};
    enum { CALENDARS = 2, OTHERS = sizeof kinds / sizeof kinds[0] - CALENDARS };
    int64_t start = 0;
    if (once_in(2)) { /* 1887 to 2161 */
        start = (int64_t)(below(100000) * DAY + below(DAY / STINT_TICK_NS) * STINT_TICK_NS) -
                (int64_t)(30000 * DAY);
    }
    uint32_t limit = (uint32_t)below(once_in(3) ? 1000 : 12) + 1;
    struct stint_policy policy = make_policy(name, limit, pick_window(), start, 0);
    policy = kind_drawn(kinds[below(OTHERS + (m.on_full == STINT_FULL_REPLACE ? 0 : CALENDARS))],
                        &policy, draw, NULL);
    for (int i = 0; i < 3; i++) {
        const struct stint_policy both = kind_drawn(kinds[below(OTHERS)], &policy, draw, NULL);
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
    struct stint_request request = {m.keys[key], id, 0, 0, STINT_PEEK, 0, 0};
    struct stint_verdict v;
    stint_decide(m.limiter, &request, STINT_NOW, &v);
    assert_true(v.window > test_time && v.window - test_time <= s.policy->window);
    assert_int_equal(v.window % STINT_TICK_NS, 0);
    s.pair->phase = s.policy->window - (window_end_at(s.policy, 0, v.window) - v.window);
    assert_true(window_end(&s) == v.window);
}

static void add_policies(uint32_t most_stripes) {
    for (uint32_t p = 0; p < m.policy_count; p++) {
        char name[16];
        snprintf(name, sizeof name, "p%" PRIu32, p);
        m.policies[p] = pick_policy(name, most_stripes);
        int id = policy_added(m.limiter, &m.policies[p]);
        if (id != (int)p)
            fail_msg("add: %s", stint_reason());
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
        uint64_t max_entries, certain;
        uint32_t keys, shards;
        bool one_line;
        uint32_t most_stripes;
    } tables[] = {
        {2, 4, 4, 1, true, 1},         {2, 4, 7, 0, true, 1},
        {40, 40, 30, 1, false, 1},     {20000, 5000, 500, 0, false, 2},
        {5000, 5000, 3, 4, false, 64}, {30000, 30000, KEYS, 0, false, 1},
    };
    enum { TABLES = sizeof tables / sizeof *tables, SMALL = 3 }; /* those are in memory */
    size_t table = twin_path == NULL ? below(TABLES) : SMALL + below(TABLES - SMALL);

    struct stint_options options = STINT_OPTIONS_INIT;
    options.max_entries = tables[table].max_entries;
    options.shards = tables[table].shards;
    options.on_full = (uint32_t)below(3);
    options.clock = test_clock;
    options.path = twin_path;
    unsigned char secret[STINT_SECRET_SIZE];
    for (size_t i = 0; i < sizeof secret; i++)
        secret[i] = (unsigned char)random_bits();
    options.secret = secret;

    memset(&m, 0, sizeof m);
    m.limiter = open_with(&options);
    m.on_full = (enum stint_on_full)options.on_full;
    m.certain = tables[table].certain;
    m.one_line = tables[table].one_line;
    m.key_count = tables[table].keys;
    m.policy_count = (uint32_t)below(POLICIES) + 1;
    m.ruled_is_placed = tables[table].certain == 5000;
    test_step = 0; /* a bucket is asked once more, or refilled, at the very ns that is told */
    test_time = once_in(10) ? 2000 * DAY : T0 + below(20000 * DAY);
    for (uint32_t k = 0; k < m.key_count; k++)
        m.keys[k] = k == 0 ? STINT_KEY_GLOBAL : number_key(m.limiter, k);
    add_policies(tables[table].most_stripes);
    test_time = window_end_at(&m.policies[0], 0, test_time) + longest_window(&m.policies[0]) -
                below(longest_window(&m.policies[0])) / 8 - 1;
    m.round_start = test_time;
    for (uint32_t p = 0; p < m.policy_count; p++)
        for (uint32_t k = 0; k < m.key_count && (m.policies[p].flags & STINT_START_PER_KEY); k++)
            learn_phase(k, p);
}

void twin_closed(void (*meanwhile)(void)) {
    struct stint_options options = STINT_OPTIONS_INIT;
    stint_close(m.limiter);
    meanwhile();
    options.path = twin_path;
    options.on_full = m.on_full;
    options.clock = test_clock;
    if (stint_attach(&options, &m.limiter) != 0)
        fail_msg("%s", stint_reason());
}

void end_round(void) {
    struct stint_stats stats = get_stats(m.limiter);
    assert_int_equal(stats.untracked, m.untracked);
    assert_int_equal(stats.replaced, m.replaced);
    assert_int_equal(stats.stray_tokens, 0);
    assert_int_equal(stats.clock_steps, 0);
    uint64_t least = 0, most = 0, overrides = 0, banned = 0, struck = 0;
    for (uint32_t k = 0; k < m.key_count; k++) {
        for (uint32_t p = 0; p < m.policy_count; p++) {
            const struct subject s = subject_of(k, p);
            const struct model_ruling *ruling = &s.pair->ruling;
            least += is_live(&s);
            most += !is_live(&s) ? 0 : is_striped(s.policy) ? s.policy->stripes : 1;
            if (ruling->until > test_time)
                *(ruling->strikes ? &struck : ruling->banned ? &banned : &overrides) += 1;
        }
    }
    most += overrides + banned + struck;
    assert_true(least + overrides + banned + struck <= stats.live && stats.live <= most);
    assert_int_equal(stats.overrides, overrides);
    assert_int_equal(stats.banned, banned);
    for (uint32_t p = 0; p < m.policy_count; p++) {
        const struct stint_policy_stats counts = get_policy_stats(m.limiter, p);
        const char *unlike = model_unlike(&counts, &m.counts[p]);
        if (unlike)
            fail_msg("policy %" PRIu32 ": %s", p, unlike);
        assert_int_equal(counts.bans, m.counts[p].bans);
        assert_int_equal(counts.strikes_lost, 0);
        assert_int_equal(counts.refunds_lost, m.counts[p].refunds_lost);
        assert_int_equal(counts.mistaken_nows, m.counts[p].mistaken_nows);
    }
    for (uint32_t p = 0; p < STINT_POLICIES_MAX && get_stats(m.limiter).policies > 0; p++)
        (void)stint_policy_remove(m.limiter, p);
    assert_int_equal(get_stats(m.limiter).live, 0);
    stint_close(m.limiter);
}

void do_operation(void) {
    static void (*const operations[])(void) = {
        do_batch, do_batch,  do_groups,   do_groups,   do_groups, do_refund, do_refund, do_refund,
        do_reset, do_change, do_override, do_override, move_time, move_time, move_time, move_time};
    const uint64_t which = below(64);
    if (which < sizeof operations / sizeof operations[0])
        operations[which]();
    else
        do_decide();
}
