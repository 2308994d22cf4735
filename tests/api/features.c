/* SPDX-License-Identifier: MIT
 * What each feature means, case by case, in words (kit/words.h). The comment before a case is where
 * users of other limiters reported what went wrong there, REPOSITORY#NUMBER on GitHub. */
#include "kinds.h"
#include "words.h"

/* clang-format off */
static const struct feature features[] = {
    /* ---- Windows ---- */

    /* dotnet/runtime#92557, fastify/fastify-rate-limit#324, bucket4j/bucket4j#100 */
    {"a fresh window at the very nanosecond", "begins every window with nothing used.", "2/m",
     "take = used 1 until 1m; 1ns: take = used 2; 2ns: take = no first wait 1m-2ns; "
     "1m-1ns: take = no wait 1ns; 1m: take = used 1 until 2m; 1m+1ns: take = used 2; "
     "2m-1ns: take = no first wait 1ns; 2m: take 2 = used 2 until 3m"},
    {"the year 2554", SAME, "1/h",
     "2554-07-21+22h+26m+40s: take = used 1 until 2554-07-21+23h; "
     "2554-07-21+22h+26m+40s+1ns: take = no first wait 33m+20s-1ns"},
    {"a window of 366 days", SAME, "3/366d start=2024-01-01",
     "take 2 = used 2 until 366d; 1ns: take 2 = no first wait 366d-1ns; 366d-1ns: take = used 3; "
     "366d: take 3 = used 3 until 732d"},
    {"a negative start", "ns since the epoch at which one window starts, a multiple of 10 ms",
     "1/h start=1969-12-31T23:59:59.99Z",
     "take = used 1 until 59m+59s+990ms; 59m+59s+990ms-1ns: take = no first wait 1ns; "
     "59m+59s+990ms: take = used 1 until 1h+59m+59s+990ms"},
    {"the first nanosecond of time", SAME, "1/100ms start=1970-01-01T00:00:00.03Z",
     "1970-01-01+1ns: take = used 1 until 1970-01-01+30ms; "
     "1970-01-01+30ms-1ns: take = no first wait 1ns; "
     "1970-01-01+30ms: take = used 1 until 1970-01-01+130ms"},
    {"a time of 0, to a clock that says so", SAME, "3/m",
     "1970-01-01: take = used 1 until 1970-01-01+1m; 1970-01-01+1ns: take = used 2; "
     "1970-01-01: take 2 = no first wait 1m"},
    /* lloyd/node-toobusy#39, gilestrolab/ethoscope#16 */
    {"a leap second is shown twice: no window has its limit twice, nor is it held up for longer",
     SAME, "2/10ms; 7/s name=s; 40/10s name=t",
     "1d-1s: take 2 = used 2 until 1d-990ms; 1d-10s: take 40 by t = used 40 until 1d; "
     "1d-1s: take 7 by s = used 7 until 1d; 1d-10ms: take 2 = used 2 until 1d; clock 1d-1s; "
     "take = no first wait 1s; take by s = no first wait 1s; take by t = no first wait 1s; "
     "1d-1ns: take = no wait 1ns; take by s = no wait 1ns; 1d: take 2 = used 2 until 1d+10ms; "
     "take 7 by s = used 7 until 1d+1s; take 40 by t = used 40 until 1d+10s; "
     "table = clock_steps 0"},
    {"the earliest start there is", SAME, "1/d start=1677-09-21T00:12:43.15Z",
     "take = used 1 until 12m+43s+150ms"},
    {"the latest start there is", SAME, "1/d start=2262-04-11T23:47:16.85Z",
     "take = used 1 until 23h+47m+16s+850ms"},
    {"week: from Thursday, as the epoch; 1 January 2024 is a Monday",
     "A week begins on Thursday, as the epoch did", "1/week",
     "take = used 1 until 3d; 3d: take = used 1 until 10d"},
    {"week: from Monday, by its start", SAME, "1/week start=2024-01-01",
     "take = used 1 until 7d; 7d: take = used 1 until 14d"},
    {"month: 31, 29, 31 and 30 days", "A month and a year are the calendar's, and have no N.",
     "3/month",
     "take 3 = used 3 until 2024-02-01; take = no first wait 31d; "
     "2024-02-01-1ns: take = no wait 1ns; 2024-02-01: take 3 = used 3 until 2024-03-01; "
     "2024-02-01+1ns: take = no first wait 29d-1ns; 2024-03-01-1ns: take = no wait 1ns; "
     "2024-03-01: take = used 1 until 2024-04-01; 2024-04-01-1ns: take 2 = used 3; "
     "2024-04-01: take 3 = used 3 until 2024-05-01; take = no first wait 30d"},
    {"year: of 366 days, of which the 29th of February is one", SAME, "1/year",
     "take = used 1 until 2025-01-01; take = no first wait 366d; "
     "2024-03-01-1ns: take = no wait 306d+1ns; 2025-01-01: take = used 1 until 2026-01-01"},
    {"month: from the 15th at nine, by a clock 14 hours ahead",
     "months begin on this day of the month (1 .. 28) at this time of day",
     "1/month start=1970-01-15T09:00:00+14:00",
     "take = used 1 until 2024-01-15-5h; 2024-01-15-5h: take = used 1 until 2024-02-15-5h; "
     "2024-02-15-5h-1ns: take = no first wait 1ns; "
     "2024-02-15-5h: take = used 1 until 2024-03-15-5h"},
    {"year: ends last in the west", SAME, "1/year start=1970-01-01T00:00:00-12:00",
     "2025-01-01+12h-1ns: take = used 1 until 2025-01-01+12h; take = no first wait 1ns; "
     "2025-01-01+12h: take = used 1 until 2026-01-01+12h"},

    /* ---- Costs, and words of requests ---- */

    /* alisaifee/limits#151 */
    {"costs", "STINT_NEVER: it never fits. Granted: 0;", "10/m",
     "take 0 = until 1m; take 7 = used 7; take 4 = no first wait 1m; take 10 = no wait 1m; "
     "take 11 = no never; take 4294967295 = no never; take 3 = used 10; take 0 = yes; "
     "1m: take 10 = used 10 until 2m"},
    {"the largest limit", SAME, "268435456/m",
     "take 268435455 = used 268435455 until 1m; take 2 = no first wait 1m; take = used 268435456; "
     "take = no wait 1m; take 268435456 = no wait 1m; take 268435457 = no never; "
     "take 4294967295 = no never; 1m: take = used 1 until 2m"},
    {"cost 0 neither turns nor creates a slot",
     "0 takes nothing, and is allowed unless more is used than the capacity", "2/m",
     "take 0 = until 1m; take 2 = used 2; 1m: take 0 = used 0 until 2m; "
     "1m-1ns: take = no used 2 until 1m first wait 1ns"},
    {"a limit of this call's own", "this call's own limit in place of the policy's capacity",
     "10/m",
     "take 5 limit 5 = used 5 of 5 until 1m; take limit 5 = no first wait 1m; "
     "take 5 = used 10 of 10; take 5 limit 15 = used 15 of 15; take = no of 10 wait 1m; "
     "take 0 limit 14 = no of 14 wait 1m; take 0 limit 15 = of 15; take 16 limit 15 = no never; "
     "take limit 268435456 = used 16 of 268435456; take limit 268435457 = used 17; "
     "take limit 4294967295 = used 18; take 4294967295 limit 4294967295 = no never; "
     "take 268435456 partial limit 4294967295 = granted 268435438 used 268435456; "
     "take limit 1 = no of 1 wait 1m"},
    /* resilience4j/resilience4j#1073, resilience4j/resilience4j#2489, mailgun/gubernator#40 */
    {"the limit changes at once, up and down",
     "What was used stays used. Limits and options may change;", "10/m",
     "take 10 = used 10 until 1m; change 25/m; take peek = of 25; take 15 = used 25; change 5/m; "
     "take = no of 5 first wait 1m; take 6 = no never; change 26/m; take = used 26 of 26; "
     "change 268435456/m; take 268435430 = used 268435456 of 268435456; change 1/m; "
     "1m: take = used 1 of 1 until 2m; take = no first wait 1m"},
    {"PARTIAL", "Take what is left if that is less than the cost; refused if nothing is.",
     "10/m",
     "take 4 partial = used 4 until 1m; take 20 partial = granted 6 used 10; "
     "take 5 partial = no first wait 1m; take 0 partial = yes; "
     "1m: take 11 partial = granted 10 used 10 until 2m; take = no first wait 1m"},
    /* resilience4j/resilience4j#1228 */
    {"DRAIN", "If the cost does not fit, refuse it and take what is left.", "10/m",
     "take 4 drain = used 4 until 1m; take 7 drain = no used 10 first wait 1m; take = no wait 1m; "
     "take drain = no wait 1m; 1m: take = used 1 until 2m"},
    {"PEEK", "Look, take nothing, count nothing: whether the request would be let through", "10/m",
     "take 4 peek = until 1m; take 11 peek = no never; take 4 = used 4; take 6 peek = yes; "
     "take 7 peek = no wait 1m; take 7 peek partial = yes; take 7 peek drain = no wait 1m; "
     "take 6 = used 10; take peek partial = no wait 1m; take 0 peek = yes; "
     "1m: take 10 peek = used 0 until 2m; 1m-1ns: take = no used 10 until 1m first wait 1ns"},
    /* chatmail/filtermail#167 */
    {"a late caller joins the newer window",
     "A late caller joins the newer window that its key is in.", "3/m",
     "1m: take = used 1 until 2m; 1m-1ns: take = used 2; 0: take = used 3; "
     "take = no first wait 2m; take 4 = no never; take peek = no wait 2m; back 1 of 2m; "
     "take = used 3"},
    {"month: late callers are in that of their time, if the key has none newer", SAME, "3/month",
     "2024-02-01-1s: take = used 1 until 2024-02-01; "
     "2024-02-01+1s: take 0 peek = used 0 until 2024-03-01; "
     "2024-02-01-2s: take = used 2 until 2024-02-01; "
     "2024-02-01+1s: take 2 = used 2 until 2024-03-01; 2024-02-01-1s: take = used 3; "
     "2024-02-01-30s: take = no first wait 29d+30s"},
    {"first: a late caller joins the window, also one that began after his time", SAME,
     "3/m start=first",
     "30s: take = used 1 until 90s; 29s: take = used 2; 29s+990ms: take = used 3; "
     "1ns: take = no first wait 90s-1ns; 91s: take = used 1 until 151s; 89s: take = used 2"},
    {"promise H: a caller that is hours late",
     "the request is decided at the clock's time, counted once", "2/m",
     "take = used 1 until 1m; -3h: take = used 2; take = no first wait 1m; "
     "-300d: take = no wait 1m; 0: take = no wait 1m"},
    {"a now that is late by minutes, in a window of the clock's of which nobody has asked", SAME,
     "9/h; 9/h smooth name=s; 8/h stripes=4 name=t; 9/h overrides name=o; 9/h shadow name=h",
     "take = used 1 until 1h; take by s = used 1 until 1h; take by t = used 4 until 1h; "
     "take by o = used 1 until 1h; take by h = used 1 until 1h; clock 1h+30m; "
     "1h+10m: take = used 1 until 2h; take by s = used 2 until 2h; take by t = used 4 until 2h; "
     "take by o = used 1 until 2h; take by h = used 1 until 2h; counts = mistaken_nows 1; "
     "counts by s = mistaken_nows 1; counts by t = mistaken_nows 1; "
     "counts by o = mistaken_nows 1; counts by h = mistaken_nows 1"},
    {"ban: who is so late that he is decided at the clock's time meets none that is over by then",
     SAME, "1/m ban=1m",
     "take 2 = no until 1m first banned never; 10m: take = used 1 until 11m; "
     "1s: take = no first banned wait 1m"},

    /* ---- Refusals ---- */

    {"the first refusal is one, whatever happens in the window",
     "The first refusal of this key in this window, exactly once", "1/m",
     "take = used 1 until 1m; take peek = no wait 1m; take = no first wait 1m; back 1 of 1m; "
     "take = used 1; take = no wait 1m; reset = forgot; take 2 = no first never; take = used 1; "
     "1m-1ns: take drain = no wait 1ns; 1m: take 2 peek = no used 0 until 2m never; "
     "take 2 = no first never; take 2 = no never; take = used 1; take = no wait 1m"},
    {"COUNT_REFUSED", "Refused tokens count as used, up to 2^28, as in the INCR recipes of Redis.",
     "3/m count-refused",
     "take 2 = used 2 until 1m; take 2 = no used 4 first wait 1m; take = no used 5 wait 1m; "
     "take peek = no wait 1m; take partial = no used 6 wait 1m; take 0 = no wait 1m; "
     "take 4 = no used 10 never; take 268435456 = no used 268435456 never; take = no wait 1m; "
     "take 4294967295 = no never; 1m-1ns: take = no wait 1ns; 1m: take 3 = used 3 until 2m"},
    {"a refund of counted refusals",
     "Refusals that were counted (STINT_COUNT_REFUSED) took no tokens: they stay counted.",
     "4/m count-refused",
     "take 4 = used 4 until 1m; take 4 = no used 8 first wait 1m; back 1 of 1m; "
     "take 0 = no wait 1m; back 3 of 1m; take 0 = yes"},
    {"SHADOW", "Decide and count, but let everything through (STINT_SHADOWED): to try a limit.",
     "2/m shadow",
     "take 2 = used 2 until 1m; take = first shadowed wait 1m; 1ns: take = shadowed wait 1m-1ns; "
     "0: take 3 = shadowed never; take peek = shadowed wait 1m; take partial = shadowed wait 1m; "
     "1m: take = used 1 until 2m; take 2 drain = used 2 first shadowed wait 1m; "
     "take = shadowed wait 1m"},
    {"near limit: more than so many percent of the capacity",
     "More than the policy's near_limit percent of the capacity is used.", "10/m near=80%",
     "take 8 = used 8 until 1m; take peek = yes; take = used 9 near; take 0 peek = near; "
     "take 2 = no first near wait 1m; take 2 peek = no near wait 1m; take = used 10 near; "
     "back 2 of 1m; take 0 peek = yes; take 3 = no wait 1m; take limit 20 = used 9 of 20; "
     "take 0 peek limit 9 = of 9 near; 1m: take = used 1 of 10 until 2m"},
    {"near limit: at 100 percent only what is beyond the capacity", SAME,
     "4/m capacity=6 reserve=2 near=100%",
     "take 6 = used 6 until 1m; take reserve = used 7 near wait 1m; take = no first near wait 1m; "
     "1m: take = used 4 until 2m"},
    {"near limit: of a large limit without overflow", SAME, "268435456/m near=99%",
     "take 265751101 = used 265751101 until 1m; take = used 265751102 near"},

    /* ---- Giving back ---- */

    /* Instawork/llm-proxy#40, laravel/framework#56656 */
    {"a refund gives back what was taken",
     "Tokens are given back in the window in which they were taken.", "10/m",
     "take 6 = used 6 until 1m; back 2 of 1m; take peek = yes; back 0 of 1m; back 2 of 2m = 0; "
     "back 2 of 0 = 0; back 2 of none = 0; take 6 = used 10; back 11 of 1m = 10; "
     "back 1 of 1m = 0; take 10 = used 10; back 4294967295 of 1m = 10; take 10 = used 10"},
    {"month: a clock that is stepped back, across its end, by up to 60 s and by more",
     "A real backward step of the clock adds at most 60 s", "3/month",
     "clock 2024-03-01+1s; take 2 = used 2 until 2024-04-01; clock 2024-03-01-1s; take = used 3; "
     "clock 2024-03-01+1s; take 2 of b = used 2 until 2024-04-01; clock 2024-03-01-50s; "
     "take of b = used 3; clock 2024-03-01+1s; take 2 of c = used 2 until 2024-04-01; "
     "clock 2024-03-01-1m; take of c = used 3; table = clock_steps 0; clock 2024-03-01+1s; "
     "take 2 of d = used 2 until 2024-04-01; clock 2024-03-01-1m-20ms; "
     "take of d = used 1 until 2024-03-01; table = clock_steps 1; clock 2024-03-01+1s; "
     "take 2 of e = used 2 until 2024-04-01; clock 2024-02-01-1ns; "
     "take of e = used 1 until 2024-02-01; clock 2024-03-01+1s; "
     "take 2 of f = used 2 until 2024-04-01; clock 2024-01-01-1ns; "
     "take of f = used 1 until 2024-01-01; table = clock_steps 3"},
    {"month: a clock that is stepped back into the hours before a shorter one's end", SAME,
     "table 2 refuse; 3/month",
     "clock 2024-04-01+1s; take 2 = used 2 until 2024-05-01; clock 2024-04-01-2h; "
     "take 3 of b = used 3 until 2024-04-01; take 3 of c = used 3 until 2024-04-01; "
     "take 3 of d = used 3 until 2024-04-01; take = used 3; take = no first wait 30d+2h; "
     "take of e = no until 2024-04-01 untracked wait 2h; table = clock_steps 0; clock 2024-02-02; "
     "take of e = used 1 until 2024-03-01"},
    {"the window whose 33 bits are 0 is one as any, and no end gives nothing back to it",
     "Tokens are given back in the window in which they were taken.",
     "3/s start=2027-03-01T07:31:04.32Z",
     "2027-03-01+27064s+320ms-1ns: take = used 1 until 2027-03-01+27064s+320ms; "
     "back 1 of none = 0; take 0 peek = yes; back 1 of 2027-03-01+27064s+320ms; "
     "take 0 peek = yes"},
    /* express-rate-limit/express-rate-limit#647 */
    {"first: refunds by the window that was charged; a reset keeps the window", SAME,
     "3/m start=first",
     "1s: take 3 = used 3 until 61s; back 1 of 1m = 0; back 5 of 61s = 3; 2s: take 2 = used 2; "
     "reset = forgot; 3s: take 3 = used 3; 62s: take = used 1 until 122s; back 1 of 61s = 0; "
     "back 1 of 122s"},
    {"refund: to a window that is over by the clock, while the key is in it",
     "Once the key has begun another one, nothing is given back.", "10/m capacity=20",
     "take 20 = used 20 until 1m; 1m: take 11 peek = no used 10 until 2m wait 1m; back 4 of 1m; "
     "take 14 = used 20; back 4 of 1m = 0"},
    {"a reset", "It has nothing used, no ban and no strikes, and its next refusal is a first one.",
     "2/m",
     "reset = nothing; take 2 = used 2 until 1m; reset = forgot; take 0 peek = yes; "
     "take 2 = used 2; take = no first wait 1m; reset = forgot; reset = nothing; "
     "back 2 of 1m = 0; take 2 = used 2; take = no first wait 1m; 1m: take = used 1 until 2m"},
    /* nokia/consumer-rate-limiting#8, stefanprodan/AspNetCoreRateLimit#379 */
    {"ban: whoever is refused again after a reset is told so, and banned again",
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

    /* ---- Windows that begin with a request ---- */

    /* bucket4j/bucket4j#128, laravel/framework#55459, upstash/docs#439 */
    {"first: a window begins with a request that takes, and lasts one window",
     "A key's window begins with its first request, and lasts one window (up to 10 ms less",
     "3/m start=first",
     "7s: take = used 1 until 67s; 1m: take = used 2; 67s-1ns: take = used 3; "
     "take = no first wait 1ns; 80s: take 3 = used 3 until 140s; 127s: take = no first wait 13s"},
    {"first: it begins with a tick, so it is up to 10 ms short", SAME, "1/m start=first",
     "10ms-1ns: take = used 1 until 1m; 1m-1ns: take = no first wait 1ns; "
     "1m+3ms: take = used 1 until 2m"},
    {"first: a refusal and a charge begin one", SAME, "3/m start=first",
     "take 4 = no until 1m first never; 1s: take 3 = used 3; take = no wait 59s; "
     "61s: take 5 charge = used 5 until 121s; 2m: take look = no first wait 1s; "
     "121s: take 2 partial = used 2 until 181s; take 2 drain = no used 3 first wait 1m"},
    {"first: looks begin none, nor does what takes nothing",
     "A request that takes nothing and is not refused begins none", "3/m start=first",
     "take peek = until 1m; 1s: take 0 = until 61s; 2s: take 3 look = until 62s; "
     "3s: take = used 1 until 63s; 65s: take peek = used 0 until 125s; 66s: take 0 = until 126s; "
     "67s: take = used 1 until 127s"},

    /* ---- Smooth windows ---- */

    {"a reset forgets a ban and strikes, until their time is over, and no override",
     "It has nothing used, no ban and no strikes, and its next refusal is a first one.",
     "1/m ban=1h after=3",
     "take of b = used 1 until 1m; take of b = no first wait 1m; 1m: reset of b; "
     "reset of b = nothing; take of c = used 1 until 2m; take of c = no first wait 1m; "
     "2m: take of c = used 1 until 3m; take of c = no first wait 1m; "
     "3m: take of c = used 1 until 4m; take of c = no first banned wait 1h; 4m: reset of c; "
     "reset of c = nothing; take of d = used 1 until 5m; take of d = no first wait 1m; "
     "124m: reset of d = nothing; override 9 until 184m; reset = nothing; rule = 9 until 184m"},

    /* ---- Groups ---- */

    /* ---- Full tables ---- */

    {"a full table that admits: who finds no slot is let through, marked, and counted as that",
     "what is within the capacity is let through (STINT_UNTRACKED)", "table 2 admit; 10/m",
     "take 5 = used 5 until 1m; take 3 of b = used 3 until 1m; take 4 of c = used 4 until 1m; "
     "take 6 of d = used 6 until 1m; 7ns: take 4 peek of e = until 1m untracked; "
     "take 4 of e = used 4 until 1m untracked; take 4 tentative of e = used 4 until 1m untracked; "
     "all take 4 of e + take 0 peek = used 4 until 1m untracked + yes; "
     "take 11 of e = no until 1m untracked never; back 4 of 1m of e = 0; reset of e = nothing; "
     "take 0 peek = yes; take 0 peek of b = yes; take 0 peek of c = yes; take 0 peek of d = yes; "
     "counts = allowed 7 refused 1 untracked 4 first_refusals 0; "
     "table = live 4 placed 4 untracked 4 replaced 0 slots 4"},
    {"a full table that refuses: it waits for the window's end",
     "the request is refused. Its retry_after is at least the rest of the window",
     "table 2 refuse; 10/m",
     "take 5 = used 5 until 1m; take 3 of b = used 3 until 1m; take 4 of c = used 4 until 1m; "
     "take 6 of d = used 6 until 1m; 7ns: take 4 peek of e = no until 1m untracked wait 1m-7ns; "
     "take 4 of e = no until 1m untracked wait 1m-7ns; "
     "take 4 tentative of e = no until 1m untracked wait 1m-7ns; "
     "all take 4 of e + take 0 peek = no until 1m untracked wait 1m-7ns + yes; "
     "take 11 of e = no until 1m untracked never; "
     "-5m: take of e = no until 1m untracked wait 1m-7ns; all take of e + take of f = no until 1m "
     "untracked wait 1m-7ns + no until 1m untracked wait 1m-7ns; 7ns: take 0 peek = yes; "
     "take 0 peek of b = yes; take 0 peek of c = yes; take 0 peek of d = yes; "
     "counts = allowed 4 refused 7 untracked 7; table = live 4 placed 4 untracked 7 replaced 0"},
    {"a full table that replaces: the key that has used least makes room",
     "it takes the slot of the key that has used least (STINT_REPLACED)", "table 2 replace; 10/m",
     "take 5 = used 5 until 1m; take 3 of b = used 3 until 1m; take 4 of c = used 4 until 1m; "
     "take 6 of d = used 6 until 1m; take 4 peek of e = until 1m; "
     "take 11 of e = no never untracked; take 2 of e = used 2 until 1m replaced; "
     "take 0 peek of b = used 0; take of f = used 1 until 1m replaced; take 0 peek of e = used 0; "
     "take 0 peek = yes; take 0 peek of c = yes; take 0 peek of d = yes; "
     "table = live 4 replaced 2"},
#define TAKES_NOTHING                                                                              \
    "10/m; 9/m capacity=10 name=q; 10/m smooth name=r; 10/m burst=10 name=s; "                     \
    "10/m stripes=2 name=t",                                                                       \
        "take = used 1 until 1m; take of b = used 1 until 1m; take of c = used 1 until 1m; "       \
        "take of d = used 1 until 1m; take 0 of e = until 1m; take 0 of e by q = until 1m; "       \
        "take 0 peek of e by q = yes; take 0 of e by r = until 1m; take 0 peek of e by r = yes; "  \
        "take 0 of e by s = until 0; take 0 peek of e by s = yes; take 0 of e by t = until 1m; "   \
        "take 0 peek of e by t = yes; all take + take 0 of e by q + take 0 peek of f by r = "      \
        "used 2 + yes + until 1m; table = live 4 placed 4 untracked 0 replaced 0"
    {"what takes nothing needs no slot: where the table admits",
     "A request that takes nothing and is not refused needs no slot.",
     "table 2 admit; " TAKES_NOTHING},
    {"what takes nothing needs no slot: where it refuses", SAME, "table 2 refuse; " TAKES_NOTHING},
    {"what takes nothing needs no slot: where it replaces", SAME,
     "table 2 replace; " TAKES_NOTHING},
    {"charges on a full table: nothing is charged of a key without a slot",
     "Else nothing is charged, and the request is allowed and marked STINT_UNTRACKED.",
     "table 2 refuse; 9/h; 10/m name=q; 10/m smooth name=r; 10/m capacity=20 name=s",
     "fill 4; take 1000 charge of e = granted 0 until 1h untracked; "
     "take 1000 charge of e by q = granted 0 until 1m untracked; "
     "take 3 look of e by q = no until 1m untracked wait 1m; "
     "take 1000 charge of e by r = granted 0 until 1m untracked; "
     "take 30 look of e by r = no until 1m never untracked; "
     "take 1000 charge of e by s = granted 0 until 1m untracked; counts by s = charged 0"},
    {"a striped key of which no stripe has a slot is told what a plain key is",
     "On a full table a request takes what the stripes that have slots can give.",
     "table 2 admit; 10/m; 100/m near=50% name=q; 100/m near=50% stripes=4 name=r",
     "fill 4; take 50 of e by q = used 50 until 1m untracked; "
     "take 50 of e by r = used 50 until 1m untracked; "
     "take 51 of e by q = used 51 until 1m untracked near; "
     "take 51 of e by r = used 51 until 1m untracked near; "
     "take 100 peek of e by q = until 1m untracked; take 100 peek of e by r = until 1m untracked; "
     "take 101 of e by q = no until 1m never untracked; "
     "take 101 of e by r = no until 1m never untracked; take 0 of e by r = until 1m; "
     "counts by q = allowed 2 refused 1 near_limit 1 untracked 3; "
     "counts by r = allowed 3 refused 1 near_limit 1 untracked 3"},
    {"a striped key of which no stripe has a slot: where the table refuses, and by a shadow", SAME,
     "table 2 refuse; 10/m; 100/m name=q; 100/m stripes=4 name=r; 100/m shadow name=s; "
     "100/m shadow stripes=4 name=t",
     "fill 4; take 50 of e by q = no until 1m untracked wait 1m; "
     "take 50 of e by r = no until 1m untracked wait 1m; "
     "take 101 peek of e by q = no until 1m never untracked; "
     "take 101 peek of e by r = no until 1m never untracked; "
     "take 50 of e by s = until 1m shadowed untracked wait 1m; "
     "take 50 of e by t = until 1m shadowed untracked wait 1m; "
     "take 101 of e by s = until 1m shadowed untracked never; "
     "take 101 of e by t = until 1m shadowed untracked never"},
    {"refusals and looks of a striped key take nobody's slot",
     "No key is replaced only to mark a refusal.", "table 2 replace; 10/m; 8/m stripes=4 name=q",
     "take 5 = used 5 until 1m; take 5 of b = used 5 until 1m; take 5 of c = used 5 until 1m; "
     "take 2 of d by q = used 8 until 1m; take 7 peek of d by q = no used 2 wait 1m; "
     "take 7 of d by q = no used 2 untracked wait 1m; "
     "take 8 of d by q = no used 2 untracked wait 1m; take 9 peek of d by q = no never; "
     "take 1000 of d by q = no used 2 untracked never; take 6 peek of d by q = yes; "
     "take 0 peek = yes; take 0 peek of b = yes; take 0 peek of c = yes; "
     "table = replaced 0 placed 4 live 4"},
    {"keys that stay in their slots are taken over when the clock has stepped back behind them",
     "A real backward step of the clock adds at most 60 s", "table 2 refuse; 10/m; 10/h name=q",
     "take = used 1 until 1m; take of b = used 1 until 1m; take of c = used 1 until 1m; "
     "take of d = used 1 until 1m; clock 1d; take = used 1 until 1d+1m; "
     "take of b = used 1 until 1d+1m; take of c = used 1 until 1d+1m; "
     "take of d = used 1 until 1d+1m; clock 1d-750s; take of e by q = used 1 until 1d; "
     "1d-690s: take of f by q = used 1 until 1d; 1d-630s: take of g by q = used 1 until 1d; "
     "1d-570s: take of h by q = used 1 until 1d"},

    /* ---- Stripes ---- */

    {"stripes: what finds no slot for one of them is let through, and the others keep nothing",
     "Only if that is not enough is it decided as one of a key without a slot.",
     "table 2 admit; 80/m stripes=8",
     "take 50 = used 50 until 1m untracked; table = live 4; counts = untracked 1; "
     "take = used 8 until 1m"},
    {"stripes: ... or refused", SAME, "table 2 refuse; 80/m stripes=8",
     "take 50 = no until 1m untracked wait 1m; table = live 4; "
     "take = used 8 until 1m"},
    {"stripes: a charge of which a part has no slot", SAME,
     "table 2 admit; 40/d stripes=8; 1/d name=plain",
     "take 100 charge = granted 20 until 1d untracked; counts = charged 20"},
    {"stripes: a late caller joins the newer window of some, and gets an answer",
     "A late caller joins the newer window that its key is in.", "10/m stripes=2",
     "1m: take = used 2 until 2m; 1m-1ns: take 6 = used 10; take 0 peek = used 7; "
     "take 6 = no first wait 1m+1ns; take 3 = used 10; take = no wait 1m+1ns; "
     "take 0 peek = used 10"},
    {"stripes: ... with a window before", SAME, "10/m stripes=2",
     "take 10 = used 10 until 1m; 1m: take = used 2 until 2m; 1m-1ns: take 6 = used 10; "
     "take 0 peek = used 7; take 6 = no first wait 1m+1ns; take 3 = used 10; "
     "take = no wait 1m+1ns; take 0 peek = used 10"},
    {"stripes: a refusal gives a key no slot, but one for the mark of its first",
     "A key without a slot is given one for that bit, if there is room.",
     "16/m stripes=8; 4/m stripes=2 name=q; 128/m stripes=64 name=r",
     "take 2 = used 16 until 1m; table = placed 1; take 15 = no used 2 first wait 1m; "
     "take 15 = no wait 1m; take 16 = no wait 1m; take 17 = no never; take 0 peek = yes; "
     "table = placed 2; take 2 by q = used 4 until 1m; take 3 by q = no used 2 first wait 1m; "
     "take 5 by q = no never; table = placed 4; take 2 by r = used 128 until 1m; "
     "take 127 by r = no used 2 first wait 1m; take 129 by r = no never; table = placed 6"},
    {"what a reset forgets: counts, marks, and what carries over",
     "tokens, refusals or debts that still counted, a ban, or strikes",
     "5/m; 8/m stripes=4 name=q; 5/m smooth name=r; 5/m capacity=9 name=s",
     "reset by 7 = nothing; reset by s = nothing; take 3 = used 3 until 1m; reset of b = nothing; "
     "reset; reset = nothing; take 3 = used 3; take 9 charge = used 12; "
     "take 3 by q = used 8 until 1m; reset by q; reset by q = nothing; "
     "take 3 by r = used 3 until 1m; take 3 by s = used 3 until 1m; take 9 charge by r = used 12; "
     "take 9 charge by s = granted 6 used 9; take 3 by q = used 8; 1m: reset = nothing; "
     "reset by q = nothing; reset by r; reset by s; take 3 by r = used 3 until 2m; "
     "take 3 by s = used 3 until 2m; 1d: reset by r = nothing; reset by s = nothing; "
     "take 99 of c = no until 1441m first never; reset of c; reset of c = nothing; "
     "take 99 of c by q = no until 1441m first never; reset of c by q; reset of c by q = nothing"},
    {"waits beyond what 64 bits of ns can say do not wrap",
     "tells what is too long for 64 bits as STINT_NEVER - 1.",
     "1/d capacity=134217728 reserve=134217728 jitter=100%",
     "take 268435456 reserve = used 268435456 until 1d wait 18446744073709551614ns; "
     "take 134217728 = no first wait 18446744073709551614ns"},

    {"a policy that never was is unknown, whatever its id",
     "There is no such policy, or it was removed: refused, retry_after STINT_NEVER, all else 0.",
     "5/m",
     "take 2 = used 2 until 1m; take by 1 = no unknown; take by 63 = no unknown; "
     "take by 64 = no unknown; take by 65534 = no unknown; take by 65535 = no unknown; "
     "take by 65536 = no unknown; take 0 peek by 65537 = no unknown; "
     "take drain limit 9 by 4294967295 = no unknown; all take + take by 2 = yes + no unknown; "
     "back 1 of 1m by 1 = 0; reset by 64 = nothing; table = unknown_policy 9 live 1; "
     "take = used 3"},

    {"a group takes all, or nothing", "all of them take their tokens, or none does", "5/m",
     "all take 3 + take 3 of b + take 3 of c = used 3 until 1m + used 3 until 1m + used 3 until "
     "1m; all take 3 + take 3 of b + take 3 of c = no first wait 1m + no first wait 1m + no first "
     "wait 1m; all take 3 = no wait 1m; take 2 of b = used 5; "
     "all take + take of b = yes + no wait 1m; take 0 peek = used 3; "
     "all take + take of b by 5 + take 2 of c = yes + no unknown + yes; table = unknown_policy 1; "
     "take 0 peek of c = used 3"},
    {"two parts of one key by one policy are none of a group",
     "Two requests of one key by one policy, also by the id of one that it replaced",
     "3/m name=x; 50/m name=y",
     "all take + take = no bad + no bad; apply 3/h name=x; "
     "all take by 0 + take by y + take by x = no bad + no bad + no bad; table = bad_requests 5; "
     "take 0 peek by x = until 1h; all take by 0 + take by y + take of b by x = used 1 until 1h "
     "by x + used 1 until 1m + used 1 until 1h; "
     "all take of b by x + take by x + take by x = no bad + no bad + no bad"},
    {"a part that makes no sense refuses the group, and the others are as in any refusal",
     "In a group it is, too; the look is not.", "9/m; 10/m smooth name=s; 10/m stripes=2 name=t",
     "take 3 = used 3 until 1m; take 8 of b = used 8 until 1m; all take 2 + take charge of d + "
     "take 9 of b + take peek of c = yes + no bad + no first wait 1m + until 1m; "
     "counts = allowed 2 refused 1; all take 2 + take charge of d = yes + no bad; "
     "all take 2 + take look of d = used 5 + until 1m; take 3 by s = used 3 until 1m; "
     "all take 2 by s + take partial charge of d by s = yes + no bad; "
     "take 3 by t = used 6 until 1m; take 0 peek by t = used 3; "
     "all take 2 by t + take partial of d by t = yes + no bad; "
     "all take 2 by t + take limit 9 of d by t = yes + no bad; table = bad_requests 5; "
     "take 0 peek = used 5; take 0 peek of b = yes"},
    {"all of a group is looked at first: what is refused marks, and what fits is not counted",
     "Those that fit are neither decided nor counted.", "2/m name=p; 5/m name=q",
     "take 2 = used 2 until 1m; all take 3 by q + take = until 1m + no first wait 1m; "
     "counts by q = allowed 0 refused 0; counts = allowed 1 refused 1 first_refusals 1; "
     "all take 3 by q + take = yes + no wait 1m; take 5 by q = used 5; "
     "all take by q + take = no first wait 1m + no wait 1m; "
     "all take peek by q + take = no wait 1m + no wait 1m; counts by q = refused 1"},

    /* ---- Policies that come and go ---- */

    {"a policy that is removed is unknown, and comes back with nothing used",
     "Requests by its id are refused (STINT_UNKNOWN_POLICY), its slots are free.",
     "3/m name=x; 4/m name=y",
     "take = used 1 until 1m; take of b = used 1 until 1m; take by y = used 1 until 1m; "
     "table = live 3; remove x; remove 0 = ENOENT; table = live 1 policies 1; "
     "take by 0 = no unknown; take 0 peek by 0 = no unknown; take 2 drain by 0 = no unknown; "
     "take charge by 0 = no unknown; all take by 0 + take of b by 0 = no unknown + no unknown; "
     "back 1 of 1m = 0; reset = nothing; take 0 peek by y = yes; add 3/200s name=x; "
     "take by 0 = no unknown; take by x = used 1 until 200s; remove x; add 3/m name=x; "
     "take 0 peek by 0 = used 0 generation 1; take by x = used 1 generation 1; "
     "take by 2 = no unknown"},
    {"the slots of a removed policy are free in the next tick", SAME,
     "table 4 refuse; 3/366d name=long; 3/m name=short",
     "fill 8; take of b by short = no until 1m untracked wait 1m; remove long; "
     "10ms: fill 8 by short; table = live 8 clock_steps 0; "
     "take of b by short = no until 1m untracked wait 1m-10ms"},
    {"policies that have no room: no line of the text is applied",
     "if one is wrong, or there is no room for all, nothing is changed", "table 100 refuse 3;",
     "apply 1/s name=a , 1/m name=b , 1/s name=c , 1/s name=d = ENOSPC line 4: "
     "options.max_policies; table = policies 0; "
     "apply 1/s name=a , 1/m name=b , 1/s name=c overrides = ENOSPC line 3: STINT_OVERRIDES; "
     "apply 1/s name=a , 1/m name=b; apply 1/m name=a , 1/s name=b = ENOSPC line 2; remove 1; "
     "apply 1/m name=a , 1/s name=b = ENOSPC; apply 2/m name=b , 1/s name=c; "
     "take by 1 = used 1 of 2 until 1m generation 1; "
     "add 1/m name=d = ENOSPC taken. All are in use: open a limiter with more; remove 1; add 1/m "
     "name=d = ENOSPC taken. 1 of 3 are of removed and replaced policies. These stay taken, as "
     "the table has no file: open it anew"},
    {"the old ids of a policy lead to the one that has its name",
     "The old id leads to the new policy.", "2/m name=x",
     "take 2 = used 2 until 1m; take = no first wait 1m; apply 2/s name=x; apply 6/h name=x; "
     "table = live 0; take = used 1 of 6 until 1h by x; take by 1 = used 2 of 6 until 1h by x; "
     "take 0 peek by x = used 2 until 1h; fields = q 6 w 3600 r 4 t 3600; counts = allowed 2; "
     "give 1; take 0 peek by x = used 1; change 100/h name=x; take 0 peek = used 1 of 100 by x; "
     "reset by 1; take 0 peek by x = used 0 of 100; remove 0; take = no unknown; "
     "take by 1 = no unknown; take by 2 = no unknown"},
    {"what a policy granted is given back by no verdict once it is replaced",
     "Its refunds give nothing back (refunds_lost).",
     "3/m name=x; 3/h name=y; 1/20m burst=3 name=z; 4/30s in-flight name=w",
     "59m+30s: take 3 = used 3 until 1h; take 3 by y = used 3 until 1h; "
     "take 3 by z = used 3 until 1h+59m+30s; take 3 by w = used 3 until 1h; apply 3/h name=x , "
     "3/h reserve=1 name=y , 3/h start=first name=z , 4/m in-flight name=w; "
     "take 3 by x = used 3 until 1h; take 3 by y = used 3 until 1h; "
     "take 3 by z = used 3 until 1h+59m+30s; take 3 by w = used 3 until 1h; give 3 by 0 = 0; "
     "give 3 by 1 = 0; give 3 by 2 = 0; give 3 by 3 = 0; counts by x = refunded 0 refunds_lost 1; "
     "give 3 by x; give 3 by x = 0; give 3 by y; give 3 by z; give 3 by w; "
     "take 0 peek by x = used 0; counts by x = refunded 3"},

    /* redisson/redisson#2931, plausible/analytics#6497, dotnet/aspnetcore#52411,
     * symfony/symfony#40289 */
    {"smooth: no burst of twice the limit at a boundary",
     "STINT_SMOOTH grants no burst of twice the limit at a boundary", "5/m smooth",
     "58s: take = used 1 until 1m; take 4 = used 5; take = no first wait 14s; "
     "62s: take = no until 2m first wait 10s; take 2 = no wait 22s; 72s-1ns: take = no wait 1ns; "
     "72s: take = used 5; take = no wait 12s; 84s: take = used 5; 2m: take 3 = used 5 until 3m; "
     "take = no first wait 30s; take 5 = no wait 2m; take 6 = no never; "
     "150s-1ns: take = no wait 1ns; 150s: take 0 = used 4; 4m: take 5 = used 5 until 5m"},
    /* haproxy/haproxy#1913, apache/shenyu#6754 */
    {"smooth: a window without requests is forgotten after the next", SAME, "7/m smooth",
     "take 7 = used 7 until 1m; 1m: take 0 peek = until 2m; 1m+1ns: take 0 peek = yes; "
     "2m-1ns: take 0 peek = used 1; 2m: take 0 peek = used 0 until 3m; take 7 = used 7"},
    {"smooth: a late caller counts the whole window before", SAME, "8/m smooth",
     "take 4 = used 4 until 1m; 1m: take = used 5 until 2m; 50s: take = used 6; "
     "90s: take 0 peek = used 4; 50s: take 3 = no used 6 first wait 25s"},
    {"smooth: the largest limit", SAME, "16383/366d start=2024-01-01 smooth",
     "take 16383 = used 16383 until 366d; take = no first wait 366d+32m+10s+195ms+934us+811ns; "
     "366d: take = no until 732d first wait 32m+10s+195ms+934us+811ns; "
     "549d: take 0 peek = used 8192; take 8191 = used 16383"},

    /* ---- Tokens that carry over, and reserves ---- */

    {"roll-over: PARTIAL, RESERVE, DRAIN together",
     "Take up to the policy's max_reserved tokens ahead.", "10/m capacity=20 reserve=5",
     "take 30 partial = granted 20 used 20 until 1m; take 30 peek partial reserve = wait 1m; "
     "take 30 partial reserve = granted 5 used 25 wait 1m; "
     "take partial reserve = no first wait 1m; take drain = no wait 1m; take 6 = no wait 2m; "
     "1m: take 6 drain = no used 20 until 2m first wait 1m; take 6 drain reserve = no wait 1m; "
     "take 5 reserve = used 25 wait 1m; 4m: take 20 drain = used 20 until 5m"},
    {"a capacity below the limit caps a plain policy",
     "below the limit, a window grants no more than this", "10/m capacity=3",
     "take 3 = used 3 until 1m; take = no first wait 1m; take 4 = no never; back 2 of 1m; "
     "take = used 2; 1m: take = used 1 until 2m"},

    /* ---- Tentative requests, charges ---- */

    {"tentative: refused, it tells and marks nothing",
     "If it is refused, it tells no FIRST_REFUSAL, counts no strike, and writes no mark", "2/m",
     "take 2 tentative = used 2 until 1m; take tentative = no wait 1m; "
     "take look tentative = no wait 1m; take look = no first wait 1m; "
     "1m: take tentative = used 1 until 2m; take 2 tentative = no wait 1m; "
     "take 2 charge tentative = used 3; take 2 drain tentative = no wait 1m; "
     "take 0 = no first wait 1m"},
    {"charge: all of it, whatever is left; the next window begins with nothing",
     "Charge the whole cost, whatever is left: for costs that are known only after the work",
     "10/m",
     "take 4 charge = used 4 until 1m; take 9 charge = used 13; take = no first wait 1m; "
     "take 0 = no wait 1m; take charge = used 14; take 0 charge = yes; "
     "take 3 partial = no wait 1m; take 2 limit 20 = used 16 of 20; back 7 of 1m; "
     "take = used 10 of 10; 1m-1ns: take 90 charge = used 100; 1m: take 0 peek = used 0 until 2m; "
     "take 3 charge = used 3; take 7 = used 10; take charge = used 11; back 5 of 1m = 0; "
     "reset = forgot; take 10 = used 10"},
    {"charge: a count holds 2^28", "What is more is cut off: verdict.granted is what was charged.",
     "10/m capacity=5",
     "take 268435455 charge = used 268435455 until 1m; take 5 charge = granted 1 used 268435456; "
     "take charge = granted 0; take = no first wait 1m; "
     "take limit 268435456 = no of 268435456 wait 1m; back 4294967295 of 1m = 268435456; "
     "take 4294967295 charge = granted 268435456 used 268435456 of 5; back 268435452 of 1m; "
     "take = used 5; 1m: take 4294967295 charge = granted 268435456 used 268435456 until 2m; "
     "2m: take 5 = used 5 until 3m"},
    {"look before a charge: a decision that takes nothing",
     "It takes nothing, but it is a decision: it is counted as allowed or refused", "3/m",
     "take 3 look = until 1m; take 4 look = no first never; take 4 look = no never; "
     "take 2 charge = used 2; take look = yes; take 2 look = no wait 1m; take charge = used 3; "
     "take 0 look = yes; take look = no wait 1m; take = no wait 1m; "
     "1m: take look = used 0 until 2m; take 5 charge = used 5; take 0 look = no first wait 1m; "
     "take = no wait 1m"},

    /* ---- In flight ---- */

    {"in flight: held, given back, held again",
     "At most `limit` held at once, instead of granted per window.", "3/m in-flight",
     "take = used 1 until 1m; 1s: take 2 = used 3; 2s: take = no first wait 118s; "
     "take = no wait 118s; back 1 of 1m; take = used 3; back 2 of 1m; 3s: take 2 = used 3; "
     "take = no wait 117s; back 3 of 1m; back 1 of 1m = 0; take 0 peek = yes; "
     "4s: take 3 = used 3"},
    {"in flight: a late caller holds in the window that has begun", SAME, "3/m in-flight",
     "take = used 1 until 1m; 1m: take = used 2 until 2m; 50s: take = used 3; "
     "take = no first wait 70s; back 1 of 1m; back 2 of 2m; 1m: take 0 peek = yes"},
    {"in flight: a policy that replaces another counts anew, and gives back to nobody of before",
     "A reload that changes a lease replaces the policy, which counts anew", "5/m in-flight name=p",
     "take 5 = used 5 until 1m; apply 4/30s in-flight name=p; "
     "take 4 by 0 = used 4 of 4 until 30s by p; take 0 peek by p = used 4 until 30s; "
     "give 5 by 0 = 4; take 0 peek by p = used 0"},
    /* BerriAI/litellm#20256, BerriAI/litellm#1477, apache/apisix#12872, openresty/lua-resty-limit-
     * traffic#73 */
    {"in flight: all of it counts until the end of the next window, and nothing after that",
     "what nobody gives back is forgotten by itself, one to two windows after it was taken",
     "3/m in-flight",
     "take 2 = used 2 until 1m; 1m: take 0 peek = until 2m; 2m-1ns: take 0 peek = yes; "
     "take = used 3; take = no first wait 1ns; 2m: take 0 peek = used 1 until 3m; "
     "take 2 = used 3; back 2 of 1m = 0; take = no first wait 1m; 5m: take 3 = used 3 until 6m; "
     "22m: take 3 = used 3 until 23m"},
    {"in flight: the wait is for what is in the way to be forgotten",
     "ns until the whole cost would fit if nobody else took or gave back", "5/m in-flight",
     "take 3 = used 3 until 1m; 70s: take 2 = used 5 until 2m; take 3 = no first wait 50s; "
     "take 4 = no wait 110s; take 6 = no never; 2m: take 3 = used 5 until 3m"},

    {"bucket: one serves a page with 21 and a login with 6",
     "how much of a bucket, and of what STINT_RESERVE takes ahead, may be used after this request",
     "10/m burst=21; 5/m name=w",
     "take by w = used 1 until 1m; take peek burst 6 by w = no bad; "
     "take 6 burst 6 = used 6 of 6 until 36s; take burst 6 = no first wait 6s; "
     "take 15 = used 21 of 21 until 126s; take burst 30 = no first wait 6s; "
     "96s: take 2 burst 6 = no used 5 of 6 wait 6s"},

    /* ---- What is told: entries, fields for clients ---- */

    {"in flight: an entry, until it is forgotten",
     "tokens, as a look at the key tells now", "5/m in-flight",
     "take 2 = used 2 until 1m; 1m: take = used 3 until 2m; entries = used 3 until 2m; "
     "3m-1ns: entries = used 1 until 3m; table = live 1; 3m: entries = none; table = live 0"},
    {"entries of debts and smooth counts, as a look tells them", SAME,
     "5/m reserve=20 name=debts; 10/m smooth name=smooth; 10/m name=plain",
     "take 19 reserve = used 19 until 1m wait 3m; take 9 by smooth = used 9 until 1m; "
     "take 9 by plain = used 9 until 1m; take = no first wait 3m; "
     "entries = used 19 since 0 until 1m refused + used 9 until 1m by smooth + "
     "used 9 until 1m by plain; "
     "1m: entries = used 14 until 2m + used 9 until 2m by smooth; "
     "90s: entries = used 14 until 2m + used 5 until 2m by smooth; 2m: entries = used 9 until 3m; "
     "4m-1ns: entries = used 4 until 4m; 4m: entries = none"},
    {"striped: the entry of a refusal that took nothing", SAME, "8/m stripes=4",
     "take 9 = no until 1m first never; entries = refused since 0 until 1m"},
    {"fields of real decisions; a cost that can never fit has no use in coming back",
     "the longest of the refusals', left out if one of them can never fit.",
     "2/m name=p",
     "59s+500ms: take = used 1 until 1m; fields = q 2 w 60 r 1 t 1; take = used 2; "
     "take = no first wait 500ms; fields = q 2 w 60 r 0 t 1 retry 1; take 3 = no never; "
     "fields = q 2 w 60 r 0 t 1; take limit 10 = used 3 of 10; fields = q 10 w 60 r 7 t 1"},
    {"fields: who has no slot is only told when to come back", SAME, "table 2 refuse; 50/m name=p",
     "48s: fill 4; take = no until 1m untracked wait 12s; fields = retry 12"},
    {"fields: a burst of the request's own is the quota", SAME, "10/m burst=21 name=p",
     "take 5 burst 6 = used 5 of 6 until 30s; fields = q 6 w 36 r 1 t 6"},
    {"metrics", SAME, "9/m name=p; 60/m burst=7 name=b",
     "take 9 = used 9 until 1m; take = no first wait 1m; "
     "metrics = stint_decisions_total{policy=\"p\",outcome=\"allowed\"} 1; "
     "metrics = stint_decisions_total{policy=\"p\",outcome=\"refused\"} 1; "
     "metrics = stint_policy_limit{policy=\"p\"} 9; change 10/m name=p; "
     "metrics = stint_policy_limit{policy=\"p\"} 10; metrics = stint_table_live_slots 1; "
     "reset of b = nothing; metrics = stint_table_resets_total 0; reset; "
     "metrics = stint_table_resets_total 1; 1m: metrics = stint_table_live_slots 0; "
     "metrics = stint_table_used_slots 1; metrics = # HELP stint_policy_burst Tokens that a token "
     "bucket holds.; remove b; metrics = stint_table_policy_ids 2; "
     "metrics = stint_table_gone_policy_ids 1"},
    {"fields: a month has no length", SAME, "3/month name=p",
     "2024-03-01-10s: take = used 1 until 2024-03-01; fields = q 3 r 2 t 10"},
    /* ietf-wg-httpapi/ratelimit-headers#164 */
    {"fields: the quota is what a key can hold, and w the time in which all of it comes back", SAME,
     "20/h name=a; 20/h capacity=20 name=b; 20/h capacity=8 name=c; 20/h capacity=21 name=d; "
     "20/h capacity=50 name=e; 20/h reserve=3 name=f; 20/h reserve=3 capacity=8 name=g; "
     "20/h smooth name=h; 20/h overrides name=i",
     "take by a = used 1 until 1h; fields = q 20 w 3600 r 19 t 3600; "
     "take limit 70 by a = used 2 of 70; fields = q 70 w 3600 r 68 t 3600; "
     "take limit 5 by a = used 3 of 5; fields = q 5 w 3600 r 2 t 3600; "
     "take by b = used 1 until 1h; fields = q 20 w 3600 r 19 t 3600; "
     "take by c = used 1 until 1h; fields = q 8 w 3600 r 7 t 3600; "
     "take limit 70 by c = used 2 of 70; fields = q 70 w 3600 r 68 t 3600; "
     "take by d = used 1 until 1h; fields = q 21 w 7200 r 20 t 3600; "
     "take by e = used 1 until 1h; fields = q 50 w 10800 r 49 t 3600; "
     "take limit 70 by e = used 2 of 70; fields = q 70 w 14400 r 68 t 3600; "
     "take limit 5 by e = used 3 of 5; fields = q 5 w 3600 r 2 t 3600; "
     "take by f = used 1 until 1h; fields = q 20 w 3600 r 19 t 3600; "
     "take limit 70 by f = used 2 of 70; fields = q 70 w 14400 r 68 t 3600; "
     "take by g = used 1 until 1h; fields = q 8 w 3600 r 7 t 3600; "
     "take by h = used 1 until 1h; fields = q 20 w 3600 r 19 t 3600; override 70 until 1d by i; "
     "take by i = used 1 of 70 until 1h overridden; fields = q 70 w 3600 r 69 t 3600"},
    /* ietf-wg-httpapi/ratelimit-headers#149, #160, #164 */
    {"fields: t is the time until there is more, and Retry-After no earlier", SAME,
     "60/m burst=60 name=a; 1/30s burst=2 overrides name=b; 10/m name=c; 10/m capacity=30 name=d; "
     "10/m start=first name=e; 10/m smooth name=f",
     "take 60 by a = used 60 until 1m; take by a = no first wait 1s; "
     "fields = q 60 w 60 r 0 t 1 retry 1; take 7 by a = no wait 7s; "
     "fields = q 60 w 60 r 0 t 1 retry 7; take by b = used 1 until 30s; "
     "fields = q 2 w 60 r 1 t 30; override 2 until 1d of c by b; "
     "take of c by b = used 1 of 4 until 15s overridden; fields = q 4 w 60 r 3 t 15; "
     "take 2 by b = no first wait 30s; fields = q 2 w 60 r 1 t 30 retry 30; "
     "take 10 by c = used 10 until 1m; take by c = no first wait 1m; "
     "fields = q 10 w 60 r 0 t 60 retry 60; take 30 by d = used 30 until 1m; "
     "take by d = no first wait 1m; fields = q 30 w 180 r 0 t 60 retry 60; "
     "take 11 by d = no wait 2m; fields = q 30 w 180 r 0 t 60 retry 120; "
     "take 10 by e = used 10 until 1m; take by e = no first wait 1m; "
     "fields = q 10 w 60 r 0 t 60 retry 60; take 10 by f = used 10 until 1m; "
     "take by f = no first wait 66s; fields = q 10 w 60 r 0 t 60 retry 66; "
     "61s: take by f = no until 2m first wait 5s; fields = q 10 w 60 r 0 t 5 retry 5"},

    /* ---- Floods, and names ---- */

    /* SandeepVashishtha/Eventra#12797, jvdmr/mod_evasive#63, kent8192/reinhardt-web#368,
     * luisgamas/uxnan#101, xuqingfeng/caddy-rate-limit#23: memory that grew with each address */
#define FLOOD(on_full, entries, others, live, untracked) \
    "table " entries " " on_full "; 50/m", \
    "take 9 = used 9 until 1m; fill " others "; " \
    "table = live " entries " placed " entries " untracked 0; fill 20000; kept " others "; " \
    "take 0 peek = used 9; table = live " live " placed " live " untracked " untracked \
    " replaced 0; counts = untracked " untracked "; 1m: table = live 0; fill " others "; " \
    "table = live " others " untracked " untracked
    {"a flood of new keys takes no count from live ones, refused",
     "A live key is never dropped to make room, unless STINT_FULL_REPLACE was chosen.",
     FLOOD("refuse", "5000", "4999", "10000", "15000")},
    {"... let through", SAME, FLOOD("admit", "5000", "4999", "10000", "15000")},
    {"... in a small table", SAME, FLOOD("refuse", "64", "63", "128", "19936")},
    {"metrics without policies", "stint_metrics", "",
     "metrics = no {; metrics = stint_table_placed_total 0; "
     "metrics = # UNIT stint_table_memory_bytes bytes; metrics = # EOF"},
    {"metrics: windows in seconds, to hundredths; of a month none", SAME,
     "1/10ms name=a; 1/100ms name=c; 1/s name=e; 1/31622399990ms name=g; 3/month name=m",
     "metrics = stint_policy_window_seconds{policy=\"a\"} 0.01; "
     "metrics = stint_policy_window_seconds{policy=\"c\"} 0.10; "
     "metrics = stint_policy_window_seconds{policy=\"e\"} 1; "
     "metrics = stint_policy_window_seconds{policy=\"g\"} 31622399.99; "
     "metrics = stint_policy_limit{policy=\"m\"} 3; "
     "metrics = no stint_policy_window_seconds{policy=\"m\"}"},
    {"a policy without a name is named by its rate", "one without is named by its rate", "100/m",
     "add 100/m; add 1500/1010ms; table = policies 2; "
     "metrics = stint_policy_limit{policy=\"100/minute\"} 100; "
     "metrics = stint_policy_limit{policy=\"1500/1010 milliseconds\"} 1500"},
};
/* clang-format on */

TEST_FEATURES(features)

/* Sizes that are not those of all requests: what comes before is decided, all that is left is
 * refused, and nothing is written behind it. */
TEST(test_groups_of_wrong_sizes) {
    enum { REQUESTS = 6, N = 5 };
    static const struct {
        size_t sizes[3];
        size_t groups, good; /* as many groups, with as many requests, are decided */
    } cases[] = {{{3, 3, 0}, 1, 3},        {{2, 3, 1}, 2, 5},        {{6, 0, 5}, 0, 0},
                 {{1, 2, 1}, 3, 4},        {{0, 0, 0}, 3, 0},        {{0, 7, 0}, 1, 0},
                 {{SIZE_MAX, 2, 3}, 0, 0}, {{3, SIZE_MAX, 2}, 1, 3}, {{1, 0, SIZE_MAX}, 2, 1}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        for (int told = 0; told < 2; told++) {
            struct stint_limiter *limiter = open_kinds(1000, STINT_FULL_ADMIT);
            struct stint_request requests[REQUESTS];
            struct stint_verdict v[REQUESTS], untouched;
            for (size_t i = 0; i < REQUESTS; i++)
                requests[i] = (struct stint_request){number_key(limiter, i), 0, 1, 0, 0, 0, 0};
            memset(v, 0xa5, sizeof v);
            memset(&untouched, 0xa5, sizeof untouched);
            assert_int_equal(stint_decide_groups(limiter, requests, N, cases[c].sizes, 3, STINT_NOW,
                                                 told ? v : NULL),
                             cases[c].groups);
            for (size_t i = 0; i < REQUESTS; i++) {
                assert_int_equal(used_of(limiter, 0, requests[i].key), i < cases[c].good);
                if (told && i >= cases[c].good && i < N)
                    assert_int_equal(v[i].flags, STINT_BAD_REQUEST);
                else if (told && i >= N)
                    assert_memory_equal(&v[i], &untouched, sizeof untouched);
            }
            assert_int_equal(get_stats(limiter).bad_requests, N - cases[c].good);
            stint_close(limiter);
        }
    }
}
