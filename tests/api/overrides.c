/* SPDX-License-Identifier: MIT
 * Keys with limits of their own for a while, and keys that are banned: case by case, and across
 * restarts. (While others write: scenes.c.) */
#include "directory.h"
#include "limiter/limiter.h"
#include "words.h"

/* clang-format off */
static const struct feature features[] = {
    /* ---- Overrides ---- */

    /* letsencrypt/boulder#8785 */
    {"override: more, less, cleared; what was used stays used",
     "Gives a key another limit until an instant, in place of the policy's capacity and "
     "request.limit.",
     "3/m overrides",
     "take 3 = used 3 until 1m; take = no first wait 1m; override 5 until 1h; "
     "take = used 4 of 5 overridden; take peek = overridden; take 2 = no overridden wait 1m; "
     "override 2 until 2h; take = no of 2 overridden wait 1m; clear; take = no of 3 wait 1m; "
     "clear = ENOENT; 1m: take 3 = used 3 until 2m"},
    {"override: over at its end, to the tick", SAME, "1/m overrides",
     "take = used 1 until 1m; override 3 until 10s-1ns; 10s-1ns: take = used 2 of 3 overridden; "
     "10s: take = no of 1 first wait 50s; clear = ENOENT"},
    {"override: it beats a request's own limit", SAME, "10/m overrides",
     "override 4 until 1h; take 3 limit 2 = used 3 of 4 until 1m overridden; "
     "take 2 limit 100 = no first overridden wait 1m; "
     "take 9 partial limit 100 = granted 1 used 4 overridden; clear; take 2 limit 6 = used 6 of 6"},
    {"override: a look at a full table tells what its request is told", SAME,
     "table 4 refuse; 1/m ban=1h",
     "override 268435456 until 1h; take 2 of b = no until 1m first banned never; 1m: fill 100; "
     "take peek = of 268435456 until 2m overridden; take = granted 0 overridden; "
     "take 2 peek of b = no of 0 until 2m overridden banned never; "
     "take 2 of b = no overridden banned never; take peek of b = no overridden banned wait 59m; "
     "take of b = no overridden banned wait 59m; take peek of c = no until 2m untracked wait 1m; "
     "take of c = no until 2m untracked wait 1m; take 0 of c = until 2m"},
    {"override: where no slot is left, the wait until the window ends may outlast it", SAME,
     "table 2 refuse; 2/m smooth overrides",
     "override 5 until 10s; override 5 until 1h of b; fill 100; "
     "take 2 peek = no of 5 until 1m overridden untracked wait 1m; "
     "take 3 peek = no of 5 until 1m overridden untracked never; "
     "take 3 peek of b = no of 5 until 1m overridden untracked wait 1m"},
    {"override: after a step back of the clock one too far ahead is void, the others hold", SAME,
     "1/m ban=1h",
     "clock 1d; override 5 until 366d; override 5 until 365d of b; "
     "take 2 of c = no until 1d+1m first banned never; clock 1d-2m; take peek of c = until 1d-1m; "
     "clock 1d-1m; take peek of c = no of 0 until 1d+1m overridden banned wait 61m; "
     "1d-11m: take of c = no overridden banned wait 61m; clock -2m; take peek = until -1m; "
     "take peek of b = of 5 until -1m overridden; override 7 until 0; rule = 7 until 0"},
    {"override: the smooth window of a clock that was stepped back has not begun yet", SAME,
     "4/s smooth overrides",
     "clock 1d; take = used 1 until 1d+1s; clock 1d-10s; override 0 until 1d-8s; "
     "take 3 peek = no used 1 of 0 overridden wait 2s; take 4 peek = no overridden wait 12s; "
     "1d-8s: take 3 = used 4 of 4"},
    {"override: what cannot be set, told or lifted", SAME, "5/m overrides name=p; 5/m name=q",
     "override 1 until 1ns by 7 = ENOENT no policy; override 1 until 1ns by 1 = ENOENT no policy; "
     "override 1 until 1ns by q = EINVAL STINT_OVERRIDES; "
     "override 268435457 until 1s = EINVAL limit; override 1 until 0 = EINVAL until; "
     "override 1 until 366d+1ns = EINVAL until; override 1 until 366d; rule by q = EINVAL; "
     "rule of b = ENOENT; back 1 of 366d by 1 = 0; reset by 1 = nothing; "
     "clear by q = EINVAL STINT_OVERRIDES; clear of b = ENOENT no override; "
     "take by 1 = no unknown; rule = 1 until 366d"},
    {"override: the flag comes, goes and comes back", SAME, "table 100 admit 3; 5/m name=p",
     "override 1 until 1h = EINVAL; change 5/m overrides; override 1 until 1h; "
     "take 2 = no of 1 until 1m first overridden wait 1h; change 5/m; take 2 = used 2 of 5; "
     "change 5/m ban=1h; add 5/m ban=1h after=1 name=p; "
     "change 5/m ban=1h after=2; take 2 = no of 1 overridden wait 1h; "
     "add 5/m ban=1h after=2 name=p; add 5/m ban=1h after=3 name=p = EEXIST ban_after; "
     "add 5/m ban=1h after=2 within=2h name=p = EEXIST ban_within; "
     "add 5/m overrides name=q = ENOSPC max_policies; add 5/m name=q; "
     "change 5/m overrides name=q = ENOSPC max_policies"},
    {"override: set and lifted by turns it takes one slot, and leaves nothing", SAME,
     "1/m ban=1h after=3",
     "override 0 until 1h; clear; clear = ENOENT; override 1 until 1h; rule = 1 until 1h; clear; "
     "rule = ENOENT; override 2 until 1h; clear; table = placed 1 overrides 0; reset = nothing; "
     "take 2 = no until 1m first never; 1m: take 2 = no until 2m first never; "
     "2m: take 2 = no until 3m first banned never; counts = bans 1"},
    {"override: it replaces nobody, is not replaced, and is told if there is no room", SAME,
     "table 4 replace; 1/m ban=1h",
     "override 5 until 1h; override 5 until 1h of b; override 5 until 1h of c; "
     "override 5 until 1h of d; fill 20; table = overrides 4 live 8 slots 8 replaced 16; "
     "override 5 until 1h of e = ENOSPC; override 6 until 1h; rule = 6 until 1h; fill 80; "
     "table = overrides 4 replaced 96; take of e = used 1 until 1m replaced; "
     "take of e = no first wait 1m; counts = strikes_lost 1; clear; "
     "override 5 until 1h of e = ENOSPC; 10ms: override 5 until 1h of e"},
    {"override: a full table refuses nobody who is never refused, admits nobody who is refused all",
     SAME, "table 4 admit; 1/m overrides",
     "override 268435456 until 1h; override 0 until 1h of b; override 5 until 1s of c; fill 100; "
     "take 5 = granted 0 of 268435456 until 1m overridden; "
     "take of b = no of 0 until 1m overridden untracked wait 1h; "
     "take of c = of 5 until 1m overridden untracked"},
    {"override: 0 refuses all, and says until when",
     "0 refuses everything, requests for no tokens too.", "10/m overrides",
     "take 2 = used 2 until 1m; override 0 until 1h; take 0 peek = no of 0 overridden wait 1h; "
     "take = no first overridden wait 1h; take 0 = no overridden wait 1h; "
     "take partial drain = no overridden wait 1h; take 11 = no overridden never; "
     "take 11 limit 11 = no overridden wait 1h; "
     "1m: take look = no used 0 until 2m first overridden wait 59m; "
     "take 3 charge = used 3 overridden; override 0 until 80s; take 8 = no overridden wait 1m; "
     "take 7 = no overridden wait 20s; 80s: take 7 = used 10 of 10"},
    {"override: 2^28 never refuses", "2^28 never refuses, and takes nothing.", "2/m overrides",
     "take = used 1 until 1m; override 268435456 until 1h; "
     "take 5 = granted 0 of 268435456 overridden; take 268435456 peek = overridden; "
     "take 4294967295 limit 1 = granted 0 overridden; take 5 drain = granted 0 overridden; "
     "take 5 charge = granted 0 overridden; 1m: take 5 = granted 0 used 0 until 2m overridden; "
     "clear; take 2 = used 2 of 2; take = no first wait 1m"},
    {"override: a limit that comes back before the window is over",
     "A refusal's retry_after takes into account when the override ends.", "5/m overrides",
     "take 2 = used 2 until 1m; override 2 until 20s; take = no of 2 first overridden wait 20s; "
     "take 4 = no overridden wait 1m; take 6 = no overridden never; "
     "take 6 limit 7 = no overridden wait 1m; 20s: take 3 = used 5 of 5"},
    {"override: once it is over, no request has more room than 2^28, whatever it may reserve", SAME,
     "5/s reserve=20 overrides",
     "override 3 until 10s; "
     "take 268435456 reserve limit 268435456 = no of 3 until 1s first overridden wait 10s; "
     "take 268435457 reserve limit 268435456 = no overridden never; "
     "take 268435480 reserve limit 268435456 = no overridden never"},

    /* ---- Bans ---- */

    /* laravel/framework#9512, haproxy/haproxy#615, fail2ban/fail2ban#2411 */
    {"ban: after one refusal", "a key that was refused in three windows is banned for an hour",
     "2/m ban=10m",
     "take 2 = used 2 until 1m; take peek = no wait 1m; take = no first banned wait 10m; "
     "take = no of 0 overridden banned wait 10m; take 0 peek = no overridden banned wait 10m; "
     "take 3 = no overridden banned never; "
     "2m: take = no used 0 until 3m overridden banned wait 8m; "
     "10m-1ns: take = no until 10m overridden banned wait 1ns; "
     "10m: take 2 = used 2 of 2 until 11m; 10m+1ns: take = no first banned wait 10m-1ns; "
     "reset = forgot; 10m+2ns: take = used 1"},
    {"ban: after three windows within the time", SAME, "1/m ban=4m after=3",
     "take 2 = no until 1m first never; take 2 = no never; "
     "1m: take 2 look = no until 2m first never; 2m: take = used 1 until 3m; "
     "3m: take 2 = no used 0 until 4m first banned never; "
     "take = no of 0 overridden banned wait 4m; 6m: take = no until 7m overridden banned wait 1m; "
     "7m: take = used 1 of 1 until 8m; take = no first wait 1m"},
    {"ban: the span of strikes begins with the first one",
     "The next span begins with the first refusal after its end.", "1/10m ban=1h after=3",
     "take 2 = no until 10m first never; 50m: take 2 = no until 1h first never; "
     "70m: take 2 = no until 80m first never; 80m: take 2 = no until 90m first never; "
     "90m: take 2 = no until 100m first banned never; "
     "140m: take = no of 0 until 150m overridden banned wait 10m; "
     "150m: take = used 1 of 1 until 160m"},
    {"ban: strikes count within a time of their own, longer than the ban",
     "how long after a first refusal others count towards a ban", "1/m ban=1m after=3 within=5m",
     "take 2 = no until 1m first never; 3m: take 2 = no until 4m first never; "
     "4m: take 2 = no until 5m first banned never; "
     "5m-1ns: take = no of 0 overridden banned wait 1ns; 5m: take = used 1 of 1 until 6m"},
    {"ban: strikes count within a time of their own, shorter than the ban", SAME,
     "1/m ban=1h after=2 within=2m",
     "take 2 = no until 1m first never; 2m: take 2 = no until 3m first never; "
     "3m: take 2 = no until 4m first banned never; "
     "63m-1ns: take = no of 0 until 63m overridden banned wait 1ns"},
    {"ban: one that ends before its window does",
     "if it ends before that window does, it has no effect", "2/h ban=10m",
     "take = used 1 until 1h; take 2 = no first banned wait 1h; "
     "take = no of 0 overridden banned wait 10m; take 2 = no overridden banned wait 1h; "
     "10m: take = used 2 of 2"},
    {"ban: a shadow bans nobody", "A shadow (STINT_SHADOW) counts no strikes, and bans nobody.",
     "1/m shadow ban=1h",
     "take = used 1 until 1m; take = first shadowed wait 1m; take = shadowed wait 1m; "
     "1m: take = used 1 until 2m"},
    {"ban: an override by hand collects no strikes, and replaces a ban",
     "(An override that was set by stint_override stays.)", "1/m ban=1h",
     "override 2 until 3h; take 3 = no of 2 until 1m first overridden never; "
     "take 2 = used 2 overridden; reset = forgot; take = used 1 overridden; clear; "
     "1m: take 2 = no used 0 of 1 until 2m first banned never; override 9 until 2m; "
     "take 2 = used 2 of 9 overridden; 2m: take = used 1 of 1 until 3m"},
    {"ban: a shadow's end: who was let through is banned from the next window on", SAME,
     "1/m ban=1h after=3 shadow name=p; 1000/m name=q",
     "take = used 1 until 1m; take = first shadowed wait 1m; 1m: take = used 1 until 2m; "
     "take = first shadowed wait 1m; 2m: take = used 1 until 3m; take = first shadowed wait 1m; "
     "table = banned 0; change 1/m ban=1h after=3; 3m: take = used 1 until 4m; "
     "take = no first wait 1m; 4m: all take + take by q = used 1 until 5m + used 1 until 5m; "
     "all take + take by q = no first wait 1m + yes; 5m: take = used 1 until 6m; "
     "take = no first banned wait 1h; table = banned 1; change 1/m ban=1h after=3 shadow; "
     "take = of 0 shadowed overridden banned wait 1h; table = banned 1; "
     "change 1/m ban=1h after=3; take = no overridden banned wait 1h"},
    {"ban: one that has longer to go than a ban takes by now, and 60 s, is void",
     "If `ban` is made shorter, bans that have more than it and 60 s to go are void.",
     "1/m ban=1h name=p",
     "take 2 = no until 1m first banned never; prune 1/m ban=59m name=p; "
     "take = no of 0 overridden banned wait 1h; prune 1/m ban=58m name=p; take peek = of 1; "
     "1m: take = no of 0 until 2m overridden banned wait 59m; prune 1/m ban=10m name=p; "
     "take peek = of 1; prune 1/m ban=1h name=p; take = no of 0 overridden banned wait 59m"},
    {"ban: one that is void is no strikes: the span begins anew", SAME,
     "1/m ban=1h after=3 within=2h name=p",
     "take 2 = no until 1m first never; 1m: take 2 = no until 2m first never; "
     "2m: take 2 = no until 3m first banned never; change 1/m ban=1m after=3 within=2h; "
     "4m: take 2 = no until 5m first never"},
    {"overrides and bans follow a policy that is replaced, and are gone with one that is removed",
     "From that instant on the old id leads to the new policy, in every call",
     "table 100 admit 6; 1/m ban=1h name=p",
     "override 5 until 1h; take 2 of b = no until 1m first banned never; prune 1/m ban=1h name=p; "
     "rule = 5 until 1h; prune 1/h ban=1h name=p; rule by 0 = 5 until 1h; rule by p = 5 until 1h; "
     "take by 0 = used 1 of 5 until 1h overridden by p; "
     "take of b by 0 = no of 0 until 1h overridden banned wait 1h by p; "
     "take 2 of c by 0 = no until 1h first banned never by p; table = banned 2; "
     "override 0 until 1h of d by 0; rule of d by p = 0 until 1h; clear of d by 0; "
     "prune 1/h near=50% overrides name=p , 1/d name=q overrides; rule by p = 5 until 1h; "
     "prune 4/m stripes=2 name=p , 1/d name=q overrides; rule by p = EINVAL; table = overrides 0; "
     "override 5 until 1h by q; remove q; table = overrides 0; "
     "apply 1/s name=r overrides = ENOSPC max_policies"},
    {"ban: refusals that count write nothing while it lasts", "Refusals of a banned key only read.",
     "1/m count-refused ban=1h",
     "take 2 = no used 2 until 1m first banned never; take = no of 0 overridden banned wait 1h; "
     "1m: take = no used 0 until 2m overridden banned wait 59m"},

    /* ---- What is told ---- */

    {"an override is an entry of its key", "An override is told by itself.", "1/m overrides",
     "30s: override 7 until 1h; entries = override limit 7 until 1h"},
    {"... beside a refusal, and in the place of its ban", SAME, "1/m ban=1h",
     "30s: take 2 = no until 1m first banned never; override 3 until 1h; "
     "entries = refused since 0 until 1m + override limit 3 until 1h"},
    {"a ban: since the refusal that began it", SAME, "1/m ban=1h name=p",
     "30s: take 2 = no until 1m first banned never; "
     "entries = refused since 0 until 1m + ban since 30s until 1h+30s; "
     "apply 1/m ban=1h shadow name=p; "
     "entries = refused since 0 until 1m + ban since 30s until 1h+30s"},
    {"a ban after two refusals, and strikes before it: since the first", SAME, "1/m ban=1h after=2",
     "30s: take 2 = no until 1m first never; "
     "entries = refused since 0 until 1m + strikes used 1 since 30s until 1h+30s; "
     "90s: take 2 = no until 2m first banned never; "
     "entries = refused since 1m until 2m + ban since 90s until 1h+90s"},
    {"a shadow has none", SAME, "1/m ban=1h shadow",
     "30s: take 2 = until 1m first shadowed never; entries = refused since 0 until 1m"},
    {"fields and metrics",
     "The key is banned (stint_policy.ban), perhaps since this very refusal.",
     "2/m ban=10m overrides name=p",
     "20s: take 3 = no until 1m first banned never; "
     "take = no of 0 overridden banned wait 10m; fields = q 2 w 60 r 0 t 600 retry 600; "
     "override 0 until 1h of b; take of b = no of 0 until 1m first overridden wait 3580s; "
     "fields = q 2 w 60 r 0 t 3580 retry 3580; override 7 until 1h of c; "
     "take of c = used 1 of 7 until 1m overridden; fields = q 7 w 60 r 6 t 40; "
     "metrics = stint_table_overrides 2; metrics = stint_table_barred_keys 1; "
     "metrics = stint_table_banned_keys 1; metrics = stint_bans_total{policy=\"p\"} 1; "
     "metrics = stint_lost_strikes_total{policy=\"p\"} 0"},
    {"fields: a ban that is over before the window is", SAME, "2/h ban=10m name=p",
     "take = used 1 until 1h; take 2 = no first banned wait 1h; "
     "take = no used 1 of 0 overridden banned wait 10m; "
     "fields = q 2 w 3600 r 0 t 600 retry 600; take 2 = no used 1 overridden banned wait 1h; "
     "fields = q 2 w 3600 r 0 t 3600 retry 3600; take 3 = no used 1 overridden banned never; "
     "fields = q 2 w 3600 r 0 t 3600"},
};
/* clang-format on */

TEST_FEATURES(features)

/* Nobody meets the hidden policy, whose slots are those of overrides. */
TEST(test_hidden_policy) {
    struct stint_limiter *limiter = open_limiter(100, STINT_FULL_ADMIT);
    const uint32_t id = add_text(limiter, "5/minute overrides name=p");
    const struct stint_policy made = parsed("5/minute overrides name=p");
    const uint32_t hidden = id + 1;
    struct stint_policy got = STINT_POLICY_INIT;
    struct stint_policy_stats stats = STINT_POLICY_STATS_INIT;
    const struct stint_verdict verdict = ask(limiter, hidden, 1, 1, 0);
    assert_int_equal(verdict.flags, STINT_UNKNOWN_POLICY);
    assert_int_equal(stint_policy_get(limiter, hidden, &got), -ENOENT);
    assert_int_equal(stint_policy_change(limiter, hidden, &made), -ENOENT);
    assert_int_equal(stint_policy_stats_get(limiter, hidden, &stats), -ENOENT);
    assert_int_equal(stint_policy_find(limiter, "", NULL), -ENOENT);
    assert_int_equal(stint_headers(limiter, 0, &verdict, 1, NULL, 0), 0);
    assert_int_equal(get_stats(limiter).policies, 1);
    stint_close(limiter);
}

/* Whether a key is banned that strikes as late as it can in a window, and as early as it can in
 * those that follow. */
static bool soonest_ban(const struct stint_policy *policy, uint64_t begin) {
    struct stint_limiter *limiter = open_limiter(100, STINT_FULL_ADMIT);
    uint32_t id = add_made(limiter, policy);
    struct stint_verdict verdict;
    test_time = begin;
    verdict = ask(limiter, id, 1, 1, 0); /* it begins a window that begins with it */
    test_time = verdict.window - 1;
    verdict = ask(limiter, id, 1, 2, 0);
    for (uint32_t i = 1; i < policy->ban_after; i++) {
        assert_int_equal(verdict.flags, STINT_FIRST_REFUSAL);
        test_time = verdict.window;
        verdict = ask(limiter, id, 1, 2, 0);
    }
    stint_close(limiter);
    return (verdict.flags & STINT_BANNED) != 0;
}

/* The shortest ban that a policy may have can come, and the next shorter one cannot. */
TEST(test_bans_that_can_come) {
    static const struct {
        const char *policy;
        uint32_t after;
        uint64_t longer_than;
    } cases[] = {
        {"1/m", 2, 0},
        {"1/m", 3, MINUTE},
        {"1/m", 12, 10 * MINUTE},
        {"1/m start=1970-01-01T00:00:07Z", 4, 2 * MINUTE},
        {"1/m smooth", 3, MINUTE},
        {"1/m count-refused", 3, MINUTE},
        {"1/m start=per-key", 3, MINUTE},
        {"1/m start=first", 3, MINUTE},
        {"1/month", 2, 0},
        {"1/month", 3, 28 * DAY},
        {"1/month", 4, 59 * DAY},
        {"1/month start=1970-01-15", 5, 89 * DAY},
        {"1/month", 7, 150 * DAY},
        {"1/month", 12, 303 * DAY},
        {"1/month", 13, 334 * DAY},
        {"1/month", 14, 365 * DAY},
        {"1/year", 3, 365 * DAY},
        {"1/year start=1970-02-10", 3, 365 * DAY},
        /* None that would take longer than the longest. */
        {"1/366d", STINT_BAN_AFTER_MAX, 366 * DAY},
        {"1/month", STINT_BAN_AFTER_MAX, 366 * DAY},
        {"1/year", STINT_BAN_AFTER_MAX, 366 * DAY},
    };
    struct stint_limiter *limiter = open_limiter(100, STINT_FULL_ADMIT);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stint_policy made = parsed(cases[i].policy);
        made.flags |= STINT_OVERRIDES;
        made.ban_after = cases[i].after;
        made.ban = cases[i].longer_than + 10 * MS;
        bool banned = made.ban > STINT_WINDOW_MAX; /* by windows of some year, from some month on */
        for (uint64_t month = 0; month < (made.calendar != 0 ? 48 : 1) && !banned; month++)
            banned = soonest_ban(&made, T0 + month * 30 * DAY);
        assert_true(banned);
        made.ban -= 10 * MS;
        if (made.ban != 0) {
            assert_int_equal(policy_added(limiter, &made), -EINVAL);
            assert_reason("policy.ban must be longer");
        }
    }
    stint_close(limiter);
}

/* ---- Other tables ---------------------------------------------------------------------------- */

/* In a file the filter forgets who has no slot for one any more. Of a companion nothing may be
 * other than it was made. */
TEST_IN_DIRECTORY(test_file) {
    struct stint_options options = fixture_options(1000, STINT_FULL_ADMIT);
    options.path = path;
    struct stint_limiter *limiter = open_with(&options);
    const uint32_t id = add_text(limiter, "1/minute ban=1h name=p"),
                   gone = add_text(limiter, "1/minute overrides name=going");
    for (uint64_t i = 0; i < 100; i++)
        assert_int_equal(stint_override(limiter, i < 20 ? id : gone, number_key(limiter, i), 5,
                                        i < 10 ? T0 + HOUR : T0 + MINUTE),
                         0);
    for (size_t i = 0; i < 4; i++) /* a filter with all keys in one word says so of too many */
        assert_int_not_equal(limiter->table.shards->filter[i], 0);
    assert_int_equal(stint_policy_remove(limiter, gone), 0);
    stint_close(limiter);

    uint64_t bits = 0;
    test_time += 2 * MINUTE;
    limiter = open_with(&options);
    for (size_t i = 0; i < 4; i++)
        bits += (uint64_t)__builtin_popcountll(limiter->table.shards->filter[i]);
    assert_in_range(bits, 1, 20);
    for (uint64_t i = 0; i < 100; i++)
        assert_int_equal(ask(limiter, id, number_key(limiter, i), 1, 0).capacity, i < 10 ? 5 : 1);
    const struct rule rule = policy_rule(&limiter->policies[1]), none = {.stripes = 1};
    uint64_t words[2][RULE_WORDS] = {{0}};
    rule_pack(&rule, words[0]);
    rule_pack(&none, words[1]);
    assert_memory_equal(words[0], words[1], sizeof(words[0]));
    limiter->records[1].companion = 0;
    stint_close(limiter);
    assert_int_equal(stint_open(&options, &limiter), -EPROTO);
    assert_reason("none that stint makes");
}

static bool note_label(void *context, const struct stint_entry *entry) {
    *(bool *)context |= entry->label != NULL;
    return true;
}

/* "the key that was refused in the fewest windows makes room, but a banned one last". */
TEST(test_a_banned_key_keeps_its_name) {
    struct stint_options options = fixture_options(1000, STINT_FULL_ADMIT);
    options.labels = 4; /* one set, in which all have their names */
    struct stint_limiter *limiter = open_with(&options);
    const uint32_t id = add_text(limiter, "1/day ban=1d after=1");
    test_time = T0;
    for (unsigned key = 0; key < 40; key++) {
        const stint_key named = stint_key_of_id(limiter, key);
        const bool banned = key < 3; /* the others have an override, and strikes of nobody's */
        struct stint_verdict verdict = {0};
        for (int i = 0; banned && i < 2; i++)
            (stint_take)(limiter, id, named, 1, STINT_NOW, &verdict);
        assert_int_equal((verdict.flags & STINT_BANNED) != 0, banned);
        if (key % 2 == 1 && !banned)
            assert_int_equal((stint_override)(limiter, id, named, 5, T0 + HOUR), 0);
        assert_int_equal((stint_label)(limiter, named, "name", 4), 0);
        for (unsigned other = 0; other <= key; other++) {
            bool told = false;
            (void)(stint_each_of)(limiter, stint_key_of_id(limiter, other), note_label, &told);
            assert_int_equal(told, other < 3 || other == key);
        }
    }
    stint_close(limiter);
}
