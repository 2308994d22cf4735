/* SPDX-License-Identifier: MIT
 * The stories of the known mistakes. All windows begin at tick 0; those of `one`, `two` and the
 * others of kit/scene.c are ten ticks long. */
#include "stories.h"

#define BIT(guard)     GUARD_BIT(GUARD_##guard)
#define WITHOUT(guard) #guard, BIT(guard), NULL
#define PATCHED(patch) patch, 0, patch

/* clang-format off */
#define REPLACES .on_full = STINT_FULL_REPLACE

/* A line whose first slot falls free at the very instant, the others before. */
#define FALLS_FREE "take later other; take one h0; take one h1; take one h2; turn 16"

/* Slots that a claim near the key's home passes by: what a smooth key has used fades for a window.
 * Then a line of them, whose first slot falls free at the very instant. */
#define FADED "take smooth h0; take smooth h1; take smooth h2; "
#define FALLS_FREE_FADED "take later other; " FADED "turn 17; take later other; turn 32"

/* One thread claims and looks while the other, which is ahead of it by a tick and finds the first
 * slot free, not the last, has not claimed yet. */
#define TWO_FALL_FREE \
    "take one other; hold 2; take one h2; turn 10; take one other; turn 19"

/* KEY's slot is over; it had one token of two, or of one. */
#define SLOT_IS_OVER      "hold 3; take two key; turn 10; tell two"
#define FULL_SLOT_IS_OVER "hold 3; take one key; turn 10; tell one"

/* Room was seen in KEY's slot, the fourth. */
#define SLOT_HAS_ROOM "hold 3; take two key; tell two"

/* Four keys have the slots of the line. */
#define FOUR_KEYS "take two f0; take two f1; take two f2; take two f3"

const struct story stories[] = {
    /* ---- What is found at once ---- */

    /* The key's slot goes to another key between the search for its tag and the load of the state:
     * that shows room, the other key's. */
    {WITHOUT(TAKE_TAG), {"another key's room", .stops = 1,
     .before = SLOT_IS_OVER, .a = "take two key", .b = "take two other"}},
    {WITHOUT(TAKE_TAG), {"another key's room, striped", .stops = 1,
     .before = "hold 2; take striped key x4; turn 10; tell striped",
     .a = "take striped key", .b = "take two other; take two third"}},

    /* The other key is full and refused. */
    {WITHOUT(FOUND_TAG), {"another key's refusal, fast", .stops = 1,
     .before = FULL_SLOT_IS_OVER, .a = "take one key", .b = "take one other x2"}},

    /* The other key is full and refused when the state is loaded, and the slot comes back before
     * the second look at the tag, in a later window. */
    {WITHOUT(FOUND_STATE), {"another key's refusal, and back, fast", .stops = 2,
     .before = FULL_SLOT_IS_OVER, .a = "take one key",
     .b = "take one other x2", .c = "turn 20; take one key"}},

    /* The other key has a token there, and a group's part that only looks fits with it. */
    {WITHOUT(FOUND_STATE), {"another key's count, and back, a group", .stops = 2,
     .before = SLOT_IS_OVER, .a = "all two key look + long h0 = counted + yes",
     .b = "take two other", .c = "turn 20; take two key; back two key"}},

    /* Two threads see the last token; of a stripe, the last of its own. */
    {WITHOUT(TAKE_ADDED), {"two threads and one token", .stops = 1,
     .before = "take two key", .a = "take two key", .b = "take two key"}},
    {WITHOUT(TAKE_ADDED), {"two threads and one token, striped", .stops = 1,
     .before = "take striped key", .a = "take striped key", .b = "take striped key"}},

    /* Nobody has decided in the present window yet. */
    {WITHOUT(TAKE_WINDOW), {"window of the last request",
     .before = "take two key; turn 10", .a = "take two key"}},
    {WITHOUT(HINT_WINDOW), {"window of the last request, any",
     .before = "take two key; turn 11", .a = "take two key long"}},
    {WITHOUT(HINT_WINDOW), {"window of the last request, striped",
     .a = "take striped key; turn 10; take striped key"}},

    /* `near` counts by swaps. */
    {WITHOUT(JUDGE_ROOM), {"swap past the capacity", .a = "take near key x4"}},
    {WITHOUT(FOUND_MARK), {"fast refusal that is the first", .a = "take one key x3"}},

    /* Two threads see the last token. The refused one's is taken back, or it would take room when
     * the limit is raised; or it is counted, once, where refused requests are. */
    {WITHOUT(BACK), {"overshoot under a limit that is raised", .stops = 1,
     .before = "take two key", .a = "take two key", .b = "take two key",
     .after = "change two 4/100ms; take two key x2 = yes; take two key = no"}},
    {WITHOUT(BACK), {"refused request that counts", .stops = 1,
     .before = "add p 2/100ms count-refused; take p key", .a = "take p key", .b = "take p key",
     .after = "take p key look = used 3"}},

    /* The key is reset while the refused one's token is on its way back. */
    {WITHOUT(BACK_ZERO), {"token on its way back from a key that is reset", .stops = 2,
     .before = "take two key", .a = "take two key; take two other", .b = "take two key",
     .c = "reset two key"}},

    /* ---- Fetch-adds that come too late: room was seen ---- */

    /* Then the slot goes to another key, which has one token left; or which has used all that a
     * smooth key's window counts. */
    {WITHOUT(BACK_TAG), {"late add to another key", .stops = 1,
     .before = SLOT_HAS_ROOM, .a = "take two key", .b = "turn 10; take two other"}},
    {PATCHED("smooth-bits"), {"late add to a smooth key", .stops = 1,
     .before = SLOT_HAS_ROOM, .a = "take two key", .b = "turn 10; take smooth other cost 16383"}},

    /* Then the slot goes to another key. The key spends its window in another slot, the third, and
     * gets the first back when the next one has begun: after the fetch-add, before the look at its
     * tag. */
    {WITHOUT(BACK_WINDOW), {"late add to another key, and back", .stops = 2,
     .before = "hold 2; take later h2; take two key; tell two", .a = "take two key",
     .b = "turn 10; take two other; turn 16; take two key x2",
     .c = "turn 20; take two third; take two key"}},

    /* Then the slot goes to a key of another policy, and back after the fetch-add, as that
     * policy is removed, or the key's override is lifted or is to end sooner, or the key is
     * replaced: in a window that ends as that key's. */
    {WITHOUT(BACK_FALLEN), {"late add to a key whose policy is gone", .stops = 2,
     .before = SLOT_HAS_ROOM, .a = "take two key", .b = "turn 10; take near other",
     .c = "remove near; turn 12; take two key x2"}},
    {WITHOUT(BACK_FALLEN), {"late add to an override, lifted", .stops = 2,
     .before = SLOT_HAS_ROOM, .a = "take two key", .b = "turn 10; override ruled other 1 20",
     .c = "clear ruled other; turn 12; take two key x2"}},
    {WITHOUT(BACK_FALLEN), {"late add to an override, ended sooner", .stops = 2,
     .before = SLOT_HAS_ROOM, .a = "take two key", .b = "turn 10; override ruled other 1 6030",
     .c = "override ruled other 1 11; turn 6022; take two key x2"}},
    {WITHOUT(BACK_FALLEN), {"late add to a key that is replaced", .stops = 2, REPLACES,
     .before = "hold 3 cost 9; take two key; tell two", .a = "take two key",
     .b = "turn 10; take one other", .c = "turn 12; take two key x2"}},

    /* Then the slot goes to another key. A charge that is taken back from it a window later is one
     * that was never made in that. */
    {PATCHED("added-stays"), {"charge taken back", .stops = 2,
     .before = SLOT_HAS_ROOM, .a = "take two key", .b = "turn 10; take one other",
     .c = "turn 20; take one other"}},

    /* ---- Claims ---- */

    /* A thread is killed with a claim of the first slot, which falls free at the very instant: a
     * late thread has the key in the second by then. The next one meets the claim first. */
    {WITHOUT(FOUND_PENDING), {"counted in a claim", .stops = 1,
     .before = FALLS_FREE, .a = "die once key; take once key", .b = "take once key at 15"}},

    /* A key with windows of its own: the claim's end is none of them. */
    {WITHOUT(KEY_PENDING), {"window of a claim",
     .before = "take own key look; die own key", .a = "take own key look"}},

    /* A key that no slot has, in a line whose first slot falls free at the very instant: a late
     * thread takes the second. */
    {WITHOUT(PENDING), {"no look after a claim", .stops = 1,
     .before = FALLS_FREE, .a = "take once key", .b = "take once key at 15"}},
    {WITHOUT(RIVAL_COMMITTED), {"look that cancels a committed slot", .stops = 1,
     .before = FALLS_FREE, .a = "take once key", .b = "take once key at 15"}},

    /* A third thread looks at the key before the claim is given up: it sees what the key has used,
     * not the claim. */
    {WITHOUT(SHORT_LOOK), {"a look beside a claim", .stops = 2,
     .before = FALLS_FREE, .a = "take once key", .b = "take once key at 15",
     .c = "take once key look = no used 1"}},

    /* A thread is killed with a claim by a now that is early by a minute. */
    {PATCHED("commit-end"), {"a claim that is a minute early",
     .before = "add p 1/100s; turn 4000", .a = "die p key at 10000; take p key"}},

    /* A late thread finds the key's line full, and has the key in the next one by then. */
    {PATCHED("reach-read"), {"look that ends at its own line", .stops = 1, .lines = 2,
     .before = "take later other; take later h0; take later h1; take later h2;"
               "take one h10; take one h11; take one h12; take one h13; turn 16",
     .a = "take once key long", .b = "take once key at 15"}},

    /* The thread that is ahead looks while the first has not committed yet. */
    {WITHOUT(RIVAL_LATER), {"later claim left standing", .stops = 3,
     .before = TWO_FALL_FREE, .a = "take once key", .b = "turn 20; take once key long"}},

    /* The first thread's claim is cancelled, and its slot goes to another key by a claim of the
     * same tick, whose thread is killed. */
    {"reuse-tombstone", 0, "reuse-tombstone swap-tag",
     {"tombstone reused in its window", .stops = 3,
     .before = TWO_FALL_FREE, .a = "take once key", .b = "turn 20; take once key long",
     .c = "die two third at 19"}},
    {"cancel-end", 0, "cancel-end swap-tag", {"cancel that writes zero", .stops = 3,
     .before = TWO_FALL_FREE, .a = "take once key", .b = "turn 20; take once key long",
     .c = "die two third at 19"}},
    {"cancel-pending", 0, "cancel-pending swap-tag", {"cancel that leaves pending", .stops = 3,
     .before = TWO_FALL_FREE, .a = "take once key", .b = "turn 20; take once key long"}},

    /* A slot is replaced twice within a tick (ends may fall then), at a begin of both windows, the
     * second time by a thread that is killed: the first thread's claim was over, and its slot is
     * another key's now. */
    {PATCHED("swap-tag"), {"commit of the state alone", .stops = 1, REPLACES, .key_replaced = true,
     .before = "hold 3 cost 9; take one h3; turn 80", .a = "take later key long; take two third",
     .b = "turn 81; take two other; die two third at 80"}},
    {WITHOUT(COMMIT_TAG), {"commit that waits for another claim", .stops = 1, REPLACES,
     .key_replaced = true,
     .before = "hold 3 cost 9; take one h3; turn 80", .a = "take later key cost 9; take two third",
     .b = "turn 81; take two other; die two third at 80"}},

    /* A never-used slot is claimed, and while the claimer sleeps another thread commits it for the
     * same key, which is replaced within the same tick, by a thread that is killed. */
    {PATCHED("short-first"), {"first claim like any", .stops = 1, REPLACES, .key_replaced = true,
     .before = "hold 2 cost 9; tell later", .a = "take later key; take two third",
     .b = "take later key; take long h2 cost 8; die two third at 0"}},

    /* A stray token comes to a claim between a thread's load of it and its commit. */
    {PATCHED("commit-used"), {"commit that waits for used = 0", .stops = 1,
     .before = FADED "take smooth h3; turn 20", .a = "take two key long quiet",
     .b = "stray two key"}},

    /* ---- Windows that are over: the key has spent one and lost its slot ---- */

    /* A late thread must not open the window again; not in a slot that was never used either, which
     * stripes pass by. */
    {WITHOUT(WATERMARK_RAISE), {"watermark not raised",
     .before = USED_LINE "; take one key; turn 20; hold 1", .a = "take one key at 19"}},
    {"watermark-read", BIT(SHORT_WATERMARK), "watermark-read", {"watermark not read",
     .before = USED_LINE "; take one key; turn 20; hold 1", .a = "take one key at 19"}},
    {WITHOUT(SHORT_WATERMARK), {"watermark not read, short",
     .before = "take one key; turn 10; take striped other", .a = "take one key at 9"}},

    /* What is held counts for one more window. */
    {PATCHED("watermark-fades"), {"watermark before the end of what is held",
     .before = "take held key cost 2; turn 20; take striped other",
     .a = "take held key at 15 = fresh"}},

    /* The window began with the key's first request: no other may begin in it. */
    {WITHOUT(WATERMARK_RAISE), {"watermark not raised, first request",
     .before = USED_LINE "; take first key; turn 20; hold 1", .a = "take first key at 19"}},
    {WITHOUT(SHORT_WATERMARK), {"watermark not read, first request",
     .before = "take first key; turn 10; take striped other", .a = "take first key at 9"}},

    /* A late thread is in the last days of January, which are less than 31 before the end of
     * February. */
    {PATCHED("hint-days"), {"month of the last request",
     .before = "turn 674560005; tell month",
     .a = "take month key at 674559995 = window 674560000"}},

    /* A thread is so late that its window is the clock's. */
    {WITHOUT(NOW_FAR), {"late new key",
     .before = "turn 20000; take two other", .a = "take one key at 10 = fresh"}},

    /* A late thread's key gets the first slot, which is over by now, spends its window and loses
     * the slot while the late thread has not found it, and has claimed another one. */
    {PATCHED("watermark-last"), {"watermark read before the look", .stops = 2,
     .before = FALLS_FREE_FADED, .a = "take one key at 31", .b = "take one key",
     .c = "turn 40; take long h5"}},

    /* ---- A full table ---- */

    /* A key in debt, whose window is over, and another key that looks for a slot. */
    {WITHOUT(REUSE_CARRIES), {"slot of a key in debt",
     .before = "hold 3; take debt key cost 2 reserve; turn 10", .a = "take one other = untracked"}},

    /* An override, and another key that looks for a slot: by an early now, and 50 s after its end
     * by a clock that is ahead of another's. */
    {WITHOUT(REUSE_OVERRIDE), {"slot of an override",
     .before = "override ruled key 0 1000; hold 3; turn 20",
     .a = "take one other at 1010 = untracked; turn 6000; take one other = untracked",
     .after = "turn 990; take ruled key = no"}},

    /* A slot that is over by an early now alone. A thread so late, and somebody so early, that it
     * asks the clock about the last slot; the first, until 8000, is over by then. */
    {WITHOUT(FULL_EARLY), {"full by an early time",
     .before = "take two other; hold 3", .a = "take one key at 15 = placed"}},
    {WITHOUT(FULL_EARLY), {"full by a late time",
     .before = "turn 7990; take half other; hold 2; take two h2 at 13990; turn 8000",
     .a = "take one key at 7900 = placed"}},

    /* The clock is stepped back by more than the allowance: slots that end too late for their own
     * windows, but not for the longest one, a month, are free. */
    {PATCHED("bulk-far"), {"full of windows that are far ahead",
     .before = "find month; turn 8000; " FOUR_KEYS "; turn 0", .a = "take one f9 = placed"}},

    /* A thread sleeps while it looks for its key. Windows are opened and over one after the other
     * meanwhile, each in another slot and each after those that it has looked at: it must not put
     * them together to a full table. */
    {PATCHED("bulk-far"), {"asleep in a search", .stops = 1,
     .before = "find month; " FOUR_KEYS "; turn 10", .a = "take one f9 = placed",
     .b = "turn 7000; take two f0; turn 7100; take two f1; turn 7200; take two f2; turn 7300;"
          "take two f3; turn 7400"}},

    /* The key gets the last slot between the search for it and the end of the search for a free
     * one. */
    {WITHOUT(FULL_AGAIN), {"full without another search", .stops = 1,
     .before = "hold 3; take smooth h13; turn 20", .a = "take one key long = placed",
     .b = "take one key"}},

    /* The key's own slot is the one with the fewest tokens. */
    {WITHOUT(REPLACE_OWN), {"key replaces itself", .stops = 1, REPLACES,
     .before = "hold 4 cost 9", .a = "take one key long", .b = "take one key"}},

    /* A claim is cancelled, and its slot taken for the one with the fewest tokens, by a claim of
     * the same tick, whose thread is killed. */
    {"REPLACE_FREE", BIT(REPLACE_FREE), "swap-tag", {"tombstone replaced", .stops = 3, REPLACES,
     .before = TWO_FALL_FREE, .a = "take long key cost 10", .b = "turn 20; take long key cost 10",
     .c = "die two third at 19"}},

    /* ---- Refunds ---- */

    /* A token is given back that a reset has forgotten, or when the next window has begun. */
    {WITHOUT(REFUND_ZERO), {"refund below zero",
     .before = "take one key; reset one key", .a = "refund one key 1 of 10"}},
    {WITHOUT(REFUND_WINDOW), {"refund into another window",
     .before = "take one key; turn 10; take one key", .a = "refund one key 1 of 10"}},

    /* A thread has found the first slot free; a late one takes the key's token in the second, and
     * the first thread is killed with its claim. Who gives that token back meets the claim first.
     * Another thread cancels it, between the looks at its tag and its state. */
    {WITHOUT(REFUND_TAG), {"refund beside a claim that is cancelled", .stops = 1,
     .before = FALLS_FREE "; die once key beside 15",
     .a = "refund once key 1 of 10000 = back 1", .b = "take once key"}},

    /* What was held two windows ago was forgotten. It is given back, and two others are held. */
    {WITHOUT(REFUND_FORGOTTEN), {"refund of what was forgotten",
     .before = "take held key; turn 10; take held key; turn 20; take held key",
     .a = "refund held key 1 of 10"}},

    /* Two are held since the window before. */
    {WITHOUT(COUNT_FADE), {"what is held fades",
     .before = "take held key x2; turn 15", .a = "take held key"}},

    /* A key had no slot, and was let through: by that verdict nothing can be given back, not
     * even in a window whose end is 0 in the bits of a slot. */
    {WITHOUT(REFUND_NONE), {"refund of an untracked token",
     .before = "turn wrap; take one key long", .a = "refund one key 1 of zero"}},

    /* ---- Policies that are replaced ---- */

    /* A late thread finds the key in a later window, and looks for its slot, which was swept
     * meanwhile. */
    {WITHOUT(CLAIM_GONE), {"claim by a policy that is gone", .stops = 1,
     .before = "take two key x2; turn 10; take two key", .a = "take two key at 5",
     .b = "apply 2/250ms name=two"}},

    /* It has seen room there, and adds a token when the window is long over, so the sweep leaves
     * its end. */
    {WITHOUT(SWEEP_FULL), {"add to a slot that was swept", .stops = 1,
     .before = "take two key", .a = "take two key",
     .b = "turn 9; take two key rest x8; turn 12010; apply 2/250ms name=two"}},

    /* The key has taken what its override allows, whose slot comes first in the line. Whoever has
     * read the policy misses the override, which was swept. */
    {WITHOUT(SWEEP_OVERRIDES), {"override swept before its key's slot", .stops = 3,
     .of_policies = true,
     .before = "override ruled key 1 900; take ruled key", .a = "take ruled key long quiet = no",
     .b = "remove ruled", .after = "clear ruled key"}},

    /* ---- Token buckets ---- */

    /* A refusal is told as a first one again when the instant at which the bucket is full has
     * passed a multiple of the window. */
    {WITHOUT(BUCKET_MARK), {"bucket that is refused in the next window, too",
     .a = "add b 2/100ms burst=2; take b key x3; turn 10; take b key x2; take b key = no first"}},

    /* The key has emptied its bucket and lost its slot, which is another's: by then the bucket was
     * full, and not before. */
    {WITHOUT(BUCKET_AGAIN), {"bucket, by a clock that was read early",
     .before = "add b 1/20ms burst=1; turn 10; take b key at 8", .a = "take b key at 8 = yes"}},
    {WITHOUT(BUCKET_AGAIN), {"bucket, another reads a later clock", .stops = 1,
     .before = "add b 2/1h burst=2 ban=1h", .a = "take b key = yes",
     .b = "turn 1; take b key = yes"}},
    {WITHOUT(BUCKET_NOW), {"bucket, by a now that was ahead of the clock",
     .a = "add b 2/1h burst=2 ban=1h; take b key at 1 = yes; take b key = yes"}},
    {WITHOUT(BUCKET_NOW), {"bucket, by a group's now that was ahead of the clock",
     .a = "add b 2/1h burst=2; all b key at 1 + b other at 1 = yes; take b key = yes"}},
    {WITHOUT(BUCKET_AGAIN), {"bucket in a group, by a clock that was read early",
     .before = "add b 1/20ms burst=1; turn 10; take b key at 8",
     .a = "all b key at 8 + one other at 8 = yes"}},
    {WITHOUT(BUCKET_AGAIN), {"bucket whose slot was another's, by a clock that was read early",
     .before = "add e 1/50ms; add b 1/20ms burst=2; take two third; take e other; hold 2;"
               "turn 10; take one h9",
     .a = "take b key at 8 x2 = yes; take b key at 8 look cost 0 = used 2"}},
    {WITHOUT(BUCKET_CLAIM), {"late claim of a bucket",
     .before = "add b 2/100ms burst=2; " USED_LINE "; turn 10; take b key x2; turn 21; hold 1",
     .a = "take b key at 10"}},

    /* A token of a while ago has come back by itself. If it is given back, too, three are granted
     * at once. */
    {WITHOUT(BUCKET_TAKEN), {"given back to a bucket, late",
     .before = "add b 2/100ms burst=2; take b key; turn 5; take b key x2",
     .a = "refund b key 1 of 5"}},

    /* By a request that was ahead of the clock the bucket got a slot. Then it is given back more
     * than was taken: up to the clock, it would end as the key did that had the slot. */
    {WITHOUT(BUCKET_OVER), {"late add to a bucket that ends sooner", .stops = 1,
     .before = "add b 2/100ms burst=2; hold 3; take two key; tell two", .a = "take two key",
     .any_order = true,
     .b = "take b other at 11 quiet; refund b other 3 of 20; take b other at 4"}},

    /* Its end falls after the fetch-add, and its slot goes back in a window that ends as the bucket
     * did. */
    {WITHOUT(BUCKET_FALLS), {"late add to a bucket that is given tokens back", .stops = 2,
     .before = "add b 10/100ms burst=10; " SLOT_HAS_ROOM, .a = "take two key",
     .b = "turn 10; take b other cost 9",
     .c = "refund b other 9 of 19; turn 12; take two key x2"}},

    /* The rate changes and somebody asks before the key's slot is counted anew. It changes twice,
     * and nobody asks in between; or somebody claims a slot meanwhile. */
    {WITHOUT(RATE_LOOK), {"bucket that counts by the rate before", .stops = 1,
     .before = "add b 10/100ms burst=10; take b key x4", .a = "change b 100/100ms burst=10",
     .b = "take b key look cost 0 = used 4"}},
    {WITHOUT(RATE_SWEEP), {"bucket that nobody asks for between two changes",
     .before = "add b 10/100ms burst=10; take b key x4",
     .a = "change b 100/100ms burst=10; change b 10/100ms burst=10;"
          "take b key look cost 0 = used 4"}},
    {WITHOUT(RATE_CLAIM), {"claim that is late for two changes of the rate", .stops = 1,
     .before = "add b 10/100ms burst=10", .a = "take b key; take b key look cost 0 = used 1",
     .b = "change b 100/100ms burst=10; change b 10/100ms burst=10"}},
    {WITHOUT(RATE_CLAIMS), {"claim that two changes of the rate overtake", .stops = 1,
     .before = "add b 10/100ms burst=10", .a = "take b key; take b key look cost 0 = used 1",
     .b = "change b 100/100ms burst=10; change b 10/100ms burst=10"}},

    /* An override makes of a bucket of 2 one of 20, and somebody takes 10 before the token that was
     * used becomes one of 20. An override makes a token last for 100 s: two would last for longer
     * than the bucket's slot may be ahead. */
    {WITHOUT(KEEP_BEFORE), {"tokens of an override, kept as if they were older", .stops = 1,
     .before = "add b 2/100ms burst=2 overrides; take b key", .a = "override b key 20 100",
     .b = "take b key rest", .after = "take b key rest"}},
    {WITHOUT(KEEP_MOST), {"more tokens kept than the bucket holds",
     .before = "add b 2/100s burst=2 overrides; take b key x2",
     .a = "override b key 1 20000; take b key"}},

    /* ---- Groups ---- */

    /* What goes wrong where one token is taken. */
    {WITHOUT(TAKE_TAG), {"another key's room, a group", .stops = 1,
     .before = SLOT_IS_OVER, .a = "all two key + long h0", .b = "take two other"}},
    {WITHOUT(TAKE_WINDOW), {"window of the last request, a group",
     .before = "take two key; take long h0; turn 10", .a = "all two key + long h0"}},

    /* Two threads see the last token, one of them with another key's, which it has already. */
    {WITHOUT(TAKE_ADDED), {"two threads and one token, a group", .stops = 1,
     .before = "take two key; take long other", .a = "all two key + long other",
     .b = "take two key"}},
    {WITHOUT(PARTS_BACK), {"group keeps what it took", .stops = 1,
     .before = "take two other; take two key", .a = "all two other + two key",
     .b = "take two key"}},
    {WITHOUT(PARTS_BACK), {"group of three keeps what it took", .stops = 1,
     .before = "take long other; take two other; take two key",
     .a = "all long other + two other + two key", .b = "take two key"}},
    {WITHOUT(PARTS_BACK), {"group keeps what it claimed", .stops = 1,
     .before = "take two other", .a = "all two key + two other", .b = "take two other"}},
    {WITHOUT(PARTS_BACK), {"group keeps what it swapped", .stops = 1,
     .before = "take two other; take two key", .a = "all two other long + two key long",
     .b = "take two key"}},
    /* It did not fit when it was looked at, and fits when it is to be refused. */
    {WITHOUT(PARTS_BACK), {"part keeps what it took when it was to be refused", .stops = 1,
     .before = "take two key x2; take once other", .a = "all two key + once other",
     .b = "refund two key 1 of 10 = back 1", .after = "take two key look = counted"}},

    /* Each request of a batch reads its policy anew: one that begins after an override was set is
     * judged by it, though the policy had none when the batch began. */
    {PATCHED("batch-policy"), {"an override amid a batch", .at_instant = true,
     .instant = INSTANT_LOADED, .before = "take long key; take long other",
     .a = "batch long key + long other = yes + no first over",
     .b = "change long 10/100s overrides; override long other 0 100"}},

    /* ---- Stripes ---- */

    /* The window turns while a request goes round: its own stripe had no token left, the next
     * one is in the new window by now. Somebody asks for that one's last token, and then that
     * window is over, too. */
    {PATCHED("stripes-same-window"), {"token of the next window, given back", .stops = 2,
     .before = "take striped key x2", .a = "take striped key",
     .b = "turn 10; take striped key x3",
     .c = "take striped key; turn 20; take striped key"}},

    /* The window turns while a charge goes round, and somebody takes from another stripe in the
     * next one. */
    {WITHOUT(STRIPES_WINDOW), {"tokens of two windows", .stops = 1,
     .a = "take striped key cost 6 charge", .b = "as 3; turn 10; take striped key"}},

    /* All that is left, and somebody takes a token of it meanwhile: some stripes give, and are
     * given back to. */
    {WITHOUT(STRIPES_BACK), {"stripes keep what they gave", .stops = 1,
     .a = "take striped key cost 4", .b = "take striped key"}},

    /* A part of a charge has no slot: it is not told as whole. */
    {WITHOUT(CHARGE_WHOLE), {"charge of which a part has no slot", .on_full = STINT_FULL_ADMIT,
     .before = "hold 3", .a = "as 3; take striped key cost 3 charge = untracked granted 2"}},

    /* ---- Overrides ---- */

    /* What is set holds for whoever comes after. */
    {WITHOUT(OVERRIDE_SEEN), {"token that asks nobody",
     .a = "take ruled key; override ruled key 1 900; take ruled key cost 1 = no; clear ruled key"}},
    {WITHOUT(OVERRIDE_FILTER), {"override that no filter tells of",
     .a = "take ruled key; override ruled key 1 900; take ruled key cost 1 = no; clear ruled key"}},

    /* Whoever looks at the key's override, which takes nothing away, sleeps. It is over, and
     * another key that is refused all gets its slot. The long way: the short one looks again
     * before it refuses. */
    {WITHOUT(OVERRIDE_TAG), {"another key's override", .stops = 1,
     .before = "take ruled key; hold 2; override ruled key 2 5", .a = "take ruled key long = yes",
     .b = "turn 6006; override ruled other 0 6900"}},
    {WITHOUT(OVERRIDE_STATE), {"another key's override, late", .stops = 1,
     .before = "take ruled key; hold 2; override ruled key 2 5", .a = "take ruled key long = yes",
     .b = "turn 6006; override ruled other 0 6900"}},

    /* An override is set while its policy is replaced. One that is set and lifted again and again
     * leaves no tombstones: others find a slot. */
    {PATCHED("override-traits"), {"override of a policy that is replaced", .stops = 1,
     .of_policies = true, .before = "add r 2/100ms overrides", .a = "override r key 1 20",
     .b = "apply 2/250ms name=r overrides"}},
    {PATCHED("lifted-tombstone"), {"override that is set and lifted",
     .a = "override ruled key 1 9; clear ruled key; override ruled key 1 9; clear ruled key;"
          "override ruled key 1 9; clear ruled key; override ruled key 1 9; clear ruled key;"
          "take two other = placed"}},
};
/* clang-format on */
const unsigned story_count = sizeof(stories) / sizeof(stories[0]);
