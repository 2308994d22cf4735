/* SPDX-License-Identifier: MIT
 * A table under test, or a peer in its place, and the threads that ask it. */
#ifndef STINT_BENCH_BED_H
#define STINT_BENCH_BED_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "keys.h"
#include "team.h"
#include "timed.h"

struct bed {
    json_t *asked; /* what it was opened with */
    struct target target;
    struct sequence sequence;
    uint64_t keys;
    unsigned threads, policies;
    bool new_keys; /* every epoch has keys of its own */
    unsigned char secret[STINT_SECRET_SIZE];
    uint64_t start, epoch_ns;    /* `now` of epoch 0, and to the next */
    uint64_t position[TEAM_MAX]; /* of each thread in the sequence */
    struct chunk *chunks;        /* one for each thread */
    uint32_t *granted;           /* NULL, or what each key was granted: a rehearsal's */
};

/* The one that there is. */
extern struct bed bed;

/* The keys of a run: parts have a key each, or one together. */
static inline unsigned bed_run_keys(void) {
    return bed.target.each_key ? bed.target.parts : 1;
}

/* Index of the key of a part, in the run for the key with this index. The partners of a key are
 * always the same: so all parts are granted the same, and it can be told how much that is. */
static inline uint64_t bed_part_index(uint64_t index, unsigned part) {
    return bed.target.each_key ? index + part * bed.keys : index;
}

/* Index of the nth key of an epoch, and its time. An epoch is a window, and new keys if it has
 * such. */
static inline uint64_t epoch_index(uint64_t epoch, uint64_t nth) {
    return bed.new_keys ? epoch * bed.keys + nth : nth;
}

static inline uint64_t epoch_now(uint64_t epoch) {
    return bed.start + epoch * bed.epoch_ns;
}

/* Jobs. Opens an empty table, or a peer; puts another empty table in its place; closes it. Ends the
 * process, after a message, if the memory cannot be had. */
json_t *bed_open(json_t *asked);
json_t *bed_renew(json_t *asked);
json_t *bed_close(json_t *asked);

/* A job: all threads work, pass over all keys or draw from the sequence; tells what each did. */
json_t *span_run(json_t *asked);

/* A job: serves arrivals on a schedule, by a limiter of its own. */
json_t *load_run(json_t *asked);

/* Jobs: were the answers right? Nothing here is timed. A key's demand is "base" and one for each
 * time that the sequence asked for it. */

/* The keys take all that is left, and are refused once: the first refusal, which marks the slot, is
 * not what is measured. */
json_t *keys_use_up(json_t *asked);

/* What each key was granted, against what it asked for: "right" is the smaller of demand and limit
 * ("limit"), the demand ("all"), the demand of those that leave something of the limit ("rest"), or
 * up to that limit by each thread ("apart"). Forgets what was granted, and starts the sequence
 * again. */
json_t *keys_granted(json_t *asked);

/* What the limiter counted. */
json_t *keys_counts(json_t *asked);

#endif
