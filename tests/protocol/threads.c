/* SPDX-License-Identifier: MIT
 * What threads have of their own: lanes of counters, and the numbers that choose them; and every
 * kind of policy on threads of the system, which ThreadSanitizer sees. (All promises at each step:
 * scenes.c, the world. Who waits for the lock of set-up: deaths.c.) */
#include "limiter/counters.h" /* before cmocka, which defines fail() as well */

#include "team.h"

#include "kinds.h"
#include "model.h"

/* ---- Rates ----------------------------------------------------------------------------------- */

enum { OWN = 100, BURST = 50 /* tokens */ };

struct rates {
    struct stint_limiter *limiter;
    uint32_t policy;
    uint64_t takes, wrong;
    unsigned taking;               /* threads */
    uint32_t shared[THREADS][OWN]; /* granted to each, of keys that all ask for */
};

/* Takes and gives back: of keys of its own, of which it knows each verdict, and of keys of all. */
static void take_at_any_rate(struct rates *rates, unsigned member) {
    struct random random = {member + 1};
    uint32_t used[OWN] = {0};
    for (uint64_t i = 0; i < rates->takes; i++) {
        const uint32_t k = (uint32_t)random_below(&random, OWN);
        const uint32_t cost = 1 + (uint32_t)random_below(&random, 4);
        const stint_key own = number_key(rates->limiter, (member + 1) * 1000 + k);
        struct stint_verdict v;
        const bool allowed = stint_take(rates->limiter, rates->policy, own, cost, STINT_NOW, &v);
        used[k] += v.granted;
        if (allowed != (used[k] - v.granted + cost <= BURST) || v.used != used[k])
            __atomic_add_fetch(&rates->wrong, 1, __ATOMIC_RELAXED);
        if (random_below(&random, 4) == 0) /* the change before may be two changes ago by now */
            used[k] -= stint_refund(rates->limiter, own, &v, v.granted);
        const stint_key key = number_key(rates->limiter, k);
        (void)stint_take(rates->limiter, rates->policy, key, cost, STINT_NOW, &v);
        rates->shared[member][k] += v.granted;
        if (random_below(&random, 8) == 0)
            rates->shared[member][k] -= stint_refund(rates->limiter, key, &v, v.granted);
    }
    __atomic_sub_fetch(&rates->taking, 1, __ATOMIC_RELAXED);
}

/* The last one changes the rate as long as the others take. */
static void take_or_change(unsigned member, void *shared) {
    static const char *const texts[] = {"3/day", "7/day", "2/2day", "1/day"};
    struct rates *rates = shared;
    if (member != THREADS - 1) {
        take_at_any_rate(rates, member);
        return;
    }
    for (unsigned i = 0; __atomic_load_n(&rates->taking, __ATOMIC_RELAXED) != 0; i++) {
        char text[64];
        snprintf(text, sizeof text, "%s burst=50 name=b", texts[i % 4]);
        assert_int_equal(stint_policies_apply(rates->limiter, text, 0, NULL, NULL, NULL), 0);
    }
}

/* A: whatever the rate becomes, and whenever, what a key has used stays used, to the token; and
 * nobody gets more than the burst while the clock stands. */
TEST(test_rates) {
    struct rates rates = {.takes = test_rounds(100000), .taking = THREADS - 1};
    struct stint_options options = fixture_options(10000, STINT_FULL_REFUSE);
    test_time = T0;
    test_step = 0;
    rates.limiter = open_with(&options);
    rates.policy = add_text(rates.limiter, "1/day burst=50 name=b");
    lose_cores(true);
    run_team(take_or_change, &rates);
    lose_cores(false);
    assert_int_equal(rates.wrong, 0);
    for (uint32_t k = 0; k < OWN; k++) {
        struct stint_verdict v = {.allowed = true};
        uint32_t granted = 0;
        for (unsigned i = 0; i < THREADS; i++)
            granted += rates.shared[i][k];
        while (
            stint_take(rates.limiter, rates.policy, number_key(rates.limiter, k), 1, STINT_NOW, &v))
            granted++;
        assert_int_equal(granted, BURST);
    }
    stint_close(rates.limiter);
}

/* ---- All kinds ------------------------------------------------------------------------------- */

enum { KEYS = 2, RULED = 1 /* has an override, where the policy has any */, RULED_LIMIT = 7 };

/* What all threads were told of a key by a policy while the clock stood. */
struct account {
    struct stint_verdict look; /* before */
    uint64_t granted, back, refused, first_refusals, wrong;
    uint64_t window; /* of the round before */
};

struct crowd {
    struct stint_limiter *limiter;
    stint_key keys[KEYS];
    bool refunds, groups;
    uint64_t seed;
    struct account accounts[KINDS][KEYS];
    uint64_t decisions;
};

static void add_up(struct crowd *crowd, unsigned which, const struct stint_request *request,
                   struct stint_verdict *v, bool group_refused) {
    struct account *account = &crowd->accounts[request->policy][which];
    const bool refused = !v->allowed || (v->flags & STINT_SHADOWED) != 0;
    const uint32_t granted = v->granted;
    uint32_t back = 0;
    if (granted != 0 && crowd->refunds && v->used % 4 == 0)
        back = stint_refund(crowd->limiter, request->key, v, granted);
    const struct {
        uint64_t *sum, more;
    } sums[] = {
        {&crowd->decisions, 1},
        {&account->granted, granted},
        {&account->back, back},
        {&account->refused, refused && !group_refused && (request->flags & STINT_RESERVE) == 0},
        {&account->first_refusals, (v->flags & STINT_FIRST_REFUSAL) != 0},
        {&account->wrong, (v->flags & STINT_UNTRACKED) != 0 || (group_refused && granted != 0) ||
                              ((v->flags & STINT_BANNED) == 0 &&
                               ((v->flags ^ account->look.flags) & STINT_OVERRIDDEN) != 0)},
    };
    for (unsigned i = 0; i < sizeof sums / sizeof sums[0]; i++)
        __atomic_fetch_add(sums[i].sum, sums[i].more, __ATOMIC_RELAXED);
}

static void decide_any(struct crowd *crowd, struct random *random) {
    const unsigned which = (unsigned)random_below(random, KEYS);
    const uint32_t first = (uint32_t)random_below(random, KINDS);
    const stint_key key = crowd->keys[which];
    struct stint_request requests[] = {
        {.key = key, .policy = first, .cost = 1},
        {.key = key, .policy = (first + 1) % KINDS, .cost = 1},
    };
    struct stint_verdict v[2];
    unsigned count = 1;
    bool all = true;
    switch (random_below(random, crowd->groups ? 4 : 3)) {
    case 0:
        (void)stint_take(crowd->limiter, first, key, 1, STINT_NOW, v);
        break;
    case 1:
        if ((first == RESERVING || first == DELAYING) && random_below(random, 2) == 0)
            requests[0].flags = STINT_RESERVE;
        (void)stint_decide(crowd->limiter, requests, STINT_NOW, v);
        break;
    case 2:
        count = 2;
        (void)stint_decide_batch(crowd->limiter, requests, count, STINT_NOW, v);
        break;
    default:
        count = 2;
        all = stint_decide_all(crowd->limiter, requests, count, STINT_NOW, v);
    }
    for (unsigned j = 0; j < count; j++)
        add_up(crowd, which, &requests[j], &v[j], !all);
}

/* Whose decisions this thread makes; NULL: none. */
static _Thread_local struct crowd *deciding;

/* A signal handler may decide in the middle of a decision, of any kind. */
static void interrupt(const void *word) {
    static _Thread_local struct random random;
    struct crowd *crowd = deciding;
    team_step(word);
    if (crowd != NULL && random.state == 0)
        random.state = crowd->seed + (uintptr_t)&random;
    if (crowd == NULL || random_below(&random, 100) != 0)
        return;
    deciding = NULL;
    decide_any(crowd, &random);
    deciding = crowd;
}

static void decide_all_kinds(unsigned member, void *shared) {
    struct crowd *crowd = shared;
    struct random random = {.state = crowd->seed + member};
    deciding = crowd;
    for (unsigned i = 0; i < 6 * KINDS * KEYS; i++)
        decide_any(crowd, &random);
    deciding = NULL;
}

/* A: nobody has more than the capacity. B: who was refused found it full. C: the first refusal was
 * told once. And what is used is what was granted and not given back. */
static void check_account(const struct crowd *crowd, enum kind kind, unsigned which) {
    const struct account *account = &crowd->accounts[kind][which];
    const struct stint_policy policy = kind_policy(kind);
    const struct stint_verdict look = ask(crowd->limiter, kind, crowd->keys[which], 0, STINT_PEEK);
    const uint64_t expected = account->look.used + account->granted - account->back;
    /* A refund may take a token that another stripe is about to give back. */
    const uint64_t more = kind == STRIPED ? 4 * THREADS : 0;
    bool right = account->wrong == 0;
    if ((look.flags & STINT_BANNED) == 0)
        right &= look.capacity == account->look.capacity;
    if (kind != COUNTING)
        right &= look.used >= expected && look.used <= expected + more &&
                 (look.used <= account->look.capacity + policy.max_reserved ||
                  (account->look.flags & STINT_BANNED) != 0);
    if (account->refused != 0 && !crowd->refunds && !crowd->groups && policy.ban == 0)
        right &= look.used + more >= look.capacity;
    if (!is_bucket(&policy) && account->look.window != account->window) {
        right &= account->first_refusals <= 1;
        right &= account->refused == 0 || account->first_refusals == 1 ||
                 policy.max_reserved != 0 || policy.ban != 0;
    }
    if (!right) {
        print_verdict("before", &account->look);
        print_verdict("after ", &look);
        fail_msg("%s, key %u: granted %" PRIu64 ", given back %" PRIu64 ", refused %" PRIu64
                 ", first %" PRIu64 ", wrong %" PRIu64,
                 kind_names[kind], which, account->granted, account->back, account->refused,
                 account->first_refusals, account->wrong);
    }
}

static uint64_t decisions_counted(const struct crowd *crowd) {
    uint64_t decisions = 0;
    for (enum kind kind = PLAIN; kind < KINDS; kind++) {
        const struct stint_policy_stats stats = get_policy_stats(crowd->limiter, kind);
        decisions += stats.allowed + stats.refused + stats.shadowed;
    }
    return decisions;
}

TEST(test_all_kinds) {
    struct random random = {.state = test_seed()};
    struct crowd crowd = {.limiter = open_anywhere(2000)};
    add_kinds(crowd.limiter, KINDS);
    test_step = 0; /* a bucket fills in each ns */
    for (uint64_t round = 0; round < test_rounds(600); round++) {
        if (round % 16 == 0) /* other keys, in other lines */
            crowd.keys[0] = crowd.keys[RULED] = number_key(crowd.limiter, round);
        crowd.keys[RULED].hash = ~crowd.keys[0].hash;
        crowd.refunds = random_below(&random, 2) == 0;
        crowd.groups = random_below(&random, 2) == 0;
        crowd.seed = random_next(&random);
        test_time +=
            random_below(&random, 8) == 0 ? 32 * DAY : MINUTE + random_below(&random, MINUTE);
        for (enum kind kind = PLAIN; kind < KINDS; kind++)
            for (unsigned which = 0; which < KEYS; which++) {
                const stint_key key = crowd.keys[which];
                if (which == RULED && kind_policy(kind).ban != 0)
                    assert_int_equal(
                        stint_override(crowd.limiter, kind, key, RULED_LIMIT, test_time + DAY), 0);
                crowd.accounts[kind][which] =
                    (struct account){.window = crowd.accounts[kind][which].look.window,
                                     .look = ask(crowd.limiter, kind, key, 0, STINT_PEEK)};
            }
        crowd.decisions = 0;
        const uint64_t counted = decisions_counted(&crowd);
        stint_test_step = round % 2 == 0 ? interrupt : NULL;
        run_team(decide_all_kinds, &crowd);
        stint_test_step = NULL;
        if (!crowd.groups) /* what is given back has counted, too */
            assert_int_equal(decisions_counted(&crowd) - counted, crowd.decisions);
        for (enum kind kind = PLAIN; kind < KINDS; kind++)
            for (unsigned which = 0; which < KEYS; which++)
                check_account(&crowd, kind, which);
    }
    test_step = 3;
    stint_close(crowd.limiter);
}

/* ---- Counters -------------------------------------------------------------------------------- */

/* Each thread that is alive has a number of its own, or the last one, which is for all others:
 * two with one lane would lose counts. */

static struct stint_limiter *counted;

static void open_counted(void) {
    counted = open_anywhere(100);
    (void)add_policy(counted, "", 1000, 60 * TICK, 0, 0);
}

static uint64_t number_that_decides(void) {
    stint_take(counted, 0, 5, 1, EPOCH, NULL);
    return stint_thread_number;
}

enum { ALIVE = 20 };

static struct {
    pthread_barrier_t all_have;
    uint64_t numbers[ALIVE];
} alive;

static void *alive_main(void *argument) {
    *(uint64_t *)argument = number_that_decides();
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
    open_counted();
    assert_in_range(number_that_decides(), 1, LANES_MAX - 1);
    for (unsigned round = 0; round < 5; round++) /* those before have given theirs back */
        assert_true(all_differ(stint_thread_number));
#ifndef STINT_THREAD_SANITIZER /* no threads after fork */
    /* A child's one thread keeps its number, and new ones get others. */
    const pid_t child = forked();
    if (child == 0)
        _exit(all_differ(stint_thread_number) ? 0 : 1);
    assert_good(child);
#endif
    stint_close(counted);
}

/* Destructors that decide, in every round of them: the last one is after the library's own. */

enum { ENDING = 70 };

static pthread_key_t ending_key;
static bool number_given_back_and_kept; /* another thread may have it: counts would be lost */

static void ending(void *argument) {
    number_given_back_and_kept |= number_that_decides() < LANES_MAX;
    pthread_setspecific(ending_key, argument); /* once more */
}

static void *ending_main(void *argument) {
    (void)number_that_decides();
    pthread_setspecific(ending_key, argument);
    return NULL;
}

static void *number_of_new_thread(void *argument) {
    (void)argument;
    return (void *)(uintptr_t)number_that_decides();
}

TEST(test_decisions_of_destructors) {
#ifdef STINT_THREAD_SANITIZER
    print_message("skipped: to the thread sanitizer a thread ends before its last destructors\n");
    skip();
#endif
    pthread_t thread;
    void *before, *after;

    open_counted();
    assert_int_equal(pthread_key_create(&ending_key, ending), 0);
    assert_int_equal(pthread_create(&thread, NULL, number_of_new_thread, NULL), 0);
    pthread_join(thread, &before);
    for (unsigned i = 0; i < ENDING; i++) {
        assert_int_equal(pthread_create(&thread, NULL, ending_main, &counted), 0);
        pthread_join(thread, NULL);
    }
    assert_int_equal(pthread_create(&thread, NULL, number_of_new_thread, NULL), 0);
    pthread_join(thread, &after);
    assert_int_equal((uintptr_t)after, (uintptr_t)before);
    assert_false(number_given_back_and_kept);
    assert_int_equal(get_policy_stats(counted, 0).allowed,
                     2 + ENDING * (1 + PTHREAD_DESTRUCTOR_ITERATIONS));
    assert_int_equal(pthread_key_delete(ending_key), 0);
    stint_close(counted);
}
