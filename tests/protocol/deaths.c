/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * What takes processes, and is no scene: one is forked before each step of a call, and one that
 * makes a table dies or stops before each of its steps. Whoever comes after it is held up by
 * nothing, and is granted what is left and never more (promises A, B, E). (Deaths in decisions:
 * scenes.c. In other set-up: set_up.c.) */
#include "limiter/limiter.h" /* before cmocka, which defines fail() as well */

#include "fixture.h"

#include <pthread.h>
#include <sys/prctl.h>

#include "random.h"
#include "sys/testing.h"
#include "wrapped.h"

enum { LIMIT = 5, COST = 2, MAX_KEYS = 40 };

/* ---- A process that dies before its step of some number -------------------------------------- */

static uint64_t steps_left;

static void die_at_step(const void *word) {
    (void)word;
    if (steps_left-- == 0)
        (void)raise(SIGKILL);
}

/* Each store of set-up is a step, too. */
static void die_at_set_up(enum stint_test_instant instant) {
    if (instant == INSTANT_SET_UP)
        die_at_step(NULL);
}

/* ---- The table ------------------------------------------------------------------------------- */

static void *memory;
static size_t size;

struct scene {
    struct stint_limiter *limiter;
    uint32_t plain, striped, carries, ruled;
    stint_key key;
};

static struct stint_limiter *attach(void) {
    struct stint_options options = fixture_options(MAX_KEYS, STINT_FULL_REFUSE);
    struct stint_limiter *limiter;
    if (stint_open_in(&options, memory, size, &limiter) != 0)
        fail_msg("%s", stint_reason());
    return limiter;
}

/* In the table of all, or in a private one. */
static void scene_begin(struct scene *scene, bool private) {
    test_time = T0;
    memset(memory, 0, size);
    scene->limiter = private ? open_limiter(MAX_KEYS, STINT_FULL_REFUSE) : attach();
    scene->key = number_key(scene->limiter, 7);
    scene->plain = add_text(scene->limiter, "5/minute name=plain");
    scene->striped = add_text(scene->limiter, "8/minute name=striped stripes=4");
    scene->carries = add_text(scene->limiter, "5/minute name=carries capacity=10");
    scene->ruled = add_text(scene->limiter, "2/minute name=ruled overrides");
}

/* Takes one by one until refused. */
static uint32_t granted_after(const struct scene *scene, uint32_t policy, stint_key key) {
    uint32_t granted = 0;
    while (granted < 100 && stint_take(scene->limiter, policy, key, 1, STINT_NOW, NULL))
        granted++;
    return granted;
}

/* ---- What may be under way when a process is forked ------------------------------------------ */

/* What an act was granted of the plain policy, less what it gave back. */
static uint32_t took;

static void take(const struct scene *scene) {
    took += stint_take(scene->limiter, scene->plain, scene->key, 1, STINT_NOW, NULL);
}

static void take_until_refused(const struct scene *scene) {
    for (unsigned i = 0; i <= LIMIT; i++)
        take(scene);
}

/* All slots hold keys of windows that are over, so that claims take slots over. */
static void stale_table(const struct scene *scene) {
    for (uint64_t i = 0; i < 400; i++)
        (void)ask(scene->limiter, scene->plain, number_key(scene->limiter, 1000 + i), 1, 0);
    test_time += MINUTE;
}

static void take_all(const struct scene *scene) {
    const struct stint_request requests[] = {
        {.key = scene->key, .policy = scene->plain, .cost = 1},
        {.key = scene->key, .policy = scene->carries, .cost = 1},
        {.key = scene->key, .policy = scene->striped, .cost = 1},
    };
    struct stint_verdict verdicts[3];
    took += stint_decide_all(scene->limiter, requests, 3, STINT_NOW, verdicts);
}

static void take_and_refund(const struct scene *scene) {
    struct stint_verdict verdict;
    if (stint_take(scene->limiter, scene->plain, scene->key, COST, STINT_NOW, &verdict))
        took += COST - (uint32_t)stint_refund(scene->limiter, scene->key, &verdict, COST);
}

static void attach_and_take(const struct scene *scene) {
    struct scene own = *scene;
    own.limiter = attach();
    take(&own);
    stint_close(own.limiter);
}

/* One is replaced, one added that has overrides, one changed; one stays. */
static void apply(const struct scene *scene) {
    if (stint_policies_apply(scene->limiter,
                             "7/h name=plain\n9/minute name=new ban=1h\n"
                             "9/minute name=carries capacity=10\n8/minute name=striped stripes=4",
                             0, NULL, NULL, NULL) != 0)
        _exit(8);
}

static void remove_plain(const struct scene *scene) {
    (void)stint_policy_remove(scene->limiter, scene->plain);
}

static void override_and_clear(const struct scene *scene) {
    if (stint_override(scene->limiter, scene->ruled, scene->key, LIMIT, test_time + HOUR) != 0 ||
        stint_override_clear(scene->limiter, scene->ruled, scene->key) != 0)
        _exit(5);
}

static const struct act {
    const char *name;
    void (*act)(const struct scene *scene);
    void (*before)(const struct scene *scene);
    uint32_t tokens;        /* of the plain policy that the act may take */
    uint32_t before_tokens; /* that are used in the present window before */
    bool sets_up;
} acts[] = {
    {"up to a refusal", take_until_refused, take, LIMIT, 1, false},
    {"a slot that is taken over", take, stale_table, 1, 0, false},
    {"several as one", take_all, NULL, 1, 0, false},
    {"a refund", take_and_refund, take, COST, 1, false},
    {"attaching", attach_and_take, take, 0, 1, true},
    {"policies that are applied", apply, take, 0, 1, true},
    {"a policy that is removed", remove_plain, take, 0, 1, true},
    {"an override", override_and_clear, take, 0, 1, true},
};

/* ---- Forks ----------------------------------------------------------------------------------- */

/* Who forks at a step: the thread that is there, as its signal handler can, or another one, while
 * it is there. What table: one of all, or of each process. And whether the parent goes on only when
 * the child is done. */
enum { ITSELF = 1, PRIVATE = 2, WAITS = 4, WAYS = 8 };

/* Of these keys parent and child take what is left. */
enum { RESTS = 4 };

static struct fork_told {
    uint32_t granted[2][RESTS]; /* to the parent; to its child */
    bool forked;
} * fork_told;

static struct fork_plan {
    const struct scene *scene;
    const struct act *act;
    unsigned way, who; /* 0: the parent */
    pid_t child;
} fork_plan;

static void go_on(const struct scene *scene, unsigned who);

static void *fork_by_another(void *ignored) {
    fork_plan.child = fork();
    if (fork_plan.child == 0) {
        alarm(60);
        took = 0;
        go_on(fork_plan.scene, 1);
        _exit(0);
    }
    return ignored;
}

static void fork_at_step(const void *word) {
    pthread_t other;
    int status;
    (void)word;
    if (steps_left-- != 0)
        return;
    stint_test_step = NULL;
    stint_test_hook = NULL;
    fork_told->forked = true;
    if ((fork_plan.way & ITSELF) != 0) {
        fork_plan.child = fork();
        if (fork_plan.child == 0) {
            fork_plan.who = 1;
            took = (fork_plan.way & PRIVATE) != 0 ? took : 0; /* or the parent tells it */
            return;
        }
    } else if (pthread_create(&other, NULL, fork_by_another, NULL) != 0 ||
               pthread_join(other, NULL) != 0) {
        _exit(1);
    }
    if ((fork_plan.way & WAITS) != 0) {
        if (waitpid(fork_plan.child, &status, 0) != fork_plan.child || status != 0)
            _exit(2);
        fork_plan.child = -1;
    }
}

/* Runs the act in a process that is forked before its step of that number. Returns false if there
 * was none. */
static bool fork_during(const struct scene *scene, const struct act *act, uint64_t step,
                        unsigned way) {
    memset(fork_told, 0, sizeof *fork_told);
    pid_t actor = forked();
    if (actor == 0) {
        int status = 0;
        alarm(60);
        took = 0;
        fork_plan = (struct fork_plan){scene, act, way, 0, -1};
        steps_left = step;
        stint_test_step = fork_at_step;
        act->act(scene);
        stint_test_step = NULL;
        go_on(scene, fork_plan.who);
        if (fork_plan.who == 0 && fork_plan.child > 0 &&
            (waitpid(fork_plan.child, &status, 0) != fork_plan.child || status != 0))
            _exit(3);
        _exit(0);
    }
    const int status = status_of(actor);
    if (status != 0)
        fail_msg("%s, way %u, step %" PRIu64 ": status %#x", act->name, way, step,
                 (unsigned)status);
    return fork_told->forked;
}

static void take_rest(const struct scene *scene, unsigned who) {
    const uint32_t policies[RESTS] = {scene->plain, scene->striped, scene->carries, scene->plain};
    for (unsigned i = 0; i < RESTS; i++)
        fork_told->granted[who][i] =
            granted_after(scene, policies[i],
                          i == RESTS - 1 ? number_key(scene->limiter, 8) : scene->key) +
            (i == 0 ? took : 0);
}

/* Each of the two is granted what there is, in a table of its own, or both together in the one of
 * all. What the act took of other policies than the plain one is not known. A thread that forks in
 * the middle of a request makes two of it, on which one token may be granted. */
static void check_rests(const struct act *act, uint64_t step, unsigned way, bool forked) {
    const uint32_t most[RESTS] = {LIMIT - act->before_tokens, 8, 2 * LIMIT, LIMIT};
    const uint32_t unknown[RESTS] = {0, 1, 1, 0};
    const bool together = (way & PRIVATE) == 0, itself = (way & ITSELF) != 0;
    for (unsigned who = 0; who < (together || !forked ? 1u : 2u); who++)
        for (unsigned i = 0; i < RESTS; i++) {
            const uint32_t got =
                fork_told->granted[who][i] + (together ? fork_told->granted[1][i] : 0);
            uint32_t less = unknown[i], more = 0;
            if (i == 0 && together && itself)
                less = more = act->tokens;
            else if (i == 0 && !together && !itself && who == 1)
                less = act->tokens; /* by a thread that is not there */
            else if (together && itself)
                less *= 2;
            if (got + less < most[i] || got > most[i] + more)
                fail_msg("%s, step %" PRIu64 ", way %u, process %u: %" PRIu32 " of %" PRIu32
                         " granted of %u",
                         act->name, step, way, who, got, most[i], i);
        }
}

static void add_mine(const struct scene *scene, unsigned who) {
    char text[40];
    snprintf(text, sizeof text, "3/day name=mine-%u", who);
    const struct stint_policy mine = parsed(text);
    const int id = policy_added(scene->limiter, &mine);
    if (id < 0)
        print_error("process %u: %s\n", who, stint_reason());
    if (id < 0 || granted_after(scene, (uint32_t)id, scene->key) != 3)
        _exit(6);
}

/* Decides, finds, and sets up; but not while the parent has the lock of the table of both. */
static void set_up_on(const struct scene *scene, unsigned who) {
    const uint32_t policies[] = {scene->plain, scene->striped, scene->carries, scene->ruled};
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++)
        if (granted_after(scene, policies[i], scene->key) > 3 * LIMIT)
            _exit(7);
    if (policy_found(scene->limiter, "striped") < 0 || policy_found(scene->limiter, "none") >= 0)
        _exit(4);
    if (who == 1 && (fork_plan.way & (PRIVATE | WAITS)) == WAITS)
        return;
    add_mine(scene, who);
    if (stint_policies_apply(scene->limiter, "3/h name=plain\n8/minute name=striped stripes=4", 0,
                             NULL, NULL, NULL) != 0)
        _exit(8);
    const int plain = policy_found(scene->limiter, "plain");
    if (plain < 0 ||
        granted_after(scene, (uint32_t)plain, number_key(scene->limiter, 9 + who)) != 3)
        _exit(9);
}

static void go_on(const struct scene *scene, unsigned who) {
    if (fork_plan.act->sets_up)
        set_up_on(scene, who);
    else
        take_rest(scene, who);
}

static void check_after(const struct scene *scene, const struct act *act, uint64_t step,
                        unsigned way, bool forked) {
    const bool together = (way & PRIVATE) == 0;
    if (!act->sets_up) {
        check_rests(act, step, way, forked);
        test_time += 10 * MINUTE;
        assert_int_equal(granted_after(scene, scene->plain, scene->key), LIMIT);
        assert_int_equal(granted_after(scene, scene->striped, scene->key), 8);
    }
    add_mine(scene, 2);
    if (act->sets_up && together) {
        assert_true(policy_found(scene->limiter, "mine-0") >= 0);
        assert_true(policy_found(scene->limiter, "plain") >= 0);
    }
}

/* A thread forks, itself or while another one is there. In the child the other's set-up has ended
 * there, as by a death; in the table of all it goes on. (A thread that forks in its own set-up must
 * have the table for itself.) All ways at all steps of decisions, and at one in eight of set-up,
 * others each time, by the stress suite's run; some here. */
TEST(test_fork_at_each_step) {
    const bool all = environment_number("STINT_TEST_FACTOR", 1) > 1;
    const unsigned rarer = environment_number("STINT_TEST_DIVISOR", 1) > 1 ? 3 : 1;
    struct random random = {test_seed()};
    uint64_t forks = 0;
    fork_told = shared_memory(sizeof *fork_told);
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
        for (unsigned way = 0; way < WAYS; way++) {
            const struct act *act = &acts[i];
            const uint64_t one_in = rarer * (act->sets_up ? all ? 8u : 40u : all ? 1u : 24u);
            struct scene scene;
            bool forked = true;
            if (act->sets_up &&
                ((way & (ITSELF | PRIVATE)) == ITSELF || emulated("robust mutexes")))
                continue;
            for (uint64_t step = random_below(&random, one_in); forked;
                 step += 1 + random_below(&random, 2 * one_in - 1)) {
                alarm(120);
                scene_begin(&scene, (way & PRIVATE) != 0);
                if (act->before != NULL)
                    act->before(&scene);
                forked = fork_during(&scene, act, step, way);
                forks += forked;
                check_after(&scene, act, step, way, forked);
                stint_close(scene.limiter);
            }
        }
    alarm(0);
    assert_true(forks > 150 / rarer);
    munmap(fork_told, sizeof *fork_told);
}

/* ---- Makers of a table ----------------------------------------------------------------------- */

static bool wait_less; /* whoever is waited for will not move */

WRAPPED(int, clock_nanosleep, clockid_t clock, int flags, const struct timespec *until,
        struct timespec *rest) {
    return wait_less ? 0 : __real_clock_nanosleep(clock, flags, until, rest);
}

static void stop_at_step(const void *word) {
    (void)word;
    if (steps_left-- == 0)
        (void)raise(SIGSTOP);
}

/* What a maker of a table asks the system for are steps, too (the linker puts these in the place of
 * the C library's). */
WRAPPED(ssize_t, getrandom, void *bytes, size_t length, unsigned flags) {
    STEP(bytes);
    return __real_getrandom(bytes, length, flags);
}

WRAPPED(int, madvise, void *address, size_t length, int advice) {
    STEP(address);
    return __real_madvise(address, length, advice);
}

static uint32_t max_policies; /* of the table that is to be made; 0: the usual */

static struct stint_limiter *make_or_attach(void) {
    struct stint_options options = fixture_options(MAX_KEYS, STINT_FULL_REFUSE);
    options.secret = NULL;
    options.max_policies = max_policies;
    options.flags = STINT_PREFAULT;
    struct stint_limiter *limiter;
    return stint_open_in(&options, memory, size, &limiter) == 0 ? limiter : NULL;
}

static void make_and_take(void) {
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
    assert_true(stint_key_equal(number_key(another, 7), scene->key));
    assert_int_equal(policy_found(another, "plain"), scene->plain);
    assert_false(stint_take(another, scene->plain, scene->key, 1, STINT_NOW, NULL));
    stint_close(another);
    stint_close(scene->limiter);
}

/* Whoever has other options does not go on with what the dead have begun. */
TEST(test_death_in_making) {
    if (emulated("robust mutexes"))
        skip();
    const struct header *header = (const struct header *)(const void *)memory;
    struct scene scene;
    unsigned begun = 0;
    bool dies = true;
    for (uint64_t step = 0; dies; step++) {
        test_time = T0;
        memset(memory, 0, size);
        const pid_t child = forked();
        if (child == 0) {
            steps_left = step;
            stint_test_step = die_at_step;
            stint_test_hook = die_at_set_up;
            make_and_take();
            _exit(0);
        }
        const int status = status_of(child);
        dies = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        assert_true(dies || status == 0);
        if (header->magic >> 32 == HEADER_MAKING) {
            begun++;
            wait_less = true;
            max_policies = 32;
            assert_null(make_or_attach());
            assert_reason("other options");
            max_policies = 0;
            wait_less = false;
        }
        steps_left = step;
        open_after_maker(&scene);
        uint32_t taken = used_of(scene.limiter, scene.plain, scene.key);
        assert_in_range(taken, dies ? 0 : 1, 1);
        close_after_maker(&scene, taken);
    }
    assert_true(begun > 3);
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
        const pid_t child = forked();
        if (child == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            stint_test_step = stop_at_step;
            if (make_or_attach() == NULL)
                _exit(1);
            stint_test_step = NULL;
            make_and_take();
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
    return tests_run(NULL, NULL);
}
