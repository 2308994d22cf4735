/* SPDX-License-Identifier: MIT
 * A table's lock for set-up, and what set-up needs to look at. No decision takes the lock. */
#include <errno.h>

#include "limiter.h"
#include "message.h"

void stint_limiter_lock_make(pthread_mutex_t *lock) {
    pthread_mutexattr_t robust;

    (void)pthread_mutexattr_init(&robust);
    (void)pthread_mutexattr_setpshared(&robust, PTHREAD_PROCESS_SHARED);
    (void)pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST);
    (void)pthread_mutex_init(lock, &robust);
    (void)pthread_mutexattr_destroy(&robust);
}

int stint_limiter_lock(struct stint_limiter *limiter) {
    pthread_mutex_t *lock = &limiter->header->lock;

    for (unsigned tries = 0; tries < SET_UP_TRIES; tries++) {
        int error = pthread_mutex_trylock(lock);
        if (error == 0 || error == EOWNERDEAD)
            return error;
        if (error != EBUSY)
            return stint_failed(EPROTO, "the table is damaged: its lock does not work");
        set_up_pause();
    }
    return stint_failed(EBUSY,
                        "another process has held the table's lock for set-up for 10 s: is it "
                        "stopped?");
}

void stint_limiter_unlock(struct stint_limiter *limiter) {
    (void)pthread_mutex_unlock(&limiter->header->lock);
}

void stint_limiter_lock_mend(struct stint_limiter *limiter) {
    (void)pthread_mutex_consistent(&limiter->header->lock);
}

int stint_limiter_shards_check(const struct stint_limiter *limiter) {
    const struct table *table = &limiter->table;

    for (uint64_t shard = 0; shard >> table->shard_bits == 0; shard++) {
        const uint64_t *filter = table->shards[shard].filter;
        if (atomic_load_acquire(&table->shards[shard].reach) >= table->probe_lines) /* I6 */
            return stint_failed_with(EPROTO, "the table is damaged: shard %llu reaches too far",
                                     (unsigned long long)shard);
        for (size_t i = 0; i < sizeof(table->shards->filter) / sizeof(*filter); i++)
            if (filter[i] != 0)
                return stint_failed_with(EPROTO,
                                         "shard %llu of the table has a filter: " LATER_TABLE,
                                         (unsigned long long)shard);
    }
    return 0;
}

uint64_t stint_limiter_hint_first(const struct stint_limiter *limiter,
                                  const struct policy *policy) {
    if (limiter_record(limiter, policy)->calendar != 0) {
        struct span window = limiter_calendar_window(limiter, policy, 0);
        return hint_of(limiter_calendar_window(limiter, policy, window.end), true);
    }
    return (uint64_t)(window_end(0, policy->start, policy->length) + policy->length);
}

void stint_limiter_hints_reset(struct stint_limiter *limiter, tick_t latest) {
    for (uint32_t id = 0; id < limiter_policy_count(limiter); id++) {
        struct policy *policy = &limiter->policies[id];
        uint64_t first = stint_limiter_hint_first(limiter, policy);
        /* I7: before latest_begin is lowered. */
        if (hint_begin(policy, atomic_load_relaxed(&policy->current_end)) > latest)
            atomic_store_relaxed(&policy->current_end, first); /* as of a new policy */
    }
}
