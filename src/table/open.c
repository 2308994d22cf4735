/* SPDX-License-Identifier: MIT
 * Opening and closing: the shape of a table, making one, attaching to one. */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "feature/labels.h"
#include "limiter/counters.h"
#include "policy/policy.h"
#include "sys/message.h"
#include "table/parts.h"

/* A shard's lines at least where the number is chosen: the share of 8,192 slots is within 1% of the
 * average, and a smaller one has a shorter reach. 1,024 headers stay in the second-level cache. */
#define SHARD_LINES ((uint64_t)2048)
#define SHARDS_AUTO 1024

#define FILE_MODE 0600 /* unless options.mode is another */

int stint_options_read(const struct stint_options *given, struct stint_options *options) {
    if (given == NULL)
        return stint_failed(EINVAL, "options is NULL");
    return stint_struct_read(options, sizeof(*options), given,
                             SIZE_THROUGH(struct stint_options, secret), "options");
}

enum use { TO_MAKE, TO_OPEN, TO_ATTACH, TO_COPY };

static int check(const struct stint_options *options, enum use use) {
    const bool attach = use == TO_ATTACH;
    const bool shaped = options->max_entries != 0 || options->shards != 0 ||
                        options->max_policies != 0 || options->labels != 0;
    const bool file = attach || (use == TO_OPEN && options->path != NULL);
    const uint32_t unknown =
        options->flags & ~(uint32_t)(STINT_PREFAULT | STINT_SMALL_PAGES | STINT_PRECISE_CLOCK |
                                     (file ? STINT_READ_ONLY : 0));
    const struct {
        bool wrong;
        const char *reason;
    } checks[] = {
        {options->path != NULL && options->path[0] == '\0', "options.path is empty"},
        {options->on_full > STINT_FULL_REPLACE,
         "options.on_full must be STINT_FULL_ADMIT, _REFUSE or _REPLACE"},
        {unknown == STINT_READ_ONLY, "options.flags has STINT_READ_ONLY, which is for a table in a "
                                     "file, by stint_open or stint_attach"},
        {unknown != 0,
         "options.flags has a flag that is none of enum stint_options_flags: leave it out"},
        {attach && options->path == NULL,
         "options.path is NULL: which table is to be attached to?"},
        {attach && shaped,
         "options.max_entries, shards, max_policies and labels must be 0: the table "
         "has its shape"},
        {!attach && (options->max_entries == 0 || options->max_entries > STINT_ENTRIES_MAX),
         "options.max_entries must be 1 to 2^40"},
        {(options->shards & (options->shards - 1)) != 0,
         "options.shards must be a power of two, or 0"},
        {options->shards > STINT_SHARDS_MAX || options->shards > options->max_entries,
         "options.shards must be at most 2^16 and at most max_entries"},
        {options->max_policies > STINT_POLICIES_MAX, "options.max_policies must be at most 4,096"},
        {!attach && options->mode > 0777, "options.mode must be permission bits, at most 0777"},
        {options->labels > STINT_LABELS_MAX, "options.labels must be at most 2^24"},
    };

    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++)
        if (checks[i].wrong)
            return stint_failed(EINVAL, checks[i].reason);
    return 0;
}

static int call_check(struct stint_limiter **opened, const struct stint_options *given,
                      enum use use, struct stint_options *options) {
    if (opened == NULL)
        return stint_failed(EINVAL, "limiter is NULL");
    const int error = stint_options_read(given, options);
    return error != 0 ? error : check(options, use);
}

/* Where the sections of the mapping are (limiter.h has the drawing). */
struct shape {
    struct header header; /* what such a table begins with, but for the secret and the lock */
    struct table table;   /* without pointers */
    size_t lines;         /* offset, bytes */
};

static size_t round_up(size_t number, size_t to) {
    return (number + to - 1) / to * to;
}

/* No overflow: 2^40 keys are 2^45 bytes, 4,096 policies less than 2^29, 2^24 labels 2^30. */
static struct shape shape_of(const struct stint_options *options, uint32_t layout) {
    struct shape shape = {.header = {.layout = layout,
                                     .max_entries = options->max_entries,
                                     .features = HEADER_FEATURES}};
    struct header *header = &shape.header;
    struct table *table = &shape.table;
    const uint64_t half = LINE_SLOTS / 2; /* of a line is taken with max_entries keys */
    uint64_t lines = round_up(options->max_entries, half) / half;

    header->max_policies = options->max_policies == 0 ? 64 : options->max_policies;
    table->tag_unit = 1;
    while (table->tag_unit <= header->max_policies)
        table->tag_unit *= 2;
    if (lines < table->tag_unit * TAG_LINES(options->path != NULL))
        lines = table->tag_unit * PROBE_LINES;
    while (options->shards != 0 ? UINT32_C(1) << table->shard_bits < options->shards
                                : UINT32_C(1) << table->shard_bits < SHARDS_AUTO &&
                                      lines >> (table->shard_bits + 1) >= SHARD_LINES)
        table->shard_bits++;
    header->shards = UINT32_C(1) << table->shard_bits;
    table->shard_lines = round_up(lines, header->shards) / header->shards;
    table->line_count = table->shard_lines * header->shards;
    table->probe_lines =
        table->shard_lines < PROBE_LINES ? (uint16_t)table->shard_lines : PROBE_LINES;

    const size_t policies = header->max_policies, lane = (policies + 1) * sizeof(struct counters);
    const size_t most = (size_t)16 << 20; /* bytes of all lanes in layout 5 */
    header->lanes = LANES_MAX;
    if (layout != HEADER_LAYOUT && lane * LANES_MAX > most)
        header->lanes = (uint32_t)(most / lane);
    shape.lines =
        sizeof(struct header) + header->lanes * lane + header->shards * sizeof(struct shard) +
        policies * (sizeof(struct policy) + sizeof(struct policy_record) + sizeof(struct counters));
    const size_t notes = round_up(options->max_entries / 1024, 16); /* of overrides, in layout 5 */
    if (layout != HEADER_LAYOUT)
        shape.lines += (notes < 128 ? 128 : notes) * 144;
    const size_t lines_size = table->line_count * sizeof(struct line) +
                              round_up(table->line_count, sizeof(uint64_t)); /* the reach */
    shape.lines = round_up(shape.lines, lines_size >= HUGE_PAGE ? HUGE_PAGE : SMALL_PAGE);
    header->size = shape.lines + round_up(lines_size, SMALL_PAGE);
    if (options->labels != 0) {
        header->labels = header->size;
        header->labels_count = round_up(options->labels, LABELS_IN_SET);
        header->size += round_up(header->labels_count * sizeof(struct label), SMALL_PAGE);
    }
    return shape;
}

/* ---- A new table ----------------------------------------------------------------------------- */

static bool random_secret(uint8_t secret[STINT_SECRET_SIZE]) {
    for (size_t got = 0; got < STINT_SECRET_SIZE;) {
        ssize_t more = getrandom(secret + got, STINT_SECRET_SIZE - got, 0);
        if (more < 0 && errno != EINTR)
            return false;
        got += more > 0 ? (size_t)more : 0;
    }
    for (size_t i = 0; i < STINT_SECRET_SIZE; i += sizeof(uint64_t))
        secret[i] |= 1; /* no word is 0, which is what nobody has written yet */
    return true;
}

/* Words of the header that its makers write. */
#define MADE_WORDS (offsetof(struct header, policy_count) / sizeof(uint64_t))
#define MADE_SHAPE (offsetof(struct header, secret) / sizeof(uint64_t))
#define MADE_GIVEN (offsetof(struct header, lock) / sizeof(uint64_t))
static_assert(offsetof(struct header, secret) % sizeof(uint64_t) == 0 &&
                  offsetof(struct header, lock) % sizeof(uint64_t) == 0,
              "shape, secret and lock are whole words");

/* Makes a table of zeroed memory, or goes on where others make one for the same options, or have
 * died doing it. Each word goes from 0 to what its first maker has for it, and stays: who was
 * stopped meanwhile changes nothing. The magic is last. Other memory stays as it is. */
static int table_make(struct header *header, const struct stint_options *options,
                      const struct shape *shape) {
    static const struct header empty;
    struct header made = shape->header;
    uint64_t words[MADE_WORDS], *there = (uint64_t *)(void *)header;

    if (options->secret != NULL)
        memcpy(made.secret, options->secret, STINT_SECRET_SIZE);
    else if (!random_secret(made.secret))
        return stint_failed(EAGAIN, "the system has no random bytes to give for the secret");
    stint_limiter_lock_make(&made.lock);
    memcpy(words, &made, sizeof(words));

    /* The magic of the making tells of the shape, and of the secret if one is given. */
    uint64_t print = 0;
    for (size_t i = 1; i < (options->secret != NULL ? MADE_GIVEN : MADE_SHAPE); i++)
        print = mix(print, words[i]);
    const uint64_t making = HEADER_MAKING << 32 | print >> 32;
    if (memcmp(header, &empty, sizeof(empty)) == 0)
        /* The magic of the making, then each word (M15), then the magic (M12). */
        (void)atomic_cas_seq(&header->magic, 0, making);
    if (atomic_load_acquire(&header->magic) != making)
        return 0;
    for (size_t i = 1; i < MADE_WORDS; i++)
        if (words[i] != 0)
            (void)atomic_cas_seq(&there[i], 0, words[i]);       /* M12 */
    (void)atomic_cas_seq(&header->magic, making, HEADER_MAGIC); /* M12 */
    return 0;
}

/* ---- A table that is there ------------------------------------------------------------------- */

/* Checks the set-up lock, which the C library trusts. 0, or -EPROTO. */
static int lock_check(const struct header *header) {
    if (header->features != HEADER_FEATURES)
        return stint_failed(EPROTO,
                            "the set-up lock of the table is another C library's, as glibc's and "
                            "musl's differ: use the one that made the table, read it only, or "
                            "make it this one's by stint resize");
#ifdef __GLIBC__
    pthread_mutex_t made; /* as stint_limiter_lock_make makes it */
    stint_limiter_lock_make(&made);
    if (header->lock.__data.__kind != made.__data.__kind)
        return stint_failed(EPROTO, "the table is damaged: its lock is none");
#endif
    return 0;
}

/* Layouts before this one: of 0.4, which stint_resize reads, and of 0.3. */
#define LAYOUT_BEFORE (HEADER_LAYOUT - 1)
#define LAYOUT_0_3    4

static int header_known(const struct header *header, uint32_t oldest) {
    uint64_t magic = atomic_load_acquire(&header->magic); /* M15 */

    if (magic == __builtin_bswap64(HEADER_MAGIC))
        return stint_failed(EPROTO,
                            "the table was made on a machine of another byte order: " BEGIN_ANEW);
    if (magic != HEADER_MAGIC)
        return stint_failed(EPROTO, "this is no table of stint: it does not begin as one");
    if (header->layout < oldest || header->layout > HEADER_LAYOUT)
        return stint_failed_with(
            EPROTO,
            "the table has another version's layout, %u, and this version of stint reads layout "
            "%u: %s" BEGIN_ANEW,
            (unsigned)header->layout, (unsigned)HEADER_LAYOUT,
            header->layout == LAYOUT_BEFORE ? "make it this one's by stint resize, "
            : header->layout == LAYOUT_0_3
                ? "make it one of layout 5 by the `stint resize` of version 0.4, and then this "
                  "one's by that of this version, "
                : "use the version that made it, ");
    if ((header->features & ~FEATURE_LOCK) != 0)
        return stint_failed(EPROTO, "the table has features: " LATER_TABLE);
    return 0;
}

/* Checks that a header, in a copy of the layout before, too, is one for these options, and finds
 * their shape. `any`: the options receive the numbers that the table was made with. */
static int header_check(const struct header *header, const struct memory *memory, bool any,
                        struct stint_options *options, struct shape *shape) {
    int error = header_known(header, memory->copy ? LAYOUT_BEFORE : HEADER_LAYOUT);
    if (error != 0)
        return error;
    if (any) {
        if (header->max_entries == 0 || header->max_entries > STINT_ENTRIES_MAX ||
            header->shards == 0 || (header->shards & (header->shards - 1)) != 0 ||
            header->shards > STINT_SHARDS_MAX || header->max_policies == 0 ||
            header->max_policies >
                (header->layout == HEADER_LAYOUT ? STINT_POLICIES_MAX : UINT16_MAX) ||
            header->labels_count > STINT_LABELS_MAX)
            return stint_failed(EPROTO, "the table is damaged: its shape is none that stint makes");
        options->max_entries = header->max_entries;
        options->shards = header->shards;
        options->max_policies = header->max_policies;
        options->labels = (uint32_t)header->labels_count;
    }
    *shape = shape_of(options, header->layout);
    const struct header *asked = &shape->header;
    const struct {
        const char *option;
        uint64_t made, asked;
    } numbers[] = {
        {"max_entries", header->max_entries, asked->max_entries},
        {"max_policies", header->max_policies, asked->max_policies},
        {"shards", header->shards, asked->shards},
        {"labels", header->labels_count, asked->labels_count},
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (numbers[i].made != numbers[i].asked)
            return stint_failed_with(EPROTO,
                                     "the table was made with options.%s %llu, not %llu: use that "
                                     "number, give the table another (stint_resize), " BEGIN_ANEW,
                                     numbers[i].option, (unsigned long long)numbers[i].made,
                                     (unsigned long long)numbers[i].asked);
    if (header->size != asked->size || header->lanes != asked->lanes ||
        header->labels != asked->labels)
        return stint_failed(EPROTO, "the table is damaged: its sizes contradict each other");
    if (memory->size < asked->size)
        return stint_failed_with(EPROTO, "the table is cut off: it has %zu bytes of %zu: remove it",
                                 memory->size, (size_t)asked->size);
    if (options->secret != NULL && memcmp(options->secret, header->secret, STINT_SECRET_SIZE) != 0)
        return stint_failed(EPROTO, "the table was made with another secret than options.secret");
    return memory->read_only || memory->copy ? 0 : lock_check(header); /* who takes it */
}

/* Whether the clock is so far behind a table's windows that their ids do not tell what is over. */
static bool clock_behind(const struct stint_limiter *limiter) {
    tick_t longest = 0;

    for (uint32_t id = 0; id < limiter_policy_count(limiter); id++)
        if (policy_reach(&limiter->policies[id]) > longest)
            longest = policy_reach(&limiter->policies[id]);
    const tick_t known = (tick_t)atomic_load_relaxed(&limiter->header->known); /* M16 */
    return known > tick_of(limiter_now(limiter)) + (tick_t)(UINT64_C(1) << (ID_BITS - 1)) -
                       longest - ALLOWANCE_TICKS;
}

/* Clears the filters' bits of keys without a companion's slot. Nobody else uses the table. What is
 * over keeps its bits: this clock may be ahead, and the key's next override has the same slot. */
static void filters_clean(struct stint_limiter *limiter) {
    const struct table *table = &limiter->table;

    for (uint64_t shard = 0; shard >> table->shard_bits == 0; shard++) {
        uint64_t *filter = table->shards[shard].filter, needed[FILTER_ANY + FILTER_FAR] = {0};
        if (memcmp(filter, needed, sizeof(*filter) * FILTER_ANY) == 0)
            continue;
        struct slot *slot = table->lines[shard * table->shard_lines].slots;
        const struct slot *last = slot + table->shard_lines * LINE_SLOTS;
        for (; slot < last; slot++) {
            /* Nobody else writes: I6, and M15. */
            const uint64_t tag = atomic_load_acquire(&slot->tag);
            const struct policy *policy = limiter_tag_policy(limiter, tag);
            if (policy != NULL && (policy_word(policy) & TRAIT_COMPANION) != 0)
                filter_mark(table, tag_hash(table, tag), needed);
        }
        for (size_t i = 0; i < FILTER_ANY + FILTER_FAR; i++)
            atomic_store_relaxed(&filter[i], filter[i] & needed[i]); /* I6 */
    }
}

/* Attaches to a table whose header is right. `alone`: nobody else uses it until this is done. */
static int table_attach(struct stint_limiter *limiter, bool alone) {
    int error = alone ? 0 : stint_policies_lock(limiter);
    if (error != 0)
        return error;
    error = stint_policies_check(limiter);
    if (error == 0) {
        if (alone) { /* the lock's holder is gone, with the machine perhaps */
            pthread_mutex_t lock;
            stint_limiter_lock_make(&lock);
            memcpy(&limiter->header->lock, &lock, sizeof(lock)); /* a whole one writes the same */
        }
        stint_policies_repair(limiter);
        stint_limiter_lanes_reclaim(limiter, alone);
        if (alone && stint_sweep(limiter)) /* nobody has their ids any more */
            stint_policies_free(limiter);
        /* M16 */
        atomic_store_relaxed(&limiter->header->known, (uint64_t)tick_of(limiter_now(limiter)));
        if (alone && limiter->memory.shared)
            filters_clean(limiter);
    }
    return alone ? error : stint_limiter_unlock(limiter, error);
}

#define READ_TRIES 100 /* looks of a reader, without the lock, at what others may be changing */

static int table_look(struct stint_limiter *limiter) {
    for (unsigned tries = 0;; tries++) {
        const int error = stint_policies_check(limiter);
        if (error == 0 || tries == READ_TRIES)
            return error;
        set_up_pause();
    }
}

static struct stint_limiter *handle_make(const struct stint_options *options,
                                         const struct shape *shape, const struct memory *memory) {
    const struct header *made = &shape->header;
    /* A read-only handle is two: the caller's, and the one that it looks by. */
    const size_t handles = memory->read_only ? 2 : 1;
    struct stint_limiter *limiter = aligned_alloc(CACHE_LINE, handles * sizeof(*limiter));

    if (limiter == NULL)
        return NULL;
    *limiter = (struct stint_limiter){
        .table = shape->table,
        .header = (void *)memory->start,
        .deciding = made->max_policies,
        .max_policies = made->max_policies,
        .labels = made->labels == 0 ? NULL : (void *)(memory->start + made->labels),
        .label_sets = made->labels_count / LABELS_IN_SET,
        .lanes = made->lanes,
        .clock = options->clock,
        .clock_read = stint_clock_find(),
        .clock_id = options->clock != NULL                        ? CLOCK_GIVEN
                    : (options->flags & STINT_PRECISE_CLOCK) != 0 ? CLOCK_REALTIME
                                                                  : CLOCK_REALTIME_COARSE,
        .on_full = options->on_full,
        .memory = *memory,
    };
    /* The sections are aligned: shape_of rounds, and every struct fills whole lines. */
    limiter->policies = (void *)(limiter->header + 1);
    limiter->records = (void *)(limiter->policies + made->max_policies);
    limiter->counters = (void *)(limiter->records + made->max_policies);
    limiter->rare = limiter->counters + (size_t)made->lanes * (made->max_policies + 1);
    limiter->table.shards = (void *)(limiter->rare + made->max_policies);
    limiter->table.lines = (void *)(memory->start + shape->lines);
    memcpy(limiter->secret, limiter->header->secret, STINT_SECRET_SIZE);
    if (memory->mapping != NULL)
        memory->mapping->deciding = &limiter[handles - 1].deciding;
    limiter->forks = stint_limiter_process_lock();
    stint_limiter_process_unlock();
    if (!stint_limiter_lanes_open(limiter)) {
        free(limiter);
        return NULL;
    }
    if (memory->read_only) {
        limiter[1] = limiter[0];
        limiter->reader = &limiter[1];
        limiter->deciding = 0;
    }
    return limiter;
}

void stint_close(struct stint_limiter *limiter) {
    if (limiter == NULL)
        return;
    struct memory memory = limiter->memory;
    stint_limiter_lanes_close(limiter);
    free(limiter);
    stint_memory_free(&memory);
}

/* Opens the table that is mapped, whose header is one for these options. On success the memory is
 * the limiter's. After an error, of the caller's too, it is given back. */
static int handle_open(int error, const struct stint_options *options, const struct shape *shape,
                       struct memory *memory, struct stint_limiter **opened) {
    struct stint_limiter *limiter = error == 0 ? handle_make(options, shape, memory) : NULL;

    if (limiter == NULL) {
        stint_memory_free(memory);
        return error != 0 ? error : stint_failed(ENOMEM, "no memory for the limiter's handle");
    }
    if (memory->copy && clock_behind(limiter))
        /* before table_attach believes it */
        error = stint_failed(EINVAL, "the clock is months behind a window of the table: set it, "
                                     "and then resize; or if it is right, open the table once and "
                                     "close it before");
    if (error == 0 && memory->copy && shape->header.layout != HEADER_LAYOUT) {
        for (uint32_t id = 0; id < limiter->max_policies; id++) /* what 0.3 wrote */
            limiter->records[id].rate_changed = limiter->records[id].reserved = 0;
        error = table_look(limiter); /* others may be changing it */
    }
    if (error == 0)
        error = memory->read_only ? table_look(limiter)
                                  : table_attach(limiter, memory->alone || memory->copy);
    if (stint_limiter_lost(limiter))
        error = stint_limiter_whole(limiter);
    if (error == 0)
        *opened = limiter;
    else
        stint_close(limiter);
    return error;
}

/* Makes a table in private memory, or in a file beside options->path that has no name yet. */
static int make(const struct stint_options *options, const struct shape *shape,
                struct memory *memory) {
    int error = 0;

    if (options->path != NULL)
        error = stint_memory_file_make(memory, options->path,
                                       options->mode == 0 ? FILE_MODE : options->mode,
                                       shape->header.size);
    if (error == 0)
        error = stint_memory_map(memory, shape->header.size, shape->lines, options->flags);
    return error != 0 ? error : table_make((struct header *)(void *)memory->start, options, shape);
}

static int map_file(struct stint_options *options, bool any, struct shape *shape,
                    struct memory *memory) {
    struct header header;
    int error = stint_memory_file_read(memory, &header, sizeof(header));

    if (error == 0)
        error = header_check(&header, memory, any, options, shape);
    if (error == 0 && !memory->read_only && !memory->copy)
        error = stint_memory_file_reserve(memory, shape->header.size);
    return error != 0 ? error
                      : stint_memory_map(memory, shape->header.size, shape->lines, options->flags);
}

/* Makes the file, or maps the one that is there. Whatever way this ends, no other process ever sees
 * a part of a table, and no file that is not a table for these options is written to. */
static int open_file(struct stint_options *options, struct shape *shape, struct memory *memory) {
    for (;;) {
        int error = stint_memory_file_open(memory, options->path, false);
        if (error == 0)
            return map_file(options, false, shape, memory);
        if (error != -ENOENT)
            return error;
        error = make(options, shape, memory);
        if (error == 0)
            error = stint_memory_file_publish(memory, options->path, sizeof(struct header));
        if (error != -EEXIST)
            return error;
        stint_memory_free(memory); /* another process was faster */
    }
}

/* Maps the file that is there, in the way of `use`: all but TO_OPEN take any table. */
static int open_there(struct stint_options *options, enum use use, struct shape *shape,
                      struct memory *memory) {
    const bool read_only = (options->flags & STINT_READ_ONLY) != 0;
    int error = stint_memory_file_open(memory, options->path, read_only);

    memory->copy = use == TO_COPY;
    if (error == 0)
        return map_file(options, use != TO_OPEN, shape, memory);
    return error == -ENOENT ? stint_failed(ENOENT, "there is no table: stint_open makes one")
                            : error;
}

static int open_table(const struct stint_options *given, enum use use,
                      struct stint_limiter **opened) {
    struct stint_options options;
    struct memory memory = {.file = -1, .alone = true};
    struct stint_limiter *limiter = NULL;

    int error = call_check(opened, given, use, &options);
    if (error != 0)
        return error;
    struct shape shape = shape_of(&options, HEADER_LAYOUT);
    if (options.path == NULL)
        error = make(&options, &shape, &memory);
    else if (use == TO_OPEN && (options.flags & STINT_READ_ONLY) == 0)
        error = open_file(&options, &shape, &memory);
    else
        error = open_there(&options, use, &shape, &memory);
    if (error == 0 && options.path != NULL)
        stint_memory_file_path(&memory, options.path);
    error = handle_open(error, &options, &shape, &memory, &limiter);
    if (error == 0 && !memory.read_only)
        error = stint_memory_file_share(&limiter->memory);
    if (error == 0) {
        *opened = limiter;
        return 0;
    }
    stint_close(limiter);
    return options.path == NULL ? error : stint_failed_at(error, options.path);
}

int stint_open(const struct stint_options *given, struct stint_limiter **opened) {
    return open_table(given, TO_OPEN, opened);
}

int stint_attach(const struct stint_options *given, struct stint_limiter **opened) {
    return open_table(given, TO_ATTACH, opened);
}

size_t stint_memory_size(const struct stint_options *given) {
    struct stint_options options;

    return stint_options_read(given, &options) != 0 || check(&options, TO_MAKE) != 0
               ? 0
               : shape_of(&options, HEADER_LAYOUT).header.size;
}

int stint_open_in(const struct stint_options *given, void *start, size_t size,
                  struct stint_limiter **opened) {
    struct stint_options options;

    int error = call_check(opened, given, TO_MAKE, &options);
    if (error != 0)
        return error;
    if (options.path != NULL)
        return stint_failed(EINVAL, "options.path must be NULL: the memory is given");
    if (start == NULL || (uintptr_t)start % CACHE_LINE != 0)
        return stint_failed(EINVAL, "memory is NULL or not aligned to 64 bytes");
    struct shape shape = shape_of(&options, HEADER_LAYOUT);
    if (size < shape.header.size)
        return stint_failed_with(EINVAL, "size is %zu bytes; stint_memory_size asks for %zu", size,
                                 shape.header.size);
    struct header *header = start;
    struct memory memory = {.start = start, .size = shape.header.size, .file = -1, .shared = true};

    /* First: a process that cannot have the memory must not begin to make a table of it. */
    error = stint_memory_prefault(&memory, options.flags);
    if (error == 0 && atomic_load_acquire(&header->magic) != HEADER_MAGIC) /* M15 */
        error = table_make(header, &options, &shape);
    if (error != 0)
        return error;
    /* M15 */
    for (unsigned tries = 0; atomic_load_acquire(&header->magic) >> 32 == HEADER_MAKING; tries++) {
        if (tries == SET_UP_TRIES)
            return stint_failed(
                EBUSY, "another process is making a table for other options of this memory, or "
                       "died while it did: open it with those, or clear the memory");
        set_up_pause();
    }
    error = header_check(header, &memory, false, &options, &shape);
    return handle_open(error, &options, &shape, &memory, opened);
}

int stint_table_copy(struct stint_options *made, struct stint_limiter **opened) {
    struct memory memory = {.file = -1};
    struct shape shape;
    int error = open_there(made, TO_COPY, &shape, &memory);

    /* Who has a table of the layout before open is of another version, and goes on by it. */
    if (error == 0 && !memory.alone && shape.header.layout == HEADER_LAYOUT)
        error = stint_memory_file_held(
            memory.file, "has the table open: a table is resized while nobody uses it");
    error = handle_open(error, made, &shape, &memory, opened);
    struct stint_options chosen = *made;
    chosen.shards = 0;
    if (error == 0 && shape_of(&chosen, HEADER_LAYOUT).header.shards == shape.header.shards)
        made->shards = 0;
    return error;
}

int stint_table_whole(const struct stint_limiter *copy) {
    struct header header;
    int error = stint_limiter_whole(copy);

    if (error == 0)
        error = stint_memory_file_read(&copy->memory, &header, sizeof(header));
    return error != 0 ? error : header_known(&header, LAYOUT_BEFORE);
}

int stint_table_make(const struct stint_options *options, struct stint_limiter **made) {
    int error = check(options, TO_MAKE);
    if (error != 0)
        return error;
    struct shape shape = shape_of(options, HEADER_LAYOUT);
    struct memory memory = {.file = -1};

    error = make(options, &shape, &memory);
    return handle_open(error, options, &shape, &memory, made);
}
