/* SPDX-License-Identifier: MIT
 * For stint_key_of_id, stint_key_join, stint_key_address and stint_key_equal. It prints:
 *
 *     two addresses of a /64: one key
 *     two endpoints: two keys
 *     a user's id and its text: two keys
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stint.h>

/* The /64 of an IPv6 address, or an IPv4 address. */
static stint_key client(const struct stint_limiter *limiter, const char *text) {
    struct sockaddr_in6 address = {.sin6_family = AF_INET6};

    inet_pton(AF_INET6, text, &address.sin6_addr);
    return stint_key_address(limiter, (const struct sockaddr *)&address, 0, 0);
}

int main(void) {
    struct stint_options options = STINT_OPTIONS_INIT;
    struct stint_limiter *limiter;

    options.max_entries = 100000;
    if (stint_open(&options, &limiter) != 0) {
        fprintf(stderr, "%s\n", stint_reason());
        return 1;
    }
    stint_key one = client(limiter, "2001:db8::1"), two = client(limiter, "2001:db8::2");
    printf("two addresses of a /64: %s\n", stint_key_equal(one, two) ? "one key" : "two keys");

    stint_key upload = stint_key_join(limiter, one, "upload", 6);
    stint_key search = stint_key_join(limiter, one, "search", 6);
    printf("two endpoints: %s\n", stint_key_equal(upload, search) ? "one key" : "two keys");

    one = stint_key_of_id(limiter, 7), two = stint_key_of(limiter, "7", 1);
    printf("a user's id and its text: %s\n", stint_key_equal(one, two) ? "one key" : "two keys");
    stint_close(limiter);
    return 0;
}
