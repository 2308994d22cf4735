/* SPDX-License-Identifier: MIT
 * What limits beside stint, asked in one way: the same keys, the same order, the same policy. */
#ifndef STINT_BENCH_PEER_H
#define STINT_BENCH_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

enum {
    PEER_KEY = 16,     /* bytes of a key: letters and digits, which every peer takes */
    PEER_DEPTH = 16,   /* requests in flight where they are pipelined, or in one call */
    PEER_ANSWERS = 64, /* in a word of answers */
};

struct peer_setup {
    uint64_t keys;    /* that will be asked for */
    unsigned threads; /* that will ask */
    uint32_t limit;   /* tokens of a key in a window */
    uint64_t window;  /* s; [k * window, (k + 1) * window) since the epoch, for every integer k */
};

struct peer {
    const char *name;
    const char *label; /* in a picture */
    const char *help;
    const char *program;    /* NULL, or the server's, which must be installed */
    unsigned depth;         /* requests in flight of each thread */
    bool one_count;         /* a single count for all keys and no limit: it is a floor */
    unsigned bytes_per_key; /* about, to say beforehand what does not fit */
    bool (*open)(const struct peer_setup *setup, void **state);
    void (*close)(void *state);
    /* Decides one token of each of n keys, in order: bit i % 64 of answers[i / 64] says whether
     * the ith was granted. Threads call it at the same time, each with its own number. */
    bool (*decide)(void *state, unsigned thread, const char *keys, size_t n, unsigned depth,
                   uint64_t *answers);
    /* The server's process. NULL: it is in this one. */
    pid_t (*process)(void *state);
    /* What it is, with its version. NULL: it needs no saying. */
    const char *(*version)(void *state);
};

extern const struct peer peer_stint, peer_stint_verdict, peer_stint_ahead;
extern const struct peer peer_stint_batch, peer_stint_batch_64;
extern const struct peer peer_counter;
extern const struct peer peer_open_64, peer_open_64_huge;
extern const struct peer peer_rwlock, peer_mutex_64, peer_mutex;
extern const struct peer peer_redis_incr, peer_redis_incr_16, peer_redis_lua, peer_redis_lua_16;
extern const struct peer peer_memcached, peer_memcached_16;

/* Says why open or decide failed, for the calling thread. Returns false. */
bool peer_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* What peer_fail said last in this thread. */
const char *peer_failure(void);

/* The window that it is now. Servers of this kind read the coarse clock, as stint does. */
static inline uint64_t peer_window(const struct peer_setup *setup) {
    return (uint64_t)time(NULL) / setup->window;
}

/* Defines peer.decide for those that decide one key at a time in this process, with
 * bool one(struct STATE *state, const char *key). */
#define PEER_DECIDE(STATE, one)                                                                    \
    static bool one##_each(void *state, unsigned thread, const char *keys, size_t n,               \
                           unsigned depth, uint64_t *answers) {                                    \
        struct STATE *peer = state;                                                                \
        (void)thread;                                                                              \
        (void)depth;                                                                               \
        for (size_t at = 0; at < n; at += PEER_ANSWERS) {                                          \
            size_t end = n - at < PEER_ANSWERS ? n : at + PEER_ANSWERS;                            \
            uint64_t word = 0;                                                                     \
            for (size_t i = at; i < end; i++)                                                      \
                word |= (uint64_t)one(peer, keys + i * PEER_KEY) << (i - at);                      \
            answers[at / PEER_ANSWERS] = word;                                                     \
        }                                                                                          \
        return true;                                                                               \
    }

#endif
