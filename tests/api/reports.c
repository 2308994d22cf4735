/* SPDX-License-Identifier: MIT
 * What went wrong with other limiters, as their users reported it, done with stint. Each has its
 * source, REPOSITORY#NUMBER on GitHub. Where another test has the case, its source stands there.
 *
 * bucket.c has: what came back and can be had again, to the burst (redis/redis#14826,
 * mailgun/gubernator#77, mailgun/gubernator#87, boinkor-net/governor#107), blocked clients that are
 * given more (letsencrypt/boulder#8785). overrides.c: bans longer than a window, and shorter
 * (animir/node-rate-limiter-flexible#231, #32 there), limits of 0 (projectdiscovery/nuclei#5667,
 * stefanprodan/AspNetCoreRateLimit#18, hudra0/qosmate#112). features.c: counts of 2^32
 * (systemd/systemd#27342), limits that are raised after refusals (envoyproxy/ratelimit#185,
 * upstash/ratelimit-js#156). features.c and notation.c: months (ansvisor/ansvisor#500,
 * Kong/kong#9581, microsoft/vscode-copilot-release#13081). time.c: nows in 1970 (golang/go#23482,
 * google/guava#8425, jhurliman/node-rate-limiter#18, python-trio/trimeter#6).
 *
 * The twin has, of all kinds: looks and requests for 0 tokens that cost something
 * (redis/go-redis#3740, upstash/ratelimit-js#17, upstash/ratelimit-js#111), tokens given back that
 * are not there again (redisson/redisson#7342), and reserved ones (golang/go#56924,
 * golang/go#69419, thrasher-corp/gocryptotrader#2371), limits of 1 (BerriAI/litellm#14450,
 * liwala/ay-framework#375, gravitee-io/issues#3884), clients that are never refused, which count,
 * and leave their network its limit (envoyproxy/ratelimit#241, limitd/limitd#63,
 * PowerDNS/pdns#14583), a log filled by who hammers (mholt/caddy-ratelimit#103,
 * tempesta-tech/tempesta#1749, bitcoin/bitcoin#21603). */
#include "kinds.h"

#define S SECOND

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
        {"laravel/framework#15152", "4/m ban=5m", 20 * S, 5400, 5400},
        {"laravel/framework#15152", "4/m stripes=2", 20 * S, 5400, 5400},
        {"laravel/framework#15152, by who never pauses", "4/m", 100 * MS, 36000, 240},
        /* A window after a busy one grants one less than the limit; of a limit of 1, none. */
        {"upstash/ratelimit-js#39", "1/10s smooth", 100 * MS, 2000, 10},
        {"upstash/ratelimit-js#39", "2/10s smooth", 100 * MS, 2000, 2 + 19 * 1},
        {"upstash/ratelimit-js#39", "10/10s smooth", 100 * MS, 2000, 10 + 19 * 9},
        /* As doc/promises.md has it (SMOOTH WINDOWS), beside a bucket. */
        {"more demand", "1/10s smooth", 10 * MS, 20000, 10},
        {"more demand", "2/10s smooth", 10 * MS, 20000, 21},
        {"more demand", "10/10s smooth", 10 * MS, 20000, 181},
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
