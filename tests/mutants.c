/* SPDX-License-Identifier: MIT
 * The library with one of its guards taken away (src/testing.h), for each of them: the interleavings of
 * mistakes.c and the random histories of history.c must find out within seconds. Prints the table.
 *
 * Each mutant runs in a process of its own, as it may crash or hang. */
#ifdef NDEBUG
#error "tests need their assertions"
#endif

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "history.h"
#include "mistakes.h"
#include "random.h"
#include "testing.h"

enum {
    HISTORIES_MOST = 300000,
    HISTORIES_MORE =
        5000,          /* of a mutant that was found out before, or that nothing will find out */
    SECONDS_MOST = 40, /* of histories */
    SECONDS_HUNG = 60,
};

static const char *const names[] = {
#define NAME(name, mistake) #name,
    STINT_TEST_GUARDS(NAME)
#undef NAME
};

/* Guards without which no promise is broken, and why they stand. */
static const struct {
    enum stint_test_guard guard;
    const char *why;
} harmless[] = {
    /* If the state was another's, the swap that follows compares the tag; or this thread gives up a
     * claim that would have stood, and starts over. */
    {GUARD_RIVAL_TAG, "a claim may be given up for nothing"},
    /* Of two claims each may cancel the other, by swaps that compare; both start over. Every round
     * uses up slots until the next tick, so it ends. */
    {GUARD_RIVAL_EARLIER, "both of two claims may be given up"},
    /* The claimed slot was never used, so when it was claimed no slot of a later line was the key's
     * (I5); and who claims one there later looks at this claim. */
    {GUARD_SHORT_UNUSED, "the long way round would come to the same"},
};

static const char *harmless_why(unsigned guard) {
    for (size_t i = 0; i < sizeof(harmless) / sizeof(harmless[0]); i++)
        if (harmless[i].guard == guard)
            return harmless[i].why;
    return NULL;
}

/* What a mutant's process tells. */
struct told {
    uint64_t tried; /* histories, or plays of an interleaving */
    uint64_t ns;
    const char *broken; /* the same address in both processes; NULL: nothing was found yet */
};

static uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void tell(int to, const struct told *told) {
    if (write(to, told, sizeof(*told)) != (ssize_t)sizeof(*told))
        _exit(1);
}

/* Random histories of a mutant. The last that is told is what it came to. */
static void run_histories(int to, unsigned guard, uint64_t seed, uint64_t most) {
    struct history_totals totals = {0};
    uint64_t started = now_ns();
    struct told told = {0};

    stint_test_removed = UINT64_C(1) << guard;
    while (told.tried < most && told.broken == NULL &&
           told.ns < SECONDS_MOST * UINT64_C(1000000000)) {
        told.tried++;
        told.ns = now_ns() - started;
        tell(to, &told); /* for the case that it crashes */
        if (!history_holds(seed + told.tried - 1, HISTORY_SCHEDULED, &totals, NULL))
            told.broken = history_wrong();
    }
    told.ns = now_ns() - started;
    tell(to, &told);
}

static void run_mistake(int to, const struct mistake *mistake) {
    uint64_t started = now_ns();
    struct outcome outcome = mistake_play(mistake, mistake->guards);
    struct told told = {outcome.plays, now_ns() - started, outcome.broken};
    tell(to, &told);
}

/* Runs a mutant in a process of its own: an interleaving, or else histories. */
static struct told run_mutant(unsigned guard, const struct mistake *mistake, uint64_t seed,
                              uint64_t most) {
    int ends[2], status = 0;
    struct told told = {0}, last;

    fflush(stdout);
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(SECONDS_HUNG);
        signal(SIGSEGV, SIG_DFL); /* cmocka's handler would print it as this test's */
        signal(SIGBUS, SIG_DFL);
        close(ends[0]);
        if (mistake != NULL)
            run_mistake(ends[1], mistake);
        else
            run_histories(ends[1], guard, seed, most);
        _exit(0);
    }
    close(ends[1]);
    while (read(ends[0], &last, sizeof(last)) == (ssize_t)sizeof(last))
        told = last;
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status))
        told.broken = WTERMSIG(status) == SIGALRM ? "does not end" : "crashes";
    return told;
}

static double ms(const struct told *told) {
    return (double)told->ns / 1e6;
}

/* Returns whether the mutant was found out. */
static bool find_out(unsigned guard, uint64_t seed) {
    const char *why = harmless_why(guard);
    bool found = false;

    for (unsigned i = 0; i < mistake_count; i++) {
        const struct mistake *mistake = &mistakes[i];
        if ((mistake->guards >> guard & 1) == 0 || mistake->main != guard)
            continue;
        struct told told = run_mutant(guard, mistake, 0, 0);
        if (told.broken != NULL)
            print_message("%-16s  interleaving '%s', %" PRIu64 " plays, %.1f ms: %s\n",
                          names[guard], mistake->name, told.tried, ms(&told), told.broken);
        found |= told.broken != NULL;
    }
    uint64_t most = why != NULL || found ? HISTORIES_MORE : HISTORIES_MOST;
    struct told told = run_mutant(guard, NULL, seed, most);
    if (told.broken != NULL)
        print_message("%-16s  %" PRIu64 " histories, %.1f ms: %s\n", names[guard], told.tried,
                      ms(&told), told.broken);
    found |= told.broken != NULL;
    if (!found)
        print_message("%-16s  not in %" PRIu64 " histories: %s\n", names[guard], told.tried,
                      why != NULL ? why : "NOT FOUND");
    return found;
}

static void test_mutants(void **state) {
    (void)state;
    uint64_t seed = environment_number("STINT_TEST_SEED", 1);
    unsigned wrong = 0, killed = 0;

    print_message("STINT_TEST_SEED=%" PRIu64 "\n", seed);
    for (unsigned guard = 0; guard < GUARDS_END; guard++) {
        bool found = find_out(guard, seed);
        killed += found;
        wrong += found == (harmless_why(guard) != NULL);
    }
    print_message("%u mutants, %u found out\n", (unsigned)GUARDS_END, killed);
    assert_int_equal(wrong, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mutants)};
    return cmocka_run_group_tests_name("mutants", tests, NULL, NULL);
}
