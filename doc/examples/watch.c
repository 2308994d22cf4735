/* SPDX-License-Identifier: MIT
 * For stint_stats_get, stint_policy_stats_get, stint_each, stint_each_of, stint_label,
 * stint_metrics and stint_version. It prints:
 *
 *     all keys: ann used 2
 *     one key: ann used 2
 *     1 live slot, 2 granted, 3 refused
 *     metrics end with # EOF
 *     version 0... of the header, 0... of the library
 */
#include <stdio.h>
#include <stint.h>
#include <string.h>

static bool show(void *context, const struct stint_entry *entry) {
    printf("%s: %.*s used %llu\n", (const char *)context, (int)entry->label_length,
           entry->label != NULL ? entry->label : "", (unsigned long long)entry->used);
    return true; /* go on */
}

int main(void) {
    struct stint_options options = STINT_OPTIONS_INIT;
    struct stint_limiter *limiter;
    struct stint_policy policy = STINT_POLICY_INIT;
    struct stint_stats stats = STINT_STATS_INIT;
    struct stint_policy_stats counts = STINT_POLICY_STATS_INIT;
    struct stint_verdict verdict;
    uint32_t api;
    char metrics[10000];

    options.max_entries = 100000;
    options.labels = 1000;
    if (stint_open(&options, &limiter) != 0 ||
        stint_policy_parse("2/day name=api", &policy, NULL) != 0 ||
        stint_policy_add(limiter, &policy, &api) != 0) {
        fprintf(stderr, "%s\n", stint_reason());
        return 1;
    }
    stint_key ann = stint_key_of(limiter, "ann", 3);
    for (int i = 0; i < 5; i++)
        if (!stint_take(limiter, api, ann, 1, STINT_NOW, &verdict) &&
            (verdict.flags & STINT_FIRST_REFUSAL) != 0)
            stint_label(limiter, ann, "ann", 3); /* and into the log */

    if (stint_each(limiter, show, "all keys") != 0 ||
        stint_each_of(limiter, ann, show, "one key") != 0 ||
        stint_stats_get(limiter, &stats) != 0 ||
        stint_policy_stats_get(limiter, api, &counts) != 0 ||
        stint_metrics(limiter, NULL, metrics, sizeof(metrics)) >= (int)sizeof(metrics))
        return 1;
    printf("%llu live slot, %llu granted, %llu refused\n", (unsigned long long)stats.live,
           (unsigned long long)counts.allowed, (unsigned long long)counts.refused);
    printf("metrics end with %s", strstr(metrics, "# EOF"));
    printf("version %d... of the header, %.1s... of the library\n", STINT_VERSION_MAJOR,
           stint_version());
    stint_close(limiter);
    return 0;
}
