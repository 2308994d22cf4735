/* SPDX-License-Identifier: MIT
 * No threads: what others do is done inside the thread's own call, before one of its atomic operations; a
 * second thread that is stopped as well has a stack of its own. The table is one line of four slots; times
 * are ticks from a common start of all windows. */
#include "mistakes.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "policy_id.h"
#include "slot.h"

#define EPOCH UINT64_C(1700000000000000000) /* ns: a multiple of every window here */

enum {
    STEPS_MOST = 20000, /* of all threads: more is waiting for a thread that does not go on */
    LOGGED_MOST = 256,
    STOPS_TRIED = 40, /* of the second of two threads, and of the first meanwhile */
    STACK = 256 * 1024,
    WINDOW = 10, /* ticks of all policies but those that hold slots */
};

/* Keys. */
enum { KEY = 77, OTHER = 78, THIRD = 79, HOLDER = 100 };

/* Policies. */
enum { ONE, TWO, NEAR, STRIPED, DEBT, LATER_END, HALF, ONCE, LONG, OWN, POLICIES };

static const struct stint_policy policies[POLICIES] = {
    [ONE] = {.name = "one", .limit = 1, .window = WINDOW * STINT_TICK_NS},
    [TWO] = {.name = "two", .limit = 2, .window = WINDOW * STINT_TICK_NS},
    [NEAR] = {.name = "near", .limit = 2, .window = WINDOW * STINT_TICK_NS, .near_limit = 50},
    [STRIPED] = {.name = "striped", .limit = 4, .window = WINDOW * STINT_TICK_NS, .stripes = 2},
    [DEBT] = {.name = "debt", .limit = 1, .window = WINDOW * STINT_TICK_NS, .max_reserved = 1},
    [LATER_END] = {.name = "later end", .limit = 1, .window = 16 * STINT_TICK_NS},
    [HALF] = {.name = "half", .limit = 1, .window = 4000 * STINT_TICK_NS},
    [ONCE] = {.name = "once", .limit = 1, .window = 1000 * WINDOW * STINT_TICK_NS},
    [LONG] = {.name = "long", .limit = 10, .window = 1000 * WINDOW * STINT_TICK_NS},
    [OWN] = {.name = "own",
             .limit = 2,
             .window = 1000 * WINDOW * STINT_TICK_NS,
             .flags = STINT_START_PER_KEY},
};

/* What was asked and answered. */
struct logged {
    stint_key key;
    uint32_t policy;
    uint64_t now;
    bool whole; /* one token, without flags: B can be told from the answer */
    struct stint_verdict verdict;
    uint32_t given_back;
    bool reset;
};

static struct {
    struct stint_limiter *limiter;
    const struct mistake *mistake;
    uint64_t time;
    struct logged log[LOGGED_MOST];
    unsigned logged;
    enum { NOBODY, FIRST, SECOND } running; /* the thread, the second one, or others */
    unsigned steps[3], all_steps;
    unsigned stops[3];
    bool second_done, waits;
    const char *broken;
    jmp_buf stuck, died;
    enum stint_test_instant dies_at;
} p;

/* ---- Calls -------------------------------------------------------------------------------------- */

static uint64_t play_clock(void) {
    return p.time;
}

static void turn_to(unsigned tick) {
    p.time = EPOCH + tick * STINT_TICK_NS;
}

static struct logged *log_call(stint_key key, uint32_t policy, uint64_t now) {
    if (p.logged == LOGGED_MOST)
        abort();
    struct logged *logged = &p.log[p.logged++];
    *logged = (struct logged){.key = key, .policy = policy, .now = now};
    return logged;
}

/* Takes a token, at a time that may be late. */
static bool take_at(uint32_t policy, stint_key key, unsigned tick) {
    struct stint_verdict verdict;
    uint64_t now = EPOCH + tick * STINT_TICK_NS;
    bool allowed = stint_take(p.limiter, policy, key, 1, now, &verdict);
    struct logged *logged = log_call(key, policy, verdict.window - verdict.reset_after);
    logged->verdict = verdict;
    logged->whole = true;
    return allowed;
}

static bool take(uint32_t policy, stint_key key) {
    return take_at(policy, key, (unsigned)((p.time - EPOCH) / STINT_TICK_NS));
}

/* Likewise the long way. */
static struct stint_verdict decide(uint32_t policy, stint_key key, uint32_t cost, uint32_t limit,
                                   uint32_t flags, uint64_t now) {
    struct stint_request request = {key, policy, cost, limit, flags, 0};
    struct stint_verdict verdict;
    stint_decide(p.limiter, &request, now, &verdict);
    struct logged *logged = log_call(key, policy, verdict.window - verdict.reset_after);
    logged->verdict = verdict;
    logged->whole = cost == 1 && limit == 0 && flags == STINT_PARTIAL;
    return verdict;
}

static void take_long(uint32_t policy, stint_key key) {
    (void)decide(policy, key, 1, 0, STINT_PARTIAL, p.time);
}

/* Takes a token by each of two policies, or none. */
static void take_both(uint32_t policy, stint_key key, uint32_t other, stint_key other_key) {
    const struct stint_request requests[2] = {{.key = key, .policy = policy, .cost = 1},
                                              {.key = other_key, .policy = other, .cost = 1}};
    struct stint_verdict verdicts[2];
    (void)stint_decide_all(p.limiter, requests, 2, p.time, verdicts);

    for (unsigned i = 0; i < 2; i++)
        log_call(requests[i].key, requests[i].policy, verdicts[i].window - verdicts[i].reset_after)
            ->verdict = verdicts[i];
}

static void refund_by(uint32_t policy, stint_key key, uint64_t window) {
    uint32_t back = stint_refund(p.limiter, policy, key, 1, window);
    struct logged *logged = log_call(key, policy, p.time);
    logged->verdict.window = window;
    logged->given_back = back;
}

static void refund(uint32_t policy, stint_key key, unsigned end) {
    refund_by(policy, key, EPOCH + end * STINT_TICK_NS);
}

static void reset(uint32_t policy, stint_key key) {
    stint_reset(p.limiter, policy, key);
    log_call(key, policy, p.time)->reset = true;
}

/* Other keys hold so many slots all the time. */
static void hold(unsigned slots) {
    for (unsigned i = 0; i < slots; i++)
        take(LONG, HOLDER + i);
}

static void die_hook(enum stint_test_instant instant) {
    if (instant == p.dies_at)
        longjmp(p.died, 1);
}

/* A thread that takes a token, and is killed at an instant if it comes to that. */
static void take_and_die(uint32_t policy, stint_key key, unsigned tick,
                         enum stint_test_instant instant) {
    p.dies_at = instant;
    if (setjmp(p.died) == 0) {
        stint_test_hook = die_hook;
        take_at(policy, key, tick);
    }
    stint_test_hook = NULL;
}

/* The fetch-add of a thread that had seen room in a slot, slept, and was killed after it. */
static void add_and_die(uint32_t policy, stint_key key) {
    const struct table *table = &p.limiter->table;
    struct slot *slot = line_find(table->lines, table_tag(table, key, policy));
    if (slot != NULL)
        (void)atomic_fetch_add_seq(&slot->state, 1);
}

static void expect(bool held, const char *promise) {
    if (!held && p.broken == NULL)
        p.broken = promise;
}

static void open_table(enum stint_on_full on_full) {
    struct stint_options options = STINT_OPTIONS_INIT;
    options.max_keys = 2;
    options.max_policies = POLICIES;
    options.on_full = on_full;
    options.clock = play_clock;
    p.time = EPOCH;
    if (stint_open(&options, &p.limiter) != 0)
        abort();
    for (unsigned i = 0; i < POLICIES; i++) {
        struct stint_policy policy = policies[i];
        policy.size = sizeof(policy);
        if (policy_added(p.limiter, &policy) != (int)i)
            abort();
    }
}

/* A caller in the long way, who tells the policy its present window. */
static void tell_window(uint32_t policy) {
    (void)decide(policy, THIRD, 0, 0, STINT_PEEK, p.time);
}

/* ---- What came of it ---------------------------------------------------------------------------- */

static bool tracked(const struct logged *logged) {
    return logged->verdict.capacity != 0 && (logged->verdict.flags & STINT_UNTRACKED) == 0;
}

static int64_t tokens_in(const struct logged *which) {
    int64_t tokens = 0;
    for (unsigned i = 0; i < p.logged; i++) {
        const struct logged *logged = &p.log[i];
        if (logged->key != which->key || logged->policy != which->policy)
            continue;
        if (logged->reset)
            tokens = 0;
        else if (logged->verdict.window == which->verdict.window &&
                 (logged->verdict.flags & STINT_UNTRACKED) == 0)
            tokens += (int64_t)logged->verdict.granted - logged->given_back;
    }
    return tokens;
}

static unsigned first_refusals(const struct logged *which) {
    unsigned count = 0;
    for (unsigned i = 0; i < p.logged; i++)
        count += p.log[i].key == which->key && p.log[i].policy == which->policy &&
                 p.log[i].verdict.window == which->verdict.window &&
                 (p.log[i].verdict.flags & STINT_FIRST_REFUSAL) != 0;
    return count;
}

static void play_replaced_claim(enum part part);
static void play_replaced_first(enum part part);

/* Everybody takes all that is left; then the promises are held against the log. */
static void judge_log(void) {
    struct stint_stats stats = STINT_STATS_INIT;
    unsigned calls = p.logged;

    for (unsigned i = 0; i < calls; i++) {
        const struct logged *logged = &p.log[i];
        bool again = logged->policy == LONG;
        for (unsigned j = 0; j < i; j++)
            again |= p.log[j].key == logged->key && p.log[j].policy == logged->policy;
        for (unsigned n = 0; !again && n < 8 && take(logged->policy, logged->key); n++)
            ;
    }
    stint_stats_get(p.limiter, &stats);
    /* Keys that were replaced are another matter (G): KEY is in two stories. */
    bool replaced =
        p.mistake->play == play_replaced_claim || p.mistake->play == play_replaced_first;
    for (unsigned i = 0; i < p.logged; i++) {
        const struct logged *logged = &p.log[i];
        const struct stint_policy *policy = &policies[logged->policy];
        uint64_t window = logged->verdict.window;
        if (!tracked(logged))
            continue;
        expect((policy->flags & STINT_START_PER_KEY) != 0 || (window - EPOCH) % policy->window == 0,
               "A: a window that is none of the policy's");
        expect(window > logged->now, "H: a window that is over");
        if (policy->max_reserved != 0 || (stats.replaced != 0 && (replaced || logged->key != KEY)))
            continue;
        int64_t tokens = tokens_in(logged);
        expect(tokens <= policy->limit, "A: more than the limit in one window");
        if (logged->verdict.allowed || !logged->whole || stats.replaced != 0)
            continue;
        expect(tokens + (int64_t)stats.stray_tokens >= policy->limit,
               "B: refused though there was room");
        expect(first_refusals(logged) == 1, "C: the first refusal is told once");
    }
}

/* ---- What is found at once ---------------------------------------------------------------------- */

/* A key's slot goes to another key between the search for its tag and the load of the state: that
 * shows room, the other key's. */
static void play_take_tag(enum part part) {
    switch (part) {
    case BEFORE:
        hold(3);
        take(TWO, KEY);
        turn_to(WINDOW);
        tell_window(TWO);
        break;
    case THREAD:
        take(TWO, KEY);
        break;
    default:
        take(TWO, OTHER);
    }
}

/* Likewise of a stripe. */
static void play_stripe_tag(enum part part) {
    switch (part) {
    case BEFORE:
        hold(2);
        for (unsigned i = 0; i < 4; i++)
            take(STRIPED, KEY);
        turn_to(WINDOW);
        tell_window(STRIPED);
        break;
    case THREAD:
        take(STRIPED, KEY);
        break;
    default:
        take(TWO, OTHER);
        take(TWO, THIRD);
    }
}

/* Likewise, and the other key is full and refused. */
static void play_refused_tag(enum part part) {
    switch (part) {
    case BEFORE:
        hold(3);
        take(ONE, KEY);
        turn_to(WINDOW);
        tell_window(ONE);
        break;
    case THREAD:
        take(ONE, KEY);
        break;
    default:
        take(ONE, OTHER);
        take(ONE, OTHER);
    }
}

static void play_found_tag(enum part part) {
    if (part == THREAD)
        take_long(ONE, KEY);
    else
        play_refused_tag(part);
}

/* The slot goes to another key, which is full and refused when the state is loaded, and comes back
 * before the second look at the tag, in a later window. */
static void play_refused_state(enum part part) {
    switch (part) {
    case LATER:
        turn_to(2 * WINDOW);
        take(ONE, KEY);
        break;
    default:
        play_refused_tag(part);
    }
}

static void play_found_state(enum part part) {
    if (part == THREAD)
        take_long(ONE, KEY);
    else
        play_refused_state(part);
}

/* Two threads see the last token. */
static void play_last_token(enum part part) {
    switch (part) {
    case BEFORE:
        take(TWO, KEY);
        break;
    default:
        take(TWO, KEY);
    }
}

static void play_last_token_striped(enum part part) {
    switch (part) {
    case BEFORE: /* all of its own stripe but one */
        take(STRIPED, KEY);
        break;
    default:
        take(STRIPED, KEY);
    }
}

/* A key's first request in a window finds its slot in the last one. */
static void play_new_window(enum part part) {
    switch (part) {
    case BEFORE:
        take(TWO, KEY);
        turn_to(WINDOW);
        tell_window(TWO);
        break;
    default:
        take(TWO, KEY);
    }
}

static void play_new_window_striped(enum part part) {
    switch (part) {
    case BEFORE:
        take(STRIPED, KEY);
        turn_to(WINDOW);
        tell_window(STRIPED);
        break;
    default:
        take(STRIPED, KEY);
    }
}

/* Nobody has decided in the present window yet. */
static void play_old_window(enum part part) {
    switch (part) {
    case BEFORE:
        take(TWO, KEY);
        turn_to(WINDOW);
        break;
    default:
        take(TWO, KEY);
    }
}

/* Likewise, by the second. */
static void play_old_window_any(enum part part) {
    switch (part) {
    case BEFORE:
        take(TWO, KEY);
        turn_to(WINDOW + 1);
        break;
    default:
        take_long(TWO, KEY);
    }
}

/* Likewise, a cost. */
static void play_old_window_cost(enum part part) {
    if (part == BEFORE)
        play_old_window_any(BEFORE);
    else
        (void)decide(TWO, KEY, 2, 0, 0, p.time);
}

static void play_new_window_cost(enum part part) {
    if (part == BEFORE)
        play_new_window(BEFORE);
    else
        (void)decide(TWO, KEY, 2, 0, 0, p.time);
}

static void play_old_window_striped(enum part part) {
    switch (part) {
    case BEFORE:
        take(STRIPED, KEY);
        turn_to(WINDOW);
        break;
    default:
        take(STRIPED, KEY);
    }
}

/* A policy whose tokens are counted by swaps. */
static void play_swap_full(enum part part) {
    if (part == THREAD)
        for (unsigned i = 0; i < 4; i++)
            take(NEAR, KEY);
}

static void play_refused_mark(enum part part) {
    if (part == THREAD)
        for (unsigned i = 0; i < 3; i++)
            take(ONE, KEY);
}

/* Two threads see the last token. A refused one's is hidden by the policy as it is: if what is used up may
 * be a debt later, it is nobody's. */
static void play_overshot(enum part part) {
    /* Others take it, and are refused. They do no more when the window has turned. */
    for (unsigned i = part == MEANWHILE ? 2 : 1; i > 0 && p.time == EPOCH; i--)
        take(TWO, KEY);
    if (part != THREAD)
        return;
    struct stint_policy owing = policies[TWO];
    owing.size = sizeof(owing);
    owing.max_reserved = 2;
    if (stint_policy_change(p.limiter, TWO, &owing) != 0)
        abort();
    turn_to(WINDOW);
    struct stint_verdict look = decide(TWO, KEY, 0, 0, STINT_PEEK, p.time);
    expect(look.used == 0, "B: a debt of what was refused");
}

/* ---- Fetch-adds that come too late ------------------------------------------------------------- */

/* Room was seen; then the slot goes to another key, which has one token left. */
static void play_added_tag(enum part part) {
    switch (part) {
    case BEFORE:
        hold(3);
        take(TWO, KEY);
        tell_window(TWO);
        break;
    case THREAD:
        take(TWO, KEY);
        break;
    default:
        turn_to(WINDOW);
        take(TWO, OTHER);
    }
}

/* Room was seen; then the key's next window begins, and is full. */
static void play_added_room(enum part part) {
    switch (part) {
    case MEANWHILE:
        turn_to(WINDOW);
        take(TWO, KEY);
        take(TWO, KEY);
        break;
    default:
        play_added_tag(part);
    }
}

static void play_added_room_striped(enum part part) {
    switch (part) {
    case BEFORE:
        take(STRIPED, KEY);
        tell_window(STRIPED);
        break;
    case THREAD:
        take(STRIPED, KEY);
        break;
    default:
        turn_to(WINDOW);
        for (unsigned i = 0; i < 4; i++)
            take(STRIPED, KEY);
    }
}

/* Room was seen; then the slot goes to another key, and by a claim whose thread is killed back. */
static void play_added_pending(enum part part) {
    switch (part) {
    case MEANWHILE:
        turn_to(WINDOW);
        take(TWO, OTHER);
        turn_to(2 * WINDOW);
        take_and_die(TWO, KEY, 2 * WINDOW, INSTANT_CLAIMED);
        break;
    default:
        play_added_tag(part);
    }
}

/* Room was seen; then the slot goes to another key. The key spends its window in another slot, and
 * gets the first back when the next one has begun: after the fetch-add, before the look at its tag. */
static void play_added_state(enum part part) {
    switch (part) {
    case BEFORE:
        hold(2);
        take(LATER_END, HOLDER + 2);
        take(TWO, KEY);
        tell_window(TWO);
        break;
    case THREAD:
        take(TWO, KEY);
        break;
    case MEANWHILE:
        turn_to(WINDOW);
        take(TWO, OTHER); /* the key's slot */
        turn_to(16);
        take(TWO, KEY); /* the third */
        take(TWO, KEY);
        break;
    case LATER:
        turn_to(2 * WINDOW);
        take(TWO, THIRD); /* the third */
        take(TWO, KEY);
    }
}

/* Room was seen; then the slot goes to another key. A charge that is taken back from it a window
 * later is one that was never made in that. */
static void play_taken_back(enum part part) {
    switch (part) {
    case BEFORE:
        hold(3);
        take(TWO, KEY);
        tell_window(TWO);
        break;
    case THREAD:
        take(TWO, KEY);
        break;
    case MEANWHILE:
        turn_to(WINDOW);
        take(ONE, OTHER);
        break;
    case LATER:
        turn_to(2 * WINDOW);
        take(ONE, OTHER);
    }
}

/* ---- Claims ------------------------------------------------------------------------------------- */

/* All slots of the line are used. The first falls free at tick 16, the others before. */
static void line_falls_free(void) {
    take(LATER_END, OTHER);
    for (unsigned i = 0; i < 3; i++)
        take(ONE, HOLDER + i);
    turn_to(16);
}

/* A thread is killed with a claim of the first slot, which falls free at the very instant: a late thread has the
 * key in the second by then. The next one meets the claim first. */
static void play_found_pending(enum part part) {
    switch (part) {
    case BEFORE:
        line_falls_free();
        break;
    case THREAD:
        take_and_die(ONCE, KEY, 16, INSTANT_CLAIMED);
        take(ONCE, KEY);
        break;
    default:
        take_at(ONCE, KEY, 15);
    }
}

/* Likewise, of a key with windows of its own: the claim's end is none of them. */
static void play_key_pending(enum part part) {
    static uint64_t window;
    switch (part) {
    case BEFORE:
        window = decide(OWN, KEY, 1, 0, STINT_PEEK, p.time).window;
        take_and_die(OWN, KEY, 0, INSTANT_CLAIMED);
        break;
    default:
        expect(decide(OWN, KEY, 1, 0, STINT_PEEK, p.time).window == window,
               "A: a window that is none of the key's");
    }
}

/* A key that no slot has, in a line whose first slot falls free at the very instant: a late thread
 * takes the second. */
static void play_two_claims(enum part part) {
    switch (part) {
    case BEFORE:
        line_falls_free();
        break;
    case THREAD:
        take(ONCE, KEY);
        break;
    default:
        take_at(ONCE, KEY, 15);
    }
}

/* Likewise: one thread claims and looks while the other, which is ahead of it, has not claimed yet; that
 * one looks while the first has not committed yet. */
static void play_two_looks(enum part part) {
    switch (part) {
    case BEFORE:
        take(ONE, OTHER);
        hold(2);
        take(ONE, HOLDER + 2);
        turn_to(WINDOW);
        take(ONE, OTHER);
        turn_to(2 * WINDOW - 1);
        break;
    case THREAD:
        take(ONCE, KEY);
        break;
    case MEANWHILE: /* a tick ahead of the clock: in the first slot, not in the last */
        (void)decide(ONCE, KEY, 1, 0, STINT_PARTIAL, EPOCH + 2 * WINDOW * STINT_TICK_NS);
        break;
    case LATER:
        break;
    }
}

/* Likewise: the first thread's claim is cancelled, and its slot goes to another key by a claim of the
 * same tick, whose thread is killed. */
static void play_tombstone(enum part part) {
    if (part == LATER)
        take_and_die(TWO, THIRD, 2 * WINDOW - 1, INSTANT_CLAIMED);
    else
        play_two_looks(part);
}

/* A slot is replaced twice within a tick (ends may fall then), the second time by a thread that is
 * killed: the first thread's claim was over, and its slot is another key's now. */
static void play_replaced_claim(enum part part) {
    switch (part) {
    case BEFORE:
        hold(3);
        for (unsigned i = 0; i < 3; i++)
            (void)decide(LONG, HOLDER + i, 8, 0, 0, p.time);
        take(ONE, HOLDER + 3);
        turn_to(8 * WINDOW); /* a begin of both windows */
        break;
    case THREAD:
        (void)decide(LATER_END, KEY, 1, 0, STINT_PARTIAL, p.time);
        take(TWO, THIRD);
        break;
    default:
        turn_to(8 * WINDOW + 1);
        take(TWO, OTHER);
        take_and_die(TWO, THIRD, 8 * WINDOW, INSTANT_CLAIMED);
    }
}

/* A never-used slot is claimed, and while the claimer sleeps another thread commits it for the same key, which is
 * replaced within the same tick, by a thread that is killed: another key's claim. */
static void play_replaced_first(enum part part) {
    switch (part) {
    case BEFORE:
        hold(2);
        for (unsigned i = 0; i < 2; i++)
            (void)decide(LONG, HOLDER + i, 8, 0, 0, p.time);
        tell_window(LATER_END);
        break;
    case THREAD:
        take(LATER_END, KEY);
        take(TWO, THIRD);
        break;
    default:
        take(LATER_END, KEY);
        (void)decide(LONG, HOLDER + 2, 8, 0, 0, p.time);
        take_and_die(TWO, THIRD, 0, INSTANT_CLAIMED);
    }
}

/* A stray token comes to a claim between a thread's load of it and its commit. */
static void play_commit_used(enum part part) {
    switch (part) {
    case BEFORE:
        line_falls_free();
        break;
    case THREAD:
        take_long(TWO, KEY);
        break;
    default:
        add_and_die(TWO, KEY);
    }
}

/* ---- Windows that are over --------------------------------------------------------------------- */

/* All slots of the line but so many have been used by others, whose windows are over. */
static void line_used(unsigned but) {
    for (unsigned i = but; i < 4; i++)
        take(ONE, HOLDER + 10 + i);
    turn_to(WINDOW);
}

/* A key has spent its window and lost its slot when that was over. A late thread must not open the
 * window again. */
static void play_late_claim(enum part part) {
    switch (part) {
    case BEFORE:
        line_used(0);
        take(ONE, KEY);
        turn_to(2 * WINDOW);
        take(LONG, HOLDER);
        break;
    default:
        take_at(ONE, KEY, 2 * WINDOW - 1);
    }
}

/* Likewise, and the late thread finds a slot that was never used: stripes pass that by. */
static void play_late_short(enum part part) {
    switch (part) {
    case BEFORE:
        take(ONE, KEY);
        turn_to(WINDOW);
        take(STRIPED, OTHER);
        break;
    default:
        take_at(ONE, KEY, WINDOW - 1);
    }
}

/* A new key in a table that was never full, and a thread that is later than the allowance: its window is the
 * clock's. */
static void play_late_new(enum part part) {
    switch (part) {
    case BEFORE:
        turn_to(8000);
        take(TWO, OTHER);
        break;
    default:
        take_at(ONE, KEY, 10);
        expect(p.log[p.logged - 1].verdict.window > p.time,
               "H: a window that is over by the clock");
    }
}

/* A late thread's key gets a slot, spends its window and loses the slot while the late thread has
 * not found it, and has claimed another one. */
static void play_late_look(enum part part) {
    switch (part) {
    case BEFORE:
        line_falls_free();
        break;
    case THREAD:
        take_at(ONE, KEY, 15);
        break;
    case MEANWHILE: /* in the first slot, which is over by now */
        take(ONE, KEY);
        break;
    case LATER:
        turn_to(2 * WINDOW);
        take(LONG, HOLDER + 5);
    }
}

/* ---- A full table ------------------------------------------------------------------------------- */

/* A key in debt, whose window is over, and another key that looks for a slot. */
static void play_debt(enum part part) {
    switch (part) {
    case BEFORE:
        hold(3);
        (void)decide(DEBT, KEY, 2, 0, STINT_RESERVE, p.time);
        turn_to(WINDOW);
        break;
    default:
        take(ONE, OTHER);
        expect((p.log[p.logged - 1].verdict.flags & STINT_UNTRACKED) != 0,
               "F: a key in debt has lost its slot");
    }
}

/* A thread so late, and somebody so early, that it asks the clock about the last slot; the first is over by
 * then. */
static void play_full_late(enum part part) {
    switch (part) {
    case BEFORE:
        turn_to(7990);
        take(HALF, OTHER); /* until 8000 */
        for (unsigned i = 0; i < 2; i++)
            take(LONG, HOLDER + i);
        take_at(TWO, HOLDER + 2, 8000 + 5990);
        turn_to(8000);
        break;
    default:
        take_at(ONE, KEY, 7900);
        expect(tracked(&p.log[p.logged - 1]), "G: told of a full table, which has a free slot");
    }
}

/* The clock is stepped back by more than the allowance: slots that end too late for their own windows, but not
 * for the longest one, are free. */
static void play_latest(enum part part) {
    switch (part) {
    case BEFORE:
        turn_to(8000);
        for (unsigned i = 0; i < 4; i++)
            take(TWO, (stint_key)(HOLDER + i) << 40); /* hashes differ in their upper halves, too */
        turn_to(0);
        break;
    default:
        take(ONE, (stint_key)KEY << 40);
        expect(tracked(&p.log[p.logged - 1]), "G: told of a full table, which has a free slot");
    }
}

/* A thread sleeps while it looks for its key. Windows are opened and over one after the other meanwhile, each in
 * another slot and each after those that it has looked at: it must not put them together to a full table. */
static void play_latest_again(enum part part) {
    static unsigned last;
    switch (part) {
    case BEFORE:
        for (unsigned i = 0; i < 4; i++)
            take(TWO, (stint_key)(HOLDER + i) << 40);
        turn_to(WINDOW);
        last = 0;
        break;
    case THREAD:
        take(ONE, (stint_key)KEY << 40);
        expect(tracked(&p.log[p.logged - 1]), "G: told of a full table, which has free slots");
        break;
    default:
        for (unsigned i = 0; i < 4; i++) {
            turn_to(6900 + ++last * 100);
            take(TWO, (stint_key)(HOLDER + i) << 40);
        }
        turn_to(6900 + ++last * 100);
    }
}

/* The key gets the last slot between the search for it and the end of the search for a free one. */
static void play_full_again(enum part part) {
    switch (part) {
    case BEFORE:
        hold(3);
        line_used(3);
        break;
    case THREAD:
        take_long(ONE, KEY);
        expect(tracked(&p.log[p.logged - 1]),
               "G: told of a full table, in which the key has a slot");
        break;
    default:
        take(ONE, KEY);
    }
}

/* Likewise: its own slot is the one with the fewest tokens. */
static void play_replace_own(enum part part) {
    switch (part) {
    case BEFORE:
        hold(4);
        for (unsigned i = 0; i < 4; i++)
            (void)decide(LONG, HOLDER + i, 8, 0, 0, p.time);
        break;
    case THREAD:
        take_long(ONE, KEY);
        break;
    default:
        take(ONE, KEY);
    }
}

/* A claim is cancelled, and its slot taken for the one with the fewest tokens, by a claim of the same
 * tick, whose thread is killed. (See play_two_looks.) */
static void play_replace_free(enum part part) {
    switch (part) {
    case BEFORE:
        play_two_looks(part);
        break;
    case THREAD:
        (void)decide(LONG, KEY, 10, 0, 0, p.time);
        break;
    case MEANWHILE:
        (void)decide(LONG, KEY, 10, 0, 0, EPOCH + 2 * WINDOW * STINT_TICK_NS);
        break;
    case LATER:
        take_and_die(TWO, THIRD, 2 * WINDOW - 1, INSTANT_CLAIMED);
    }
}

/* ---- Refunds ------------------------------------------------------------------------------------ */

/* A refused request has counted past the limit, and its thread was killed. */
static void play_refund_most(enum part part) {
    if (part == BEFORE) {
        take(ONE, KEY);
        add_and_die(ONE, KEY);
    } else {
        refund(ONE, KEY, WINDOW);
    }
}

/* A token is given back that a reset has forgotten. */
static void play_refund_zero(enum part part) {
    if (part == BEFORE) {
        take(ONE, KEY);
        reset(ONE, KEY);
    } else {
        refund(ONE, KEY, WINDOW);
    }
}

/* A token is given back when the next window has begun. */
static void play_refund_window(enum part part) {
    if (part == BEFORE) {
        take(ONE, KEY);
        turn_to(WINDOW);
        take(ONE, KEY);
    } else {
        refund(ONE, KEY, WINDOW);
    }
}

/* A key had no slot, and was let through: by that verdict nothing can be given back, not even in a window
 * whose end is 0 in the bits of a slot. */
static void play_refund_none(enum part part) {
    if (part == BEFORE) {
        uint64_t around = (UINT64_C(1) << ID_BITS) * STINT_TICK_NS;
        p.time = (EPOCH / around + 1) * around - STINT_TICK_NS;
        (void)decide(ONE, KEY, 1, 0, STINT_PARTIAL, p.time);
    } else {
        refund_by(ONE, KEY, 0);
    }
}

/* ---- Groups ------------------------------------------------------------------------------------- */

/* Two tokens of one key in its next window; its slot goes to another key, in a window that ends as that one. */
static void play_parts_earlier(enum part part) {
    switch (part) {
    case BEFORE:
        hold(2);
        take(TWO, KEY);
        take(ONE, HOLDER + 2);
        turn_to(WINDOW);
        tell_window(TWO);
        break;
    case THREAD:
        take_both(TWO, KEY, TWO, KEY);
        break;
    default:
        take(TWO, OTHER);
    }
}

/* What goes wrong where one token is taken (above), for a part of a group. */
static void play_part_tag(enum part part) {
    if (part == THREAD)
        take_both(TWO, KEY, LONG, HOLDER);
    else
        play_take_tag(part);
}

static void play_part_new_window(enum part part) {
    if (part == THREAD)
        take_both(TWO, KEY, LONG, HOLDER);
    else
        play_new_window(part);
}

static void play_part_old_window(enum part part) {
    if (part == THREAD)
        take_both(TWO, KEY, LONG, HOLDER);
    else
        play_old_window(part);
}

/* Two threads see the last token, one of them with another key's. */
static void play_parts_added(enum part part) {
    if (part == THREAD)
        take_both(TWO, KEY, LONG, OTHER);
    else
        play_last_token(part);
}

/* Likewise, and the one without it has the other key's already. */
static void play_parts_back(enum part part) {
    switch (part) {
    case BEFORE:
        take(TWO, OTHER);
        take(TWO, KEY);
        break;
    case THREAD:
        take_both(TWO, OTHER, TWO, KEY);
        break;
    default:
        take(TWO, KEY);
    }
}

/* ---- Stripes ------------------------------------------------------------------------------------ */

/* All that is left, and somebody takes a token of it meanwhile: some stripes give, and are given back to. */
static void play_stripes_back(enum part part) {
    if (part == MEANWHILE)
        take(STRIPED, KEY);
    else if (part == THREAD)
        (void)decide(STRIPED, KEY, 4, 0, 0, p.time);
}

/* The window turns while a request goes round: its own stripe had no token left, the next one is in the new
 * window by now. Somebody asks for that one's last token, and then that window is over, too. */
static void play_stripes_here(enum part part) {
    switch (part) {
    case BEFORE:
        take(STRIPED, KEY);
        take(STRIPED, KEY);
        break;
    case THREAD:
        take(STRIPED, KEY);
        break;
    case MEANWHILE:
        turn_to(WINDOW);
        for (unsigned i = 0; i < 3; i++)
            take(STRIPED, KEY);
        break;
    case LATER:
        take(STRIPED, KEY);
        turn_to(2 * WINDOW);
        take(STRIPED, KEY);
    }
}

/* ---- All of them -------------------------------------------------------------------------------- */

#define BIT(guard)     (UINT64_C(1) << GUARD_##guard)
#define WITHOUT(guard) #guard, BIT(guard), NULL
#define PATCHED(patch) patch, 0, patch

/* Those with swap-tag: the tag that every swap compares keeps these mistakes from doing harm, as long as
 * it is compared. */
const struct mistake mistakes[] = {
    {"another key's room", WITHOUT(TAKE_TAG), 1, play_take_tag},
    {"another key's room, striped", WITHOUT(STRIPE_TAG), 1, play_stripe_tag},
    {"another key's refusal, fast", WITHOUT(FOUND_TAG), 1, play_refused_tag},
    {"another key's refusal", WITHOUT(FOUND_TAG), 1, play_found_tag},
    {"another key's refusal, and back, fast", WITHOUT(FOUND_STATE), 2, play_refused_state},
    {"another key's refusal, and back", WITHOUT(FOUND_STATE), 2, play_found_state},
    {"two threads and one token", WITHOUT(TAKE_ADDED), 1, play_last_token},
    {"two threads and one token, striped", WITHOUT(STRIPE_ADDED), 1, play_last_token_striped},
    {"add to a window that is over", WITHOUT(TAKE_ROOM), 0, play_new_window},
    {"add to a window that is over, striped", WITHOUT(STRIPE_ROOM), 0, play_new_window_striped},
    {"window of the last request", WITHOUT(TAKE_WINDOW), 0, play_old_window},
    {"window of the last request, any", WITHOUT(HINT_WINDOW), 0, play_old_window_any},
    {"swap in a window that is over", WITHOUT(TAKE_ROOM), 0, play_new_window_cost},
    {"window of the last request, a cost", WITHOUT(HINT_WINDOW), 0, play_old_window_cost},
    {"window of the last request, striped", WITHOUT(STRIPE_WINDOW), 0, play_old_window_striped},
    {"swap in a window that is over", WITHOUT(TAKE_ROOM), 0, play_new_window_cost},
    {"window of the last request, a cost", WITHOUT(HINT_WINDOW), 0, play_old_window_cost},
    {"swap past the capacity", WITHOUT(JUDGE_ROOM), 0, play_swap_full},
    {"fast refusal that is the first", WITHOUT(FOUND_MARK), 0, play_refused_mark},
    {"overshoot that becomes a debt", WITHOUT(OVERSHOT_CUT), 1, play_overshot},
    {"late add to another key", WITHOUT(ADDED_TAG), 1, play_added_tag},
    {"late add to a full window", WITHOUT(ADDED_ROOM), 1, play_added_room},
    {"late add to a full window, striped", WITHOUT(STRIPES_ADDED), 1, play_added_room_striped},
    {"late add to a claim", WITHOUT(ADDED_PENDING), 1, play_added_pending},
    {"late add to another key, and back", WITHOUT(ADDED_STATE), 2, play_added_state},
    {"charge taken back", PATCHED("added-stays"), 2, play_taken_back},
    {"counted in a claim", WITHOUT(FOUND_PENDING), 1, play_found_pending},
    {"window of a claim", WITHOUT(KEY_PENDING), 0, play_key_pending},
    {"no look after a claim", WITHOUT(PENDING), 1, play_two_claims},
    {"look that cancels a committed slot", WITHOUT(RIVAL_COMMITTED), 1, play_two_claims},
    {"later claim left standing", WITHOUT(RIVAL_LATER), 3, play_two_looks},
    {"tombstone reused in its window", "reuse-tombstone", 0, "reuse-tombstone swap-tag", 3,
     play_tombstone},
    {"cancel that writes zero", "cancel-end", 0, "cancel-end swap-tag", 3, play_tombstone},
    {"cancel that leaves pending", "cancel-pending", 0, "cancel-pending swap-tag", 3,
     play_two_looks},
    {"commit of the state alone", PATCHED("swap-tag"), 1, play_replaced_claim},
    {"commit that waits for another claim", WITHOUT(COMMIT_TAG), 1, play_replaced_claim},
    {"first claim like any", PATCHED("short-first"), 1, play_replaced_first},
    {"commit that waits for used = 0", PATCHED("commit-used"), 1, play_commit_used},
    {"watermark not raised", WITHOUT(WATERMARK_RAISE), 0, play_late_claim},
    {"watermark not read", "watermark-read", BIT(SHORT_WATERMARK), "watermark-read", 0,
     play_late_claim},
    {"watermark not read, short", WITHOUT(SHORT_WATERMARK), 0, play_late_short},
    {"late new key", WITHOUT(SHORT_LATEST), 0, play_late_new},
    {"watermark read before the look", PATCHED("watermark-last"), 2, play_late_look},
    {"slot of a key in debt", WITHOUT(REUSE_CARRIES), 0, play_debt},
    {"full by a late time", WITHOUT(FULL_LATE), 0, play_full_late},
    {"opened without telling how late", WITHOUT(LATEST_RAISE), 0, play_latest},
    {"asleep in a search", WITHOUT(LATEST_AGAIN), 1, play_latest_again},
    {"full without another search", WITHOUT(FULL_AGAIN), 1, play_full_again},
    {"key replaces itself", WITHOUT(REPLACE_OWN), 1, play_replace_own},
    {"tombstone replaced", "REPLACE_FREE", BIT(REPLACE_FREE), "swap-tag", 3, play_replace_free},
    {"refund without the minimum", WITHOUT(REFUND_MOST), 0, play_refund_most},
    {"refund below zero", WITHOUT(REFUND_ZERO), 0, play_refund_zero},
    {"refund into another window", WITHOUT(REFUND_WINDOW), 0, play_refund_window},
    {"refund of an untracked token", WITHOUT(REFUND_NONE), 0, play_refund_none},
    {"add to an earlier part's window", PATCHED("parts-earlier"), 1, play_parts_earlier},
    {"another key's room, a group", WITHOUT(TAKE_TAG), 1, play_part_tag},
    {"add to a window that is over, a group", WITHOUT(TAKE_ROOM), 0, play_part_new_window},
    {"window of the last request, a group", WITHOUT(TAKE_WINDOW), 0, play_part_old_window},
    {"two threads and one token, a group", WITHOUT(PARTS_ADDED), 1, play_parts_added},
    {"group keeps what it took", WITHOUT(PARTS_BACK), 1, play_parts_back},
    {"token of the next window, given back", PATCHED("stripes-here"), 2, play_stripes_here},
    {"stripes keep what they gave", WITHOUT(STRIPES_BACK), 1, play_stripes_back},
};
const unsigned mistake_count = sizeof(mistakes) / sizeof(mistakes[0]);

/* ---- Playing ------------------------------------------------------------------------------------ */

static bool replaces(const struct mistake *mistake) {
    return mistake->play == play_replaced_claim || mistake->play == play_replaced_first ||
           mistake->play == play_replace_own || mistake->play == play_replace_free;
}

static void others(enum part part) {
    void (*hook)(enum stint_test_instant instant) = stint_test_hook;
    p.running = NOBODY;
    stint_test_hook = NULL;
    p.mistake->play(part);
    stint_test_hook = hook;
    p.running = FIRST;
}

/* The second thread. */
static ucontext_t first_context, second_context;
static char second_stack[STACK] __attribute__((aligned(64)));

static void second_main(void) {
    p.mistake->play(MEANWHILE);
    p.second_done = true;
    swapcontext(&second_context, &first_context);
}

static void second_goes_on(void) {
    if (p.second_done)
        return;
    p.running = SECOND;
    swapcontext(&first_context, &second_context);
    p.running = FIRST;
    if (p.waits)
        longjmp(p.stuck, 1);
}

static void second_begins(void) {
    getcontext(&second_context);
    second_context.uc_stack.ss_sp = second_stack;
    second_context.uc_stack.ss_size = STACK;
    second_context.uc_link = NULL;
    makecontext(&second_context, second_main, 0);
    p.second_done = false;
    second_goes_on();
}

static void step_of_first(void) {
    unsigned at = p.steps[FIRST];
    if (p.mistake->stops == 3) {
        if (at == p.stops[0])
            second_begins();
        if (at == p.stops[2]) {
            second_goes_on();
            others(LATER);
        }
    } else {
        if (at == p.stops[0])
            others(MEANWHILE);
        if (at == p.stops[1])
            others(LATER);
    }
}

static void step(const void *word) {
    const struct table *table = &p.limiter->table;
    if (++p.all_steps > STEPS_MOST) {
        p.waits = true;
        if (p.running == SECOND)
            swapcontext(&second_context, &first_context);
        longjmp(p.stuck, 1);
    }
    if (p.running == NOBODY || (const char *)word < (const char *)table->shards ||
        (const char *)word >= (const char *)(table->lines + table->line_count))
        return;
    p.steps[p.running]++;
    if (p.running == FIRST)
        step_of_first();
    else if (p.steps[SECOND] == p.stops[1])
        swapcontext(&second_context, &first_context);
}

/* Plays a story with the threads stopped at these of their steps (0: not). */
static void play_once(const struct mistake *mistake, const unsigned stops[3]) {
    p.mistake = mistake;
    p.logged = p.all_steps = 0;
    memset(p.steps, 0, sizeof(p.steps));
    memcpy(p.stops, stops, sizeof(p.stops));
    p.broken = NULL;
    p.waits = false;
    p.second_done = true;
    open_table(replaces(mistake) ? STINT_FULL_REPLACE : STINT_FULL_REFUSE);
    mistake->play(BEFORE);
    stint_test_step = step;
    if (setjmp(p.stuck) == 0) {
        p.running = FIRST;
        mistake->play(THREAD);
        second_goes_on();
        p.running = NOBODY;
        judge_log();
    } else {
        p.running = NOBODY;
        p.broken = "E: a thread waits for one that does not go on";
    }
    stint_test_step = NULL;
    stint_test_hook = NULL;
    stint_close(p.limiter);
}

/* The next stops to try. Returns whether there are any. */
static bool next_stops(const struct mistake *mistake, unsigned stops[3]) {
    switch (mistake->stops) {
    case 3:
        if (++stops[2] <= p.steps[FIRST] && stops[2] <= stops[0] + STOPS_TRIED)
            return true;
        stops[2] = stops[0];
        if (++stops[1] <= p.steps[SECOND] && stops[1] <= STOPS_TRIED + STOPS_TRIED / 2)
            return true;
        stops[1] = 1;
        stops[2] = ++stops[0];
        return stops[0] <= p.steps[FIRST];
    case 2:
        if (++stops[1] <= p.steps[FIRST])
            return true;
        stops[1] = ++stops[0];
        return stops[0] <= p.steps[FIRST];
    case 1:
        return ++stops[0] <= p.steps[FIRST];
    default:
        return false;
    }
}

bool mistake_playable(const struct mistake *mistake) {
#ifdef STINT_THREAD_SANITIZER
    return mistake->stops < 3;
#else
    (void)mistake;
    return true;
#endif
}

struct outcome mistake_play(const struct mistake *mistake, uint64_t removed) {
    struct outcome outcome = {.plays = 0};
    unsigned stops[3];

    for (unsigned i = 0; i < 3; i++)
        stops[i] = i < mistake->stops;
    stint_test_removed = removed;
    do {
        play_once(mistake, stops);
        outcome.plays++;
        outcome.broken = p.broken;
        memcpy(outcome.stops, stops, sizeof(stops));
    } while (outcome.broken == NULL && next_stops(mistake, stops));
    stint_test_removed = 0;
    return outcome;
}
