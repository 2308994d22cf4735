/* SPDX-License-Identifier: MIT
 * Full tables of many keys: the least goes. (What each key is told, case by case, floods, and
 * what a clock that was wrong leaves: features.c.) */
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
