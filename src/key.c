/* SPDX-License-Identifier: MIT
 * Step 1 of a decision: key bytes -> keyed 64-bit hash. The only user of xxHash. */
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

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

/* The first bits of an address, and how many: the bytes that a key is made of. */
struct prefix {
    uint8_t family; /* 4 or 6; 0: another, and nothing more */
    uint8_t bits;
    uint8_t address[16];
};

/* Cuts an address off after its first bits (0: `usual`; more than `most` are `most`). What is past
 * them is no part of the key, which so is 6 bytes for all of IPv4, and 10 for a /64 of IPv6. */
static stint_key key_of_prefix(const struct stint_limiter *limiter, struct prefix *prefix,
                               unsigned bits, unsigned usual, unsigned most) {
    bits = bits == 0 ? usual : bits < most ? bits : most;
    prefix->bits = (uint8_t)bits;
    if (bits % 8 != 0)
        prefix->address[bits / 8] &= (uint8_t)(0xFF00 >> bits % 8);
    return stint_key_of(limiter, prefix, offsetof(struct prefix, address) + (bits + 7) / 8);
}

/* The caller's address may be any bytes of a buffer, aligned for nothing: it is copied field by
 * field, and no further than its family goes. */
stint_key stint_key_address(const struct stint_limiter *limiter, const struct sockaddr *address,
                            unsigned prefix4, unsigned prefix6) {
    static const uint8_t mapped[12] = {[10] = 0xFF, [11] = 0xFF}; /* ::ffff:0:0/96 */
    const char *bytes = (const char *)address;
    struct prefix prefix = {0};
    sa_family_t family;

    memcpy(&family, bytes + offsetof(struct sockaddr, sa_family), sizeof(family));
    if (family == AF_INET) {
        prefix.family = 4;
        memcpy(prefix.address, bytes + offsetof(struct sockaddr_in, sin_addr), 4);
    } else if (family == AF_INET6) {
        prefix.family = 6;
        memcpy(prefix.address, bytes + offsetof(struct sockaddr_in6, sin6_addr), 16);
        if (memcmp(prefix.address, mapped, sizeof(mapped)) == 0) {
            prefix.family = 4;
            memcpy(prefix.address, prefix.address + sizeof(mapped), 4);
        }
    }
    if (prefix.family == 4)
        return key_of_prefix(limiter, &prefix, prefix4, 32, 32);
    if (prefix.family == 6)
        return key_of_prefix(limiter, &prefix, prefix6, 64, 128);
    return stint_key_of(limiter, &prefix, offsetof(struct prefix, address));
}
