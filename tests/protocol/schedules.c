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
 * src/slot.h are checked wherever there is a choice. What the header leaves open is in `excused`.
 *
 * Where a preemption may be: before an atomic operation on a contended word (two threads of the
 * scene have operations on it, and one writes it), at an instant of set-up (testing.h), and between
 * two calls of a thread. Any other operation commutes with what others do. Had its thread been
 * preempted before it, the operation might come before the preemption as well: the same answers,
 * and no fewer calls that end before another begins. Which words are contended is learned on the
 * way; when one more turns out to be, the scene is searched anew. In scenes with a call of set-up,
 * which writes words that others read without a step, every operation of the others counts. Its
 * own thread does parts, each from one operation to the next. Others notice a part whose operation
 * is on a contended word, or that writes any other word (which is looked for once, as a thread
 * that has read the same does the same). All parts between two such commute with what others do, so
 * it is enough that the thread may be preempted after each part that is noticed.
 *
 * What a state is, which need not be played from twice (schedule_search.c): the words that
 * decisions write; for each thread a hash of all that it read at its choices, as a thread whose
 * time and number are fixed does the same if it reads the same; what the call of set-up had written
 * when the thread last went on; and which calls had ended when each began, which the judge asks.
 * Counters, the owners of lanes and the lock are left out: no answer depends on them. Decisions are
 * seen to write no other word of the mapping. The test test_nothing_is_lost plays scenes without
 * memory, and with all operations, too: as many schedules, the same answers and the same tables. */
#include "schedules.h"

#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "slot.h"

#include "fixture.h"
#include "schedule_search.h"
#include "watch.h"

enum {
    WINDOW = 10, /* ticks */
    THREADS = 3,
    CALLS = 4, /* of all threads */
    ORDERS = 128,
    STEPS = 1000, /* of all threads: more is waiting for one that does not go on */
    WORDS_MAX = 4096,
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
    unsigned after;        /* bits of the calls that had ended when it began */
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
    bool sets_up;    /* a call of the scene is of set-up, one of this thread: */
    unsigned set_up_by;
    bool leaves_others_out;
    uint64_t most; /* that is granted in any order, or if a limit came later than its call */
    struct answers now, orders[ORDERS];
    unsigned order_count;
    unsigned events, steps;
    const char *broken;
    struct watch watch;
    struct schedules_totals *totals;
} s;

static uint64_t mixed(uint64_t hash, uint64_t with) {
    __extension__ typedef unsigned __int128 wide;
    const wide product =
        (wide)(hash ^ UINT64_C(0x9E3779B97F4A7C15)) * (with ^ UINT64_C(0xD1B54A32D192ED03));
    return (uint64_t)product ^ (uint64_t)(product >> 64) ^ hash;
}

/* Different hashes, of which none is 0. */
struct hashes {
    uint64_t *all;
    uint64_t count, space; /* 0, or a power of 2 */
};

/* Where it is, or would be. */
static uint64_t *hashes_place(const struct hashes *set, uint64_t hash) {
    uint64_t at = hash & (set->space - 1);
    while (set->all[at] != 0 && set->all[at] != hash)
        at = (at + 1) & (set->space - 1);
    return &set->all[at];
}

static bool hashes_add(struct hashes *set, uint64_t hash) {
    if (set->count * 2 >= set->space) {
        struct hashes more = {.space = set->space == 0 ? 64 : set->space * 2};
        if ((more.all = calloc(more.space, sizeof(hash))) == NULL)
            abort();
        for (uint64_t i = 0; i < set->space; i++)
            if (set->all[i] != 0)
                (void)hashes_add(&more, set->all[i]);
        free(set->all);
        *set = more;
    }
    uint64_t *place = hashes_place(set, hash);
    if (*place == hash)
        return false;
    *place = hash;
    set->count++;
    return true;
}

static bool hashes_has(const struct hashes *set, uint64_t hash) {
    return set->space != 0 && *hashes_place(set, hash) == hash;
}

static void hashes_clear(struct hashes *set) {
    if (set->count > 0)
        memset(set->all, 0, set->space * sizeof(set->all[0]));
    set->count = 0;
}

/* Of the scene: tables, judged answers, and ends: answers with the table. */
static struct hashes tables, judged, ends;

static uint64_t schedules_clock(void) {
    return test_moved(s.time);
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
    for (unsigned i = 0; i < s.calls; i++)
        call->after |= (unsigned)(s.now.calls[i].ended != 0) << i;
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

/* The last slot's window is over, those of the others in the next window. */
static void more_later(void) {
    others(THE_SECOND, 3, TIME);
    (void)take(BRIEF, HOLDER + 10, 1, TIME - 5 * TICK);
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
    {"a table whose slots fall free in the next window", more_later},
};
const unsigned schedule_states = sizeof(states) / sizeof(states[0]);

/* Two calls of set-up cannot: one waits for the other's lock. And where there are more calls
 * than two of different windows, another key's may take the slot of one that is over by its own
 * time, or leave its own: what late calls then begin is in no order. */
bool schedules_playable(const struct scene *scene) {
    unsigned set_ups = 0;
    bool others = false, windows = false;
    for (unsigned thread = 0; thread < scene->threads; thread++) {
        for (unsigned i = 0; i < scene->calls; i++) {
            const struct kind *kind = &kinds[scene->kinds[thread][i]];
            set_ups += of_set_up(kind->op);
            if (of_overrides(kind->op) && (policies[scene->policy].flags & STINT_OVERRIDES) == 0)
                return false;
            others |= kind->op == OTHER_TAKE;
            windows |= kind->ticks != 0;
        }
    }
    if (states[scene->state].make == overridden &&
        (policies[scene->policy].flags & STINT_OVERRIDES) == 0)
        return false;
    return set_ups <= 1 && (scene->threads * scene->calls == 2 || !others || !windows);
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

/* ---- One play -------------------------------------------------------------------------------- */

static struct slot *line(void) {
    return s.limiter->table.lines[0].slots;
}

static bool has(enum op op) {
    for (unsigned i = 0; i < s.calls; i++)
        if (s.now.calls[i].kind->op == op)
            return true;
    return false;
}

static void count_table(void) {
    uint64_t hash = 1;
    for (unsigned i = 0; i < LINE_SLOTS; i++)
        hash = mixed(mixed(hash, s.watch.slots[i].tag), s.watch.slots[i].state);
    s.totals->tables += hashes_add(&tables, hash | 1);
}

static void watch(void) {
    if (watch_look(&s.watch, s.time))
        count_table();
    if (s.broken == NULL)
        s.broken = s.watch.broken;
}

/* ---- What a state is ------------------------------------------------------------------------- */

/* Words that decisions write, and those that only calls of set-up do (which decisions may read
 * without a step). */
static struct words {
    unsigned count, places[WORDS_MAX];
    const char *at[WORDS_MAX];
    uint64_t seen[WORDS_MAX], scene[WORDS_MAX];
    uint64_t hash;                              /* of what was seen */
    unsigned changed_count, changed[WORDS_MAX]; /* those that were ever seen changed in the scene */
    bool has_changed[WORDS_MAX];
} decided, set_up;

/* By place in the parts: whose the word is. */
enum whose { NOBODYS, DECIDED, SET_UP };
static uint8_t whose[WORDS_MAX];

/* Likewise, of the scene: bits of the threads that have a step on it, and whether one wrote it. */
enum { WRITTEN = 1 << THREADS };
static uint8_t touched[WORDS_MAX];

/* The scene is searched anew: it was not known that a word is contended. */
static bool again;

/* Whether it matters which of two threads comes first. */
static bool contended(unsigned bits) {
    const unsigned threads = bits & (WRITTEN - 1);
    return (bits & WRITTEN) != 0 && (threads & (threads - 1)) != 0;
}

static bool reduces(void) {
    return !s.totals->all_steps;
}

static void touch(unsigned place, unsigned how) {
    again |= reduces() && contended(touched[place] | how) && !contended(touched[place]);
    touched[place] |= (uint8_t)how;
}

static uint64_t word_at(const char *at) {
    uint64_t word;
    memcpy(&word, at, sizeof(word));
    return word;
}

static unsigned place_of(const char *word) {
    for (unsigned i = 0, first = 0; i < 2; first += (unsigned)(parts[i++].size / 8))
        if (word >= parts[i].begin && word < parts[i].begin + parts[i].size)
            return first + (unsigned)(word - parts[i].begin) / 8;
    return WORDS_MAX;
}

static enum whose whose_word(const char *word) {
    const struct header *header = s.limiter->header;
    const char *first = (const char *)s.limiter->policies;
    const char *lock = (const char *)&header->lock, *lanes = (const char *)header->lane_owners;
    const size_t field = (size_t)(word - first) % sizeof(struct policy);

    if (word >= first && word < (const char *)s.limiter->records)
        return field == offsetof(struct policy, current_end) ||
                       false
                   ? DECIDED
                   : SET_UP;
    if ((word >= lock && word < lock + sizeof(header->lock)) ||
        (word >= lanes && word < lanes + sizeof(header->lane_owners)))
        return NOBODYS;
    return word >= (const char *)line() ||
                   (word >= parts[1].begin && word < (const char *)(s.limiter->table.shards + 1)) ||
                   word == (const char *)&header->latest_begin
               ? DECIDED
               : SET_UP;
}

static void words_find(void) {
    decided.count = set_up.count = 0;
    for (unsigned i = 0, place = 0; i < 3; i++) {
        for (const char *at = parts[i].begin; at + 8 <= parts[i].begin + parts[i].size; at += 8) {
            if (place == WORDS_MAX)
                abort();
            struct words *words = whose_word(at) == DECIDED ? &decided : &set_up;
            if ((whose[place] = (uint8_t)whose_word(at)) != NOBODYS) {
                words->places[words->count] = place;
                words->at[words->count++] = at;
            }
            place++;
        }
    }
}

/* As the scene begins. */
static void words_keep(struct words *words) {
    for (unsigned i = 0; i < words->count; i++)
        words->scene[i] = word_at(words->at[i]);
    words->changed_count = 0;
    memset(words->has_changed, 0, sizeof(words->has_changed));
}

static void words_begin(struct words *words) {
    memcpy(words->seen, words->scene, words->count * sizeof(words->seen[0]));
    words->hash = 0;
}

static void word_look(struct words *words, unsigned i) {
    const uint64_t now = word_at(words->at[i]);
    if (now == words->seen[i])
        return;
    words->hash += mixed(i + 1, now) - mixed(i + 1, words->seen[i]);
    words->seen[i] = now;
    touch(words->places[i], WRITTEN);
    if (!s.sets_up && touched[words->places[i]] == WRITTEN)
        s.broken = "a word was written without a step";
    if (!words->has_changed[i])
        words->changed[words->changed_count++] = i;
    words->has_changed[i] = true;
}

/* Returns whether a word has changed. */
static bool words_look(struct words *words) {
    const uint64_t before = words->hash;
    for (unsigned i = 0; i < words->count; i++)
        word_look(words, i);
    return words->hash != before;
}

/* Likewise, where only words can have that ever did. */
static void words_look_again(struct words *words) {
    for (unsigned i = 0; i < words->changed_count; i++)
        word_look(words, words->changed[i]);
}

static bool running;

/* A look is no step. */
static void watch_now(void) {
    running = false;
    watch();
    running = true;
}

/* What each thread has seen, by its steps; of the words of set-up, when it went on last; and how
 * often its call has read the clock, which moves by that. */
static struct { uint64_t hash, set_up, readings; } threads[THREADS];
static unsigned going_on;

static void observe(uint64_t seen) {
    threads[going_on].hash = mixed(threads[going_on].hash, seen);
}

/* What the last step was on: whether it wrote there is seen at the next one. */
static struct {
    const char *at;
    unsigned words;
    uint64_t before[2];
} last_step;

/* Returns whether it was on a contended word. */
static bool settle_last(void) {
    bool was_contended = false;
    for (unsigned i = 0; i < last_step.words; i++) {
        const unsigned place = place_of(last_step.at) + i;
        if (word_at(last_step.at + 8 * i) != last_step.before[i])
            touch(place, WRITTEN);
        was_contended |= contended(touched[place]);
    }
    last_step.words = 0;
    return was_contended;
}

/* What the thread with the call of set-up does from one step to the next. */
static struct {
    struct hashes known, writes; /* parts that write nothing, and those that do, by hashes of all
                                  * that the thread had read */
    uint64_t begin;              /* that of this part; 0: it is known */
    bool noticed;                /* by others: since its last choice */
    bool wrote;                  /* a known part did, which was not looked at */
} part_of_set_up;

static bool in_set_up(void) {
    return s.sets_up && going_on == s.set_up_by;
}

static void look_at_known_parts(void) {
    if (part_of_set_up.wrote)
        words_look_again(&set_up);
    part_of_set_up.wrote = false;
}

static void begin_part(void) {
    if (!in_set_up())
        return;
    const uint64_t begin = threads[going_on].hash | (UINT64_C(1) << 63);
    const bool writes = hashes_has(&part_of_set_up.writes, begin);
    part_of_set_up.noticed |= writes;
    part_of_set_up.begin = writes || hashes_has(&part_of_set_up.known, begin) ? 0 : begin;
    if (part_of_set_up.begin != 0) {
        look_at_known_parts();
        (void)words_look(&decided);
    }
    part_of_set_up.wrote |= writes;
}

static void end_part(void) {
    if (in_set_up() && part_of_set_up.begin != 0) {
        bool wrote = words_look(&set_up);
        wrote |= words_look(&decided); /* perhaps without a step */
        (void)hashes_add(wrote ? &part_of_set_up.writes : &part_of_set_up.known,
                         part_of_set_up.begin);
        part_of_set_up.noticed |= wrote;
    }
    part_of_set_up.begin = 0;
}

/* A thread may be preempted here: that of set-up, if others may have noticed what it has done. */
static void choice(bool after_contended) {
    end_part();
    if (in_set_up()) {
        if (!part_of_set_up.noticed && !after_contended && reduces()) {
            watch_now();
            return;
        }
        part_of_set_up.noticed = false;
    }
    schedule_step();
}

static void step(const void *word) {
    const unsigned place = running ? place_of(word) : WORDS_MAX;
    if (place == WORDS_MAX || whose[place] == NOBODYS || (whose[place] == SET_UP && !s.sets_up))
        return;
    const bool was_contended = settle_last();
    if (++s.steps == STEPS)
        schedule_leave();
    /* A step on a tag may be one on the whole slot. */
    const bool tag = (const char *)word >= (const char *)line() && (uintptr_t)word % 16 == 0;
    bool matters = s.sets_up || !reduces();
    for (unsigned i = 0; i < 1U + tag; i++) {
        touch(place + i, 1U << going_on);
        matters |= contended(touched[place + i]);
    }
    if (matters)
        choice(was_contended);
    last_step.at = word;
    last_step.words = 1U + tag;
    for (unsigned i = 0; i < last_step.words; i++) {
        last_step.before[i] = word_at(last_step.at + 8 * i);
        if (matters)
            observe(mixed(place + i, last_step.before[i]));
    }
    begin_part();
}

static void step_of_set_up(enum stint_test_instant instant) {
    if (!running || instant != INSTANT_SET_UP)
        return;
    choice(settle_last());
    observe(instant);
    begin_part();
}

/* What follows depends on the words that several threads write, on what each thread has seen, and,
 * as answers are judged by it, on which calls had ended when another began. What the only call of
 * set-up has written, it has by what it has seen. A thread that has ended has seen more than at its
 * last choice. */
static uint64_t state(void) {
    watch_now();
    (void)words_look(&decided);
    if (s.broken != NULL || again)
        return 0;
    uint64_t hash = decided.hash;
    for (unsigned i = 0; i < s.scene.threads; i++)
        hash = mixed(hash, threads[i].hash);
    for (unsigned i = 0; i < s.calls; i++)
        hash = mixed(hash, s.now.calls[i].after);
    return hash | 1;
}

static void thread_body(unsigned thread) {
    for (unsigned i = 0; i < s.scene.calls; i++) {
        if (i > 0)
            schedule_step(); /* others may begin and end between two calls */
        observe(i);
        begin_part();
        part_of_set_up.noticed |= in_set_up(); /* that it begins */
        make_call(&s.now.calls[thread * s.scene.calls + i]);
        (void)settle_last();
        end_part();
    }
}

/* A thread may read what a call of set-up wrote as soon as it goes on. */
static void thread_switched(unsigned thread) {
    if (in_set_up())
        look_at_known_parts();
    threads[going_on].set_up = set_up.hash;
    threads[going_on].readings = test_readings;
    going_on = thread;
    test_readings = threads[thread].readings;
    stint_thread_number = thread + 1;
    if (threads[going_on].set_up != set_up.hash)
        observe(set_up.hash);
}

static void begin_play(void) {
    restore(SCENE);
    watch_begin(&s.watch, s.limiter);
    memset(&s.now, 0, sizeof(s.now));
    for (unsigned i = 0; i < s.calls; i++)
        s.now.calls[i].kind = &kinds[s.scene.kinds[i / s.scene.calls][i % s.scene.calls]];
    s.events = s.steps = 0;
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
    if (linearizable(same_call, same_verdict))
        return NULL;
    if (!excused())
        return "no order of these calls gives these answers";
    s.totals->excused++;
    return NULL;
}

/* ---- All plays ------------------------------------------------------------------------------- */

static const char search_again[] = "again";

static void begin_search_play(void) {
    begin_play();
    words_begin(&decided);
    words_begin(&set_up);
    memset(threads, 0, sizeof(threads));
    last_step.words = 0;
    part_of_set_up.wrote = false;
    going_on = 0;
    running = true;
}

static uint64_t mixed_verdict(uint64_t hash, const struct stint_verdict *verdict) {
    for (size_t at = 0; at + 8 <= sizeof(*verdict); at += 8)
        hash = mixed(hash, word_at((const char *)verdict + at));
    return hash;
}

/* Judges answers that were not given in any play before. */
static const char *end_play(bool stuck) {
    running = false;
    stint_thread_number = 1;
    watch();
    (void)words_look(&decided);
    if (!s.sets_up && words_look(&set_up))
        s.broken = "a decision wrote a word of set-up";
    if (again)
        return search_again;
    if (s.broken != NULL || stuck)
        return s.broken != NULL ? s.broken : "E: does not end";
    after_all();
    uint64_t hash = mixed_verdict(mixed_verdict(0, &s.now.look), &s.now.take), order = 0;
    for (unsigned i = 0; i < s.calls; i++) {
        const struct call *call = &s.now.calls[i];
        hash = mixed_verdict(mixed_verdict(hash, &call->verdicts[0]), &call->verdicts[1]);
        hash = mixed(hash, (uint64_t)call->result);
        order = mixed(order, call->after);
    }
    if (hashes_add(&ends, mixed(hash, decided.hash) | 1))
        s.totals->ends += mixed(hash, decided.hash) | 1;
    if (!hashes_add(&judged, mixed(hash, order) | 1))
        return NULL;
    s.totals->answers++;
    return judge_play();
}

static const char *play_all(unsigned preemptions) {
    struct search search = {
        .threads = s.scene.threads,
        .preemptions = preemptions,
        .body = thread_body,
        .switched = thread_switched,
        .begin = begin_search_play,
        .state = state,
        .end = end_play,
        .to_the_end = s.sets_up, /* it holds the lock */
        .forgets = s.totals->forgets,
        .most = s.totals->most,
    };
    const char *broken;

    restore(SCENE);
    words_keep(&decided);
    words_keep(&set_up);
    memset(touched, 0, sizeof(touched));
    stint_test_step = step;
    stint_test_hook = step_of_set_up;
    do {
        again = false;
        broken = search_all(&search);
        s.totals->plays += search.plays;
    } while (broken == search_again);
    stint_test_step = NULL;
    stint_test_hook = NULL;
    s.totals->schedules += search.schedules;
    s.totals->states += search.nodes;
    s.totals->left += search.left;
    s.totals->taken = search.taken;
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
    fprintf(report, "%s: %s\n", broken, text);
    search_tell(report);
    print_answers(report, "answers", &s.now);
    for (unsigned o = 0; o < s.order_count; o++)
        print_answers(report,
                      agrees(&s.orders[o]) ? "one after the other" : "in an order that was not",
                      &s.orders[o]);
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
    words_find();
}

void schedules_end(void) {
    struct hashes *sets[] = {&tables, &judged, &ends, &part_of_set_up.known,
                             &part_of_set_up.writes};
    for (unsigned i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
        free(sets[i]->all);
        *sets[i] = (struct hashes){0};
    }
    search_free();
    for (unsigned i = 0; i < 3; i++)
        for (unsigned as = NEW; as <= SCENE; as++)
            free(parts[i].bytes[as]);
    stint_close(s.limiter);
}

const char *schedules_play(const struct scene *scene, unsigned preemptions, guard_set removed,
                           struct schedules_totals *totals, FILE *report) {
    s.scene = *scene;
    s.calls = scene->threads * scene->calls;
    s.totals = totals;
    s.time = TIME;
    s.sets_up = schedules_sets_up(scene);
    unsigned last = 0;
    for (unsigned thread = 0; thread < scene->threads; thread++) {
        for (unsigned i = 0; i < scene->calls; i++) {
            const struct kind *kind = &kinds[scene->kinds[thread][i]];
            if (of_set_up(kind->op))
                s.set_up_by = thread;
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
    hashes_clear(&tables);
    hashes_clear(&judged);
    hashes_clear(&ends);
    hashes_clear(&part_of_set_up.known);
    hashes_clear(&part_of_set_up.writes);
    unsigned order[CALLS] = {0};
    play_orders(order, 0);

    stint_test_removed = removed;
    const char *broken = play_all(preemptions);
    stint_test_removed = 0;
    totals->scenes++;
    if (broken != NULL && report != NULL)
        report_play(report, broken);
    restore(SCENE);
    return broken;
}
