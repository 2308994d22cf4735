/* SPDX-License-Identifier: MIT
 * Step 1 of a decision: key bytes -> keyed 64-bit hash. The only user of xxHash. */
#include <stint.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "limiter.h"

static_assert(STINT_SECRET_SIZE >= JOIN_SECRET_OFFSET + XXH3_SECRET_SIZE_MIN,
              "the part of the secret that joins keys is long enough for XXH3");

/* 0 is STINT_KEY_GLOBAL. One hash in 2^64 moves over. */
static inline stint_key not_global(uint64_t hash) {
    return hash + (hash == 0);
}

/* Out of line, so that short keys, for which XXH3 is a dozen instructions, need no stack. */
static __attribute__((noinline)) stint_key key_of_long(const struct stint_limiter *limiter,
                                                       const void *bytes, size_t length) {
    return not_global(XXH3_64bits_withSecret(bytes, length, limiter->secret, STINT_SECRET_SIZE));
}

stint_key stint_key_of(const struct stint_limiter *limiter, const void *bytes, size_t length) {
    if (length > 16)
        return key_of_long(limiter, bytes, length);
    return not_global(XXH3_64bits_withSecret(bytes, length, limiter->secret, STINT_SECRET_SIZE));
}

/* The part is hashed as a key of its own, and then the two hashes as one key of 16 bytes: so that
 * no two ways of cutting the same bytes into parts agree. Another part of the secret keeps joined
 * keys apart from keys of 16 bytes that a caller may have made up. */
stint_key stint_key_join(const struct stint_limiter *limiter, stint_key key, const void *bytes,
                         size_t length) {
    const uint64_t pair[2] = {key, stint_key_of(limiter, bytes, length)};
    return not_global(XXH3_64bits_withSecret(pair, sizeof(pair),
                                             limiter->secret + JOIN_SECRET_OFFSET,
                                             STINT_SECRET_SIZE - JOIN_SECRET_OFFSET));
}
