/* SPDX-License-Identifier: MIT
 * Counters: a stripe for each thread, summed when read (limiter.h). */
#include <errno.h>

#include "slot.h"

_Thread_local uint32_t stint_thread_number __attribute__((tls_model("initial-exec")));

/* Bit n is set while a thread has the number n, 1 to STRIPES_MAX - 1. */
static uint64_t numbers_taken = 1;
static_assert(STRIPES_MAX == 64, "a bit for each number");

/* Gives a thread's number back when it ends, so that a server whose threads come and go does not run out
 * of stripes. The value of the key is the number. */
static pthread_key_t number_key;
static bool number_key_made;

static void number_release(void *number) {
    uint64_t bit = UINT64_C(1) << (uintptr_t)number, taken = atomic_load_relaxed(&numbers_taken);
    while (!atomic_cas_seq(&numbers_taken, taken, taken & ~bit))
        taken = atomic_load_relaxed(&numbers_taken);
}

static void thread_ends(void *number) {
    stint_thread_number = 0; /* another destructor may decide after this */
    number_release(number);
}

static void number_key_make(void) {
    if (pthread_key_create(&number_key, thread_ends) != 0)
        return;
    /* The C library keeps the values of the first 32 keys in the thread itself. Others it would
     * allocate, which a decision must not: then numbers are not given back. */
    number_key_made = number_key < 32;
    if (!number_key_made)
        pthread_key_delete(number_key);
}

void limiter_thread_numbers_begin(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, number_key_make);
}

/* A library that was unloaded must not be called when a thread ends. */
static __attribute__((destructor)) void number_key_delete(void) {
    if (number_key_made)
        pthread_key_delete(number_key);
}

uint32_t limiter_thread_number_new(void) {
    uint64_t taken = atomic_load_relaxed(&numbers_taken);
    uint32_t number;

    for (;;) {
        if (taken == UINT64_MAX)
            return stint_thread_number = UINT32_MAX; /* shares stripe 0 */
        number = (uint32_t)__builtin_ctzll(~taken);
        /* Acquires what the thread that had the number before has counted. */
        if (atomic_cas_seq(&numbers_taken, taken, taken | UINT64_C(1) << number))
            break;
        taken = atomic_load_relaxed(&numbers_taken);
    }
    if (stint_thread_number != 0) { /* a signal handler was here, and got one */
        number_release((void *)(uintptr_t)number);
        return stint_thread_number;
    }
    stint_thread_number = number;
    if (number_key_made)
        (void)pthread_setspecific(number_key, (void *)(uintptr_t)number);
    return number;
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
