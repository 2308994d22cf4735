/* SPDX-License-Identifier: MIT
 * Counters: a stripe for each thread, summed when read (limiter.h). */
#include <errno.h>

#include "slot.h"

_Thread_local uint32_t stint_thread_number __attribute__((tls_model("initial-exec")));

/* The number of the last thread that got one. */
static uint64_t last_thread_number;

uint32_t limiter_thread_number_new(void) {
    /* A signal handler that does the same here in between wastes a number, no more. */
    uint64_t number = atomic_fetch_add_seq(&last_thread_number, 1) + 1;
    stint_thread_number = number < UINT32_MAX ? (uint32_t)number : UINT32_MAX;
    return stint_thread_number;
}

void limiter_count_shared(struct stint_limiter *limiter, uint32_t row, uint32_t counter) {
    if (limiter_thread_number() < limiter->stripes)
        limiter_count(limiter, row, counter);
    else
        atomic_add_relaxed(&limiter->counters[row].count[counter], 1);
}

uint64_t limiter_counted(const struct stint_limiter *limiter, uint32_t row, uint32_t counter) {
    uint64_t total = 0;
    for (uint32_t stripe = 0; stripe < limiter->stripes; stripe++) {
        size_t index = (size_t)stripe * (limiter->max_policies + 1) + row;
        total += atomic_load_relaxed(&limiter->counters[index].count[counter]);
    }
    return total;
}

static bool slot_live(const struct stint_limiter *limiter, uint64_t tag, uint64_t state,
                      tick_t now) {
    const struct table *table = &limiter->table;
    if (tag == 0 || tag == table_tombstone(table) || state_pending(state))
        return false;
    return end_of(state_id(state), now) > now ||
           slot_carries(&limiter->policies[tag_policy(table, tag)], state, now);
}

int stint_stats(struct stint_limiter *limiter, struct stint_stats *stats) {
    if (limiter == NULL || stats == NULL)
        return failed(EINVAL, "limiter or stats is NULL");
    int error =
        struct_check(stats, stats->size, sizeof(*stats), "stats.size is wrong: " WRONG_SIZE);
    if (error != 0)
        return error;

    const struct table *table = &limiter->table;
    uint32_t row = limiter->max_policies;
    struct stint_stats seen = {
        .memory = limiter->mapping_size,
        .slots = table->line_count * LINE_SLOTS,
        .placed = limiter_counted(limiter, row, COUNT_PLACED),
        .replaced = limiter_counted(limiter, row, COUNT_REPLACED),
        .clock_steps = limiter_counted(limiter, row, COUNT_CLOCK_STEP),
        .stray_tokens = limiter_counted(limiter, row, COUNT_STRAY),
        .unknown_policy = limiter_counted(limiter, row, COUNT_UNKNOWN_POLICY),
        .resets = limiter_counted(limiter, row, COUNT_RESET),
        .shards = UINT32_C(1) << table->shard_bits,
        .policies = (uint32_t)atomic_load_acquire(&limiter->header->policy_count),
    };
    for (uint32_t id = 0; id < seen.policies; id++)
        seen.untracked += limiter_counted(limiter, id, COUNT_UNTRACKED);
    tick_t now = tick_of(limiter_now(limiter));
    for (uint64_t line = 0; line < table->line_count; line++) {
        for (uint32_t i = 0; i < LINE_SLOTS; i++) {
            struct slot *slot = &table->lines[line].slots[i];
            uint64_t tag = atomic_load_acquire(&slot->tag);
            uint64_t state = atomic_load_relaxed(&slot->state);
            seen.used += tag != 0;
            seen.live += slot_live(limiter, tag, state, now);
        }
    }
    struct_write(stats, stats->size, &seen, sizeof(seen));
    return 0;
}

int stint_policy_stats(struct stint_limiter *limiter, uint32_t id,
                       struct stint_policy_stats *stats) {
    if (limiter == NULL || stats == NULL)
        return failed(EINVAL, "limiter or stats is NULL");
    int error =
        struct_check(stats, stats->size, sizeof(*stats), "stats.size is wrong: " WRONG_SIZE);
    if (error != 0)
        return error;
    if (limiter_policy(limiter, id) == NULL)
        return failed(ENOENT, "there is no policy of that id");
    struct stint_policy_stats seen = {
        .allowed = limiter_counted(limiter, id, COUNT_ALLOWED),
        .refused = limiter_counted(limiter, id, COUNT_REFUSED),
        .shadowed = limiter_counted(limiter, id, COUNT_SHADOWED),
        .first_refusals = limiter_counted(limiter, id, COUNT_FIRST_REFUSAL),
        .untracked = limiter_counted(limiter, id, COUNT_UNTRACKED),
        .near_limit = limiter_counted(limiter, id, COUNT_NEAR_LIMIT),
    };
    struct_write(stats, stats->size, &seen, sizeof(seen));
    return 0;
}
