/* SPDX-License-Identifier: MIT
 * Every schedule of a few calls on one key (schedules.c).
 *
 *     STINT_PREEMPTIONS=3         of pairs by the plain policy at most; by others one less
 *     STINT_SCHEDULE_SECONDS=18   only scenes that STINT_TEST_SEED draws, for so many seconds of
 *                                 the processor in each of three forms
 *     test-every-schedule --mistakes SECONDS
 *         for each guard of src/testing.h that schedules_known.h has not, scenes that show it with
 *         few preemptions, as rows of that file: the last is the best; about so many seconds each
 */
#include "fixture.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "random.h"
#include "schedules.h"
#include "testing.h"

enum { WRONG_SHOWN = 5 };

static struct schedules_totals totals;
static unsigned wrong;

static void play(const struct scene *scene, unsigned preemptions) {
    if (schedules_playable(scene) &&
        schedules_play(scene, preemptions, 0, &totals, wrong < WRONG_SHOWN ? stderr : NULL) != NULL)
        wrong++;
}

static void begin(void) {
    totals = (struct schedules_totals){0};
    wrong = 0;
    schedules_begin();
}

static void end(unsigned most) {
    schedules_end();
    print_message("%" PRIu64 " scenes, %" PRIu64 " schedules of at most %u preemptions, %" PRIu64
                  " steps, %" PRIu64 " states, %" PRIu64 " excused, %" PRIu64 " scenes left\n",
                  totals.scenes, totals.schedules, most, totals.steps, totals.states,
                  totals.excused, totals.left);
    assert_int_equal(wrong, 0);
}

/* Two threads, a call each: every pair of kinds, in every table. Calls of set-up have many
 * steps, so pairs with one have a preemption less. */
static void check_pairs(unsigned first_policy, unsigned end_policy, unsigned most) {
    begin();
    for (unsigned policy = first_policy; policy < end_policy; policy++) {
        for (unsigned state = 0; state < schedule_states; state++) {
            for (unsigned one = 0; one < schedule_kinds; one++) {
                for (unsigned other = 0; other <= one; other++) {
                    struct scene scene = {policy, state, 2, 1, {{one}, {other}}};
                    play(&scene, most - schedules_sets_up(&scene));
                }
            }
        }
    }
    end(most);
}

static unsigned preemptions(void) {
    return (unsigned)environment_number("STINT_PREEMPTIONS", 1);
}

TEST(test_pairs) {
    check_pairs(0, 1, preemptions());
}

/* By one that is drawn; with more preemptions, which take long, by all. */
TEST(test_pairs_of_other_policies) {
    struct random random = {test_seed()};
    const unsigned drawn = 1 + (unsigned)random_below(&random, schedule_policies - 1);
    const unsigned most = preemptions() > 1 ? preemptions() - 1 : 1;
    const bool all = preemptions() > 1;
    check_pairs(all ? 1 : drawn, all ? schedule_policies : drawn + 1, most);
}

static uint64_t seconds(void) {
    return environment_number("STINT_SCHEDULE_SECONDS", 0);
}

static uint64_t seconds_used(void) {
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec;
}

/* More than can all be tried: scenes of all policies are drawn, and each is played in every
 * schedule, or in the first so many. */
static void check_drawn(unsigned threads, unsigned calls, unsigned most) {
    const uint64_t end_at = seconds_used() + seconds();
    struct random random = {seconds() != 0 ? test_seed() : 1};
    begin();
    totals.most = seconds() != 0 ? 200000 : 5000;
    while (seconds() != 0 ? seconds_used() < end_at : totals.scenes < 20) {
        struct scene scene = {(unsigned)random_below(&random, schedule_policies),
                              (unsigned)random_below(&random, schedule_states),
                              threads,
                              calls,
                              {{0}}};
        for (unsigned thread = 0; thread < threads; thread++)
            for (unsigned call = 0; call < calls; call++)
                scene.kinds[thread][call] = (unsigned)random_below(&random, schedule_kinds);
        play(&scene, most - schedules_sets_up(&scene));
    }
    end(most);
}

TEST(test_three_preemptions) {
    check_drawn(2, 1, 3);
}

TEST(test_two_calls_each) {
    check_drawn(2, 2, 2);
}

TEST(test_three_threads) {
    check_drawn(3, 1, 2);
}

/* ---- Known mistakes -------------------------------------------------------------------------- */

static const struct {
    const char *name;
    enum stint_test_guard guard;
    unsigned preemptions;
    struct scene scene;
} known[] = {
#define KNOWN(guard, preemptions, policy, state, threads, calls, ...)                              \
    {#guard, GUARD_##guard, preemptions, {policy, state, threads, calls, {__VA_ARGS__}}},
#include "schedules_known.h"
#undef KNOWN
};

/* Each known mistake is found, and takes so many preemptions in its scene, which holds without. */
TEST(test_known_mistakes) {
    unsigned missed = 0;
    begin();
    for (unsigned i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        const uint64_t removed = UINT64_C(1) << known[i].guard;
        unsigned took = 0;
        play(&known[i].scene, known[i].preemptions);
        while (took <= known[i].preemptions &&
               schedules_play(&known[i].scene, took, removed, &totals, NULL) == NULL)
            took++;
        if (took != known[i].preemptions) {
            print_error("%s: not found with just %u preemptions\n", known[i].name,
                        known[i].preemptions);
            missed++;
        }
    }
    schedules_end();
    assert_int_equal(missed, 0);
    assert_int_equal(wrong, 0);
}

static const struct {
    const char *name, *mistake;
} guards[] = {
#define NAME(name, mistake) {#name, mistake},
    STINT_TEST_GUARDS(NAME)
#undef NAME
};

/* A scene that shows a mistake, and the fewest preemptions of it that do. */
struct shown {
    struct scene scene;
    unsigned preemptions;
    const char *broken; /* NULL: none was found */
};

static void try_scene(const struct scene *scene, unsigned most, uint64_t removed,
                      struct shown *best) {
    if (!schedules_playable(scene) ||
        (totals.most = 3000, schedules_play(scene, most, removed, &totals, NULL) == NULL))
        return;
    totals.most = 0;
    if (schedules_play(scene, most, 0, &totals, NULL) != NULL)
        return; /* it is the judge who is wrong */
    for (unsigned few = 0; few <= most && (best->broken == NULL || few < best->preemptions);
         few++) {
        const char *broken = schedules_play(scene, few, removed, &totals, NULL);
        if (broken != NULL)
            *best = (struct shown){*scene, few, broken};
    }
}

static void print_shown(const struct shown *shown, unsigned guard) {
    const struct scene *scene = &shown->scene;
    char text[512];
    schedules_tell(scene, text, sizeof(text));
    printf("/* %s: %s */\nKNOWN(%s, %u, %u, %u, %u, %u", text, shown->broken, guards[guard].name,
           shown->preemptions, scene->policy, scene->state, scene->threads, scene->calls);
    for (unsigned thread = 0; thread < scene->threads; thread++) {
        printf(", {%u", scene->kinds[thread][0]);
        for (unsigned call = 1; call < scene->calls; call++)
            printf(", %u", scene->kinds[thread][call]);
        printf("}");
    }
    printf(")\n");
}

/* Draws scenes. Tells as soon as one is better, as what comes next may
 * crash. */
static void find_mistake(unsigned guard, uint64_t end_at) {
    static const struct {
        unsigned threads, calls, preemptions;
    } forms[] = {{2, 1, 1}, {2, 1, 2}, {2, 2, 1}, {3, 1, 1}, {2, 2, 2}, {3, 1, 2}};
    const uint64_t removed = UINT64_C(1) << guard;
    struct random random = {guard};
    struct shown best = {0};

    for (unsigned i = 0; (best.broken == NULL || best.preemptions > 0) && seconds_used() < end_at;
         i++) {
        const unsigned form = i % 6, before = best.broken == NULL ? UINT32_MAX : best.preemptions;
        struct scene scene = {(unsigned)random_below(&random, schedule_policies),
                              (unsigned)random_below(&random, schedule_states),
                              forms[form].threads,
                              forms[form].calls,
                              {{0}}};
        for (unsigned thread = 0; thread < scene.threads; thread++)
            for (unsigned call = 0; call < scene.calls; call++)
                scene.kinds[thread][call] = (unsigned)random_below(&random, schedule_kinds);
        try_scene(&scene, forms[form].preemptions, removed, &best);
        if (best.broken != NULL && best.preemptions < before) {
            print_shown(&best, guard);
            fflush(stdout);
        }
    }
}

static bool is_known(unsigned guard) {
    for (unsigned i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (known[i].guard == guard)
            return true;
    return false;
}

/* Each in a process of its own, which may crash. */
static int find_mistakes(rlim_t seconds) {
    for (unsigned guard = 0; guard < GUARDS_END; guard++) {
        int status = 0;
        if (is_known(guard))
            continue;
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            const struct rlimit limit = {seconds + 2, seconds + 2};
            setrlimit(RLIMIT_CPU, &limit);
            begin();
            find_mistake(guard, seconds);
            fflush(stdout);
            _exit(0);
        }
        if (child < 0 || waitpid(child, &status, 0) != child)
            return 2;
    }
    return 0;
}

int main(int argc, char **argv) {
    const struct CMUnitTest drawn[] = {
        cmocka_unit_test(test_three_preemptions),
        cmocka_unit_test(test_two_calls_each),
        cmocka_unit_test(test_three_threads),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs),          cmocka_unit_test(test_pairs_of_other_policies),
        cmocka_unit_test(test_known_mistakes), cmocka_unit_test(test_three_preemptions),
        cmocka_unit_test(test_two_calls_each), cmocka_unit_test(test_three_threads),
    };
    if (argc == 3 && strcmp(argv[1], "--mistakes") == 0)
        return find_mistakes(strtoul(argv[2], NULL, 0));
#ifdef STINT_THREAD_SANITIZER
    print_message("skipped: the thread sanitizer does not know other stacks\n");
    return 77;
#endif
    return seconds() != 0 ? cmocka_run_group_tests_name("drawn", drawn, NULL, NULL)
                          : cmocka_run_group_tests(tests, NULL, NULL);
}
