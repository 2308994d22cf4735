/* SPDX-License-Identifier: MIT
 * What clocks do to windows, and what is promised for it: steps in both directions, threads that
 * sleep in the middle of a decision, the ends of time, the wrap of the 33 bits that name a window.
 * (Few keys in small scripts, and leap seconds: features.c. All kinds at random, against a naive
 * twin: twin.c.) Linked with the library built for tests (src/sys/testing.h). */
#include "fixture.h"

#include "limiter/counters.h"
#include "model.h"
#include "random.h"
#include "stories.h"
#include "sys/testing.h"

#define TICK STINT_TICK_NS

/* The ids of windows wrap after so many ticks. */
#define WRAP_TICKS (UINT64_C(1) << 33)
#define WRAP       (WRAP_TICKS * TICK)

/* Every kind of policy. */
static const char *const kinds[] = {
    "3/minute",
    "1/10ms",
    "5/7s",
    "200/day",
    "4/366 days",
    "3/minute count-refused",
    "3/minute capacity=8",
    "3/minute capacity=2",
    "3/minute reserve=7",
    "2/hour capacity=5 reserve=5",
    "5/s capacity=1000 reserve=1000",
    "4/minute in-flight",
    "9/minute smooth",
    "9/minute start=per-key",
    "9/hour smooth start=per-key",
    "8/minute stripes=4",
    "3/minute jitter=20% near=50%",
    "3/minute shadow",
    "3/hour start=2024-01-01T00:00:07Z",
    "3/minute start=first",
    "6/minute burst=9",
    "6/minute burst=2 reserve=9",
};
/* The last are buckets. These are full at an instant, which has no number beyond 2^64. */
enum { KINDS = sizeof kinds / sizeof kinds[0], IN_WINDOWS = KINDS - 2, KEYS = 5 };

/* A limiter with one policy, and keys that have used more or less of it. */
struct bed {
    struct stint_limiter *limiter;
    struct stint_policy policy;
    const char *kind;
    uint32_t id;
    uint32_t capacity;
    uint64_t at;    /* when it was opened, and used */
    uint64_t shift; /* ns: the model, which counts in signed ns, is told of times so much earlier */
    struct stint_verdict before[KEYS];
};

static struct stint_verdict ask_bed(const struct bed *bed, uint64_t key, uint32_t cost,
                                    uint32_t flags) {
    return ask(bed->limiter, bed->id, key, cost, flags);
}

static bool fits(const struct stint_verdict *verdict) {
    return verdict->allowed && (verdict->flags & STINT_SHADOWED) == 0;
}

/* Takes tokens one by one until that is refused. Returns how many were granted. */
static uint32_t empty(const struct bed *bed, uint64_t key, uint32_t flags) {
    uint32_t granted = 0;
    for (struct stint_verdict v = ask_bed(bed, key, 1, flags); fits(&v);
         v = ask_bed(bed, key, 1, flags))
        granted += v.granted;
    return granted;
}

static struct bed open_bed(const char *kind, uint64_t max_entries, uint64_t at) {
    struct bed bed = {.kind = kind, .policy = parsed(kind), .at = at};
    test_time = at;
    bed.limiter = open_limiter(max_entries, STINT_FULL_REFUSE);
    bed.id = add_made(bed.limiter, &bed.policy);
    bed.capacity = capacity_of(&bed.policy);
    if (at > INT64_MAX && bed.policy.window != 0)
        bed.shift = (at - T0) / bed.policy.window * bed.policy.window;
    return bed;
}

/* Key 0 has used nothing, key 1 one token, key 2 half of all; key 3 is empty, key 4 as far in debt
 * as it may. */
static struct bed open_used_bed(const char *kind, uint64_t at) {
    struct bed bed = open_bed(kind, 1000, at);
    ask_bed(&bed, 1, 1, 0);
    ask_bed(&bed, 2, bed.capacity / 2, 0);
    empty(&bed, 3, 0);
    empty(&bed, 4, STINT_RESERVE);
    for (uint64_t key = 0; key < KEYS; key++)
        bed.before[key] = ask_bed(&bed, key, 1, STINT_PEEK);
    return bed;
}

/* A key as it was, to the model; one that has used nothing has no slot. */
static struct model_key key_before(const struct bed *bed, uint64_t key) {
    const struct stint_verdict *was = &bed->before[key];
    if (was->used == 0)
        return (struct model_key){0};
    return (struct model_key){.window = was->window - bed->shift, .used = was->used, .known = true};
}

/* Looks at a key, which the model has as `from`. */
static struct stint_verdict check_look(const struct bed *bed, uint64_t key, struct model_key from,
                                       const char *event) {
    const struct stint_request look = {.cost = 1, .flags = STINT_PEEK};
    const uint64_t step = test_step;
    test_step = 0; /* what does not fit a bucket is asked once more, by the clock */
    const struct stint_verdict got = ask_bed(bed, key, 1, STINT_PEEK);
    test_step = step;
    const uint64_t now = test_time - bed->shift, late = bed->at - test_time;
    struct stint_verdict told = got;
    struct model_by by = model_by(&bed->policy);
    struct model_jitter jitter = {0};
    told.window -= bed->shift;
    if ((bed->policy.flags & STINT_START_PER_KEY) != 0)
        by.phase = (bed->before[key].window - bed->shift) % bed->policy.window;
    from = model_at(&bed->policy, by.phase, from, now);
    struct model_answer answer = model_decide(&by, &look, now, &from);
    /* And by the time of this thread's other decisions. */
    if (is_bucket(&bed->policy) && !answer.verdict.allowed && late <= BACK_NS) {
        const struct model_answer again = model_decide(&by, &look, now + late, &from);
        answer = again.verdict.allowed ? again : answer;
    }
    if (model_allows(&answer, &told, &jitter))
        return got;
    print_verdict("expected", &answer.verdict);
    print_verdict("got     ", &told);
    fail_msg("\"%s\", key %" PRIu64 ", %s to %" PRIu64, bed->kind, key, event, test_time);
    return got;
}

/* ---- Steps ---------------------------------------------------------------------------------- */

/* The clock goes from `at` to `at + step` at once: NTP, a machine that was suspended, a process
 * that was stopped. Promise H: that is time like any other. Windows end, tokens carry over, debts
 * are paid as if each window in between had been waited for, and what was said of retry_after
 * holds (planningcenter/developers#606, Losant/redis-gcra#3, symfony/symfony#45286,
 * symfony/symfony#49070, ZhuoZhuoCrayon/throttled-py#89, sigmavirus24/rush#18). */
static void check_forward(const char *kind, uint64_t at, uint64_t step) {
    struct bed bed = open_used_bed(kind, at);
    test_time = at + step;
    for (uint64_t key = 0; key < KEYS; key++) {
        const uint64_t told = bed.before[key].retry_after;
        const uint32_t used = check_look(&bed, key, key_before(&bed, key), "forward").used;
        if (bed.policy.jitter == 0)
            assert_int_equal(used < bed.capacity, step >= told);
        else if (step >= told)
            assert_true(used < bed.capacity);
        /* And it is so for those who take: that much, no more. */
        assert_int_equal(empty(&bed, key, 0), used < bed.capacity ? bed.capacity - used : 0);
    }
    assert_int_equal(get_stats(bed.limiter).clock_steps, 0);
    stint_close(bed.limiter);
}

static const uint64_t steps[] = {
    1,         10 * MS - 1,      10 * MS,    SECOND, 30 * SECOND, MINUTE - 10 * MS,
    MINUTE,    MINUTE + 10 * MS, 2 * MINUTE, HOUR,   DAY,         30 * DAY,
    365 * DAY, 490 * DAY};
enum { STEPS = sizeof steps / sizeof steps[0] };

/* In the middle of every window. */
#define NOON (T0 + 12 * HOUR + 31 * SECOND + 3456789)

TEST(test_forward) {
    for (unsigned kind = 0; kind < KINDS; kind++)
        for (unsigned i = 0; i < STEPS; i++)
            check_forward(kinds[kind], NOON, steps[i]);
}

/* For how many windows a key may be held up, without a step of the clock: promise H. */
static uint64_t windows_held(const struct stint_policy *policy) {
    const uint64_t owed = (uint64_t)policy->max_reserved + 1;
    return looks_back(policy) ? 2 : (owed + policy->limit - 1) / policy->limit;
}

/* The clock goes from `at` to `at - step`. Promise H: a slot may be ahead of the clock by its
 * window and the allowance of 60 s. Up to that its key stays in its window, with what it has used:
 * nothing is counted twice. Beyond, it starts anew in the window of now. Either way it is not held
 * up for longer than H says. */
static void check_back(const char *kind, uint64_t at, uint64_t step) {
    struct bed bed = open_used_bed(kind, at);
    test_time = at - step;
    unsigned anew = 0;
    for (uint64_t key = 0; key < KEYS; key++) {
        struct model_key from = key_before(&bed, key);
        if (is_far_ahead(&bed.policy, from.window, test_time - bed.shift)) {
            anew += from.window - (test_time - bed.shift) < WRAP / 2; /* beyond, it seems over */
            from = (struct model_key){0};
        }
        check_look(&bed, key, from, "back");
    }
    uint64_t longest = windows_held(&bed.policy) * bed.policy.window + ALLOWANCE +
                       bed.policy.window / 100 * bed.policy.jitter;
    for (uint64_t key = 0; key < KEYS; key++) {
        bed.before[key] = ask_bed(&bed, key, 1, 0);
        assert_true(fits(&bed.before[key]) || bed.before[key].retry_after <= longest);
    }
    assert_int_equal(get_stats(bed.limiter).clock_steps != 0, anew != 0);
    for (uint64_t key = 0; key < KEYS; key++) {
        test_time = at - step + bed.before[key].retry_after;
        struct stint_verdict v = ask_bed(&bed, key, 1, 0);
        assert_true(fits(&bed.before[key]) || fits(&v));
    }
    stint_close(bed.limiter);
}

/* To the ns: the longest that each is held up, by a step of 60 s, at the begin of a window in which
 * all was taken. By a step of a tick more it starts anew. */
TEST(test_held_up) {
    static const struct {
        const char *kind;
        uint32_t cost; /* of which nothing fits, when all is taken */
        uint64_t held;
    } cases[] = {
        {"3/minute", 1, MINUTE},
        {"3/minute", 3, MINUTE},
        {"3/hour start=first", 1, HOUR},
        {"8/minute stripes=4", 1, MINUTE},
        {"9/minute smooth", 1, MINUTE + MINUTE / 9 + 1},
        {"9/minute smooth", 9, 2 * MINUTE},
        {"4/minute in-flight", 1, 2 * MINUTE},
        {"3/minute capacity=8", 1, MINUTE},
        {"3/minute reserve=7", 1, 3 * MINUTE},
        {"2/hour capacity=5 reserve=5", 1, 3 * HOUR},
        {"5/s capacity=1000 reserve=1000", 1, 201 * SECOND},
        {"3/month", 1, 31 * DAY},
        {"3/year", 1, 366 * DAY},
        {"6/minute burst=9", 1, 10 * SECOND},
        {"6/minute burst=9", 9, 90 * SECOND},
        {"6/minute burst=2 reserve=9", 1, 100 * SECOND},
        {"3/minute burst=2", 1, 20 * SECOND},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (unsigned step = 0; step < 3; step++) {
            const uint64_t by = step == 0 ? 50 * SECOND : step == 1 ? ALLOWANCE : ALLOWANCE + TICK;
            struct bed bed = open_bed(cases[i].kind, 1000, T0);
            const uint64_t full = count_most(&bed.policy) * token_time(&bed.policy);
            empty(&bed, 1, STINT_RESERVE);
            test_time = T0 - by;
            if (is_bucket(&bed.policy) && by > ALLOWANCE) /* "a window, if that is longer" */
                test_time -= TICK + (full < bed.policy.window ? bed.policy.window - full : 0);
            struct stint_verdict v = ask_bed(&bed, 1, cases[i].cost, 0);
            assert_int_equal(fits(&v), by > ALLOWANCE);
            if (by <= ALLOWANCE && v.retry_after != cases[i].held + by)
                fail_msg("\"%s\": held up for %" PRIu64, cases[i].kind, v.retry_after);
            assert_true(bed.policy.calendar != 0 || is_bucket(&bed.policy) ||
                        v.retry_after <= windows_held(&bed.policy) * bed.policy.window + by);
            stint_close(bed.limiter);
        }
}

/* fail2ban/fail2ban#2566: after a step of an hour nothing worked until that hour was over. */
TEST(test_back) {
    for (unsigned kind = 0; kind < KINDS; kind++)
        for (unsigned i = 0; i < STEPS; i++)
            check_back(kinds[kind], NOON, steps[i]);
}

/* Steps back of less than the allowance, one after the other, with a stripe's slot left behind by
 * each: the key is held up by none but those that are within it of the clock. */
TEST(test_back_stripe_by_stripe) {
    const uint64_t number = stint_thread_number;
    struct bed bed = open_bed("8/minute stripes=4", 1000, NOON);
    for (unsigned i = 0; i < 4; i++) {
        stint_thread_number = 4 + i; /* that of its own stripe */
        test_time = NOON - i * (MINUTE - SECOND);
        assert_true(stint_take(bed.limiter, bed.id, 1, 1, STINT_NOW, NULL));
    }
    for (unsigned cost = 0; cost <= 4; cost += 2) {
        struct stint_verdict v = ask_bed(&bed, 1, cost, 0);
        assert_true(v.allowed && v.reset_after <= MINUTE + ALLOWANCE);
    }
    stint_thread_number = number;
    stint_close(bed.limiter);
}

/* Asks, and counts the readings of the clock. */
static struct stint_verdict ask_counted(const struct bed *bed, uint64_t key, uint32_t cost,
                                        uint32_t flags, uint64_t now) {
    const struct stint_request request = {
        .key = {key}, .policy = bed->id, .cost = cost, .flags = flags};
    struct stint_verdict v;
    stint_decide(bed->limiter, &request, now, &v);
    if (test_readings > READINGS_MOST)
        fail_msg("\"%s\", key %" PRIu64 ", cost %" PRIu32 ": %" PRIu64 " readings of the clock",
                 bed->kind, key, cost, test_readings);
    return v;
}

/* All kinds of requests, of keys with slots and without. */
static void ask_all_counted(const struct bed *bed, uint64_t now) {
    static const uint32_t flags[] = {STINT_PEEK, 0, STINT_PARTIAL, STINT_DRAIN, STINT_CHARGE};
    for (uint64_t key = 0; key < 2 * KEYS; key++)
        for (unsigned i = 0; i < sizeof flags / sizeof flags[0]; i++)
            for (uint32_t cost = 0; cost <= 2; cost++)
                (void)ask_counted(bed, key, cost, flags[i], now);
}

/* D, E and H: a decision reads the clock a few times, whatever that says, and although each reading
 * finds it later than the one before. */
static void check_readings_after_a_step(void) {
    static const uint64_t crowds[] = {2, 1000};
    static const uint64_t by[] = {30 * SECOND, 2 * MINUTE, 2 * HOUR, 40 * DAY, 500 * DAY};
    for (unsigned kind = 0; kind < KINDS; kind++)
        for (unsigned crowd = 0; crowd < 2; crowd++)
            for (unsigned i = 0; i < sizeof by / sizeof by[0]; i++) {
                struct bed bed = open_bed(kinds[kind], crowds[crowd], NOON);
                ask_all_counted(&bed, STINT_NOW);
                test_time = NOON - by[i];
                ask_all_counted(&bed, STINT_NOW);
                /* One thread's now is of before the step; another's is late, as the clock has been
                 * set right again. */
                ask_all_counted(&bed, NOON);
                ask_all_counted(&bed, STINT_NOW);
                test_time = NOON;
                ask_all_counted(&bed, NOON - by[i]);
                ask_all_counted(&bed, STINT_NOW);
                stint_close(bed.limiter);
            }
}

TEST(test_readings_after_a_step) {
    const uint64_t step = test_step;
    check_readings_after_a_step();
    test_step = TICK;
    check_readings_after_a_step();
    test_step = step;
}

/* Two callers, by turns: the now of one is two hours ahead of the clock, the other's is the
 * clock's. Neither keeps the other busy. */
TEST(test_readings_beside_one_ahead) {
    for (unsigned kind = 0; kind < KINDS; kind++) {
        struct bed bed = open_bed(kinds[kind], 1000, NOON);
        for (unsigned i = 0; i < 20; i++) {
            test_time += SECOND;
            ask_all_counted(&bed, test_time + 2 * HOUR);
            ask_all_counted(&bed, STINT_NOW);
            if (bed.policy.window > HOUR)
                continue;
            struct stint_verdict v = ask_counted(&bed, 3, 1, STINT_PEEK, STINT_NOW);
            assert_true(v.reset_after <= bed.policy.window + ALLOWANCE);
        }
        stint_close(bed.limiter);
    }
}

/* ---- Threads that sleep --------------------------------------------------------------------- */

/* A thread decides, and sleeps at each of its steps in turn while the clock moves on, or back, and
 * others decide. A: no window has granted more than a key may hold, in the thread's own window as
 * in later ones. B: the key is held up by nothing. (Further back: scenes.c.) */
TEST(test_naps) {
    static const char *const nappers[] = {"3/100s",
                                          "2/10ms",
                                          "5/1000s",
                                          "9/100s smooth",
                                          "3/100s capacity=8",
                                          "3/100s capacity=3 reserve=4",
                                          "4/100s stripes=2",
                                          "3/100s start=per-key",
                                          "3/100s start=first"};
    static const char *const tables[] = {"", "take p key;", USED_LINE ";"};
    static const char *const others[] = {"", "; take p key x2",
                                         "; take p f1; take p f2; take p f3"};
    /* Ticks. Ids tell times within 497 days. */
    static const int64_t jumps[] = {1, 3000, 6000, 6100, 12000, 360000, 4233600000, -1, -5000};
    enum { TABLES = 3, OTHERS = 3, JUMPS = sizeof jumps / sizeof jumps[0] };
    for (unsigned i = 0; i < sizeof nappers / sizeof nappers[0] * TABLES * OTHERS * JUMPS; i++) {
        char before[200], b[200];
        snprintf(before, sizeof before, "add p %s; %s turn 10",
                 nappers[i / (TABLES * OTHERS * JUMPS)], tables[i / (OTHERS * JUMPS) % TABLES]);
        snprintf(b, sizeof b, "turn %" PRId64 "%s", 10 + jumps[i % JUMPS],
                 others[i / JUMPS % OTHERS]);
        const struct scene scene = {
            b, .stops = 1, .any_order = true, .before = before, .a = "take p key", .b = b};
        const struct outcome outcome = scene_play(&scene, 0, 1, 0);
        if (outcome.broken[0] != '\0')
            fail_msg("%s, %s: %s (stopped at %u)", before, b, outcome.broken, outcome.stops[0]);
    }
}

/* ---- The ends of time ----------------------------------------------------------------------- */

/* The first days after the epoch, at which `start` may lie ahead. */
TEST(test_after_1970) {
    static const uint64_t starts[] = {0, 1, TICK - 1, TICK, SECOND, DAY + 5};
    for (unsigned kind = 0; kind < KINDS; kind++)
        for (unsigned at = 0; at < sizeof starts / sizeof starts[0]; at++)
            for (unsigned i = 0; i < STEPS; i++) {
                check_forward(kinds[kind], starts[at], steps[i]);
                if (steps[i] <= starts[at])
                    check_back(kinds[kind], starts[at], steps[i]);
            }
}

/* The last windows that 64 bits of ns since the epoch can say, in July 2554: their ends are past
 * them, and wrap, while all that is told as a distance from now is exact. */
TEST(test_year_2554) {
    static const uint64_t left[] = {0, 1, TICK, SECOND, HOUR, DAY, 500 * DAY};
    for (unsigned kind = 0; kind < IN_WINDOWS; kind++)
        for (unsigned at = 0; at < sizeof left / sizeof left[0]; at++)
            for (unsigned i = 0; i < STEPS; i++) {
                if (steps[i] <= left[at])
                    check_forward(kinds[kind], UINT64_MAX - left[at], steps[i]);
                check_back(kinds[kind], UINT64_MAX - left[at], steps[i]);
            }
}

/* Tokens of the last windows can be given back, too, by the caller and between stripes. */
TEST(test_refunds_in_2554) {
    for (unsigned kind = 0; kind < IN_WINDOWS; kind++) {
        struct bed bed = open_bed(kinds[kind], 1000, UINT64_MAX - 5);
        for (uint32_t cost = 1; cost <= bed.capacity; cost++) {
            struct stint_verdict v = ask_bed(&bed, 7, cost, 0);
            assert_true(fits(&v));
            assert_int_equal(stint_refund(bed.limiter, 7, &v, cost), cost);
            assert_int_equal(ask_bed(&bed, 7, 0, STINT_PEEK).used, 0);
        }
        stint_close(bed.limiter);
    }
    struct bed bed = open_bed("8/minute stripes=4", 1000, UINT64_MAX - 5);
    struct stint_verdict v = ask_bed(&bed, 7, 6, 0);
    assert_true(v.allowed);
    v = ask_bed(&bed, 7, 5, 0); /* takes the other two, and gives them back */
    assert_false(v.allowed);
    assert_true(v.used == 6 && v.reset_after == v.window - test_time);
    v = ask_bed(&bed, 7, 2, 0);
    assert_true(v.allowed);
    stint_close(bed.limiter);
}

/* A clock that is before 1970, as a uint64_t: a time in 2554. It decides as any other does, and
 * when it comes to 1970 every key starts anew. (But those in windows of more than 250 days may
 * be taken for live ones until theirs ends: 584 years later the ids have come round.) */
TEST(test_before_1970) {
    static const uint64_t before[] = {1, SECOND, DAY}, after[] = {0, 1, SECOND, HOUR};
    for (unsigned kind = 0; kind < IN_WINDOWS; kind++)
        for (unsigned from = 0; from < 3; from++)
            for (unsigned to = 0; to < 4; to++) {
                struct bed bed = open_used_bed(kinds[kind], (uint64_t)0 - before[from]);
                if (bed.policy.window <= 30 * DAY) {
                    test_time = after[to];
                    for (uint64_t key = 1; key < KEYS; key++) {
                        struct stint_verdict v = ask_bed(&bed, key, 1, STINT_PEEK);
                        assert_true(v.used == 0 && v.reset_after <= bed.policy.window);
                        assert_int_equal(ask_bed(&bed, key, bed.capacity, 0).used, bed.capacity);
                    }
                    test_time = (uint64_t)0 - before[from];
                    for (uint64_t key = 1; key < KEYS; key++) {
                        assert_int_equal(ask_bed(&bed, key, 1, STINT_PEEK).used, 0);
                    }
                }
                stint_close(bed.limiter);
            }
}

/* ---- Nows that are no times of the clock ----------------------------------------------------- */

/* A now is used that is within 59 s of the clock. Another is decided at the clock's time, which the
 * verdict says, and is counted once: one of 121 s off, seconds, ms and us, the time since the
 * machine started, nothing, and all that there is. (In groups and batches, for keys in all states:
 * twin.c.) */
static void check_now(const char *kind, uint64_t clock, uint64_t now) {
    const uint64_t step = test_step;
    struct bed bed = open_bed(kind, 100, clock - TICK);
    const bool far = (now > clock ? now - clock : clock - now) > ALLOWANCE;
    test_time = clock;
    test_step = 0; /* what does not fit a bucket is asked once more, by the clock */
    for (uint64_t asked = 1; asked <= 3; asked++) {
        struct stint_verdict v;
        stint_take(bed.limiter, bed.id, asked / 2, 1, now, &v); /* also one with a slot */
        if (v.window - v.reset_after != (far ? clock : now) ||
            (v.flags & STINT_MISTAKEN_NOW) != (far ? STINT_MISTAKEN_NOW : 0))
            fail_msg("\"%s\", %" PRIu64 " by a clock of %" PRIu64 ": flags %#" PRIx32, kind, now,
                     clock, v.flags);
        assert_int_equal(get_policy_stats(bed.limiter, bed.id).mistaken_nows, far ? asked : 0);
        if (far) /* so that those which follow need not ask the clock, and none climbs */
            assert_int_equal(bed.limiter->header->known, tick_of(clock));
    }
    test_step = step;
    stint_close(bed.limiter);
}

TEST(test_mistaken_nows) {
    static const char *const others[] = {"9/month",
                                         "9/year",
                                         "9/10s",
                                         "9/10s burst=9",
                                         "9/10s start=first",
                                         "9/10s smooth",
                                         "9/10s in-flight",
                                         "9/10s capacity=12",
                                         "8/10s stripes=4",
                                         "9/10s start=per-key",
                                         "9/10s overrides"};
    static const uint64_t starts[] = {T0, MINUTE, UINT64_MAX - 400 * DAY};
    enum { OTHERS = sizeof others / sizeof others[0] };
    for (unsigned i = 0; i < KINDS + OTHERS; i++)
        for (unsigned start = 0; start < (i < KINDS && i >= IN_WINDOWS ? 2 : 3); start++) {
            const char *kind = i < KINDS ? kinds[i] : others[i - KINDS];
            const uint64_t clock = starts[start], window = parsed(kind).window,
                           nows[] = {clock - 59 * SECOND,   clock + 59 * SECOND, clock + 366 * DAY,
                                     clock / SECOND,        clock / MS,          clock / 1000,
                                     5 * DAY + clock % DAY, UINT64_MAX,          0,
                                     clock + 121 * SECOND,  clock - 121 * SECOND};
            /* (In the window of the policy's last decision no now is mistaken.) */
            const bool is_short = window != 0 && window <= 10 * SECOND;
            for (size_t n = 0; n < sizeof nows / sizeof nows[0]; n++) {
                const uint64_t off = nows[n] > clock ? nows[n] - clock : clock - nows[n];
                if (is_short || off < MINUTE || off >= 366 * DAY)
                    check_now(kind, clock, nows[n]);
            }
        }
}

/* ---- 33 bits of ticks ----------------------------------------------------------------------- */

/* Where ids wrap, and half-way; the wrap number 21 is on 2027-03-01, number 214 the last one. */
static const uint64_t wraps[] = {WRAP_TICKS / 2,
                                 WRAP_TICKS,
                                 WRAP_TICKS + WRAP_TICKS / 2,
                                 21 * WRAP_TICKS,
                                 21 * WRAP_TICKS + WRAP_TICKS / 2,
                                 214 * WRAP_TICKS,
                                 214 * WRAP_TICKS + WRAP_TICKS / 2};
enum { WRAPS = sizeof wraps / sizeof wraps[0] };

/* Windows before, after, and across the wrap are windows like any others. */
TEST(test_across_wraps) {
    static const uint64_t distances[] = {1, TICK - 1, TICK, TICK + 1, 7 * SECOND, HOUR};
    for (unsigned kind = 0; kind < IN_WINDOWS; kind++)
        for (unsigned wrap = 0; wrap < WRAPS; wrap++)
            for (unsigned i = 0; i < sizeof distances / sizeof distances[0]; i++)
                for (unsigned step = 0; step < STEPS; step += 1 + kind % 2) {
                    if (steps[step] < UINT64_MAX - wraps[wrap] * TICK)
                        check_forward(kinds[kind], wraps[wrap] * TICK - distances[i], steps[step]);
                    if (steps[step] < wraps[wrap] * TICK)
                        check_back(kinds[kind], wraps[wrap] * TICK + distances[i] - 1, steps[step]);
                }
}

/* A key that nobody asked about for `idle`, to the tick. Its slot may be taken for a live one from
 * 2^33 ticks before its end by a window and the allowance on, and no longer than to its end by
 * then; at all other times the key starts anew. */
static void check_left_over(const char *kind, uint64_t idle_ticks) {
    uint64_t at = NOON / TICK * TICK;
    struct bed bed = open_used_bed(kind, at);
    test_time = at + idle_ticks * TICK;
    for (uint64_t key = 1; key < KEYS; key++) {
        const uint64_t window = bed.policy.window;
        struct model_key from = key_before(&bed, key);
        const uint64_t passed = (test_time - from.window) / window + 1;
        const uint64_t present = from.window + passed * window;
        while (from.window + WRAP / 2 <= test_time) /* that it seems to be of */
            from.window += WRAP;
        /* An end before that of the present window is none of the policy's, whose windows are all
         * keys'. */
        const bool own = (bed.policy.flags & (STINT_START_PER_KEY | STINT_START_FIRST)) != 0;
        const bool live = from.known && from.window > (own ? test_time : present - 1) &&
                          from.window - test_time <= window + ALLOWANCE;
        if (!live)
            from = (struct model_key){0};
        if (!live || bed.policy.stripes <= 1)
            check_look(&bed, key, from, "left over");
        /* "May be": who takes without looking for a window ahead begins the present one, and so
         * does a key of whose stripes others are not left over. */
        uint32_t granted = empty(&bed, key, 0);
        uint64_t left = from.used < bed.capacity ? bed.capacity - from.used : 0;
        uint64_t most = live ? bed.capacity : left;
        if (live && bed.policy.stripes > 1) /* the rest of that window, and then the present one */
            most += left;
        assert_true(granted >= left && granted <= most);
        test_time = ask_bed(&bed, key, 1, STINT_PEEK).window;
        assert_true(test_time <= at + idle_ticks * TICK + window + ALLOWANCE);
        assert_int_equal(empty(&bed, key, 0), bed.capacity);
        test_time = at + idle_ticks * TICK;
    }
    stint_close(bed.limiter);
}

TEST(test_left_over) {
    static const char *const plain[] = {"3/minute",
                                        "1/10ms",
                                        "200/day",
                                        "3/minute capacity=2",
                                        "9/minute start=per-key",
                                        "9/minute start=first",
                                        "8/minute stripes=4",
                                        "3/minute count-refused"};
    for (unsigned kind = 0; kind < sizeof plain / sizeof plain[0]; kind++) {
        uint64_t window = parsed(plain[kind]).window / TICK, allowance = ALLOWANCE / TICK;
        for (uint64_t wrap = WRAP_TICKS / 2; wrap <= 3 * WRAP_TICKS; wrap += WRAP_TICKS / 2)
            for (uint64_t off = 0; off <= 2; off++) {
                /* The key's end is between `at` and `at` plus its window. */
                check_left_over(plain[kind], wrap - 1 + off);
                check_left_over(plain[kind], wrap - window - allowance - 1 + off);
                check_left_over(plain[kind], wrap - allowance - 1 + off);
                check_left_over(plain[kind], wrap + window - 1 + off);
            }
    }
}

/* ---- Keys that nobody touches for days ------------------------------------------------------- */

/* "Used = max(0, used - limit * windows passed)", however many days pass: until the 33 bits of an
 * end stand for the next one. */
TEST(test_untouched) {
    static const char *const slow[] = {
        "10/366d capacity=40",
        "10/250d reserve=90",
        "10/200d capacity=40 reserve=9",
        "10/100d capacity=80",
        "100/60d smooth",
        "40/300d in-flight",
        "10/300d burst=12",
        "20/day",
        "20/week reserve=900",
    };
    struct random random = {test_seed()};
    for (uint64_t round = 0; round < test_rounds(2000); round++) {
        const char *kind = slow[round % (sizeof slow / sizeof *slow)];
        struct bed bed = open_used_bed(kind, T0 + random_below(&random, 366 * DAY));
        const uint64_t reach = 366 * DAY * (is_bucket(&bed.policy) ? 2 : 1);
        const uint64_t from = test_time;
        test_time += (1 + random_below(&random, 2700)) * DAY + random_below(&random, DAY);
        for (uint64_t key = 0; key < KEYS; key++)
            if (test_time - from < WRAP - reach - ALLOWANCE)
                check_look(&bed, key, key_before(&bed, key), "untouched");
            else if (!is_bucket(&bed.policy)) /* a count, or a debt, is no larger than it was */
                assert_true(ask_bed(&bed, key, 0, STINT_PEEK).used <= bed.before[key].used);
        stint_close(bed.limiter);
    }
}
