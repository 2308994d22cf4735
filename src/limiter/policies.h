/* SPDX-License-Identifier: MIT
 * Policies as they are in the mapping, and what is read of one by itself. */
#ifndef STINT_POLICIES_H
#define STINT_POLICIES_H

#include <stint.h>

#include "rule/judge.h"
#include "sys/atomic.h"

/* All that a decision reads of a policy. The atomic add (fast.h) reads the first line only. */
struct policy {
    /* The end (tick) of the window of the last decision, a hint: any end of the policy's is safe. A
     * calendar's has the window's days above it: 30 January is not in that of February. */
    _Alignas(CACHE_LINE) uint64_t current_end;
    uint64_t hot_window;   /* ns; 0: the atomic add is not for this policy */
    uint64_t hot_capacity; /* tokens up to which a fetch-add counts; 0: it may not */
    uint64_t window;       /* ns; bucket: the longest that it ever had (policy_record) */
    uint64_t reciprocal;   /* of the window (reciprocal_of) */
    tick_t length;         /* of the window; calendar: `length` and `window` are of the longest;
                            * bucket: the longest that one was ever not full (policy_reach) */
    tick_t start; /* of a window, but for a key's own phase; calendar: by the clock of the offset */
    uint64_t identity; /* policy_identity: its id, and the generation of its record */
    /* Second line. The rule that counts is rules[version % 2]. 0: there is no such policy. */
    _Alignas(CACHE_LINE) uint64_t version;
    uint64_t rules[2][RULE_WORDS];
    uint64_t fade; /* ns; of the previous window's tokens (count_fade) */
};
static_assert(sizeof(struct policy) == (size_t)2 * CACHE_LINE, "a policy is two lines");

struct policy_record {
    _Alignas(CACHE_LINE) char name[STINT_NAME_SIZE];
    uint64_t rate_changed; /* ns: when a bucket's rate changed last (rate.h); 0: it did not */
    uint64_t bans[2];      /* by the policy's version, as its rules are (limiter_ban) */
    uint64_t reserved;     /* 0: free; what 0.3 wrote is cleared (open.c) */
    uint32_t flags;        /* enum record_flags */
    uint32_t alias;        /* once it is gone: the id of the policy in its place + 1; 0: none */
    uint32_t companion;    /* the id of its companion + 1; 0: none. Of a companion: whose it is */
    uint32_t calendar;     /* enum stint_calendar; 0: all windows are of one length */
    int32_t offset;        /* of the calendar, minutes east of UTC */
    uint32_t generation;   /* how often the id was used again, or a bucket's rate changed */
    uint64_t rate_before;  /* of a bucket: the window before, ticks 32 | the limit before 32 */
    /* By the policy's version. Of a policy that is no bucket its words are 0. */
    uint64_t bucket_window[2]; /* ns: a bucket's window may change; 0: that of its policy */
    uint64_t ban_within[2];    /* ns in which strikes count; 0: as long as a ban */
    uint64_t bucket[2][2];     /* the number of its rate 4 | unit 60; reciprocal of the unit */
};
static_assert(sizeof(struct policy_record) == (size_t)3 * CACHE_LINE, "a record is three lines");
static_assert(offsetof(struct policy_record, bucket_window) == (size_t)2 * CACHE_LINE,
              "a bucket reads one line of it");

enum record_flags {
    RECORD_UNNAMED = 1 << 0,   /* the name is the rate that the policy was added with */
    RECORD_COMPANION = 1 << 1, /* a companion, which has no name */
    RECORD_TWO_RATES = 1 << 2, /* slots may count by the rate before (rate.h) */
};

/* How far ahead of now a policy's slots may be: any number, if the table was written over. */
static ALWAYS_INLINE tick_t policy_reach(const struct policy *policy) {
    return (tick_t)atomic_load_relaxed((const uint64_t *)&policy->length); /* M12 */
}

/* The length of a policy's window, by which others divide: a possible one, whatever is there. */
static ALWAYS_INLINE tick_t policy_length(const struct policy *policy) {
    /* M15: written before the version. */
    const uint64_t length = atomic_load_relaxed((const uint64_t *)&policy->length);
    return UNLIKELY(GUARD(POLICY_LENGTH, length - 1 >= STINT_WINDOW_MAX / STINT_TICK_NS))
               ? 1
               : (tick_t)length;
}

/* The start of a policy's windows, likewise: its ns fit in 64 bits. */
static inline tick_t policy_start(const struct policy *policy) {
    const tick_t most = INT64_MAX / (tick_t)STINT_TICK_NS;
    /* M15 */
    const tick_t start = (tick_t)atomic_load_relaxed((const uint64_t *)&policy->start);
    return UNLIKELY(start < -most || start > most) ? 0 : start;
}

#define HINT_DAYS 48 /* shift: no end of ns since the epoch has more bits */
static_assert(UINT64_MAX / STINT_TICK_NS < UINT64_C(1) << HINT_DAYS, "days stand above an end");

static ALWAYS_INLINE tick_t hint_end(uint64_t hint) {
    return (tick_t)(hint & ((UINT64_C(1) << HINT_DAYS) - 1));
}

/* Whether now is outside the window of a hint: unless end > now >= end - window. */
static ALWAYS_INLINE bool hint_foreign(tick_t end, uint64_t window, uint64_t now) {
    return GUARD(HINT_WINDOW, tick_ns(end) - now - 1 >= window);
}

static ALWAYS_INLINE uint64_t hint_window(uint64_t hint) {
    return (hint >> HINT_DAYS) * (uint64_t)TICKS_IN_DAY * STINT_TICK_NS;
}

static inline uint64_t hint_of(struct span window, bool calendar) {
    uint64_t days = (uint64_t)((window.end - window.begin) / TICKS_IN_DAY);
    return (uint64_t)window.end | (calendar ? days << HINT_DAYS : 0);
}

/* The traits and the capacity of one rule (judge.h, word 2). 0: no such policy, or it is gone. */
static ALWAYS_INLINE uint64_t policy_word(const struct policy *policy) {
    uint64_t version = atomic_load_acquire(&policy->version); /* M15 */
    if (UNLIKELY(version == 0))
        return 0;
    return atomic_load_acquire(&policy->rules[version % 2][RULE_TRAITS]); /* M13 */
}

static inline bool policy_gone(const struct policy *policy) {
    return atomic_load_acquire(&policy->version) != 0 && policy_word(policy) == 0; /* M15 */
}

/* A policy's id, its generation above it, and 0, where a verdict has its unit. Who charges reads it
 * first: slots are swept before the next generation, so no verdict tells a later one. */
static ALWAYS_INLINE words_2 policy_identity(const struct policy *policy) {
    return atomic_load_widened(&policy->identity); /* M15 */
}

/* A whole copy of the rule. A writer writes the one that is not in use, and then the version. */
static ALWAYS_INLINE struct rule policy_rule(const struct policy *policy) {
    uint64_t words[RULE_WORDS];
    uint64_t version;

    do {
        version = atomic_load_acquire(&policy->version);                /* M15 */
        words[0] = atomic_load_acquire(&policy->rules[version % 2][0]); /* M13 */
        words[1] = atomic_load_acquire(&policy->rules[version % 2][1]); /* M13 */
    } while (UNLIKELY(atomic_load_relaxed(&policy->version) != version));
    return rule_unpack(words);
}

#endif
