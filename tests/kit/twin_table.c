/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * The twin of a limiter: a model of each key and policy (model.h), and what is known of the table:
 * which of them have slots.
 *
 * It is exact while time only goes forward. Where the contract leaves a choice, it accepts
 * each of the answers that the contract allows, and goes on from the one that it got:
 *  - A slot whose window is over at the latest time that any caller has shown may have gone to
 *    another key. A late caller then either joins that window or starts the key in a later one,
 *    never in the one that was lost (promise A); a look takes nothing, and may see it as new.
 *  - A late caller that starts a key may be put into any window from its own to that of the latest
 *    time shown.
 *  - A caller who is later than the allowance may be decided at the clock's time instead of his, if
 *    a time was shown that is half a minute less than the allowance ahead of his.
 *  - A refund does not look at the time. It works as long as the slot holds the window, so once
 *    the window is over it gives back all or nothing. (Of a striped key it may be anything between:
 *    its first stripe tells whether the window is over, or without one the clock.)
 *  - For callers who are late, and in the window in which the limit was lowered, or changed after
 *    more was charged, what stripes do is not compared.
 *  - When the clock was stepped back, a key is not asked about while it is open whether it still
 *    has the slot of a window that was counted before the step. Nor is a key with an override, a
 *    ban or strikes while they are over by the latest time shown, but not by the caller's, or so
 *    far ahead of him that they may be void.
 *
 * Left out: parts of one group that are of one pair, by a policy with a ban; and bans that become
 * shorter.
 */
#include "twin.h"

struct twin m;

void note_capacity(uint32_t id, uint64_t capacity) {
    if (capacity > STINT_LIMIT_MAX)
        capacity = STINT_LIMIT_MAX;
    if (capacity > m.largest[id])
        m.largest[id] = (uint32_t)capacity;
}

struct subject subject_of(uint32_t key, uint32_t id) {
    return (struct subject){
        key, id, &m.policies[id], &m.pairs[key][id], &m.lessons[key][id], &m.ruled[key][id]};
}

uint64_t ruled_reach(const struct subject *s) {
    const bool by_hand = !s->ruled->is.strikes && !s->ruled->is.banned;
    return by_hand ? 366 * DAY : s->policy->ban + ALLOWANCE - SECOND;
}

static struct model_by by_of(const struct subject *s, uint64_t now) {
    struct model_by by = model_by(s->policy);
    by.phase = s->lesson->phase;
    by.ruling = model_rules(s->policy, &s->ruled->is, now) ? &s->ruled->is : NULL;
    return by;
}

/* Notes the largest limit that a policy ever had. */
static void note_request(const struct stint_request *request, const struct stint_verdict *v) {
    const struct stint_policy *policy = &m.policies[request->policy];
    if (takes_nothing(request)) /* counts nothing, so raises nothing */
        return;
    if (makes_charge(request)) {
        if (v->granted > 0)
            note_capacity(request->policy, count_most(policy));
        else
            m.may_be_largest[request->policy] = true;
        return;
    }
    uint64_t room = request->limit ? request->limit : capacity_of(policy);
    if (v->flags & STINT_OVERRIDDEN)
        room = v->capacity == STINT_LIMIT_MAX ? count_most(policy) : v->capacity;
    note_capacity(request->policy,
                  room + (request->flags & STINT_RESERVE ? policy->max_reserved : 0));
}

uint64_t window_end(const struct subject *s, uint64_t now) {
    return window_end_at(s->policy, s->lesson->phase, now);
}

uint64_t free_at(const struct subject *s) {
    return model_free_at(s->policy, s->pair->key);
}

/* Within two ticks of the border, where rounding decides. */
static bool about_far_ahead(const struct stint_policy *policy, uint64_t window, uint64_t now) {
    int64_t over = (int64_t)(window - now - longest_window(policy) - ALLOWANCE);
    return over >= -(int64_t)(2 * STINT_TICK_NS) && over <= (int64_t)(2 * STINT_TICK_NS);
}

static bool starts_anew(const struct subject *s, uint64_t now) {
    return is_far_ahead(s->policy, s->pair->key.window, now) &&
           is_far_ahead(s->policy, s->pair->key.window, test_time);
}

bool may_be_lost(const struct subject *s) {
    return s->pair->may_have_gone || free_at(s) <= m.highest;
}

static bool is_unsure(const struct subject *s, uint64_t now) {
    return s->pair->unsure && now < s->pair->doubt_end;
}

void make_unsure(const struct subject *s, uint64_t until) {
    s->pair->unsure = true;
    if (s->pair->doubt_end < until)
        s->pair->doubt_end = until;
}

enum place { PLACED, FULL, OPEN };

/* Whether a decision on the pair finds or gets a slot, with `more` new pairs before it. A pair that
 * a clock step left in doubt counts as one that is in the way and as one that is not. */
static enum place foresee(const struct subject *self, uint64_t now, uint64_t more) {
    if (m.certain >= m.most_slots)
        return PLACED;
    if (self->pair->key.known && free_at(self) > now && !self->pair->unsure && !may_be_lost(self))
        return PLACED;
    uint64_t in_the_way = 0, certainly = 0;
    for (uint32_t k = 0; k < m.key_count; k++) {
        for (uint32_t p = 0; p < m.policy_count; p++) {
            struct subject s = subject_of(k, p);
            if (s.pair == self->pair || !s.pair->key.known ||
                (free_at(&s) <= now && !is_unsure(&s, now)))
                continue;
            in_the_way++;
            if (!s.pair->unsure && !may_be_lost(&s) &&
                !is_far_ahead(s.policy, s.pair->key.window, now) &&
                !is_far_ahead(s.policy, s.pair->key.window, test_time))
                certainly++;
        }
    }
    if (in_the_way + more + 1 <= m.certain)
        return PLACED;
    return m.one_line && certainly == m.certain && in_the_way == certainly ? FULL : OPEN;
}

/* The other pair with the fewest tokens used, which STINT_FULL_REPLACE takes; NULL if there are
 * two, or if one has tokens of other windows too. */
static struct pair *fewest_used(const struct pair *self, uint64_t now) {
    struct pair *fewest = NULL;
    bool unique = true;
    for (uint32_t k = 0; k < m.key_count; k++) {
        for (uint32_t p = 0; p < m.policy_count; p++) {
            struct subject s = subject_of(k, p);
            if (s.pair == self || !s.pair->key.known || free_at(&s) <= now)
                continue;
            if (carries(s.policy) || looks_back(s.policy))
                return NULL;
            if (!fewest || s.pair->key.used < fewest->key.used) {
                fewest = s.pair;
                unique = true;
            } else if (s.pair->key.used == fewest->key.used) {
                unique = false;
            }
        }
    }
    return unique ? fewest : NULL;
}

static bool is_decided_at(const struct stint_request *request, uint32_t key, uint64_t now,
                          uint64_t more) {
    const struct subject s = subject_of(key, request->policy);
    const struct model_key *at = &s.pair->key;
    const uint64_t until = s.ruled->is.until, reach = ruled_reach(&s);
    /* An override that is over may have lost its slot; one that is far ahead may be void. */
    if ((s.policy->flags & STINT_OVERRIDES) && until > now &&
        (s.ruled->open || until <= m.highest_yet || until <= test_time || until > now + reach ||
         until > test_time + reach))
        return false;
    /* The stripes of a key may be in different windows for a late caller, or since the clock was
     * stepped back. */
    if (is_striped(s.policy) &&
        (now < m.highest_yet || s.pair->unsure || (s.pair->lowered && at->window > now)))
        return false;
    if (at->known) {
        if (at->window > now && (about_far_ahead(s.policy, at->window, now) ||
                                 about_far_ahead(s.policy, at->window, test_time)))
            return false;
        if (is_unsure(&s, now) && !starts_anew(&s, now))
            return false;
    }
    const enum place place = foresee(&s, now, more);
    if (place != FULL || more)
        return place == PLACED;
    return m.on_full != STINT_FULL_REPLACE || fewest_used(s.pair, now) != NULL;
}

/* The latest begin of a window is known to half a minute only. */
#define LATEST_KNOWN_TO (MINUTE / 2)

bool is_very_late(uint64_t now) {
    return now + ALLOWANCE < m.highest_yet + LATEST_KNOWN_TO;
}

bool is_decided(const struct stint_request *request, uint32_t key, uint64_t now, uint64_t more) {
    return is_decided_at(request, key, now, more) &&
           (!is_very_late(now) || is_decided_at(request, key, test_time, more));
}

static void count_decision(struct stint_policy_stats *counts, const struct stint_verdict *verdict) {
    bool shadowed = verdict->flags & STINT_SHADOWED;
    counts->allowed += verdict->allowed && !shadowed;
    counts->refused += !verdict->allowed;
    counts->shadowed += shadowed;
    counts->first_refusals += !!(verdict->flags & STINT_FIRST_REFUSAL);
    counts->untracked += !!(verdict->flags & STINT_UNTRACKED);
    counts->near_limit += verdict->allowed && !shadowed && (verdict->flags & STINT_NEAR_LIMIT);
}

/* The window that a key without one is started in: that of `now`, or for a late caller a later one
 * up to that of the latest time shown, but after `lost` (0: none). `got` chooses among those. */
static uint64_t started_window(const struct subject *s, uint64_t lost, uint64_t now, uint64_t got) {
    uint64_t first = window_end(s, now);
    uint64_t latest = m.highest_yet;
    if (latest > test_time + ALLOWANCE)
        latest = test_time + ALLOWANCE;
    if (latest < now)
        latest = now;
    bool is_an_end = got > 0 && window_end(s, got - 1) == got;
    if (is_first(s->policy)) { /* at any tick, but two windows of a key have none in common */
        is_an_end = got % STINT_TICK_NS == 0;
        lost += lost != 0 ? s->policy->window - 1 : 0;
    }
    if (is_an_end && got >= first && got <= window_end(s, latest) && got > lost)
        return got;
    return first;
}

static void count_verdict(const struct stint_request *request, const struct stint_verdict *v) {
    if (merely_looks(request))
        return;
    m.replaced += !!(v->flags & STINT_REPLACED);
    if (makes_charge(request)) { /* no decision */
        m.counts[request->policy].charged += v->granted;
        return;
    }
    m.untracked += !!(v->flags & STINT_UNTRACKED);
    count_decision(&m.counts[request->policy], v);
}

/* What requests of one key and policy may get, and what they make of the key. */
struct expected {
    struct model_answer answers[WHOLE];
    struct model_key key;
    struct model_jitter jitter;
    struct model_ruling ruling;
    bool fit;
};

/* Whether a verdict counts a strike. */
static bool strikes(const struct subject *s, const struct stint_verdict *v) {
    return s->policy->ban && (v->flags & STINT_FIRST_REFUSAL) && !(v->flags & STINT_OVERRIDDEN);
}

/* What they may get if the key is as `from`, and whether that is what they got. */
static bool expect(const struct subject *s, const struct stint_request *requests, size_t n,
                   uint64_t now, enum asked asked, struct model_key from, uint32_t flags,
                   const struct stint_verdict *got, struct expected *expected) {
    const struct model_by by = by_of(s, now);
    bool allowed = true;
    *expected = (struct expected){.key = from, .jitter = s->lesson->jitter, .ruling = s->ruled->is};
    if (asked == ALONE)
        expected->answers[0] = model_decide(&by, requests, now, &expected->key);
    else
        expected->fit = model_decide_parts(&by, requests, n, now, asked == GRANTED, &expected->key,
                                           expected->answers);
    for (size_t i = 0; i < n; i++) {
        struct model_answer *answer = &expected->answers[i];
        answer->verdict.flags |= flags;
        if (strikes(s, &answer->verdict)) {
            expected->ruling = model_struck(s->policy, &expected->ruling, now, test_time);
            if (expected->ruling.banned)
                model_ban(answer, now, expected->ruling.until);
        }
        allowed &= model_allows(answer, &got[i], &expected->jitter);
    }
    return allowed;
}

/* Whether requests would take tokens, or mark the key. */
static bool would_touch(const struct subject *s, const struct stint_request *requests, size_t n,
                        uint64_t now) {
    const struct model_by by = by_of(s, now);
    bool touched = false;
    for (size_t i = 0; i < n; i++) {
        struct model_key key = model_at(s->policy, by.phase, (struct model_key){0}, now);
        touched |= model_decide(&by, &requests[i], now, &key).touched;
    }
    return touched;
}

/* The same, if the key has a slot that it may have, or else none. `flags`: what
 * the verdict tells then. */
static bool expect_either(const struct subject *s, const struct stint_request *requests, size_t n,
                          uint64_t now, enum asked asked, uint32_t flags,
                          const struct stint_verdict *got, struct expected *expected) {
    const struct model_key had = s->pair->key;
    const bool has_slot = had.known && !starts_anew(s, now);
    if (has_slot && expect(s, requests, n, now, asked,
                           model_at(s->policy, s->lesson->phase, had, now), 0, got, expected))
        return true;
    if (has_slot && !may_be_lost(s) && free_at(s) > now)
        return false;
    struct expected fresh;
    uint64_t lost = 0; /* a look may see it as new */
    if (has_slot && would_touch(s, requests, n, now))
        lost = s->pair->may_have_gone ? had.window : free_at(s);
    const struct model_key begun = {.window = started_window(s, lost, now, got->window),
                                    .known = true};
    const bool allowed = expect(s, requests, n, now, asked, begun, flags, got, &fresh);
    if (!has_slot || allowed)
        *expected = fresh;
    return allowed;
}

/* Brings the twin to what they did. */
static void follow(const struct subject *s, size_t n, const struct expected *expected) {
    bool touched = false;
    s->lesson->jitter = expected->jitter;
    for (size_t i = 0; i < n; i++) {
        touched |= expected->answers[i].touched;
        if (strikes(s, &expected->answers[i].verdict)) {
            s->ruled->is = expected->ruling;
            m.counts[s->id].bans += expected->ruling.banned;
            show(test_time); /* it claims by the clock */
        }
    }
    if (!touched)
        return;
    s->pair->lowered &= s->pair->key.known && s->pair->key.window == expected->key.window;
    s->pair->may_have_gone = s->pair->unsure = false;
    s->pair->doubt_end = 0;
    s->pair->key = expected->key;
}

void explain(const struct stint_request *request, uint64_t now, const char *what) {
    const struct stint_policy *policy = &m.policies[request->policy];
    print_error("%s: seed %" PRIu64 ", round %" PRIu64 ", operation %" PRIu64 ": policy %" PRIu32
                " (limit %" PRIu32 ", capacity %" PRIu32 ", max_reserved %" PRIu32
                ", stripes %" PRIu32 ", near %" PRIu32 ", jitter %" PRIu32 ", window %" PRIu64
                ", calendar %" PRIu32 ", offset %" PRId32 ", start %" PRId64 ", flags %#" PRIx32
                ", ban %" PRIu64 ", after %" PRIu32 "), key %#" PRIx64 ", cost %" PRIu32
                ", limit %" PRIu32 ", flags %#" PRIx32 ", now %" PRIu64 ", clock %" PRIu64
                ", on_full %" PRIu32 "\n",
                what, m.seed, m.round, m.operation, request->policy, policy->limit,
                policy->capacity, policy->max_reserved, policy->stripes, policy->near_limit,
                policy->jitter, policy->window, policy->calendar, policy->offset, policy->start,
                policy->flags, policy->ban, policy->ban_after, request->key, request->cost,
                request->limit, request->flags, now, test_time, m.on_full);
}

void show(uint64_t now) {
    if (now > m.highest)
        m.highest = now;
    if (now > m.highest_yet)
        m.highest_yet = now;
}

/* The time at which a verdict was given if it was by one of the call's readings of the clock; else
 * `now`. */
static uint64_t decided_at(const struct stint_request *request, uint32_t key, uint64_t now,
                           const struct stint_verdict *got) {
    struct subject s = subject_of(key, request->policy);
    bool untracked = got->flags & STINT_UNTRACKED;
    uint64_t at = (untracked ? window_end(&s, test_time) : got->window) - got->reset_after;
    return at - test_time < READINGS_MOST * test_step ? at : now;
}

static void tell_wrong(const struct subject *s, const struct stint_request *request, uint64_t now,
                       const struct pair *before, const struct model_ruling *ruling,
                       const struct model_answer *answer, const struct stint_verdict *got,
                       const char *what) {
    const struct model_key *key = &before->key;
    explain(request, now, what);
    print_error("highest_yet %" PRIu64 ", highest %" PRIu64 ", very late %d\n", m.highest_yet,
                m.highest, is_very_late(now));
    print_error("before: known %" PRIu32 ", unsure %d, may_have_gone %d, refused %" PRIu32
                ", used %" PRIu32 ", previous %" PRIu32 ", window %" PRIu64 "\n",
                key->known, before->unsure, before->may_have_gone, key->refused, key->used,
                key->previous, key->window);
    print_error("override: limit %" PRIu32 ", strikes %" PRIu32
                ", banned %d, open %d, until %" PRIu64 "\n",
                ruling->limit, ruling->strikes, ruling->banned, s->ruled->open, ruling->until);
    print_verdict("expected", &answer->verdict);
    print_error("jitter below %" PRIu64 ", wait of a ban %" PRIu64 ", off %" PRIu32 "\n",
                answer->jitter_below, answer->wait_least, answer->off);
    print_verdict("got     ", got);
}

bool compare(const struct stint_request *requests, uint32_t key, size_t n, uint64_t now,
             enum asked asked, const struct stint_verdict *got, const char *what) {
    const struct subject s = subject_of(key, requests->policy);
    const struct pair before = *s.pair;
    const struct model_ruling ruling = s.ruled->is;
    struct expected expected = {0};
    bool allowed;
    if (asked == ALONE && is_very_late(now))
        now = decided_at(requests, key, now, got);
    const struct model_by by = by_of(&s, now);
    const enum stint_on_full on_full = (enum stint_on_full)m.on_full;
    enum model_full full = MODEL_NEEDS_NONE;
    if (asked == ALONE && foresee(&s, now, 0) == FULL)
        full = model_on_full(&by, on_full, requests, now);
    if (full == MODEL_REPLACES) {
        fewest_used(s.pair, now)->key.known = false;
        s.pair->key.known = false; /* all slots are others', so it has lost what it had */
    }
    if (full == MODEL_UNTRACKED) {
        expected = (struct expected){.jitter = s.lesson->jitter};
        expected.answers[0] = model_untracked(&by, on_full, requests, now);
        allowed = model_allows(&expected.answers[0], got, &expected.jitter);
    } else {
        const uint32_t flags = full == MODEL_REPLACES ? STINT_REPLACED : 0;
        allowed = expect_either(&s, requests, n, now, asked, flags, got, &expected);
    }
    m.compared += n;
    if (!allowed)
        for (size_t i = 0; i < n; i++)
            tell_wrong(&s, &requests[i], now, &before, &ruling, &expected.answers[i], &got[i],
                       what);
    assert_true(allowed);
    follow(&s, n, &expected);
    for (size_t i = 0; i < n; i++)
        if (asked != REFUSED || !got[i].allowed)
            count_verdict(&requests[i], &got[i]);
    for (size_t i = 0; i < n; i++)
        note_request(&requests[i], &got[i]);
    if (asked == ALONE)
        show(now);
    return expected.fit;
}
