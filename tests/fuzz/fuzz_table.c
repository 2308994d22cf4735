/* SPDX-License-Identifier: MIT
 * A table that somebody else wrote: a whole one, damaged wherever and however the input says, in
 * memory or as a file, and cut off perhaps; opened, attached to, only read, or resized first. It is
 * refused and left as it is, or all that can be done with it is safe: nothing beyond its memory is
 * touched, every call returns, a reader changes nothing, and what is told for others has no byte
 * that is a command to them. What is decided by nonsense may be nonsense. */
#include "fuzz.h"

#include <time.h>
#include <unistd.h>

#include "hostile.h"
#include "limiter/limiter.h"
#include "wrapped.h"

enum { MAX_POLICIES = 13, KEYS = 24, PATCHES = 24, CALLS = 200, BATCH = 4, LABELS = 4 };

/* ---- A lock that says that somebody has it --------------------------------------------------- */

static int64_t slept_ns;

/* Set-up waits for a lock, but not for ever. Here nobody will ever give it back, so the time just
 * passes. */
WRAPPED(int, clock_nanosleep, clockid_t clock, int flags, const struct timespec *until,
        struct timespec *rest) {
    struct timespec at;
    (void)flags, (void)rest;
    (void)clock_gettime(clock, &at);
    slept_ns += (until->tv_sec - at.tv_sec) * INT64_C(1000000000) + until->tv_nsec - at.tv_nsec;
    return 0;
}

/* As far as EBUSY says. */
static void check_slept(void) {
    assert(slept_ns <= INT64_C(10000000000));
    slept_ns = 0;
}

/* ---- The whole table ------------------------------------------------------------------------- */

static struct stint_options options_of(enum stint_on_full on_full) {
    struct stint_options options = fixture_options(16, on_full);
    options.shards = 2;
    options.max_policies = MAX_POLICIES;
    options.labels = LABELS;
    options.flags = STINT_SMALL_PAGES;
    return options;
}

/* The table of a file, whose hashes are whole, is larger. */
static struct whole {
    char *bytes;
    size_t size;
    struct layout layout;
} in_memory, in_file;

/* Makes a table once, with a policy of each kind, keys that have used them, and names. */
static void make_whole(struct whole *whole, bool file) {
    static const char *const texts[] = {"3/minute name=a",
                                        "5/s name=b capacity=9 reserve=4",
                                        "4/10s name=c smooth",
                                        "8/minute name=d stripes=4",
                                        "2/day name=e start=per-key shadow jitter=5% near=50%",
                                        "3/h name=f count-refused",
                                        "9/month name=h start=2024-01-15T09:00:00+05:30",
                                        "2/minute name=i in-flight",
                                        "9/minute name=k burst=12",
                                        "3/h name=g start=first ban=10m"};
    const uint32_t banning = sizeof texts / sizeof texts[0] - 1; /* and a companion behind it */
    struct stint_options options = options_of(STINT_FULL_ADMIT);
    struct stint_limiter *limiter;
    char path[64] = "/dev/shm/stint-fuzz-XXXXXX";
    if (file) {
        int fd = mkstemp(path); /* a name that is free */
        assert(fd >= 0);
        close(fd);
        unlink(path);
        options.path = path;
    }
    whole->size = stint_memory_size(&options);
    whole->bytes = aligned_alloc(64, whole->size);
    assert(whole->size != 0 && whole->size % 64 == 0 && whole->bytes != NULL);
    memset(whole->bytes, 0, whole->size);
    int error = file ? stint_open(&options, &limiter)
                     : stint_open_in(&options, whole->bytes, whole->size, &limiter);
    assert(error == 0);
    for (uint32_t id = 0; id < sizeof texts / sizeof texts[0]; id++)
        assert_int_equal(add_text(limiter, texts[id]), id);
    error = stint_override(limiter, banning, key_at(limiter, 0), 7, T0 + DAY);
    assert(error == 0);
    error = stint_override(limiter, banning, key_at(limiter, 1), 0, T0 + DAY);
    assert(error == 0);
    for (uint32_t id = banning + 1; id-- > 0;)
        for (uint64_t key = 0; key < 3; key++)
            for (uint32_t i = 0; i < 4; i++)
                stint_take(limiter, id, key_at(limiter, key + (id == banning ? 0 : id)), 1,
                           STINT_NOW, NULL);
    const struct stint_stats stats = get_stats(limiter);
    assert(stats.overrides == 2 && stats.barred == 1 && stats.banned == 1);
    for (uint64_t key = 0; key < LABELS + 2; key++)
        (void)stint_label(limiter, key_at(limiter, key), "\033[31m of a terminal", 20);
    /* A is replaced, and f removed. */
    error = stint_policies_apply(limiter, "3/h name=a", 0, NULL, NULL, NULL);
    assert(error == 0);
    error = stint_policy_remove(limiter, (uint32_t)policy_found(limiter, "f"));
    assert(error == 0);
    whole->layout = layout_of(limiter);
    if (file) {
        memcpy(whole->bytes, limiter->header, whole->size);
        unlink(path);
    }
    stint_close(limiter);
}

/* ---- The damage ------------------------------------------------------------------------------ */

/* Writes a few bytes of the input over a place in one of the parts, word by word or anywhere. */
static void patch(struct input *input, const struct whole *whole, char *table) {
    const size_t *parts = whole->layout.at;
    enum part part = (enum part)input_below(input, LINES + 1); /* with all that is behind them */
    size_t size = part == LINES ? whole->size - parts[LINES] : parts[part + 1] - parts[part];
    uint8_t form = (uint8_t)input_number(input, 1);
    size_t at = (size_t)(form & 1 ? input_below(input, size) : 8 * input_below(input, size / 8));
    size_t length = form & 2 ? 1 + (form >> 4) : 8;
    if ((form & 12) == 12) /* much of it */
        length = (size_t)input_below(input, size) + 1;
    if (length > size - at)
        length = size - at;
    at += parts[part];
    if ((form & 12) == 8) { /* from elsewhere in the table: whole policies, slots, counts */
        size_t from = (size_t)input_below(input, whole->size - length + 1);
        memmove(table + at, table + from, length);
    } else if ((form & 12) == 12) {
        memset(table + at, (int)input_number(input, 1), length);
    } else {
        input_bytes(input, table + at, length);
    }
}

/* ---- Opening --------------------------------------------------------------------------------- */

/* The shape that a file is given first; or NULL. */
static const struct stint_options *resizes;

/* What a refused table may not have changed: all but its lock, which was taken and given back. */
static void check_untouched(const char *table, const char *before, size_t size) {
    size_t lock = offsetof(struct header, lock), after = lock + sizeof(pthread_mutex_t);
    assert(memcmp(table, before, size < lock ? size : lock) == 0);
    if (size > after)
        assert(memcmp(table + after, before + after, size - after) == 0);
}

static void check_refused(int error, bool file) {
    assert(error == -EPROTO || error == -EBUSY || (error == -EINVAL && !file) ||
           (resizes != NULL && (error == -EINVAL || error == -ENOSPC)));
    assert(stint_reason()[0] != '\0');
}

/* Where a table of that size may be, between pages that nobody may touch: a sanitizer does not see
 * where atomic operations go. */
static size_t whole_lines(size_t size) {
    return (size + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
}

static struct stint_limiter *open_memory(const struct stint_options *options, char *table,
                                         size_t size) {
    struct stint_limiter *limiter = NULL;
    char *before = exact_copy(table, size);
    int error = stint_open_in(options, table, size, &limiter);
    check_slept();
    assert((error == 0) == (limiter != NULL));
    if (error != 0) {
        check_refused(error, false);
        check_untouched(table, before, size);
    }
    free(before);
    return limiter;
}

/* The file is kept by the limiter, and goes away with it. */
static struct stint_limiter *open_file(struct stint_options *options, bool attach,
                                       const char *table, size_t size, int *kept) {
    struct stint_limiter *limiter = NULL;
    char path[64] = "/dev/shm/stint-fuzz-XXXXXX";
    int fd = mkstemp(path);
    bool written = fd >= 0 && write(fd, table, size) == (ssize_t)size;
    assert(written);

    options->path = path;
    int error = resizes != NULL ? stint_resize(path, resizes) : 0;
    if (error == 0 && attach) { /* the shape is the file's */
        struct stint_options shapeless = *options;
        shapeless.max_entries = 0;
        shapeless.shards = shapeless.max_policies = shapeless.labels = 0;
        if (resizes != NULL) /* it may have been damaged */
            shapeless.secret = NULL;
        error = stint_attach(&shapeless, &limiter);
        assert(error == 0 || resizes == NULL);
    } else if (error == 0) {
        error = stint_open(options, &limiter);
    }
    check_slept();
    unlink(path);
    options->path = NULL;
    assert((error == 0) == (limiter != NULL));
    if (error != 0) {
        char *after = fuzz_malloc(size);
        bool read = pread(fd, after, size, 0) == (ssize_t)size;
        assert(read);
        check_refused(error, true);
        check_untouched(after, table, size);
        free(after);
    }
    *kept = fd;
    return limiter;
}

/* A reader has not changed a byte. */
static void check_read_only(int fd, const char *table, size_t size) {
    char *after = fuzz_malloc(size);
    bool read = pread(fd, after, size, 0) == (ssize_t)size;
    assert(read && memcmp(after, table, size) == 0);
    free(after);
}

/* ---- Use ------------------------------------------------------------------------------------- */

/* All policies are valid: they were looked at. */
static void check_policies(const struct stint_limiter *limiter) {
    struct stint_policy policy = STINT_POLICY_INIT;
    for (uint32_t id = 0; id < MAX_POLICIES; id++) {
        if (stint_policy_get(limiter, id, &policy) != 0)
            continue;
        assert(stint_policy_format(&policy, NULL, 0) > 0);
        /* A reader repairs nothing: there may be policies behind the last that is counted. */
        assert(policy_found(limiter, policy.name) >= 0 || limiter->memory.read_only);
    }
    assert(stint_policy_get(limiter, MAX_POLICIES, &policy) == -ENOENT);
}

static void check_counts(struct stint_limiter *limiter) {
    const struct stint_stats stats = get_stats(limiter);
    assert(stats.used <= stats.slots && stats.live <= stats.used);
    assert(stats.policies <= MAX_POLICIES && stats.memory == limiter->memory.size);
    assert_entries(limiter, number_key(limiter, 1));
    for (uint32_t id = 0; id < MAX_POLICIES; id++) {
        struct stint_policy_stats counts = STINT_POLICY_STATS_INIT;
        struct stint_policy policy = STINT_POLICY_INIT;
        assert(stint_policy_stats_get(limiter, id, &counts) ==
               stint_policy_get(limiter, id, &policy));
        assert_fields(limiter, &(struct stint_verdict){.policy = id, .retry_after = 7});
    }
    assert_metrics(limiter);
}

static void check_verdict(const struct stint_request *request,
                          const struct stint_verdict *verdict) {
    assert(verdict->granted <= request->cost);
    assert(verdict->allowed || verdict->granted == 0);
}

static struct stint_request read_request(struct input *input, const struct stint_limiter *limiter) {
    uint8_t form = (uint8_t)input_number(input, 1);
    struct stint_request request = {
        .policy = form & 15,
        .key = key_at(limiter, input_below(input, KEYS)),
        .cost = form & 16 ? (uint32_t)input_number(input, 4) : 1,
        .limit = form & 32 ? (uint32_t)input_number(input, 4) : 0,
        .flags = form & 64 ? STINT_PEEK * ((uint32_t)input_number(input, 1) & 15) : 0,
    };
    return request;
}

static void move_time(struct input *input) {
    uint8_t form = (uint8_t)input_number(input, 1);
    uint64_t step = input_number(input, 3) * UINT64_C(1000000); /* up to 4 h 39 min */
    if ((form & 1) != 0)
        step *= 1000;
    test_time = (form & 2) != 0 && test_time > step ? test_time - step : test_time + step;
}

static void change_policy(struct input *input, struct stint_limiter *limiter) {
    uint32_t id = (uint32_t)input_below(input, MAX_POLICIES + 1),
             limit = (uint32_t)input_number(input, 2) + 1;
    struct stint_policy policy = STINT_POLICY_INIT;
    if (stint_policy_get(limiter, id, &policy) != 0)
        return;
    policy.limit = limit;
    if (limit % 8 == 0) /* given overrides, or a ban; or they are taken away */
        policy.flags ^= STINT_OVERRIDES;
    policy.ban = (policy.flags & STINT_OVERRIDES) != 0 && limit % 3 == 0 ? DAY : 0;
    policy.ban_after = policy.ban != 0 ? limit % 4 : 0;
    (void)!stint_policy_change(limiter, id, &policy);
    snprintf(policy.name, sizeof policy.name, "n%u", (unsigned)limit % 4);
    int added = policy_added(limiter, &policy);
    assert(added < MAX_POLICIES);
    if (added >= 0)
        assert(policy_found(limiter, policy.name) >= 0);
}

static void count_changes(void *context, const struct stint_change *change) {
    assert(change->kind <= STINT_POLICY_REMOVED && change->name[0] != '\0');
    assert((change->text == NULL) == (change->kind == STINT_POLICY_REMOVED));
    assert((change->was == NULL) == (change->kind == STINT_POLICY_ADDED));
    assert_change(context, change);
}

/* Policies of a text, of names that are there and of others; one is removed. */
static void apply_policies(struct input *input, struct stint_limiter *limiter) {
    static const char *const rates[] = {"2/10ms",          "3/minute",
                                        "7/minute smooth", "5/2h start=per-key",
                                        "9/s stripes=8",   "4/day capacity=6 reserve=1",
                                        "6/h start=first", "8/month ban=2m after=2",
                                        "2/10s in-flight"};
    char text[256];
    uint32_t lines = (uint32_t)input_below(input, 4), told = 0;
    uint32_t flags = STINT_DRY_RUN * ((uint32_t)input_number(input, 1) & 3);
    size_t length = 0;
    const char *wrong = NULL;
    text[0] = '\0';
    for (uint32_t i = 0; i < lines; i++) {
        uint8_t which = (uint8_t)input_number(input, 1);
        length += (size_t)snprintf(text + length, sizeof(text) - length, "%s name=%c\n",
                                   rates[which % 16 % (sizeof rates / sizeof rates[0])],
                                   'a' + (which >> 4));
    }
    int error = stint_policies_apply(limiter, text, flags, &wrong, count_changes, &told);
    check_slept();
    if (!limiter->memory.read_only)
        assert(error != -EROFS);
    else if ((flags & STINT_DRY_RUN) == 0)
        assert(error == -EROFS || error == -EINVAL);
    if (error == 0)
        assert(told >= lines);
    else
        assert(told == 0 && (wrong == NULL || (wrong >= text && wrong <= text + length)));
    if ((flags & STINT_PRUNE) == 0) {
        error = stint_policy_remove(limiter, (uint32_t)input_below(input, MAX_POLICIES + 1));
        check_slept();
        assert(error == 0 || error == -ENOENT || error == -EBUSY || error == -EPROTO ||
               error == -EROFS);
    }
}

/* Sets a key's override, asks for it, or clears it. What was set is there, if all goes well. */
static void override_key(struct input *input, struct stint_limiter *limiter,
                         const struct stint_request *request) {
    const bool reads = limiter->memory.read_only;
    uint8_t form = (uint8_t)input_number(input, 1);
    uint32_t limit = 0;
    uint64_t until = 0;
    int error;
    if ((form & 3) != 0) {
        const uint32_t wished = (form & 4) != 0 ? request->limit : form >> 4;
        error = stint_override(limiter, request->policy, request->key, wished,
                               test_time + input_number(input, 2) * UINT64_C(500000000000));
        assert(reads ? error == -EROFS
                     : error == 0 || error == -EINVAL || error == -ENOENT || error == -ENOSPC);
    }
    error = stint_override_get(limiter, request->policy, request->key, &limit, &until);
    assert(error == 0 || error == -EINVAL || error == -ENOENT);
    if (error == 0)
        assert(limit <= STINT_LIMIT_MAX && until > test_time && until % STINT_TICK_NS == 0);
    if ((form & 8) == 0)
        return;
    error = stint_override_clear(limiter, request->policy, request->key);
    assert(reads ? error == -EROFS : error == 0 || error == -EINVAL || error == -ENOENT);
}

static void call(struct input *input, struct stint_limiter *limiter) {
    struct stint_request requests[BATCH];
    struct stint_verdict verdicts[BATCH];
    uint8_t which = (uint8_t)input_number(input, 1);
    size_t n = which >> 4 & 3;
    for (size_t i = 0; i <= n; i++)
        requests[i] = read_request(input, limiter);
    switch (which & 15) {
    case 0:
        move_time(input);
        break;
    case 1:
        change_policy(input, limiter);
        break;
    case 2:
        stint_reset(limiter, requests[0].policy, requests[0].key);
        break;
    case 3:
        refund_by(limiter, requests[0].policy, requests[0].key, requests[0].cost,
                  test_time / DAY * DAY + input_number(input, 6));
        break;
    case 4:
        stint_decide_batch(limiter, requests, n + 1, STINT_NOW, verdicts);
        for (size_t i = 0; i <= n; i++)
            check_verdict(&requests[i], &verdicts[i]);
        break;
    case 5:
        stint_decide_all(limiter, requests, n + 1, STINT_NOW, verdicts);
        break;
    case 6:
        check_counts(limiter);
        break;
    case 7: /* late, or early by as much as is allowed */
        stint_decide(limiter, &requests[0],
                     test_time - MINUTE + input_number(input, 2) * UINT64_C(1800000), verdicts);
        check_verdict(&requests[0], verdicts);
        break;
    case 9:
        apply_policies(input, limiter);
        break;
    case 10:
        override_key(input, limiter, &requests[0]);
        break;
    case 15: {
        char bytes[64];
        size_t length = input_below(input, sizeof bytes);
        input_bytes(input, bytes, length);
        int error = stint_label(limiter, requests[0].key, bytes, length);
        assert(error == 0 || error == -EROFS || (error == -ENOENT && limiter->labels == NULL));
        break;
    }
    default:
        stint_decide(limiter, &requests[0], STINT_NOW, verdicts);
        check_verdict(&requests[0], verdicts);
        if ((which & 8) != 0)
            stint_refund(limiter, requests[0].key, &verdicts[0], verdicts[0].granted);
    }
}

/* A shape of that file, or as it is. */
static struct stint_options read_shape(struct input *input) {
    struct stint_options shape = STINT_OPTIONS_INIT;
    const uint8_t form = (uint8_t)input_number(input, 1);
    shape.clock = test_clock;
    shape.max_entries = (form & 1) != 0 ? input_below(input, 4000) : 0;
    shape.shards = (form & 2) != 0 ? 1u << input_below(input, 9) : 0;
    shape.max_policies = (form & 4) != 0 ? (uint32_t)input_below(input, MAX_POLICIES + 1) : 0;
    shape.labels = (form & 8) != 0 ? (uint32_t)input_below(input, 40) : 0;
    shape.secret = (form & 16) != 0 ? test_secret() : NULL;
    return shape;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input input = {data, size};
    struct stint_options options;
    struct stint_limiter *limiter;
    if (in_memory.bytes == NULL) {
        make_whole(&in_memory, false);
        make_whole(&in_file, true);
    }
    uint8_t form = (uint8_t)input_number(&input, 1);
    const bool file = (form & 32) != 0, read_only = file && (form & 192) == 192;
    const struct whole *whole = file ? &in_file : &in_memory;
    size_t cut = (form & 12) == 12 ? (size_t)input_below(&input, whole->size + 1) : 0;
    size_t table_size = whole->size - cut;
    int fd = -1;
    options = options_of((enum stint_on_full)(form & 3 ? (form & 3) - 1u : 0));
    if ((form & 16) != 0)
        options.secret = NULL;
    test_time = T0 + input_number(&input, 2) * UINT64_C(1000000);

    if (read_only)
        options.flags |= STINT_READ_ONLY;
    const bool resized = file && (form & 192) == 128;
    const struct stint_options shape = resized ? read_shape(&input) : options;
    resizes = resized ? &shape : NULL;

    char *damaged = exact_copy(whole->bytes, whole->size);
    size_t patches = (size_t)input_below(&input, PATCHES);
    for (size_t i = 0; i < patches; i++)
        patch(&input, whole, damaged);
    char *table = NULL;
    if (file) {
        limiter = open_file(&options, resized || (form & 64) != 0, damaged, table_size, &fd);
    } else {
        table = fenced_memory(whole_lines(table_size));
        memcpy(table, damaged, table_size);
        limiter = open_memory(&options, table, table_size);
    }
    if (limiter != NULL) {
        check_policies(limiter);
        for (size_t i = 0; i < CALLS && input.left > 0; i++)
            call(&input, limiter);
        check_policies(limiter);
        check_counts(limiter);
        stint_close(limiter);
        if (read_only)
            check_read_only(fd, damaged, table_size);
    }
    if (fd >= 0)
        close(fd);
    free(damaged);
    if (table != NULL)
        fenced_free(table, whole_lines(table_size));
    return 0;
}
