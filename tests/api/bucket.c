/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * Token buckets (stint_policy.burst), case by case: what they grant at once and as they fill, to
 * the ns, and what all that windows know is for them. */
#include "children.h"
#include "kinds.h"
#include "model.h"
#include "script.h"
#include "told.h"

/* ---- Case by case ---------------------------------------------------------------------------- */

#define S     SECOND
#define THIRD UINT64_C(333333334) /* ns of a token by 3 a second */
#define UNTIL (T0 + HOUR)
#define RULED STINT_OVERRIDES

/* A row that no macro of script.h is for. */
#define row(now, cost, limit, flags, allowed, marks, capacity, used, granted, window, retry)       \
    { DECIDE, now, cost, limit, flags, allowed, marks, capacity, used, granted, window, retry, 0 }

/* clang-format off */
static const struct script scripts[] = {
    /* boinkor-net/governor#102, symfony/symfony#47676, symfony/symfony#63492,
     * dragonflydb/dragonfly#1008 */
    {"all of it at once, then a token each T",
     policy(W, .limit = 60, .burst = 3), {
        ok(T0, 1, 0, 0, 0, 3, 1, 1, T0 + S),
        ok(T0, 2, 0, 0, 0, 3, 3, 2, T0 + 3 * S),
        no(T0, 1, 0, 0, FIRST, 3, 3, T0 + 3 * S, S),
        no(T0 + S - 1, 1, 0, 0, 0, 3, 3, T0 + 3 * S, 1),
        ok(T0 + S, 1, 0, 0, 0, 3, 3, 1, T0 + 4 * S),
        ok(T0 + 3500 * MS, 0, 0, PEEK, 0, 3, 1, 0, T0 + 4 * S),
        ok(T0 + 3500 * MS, 2, 0, 0, 0, 3, 3, 2, T0 + 6 * S),
        no(T0 + 3500 * MS, 1, 0, 0, 0, 3, 3, T0 + 6 * S, 500 * MS),
        ok(T0 + 4 * S, 1, 0, 0, 0, 3, 3, 1, T0 + 7 * S),
        ok(T0 + 7 * S, 0, 0, PEEK, 0, 3, 0, 0, T0 + 7 * S),
        ok(T0 + 10 * S, 3, 0, 0, 0, 3, 3, 3, T0 + 13 * S)}},
    {"a token's time is rounded up to a whole ns",
     policy(S, .limit = 3, .burst = 2), {
        ok(T0, 2, 0, 0, 0, 2, 2, 2, T0 + 2 * THIRD),
        no(T0, 1, 0, 0, FIRST, 2, 2, T0 + 2 * THIRD, THIRD),
        no(T0 + THIRD - 1, 1, 0, 0, 0, 2, 2, T0 + 2 * THIRD, 1),
        ok(T0 + THIRD, 1, 0, 0, 0, 2, 2, 1, T0 + 3 * THIRD),
        no(T0 + THIRD + 1, 1, 0, 0, FIRST, 2, 2, T0 + 3 * THIRD, THIRD - 1),
        no(T0 + 2 * THIRD - 1, 1, 0, 0, 0, 2, 2, T0 + 3 * THIRD, 1),
        ok(T0 + 2 * THIRD, 1, 0, 0, 0, 2, 2, 1, T0 + 4 * THIRD)}},
    /* spring-cloud/spring-cloud-gateway#3594, brandur/redis-cell#50 */
    {"10 million a second, and one in 366 days",
     policy(10 * MS, .limit = 100000, .burst = MOST), {
        ok(T0, MOST, 0, 0, 0, MOST, MOST, MOST, T0 + MOST * UINT64_C(100)),
        no(T0, 1, 0, 0, FIRST, MOST, MOST, T0 + MOST * UINT64_C(100), 100),
        no(T0 + 99, 1, 0, 0, 0, MOST, MOST, T0 + MOST * UINT64_C(100), 1),
        no(T0 + 99, MOST + 1u, 0, 0, 0, MOST, MOST, T0 + MOST * UINT64_C(100), STINT_NEVER),
        ok(T0 + 100, 1, 0, 0, 0, MOST, MOST, 1, T0 + (MOST + UINT64_C(1)) * 100)}},
    /* traefik/traefik#5918, spring-cloud/spring-cloud-gateway#2373,
     * get-convex/convex-evals#232 */
    {"one in 366 days", policy(366 * DAY, .limit = 1, .burst = 1), {
        ok(T0, 1, 0, 0, 0, 1, 1, 1, T0 + 366 * DAY),
        no(T0 + 366 * DAY - 1, 1, 0, 0, FIRST, 1, 1, T0 + 366 * DAY, 1),
        ok(T0 + 366 * DAY, 1, 0, 0, 0, 1, 1, 1, T0 + 732 * DAY)}},
    /* google/guava#7130, viafintech/gcra-ruby#11 */
    {"costs", policy(W, .limit = 60, .burst = 10), {
        ok(T0, 0, 0, 0, 0, 10, 0, 0, T0),
        ok(T0, 7, 0, 0, 0, 10, 7, 7, T0 + 7 * S),
        no(T0, 4, 0, 0, FIRST, 10, 7, T0 + 7 * S, S),
        no(T0, 10, 0, 0, 0, 10, 7, T0 + 7 * S, 7 * S),
        no(T0, 11, 0, 0, 0, 10, 7, T0 + 7 * S, STINT_NEVER),
        no(T0, UINT32_MAX, 0, 0, 0, 10, 7, T0 + 7 * S, STINT_NEVER),
        ok(T0, 3, 0, 0, 0, 10, 10, 3, T0 + 10 * S),
        ok(T0, 0, 0, 0, 0, 10, 10, 0, T0 + 10 * S),
        no(T0 + 3 * S - 1, 3, 0, 0, 0, 10, 8, T0 + 10 * S, 1),
        ok(T0 + 3 * S, 3, 0, 0, 0, 10, 10, 3, T0 + 13 * S)}},
    /* redis/redis#15113 */
    {"a cost that can never fit, of a key not seen before", policy(W, .limit = 60, .burst = 10), {
        no(T0, 11, 0, 0, FIRST, 10, 0, T0, STINT_NEVER),
        ok(T0, 10, 0, 0, 0, 10, 10, 10, T0 + 10 * S)}},
    {"PARTIAL", policy(W, .limit = 60, .burst = 10), {
        ok(T0, 4, 0, PARTIAL, 0, 10, 4, 4, T0 + 4 * S),
        ok(T0, 20, 0, PARTIAL, 0, 10, 10, 6, T0 + 10 * S),
        no(T0, 5, 0, PARTIAL, FIRST, 10, 10, T0 + 10 * S, 5 * S),
        ok(T0, 0, 0, PARTIAL, 0, 10, 10, 0, T0 + 10 * S),
        ok(T0 + 2500 * MS, 5, 0, PARTIAL, 0, 10, 10, 2, T0 + 12 * S),
        no(T0 + 2500 * MS, 1, 0, PARTIAL, 0, 10, 10, T0 + 12 * S, 500 * MS)}},
    {"DRAIN", policy(W, .limit = 60, .burst = 10), {
        ok(T0, 4, 0, DRAIN, 0, 10, 4, 4, T0 + 4 * S),
        no(T0, 7, 0, DRAIN, FIRST, 10, 10, T0 + 10 * S, 7 * S),
        no(T0, 1, 0, 0, 0, 10, 10, T0 + 10 * S, S),
        no(T0 + 500 * MS, 1, 0, DRAIN, 0, 10, 10, T0 + 10 * S, 500 * MS),
        no(T0 + 1500 * MS, 2, 0, DRAIN, 0, 10, 10, T0 + 11 * S, 1500 * MS),
        ok(T0 + 2 * S, 1, 0, 0, 0, 10, 10, 1, T0 + 12 * S)}},
    {"DRAIN of a key not seen before", policy(W, .limit = 60, .burst = 10), {
        no(T0, 11, 0, DRAIN, FIRST, 10, 10, T0 + 10 * S, STINT_NEVER),
        no(T0, 1, 0, 0, 0, 10, 10, T0 + 10 * S, S)}},
    {"PEEK", policy(W, .limit = 60, .burst = 10), {
        ok(T0, 4, 0, PEEK, 0, 10, 0, 0, T0),
        no(T0, 11, 0, PEEK, 0, 10, 0, T0, STINT_NEVER),
        ok(T0, 4, 0, 0, 0, 10, 4, 4, T0 + 4 * S),
        ok(T0, 6, 0, PEEK, 0, 10, 4, 0, T0 + 4 * S),
        no(T0, 7, 0, PEEK, 0, 10, 4, T0 + 4 * S, S),
        ok(T0, 7, 0, PEEK | PARTIAL, 0, 10, 4, 0, T0 + 4 * S),
        no(T0, 7, 0, PEEK | DRAIN, 0, 10, 4, T0 + 4 * S, S),
        ok(T0 + 1, 6, 0, PEEK, 0, 10, 4, 0, T0 + 4 * S),
        ok(T0 + 1, 6, 0, 0, 0, 10, 10, 6, T0 + 10 * S)}},
    /* jtesta/ssh-audit#349, ClusterLabs/crmsh#1811, symfony/symfony#64095 */
    {"CHARGE and its look", policy(W, .limit = 60, .burst = 10, .max_reserved = 5), {
        ok(T0, 8, 0, CHARGE, 0, 10, 8, 8, T0 + 8 * S),
        ok(T0, 2, 0, LOOK, 0, 10, 8, 0, T0 + 8 * S),
        ok(T0, 9, 0, CHARGE, 0, 10, 15, 7, T0 + 15 * S),
        no(T0, 1, 0, LOOK, FIRST, 10, 15, T0 + 15 * S, 6 * S),
        no(T0, 0, 0, LOOK, 0, 10, 15, T0 + 15 * S, 5 * S),
        ok(T0, 1, 0, CHARGE, 0, 10, 15, 0, T0 + 15 * S),
        ok(T0 + 500 * MS, 1, 0, CHARGE, 0, 10, 15, 0, T0 + 15 * S),
        ok(T0 + S, 3, 0, CHARGE, 0, 10, 15, 1, T0 + 16 * S),
        no(T0 + 7 * S - 1, 1, 0, 0, 0, 10, 10, T0 + 16 * S, 1),
        ok(T0 + 7 * S, 1, 0, 0, 0, 10, 10, 1, T0 + 17 * S)}},
    {"CHARGE without a reserve", policy(W, .limit = 60, .burst = 10), {
        ok(T0, 12, 0, CHARGE, 0, 10, 10, 10, T0 + 10 * S),
        no(T0, 1, 0, 0, FIRST, 10, 10, T0 + 10 * S, S)}},
    {"RESERVE: how long to wait is told", policy(W, .limit = 60, .burst = 2, .max_reserved = 3), {
        ok(T0, 2, 0, RESERVE, 0, 2, 2, 2, T0 + 2 * S),
        wait(T0, 1, RESERVE, 0, 2, 3, 1, T0 + 3 * S, S),
        wait(T0, 2, RESERVE, 0, 2, 5, 2, T0 + 5 * S, 3 * S),
        no(T0, 1, 0, RESERVE, FIRST, 2, 5, T0 + 5 * S, S),
        no(T0, 1, 0, 0, 0, 2, 5, T0 + 5 * S, 4 * S),
        no(T0, 6, 0, RESERVE, 0, 2, 5, T0 + 5 * S, STINT_NEVER),
        wait(T0 + S, 1, RESERVE, 0, 2, 5, 1, T0 + 6 * S, 3 * S),
        wait(T0 + 2500 * MS, 9, RESERVE | PARTIAL, 0, 2, 5, 1, T0 + 7 * S, 2500 * MS),
        ok(T0 + 6 * S, 1, 0, RESERVE, 0, 2, 2, 1, T0 + 8 * S)}},
    {"a shadow", policy(W, .limit = 60, .burst = 2, .flags = STINT_SHADOW), {
        ok(T0, 2, 0, 0, 0, 2, 2, 2, T0 + 2 * S),
        wait(T0, 1, 0, FIRST | SHADOWED, 2, 2, 0, T0 + 2 * S, S),
        wait(T0, 1, 0, SHADOWED, 2, 2, 0, T0 + 2 * S, S),
        ok(T0 + S, 1, 0, 0, 0, 2, 2, 1, T0 + 3 * S)}},
    {"near the burst", policy(W, .limit = 60, .burst = 10, .near_limit = 50), {
        ok(T0, 5, 0, 0, 0, 10, 5, 5, T0 + 5 * S),
        ok(T0, 1, 0, 0, NEAR, 10, 6, 1, T0 + 6 * S),
        ok(T0 + S - 1, 0, 0, PEEK, NEAR, 10, 6, 0, T0 + 6 * S),
        ok(T0 + S, 0, 0, PEEK, 0, 10, 5, 0, T0 + 6 * S)}},
    {"a limit of the request's own below the policy's: tokens take longer",
     policy(W, .limit = 60, .burst = 10, .max_reserved = 10), {
        ok(T0, 5, 30, 0, 0, 5, 5, 5, T0 + 10 * S),
        no(T0, 1, 30, 0, FIRST, 5, 5, T0 + 10 * S, 2 * S),
        no(T0, 6, 30, 0, 0, 5, 5, T0 + 10 * S, STINT_NEVER),
        no(T0, 1, 0, 0, 0, 10, 10, T0 + 10 * S, S),
        no(T0 + 2 * S - 1, 1, 30, 0, 0, 5, 5, T0 + 10 * S, 1),
        ok(T0 + 2 * S, 1, 30, 0, 0, 5, 5, 1, T0 + 12 * S),
        row(T0 + 2 * S, 5, 15, RESERVE, false, 0, 2, 3, 0, T0 + 12 * S, 10 * S),
        row(T0 + 2 * S, 2, 15, RESERVE, true, 0, 2, 5, 2, T0 + 20 * S, 10 * S)}},
    {"one so low that it is a token at least", policy(W, .limit = 60, .burst = 10), {
        ok(T0, 1, 3, 0, 0, 1, 1, 1, T0 + 20 * S),
        no(T0, 1, 3, 0, FIRST, 1, 1, T0 + 20 * S, 20 * S),
        no(T0, 1, 0, 0, 0, 10, 20, T0 + 20 * S, 11 * S),
        no(T0, 0, 0, 0, 0, 10, 20, T0 + 20 * S, 10 * S)}},
    {"one above the policy's is honoured: the bucket lasts as long",
     policy(W, .limit = 60, .burst = 10), {
        ok(T0, 10, 1000, 0, 0, 166, 10, 10, T0 + 600 * MS),
        ok(T0, 156, 1000, 0, 0, 166, 166, 156, T0 + 9960 * MS),
        no(T0, 1, 1000, 0, FIRST, 166, 166, T0 + 9960 * MS, 60 * MS)}},
    {"an override above the limit, which beats the request's own",
     policy(W, .limit = 60, .burst = 10, .flags = RULED), {
        override(600, UNTIL),
        ok(T0, 100, 5, 0, OVER, 100, 100, 100, T0 + 10 * S),
        no(T0, 1, 0, 0, OVER | FIRST, 100, 100, T0 + 10 * S, 100 * MS),
        no(T0, 101, 0, 0, OVER, 100, 100, T0 + 10 * S, STINT_NEVER),
        ok(T0 + 100 * MS, 1, 0, 0, OVER, 100, 100, 1, T0 + 10100 * MS),
        clear(0),
        no(T0 + 100 * MS, 1, 0, 0, 0, 10, 10, T0 + 10100 * MS, S),
        clear(ENOENT)}},
    {"charges under an override fill what the bucket then holds",
     policy(W, .limit = 60, .burst = 10, .max_reserved = 10, .flags = RULED), {
        override(600, UNTIL),
        ok(T0, 150, 0, CHARGE, OVER, 100, 150, 150, T0 + 15 * S),
        ok(T0, 150, 0, CHARGE, OVER, 100, 200, 50, T0 + 20 * S),
        clear(0),
        ok(T0 + S, 5, 0, CHARGE, 0, 10, 20, 1, T0 + 21 * S)}},
    {"an override below the limit, and its end",
     policy(W, .limit = 60, .burst = 10, .flags = RULED), {
        override(30, T0 + 4 * S),
        ok(T0, 5, 0, 0, OVER, 5, 5, 5, T0 + 10 * S),
        no(T0, 1, 0, 0, OVER | FIRST, 5, 5, T0 + 10 * S, 2 * S),
        no(T0, 3, 0, 0, OVER, 5, 5, T0 + 10 * S, 4 * S),
        no(T0, 6, 0, 0, OVER, 5, 5, T0 + 10 * S, 6 * S),
        no(T0 + 4 * S - 1, 3, 0, 0, OVER, 5, 4, T0 + 10 * S, 1),
        ok(T0 + 4 * S, 3, 0, 0, 0, 10, 9, 3, T0 + 13 * S)}},
    {"an override of 0", policy(W, .limit = 60, .burst = 10, .flags = RULED), {
        ok(T0, 5, 0, 0, 0, 10, 5, 5, T0 + 5 * S),
        override(0, UNTIL),
        no(T0, 0, 0, 0, OVER | FIRST, 0, 5, T0 + 5 * S, HOUR),
        no(T0, 1, 0, PARTIAL, OVER, 0, 5, T0 + 5 * S, HOUR),
        no(T0, 11, 0, 0, OVER, 0, 5, T0 + 5 * S, STINT_NEVER),
        row(T0, 1, 0, CHARGE, true, OVER, 0, 6, 1, T0 + 6 * S, 0)}},
    {"an override of 2^28",
     policy(W, .limit = 60, .burst = 10, .max_reserved = 2, .flags = RULED), {
        override(MOST, UNTIL),
        ok(T0, 5, 0, 0, OVER, MOST, 0, 0, T0),
        clear(0),
        ok(T0, 5, 0, 0, 0, 10, 5, 5, T0 + 5 * S),
        override(MOST, UNTIL),
        ok(T0, UINT32_MAX, 0, RESERVE, OVER, MOST, 5, 0, T0 + 5 * S),
        ok(T0 + S, 1, 0, CHARGE, OVER, MOST, 4, 0, T0 + 5 * S),
        clear(0),
        no(T0 + S, 7, 0, 0, FIRST, 10, 4, T0 + 5 * S, S)}},
    {"an override of more than 10 million a second",
     policy(S, .limit = 10, .burst = 2, .flags = RULED), {
        override(20000000, UNTIL),
        ok(T0, 2000000, 0, 0, OVER, 2000000, 2000000, 2000000, T0 + 200 * MS),
        no(T0, 1, 0, 0, OVER | FIRST, 2000000, 2000000, T0 + 200 * MS, 100),
        ok(T0 + 100, 1, 0, 0, OVER, 2000000, 2000000, 1, T0 + 200 * MS + 100)}},
    {"a limit that is raised a million times keeps what is used",
     policy(10 * MS, .limit = 1, .burst = 1000000), {
        ok(T0, 1000000, 0, 0, 0, 1000000, 1000000, 1000000, T0 + 10000 * S),
        change_bucket(100000, 1000000, 0),
        no(T0, 1, 0, 0, FIRST, 1000000, 1000000, T0 + 100 * MS, 100)}},
    {"an override keeps the tokens that are used: more, less, lifted",
     policy(7 * DAY, .limit = 5, .burst = 5, .flags = RULED), {
        ok(T0, 5, 0, 0, 0, 5, 5, 5, T0 + 7 * DAY),
        no(T0, 1, 0, 0, FIRST, 5, 5, T0 + 7 * DAY, 7 * DAY / 5),
        override(50, T0 + 30 * DAY),
        ok(T0, 1, 0, 0, OVER, 50, 6, 1, T0 + 6 * 12096 * S),
        no(T0, 45, 0, 0, OVER | FIRST, 50, 6, T0 + 6 * 12096 * S, 12096 * S),
        override(10, T0 + 30 * DAY),
        ok(T0, 0, 0, PEEK, OVER, 10, 6, 0, T0 + 6 * 60480 * S),
        override(10, T0 + 20 * DAY),
        ok(T0, 1, 0, 0, OVER, 10, 7, 1, T0 + 7 * 60480 * S),
        ok(T0 + 5 * 60480 * S, 0, 0, PEEK, OVER, 10, 2, 0, T0 + 7 * 60480 * S),
        clear(0),
        ok(T0 + 5 * 60480 * S, 3, 0, 0, 0, 5, 5, 3, T0 + 10 * 120960 * S - 5 * 60480 * S)}},
    {"an override keeps parts of tokens, rounded up to a ns",
     policy(W, .limit = 60, .burst = 10, .flags = RULED), {
        ok(T0, 3, 0, 0, 0, 10, 3, 3, T0 + 3 * S),
        ok(T0 + 500 * MS, 0, 0, PEEK, 0, 10, 3, 0, T0 + 3 * S),
        override(30, UNTIL),
        ok(T0 + 500 * MS, 0, 0, PEEK, OVER, 5, 3, 0, T0 + 5500 * MS),
        clear(0),
        ok(T0 + 500 * MS, 0, 0, PEEK, 0, 10, 3, 0, T0 + 3 * S),
        override(700, UNTIL), /* 85,714,286 ns */
        ok(T0 + 500 * MS, 0, 0, PEEK, OVER, 116, 3, 0, T0 + 500 * MS + 214285715),
        ok(T0 + 500 * MS, 113, 0, 0, OVER, 116, 116, 113, T0 + 500 * MS + UINT64_C(9900000033)),
        ok(T0 + 20 * S, 0, 0, PEEK, OVER, 116, 0, 0, T0 + 20 * S),
        clear(0),
        ok(T0 + 20 * S, 0, 0, PEEK, 0, 10, 0, 0, T0 + 20 * S)}},
    {"what an override finds used and the bucket cannot hold is cut off",
     policy(W, .limit = 60, .burst = 10, .max_reserved = 5, .flags = RULED), {
        ok(T0, 10, 0, 0, 0, 10, 10, 10, T0 + 10 * S),
        override(30, UNTIL), /* 5, and 2 reserved */
        no(T0, 1, 0, 0, OVER | FIRST, 5, 7, T0 + 14 * S, 6 * S),
        override(1, UNTIL), /* one, and none reserved */
        no(T0, 1, 0, 0, OVER | FIRST, 1, 1, T0 + W, W),
        clear(0),
        ok(T0, 1, 0, 0, 0, 10, 2, 1, T0 + 2 * S),
        override(30, T0 + 2 * S), /* and the time stays when it ends by itself */
        ok(T0, 3, 0, 0, OVER, 5, 5, 3, T0 + 10 * S),
        no(T0 + 2 * S - 1, 2, 0, 0, OVER | FIRST, 5, 5, T0 + 10 * S, 1),
        ok(T0 + 2 * S, 2, 0, 0, 0, 10, 10, 2, T0 + 12 * S)}},
    {"what is used of an override is used of 0 and of 2^28, by the policy's rate",
     policy(W, .limit = 60, .burst = 10, .flags = RULED), {
        override(600, UNTIL),
        ok(T0, 5, 0, 0, OVER, 100, 5, 5, T0 + 500 * MS),
        override(0, UNTIL),
        no(T0, 1, 0, 0, OVER | FIRST, 0, 5, T0 + 5 * S, HOUR),
        override(MOST, UNTIL),
        ok(T0, 1, 0, 0, OVER, MOST, 5, 0, T0 + 5 * S),
        override(600, UNTIL),
        ok(T0, 44, 0, 0, OVER, 100, 49, 44, T0 + 4900 * MS),
        override(MOST, UNTIL), /* which has counted 10 at most */
        clear(0),
        no(T0, 1, 0, 0, 0, 10, 10, T0 + 10 * S, S)}},
    {"an override of a key that is banned",
     policy(W, .limit = 60, .burst = 2, .ban = 10 * MINUTE, .flags = RULED), {
        ok(T0, 2, 0, 0, 0, 2, 2, 2, T0 + 2 * S),
        no(T0, 1, 0, 0, BANNED | FIRST, 2, 2, T0 + 2 * S, 10 * MINUTE),
        override(600, UNTIL),
        ok(T0, 1, 0, 0, OVER, 20, 3, 1, T0 + 300 * MS)}},
    {"a ban", policy(W, .limit = 60, .burst = 2, .ban = 10 * MINUTE, .flags = RULED), {
        ok(T0, 2, 0, 0, 0, 2, 2, 2, T0 + 2 * S),
        no(T0, 1, 0, 0, BANNED | FIRST, 2, 2, T0 + 2 * S, 10 * MINUTE),
        no(T0 + S, 0, 0, 0, BANNED | OVER, 0, 1, T0 + 2 * S, 10 * MINUTE - S),
        no(T0 + 10 * S, 1, 0, DRAIN, BANNED | OVER, 0, 0, T0 + 10 * S, 10 * MINUTE - 10 * S),
        ok(T0 + 10 * MINUTE, 2, 0, 0, 0, 2, 2, 2, T0 + 10 * MINUTE + 2 * S)}},
    {"first refusals, and strikes: one in a window that the instant passes",
     policy(S, .limit = 2, .burst = 3, .ban = HOUR, .ban_after = 3, .flags = RULED), {
        ok(T0 + 100 * MS, 1, 0, 0, 0, 3, 1, 1, T0 + 600 * MS),
        no(T0 + 100 * MS, 3, 0, 0, FIRST, 3, 1, T0 + 600 * MS, 500 * MS),
        no(T0 + 100 * MS, 3, 0, 0, 0, 3, 1, T0 + 600 * MS, 500 * MS),
        ok(T0 + 100 * MS, 1, 0, 0, 0, 3, 2, 1, T0 + 1100 * MS),
        no(T0 + 100 * MS, 2, 0, 0, FIRST, 3, 2, T0 + 1100 * MS, 500 * MS),
        ok(T0 + 100 * MS, 1, 0, 0, 0, 3, 3, 1, T0 + 1600 * MS),
        no(T0 + 100 * MS, 1, 0, 0, 0, 3, 3, T0 + 1600 * MS, 500 * MS),
        ok(T0 + 700 * MS, 1, 0, 0, 0, 3, 3, 1, T0 + 2100 * MS),
        no(T0 + 700 * MS, 1, 0, 0, BANNED | FIRST, 3, 3, T0 + 2100 * MS, HOUR)}},
    /* letsencrypt/boulder#8785 */
    {"the limit is lowered, and raised: what is used stays used",
     policy(W, .limit = 60, .burst = 10), {
        ok(T0, 5, 0, 0, 0, 10, 5, 5, T0 + 5 * S),
        change_bucket(30, 10, 0),
        ok(T0, 0, 0, 0, 0, 10, 5, 0, T0 + 10 * S),
        ok(T0, 5, 0, 0, 0, 10, 10, 5, T0 + 20 * S),
        no(T0, 1, 0, 0, FIRST, 10, 10, T0 + 20 * S, 2 * S),
        change_bucket(120, 10, 0),
        no(T0, 1, 0, 0, 0, 10, 10, T0 + 5 * S, 500 * MS),
        ok(T0 + 500 * MS, 1, 0, 0, 0, 10, 10, 1, T0 + 5500 * MS)}},
    {"the burst is lowered: no more is used than it holds; and raised",
     policy(W, .limit = 60, .burst = 9), {
        ok(T0, 5, 0, 0, 0, 9, 5, 5, T0 + 5 * S),
        change_bucket(60, 5, 0),
        ok(T0, 0, 0, 0, 0, 5, 5, 0, T0 + 5 * S),
        change_bucket(60, 4, 0),
        ok(T0, 0, 0, 0, 0, 4, 4, 0, T0 + 4 * S),
        change_bucket(60, 4, 3),
        wait(T0, 2, RESERVE, 0, 4, 6, 2, T0 + 6 * S, 2 * S),
        change_bucket(60, 20, 0),
        ok(T0, 14, 0, 0, 0, 20, 20, 14, T0 + 20 * S)}},
    {"given back: at once, and what has not come back by itself",
     policy(W, .limit = 60, .burst = 10), {
        ok(T0, 5, 0, 0, 0, 10, 5, 5, T0 + 5 * S),
        refund(5, T0 + 5 * S, 5),
        refund(5, T0 + 5 * S, 0),
        refund(5, 0, 0),
        ok(T0, 10, 0, 0, 0, 10, 10, 10, T0 + 10 * S),
        ok(T0 + 7500 * MS, 0, 0, PEEK, 0, 10, 3, 0, T0 + 10 * S),
        refund(10, T0 + 10 * S, 3),
        ok(T0 + 7500 * MS, 10, 0, 0, 0, 10, 10, 10, T0 + 17500 * MS),
        ok(T0 + 20 * S, 0, 0, PEEK, 0, 10, 0, 0, T0 + 20 * S),
        refund(10, T0 + 17500 * MS, 0),
        ok(T0 + 20 * S, 10, 0, 0, 0, 10, 10, 10, T0 + 30 * S)}},
    {"given back after others took: no more than is left of its own",
     policy(W, .limit = 60, .burst = 10), {
        ok(T0, 4, 0, 0, 0, 10, 4, 4, T0 + 4 * S),
        ok(T0, 6, 0, 0, 0, 10, 10, 6, T0 + 10 * S),
        ok(T0 + 3 * S, 0, 0, PEEK, 0, 10, 7, 0, T0 + 10 * S),
        refund(4, T0 + 4 * S, 1),
        ok(T0 + 3 * S, 0, 0, PEEK, 0, 10, 6, 0, T0 + 9 * S),
        refund(6, T0 + 10 * S, 6),
        ok(T0 + 3 * S, 10, 0, 0, 0, 10, 10, 10, T0 + 13 * S)}},
    {"given back in parts, and what counts by the rate of now",
     policy(W, .limit = 60, .burst = 10), {
        ok(T0, 8, 0, 0, 0, 10, 8, 8, T0 + 8 * S),
        refund(3, T0 + 8 * S, 3),
        change_bucket(30, 10, 0),
        refund(1, T0 + 8 * S, 1),
        ok(T0, 0, 0, PEEK, 0, 10, 4, 0, T0 + 8 * S),
        refund(4, T0 + 8 * S, 4),
        ok(T0, 10, 0, 0, 0, 10, 10, 10, T0 + 20 * S)}},
    {"a reset", policy(W, .limit = 60, .burst = 10), {
        ok(T0, 10, 0, 0, 0, 10, 10, 10, T0 + 10 * S),
        no(T0, 1, 0, 0, FIRST, 10, 10, T0 + 10 * S, S),
        reset(),
        ok(T0 + MS, 10, 0, 0, 0, 10, 10, 10, T0 + MS + 10 * S),
        refund(10, T0 + 10 * S, 10)}},
    /* chatmail/filtermail#167 */
    {"late callers: the bucket is further from full", policy(W, .limit = 60, .burst = 5), {
        ok(T0 + 10 * S, 2, 0, 0, 0, 5, 2, 2, T0 + 12 * S),
        ok(T0 + 8 * S, 1, 0, 0, 0, 5, 5, 1, T0 + 13 * S),
        ok_later(T0 + 8 * S, T0 + 10 * S, 1, 5, 4, 1, T0 + 14 * S),
        ok(T0 + 10 * S, 1, 0, 0, 0, 5, 5, 1, T0 + 15 * S),
        ok_later(T0 + 9 * S, T0 + 10 * S, 0, 5, 5, 0, T0 + 15 * S),
        no(T0 + 9 * S, 1, 0, 0, FIRST, 5, 6, T0 + 15 * S, 2 * S)}},
};
/* clang-format on */

/* A change of the rate keeps what is used, in tokens. Overrides and requests' own limits are tokens
 * in the new window. */
TEST(test_another_window) {
    static const struct {
        const char *to;
        uint64_t token, by_20; /* ns of a token: by the policy, by a limit of 20 */
    } rows[] = {{"600/m burst=20 overrides name=p", 100 * MS, 3 * S},
                {"36000/h burst=20 overrides name=p", 100 * MS, 180 * S},
                {"100/500ms burst=20 overrides name=p", 5 * MS, 25 * MS},
                {"30/m burst=20 overrides name=p", 2 * S, 3 * S}};
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        test_time = T0;
        test_step = 0;
        struct stint_limiter *limiter = open_limiter(100, STINT_FULL_REFUSE);
        struct stint_policy policy = parsed("10/s burst=20 overrides name=p");
        const uint32_t id = add_made(limiter, &policy);
        const struct stint_verdict took = ask(limiter, id, 1, 19, 0);
        assert_true(took.allowed && took.window == T0 + 1900 * MS);
        policy = parsed(rows[r].to);
        assert_int_equal(stint_policy_change(limiter, id, &policy), 0);
        struct stint_policy got = STINT_POLICY_INIT;
        assert_int_equal(stint_policy_get(limiter, id, &got), 0);
        assert_int_equal(got.window, policy.window);
        struct stint_verdict v = ask(limiter, id, 1, 1, 0);
        assert_true(v.allowed && v.used == 20 && v.generation == 1);
        assert_true(v.window == T0 + 20 * rows[r].token);
        v = ask(limiter, id, 1, 1, 0);
        assert_true(!v.allowed && v.retry_after == rows[r].token);
        const struct stint_request own = {.key = {2}, .policy = id, .cost = 1, .limit = 20};
        assert_true(stint_decide(limiter, &own, STINT_NOW, &v));
        assert_true(v.reset_after == rows[r].by_20);
        assert_int_equal(stint_override(limiter, id, 3, 20, T0 + DAY), 0);
        assert_true(ask(limiter, id, 3, 1, 0).reset_after == rows[r].by_20);
        assert_int_equal(stint_refund(limiter, 3, &v, 1), 1);
        assert_true(ask(limiter, id, 3, 0, STINT_PEEK).reset_after == 0);
        stint_close(limiter);
    }
}

/* A verdict gives back what it granted once, in parts as as a whole: of what A took at 0, a second
 * is left at 3. After a change of the rate it gives back as many tokens. */
TEST(test_given_back_by_a_verdict) {
    for (uint32_t part = 1; part <= 5; part++) {
        struct stint_limiter *limiter = open_limiter(100, STINT_FULL_REFUSE);
        const uint32_t id = add_text(limiter, "1/s burst=10");
        test_time = T0;
        struct stint_verdict v = ask(limiter, id, 7, 4, 0);
        assert_true(v.unit == S && v.policy == id && v.generation == 0);
        test_time = T0 + 3 * S;
        assert_int_equal(ask(limiter, id, 7, 9, 0).granted, 9);
        assert_int_equal(stint_refund(limiter, 7, &v, part), 1);
        assert_int_equal(v.granted, 3);
        assert_true(v.window == T0 + (part < 4 ? 4 - part : 0) * S);
        assert_int_equal(stint_refund(limiter, 7, &v, part), 0);
        assert_int_equal(v.granted, 0);
        assert_int_equal(stint_refund(limiter, 7, &v, 4), 0);
        assert_int_equal(ask(limiter, id, 7, 2, STINT_PARTIAL).granted, 1);
        stint_close(limiter);
    }
    static const struct {
        const char *changed; /* NULL: the first request has a limit of its own, 1 a second */
        uint64_t left;       /* to the time at which the bucket is full, when a token is back */
    } rows[] = {{"10/s burst=10", 900 * MS},
                {"1/s burst=1", 0}, /* it holds one */
                {"100/s burst=100", 90 * MS},
                {NULL, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct stint_limiter *limiter = open_limiter(100, STINT_FULL_REFUSE);
        const uint32_t id = add_text(limiter, "10/s burst=10 name=b");
        const struct stint_request own = {.key = {7}, .policy = id, .cost = 1, .limit = 1};
        struct stint_verdict v;
        test_time = T0;
        if (rows[i].changed == NULL) {
            assert_true(stint_decide(limiter, &own, STINT_NOW, &v));
        } else {
            assert_int_equal(ask(limiter, id, 7, 9, 0).granted, 9);
            v = ask(limiter, id, 7, 1, 0);
            struct stint_policy changed = parsed(rows[i].changed);
            change_made(limiter, id, &changed);
        }
        assert_true(v.unit == (rows[i].changed == NULL ? S : S / 10));
        assert_int_equal(stint_refund(limiter, 7, &v, 1), 1);
        assert_true(ask(limiter, id, 7, 0, STINT_PEEK).reset_after == rows[i].left);
        stint_close(limiter);
    }
}

TEST(test_case_by_case) {
    (void)play_scripts(scripts, sizeof scripts / sizeof scripts[0]);
}

/* ---- Promise A, and B in the long run -------------------------------------------------------- */

__extension__ typedef unsigned __int128 wide;

/* Who asks exactly when he is told to, for a year, is granted all that the rate brings, but for
 * what T was rounded up by: "at most one part in T"; and not a ns sooner. */
TEST(test_a_year) {
    static const char *const texts[] = {"3/minute burst=5 name=p", "7/hour burst=1 name=p",
                                        "1000/day burst=100 name=p", "999983/366d burst=3 name=p"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        const struct stint_policy policy = parsed(texts[i]);
        const uint64_t token = token_time(&policy), year = 366 * DAY;
        struct stint_limiter *limiter = open_limiter(10, STINT_FULL_REFUSE);
        const uint32_t id = add_made(limiter, &policy);
        struct stint_verdict v = {.allowed = true};
        uint64_t granted = 0, refused = 0;
        test_step = 0; /* what does not fit is asked once more, by the clock */
        for (test_time = T0; test_time <= T0 + year; granted += v.allowed) {
            if (!v.allowed && refused++ % 64 == 0) {
                test_time += v.retry_after - 1;
                assert_false(stint_take(limiter, id, 1, 1, test_time, &v));
                assert_int_equal(v.retry_after, 1);
            }
            const bool must = !v.allowed;
            test_time += v.retry_after;
            stint_take(limiter, id, 1, 1, STINT_NOW, &v);
            assert_true(v.allowed || !must);
        }
        const uint64_t ideal = policy.burst + (uint64_t)((wide)year * policy.limit / policy.window);
        print_message("%s: %" PRIu64 " of %" PRIu64 "\n", texts[i], granted, ideal);
        assert_true(granted <= ideal + 1 && granted + ideal / token + 2 >= ideal);
        stint_close(limiter);
    }
}

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

/* ---- Beside others --------------------------------------------------------------------------- */

/* The first key that has used any. */
static bool keep(void *context, const struct stint_entry *entry) {
    *(struct stint_entry *)context = *entry;
    return entry->used == 0;
}

/* Two processes take of one bucket. What both have left is what each reads of it: by itself, in a
 * group, among all keys, in response fields and in metrics. */
TEST(test_shared) {
    struct stint_options options = fixture_options(100, STINT_FULL_REFUSE);
    const size_t size = stint_memory_size(&options);
    void *memory = shared_memory(size);
    struct stint_limiter *limiter = NULL, *other = NULL;
    struct stint_verdict v[2];
    struct stint_entry entry = {0};
    char text[8192];
    assert_int_equal(stint_open_in(&options, memory, size, &limiter), 0);
    const uint32_t ids[] = {add_text(limiter, "60/minute burst=10 name=b"),
                            add_text(limiter, "100/minute name=w")};
    const stint_key key = number_key(limiter, 1);
    test_time = T0;
    assert_int_equal(ask(limiter, ids[0], key, 4, 0).granted, 4);
    const pid_t child = forked();
    if (child == 0) {
        const bool opened = stint_open_in(&options, memory, size, &other) == 0;
        _exit(opened && ask(other, ids[0], key, 3, 0).used == 7 ? 0 : 1);
    }
    assert_good(child);

    const struct stint_request group[] = {STINT_REQUEST(ids[1], key, 1),
                                          STINT_REQUEST(ids[0], key, 4)};
    assert_false(stint_decide_all(limiter, group, 2, STINT_NOW, v));
    assert_true(v[0].allowed && v[0].granted == 0 && !v[1].allowed && v[1].retry_after == S);
    assert_int_equal(used_of(limiter, ids[1], key), 0);
    test_time += S;
    assert_true(stint_decide_all(limiter, group, 2, STINT_NOW, v));
    assert_true(v[1].used == 10 && v[1].window == T0 + 11 * S);

    assert_int_equal(stint_refund(limiter, key, &v[0], 1), 1);
    assert_int_equal(stint_each(limiter, keep, &entry), 0);
    assert_true(entry.policy == ids[0] && entry.used == 10 && entry.end == T0 + 11 * S);
    assert_true(stint_headers(limiter, STINT_HEADERS_DRAFT, &v[1], 1, text, sizeof text) > 0);
    assert_non_null(strstr(text, "q=10"));
    assert_true(stint_metrics(limiter, NULL, text, sizeof text) > 0);
    assert_non_null(strstr(text, "\nstint_policy_burst{policy=\"b\"} 10\n"));
    assert_null(strstr(text, "stint_policy_burst{policy=\"w\"}"));
    stint_close(limiter);
}
