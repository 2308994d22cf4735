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
    struct target target;
    struct stint_options options;
    struct stint_policy policy;
    struct sequence sequence;
    uint64_t keys;
    unsigned threads;
    unsigned char secret[STINT_SECRET_SIZE];
    uint64_t start;              /* `now` of epoch 0 */
    uint64_t position[TEAM_MAX]; /* of each thread in the sequence */
    struct chunk *chunks;        /* one for each thread */
    uint64_t requests, allowed;  /* answered by this table, looks apart */
    uint64_t floor_bytes;
    uint64_t preempted; /* times that a thread of a span lost its core */
};

struct tally {
    uint64_t ops, ns, allowed;
    char padding[40];
};
_Static_assert(sizeof(struct tally) == 64, "threads do not share a line");

/* A stretch of work by all threads: passes over all keys, or draws from the sequence. */
struct span {
    struct bed *bed;
    timed_function *run;
    bool once;      /* passes, each key once; else the sequence, until budget or max_ops */
    bool shared;    /* every thread passes over all keys, not only over its part */
    bool hold;      /* all passes are in the epoch of the first */
    bool still;     /* the clock does not move from epoch to epoch */
    uint64_t epoch; /* of the first pass; an epoch is a window, and new keys if it has such */
    uint64_t passes;
    uint64_t budget_ns; /* of timed work, each thread */
    uint64_t max_ops;   /* each thread */
    uint32_t *granted;  /* NULL, or counts what each key was granted */
    struct tally tally[TEAM_MAX];
};

/* Bytes that measuring the row takes. */
uint64_t row_memory(const struct row *row);

/* Opens a table for `keys` keys at the row's load, with one policy of that limit, and the floors'
 * memory. The table is empty. Ends the process, after a message, if the memory cannot be had. */
void bed_open(struct bed *bed, const struct row *row, uint64_t keys, uint32_t limit);
void bed_close(struct bed *bed);

/* Puts an empty table in place of the one that is there. */
void bed_renew(struct bed *bed);

/* Index of the nth key of an epoch, and its time. */
uint64_t epoch_index(const struct bed *bed, uint64_t epoch, uint64_t nth);
uint64_t epoch_now(const struct bed *bed, uint64_t epoch);

/* Runs it and returns what all threads did together. */
struct tally span_run(struct span *span);

/* The same for work that asks the limiter. */
struct tally span_ask(struct span *span);

#endif
