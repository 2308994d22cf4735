/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * Those who look at a table while others use it: read-only handles beside threads that decide, and
 * names of keys, which are whole or not shown, whoever is stopped or killed while he writes one. */
#include "table/labels.h" /* before cmocka, which defines fail() as well */

#include "team.h"

#include "directory.h"
#include "dying.h"

/* ---- Names ----------------------------------------------------------------------------------- */

enum { ONE_SET = LABELS_IN_SET, TEXTS = 3 };

static struct stint_limiter *open_labels(uint32_t labels) {
    static void *memory;
    static size_t size;
    struct stint_options options = fixture_options(40, STINT_FULL_REFUSE);
    struct stint_limiter *limiter;

    if (memory != NULL)
        munmap(memory, size);
    options.labels = labels;
    size = stint_memory_size(&options);
    memory = shared_memory(size);
    if (stint_open_in(&options, memory, size, &limiter) != 0)
        fail_msg("%s", stint_reason());
    return limiter;
}

/* The texts that a key is ever given: no two have a word in common, not even the empty ones. */
static size_t text_of(stint_key key, unsigned text, char *bytes) {
    static const size_t lengths[TEXTS] = {STINT_LABEL_SIZE, 33, 17};
    for (size_t i = 0; i < lengths[text]; i++)
        bytes[i] = (char)(1 + mix(key, text * 64 + i) % 255);
    return lengths[text];
}

static void name_key(struct stint_limiter *limiter, stint_key key, unsigned text) {
    char bytes[STINT_LABEL_SIZE];
    assert_int_equal(stint_label(limiter, key, bytes, text_of(key, text, bytes)), 0);
}

/* Which of its texts a key has; -1: none. Anything else fails. */
static int named(const struct stint_limiter *limiter, stint_key key, uint32_t *refused) {
    struct label_read read;
    char bytes[STINT_LABEL_SIZE];

    stint_label_read(limiter, key, &read);
    if (refused != NULL)
        *refused = read.refused;
    if (read.length == 0)
        return -1;
    for (unsigned text = 0; text < TEXTS; text++)
        if (text_of(key, text, bytes) == read.length && memcmp(bytes, read.bytes, read.length) == 0)
            return (int)text;
    fail_msg("key %" PRIu64 " has a name that it was never given", key);
    return -1;
}

/* Of two texts of one length the last one counts. */
TEST(test_named_anew) {
    struct stint_limiter *limiter = open_labels(ONE_SET);
    static const char *const texts[] = {"first", "other", "other", "first"};
    struct label_read read;

    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(stint_label(limiter, 7, texts[i], 5), 0);
        stint_label_read(limiter, 7, &read);
        assert_int_equal(read.length, 5);
        assert_memory_equal(read.bytes, texts[i], 5);
        assert_int_equal(read.refused, i + 1);
    }
    stint_close(limiter);
}

/* A key has its name in a place of its own set: not in one of the next, where nobody looks for it,
 * nor behind the last set. */
TEST(test_named_in_its_set) {
    enum { SETS = 4, NAMED = LABELS_IN_SET + 3 };

    for (uint64_t set = 0; set < SETS; set++) {
        struct stint_limiter *limiter = open_labels(SETS * LABELS_IN_SET);
        unsigned count = 0;
        for (stint_key key = 1; count < NAMED; key++) {
            if (part_of(mix(key, 2), limiter->label_sets) != set)
                continue;
            uint32_t refused;
            name_key(limiter, key, count % TEXTS);
            assert_int_equal(named(limiter, key, &refused), count % TEXTS);
            assert_int_equal(refused, 1);
            count++;
        }
        for (uint64_t i = 0; i < SETS * LABELS_IN_SET; i++)
            assert_int_equal(limiter->labels[i].refused != 0, i / LABELS_IN_SET == set);
        stint_close(limiter);
    }
}

/* What stands in the set before a name is written. */
static const struct {
    const char *name;
    unsigned others; /* keys from 11 on */
    unsigned own;    /* times that the key was named before, with text 1 */
} before[] = {{"an empty set", 0, 0},
              {"a name that stays", 2, 1},
              {"a full set", 4, 0},
              {"its own name", 3, 2}};

static struct stint_limiter *names_begin(size_t which) {
    struct stint_limiter *limiter = open_labels(ONE_SET);
    for (unsigned i = 0; i < before[which].others; i++)
        for (unsigned times = 0; times <= i; times++)
            name_key(limiter, 11 + i, 0);
    for (unsigned i = 0; i < before[which].own; i++)
        name_key(limiter, 7, 1);
    return limiter;
}

/* Who names a key dies before each of its atomic operations and stores. */
TEST(test_death_in_label) {
    for (size_t which = 0; which < sizeof before / sizeof before[0]; which++) {
        bool dies = true;
        unsigned hidden = 0;
        for (uint64_t step = 0; dies; step++) {
            struct stint_limiter *limiter = names_begin(which);
            pid_t child = forked_to_die(step, false);
            if (child == 0) {
                name_key(limiter, 7, 2);
                _exit(0);
            }
            dies = has_died(child);
            uint32_t refused;
            int text = named(limiter, 7, &refused);
            assert_true(dies || text == 2);
            assert_true(text == -1 || text == 2 || (text == 1 && before[which].own != 0));
            assert_in_range(refused, before[which].own, before[which].own + 1);
            hidden += text == -1;
            for (unsigned i = 0; i < before[which].others; i++) {
                uint32_t others;
                text = named(limiter, 11 + i, &others);
                if (before[which].others == ONE_SET && i == 0) /* the fewest: it makes room */
                    assert_true(text == -1 || (text == 0 && refused == 0));
                else
                    assert_true(text == 0 && others == i + 1);
            }
            name_key(limiter, 7, 2); /* whoever names it next heals it */
            assert_int_equal(named(limiter, 7, NULL), 2);
            stint_close(limiter);
        }
        assert_true(hidden > 3);
    }
}

/* While one names a key, another does, at each step of the first; and somebody looks at each step
 * of both. */
static struct meeting {
    struct stint_limiter *limiter;
    uint64_t at;       /* the step of the first at which the second comes */
    stint_key keys[2]; /* whom they name */
    unsigned texts[2];
    bool come, look;
} meeting;

static void look_at_all(void) {
    for (stint_key key = 7; key < 16; key++)
        (void)named(meeting.limiter, key, NULL);
}

static void meet_at_step(const void *word) {
    (void)word;
    stint_test_step = NULL;
    look_at_all();
    if (!meeting.come && meeting.at-- == 0) {
        meeting.come = true;
        stint_test_step = meet_at_step;
        name_key(meeting.limiter, meeting.keys[1], meeting.texts[1]);
        stint_test_step = NULL;
        look_at_all();
    }
    stint_test_step = meet_at_step;
}

TEST(test_two_name) {
    static const struct {
        stint_key keys[2];
        unsigned texts[2];
    } pairs[] = {{{7, 7}, {0, 0}}, {{7, 7}, {0, 2}}, {{7, 8}, {0, 1}}, {{7, 11}, {0, 2}}};
    for (size_t which = 0; which < sizeof before / sizeof before[0]; which++) {
        for (size_t pair = 0; pair < sizeof pairs / sizeof pairs[0]; pair++) {
            bool come = true;
            for (uint64_t at = 0; come; at++) {
                meeting = (struct meeting){.limiter = names_begin(which), .at = at};
                memcpy(meeting.keys, pairs[pair].keys, sizeof meeting.keys);
                memcpy(meeting.texts, pairs[pair].texts, sizeof meeting.texts);
                uint32_t had[2], has[2];
                for (unsigned i = 0; i < 2; i++)
                    (void)named(meeting.limiter, meeting.keys[i], &had[i]);
                stint_test_step = meet_at_step;
                name_key(meeting.limiter, meeting.keys[0], meeting.texts[0]);
                stint_test_step = NULL;
                come = meeting.come;
                for (unsigned i = 0; i < 2; i++)
                    (void)named(meeting.limiter, meeting.keys[i], &has[i]);
                /* Of one key no window is lost, though it may have got two places. */
                if (meeting.keys[0] == meeting.keys[1])
                    assert_int_equal(has[0], had[0] + 1 + come);
                for (unsigned i = 0; i < 2; i++) { /* and then all is well again */
                    name_key(meeting.limiter, meeting.keys[i], meeting.texts[i]);
                    assert_int_equal(named(meeting.limiter, meeting.keys[i], NULL),
                                     meeting.texts[i]);
                }
                stint_close(meeting.limiter);
            }
        }
    }
}

static void name_body(unsigned member, void *shared) {
    struct stint_limiter *limiter = shared;
    struct random random = {.state = test_seed() + member};
    for (uint32_t i = 0; i < 20000; i++) {
        stint_key key = 100 + random_below(&random, 24);
        if (random_below(&random, 3) == 0)
            (void)named(limiter, key, NULL);
        else
            name_key(limiter, key, (unsigned)random_below(&random, TEXTS));
    }
}

TEST(test_many_name) {
    struct stint_limiter *limiter = open_labels(2 * LABELS_IN_SET);
    lose_cores(true);
    run_team(name_body, limiter);
    lose_cores(false);
    uint64_t shown = 0;
    for (stint_key key = 100; key < 124; key++) {
        shown += named(limiter, key, NULL) >= 0;
        name_key(limiter, key, 1);
        assert_int_equal(named(limiter, key, NULL), 1);
    }
    assert_in_range(shown, 1, 2 * LABELS_IN_SET);
    stint_close(limiter);
}

/* ---- Read-only handles ----------------------------------------------------------------------- */

struct crowd {
    struct stint_limiter *writer, *reader;
    uint64_t told, reads, stop;
};

static bool count_entry(void *context, const struct stint_entry *entry) {
    struct crowd *crowd = context;
    uint32_t refused;
    assert_true(entry->policy < 4 && entry->end > EPOCH);
    assert_true(entry->policy == 3 || entry->used <= 5 + 2 * THREADS);
    if (entry->label != NULL)
        assert_true(entry->label_length <= STINT_LABEL_SIZE && entry->refused_windows != 0);
    if ((entry->flags & STINT_ENTRY_KEY_STRIPE) == 0)
        (void)named(crowd->reader, entry->key, &refused);
    __atomic_fetch_add(&crowd->told, 1, __ATOMIC_RELAXED);
    return true;
}

static void read_all(struct crowd *crowd, struct random *random) {
    static const uint32_t id = 0;
    struct stint_policy policy = STINT_POLICY_INIT;
    struct stint_stats stats = STINT_STATS_INIT;
    struct stint_policy_stats counts = STINT_POLICY_STATS_INIT;
    struct stint_verdict verdict;
    char text[8192];

    assert_int_equal(stint_each(crowd->reader, count_entry, crowd), 0);
    for (unsigned i = 0; i < 200; i++) {
        const struct stint_request look = {.key =
                                               number_key(crowd->reader, random_below(random, 40)),
                                           .policy = (uint32_t)random_below(random, 5),
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
    assert_true(stint_headers(crowd->reader, STINT_HEADERS_DRAFT, &id, &verdict, 1, text,
                              sizeof text) >= 0);
    assert_int_equal(stint_policy_add(crowd->reader, &policy, NULL), -EROFS);
}

static void crowd_body(unsigned member, void *shared) {
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
        if ((verdict.flags & STINT_FIRST_REFUSAL) != 0)
            name_key(crowd->writer, request.key, (unsigned)random_below(&random, TEXTS));
        if (i % 300 == 0) {
            struct stint_policy policy =
                make_policy("plain", i % 600 == 0 ? 4 : 5, 60 * TICK, 0, 0);
            assert_int_equal(stint_policy_change(crowd->writer, 0, &policy), 0);
        }
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
        options.labels = 16;
        options.max_policies = 4;
        crowd.writer = open_with(&options);
        (void)add_policy(crowd.writer, "plain", 5, 60 * TICK, 0, 0);
        (void)add_policy(crowd.writer, "smooth", 5, 60 * TICK, 0, STINT_SMOOTH);
        (void)add_policy(crowd.writer, "own", 5, 60 * TICK, 0, STINT_START_PER_KEY);
        struct stint_policy policy = make_policy("striped", 8, 60 * TICK, 0, 0);
        policy.stripes = 4;
        (void)add_made(crowd.writer, &policy);
        options = shared_options(0);
        options.flags = STINT_READ_ONLY;
        assert_int_equal(stint_attach(&options, &crowd.reader), 0);
        read_the_same(crowd.reader, crowd.writer);
        read_the_same(crowd.reader->looking, crowd.writer);
        run_team(crowd_body, &crowd);
        assert_true(crowd.told > 5);
        stint_close(crowd.reader);
        stint_close(crowd.writer);
        assert_int_equal(unlink(path), 0);
    }
}

/* While somebody looks who takes no lock, at each of his steps in turn, the policy is removed, a
 * server opens the table alone, which makes the id free, and another policy may be given it. */
static struct {
    struct stint_options options;
    uint64_t left; /* steps */
    bool removed;
    bool refill; /* another policy is given the id */
} removing;

static void remove_at_step(const void *word) {
    struct stint_policy policy = STINT_POLICY_INIT;
    (void)word;
    if (removing.left-- != 0)
        return;
    stint_test_step = NULL;
    removing.removed = true;
    struct stint_limiter *limiter = open_with(&removing.options);
    assert_int_equal(stint_policy_remove(limiter, 0), 0);
    stint_close(limiter);
    limiter = open_with(&removing.options);
    assert_null(limiter_policy(limiter, 0));
    if (removing.refill) {
        assert_int_equal(stint_policy_parse("7/20ms", &policy, NULL), 0);
        assert_int_equal(add_made(limiter, &policy), 0);
    }
    stint_close(limiter);
}

static bool ignore_entry(void *context, const struct stint_entry *entry) {
    (void)context;
    return entry->end != 0;
}

TEST_IN_DIRECTORY(test_removed_while_looked_at) {
    static const char *const kinds[] = {"3/s",     "3/s smooth",      "3/s start=per-key",
                                        "3/month", "3/s start=first", "3/s capacity=20 reserve=9"};
    enum { LOOK, EACH, HEADERS, CALLS };
    char text[1000];
    uint64_t plays = 0;

    for (unsigned i = 0; i < CALLS * 2 * (sizeof kinds / sizeof kinds[0]); i++) {
        removing.removed = true;
        const unsigned call = i / 2 % CALLS; /* stint_each looks at all slots */
        for (uint64_t step = 0; removing.removed; step += call == EACH ? 9 : 1, plays++) {
            static const uint32_t id = 0;
            struct stint_policy policy = STINT_POLICY_INIT;
            struct stint_limiter *limiter, *reader;
            struct stint_verdict verdict = {0};
            removing.options = shared_options(30);
            removing.options.max_policies = 4;
            removing.refill = i % 2 != 0;
            set_time(EPOCH);
            limiter = open_with(&removing.options);
            assert_int_equal(stint_policy_parse(kinds[i / 2 / CALLS], &policy, NULL), 0);
            assert_int_equal(add_made(limiter, &policy), id);
            const stint_key key = number_key(limiter, 1);
            const struct stint_request look = {.key = key, .cost = 9, .flags = STINT_PEEK};
            assert_int_equal(ask(limiter, id, key, 3, 0).granted, 3);
            stint_close(limiter);
            struct stint_options options = shared_options(0);
            options.flags = STINT_READ_ONLY;
            assert_int_equal(stint_attach(&options, &reader), 0);
            if (step % 2 == 0)
                set_time(EPOCH + SECOND); /* the next window, into which tokens carry over */
            removing.left = step / 2;
            removing.removed = false;
            stint_test_step = remove_at_step;
            if (call == LOOK)
                (void)stint_decide(reader, &look, STINT_NOW, &verdict);
            else if (call == EACH)
                assert_int_equal(stint_each(reader, ignore_entry, NULL), 0);
            else
                assert_true(stint_headers(reader, STINT_HEADERS_DRAFT, &id, &verdict, 1, text,
                                          sizeof text) < (int)sizeof text);
            stint_test_step = NULL;
            stint_close(reader);
            assert_int_equal(unlink(path), 0);
            if (step > 400)
                break;
        }
    }
    print_message("%" PRIu64 " plays\n", plays);
}
