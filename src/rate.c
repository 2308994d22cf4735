/* SPDX-License-Identifier: MIT
 * Buckets whose rate changes: slots are counted anew. Read rate.h first. */
#include "rate.h"

#include "override.h"

/* The rate before the one that stands. */
struct before {
    uint64_t changed; /* ns: when it ended; 0: there was none */
    uint64_t window;
    uint64_t unit;
};

static struct before before_of(const struct policy_record *record) {
    const uint64_t changed = atomic_load_acquire(&record->rate_changed); /* M14 */
    const uint64_t rate = atomic_load_relaxed(&record->rate_before);     /* M14 */
    const uint64_t window = tick_ns((tick_t)(rate >> 32));

    return (struct before){changed, window, bucket_unit(window, (uint32_t)rate)};
}

/* full - changed, which is at least 1, by another unit. */
static uint64_t scaled(uint64_t ns, uint64_t from, uint64_t to) {
    __extension__ typedef unsigned __int128 wide;
    const wide by = from != 0 ? from : 1; /* 0: the table was written over */
    const wide much = ((wide)ns * to + by - 1) / by;
    return much < UINT64_MAX / 2 ? (uint64_t)much : UINT64_MAX / 2;
}

uint64_t stint_rate_means(const struct stint_limiter *limiter, uint32_t id, uint64_t hash,
                          uint64_t state, const struct bucket *to) {
    const struct before before = before_of(&limiter->records[id]);
    const struct shard *shard = table_shard_of(&limiter->table, hash);
    const uint64_t now = limiter_now(limiter);
    const bool ruled = (policy_word(&limiter->policies[id]) & STINT_OVERRIDES) != 0 &&
                       companion_possible(&limiter->table, hash);
    const uint64_t override = ruled ? stint_override_find(limiter, id, hash, now) : 0;
    const struct bucket then = {.unit = before.unit, .window = before.window};
    const uint64_t unit = override_unit(to, override),
                   most = bucket_holds(((uint64_t)to->burst + to->max_reserved) * to->unit, unit) *
                          unit;
    const uint64_t was = bucket_full(end_of(state_id(state), tick_of(now)), bucket_ns(state));
    uint64_t full = was;

    if (was > before.changed) {
        const uint64_t ahead = scaled(was - before.changed, override_unit(&then, override), unit);
        full = before.changed + (ahead < most ? ahead : most);
    }
    /* The end stays above the watermark (I1), unless a wrong clock has raised that. */
    const uint64_t over = tick_ns((tick_t)atomic_load_relaxed(&shard->watermark)); /* M7 */
    if (full < was && full < over && over <= now + ALLOWANCE_NS)
        full = over < was ? over : was;
    return bucket_state(full, to->rate) |
           (full / to->window != was / to->window ? 0 : state & STATE_REFUSED);
}

void stint_rate_settle(const struct stint_limiter *limiter, uint32_t id, uint64_t hash,
                       const struct seen *seen, const struct bucket *to) {
    const uint64_t means = stint_rate_means(limiter, id, hash, seen->state, to);
    const tick_t now = tick_of(limiter_now(limiter));

    if (GUARDED(BUCKET_FALLS))
        shard_end_falls(table_shard_of(&limiter->table, hash), end_of(state_id(seen->state), now),
                        end_of(state_id(means), now));
    (void)slot_swap(seen->slot, table_tag(&limiter->table, hash, id), seen->state, means);
}

bool stint_rate_verdict(const struct stint_limiter *limiter, const struct bucket *to,
                        struct stint_verdict *verdict) {
    const struct policy_record *record = &limiter->records[verdict->policy];
    const uint32_t generation = (uint32_t)atomic_load_relaxed_32(&record->generation); /* M15 */

    if (verdict->generation == generation)
        return true;
    atomic_fence_acquire(); /* M14: the generation, then the rate before it */
    const struct before before = before_of(record);
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
        verdict->window = before.changed + scaled(verdict->window - before.changed, from, unit);
    verdict->unit = scaled(verdict->unit, from, unit);
    return true;
}

/* ---- The sweep ------------------------------------------------------------------------------- */

/* Whether slots of a policy may count by two rates. */
static bool two_rates(const struct stint_limiter *limiter, uint32_t id) {
    return (limiter->records[id].flags & RECORD_TWO_RATES) != 0;
}

/* Cancels a claim, whose claimer may have read a rate of before; it claims anew. */
static bool claim_sweep(const struct stint_limiter *limiter, struct slot *slot, uint64_t tag,
                        uint64_t state) {
    const uint64_t expected[2] = {tag, state};
    const uint64_t tombstone[2] = {table_tombstone(&limiter->table),
                                   state & ~(STATE_PENDING | STATE_REFUSED | USED_MASK)};
    return atomic_cas2_seq(slot, expected, tombstone); /* I2 */
}

static void slot_sweep(const struct stint_limiter *limiter, uint64_t line, struct slot *slot) {
    for (;;) {
        const uint64_t tag = atomic_load_acquire(&slot->tag); /* M15 */
        const uint32_t id = tag_policy(&limiter->table, tag);
        struct bucket bucket;
        uint64_t hash;

        if (LIKELY(id >= limiter->max_policies) || !two_rates(limiter, id) ||
            !stint_bucket_rule(limiter, id, &bucket))
            return;
        const uint64_t state = atomic_load_acquire(&slot->state); /* the swap compares both (I2) */
        const struct seen seen = {.slot = slot, .tag = tag, .state = state};
        if (state_pending(state)) {
            if (!GUARDED(RATE_CLAIMS) || claim_sweep(limiter, slot, tag, state))
                return;
        } else if (!rate_differs(state, bucket.rate) ||
                   !table_hash(&limiter->table, line, tag, &hash)) {
            return;
        } else {
            stint_rate_settle(limiter, id, hash, &seen, &bucket);
        }
    }
}

void stint_rate_sweep(struct stint_limiter *limiter) {
    const struct table *table = &limiter->table;
    const uint32_t count = limiter_policy_count(limiter);
    bool any = false;

    for (uint32_t id = 0; id < count; id++)
        any |= two_rates(limiter, id);
    if (!any || !GUARDED(RATE_SWEEP))
        return;
    for (uint64_t line = 0; line < table->line_count; line++)
        for (uint32_t i = 0; i < LINE_SLOTS; i++)
            slot_sweep(limiter, line, &table->lines[line].slots[i]);
    for (uint32_t id = 0; id < count; id++)
        if (two_rates(limiter, id))
            atomic_store_relaxed_32(&limiter->records[id].flags,
                                    limiter->records[id].flags & ~(uint32_t)RECORD_TWO_RATES);
}
