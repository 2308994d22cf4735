/* SPDX-License-Identifier: MIT
 * The text notation of policies. The input is the text. It is refused at one of its characters, or
 * it is a policy that comes back from its own text, and that a limiter takes. */

#include <errno.h>

#include "policy_text.h"

static void check_refused(const char *text, const char *wrong, const struct stint_policy *policy) {
    struct stint_policy untouched = STINT_POLICY_INIT;
    assert(wrong >= text && wrong <= text + strlen(text));
    assert(stint_reason()[0] != '\0');
    for (const char *at = stint_reason(); *at != '\0'; at++) /* of the text only words */
        assert(*at >= ' ' && *at <= '~');
    assert(memcmp(policy, &untouched, sizeof untouched) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = exact_text(data, size);
    struct stint_policy policy = STINT_POLICY_INIT, again = STINT_POLICY_INIT;
    const char *wrong = NULL;
    int error = stint_policy_parse(text, &policy, &wrong);
    assert(stint_policy_parse(text, &again, NULL) == error);
    assert(memcmp(&policy, &again, sizeof policy) == 0);
    if (error != 0) {
        assert(error == -EINVAL);
        check_refused(text, wrong, &policy);
    } else {
        assert(wrong == NULL);
        check_policy_text(&policy);
        check_policy_taken(&policy);
    }
    free(text);
    return 0;
}
