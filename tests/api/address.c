/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * Keys of clients' addresses. What two addresses must share is decided here bit by bit, on the text
 * form that inet_pton reads. (What else an address has, ports and zones, and any alignment: fuzz
 * target `address`.) */
#include "fixture.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "random.h"

static struct stint_limiter *limiter;

/* An address of either family, and nothing after it that a sanitizer would let pass. */
static struct sockaddr *make_address(const char *text) {
    struct sockaddr_in four = {.sin_family = AF_INET};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    const void *made = &six;
    size_t size = sizeof six;

    if (strchr(text, ':') == NULL) {
        assert_int_equal(inet_pton(AF_INET, text, &four.sin_addr), 1);
        made = &four;
        size = sizeof four;
    } else {
        assert_int_equal(inet_pton(AF_INET6, text, &six.sin6_addr), 1);
    }
    struct sockaddr *copy = malloc(size);
    assert_non_null(copy);
    return memcpy(copy, made, size);
}

static uint64_t key(const char *text, unsigned prefix4, unsigned prefix6) {
    struct sockaddr *address = make_address(text);
    const uint64_t made = stint_key_address(limiter, address, prefix4, prefix6).hash;
    free(address);
    assert_true(made != STINT_KEY_GLOBAL_HASH);
    return made;
}

static void assert_same(const char *a, const char *b, unsigned prefix4, unsigned prefix6) {
    if (key(a, prefix4, prefix6) != key(b, prefix4, prefix6))
        fail_msg("%s and %s differ with prefixes %u and %u", a, b, prefix4, prefix6);
}

static void assert_differ(const char *a, const char *b, unsigned prefix4, unsigned prefix6) {
    if (key(a, prefix4, prefix6) == key(b, prefix4, prefix6))
        fail_msg("%s and %s are one key with prefixes %u and %u", a, b, prefix4, prefix6);
}

TEST(test_defaults) {
    assert_differ("192.0.2.1", "192.0.2.2", 0, 0);
    assert_int_equal(key("192.0.2.1", 0, 0), key("192.0.2.1", 32, 128));
    assert_same("2001:db8:0:1::1", "2001:db8:0:1:ffff:ffff:ffff:ffff", 0, 0);
    assert_differ("2001:db8:0:1::1", "2001:db8:0:2::1", 0, 0);
    assert_int_equal(key("2001:db8:0:1::1", 0, 0), key("2001:db8:0:1::1", 1, 64));
}

/* Every length, every bit: addresses that differ in one bit are one key if and only if that bit is
 * past the prefix. */
TEST(test_every_bit_of_every_length) {
    static const struct {
        int family;
        unsigned bits;
        size_t offset;
    } families[] = {
        {AF_INET, 32, offsetof(struct sockaddr_in, sin_addr)},
        {AF_INET6, 128, offsetof(struct sockaddr_in6, sin6_addr)},
    };
    struct random random = {test_seed()};

    for (size_t f = 0; f < 2; f++) {
        for (unsigned prefix = 1; prefix <= families[f].bits; prefix++) {
            union {
                struct sockaddr any;
                struct sockaddr_in6 six;
                unsigned char bytes[sizeof(struct sockaddr_in6)];
            } address = {0};
            address.any.sa_family = (sa_family_t)families[f].family;
            for (size_t i = 0; i < families[f].bits / 8; i++)
                address.bytes[families[f].offset + i] = (unsigned char)random_next(&random);
            address.bytes[families[f].offset] |= 0x30; /* no IPv4 in IPv6, nor one bit from it */
            stint_key whole = stint_key_address(limiter, &address.any, prefix, prefix);
            for (unsigned bit = 0; bit < families[f].bits; bit++) {
                unsigned char *byte = &address.bytes[families[f].offset + bit / 8];
                *byte ^= (unsigned char)(0x80 >> bit % 8);
                bool same = stint_key_equal(
                    stint_key_address(limiter, &address.any, prefix, prefix), whole);
                *byte ^= (unsigned char)(0x80 >> bit % 8);
                if (same != (bit >= prefix))
                    fail_msg("family %d, prefix %u, bit %u: same %d", families[f].family, prefix,
                             bit, same);
            }
        }
    }
}

/* Other lengths are other keys, also where the bits kept are the same. */
TEST(test_lengths_stay_apart) {
    uint64_t made[32 + 128];
    size_t n = 0;
    for (unsigned prefix = 1; prefix <= 32; prefix++)
        made[n++] = key("0.0.0.0", prefix, 0);
    for (unsigned prefix = 1; prefix <= 128; prefix++)
        made[n++] = key("::", 0, prefix);
    for (size_t i = 0; i < n; i++)
        for (size_t j = i + 1; j < n; j++)
            assert_true(made[i] != made[j]);
}

TEST(test_lengths_above_the_maximum) {
    static const unsigned lengths[] = {129, 160, 255, 256, 257, 288, 384, 65536 + 8, UINT32_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        assert_int_equal(key("192.0.2.1", lengths[i], 0), key("192.0.2.1", 32, 0));
        assert_int_equal(key("2001:db8::1", 0, lengths[i]), key("2001:db8::1", 0, 128));
    }
    assert_int_equal(key("192.0.2.1", 33, 0), key("192.0.2.1", 32, 0));
}

TEST(test_mapped_addresses_are_ipv4) {
    static const unsigned prefixes[] = {0, 1, 9, 24, 31, 32, 33};
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
        assert_int_equal(key("::ffff:192.0.2.1", prefixes[i], 1),
                         key("192.0.2.1", prefixes[i], 128));
    }
    assert_differ("::ffff:192.0.2.1", "::ffff:192.0.2.2", 0, 1);
    assert_same("::ffff:192.0.2.1", "::ffff:192.0.2.2", 24, 128);

    /* These only look like it: each differs from ::ffff:0:0/96 in one bit. */
    static const char *const others[] = {"::192.0.2.1", "::fffe:192.0.2.1", "::1:ffff:c000:201",
                                         "::7fff:192.0.2.1", "8000::ffff:c000:201"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_differ("192.0.2.1", others[i], 32, 128);
    /* As IPv6 with the default prefix these two are one. */
    assert_same("::fffe:192.0.2.1", "::fffe:192.0.2.2", 32, 64);
}

TEST(test_other_families_are_one_key) {
    struct sockaddr_un one = {.sun_family = AF_UNIX, .sun_path = "/run/one"};
    struct sockaddr_un two = {.sun_family = AF_UNIX, .sun_path = "/run/two"};
    const uint64_t unix_key = stint_key_address(limiter, (struct sockaddr *)&one, 24, 48).hash;
    assert_true(unix_key != STINT_KEY_GLOBAL_HASH);
    assert_int_equal(stint_key_address(limiter, (struct sockaddr *)&two, 0, 0).hash, unix_key);

    /* No more than the family need be there: an unnamed unix socket has nothing else. */
    sa_family_t *family = malloc(sizeof *family);
    assert_non_null(family);
    for (unsigned i = 0; i < 100; i++) {
        *family = (sa_family_t)i;
        if (i == AF_INET || i == AF_INET6)
            continue;
        assert_int_equal(stint_key_address(limiter, (struct sockaddr *)(void *)family, i, i).hash,
                         unix_key);
    }
    free(family);
    assert_true(key("0.0.0.0", 0, 0) != unix_key);
    assert_true(key("::", 0, 0) != unix_key);
}

/* By the limiter's own secret: keys of one limiter are not another's. */
TEST(test_keyed) {
    struct stint_options options = fixture_options(10, STINT_FULL_ADMIT);
    options.secret = NULL; /* a random one */
    struct stint_limiter *other = open_with(&options);
    static const char *const texts[] = {"192.0.2.1", "2001:db8::1"};
    for (size_t i = 0; i < 2; i++) {
        struct sockaddr *address = make_address(texts[i]);
        assert_true(stint_key_address(other, address, 0, 0).hash != key(texts[i], 0, 0));
        free(address);
    }
    stint_close(other);
}

static int set_up(void **state) {
    (void)state;
    limiter = open_limiter(10, STINT_FULL_ADMIT);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    stint_close(limiter);
    return 0;
}

int main(void) {
    return tests_run(set_up, tear_down);
}
