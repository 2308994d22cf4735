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

/* Slots tell their keys in every table that is a file, also those that were displaced, over the end
 * of a shard too. */
TEST(test_each_tells_keys) {
    const struct {
        uint32_t shards, max_policies, keys;
    } shapes[] = {{1, 3, 700}, {4, 3, 700}, {64, 3, 600}, {2, 1, 400}, {256, 2, 300}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct stint_options options = shared_options(700);
        options.shards = shapes[i].shards;
        options.max_policies = shapes[i].max_policies;
        options.on_full = STINT_FULL_REFUSE;
        options.secret = test_secret();
        struct stint_limiter *limiter = open_with(&options);
        const uint32_t minute = add_policy(limiter, "minute", 1, MINUTE, 0, 0);
        const struct table *table = &limiter->table;
        assert_true(table_hashes_whole(table));
        uint64_t found = 0, asked = 0;
        for (uint64_t number = 0; asked < shapes[i].keys && number < 1000000; number++) {
            /* Most of them in the last lines of the first shard, so that they go round. */
            const stint_key key = number_key(limiter, number);
            const uint64_t home = table_home(table, key);
            if (number % 64 != 0 && (home >= table->shard_lines || home + 4 < table->shard_lines))
                continue;
            asked += stint_take(limiter, minute, key, 1, STINT_NOW, NULL);
        }
        for (uint64_t line = 0; line < table->line_count; line++) {
            for (uint32_t j = 0; j < LINE_SLOTS; j++) {
                const struct slot *slot = &table->lines[line].slots[j];
                uint64_t hash;
                if (slot->tag == 0)
                    continue;
                assert_true(table_hash(table, line, slot->tag, &hash));
                assert_int_equal(used_of(limiter, minute, hash), 1);
                assert_int_equal(table_tag(table, hash, minute), slot->tag);
                found++;
            }
        }
        assert_int_equal(found, asked);
        /* What cannot be there is told as nothing. */
        uint64_t hash, none = 0;
        for (uint64_t line = 0; line < table->line_count; line++)
            none += !table_hash(table, line, table_tag(table, number_key(limiter, line), 0), &hash);
        assert_true(table->line_count / table->tag_unit == table->probe_lines || none != 0);
        stint_close(limiter);
        assert_int_equal(unlink(path), 0);
    }
}

TEST(test_each_in_small_memory) {
    struct stint_options options = fixture_options(40, STINT_FULL_REFUSE);
    struct stint_limiter *limiter = open_with(&options);
    uint32_t minute = add_policy(limiter, "minute", 5, MINUTE, 0, 0);
    struct stint_policy policy = make_policy("striped", 8, MINUTE, 0, 0);
    policy.stripes = 2;
    uint32_t striped = add_made(limiter, &policy);
    const stint_key key = number_key(limiter, 1);
    take_times(limiter, minute, key, 2);
    take_times(limiter, striped, key, 8);
    struct told told = {0};
    assert_int_equal(stint_each(limiter, tell, &told), 0);
    assert_int_equal(told.count, 3);
    for (size_t i = 0; i < told.count; i++) {
        const struct stint_entry *entry = &told.entries[i];
        assert_true((entry->flags & STINT_ENTRY_KEY_PART) != 0);
        if (entry->policy == minute)
            assert_int_equal(entry->key, key & (UINT64_MAX >> 7));
        else
            assert_true((entry->flags & STINT_ENTRY_KEY_STRIPE) != 0 && entry->used == 4);
    }
    stint_close(limiter);
}

/* A debt is told, by the window of now; a smooth count, as a look tells it. */
TEST(test_each_carried) {
    struct stint_limiter *limiter = make_table(1000, 0, 0);
    struct stint_policy policy = make_policy("debts", 5, MINUTE, 0, 0);
    policy.max_reserved = 20;
    uint32_t debts = add_made(limiter, &policy),
             smooth = add_policy(limiter, "smooth", 10, MINUTE, 0, STINT_SMOOTH),
             plain = add_policy(limiter, "plain", 10, MINUTE, 0, 0),
             own = add_policy(limiter, "own", 10, HOUR, 0, STINT_START_PER_KEY);
    const stint_key key = number_key(limiter, 1);
    (void)ask(limiter, debts, key, 19, STINT_RESERVE);
    (void)ask(limiter, smooth, key, 9, 0);
    (void)ask(limiter, plain, key, 9, 0);
    (void)ask(limiter, own, key, 9, 0);
    for (uint32_t step = 0; step < 12; step++) {
        struct told told = {0};
        assert_int_equal(stint_each(limiter, tell, &told), 0);
        uint32_t seen = 0;
        for (size_t i = 0; i < told.count; i++) {
            const struct stint_entry *entry = &told.entries[i];
            const struct stint_verdict verdict = ask(limiter, entry->policy, key, 0, STINT_PEEK);
            assert_int_equal(entry->used, verdict.used);
            assert_int_equal(entry->end, verdict.window);
            seen |= 1u << entry->policy;
        }
        for (uint32_t id = 0; id < 4; id++) /* what is not told has used nothing */
            assert_true((seen >> id & 1) != 0 || used_of(limiter, id, key) == 0);
        assert_int_equal(seen >> debts & 1, step < 8);
        test_time += 30 * SECOND;
    }
    stint_close(limiter);
}

/* Puts tokens in some stripes of a key, by their own slots. */
static void take_stripes(struct stint_limiter *limiter, uint32_t striped, uint32_t plain,
                         stint_key key, uint64_t which) {
    struct table *table = &limiter->table;
    for (uint32_t i = 0; i < 64; i++) {
        if ((which >> i & 1) == 0)
            continue;
        const stint_key hash = stripe_key(key, i);
        take_times(limiter, plain, hash, 1); /* of another policy, whose slot is turned over */
        for (uint32_t j = 0; j < 2 * LINE_SLOTS; j++) {
            struct line *line = &table->lines[table_home(table, hash)];
            struct slot *slot =
                &(j < LINE_SLOTS ? line : table_next(table, hash, line))->slots[j % LINE_SLOTS];
            if (slot->tag == table_tag(table, hash, plain))
                slot->tag = table_tag(table, hash, striped);
        }
    }
}

TEST(test_each_striped) {
    struct stint_limiter *limiter = make_table(20000, 0, 16);
    struct stint_policy policy = make_policy("striped", 64, MINUTE, 0, 0);
    policy.stripes = 8;
    uint32_t striped = add_made(limiter, &policy);
    policy = make_policy("other", 128, MINUTE, 0, 0);
    policy.stripes = 64;
    uint32_t other = add_made(limiter, &policy),
             plain = add_policy(limiter, "plain", 1, MINUTE, 0, 0);
    const struct {
        uint64_t which;
        bool known; /* the key can be told */
    } keys[] = {{0x03, true},  {0x01, false}, {0x81, true}, {0xff, true}, {0xfe, true},
                {0x7e, false}, {0x40, false}, {0x82, true}, {0x11, true}, {0x80, false}};
    struct told told = {0};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        take_stripes(limiter, striped, plain, number_key(limiter, i), keys[i].which);
    take_stripes(limiter, other, plain, number_key(limiter, 3), UINT64_MAX);
    assert_int_equal(stint_each(limiter, tell, &told), 0);
    assert_int_equal(told.count, sizeof keys / sizeof keys[0] + 1);
    uint64_t seen = 0;
    for (size_t i = 0; i < told.count; i++) {
        const struct stint_entry *entry = &told.entries[i];
        if (entry->policy == other) {
            assert_int_equal(entry->key, number_key(limiter, 3));
            assert_int_equal(entry->used, 64);
            continue;
        }
        for (size_t j = 0; j < sizeof keys / sizeof keys[0]; j++) {
            bool is = false;
            for (uint32_t stripe = 0; stripe < 8; stripe++)
                is |= entry->key == stripe_key(number_key(limiter, j), stripe);
            if (!is)
                continue;
            assert_int_equal(entry->flags, keys[j].known ? 0 : STINT_ENTRY_KEY_STRIPE);
            assert_true(!keys[j].known || entry->key == number_key(limiter, j));
            assert_int_equal(entry->used, __builtin_popcountll(keys[j].which));
            seen |= UINT64_C(1) << j;
        }
    }
    assert_int_equal(seen, (UINT64_C(1) << sizeof keys / sizeof keys[0]) - 1);
    /* Labels tell the others. */
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (!keys[i].known)
            assert_int_equal(stint_label(limiter, number_key(limiter, i), "name", 4), 0);
    told = (struct told){0};
    assert_int_equal(stint_each(limiter, tell, &told), 0);
    for (size_t i = 0; i < told.count; i++)
        assert_int_equal(told.entries[i].flags, 0);
    told = (struct told){.stop = 2};
    assert_int_equal(stint_each(limiter, tell, &told), 0);
    assert_int_equal(told.count, 2);
    stint_close(limiter);
}

/* One thread alone, a refusal that took nothing: stripe 0. */
TEST(test_each_striped_refused) {
    struct stint_limiter *limiter = make_table(1000, 0, 0);
    struct stint_policy policy = make_policy("striped", 8, MINUTE, 0, 0);
    policy.stripes = 4;
    uint32_t striped = add_made(limiter, &policy);
    const stint_key key = number_key(limiter, 1), drained = number_key(limiter, 2);
    assert_false(ask(limiter, striped, key, 9, 0).allowed);
    assert_false(ask(limiter, striped, drained, 9, STINT_DRAIN).allowed);
    struct told told = {0};
    assert_int_equal(stint_each(limiter, tell, &told), 0);
    assert_int_equal(told.count, 2);
    for (size_t i = 0; i < 2; i++) {
        const bool is = told.entries[i].key == drained;
        assert_true(is || told.entries[i].key == key);
        assert_int_equal(told.entries[i].used, is ? 8 : 0);
        assert_int_equal(told.entries[i].flags, STINT_ENTRY_REFUSED);
    }
    stint_close(limiter);
}

int main(void) {
#define IN_DIRECTORY(function)                                                                     \
    cmocka_unit_test_setup_teardown(function, table_make, directory_remove)
    const struct CMUnitTest tests[] = {
        IN_DIRECTORY(test_attach),
        IN_DIRECTORY(test_attach_options),
        IN_DIRECTORY(test_each),
        IN_DIRECTORY(test_each_tells_keys),
        cmocka_unit_test(test_each_in_small_memory),
        IN_DIRECTORY(test_each_carried),
        IN_DIRECTORY(test_each_striped),
        IN_DIRECTORY(test_each_striped_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
