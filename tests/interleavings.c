/* SPDX-License-Identifier: MIT
 * Single interleavings of the slot protocol, each told step by step: what the model (tests/model)
 * or a review has found to go wrong when a step is missing. No threads: the other requests run
 * inside the first one, in a hook at one of its instants or when it reads its clock. */
#ifdef NDEBUG
#error "tests need their assertions"
#endif

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "mistakes.h"
#include "stint.h"
#include "testing.h"

#define EPOCH  UINT64_C(1700000000000000000) /* ns: a multiple of every window here */
#define TICK   STINT_TICK_NS
#define SECOND UINT64_C(1000000000)

static uint64_t test_time;      /* ns */
static void (*meanwhile)(void); /* what others do at the awaited instant; once */
static bool at_clock;           /* that instant is when the clock is read */
static enum stint_test_instant awaited;
static unsigned passed_over; /* so many of these instants come before it */

static void run_meanwhile(void) {
    void (*others)(void) = meanwhile;
    meanwhile = NULL;
    if (others != NULL)
        others();
}

static uint64_t test_clock(void) {
    if (at_clock)
        run_meanwhile();
    return test_time;
}

static void hook(enum stint_test_instant instant) {
    if (at_clock || instant != awaited)
        return;
    if (passed_over > 0)
        passed_over--;
    else
        run_meanwhile();
}

static struct stint_limiter *limiter;
static uint32_t policy, brief;

/* A table of one line, four slots. `policy` has one token a window, `brief` ten. */
static void open_line(enum stint_on_full on_full, uint64_t window, uint64_t brief_window) {
    struct stint_options options = STINT_OPTIONS_INIT;
    options.max_keys = 2;
    options.on_full = on_full;
    options.clock = test_clock;
    assert_int_equal(stint_open(&options, &limiter), 0);

    struct stint_policy about = STINT_POLICY_INIT;
    about.limit = 1;
    about.window = window;
    policy = (uint32_t)stint_policy_add(limiter, &about);
    about = (struct stint_policy)STINT_POLICY_INIT;
    about.limit = 10;
    about.window = brief_window;
    brief = (uint32_t)stint_policy_add(limiter, &about);
    meanwhile = NULL;
    at_clock = false;
    passed_over = 0;
    stint_test_hook = hook;
    test_time = EPOCH;
}

static int close_line(void **state) {
    (void)state;
    stint_test_hook = NULL;
    stint_test_step = NULL;
    meanwhile = NULL;
    stint_close(limiter);
    return 0;
}

enum { KEY = 77, OTHER = 100 };

static void fill(unsigned from, unsigned to, uint32_t cost) {
    for (stint_key key = OTHER + from; key < OTHER + to; key++) {
        struct stint_verdict verdict;
        assert_true(stint_take(limiter, brief, key, cost, STINT_NOW, &verdict));
        assert_int_equal(verdict.flags, 0);
    }
}

/* ---- The last slot -------------------------------------------------------------------------- */

static bool other_allowed;

static void take_key(void) {
    other_allowed = stint_take(limiter, policy, KEY, 1, test_time, NULL);
}

/* Between the search for the key and the end of the search for a free slot, another thread puts
 * the key into the last slot. Its limit is 1: one of the two is allowed. */
static void check_last_slot(enum stint_on_full on_full) {
    open_line(on_full, 10000 * SECOND, 60 * SECOND);
    test_time = EPOCH + 1000 * SECOND;
    fill(0, 3, 5);

    /* So late that it asks the clock about the first slot. */
    struct stint_verdict verdict;
    at_clock = true;
    meanwhile = take_key;
    bool allowed = stint_take(limiter, policy, KEY, 1, EPOCH, &verdict);
    assert_null(meanwhile);
    assert_true(other_allowed);
    assert_false(allowed);
    assert_int_equal(verdict.flags, STINT_FIRST_REFUSAL);
}

static void test_last_slot_admit(void **state) {
    (void)state;
    check_last_slot(STINT_FULL_ADMIT);
}

static void test_last_slot_refuse(void **state) {
    (void)state;
    check_last_slot(STINT_FULL_REFUSE);
}

/* With STINT_FULL_REPLACE the key's own slot, just opened, is the one with the fewest tokens. */
static void test_last_slot_replace(void **state) {
    (void)state;
    check_last_slot(STINT_FULL_REPLACE);
}

/* ---- Claims --------------------------------------------------------------------------------- */

static void take_key_late(void) {
    other_allowed = stint_take(limiter, policy, KEY, 1, EPOCH + 9 * TICK, NULL);
}

/* Two threads have not found the key. The first, which the clock has passed, takes the second slot,
 * as another key's window in the first is not over for it; the other one then claims the first
 * slot, finds the key in the second and gives up its claim. */
static void test_claim_given_up(void **state) {
    (void)state;
    open_line(STINT_FULL_REFUSE, 1000 * TICK, 10 * TICK);
    fill(0, 1, 1);
    test_time = EPOCH + 10 * TICK;

    at_clock = true; /* read to raise the watermark, before the claim */
    meanwhile = take_key_late;
    bool allowed = stint_take(limiter, policy, KEY, 1, test_time, NULL);
    assert_null(meanwhile);
    assert_true(other_allowed);
    assert_false(allowed);
    struct stint_stats stats = STINT_STATS_INIT;
    assert_int_equal(stint_stats(limiter, &stats), 0);
    assert_int_equal(stats.placed, 3); /* the other key's, and two claims */
}

static struct stint_verdict looked;

static void look_at_key(void) {
    const struct stint_request look = {
        .key = KEY, .policy = policy, .cost = 1, .flags = STINT_PEEK};
    stint_decide(limiter, &look, test_time, &looked);
}

static void take_key_late_look_later(void) {
    take_key_late();
    at_clock = false;
    awaited = INSTANT_CLAIMED;
    meanwhile = look_at_key;
}

/* Likewise, and a third thread looks at the key before that claim is given up: it sees what the key has
 * used, not the claim. */
static void test_look_beside_claim(void **state) {
    (void)state;
    open_line(STINT_FULL_REFUSE, 1000 * TICK, 10 * TICK);
    fill(0, 1, 1);
    test_time = EPOCH + 10 * TICK;

    at_clock = true;
    meanwhile = take_key_late_look_later;
    bool allowed = stint_take(limiter, policy, KEY, 1, test_time, NULL);
    assert_null(meanwhile);
    assert_true(other_allowed);
    assert_false(allowed);
    assert_false(looked.allowed);
    assert_int_equal(looked.used, 1);
}

/* The watermark: a key has spent its window, and lost its slot when that was over. A late thread
 * must not open the window again in another slot. */
static void test_late_claim(void **state) {
    (void)state;
    open_line(STINT_FULL_REFUSE, 10 * TICK, 1000 * TICK);
    struct stint_verdict verdict;
    assert_true(stint_take(limiter, policy, KEY, 1, STINT_NOW, &verdict));
    assert_int_equal(verdict.window, EPOCH + 10 * TICK);
    test_time = EPOCH + 10 * TICK;
    fill(0, 1, 1); /* takes the key's slot, the first */
    stint_take(limiter, policy, KEY, 1, EPOCH + 9 * TICK, &verdict);
    assert_int_equal(verdict.window, EPOCH + 20 * TICK);
}

static void lose_slot(void) {
    test_time = EPOCH + 10 * TICK;
    fill(1, 2, 1);
}

/* Likewise if the slot is lost while the late thread has a claim. */
static void test_late_commit(void **state) {
    (void)state;
    open_line(STINT_FULL_REFUSE, 10 * TICK, 1000 * TICK);
    awaited = INSTANT_CLAIMED;
    meanwhile = lose_slot;
    struct stint_verdict verdict;
    assert_true(stint_take(limiter, policy, KEY, 1, STINT_NOW, &verdict));
    assert_null(meanwhile);
    /* The claim was over, and was taken; or it was committed where nobody had spent anything. */
    bool again = stint_take(limiter, policy, KEY, 1, EPOCH, &verdict);
    assert_false(again);
}

/* ---- Threads that die on their way ------------------------------------------------------------ */

static jmp_buf died;
static unsigned steps;

static void die(void) {
    longjmp(died, 1);
}

/* A key takes the slot of the claim, which is over; then a late one replaces that, with a claim of the
 * same tick as the first, and dies. */
static void replace_twice_and_die(void) {
    test_time = EPOCH + TICK;
    assert_true(stint_take(limiter, brief, OTHER + 1, 1, STINT_NOW, NULL));
    if (setjmp(died) == 0) {
        awaited = INSTANT_CLAIMED;
        meanwhile = die;
        stint_take(limiter, brief, OTHER + 2, 1, EPOCH, NULL);
    }
}

static void count_steps(const void *word) {
    (void)word;
    if (++steps > 10000)
        fail_msg("a thread waits for one that died");
}

/* E: a commit does not wait for the claim of another key that has come to its slot. */
static void test_dead_claim_of_another(void **state) {
    (void)state;
    open_line(STINT_FULL_REPLACE, 1000 * TICK, 1000 * TICK);
    fill(10, 13, 9);
    awaited = INSTANT_CLAIMED;
    meanwhile = replace_twice_and_die;
    steps = 0;
    stint_test_step = count_steps;
    assert_true(stint_take(limiter, policy, KEY, 1, STINT_NOW, NULL));
    stint_test_step = NULL;
    assert_null(meanwhile);
}

/* ---- Refunds -------------------------------------------------------------------------------- */

/* What is given back is room again, and no more than that, for callers with a limit of their own
 * above the policy's. */
static void test_refund_of_own_limit(void **state) {
    (void)state;
    open_line(STINT_FULL_REFUSE, 10000 * SECOND, 60 * SECOND);
    struct stint_request request = {.key = KEY, .policy = policy, .cost = 20, .limit = 20};
    struct stint_verdict verdict;
    assert_true(stint_decide(limiter, &request, STINT_NOW, &verdict));
    assert_int_equal(stint_refund(limiter, policy, KEY, 1, verdict.window), 1);
    unsigned more = 0;
    request.cost = 1;
    for (unsigned i = 0; i < 20; i++)
        more += stint_decide(limiter, &request, STINT_NOW, NULL);
    assert_int_equal(more, 1);
}

/* Likewise when the limit was lowered for a while. */
static void test_refund_of_lowered_limit(void **state) {
    (void)state;
    open_line(STINT_FULL_REFUSE, 10000 * SECOND, 60 * SECOND);
    struct stint_policy about = STINT_POLICY_INIT;
    assert_int_equal(stint_policy_get(limiter, brief, &about), 0);
    struct stint_verdict verdict;
    assert_true(stint_take(limiter, brief, KEY, 10, STINT_NOW, &verdict));
    about.limit = 4;
    assert_int_equal(stint_policy_change(limiter, brief, &about), 0);
    assert_int_equal(stint_refund(limiter, brief, KEY, 1, verdict.window), 1);
    about.limit = 10;
    assert_int_equal(stint_policy_change(limiter, brief, &about), 0);
    unsigned more = 0;
    for (unsigned i = 0; i < 10; i++)
        more += stint_take(limiter, brief, KEY, 1, STINT_NOW, NULL);
    assert_int_equal(more, 1);
}

static void raise_and_take(void) {
    struct stint_policy about = STINT_POLICY_INIT;
    assert_int_equal(stint_policy_get(limiter, brief, &about), 0);
    about.limit = 25;
    assert_int_equal(stint_policy_change(limiter, brief, &about), 0);
    for (unsigned i = 0; i < 15; i++)
        assert_true(stint_take(limiter, brief, KEY, 1, test_time, NULL));
}

/* A refund is under way when the limit is raised and more is granted: none of that is lost. */
static void test_refund_while_raised(void **state) {
    (void)state;
    open_line(STINT_FULL_REFUSE, 10000 * SECOND, 60 * SECOND);
    struct stint_verdict verdict;
    assert_true(stint_take(limiter, brief, KEY, 10, STINT_NOW, &verdict));
    awaited = INSTANT_REFUND;
    meanwhile = raise_and_take;
    assert_int_equal(stint_refund(limiter, brief, KEY, 1, verdict.window), 1);
    assert_null(meanwhile);
    unsigned more = 0;
    for (unsigned i = 0; i < 25; i++)
        more += stint_take(limiter, brief, KEY, 1, STINT_NOW, NULL);
    assert_int_equal(more, 1);
}

/* ---- Several requests as one ---------------------------------------------------------------- */

static void carry_no_more(void) {
    struct stint_policy about = STINT_POLICY_INIT;
    assert_int_equal(stint_policy_get(limiter, brief, &about), 0);
    about.capacity = 0;
    assert_int_equal(stint_policy_change(limiter, brief, &about), 0);
}

static void carry_again(void) {
    struct stint_policy about = STINT_POLICY_INIT;
    assert_int_equal(stint_policy_get(limiter, brief, &about), 0);
    about.capacity = 20;
    assert_int_equal(stint_policy_change(limiter, brief, &about), 0);
}

/* Requests that carry over are taken last. A policy that changes in between is still charged once. */
static void check_all_while_changed(bool carries_at_first) {
    open_line(STINT_FULL_REFUSE, 10000 * SECOND, 60 * SECOND);
    if (carries_at_first)
        carry_again();
    const struct stint_request requests[2] = {{.key = KEY, .policy = brief, .cost = 3},
                                              {.key = KEY, .policy = policy, .cost = 1}};
    struct stint_verdict verdicts[2];
    awaited = INSTANT_CLAIMED;
    meanwhile = carries_at_first ? carry_no_more : carry_again;
    assert_true(stint_decide_all(limiter, requests, 2, STINT_NOW, verdicts));
    assert_null(meanwhile);
    const struct stint_request look = {.key = KEY, .policy = brief, .cost = 1, .flags = STINT_PEEK};
    struct stint_verdict verdict;
    assert_true(stint_decide(limiter, &look, STINT_NOW, &verdict));
    assert_int_equal(verdict.used, 3);
}

static void test_all_while_changed(void **state) {
    (void)state;
    check_all_while_changed(true);
}

static void test_all_while_changed_back(void **state) {
    (void)state;
    check_all_while_changed(false);
}

/* ---- Stripes -------------------------------------------------------------------------------- */

static uint32_t striped;
static unsigned others_allowed;

static void take_all_stripes(void) {
    others_allowed = 0;
    while (stint_take(limiter, striped, KEY, 1, test_time, NULL))
        others_allowed++;
}

/* A request with a lower limit of its own has tokens of one stripe, and does not get enough of the
 * other, because others took all up to the policy's limit. It gives back what it took, no more. */
static void test_stripes_give_back(void **state) {
    (void)state;
    open_line(STINT_FULL_REFUSE, 10000 * SECOND, 10000 * SECOND);
    struct stint_policy about = STINT_POLICY_INIT;
    about.limit = 20;
    about.stripes = 2;
    about.window = 20000 * SECOND;
    striped = (uint32_t)stint_policy_add(limiter, &about);

    awaited = INSTANT_CLAIMED;
    passed_over = 1; /* at the second stripe */
    meanwhile = take_all_stripes;
    const struct stint_request request = {.key = KEY, .policy = striped, .cost = 4, .limit = 4};
    assert_false(stint_decide(limiter, &request, STINT_NOW, NULL));
    assert_null(meanwhile);
    unsigned allowed = others_allowed;
    assert_int_equal(allowed, 18);
    take_all_stripes();
    assert_int_equal(allowed + others_allowed, 20);
}

/* ---- Known mistakes ----------------------------------------------------------------------------- */

/* Each known mistake of the protocol does harm in its story if its guard is taken away; and none if not,
 * wherever the threads of the story are stopped. */
static void test_known_mistakes(void **state) {
    (void)state;
    for (unsigned i = 0; i < mistake_count; i++) {
        const struct mistake *mistake = &mistakes[i];
        if (!mistake_playable(mistake))
            continue;
        struct outcome with = mistake_play(mistake, 0);
        struct outcome without = mistake_play(mistake, mistake->guards);
        print_message("%-40s holds in %5u plays; breaks %s (%u, %u, %u)\n", mistake->name,
                      with.plays, without.broken != NULL ? without.broken : "nothing",
                      without.stops[0], without.stops[1], without.stops[2]);
        if (with.broken != NULL)
            fail_msg("%s: %s (stopped at %u, %u, %u)", mistake->name, with.broken, with.stops[0],
                     with.stops[1], with.stops[2]);
        if (without.broken == NULL)
            fail_msg("%s: no harm in %u plays without the guard", mistake->name, without.plays);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_last_slot_admit, close_line),
        cmocka_unit_test_teardown(test_last_slot_refuse, close_line),
        cmocka_unit_test_teardown(test_last_slot_replace, close_line),
        cmocka_unit_test_teardown(test_claim_given_up, close_line),
        cmocka_unit_test_teardown(test_look_beside_claim, close_line),
        cmocka_unit_test_teardown(test_late_claim, close_line),
        cmocka_unit_test_teardown(test_late_commit, close_line),
        cmocka_unit_test_teardown(test_dead_claim_of_another, close_line),
        cmocka_unit_test_teardown(test_refund_of_own_limit, close_line),
        cmocka_unit_test_teardown(test_refund_of_lowered_limit, close_line),
        cmocka_unit_test_teardown(test_refund_while_raised, close_line),
        cmocka_unit_test_teardown(test_all_while_changed, close_line),
        cmocka_unit_test_teardown(test_all_while_changed_back, close_line),
        cmocka_unit_test_teardown(test_stripes_give_back, close_line),
        cmocka_unit_test(test_known_mistakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
