/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * What went wrong with other limiters, as their users reported it, done with stint. Each has its
 * source, REPOSITORY#NUMBER on GitHub. Where another test has the case, its source stands there. */
#include "kinds.h"
#include "told.h"
#include "words.h"

#define S SECOND

/* clang-format off */
static const struct feature features[] = {
    {"redis/redis#14826: all of it can be had again; more than that never, and no time is below 0",
     "a bucket of 20 tokens that fills by ten a second", "1/s burst=5",
     "take 5 = used 5 until 5s; take 5 = no first wait 5s; 5s-1ns: take 5 = no used 1 wait 1ns; "
     "5s: take 5 = used 5 until 10s; 1m: take 6 = no used 0 until 1m first never"},
    {"mailgun/gubernator#77, mailgun/gubernator#87: it fills while it is asked, and to its burst",
     SAME, "10/30s burst=10",
     "take = used 1 until 3s; 1s: take = used 2 until 6s; 2s: take = used 3 until 9s; "
     "3s: take = used 3 until 12s; 4s: take = used 4 until 15s; 5s: take = used 5 until 18s; "
     "6s: take = used 5 until 21s; 1h: take peek = used 0 until 1h"},
    {"boinkor-net/governor#107: batches get no more than one by one", SAME, "1200/m burst=1200",
     "take 1200 = used 1200 until 1m; 500ms: take 5 = used 1195 until 1m+250ms; "
     "take 5 = used 1200 until 1m+500ms; take 5 = no first wait 250ms; take = no wait 50ms"},
    {"golang/go#56924, golang/go#69419: a reservation is given back whole after a later one",
     "What is given back (stint_refund) is the time that the tokens took: verdict.unit for each.",
     "10/s burst=20 reserve=100",
     "take 15 = used 15 until 1s+500ms; "
     "100ms: take 10 reserve = used 24 until 2s+500ms wait 400ms; "
     "200ms: take 2 reserve = used 25 until 2s+700ms wait 500ms; "
     "300ms: take peek = no used 24 wait 500ms; back 10 of 2s+500ms; take peek = until 1s+700ms"},
    {"thrasher-corp/gocryptotrader#2371: reservations are given back in reverse, to the last part",
     SAME, "60/s burst=1 reserve=5",
     "take reserve = used 1 until 16ms+666us+667ns; "
     "take reserve = used 2 until 33ms+333us+334ns wait 16ms+666us+667ns; "
     "take reserve = used 3 until 50ms+1ns wait 33ms+333us+334ns; take = no first wait 50ms+1ns; "
     "back 1 of 50ms+1ns; back 1 of 33ms+333us+334ns; back 1 of 16ms+666us+667ns; "
     "take = used 1 until 16ms+666us+667ns"},
    {"letsencrypt/boulder#8785: a blocked client that is given more is let through at once",
     "stint_override and _clear keep the tokens that are used: 5 used of 5, raised to 50, are 5 "
     "of 50.",
     "5/10 weeks burst=5 overrides",
     "take 5 = used 5 until 70d; take = no first wait 14d; override 50 until 30d; "
     "take peek = of 50 until 7d overridden; take = used 6 until 8d+9h+36m overridden; clear; "
     "take peek = no used 5 of 5 until 70d wait 14d"},
    {"animir/node-rate-limiter-flexible#231: a ban of 366 days lasts 366 days",
     "a key that was refused in three windows is banned for an hour", "10/5s ban=366d",
     "take 9 = used 9 until 5s; take 3 = no first banned wait 366d; "
     "1d: take 3 = no used 0 of 0 until 1d+5s overridden banned wait 365d; "
     "365d: take 3 = no until 365d+5s overridden banned wait 1d; "
     "366d: take 3 = used 3 of 10 until 366d+5s"},
    {"animir/node-rate-limiter-flexible#32: a ban that is shorter than its window gives no tokens",
     "if it ends before that window does, it has no effect", "5/90d start=first ban=30s",
     "take 5 = used 5 until 90d; 1s: take = no first banned wait 89d+23h+59m+59s; "
     "2s: take = no of 0 overridden banned wait 89d+23h+59m+58s; "
     "31s: take = no of 5 wait 89d+23h+59m+29s; 90d: take = used 1 until 180d"},
};
/* clang-format on */

TEST_FEATURES(features)

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
