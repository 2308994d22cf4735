/* SPDX-License-Identifier: MIT
 * A table under test and the threads that ask it, stretch by stretch. */
#ifndef STINT_BENCH_BED_H
#define STINT_BENCH_BED_H

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "keys.h"
#include "team.h"
#include "workload.h"

/* A table with what is needed to ask it. */
struct bed {
    json_t *asked; /* what it was opened with */
    struct target target;
    struct sequence sequence;
    uint64_t keys;
    unsigned threads, policies;
    double refused_part; /* of the keys: those that are used up before the time is taken */
    bool new_keys;       /* every epoch has keys of its own */
    unsigned char secret[STINT_SECRET_SIZE];
    uint64_t start, epoch_ns;    /* `now` of epoch 0, and to the next */
    uint64_t position[TEAM_MAX]; /* of each thread in the sequence */
    struct chunk *chunks;        /* one for each thread */
    struct timings *timings;     /* NULL, or one for each thread and one of all, see bed_tails */
    uint32_t *granted;           /* NULL, or what each key was granted: a rehearsal's */
    uint64_t floor_bytes;
    struct stint_limiter *reader; /* NULL, or a read-only handle of the table */
    pthread_t watcher;            /* looks by it until it is to end */
    uint32_t watched_enough;
};

/* The policy that decides about the key with this index. */
static inline uint32_t bed_policy(const struct bed *bed, uint64_t index) {
    return bed->policies == 1 ? bed->target.policy : (uint32_t)(index % bed->policies);
}

/* The keys of a run: parts have a key each, or one together. */
static inline unsigned bed_run_keys(const struct bed *bed) {
    return bed->target.each_key ? bed->target.parts : 1;
}

/* Index of the key of a part, in the run for the key with this index. The partners of a key are
 * always the same: so all parts are granted the same, and it can be told how much that is. */
static inline uint64_t bed_part_index(const struct bed *bed, uint64_t index, unsigned part) {
    return bed->target.each_key ? index + part * bed->keys : index;
}

/* Whether that key has used up its limit before the first repeat. */
static inline bool bed_used_up(const struct bed *bed, uint64_t index) {
    return bed->refused_part > 0 && (double)(mix64(~index) >> 11) * 0x1p-53 < bed->refused_part;
}

/* Index of the nth key of an epoch, and its time. An epoch is a window, and new keys if it has
 * such. */
static inline uint64_t epoch_index(const struct bed *bed, uint64_t epoch, uint64_t nth) {
    return bed->new_keys ? epoch * bed->keys + nth : nth;
}

static inline uint64_t epoch_now(const struct bed *bed, uint64_t epoch) {
    return bed->start + epoch * bed->epoch_ns;
}

/* The bed that a job is about: "bed", 0 or 1. Two can be open at once. */
struct bed *bed_of(json_t *asked);

/* Jobs. Opens an empty table and the floors' memory; puts another empty table in its place, of
 * which nothing was asked yet; closes it. Ends the process, after a message, if the memory cannot
 * be had. */
json_t *bed_open(json_t *asked);
json_t *bed_renew(json_t *asked);
json_t *bed_close(json_t *asked);

/* The times of single calls: percentiles since this was asked last, and of all. */
json_t *bed_tails(json_t *asked);

#endif
