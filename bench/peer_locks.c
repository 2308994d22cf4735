/* SPDX-License-Identifier: MIT
 * What people write first: a hash table of counts, and a lock around it. */
#include <ck_cc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "pages.h"
#include "peer.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

/* uthash, because it is what C programs take when they want a hash table at once; with the hash
 * function that all others here have, as its own is slower. */
#define HASH_FUNCTION(key, length, hash) ((hash) = (unsigned)XXH3_64bits(key, length))
#define uthash_fatal(message)            must_have(NULL)
#include <uthash.h>

struct entry {
    UT_hash_handle hh;
    char key[PEER_KEY];
    struct peer_count counts[]; /* one for each limit */
};

/* Nobody shares a line with another's lock. */
struct shard {
    _Alignas(64) pthread_mutex_t mutex;
    struct entry *entries;
};

struct locks {
    struct peer_setup setup;
    unsigned shift; /* of a key's hash to the number of its shard */
    size_t shards;
    struct shard shard[];
};

static void locks_close(void *state) {
    struct locks *locks = state;

    for (size_t i = 0; i < locks->shards; i++) {
        struct shard *shard = &locks->shard[i];
        struct entry *entry, *next;
        HASH_ITER(hh, shard->entries, entry, next) {
            HASH_DEL(shard->entries, entry);
            free(entry);
        }
        pthread_mutex_destroy(&shard->mutex);
    }
    free(locks);
}

static bool locks_open(const struct peer_setup *setup, void **state) {
    unsigned bits = setup->sharded ? 6 : 0;
    size_t shards = (size_t)1 << bits;
    struct locks *locks;

    size_t size = sizeof(*locks) + shards * sizeof(locks->shard[0]);
    locks = aligned_alloc(64, (size + 63) & ~(size_t)63);
    if (locks == NULL)
        return peer_fail("no memory");
    *locks = (struct locks){.setup = *setup, .shift = 32 - bits, .shards = shards};
    for (size_t i = 0; i < shards; i++) {
        pthread_mutex_init(&locks->shard[i].mutex, NULL);
        locks->shard[i].entries = NULL;
    }
    *state = locks;
    return true;
}

/* The table takes the low bits of the hash, the shard the high ones. */
static inline struct shard *shard_of(struct locks *locks, uint32_t hash) {
    return &locks->shard[(uint64_t)hash >> locks->shift];
}

static struct entry *entry_add(const struct locks *locks, struct shard *shard, const char *key,
                               unsigned hash) {
    struct entry *entry =
        must_have(calloc(1, sizeof(*entry) + locks->setup.limits * sizeof(*entry->counts)));

    memcpy(entry->key, key, PEER_KEY);
    HASH_ADD_KEYPTR_BYHASHVALUE(hh, shard->entries, entry->key, PEER_KEY, hash, entry);
    return entry;
}

static CK_CC_FORCE_INLINE bool mutex_decide(struct locks *locks, const char *key, unsigned limits) {
    unsigned hash;
    struct entry *entry;
    uint32_t windows[PEER_LIMITS];

    peer_windows(&locks->setup, limits, windows);
    HASH_VALUE(key, PEER_KEY, hash);
    struct shard *shard = shard_of(locks, hash);
    pthread_mutex_lock(&shard->mutex);
    HASH_FIND_BYHASHVALUE(hh, shard->entries, key, PEER_KEY, hash, entry);
    if (entry == NULL)
        entry = entry_add(locks, shard, key, hash);
    bool allowed = peer_count_all(&locks->setup, limits, windows, entry->counts);
    pthread_mutex_unlock(&shard->mutex);
    return allowed;
}

PEER_DECIDE_LIMITS(locks, mutex_decide)

const struct peer peer_mutex = {
    .name = "mutex", .open = locks_open, .close = locks_close, .decide = mutex_decide_each};
