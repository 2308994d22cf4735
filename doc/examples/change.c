/* SPDX-License-Identifier: MIT
 * For stint_policy_change, stint_policy_change_check and stint_policy_remove. It prints:
 *
 *     0 left
 *     raised to 25, and one taken: 14 left
 *     policy.window cannot change
 *     removed: it is unknown
 */
#include <stdio.h>
#include <stint.h>
#include <string.h>

int main(void) {
    struct stint_options options = STINT_OPTIONS_INIT;
    struct stint_limiter *limiter;
    struct stint_policy policy = STINT_POLICY_INIT;
    struct stint_verdict verdict;
    uint32_t api;

    options.max_entries = 100000;
    if (stint_open(&options, &limiter) != 0 ||
        stint_policy_parse("10/day name=api", &policy, NULL) != 0 ||
        stint_policy_add(limiter, &policy, &api) != 0) {
        fprintf(stderr, "%s\n", stint_reason());
        return 1;
    }
    stint_key ann = stint_key_of(limiter, "ann", 3);
    stint_take(limiter, api, ann, 10, STINT_NOW, &verdict);
    printf("%u left\n", verdict.remaining);

    policy.limit = 25;
    if (stint_policy_change(limiter, api, &policy) != 0)
        return 1;
    stint_take(limiter, api, ann, 1, STINT_NOW, &verdict);
    printf("raised to 25, and one taken: %u left\n", verdict.remaining);

    policy.window *= 7;
    if (stint_policy_change_check(limiter, api, &policy) != 0)
        printf("%.*s\n", (int)strcspn(stint_reason(), ":"), stint_reason());

    if (stint_policy_remove(limiter, api) != 0)
        return 1;
    stint_take(limiter, api, ann, 1, STINT_NOW, &verdict);
    printf("removed: %s\n", verdict.flags & STINT_UNKNOWN_POLICY ? "it is unknown" : "it is there");
    stint_close(limiter);
    return 0;
}
