/* SPDX-License-Identifier: MIT
 * Verdicts as HTTP fields: RateLimit-Policy and RateLimit (draft-ietf-httpapi-ratelimit-headers-11,
 * RFC 9651), the older X-RateLimit trio, and Retry-After (RFC 9110).
 * Their integers have at most 15 digits: UINT64_MAX ns is 18,446,744,074 s. */
#include <limits.h>

#include "policy/check.h"
#include "policy/policy.h"
#include "sys/message.h"
#include "sys/text.h"

#define SECOND UINT64_C(1000000000) /* ns */

#define COUNT_MAX (INT_MAX / 512 - 1)
static_assert(STINT_HEADERS_SIZE(COUNT_MAX) <= INT_MAX, "the length of a text is an int");

static uint64_t seconds_up(uint64_t ns) {
    return ns / SECOND + (ns % SECOND != 0);
}

/* Reads a policy as clients are told of it: without a name, by its present rate. False: none. */
static bool policy_told(const struct stint_limiter *limiter, uint32_t id,
                        struct stint_policy *policy) {
    id = stint_limiter_policy_now(limiter, id);
    if (id == POLICY_NONE)
        return false;
    *policy = stint_policy_read(limiter, id);
    if (policy->limit == 0) /* the table was written over */
        policy->limit = 1;
    if ((record_flags(limiter, id) & RECORD_UNNAMED) != 0)
        (void)stint_rate_format(policy, policy->name, sizeof(policy->name));
    return true;
}

/* What a key can hold: a request may have its own limit. 0: the policy was not there yet. */
static uint64_t quota(const struct stint_policy *policy, const struct stint_verdict *verdict) {
    return verdict->capacity != 0 ? verdict->capacity
           : policy->burst != 0   ? policy->burst
                                  : policy->limit;
}

static void add_parameter(struct text *text, const char *name, uint64_t value) {
    add_text(text, name);
    add_number(text, value);
}

static void add_field(struct text *text, const char *name, uint64_t value) {
    add_parameter(text, name, value);
    add_text(text, "\r\n");
}

/* ns of a token by which a bucket was charged. A verdict of a policy that was none has no unit. */
static uint64_t token_time(const struct stint_policy *policy, const struct stint_verdict *verdict) {
    return verdict->unit != 0 ? verdict->unit : bucket_unit(policy->window, policy->limit);
}

static uint64_t quota_time(const struct stint_policy *policy, const struct stint_verdict *verdict) {
    const uint64_t tokens = quota(policy, verdict);

    if (policy->burst != 0)
        return tokens * token_time(policy, verdict);
    const bool carries = policy->capacity > policy->limit || policy->max_reserved != 0;
    const uint64_t windows = carries ? (tokens - 1) / policy->limit + 1 : 1;
    uint64_t time;
    return __builtin_mul_overflow(windows, policy->window, &time) ? UINT64_MAX : time;
}

/* Whether the fields tell of a verdict. The numbers of a full table's verdict are no key's. */
static bool is_told(const struct stint_verdict *verdict) {
    return (verdict->flags & STINT_UNTRACKED) == 0;
}

static uint64_t token_after(const struct stint_policy *policy,
                            const struct stint_verdict *verdict) {
    const uint64_t tokens = quota(policy, verdict), left = verdict->reset_after;
    const uint64_t unit = token_time(policy, verdict);

    if (left <= unit)
        return left;
    const uint64_t all_but_one = (tokens - 1) * unit; /* more is used than it holds */
    return left > all_but_one ? left - all_but_one : left % unit != 0 ? left % unit : unit;
}

/* ns until the key has more tokens: at most until its request fits, or it is barred no more. */
static uint64_t more_after(const struct stint_policy *policy, const struct stint_verdict *verdict) {
    const bool barred = (verdict->flags & STINT_BANNED) != 0 ||
                        ((verdict->flags & STINT_OVERRIDDEN) != 0 && verdict->capacity == 0);
    const bool waits = verdict->retry_after != STINT_NEVER && verdict->retry_after != 0;
    const uint64_t more = policy->burst != 0 ? token_after(policy, verdict) : verdict->reset_after;

    return waits && (barred || (!verdict->allowed && verdict->retry_after < more))
               ? verdict->retry_after
               : more;
}

/* The longest wait of the refusals. (In flight it is only a bound.) After "never" none is told. */
static void add_retry_after(struct text *text, const struct stint_limiter *limiter,
                            const struct stint_verdict *verdicts, size_t n) {
    struct stint_policy policy;
    uint64_t longest = 0;
    bool refused = false;

    for (size_t i = 0; i < n; i++) {
        if (verdicts[i].allowed || !policy_told(limiter, verdicts[i].policy, &policy) ||
            ((policy.flags & STINT_IN_FLIGHT) != 0 && verdicts[i].retry_after != STINT_NEVER))
            continue;
        refused = true;
        if (verdicts[i].retry_after > longest)
            longest = verdicts[i].retry_after;
    }
    if (refused && longest != STINT_NEVER)
        add_field(text, "Retry-After: ", seconds_up(longest));
}

static void add_draft(struct text *text, const struct stint_limiter *limiter,
                      const struct stint_verdict *verdicts, size_t n, bool quotas) {
    const char *before = quotas ? "RateLimit-Policy: " : "RateLimit: ";
    struct stint_policy policy;

    for (size_t i = 0; i < n; i++) {
        if (!is_told(&verdicts[i]) || !policy_told(limiter, verdicts[i].policy, &policy))
            continue;
        add_text(text, before);
        before = ", ";
        add_quoted(text, policy.name);
        add_parameter(text, quotas ? ";q=" : ";r=",
                      quotas ? quota(&policy, &verdicts[i]) : verdicts[i].remaining);
        if (quotas && (policy.flags & STINT_IN_FLIGHT) != 0)
            add_text(text, ";qu=\"concurrent-requests\"");
        else if (quotas && policy.calendar == 0) /* else no one length */
            add_parameter(text, ";w=", seconds_up(quota_time(&policy, &verdicts[i])));
        else if (!quotas && (policy.flags & STINT_IN_FLIGHT) == 0)
            add_parameter(text, ";t=", seconds_up(more_after(&policy, &verdicts[i])));
    }
    if (before[0] == ',')
        add_text(text, "\r\n");
}

/* The rank of a verdict: it refused, it would have refused, or it let through. */
static int rank(const struct stint_verdict *verdict) {
    return !verdict->allowed ? 2 : (verdict->flags & STINT_SHADOWED) != 0;
}

/* Whether the client hears of `a`: first refusals, then own counts, fewer tokens, longer times. */
static bool is_tighter(const struct stint_verdict *a, const struct stint_verdict *b) {
    if (rank(a) != rank(b))
        return rank(a) > rank(b);
    if (is_told(a) != is_told(b))
        return is_told(a);
    if (a->remaining != b->remaining)
        return a->remaining < b->remaining;
    return a->window > b->window;
}

size_t stint_tightest(const struct stint_verdict *verdicts, size_t n) {
    size_t tightest = 0;

    for (size_t i = 1; i < n; i++)
        if (is_tighter(&verdicts[i], &verdicts[tightest]))
            tightest = i;
    return tightest;
}

/* The X-RateLimit trio, of the verdicts whose policy has a reset to tell. */
static void add_legacy(struct text *text, const struct stint_limiter *limiter,
                       const struct stint_verdict *verdicts, size_t n) {
    const struct stint_verdict *tightest = NULL;
    struct stint_policy policy = STINT_POLICY_INIT, its; /* policy: the tightest one's */

    for (size_t i = 0; i < n; i++) {
        if (!is_told(&verdicts[i]) || (tightest != NULL && !is_tighter(&verdicts[i], tightest)) ||
            !policy_told(limiter, verdicts[i].policy, &its) || (its.flags & STINT_IN_FLIGHT) != 0)
            continue;
        tightest = &verdicts[i];
        policy = its;
    }
    if (tightest == NULL)
        return;
    add_field(text, "X-RateLimit-Limit: ", quota(&policy, tightest));
    add_field(text, "X-RateLimit-Remaining: ", tightest->remaining);
    add_field(text, "X-RateLimit-Reset: ",
              seconds_up(tightest->window - tightest->reset_after + more_after(&policy, tightest)));
}

int stint_headers(const struct stint_limiter *limiter, uint32_t style,
                  const struct stint_verdict *verdicts, size_t n, char *buffer, size_t size) {
    struct text text = {.buffer = buffer, .size = size};

    if (limiter == NULL)
        return stint_failed(EINVAL, "limiter is NULL");
    if (buffer == NULL && size != 0)
        return stint_failed(EINVAL, "buffer is NULL");
    if (n != 0 && verdicts == NULL)
        return stint_failed(EINVAL, "verdicts is NULL");
    if (n > COUNT_MAX)
        return stint_failed(EINVAL, "n is so large that the length of the text would be no int");
    for (size_t i = 0; i < n; i++) /* the file was cut off, if a policy is gone */
        if (verdicts[i].policy != POLICY_NONE &&
            stint_limiter_policy_now(limiter, verdicts[i].policy) == POLICY_NONE &&
            stint_limiter_lost(limiter))
            return stint_limiter_whole(limiter);
    if ((style & ~(uint32_t)(STINT_HEADERS_DRAFT | STINT_HEADERS_LEGACY)) != 0)
        return stint_failed(
            EINVAL, "style has a flag that is none of enum stint_headers_style: leave it out");
    if ((style & STINT_HEADERS_DRAFT) != 0) {
        add_draft(&text, limiter, verdicts, n, true);
        add_draft(&text, limiter, verdicts, n, false);
    }
    if ((style & STINT_HEADERS_LEGACY) != 0)
        add_legacy(&text, limiter, verdicts, n);
    add_retry_after(&text, limiter, verdicts, n);
    return end_text(&text);
}
