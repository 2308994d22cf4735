/* SPDX-License-Identifier: MIT
 * Before a decision: key bytes -> keyed 64-bit hash. The only user of xxHash. */
#include <endian.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "limiter/limiter.h"

/* The part of the secret that joins keys, and hashes ids, starts here. Of short keys XXH3 reads the
 * first 72 bytes of a secret: callers' keys, pairs and ids are hashed by different bytes. */
#define JOIN_SECRET_OFFSET 56
static_assert(STINT_SECRET_SIZE >= JOIN_SECRET_OFFSET + XXH3_SECRET_SIZE_MIN,
              "the part of the secret that joins keys is long enough for XXH3");

/* The global key has that hash alone. One in 2^64 moves over. */
static inline stint_key not_global(uint64_t hash) {
    return (stint_key){hash + (hash == STINT_KEY_GLOBAL_HASH)};
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

stint_key stint_key_of_id(const struct stint_limiter *limiter, uint64_t id) {
    return not_global(XXH3_64bits_withSecret(&id, sizeof(id), limiter->secret + JOIN_SECRET_OFFSET,
                                             STINT_SECRET_SIZE - JOIN_SECRET_OFFSET));
}

/* Both keys' hashes are hashed as 16 bytes: no two ways to cut bytes into parts agree. */
stint_key stint_key_join(const struct stint_limiter *limiter, stint_key key, const void *bytes,
                         size_t length) {
    const uint64_t pair[2] = {key.hash, stint_key_of(limiter, bytes, length).hash};
    return not_global(XXH3_64bits_withSecret(pair, sizeof(pair),
                                             limiter->secret + JOIN_SECRET_OFFSET,
                                             STINT_SECRET_SIZE - JOIN_SECRET_OFFSET));
}

/* An address is hashed as whole words: its family, the length of the prefix and the first bits. A
 * key of smaller parts, which the processor must join, took three times as long. */

/* The first bits of a word; `bits` is 1 to 64. */
static inline uint64_t first_bits(uint64_t word, unsigned bits) {
    return word & UINT64_MAX << (64 - bits);
}

static stint_key key_of_ipv4(const struct stint_limiter *limiter, uint32_t address,
                             unsigned prefix) {
    unsigned bits = prefix == 0 || prefix > 32 ? 32 : prefix;
    uint64_t word = first_bits((uint64_t)address << 32, bits) | bits << 8 | 4;
    return stint_key_of(limiter, &word, sizeof(word));
}

static stint_key key_of_ipv6(const struct stint_limiter *limiter, uint64_t high, uint64_t low,
                             unsigned prefix) {
    unsigned bits = prefix == 0 ? 64 : prefix < 128 ? prefix : 128;
    uint64_t words[3] = {bits << 8 | 6, high, low};

    if (bits > 64) {
        words[2] = first_bits(low, bits - 64);
        return stint_key_of(limiter, words, sizeof(words));
    }
    words[1] = first_bits(high, bits);
    return stint_key_of(limiter, words, 2 * sizeof(words[0]));
}

/* The address may be aligned for nothing, and end with its family's struct. */
stint_key stint_key_address(const struct stint_limiter *limiter, const struct sockaddr *address,
                            unsigned prefix4, unsigned prefix6) {
    const char *bytes = (const char *)address;
    sa_family_t family;

    memcpy(&family, bytes + offsetof(struct sockaddr, sa_family), sizeof(family));
    if (family == AF_INET) {
        uint32_t word;
        memcpy(&word, bytes + offsetof(struct sockaddr_in, sin_addr), sizeof(word));
        return key_of_ipv4(limiter, be32toh(word), prefix4);
    }
    if (family == AF_INET6) {
        uint64_t words[2];
        memcpy(words, bytes + offsetof(struct sockaddr_in6, sin6_addr), sizeof(words));
        uint64_t high = be64toh(words[0]), low = be64toh(words[1]);
        if (high == 0 && low >> 32 == 0xFFFF) /* ::ffff:0:0/96 */
            return key_of_ipv4(limiter, (uint32_t)low, prefix4);
        return key_of_ipv6(limiter, high, low, prefix6);
    }
    const uint64_t another_family = 0;
    return stint_key_of(limiter, &another_family, sizeof(another_family));
}

bool stint_key_equal(stint_key a, stint_key b) {
    return a.hash == b.hash;
}
