/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * A process dies before each single atomic operation of each kind of call, on a table that others
 * share. Whoever comes after it is held up by nothing, is granted what is left and never more, and
 * finds at most what the dead was about to take gone (promises A, B, E). Set-up that was begun is
 * finished or undone. */
#include "limiter.h" /* before cmocka, which defines fail() as well */

#include "fixture.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "testing.h"

enum { LIMIT = 5, COST = 2, MAX_KEYS = 40, MANY = 400 };

static void *memory;
static size_t size;

struct scene {
    struct stint_limiter *limiter;
    uint32_t plain, striped, carries, first, month;
    stint_key key; /* whose requests the dead was deciding */
};

static struct stint_limiter *attach(enum stint_on_full on_full) {
    struct stint_options options = fixture_options(MAX_KEYS, on_full);
    struct stint_limiter *limiter;
    if (stint_open_in(&options, memory, size, &limiter) != 0)
        fail_msg("%s", stint_reason());
    return limiter;
}

static void add_policies(struct scene *scene) {
    scene->plain = add_policy(scene->limiter, "plain", LIMIT, MINUTE, 0, 0);
    struct stint_policy policy = make_policy("striped", 8, MINUTE, 0, 0);
    policy.stripes = 4;
    scene->striped = add_made(scene->limiter, &policy);
    policy = make_policy("carries", LIMIT, MINUTE, 0, 0);
    policy.capacity = 2 * LIMIT;
    scene->carries = add_made(scene->limiter, &policy);
    scene->first = add_policy(scene->limiter, "first", LIMIT, MINUTE, 0, STINT_START_FIRST);
    policy = make_policy("month", LIMIT, 0, 0, 0);
    policy.calendar = STINT_CALENDAR_MONTH;
    scene->month = add_made(scene->limiter, &policy);
}

static void take(const struct scene *scene) {
    (void)stint_take(scene->limiter, scene->plain, scene->key, 1, STINT_NOW, NULL);
}

/* ---- What may be under way when a process dies ----------------------------------------------- */

static void nothing(const struct scene *scene) {
    (void)scene;
}

static void take_until_refused(const struct scene *scene) {
    for (unsigned i = 0; i <= LIMIT; i++)
        take(scene);
}

static void last_window(const struct scene *scene) {
    take_until_refused(scene);
    test_time += MINUTE;
}

/* All slots hold keys of windows that are over, so that claims take slots over. */
static void stale_table(const struct scene *scene) {
    for (uint64_t i = 0; i < MANY; i++)
        (void)stint_take(scene->limiter, scene->plain, number_key(scene->limiter, 1000 + i), 1,
                         STINT_NOW, NULL);
    test_time += MINUTE;
}

static void full_table(const struct scene *scene) {
    for (uint64_t i = 0; i < MANY; i++)
        (void)stint_take(scene->limiter, scene->plain, number_key(scene->limiter, 1000 + i), LIMIT,
                         STINT_NOW, NULL);
}

static void take_cost(const struct scene *scene) {
    (void)stint_take(scene->limiter, scene->plain, scene->key, COST, STINT_NOW, NULL);
}

static void take_striped(const struct scene *scene) {
    (void)stint_take(scene->limiter, scene->striped, scene->key, COST, STINT_NOW, NULL);
}

static void take_first(const struct scene *scene) {
    (void)stint_take(scene->limiter, scene->first, scene->key, 1, STINT_NOW, NULL);
    (void)stint_take(scene->limiter, scene->month, scene->key, 1, STINT_NOW, NULL);
}

/* Their windows are over: the next requests begin others. */
static void last_first(const struct scene *scene) {
    take_first(scene);
    test_time += 40 * DAY;
}

static void take_carrying(const struct scene *scene) {
    (void)stint_take(scene->limiter, scene->carries, scene->key, COST, STINT_NOW, NULL);
}

static void take_all(const struct scene *scene) {
    const struct stint_request requests[] = {
        {.key = scene->key, .policy = scene->plain, .cost = 1},
        {.key = scene->key, .policy = scene->carries, .cost = 1},
        {.key = scene->key, .policy = scene->striped, .cost = 1},
    };
    struct stint_verdict verdicts[3];
    (void)stint_decide_all(scene->limiter, requests, 3, STINT_NOW, verdicts);
}

static void take_batch(const struct scene *scene) {
    const struct stint_request requests[] = {
        {.key = scene->key, .policy = scene->plain, .cost = 1},
        {.key = scene->key, .policy = scene->plain, .cost = 1},
    };
    (void)stint_decide_batch(scene->limiter, requests, 2, STINT_NOW, NULL);
}

static void take_and_refund(const struct scene *scene) {
    struct stint_verdict verdict;
    if (stint_take(scene->limiter, scene->plain, scene->key, COST, STINT_NOW, &verdict))
        (void)stint_refund(scene->limiter, scene->plain, scene->key, COST, verdict.window);
}

static void reset(const struct scene *scene) {
    stint_reset(scene->limiter, scene->plain, scene->key);
}

static void add_another_policy(const struct scene *scene) {
    struct stint_policy policy = make_policy("another", 7, HOUR, 0, 0);
    (void)policy_added(scene->limiter, &policy);
}

static void change_policy(const struct scene *scene) {
    struct stint_policy policy = make_policy("plain", LIMIT - 1, MINUTE, 0, 0);
    (void)stint_policy_change(scene->limiter, scene->plain, &policy);
    policy = make_policy("carries", 3 * LIMIT, MINUTE, 0, 0);
    (void)stint_policy_change(scene->limiter, scene->carries, &policy);
}

static void attach_and_take(const struct scene *scene) {
    struct scene own = *scene;
    own.limiter = attach(STINT_FULL_ADMIT);
    take(&own);
    stint_close(own.limiter);
}

static const struct act {
    const char *name;
    void (*before)(const struct scene *scene);
    void (*act)(const struct scene *scene);
    uint32_t tokens;        /* of the plain policy that the dead may have taken with him */
    uint32_t before_tokens; /* that are used in the present window before */
    enum stint_on_full on_full;
    bool replaces;
    bool locks; /* it may die with the lock for set-up */
} acts[] = {
    {"a new key", nothing, take, 1, 0, STINT_FULL_REFUSE, false, false},
    {"a new key and a cost", nothing, take_cost, COST, 0, STINT_FULL_REFUSE, false, false},
    {"a key that is there", take, take, 1, 1, STINT_FULL_REFUSE, false, false},
    {"up to a refusal", nothing, take_until_refused, LIMIT, 0, STINT_FULL_REFUSE, false, false},
    {"a new window", last_window, take, 1, 0, STINT_FULL_REFUSE, false, false},
    {"a new window and a cost", last_window, take_cost, COST, 0, STINT_FULL_REFUSE, false, false},
    {"a slot that is taken over", stale_table, take, 1, 0, STINT_FULL_REFUSE, false, false},
    {"a slot that is replaced", full_table, take, 1, 0, STINT_FULL_REPLACE, true, false},
    {"stripes", nothing, take_striped, 0, 0, STINT_FULL_REFUSE, false, false},
    {"first requests, and a month", nothing, take_first, 0, 0, STINT_FULL_REFUSE, false, false},
    {"a window after the first", last_first, take_first, 0, 0, STINT_FULL_REFUSE, false, false},
    {"slots for first requests", stale_table, take_first, 0, 0, STINT_FULL_REFUSE, false, false},
    {"unused tokens roll over", nothing, take_carrying, 0, 0, STINT_FULL_REFUSE, false, false},
    {"several as one", nothing, take_all, 1, 0, STINT_FULL_REFUSE, false, false},
    {"a batch", nothing, take_batch, 2, 0, STINT_FULL_REFUSE, false, false},
    {"a refund", take, take_and_refund, COST, 1, STINT_FULL_REFUSE, false, false},
    {"a policy that is added", nothing, add_another_policy, 0, 0, STINT_FULL_REFUSE, false, true},
    {"attaching", nothing, attach_and_take, 1, 0, STINT_FULL_REFUSE, false, true},
};

/* ---- The death ------------------------------------------------------------------------------- */

static uint64_t steps_left;

static void die_at_step(const void *word) {
    (void)word;
    if (steps_left-- == 0)
        (void)raise(SIGKILL);
}

static void stop_at_step(const void *word) {
    (void)word;
    if (steps_left-- == 0)
        (void)raise(SIGSTOP);
}

/* What a maker of a table asks the system for are steps, too (the linker puts these in the place of
 * the C library's). */
ssize_t __real_getrandom(void *bytes, size_t length, unsigned flags);
ssize_t __wrap_getrandom(void *bytes, size_t length, unsigned flags);
int __real_madvise(void *address, size_t length, int advice);
int __wrap_madvise(void *address, size_t length, int advice);

ssize_t __wrap_getrandom(void *bytes, size_t length, unsigned flags) {
    STEP(bytes);
    return __real_getrandom(bytes, length, flags);
}

int __wrap_madvise(void *address, size_t length, int advice) {
    STEP(address);
    return __real_madvise(address, length, advice);
}

/* Runs the act in a process that dies before its step of that number. Returns false if it came to
 * its end. */
static bool die(const struct scene *scene, void (*act)(const struct scene *scene), uint64_t step) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        steps_left = step;
        stint_test_step = die_at_step;
        act(scene);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status)) {
        assert_int_equal(WEXITSTATUS(status), 0);
        return false;
    }
    assert_int_equal(WTERMSIG(status), SIGKILL);
    return true;
}

static void scene_begin(struct scene *scene, enum stint_on_full on_full) {
    test_time = T0;
    memset(memory, 0, size);
    scene->limiter = attach(on_full);
    scene->key = number_key(scene->limiter, 7);
    add_policies(scene);
}

/* Takes one by one until refused. */
static uint32_t granted_after(const struct scene *scene, uint32_t policy, stint_key key) {
    uint32_t granted = 0;
    while (granted < 100 && stint_take(scene->limiter, policy, key, 1, STINT_NOW, NULL))
        granted++;
    return granted;
}

TEST(test_death_at_each_step) {
    uint64_t deaths = 0;
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
        const struct act *act = &acts[i];
        struct scene scene;
        bool dies = true;
        uint64_t step = 0;
        if (act->locks && emulated("robust mutexes"))
            continue;
        for (; dies; step++) {
            alarm(20); /* nobody is held up: by what the dead left, it would be for ever */
            scene_begin(&scene, act->on_full);
            act->before(&scene);
            dies = die(&scene, act->act, step);
            uint32_t left = LIMIT - act->before_tokens;
            uint32_t granted = granted_after(&scene, scene.plain, scene.key);
            if (granted > left || granted + act->tokens < left)
                fail_msg("%s, step %" PRIu64 ": %" PRIu32 " granted after it", act->name, step,
                         granted);
            /* then keys lose their slots to each other: A and B do not hold */
            if (!act->replaces) {
                assert_int_equal(granted_after(&scene, scene.plain, number_key(scene.limiter, 8)),
                                 LIMIT);
                granted = granted_after(&scene, scene.striped, scene.key);
                assert_in_range(granted, 8 - COST, 8);
                granted = granted_after(&scene, scene.carries, scene.key);
                assert_in_range(granted, 2 * LIMIT - COST, 2 * LIMIT);
                granted = granted_after(&scene, scene.first, scene.key);
                assert_in_range(granted, LIMIT - 1, LIMIT);
                granted = granted_after(&scene, scene.month, scene.key);
                assert_in_range(granted, LIMIT - 1, LIMIT);
            }
            /* And with the next window all of it is over. */
            test_time += 10 * MINUTE;
            assert_int_equal(granted_after(&scene, scene.plain, scene.key), LIMIT);
            assert_int_equal(granted_after(&scene, scene.striped, scene.key), 8);
            assert_int_equal(granted_after(&scene, scene.carries, scene.key), 2 * LIMIT);
            assert_int_equal(granted_after(&scene, scene.first, scene.key), LIMIT);
            uint32_t another = add_policy(scene.limiter, "another", 7, HOUR, 0, 0);
            assert_int_equal(granted_after(&scene, another, scene.key), 7);
            stint_close(scene.limiter);
            stint_close(attach(act->on_full));
        }
        deaths += step - 1;
        print_message("%-25s %3" PRIu64 " steps\n", act->name, step - 1);
        assert_true(step > 3);
    }
    alarm(0);
    print_message("%" PRIu64 " deaths\n", deaths);
}

/* A change is made whole or not at all, and what comes after it finds one or the other. */
TEST(test_death_in_change) {
    if (emulated("robust mutexes"))
        skip();
    struct scene scene;
    unsigned changed = 0, unchanged = 0;
    bool dies = true;
    for (uint64_t step = 0; dies; step++) {
        alarm(20);
        scene_begin(&scene, STINT_FULL_REFUSE);
        assert_int_equal(granted_after(&scene, scene.carries, scene.key), 2 * LIMIT);
        dies = die(&scene, change_policy, step);
        test_time += MINUTE;
        uint32_t granted = granted_after(&scene, scene.carries, scene.key);
        if (granted != 3 * LIMIT && (granted != LIMIT || !dies)) /* a debt by one rule */
            fail_msg("step %" PRIu64 ": %" PRIu32 " granted after it", step, granted);
        struct stint_policy policy = STINT_POLICY_INIT;
        add_another_policy(&scene); /* repairs */
        assert_int_equal(stint_policy_get(scene.limiter, scene.plain, &policy), 0);
        assert_true(policy.limit == LIMIT || policy.limit == LIMIT - 1);
        assert_int_equal(granted_after(&scene, scene.plain, scene.key), policy.limit);
        struct stint_request look = {.key = scene.key, .policy = scene.plain, .flags = STINT_PEEK};
        struct stint_verdict verdict;
        stint_decide(scene.limiter, &look, STINT_NOW, &verdict);
        assert_int_equal(verdict.capacity, policy.limit);
        policy.limit == LIMIT ? unchanged++ : changed++;
        policy.limit = LIMIT + 3;
        assert_int_equal(stint_policy_change(scene.limiter, scene.plain, &policy), 0);
        assert_int_equal(granted_after(&scene, scene.plain, scene.key) + verdict.used, LIMIT + 3);
        stint_close(scene.limiter);
    }
    alarm(0);
    assert_true(changed > 0 && unchanged > 3);
}

/* A reset is one step: the key is as it was, or new. */
TEST(test_death_in_reset) {
    struct scene scene;
    bool dies = true;
    for (uint64_t step = 0; dies; step++) {
        alarm(20);
        scene_begin(&scene, STINT_FULL_REFUSE);
        take_until_refused(&scene);
        dies = die(&scene, reset, step);
        uint32_t granted = granted_after(&scene, scene.plain, scene.key);
        assert_true(granted == 0 || granted == LIMIT);
        assert_true(dies || granted == LIMIT);
        stint_close(scene.limiter);
    }
    alarm(0);
}

static bool wait_less; /* whoever is waited for will not move */

int __real_nanosleep(const struct timespec *wanted, struct timespec *left);
int __wrap_nanosleep(const struct timespec *wanted, struct timespec *left);

int __wrap_nanosleep(const struct timespec *wanted, struct timespec *left) {
    return wait_less ? 0 : __real_nanosleep(wanted, left);
}

/* ---- Makers of a table ----------------------------------------------------------------------- */

static struct stint_limiter *make_or_attach(void) {
    struct stint_options options = fixture_options(MAX_KEYS, STINT_FULL_REFUSE);
    options.secret = NULL;
    options.flags = STINT_PREFAULT;
    struct stint_limiter *limiter;
    return stint_open_in(&options, memory, size, &limiter) == 0 ? limiter : NULL;
}

static void make_and_take(const struct scene *scene) {
    (void)scene;
    struct stint_limiter *limiter = make_or_attach();
    struct stint_policy policy = make_policy("plain", LIMIT, MINUTE, 0, 0);
    if (limiter == NULL)
        _exit(1);
    int id = policy_added(limiter, &policy);
    if (id < 0 || !stint_take(limiter, (uint32_t)id, number_key(limiter, 7), 1, STINT_NOW, NULL))
        _exit(2);
    stint_close(limiter);
}

/* Whoever comes next has the table at once. */
static void open_after_maker(struct scene *scene) {
    scene->limiter = make_or_attach();
    if (scene->limiter == NULL)
        fail_msg("step %" PRIu64 ": %s", steps_left, stint_reason());
    scene->key = number_key(scene->limiter, 7);
    scene->plain = add_policy(scene->limiter, "plain", LIMIT, MINUTE, 0, 0);
}

static void close_after_maker(struct scene *scene, uint32_t taken) {
    assert_int_equal(granted_after(scene, scene->plain, scene->key), LIMIT - taken);
    struct stint_limiter *another = make_or_attach();
    assert_non_null(another);
    assert_int_equal(number_key(another, 7), scene->key);
    assert_int_equal(policy_found(another, "plain"), scene->plain);
    assert_false(stint_take(another, scene->plain, scene->key, 1, STINT_NOW, NULL));
    stint_close(another);
    stint_close(scene->limiter);
}

TEST(test_death_in_making) {
    if (emulated("robust mutexes"))
        skip();
    struct scene scene;
    bool dies = true;
    for (uint64_t step = 0; dies; step++) {
        test_time = T0;
        memset(memory, 0, size);
        dies = die(&scene, make_and_take, step);
        steps_left = step;
        open_after_maker(&scene);
        uint32_t taken = used_of(scene.limiter, scene.plain, scene.key);
        assert_in_range(taken, dies ? 0 : 1, 1);
        close_after_maker(&scene, taken);
    }
}

/* A maker sleeps while another one makes the table, and does it no harm when it goes on. */
TEST(test_stop_in_making) {
    if (emulated("robust mutexes"))
        skip();
    struct scene scene;
    int status;
    for (uint64_t step = 0;; step++) {
        test_time = T0;
        memset(memory, 0, size);
        steps_left = step;
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            stint_test_step = stop_at_step;
            if (make_or_attach() == NULL)
                _exit(1);
            stint_test_step = NULL;
            make_and_take(NULL);
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, WUNTRACED), child);
        if (!WIFSTOPPED(status))
            break;
        wait_less = true;
        struct stint_limiter *limiter = make_or_attach();
        wait_less = false;
        if (limiter != NULL) {
            stint_close(limiter);
            open_after_maker(&scene);
        } else if (strstr(stint_reason(), "table's lock") == NULL) {
            fail_msg("step %" PRIu64 ": %s", step, stint_reason());
        }
        assert_int_equal(kill(child, SIGCONT), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        if (limiter == NULL) /* the maker held the lock */
            open_after_maker(&scene);
        close_after_maker(&scene, 1);
    }
    assert_int_equal(status, 0);
}

int main(void) {
    struct stint_options options = fixture_options(MAX_KEYS, STINT_FULL_REFUSE);
    size = stint_memory_size(&options);
    memory = shared_memory(size);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_death_at_each_step), cmocka_unit_test(test_death_in_change),
        cmocka_unit_test(test_death_in_reset),     cmocka_unit_test(test_death_in_making),
        cmocka_unit_test(test_stop_in_making),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
