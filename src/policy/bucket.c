/* SPDX-License-Identifier: MIT
 * Token buckets: their rules, and the time by which they are judged. */
#include "policy/bucket.h"

#include "limiter/counters.h"

bool stint_bucket_rule(const struct stint_limiter *limiter, uint32_t id, struct bucket *bucket) {
    for (;;) {
        const uint32_t traits = (uint32_t)policy_word(&limiter->policies[id]);
        if ((traits & RULE_BUCKET) == 0)
            return false;
        if (limiter_bucket_load(limiter, id, traits, true, bucket))
            return true;
    }
}

uint64_t stint_bucket_used(const struct stint_limiter *limiter, const struct policy *policy,
                           uint64_t state, uint64_t now) {
    struct terms terms = {0};
    struct bucket bucket;

    if (!stint_bucket_rule(limiter, (uint32_t)(policy - limiter->policies), &bucket))
        return 0; /* it is gone */
    bucket_terms(&terms, &bucket, 0);
    return bucket_tokens(
        &terms, bucket_count(end_of(state_id(state), tick_of(now)), bucket_ns(state), now));
}

uint64_t stint_bucket_window(const struct stint_limiter *limiter, uint32_t id) {
    const uint64_t version = atomic_load_acquire(&limiter->policies[id].version); /* M15 */
    return limiter_bucket_window(limiter, id, version);
}

bool stint_mark_passed(const struct stint_limiter *limiter, uint32_t policy_id, uint64_t from,
                       uint64_t to) {
    if (from == to)
        return false;
    return mark_passed(from, to, stint_bucket_window(limiter, policy_id));
}

uint64_t stint_bucket_later(const struct stint_limiter *limiter, uint64_t hash, uint64_t now) {
    const uint64_t *watermark = &table_shard_of(&limiter->table, hash)->watermark;
    const uint64_t times[3] = {limiter_now(limiter),
                               /* M8: of the claim whose slot was seen. */
                               tick_ns((tick_t)atomic_load_relaxed(watermark)),
                               stint_limiter_latest_now(limiter, now)};
    uint64_t late = 0;

    for (uint32_t i = 0; i < 3; i++)
        if (GUARD(BUCKET_AGAIN, times[i] > now + late && times[i] - now <= ALLOWANCE_NS))
            late = times[i] - now;
    return now + late;
}
