/* SPDX-License-Identifier: MIT
 * What a verdict tells of later: after a request, or a part of a group, looks at the key must
 * agree. A refusal has marked, counted, emptied and banned by then whatever it does. */

#include "world.h"

/* Whether the contract says to the ns when a key has room. In flight it tells "an upper bound". A
 * window that is over by a clock, or by an early now where the table would be full, may be gone by
 * the time of the look. */
static bool is_judged(const struct actor *actor, const struct asked *asked,
                      const struct stint_verdict *v) {
    const struct named *named = &world->names[asked->name];
    const uint32_t left_open = 1 << A_SHADOW | 1 << A_JITTER | 1 << A_IN_FLIGHT | 1 << A_STRIPES;
    return (v->flags & (STINT_UNKNOWN_POLICY | STINT_BAD_REQUEST)) == 0 && !asked->senseless &&
           !named->moved && (named->features & left_open) == 0 && v->window > latest_over() &&
           (asked->request.flags & STINT_CHARGE) == 0 && is_alone(actor, asked->name, asked->key);
}

/* A look for the whole cost, so long after the verdict. */
static struct stint_verdict look_after(struct actor *actor, const struct asked *asked,
                                       const struct stint_verdict *v, uint64_t after) {
    struct stint_request look = asked->request;
    look.flags = STINT_PEEK | (look.flags & STINT_RESERVE);
    return look_then(actor, &look, decided_by(v) + after);
}

static void wait_wrong(struct actor *actor, const struct asked *asked,
                       const struct stint_verdict *v, const char *what) {
    const struct stint_verdict then = look_after(actor, asked, v, v->retry_after);
    fprintf(stderr, "    policy %s, key %u, cost %u, limit %u, burst %u, flags %#x: %s\n",
            policy_text(&world->names[asked->name].policy), asked->key, asked->request.cost,
            asked->request.limit, asked->request.burst, asked->request.flags, verdict_text(v));
    fprintf(stderr, "        a look then: %s\n", verdict_text(&then));
    wrong("told to wait for %" PRIu64 ": %s", v->retry_after, what);
}

/* "ns until the whole cost would fit if nobody else took or gave back ...; STINT_NEVER if it is
 * more than can ever fit". Who asks before the clock may fit by that. */
static void wait_check(struct actor *actor, const struct asked *asked,
                       const struct stint_verdict *v) {
    const uint64_t wait = v->retry_after;
    struct stint_verdict look = look_after(actor, asked, v, wait == STINT_NEVER ? 0 : wait);
    const bool full = (look.flags & STINT_UNTRACKED) != 0; /* by then: that is not told */
    if (wait == STINT_NEVER) {
        if (!full && (look.allowed || look.retry_after != STINT_NEVER))
            wait_wrong(actor, asked, v, "it fits some day");
        return;
    }
    /* No look is so far ahead that an old end seems to be ahead, too. */
    if (full || wait > (world->idles ? 10 * DAY : world->clear - world->first))
        return;
    if (!look.allowed)
        wait_wrong(actor, asked, v, "it does not fit then");
    const uint64_t then = decided_by(v) + wait;
    if (then <= world->latest + 1)
        return;
    look = look_after(actor, asked, v, wait - 1);
    if (look.allowed && (look.flags & STINT_UNTRACKED) == 0 &&
        then > world->latest + 1) /* the look may have read the clock */
        wait_wrong(actor, asked, v, "it fits sooner");
}

/* What is told of a key is what a look tells. `before`: it is a look, after which other parts of
 * its group were decided: a slot that they took over may put off a window that had not begun. */
static void used_check(struct actor *actor, const struct asked *asked,
                       const struct stint_verdict *v, bool before) {
    struct stint_request look = asked->request;
    look.cost = 0;
    look.flags = STINT_PEEK;
    const bool put_off =
        before && v->used == 0 && (world->names[asked->name].policy.flags & STINT_START_FIRST) != 0;
    const struct stint_verdict told = look_then(actor, &look, decided_by(v));
    if (decided_by(&told) == decided_by(v) && ((v->flags ^ told.flags) & STINT_OVERRIDDEN) == 0 &&
        (told.used != v->used || (told.window != v->window && !put_off))) {
        fprintf(stderr, "    a look: %s\n", verdict_text(&told));
        wait_wrong(actor, asked, v, "a look tells of another count");
    }
}

void waits_check(struct actor *actor, const struct asked *asked,
                 const struct stint_verdict *verdicts, unsigned count) {
    bool all = true;
    if (actor->number == ACTORS_MAX || actor->stale || world->far ||
        world->options.on_full == STINT_FULL_REPLACE)
        return;
    for (unsigned i = 0; i < count; i++)
        all &= verdicts[i].allowed;
    for (unsigned i = 0; i < count; i++) {
        const struct stint_verdict *v = &verdicts[i];
        if (!is_judged(actor, &asked[i], v))
            continue;
        if (!all || (asked[i].request.flags & STINT_PEEK) != 0)
            used_check(actor, &asked[i], v, !all && v->allowed);
        if (!v->allowed)
            wait_check(actor, &asked[i], v);
    }
}
