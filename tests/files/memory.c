/* SPDX-License-Identifier: MIT
 * Memory: each thing that stint_open asks the system for is refused in turn (the linker puts the
 * functions below in place of the system's; tests/meson.build). And decisions ask for none. */
#include "feature/labels.h"
#include "limiter/counters.h"

#include "decisions.h"
#include "directory.h"
#include "wrapped.h"

#include <sys/file.h>
#include <sys/random.h>

/* ---- The system, as the library sees it ----------------------------------------------------- */

enum call { MMAP, MADVISE, ALIGNED_ALLOC, GETRANDOM, MALLOC, CALLOC, REALLOC, FLOCK, CALLS };

static struct {
    uint64_t calls[CALLS];
    uint64_t refused[CALLS];   /* bit n: its call number n, from 0 on, is refused */
    int error;                 /* with this errno */
    size_t short_random;       /* getrandom gives no more bytes than this at once; 0: all */
    bool interrupted_random;   /* every other call of it is interrupted */
    int64_t mapped, allocated; /* bytes and blocks that were taken and not given back */
} system_calls;

static void system_reset(void) {
    assert_int_equal(system_calls.mapped, 0);
    assert_int_equal(system_calls.allocated, 0);
    memset(&system_calls, 0, sizeof system_calls);
}

static bool refuses(enum call call) {
    uint64_t number = system_calls.calls[call]++;
    if (number >= 64 || (system_calls.refused[call] >> number & 1) == 0)
        return false;
    errno = system_calls.error;
    return true;
}

/* Meson asks for 64-bit file offsets, with which mmap is mmap64. */
WRAPPED(void *, mmap64, void *address, size_t length, int protection, int flags, int file,
        off_t offset) {
    if (refuses(MMAP))
        return MAP_FAILED;
    void *mapping = __real_mmap64(address, length, protection, flags, file, offset);
    if (mapping != MAP_FAILED && (flags & MAP_FIXED) == 0) /* else over one that was counted */
        system_calls.mapped += (int64_t)length;
    return mapping;
}

WRAPPED(int, munmap, void *address, size_t length) {
    /* As a kernel with that page size: qemu-user takes smaller pages. */
    if ((size_t)address % (size_t)sysconf(_SC_PAGESIZE) != 0) {
        errno = EINVAL;
        return -1;
    }
    int result = __real_munmap(address, length);
    if (result == 0)
        system_calls.mapped -= (int64_t)length;
    return result;
}

WRAPPED(int, madvise, void *address, size_t length, int advice) {
    return refuses(MADVISE) ? -1 : __real_madvise(address, length, advice);
}

/* One that takes a block, with its parameters' names. */
#define ALLOCATES(name, call, blocks, names, ...)                                                  \
    WRAPPED(void *, name, __VA_ARGS__) {                                                           \
        if (refuses(call))                                                                         \
            return NULL;                                                                           \
        system_calls.allocated += (blocks);                                                        \
        return __real_##name names;                                                                \
    }
ALLOCATES(aligned_alloc, ALIGNED_ALLOC, 1, (alignment, size), size_t alignment, size_t size)
ALLOCATES(malloc, MALLOC, 1, (size), size_t size)
ALLOCATES(calloc, CALLOC, 1, (n, size), size_t n, size_t size)
ALLOCATES(realloc, REALLOC, block == NULL, (block, size), void *block, size_t size)

WRAPPED(void, free, void *block) {
    system_calls.allocated -= block != NULL;
    __real_free(block);
}

WRAPPED(ssize_t, getrandom, void *bytes, size_t length, unsigned flags) {
    if (refuses(GETRANDOM))
        return -1;
    if (system_calls.interrupted_random && system_calls.calls[GETRANDOM] % 2 == 1) {
        errno = EINTR;
        return -1;
    }
    if (system_calls.short_random != 0 && length > system_calls.short_random)
        length = system_calls.short_random;
    return __real_getrandom(bytes, length, flags);
}

WRAPPED(int, flock, int file, int operation) {
    return refuses(FLOCK) ? -1 : __real_flock(file, operation);
}

static struct {
    struct timespec until;
    unsigned calls;
} pauses;

/* Signals cut the first two short. */
WRAPPED(int, clock_nanosleep, clockid_t clock, int flags, const struct timespec *until,
        struct timespec *rest) {
    assert_int_equal(clock, CLOCK_MONOTONIC);
    assert_int_equal(flags, TIMER_ABSTIME);
    assert_null(rest);
    if (pauses.calls == 0)
        pauses.until = *until;
    assert_int_equal(until->tv_sec, pauses.until.tv_sec);
    assert_int_equal(until->tv_nsec, pauses.until.tv_nsec);
    return ++pauses.calls < 3 ? EINTR : 0;
}

/* ---- Opening -------------------------------------------------------------------------------- */

static struct stint_options options_of(uint64_t max_entries, uint32_t flags) {
    struct stint_options options = STINT_OPTIONS_INIT;
    options.max_entries = max_entries;
    options.flags = flags;
    return options;
}

/* Keys that fill a part of a page, and several huge pages. */
static const uint64_t sizes[] = {10, 300000};
static const uint32_t flag_sets[] = {0, STINT_PREFAULT, STINT_SMALL_PAGES,
                                     STINT_PREFAULT | STINT_SMALL_PAGES};

/* Opens, uses and closes one with all that the system gives. */
static void check_opens(const struct stint_options *options) {
    struct stint_limiter *limiter = open_with(options);
    struct stint_stats stats = get_stats(limiter);
    assert_int_equal(system_calls.mapped, stats.memory + sizeof(struct own_lanes));
    uint32_t policy = add_policy(limiter, "", 1, MINUTE, 0, 0);
    assert_true(stint_take(limiter, policy, 1, 1, T0, NULL));
    assert_false(stint_take(limiter, policy, 1, 1, T0, NULL));
    stint_close(limiter);
    system_reset(); /* all was given back */
}

/* Opens one, of which a call was refused. */
static void check_refused(const struct stint_options *options, int error, const char *reason) {
    struct stint_limiter *const untouched = (struct stint_limiter *)(uintptr_t)0x5717;
    struct stint_limiter *limiter = untouched;
    assert_int_equal(stint_open(options, &limiter), -error);
    assert_ptr_equal(limiter, untouched);
    assert_reason(reason);
    system_reset();
}

/* From now on the call of this number is refused. */
static void refuse(enum call call, uint64_t number, int error) {
    memset(system_calls.calls, 0, sizeof system_calls.calls);
    memset(system_calls.refused, 0, sizeof system_calls.refused);
    system_calls.refused[call] = UINT64_C(1) << number;
    system_calls.error = error;
}

/* Every call that must not fail, for every kind of limiter; and wrong options, for which none is
 * made. */
TEST(test_each_call_refused) {
    static const struct {
        int refused_with, error;
        const char *reason;
    } expected[CALLS] = {[MMAP] = {ENOMEM, ENOMEM, "no memory"},
                         [ALIGNED_ALLOC] = {ENOMEM, ENOMEM, "handle"},
                         [GETRANDOM] = {ENOSYS, EAGAIN, "random"}};
    static const uint64_t none[CALLS];
    struct stint_options wrong = options_of(0, 0);
    unsigned refused = 0;

    system_reset();
    assert_int_equal(stint_open(&wrong, &(struct stint_limiter *){NULL}), -EINVAL);
    assert_memory_equal(system_calls.calls, none, sizeof none);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t f = 0; f < sizeof flag_sets / sizeof *flag_sets; f++) {
            struct stint_options options = options_of(sizes[s], flag_sets[f]);
            check_opens(&options);
            stint_close(open_with(&options));
            uint64_t calls[CALLS];
            memcpy(calls, system_calls.calls, sizeof calls);
            for (unsigned call = 0; call < CALLS; call++)
                for (uint64_t n = 0; call != MADVISE && n < calls[call]; n++, refused++) {
                    refuse(call, n, expected[call].refused_with);
                    check_refused(&options, expected[call].error, expected[call].reason);
                }
        }
    assert_true(refused >= 3 * 8); /* a mapping, a handle, a secret for each of the eight */
}

/* A kernel maps a file that ends in the middle of its last page; qemu does so only where its pages
 * are the kernel's. */
static void skip_unless_files_are_mapped(void) {
    if (getenv("STINT_TEST_EMULATED") != NULL && sysconf(_SC_PAGESIZE) > 4096)
        skip();
}

/* Whether the call that was to be refused was made: then this is the result of that. */
static bool was_refused(enum call call, uint64_t number, int result) {
    const bool made = system_calls.calls[call] > number;
    assert_int_equal(result, made ? -ENOMEM : 0);
    if (made)
        assert_reason("no memory");
    system_calls.refused[call] = 0;
    return made;
}

/* Each call of stint_resize, which then leaves the table as it is. */
TEST_IN_DIRECTORY(test_each_call_of_resize_refused) {
    skip_unless_files_are_mapped();
    struct stint_options options = options_of(10, 0), given = options_of(100, 0);
    struct stat before, about;
    unsigned refused = 0;

    system_reset();
    options.path = path;
    struct stint_limiter *limiter = open_with(&options);
    (void)add_policy(limiter, "", 5, MINUTE, 0, 0);
    stint_close(limiter);
    for (unsigned call = 0; call < FLOCK; call += call == MMAP ? 2 : 1) { /* MADVISE may fail */
        assert_int_equal(stat(path, &before), 0);
        refuse(call, 0, ENOMEM);
        for (uint64_t n = 0; was_refused(call, n, stint_resize(path, &given)); n++, refused++) {
            assert_int_equal(stat(path, &about), 0);
            assert_int_equal(about.st_ino, before.st_ino);
            system_reset();
            refuse(call, n + 1, ENOMEM);
        }
        system_reset();
    }
    assert_true(refused >= 6);
    options.max_entries = 100;
    stint_close(open_with(&options));
    system_reset();
}

/* Each call of stint_policies_apply, which then changes nothing. */
TEST(test_each_call_of_apply_refused) {
    static const char before[] = "1/minute name=a",
                      text[] = "2/hour name=b overrides\n3/hour name=c";
    unsigned refused = 0;
    system_reset();
    struct stint_options options = options_of(10, 0);
    struct stint_limiter *limiter = open_with(&options);
    for (unsigned call = 0; call < FLOCK; call++) {
        assert_int_equal(stint_policies_apply(limiter, before, STINT_PRUNE, NULL, NULL, NULL), 0);
        const int64_t allocated = system_calls.allocated;
        refuse(call, 0, ENOMEM);
        for (uint64_t n = 0; was_refused(
                 call, n, stint_policies_apply(limiter, text, STINT_PRUNE, NULL, NULL, NULL));
             n++, refused++) {
            assert_int_equal(system_calls.allocated, allocated);
            assert_true(policy_found(limiter, "a") >= 0 && policy_found(limiter, "b") < 0);
            refuse(call, n + 1, ENOMEM);
        }
    }
    assert_true(refused >= 4);
    stint_close(limiter);
    system_reset();
}

/* Huge pages are advice, and a secret that was given asks for no random bytes: without them all is
 * right. */
TEST(test_not_needed) {
    system_reset();
    for (size_t f = 0; f < sizeof flag_sets / sizeof *flag_sets; f++) {
        if ((flag_sets[f] & STINT_PREFAULT) != 0)
            continue;
        struct stint_options options = options_of(300000, flag_sets[f]);
        options.secret = test_secret();
        system_calls.refused[MADVISE] = system_calls.refused[GETRANDOM] = UINT64_MAX;
        system_calls.error = EINVAL;
        check_opens(&options);
    }
}

/* Memory that the system does not have when it is asked to give it now. */
TEST(test_prefault_refused) {
    system_reset();
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        static const int errors[] = {ENOMEM, EFAULT, EHWPOISON};
        for (size_t e = 0; e < sizeof errors / sizeof *errors; e++) {
            struct stint_options options = options_of(sizes[s], STINT_PREFAULT);
            system_calls.refused[MADVISE] = UINT64_MAX;
            system_calls.error = errors[e];
            check_refused(&options, ENOMEM, "prefault");
        }
    }
}

static size_t resident_pages(void *mapping, size_t size) {
    size_t pages = (size + 4095) / 4096, resident = 0;
    unsigned char *map = __real_malloc(pages);
    assert_non_null(map);
    assert_int_equal(mincore(mapping, size, map), 0);
    for (size_t i = 0; i < pages; i++)
        resident += map[i] & 1;
    __real_free(map);
    return resident;
}

/* Prefaulting where the kernel is too old to do it at a stroke (before 5.14). */
TEST(test_prefault_by_hand) {
    system_reset();
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        struct stint_options options = options_of(sizes[s], STINT_PREFAULT | STINT_SMALL_PAGES);
        struct stint_limiter *limiter = NULL;
        system_calls.refused[MADVISE] = UINT64_MAX;
        system_calls.error = EINVAL;
        assert_int_equal(stint_open(&options, &limiter), 0);
        assert_int_equal(resident_pages(limiter->memory.start, limiter->memory.size),
                         limiter->memory.size / 4096);
        stint_close(limiter);
        system_reset();
    }
}

/* Random bytes come in parts, or are interrupted, and all of the secret is theirs. */
TEST(test_random_in_parts) {
    static const size_t parts[] = {0, 1, 100, 191, 192};
    system_reset();
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        for (unsigned interrupted = 0; interrupted < 2; interrupted++) {
            unsigned char seen[STINT_SECRET_SIZE] = {0};
            struct stint_options options = options_of(10, 0);
            for (unsigned round = 0; round < 16; round++) {
                struct stint_limiter *limiter = NULL;
                system_calls.short_random = parts[i];
                system_calls.interrupted_random = interrupted;
                assert_int_equal(stint_open(&options, &limiter), 0);
                for (size_t byte = 0; byte < sizeof seen; byte++)
                    seen[byte] |= limiter->secret[byte];
                stint_close(limiter);
                system_reset();
            }
            for (size_t byte = 0; byte < sizeof seen; byte++)
                assert_int_not_equal(seen[byte], 0); /* 1 in 2^128 is 0 in 16 rounds */
        }
    }
}

/* Whoever waits for the lock of a table in use goes on if a signal interrupts him, and gives up at
 * once if the system has no lock. */
TEST_IN_DIRECTORY(test_lock_refused) {
    skip_unless_files_are_mapped();
    struct stint_options options = options_of(10, 0);
    struct stint_limiter *first, *second;

    system_reset();
    options.path = path;
    assert_int_equal(stint_open(&options, &first), 0);
    for (unsigned i = 0; i < 2; i++) {
        const uint64_t before = system_calls.calls[FLOCK];
        system_calls.refused[FLOCK] = UINT64_C(2)
                                      << before; /* the first asks whether it is alone */
        system_calls.error = i == 0 ? EINTR : ENOLCK;
        assert_int_equal(stint_open(&options, &second), i == 0 ? 0 : -ENOLCK);
        if (i == 0)
            stint_close(second);
        else
            assert_int_equal(system_calls.calls[FLOCK] - before, 2);
    }
    stint_close(first);
    system_reset();
}

static int64_t ns_of(struct timespec time) {
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

/* Signals make nobody wait longer, nor less long. */
TEST(test_pause_interrupted) {
    struct timespec before, after;
    do { /* till the end of a second */
        pauses.calls = 0;
        assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &before), 0);
        set_up_pause();
        assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &after), 0);
        assert_int_equal(pauses.calls, 3);
        assert_in_range(pauses.until.tv_nsec, 0, 999999999);
        assert_in_range(ns_of(pauses.until), ns_of(before) + 1000000, ns_of(after) + 1000000);
    } while (pauses.until.tv_sec == before.tv_sec);
}

/* ---- Parts ---------------------------------------------------------------------------------- */

/* A part of the mapping begins at a line, where the one before it ends or later. */
static void check_part(const struct stint_limiter *limiter, const void *part, size_t size,
                       size_t *end) {
    size_t begin = (size_t)((const char *)part - limiter->memory.start);
    assert_int_equal((uintptr_t)part % CACHE_LINE, 0);
    assert_true(begin >= *end);
    assert_true(begin + size <= limiter->memory.size);
    *end = begin + size;
}

/* Of tables of all shapes: the parts are aligned, do not overlap and stay within the mapping,
 * which has not a page more than they need. Many lines begin at a huge page. */
TEST(test_parts_of_the_mapping) {
    static const uint64_t keys[] = {1, 2, 127, 128, 129, 4097, 65535, 65536, 65537, 300000};
    static const uint32_t policies[] = {1, 2, 63, 64, 65, 1000};
    static const uint32_t labels[] = {0, 1, 4, 63, 65};
    system_reset();
    for (unsigned i = 0; i < 10 * 6 * 5; i++) {
        struct stint_options options = options_of(keys[i % 10], 0);
        struct stint_limiter *limiter = NULL;
        options.max_policies = policies[i / 10 % 6];
        options.labels = labels[i / 60];
        assert_int_equal(stint_open(&options, &limiter), 0);
        const struct table *table = &limiter->table;
        const size_t lines = table->line_count * sizeof(struct line);
        size_t end = 0;
        assert_int_equal(limiter->max_policies, options.max_policies);
        assert_true(table->line_count * LINE_SLOTS >= 2 * options.max_entries);
        assert_true(table->tag_unit > options.max_policies &&
                    table->tag_unit <= 2 * (uint64_t)options.max_policies);
        check_part(limiter, limiter->header, sizeof(struct header), &end);
        check_part(limiter, limiter->policies, options.max_policies * sizeof(struct policy), &end);
        check_part(limiter, limiter->records, options.max_policies * sizeof(struct policy_record),
                   &end);
        check_part(limiter, limiter->counters,
                   (size_t)limiter->lanes * (options.max_policies + 1) * sizeof(struct counters),
                   &end);
        check_part(limiter, table->shards, sizeof(struct shard) << table->shard_bits, &end);
        const size_t before = end;
        check_part(limiter, table->lines, lines, &end);
        const size_t aligned = lines >= HUGE_PAGE ? HUGE_PAGE : SMALL_PAGE;
        assert_int_equal((size_t)((char *)table->lines - limiter->memory.start) % aligned, 0);
        assert_true(end - lines - before < aligned);
        check_part(limiter, reach_words(table), (table->line_count + 7) / 8 * 8, &end);
        if (lines >= HUGE_PAGE)
            assert_int_equal((uintptr_t)table->lines % HUGE_PAGE, 0);
        if (options.labels != 0)
            check_part(limiter, limiter->labels, limiter->label_sets * 4 * sizeof(struct label),
                       &end);
        assert_in_range(limiter->label_sets * 4, options.labels, options.labels + 3);
        assert_true(limiter->memory.size - end < (size_t)2 * SMALL_PAGE);
        stint_close(limiter);
        system_reset();
    }
}

/* ---- After opening -------------------------------------------------------------------------- */

/* D: all memory is taken at open. */
TEST(test_nothing_after_open) {
    system_reset();
    struct stint_limiter *limiter = open_limiter(1000, STINT_FULL_ADMIT);
    uint64_t calls[CALLS];
    int64_t mapped = system_calls.mapped, allocated = system_calls.allocated;
    memcpy(calls, system_calls.calls, sizeof calls);

    add_kinds(limiter, KINDS);
    assert_true(decide(limiter));
    change_limit(limiter, PLAIN, 20);
    get_stats(limiter);
    struct stint_policy policy = kind_policy(PLAIN);
    get_policy_stats(limiter, PLAIN);
    policy.near_limit = 50;
    assert_int_equal(policy_added(limiter, &policy), -EEXIST);

    assert_memory_equal(system_calls.calls, calls, sizeof calls);
    assert_int_equal(system_calls.mapped, mapped);
    assert_int_equal(system_calls.allocated, allocated);
    stint_close(limiter);
    system_reset();
}
