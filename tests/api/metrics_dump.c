/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * For metrics.py: prints the metrics of a limiter whose counts are known, or with "stats" what
 * stint_stats says of its table, a name and a number a line. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "counters.h"
#include "policy_id.h"

#define SECOND UINT64_C(1000000000)

static uint64_t test_clock(void) {
    return 1704067200 * SECOND;
}

static void die(const char *what) {
    fprintf(stderr, "metrics_dump: %s: %s\n", what, stint_reason());
    exit(1);
}

static uint32_t add_policy(struct stint_limiter *limiter, const char *text) {
    struct stint_policy policy = STINT_POLICY_INIT;
    if (stint_policy_parse(text, &policy, NULL) != 0)
        die(text);
    int id = policy_added(limiter, &policy);
    if (id < 0)
        die(text);
    return (uint32_t)id;
}

static void take(struct stint_limiter *limiter, uint32_t policy, unsigned key, unsigned times) {
    for (unsigned i = 0; i < times; i++)
        stint_take(limiter, policy, stint_key_of(limiter, &key, sizeof key), 1, STINT_NOW, NULL);
}

/* What takes a full table, a stepped clock or bad luck to happen is counted here by hand. */
static void count(struct stint_limiter *limiter, uint32_t row, uint32_t counter, unsigned times) {
    for (unsigned i = 0; i < times; i++)
        limiter_count(limiter, row, counter);
}

int main(int argc, char **argv) {
    struct stint_options options = STINT_OPTIONS_INIT;
    struct stint_limiter *limiter;
    options.max_keys = 1000;
    options.max_policies = 8;
    options.clock = test_clock;
    if (stint_open(&options, &limiter) != 0)
        die("stint_open");

    uint32_t plain = add_policy(limiter, "3/minute");
    uint32_t odd = add_policy(limiter, "2 per 250 ms name=\"a \\\"b\\\\n\\\\\" shadow");
    add_policy(limiter, "268435456 per 366 days name=\"{unused},\"");
    take(limiter, plain, 1, 5); /* 3 allowed, 2 refused, the first for the first time */
    take(limiter, plain, 2, 4); /* 3 allowed, 1 refused */
    take(limiter, plain, 3, 1);
    take(limiter, odd, 1, 7); /* 2 allowed, 5 shadowed */
    take(limiter, 7, 1, 9);   /* there is no such policy */
    count(limiter, plain, COUNT_NEAR_LIMIT, 11);
    count(limiter, odd, COUNT_UNTRACKED, 12);
    count(limiter, plain, COUNT_UNTRACKED, 1);
    count(limiter, options.max_policies, COUNT_REPLACED, 13);
    count(limiter, options.max_policies, COUNT_CLOCK_STEP, 14);
    count(limiter, options.max_policies, COUNT_STRAY, 15);
    count(limiter, options.max_policies, COUNT_RESET, 16);
    count(limiter, options.max_policies, COUNT_BAD_REQUEST, 17);
    count(limiter, plain, COUNT_CHARGED, 18);
    count(limiter, odd, COUNT_REFUNDED, 19);

    if (argc == 2 && strcmp(argv[1], "stats") == 0) {
        struct stint_stats stats = STINT_STATS_INIT;
        if (stint_stats_get(limiter, &stats) != 0)
            die("stint_stats");
        printf("memory_bytes %" PRIu64 "\nslots %" PRIu64 "\n", stats.memory, stats.slots);
    } else {
        static char text[1 << 16];
        int length = stint_metrics(limiter, NULL, text, sizeof text);
        if (length < 0 || (size_t)length >= sizeof text)
            die("stint_metrics");
        fwrite(text, 1, (size_t)length, stdout);
    }
    stint_close(limiter);
    return 0;
}
