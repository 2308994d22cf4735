/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * The full table: its three outcomes (promise G), and that live keys keep their counts (promise
 * F). */
#include "fixture.h"
#include "told.h"

#include "limiter/limiter.h" /* for mix */

static struct stint_verdict take(struct stint_limiter *limiter, uint32_t id, uint64_t key,
                                 uint32_t cost) {
    struct stint_verdict v;
    memset(&v, 0xa5, sizeof v);
    bool allowed = stint_take(limiter, id, number_key(limiter, key), cost, STINT_NOW, &v);
    assert_int_equal(allowed, v.allowed);
    return v;
}

static struct stint_verdict look(struct stint_limiter *limiter, uint32_t id, uint64_t key,
                                 uint32_t cost) {
    return ask(limiter, id, number_key(limiter, key), cost, STINT_PEEK);
}

/* ---- A table of one line ------------------------------------------------------------------- */

enum { LINE = 4, CAST = LINE + 3 };

/* What keys 0 to 3, 100, 101 and 102 use. */
static void assert_used(struct stint_limiter *limiter, uint32_t id, const uint32_t used[CAST]) {
    for (uint64_t k = 0; k < CAST; k++)
        assert_int_equal(look(limiter, id, k < LINE ? k : 100 + k - LINE, 1).used, used[k]);
}
#define USED(limiter, id, ...) assert_used(limiter, id, (const uint32_t[CAST]){__VA_ARGS__})

static void assert_table(struct stint_limiter *limiter, uint64_t live, uint64_t placed,
                         uint64_t untracked, uint64_t replaced) {
    const struct stint_stats stats = get_stats(limiter);
    assert_int_equal(stats.live, live);
    assert_int_equal(stats.placed, placed);
    assert_int_equal(stats.untracked, untracked);
    assert_int_equal(stats.replaced, replaced);
    assert_true(stats.live <= stats.used && stats.used <= stats.slots);
}

/* Fills a line with keys 0 to 3, which use 5, 3, 4 and 6 tokens of 10. */
static struct stint_limiter *open_full_line(enum stint_on_full on_full, uint32_t *id) {
    static const uint32_t costs[LINE] = {5, 3, 4, 6};
    test_time = T0;
    struct stint_limiter *limiter = open_limiter(2, on_full);
    assert_int_equal(get_stats(limiter).slots, LINE);
    *id = add_policy(limiter, "p", 10, MINUTE, 0, 0);
    for (uint64_t k = 0; k < LINE; k++)
        assert_int_equal(take(limiter, *id, k, costs[k]).flags, 0);
    USED(limiter, *id, 5, 3, 4, 6);
    assert_table(limiter, LINE, LINE, 0, 0);
    return limiter;
}

/* G: who finds no slot is let through or refused, as the user chose, and counted as that. */
TEST(test_line_without_room) {
    for (enum stint_on_full on_full = STINT_FULL_ADMIT; on_full <= STINT_FULL_REFUSE; on_full++) {
        const uint32_t admit = on_full == STINT_FULL_ADMIT;
        uint32_t id;
        struct stint_limiter *limiter = open_full_line(on_full, &id);
        test_time = T0 + 7;
        for (int i = 0; i < 50; i++) {
            struct stint_verdict expected = {.allowed = admit,
                                             .flags = STINT_UNTRACKED,
                                             .capacity = 10,
                                             .remaining = admit * 10,
                                             .reset_after = MINUTE - 7,
                                             .retry_after = admit ? 0 : MINUTE - 7};
            struct stint_verdict v = look(limiter, id, 100, 4);
            assert_verdict(&v, &expected, __LINE__);
            expected.used = expected.granted = admit * 4;
            expected.remaining = admit * 6;
            /* Alone or beside a look, by a request for work that may come to nothing or not. */
            const struct stint_request group[] = {
                {.key = number_key(limiter, 100),
                 .policy = id,
                 .cost = 4,
                 .flags = i % 2 != 0 ? STINT_TENTATIVE : 0},
                {.key = number_key(limiter, 0), .policy = id, .flags = STINT_PEEK}};
            struct stint_verdict told[2];
            assert_int_equal(
                stint_decide_all(limiter, group, 1 + (size_t)(i & 2) / 2, STINT_NOW, told), admit);
            assert_verdict(&told[0], &expected, __LINE__);
        }
        /* There is nothing to give back or to reset. */
        assert_int_equal(refund_by(limiter, id, number_key(limiter, 100), 4, T0 + MINUTE), 0);
        stint_reset(limiter, id, number_key(limiter, 100));
        USED(limiter, id, 5, 3, 4, 6);
        assert_table(limiter, LINE, LINE, 50, 0);
        struct stint_policy_stats counts = get_policy_stats(limiter, id);
        assert_int_equal(counts.allowed, LINE + admit * 50);
        assert_int_equal(counts.refused, 50 - admit * 50);
        assert_int_equal(counts.untracked, 50);
        assert_int_equal(counts.first_refusals, 0);
        stint_close(limiter);
    }
}

/* Who is late by more than two minutes is refused at the clock's time, and waits from then on:
 * alone, and in a group. */
TEST(test_line_without_room_for_late_callers) {
    uint32_t id;
    struct stint_limiter *limiter = open_full_line(STINT_FULL_REFUSE, &id);
    struct stint_request group[2] = {STINT_REQUEST(id, number_key(limiter, 100), 1),
                                     STINT_REQUEST(id, number_key(limiter, 101), 1)};
    struct stint_verdict told[2];
    test_time = T0 + 7;
    for (uint32_t look = 0; look < 2; look++) {
        group[0].flags = group[1].flags = look * STINT_PEEK;
        for (size_t n = 1; n <= 2; n++) {
            assert_false(stint_decide_all(limiter, group, n, T0 - 5 * MINUTE, told));
            for (size_t i = 0; i < n; i++) {
                assert_int_equal(told[i].flags, STINT_UNTRACKED | STINT_MISTAKEN_NOW);
                assert_in_range(told[i].retry_after, MINUTE - 100, MINUTE - 7);
            }
        }
    }
    stint_close(limiter);
}

/* Whoever takes nothing needs no slot: the request, the look at it, and groups with it are let
 * through, whatever the table does with others. */
TEST(test_line_without_room_for_nothing) {
    static const char *const texts[] = {"10/minute", "9/minute capacity=10", "10/minute smooth",
                                        "10/minute burst=10", "10/minute stripes=2"};
    for (enum stint_on_full on_full = STINT_FULL_ADMIT; on_full <= STINT_FULL_REPLACE; on_full++) {
        for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
            uint32_t id;
            struct stint_limiter *limiter = open_full_line(on_full, &id);
            struct stint_policy policy = parsed(texts[i]);
            const uint32_t other = add_made(limiter, &policy);
            struct stint_request group[] = {
                {.key = number_key(limiter, 0), .policy = id, .cost = 1},
                {.key = number_key(limiter, 100), .policy = other},
                {.key = number_key(limiter, 101), .policy = other, .flags = STINT_PEEK}};
            struct stint_verdict told[3];
            assert_true(stint_decide_all(limiter, group, 3, STINT_NOW, told));
            assert_true(stint_decide_all(limiter, group + 1, 2, STINT_NOW, NULL));
            for (int j = 1; j < 3; j++) {
                const struct stint_verdict v = ask(limiter, other, group[j].key, 0, group[j].flags);
                assert_memory_equal(&v, &told[j], sizeof v);
                assert_true(v.allowed && v.flags == 0 && v.used == 0 && v.remaining == 10);
            }
            USED(limiter, id, 6, 3, 4, 6);
            assert_table(limiter, LINE, LINE, 0, 0);
            stint_close(limiter);
        }
    }
}

/* In a table of as many lines as are looked at, whoever comes replaces a key that has used the
 * fewest tokens of all: few or nearly all that a slot holds. `smooth`: half of the keys are of a
 * policy whose slots hold two counts. */
static void check_least_goes(bool smooth) {
    enum { MOST = 96, NEWCOMERS = 1000 };
    static const uint32_t bits[] = {1, 2, 5, 13, 27};
    struct {
        uint32_t id, used;
        uint64_t key;
    } keys[MOST];
    uint64_t next = 0, tokens = 0;
    test_time = T0;
    struct stint_limiter *limiter = open_limiter(MOST / 2, STINT_FULL_REPLACE);
    const uint32_t plain = add_policy(limiter, "plain", STINT_LIMIT_MAX, DAY, 0, 0);
    /* Where there is one, every line has a closer look. */
    const uint32_t two =
        smooth ? add_policy(limiter, "two", 16383, HOUR, 0, STINT_SMOOTH) : UINT32_MAX;
    assert_int_equal(get_stats(limiter).slots, MOST);

    for (int round = 0; round < MOST + NEWCOMERS; round++, next++) {
        const uint32_t id = smooth && next % 2 == 0 ? two : plain;
        tokens = mix(tokens, next);
        const uint32_t most = id == two ? 13 : bits[round / 100 % 5];
        const uint32_t cost = 1 + (uint32_t)(tokens >> 32) % ((UINT32_C(1) << most) - 1);
        const uint32_t flags = take(limiter, id, next, cost).flags;
        if (round < MOST) {
            assert_int_equal(flags, 0);
            keys[round].id = id, keys[round].used = cost, keys[round].key = next;
            continue;
        }
        assert_int_equal(flags, STINT_REPLACED);
        uint32_t least = UINT32_MAX, gone = MOST;
        for (uint32_t i = 0; i < MOST; i++) {
            least = keys[i].used < least ? keys[i].used : least;
            if (look(limiter, keys[i].id, keys[i].key, 1).used != 0)
                continue;
            assert_int_equal(gone, MOST);
            gone = i;
        }
        assert_int_not_equal(gone, MOST);
        assert_int_equal(keys[gone].used, least);
        keys[gone].id = id, keys[gone].used = cost, keys[gone].key = next;
        if (!smooth || round != MOST + NEWCOMERS / 2)
            continue;
        test_time += HOUR; /* the window before counts: two counts of some keys, one of others */
        for (uint32_t i = 0; i < MOST; i++) {
            if (keys[i].id != two || i % 3 == 0)
                continue;
            assert_int_equal(take(limiter, two, keys[i].key, i + 1).flags, 0);
            keys[i].used += i + 1;
        }
    }
    stint_close(limiter);
}

TEST(test_least_goes) {
    check_least_goes(false);
    check_least_goes(true);
}

/* ---- Stripes of a full table ---------------------------------------------------------------- */

/* A striped key of which no stripe has a slot, or can have one, gets the answers of a plain key. */
TEST(test_untracked_stripes) {
    static const uint32_t costs[] = {0, 1, 49, 50, 51, 100, 101, 1000, UINT32_MAX};
    for (uint32_t shadow = 0; shadow <= STINT_SHADOW; shadow += STINT_SHADOW) {
        for (enum stint_on_full on_full = STINT_FULL_ADMIT; on_full <= STINT_FULL_REFUSE;
             on_full++) {
            uint32_t id;
            struct stint_limiter *limiter = open_full_line(on_full, &id);
            struct stint_policy policy = make_policy("plain", 100, MINUTE, 0, shadow);
            policy.near_limit = 50;
            uint32_t plain = add_made(limiter, &policy);
            strcpy(policy.name, "striped");
            policy.stripes = 4;
            uint32_t striped = add_made(limiter, &policy);
            for (size_t c = 0; c < sizeof costs / sizeof costs[0]; c++) {
                for (uint32_t flags = 0; flags <= STINT_PEEK; flags += STINT_PEEK) {
                    struct stint_request request = {{1000}, plain, costs[c], 0, flags, 0, 0};
                    struct stint_verdict expected, got;
                    stint_decide(limiter, &request, STINT_NOW, &expected);
                    assert_true(expected.granted <= 100);
                    request.policy = striped;
                    stint_decide(limiter, &request, STINT_NOW, &got);
                    expected.policy = striped;
                    if (!same_verdict(&got, &expected))
                        print_error("cost %" PRIu32 ", flags %" PRIu32
                                    ", on_full %d, shadow %" PRIu32 "\n",
                                    costs[c], flags, (int)on_full, shadow);
                    assert_verdict(&got, &expected, __LINE__);
                }
            }
            struct stint_policy_stats one = get_policy_stats(limiter, plain);
            struct stint_policy_stats other = get_policy_stats(limiter, striped);
            assert_memory_equal(&one, &other, sizeof one);
            USED(limiter, id, 5, 3, 4, 6);
            stint_close(limiter);
        }
    }
}

/* C, and F and G under STINT_FULL_REPLACE: refusals and looks of a striped key take nobody's
 * slot. */
TEST_OF(test_refused_stripes_replace_nobody, 2, STINT_FULL_REPLACE, "10/minute") {
    uint32_t striped = add_text(limiter, "8/minute stripes=4 name=striped");
    for (uint64_t k = 0; k < LINE - 1; k++)
        take(limiter, id, k, 5);
    assert_int_equal(take(limiter, striped, 100, 2).granted, 2); /* all of one stripe */
    struct stint_stats before = get_stats(limiter);
    assert_int_equal(before.live, LINE);
    static const uint32_t costs[] = {7, 8, 9, 1000};
    for (size_t i = 0; i < 4; i++) {
        assert_false(look(limiter, striped, 100, costs[i]).allowed);
        struct stint_verdict v = take(limiter, striped, 100, costs[i]);
        assert_false(v.allowed);
        assert_int_equal(v.granted, 0);
        assert_int_equal(v.flags & STINT_REPLACED, 0);
    }
    assert_true(look(limiter, striped, 100, 6).allowed);
    struct stint_stats after = get_stats(limiter);
    assert_int_equal(after.replaced, before.replaced);
    assert_int_equal(after.placed, before.placed);
    assert_int_equal(look(limiter, striped, 100, 0).used, 2);
    for (uint64_t k = 0; k < LINE - 1; k++)
        assert_int_equal(look(limiter, id, k, 0).used, 5);
}

/* ---- A clock that was wrong ------------------------------------------------------------------ */

/* A limiter that keys of `minute` have filled, beside a policy of longer windows, and the clock
 * steps back. `key` receives the next number. */
static struct stint_limiter *fill_and_step_back(uint64_t max_entries, uint32_t *minute,
                                                uint64_t *key) {
    struct stint_limiter *limiter = open_limiter(max_entries, STINT_FULL_REFUSE);
    *minute = add_policy(limiter, "minute", 10, MINUTE, 0, 0);
    (void)add_policy(limiter, "hour", 10, HOUR, 0, 0);
    *key = 0;
    for (unsigned refused = 0; refused < 2000;)
        refused += !take(limiter, *minute, (*key)++, 1).allowed;
    test_time -= 50 * MINUTE;
    return limiter;
}

/* Slots of short windows are free for new keys when the clock has stepped back. */
TEST(test_step_back_beside_hours) {
    uint32_t minute;
    uint64_t key;
    test_time = T0 + 13 * MINUTE;
    struct stint_limiter *limiter = fill_and_step_back(1000, &minute, &key);
    for (unsigned minutes = 0; minutes < 52; minutes++, test_time += MINUTE)
        for (unsigned i = 0; i < 500; i++)
            if (!take(limiter, minute, key++, 1).allowed)
                fail_msg("minute %u: new key %u refused", minutes, i);
    stint_close(limiter);
}

/* The same, line by line: of lines whose slots all are behind the clock again, nothing is said of
 * others. */
TEST(test_step_back_line_by_line) {
    uint32_t minute;
    uint64_t key;
    test_time = T0;
    struct stint_limiter *limiter = fill_and_step_back(500, &minute, &key);
    const uint64_t lines = limiter->table.line_count, part = UINT64_MAX / lines + 1;
    for (uint64_t line = 0; line < lines; line++)
        for (unsigned i = 1; i <= LINE; i++)
            if (!stint_take(limiter, minute, line * part + i * (part / 16), 1, STINT_NOW, NULL))
                fail_msg("line %" PRIu64 ": a new key refused", line);
    stint_close(limiter);
}

/* Keys that stay in their slots from window to window, by a clock that was wrong once or not, are
 * taken over when the clock has stepped back behind their windows. */
TEST(test_step_back_of_kept_keys) {
    for (unsigned wrong = 0; wrong < 2; wrong++) {
        uint32_t minute;
        struct stint_limiter *limiter = open_full_line(STINT_FULL_REFUSE, &minute);
        uint32_t hour = add_policy(limiter, "hour", 10, HOUR, 0, 0);
        test_time = T0 + DAY;
        if (wrong != 0)
            (void)take(limiter, minute, 0, 1);
        for (uint64_t key = 0; key < LINE; key++)
            assert_true(take(limiter, minute, key, 1).allowed);
        test_time -= 750 * SECOND;
        for (uint64_t key = 60; key < 60 + LINE; key++, test_time += MINUTE)
            assert_true(take(limiter, hour, key, 1).allowed);
        stint_close(limiter);
    }
}

/* ---- Bigger tables ------------------------------------------------------------------------- */

enum { FLOOD = 20000 };

/* Promise F: a flood of keys that were never seen does not take a count from a live one. */
static void flood_spares_live_keys(enum stint_on_full on_full, uint64_t max_entries) {
    test_time = T0;
    struct stint_limiter *limiter = open_limiter(max_entries, on_full);
    uint32_t id = add_policy(limiter, "p", 50, MINUTE, 0, 0);
    for (uint64_t k = 0; k < max_entries; k++)
        assert_int_equal(take(limiter, id, k, 1 + (uint32_t)(k % 40)).flags, 0);
    assert_table(limiter, max_entries, max_entries, 0, 0);

    uint64_t untracked = 0;
    for (uint64_t k = 0; k < FLOOD; k++) {
        struct stint_verdict v = take(limiter, id, 1000000 + k, 1);
        assert_true(v.flags == 0 || v.flags == STINT_UNTRACKED);
        assert_int_equal(v.allowed, v.flags == 0 || on_full == STINT_FULL_ADMIT);
        untracked += v.flags == STINT_UNTRACKED;
        /* What the flood was given, it keeps. */
        assert_int_equal(look(limiter, id, 1000000 + k, 1).used, v.flags == 0);
    }
    for (uint64_t k = 0; k < max_entries; k++)
        assert_int_equal(look(limiter, id, k, 1).used, 1 + k % 40);

    const uint64_t live = max_entries + FLOOD - untracked;
    assert_true(untracked > 0);
    assert_table(limiter, live, live, untracked, 0);
    assert_int_equal(get_stats(limiter).used, live);
    /* Nearly all slots are of use before the table is called full. */
    assert_true(live > get_stats(limiter).slots * 9 / 10);
    assert_int_equal(get_policy_stats(limiter, id).untracked, untracked);

    /* In the next window as many keys as were promised are placed again, new ones. */
    test_time = T0 + MINUTE;
    assert_int_equal(get_stats(limiter).live, 0);
    for (uint64_t k = 0; k < max_entries; k++) {
        struct stint_verdict v = take(limiter, id, 2000000 + k, 3);
        assert_int_equal(v.flags, 0);
        assert_int_equal(v.used, 3);
        assert_true(v.window == T0 + 2 * MINUTE);
    }
    for (uint64_t k = 0; k < max_entries; k++)
        assert_int_equal(look(limiter, id, 2000000 + k, 1).used, 3);
    assert_int_equal(get_stats(limiter).live, max_entries);
    assert_int_equal(get_stats(limiter).untracked, untracked);
    stint_close(limiter);
}

TEST(test_flood) {
    static const uint64_t sizes[] = {2, 64, 5000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        flood_spares_live_keys(STINT_FULL_ADMIT, sizes[i]);
        flood_spares_live_keys(STINT_FULL_REFUSE, sizes[i]);
    }
}
