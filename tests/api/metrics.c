/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * The metrics as text in a buffer, and the counts behind them. That Prometheus can read the text is
 * metrics.py's part. */
#include "counters.h" /* first: cmocka has a macro of a function's name */

#include "fixture.h"

static char *whole(struct stint_limiter *limiter) {
    int length = stint_metrics(limiter, NULL, NULL, 0);
    assert_true(length > 0);
    char *text = malloc((size_t)length + 1);
    assert_non_null(text);
    assert_int_equal(stint_metrics(limiter, NULL, text, (size_t)length + 1), length);
    assert_int_equal(strlen(text), length);
    return text;
}

static void assert_line(struct stint_limiter *limiter, const char *line) {
    char *text = whole(limiter);
    if (strstr(text, line) == NULL)
        fail_msg("no \"%s\" in\n%s", line, text);
    free(text);
}

/* Buffers of every size: what fits is there, then a NUL, and nothing is written past either. */
TEST(test_cut) {
    struct stint_limiter *limiter = open_limiter(10, STINT_FULL_ADMIT);
    add_policy(limiter, "\"quoted\\\"", 50, MINUTE, 0, 0);
    char *text = whole(limiter);
    size_t length = strlen(text);
    for (size_t size = 0; size <= length + 3; size++) {
        char *buffer = cut_buffer(size);
        assert_int_equal(stint_metrics(limiter, NULL, buffer, size), length);
        assert_cut(buffer, size, text, length);
        free(buffer);
    }
    free(text);
    stint_close(limiter);
}

TEST(test_errors) {
    struct stint_limiter *limiter = open_limiter(10, STINT_FULL_ADMIT);
    char buffer[8] = "before";
    assert_int_equal(stint_metrics(NULL, NULL, buffer, sizeof buffer), -EINVAL);
    assert_reason("limiter");
    assert_string_equal(buffer, "before");
    assert_int_equal(stint_metrics(limiter, NULL, NULL, 1), -EINVAL);
    assert_reason("buffer");
    stint_close(limiter);
}

/* Without policies there is a table all the same, and an end. */
TEST(test_no_policies) {
    struct stint_limiter *limiter = open_limiter(10, STINT_FULL_ADMIT);
    char *text = whole(limiter);
    static const char end[] = "\n# EOF\n";
    assert_string_equal(text + strlen(text) - strlen(end), end);
    assert_null(strstr(text, "{"));
    assert_non_null(strstr(text, "\nstint_table_placed_total 0\n"));
    assert_non_null(strstr(text, "\n# UNIT stint_table_memory_bytes bytes\n"));
    free(text);
    stint_close(limiter);
}

/* The text follows what happens, and is longer where numbers are. */
TEST(test_follows_the_counts) {
    struct stint_limiter *limiter = open_limiter(10, STINT_FULL_ADMIT);
    uint32_t policy = add_policy(limiter, "p", 9, MINUTE, 0, 0);
    int length = stint_metrics(limiter, NULL, NULL, 0);
    stint_key key = number_key(limiter, 1);
    for (int i = 0; i < 9; i++)
        assert_true(stint_take(limiter, policy, key, 1, STINT_NOW, NULL));
    assert_int_equal(stint_metrics(limiter, NULL, NULL, 0), length);
    assert_line(limiter, "\nstint_decisions_total{policy=\"p\",outcome=\"allowed\"} 9\n");
    assert_line(limiter, "\nstint_table_live_slots 1\n");
    assert_line(limiter, "\nstint_policy_limit{policy=\"p\"} 9\n");
    change_limit(limiter, policy, 10);
    assert_true(stint_take(limiter, policy, key, 1, STINT_NOW, NULL));
    assert_line(limiter, "\nstint_decisions_total{policy=\"p\",outcome=\"allowed\"} 10\n");
    assert_line(limiter, "\nstint_policy_limit{policy=\"p\"} 10\n");
    assert_int_equal(stint_metrics(limiter, NULL, NULL, 0), length + 2);
    test_time += MINUTE;
    assert_line(limiter, "\nstint_table_live_slots 0\n");
    assert_line(limiter, "\nstint_table_used_slots 1\n");
    stint_close(limiter);
}

/* Decisions near the limit and resets, as they happen. */
TEST(test_near_limit_and_resets) {
    struct stint_limiter *limiter = open_limiter(10, STINT_FULL_ADMIT);
    struct stint_policy near = make_policy("p", 10, MINUTE, 0, 0);
    near.near_limit = 80;
    int policy = policy_added(limiter, &near);
    assert_int_equal(policy, 0);
    stint_key key = number_key(limiter, 1);
    for (int i = 0; i < 11; i++) /* the last is refused, and so not counted as near */
        assert_int_equal(stint_take(limiter, 0, key, 1, STINT_NOW, NULL), i < 10);
    assert_line(limiter, "\nstint_near_limit_decisions_total{policy=\"p\"} 2\n");
    stint_reset(limiter, 0, key);
    stint_reset(limiter, 0, number_key(limiter, 2)); /* there is no such key */
    assert_line(limiter, "\nstint_table_resets_total 1\n");
    assert_true(stint_take(limiter, 0, key, 1, STINT_NOW, NULL));
    assert_line(limiter, "\nstint_near_limit_decisions_total{policy=\"p\"} 2\n");
    stint_close(limiter);
}

/* Tokens charged and given back, and requests that make no sense. None of them is a decision. */
TEST(test_charges_and_refunds) {
    struct stint_limiter *limiter = open_limiter(10, STINT_FULL_ADMIT);
    uint32_t policy = add_policy(limiter, "p", 10, MINUTE, 0, 0);
    struct stint_request request = {
        .key = number_key(limiter, 1), .policy = policy, .cost = 25, .flags = STINT_CHARGE};
    struct stint_verdict verdict;
    assert_true(stint_decide(limiter, &request, STINT_NOW, &verdict));
    assert_int_equal(verdict.granted, 25);
    assert_line(limiter, "\nstint_charged_tokens_total{policy=\"p\"} 25\n");
    assert_int_equal(stint_refund(limiter, policy, request.key, 7, verdict.window), 7);
    verdict.granted = 11;
    assert_int_equal(stint_refund_all(limiter, &request, &verdict, 1), 11);
    assert_int_equal(stint_refund(limiter, policy, request.key, 9, 0), 0);
    assert_line(limiter, "\nstint_refunded_tokens_total{policy=\"p\"} 18\n");
    request.flags |= STINT_PARTIAL;
    assert_false(stint_decide(limiter, &request, STINT_NOW, NULL));
    assert_line(limiter, "\nstint_table_bad_requests_total 1\n");
    assert_line(limiter, "\nstint_charged_tokens_total{policy=\"p\"} 25\n");
    assert_line(limiter, "\nstint_decisions_total{policy=\"p\",outcome=\"allowed\"} 0\n");
    assert_line(limiter, "\nstint_decisions_total{policy=\"p\",outcome=\"refused\"} 0\n");
    stint_close(limiter);
}

TEST(test_windows_are_exact) {
    static const struct {
        uint64_t window;
        const char *seconds;
    } windows[] = {
        {10 * MS, "0.01"},
        {50 * MS, "0.05"},
        {100 * MS, "0.10"},
        {990 * MS, "0.99"},
        {SECOND, "1"},
        {61 * SECOND + 230 * MS, "61.23"},
        {366 * DAY - 10 * MS, "31622399.99"},
        {366 * DAY, "31622400"},
    };
    struct stint_limiter *limiter = open_limiter(10, STINT_FULL_ADMIT);
    for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++) {
        char name[STINT_NAME_SIZE], line[200];
        snprintf(name, sizeof name, "w%zu", i);
        add_policy(limiter, name, 1, windows[i].window, 0, 0);
        snprintf(line, sizeof line, "\nstint_policy_window_seconds{policy=\"%s\"} %s\n", name,
                 windows[i].seconds);
        assert_line(limiter, line);
    }
    stint_close(limiter);
}

/* What is written of a limiter with a policy "p", with these options. */
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
    static const char *const scanned[] = {"used_slots", "live_slots", "overrides", "barred_keys",
                                          "banned_keys"};
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
    for (size_t n = 0; n < sizeof longest; n++) { /* a="" and what is in it */
        const char *const labels[] = {"a", longest, NULL};
        memset(longest, 'x', sizeof longest);
        longest[n] = '\0';
        options.labels = labels;
        assert_int_equal(stint_metrics(limiter, &options, NULL, 0) > 0, n + 4 <= 1000);
    }
    options.labels = NULL;
    for (unsigned bit = 2; bit < 32; bit++) {
        options.flags = UINT32_C(1) << bit;
        assert_int_equal(stint_metrics(limiter, &options, buffer, sizeof buffer), -EINVAL);
        assert_reason("flags");
    }
    options.flags = 0;
    options.reserved = 1;
    assert_int_equal(stint_metrics(limiter, &options, buffer, sizeof buffer), -EINVAL);
    assert_reason("reserved");
    options.reserved = 0;
    static const size_t sizes[] = {0, sizeof options - 1, 4097};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        options.size = sizes[i];
        assert_int_equal(stint_metrics(limiter, &options, buffer, sizeof buffer), -EINVAL);
        assert_reason("options.size");
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
    static const struct {
        bool of_table;
        uint32_t counter;
        size_t offset; /* in the statistics */
        const char *sample;
    } counters[] = {
        {false, COUNT_ALLOWED, offsetof(struct stint_policy_stats, allowed),
         "stint_decisions_total{policy=\"p\",outcome=\"allowed\"}"},
        {false, COUNT_REFUSED, offsetof(struct stint_policy_stats, refused),
         "stint_decisions_total{policy=\"p\",outcome=\"refused\"}"},
        {false, COUNT_SHADOWED, offsetof(struct stint_policy_stats, shadowed),
         "stint_decisions_total{policy=\"p\",outcome=\"shadowed\"}"},
        {false, COUNT_FIRST_REFUSAL, offsetof(struct stint_policy_stats, first_refusals),
         "stint_first_refusals_total{policy=\"p\"}"},
        {false, COUNT_UNTRACKED, offsetof(struct stint_policy_stats, untracked),
         "stint_untracked_decisions_total{policy=\"p\"}"},
        {false, COUNT_NEAR_LIMIT, offsetof(struct stint_policy_stats, near_limit),
         "stint_near_limit_decisions_total{policy=\"p\"}"},
        {false, COUNT_CHARGED, offsetof(struct stint_policy_stats, charged),
         "stint_charged_tokens_total{policy=\"p\"}"},
        {false, COUNT_REFUNDED, offsetof(struct stint_policy_stats, refunded),
         "stint_refunded_tokens_total{policy=\"p\"}"},
        {true, COUNT_PLACED, offsetof(struct stint_stats, placed), "stint_table_placed_total"},
        {true, COUNT_REPLACED, offsetof(struct stint_stats, replaced),
         "stint_table_replaced_total"},
        {true, COUNT_CLOCK_STEP, offsetof(struct stint_stats, clock_steps),
         "stint_table_clock_steps_total"},
        {true, COUNT_STRAY, offsetof(struct stint_stats, stray_tokens),
         "stint_table_stray_tokens_total"},
        {true, COUNT_UNKNOWN_POLICY, offsetof(struct stint_stats, unknown_policy),
         "stint_table_unknown_policy_decisions_total"},
        {true, COUNT_BAD_REQUEST, offsetof(struct stint_stats, bad_requests),
         "stint_table_bad_requests_total"},
        {true, COUNT_RESET, offsetof(struct stint_stats, resets), "stint_table_resets_total"},
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
    stint_close(limiter);
}

/* The longest numbers and names there are. */
TEST(test_longest) {
    struct stint_limiter *limiter = open_limiter(10, STINT_FULL_ADMIT);
    char name[STINT_NAME_SIZE] = {0};
    memset(name, '\\', sizeof name - 1);
    uint32_t policy = add_policy(limiter, name, STINT_LIMIT_MAX, 366 * DAY - 10 * MS, 0, 0);
    for (uint32_t counter = COUNT_ALLOWED; counter <= COUNT_REFUNDED; counter++)
        limiter->counters[policy].count[counter] = UINT64_MAX;
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
