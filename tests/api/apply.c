/* SPDX-License-Identifier: MIT
 * All policies from one text: what is changed, replaced and removed. (Who holds the id of a policy
 * that was: features.c. Ids that are free again: restarts.c.) */
#include "directory.h"
#include "limiter/limiter.h"
#include "policy/occupant.h"

/* ---- What is told ---------------------------------------------------------------------------- */

static char told_text[4096];

static void tell(void *context, const struct stint_change *change) {
    static const char *const kinds[] = {"=", "+", "~", "!", "-"};
    const char *format = context == NULL ? "%s %s %" PRIu32 " [%s] [%s] %" PRIu64 "\n" : context;
    size_t length = strlen(told_text);
    assert_int_equal(change->size, sizeof *change);
    snprintf(told_text + length, sizeof told_text - length, format, kinds[change->kind],
             change->name, change->id, change->text == NULL ? "" : change->text,
             change->was == NULL ? "" : change->was, change->decided);
}

static void apply(struct stint_limiter *limiter, const char *text, uint32_t flags,
                  const char *expected) {
    const char *wrong = text;
    told_text[0] = '\0';
    if (stint_policies_apply(limiter, text, flags, &wrong, tell, NULL) != 0)
        fail_msg("%s", stint_reason());
    assert_ptr_equal(wrong, text); /* only written where something is */
    if (expected != NULL)
        assert_string_equal(told_text, expected);
}

static bool take(struct stint_limiter *limiter, uint32_t id, uint64_t key) {
    return stint_take(limiter, id, key, 1, STINT_NOW, NULL);
}

/* Slots that have a tag of this policy. */
static unsigned slots_of(const struct stint_limiter *limiter, uint32_t id) {
    const struct table *table = &limiter->table;
    unsigned count = 0;
    for (uint64_t line = 0; line < table->line_count; line++)
        for (unsigned i = 0; i < LINE_SLOTS; i++) {
            uint64_t tag = table->lines[line].slots[i].tag;
            count += tag != 0 && tag != table_tombstone(table) && tag_policy(table, tag) == id;
        }
    return count;
}

TEST(test_kinds) {
    struct stint_limiter *limiter = open_limiter(100, STINT_FULL_REFUSE);
    apply(limiter, "# the limits of the API\n\n10/minute name=api\n5/s # bursts\n", 0,
          "+ api 0 [10/minute name=\"api\"] [] 0\n"
          "+ 5/second 1 [5/second] [] 0\n");
    assert_true(take(limiter, 0, 1) && take(limiter, 0, 1));
    /* Nothing is different. A limit may change. A window may not. */
    apply(limiter, "5/s\n10/minute name=api", 0,
          "= 5/second 1 [5/second] [5/second] 0\n"
          "= api 0 [10/minute name=\"api\"] [10/minute name=\"api\"] 2\n");
    apply(limiter, "3/minute name=api", STINT_DRY_RUN,
          "~ api 0 [3/minute name=\"api\"] [10/minute name=\"api\"] 2\n");
    assert_int_equal(used_of(limiter, 0, 1), 2);
    assert_int_equal(ask(limiter, 0, 1, 0, STINT_PEEK).capacity, 10);
    apply(limiter, "3/minute name=api", 0,
          "~ api 0 [3/minute name=\"api\"] [10/minute name=\"api\"] 2\n");
    assert_int_equal(used_of(limiter, 0, 1), 2);
    assert_int_equal(ask(limiter, 0, 1, 0, STINT_PEEK).capacity, 3);
    apply(limiter, "3/h name=api", STINT_DRY_RUN,
          "! api 4294967295 [3/hour name=\"api\"] [3/minute name=\"api\"] 2\n");
    apply(limiter, "7/day name=new\n3/h name=api\n", 0,
          "+ new 2 [7/day name=\"new\"] [] 0\n"
          "! api 3 [3/hour name=\"api\"] [3/minute name=\"api\"] 2\n");
    assert_int_equal(policy_found(limiter, "api"), 3);
    /* A policy that no line names stays, unless it is pruned. */
    apply(limiter, "3/h name=api", STINT_DRY_RUN | STINT_PRUNE,
          "= api 3 [3/hour name=\"api\"] [3/hour name=\"api\"] 0\n"
          "- 5/second 1 [] [5/second] 0\n"
          "- new 2 [] [7/day name=\"new\"] 0\n");
    assert_int_equal(policy_found(limiter, "new"), 2);
    apply(limiter, "\t3/h name=api\r\n", STINT_PRUNE, NULL);
    assert_int_equal(policy_found(limiter, "new"), -ENOENT);
    assert_int_equal(policy_found(limiter, "5/second"), -ENOENT);
    assert_int_equal(get_stats(limiter).policies, 1);
    /* A file that was cut to nothing takes no policy away, and is no success. */
    static const char *const empty[] = {"", "\n", " # nothing", "\t\r\n\n# 1/s"};
    for (uint32_t i = 0; i < 4 * sizeof empty / sizeof *empty; i++) {
        const char *wrong = "";
        told_text[0] = '\0';
        assert_int_equal(stint_policies_apply(limiter, empty[i / 4], STINT_DRY_RUN * (i % 4),
                                              &wrong, tell, NULL),
                         -EINVAL);
        assert_string_equal(told_text, "");
        assert_reason("the text has no policy");
        assert_null(wrong);
        assert_int_equal(policy_found(limiter, "api"), 3);
    }
    apply(limiter, "1/s", STINT_PRUNE, NULL);
    assert_int_equal(get_stats(limiter).policies, 1);
    stint_close(limiter);
}

/* What a change must leave as it is, and that all else may change. A text that asks for what may
 * not makes another policy. */
TEST(test_changed_or_replaced) {
    static const struct {
        const char *from, *to;
        const char *word; /* of the reason why it may not change; NULL: it may */
    } rows[] = {
        {"9/minute", "9/h", "window"},
        {"9/minute", "9/minute start=2024-01-01T00:00:30Z", "start"},
        {"9/minute", "9/minute start=per-key", "START_PER_KEY"},
        {"9/minute start=per-key", "9/minute start=per-key smooth", "SMOOTH"},
        {"9/minute", "9/minute smooth", "SMOOTH"},
        {"9/minute smooth", "9/minute stripes=2", ""},
        {"9/minute", "9/minute stripes=2", "stripes"},
        {"9/minute stripes=4", "9/minute stripes=8", "stripes"},
        {"9/minute in-flight", "9/minute", "STINT_IN_FLIGHT"},
        {"9/minute in-flight", "9/minute in-flight shadow", NULL},
        {"9/minute count-refused", "9/minute capacity=20", "cannot come to"},
        {"9/minute", "9/minute capacity=20", "cannot come to"},
        {"9/minute capacity=20", "9/minute", ""},
        {"9/minute", "9/minute reserve=1", ""},
        {"10/s capacity=10", "5/s capacity=10", ""},
        {"10/s capacity=10", "9/s capacity=8", NULL},
        {"9/minute reserve=1", "20/minute capacity=30 reserve=40 near=50% jitter=60% shadow", NULL},
        {"9/s burst=9", "9/s burst=9 reserve=1", NULL},
        {"9/minute", "9/minute count-refused", NULL},
        {"9/month", "9/year", "calendar"},
        {"9/month", "9/31d", ""},
        {"9/31d", "9/month", ""},
        {"9/month", "9/month start=2024-01-02", "start"},
        {"9/month", "9/month start=2024-01-01T00:00:00+01:00", "offset"},
        {"9/month", "7/month shadow jitter=5% capacity=6", NULL},
        {"9/31d", "9/31d start=first", "FIRST"},
        {"9/h start=first", "9/h", "FIRST"},
        {"9/h start=per-key", "9/h start=first", ""},
        {"9/h start=first", "20/h start=first", NULL},
        {"10/s burst=20", "600/m burst=20", NULL},
        {"600/m burst=20", "9/s burst=30 reserve=5 near=50% jitter=60%", NULL},
        {"9/minute", "9/s burst=9", "window"},
        {"9/minute", "9/minute burst=9", "token bucket"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct stint_limiter *limiter = open_limiter(100, STINT_FULL_REFUSE);
        struct stint_policy from = parsed(rows[i].from), to = parsed(rows[i].to), got = from;
        const bool replaced = rows[i].word != NULL;
        char text[100];
        strcpy(from.name, "changed");
        strcpy(to.name, "changed");
        const uint32_t id = add_made(limiter, &from);
        const int error = stint_policy_change(limiter, id, &to);
        if (error != (replaced ? -EINVAL : 0) ||
            (replaced && strstr(stint_reason(), rows[i].word) == NULL))
            fail_msg("%s to %s: %d, \"%s\"", rows[i].from, rows[i].to, error, stint_reason());
        assert_int_equal(stint_policy_get(limiter, id, &got), 0);
        assert_memory_equal(&got, replaced ? &from : &to, sizeof got);
        assert_int_equal(policy_added(limiter, &to), replaced ? -EEXIST : (int)id);

        snprintf(text, sizeof text, "%s name=x", rows[i].from);
        apply(limiter, text, 0, NULL);
        assert_true(take(limiter, 1, 7));
        snprintf(text, sizeof text, "%s name=x", rows[i].to);
        apply(limiter, text, 0, NULL);
        assert_int_equal(told_text[0], replaced ? '!' : '~');
        assert_int_equal(policy_found(limiter, "x"), replaced ? 2 : 1);
        assert_int_equal(used_of(limiter, 1, 7), !replaced);
        apply(limiter, text, 0, NULL);
        assert_int_equal(told_text[0], '=');
        stint_close(limiter);
    }
}

/* ---- Errors ---------------------------------------------------------------------------------- */

TEST(test_wrong_text) {
    static const struct {
        const char *text, *at, *reason;
    } rows[] = {
        {"5/s name=a\n10/fortnight name=b\n", "fortnight", "line 2: "},
        {"5/s name=a\n\n#\n10/s stripes=3", "stripes=3", "line 4: stripes="},
        {"0/s", "0/s", "line 1: "},
        {"5/s name=a\n6/s name=b\n7/s name=a\n", "7/s", "line 3: line 1 has"},
        {"7/s name=\"5/second\"\n5/s #", "5/s #", "line 2: line 1 has"},
        {"5/s name=\"a # b\" x", "x", "line 1: "},
        {"5/s name=\"a \\\" # b\" x", "x", "line 1: "},
        {"5/s name=a#b x", "x", "line 1: "},
    };
    struct stint_limiter *limiter = open_limiter(100, STINT_FULL_REFUSE);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *wrong = NULL;
        told_text[0] = '\0';
        assert_int_equal(
            stint_policies_apply(limiter, rows[i].text, STINT_PRUNE, &wrong, tell, NULL), -EINVAL);
        assert_ptr_equal(wrong, strstr(rows[i].text, rows[i].at));
        assert_reason(rows[i].reason);
        assert_string_equal(told_text, "");
        assert_int_equal(stint_policies_apply(limiter, rows[i].text, 0, NULL, NULL, NULL), -EINVAL);
        assert_int_equal(get_stats(limiter).policies, 0);
    }
    static const uint32_t unknown[] = {0, 63, 64, UINT32_MAX};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        assert_int_equal(stint_policy_remove(limiter, unknown[i]), -ENOENT);
    stint_close(limiter);
}

static struct stint_limiter *open_few(uint32_t max_policies, const char *name) {
    struct stint_options options = fixture_options(100, STINT_FULL_REFUSE);
    options.max_policies = max_policies;
    options.path = name;
    return open_with(&options);
}

/* ---- A policy that was removed --------------------------------------------------------------- */

static void assert_unknown(struct stint_limiter *limiter, uint32_t id, uint64_t key) {
    struct stint_policy policy = STINT_POLICY_INIT;
    assert_int_equal(ask(limiter, id, key, 1, 0).flags, STINT_UNKNOWN_POLICY);
    assert_int_equal(stint_policy_get(limiter, id, &policy), -ENOENT);
}

/* What is left of a policy that is gone, if somebody died before he swept: the first to be
 * replaced, and free when its window is over. */
TEST(test_slots_that_stayed) {
    struct stint_limiter *limiter = open_limiter(4, STINT_FULL_REPLACE);
    apply(limiter, "9/minute name=x smooth\n9/minute name=y", 0, NULL);
    const uint64_t key = number_key(limiter, 1).hash;
    assert_true(take(limiter, 0, key));
    struct slot *slot = slot_of(&limiter->table, key, table_tag(&limiter->table, key, 0));
    const struct slot kept = *slot;
    assert_int_equal(stint_policy_remove(limiter, 0), 0);
    *slot = kept;
    uint64_t slots = get_stats(limiter).slots, replaced = get_stats(limiter).replaced;
    for (uint64_t i = 0; i < slots; i++)
        assert_int_equal(stint_take(limiter, 1, number_key(limiter, 100 + i), 5, STINT_NOW, NULL),
                         true);
    assert_int_equal(get_stats(limiter).replaced, replaced + 1);
    assert_int_equal(slots_of(limiter, 0), 0);
    /* The next removal finds what the last has left. */
    *slot = kept;
    assert_int_equal(stint_policy_remove(limiter, 1), 0);
    assert_int_equal(slots_of(limiter, 0) + slots_of(limiter, 1), 0);
    stint_close(limiter);
}

/* ---- Who only reads -------------------------------------------------------------------------- */

static bool count_entries(void *context, const struct stint_entry *entry) {
    unsigned *counts = context;
    counts[entry->policy]++;
    return true;
}

/* Ids that became free while a handle only read are room for it, too. */
TEST_IN_DIRECTORY(test_reader_sees_free_ids) {
    struct stint_limiter *writer = open_few(2, path), *reader = NULL;
    struct stint_options options = fixture_options(0, STINT_FULL_REFUSE);
    options.path = path;
    options.flags = STINT_READ_ONLY;
    apply(writer, "1/m name=a\n2/m name=b", 0, NULL);
    assert_int_equal(stint_attach(&options, &reader), 0);
    assert_int_equal(stint_policies_apply(reader, "3/m name=c", STINT_DRY_RUN, NULL, NULL, NULL),
                     -ENOSPC);
    assert_int_equal(stint_policy_remove(writer, 0), 0);
    stint_close(writer);
    stint_close(open_few(2, path));
    apply(reader, "3/m name=c", STINT_DRY_RUN, "+ c 4294967295 [3/minute name=\"c\"] [] 0\n");
    stint_close(reader);
}

/* A slot that its sweeper has left, or that was claimed behind him, is nobody's. */
TEST(test_each) {
    static const char *const texts[] = {"9/minute name=x", "9/minute name=x stripes=4",
                                        "9/month name=x", "9/minute name=x start=first"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct stint_limiter *limiter = open_limiter(4, STINT_FULL_REPLACE);
        apply(limiter, texts[i], 0, NULL);
        const size_t size = limiter->table.line_count * sizeof(struct line);
        struct line *kept = aligned_alloc(CACHE_LINE, size);
        assert_non_null(kept);
        assert_true(take(limiter, 0, 7));
        memcpy(kept, limiter->table.lines, size);
        apply(limiter, "9/h name=x", 0, NULL);
        assert_int_equal(slots_of(limiter, 0), 0);
        memcpy(limiter->table.lines, kept, size);
        assert_int_equal(slots_of(limiter, 0), 1);
        unsigned counts[STINT_POLICIES_MAX] = {0};
        assert_int_equal(stint_each(limiter, count_entries, counts), 0);
        assert_int_equal(counts[0] + counts[1], 0);
        assert_true(take(limiter, 0, 7));
        assert_int_equal(stint_each(limiter, count_entries, counts), 0);
        assert_int_equal(counts[0], 0);
        assert_int_equal(counts[1], 1);
        free(kept);
        stint_close(limiter);
    }
}

/* ---- Slots that are free at once ------------------------------------------------------------- */

static uint64_t ahead_by;

static uint64_t clock_ahead(void) {
    return test_time + ahead_by;
}

/* A table is filled by turns by two processes, and its policy is replaced again and again: new keys
 * find its slots free, whosever clock is ahead. */
TEST(test_slots_are_free_at_once) {
    static const uint64_t aheads[] = {0, STINT_TICK_NS, 3 * STINT_TICK_NS, 58 * SECOND};
    static const char *const texts[] = {"9/day name=p", "9/h name=p", "9/h burst=9 name=p"};
    struct stint_options options = fixture_options(40, STINT_FULL_REFUSE);
    const size_t size = stint_memory_size(&options);
    for (unsigned n = 0; n < 2 * sizeof aheads / sizeof *aheads; n++) {
        struct stint_limiter *limiters[2];
        void *memory = shared_memory(size);
        ahead_by = aheads[n / 2];
        for (unsigned i = 0; i < 2; i++) {
            options.clock = i == 0 ? test_clock : clock_ahead;
            assert_int_equal(stint_open_in(&options, memory, size, &limiters[i]), 0);
        }
        for (unsigned round = 0; round < 9; round++) {
            apply(limiters[n % 2], texts[round % 3], 0, NULL);
            const uint32_t id = (uint32_t)policy_found(limiters[0], "p");
            const uint64_t slots = get_stats(limiters[0]).slots;
            for (uint64_t k = 0; k < slots; k++) {
                const struct stint_verdict v =
                    ask(limiters[k % 2], id, number_key(limiters[0], round * slots + k), 9, 0);
                if (!v.allowed || v.flags != 0)
                    fail_msg("ahead by %" PRIu64 ", round %u, key %" PRIu64 ": flags %#" PRIx32,
                             ahead_by, round, k, v.flags);
            }
        }
        for (unsigned i = 0; i < 2; i++)
            stint_close(limiters[i]);
        assert_int_equal(munmap(memory, size), 0);
    }
}

/* ---- To and fro ------------------------------------------------------------------------------ */

/* A name that is several policies by turns, in a table of a few ids: in private memory, and in a
 * file that two have open, of whom one never closes it. No count, override or ban comes back. */
TEST_IN_DIRECTORY(test_to_and_fro) {
    static const struct {
        const char *texts[4]; /* by turns */
        uint32_t ids;         /* that all of them take */
    } rows[] = {
        {{"4/30s name=x", "4/60s name=x"}, 2},
        {{"4/30s name=x in-flight", "4/60s name=x in-flight", "4/15s name=x in-flight",
          "8/2m name=x in-flight"},
         4},
        {{"4/30s name=x", "4/60s name=x", "5/60s name=x"}, 2}, /* the last is changed, no more */
        {{"4/30s name=x ban=1h", "4/m name=x", "4/m name=x overrides"}, 3},
        {{"4/30s name=x ban=1h", "4/30s name=x stripes=4"}, 3},
        {{"4/30s name=x overrides", "9/month name=x overrides", "4/30s burst=9 name=x"}, 4},
        {{"4/30s name=x ban=1h", "7/30s name=other"}, 3}, /* each is removed */
    };
    for (size_t i = 0; i < 3 * sizeof rows / sizeof *rows; i++) {
        const char *const *texts = rows[i / 3].texts;
        struct stint_limiter *stays = i % 3 == 0 ? NULL : open_few(rows[i / 3].ids, path);
        struct stint_limiter *limiter = open_few(rows[i / 3].ids, i % 3 == 0 ? NULL : path);
        const uint64_t key = number_key(limiter, 1).hash;
        uint32_t held[4] = {0}, limit;
        for (unsigned round = 0; round < 1000; round++) {
            const unsigned turn = round % (texts[2] == NULL ? 2 : texts[3] == NULL ? 3 : 4);
            struct stint_limiter *by = i % 3 == 2 && round % 2 == 0 ? stays : limiter;
            apply(by, texts[turn], STINT_PRUNE, NULL);
            const bool changed = told_text[0] == '~';
            test_time += 20 * MS; /* slots that were swept are free */
            const char *name = strstr(texts[turn], "other") != NULL ? "other" : "x";
            const uint32_t id = (uint32_t)policy_found(limiter, name);
            for (uint32_t had = 0; had < limiter_policy_count(limiter); had++) /* by the name */
                if (strcmp(limiter->records[had].name, name) == 0)
                    assert_int_equal(limiter->records[had].alias, had == id ? 0 : id + 1);
            if (round >= 4)
                assert_int_equal(id, held[turn]);
            held[turn] = id;
            if (!changed)
                assert_int_equal(used_of(limiter, id, key), 0);
            assert_int_not_equal(stint_override_get(limiter, id, (stint_key){key}, &limit, NULL),
                                 0);
            if (!take(stays != NULL ? stays : limiter, id, key))
                fail_msg("row %zu, round %u: nothing is left", i, round);
            if (name[0] == 'x' && rows[i / 3].texts[1][0] != '7') /* whatever id they have */
                assert_int_equal(used_of(limiter, held[0], key), used_of(limiter, id, key));
            /* What is set for the key is gone when it is back. */
            if (strstr(texts[turn], "ban") != NULL)
                assert_int_equal(stint_override(limiter, id, (stint_key){key}, 9, test_time + DAY),
                                 0);
        }
        assert_true(get_stats(limiter).policy_ids <= rows[i / 3].ids);
        stint_close(limiter);
        stint_close(stays);
        (void)unlink(path);
        test_time = T0;
    }
}

/* Ids that lead round, in a table that somebody has written over. */
TEST(test_round_trip) {
    struct stint_limiter *limiter = open_limiter(100, STINT_FULL_REFUSE);
    apply(limiter, "3/m name=a\n3/m name=b", 0, NULL);
    assert_int_equal(stint_policy_remove(limiter, 0), 0);
    assert_int_equal(stint_policy_remove(limiter, 1), 0);
    limiter->records[0].alias = 2;
    limiter->records[1].alias = 1;
    assert_unknown(limiter, 0, 7);
    limiter->records[1].alias = UINT32_MAX;
    assert_unknown(limiter, 0, 7);
    assert_int_equal(policy_found(limiter, "a"), -ENOENT);
    stint_close(limiter);
}
