/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * Makes a table of stint 0.1, and prints what it holds: table-0.1.gz and table-0.1.txt beside this
 * file. It is written for the library of commit e7f017e, and is not built with the project.
 * README.md says how it was. */
#include <inttypes.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stint.h>

#define SECOND UINT64_C(1000000000)
#define MINUTE (60 * SECOND)
#define HOUR   (60 * MINUTE)
#define DAY    (24 * HOUR)
#define T0     (UINT64_C(1704067200) * SECOND) /* 2024-01-01 */

enum { KEYS = 60 };

static uint64_t now;

static uint64_t clock_of_test(void) {
    return now;
}

/* As tests/kit/fixture.c has it. */
static const void *test_secret(void) {
    static unsigned char secret[STINT_SECRET_SIZE];
    uint64_t x = 88172645463325252u;
    for (size_t i = 0; i < sizeof secret; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        secret[i] = (unsigned char)(x >> 32);
    }
    return secret;
}

static const char *const texts[] = {
    "10/minute name=plain",
    "10/minute name=rolling capacity=20",
    "10/minute name=reserving reserve=15",
    "10/minute name=smooth smooth",
    "10/minute name=\"per key\" start=per-key",
    "8/minute name=striped stripes=4",
    "10/minute name=shadowing shadow",
    "10/minute name=counting count-refused",
    "500/hour", /* its rate is its name */
    "7/day name=changed near=50% jitter=5%",
};
enum { POLICIES = sizeof texts / sizeof texts[0] };

static void check(int result) {
    if (result < 0) {
        fprintf(stderr, "%s\n", stint_reason());
        exit(1);
    }
}

static stint_key key_of(const struct stint_limiter *limiter, uint64_t number) {
    return stint_key_of(limiter, &number, sizeof number);
}

/* Some of the keys, by all policies, in ways that differ from key to key. */
static void *decide(void *given) {
    struct stint_limiter *limiter = given;

    for (uint64_t number = 0; number < KEYS; number++) {
        for (uint32_t id = 0; id < POLICIES; id++) {
            struct stint_request request = {
                .key = key_of(limiter, number), .policy = id, .cost = 1};
            for (uint64_t i = 0; i < (number * 7 + id * 3) % 13; i++)
                (void)stint_decide(limiter, &request, STINT_NOW, NULL);
            request.cost = 3;
            request.flags = STINT_RESERVE;
            if (number % 5 == 0)
                (void)stint_decide(limiter, &request, STINT_NOW, NULL);
            request.flags = 0;
            request.limit = 14;
            if (number % 7 == 0)
                (void)stint_decide(limiter, &request, STINT_NOW, NULL);
        }
    }
    return NULL;
}

/* What each key may still do at a time. */
static void print(struct stint_limiter *limiter, uint64_t time) {
    now = time;
    for (uint64_t number = 0; number < KEYS; number++) {
        for (uint32_t id = 0; id < POLICIES; id++) {
            struct stint_request request = {
                .key = key_of(limiter, number), .policy = id, .cost = 1, .flags = STINT_PEEK};
            struct stint_verdict v;
            (void)stint_decide(limiter, &request, STINT_NOW, &v);
            printf("verdict %" PRIu64 " %" PRIu64 " %" PRIu32 " %d %" PRIu32 " %" PRIu32 " %" PRIu32
                   " %" PRIu64 " %" PRIu64 "\n",
                   time, number, id, v.allowed, v.capacity, v.used, v.remaining, v.window,
                   v.retry_after);
        }
    }
}

int main(int argc, char **argv) {
    struct stint_options options = STINT_OPTIONS_INIT;
    struct stint_limiter *limiter;

    if (argc != 2)
        return 1;
    options.max_keys = 2000;
    options.max_policies = 12;
    options.path = argv[1];
    options.clock = clock_of_test;
    options.secret = test_secret();
    check(stint_open(&options, &limiter));
    now = T0 - 3 * DAY;
    for (uint32_t id = 0; id < POLICIES; id++) {
        struct stint_policy policy = STINT_POLICY_INIT;
        check(stint_policy_parse(texts[id], &policy, NULL));
        check(stint_policy_add(limiter, &policy));
    }
    (void)decide(limiter);

    /* Counts of windows that are over, with debts; a limit that was higher; a policy that has
     * counted refusals; a second lane of counters. */
    struct stint_policy policy = STINT_POLICY_INIT;
    check(stint_policy_get(limiter, 9, &policy));
    policy.limit = 5;
    check(stint_policy_change(limiter, 9, &policy));
    now = T0 - MINUTE + 10 * SECOND;
    (void)decide(limiter);
    check(stint_policy_get(limiter, 7, &policy));
    policy.flags = 0;
    check(stint_policy_change(limiter, 7, &policy));
    now = T0 + 20 * SECOND;
    pthread_t thread;
    if (pthread_create(&thread, NULL, decide, limiter) != 0)
        return 1;
    pthread_join(thread, NULL);

    for (uint32_t id = 0; id < POLICIES; id++) {
        struct stint_policy_stats stats = STINT_POLICY_STATS_INIT;
        char text[256];
        policy = (struct stint_policy)STINT_POLICY_INIT;
        check(stint_policy_get(limiter, id, &policy));
        check(stint_policy_stats(limiter, id, &stats));
        check(stint_policy_format(&policy, text, sizeof text));
        printf("policy %" PRIu32 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %s\n", id,
               stats.allowed, stats.refused, stats.shadowed, stats.first_refusals, text);
    }
    struct stint_stats stats = STINT_STATS_INIT;
    check(stint_stats(limiter, &stats));
    printf("table %" PRIu64 " %" PRIu64 "\n", stats.placed, stats.live);
    print(limiter, T0 + 20 * SECOND);
    print(limiter, T0 + 70 * SECOND);
    stint_close(limiter);
    return 0;
}
