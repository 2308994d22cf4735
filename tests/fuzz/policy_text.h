/* SPDX-License-Identifier: MIT
 * What holds for every valid policy. */
#ifndef STINT_TESTS_FUZZ_POLICY_TEXT_H
#define STINT_TESTS_FUZZ_POLICY_TEXT_H

#include "fuzz.h"
#include "policy_id.h"

#include <stint.h>

/* The whole text that `write(object, buffer, size)` writes as snprintf does; what it writes into
 * buffers that are too small is the beginning of it, and nothing behind them. */
static inline char *whole_text(int (*write)(const void *object, char *buffer, size_t size),
                               const void *object) {
    int length = write(object, NULL, 0);
    assert(length >= 0);
    size_t size = (size_t)length + 1;
    char *text = fuzz_malloc(size);
    assert(write(object, text, size) == length);
    assert(strlen(text) == (size_t)length);
    for (size_t cut = 0; cut < size; cut += cut < 100 ? 1 : 1 + 2 * cut) {
        char *part = fuzz_malloc(cut + 1);
        part[cut] = '\x5a';
        assert(write(object, part, cut) == length);
        assert(part[cut] == '\x5a');
        assert(cut == 0 || (strlen(part) == cut - 1 && memcmp(part, text, cut - 1) == 0));
        free(part);
    }
    return text;
}

static inline int write_policy(const void *policy, char *buffer, size_t size) {
    return stint_policy_format(policy, buffer, size);
}

static inline int write_note(const void *policy, char *buffer, size_t size) {
    return stint_policy_note(policy, buffer, size);
}

/* The same but for what may stand after its name. */
static inline bool same_policy(const struct stint_policy *one, const struct stint_policy *other) {
    struct stint_policy named = *one;
    memcpy(named.name, other->name, sizeof named.name);
    return strcmp(one->name, other->name) == 0 && memcmp(&named, other, sizeof named) == 0;
}

/* Its text is that of itself alone. */
static inline void check_policy_text(const struct stint_policy *policy) {
    struct stint_policy back = STINT_POLICY_INIT;
    char *text = whole_text(write_policy, policy);
    assert(stint_policy_parse(text, &back, NULL) == 0);
    assert(same_policy(&back, policy));
    free(text);
    free(whole_text(write_note, policy));
}

static inline struct stint_limiter *open_for(uint32_t max_policies) {
    struct stint_options options = STINT_OPTIONS_INIT;
    struct stint_limiter *limiter;
    options.max_entries = 8;
    options.max_policies = max_policies;
    options.flags = STINT_SMALL_PAGES;
    int error = stint_open(&options, &limiter);
    assert(error == 0);
    return limiter;
}

/* A limiter takes it, finds it by its name, and gives it back, with a name if it had none. */
static inline void check_policy_taken(const struct stint_policy *policy) {
    struct stint_limiter *limiter = open_for(2); /* it, and a companion */
    struct stint_policy got = STINT_POLICY_INIT, expected = *policy;
    assert(policy_added(limiter, policy) == 0);
    assert(stint_policy_get(limiter, 0, &got) == 0);
    assert(got.name[0] != '\0' && policy_found(limiter, got.name) == 0);
    if (expected.name[0] == '\0')
        memcpy(expected.name, got.name, sizeof got.name);
    if (expected.stripes == 1)
        expected.stripes = 0;
    assert(same_policy(&got, &expected));
    check_policy_text(&got);
    assert(stint_policy_change(limiter, 0, policy) == 0);
    stint_close(limiter);
}

#endif
