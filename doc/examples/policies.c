/* SPDX-License-Identifier: MIT
 * For stint_policies_apply, stint_policy_find, stint_policy_get, stint_policy_format and
 * stint_policy_note. It prints:
 *
 *     at first, api: added
 *     at first, sms: added
 *     then, api: changed
 *     then, sms: removed
 *     in force: 200/minute name="api"
 *     hardly meant: ban= is shorter than the window: a ban that ends before that keeps nobody out
 */
#include <stdio.h>
#include <stint.h>

static void told(void *context, const struct stint_change *change) {
    static const char *const kinds[] = {"unchanged", "added", "changed", "replaced", "removed"};

    printf("%s%s: %s\n", (const char *)context, change->name, kinds[change->kind]);
}

int main(void) {
    struct stint_options options = STINT_OPTIONS_INIT;
    struct stint_limiter *limiter;
    struct stint_policy policy = STINT_POLICY_INIT;
    uint32_t api;
    char text[200];

    options.max_entries = 100000;
    if (stint_open(&options, &limiter) != 0)
        return 1;
    if (stint_policies_apply(limiter, "100/minute name=api\n5/day name=sms # dear\n", 0, NULL, told,
                             "at first, ") != 0 ||
        stint_policies_apply(limiter, "200/minute name=api\n", STINT_PRUNE, NULL, told, "then, ") !=
            0 ||
        stint_policy_find(limiter, "api", &api) != 0 ||
        stint_policy_get(limiter, api, &policy) != 0 ||
        stint_policy_format(&policy, text, sizeof(text)) < 0) {
        fprintf(stderr, "%s\n", stint_reason());
        return 1;
    }
    printf("in force: %s\n", text);

    policy.flags |= STINT_OVERRIDES;
    policy.ban = 1000000000;
    if (stint_policy_note(&policy, text, sizeof(text)) > 0)
        printf("hardly meant: %s\n", text);
    stint_close(limiter);
    return 0;
}
