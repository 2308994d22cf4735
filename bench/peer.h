/* SPDX-License-Identifier: MIT
 * What limits beside stint, asked in one way: the same keys, the same order, the same policy. */
#ifndef STINT_BENCH_PEER_H
#define STINT_BENCH_PEER_H

#include <stint.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

enum {
    PEER_KEY = 16,     /* bytes of a key: letters and digits, which every peer takes */
    PEER_ANSWERS = 64, /* in a word of answers */
    PEER_LIMITS = 3,   /* of a request, at most */
};

struct peer_setup {
    uint64_t keys;    /* that will be asked for */
    unsigned threads; /* that will ask */
    uint32_t limit;   /* tokens of a key in a window */
    uint64_t window;  /* s; [k * window, (k + 1) * window) since the epoch, for every integer k */
    char socket[108]; /* of the server, if there is one */
    unsigned connections; /* to it, of each thread */
    bool huge_pages;      /* the table is on them, as stint's is */
    bool sharded;         /* it is in 64 parts, each behind a lock of its own */
    /* Those of each request, which is granted if all grant it. The last is the one above. The
     * others are not as tight, and of longer windows that end when some of its do: so it is the
     * last that says what a key is granted, whatever other threads do meanwhile. */
    unsigned limits;
    struct {
        uint32_t limit;
        uint64_t window; /* s */
    } each[PEER_LIMITS];
};

struct peer {
    const char *name;
    bool (*open)(const struct peer_setup *setup, void **state);
    void (*close)(void *state);
    /* Decides one token of each of n keys, in order: bit i % 64 of answers[i / 64] says whether
     * the ith was granted. At most `depth` requests are in flight, or in a call. Threads call it at
     * the same time, each with its own number. */
    bool (*decide)(void *state, unsigned thread, const char *keys, size_t n, unsigned depth,
                   uint64_t *answers);
    /* What it is, with its version. NULL: it needs no saying. */
    const char *(*version)(void *state);
};

extern const struct peer peer_stint, peer_stint_verdict, peer_stint_batch;
extern const struct peer peer_own; /* a table for each thread: no limit is shared */
extern const struct peer peer_redis_incr;
extern const struct peer peer_dpdk; /* with STINT_BENCH_DPDK */

/* Those that decide by a token bucket, which holds the limit, and fills in a window: so nothing
 * comes back while answers are checked against the limit. */
extern const struct peer peer_stint_bucket, peer_open_64_bucket;

/* Those that decide by several limits at once, ... */
extern const struct peer peer_stint_all, peer_stint_groups, peer_stint_takes;

/* ... and those that do so if there are several. */
extern const struct peer peer_open_64, peer_mutex, peer_redis_lua;

/* Says why open or decide failed, for the calling thread. Returns false. */
bool peer_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* What peer_fail said last in this thread. */
const char *peer_failure(void);

/* The peer of that name. Ends the process if there is none. */
const struct peer *peer_named(const char *name);

/* The window that it is now. */
static inline uint64_t peer_window(const struct peer_setup *setup) {
    return (uint64_t)time(NULL) / setup->window;
}

/* The counts of a key in tables behind locks, one for each limit. */
struct peer_count {
    uint32_t window, count;
};

/* Whether all limits grant it; then each counts it. */
static inline bool peer_count_all(const struct peer_setup *setup, unsigned limits,
                                  const uint32_t *windows, struct peer_count *counts) {
    bool allowed = true;

    for (unsigned i = 0; i < limits; i++) {
        if (counts[i].window != windows[i])
            counts[i] = (struct peer_count){windows[i], 0};
        allowed &= counts[i].count < setup->each[i].limit;
    }
    for (unsigned i = 0; i < limits; i++)
        counts[i].count += allowed;
    return allowed;
}

/* The windows that it is now, one for each limit. The quotients are kept until the second is over:
 * so would a server that counts for a hundred million requests a second. */
static inline void peer_windows(const struct peer_setup *setup, unsigned limits,
                                uint32_t *windows) {
    static _Thread_local struct {
        uint64_t now;
        uint32_t windows[PEER_LIMITS];
    } kept; /* of the one setup that a process has at a time */
    uint64_t now = (uint64_t)time(NULL);

    if (kept.now != now) {
        kept.now = now;
        for (unsigned i = 0; i < setup->limits; i++)
            kept.windows[i] = (uint32_t)(now / setup->each[i].window);
    }
    for (unsigned i = 0; i < limits; i++)
        windows[i] = kept.windows[i];
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

/* The same, with bool decide(struct STATE *state, const char *key, unsigned limits): the number of
 * limits is a constant of the server. */
#define PEER_DECIDE_LIMITS(STATE, decide)                                                          \
    static inline bool decide##_1(struct STATE *state, const char *key) {                          \
        return decide(state, key, 1);                                                              \
    }                                                                                              \
    static inline bool decide##_2(struct STATE *state, const char *key) {                          \
        return decide(state, key, 2);                                                              \
    }                                                                                              \
    static inline bool decide##_3(struct STATE *state, const char *key) {                          \
        return decide(state, key, 3);                                                              \
    }                                                                                              \
    PEER_DECIDE(STATE, decide##_1)                                                                 \
    PEER_DECIDE(STATE, decide##_2)                                                                 \
    PEER_DECIDE(STATE, decide##_3)                                                                 \
    static bool decide##_each(void *state, unsigned thread, const char *keys, size_t n,            \
                              unsigned depth, uint64_t *answers) {                                 \
        unsigned limits = ((struct STATE *)state)->setup.limits;                                   \
        return (limits == 1   ? decide##_1_each                                                    \
                : limits == 2 ? decide##_2_each                                                    \
                              : decide##_3_each)(state, thread, keys, n, depth, answers);          \
    }

#endif
