/* SPDX-License-Identifier: MIT
 * A reader beside threads that decide, name keys, and change and replace policies: threads of the
 * system, all of which ThreadSanitizer sees. (At each step: set_up.c.) */
#include "limiter/limiter.h" /* before cmocka, which defines fail() as well */

#include "team.h"

#include "directory.h"
#include "named.h"

/* The number of the name that a key is seen to have. */
static int seen(const struct stint_limiter *limiter, uint64_t key) {
    uint32_t refused;
    const int name = name_seen(limiter, key, &refused);
    if (name < 0)
        fail_msg("key %" PRIu64 " has a name that it was never given", key);
    return name;
}

/* A key has its name in a place of its own set: not in one of the next, where nobody looks for it,
 * nor behind the last set. */
TEST(test_named_in_its_set) {
    enum { SETS = 4, NAMED = LABELS_IN_SET + 3 };
    for (uint64_t set = 0; set < SETS; set++) {
        struct stint_options options = fixture_options(40, STINT_FULL_REFUSE);
        options.labels = SETS * LABELS_IN_SET;
        struct stint_limiter *limiter = open_with(&options);
        unsigned count = 0;
        for (uint64_t key = 1; count < NAMED; key++) {
            if (hash_pick(mix(key, 2), limiter->label_sets) != set)
                continue;
            const unsigned name = 1 + count++ % NAMES;
            assert_int_equal(name_key(limiter, key, name), 0);
            assert_int_equal(seen(limiter, key), name);
        }
        for (uint64_t i = 0; i < SETS * LABELS_IN_SET; i++)
            assert_int_equal(limiter->labels[i].refused != 0, i / LABELS_IN_SET == set);
        stint_close(limiter);
    }
}

/* ---- Rates ----------------------------------------------------------------------------------- */

static bool entry_keep(void *context, const struct stint_entry *entry) {
    *(struct stint_entry *)context = *entry;
    return true;
}

/* Whoever changes a bucket's rate, and dies before all slots are counted anew, leaves slots of two
 * rates. They tell what is used to readers, and to the next table; and none of them is over before
 * it is so by the rate that stands. */
TEST_IN_DIRECTORY(test_two_rates) {
    struct stint_options options = shared_options(8);
    options.shards = 1;
    options.secret = test_secret();
    test_time = T0;
    test_step = 0;
    struct stint_limiter *limiter = open_with(&options);
    struct stint_policy policy = parsed("60/m burst=20 name=b");
    const uint32_t id = add_made(limiter, &policy);
    assert_true(ask(limiter, id, 1, 10, 0).allowed); /* ten seconds */
    stint_test_removed |= GUARD_BIT(GUARD_RATE_SWEEP);
    policy.limit = 6;
    change_made(limiter, id, &policy);
    stint_test_removed &= ~GUARD_BIT(GUARD_RATE_SWEEP);

    struct stint_options reads = shared_options(8);
    reads.flags = STINT_READ_ONLY;
    reads.secret = test_secret();
    struct stint_limiter *reader = open_with(&reads);
    const struct stint_verdict look = ask(reader, id, 1, 0, STINT_PEEK);
    assert_true(look.used == 10 && look.remaining == 10 && look.window == T0 + 100 * SECOND);
    struct stint_entry entry = {0};
    assert_int_equal(stint_each(reader, entry_keep, &entry), 0);
    assert_int_equal(entry.used, 10);
    stint_close(reader);

    test_time = T0 + 50 * SECOND; /* by the rate before it was full 40 seconds ago */
    for (uint64_t key = 2; key < 100; key++)
        (void)ask(limiter, id, key, 1, 0);
    stint_close(limiter);
    struct stint_options larger = STINT_OPTIONS_INIT;
    larger.clock = test_clock;
    larger.max_entries = 100;
    assert_int_equal(stint_resize(path, &larger), 0);
    options.max_entries = 100;
    limiter = open_with(&options);
    struct stint_verdict v = ask(limiter, id, 1, 15, 0);
    assert_true(v.allowed && v.used == 20);
    v = ask(limiter, id, 1, 1, 0);
    assert_true(!v.allowed && v.retry_after == 10 * SECOND);
    stint_close(limiter);
}

/* ---- Read-only handles ----------------------------------------------------------------------- */

enum { POLICIES = 60 };

struct crowd {
    struct stint_limiter *writer, *reader;
    uint64_t told, ruled, reads, stop;
};

static bool count_entry(void *context, const struct stint_entry *entry) {
    struct crowd *crowd = context;
    assert_true(entry->end > EPOCH);
    assert_true(entry->policy == 3 || entry->used <= 5 + 2 * THREADS);
    if (entry->label != NULL)
        assert_true(entry->label_length <= STINT_LABEL_SIZE && entry->refused_windows != 0);
    if ((entry->flags & STINT_ENTRY_OVERRIDE) != 0) {
        assert_true(entry->end == EPOCH + HOUR);
        __atomic_fetch_add(&crowd->ruled, 1, __ATOMIC_RELAXED);
    }
    if ((entry->flags & STINT_ENTRY_KEY_STRIPE) == 0)
        (void)seen(crowd->reader, entry->key.hash);
    __atomic_fetch_add(&crowd->told, 1, __ATOMIC_RELAXED);
    return true;
}

static void read_all(struct crowd *crowd, struct random *random) {
    static const uint32_t ids[] = {0, 1, 2, 3, POLICIES - 1}; /* the last is never given */
    struct stint_policy policy = STINT_POLICY_INIT;
    struct stint_stats stats = STINT_STATS_INIT;
    struct stint_policy_stats counts = STINT_POLICY_STATS_INIT;
    struct stint_verdict verdict;
    char text[8192];
    assert_int_equal(stint_each(crowd->reader, count_entry, crowd), 0);
    for (unsigned i = 0; i < 200; i++) {
        const struct stint_request look = {.key =
                                               number_key(crowd->reader, random_below(random, 40)),
                                           .policy = ids[random_below(random, 5)],
                                           .cost = 1,
                                           .flags = STINT_PEEK};
        (void)stint_decide(crowd->reader, &look, STINT_NOW, &verdict);
        assert_true(verdict.granted == 0 && (verdict.flags & STINT_BAD_REQUEST) == 0);
        assert_false(stint_take(crowd->reader, look.policy, look.key, 1, STINT_NOW, NULL));
    }
    assert_int_equal(stint_stats_get(crowd->reader, &stats), 0);
    assert_int_equal(stint_policy_stats_get(crowd->reader, 0, &counts), 0);
    assert_int_equal(stint_policy_get(crowd->reader, 0, &policy), 0);
    assert_true(policy.limit == 5 || policy.limit == 4);
    assert_true(stint_metrics(crowd->reader, NULL, text, sizeof text) > 0);
    assert_true(stint_headers(crowd->reader, STINT_HEADERS_DRAFT, &verdict, 1, text, sizeof text) >=
                0);
    assert_int_equal(stint_policy_add(crowd->reader, &policy, NULL), -EROFS);
}

static void crowd_body(unsigned member, void *shared) {
    static const char *const texts[] = {"5/600ms name=plain", "4/600ms name=plain",
                                        "5/200ms name=plain", "4/200ms name=plain"};
    struct crowd *crowd = shared;
    struct random random = {.state = test_seed() + member};
    if (member == 0) {
        while (__atomic_load_n(&crowd->stop, __ATOMIC_ACQUIRE) < THREADS - 1) {
            read_all(crowd, &random);
            __atomic_fetch_add(&crowd->reads, 1, __ATOMIC_RELAXED);
        }
        return;
    }
    for (uint32_t i = 0; i < 6000 || __atomic_load_n(&crowd->reads, __ATOMIC_RELAXED) < 5 ||
                         __atomic_load_n(&crowd->told, __ATOMIC_RELAXED) <= 5;
         i++) {
        const struct stint_request request = {
            .key = number_key(crowd->writer, random_below(&random, 40)),
            .policy = (uint32_t)random_below(&random, 4),
            .cost = 1 + (uint32_t)random_below(&random, 2)};
        struct stint_verdict verdict;
        (void)stint_decide(crowd->writer, &request, STINT_NOW, &verdict);
        if ((verdict.flags & STINT_FIRST_REFUSAL) != 0 || i % 8 == 0)
            (void)name_key(crowd->writer, request.key.hash, 1 + i % NAMES);
        if (i % 8 == 0) { /* at once, and until one instant */
            const int error = stint_override(crowd->writer, 4, number_key(crowd->writer, i / 8 % 4),
                                             i, EPOCH + HOUR);
            assert_true(error == 0 || error == -ENOSPC);
        }
        if (i % 150 == 0 && i < 6000 && member == 1)
            assert_int_equal(
                stint_policies_apply(crowd->writer, texts[i / 150 % 4], 0, NULL, NULL, NULL), 0);
        if (i % 100 == 0 && member == 1)
            __atomic_fetch_add(&test_time, 20 * TICK, __ATOMIC_SEQ_CST);
    }
    __atomic_fetch_add(&crowd->stop, 1, __ATOMIC_RELEASE);
}

/* The reader's handle is of the writers' own mapping, so that ThreadSanitizer sees both at the same
 * addresses. That it never stores, attach.c holds, where the mapping cannot be written to. */
static void read_the_same(struct stint_limiter *reader, const struct stint_limiter *writer) {
    reader->table = writer->table;
    reader->policies = writer->policies;
    reader->records = writer->records;
    reader->counters = writer->counters;
    reader->header = writer->header;
    reader->labels = writer->labels;
}

TEST_IN_DIRECTORY(test_readers_beside_writers) {
    for (uint64_t round = 0; round < test_rounds(3); round++) {
        struct stint_options options = shared_options(30);
        struct crowd crowd = {0};
        set_time(EPOCH);
        options.labels = 2 * LABELS_IN_SET;
        options.max_policies = POLICIES; /* of which 20 come in the place of one */
        crowd.writer = open_with(&options);
        (void)add_text(crowd.writer, "5/600ms name=plain");
        (void)add_text(crowd.writer, "5/600ms name=smooth smooth");
        (void)add_text(crowd.writer, "5/600ms name=own start=per-key");
        (void)add_text(crowd.writer, "8/600ms name=striped stripes=4");
        (void)add_text(crowd.writer, "5/h name=ruled overrides");
        options = shared_options(0);
        options.flags = STINT_READ_ONLY;
        assert_int_equal(stint_attach(&options, &crowd.reader), 0);
        read_the_same(crowd.reader, crowd.writer);
        read_the_same(crowd.reader->reader, crowd.writer);
        lose_cores(round % 2 == 0);
        run_team(crowd_body, &crowd);
        lose_cores(false);
        assert_true(crowd.told > 5 && crowd.ruled != 0);
        for (uint64_t i = 0; i < 40; i++) {
            const stint_key key = number_key(crowd.writer, i);
            assert_int_equal(name_key(crowd.writer, key.hash, 1), 0);
            assert_int_equal(seen(crowd.reader, key.hash), 1);
        }
        stint_close(crowd.reader);
        stint_close(crowd.writer);
        assert_int_equal(unlink(path), 0);
    }
}
