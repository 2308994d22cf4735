/* SPDX-License-Identifier: MIT
 * The strongest of the obvious ones: nothing is allocated, one line of memory is touched in the
 * common case, and 64 locks are rarely met by two threads at once. It knows keys by their 64-bit
 * hashes, and takes 16 bytes a slot, two slots a key. Its memory is calloc's, which is all touched when the table
 * is filled, before anything is timed; or on huge pages, as stint's is, which is not what one writes first, but
 * shows how much of the difference huge pages make. (Where the system gives them to all, there is none.) */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "keys.h"
#include "pages.h"
#include "peer.h"

enum { SHARDS = 64, SHARD_BITS = 6 };

struct slot {
    uint64_t hash; /* 0: free */
    uint32_t window, count;
};

struct shard {
    _Alignas(64) pthread_mutex_t mutex;
    struct slot *slots;
};

struct open_table {
    struct peer_setup setup;
    struct slot *memory;
    size_t bytes;
    bool huge_pages;
    uint64_t shard_slots;
    struct shard shard[SHARDS];
};

static void open_table_close(void *state) {
    struct open_table *table = state;

    for (size_t i = 0; i < SHARDS; i++)
        pthread_mutex_destroy(&table->shard[i].mutex);
    if (table->huge_pages)
        pages_unmap(table->memory, table->bytes);
    else
        free(table->memory);
    free(table);
}

static bool open_table_open_in(bool huge_pages, const struct peer_setup *setup, void **state) {
    struct open_table *table = aligned_alloc(64, sizeof(*table));
    double mean = (double)setup->keys / SHARDS;

    if (table == NULL)
        return peer_fail("no memory");
    memset(table, 0, sizeof(*table));
    table->setup = *setup;
    /* Half full. Six deviations more than the mean: no shard overflows. */
    table->shard_slots = (uint64_t)(2 * mean + 6 * sqrt(mean)) + 8;
    table->bytes = SHARDS * table->shard_slots * sizeof(struct slot);
    table->huge_pages = huge_pages;
    table->memory = huge_pages ? pages_map(table->bytes) : calloc(1, table->bytes);
    if (table->memory == NULL) {
        free(table);
        return peer_fail("no memory");
    }
    for (size_t i = 0; i < SHARDS; i++) {
        pthread_mutex_init(&table->shard[i].mutex, NULL);
        table->shard[i].slots = table->memory + i * table->shard_slots;
    }
    *state = table;
    return true;
}

static bool open_table_open(const struct peer_setup *setup, void **state) {
    return open_table_open_in(false, setup, state);
}

static bool open_table_open_huge(const struct peer_setup *setup, void **state) {
    return open_table_open_in(true, setup, state);
}

static inline bool open_one(struct open_table *table, const char *key) {
    uint64_t hash = XXH3_64bits(key, PEER_KEY) | 1;
    uint32_t window = (uint32_t)peer_window(&table->setup);
    struct shard *shard = &table->shard[hash >> (64 - SHARD_BITS)];
    uint64_t at = scale64(hash << SHARD_BITS, table->shard_slots);

    pthread_mutex_lock(&shard->mutex);
    struct slot *slot = &shard->slots[at];
    for (uint64_t probes = 0; slot->hash != hash; probes++) {
        if (slot->hash == 0) {
            *slot = (struct slot){hash, window, 0};
            break;
        }
        if (probes == table->shard_slots) {
            pthread_mutex_unlock(&shard->mutex);
            return false;
        }
        at = at + 1 == table->shard_slots ? 0 : at + 1;
        slot = &shard->slots[at];
    }
    if (slot->window != window) {
        slot->window = window;
        slot->count = 0;
    }
    bool allowed = slot->count < table->setup.limit;
    slot->count += allowed;
    pthread_mutex_unlock(&shard->mutex);
    return allowed;
}

PEER_DECIDE(open_table, open_one)

#define OPEN_PEER                                                                                  \
    .depth = 1, .bytes_per_key = 40, .close = open_table_close, .decide = open_one_each

const struct peer peer_open_64 = {
    .name = "open-64",
    .label = "open addressing, 64 mutexes",
    .help = "a pre-sized open-addressing table behind 64 mutexes, xxhash",
    .open = open_table_open,
    OPEN_PEER,
};

const struct peer peer_open_64_huge = {
    .name = "open-64-huge",
    .label = "open addressing, huge pages",
    .help = "open-64 on huge pages, as stint's table is",
    .open = open_table_open_huge,
    OPEN_PEER,
};
