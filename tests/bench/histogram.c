/* SPDX-License-Identifier: MIT
 * The histogram of stint-bench: exact bounds of its error, against sorted values. */
#include "../../bench/histogram.h"

#include <stdlib.h>
#include <string.h>

#include "random.h"
#include "test.h"

static struct histogram histogram, other;

static void empty(void **state) {
    (void)state;
    memset(&histogram, 0, sizeof(histogram));
    memset(&other, 0, sizeof(other));
}

static int setup(void **state) {
    empty(state);
    return 0;
}

/* What one value in the histogram, and a larger one to hide the maximum, comes out as. */
static uint64_t seen_as(uint64_t ns) {
    struct histogram *one = calloc(1, sizeof(*one));
    assert_non_null(one);
    histogram_add(one, ns);
    histogram_add(one, UINT64_MAX);
    uint64_t seen = histogram_percentile(one, 50);
    free(one);
    return seen;
}

TEST_WITH(test_empty, setup, NULL) {
    assert_int_equal(histogram_percentile(&histogram, 0), 0);
    assert_int_equal(histogram_percentile(&histogram, 50), 0);
    assert_int_equal(histogram_percentile(&histogram, 100), 0);
}

TEST_WITH(test_small_values_are_exact, setup, NULL) {
    for (uint64_t ns = 0; ns < 2 * HISTOGRAM_STEPS; ns++)
        assert_int_equal(seen_as(ns), ns);
    /* And the next one is the first that is not. */
    assert_int_equal(seen_as(2 * HISTOGRAM_STEPS), 2 * HISTOGRAM_STEPS + 1);
}

/* At every power of two: never too small, too large by less than 1 in STEPS, and as much as that
 * where a bucket begins. */
TEST_WITH(test_bounds_of_the_error, setup, NULL) {
    for (unsigned power = HISTOGRAM_STEP_BITS + 1; power < 64; power++) {
        uint64_t low = UINT64_C(1) << power, width = low >> HISTOGRAM_STEP_BITS;
        assert_int_equal(seen_as(low), low + width - 1);
        assert_int_equal(seen_as(low - 1), low - 1);
        assert_int_equal(seen_as(low + width - 1), low + width - 1);
        assert_int_equal(seen_as(low + width), low + 2 * width - 1);
        assert_int_equal(seen_as(low + (low - 1)), low + (low - 1));
    }
    struct random random = {test_seed()};
    for (int i = 0; i < 20000; i++) {
        uint64_t ns = random_next(&random) >> (random_next(&random) % 64);
        uint64_t seen = seen_as(ns);
        assert_true(seen >= ns);
        assert_true(seen - ns <= ns / HISTOGRAM_STEPS);
    }
}

TEST_WITH(test_the_largest_is_exact, setup, NULL) {
    histogram_add(&histogram, 5);
    histogram_add(&histogram, 1000001);
    assert_int_equal(histogram_percentile(&histogram, 100), 1000001);
    assert_int_equal(histogram_percentile(&histogram, 50), 5);
    assert_int_equal(histogram_percentile(&histogram, 51), 1000001);
    histogram_add(&histogram, UINT64_MAX);
    assert_true(histogram_percentile(&histogram, 100) == UINT64_MAX);
}

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static const double percents[] = {0, 1, 10, 50, 90, 99, 99.9, 99.99, 100};

/* Against the naive way: sort all values and count. */
TEST_WITH(test_percentiles_of_many_values, setup, NULL) {
    enum { VALUES = 20000 };
    struct random random = {test_seed()};
    uint64_t *values = malloc(VALUES * sizeof(*values));
    (void)state;
    assert_non_null(values);
    for (size_t n = 1; n <= VALUES; n = n * 3 + 1) {
        empty(state);
        for (size_t i = 0; i < n; i++) {
            values[i] = random_next(&random) >> (30 + random_next(&random) % 30);
            histogram_add(i % 2 == 0 ? &histogram : &other, values[i]);
        }
        histogram_merge(&histogram, &other); /* as good as one */
        assert_int_equal(histogram.count, n);
        qsort(values, n, sizeof(values[0]), compare);
        for (size_t i = 0; i < sizeof(percents) / sizeof(percents[0]); i++) {
            size_t rank = 1; /* the smallest with rank / n >= percent / 100 */
            while ((double)rank * 100 < percents[i] * (double)n * (1 - 1e-12))
                rank++;
            uint64_t right = values[rank - 1];
            uint64_t found = histogram_percentile(&histogram, percents[i]);
            assert_true(found >= right);
            assert_true(found - right <= right / HISTOGRAM_STEPS);
        }
        assert_int_equal(histogram_percentile(&histogram, 100), values[n - 1]);
    }
    free(values);
}

TEST_WITH(test_merging_nothing_changes_nothing, setup, NULL) {
    histogram_add(&histogram, 777);
    histogram_merge(&histogram, &other);
    assert_int_equal(histogram.count, 1);
    assert_int_equal(histogram_percentile(&histogram, 50), 777);
    histogram_merge(&other, &histogram);
    assert_int_equal(histogram_percentile(&other, 50), 777);
}
