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
    struct peer_count counts[]; /* one for each limit; or 8 bytes: when the bucket is full, ns */
};
_Static_assert(sizeof(struct peer_count) == sizeof(uint64_t), "an instant has a count's room");

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
    uint64_t shard_slots;
    uint64_t token_ns; /* in which a token comes back to a bucket */
    size_t shards;
    struct shard shard[];
};

static void open_table_close(void *state) {
    struct open_table *table = state;

    for (size_t i = 0; i < table->shards; i++)
        pthread_mutex_destroy(&table->shard[i].mutex);
    if (table->setup.huge_pages)
        pages_unmap(table->memory, table->bytes);
    else
        free(table->memory);
    free(table);
}

static bool table_open(const struct peer_setup *setup, size_t shards, double mean, void **state) {
    size_t size = sizeof(struct open_table) + shards * sizeof(struct shard);
    struct open_table *table = aligned_alloc(64, size);

    if (table == NULL)
        return peer_fail("no memory");
    memset(table, 0, size);
    table->setup = *setup;
    table->shards = shards;
    table->token_ns = (setup->window * UINT64_C(1000000000) + setup->limit - 1) / setup->limit;
    /* Half full. Six deviations more than the mean: no shard overflows. */
    table->shard_slots = (uint64_t)(2 * mean + 6 * sqrt(mean)) + 8;
    size_t shard_bytes = table->shard_slots * slot_size(setup->limits);
    table->bytes = shards * shard_bytes;
    table->memory = setup->huge_pages ? pages_map(table->bytes) : calloc(1, table->bytes);
    if (table->memory == NULL) {
        free(table);
        return peer_fail("no memory");
    }
    for (size_t i = 0; i < shards; i++) {
        pthread_mutex_init(&table->shard[i].mutex, NULL);
        table->shard[i].slots = table->memory + i * shard_bytes;
    }
    *state = table;
    return true;
}

static bool open_table_open(const struct peer_setup *setup, void **state) {
    return table_open(setup, SHARDS, (double)setup->keys / SHARDS, state);
}

static inline struct shard *shard_of(struct open_table *table, uint64_t hash) {
    return &table->shard[hash >> (64 - SHARD_BITS)];
}

/* The key's slot, or one that is its own from now on; NULL: all are others'. */
static CK_CC_FORCE_INLINE struct slot *
slot_of(const struct open_table *table, const struct shard *shard, uint64_t hash, unsigned limits) {
    uint64_t at = scale64(hash << SHARD_BITS, table->shard_slots);
    struct slot *slot = slot_at(shard, at, limits);

    for (uint64_t probes = 0; slot->hash != hash; probes++) {
        if (slot->hash == 0) {
            slot->hash = hash;
            break;
        }
        if (probes == table->shard_slots)
            return NULL;
        at = at + 1 == table->shard_slots ? 0 : at + 1;
        slot = slot_at(shard, at, limits);
    }
    return slot;
}

static CK_CC_FORCE_INLINE bool open_decide(struct open_table *table, const char *key,
                                           unsigned limits) {
    uint64_t hash = XXH3_64bits(key, PEER_KEY) | 1;
    uint32_t windows[PEER_LIMITS];
    struct shard *shard = shard_of(table, hash);

    peer_windows(&table->setup, limits, windows);
    pthread_mutex_lock(&shard->mutex);
    struct slot *slot = slot_of(table, shard, hash, limits);
    bool allowed = slot != NULL && peer_count_all(&table->setup, limits, windows, slot->counts);
    pthread_mutex_unlock(&shard->mutex);
    return allowed;
}

PEER_DECIDE_LIMITS(open_table, open_decide)

/* ---- Token buckets ---- */

static inline bool open_bucket(struct open_table *table, const char *key) {
    uint64_t hash = XXH3_64bits(key, PEER_KEY) | 1, full;
    struct shard *shard = shard_of(table, hash);
    struct timespec time;
    bool allowed = false;

    clock_gettime(CLOCK_REALTIME_COARSE, &time);
    const uint64_t now = (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
    pthread_mutex_lock(&shard->mutex);
    struct slot *slot = slot_of(table, shard, hash, 1);
    if (slot != NULL) {
        memcpy(&full, slot->counts, sizeof(full));
        full = (full > now ? full : now) + table->token_ns;
        allowed = full <= now + table->setup.limit * table->token_ns;
        if (allowed)
            memcpy(slot->counts, &full, sizeof(full));
    }
    pthread_mutex_unlock(&shard->mutex);
    return allowed;
}

PEER_DECIDE(open_table, open_bucket)

/* ---- A table for each thread: no lock, no atomic operation, no limit that threads share ---- */

static bool own_open(const struct peer_setup *setup, void **state) {
    return table_open(setup, setup->threads, (double)setup->keys, state);
}

static bool own_each(void *state, unsigned thread, const char *keys, size_t n, unsigned depth,
                     uint64_t *answers) {
    struct open_table *table = state;
    struct shard *shard = &table->shard[thread];
    uint32_t window;

    (void)depth;
    for (size_t i = 0; i < n; i++) {
        uint64_t hash = XXH3_64bits(keys + i * PEER_KEY, PEER_KEY) | 1;
        peer_windows(&table->setup, 1, &window);
        struct slot *slot = slot_of(table, shard, hash, 1);
        bool allowed = slot != NULL && peer_count_all(&table->setup, 1, &window, slot->counts);
        answers[i / PEER_ANSWERS] |= (uint64_t)allowed << (i % PEER_ANSWERS);
    }
    return true;
}

const struct peer peer_own = {
    .name = "own", .open = own_open, .close = open_table_close, .decide = own_each};

const struct peer peer_open_64 = {.name = "open-64",
                                  .open = open_table_open,
                                  .close = open_table_close,
                                  .decide = open_decide_each};

const struct peer peer_open_64_bucket = {.name = "open-64-bucket",
                                         .open = open_table_open,
                                         .close = open_table_close,
                                         .decide = open_bucket_each};
