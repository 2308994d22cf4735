/* SPDX-License-Identifier: MIT
 * The slots of policies that are gone. Read slot.h first. Nobody asks for these keys again, but
 * their windows may last for months. So each slot becomes a tombstone, free at once by all clocks:
 *
 *     COMMITTED   TOMBSTONE   D    sweep: slot_sweep
 *     PENDING     TOMBSTONE   D    sweep: slot_sweep
 *
 * Its end falls, which I1 forbids elsewhere. Keys of other policies keep what I1 is for:
 *   - The tombstone ends at the shard's watermark, or later. All occupants before the key were over
 *     by then (claim.h, watermark_raise), and a claim ends later than its slot did. So no end of
 *     theirs comes back, but that of the tombstone, which is full.
 *   - A thread that still decides by the policy compares the tag in each swap, and commits no claim
 *     (occupant.h, claim_void). Only its fetch-add may meet another key with the end that it
 *     expects: then it is granted a token of that key (B).
 *   - Another key's late fetch-add may have met the slot, which may have that end again, for that
 *     key. So fallen_end is raised (shard_end_falls).
 *   - A search that has seen the slot live may call the table full once more.
 *
 * Overrides come last. A decision that misses one for that reason charges no slot of its policy by
 * the policy's own limit: it commits no claim, and the slot that it saw has another tag.
 *
 * The id of a policy that is gone may be used again (policy.c, stint_policy_make). Then no slot of
 * before may be left, and no sweep may be under way: it would take a slot of now for one of before
 * that had the same tag and state. So whoever sweeps has the table's lock, or the table alone. And
 * whoever uses an id again sweeps first. What a death leaves stays until it is over, or swept. */
#include "table/parts.h"

#include "map/slot.h"

/* Makes a slot free if its policy is gone; of a companion only if `overrides` are swept, too. */
static void slot_sweep(const struct stint_limiter *limiter, struct shard *shard, struct slot *slot,
                       tick_t clock, bool overrides) {
    for (;;) {
        const uint64_t tag = atomic_load_acquire(&slot->tag); /* M15 */
        const struct policy *policy = limiter_tag_policy(limiter, tag);
        if (LIKELY(policy == NULL || !policy_gone(policy)) ||
            (!overrides &&
             GUARD(SWEEP_OVERRIDES, is_companion(limiter, tag_policy(&limiter->table, tag)))))
            return;
        const uint64_t state = atomic_load_acquire(&slot->state); /* the swap compares both (I2) */
        /* After the tag, whose claim raised it (M7). */
        const tick_t watermark = (tick_t)atomic_load_relaxed(&shard->watermark);
        /* Another caller's clock may be behind, and its now late, by the allowance each. */
        const tick_t past = clock - 2 * ALLOWANCE_TICKS;
        const tick_t over = watermark > past ? watermark : past;
        tick_t end = end_of(state_id(state), clock);
        if (!state_pending(state) && end > over) {
            shard_end_falls(shard, end, over);
            end = over;
        }
        const uint64_t expected[2] = {tag, state};
        uint64_t used = 0;
        /* Full: an add that still meets the end that was seen is not granted. */
        if (GUARDED(SWEEP_FULL))
            used = STINT_LIMIT_MAX;
        const uint64_t tombstone[2] = {table_tombstone(&limiter->table), state_of(end, used)};
        if (atomic_cas2_seq(slot, expected, tombstone)) /* I2 */
            return;
    }
}

static void table_sweep(const struct stint_limiter *limiter, tick_t clock, bool overrides) {
    const struct table *table = &limiter->table;
    struct slot *slot = table->lines->slots;

    for (uint64_t shard = 0; shard >> table->shard_bits == 0; shard++)
        for (uint64_t left = table->shard_lines * LINE_SLOTS; left > 0; left--)
            slot_sweep(limiter, &table->shards[shard], slot++, clock, overrides);
}

bool stint_sweep(struct stint_limiter *limiter) {
    const tick_t clock = tick_of(limiter_now(limiter));
    bool any = false, companions = false;

    for (uint32_t id = 0; id < limiter_policy_count(limiter); id++) {
        const bool gone = policy_gone(&limiter->policies[id]);
        companions |= gone && is_companion(limiter, id);
        any |= gone;
    }
    if (any)
        table_sweep(limiter, clock, false);
    if (companions) /* their policies ended before them (policy.c), and were swept before them */
        table_sweep(limiter, clock, true);
    return any;
}
