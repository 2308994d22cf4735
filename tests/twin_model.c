/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * The naive twin of a limiter: a model written in the most obvious way, one record per key and
 * policy, that says every field of every verdict.
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
 *  - A granted request of a striped policy may say of the remainder what its own stripe knows. For
 *    callers who are late, for requests with limits of their own, and in the window in which the
 *    limit was lowered, or changed after more was charged, what stripes do is not compared. Nor is
 *    what the verdict of a charge says of them.
 *  - Jitter is any part of its bound, but the same for a key and a window.
 *  - When the clock was stepped back, a key is not asked about while it is open whether it still
 *    has the slot of a window that was counted before the step. Nor is a key with an override, a
 *    ban or strikes while they are over by the latest time shown, but not by the caller's, or so
 *    far ahead of him that they may be void.
 *  - What jitter a refusal has is not learned from one that tells the end of a ban instead.
 *
 * Left out: parts of one group that are of one pair, by a policy with a ban; and bans that become
 * shorter.
 */
#include "twin.h"

struct twin m;

void note_capacity(uint32_t id, uint32_t capacity) {
    if (capacity > STINT_LIMIT_MAX)
        capacity = STINT_LIMIT_MAX;
    if (capacity > m.largest[id])
        m.largest[id] = capacity;
}

struct subject subject_of(uint32_t key, uint32_t id) {
    return (struct subject){key, id, &m.policies[id], &m.pairs[key][id], &m.lessons[key][id]};
}

const struct ruled *ruled_at(uint32_t key, uint32_t id, uint64_t now) {
    const struct ruled *ruled = &m.ruled[key][id];
    bool on = (m.policies[id].flags & STINT_OVERRIDES) && now < ruled->until && !ruled->strikes;
    return on ? ruled : NULL;
}

uint64_t ruled_reach(const struct ruled *ruled, uint32_t id) {
    bool by_hand = !ruled->strikes && !ruled->banned;
    return by_hand ? 366 * DAY : m.policies[id].ban + ALLOWANCE - SECOND;
}

/* What a first refusal makes of a key's strikes: one more, or a ban. A span is over by the clock's
 * next tick at the earliest, however late the caller is. */
static struct ruled struck(const struct subject *s, uint64_t now) {
    const struct ruled *ruled = &m.ruled[s->key][s->id];
    uint64_t until = ceil_div(now + s->policy->ban, STINT_TICK_NS) * STINT_TICK_NS;
    uint64_t least = (test_time / STINT_TICK_NS + 1) * STINT_TICK_NS;
    uint32_t strikes = now < ruled->until ? ruled->strikes : 0;
    until = until > least ? until : least;
    if (strikes + 1 >= s->policy->ban_after)
        return (struct ruled){.banned = true, .until = until};
    return (struct ruled){.strikes = strikes + 1, .until = strikes ? ruled->until : until};
}

/* The key of a request. */
static uint32_t key_of(const struct stint_request *request) {
    for (uint32_t k = 0; k < m.key_count; k++)
        if (m.keys[k] == request->key)
            return k;
    fail();
    return 0;
}

void note_request(const struct stint_request *request, const struct stint_verdict *v) {
    if (makes_charge(request)) {
        if (v->granted > 0)
            note_capacity(request->policy, count_most(&m.policies[request->policy]));
        else
            m.may_be_largest[request->policy] = true;
        return;
    }
    bool reserves = (request->flags & STINT_RESERVE) != 0;
    uint64_t room = request->limit ? request->limit : capacity_of(&m.policies[request->policy]);
    if (v->flags & STINT_OVERRIDDEN)
        room =
            v->capacity == STINT_LIMIT_MAX ? count_most(&m.policies[request->policy]) : v->capacity;
    room += reserves ? m.policies[request->policy].max_reserved : 0;
    note_capacity(request->policy, room < STINT_LIMIT_MAX ? (uint32_t)room : STINT_LIMIT_MAX);
}

bool is_valid(const struct stint_policy *policy) {
    bool count_refused = policy->flags & STINT_COUNT_REFUSED;
    if (policy->limit == 0 || policy->limit > STINT_LIMIT_MAX || policy->near_limit > 100 ||
        policy->jitter > 100)
        return false;
    if ((uint64_t)capacity_of(policy) + policy->max_reserved > STINT_LIMIT_MAX)
        return false;
    if (carries(policy) && (count_refused || is_striped(policy) || is_smooth(policy)))
        return false;
    if (carries(policy) && (is_first(policy) || is_calendar(policy)))
        return false;
    if (is_smooth(policy))
        return policy->limit <= 16383 && policy->capacity == 0 && !is_striped(policy) &&
               !count_refused && !is_in_flight(policy);
    if (is_in_flight(policy))
        return policy->limit <= 16383 && policy->capacity == 0 && !is_striped(policy) &&
               !count_refused && !carries(policy) && !is_first(policy) && !is_calendar(policy) &&
               !(policy->flags & STINT_START_PER_KEY) && policy->start == 0;
    if (is_striped(policy))
        return policy->stripes <= 64 && (policy->stripes & (policy->stripes - 1)) == 0 &&
               policy->stripes <= policy->limit && !count_refused &&
               !(policy->flags & STINT_START_PER_KEY);
    return true;
}

uint64_t window_end(const struct subject *s, uint64_t now) {
    return window_end_at(s->policy, s->lesson->phase, now);
}

static struct count count_of(const struct pair *pair) {
    return (struct count){pair->used, pair->previous, pair->window};
}

uint64_t free_at(const struct subject *s) {
    return count_free_at(s->policy, count_of(s->pair));
}

bool far_ahead(const struct stint_policy *policy, uint64_t window, uint64_t now) {
    return window > now && window - now > longest_window(policy) + ALLOWANCE;
}

/* Within two ticks of the border, where rounding decides. */
static bool about_far_ahead(const struct stint_policy *policy, uint64_t window, uint64_t now) {
    int64_t over = (int64_t)(window - now - longest_window(policy) - ALLOWANCE);
    return over >= -(int64_t)(2 * STINT_TICK_NS) && over <= (int64_t)(2 * STINT_TICK_NS);
}

static bool starts_anew(const struct subject *s, uint64_t now) {
    return far_ahead(s->policy, s->pair->window, now) &&
           far_ahead(s->policy, s->pair->window, test_time);
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
    if (self->pair->known && free_at(self) > now && !self->pair->unsure && !may_be_lost(self))
        return PLACED;
    uint64_t in_the_way = 0, certainly = 0;
    for (uint32_t k = 0; k < m.key_count; k++) {
        for (uint32_t p = 0; p < m.policy_count; p++) {
            struct subject s = subject_of(k, p);
            if (s.pair == self->pair || !s.pair->known ||
                (free_at(&s) <= now && !is_unsure(&s, now)))
                continue;
            in_the_way++;
            if (!s.pair->unsure && !may_be_lost(&s) && !far_ahead(s.policy, s.pair->window, now) &&
                !far_ahead(s.policy, s.pair->window, test_time))
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
            if (s.pair == self || !s.pair->known || free_at(&s) <= now)
                continue;
            if (carries(s.policy) || looks_back(s.policy))
                return NULL;
            if (!fewest || s.pair->used < fewest->used) {
                fewest = s.pair;
                unique = true;
            } else if (s.pair->used == fewest->used) {
                unique = false;
            }
        }
    }
    return unique ? fewest : NULL;
}

/* The capacity without an override. */
static uint32_t own_capacity(const struct stint_request *request) {
    uint32_t capacity = request->limit ? request->limit : capacity_of(&m.policies[request->policy]);
    return capacity < STINT_LIMIT_MAX ? capacity : STINT_LIMIT_MAX;
}

static uint32_t request_capacity(const struct stint_request *request, uint64_t now) {
    const struct ruled *ruled = NULL;
    if (m.policies[request->policy].flags & STINT_OVERRIDES)
        ruled = ruled_at(key_of(request), request->policy, now);
    return ruled ? ruled->limit : own_capacity(request);
}

static bool is_decided_at(const struct stint_request *request, uint32_t key, uint64_t now,
                          uint64_t more) {
    struct subject s = subject_of(key, request->policy);
    uint32_t capacity = request_capacity(request, now);
    const struct ruled *ruled = &m.ruled[key][request->policy];
    uint64_t reach = ruled_reach(ruled, s.id);
    /* An override that is over may have lost its slot; one that is far ahead may be void. */
    if ((s.policy->flags & STINT_OVERRIDES) && ruled->until > now &&
        (ruled->open || ruled->until <= m.highest_yet || ruled->until <= test_time ||
         ruled->until > now + reach || ruled->until > test_time + reach))
        return false;
    /* The stripes of a key may be in different windows for a late caller, or since the clock was
     * stepped back, and are not kept even for each call's own limit. */
    if (is_striped(s.policy) && (now < m.highest_yet || s.pair->unsure || request->limit ||
                                 (s.pair->lowered && s.pair->window > now)))
        return false;
    /* A count of two windows has 14 bits for each. */
    if (looks_back(s.policy) && capacity > 16383)
        return false;
    if ((uint64_t)own_capacity(request) + s.policy->max_reserved > STINT_LIMIT_MAX &&
        request->limit)
        return false;
    if ((uint64_t)capacity + s.policy->max_reserved > STINT_LIMIT_MAX && capacity < STINT_LIMIT_MAX)
        return false;
    if (looks_back(s.policy) && own_capacity(request) > 16383)
        return false;
    if (s.pair->known) {
        bool anew = starts_anew(&s, now);
        if (s.pair->window > now && (about_far_ahead(s.policy, s.pair->window, now) ||
                                     about_far_ahead(s.policy, s.pair->window, test_time)))
            return false;
        if (is_unsure(&s, now) && !anew)
            return false;
    }
    enum place place = foresee(&s, now, more);
    if (place != FULL)
        return place == PLACED;
    if (more || request->cost == 0 || (s.policy->flags & STINT_SHADOW) ||
        (request->cost > capacity && !makes_charge(request)))
        return false;
    return m.on_full != STINT_FULL_REPLACE || fewest_used(s.pair, now);
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

static void count(struct stint_policy_stats *counts, const struct stint_verdict *verdict) {
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

/* The slot's state in the window that ends at `end`, at or after its own. */
static struct pair passed_to(const struct subject *s, uint64_t end) {
    struct pair next = *s->pair;
    struct count count = count_passed_to(s->policy, count_of(&next), end);
    if (count.window != next.window)
        next.refused = next.lowered = false;
    next.used = count.used;
    next.previous = count.previous;
    next.window = count.window;
    return next;
}

/* A wait that 64 bits of ns cannot say is said to be a long one. */
static void take_over_long_wait(const struct subject *s, struct stint_verdict *v,
                                const struct stint_verdict *got) {
    if (v->retry_after > UINT64_MAX - 8 * longest_window(s->policy) &&
        got->retry_after > UINT64_MAX / 2)
        v->retry_after = got->retry_after;
}

/* Takes the jitter of a refusal over from what was got, if it may be that. */
static void add_jitter(const struct subject *s, struct stint_verdict *v,
                       const struct stint_verdict *got) {
    if (!s->policy->jitter || v->retry_after > UINT64_MAX - 8 * longest_window(s->policy))
        return;
    uint64_t jitter = got->retry_after - v->retry_after;
    bool known = s->lesson->jitter_window == v->window;
    if (got->retry_after >= v->retry_after &&
        (wide)jitter * 100 < (wide)window_length(s->policy, v->window) * s->policy->jitter &&
        (!known || jitter == s->lesson->jitter)) {
        s->lesson->jitter_window = v->window;
        s->lesson->jitter = jitter;
    }
    if (s->lesson->jitter_window == v->window)
        v->retry_after += s->lesson->jitter;
}

static void mark_near(const struct subject *s, struct stint_verdict *v) {
    if (s->policy->near_limit &&
        (uint64_t)v->used * 100 > (uint64_t)v->capacity * s->policy->near_limit)
        v->flags |= STINT_NEAR_LIMIT;
}

/* A granted request of a striped policy says what its own stripe knows. The remainder is off by at
 * most the share of the others. */
static void take_over_own_stripe(const struct subject *s, struct stint_verdict *v,
                                 const struct stint_verdict *got) {
    uint64_t n = s->policy->stripes;
    uint64_t off = got->remaining > v->remaining ? got->remaining - v->remaining
                                                 : v->remaining - got->remaining;
    if (got->used < v->granted || off * n > v->capacity * (n - 1))
        return;
    v->used = got->used;
    v->remaining = v->used < v->capacity ? v->capacity - v->used : 0;
}

/* The charge of a striped key says of what is used what its own stripe knows. */
static void take_over_own_charge(struct stint_verdict *v, const struct stint_verdict *got) {
    if (got->used < v->granted)
        return;
    v->used = got->used;
    v->remaining = v->used < v->capacity ? v->capacity - v->used : 0;
}

/* Where a key that the table has no slot for is decided. */
static struct stint_verdict expect_full(const struct subject *s,
                                        const struct stint_request *request, uint64_t now,
                                        const struct stint_verdict *got) {
    struct stint_verdict v = {.capacity = request_capacity(request, now), .flags = STINT_UNTRACKED};
    v.allowed = m.on_full == STINT_FULL_ADMIT || makes_charge(request);
    v.granted = v.allowed && !takes_nothing(request) && !makes_charge(request) ? request->cost : 0;
    v.used = v.granted;
    v.remaining = v.allowed ? v.capacity - v.used : 0;
    v.window = window_end(s, now);
    v.reset_after = v.window - now;
    if (!v.allowed) {
        v.retry_after = v.reset_after;
        add_jitter(s, &v, got);
    }
    v.window = 0; /* none was charged */
    mark_near(s, &v);
    return v;
}

/* The time until a cost fits, of which `sum` is used now. */
static uint64_t wait_in(const struct subject *s, const struct pair *next, uint32_t cost,
                        uint32_t capacity, uint64_t room, uint64_t sum, uint64_t now) {
    if (cost > room)
        return STINT_NEVER;
    if (sum + cost <= room)
        return 0;
    return looks_back(s->policy) ? count_fits_at(s->policy, count_of(next), cost, capacity) - now
                                 : count_wait(s->policy, count_of(next), cost, room, now);
}

/* Whether a verdict counts a strike. */
static bool strikes(const struct subject *s, const struct stint_verdict *v) {
    return s->policy->ban && (v->flags & STINT_FIRST_REFUSAL) && !(v->flags & STINT_OVERRIDDEN);
}

/* What a request gets of a key in the state `next`, and its effect on that. */
static struct stint_verdict expect_in(const struct subject *s, const struct stint_request *request,
                                      uint64_t now, const struct stint_verdict *got,
                                      struct pair *next) {
    const struct stint_policy *policy = s->policy;
    bool peek = takes_nothing(request), charge = makes_charge(request);
    uint32_t cost = request->cost;
    const struct ruled *ruled = NULL;
    if (policy->flags & STINT_OVERRIDES)
        ruled = ruled_at(s->key, s->id, now);
    const bool endless = ruled && ruled->limit == STINT_LIMIT_MAX;
    const bool banned = ruled && ruled->banned;
    struct stint_verdict v = {.capacity = request_capacity(request, now)};
    uint64_t room = v.capacity + (request->flags & STINT_RESERVE ? policy->max_reserved : 0);
    uint64_t sum = count_sum(policy, count_of(next), now);
    next->taken = 0;
    bool fits = (sum + cost <= room && !(ruled && ruled->limit == 0)) || endless;

    if (ruled)
        v.flags |= STINT_OVERRIDDEN | (banned ? STINT_BANNED : 0);
    if (charge) { /* all of it, as far as the count of this window holds it */
        uint32_t most = count_most(policy), left = next->used < most ? most - next->used : 0;
        cost = cost < left ? cost : left;
        fits = true;
    }
    if (!fits && (request->flags & STINT_PARTIAL) && sum < room && !(ruled && !ruled->limit)) {
        cost = (uint32_t)(room - sum);
        fits = true;
    }
    v.allowed = fits;
    if (fits && !charge && !endless && sum + cost > v.capacity) { /* a reservation */
        v.retry_after = count_wait(policy, count_of(next), cost, v.capacity, now);
        take_over_long_wait(s, &v, got);
    }
    if (fits && !peek) {
        uint32_t most = count_most(policy), left = next->used < most ? most - next->used : 0;
        uint32_t counted = endless && cost > left ? left : cost; /* as many as the count holds */
        next->taken = counted;
        next->used += counted;
        sum += counted;
        v.granted = cost;
    }
    if (!fits && !merely_looks(request) && !banned) {
        if (!next->refused)
            v.flags |= STINT_FIRST_REFUSAL;
        next->refused = true;
    }
    if (!fits && !peek) {
        if ((request->flags & STINT_DRAIN) && sum < v.capacity) {
            next->used += (uint32_t)(v.capacity - sum);
            sum = v.capacity;
        }
        if ((policy->flags & STINT_COUNT_REFUSED) && !banned) {
            uint64_t counted = sum + cost < STINT_LIMIT_MAX ? sum + cost : STINT_LIMIT_MAX;
            if (counted > sum)
                next->used = (uint32_t)(sum = counted);
        }
    }
    v.used = (uint32_t)sum;
    v.remaining = v.used < v.capacity ? v.capacity - v.used : 0;
    v.window = next->window;
    v.reset_after = v.window - now;
    if (charge && is_striped(policy))
        take_over_own_charge(&v, got);
    else if (fits && !peek && is_striped(policy))
        take_over_own_stripe(s, &v, got);
    if (!fits) {
        const bool barred = ruled && ruled->limit == 0;
        bool never = cost > room;
        v.retry_after = wait_in(s, next, barred ? UINT32_MAX : cost, v.capacity, room, sum, now);
        uint64_t over = ruled ? ruled->until - now : UINT64_MAX;
        if (v.retry_after >= over) { /* then by what the request would get without it */
            uint32_t own = own_capacity(request);
            uint64_t reserved = request->flags & STINT_RESERVE ? policy->max_reserved : 0;
            v.retry_after = wait_in(s, next, cost, own, own + reserved, sum, now);
            never = cost > own + reserved;
            if (v.retry_after <= over)
                v.retry_after = over;
        }
        struct ruled strike = strikes(s, &v) ? struck(s, now) : (struct ruled){0};
        uint64_t ban = strike.banned ? strike.until - now : 0;
        bool hidden = strike.banned && got->retry_after == ban;
        if (v.retry_after != over && !(hidden && s->lesson->jitter_window != v.window))
            add_jitter(s, &v, got);
        if (!never)
            take_over_long_wait(s, &v, got);
        v.flags |= strike.banned ? STINT_BANNED : 0;
        v.retry_after = v.retry_after > ban ? v.retry_after : ban;
        if (policy->flags & STINT_SHADOW) {
            v.allowed = true;
            v.flags |= STINT_SHADOWED;
        }
    }
    mark_near(s, &v);
    return v;
}

void count_verdict(const struct stint_request *request, const struct stint_verdict *v) {
    if (merely_looks(request))
        return;
    m.replaced += !!(v->flags & STINT_REPLACED);
    if (makes_charge(request)) { /* no decision */
        m.counts[request->policy].charged += v->granted;
        return;
    }
    m.untracked += !!(v->flags & STINT_UNTRACKED);
    count(&m.counts[request->policy], v);
}

struct stint_verdict expect(const struct stint_request *request, uint32_t key, uint64_t now,
                            const struct stint_verdict *got) {
    struct subject s = subject_of(key, request->policy);
    const struct ruled *ruled = ruled_at(key, s.id, now);
    bool only_reads = ruled && ruled->banned && !makes_charge(request);
    bool peek = takes_nothing(request);
    struct stint_verdict v;

    bool full = foresee(&s, now, 0) == FULL;
    if (full && m.on_full != STINT_FULL_REPLACE) {
        v = expect_full(&s, request, now, got);
        count_verdict(request, &v);
        return v;
    }
    if (full && !peek) {
        fewest_used(s.pair, now)->known = false;
        s.pair->known = false; /* all slots are others', so it has lost what it had */
    }

    bool anew = s.pair->known && starts_anew(&s, now);
    bool has_slot = s.pair->known && !anew;
    bool has_none = !has_slot || may_be_lost(&s) || free_at(&s) <= now;
    struct lesson before = *s.lesson;
    struct pair next = {0};
    if (has_slot) {
        next = passed_to(&s, s.pair->window > now ? s.pair->window : window_end(&s, now));
        v = expect_in(&s, request, now, got, &next);
    }
    if (has_none && !(has_slot && same_verdict(&v, got))) {
        *s.lesson = before;
        bool marks = !merely_looks(request) && request->cost > request_capacity(request, now);
        bool takes = ((!peek && request->cost > 0) || marks) && !only_reads;
        uint64_t lost = !has_slot || !takes     ? 0
                        : s.pair->may_have_gone ? s.pair->window
                                                : free_at(&s);
        struct pair fresh = {.known = true, .window = started_window(&s, lost, now, got->window)};
        struct stint_verdict w = expect_in(&s, request, now, got, &fresh);
        if (full && !peek)
            w.flags |= STINT_REPLACED;
        if (!has_slot || same_verdict(&w, got)) {
            v = w;
            next = fresh;
        }
    }
    bool refused = !v.allowed || (v.flags & STINT_SHADOWED);
    bool whole = (v.flags & STINT_OVERRIDDEN) && v.capacity == STINT_LIMIT_MAX; /* never refused */
    bool takes = makes_charge(request) ? v.granted > 0
                 : whole               ? !peek && next.taken > 0
                                       : !peek && request->cost > 0;
    if ((takes || (refused && !merely_looks(request))) && !only_reads) {
        next.may_have_gone = next.unsure = false;
        next.doubt_end = 0;
        *s.pair = next;
    }
    if (strikes(&s, &v)) {
        m.ruled[key][s.id] = struck(&s, now);
        m.counts[s.id].bans += m.ruled[key][s.id].banned;
        show(test_time); /* it claims by the clock */
    }
    count_verdict(request, &v);
    return v;
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

/* Whether a verdict was given at the time of the clock. */
static bool is_decided_by_clock(const struct stint_request *request, uint32_t key,
                                const struct stint_verdict *got) {
    struct subject s = subject_of(key, request->policy);
    bool untracked = got->flags & STINT_UNTRACKED;
    return (untracked ? window_end(&s, test_time) : got->window) - got->reset_after == test_time;
}

void compare(const struct stint_request *request, uint32_t key, uint64_t now,
             const struct stint_verdict *got, const char *what) {
    struct pair before = m.pairs[key][request->policy];
    struct ruled ruled = m.ruled[key][request->policy];
    if (is_very_late(now) && is_decided_by_clock(request, key, got))
        now = test_time;
    struct stint_verdict expected = expect(request, key, now, got);
    m.compared++;
    note_request(request, got);
    show(now);
    if (same_verdict(got, &expected))
        return;
    explain(request, now, what);
    print_error("highest_yet %" PRIu64 ", highest %" PRIu64 ", very late %d\n", m.highest_yet,
                m.highest, is_very_late(now));
    print_error("before: known %d, unsure %d, may_have_gone %d, refused %d, used %" PRIu32
                ", previous %" PRIu32 ", window %" PRIu64 "\n",
                before.known, before.unsure, before.may_have_gone, before.refused, before.used,
                before.previous, before.window);
    print_error("override: limit %" PRIu32 ", strikes %" PRIu32
                ", banned %d, open %d, until %" PRIu64 "\n",
                ruled.limit, ruled.strikes, ruled.banned, ruled.open, ruled.until);
    print_verdict("expected", &expected);
    print_verdict("got     ", got);
    fail();
}
