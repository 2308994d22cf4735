/* SPDX-License-Identifier: MIT
 * Statistics: what the counters and the table say. */

#include "feature/labels.h"
#include "feature/override.h"
#include "sys/message.h"
#include "table/parts.h"

static void slots_scan(struct stint_limiter *limiter, struct stint_stats *stats) {
    const struct table *table = &limiter->table;
    const uint64_t clock = limiter_now(limiter);
    const tick_t now = tick_of(clock);
    struct slot *slot = table->lines->slots, *const end = slot + stats->slots;
    for (; slot < end; slot++) {
        uint64_t tag = atomic_load_acquire(&slot->tag);
        uint64_t state = atomic_load_relaxed(&slot->state);
        struct stint_entry told;
        stats->used += tag != 0;
        stats->live += stint_slot_live(limiter, tag, state, now);
        if (!stint_override_told(limiter, tag, state, clock, &told))
            continue;
        const bool set = told.flags == STINT_ENTRY_OVERRIDE;
        stats->overrides += set;
        stats->barred += set && told.limit == 0;
        stats->banned += (told.flags & STINT_ENTRY_BAN) != 0;
    }
    for (uint64_t shard = 0; shard < stats->shards; shard++) {
        const uint64_t reach = atomic_load_acquire(&table->shards[shard].reach); /* I6 */
        stats->reach = reach > stats->reach ? (uint32_t)reach : stats->reach;
    }
    for (uint64_t i = 0; i < stats->labels; i++)
        stats->used_labels += atomic_load_relaxed(&limiter->labels[i].refused) != 0;
}

void stint_stats_read(struct stint_limiter *limiter, struct stint_stats *stats, bool scan) {
    const struct table *table = &limiter->table;
    uint32_t row = limiter->max_policies;
    *stats = (struct stint_stats){
        .memory = limiter->memory.size,
        .slots = table->line_count * LINE_SLOTS,
        .placed = stint_limiter_counted(limiter, row, COUNT_PLACED),
        .untracked = stint_limiter_counted(limiter, row, COUNT_UNTRACKED_GONE),
        .replaced = stint_limiter_counted(limiter, row, COUNT_REPLACED),
        .clock_steps = stint_limiter_counted(limiter, row, COUNT_CLOCK_STEP),
        .stray_tokens = stint_limiter_counted(limiter, row, COUNT_STRAY),
        .unknown_policy = stint_limiter_counted(limiter, row, COUNT_UNKNOWN_POLICY),
        .resets = stint_limiter_counted(limiter, row, COUNT_RESET),
        .bad_requests = stint_limiter_counted(limiter, row, COUNT_BAD_REQUEST),
        .shards = UINT32_C(1) << table->shard_bits,
        .processes = stint_limiter_processes(limiter),
        .max_entries = limiter->header->max_entries,
        .labels = limiter->label_sets * LABELS_IN_SET,
        .max_policies = limiter->max_policies,
        .max_reach = table->probe_lines - 1u,
        .removed = stint_memory_file_removed(&limiter->memory),
    };
    for (uint32_t id = 0; id < limiter_policy_count(limiter); id++) {
        stats->policies += limiter_decides_by(limiter, id);
        stats->policy_ids += limiter_policy(limiter, id) != NULL;
        stats->gone_ids += policy_gone(&limiter->policies[id]);
        stats->untracked += stint_limiter_counted(limiter, id, COUNT_UNTRACKED);
    }
    if (scan)
        slots_scan(limiter, stats);
    stats->lost = stint_limiter_lost(limiter); /* by now */
}

int stint_stats_get(struct stint_limiter *limiter, struct stint_stats *stats) {
    if (limiter == NULL || stats == NULL)
        return stint_failed(EINVAL, "limiter or stats is NULL");
    int error = stint_struct_check(stats, SIZE_THROUGH(struct stint_stats, bad_requests),
                                   sizeof(*stats), "stats");
    if (error != 0)
        return error;
    struct stint_stats counts;
    stint_stats_read(limiter, &counts, true);
    stint_struct_copy(stats, &counts, sizeof(counts));
    return 0;
}

int stint_policy_stats_get(struct stint_limiter *limiter, uint32_t id,
                           struct stint_policy_stats *stats) {
    if (limiter == NULL || stats == NULL)
        return stint_failed(EINVAL, "limiter or stats is NULL");
    int error = stint_struct_check(stats, SIZE_THROUGH(struct stint_policy_stats, refunded),
                                   sizeof(*stats), "stats");
    if (error != 0)
        return error;
    id = stint_limiter_policy_now(limiter, id);
    if (id == POLICY_NONE)
        return stint_limiter_no_policy(limiter);
    struct stint_policy_stats counts = {
        .allowed = stint_limiter_counted(limiter, id, COUNT_ALLOWED),
        .refused = stint_limiter_counted(limiter, id, COUNT_REFUSED),
        .shadowed = stint_limiter_counted(limiter, id, COUNT_SHADOWED),
        .first_refusals = stint_limiter_counted(limiter, id, COUNT_FIRST_REFUSAL),
        .untracked = stint_limiter_counted(limiter, id, COUNT_UNTRACKED),
        .near_limit = stint_limiter_counted(limiter, id, COUNT_NEAR_LIMIT),
        .charged = stint_limiter_counted(limiter, id, COUNT_CHARGED),
        .refunded = stint_limiter_counted(limiter, id, COUNT_REFUNDED),
        .refunds_lost = limiter_rare(limiter, id, RARE_REFUND_LOST),
        .mistaken_nows = limiter_rare(limiter, id, RARE_NOW_MISTAKEN),
    };
    const uint32_t companion = limiter_companion(limiter, id);
    if (companion != POLICY_NONE) {
        counts.bans = stint_limiter_counted(limiter, companion, COUNT_BANNED);
        counts.strikes_lost = stint_limiter_counted(limiter, companion, COUNT_STRIKE_LOST);
    }
    error = stint_limiter_whole(limiter);
    if (error == 0)
        stint_struct_copy(stats, &counts, sizeof(counts));
    return error;
}
