/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * Keys with limits of their own for a while, and keys that are banned: across restarts, and while
 * others write. (What they mean, case by case: features.c.) */
#include "directory.h"
#include "limiter/limiter.h"
#include "sys/testing.h"
#include "told.h"

static struct stint_policy overridable(const char *name, uint32_t limit) {
    return make_policy(name, limit, MINUTE, 0, STINT_OVERRIDES);
}

static void assert_override(struct stint_limiter *limiter, uint32_t id, uint64_t key,
                            uint32_t limit, uint64_t until) {
    uint32_t limit_told;
    uint64_t until_told;
    assert_int_equal(stint_override_get(limiter, id, key, &limit_told, &until_told), 0);
    assert_int_equal(limit_told, limit);
    assert_int_equal(until_told, until);
}

static void assert_error(int error, int expected, const char *reason) {
    assert_int_equal(error, -expected);
    assert_reason(reason);
}

/* Nobody meets the hidden policy, whose slots are those of overrides. */
TEST_OF(test_hidden_policy, 100, STINT_FULL_ADMIT, "5/minute overrides name=p") {
    const struct stint_policy made = parsed("5/minute overrides name=p");
    const uint32_t hidden = id + 1;
    struct stint_policy got = STINT_POLICY_INIT;
    struct stint_policy_stats stats = STINT_POLICY_STATS_INIT;
    const struct stint_verdict verdict = ask(limiter, hidden, 1, 1, 0);

    assert_int_equal(verdict.flags, STINT_UNKNOWN_POLICY);
    assert_error(stint_override(NULL, id, 1, 1, T0 + 1), EINVAL, "limiter");
    assert_int_equal(stint_policy_get(limiter, hidden, &got), -ENOENT);
    assert_int_equal(stint_policy_change(limiter, hidden, &made), -ENOENT);
    assert_int_equal(stint_policy_stats_get(limiter, hidden, &stats), -ENOENT);
    assert_int_equal(stint_policy_find(limiter, "", NULL), -ENOENT);
    assert_int_equal(stint_headers(limiter, 0, &verdict, 1, NULL, 0), 0);
    assert_int_equal(get_stats(limiter).policies, 1);
}

/* Whether a key is banned that strikes as late as it can in a window, and as early as it can in
 * those that follow. */
static bool soonest_ban(const struct stint_policy *policy, uint64_t begin) {
    struct stint_limiter *limiter = open_limiter(100, STINT_FULL_ADMIT);
    uint32_t id = add_made(limiter, policy);
    struct stint_verdict verdict;

    test_time = begin;
    verdict = ask(limiter, id, 1, 1, 0); /* it begins a window that begins with it */
    test_time = verdict.window - 1;
    verdict = ask(limiter, id, 1, 2, 0);
    for (uint32_t i = 1; i < policy->ban_after; i++) {
        assert_int_equal(verdict.flags, FIRST);
        test_time = verdict.window;
        verdict = ask(limiter, id, 1, 2, 0);
    }
    stint_close(limiter);
    return (verdict.flags & BANNED) != 0;
}

/* The shortest ban that a policy may have can come, and the next shorter one cannot. */
TEST(test_bans_that_can_come) {
    static const struct {
        uint32_t flags, calendar;
        int64_t start;
        uint32_t after;
        uint64_t longer_than;
    } cases[] = {
        {0, 0, 0, 2, 0},
        {0, 0, 0, 3, MINUTE},
        {0, 0, 0, 12, 10 * MINUTE},
        {0, 0, 7 * SECOND, 4, 2 * MINUTE},
        {STINT_SMOOTH, 0, 0, 3, MINUTE},
        {STINT_COUNT_REFUSED, 0, 0, 3, MINUTE},
        {STINT_START_PER_KEY, 0, 0, 3, MINUTE},
        {STINT_START_FIRST, 0, 0, 3, MINUTE},
        {0, STINT_CALENDAR_MONTH, 0, 2, 0},
        {0, STINT_CALENDAR_MONTH, 0, 3, 28 * DAY},
        {0, STINT_CALENDAR_MONTH, 0, 4, 59 * DAY},
        {0, STINT_CALENDAR_MONTH, 14 * DAY, 5, 89 * DAY},
        {0, STINT_CALENDAR_MONTH, 0, 6, 120 * DAY},
        {0, STINT_CALENDAR_MONTH, 0, 7, 150 * DAY},
        {0, STINT_CALENDAR_MONTH, 0, 8, 181 * DAY},
        {0, STINT_CALENDAR_MONTH, 0, 9, 212 * DAY},
        {0, STINT_CALENDAR_MONTH, 0, 10, 242 * DAY},
        {0, STINT_CALENDAR_MONTH, 27 * DAY, 11, 273 * DAY},
        {0, STINT_CALENDAR_MONTH, 0, 12, 303 * DAY},
        {0, STINT_CALENDAR_MONTH, 0, 13, 334 * DAY},
        {0, STINT_CALENDAR_MONTH, 0, 14, 365 * DAY},
        {0, STINT_CALENDAR_YEAR, 0, 3, 365 * DAY},
        {0, STINT_CALENDAR_YEAR, 40 * DAY, 3, 365 * DAY},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stint_policy made = overridable("p", 1);
        made.flags |= cases[i].flags;
        made.calendar = cases[i].calendar;
        made.window = made.calendar != 0 ? 0 : MINUTE;
        made.start = cases[i].start;
        made.ban_after = cases[i].after;
        made.ban = cases[i].longer_than + 10 * MS;
        bool banned = false; /* by windows of some year, from some month on */
        for (uint64_t month = 0; month < (made.calendar != 0 ? 48 : 1) && !banned; month++)
            banned = soonest_ban(&made, T0 + month * 30 * DAY);
        assert_true(banned);
        made.ban -= 10 * MS;
        if (made.ban != 0) {
            struct stint_limiter *limiter = open_limiter(100, STINT_FULL_ADMIT);
            assert_error(policy_added(limiter, &made), EINVAL, "policy.ban must be longer");
            stint_close(limiter);
        }
    }
    /* None can come that would take longer than the longest. */
    struct stint_limiter *limiter = open_limiter(100, STINT_FULL_ADMIT);
    for (uint32_t calendar = 0; calendar <= STINT_CALENDAR_YEAR; calendar++) {
        struct stint_policy made = overridable("p", 1);
        made.calendar = calendar;
        made.window = calendar != 0 ? 0 : 366 * DAY;
        made.ban = 366 * DAY;
        made.ban_after = STINT_BAN_AFTER_MAX;
        assert_error(policy_added(limiter, &made), EINVAL, "policy.ban must be longer");
    }
    stint_close(limiter);
}

/* ---- Other tables ---------------------------------------------------------------------------- */

/* They survive in a file; the filter forgets who has no slot for one any more. */
TEST_IN_DIRECTORY(test_file) {
    struct stint_options options = fixture_options(1000, STINT_FULL_ADMIT);
    options.path = path;
    struct stint_limiter *limiter = open_with(&options);
    const char *const text = "1/minute ban=1h name=p";
    uint32_t id = add_text(limiter, text),
             gone = add_text(limiter, "1/minute overrides name=going");

    test_time = T0;
    for (uint64_t i = 0; i < 100; i++)
        assert_int_equal(stint_override(limiter, i < 20 ? id : gone, number_key(limiter, i), 5,
                                        i < 10 ? T0 + HOUR : T0 + MINUTE),
                         0);
    assert_int_equal(ask(limiter, id, number_key(limiter, 200), 2, 0).flags, FIRST | BANNED);
    assert_false(stint_take(limiter, id, number_key(limiter, 201), 2, STINT_NOW, NULL));
    for (size_t i = 0; i < 4; i++) /* a filter with all keys in one word says so of too many */
        assert_int_not_equal(limiter->table.shards->filter[i], 0);
    assert_int_equal(stint_policy_remove(limiter, gone), 0);
    stint_close(limiter);

    uint64_t bits = 0;
    test_time += 2 * MINUTE;
    limiter = open_with(&options);
    for (size_t i = 0; i < 4; i++)
        bits += (uint64_t)__builtin_popcountll(limiter->table.shards->filter[i]);
    assert_in_range(bits, 1, 22);
    assert_int_equal(add_text(limiter, text), id);
    for (uint64_t i = 0; i < 100; i++)
        assert_int_equal(ask(limiter, id, number_key(limiter, i), 1, 0).capacity, i < 10 ? 5 : 1);
    test_time -= 90 * SECOND; /* before the end of those that were over */
    for (uint64_t i = 0; i < 100; i++)
        assert_int_equal(ask(limiter, id, number_key(limiter, i), 1, PEEK).capacity,
                         i < 20 ? 5 : 1);
    test_time += 90 * SECOND;
    assert_int_equal(ask(limiter, id, number_key(limiter, 200), 1, 0).flags, OVER | BANNED);
    assert_int_equal(get_stats(limiter).overrides, 10);
    assert_int_equal(get_stats(limiter).banned, 2);

    /* Of a companion nothing may be other than it was made, from no rule. */
    stint_close(limiter);
    limiter = open_with(&options);
    const struct rule rule = policy_rule(&limiter->policies[1]), none = {.stripes = 1};
    uint64_t words[2][RULE_WORDS] = {{0}};
    rule_pack(&rule, words[0]);
    rule_pack(&none, words[1]);
    assert_memory_equal(words[0], words[1], sizeof(words[0]));
    limiter->records[1].companion = 0;
    stint_close(limiter);
    assert_int_equal(stint_open(&options, &limiter), -EPROTO);
    assert_reason("none that stint makes");
}

/* A server that starts with a clock far ahead, before NTP has set it, opens the table alone. When
 * the clock is right, all is in force as it was. And a key whose override, ban or strikes were over
 * is found by its next one, which is written where they were. */
TEST_IN_DIRECTORY(test_opened_ahead) {
    static const uint64_t ahead[] = {HOUR + 10 * MS, 2 * HOUR, 3 * DAY, 400 * DAY};
    struct stint_options options = fixture_options(1000, STINT_FULL_ADMIT);
    options.path = path;
    for (unsigned i = 0; i < sizeof ahead / sizeof ahead[0]; i++) {
        test_time = T0;
        struct stint_limiter *limiter = open_with(&options);
        const uint32_t id = add_text(limiter, "3/minute ban=1h after=2 overrides name=p");
        const stint_key set = number_key(limiter, 1), barred = number_key(limiter, 2),
                        banned = number_key(limiter, 3), struck = number_key(limiter, 4);
        assert_int_equal(stint_override(limiter, id, set, 5, T0 + HOUR), 0);
        assert_int_equal(stint_override(limiter, id, barred, 0, T0 + HOUR), 0);
        assert_int_equal(ask(limiter, id, banned, 4, 0).flags, FIRST);
        assert_int_equal(ask(limiter, id, struck, 4, 0).flags, FIRST);
        test_time += MINUTE;
        assert_int_equal(ask(limiter, id, banned, 4, 0).flags, FIRST | BANNED);
        stint_close(limiter);

        test_time += ahead[i];
        limiter = open_with(&options);
        assert_int_equal(ask(limiter, id, set, 1, PEEK).capacity, 3);
        assert_int_equal(get_stats(limiter).overrides, 0);
        stint_close(limiter);

        test_time -= ahead[i];
        limiter = open_with(&options);
        assert_override(limiter, id, set.hash, 5, T0 + HOUR);
        assert_int_equal(ask(limiter, id, set, 5, 0).granted, 5);
        assert_int_equal(ask(limiter, id, barred, 1, 0).flags, FIRST | OVER);
        assert_int_equal(ask(limiter, id, banned, 1, 0).flags, OVER | BANNED);
        assert_int_equal(get_stats(limiter).overrides, 2);
        assert_int_equal(get_stats(limiter).barred, 1);
        assert_int_equal(get_stats(limiter).banned, 1);
        stint_close(limiter);

        test_time += ahead[i] + HOUR;
        limiter = open_with(&options);
        assert_int_equal(stint_override(limiter, id, set, 7, test_time + HOUR), 0);
        assert_override(limiter, id, set.hash, 7, test_time + HOUR);
        assert_int_equal(ask(limiter, id, set, 7, 0).granted, 7);
        assert_int_equal(ask(limiter, id, struck, 4, 0).flags, FIRST);
        test_time += MINUTE;
        assert_int_equal(ask(limiter, id, struck, 4, 0).flags, FIRST | BANNED);
        assert_int_equal(ask(limiter, id, struck, 1, 0).flags, OVER | BANNED);
        stint_close(limiter);
        (void)remove(path);
    }
}

/* ---- Policies that come and go --------------------------------------------------------------- */

struct told_entries {
    struct stint_entry entries[8];
    size_t count;
};

static bool entry_keep(void *context, const struct stint_entry *entry) {
    struct told_entries *told = context;
    if ((entry->flags & STINT_ENTRY_OVERRIDE) != 0 && told->count < 8)
        told->entries[told->count++] = *entry;
    return true;
}

static void apply(struct stint_limiter *limiter, const char *text) {
    if (stint_policies_apply(limiter, text, STINT_PRUNE, NULL, NULL, NULL) != 0)
        fail_msg("%s", stint_reason());
}

/* What happens while somebody asks, at each of his steps in turn. */
static struct {
    struct stint_limiter *limiter;
    void (*what)(void);
    uint64_t left; /* steps */
    bool happened;
} meanwhile;

static void meanwhile_at_step(const void *word) {
    (void)word;
    if (meanwhile.left-- != 0)
        return;
    stint_test_step = NULL;
    meanwhile.happened = true;
    meanwhile.what();
}

/* In a for: until there is no such step. */
#define EACH_STEP(step)                                                                            \
    uint64_t step = (meanwhile.happened = true, 0);                                                \
    meanwhile.happened;                                                                            \
    step++

/* From now on `what` happens at this step. */
static void meanwhile_begin(struct stint_limiter *limiter, void (*what)(void), uint64_t step) {
    meanwhile.limiter = limiter;
    meanwhile.what = what;
    meanwhile.left = step;
    meanwhile.happened = false;
    stint_test_step = meanwhile_at_step;
}

/* The policy is replaced by another that has overrides, too. */
static void replace_it(void) {
    apply(meanwhile.limiter, "1/hour overrides name=p");
}

TEST(test_replaced_meanwhile) {
    enum { SET, GET, CLEAR_IT, EACH, EACH_OF, CALLS };

    for (unsigned call = 0; call < CALLS; call++) {
        for (EACH_STEP(step)) {
            struct stint_limiter *limiter = open_limiter(100, STINT_FULL_ADMIT);
            struct told_entries told = {0};
            uint32_t id, limit;
            int error = 0;
            test_time = T0;
            apply(limiter, "1/minute overrides name=p");
            assert_int_equal(stint_policy_find(limiter, "p", &id), 0);
            assert_int_equal(stint_override(limiter, id, 1, 5, T0 + HOUR), 0);
            meanwhile_begin(limiter, replace_it, step);
            if (call == SET)
                error = stint_override(limiter, id, 1, 6, T0 + HOUR);
            else if (call == GET)
                error = stint_override_get(limiter, id, 1, &limit, NULL);
            else if (call == CLEAR_IT)
                error = stint_override_clear(limiter, id, 1);
            else if (call == EACH)
                error = stint_each(limiter, entry_keep, &told);
            else
                error = stint_each_of(limiter, 1, entry_keep, &told);
            stint_test_step = NULL;
            if (error != 0)
                fail_msg("call %u, step %" PRIu64 ": %s", call, step, stint_reason());
            assert_true(call != GET || limit == 5);
            assert_true(call < EACH || told.count == 1);
            if (call == CLEAR_IT)
                assert_int_equal(stint_override_get(limiter, id, 1, NULL, NULL), -ENOENT);
            else
                assert_override(limiter, id, 1, call == SET ? 6 : 5, T0 + HOUR);
            stint_close(limiter);
        }
    }
}

/* The last token of the policy 1 is taken; then the policy 0, a bucket, is changed to this, or the
 * key has an override of that. NULL: neither. */
static const char *rate_then;

static void change_text(struct stint_limiter *limiter, uint32_t id, const char *text) {
    const struct stint_policy changed = parsed(text);
    change_made(limiter, id, &changed);
}

static void take_the_last(void) {
    (void)ask(meanwhile.limiter, 1, 7, 1, 0);
    if (rate_then != NULL && rate_then[1] != '\0')
        change_text(meanwhile.limiter, 0, rate_then);
    else if (rate_then != NULL)
        assert_int_equal(stint_override(meanwhile.limiter, 0, 7, 1, T0 + HOUR), 0);
}

/* A group whose window refuses it after all gives the bucket back what it took, to the ns: by a
 * limit of its own, and though the rate or the key's override has become another since. */
TEST(test_refused_group) {
    static const struct {
        const char *policy, *then;
        uint32_t used, limit; /* before; the group's own */
        uint64_t least, most; /* to the time at which the bucket is full */
    } rows[] = {
        {"10/s burst=10", NULL, 0, 1, 0, 100},
        {"10/s burst=10", NULL, 9, 0, 900 * MS, 900 * MS},
        {"10/s burst=10", "1/s burst=1", 9, 0, 900 * MS, 900 * MS},
        {"10/s burst=10", "100/s burst=100", 9, 0, 900 * MS, 900 * MS},
        /* What is more than one is forgotten. */
        {"10/s burst=10 overrides", "1", 9, 0, 900 * MS, SECOND + 100},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        unsigned refused = 0;
        for (EACH_STEP(step)) {
            struct stint_limiter *limiter = open_limiter(100, STINT_FULL_REFUSE);
            struct stint_verdict v[2];
            const struct stint_request group[2] = {
                {.key = {7}, .policy = 0, .cost = 1, .limit = rows[i].limit},
                {.key = {7}, .policy = 1, .cost = 1}};
            test_time = T0;
            add_text(limiter, rows[i].policy);
            add_text(limiter, "2/h");
            ask(limiter, 1, 7, 1, 0);
            if (rows[i].used != 0)
                ask(limiter, 0, 7, rows[i].used, 0);
            rate_then = rows[i].then;
            meanwhile_begin(limiter, take_the_last, step);
            const bool all = stint_decide_all(limiter, group, 2, STINT_NOW, v);
            stint_test_step = NULL;
            const uint64_t left = ask(limiter, 0, 7, 0, STINT_PEEK).reset_after;
            refused += !all;
            if (!all && (left < rows[i].least || left > rows[i].most))
                fail_msg("row %zu, step %" PRIu64 ": %" PRIu64 " ns", i, step, left);
            stint_close(limiter);
        }
        assert_true(refused != 0);
    }
}

static bool entry_any(void *context, const struct stint_entry *entry) {
    struct told_entries *told = context;
    if (told->count < 8)
        told->entries[told->count++] = *entry;
    return true;
}

#define BAN_ENTRY (STINT_ENTRY_OVERRIDE | STINT_ENTRY_BAN)

/* One key's entries say what they are, since when and until when. */
TEST(test_kinds) {
    const uint64_t from = T0 + 30 * SECOND;
    const struct {
        const char *policy, *then; /* it is changed to that; NULL: it stays */
        uint32_t refused;          /* in so many windows */
        int32_t by_hand;           /* a limit for an hour; -1: none */
        uint32_t flags;            /* 0: no such entry */
        uint64_t used, limit, since, until;
    } rows[] = {
        {"1/minute overrides name=p", NULL, 0, 7, STINT_ENTRY_OVERRIDE, 0, 7, 0, from + HOUR},
        {"1/minute ban=1h name=p", NULL, 1, 3, STINT_ENTRY_OVERRIDE, 0, 3, 0, from + HOUR},
        {"1/minute ban=1h name=p", NULL, 1, -1, BAN_ENTRY, 0, 0, from, from + HOUR},
        {"1/minute ban=1h after=2 name=p", NULL, 2, -1, BAN_ENTRY, 0, 0, from + MINUTE,
         from + MINUTE + HOUR},
        {"1/minute ban=1h shadow name=p", NULL, 1, -1, 0, 0, 0, 0, 0},
        {"1/minute ban=1h name=p", "1/minute ban=1h shadow name=p", 1, -1, BAN_ENTRY, 0, 0, from,
         from + HOUR},
        {"1/minute ban=1h after=2 name=p", NULL, 1, -1, STINT_ENTRY_STRIKES, 1, 0, from,
         from + HOUR},
        {"1/minute ban=1h after=3 within=2h name=p", NULL, 2, -1, STINT_ENTRY_STRIKES, 2, 0, from,
         from + 2 * HOUR},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct stint_limiter *limiter = open_limiter(100, STINT_FULL_ADMIT);
        const uint32_t id = add_text(limiter, rows[i].policy);
        struct told_entries told = {0};
        size_t counts = 0;
        for (uint32_t window = 0; window < rows[i].refused; window++) {
            test_time = from + window * MINUTE;
            (void)ask(limiter, id, 1, 2, 0);
        }
        test_time = rows[i].refused > 0 ? test_time : from;
        if (rows[i].by_hand >= 0)
            assert_int_equal(stint_override(limiter, id, 1, (uint32_t)rows[i].by_hand, from + HOUR),
                             0);
        if (rows[i].then != NULL)
            apply(limiter, rows[i].then);
        assert_int_equal(stint_each_of(limiter, 1, entry_any, &told), 0);
        for (size_t j = 0; j < told.count; j++) {
            const struct stint_entry *entry = &told.entries[j];
            const bool count = (entry->flags & STINT_ENTRY_REFUSED) != 0;
            counts += count;
            assert_int_equal(entry->key.hash, 1);
            assert_int_equal(entry->policy, id);
            assert_int_equal(entry->flags, count ? STINT_ENTRY_REFUSED : rows[i].flags);
            assert_int_equal(entry->used, count ? 0 : rows[i].used);
            assert_int_equal(entry->limit, count ? 0 : rows[i].limit);
            assert_int_equal(entry->since, count ? test_time - 30 * SECOND : rows[i].since);
            assert_int_equal(entry->end, count ? test_time + 30 * SECOND : rows[i].until);
        }
        assert_int_equal(counts, rows[i].refused > 0);
        assert_int_equal(told.count, counts + (rows[i].flags != 0));
        stint_close(limiter);
    }
}

/* They are told one by one, and move with a table that is resized. */
TEST_IN_DIRECTORY(test_resized) {
    struct stint_options options = fixture_options(20000, STINT_FULL_ADMIT);
    options.path = path;
    struct stint_limiter *limiter = open_with(&options);
    uint32_t id = add_text(limiter, "1/minute ban=1h overrides name=p");
    stint_key key = number_key(limiter, 1), banned = number_key(limiter, 2);

    test_time = T0;
    assert_int_equal(stint_override(limiter, id, key, 5, T0 + HOUR), 0);
    assert_int_equal(ask(limiter, id, banned, 2, 0).flags, FIRST | BANNED);
    stint_close(limiter);
    struct stint_options resized = STINT_OPTIONS_INIT;
    resized.max_entries = 40000;
    resized.clock = options.clock;
    assert_int_equal(stint_resize(path, &resized), 0);
    options.max_entries = 40000;
    limiter = open_with(&options);
    assert_int_equal(ask(limiter, id, key, 1, 0).capacity, 5);
    assert_int_equal(ask(limiter, id, banned, 1, 0).flags, OVER | BANNED);
    assert_override(limiter, id, key.hash, 5, T0 + HOUR);
    struct told_entries told = {0};
    assert_int_equal(stint_each(limiter, entry_keep, &told), 0);
    assert_int_equal(told.count, 2);
    for (size_t i = 0; i < told.count; i++) {
        const bool ban = (told.entries[i].flags & STINT_ENTRY_BAN) != 0;
        assert_int_equal(told.entries[i].policy, id);
        assert_int_equal(told.entries[i].key.hash, (ban ? banned : key).hash);
        assert_int_equal(told.entries[i].limit, ban ? 0 : 5);
        assert_int_equal(told.entries[i].end, T0 + HOUR);
    }
    stint_close(limiter);
}

/* ---- What is told ---------------------------------------------------------------------------- */

static void assert_has(const char *text, const char *line) {
    if (strstr(text, line) == NULL)
        fail_msg("no \"%s\" in\n%s", line, text);
}

TEST_OF(test_told, 100, STINT_FULL_ADMIT, "2/minute ban=10m overrides name=p") {
    const uint32_t style = STINT_HEADERS_DRAFT | STINT_HEADERS_LEGACY;
    char text[16384];

    test_time = T0 + 20 * SECOND;
    struct stint_verdict verdict = ask(limiter, id, 1, 3, 0);
    assert_int_equal(verdict.retry_after, STINT_NEVER);
    verdict = ask(limiter, id, 1, 1, 0);
    assert_true(stint_headers(limiter, style, &verdict, 1, text, sizeof text) > 0);
    assert_string_equal(text, "RateLimit-Policy: \"p\";q=2;w=60\r\nRateLimit: \"p\";r=0;t=600\r\n"
                              "X-RateLimit-Limit: 2\r\nX-RateLimit-Remaining: 0\r\n"
                              "X-RateLimit-Reset: 1704067820\r\nRetry-After: 600\r\n");
    assert_int_equal(stint_override(limiter, id, 2, 0, T0 + HOUR), 0);
    verdict = ask(limiter, id, 2, 1, 0);
    assert_true(stint_headers(limiter, style, &verdict, 1, text, sizeof text) > 0);
    assert_has(text, ";t=3580\r\n");
    assert_has(text, "X-RateLimit-Reset: 1704070800\r\nRetry-After: 3580");
    assert_int_equal(stint_override(limiter, id, 3, 7, T0 + HOUR), 0);
    verdict = ask(limiter, id, 3, 1, 0);
    assert_true(stint_headers(limiter, style, &verdict, 1, text, sizeof text) > 0);
    assert_has(text, "\"p\";q=7;w=60\r\nRateLimit: \"p\";r=6;t=40\r\n");

    assert_true(stint_metrics(limiter, NULL, text, sizeof text) < (int)sizeof text);
    assert_has(text, "\nstint_table_overrides 2\n");
    assert_has(text, "\nstint_table_barred_keys 1\n");
    assert_has(text, "\nstint_table_banned_keys 1\n");
    assert_has(text, "\nstint_bans_total{policy=\"p\"} 1\n");
    assert_has(text, "\nstint_lost_strikes_total{policy=\"p\"} 0\n");
    assert_null(strstr(text, "policy=\"\""));
}

static void take_other(void) {
    uint32_t id;
    assert_int_equal(stint_policy_find(meanwhile.limiter, "o", &id), 0);
    (void)ask(meanwhile.limiter, id, 1, 1, 0);
}

/* Asks for two of the key's tokens, and for the last one by another policy, before these or after.
 * Somebody takes that one at a step. Returns whether both were allowed. If not, the part that fits
 * tells its look. */
static bool take_two(const char *text, size_t part, uint64_t step) {
    struct stint_limiter *limiter = open_limiter(100, STINT_FULL_ADMIT);
    const uint32_t id = add_text(limiter, text), other = add_text(limiter, "2/minute name=o");
    struct stint_request group[2];
    struct stint_verdict v[2];

    group[part] = (struct stint_request)STINT_REQUEST(id, 1, 2);
    group[1 - part] = (struct stint_request)STINT_REQUEST(other, 1, 1);
    assert_true(ask(limiter, id, 1, 5, 0).allowed);
    assert_true(ask(limiter, other, 1, 1, 0).allowed);
    meanwhile_begin(limiter, take_other, step);
    const bool all = stint_decide_all(limiter, group, 2, T0, v);
    stint_test_step = NULL;
    if (!all && (!v[part].allowed || v[part].flags != 0 || v[part].granted != 0 ||
                 v[part].used != 5 || v[part].remaining != 15))
        fail_msg("%s, step %" PRIu64 ": %u used, flags %#x", text, step, v[part].used,
                 v[part].flags);
    assert_int_equal(used_of(limiter, id, 1), all ? 7 : 5);
    const struct stint_policy_stats stats = get_policy_stats(limiter, id);
    assert_int_equal(stats.refunded, all ? 0 : 2 * (stats.allowed - 1));
    stint_close(limiter);
    return all;
}

TEST(test_used_without_a_refused_group) {
    static const char *const texts[] = {"20/minute near=30%",    "20/minute stripes=2",
                                        "20/minute smooth",      "20/minute burst=20",
                                        "15/minute capacity=20", "20/minute in-flight",
                                        "20/minute start=first", "20/minute overrides"};
    test_time = T0;
    for (size_t i = 0; i < 2 * sizeof texts / sizeof texts[0]; i++) {
        uint64_t refused = 0;
        for (EACH_STEP(step))
            refused += !take_two(texts[i / 2], i & 1, step);
        assert_true(refused != 0);
    }
}

/* The shadow that let a part through is gone, and another has taken the last token of the other
 * part. */
static void unshadow(void) {
    change_text(meanwhile.limiter, 0, "9/hour name=s");
    (void)ask(meanwhile.limiter, 1, 1, 1, 0);
}

TEST(test_first_refusal_of_a_shadow_given_back) {
    unsigned first_refusals = 0;
    for (EACH_STEP(step)) {
        test_time = T0;
        struct stint_limiter *limiter = open_limiter(100, STINT_FULL_ADMIT);
        const uint32_t id = add_text(limiter, "1/hour shadow name=s");
        const struct stint_request group[] = {STINT_REQUEST(id, 1, 2),
                                              STINT_REQUEST(add_text(limiter, "1/day"), 1, 1)};
        struct stint_verdict v[2];
        meanwhile_begin(limiter, unshadow, step);
        const bool all = stint_decide_all(limiter, group, 2, T0, v);
        stint_test_step = NULL;
        const uint32_t marks = v[0].flags & (FIRST | STINT_SHADOWED);
        if (v[0].allowed && marks == FIRST)
            fail_msg("step %" PRIu64 ": flags %#x", step, (unsigned)v[0].flags);
        first_refusals += !all && v[0].allowed && (v[0].flags & FIRST) != 0;
        stint_close(limiter);
    }
    assert_true(first_refusals != 0);
}

static bool note_label(void *context, const struct stint_entry *entry) {
    *(bool *)context |= entry->label != NULL;
    return true;
}

/* "the key that was refused in the fewest windows makes room, but a banned one last". */
TEST(test_a_banned_key_keeps_its_name) {
    struct stint_options options = fixture_options(1000, STINT_FULL_ADMIT);
    options.labels = 4; /* one set, in which all have their names */
    struct stint_limiter *limiter = open_with(&options);
    const uint32_t id = add_text(limiter, "1/day ban=1d after=1");
    test_time = T0;
    for (unsigned key = 0; key < 40; key++) {
        const stint_key named = stint_key_of_id(limiter, key);
        const bool banned = key < 3; /* the others have an override, and strikes of nobody's */
        struct stint_verdict verdict = {0};
        for (int i = 0; banned && i < 2; i++)
            (stint_take)(limiter, id, named, 1, STINT_NOW, &verdict);
        assert_int_equal((verdict.flags & STINT_BANNED) != 0, banned);
        if (key % 2 == 1 && !banned)
            assert_int_equal((stint_override)(limiter, id, named, 5, T0 + HOUR), 0);
        assert_int_equal((stint_label)(limiter, named, "name", 4), 0);
        for (unsigned other = 0; other <= key; other++) {
            bool told = false;
            (void)(stint_each_of)(limiter, stint_key_of_id(limiter, other), note_label, &told);
            assert_int_equal(told, other < 3 || other == key);
        }
    }
    stint_close(limiter);
}
