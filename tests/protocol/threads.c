/* SPDX-License-Identifier: MIT
 * What threads have of their own: lanes of counters, and the numbers that choose them. (All
 * promises beside threads: the world, soak.c. Who waits for the lock of set-up: deaths.c.) */
#include "limiter/counters.h" /* before cmocka, which defines fail() as well */

#include "team.h"

#include <sys/wait.h>
#include <unistd.h>

/* A key of a plain policy. */
struct race {
    struct stint_limiter *limiter;
    uint32_t policy;
    uint64_t key;
};

static struct race race_open(uint64_t max_entries, uint64_t key, uint32_t limit, uint64_t window) {
    struct race race = {.limiter = open_anywhere(max_entries), .key = key};
    race.policy = add_policy(race.limiter, "", limit, window, 0, 0);
    return race;
}

/* ---- Clocks --------------------------------------------------------------------------------- */

/* No two readings of it are alike. */
static uint64_t counting_clock(void) {
    static uint64_t readings = EPOCH;
    return __atomic_add_fetch(&readings, 1, __ATOMIC_SEQ_CST);
}

struct pairs {
    struct stint_limiter *limiter;
    uint32_t policy;
    uint64_t keys, refused;
};

/* Two threads take one token each of a key that has two. */
static void take_each(unsigned member, void *shared) {
    struct pairs *pairs = shared;
    for (uint64_t i = 0; i < pairs->keys; i++) {
        const stint_key key = number_key(pairs->limiter, i * THREADS / 2 + member / 2);
        if (!stint_take(pairs->limiter, pairs->policy, key, 1, STINT_NOW, NULL))
            __atomic_add_fetch(&pairs->refused, 1, __ATOMIC_RELAXED);
    }
}

/* B: a bucket refuses nobody because another thread read the clock later and was faster; nor is a
 * key banned that asks for no more than it has (chatmail/filtermail#167). */
TEST(test_full_buckets) {
    struct pairs pairs = {.keys = test_rounds(20000)};
    struct stint_options options = fixture_options(pairs.keys * THREADS, STINT_FULL_REFUSE);
    options.clock = counting_clock;
    pairs.limiter = open_with(&options);
    pairs.policy = add_text(pairs.limiter, "2/h burst=2 ban=1h");
    lose_cores(true);
    run_team(take_each, &pairs);
    lose_cores(false);
    assert_int_equal(pairs.refused, 0);
    stint_close(pairs.limiter);
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
    struct race race = race_open(100, 5, 1000, 60 * TICK);
    for (unsigned i = 0; i < MANY; i += AT_ONCE) {
        pthread_t threads[AT_ONCE];
        for (unsigned j = 0; j < AT_ONCE; j++)
            assert_int_equal(pthread_create(&threads[j], NULL, counting_main, &race), 0);
        for (unsigned j = 0; j < AT_ONCE; j++)
            pthread_join(threads[j], NULL);
    }
    const struct stint_policy_stats stats = get_policy_stats(race.limiter, race.policy);
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
    alive.race = race_open(100, 5, 1000, 60 * TICK);
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
    struct race race = race_open(100, 5, 1000, 60 * TICK);
    pthread_t thread;
    void *before, *after;

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
    assert_int_equal(get_policy_stats(race.limiter, race.policy).allowed,
                     2 + ENDING * (1 + PTHREAD_DESTRUCTOR_ITERATIONS));
    assert_int_equal(pthread_key_delete(ending_key), 0);
    stint_close(race.limiter);
}
