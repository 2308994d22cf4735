/* SPDX-License-Identifier: MIT
 * What verdicts tell of later: after a request, or a group, its own looks at the key must agree. A
 * refusal has marked, counted, emptied and banned by then whatever it does. */
#include <string.h>

#include "world.h"

/* What a whole waits for. */
struct waiting {
    struct actor *actor;
    const struct asked *asked;
    const struct stint_verdict *verdicts;
    unsigned count;
    uint64_t time, wait;
};

static bool has_policy(const struct stint_verdict *v) {
    return (v->flags & (STINT_UNKNOWN_POLICY | STINT_BAD_REQUEST)) == 0;
}

/* Whether the contract says to the ns when a part's key has room. In flight it tells "an upper
 * bound". Where stripes or limits of requests differ, or parts take what is left, or ahead, no one
 * look is the sum of the parts. A window that is over by a clock, or by an early now where the
 * table would be full, may be gone by the time of the look. */
static bool is_judged(const struct waiting *waiting, unsigned part) {
    const struct asked *asked = &waiting->asked[part];
    const struct named *named = &world->names[asked->name];
    const uint32_t left_open = 1 << A_SHADOW | 1 << A_JITTER | 1 << A_IN_FLIGHT | 1 << A_STRIPES;
    return has_policy(&waiting->verdicts[part]) && !asked->senseless && !named->moved &&
           (named->features & left_open) == 0 && waiting->verdicts[part].window > latest_over() &&
           (waiting->count == 1 ||
            (asked->request.limit == 0 &&
             (asked->request.flags & (STINT_PARTIAL | STINT_RESERVE)) == 0)) &&
           (asked->request.flags & STINT_CHARGE) == 0 &&
           decided_by(&waiting->verdicts[part]) == waiting->time &&
           is_alone(waiting->actor, asked->name, asked->key);
}

static bool same_key(const struct asked *one, const struct asked *other) {
    return one->name == other->name && one->key == other->key;
}

/* The look that says whether all parts of a part's key fit, one after the other, each at its whole
 * cost. */
static struct stint_request look_of(const struct waiting *waiting, unsigned part) {
    struct stint_request look = waiting->asked[part].request;
    uint64_t before = 0, most = 0;
    for (unsigned i = 0; i < waiting->count; i++) {
        const struct stint_request *request = &waiting->asked[i].request;
        if (!same_key(&waiting->asked[i], &waiting->asked[part]))
            continue;
        most = before + request->cost > most ? before + request->cost : most;
        before += (request->flags & STINT_PEEK) != 0 ? 0 : request->cost;
    }
    look.cost = most < UINT32_MAX ? (uint32_t)most : UINT32_MAX;
    look.flags = STINT_PEEK | (look.flags & STINT_RESERVE);
    return look;
}

/* Whether looks say that all fit so long after the refusal. `never`: some of them never do.
 * `longest`: what the others wait for then. */
static bool all_fit(const struct waiting *waiting, uint64_t after, bool *never, uint64_t *longest) {
    bool fit = true;
    *never = false;
    *longest = 0;
    for (unsigned i = 0; i < waiting->count; i++) {
        const struct stint_request look = look_of(waiting, i);
        const struct stint_verdict v = look_then(waiting->actor, &look, waiting->time + after);
        const bool full = (v.flags & STINT_UNTRACKED) != 0; /* by then: that is not told */
        fit &= full ? after >= waiting->wait : v.allowed;
        if (v.allowed || full)
            continue;
        *never |= v.retry_after == STINT_NEVER;
        *longest = v.retry_after > *longest ? v.retry_after : *longest;
    }
    return fit;
}

static void waits_wrong(const struct waiting *waiting, const char *what) {
    for (unsigned i = 0; i < waiting->count; i++) {
        const struct stint_request look = look_of(waiting, i);
        const struct stint_verdict then =
            look_then(waiting->actor, &look, waiting->time + waiting->wait);
        fprintf(stderr, "    policy %s, key %u, cost %u, limit %u, flags %#x: %s\n",
                policy_text(&world->names[waiting->asked[i].name].policy), waiting->asked[i].key,
                waiting->asked[i].request.cost, waiting->asked[i].request.limit,
                waiting->asked[i].request.flags, verdict_text(&waiting->verdicts[i]));
        fprintf(stderr, "        a look for %u then: %s\n", look.cost, verdict_text(&then));
    }
    wrong("told to wait for %" PRIu64 ": %s", waiting->wait, what);
}

/* "The largest retry_after of these tells when the whole would fit ...; STINT_NEVER if it never
 * does." Who asks before the clock may fit by that. */
static void wait_check(const struct waiting *waiting) {
    bool never;
    uint64_t longest;
    if (waiting->wait == STINT_NEVER) {
        /* An override that lets a part through may be over when the others fit. */
        for (uint64_t after = 0;; after += longest) {
            if (all_fit(waiting, after, &never, &longest))
                waits_wrong(waiting, "it fits some day");
            if (never || longest == 0) /* 0: the table is full, which does not tell */
                return;
        }
    }
    /* No look is so far ahead that an old end seems to be ahead, too. */
    if (waiting->wait > (world->idles ? 10 * DAY : world->clear - world->first))
        return;
    if (!all_fit(waiting, waiting->wait, &never, &longest))
        waits_wrong(waiting, "it does not fit then");
    const uint64_t then = waiting->time + waiting->wait;
    if (then > world->latest + 1 && all_fit(waiting, waiting->wait - 1, &never, &longest) &&
        then > world->latest + 1) /* the look may have read the clock */
        waits_wrong(waiting, "it fits sooner");
}

/* What is told of a key that has one part, or several that fit, is what a look tells. */
static void used_check(const struct waiting *waiting, unsigned part) {
    const struct asked *asked = &waiting->asked[part];
    const struct stint_verdict *v = &waiting->verdicts[part];
    struct stint_request look = asked->request;
    for (unsigned i = 0; i < waiting->count; i++)
        if (i != part && same_key(&waiting->asked[i], asked) &&
            !(v->allowed && waiting->verdicts[i].allowed))
            return;
    look.cost = 0;
    look.flags = STINT_PEEK;
    const struct stint_verdict told = look_then(waiting->actor, &look, waiting->time);
    if (decided_by(&told) == waiting->time && ((v->flags ^ told.flags) & STINT_OVERRIDDEN) == 0 &&
        (told.used != v->used || told.window != v->window)) {
        fprintf(stderr, "    a look: %s\n", verdict_text(&told));
        waits_wrong(waiting, "a look tells of another count");
    }
}

void waits_check(struct actor *actor, const struct asked *asked,
                 const struct stint_verdict *verdicts, unsigned count) {
    struct waiting waiting = {actor, asked, verdicts, count, 0, 0};
    bool allowed = true, looks = true;
    if (count == 0 || actor->number == ACTORS_MAX || actor->stale || world->far ||
        world->options.on_full == STINT_FULL_REPLACE)
        return;
    waiting.time = decided_by(&verdicts[0]);
    for (unsigned i = 0; i < count; i++) {
        if (!is_judged(&waiting, i))
            return;
        allowed &= verdicts[i].allowed;
        looks &= (asked[i].request.flags & STINT_PEEK) != 0;
        if (!verdicts[i].allowed && verdicts[i].retry_after > waiting.wait)
            waiting.wait = verdicts[i].retry_after;
    }
    for (unsigned i = 0; i < count && (looks || !allowed); i++)
        used_check(&waiting, i);
    if (allowed)
        return;
    pairs->waits++;
    wait_check(&waiting);
}
