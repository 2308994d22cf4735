/* SPDX-License-Identifier: MIT
 * Every schedule of a few calls on one key (schedules.c).
 *
 *     STINT_TEST_FACTOR=2         pairs by the plain policy have two preemptions in all tables; and
 *                                 three threads, and two calls each, of some kinds are all played
 *     STINT_SCHEDULE_SECONDS=18   only scenes that STINT_TEST_SEED draws, for so many seconds of
 *                                 the processor in each of three forms
 *     test-every-schedule --all pairs|set-up|calls|threads|more-calls|more-threads|set-up-calls|
 *                               set-up-threads PREEMPTIONS [POLICY [TABLE]]
 *         all scenes of a form, or those by one policy, or in one table: told table by table
 *     test-every-schedule --mistakes SECONDS
 *         for each guard of src/testing.h that schedules_known.h has not, scenes that show it with
 *         few preemptions, as rows of that file: the last is the best; about so many seconds each
 */
#include "fixture.h"

#include <limits.h>
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

static void end(const char *what, unsigned most) {
    schedules_end();
    print_message("%s: %" PRIu64 " scenes, %" PRIu64
                  " schedules of at most %u preemptions by %" PRIu64 " plays, %" PRIu64
                  " states, %" PRIu64 " tables, %" PRIu64 " answers, %" PRIu64 " excused, %" PRIu64
                  " scenes left\n",
                  what, totals.scenes, totals.schedules, most, totals.plays, totals.states,
                  totals.tables, totals.answers, totals.excused, totals.left);
    assert_int_equal(wrong, 0);
}

/* Of which kinds of call scenes are made, in which tables. */
struct form {
    const char *name;
    unsigned threads, calls;
    enum { NO_SET_UP, SET_UP, ALL_KINDS, SOME_KINDS } kinds;
};
static const struct form forms[] = {
    {"pairs", 2, 1, NO_SET_UP},      {"set-up", 2, 1, SET_UP},
    {"calls", 2, 2, SOME_KINDS},     {"threads", 3, 1, SOME_KINDS},
    {"more-calls", 2, 2, NO_SET_UP}, {"more-threads", 3, 1, NO_SET_UP},
    {"set-up-calls", 2, 2, SET_UP},  {"set-up-threads", 3, 1, SET_UP},
};
static const struct form pairs = {"all pairs", 2, 1, ALL_KINDS};

/* take, take 2, take up to 3, look, charge 2, take in the next window, late take, refund 1, reset,
 * another key's take; a new table, one whose last slot falls free, one token left */
static const unsigned some_kinds[] = {0, 1, 2, 7, 8, 10, 12, 14, 16, 19};
static const unsigned some_tables[] = {0, 1, 5};

/* lower the limit, raise it, remove, replace */
static const unsigned set_up_kinds[] = {17, 18, 21, 22};

/* Fills in the calls from this one on, in all ways but for who is which thread. */
static void fill(const struct form *form, struct scene *scene, unsigned call, unsigned most) {
    const bool some = form->kinds == SOME_KINDS;
    unsigned(*kinds)[SCENE_CALLS] = scene->kinds;

    if (call == form->threads * form->calls) {
        const bool sets_up = schedules_sets_up(scene);
        for (unsigned thread = 1; thread < form->threads; thread++)
            if (memcmp(kinds[thread - 1], kinds[thread], sizeof(kinds[0])) < 0)
                return;
        if (form->kinds >= ALL_KINDS || sets_up == (form->kinds == SET_UP))
            play(scene, most - (sets_up && form->kinds == ALL_KINDS));
        return;
    }
    for (unsigned i = 0; i < (some ? sizeof(some_kinds) / sizeof(unsigned) : schedule_kinds); i++) {
        kinds[call / form->calls][call % form->calls] = some ? some_kinds[i] : i;
        fill(form, scene, call + 1, most);
    }
}

static void play_form(const struct form *form, unsigned policy, unsigned table, unsigned most) {
    struct scene scene = {policy, table, form->threads, form->calls, {{0}}};
    fill(form, &scene, 0, most);
}

#define ALL_TABLES UINT_MAX

static void check_all(const struct form *form, unsigned policy, unsigned of_table, unsigned most) {
    const bool every = form->threads * form->calls == 2;
    for (unsigned i = 0; i < (every ? schedule_states : sizeof(some_tables) / sizeof(unsigned));
         i++) {
        const unsigned table = every ? i : some_tables[i];
        char what[64];
        if (of_table != ALL_TABLES && table != of_table)
            continue;
        snprintf(what, sizeof(what), "%s, policy %u, table %u", form->name, policy, table);
        begin();
        play_form(form, policy, table, most);
        end(what, most);
    }
}

/* Of all policies, or one, in all tables, or one. */
static int play_all_of(int count, char **arguments) {
    const unsigned most = (unsigned)strtoul(arguments[1], NULL, 0);
    const unsigned first = count > 2 ? (unsigned)strtoul(arguments[2], NULL, 0) : 0;
    const unsigned last = count > 2 ? first : schedule_policies - 1;
    const unsigned table = count > 3 ? (unsigned)strtoul(arguments[3], NULL, 0) : ALL_TABLES;
    bool found = false;

    for (unsigned i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        if (strcmp(forms[i].name, arguments[0]) != 0)
            continue;
        for (unsigned policy = first; policy <= last && policy < schedule_policies; policy++)
            check_all(&forms[i], policy, table, most);
        found = true;
    }
    return found ? 0 : 2;
}

/* Two threads, a call each: every pair of kinds, in every table. Calls of set-up have many steps,
 * so pairs with one have a preemption less. */
static void check_pairs(unsigned policy, unsigned most, unsigned of_table, unsigned most_of_it) {
    begin();
    for (unsigned table = 0; table < schedule_states; table++)
        play_form(&pairs, policy, table, table == of_table ? most_of_it : most);
    end("pairs", most > most_of_it ? most : most_of_it);
}

TEST(test_some_kinds) {
    for (unsigned i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
        if (forms[i].kinds == SOME_KINDS && test_rounds(1) > 1)
            check_all(&forms[i], 0, ALL_TABLES, 1);
}

/* By the plain policy, and by one that is drawn. */
TEST(test_pairs) {
    struct random random = {test_seed()};
    check_pairs(0, test_rounds(1) > 1 ? 2 : 1, (unsigned)random_below(&random, schedule_states), 2);
    check_pairs(1 + (unsigned)random_below(&random, schedule_policies - 1), 1, 0, 1);
}

static uint64_t seconds(void) {
    return environment_number("STINT_SCHEDULE_SECONDS", 0);
}

static uint64_t seconds_used(void) {
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec;
}

static struct scene drawn_scene(struct random *random, unsigned threads, unsigned calls) {
    struct scene scene = {(unsigned)random_below(random, schedule_policies),
                          (unsigned)random_below(random, schedule_states),
                          threads,
                          calls,
                          {{0}}};
    for (unsigned thread = 0; thread < threads; thread++)
        for (unsigned call = 0; call < calls; call++)
            scene.kinds[thread][call] = (unsigned)random_below(random, schedule_kinds);
    return scene;
}

/* More than can all be tried: scenes of all policies are drawn, and each is played in every
 * schedule, or in the first so many. */
static void check_drawn(unsigned threads, unsigned calls, unsigned most) {
    const uint64_t end_at = seconds_used() + seconds();
    struct random random = {seconds() != 0 ? test_seed() : 1};
    begin();
    totals.most = seconds() != 0 ? 200000 : 5000;
    while (seconds() != 0 ? seconds_used() < end_at : totals.scenes < 20) {
        const struct scene scene = drawn_scene(&random, threads, calls);
        play(&scene, most - schedules_sets_up(&scene));
    }
    end("drawn", most);
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

/* Plays a scene by all ways: what is remembered of states and what is not preempted change nothing.
 * Plays without memory are as many as the schedules that others stand for, and all have the same
 * answers and tables. */
static void check_nothing_is_lost(const struct scene *scene, unsigned most, bool without_memory) {
    struct schedules_totals first;
    for (unsigned i = 0; i < 4; i += without_memory ? 1 : 2) {
        begin();
        totals.forgets = i % 2 != 0;
        totals.all_steps = i / 2 != 0;
        play(scene, most);
        schedules_end();
        assert_int_equal(wrong, 0);
        if (i % 2 == 0)
            first.schedules = totals.schedules;
        if (i == 0)
            first.ends = totals.ends;
        assert_int_equal(totals.schedules, first.schedules);
        assert_int_equal(totals.ends, first.ends);
    }
}

TEST(test_nothing_is_lost) {
    struct random random = {test_seed()};
    for (uint64_t round = test_rounds(8); round > 0; round--) {
        const bool three = round % 4 == 0;
        struct scene scene = drawn_scene(&random, three ? 3 : 2, 1);
        /* Of those that were all played by hand: of three threads by the plain policy, of two by
         * all before the striped one. */
        scene.policy = three ? 0 : scene.policy % 10;
        scene.state = some_tables[scene.state % 3];
        for (unsigned i = 0; i < scene.threads; i++)
            scene.kinds[i][0] = some_kinds[scene.kinds[i][0] % 10];
        if (schedules_playable(&scene))
            check_nothing_is_lost(&scene, three ? 1 : 2, true);
    }
}

/* Calls of set-up have too many steps to be played without memory. The fixed scene, a removal
 * beside a take in the next window by a striped policy, has tables that are lost with a choice. */
TEST(test_nothing_of_set_up_is_lost) {
    static const struct scene fixed = {10, 9, 2, 1, {{21}, {10}}};
    struct random random = {test_seed()};

    check_nothing_is_lost(&fixed, 2, false);
    for (uint64_t round = test_rounds(8); round > 0; round--) {
        struct scene scene = drawn_scene(&random, 2, 1);
        scene.kinds[round % 2][0] = set_up_kinds[scene.kinds[0][0] % 4];
        scene.policy = scene.policy == fixed.policy ? 0 : scene.policy;
        if (schedules_playable(&scene))
            check_nothing_is_lost(&scene, 2, false);
    }
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

/* Each known mistake is found, and takes so many preemptions in its scene, which holds without,
 * with one more, too. */
TEST(test_known_mistakes) {
    unsigned missed = 0;
    begin();
    for (unsigned i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        const guard_set removed = GUARD_BIT(known[i].guard);
        play(&known[i].scene, known[i].preemptions + 1);
        if (schedules_play(&known[i].scene, known[i].preemptions + 1, removed, &totals, NULL) ==
                NULL ||
            totals.taken != known[i].preemptions) {
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

static void try_scene(const struct scene *scene, unsigned most, guard_set removed,
                      struct shown *best) {
    if (!schedules_playable(scene) ||
        (totals.most = 3000, schedules_play(scene, most, removed, &totals, NULL) == NULL))
        return;
    totals.most = 0;
    if (schedules_play(scene, most, 0, &totals, NULL) != NULL)
        return; /* it is the judge who is wrong */
    const char *broken = schedules_play(scene, most, removed, &totals, NULL);
    if (broken != NULL && (best->broken == NULL || totals.taken < best->preemptions))
        *best = (struct shown){*scene, totals.taken, broken};
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
    } drawn[] = {{2, 1, 1}, {2, 1, 2}, {2, 2, 1}, {3, 1, 1}, {2, 2, 2}, {3, 1, 2}};
    const guard_set removed = GUARD_BIT(guard);
    struct random random = {guard};
    struct shown best = {0};

    for (unsigned i = 0; (best.broken == NULL || best.preemptions > 0) && seconds_used() < end_at;
         i++) {
        const unsigned form = i % 6, before = best.broken == NULL ? UINT32_MAX : best.preemptions;
        const struct scene scene = drawn_scene(&random, drawn[form].threads, drawn[form].calls);
        try_scene(&scene, drawn[form].preemptions, removed, &best);
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
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_some_kinds),
        cmocka_unit_test(test_known_mistakes),
        cmocka_unit_test(test_nothing_is_lost),
        cmocka_unit_test(test_nothing_of_set_up_is_lost),
        cmocka_unit_test(test_three_preemptions),
        cmocka_unit_test(test_two_calls_each),
        cmocka_unit_test(test_three_threads),
    };
    if (argc == 3 && strcmp(argv[1], "--mistakes") == 0)
        return find_mistakes(strtoul(argv[2], NULL, 0));
    if (argc >= 4 && strcmp(argv[1], "--all") == 0)
        return play_all_of(argc - 2, argv + 2);
#ifdef STINT_THREAD_SANITIZER
    print_message("skipped: the thread sanitizer does not know other stacks\n");
    return 77;
#endif
    return seconds() != 0 ? cmocka_run_group_tests_name("drawn", drawn, NULL, NULL)
                          : cmocka_run_group_tests(tests, NULL, NULL);
}
