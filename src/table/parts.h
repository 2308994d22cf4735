/* SPDX-License-Identifier: MIT
 * What the files of this folder have for each other, and for metrics.c. */
#ifndef STINT_PARTS_H
#define STINT_PARTS_H

#include "limiter/records.h"

/* Reads what stint_stats_get tells; without a scan, what takes one is 0. */
void stint_stats_read(struct stint_limiter *limiter, struct stint_stats *stats, bool scan);

/* Reads a caller's options, of whatever size: 0, or -EINVAL with a reason. */
int stint_options_read(const struct stint_options *given, struct stint_options *options);

/* Opens a copy of the table at made->path, which nobody else has open, and finishes in it what was
 * left half done. `made` has clock and secret, and receives the rest (shards 0: chosen). */
int stint_table_copy(struct stint_options *made, struct stint_limiter **opened);

/* Whether the file is still the one that was copied. A copy keeps pages that it has written to. */
int stint_table_whole(const struct stint_limiter *copy);

/* Makes a table in a file beside options.path that has no name yet. */
int stint_table_make(const struct stint_options *options, struct stint_limiter **made);

/* Frees the slots of policies that are gone. Returns whether there are any such policies. */
bool stint_sweep(struct stint_limiter *limiter);

/* A name of a key, which callers leave for readers; no decision reads it. A line of a set. */
struct label {
    _Alignas(CACHE_LINE) uint64_t key;
    uint64_t refused; /* windows 32 | time of the last one 32, s; 0: nobody's */
    uint64_t seal;    /* of the key and the bytes (labels.c) */
    uint64_t bytes[STINT_LABEL_SIZE / sizeof(uint64_t)];
};
static_assert(sizeof(struct label) == CACHE_LINE, "a label is one line");

/* Loads key and count, which a CAS compares, or the seal. */
static inline void label_load(const struct label *label, uint64_t seen[2]) {
    seen[0] = atomic_load_acquire(&label->key);
    seen[1] = atomic_load_acquire(&label->refused);
}

/* A key has its label in one of the places of a set. */
#define LABELS_IN_SET 4

/* A label as it was read. */
struct label_read {
    uint32_t refused; /* windows; 0: none is known */
    uint32_t length;
    uint64_t last; /* ns: when the last of them was counted */
    char bytes[STINT_LABEL_SIZE];
};

/* Reads what is known of a key: all 0 if that is nothing. */
void stint_label_read(const struct stint_limiter *limiter, uint64_t key, struct label_read *read);

/* Moves all labels to a table that nobody uses yet. In a full set those stay that count most. */
void stint_labels_move(const struct stint_limiter *from, struct stint_limiter *to);

#endif
