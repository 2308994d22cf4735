/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * What went wrong with other limiters, as their users reported it, done with stint. Each has its
 * source, REPOSITORY#NUMBER on GitHub. Where another test has the case, its source stands there. */
#include "kinds.h"
#include "told.h"

#define S     SECOND
#define TOKEN UINT64_C(16666667) /* ns of a token by 60 a second */

/* ---- All kinds ------------------------------------------------------------------------------- */

/* A limiter with policies of all kinds, at an instant that is no border of anything. */
static struct stint_limiter *open_all(void) {
    struct stint_limiter *limiter = open_limiter(1000, STINT_FULL_REFUSE);
    add_kinds(limiter, KINDS);
    test_time = T0 + 10 * MS;
    return limiter;
}

/* redis/go-redis#3740, upstash/ratelimit-js#17, upstash/ratelimit-js#111: a look costs nothing, nor
 * does a request for 0 tokens. */
TEST(test_looks_cost_nothing) {
    struct stint_limiter *limiter = open_all();
    for (uint32_t id = 0; id < KINDS; id++) {
        const stint_key key = number_key(limiter, id);
        assert_int_equal(ask(limiter, id, key, 2, 0).granted, 2);
        const struct stint_verdict look = ask(limiter, id, key, 1, PEEK);
        struct copied copied = copy_table(limiter);
        assert_int_equal(look.used, 2);
        for (int i = 0; i < 3; i++) {
            assert_true(ask(limiter, id, key, 0, 0).allowed);
            const struct stint_verdict again = ask(limiter, id, key, 1, PEEK);
            assert_verdict(&again, &look, __LINE__);
        }
        assert_untouched(limiter, &copied);
    }
    stint_close(limiter);
}

/* redisson/redisson#7342: take and give back, ten times a second for long: all is there again. */
TEST(test_take_and_give_back) {
    struct stint_limiter *limiter = open_all();
    for (uint32_t id = 0; id < KINDS; id++)
        for (int i = 0; i < 1000; i++, test_time += 100 * MS) {
            struct stint_verdict v = ask(limiter, id, 5, 1, 0);
            ALLOWED(v, 0, ANY, 1);
            assert_int_equal(stint_refund(limiter, 5, &v, 1), 1);
            assert_int_equal(used_of(limiter, id, 5), 0);
        }
    stint_close(limiter);
}

/* BerriAI/litellm#14450, liwala/ay-framework#375, gravitee-io/issues#3884: of a limit of 1 the
 * first is granted and the second is not, however short the window is. */
TEST(test_limit_of_one) {
    static const char *const windows[] = {"10ms", "20ms", "100ms", "s", "day"},
                             *const options[] = {"",           "burst=1",       "smooth",
                                                 "in-flight",  "count-refused", "capacity=1",
                                                 "start=first"};
    for (size_t i = 0; i < 5 * 7; i++) {
        struct stint_limiter *limiter = open_limiter(10, STINT_FULL_REFUSE);
        char text[60];
        snprintf(text, sizeof text, "1/%s %s", windows[i % 5], options[i / 5]);
        const uint32_t id = add_text(limiter, text);
        test_time = T0;
        ALLOWED(ask(limiter, id, 1, 1, 0), 0, 1, 1);
        REFUSED(ask(limiter, id, 1, 1, 0), FIRST, ANY);
        REFUSED(ask(limiter, id, 1, 1, 0), 0, ANY);
        stint_close(limiter);
    }
}

/* chatmail/filtermail#167, by a clock that goes back itself: ten requests, each 4 ms before the one
 * before or after it. By times that are given, which are ahead of the clock, likewise. */
TEST(test_clock_a_little_back) {
    static const char *const texts[] = {"10/m name=p", "10/m burst=10 ban=1h name=p",
                                        "10/m smooth name=p", "10/m start=first name=p"};
    for (unsigned i = 0; i < 4 * 2; i++) {
        struct stint_limiter *limiter = open_limiter(10, STINT_FULL_REFUSE);
        const uint32_t id = add_text(limiter, texts[i / 2]);
        struct stint_verdict v;
        test_time = T0 + 20 * S;
        for (unsigned j = 0; j < 10; j++) {
            const uint64_t now = T0 + 20 * S + (j % 2 == 0 ? 4 * MS : 0);
            test_time = i % 2 == 0 ? now : test_time;
            stint_take(limiter, id, 1, 1, i % 2 == 0 ? STINT_NOW : now, &v);
            ALLOWED(v, 0, ANY, 1);
        }
        stint_close(limiter);
    }
}

/* ---- Steady demand --------------------------------------------------------------------------- */

/* One request each `step`: so many of them are granted. */
TEST(test_steady_demand) {
    static const struct {
        const char *source, *policy;
        uint64_t step; /* ns */
        unsigned requests, granted;
    } rows[] = {
        {"apache/apisix#5588", "3000/s", 2 * MS, 10000, 10000},
        {"apache/apisix#5588", "3000/s start=first", 2 * MS, 10000, 10000},
        {"apache/apisix#5588, haproxy/haproxy#1196", "3000/s smooth", 2 * MS, 10000, 10000},
        {"haproxy/haproxy#1224", "200/10s smooth", S, 1000, 1000},
        {"express-rate-limit/express-rate-limit#325, fade/asteroid#102", "10/10s start=first",
         100 * MS, 500, 50},
        {"the same, where refusals count", "10/10s start=first count-refused", 100 * MS, 500, 50},
        /* A window after a busy one grants one less than the limit; of a limit of 1, none. */
        {"upstash/ratelimit-js#39", "1/10s smooth", 100 * MS, 2000, 10},
        {"upstash/ratelimit-js#39", "2/10s smooth", 100 * MS, 2000, 2 + 19 * 1},
        {"upstash/ratelimit-js#39", "10/10s smooth", 100 * MS, 2000, 10 + 19 * 9},
        /* As doc/promises.md has it (SMOOTH WINDOWS), beside a bucket. */
        {"more demand", "1/10s smooth", 10 * MS, 20000, 10},
        {"more demand", "2/10s smooth", 10 * MS, 20000, 21},
        {"more demand", "3/10s smooth", 10 * MS, 20000, 41},
        {"more demand", "10/10s smooth", 10 * MS, 20000, 181},
        {"more demand", "100/10s smooth", 10 * MS, 20000, 1981},
        {"more demand", "1/10s burst=1", 10 * MS, 20000, 20},
        {"spring-cloud/spring-cloud-gateway#591", "1/s burst=1", 600 * MS, 12, 6},
        {"golang/go#46579", "7/s burst=1", 142857143, 1000, 1000}, /* as fast as a token comes */
        /* Five requests a token: the burst, and what comes back until the last request. */
        {"envoyproxy/envoy#24282, envoyproxy/envoy#16407", "1000/s burst=1000", 200000, 50000,
         1000 + 9999},
        {"envoyproxy/envoy#24282", "3000/s burst=2", 66667, 150000, 2 + 29999},
        {"google/guava#5290", "8001/s burst=2", 24997, 400000, 2 + 79999},
        {"google/guava#5290", "80000/s burst=1000", 2500, 400000, 1000 + 79999},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct stint_limiter *limiter = open_limiter(10, STINT_FULL_REFUSE);
        const uint32_t id = add_text(limiter, rows[i].policy);
        unsigned granted = 0;
        test_time = T0;
        for (unsigned n = 0; n < rows[i].requests; n++, test_time += rows[i].step)
            granted += stint_take(limiter, id, 1, 1, STINT_NOW, NULL);
        if (granted != rows[i].granted)
            fail_msg("%s: %s: %u of %u granted", rows[i].source, rows[i].policy, granted,
                     rows[i].granted);
        stint_close(limiter);
    }
}
