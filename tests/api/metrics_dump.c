/* SPDX-License-Identifier: MIT
 * For metrics.py: prints the metrics of a limiter whose counts are known, or with "stats" what
 * stint_stats says of its table, a name and a number a line. */
#include "limiter/counters.h" /* before cmocka, which defines fail() as well */

#include "fixture.h"

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
    struct stint_options options = fixture_options(1000, STINT_FULL_ADMIT);
    options.max_policies = 8;
    options.labels = 7;
    options.secret = NULL;
    struct stint_limiter *limiter = open_with(&options);

    uint32_t plain = add_text(limiter, "3/minute");
    uint32_t odd = add_text(limiter, "2 per 250 ms name=\"a \\\"b\\\\n\\\\\" shadow");
    add_text(limiter, "268435456 per 366 days name=\"{unused},\"");
    take(limiter, plain, 1, 5); /* 3 allowed, 2 refused, the first for the first time */
    take(limiter, plain, 2, 4); /* 3 allowed, 1 refused */
    take(limiter, plain, 3, 1);
    take(limiter, odd, 1, 7);                                         /* 2 allowed, 5 shadowed */
    stint_policy_remove(limiter, add_text(limiter, "9/s overrides")); /* and its companion */
    assert_int_equal(stint_label(limiter, 1, "one", 3), 0);
    take(limiter, 7, 1, 9); /* there is no such policy */
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
    stint_limiter_count_rare(limiter, plain, RARE_REFUND_LOST);
    stint_limiter_count_rare(limiter, odd, RARE_NOW_MISTAKEN);

    if (argc == 2 && strcmp(argv[1], "stats") == 0) {
        const struct stint_stats stats = get_stats(limiter);
        printf("memory_bytes %" PRIu64 "\nslots %" PRIu64 "\n", stats.memory, stats.slots);
    } else {
        static char text[1 << 16];
        int length = stint_metrics(limiter, NULL, text, sizeof text);
        assert_in_range(length, 1, sizeof text - 1);
        fwrite(text, 1, (size_t)length, stdout);
    }
    stint_close(limiter);
    return 0;
}
