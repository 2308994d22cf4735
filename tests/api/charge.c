/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * Charges, the look before a charge, and what is given back of several requests at once: what is
 * counted, on full tables, striped, and as a part of several. (What they do to a count, case by
 * case: scripts of features.c.) */
#include "base/limiter.h"
#include "kinds.h"
#include "random.h"
#include "told.h"

enum {
    FIRST = STINT_FIRST_REFUSAL,
    UNTRACKED = STINT_UNTRACKED,
    PEEK = STINT_PEEK,
    CHARGE = STINT_CHARGE,
    LOOK = STINT_PEEK | STINT_CHARGE,
    MOST = STINT_LIMIT_MAX,
};

/* The counts of a policy are so many more than `before`, which becomes what they are. */
struct counted {
    uint64_t allowed, refused, shadowed, first_refusals, untracked, charged, refunded;
};

static void assert_counted(struct stint_limiter *limiter, uint32_t id,
                           struct stint_policy_stats *before, struct counted counted, int line) {
    struct stint_policy_stats after = get_policy_stats(limiter, id);
    struct stint_policy_stats expected = *before;
    expected.allowed += counted.allowed;
    expected.refused += counted.refused;
    expected.shadowed += counted.shadowed;
    expected.first_refusals += counted.first_refusals;
    expected.untracked += counted.untracked;
    expected.charged += counted.charged;
    expected.refunded += counted.refunded;
    *before = after;
    if (memcmp(&after, &expected, sizeof after) != 0)
        fail_msg("line %d: policy %" PRIu32 ": allowed %" PRIu64 " refused %" PRIu64
                 " shadowed %" PRIu64 " first %" PRIu64 " untracked %" PRIu64 " charged %" PRIu64
                 " refunded %" PRIu64 ", expected %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
                 " %" PRIu64 " %" PRIu64 " %" PRIu64,
                 line, id, after.allowed, after.refused, after.shadowed, after.first_refusals,
                 after.untracked, after.charged, after.refunded, expected.allowed, expected.refused,
                 expected.shadowed, expected.first_refusals, expected.untracked, expected.charged,
                 expected.refunded);
}

#define COUNTED(limiter, id, before, ...)                                                          \
    assert_counted(limiter, id, before, (struct counted){__VA_ARGS__}, __LINE__)

/* ---- What is counted ------------------------------------------------------------------------ */

/* A charge is no decision, whatever is left; a look before it is one. */
static void check_counts(enum kind kind) {
    struct stint_limiter *limiter = open_kinds(1000, STINT_FULL_REFUSE);
    struct stint_policy policy = kind_policy(kind);
    uint32_t id = kind, capacity = policy.capacity ? policy.capacity : policy.limit;
    stint_key key = number_key(limiter, 1);
    struct stint_policy_stats stats = get_policy_stats(limiter, id);
    struct stint_verdict v = ask(limiter, id, key, capacity, LOOK);
    assert_true(v.allowed && v.granted == 0 && v.used == 0 && v.flags == 0);
    COUNTED(limiter, id, &stats, .allowed = 1);
    assert_int_equal(get_stats(limiter).used, 0); /* it took no slot */
    assert_true(ask(limiter, id, key, 0, CHARGE).allowed);
    assert_int_equal(get_stats(limiter).used, 0);

    v = ask(limiter, id, key, capacity, CHARGE);
    assert_true(v.allowed && v.granted == capacity && v.flags == 0);
    assert_true(v.retry_after == 0 && v.window == test_time + v.reset_after);
    COUNTED(limiter, id, &stats, .charged = capacity);
    v = ask(limiter, id, key, 3, CHARGE);
    uint32_t over = kind == ROLLING ? 0 : 3; /* all that a count which rolls over holds is there */
    assert_true(v.allowed && v.granted == over && v.flags == 0);
    COUNTED(limiter, id, &stats, .charged = over);
    assert_int_equal(used_of(limiter, id, key), capacity + over);
    assert_int_equal(stint_refund(limiter, id, key, 1, v.window), 1);
    COUNTED(limiter, id, &stats, .refunded = 1);
    ask(limiter, id, key, 1, CHARGE);
    COUNTED(limiter, id, &stats, .charged = 1);

    /* Charges have left the first refusal to the first decision that is refused. */
    bool shadow = kind == SHADOWING;
    v = ask(limiter, id, key, 1, LOOK);
    assert_int_equal(v.allowed, shadow);
    assert_int_equal(v.flags, FIRST | (shadow ? STINT_SHADOWED : 0));
    assert_true(v.retry_after != 0 && v.granted == 0);
    COUNTED(limiter, id, &stats, .refused = !shadow, .shadowed = shadow, .first_refusals = 1);
    v = ask(limiter, id, key, 1, LOOK);
    assert_int_equal(v.flags, shadow ? STINT_SHADOWED : 0);
    COUNTED(limiter, id, &stats, .refused = !shadow, .shadowed = shadow);
    ask(limiter, id, key, 1, PEEK);
    COUNTED(limiter, id, &stats, .charged = 0);
    assert_int_equal(used_of(limiter, id, key), capacity + over);

    /* All that was charged is given back, and no more. */
    assert_int_equal(stint_refund(limiter, id, key, UINT32_MAX, v.window), capacity + over);
    COUNTED(limiter, id, &stats, .refunded = capacity + over);
    assert_int_equal(stint_refund(limiter, id, key, 1, v.window), 0);
    assert_int_equal(stint_refund(limiter, id, key, 1, 0), 0);
    COUNTED(limiter, id, &stats, .refunded = 0);

    /* Without verdicts. */
    const struct stint_request charge = {.key = key, .policy = id, .cost = 2, .flags = CHARGE};
    assert_true(stint_decide(limiter, &charge, test_time, NULL));
    assert_int_equal(stint_decide_batch(limiter, &charge, 1, STINT_NOW, NULL), 1);
    COUNTED(limiter, id, &stats, .charged = 4);
    assert_int_equal(used_of(limiter, id, key), 4);
    stint_close(limiter);
}

TEST(test_counts) {
    for (int kind = 0; kind < MINUTES; kind++)
        check_counts((enum kind)kind);
}

/* The near limit is that of verdicts; it counts decisions alone. */
TEST_OF(test_near_limit_of_charges, 100, STINT_FULL_REFUSE, "10/minute near=50% name=p") {
    assert_int_equal(ask(limiter, id, 1, 6, CHARGE).flags, STINT_NEAR_LIMIT);
    assert_int_equal(get_policy_stats(limiter, id).near_limit, 0);
    assert_int_equal(ask(limiter, id, 1, 1, LOOK).flags, STINT_NEAR_LIMIT);
    assert_int_equal(get_policy_stats(limiter, id).near_limit, 1);
    assert_int_equal(get_policy_stats(limiter, id).allowed, 1);
}

/* The example of stint.h: failed logins, of whom each tries as often as he may. */
TEST_OF(test_failed_logins, 100, STINT_FULL_REFUSE, "3/minute") {
    unsigned tried = 0, logged = 0;
    for (int i = 0; i < 10; i++) {
        struct stint_request login = {.key = 7, .policy = id, .cost = 1, .flags = LOOK};
        struct stint_verdict verdict;
        if (!stint_decide(limiter, &login, STINT_NOW, &verdict)) {
            logged += (verdict.flags & FIRST) != 0;
            continue;
        }
        tried++;
        login.flags = CHARGE;
        assert_true(stint_decide(limiter, &login, STINT_NOW, NULL));
    }
    assert_int_equal(tried, 3);
    assert_int_equal(logged, 1);
    struct stint_policy_stats stats = get_policy_stats(limiter, id);
    assert_int_equal(stats.allowed, 3);
    assert_int_equal(stats.refused, 7);
    assert_int_equal(stats.first_refusals, 1);
    assert_int_equal(stats.charged, 3);
}

/* ---- Windows -------------------------------------------------------------------------------- */

/* A charge is of the window of now; of who is late, of the newer one that the key is in; and by
 * whoever is later than the window and 60 s, of the clock's. */
TEST(test_windows_of_charges) {
    struct stint_limiter *limiter = open_kinds(1000, STINT_FULL_REFUSE);
    static const uint64_t lates[] = {0, 1, 30 * SECOND, 2 * HOUR};
    for (uint32_t id = 0; id < MINUTES; id++) {
        for (size_t late = 0; late < sizeof lates / sizeof lates[0]; late++) {
            stint_key key = number_key(limiter, 10 * late + 1);
            test_time += 5 * MINUTE;
            struct stint_verdict begin = ask(limiter, id, key, 1, CHARGE);
            test_time = begin.window;
            struct stint_verdict next = ask(limiter, id, key, 0, PEEK);
            assert_true(next.window == begin.window + MINUTE);
            assert_int_equal(next.used, id == SMOOTH);
            assert_int_equal(ask(limiter, id, key, 40, CHARGE).granted, id == ROLLING     ? 20
                                                                        : id == RESERVING ? 25
                                                                                          : 40);
            struct stint_request request = {.key = key, .policy = id, .cost = 2, .flags = CHARGE};
            struct stint_verdict v;
            uint32_t used = used_of(limiter, id, key);
            assert_true(stint_decide(limiter, &request, test_time - lates[late], &v));
            assert_true(v.window == next.window);
            assert_int_equal(used_of(limiter, id, key), used + v.granted);
            assert_int_equal(v.granted, id == ROLLING || id == RESERVING ? 0 : 2);
        }
    }
    stint_close(limiter);
}

/* ---- Full tables ---------------------------------------------------------------------------- */

enum { SLOTS = 4 };

/* A table of four slots, which keys of another policy hold. */
static struct stint_limiter *open_held(enum stint_on_full on_full) {
    struct stint_limiter *limiter = open_kinds(2, on_full);
    uint32_t hour = add_policy(limiter, "hour", 9, HOUR, 0, 0);
    for (uint64_t k = 0; k < SLOTS; k++)
        assert_int_equal(ask(limiter, hour, number_key(limiter, k), 3 + (uint32_t)k, 0).flags, 0);
    test_time += 7;
    return limiter;
}

/* Without a slot nothing is charged, and never refused. */
TEST(test_full) {
    for (enum stint_on_full on_full = STINT_FULL_ADMIT; on_full <= STINT_FULL_REFUSE; on_full++) {
        struct stint_limiter *limiter = open_held(on_full);
        bool admit = on_full == STINT_FULL_ADMIT;
        struct copied copied = copy_table(limiter);
        for (uint32_t id = 0; id < MINUTES; id++) {
            stint_key key = number_key(limiter, 100);
            uint32_t capacity = id == ROLLING ? 20 : 10;
            struct stint_policy_stats stats = get_policy_stats(limiter, id);
            struct stint_verdict v = ask(limiter, id, key, 1000, CHARGE);
            struct stint_verdict expected = {.allowed = true,
                                             .flags = UNTRACKED,
                                             .capacity = capacity,
                                             .remaining = capacity,
                                             .reset_after = v.reset_after};
            assert_verdict(&v, &expected, __LINE__);
            assert_true(id == PER_KEY ? v.reset_after > 0 && v.reset_after <= MINUTE
                                      : v.reset_after == MINUTE - 7);
            COUNTED(limiter, id, &stats, .charged = 0);

            /* The look is decided as a take would be. */
            v = ask(limiter, id, key, 3, LOOK);
            bool allowed = admit || id == SHADOWING;
            expected.allowed = allowed;
            expected.flags |= !admit && id == SHADOWING ? STINT_SHADOWED : 0;
            expected.remaining = admit ? capacity : 0;
            expected.retry_after = admit ? 0 : v.reset_after;
            assert_verdict(&v, &expected, __LINE__);
            COUNTED(limiter, id, &stats, .allowed = admit, .refused = !allowed,
                    .shadowed = allowed && !admit, .untracked = 1);
            v = ask(limiter, id, key, capacity + 30, LOOK);
            assert_int_equal(v.allowed, id == SHADOWING);
            assert_int_equal(v.flags | STINT_SHADOWED, UNTRACKED | STINT_SHADOWED);
            assert_true(v.retry_after == STINT_NEVER);
            COUNTED(limiter, id, &stats, .refused = id != SHADOWING, .shadowed = id == SHADOWING,
                    .untracked = 1);
        }
        assert_untouched(limiter, &copied);
        stint_close(limiter);
    }
}

/* With STINT_FULL_REPLACE a charge gets a slot, and a look takes nobody's. */
TEST(test_full_replaces) {
    for (uint32_t id = 0; id < MINUTES; id++) {
        struct stint_limiter *limiter = open_held(STINT_FULL_REPLACE);
        stint_key key = number_key(limiter, 100);
        struct copied copied = copy_table(limiter);
        struct stint_policy_stats stats = get_policy_stats(limiter, id);
        struct stint_verdict v = ask(limiter, id, key, 10, LOOK);
        assert_true(v.allowed && v.granted == 0 && v.used == 0);
        assert_int_equal(v.flags, 0);
        COUNTED(limiter, id, &stats, .allowed = 1);
        assert_int_equal(ask(limiter, id, key, 1000, LOOK).allowed, id == SHADOWING);
        assert_int_equal(get_stats(limiter).replaced, 0);
        assert_untouched(limiter, &copied);
        stats = get_policy_stats(limiter, id);
        if (id != STRIPED) {
            v = ask(limiter, id, key, 8, CHARGE);
            assert_true(v.allowed && v.granted == 8 && v.used == 8);
            assert_int_equal(v.flags, STINT_REPLACED);
            COUNTED(limiter, id, &stats, .charged = 8);
            assert_int_equal(used_of(limiter, id, key), 8);
            assert_int_equal(get_stats(limiter).replaced, 1);
            assert_int_equal(used_of(limiter, MINUTES, number_key(limiter, 0)),
                             0); /* 3 of 3 4 5 6 */
            assert_int_equal(used_of(limiter, MINUTES, number_key(limiter, 1)), 4);
        } else {
            v = ask(limiter, id, key, 2, CHARGE);
            assert_true(v.allowed && v.granted == 2);
            assert_int_equal(v.flags, STINT_REPLACED);
            COUNTED(limiter, id, &stats, .charged = 2);
        }
        stint_close(limiter);
    }
}

/* ---- Given back ----------------------------------------------------------------------------- */

/* All that several requests took, each in its window, and of nothing else. */
TEST(test_refund_all) {
    struct random random = {test_seed()};
    enum { KEYS = 3, MANY = 20 };
    for (uint64_t round = 0; round < test_rounds(200); round++) {
        struct stint_limiter *limiter = open_kinds(1000, STINT_FULL_REFUSE);
        struct stint_request requests[MANY];
        struct stint_verdict v[MANY];
        uint32_t before[MINUTES][KEYS];
        test_time = T0 + random_below(&random, HOUR);
        for (uint32_t id = 0; id < MINUTES; id++)
            for (stint_key k = 0; k < KEYS; k++)
                if (id != COUNTING) /* whose refusals are forgotten */
                    ask(limiter, id, number_key(limiter, k), (uint32_t)random_below(&random, 6), 0);
        size_t n = random_below(&random, MANY + 1);
        for (size_t r = 0; r < n; r++) {
            requests[r] =
                (struct stint_request){.key = number_key(limiter, random_below(&random, KEYS)),
                                       .policy = (uint32_t)random_below(&random, MINUTES),
                                       .cost = (uint32_t)random_below(&random, 3),
                                       .flags = random_below(&random, 4) == 0 ? LOOK : 0};
            if (random_below(&random, 8) == 0)
                requests[r].flags = STINT_PARTIAL;
        }
        for (uint32_t id = 0; id < MINUTES; id++)
            for (stint_key k = 0; k < KEYS; k++)
                before[id][k] = used_of(limiter, id, number_key(limiter, k));
        bool groups = random_below(&random, 2) == 0;
        size_t half = n / 2;
        if (groups) {
            const size_t ends[3] = {half, half, n};
            stint_decide_groups(limiter, requests, ends, 3, STINT_NOW, v);
        } else {
            stint_decide_all(limiter, requests, n, STINT_NOW, v);
        }
        uint64_t granted = 0, refunded = 0;
        for (size_t r = 0; r < n; r++)
            granted += v[r].granted;
        assert_true(stint_refund_all(limiter, requests, v, n) == granted);
        for (uint32_t id = 0; id < MINUTES; id++) {
            refunded += get_policy_stats(limiter, id).refunded;
            for (stint_key k = 0; k < KEYS; k++)
                if (id != COUNTING)
                    assert_int_equal(used_of(limiter, id, number_key(limiter, k)), before[id][k]);
        }
        assert_true(refunded == granted);
        assert_true(stint_refund_all(limiter, requests, v, 0) == 0);
        stint_close(limiter);
    }

    /* In the window that has ended since nothing is left to give back to. */
    struct stint_limiter *limiter = open_kinds(1000, STINT_FULL_REFUSE);
    struct stint_request requests[MINUTES];
    struct stint_verdict v[MINUTES];
    for (uint32_t id = 0; id < MINUTES; id++)
        requests[id] = (struct stint_request){number_key(limiter, 1), id, 4, 0, 0, 0};
    assert_true(stint_decide_all(limiter, requests, MINUTES, STINT_NOW, v));
    test_time += MINUTE;
    for (uint32_t id = 0; id < MINUTES; id++)
        ask(limiter, id, requests[id].key, 1, 0);
    stint_refund_all(limiter, requests, v, MINUTES);
    /* (The last window of a smooth policy still counts; a stripe that nobody has touched since is
     * in its own.) */
    for (uint32_t id = 0; id < MINUTES; id++)
        if (id != STRIPED)
            assert_int_equal(get_policy_stats(limiter, id).refunded, id == SMOOTH ? 4 : 0);
    for (uint32_t id = 0; id < MINUTES; id++)
        assert_int_equal(used_of(limiter, id, requests[id].key), 1);
    stint_close(limiter);
}

/* A late caller's key without a slot is looked at in the window of his time. The mark of its first
 * refusal gives it a slot in a later one, as slots of his window went to others. */
TEST(test_refused_whole_of_a_late_caller) {
    enum { OTHERS = 64 };
    struct stint_options options = fixture_options(OTHERS, STINT_FULL_REFUSE);
    options.shards = 1;
    struct stint_limiter *limiter = open_with(&options);
    uint32_t id = add_text(limiter, "1/minute capacity=10 name=rolling");
    stint_key key = number_key(limiter, 0);
    const struct stint_request requests[2] = {{key, id, 6, 0, 0, 0}, {key, id, 6, 0, 0, 0}};
    struct stint_verdict v[2];

    const uint64_t border = T0 - T0 % MINUTE + MINUTE, late = border - SECOND;
    test_time = late;
    for (uint32_t i = 1; i <= 2 * OTHERS; i++) {
        if (i == OTHERS + 1)
            test_time = border + 20 * SECOND;
        assert_true(stint_take(limiter, id, number_key(limiter, i), 1, STINT_NOW, NULL));
    }
    assert_false(stint_decide_all(limiter, requests, 2, late, v));
    assert_true(v[0].allowed);
    assert_int_equal(v[1].flags, FIRST);
    assert_int_equal(v[1].used, 6);
    assert_int_equal(v[1].window, border + MINUTE);
    assert_true(v[1].retry_after == STINT_NEVER); /* 12 of 10 */
    stint_close(limiter);
}

/* ---- Stripes --------------------------------------------------------------------------------- */

/* What is charged of a striped key on a full table is told, and so is that it is not all. */
TEST(test_striped_on_a_full_table) {
    bool partly = false;
    for (uint64_t others = 1; others < 60; others++) {
        struct stint_limiter *limiter = open_limiter(24, STINT_FULL_ADMIT);
        uint32_t id = add_text(limiter, "40/day stripes=8 name=striped");
        uint32_t plain = add_policy(limiter, "plain", 1, DAY, 0, 0);
        test_time = T0;
        for (uint64_t i = 1; i <= others; i++)
            (void)stint_take(limiter, plain, number_key(limiter, i), 1, STINT_NOW, NULL);
        struct stint_verdict v = ask(limiter, id, 5, 100, CHARGE);
        assert_true(v.allowed);
        assert_true(v.granted == 100 ? v.flags == 0 && v.window != 0
                                     : v.flags == STINT_UNTRACKED && v.window == 0);
        partly |= v.granted > 0 && v.granted < 100;
        assert_true(get_policy_stats(limiter, id).charged == v.granted);
        stint_close(limiter);
    }
    assert_true(partly);
}

/* A drain takes what is left by the request's limit, wherever the stripes hold what is used. */
TEST(test_striped_drains) {
    for (uint32_t taken = 0; taken <= 100; taken += 5) {
        for (uint32_t limit = 0; limit <= 100; limit += 10) {
            struct stint_limiter *limiter = open_limiter(100, STINT_FULL_REFUSE);
            struct stint_policy policy = make_policy("striped", 100, DAY, 0, 0);
            policy.stripes = 2;
            uint32_t id = add_made(limiter, &policy), capacity = limit != 0 ? limit : 100;
            struct stint_request request = {5, id, 101, limit, STINT_DRAIN, 0};
            struct stint_verdict v;
            test_time = T0;
            assert_int_equal(ask(limiter, id, 5, taken, STINT_PARTIAL).granted, taken);
            assert_false(stint_decide(limiter, &request, STINT_NOW, &v));
            assert_int_equal(v.used, taken < capacity ? capacity : taken);
            assert_int_equal(v.flags, FIRST);
            assert_int_equal(used_of(limiter, id, 5), v.used);
            stint_close(limiter);
        }
    }
}

/* ---- Groups --------------------------------------------------------------------------------- */

enum { GROUPS = 12, KEYS = 3, REQUESTS = GROUPS * 6 + STINT_ALL_MAX };

/* Random groups of all kinds, empty ones and such as make no sense among them. */
static size_t pick_groups(struct random *random, const struct stint_limiter *limiter,
                          struct stint_request *requests, size_t *ends) {
    static const uint32_t flags[] = {
        0,     0, 0, 0, 0, 0, LOOK, PEEK, STINT_PARTIAL, STINT_DRAIN, LOOK, 0, 0, STINT_RESERVE,
        CHARGE};
    size_t groups = random_below(random, GROUPS + 1), n = 0;
    for (size_t g = 0; g < groups; g++) {
        size_t parts = random_below(random, 5);
        if (random_below(random, 200) == 0 && g == 0)
            parts = STINT_ALL_MAX + random_below(random, 3);
        for (size_t i = 0; i < parts; i++) {
            struct stint_request *request = &requests[n++];
            *request = (struct stint_request){
                .key = number_key(limiter, random_below(random, KEYS)),
                .policy = (uint32_t)random_below(random, MINUTES),
                .cost = random_below(random, 3) == 0 ? (uint32_t)random_below(random, 5) : 1,
            };
            if (i > 0 && random_below(random, 5) == 0) {
                request->key = request[-1].key;
                request->policy = request[-1].policy;
            }
            if (random_below(random, 4) == 0)
                request->flags = flags[random_below(random, sizeof flags / sizeof flags[0])];
            if (random_below(random, 100) == 0)
                request->policy = MINUTES + 5;
            if (random_below(random, 20) == 0)
                request->limit = 1 + (uint32_t)random_below(random, 15);
        }
        ends[g] = n;
    }
    return groups;
}

/* Groups get the verdicts that each would get of stint_decide_all, one after the other. */
TEST(test_groups_are_wholes) {
    struct random random = {test_seed()};
    uint64_t whole = 0, refused = 0;
    for (uint64_t round = 0; round < test_rounds(150); round++) {
        bool crowded = random_below(&random, 3) == 0;
        enum stint_on_full on_full = (enum stint_on_full)random_below(&random, 3);
        struct stint_limiter *limiter = open_kinds(crowded ? 8 : 1000, on_full);
        struct stint_limiter *twin = open_kinds(crowded ? 8 : 1000, on_full);
        struct stint_limiter *silent = open_kinds(crowded ? 8 : 1000, on_full);
        test_time = T0 + random_below(&random, HOUR);
        for (int i = 0; i < 60; i++) {
            struct stint_request requests[REQUESTS];
            struct stint_verdict got[REQUESTS], expected[REQUESTS];
            size_t ends[GROUPS], groups = pick_groups(&random, limiter, requests, ends),
                                 allowed = 0;
            uint64_t now = test_time;
            if (random_below(&random, 4) == 0)
                now -= random_below(&random, 50 * SECOND);
            else if (random_below(&random, 2) == 0)
                now = STINT_NOW;
            memset(got, 0xa5, sizeof got);
            memset(expected, 0xa5, sizeof expected);
            for (size_t g = 0, begin = 0; g < groups; begin = ends[g++])
                allowed += stint_decide_all(twin, requests + begin, ends[g] - begin, now,
                                            expected + begin);
            size_t wholes = stint_decide_groups(limiter, requests, ends, groups, now, got);
            assert_int_equal(wholes, allowed);
            assert_int_equal(stint_decide_groups(silent, requests, ends, groups, now, NULL),
                             allowed);
            for (size_t r = 0; r < (groups > 0 ? ends[groups - 1] : 0); r++) {
                if (same_verdict(&got[r], &expected[r]))
                    continue;
                print_verdict("expected", &expected[r]);
                print_verdict("got     ", &got[r]);
                fail_msg("round %" PRIu64 ", call %d, request %zu: policy %" PRIu32
                         ", cost %" PRIu32 ", limit %" PRIu32 ", flags %#" PRIx32,
                         round, i, r, requests[r].policy, requests[r].cost, requests[r].limit,
                         requests[r].flags);
            }
            whole += allowed;
            refused += groups - allowed;
            test_time += random_below(&random, 20 * SECOND);
        }
        struct stint_limiter *others[2] = {limiter, silent};
        for (int o = 0; o < 2; o++) {
            struct stint_stats one = get_stats(twin), other = get_stats(others[o]);
            assert_memory_equal(&one, &other, sizeof one);
            for (uint32_t id = 0; id < MINUTES; id++) {
                struct stint_policy_stats a = get_policy_stats(twin, id);
                struct stint_policy_stats b = get_policy_stats(others[o], id);
                assert_memory_equal(&a, &b, sizeof a);
                for (stint_key k = 0; k < KEYS; k++) {
                    stint_key key = number_key(twin, k);
                    struct stint_verdict looked = ask(others[o], id, key, 1, PEEK);
                    struct stint_verdict expected = ask(twin, id, key, 1, PEEK);
                    assert_verdict(&looked, &expected, __LINE__);
                }
            }
        }
        stint_close(limiter);
        stint_close(twin);
        stint_close(silent);
    }
    print_message("%" PRIu64 " allowed, %" PRIu64 " refused\n", whole, refused);
    /* Requests by no policy alone refuse 1 group in 50. */
    assert_true(whole > refused && refused > whole / 100);
}

TEST(test_no_groups) {
    struct stint_limiter *limiter = open_kinds(1000, STINT_FULL_REFUSE);
    const size_t ends[] = {0, 0, 0};
    assert_int_equal(stint_decide_groups(limiter, NULL, NULL, 0, STINT_NOW, NULL), 0);
    assert_int_equal(stint_decide_groups(limiter, NULL, ends, 3, T0, NULL),
                     3); /* as all of nothing */
    stint_close(limiter);
}
