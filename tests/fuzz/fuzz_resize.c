/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * A table that is resized, damaged wherever and however the input says, and cut off perhaps. It is
 * refused and left as it is, or it becomes a table that opens, and all that can be done with it is
 * safe. */
#include "fuzz.h"

#include "directory.h"
#include "limiter/limiter.h"

enum { MAX_POLICIES = 6, KEYS = 24, PATCHES = 12, CALLS = 60 };

/* ---- The whole table ------------------------------------------------------------------------- */

/* Where the parts of a table begin; and where it ends. */
enum part { HEADER, POLICIES, RECORDS, COUNTERS, SHARDS, LINES, LABELS, PARTS };

static struct bytes whole;
static size_t parts[PARTS + 1];

/* Of a table in a file, or of one that is to be. */
static struct stint_options options_of(uint64_t max_entries, const char *file) {
    struct stint_options options = shared_options(max_entries);
    options.path = file;
    options.flags = STINT_SMALL_PAGES;
    return options;
}

/* Makes it once, with a policy of each kind and keys that have used them. */
static void make_whole(void) {
    static const char *const texts[] = {"3/minute name=a",
                                        "5/s name=b capacity=9 reserve=4",
                                        "4/10s smooth",
                                        "8/minute name=d stripes=4",
                                        "2/day name=e start=per-key shadow jitter=5% near=50%",
                                        "3/h name=f count-refused"};
    snprintf(path, sizeof path, "/dev/shm/stint-fuzz-%ld", (long)getpid());
    unlink(path);
    struct stint_options options = options_of(16, path);
    options.max_policies = MAX_POLICIES;
    options.labels = 16;
    options.secret = test_secret();
    struct stint_limiter *limiter = open_with(&options);
    for (uint32_t id = 0; id < sizeof texts / sizeof texts[0]; id++) {
        assert_int_equal(add_text(limiter, texts[id]), id);
        for (uint64_t key = 0; key < 3; key++)
            for (uint32_t i = 0; i < 4; i++)
                stint_take(limiter, id, number_key(limiter, key + id), 1, STINT_NOW, NULL);
        assert_int_equal(stint_label(limiter, number_key(limiter, id), texts[id], 8), 0);
    }
    const void *const begins[PARTS] = {
        limiter->header,       limiter->policies,    limiter->records, limiter->counters,
        limiter->table.shards, limiter->table.lines, limiter->labels};
    for (enum part part = HEADER; part < PARTS; part++)
        parts[part] = (size_t)((const char *)begins[part] - (const char *)limiter->header);
    parts[PARTS] = limiter->memory.size;
    whole = file_read(path);
    stint_close(limiter);
}

/* ---- The damage ------------------------------------------------------------------------------ */

/* Writes a word, or a byte in it, over a place in one of the parts; or something from elsewhere. */
static void patch(struct input *input, unsigned char *table, size_t size) {
    enum part part = (enum part)input_below(input, PARTS);
    uint8_t form = (uint8_t)input_number(input, 1);
    size_t at = parts[part] + 8 * (size_t)input_below(input, (parts[part + 1] - parts[part]) / 8);
    size_t length = 8;

    if (at + 8 > size)
        return;
    if ((form & 3) == 0) {
        input_bytes(input, table + at, 8);
    } else if ((form & 3) == 1) {
        table[at + (form >> 2 & 7)] = (unsigned char)input_number(input, 1);
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
    uint64_t told = 0;
    uint32_t count = 0;

    for (; stint_policy_get(limiter, count, &policy) == 0; count++)
        assert(stint_policy_format(&policy, NULL, 0) > 0 &&
               policy_found(limiter, policy.name) >= 0);
    assert(count <= MAX_POLICIES);
    for (size_t i = 0; i < CALLS; i++) {
        uint8_t form = (uint8_t)input_number(input, 1);
        test_time += (form & 64) != 0 ? (uint64_t)form * 100000000 : 0;
        stint_take(limiter, form & 7, number_key(limiter, input_below(input, KEYS)),
                   1 + (form >> 3 & 1), STINT_NOW, NULL);
    }
    const struct stint_stats stats = get_stats(limiter);
    assert(stats.live <= stats.used && stats.used <= stats.slots);
    assert_int_equal(stint_each(limiter, look, &told), 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input input = {data, size};
    struct stint_limiter *limiter;

    if (whole.start == NULL)
        make_whole();
    uint8_t form = (uint8_t)input_number(&input, 1);
    struct bytes table = whole;
    if ((form & 6) == 6) /* cut off */
        table.size = (size_t)input_below(&input, whole.size + 1);
    struct stint_options given = options_of((form & 8) != 0 ? input_below(&input, 4000) : 0, NULL);
    given.shards = (form & 16) != 0 ? 1u << input_below(&input, 9) : 0;
    given.max_policies = (form & 32) != 0 ? (uint32_t)input_below(&input, 40) : 0;
    given.labels = (form & 64) != 0 ? (uint32_t)input_below(&input, 40) : 0;
    given.secret = (form & 128) != 0 ? test_secret() : NULL;
    test_time = T0 + input_number(&input, 2) * UINT64_C(1000000);

    table.start = (unsigned char *)exact_copy(whole.start, whole.size);
    for (size_t patches = (size_t)input_below(&input, PATCHES); patches > 0; patches--)
        patch(&input, table.start, whole.size);
    file_write(path, table);

    int error = stint_resize(path, &given);
    if (error != 0) {
        assert(error == -EPROTO || error == -EINVAL || error == -ENOSPC);
        assert(stint_reason()[0] != '\0');
        assert_file(table);
    } else {
        given = options_of(0, path);
        assert_int_equal(stint_attach(&given, &limiter), 0);
        use(&input, limiter);
        stint_close(limiter);
    }
    free(table.start);
    unlink(path);
    return 0;
}
