/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * What a decision means, case by case: windows, costs, options, refunds, first refusals, and what
 * a clock that goes back does. */
#include "kinds.h"
#include "script.h"
#include "told.h"

/* ---- A policy, and steps with what each must say ------------------------------------------- */

#define LATE (UINT64_C(18446740000) * SECOND)

/* clang-format off */
static const struct script scripts[] = {
    /* dotnet/runtime#92557, fastify/fastify-rate-limit#324, bucket4j/bucket4j#100 */
    {"a fresh window at the very nanosecond", policy(W, .limit = 2), {
        ok(T0, 1, 0, 0, 0, 2, 1, 1, E),
        ok(T0 + 1, 1, 0, 0, 0, 2, 2, 1, E),
        no(T0 + 2, 1, 0, 0, FIRST, 2, 2, E, W - 2),
        no(E - 1, 1, 0, 0, 0, 2, 2, E, 1),
        ok(E, 1, 0, 0, 0, 2, 1, 1, E2),
        ok(E + 1, 1, 0, 0, 0, 2, 2, 1, E2),
        no(E2 - 1, 1, 0, 0, FIRST, 2, 2, E2, 1),
        ok(E2, 2, 0, 0, 0, 2, 2, 2, E2 + W)}},
    {"a positive start", policy(W, .limit = 1, .start = (int64_t)(T0 - DAY + 10 * SECOND)), {
        ok(T0, 1, 0, 0, 0, 1, 1, 1, T0 + 10 * SECOND),
        no(T0 + 10 * SECOND - 1, 1, 0, 0, FIRST, 1, 1, T0 + 10 * SECOND, 1),
        ok(T0 + 10 * SECOND, 1, 0, 0, 0, 1, 1, 1, T0 + 70 * SECOND)}},
    {"a negative start", policy(HOUR, .limit = 1, .start = -(int64_t)(10 * MS)), {
        ok(T0, 1, 0, 0, 0, 1, 1, 1, T0 + HOUR - 10 * MS),
        no(T0 + HOUR - 10 * MS - 1, 1, 0, 0, FIRST, 1, 1, T0 + HOUR - 10 * MS, 1),
        ok(T0 + HOUR - 10 * MS, 1, 0, 0, 0, 1, 1, 1, T0 + 2 * HOUR - 10 * MS)}},
    {"a start in the future",
     policy(HOUR, .limit = 1, .start = (int64_t)(T0 + 1000 * DAY + 20 * MS)), {
        ok(T0, 1, 0, 0, 0, 1, 1, 1, T0 + 20 * MS),
        ok(T0 + 20 * MS, 1, 0, 0, 0, 1, 1, 1, T0 + HOUR + 20 * MS),
        no(T0 + HOUR, 1, 0, 0, FIRST, 1, 1, T0 + HOUR + 20 * MS, 20 * MS)}},
    {"the first nanosecond of time", policy(100 * MS, .limit = 1, .start = 30 * 1000000), {
        ok(1, 1, 0, 0, 0, 1, 1, 1, 30 * MS),
        no(30 * MS - 1, 1, 0, 0, FIRST, 1, 1, 30 * MS, 1),
        ok(30 * MS, 1, 0, 0, 0, 1, 1, 1, 130 * MS)}},
    {"the year 2554", policy(HOUR, .limit = 1), {
        ok(LATE, 1, 0, 0, 0, 1, 1, 1, LATE + (HOUR - LATE % HOUR)),
        no(LATE + 1, 1, 0, 0, FIRST, 1, 1, LATE + (HOUR - LATE % HOUR), HOUR - LATE % HOUR - 1)}},
    {"the earliest start there is",
     policy(DAY, .limit = 1, .start = -INT64_C(9223372036850000000)), {
        ok(T0, 1, 0, 0, 0, 1, 1, 1, T0 - (T0 + UINT64_C(9223372036850000000)) % DAY + DAY)}},
    {"the latest start there is", policy(DAY, .limit = 1, .start = INT64_C(9223372036850000000)), {
        ok(T0, 1, 0, 0, 0, 1, 1, 1, T0 + (UINT64_C(9223372036850000000) - T0) % DAY)}},
    {"a window of 10 ms", policy(10 * MS, .limit = 1), {
        ok(T0, 1, 0, 0, 0, 1, 1, 1, T0 + 10 * MS),
        no(T0 + 10 * MS - 1, 1, 0, 0, FIRST, 1, 1, T0 + 10 * MS, 1),
        ok(T0 + 10 * MS, 1, 0, 0, 0, 1, 1, 1, T0 + 20 * MS),
        ok(T0 + 30 * MS, 1, 0, 0, 0, 1, 1, 1, T0 + 40 * MS)}},
    {"a window of 366 days", policy(366 * DAY, .limit = 3, .start = (int64_t)T0), {
        ok(T0, 2, 0, 0, 0, 3, 2, 2, T0 + 366 * DAY),
        no(T0 + 1, 2, 0, 0, FIRST, 3, 2, T0 + 366 * DAY, 366 * DAY - 1),
        ok(T0 + 366 * DAY - 1, 1, 0, 0, 0, 3, 3, 1, T0 + 366 * DAY),
        ok(T0 + 366 * DAY, 3, 0, 0, 0, 3, 3, 3, T0 + 732 * DAY)}},
    /* alisaifee/limits#151 */
    {"costs", policy(W, .limit = 10), {
        ok(T0, 0, 0, 0, 0, 10, 0, 0, E),
        ok(T0, 7, 0, 0, 0, 10, 7, 7, E),
        no(T0, 4, 0, 0, FIRST, 10, 7, E, W),
        no(T0, 10, 0, 0, 0, 10, 7, E, W),
        no(T0, 11, 0, 0, 0, 10, 7, E, STINT_NEVER),
        no(T0, UINT32_MAX, 0, 0, 0, 10, 7, E, STINT_NEVER),
        ok(T0, 3, 0, 0, 0, 10, 10, 3, E),
        ok(T0, 0, 0, 0, 0, 10, 10, 0, E),
        ok(E, 10, 0, 0, 0, 10, 10, 10, E2)}},
    {"a cost that can never fit, of a key not seen before", policy(W, .limit = 10), {
        no(T0, 11, 0, 0, FIRST, 10, 0, E, STINT_NEVER),
        no(T0, 11, 0, 0, 0, 10, 0, E, STINT_NEVER),
        ok(T0, 10, 0, 0, 0, 10, 10, 10, E),
        no(T0, 1, 0, 0, 0, 10, 10, E, W)}},
    {"the largest limit", policy(W, .limit = MOST), {
        ok(T0, MOST - 1, 0, 0, 0, MOST, MOST - 1, MOST - 1, E),
        no(T0, 2, 0, 0, FIRST, MOST, MOST - 1, E, W),
        ok(T0, 1, 0, 0, 0, MOST, MOST, 1, E),
        no(T0, 1, 0, 0, 0, MOST, MOST, E, W),
        no(T0, MOST, 0, 0, 0, MOST, MOST, E, W),
        no(T0, MOST + 1u, 0, 0, 0, MOST, MOST, E, STINT_NEVER),
        no(T0, UINT32_MAX, 0, 0, 0, MOST, MOST, E, STINT_NEVER),
        ok(E, 1, 0, 0, 0, MOST, 1, 1, E2)}},
    {"cost 0 neither turns nor creates a slot", policy(W, .limit = 2), {
        ok(T0, 0, 0, 0, 0, 2, 0, 0, E),
        ok(T0, 2, 0, 0, 0, 2, 2, 2, E),
        ok(E, 0, 0, 0, 0, 2, 0, 0, E2),
        /* a late caller still finds the window before */
        no(E - 1, 1, 0, 0, FIRST, 2, 2, E, 1)}},
    {"cost 0 is refused when more is used than the limit", policy(W, .limit = 9), {
        ok(T0, 5, 0, 0, 0, 9, 5, 5, E),
        change(5, 0, 0),
        ok(T0, 0, 0, 0, 0, 5, 5, 0, E),
        change(4, 0, 0),
        no(T0, 0, 0, 0, FIRST, 4, 5, E, W),
        no(T0, 0, 0, 0, 0, 4, 5, E, W),
        ok(E, 0, 0, 0, 0, 4, 0, 0, E2)}},
    {"PARTIAL", policy(W, .limit = 10), {
        ok(T0, 4, 0, PARTIAL, 0, 10, 4, 4, E),
        ok(T0, 20, 0, PARTIAL, 0, 10, 10, 6, E),
        no(T0, 5, 0, PARTIAL, FIRST, 10, 10, E, W),
        ok(T0, 0, 0, PARTIAL, 0, 10, 10, 0, E),
        ok(E, 11, 0, PARTIAL, 0, 10, 10, 10, E2),
        no(E, 1, 0, 0, FIRST, 10, 10, E2, W)}},
    /* resilience4j/resilience4j#1228 */
    {"DRAIN", policy(W, .limit = 10), {
        ok(T0, 4, 0, DRAIN, 0, 10, 4, 4, E),
        no(T0, 7, 0, DRAIN, FIRST, 10, 10, E, W),
        no(T0, 1, 0, 0, 0, 10, 10, E, W),
        no(T0, 1, 0, DRAIN, 0, 10, 10, E, W),
        ok(E, 1, 0, 0, 0, 10, 1, 1, E2)}},
    {"DRAIN of a key not seen before", policy(W, .limit = 10), {
        no(T0, 11, 0, DRAIN, FIRST, 10, 10, E, STINT_NEVER),
        no(T0, 1, 0, 0, 0, 10, 10, E, W)}},
    {"DRAIN never lowers what is used", policy(W, .limit = 10), {
        ok(T0, 8, 0, 0, 0, 10, 8, 8, E),
        change(5, 0, 0),
        no(T0, 1, 0, DRAIN, FIRST, 5, 8, E, W),
        change(9, 0, 0),
        ok(T0, 1, 0, 0, 0, 9, 9, 1, E)}},
    {"DRAIN with PARTIAL takes what is left, else drains", policy(W, .limit = 10), {
        ok(T0, 12, 6, PARTIAL | DRAIN, 0, 6, 6, 6, E),
        no(T0, 1, 6, PARTIAL | DRAIN, FIRST, 6, 6, E, W),
        ok(T0, 4, 0, 0, 0, 10, 10, 4, E)}},
    {"DRAIN drains to this call's own limit", policy(W, .limit = 10), {
        no(T0, 7, 6, DRAIN, FIRST, 6, 6, E, STINT_NEVER),
        ok(T0, 4, 0, 0, 0, 10, 10, 4, E)}},
    {"PEEK", policy(W, .limit = 10), {
        ok(T0, 4, 0, PEEK, 0, 10, 0, 0, E),
        no(T0, 11, 0, PEEK, 0, 10, 0, E, STINT_NEVER),
        ok(T0, 4, 0, 0, 0, 10, 4, 4, E),
        ok(T0, 6, 0, PEEK, 0, 10, 4, 0, E),
        no(T0, 7, 0, PEEK, 0, 10, 4, E, W),
        ok(T0, 7, 0, PEEK | PARTIAL, 0, 10, 4, 0, E),
        no(T0, 7, 0, PEEK | DRAIN, 0, 10, 4, E, W),
        ok(T0, 6, 0, 0, 0, 10, 10, 6, E),
        no(T0, 1, 0, PEEK | PARTIAL, 0, 10, 10, E, W),
        ok(T0, 0, 0, PEEK, 0, 10, 10, 0, E),
        ok(E, 10, 0, PEEK, 0, 10, 0, 0, E2),
        /* the look did not turn the slot */
        no(E - 1, 1, 0, 0, FIRST, 10, 10, E, 1)}},
    {"a limit of this call's own", policy(W, .limit = 10), {
        ok(T0, 5, 5, 0, 0, 5, 5, 5, E),
        no(T0, 1, 5, 0, FIRST, 5, 5, E, W),
        ok(T0, 5, 0, 0, 0, 10, 10, 5, E),
        ok(T0, 5, 15, 0, 0, 15, 15, 5, E),
        no(T0, 1, 0, 0, 0, 10, 15, E, W),
        no(T0, 0, 14, 0, 0, 14, 15, E, W),
        ok(T0, 0, 15, 0, 0, 15, 15, 0, E),
        no(T0, 16, 15, 0, 0, 15, 15, E, STINT_NEVER),
        ok(T0, 1, MOST, 0, 0, MOST, 16, 1, E),
        ok(T0, 1, MOST + 1u, 0, 0, MOST, 17, 1, E),
        ok(T0, 1, UINT32_MAX, 0, 0, MOST, 18, 1, E),
        no(T0, UINT32_MAX, UINT32_MAX, 0, 0, MOST, 18, E, STINT_NEVER),
        ok(T0, MOST, UINT32_MAX, PARTIAL, 0, MOST, MOST, MOST - 18, E),
        no(T0, 1, 1, 0, 0, 1, MOST, E, W)}},
    {"COUNT_REFUSED", policy(W, .limit = 3, .flags = STINT_COUNT_REFUSED), {
        ok(T0, 2, 0, 0, 0, 3, 2, 2, E),
        no(T0, 2, 0, 0, FIRST, 3, 4, E, W),
        no(T0, 1, 0, 0, 0, 3, 5, E, W),
        no(T0, 1, 0, PEEK, 0, 3, 5, E, W),
        no(T0, 1, 0, PARTIAL, 0, 3, 6, E, W),
        no(T0, 0, 0, 0, 0, 3, 6, E, W),
        no(T0, 4, 0, 0, 0, 3, 10, E, STINT_NEVER),
        no(T0, MOST, 0, 0, 0, 3, MOST, E, STINT_NEVER),
        no(T0, 1, 0, 0, 0, 3, MOST, E, W),
        no(T0, UINT32_MAX, 0, 0, 0, 3, MOST, E, STINT_NEVER),
        no(E - 1, 1, 0, 0, 0, 3, MOST, E, 1),
        ok(E, 3, 0, 0, 0, 3, 3, 3, E2)}},
    {"refund: to a window that is over by the clock, while the key is in it",
     policy(W, .limit = 10, .capacity = 20), {
        ok(T0, 20, 0, 0, 0, 20, 20, 20, E),
        no(E, 11, 0, PEEK, 0, 20, 10, E2, W),
        refund(4, E, 4),
        ok(E, 14, 0, 0, 0, 20, 20, 14, E2),
        refund(4, E, 0)}},
    {"COUNT_REFUSED of a key not seen before",
     policy(W, .limit = 3, .flags = STINT_COUNT_REFUSED), {
        no(T0, UINT32_MAX, 0, 0, FIRST, 3, MOST, E, STINT_NEVER),
        no(T0, 1, 0, 0, 0, 3, MOST, E, W),
        no(E, 4, 0, 0, FIRST, 3, 4, E2, STINT_NEVER)}},
    {"COUNT_REFUSED with DRAIN drains, then counts",
     policy(W, .limit = 10, .flags = STINT_COUNT_REFUSED), {
        ok(T0, 4, 0, 0, 0, 10, 4, 4, E),
        no(T0, 7, 0, DRAIN, FIRST, 10, 17, E, W),
        no(T0, 1, 0, DRAIN, 0, 10, 18, E, W)}},
    {"SHADOW", policy(W, .limit = 2, .flags = STINT_SHADOW), {
        ok(T0, 2, 0, 0, 0, 2, 2, 2, E),
        wait(T0, 1, 0, FIRST | SHADOWED, 2, 2, 0, E, W),
        wait(T0 + 1, 1, 0, SHADOWED, 2, 2, 0, E, W - 1),
        wait(T0, 3, 0, SHADOWED, 2, 2, 0, E, STINT_NEVER),
        wait(T0, 1, PEEK, SHADOWED, 2, 2, 0, E, W),
        wait(T0, 1, PARTIAL, SHADOWED, 2, 2, 0, E, W),
        ok(E, 1, 0, 0, 0, 2, 1, 1, E2),
        wait(E, 2, DRAIN, FIRST | SHADOWED, 2, 2, 0, E2, W),
        wait(E, 1, 0, SHADOWED, 2, 2, 0, E2, W)}},
    {"SHADOW with COUNT_REFUSED",
     policy(W, .limit = 2, .flags = STINT_SHADOW | STINT_COUNT_REFUSED), {
        wait(T0, 3, PEEK, SHADOWED, 2, 0, 0, E, STINT_NEVER),
        wait(T0, 3, 0, FIRST | SHADOWED, 2, 3, 0, E, STINT_NEVER),
        wait(T0, 1, 0, SHADOWED, 2, 4, 0, E, W)}},
    {"flags change at once", policy(W, .limit = 1), {
        ok(T0, 1, 0, 0, 0, 1, 1, 1, E),
        no(T0, 1, 0, 0, FIRST, 1, 1, E, W),
        flags(STINT_SHADOW),
        wait(T0, 1, 0, SHADOWED, 1, 1, 0, E, W),
        flags(STINT_COUNT_REFUSED),
        no(T0, 1, 0, 0, 0, 1, 2, E, W),
        flags(0),
        no(T0, 1, 0, 0, 0, 1, 2, E, W)}},
    /* resilience4j/resilience4j#1073, resilience4j/resilience4j#2489, mailgun/gubernator#40 */
    {"the limit changes at once, up and down", policy(W, .limit = 10), {
        ok(T0, 10, 0, 0, 0, 10, 10, 10, E),
        change(25, 0, 0),
        ok(T0, 1, 0, PEEK, 0, 25, 10, 0, E),
        ok(T0, 15, 0, 0, 0, 25, 25, 15, E),
        change(5, 0, 0),
        no(T0, 1, 0, 0, FIRST, 5, 25, E, W),
        no(T0, 6, 0, 0, 0, 5, 25, E, STINT_NEVER),
        change(26, 0, 0),
        ok(T0, 1, 0, 0, 0, 26, 26, 1, E),
        change(MOST, 0, 0),
        ok(T0, MOST - 26, 0, 0, 0, MOST, MOST, MOST - 26, E),
        change(1, 0, 0),
        ok(E, 1, 0, 0, 0, 1, 1, 1, E2),
        no(E, 1, 0, 0, FIRST, 1, 1, E2, W)}},
    /* Instawork/llm-proxy#40, laravel/framework#56656 */
    {"a refund gives back what was taken", policy(W, .limit = 10), {
        ok(T0, 6, 0, 0, 0, 10, 6, 6, E),
        refund(2, E, 2),
        ok(T0, 1, 0, PEEK, 0, 10, 4, 0, E),
        refund(0, E, 0),
        refund(2, E2, 0),
        refund(2, T0, 0),
        refund(2, 0, 0),
        ok(T0, 6, 0, 0, 0, 10, 10, 6, E),
        refund(11, E, 10),
        refund(1, E, 0),
        ok(T0, 10, 0, 0, 0, 10, 10, 10, E),
        refund(UINT32_MAX, E, 10),
        ok(T0, 10, 0, 0, 0, 10, 10, 10, E)}},
    /* Instawork/llm-proxy#40 */
    {"a refund to a window that is over is nothing", policy(W, .limit = 10), {
        ok(T0, 6, 0, 0, 0, 10, 6, 6, E),
        ok(E, 6, 0, 0, 0, 10, 6, 6, E2),
        refund(6, E, 0),
        ok(E, 1, 0, PEEK, 0, 10, 6, 0, E2),
        refund(6, E2, 6),
        refund(6, E2, 0)}},
    {"a refund after the limit was lowered", policy(W, .limit = 10), {
        ok(T0, 10, 0, 0, 0, 10, 10, 10, E),
        change(4, 0, 0),
        refund(1, E, 1), /* 10 were granted: 9 are left, not 3 */
        no(T0, 1, 0, 0, FIRST, 4, 9, E, W),
        refund(6, E, 6),
        ok(T0, 1, 0, 0, 0, 4, 4, 1, E),
        change(2, 0, 0),
        refund(9, E, 4),
        ok(T0, 2, 0, 0, 0, 2, 2, 2, E)}},
    {"a refund after a larger limit of a call's own", policy(W, .limit = 4), {
        ok(T0, 9, 10, 0, 0, 10, 9, 9, E),
        refund(1, E, 1),
        no(T0, 1, 0, 0, FIRST, 4, 8, E, W),
        ok(T0, 2, 10, 0, 0, 10, 10, 2, E)}},
    {"a refund of counted refusals", policy(W, .limit = 4, .flags = STINT_COUNT_REFUSED), {
        ok(T0, 4, 0, 0, 0, 4, 4, 4, E),
        no(T0, 4, 0, 0, FIRST, 4, 8, E, W),
        refund(1, E, 1),
        no(T0, 0, 0, 0, 0, 4, 7, E, W),
        refund(3, E, 3),
        ok(T0, 0, 0, 0, 0, 4, 4, 0, E)}},
    {"a refund to a key that was never seen", policy(W, .limit = 4), {
        refund(1, E, 0),
        ok(T0, 4, 0, 0, 0, 4, 4, 4, E)}},
    {"a reset", policy(W, .limit = 2), {
        reset(),
        ok(T0, 2, 0, 0, 0, 2, 2, 2, E),
        reset(),
        ok(T0, 0, 0, PEEK, 0, 2, 0, 0, E),
        ok(T0, 2, 0, 0, 0, 2, 2, 2, E),
        no(T0, 1, 0, 0, FIRST, 2, 2, E, W),
        reset(),
        reset(),
        refund(2, E, 0),
        ok(T0, 2, 0, 0, 0, 2, 2, 2, E),
        no(T0, 1, 0, 0, FIRST, 2, 2, E, W),
        ok(E, 1, 0, 0, 0, 2, 1, 1, E2)}},
    {"the first refusal is one, whatever happens in the window", policy(W, .limit = 1), {
        ok(T0, 1, 0, 0, 0, 1, 1, 1, E),
        no(T0, 1, 0, PEEK, 0, 1, 1, E, W),
        no(T0, 1, 0, 0, FIRST, 1, 1, E, W),
        refund(1, E, 1),
        ok(T0, 1, 0, 0, 0, 1, 1, 1, E),
        no(T0, 1, 0, 0, 0, 1, 1, E, W),
        reset(),
        no(T0, 2, 0, 0, FIRST, 1, 0, E, STINT_NEVER),
        ok(T0, 1, 0, 0, 0, 1, 1, 1, E),
        no(E - 1, 1, 0, DRAIN, 0, 1, 1, E, 1),
        no(E, 2, 0, PEEK, 0, 1, 0, E2, STINT_NEVER),
        no(E, 2, 0, 0, FIRST, 1, 0, E2, STINT_NEVER),
        no(E, 2, 0, 0, 0, 1, 0, E2, STINT_NEVER),
        ok(E, 1, 0, 0, 0, 1, 1, 1, E2),
        no(E, 1, 0, 0, 0, 1, 1, E2, W)}},
    /* chatmail/filtermail#167 */
    {"a late caller joins the newer window", policy(W, .limit = 3), {
        ok(E, 1, 0, 0, 0, 3, 1, 1, E2),
        ok(E - 1, 1, 0, 0, 0, 3, 2, 1, E2),
        ok(T0, 1, 0, 0, 0, 3, 3, 1, E2),
        no(T0, 1, 0, 0, FIRST, 3, 3, E2, 2 * W),
        no(T0, 4, 0, 0, 0, 3, 3, E2, STINT_NEVER),
        no(T0, 1, 0, PEEK, 0, 3, 3, E2, 2 * W),
        refund(1, E2, 1),
        ok(T0, 1, 0, 0, 0, 3, 3, 1, E2)}},
    {"promise H: a caller that is hours late", policy(W, .limit = 2), {
        ok(T0, 1, 0, 0, 0, 2, 1, 1, E),
        ok(T0 - 3 * HOUR, 1, 0, 0, 0, 2, 2, 1, E),
        no(T0 - 3 * HOUR, 1, 0, 0, FIRST, 2, 2, E, W),
        no(T0 - 300 * DAY, 1, 0, 0, 0, 2, 2, E, W),
        no(T0, 1, 0, 0, 0, 2, 2, E, W)}},
};
/* clang-format on */

TEST(test_scripts) {
    size_t verdicts = play_scripts(scripts, sizeof scripts / sizeof scripts[0]);
    print_message("%zu verdicts\n", verdicts);
}

/* ---- A clock that goes back ---------------------------------------------------------------- */

static struct stint_verdict take_one(struct stint_limiter *limiter, uint32_t id, stint_key key,
                                     uint64_t now) {
    struct stint_verdict v;
    memset(&v, 0xa5, sizeof v);
    bool allowed = stint_take(limiter, id, key, 1, now, &v);
    assert_int_equal(allowed, v.allowed);
    return v;
}

/* Who is later than the window and 60 s is decided at the time of the clock, also by the first
 * request of a key, if others have shown that time. */
TEST(test_late_without_a_slot) {
    static const uint64_t lates[] = {2 * HOUR, 62 * MINUTE, 3 * MINUTE, 30 * DAY};
    enum { TAKE, DECIDE_3, REFUSED, BATCH, ALL, CALLS };
    struct stint_limiter *limiter = open_limiter(1000, STINT_FULL_ADMIT);
    add_kinds(limiter, KINDS);
    test_time = T0 + 40 * DAY + 17 * SECOND;
    uint64_t number = 0;
    assert_true(take_one(limiter, PLAIN, number_key(limiter, number++), STINT_NOW).allowed);
    for (uint32_t i = 0; i < sizeof lates / sizeof lates[0] * KINDS * CALLS; i++) {
        const uint32_t id = i / CALLS % KINDS, call = i % CALLS;
        const uint64_t late = lates[i / CALLS / KINDS], now = test_time - late;
        const bool shadow = id == SHADOWING && call == REFUSED;
        struct stint_request request = {.key = number_key(limiter, number++),
                                        .policy = id,
                                        .cost = call == DECIDE_3  ? 3
                                                : call == REFUSED ? 100
                                                                  : 1};
        struct stint_verdict v;
        if (call == TAKE)
            stint_take(limiter, id, request.key, 1, now, &v);
        else if (call == BATCH)
            stint_decide_batch(limiter, &request, 1, now, &v);
        else if (call == ALL)
            stint_decide_all(limiter, &request, 1, now, &v);
        else
            stint_decide(limiter, &request, now, &v);
        assert_int_equal(v.flags, (call == REFUSED ? FIRST : 0) | (shadow ? SHADOWED : 0));
        if (call == ALL) { /* it looks, then takes: the clock has moved between its readings */
            assert_in_range(v.window - v.reset_after, test_time,
                            test_time + READINGS_MOST * test_step);
            test_time = v.window - v.reset_after;
        }
        struct stint_verdict look = ask(limiter, id, request.key, 0, PEEK);
        if (v.window != look.window || v.reset_after != v.window - test_time)
            fail_msg("%s, call %" PRIu32 ", late by %" PRIu64 " s: window ends %" PRId64
                     " s after the clock, %" PRIu64 " s after now",
                     kind_names[id], call, late / SECOND,
                     ((int64_t)v.window - (int64_t)test_time) / (int64_t)SECOND,
                     v.reset_after / SECOND);
        /* The first refusal has a slot, too. */
        assert_int_equal(look.used, call != REFUSED || id == COUNTING ? request.cost : 0);
    }
    assert_int_equal(get_stats(limiter).clock_steps, 0);
    stint_close(limiter);
}

/* Promise A: a late caller never opens a window again whose slot other keys may have taken. */
TEST(test_lost_window_stays_over) {
    for (uint64_t others = 0; others < 4; others++) {
        test_time = T0;
        struct stint_limiter *limiter = open_limiter(2, STINT_FULL_ADMIT);
        uint32_t id = add_policy(limiter, "p", 1, SECOND, 0, 0);
        stint_key key = number_key(limiter, 100);
        assert_true(take_one(limiter, id, key, T0).allowed);
        test_time = T0 + SECOND;
        for (uint64_t k = 0; k < others; k++)
            assert_true(take_one(limiter, id, number_key(limiter, k), test_time).allowed);
        struct stint_verdict v = take_one(limiter, id, key, T0 + 5);
        if (v.window == T0 + SECOND)
            assert_false(v.allowed);
        else
            assert_true(v.window == T0 + 2 * SECOND);
        assert_int_equal(v.flags & STINT_UNTRACKED, 0);
        stint_close(limiter);
    }
}

/* ---- 33 bits of ticks ---------------------------------------------------------------------- */

#define WRAP (STINT_TICK_NS << 33)

/* A refund by window 0 gives nothing back, not even of the windows whose id is 0. */
TEST(test_window_of_id_0) {
    const uint64_t end = 21 * WRAP;
    struct stint_limiter *limiter = open_limiter(100, STINT_FULL_ADMIT);
    uint32_t id = add_policy(limiter, "p", 3, SECOND, (int64_t)end, 0);
    stint_key key = number_key(limiter, 1);
    test_time = end - 1;
    assert_true(take_one(limiter, id, key, STINT_NOW).window == end);
    assert_int_equal(refund_by(limiter, id, key, 1, 0), 0);
    assert_int_equal(used_of(limiter, id, key), 1);
    assert_int_equal(refund_by(limiter, id, key, 1, end), 1);
    stint_close(limiter);
}
