/* SPDX-License-Identifier: MIT
 * Buckets whose rate changes: slots are counted anew. Read rate.h first. */
#include "feature/rate.h"

#include "feature/override.h"

/* The rate before the one that stands. */
struct before {
    uint64_t changed; /* ns: when it ended; 0: there was none */
    uint64_t window;
    uint64_t unit;
};

static struct before before_of(const struct stint_limiter *limiter, uint32_t id) {
    const struct policy_record *record = &limiter->records[id];
    const uint64_t changed = atomic_load_acquire(&record->rate_changed); /* M14 */
    const uint64_t rate = atomic_load_relaxed(&record->rate_before);     /* M14 */
    const uint64_t window = tick_ns((tick_t)(rate >> 32));

    return (struct before){changed, window, bucket_unit(window, (uint32_t)rate)};
}

/* How a policy's slots are counted anew at a time. */
struct recount {
    const struct stint_limiter *limiter;
    struct before before;
    const struct bucket *to;
    uint64_t now;
};

/* The state of a slot in this shard, of a key with this override (0: none), by the new rate. */
static uint64_t recounted(const struct recount *recount, const struct shard *shard, uint64_t state,
                          uint64_t override) {
    const struct bucket *to = recount->to;
    const struct bucket then = {.unit = recount->before.unit, .window = recount->before.window};
    const uint64_t changed = recount->before.changed, now = recount->now;
    uint64_t from = then.unit, unit = to->unit;
    uint64_t most = ((uint64_t)to->burst + to->max_reserved) * unit;

    if (UNLIKELY(override != 0)) {
        from = override_unit(&then, override);
        unit = override_unit(to, override);
        most = bucket_holds(most, unit) * unit;
    }
    const uint64_t was = bucket_full(end_of(state_id(state), tick_of(now)), bucket_ns(state));
    uint64_t full = was;
    if (was > changed) {
        const uint64_t ahead = ns_scaled(was - changed, from, unit);
        full = changed + (ahead < most ? ahead : most);
    }
    /* The end stays above the watermark (I1), unless a wrong clock has raised that. */
    const uint64_t over = tick_ns((tick_t)atomic_load_relaxed(&shard->watermark)); /* M7 */
    if (full < was && full < over && over <= limiter_now(recount->limiter) + ALLOWANCE_NS)
        full = over < was ? over : was;
    const bool marked = (state & STATE_REFUSED) != 0 && !mark_passed(was, full, to->window);
    return bucket_state(full, to->rate) | (marked ? STATE_REFUSED : 0);
}

/* Swaps the state of a slot in this shard for what it means. If that fails, it has changed. */
static bool recount_slot(const struct recount *recount, struct shard *shard,
                         const struct seen *seen, uint64_t override) {
    const uint64_t means = recounted(recount, shard, seen->state, override);
    const tick_t now = tick_of(recount->now);

    if (GUARDED(BUCKET_FALLS))
        shard_end_falls(shard, end_of(state_id(seen->state), now), end_of(state_id(means), now));
    return slot_swap(seen->slot, seen->tag, seen->state, means);
}

static uint64_t override_now(const struct stint_limiter *limiter, uint32_t id, uint64_t hash,
                             uint64_t now) {
    return (policy_word(&limiter->policies[id]) & STINT_OVERRIDES) != 0 &&
                   filter_has(&limiter->table, hash)
               ? stint_override_find(limiter, id, hash, now)
               : 0;
}

uint64_t stint_rate_means(const struct stint_limiter *limiter, uint32_t id, uint64_t hash,
                          uint64_t state, const struct bucket *to) {
    const struct recount recount = {limiter, before_of(limiter, id), to, limiter_now(limiter)};
    return recounted(&recount, table_shard_of(&limiter->table, hash), state,
                     override_now(limiter, id, hash, recount.now));
}

void stint_rate_settle(const struct stint_limiter *limiter, uint32_t id, uint64_t hash,
                       const struct seen *seen, const struct bucket *to) {
    const struct recount recount = {limiter, before_of(limiter, id), to, limiter_now(limiter)};
    (void)recount_slot(&recount, table_shard_of(&limiter->table, hash), seen,
                       override_now(limiter, id, hash, recount.now));
}

bool stint_bucket_find(const struct stint_limiter *limiter, uint32_t policy_id, uint64_t key,
                       struct seen *seen, struct bucket *bucket) {
    const uint64_t tag = table_tag(&limiter->table, key, policy_id);

    while (stint_find_committed(&limiter->table, key, tag, seen) &&
           stint_bucket_rule(limiter, policy_id, bucket)) {
        if (!rate_differs(seen->state, bucket->rate))
            return true;
        stint_rate_settle(limiter, policy_id, key, seen, bucket);
    }
    return false;
}

bool stint_rate_verdict(const struct stint_limiter *limiter, const struct bucket *to,
                        struct stint_verdict *verdict) {
    const struct policy_record *record = &limiter->records[verdict->policy];
    const uint32_t generation = (uint32_t)atomic_load_relaxed_32(&record->generation); /* M15 */

    if (verdict->generation == generation)
        return true;
    atomic_fence_acquire(); /* M14: the generation, then the rate before it */
    const struct before before = before_of(limiter, verdict->policy);
    atomic_fence_acquire(); /* M14: it may be being written */
    if (verdict->generation + 1 != generation || before.changed == 0 ||
        atomic_load_relaxed(&record->rate_changed) != before.changed) /* M14 */
        return false;
    verdict->generation = generation;
    if (verdict->unit == to->unit) /* it is by this rate: its policy's identity was written later */
        return true;
    const bool overridden = (verdict->flags & STINT_OVERRIDDEN) != 0;
    const uint64_t from = overridden ? before.window : before.unit,
                   unit = overridden ? to->window : to->unit;
    /* Only what is known to be by the rate before becomes more time. */
    if (unit > from && verdict->unit != before.unit)
        return true;
    if (verdict->window > before.changed)
        verdict->window = before.changed + ns_scaled(verdict->window - before.changed, from, unit);
    verdict->unit = ns_scaled(verdict->unit, from, unit);
    return true;
}

/* Counts a slot of the table anew if it is the policy's, and counts by the rate before. */
static void slot_sweep(const struct recount *recount, uint32_t id, uint64_t number) {
    const struct stint_limiter *limiter = recount->limiter;
    const uint64_t line = number / LINE_SLOTS;
    struct shard *shard = &limiter->table.shards[line / limiter->table.shard_lines];
    struct seen seen = {.slot = &limiter->table.lines[line].slots[number % LINE_SLOTS]};
    uint64_t hash;

    for (;;) {
        seen.tag = atomic_load_acquire(&seen.slot->tag); /* M15 */
        if (LIKELY(tag_policy(&limiter->table, seen.tag) != id))
            return;
        seen.state = atomic_load_acquire(&seen.slot->state); /* the swap compares both (I2) */
        if (state_pending(seen.state)) {
            /* Its claimer may have read a rate of before. It claims anew. */
            if (!GUARDED(RATE_CLAIMS) ||
                slot_cancel(&limiter->table, seen.slot, seen.tag, seen.state))
                return;
            continue;
        }
        if (!rate_differs(seen.state, recount->to->rate))
            return;
        uint64_t override = 0;
        if ((policy_word(&limiter->policies[id]) & STINT_OVERRIDES) != 0 &&
            table_hash(&limiter->table, line, seen.tag, &hash))
            override = override_now(limiter, id, hash, recount->now);
        if (recount_slot(recount, shard, &seen, override))
            return;
    }
}

void stint_rate_sweep(struct stint_limiter *limiter) {
    const uint64_t slots = limiter->table.line_count * LINE_SLOTS;
    struct bucket bucket;

    for (uint32_t id = 0; id < limiter_policy_count(limiter); id++) {
        const uint32_t flags = record_flags(limiter, id);
        if ((flags & RECORD_TWO_RATES) == 0)
            continue;
        if (GUARDED(RATE_SWEEP) && stint_bucket_rule(limiter, id, &bucket)) {
            const struct recount recount = {limiter, before_of(limiter, id), &bucket,
                                            limiter_now(limiter)};
            for (uint64_t i = 0; i < slots; i++)
                slot_sweep(&recount, id, i);
        }
        /* M14: under the lock. */
        atomic_store_relaxed_32(&limiter->records[id].flags, flags & ~(uint32_t)RECORD_TWO_RATES);
    }
}
