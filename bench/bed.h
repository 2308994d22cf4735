/* SPDX-License-Identifier: MIT
 * A table under test and the threads that ask it, stretch by stretch. */
#ifndef STINT_BENCH_BED_H
#define STINT_BENCH_BED_H

#include <stdbool.h>
#include <stdint.h>

#include "keys.h"
#include "row.h"
#include "team.h"
#include "workload.h"

/* A table with what is needed to ask it. */
struct bed {
    const struct workload_kind *kind;
    struct path path;       /* that of a plain take, if it is no path */
    timed_function *run;    /* what the row's workload runs */
    timed_function *before; /* what fills the table */
    unsigned counted;       /* decisions of a run, by the limiter's statistics */
    struct target target;
    struct stint_options options;
    struct stint_policy policy; /* all policies but for their names */
    struct sequence sequence;
    uint64_t keys;
    unsigned threads, policies;
    double refused_part;
    unsigned char secret[STINT_SECRET_SIZE];
    uint64_t start, epoch_ns;    /* `now` of epoch 0, and to the next */
    uint32_t fit;                /* runs that fit in a window of a key */
    uint64_t position[TEAM_MAX]; /* of each thread in the sequence */
    struct chunk *chunks;        /* one for each thread */
    uint64_t requests, allowed;  /* counted by this table's limiter, looks apart */
    uint64_t extra_tokens;       /* that were granted beyond one for each request allowed */
    uint64_t floor_bytes;
    uint64_t preempted; /* times that a thread of a span lost its core */
};

/* What a thread did. */
struct tally {
    uint64_t ops, ns, allowed;
    char padding[40];
};
_Static_assert(sizeof(struct tally) == 64, "threads do not share a line");

/* Nanoseconds a decision of each stretch, of one thread. */
struct samples {
    float *ns;
    size_t n, room;
    char padding[40];
};

/* Of each key's share in a pass, what the pass goes over. */
enum part { WHOLE, FIRST_PART, LAST_PART }; /* seven eighths, and the eighth that is left */

/* A stretch of work by all threads: passes over all keys, or draws from the sequence. With a floor,
 * work and floor take turns of TURN_CHUNKS stretches, so that what disturbs the one disturbs the
 * other, and threads wait for each other between turns. */
struct span {
    struct bed *bed;
    timed_function *run;
    const struct floor_kind *floor; /* NULL: none */
    bool once;                      /* passes, each key once; else the sequence */
    bool shared;                    /* every thread passes over all keys, not only over its part */
    bool hold;                      /* all passes are in the epoch of the first */
    bool still;                     /* the clock does not move from epoch to epoch */
    enum part part;                 /* of a pass */
    uint64_t epoch; /* of the first pass; an epoch is a window, and new keys if it has such */
    uint64_t passes;
    uint64_t budget_ns;                      /* of timed work, each thread; for the sequence */
    uint64_t max_ops;                        /* each thread; for the sequence */
    uint32_t *granted;                       /* NULL, or counts what each key was granted */
    struct samples *samples, *floor_samples; /* NULL, or one for each thread: added to */
    struct tally tally[TEAM_MAX];
    struct tally floor_tally[TEAM_MAX];
    uint32_t over; /* set when a thread has done all it should */
};

enum { TURN_CHUNKS = 16 };

/* Bytes that measuring the row takes. */
uint64_t row_memory(const struct row *row);

/* Opens a table for `keys` keys at the row's load, with policies by which a key is granted `fit`
 * runs in a window, and the floors' memory. The table is empty. Ends the process, after a message,
 * if the memory cannot be had. */
void bed_open(struct bed *bed, const struct row *row, uint64_t keys, uint32_t fit);
void bed_close(struct bed *bed);

/* Puts an empty table in place of the one that is there, of which nothing was asked yet. */
void bed_renew(struct bed *bed);

/* The policy that decides about the key with this index. */
static inline uint32_t bed_policy(const struct bed *bed, uint64_t index) {
    return bed->policies == 1 ? bed->target.policy : (uint32_t)(index % bed->policies);
}

/* The keys of a run: parts have a key each, or one together. */
static inline unsigned bed_run_keys(const struct bed *bed) {
    return bed->path.each_key ? bed->path.parts : 1;
}

/* Index of the key of a part, in the run for the key with this index. The partners of a key are
 * always the same: so all parts are granted the same, and it can be told how much that is. */
static inline uint64_t bed_part_index(const struct bed *bed, uint64_t index, unsigned part) {
    return bed->path.each_key ? index + part * bed->keys : index;
}

/* Whether that key has used up its limit before the first repeat. */
static inline bool bed_used_up(const struct bed *bed, uint64_t index) {
    return bed->refused_part > 0 && (double)(mix64(~index) >> 11) * 0x1p-53 < bed->refused_part;
}

/* Such a key takes 1, limit - 1, and is refused 1: tokens beyond one for each request granted. */
static inline uint64_t use_up_extra(const struct bed *bed) {
    return bed->policy.limit - 2;
}

/* Counts of all policies together. */
void bed_stats(const struct bed *bed, struct stint_policy_stats *stats);

/* Index of the nth key of an epoch, and its time. */
uint64_t epoch_index(const struct bed *bed, uint64_t epoch, uint64_t nth);
uint64_t epoch_now(const struct bed *bed, uint64_t epoch);

/* Runs it and returns what all threads did together, floors apart. */
struct tally span_run(struct span *span);

/* The same for work that asks the limiter. */
struct tally span_ask(struct span *span);

/* Adds to demand what a pass of that span, with the floor FLOOR_PRESENT, asked of each key. */
void count_present(const struct span *span, uint32_t *demand);

/* The median of all threads' samples, which are forgotten. */
double samples_median(struct samples *samples, unsigned threads);

#endif
