/* SPDX-License-Identifier: MIT
 * Promises A, B, C and E under threads, on a clock that the tests turn. Linked with the library
 * built for tests (src/testing.h), so that threads can be stopped at the worst instants. */
#include "counters.h" /* before cmocka, which defines fail() as well */

#include "turning.h"

#include <limits.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Few keys, all windows turning --------------------------------------------------------------
 */

TEST(test_turning_windows) {
    check_turning(PLAIN, 1000, false);
}

/* One line of four slots for five keys: slots change hands at every boundary. A key without a slot
 * is refused. */
TEST(test_turning_windows_crowded) {
    check_turning(PLAIN, 2, false);
}

TEST(test_turning_windows_mixed) {
    check_turning(PLAIN, 1000, true);
}

/* ---- The claim race -----------------------------------------------------------------------------
 */

/* A key that no slot has yet, in a line whose slots fall free at the very instant at which it is
 * seen: threads with a `now` before the boundary pick another slot than those with one after it. */
struct race {
    struct stint_limiter *limiter;
    uint32_t policy;
    stint_key key;
    uint64_t boundary;
    uint32_t allowed;
};

static void race_body(unsigned member, void *shared) {
    struct race *race = shared;
    for (unsigned i = 0; i < 3; i++) {
        uint64_t now = race->boundary - (member % 2);
        if (stint_take(race->limiter, race->policy, race->key, 1, now, NULL))
            __atomic_fetch_add(&race->allowed, 1, __ATOMIC_RELAXED);
    }
}

static uint32_t claimers; /* of this race */

/* Lets other threads run before a claim, until one of them is about to claim, too; and between a
 * claim and what follows it. */
static void yield_at_claims(enum stint_test_instant instant) {
    if (instant == INSTANT_CLAIMED)
        sched_yield();
    if (instant != INSTANT_ABSENT)
        return;
    __atomic_fetch_add(&claimers, 1, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < 100 && __atomic_load_n(&claimers, __ATOMIC_RELAXED) < 2; i++)
        sched_yield();
}

enum { RACE_LIMIT = 2 };

/* Returns how many of the races admitted another number than the limit. */
static unsigned run_races(unsigned races) {
    unsigned wrong = 0;
    struct race race = {.limiter = open_anywhere(2)}; /* one line */
    uint32_t occupant = add_policy(race.limiter, "", 1, TICK, 0, 0);
    /* All of a race is in one window of the key. */
    race.policy = add_policy(race.limiter, "", RACE_LIMIT, 1000 * TICK, 500 * TICK, 0);

    for (unsigned i = 0; i < races; i++) {
        /* Three slots free, and the first one until the boundary another key's. */
        race.boundary = EPOCH + (uint64_t)(i + 1) * 2000 * TICK;
        race.key = (stint_key)i << 8 | 1;
        race.allowed = 0;
        set_time(race.boundary - 1);
        stint_take(race.limiter, occupant, (stint_key)i << 8 | 2, 1, STINT_NOW, NULL);
        set_time(race.boundary);
        claimers = 0;
        run_team(race_body, &race);
        wrong += race.allowed != RACE_LIMIT;
    }
    stint_close(race.limiter);
    return wrong;
}

TEST(test_claim_race) {
    stint_test_hook = yield_at_claims;
    unsigned wrong = run_races((unsigned)test_rounds(20000));
    stint_test_hook = NULL;
    assert_int_equal(wrong, 0);
}

/* The same test must fail when a claim is counted in without a look at the other slots. */
TEST(test_claim_race_needs_pending) {
    unsigned wrong = 0;

    stint_test_hook = yield_at_claims;
    stint_test_removed = UINT64_C(1) << GUARD_PENDING;
    for (unsigned i = 0; i < 100 && wrong == 0; i++)
        wrong = run_races(500);
    stint_test_removed = 0;
    stint_test_hook = NULL;
    print_message("without the pending step %u of 500 races went wrong\n", wrong);
    assert_true(wrong > 0);
}

/* ---- Threads that stop --------------------------------------------------------------------------
 */

/* A thread that stops at an instant until it is let go. */
struct stopped {
    struct stint_limiter *limiter;
    uint32_t policy;
    stint_key key;
    enum stint_test_instant instant;
    bool allowed;
    struct stint_verdict verdict;
    pthread_t thread;
};

static enum stint_test_instant stop_at;
static int stop_stage; /* 0: nobody stops, 1: the next one does, 2: it has, 3: it may go on */

static void stop_hook(enum stint_test_instant instant) {
    int expected = 1;
    if (instant != stop_at || !__atomic_compare_exchange_n(&stop_stage, &expected, 2, false,
                                                           __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        return;
    while (__atomic_load_n(&stop_stage, __ATOMIC_SEQ_CST) != 3)
        sched_yield();
}

static void *stopped_main(void *argument) {
    struct stopped *stopped = argument;
    stopped->allowed = stint_take(stopped->limiter, stopped->policy, stopped->key, 1, STINT_NOW,
                                  &stopped->verdict);
    return NULL;
}

/* Starts a take in a thread, and returns when it has stopped at the instant. */
static void stop_take(struct stopped *stopped) {
    stop_at = stopped->instant;
    stop_stage = 1;
    stint_test_hook = stop_hook;
    assert_int_equal(pthread_create(&stopped->thread, NULL, stopped_main, stopped), 0);
    while (__atomic_load_n(&stop_stage, __ATOMIC_SEQ_CST) != 2)
        sched_yield();
}

static void let_go(struct stopped *stopped) {
    __atomic_store_n(&stop_stage, 3, __ATOMIC_SEQ_CST);
    pthread_join(stopped->thread, NULL);
    stint_test_hook = NULL;
}

/* E: a claim whose claimer stopped is resolved by whoever meets it, and A and B hold when he goes
 * on. */
static void check_stopped_claimer(enum stint_test_instant instant) {
    struct stopped stopped = {.limiter = open_anywhere(100), .key = 77, .instant = instant};
    stopped.policy = add_policy(stopped.limiter, "", 2, 60 * TICK, 0, 0);
    set_time(EPOCH);

    stop_take(&stopped);
    struct stint_verdict verdict;
    assert_true(stint_take(stopped.limiter, stopped.policy, stopped.key, 1, STINT_NOW, &verdict));
    assert_int_equal(verdict.used, 1);
    let_go(&stopped);
    assert_true(stopped.allowed);
    assert_int_equal(stopped.verdict.used, 2);
    assert_int_equal(stopped.verdict.window, verdict.window);
    assert_false(stint_take(stopped.limiter, stopped.policy, stopped.key, 1, STINT_NOW, NULL));
    stint_close(stopped.limiter);
}

TEST(test_stopped_claimer) {
    check_stopped_claimer(INSTANT_CLAIMED);
    check_stopped_claimer(INSTANT_LOOKED);
}

/* H: one that is let go windows later counts in the window of those who went on. */
TEST(test_late_claimer) {
    struct stopped stopped = {.limiter = open_anywhere(100), .key = 77, .instant = INSTANT_LOOKED};
    stopped.policy = add_policy(stopped.limiter, "", 1, 10 * TICK, 0, 0);
    set_time(EPOCH);
    stop_take(&stopped);
    set_time(EPOCH + 1000 * TICK);
    assert_true(stint_take(stopped.limiter, stopped.policy, stopped.key, 1, STINT_NOW, NULL));
    let_go(&stopped);
    assert_false(stopped.allowed);
    assert_int_equal(stopped.verdict.window, EPOCH + 1010 * TICK);
    stint_close(stopped.limiter);
}

/* A fetch-add that comes after its window counts in the key's next one, if the slot still is its.
 */
TEST(test_late_add_same_key) {
    struct stopped stopped = {.limiter = open_anywhere(100), .key = 77, .instant = INSTANT_LOADED};
    stopped.policy = add_policy(stopped.limiter, "", 2, 10 * TICK, 0, 0);
    set_time(EPOCH);
    assert_true(stint_take(stopped.limiter, stopped.policy, stopped.key, 1, STINT_NOW, NULL));
    stop_take(&stopped);
    set_time(EPOCH + 10 * TICK);
    assert_true(stint_take(stopped.limiter, stopped.policy, stopped.key, 1, STINT_NOW, NULL));
    let_go(&stopped);
    assert_true(stopped.allowed);
    assert_int_equal(stopped.verdict.used, 2);
    assert_int_equal(stopped.verdict.window, EPOCH + 20 * TICK);
    assert_false(stint_take(stopped.limiter, stopped.policy, stopped.key, 1, STINT_NOW, NULL));
    assert_int_equal(get_stats(stopped.limiter).stray_tokens, 0);
    stint_close(stopped.limiter);
}

/* The exception of B: another key has the slot by then. Its owner loses a token, is counted, and
 * nobody is admitted who should not be. */
TEST(test_stray_add) {
    struct stopped stopped = {.limiter = open_anywhere(2), .key = 77, .instant = INSTANT_LOADED};
    stopped.policy = add_policy(stopped.limiter, "", 2, 10 * TICK, 0, 0);
    set_time(EPOCH);
    assert_true(stint_take(stopped.limiter, stopped.policy, stopped.key, 1, STINT_NOW, NULL));
    stop_take(&stopped);
    set_time(EPOCH + 10 * TICK);
    struct stint_verdict verdict;
    for (stint_key key = 1; key <= 4; key++) { /* all four slots of the only line */
        assert_true(stint_take(stopped.limiter, stopped.policy, key, 1, STINT_NOW, &verdict));
        assert_int_equal(verdict.flags, 0);
    }
    let_go(&stopped);
    assert_false(stopped.allowed); /* the table is full */
    assert_int_equal(stopped.verdict.flags, STINT_UNTRACKED);
    assert_int_equal(get_stats(stopped.limiter).stray_tokens, 1);
    unsigned allowed = 0;
    for (stint_key key = 1; key <= 4; key++)
        allowed += stint_take(stopped.limiter, stopped.policy, key, 1, STINT_NOW, NULL);
    assert_int_equal(allowed, 3);
    stint_close(stopped.limiter);
}

/* ---- Counters -------------------------------------------------------------------------------- */

/* Every decision of every thread is counted, also of more threads than there are lanes. */
static void *counting_main(void *argument) {
    struct race *race = argument;
    for (unsigned i = 0; i < 100; i++)
        stint_take(race->limiter, race->policy, race->key, 1, EPOCH, NULL);
    return NULL;
}

TEST(test_counters) {
    enum { MANY = 150, AT_ONCE = 10 };
    struct race race = {.limiter = open_anywhere(100), .key = 5};
    race.policy = add_policy(race.limiter, "", 1000, 60 * TICK, 0, 0);
    for (unsigned i = 0; i < MANY; i += AT_ONCE) {
        pthread_t threads[AT_ONCE];
        for (unsigned j = 0; j < AT_ONCE; j++)
            assert_int_equal(pthread_create(&threads[j], NULL, counting_main, &race), 0);
        for (unsigned j = 0; j < AT_ONCE; j++)
            pthread_join(threads[j], NULL);
    }
    struct stint_policy_stats stats = STINT_POLICY_STATS_INIT;
    assert_int_equal(stint_policy_stats_get(race.limiter, race.policy, &stats), 0);
    assert_int_equal(stats.allowed, 1000);
    assert_int_equal(stats.refused, MANY * 100 - 1000);
    assert_int_equal(stats.first_refusals, 1);
    stint_close(race.limiter);
}

/* Each thread that is alive has a number of its own, or the last one, which is for all others:
 * two with one lane would lose counts. */

enum { ALIVE = 20 };

static struct {
    struct race race;
    pthread_barrier_t all_have;
    uint64_t numbers[ALIVE];
} alive;

static void *alive_main(void *argument) {
    stint_take(alive.race.limiter, alive.race.policy, alive.race.key, 1, EPOCH, NULL);
    *(uint64_t *)argument = stint_thread_number;
    pthread_barrier_wait(&alive.all_have);
    return NULL;
}

static bool all_differ(uint64_t own) {
    pthread_t threads[ALIVE];
    uint64_t seen = UINT64_C(1) << own;

    assert_int_equal(pthread_barrier_init(&alive.all_have, NULL, ALIVE), 0);
    for (unsigned i = 0; i < ALIVE; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, alive_main, &alive.numbers[i]), 0);
    for (unsigned i = 0; i < ALIVE; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&alive.all_have);
    for (unsigned i = 0; i < ALIVE; i++) {
        if (alive.numbers[i] == 0 || alive.numbers[i] >= LANES_MAX ||
            (seen >> alive.numbers[i] & 1) != 0)
            return false;
        seen |= UINT64_C(1) << alive.numbers[i];
    }
    return true;
}

TEST(test_numbers_of_threads) {
    alive.race = (struct race){.limiter = open_anywhere(100), .key = 5};
    alive.race.policy = add_policy(alive.race.limiter, "", 1000, 60 * TICK, 0, 0);
    stint_take(alive.race.limiter, alive.race.policy, alive.race.key, 1, EPOCH, NULL);
    assert_in_range(stint_thread_number, 1, LANES_MAX - 1);
    for (unsigned round = 0; round < 5; round++) /* those before have given theirs back */
        assert_true(all_differ(stint_thread_number));
#ifndef STINT_THREAD_SANITIZER /* no threads after fork */
    /* A child's one thread keeps its number, and new ones get others. */
    int status = -1;
    pid_t child = fork();
    if (child == 0)
        _exit(all_differ(stint_thread_number) ? 0 : 1);
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    assert_int_equal(status, 0);
#endif
    stint_close(alive.race.limiter);
}

/* Destructors that decide, in every round of them: the last one is after the library's own. */

enum { ENDING = 70 };

static pthread_key_t ending_key;
static bool number_given_back_and_kept; /* another thread may have it: counts would be lost */

static void ending(void *argument) {
    struct race *race = argument;
    stint_take(race->limiter, race->policy, race->key, 1, EPOCH, NULL);
    number_given_back_and_kept |= stint_thread_number < LANES_MAX;
    pthread_setspecific(ending_key, race); /* once more */
}

static void *ending_main(void *argument) {
    struct race *race = argument;
    stint_take(race->limiter, race->policy, race->key, 1, EPOCH, NULL);
    pthread_setspecific(ending_key, race);
    return NULL;
}

static void *number_of_new_thread(void *argument) {
    struct race *race = argument;
    stint_take(race->limiter, race->policy, race->key, 1, EPOCH, NULL);
    return (void *)(uintptr_t)stint_thread_number;
}

TEST(test_decisions_of_destructors) {
#ifdef STINT_THREAD_SANITIZER
    print_message("skipped: to the thread sanitizer a thread ends before its last destructors\n");
    skip();
#endif
    struct race race = {.limiter = open_anywhere(100), .key = 5};
    pthread_t thread;
    void *before, *after;

    race.policy = add_policy(race.limiter, "", 1000, 60 * TICK, 0, 0);
    assert_int_equal(pthread_key_create(&ending_key, ending), 0);
    assert_int_equal(pthread_create(&thread, NULL, number_of_new_thread, &race), 0);
    pthread_join(thread, &before);
    for (unsigned i = 0; i < ENDING; i++) {
        assert_int_equal(pthread_create(&thread, NULL, ending_main, &race), 0);
        pthread_join(thread, NULL);
    }
    assert_int_equal(pthread_create(&thread, NULL, number_of_new_thread, &race), 0);
    pthread_join(thread, &after);
    assert_int_equal((uintptr_t)after, (uintptr_t)before);
    assert_false(number_given_back_and_kept);
    struct stint_policy_stats stats = STINT_POLICY_STATS_INIT;
    assert_int_equal(stint_policy_stats_get(race.limiter, race.policy, &stats), 0);
    assert_int_equal(stats.allowed, 2 + ENDING * (1 + PTHREAD_DESTRUCTOR_ITERATIONS));
    assert_int_equal(pthread_key_delete(ending_key), 0);
    stint_close(race.limiter);
}

/* ---- Setting up ------------------------------------------------------------------------------ */

static pthread_barrier_t locked;

static void *lock_main(void *limiter) {
    assert_int_equal(stint_limiter_lock(limiter), 0);
    pthread_barrier_wait(&locked);
    usleep(20000);
    stint_limiter_unlock(limiter);
    return NULL;
}

/* Who sets up while another does waits for him. */
TEST(test_set_up_waits) {
    struct stint_limiter *limiter = open_anywhere(100);
    pthread_t thread;
    assert_int_equal(pthread_barrier_init(&locked, NULL, 2), 0);
    assert_int_equal(pthread_create(&thread, NULL, lock_main, limiter), 0);
    pthread_barrier_wait(&locked);
    add_policy(limiter, "", 1, MINUTE, 0, 0);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&locked);
    stint_close(limiter);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_turning_windows),
        cmocka_unit_test(test_turning_windows_crowded),
        cmocka_unit_test(test_turning_windows_mixed),
        cmocka_unit_test(test_claim_race),
        cmocka_unit_test(test_claim_race_needs_pending),
        cmocka_unit_test(test_stopped_claimer),
        cmocka_unit_test(test_late_claimer),
        cmocka_unit_test(test_late_add_same_key),
        cmocka_unit_test(test_stray_add),
        cmocka_unit_test(test_counters),
        cmocka_unit_test(test_numbers_of_threads),
        cmocka_unit_test(test_decisions_of_destructors),
        cmocka_unit_test(test_set_up_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
