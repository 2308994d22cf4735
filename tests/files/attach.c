/* SPDX-License-Identifier: MIT
 * Tables that are looked at: attached to without their options, to be read only too; told entry by
 * entry; keys with names. */
#include "feature/labels.h" /* before cmocka, which defines fail() as well */
#include "feature/stripe.h"
#include "policy/occupant.h"

#include "kinds.h"

#include <sys/file.h>

#include "directory.h"
#include "random.h"

/* A table of each shape, made by its server. */
static struct stint_limiter *make_table(uint64_t max_entries, uint32_t max_policies,
                                        uint32_t labels) {
    struct stint_options options = shared_options(max_entries);
    options.max_policies = max_policies;
    options.labels = labels;
    return open_with(&options);
}

static void take_times(struct stint_limiter *limiter, uint32_t policy, uint64_t key, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        (void)stint_take(limiter, policy, key, 1, STINT_NOW, NULL);
}

/* ---- The shape is the file's ----------------------------------------------------------------- */

TEST_IN_DIRECTORY(test_attach) {
    const struct {
        uint64_t max_entries;
        uint32_t shards, max_policies, labels;
    } shapes[] = {{1000, 0, 0, 0},     {1, 0, 1, 0},     {100000, 0, 3, 1},
                  {100000, 64, 64, 5}, {100, 2, 300, 8}, {10, 0, 4096, 0}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct stint_options options = shared_options(shapes[i].max_entries);
        options.shards = shapes[i].shards;
        options.max_policies = shapes[i].max_policies;
        options.labels = shapes[i].labels;
        struct stint_limiter *limiter = open_with(&options);
        const uint32_t minute = add_policy(limiter, "minute", 10, MINUTE, 0, 0);
        const stint_key key = stint_key_of(limiter, "client", 6);
        take_times(limiter, minute, key.hash, 4);
        for (uint32_t flags = 0; flags <= STINT_READ_ONLY; flags += STINT_READ_ONLY) {
            struct stint_limiter *other = attach(flags | STINT_PREFAULT);
            assert_int_equal(policy_found(other, "minute"), minute);
            assert_true(stint_key_equal(stint_key_of(other, "client", 6), key));
            assert_int_equal(used_of(other, minute, key), 4);
            assert_int_equal(get_stats(other).memory, stint_memory_size(&options));
            assert_int_equal(get_stats(other).slots, get_stats(limiter).slots);
            assert_int_equal(get_stats(other).shards, get_stats(limiter).shards);
            assert_int_equal(get_stats(other).labels, (shapes[i].labels + 3) / 4 * 4);
            stint_close(other);
        }
        stint_close(limiter);
        assert_int_equal(unlink(path), 0);
    }
}

TEST_IN_DIRECTORY(test_wrong_options) {
    struct stint_options options = attach_options(0), none = STINT_OPTIONS_INIT;
    assert_not_opened(&options, ENOENT, "there is no table");
    assert_not_opened(&none, EINVAL, "options.path is NULL");
    stint_close(make_table(100, 0, 0));
#define ROW(max_entries, field, value, error, reason)                                              \
    options = shared_options(max_entries);                                                         \
    options.field = value;                                                                         \
    assert_not_opened(&options, error, reason)
    ROW(0, size, offsetof(struct stint_options, mode) - 1, EINVAL, "options.size");
    ROW(0, flags, 1 << 4, EINVAL, "options.flags");
    ROW(0, on_full, 3, EINVAL, "options.on_full");
    ROW(0, path, "", EINVAL, "options.path is empty");
    ROW(0, shards, 1, EINVAL, "must be 0");
    ROW(0, max_policies, 64, EINVAL, "must be 0");
    ROW(0, labels, 4, EINVAL, "must be 0");
    ROW(0, secret, test_secret(), EPROTO, "secret");
    ROW(100, mode, 01000, EINVAL, "options.mode");
    ROW(100, labels, STINT_LABELS_MAX + 1, EINVAL, "options.labels");
#undef ROW
    options = attach_options(0);
    options.max_entries = 100;
    assert_int_equal(stint_attach(&options, &(struct stint_limiter *){NULL}), -EINVAL);
    assert_reason("must be 0");
    options.path = NULL;
    options.flags = STINT_READ_ONLY;
    assert_not_opened(&options, EINVAL, "for a table in a file");
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

/* Whether two entries say the same, but for whose they are. */
static bool alike(struct stint_entry one, struct stint_entry other) {
    one.key = other.key;
    one.label = other.label; /* is in memory of the call's own */
    one.flags |= other.flags & STINT_ENTRY_KEY_STRIPE;
    return memcmp(&one, &other, sizeof one) == 0;
}

/* Tells of all keys. Of each of them by itself the same is told. */
static void each(struct stint_limiter *limiter, struct told *told) {
    assert_int_equal(stint_each(limiter, tell, told), 0);
    for (size_t i = 0; i < told->count; i++) {
        const struct stint_entry *entry = &told->entries[i];
        struct told one = {0};
        size_t same = 0;
        if ((entry->flags & STINT_ENTRY_KEY_STRIPE) != 0)
            continue;
        assert_int_equal(stint_each_of(limiter, entry->key, tell, &one), 0);
        for (size_t j = 0, there = 0; j < one.count; j++, there = 0) {
            assert_int_equal(one.entries[j].key.hash, entry->key.hash);
            same += alike(one.entries[j], *entry);
            for (size_t k = 0; k < told->count; k++)
                there += alike(one.entries[j], told->entries[k]);
            assert_true(there > 0 || told->count == told->stop ||
                        (one.entries[j].flags & STINT_ENTRY_STRIKES) != 0);
        }
        assert_int_equal(same, 1);
    }
}

static bool tell_sum(void *context, const struct stint_entry *entry) {
    uint64_t *sum = context;
    *sum += entry->used;
    return true;
}

/* Parts of more keys than there is room for at first; and no more is told than is asked for. (What
 * is told of a key: features.c.) */
TEST(test_each_of_many_stripes) {
    struct stint_options options = fixture_options(20000, STINT_FULL_REFUSE);
    struct stint_limiter *limiter = open_with(&options);
    uint32_t striped = add_text(limiter, "8/minute stripes=2 name=striped");
    struct told told = {.stop = 3};
    uint64_t sum = 0;
    for (uint64_t i = 0; i < 4000; i++)
        take_times(limiter, striped, number_key(limiter, i).hash, 8);
    assert_int_equal(stint_each(limiter, tell_sum, &sum), 0);
    assert_int_equal(sum, 4000 * 8);
    uint32_t plain = add_text(limiter, "9/minute name=plain");
    for (uint64_t i = 0; i < 10; i++)
        take_times(limiter, plain, number_key(limiter, i).hash, 1);
    each(limiter, &told);
    assert_int_equal(told.count, 3);
    stint_close(limiter);
}

/* Puts tokens in some stripes of a key: of another policy, whose slots are turned over. */
static void take_stripes(struct stint_limiter *limiter, uint32_t striped, uint32_t plain,
                         stint_key key, uint64_t which) {
    const struct table *table = &limiter->table;
    for (uint32_t i = 0; i < 64; i++) {
        const uint64_t hash = stripe_key(key.hash, i);
        if ((which >> i & 1) == 0)
            continue;
        take_times(limiter, plain, hash, 1);
        slot_of(table, hash, table_tag(table, hash, plain))->tag = table_tag(table, hash, striped);
    }
}

TEST_IN_DIRECTORY(test_each_striped) {
    struct stint_limiter *limiter = make_table(20000, 0, 16);
    const uint32_t striped = add_text(limiter, "64/minute stripes=8 name=striped"),
                   other = add_text(limiter, "128/minute stripes=64 name=other"),
                   plain = add_text(limiter, "1/minute name=plain");
    static const struct {
        uint64_t which;
        bool known; /* the key can be told */
    } keys[] = {{0x03, true},  {0x01, false}, {0x81, true}, {0xff, true}, {0xfe, true},
                {0x7e, false}, {0x40, false}, {0x82, true}, {0x11, true}, {0x80, false}};
    enum { COUNT = sizeof keys / sizeof keys[0] };
    struct told told = {0};
    uint64_t seen = 0;
    for (size_t i = 0; i < COUNT; i++)
        take_stripes(limiter, striped, plain, number_key(limiter, i), keys[i].which);
    take_stripes(limiter, other, plain, number_key(limiter, 3), UINT64_MAX);
    each(limiter, &told);
    assert_int_equal(told.count, COUNT + 1);
    for (size_t i = 0; i < told.count; i++) {
        const struct stint_entry *entry = &told.entries[i];
        if (entry->policy == other) {
            assert_int_equal(entry->key.hash, number_key(limiter, 3).hash);
            assert_int_equal(entry->used, 64);
            continue;
        }
        for (size_t j = 0; j < COUNT; j++)
            for (uint32_t stripe = 0; stripe < 8; stripe++) {
                const stint_key key = number_key(limiter, j);
                if (entry->key.hash != stripe_key(key.hash, stripe))
                    continue;
                assert_int_equal(entry->flags, keys[j].known ? 0 : STINT_ENTRY_KEY_STRIPE);
                assert_true(!keys[j].known || stint_key_equal(entry->key, key));
                assert_int_equal(entry->used, __builtin_popcountll(keys[j].which));
                seen |= UINT64_C(1) << j;
            }
    }
    assert_int_equal(seen, (UINT64_C(1) << COUNT) - 1);
    /* Labels tell the others. */
    for (size_t i = 0; i < COUNT; i++)
        if (!keys[i].known)
            assert_int_equal(stint_label(limiter, number_key(limiter, i), "name", 4), 0);
    told = (struct told){0};
    each(limiter, &told);
    for (size_t i = 0; i < told.count; i++)
        assert_int_equal(told.entries[i].flags, 0);
    told = (struct told){.stop = 2};
    each(limiter, &told);
    assert_int_equal(told.count, 2);
    stint_close(limiter);
}

/* A label tells when its key was last named, and is left when all else of the key is over. In a
 * table of an earlier version that is a day. */
TEST_IN_DIRECTORY(test_each_named) {
    struct stint_limiter *limiter = make_table(1000, 0, 4);
    const uint32_t minute = add_policy(limiter, "minute", 1, MINUTE, 0, 0);
    const stint_key key = number_key(limiter, 1);
    test_time = T0 + 7 * SECOND + 600 * MS;
    take_times(limiter, minute, key.hash, 2);
    assert_int_equal(stint_label(limiter, key, "one", 3), 0);
    for (uint32_t step = 0; step < 3; step++) {
        struct told told = {0};
        assert_int_equal(stint_each_of(limiter, key, tell, &told), 0);
        assert_int_equal(told.count, 1);
        assert_int_equal(told.entries[0].key.hash, key.hash);
        assert_int_equal(told.entries[0].refused_windows, 1);
        assert_int_equal(told.entries[0].flags,
                         step == 0 ? STINT_ENTRY_REFUSED : STINT_ENTRY_LABEL);
        assert_int_equal(told.entries[0].policy, step == 0 ? minute : UINT32_MAX);
        assert_int_equal(told.entries[0].refused_last, T0 + (step == 2 ? 0 : 7 * SECOND));
        test_time += MINUTE;
        for (uint32_t i = 0; step == 1 && i < LABELS_IN_SET; i++)
            if (limiter->labels[i].refused != 0)
                limiter->labels[i].refused = UINT64_C(1) << 32 | T0 / DAY;
    }
    struct told none = {0};
    assert_int_equal(stint_each_of(limiter, key.hash + 1, tell, &none), 0);
    assert_int_equal(none.count, 0);
    stint_close(limiter);
}

/* ---- Read only ------------------------------------------------------------------------------- */

static void assert_bad(const struct stint_verdict *verdict) {
    const struct stint_verdict bad = {
        .flags = STINT_BAD_REQUEST, .retry_after = STINT_NEVER, .policy = UINT32_MAX};
    assert_verdict(verdict, &bad, __LINE__);
}

/* Decides by a reader in every way: looks are those of the writer, all else is refused. */
static void decide_all_ways(struct stint_limiter *reader, struct stint_limiter *writer,
                            const struct stint_request *request, uint64_t now) {
    const bool look = (request->flags & (STINT_PEEK | STINT_CHARGE)) == STINT_PEEK;
    const struct stint_request pair[2] = {*request, {.key = {7}, .cost = 1}};
    struct stint_verdict verdict, others[3], same;
    (void)stint_decide(reader, request, now, &verdict);
    assert_int_equal(stint_decide_batch(reader, request, 1, now, &others[0]), verdict.allowed);
    assert_int_equal(stint_decide_all(reader, request, 1, now, &others[1]), verdict.allowed);
    assert_verdict(&others[0], &verdict, __LINE__);
    assert_verdict(&others[1], &verdict, __LINE__);
    if (look && request->policy < get_stats(reader).policies) {
        (void)stint_decide(writer, request, now, &same);
        assert_verdict(&verdict, &same, __LINE__);
    } else if (!look) {
        assert_bad(&verdict);
    }
    assert_false(stint_decide_all(reader, pair, 2, now, others));
    assert_bad(&others[1]);
    assert_false(stint_take(reader, request->policy, request->key, request->cost, now, &verdict));
    assert_bad(&verdict);
    assert_int_equal(
        refund_by(reader, request->policy, request->key, 1, now / MINUTE * MINUTE + MINUTE), 0);
    stint_reset(reader, request->policy, request->key);
}

/* All else tells what the writer's calls do. (Those that change: restarts.c.) */
static void call_the_rest(struct stint_limiter *reader, struct stint_limiter *writer) {
    struct stint_stats stats = get_stats(reader), others = get_stats(writer);
    static char text[2][32768];
    struct told told = {0};
    assert_memory_equal(&stats, &others, sizeof stats);
    assert_int_equal(stint_label(reader, 1, "name", 4), -EROFS);
    for (uint32_t i = 0; i < KINDS; i++) {
        struct stint_policy_stats counts = get_policy_stats(reader, i),
                                  same = get_policy_stats(writer, i);
        assert_memory_equal(&counts, &same, sizeof counts);
    }
    assert_true(stint_metrics(reader, NULL, text[0], sizeof text[0]) > 1000);
    (void)stint_metrics(writer, NULL, text[1], sizeof text[1]);
    assert_string_equal(text[0], text[1]);
    each(reader, &told);
    assert_true(
        stint_key_equal(stint_key_join(reader, 7, "a", 1), stint_key_join(writer, 7, "a", 1)));
    assert_int_equal(stint_now(reader), test_time);
}

/* Whatever is asked, at whatever time, nothing is stored: the mapping could not be written to. */
TEST_IN_DIRECTORY(test_read_only) {
    static const uint64_t steps[] = {0,          SECOND,    MINUTE, 90 * SECOND, 0, DAY,
                                     3 * MINUTE, 100 * DAY, 0};
    struct stint_options options = shared_options(50);
    options.max_policies = KINDS + 3;
    test_step = 0; /* when a bucket is full is told to the ns, by each after readings of its own */
    options.labels = 4;
    options.on_full = STINT_FULL_REFUSE;
    options.secret = test_secret();
    struct stint_limiter *writer = open_with(&options);
    add_kinds(writer, KINDS);
    struct stint_options readers = attach_options(STINT_READ_ONLY | STINT_PREFAULT);
    readers.on_full = STINT_FULL_REFUSE;
    struct stint_limiter *reader;
    assert_int_equal(stint_attach(&readers, &reader), 0);
    const struct table *table = &writer->table;

    for (size_t step = 0; step < sizeof steps / sizeof steps[0]; step++) {
        test_time = step == 4 || step == 8 ? T0 : test_time + steps[step]; /* stepped back */
        for (uint32_t id = 0; id < KINDS && step % 3 != 2; id++) {
            (void)ask(writer, id, number_key(writer, 1), 1, 0);
            (void)ask(writer, id, number_key(writer, 2), 9, STINT_DRAIN);
            (void)ask(writer, id, number_key(writer, 3), 3, STINT_CHARGE);
        }
        if (step == 1)
            assert_int_equal(
                stint_override(writer, BANNING, number_key(writer, 3), 2, test_time + 2 * DAY), 0);
        for (uint64_t number = 100; step == 3 && number < 60000; number++) /* full lines */
            if (table_home(table, number_key(writer, number).hash) < 40)
                (void)ask(writer, BANNING, number_key(writer, number), 1, 0);
        (void)stint_label(writer, number_key(writer, 1), "one", 3);
        for (uint64_t number = 0; number < 8; number++) {
            static const uint32_t limits[] = {0, 3, STINT_LIMIT_MAX}, costs[] = {0, 1, 6};
            uint64_t key = number;
            while (number > 5 && table_home(table, number_key(writer, key).hash) >= 20)
                key++; /* a new one, where all is full */
            for (uint32_t n = 0; n < 64; n++) {
                const struct stint_request request = {
                    .key = number == 4 ? STINT_KEY_GLOBAL : number_key(writer, key),
                    .policy = (uint32_t)(number + n / 2 + step) % (KINDS + 3),
                    .cost = costs[(n + number) % 3],
                    .limit = limits[(n + number + step) / 3 % 3],
                    .flags = n * STINT_PEEK};
                decide_all_ways(reader, writer, &request, STINT_NOW);
                decide_all_ways(reader, writer, &request, test_time - 400 * DAY);
                decide_all_ways(reader, writer, &request, test_time + 30 * SECOND);
            }
        }
        struct told told = {.stop = 60}, same = {.stop = 60};
        each(reader, &told);
        assert_int_equal(stint_each(writer, tell, &same), 0);
        assert_int_equal(told.count, same.count);
        for (size_t i = 0; i < told.count; i++)
            told.entries[i].label = same.entries[i].label = NULL;
        assert_memory_equal(&told, &same, sizeof told);
    }
    stint_close(attach(STINT_READ_ONLY));
    test_time += DAY;
    call_the_rest(reader, writer);
    test_step = 3;
    stint_close(reader);
    stint_close(writer);
}

/* By stint_open: whether a server would find its table. None is made. */
TEST_IN_DIRECTORY(test_read_only_open) {
    struct stint_options options = shared_options(1000), other;
    options.flags = STINT_READ_ONLY;
    assert_not_opened(&options, ENOENT, "");
    assert_int_equal(access(path, F_OK), -1);
    struct stint_limiter *writer = make_table(1000, 64, 0), *limiter;
    uint32_t minute = add_policy(writer, "minute", 5, MINUTE, 0, 0);
    take_times(writer, minute, number_key(writer, 1).hash, 3);
    int file = open(path, O_RDWR);
    for (int open = 1; open >= 0; open--) { /* while the server runs, and without it */
        if (!open)                          /* which a reader does not wait for */
            assert_int_equal(flock(file, LOCK_EX | LOCK_NB), 0);
        limiter = open_with(&options);
        assert_int_equal(used_of(limiter, minute, number_key(limiter, 1)), 3);
        assert_int_equal(stint_policy_remove(limiter, minute), -EROFS);
        stint_close(limiter);
        other = options;
        other.labels = 8; /* more such: shared.c, test_other_options */
        assert_not_opened(&other, EPROTO, "labels");
        if (open)
            stint_close(writer);
    }
    close(file);
    assert_int_equal(truncate(path, 100000), 0);
    assert_not_opened(&options, EPROTO, "cut off");
}

/* A reader decides by all policies that are there, and mends none: so it looks at those, too, that
 * the count of policies does not tell of. */
TEST_IN_DIRECTORY(test_read_only_beyond_count) {
    struct stint_options options = attach_options(STINT_READ_ONLY);
    struct stint_limiter *limiter = make_table(100, 0, 0);
    const uint32_t id = add_policy(limiter, "minute", 10, MINUTE, 0, 0);
    const struct stint_request reserve = {
        .key = {1}, .policy = id, .cost = 1, .flags = STINT_PEEK | STINT_RESERVE};
    struct policy *policy = &limiter->policies[id];
    limiter->header->policy_count = 0;
    /* As who adds a policy leaves it for an instant, or for long if he dies there. */
    struct stint_limiter *reader = attach(STINT_READ_ONLY);
    alarm(60); /* or fail here */
    assert_true(stint_decide(reader, &reserve, STINT_NOW, NULL));
    stint_close(reader);
    policy->rules[policy->version % 2][RULE_TRAITS] ^= STINT_SHADOW;
    if (stint_attach(&options, &reader) == 0)
        (void)stint_decide(reader, &reserve, STINT_NOW, NULL);
    alarm(0);
    assert_not_opened(&options, EPROTO, "policy 0");
    policy->rules[policy->version % 2][RULE_TRAITS] ^= STINT_SHADOW;
    policy->length = 0;
    assert_not_opened(&options, EPROTO, "policy 0");
    stint_close(limiter);
}

/* ---- The file's mode, and its name ----------------------------------------------------------- */

TEST_IN_DIRECTORY(test_mode) {
    static const uint32_t modes[] = {0, 0600, 0640, 0664, 0666, 0777, 0400};
    struct stint_options options = shared_options(100);
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        for (mode_t mask = 0; mask <= 0777; mask += 0777) {
            const mode_t old = umask(mask);
            struct stat about;
            options.mode = modes[i];
            stint_close(open_with(&options));
            (void)umask(old);
            assert_int_equal(stat(path, &about), 0);
            assert_int_equal(about.st_mode & 07777, modes[i] == 0 ? 0600 : modes[i]);
            assert_int_equal(unlink(path), 0);
        }
    }
}

/* Who waits for the lock of a file that is renamed over meanwhile has the new one. */
TEST_IN_DIRECTORY(test_renamed_while_waited_for) {
    const char *const another = file_beside("another");
    struct stint_limiter *new = make_table(2000, 0, 0);
    (void)add_policy(new, "new", 10, MINUTE, 0, 0);
    stint_close(new);
    assert_int_equal(rename(path, another), 0);
    stint_close(make_table(1000, 0, 0));
    int file = open(path, O_RDWR);
    assert_true(file >= 0);
    assert_int_equal(flock(file, LOCK_EX | LOCK_NB), 0);
    int tell_parent[2];
    assert_int_equal(pipe(tell_parent), 0);
    pid_t child = forked();
    if (child == 0) {
        struct stint_options options = attach_options(0);
        close(file);
        if (write(tell_parent[1], "", 1) != 1 || stint_attach(&options, &new) != 0)
            _exit(2);
        _exit(policy_found(new, "new") == 0 ? 0 : 3);
    }
    char byte;
    assert_int_equal(read(tell_parent[0], &byte, 1), 1);
    usleep(20000); /* it most likely waits by now; if not, there is nothing to see */
    assert_int_equal(rename(another, path), 0);
    close(file);
    assert_good(child);
    close(tell_parent[0]);
    close(tell_parent[1]);
}

/* The path leads to another file, or to none: that takes nothing from who has it open. */
TEST_IN_DIRECTORY(test_removed) {
    const char *const other = file_beside("other");
    char here[PATH_MAX];
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(directory), 0);
    stint_close(make_table(1000, 0, 0));
    struct stint_options options = shared_options(1000);
    options.path = "table"; /* of this directory, wherever the process is later */
    struct stint_limiter *one = open_with(&options), *reader = attach(STINT_READ_ONLY), *new;
    const uint32_t minute = add_policy(one, "minute", 10, MINUTE, 0, 0);
    take_times(one, minute, 1, 3);
    assert_int_equal(chdir(here), 0);
    for (unsigned row = 0; row < 4; row++) { /* renamed; replaced; another link stays; removed */
        assert_int_equal(get_stats(one).removed | get_stats(reader).removed, 0);
        if (row == 2)
            assert_int_equal(link(path, other), 0);
        assert_int_equal(get_stats(one).removed, 0);
        assert_int_equal(row < 2 ? rename(path, other) : unlink(path), 0);
        if (row == 1) {
            new = make_table(1000, 0, 0);
            assert_int_equal(policy_found(new, "minute"), -ENOENT);
            stint_close(new);
        }
        assert_int_equal(used_of(one, minute, 1), 3);
        assert_int_equal(get_stats(one).removed & get_stats(reader).removed, 1);
        if (row < 3)
            assert_int_equal(rename(other, path), 0);
    }
    stint_close(reader);
    stint_close(one);
}
