/* SPDX-License-Identifier: MIT */
#include "model.h"

#include <inttypes.h>
#include <stdio.h>

__extension__ typedef unsigned __int128 wide;

#define DAY_NS UINT64_C(86400000000000)

/* Of a key's mark, its first refusal (model_key.refused). */
enum { UNMARKED, MARKED, OPEN };

/* Of a bucket: "limit at most 10 million a second". */
enum { LEAST_TOKEN = 100 /* ns */ };

static uint64_t least_of(uint64_t one, uint64_t other) {
    return one < other ? one : other;
}

static uint64_t most_of(uint64_t one, uint64_t other) {
    return one > other ? one : other;
}

static uint64_t ceil_div(uint64_t a, uint64_t b) {
    return a / b + (a % b != 0);
}

static uint64_t tick_at(uint64_t time) {
    return time / STINT_TICK_NS * STINT_TICK_NS;
}

static uint64_t tick_from(uint64_t time) {
    return ceil_div(time, STINT_TICK_NS) * STINT_TICK_NS;
}

/* base + n * window: "tells what is too long for 64 bits as STINT_NEVER - 1." */
static uint64_t wait_of(uint64_t base, uint64_t n, uint64_t window) {
    wide wait = (wide)n * window + base;
    return wait < STINT_NEVER ? (uint64_t)wait : STINT_NEVER - 1;
}

/* ---- Policies -------------------------------------------------------------------------------- */

/* "0: it counts in windows" */
bool is_bucket(const struct stint_policy *policy) {
    return policy->burst > 0;
}

/* "most tokens a key can hold; 0: limit; below the limit, a window grants no more than this"; "a
 * token bucket that holds so many" */
uint32_t capacity_of(const struct stint_policy *policy) {
    if (is_bucket(policy))
        return policy->burst;
    return policy->capacity ? policy->capacity : policy->limit;
}

static bool is_smooth(const struct stint_policy *policy) {
    return policy->flags & STINT_SMOOTH;
}

bool is_in_flight(const struct stint_policy *policy) {
    return policy->flags & STINT_IN_FLIGHT;
}

/* Smooth: "ceil(previous * time left in this window / window) + current"; in flight: "what nobody
 * gives back ... is forgotten by itself, one to two windows after it was taken". */
bool looks_back(const struct stint_policy *policy) {
    return is_smooth(policy) || is_in_flight(policy);
}

bool is_striped(const struct stint_policy *policy) {
    return policy->stripes > 1;
}

bool is_first(const struct stint_policy *policy) {
    return policy->flags & STINT_START_FIRST;
}

bool is_calendar(const struct stint_policy *policy) {
    return policy->calendar != 0;
}

/* "With a capacity above the limit, or with max_reserved, what is used is paid back by `limit`
 * tokens in every new window." */
bool carries(const struct stint_policy *policy) {
    return !is_bucket(policy) && (capacity_of(policy) > policy->limit || policy->max_reserved > 0);
}

/* "a token each T = window / limit, rounded up to a whole ns" */
uint64_t token_time(const struct stint_policy *policy) {
    return ceil_div(policy->window, policy->limit);
}

/* "It charges the window of now, up to what a key can hold: 2^28 tokens; by a smooth policy 16,383
 * in each window; where tokens carry over, capacity + max_reserved; by a bucket, burst +
 * max_reserved." */
uint32_t count_most(const struct stint_policy *policy) {
    if (looks_back(policy))
        return 16383;
    return carries(policy) || is_bucket(policy) ? capacity_of(policy) + policy->max_reserved
                                                : STINT_LIMIT_MAX;
}

/* The shortest time between a refusal in one window and one in another, so many windows later. */
static uint64_t shortest_between(const struct stint_policy *policy, uint64_t windows) {
    static const uint64_t days[] = {0,   28,  59,  89,  120, 150, 181,
                                    212, 242, 273, 303, 334, 365, 393};
    if (windows <= 1)
        return 0;
    if (!is_calendar(policy))
        return (windows - 1) * policy->window;
    uint64_t months = (windows - 1) * (policy->calendar == STINT_CALENDAR_YEAR ? 12 : 1);
    return days[months < 13 ? months : 13] * DAY_NS;
}

/* "burst + max_reserved is at most 2^28, and comes back within 366 days. limit at most 10 million a
 * second". "`burst` goes with max_reserved, and with nothing else in the table. Its capacity must
 * be 0." */
static bool valid_bucket(const struct stint_policy *policy) {
    return policy->limit <= policy->window / LEAST_TOKEN && policy->capacity == 0 &&
           policy->start == 0 && policy->calendar == 0 && policy->stripes <= 1 &&
           (policy->flags & ~(uint32_t)(STINT_SHADOW | STINT_OVERRIDES)) == 0 &&
           (wide)count_most(policy) * token_time(policy) <= STINT_WINDOW_MAX;
}

/* "0: as long as `ban`" */
static uint64_t ban_within(const struct stint_policy *policy) {
    return policy->ban_within ? policy->ban_within : policy->ban;
}

/* A time that is a multiple of 10 ms, up to 366 days. */
static bool valid_time(uint64_t time) {
    return time >= STINT_WINDOW_MIN && time <= STINT_WINDOW_MAX && time % STINT_TICK_NS == 0;
}

/* "months begin on this day of the month (1 .. 28)" */
static bool valid_times(const struct stint_policy *policy) {
    if (policy->start % (int64_t)STINT_TICK_NS != 0)
        return false;
    if (!is_calendar(policy))
        return valid_time(policy->window) && policy->offset == 0;
    return policy->calendar <= STINT_CALENDAR_YEAR && policy->window == 0 &&
           policy->offset >= -720 && policy->offset <= 840 && calendar_start(policy).tm_mday <= 28;
}

static bool valid_ban(const struct stint_policy *policy) {
    if (policy->ban == 0)
        return policy->ban_after == 0 && policy->ban_within == 0;
    return (policy->flags & STINT_OVERRIDES) && valid_time(policy->ban) &&
           policy->ban_after <= STINT_BAN_AFTER_MAX &&
           (policy->ban_within == 0 || valid_time(policy->ban_within));
}

/* The table of WHAT GOES TOGETHER, and the ranges in struct stint_policy. */
bool model_valid(const struct stint_policy *policy) {
    const bool refused = policy->flags & STINT_COUNT_REFUSED, striped = is_striped(policy);
    const bool per_key = policy->flags & STINT_START_PER_KEY, back = looks_back(policy);
    if (policy->limit == 0 || policy->limit > STINT_LIMIT_MAX || policy->near_limit > 100 ||
        policy->jitter > 100 ||
        (uint64_t)capacity_of(policy) + policy->max_reserved > STINT_LIMIT_MAX ||
        !valid_times(policy) || !valid_ban(policy))
        return false;
    /* "within ban_within of the first ... ban_within must be longer than ban_after - 2 windows". A
     * bucket's instant may pass those of a whole burst at once. */
    const uint64_t at_once = is_bucket(policy) ? tick_at(policy->burst * token_time(policy)) : 0;
    if (policy->ban && policy->ban_after &&
        ban_within(policy) + at_once <= shortest_between(policy, policy->ban_after - 1))
        return false;
    if (is_bucket(policy) && !valid_bucket(policy))
        return false;
    if (carries(policy) && (refused || striped || back || is_first(policy) || is_calendar(policy)))
        return false;
    if (back &&
        (policy->limit > 16383 || capacity_of(policy) != policy->limit || striped || refused))
        return false;
    if (per_key + is_first(policy) + is_calendar(policy) > 1 ||
        (policy->start != 0 && (per_key || is_first(policy))) ||
        ((is_first(policy) || is_calendar(policy)) && (striped || is_smooth(policy))))
        return false;
    if (is_in_flight(policy) && (is_smooth(policy) || is_first(policy) || is_calendar(policy) ||
                                 per_key || policy->start != 0))
        return false;
    if ((policy->flags & STINT_OVERRIDES) && (striped || is_in_flight(policy)))
        return false;
    return !striped || (policy->stripes <= 64 && (policy->stripes & (policy->stripes - 1)) == 0 &&
                        policy->stripes <= policy->limit &&
                        policy->stripes <= capacity_of(policy) && !refused && !per_key);
}

struct tm calendar_start(const struct stint_policy *policy) {
    time_t seconds = policy->start / 1000000000 - (policy->start % 1000000000 < 0);
    struct tm start;
    gmtime_r(&seconds, &start);
    return start;
}

/* When a calendar policy's window begins in that month of that year (both as struct tm has them; a
 * month may be any number), or would if each month began one. */
static int64_t calendar_begin(const struct stint_policy *policy, int year, int month) {
    struct tm start = calendar_start(policy), begin = {.tm_year = year, .tm_mon = month};
    int64_t ns = policy->start % 1000000000;
    if (ns < 0)
        ns += 1000000000;
    begin.tm_mday = start.tm_mday;
    begin.tm_hour = start.tm_hour;
    begin.tm_min = start.tm_min;
    begin.tm_sec = start.tm_sec;
    return (timegm(&begin) - policy->offset * 60) * 1000000000 + ns;
}

/* "months begin on this day of the month ... at this time of day, years in this month, too" */
uint64_t calendar_edge(const struct stint_policy *policy, uint64_t now, bool end) {
    bool yearly = policy->calendar == STINT_CALENDAR_YEAR;
    int start_month = calendar_start(policy).tm_mon;
    time_t seconds = (time_t)(now / 1000000000);
    int64_t last = 0;
    struct tm tm;
    gmtime_r(&seconds, &tm);
    for (int month = tm.tm_mon - (yearly ? 24 : 3);; month++) {
        if (yearly && (month - start_month) % 12 != 0)
            continue;
        int64_t begin = calendar_begin(policy, tm.tm_year, month);
        if (begin > (int64_t)now)
            return (uint64_t)(end ? begin : last);
        last = begin;
    }
}

uint64_t longest_window(const struct stint_policy *policy) {
    if (!is_calendar(policy))
        return policy->window;
    return policy->calendar == STINT_CALENDAR_YEAR ? 366 * DAY_NS : 31 * DAY_NS;
}

/* How long the window is that ends at `end`. */
static uint64_t window_length(const struct stint_policy *policy, uint64_t end) {
    return is_calendar(policy) ? end - calendar_edge(policy, end - 1, false) : policy->window;
}

/* "Windows are [start + k * window, start + (k + 1) * window) for every integer k, or those of
 * STINT_START_FIRST, or of the calendar." A first one "begins with a tick". A bucket that is full
 * is so at `now`. */
uint64_t window_end_at(const struct stint_policy *policy, uint64_t phase, uint64_t now) {
    if (is_calendar(policy))
        return calendar_edge(policy, now, true);
    if (is_first(policy))
        return tick_at(now) + policy->window;
    if (is_bucket(policy))
        return now;
    int64_t window = (int64_t)policy->window;
    int64_t into = ((int64_t)now - policy->start - (int64_t)phase) % window;
    if (into < 0)
        into += window;
    return (uint64_t)((int64_t)now - into + window);
}

/* H: a backward step of the clock holds a key up "for its window and 60 s"; "by a bucket, until all
 * of burst and max_reserved is back (or a window, if that is longer), 60 s and two ticks". (It is
 * measured from tick to tick.) */
bool is_far_ahead(const struct stint_policy *policy, uint64_t end, uint64_t now) {
    uint64_t longest = longest_window(policy);
    if (is_bucket(policy))
        longest =
            tick_at(most_of(count_most(policy) * token_time(policy), longest)) + 2 * STINT_TICK_NS;
    return end > now && end - now > longest + MODEL_ALLOWANCE;
}

/* ---- Requests -------------------------------------------------------------------------------- */

bool takes_nothing(const struct stint_request *request) {
    return request->flags & STINT_PEEK;
}

/* "STINT_PEEK | STINT_CHARGE is the look before a charge. It takes nothing, but it is a
 * decision." */
bool merely_looks(const struct stint_request *request) {
    return (request->flags & (STINT_PEEK | STINT_CHARGE)) == STINT_PEEK;
}

bool makes_charge(const struct stint_request *request) {
    return (request->flags & (STINT_PEEK | STINT_CHARGE)) == STINT_CHARGE;
}

/* In flight "STINT_DRAIN and STINT_CHARGE (the look, too) are STINT_BAD_REQUEST"; by stripes
 * "STINT_DRAIN, STINT_PARTIAL (in a look, too) and a limit of the request's own are
 * STINT_BAD_REQUEST." */
uint32_t unfit_flags(const struct stint_policy *policy) {
    return is_in_flight(policy) ? STINT_DRAIN | STINT_CHARGE
           : is_striped(policy) ? STINT_DRAIN | STINT_PARTIAL
                                : 0;
}

bool unfit(const struct stint_policy *policy, const struct stint_request *request) {
    return (request->flags & unfit_flags(policy)) || (request->limit && is_striped(policy)) ||
           (request->burst && !is_bucket(policy));
}

void model_count(struct stint_policy_stats *counts, const struct stint_request *request,
                 const struct stint_verdict *v) {
    const bool shadowed = v->flags & STINT_SHADOWED;
    if (merely_looks(request))
        return;
    counts->first_refusals += (v->flags & STINT_FIRST_REFUSAL) != 0;
    if (makes_charge(request)) /* no decision */
        counts->charged += v->granted;
    if (makes_charge(request))
        return;
    counts->allowed += v->allowed && !shadowed;
    counts->refused += !v->allowed;
    counts->shadowed += shadowed;
    counts->untracked += (v->flags & STINT_UNTRACKED) != 0;
    counts->near_limit += v->allowed && !shadowed && (v->flags & STINT_NEAR_LIMIT) != 0;
}

const char *model_unlike(const struct stint_policy_stats *got,
                         const struct stint_policy_stats *expected) {
    static char text[100];
    const struct {
        const char *name;
        uint64_t got, expected;
    } counts[] = {
        {"allowed", got->allowed, expected->allowed},
        {"refused", got->refused, expected->refused},
        {"shadowed", got->shadowed, expected->shadowed},
        {"first refusals", got->first_refusals, expected->first_refusals},
        {"untracked", got->untracked, expected->untracked},
        {"near the limit", got->near_limit, expected->near_limit},
        {"charged", got->charged, expected->charged},
        {"refunded", got->refunded, expected->refunded},
    };
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        if (counts[i].got != counts[i].expected) {
            snprintf(text, sizeof text, "%" PRIu64 " %s, not %" PRIu64, counts[i].got,
                     counts[i].name, counts[i].expected);
            return text;
        }
    return NULL;
}

/* ---- A key ----------------------------------------------------------------------------------- */

/* The mark of a bucket whose instant goes from one to another. "A refusal is a first one ... unless
 * there was one since that instant last passed a multiple of `window`." A limiter may keep the
 * instant's tick, rounded up, in place of it: where these two differ it is open. */
static uint32_t mark_moved(const struct stint_policy *policy, uint32_t mark, uint64_t from,
                           uint64_t to) {
    const uint64_t window = policy->window;
    const bool passed = from / window != to / window;
    const bool tick_passed =
        (tick_at(from) + STINT_TICK_NS) / window != (tick_at(to) + STINT_TICK_NS) / window;
    if (mark == UNMARKED || (passed && tick_passed && to > from))
        return UNMARKED;
    return passed || tick_passed ? OPEN : mark;
}

/* "If the bucket was full in between, there may be another." */
static struct model_key bucket_filled(const struct stint_policy *policy, struct model_key key,
                                      uint64_t now) {
    const uint32_t mark = mark_moved(policy, key.refused, key.window, now);
    return (struct model_key){
        .window = now, .refused = mark == UNMARKED ? UNMARKED : OPEN, .known = true};
}

/* The key in the window that ends at `end`, its own or a later one. "used = max(0, used - limit *
 * windows passed)"; a plain policy "begins every window with nothing used". */
static struct model_key passed_to(const struct stint_policy *policy, struct model_key key,
                                  uint64_t end) {
    if (is_bucket(policy))
        return key.window > end ? key : bucket_filled(policy, key, end);
    uint64_t passed = is_calendar(policy) ? end != key.window : (end - key.window) / policy->window;
    uint64_t paid = carries(policy) ? passed * policy->limit : UINT64_MAX;
    if (passed == 0)
        return key;
    return (struct model_key){
        .window = end,
        .used = key.used > paid ? (uint32_t)(key.used - paid) : 0,
        .previous = looks_back(policy) && passed == 1 ? key.used : 0,
        .known = true,
    };
}

/* "A late caller joins the newer window that its key is in." */
struct model_key model_at(const struct stint_policy *policy, uint64_t phase, struct model_key key,
                          uint64_t now) {
    const uint64_t end = window_end_at(policy, phase, now);
    if (!key.known)
        return (struct model_key){.window = end, .known = true};
    return key.window > now ? key : passed_to(policy, key, end);
}

/* Of a bucket that is full its slot is free a tick later. */
uint64_t model_free_at(const struct stint_policy *policy, struct model_key key) {
    if (is_bucket(policy))
        return tick_at(key.window) + STINT_TICK_NS;
    if (looks_back(policy))
        return key.window + (key.used > 0 ? policy->window : 0);
    if (!carries(policy) || key.used <= policy->limit)
        return key.window;
    return wait_of(key.window, ceil_div(key.used, policy->limit) - 1, policy->window);
}

/* "If that flag is taken away, its overrides are not looked at until it is given again." */
bool model_rules(const struct stint_policy *policy, const struct model_ruling *ruling,
                 uint64_t now) {
    return (policy->flags & STINT_OVERRIDES) && now < ruling->until && !ruling->strikes;
}

/* "rounded up to 10 ms" */
uint64_t model_override_end(uint64_t until) {
    return tick_from(until);
}

/* "A ban ends with a tick, up to 10 ms sooner." */
uint64_t model_ban_end(const struct stint_policy *policy, uint64_t now) {
    return tick_at(now + policy->ban);
}

/* "A key that was refused in so many of them, within ban_within of the first, is banned". Each
 * lasts until the next tick at least. */
struct model_ruling model_struck(const struct stint_policy *policy,
                                 const struct model_ruling *ruling, uint64_t now) {
    const bool goes_on = now < ruling->until;
    const uint64_t least = tick_at(now) + STINT_TICK_NS;
    struct model_ruling next = {.strikes = (goes_on ? ruling->strikes : 0) + 1};
    if (next.strikes >= policy->ban_after) {
        next.banned = true;
        next.strikes = 0;
        next.until = most_of(model_ban_end(policy, now), least);
    } else {
        next.until =
            next.strikes > 1 ? ruling->until : most_of(tick_from(now + ban_within(policy)), least);
    }
    return next;
}

/* ---- Deciding -------------------------------------------------------------------------------- */

struct model_by model_by(const struct stint_policy *policy) {
    return (struct model_by){
        .policy = policy, .charging = policy, .telling = policy, .near_limit = policy->near_limit};
}

/* "0 refuses everything, requests for no tokens too. 2^28 never refuses" */
static bool is_barred(const struct model_by *by) {
    return by->ruling && by->ruling->limit == 0;
}

static bool is_endless(const struct model_by *by) {
    return by->ruling && by->ruling->limit == STINT_LIMIT_MAX;
}

/* "A limit of the request's own, or an override, changes T". "More than 10 million a second counts
 * as 10 million. A key that is barred, banned or never refused counts by the policy's T." */
static uint64_t token_by(const struct model_by *by, const struct stint_request *request) {
    const struct stint_policy *policy = by->policy;
    uint64_t limit = request->limit ? request->limit : policy->limit;
    if (by->ruling)
        limit = is_barred(by) || is_endless(by) ? policy->limit : by->ruling->limit;
    return most_of(ceil_div(policy->window, limit), LEAST_TOKEN);
}

/* "The bucket lasts as long as before: it holds burst * T / T2 tokens, rounded down, but one at
 * least. The same goes for max_reserved." */
static uint64_t tokens_in(const struct model_by *by, const struct stint_request *request,
                          uint32_t tokens) {
    const uint64_t own = token_by(by, request);
    return least_of(most_of(tokens * token_time(by->policy), own) / own, STINT_LIMIT_MAX);
}

/* "how much of a bucket ... may be used after this request", "0, or more: all that the policy
 * allows". */
static uint64_t cut_to_burst(const struct stint_request *request, uint64_t tokens) {
    return request->burst ? least_of(tokens, request->burst) : tokens;
}

/* "this call's own limit in place of the policy's capacity ... 1 .. 2^28 (smooth, in flight:
 * 16,383); more is taken as that" */
static uint32_t own_capacity(const struct model_by *by, const struct stint_request *request) {
    const struct stint_policy *policy = by->policy;
    if (is_bucket(policy))
        return (uint32_t)cut_to_burst(request, tokens_in(by, request, policy->burst));
    const uint32_t most = looks_back(policy) ? 16383 : STINT_LIMIT_MAX;
    return request->limit ? (uint32_t)least_of(request->limit, most) : capacity_of(policy);
}

/* An override's limit is "in place of the policy's capacity and request.limit". "2^28 never
 * refuses". "Else a smooth policy takes 16,383 at most". */
uint32_t model_capacity(const struct model_by *by, const struct stint_request *request) {
    if (!by->ruling)
        return own_capacity(by, request);
    const uint32_t limit = by->ruling->limit;
    if (is_bucket(by->policy) && !is_barred(by) && !is_endless(by))
        return (uint32_t)cut_to_burst(request, tokens_in(by, request, by->policy->burst));
    return looks_back(by->policy) && limit < STINT_LIMIT_MAX ? (uint32_t)least_of(limit, 16383)
                                                             : limit;
}

/* The most that may be used after a request. "Take up to the policy's max_reserved tokens ahead."
 * "more is taken as that, also with what STINT_RESERVE may take". */
static uint64_t room_in(const struct model_by *by, const struct stint_request *request,
                        uint32_t capacity) {
    const bool reserves = request->flags & STINT_RESERVE;
    if (is_bucket(by->policy))
        return reserves ? cut_to_burst(request, tokens_in(by, request, count_most(by->policy)))
                        : capacity;
    return least_of((uint64_t)capacity + (reserves ? by->policy->max_reserved : 0),
                    STINT_LIMIT_MAX);
}

/* "ceil(previous * time left in this window / window)
 * + current". To a late caller all of the window is left. */
uint64_t model_sum(const struct stint_policy *policy, const struct model_key *key, uint64_t now) {
    const uint64_t window = policy->window, left = key->window - now;
    if (is_bucket(policy))
        return key->window > now ? ceil_div(left, token_time(policy)) : 0;
    if (is_in_flight(policy))
        return (uint64_t)key->previous + key->used;
    if (!is_smooth(policy))
        return key->used;
    return (uint64_t)(((wide)key->previous * least_of(left, window) + window - 1) / window) +
           key->used;
}

/* When `cost` fits, which does not now, where the window before counts. In flight: "by then what
 * is held now is forgotten". */
static uint64_t fits_at(const struct stint_policy *policy, const struct model_key *key,
                        uint32_t cost, uint64_t room) {
    const uint64_t window = policy->window;
    const bool in_this = key->used + (uint64_t)cost <= room;
    if (is_in_flight(policy))
        return key->window + (in_this ? 0 : window);
    if (in_this)
        return key->window - (uint64_t)((wide)(room - key->used - cost) * window / key->previous);
    return key->window + window - (uint64_t)((wide)(room - cost) * window / key->used);
}

/* The same by what a request is judged by. */
static uint64_t sum_by(const struct model_by *by, const struct stint_request *request,
                       const struct model_key *key, uint64_t now) {
    return is_bucket(by->policy) ? ceil_div(key->window - now, token_by(by, request))
                                 : model_sum(by->policy, key, now);
}

/* The tokens that the count has room for. */
static uint64_t holds_more(const struct model_by *by, const struct stint_request *request,
                           const struct model_key *key, uint64_t now) {
    struct model_by charging = *by;
    if (makes_charge(request))
        charging.policy = by->charging;
    uint64_t most = count_most(charging.policy), has = key->used;
    if (is_bucket(by->policy)) {
        most = tokens_in(&charging, request, (uint32_t)most);
        has = sum_by(&charging, request, key, now);
    }
    return has < most ? most - has : 0;
}

/* A bucket's request "of cost c moves it ahead by c * T". */
static void add_used(const struct model_by *by, const struct stint_request *request,
                     uint64_t tokens, struct model_key *key) {
    const uint64_t from = key->window;
    if (!is_bucket(by->policy)) {
        key->used += (uint32_t)tokens;
        return;
    }
    key->window += tokens * token_by(by, request);
    key->refused = mark_moved(by->policy, key->refused, from, key->window);
}

/* The ns until all but `room` of so many tokens is paid back. */
static uint64_t paid_in(const struct stint_policy *policy, const struct model_key *key,
                        uint64_t tokens, uint64_t room, uint64_t now) {
    const uint64_t left = key->window - now;
    if (!carries(policy) || tokens <= room)
        return left;
    return wait_of(left, ceil_div(tokens - room, policy->limit) - 1, policy->window);
}

/* A bucket's request "fits if it is then at most burst * T ahead of now": the ns until then. */
static uint64_t filled_in(const struct model_by *by, const struct stint_request *request,
                          const struct model_key *key, uint64_t cost, uint64_t room, uint64_t now) {
    const uint64_t token = token_by(by, request);
    const wide ahead = key->window - now + (wide)cost * token, most = (wide)room * token;
    return ahead <= most ? 0 : (uint64_t)(ahead - most);
}

/* "Granted: 0; of a reservation the ns to wait before its tokens are there" */
static uint64_t there_in(const struct model_by *by, const struct stint_request *request,
                         const struct model_key *key, uint64_t cost, uint64_t capacity,
                         uint64_t now) {
    return is_bucket(by->policy) ? filled_in(by, request, key, cost, capacity, now)
                                 : paid_in(by->telling, key, key->used + cost, capacity, now);
}

/* "ns until the whole cost would fit if nobody else took" */
static uint64_t wait_for(const struct model_by *by, const struct stint_request *request,
                         const struct model_key *key, uint64_t room, uint64_t now) {
    const uint64_t cost = request->cost;
    if (cost > room)
        return STINT_NEVER;
    if (is_bucket(by->policy))
        return filled_in(by, request, key, cost, room, now);
    if (sum_by(by, request, key, now) + cost <= room)
        return 0;
    return looks_back(by->policy) ? fits_at(by->policy, key, request->cost, room) - now
                                  : paid_in(by->telling, key, key->used + cost, room, now);
}

/* What a refusal tells of its wait, which is not below `least`. "A refusal's retry_after takes
 * into account when the override ends": then it is judged without; if that is what it waits for,
 * there is no jitter. "later by a part of this, which key and window tell". */
static void refuse(const struct model_by *by, const struct stint_request *request, uint64_t now,
                   const struct model_key *key, uint64_t least, struct model_answer *answer) {
    struct stint_verdict *v = &answer->verdict;
    const uint64_t over = by->ruling ? by->ruling->until - now : UINT64_MAX;
    uint64_t room = is_barred(by) ? 0 : room_in(by, request, v->capacity);
    v->retry_after = most_of(wait_for(by, request, key, room, now), least);
    if (by->ruling && (v->retry_after >= over || is_barred(by))) {
        struct model_by then = *by;
        then.policy = by->telling;
        then.ruling = NULL;
        room = room_in(&then, request, own_capacity(&then, request));
        v->retry_after = most_of(wait_for(&then, request, key, room, now), most_of(over, least));
    }
    if (v->retry_after != STINT_NEVER && v->retry_after != over) {
        answer->jitter_below =
            (uint64_t)(((wide)window_length(by->policy, key->window) * by->policy->jitter + 99) /
                       100);
        /* Of a bucket it is computed anew for each instant: any part of it will do. */
        answer->jitter_of = is_bucket(by->policy) ? UINT64_MAX : key->window;
    }
    if (by->policy->flags & STINT_SHADOW) {
        v->allowed = true;
        v->flags |= STINT_SHADOWED;
    }
}

/* "More than the policy's near_limit percent of the capacity is used." */
static void tell_used(struct model_answer *answer, uint64_t used) {
    struct stint_verdict *v = &answer->verdict;
    v->used = (uint32_t)least_of(used, UINT32_MAX);
    v->remaining = v->used < v->capacity ? v->capacity - v->used : 0;
    v->flags &= ~(uint32_t)STINT_NEAR_LIMIT;
    if (answer->near_limit && used * 100 > (uint64_t)v->capacity * answer->near_limit)
        v->flags |= STINT_NEAR_LIMIT;
}

/* What a refusal takes: "If the cost does not fit, refuse it and take what is left." "Refused
 * tokens count as used, up to 2^28." Returns the tokens. */
static uint64_t refusal_takes(const struct model_by *by, const struct stint_request *request,
                              uint32_t capacity, uint64_t sum) {
    uint64_t taken = 0;
    if (takes_nothing(request))
        return 0;
    if ((request->flags & STINT_DRAIN) && sum < capacity)
        taken = capacity - sum;
    if ((by->policy->flags & STINT_COUNT_REFUSED) && !(by->ruling && by->ruling->banned) &&
        sum + taken < STINT_LIMIT_MAX)
        taken += least_of(request->cost, STINT_LIMIT_MAX - sum - taken);
    return taken;
}

/* How far the estimate of a striped key may be off: "by the share of the other stripes at most". A
 * charge may fill one share alone. */
static uint32_t estimate_off(const struct model_by *by, const struct stint_request *request) {
    const uint64_t stripes = by->policy->stripes;
    if (!is_striped(by->policy) || takes_nothing(request))
        return 0;
    return makes_charge(request) ? UINT32_MAX
                                 : (uint32_t)(capacity_of(by->policy) * (stripes - 1) / stripes);
}

/* What a verdict says whatever becomes of the request. */
static struct model_answer answer_by(const struct model_by *by,
                                     const struct stint_request *request) {
    const uint32_t banned = by->ruling && by->ruling->banned ? STINT_BANNED : 0;
    return (struct model_answer){
        .near_limit = by->near_limit,
        .verdict = {.flags = by->ruling ? STINT_OVERRIDDEN | banned : 0,
                    .capacity = model_capacity(by, request),
                    .policy = request->policy,
                    .unit = is_bucket(by->policy) ? token_by(by, request) : 0}};
}

struct model_answer model_decide(const struct model_by *by, const struct stint_request *request,
                                 uint64_t now, struct model_key *key) {
    const bool peek = takes_nothing(request), charge = makes_charge(request);
    const bool banned = by->ruling && by->ruling->banned;
    struct model_answer answer = answer_by(by, request);
    struct stint_verdict *v = &answer.verdict;
    const uint64_t room = room_in(by, request, v->capacity);
    uint64_t sum = sum_by(by, request, key, now);
    const uint64_t holds = holds_more(by, request, key, now);
    const struct model_key before = *key;
    if (is_endless(by)) { /* "2^28 never refuses, and takes nothing." */
        v->allowed = true;
        v->window = key->window;
        v->reset_after = key->window - now;
        tell_used(&answer, sum);
        return answer;
    }
    uint32_t cost = request->cost;
    bool fits = charge || (sum + cost <= room && !is_barred(by));
    if (charge) /* "A charge is never refused." "What is more is cut off." */
        cost = (uint32_t)least_of(cost, holds);
    if (!fits && (request->flags & STINT_PARTIAL) && sum < room && !is_barred(by)) {
        cost = (uint32_t)(room - sum); /* "Take what is left if that is less than the cost" */
        fits = true;
    }
    v->allowed = fits;
    if (fits && !charge && sum + cost > v->capacity) /* a reservation */
        v->retry_after = there_in(by, request, key, cost, v->capacity, now);
    if (fits && !peek) {
        add_used(by, request, cost, key);
        sum += cost;
        v->granted = cost;
        answer.off = estimate_off(by, request);
    }
    if (!fits) { /* a bucket that it empties is refused at the instant that is so reached */
        const uint64_t taken = refusal_takes(by, request, v->capacity, sum);
        add_used(by, request, taken, key);
        sum += taken;
        refuse(by, request, now, key, 0, &answer);
    }
    /* STINT_TENTATIVE: "it tells no FIRST_REFUSAL, counts no strike, and writes no mark". */
    if (!fits && !merely_looks(request) && !banned && !(request->flags & STINT_TENTATIVE)) {
        if (key->refused == UNMARKED)
            v->flags |= STINT_FIRST_REFUSAL;
        answer.maybe_first = key->refused == OPEN;
        answer.touched = true;
        key->refused = MARKED;
    }
    v->window = key->window;
    v->reset_after = key->window - now;
    answer.touched |= key->used != before.used || key->window != before.window;
    tell_used(&answer, sum);
    return answer;
}

/* "A request that takes nothing and is not refused needs no slot. A look (STINT_PEEK) is told what
 * its request would be told. No key is replaced only to mark a refusal." */
enum model_full model_on_full(const struct model_by *by, enum stint_on_full on_full,
                              const struct stint_request *request, uint64_t now) {
    struct model_key key = model_at(by->policy, by->phase, (struct model_key){0}, now);
    struct stint_request asked = *request;
    if (takes_nothing(request)) {
        struct model_key looked = key;
        if (model_decide(by, request, now, &looked).touched) /* the look before a charge */
            return MODEL_UNTRACKED;
        asked.flags &= ~(uint32_t)(STINT_PEEK | STINT_CHARGE);
    }
    const struct model_answer answer = model_decide(by, &asked, now, &key);
    const bool takes = is_bucket(by->policy) ? key.window > now : key.used > 0;
    if (!answer.touched)
        return MODEL_NEEDS_NONE;
    if (on_full != STINT_FULL_REPLACE || !takes)
        return MODEL_UNTRACKED;
    return takes_nothing(request) ? MODEL_NEEDS_NONE : MODEL_REPLACES;
}

/* STINT_FULL_ADMIT: "what is within the capacity is let through". STINT_FULL_REFUSE: "it is
 * refused ... Its retry_after is at least the rest of the window that the key would be in; by a
 * bucket, at least T". "`window` is 0 ... `granted` is what was let through." A charge: "nothing
 * is charged, and the request is allowed and marked STINT_UNTRACKED". */
struct model_answer model_untracked(const struct model_by *by, enum stint_on_full on_full,
                                    const struct stint_request *request, uint64_t now) {
    const struct model_key key = model_at(by->policy, by->phase, (struct model_key){0}, now);
    struct model_answer answer = answer_by(by, request);
    struct stint_verdict *v = &answer.verdict;
    v->flags |= STINT_UNTRACKED;
    v->reset_after = key.window - now;

    const bool charge = makes_charge(request), bucket = is_bucket(by->policy);
    const uint64_t room = room_in(by, request, v->capacity);
    const uint64_t least = bucket ? token_by(by, request) : v->reset_after;
    uint64_t cost = charge ? 0 : request->cost;
    bool fits = cost <= room;
    if (!fits && (request->flags & STINT_PARTIAL)) {
        cost = room;
        fits = true;
    }
    fits = charge || (fits && !is_barred(by) && on_full != STINT_FULL_REFUSE);
    v->allowed = fits;
    if (fits && !takes_nothing(request))
        v->granted = (uint32_t)cost;
    if (bucket)
        v->reset_after = v->granted * token_by(by, request);
    tell_used(&answer, v->granted);
    if (fits && cost > v->capacity)
        v->retry_after = there_in(by, request, &key, cost, v->capacity, now);
    if (!fits) {
        v->remaining = 0;
        refuse(by, request, now, &key, least, &answer);
    }
    return answer;
}

/* The wait that an answer tells, with so much jitter. */
static uint64_t model_wait(const struct model_answer *answer, uint64_t jitter) {
    uint64_t wait = answer->verdict.retry_after;
    if (answer->jitter_below)
        wait = wait_of(wait, 1, jitter);
    return most_of(wait, answer->wait_least);
}

/* "The key is banned (stint_policy.ban), perhaps since this very refusal. retry_after is the time
 * until the ban is over and the cost fits." */
void model_ban(struct model_answer *answer, uint64_t now, uint64_t until) {
    answer->verdict.flags |= STINT_BANNED;
    answer->wait_least = until > now ? until - now : 0;
}

static bool same_but_wait(const struct stint_verdict *a, const struct stint_verdict *b) {
    return a->allowed == b->allowed && a->flags == b->flags && a->capacity == b->capacity &&
           a->used == b->used && a->remaining == b->remaining && a->granted == b->granted &&
           a->window == b->window && a->reset_after == b->reset_after && a->policy == b->policy &&
           a->generation == b->generation && a->unit == b->unit;
}

void model_settle(struct model_answer *answer, const struct stint_verdict *got) {
    if (answer->maybe_first)
        answer->verdict.flags |= got->flags & STINT_FIRST_REFUSAL;
    answer->maybe_first = false;
}

bool model_allows(const struct model_answer *answer, const struct stint_verdict *got,
                  struct model_jitter *known) {
    struct model_answer told = *answer;
    model_settle(&told, got);
    const uint32_t remaining = answer->verdict.remaining;
    const uint32_t off =
        got->remaining > remaining ? got->remaining - remaining : remaining - got->remaining;
    if (answer->off && off <= answer->off && got->used >= got->granted)
        tell_used(&told, got->used);
    if (!same_but_wait(&told.verdict, got))
        return false;
    if (!answer->jitter_below)
        return got->retry_after == model_wait(answer, 0);
    if (known->window == answer->jitter_of && answer->jitter_of != UINT64_MAX)
        return got->retry_after == model_wait(answer, known->jitter);
    if (got->retry_after < model_wait(answer, 0) ||
        got->retry_after > model_wait(answer, answer->jitter_below - 1))
        return false;
    if (got->retry_after > answer->wait_least && got->retry_after < STINT_NEVER - 1)
        *known = (struct model_jitter){answer->jitter_of,
                                       got->retry_after - answer->verdict.retry_after};
    return true;
}

/* "A bucket is given back the time that the tokens took (verdict->unit for each), as far as it has
 * not come back by itself by the limiter's clock: no more than what is left to `window`, and no
 * more than makes it full. A token of which a part was given back counts as one." */
static uint32_t bucket_refund(const struct stint_policy *policy,
                              const struct stint_verdict *verdict, uint32_t tokens, uint64_t now,
                              struct model_key *key) {
    const uint64_t from = key->window;
    if (verdict->window <= now || from <= now)
        return 0;
    const wide back = (wide)tokens * verdict->unit;
    const uint64_t most = least_of(verdict->window, from) - now;
    key->window -= back < most ? (uint64_t)back : most;
    key->refused = mark_moved(policy, key->refused, from, key->window);
    return (uint32_t)ceil_div(from - key->window, verdict->unit);
}

/* "stint_override and _clear keep the tokens that are used, likewise". */
void model_ruled(const struct stint_policy *policy, const struct model_ruling *from,
                 const struct model_ruling *to, uint64_t now, struct model_key *key) {
    const struct stint_request request = {0};
    struct model_by before = model_by(policy), after = model_by(policy);
    before.ruling = from;
    after.ruling = to;
    const uint64_t full = key->window, token = token_by(&after, &request);
    if (!key->known || !is_bucket(policy) || full <= now)
        return;
    const uint64_t most = tokens_in(&after, &request, count_most(policy)) * token;
    const wide used = (wide)(full - now) * token, was = token_by(&before, &request);
    const wide kept = used / was + (used % was != 0), room = most_of(most, full - now);
    key->window = now + (uint64_t)(kept < room ? kept : room);
    key->refused = mark_moved(policy, key->refused, full, key->window);
}

/* "Its rate and its burst change at once". */
bool model_rate_change(struct model_rate *rate, const struct stint_policy *from,
                       const struct stint_policy *to, uint64_t now) {
    if (!is_bucket(from) || !is_bucket(to) ||
        (from->limit == to->limit && from->window == to->window && from->burst <= to->burst &&
         from->max_reserved <= to->max_reserved))
        return false;
    *rate = (struct model_rate){rate->generation + 1, now, *from};
    return true;
}

static uint64_t scale(uint64_t ns, uint64_t to, uint64_t from) {
    const wide scaled = ((wide)ns * to + from - 1) / from;
    return scaled < UINT64_MAX / 2 ? (uint64_t)scaled : UINT64_MAX / 2; /* of no real verdict */
}

/* "What a key has used stays used, in tokens, and is no more than the bucket and its reserve then
 * hold": "changed + (full - changed) * T / T before, rounded up". */
void model_rate_keep(const struct model_rate *rate, const struct stint_policy *to,
                     const struct model_ruling *ruling, struct model_key *key) {
    const struct stint_request request = {0};
    struct model_by before = model_by(&rate->before), after = model_by(to);
    before.ruling = after.ruling = ruling;
    const uint64_t full = key->window, token = token_by(&after, &request);
    if (!key->known || full <= rate->changed)
        return;
    key->window =
        rate->changed + least_of(scale(full - rate->changed, token, token_by(&before, &request)),
                                 tokens_in(&after, &request, count_most(to)) * token);
    key->refused = mark_moved(to, key->refused, full, key->window);
}

/* "A verdict from before the last change of the rate gives back as many tokens, an older one
 * nothing. (One by a limit of its own, or an override, gives back no more time than it took.)" */
bool model_rate_verdict(const struct model_rate *rate, const struct stint_policy *to,
                        struct stint_verdict *verdict) {
    const bool ruled = verdict->flags & STINT_OVERRIDDEN;
    if (verdict->generation == rate->generation)
        return true;
    if (verdict->generation + 1 != rate->generation)
        return false;
    const uint64_t was = token_time(&rate->before), is = token_time(to);
    const uint64_t from = ruled ? rate->before.window : was, token = ruled ? to->window : is;
    verdict->generation++;
    if (verdict->unit == is || (token > from && verdict->unit != was))
        return true;
    if (verdict->window > rate->changed)
        verdict->window = rate->changed + scale(verdict->window - rate->changed, token, from);
    verdict->unit = scale(verdict->unit, token, from);
    return true;
}

/* "Once the key has begun another one, nothing is given back. (By a smooth or in-flight policy the
 * last window still counts, and is given back to.)" */
uint32_t model_refund(const struct stint_policy *policy, const struct stint_verdict *verdict,
                      uint32_t tokens, uint64_t now, struct model_key *key) {
    const bool before = looks_back(policy) && verdict->window + policy->window == key->window;
    uint32_t *count = before ? &key->previous : &key->used;
    if (key->known && is_bucket(policy))
        return bucket_refund(policy, verdict, tokens, now, key);
    if (!key->known || (!before && verdict->window != key->window))
        return 0;
    const uint32_t back = (uint32_t)least_of(tokens, *count);
    *count -= back;
    return back;
}

/* "Makes a key as good as new": nothing used, and no first refusal. */
void model_reset(const struct stint_policy *policy, uint64_t now, struct model_key *key) {
    key->used = key->previous = 0;
    key->refused = UNMARKED;
    if (is_bucket(policy) && key->window > now)
        key->window = now;
}
