/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * A table that is resized, damaged wherever and however the input says, and cut off perhaps. It is
 * refused and left as it is, or it becomes a table that opens, and all that can be done with it is
 * safe. */
#include "fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/limiter.h"
#include "policy_text.h"

enum { MAX_POLICIES = 6, KEYS = 24, PATCHES = 12, CALLS = 60 };

#define DAY (UINT64_C(86400) * 1000000000)
#define T0  (UINT64_C(19723) * DAY) /* 2024-01-01 */

static uint64_t now = T0;

static uint64_t clock_of_test(void) {
    return now;
}

/* ---- The whole table ------------------------------------------------------------------------- */

/* Where the parts of a table begin; and where it ends. */
enum part { HEADER, POLICIES, RECORDS, COUNTERS, SHARDS, LINES, LABELS, PARTS };

static struct {
    char *bytes;
    size_t size;
    size_t parts[PARTS + 1];
} whole;

static char path[64];

static struct stint_options options_of(uint64_t max_keys) {
    struct stint_options options = STINT_OPTIONS_INIT;
    options.max_keys = max_keys;
    options.clock = clock_of_test;
    options.flags = STINT_SMALL_PAGES;
    return options;
}

static stint_key key_of(const struct stint_limiter *limiter, uint64_t number) {
    return stint_key_of(limiter, &number, sizeof number);
}

static void file_write(const char *bytes, size_t size) {
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    bool written = file >= 0 && write(file, bytes, size) == (ssize_t)size;
    assert(written);
    close(file);
}

static char *file_read(size_t *size) {
    struct stat about;
    int file = open(path, O_RDONLY);
    bool there = file >= 0 && fstat(file, &about) == 0;
    assert(there);
    *size = (size_t)about.st_size;
    char *bytes = fuzz_malloc(*size);
    bool whole_file = read(file, bytes, *size) == about.st_size;
    assert(whole_file);
    close(file);
    return bytes;
}

/* Makes it once, with a policy of each kind and keys that have used them. */
static void make_whole(void) {
    static const char *const texts[] = {"3/minute name=a",
                                        "5/s name=b capacity=9 reserve=4",
                                        "4/10s smooth",
                                        "8/minute name=d stripes=4",
                                        "2/day name=e start=per-key shadow jitter=5% near=50%",
                                        "3/h name=f count-refused"};
    struct stint_options options = options_of(16);
    struct stint_limiter *limiter;

    snprintf(path, sizeof path, "/dev/shm/stint-fuzz-%ld", (long)getpid());
    unlink(path);
    options.path = path;
    options.max_policies = MAX_POLICIES;
    options.labels = 16;
    options.secret = fuzz_secret();
    int error = stint_open(&options, &limiter);
    assert(error == 0);
    for (uint32_t id = 0; id < sizeof texts / sizeof texts[0]; id++) {
        struct stint_policy policy = STINT_POLICY_INIT;
        error = stint_policy_parse(texts[id], &policy, NULL);
        assert(error == 0);
        int added = policy_added(limiter, &policy);
        assert(added == (int)id);
        for (uint64_t key = 0; key < 3; key++)
            for (uint32_t i = 0; i < 4; i++)
                stint_take(limiter, id, key_of(limiter, key + id), 1, STINT_NOW, NULL);
        error = stint_label(limiter, key_of(limiter, id), texts[id], 8);
        assert(error == 0);
    }
    const void *const parts[PARTS] = {
        limiter->header,       limiter->policies,    limiter->records, limiter->counters,
        limiter->table.shards, limiter->table.lines, limiter->labels};
    for (enum part part = HEADER; part < PARTS; part++)
        whole.parts[part] = (size_t)((const char *)parts[part] - (const char *)limiter->header);
    whole.parts[PARTS] = limiter->memory.size;
    whole.bytes = file_read(&whole.size);
    stint_close(limiter);
}

/* ---- The damage ------------------------------------------------------------------------------ */

/* Writes a word, or a byte in it, over a place in one of the parts; or something from elsewhere. */
static void patch(struct input *input, char *table, size_t size) {
    enum part part = (enum part)input_below(input, PARTS);
    uint8_t form = (uint8_t)input_number(input, 1);
    size_t at = whole.parts[part] +
                8 * (size_t)input_below(input, (whole.parts[part + 1] - whole.parts[part]) / 8);
    size_t length = 8;

    if (at + 8 > size)
        return;
    if ((form & 3) == 0) {
        input_bytes(input, table + at, 8);
    } else if ((form & 3) == 1) {
        table[at + (form >> 2 & 7)] = (char)input_number(input, 1);
    } else {
        length = (size_t)8 << (form >> 2 & 7);
        size_t from = 8 * (size_t)input_below(input, size / 8);
        size_t most = size - (at > from ? at : from);
        memmove(table + at, table + from, length < most ? length : most);
    }
}

/* ---- Use ------------------------------------------------------------------------------------- */

static bool look(void *context, const struct stint_entry *entry) {
    *(uint64_t *)context += entry->label_length;
    return true;
}

static void use(struct input *input, struct stint_limiter *limiter) {
    struct stint_policy policy = STINT_POLICY_INIT;
    struct stint_stats stats = STINT_STATS_INIT;
    uint64_t told = 0;
    uint32_t count = 0;

    for (; stint_policy_get(limiter, count, &policy) == 0; count++)
        assert(stint_policy_format(&policy, NULL, 0) > 0 &&
               policy_found(limiter, policy.name) >= 0);
    assert(count <= MAX_POLICIES);
    for (size_t i = 0; i < CALLS; i++) {
        uint8_t form = (uint8_t)input_number(input, 1);
        now += (form & 64) != 0 ? (uint64_t)form * 100000000 : 0;
        stint_take(limiter, form & 7, key_of(limiter, input_below(input, KEYS)),
                   1 + (form >> 3 & 1), STINT_NOW, NULL);
    }
    int error = stint_stats_get(limiter, &stats);
    assert(error == 0 && stats.live <= stats.used && stats.used <= stats.slots);
    error = stint_each(limiter, look, &told);
    assert(error == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input input = {data, size};
    struct stint_limiter *limiter;

    if (whole.bytes == NULL)
        make_whole();
    uint8_t form = (uint8_t)input_number(&input, 1);
    const size_t most = whole.size;
    const size_t table_size = (form & 6) == 6 ? (size_t)input_below(&input, most + 1) : most;
    struct stint_options given = options_of((form & 8) != 0 ? input_below(&input, 4000) : 0);
    given.shards = (form & 16) != 0 ? 1u << input_below(&input, 9) : 0;
    given.max_policies = (form & 32) != 0 ? (uint32_t)input_below(&input, 40) : 0;
    given.labels = (form & 64) != 0 ? (uint32_t)input_below(&input, 40) : 0;
    given.secret = (form & 128) != 0 ? fuzz_secret() : NULL;
    now = T0 + input_number(&input, 2) * UINT64_C(1000000);

    char *table = exact_copy(whole.bytes, most);
    for (size_t patches = (size_t)input_below(&input, PATCHES); patches > 0; patches--)
        patch(&input, table, most);
    file_write(table, table_size);

    int error = stint_resize(path, &given);
    if (error != 0) {
        size_t after_size;
        char *after = file_read(&after_size);
        assert(error == -EPROTO || error == -EINVAL || error == -ENOSPC);
        assert(stint_reason()[0] != '\0');
        assert(after_size == table_size && memcmp(after, table, table_size) == 0);
        free(after);
    } else {
        given = options_of(0);
        given.path = path;
        error = stint_attach(&given, &limiter);
        assert(error == 0);
        use(&input, limiter);
        stint_close(limiter);
    }
    free(table);
    unlink(path);
    return 0;
}
