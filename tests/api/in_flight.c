/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * In-flight policies (STINT_IN_FLIGHT): what is held at once, given back in any order by anybody,
 * and forgotten by itself if nobody does. */
#include "children.h"
#include "told.h"

/* ---- What is told of it ---------------------------------------------------------------------- */

static bool tell(void *context, const struct stint_entry *entry) {
    *(uint64_t *)context += entry->used;
    return true;
}

TEST_OF(test_told, 100, STINT_FULL_REFUSE, "5/minute in-flight") {
    uint64_t used = 0;
    (void)ask(limiter, id, 7, 2, 0);
    test_time += MINUTE;
    (void)ask(limiter, id, 7, 1, 0);
    assert_int_equal(stint_each(limiter, tell, &used), 0);
    assert_int_equal(used, 3);
    test_time += 2 * MINUTE - 1;
    used = 0;
    assert_int_equal(stint_each(limiter, tell, &used), 0);
    assert_int_equal(used, 1);
    assert_int_equal(get_stats(limiter).live, 1);
    test_time++;
    assert_int_equal(stint_each(limiter, tell, &used), 0);
    assert_int_equal(used, 1); /* none more */
    assert_int_equal(get_stats(limiter).live, 0);
}

/* ---- Windows that are left ------------------------------------------------------------------- */

/* A caller ahead by a window drops what was held since the one before; one by two windows, all. */
TEST(test_ahead) {
    for (uint64_t windows = 0; windows <= 2; windows++) {
        struct stint_limiter *limiter = open_limiter(100, STINT_FULL_REFUSE);
        uint32_t id = add_policy(limiter, "held", 9, 10 * SECOND, 0, STINT_IN_FLIGHT);
        test_time = T0;
        (void)ask(limiter, id, 7, 2, 0);
        test_time += 10 * SECOND;
        (void)ask(limiter, id, 7, 3, 0);
        assert_true(stint_take(limiter, id, 7, 1, test_time + windows * 10 * SECOND, NULL));
        assert_int_equal(used_of(limiter, id, 7), windows == 0 ? 6 : windows == 1 ? 4 : 1);
        stint_close(limiter);
    }
}

/* What was held by a policy that is replaced is not given back to the new one. */
TEST_OF(test_replaced, 100, STINT_FULL_REFUSE, "5/minute in-flight name=p") {
    uint32_t other;
    struct stint_verdict verdict = ask(limiter, id, 7, 5, 0);
    assert_int_equal(stint_policies_apply(limiter, "4/30s in-flight name=p", 0, NULL, NULL, NULL),
                     0);
    assert_int_equal(stint_policy_find(limiter, "p", &other), 0);
    assert_true(other != id);
    struct stint_verdict by_old_id = ask(limiter, id, 7, 4, 0);
    assert_int_equal(by_old_id.granted, 4);
    assert_int_equal(stint_refund(limiter, 7, &verdict, 5), 0);
    assert_int_equal(used_of(limiter, other, 7), 4);
    assert_int_equal(stint_refund(limiter, 7, &by_old_id, 5), 4);
    assert_int_equal(used_of(limiter, id, 7), 0);
}

/* A refund that gives nothing back of granted tokens is counted. */
TEST_OF(test_lost_refunds, 100, STINT_FULL_REFUSE, "5/minute in-flight") {
    struct stint_verdict verdict = ask(limiter, id, 7, 2, 0), copy = verdict, none = verdict;
    assert_int_equal(stint_refund(limiter, 7, &verdict, 0), 0);
    assert_int_equal(stint_refund(limiter, 7, &verdict, 2), 2);
    assert_int_equal(stint_refund(limiter, 7, &verdict, 2), 0); /* it has nothing to give */
    none.window = 0;                                            /* of a key without a slot */
    assert_int_equal(stint_refund(limiter, 7, &none, 2), 0);
    assert_int_equal(get_policy_stats(limiter, id).refunds_lost, 0);
    assert_int_equal(stint_refund(limiter, 7, &copy, 2), 0);
    assert_int_equal(get_policy_stats(limiter, id).refunds_lost, 1);
    verdict = ask(limiter, id, 7, 2, 0);
    test_time += 2 * MINUTE; /* the lease is over */
    assert_int_equal(ask(limiter, id, 7, 1, 0).used, 1);
    assert_int_equal(stint_refund(limiter, 7, &verdict, 2), 0);
    assert_int_equal(get_policy_stats(limiter, id).refunds_lost, 2);
}

/* "While (verdict.granted != 0) ends": also after the lease, after a reset, by a policy that was
 * replaced, and where the table was full. */
static unsigned given_back_in(struct stint_limiter *limiter, struct stint_verdict *v) {
    unsigned calls = 0;
    for (; v->granted != 0 && calls < 100; calls++)
        assert_true(stint_refund(limiter, 7, v, 1) <= 1);
    return calls;
}

TEST_OF(test_loops_that_give_back, 100, STINT_FULL_ADMIT, "9/minute in-flight name=p") {
    struct stint_verdict v = ask(limiter, id, 7, 3, 0);
    assert_int_equal(given_back_in(limiter, &v), 3);
    v = ask(limiter, id, 7, 3, 0);
    test_time = T0 + 3 * MINUTE;
    assert_int_equal(ask(limiter, id, 7, 1, 0).used, 1); /* the lease is over */
    assert_int_equal(given_back_in(limiter, &v), 1);
    v = ask(limiter, id, 7, 3, 0);
    stint_reset(limiter, id, 7);
    assert_int_equal(given_back_in(limiter, &v), 1);
    assert_int_equal(get_policy_stats(limiter, id).refunds_lost, 2);

    /* "It counts anew." The policy in its place tells of the refund that was lost. */
    v = ask(limiter, id, 7, 3, 0);
    assert_int_equal(stint_policies_apply(limiter, "9/2m in-flight name=p", 0, NULL, NULL, NULL),
                     0);
    struct stint_verdict again = ask(limiter, id, 7, 9, 0);
    assert_int_equal(again.granted, 9);
    assert_int_equal(given_back_in(limiter, &v), 1);
    assert_int_equal(get_policy_stats(limiter, id).refunds_lost, 1);
    assert_int_equal(given_back_in(limiter, &again), 9);

    v = (struct stint_verdict){.granted = 2, .flags = STINT_UNTRACKED, .policy = again.policy};
    assert_int_equal(given_back_in(limiter, &v), 1);
}

/* ---- Processes ------------------------------------------------------------------------------- */

/* Each of two processes gives back what the other holds. */
TEST(test_processes_release_each_other) {
    struct stint_options options = fixture_options(100, STINT_FULL_REFUSE);
    struct stint_limiter *limiter;
    size_t size = stint_memory_size(&options);
    assert_int_equal(stint_open_in(&options, shared_memory(size), size, &limiter), 0);
    uint64_t *window = shared_memory(sizeof *window); /* of what the child holds */
    uint32_t id = add_policy(limiter, "held", 3, MINUTE, 0, STINT_IN_FLIGHT);
    test_time = T0;
    const uint64_t parents = ask(limiter, id, 7, 2, 0).window;
    pid_t child = forked();
    if (child == 0) {
        struct stint_verdict verdict;
        bool good = refund_by(limiter, id, 7, 2, parents) == 2;
        test_time += MINUTE;
        good = good && stint_take(limiter, id, 7, 3, STINT_NOW, &verdict);
        *window = verdict.window;
        _exit(good ? 0 : 1);
    }
    assert_good(child);
    test_time += MINUTE;
    assert_false(ask(limiter, id, 7, 1, 0).allowed);
    assert_int_equal(refund_by(limiter, id, 7, 3, parents), 0);
    assert_int_equal(refund_by(limiter, id, 7, 3, *window), 3);
    assert_int_equal(ask(limiter, id, 7, 3, 0).granted, 3);
    stint_close(limiter);
}
