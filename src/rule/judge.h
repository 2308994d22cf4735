/* SPDX-License-Identifier: MIT
 * What windows and requests do to a count: the judge. Integers; no atomics, no clock, no state.
 *
 * A count is the 29 bits of a slot's state that hold what was taken. For most policies that is
 * `used`; for smooth and in-flight ones (TWO_COUNTS) it is two numbers of 14 bits:
 *
 *     28 ... 15  previous window | 14 ... 0  this window
 *
 * This window has one bit more, so that stray tokens (slot.h) do not reach the previous one. Of
 * that counts: smooth, the share that still overlaps; in flight, all, as tokens are held until they
 * are given back. What nobody gives back is forgotten with the window after its own.
 *
 * A token bucket's count is ns: how far the instant at which it is full is ahead of now. A token is
 * `unit` ns. Its slot has the instant (bucket_full). */
#ifndef STINT_JUDGE_H
#define STINT_JUDGE_H

#include "rule/window.h"
#include "sys/testing.h"

#define SMOOTH_BITS 14
#define SMOOTH_MAX  ((UINT64_C(1) << SMOOTH_BITS) - 1)
#define THIS_BITS   15
#define THIS_MASK   ((UINT64_C(1) << THIS_BITS) - 1)

/* Flags of policies with two counts: of this window, and of the one before. */
#define TWO_COUNTS ((uint32_t)(STINT_SMOOTH | STINT_IN_FLIGHT))

/* A flag of rules and traits that no caller has: the policy is a token bucket. */
#define RULE_BUCKET (UINT32_C(1) << 13)

/* What is special about a decision. A caller's flags are never these. */
enum special {
    /* It is of one stripe: */
    PART_REFUSED = 1 << 0,     /* refuse, whatever is left: all stripes together refuse */
    PART_SILENT = 1 << 1,      /* do not count it, nor mark its refusal (unless PART_REFUSED) */
    PART_SAME_WINDOW = 1 << 2, /* do nothing if the key is in a later window (decision.only_end) */
    /* Its key has an override that is in force: */
    KEY_BARRED = 1 << 4, /* it refuses all */
    KEY_BANNED = 1 << 7, /* it is a ban */
    KEY_OVERRIDDEN = 1 << 8,
    NOW_MISTAKEN = 1 << 9, /* it is decided at the clock's time, not at its now */
};
#define SPECIAL_REFUSED ((uint32_t)(PART_REFUSED | KEY_BARRED))
#define SPECIAL_TOLD    ((uint32_t)(KEY_BANNED | KEY_OVERRIDDEN | NOW_MISTAKEN))
static_assert((int)KEY_BANNED == (int)STINT_BANNED &&
                  (int)KEY_OVERRIDDEN == (int)STINT_OVERRIDDEN &&
                  (int)NOW_MISTAKEN == (int)STINT_MISTAKEN_NOW,
              "what is special about a decision is what its verdict tells");

/* What may change of a policy. */
struct rule {
    uint32_t limit;
    uint32_t capacity;
    uint32_t max_reserved;
    uint32_t flags;
    uint32_t stripes;    /* 1: none */
    uint32_t near_limit; /* percent */
    uint32_t jitter;     /* percent */
    bool capacity_given; /* false: the capacity follows the limit */
};

/* A rule as a policy has it, in three words:
 *
 *     word 0   capacity 32 | limit 32
 *     word 1   given 1 | jitter 7 | near limit 7 | log2 of stripes 3 | flags 14 | max_reserved 32
 *     word 2   capacity 32 | enum trait 32     what most decisions read, and no more */
#define RULE_WORDS  3
#define RULE_TRAITS 2
enum { RULE_FLAGS = 32, RULE_STRIPES = 46, RULE_NEAR = 49, RULE_JITTER = 56, RULE_GIVEN = 63 };

static ALWAYS_INLINE struct rule rule_unpack(const uint64_t words[RULE_WORDS]) {
    uint64_t rest = words[1];
    return (struct rule){
        .limit = (uint32_t)words[0],
        .capacity = (uint32_t)(words[0] >> 32),
        .max_reserved = (uint32_t)rest,
        .flags = (uint32_t)(rest >> RULE_FLAGS) & 0x3fff,
        .stripes = UINT32_C(1) << (rest >> RULE_STRIPES & 7),
        .near_limit = (uint32_t)(rest >> RULE_NEAR) & 127,
        .jitter = (uint32_t)(rest >> RULE_JITTER) & 127,
        .capacity_given = rest >> RULE_GIVEN != 0,
    };
}

static inline void rule_pack(const struct rule *rule, uint64_t words[RULE_WORDS]) {
    words[0] = (uint64_t)rule->capacity << 32 | rule->limit;
    words[1] = (uint64_t)rule->capacity_given << RULE_GIVEN |
               (uint64_t)rule->jitter << RULE_JITTER | (uint64_t)rule->near_limit << RULE_NEAR |
               (uint64_t)__builtin_ctz(rule->stripes) << RULE_STRIPES |
               (uint64_t)rule->flags << RULE_FLAGS | rule->max_reserved;
}

/* Whether a new window may begin with another count than 0. */
static ALWAYS_INLINE bool rule_carries(const struct rule *rule) {
    return (rule->flags & RULE_BUCKET) == 0 &&
           (rule->capacity > rule->limit || rule->max_reserved > 0 ||
            (rule->flags & TWO_COUNTS) != 0);
}

/* The count with which a window begins, `windows` >= 1 after the one that ended with `count`. */
static ALWAYS_INLINE uint64_t count_carry(const struct rule *rule, uint64_t count,
                                          uint64_t windows) {
    if (!rule_carries(rule))
        return 0; /* whatever it was: refused requests may have counted */
    if ((rule->flags & TWO_COUNTS) != 0) {
        const uint64_t previous = count & THIS_MASK; /* stray tokens of it are cut */
        return windows == 1 ? (previous < SMOOTH_MAX ? previous : SMOOTH_MAX) << THIS_BITS : 0;
    }
    /* No overflow: 2^28 tokens, 2^33 windows. */
    uint64_t paid = rule->limit * windows;
    return count > paid ? count - paid : 0;
}

/* The traits of a policy: its flags (enum stint_policy_flags) in the low 14 bits, and these. With
 * the capacity in the upper half they are one word, so they are always of one rule. */
enum trait {
    TRAIT_EXISTS = 1 << 14,
    /* A request takes tokens or is refused, waits for the window's end, and that is all. */
    TRAIT_PLAIN = 1 << 15,
    TRAIT_CARRIES = 1 << 16, /* rule_carries: a window that is over may still matter */
    TRAIT_NEAR = 1 << 18,    /* it has a near limit */
    TRAIT_JITTER = 1 << 19,
    TRAIT_CALENDAR = 1 << 23, /* windows are months or years, of different lengths */
    /* A companion's only trait: its slots are another policy's overrides. */
    TRAIT_COMPANION = 1 << 24,
};
/* All traits of policies that have nothing else. */
#define EXACT_PLAIN     ((uint32_t)(TRAIT_EXISTS | TRAIT_PLAIN))
#define EXACT_BUCKET    ((uint32_t)TRAIT_EXISTS | RULE_BUCKET)
#define EXACT_CARRIES   ((uint32_t)(TRAIT_EXISTS | TRAIT_CARRIES))
#define EXACT_OVERRIDES ((uint32_t)(TRAIT_EXISTS | STINT_OVERRIDES))

#define TRAIT_STRIPES  20 /* shift: log2 of the number of stripes, 3 bits */
#define TRAITS_STRIPED (UINT32_C(7) << TRAIT_STRIPES)

/* Policies whose windows are each key's own: a slot's end is that of its key's window. */
#define TRAITS_OWN_WINDOW ((uint32_t)(STINT_START_PER_KEY | STINT_START_FIRST) | RULE_BUCKET)

#define STRIPES_OF_KEY_MAX 64

static ALWAYS_INLINE uint32_t traits_stripes(uint32_t traits) {
    return UINT32_C(1) << (traits >> TRAIT_STRIPES & 7);
}

static ALWAYS_INLINE bool traits_striped(uint32_t traits) {
    return (traits & TRAITS_STRIPED) != 0;
}

/* What a request asks of a count. */
struct terms {
    uint32_t traits;     /* of the policy */
    uint32_t flags;      /* of the request */
    uint32_t special;    /* enum special */
    uint32_t cost;       /* tokens; 0 of a key that is never refused */
    uint64_t capacity;   /* most tokens that count as held, by override, request or policy */
    uint64_t room;       /* most that may be used after this request, reserved and charged too */
    uint64_t unit;       /* what a token adds to a count: 1; of a bucket: ns */
    uint64_t reciprocal; /* of a bucket's unit (reciprocal_of) */
    uint64_t rate;       /* the number of a bucket's rate, as a state has it */
};

/* A look leaves nothing behind. The look before a charge is a decision all the same. */
static ALWAYS_INLINE bool is_look(const struct terms *terms) {
    return (terms->flags & STINT_PEEK) != 0;
}

static ALWAYS_INLINE bool is_charge(const struct terms *terms) {
    return (terms->flags & (STINT_PEEK | STINT_CHARGE)) == STINT_CHARGE;
}

/* Whether it is counted as allowed or refused, and its first refusal marked. */
static ALWAYS_INLINE bool is_decision(const struct terms *terms) {
    return (terms->flags & (STINT_PEEK | STINT_CHARGE)) != STINT_PEEK && !is_charge(terms);
}

/* floor(2^64 / window). */
static inline uint64_t reciprocal_of(uint64_t window) {
    return UINT64_MAX / window + (UINT64_MAX % window + 1 == window);
}

/* ns in which the previous window's tokens fade; in flight they do not: 0, below any time left. */
static inline uint64_t count_fade(uint32_t flags, uint64_t window) {
    return GUARD(COUNT_FADE, (flags & STINT_IN_FLIGHT) != 0) ? 0 : window;
}

/* ceil(count * left / fade) of the previous window's count, without a division: `reciprocal` is
 * that of the window. Where nothing fades (0), it is the whole count. The estimate is never too
 * large, and too small by at most 1 for windows up to 6 days, by 33 for the longest: 2^14 tokens
 * times 2^55 ns of 2^64. So the rest fits in 64 bits. */
static NOINLINE __attribute__((unused)) uint64_t smooth_share(uint64_t previous, uint64_t left,
                                                              uint64_t fade, uint64_t reciprocal) {
    __extension__ typedef unsigned __int128 wide;
    if (left >= fade) /* a late thread's; in flight: always */
        return previous;
    uint64_t share = (uint64_t)((wide)previous * (left * reciprocal) >> 64);
    uint64_t rest = previous * left - share * fade; /* mod 2^64 */
    /* No more than all: while an id becomes another policy's, fade and reciprocal may not match. */
    for (; rest >= fade && share < previous; rest -= fade)
        share++;
    return share + (rest != 0);
}

/* A stripe's tokens: the shares of all stripes, a power of two, add up to the capacity. */
static ALWAYS_INLINE uint64_t stripe_share(uint64_t capacity, uint32_t stripes, uint32_t stripe) {
    return (capacity + (stripes - 1 - stripe)) >> __builtin_ctz(stripes);
}

/* A token's ns at least, whatever an override says. A policy's limit is checked. */
#define BUCKET_UNIT_MIN UINT64_C(100)

/* The ns in which one token comes back. (A limit of 0: the table was written over.) */
static inline uint64_t bucket_unit(uint64_t window, uint32_t limit) {
    const uint64_t unit = limit == 0 ? 0 : window / limit + (window % limit != 0);
    return unit > BUCKET_UNIT_MIN ? unit : BUCKET_UNIT_MIN;
}

/* Where a policy's rate word has the number, above the unit; and where a state has it. */
enum { RATE_NUMBER = 60, STATE_RATE_SHIFT = 25 };
#define UNIT_MASK ((UINT64_C(1) << RATE_NUMBER) - 1)

/* The instant at which a bucket is full, ns. Its slot ends with the tick of it, and `used` is the
 * ns into that tick, in 24 bits. Stray tokens are ns that the client waits. */
static ALWAYS_INLINE uint64_t bucket_full(tick_t end, uint64_t used) {
    return tick_ns(end - 1) + used;
}

static ALWAYS_INLINE uint64_t bucket_count(tick_t end, uint64_t used, uint64_t now) {
    const uint64_t count = bucket_full(end, used) - now;
    return (int64_t)count > 0 ? count : 0;
}

/* Whether a bucket's first refusal is over: its instant has passed a multiple of the window. */
static inline bool mark_passed(uint64_t from, uint64_t to, uint64_t window) {
    return from / window != to / window;
}

struct bucket {
    uint64_t unit;       /* ns */
    uint64_t reciprocal; /* of the unit */
    uint64_t window;     /* ns */
    uint64_t rate;       /* its number, as a state has it (occupant.h, STATE_RATE) */
    uint64_t version;    /* of the policy */
    uint32_t limit;
    uint32_t burst;
    uint32_t max_reserved;
};

/* The tokens of so many ns: one at least. */
static ALWAYS_INLINE uint64_t bucket_holds(uint64_t ns, uint64_t unit) {
    const uint64_t held = ns / unit;
    return held == 0 ? 1 : held < STINT_LIMIT_MAX ? held : STINT_LIMIT_MAX;
}

/* Fits the terms of a request to a bucket. `limit`: another than the policy's; 0: none. It changes
 * the unit. The times that the bucket and its reserve last stay. */
static ALWAYS_INLINE void bucket_terms(struct terms *terms, const struct bucket *bucket,
                                       uint32_t limit) {
    const bool ahead = (terms->flags & STINT_RESERVE) != 0 || is_charge(terms);

    terms->unit = bucket->unit;
    terms->reciprocal = bucket->reciprocal;
    terms->rate = bucket->rate;
    terms->capacity = bucket->burst;
    terms->room = (uint64_t)bucket->burst + (ahead ? bucket->max_reserved : 0);
    if (LIKELY(limit == 0))
        return;
    const uint64_t unit = bucket_unit(bucket->window, limit);
    terms->unit = unit;
    terms->reciprocal = reciprocal_of(unit);
    terms->capacity = bucket_holds(terms->capacity * bucket->unit, unit);
    terms->room = bucket_holds(terms->room * bucket->unit, unit);
}

/* Lets a request use no more of a bucket than this, nor take more ahead (0: all of it). */
static ALWAYS_INLINE void terms_cut(struct terms *terms, uint32_t burst) {
    if (LIKELY(burst == 0))
        return;
    terms->capacity = terms->capacity < burst ? terms->capacity : burst;
    terms->room = terms->room < burst ? terms->room : burst;
}

/* ceil(count / unit) of a bucket, without a division: the estimate is too small by at most 1. */
static ALWAYS_INLINE uint64_t bucket_tokens(const struct terms *terms, uint64_t count) {
    __extension__ typedef unsigned __int128 wide;
    const uint64_t whole = (uint64_t)((wide)count * terms->reciprocal >> 64);
    const uint64_t rest = count - whole * terms->unit;
    const uint64_t tokens = whole + (rest != 0) + (rest > terms->unit);
    return tokens < UINT32_MAX ? tokens : UINT32_MAX;
}

static inline uint64_t bucket_wait(const struct terms *terms, uint64_t count, uint64_t tokens,
                                   uint64_t room) {
    const uint64_t wait = count + tokens * terms->unit - room * terms->unit;
    return (int64_t)wait > 0 ? wait : 0;
}

/* Whether a request does not even fit into an empty count. */
static ALWAYS_INLINE bool never_fits(const struct terms *terms) {
    return terms->cost > terms->room;
}

/* What a request does to a count. */
struct charge {
    uint64_t count;   /* afterwards */
    uint64_t used;    /* what that amounts to: the verdict's, but of a bucket */
    uint64_t total;   /* what must be paid back: `used`, with the cost of a look that fits */
    uint32_t granted; /* tokens taken */
    bool fits;
    uint64_t added; /* to the count; a swap need not wait for what was seen */
};

struct taking {
    uint64_t tokens;
    bool fits;
};

/* What a request takes that does not fit: what is left (STINT_PARTIAL, a charge, STINT_DRAIN), or
 * what it is refused (STINT_COUNT_REFUSED). `asked`: the policy's traits 32 | its flags 32. */
static NOINLINE __attribute__((unused)) struct taking judge_odd(uint64_t asked, uint32_t special,
                                                                uint64_t cost, uint64_t used,
                                                                uint64_t capacity, uint64_t room) {
    const uint32_t flags = (uint32_t)asked, traits = (uint32_t)(asked >> 32);
    const uint64_t left = used < room ? room - used : 0;
    uint64_t taken = 0;

    if ((flags & (STINT_PEEK | STINT_CHARGE)) == STINT_CHARGE ||
        ((flags & STINT_PARTIAL) != 0 && left != 0 && (special & SPECIAL_REFUSED) == 0))
        return (struct taking){cost < left ? cost : left, true};
    if ((flags & STINT_PEEK) != 0)
        return (struct taking){0, false};
    if ((flags & STINT_DRAIN) != 0 && used < capacity)
        taken = capacity - used;
    if ((traits & STINT_COUNT_REFUSED) != 0 && (special & KEY_BANNED) == 0) {
        const uint64_t most = used + taken < STINT_LIMIT_MAX ? STINT_LIMIT_MAX - used - taken : 0;
        taken += cost < most ? cost : most;
    }
    return (struct taking){taken, false};
}

/* Whether a request does not fit into a count which amounts to `used` tokens. A bucket is judged by
 * its ns, so that its tokens, a multiplication later, are not waited for. No overflow: what a
 * bucket has room for comes back in a year (check.c), or the room is INT64_MAX / unit. */
static ALWAYS_INLINE bool is_over(const struct terms *terms, uint64_t count, uint64_t used) {
    return (terms->traits & RULE_BUCKET) != 0
               ? never_fits(terms) || count > (terms->room - terms->cost) * terms->unit
               : used + terms->cost > terms->room;
}

/* What becomes of any request that meets a count which amounts to `used` tokens. What is ordinary
 * is one comparison. (That of one token, which a fetch-add counts, stands in slot.h: slot_room.) */
static ALWAYS_INLINE struct charge judge(const struct terms *terms, uint64_t count, uint64_t used) {
    const uint32_t odd = (terms->flags & (STINT_PARTIAL | STINT_DRAIN | STINT_CHARGE)) |
                         (terms->traits & STINT_COUNT_REFUSED);
    struct taking taking = {terms->cost, true};

    if (GUARD(JUDGE_ROOM, is_over(terms, count, used)) ||
        UNLIKELY((terms->special & SPECIAL_REFUSED) != 0)) {
        taking = (struct taking){0, false};
        if (UNLIKELY(odd != 0))
            taking = judge_odd((uint64_t)terms->traits << 32 | terms->flags, terms->special,
                               terms->cost, used, terms->capacity, terms->room);
    }
    const uint64_t taken = is_look(terms) ? 0 : taking.tokens, added = taken * terms->unit;
    return (struct charge){count + added,        used + taken,
                           used + taking.tokens, taking.fits ? (uint32_t)taken : 0,
                           taking.fits,          added};
}

static inline uint64_t wait_add(uint64_t one, uint64_t other) {
    uint64_t sum;
    return __builtin_add_overflow(one, other, &sum) || sum == STINT_NEVER ? STINT_NEVER - 1 : sum;
}

/* ns from a window's end to that of the one in which all but `room` of `total` is paid back. */
static inline uint64_t wait_windows(const struct rule *rule, uint64_t window, uint64_t total,
                                    uint64_t room) {
    if (!rule_carries(rule) || total <= room)
        return 0;
    const uint64_t limit = rule->limit != 0 ? rule->limit : 1; /* 0: it was written over */
    uint64_t windows = (total - room + limit - 1) / limit;
    uint64_t wait;
    return __builtin_mul_overflow(windows - 1, window, &wait) ? STINT_NEVER - 1 : wait;
}

/* ns until the previous window's share fits into `room`, from `left` ns before a window's end. */
static inline uint64_t wait_share(uint64_t previous, uint64_t room, uint64_t left, uint64_t fade) {
    __extension__ typedef unsigned __int128 wide;
    if (previous <= room)
        return 0;
    uint64_t enough = (uint64_t)((wide)room * fade / previous); /* left, when it is small enough */
    return left > enough ? left - enough : 0;
}

/* The wait of a policy with two counts, the former of which fades. In flight it is a bound. */
static inline uint64_t wait_two(const struct terms *terms, uint64_t count, uint64_t window,
                                uint64_t fade, uint64_t left) {
    const uint64_t previous = count >> THIS_BITS & SMOOTH_MAX, current = count & THIS_MASK;

    if (left >
        window) /* a late thread's: as if the window had just begun, and what is before that */
        return left - window + wait_two(terms, count, window, fade, window);
    if (current + terms->cost <= terms->capacity)
        return wait_share(previous, terms->capacity - current - terms->cost, left, fade);
    return left + wait_share(current, terms->capacity - terms->cost, window, fade);
}

/* retry_after, without jitter, of what was judged so, `left` ns before the end of its window. By
 * other terms it may be asked only if the request does not fit by them. */
static inline uint64_t charge_wait(const struct terms *terms, const struct rule *rule,
                                   const struct charge *charge, uint64_t window, uint64_t left) {
    if (is_charge(terms))
        return 0;
    if (charge->fits && (terms->traits & RULE_BUCKET) != 0)
        return bucket_wait(terms, charge->count, charge->total - charge->used, terms->capacity);
    if (charge->fits) /* a reservation waits until what it took is there */
        return charge->total > terms->capacity
                   ? wait_add(left, wait_windows(rule, window, charge->total, terms->capacity))
                   : 0;
    if (never_fits(terms) || (terms->special & KEY_BARRED) != 0)
        return STINT_NEVER;
    if ((terms->traits & RULE_BUCKET) != 0)
        return bucket_wait(terms, charge->count, terms->cost, terms->room);
    if ((rule->flags & TWO_COUNTS) != 0)
        return wait_two(terms, charge->count, window, count_fade(rule->flags, window), left);
    /* What drained or counted refusals took has to be paid back, too. */
    return wait_add(left, wait_windows(rule, window, charge->total + terms->cost, terms->room));
}

#endif
