/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * Promise E in signal handlers: a handler decides on the same keys in the middle of a decision of
 * the thread that it interrupts, at random instants and at each of the worst ones. Linked with the
 * library built for tests (src/testing.h). */
#include "fixture.h"

#include <signal.h>
#include <sys/time.h>

#include "random.h"
#include "testing.h"

enum { KEYS = 5, WINDOWS = 4096 };

static const uint32_t limits[KEYS] = {1, 3, 10, 100, 1000};
static const uint64_t lengths[KEYS] = {1, 2, 3, 5, 7}; /* ticks */

/* What was decided, by the thread and by its handler: one thread, so plain numbers. The handler
 * comes between any two instructions, so each keeps its own. */
struct tally {
    uint64_t granted[KEYS][WINDOWS];
    uint64_t refused[KEYS][WINDOWS];
    uint64_t allowed_all[KEYS], refused_all[KEYS], first_refusals[KEYS];
    uint64_t decisions;
};

static struct tally of_thread, of_handler;

static struct {
    struct stint_limiter *limiter;
    uint32_t policies[KEYS];
    uint64_t time; /* ns; the handler turns it too */
    struct random handler_random;
} bed;

static uint64_t bed_clock(void) {
    return test_moved(__atomic_load_n(&bed.time, __ATOMIC_RELAXED));
}

static void turn_clock(struct random *random) {
    uint64_t now = bed_clock();
    if (random_below(random, 256) == 0 && now < T0 + (WINDOWS - 10) * STINT_TICK_NS)
        __atomic_fetch_add(&bed.time, random_below(random, STINT_TICK_NS), __ATOMIC_RELAXED);
}

static void open_bed(uint64_t max_keys) {
    struct stint_options options = STINT_OPTIONS_INIT;
    options.max_keys = max_keys;
    options.on_full = STINT_FULL_REFUSE;
    options.clock = bed_clock;
    bed.time = T0;
    bed.limiter = open_with(&options);
    for (unsigned i = 0; i < KEYS; i++)
        bed.policies[i] =
            add_policy(bed.limiter, "", limits[i], lengths[i] * STINT_TICK_NS, (int64_t)T0, 0);
    memset(&of_thread, 0, sizeof of_thread);
    memset(&of_handler, 0, sizeof of_handler);
}

/* One request, of cost 1 mostly. */
static void decide(struct random *random, struct tally *tally) {
    uint32_t key = (uint32_t)random_below(random, KEYS);
    uint32_t cost = random_below(random, 8) == 0 ? 2 : 1;
    struct stint_verdict verdict;
    bool allowed = stint_take(bed.limiter, bed.policies[key], key + 1, cost, STINT_NOW, &verdict);

    tally->decisions++;
    allowed ? tally->allowed_all[key]++ : tally->refused_all[key]++;
    tally->first_refusals[key] += (verdict.flags & STINT_FIRST_REFUSAL) != 0;
    if ((verdict.flags & STINT_UNTRACKED) != 0)
        return;
    uint64_t window = (verdict.window - T0) / STINT_TICK_NS / lengths[key];
    if (window >= WINDOWS)
        abort(); /* a handler cannot use cmocka's asserts */
    tally->granted[key][window] += verdict.granted;
    if (cost == 1 && !allowed)
        tally->refused[key][window]++;
}

/* A, B, C, and every decision counted once. Returns how many windows were full. */
static uint64_t check_totals(void) {
    uint64_t full = 0, stray = get_stats(bed.limiter).stray_tokens;
    for (unsigned key = 0; key < KEYS; key++) {
        uint64_t full_here = 0;
        for (unsigned window = 0; window < WINDOWS; window++) {
            uint64_t granted = of_thread.granted[key][window] + of_handler.granted[key][window];
            uint64_t refused = of_thread.refused[key][window] + of_handler.refused[key][window];
            assert_true(granted <= limits[key]);                         /* A */
            assert_true(refused == 0 || granted + stray >= limits[key]); /* B */
            full_here += refused != 0;
        }
        struct stint_policy_stats stats = get_policy_stats(bed.limiter, bed.policies[key]);
        assert_int_equal(stats.allowed, of_thread.allowed_all[key] + of_handler.allowed_all[key]);
        assert_int_equal(stats.refused, of_thread.refused_all[key] + of_handler.refused_all[key]);
        assert_int_equal(stats.first_refusals,
                         of_thread.first_refusals[key] + of_handler.first_refusals[key]);
        assert_true(stats.first_refusals >= full_here);
        full += full_here;
    }
    return full;
}

static void handler(int signal) {
    (void)signal;
    turn_clock(&bed.handler_random);
    decide(&bed.handler_random, &of_handler);
}

static void install_handler(void) {
    struct sigaction action = {.sa_handler = handler};
    assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
}

/* ---- At random instants --------------------------------------------------------------------- */

static void check_random_instants(uint64_t max_keys) {
    uint64_t seed = test_seed();
    struct random random = {seed};
    const struct itimerval often = {.it_interval = {.tv_usec = 200}, .it_value = {.tv_usec = 200}};
    const struct itimerval never = {0};

    open_bed(max_keys);
    bed.handler_random.state = seed + 1;
    install_handler();
    assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
    for (uint64_t i = 0; i < test_rounds(10000000); i++) { /* a second or two */
        turn_clock(&random);
        decide(&random, &of_thread);
    }
    assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
    uint64_t full = check_totals();
    print_message("%" PRIu64 " decisions, %" PRIu64 " in the handler, %" PRIu64 " windows full\n",
                  of_thread.decisions, of_handler.decisions, full);
    assert_true(full > 100);
    assert_true(of_handler.decisions > 100);
    stint_close(bed.limiter);
}

TEST(test_random_instants) {
    check_random_instants(100);
}

/* Five keys in one line of four slots: slots change hands under the interrupted thread. */
TEST(test_random_instants_crowded) {
    check_random_instants(2);
}

/* ---- At the worst instants ------------------------------------------------------------------ */

/* Those of decisions; nothing is given back here. */
static uint64_t at_instant[INSTANT_REFUND];

/* Interrupts the decision that is here, now and then up to three times, but not the handler's. */
static void interrupt(enum stint_test_instant instant) {
    static int within;
    if (within != 0)
        return;
    within = 1;
    at_instant[instant]++;
    for (uint64_t times = random_below(&bed.handler_random, 4); times > 0; times--)
        assert_int_equal(raise(SIGALRM), 0);
    within = 0;
}

static void check_worst_instants(uint64_t max_keys) {
    uint64_t seed = test_seed();
    struct random random = {seed};

    open_bed(max_keys);
    bed.handler_random.state = seed + 1;
    install_handler();
    memset(at_instant, 0, sizeof at_instant);
    stint_test_hook = interrupt;
    for (uint64_t i = 0; i < test_rounds(300000); i++) {
        turn_clock(&random);
        decide(&random, &of_thread);
    }
    stint_test_hook = NULL;
    uint64_t full = check_totals();
    print_message("interrupted at %" PRIu64 " adds, before %" PRIu64 " claims, after %" PRIu64
                  ", at %" PRIu64 " commits; %" PRIu64 " windows full\n",
                  at_instant[INSTANT_LOADED], at_instant[INSTANT_ABSENT],
                  at_instant[INSTANT_CLAIMED], at_instant[INSTANT_LOOKED], full);
    /* Where there is room for all, each key is claimed once, perhaps by a handler before the
     * claim. */
    assert_true(at_instant[INSTANT_LOADED] > 0);
    for (unsigned i = 0; i < INSTANT_REFUND && max_keys < KEYS; i++)
        assert_true(at_instant[i] > 0);
    stint_close(bed.limiter);
}

TEST(test_worst_instants) {
    check_worst_instants(100);
}

TEST(test_worst_instants_crowded) {
    check_worst_instants(2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_worst_instants),
        cmocka_unit_test(test_worst_instants_crowded),
#ifndef STINT_THREAD_SANITIZER
        /* ThreadSanitizer holds signals back until the thread calls the C library. */
        cmocka_unit_test(test_random_instants),
        cmocka_unit_test(test_random_instants_crowded),
#endif
    };
    return cmocka_run_group_tests_name("signal", tests, NULL, NULL);
}
