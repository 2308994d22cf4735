/* SPDX-License-Identifier: MIT
 * For stint_override, stint_override_get and stint_override_clear. It prints:
 *
 *     for a week her limit is 500: 499 left
 *     until midnight it is 900
 *     it is that of all again: 8 left
 *     the key has no override
 */
#include <stdio.h>
#include <stint.h>

static bool tell(void *context, const struct stint_entry *entry) {
    (void)context;
    if ((entry->flags & STINT_ENTRY_OVERRIDE) != 0)
        printf("until midnight it is %u\n", (unsigned)entry->limit);
    return true;
}

int main(void) {
    const uint64_t day = 86400000000000; /* ns */
    struct stint_options options = STINT_OPTIONS_INIT;
    struct stint_limiter *limiter;
    struct stint_policy policy = STINT_POLICY_INIT;
    struct stint_verdict verdict;
    uint32_t api, limit;

    options.max_entries = 100000;
    if (stint_open(&options, &limiter) != 0 ||
        stint_policy_parse("10/day name=api overrides", &policy, NULL) != 0 ||
        stint_policy_add(limiter, &policy, &api) != 0) {
        fprintf(stderr, "%s\n", stint_reason());
        return 1;
    }
    stint_key ann = stint_key_of(limiter, "ann", 3);
    if (stint_override(limiter, api, ann, 500, stint_now(limiter) + 7 * day) != 0 ||
        stint_override_get(limiter, api, ann, &limit, NULL) != 0) {
        fprintf(stderr, "%s\n", stint_reason());
        return 1;
    }
    stint_take(limiter, api, ann, 1, STINT_NOW, &verdict);
    printf("for a week her limit is %u: %u left\n", limit, verdict.remaining);

    const uint64_t midnight = (stint_now(limiter) / day + 1) * day;
    if (stint_override(limiter, api, ann, 900, midnight) != 0 ||
        stint_each_of(limiter, ann, tell, NULL) != 0 ||
        stint_override_clear(limiter, api, ann) != 0)
        return 1;
    stint_take(limiter, api, ann, 1, STINT_NOW, &verdict);
    printf("it is that of all again: %u left\n", verdict.remaining);
    if (stint_override_clear(limiter, api, ann) != 0)
        printf("%s\n", stint_reason());
    stint_close(limiter);
    return 0;
}
