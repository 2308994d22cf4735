/* SPDX-License-Identifier: MIT
 * For stint_decide, stint_refund, stint_reset and stint_request_check. It prints:
 *
 *     a look at 8: they fit, 0 used
 *     8 asked for: 8 granted, 2 left
 *     8 or what is left: 2 granted, 0 left
 *     2 given back
 *     after a reset: 10 left
 *     a slip: STINT_CHARGE does not go with STINT_DRAIN: leave one of the two out
 */
#include <stdio.h>
#include <stint.h>

int main(void) {
    struct stint_options options = STINT_OPTIONS_INIT;
    struct stint_limiter *limiter;
    struct stint_policy policy = STINT_POLICY_INIT;
    struct stint_verdict verdict;
    uint32_t daily;

    options.max_entries = 100000;
    if (stint_open(&options, &limiter) != 0 ||
        stint_policy_parse("10/day name=daily", &policy, NULL) != 0 ||
        stint_policy_add(limiter, &policy, &daily) != 0) {
        fprintf(stderr, "%s\n", stint_reason());
        return 1;
    }
    struct stint_request request = STINT_REQUEST(daily, stint_key_of(limiter, "ann", 3), 8);

    request.flags = STINT_PEEK;
    bool fits = stint_decide(limiter, &request, STINT_NOW, &verdict);
    printf("a look at 8: %s, %u used\n", fits ? "they fit" : "too many", verdict.used);

    request.flags = 0;
    stint_decide(limiter, &request, STINT_NOW, &verdict);
    printf("8 asked for: %u granted, %u left\n", verdict.granted, verdict.remaining);

    request.flags = STINT_PARTIAL;
    stint_decide(limiter, &request, STINT_NOW, &verdict);
    printf("8 or what is left: %u granted, %u left\n", verdict.granted, verdict.remaining);

    /* The work was not done. */
    printf("%u given back\n", stint_refund(limiter, request.key, &verdict, verdict.granted));

    stint_reset(limiter, daily, request.key);
    request.flags = STINT_PEEK;
    stint_decide(limiter, &request, STINT_NOW, &verdict);
    printf("after a reset: %u left\n", verdict.remaining);

    request.flags = STINT_CHARGE | STINT_DRAIN;
    if (stint_request_check(limiter, &request) != 0)
        printf("a slip: %s\n", stint_reason());
    stint_close(limiter);
    return 0;
}
