/* SPDX-License-Identifier: MIT
 * For stint_decide_all, stint_refund_all, stint_tightest and stint_headers. It prints:
 *
 *     granted, 2 and 1 left
 *     2 given back
 *     granted, 2 and 1 left
 *     granted, 1 and 0 left
 *     refused, 1 and 0 left
 *     tightest: 2/366d name=year
 *     RateLimit-Policy: "day";q=3;w=86400, "year";q=2;w...
 */
#include <stdio.h>
#include <stint.h>

static const char *const limits[2] = {"3/day name=day", "2/366d name=year"};

int main(void) {
    struct stint_options options = STINT_OPTIONS_INIT;
    struct stint_limiter *limiter;
    struct stint_policy policy = STINT_POLICY_INIT;
    struct stint_verdict verdicts[2];
    uint32_t ids[2];
    char fields[STINT_HEADERS_SIZE(2)];

    options.max_entries = 100000;
    if (stint_open(&options, &limiter) != 0)
        return 1;
    for (int i = 0; i < 2; i++)
        if (stint_policy_parse(limits[i], &policy, NULL) != 0 ||
            stint_policy_add(limiter, &policy, &ids[i]) != 0)
            return 1;
    stint_key ann = stint_key_of(limiter, "ann", 3);
    const struct stint_request both[2] = {STINT_REQUEST(ids[0], ann, 1),
                                          STINT_REQUEST(ids[1], ann, 1)};
    for (int i = 0; i < 4; i++) {
        bool granted = stint_decide_all(limiter, both, 2, STINT_NOW, verdicts);
        printf("%s, %u and %u left\n", granted ? "granted" : "refused", verdicts[0].remaining,
               verdicts[1].remaining);
        if (i == 0) /* the work was not done */
            printf("%llu given back\n",
                   (unsigned long long)stint_refund_all(limiter, both, verdicts, 2));
    }
    printf("tightest: %s\n", limits[stint_tightest(verdicts, 2)]);

    if (stint_headers(limiter, STINT_HEADERS_DRAFT, verdicts, 2, fields, sizeof(fields)) > 0)
        printf("%.49s...\n", fields); /* of RateLimit-Policy, RateLimit and Retry-After */
    stint_close(limiter);
    return 0;
}
