/* SPDX-License-Identifier: MIT
 * Counters: a stripe for each thread, summed when read (limiter.h). */
#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "slot.h"

_Thread_local uint32_t stint_thread_number __attribute__((tls_model("initial-exec")));

#define NUMBER_NONE_LEFT (THREAD_NUMBERS - 1)

/* Bit n is set while a thread has the number n, 1 to STRIPES_MAX - 1. */
static uint64_t numbers_taken = 1;
static_assert(STRIPES_MAX == 64, "a bit for each number");

/* This process, as the owner of stripes in a table that it shares: its process id, and above it what tells
 * its namespace of process ids from others (0: not known). */
static uint64_t process;

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

static void process_begin(void) {
    struct stat namespace;
    uint64_t number = stat("/proc/self/ns/pid", &namespace) == 0 ? (uint32_t) namespace.st_ino : 0;
    process = number << 32 | (uint32_t)getpid();
}

/* In a child after fork, which has this thread only. */
static void child_begin(void) {
    uint32_t number = stint_thread_number;
    numbers_taken = 1;
    if (number > 0 && number < STRIPES_MAX)
        numbers_taken |= UINT64_C(1) << number;
    process_begin();
}

static void numbers_begin(void) {
    process_begin();
    /* Without memory for it, children that share a table may count in their parent's name: what they leave
     * behind is then made free too early or too late, and a count or two may be lost. */
    (void)pthread_atfork(NULL, NULL, child_begin);
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
    (void)pthread_once(&once, numbers_begin);
}

/* A library that was unloaded must not be called when a thread ends. */
static __attribute__((destructor)) void number_key_delete(void) {
    if (number_key_made)
        pthread_key_delete(number_key);
}

static uint32_t thread_number_new(void) {
    uint64_t taken = atomic_load_relaxed(&numbers_taken);
    uint32_t number;

    for (;;) {
        if (taken == UINT64_MAX)
            return stint_thread_number = NUMBER_NONE_LEFT; /* shares stripe 0 */
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

static struct counters *stripe_rows(const struct stint_limiter *limiter, uint32_t stripe) {
    return &limiter->counters[(size_t)stripe * (limiter->max_policies + 1)];
}

void limiter_stripes_begin(struct stint_limiter *limiter) {
    for (uint32_t number = 1; number < STRIPES_MAX; number++) {
        limiter->own->stripes[number] = (uint8_t)number;
        if (number < limiter->stripes)
            limiter->own->rows[number] = stripe_rows(limiter, number);
    }
}

/* Takes a stripe of a shared table for this thread, if one is left. Signal handlers may do so in between:
 * then the thread keeps theirs. */
static void stripe_claim(struct stint_limiter *limiter, uint32_t number) {
    struct own_stripes *own = limiter->own;
    uint64_t *owners = limiter->header->stripe_owners;

    for (uint32_t stripe = 1; stripe < limiter->stripes; stripe++) {
        /* Acquires what its last owner has counted. */
        if (atomic_load_relaxed(&owners[stripe]) != 0 ||
            !atomic_cas_seq(&owners[stripe], 0, process))
            continue;
        if (own->rows[number] != NULL) {
            atomic_store_release(&owners[stripe], 0);
            return;
        }
        own->stripes[number] = (uint8_t)stripe;
        own->rows[number] = stripe_rows(limiter, stripe);
        return;
    }
    atomic_store_relaxed(&own->exhausted, 1);
}

uint32_t limiter_stripe(struct stint_limiter *limiter) {
    uint32_t number = LIKELY(stint_thread_number != 0) ? stint_thread_number : thread_number_new();
    struct own_stripes *own = limiter->own;

    if (UNLIKELY(own->stripes[number] == 0 && number != NUMBER_NONE_LEFT &&
                 atomic_load_relaxed(&own->exhausted) == 0))
        stripe_claim(limiter, number);
    return own->stripes[number] != 0 ? own->stripes[number] : number;
}

void limiter_stripes_release(struct stint_limiter *limiter) {
    for (uint32_t number = 1; limiter->memory.shared && number < STRIPES_MAX; number++)
        if (limiter->own->stripes[number] != 0)
            atomic_store_release(&limiter->header->stripe_owners[limiter->own->stripes[number]], 0);
}

void limiter_stripes_reclaim(struct header *header, bool alone) {
    for (uint32_t stripe = 1; stripe < STRIPES_MAX; stripe++) {
        uint64_t owner = atomic_load_relaxed(&header->stripe_owners[stripe]);
        bool gone = alone || (process >> 32 != 0 && owner >> 32 == process >> 32 &&
                              kill((pid_t)owner, 0) != 0 && errno == ESRCH);
        if (owner != 0 && gone)
            (void)atomic_cas_seq(&header->stripe_owners[stripe], owner, 0);
    }
}

void limiter_count_shared(struct stint_limiter *limiter, uint32_t row, uint32_t counter) {
    (void)limiter_stripe(limiter);
    if (limiter->own->rows[stint_thread_number] != NULL)
        limiter_count(limiter, row, counter);
    else
        atomic_add_relaxed(&limiter->counters[row].count[counter], 1);
}

uint64_t limiter_counted(const struct stint_limiter *limiter, uint32_t row, uint32_t counter) {
    uint64_t total = 0;
    for (uint32_t stripe = 0; stripe < limiter->stripes; stripe++)
        total += atomic_load_relaxed(&stripe_rows(limiter, stripe)[row].count[counter]);
    return total;
}

static bool slot_live(const struct stint_limiter *limiter, uint64_t tag, uint64_t state,
                      tick_t now) {
    const struct table *table = &limiter->table;
    if (tag == 0 || tag == table_tombstone(table) || state_pending(state))
        return false;
    return end_of(state_id(state), now) > now ||
           slot_carries(limiter_tag_policy(limiter, tag), state, now);
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
        .memory = limiter->memory.size,
        .slots = table->line_count * LINE_SLOTS,
        .placed = limiter_counted(limiter, row, COUNT_PLACED),
        .replaced = limiter_counted(limiter, row, COUNT_REPLACED),
        .clock_steps = limiter_counted(limiter, row, COUNT_CLOCK_STEP),
        .stray_tokens = limiter_counted(limiter, row, COUNT_STRAY),
        .unknown_policy = limiter_counted(limiter, row, COUNT_UNKNOWN_POLICY),
        .resets = limiter_counted(limiter, row, COUNT_RESET),
        .shards = UINT32_C(1) << table->shard_bits,
        .policies = limiter_policy_count(limiter),
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
