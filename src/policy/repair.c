/* SPDX-License-Identifier: MIT
 * Policies under the lock: what a death left is finished or taken back, what there is checked. */
#include "limiter/counters.h"
#include "policy/policy.h"
#include "sys/message.h"

static bool policy_known(const struct stint_limiter *limiter, uint32_t id) {
    const struct policy_record *record = &limiter->records[id];
    const bool bucket = (policy_rule(&limiter->policies[id]).flags & RULE_BUCKET) != 0;
    const uint32_t flags =
        RECORD_UNNAMED | RECORD_COMPANION | (bucket ? (uint32_t)RECORD_TWO_RATES : 0);

    return (record_flags(limiter, id) & ~flags) == 0 && record->calendar <= STINT_CALENDAR_YEAR &&
           record->reserved == 0 &&
           (bucket || (record->rate_changed | record->rate_before | record->bucket_window[0] |
                       record->bucket_window[1] | record->bucket[0][0] | record->bucket[0][1] |
                       record->bucket[1][0] | record->bucket[1][1]) == 0);
}

int stint_policies_check(const struct stint_limiter *limiter) {
    /* stint_policies_repair removes what is beyond the count. A reader decides by it. */
    uint32_t count =
        limiter->memory.read_only ? limiter->max_policies : limiter_policy_count(limiter);
    const struct table *table = &limiter->table;

    for (uint64_t shard = 0; shard >> table->shard_bits == 0; shard++)
        if (atomic_load_acquire(&table->shards[shard].reach) >= table->probe_lines) /* I6 */
            return stint_failed_with(EPROTO, "the table is damaged: shard %llu reaches too far",
                                     (unsigned long long)shard);
    /* Under the lock, as its writer (M12). */
    if (atomic_load_relaxed(&limiter->header->policy_count) > limiter->max_policies)
        return stint_failed(EPROTO, "the table is damaged: it has more policies than it can hold");
    for (uint32_t id = 0; id < count; id++) {
        if (limiter_policy(limiter, id) == NULL) /* free */
            continue;
        if (!policy_known(limiter, id))
            return stint_failed_with(EPROTO, "policy %u of the table has " LATER_TABLE,
                                     (unsigned)id);
        /* A reader may see it being written (M12; open.c, table_look). */
        const uint32_t alias = (uint32_t)atomic_load_relaxed_32(&limiter->records[id].alias);
        if ((alias & ~ALIAS_WAKES) > limiter->max_policies ||
            !stint_policy_whole(limiter, id, count))
            return stint_failed_with(
                EPROTO, "the table is damaged: policy %u is none that stint makes", (unsigned)id);
    }
    return 0;
}

void stint_policies_repair(struct stint_limiter *limiter) {
    uint32_t count = limiter_policy_count(limiter);

    /* First what is not yet a policy, and what is left under free ids. As their writer (M12). */
    for (uint32_t id = 0; id < limiter->max_policies; id++)
        if ((atomic_load_relaxed(&limiter->policies[id].version) == 0) != (id >= count))
            stint_policy_free(limiter, id);
    stint_policies_link(limiter); /* wakes what is to be woken */
    for (int companions = 0; companions <= 1; companions++)
        for (uint32_t id = 0; id < count; id++)
            if (limiter_policy(limiter, id) != NULL && is_companion(limiter, id) == companions)
                stint_policy_mend(limiter, id);
}

void stint_policies_free(struct stint_limiter *limiter) {
    for (uint32_t id = 0; id < limiter_policy_count(limiter); id++) {
        if (!policy_gone(&limiter->policies[id]))
            continue;
        /* First: what a table counts never falls, even if this process dies in between. */
        if (GUARDED(COUNT_GONE))
            limiter_add(limiter, limiter->max_policies, COUNT_UNTRACKED_GONE,
                        stint_limiter_counted(limiter, id, COUNT_UNTRACKED));
        stint_limiter_counters_clear(limiter, id);
        stint_policy_free(limiter, id);
    }
}

/* Whether this process inherited the table by a fork, in private memory, since the last call: then
 * a thread of the parent may have had the lock, and the caller has a new one. */
static bool lock_inherited(struct stint_limiter *limiter) {
    const uint64_t forks = stint_limiter_process_lock();
    const bool inherited = !limiter->memory.shared && limiter->forks != forks;

    if (inherited) {
        stint_limiter_lock_make(&limiter->header->lock);
        (void)pthread_mutex_trylock(&limiter->header->lock); /* new, so it is free */
    }
    limiter->forks = forks;
    stint_limiter_process_unlock();
    return inherited;
}

int stint_policies_lock(struct stint_limiter *limiter) {
    int error = stint_limiter_whole(limiter);

    if (error == 0)
        error = lock_inherited(limiter) ? EOWNERDEAD : stint_limiter_lock(limiter);
    if (error != EOWNERDEAD)
        return error;
    error = stint_policies_check(limiter);
    if (error != 0) /* the lock is of no more use, and says so from now on */
        return stint_limiter_unlock(limiter, error);
    stint_policies_repair(limiter);
    (void)pthread_mutex_consistent(&limiter->header->lock);
    return 0;
}

int stint_policies_begin(struct stint_limiter *limiter) {
    if (limiter->memory.read_only)
        return stint_failed(EROFS, READ_ONLY);
    int error = stint_policies_lock(limiter);
    if (error == 0)
        stint_limiter_lanes_reclaim(limiter, false);
    return error;
}
