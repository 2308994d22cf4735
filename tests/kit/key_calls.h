/* SPDX-License-Identifier: MIT
 * Each call that is about one key, by numbers: for tests that do something to the table at each of
 * its steps. What it answers may be anything, but where an assertion says so. */
#ifndef STINT_TESTS_KEY_CALLS_H
#define STINT_TESTS_KEY_CALLS_H

#include "hostile.h"

struct about {
    struct stint_limiter *limiter;
    uint32_t id;
    stint_key key, other;
    struct stint_verdict taken; /* of the key */
};

static const struct stint_request about_key[] = {
    {.cost = 1},
    {.cost = 3},
    {.cost = 100}, /* and is refused: a strike */
    {.cost = 2, .limit = 5},
    {.cost = 1, .flags = STINT_PEEK},
    {.cost = 2, .flags = STINT_PARTIAL},
    {.cost = 2, .flags = STINT_DRAIN},
    {.cost = 40, .flags = STINT_CHARGE},
    {.cost = 9, .flags = STINT_RESERVE | STINT_PARTIAL},
};
enum { ASKS = sizeof about_key / sizeof *about_key, CALLS_OF_KEY = ASKS + 15 };

static inline void call_of_key(const struct about *of, unsigned number) {
    struct stint_limiter *limiter = of->limiter;
    const uint32_t id = of->id;
    const stint_key key = of->key;
    struct stint_request one,
        requests[] = {STINT_REQUEST(id, key, 1), STINT_REQUEST(0, key, 1),
                      STINT_REQUEST(id, of->other, 2), STINT_REQUEST(id, key, 1)};
    struct stint_policy policy = STINT_POLICY_INIT;
    struct stint_verdict verdicts[4] = {of->taken};
    char text[400];
    if (number < ASKS) {
        one = about_key[number];
        one.key = key;
        one.policy = id;
        (void)stint_decide(limiter, &one, STINT_NOW, NULL);
    } else if (number == ASKS) {
        (void)stint_take(limiter, id, key, 1, STINT_NOW, NULL);
    } else if (number == ASKS + 1) {
        (void)stint_take(limiter, id, of->other, 1, STINT_NOW, NULL);
    } else if (number == ASKS + 2) {
        (void)stint_take(limiter, id, key, 1, test_time - HOUR, NULL);
    } else if (number == ASKS + 3) {
        (void)stint_decide_batch(limiter, requests, 4, STINT_NOW, NULL);
    } else if (number == ASKS + 4) {
        (void)stint_decide_all(limiter, requests, 2, STINT_NOW, NULL);
    } else if (number <= ASKS + 6) {
        requests[2].cost = number == ASKS + 5 ? 2 : 200; /* which is refused */
        const bool allowed = stint_decide_all(limiter, requests, 4, STINT_NOW, verdicts);
        for (unsigned i = 0; i < 4; i++)
            assert_true(verdicts[i].granted <= (allowed ? requests[i].cost : 0));
    } else if (number == ASKS + 7) {
        (void)stint_refund(limiter, key, verdicts, 1);
    } else if (number == ASKS + 8) {
        (void)stint_reset(limiter, id, key);
    } else if (number == ASKS + 9) {
        assert_true(stint_override(limiter, id, key, 3, test_time + HOUR) <= 0);
    } else if (number == ASKS + 10) {
        (void)stint_override_get(limiter, id, key, NULL, NULL);
    } else if (number == ASKS + 11) {
        (void)stint_override_clear(limiter, id, key);
    } else if (number == ASKS + 12) {
        uint64_t left = UINT64_MAX;
        (void)stint_each_of(limiter, key, assert_entry, &left);
    } else if (number == ASKS + 13) {
        assert_fields(limiter, verdicts);
    } else if (stint_policy_get(limiter, id, &policy) == 0) {
        assert_true(policy.calendar <= STINT_CALENDAR_YEAR && policy.window <= STINT_WINDOW_MAX &&
                    policy.window % STINT_TICK_NS == 0);
        (void)stint_policy_format(&policy, text, sizeof text);
    }
}

#endif
