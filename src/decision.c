/* SPDX-License-Identifier: MIT
 * What the steps of a decision (core.h) need seldom, out of line. */
#include "decision.h"

#include <errno.h>

#include "sys/message.h"

/* What request_good does not take. */
static int request_refuse(const struct stint_request *request) {
    const uint32_t flags = request->flags;
    const char *with = (flags & STINT_PARTIAL) != 0   ? "STINT_PARTIAL"
                       : (flags & STINT_DRAIN) != 0   ? "STINT_DRAIN"
                       : (flags & STINT_RESERVE) != 0 ? "STINT_RESERVE"
                       : request->limit != 0          ? "a limit of the request's own"
                                                      : "a burst of the request's own";
    const struct stint_request flags_alone = {.flags = flags & ~(uint32_t)STINT_CHARGE};

    if (request->reserved != 0)
        return stint_failed(EINVAL, "request.reserved must be 0: begin with STINT_REQUEST");
    if (!request_good(&flags_alone))
        return stint_failed_with(EINVAL,
                                 "request.flags is %#x, in which some flag is none of "
                                 "enum stint_request_flags: leave it out",
                                 (unsigned)flags);
    return stint_failed_with(EINVAL, "STINT_CHARGE does not go with %s: leave one of the two out",
                             with);
}

/* What request_suits does not take. */
static int request_unsuited(const struct stint_request *request, uint32_t traits) {
    const char *what = (request->flags & STINT_DRAIN) != 0     ? "STINT_DRAIN"
                       : (request->flags & STINT_CHARGE) != 0  ? "STINT_CHARGE"
                       : (request->flags & STINT_PARTIAL) != 0 ? "STINT_PARTIAL"
                                                               : "a limit of the request's own";

    if (request->burst != 0 && (traits & RULE_BUCKET) == 0)
        return stint_failed(EINVAL, "request.burst goes with token buckets only: give the policy a "
                                    "burst, or leave it out");
    return stint_failed_with(EINVAL, "%s does not go with a policy %s: leave it out", what,
                             (traits & STINT_IN_FLIGHT) != 0
                                 ? "that is in flight, as nobody would give back what it takes"
                                 : "of several stripes, which does not tell what is left");
}

int stint_request_check(const struct stint_limiter *limiter, const struct stint_request *request) {
    uint32_t traits;

    if (limiter == NULL || request == NULL)
        return stint_failed(EINVAL, "limiter or request is NULL");
    if (limiter->reader != NULL && (request->flags & (STINT_PEEK | STINT_CHARGE)) != STINT_PEEK)
        return stint_failed(EINVAL, "the limiter was attached with STINT_READ_ONLY, and answers "
                                    "only looks: request.flags must have STINT_PEEK, and not "
                                    "STINT_CHARGE");
    /* In the order of decision_open (take.c). */
    if (request->policy < limiter->max_policies && !request_good(request))
        return request_refuse(request);
    const int error = stint_limiter_whole(limiter); /* a cut amid a change leaves a policy */
    if (error != 0)
        return error;
    if (stint_limiter_policy_and_traits(limiter, request->policy, &traits) == POLICY_NONE)
        return stint_limiter_no_policy(limiter);
    return request_suits(request, traits) ? 0 : request_unsuited(request, traits);
}

/* The window that holds a tick.
 *
 * STINT_START_FIRST: a key's window begins with the tick of its first request. Only the slot knows
 * it: [end - length, end). Windows of one key never overlap, so the end names each:
 *
 *   - In place. A thread finds the slot's window over by its now (slot_look). The next one begins
 *     with that now, by one swap (slot_charge). Of two threads that do this at once, one wins. The
 *     other finds the window that has begun, and counts in it: it holds that thread's now, or began
 *     after it, if the thread is late (LOOK_AHEAD; decide.c, look_ahead).
 *   - By a claim. If another key took the slot, the watermark was raised before, to a now at which
 *     the old window was over. The commit's tick is at or after the watermark, which is loaded
 *     after the look at the other slots (decide.c, commit_tick; claim.h, claim_alone; M7, M8). So
 *     the new window begins at or after the end of the old one, however late its opener.
 *   - A window that ends further ahead than its length began after now. It is a late thread's to
 *     join, or was left by a clock that was stepped back (stint_beyond_clock): as of any policy, a
 *     key waits for its window and the allowance at most (H).
 *   - A refund finds its window by the end, or gives nothing back. A reset leaves the end.
 *   - A replaced key's window is forgotten with its count (STINT_FULL_REPLACE; G).
 *
 * The end grows by the length at least, so I1 holds as with windows that are computed.
 *
 * Months and years (TRAIT_CALENDAR) differ in length. A slot that is further ahead of the clock
 * than the longest (policy.length) was left by a step of the clock. The window of a shorter month
 * may be joined some days before it begins: after a step of the clock into the month before, a key
 * may stay in its window for up to 31 days, or 366, and the allowance. */
static struct span window_at(const struct stint_limiter *limiter, const struct policy *policy,
                             uint32_t traits, uint64_t hash, tick_t tick) {
    const tick_t length = policy_length(policy);
    if ((traits & TRAIT_CALENDAR) != 0)
        return limiter_calendar_window(limiter, policy, tick);
    if ((traits & RULE_BUCKET) != 0)
        return (struct span){tick, tick + 1};
    if ((traits & STINT_START_FIRST) != 0)
        return (struct span){tick, tick + length};
    tick_t start = policy_start(policy);
    if ((traits & STINT_START_PER_KEY) != 0)
        start += (tick_t)hash_pick(mix(hash, 1), (uint64_t)length);
    return window_span(tick, start, length);
}

tick_t stint_window_at(const struct stint_limiter *limiter, const struct policy *policy,
                       uint32_t traits, uint64_t hash, tick_t tick) {
    return window_at(limiter, policy, traits, hash, tick).end;
}

tick_t stint_window_compute(const struct stint_limiter *limiter, struct policy *policy,
                            uint32_t traits, uint64_t hash, uint64_t now) {
    const struct span window = window_at(limiter, policy, traits, hash, tick_of(now));
    /* The first and the last window of 64 bits of ns are no hints: one would pass for the other. */
    if ((traits & TRAITS_OWN_WINDOW) == 0 && window.begin >= 0 && window.end <= LAST_TICK) {
        const uint64_t hint = hint_of(window, (traits & TRAIT_CALENDAR) != 0);
        /* M16 */
        if (hint != atomic_load_relaxed(&policy->current_end) && !limiter->memory.read_only)
            atomic_store_relaxed(&policy->current_end, hint);
    }
    return window.end;
}

uint64_t stint_now_checked(const struct stint_limiter *limiter, uint64_t now) {
    if (limiter_knows_now(limiter, tick_of(now)))
        return now;
    const uint64_t clock = limiter_now(limiter);
    if (!limiter->memory.read_only)
        atomic_store_relaxed(&limiter->header->known, (uint64_t)tick_of(clock)); /* M16 */
    /* Late: it may have been known a moment ago, when what is known was older. Early: a slot that
     * is further ahead counts as over to others. */
    return GUARD(NOW_FAR, now > clock ? now - clock > ALLOWANCE_NS : clock - now > 2 * ALLOWANCE_NS)
               ? clock
               : now;
}

struct moment stint_moment_odd(const struct stint_limiter *limiter, struct policy *policy,
                               uint32_t traits, uint64_t hash, uint64_t now) {
    now = stint_now_checked(limiter, now);
    return (struct moment){now, (traits & TRAITS_OWN_WINDOW) != 0
                                    ? 0
                                    : stint_window_compute(limiter, policy, traits, hash, now)};
}

uint64_t stint_total_of_two(const struct policy *policy, uint64_t count, uint64_t left) {
    return smooth_share(count >> THIS_BITS & SMOOTH_MAX, left, policy->fade, policy->reciprocal) +
           (count & THIS_MASK);
}

void stint_answer_count(const struct stint_limiter *limiter, uint32_t policy_id, uint32_t flags,
                        bool allowed) {
    if ((flags & STINT_FIRST_REFUSAL) != 0)
        limiter_count(limiter, policy_id, COUNT_FIRST_REFUSAL);
    if ((flags & STINT_UNTRACKED) != 0)
        limiter_count(limiter, policy_id, COUNT_UNTRACKED);
    if ((flags & STINT_NEAR_LIMIT) != 0 && allowed && (flags & STINT_SHADOWED) == 0)
        limiter_count(limiter, policy_id, COUNT_NEAR_LIMIT);
}

/* The length of the window that is waited for, ns. */
static uint64_t window_waited(const struct decision *decision) {
    if ((decision->terms.traits & RULE_BUCKET) != 0) {
        const uint64_t version = atomic_load_acquire(&decision->policy->version); /* M15 */
        return limiter_bucket_window(decision->limiter, decision->policy_id, version);
    }
    if ((decision->terms.traits & TRAIT_CALENDAR) == 0)
        return decision->policy->window;
    const struct span window =
        limiter_calendar_window(decision->limiter, decision->policy, decision->end - 1);
    return tick_ns(window.end - window.begin);
}

/* The terms of a request when its key's override is over. */
static struct terms terms_after(const struct decision *decision, const struct rule *rule) {
    const uint64_t most = (rule->flags & STINT_SMOOTH) != 0 ? SMOOTH_MAX : STINT_LIMIT_MAX;
    const uint32_t own = decision->asked.limit;
    struct terms after = decision->terms;
    struct bucket bucket;

    after.special = 0;
    if ((after.traits & RULE_BUCKET) != 0) {
        if (limiter_bucket_load(decision->limiter, decision->policy_id, after.traits, true,
                                &bucket)) {
            bucket_terms(&after, &bucket, own);
            terms_cut(&after, decision->asked.burst);
        }
        return after;
    }
    after.capacity = own != 0 ? own : rule->capacity;
    if (after.capacity > most)
        after.capacity = most;
    const uint64_t reserved = (after.flags & STINT_RESERVE) != 0 ? rule->max_reserved : 0;
    const uint64_t room = after.capacity + reserved;
    after.room = GUARD(OVERRIDE_ROOM, room > STINT_LIMIT_MAX) ? STINT_LIMIT_MAX : room;
    return after;
}

/* The wait of a key that has an override: for the tokens, or for its end; for `least` anyway. What
 * a key has used never grows by itself: what fits once fits from then on. `over`: ns to its end. */
static uint64_t wait_overridden(const struct decision *decision, const struct rule *rule,
                                uint64_t window, uint64_t left, uint64_t least, uint64_t *over) {
    const struct charge *charge = &decision->charge;
    const uint64_t now = decision->now;
    const uint64_t until = tick_ns(end_of(state_id(decision->override), tick_of(now)));
    const uint64_t wait = charge_wait(&decision->terms, rule, charge, window, left);

    /* A late caller's request is decided at the clock's time, when its override may be over. */
    *over = until > now ? until - now : 0;
    const uint64_t then = *over > least ? *over : least;
    if (wait < *over && least < *over)
        return wait > least ? wait : least;
    const struct terms after = terms_after(decision, rule);
    if ((after.traits & RULE_BUCKET) == 0 && charge->total + after.cost <= after.room)
        return then;
    const uint64_t fits = charge_wait(&after, rule, charge, window, left);
    return fits > then ? fits : then;
}

uint64_t stint_answer_wait(struct decision *decision, uint64_t left) {
    const struct rule rule = policy_rule(decision->policy);
    const struct charge *charge = &decision->charge;
    const bool untracked = (decision->flags & STINT_UNTRACKED) != 0;
    const uint64_t window = window_waited(decision);
    uint64_t wait, over = 0;

    if ((decision->terms.traits & RULE_BUCKET) != 0)
        left = decision->terms.unit; /* until there is a token */
    if ((decision->terms.special & KEY_OVERRIDDEN) != 0 && !charge->fits) {
        wait = wait_overridden(decision, &rule, window, left,
                               untracked ? left : 0, /* for a slot of a full table */
                               &over);
        if (wait == over)
            return wait; /* exact: there is no window for whose end all wait */
    } else {
        wait = charge_wait(&decision->terms, &rule, charge, window, left);
    }
    if (charge->fits)
        return wait;
    if (untracked && wait < left)
        wait = left; /* before, this key can be given nothing */
    if (rule.jitter != 0 && wait != STINT_NEVER)
        wait = wait_add(wait, hash_pick(mix(decision->hash, (uint64_t)decision->end),
                                        window / 100 * rule.jitter));
    return wait;
}
