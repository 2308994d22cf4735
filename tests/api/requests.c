/* SPDX-License-Identifier: MIT
 * Windows per key and jitter, of many keys; and requests that make no sense. */
#include "kinds.h"
#include "limiter/limiter.h"

/* ---- Windows per key ------------------------------------------------------------------------ */

/* How far counts are from all being alike. */
static double chi_square(const unsigned *counts, size_t bins) {
    double sum = 0, chi = 0;
    for (size_t i = 0; i < bins; i++)
        sum += counts[i];
    for (size_t i = 0; i < bins; i++) {
        double off = counts[i] - sum / (double)bins;
        chi += off * off / (sum / (double)bins);
    }
    return chi;
}

static struct stint_limiter *open_with_secret(unsigned char filler) {
    unsigned char secret[STINT_SECRET_SIZE];
    memcpy(secret, test_secret(), sizeof secret);
    for (size_t i = 0; i < sizeof secret; i++)
        secret[i] ^= (unsigned char)(filler * i); /* not alike: XXH3 xors parts of it */
    struct stint_options options = fixture_options(20000, STINT_FULL_ADMIT);
    options.secret = secret;
    return open_with(&options);
}

TEST(test_windows_per_key) {
    enum { KEYS = 10000, BINS = 100 };
    static const uint64_t windows[] = {10 * MS, 100 * MS, MINUTE, HOUR, 366 * DAY};
    for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++) {
        uint64_t window = windows[i],
                 bins = window / STINT_TICK_NS < BINS ? window / STINT_TICK_NS : BINS;
        unsigned counts[BINS] = {0}, same_elsewhere = 0;
        struct stint_limiter *limiter = open_with_secret(0), *twin = open_with_secret(0),
                             *other = open_with_secret(1);
        uint32_t id = add_policy(limiter, "p", 2, window, 0, STINT_START_PER_KEY);
        add_policy(twin, "p", 2, window, 0, STINT_START_PER_KEY);
        add_policy(other, "p", 2, window, 0, STINT_START_PER_KEY);
        for (uint64_t k = 0; k < KEYS; k++) {
            stint_key key = number_key(limiter, k);
            test_time = T0 + 12345;
            struct stint_verdict v = ask(limiter, id, key, 1, 0);
            assert_true(v.allowed);
            assert_int_equal(v.window % STINT_TICK_NS, 0);
            assert_true(v.window > test_time && v.window <= test_time + window);
            assert_true(v.reset_after == v.window - test_time);
            uint64_t phase = v.window % window;
            counts[phase / (window / bins) < bins ? phase / (window / bins) : bins - 1]++;
            assert_true(ask(twin, id, number_key(twin, k), 1, STINT_PEEK).window == v.window);
            same_elsewhere +=
                ask(other, id, number_key(other, k), 1, STINT_PEEK).window == v.window;
        }
        if (bins > 1) {
            /* 99 or 9 degrees of freedom: beyond these bounds once in 10,000 secrets. */
            double chi = chi_square(counts, bins);
            print_message("window %" PRIu64 " ms: chi-square %.1f of %" PRIu64 " bins\n",
                          window / MS, chi, bins);
            assert_true(chi < (bins == 100 ? 161 : 34));
            if (bins == 100)
                assert_true(chi > 53);
            assert_true(same_elsewhere < KEYS / bins * 2);
        }
        stint_close(limiter);
        stint_close(twin);
        stint_close(other);
    }
}

/* ---- Jitter --------------------------------------------------------------------------------- */

/* gojek/heimdall#21, snyk/go-application-framework#649: clients that all come back at once. */
TEST(test_jitter) {
    enum { KEYS = 5000, BINS = 20 };
    static const uint32_t percents[] = {1, 10, 50, 100};
    for (size_t i = 0; i < sizeof percents / sizeof percents[0]; i++) {
        struct stint_limiter *limiter = open_limiter(KEYS, STINT_FULL_REFUSE);
        struct stint_policy policy = make_policy("p", 1, 100 * SECOND, (int64_t)T0, 0);
        policy.jitter = percents[i];
        uint32_t id = add_made(limiter, &policy);
        policy = make_policy("exact", 1, 100 * SECOND, (int64_t)T0, 0);
        uint32_t exact = add_made(limiter, &policy);
        uint64_t most = percents[i] * SECOND;
        unsigned counts[BINS] = {0}, same = 0;
        for (uint64_t k = 0; k < KEYS; k++) {
            stint_key key = number_key(limiter, k);
            test_time = T0 + 30 * SECOND;
            ask(limiter, exact, key, 1, 0);
            assert_true(ask(limiter, exact, key, 1, 0).retry_after == 70 * SECOND);
            struct stint_verdict v = ask(limiter, id, key, 1, 0);
            assert_true(v.allowed && v.retry_after == 0);
            v = ask(limiter, id, key, 1, 0);
            assert_false(v.allowed);
            assert_true(v.reset_after == 70 * SECOND);
            uint64_t jitter = v.retry_after - 70 * SECOND;
            assert_true(v.retry_after >= 70 * SECOND && jitter < most);
            counts[jitter * BINS / most]++;
            assert_true(ask(limiter, id, key, 1, STINT_PEEK).retry_after == v.retry_after);
            assert_true(ask(limiter, id, key, 2, 0).retry_after == STINT_NEVER);
            test_time = T0 + 100 * SECOND - 1;
            assert_true(ask(limiter, id, key, 1, 0).retry_after == jitter + 1);

            test_time = T0 + 100 * SECOND;
            ask(limiter, id, key, 1, 0);
            v = ask(limiter, id, key, 1, 0);
            assert_true(v.retry_after >= 100 * SECOND && v.retry_after - 100 * SECOND < most);
            same += v.retry_after - 100 * SECOND == jitter;
        }
        double chi = chi_square(counts, BINS);
        print_message("jitter %" PRIu32 "%%: chi-square %.1f of %d bins\n", percents[i], chi, BINS);
        assert_true(chi < 51); /* 19 degrees of freedom: once in 10,000 secrets */
        assert_true(same < KEYS / 50);
        stint_close(limiter);
    }
}

/* ---- Requests that make no sense ------------------------------------------------------------ */

static const struct stint_verdict bad_request = {
    .flags = STINT_BAD_REQUEST, .retry_after = STINT_NEVER, .policy = UINT32_MAX};

/* What the check says of them. (That it says it of no other: ask of tests/kit.) */
TEST(test_reasons_of_bad_requests) {
    enum { IN_FLIGHT = 1, IN_STRIPES, GONE, NONE = 1000 };
    enum {
        PEEK = STINT_PEEK,
        PARTIAL = STINT_PARTIAL,
        DRAIN = STINT_DRAIN,
        RESERVE = STINT_RESERVE,
        CHARGE = STINT_CHARGE
    };
    static const struct {
        struct stint_request request;
        const char *reason;
    } rows[] = {
        {{.policy = NONE}, "there is no policy of that id"},
        {{.policy = GONE}, "there is no policy of that id"},
        {{.policy = NONE, .flags = 1u << 31}, "there is no policy of that id"},
        {{.policy = GONE, .flags = 1u << 31}, "request.flags is 0x80000000, in which some flag"},
        {{.flags = PEEK | STINT_SHADOW}, "request.flags is 0x202, in which some flag"},
        {{.flags = CHARGE | 1 << 15}, "request.flags is 0xa000, in which some flag"},
        {{.reserved = 1}, "request.reserved must be 0: begin with STINT_REQUEST"},
        {{.flags = CHARGE | PARTIAL}, "STINT_CHARGE does not go with STINT_PARTIAL"},
        {{.flags = CHARGE | PEEK | DRAIN}, "STINT_CHARGE does not go with STINT_DRAIN"},
        {{.flags = CHARGE | RESERVE, .limit = 9}, "STINT_CHARGE does not go with STINT_RESERVE"},
        {{.flags = CHARGE, .limit = 9}, "STINT_CHARGE does not go with a limit"},
        {{.flags = CHARGE, .burst = 9}, "STINT_CHARGE does not go with a burst"},
        {{.burst = 9}, "request.burst goes with token buckets only"},
        {{.policy = IN_FLIGHT, .flags = CHARGE}, "STINT_CHARGE does not go with a policy that is"},
        {{.policy = IN_FLIGHT, .flags = DRAIN}, "STINT_DRAIN does not go with a policy that is"},
        {{.policy = IN_STRIPES, .flags = DRAIN},
         "STINT_DRAIN does not go with a policy of several"},
        {{.policy = IN_STRIPES, .flags = PARTIAL},
         "STINT_PARTIAL does not go with a policy of several stripes"},
        {{.policy = IN_STRIPES, .flags = PEEK | PARTIAL},
         "STINT_PARTIAL does not go with a policy of several stripes"},
        {{.policy = IN_STRIPES, .limit = 8},
         "a limit of the request's own does not go with a policy of several stripes"},
    };
    struct stint_limiter *limiter = open_limiter(100, STINT_FULL_ADMIT);
    struct stint_request good = STINT_REQUEST(0, 7, 1);
    const char *const texts[] = {"9/m", "8/m in-flight", "6/m stripes=2", "7/m"};
    for (uint32_t id = 0; id <= GONE; id++) {
        const struct stint_policy policy = parsed(texts[id]);
        assert_int_equal(policy_added(limiter, &policy), id);
        assert_true(stint_take(limiter, id, (stint_key){0}, 1, STINT_NOW, NULL));
    }
    assert_int_equal(stint_policy_remove(limiter, GONE), 0);
    for (size_t i = 0; i < 2 * (sizeof rows / sizeof *rows); i++) {
        struct stint_request request = rows[i / 2].request;
        struct stint_verdict v;
        request.cost = i % 2;
        stint_decide(limiter, &request, STINT_NOW, &v);
        assert_true((v.flags & (STINT_BAD_REQUEST | STINT_UNKNOWN_POLICY)) != 0);
        assert_checked(limiter, &request, v.flags);
        assert_reason(rows[i / 2].reason);
    }
    assert_int_equal(stint_request_check(limiter, &good), 0);
    stint_close(limiter);
}

/* More than can be decided as one. */
TEST(test_too_many_of_a_whole) {
    enum { MANY = 3 * STINT_ALL_MAX };
    struct stint_limiter *limiter = open_kinds(1000, STINT_FULL_ADMIT);
    struct stint_request requests[MANY];
    struct stint_verdict v[MANY + 1];
    for (size_t i = 0; i < MANY; i++)
        requests[i] = (struct stint_request){number_key(limiter, i), 0, 1, 0, 0, 0, 0};
    struct copied copied = copy_table(limiter);
    uint64_t bad = 0;
    for (size_t n = STINT_ALL_MAX + 1; n <= MANY; n += 50) {
        memset(v, 0xa5, sizeof v);
        v[n].granted = 77;
        assert_false(stint_decide_all(limiter, requests, n, STINT_NOW, v));
        for (size_t i = 0; i < n; i++)
            assert_verdict(&v[i], &bad_request, __LINE__);
        assert_int_equal(v[n].granted, 77);
        assert_false(stint_decide_all(limiter, requests, n, T0, NULL));
        bad += 2 * n;
        assert_int_equal(get_stats(limiter).bad_requests, bad);
    }
    assert_untouched(limiter, &copied);

    /* A group of them is refused, the others are not. */
    const size_t sizes[] = {2, STINT_ALL_MAX + 1, 0, 1, STINT_ALL_MAX};
    const size_t n = 2 * STINT_ALL_MAX + 4, bad_end = STINT_ALL_MAX + 3;
    memset(v, 0xa5, sizeof v);
    assert_int_equal(stint_decide_groups(limiter, requests, n, sizes, 5, STINT_NOW, v), 4);
    for (size_t i = 0; i < n; i++) {
        if (i >= 2 && i < bad_end)
            assert_verdict(&v[i], &bad_request, __LINE__);
        else
            assert_true(v[i].allowed && v[i].granted == 1 && v[i].used == 1);
        assert_int_equal(used_of(limiter, 0, requests[i].key), i < 2 || i >= bad_end);
    }
    assert_int_equal(get_stats(limiter).bad_requests, bad + STINT_ALL_MAX + 1);
    assert_int_equal(get_policy_stats(limiter, 0).allowed, n - (STINT_ALL_MAX + 1));
    assert_int_equal(get_policy_stats(limiter, 0).refused, 0);
    stint_close(limiter);
}
