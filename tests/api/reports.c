/* SPDX-License-Identifier: MIT
 * What went wrong with other limiters, as their users reported it, done with stint. Each has its
 * source, REPOSITORY#NUMBER on GitHub. Where another test has the case, its source stands there.
 * The twin has, of all kinds: looks and requests for 0 tokens that cost something
 * (redis/go-redis#3740, upstash/ratelimit-js#17, upstash/ratelimit-js#111), tokens given back that
 * are not there again (redisson/redisson#7342), limits of 1 (BerriAI/litellm#14450,
 * liwala/ay-framework#375, gravitee-io/issues#3884), a log filled by who hammers
 * (mholt/caddy-ratelimit#103, tempesta-tech/tempesta#1749, bitcoin/bitcoin#21603). */
#include "kinds.h"
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
     "stint_override and _clear keep the tokens that are used, likewise: 5 used of 5, raised to "
     "50, are 5 of 50.",
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
    {"systemd/systemd#27342: counts of 2^32 and more begin at 0 again in no window",
     "Refused tokens count as used, up to 2^28",
     "5/m count-refused; 5/m name=w; 5/m burst=5 reserve=10 name=b; 5/m smooth name=s; "
     "5/m reserve=10 name=r",
     "take 268435456 = no used 268435456 until 1m first never; take = no wait 1m; "
     "take 4294967295 = no never; take = no wait 1m; "
     "take 4294967295 charge by w = granted 268435456 used 268435456 until 1m; "
     "take 4294967295 charge by w = granted 0; take by w = no first wait 1m; "
     "counts by w = charged 268435456; take 4294967295 charge by b = granted 15 used 15 until 3m; "
     "take by b = no first wait 132s; "
     "take 4294967295 charge by s = granted 16383 used 16383 until 1m; "
     "take 4294967295 charge by r = granted 15 used 15 until 1m; take by r = no first wait 3m; "
     "1m: take 5 = used 5 until 2m; take 5 by w = used 5 until 2m; "
     "3m: take 5 by b = used 5 until 4m; take 5 by s = used 5 until 4m; "
     "take 5 by r = used 5 until 4m"},
    {"PowerDNS/pdns#14583: a client that is never refused uses up its network's limit all the same",
     "an override of a client never loosens the limit of its network",
     "10/m overrides name=h; 2/m name=n",
     "override 268435456 until 1h; all take by h + take of net by n = granted 0 of 268435456 "
     "until 1m overridden + used 1 until 1m; "
     "all take by h + take of net by n = granted 0 overridden + used 2; "
     "all take by h + take of net by n = overridden + no first wait 1m; "
     "all take of b by h + take of net by n = until 1m + no wait 1m; "
     "1m: take by h = granted 0 until 2m overridden; "
     "all take of b by h + take of net by n = used 1 until 2m + used 1 until 2m"},
    {"envoyproxy/ratelimit#241, limitd/limitd#63: who is never refused is counted",
     "The statistics count it as allowed.", "5/m overrides",
     "override 268435456 until 1h; take = granted 0 of 268435456 until 1m overridden; "
     "take 268435456 = granted 0 overridden; take = granted 0 overridden; "
     "counts = allowed 3 refused 0; 1h+10ms: take 5 = used 5 of 5 until 61m; "
     "take = no first wait 1m-10ms"},
    {"stefanprodan/AspNetCoreRateLimit#18, projectdiscovery/nuclei#5667, hudra0/qosmate#112: zero",
     "0 refuses everything, requests for no tokens too.", "5/m overrides",
     "apply 0/m = EINVAL; apply 0/m burst=5 = EINVAL; apply 5/0m = EINVAL; "
     "apply 5/m burst=0 = EINVAL; apply 0/30s in-flight = EINVAL; override 0 until 1h; "
     "take = no of 0 until 1m first overridden wait 1h; take 0 = no overridden wait 1h; "
     "take of b limit 0 = used 1 until 1m"},
    {"ansvisor/ansvisor#500, Kong/kong#9581, microsoft/vscode-copilot-release#13081: months",
     "months begin on this day of the month (1 .. 28) at this time of day",
     "2/month start=2024-01-28",
     "2026-01-28: take 2 = used 2 until 2026-02-28; 2026-02-28-10ms: take = no first wait 10ms; "
     "2026-02-28: take 2 = used 2 until 2026-03-28; 2026-03-28: take 2 = used 2 until 2026-04-28; "
     "apply 2/month start=2024-01-29 = EINVAL; apply 2/month start=2024-01-31 = EINVAL; "
     "apply 2/3months = EINVAL; apply 2/quarter = EINVAL"},
    {"envoyproxy/ratelimit#185, upstash/ratelimit-js#156: refused requests, and a raise",
     "What was used stays used. Limits and options may change;",
     "10/h; 10/h smooth name=s; 10/h start=first name=f; 10/h stripes=2 name=t; "
     "10/h count-refused name=c",
     "take 10 = used 10 until 1h; take 40 = no first never; take = no wait 1h; change 20/h; "
     "take 10 = used 20 of 20; take 10 by s = used 10 until 1h; take by s = no first wait 66m; "
     "change 20/h smooth name=s; take 10 by s = used 20 of 20; take 10 by f = used 10 until 1h; "
     "take 5 by f = no first wait 1h; change 20/h start=first name=f; "
     "take 10 by f = used 20 of 20; take 10 by t = used 10 until 1h; "
     "take by t = no first wait 1h; change 20/h stripes=2 name=t; take 10 by t = used 20 of 20; "
     "take 10 by c = used 10 until 1h; take 40 by c = no used 50 first never; "
     "change 20/h count-refused name=c; take by c = no used 51 of 20 wait 1h"},
    {"golang/go#23482, google/guava#8425, jhurliman/node-rate-limiter#18, python-trio/trimeter#6",
     "A key that was never seen has a full bucket.", "1/s burst=10",
     "clock 1h; 1970-01-01+1s: take 10 = used 10 until 1h+10s; counts = mistaken_nows 1; "
     "1h: take 10 charge of b = used 10 until 1h+10s; take of b = no first wait 1s; "
     "take 9 charge of c = used 9 until 1h+9s; take of c = used 10 until 1h+10s; "
     "take of c = no first wait 1s"},
    {"nokia/consumer-rate-limiting#8, stefanprodan/AspNetCoreRateLimit#379: a reset by an operator",
     "It has nothing used, no ban and no strikes, and its next refusal is a first one.",
     "5/m ban=1h; 5/m smooth ban=1h name=s; 5/m start=first ban=1h name=f; "
     "5/m burst=5 ban=1h name=b",
     "5s: take 5 = used 5 until 1m; take = no first banned wait 1h; "
     "take 5 by s = used 5 until 1m; take by s = no first banned wait 1h; "
     "take 5 by f = used 5 until 65s; take by f = no first banned wait 1h; "
     "take 5 by b = used 5 until 65s; take by b = no first banned wait 1h; 7s: reset; reset by s; "
     "reset by f; reset by b; 8s: take 5 = used 5; take = no first banned wait 1h; "
     "take = no of 0 overridden banned wait 1h; take 5 by s = used 5; "
     "take by s = no first banned wait 1h; take 5 by f = used 5; "
     "take by f = no first banned wait 1h; take 5 by b = used 5 until 68s; "
     "take by b = no first banned wait 1h"},
};
/* clang-format on */

TEST_FEATURES(features)

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
            assert_true(v.allowed && v.flags == 0 && v.granted == 1);
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
        {"laravel/framework#15152", "4/m", 20 * S, 5400, 5400},
        {"laravel/framework#15152", "4/m burst=4", 20 * S, 5400, 5400},
        {"laravel/framework#15152", "4/m smooth", 20 * S, 5400, 5400},
        {"laravel/framework#15152", "4/m start=first", 20 * S, 5400, 5400},
        {"laravel/framework#15152", "4/m start=per-key", 20 * S, 5400, 5400},
        {"laravel/framework#15152", "4/m capacity=8", 20 * S, 5400, 5400},
        {"laravel/framework#15152", "4/m reserve=2", 20 * S, 5400, 5400},
        {"laravel/framework#15152", "4/m count-refused", 20 * S, 5400, 5400},
        {"laravel/framework#15152", "4/m start=first count-refused", 20 * S, 5400, 5400},
        {"laravel/framework#15152", "4/m ban=5m", 20 * S, 5400, 5400},
        {"laravel/framework#15152", "4/m burst=4 ban=5m", 20 * S, 5400, 5400},
        {"laravel/framework#15152", "4/m stripes=2", 20 * S, 5400, 5400},
        {"laravel/framework#15152, by who never pauses", "4/m", 100 * MS, 36000, 240},
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

/* golang/go#56287: a caller who is early and late by turns makes no tokens out of nothing. In d ns
 * at most burst + d * rate are granted; by windows, the limit in each of the two that he is in. */
TEST(test_early_and_late_by_turns) {
    static const struct {
        const char *policy;
        unsigned most;
    } rows[] = {{"1/s burst=10", 15},       {"10/10s", 20},           {"10/10s smooth", 20},
                {"10/10s start=first", 10}, {"10/10s reserve=5", 20}, {"10/10s in-flight", 10}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct stint_limiter *limiter = open_limiter(10, STINT_FULL_REFUSE);
        const uint32_t id = add_text(limiter, rows[i].policy);
        unsigned granted = 0;
        test_time = T0 + 102 * S;
        for (uint64_t n = 0; n < 4000; n++) {
            const uint64_t late = n < 10 ? 0 : n < 2000 ? n % 2 * 5 * S : n * 7919 % 5000 * MS;
            granted += stint_take(limiter, id, 1, 1, test_time - late, NULL);
        }
        if (granted < 10 || granted > rows[i].most)
            fail_msg("%s: %u granted", rows[i].policy, granted);
        stint_close(limiter);
    }
}

/* SandeepVashishtha/Eventra#11452, sethvargo/go-limiter#41: a machine comes up years ahead, is
 * hammered for a minute, and is set right. H: nobody waits for longer than his policy may ask of
 * him anyway, and 60 s. */
TEST(test_clock_that_was_years_ahead) {
    static const struct {
        const char *policy;
        uint64_t most; /* seconds */
    } rows[] = {{"5/m", 120},
                {"5/m burst=5", 121},
                {"5/m smooth", 180},
                {"5/m start=first", 120},
                {"5/m start=per-key", 120},
                {"5/m capacity=20", 300},
                {"5/m reserve=5", 180},
                {"5/m in-flight", 180},
                {"5/m count-refused", 120},
                {"5/m ban=10m", 661},
                {"5/m burst=5 ban=10m", 661},
                {"5/m stripes=2", 120},
                {"5/day", 86460},
                {"5/month", 32 * 86400},
                {"100/h burst=100", 3661}};
    static const uint64_t aheads[] = {HOUR, 400 * DAY, 3653 * DAY};
    for (size_t i = 0; i < 3 * sizeof rows / sizeof rows[0]; i++) {
        struct stint_limiter *limiter = open_limiter(100, STINT_FULL_REFUSE);
        const uint32_t id = add_text(limiter, rows[i / 3].policy);
        const uint64_t right = T0 + 3 * S, most = rows[i / 3].most * S;
        test_time = T0 + aheads[i % 3] + 7 * S;
        for (uint32_t n = 0; n < 600; n++, test_time += 100 * MS)
            (void)ask(limiter, id, 1, 1 + n % 3, 0);
        struct stint_verdict v = {0};
        for (test_time = right; !v.allowed; test_time += v.retry_after) {
            v = ask(limiter, id, 1, 1, 0);
            if (test_time - right > most || v.retry_after > most)
                fail_msg("%s, ahead by %" PRIu64 " h: refused after %" PRIu64 " s, for %" PRIu64,
                         rows[i / 3].policy, aheads[i % 3] / HOUR, (test_time - right) / S,
                         v.retry_after / S);
        }
        stint_close(limiter);
    }
}
