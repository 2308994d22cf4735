/* SPDX-License-Identifier: MIT
 * Each way of take.c and group.c answers the requests that it is for. One that leaves them to the
 * next way gives the same answers, and is slower: nothing else would tell. */
#include "fixture.h"

#include "sys/testing.h"

static char told[512]; /* the ways that were gone, with + behind those that answered */

static void way_tell(const char *way, int answer) {
    const size_t length = strlen(told);
    (void)snprintf(told + length, sizeof told - length, "%s%s%s", length == 0 ? "" : " ", way,
                   answer == 2 ? "" : "+"); /* NEXT */
}

enum { CALL_TAKE, CALL_DECIDE, CALL_ALL, CALL_BATCH };

struct row {
    const char *policy; /* and, of a group, that of its second part */
    const char *second;
    const char *ways;
    uint32_t call, cost, flags, limit;
    uint32_t before;   /* tokens that are asked for before; 0: the key has no slot */
    uint32_t override; /* of the key; 0: none */
    bool back;         /* one is used before, and given back */
};

static const struct row rows[] = {
    {"10/h", NULL, "take_hot+", CALL_TAKE, 1, 0, 0, 1, 0, false},
    {"10/h", NULL, "take_hot take_new+", CALL_TAKE, 1, 0, 0, 0, 0, false},
    {"10/h", NULL, "take_hot take_seen+", CALL_TAKE, 1, 0, 0, 10, 0, false},
    {"10/h", NULL, "take_tokens+", CALL_TAKE, 9, 0, 0, 1, 0, false},
    {"10/h", NULL, "take_tokens+", CALL_DECIDE, 1, 0, 2, 1, 0, false},
    {"10/h", NULL, "short_as+", CALL_DECIDE, 1, STINT_PEEK, 0, 1, 0, false},
    {"10/h", NULL, "short_as+", CALL_DECIDE, 1, STINT_PEEK, 0, 0, 0, false},
    {"10/h", NULL, "short_as+", CALL_DECIDE, 1, STINT_CHARGE, 0, 1, 0, false},
    {"10/h", NULL, "short_as+", CALL_DECIDE, 20, STINT_PARTIAL, 0, 1, 0, false},
    {"10/h", NULL, "take_at+", CALL_BATCH, 1, 0, 0, 1, 0, false},
    {"10/h capacity=20", NULL, "take_hot take_tokens+", CALL_TAKE, 1, 0, 0, 1, 0, false},
    {"10/h reserve=5", NULL, "short_as+", CALL_DECIDE, 1, STINT_RESERVE, 0, 1, 0, false},
    {"10/h burst=10", NULL, "take_hot take_bucket+", CALL_TAKE, 1, 0, 0, 1, 0, false},
    {"10/h burst=10", NULL, "take_bucket+", CALL_TAKE, 10, 0, 0, 0, 0, true},
    {"10/h burst=10", NULL, "take_hot take_bucket short_as+", CALL_TAKE, 1, 0, 0, 10, 0, false},
    {"10/h burst=10", NULL, "take_hot take_bucket+", CALL_TAKE, 1, 0, 0, 11, 0, false},
    {"10/h smooth", NULL, "take_hot short_as+", CALL_TAKE, 1, 0, 0, 1, 0, false},
    {"10/h in-flight", NULL, "take_hot short_as+", CALL_TAKE, 1, 0, 0, 1, 0, false},
    {"10/h start=first", NULL, "take_hot short_as+", CALL_TAKE, 1, 0, 0, 1, 0, false},
    {"10/h start=per-key", NULL, "take_hot short_as+", CALL_TAKE, 1, 0, 0, 1, 0, false},
    {"10/year", NULL, "take_hot short_as+", CALL_TAKE, 1, 0, 0, 1, 0, false},
    {"10/h overrides", NULL, "take_hot+", CALL_TAKE, 1, 0, 0, 1, 0, false},
    {"10/h overrides", NULL, "take_hot take_ruled+", CALL_TAKE, 1, 0, 0, 1, 9, false},
    {"10/h overrides burst=10", NULL, "take_hot take_ruled short_as+", CALL_TAKE, 1, 0, 0, 1, 0,
     false},
    {"16/h stripes=2", NULL, "take_hot stripe_take+", CALL_TAKE, 1, 0, 0, 1, 0, false},
    {"10/h", "20/d", "group_of_few+", CALL_ALL, 1, 0, 0, 1, 0, false},
    {"10/h", "20/h burst=20", "group_of_few group_of_many+", CALL_ALL, 1, 0, 0, 1, 0, false},
    {"20/h burst=20", "10/h burst=10", "group_of_many+", CALL_ALL, 9, 0, 0, 1, 0, false},
    {"10/h", "20/d", "group_of_many+", CALL_ALL, 5, 0, 0, 1, 0, false},
    {"10/h", "20/d", "group_of_many+", CALL_ALL, 1, 0, 5, 1, 0, false},
    {"10/h overrides", "20/d", "group_of_few group_of_many+", CALL_ALL, 1, 0, 0, 1, 9, false},
    {"10/h", "20/d smooth",
     "group_of_few group_of_many short_as+ short_as+ short_as+ short_as+ group_decide+", CALL_ALL,
     1, 0, 0, 1, 0, false},
};

static void row_run(const struct row *row) {
    struct stint_limiter *limiter = open_limiter(1000, STINT_FULL_REFUSE);
    const stint_key key = number_key(limiter, 7);
    const uint32_t cost = row->cost;
    struct stint_request both[2] = {STINT_REQUEST(0, key, cost), STINT_REQUEST(0, key, cost)};
    struct stint_verdict verdicts[2];

    both[0].flags = both[1].flags = row->flags;
    both[0].limit = both[1].limit = row->limit;
    for (unsigned i = 0; i < 2; i++) {
        const char *text = i == 0 ? row->policy : row->second;
        if (text == NULL)
            continue;
        const struct stint_policy policy = parsed(text);
        assert_int_equal(stint_policy_add(limiter, &policy, &both[i].policy), 0);
        if (i == 0 && row->override != 0)
            assert_int_equal(
                stint_override(limiter, both[i].policy, key, row->override, test_time + DAY), 0);
        for (uint32_t taken = 0; taken < row->before; taken++)
            assert_int_equal(stint_take(limiter, both[i].policy, key, 1, STINT_NOW, NULL),
                             taken < policy.limit);
    }
    if (row->back && stint_take(limiter, both[0].policy, key, 1, STINT_NOW, verdicts))
        assert_int_equal(stint_refund(limiter, key, verdicts, 1), 1);
    told[0] = '\0';
    stint_test_way = way_tell;
    if (row->call == CALL_TAKE)
        (void)stint_take(limiter, both[0].policy, key, cost, STINT_NOW, verdicts);
    else if (row->call == CALL_DECIDE)
        (void)stint_decide(limiter, both, STINT_NOW, verdicts);
    else if (row->call == CALL_BATCH)
        (void)stint_decide_batch(limiter, both, 1, STINT_NOW, verdicts);
    else
        (void)stint_decide_all(limiter, both, 2, STINT_NOW, verdicts);
    stint_test_way = NULL;
    stint_close(limiter);
}

TEST(test_each_answers_its_own) {
    unsigned wrong = 0;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        test_time = T0 + SECOND;
        row_run(&rows[i]);
        if (strcmp(told, rows[i].ways) != 0) {
            print_error("\"%s\", call %u, cost %u, row %zu: %s; not %s\n", rows[i].policy,
                        rows[i].call, rows[i].cost, i, told, rows[i].ways);
            wrong++;
        }
    }
    assert_int_equal(wrong, 0);
}
