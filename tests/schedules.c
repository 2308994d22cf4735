/* SPDX-License-Identifier: MIT
 * Every schedule, not samples: the library's own code on one key, its threads changed at their
 * atomic operations in all ways that take up to so many preemptions.
 *
 * A scene is a policy, what was in the table before, and the calls of two or three threads. It
 * is played in every schedule with at most so many preemptions (a thread that has ended costs
 * none), each from the same bytes. Linearizability needs no model here: the calls are made one
 * after the other as well, in every order, and some order that agrees with the schedule's (what
 * had ended before another began comes first) must give the same answers, all fields of all
 * verdicts alike, and so must two calls after all: a look, and a take. That one call after the
 * other is right, other tests say (twin, features). The invariants I1, I3, I5 and I7 of
 * src/slot.h are checked at each step.
 *
 * A preemption is before an atomic operation on a word that others may write meanwhile, or at an
 * instant of set-up (testing.h). What the header leaves open is in `excused`. */
#include "schedules.h"

#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "slot.h"

#include "fixture.h"
#include "random.h"
#include "schedule.h"

enum {
    WINDOW = 10, /* ticks */
    THREADS = 3,
    CALLS = 4, /* of all threads */
    ORDERS = 128,
    STEPS = 1000, /* of all threads: more is waiting for one that does not go on */
    CHOICES = STEPS + 16,
    SEEN_MAX = 1 << 14,
};

#define EPOCH            UINT64_C(1700000000000000000) /* a multiple of the window */
#define TICK             STINT_TICK_NS
#define TIME             (EPOCH + 2 * TICK) /* of a call that is neither late nor ahead */
#define OVERRIDDEN_UNTIL (TIME + 3 * WINDOW * TICK)

enum { KEY = 77, OTHER = 78, HOLDER = 100 };

/* ---- Policies -------------------------------------------------------------------------------- */

#define RATE .limit = 3, .window = WINDOW * TICK
static const struct stint_policy policies[] = {
    {.name = "plain", RATE},
    {.name = "counts refused", RATE, .flags = STINT_COUNT_REFUSED},
    {.name = "shadow", RATE, .flags = STINT_SHADOW},
    {.name = "near", RATE, .near_limit = 50},
    {.name = "carries", RATE, .capacity = 5},
    {.name = "reserves", RATE, .max_reserved = 2},
    {.name = "smooth", RATE, .flags = STINT_SMOOTH},
    {.name = "first", RATE, .flags = STINT_START_FIRST},
    {.name = "per key", RATE, .flags = STINT_START_PER_KEY},
    {.name = "month", .limit = 3, .calendar = STINT_CALENDAR_MONTH},
    {.name = "striped", .limit = 6, .window = WINDOW * TICK, .stripes = 2},
    {.name = "in flight", RATE, .flags = STINT_IN_FLIGHT},
    {.name = "overrides", RATE, .flags = STINT_OVERRIDES},
    {.name = "bans", RATE, .flags = STINT_OVERRIDES, .ban_after = 1, .ban = 2 * WINDOW * TICK},
    {.name = "second", RATE},
    {.name = "holder", .limit = 10, .window = 1000 * WINDOW * TICK},
    {.name = "brief", .limit = 10, .window = TICK},
};
enum { STRIPED = 10, BANS = 13, THE_SECOND, HOLDS, BRIEF, POLICIES };
const unsigned schedule_policies = BANS + 1;
static uint32_t ids[POLICIES]; /* a policy with overrides takes two */

/* ---- Calls ----------------------------------------------------------------------------------- */

enum op {
    TAKE,
    DECIDE,
    ALL,
    REFUND,
    RESET,
    CHANGE,
    REMOVE,
    REPLACE,
    OTHER_TAKE,
    OVERRIDE,
    OVERRIDE_CLEAR,
    OVERRIDE_GET
};

static const struct kind {
    const char *name;
    enum op op;
    uint32_t cost, limit, flags;
    int ticks; /* its now, from TIME */
} kinds[] = {
    {"take", TAKE, 1, 0, 0, 0},
    {"take 2", DECIDE, 2, 0, 0, 0},
    {"take up to 3", DECIDE, 3, 0, STINT_PARTIAL, 0},
    {"take 2 or drain", DECIDE, 2, 0, STINT_DRAIN, 0},
    {"take by a limit of 2", DECIDE, 1, 2, 0, 0},
    {"take by a limit of 5", DECIDE, 1, 5, 0, 0},
    {"take ahead", DECIDE, 2, 0, STINT_RESERVE, 0},
    {"look", DECIDE, 1, 0, STINT_PEEK, 0},
    {"charge 2", DECIDE, 2, 0, STINT_CHARGE, 0},
    {"look before a charge", DECIDE, 1, 0, STINT_PEEK | STINT_CHARGE, 0},
    {"take in the next window", TAKE, 1, 0, 0, WINDOW},
    {"take 2 in the next window", DECIDE, 2, 0, 0, WINDOW},
    {"late take", TAKE, 1, 0, 0, -3},
    {"late take 2", DECIDE, 2, 0, 0, -3},
    {"refund 1", REFUND, 1, 0, 0, 0},
    {"refund 3", REFUND, 3, 0, 0, 0},
    {"reset", RESET, 0, 0, 0, 0},
    {"lower the limit", CHANGE, 0, 2, 0, 0},
    {"raise the limit", CHANGE, 0, 5, 0, 0},
    {"another key's take", OTHER_TAKE, 1, 0, 0, 0},
    {"another key's take in the next window", OTHER_TAKE, 1, 0, 0, WINDOW},
    {"remove", REMOVE, 0, 0, 0, 0},
    {"replace", REPLACE, 0, 0, 0, 0},
    {"all of two", ALL, 1, 0, 0, 0},
    {"override of 2", OVERRIDE, 0, 2, 0, 0},
    {"override of 5", OVERRIDE, 0, 5, 0, 0},
    {"override of 0", OVERRIDE, 0, 0, 0, 0},
    {"clear the override", OVERRIDE_CLEAR, 0, 0, 0, 0},
    {"tell the override", OVERRIDE_GET, 0, 0, 0, 0},
};
const unsigned schedule_kinds = sizeof(kinds) / sizeof(kinds[0]);

struct call {
    const struct kind *kind;
    struct stint_verdict verdicts[2];
    int64_t result;
    unsigned began, ended; /* in the order of all beginnings and ends; 0: not yet */
};

/* What was answered: the calls, and what came after all. */
struct answers {
    unsigned order[CALLS];
    unsigned raised, raised_by; /* before which call of the order the watermark was, by whose now;
                                 * CALLS: it was not */
    bool others_left_out;       /* calls of another key were not made */
    struct call calls[CALLS];
    struct stint_verdict look, take;
};

static struct {
    struct stint_limiter *limiter;
    struct scene scene;
    unsigned calls;
    uint64_t time;   /* of the clock, and of what comes after all */
    uint64_t window; /* the key's, at TIME: of refunds */
    bool sets_up;    /* a call of the scene is of set-up */
    uint64_t schedules;
    bool left; /* before its end */
    bool leaves_others_out;
    uint64_t most; /* that is granted in any order, or if a limit came later than its call */
    struct answers now, orders[ORDERS];
    unsigned order_count;
    unsigned events;
    const char *broken;
    struct slot before[LINE_SLOTS];
    struct schedules_totals *totals;
} s;

static uint64_t schedules_clock(void) {
    return s.time;
}

static struct stint_policy policy_of(unsigned id) {
    struct stint_policy policy = policies[id];
    policy.size = sizeof(policy);
    return policy;
}

static bool of_overrides(enum op op) {
    return op == OVERRIDE || op == OVERRIDE_CLEAR || op == OVERRIDE_GET;
}

static bool has_overrides(void) {
    return (policies[s.scene.policy].flags & STINT_OVERRIDES) != 0;
}

static bool of_set_up(enum op op) {
    return op == CHANGE || op == REMOVE || op == REPLACE;
}

bool schedules_sets_up(const struct scene *scene) {
    for (unsigned thread = 0; thread < scene->threads; thread++)
        for (unsigned i = 0; i < scene->calls; i++)
            if (of_set_up(kinds[scene->kinds[thread][i]].op))
                return true;
    return false;
}

static void change(struct call *call, uint32_t limit) {
    struct stint_policy policy = policy_of(s.scene.policy);
    policy.limit = limit;
    policy.capacity = policy.capacity != 0 ? limit + 2 : 0;
    call->result = stint_policy_change(s.limiter, ids[s.scene.policy], &policy);
}

static void replace(struct call *call) {
    char text[64];
    (void)snprintf(text, sizeof(text), "4/200ms name=\"%s\"", policies[s.scene.policy].name);
    call->result = stint_policies_apply(s.limiter, text, 0, NULL, NULL, NULL);
}

static uint64_t now_of(const struct kind *kind) {
    return TIME + (uint64_t)(kind->ticks * (int64_t)TICK);
}

static void make_call(struct call *call) {
    const struct kind *kind = call->kind;
    const uint32_t id = ids[s.scene.policy];
    const uint64_t now = now_of(kind);
    struct stint_request requests[2] = {{KEY, id, kind->cost, kind->limit, kind->flags, 0},
                                        {KEY, ids[THE_SECOND], kind->cost, 0, 0, 0}};

    call->began = ++s.events;
    switch (kind->op) {
    case TAKE:
        call->result = stint_take(s.limiter, id, KEY, kind->cost, now, &call->verdicts[0]);
        break;
    case DECIDE:
        call->result = stint_decide(s.limiter, &requests[0], now, &call->verdicts[0]);
        break;
    case ALL:
        call->result = stint_decide_all(s.limiter, requests, 2, now, call->verdicts);
        break;
    case REFUND:
        call->result = stint_refund(s.limiter, id, KEY, kind->cost, s.window);
        break;
    case RESET:
        stint_reset(s.limiter, id, KEY);
        break;
    case CHANGE:
        change(call, kind->limit);
        break;
    case REMOVE:
        call->result = stint_policy_remove(s.limiter, id);
        break;
    case REPLACE:
        replace(call);
        break;
    case OTHER_TAKE:
        call->result = stint_take(s.limiter, id, OTHER, kind->cost, now, &call->verdicts[0]);
        break;
    case OVERRIDE:
        call->result = stint_override(s.limiter, id, KEY, kind->limit, OVERRIDDEN_UNTIL);
        break;
    case OVERRIDE_CLEAR:
        call->result = stint_override_clear(s.limiter, id, KEY);
        break;
    case OVERRIDE_GET: {
        uint32_t limit = 0;
        call->result = stint_override_get(s.limiter, id, KEY, &limit, &call->verdicts[0].window);
        call->verdicts[0].capacity = limit;
        break;
    }
    }
    call->ended = ++s.events;
}

/* ---- What was there before ------------------------------------------------------------------- */

static bool take(uint32_t policy, stint_key key, uint32_t cost, uint64_t now) {
    return stint_take(s.limiter, ids[policy], key, cost, now, NULL);
}

static void others(uint32_t policy, unsigned count, uint64_t now) {
    for (stint_key key = HOLDER; key < HOLDER + count; key++)
        (void)take(policy, key, 1, now);
}

static void charge(uint32_t policy, uint32_t cost) {
    for (; cost > 0; cost--)
        (void)take(policy, KEY, 1, TIME);
}

static void never_used(void) {}

/* Three slots are others', live; the last one's window is over. */
static void one_is_over(void) {
    (void)take(BRIEF, HOLDER + 10, 1, TIME - 5 * TICK);
    others(HOLDS, 3, TIME);
}

static void all_are_over(void) {
    others(BRIEF, 4, TIME - 5 * TICK);
}

static void all_are_live(void) {
    others(HOLDS, 4, TIME);
}

static void one_used(void) {
    charge(s.scene.policy, 1);
}

static void one_left(void) {
    charge(s.scene.policy, s.scene.policy == STRIPED ? 5 : 2);
}

static void none_left(void) {
    charge(s.scene.policy, s.scene.policy == STRIPED ? 6 : 3);
}

static void refused(void) {
    charge(s.scene.policy, s.scene.policy == STRIPED ? 7 : 4);
}

static void window_over(void) {
    for (unsigned i = 0; i < 2; i++)
        (void)take(s.scene.policy, KEY, 1, TIME - WINDOW * TICK);
}

/* The key has used up the second policy of a group. */
static void second_is_used(void) {
    charge(THE_SECOND, 3);
    charge(s.scene.policy, 1);
}

/* By policies without overrides it is a token used. */
static void overridden(void) {
    if (has_overrides() &&
        stint_override(s.limiter, ids[s.scene.policy], KEY, 2, OVERRIDDEN_UNTIL) != 0)
        abort();
    charge(s.scene.policy, 1);
}

static const struct {
    const char *name;
    void (*make)(void);
} states[] = {
    {"a new table", never_used},
    {"a table whose last slot falls free", one_is_over},
    {"a table whose slots are all over", all_are_over},
    {"a full table", all_are_live},
    {"one token used", one_used},
    {"one token left", one_left},
    {"none left", none_left},
    {"a key that was refused", refused},
    {"a key whose window is over", window_over},
    {"a second policy that is used up", second_is_used},
    {"a key with an override", overridden},
};
const unsigned schedule_states = sizeof(states) / sizeof(states[0]);

/* Two calls of set-up cannot: one waits for the other's lock. And where there are more calls
 * than two, another key's may take the slot of a window that is over by the time of one of them,
 * or leave its own to it: what late calls then begin is in no order. */
bool schedules_playable(const struct scene *scene) {
    unsigned set_ups = 0;
    bool others = false, ahead = false;
    for (unsigned thread = 0; thread < scene->threads; thread++) {
        for (unsigned i = 0; i < scene->calls; i++) {
            const struct kind *kind = &kinds[scene->kinds[thread][i]];
            set_ups += of_set_up(kind->op);
            if (of_overrides(kind->op) && (policies[scene->policy].flags & STINT_OVERRIDES) == 0)
                return false;
            others |= kind->op == OTHER_TAKE;
            ahead |= kind->ticks > 0;
        }
    }
    if (states[scene->state].make == overridden &&
        (policies[scene->policy].flags & STINT_OVERRIDES) == 0)
        return false;
    return set_ups <= 1 && (scene->threads * scene->calls == 2 || !others || !ahead);
}

/* The bytes that calls may write, but for counters: they are none of what is checked. */
static struct {
    char *begin;
    size_t size;
    char *bytes[2]; /* as of a new table, and as the scene begins */
} parts[3];
enum saved { NEW, SCENE };

static void save(enum saved as) {
    for (unsigned i = 0; i < 3; i++)
        memcpy(parts[i].bytes[as], parts[i].begin, parts[i].size);
}

static void restore(enum saved as) {
    for (unsigned i = 0; i < 3; i++)
        memcpy(parts[i].begin, parts[i].bytes[as], parts[i].size);
}

static void part(unsigned i, void *begin, size_t size) {
    parts[i].begin = begin;
    parts[i].size = size;
    for (unsigned as = NEW; as <= SCENE; as++)
        if ((parts[i].bytes[as] = malloc(size)) == NULL)
            abort();
}

void schedules_begin(void) {
    struct stint_options options = STINT_OPTIONS_INIT;
    options.max_keys = 2;                /* one line of four slots */
    options.max_policies = POLICIES + 3; /* two have overrides, one is replaced */
    options.clock = schedules_clock;
    options.secret = test_secret();
    s.time = TIME;
    if (stint_open(&options, &s.limiter) != 0)
        abort();
    for (unsigned i = 0; i < POLICIES; i++) {
        struct stint_policy policy = policy_of(i);
        if (stint_policy_add(s.limiter, &policy, &ids[i]) != 0)
            abort();
    }
    char *start = s.limiter->memory.start, *counters = (char *)s.limiter->counters;
    part(0, start, (size_t)(counters - start));
    part(1, s.limiter->table.shards,
         (size_t)((char *)(s.limiter->table.lines + 1) - (char *)s.limiter->table.shards));
    part(2, s.limiter->names, malloc_usable_size(s.limiter->names));
    save(NEW);
}

void schedules_end(void) {
    for (unsigned i = 0; i < 3; i++)
        for (unsigned as = NEW; as <= SCENE; as++)
            free(parts[i].bytes[as]);
    stint_close(s.limiter);
}

/* ---- One play -------------------------------------------------------------------------------- */

static struct slot *line(void) {
    return s.limiter->table.lines[0].slots;
}

static bool committed(const struct slot *slot) {
    return slot->tag != 0 && slot->tag != table_tombstone(&s.limiter->table) &&
           !state_pending(slot->state);
}

static bool has(enum op op) {
    for (unsigned i = 0; i < s.calls; i++)
        if (s.now.calls[i].kind->op == op)
            return true;
    return false;
}

static bool is_override(uint64_t tag) {
    const struct policy *policy =
        tag == table_tombstone(&s.limiter->table) ? NULL : limiter_tag_policy(s.limiter, tag);
    return policy != NULL && (policy_traits(policy) & TRAIT_COMPANION) != 0;
}

/* The invariant of slot.h that this slot breaks, which was another. */
static const char *broken_by(const struct slot *now, const struct slot *before) {
    const uint64_t tombstone = table_tombstone(&s.limiter->table);
    const uint64_t end = state_id(now->state), end_before = state_id(before->state);

    if (now->tag == 0 && before->tag != 0)
        return "I5: a used slot has become never-used";
    if (now->tag == tombstone && state_pending(now->state))
        return "a tombstone is pending";
    if (now->tag == tombstone && (has(REMOVE) || has(REPLACE)))
        return NULL; /* swept: slots of policies that are gone, the end too */
    if (has_overrides() && is_override(before->tag))
        return NULL; /* lifted, or set anew: no count goes by its end */
    if (before->state != 0 && end_of(end, (tick_t)end_before) < (tick_t)end_before)
        return "I1: the end of a slot has fallen";
    if (now->tag != before->tag && end == end_before && now->tag != tombstone)
        return "I1: a slot has changed hands within its window";
    if (committed(now) && policies[s.scene.policy].calendar == 0) {
        const struct policy *policy = limiter_tag_policy(s.limiter, now->tag);
        if (end_of(end, tick_of(s.time)) - policy->length > (tick_t)s.limiter->header->latest_begin)
            return "I7: a slot's window begins later than was told";
    }
    for (unsigned i = 0; i < LINE_SLOTS; i++)
        if (&line()[i] != now && committed(now) && committed(&line()[i]) &&
            line()[i].tag == now->tag)
            return "I3: a key has two committed slots";
    return NULL;
}

/* The tables that were seen in the scene, by hash; not all if there are very many. */
static uint64_t seen[SEEN_MAX];
static unsigned seen_count;

static void count_state(void) {
    struct random mix = {0};
    for (unsigned i = 0; i < LINE_SLOTS; i++) {
        mix.state ^= s.before[i].tag;
        mix.state = random_next(&mix) ^ s.before[i].state;
        mix.state = random_next(&mix);
    }
    const uint64_t hash = mix.state | 1;
    unsigned at = (unsigned)(hash >> 32) % SEEN_MAX;
    while (seen[at] != 0 && seen[at] != hash)
        at = (at + 1) % SEEN_MAX;
    if (seen[at] == hash || seen_count >= SEEN_MAX / 4 * 3)
        return;
    seen[at] = hash;
    seen_count++;
    s.totals->states++;
}

static void watch(void) {
    bool changed = false;
    for (unsigned i = 0; i < LINE_SLOTS; i++) {
        const struct slot *now = &line()[i];
        if (now->tag == s.before[i].tag && now->state == s.before[i].state)
            continue;
        if (s.broken == NULL)
            s.broken = broken_by(now, &s.before[i]);
        s.before[i] = *now;
        changed = true;
    }
    if (changed)
        count_state();
}

/* Whether another call of the scene may write the word. */
static bool is_written(const void *word) {
    const char *at = word, *begin = parts[0].begin;
    const struct header *header = s.limiter->header;

    if (at >= parts[1].begin && at < parts[1].begin + parts[1].size)
        return true;
    if (at < begin || at >= begin + parts[0].size || at == (const char *)&header->lock)
        return false;
    if ((const uint64_t *)word >= header->lane_owners &&
        (const uint64_t *)word < header->lane_owners + LANES_MAX)
        return false;
    if (s.sets_up || word == &header->latest_begin)
        return true;
    if (at < (const char *)s.limiter->policies || at >= (const char *)s.limiter->records)
        return false;
    size_t field = (size_t)(at - (const char *)s.limiter->policies) % sizeof(struct policy);
    return field == offsetof(struct policy, current_end) ||
           field == offsetof(struct policy, largest);
}

static bool running;

static void step(const void *word) {
    if (!running || !is_written(word))
        return;
    running = false; /* a look is no step */
    watch();
    running = true;
    s.totals->steps++;
    schedule_step();
}

static void step_of_set_up(enum stint_test_instant instant) {
    if (running && instant == INSTANT_SET_UP)
        schedule_step();
}

static void thread_body(unsigned thread) {
    for (unsigned i = 0; i < s.scene.calls; i++)
        make_call(&s.now.calls[thread * s.scene.calls + i]);
}

static void thread_switched(unsigned thread) {
    stint_thread_number = thread + 1;
}

static void begin_play(void) {
    restore(SCENE);
    memcpy(s.before, line(), sizeof(s.before));
    memset(&s.now, 0, sizeof(s.now));
    for (unsigned i = 0; i < s.calls; i++)
        s.now.calls[i].kind = &kinds[s.scene.kinds[i / s.scene.calls][i % s.scene.calls]];
    s.events = 0;
    s.broken = NULL;
}

static void after_all(void) {
    struct stint_request look = {KEY, ids[s.scene.policy], 1, 0, STINT_PEEK, 0};
    (void)stint_decide(s.limiter, &look, s.time, &s.now.look);
    (void)stint_take(s.limiter, ids[s.scene.policy], KEY, 1, s.time, &s.now.take);
}

/* ---- One call after the other ---------------------------------------------------------------- */

static bool counts_granted(const struct kind *kind) {
    return kind->op != REFUND && kind->op != OTHER_TAKE && !of_overrides(kind->op) &&
           (kind->flags & STINT_CHARGE) == 0;
}

/* A is of keys that have a slot. */
static uint64_t granted_now(uint32_t without) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < s.calls; i++)
        if (counts_granted(s.now.calls[i].kind) &&
            (s.now.calls[i].verdicts[0].flags & without) == 0)
            sum += s.now.calls[i].verdicts[0].granted;
    return sum;
}

static void note_granted(void) {
    const uint64_t granted = granted_now(0);
    s.most = granted > s.most ? granted : s.most;
}

/* A request under way may have read the limit of before, and count after later ones, or be
 * refused by it; likewise by a ban. What is granted then is no more than by some of the calls
 * without the others. `left_out`: bits of calls. */
static void play_left_out(const unsigned order[CALLS], unsigned left_out) {
    const uint32_t id = ids[s.scene.policy];
    uint32_t limit;

    begin_play();
    for (unsigned i = 0; i < s.calls; i++) {
        if ((left_out >> order[i] & 1) != 0)
            continue;
        if (has_overrides() && stint_override_get(s.limiter, id, KEY, &limit, NULL) == 0 &&
            limit == 0)
            (void)stint_override_clear(s.limiter, id, KEY);
        stint_thread_number = 1 + order[i] / s.scene.calls;
        make_call(&s.now.calls[order[i]]);
    }
    note_granted();
}

static void play_without_limits(const unsigned order[CALLS]) {
    const unsigned limits = (1U << s.calls) - 1;
    for (unsigned left_out = limits;; left_out = (left_out - 1) & limits) {
        play_left_out(order, left_out);
        if (left_out == 0)
            return;
    }
}

static void play_in_order(const unsigned order[CALLS], unsigned raised, unsigned raised_by) {
    begin_play();
    for (unsigned i = 0; i < s.calls; i++) {
        if (i == raised)
            atomic_raise(&s.limiter->table.shards->watermark,
                         (uint64_t)tick_of(now_of(s.now.calls[raised_by].kind)));
        stint_thread_number = 1 + order[i] / s.scene.calls;
        if (!s.leaves_others_out || s.now.calls[order[i]].kind->op != OTHER_TAKE)
            make_call(&s.now.calls[order[i]]);
    }
    stint_thread_number = 1;
    note_granted();
    s.now.others_left_out = s.leaves_others_out;
    after_all();
    memcpy(s.now.order, order, sizeof(s.now.order));
    s.now.raised = raised;
    s.now.raised_by = raised_by;
    if (s.order_count == ORDERS)
        abort();
    s.orders[s.order_count++] = s.now;
}

/* A key without a slot may begin in any window from that of the call's time to that of the
 * latest time of a call that had begun: as if the watermark had been raised before it. */
static void play_raised(const unsigned order[CALLS]) {
    play_in_order(order, CALLS, 0);
    for (unsigned by = 0; by < s.calls; by++)
        for (unsigned at = 0; at < s.calls && order[at] != by; at++)
            if (s.now.calls[by].kind->ticks > s.now.calls[order[at]].kind->ticks)
                play_in_order(order, at, by);
}

static void play_orders(unsigned order[CALLS], unsigned length) {
    if (length == s.calls || length == CALLS) {
        play_raised(order);
        play_without_limits(order);
        if (s.calls > 2 && has(OTHER_TAKE)) {
            s.leaves_others_out = true;
            play_in_order(order, CALLS, 0);
            s.leaves_others_out = false;
        }
        return;
    }
    for (unsigned thread = 0; thread < s.scene.threads; thread++) {
        unsigned made = 0;
        for (unsigned i = 0; i < length; i++)
            made += order[i] / s.scene.calls == thread;
        if (made == s.scene.calls)
            continue;
        order[length] = thread * s.scene.calls + made;
        play_orders(order, length + 1);
    }
}

/* ---- Judging --------------------------------------------------------------------------------- */

static bool same_call(const struct call *one, const struct call *other) {
    return one->result == other->result && same_verdict(&one->verdicts[0], &other->verdicts[0]) &&
           same_verdict(&one->verdicts[1], &other->verdicts[1]);
}

/* Whether another key found the table full, be it for a claim of a call under way. */
static bool other_untracked(void) {
    for (unsigned i = 0; i < s.calls; i++)
        if (s.now.calls[i].kind->op == OTHER_TAKE &&
            (s.now.calls[i].verdicts[0].flags & STINT_UNTRACKED) != 0)
            return true;
    return false;
}

/* Whether the play may have been in that order: nothing that had ended comes after what began
 * later. Among more calls than two keys are looked at one by one (same_call_but_used). */
static bool agrees(const struct answers *answers) {
    const unsigned *order = answers->order;
    if (answers->others_left_out && !other_untracked())
        return false;
    if (answers->raised != CALLS &&
        s.now.calls[answers->raised_by].began > s.now.calls[order[answers->raised]].ended)
        return false;
    for (unsigned i = 0; i < s.calls; i++)
        for (unsigned j = i + 1; j < s.calls; j++)
            if (s.now.calls[order[j]].ended < s.now.calls[order[i]].began &&
                !(s.calls > 2 && (s.now.calls[order[i]].kind->op == OTHER_TAKE ||
                                  s.now.calls[order[j]].kind->op == OTHER_TAKE)))
                return false;
    return true;
}

static bool linearizable(bool (*same)(const struct call *, const struct call *),
                         bool (*same_after)(const struct stint_verdict *,
                                            const struct stint_verdict *)) {
    for (unsigned o = 0; o < s.order_count; o++) {
        const struct answers *expected = &s.orders[o];
        bool all = agrees(expected) && same_after(&s.now.look, &expected->look) &&
                   same_after(&s.now.take, &expected->take);
        for (unsigned i = 0; i < s.calls && all; i++)
            all = same(&s.now.calls[i], &expected->calls[i]);
        if (all)
            return true;
    }
    return false;
}

/* What stint.h leaves open. A request that is refused while others race may have counted a token
 * for an instant, which `used` shows until it is cut off; a raise of the largest limit may find it
 * counted. A group is not one operation, nor are a refusal and its ban, a striped key is no single
 * counter, and who is in the middle of a decision while its policy goes may be without a slot. Of
 * these only A is asked: no more is granted than in some order. */
static bool granted_within(void) {
    uint64_t given_back = 0;
    for (unsigned i = 0; i < s.calls; i++)
        if (s.now.calls[i].kind->op == REFUND)
            given_back += (uint64_t)s.now.calls[i].result;
    return granted_now(STINT_UNTRACKED) <= s.most + given_back;
}

/* The same but for what refused requests have added for an instant; and of months, whose slots
 * may seem to be far ahead to a thread that has seen another's, for the times: it then asks the
 * clock. */
static bool same_but_used(const struct stint_verdict *one, const struct stint_verdict *other) {
    struct stint_verdict a = *one, b = *other;
    if (a.used > a.capacity && b.used >= b.capacity)
        a.used = b.used;
    if (policies[s.scene.policy].calendar != 0) {
        a.reset_after = b.reset_after;
        a.retry_after = b.retry_after;
    }
    return same_verdict(&a, &b);
}

/* Among more calls than two keys are looked at one by one: whether another one finds the table
 * full is not compared. */
static bool same_call_but_used(const struct call *one, const struct call *other) {
    return (one->kind->op == OTHER_TAKE && s.calls > 2) ||
           (one->result == other->result && same_but_used(&one->verdicts[0], &other->verdicts[0]) &&
            same_but_used(&one->verdicts[1], &other->verdicts[1]));
}

/* Whether a call raises the largest limit that the policy ever had. Refused requests that were
 * counted above the old one are then cut off before, or stay. */
static bool raises_largest(void) {
    for (unsigned i = 0; i < s.calls; i++) {
        const struct kind *kind = s.now.calls[i].kind;
        if (kind->limit > 3 || (kind->flags & STINT_CHARGE) != 0 || kind->op == REPLACE)
            return true;
    }
    return false;
}

/* Whether an override and a decision need not be in one order: it is read first, and counted in
 * the end; its slot may be that of a window which is over for all but who is late, or the last. */
static bool overrides_apart(void) {
    if (!has(OVERRIDE) && !has(OVERRIDE_CLEAR))
        return false;
    for (unsigned i = 0; i < s.calls; i++)
        if (s.calls > 2 || s.now.calls[i].kind->ticks < 0 || s.now.calls[i].result == -ENOSPC ||
            (s.now.calls[i].verdicts[0].flags & STINT_UNTRACKED) != 0)
            return true;
    return false;
}

static bool excused(void) {
    if (linearizable(same_call_but_used, same_but_used))
        return true;
    return (has(ALL) || has(CHANGE) || has(REMOVE) || has(REPLACE) || s.scene.policy == STRIPED ||
            s.scene.policy == BANS || raises_largest() || overrides_apart()) &&
           granted_within();
}

static const char *judge_play(void) {
    if (s.broken != NULL)
        return s.broken;
    if (linearizable(same_call, same_verdict))
        return NULL;
    if (!excused())
        return "no order of these calls gives these answers";
    s.totals->excused++;
    return NULL;
}

/* ---- All plays ------------------------------------------------------------------------------- */

/* A play is what was chosen at each instant at which there was a choice: 0 is to go on, or of those
 * that may begin the first. */
static struct {
    uint8_t chosen[CHOICES];
    unsigned given; /* so many are chosen beforehand, all others are 0 */
    unsigned made;
    uint8_t options[CHOICES];
    bool free[CHOICES]; /* nobody was going on: the choice preempts nobody */
} path;

static unsigned choose(unsigned count, unsigned now) {
    if (count == 1)
        return 0;
    if (path.made == CHOICES)
        return now == count ? 0 : now;
    const unsigned at = path.made++;
    const unsigned chosen = at < path.given ? path.chosen[at] : 0;
    path.chosen[at] = (uint8_t)chosen;
    path.options[at] = (uint8_t)count;
    path.free[at] = now == count;
    if (now == count)
        return chosen;
    return chosen == 0 ? now : chosen <= now ? chosen - 1 : chosen;
}

static const char *play_once(void) {
    struct schedule schedule = {
        .threads = s.scene.threads,
        .body = thread_body,
        .switched = thread_switched,
        .most_steps = STEPS,
        .choose = choose,
    };
    begin_play();
    path.made = 0;
    running = true;
    schedule_run(&schedule);
    running = false;
    stint_thread_number = 1;
    watch();
    s.totals->schedules++;
    if (schedule.stuck)
        return "E: does not end";
    after_all();
    return judge_play();
}

/* Plays all that begin with the first `given` choices. */
static const char *play_all(unsigned given, unsigned preemptions) {
    uint8_t options[CHOICES];
    bool free[CHOICES];

    if (s.schedules++ == s.totals->most && s.totals->most != 0) {
        s.left = true;
        return NULL;
    }
    path.given = given;
    const char *broken = play_once();
    const unsigned made = path.made;
    memcpy(options, path.options, made);
    memcpy(free, path.free, made);
    for (unsigned at = given; at < made && broken == NULL && !s.left; at++) {
        if (!free[at] && preemptions == 0)
            continue;
        for (unsigned other = 1; other < options[at] && broken == NULL; other++) {
            memset(path.chosen + given, 0, at - given);
            path.chosen[at] = (uint8_t)other;
            broken = play_all(at + 1, preemptions - (free[at] ? 0 : 1));
        }
    }
    return broken;
}

static void print_answers(FILE *report, const char *what, const struct answers *answers) {
    fprintf(report, "  %s\n", what);
    for (unsigned i = 0; i < s.calls; i++) {
        const struct call *call = &answers->calls[i];
        const struct stint_verdict *v = &call->verdicts[0];
        fprintf(report,
                "    thread %u, %s [%u, %u]: %" PRId64 ", flags %#" PRIx32 ", used %" PRIu32
                ", granted %" PRIu32 ", window %+" PRId64 ", retry %" PRIu64 "\n",
                i / s.scene.calls, kinds[s.scene.kinds[i / s.scene.calls][i % s.scene.calls]].name,
                call->began, call->ended, call->result, v->flags, v->used, v->granted,
                v->window == 0 ? 0 : (int64_t)(v->window - EPOCH) / (int64_t)TICK, v->retry_after);
    }
    const struct stint_verdict *after[] = {&answers->look, &answers->take};
    for (unsigned i = 0; i < 2; i++)
        fprintf(report, "    %s: %d, flags %#" PRIx32 ", used %" PRIu32 ", window %+" PRId64 "\n",
                i == 0 ? "look" : "take", after[i]->allowed, after[i]->flags, after[i]->used,
                after[i]->window == 0 ? 0 : (int64_t)(after[i]->window - EPOCH) / (int64_t)TICK);
}

void schedules_tell(const struct scene *scene, char *text, size_t size) {
    int length = snprintf(text, size, "policy %s, %s", policies[scene->policy].name,
                          states[scene->state].name);
    for (unsigned thread = 0; thread < scene->threads; thread++)
        for (unsigned i = 0; i < scene->calls && (size_t)length < size; i++)
            length += snprintf(text + length, size - (size_t)length, "%s %s",
                               i > 0         ? ", then"
                               : thread == 0 ? ":"
                                             : " |",
                               kinds[scene->kinds[thread][i]].name);
}

static void report_play(FILE *report, const char *broken) {
    char text[512];
    schedules_tell(&s.scene, text, sizeof(text));
    fprintf(report, "%s: %s\n  threads changed at choices", broken, text);
    for (unsigned i = 0; i < path.made; i++)
        if (path.chosen[i] != 0)
            fprintf(report, " %u%s", i, path.free[i] ? " (free)" : "");
    fprintf(report, " of %u\n", path.made);
    print_answers(report, "answers", &s.now);
    for (unsigned o = 0; o < s.order_count; o++)
        print_answers(report,
                      agrees(&s.orders[o]) ? "one after the other" : "in an order that was not",
                      &s.orders[o]);
}

const char *schedules_play(const struct scene *scene, unsigned preemptions, uint64_t removed,
                           struct schedules_totals *totals, FILE *report) {
    s.scene = *scene;
    s.calls = scene->threads * scene->calls;
    s.totals = totals;
    s.time = TIME;
    s.schedules = 0;
    s.left = false;
    s.sets_up = schedules_sets_up(scene);
    unsigned last = 0;
    for (unsigned thread = 0; thread < scene->threads; thread++) {
        for (unsigned i = 0; i < scene->calls; i++) {
            const struct kind *kind = &kinds[scene->kinds[thread][i]];
            last = kind->ticks > (int)last ? (unsigned)kind->ticks : last;
        }
    }
    stint_test_removed = 0;
    restore(NEW);
    stint_thread_number = 1;
    states[scene->state].make();
    struct stint_request look = {KEY, ids[scene->policy], 1, 0, STINT_PEEK, 0};
    struct stint_verdict verdict;
    (void)stint_decide(s.limiter, &look, TIME, &verdict);
    s.window = verdict.window;
    s.time = TIME + last * TICK;
    save(SCENE);
    s.order_count = 0;
    s.most = 0;
    memset(seen, 0, sizeof(seen));
    seen_count = 0;
    unsigned order[CALLS] = {0};
    play_orders(order, 0);

    stint_test_removed = removed;
    stint_test_step = step;
    stint_test_hook = step_of_set_up;
    const char *broken = play_all(0, preemptions);
    stint_test_step = NULL;
    stint_test_hook = NULL;
    stint_test_removed = 0;
    totals->scenes++;
    totals->left += s.left;
    if (broken != NULL && report != NULL)
        report_play(report, broken);
    restore(SCENE);
    return broken;
}
