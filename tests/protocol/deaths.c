/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * A process dies before each step of a call of set-up, on a table that others share, and forks
 * before each step of any call. Whoever comes after it is held up by nothing, is granted what is
 * left and never more (promises A, B, E). Set-up that was begun is finished or undone. Deaths in a
 * decision are in scenes.c. */
#include "base/limiter.h" /* before cmocka, which defines fail() as well */

#include "fixture.h"

#include <pthread.h>
#include <sys/prctl.h>

#include "dying.h"
#include "random.h"

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

/* What an act was granted of the plain policy, less what it gave back. */
static uint32_t took;

static void take(const struct scene *scene) {
    took += stint_take(scene->limiter, scene->plain, scene->key, 1, STINT_NOW, NULL);
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
    took += COST * stint_take(scene->limiter, scene->plain, scene->key, COST, STINT_NOW, NULL);
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
    took += stint_decide_all(scene->limiter, requests, 3, STINT_NOW, verdicts);
}

static void take_batch(const struct scene *scene) {
    const struct stint_request requests[] = {
        {.key = scene->key, .policy = scene->plain, .cost = 1},
        {.key = scene->key, .policy = scene->plain, .cost = 1},
    };
    took += (uint32_t)stint_decide_batch(scene->limiter, requests, 2, STINT_NOW, NULL);
}

static void take_and_refund(const struct scene *scene) {
    struct stint_verdict verdict;
    if (stint_take(scene->limiter, scene->plain, scene->key, COST, STINT_NOW, &verdict))
        took += COST - (uint32_t)stint_refund(scene->limiter, scene->plain, scene->key, COST,
                                              verdict.window);
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

static bool from_set_up;

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
    pid_t child = forked_to_die(step, from_set_up);
    if (child == 0) {
        act(scene);
        _exit(0);
    }
    return has_died(child);
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

/* Of acts with the lock for set-up; of the others scenes.c has deaths. */
TEST(test_death_at_each_step) {
    uint64_t deaths = 0;
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
        const struct act *act = &acts[i];
        struct scene scene;
        bool dies = true;
        uint64_t step = 0;
        if (!act->locks || emulated("robust mutexes"))
            continue;
        for (; dies; step++) {
            alarm(60); /* nobody is held up: by what the dead left, it would be for ever */
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

/* ---- Forks ----------------------------------------------------------------------------------- */

/* Who forks at a step: the thread that is there, as its signal handler can, or another one, while
 * it is there. What table: one of all, or of each process. And whether the parent goes on only when
 * the child is done. */
enum { ITSELF = 1, PRIVATE = 2, WAITS = 4, WAYS = 8 };

/* Of these keys parent and child take what is left. */
enum { RESTS = 6 };

static struct fork_told {
    uint32_t granted[2][RESTS]; /* to the parent; to its child */
    bool forked, done;          /* the parent is */
} * fork_told;

static struct fork_plan {
    const struct scene *scene;
    void (*goes_on)(const struct scene *scene, unsigned who); /* 0: the parent */
    unsigned way, who;
    pid_t child;
} fork_plan;

static void *fork_by_another(void *ignored) {
    fork_plan.child = fork();
    if (fork_plan.child == 0) {
        alarm(60);
        took = 0;
        fork_plan.goes_on(fork_plan.scene, 1);
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
static bool fork_during(const struct scene *scene, void (*act)(const struct scene *scene),
                        uint64_t step, unsigned way,
                        void (*goes_on)(const struct scene *scene, unsigned who)) {
    memset(fork_told, 0, sizeof *fork_told);
    pid_t actor = forked();
    if (actor == 0) {
        int status = 0;
        alarm(60);
        took = 0;
        fork_plan = (struct fork_plan){scene, goes_on, way, 0, -1};
        steps_left = step;
        stint_test_step = fork_at_step;
        act(scene);
        stint_test_step = NULL;
        if (fork_plan.who == 0)
            __atomic_store_n(&fork_told->done, true, __ATOMIC_SEQ_CST);
        goes_on(scene, fork_plan.who);
        if (fork_plan.who == 0 && fork_plan.child > 0 &&
            (waitpid(fork_plan.child, &status, 0) != fork_plan.child || status != 0))
            _exit(3);
        _exit(0);
    }
    const int status = status_of(actor);
    if (status != 0)
        fail_msg("way %u, step %" PRIu64 ": status %#x", way, step, (unsigned)status);
    return fork_told->forked;
}

static void take_rest(const struct scene *scene, unsigned who) {
    const uint32_t policies[RESTS] = {scene->plain, scene->striped, scene->carries,
                                      scene->first, scene->month,   scene->plain};
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
    const uint32_t most[RESTS] = {LIMIT - act->before_tokens, 8, 2 * LIMIT, LIMIT, LIMIT, LIMIT};
    const uint32_t unknown[RESTS] = {0, COST, COST, 1, 1, 0};
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

/* All ways at all steps by the stress suite's run, some here. */
TEST(test_fork_at_each_step) {
    enum { ONE_IN = 24 };
    const uint64_t factor = environment_number("STINT_TEST_FACTOR", 1);
    const uint64_t one_in = factor > 1 ? 1 : ONE_IN;
    struct random random = {test_seed()};
    uint64_t forks = 0;
    fork_told = shared_memory(sizeof *fork_told);
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
        for (unsigned way = 0; way < WAYS; way++) {
            const struct act *act = &acts[i];
            struct scene scene;
            bool forked = true;
            if (act->locks && ((way & (ITSELF | PRIVATE)) != 0 || emulated("robust mutexes")))
                continue;
            for (uint64_t step = random_below(&random, one_in); forked;
                 step += 1 + random_below(&random, 2 * one_in - 1)) {
                alarm(120);
                scene_begin(&scene, act->on_full);
                if ((way & PRIVATE) != 0) {
                    stint_close(scene.limiter);
                    scene.limiter = open_limiter(MAX_KEYS, act->on_full);
                    add_policies(&scene);
                }
                act->before(&scene);
                forked = fork_during(&scene, act->act, step, way, take_rest);
                forks += forked;
                if (!act->replaces) /* then keys lose their slots to each other */
                    check_rests(act, step, way, forked);
                test_time += 10 * MINUTE;
                assert_int_equal(granted_after(&scene, scene.plain, scene.key), LIMIT);
                assert_int_equal(granted_after(&scene, scene.striped, scene.key), 8);
                (void)add_policy(scene.limiter, "another", 7, HOUR, 0, 0);
                stint_close(scene.limiter);
            }
        }
    alarm(0);
    print_message("%" PRIu64 " forks\n", forks);
    assert_true(forks > 100);
    munmap(fork_told, sizeof *fork_told);
}

/* A change is made whole or not at all, and what comes after it finds one or the other. */
TEST(test_death_in_change) {
    if (emulated("robust mutexes"))
        skip();
    struct scene scene;
    unsigned changed = 0, unchanged = 0;
    bool dies = true;
    for (uint64_t step = 0; dies; step++) {
        alarm(60);
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

/* ---- Policies that are replaced and removed -------------------------------------------------- */

static const char *applied; /* the text, and whether policies that it does not name are removed */
static uint32_t applied_flags;

static void apply(const struct scene *scene) {
    if (stint_policies_apply(scene->limiter, applied, applied_flags, NULL, NULL, NULL) != 0)
        fail_msg("%s", stint_reason());
}

static void remove_plain(const struct scene *scene) {
    (void)stint_policy_remove(scene->limiter, scene->plain);
}

/* One of the two: the name is found or not, and what is found is one policy, whole, by its old id
 * and by its new one. Returns whether it is the new one. */
static bool check_old_or_new(const struct scene *scene, uint32_t old, const char *name,
                             const char *before, const char *after) {
    struct stint_policy policy = STINT_POLICY_INIT;
    char text[200] = "", id_text[200] = "";
    int found = policy_found(scene->limiter, name);
    if (found >= 0) {
        assert_int_equal(stint_policy_get(scene->limiter, (uint32_t)found, &policy), 0);
        assert_true(stint_policy_format(&policy, text, sizeof text) > 0);
    }
    bool is_new = strcmp(text, after) == 0;
    if (!is_new && strcmp(text, before) != 0)
        fail_msg("\"%s\" is neither \"%s\" nor \"%s\"", text, before, after);
    if (old == UINT32_MAX || before[0] == '\0')
        return is_new;
    struct stint_verdict verdict = ask(scene->limiter, old, scene->key, 0, STINT_PEEK);
    assert_int_equal((verdict.flags & STINT_UNKNOWN_POLICY) != 0, found < 0);
    if (found < 0)
        return is_new;
    assert_int_equal(stint_policy_get(scene->limiter, old, &policy), 0);
    assert_true(stint_policy_format(&policy, id_text, sizeof id_text) > 0);
    assert_string_equal(id_text, text);
    assert_int_equal(verdict.used, used_of(scene->limiter, (uint32_t)found, scene->key));
    if (stint_take(scene->limiter, old, scene->key, 1, STINT_NOW, NULL)) {
        assert_int_equal(used_of(scene->limiter, old, scene->key), verdict.used + 1);
        assert_int_equal(used_of(scene->limiter, (uint32_t)found, scene->key), verdict.used + 1);
    }
    return is_new;
}

/* No slot is left of policies that are gone. */
static void assert_swept(const struct stint_limiter *limiter) {
    const struct table *table = &limiter->table;
    for (uint64_t line = 0; line < table->line_count; line++)
        for (unsigned s = 0; s < LINE_SLOTS; s++) {
            const struct policy *policy =
                limiter_tag_policy(limiter, table->lines[line].slots[s].tag);
            assert_false(policy != NULL && policy_gone(policy));
        }
}

/* Of each policy that another one takes the place of, or none, there is the old one or the new one
 * at any instant, and applying again finishes. */
TEST(test_death_in_apply) {
    if (emulated("robust mutexes"))
        skip();
    static const struct {
        const char *text;
        uint32_t flags;
        void (*act)(const struct scene *scene);
        struct {
            const char *name, *before, *after;
        } policies[4];
    } rows[] = {
        {"7/h name=plain",
         0,
         apply,
         {{"plain", "5/minute name=\"plain\"", "7/hour name=\"plain\""},
          {"striped", "8/minute name=\"striped\" stripes=4",
           "8/minute name=\"striped\" stripes=4"}}},
        {"6/s name=new\n4/minute name=plain\n9/h name=striped stripes=2",
         STINT_PRUNE,
         apply,
         {{"plain", "5/minute name=\"plain\"", "4/minute name=\"plain\""},
          {"striped", "8/minute name=\"striped\" stripes=4", "9/hour name=\"striped\" stripes=2"},
          {"carries", "5/minute name=\"carries\" capacity=10", ""},
          {"new", "", "6/second name=\"new\""}}},
        {"8/minute name=striped stripes=4\n5/minute name=carries capacity=10",
         STINT_PRUNE,
         remove_plain,
         {{"plain", "5/minute name=\"plain\"", ""}}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct scene scene;
        bool dies = true;
        uint64_t step = 0;
        unsigned old = 0, new = 0;
        applied = rows[i].text;
        applied_flags = rows[i].flags;
        for (; dies; step++) {
            alarm(60);
            scene_begin(&scene, STINT_FULL_REFUSE);
            const uint32_t ids[] = {scene.plain, scene.striped, scene.carries, UINT32_MAX};
            for (size_t p = 0; p < 3; p++)
                for (uint64_t key = 7; key < 12; key++)
                    (void)stint_take(scene.limiter, ids[p], number_key(scene.limiter, key), 1,
                                     STINT_NOW, NULL);
            dies = die(&scene, rows[i].act, step);
            bool all = true;
            for (size_t p = 0; p < 4 && rows[i].policies[p].name != NULL; p++) {
                bool is_new =
                    check_old_or_new(&scene, ids[p], rows[i].policies[p].name,
                                     rows[i].policies[p].before, rows[i].policies[p].after);
                all &= is_new;
                is_new ? new ++ : old++;
            }
            assert_true(all || dies);
            struct stint_limiter *other = attach(STINT_FULL_REFUSE);
            apply(&scene);
            for (size_t p = 0; p < 4 && rows[i].policies[p].name != NULL; p++)
                for (unsigned side = 0; side < 2; side++) {
                    const struct scene seen = {.limiter = side == 0 ? scene.limiter : other,
                                               .key = scene.key};
                    assert_true(check_old_or_new(&seen, ids[p], rows[i].policies[p].name,
                                                 rows[i].policies[p].before,
                                                 rows[i].policies[p].after));
                }
            assert_swept(other);
            stint_close(other);
            stint_close(scene.limiter);
        }
        print_message("text %zu: %" PRIu64 " deaths\n", i, step - 1);
        assert_true(old > 3 && new > 3);
    }
    alarm(0);
}

static uint32_t ruled;
static void flag_given(const struct scene *scene);
static void flag_added(const struct scene *scene);

/* ---- Forks in set-up ------------------------------------------------------------------------- */

static void find(const struct scene *scene) {
    if (policy_found(scene->limiter, "striped") < 0 || policy_found(scene->limiter, "none") >= 0)
        _exit(4);
}

static void override_and_clear(const struct scene *scene) {
    if (stint_override(scene->limiter, ruled, scene->key, LIMIT, test_time + HOUR) != 0 ||
        stint_override_clear(scene->limiter, ruled, scene->key) != 0)
        _exit(5);
}

static void add_mine(const struct scene *scene, unsigned who) {
    const struct stint_policy mine = make_policy(who == 0   ? "mine-0"
                                                 : who == 1 ? "mine-1"
                                                            : "mine-2",
                                                 3, DAY, 0, 0);
    const int id = policy_added(scene->limiter, &mine);
    if (id < 0)
        print_error("process %u: %s\n", who, stint_reason());
    if (id < 0 || granted_after(scene, (uint32_t)id, scene->key) != 3)
        _exit(6);
}

/* Decides, finds, and sets up; but not while the parent has the lock of the table of both. */
static void all_goes_on(const struct scene *scene, unsigned who) {
    const uint32_t policies[] = {scene->plain, scene->striped, scene->carries, ruled};
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++)
        if (granted_after(scene, policies[i], scene->key) > 3 * LIMIT)
            _exit(7);
    find(scene);
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

/* A thread forks while another one sets up. In the child its set-up has ended there, as by a death;
 * in the table of all it goes on. (A thread that forks in its own set-up must have the table for
 * itself.) */
TEST(test_fork_in_set_up) {
    if (emulated("robust mutexes"))
        skip();
    static void (*const set_ups[])(const struct scene *scene) = {
        find,         add_another_policy, change_policy, apply,
        remove_plain, flag_given,         flag_added,    override_and_clear,
    };
    enum { ONE_IN = 40 };
    const uint64_t one_in = environment_number("STINT_TEST_FACTOR", 1) > 1 ? 2 : ONE_IN;
    struct random random = {test_seed()};
    uint64_t forks = 0;
    fork_told = shared_memory(sizeof *fork_told);
    applied = "7/h name=plain\n9/minute name=new\n8/minute name=striped stripes=4";
    applied_flags = 0;
    for (size_t i = 0; i < sizeof set_ups / sizeof *set_ups; i++)
        for (unsigned way = 0; way < WAYS; way++) {
            struct scene scene;
            bool forked = true;
            if ((way & (ITSELF | PRIVATE)) == ITSELF)
                continue;
            for (uint64_t step = random_below(&random, one_in); forked;
                 step += 1 + random_below(&random, 2 * one_in - 1)) {
                alarm(120);
                scene_begin(&scene, STINT_FULL_REFUSE);
                if ((way & PRIVATE) != 0) {
                    stint_close(scene.limiter);
                    scene.limiter = open_limiter(MAX_KEYS, STINT_FULL_REFUSE);
                    add_policies(&scene);
                }
                ruled = add_policy(scene.limiter, "ruled", 2, MINUTE, 0, STINT_OVERRIDES);
                take(&scene);
                forked = fork_during(&scene, set_ups[i], step, way, all_goes_on);
                forks += forked;
                add_mine(&scene, 2);
                if ((way & PRIVATE) == 0) {
                    assert_true(policy_found(scene.limiter, "mine-0") >= 0);
                    assert_int_equal(policy_found(scene.limiter, "plain") >= 0, true);
                    assert_swept(scene.limiter);
                }
                stint_close(scene.limiter);
            }
        }
    alarm(0);
    print_message("%" PRIu64 " forks\n", forks);
    assert_true(forks > 50);
    munmap(fork_told, sizeof *fork_told);
}

static const char *own_path;

static void open_and_take(const struct scene *scene) {
    struct stint_options options = fixture_options(MAX_KEYS, STINT_FULL_REFUSE);
    struct stint_limiter *limiter;
    options.path = own_path;
    if (stint_open(&options, &limiter) != 0)
        _exit(1);
    if (scene->limiter == NULL)
        stint_close(limiter);
}

static struct stint_limiter *open_own(void) {
    struct stint_options options = fixture_options(MAX_KEYS, STINT_FULL_REFUSE);
    options.path = own_path;
    return open_with(&options);
}

/* An opener who is alone makes ids free; the next one finishes that. Most of his steps are alike:
 * he looks at one slot after the other. So all are tried by the stress suite's run, some here. */
TEST(test_death_in_freeing) {
    if (emulated("robust mutexes"))
        skip();
    char path[] = "/dev/shm/stint-deaths-XXXXXX";
    struct scene scene = {0};
    enum { ONE_IN = 6 };
    const uint64_t factor = environment_number("STINT_TEST_FACTOR", 1);
    const uint64_t one_in = factor < ONE_IN ? ONE_IN / factor : 1;
    struct random random = {test_seed()};
    bool dies = true;
    uint64_t step = 0;
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    own_path = path;
    for (; dies; step += 1 + random_below(&random, 2 * one_in - 1)) {
        alarm(60);
        unlink(path);
        scene.limiter = open_own();
        add_policies(&scene);
        scene.key = number_key(scene.limiter, 7);
        take_until_refused(&scene);
        take_striped(&scene);
        take_carrying(&scene);
        applied = "9/h name=striped stripes=2\n5/minute name=plain";
        applied_flags = STINT_PRUNE;
        apply(&scene);
        uint32_t striped = (uint32_t)policy_found(scene.limiter, "striped");
        assert_int_equal(granted_after(&scene, striped, scene.key), 9);
        stint_close(scene.limiter);
        scene.limiter = NULL;
        dies = die(&scene, open_and_take, step);
        scene.limiter = open_own();
        assert_int_equal(used_of(scene.limiter, scene.plain, scene.key), LIMIT);
        assert_int_equal(used_of(scene.limiter, striped, scene.key), 9);
        assert_int_equal(policy_found(scene.limiter, "striped"), striped);
        uint32_t ids[] = {scene.striped, scene.carries};
        for (uint32_t i = 0; i < 2; i++) {
            char name[] = {'a', (char)('a' + i), '\0'};
            assert_true(
                (ask(scene.limiter, ids[i], scene.key, 1, 0).flags & STINT_UNKNOWN_POLICY) != 0);
            assert_int_equal(add_policy(scene.limiter, name, 3, DAY, 0, 0), ids[i]);
            assert_int_equal(policy_found(scene.limiter, name), ids[i]);
            assert_int_equal(get_policy_stats(scene.limiter, ids[i]).allowed, 0);
            assert_int_equal(granted_after(&scene, ids[i], scene.key), 3);
        }
        stint_close(scene.limiter);
    }
    alarm(0);
    unlink(path);
    print_message("%" PRIu64 " steps\n", step);
    assert_true(step > 50);
}

static void flag_given(const struct scene *scene) {
    struct stint_policy policy = make_policy("plain", LIMIT, MINUTE, 0, STINT_OVERRIDES);
    policy.ban = HOUR;
    (void)stint_policy_change(scene->limiter, scene->plain, &policy);
}

static void flag_added(const struct scene *scene) {
    struct stint_policy policy = make_policy("ruled", LIMIT, MINUTE, 0, STINT_OVERRIDES);
    policy.ban = HOUR;
    (void)policy_added(scene->limiter, &policy);
}

/* Whoever dies while a policy gets its companion: the next one finds a whole table, and gives
 * it. */
TEST(test_death_in_companion) {
    if (emulated("robust mutexes"))
        skip();
    for (int added = 0; added < 2; added++) {
        struct scene scene;
        bool dies = true;
        for (uint64_t step = 0; dies; step++) {
            alarm(20);
            scene_begin(&scene, STINT_FULL_REFUSE);
            void (*act)(const struct scene *) = added ? flag_added : flag_given;
            const uint32_t policies = get_stats(scene.limiter).policies + (uint32_t)added;
            dies = die(&scene, act, step);
            stint_close(attach(STINT_FULL_REFUSE));
            act(&scene);
            uint32_t id = (uint32_t)policy_found(scene.limiter, added ? "ruled" : "plain");
            assert_int_equal(stint_override(scene.limiter, id, scene.key, 3, T0 + HOUR), 0);
            assert_int_equal(ask(scene.limiter, id, scene.key, 4, 0).capacity, 3);
            assert_int_equal(get_stats(scene.limiter).policies, policies);
            assert_int_equal(atomic_load_relaxed(&scene.limiter->header->policy_count),
                             policies + 1);
            stint_close(scene.limiter);
            stint_close(attach(STINT_FULL_REFUSE));
        }
    }
    alarm(0);
}

/* ---- Companions that are handed over --------------------------------------------------------- */

/* Key 8 has a limit of its own and key 9 is banned, or else neither. */
static void assert_ruled(const struct scene *scene, uint32_t id, bool holds) {
    struct stint_policy policy = STINT_POLICY_INIT;
    assert_int_equal(stint_policy_get(scene->limiter, id, &policy), 0);
    struct stint_verdict verdict =
        ask(scene->limiter, id, number_key(scene->limiter, 8), 0, STINT_PEEK);
    assert_int_equal(verdict.capacity, holds ? 3 : policy.limit);
    verdict = ask(scene->limiter, id, number_key(scene->limiter, 9), 0, STINT_PEEK);
    assert_int_equal((verdict.flags & STINT_BANNED) != 0, holds);
}

/* A table with a policy that has a companion, and perhaps free ids between those in use. */
static void ruled_begin(struct scene *scene, bool refills) {
    static const char *const passing[] = {"x", "y", "z"};
    struct stint_policy policy = STINT_POLICY_INIT;

    test_time = T0;
    unlink(own_path);
    scene->limiter = open_own();
    scene->key = number_key(scene->limiter, 7);
    add_policies(scene);
    for (size_t i = 0; i < 3 && refills; i++)
        (void)add_policy(scene->limiter, passing[i], 1, DAY, 0, 0);
    assert_int_equal(stint_policy_parse("2/minute name=ruled ban=1h", &policy, NULL), 0);
    ruled = add_made(scene->limiter, &policy);
    for (size_t i = 0; i < 3 && refills; i++)
        assert_int_equal(
            stint_policy_remove(scene->limiter, (uint32_t)policy_found(scene->limiter, passing[i])),
            0);
    assert_int_equal(
        stint_override(scene->limiter, ruled, number_key(scene->limiter, 8), 3, T0 + DAY), 0);
    (void)ask(scene->limiter, ruled, number_key(scene->limiter, 9), 3, 0);
    if (refills) {
        stint_close(scene->limiter);
        scene->limiter = open_own();
    }
    assert_ruled(scene, ruled, true);
}

static uint32_t ids_in_use(const struct stint_limiter *limiter) {
    uint32_t ids = 0;
    for (uint32_t id = 0; id < limiter->max_policies; id++)
        ids += limiter_policy(limiter, id) != NULL;
    return ids;
}

static void remove_ruled(const struct scene *scene) {
    (void)stint_policy_remove(scene->limiter, ruled);
}

/* Whoever dies while a policy with overrides and bans is changed, replaced or removed, or while
 * one gets them: there is the old one, with all that was set, or the new one, with it if that has
 * overrides. Applying again finishes, and in the end no id is lost. */
TEST(test_death_in_hand_over) {
    if (emulated("robust mutexes"))
        skip();
    static const char had[] = "2/minute name=\"ruled\" ban=1h";
    static const struct {
        const char *name, *text, *before, *after;
        bool holds;   /* afterwards, what was set for `ruled` */
        uint32_t ids; /* in use afterwards */
    } rows[] = {
        {"ruled", "4/h name=ruled ban=2h", had, "4/hour name=\"ruled\" ban=2h", true, 7},
        {"ruled", "4/h name=ruled", had, "4/hour name=\"ruled\"", false, 6},
        {"ruled", "5/minute name=ruled ban=2h after=3", had,
         "5/minute name=\"ruled\" ban=2h after=3", true, 7},
        {"ruled", "5/minute name=ruled", had, "5/minute name=\"ruled\"", false, 7},
        {"ruled", NULL, had, "", false, 5},
        {"new", "4/h name=new ban=3h after=2", "", "4/hour name=\"new\" ban=3h after=2", true, 9},
        {"plain", "4/h name=plain ban=3h after=2", "5/minute name=\"plain\"",
         "4/hour name=\"plain\" ban=3h after=2", true, 8},
    };
    enum { SWEPT = 40 }; /* steps by the new one; then slots are swept, as above */
    char path[] = "/dev/shm/stint-deaths-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    own_path = path;
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        const size_t row = i / 2;
        const bool removed = rows[row].text == NULL;
        void (*act)(const struct scene *) = removed ? remove_ruled : apply;
        struct scene scene = {0};
        bool dies = true;
        uint64_t step = 0;
        unsigned old = 0, new = 0;
        applied = removed ? "5/minute name=plain" : rows[row].text; /* it changes nothing */
        applied_flags = 0;
        from_set_up = true;
        for (; dies; step += new < SWEPT ? 1 : 1009) {
            alarm(60);
            ruled_begin(&scene, i % 2 == 1);
            const int found = policy_found(scene.limiter, rows[row].name);
            const uint32_t id = found < 0 ? UINT32_MAX : (uint32_t)found;
            dies = die(&scene, act, step);
            const bool is_new =
                check_old_or_new(&scene, id, rows[row].name, rows[row].before, rows[row].after);
            assert_true(is_new || dies);
            is_new ? new ++ : old++;
            if (!is_new || !removed)
                assert_ruled(&scene, ruled, !is_new || rows[row].holds);
            struct scene other = {.limiter = open_own(), .key = scene.key};
            act(&scene);
            apply(&scene); /* sweeps */
            assert_true(
                check_old_or_new(&other, id, rows[row].name, rows[row].before, rows[row].after));
            if (!removed)
                assert_ruled(&other, ruled, rows[row].holds);
            assert_swept(other.limiter);
            if (rows[row].before[0] == '\0') /* nothing was replaced, nor removed */
                assert_int_equal(ids_in_use(scene.limiter), rows[row].ids);
            stint_close(scene.limiter);
            stint_close(other.limiter);
            scene.limiter = open_own(); /* alone */
            assert_int_equal(ids_in_use(scene.limiter), rows[row].ids);
            stint_close(scene.limiter);
        }
        from_set_up = false;
        print_message("%s, %zu: %u and %u deaths\n", removed ? "removed" : rows[row].text, i % 2,
                      old, new);
        assert_true(old > 3 && new > 3);
    }
    alarm(0);
    unlink(path);
}

static bool wait_less; /* whoever is waited for will not move */

int __real_clock_nanosleep(clockid_t clock, int flags, const struct timespec *until,
                           struct timespec *rest);
int __wrap_clock_nanosleep(clockid_t clock, int flags, const struct timespec *until,
                           struct timespec *rest);

int __wrap_clock_nanosleep(clockid_t clock, int flags, const struct timespec *until,
                           struct timespec *rest) {
    return wait_less ? 0 : __real_clock_nanosleep(clock, flags, until, rest);
}

/* ---- Makers of a table ----------------------------------------------------------------------- */

static uint32_t max_policies; /* of the table that is to be made; 0: the usual */

static struct stint_limiter *make_or_attach(void) {
    struct stint_options options = fixture_options(MAX_KEYS, STINT_FULL_REFUSE);
    options.secret = NULL;
    options.max_policies = max_policies;
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

/* Whoever has other options does not go on with what the dead have begun. */
TEST(test_other_options_in_making) {
    if (emulated("robust mutexes"))
        skip();
    const struct header *header = (const struct header *)(const void *)memory;
    struct scene scene;
    unsigned left = 0;
    test_time = T0;
    for (uint64_t step = 0; memset(memory, 0, size), die(&scene, make_and_take, step); step++) {
        if (header->magic >> 32 != HEADER_MAKING)
            continue;
        left++;
        wait_less = true;
        max_policies = 32;
        assert_null(make_or_attach());
        assert_non_null(strstr(stint_reason(), "other options"));
        max_policies = 0;
        wait_less = false;
    }
    assert_true(left > 3);
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
    return tests_run(NULL, NULL);
}
