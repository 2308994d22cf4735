/* SPDX-License-Identifier: MIT
 * Requests that ask for the answer alone, at the limiter's own clock: where windows begin and end at whole
 * seconds, the second decides them (take.c). They are answered as others are, which are given the instant and
 * ask for a verdict, at any instant and whatever the clock does. */
#include <time.h>

#include "fixture.h"
#include "random.h"

/* In the place of the C library's clock: test_time, and how often it was read in which way. */
static unsigned seconds_read, clock_read;
static bool turned; /* else the clock is the machine's */

static time_t test_second(void) { /* rounded down, before 1970 too */
    int64_t ns = (int64_t)test_time, second = (int64_t)SECOND;
    return (time_t)(ns / second - (ns % second < 0));
}

time_t __real_time(time_t *seconds);
time_t __wrap_time(time_t *seconds);
time_t __wrap_time(time_t *seconds) {
    seconds_read++;
    return turned ? test_second() : __real_time(seconds);
}

int __real_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time) {
    if (!turned || (clock != CLOCK_REALTIME_COARSE && clock != CLOCK_REALTIME))
        return __real_clock_gettime(clock, time);
    clock_read++;
    time->tv_sec = test_second();
    time->tv_nsec = (long)((int64_t)test_time - time->tv_sec * (int64_t)SECOND);
    return 0;
}

static struct stint_limiter *open_by_system_clock(uint64_t max_keys, uint32_t flags) {
    struct stint_options options = STINT_OPTIONS_INIT;
    options.max_keys = max_keys;
    options.flags = flags;
    options.secret = test_secret();
    struct stint_limiter *limiter = NULL;
    assert_int_equal(stint_open(&options, &limiter), 0);
    return limiter;
}

static int clock_turned(void **state) {
    (void)state;
    turned = true;
    test_time = T0 + 12345;
    return 0;
}

static int clock_real(void **state) {
    (void)state;
    turned = false;
    return 0;
}

/* ---- Which clock is read ------------------------------------------------------------------------ */

static void expect_reads(struct stint_limiter *limiter, uint32_t policy, stint_key key,
                         bool allowed, unsigned seconds, unsigned clocks) {
    seconds_read = clock_read = 0;
    assert_int_equal(stint_take(limiter, policy, key, 1, STINT_NOW, NULL), allowed);
    assert_int_equal(seconds_read, seconds);
    assert_int_equal(clock_read, clocks);
}

static void test_clock_read(void **state) {
    (void)state;
    struct stint_limiter *limiter = open_by_system_clock(100, 0);
    uint32_t minute = add_policy(limiter, "minute", 3, MINUTE, 0, 0);
    uint32_t odd = add_policy(limiter, "odd", 3, 1500 * MS, 0, 0);
    uint32_t half = add_policy(limiter, "half", 3, SECOND, 500 * MS, 0);
    stint_key key = number_key(limiter, 1);
    const struct stint_request request = {.key = key, .policy = minute, .cost = 1};
    struct stint_verdict verdict;

    for (unsigned i = 0; i < 2; i++) { /* the policy's first request, and the key's */
        stint_take(limiter, minute, number_key(limiter, 2), 1, STINT_NOW, NULL);
        stint_take(limiter, odd, number_key(limiter, 2), 1, STINT_NOW, NULL);
        stint_take(limiter, half, number_key(limiter, 2), 1, STINT_NOW, NULL);
    }
    expect_reads(limiter, minute, key, true, 1, 1); /* a new key starts over */
    expect_reads(limiter, minute, key, true, 1, 0);
    expect_reads(limiter, minute, key, true, 1, 0);
    expect_reads(limiter, minute, key, false, 1, 1);
    expect_reads(limiter, minute, key, false, 1, 0);
    seconds_read = clock_read = 0;
    assert_false(stint_decide(limiter, &request, STINT_NOW, NULL));
    assert_int_equal(seconds_read, 1);
    assert_int_equal(clock_read, 0);
    assert_false(stint_take(limiter, minute, key, 1, STINT_NOW, &verdict));
    assert_int_equal(verdict.reset_after, MINUTE - 12345);
    assert_int_equal(clock_read, 1);

    /* Windows that begin or end within a second. */
    stint_take(limiter, odd, key, 1, STINT_NOW, NULL);
    stint_take(limiter, half, key, 1, STINT_NOW, NULL);
    expect_reads(limiter, odd, key, true, 1, 1);
    expect_reads(limiter, half, key, true, 1, 1);
    stint_close(limiter);

    /* Clocks of which time() is not the seconds: the precise one is ahead of it by up to some milliseconds. */
    limiter = open_by_system_clock(100, STINT_PRECISE_CLOCK);
    minute = add_policy(limiter, "minute", 3, MINUTE, 0, 0);
    stint_take(limiter, minute, key, 1, STINT_NOW, NULL);
    expect_reads(limiter, minute, key, true, 0, 1);
    stint_close(limiter);
    limiter = open_limiter(100, STINT_FULL_ADMIT);
    minute = add_policy(limiter, "minute", 3, MINUTE, 0, 0);
    stint_take(limiter, minute, key, 1, STINT_NOW, NULL);
    expect_reads(limiter, minute, key, true, 0, 0);
    stint_close(limiter);
}

/* ---- The same answers ---------------------------------------------------------------------------- */

enum { KEYS = 12 };

static uint64_t seed;

static const struct stint_policy kinds[] = {
    {.name = "second", .limit = 2, .window = SECOND},
    {.name = "seven", .limit = 5, .window = 7 * SECOND, .start = 3 * (int64_t)SECOND},
    {.name = "before the epoch", .limit = 3, .window = 5 * SECOND, .start = -2 * (int64_t)SECOND},
    {.name = "odd", .limit = 3, .window = 1500 * MS},
    {.name = "half", .limit = 3, .window = 2 * SECOND, .start = 500 * (int64_t)MS},
    {.name = "tick", .limit = 1, .window = 10 * MS},
    {.name = "carried", .limit = 2, .capacity = 5, .window = 2 * SECOND},
    {.name = "counted", .limit = 2, .window = 2 * SECOND, .flags = STINT_COUNT_REFUSED},
    {.name = "shadow", .limit = 2, .window = 3 * SECOND, .flags = STINT_SHADOW},
    {.name = "own start", .limit = 2, .window = 4 * SECOND, .flags = STINT_START_PER_KEY},
    {.name = "smooth", .limit = 4, .window = 2 * SECOND, .flags = STINT_SMOOTH},
    {.name = "striped", .limit = 8, .window = 3 * SECOND, .stripes = 4},
    {.name = "near", .limit = 6, .window = 3 * SECOND, .near_limit = 50},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* To the end of a second, an instant before or after it, or anywhere; now and then back. */
static void turn(struct random *random) {
    uint64_t second = test_time - test_time % SECOND;
    switch (random_below(random, 24)) {
    case 0:
    case 1:
        test_time = second + SECOND;
        break;
    case 2:
        test_time = second + SECOND - 1;
        break;
    case 3:
        test_time += random_below(random, 3 * SECOND);
        break;
    case 4:
        test_time -= random_below(random, 2) * random_below(random, SECOND);
        break;
    case 5:
        if (random_below(random, 50) == 0)
            test_time -= random_below(random, 10 * MINUTE);
        break;
    default:
        test_time += random_below(random, 20) * MS;
    }
}

static void test_same_answers(void **state) {
    (void)state;
    struct random random = {seed};

    for (uint64_t round = 0; round < test_rounds(40); round++) {
        uint64_t max_keys = random_below(&random, 2) == 0 ? 20 : 400; /* full, or not */
        struct stint_limiter *ours = open_by_system_clock(max_keys, 0);
        struct stint_limiter *other = open_limiter(max_keys, STINT_FULL_ADMIT);
        for (uint32_t i = 0; i < KINDS; i++) {
            struct stint_policy policy = kinds[i];
            policy.size = sizeof policy;
            assert_int_equal(stint_policy_add(ours, &policy), i);
            assert_int_equal(stint_policy_add(other, &policy), i);
        }
        for (unsigned i = 0; i < 3000; i++) {
            turn(&random);
            uint32_t id = (uint32_t)random_below(&random, KINDS);
            stint_key key = number_key(ours, random_below(&random, KEYS));
            uint32_t cost = random_below(&random, 8) == 0 ? 2 : 1;
            struct stint_verdict verdict;
            bool allowed = stint_take(ours, id, key, cost, STINT_NOW, NULL);
            if (stint_take(other, id, key, cost, test_time, &verdict) != allowed) {
                print_verdict(kinds[id].name, &verdict);
                fail_msg("round %" PRIu64 ", request %u, at %" PRIu64, round, i, test_time);
            }
        }
        for (uint32_t id = 0; id < KINDS; id++) {
            struct stint_policy_stats one = get_policy_stats(ours, id),
                                      two = get_policy_stats(other, id);
            assert_memory_equal(&one, &two, sizeof one);
            for (uint64_t number = 0; number < KEYS; number++) {
                stint_key key = number_key(ours, number);
                assert_int_equal(used_of(ours, id, key), used_of(other, id, key));
            }
        }
        stint_close(ours);
        stint_close(other);
    }
}

/* Before 1970, and where ns since then end. */
static void test_ends_of_time(void **state) {
    (void)state;
    static const uint64_t times[] = {
        0, SECOND - 1, (uint64_t)-1, (uint64_t)-SECOND, UINT64_MAX / 2, UINT64_MAX - MINUTE,
    };
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        struct stint_limiter *limiter = open_by_system_clock(100, 0);
        uint32_t minute = add_policy(limiter, "minute", 3, MINUTE, 0, 0);
        test_time = times[i];
        for (unsigned n = 0; n < 6; n++)
            assert_int_equal(stint_take(limiter, minute, 5, 1, STINT_NOW, NULL), n < 3);
        stint_close(limiter);
    }
}

int main(void) {
#define TURNED(test) cmocka_unit_test_setup_teardown(test, clock_turned, clock_real)
    const struct CMUnitTest tests[] = {
        TURNED(test_clock_read),
        TURNED(test_same_answers),
        TURNED(test_ends_of_time),
    };
    seed = test_seed();
    return cmocka_run_group_tests_name("seconds", tests, NULL, NULL);
}
