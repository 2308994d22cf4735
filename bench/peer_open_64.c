/* SPDX-License-Identifier: MIT
 * The strongest of the obvious ones: nothing is allocated, one line of memory is touched in the
 * common case, and 64 locks are rarely met by two threads at once. It knows keys by their 64-bit
 * hashes, and takes 16 bytes a slot, two slots a key. Its memory is calloc's, which is all
 * touched when the table is filled, before anything is timed; or on huge pages, as stint's is,
 * which is not what one writes first, but shows how much of the difference huge pages make.
 * (Where the system gives them to all, there is none.) */
#include <ck_cc.h>
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
    uint64_t hash;              /* 0: free */
    struct peer_count counts[]; /* one for each limit */
};

struct shard {
    _Alignas(64) pthread_mutex_t mutex;
    unsigned char *slots;
};

static inline size_t slot_size(unsigned limits) {
    return sizeof(struct slot) + limits * sizeof(struct peer_count);
}

static inline struct slot *slot_at(const struct shard *shard, uint64_t at, unsigned limits) {
    return (void *)(shard->slots + at * slot_size(limits));
}

struct open_table {
    struct peer_setup setup;
    unsigned char *memory;
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
    size_t shard_bytes = table->shard_slots * slot_size(setup->limits);
    table->bytes = SHARDS * shard_bytes;
    table->huge_pages = huge_pages;
    table->memory = huge_pages ? pages_map(table->bytes) : calloc(1, table->bytes);
    if (table->memory == NULL) {
        free(table);
        return peer_fail("no memory");
    }
    for (size_t i = 0; i < SHARDS; i++) {
        pthread_mutex_init(&table->shard[i].mutex, NULL);
        table->shard[i].slots = table->memory + i * shard_bytes;
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

static CK_CC_FORCE_INLINE bool open_decide(struct open_table *table, const char *key,
                                           unsigned limits) {
    uint64_t hash = XXH3_64bits(key, PEER_KEY) | 1;
    uint32_t windows[PEER_LIMITS];
    struct shard *shard = &table->shard[hash >> (64 - SHARD_BITS)];
    uint64_t at = scale64(hash << SHARD_BITS, table->shard_slots);

    peer_windows(&table->setup, limits, windows);
    pthread_mutex_lock(&shard->mutex);
    struct slot *slot = slot_at(shard, at, limits);
    for (uint64_t probes = 0; slot->hash != hash; probes++) {
        if (slot->hash == 0) {
            slot->hash = hash;
            break;
        }
        if (probes == table->shard_slots) {
            pthread_mutex_unlock(&shard->mutex);
            return false;
        }
        at = at + 1 == table->shard_slots ? 0 : at + 1;
        slot = slot_at(shard, at, limits);
    }
    bool allowed = peer_count_all(&table->setup, limits, windows, slot->counts);
    pthread_mutex_unlock(&shard->mutex);
    return allowed;
}

static inline bool open_one(struct open_table *table, const char *key) {
    return open_decide(table, key, 1);
}

PEER_DECIDE(open_table, open_one)

static inline bool open_all(struct open_table *table, const char *key) {
    return table->setup.limits == 2 ? open_decide(table, key, 2)
                                    : open_decide(table, key, PEER_LIMITS);
}

PEER_DECIDE(open_table, open_all)

#define OPEN_PEER .bytes_per_key = 40, .close = open_table_close

const struct peer peer_open_64 = PEER("open-64", "open addressing, 64 mutexes", 1, open_one_each,
                                      "a pre-sized open-addressing table behind 64 mutexes, xxhash",
                                      .open = open_table_open, OPEN_PEER);

const struct peer peer_open_64_huge =
    PEER("open-64-huge", "open addressing, huge pages", 1, open_one_each,
         "open-64 on huge pages, as stint's table is", .open = open_table_open_huge, OPEN_PEER);

const struct peer peer_open_64_all =
    PEER("open-64-all", "open addressing, 64 mutexes", 1, open_all_each,
         "open-64, with a count for each limit beside the key, checked together",
         .open = open_table_open, OPEN_PEER);

const struct peer peer_open_64_huge_all =
    PEER("open-huge-all", "open addressing, huge pages", 1, open_all_each,
         "open-64-all on huge pages, as stint's table is", .open = open_table_open_huge, OPEN_PEER);
