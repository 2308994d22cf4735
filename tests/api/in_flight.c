/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * In-flight policies (STINT_IN_FLIGHT): what is held at once, given back in any order by anybody,
 * and forgotten by itself if nobody does. */
#include "children.h"
#include "script.h"
#include "told.h"

/* ---- Case by case ---------------------------------------------------------------------------- */

#define HOLDS STINT_IN_FLIGHT

/* clang-format off */
static const struct script scripts[] = {
    {"in flight: held, given back, held again",
     policy(W, .limit = 3, .flags = HOLDS), {
        ok(T0, 1, 0, 0, 0, 3, 1, 1, E),
        ok(T0 + SECOND, 2, 0, 0, 0, 3, 3, 2, E),
        no(T0 + 2 * SECOND, 1, 0, 0, FIRST, 3, 3, E, 118 * SECOND),
        no(T0 + 2 * SECOND, 1, 0, 0, 0, 3, 3, E, 118 * SECOND),
        refund(1, E, 1),
        ok(T0 + 2 * SECOND, 1, 0, 0, 0, 3, 3, 1, E),
        refund(2, E, 2),
        ok(T0 + 3 * SECOND, 2, 0, 0, 0, 3, 3, 2, E),
        no(T0 + 3 * SECOND, 1, 0, 0, 0, 3, 3, E, 117 * SECOND),
        refund(3, E, 3),
        refund(1, E, 0),
        ok(T0 + 3 * SECOND, 0, 0, PEEK, 0, 3, 0, 0, E),
        ok(T0 + 4 * SECOND, 3, 0, 0, 0, 3, 3, 3, E)}},
    /* BerriAI/litellm#20256, BerriAI/litellm#1477, apache/apisix#12872,
     * openresty/lua-resty-limit-traffic#73 */
    {"in flight: all of it counts until the end of the next window, and nothing after that",
     policy(W, .limit = 3, .flags = HOLDS), {
        ok(T0, 2, 0, 0, 0, 3, 2, 2, E),
        ok(E, 0, 0, PEEK, 0, 3, 2, 0, E2),
        ok(E2 - 1, 0, 0, PEEK, 0, 3, 2, 0, E2),
        ok(E2 - 1, 1, 0, 0, 0, 3, 3, 1, E2),
        no(E2 - 1, 1, 0, 0, FIRST, 3, 3, E2, 1),
        ok(E2, 0, 0, PEEK, 0, 3, 1, 0, E2 + W),
        ok(E2, 2, 0, 0, 0, 3, 3, 2, E2 + W),
        refund(2, E, 0),
        no(E2, 1, 0, 0, FIRST, 3, 3, E2 + W, 60 * SECOND),
        ok(E2 + 3 * W, 3, 0, 0, 0, 3, 3, 3, E2 + 4 * W),
        ok(E2 + 20 * W, 3, 0, 0, 0, 3, 3, 3, E2 + 21 * W)}},
    {"in flight: given back to the window in which it was taken, in any order",
     policy(W, .limit = 5, .flags = HOLDS), {
        ok(T0, 3, 0, 0, 0, 5, 3, 3, E),
        ok(E, 2, 0, 0, 0, 5, 5, 2, E2),
        refund(1, E, 1),
        refund(9, E2, 2),
        ok(E, 0, 0, PEEK, 0, 5, 2, 0, E2),
        refund(9, E, 2),
        refund(1, E, 0),
        refund(1, E2, 0),
        refund(1, T0, 0),
        refund(1, 0, 0),
        ok(E, 5, 0, 0, 0, 5, 5, 5, E2)}},
    {"in flight: the wait is for what is in the way to be forgotten",
     policy(W, .limit = 5, .flags = HOLDS), {
        ok(T0, 3, 0, 0, 0, 5, 3, 3, E),
        ok(E + 10 * SECOND, 2, 0, 0, 0, 5, 5, 2, E2),
        no(E + 10 * SECOND, 3, 0, 0, FIRST, 5, 5, E2, 50 * SECOND),
        no(E + 10 * SECOND, 4, 0, 0, 0, 5, 5, E2, 110 * SECOND),
        no(E + 10 * SECOND, 6, 0, 0, 0, 5, 5, E2, STINT_NEVER),
        ok(E2, 3, 0, 0, 0, 5, 5, 3, E2 + W)}},
    {"in flight: PARTIAL, PEEK, RESERVE, a limit of this call's own",
     policy(W, .limit = 5, .flags = HOLDS), {
        ok(T0, 3, 0, 0, 0, 5, 3, 3, E),
        ok(T0, 4, 0, PARTIAL, 0, 5, 5, 2, E),
        no(T0, 4, 0, PARTIAL, FIRST, 5, 5, E, 120 * SECOND),
        no(T0, 1, 0, PEEK, 0, 5, 5, E, 120 * SECOND),
        no(T0, 1, 0, RESERVE, 0, 5, 5, E, 120 * SECOND),
        ok(T0, 1, 6, 0, 0, 6, 6, 1, E),
        no(T0, 0, 0, 0, 0, 5, 6, E, 120 * SECOND),
        refund(2, E, 2),
        no(T0, 1, 4, 0, 0, 4, 4, E, 120 * SECOND),
        ok(T0, 16383 - 4, 99999, 0, 0, 16383, 16383, 16383 - 4, E),
        ok(E, 0, 16383, PEEK, 0, 16383, 16383, 0, E2),
        refund(16383, E, 16383)}},
    {"in flight: a limit that is changed",
     policy(W, .limit = 4, .flags = HOLDS), {
        ok(T0, 4, 0, 0, 0, 4, 4, 4, E),
        change(2, 0, 0),
        no(T0, 1, 0, 0, FIRST, 2, 4, E, 120 * SECOND),
        refund(2, E, 2),
        no(E, 1, 0, 0, FIRST, 2, 2, E2, 60 * SECOND),
        refund(1, E, 1),
        ok(E, 1, 0, 0, 0, 2, 2, 1, E2),
        change(6, 0, 0),
        ok(E, 4, 0, 0, 0, 6, 6, 4, E2)}},
    {"in flight: SHADOW holds nothing of what it would have refused",
     policy(W, .limit = 2, .flags = HOLDS | STINT_SHADOW), {
        ok(T0, 2, 0, 0, 0, 2, 2, 2, E),
        wait(T0, 1, 0, FIRST | SHADOWED, 2, 2, 0, E, 120 * SECOND),
        refund(1, E, 1),
        ok(T0, 1, 0, 0, 0, 2, 2, 1, E)}},
    {"in flight: near the limit",
     policy(W, .limit = 10, .near_limit = 50, .flags = HOLDS), {
        ok(T0, 5, 0, 0, 0, 10, 5, 5, E),
        ok(E, 1, 0, 0, NEAR, 10, 6, 1, E2),
        refund(1, E, 1),
        ok(E, 0, 0, PEEK, 0, 10, 5, 0, E2)}},
    {"in flight: a late caller holds in the window that has begun",
     policy(W, .limit = 3, .flags = HOLDS), {
        ok(T0, 1, 0, 0, 0, 3, 1, 1, E),
        ok(E, 1, 0, 0, 0, 3, 2, 1, E2),
        ok(E - 10 * SECOND, 1, 0, 0, 0, 3, 3, 1, E2),
        no(E - 10 * SECOND, 1, 0, 0, FIRST, 3, 3, E2, 70 * SECOND),
        refund(1, E, 1),
        refund(2, E2, 2),
        ok(E, 0, 0, PEEK, 0, 3, 0, 0, E2)}},
    {"in flight: reset frees all",
     policy(W, .limit = 3, .flags = HOLDS), {
        ok(T0, 1, 0, 0, 0, 3, 1, 1, E),
        ok(E, 2, 0, 0, 0, 3, 3, 2, E2),
        reset(),
        refund(1, E, 0),
        ok(E, 3, 0, 0, 0, 3, 3, 3, E2)}},
    {"in flight: the largest limit, the longest lease",
     policy(366 * DAY, .limit = 16383, .flags = HOLDS), {
        ok(0 * T0 + 366 * DAY, 16383, 0, 0, 0, 16383, 16383, 16383, 732 * DAY),
        no(732 * DAY, 1, 0, 0, FIRST, 16383, 16383, 1098 * DAY, 366 * DAY),
        no(732 * DAY, 16383, 0, 0, 0, 16383, 16383, 1098 * DAY, 366 * DAY),
        ok(1098 * DAY, 16383, 0, 0, 0, 16383, 16383, 16383, 1464 * DAY)}},
};
/* clang-format on */

TEST(test_scripts) {
    size_t verdicts = play_scripts(scripts, sizeof scripts / sizeof scripts[0]);
    print_message("%zu scripts, %zu verdicts\n", sizeof scripts / sizeof scripts[0], verdicts);
}

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
