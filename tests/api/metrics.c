/* SPDX-License-Identifier: MIT
 * The metrics as text, and the counts behind them. That Prometheus can read the text is the part of
 * metrics.py; buffers of all sizes are that of the fuzz target `policy`. */
#include "limiter/counters.h" /* first: cmocka has a macro of a function's name */

#include "fixture.h"

/* The whole text, with these options. */
static char *written(struct stint_limiter *limiter, const char *const *labels, uint32_t flags) {
    struct stint_metrics_options options = STINT_METRICS_OPTIONS_INIT;
    options.labels = labels;
    options.flags = flags;
    int length = stint_metrics(limiter, &options, NULL, 0);
    assert_true(length > 0);
    char *text = malloc((size_t)length + 1);
    assert_non_null(text);
    assert_int_equal(stint_metrics(limiter, &options, text, (size_t)length + 1), length);
    assert_int_equal(strlen(text), length);
    return text;
}

static char *whole(struct stint_limiter *limiter) {
    return written(limiter, NULL, 0);
}

static void assert_line(struct stint_limiter *limiter, const char *line) {
    char *text = whole(limiter);
    if (strstr(text, line) == NULL)
        fail_msg("no \"%s\" in\n%s", line, text);
    free(text);
}

/* Labels are in every sample, after those that it has; in no comment. */
TEST(test_labels) {
    static const char *const labels[] = {"table", "a \"b\"\n\\", "_2", "\xc3\xa9", NULL};
    static const char all[] = "table=\"a \\\"b\\\"\\n\\\\\",_2=\"\xc3\xa9\"} ";
    struct stint_limiter *limiter = open_limiter(10, STINT_FULL_ADMIT);
    add_policy(limiter, "p", 9, MINUTE, 0, 0);
    char *plain = written(limiter, NULL, 0), *text = written(limiter, labels, 0);
    size_t samples = 0, plain_samples = 0;
    assert_non_null(strstr(text, "\nstint_table_placed_total{table="));
    assert_non_null(strstr(text, "\nstint_policy_limit{policy=\"p\",table="));
    assert_non_null(strstr(text, "{policy=\"p\",outcome=\"allowed\",table="));
    assert_string_equal(text + strlen(text) - 7, "\n# EOF\n");
    for (char *line = strtok(plain, "\n"); line != NULL; line = strtok(NULL, "\n"))
        plain_samples += line[0] != '#';
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        if ((strstr(line, all) != NULL) != (line[0] != '#'))
            fail_msg("%s", line);
        samples += line[0] != '#';
    }
    assert_int_equal(samples, plain_samples);
    free(plain);
    free(text);
    static const char *const none[] = {NULL};
    plain = written(limiter, NULL, 0), text = written(limiter, none, 0);
    assert_string_equal(text, plain);
    free(plain);
    free(text);
    stint_close(limiter);
}

/* The end is left out, and what takes a look at all slots. */
TEST(test_without) {
    struct stint_limiter *limiter = open_limiter(10, STINT_FULL_ADMIT);
    uint32_t policy = add_policy(limiter, "p", 9, MINUTE, 0, 0);
    assert_true(stint_take(limiter, policy, number_key(limiter, 1), 1, STINT_NOW, NULL));
    char *whole_text = written(limiter, NULL, 0);
    char *text = written(limiter, NULL, STINT_METRICS_NO_EOF);
    const size_t length = strlen(text);
    assert_memory_equal(text, whole_text, length);
    assert_string_equal(whole_text + length, "# EOF\n");
    free(text);
    text = written(limiter, NULL, STINT_METRICS_NO_SCAN);
    static const char *const scanned[] = {"used_slots",  "live_slots",  "overrides",  "barred_keys",
                                          "banned_keys", "used_labels", "table_reach"};
    for (size_t i = 0; i < sizeof scanned / sizeof scanned[0]; i++)
        assert_null(strstr(text, scanned[i]));
    assert_non_null(strstr(text, "\nstint_table_placed_total 1\n"));
    assert_non_null(strstr(text, "\nstint_decisions_total{policy=\"p\",outcome=\"allowed\"} 1\n"));
    assert_non_null(strstr(whole_text, "\nstint_table_used_slots 1\n"));
    free(text);
    free(whole_text);
    stint_close(limiter);
}

TEST(test_options_are_checked) {
    static const char *const bad[][5] = {
        {"", "v"},       {"2a", "v"}, {"a-b", "v"},         {"policy", "v"},
        {"outcome", ""}, {"a", NULL}, {"a", "1", "a", "2"}, {"a", "1", "\xc3\xa9", "2"},
    };
    struct stint_limiter *limiter = open_limiter(10, STINT_FULL_ADMIT);
    struct stint_metrics_options options = STINT_METRICS_OPTIONS_INIT;
    char buffer[8] = "before", longest[1100];
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        options.labels = bad[i];
        assert_int_equal(stint_metrics(limiter, &options, buffer, sizeof buffer), -EINVAL);
        assert_reason("labels");
    }
    static const char *const no_utf8[] = {
        "\x80", "\xc3", "\xc0\xaf", "x\xe0\x80\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xff"};
    for (size_t i = 0; i < sizeof no_utf8 / sizeof no_utf8[0]; i++) {
        const char *const labels[] = {"where", no_utf8[i], NULL};
        options.labels = labels;
        assert_int_equal(stint_metrics(limiter, &options, buffer, sizeof buffer), -EINVAL);
        assert_reason("where");
    }
    for (size_t n = 0; n < sizeof longest; n++) { /* a="" and what is in it */
        const char *const labels[] = {"a", longest, NULL};
        memset(longest, 'x', sizeof longest);
        longest[n] = '\0';
        options.labels = labels;
        assert_int_equal(stint_metrics(limiter, &options, NULL, 0) > 0, n + 4 <= 1000);
    }
    static const struct {
        struct stint_metrics_options options;
        const char *reason;
    } wrong[] = {
        {{sizeof options, NULL, 0, 1}, "reserved"},
        {{0, NULL, 0, 0}, "options.size"},
        {{sizeof options - 1, NULL, 0, 0}, "options.size"},
        {{4097, NULL, 0, 0}, "options.size"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(stint_metrics(limiter, &wrong[i].options, buffer, sizeof buffer), -EINVAL);
        assert_reason(wrong[i].reason);
    }
    assert_string_equal(buffer, "before");
    stint_close(limiter);
}

/* Every counter has a field of the statistics and a line of its own. */
TEST(test_every_counter) {
    struct stint_limiter *limiter = open_limiter(10, STINT_FULL_ADMIT);
    uint32_t policy = add_policy(limiter, "p", 1, MINUTE, 0, 0);
    uint32_t other = add_policy(limiter, "other", 1, MINUTE, 0, 0);
    uint32_t table = limiter->max_policies;
#define OF_POLICY(counter, field, sample)                                                          \
    { false, counter, offsetof(struct stint_policy_stats, field), "stint_" sample }
#define OF_TABLE(counter, field, sample)                                                           \
    { true, counter, offsetof(struct stint_stats, field), "stint_table_" sample "_total" }
    static const struct {
        bool of_table;
        uint32_t counter;
        size_t offset; /* in the statistics */
        const char *sample;
    } counters[] = {
        OF_POLICY(COUNT_ALLOWED, allowed, "decisions_total{policy=\"p\",outcome=\"allowed\"}"),
        OF_POLICY(COUNT_REFUSED, refused, "decisions_total{policy=\"p\",outcome=\"refused\"}"),
        OF_POLICY(COUNT_SHADOWED, shadowed, "decisions_total{policy=\"p\",outcome=\"shadowed\"}"),
        OF_POLICY(COUNT_FIRST_REFUSAL, first_refusals, "first_refusals_total{policy=\"p\"}"),
        OF_POLICY(COUNT_UNTRACKED, untracked, "untracked_decisions_total{policy=\"p\"}"),
        OF_POLICY(COUNT_NEAR_LIMIT, near_limit, "near_limit_decisions_total{policy=\"p\"}"),
        OF_POLICY(COUNT_CHARGED, charged, "charged_tokens_total{policy=\"p\"}"),
        OF_POLICY(COUNT_REFUNDED, refunded, "refunded_tokens_total{policy=\"p\"}"),
        OF_TABLE(COUNT_PLACED, placed, "placed"),
        OF_TABLE(COUNT_REPLACED, replaced, "replaced"),
        OF_TABLE(COUNT_CLOCK_STEP, clock_steps, "clock_steps"),
        OF_TABLE(COUNT_STRAY, stray_tokens, "stray_tokens"),
        OF_TABLE(COUNT_UNKNOWN_POLICY, unknown_policy, "unknown_policy_decisions"),
        OF_TABLE(COUNT_BAD_REQUEST, bad_requests, "bad_requests"),
        OF_TABLE(COUNT_RESET, resets, "resets"),
    };
    enum { COUNTERS = sizeof counters / sizeof counters[0] };
    for (size_t i = 0; i < COUNTERS; i++)
        for (size_t times = 0; times < 101 + i; times++)
            limiter_count(limiter, counters[i].of_table ? table : policy, counters[i].counter);
    struct stint_stats stats = get_stats(limiter);
    struct stint_policy_stats policy_stats = get_policy_stats(limiter, policy);
    for (size_t i = 0; i < COUNTERS; i++) {
        uint64_t value;
        const char *from =
            counters[i].of_table ? (const char *)&stats : (const char *)&policy_stats;
        memcpy(&value, from + counters[i].offset, sizeof value);
        if (value != 101 + i)
            fail_msg("%s is %" PRIu64 " in the statistics", counters[i].sample, value);
        char line[200];
        snprintf(line, sizeof line, "\n%s %zu\n", counters[i].sample, 101 + i);
        assert_line(limiter, line);
    }
    assert_int_equal(stats.untracked, policy_stats.untracked);
    policy_stats = get_policy_stats(limiter, other);
    assert_int_equal(policy_stats.allowed, 0);
    assert_int_equal(policy_stats.near_limit, 0);
    assert_int_equal(policy_stats.charged, 0);
    assert_int_equal(policy_stats.refunded, 0);
    for (unsigned times = 0; times < 5; times++) {
        stint_limiter_count_rare(limiter, policy, RARE_NOW_MISTAKEN);
        if (times < 3)
            stint_limiter_count_rare(limiter, policy, RARE_REFUND_LOST);
    }
    policy_stats = get_policy_stats(limiter, policy);
    assert_true(policy_stats.refunds_lost == 3 && policy_stats.mistaken_nows == 5);
    assert_line(limiter, "\nstint_lost_refunds_total{policy=\"p\"} 3\n");
    assert_line(limiter, "\nstint_mistaken_nows_total{policy=\"p\"} 5\n");
    policy_stats = get_policy_stats(limiter, other);
    assert_true(policy_stats.refunds_lost == 0 && policy_stats.mistaken_nows == 0);
    stint_close(limiter);
}

/* The longest numbers and names there are. */
TEST(test_longest) {
    struct stint_limiter *limiter = open_limiter(10, STINT_FULL_ADMIT);
    char name[STINT_NAME_SIZE] = {0};
    memset(name, '\\', sizeof name - 1);
    uint32_t policy = add_policy(limiter, name, STINT_LIMIT_MAX, 366 * DAY - 10 * MS, 0, 0);
    for (uint32_t counter = COUNT_ALLOWED; counter <= COUNT_REFUNDED; counter++)
        limiter->counters[policy].count[counter] = limiter->rare[policy].count[counter] =
            UINT64_MAX;
    char *text = whole(limiter);
    size_t samples = 0;
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        assert_true(strlen(line) < 256);
        if (strncmp(line, "stint_decisions_total", 21) == 0) {
            assert_non_null(strstr(line, " 18446744073709551615"));
            samples++;
        }
    }
    assert_int_equal(samples, 3);
    free(text);
    stint_close(limiter);
}
