/* SPDX-License-Identifier: MIT
 * A loop as one who does not trust bench/ writes it: against stint.h alone, and in another way.
 * Keys are names with a number, drawn at random; what is timed are blocks of 1,024 decisions.
 *
 *     own-loop take|batch|refuse KEYS SECONDS
 *
 * It prints ns of a decision, of each block. */
#include <stint.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LENGTH = 16, BLOCK = 1024, CALL = 16, BLOCKS_MAX = 1 << 20 };

static struct stint_limiter *limiter;
static uint32_t policy;

static double now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* user-00000012345 */
static void name(char *key, uint64_t number) {
    memcpy(key, "user-", 5);
    for (size_t at = LENGTH; at-- > 5; number /= 10)
        key[at] = (char)('0' + number % 10);
}

static size_t take(const char *keys) {
    struct stint_verdict verdict;
    size_t allowed = 0;
    for (size_t i = 0; i < BLOCK; i++)
        allowed += stint_take(limiter, policy, stint_key_of(limiter, keys + i * LENGTH, LENGTH), 1,
                              STINT_NOW, &verdict);
    return allowed;
}

static size_t batch(const char *keys) {
    struct stint_request requests[CALL];
    struct stint_verdict verdicts[CALL];
    size_t allowed = 0;
    for (size_t i = 0; i < BLOCK; i += CALL) {
        for (size_t j = 0; j < CALL; j++) {
            stint_key key = stint_key_of(limiter, keys + (i + j) * LENGTH, LENGTH);
            stint_prefetch(limiter, key);
            requests[j] = (struct stint_request){.key = key, .policy = policy, .cost = 1};
        }
        allowed += stint_decide_batch(limiter, requests, CALL, STINT_NOW, verdicts);
    }
    return allowed;
}

int main(int argc, char **argv) {
    struct stint_options options = STINT_OPTIONS_INIT;
    struct stint_policy rule = STINT_POLICY_INIT;
    bool refuse = argc == 4 && strcmp(argv[1], "refuse") == 0;
    size_t (*decide)(const char *) = argc == 4 && strcmp(argv[1], "batch") == 0 ? batch : take;
    size_t keys = argc == 4 ? strtoull(argv[2], NULL, 10) : 0, blocks = 0, due = refuse ? 0 : BLOCK;
    double seconds = argc == 4 ? strtod(argv[3], NULL) : 0;
    static char block[BLOCK * LENGTH];
    static double took[BLOCKS_MAX];
    options.max_entries = keys;
    options.flags = STINT_PREFAULT;
    if (keys == 0 || stint_open(&options, &limiter) != 0 ||
        stint_policy_parse(refuse ? "1/366d" : "268435456/366d", &rule, NULL) != 0 ||
        stint_policy_add(limiter, &rule, &policy) != 0)
        return EXIT_FAILURE;
    uint64_t random = 88172645463325252;
    for (size_t turn = 0; turn < 3; turn++) /* a refusal is not the key's first */
        for (size_t i = 0; i < keys && (turn == 0 || refuse); i++) {
            name(block, i);
            (void)stint_take(limiter, policy, stint_key_of(limiter, block, LENGTH), 1, STINT_NOW,
                             NULL);
        }
    for (double passed = 0; passed < seconds * 1e9 && blocks < BLOCKS_MAX; blocks++) {
        for (size_t i = 0; i < BLOCK; i++) {
            random ^= random << 13; /* xorshift64 */
            random ^= random >> 7;
            random ^= random << 17;
            name(block + i * LENGTH, random % keys);
        }
        double started = now_ns();
        size_t allowed = decide(block);
        took[blocks] = now_ns() - started;
        passed += took[blocks];
        if (allowed != due)
            return EXIT_FAILURE;
    }
    while (blocks-- > 0)
        printf("%.3f\n", took[blocks] / BLOCK);
    stint_close(limiter);
    return EXIT_SUCCESS;
}
