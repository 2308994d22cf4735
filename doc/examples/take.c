/* SPDX-License-Identifier: MIT
 * For stint_open, stint_close, stint_policy_parse, stint_policy_add, stint_key_of, stint_take,
 * stint_strerror and stint_reason. It prints:
 *
 *     no such unit: an argument is out of range, contradictory, or of another version
 *     why: 'mintue' is no unit: minute was probably meant
 *     request 1: granted, 1 left
 *     request 2: granted, 0 left
 *     request 3: refused, 0 left
 */
#include <errno.h>
#include <stdio.h>
#include <stint.h>

int main(void) {
    struct stint_options options = STINT_OPTIONS_INIT;
    struct stint_limiter *limiter;
    struct stint_policy policy = STINT_POLICY_INIT;
    struct stint_verdict verdict;
    uint32_t api;

    options.max_entries = 100000;
    if (stint_open(&options, &limiter) != 0) {
        fprintf(stderr, "%s\n", stint_reason());
        return 1;
    }
    int error = stint_policy_parse("2/mintue", &policy, NULL);
    printf("no such unit: %s\n", stint_strerror(error));
    printf("why: %s\n", stint_reason());
    if (stint_policy_parse("2/day name=api", &policy, NULL) != 0 ||
        stint_policy_add(limiter, &policy, &api) != 0) {
        fprintf(stderr, "%s\n", stint_reason());
        return 1;
    }

    stint_key ann = stint_key_of(limiter, "ann", 3);
    for (int i = 1; i <= 3; i++) {
        bool granted = stint_take(limiter, api, ann, 1, STINT_NOW, &verdict);
        printf("request %d: %s, %u left\n", i, granted ? "granted" : "refused", verdict.remaining);
    }
    stint_close(limiter);
    return 0;
}
