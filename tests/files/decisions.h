/* SPDX-License-Identifier: MIT
 * All that decides: on new keys and old ones, in a full table, across windows, by its own clock. */
#ifndef STINT_TESTS_DECISIONS_H
#define STINT_TESTS_DECISIONS_H

#include "kinds.h"

#include <netinet/in.h>

/* By policies of all kinds. Returns whether each way has allowed some and refused others. */
static inline bool decide(struct stint_limiter *limiter) {
    uint64_t start = stint_now(limiter);
    unsigned allowed = 0, refused = 0, all_allowed = 0, all_refused = 0;
    for (uint32_t i = 0; i < 30000; i++) {
        struct stint_request requests[20];
        struct stint_verdict verdicts[20];
        const struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {.s_addr = i}};
        char name[40] = "a name that is longer than 16 bytes ";
        uint32_t number = i % 1500;
        memcpy(name, &number, sizeof number);
        stint_key key = stint_key_of(limiter, name, number % sizeof name);
        key = stint_key_join(limiter, key, &number, sizeof number);
        uint64_t now = i % 2 == 0 ? STINT_NOW : start + i / 3000 * MINUTE / 10;
        stint_prefetch(limiter, key);
        uint32_t policy = i % KINDS;
        bool fits = stint_take(limiter, policy, key, 1 + i % 3, now, &verdicts[0]);
        fits ? allowed++ : refused++;
        if (fits && i % 5 == 0)
            stint_refund(limiter, key, &verdicts[0], 1);
        for (uint32_t n = 0; n < 20; n++)
            requests[n] = (struct stint_request){.key = {key.hash + n % 7},
                                                 .policy = n % KINDS,
                                                 .cost = n % 4,
                                                 .limit = n % 5,
                                                 .flags = STINT_PEEK * (n % 16)};
        requests[3].key = stint_key_address(limiter, (const struct sockaddr *)&address, 24, 0);
        stint_decide_batch(limiter, requests, 20, now, verdicts);
        stint_decide(limiter, &requests[i % 20], now, NULL);
        for (uint32_t n = 0; n < 2; n++) /* by the second: the key is there, its window is known */
            stint_take(limiter, policy, key, 1, STINT_NOW, NULL);
        for (uint32_t n = 0; n < 4; n++)
            requests[n] = (struct stint_request){.key = key, .policy = n, .cost = 1};
        stint_decide_all(limiter, requests, 4, now, NULL) ? all_allowed++ : all_refused++;
        if (i % 7 == 0)
            stint_reset(limiter, policy, key);
    }
    return allowed && refused && all_allowed && all_refused;
}

#endif
