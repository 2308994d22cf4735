/* SPDX-License-Identifier: MIT
 * The policies of a limiter by their ids, and what their records say. */
#ifndef STINT_RECORDS_H
#define STINT_RECORDS_H

#include "limiter/limiter.h"

/* How many policies were added. Even in a damaged table it is at most max_policies. */
static inline uint32_t limiter_policy_count(const struct stint_limiter *limiter) {
    uint64_t count = atomic_load_acquire(&limiter->header->policy_count); /* M15 */
    return count < limiter->max_policies ? (uint32_t)count : limiter->max_policies;
}

/* A policy that exists, or NULL. What was written before its version is visible to the caller. */
static inline struct policy *limiter_policy(const struct stint_limiter *limiter, uint32_t id) {
    if (UNLIKELY(id >= limiter->max_policies))
        return NULL;
    struct policy *policy = &limiter->policies[id];
    return atomic_load_acquire(&policy->version) == 0 ? NULL : policy; /* M15 */
}

/* Whether requests are decided by this id: its policy exists, and is no companion. */
static inline bool limiter_decides_by(const struct stint_limiter *limiter, uint32_t id) {
    return id < limiter->max_policies && (policy_word(&limiter->policies[id]) & TRAIT_EXISTS) != 0;
}

static inline const struct policy_record *limiter_record(const struct stint_limiter *limiter,
                                                         const struct policy *policy) {
    return &limiter->records[policy - limiter->policies];
}

static inline struct span limiter_calendar_window(const struct stint_limiter *limiter,
                                                  const struct policy *policy, tick_t tick) {
    const struct policy_record *record = limiter_record(limiter, policy);
    return calendar_window(tick, policy_start(policy), record->calendar, record->offset);
}

/* The policy of a slot's tag. NULL: a tombstone's, or nonsense. */
static inline struct policy *limiter_tag_policy(const struct stint_limiter *limiter, uint64_t tag) {
    return limiter_policy(limiter, tag_policy(&limiter->table, tag));
}

/* The window of a bucket, ns, by this version of its policy: a possible one, as policy_length. */
static ALWAYS_INLINE uint64_t limiter_bucket_window(const struct stint_limiter *limiter,
                                                    uint32_t id, uint64_t version) {
    /* M13 */
    uint64_t window = atomic_load_acquire(&limiter->records[id].bucket_window[version % 2]);
    if (UNLIKELY(window == 0))
        window = atomic_load_relaxed(&limiter->policies[id].window); /* M12 */
    return LIKELY(window - 1 < STINT_WINDOW_MAX && window % STINT_TICK_NS == 0) ? window
                                                                                : STINT_TICK_NS;
}

/* A bucket with these traits; not `whole`: no limit, no reserve. False: it has other traits now. */
static ALWAYS_INLINE bool limiter_bucket_load(const struct stint_limiter *limiter, uint32_t id,
                                              uint32_t traits, bool whole, struct bucket *bucket) {
    const struct policy *policy = &limiter->policies[id];
    const uint64_t version = atomic_load_acquire(&policy->version); /* M15 */
    const uint64_t *words = policy->rules[version % 2];
    const uint64_t *of = limiter->records[id].bucket[version % 2];
    const uint64_t has = atomic_load_acquire(&words[RULE_TRAITS]); /* M13 */

    if (whole) {
        bucket->limit = (uint32_t)atomic_load_acquire(&words[0]);        /* M13 */
        bucket->max_reserved = (uint32_t)atomic_load_acquire(&words[1]); /* M13 */
        bucket->window = limiter_bucket_window(limiter, id, version);
    }
    const uint64_t rate = atomic_load_acquire(&of[0]); /* M13 */
    bucket->burst = (uint32_t)(has >> 32);
    bucket->unit = rate & UNIT_MASK;
    bucket->rate = rate >> RATE_NUMBER << STATE_RATE_SHIFT;
    bucket->version = version;
    bucket->reciprocal = atomic_load_acquire(&of[1]); /* M13 */
    return LIKELY(version != 0) && LIKELY((uint32_t)has == traits) &&
           LIKELY(atomic_load_relaxed(&policy->version) == version); /* M13 */
}

struct ban {
    /* Its ticks, and below this bit, after how many windows with refusals. 0: it bans nobody. */
#define BAN_TICKS 16
    uint64_t word;
    uint64_t within; /* ns in which these windows lie; 0: as long as the ban */
};

static inline struct ban limiter_ban(const struct stint_limiter *limiter, uint32_t id) {
    const struct policy *policy = &limiter->policies[id];
    const struct policy_record *record = &limiter->records[id];
    struct ban ban;
    uint64_t version;

    do {
        version = atomic_load_acquire(&policy->version);                    /* M15 */
        ban.word = atomic_load_acquire(&record->bans[version % 2]);         /* M13 */
        ban.within = atomic_load_acquire(&record->ban_within[version % 2]); /* M13 */
    } while (UNLIKELY(atomic_load_relaxed(&policy->version) != version));
    return ban;
}

/* Of a record, enum record_flags. One changes while others look (rate.h). */
static inline uint32_t record_flags(const struct stint_limiter *limiter, uint32_t id) {
    return (uint32_t)atomic_load_relaxed_32(&limiter->records[id].flags); /* M15 */
}

static inline bool is_companion(const struct stint_limiter *limiter, uint32_t id) {
    return (record_flags(limiter, id) & RECORD_COMPANION) != 0;
}

#define POLICY_NONE UINT32_MAX

/* The id of a policy's companion (override.h), or POLICY_NONE. */
static inline uint32_t limiter_companion(const struct stint_limiter *limiter, uint32_t id) {
    /* M15 */
    uint32_t companion = (uint32_t)atomic_load_relaxed_32(&limiter->records[id].companion);
    return companion <= limiter->max_policies ? companion - 1 : POLICY_NONE;
}

/* With this bit, an alias names a policy that is to decide as soon as this one is gone: it has all
 * but its version, which counts one too few (records.c, policy_wake). */
#define ALIAS_WAKES (UINT32_C(1) << 31)
static_assert(STINT_POLICIES_MAX < ALIAS_WAKES, "an id + 1 is below the bit");

/* The id of the policy that decides for this id: itself, or the one in its place; POLICY_NONE. */
uint32_t stint_limiter_policy_now(const struct stint_limiter *limiter, uint32_t id);

/* The same id, and the traits that it had then. Read again, they may be 0: it was replaced. */
uint32_t stint_limiter_policy_and_traits(const struct stint_limiter *limiter, uint32_t id,
                                         uint32_t *traits);

/* The id of the policy with that name that decides, or POLICY_NONE. */
uint32_t stint_limiter_find(const struct stint_limiter *limiter, const char *name);

/* The first id that is free, under the table's lock; max_policies: there is none. */
uint32_t stint_limiter_free_id(const struct stint_limiter *limiter);

uint32_t stint_limiter_free_ids(const struct stint_limiter *limiter);

#endif
