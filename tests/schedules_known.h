/* SPDX-License-Identifier: MIT
 * Known mistakes and the pairs of calls that show them, with the fewest preemptions: the guard
 * that is taken away; preemptions; policy, table and the two calls, by their places in the
 * tables of schedules.c (test-every-schedule --mistakes). */

/* policy plain, a new table: take in the next window | take: no order of these calls gives these
 * answers */
KNOWN(TAKE_WINDOW, 0, 0, 0, 10, 0)
/* policy plain, a new table: take in the next window | take: I1: the end of a slot has fallen */
KNOWN(HINT_WINDOW, 0, 0, 0, 10, 0)
/* policy plain, a new table: take 2 | take 2: no order of these calls gives these answers */
KNOWN(TAKE_ROOM, 0, 0, 0, 1, 1)
/* policy plain, one token used: take 2 | take: no order of these calls gives these answers */
KNOWN(TAKE_ADDED, 1, 0, 4, 1, 0)
/* policy striped, one token left: take 2 | take: no order of these calls gives these answers */
KNOWN(STRIPE_ROOM, 0, 10, 5, 1, 0)
/* policy striped, one token left: take | take: no order of these calls gives these answers */
KNOWN(STRIPE_ADDED, 1, 10, 5, 0, 0)
/* policy smooth, a table whose last slot falls free: another key's take | take in the next
 * window: no order of these calls gives these answers */
KNOWN(REUSE_CARRIES, 0, 6, 1, 19, 10)
/* policy plain, a table whose last slot falls free: take | take: no order of these calls gives
 * these answers */
KNOWN(FULL_AGAIN, 1, 0, 1, 0, 0)
/* policy plain, a new table: take in the next window | take: no order of these calls gives these
 * answers */
KNOWN(FOUND_PENDING, 1, 0, 0, 10, 0)
/* policy plain, a new table: take 2 | take: no order of these calls gives these answers */
KNOWN(JUDGE_ROOM, 0, 0, 0, 1, 0)
/* policy plain, a new table: take 2 | take: no order of these calls gives these answers */
KNOWN(FOUND_MARK, 0, 0, 0, 1, 0)
/* policy plain, one token used: take 2 | take: no order of these calls gives these answers */
KNOWN(ADDED_ROOM, 1, 0, 4, 1, 0)
/* policy plain, a table whose slots are all over: another key's take | take in the next window:
 * no order of these calls gives these answers */
KNOWN(WATERMARK_RAISE, 0, 0, 2, 19, 10)
