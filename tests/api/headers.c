/* SPDX-License-Identifier: MIT
 * The fields that tell a client about its limits: their exact text, and of which verdict. (Of
 * decisions, case by case: features.c. Any names, verdicts and times, read back by the grammar of
 * RFC 9651, and buffers of all sizes: fuzz target `policy`.) */
#include "fixture.h"

static struct stint_limiter *limiter;

static int set_up(void **state) {
    (void)state;
    limiter = open_limiter(100, STINT_FULL_ADMIT);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    stint_close(limiter);
    return 0;
}

enum { RETRY, DRAFT = STINT_HEADERS_DRAFT, LEGACY = STINT_HEADERS_LEGACY, BOTH = DRAFT | LEGACY };

static void assert_text(uint32_t style, const uint32_t *policies,
                        const struct stint_verdict *verdicts, size_t n, const char *expected) {
    struct stint_verdict by[2];
    char text[STINT_HEADERS_SIZE(2)];
    for (size_t i = 0; i < n; i++) {
        by[i] = verdicts[i];
        by[i].policy = policies[i];
    }
    assert_int_equal(stint_headers(limiter, style, by, n, text, sizeof text), strlen(expected));
    assert_string_equal(text, expected);
}

static struct stint_verdict granted(uint32_t capacity, uint32_t used, uint64_t reset_after) {
    return (struct stint_verdict){.allowed = true,
                                  .capacity = capacity,
                                  .used = used,
                                  .remaining = capacity - used,
                                  .granted = 1,
                                  .window = T0 + reset_after,
                                  .reset_after = reset_after};
}

static struct stint_verdict refused(uint32_t capacity, uint64_t reset_after, uint64_t retry_after) {
    struct stint_verdict verdict = granted(capacity, capacity, reset_after);
    verdict.allowed = false;
    verdict.granted = 0;
    verdict.retry_after = retry_after;
    return verdict;
}

/* ---- Exact text ----------------------------------------------------------------------------- */

/* What is held at once has no reset, and nobody knows when it is given back. */
TEST_WITH(test_in_flight, set_up, tear_down) {
    const uint32_t policies[] = {add_policy(limiter, "conns", 10, MINUTE, 0, STINT_IN_FLIGHT),
                                 add_policy(limiter, "permin", 50, MINUTE, 0, 0)};
    struct stint_verdict verdicts[] = {refused(10, 30 * SECOND, 90 * SECOND),
                                       granted(50, 8, 12 * SECOND)};
    assert_text(DRAFT, policies, verdicts, 1,
                "RateLimit-Policy: \"conns\";q=10;qu=\"concurrent-requests\"\r\n"
                "RateLimit: \"conns\";r=0\r\n");
    assert_text(LEGACY, policies, verdicts, 1, "");
    assert_text(BOTH, policies, verdicts, 2,
                "RateLimit-Policy: \"conns\";q=10;qu=\"concurrent-requests\", "
                "\"permin\";q=50;w=60\r\n"
                "RateLimit: \"conns\";r=0, \"permin\";r=42;t=12\r\n"
                "X-RateLimit-Limit: 50\r\nX-RateLimit-Remaining: 42\r\n"
                "X-RateLimit-Reset: 1704067212\r\n");
    /* Both refused: the rate tells when to come back. */
    verdicts[1] = refused(50, 12 * SECOND, 12 * SECOND);
    assert_text(RETRY, policies, verdicts, 2, "Retry-After: 12\r\n");
    verdicts[0].retry_after = STINT_NEVER; /* more than can ever be held */
    assert_text(RETRY, policies, verdicts, 2, "");
}

/* Refused first, with tokens left too, the cost being more; then the fewest left, then the latest
 * end. (BerriAI/litellm#4314, BerriAI/litellm#8392, Instawork/llm-proxy#40: another limit was named
 * than the one that refused.) */
TEST(test_tightest) {
    struct stint_verdict shadowed = refused(100, MINUTE, 0), untracked = granted(100, 100, MINUTE);
    struct stint_verdict refused_untracked = refused(100, 0, 0), dear = granted(100, 50, MINUTE);
    dear.allowed = false;
    shadowed.allowed = true, shadowed.flags = STINT_SHADOWED;
    untracked.flags = STINT_UNTRACKED, untracked.window = 0;
    refused_untracked.flags = STINT_UNTRACKED, refused_untracked.window = 0;
    /* Each says less than the one before. */
    const struct stint_verdict order[] = {
        refused(200, HOUR, 0),
        refused(100, MINUTE, 0),
        dear,
        refused_untracked,
        shadowed,
        granted(100, 100, MINUTE),
        granted(100, 99, HOUR),
        granted(100, 99, MINUTE),
        untracked,
    };
    enum { KINDS = sizeof order / sizeof order[0] };
    for (size_t first = 0; first < KINDS; first++) {
        struct stint_verdict turned[KINDS];
        for (size_t n = 1; n <= KINDS - first; n++)
            for (size_t turn = 0; turn < n; turn++) {
                for (size_t i = 0; i < n; i++)
                    turned[(i + turn) % n] = order[first + i];
                assert_int_equal(stint_tightest(turned, n), turn);
            }
    }
    assert_int_equal(stint_tightest(NULL, 0), 0);
}

/* ---- Arguments ------------------------------------------------------------------------------ */

/* Verdicts that no policy decided, or whose policy is gone, are told of by nobody. */
TEST_WITH(test_of_no_policy, set_up, tear_down) {
    static const uint32_t unknown[] = {1, 63, 64, 65535, UINT32_MAX};
    const uint32_t p = add_policy(limiter, "p", 3, MINUTE, 0, 0);
    struct stint_verdict verdict = granted(1, 1, SECOND);
    char buffer[STINT_HEADERS_SIZE(2)];
    (void)stint_take(limiter, 7, 7, 1, STINT_NOW, &verdict);
    assert_true((verdict.flags & STINT_UNKNOWN_POLICY) != 0 && verdict.policy == UINT32_MAX);
    assert_int_equal(stint_headers(limiter, BOTH, &verdict, 1, buffer, sizeof buffer), 0);
    struct stint_verdict both[] = {refused(1, SECOND, SECOND), granted(3, 1, SECOND)};
    both[1].policy = p;
    for (size_t j = 0; j < sizeof unknown / sizeof unknown[0]; j++) {
        both[0].policy = unknown[j];
        assert_true(stint_headers(limiter, DRAFT, both, 2, buffer, sizeof buffer) > 0);
        assert_string_equal(buffer,
                            "RateLimit-Policy: \"p\";q=3;w=60\r\nRateLimit: \"p\";r=2;t=1\r\n");
    }
    assert_int_equal(stint_policy_remove(limiter, p), 0);
    assert_int_equal(stint_headers(limiter, BOTH, both, 2, buffer, sizeof buffer), 0);
    assert_string_equal(buffer, "");
}

TEST_WITH(test_errors, set_up, tear_down) {
    (void)add_policy(limiter, "p", 1, SECOND, 0, 0);
    const struct stint_verdict verdict = granted(1, 1, SECOND);
    for (uint32_t style = RETRY; style <= BOTH; style += DRAFT) {
        char buffer[8] = "before";
        assert_int_equal(stint_headers(limiter, style, &verdict, SIZE_MAX, buffer, 8), -EINVAL);
        assert_reason("n is");
        assert_string_equal(buffer, "before");
        assert_int_equal(stint_headers(limiter, style, &verdict, 0, buffer, 8), 0);
        assert_string_equal(buffer, "");
    }
}
