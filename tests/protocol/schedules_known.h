/* SPDX-License-Identifier: MIT
 * Known mistakes and calls that show them, with the fewest preemptions: the guard that is taken
 * away; preemptions; policy and table; threads, calls of each, and these; all by their places in
 * the tables of schedules.c (test-every-schedule --mistakes). */

/* policy plain, a new table: take in the next window | take: no order of these calls gives these
 * answers */
KNOWN(TAKE_WINDOW, 0, 0, 0, 2, 1, {10}, {0})
/* policy plain, a new table: take in the next window | take: I1: the end of a slot has fallen */
KNOWN(HINT_WINDOW, 0, 0, 0, 2, 1, {10}, {0})
/* policy plain, a new table: take 2 | take 2: no order of these calls gives these answers */
KNOWN(TAKE_ROOM, 0, 0, 0, 2, 1, {1}, {1})
/* policy plain, one token used: take 2 | take: no order of these calls gives these answers */
KNOWN(TAKE_ADDED, 1, 0, 4, 2, 1, {1}, {0})
/* policy smooth, a table whose last slot falls free: another key's take | take in the next
 * window: no order of these calls gives these answers */
KNOWN(REUSE_CARRIES, 0, 6, 1, 2, 1, {19}, {10})
/* policy plain, a table whose last slot falls free: take | take: no order of these calls gives
 * these answers */
KNOWN(FULL_AGAIN, 1, 0, 1, 2, 1, {0}, {0})
/* policy plain, a new table: take in the next window | take: no order of these calls gives these
 * answers */
KNOWN(FOUND_PENDING, 1, 0, 0, 2, 1, {10}, {0})
/* policy plain, a new table: take 2 | take: no order of these calls gives these answers */
KNOWN(JUDGE_ROOM, 0, 0, 0, 2, 1, {1}, {0})
/* policy plain, a new table: take 2 | take: no order of these calls gives these answers */
KNOWN(FOUND_MARK, 0, 0, 0, 2, 1, {1}, {0})
/* policy plain, a table whose slots are all over: another key's take | take in the next window:
 * no order of these calls gives these answers */
KNOWN(WATERMARK_RAISE, 0, 0, 2, 2, 1, {19}, {10})
/* policy first, a new table: look | take: no order of these calls gives these answers */
KNOWN(KEY_PENDING, 1, 7, 0, 2, 1, {7}, {0})
/* policy carries, a table whose slots are all over: all of two | take in the next window: I3: a
 * key has two committed slots */
KNOWN(PENDING, 1, 4, 2, 2, 1, {23}, {10})
/* policy plain, a new table: take in the next window | take: I7: a slot's window begins later
 * than was told */
KNOWN(LATEST_RAISE, 0, 0, 0, 2, 1, {10}, {0})
/* policy overrides, a table whose slots are all over: override of 2 | take up to 3: no order of
 * these calls gives these answers */
KNOWN(OVERRIDE_SEEN, 0, 12, 2, 2, 1, {24}, {2})
/* policy overrides, a table whose last slot falls free: override of 0 | refund 1: no order of
 * these calls gives these answers */
KNOWN(OVERRIDE_FILTER, 0, 12, 1, 2, 1, {26}, {14})
/* policy smooth, a second policy that is used up: refund 3 | late take | take by a limit of 2: I1:
 * the end of a slot has fallen */
KNOWN(REFUND_ZERO, 0, 6, 9, 3, 1, {15}, {12}, {4})
/* policy shadow, a key whose window is over: refund 3 | take: no order of these calls gives these
 * answers */
KNOWN(REFUND_WINDOW, 0, 2, 8, 2, 1, {15}, {0})
/* policy plain, a table whose slots fall free in the next window: take in the next window | take:
 * I3: a key has two committed slots */
KNOWN(RIVAL_LATER, 2, 0, 11, 2, 1, {10}, {0})
/* policy overrides, a key with an override: remove | take 2: no order of these calls gives these
 * answers */
KNOWN(SWEEP_OVERRIDES, 2, 12, 10, 2, 1, {21}, {1})
