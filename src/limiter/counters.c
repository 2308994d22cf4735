/* SPDX-License-Identifier: MIT
 * Counters: a lane for each thread, summed when read. */
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "limiter/counters.h"

_Thread_local uint64_t stint_thread_number __attribute__((tls_model("initial-exec")));

#define NUMBER_NONE_LEFT (THREAD_NUMBERS - 1)

/* Bit n is set while a thread has the number n, 1 to LANES_MAX - 1. */
static uint64_t numbers_given = 1;
static_assert(LANES_MAX == 64, "a bit for each number");

/* This process as an owner of lanes: its id, above it the namespace of that (0: not known). */
static uint64_t process;

/* Open limiters whose tables are shared. A change is one store, so a child finds a whole list. */
static struct stint_limiter *sharing;
static pthread_mutex_t process_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t forks; /* between the process that loaded the library and this one */

uint64_t stint_limiter_process_lock(void) {
    (void)pthread_mutex_lock(&process_lock);
    return forks;
}

void stint_limiter_process_unlock(void) {
    (void)pthread_mutex_unlock(&process_lock);
}

/* Its value is a thread's number, which is given back when the thread ends. */
static pthread_key_t number_key;
static bool number_key_made;

static void number_release(void *number) {
    uint64_t bit = UINT64_C(1) << (uintptr_t)number, given = atomic_load_relaxed(&numbers_given);
    while (!atomic_cas_seq(&numbers_given, given, given & ~bit))
        given = atomic_load_relaxed(&numbers_given);
}

static void thread_ends(void *number) {
    /* Another destructor may decide after this. If this is the last round, nobody would give a new
     * number back, so the thread takes none. (One that first decides in that round keeps one.) */
    stint_thread_number = NUMBER_NONE_LEFT;
    number_release(number);
}

static void process_begin(void) {
    struct stat namespace;
    uint64_t number = stat("/proc/self/ns/pid", &namespace) == 0 ? (uint32_t) namespace.st_ino : 0;
    process = number << 32 | (uint32_t)getpid();
}

/* Decisions may not ask the system for the dead. If the table's file was cut off, a look at the
 * memory would kill each child at its birth, but pread only fails. */
void stint_limiter_lanes_reclaim(struct stint_limiter *limiter, bool alone) {
    uint64_t there[LANES_MAX], *owners = limiter->header->lane_owners;

    if (limiter->memory.file >= 0) {
        if (pread(limiter->memory.file, there, sizeof(there),
                  offsetof(struct header, lane_owners)) != (ssize_t)sizeof(there))
            return;
        owners = there;
    }
    for (uint32_t lane = 1; lane < LANES_MAX; lane++) {
        const uint64_t owner = atomic_load_relaxed(&owners[lane]);
        if (owner != 0 && (alone || (process >> 32 != 0 && owner >> 32 == process >> 32 &&
                                     kill((pid_t)owner, 0) != 0 && errno == ESRCH)))
            (void)atomic_cas_seq(&limiter->header->lane_owners[lane], owner, 0);
    }
    (void)atomic_cas_seq(&limiter->own->left, LANES_NONE, LANES_TO_TRY);
}

static void child_begin(void) {
    uint64_t number = stint_thread_number;
    numbers_given = 1;
    if (number > 0 && number < LANES_MAX)
        numbers_given |= UINT64_C(1) << number;
    process_begin();
    process_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    forks++;
    for (struct stint_limiter *limiter = sharing; limiter != NULL; limiter = limiter->next)
        stint_limiter_lanes_reclaim(limiter, false);
}

static void numbers_begin(void) {
    process_begin();
    /* Without memory for it, children may count in their parent's lanes, and lose a count. */
    (void)pthread_atfork(NULL, NULL, child_begin);
    if (pthread_key_create(&number_key, thread_ends) != 0)
        return;
    /* The C library keeps the values of the first 32 keys in the thread itself. It would allocate
     * others, which a decision must not do: then numbers are not given back. */
    number_key_made = number_key < 32;
    if (!number_key_made)
        pthread_key_delete(number_key);
}

/* A library that was unloaded must not be called when a thread ends. */
static __attribute__((destructor)) void number_key_delete(void) {
    if (number_key_made)
        pthread_key_delete(number_key);
}

static uint64_t thread_number(void) {
    uint64_t given, number;

    if (LIKELY(stint_thread_number != 0))
        return stint_thread_number;
    do {
        given = atomic_load_relaxed(&numbers_given);
        number = given == UINT64_MAX ? NUMBER_NONE_LEFT : (uint64_t)__builtin_ctzll(~given);
        /* Acquires what the thread that had the number before has counted. */
    } while (number != NUMBER_NONE_LEFT &&
             !atomic_cas_seq(&numbers_given, given, given | UINT64_C(1) << number));
    /* In one step: if a signal handler of the thread came before it, the number of that stays. */
    if (!atomic_cas_seq(&stint_thread_number, 0, number)) {
        if (number != NUMBER_NONE_LEFT)
            number_release((void *)(uintptr_t)number);
    } else if (number_key_made && number != NUMBER_NONE_LEFT) {
        (void)pthread_setspecific(number_key, (void *)(uintptr_t)number);
    }
    return stint_thread_number;
}

static struct counters *lane_rows(const struct stint_limiter *limiter, uint32_t lane) {
    return &limiter->counters[(size_t)lane * (limiter->max_policies + 1)];
}

bool stint_limiter_lanes_open(struct stint_limiter *limiter) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const bool shared = limiter->memory.shared, counts = !limiter->memory.read_only;
    struct own_lanes *own = mmap(NULL, sizeof(*own), PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

    if (own == MAP_FAILED)
        return false;
    (void)pthread_once(&once, numbers_begin);
    limiter->own = own;
    /* Where the kernel cannot (before 4.14), all threads share a lane. */
    if (!counts || !shared || madvise(own, sizeof(*own), MADV_WIPEONFORK) != 0)
        own->left = LANES_GIVEN;
    if (counts && shared) {
        (void)stint_limiter_process_lock();
        limiter->next = sharing;
        atomic_store_release((uint64_t *)(void *)&sharing, (uintptr_t)limiter);
        stint_limiter_process_unlock();
    }
    for (uint32_t number = 1; !shared && number < LANES_MAX; number++) {
        own->firsts[number] = (uint8_t)number;
        if (number < limiter->lanes)
            own->rows[number] = lane_rows(limiter, number);
    }
    return true;
}

/* The lane of a thread number, or NULL: it shares lane 0. Takes one of a shared table, if one is
 * left, and unless a signal handler of the thread has just done so. */
static struct counters *own_rows(const struct stint_limiter *limiter, uint64_t number) {
    struct own_lanes *own = limiter->own;
    uint64_t *owners = limiter->header->lane_owners;
    uint64_t *row = (uint64_t *)(void *)&own->rows[number];

    if (own->rows[number] != NULL || number == NUMBER_NONE_LEFT ||
        atomic_load_relaxed(&own->left) != LANES_TO_TRY)
        return own->rows[number];
    for (uint32_t lane = 1; lane < limiter->lanes; lane++) {
        /* Acquires what its last owner has counted. */
        if (atomic_load_relaxed(&owners[lane]) != 0 || !atomic_cas_seq(&owners[lane], 0, process))
            continue;
        if (!atomic_cas_seq(row, 0, (uintptr_t)lane_rows(limiter, lane)))
            atomic_store_release(&owners[lane], 0);
        return own->rows[number];
    }
    (void)atomic_cas_seq(&own->left, LANES_TO_TRY, LANES_NONE);
    return own->rows[number];
}

uint64_t stint_limiter_latest_now(const struct stint_limiter *limiter, uint64_t now) {
    /* 0: of a thread's first group, when it had no number yet. */
    const uint64_t numbers[2] = {0, stint_thread_number};
    uint64_t latest = now;

    for (uint32_t i = 0; i < 2; i++) {
        uint64_t *word = &limiter->own->latest[numbers[i]].now;
        const uint64_t seen = atomic_load_relaxed(word);
        if (seen > now && seen - now > BACK_NS)
            atomic_store_relaxed(word, now);
        else if (seen > latest)
            latest = seen;
    }
    return latest;
}

static uint32_t lane_of(const struct stint_limiter *limiter, const struct counters *rows) {
    return (uint32_t)((size_t)(rows - limiter->counters) / (limiter->max_policies + 1));
}

uint32_t stint_limiter_stripe(const struct stint_limiter *limiter) {
    const uint64_t number = thread_number();
    struct own_lanes *own = limiter->own;

    if (LIKELY(own->firsts[number] != 0))
        return own->firsts[number];
    const struct counters *rows = own_rows(limiter, number);
    /* The ids of processes that are forked in turn follow on each other. */
    uint32_t first =
        rows != NULL ? lane_of(limiter, rows) : 1 + (uint32_t)(process + number) % LANES_MAX;
    if (number != NUMBER_NONE_LEFT) /* which other threads have, too */
        own->firsts[number] = (uint8_t)first;
    return first;
}

void stint_limiter_lanes_close(struct stint_limiter *limiter) {
    if (limiter->memory.shared && !limiter->memory.read_only) {
        struct stint_limiter **link = &sharing;
        (void)stint_limiter_process_lock();
        while (*link != limiter)
            link = &(*link)->next;
        atomic_store_release((uint64_t *)(void *)link, (uintptr_t)limiter->next);
        stint_limiter_process_unlock();
        for (uint32_t number = 1; number < LANES_MAX; number++) {
            const struct counters *rows = limiter->own->rows[number];
            if (rows != NULL)
                atomic_store_release(&limiter->header->lane_owners[lane_of(limiter, rows)], 0);
        }
    }
    munmap(limiter->own, sizeof(*limiter->own));
}

uint32_t stint_limiter_processes(const struct stint_limiter *limiter) {
    uint64_t owners[LANES_MAX];
    uint32_t found = 0;

    for (uint32_t lane = 1; lane < LANES_MAX; lane++) {
        uint32_t i = 0;
        owners[found] = atomic_load_relaxed(&limiter->header->lane_owners[lane]);
        while (owners[i] != owners[found])
            i++;
        found += owners[found] != 0 && i == found;
    }
    return found;
}

void stint_limiter_count_shared(const struct stint_limiter *limiter, uint32_t row, uint32_t counter,
                                uint64_t count) {
    if (limiter->memory.read_only)
        return;
    struct counters *rows = own_rows(limiter, thread_number());

    if (rows != NULL)
        atomic_add_own(&rows[row].count[counter], count);
    else
        atomic_add_relaxed(&limiter->counters[row].count[counter], count);
}

uint64_t stint_limiter_counted(const struct stint_limiter *limiter, uint32_t row,
                               uint32_t counter) {
    uint64_t total = 0;
    for (uint32_t lane = 0; lane < limiter->lanes; lane++)
        total += atomic_load_relaxed(&lane_rows(limiter, lane)[row].count[counter]);
    return total;
}

void stint_limiter_count_rare(const struct stint_limiter *limiter, uint32_t id, uint32_t rare) {
    if (!limiter->memory.read_only)
        atomic_add_relaxed(&limiter->rare[id].count[rare], 1);
}

void stint_limiter_counters_clear(const struct stint_limiter *limiter, uint32_t row) {
    limiter->rare[row] = (struct counters){0};
    for (uint32_t lane = 0; lane < limiter->lanes; lane++)
        lane_rows(limiter, lane)[row] = (struct counters){0};
}
