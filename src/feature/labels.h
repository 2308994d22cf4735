/* SPDX-License-Identifier: MIT
 * Names of keys, as they are in the mapping (labels.c). */
#ifndef STINT_LABELS_H
#define STINT_LABELS_H

#include "limiter/records.h"

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
