/* SPDX-License-Identifier: MIT
 * Promises A and B under threads for what is more than a plain window: roll-over, reservations,
 * smooth windows, windows per key, stripes, several limits as one. What is checked of each is exact,
 * and follows from the order in which a slot's words were written, whatever that order was:
 *
 *  - Roll-over and reservations. Let level(w) = max(0, level(w - 1) - limit) + granted(w) be what is
 *    used at the end of window w. It is never more than capacity + max_reserved; that is the same as
 *    granted <= capacity + max_reserved + limit * (n - 1) over any run of n windows. If a request for
 *    one token was refused in w without reserving, level(w) >= capacity.
 *  - Smooth. All that is granted in w is granted against the whole of granted(w - 1), and the last of
 *    it when no less time was left than `least_left`, the least of any granted in w. So
 *    ceil(granted(w - 1) * least_left / window) + granted(w) <= limit. If one token was refused with
 *    `left`, then ceil(granted(w - 1) * left / window) + granted(w) >= limit.
 *  - Stripes and windows per key: granted(w) <= limit; if one token was refused,
 * equal. */
#include "team.h"

enum kind { ROLLING, RESERVING, SMOOTH, PER_KEY, STRIPED, KINDS };

static const char *const kind_names[KINDS] = {"rolling", "reserving", "smooth", "per key",
                                              "striped"};

/* ---- Few keys, all windows turning ----------------------------------------------------------- */

enum { KEYS = 4, WINDOWS = 4096 };

/* What the threads saw of one key in one window. */
struct seen {
    uint32_t granted;
    uint32_t refunded;
    uint32_t refused; /* requests for one token, without STINT_RESERVE */
    uint32_t first_refusals;
    uint64_t least_left;         /* ns, of those granted, and at most the window */
    uint64_t least_refused_left; /* of those refused */
};

struct turning {
    struct stint_limiter *limiter;
    struct stint_policy policies[KEYS];
    uint32_t ids[KEYS];
    stint_key keys[KEYS];
    struct seen seen[KEYS][WINDOWS];
    uint64_t phases[KEYS]; /* where in the window its windows start, plus 1; 0: not seen yet */
    uint64_t wrong_phases;
    uint64_t over_used; /* granted with more used than its room */
    uint64_t seed;
    uint64_t requests; /* of each thread */
    bool mixed;        /* costs above 1, partial takes and refunds as well */
    uint32_t flood;    /* id of the policy of ever new keys; 0: no flood */
};

static void lower(uint64_t *least, uint64_t value) {
    uint64_t seen = __atomic_load_n(least, __ATOMIC_RELAXED);
    while (value < seen && !__atomic_compare_exchange_n(least, &seen, value, false,
                                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

static void note_phase(struct turning *turning, unsigned key, uint64_t window) {
    uint64_t phase = window % turning->policies[key].window + 1, seen = 0;
    if (!__atomic_compare_exchange_n(&turning->phases[key], &seen, phase, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED) &&
        seen != phase)
        __atomic_fetch_add(&turning->wrong_phases, 1, __ATOMIC_RELAXED);
}

static void turning_body(unsigned member, void *shared) {
    struct turning *turning = shared;
    struct random random = {turning->seed + member};

    for (uint64_t i = 0; i < turning->requests; i++) {
        unsigned key = (unsigned)random_below(&random, KEYS);
        const struct stint_policy *policy = &turning->policies[key];
        struct stint_request request = {
            .key = turning->keys[key], .policy = turning->ids[key], .cost = 1};
        struct stint_verdict verdict;

        /* Everybody turns the clock; some decide at a time that they read a while ago. */
        uint64_t now = test_clock();
        if (random_below(&random, 64) == 0)
            __atomic_fetch_add(&test_time, random_below(&random, TICK / 4), __ATOMIC_SEQ_CST);
        if (random_below(&random, 16) == 0)
            sched_yield();
        if (turning->flood != 0 && random_below(&random, 8) == 0)
            stint_take(turning->limiter, turning->flood, random_next(&random), 1, now, NULL);
        if (random_below(&random, 4) != 0)
            now = STINT_NOW;
        if (policy->max_reserved > 0 && random_below(&random, 3) == 0)
            request.flags = STINT_RESERVE;
        if (turning->mixed && random_below(&random, 4) == 0) {
            request.cost = (uint32_t)random_below(&random, 5);
            request.flags |= random_below(&random, 2) == 0 ? STINT_PARTIAL : 0;
        }
        stint_decide(turning->limiter, &request, now, &verdict);
        if ((verdict.flags & STINT_UNTRACKED) != 0)
            continue;
        uint64_t index = (verdict.window - EPOCH) / policy->window;
        if (index >= WINDOWS)
            abort(); /* threads cannot use cmocka's asserts */
        struct seen *seen = &turning->seen[key][index];
        uint64_t left = verdict.reset_after < policy->window ? verdict.reset_after : policy->window;
        note_phase(turning, key, verdict.window);
        __atomic_fetch_add(&seen->granted, verdict.granted, __ATOMIC_RELAXED);
        if (verdict.granted > 0) {
            lower(&seen->least_left, left);
            uint32_t room = verdict.capacity;
            if ((request.flags & STINT_RESERVE) != 0)
                room += policy->max_reserved;
            if (verdict.used > room && policy->stripes <= 1)
                __atomic_fetch_add(&turning->over_used, 1, __ATOMIC_RELAXED);
        }
        if (!verdict.allowed && request.cost == 1 && (request.flags & STINT_RESERVE) == 0) {
            __atomic_fetch_add(&seen->refused, 1, __ATOMIC_RELAXED);
            lower(&seen->least_refused_left, left);
        }
        if ((verdict.flags & STINT_FIRST_REFUSAL) != 0)
            __atomic_fetch_add(&seen->first_refusals, 1, __ATOMIC_RELAXED);
        if (turning->mixed && verdict.granted != 0 && random_below(&random, 8) == 0) {
            uint32_t back = stint_refund(turning->limiter, request.policy, request.key,
                                         verdict.granted, verdict.window);
            __atomic_fetch_add(&seen->refunded, back, __ATOMIC_RELAXED);
        }
    }
}

static struct stint_policy policy_of(enum kind kind, unsigned key, uint64_t round) {
    static const uint32_t limits[] = {1, 2, 7, 60, 300};
    struct stint_policy policy = STINT_POLICY_INIT;
    policy.limit = limits[(key + round) % 5];
    policy.window = TICK * (1 + (key * 3 + round) % 7);
    switch (kind) {
    case ROLLING:
        policy.capacity = policy.limit + 1 + (uint32_t)(round % 3) * policy.limit;
        break;
    case RESERVING:
        policy.capacity = round % 2 == 0 ? 0 : policy.limit * 2;
        policy.max_reserved = 1 + policy.limit * (uint32_t)(round % 4);
        break;
    case SMOOTH:
        policy.flags = STINT_SMOOTH;
        break;
    case PER_KEY:
        policy.flags = STINT_START_PER_KEY;
        break;
    default:
        policy.limit += 4;
        policy.stripes = 2u << (key % 2);
    }
    return policy;
}

static uint64_t share_of(uint64_t previous, uint64_t left, uint64_t window) {
    return (previous * left + window - 1) / window;
}

/* Returns how many windows were full. */
static uint64_t check_key(const struct turning *turning, enum kind kind, unsigned key,
                          uint64_t strays) {
    const struct stint_policy *policy = &turning->policies[key];
    uint64_t capacity = policy->capacity ? policy->capacity : policy->limit;
    uint64_t room = capacity + policy->max_reserved, level = 0, previous = 0, full = 0;

    for (unsigned w = 0; w < WINDOWS; w++) {
        const struct seen *seen = &turning->seen[key][w];
        uint64_t granted = seen->granted - seen->refunded, least = 0, most = 0;
        if (kind == ROLLING || kind == RESERVING) {
            level = (level > policy->limit ? level - policy->limit : 0) + granted;
            least = most = level;
        } else if (kind == SMOOTH) {
            most = granted; /* at the least weight that anything granted had */
            if (granted > 0 && !turning->mixed)
                most += share_of(previous, seen->least_left, policy->window);
            least = granted + share_of(previous, seen->least_refused_left, policy->window);
        } else {
            least = most = granted;
        }
        if (most > room) /* A */
            fail_msg("%s, key %u, window %u: %u granted, %u refunded, %llu before: %llu of %llu",
                     kind_names[kind], key, w, seen->granted, seen->refunded,
                     (unsigned long long)previous, (unsigned long long)most,
                     (unsigned long long)room);
        if (!turning->mixed && seen->refused > 0 && least + strays < capacity) /* B */
            fail_msg("%s, key %u, window %u: %u refused, %u granted, %llu before: %llu of %llu",
                     kind_names[kind], key, w, seen->refused, seen->granted,
                     (unsigned long long)previous, (unsigned long long)least,
                     (unsigned long long)capacity);
        assert_true(seen->first_refusals <= 1);
        if (!turning->mixed && kind != RESERVING)
            assert_int_equal(seen->first_refusals, seen->refused > 0);
        previous = granted;
        full += seen->refused > 0;
    }
    return full;
}

static void check_turning(enum kind kind, bool crowded, bool mixed) {
    static struct turning turning;
    uint64_t seed = test_seed(), full = 0;

    for (uint64_t round = 0; round < test_rounds(8); round++) {
        memset(&turning, 0, sizeof(turning));
        turning.seed = seed + round * 1000;
        turning.requests = 30000;
        turning.mixed = mixed;
        turning.limiter = open_anywhere(crowded ? 2 : 1000);
        set_time(EPOCH + TICK / 2);
        for (unsigned key = 0; key < KEYS; key++) {
            turning.policies[key] = policy_of(kind, key, round);
            snprintf(turning.policies[key].name, STINT_NAME_SIZE, "%u", key);
            int id = policy_added(turning.limiter, &turning.policies[key]);
            if (id < 0)
                fail_msg("%s", stint_reason());
            turning.ids[key] = (uint32_t)id;
            turning.keys[key] = stint_key_of(turning.limiter, &key, sizeof(key));
            for (unsigned w = 0; w < WINDOWS; w++)
                turning.seen[key][w].least_left = turning.seen[key][w].least_refused_left =
                    turning.policies[key].window;
        }
        if (crowded) {
            struct stint_policy policy = STINT_POLICY_INIT;
            strcpy(policy.name, "flood");
            policy.limit = 1;
            policy.window = TICK;
            turning.flood = (uint32_t)policy_added(turning.limiter, &policy);
        }
        lose_cores(round % 2 == 1);
        run_team(turning_body, &turning);
        lose_cores(false);
        assert_int_equal(turning.wrong_phases, 0);
        assert_int_equal(turning.over_used, 0);
        for (unsigned key = 0; key < KEYS; key++)
            full += check_key(&turning, kind, key, get_stats(turning.limiter).stray_tokens);
        stint_close(turning.limiter);
    }
    print_message("%s: %llu full windows\n", kind_names[kind], (unsigned long long)full);
    assert_true(full > 100 / environment_number("STINT_TEST_DIVISOR", 1)); /* put to the test */
}

static void check_kind(enum kind kind) {
    check_turning(kind, false, false);
    check_turning(kind, false, true);
}

static void test_rolling(void **state) {
    (void)state;
    check_kind(ROLLING);
}

static void test_reserving(void **state) {
    (void)state;
    check_kind(RESERVING);
}

static void test_smooth(void **state) {
    (void)state;
    check_kind(SMOOTH);
}

static void test_per_key(void **state) {
    (void)state;
    check_kind(PER_KEY);
}

static void test_striped(void **state) {
    (void)state;
    check_kind(STRIPED);
}

/* Four slots for four keys and a flood of others: a slot that carries must not change hands. */
static void test_crowded(void **state) {
    (void)state;
    check_turning(ROLLING, true, false);
    check_turning(RESERVING, true, false);
    check_turning(SMOOTH, true, false);
    check_turning(PER_KEY, true, false);
}

/* ---- A hot key in stripes -------------------------------------------------------------------- */

struct hot {
    struct stint_limiter *limiter;
    uint32_t policy;
    uint32_t limit;
    uint32_t granted;
    uint32_t first_refusals;
    uint32_t cost;
};

static void hot_body(unsigned member, void *shared) {
    struct hot *hot = shared;
    (void)member;
    for (uint32_t i = 0; i < hot->limit + 10; i++) {
        struct stint_verdict verdict;
        stint_take(hot->limiter, hot->policy, 7, hot->cost, STINT_NOW, &verdict);
        __atomic_fetch_add(&hot->granted, verdict.granted, __ATOMIC_RELAXED);
        if ((verdict.flags & STINT_FIRST_REFUSAL) != 0)
            __atomic_fetch_add(&hot->first_refusals, 1, __ATOMIC_RELAXED);
    }
}

/* However the threads meet, the limit is granted to the token. */
static void test_hot_key(void **state) {
    (void)state;
    for (uint64_t round = 0; round < test_rounds(400); round++) {
        struct hot hot = {.limiter = open_anywhere(1000), .cost = 1};
        struct stint_policy policy = STINT_POLICY_INIT;
        policy.stripes = 1u << (round % 7);
        policy.limit = hot.limit = policy.stripes + (uint32_t)(round * 37 % 500);
        policy.window = 60 * TICK;
        int id = policy_added(hot.limiter, &policy);
        assert_true(id >= 0);
        hot.policy = (uint32_t)id;
        for (unsigned window = 0; window < 3; window++) {
            hot.granted = hot.first_refusals = 0;
            set_time(EPOCH + window * policy.window);
            run_team(hot_body, &hot);
            if (hot.granted != hot.limit)
                fail_msg("%u stripes, window %u: %u granted of %u", policy.stripes, window,
                         hot.granted, hot.limit);
            assert_int_equal(hot.first_refusals, 1);
        }
        stint_close(hot.limiter);
    }
}

/* Costs that are gathered from several stripes, given back where they do not fit. */
static void test_hot_key_gathers(void **state) {
    (void)state;
    for (uint64_t round = 0; round < test_rounds(400); round++) {
        struct hot hot = {.limiter = open_anywhere(1000), .cost = 3 + (uint32_t)(round % 40)};
        struct stint_policy policy = STINT_POLICY_INIT;
        policy.stripes = 8;
        policy.limit = hot.limit = 100;
        policy.window = 60 * TICK;
        int id = policy_added(hot.limiter, &policy);
        assert_true(id >= 0);
        hot.policy = (uint32_t)id;
        set_time(EPOCH);
        run_team(hot_body, &hot);
        struct stint_request look = {7, hot.policy, 0, 0, STINT_PEEK, 0};
        struct stint_verdict verdict;
        stint_decide(hot.limiter, &look, STINT_NOW, &verdict);
        assert_true(hot.granted <= hot.limit);
        assert_int_equal(verdict.used, hot.granted);
        /* With nobody else about, what is left is there. */
        bool fits = hot.granted + hot.cost <= hot.limit;
        assert_int_equal(stint_take(hot.limiter, hot.policy, 7, hot.cost, STINT_NOW, NULL), fits);
        stint_close(hot.limiter);
    }
}

/* One thread takes a token of a striped key and gives it back; the others ask for more than is
 * left, which never fits. */
struct beside {
    struct stint_limiter *limiter;
    uint32_t policy;
    uint32_t refused; /* of the one */
    uint32_t granted; /* of the others */
    uint32_t done;
};

static void beside_body(unsigned member, void *shared) {
    struct beside *beside = shared;
    enum { TAKES = 3000 };
    if (member != 0) {
        while (__atomic_load_n(&beside->done, __ATOMIC_RELAXED) == 0)
            __atomic_fetch_add(&beside->granted,
                               stint_take(beside->limiter, beside->policy, 7, 5, STINT_NOW, NULL),
                               __ATOMIC_RELAXED);
        return;
    }
    for (unsigned i = 0; i < TAKES; i++) {
        struct stint_verdict verdict;
        beside->refused += !stint_take(beside->limiter, beside->policy, 7, 1, STINT_NOW, &verdict);
        if (verdict.granted != 0)
            stint_refund(beside->limiter, beside->policy, 7, 1, verdict.window);
        if (i % 64 == 0)
            sched_yield();
    }
    __atomic_store_n(&beside->done, 1, __ATOMIC_RELAXED);
}

/* B: who fits is not refused for those who never do. */
static void test_striped_beside_too_dear(void **state) {
    (void)state;
    for (uint32_t stripes = 2; stripes <= 8; stripes *= 2) {
        struct beside beside = {.limiter = open_anywhere(1000)};
        struct stint_policy policy = STINT_POLICY_INIT;
        policy.stripes = stripes;
        policy.limit = 8;
        policy.window = 60 * TICK;
        int id = policy_added(beside.limiter, &policy);
        assert_true(id >= 0);
        beside.policy = (uint32_t)id;
        set_time(EPOCH);
        assert_true(stint_take(beside.limiter, beside.policy, 7, 4, STINT_NOW, NULL));
        lose_cores(true);
        run_team(beside_body, &beside);
        lose_cores(false);
        if (beside.refused != 0)
            fail_msg("%u stripes: %u of the requests for one token refused", stripes,
                     beside.refused);
        assert_int_equal(beside.granted, 0);
        stint_close(beside.limiter);
    }
}

/* ---- Charges -------------------------------------------------------------------------------- */

struct charged {
    struct stint_limiter *limiter;
    uint32_t policy;
    uint64_t seed;
    uint32_t granted, charged;
    bool takes; /* as well */
};

static void charged_body(unsigned member, void *shared) {
    struct charged *charged = shared;
    struct random random = {charged->seed + member};
    for (int i = 0; i < 300; i++) {
        bool take = charged->takes && random_below(&random, 2) == 0;
        const struct stint_request request = {
            .key = 7,
            .policy = charged->policy,
            .cost = take ? 1 : (uint32_t)random_below(&random, 4),
            .flags = take ? 0 : STINT_CHARGE,
        };
        struct stint_verdict verdict;
        stint_decide(charged->limiter, &request, STINT_NOW, &verdict);
        __atomic_fetch_add(take ? &charged->granted : &charged->charged, verdict.granted,
                           __ATOMIC_RELAXED);
    }
}

/* No charge is lost, and what is granted beside them is no more than the limit. */
static void test_charges(void **state) {
    (void)state;
    uint64_t seed = test_seed();
    for (uint64_t round = 0; round < test_rounds(200); round++) {
        struct charged charged = {
            .limiter = open_anywhere(1000), .seed = seed + round * 100, .takes = round % 2 == 0};
        enum kind kind = (enum kind)(round / 2 % KINDS);
        struct stint_policy policy = policy_of(kind, 0, round);
        policy.window = 60 * TICK;
        policy.limit = 4 + (uint32_t)(round % 300);
        if (policy.capacity != 0)
            policy.capacity = policy.limit + 8000; /* more than all that is charged */
        if (policy.max_reserved != 0)
            policy.max_reserved = 8000;
        int id = policy_added(charged.limiter, &policy);
        if (id < 0)
            fail_msg("%s", stint_reason());
        charged.policy = (uint32_t)id;
        set_time(EPOCH);
        lose_cores(round % 4 < 2);
        run_team(charged_body, &charged);
        lose_cores(false);
        const struct stint_request look = {7, charged.policy, 0, 0, STINT_PEEK, 0};
        struct stint_verdict verdict;
        stint_decide(charged.limiter, &look, STINT_NOW, &verdict);
        uint32_t taken = charged.granted + charged.charged;
        /* By up to one for each thread that was refused at the same instant as others. */
        uint32_t most = taken + (charged.takes ? (uint32_t)THREADS : 0);
        if (verdict.used < taken || verdict.used > most || charged.granted > verdict.capacity)
            fail_msg("round %llu, %s: %u granted and %u charged, %u used",
                     (unsigned long long)round, kind_names[kind], charged.granted, charged.charged,
                     verdict.used);
        struct stint_policy_stats stats = STINT_POLICY_STATS_INIT;
        assert_int_equal(stint_policy_stats_get(charged.limiter, charged.policy, &stats), 0);
        assert_int_equal(stats.charged, charged.charged);
        assert_true(charged.takes || stats.allowed + stats.refused == 0);
        stint_close(charged.limiter);
    }
}

/* ---- From plain to roll-over ---------------------------------------------------------------- */

enum { DEBTORS = 2000, EACH = 3 };

struct debtors {
    struct stint_limiter *limiter;
    uint32_t policy;
    stint_key keys[DEBTORS];
    uint32_t granted;
};

static void debtors_body(unsigned member, void *shared) {
    struct debtors *debtors = shared;
    uint32_t granted = 0;
    (void)member;
    for (unsigned k = 0; k < DEBTORS; k++)
        for (unsigned i = 0; i < EACH; i++)
            granted +=
                stint_take(debtors->limiter, debtors->policy, debtors->keys[k], 1, STINT_NOW, NULL);
    __atomic_fetch_add(&debtors->granted, granted, __ATOMIC_RELAXED);
}

/* Threads that race for the last token of a plain policy count past the limit, which hides that.
 * When the policy becomes one that carries, it is nobody's debt in the next window. */
static void test_plain_to_rolling(void **state) {
    (void)state;
    for (uint64_t round = 0; round < test_rounds(6); round++) {
        struct debtors debtors = {.limiter = open_anywhere(10000)};
        struct stint_policy policy = STINT_POLICY_INIT;
        policy.limit = EACH;
        policy.window = 60 * TICK;
        int id = policy_added(debtors.limiter, &policy);
        assert_true(id >= 0);
        debtors.policy = (uint32_t)id;
        for (unsigned k = 0; k < DEBTORS; k++)
            debtors.keys[k] = stint_key_of(debtors.limiter, &k, sizeof(k));
        set_time(EPOCH);
        lose_cores(true);
        run_team(debtors_body, &debtors);
        lose_cores(false);
        assert_int_equal(debtors.granted, DEBTORS * EACH);
        policy.capacity = round % 2 == 0 ? EACH + 1 : 10 * EACH;
        assert_int_equal(stint_policy_change(debtors.limiter, debtors.policy, &policy), 0);
        set_time(EPOCH + 60 * TICK);
        unsigned in_debt = 0;
        for (unsigned k = 0; k < DEBTORS; k++) {
            struct stint_request look = {debtors.keys[k], debtors.policy, 0, 0, STINT_PEEK, 0};
            struct stint_verdict verdict;
            stint_decide(debtors.limiter, &look, STINT_NOW, &verdict);
            in_debt += verdict.used != 0 || verdict.remaining != policy.capacity;
        }
        if (in_debt != 0)
            fail_msg("%u of %u keys are in debt", in_debt, (unsigned)DEBTORS);
        stint_close(debtors.limiter);
    }
}

/* ---- Several limits as one -------------------------------------------------------------------- */

enum { LIMITS = 5 };

struct several {
    struct stint_limiter *limiter;
    uint32_t ids[LIMITS];
    uint32_t granted[LIMITS];
    uint64_t seed;
    uint32_t torn; /* calls that were granted in part */
};

/* Half of the threads ask in one order, half in the other. */
static void several_body(unsigned member, void *shared) {
    struct several *several = shared;
    struct random random = {several->seed + member};

    for (int i = 0; i < 200; i++) {
        struct stint_request requests[LIMITS];
        struct stint_verdict verdicts[LIMITS];
        uint32_t cost = 1 + (uint32_t)random_below(&random, 3);
        size_t n = 2 + random_below(&random, LIMITS - 1);
        for (size_t r = 0; r < n; r++) {
            size_t limit = member % 2 == 0 ? r : n - 1 - r;
            requests[r] =
                (struct stint_request){.key = 9, .policy = several->ids[limit], .cost = cost};
        }
        const size_t ends[3] = {0, n, n}; /* empty groups are allowed */
        bool all = random_below(&random, 2) == 0
                       ? stint_decide_all(several->limiter, requests, n, STINT_NOW, verdicts)
                       : stint_decide_groups(several->limiter, requests, ends, 3, STINT_NOW,
                                             verdicts) == 3;
        for (size_t r = 0; r < n; r++) {
            if (verdicts[r].granted != (all ? cost : 0))
                __atomic_fetch_add(&several->torn, 1, __ATOMIC_RELAXED);
            size_t limit = member % 2 == 0 ? r : n - 1 - r;
            __atomic_fetch_add(&several->granted[limit], verdicts[r].granted, __ATOMIC_RELAXED);
        }
        if (random_below(&random, 8) == 0)
            sched_yield();
    }
}

/* Nothing is over-admitted, and nothing stays charged for what was refused. */
static void test_all_or_nothing(void **state) {
    (void)state;
    uint64_t seed = test_seed();
    for (uint64_t round = 0; round < test_rounds(600); round++) {
        struct several several = {.limiter = open_anywhere(1000), .seed = seed + round * 100};
        uint32_t room[LIMITS];
        for (size_t p = 0; p < LIMITS; p++) {
            struct stint_policy policy = STINT_POLICY_INIT;
            snprintf(policy.name, sizeof(policy.name), "%zu", p);
            policy.limit = 40 + (uint32_t)((p * 31 + round * 7) % 60);
            policy.window = 60 * TICK * (1 + p % 2);
            room[p] = policy.limit;
            if ((p + round) % LIMITS == 1)
                policy.capacity = room[p] = policy.limit + 20;
            else if ((p + round) % LIMITS == 2)
                policy.flags = STINT_SMOOTH;
            else if ((p + round) % LIMITS == 3)
                policy.stripes = 4;
            int id = policy_added(several.limiter, &policy);
            assert_true(id >= 0);
            several.ids[p] = (uint32_t)id;
        }
        set_time(EPOCH);
        run_team(several_body, &several);
        assert_int_equal(several.torn, 0);
        for (size_t p = 0; p < LIMITS; p++) {
            struct stint_request look = {9, several.ids[p], 0, 0, STINT_PEEK, 0};
            struct stint_verdict verdict;
            stint_decide(several.limiter, &look, STINT_NOW, &verdict);
            if (several.granted[p] > room[p] || verdict.used != several.granted[p])
                fail_msg("round %llu, policy %zu: %u granted, %u used, of %u",
                         (unsigned long long)round, p, several.granted[p], verdict.used, room[p]);
        }
        stint_close(several.limiter);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rolling),        cmocka_unit_test(test_reserving),
        cmocka_unit_test(test_smooth),         cmocka_unit_test(test_per_key),
        cmocka_unit_test(test_striped),        cmocka_unit_test(test_crowded),
        cmocka_unit_test(test_hot_key),        cmocka_unit_test(test_hot_key_gathers),
        cmocka_unit_test(test_all_or_nothing), cmocka_unit_test(test_striped_beside_too_dear),
        cmocka_unit_test(test_charges),        cmocka_unit_test(test_plain_to_rolling),
    };
    return cmocka_run_group_tests_name("features-threads", tests, NULL, NULL);
}
