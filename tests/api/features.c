/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * What each feature means, case by case, in words (kit/words.h). The comment before a case is where
 * users of other limiters reported what went wrong there, REPOSITORY#NUMBER on GitHub. */
#include "words.h"

/* The sentence is that of the case before. */
#define SAME NULL

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
    {"a window of 10 ms", SAME, "1/10ms",
     "take = used 1 until 10ms; 10ms-1ns: take = no first wait 1ns; "
     "10ms: take = used 1 until 20ms; 30ms: take = used 1 until 40ms"},
    {"a window of 366 days", SAME, "3/366d start=2024-01-01",
     "take 2 = used 2 until 366d; 1ns: take 2 = no first wait 366d-1ns; 366d-1ns: take = used 3; "
     "366d: take 3 = used 3 until 732d"},
    {"a positive start",
     "ns since the epoch at which one window starts, a multiple of 10 ms",
     "1/m start=2023-12-31T00:00:10Z",
     "take = used 1 until 10s; 10s-1ns: take = no first wait 1ns; 10s: take = used 1 until 70s"},
    {"a negative start", SAME, "1/h start=1969-12-31T23:59:59.99Z",
     "take = used 1 until 59m+59s+990ms; 59m+59s+990ms-1ns: take = no first wait 1ns; "
     "59m+59s+990ms: take = used 1 until 1h+59m+59s+990ms"},
    {"a start in the future", SAME, "1/h start=2026-09-27T00:00:00.02Z",
     "take = used 1 until 20ms; 20ms: take = used 1 until 1h+20ms; 1h: take = no first wait 20ms"},
    {"the first nanosecond of time", SAME, "1/100ms start=1970-01-01T00:00:00.03Z",
     "1970-01-01+1ns: take = used 1 until 1970-01-01+30ms; "
     "1970-01-01+30ms-1ns: take = no first wait 1ns; "
     "1970-01-01+30ms: take = used 1 until 1970-01-01+130ms"},
    {"the earliest start there is", SAME, "1/d start=1677-09-21T00:12:43.15Z",
     "take = used 1 until 12m+43s+150ms"},
    {"the latest start there is", SAME, "1/d start=2262-04-11T23:47:16.85Z",
     "take = used 1 until 23h+47m+16s+850ms"},
    {"week: from Thursday, as the epoch; 1 January 2024 is a Monday",
     "A week begins on Thursday, as the epoch did", "1/week",
     "take = used 1 until 3d; 3d: take = used 1 until 10d"},
    {"week: from Monday, by its start", SAME, "1/week start=2024-01-01",
     "take = used 1 until 7d; 7d: take = used 1 until 14d"},
    {"month: 31, 29, 31 and 30 days",
     "A month and a year are the calendar's, and have no N.", "3/month",
     "take 3 = used 3 until 2024-02-01; take = no first wait 31d; "
     "2024-02-01-1ns: take = no wait 1ns; 2024-02-01: take 3 = used 3 until 2024-03-01; "
     "2024-02-01+1ns: take = no first wait 29d-1ns; 2024-03-01-1ns: take = no wait 1ns; "
     "2024-03-01: take = used 1 until 2024-04-01; 2024-04-01-1ns: take 2 = used 3; "
     "2024-04-01: take 3 = used 3 until 2024-05-01; take = no first wait 30d"},
    {"month: 28 days", SAME, "1/month",
     "2025-02-01: take = used 1 until 2025-03-01; take = no first wait 28d; "
     "2025-03-01: take = used 1 until 2025-04-01"},
    {"year: of 366 days, of which the 29th of February is one", SAME, "1/year",
     "take = used 1 until 2025-01-01; take = no first wait 366d; "
     "2024-03-01-1ns: take = no wait 306d+1ns; 2025-01-01: take = used 1 until 2026-01-01"},
    {"month: with a near limit, and refusals that count", SAME, "4/month near=50% count-refused",
     "2024-02-01: take 2 = used 2 until 2024-03-01; take = used 3 near; "
     "take 5 = no used 8 first near never; 2024-03-01-1ns: take = no used 9 near wait 1ns; "
     "2024-03-01: take = used 1 until 2024-04-01"},
    {"month: from the 15th at nine, by a clock 14 hours ahead",
     "months begin on this day of the month (1 .. 28) at this time of day",
     "1/month start=1970-01-15T09:00:00+14:00",
     "take = used 1 until 2024-01-15-5h; 2024-01-15-5h: take = used 1 until 2024-02-15-5h; "
     "2024-02-15-5h-1ns: take = no first wait 1ns; "
     "2024-02-15-5h: take = used 1 until 2024-03-15-5h"},
    {"year: ends first in the east", SAME, "1/year start=1970-01-01T00:00:00+14:00",
     "2024-12-31+10h-1ns: take = used 1 until 2024-12-31+10h; "
     "2024-12-31+10h: take = used 1 until 2025-12-31+10h; "
     "2025-01-01: take = no first wait 364d+10h"},
    {"year: ends last in the west", SAME, "1/year start=1970-01-01T00:00:00-12:00",
     "2025-01-01+12h-1ns: take = used 1 until 2025-01-01+12h; take = no first wait 1ns; "
     "2025-01-01+12h: take = used 1 until 2026-01-01+12h"},
    {"year: from the 28th of February", SAME, "1/year start=1970-02-28",
     "2024-02-01: take = used 1 until 2024-02-28; 2024-02-28: take = used 1 until 2025-02-28; "
     "2025-02-28-1ns: take = no first wait 1ns"},

    /* ---- Costs, and words of requests ---- */

    /* alisaifee/limits#151 */
    {"costs", "STINT_NEVER: it never fits. Granted: 0;", "10/m",
     "take 0 = until 1m; take 7 = used 7; take 4 = no first wait 1m; take 10 = no wait 1m; "
     "take 11 = no never; take 4294967295 = no never; take 3 = used 10; take 0 = yes; "
     "1m: take 10 = used 10 until 2m"},
    {"a cost that can never fit, of a key not seen before", SAME, "10/m",
     "take 11 = no until 1m first never; take 11 = no never; take 10 = used 10; take = no wait 1m"},
    {"the largest limit", SAME, "268435456/m",
     "take 268435455 = used 268435455 until 1m; take 2 = no first wait 1m; take = used 268435456; "
     "take = no wait 1m; take 268435456 = no wait 1m; take 268435457 = no never; "
     "take 4294967295 = no never; 1m: take = used 1 until 2m"},
    {"cost 0 neither turns nor creates a slot",
     "0 takes nothing, and is allowed unless more is used than the capacity", "2/m",
     "take 0 = until 1m; take 2 = used 2; 1m: take 0 = used 0 until 2m; "
     "1m-1ns: take = no used 2 until 1m first wait 1ns"},
    {"cost 0 is refused when more is used than the limit", SAME, "9/m",
     "take 5 = used 5 until 1m; change 5/m; take 0 = of 5; change 4/m; "
     "take 0 = no of 4 first wait 1m; take 0 = no wait 1m; 1m: take 0 = used 0 until 2m"},
    {"a limit of this call's own",
     "this call's own limit in place of the policy's capacity", "10/m",
     "take 5 limit 5 = used 5 of 5 until 1m; take limit 5 = no first wait 1m; "
     "take 5 = used 10 of 10; take 5 limit 15 = used 15 of 15; take = no of 10 wait 1m; "
     "take 0 limit 14 = no of 14 wait 1m; take 0 limit 15 = of 15; take 16 limit 15 = no never; "
     "take limit 268435456 = used 16 of 268435456; take limit 268435457 = used 17; "
     "take limit 4294967295 = used 18; take 4294967295 limit 4294967295 = no never; "
     "take 268435456 partial limit 4294967295 = granted 268435438 used 268435456; "
     "take limit 1 = no of 1 wait 1m"},
    {"flags change at once", "What was used stays used. Limits and options may change;", "1/m",
     "take = used 1 until 1m; take = no first wait 1m; change 1/m shadow; "
     "take = shadowed wait 1m; change 1/m count-refused; take = no used 2 wait 1m; change 1/m; "
     "take = no wait 1m"},
    /* resilience4j/resilience4j#1073, resilience4j/resilience4j#2489, mailgun/gubernator#40 */
    {"the limit changes at once, up and down", SAME, "10/m",
     "take 10 = used 10 until 1m; change 25/m; take peek = of 25; take 15 = used 25; change 5/m; "
     "take = no of 5 first wait 1m; take 6 = no never; change 26/m; take = used 26 of 26; "
     "change 268435456/m; take 268435430 = used 268435456 of 268435456; change 1/m; "
     "1m: take = used 1 of 1 until 2m; take = no first wait 1m"},
    {"PARTIAL",
     "Take what is left if that is less than the cost; refused only if nothing is left.", "10/m",
     "take 4 partial = used 4 until 1m; take 20 partial = granted 6 used 10; "
     "take 5 partial = no first wait 1m; take 0 partial = yes; "
     "1m: take 11 partial = granted 10 used 10 until 2m; take = no first wait 1m"},
    /* resilience4j/resilience4j#1228 */
    {"DRAIN", "If the cost does not fit, refuse it and take what is left.", "10/m",
     "take 4 drain = used 4 until 1m; take 7 drain = no used 10 first wait 1m; take = no wait 1m; "
     "take drain = no wait 1m; 1m: take = used 1 until 2m"},
    {"DRAIN of a key not seen before", SAME, "10/m",
     "take 11 drain = no used 10 until 1m first never; take = no wait 1m"},
    {"DRAIN never lowers what is used", SAME, "10/m",
     "take 8 = used 8 until 1m; change 5/m; take drain = no of 5 first wait 1m; change 9/m; "
     "take = used 9 of 9"},
    {"DRAIN with PARTIAL takes what is left, else drains", SAME, "10/m",
     "take 12 partial drain limit 6 = granted 6 used 6 of 6 until 1m; "
     "take partial drain limit 6 = no first wait 1m; take 4 = used 10 of 10"},
    {"DRAIN drains to this call's own limit", SAME, "10/m",
     "take 7 drain limit 6 = no used 6 of 6 until 1m first never; take 4 = used 10 of 10"},
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
    {"first: a late caller joins the window, also one that began after his time",
     SAME, "3/m start=first",
     "30s: take = used 1 until 90s; 29s: take = used 2; 29s+990ms: take = used 3; "
     "1ns: take = no first wait 90s-1ns; 91s: take = used 1 until 151s; 89s: take = used 2"},
    {"chatmail/filtermail#167: ten requests by two clocks, 4 ms apart",
     SAME, "10/m burst=10 ban=1h",
     "4ms: take 8 = used 8 until 48s+4ms; 0: take = used 10 until 54s+4ms; "
     "take = used 10 until 1m+4ms at 4ms; take = no used 11 first banned wait 1h"},
    {"promise H: a caller that is hours late",
     "the request is decided at the clock's time, counted once", "2/m",
     "take = used 1 until 1m; -3h: take = used 2; take = no first wait 1m; "
     "-300d: take = no wait 1m; 0: take = no wait 1m"},
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
    {"COUNT_REFUSED",
     "Refused tokens count as used, up to 2^28, as in the INCR recipes of Redis.",
     "3/m count-refused",
     "take 2 = used 2 until 1m; take 2 = no used 4 first wait 1m; take = no used 5 wait 1m; "
     "take peek = no wait 1m; take partial = no used 6 wait 1m; take 0 = no wait 1m; "
     "take 4 = no used 10 never; take 268435456 = no used 268435456 never; take = no wait 1m; "
     "take 4294967295 = no never; 1m-1ns: take = no wait 1ns; 1m: take 3 = used 3 until 2m"},
    {"COUNT_REFUSED of a key not seen before", SAME, "3/m count-refused",
     "take 4294967295 = no used 268435456 until 1m first never; take = no wait 1m; "
     "1m: take 4 = no used 4 until 2m first never"},
    {"COUNT_REFUSED with DRAIN drains, then counts", SAME, "10/m count-refused",
     "take 4 = used 4 until 1m; take 7 drain = no used 17 first wait 1m; "
     "take drain = no used 18 wait 1m"},
    {"a refund of counted refusals",
     "Refusals that were counted (STINT_COUNT_REFUSED) took no tokens: they stay counted.",
     "4/m count-refused",
     "take 4 = used 4 until 1m; take 4 = no used 8 first wait 1m; back 1 of 1m; "
     "take 0 = no wait 1m; back 3 of 1m; take 0 = yes"},
    {"SHADOW",
     "Decide and count, but let everything through (STINT_SHADOWED): to try a limit.", "2/m shadow",
     "take 2 = used 2 until 1m; take = first shadowed wait 1m; 1ns: take = shadowed wait 1m-1ns; "
     "0: take 3 = shadowed never; take peek = shadowed wait 1m; take partial = shadowed wait 1m; "
     "1m: take = used 1 until 2m; take 2 drain = used 2 first shadowed wait 1m; "
     "take = shadowed wait 1m"},
    {"SHADOW with COUNT_REFUSED", SAME, "2/m shadow count-refused",
     "take 3 peek = until 1m shadowed never; take 3 = used 3 first shadowed never; "
     "take = used 4 shadowed wait 1m"},
    {"near limit: more than so many percent of the capacity",
     "More than the policy's near_limit percent of the capacity is used.", "10/m near=80%",
     "take 8 = used 8 until 1m; take peek = yes; take = used 9 near; take 0 peek = near; "
     "take 2 = no first near wait 1m; take 2 peek = no near wait 1m; take = used 10 near; "
     "back 2 of 1m; take 0 peek = yes; take 3 = no wait 1m; take limit 20 = used 9 of 20; "
     "take 0 peek limit 9 = of 9 near; 1m: take = used 1 of 10 until 2m"},
    {"near limit: of the first request, one token at a time", SAME, "3/m near=50%",
     "take = used 1 until 1m; take = used 2 near; take = used 3 near; "
     "take = no first near wait 1m; take = no near wait 1m; 1m: take = used 1 until 2m; "
     "2m: take 2 = used 2 until 3m near"},
    {"near limit: 1 percent of 1 token", SAME, "1/m near=1%",
     "take 0 = until 1m; take = used 1 near; 1m: take = used 1 until 2m near"},
    {"near limit: at 100 percent only what is beyond the capacity",
     SAME, "4/m capacity=6 reserve=2 near=100%",
     "take 6 = used 6 until 1m; take reserve = used 7 near wait 1m; take = no first near wait 1m; "
     "1m: take = used 4 until 2m"},
    {"near limit: counted refusals", SAME, "2/m near=100% count-refused",
     "take 2 = used 2 until 1m; take = no used 3 first near wait 1m"},
    {"near limit: of a large limit without overflow", SAME, "268435456/m near=99%",
     "take 265751101 = used 265751101 until 1m; take = used 265751102 near"},
    {"near limit: the smooth sum", SAME, "10/m near=50% smooth",
     "take 8 = used 8 until 1m near; 90s: take = used 5 until 2m; take = used 6 near"},

    /* ---- Giving back ---- */

    /* Instawork/llm-proxy#40, laravel/framework#56656 */
    {"a refund gives back what was taken",
     "Tokens are given back in the window in which they were taken.", "10/m",
     "take 6 = used 6 until 1m; back 2 of 1m; take peek = yes; back 0 of 1m; back 2 of 2m = 0; "
     "back 2 of 0 = 0; back 2 of none = 0; take 6 = used 10; back 11 of 1m = 10; "
     "back 1 of 1m = 0; take 10 = used 10; back 4294967295 of 1m = 10; take 10 = used 10"},
    {"a refund after the limit was lowered", SAME, "10/m",
     "take 10 = used 10 until 1m; change 4/m; back 1 of 1m; take = no of 4 first wait 1m; "
     "back 6 of 1m; take = used 4; change 2/m; back 9 of 1m = 4; take 2 = used 2 of 2"},
    {"a refund after a larger limit of a call's own", SAME, "4/m",
     "take 9 limit 10 = used 9 of 10 until 1m; back 1 of 1m; take = no of 4 first wait 1m; "
     "take 2 limit 10 = used 10 of 10"},
    {"a refund to a key that was never seen", SAME, "4/m",
     "back 1 of 1m = 0; take 4 = used 4 until 1m"},
    {"month: refunds by the window that was charged, and a reset", SAME, "3/month",
     "2024-02-01-1s: take 3 = used 3 until 2024-02-01; back 1 of 2024-03-01 = 0; "
     "back 2 of 2024-02-01; 2024-02-01: take 3 = used 3 until 2024-03-01; "
     "back 1 of 2024-02-01 = 0; back 1 of 2024-03-01; reset = forgot; "
     "2024-03-01-1ns: take 3 = used 3"},
    /* express-rate-limit/express-rate-limit#647 */
    {"first: refunds by the window that was charged; a reset keeps the window",
     SAME, "3/m start=first",
     "1s: take 3 = used 3 until 61s; back 1 of 1m = 0; back 5 of 61s = 3; 2s: take 2 = used 2; "
     "reset = forgot; 3s: take 3 = used 3; 62s: take = used 1 until 122s; back 1 of 61s = 0; "
     "back 1 of 122s"},
    {"refund: to a window that is over by the clock, while the key is in it",
     "Once the key has begun another one, nothing is given back.", "10/m capacity=20",
     "take 20 = used 20 until 1m; 1m: take 11 peek = no used 10 until 2m wait 1m; back 4 of 1m; "
     "take 14 = used 20; back 4 of 1m = 0"},
    /* Instawork/llm-proxy#40 */
    {"a refund to a window that is over is nothing", SAME, "10/m",
     "take 6 = used 6 until 1m; 1m: take 6 = used 6 until 2m; back 6 of 1m = 0; take peek = yes; "
     "back 6 of 2m; back 6 of 2m = 0"},
    {"a reset",
     "It has nothing used, no ban and no strikes, and its next refusal is a first one.", "2/m",
     "reset = nothing; take 2 = used 2 until 1m; reset = forgot; take 0 peek = yes; "
     "take 2 = used 2; take = no first wait 1m; reset = forgot; reset = nothing; "
     "back 2 of 1m = 0; take 2 = used 2; take = no first wait 1m; 1m: take = used 1 until 2m"},
    {"smooth: reset forgets both windows", SAME, "4/m smooth",
     "take 4 = used 4 until 1m; 1m: take = no until 2m first wait 15s; 75s: take = used 4; "
     "reset = forgot; take 0 peek = yes; take 4 = used 4; take = no first wait 1m"},
    {"ban: strikes are forgotten with their time, and by a reset", SAME, "1/m ban=2m after=2",
     "take 2 = no until 1m first never; 2m: take 2 = no until 3m first never; reset = forgot; "
     "3m: take 2 = no until 4m first never; 4m: take 2 = no until 5m first banned never; clear; "
     "take = used 1; clear = ENOENT"},
    {"ban: whoever is refused again after a reset is told so, and banned again", SAME, "1/h ban=2h",
     "take = used 1 until 1h; take = no first banned wait 2h; reset = forgot; take = used 1; "
     "take = no first banned wait 2h"},
    {"ban: a bucket's key is as good as new after a reset, too", SAME, "5/h burst=5 ban=2h",
     "take 5 = used 5 until 1h; take = no first banned wait 2h; reset = forgot; "
     "1ms: take 5 = used 5 until 1h+1ms; take = no first banned wait 1h+59m+59s+999ms; "
     "reset = forgot; 2ms: take 6 = no until 2ms first banned never; reset = forgot; "
     "3ms: take 6 = no until 3ms first banned never"},

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
    {"first: refusals that count, as in the recipe of INCR and EXPIRE",
     SAME, "2/m start=first count-refused",
     "1s: take 2 = used 2 until 61s; take = no used 3 first wait 1m; "
     "1m: take = no used 4 wait 1s; 61s: take = used 1 until 121s"},
    {"first: a limit of the request's own, and one that changes", SAME, "2/m start=first shadow",
     "1s: take 4 limit 5 = used 4 of 5 until 61s; take = of 2 first shadowed wait 1m; "
     "change 6/m start=first shadow; take 2 = used 6 of 6; "
     "change 6/m start=first capacity=3 shadow; 1m: take = of 3 shadowed wait 1s"},
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
    {"smooth: PARTIAL and refunds to both windows", SAME, "10/m smooth",
     "take 10 = used 10 until 1m; back 4 of 1m; back 1 of 2m = 0; "
     "1m: take 9 partial = granted 4 used 10 until 2m; take 9 partial = no first wait 105s; "
     "back 3 of 1m; take 0 peek = yes; back 9 of 1m = 3; back 1 of 1m = 0; back 1 of 0 = 0; "
     "take 0 peek = yes; back 9 of 2m = 4; take 10 = used 10"},
    {"smooth: DRAIN leaves nothing", SAME, "10/m smooth",
     "take 6 = used 6 until 1m; 90s: take 8 peek drain = no used 3 until 2m wait 10s; "
     "take 8 drain = no used 10 first wait 1m+12s+857ms+142us+858ns; take drain = no wait 10s; "
     "100s: take = used 10"},
    {"smooth: a late caller counts the whole window before", SAME, "8/m smooth",
     "take 4 = used 4 until 1m; 1m: take = used 5 until 2m; 50s: take = used 6; "
     "90s: take 0 peek = used 4; 50s: take 3 = no used 6 first wait 25s"},
    {"smooth: a limit of this call's own, and a changed one", SAME, "10/m smooth",
     "take 2 = used 2 until 1m; take 2 limit 3 = no of 3 first wait 90s; "
     "take 10 limit 20 = used 12 of 20; take 0 peek = no of 10 wait 70s; change 12/m smooth; "
     "take 0 peek = of 12; take = no wait 65s; change 6/m smooth; "
     "1m: take = no of 6 until 2m first wait 35s; 95s: take = used 6"},
    {"smooth: SHADOW", SAME, "2/m smooth shadow",
     "take 2 = used 2 until 1m; take = first shadowed wait 90s; "
     "1m: take = until 2m first shadowed wait 30s; 90s: take = used 2"},
    {"smooth: the largest limit", SAME, "16383/366d start=2024-01-01 smooth",
     "take 16383 = used 16383 until 366d; take = no first wait 366d+32m+10s+195ms+934us+811ns; "
     "366d: take = no until 732d first wait 32m+10s+195ms+934us+811ns; "
     "549d: take 0 peek = used 8192; take 8191 = used 16383"},

    /* ---- Tokens that carry over, and reserves ---- */

    {"roll-over: a limit of this call's own replaces the capacity, not the refill",
     "So unused tokens roll over up to the capacity, and debts are paid.", "10/m capacity=20",
     "take 15 = used 15 until 1m; take 0 peek limit 12 = no of 12 wait 1m; "
     "take 12 limit 12 = no first wait 2m; take 13 limit 12 = no never; "
     "take 25 limit 40 = used 40 of 40; take = no of 20 wait 3m; "
     "1m: take limit 30 = no used 30 of 30 until 2m first wait 1m; "
     "4m: take 20 = used 20 of 20 until 5m"},
    {"roll-over: a refund lowers a debt", SAME, "10/m reserve=15",
     "take 25 reserve = used 25 until 1m wait 2m; back 3 of 1m; take 0 peek = no wait 2m; "
     "1m: take = no used 12 until 2m first wait 1m; back 3 of 1m = 0; back 4294967295 of 2m = 12; "
     "take 10 = used 10"},
    {"roll-over: a refund after the capacity was lowered keeps the rest of what is used",
     SAME, "5/m capacity=30",
     "take 30 = used 30 until 1m; change 5/m capacity=10; back 4 of 1m; "
     "take 0 peek = no of 10 wait 4m; reset = forgot; take 0 peek = yes"},
    {"roll-over: by capacity or reservation, as a change has it", SAME, "9/m capacity=10",
     "take 10 = used 10 until 1m; change 4/m capacity=5; take = no of 5 first wait 2m; "
     "1m: take = no used 6 until 2m first wait 1m; 2m: take 2 = used 4 until 3m; "
     "change 3/m reserve=1; take reserve = no of 3 first wait 1m; 3m: take 2 = used 3 until 4m"},
    {"roll-over: PARTIAL, RESERVE, DRAIN together",
     "Take up to the policy's max_reserved tokens ahead.", "10/m capacity=20 reserve=5",
     "take 30 partial = granted 20 used 20 until 1m; take 30 peek partial reserve = wait 1m; "
     "take 30 partial reserve = granted 5 used 25 wait 1m; "
     "take partial reserve = no first wait 1m; take drain = no wait 1m; take 6 = no wait 2m; "
     "1m: take 6 drain = no used 20 until 2m first wait 1m; take 6 drain reserve = no wait 1m; "
     "take 5 reserve = used 25 wait 1m; 4m: take 20 drain = used 20 until 5m"},
    {"RESERVE of a policy without reservations is nothing", SAME, "3/m capacity=4",
     "take 4 reserve = used 4 until 1m; take reserve = no first wait 1m; "
     "take 5 reserve = no never"},
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
    {"tentative: by a shadow, and where refusals count", SAME, "1/m shadow count-refused",
     "take tentative = used 1 until 1m; take tentative = used 2 shadowed wait 1m"},
    {"charge: all of it, whatever is left; the next window begins with nothing",
     "Charge the whole cost, whatever is left: for costs that are known only after the work",
     "10/m",
     "take 4 charge = used 4 until 1m; take 9 charge = used 13; take = no first wait 1m; "
     "take 0 = no wait 1m; take charge = used 14; take 0 charge = yes; "
     "take 3 partial = no wait 1m; take 2 limit 20 = used 16 of 20; back 7 of 1m; "
     "take = used 10 of 10; 1m-1ns: take 90 charge = used 100; 1m: take 0 peek = used 0 until 2m; "
     "take 3 charge = used 3; take 7 = used 10; take charge = used 11; back 5 of 1m = 0; "
     "reset = forgot; take 10 = used 10"},
    {"charge: roll-over alone", SAME, "10/m capacity=20",
     "take 15 charge = used 15 until 1m; take 15 charge = granted 5 used 20; "
     "take = no first wait 1m; change 10/m capacity=12; take charge = granted 0 of 12; "
     "1m: take 5 charge = granted 2 used 12 until 2m; change 10/m reserve=3; "
     "take 50 charge = granted 1 used 13 of 10; 2m: take 7 = used 10 until 3m"},
    {"charge: by a shadow, and the look", SAME, "2/m shadow",
     "take 5 charge = used 5 until 1m; take look = first shadowed wait 1m; "
     "take look = shadowed wait 1m; take = shadowed wait 1m; take charge = used 6; "
     "1m: take 2 look = used 0 until 2m"},
    {"charge: where refusals count, but not those of looks", SAME, "3/m count-refused",
     "take 5 charge = used 5 until 1m; take 2 = no used 7 first wait 1m; "
     "take 2 look = no wait 1m; take 268435456 charge = granted 268435449 used 268435456; "
     "1m: take 4 look = no used 0 until 2m first never; take 3 = used 3"},
    {"charge: near the limit", SAME, "10/m near=80%",
     "take 8 charge = used 8 until 1m; take charge = used 9 near; take look = near; "
     "take 20 charge = used 29 near; take look = no first near wait 1m"},
    {"charge: a count holds 2^28",
     "What is more is cut off: verdict.granted is what was charged.", "10/m capacity=5",
     "take 268435455 charge = used 268435455 until 1m; take 5 charge = granted 1 used 268435456; "
     "take charge = granted 0; take = no first wait 1m; "
     "take limit 268435456 = no of 268435456 wait 1m; back 4294967295 of 1m = 268435456; "
     "take 4294967295 charge = granted 268435456 used 268435456 of 5; back 268435452 of 1m; "
     "take = used 5; 1m: take 4294967295 charge = granted 268435456 used 268435456 until 2m; "
     "2m: take 5 = used 5 until 3m"},
    /* symfony/symfony#64095 */
    {"charge: a count that carries holds what a key can hold, and what may be reserved",
     SAME, "10/m capacity=20 reserve=15",
     "take 30 charge = used 30 until 1m; take = no first wait 2m; "
     "take 10 charge = granted 5 used 35; take charge = granted 0; take reserve = no wait 1m; "
     "1m: take 0 charge = used 25 until 2m; take 10 reserve = used 35 wait 2m; "
     "take 3 charge = granted 0; back 4 of 2m; take 3 charge = used 34; "
     "3m: take = used 15 until 4m; take 100 charge = granted 20 used 35; "
     "6m: take 0 peek = used 5 until 7m"},
    {"charge: a smooth count holds 16,383 of each window", SAME, "10/m smooth",
     "take 16000 charge = used 16000 until 1m; take 1000 charge = granted 383 used 16383; "
     "take = no first wait 1m+59s+967ms+39us+4ns; 1m: take 5 charge = used 16388 until 2m; "
     "take 4294967295 charge = granted 16378 used 32766; back 16000 of 1m; back 16380 of 2m; "
     "90s: take 0 peek = no used 195 wait 28s+903ms+394us+256ns; 2m: take = used 4 until 3m; "
     "3m: take 2 charge = used 3 until 4m"},
    {"look before a charge: a decision that takes nothing",
     "It takes nothing, but it is a decision: it is counted as allowed or refused", "3/m",
     "take 3 look = until 1m; take 4 look = no first never; take 4 look = no never; "
     "take 2 charge = used 2; take look = yes; take 2 look = no wait 1m; take charge = used 3; "
     "take 0 look = yes; take look = no wait 1m; take = no wait 1m; "
     "1m: take look = used 0 until 2m; take 5 charge = used 5; take 0 look = no first wait 1m; "
     "take = no wait 1m"},
    {"look before a charge: roll-over", SAME, "10/m capacity=20 reserve=15",
     "take 33 charge = used 33 until 1m; take 5 look = no first wait 2m; "
     "1m: take 5 look = no used 23 until 2m first wait 1m; take = no wait 1m; "
     "2m: take 7 look = used 13 until 3m"},
    {"look before a charge: smooth", SAME, "10/m smooth",
     "take 20 charge = used 20 until 1m; 1m: take look = no until 2m first wait 33s; "
     "93s: take look = used 9; take = used 10"},

    /* ---- In flight ---- */

    {"in flight: held, given back, held again",
     "At most `limit` held at once, instead of granted per window.", "3/m in-flight",
     "take = used 1 until 1m; 1s: take 2 = used 3; 2s: take = no first wait 118s; "
     "take = no wait 118s; back 1 of 1m; take = used 3; back 2 of 1m; 3s: take 2 = used 3; "
     "take = no wait 117s; back 3 of 1m; back 1 of 1m = 0; take 0 peek = yes; 4s: take 3 = used 3"},
    {"in flight: given back to the window in which it was taken, in any order",
     SAME, "5/m in-flight",
     "take 3 = used 3 until 1m; 1m: take 2 = used 5 until 2m; back 1 of 1m; back 9 of 2m = 2; "
     "take 0 peek = yes; back 9 of 1m = 2; back 1 of 1m = 0; back 1 of 2m = 0; back 1 of 0 = 0; "
     "back 1 of none = 0; take 5 = used 5"},
    {"in flight: PARTIAL, PEEK, RESERVE, a limit of this call's own", SAME, "5/m in-flight",
     "take 3 = used 3 until 1m; take 4 partial = granted 2 used 5; "
     "take 4 partial = no first wait 2m; take peek = no wait 2m; take reserve = no wait 2m; "
     "take limit 6 = used 6 of 6; take 0 = no of 5 wait 2m; back 2 of 1m; "
     "take limit 4 = no of 4 wait 2m; take 16379 limit 99999 = used 16383 of 16383; "
     "1m: take 0 peek limit 16383 = until 2m; back 16383 of 1m"},
    {"in flight: a limit that is changed", SAME, "4/m in-flight",
     "take 4 = used 4 until 1m; change 2/m in-flight; take = no of 2 first wait 2m; back 2 of 1m; "
     "1m: take = no until 2m first wait 1m; back 1 of 1m; take = used 2; change 6/m in-flight; "
     "take 4 = used 6 of 6"},
    {"in flight: SHADOW holds nothing of what it would have refused", SAME, "2/m in-flight shadow",
     "take 2 = used 2 until 1m; take = first shadowed wait 2m; back 1 of 1m; take = used 2"},
    {"in flight: near the limit", SAME, "10/m near=50% in-flight",
     "take 5 = used 5 until 1m; 1m: take = used 6 until 2m near; back 1 of 1m; take 0 peek = yes"},
    {"in flight: a late caller holds in the window that has begun", SAME, "3/m in-flight",
     "take = used 1 until 1m; 1m: take = used 2 until 2m; 50s: take = used 3; "
     "take = no first wait 70s; back 1 of 1m; back 2 of 2m; 1m: take 0 peek = yes"},
    {"in flight: reset frees all", SAME, "3/m in-flight",
     "take = used 1 until 1m; 1m: take 2 = used 3 until 2m; reset = forgot; back 1 of 1m = 0; "
     "take 3 = used 3"},
    {"in flight: the largest limit, the longest lease", SAME, "16383/366d in-flight",
     "1971-01-02: take 16383 = used 16383 until 1972-01-03; "
     "1972-01-03: take = no until 1973-01-03 first wait 366d; take 16383 = no wait 366d; "
     "1973-01-03: take 16383 = used 16383 until 1974-01-04"},
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
    {"override: a full table that refuses", SAME, "table 4 refuse; 1/m overrides",
     "override 268435456 until 1h; override 0 until 1h of b; override 5 until 1s of c; fill 100; "
     "take 5 = granted 0 of 268435456 until 1m overridden; "
     "take of b = no of 0 until 1m overridden untracked wait 1h; "
     "take of c = no of 5 until 1m overridden untracked wait 1m"},
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
     "take 2 of c = no until 1d+1m first banned never; clock 1d-2m; "
     "take peek of c = until 1d-1m; clock 1d-1m; "
     "take peek of c = no of 0 until 1d+1m overridden banned wait 61m; "
     "1d-11m: take of c = no overridden banned wait 61m; clock -2m; take peek = until -1m; "
     "take peek of b = of 5 until -1m overridden; override 7 until 0; rule = 7 until 0"},
    {"override: the smooth window of a clock that was stepped back has not begun yet", SAME,
     "4/s smooth overrides",
     "clock 1d; take = used 1 until 1d+1s; clock 1d-10s; override 0 until 1d-8s; "
     "take 3 peek = no used 1 of 0 overridden wait 2s; take 4 peek = no overridden wait 12s; "
     "1d-8s: take 3 = used 4 of 4"},
    {"override: smooth", SAME, "4/m smooth overrides",
     "override 6 until 1h; take 6 = used 6 of 6 until 1m overridden; "
     "take = no first overridden wait 70s; override 20000 until 1h; "
     "take = used 7 of 16383 overridden; override 268435456 until 1h; "
     "take 20000 = granted 0 of 268435456 overridden; "
     "1m: take 20000 = granted 0 until 2m overridden; clear; "
     "take = no of 4 first wait 34s+285ms+714us+286ns"},
    {"override: tokens that carry over", SAME, "10/m capacity=20 reserve=5 overrides",
     "override 30 until 1h; take 30 = used 30 of 30 until 1m overridden; "
     "take 5 reserve = used 35 overridden wait 1m; take reserve = no first overridden wait 1m; "
     "override 268435456 until 1h; take 100 = granted 0 of 268435456 overridden; "
     "override 0 until 30s; take reserve = no of 0 overridden wait 2m; "
     "2m: take 5 = used 20 of 20 until 3m"},
    {"override: a key's own windows, count-refused, shadow, near",
     SAME, "4/m near=50% shadow count-refused overrides",
     "take 3 = used 3 until 1m near; override 8 until 1h; take = used 4 of 8 overridden; "
     "take = used 5 near overridden; override 0 until 1h; "
     "take 2 = used 7 of 0 first shadowed near overridden wait 1h"},
    {"override: what cannot be set, told or lifted", SAME, "5/m overrides name=p; 5/m name=q",
     "override 1 until 1ns by 7 = ENOENT no policy; override 1 until 1ns by 1 = ENOENT no policy; "
     "override 1 until 1ns by q = EINVAL STINT_OVERRIDES; override 268435457 until 1s = EINVAL limit; "
     "override 1 until 0 = EINVAL until; override 1 until 366d+1ns = EINVAL until; "
     "override 1 until 366d; rule by q = EINVAL; rule of b = ENOENT; back 1 of 366d by 1 = 0; "
     "reset by 1 = nothing; "
     "clear by q = EINVAL STINT_OVERRIDES; clear of b = ENOENT no override; "
     "take by 1 = no unknown; rule = 1 until 366d"},
    {"override: the flag comes, goes and comes back", SAME, "table 100 admit 3; 5/m name=p",
     "override 1 until 1h = EINVAL; change 5/m overrides; override 1 until 1h; "
     "take 2 = no of 1 until 1m first overridden wait 1h; change 5/m; take 2 = used 2 of 5; "
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
    {"override: 2^28: what was used before is no more than it has, nor is it drained", SAME,
     "2/m reserve=5 overrides",
     "take 7 reserve = used 7 until 1m wait 3m; override 268435456 until 1h; "
     "take 5 drain = granted 0 of 268435456 overridden; take 5 partial = granted 0 overridden; "
     "take 5 reserve = granted 0 overridden; take 0 = overridden; clear; "
     "take drain = no of 2 first wait 3m"},
    {"override: 2^28 leaves a bucket alone, and a debt", SAME, "5/h burst=5 reserve=5 overrides",
     "take 3 = used 3 until 36m; override 268435456 until 1h; "
     "take 9 reserve = granted 0 of 268435456 overridden; take 9 charge = granted 0 overridden; "
     "clear; take 3 = no of 5 first wait 12m"},
    {"override: a limit that comes back before the window is over",
     "A refusal's retry_after takes into account when the override ends.", "5/m overrides",
     "take 2 = used 2 until 1m; override 2 until 20s; take = no of 2 first overridden wait 20s; "
     "take 4 = no overridden wait 1m; take 6 = no overridden never; "
     "take 6 limit 7 = no overridden wait 1m; 20s: take 3 = used 5 of 5"},
    {"override: once it is over, no request has more room than 2^28, whatever it may reserve",
     SAME, "5/s reserve=20 overrides",
     "override 3 until 10s; "
     "take 268435456 reserve limit 268435456 = no of 3 until 1s first overridden wait 10s; "
     "take 268435457 reserve limit 268435456 = no overridden never; "
     "take 268435476 reserve limit 268435456 = no overridden never; "
     "take 268435480 reserve limit 268435456 = no overridden never"},

    /* ---- Bans ---- */

    /* laravel/framework#9512, haproxy/haproxy#615, fail2ban/fail2ban#2411 */
    {"ban: after one refusal",
     "a key that was refused in three windows is banned for an hour", "2/m ban=10m",
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
    {"animir/node-rate-limiter-flexible#231: a ban of 366 days lasts 366 days",
     SAME, "10/5s ban=366d",
     "take 9 = used 9 until 5s; take 3 = no first banned wait 366d; "
     "1d: take 3 = no used 0 of 0 until 1d+5s overridden banned wait 365d; "
     "365d: take 3 = no until 365d+5s overridden banned wait 1d; "
     "366d: take 3 = used 3 of 10 until 366d+5s"},
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
    {"ban: strikes count within a time of their own, shorter than the ban",
     SAME, "1/m ban=1h after=2 within=2m",
     "take 2 = no until 1m first never; 2m: take 2 = no until 3m first never; "
     "3m: take 2 = no until 4m first banned never; "
     "63m-1ns: take = no of 0 until 63m overridden banned wait 1ns"},
    {"ban: one that ends before its window does",
     "if it ends before that window does, it has no effect", "2/h ban=10m",
     "take = used 1 until 1h; take 2 = no first banned wait 1h; "
     "take = no of 0 overridden banned wait 10m; take 2 = no overridden banned wait 1h; "
     "10m: take = used 2 of 2"},
    {"ban: with cost 1 such a ban has no effect", SAME, "5/90d start=first ban=30s",
     "take 5 = used 5 until 90d; take = no first banned wait 90d; "
     "30s: take = no wait 89d+23h+59m+30s; 90d: take = used 1 until 180d"},
    {"animir/node-rate-limiter-flexible#32: a ban that is shorter than its window gives no tokens",
     SAME, "5/90d start=first ban=30s",
     "take 5 = used 5 until 90d; 1s: take = no first banned wait 89d+23h+59m+59s; "
     "2s: take = no of 0 overridden banned wait 89d+23h+59m+58s; "
     "31s: take = no of 5 wait 89d+23h+59m+29s; 90d: take = used 1 until 180d"},
    {"ban: a shadow bans nobody",
     "A shadow (STINT_SHADOW) counts no strikes, and bans nobody.", "1/m shadow ban=1h",
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
     "take = of 0 shadowed overridden banned wait 1h; table = banned 1; change 1/m ban=1h after=3; "
     "take = no overridden banned wait 1h"},
    {"ban: one that has longer to go than a ban takes by now, and 60 s, is void",
     "If `ban` is made shorter, bans that have more than it and 60 s to go are void.",
     "1/m ban=1h name=p",
     "take 2 = no until 1m first banned never; prune 1/m ban=59m name=p; "
     "take = no of 0 overridden banned wait 1h; prune 1/m ban=58m name=p; "
     "take peek = of 1; 1m: take = no of 0 until 2m overridden banned wait 59m; "
     "prune 1/m ban=10m name=p; take peek = of 1; prune 1/m ban=1h name=p; "
     "take = no of 0 overridden banned wait 59m"},
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
     "prune 4/m stripes=2 name=p , 1/d name=q overrides; rule by p = EINVAL; "
     "table = overrides 0; override 5 until 1h by q; remove q; table = overrides 0; "
     "apply 1/s name=r overrides = ENOSPC max_policies"},
    {"ban: refusals that count write nothing while it lasts",
     "Refusals of a banned key only read.", "1/m count-refused ban=1h",
     "take 2 = no used 2 until 1m first banned never; take = no of 0 overridden banned wait 1h; "
     "1m: take = no used 0 until 2m overridden banned wait 59m"},

    /* ---- Token buckets ---- */

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
};
/* clang-format on */

enum { FEATURES = sizeof features / sizeof *features };

TEST(test_features) {
    print_message("%zu verdicts\n", play_features(features, FEATURES));
}

TEST(test_sentences) {
    assert_sentences(features, FEATURES);
}
