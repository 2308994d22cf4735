/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * Full tables of many keys: live keys keep their counts (F), the least goes, and what a clock that
 * was wrong leaves. (What each key is told, case by case: features.c.) */
#include "fixture.h"

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

static void assert_table(struct stint_limiter *limiter, uint64_t live, uint64_t placed,
                         uint64_t untracked, uint64_t replaced) {
    const struct stint_stats stats = get_stats(limiter);
    assert_int_equal(stats.live, live);
    assert_int_equal(stats.placed, placed);
    assert_int_equal(stats.untracked, untracked);
    assert_int_equal(stats.replaced, replaced);
    assert_true(stats.live <= stats.used && stats.used <= stats.slots);
}

/* In a table of as many lines as are looked at, whoever comes replaces a key that has used the
 * fewest tokens of all: few or nearly all that a slot holds. `smooth`: half of the keys are of a
 * policy whose slots hold two counts. */
static void check_least_goes(bool smooth) {
    enum { SLOTS = 96, NEWCOMERS = 1000 };
    static const uint32_t bits[] = {1, 2, 5, 13, 27};
    struct {
        uint32_t id, used;
        uint64_t key;
    } keys[SLOTS];
    uint64_t next = 0, tokens = 0;
    test_time = T0;
    struct stint_limiter *limiter = open_limiter(SLOTS / 2, STINT_FULL_REPLACE);
    const uint32_t plain = add_policy(limiter, "plain", STINT_LIMIT_MAX, DAY, 0, 0);
    /* Where there is one, every line has a closer look. */
    const uint32_t two =
        smooth ? add_policy(limiter, "two", 16383, HOUR, 0, STINT_SMOOTH) : UINT32_MAX;
    assert_int_equal(get_stats(limiter).slots, SLOTS);

    for (int round = 0; round < SLOTS + NEWCOMERS; round++, next++) {
        const uint32_t id = smooth && next % 2 == 0 ? two : plain;
        tokens = mix(tokens, next);
        const uint32_t most = id == two ? 13 : bits[round / 100 % 5];
        const uint32_t cost = 1 + (uint32_t)(tokens >> 32) % ((UINT32_C(1) << most) - 1);
        const uint32_t flags = take(limiter, id, next, cost).flags;
        if (round < SLOTS) {
            assert_int_equal(flags, 0);
            keys[round].id = id, keys[round].used = cost, keys[round].key = next;
            continue;
        }
        assert_int_equal(flags, STINT_REPLACED);
        uint32_t least = UINT32_MAX, gone = SLOTS;
        for (uint32_t i = 0; i < SLOTS; i++) {
            least = keys[i].used < least ? keys[i].used : least;
            if (look(limiter, keys[i].id, keys[i].key, 1).used != 0)
                continue;
            assert_int_equal(gone, SLOTS);
            gone = i;
        }
        assert_int_not_equal(gone, SLOTS);
        assert_int_equal(keys[gone].used, least);
        keys[gone].id = id, keys[gone].used = cost, keys[gone].key = next;
        if (!smooth || round != SLOTS + NEWCOMERS / 2)
            continue;
        test_time += HOUR; /* the window before counts: two counts of some keys, one of others */
        for (uint32_t i = 0; i < SLOTS; i++) {
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

/* ---- A clock that was wrong ------------------------------------------------------------------ */

/* Slots of short windows are free for new keys when the clock has stepped back. */
TEST(test_step_back_beside_hours) {
    test_time = T0 + 13 * MINUTE;
    struct stint_limiter *limiter = open_limiter(1000, STINT_FULL_REFUSE);
    const uint32_t minute = add_policy(limiter, "minute", 10, MINUTE, 0, 0);
    (void)add_policy(limiter, "hour", 10, HOUR, 0, 0);
    uint64_t key = 0;
    for (unsigned refused = 0; refused < 2000;)
        refused += !take(limiter, minute, key++, 1).allowed;
    test_time -= 50 * MINUTE;
    for (unsigned minutes = 0; minutes < 52; minutes++, test_time += MINUTE)
        for (unsigned i = 0; i < 500; i++)
            if (!take(limiter, minute, key++, 1).allowed)
                fail_msg("minute %u: new key %u refused", minutes, i);
    stint_close(limiter);
}

/* ---- Bigger tables ------------------------------------------------------------------------- */

enum { FLOOD = 20000 };

/* Promise F: a flood of keys that were never seen does not take a count from a live one.
 * (SandeepVashishtha/Eventra#12797, jvdmr/mod_evasive#63, kent8192/reinhardt-web#368,
 * luisgamas/uxnan#101, xuqingfeng/caddy-rate-limit#23: memory that grew with each address.) */
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
