/* SPDX-License-Identifier: MIT
 * Keys of socket addresses of any family, with any bytes, prefixes and alignment. The first bits of
 * an address, and how many they are, make its key; nothing else does, and nothing beyond what its
 * family has is read. */

#include <netinet/in.h>
#include <sys/socket.h>

#include "policy_text.h"

struct client {
    sa_family_t family; /* AF_INET, AF_INET6, or AF_UNSPEC for all others */
    uint8_t bits[16];   /* the address's bytes */
    unsigned length;    /* of the prefix, bits */
};

/* In [1, most]; 0: `otherwise`. More than there are is all of them. */
static unsigned prefix(unsigned given, unsigned most, unsigned otherwise) {
    return given == 0 ? otherwise : given < most ? given : most;
}

/* What is limited, by the words of stint.h. */
static struct client client_of(const uint8_t *bytes, unsigned prefix4, unsigned prefix6) {
    static const uint8_t mapped[12] = {[10] = 0xFF, [11] = 0xFF};
    struct client client = {.family = AF_UNSPEC};
    sa_family_t family;
    memcpy(&family, bytes + offsetof(struct sockaddr, sa_family), sizeof family);
    const uint8_t *six = bytes + offsetof(struct sockaddr_in6, sin6_addr);
    if (family == AF_INET6 && memcmp(six, mapped, sizeof mapped) == 0)
        client = (struct client){.family = AF_INET, .length = prefix(prefix4, 32, 32)};
    else if (family == AF_INET6)
        client = (struct client){.family = AF_INET6, .length = prefix(prefix6, 128, 64)};
    else if (family == AF_INET)
        client = (struct client){.family = AF_INET, .length = prefix(prefix4, 32, 32)};
    const uint8_t *address = family == AF_INET ? bytes + offsetof(struct sockaddr_in, sin_addr)
                             : client.family == AF_INET ? six + sizeof mapped
                                                        : six;
    for (unsigned bit = 0; bit < client.length; bit++)
        client.bits[bit / 8] |= (uint8_t)(address[bit / 8] & 0x80 >> bit % 8);
    return client;
}

/* Puts the address where just the bytes of its family are, `shift` bytes off any alignment. */
static stint_key key_of(const struct stint_limiter *limiter, const uint8_t *bytes, size_t shift,
                        unsigned prefix4, unsigned prefix6) {
    sa_family_t family;
    memcpy(&family, bytes + offsetof(struct sockaddr, sa_family), sizeof family);
    size_t size = family == AF_INET    ? sizeof(struct sockaddr_in)
                  : family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                       : sizeof(sa_family_t);
    char *memory = fuzz_malloc(shift + size);
    memcpy(memory + shift, bytes, size);
    stint_key key = stint_key_address(
        limiter, (const struct sockaddr *)(const void *)(memory + shift), prefix4, prefix6);
    free(memory);
    assert(key.hash != STINT_KEY_GLOBAL_HASH);
    return key;
}

/* Two addresses have one key if they are one client, and only then. `more`: bits of the other. */
static void check_pair(const struct stint_limiter *limiter, const uint8_t *one,
                       const uint8_t *other, size_t shift, unsigned prefix4, unsigned prefix6,
                       unsigned more) {
    const struct client a = client_of(one, prefix4, prefix6),
                        b = client_of(other, prefix4 + more, prefix6 + more);
    bool same =
        a.family == b.family && a.length == b.length && memcmp(a.bits, b.bits, sizeof a.bits) == 0;
    assert(stint_key_equal(key_of(limiter, one, 0, prefix4, prefix6),
                           key_of(limiter, other, shift, prefix4 + more, prefix6 + more)) == same);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct stint_limiter *limiter;
    struct input input = {data, size};
    uint8_t one[sizeof(struct sockaddr_in6)], other[sizeof one];
    if (limiter == NULL)
        limiter = open_for(1);
    unsigned prefix4 = (unsigned)input_number(&input, 1);
    unsigned prefix6 = (unsigned)input_number(&input, 1);
    unsigned form = (unsigned)input_number(&input, 1);
    if ((form & 1) != 0)
        prefix4 = UINT32_MAX - prefix4;
    if ((form & 2) != 0)
        prefix6 = UINT32_MAX - prefix6;
    input_bytes(&input, one, sizeof one);
    /* Others that differ in one bit, and one that differs as the input says. */
    memcpy(other, one, sizeof one);
    for (unsigned bit = 0; bit < 8 * sizeof other; bit++) {
        other[bit / 8] ^= (uint8_t)(1 << bit % 8);
        check_pair(limiter, one, other, bit % 8, prefix4, prefix6, 0);
        other[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (unsigned more = 0; more < 130; more++) /* also as if the rest were 0 */
        check_pair(limiter, one, one, more % 8, prefix4, prefix6, more);
    while (input.left > 0) {
        unsigned bit = (unsigned)input_below(&input, 8 * sizeof other);
        other[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    check_pair(limiter, one, other, form >> 2 & 7, prefix4, prefix6, 0);
    return 0;
}
