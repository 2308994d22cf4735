/* SPDX-License-Identifier: MIT
 * The slots that a key may be in, and the search in them. Read slot.h first. */
#ifndef STINT_SEARCH_H
#define STINT_SEARCH_H

#include "map/slot.h"

static inline struct line *sequence_line(const struct table *table, uint64_t hash,
                                         uint32_t number) {
    struct line *line = home_of(table, hash) + number;
    return line < shard_end(table, hash) ? line : line - table->shard_lines;
}

/* The first line, from `from` on, whose slots do not all match the pattern; probe_lines: none. */
static inline uint32_t sequence_all_match(const struct table *table, uint64_t hash, uint32_t from,
                                          const struct slot_pattern *asked) {
    struct line *line = sequence_line(table, hash, from), *const end = shard_end(table, hash);
    /* No order: what is seen live stays so (I1). */
    while (from < table->probe_lines && atomic_all_match(&line->slots[0].tag, asked)) {
        line = line_after(table, line, end);
        from++;
    }
    return from;
}

static inline struct slot *sequence_slot(const struct table *table, uint64_t hash,
                                         uint32_t position) {
    return &sequence_line(table, hash, position / LINE_SLOTS)->slots[position % LINE_SLOTS];
}

static inline uint32_t sequence_length(const struct table *table) {
    return table->probe_lines * LINE_SLOTS;
}

/* Lines of the sequence that may have the key's tag (I6). Never more than a key may be in, whatever
 * somebody has written over a shared table. */
static inline uint32_t sequence_reach(const struct table *table, uint64_t hash) {
    const uint64_t lines = reach_of(table, hash) + 1;
    return LIKELY(lines <= table->probe_lines) ? (uint32_t)lines : table->probe_lines;
}

/* A search for a tag looks for a never-used slot in this many lines: it may stop there (I5). While
 * a table is young, that ends most searches. Later there is no such slot, and looking costs.
 * (stint_search looks in the line at which it stops, too.) */
#define UNUSED_LINES 2

struct search {
    struct slot *slot; /* which has the key's tag; NULL: none */
    uint32_t line;     /* its line, counted from home; NULL: how many lines from home on are live */
};

/* Looks for a tag in the lines from number `from` to before `lines`, as far as it can be (I5). */
struct search stint_find_tag(const struct table *table, uint64_t hash, uint64_t tag, uint32_t from,
                             uint32_t lines);

/* The slot with the tag in a key's first two lines, in which nearly every key is: 1 in 25 is in the
 * second at a load of 50%. `home`: the first. */
static ALWAYS_INLINE struct slot *slot_near_home(const struct table *table, uint64_t hash,
                                                 struct line *home, uint64_t tag) {
    struct slot *slot = line_find(home, tag);
    return LIKELY(slot != NULL) ? slot : line_find(table_next(table, hash, home), tag);
}

/* The slots of a key's first two lines that were never used: of each line, a match. 0: there are
 * none. Else a key whose tag is in neither line is nowhere (I5). */
static ALWAYS_INLINE uint64_t unused_near(const struct table *table, uint64_t hash) {
    struct line *home = home_of(table, hash);
    return (uint64_t)line_match(table_next(table, hash, home), 0) << 32 | line_match(home, 0);
}

/* What a look for a tag in all lines has shown. */
struct far {
    struct slot *slot; /* which has the tag; NULL: none */
    uint64_t unused;   /* then: unused_near */
};

/* The same of a tag that is in neither of the first two lines. */
struct far stint_look_far(const struct table *table, uint64_t hash, uint64_t tag);

static ALWAYS_INLINE struct far look_for(const struct table *table, uint64_t hash, uint64_t tag) {
    struct slot *slot = slot_near_home(table, hash, home_of(table, hash), tag);
    return LIKELY(slot != NULL) ? (struct far){slot, 0} : stint_look_far(table, hash, tag);
}

/* The slot with a tag, or NULL: a hint, which the loads that follow it check. */
static ALWAYS_INLINE struct slot *slot_of(const struct table *table, uint64_t hash, uint64_t tag) {
    return look_for(table, hash, tag).slot;
}

/* Looks for the key's tag, and on the way sees for how many lines from home on all slots are live.
 *
 * A slot once seen live stays so at this now, whoever's it is (I1): it is as if all were seen when
 * the last one was. One bulk check of a line shows slots to be live that end within the allowance.
 * Longer ones are left to the caller: a step of the clock may have left some that count as over.
 *
 * The tags found here are only hints: which was seen before which bulk check does not matter. */
struct search stint_search(const struct table *table, uint64_t hash, uint64_t tag, tick_t now);

/* Whether some slot has the tag by now, after a search that found none, and all slots live. */
bool stint_find_again(const struct table *table, uint64_t hash, uint64_t tag);

/* The committed slot of a key as it was seen (I3). Returns false if there is none. */
bool stint_find_committed(const struct table *table, uint64_t hash, uint64_t tag,
                          struct seen *seen);

/* The pattern of the slots of a line that needs no closer look: all are keys', none is pending, and
 * none has the tag. It compares the high halves of tags only: a tag that differs in the low half
 * alone gives a closer look for nothing. */
static inline struct slot_pattern others_of(const struct table *table, uint64_t tag) {
    const uint32_t policy_mask = (uint32_t)table_tombstone(table) - 1;

    return (struct slot_pattern){
        .flip[0] = policy_mask, /* mask - x < mask: x is not 0, as never used and tombstones are */
        .mask[0] = policy_mask,
        .below[0] = policy_mask,
        .base[0] = (uint32_t)(tag >> 32) + 1,
        .range[0] = UINT32_MAX,
        .mask[1] = (uint32_t)STATE_PENDING,
        .below[1] = 1,
    };
}

/* The same, of slots that are live by windows of this length: ahead of now, by that and the
 * allowance at most. Ids are compared without their last bit, in the high half of a state. So the
 * range begins at the first even id behind that of now. */
static inline struct slot_pattern live_others(const struct table *table, uint64_t tag, tick_t now,
                                              tick_t length) {
    struct slot_pattern asked = others_of(table, tag);
    asked.base[1] = (uint32_t)(id_of(now) >> 1) + 1;
    asked.range[1] = (uint32_t)(((uint64_t)length + ALLOWANCE_TICKS - 1) / 2);
    return asked;
}

#endif
