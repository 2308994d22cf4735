/* SPDX-License-Identifier: MIT
 * Names that tests give keys (stint_label), so that a torn one shows. */
#ifndef STINT_TESTS_NAMED_H
#define STINT_TESTS_NAMED_H

#include <string.h>

#include "feature/labels.h"

enum { NAMES = 4 }; /* of each key */

/* The name of that number, from 1 on. No two have a word in common, not even the empty ones. */
static inline size_t name_of(uint64_t key, unsigned number, char bytes[STINT_LABEL_SIZE]) {
    static const size_t lengths[NAMES] = {STINT_LABEL_SIZE, 33, 17, 17};
    for (size_t i = 0; i < lengths[number - 1]; i++)
        bytes[i] = (char)(1 + mix(key, number * 64 + i) % 255);
    return lengths[number - 1];
}

static inline int name_key(struct stint_limiter *limiter, uint64_t key, unsigned number) {
    char bytes[STINT_LABEL_SIZE];
    const size_t length = name_of(key, number, bytes);
    return stint_label(limiter, (stint_key){key}, bytes, length);
}

/* The number of the name that a key is seen to have; 0: none, -1: one that it was never given. */
static inline int name_seen(const struct stint_limiter *limiter, uint64_t key, uint32_t *refused) {
    struct label_read read;
    char bytes[STINT_LABEL_SIZE];
    stint_label_read(limiter, key, &read);
    *refused = read.refused;
    if (read.length == 0)
        return 0;
    for (unsigned i = 1; i <= NAMES; i++)
        if (name_of(key, i, bytes) == read.length && memcmp(bytes, read.bytes, read.length) == 0)
            return (int)i;
    return -1;
}

#endif
