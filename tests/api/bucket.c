/* SPDX-License-Identifier: MIT
 * Token buckets (stint_policy.burst), case by case: what they grant at once and as they fill, to
 * the ns, and what all that windows know is for them. */
#include "words.h"

/* ---- Case by case ---------------------------------------------------------------------------- */

#define S SECOND

/* clang-format off */
static const struct feature features[] = {
    /* boinkor-net/governor#102, symfony/symfony#47676, symfony/symfony#63492,
     * dragonflydb/dragonfly#1008 */
    {"all of it at once, then a token each T", "a bucket of 20 tokens that fills by ten a second",
     "60/m burst=3",
     "take = used 1 until 1s; take 2 = used 3 until 3s; take = no first wait 1s; "
     "1s-1ns: take = no wait 1ns; 1s: take = used 3 until 4s; 3s+500ms: take 0 peek = used 1; "
     "take 2 = used 3 until 6s; take = no wait 500ms; 4s: take = used 3 until 7s; "
     "7s: take 0 peek = used 0; 10s: take 3 = used 3 until 13s"},
    {"a token's time is rounded up to a whole ns", SAME, "3/s burst=2",
     "take 2 = used 2 until 666ms+666us+668ns; take = no first wait 333ms+333us+334ns; "
     "333ms+333us+333ns: take = no wait 1ns; 333ms+333us+334ns: take = used 2 until 1s+2ns; "
     "333ms+333us+335ns: take = no first wait 333ms+333us+333ns; "
     "666ms+666us+667ns: take = no wait 1ns; "
     "666ms+666us+668ns: take = used 2 until 1s+333ms+333us+336ns"},
    /* spring-cloud/spring-cloud-gateway#3594, brandur/redis-cell#50 */
    {"10 million a second, and one in 366 days", SAME, "100000/10ms burst=268435456",
     "take 268435456 = used 268435456 until 26s+843ms+545us+600ns; take = no first wait 100ns; "
     "99ns: take = no wait 1ns; take 268435457 = no never; "
     "100ns: take = used 268435456 until 26s+843ms+545us+700ns"},
    /* traefik/traefik#5918, spring-cloud/spring-cloud-gateway#2373,
     * get-convex/convex-evals#232 */
    {"one in 366 days", SAME, "1/366d burst=1",
     "take = used 1 until 366d; 366d-1ns: take = no first wait 1ns; "
     "366d: take = used 1 until 732d"},
    /* google/guava#7130, viafintech/gcra-ruby#11 */
    {"costs", SAME, "60/m burst=10",
     "take 0 = until 0; take 7 = used 7 until 7s; take 4 = no first wait 1s; "
     "take 10 = no wait 7s; take 11 = no never; take 4294967295 = no never; "
     "take 3 = used 10 until 10s; take 0 = yes; 3s-1ns: take 3 = no used 8 wait 1ns; "
     "3s: take 3 = used 10 until 13s"},
    {"DRAIN", "If the cost does not fit, refuse it and take what is left.", "60/m burst=10",
     "take 4 drain = used 4 until 4s; take 7 drain = no used 10 until 10s first wait 7s; "
     "take = no wait 1s; 500ms: take drain = no wait 500ms; "
     "1s+500ms: take 2 drain = no until 11s wait 1s+500ms; 2s: take = used 10 until 12s"},
    /* jtesta/ssh-audit#349, ClusterLabs/crmsh#1811, symfony/symfony#64095 */
    {"CHARGE and its look",
     "Charge the whole cost, whatever is left: for costs that are known only after the work",
     "60/m burst=10 reserve=5",
     "take 8 charge = used 8 until 8s; take 2 look = yes; "
     "take 9 charge = granted 7 used 15 until 15s; take look = no first wait 6s; "
     "take 0 look = no wait 5s; take charge = granted 0; 500ms: take charge = granted 0; "
     "1s: take 3 charge = granted 1 used 15 until 16s; 7s-1ns: take = no used 10 wait 1ns; "
     "7s: take = used 10 until 17s"},
    {"RESERVE: how long to wait is told", "Take up to the policy's max_reserved tokens ahead.",
     "60/m burst=2 reserve=3",
     "take 2 reserve = used 2 until 2s; take reserve = used 3 until 3s wait 1s; "
     "take 2 reserve = used 5 until 5s wait 3s; take reserve = no first wait 1s; "
     "take = no wait 4s; take 6 reserve = no never; 1s: take reserve = used 5 until 6s wait 3s; "
     "2s+500ms: take 9 partial reserve = granted 1 used 5 until 7s wait 2s+500ms; "
     "6s: take reserve = used 2 until 8s"},
    {"a limit of the request's own below the policy's: tokens take longer",
     "A limit of the request's own, or an override, changes T to T2.", "60/m burst=10 reserve=10",
     "take 5 limit 30 = used 5 of 5 until 10s; take limit 30 = no first wait 2s; "
     "take 6 limit 30 = no never; take = no used 10 of 10 wait 1s; "
     "2s-1ns: take limit 30 = no used 5 of 5 wait 1ns; 2s: take limit 30 = used 5 until 12s; "
     "take 5 reserve limit 15 = no used 3 of 2 wait 10s; "
     "take 2 reserve limit 15 = used 5 until 20s wait 10s"},
    {"one so low that it is a token at least", SAME, "60/m burst=10",
     "take limit 3 = used 1 of 1 until 20s; take limit 3 = no first wait 20s; "
     "take = no used 20 of 10 wait 11s; take 0 = no wait 10s"},
    {"one above the policy's is honoured: the bucket lasts as long", SAME, "60/m burst=10",
     "take 10 limit 1000 = used 10 of 166 until 600ms; "
     "take 156 limit 1000 = used 166 until 9s+960ms; take limit 1000 = no first wait 60ms"},
    {"an override above the limit, which beats the request's own", SAME, "60/m burst=10 overrides",
     "override 600 until 1h; take 100 limit 5 = used 100 of 100 until 10s overridden; "
     "take = no first overridden wait 100ms; take 101 = no overridden never; "
     "100ms: take = used 100 until 10s+100ms overridden; clear; take = no used 10 of 10 wait 1s; "
     "clear = ENOENT"},
    {"an override below the limit, and its end", SAME, "60/m burst=10 overrides",
     "override 30 until 4s; take 5 = used 5 of 5 until 10s overridden; "
     "take = no first overridden wait 2s; take 3 = no overridden wait 4s; "
     "take 6 = no overridden wait 6s; 4s-1ns: take 3 = no used 4 overridden wait 1ns; "
     "4s: take 3 = used 9 of 10 until 13s"},
    {"an override of more than 10 million a second", SAME, "10/s burst=2 overrides",
     "override 20000000 until 1h; take 2000000 = used 2000000 of 2000000 until 200ms overridden; "
     "take = no first overridden wait 100ns; "
     "100ns: take = used 2000000 until 200ms+100ns overridden"},
    {"a limit that is raised a million times keeps what is used",
     "Its rate and its burst change at once, for all keys (stint_policy_change, a reload).",
     "1/10ms burst=1000000",
     "take 1000000 = used 1000000 until 2h+46m+40s; change 100000/10ms burst=1000000; "
     "take = no until 100ms first wait 100ns generation 1"},
    {"an override keeps the tokens that are used: more, less, lifted",
     "stint_override and _clear keep the tokens that are used, likewise",
     "5/week burst=5 overrides",
     "take 5 = used 5 until 7d; take = no first wait 1d+9h+36m; override 50 until 30d; "
     "take = used 6 of 50 until 20h+9m+36s overridden; "
     "take 45 = no first overridden wait 3h+21m+36s; override 10 until 30d; "
     "take 0 peek = of 10 until 4d+4h+48m overridden; override 10 until 20d; "
     "take = used 7 until 4d+21h+36m overridden; 84h: take 0 peek = used 2 overridden; clear; "
     "take 3 = used 5 of 5 until 252h"},
    {"an override keeps parts of tokens, rounded up to a ns", SAME, "60/m burst=10 overrides",
     "take 3 = used 3 until 3s; 500ms: take 0 peek = yes; override 30 until 1h; "
     "take 0 peek = of 5 until 5s+500ms overridden; clear; take 0 peek = of 10 until 3s; "
     "override 700 until 1h; take 0 peek = of 116 until 714ms+285us+715ns overridden; "
     "take 113 = used 116 until 10s+400ms+33ns overridden; "
     "20s: take 0 peek = used 0 until 20s overridden; clear; take 0 peek = of 10"},
    {"a ban",
     "By `ban=1h after=3` a key that was refused in three windows is banned for an hour.",
     "60/m burst=2 ban=10m",
     "take 2 = used 2 until 2s; take = no first banned wait 10m; "
     "1s: take 0 = no used 1 of 0 overridden banned wait 599s; "
     "10s: take drain = no used 0 until 10s overridden banned wait 590s; "
     "10m: take 2 = used 2 of 2 until 602s"},
    {"first refusals, and strikes: one in a window that the instant passes",
     "unless there was one since that instant last passed a multiple of `window`",
     "2/s burst=3 ban=1h after=3",
     "100ms: take = used 1 until 600ms; take 3 = no first wait 500ms; take 3 = no wait 500ms; "
     "take = used 2 until 1s+100ms; take 2 = no first wait 500ms; take = used 3 until 1s+600ms; "
     "take = no wait 500ms; 700ms: take = used 3 until 2s+100ms; take = no first banned wait 1h"},
    /* letsencrypt/boulder#8785 */
    {"the limit is lowered, and raised: what is used stays used",
     "Its rate and its burst change at once, for all keys (stint_policy_change, a reload).",
     "60/m burst=10",
     "take 5 = used 5 until 5s; change 30/m burst=10; take 0 = until 10s generation 1; "
     "take 5 = used 10 until 20s; take = no first wait 2s; change 120/m burst=10; "
     "take = no until 5s wait 500ms generation 2; "
     "500ms: take = used 10 until 5s+500ms"},
    {"another rate: what is used stays, an override and a limit of a request's own are of it",
     "What a key has used stays used, in tokens", "10/s burst=20 overrides",
     "take 19 = used 19 until 1s+900ms; change 600/m burst=20 overrides; "
     "take = used 20 until 2s generation 1; take = no first wait 100ms; "
     "take of b limit 20 = used 1 of 1 until 3s generation 1; override 20 until 1d of c; "
     "take of c = used 1 of 1 until 3s overridden generation 1; give 1 of c; "
     "take 0 of c peek = until 0 overridden"},
    {"... and 30/m", SAME, "10/s burst=20 overrides",
     "take 19 = used 19 until 1s+900ms; change 30/m burst=20 overrides; "
     "take = used 20 until 40s generation 1; take = no first wait 2s; "
     "take of b limit 20 = used 1 of 13 until 3s generation 1; override 20 until 1d of c; "
     "take of c = used 1 of 13 until 3s overridden generation 1; give 1 of c; "
     "take 0 of c peek = until 0 overridden"},
    {"given back: at once, and what has not come back by itself",
     "What is given back (stint_refund) is the time that the tokens took: verdict.unit for each.",
     "60/m burst=10",
     "take 5 = used 5 until 5s; back 5 of 5s; back 5 of 5s = 0; back 5 of none = 0; "
     "take 10 = used 10 until 10s; 7s+500ms: take 0 peek = used 3; back 10 of 10s = 3; "
     "take 10 = used 10 until 17s+500ms; 20s: take 0 peek = used 0 until 20s; "
     "back 10 of 17s+500ms = 0; take 10 = used 10 until 30s"},
    {"given back after a change of the rate: as many tokens", SAME, "10/s burst=10",
     "take 9 = used 9 until 900ms; take = used 10 until 1s; change 100/s burst=100; give 1; "
     "take 0 peek = of 100 until 90ms generation 1"},
    {"given back once by a verdict, in parts, of which some has come back by itself", SAME,
     "1/s burst=10",
     "take 4 = used 4 until 4s; 1s: give 1; take 0 peek = used 2 until 3s; give 1; "
     "take 0 peek = used 1 until 2s; give 9 = 1; take 0 peek = used 0 until 1s; give 1 = 0; "
     "take 10 = used 10 until 11s; 9s: give 1; give 4 = 1; give 4 = 0; "
     "take 9 partial = used 9 until 18s; take 9 partial = granted 1 used 10 until 19s"},
    {"not given back in 1970, where a machine without a clock begins", SAME, "1/m burst=5",
     "2026-11-30: take 5 = used 5 until 2026-11-30+5m; clock 1970-01-01+10s; give 1 = 0; "
     "clock 2026-11-30; take = no first wait 1m"},
    /* chatmail/filtermail#167 */
    {"late callers: the bucket is further from full",
     "Each request brings its own time, and requests may come in any order.", "60/m burst=5",
     "10s: take 2 = used 2 until 12s; 8s: take = used 5 until 13s; "
     "take = used 4 until 14s at 10s; 10s: take = used 5 until 15s; 9s: take 0 = at 10s; "
     "take = no used 6 first wait 2s"},
};
/* clang-format on */

TEST_FEATURES(features)

/* What does not fit is asked once more, by the latest time at which a bucket decided for this
 * thread: "if it is within 100 ms". One further ahead is forgotten by those that follow. So who is
 * earlier than the refusal of a full bucket, which moves its instant, finds it full as well. */
TEST(test_decided_before) {
    struct stint_limiter *limiter = open_limiter(10, STINT_FULL_REFUSE);
    const uint32_t id = add_text(limiter, "1/h burst=2 name=p");
    struct stint_verdict v;
    test_time = T0 - S;
    for (uint64_t key = 1; key <= 9; key++) {
        const uint64_t ahead = key % 2 == 1 ? 100 * MS : 100 * MS + 1;
        const uint32_t cost = key % 3 == 0 ? 3 : 1;
        assert_true(stint_take(limiter, id, key, cost, T0 + ahead, NULL) == (cost == 1));
        assert_true(stint_take(limiter, id, key, 1 + cost / 3, T0, &v) == (ahead == 100 * MS));
        assert_true(v.window - v.reset_after == (v.allowed ? T0 + ahead : T0));
    }
    stint_close(limiter);
}
