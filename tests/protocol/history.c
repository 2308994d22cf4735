/* SPDX-License-Identifier: MIT
 * Histories, and whether they are linearizable.
 *
 * A few threads make random calls of the public functions on a few keys, in a table so small that
 * its slots change hands, on a clock that they turn. Of each call is written down what was asked,
 * what was answered, and its place in the order of all beginnings and ends of calls. Then the
 * history of each key under each policy is checked by itself, as linearizability allows (Herlihy
 * and Wing, 1990): is there an order of its calls, each at one instant between its beginning and
 * its end, in which a sequential model gives every answer that was got, all fields of all verdicts
 * alike? The search is that of Wing and Gong (1993), with Lowe's memory of the states that it has
 * been in (2017). A call of a thread that stopped may have had its effect or not.
 *
 * The model is that of model.h, one record per key and policy. It is exact but for what the
 * contract leaves open:
 *
 *  - A call is decided at the time that it was given, or that it read; that time is in its verdict.
 *    One that is later than the allowance may be decided at the time that the clock said during the
 *    call. So may any where windows are months, or overrides are set: others' are of
 *    milliseconds, and a slot that goes from one of those to one of these while a thread looks may
 *    seem to be far ahead.
 *  - A window that is over by the time of another key's call that had begun may be lost, the slot
 *    having gone to that key (or to another claim of this one, by a call that overlaps others).
 *    What comes after is in a later window, never again in the lost one (A, H).
 *  - A key without a slot may begin in any window from that of the call's time to that of the
 *    latest time of a call that had begun. A window that begins with a key's first request may
 *    begin at any tick between the two, but not in a window of the key's that was lost.
 *  - B1: "A thread that added its token too late takes it back. Until then others can be refused
 *    for it." A request of one token, that saw room in the window of its time, adds its token when
 *    the count is full, or marked, or in a later window. It takes it back, and is decided after
 *    that. "If the thread is killed in between: until the window ends."
 *  - A1: a reset forgets such a token, too. "It knows of no request that is under way": the thread
 *    takes one back all the same, if there is any.
 *  - B2: "That key is charged the token." A stray token is charged to a key at most as often as
 *    stint_stats says, or as threads stopped that may have had one on its way to another key's
 *    slot. It is not known whose it was: each key may have had all of them.
 *  - UNTRACKED is allowed to a key that may be without a slot, if as many slots were ever given out
 *    as there are. That all were live at one instant is not checked here (full.c, twin.c do).
 *  - An override is a register, which a decision reads first: it may be judged by any that there
 *    was since it began. One that is over by the time of another call may be there for a late one,
 *    or not, its slot having gone. One that is over when it is set lasts for a tick more. "A stray
 *    token in it, as in B, raises the limit by one."
 *  - A ban is in the same register. A first refusal has two effects: it is marked, and later, but
 *    before its call returns, its strike is counted, or is the ban. A reset has two as well: it
 *    lifts the strikes, and then it empties the count. Strikes are gone when their time is over by
 *    another call's, or are there for a late one; a stray token may count as one. As many find no
 *    slot as stint_policy_stats says. Whoever stopped between loses one.
 *  - Striped keys are no single counter (STRIPED POLICIES says what their verdicts estimate). Each
 *    verdict is the model's on some count, A and B hold for each window, and one refusal of each is
 *    its first.
 *    B: a request is refused only if its cost did not fit beside the tokens that it may have seen,
 *    also those of B1, B4 and B5.
 *  - What is charged stops at what a count holds, and is none of the tokens granted (A).
 *  - With STINT_FULL_REPLACE, once a live key was replaced, only that threads get on and that no
 *    key has two slots: A and B hold for keys that were not replaced, but nobody is told which
 *    were.
 *  - In some histories a thread changes policies: limits, capacities, max_reserved, near_limit and
 *    STINT_SHADOW, but not a plain one to one that carries tokens over, nor those of stripes. A
 *    decision that was under way meanwhile is by the policy before or after. It may begin a window,
 *    reserve and charge by the one after alone, and what its verdict tells beside, NEAR_LIMIT and
 *    waits, may be by a later one than its limit.
 *  - In some histories the clock steps back, too. By less than the allowance that is as if callers
 *    were late. By more, slots whose ends are too far ahead of it are begun anew, and windows that
 *    were lost may be counted again: then only E and H are checked. Nobody is held to a window that
 *    is further ahead of all times that he, or those beside him, have shown than its length and the
 *    allowance.
 *  - A bucket that has no slot is full by a call's time, or by the tick of another call's that had
 *    begun; and so far may a refund or a reset bring it. Of one that was full in between a refusal
 *    is a first one or not. A stray token is a ns. Buckets have no overrides and no bans here, and
 *    of their numbers the burst alone changes.
 *  - stint_decide_all is left out: it is not one operation (B4, GROUPS).
 *
 * Of threads that run one at a time, the invariants I1, I3, I5 and I7 of src/slot.h are checked
 * after each of their atomic operations as well: a broken one need not show in an answer at
 * once. */
#include "history.h"
#include "slot.h" /* for its bounds; not for the model */
#include <inttypes.h>

#include "kinds.h"
#include "model.h"
#include "schedule.h"
#include "team.h"
#include "watch.h"

enum {
    THREADS_MAX = SCHEDULED_MAX,
    CALLS_MAX = 7, /* of a thread */
    POLICIES_MAX = 3,
    KEYS_MAX = 3,
    FILLERS = 3, /* policies of keys that are there before */
    READINGS_MAX = 24,
    STRIPES_OF_TEST = 2,
    LINES_MAX = 3,
    BACKS_MAX = 2,     /* of the clock, by more than the allowance */
    OVERRIDES_MAX = 7, /* of a history: set or cleared */
    CHANGES_MAX = 3,   /* of policies */
    CHANGED_BURST = 6, /* of a bucket, at most */
    ENTRIES_MAX = 1 + THREADS_MAX * CALLS_MAX,
    NODES_MAX = 1 << 15, /* of one search */
};
_Static_assert((int)THREADS_MAX <= (int)THREADS, "those that run at once are a team");

#define NEVER UINT64_MAX

/* How the clock is set back: by less than the allowance; by more, while no call is under way; by
 * more, at any instant. */
enum back { BACK_NEVER, BACK_LITTLE, BACK_FAR, BACK_FAR_AT_ANY_TIME };

enum call_kind { TAKE, DECIDE, REFUND, RESET, OVERRIDE, OVERRIDE_GET, OVERRIDE_CLEAR, CHANGE };

struct call {
    enum call_kind kind;
    unsigned thread, key, policy, change;
    struct stint_request request;
    uint64_t argument;          /* its now: STINT_NOW, or a time */
    uint32_t tokens;            /* of a refund */
    struct stint_verdict grant; /* of a refund: by which it gives back */
    bool of_charge;             /* the refund is of one */
    uint64_t window;
    uint32_t limit; /* of an override that is set, or got */
    uint64_t until;
    uint64_t claimed_until; /* a slot that it claims may not be over before */
    int result;             /* likewise, or of one that is cleared */
    uint64_t began, ended;  /* in the order of all; NEVER: it has not */
    uint64_t readings[READINGS_MAX];
    unsigned reading_count;
    struct stint_verdict verdict;
    uint32_t given_back;
};

/* A thread of a history. */
struct thread {
    unsigned number;
    struct random random;
    struct call calls[CALLS_MAX];
    unsigned call_count, calls_wanted;
    bool calling;
    uint64_t remembered; /* a time that it read */
    unsigned refundable; /* a call of which nothing has been given back yet; CALLS_MAX: none */
};

static struct {
    uint64_t seed;
    enum history_threads kind;
    struct stint_limiter *limiter;
    uint32_t on_full;
    uint64_t lines;
    struct stint_policy policies[POLICIES_MAX + FILLERS]; /* as they were added */
    struct stint_policy changed[CHANGES_MAX];             /* as they become, in order */
    bool changing; /* a thread changes them, and words of policies are steps, too */
    uint32_t changes;
    uint32_t ids[POLICIES_MAX + FILLERS];
    uint32_t policy_count, key_count;
    uint32_t overrides; /* calls that set or clear one */
    stint_key keys[KEYS_MAX];
    uint64_t phases[KEYS_MAX][POLICIES_MAX];
    struct thread threads[THREADS_MAX];
    unsigned thread_count;
    unsigned stopped; /* a thread; THREADS_MAX: none */
    bool months;      /* windows are those of the calendar */
    uint64_t time;    /* what the clock says, ns */
    uint64_t latest;  /* the latest that it said */
    enum back back;   /* how it is set back */
    unsigned backs;   /* how often it was */
    bool far;         /* by more than the allowance */
    uint64_t shown;   /* the latest time that a call before all others has shown */
    uint64_t events;  /* beginnings and ends of calls */
    const char *first_word, *last_word; /* of the table: others are no steps */
    struct stint_stats stats;
    uint64_t strikes_lost[POLICIES_MAX];
    struct history_totals *totals;
    FILE *report;
    const char *wrong;
} h;

static _Thread_local struct thread *self;

static bool decides(const struct call *call) {
    return call->kind == TAKE || call->kind == DECIDE;
}

static bool has_overrides(const struct stint_policy *policy) {
    return policy->flags & STINT_OVERRIDES;
}

/* Whether a call may count a strike, or did. */
static bool may_strike(const struct call *call) {
    const uint32_t flags = call->verdict.flags & (STINT_FIRST_REFUSAL | STINT_OVERRIDDEN);
    return decides(call) && h.policies[call->policy].ban != 0 &&
           (call->ended == NEVER || flags == STINT_FIRST_REFUSAL);
}

/* Whether its strike may have been a ban, or was. */
static bool may_ban(const struct call *call) {
    return may_strike(call) && (call->ended == NEVER || (call->verdict.flags & STINT_BANNED) != 0);
}

static bool looks(const struct call *call) {
    return takes_nothing(&call->request);
}

static bool only_looks(const struct call *call) {
    return merely_looks(&call->request);
}

static bool charges(const struct call *call) {
    return makes_charge(&call->request);
}

/* ---- Making a history ------------------------------------------------------------------------ */

static uint64_t read_time(void) {
    return __atomic_load_n(&h.time, __ATOMIC_SEQ_CST);
}

static uint64_t history_clock(void) {
    if (self == NULL)
        return h.time;
    if (h.kind == HISTORY_SCHEDULED)
        schedule_step();
    uint64_t time = test_moved(read_time());
    struct call *call = &self->calls[self->call_count];
    if (self->calling && call->reading_count < READINGS_MAX)
        call->readings[call->reading_count++] = time;
    else if (self->calling) /* the last one counts */
        call->readings[READINGS_MAX - 1] = time;
    return time;
}

static struct watch watch;

static void watch_table(void) {
    watch.stepped_back = h.far;
    (void)watch_look(&watch, h.time);
}

static void scheduled_step(const void *word) {
    const bool of_policy = (const struct policy *)word >= h.limiter->policies &&
                           (const char *)word < (const char *)h.limiter->records;
    const bool of_table = (const char *)word >= h.first_word && (const char *)word < h.last_word;
    static bool watching; /* which reads policies, too */
    if (self == NULL || watching || !(of_table || (h.changing && of_policy)))
        return;
    watching = true;
    watch_table();
    watching = false;
    schedule_step();
}

static void free_step(const void *word) {
    (void)word;
    static _Thread_local struct random delays;
    if (self == NULL)
        return;
    uint64_t drawn = random_next(&delays);
    if (drawn % 8 == 0)
        sched_yield();
    else if (drawn % 8 == 1)
        for (volatile uint64_t spin = drawn >> 32 & 255; spin > 0; spin--)
            ;
}

static uint64_t next_event(void) {
    return __atomic_fetch_add(&h.events, 1, __ATOMIC_SEQ_CST);
}

/* Late by as much at most: a year ago is beyond what an id can tell. */
static uint64_t late_by(struct random *random, unsigned windows,
                        const struct stint_policy *policy) {
    return random_below(random, h.months ? 200 * DAY : windows * policy->window);
}

static void set_clock(uint64_t time, uint64_t to) {
    while (time < to && !__atomic_compare_exchange_n(&h.time, &time, to, false, __ATOMIC_SEQ_CST,
                                                     __ATOMIC_SEQ_CST))
        ;
    uint64_t latest = __atomic_load_n(&h.latest, __ATOMIC_SEQ_CST);
    while (latest < to && !__atomic_compare_exchange_n(&h.latest, &latest, to, false,
                                                       __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
}

static void set_back(struct random *random, const struct stint_policy *policy) {
    const uint64_t length = longest_window(policy);
    uint64_t time = read_time(), by = 1 + random_below(random, h.months ? MINUTE / 2 : 3 * length);
    bool calling = h.kind == HISTORY_FREE;
    if (h.back == BACK_LITTLE) {
        if (random_below(random, 4) == 0)
            by = random_below(random, MINUTE / 2);
        if (time - by + MINUTE / 2 < __atomic_load_n(&h.latest, __ATOMIC_SEQ_CST))
            return;
    } else {
        for (unsigned i = 0; i < h.thread_count && !calling; i++)
            calling = h.threads[i].calling;
        by = ALLOWANCE + random_below(random, 3 * length);
        if (__atomic_load_n(&h.backs, __ATOMIC_SEQ_CST) >= BACKS_MAX ||
            (calling && h.back == BACK_FAR))
            return;
        __atomic_store_n(&h.far, true, __ATOMIC_SEQ_CST);
    }
    __atomic_fetch_add(&h.backs, 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(&h.time, time - by, __ATOMIC_SEQ_CST);
}

static void turn_clock(struct random *random) {
    const struct stint_policy *policy = &h.policies[random_below(random, h.policy_count)];
    unsigned id = (unsigned)(policy - h.policies),
             key = (unsigned)random_below(random, h.key_count);
    if (h.back != BACK_NEVER && random_below(random, 4) == 0) {
        set_back(random, policy);
        return;
    }
    uint64_t time = read_time();
    uint64_t end = window_end_at(policy, h.phases[key][id], time);
    static const uint64_t steps[] = {1, STINT_TICK_NS / 3, STINT_TICK_NS, 2 * STINT_TICK_NS};
    uint64_t later = time;
    if (is_bucket(policy))
        end = time + 1 + random_below(random, token_time(policy));
    switch (random_below(random, 8)) {
    case 0:
    case 1:
    case 2: /* the border of a window, and the nanosecond before */
        later = end - random_below(random, 2);
        break;
    case 3: /* windows later */
        later = end + random_below(random, 3) * longest_window(policy);
        if (__atomic_load_n(&h.far, __ATOMIC_SEQ_CST) && random_below(random, 4) == 0)
            later = __atomic_load_n(&h.latest, __ATOMIC_SEQ_CST); /* it is set right again */
        break;
    default:
        later += steps[random_below(random, 4)];
    }
    if (h.months && later > T0 + 400 * DAY) /* as in late_by */
        return;
    set_clock(time, later);
}

static uint64_t pick_now(struct thread *thread, const struct stint_policy *policy) {
    struct random *random = &thread->random;
    uint64_t time = read_time();
    switch (random_below(random, 16)) {
    case 0:
    case 1:
    case 2:
        return thread->remembered; /* late, by what it has read */
    case 3:
        return time - late_by(random, 3, policy);
    case 4:
        if (random_below(random, 20) == 0) /* very late */
            return time - ALLOWANCE - late_by(random, 20, policy);
        if (random_below(random, 2) == 0) /* ahead of the clock */
            return time + random_below(random, 2 * (h.months ? MINUTE / 4 : policy->window));
        /* fall through */
    case 5:
    case 6:
    case 7:
        return thread->remembered = time;
    default:
        return STINT_NOW;
    }
}

static void pick_request(struct thread *thread, struct call *call) {
    struct random *random = &thread->random;
    const struct stint_policy *policy = &h.policies[call->policy];
    uint32_t capacity = capacity_of(policy);

    call->kind = TAKE;
    call->request =
        (struct stint_request){.key = h.keys[call->key], .policy = h.ids[call->policy], .cost = 1};
    if (random_below(random, 3) != 0)
        return;
    call->request.cost = (uint32_t)random_below(random, (uint64_t)capacity + 2);
    if (random_below(random, 3) == 0)
        return;
    call->kind = DECIDE;
    if (random_below(random, 3) == 0 && !is_in_flight(policy)) {
        call->request.flags = STINT_CHARGE | (random_below(random, 2) == 0 ? STINT_PEEK : 0);
        if (random_below(random, 8) == 0) /* more than any count holds */
            call->request.cost = UINT32_MAX - (uint32_t)random_below(random, 2);
        return;
    }
    call->request.flags = STINT_PEEK * (uint32_t)random_below(random, 16) & ~unfit_flags(policy);
    call->request.flags |= random_below(random, 6) == 0 ? STINT_TENTATIVE : 0;
    if (policy->max_reserved != 0 && random_below(random, 2) == 0) {
        call->request.flags |= STINT_RESERVE;
        call->request.cost += (uint32_t)random_below(random, policy->max_reserved + 1);
    }
    if (random_below(random, 3) == 0)
        call->request.limit = random_below(random, 2) == 0
                                  ? 1 + (uint32_t)random_below(random, capacity)
                                  : capacity + 3;
}

/* To set an override, to ask for it, or to clear it. */
static void pick_override(struct thread *thread, struct call *call) {
    struct random *random = &thread->random;
    const struct stint_policy *policy = &h.policies[call->policy];
    uint64_t length = h.months ? 40 * DAY : policy->window;

    call->argument = STINT_NOW;
    call->kind = OVERRIDE_GET;
    if (random_below(random, 4) == 0 ||
        __atomic_fetch_add(&h.overrides, 1, __ATOMIC_SEQ_CST) >= OVERRIDES_MAX)
        return;
    call->kind = random_below(random, 3) == 0 ? OVERRIDE_CLEAR : OVERRIDE;
    if (call->kind == OVERRIDE_CLEAR)
        return;
    call->limit = random_below(random, 6) == 0
                      ? STINT_LIMIT_MAX
                      : (uint32_t)random_below(random, capacity_of(policy) + 4);
    call->until =
        read_time() + 1 + random_below(random, random_below(random, 2) ? 3 * length : DAY);
}

static struct stint_policy pick_counts(struct random *random, unsigned number) {
    static const uint64_t lengths[] = {1, 1, 2, 3, 5, 8};
    uint64_t window = lengths[random_below(random, 6)] * STINT_TICK_NS;
    struct stint_policy policy = STINT_POLICY_INIT;
    static const enum kind kinds[] = {PLAIN,    PLAIN,   ROLLING,  ROLLING, RESERVING,
                                      SMOOTH,   STRIPED, COUNTING, NEARING, BY_FIRST,
                                      BY_FIRST, HELD,    BUCKET,   BUCKET,  DELAYING};
    const enum kind kind =
        h.months ? MONTHLY : kinds[random_below(random, sizeof kinds / sizeof kinds[0])];
    snprintf(policy.name, sizeof(policy.name), "%u", number);
    policy.limit = 1 + (uint32_t)random_below(random, 4);
    policy.window = window;
    policy.start = (int64_t)(random_below(random, window / STINT_TICK_NS) * STINT_TICK_NS);
    policy = kind_drawn(kind, &policy, random_drawn, random);
    policy.jitter = 0; /* it is left to twin.c */
    if (kind == STRIPED)
        policy.stripes = STRIPES_OF_TEST;
    if (kind == BY_FIRST && random_below(random, 4) == 0)
        policy.flags |= STINT_COUNT_REFUSED;
    if (kind == HELD && random_below(random, 10) == 0)
        policy.flags |= STINT_SHADOW;
    if (kind == STRIPED || kind == BY_FIRST || kind == HELD || kind == MONTHLY)
        return policy;
    if (random_below(random, 10) == 0)
        policy.flags |= STINT_SHADOW;
    if (random_below(random, 10) == 0 && !is_bucket(&policy)) {
        policy.flags |= STINT_START_PER_KEY;
        policy.start = 0;
    }
    return policy;
}

/* To change a policy, but not its kind: a plain one stays plain. */
static void pick_change(struct random *random, struct call *call) {
    struct stint_policy policy = h.policies[call->policy];
    const bool above = policy.capacity > policy.limit;
    call->kind = CHANGE;
    call->change = h.changes++;
    for (unsigned i = 0; i < call->change; i++)
        if (strcmp(h.changed[i].name, policy.name) == 0)
            policy = h.changed[i];
    if (is_bucket(&policy))
        policy.burst = 1 + (uint32_t)random_below(random, CHANGED_BURST);
    else
        policy.limit = 1 + (uint32_t)random_below(random, 5);
    if (above)
        policy.capacity = policy.limit + 1 + (uint32_t)random_below(random, 2 * policy.limit);
    if (policy.max_reserved != 0)
        policy.max_reserved = 1 + (uint32_t)random_below(random, 3);
    if (random_below(random, 4) == 0)
        policy.flags ^= STINT_SHADOW;
    if (random_below(random, 4) == 0)
        policy.near_limit = (uint32_t)random_below(random, 3) * 40;
    h.changed[call->change] = policy;
}

static void pick_call(struct thread *thread, struct call *call) {
    struct random *random = &thread->random;
    memset(call, 0, sizeof(*call));
    call->thread = thread->number;
    call->key = (unsigned)random_below(random, h.key_count);
    call->policy = (unsigned)random_below(random, h.policy_count);
    const struct call *taken = &thread->calls[thread->refundable];
    if (thread->refundable != CALLS_MAX && random_below(random, 4) == 0) {
        call->kind = REFUND;
        call->key = taken->key;
        call->policy = taken->policy;
        call->window = taken->verdict.window;
        call->grant = taken->verdict;
        call->of_charge = charges(taken);
        call->tokens = 1 + (uint32_t)random_below(random, taken->verdict.granted);
        thread->refundable = CALLS_MAX;
    } else if (h.changing && thread->number == 0 && h.changes < CHANGES_MAX &&
               !is_striped(&h.policies[call->policy]) && random_below(random, 3) == 0) {
        pick_change(random, call);
    } else if (random_below(random, 16) == 0) {
        call->kind = RESET;
    } else if (has_overrides(&h.policies[call->policy]) && random_below(random, 4) == 0) {
        pick_override(thread, call);
    } else {
        pick_request(thread, call);
        call->argument = pick_now(thread, &h.policies[call->policy]);
    }
}

static void make_call(struct thread *thread, struct call *call) {
    const struct stint_request *request = &call->request;
    stint_key key = h.keys[call->key];
    const uint32_t id = h.ids[call->policy];
    struct stint_verdict grant;

    call->ended = NEVER;
    call->began = next_event();
    thread->calling = true;
    switch (call->kind) {
    case TAKE:
        stint_take(h.limiter, id, key, request->cost, call->argument, &call->verdict);
        break;
    case DECIDE:
        stint_decide(h.limiter, request, call->argument, &call->verdict);
        break;
    case REFUND:
        grant = call->grant;
        call->given_back = stint_refund(h.limiter, key, &grant, call->tokens);
        break;
    case RESET:
        stint_reset(h.limiter, id, key);
        break;
    case OVERRIDE:
        call->result = stint_override(h.limiter, id, key, call->limit, call->until);
        break;
    case OVERRIDE_GET:
        call->result = stint_override_get(h.limiter, id, key, &call->limit, &call->until);
        break;
    case OVERRIDE_CLEAR:
        call->result = stint_override_clear(h.limiter, id, key);
        break;
    case CHANGE:
        if (stint_policy_change(h.limiter, id, &h.changed[call->change]) != 0)
            abort();
        break;
    }
    thread->calling = false;
    call->ended = next_event();
    if (call->verdict.granted != 0 && (call->verdict.flags & STINT_UNTRACKED) == 0)
        thread->refundable = thread->call_count;
    thread->call_count++;
}

static void thread_body(unsigned number) {
    struct thread *thread = &h.threads[number];
    while (thread->call_count < thread->calls_wanted) {
        if (random_below(&thread->random, 4) == 0)
            turn_clock(&thread->random);
        struct call *call = &thread->calls[thread->call_count];
        pick_call(thread, call);
        make_call(thread, call);
    }
}

static void thread_switched(unsigned number) {
    self = &h.threads[number];
    stint_thread_number = number + 1; /* that of its stripes */
}

static void free_body(unsigned member, void *unused) {
    (void)unused;
    if (member >= h.thread_count)
        return;
    self = &h.threads[member];
    thread_body(member);
    self = NULL;
}

/* Returns whether the threads got on. */
static bool run_scheduled(struct random *random) {
    unsigned calls = 0;
    for (unsigned i = 0; i < h.thread_count; i++)
        calls += h.threads[i].calls_wanted;
    struct schedule schedule = {
        .threads = h.thread_count,
        .body = thread_body,
        .switched = thread_switched,
        .seed = random_next(random),
        .most_steps = 20000,
        .usual_steps = calls * UINT64_C(16),
        .stops = random_below(random, 6) == 0 && h.back != BACK_FAR,
    };
    uint64_t own_number = stint_thread_number;
    schedule_run(&schedule);
    self = NULL;
    stint_thread_number = own_number;
    h.stopped = schedule.stopped;
    /* If he was changing a policy he may have the lock, which is in this thread's list of robust
     * ones: not when the table is unmapped. */
    if (h.stopped != THREADS_MAX)
        (void)stint_limiter_unlock(h.limiter, 0);
    return !schedule.stuck;
}

static struct stint_policy pick_policy(struct random *random, unsigned number) {
    struct stint_policy policy = pick_counts(random, number);
    if (!is_striped(&policy) && !is_in_flight(&policy) && !is_bucket(&policy) &&
        random_below(random, 4) == 0) {
        policy.flags |= STINT_OVERRIDES;
        if (random_below(random, 2) == 0) {
            policy.ban = (1 + random_below(random, 12)) * (h.months ? 5 * DAY : STINT_TICK_NS);
            policy.ban_after = (uint32_t)random_below(random, 4);
            const uint64_t window = h.months ? 28 * DAY : policy.window;
            if (policy.ban_after == 3 && policy.ban <= window) /* it would never come */
                policy.ban_after = 2;
            if (!carries(&policy)) /* to be refused in more than one of them */
                policy.limit = 1;
        }
    }
    return policy;
}

static void install_policy(unsigned number) {
    int id = policy_added(h.limiter, &h.policies[number]);
    if (id < 0)
        abort();
    h.ids[number] = (uint32_t)id;
}

/* Other keys have had, or have, some of the slots. */
static void fill_table(struct random *random) {
    uint64_t slots = h.lines * LINE_SLOTS;
    for (unsigned i = 0; i < FILLERS; i++) {
        struct stint_policy *policy = &h.policies[POLICIES_MAX + i];
        *policy = (struct stint_policy)STINT_POLICY_INIT;
        snprintf(policy->name, sizeof(policy->name), "filler %u", i);
        policy->limit = 1 + i;
        policy->window = (2 * i + 1) * STINT_TICK_NS;
        install_policy(POLICIES_MAX + i);
    }
    uint64_t fillers = random_below(random, slots + 2);
    if (random_below(random, 4) == 0)
        fillers = 0;
    for (uint64_t i = 0; i < fillers; i++) {
        if (random_below(random, 4) == 0)
            h.time += STINT_TICK_NS;
        uint32_t id = h.ids[POLICIES_MAX + random_below(random, FILLERS)];
        stint_take(h.limiter, id, random_next(random) << 8 | (100 + i), 1, STINT_NOW, NULL);
    }
    h.shown = h.time;
    if (random_below(random, 2) == 0)
        h.time += random_below(random, 4) * STINT_TICK_NS;
    h.latest = h.time;
}

static void start(uint64_t seed, struct random *random) {
    struct stint_options options = STINT_OPTIONS_INIT;
    static const uint64_t lines[] = {1, 1, 1, 2, 3};
    h.seed = seed;
    h.lines = lines[random_below(random, 5)];
    h.on_full =
        random_below(random, 8) == 0 ? STINT_FULL_REPLACE : (uint32_t)random_below(random, 2);
    options.max_entries = h.lines * LINE_SLOTS / 2;
    options.max_policies = 2 * POLICIES_MAX + FILLERS; /* with those of overrides */
    options.on_full = h.on_full;
    options.clock = history_clock;
    options.secret = test_secret();
    h.time = T0 + random_below(random, 1000) * STINT_TICK_NS + random_below(random, STINT_TICK_NS);
    h.months = random_below(random, 20) == 0;
    if (h.months) /* not only January */
        h.time += random_below(random, 60) * DAY;
    h.latest = h.time;
    static const enum back backs[] = {BACK_LITTLE, BACK_LITTLE, BACK_FAR, BACK_FAR_AT_ANY_TIME};
    h.back = random_below(random, 16) < 4 ? backs[random_below(random, 4)] : BACK_NEVER;
    h.far = false;
    h.backs = 0;
    h.events = 0;
    h.overrides = h.changes = 0;
    h.changing = random_below(random, 5) == 0;
    if (stint_open(&options, &h.limiter) != 0)
        abort();
    h.first_word = (const char *)h.limiter->table.shards;
    h.last_word = (const char *)(reach_words(&h.limiter->table) + 1); /* few lines have one */

    h.key_count = 1 + (uint32_t)random_below(random, KEYS_MAX);
    h.policy_count = 1 + (uint32_t)random_below(random, h.key_count == 1 ? 3 : 2);
    for (unsigned k = 0; k < h.key_count; k++)
        h.keys[k].hash = random_next(random) << 8 | (k + 1);
    for (unsigned p = 0; p < h.policy_count; p++) {
        h.policies[p] = pick_policy(random, p);
        install_policy(p);
        for (unsigned k = 0; k < h.key_count; k++) { /* the phase of its windows, if it has one */
            struct stint_request look = {.key = h.keys[k], .policy = h.ids[p], .flags = STINT_PEEK};
            struct stint_verdict verdict;
            stint_decide(h.limiter, &look, STINT_NOW, &verdict);
            h.phases[k][p] = 0;
            if ((h.policies[p].flags & STINT_START_PER_KEY) != 0)
                h.phases[k][p] = verdict.window % h.policies[p].window;
        }
    }
    fill_table(random);
    h.thread_count = 2 + (unsigned)random_below(random, THREADS_MAX - 1);
    for (unsigned i = 0; i < h.thread_count; i++) {
        struct thread *thread = &h.threads[i];
        memset(thread, 0, sizeof(*thread));
        thread->number = i;
        thread->random = (struct random){random_next(random)};
        thread->calls_wanted = 2 + (unsigned)random_below(random, h.thread_count == 2 ? 6 : 4);
        thread->remembered = h.time;
        thread->refundable = CALLS_MAX;
    }
    h.stopped = THREADS_MAX;
    watch_begin(&watch, h.limiter);
}

/* ---- What is known of a call ----------------------------------------------------------------- */

/* The history of a key under a policy. */
static struct {
    unsigned key, policy_id;
    /* By which the search decides now: what was read first, what a count is brought to its window
     * by, what is judged by then, and what is told. */
    const struct stint_policy *policy, *read, *nears, *passing, *telling;
    struct stint_policy adopted;
    struct version {
        const struct stint_policy *policy;
        uint64_t from, until; /* calls that did not end before, nor begin after, may know it */
    } versions[1 + CHANGES_MAX];
    unsigned version_count;
    uint32_t least_capacity, most_capacity; /* of all versions */
    uint64_t phase;
    struct call *calls[THREADS_MAX * CALLS_MAX];
    unsigned call_count;
    uint64_t
        latest[THREADS_MAX * CALLS_MAX]; /* time of any call that began before this one's end */
    uint64_t latest_taker[THREADS_MAX * CALLS_MAX]; /* likewise of one that may take the slot */
    const struct call *overrides[ENTRIES_MAX]; /* calls that set one, or ban; the first: none */
    unsigned override_count;
    const struct call *override;              /* by which the search decides now; NULL: none */
    uint64_t override_until;                  /* and when it ends */
    uint32_t before[THREADS_MAX * CALLS_MAX]; /* calls that ended before it began */
    uint32_t must;                            /* calls that have ended */
    unsigned strays_most;
    unsigned lost_most; /* strikes that found no slot */
    unsigned deepest;   /* most calls that found a place */
    uint32_t deepest_done;
} v;

static uint64_t end_at(uint64_t now) {
    return window_end_at(v.policy, v.phase, now);
}

/* All calls of the history that have begun, in the order of their beginnings. */
static struct call *all_calls[THREADS_MAX * CALLS_MAX];
static unsigned all_count;

static int earlier(const void *one, const void *other) {
    const struct call *a = *(struct call *const *)one, *b = *(struct call *const *)other;
    return a->began < b->began ? -1 : a->began > b->began;
}

static void gather_calls(void) {
    all_count = 0;
    for (unsigned i = 0; i < h.thread_count; i++) {
        struct thread *thread = &h.threads[i];
        for (unsigned c = 0; c < thread->call_count + thread->calling; c++)
            all_calls[all_count++] = &thread->calls[c];
    }
    qsort(all_calls, all_count, sizeof(all_calls[0]), earlier);
}

/* The time that a decision was given, or read. 0: it has not got as far as that. */
static uint64_t first_now(const struct call *call) {
    if (call->argument != STINT_NOW)
        return call->argument;
    return call->reading_count != 0 ? call->readings[0] : 0;
}

static bool very_late(const struct call *call) {
    return h.months || h.overrides != 0 || first_now(call) + ALLOWANCE < h.latest + STINT_TICK_NS;
}

static bool changes_override(const struct call *call) {
    return call->kind == OVERRIDE || call->kind == OVERRIDE_CLEAR;
}

/* Whether a call may take a slot of the table. */
static bool may_take_slot(const struct call *call) {
    return call->kind == OVERRIDE || (decides(call) && !only_looks(call));
}

/* The latest time that a decision has shown. */
static uint64_t latest_now(const struct call *call) {
    uint64_t latest = first_now(call);
    bool all = very_late(call) || call->kind == OVERRIDE || may_strike(call);
    for (unsigned i = 0; all && i < call->reading_count; i++)
        if (call->readings[i] > latest)
            latest = call->readings[i];
    return latest;
}

static uint64_t max_of(uint64_t one, uint64_t other) {
    return one > other ? one : other;
}

/* The time at which a bucket decided on a call; 0: none did, or it was only looked at. */
static uint64_t bucket_decided(const struct call *call) {
    const struct stint_verdict *verdict = &call->verdict;
    if (!decides(call) || only_looks(call) || !is_bucket(&h.policies[call->policy]))
        return 0;
    return verdict->window == 0 ? first_now(call) : verdict->window - verdict->reset_after;
}

/* The latest time at which a bucket had decided for the thread of a call before. 0: there is none;
 * or a refusal may have found it too far ahead, and forgotten it; or a thread that ended may have
 * left it its own. */
static uint64_t decided_before(const struct call *call) {
    uint64_t latest = 0;
    for (const struct call *other = h.threads[call->thread].calls; other != call; other++) {
        if (h.kind == HISTORY_FREE || (decides(other) && is_bucket(&h.policies[other->policy]) &&
                                       latest > first_now(other) + BACK_NS))
            return 0;
        latest = max_of(latest, bucket_decided(other));
    }
    return latest;
}

/* Whether that time is one at which a call may know that a bucket decided. */
static bool decided_then(const struct call *call, uint64_t time) {
    for (unsigned i = 0; i < all_count; i++)
        if (all_calls[i]->began < call->ended && bucket_decided(all_calls[i]) == time &&
            (all_calls[i]->thread == call->thread || h.kind == HISTORY_FREE))
            return true;
    return false;
}

static bool now_may_be(const struct call *call, uint64_t now) {
    if (now == first_now(call))
        return true;
    /* "What does not fit is asked once more": by the clock, by a tick at which another key's slot
     * was over, or by the time of another decision. */
    if (is_bucket(v.policy) && now > first_now(call) &&
        (now % STINT_TICK_NS == 0 || decided_then(call, now)))
        return true;
    for (unsigned i = 0; i < call->reading_count; i++)
        if (call->readings[i] == now)
            return very_late(call) || is_bucket(v.policy);
    return false;
}

/* The time at which a call was decided; 0: at none that it could be. */
static uint64_t decided_at(const struct call *call) {
    const struct stint_verdict *verdict = &call->verdict;
    if (call->ended == NEVER)
        return first_now(call);
    if ((verdict->flags & STINT_UNTRACKED) == 0) {
        uint64_t now = verdict->window - verdict->reset_after;
        return now_may_be(call, now) ? now : 0;
    }
    /* A verdict without a window tells the time to the end of the one that it would have
     * charged; of a bucket, what it granted. */
    uint64_t now = first_now(call);
    if (is_bucket(v.policy))
        return now;
    for (unsigned i = 0; end_at(now) - now != verdict->reset_after; i++) {
        if (!very_late(call) || i == call->reading_count)
            return 0;
        now = call->readings[i];
    }
    return now;
}

/* Whether both were under way at an instant. */
static bool overlap(const struct call *one, const struct call *other) {
    return one->began < other->ended && other->began < one->ended;
}

/* Whether a call counts by the fetch-add of the hot path. */
static bool is_hot(const struct call *call) {
    const struct stint_policy *policy = &h.policies[call->policy];
    return decides(call) && call->request.cost == 1 && call->request.limit == 0 &&
           call->request.flags == 0 && !looks_back(policy) && !carries(policy) &&
           !is_bucket(policy) && (policy->near_limit == 0 || h.changes != 0) &&
           !is_calendar(policy) && (policy->flags & (STINT_START_PER_KEY | STINT_START_FIRST)) == 0;
}

/* ---- The model ------------------------------------------------------------------------------- */

/* A key under a policy, and where the search is. */
struct node {
    struct model_key key; /* known: it has a slot */
    uint64_t lost;        /* windows that end by then are lost, ns */
    uint32_t done;        /* bits of calls that have had their effect */
    uint32_t added;       /* that have added a token too late */
    uint32_t owed;        /* and have not taken it back */
    uint32_t room;        /* hot ones that may have seen room */
    uint8_t strays;       /* tokens that others have left here */
    uint8_t override;     /* the number of the call that set it, or banned the key */
    uint8_t strikes; /* of a key that has no override; their time is that of call `strike_of` */
    uint8_t strike_of;
    uint8_t strikes_lost;
    uint32_t half; /* of two effects these calls have had the first: first refusals whose strike is
                    * to come, resets that have lifted the strikes */
    /* Calls that were under way when another took an override's place: they may have read it. */
    uint32_t may_have_read[ENTRIES_MAX];
};

/* What an override was set to, or a ban sets. */
static uint32_t override_sets(const struct call *set) {
    return set->kind == OVERRIDE ? set->limit : 0;
}

static bool is_banned(void) {
    return v.override != NULL && v.override->kind != OVERRIDE;
}

/* When an override is over, or the time of strikes, if no clock had shown that it is when it was
 * set. */
static uint64_t override_end(const struct call *set) {
    if (set->kind == OVERRIDE)
        return model_override_end(set->until);
    return may_ban(set) ? model_ban_end(v.policy, decided_at(set))
                        : model_span_end(v.policy, decided_at(set));
}

/* At the latest; of a call that never ended nobody knows whether it banned. */
static uint64_t override_end_most(const struct call *set) {
    const bool unknown = set->kind != OVERRIDE && set->ended == NEVER;
    const uint64_t end = unknown ? model_span_end(v.policy, decided_at(set)) : override_end(set);
    return max_of(end, set->claimed_until);
}

/* A stray token in its slot raises its limit. */
static uint32_t override_limit_got(const struct call *set, uint32_t got) {
    uint32_t limit = override_sets(set);
    bool raised =
        limit != 0 && limit != STINT_LIMIT_MAX && got > limit && got - limit <= v.strays_most;
    return raised ? got : limit;
}

static uint64_t time_until(uint64_t time, uint64_t now) {
    return time > now ? time - now : 0;
}

/* By what a call is judged at time `now`, as the search has it. */
static struct model_by by_of(const struct call *call, uint64_t now) {
    static struct model_ruling ruling;
    struct model_by by = {
        .policy = v.policy,
        .charging = v.read,
        .telling = v.telling,
        .near_limit = v.nears->near_limit != 0 ? v.telling->near_limit : 0,
        .phase = v.phase,
    };
    if (v.override != NULL) {
        ruling = (struct model_ruling){
            .limit = override_limit_got(v.override, call->verdict.capacity),
            .banned = is_banned(),
            .until = max_of(now, v.override_until),
        };
        by.ruling = &ruling;
    }
    return by;
}

/* The verdict on a call at time `now` on a key in its window, and its effect. */
static struct stint_verdict decide_in(const struct call *call, uint64_t now, struct node *node) {
    const struct model_by by = by_of(call, now);
    struct model_answer answer = model_decide(&by, &call->request, now, &node->key);
    model_settle(&answer, &call->verdict);
    return answer.verdict;
}

/* Whether a call on a key that the full table has no slot for may get its verdict. */
static bool is_untracked(const struct call *call, uint64_t now) {
    const struct model_by by = by_of(call, now);
    const enum stint_on_full on_full = (enum stint_on_full)h.on_full;
    const struct model_answer answer = model_untracked(&by, on_full, &call->request, now);
    return h.stats.placed >= h.lines * LINE_SLOTS &&
           model_on_full(&by, on_full, &call->request, now) != MODEL_NEEDS_NONE &&
           same_verdict(&answer.verdict, &call->verdict);
}

/* ---- One call of the model ------------------------------------------------------------------- */

enum { NEXT_MAX = 256 };

struct nexts {
    struct node nodes[NEXT_MAX];
    unsigned count;
};

static void add_next(struct nexts *nexts, const struct node *node) {
    if (nexts->count < NEXT_MAX)
        nexts->nodes[nexts->count++] = *node;
}

/* Whether a call whose verdict that is counts a strike then. */
static bool strikes(struct stint_verdict verdict) {
    return v.policy->ban != 0 && v.override == NULL && (verdict.flags & STINT_FIRST_REFUSAL) != 0;
}

/* A verdict, where the strike was a ban: it tells its end, if the key has to wait for that. */
static struct stint_verdict banned_verdict(const struct call *call, struct stint_verdict verdict) {
    uint64_t now = decided_at(call), told = call->verdict.retry_after;
    uint64_t least = time_until(override_end(call), now),
             most = time_until(override_end_most(call), now);
    verdict.flags |= STINT_BANNED;
    if (verdict.retry_after < told && told <= most)
        verdict.retry_after = told;
    verdict.retry_after = max_of(verdict.retry_after, least);
    return verdict;
}

static bool answers(const struct call *call, struct stint_verdict expected) {
    if (call->ended == NEVER)
        return true;
    if (strikes(expected) && may_ban(call))
        expected = banned_verdict(call, expected);
    return same_verdict(&expected, &call->verdict);
}

/* Call `index` has been decided. */
static void note_decided(struct node *node, unsigned index, struct stint_verdict verdict) {
    uint32_t bit = UINT32_C(1) << index;
    if (strikes(verdict))
        node->half |= bit;
    else
        node->done |= bit;
}

/* Whether a bucket that refuses a call did so by the clock, too, which the call has read then, and
 * by the time of the thread's other decisions. */
static bool refused_later(const struct call *call, const struct node *node, uint64_t now) {
    const uint64_t known = decided_before(call);
    if (known > now && known - now <= BACK_NS) {
        struct node later = *node;
        later.key = model_at(v.passing, v.phase, later.key, known);
        if (decide_in(call, known, &later).allowed)
            return false;
    }
    for (unsigned i = call->argument == STINT_NOW; i < call->reading_count; i++) {
        struct node later = *node;
        const uint64_t clock = call->readings[i];
        if (clock <= now || clock - now > ALLOWANCE)
            return true;
        later.key = model_at(v.passing, v.phase, later.key, clock);
        if (!decide_in(call, clock, &later).allowed)
            return true;
    }
    return false;
}

static void decide_known(unsigned index, const struct node *from, uint64_t now,
                         struct nexts *nexts) {
    const struct call *call = v.calls[index];
    struct node before = *from;

    before.key = model_at(v.passing, v.phase, before.key, now);
    struct node decided = before;
    struct stint_verdict verdict = decide_in(call, now, &decided);
    if (!answers(call, verdict))
        return;
    if (is_bucket(v.policy) && call->ended != NEVER && !verdict.allowed &&
        verdict.retry_after != STINT_NEVER && !refused_later(call, &before, now))
        return;
    /* Of a bucket that was full in between the mark may still be there. */
    const bool marked = decided.key.refused != before.key.refused &&
                        (!is_bucket(v.policy) || (verdict.flags & STINT_FIRST_REFUSAL) != 0);
    const bool wrote = !only_looks(call) && (marked || decided.key.used != before.key.used ||
                                             decided.key.window != before.key.window);
    struct node result = wrote ? decided : *from; /* what writes nothing opens no window */
    note_decided(&result, index, verdict);
    add_next(nexts, &result);
}

/* The end of the next window that a key may begin with. Of those that may begin at any tick, the
 * next one that some verdict on the key has told; others would show in none. */
static uint64_t next_end(uint64_t end) {
    uint64_t next = end_at(end);
    if (!is_first(v.policy))
        return next;
    next = UINT64_MAX;
    for (unsigned i = 0; i < v.call_count; i++) {
        const struct call *call = v.calls[i];
        uint64_t told = call->kind == REFUND ? call->window : call->verdict.window;
        if (told > end && told < next)
            next = told;
    }
    return next;
}

/* The next tick after `time` of those that the table may know of by call `index`; UINT64_MAX: there
 * is none. From it on a bucket may be full. It is one at which a call was decided, or the end of a
 * window that was over when another key took its slot. */
static uint64_t next_tick(unsigned index, uint64_t time) {
    uint64_t next = UINT64_MAX;
    if (time < v.latest[index] && v.latest[index] - time < NEXT_MAX / 2 * STINT_TICK_NS)
        return time - time % STINT_TICK_NS +
               STINT_TICK_NS; /* any: keys before all had slots, too */
    for (unsigned i = 0; i < all_count; i++)
        for (unsigned j = 0; j < 2 * all_calls[i]->reading_count + 3; j++) {
            const uint64_t known = j == 0   ? all_calls[i]->verdict.window
                                   : j <= 2 ? first_now(all_calls[i])
                                            : all_calls[i]->readings[(j - 3) / 2];
            const uint64_t tick = known - known % STINT_TICK_NS + (j % 2) * STINT_TICK_NS;
            if (tick > time && tick <= v.latest[index])
                next = tick < next ? tick : next;
        }
    for (uint64_t i = 0; i < LINES_MAX * LINE_SLOTS + 3; i++) { /* of other keys, before all */
        const uint64_t known = h.shown - h.shown % STINT_TICK_NS + (1 - i) * STINT_TICK_NS;
        if (known > time)
            next = known < next ? known : next;
    }
    return next;
}

/* A bucket without a slot is full now, or at a tick until the latest time of another call. */
static void decide_filled(unsigned index, const struct node *from, uint64_t now,
                          struct nexts *nexts) {
    const struct call *call = v.calls[index];
    const bool ended = call->ended != NEVER;
    const uint64_t last = ended ? now : UINT64_MAX - 1;
    for (uint64_t full = now; full <= last; full = next_tick(index, full)) {
        struct node fresh = *from;
        fresh.key = (struct model_key){.window = full, .known = true};
        if (full >= from->lost && answers(call, decide_in(call, now, &fresh)))
            add_next(nexts, &fresh);
    }
}

/* A refund to a bucket, or its reset, by the clock; or by a later tick, at which the window of
 * another key may have ended that had a slot (the watermark). */
static void bucket_back(unsigned index, const struct node *from, struct nexts *nexts) {
    const struct call *call = v.calls[index];
    if (call->reading_count == 0)
        return;
    for (uint64_t now = call->readings[call->reading_count - 1]; now != UINT64_MAX;
         now = next_tick(index, now)) {
        struct node next = *from;
        uint32_t back = 0;
        if (call->kind == RESET)
            model_reset(v.policy, now, &next.key);
        else
            back = model_refund(v.policy, &call->grant, call->tokens, now, &next.key);
        next.done |= UINT32_C(1) << index;
        if (call->ended == NEVER || back == call->given_back)
            add_next(nexts, &next);
        if (now >= from->key.window)
            break;
    }
}

static void decide_absent(unsigned index, const struct node *from, uint64_t now,
                          struct nexts *nexts) {
    const struct call *call = v.calls[index];
    bool ended = call->ended != NEVER;
    struct node next = *from;

    if (ended && (call->verdict.flags & STINT_UNTRACKED) != 0) {
        next.done |= UINT32_C(1) << index;
        if (is_untracked(call, now))
            add_next(nexts, &next);
        return;
    }
    struct node looked = {.key = {.window = end_at(now), .known = true}};
    struct stint_verdict verdict = decide_in(call, now, &looked);
    note_decided(&next, index, verdict);
    const bool taken = looked.key.used != 0 || looked.key.window != end_at(now);
    if (only_looks(call) || (!taken && !looked.key.refused)) { /* nothing to write */
        if (answers(call, verdict))
            add_next(nexts, &next);
        return;
    }
    if (is_bucket(v.policy)) {
        decide_filled(index, &next, now, nexts);
        return;
    }
    uint64_t last = end_at(max_of(now, v.latest[index])), lost = from->lost, told = last;
    if (is_first(v.policy) && lost != 0 && lost != NEVER) /* windows have no tick in common */
        lost += v.policy->window - 1;
    uint64_t end = end_at(now);
    if (ended) {
        told = call->verdict.window;
        if (told > last || (told > end && !is_first(v.policy) && end_at(told - 1) != told))
            return;
        end = max_of(end, told);
    }
    for (; end <= told; end = next_end(end)) {
        if (end <= lost)
            continue;
        struct node fresh = next;
        fresh.key = (struct model_key){.window = end, .known = true};
        if (answers(call, decide_in(call, now, &fresh)))
            add_next(nexts, &fresh);
    }
}

static void refund_known(unsigned index, const struct node *from, struct nexts *nexts) {
    const struct call *call = v.calls[index];
    struct node next = *from;
    const uint32_t back = model_refund(v.policy, &call->grant, call->tokens, 0, &next.key);
    next.done |= UINT32_C(1) << index;
    if (call->ended == NEVER || back == call->given_back)
        add_next(nexts, &next);
}

/* Whether the policy was a shadow, and was none. */
static bool shadow_turns(void) {
    uint32_t unlike = 0;

    for (unsigned i = 1; i < v.version_count; i++)
        unlike |= v.versions[i].policy->flags ^ v.versions[0].policy->flags;
    return (unlike & STINT_SHADOW) != 0;
}

/* Whether a call that banned did so for a shadow: void where the policy is none. */
static bool bans_by_shadow(const struct call *set) {
    return set != NULL && set->kind != OVERRIDE && set->ended != NEVER &&
           (set->verdict.flags & STINT_SHADOWED) != 0;
}

/* How an override may be seen by a clock that said `now`: as in force, as none, or both. */
static void override_seen(const struct call *set, unsigned index, uint64_t now, bool *holds,
                          bool *none) {
    *holds = set != NULL && override_end_most(set) > now;
    *none =
        set == NULL || override_end(set) <= now ||
        override_end(set) + ALLOWANCE <= v.latest[index] || /* its slot may be another's */
        (set->kind != OVERRIDE && shadow_turns() && (set->ended == NEVER || bans_by_shadow(set)));
}

static void decide_at(unsigned index, const struct node *from, uint64_t now, struct nexts *nexts) {
    if (from->key.known)
        decide_known(index, from, now, nexts);
    else
        decide_absent(index, from, now, nexts);
}

/* A decision reads the override first: the one that there is, or one that there was since the
 * decision began. */
static void decide_overridden(unsigned index, const struct node *from, uint64_t now,
                              struct nexts *nexts) {
    bool none = false;
    for (unsigned i = 0; i < v.override_count; i++) {
        bool holds, not_here;
        if (from->override != i && (from->may_have_read[i] >> index & 1) == 0)
            continue;
        override_seen(v.overrides[i], index, now, &holds, &not_here);
        none |= not_here;
        if (!holds) /* one that is too late reads it before it asks the clock */
            override_seen(v.overrides[i], index, first_now(v.calls[index]), &holds, &not_here);
        if (bans_by_shadow(v.overrides[i]) && (v.read->flags & STINT_SHADOW) == 0)
            holds = false;
        v.override = v.overrides[i];
        v.policy = v.read; /* whose capacity is not taken over */
        if (holds) {
            const uint64_t told = now + v.calls[index]->verdict.retry_after;
            v.override_until = override_end(v.override);
            decide_at(index, from, now, nexts);
            if (told > v.override_until && told <= override_end_most(v.override)) {
                v.override_until = told;
                decide_at(index, from, now, nexts);
            }
        }
        v.override = NULL;
        v.policy = &v.adopted;
    }
    if (none)
        decide_at(index, from, now, nexts);
}

static bool may_know(const struct call *call, const struct version *version) {
    return version < v.versions + v.version_count && version->from < call->ended;
}

/* A decision is judged by what a later policy allows, too, if that is less. */
static void adopt(const struct call *call, const struct stint_policy *policy) {
    if (call->request.limit != 0 || capacity_of(policy) >= capacity_of(&v.adopted))
        return;
    const uint32_t reserved = v.adopted.max_reserved;
    v.adopted = *policy;
    if (v.adopted.max_reserved > reserved)
        v.adopted.max_reserved = reserved;
}

/* A decision that was under way while its policy was changed is made by the one before or after.
 * Charges and reservations may be by a later one than that which says whether NEAR_LIMIT is told.
 * Who begins a window by what was left in the one before may do that by a later one, and adopts it,
 * even if another was faster to begin it; and before that another one, if his swap failed. What
 * verdicts tell beside may be by one that is later still. */
static void decide_by_policies(unsigned index, const struct node *from, uint64_t now,
                               struct nexts *nexts) {
    const struct call *call = v.calls[index];
    const bool passes = carries(v.policy) || looks_back(v.policy);
    const bool twice = (call->request.flags & (STINT_RESERVE | STINT_CHARGE)) != 0;
    for (const struct version *first = v.versions; may_know(call, first); first++) {
        if (call->began > first->until)
            continue;
        for (const struct version *rule = first; may_know(call, rule); rule++) {
            if (rule != first && !twice)
                break;
            for (const struct version *next = rule; may_know(call, next); next++) {
                if (next != rule && !passes)
                    break;
                const struct version *via = rule;
                do {
                    v.adopted = *rule->policy;
                    adopt(call, via->policy);
                    adopt(call, next->policy);
                    for (const struct version *last = next; may_know(call, last); last++) {
                        v.nears = first->policy;
                        v.policy = &v.adopted;
                        v.read = rule->policy;
                        v.passing = next->policy;
                        v.telling = last->policy;
                        decide_overridden(index, from, now, nexts);
                    }
                } while (++via < next);
            }
        }
    }
    v.policy = v.versions[0].policy;
}

/* The time from which a slot may be another's, by any version of its policy. */
static uint64_t free_at_least(struct model_key key) {
    uint64_t least = UINT64_MAX;
    for (unsigned i = 0; i < v.version_count; i++) {
        uint64_t free_at = model_free_at(v.versions[i].policy, key);
        least = free_at < least ? free_at : least;
    }
    return least;
}

/* Decisions that are under way, or may be. */
static uint32_t under_way(const struct node *node) {
    uint32_t bits = 0;
    for (unsigned i = 0; i < v.call_count; i++)
        if (((node->done | node->half) >> i & 1) == 0 && (v.before[i] & ~node->done) == 0 &&
            decides(v.calls[i]))
            bits |= UINT32_C(1) << i;
    return bits;
}

/* Puts the override that `call` set, NULL: none, in the place of that which there is. */
static void put_override(struct node *node, const struct call *call) {
    uint8_t number = 0;
    while (v.overrides[number] != call)
        number++;
    node->strikes = node->strike_of = 0;
    if (number != node->override)
        node->may_have_read[node->override] |= under_way(node);
    node->override = number;
}

/* The strike of a first refusal: the second effect of its call. Who is banned, or has an override
 * set by hand, collects none. Strikes, and overrides, are gone when their time is over. */
static void strike_at(unsigned index, const struct node *from, struct nexts *nexts) {
    const struct call *call = v.calls[index], *span = NULL;
    uint64_t now = decided_at(call), after = v.policy->ban_after == 0 ? 1 : v.policy->ban_after;
    bool banned = may_ban(call), other = call->ended == NEVER || !banned;
    bool overridden, no_override, counted, none;
    struct node same = *from;

    same.half &= ~(UINT32_C(1) << index);
    same.done |= UINT32_C(1) << index;
    if (from->strikes != 0)
        span = v.calls[from->strike_of];
    override_seen(v.overrides[from->override], index, now, &overridden, &no_override);
    override_seen(span, index, now, &counted, &none);
    for (unsigned i = 0; i < call->reading_count; i++) { /* both are over by the clock, too */
        bool holds, not_here;
        override_seen(v.overrides[from->override], index, call->readings[i], &holds, &not_here);
        overridden |= holds;
        override_seen(span, index, call->readings[i], &holds, &not_here);
        counted |= holds;
    }
    if (span != NULL && override_end_most(span) > model_span_end(v.policy, now) + ALLOWANCE)
        none = true; /* very late */
    if (span != NULL && shadow_turns())
        none = true; /* a shadow's strikes are void once it is none */
    if (overridden && other)
        add_next(nexts, &same);
    if (!no_override)
        return;
    if (none && other && from->strikes_lost < v.lost_most) {
        struct node lost = same;
        lost.strikes_lost++;
        add_next(nexts, &lost);
    }
    for (unsigned strays = 0; strays <= v.strays_most; strays++) { /* each may be a strike */
        for (unsigned is_first = !counted; is_first <= none; is_first++) {
            struct node next = same;
            unsigned count = 1 + (is_first ? 0 : from->strikes + strays);
            if (count >= after ? !banned : !other)
                continue;
            put_override(&next, count >= after ? call : NULL);
            if (count < after) {
                next.strikes = (uint8_t)count;
                next.strike_of = is_first ? (uint8_t)index : from->strike_of;
            }
            add_next(nexts, &next);
        }
    }
}

/* A reset under a policy with bans: it lifts the strikes, or a ban, and then sets the count to
 * nothing. */
static void reset_lifts(unsigned index, const struct node *from, struct nexts *nexts) {
    const struct call *set = v.overrides[from->override];
    struct node next = *from;
    next.half |= UINT32_C(1) << index;
    if (set == NULL || set->kind != OVERRIDE)
        put_override(&next, NULL);
    add_next(nexts, &next);
}

/* The calls of overrides: a register. */
static void override_at(unsigned index, const struct node *from, struct nexts *nexts) {
    const struct call *call = v.calls[index], *set = v.overrides[from->override];
    struct node next = *from;
    bool holds, none, ended = call->ended != NEVER;
    bool full = h.stats.placed >= h.lines * LINE_SLOTS;

    next.done |= UINT32_C(1) << index;
    if (call->reading_count == 0) { /* it has not got as far as that */
        add_next(nexts, &next);
        return;
    }
    /* Who clears asks the clock again after it has seen the slot. */
    uint64_t now = call->readings[call->kind == OVERRIDE_CLEAR ? call->reading_count - 1 : 0];
    override_seen(set, index, now, &holds, &none);
    if (call->kind == OVERRIDE_GET) {
        bool same = holds && call->limit == override_limit_got(set, call->limit) &&
                    call->until >= override_end(set) && call->until <= override_end_most(set);
        if (!ended || (call->result == 0 && same) || (call->result == -ENOENT && none))
            add_next(nexts, &next);
        return;
    }
    bool good = call->kind == OVERRIDE_CLEAR ? holds : call->until > now;
    bool bad = call->kind == OVERRIDE_CLEAR ? none : call->until <= now;
    int failure = call->kind == OVERRIDE_CLEAR ? -ENOENT : -EINVAL;
    if (!ended || (bad && call->result == failure) ||
        (call->kind == OVERRIDE && full && call->result == -ENOSPC))
        add_next(nexts, &next);
    if (!good || (ended && call->result != 0))
        return;
    put_override(&next, call->kind == OVERRIDE ? call : NULL);
    add_next(nexts, &next);
}

static void call_at(unsigned index, const struct node *from, struct nexts *nexts) {
    const struct call *call = v.calls[index];
    struct node without = *from;
    bool half = from->half >> index & 1;

    without.done |= UINT32_C(1) << index;
    without.half &= ~without.done;
    if (half && decides(call)) {
        strike_at(index, from, nexts);
    } else if (is_bucket(v.policy) && from->key.known &&
               (call->kind == REFUND || call->kind == RESET)) {
        bucket_back(index, from, nexts);
        if (call->ended == NEVER)
            add_next(nexts, &without);
    } else if (call->kind == REFUND) {
        if (from->key.known)
            refund_known(index, from, nexts);
        else if (call->ended == NEVER || call->given_back == 0)
            add_next(nexts, &without);
    } else if (call->kind == RESET && v.policy->ban != 0 && !half) {
        reset_lifts(index, from, nexts);
    } else if (call->kind == RESET) {
        without.key.used = without.key.previous = 0;
        add_next(nexts, &without);
    } else if (!decides(call)) {
        override_at(index, from, nexts);
    } else {
        /* One that stopped has not told which of its times it was. The latest comes first: of the
         * many windows since a minute ago, `nexts` has room for some. */
        const unsigned readings = call->ended == NEVER && very_late(call) ? call->reading_count : 0;
        for (uint64_t next, last = UINT64_MAX;; last = next) {
            next = decided_at(call) < last ? decided_at(call) : 0;
            for (unsigned i = 0; i < readings; i++)
                if (call->readings[i] < last && call->readings[i] > next)
                    next = call->readings[i];
            if (next == 0)
                break;
            decide_by_policies(index, from, next, nexts);
        }
    }
}

/* All that may be after call `index` took its effect: on the key as it is, or after its slot was
 * lost. */
static void call_after(unsigned index, const struct node *from, struct nexts *nexts) {
    call_at(index, from, nexts);
    if (!from->key.known)
        return;
    if ((from->half >> index & 1) != 0 && decides(v.calls[index])) /* its strike */
        return;
    uint64_t free_at = free_at_least(from->key);
    if (free_at > v.latest_taker[index])
        return;
    struct node lost = *from;
    lost.key = (struct model_key){0};
    lost.lost = free_at;
    call_at(index, &lost, nexts);
}

/* ---- The search ------------------------------------------------------------------------------ */

static struct {
    struct node nodes[NODES_MAX];
    unsigned count;
    unsigned index[2 * NODES_MAX]; /* 1 + number of a node; 0: none */
    unsigned round, rounds[2 * NODES_MAX];
} visited;

/* Whether a node is new; if so, it is noted. */
static bool visit(const struct node *node) {
    const size_t size = offsetof(struct node, may_have_read) +
                        v.override_count * sizeof(node->may_have_read[0]); /* the rest is 0 */
    uint32_t words[sizeof(*node) / sizeof(uint32_t)];
    uint64_t hash = 0;
    memcpy(words, node, size);
    for (size_t i = 0; i < size / sizeof(words[0]); i++) {
        hash = (hash ^ words[i]) * UINT64_C(0x9E3779B97F4A7C15);
        hash ^= hash >> 29;
    }
    size_t at = hash % (2 * NODES_MAX);
    for (; visited.rounds[at] == visited.round; at = (at + 1) % (2 * NODES_MAX))
        if (memcmp(&visited.nodes[visited.index[at]], node, size) == 0)
            return false;
    if (visited.count == NODES_MAX) {
        fprintf(stderr, "history %" PRIu64 ": too many states\n", h.seed);
        abort();
    }
    visited.rounds[at] = visited.round;
    visited.index[at] = visited.count;
    visited.nodes[visited.count++] = *node;
    return true;
}

/* Which of the hot calls that are under way may see room now: in the window of their time. */
static uint32_t sees_room(const struct node *node) {
    uint32_t bits = 0;
    if (!node->key.known || node->key.refused || node->key.used >= v.most_capacity)
        return 0;
    for (unsigned i = 0; i < v.call_count; i++)
        if (is_hot(v.calls[i]) && first_now(v.calls[i]) != 0 &&
            end_at(first_now(v.calls[i])) == node->key.window)
            bits |= UINT32_C(1) << i;
    return bits & under_way(node);
}

/* B1: call `index` adds a token too late: after it saw room, the count is full, or marked, or in
 * another window. */
static bool add_too_late(struct node *node, unsigned index) {
    const uint32_t bit = UINT32_C(1) << index;
    if ((node->room & ~node->added & bit) == 0 || !node->key.known ||
        (node->key.used < v.least_capacity && !node->key.refused &&
         node->key.window == end_at(first_now(v.calls[index]))))
        return false;
    node->added |= bit;
    node->owed |= bit;
    node->key.used++;
    return true;
}

/* And takes it back. A1: after a reset, that of another, if there is one. */
static bool take_back(struct node *node, unsigned index) {
    const uint32_t bit = UINT32_C(1) << index;
    if ((node->owed & bit) == 0)
        return false;
    node->owed &= ~bit;
    node->key.used -= node->key.used > 0;
    return true;
}

static bool search(struct node node) {
    node.room = (node.room | sees_room(&node)) & ~(node.done | node.half);
    node.added &= ~(node.done | node.half);
    for (unsigned i = 0; i < v.override_count; i++)
        node.may_have_read[i] &= ~(node.done | node.half);
    if ((v.must & ~node.done) == 0)
        return true;
    if (!visit(&node))
        return false;
    unsigned depth = (unsigned)__builtin_popcount(node.done);
    if (depth >= v.deepest) {
        v.deepest = depth;
        v.deepest_done = node.done;
    }

    struct nexts nexts;
    for (unsigned i = 0; i < v.call_count; i++) {
        if ((node.done >> i & 1) != 0 || (v.before[i] & ~node.done) != 0)
            continue;
        struct node next = node;
        if (take_back(&next, i)) { /* it is not decided before */
            if (search(next))
                return true;
            continue;
        }
        nexts.count = 0;
        call_after(i, &node, &nexts);
        for (unsigned j = 0; j < nexts.count; j++) {
            if (nexts.nodes[j].key.window != node.key.window) /* those that it owed are over */
                nexts.nodes[j].owed = 0;
            if (search(nexts.nodes[j]))
                return true;
        }
        if (add_too_late(&next, i) && search(next))
            return true;
    }
    if (node.key.known && node.strays < v.strays_most) {
        struct node strayed = node;
        strayed.strays++;
        if (is_bucket(v.policy)) /* a ns */
            strayed.key.window++;
        else
            strayed.key.used++;
        if (search(strayed))
            return true;
    }
    return false;
}

/* Whether a call of this key was under way at once with another one of it. */
static bool overlaps_own(const struct call *call) {
    for (unsigned i = 0; i < v.call_count; i++)
        if (v.calls[i] != call && overlap(v.calls[i], call))
            return true;
    return false;
}

static void note_version(const struct stint_policy *policy, uint64_t from) {
    const uint32_t capacity = capacity_of(policy);
    v.versions[v.version_count++] = (struct version){policy, from, NEVER};
    v.most_capacity = capacity > v.most_capacity ? capacity : v.most_capacity;
    v.least_capacity = capacity < v.least_capacity ? capacity : v.least_capacity;
}

/* What the policy was, and became. One thread changes all. */
static void note_versions(void) {
    v.least_capacity = UINT32_MAX;
    note_version(&h.policies[v.policy_id], 0);
    for (unsigned i = 0; i < all_count; i++) {
        const struct call *call = all_calls[i];
        if (call->kind != CHANGE || call->policy != v.policy_id)
            continue;
        v.versions[v.version_count - 1].until = call->ended;
        note_version(&h.changed[call->change], call->began);
    }
    v.policy = v.versions[0].policy;
}

/* Whether a call is of the history that is looked at. */
static bool is_own(const struct call *call) {
    return call->key == v.key && call->policy == v.policy_id && call->kind != CHANGE;
}

static void note_calls(unsigned key, unsigned policy) {
    memset(&v, 0, sizeof(v));
    v.key = key;
    v.policy_id = policy;
    note_versions();
    v.phase = h.phases[key][policy];
    v.strays_most = (unsigned)h.stats.stray_tokens;
    v.override_count = 1;
    v.lost_most = (unsigned)h.strikes_lost[policy];
    for (unsigned i = 0; i < all_count; i++) {
        struct call *call = all_calls[i];
        bool own = is_own(call);
        if (own && (call->kind == OVERRIDE || may_ban(call)))
            v.overrides[v.override_count++] = call;
        if (own)
            v.calls[v.call_count++] = call;
        else if (call->ended == NEVER && (is_hot(call) || is_striped(&h.policies[call->policy])))
            v.strays_most++; /* it may have stopped on its way to count it */
    }
    for (unsigned i = 0; i < v.call_count; i++) {
        const struct call *call = v.calls[i];
        v.latest[i] = h.shown;
        v.latest_taker[i] = 0;
        if (call->ended != NEVER)
            v.must |= UINT32_C(1) << i;
        for (unsigned j = 0; j < all_count; j++) {
            const struct call *other = all_calls[j];
            bool own = is_own(other);
            if (!may_take_slot(other) || other->began > call->ended)
                continue;
            v.latest[i] = max_of(v.latest[i], latest_now(other));
            if (!own || other->kind == OVERRIDE || may_strike(other) || overlaps_own(other))
                v.latest_taker[i] = max_of(v.latest_taker[i], latest_now(other));
        }
        for (unsigned j = 0; j < v.call_count; j++) {
            const struct call *other = v.calls[j];
            if (other->ended < call->began)
                v.before[i] |= UINT32_C(1) << j;
            /* Its slot may have been claimed by another that was under way. */
            if ((other->kind == OVERRIDE || may_strike(other)) && (i == j || overlap(other, call)))
                v.calls[i]->claimed_until =
                    max_of(v.calls[i]->claimed_until, model_override_end(latest_now(other) + 1));
        }
    }
}

static bool linearizable(void) {
    struct node first;
    memset(&first, 0, sizeof(first));
    visited.count = 0;
    visited.round++;
    bool found = search(first);
    h.totals->states += visited.count;
    return found;
}

/* ---- Striped keys ---------------------------------------------------------------------------- */

/* Whether a call took tokens of a striped key in a window, or may have: it stopped; or it charged,
 * and as a stripe had no slot its verdict does not tell the window. */
static bool takes_in(const struct call *call, uint64_t window) {
    const bool tracked = (call->verdict.flags & STINT_UNTRACKED) == 0;
    return decides(call) && !looks(call) &&
           (call->ended == NEVER || (tracked ? call->verdict.window == window : charges(call)));
}

/* What was granted in a window and not given back. "What STINT_CHARGE charges is no grant." */
static int64_t striped_grants(uint64_t window) {
    int64_t tokens = 0;
    for (unsigned i = 0; i < v.call_count; i++) {
        const struct call *call = v.calls[i];
        const bool stopped = call->ended == NEVER;
        if (call->kind == REFUND && call->window == window && !call->of_charge)
            tokens -= stopped ? call->tokens : call->given_back;
        else if (takes_in(call, window) && !stopped && !charges(call))
            tokens += call->verdict.granted;
    }
    return tokens;
}

/* The most tokens of a window that a call held while it was under way (B4): "If it does not fit it
 * takes nothing", but "if others were faster and it is short in the end, it gives back"; and who
 * meets the turn of a window "starts over in the new one". */
static int64_t striped_held(const struct call *call, uint64_t window) {
    const int64_t cost = call->request.cost;
    if (call->ended == NEVER || (call->verdict.flags & STINT_UNTRACKED) != 0)
        return cost;
    if (window < end_at(first_now(call)) || window > call->verdict.window)
        return 0;
    if (call->verdict.granted != 0 || (call->request.flags & STINT_PARTIAL) != 0)
        return call->verdict.granted;
    return cost > 0 && cost <= call->verdict.capacity ? cost - 1 : 0;
}

/* The most tokens of a window that `by` may have seen: those taken before it ended, but for what
 * was given back, or reset, before it began. Of a call that was under way meanwhile one token may
 * have been on its way back (B1), or seen twice: "The sum of the stripes is no snapshot." */
static int64_t striped_most(const struct call *by, uint64_t window) {
    int64_t tokens = 0;
    uint64_t reset = 0;
    for (unsigned i = 0; i < v.call_count; i++)
        if (v.calls[i]->kind == RESET && v.calls[i]->ended < by->began)
            reset = max_of(reset, v.calls[i]->began);
    for (unsigned i = 0; i < v.call_count; i++) {
        const struct call *call = v.calls[i];
        if (call == by || call->began > by->ended)
            continue;
        if (call->kind == REFUND && call->window == window && call->ended < by->began &&
            call->began > reset)
            tokens -= call->given_back;
        if (!decides(call) || looks(call))
            continue;
        if ((call->request.flags & STINT_DRAIN) != 0 && call->verdict.granted == 0)
            return STINT_LIMIT_MAX; /* it may have emptied the key */
        if (overlap(call, by))
            tokens += striped_held(call, window) + is_hot(call);
        else if (takes_in(call, window) && call->ended > reset)
            tokens += call->verdict.granted;
    }
    return tokens > 0 ? tokens : 0; /* less than none: tokens of before a reset */
}

/* Whether so many tokens may not have fitted, in the window of the time of the call or a later one:
 * the verdict is of the window in which the refusal was marked, which may have begun since. */
static bool striped_was_full(const struct call *call, int64_t tokens, int64_t room) {
    bool was_full = h.stats.stray_tokens != 0 || v.strays_most != 0;
    for (uint64_t window = end_at(first_now(call)); window <= call->verdict.window;
         window += v.policy->window)
        was_full |= striped_most(call, window) + tokens > room;
    return was_full;
}

/* Whether the verdict is the model's on some count: full for what was refused, with just the room
 * that there was for what was granted in part. `used` is an estimate. */
static bool striped_answers(const struct call *call, bool refused, uint32_t capacity) {
    const struct stint_verdict *got = &call->verdict;
    const struct stint_request *request = &call->request;
    const uint32_t most = charges(call) ? STINT_LIMIT_MAX : capacity;
    const bool in_part = !refused && !looks(call) && got->granted < request->cost;
    struct model_by by = model_by(v.policy);
    struct model_key key = {.window = got->window,
                            .used = refused   ? STINT_LIMIT_MAX
                                    : in_part ? most - got->granted
                                              : 0,
                            .refused = (got->flags & STINT_FIRST_REFUSAL) == 0,
                            .known = true};
    struct model_answer answer = model_decide(&by, request, got->window - got->reset_after, &key);
    answer.off = UINT32_MAX;
    return model_allows(&answer, got, NULL);
}

/* "Striped policies" (struct stint_verdict): no single counter. */
static const char *striped_wrong(void) {
    bool reset = false;
    for (unsigned i = 0; i < v.call_count; i++)
        reset |= v.calls[i]->kind == RESET;
    for (unsigned i = 0; i < v.call_count; i++) {
        const struct call *call = v.calls[i];
        const struct stint_verdict *verdict = &call->verdict;
        if (!decides(call) || call->ended == NEVER || (verdict->flags & STINT_UNTRACKED) != 0)
            continue;
        const uint64_t now = verdict->window - verdict->reset_after;
        const bool refused = !verdict->allowed || (verdict->flags & STINT_SHADOWED) != 0;
        const bool partial = (call->request.flags & STINT_PARTIAL) != 0;
        const uint32_t capacity = verdict->capacity, cost = call->request.cost;
        if (!now_may_be(call, now) || verdict->window < end_at(now) ||
            end_at(verdict->window - 1) != verdict->window ||
            verdict->window > end_at(max_of(now, v.latest[i])))
            return "a verdict of no window that it could be in";
        if (!striped_answers(call, refused, capacity))
            return "a verdict that no count gives";
        if (!reset && striped_grants(verdict->window) > capacity_of(v.policy))
            return "A: more granted in a window than the policy allows";
        if (refused && !striped_was_full(call, partial && cost > 1 ? 1 : cost, capacity))
            return "B: refused, though there was room at every instant";
        /* Or some of its stripes have no slot in a full table. */
        if (charges(call) && !looks(call) && verdict->granted < cost &&
            h.stats.placed < h.lines * LINE_SLOTS && !striped_was_full(call, cost, STINT_LIMIT_MAX))
            return "granted is not what was asked for";
        if (!refused || only_looks(call) || (call->request.flags & STINT_TENTATIVE) != 0)
            continue;
        unsigned firsts = 0;
        bool unknown = false;
        for (unsigned j = 0; j < v.call_count; j++) {
            const struct stint_verdict *other = &v.calls[j]->verdict;
            unknown |= v.calls[j]->ended == NEVER;
            firsts += decides(v.calls[j]) && v.calls[j]->ended != NEVER &&
                      other->window == verdict->window && (other->flags & STINT_FIRST_REFUSAL) != 0;
        }
        if (firsts > 1 || (firsts == 0 && !unknown))
            return "C: the first refusal of a window was not told once";
    }
    return NULL;
}

/* ---- The whole history ----------------------------------------------------------------------- */

static void print_call(const struct call *call) {
    static const char *const kinds[] = {"take",     "decide",       "refund",         "reset",
                                        "override", "override_get", "override_clear", "change"};
    FILE *out = h.report;
    fprintf(out, "  [%2" PRIu64 ",", call->began);
    if (call->ended == NEVER)
        fprintf(out, "    ]");
    else
        fprintf(out, " %2" PRIu64 "]", call->ended);
    fprintf(out, " thread %u: %s key %u policy %u", call->thread, kinds[call->kind], call->key,
            call->policy);
    if (call->kind == REFUND)
        fprintf(out, " tokens %" PRIu32 " window %" PRId64 ": %" PRIu32, call->tokens,
                (int64_t)(call->window - T0), call->given_back);
    if (changes_override(call) || call->kind == OVERRIDE_GET)
        fprintf(out, " limit %" PRIu32 " until %" PRId64 ": %d", call->limit,
                (int64_t)(call->until - T0), call->result);
    if (call->kind == CHANGE)
        fprintf(out, " to %s", policy_text(&h.changed[call->change]));
    if (decides(call)) {
        fprintf(out, " cost %" PRIu32 " limit %" PRIu32 " flags %#" PRIx32 " at ",
                call->request.cost, call->request.limit, call->request.flags);
        if (call->argument != STINT_NOW)
            fprintf(out, "%" PRId64, (int64_t)(call->argument - T0));
        else
            fprintf(out, "now");
        if (call->ended != NEVER)
            fprintf(out, ": %s", verdict_text(&call->verdict));
    }
    for (unsigned i = 0; i < call->reading_count; i++)
        fprintf(out, " (%" PRId64 ")", (int64_t)(call->readings[i] - T0));
    fprintf(out, "\n");
}

/* Says what is wrong, and the history of that key and policy (of all, if that is not it). */
static bool wrong(const char *what, bool of_key) {
    h.wrong = what;
    if (h.report == NULL)
        return false;
    fprintf(h.report,
            "history of seed %" PRIu64 " (%s): %s\n  %" PRIu64 " lines, on_full %" PRIu32
            ", %u threads, placed %" PRIu64 ", strays %" PRIu64 ", time shown before %" PRId64 "\n",
            h.seed, h.kind == HISTORY_SCHEDULED ? "scheduled" : "free", what, h.lines, h.on_full,
            h.thread_count, h.stats.placed, h.stats.stray_tokens, (int64_t)(h.shown - T0));
    if (h.backs != 0)
        fprintf(h.report, "  the clock was set back %u times (kind %d)\n", h.backs, (int)h.back);
    for (unsigned p = 0; p < h.policy_count; p++)
        if (!of_key || p == v.policy_id)
            fprintf(h.report, "  policy %u: %s, strikes lost %" PRIu64 "\n", p,
                    policy_text(&h.policies[p]), h.strikes_lost[p]);
    fprintf(h.report, "  Times are ns since %" PRIu64 ".\n", T0);
    for (unsigned i = 0; i < all_count; i++)
        print_call(all_calls[i]);
    if (of_key)
        fprintf(h.report,
                "  key %u, policy %u, phase %" PRIu64 ": at most %u of %u calls fit, %#x\n", v.key,
                v.policy_id, v.phase, v.deepest, v.call_count, v.deepest_done);
    return false;
}

static void sum_up(void) {
    h.totals->operations += all_count;
    h.totals->strays += h.stats.stray_tokens;
    for (unsigned i = 0; i < all_count; i++) {
        const struct call *call = all_calls[i];
        bool overlaps = false;
        for (unsigned j = 0; j < all_count; j++)
            overlaps |= i != j && all_calls[j]->key == call->key &&
                        all_calls[j]->policy == call->policy && overlap(all_calls[j], call);
        h.totals->overlapping += overlaps;
        h.totals->refusals += decides(call) && call->ended != NEVER && !call->verdict.allowed;
    }
}

/* Whether a call was held to a window that nobody could be in, by the times that it and those
 * beside it have shown. */
static bool is_frozen(const struct call *call) {
    uint64_t latest = 0;
    if (!decides(call) || call->ended == NEVER || (call->verdict.flags & STINT_UNTRACKED) != 0)
        return false;
    for (unsigned i = 0; i < all_count; i++) {
        if (overlap(call, all_calls[i]))
            latest = max_of(latest, first_now(all_calls[i]));
        for (unsigned j = 0; overlap(call, all_calls[i]) && j < all_calls[i]->reading_count; j++)
            latest = max_of(latest, all_calls[i]->readings[j]);
    }
    if (is_bucket(&h.policies[call->policy])) {
        struct stint_policy policy = h.policies[call->policy];
        policy.burst = policy.burst > CHANGED_BURST ? policy.burst : CHANGED_BURST;
        return is_far_ahead(&policy, call->verdict.window, latest);
    }
    return call->verdict.window >
           latest - latest % STINT_TICK_NS + longest_window(&h.policies[call->policy]) + ALLOWANCE;
}

/* What is wrong with the calls of a key by a policy. NULL: nothing. */
static const char *key_wrong(unsigned key, unsigned policy) {
    note_calls(key, policy);
    if (is_striped(v.policy))
        return striped_wrong();
    return linearizable() ? NULL : "no order of these calls gives these answers";
}

static bool check(void) {
    watch_table();
    if (watch.broken != NULL)
        return wrong(watch.broken, false);
    if (h.stats.clock_steps != 0 && !h.far)
        return wrong("H: late callers count as a step of the clock", false);
    for (unsigned i = 0; i < all_count; i++)
        if (is_frozen(all_calls[i]))
            return wrong("H: a window that ends too far ahead", false);
    if (h.stats.replaced != 0 || h.far)
        return true;
    for (unsigned k = 0; k < h.key_count; k++) {
        for (unsigned p = 0; p < h.policy_count; p++) {
            const char *what = key_wrong(k, p);
            if (what != NULL)
                return wrong(what, true);
        }
    }
    return true;
}

const char *history_wrong(void) {
    return h.wrong;
}

bool history_holds(uint64_t seed, enum history_threads threads, struct history_totals *totals,
                   FILE *report) {
    struct random random = {seed * UINT64_C(0xD1342543DE82EF95)};
    bool got_on = true;

    h.kind = threads;
    h.totals = totals;
    h.report = report;
    start(seed, &random);
    stint_test_step = threads == HISTORY_SCHEDULED ? scheduled_step : free_step;
    if (threads == HISTORY_SCHEDULED)
        got_on = run_scheduled(&random);
    else
        run_team(free_body, NULL);
    stint_test_step = NULL;
    h.stats = get_stats(h.limiter);
    for (unsigned p = 0; p < h.policy_count; p++)
        h.strikes_lost[p] = get_policy_stats(h.limiter, h.ids[p]).strikes_lost;
    gather_calls();
    sum_up();
    if (threads == HISTORY_FREE) { /* several writes may have come between two looks */
        watch_begin(&watch, h.limiter);
        for (uint64_t i = 0; i < h.lines * LINE_SLOTS; i++)
            watch.slots[i].state = 0;
    }
    bool holds = got_on ? check() : wrong("E: threads do not get on", false);
    stint_close(h.limiter);
    return holds;
}
