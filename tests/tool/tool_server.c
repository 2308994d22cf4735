/* SPDX-License-Identifier: MIT
 * A server for the tests of the command: it has a table open, which it makes if there is none, and
 * does what it reads on its standard input, a command a line, its words separated by blanks. Each
 * is answered by a line.
 *
 *     tool-server FILE [SECONDS]    its clock is ahead by so many
 *
 *     key PART...                       the key of these parts, as the library makes it, in hex
 *     id ID [PART...], address PREFIX4 PREFIX6 ADDRESS [PART...]
 *     take POLICY KEY COST              whether it was granted, and what is used
 *     label KEY HEX                     stint_label with these bytes
 *     fill POLICY N                     a token of each of N keys; 1 + i % 7 of the i-th
 *     lock, unlock                      the table's lock for set-up
 *     load POLICY THREADS KEYS          threads that take, until:
 *     stop                              the tokens of each key, load-0 and so on
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <stint.h>

#include "limiter/limiter.h"

enum {
    THREADS_MAX = 8,
    KEYS_MAX = 8,
    WORDS_MAX = 16,
};

static struct stint_limiter *limiter;
static uint32_t load_policy, load_keys;
static unsigned load_threads;
static atomic_bool load_over;
static pthread_t threads[THREADS_MAX];
static uint64_t granted[THREADS_MAX][KEYS_MAX]; /* tokens */

static uint64_t ahead; /* ns */

static uint64_t clock_ahead(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec + ahead;
}

static void fail(const char *what) {
    fprintf(stderr, "tool-server: %s: %s\n", what, stint_reason());
    exit(1);
}

static uint32_t policy_of(const char *name) {
    uint32_t id;
    if (stint_policy_find(limiter, name, &id) != 0)
        fail(name);
    return id;
}

/* The i-th key of a load: "load-0" and so on. */
static stint_key load_key(uint32_t i) {
    char name[32];
    int length = snprintf(name, sizeof(name), "load-%" PRIu32, i);
    return stint_key_of(limiter, name, (size_t)length);
}

/* Takes of one key after another; the others get some time, too. */
static void *load(void *context) {
    uint64_t *tokens = context;
    const struct timespec pause = {.tv_nsec = 200000};
    for (uint32_t i = 0; !atomic_load(&load_over); i++) {
        struct stint_verdict verdict;
        (void)stint_take(limiter, load_policy, load_key(i % load_keys), 1, STINT_NOW, &verdict);
        tokens[i % load_keys] += verdict.granted;
        if (i % 16 == 0)
            nanosleep(&pause, NULL);
    }
    return NULL;
}

static void load_begin(char **words) {
    load_policy = policy_of(words[1]);
    load_threads = (unsigned)atoi(words[2]);
    load_keys = (uint32_t)atoi(words[3]);
    atomic_store(&load_over, false);
    memset(granted, 0, sizeof(granted));
    for (unsigned i = 0; i < load_threads; i++)
        if (pthread_create(&threads[i], NULL, load, granted[i]) != 0)
            fail("threads");
    puts("loading");
}

/* Ends the threads, if there are any. */
static void load_join(void) {
    atomic_store(&load_over, true);
    for (unsigned i = 0; i < load_threads; i++)
        pthread_join(threads[i], NULL);
}

static void load_end(void) {
    load_join();
    for (uint32_t key = 0; key < load_keys; key++) {
        uint64_t sum = 0;
        for (unsigned i = 0; i < load_threads; i++)
            sum += granted[i][key];
        printf("%s%" PRIu64, key == 0 ? "" : " ", sum);
    }
    puts("");
    load_threads = 0;
}

static stint_key address_key(char **words) {
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    bool is_v4 = inet_pton(AF_INET, words[3], &v4.sin_addr) == 1;
    if (!is_v4 && inet_pton(AF_INET6, words[3], &v6.sin6_addr) != 1)
        fail(words[3]);
    return stint_key_address(limiter, is_v4 ? (const void *)&v4 : (const void *)&v6,
                             (unsigned)atoi(words[1]), (unsigned)atoi(words[2]));
}

/* A key of this kind, and the parts that are joined to it. */
static void print_key(char **words, size_t n) {
    bool is_address = words[0][0] == 'a';
    stint_key key = is_address           ? address_key(words)
                    : words[0][0] == 'i' ? stint_key_of_id(limiter, strtoull(words[1], NULL, 10))
                                         : stint_key_of(limiter, words[1], strlen(words[1]));
    for (size_t i = is_address ? 4 : 2; i < n; i++)
        key = stint_key_join(limiter, key, words[i], strlen(words[i]));
    printf("%016" PRIx64 "\n", key.hash);
}

static void take(char **words) {
    const stint_key key = {strtoull(words[2], NULL, 16)};
    struct stint_verdict verdict;
    stint_take(limiter, policy_of(words[1]), key, (uint32_t)atoi(words[3]), STINT_NOW, &verdict);
    printf("%s %" PRIu32 "\n", verdict.allowed ? "granted" : "refused", verdict.used);
}

static void label(char **words) {
    const stint_key key = {strtoull(words[1], NULL, 16)};
    char bytes[256];
    size_t n = strlen(words[2]) / 2;
    for (size_t i = 0; i < n && i < sizeof(bytes); i++) {
        char digits[3] = {words[2][2 * i], words[2][2 * i + 1], 0};
        bytes[i] = (char)strtoul(digits, NULL, 16);
    }
    printf("%d\n", stint_label(limiter, key, bytes, n));
}

static void fill(char **words) {
    uint32_t policy = policy_of(words[1]);
    uint64_t n = strtoull(words[2], NULL, 10);
    for (uint64_t i = 0; i < n; i++)
        stint_take(limiter, policy, stint_key_of(limiter, &i, sizeof(i)), 1 + (uint32_t)(i % 7),
                   STINT_NOW, NULL);
    puts("filled");
}

static bool obey(char **words, size_t n) {
    if ((strcmp(words[0], "key") == 0 || strcmp(words[0], "id") == 0) && n > 1)
        print_key(words, n);
    else if (strcmp(words[0], "address") == 0 && n > 3)
        print_key(words, n);
    else if (strcmp(words[0], "take") == 0 && n == 4)
        take(words);
    else if (strcmp(words[0], "label") == 0 && n == 3)
        label(words);
    else if (strcmp(words[0], "fill") == 0 && n == 3)
        fill(words);
    else if (strcmp(words[0], "lock") == 0)
        printf("%d\n", stint_limiter_lock(limiter));
    else if (strcmp(words[0], "unlock") == 0)
        printf("%d\n", stint_limiter_unlock(limiter, 0));
    else if (strcmp(words[0], "load") == 0 && n == 4)
        load_begin(words);
    else if (strcmp(words[0], "stop") == 0)
        load_end();
    else
        return false;
    return fflush(stdout) == 0;
}

int main(int argc, char **argv) {
    struct stint_options options = STINT_OPTIONS_INIT;
    char line[4096];
    options.path = argc > 1 ? argv[1] : NULL;
    if (argc > 2) {
        ahead = strtoull(argv[2], NULL, 10) * 1000000000;
        options.clock = clock_ahead;
    }
    int error = stint_attach(&options, &limiter);
    if (error == -ENOENT) {
        options.max_entries = 1000;
        error = stint_open(&options, &limiter);
    }
    if (error != 0)
        fail("attach");
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin) != NULL) {
        char *words[WORDS_MAX], *rest = line;
        size_t n = 0;
        for (char *word; n < WORDS_MAX && (word = strsep(&rest, " \n")) != NULL;)
            if (*word != '\0')
                words[n++] = word;
        if (n == 0 || !obey(words, n))
            fail("an unknown command");
    }
    load_join();
    stint_close(limiter);
    return 0;
}
