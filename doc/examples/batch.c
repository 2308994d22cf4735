/* SPDX-License-Identifier: MIT
 * For stint_now, stint_prefetch, stint_decide_batch and stint_decide_groups. It prints:
 *
 *     3 of 4 are granted
 *       ann: granted
 *       bob: granted
 *       ann: granted
 *       ann: refused
 *     1 of 2 groups is granted
 */
#include <stdio.h>
#include <stint.h>
#include <string.h>

int main(void) {
    static const char *const clients[4] = {"ann", "bob", "ann", "ann"};
    struct stint_options options = STINT_OPTIONS_INIT;
    struct stint_limiter *limiter;
    struct stint_policy policy = STINT_POLICY_INIT;
    struct stint_request requests[4];
    struct stint_verdict verdicts[4];
    uint32_t api;

    options.max_entries = 100000;
    if (stint_open(&options, &limiter) != 0 ||
        stint_policy_parse("2/day name=api", &policy, NULL) != 0 ||
        stint_policy_add(limiter, &policy, &api) != 0) {
        fprintf(stderr, "%s\n", stint_reason());
        return 1;
    }

    /* Each request is decided by itself. */
    for (int i = 0; i < 4; i++) {
        stint_key key = stint_key_of(limiter, clients[i], strlen(clients[i]));
        stint_prefetch(limiter, key); /* while the next one is read */
        requests[i] = (struct stint_request)STINT_REQUEST(api, key, 1);
    }
    uint64_t now = stint_now(limiter);
    printf("%zu of 4 are granted\n", stint_decide_batch(limiter, requests, 4, now, verdicts));
    for (int i = 0; i < 4; i++)
        printf("  %s: %s\n", clients[i], verdicts[i].allowed ? "granted" : "refused");

    /* Two groups: bob alone, and bob with ann, who has nothing left. */
    const struct stint_request grouped[3] = {requests[1], requests[1], requests[0]};
    const size_t sizes[2] = {1, 2};
    printf("%zu of 2 groups is granted\n",
           stint_decide_groups(limiter, grouped, 3, sizes, 2, now, verdicts));
    stint_close(limiter);
    return 0;
}
