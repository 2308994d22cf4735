/* SPDX-License-Identifier: MIT
 * Every schedule of a few calls on one key (schedules.c). The suite stress allows more
 * preemptions, and plays more scenes (STINT_TEST_FACTOR).
 *
 *     STINT_PREEMPTIONS=3   of pairs by the plain policy at most; by others one less
 *     STINT_SCENE_SEED=7    draw other scenes of more calls than two
 *     test-every-schedule --mistakes SECONDS
 *         for each guard of src/testing.h the scene that shows it with the fewest preemptions,
 *         as rows of schedules_known.h; at most so many seconds of each */
#include "fixture.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "random.h"
#include "schedules.h"
#include "testing.h"

enum { WRONG_SHOWN = 5 };

static struct schedules_totals totals;
static unsigned wrong;

static bool stress(void) {
    return test_rounds(1) > 1;
}

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
                  " steps, %" PRIu64 " excused\n",
                  totals.scenes, totals.schedules, most, totals.steps, totals.excused);
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
    return (unsigned)environment_number("STINT_PREEMPTIONS", stress() ? 2 : 1);
}

TEST(test_pairs) {
    check_pairs(0, 1, preemptions());
}

/* All of them in the suite stress, else one that is drawn. */
TEST(test_pairs_of_other_policies) {
    struct random random = {test_seed()};
    const unsigned drawn = 1 + (unsigned)random_below(&random, schedule_policies - 1);
    const unsigned most = preemptions() > 1 ? preemptions() - 1 : 1;
    check_pairs(stress() ? 1 : drawn, stress() ? schedule_policies : drawn + 1, most);
}

/* More calls than can all be tried: scenes are drawn, and each is played in every schedule. */
static void check_drawn(unsigned threads, unsigned calls, uint64_t rounds) {
    struct random random = {environment_number("STINT_SCENE_SEED", 1)};
    begin();
    for (uint64_t i = 0; i < test_rounds(rounds); i++) {
        struct scene scene = {
            0, (unsigned)random_below(&random, schedule_states), threads, calls, {{0}}};
        if (i % 2 == 1)
            scene.policy = (unsigned)random_below(&random, schedule_policies);
        for (unsigned thread = 0; thread < threads; thread++)
            for (unsigned call = 0; call < calls; call++)
                scene.kinds[thread][call] = (unsigned)random_below(&random, schedule_kinds);
        if (!schedules_sets_up(&scene) || i % 10 == 0)
            play(&scene, 2);
    }
    end(2);
}

TEST(test_two_calls_each) {
    check_drawn(2, 2, 20);
}

TEST(test_three_threads) {
    check_drawn(3, 1, 10);
}

/* ---- Known mistakes -------------------------------------------------------------------------- */

static const struct {
    const char *name;
    enum stint_test_guard guard;
    unsigned preemptions;
    struct scene scene;
} known[] = {
#define KNOWN(guard, preemptions, policy, state, one, other)                                       \
    {#guard, GUARD_##guard, preemptions, {policy, state, 2, 1, {{one}, {other}}}},
#include "schedules_known.h"
#undef KNOWN
};

/* Each known mistake is found, and takes so many preemptions in its scene. */
TEST(test_known_mistakes) {
    unsigned missed = 0;
    begin();
    for (unsigned i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        const uint64_t removed = UINT64_C(1) << known[i].guard;
        unsigned took = 0;
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
}

static const struct {
    const char *name, *mistake;
} guards[] = {
#define NAME(name, mistake) {#name, mistake},
    STINT_TEST_GUARDS(NAME)
#undef NAME
};

/* Prints the first pair of calls that shows the mistake. Pairs of set-up last: they take long. */
static bool find_mistake(unsigned guard, unsigned most) {
    for (unsigned set_up = 0; set_up < (most == 0 ? 2 : 1); set_up++) {
        for (unsigned policy = 0; policy < schedule_policies; policy++) {
            for (unsigned state = 0; state < schedule_states; state++) {
                for (unsigned pair = 0; pair < schedule_kinds * schedule_kinds; pair++) {
                    const unsigned one = pair / schedule_kinds, other = pair % schedule_kinds;
                    struct scene scene = {policy, state, 2, 1, {{one}, {other}}};
                    if (other > one || !schedules_playable(&scene) ||
                        schedules_sets_up(&scene) != (set_up == 1))
                        continue;
                    const char *broken =
                        schedules_play(&scene, most, UINT64_C(1) << guard, &totals, NULL);
                    if (broken == NULL)
                        continue;
                    char text[512];
                    schedules_tell(&scene, text, sizeof(text));
                    printf("/* %s: %s */\nKNOWN(%s, %u, %u, %u, %u, %u)\n", text, broken,
                           guards[guard].name, most, policy, state, one, other);
                    return true;
                }
            }
        }
    }
    return false;
}

/* Each in a process of its own, which may crash. */
static int find_mistakes(rlim_t seconds) {
    for (unsigned guard = 0; guard < GUARDS_END; guard++) {
        int status = 0;
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            const struct rlimit limit = {seconds, seconds};
            setrlimit(RLIMIT_CPU, &limit);
            begin();
            bool found = false;
            for (unsigned most = 0; most <= 2 && !found; most++)
                found = find_mistake(guard, most);
            fflush(stdout);
            _exit(found ? 0 : 1);
        }
        if (child < 0 || waitpid(child, &status, 0) != child)
            return 2;
        if (status != 0)
            printf("/* %s: %s */\n", guards[guard].name,
                   WIFSIGNALED(status) ? "not in the time, or it crashes" : "not found");
    }
    return 0;
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs),          cmocka_unit_test(test_pairs_of_other_policies),
        cmocka_unit_test(test_two_calls_each), cmocka_unit_test(test_three_threads),
        cmocka_unit_test(test_known_mistakes),
    };
    if (argc == 3 && strcmp(argv[1], "--mistakes") == 0)
        return find_mistakes(strtoul(argv[2], NULL, 0));
#ifdef STINT_THREAD_SANITIZER
    print_message("skipped: the thread sanitizer does not know other stacks\n");
    return 77;
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
