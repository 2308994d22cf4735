/* SPDX-License-Identifier: MIT
 * What a table in a file keeps, in words (kit/words.h): by several handles, over restarts, for
 * readers, and in another size. */
#include "words.h"

/* clang-format off */
static const struct feature features[] = {
    {"a policy of one name is one policy, whoever adds it",
     "which any number of processes may use at once, and find again as it was",
     "file 1000 refuse; 10/m name=minute",
     "as two; add 100/h start=per-key name=hour; as one; add 100/h start=per-key name=hour; "
     "table = policies 2; add 10/m capacity=10 name=minute; take 10 = used 10 until 1m; as two; "
     "change 11/m; as one; take = used 11 of 11; take = no first wait 1m"},
    {"... and no other of that name goes with it", SAME, "file 1000 refuse; 10/m name=minute",
     "as two; add 11/m name=minute = EEXIST named minute exists with another limit; "
     "add 10/h name=minute = EEXIST exists with another window; "
     "add 10/m start=1970-01-01T00:00:01Z name=minute = EEXIST exists with another start; "
     "add 10/m shadow name=minute = EEXIST exists with another flags; "
     "add 10/m capacity=20 name=minute = EEXIST exists with another capacity; "
     "add 10/m reserve=5 name=minute = EEXIST exists with another max_reserved; "
     "add 10/m stripes=2 name=minute = EEXIST exists with another stripes; "
     "add 10/m near=80% name=minute = EEXIST exists with another near_limit; "
     "add 10/m jitter=10% name=minute = EEXIST exists with another jitter"},
    {"overrides and bans, and none of a policy that was removed", SAME,
     "file 1000 admit; 1/m ban=1h name=p; 1/m overrides name=going",
     "override 5 until 1h; override 5 until 1m of b; override 5 until 1h of c by going; "
     "take 2 of d = no until 1m first banned never; remove going; close; 2m: open; "
     "add 1/m ban=1h name=p; take = used 1 of 5 until 3m overridden; take of b = used 1 until 3m; "
     "take of d = no of 0 until 3m overridden banned wait 58m; table = overrides 1 banned 1; "
     "clock 30s; take peek = used 0 until 1m overridden; "
     "take peek of b = used 0 of 5 until 1m overridden"},

    {"in flight: each gives back what the other holds", SAME,
     "file 100 refuse; 3/m in-flight name=held",
     "take 2 = used 2 until 1m; as two; back 2 of 1m; 1m: take 3 = used 3 until 2m; as one; "
     "take = no first wait 2m; back 3 of 1m = 0; back 3 of 2m; take 3 = used 3"},

#define WRONG_CLOCK(name, off, minute, day) \
    {name, SAME, "file 1000 refuse; 10/m; 10/d name=day", \
     "take 4 by day = used 4 until 1d; close; clock " off "; open; " \
     "take 3 of b = used 3 until " minute "; " day "close; clock 0; open; " \
     "take 0 peek by day = used 4 until 1d; take 10 of b = used 10 until 1m; " \
     "take 10 of b by day = used 10 until 1d"}
    {"opened by a clock that is hours ahead: whom nobody asked for keeps his count",
     "Those that a wrong clock has left far ahead count for nothing.",
     "file 1000 refuse; 10/m; 10/d name=day",
     "take 4 by day = used 4 until 1d; close; clock 2h; open; take 3 of b = used 3 until 2h+1m; "
     "close; clock 0; open; take 0 peek by day = used 4; take 10 of b = used 10 until 1m"},
    WRONG_CLOCK("... by hours behind", "-2h", "-2h+1m", "take 3 of b by day = used 3 until 0; "),
    WRONG_CLOCK("... by days", "-2d", "-2d+1m", "take 3 of b by day = used 3 until -1d; "),
    WRONG_CLOCK("... by a year", "-400d", "-400d+1m", "take 3 of b by day = used 3 until -399d; "),
    WRONG_CLOCK("... a year ahead", "366d", "366d+1m", "take 3 of b by day = used 3 until 367d; "),
    WRONG_CLOCK("... and more", "400d", "400d+1m", "take 3 of b by day = used 3 until 401d; "),

    /* ---- Ids ---- */

    {"ids are free when somebody opens the table alone",
     "Ids of policies that are gone become free when a process opens the table's file and nobody "
     "else has it open.",
     "file 100 refuse 4; 3/366d name=a; 3/m name=b; 3/m name=c",
     "as two; as one; fill 20; prune 3/h name=b , 3/m name=c; as two; "
     "take 0 peek by b = of 3 until 1h; add 5/h name=d = ENOSPC; as one; close; open; "
     "add 5/h name=d = ENOSPC; as two; take by 1 = used 1 until 1h by 3; take by 3 = used 2; "
     "close; as one; close; open; take peek by 3 = used 2; take = no unknown; "
     "take by 1 = no unknown; as two; take peek by b = used 2; as one; add 5/h name=d; "
     "take 0 peek by d = of 5 until 1h generation 2; as two; take 0 peek = of 5 until 1h; "
     "table = live 1; counts = allowed 0; apply 3/m name=e; as one; "
     "take 0 peek by 1 = used 0 of 3 until 1m generation 2; take 0 peek by c = of 3 until 1m; "
     "add 5/h name=d; add 5/h name=f = ENOSPC"},
    {"no room: all ids are in use, or some are of policies that are gone", SAME,
     "file 100 refuse 2; 1/s name=a; 1/m name=b",
     "add 1/m name=c = ENOSPC taken. All are in use: stint_resize; remove b; "
     "add 1/m name=c = ENOSPC 1 of 2 are of removed and replaced policies; "
     "add 1/m name=c = ENOSPC end all that have (`stint status` tells), and then start one"},
    {"what the table has counted stays, though the policy and its id are gone", SAME,
     "file 100 refuse 4; 1/h name=a; 1/h name=b",
     "fill 1000; table = untracked 232; remove a; table = untracked 232; close; open; "
     "table = untracked 232; add 1/h name=c; counts by 0 = untracked 0; close; resize 0 8; open; "
     "table = untracked 232; close; open; table = untracked 232; counts by c = untracked 0"},
    {"free ids are no policy's, after a clock that was far ahead, too", SAME,
     "file 100 refuse 4; 3/m name=a; 3/m name=b",
     "remove a; close; open; take = no unknown; clock 10d; take by b = used 1 until 10d+1m; "
     "clock 0; close; open; take by b = used 1 until 1m; table = policies 1; metrics = "
     "stint_policy_limit{policy=\"b\"} 3; metrics = no policy=\"a\"; metrics = no policy=\"\"; "
     "apply 3/h name=b; take by 1 = used 1 of 3 until 1h by b generation 2; metrics = "
     "stint_policy_window_seconds{policy=\"b\"} 3600; metrics = no "
     "stint_policy_window_seconds{policy=\"b\"} 60; metrics = "
     "stint_decisions_total{policy=\"b\",outcome=\"allowed\"} 1"},

    /* ---- Readers ---- */

    {"a reader changes nothing, and is led to the policies of now",
     "calls that would change the table are -EROFS.", "file 100 refuse 8; 3/m name=a; 3/m name=b",
     "as reader; apply 4/m name=a = EROFS STINT_READ_ONLY; prune 4/m name=a = EROFS; dry 4/m "
     "name=a , 3/h overrides name=c; remove a = EROFS; table = policies 2; as one; take = used 1 "
     "until 1m; take by b = used 1 until 1m; apply 5/h start=first name=a; apply 6/month name=a; "
     "take = used 1 of 6 until 2024-02-01 by a; take by 2 = used 2 of 6 until 2024-02-01 by a; "
     "as reader; take peek = used 2 by 3; take peek by b = used 1; take peek by 2 = by 3; take "
     "peek by a = used 2 of 6 until 2024-02-01; take = no bad; take by a = no bad; back 1 of "
     "2024-02-01 by 3 = 0; reset by 3 = nothing; counts = allowed 2; counts by b = allowed 1; "
     "counts by 2 = allowed 2; entries = by 1 used 1 until 1m + by 3 used 2 until 2024-02-01; as "
     "one; take peek by a = used 2; remove 0; as reader; take peek = no unknown; take peek by 3 "
     "= no unknown; take by 3 = no bad; table = policies 1; close; open; take peek by b = used 1"},
    {"... nor sets or lifts an override", SAME, "file 100 refuse 8; 3/m overrides name=a",
     "override 2 until 1h; as reader; add 3/m overrides name=a = EROFS STINT_READ_ONLY; "
     "change 4/m overrides name=a = EROFS; override 5 until 1h = EROFS; clear = EROFS; "
     "rule = 2 until 1h; take peek = used 0 of 2 until 1m overridden"},
    {"a reader keeps no id", "a reader keeps no id: if no process that decides has the table open",
     "file 100 refuse 8; 3/m name=a; 3/m name=b",
     "as reader; as one; take by b = used 1 until 1m; remove a; close; open; apply 9/m name=c; "
     "as reader; take 0 peek by c = of 9 until 1m generation 1; take peek = used 0; "
     "take peek by b = used 1"},

    /* ---- Another size ---- */

    {"late callers join the window that is there, and open none that was over",
     "stint_resize keeps every live key with its count", "file 6200 refuse 10; 5/h name=p",
     "take 5 = used 5 until 1h; close; 61m: resize 8000; open; "
     "59m+59s: take 5 = used 5 until 2h at 61m"},
    {"policies that are gone leave free ids, the others keep theirs", "all policies with their ids",
     "file 800 refuse 6; 3/h name=a; 4/h name=b; 5/h start=first name=c; 6/h stripes=4 name=d",
     "take by a = used 1 until 1h; take 2 by b = used 2 until 1h; take 3 by c = used 3 until 1h; "
     "take 6 by d = used 6 until 1h; prune 9/d name=a , 4/h name=b , 5/month name=c; take by a = "
     "used 1 of 9 until 1d; take 2 by b = used 4; take 3 by c = used 3 of 5 until 2024-02-01; "
     "clock 10m; 1970-01-01+1s: take 0 by c; 10m: close; resize 1600 5 = EINVAL "
     "options.max_policies must be at least 6; resize 1600; open; table = policies 3 live 3; "
     "take peek by 4 = used 1; take 0 peek by 1 = used 4; take peek by 5 = used 3; counts by a = "
     "allowed 1; counts by b = allowed 2; counts by c = allowed 2 mistaken_nows 1; take by 0 = "
     "no unknown; take by 2 = no unknown; take by 3 = no unknown; add 7/h name=e; add 7/h "
     "name=f; add 7/h name=g; take peek by 0 = used 0 of 7 until 1h generation 2; counts by e = "
     "allowed 0 mistaken_nows 0; take peek by 3 = used 0 of 7 until 1h generation 2; remove 5; "
     "close; resize 0 5; open; table = policies 5; take 0 peek by b = used 4; take peek by 4 = "
     "used 1; add 5/h name=h = ENOSPC"},
    {"a day's keys do not fit into a table of an hour's",
     "no room for its live keys", "file 40000 refuse 4; 5/d name=day",
     "fill 20000; take 3 = used 3 until 1d; close; resize 800 = ENOSPC 20001 live keys; "
     "resize 15000; open; table = live 20001; take peek = used 3; close; 1d: resize 800; open; "
     "table = used 0"},
    {"a clock that is behind, as that of a machine that has just started, loses nothing",
     "clock tells which keys are live.", "file 800 refuse 4; 5/h name=p",
     "take 2 = used 2 until 1h; take 5 of b = used 5 until 1h; close; clock -600d; "
     "resize 1600 = EINVAL clock is months behind; clock -400d; resize 1600; clock 1m; open; "
     "take 0 peek = used 2; take 0 peek of b = used 5; table = live 2"},
};
/* clang-format on */

TEST_FEATURES(features)
