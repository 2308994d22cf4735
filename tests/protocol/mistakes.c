/* SPDX-License-Identifier: MIT
 * No threads: what others do is done inside the thread's own call, before one of its atomic
 * operations; a second thread that is stopped as well has a stack of its own. The table is one
 * line of four slots; times are ticks from a common start of all windows. A story is data: acts
 * that are done before, by the thread, meanwhile and later. */
#include "mistakes.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "policy_id.h"
#include "slot.h"

#include "model.h"
#include "random.h"

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
enum {
    ONE,
    TWO,
    NEAR,
    STRIPED,
    DEBT,
    LATER_END,
    HALF,
    ONCE,
    LONG,
    OWN,
    BY_FIRST,
    MONTH,
    HELD,
    SMOOTH,
    RULED,
    POLICIES
};

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
    [BY_FIRST] = {.name = "first",
                  .limit = 1,
                  .window = WINDOW * STINT_TICK_NS,
                  .flags = STINT_START_FIRST},
    [MONTH] = {.name = "month", .limit = 1, .calendar = STINT_CALENDAR_MONTH},
    [HELD] = {.name = "held",
              .limit = 2,
              .window = WINDOW * STINT_TICK_NS,
              .flags = STINT_IN_FLIGHT},
    [SMOOTH] = {.name = "smooth",
                .limit = SMOOTH_MAX,
                .window = WINDOW * STINT_TICK_NS,
                .flags = STINT_SMOOTH},
    /* The last one: its companion has the id behind it. */
    [RULED] = {.name = "ruled",
               .limit = 2,
               .window = 1000 * WINDOW * STINT_TICK_NS,
               .flags = STINT_OVERRIDES},
};

/* 2024-02-01, by the clock of all. */
#define FEBRUARY 674560000

struct play {
    const struct act *before;    /* what was there */
    const struct act *thread;    /* what the thread does that is stopped */
    const struct act *meanwhile; /* what others do while it is stopped, or a second thread that is
                                  * stopped, too */
    const struct act *later;     /* what others do when it is stopped again */
    bool replaces;               /* in a table that replaces keys */
    bool key_replaced;           /* KEY, of which A and B need not hold then (G) */
    bool of_policies;            /* the thread is stopped where it reads a policy, too */
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
    unsigned raised; /* by so much have limits been */
    const char *broken;
    jmp_buf stuck, died;
    enum stint_test_instant dies_at;
} p;

/* ---- Calls ----------------------------------------------------------------------------------- */

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
    const uint64_t told = verdict.window - verdict.reset_after; /* a late caller's is the clock's */
    struct logged *logged = log_call(key, policy, told > now ? told : now);
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
    options.max_policies = POLICIES + 2; /* one is replaced, and one has a companion */
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

/* ---- What came of it ------------------------------------------------------------------------- */

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

/* What counts in a window: in flight, also what has been held since the one before. */
static int64_t counted_in(const struct logged *which) {
    const struct stint_policy *policy = &policies[which->policy];
    struct logged before = *which;
    before.verdict.window -= policy->window;
    return tokens_in(which) + (is_in_flight(policy) ? tokens_in(&before) : 0);
}

static unsigned first_refusals(const struct logged *which) {
    unsigned count = 0;
    for (unsigned i = 0; i < p.logged; i++)
        count += p.log[i].key == which->key && p.log[i].policy == which->policy &&
                 p.log[i].verdict.window == which->verdict.window &&
                 (p.log[i].verdict.flags & STINT_FIRST_REFUSAL) != 0;
    return count;
}

/* Whether a window can be one of the policy's, and of a key: what first requests begin has no tick
 * in common. */
static bool window_may_be(const struct logged *logged) {
    const struct stint_policy *policy = &policies[logged->policy];
    const uint64_t window = logged->verdict.window;

    if (is_calendar(policy))
        return calendar_edge(policy, window - 1, true) == window;
    if (!is_first(policy))
        return (policy->flags & STINT_START_PER_KEY) != 0 || (window - EPOCH) % policy->window == 0;
    for (unsigned i = 0; i < p.logged; i++) {
        const struct logged *other = &p.log[i];
        uint64_t apart = other->verdict.window > window ? other->verdict.window - window
                                                        : window - other->verdict.window;
        if (other->key == logged->key && other->policy == logged->policy && tracked(other) &&
            apart != 0 && apart < policy->window)
            return false;
    }
    return true;
}

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
    bool replaced = p.mistake->play->key_replaced;
    for (unsigned i = 0; i < p.logged; i++) {
        const struct logged *logged = &p.log[i];
        const struct stint_policy *policy = &policies[logged->policy];
        if (!tracked(logged))
            continue;
        expect(window_may_be(logged), is_first(policy)
                                          ? "A: two windows of a key at once"
                                          : "A: a window that is none of the policy's");
        expect(logged->verdict.window > logged->now, "H: a window that is over");
        if (policy->max_reserved != 0 || (stats.replaced != 0 && (replaced || logged->key != KEY)))
            continue;
        int64_t tokens = counted_in(logged);
        expect(tokens <= policy->limit + p.raised, "A: more than the limit in one window");
        if (logged->verdict.allowed || !logged->whole || stats.replaced != 0)
            continue;
        expect(tokens + (int64_t)stats.stray_tokens >= policy->limit,
               "B: refused though there was room");
        expect(first_refusals(logged) == 1, "C: the first refusal is told once");
    }
}

/* ---- Acts ------------------------------------------------------------------------------------ */

/* One of the things that are done in a story, with what it needs. */
struct act {
    enum verb {
        LAST, /* the last of a part */
        HOLD,
        TAKE,
        TAKE_AT,
        DECIDE,
        DECIDE_AT,
        BOTH,
        REFUND,
        RESET,
        TURN,
        TELL,
        DIE,
        ADD_AND_DIE,
        PLACED,
        CALL,
    } verb;
    uint32_t policy, other_policy;
    stint_key key, other;
    uint32_t cost, flags;
    unsigned times, tick;
    enum stint_test_instant instant;
    const char *promise;
    void (*call)(void);
};

static void play_act(const struct act *act) {
    switch (act->verb) {
    case LAST:
        break;
    case HOLD:
        hold(act->times);
        break;
    case TAKE:
        for (unsigned i = 0; i < act->times; i++)
            take(act->policy, act->key);
        break;
    case TAKE_AT:
        take_at(act->policy, act->key, act->tick);
        break;
    case DECIDE:
        (void)decide(act->policy, act->key, act->cost, 0, act->flags, p.time);
        break;
    case DECIDE_AT:
        (void)decide(act->policy, act->key, act->cost, 0, act->flags,
                     EPOCH + act->tick * STINT_TICK_NS);
        break;
    case BOTH:
        take_both(act->policy, act->key, act->other_policy, act->other);
        break;
    case REFUND:
        refund_by(act->policy, act->key, EPOCH + act->tick * STINT_TICK_NS);
        break;
    case RESET:
        reset(act->policy, act->key);
        break;
    case TURN:
        turn_to(act->tick);
        break;
    case TELL:
        tell_window(act->policy);
        break;
    case DIE:
        take_and_die(act->policy, act->key, act->tick, act->instant);
        break;
    case ADD_AND_DIE:
        add_and_die(act->policy, act->key);
        break;
    case PLACED:
        expect(tracked(&p.log[p.logged - 1]), act->promise);
        break;
    case CALL:
        act->call();
        break;
    }
}

static void play_acts(const struct act *act) {
    for (; act != NULL && act->verb != LAST; act++)
        play_act(act);
}

/* ---- Those that need more than one line ------------------------------------------------------ */

/* The policy may let its keys be in debt from now on. If what is used up may be a debt, it is
 * nobody's. */
static void reservations_begin(void) {
    struct stint_policy owing = policies[TWO];
    owing.size = sizeof(owing);
    owing.max_reserved = 2;
    if (stint_policy_change(p.limiter, TWO, &owing) != 0)
        abort();
    turn_to(WINDOW);
    struct stint_verdict look = decide(TWO, KEY, 0, 0, STINT_PEEK, p.time);
    expect(look.used == 0, "B: a debt of what was refused");
}

/* Others take the last token and are refused. They do no more when the window has turned. */
static void two_in_the_first_window(void) {
    for (unsigned i = 0; i < 2 && p.time == EPOCH; i++)
        take(TWO, KEY);
}

/* All slots of the line are used. The first falls free at tick 16, the others before. */
static void line_falls_free(void) {
    take(LATER_END, OTHER);
    for (unsigned i = 0; i < 3; i++)
        take(ONE, HOLDER + i);
    turn_to(16);
}

static uint64_t own_window;

static void see_own_window(void) {
    own_window = decide(OWN, KEY, 1, 0, STINT_PEEK, p.time).window;
}

static void see_it_again(void) {
    expect(decide(OWN, KEY, 1, 0, STINT_PEEK, p.time).window == own_window,
           "A: a window that is none of the key's");
}

/* Policy TWO is replaced by one of other windows. Its tokens are counted here, as the log takes
 * windows with one end for one. */
static unsigned old_granted;

static void replace_two(const char *text) {
    if (stint_policies_apply(p.limiter, text, 0, NULL, NULL, NULL) != 0)
        abort();
}

static bool take_of_two(uint64_t window) {
    struct stint_verdict verdict;
    stint_take(p.limiter, TWO, KEY, 1, STINT_NOW, &verdict);
    return verdict.granted != 0 && verdict.window == window;
}

static void take_of_old(void) {
    old_granted += take_of_two(EPOCH + WINDOW * STINT_TICK_NS);
    expect(old_granted <= 2, "A: more than the limit in one window");
}

static void take_first_of_old(void) {
    old_granted = 0;
    take_of_old();
}

static void rest_is_taken(void) {
    while (take_of_two(EPOCH + WINDOW * STINT_TICK_NS))
        old_granted++;
}

static void two_is_replaced(void) {
    replace_two("2/250ms name=two");
}

/* In the last tick of the window. */
static void replaced_late(void) {
    turn_to(WINDOW - 1);
    rest_is_taken();
    two_is_replaced();
}

/* Both policies have granted all in windows with the same end. */
static void refund_of_replaced(void) {
    const uint64_t end = EPOCH + WINDOW * STINT_TICK_NS;
    (void)take_of_two(end);
    replace_two("2/50ms name=two");
    turn_to(WINDOW - 1);
    while (take_of_two(end))
        ;
    (void)stint_refund(p.limiter, TWO, KEY, 1, end);
    expect(!take_of_two(end), "A: more than the limit in one window");
}

static void raise_limit(uint32_t policy_id) {
    struct stint_policy raised = policies[policy_id];
    raised.size = sizeof(raised);
    raised.limit += 2;
    p.raised = 2;
    if (stint_policy_change(p.limiter, policy_id, &raised) != 0)
        abort();
}

static void two_is_raised(void) {
    raise_limit(TWO);
}

static void striped_is_raised(void) {
    raise_limit(STRIPED);
}

static void near_is_removed(void) {
    if (stint_policy_remove(p.limiter, NEAR) != 0)
        abort();
}

static void override(stint_key key, uint32_t limit, unsigned until) {
    if (stint_override(p.limiter, RULED, key, limit, EPOCH + until * STINT_TICK_NS) != 0)
        abort();
}

/* Another key's, until its window is over; then not so long. */
static void overridden_next(void) {
    override(OTHER, 1, 2 * WINDOW);
}

static void override_sooner(void) {
    override(OTHER, 1, WINDOW + 1);
}

static void override_lifted(void) {
    if (stint_override_clear(p.limiter, RULED, OTHER) != 0)
        abort();
}

/* An override that takes nothing away, until tick 5; and what else the line holds. */
static void overridden_a_while(void) {
    take(RULED, KEY);
    hold(2);
    override(KEY, 2, 5);
}

/* It is over, and another key that is refused all gets its slot. */
static void another_overridden(void) {
    turn_to(6);
    override(OTHER, 0, 900);
}

/* The long way: the short one looks again before it refuses. */
static void take_ruled(void) {
    const bool allowed = decide(RULED, KEY, 1, 0, STINT_PARTIAL, p.time).allowed;
    expect(allowed, "B: refused by another key's override");
}

/* What is set holds for whoever comes after. */
static void override_and_take(void) {
    take(RULED, KEY);
    override(KEY, 1, 900);
    const bool allowed = decide(RULED, KEY, 1, 0, 0, p.time).allowed;
    expect(!allowed, "A: more than the key's own limit");
    if (!allowed)
        (void)stint_override_clear(p.limiter, RULED, KEY);
}

/* The key has taken what its override allows, whose slot comes first in the line. */
static void overridden_and_taken(void) {
    override(KEY, 1, 900);
    take(RULED, KEY);
}

/* The whole path. Whether the policy is there makes no difference; what is told does. If it is, the
 * key gets back what the policy gives it. */
static void take_no_more(void) {
    const struct stint_request request = {
        .key = KEY, .policy = RULED, .cost = 1, .flags = STINT_PARTIAL};
    struct stint_verdict verdict;
    const bool allowed = stint_decide(p.limiter, &request, p.time, &verdict);
    expect(!allowed, "A: more than the key's own limit");
    if (p.steps[SECOND] != 0)
        return;
    log_call(KEY, RULED, verdict.window - verdict.reset_after)->verdict = verdict;
    (void)stint_override_clear(p.limiter, RULED, KEY);
}

static void ruled_is_removed(void) {
    if (stint_policy_remove(p.limiter, RULED) != 0)
        abort();
}

/* Those who hold slots hold 8 tokens more. */
static void hold_more(void) {
    const unsigned held = p.logged;
    for (unsigned i = 0; i < held; i++)
        (void)decide(LONG, HOLDER + i, 8, 0, 0, p.time);
}

/* All slots of the line but three, or all, have been used by others, whose windows are over. */
static void use_last_slot(void) {
    take(ONE, HOLDER + 13);
    turn_to(WINDOW);
}

static void use_line(void) {
    for (unsigned i = 0; i < 4; i++)
        take(ONE, HOLDER + 10 + i);
    turn_to(WINDOW);
}

static void see_window_of_clock(void) {
    expect(p.log[p.logged - 1].verdict.window > p.time, "H: a window that is over by the clock");
}

static void see_january(void) {
    expect(p.log[p.logged - 1].verdict.window == EPOCH + FEBRUARY * STINT_TICK_NS,
           "H: the month after that of now");
}

static void see_untracked(void) {
    expect((p.log[p.logged - 1].verdict.flags & STINT_UNTRACKED) != 0,
           "F: a key in debt has lost its slot");
}

/* Four keys whose hashes differ in their upper halves, too. */
#define FAR(key) ((stint_key)(key) << 40)

static void four_far_keys(void) {
    for (unsigned i = 0; i < 4; i++)
        take(TWO, FAR(HOLDER + i));
}

static unsigned last_turn;

static void turns_begin(void) {
    four_far_keys();
    turn_to(WINDOW);
    last_turn = 0;
}

static void four_windows_pass(void) {
    for (unsigned i = 0; i < 4; i++) {
        turn_to(6900 + ++last_turn * 100);
        take(TWO, FAR(HOLDER + i));
    }
    turn_to(6900 + ++last_turn * 100);
}

/* Before the window whose end is 0 in the bits of a slot. */
static void take_before_wrap(void) {
    uint64_t around = (UINT64_C(1) << ID_BITS) * STINT_TICK_NS;
    p.time = (EPOCH / around + 1) * around - STINT_TICK_NS;
    (void)decide(ONE, KEY, 1, 0, STINT_PARTIAL, p.time);
}

static void refund_by_0(void) {
    refund_by(ONE, KEY, 0);
}

/* ---- Stories: what was there, and who does what ---------------------------------------------- */

/* clang-format off */
#define ACTS(...) (const struct act[]){__VA_ARGS__, done}
#define hold(n)               {HOLD, .times = n}
#define take(id, who)         {TAKE, .policy = id, .key = who, .times = 1}
#define takes(n, id, who)     {TAKE, .policy = id, .key = who, .times = n}
#define take_at(id, who, at)  {TAKE_AT, .policy = id, .key = who, .tick = at}
#define take_long(id, who)    {DECIDE, .policy = id, .key = who, .cost = 1, .flags = STINT_PARTIAL}
#define decide(id, who, n, f) {DECIDE, .policy = id, .key = who, .cost = n, .flags = f}
#define decide_at(id, who, n, f, at) \
    {DECIDE_AT, .policy = id, .key = who, .cost = n, .flags = f, .tick = at}
#define both(id, who, id2, who2) \
    {BOTH, .policy = id, .key = who, .other_policy = id2, .other = who2}
#define refund(id, who, end)  {REFUND, .policy = id, .key = who, .tick = end}
#define reset(id, who)        {RESET, .policy = id, .key = who}
#define done                  {.verb = LAST}
#define turn(at)              {TURN, .tick = at}
#define tell(id)              {TELL, .policy = id}
#define die(id, who, at) \
    {DIE, .policy = id, .key = who, .tick = at, .instant = INSTANT_CLAIMED}
#define add_and_die(id, who)  {ADD_AND_DIE, .policy = id, .key = who}
#define placed(text)          {PLACED, .promise = text}
#define call(function)        {CALL, .call = function}

static const struct act key_once[] = {take(TWO, KEY), done};
static const struct act striped_once[] = {take(STRIPED, KEY), done};
static const struct act other_once[] = {take(TWO, OTHER), done};

/* ---- What is found at once ------------------------------------------------------------------- */

/* A key's slot goes to another key between the search for its tag and the load of the state: that
 * shows room, the other key's. */
static const struct act slot_is_over[] = {
    hold(3), take(TWO, KEY), turn(WINDOW), tell(TWO), done};
static const struct play take_tag = {
    .before = slot_is_over, .thread = key_once, .meanwhile = other_once};

/* Likewise of a stripe. */
static const struct play stripe_tag = {
    .before = ACTS(hold(2), takes(4, STRIPED, KEY), turn(WINDOW), tell(STRIPED)),
    .thread = striped_once, .meanwhile = ACTS(take(TWO, OTHER), take(TWO, THIRD))};

/* Likewise, and the other key is full and refused. */
static const struct act full_slot_is_over[] = {
    hold(3), take(ONE, KEY), turn(WINDOW), tell(ONE), done};
static const struct act other_is_refused[] = {takes(2, ONE, OTHER), done};
static const struct play refused_tag = {
    .before = full_slot_is_over, .thread = ACTS(take(ONE, KEY)), .meanwhile = other_is_refused};
static const struct play found_tag = {
    .before = full_slot_is_over, .thread = ACTS(take_long(ONE, KEY)),
    .meanwhile = other_is_refused};

/* The slot goes to another key, which is full and refused when the state is loaded, and comes back
 * before the second look at the tag, in a later window. */
static const struct act key_is_back[] = {turn(2 * WINDOW), take(ONE, KEY), done};
static const struct play refused_state = {
    .before = full_slot_is_over, .thread = ACTS(take(ONE, KEY)), .meanwhile = other_is_refused,
    .later = key_is_back};
static const struct play found_state = {
    .before = full_slot_is_over, .thread = ACTS(take_long(ONE, KEY)), .meanwhile = other_is_refused,
    .later = key_is_back};

/* Two threads see the last token; of a stripe, the last of its own. */
static const struct play last_token = {
    .before = key_once, .thread = key_once, .meanwhile = key_once};
static const struct play last_token_striped = {
    .before = striped_once, .thread = striped_once, .meanwhile = striped_once};

/* A key's first request in a window finds its slot in the last one. */
static const struct act used_before[] = {take(TWO, KEY), turn(WINDOW), tell(TWO), done};
static const struct play new_window = {.before = used_before, .thread = key_once};
static const struct play new_window_cost = {
    .before = used_before, .thread = ACTS(decide(TWO, KEY, 2, 0))};
static const struct play new_window_striped = {
    .before = ACTS(take(STRIPED, KEY), turn(WINDOW), tell(STRIPED)), .thread = striped_once};

/* Nobody has decided in the present window yet. */
static const struct act window_is_over[] = {take(TWO, KEY), turn(WINDOW), done};
static const struct play old_window = {.before = window_is_over, .thread = key_once};
static const struct play old_window_striped = {
    .before = ACTS(take(STRIPED, KEY), turn(WINDOW)), .thread = striped_once};

/* Likewise, by the second; and a cost. */
static const struct act next_has_begun[] = {take(TWO, KEY), turn(WINDOW + 1), done};
static const struct play old_window_any = {
    .before = next_has_begun, .thread = ACTS(take_long(TWO, KEY))};
static const struct play old_window_cost = {
    .before = next_has_begun, .thread = ACTS(decide(TWO, KEY, 2, 0))};

/* A policy whose tokens are counted by swaps. */
static const struct play swap_full = {.thread = ACTS(takes(4, NEAR, KEY))};

static const struct play refused_mark = {.thread = ACTS(takes(3, ONE, KEY))};

/* Two threads see the last token. A refused one's is hidden by the policy as it is. */
static const struct play overshot = {
    .before = key_once, .thread = ACTS(take(TWO, KEY), call(reservations_begin)),
    .meanwhile = ACTS(call(two_in_the_first_window))};

/* ---- Fetch-adds that come too late ----------------------------------------------------------- */

/* Room was seen; then the slot goes to another key, which has one token left. */
static const struct act slot_has_room[] = {hold(3), take(TWO, KEY), tell(TWO), done};
static const struct play added_tag = {
    .before = slot_has_room, .thread = key_once, .meanwhile = ACTS(turn(WINDOW), take(TWO, OTHER))};

/* Likewise, which has used all that a smooth key's window counts. */
static const struct play added_smooth = {
    .before = slot_has_room, .thread = key_once,
    .meanwhile = ACTS(turn(WINDOW), decide(SMOOTH, OTHER, SMOOTH_MAX, 0))};

/* Room was seen; then the key's next window begins, and is full. */
static const struct play added_room = {
    .before = slot_has_room, .thread = key_once,
    .meanwhile = ACTS(turn(WINDOW), takes(2, TWO, KEY))};
static const struct play added_room_striped = {
    .before = ACTS(take(STRIPED, KEY), tell(STRIPED)), .thread = striped_once,
    .meanwhile = ACTS(turn(WINDOW), takes(4, STRIPED, KEY))};

/* Room was seen, and there is none by the time of the fetch-add. What was added is cut off by who
 * is refused next; then the limit is raised. */
static const struct act refused_then_raised[] = {take(TWO, KEY), call(two_is_raised), done};
static const struct play added_raised = {
    .before = slot_has_room, .thread = key_once, .meanwhile = key_once,
    .later = refused_then_raised, .of_policies = true};
static const struct play part_added_raised = {
    .before = slot_has_room, .thread = ACTS(both(TWO, KEY, LONG, HOLDER)), .meanwhile = key_once,
    .later = refused_then_raised, .of_policies = true};
static const struct play added_raised_striped = {
    .before = ACTS(take(STRIPED, KEY), tell(STRIPED)), .thread = striped_once,
    .meanwhile = striped_once, .later = ACTS(takes(3, STRIPED, KEY), call(striped_is_raised)),
    .of_policies = true};

/* Room was seen; then the slot goes to another key, and by a claim whose thread is killed back. */
static const struct play added_pending = {
    .before = slot_has_room, .thread = key_once,
    .meanwhile = ACTS(turn(WINDOW), take(TWO, OTHER), turn(2 * WINDOW), die(TWO, KEY, 2 * WINDOW))};

/* Room was seen; then the slot goes to another key. The key spends its window in another slot, the
 * third, and gets the first back when the next one has begun: after the fetch-add, before the look
 * at its tag. */
static const struct play added_state = {
    .before = ACTS(hold(2), take(LATER_END, HOLDER + 2), take(TWO, KEY), tell(TWO)),
    .thread = key_once,
    .meanwhile = ACTS(turn(WINDOW), take(TWO, OTHER), turn(16), takes(2, TWO, KEY)),
    .later = ACTS(turn(2 * WINDOW), take(TWO, THIRD), take(TWO, KEY))};

/* Room was seen; then the slot goes to another key. A charge that is taken back from it a window
 * later is one that was never made in that. */
static const struct play taken_back = {
    .before = slot_has_room, .thread = key_once, .meanwhile = ACTS(turn(WINDOW), take(ONE, OTHER)),
    .later = ACTS(turn(2 * WINDOW), take(ONE, OTHER))};

/* ---- Claims ---------------------------------------------------------------------------------- */

static const struct act falls_free[] = {call(line_falls_free), done};

/* A thread is killed with a claim of the first slot, which falls free at the very instant: a late
 * thread has the key in the second by then. The next one meets the claim first. */
static const struct play found_pending = {
    .before = falls_free, .thread = ACTS(die(ONCE, KEY, 16), take(ONCE, KEY)),
    .meanwhile = ACTS(take_at(ONCE, KEY, 15))};

/* Likewise, of a key with windows of its own: the claim's end is none of them. */
static const struct play key_pending = {
    .before = ACTS(call(see_own_window), die(OWN, KEY, 0)), .thread = ACTS(call(see_it_again))};

/* A key that no slot has, in a line whose first slot falls free at the very instant: a late thread
 * takes the second. */
static const struct play two_claims = {
    .before = falls_free, .thread = ACTS(take(ONCE, KEY)),
    .meanwhile = ACTS(take_at(ONCE, KEY, 15))};

/* Likewise: one thread claims and looks while the other, which is ahead of it by a tick and finds
 * the first slot free, not the last, has not claimed yet; that one looks while the first has not
 * committed yet. */
static const struct act two_fall_free[] = {
    take(ONE, OTHER), hold(2), take(ONE, HOLDER + 2), turn(WINDOW), take(ONE, OTHER),
    turn(2 * WINDOW - 1), done};
static const struct act ahead[] = {decide_at(ONCE, KEY, 1, STINT_PARTIAL, 2 * WINDOW), done};
static const struct act claim_and_die[] = {die(TWO, THIRD, 2 * WINDOW - 1), done};
static const struct play two_looks = {
    .before = two_fall_free, .thread = ACTS(take(ONCE, KEY)), .meanwhile = ahead};

/* Likewise: the first thread's claim is cancelled, and its slot goes to another key by a claim of
 * the same tick, whose thread is killed. */
static const struct play tombstone = {
    .before = two_fall_free, .thread = ACTS(take(ONCE, KEY)), .meanwhile = ahead,
    .later = claim_and_die};

/* A slot is replaced twice within a tick (ends may fall then), at a begin of both windows, the
 * second time by a thread that is killed: the first thread's claim was over, and its slot is
 * another key's now. */
static const struct play replaced_claim = {
    .before = ACTS(hold(3), call(hold_more), take(ONE, HOLDER + 3), turn(8 * WINDOW)),
    .thread = ACTS(take_long(LATER_END, KEY), take(TWO, THIRD)),
    .meanwhile = ACTS(turn(8 * WINDOW + 1), take(TWO, OTHER), die(TWO, THIRD, 8 * WINDOW)),
    .replaces = true, .key_replaced = true};

/* A never-used slot is claimed, and while the claimer sleeps another thread commits it for the same
 * key, which is replaced within the same tick, by a thread that is killed: another key's claim. */
static const struct play replaced_first = {
    .before = ACTS(hold(2), call(hold_more), tell(LATER_END)),
    .thread = ACTS(take(LATER_END, KEY), take(TWO, THIRD)),
    .meanwhile = ACTS(take(LATER_END, KEY), decide(LONG, HOLDER + 2, 8, 0), die(TWO, THIRD, 0)),
    .replaces = true, .key_replaced = true};

/* A stray token comes to a claim between a thread's load of it and its commit. */
static const struct play commit_used = {
    .before = falls_free, .thread = ACTS(take_long(TWO, KEY)),
    .meanwhile = ACTS(add_and_die(TWO, KEY))};

/* ---- Windows that are over ------------------------------------------------------------------- */

/* A key has spent its window and lost its slot when that was over. A late thread must not open the
 * window again. */
static const struct play late_claim = {
    .before = ACTS(call(use_line), take(ONE, KEY), turn(2 * WINDOW), take(LONG, HOLDER)),
    .thread = ACTS(take_at(ONE, KEY, 2 * WINDOW - 1))};

/* Likewise, and the late thread finds a slot that was never used: stripes pass that by. */
static const struct play late_short = {
    .before = ACTS(take(ONE, KEY), turn(WINDOW), take(STRIPED, OTHER)),
    .thread = ACTS(take_at(ONE, KEY, WINDOW - 1))};

/* Likewise, and the window began with the key's first request: no other may begin in it. */
static const struct play late_first = {
    .before = ACTS(call(use_line), take(BY_FIRST, KEY), turn(2 * WINDOW), take(LONG, HOLDER)),
    .thread = ACTS(take_at(BY_FIRST, KEY, 2 * WINDOW - 1))};
static const struct play late_first_short = {
    .before = ACTS(take(BY_FIRST, KEY), turn(WINDOW), take(STRIPED, OTHER)),
    .thread = ACTS(take_at(BY_FIRST, KEY, WINDOW - 1))};

/* A late thread is in the last days of January, which are less than 31 before the end of
 * February. */
static const struct play late_month = {
    .before = ACTS(turn(FEBRUARY + 5), tell(MONTH)),
    .thread = ACTS(take_at(MONTH, KEY, FEBRUARY - 5), call(see_january))};

/* A new key in a table that was never full, and a thread that is later than the allowance: its
 * window is the clock's. */
static const struct play late_new = {
    .before = ACTS(turn(8000), take(TWO, OTHER)),
    .thread = ACTS(take_at(ONE, KEY, 10), call(see_window_of_clock))};

/* A late thread's key gets the first slot, which is over by now, spends its window and loses the
 * slot while the late thread has not found it, and has claimed another one. */
static const struct play late_look = {
    .before = falls_free, .thread = ACTS(take_at(ONE, KEY, 15)), .meanwhile = ACTS(take(ONE, KEY)),
    .later = ACTS(turn(2 * WINDOW), take(LONG, HOLDER + 5))};

/* ---- A full table ---------------------------------------------------------------------------- */

/* A key in debt, whose window is over, and another key that looks for a slot. */
static const struct play debt = {
    .before = ACTS(hold(3), decide(DEBT, KEY, 2, STINT_RESERVE), turn(WINDOW)),
    .thread = ACTS(take(ONE, OTHER), call(see_untracked))};

/* A thread so late, and somebody so early, that it asks the clock about the last slot; the first,
 * until 8000, is over by then. */
static const struct play full_late = {
    .before = ACTS(turn(7990), take(HALF, OTHER), hold(2), take_at(TWO, HOLDER + 2, 8000 + 5990),
         turn(8000)),
    .thread = ACTS(take_at(ONE, KEY, 7900),
         placed("G: told of a full table, which has a free slot"))};

/* The clock is stepped back by more than the allowance: slots that end too late for their own
 * windows, but not for the longest one, are free. */
static const struct play latest = {
    .before = ACTS(turn(8000), call(four_far_keys), turn(0)),
    .thread = ACTS(take(ONE, FAR(KEY)), placed("G: told of a full table, which has a free slot"))};

/* A thread sleeps while it looks for its key. Windows are opened and over one after the other
 * meanwhile, each in another slot and each after those that it has looked at: it must not put them
 * together to a full table. */
static const struct play latest_again = {
    .before = ACTS(call(turns_begin)),
    .thread = ACTS(take(ONE, FAR(KEY)), placed("G: told of a full table, which has free slots")),
    .meanwhile = ACTS(call(four_windows_pass))};

/* The key gets the last slot between the search for it and the end of the search for a free one. */
static const struct play full_again = {
    .before = ACTS(hold(3), call(use_last_slot)),
    .thread = ACTS(take_long(ONE, KEY),
         placed("G: told of a full table, in which the key has a slot")),
    .meanwhile = ACTS(take(ONE, KEY))};

/* Likewise: its own slot is the one with the fewest tokens. */
static const struct play replace_own = {
    .before = ACTS(hold(4), call(hold_more)), .thread = ACTS(take_long(ONE, KEY)),
    .meanwhile = ACTS(take(ONE, KEY)), .replaces = true};

/* A claim is cancelled, and its slot taken for the one with the fewest tokens, by a claim of the
 * same tick, whose thread is killed. (See two_looks.) */
static const struct play replace_free = {
    .before = two_fall_free, .thread = ACTS(decide(LONG, KEY, 10, 0)),
    .meanwhile = ACTS(decide_at(LONG, KEY, 10, 0, 2 * WINDOW)), .later = claim_and_die,
    .replaces = true};

/* ---- Refunds --------------------------------------------------------------------------------- */

static const struct act refund_first[] = {refund(ONE, KEY, WINDOW), done};

/* A refused request has counted past the limit, and its thread was killed. */
static const struct play refund_most = {
    .before = ACTS(take(ONE, KEY), add_and_die(ONE, KEY)), .thread = refund_first};

/* A token is given back that a reset has forgotten. */
static const struct play refund_zero = {
    .before = ACTS(take(ONE, KEY), reset(ONE, KEY)), .thread = refund_first};

/* A token is given back when the next window has begun. */
static const struct play refund_window = {
    .before = ACTS(take(ONE, KEY), turn(WINDOW), take(ONE, KEY)), .thread = refund_first};

/* A key had no slot, and was let through: by that verdict nothing can be given back, not even in a
 * window whose end is 0 in the bits of a slot. */
static const struct play refund_none = {
    .before = ACTS(call(take_before_wrap)), .thread = ACTS(call(refund_by_0))};

/* What was held two windows ago was forgotten. It is given back, and two others are held. */
static const struct play refund_forgotten = {
    .before = ACTS(take(HELD, KEY), turn(WINDOW), take(HELD, KEY), turn(2 * WINDOW),
                   take(HELD, KEY)),
    .thread = ACTS(refund(HELD, KEY, WINDOW))};

/* Two are held since the window before. */
static const struct play held_fades = {
    .before = ACTS(takes(2, HELD, KEY), turn(WINDOW + WINDOW / 2)),
    .thread = ACTS(take(HELD, KEY))};

/* ---- Policies that are replaced -------------------------------------------------------------- */

/* A refund by the old id finds the new policy's tokens. */
static const struct play refund_gone = {.thread = ACTS(call(refund_of_replaced))};

/* A thread finds the last token gone, and looks for the slot, which was swept meanwhile. */
static const struct play claim_gone = {.before = ACTS(call(take_first_of_old)),
                                       .thread = ACTS(call(take_of_old)),
                                       .meanwhile = ACTS(call(rest_is_taken)),
                                       .later = ACTS(call(two_is_replaced))};

/* It has seen room there, and adds a token. */
static const struct play sweep_full = {.before = ACTS(call(take_first_of_old)),
                                       .thread = ACTS(call(take_of_old)),
                                       .meanwhile = ACTS(call(replaced_late))};

/* Room was seen; then the slot goes to a key of another policy, and after the fetch-add back, as
 * that policy is removed: in a window that has the end of that key's. */
static const struct play added_swept = {
    .before = slot_has_room, .thread = key_once,
    .meanwhile = ACTS(turn(WINDOW), take(NEAR, OTHER)),
    .later = ACTS(call(near_is_removed), turn(WINDOW + 2), takes(2, TWO, KEY))};

/* Likewise to another key's override, which is lifted, or is to end sooner. */
static const struct play added_lifted = {
    .before = slot_has_room, .thread = key_once,
    .meanwhile = ACTS(turn(WINDOW), call(overridden_next)),
    .later = ACTS(call(override_lifted), turn(WINDOW + 2), takes(2, TWO, KEY))};
static const struct play added_sooner = {
    .before = slot_has_room, .thread = key_once,
    .meanwhile = ACTS(turn(WINDOW), call(overridden_next)),
    .later = ACTS(call(override_sooner), turn(WINDOW + 2), takes(2, TWO, KEY))};

/* Likewise to another key, which is replaced. */
static const struct play added_replaced = {
    .before = ACTS(hold(3), call(hold_more), take(TWO, KEY), tell(TWO)), .thread = key_once,
    .meanwhile = ACTS(turn(WINDOW), take(ONE, OTHER)),
    .later = ACTS(turn(WINDOW + 2), takes(2, TWO, KEY)), .replaces = true};

/* Whoever has read the policy misses the override, which was swept. */
static const struct play override_swept = {.before = ACTS(call(overridden_and_taken)),
                                           .thread = ACTS(call(take_no_more)),
                                           .meanwhile = ACTS(call(ruled_is_removed)),
                                           .of_policies = true};

/* ---- Groups ---------------------------------------------------------------------------------- */

/* Two tokens of one key in its next window; its slot goes to another key, in a window that ends as
 * that one. */
static const struct play parts_earlier = {
    .before = ACTS(hold(2), take(TWO, KEY), take(ONE, HOLDER + 2), turn(WINDOW), tell(TWO)),
    .thread = ACTS(both(TWO, KEY, TWO, KEY)), .meanwhile = other_once};

/* What goes wrong where one token is taken (above), for a part of a group. */
static const struct act with_holder[] = {both(TWO, KEY, LONG, HOLDER), done};
static const struct play part_tag = {
    .before = slot_is_over, .thread = with_holder, .meanwhile = other_once};
static const struct play part_new_window = {.before = used_before, .thread = with_holder};
static const struct play part_old_window = {.before = window_is_over, .thread = with_holder};

/* Two threads see the last token, one of them with another key's. */
static const struct play parts_added = {
    .before = key_once, .thread = ACTS(both(TWO, KEY, LONG, OTHER)), .meanwhile = key_once};

/* Likewise, and the one without it has the other key's already. */
static const struct play parts_back = {
    .before = ACTS(take(TWO, OTHER), take(TWO, KEY)), .thread = ACTS(both(TWO, OTHER, TWO, KEY)),
    .meanwhile = key_once};

/* ---- Stripes --------------------------------------------------------------------------------- */

/* All that is left, and somebody takes a token of it meanwhile: some stripes give, and are given
 * back to. */
static const struct play stripes_back = {
    .thread = ACTS(decide(STRIPED, KEY, 4, 0)), .meanwhile = striped_once};

/* The window turns while a request goes round: its own stripe had no token left, the next one is in
 * the new window by now. Somebody asks for that one's last token, and then that window is over,
 * too. */
static const struct play stripes_here = {
    .before = ACTS(takes(2, STRIPED, KEY)), .thread = striped_once,
    .meanwhile = ACTS(turn(WINDOW), takes(3, STRIPED, KEY)),
    .later = ACTS(take(STRIPED, KEY), turn(2 * WINDOW), take(STRIPED, KEY))};

/* ---- Overrides ------------------------------------------------------------------------------- */

static const struct play overridden = {.thread = ACTS(call(override_and_take))};

/* Whoever looks at the key's override sleeps, and finds another key's in its slot. */
static const struct play override_gone = {
    .before = ACTS(call(overridden_a_while)), .thread = ACTS(call(take_ruled)),
    .meanwhile = ACTS(call(another_overridden))};
/* clang-format on */

/* ---- All of them ----------------------------------------------------------------------------- */

#define BIT(guard)     GUARD_BIT(GUARD_##guard)
#define WITHOUT(guard) #guard, BIT(guard), NULL
#define PATCHED(patch) patch, 0, patch

/* Those with swap-tag: the tag that every swap compares keeps these mistakes from doing harm, as
 * long as it is compared. */
const struct mistake mistakes[] = {
    {"another key's room", WITHOUT(TAKE_TAG), 1, &take_tag},
    {"another key's room, striped", WITHOUT(STRIPE_TAG), 1, &stripe_tag},
    {"another key's refusal, fast", WITHOUT(FOUND_TAG), 1, &refused_tag},
    {"another key's refusal", WITHOUT(FOUND_TAG), 1, &found_tag},
    {"another key's refusal, and back, fast", WITHOUT(FOUND_STATE), 2, &refused_state},
    {"another key's refusal, and back", WITHOUT(FOUND_STATE), 2, &found_state},
    {"two threads and one token", WITHOUT(TAKE_ADDED), 1, &last_token},
    {"two threads and one token, striped", WITHOUT(STRIPE_ADDED), 1, &last_token_striped},
    {"add to a window that is over", WITHOUT(TAKE_ROOM), 0, &new_window},
    {"add to a window that is over, striped", WITHOUT(STRIPE_ROOM), 0, &new_window_striped},
    {"window of the last request", WITHOUT(TAKE_WINDOW), 0, &old_window},
    {"window of the last request, any", WITHOUT(HINT_WINDOW), 0, &old_window_any},
    {"window of the last request, striped", WITHOUT(STRIPE_WINDOW), 0, &old_window_striped},
    {"swap in a window that is over", WITHOUT(TAKE_ROOM), 0, &new_window_cost},
    {"window of the last request, a cost", WITHOUT(HINT_WINDOW), 0, &old_window_cost},
    {"swap past the capacity", WITHOUT(JUDGE_ROOM), 0, &swap_full},
    {"fast refusal that is the first", WITHOUT(FOUND_MARK), 0, &refused_mark},
    {"overshoot that becomes a debt", WITHOUT(OVERSHOT_CUT), 1, &overshot},
    {"late add to another key", WITHOUT(ADDED_TAG), 1, &added_tag},
    {"late add to a smooth key", PATCHED("smooth-bits"), 1, &added_smooth},
    {"late add to a full window", WITHOUT(ADDED_ROOM), 1, &added_room},
    {"late add to a full window, striped", WITHOUT(STRIPES_ADDED), 1, &added_room_striped},
    {"add to a full window, then more room", WITHOUT(ADDED_THEN), 2, &added_raised},
    {"add to a full window, then more, group", WITHOUT(ADDED_THEN), 2, &part_added_raised},
    {"add to a full window, then more, striped", WITHOUT(ADDED_THEN), 2, &added_raised_striped},
    {"late add to a claim", WITHOUT(ADDED_PENDING), 1, &added_pending},
    {"late add to another key, and back", WITHOUT(ADDED_STATE), 2, &added_state},
    {"late add to a key whose policy is gone", WITHOUT(ADDED_FALLEN), 2, &added_swept},
    {"late add to an override, lifted", WITHOUT(ADDED_FALLEN), 2, &added_lifted},
    {"late add to an override, ended sooner", WITHOUT(ADDED_FALLEN), 2, &added_sooner},
    {"late add to a key that is replaced", WITHOUT(ADDED_FALLEN), 2, &added_replaced},
    {"charge taken back", PATCHED("added-stays"), 2, &taken_back},
    {"counted in a claim", WITHOUT(FOUND_PENDING), 1, &found_pending},
    {"window of a claim", WITHOUT(KEY_PENDING), 0, &key_pending},
    {"no look after a claim", WITHOUT(PENDING), 1, &two_claims},
    {"look that cancels a committed slot", WITHOUT(RIVAL_COMMITTED), 1, &two_claims},
    {"later claim left standing", WITHOUT(RIVAL_LATER), 3, &two_looks},
    {"tombstone reused in its window", "reuse-tombstone", 0, "reuse-tombstone swap-tag", 3,
     &tombstone},
    {"cancel that writes zero", "cancel-end", 0, "cancel-end swap-tag", 3, &tombstone},
    {"cancel that leaves pending", "cancel-pending", 0, "cancel-pending swap-tag", 3, &two_looks},
    {"commit of the state alone", PATCHED("swap-tag"), 1, &replaced_claim},
    {"commit that waits for another claim", WITHOUT(COMMIT_TAG), 1, &replaced_claim},
    {"first claim like any", PATCHED("short-first"), 1, &replaced_first},
    {"commit that waits for used = 0", PATCHED("commit-used"), 1, &commit_used},
    {"watermark not raised", WITHOUT(WATERMARK_RAISE), 0, &late_claim},
    {"watermark not read", "watermark-read", BIT(SHORT_WATERMARK), "watermark-read", 0,
     &late_claim},
    {"watermark not read, short", WITHOUT(SHORT_WATERMARK), 0, &late_short},
    {"watermark not raised, first request", WITHOUT(WATERMARK_RAISE), 0, &late_first},
    {"watermark not read, first request", WITHOUT(SHORT_WATERMARK), 0, &late_first_short},
    {"month of the last request", PATCHED("hint-days"), 0, &late_month},
    {"late new key", WITHOUT(SHORT_LATEST), 0, &late_new},
    {"watermark read before the look", PATCHED("watermark-last"), 2, &late_look},
    {"slot of a key in debt", WITHOUT(REUSE_CARRIES), 0, &debt},
    {"full by a late time", WITHOUT(FULL_LATE), 0, &full_late},
    {"opened without telling how late", WITHOUT(LATEST_RAISE), 0, &latest},
    {"asleep in a search", WITHOUT(LATEST_AGAIN), 1, &latest_again},
    {"full without another search", WITHOUT(FULL_AGAIN), 1, &full_again},
    {"key replaces itself", WITHOUT(REPLACE_OWN), 1, &replace_own},
    {"tombstone replaced", "REPLACE_FREE", BIT(REPLACE_FREE), "swap-tag", 3, &replace_free},
    {"refund without the minimum", WITHOUT(REFUND_MOST), 0, &refund_most},
    {"refund below zero", WITHOUT(REFUND_ZERO), 0, &refund_zero},
    {"refund into another window", WITHOUT(REFUND_WINDOW), 0, &refund_window},
    {"refund of what was forgotten", WITHOUT(REFUND_FORGOTTEN), 0, &refund_forgotten},
    {"what is held fades", WITHOUT(COUNT_FADE), 0, &held_fades},
    {"refund of an untracked token", WITHOUT(REFUND_NONE), 0, &refund_none},
    {"refund to the replacement", WITHOUT(REFUND_GONE), 0, &refund_gone},
    {"claim by a policy that is gone", WITHOUT(CLAIM_GONE), 2, &claim_gone},
    {"add to a slot that was swept", WITHOUT(SWEEP_FULL), 1, &sweep_full},
    {"override swept before its key's slot", WITHOUT(SWEEP_OVERRIDES), 3, &override_swept},
    {"add to an earlier part's window", PATCHED("parts-earlier"), 1, &parts_earlier},
    {"another key's room, a group", WITHOUT(TAKE_TAG), 1, &part_tag},
    {"add to a window that is over, a group", WITHOUT(TAKE_ROOM), 0, &part_new_window},
    {"window of the last request, a group", WITHOUT(TAKE_WINDOW), 0, &part_old_window},
    {"two threads and one token, a group", WITHOUT(PARTS_ADDED), 1, &parts_added},
    {"group keeps what it took", WITHOUT(PARTS_BACK), 1, &parts_back},
    {"token of the next window, given back", PATCHED("stripes-same-window"), 2, &stripes_here},
    {"token that asks nobody", WITHOUT(OVERRIDE_SEEN), 0, &overridden},
    {"override that no filter tells of", WITHOUT(OVERRIDE_FILTER), 0, &overridden},
    {"another key's override", WITHOUT(OVERRIDE_TAG), 1, &override_gone},
    {"another key's override, late", WITHOUT(OVERRIDE_STATE), 1, &override_gone},
    {"stripes keep what they gave", WITHOUT(STRIPES_BACK), 1, &stripes_back},
};
const unsigned mistake_count = sizeof(mistakes) / sizeof(mistakes[0]);

/* ---- Playing --------------------------------------------------------------------------------- */

static void others(const struct act *acts) {
    void (*hook)(enum stint_test_instant instant) = stint_test_hook;
    p.running = NOBODY;
    stint_test_hook = NULL;
    play_acts(acts);
    stint_test_hook = hook;
    p.running = FIRST;
}

/* The second thread. */
static ucontext_t first_context, second_context;
static char second_stack[STACK] __attribute__((aligned(64)));

static void second_main(void) {
    play_acts(p.mistake->play->meanwhile);
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
            others(p.mistake->play->later);
        }
    } else {
        if (at == p.stops[0])
            others(p.mistake->play->meanwhile);
        if (at == p.stops[1])
            others(p.mistake->play->later);
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
    if (p.running == NOBODY ||
        ((const char *)word < (const char *)table->shards &&
         (p.running == SECOND || !p.mistake->play->of_policies)) ||
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
    p.logged = p.all_steps = p.raised = 0;
    memset(p.steps, 0, sizeof(p.steps));
    memcpy(p.stops, stops, sizeof(p.stops));
    p.broken = NULL;
    p.waits = false;
    p.second_done = true;
    open_table(mistake->play->replaces ? STINT_FULL_REPLACE : STINT_FULL_REFUSE);
    play_acts(mistake->play->before);
    stint_test_step = step;
    if (setjmp(p.stuck) == 0) {
        p.running = FIRST;
        play_acts(mistake->play->thread);
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

struct outcome mistake_play(const struct mistake *mistake, guard_set removed, uint64_t one_in) {
    struct random random = {one_in > 1 && mistake->stops == 3 ? test_seed() : 0};
    struct outcome outcome = {.plays = 0};
    unsigned stops[3];

    for (unsigned i = 0; i < 3; i++)
        stops[i] = i < mistake->stops;
    stint_test_removed = removed;
    do {
        if (mistake->stops == 3 && outcome.plays > 0 && random_below(&random, one_in) != 0)
            continue;
        play_once(mistake, stops);
        outcome.plays++;
        outcome.broken = p.broken;
        memcpy(outcome.stops, stops, sizeof(stops));
    } while (outcome.broken == NULL && next_stops(mistake, stops));
    stint_test_removed = 0;
    return outcome;
}
