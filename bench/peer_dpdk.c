/* SPDX-License-Identifier: MIT
 * DPDK's rte_hash, the fastest table of keys that is at hand: readers take no lock, and look up 64
 * keys in a call, whose misses overlap. Each key has a word of its window and its count. What is
 * missing is added behind a mutex. The table is twice as large as its keys need, and its memory on
 * huge pages where stint's is. */
#include <ck_pr.h>
#include <pthread.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_hash.h>
#include <rte_malloc.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pages.h"
#include "peer.h"

_Static_assert(PEER_ANSWERS == RTE_HASH_LOOKUP_BULK_MAX, "a word has the answers of a call");

enum {
    ENTRIES_MIN = 64,
    ENTRY_BYTES = 64, /* at most: the key, its bucket and its place in the ring of free ones */
    TABLE_BYTES = 65536,
    PAGE = 4096,
};

struct dpdk {
    struct peer_setup setup;
    void *memory; /* DPDK's, while it has the table */
    size_t bytes;
    struct rte_hash *table;
    pthread_mutex_t adding;
    uint64_t *words; /* window << 32 | count, of each key in the order in which they came */
    uint64_t keys;
};

static const char name[] = "stint-bench";

/* Starts DPDK's environment, once: without devices, sockets and huge pages of its own. (--in-memory
 * does not go with --no-huge.) It would pin the calling thread, and all that come of it. */
static bool start(void) {
    static bool tried, started;
    cpu_set_t cores;
    char core[16];
    char *arguments[] = {
        "stint-bench",       "--no-huge", "--no-shconf", "--no-pci", "--no-telemetry",
        "--log-level=error", "-l",        core,          NULL,
    };

    if (!tried) {
        tried = true;
        snprintf(core, sizeof(core), "%d", sched_getcpu());
        sched_getaffinity(0, sizeof(cores), &cores);
        started = rte_eal_init(sizeof(arguments) / sizeof(arguments[0]) - 1, arguments) >= 0 &&
                  rte_malloc_heap_create(name) == 0;
        sched_setaffinity(0, sizeof(cores), &cores);
    }
    return started || peer_fail("DPDK does not start: %s", rte_strerror(rte_errno));
}

static void dpdk_close(void *state) {
    struct dpdk *dpdk = state;

    rte_hash_free(dpdk->table);
    if (dpdk->memory != NULL && rte_malloc_heap_memory_remove(name, dpdk->memory, dpdk->bytes) == 0)
        pages_unmap(dpdk->memory, dpdk->bytes);
    if (dpdk->words != NULL)
        pages_unmap(dpdk->words, dpdk->setup.keys * sizeof(*dpdk->words));
    pthread_mutex_destroy(&dpdk->adding);
    free(dpdk);
}

static bool dpdk_open(const struct peer_setup *setup, void **state) {
    uint64_t entries = 2 * setup->keys < ENTRIES_MIN ? ENTRIES_MIN : 2 * setup->keys;
    struct rte_hash_parameters parameters = {
        .entries = (uint32_t)entries,
        .key_len = PEER_KEY,
        .extra_flag = RTE_HASH_EXTRA_FLAGS_RW_CONCURRENCY_LF,
    };
    static unsigned opened;
    char table_name[RTE_HASH_NAMESIZE];

    if (entries > RTE_HASH_ENTRIES_MAX)
        return peer_fail("DPDK has tables of at most %d entries", RTE_HASH_ENTRIES_MAX);
    if (!start())
        return false;
    struct dpdk *dpdk = calloc(1, sizeof(*dpdk));
    if (dpdk == NULL)
        return peer_fail("no memory");
    dpdk->setup = *setup;
    dpdk->bytes = (entries * ENTRY_BYTES + TABLE_BYTES) / PAGE * PAGE;
    pthread_mutex_init(&dpdk->adding, NULL);
    dpdk->words = pages_map(setup->keys * sizeof(*dpdk->words));
    void *memory = pages_map(dpdk->bytes);
    if (memory != NULL && rte_malloc_heap_memory_add(name, memory, dpdk->bytes, NULL, 0, PAGE) != 0)
        pages_unmap(memory, dpdk->bytes);
    else if (memory != NULL) {
        dpdk->memory = memory;
        snprintf(table_name, sizeof(table_name), "%s-%u", name, opened++);
        parameters.name = table_name;
        parameters.socket_id = rte_malloc_heap_get_socket(name);
        dpdk->table = rte_hash_create(&parameters);
    }
    if (dpdk->words == NULL || dpdk->table == NULL) {
        peer_fail("DPDK has no table: %s", rte_strerror(rte_errno));
        dpdk_close(dpdk);
        return false;
    }
    *state = dpdk;
    return true;
}

/* The word of a key that was not there. NULL if there is no room. */
static uint64_t *word_add(struct dpdk *dpdk, const void *key) {
    void *word = NULL;

    pthread_mutex_lock(&dpdk->adding);
    if (rte_hash_lookup_data(dpdk->table, key, &word) < 0 && dpdk->keys < dpdk->setup.keys) {
        word = &dpdk->words[dpdk->keys];
        if (rte_hash_add_key_data(dpdk->table, key, word) == 0)
            dpdk->keys++;
        else
            word = NULL;
    }
    pthread_mutex_unlock(&dpdk->adding);
    return word;
}

/* Whoever adds beyond the limit is refused: it is not taken back, as the count only matters in its
 * window. */
static inline bool word_take(uint64_t *word, uint64_t window, uint32_t limit) {
    uint64_t seen = ck_pr_load_64(word);

    while (seen >> 32 != window)
        if (ck_pr_cas_64_value(word, seen, window << 32 | 1, &seen))
            return limit > 0;
    return (uint32_t)seen < limit && (uint32_t)ck_pr_faa_64(word, 1) < limit;
}

static bool dpdk_decide(void *state, unsigned thread, const char *keys, size_t n, unsigned depth,
                        uint64_t *answers) {
    struct dpdk *dpdk = state;
    const void *key[RTE_HASH_LOOKUP_BULK_MAX];
    void *words[RTE_HASH_LOOKUP_BULK_MAX];

    (void)thread;
    (void)depth;
    for (size_t at = 0; at < n; at += RTE_HASH_LOOKUP_BULK_MAX) {
        size_t batch = n - at < RTE_HASH_LOOKUP_BULK_MAX ? n - at : RTE_HASH_LOOKUP_BULK_MAX;
        uint64_t window = peer_window(&dpdk->setup), found = 0, answer = 0;
        for (size_t i = 0; i < batch; i++)
            key[i] = keys + (at + i) * PEER_KEY;
        rte_hash_lookup_bulk_data(dpdk->table, key, (uint32_t)batch, &found, words);
        for (size_t i = 0; i < batch; i++)
            if ((found >> i & 1) != 0)
                __builtin_prefetch(words[i], 1);
        for (size_t i = 0; i < batch; i++) {
            uint64_t *word = (found >> i & 1) != 0 ? words[i] : word_add(dpdk, key[i]);
            if (word == NULL)
                return peer_fail("DPDK has no room for a key");
            answer |= (uint64_t)word_take(word, window, dpdk->setup.limit) << i;
        }
        answers[at / PEER_ANSWERS] = answer;
    }
    return true;
}

const struct peer peer_dpdk = {
    .name = "dpdk-64", .open = dpdk_open, .close = dpdk_close, .decide = dpdk_decide};
