/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * Tables that are looked at: attached to without their options, to be read only too; told entry by
 * entry; keys with names. */
#include "labels.h" /* before cmocka, which defines fail() as well */
#include "slot.h"

#include "fixture.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "directory.h"
#include "random.h"

static int table_make(void **state) {
    test_time = T0;
    return directory_make(state);
}

/* A table of each shape, made by its server. */
static struct stint_limiter *make_table(uint64_t max_keys, uint32_t max_policies, uint32_t labels) {
    struct stint_options options = shared_options(max_keys);
    options.max_policies = max_policies;
    options.labels = labels;
    return open_with(&options);
}

static struct stint_options attach_options(uint32_t flags) {
    struct stint_options options = shared_options(0);
    options.flags = flags;
    return options;
}

static struct stint_limiter *attach(uint32_t flags) {
    struct stint_options options = attach_options(flags);
    struct stint_limiter *limiter = NULL;
    if (stint_attach(&options, &limiter) != 0)
        fail_msg("%s", stint_reason());
    return limiter;
}

static void assert_refused(const struct stint_options *options, int error, const char *reason) {
    struct stint_limiter *limiter = NULL;
    int attached = stint_attach(options, &limiter);
    if (attached != -error || strstr(stint_reason(), reason) == NULL)
        fail_msg("%d and \"%s\", not %d and \"%s\"", attached, stint_reason(), -error, reason);
    assert_null(limiter);
}

static void take_times(struct stint_limiter *limiter, uint32_t policy, stint_key key, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        (void)stint_take(limiter, policy, key, 1, STINT_NOW, NULL);
}

/* ---- The shape is the file's ----------------------------------------------------------------- */

TEST(test_attach) {
    const struct {
        uint64_t max_keys;
        uint32_t shards, max_policies, labels;
    } shapes[] = {{1000, 0, 0, 0},     {1, 0, 1, 0},     {100000, 0, 3, 1},
                  {100000, 64, 64, 5}, {100, 2, 300, 8}, {10, 0, 65535, 0}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct stint_options options = shared_options(shapes[i].max_keys);
        options.shards = shapes[i].shards;
        options.max_policies = shapes[i].max_policies;
        options.labels = shapes[i].labels;
        struct stint_limiter *limiter = open_with(&options);
        const uint32_t minute = add_policy(limiter, "minute", 10, MINUTE, 0, 0);
        const stint_key key = stint_key_of(limiter, "client", 6);
        take_times(limiter, minute, key, 4);
        for (uint32_t flags = 0; flags <= STINT_READ_ONLY; flags += STINT_READ_ONLY) {
            struct stint_limiter *other = attach(flags | STINT_PREFAULT);
            assert_int_equal(policy_found(other, "minute"), minute);
            assert_int_equal(stint_key_of(other, "client", 6), key);
            assert_int_equal(used_of(other, minute, key), 4);
            assert_int_equal(get_stats(other).memory, stint_memory_size(&options));
            assert_int_equal(get_stats(other).slots, get_stats(limiter).slots);
            assert_int_equal(get_stats(other).shards, get_stats(limiter).shards);
            stint_close(other);
        }
        stint_close(limiter);
        assert_int_equal(unlink(path), 0);
    }
}

TEST(test_attach_options) {
    struct stint_limiter *limiter = NULL;
    struct stint_options options = attach_options(0), none = STINT_OPTIONS_INIT;
    assert_refused(&options, ENOENT, "there is no table");
    stint_close(make_table(100, 0, 0));
    assert_int_equal(stint_attach(&options, NULL), -EINVAL);
    assert_int_equal(stint_attach(NULL, &limiter), -EINVAL);
    assert_refused(&none, EINVAL, "options.path is NULL");
    options.size--;
    assert_refused(&options, EINVAL, "options.size");
    options = attach_options(1 << 4);
    assert_refused(&options, EINVAL, "options.flags");
    options = attach_options(0);
    options.on_full = 3;
    assert_refused(&options, EINVAL, "options.on_full");
    options = attach_options(0);
    options.path = "";
    assert_refused(&options, EINVAL, "options.path is empty");
    options = attach_options(0);
    options.max_keys = 100;
    assert_refused(&options, EINVAL, "must be 0");
    options = attach_options(0);
    options.shards = 1;
    assert_refused(&options, EINVAL, "must be 0");
    options = attach_options(0);
    options.max_policies = 64;
    assert_refused(&options, EINVAL, "must be 0");
    options = attach_options(0);
    options.labels = 4;
    assert_refused(&options, EINVAL, "must be 0");
    options = attach_options(0);
    options.secret = test_secret();
    assert_refused(&options, EPROTO, "secret");

    options = shared_options(100);
    options.flags = STINT_READ_ONLY;
    assert_int_equal(stint_open(&options, &limiter), -EINVAL);
    assert_non_null(strstr(stint_reason(), "stint_attach"));
    options = shared_options(100);
    options.mode = 01000;
    assert_int_equal(stint_open(&options, &limiter), -EINVAL);
    assert_non_null(strstr(stint_reason(), "options.mode"));
    options = shared_options(100);
    options.labels = STINT_LABELS_MAX + 1;
    assert_int_equal(stint_open(&options, &limiter), -EINVAL);
    assert_non_null(strstr(stint_reason(), "options.labels"));
}

/* ---- Entries --------------------------------------------------------------------------------- */

struct told {
    size_t count, stop;
    struct stint_entry entries[64];
};

static bool tell(void *context, const struct stint_entry *entry) {
    struct told *told = context;
    assert_true(told->count < sizeof told->entries / sizeof told->entries[0]);
    told->entries[told->count++] = *entry;
    return told->count != told->stop;
}

TEST(test_each) {
    struct stint_limiter *limiter = make_table(1000, 0, 0);
    uint32_t minute = add_policy(limiter, "minute", 5, MINUTE, 0, 0),
             day = add_policy(limiter, "day", 50, DAY, 0, 0);
    struct told told = {0};
    assert_int_equal(stint_each(limiter, tell, &told), 0);
    assert_int_equal(told.count, 0);
    for (uint64_t i = 1; i <= 10; i++) {
        take_times(limiter, minute, number_key(limiter, i), (uint32_t)i);
        take_times(limiter, day, number_key(limiter, i), (uint32_t)i);
    }
    assert_int_equal(stint_each(limiter, tell, &told), 0);
    assert_int_equal(told.count, 20);
    for (size_t i = 0; i < told.count; i++) {
        const struct stint_entry *entry = &told.entries[i];
        assert_int_equal(entry->used, used_of(limiter, entry->policy, entry->key));
        assert_true(entry->used > 0);
        assert_int_equal(entry->end, T0 + (entry->policy == minute ? MINUTE : DAY));
        assert_int_equal(entry->flags, entry->policy == minute && entry->used == 5 &&
                                               entry->key != number_key(limiter, 5)
                                           ? STINT_ENTRY_REFUSED
                                           : 0);
    }
    test_time += MINUTE;
    told = (struct told){.stop = 3};
    assert_int_equal(stint_each(limiter, tell, &told), 0);
    assert_int_equal(told.count, 3);
    told = (struct told){0};
    assert_int_equal(stint_each(limiter, tell, &told), 0);
    assert_int_equal(told.count, 10);
    assert_int_equal(stint_each(NULL, tell, &told), -EINVAL);
    assert_int_equal(stint_each(limiter, NULL, &told), -EINVAL);
    stint_close(limiter);
}

int main(void) {
#define IN_DIRECTORY(function)                                                                     \
    cmocka_unit_test_setup_teardown(function, table_make, directory_remove)
    const struct CMUnitTest tests[] = {
        IN_DIRECTORY(test_attach),
        IN_DIRECTORY(test_attach_options),
        IN_DIRECTORY(test_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
