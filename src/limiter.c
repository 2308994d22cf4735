/* SPDX-License-Identifier: MIT
 * Opening and closing: the shape of the mapping, and the memory for it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "limiter.h"

#define HUGE_PAGE    ((size_t)2 << 20) /* bytes, on x86-64 and on aarch64 with 4 KiB pages */
#define SMALL_PAGE   ((size_t)4096)    /* the smallest page of any supported system */
/* Counters of all stripes together, when there are so many policies that 64 stripes would be more.
 */
#define COUNTERS_MAX ((size_t)16 << 20) /* bytes */
#define STRIPES_MIN  4

/* Lines that a shard has at least when the number of shards is chosen. The smaller a shard, the
 * shorter its reach; the larger, the nearer its share of the keys is to the average (8,192 slots
 * half full: 50% within 1%). 1,024 shards at most: their headers stay in the second-level cache. */
#define SHARD_LINES ((uint64_t)2048)
#define SHARDS_AUTO 1024

static int check(const struct stint_options *options) {
    if (options == NULL)
        return failed(EINVAL, "options is NULL");
    int error = struct_check(options, options->size, sizeof(*options),
                             "options.size is wrong: " WRONG_SIZE);
    if (error != 0)
        return error;
    if (options->max_keys == 0 || options->max_keys > STINT_KEYS_MAX)
        return failed(EINVAL, "options.max_keys must be 1 to 2^40");
    if ((options->shards & (options->shards - 1)) != 0)
        return failed(EINVAL, "options.shards must be a power of two, or 0");
    if (options->shards > STINT_SHARDS_MAX || options->shards > options->max_keys)
        return failed(EINVAL, "options.shards must be at most 2^16 and at most max_keys");
    if (options->max_policies > STINT_POLICIES_MAX)
        return failed(EINVAL, "options.max_policies must be at most 65,535");
    if (options->on_full > STINT_FULL_REPLACE)
        return failed(EINVAL, "options.on_full must be STINT_FULL_ADMIT, _REFUSE or _REPLACE");
    if ((options->flags & ~(uint32_t)(STINT_PREFAULT | STINT_SMALL_PAGES | STINT_PRECISE_CLOCK)) !=
        0)
        return failed(EINVAL, "options.flags has bits that this version does not know");
    return 0;
}

/* Where the parts of the mapping are (table.h has the drawing). */
struct shape {
    uint32_t max_policies;
    uint32_t stripes;
    uint32_t shard_bits;
    uint32_t policy_bits;
    uint64_t shard_lines;
    size_t policies; /* offsets, bytes */
    size_t records;
    size_t counters;
    size_t shards;
    size_t lines;
    size_t size;
};

static uint64_t divide_up(uint64_t number, uint64_t by) {
    return number / by + (number % by != 0);
}

static size_t round_up(size_t number, size_t to) {
    return (number + to - 1) / to * to;
}

/* No overflow: 2^40 keys are 2^45 bytes, 65,535 policies less than 2^28. */
static struct shape shape_of(const struct stint_options *options) {
    struct shape shape = {.max_policies = options->max_policies};
    uint64_t lines =
        divide_up(options->max_keys, LINE_SLOTS / 2); /* half full with max_keys keys */

    if (shape.max_policies == 0)
        shape.max_policies = 64;
    while (UINT64_C(1) << shape.policy_bits <= shape.max_policies)
        shape.policy_bits++;
    while (options->shards != 0 ? UINT32_C(1) << shape.shard_bits < options->shards
                                : UINT32_C(1) << shape.shard_bits < SHARDS_AUTO &&
                                      lines >> (shape.shard_bits + 1) >= SHARD_LINES)
        shape.shard_bits++;
    shape.shard_lines = divide_up(lines, UINT64_C(1) << shape.shard_bits);

    size_t stripe = (shape.max_policies + 1) * sizeof(struct counters);
    shape.stripes = stripe * STRIPES_MAX <= COUNTERS_MAX   ? STRIPES_MAX
                    : stripe * STRIPES_MIN >= COUNTERS_MAX ? STRIPES_MIN
                                                           : (uint32_t)(COUNTERS_MAX / stripe);
    shape.policies = sizeof(struct header);
    shape.records = shape.policies + shape.max_policies * sizeof(struct policy);
    shape.counters = shape.records + shape.max_policies * sizeof(struct policy_record);
    shape.shards = shape.counters + shape.stripes * stripe;
    shape.lines = shape.shards + (sizeof(struct shard) << shape.shard_bits);
    size_t lines_size = (shape.shard_lines << shape.shard_bits) * sizeof(struct line);
    shape.lines = round_up(shape.lines, lines_size >= HUGE_PAGE ? HUGE_PAGE : SMALL_PAGE);
    shape.size = shape.lines + round_up(lines_size, SMALL_PAGE);
    return shape;
}

/* Maps zeroed memory that starts on a huge page if the lines fill some, so that they do, too. */
static void *map(const struct shape *shape, uint32_t flags) {
    bool huge = shape->size - shape->lines >= HUGE_PAGE;
    size_t slack = huge ? HUGE_PAGE : 0;
    char *base =
        mmap(NULL, shape->size + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return NULL;
    if (huge) {
        char *start = (char *)round_up((size_t)base, HUGE_PAGE);
        if (start != base)
            munmap(base, (size_t)(start - base));
        munmap(start + shape->size, slack - (size_t)(start - base));
        base = start;
        /* Advice: without huge pages all is right, and slower out of cache. */
        (void)madvise(base + shape->lines, shape->size - shape->lines,
                      (flags & STINT_SMALL_PAGES) != 0 ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
    }
    return base;
}

/* Makes the system give the memory now. Returns false if it has none. */
static bool prefault(char *mapping, size_t size) {
#ifdef MADV_POPULATE_WRITE
    if (madvise(mapping, size, MADV_POPULATE_WRITE) == 0)
        return true;
    if (errno != EINVAL) /* of a kernel before 5.14 */
        return false;
#endif
    for (size_t at = 0; at < size; at += SMALL_PAGE)
        atomic_store_relaxed((uint64_t *)(void *)(mapping + at), 0);
    return true;
}

static bool random_secret(uint8_t secret[STINT_SECRET_SIZE]) {
    for (size_t got = 0; got < STINT_SECRET_SIZE;) {
        ssize_t more = getrandom(secret + got, STINT_SECRET_SIZE - got, 0);
        if (more < 0 && errno != EINTR)
            return false;
        got += more > 0 ? (size_t)more : 0;
    }
    return true;
}

int stint_open(const struct stint_options *options, struct stint_limiter **opened) {
    if (opened == NULL)
        return failed(EINVAL, "limiter is NULL");
    int error = check(options);
    if (error != 0)
        return error;
    struct shape shape = shape_of(options);

    struct stint_limiter *limiter = aligned_alloc(CACHE_LINE, sizeof(*limiter));
    if (limiter == NULL)
        return failed(ENOMEM, "no memory for the limiter's handle");
    memset(limiter, 0, sizeof(*limiter));
    if (options->secret != NULL) {
        memcpy(limiter->secret, options->secret, STINT_SECRET_SIZE);
    } else if (!random_secret(limiter->secret)) {
        free(limiter);
        return failed(EAGAIN, "the system has no random bytes to give for the secret");
    }
    char *mapping = map(&shape, options->flags);
    if (mapping == NULL) {
        free(limiter);
        return failed(ENOMEM, "no memory for the table: 32 bytes for each of options.max_keys");
    }
    if ((options->flags & STINT_PREFAULT) != 0 && !prefault(mapping, shape.size)) {
        munmap(mapping, shape.size);
        free(limiter);
        return failed(ENOMEM, "no memory to prefault the table: 32 bytes for each of "
                              "options.max_keys");
    }

    /* The parts are aligned: shape_of rounds, and every struct fills whole lines. */
    limiter->table = (struct table){
        .lines = (struct line *)(void *)(mapping + shape.lines),
        .shards = (struct shard *)(void *)(mapping + shape.shards),
        .line_count = shape.shard_lines << shape.shard_bits,
        .shard_lines = shape.shard_lines,
        .shard_bits = shape.shard_bits,
        .probe_lines = shape.shard_lines < PROBE_LINES ? (uint32_t)shape.shard_lines : PROBE_LINES,
        .policy_bits = shape.policy_bits,
    };
    limiter->header = (struct header *)(void *)mapping;
    limiter->policies = (struct policy *)(void *)(mapping + shape.policies);
    limiter->records = (struct policy_record *)(void *)(mapping + shape.records);
    limiter->counters = (struct counters *)(void *)(mapping + shape.counters);
    limiter->max_policies = shape.max_policies;
    limiter->stripes = shape.stripes;
    limiter->clock = options->clock;
    limiter->clock_id =
        (options->flags & STINT_PRECISE_CLOCK) != 0 ? CLOCK_REALTIME : CLOCK_REALTIME_COARSE;
    limiter->on_full = options->on_full;
    limiter->mapping = mapping;
    limiter->mapping_size = shape.size;
    pthread_mutex_init(&limiter->policy_lock, NULL);
    limiter_thread_numbers_begin();
    *opened = limiter;
    return 0;
}

void stint_close(struct stint_limiter *limiter) {
    if (limiter == NULL)
        return;
    munmap(limiter->mapping, limiter->mapping_size);
    pthread_mutex_destroy(&limiter->policy_lock);
    free(limiter);
}
