/* SPDX-License-Identifier: MIT
 * Promises A and B under threads for what is more than a plain window: roll-over, reservations,
 * smooth windows, windows per key, stripes, several limits as one. (What is checked: turning.h.) */
#include "turning.h"

/* ---- Few keys, all windows turning ----------------------------------------------------------- */

static void check_kind(enum kind kind) {
    check_turning(kind, 1000, false);
    check_turning(kind, 1000, true);
}

TEST(test_rolling) {
    check_kind(ROLLING);
}

TEST(test_reserving) {
    check_kind(RESERVING);
}

TEST(test_smooth) {
    check_kind(SMOOTH);
}

TEST(test_per_key) {
    check_kind(PER_KEY);
}

TEST(test_striped) {
    check_kind(STRIPED);
}

TEST(test_first) {
    check_kind(BY_FIRST);
}

/* Four slots for four keys and a flood of others: a slot that carries must not change hands. */
TEST(test_crowded) {
    check_turning(ROLLING, 2, false);
    check_turning(RESERVING, 2, false);
    check_turning(SMOOTH, 2, false);
    check_turning(PER_KEY, 2, false);
    check_turning(BY_FIRST, 2, false);
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
TEST(test_hot_key) {
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
TEST(test_hot_key_gathers) {
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
TEST(test_striped_beside_too_dear) {
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
TEST(test_charges) {
    uint64_t seed = test_seed();
    for (uint64_t round = 0; round < test_rounds(200); round++) {
        struct charged charged = {
            .limiter = open_anywhere(1000), .seed = seed + round * 100, .takes = round % 2 == 0};
        static const enum kind kinds[] = {ROLLING, RESERVING, SMOOTH, PER_KEY, STRIPED, BY_FIRST};
        const enum kind kind = kinds[round / 2 % 6];
        struct stint_policy policy = kind_policy(kind);
        policy.window = 60 * TICK;
        policy.limit = 4 + (uint32_t)(round % 300);
        if (policy.capacity != 0)
            policy.capacity = policy.limit + 8000; /* more than all that is charged */
        if (policy.max_reserved != 0)
            policy.max_reserved = 8000;
        charged.policy = add_made(charged.limiter, &policy);
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
TEST(test_plain_to_rolling) {
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

/* ---- Several limits as one ------------------------------------------------------------------- */

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
TEST(test_all_or_nothing) {
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
        cmocka_unit_test(test_rolling),
        cmocka_unit_test(test_reserving),
        cmocka_unit_test(test_smooth),
        cmocka_unit_test(test_per_key),
        cmocka_unit_test(test_striped),
        cmocka_unit_test(test_first),
        cmocka_unit_test(test_crowded),
        cmocka_unit_test(test_hot_key),
        cmocka_unit_test(test_hot_key_gathers),
        cmocka_unit_test(test_all_or_nothing),
        cmocka_unit_test(test_striped_beside_too_dear),
        cmocka_unit_test(test_charges),
        cmocka_unit_test(test_plain_to_rolling),
    };
    return cmocka_run_group_tests_name("features-threads", tests, NULL, NULL);
}
