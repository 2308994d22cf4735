/* SPDX-License-Identifier: MIT
 * Hash -> shard -> line: the table's shape. What slots mean, and how they change hands: slot.h. No
 * file of this folder knows what a policy is: here it is a number in a tag.
 *
 * The hash's top bits pick the shard and the home line in it, by one multiplication, so the number
 * of lines need not be a power of two and memory is 32.5 bytes per key to the line. All policies of
 * a key share its home line: a minute and an hour limit cost one cache miss. A key that finds its
 * home line full goes to the following lines of the shard, PROBE_LINES at most.
 *
 * The tag holds the hash's low bits and the policy:
 *
 *     tag = hash * tag_unit + policy + 1             tag_unit = 2^policy_bits > max_policies
 *
 * so it is never 0 (never used) and has policy 0 only as a tombstone. The policy_bits bits of the
 * hash that the tag lacks are its top ones, which the line stands for. A table has at least
 * 2^policy_bits * PROBE_LINES lines (TAG_LINES). So line and tag are the full 64 bits of the hash:
 * two keys share a slot only if their hashes are equal (I), and slots tell keys (table_hash). */
#ifndef STINT_LINES_H
#define STINT_LINES_H

#include <limits.h>

#include "rule/window.h"
#include "sys/atomic.h"

struct slot {
    uint64_t tag; /* 0: never used */
    uint64_t state;
};
static_assert(sizeof(struct slot) == 16, "a double-width compare-and-swap covers a slot");

#define LINE_SLOTS 4

struct line {
    _Alignas(CACHE_LINE) struct slot slots[LINE_SLOTS];
};
static_assert(sizeof(struct line) == CACHE_LINE, "a line is one cache line");

/* Lines that a key may be in: its home line and those after it, in its shard. Of 10 million random
 * keys the farthest was 12 lines from home at a load of 50%: 24 leaves 1 in 1,000 such tables with
 * one key unplaced; at 70%, 42 keys would find no place in 24, 634 in 16, 1 in 32. */
#define PROBE_LINES 24

/* Lines for each number that a tag may have in the place of a policy, at least. */
#ifdef STINT_TESTING
#define TAG_LINES(in_file) ((in_file) ? PROBE_LINES : 0) /* tests fill tables of a few slots */
#else
#define TAG_LINES(in_file) PROBE_LINES
#endif

/* What the claimers of a shard tell each other, whatever slots they claim. */
struct shard {
    /* A tick. A thread that takes over a used slot raises it first, to the tick by which the slot's
     * key was done with it. A key without a slot is given no window that was over by then. */
    _Alignas(CACHE_LINE) uint64_t watermark;
    /* Lines from home to the farthest claim that ever was, for statistics (I6). */
    uint64_t reach;
    /* Bits by hash: which keys of the shard may have a rare slot (filter_any). */
    uint64_t filter[6];
    /* Second line: what no search reads. */
    _Alignas(CACHE_LINE) uint64_t fallen_end; /* a tick: the latest end that fell here ever */
    uint64_t reserved[7];                     /* 0: what a line has left */
};
static_assert(sizeof(struct shard) == (size_t)2 * CACHE_LINE, "a search reads one line of a shard");
static_assert(offsetof(struct shard, fallen_end) == CACHE_LINE, "the filter fills the first one");

/* Notes that a slot's end falls (I1). Steps of the clock are not noted. The slot may have this end
 * again, for another key: who takes a token back asks for that first (stint_token_back). */
static inline void shard_end_falls(struct shard *shard, tick_t end, tick_t to) {
    if (end > to)
        atomic_raise(&shard->fallen_end, (uint64_t)end); /* M7: then it falls */
}

/* Whether this end, or a later one, may have fallen in a shard. */
static inline bool shard_end_fell(const struct shard *shard, tick_t end) {
    return end <= (tick_t)atomic_load_relaxed(&shard->fallen_end); /* M8 */
}

/* Mixes a hash and a number: the finalizer of splitmix64. */
static inline uint64_t mix(uint64_t hash, uint64_t number) {
    uint64_t x = hash + number * UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

static inline uint64_t hash_pick(uint64_t hash, uint64_t count) {
    __extension__ typedef unsigned __int128 wide;
    return (uint64_t)((wide)hash * count >> 64);
}

/* Lines of the table, and how a hash finds its own. Copied into each limiter: never written. */
struct table {
    struct line *lines;
    struct shard *shards;
    uint64_t line_count;
    uint64_t shard_lines; /* lines of a shard */
    uint32_t shard_bits;  /* log2 of the number of shards */
    uint16_t probe_lines; /* PROBE_LINES, or all lines of a shard that has fewer */
    uint64_t tag_unit;    /* 2^policy_bits: what two tags of one policy differ by at least */
};

/* floor(hash / 2^64 * line_count): uniform, and the hash's top bits decide. As line_count is shards
 * * shard_lines, the shard is the hash's top shard_bits bits. */
static inline uint64_t table_home(const struct table *table, uint64_t hash) {
    return hash_pick(hash, table->line_count);
}

static inline uint64_t table_shard(const struct table *table, uint64_t hash) {
    return table->shard_bits == 0 ? 0 : hash >> (64 - table->shard_bits);
}

static inline struct shard *table_shard_of(const struct table *table, uint64_t hash) {
    return &table->shards[table_shard(table, hash)];
}

static inline struct shard *table_shard_at(const struct table *table, const struct slot *slot) {
    const struct line *line = (const struct line *)(const void *)slot; /* or in the middle of it */
    return &table->shards[(uint64_t)(line - table->lines) / table->shard_lines];
}

/* How many lines from home the farthest claim of all keys of a home line ever was. A thread that
 * claims beyond it raises it first. So a search may stop there (I6). It is 1 at least, and of most
 * lines no more. (Of a million keys the mean is 1.03 after 2 windows of other keys, 2.5 after 200.)
 *
 * A byte of each line says how much more than 1. Eight are a word, raised by a CAS, seldom. They
 * follow the lines, so that the same huge pages have them. */
static inline uint64_t *reach_words(const struct table *table) {
    return (uint64_t *)(void *)(table->lines + table->line_count);
}

struct reach {
    uint64_t *word;
    unsigned shift;
};

static inline struct reach reach_at(const struct table *table, uint64_t hash) {
    const uint64_t home = table_home(table, hash);
    return (struct reach){reach_words(table) + home / sizeof(uint64_t),
                          (unsigned)(home % sizeof(uint64_t)) * CHAR_BIT};
}

static inline uint64_t reach_in(uint64_t word, struct reach reach) {
    return (word >> reach.shift & UINT8_MAX) + 1;
}

static inline uint64_t reach_of(const struct table *table, uint64_t hash) {
    const struct reach reach = reach_at(table, hash);
    return reach_in(atomic_load_acquire(reach.word), reach); /* I6 */
}

/* Raises a key's reach to at least this line: what follows is done after it is so high. */
static inline void reach_raise(const struct table *table, uint64_t hash, uint64_t line) {
    const struct reach reach = reach_at(table, hash);
    uint64_t seen;
    do
        seen = atomic_load_acquire(reach.word); /* I6 */
    while (reach_in(seen, reach) < line &&
           !atomic_cas_seq(reach.word, seen, /* I6, M7 */
                           seen + ((line - reach_in(seen, reach)) << reach.shift)));
}

/* The bits of a key in its shard's filter, from the bits of the hash that a tag has (tag_hash). One
 * says that it may have a rare slot, of a kind that few keys have and many decisions ask for
 * (override.h); the other, that this may be behind two lines. */
#define FILTER_ANY 4 /* words; those behind them are for the other bit */
#define FILTER_FAR 2

struct filter_bit {
    uint64_t *word;
    uint64_t bit;
};

static inline struct filter_bit filter_any(const struct table *table, uint64_t hash) {
    return (struct filter_bit){&table_shard_of(table, hash)->filter[hash >> 6 & (FILTER_ANY - 1)],
                               UINT64_C(1) << (hash & 63)};
}

static inline struct filter_bit filter_far(const struct table *table, uint64_t hash) {
    uint64_t *words = &table_shard_of(table, hash)->filter[FILTER_ANY];
    return (struct filter_bit){&words[hash >> 14 & (FILTER_FAR - 1)], UINT64_C(1)
                                                                          << (hash >> 8 & 63)};
}

static ALWAYS_INLINE bool filter_bit_has(struct filter_bit bit) {
    return (atomic_load_acquire(bit.word) & bit.bit) != 0; /* I6 */
}

/* Whether a key may have a rare slot: its bits are set as long as it has (I6). */
static ALWAYS_INLINE bool filter_has(const struct table *table, uint64_t hash) {
    return filter_bit_has(filter_any(table, hash));
}

static inline uint64_t filter_reach(const struct table *table, uint64_t hash) {
    return filter_bit_has(filter_far(table, hash)) ? reach_of(table, hash) : 1;
}

static inline void filter_bit_set(struct filter_bit bit) {
    uint64_t seen;
    do
        seen = atomic_load_acquire(bit.word);                                         /* I6 */
    while ((seen & bit.bit) == 0 && !atomic_cas_seq(bit.word, seen, seen | bit.bit)); /* I6, M7 */
}

/* Sets a key's bits, before it claims a rare slot in this line of its sequence (M7). */
static inline void filter_admit(const struct table *table, uint64_t hash, uint32_t line) {
    filter_bit_set(filter_any(table, hash));
    if (line > 1)
        filter_bit_set(filter_far(table, hash));
}

/* Sets both bits of a key in words like those of its shard's filter. */
static inline void filter_mark(const struct table *table, uint64_t hash, uint64_t *words) {
    const struct filter_bit any = filter_any(table, hash), far = filter_far(table, hash);
    const uint64_t *filter = table_shard_of(table, hash)->filter;
    words[any.word - filter] |= any.bit;
    words[far.word - filter] |= far.bit;
}

static inline struct line *shard_end(const struct table *table, uint64_t hash) {
    return &table->lines[(table_shard(table, hash) + 1) * table->shard_lines];
}

/* The line after one of a key's lines, which go round in the shard that ends there. */
static inline struct line *line_after(const struct table *table, struct line *line,
                                      struct line *end) {
    return line + 1 < end ? line + 1 : end - table->shard_lines;
}

static inline struct line *table_next(const struct table *table, uint64_t hash, struct line *line) {
    return line_after(table, line, shard_end(table, hash));
}

static inline uint64_t table_tag(const struct table *table, uint64_t hash, uint32_t policy) {
    return hash * table->tag_unit + policy + 1;
}

/* The policy of a tag that is neither never used nor a tombstone. */
static inline uint32_t tag_policy(const struct table *table, uint64_t tag) {
    return (uint32_t)(tag & (table->tag_unit - 1)) - 1;
}

/* The bits of the hash that a tag has: all but the log2(tag_unit) highest. */
static inline uint64_t tag_hash(const struct table *table, uint64_t tag) {
    return (tag - tag_policy(table, tag) - 1) / table->tag_unit;
}

/* Tag of a slot whose claim was cancelled: no key's, and not 0, at which searches stop. */
static inline uint64_t table_tombstone(const struct table *table) {
    return table->tag_unit;
}

/* The hash by which a slot in this line got its tag: of those that differ in their top bits alone a
 * line stands for one. False if there is none: the slot is nonsense. */
static inline bool table_hash(const struct table *table, uint64_t line, uint64_t tag,
                              uint64_t *hash) {
    const uint32_t bits = (uint32_t)__builtin_ctzll(table->tag_unit);
    const uint64_t low = tag >> bits; /* no overflow below: 2^40 lines, 16 bits */
    const uint64_t shard = line / table->shard_lines;

    /* The home line is this one, one of those before it, or, behind the shard's first, one of its
     * last. The largest top bits that lead there are those at the line's end, or one less. */
    for (uint32_t wrapped = 0; wrapped < 2; wrapped++) {
        const uint64_t from = line + wrapped * table->shard_lines;
        const uint64_t top = (((from + 1) << bits) - 1) / table->line_count;
        for (uint32_t less = 0; less < 2 && less <= top; less++) {
            const uint64_t asked = (top - less) << (64 - bits) | low,
                           home = table_home(table, asked);
            if (top - less < table->tag_unit && table_shard(table, asked) == shard &&
                home <= from && from - home < table->probe_lines) {
                *hash = asked;
                return true;
            }
        }
    }
    return false;
}

static inline struct line *home_of(const struct table *table, uint64_t hash) {
    return &table->lines[table_home(table, hash)];
}

/* Which slots of this line have the tag; 0 if none. All four are compared, in no order, before one
 * branch follows. That branch is predictable; an early exit would not be. */
static inline uint32_t line_match(const struct line *line, uint64_t tag) {
    return atomic_match4(&line->slots[0].tag, tag); /* a hint, which M1 and M2 check */
}

static inline struct slot *line_slot(struct line *line, uint32_t match) {
    return (struct slot *)((char *)line + match4_offset(match));
}

/* The slot of this line that has the tag, or NULL: a hint, which the loads that follow it check. */
static inline struct slot *line_find(struct line *line, uint64_t tag) {
    uint32_t match = line_match(line, tag);
    return match == 0 ? NULL : line_slot(line, match);
}

/* Fetches the line after a home line, whose miss would stop the processor, to the second-level
 * cache only: the first has few misses under way at once (out of cache: 2 ns less). */
static ALWAYS_INLINE void fetch_next(const struct line *home) {
    __builtin_prefetch(home + 1, 0, 2); /* harmless where it is another shard's, or none */
}

/* Requests whose lines are on their way while one is decided: about as many misses as a core keeps
 * under way (10 to 24 line fill buffers on x86-64 of the last ten years). */
#define AHEAD 16

static ALWAYS_INLINE struct line *fetch_lines(const struct table *table, uint64_t hash) {
    struct line *home = home_of(table, hash);
    __builtin_prefetch(home);
    fetch_next(home);
    return home;
}

#endif
