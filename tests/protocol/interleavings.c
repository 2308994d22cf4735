/* SPDX-License-Identifier: MIT
 * Single interleavings of the slot protocol, each told step by step: what the model (tests/spin)
 * or a review has found to go wrong when a step is missing. No threads: the other requests run
 * inside the first one, in a hook at one of its instants or when it reads its clock. */
#include "counters.h" /* for the number of the thread */
#include "fixture.h"
#include "mistakes.h"
#include "random.h"

#define EPOCH UINT64_C(1700000000000000000) /* ns: a multiple of every window here */
#define TICK  STINT_TICK_NS

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

static uint64_t interleaved_clock(void) {
    if (at_clock)
        run_meanwhile();
    return test_clock();
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
    struct stint_options options = fixture_options(2, on_full);
    options.clock = interleaved_clock;
    options.secret = NULL;
    limiter = open_with(&options);
    policy = add_policy(limiter, "", 1, window, 0, 0);
    brief = add_policy(limiter, "", 10, brief_window, 0, 0);
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
    limiter = NULL;
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

/* Every slot of the line has been used by others, whose windows are over. */
static void use_line(uint32_t id, uint64_t window) {
    test_time = EPOCH - window;
    for (stint_key key = OTHER + 50; key < OTHER + 54; key++)
        assert_true(stint_take(limiter, id, key, 1, STINT_NOW, NULL));
    test_time = EPOCH;
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

TEST(test_last_slot_admit) {
    check_last_slot(STINT_FULL_ADMIT);
}

TEST(test_last_slot_refuse) {
    check_last_slot(STINT_FULL_REFUSE);
}

/* With STINT_FULL_REPLACE the key's own slot, just opened, is the one with the fewest tokens. */
TEST(test_last_slot_replace) {
    check_last_slot(STINT_FULL_REPLACE);
}

/* ---- Claims --------------------------------------------------------------------------------- */

static void take_key_late(void) {
    other_allowed = stint_take(limiter, policy, KEY, 1, EPOCH + 9 * TICK, NULL);
}

/* Two threads have not found the key. The first, which the clock has passed, takes the second slot,
 * as another key's window in the first is not over for it; the other one then claims the first
 * slot, finds the key in the second and gives up its claim. */
TEST(test_claim_given_up) {
    open_line(STINT_FULL_REFUSE, 1000 * TICK, 10 * TICK);
    use_line(brief, 10 * TICK);
    fill(0, 1, 1);
    test_time = EPOCH + 10 * TICK;

    at_clock = true; /* read to raise the watermark, before the claim */
    meanwhile = take_key_late;
    bool allowed = stint_take(limiter, policy, KEY, 1, test_time, NULL);
    assert_null(meanwhile);
    assert_true(other_allowed);
    assert_false(allowed);
    struct stint_stats stats = STINT_STATS_INIT;
    assert_int_equal(stint_stats_get(limiter, &stats), 0);
    assert_int_equal(stats.placed, 4 + 3); /* the other key's, and two claims */
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

/* Likewise, and a third thread looks at the key before that claim is given up: it sees what the
 * key has used, not the claim. */
TEST(test_look_beside_claim) {
    open_line(STINT_FULL_REFUSE, 1000 * TICK, 10 * TICK);
    use_line(brief, 10 * TICK);
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
TEST(test_late_claim) {
    open_line(STINT_FULL_REFUSE, 10 * TICK, 1000 * TICK);
    use_line(policy, 10 * TICK);
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
TEST(test_late_commit) {
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

/* ---- Threads that die on their way ----------------------------------------------------------- */

static jmp_buf died;
static unsigned steps;

static void die(void) {
    longjmp(died, 1);
}

/* A key takes the slot of the claim, which is over; then a late one replaces that, with a claim
 * of the same tick as the first, and dies. */
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
TEST(test_dead_claim_of_another) {
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

/* A claim from before the clock was stepped back, whose thread died, is a window of now. */
TEST(test_dead_claim_before_a_step_back) {
    open_line(STINT_FULL_REFUSE, 100 * SECOND, 100 * SECOND);
    awaited = INSTANT_CLAIMED;
    meanwhile = die;
    if (setjmp(died) == 0)
        stint_take(limiter, policy, KEY, 1, STINT_NOW, NULL);
    test_time = EPOCH - 3600 * SECOND;
    struct stint_verdict verdict;
    assert_true(stint_take(limiter, policy, KEY, 1, STINT_NOW, &verdict));
    assert_int_equal(verdict.window, EPOCH - 3500 * SECOND);
}

/* ---- Refunds -------------------------------------------------------------------------------- */

/* What is given back is room again, and no more than that, for callers with a limit of their own
 * above the policy's. */
TEST(test_refund_of_own_limit) {
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
TEST(test_refund_of_lowered_limit) {
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
TEST(test_refund_while_raised) {
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

/* ---- A count past the limit ----------------------------------------------------------------- */

static bool refused_as_well;

static void spend_last(void) {
    other_allowed = stint_take(limiter, brief, KEY, 1, test_time, NULL);
    refused_as_well = !stint_take(limiter, brief, KEY, 1, test_time, NULL);
}

/* A thread has seen the last token; others take it and are refused; then the first one's fetch-add
 * counts past the limit. That is refused, and hidden by a plain policy: if the policy becomes one
 * that carries, it is nobody's debt. */
static void check_past_the_limit(uint32_t capacity, uint32_t max_reserved) {
    enum { LIMIT = 10, WINDOW = 100 };
    open_line(STINT_FULL_REFUSE, WINDOW * TICK, WINDOW * TICK);
    assert_true(stint_take(limiter, brief, KEY, LIMIT - 1, STINT_NOW, NULL));
    awaited = INSTANT_LOADED;
    meanwhile = spend_last;
    assert_false(stint_take(limiter, brief, KEY, 1, STINT_NOW, NULL));
    assert_null(meanwhile);
    assert_true(other_allowed && refused_as_well);

    struct stint_policy about = STINT_POLICY_INIT;
    assert_int_equal(stint_policy_get(limiter, brief, &about), 0);
    about.capacity = capacity;
    about.max_reserved = max_reserved;
    assert_int_equal(stint_policy_change(limiter, brief, &about), 0);
    test_time += WINDOW * TICK;
    struct stint_verdict verdict;
    const struct stint_request look = {.key = KEY, .policy = brief, .flags = STINT_PEEK};
    stint_decide(limiter, &look, STINT_NOW, &verdict);
    assert_int_equal(verdict.used, 0);
    assert_int_equal(verdict.remaining, verdict.capacity);
    assert_true(stint_take(limiter, brief, KEY, verdict.capacity, STINT_NOW, NULL));
    assert_int_equal(close_line(NULL), 0);
}

TEST(test_past_the_limit) {
    check_past_the_limit(15, 0);
    check_past_the_limit(100, 0);
    check_past_the_limit(0, 7);
    check_past_the_limit(11, 7);
}

static void look_by_more(uint32_t flags) {
    const struct stint_request look = {
        .key = OTHER, .policy = brief, .cost = 1, .limit = 1000, .flags = STINT_PEEK | flags};
    assert_true(stint_decide(limiter, &look, STINT_NOW, NULL));
    assert_int_equal(stint_override(limiter, brief, OTHER, 2000, test_time + SECOND), 0);
    struct stint_request both[2] = {look, {.key = OTHER + 1, .policy = policy, .cost = 1}};
    both[0].limit = 0; /* by the override */
    assert_true(stint_decide_all(limiter, both, 2, STINT_NOW, NULL));
    assert_int_equal(stint_override_clear(limiter, brief, OTHER), 0);
}

/* B: a look by a larger limit, of the request's own or of an override, is none by which anything
 * was counted: what a refused request has added is cut off all the same, and a token that is given
 * back is there for the next. */
TEST(test_looks_raise_nothing) {
    static const uint32_t flags[] = {0, STINT_RESERVE, STINT_CHARGE};
    for (size_t i = 0; i < 3; i++) {
        open_line(STINT_FULL_REFUSE, 10000 * SECOND, 100 * SECOND);
        struct stint_policy about = STINT_POLICY_INIT;
        assert_int_equal(stint_policy_get(limiter, brief, &about), 0);
        about.flags |= STINT_OVERRIDES;
        assert_int_equal(stint_policy_change(limiter, brief, &about), 0);
        if (flags[i] == STINT_CHARGE) { /* which has no limit of its own */
            const struct stint_request look = {
                .key = OTHER, .policy = brief, .cost = 1, .flags = STINT_PEEK | STINT_CHARGE};
            assert_true(stint_decide(limiter, &look, STINT_NOW, NULL));
        } else {
            look_by_more(flags[i]);
        }
        about.flags &= ~(uint32_t)STINT_OVERRIDES;
        assert_int_equal(stint_policy_change(limiter, brief, &about), 0);

        struct stint_verdict verdict;
        assert_true(stint_take(limiter, brief, KEY, 9, STINT_NOW, &verdict));
        awaited = INSTANT_LOADED;
        meanwhile = spend_last;
        assert_false(stint_take(limiter, brief, KEY, 1, STINT_NOW, NULL));
        assert_null(meanwhile);
        assert_int_equal(stint_refund(limiter, brief, KEY, 1, verdict.window), 1);
        assert_true(stint_take(limiter, brief, KEY, 1, STINT_NOW, NULL));
        assert_int_equal(close_line(NULL), 0);
    }
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

/* Requests that carry over are taken last. A policy that changes in between is still charged
 * once. */
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

TEST(test_all_while_changed) {
    check_all_while_changed(true);
}

TEST(test_all_while_changed_back) {
    check_all_while_changed(false);
}

/* ---- Stripes -------------------------------------------------------------------------------- */

static uint32_t striped;
static unsigned others_allowed;

static void add_striped(uint32_t limit, uint32_t stripes) {
    struct stint_policy about = STINT_POLICY_INIT;
    about.limit = limit;
    about.stripes = stripes;
    about.window = 20000 * SECOND;
    striped = add_made(limiter, &about);
}

static void take_all_stripes(void) {
    others_allowed = 0;
    while (stint_take(limiter, striped, KEY, 1, test_time, NULL))
        others_allowed++;
}

/* A request with a lower limit of its own has tokens of one stripe, and does not get enough of the
 * other, because others took all up to the policy's limit. It gives back what it took, no more. */
TEST(test_stripes_give_back) {
    open_line(STINT_FULL_REFUSE, 10000 * SECOND, 10000 * SECOND);
    add_striped(20, 2);

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

static unsigned stops_at; /* steps to go until others run */

static void stop_at_step(const void *word) {
    (void)word;
    if (stops_at-- == 0)
        run_meanwhile();
}

/* Decides while others have their turn before the step of that number, or none, if there are not so
 * many. */
static bool decide_beside(unsigned step, void (*others)(void), const struct stint_request *requests,
                          size_t n, uint64_t now, struct stint_verdict *verdicts) {
    stint_test_hook = NULL;
    meanwhile = others;
    stops_at = step;
    stint_test_step = stop_at_step;
    bool allowed = n == 1 ? stint_decide(limiter, requests, now, verdicts)
                          : stint_decide_all(limiter, requests, n, now, verdicts);
    stint_test_step = NULL;
    return allowed;
}

static void take_and_return(void) {
    struct stint_verdict verdict;
    others_allowed += stint_take(limiter, striped, KEY, 1, test_time, &verdict);
    stint_refund(limiter, striped, KEY, verdict.granted, verdict.window);
}

/* B: what never fits takes nothing on the way to its refusal. Whoever takes one of the key's last 4
 * tokens meanwhile, at whichever step, gets it. */
static void check_refuses_nobody(const struct stint_policy *about,
                                 const struct stint_request *requests, size_t n, const char *what) {
    for (unsigned step = 0, others = 1; others != 0; step++) {
        open_line(STINT_FULL_REFUSE, 10000 * SECOND, 10000 * SECOND);
        striped = add_made(limiter, about);
        assert_int_equal(striped, requests[0].policy);
        for (unsigned i = 0; i < 4; i++)
            assert_true(stint_take(limiter, striped, KEY, 1, test_time, NULL));
        others_allowed = 0;
        assert_false(decide_beside(step, take_and_return, requests, n, test_time, NULL));
        others = meanwhile == NULL; /* none: it has not so many steps */
        if (others_allowed != others)
            fail_msg("%s, %u stripes, cost %u: one token of 4 refused at step %u", what,
                     about->stripes, requests[0].cost, step);
        assert_int_equal(close_line(NULL), 0);
    }
}

enum { ADDED = 2 }; /* the id of a policy that is added to those of open_line */

static struct stint_policy eight_tokens(uint32_t stripes) {
    struct stint_policy about = STINT_POLICY_INIT;
    about.limit = 8;
    about.stripes = stripes;
    about.window = 20000 * SECOND;
    return about;
}

TEST(test_stripes_refuse_nobody) {
    for (uint32_t stripes = 2; stripes <= 4; stripes *= 2) {
        struct stint_policy about = eight_tokens(stripes);
        for (uint32_t cost = 5; cost <= 9; cost += 2) {
            struct stint_request request = {.key = KEY, .policy = ADDED, .cost = cost};
            check_refuses_nobody(&about, &request, 1, "take");
            request.flags = STINT_PEEK;
            check_refuses_nobody(&about, &request, 1, "look");
            request.flags = STINT_PEEK | STINT_CHARGE;
            check_refuses_nobody(&about, &request, 1, "look before a charge");
            request.flags = 0;
            request.limit = cost == 5 ? 8 : cost - 1;
            check_refuses_nobody(&about, &request, 1, "limit of its own");
        }
    }
}

static unsigned then_stops_at;
static uint64_t taken_in;

static void return_one(void) {
    if (others_allowed != 0) /* else the request had all of them already */
        stint_refund(limiter, striped, KEY, 1, taken_in);
}

static void take_then_return(void) {
    struct stint_verdict verdict;
    others_allowed += stint_take(limiter, striped, KEY, 1, test_time, &verdict);
    taken_in = verdict.window;
    stops_at = then_stops_at;
    meanwhile = return_one;
}

/* A request takes from one stripe after the other, and gives back because another was faster. That
 * one gives back meanwhile: what it gets of the other's tokens in one stripe is not lost to the key
 * in the next. */
TEST(test_stripes_lose_no_token) {
    const struct stint_policy about = eight_tokens(2);
    uint64_t number = stint_thread_number;
    unsigned beside = 0;
    for (unsigned first = 0, played = 1; played != 0; first++) {
        played = 0;
        for (unsigned second = 0, others = 1; others != 0; second += 3) {
            open_line(STINT_FULL_REFUSE, 10000 * SECOND, 10000 * SECOND);
            striped = add_made(limiter, &about);
            others_allowed = 0;
            then_stops_at = second;
            stint_thread_number =
                2; /* whose stripe is the first, from which refunds are made as well */
            const struct stint_request request = {.key = KEY, .policy = striped, .cost = 8};
            struct stint_verdict verdict;
            decide_beside(first, take_then_return, &request, 1, test_time, &verdict);
            stint_thread_number = number;
            others = meanwhile == NULL; /* both have had their turn */
            played += meanwhile != take_then_return;
            beside += others;
            if (meanwhile == return_one)
                return_one();
            struct stint_verdict look;
            const struct stint_request peek = {KEY, striped, 0, 0, STINT_PEEK, 0};
            stint_decide(limiter, &peek, test_time, &look);
            if (look.used != verdict.granted)
                fail_msg("stopped at %u, %u: %u granted, %u used", first, second, verdict.granted,
                         look.used);
            assert_int_equal(close_line(NULL), 0);
        }
    }
    assert_true(beside > 100);
}

/* One of two tokens is used. Others give it back and take one, of another stripe perhaps: the
 * second one is there all the time. */
static uint64_t others_number;

static void move_token(void) {
    uint64_t number = stint_thread_number;
    stint_thread_number = others_number;
    assert_int_equal(stint_refund(limiter, striped, KEY, 1, taken_in), 1);
    assert_true(stint_take(limiter, striped, KEY, 1, test_time, NULL));
    stint_thread_number = number;
}

TEST(test_stripes_see_the_last_token) {
    uint64_t number = stint_thread_number;
    for (unsigned pair = 0; pair < 8; pair++) {
        for (unsigned step = 0, others = 1; others != 0; step++) {
            open_line(STINT_FULL_REFUSE, 10000 * SECOND, 10000 * SECOND);
            add_striped(2, 2);
            stint_thread_number = 2 + pair / 4;
            struct stint_verdict verdict;
            assert_true(stint_take(limiter, striped, KEY, 2, STINT_NOW, &verdict));
            taken_in = verdict.window;
            assert_int_equal(stint_refund(limiter, striped, KEY, 2, taken_in), 2);
            stint_thread_number = 2 + pair / 2 % 2;
            assert_true(stint_take(limiter, striped, KEY, 1, STINT_NOW, NULL));
            stint_thread_number = 2 + pair / 4;
            others_number = 2 + pair % 2;
            const struct stint_request request = {.key = KEY, .policy = striped, .cost = 1};
            bool allowed = decide_beside(step, move_token, &request, 1, test_time, NULL);
            stint_thread_number = number;
            others = meanwhile == NULL;
            if (!allowed)
                fail_msg("pair %u: one token of 2 refused at step %u", pair, step);
            assert_int_equal(close_line(NULL), 0);
        }
    }
}

static void take_two_in_next_window(void) {
    test_time += 20000 * SECOND;
    for (unsigned i = 0; i < 2; i++)
        others_allowed += stint_take(limiter, striped, KEY, 1, test_time, NULL);
}

/* A charge of several stripes, whose window turns meanwhile: its verdict tells the window in
 * which it was made. Given back by that, it is no token of those that others took in the next. */
TEST(test_stripes_charge_in_one_window) {
    const struct stint_policy about = eight_tokens(2);
    for (unsigned step = 0, others = 1; others != 0; step++) {
        open_line(STINT_FULL_REFUSE, 10000 * SECOND, 10000 * SECOND);
        striped = add_made(limiter, &about);
        others_allowed = 0;
        const struct stint_request charge = {KEY, striped, 6, 0, STINT_CHARGE, 0};
        struct stint_verdict verdict;
        assert_true(decide_beside(step, take_two_in_next_window, &charge, 1, test_time, &verdict));
        others = meanwhile == NULL;
        stint_refund(limiter, striped, KEY, verdict.granted, verdict.window);
        if (others == 0)
            take_two_in_next_window();
        assert_int_equal(others_allowed, 2);
        while (stint_take(limiter, striped, KEY, 1, test_time, NULL))
            others_allowed++;
        if (others_allowed != 8)
            fail_msg("step %u: %u tokens of 8", step, others_allowed);
        assert_int_equal(close_line(NULL), 0);
    }
}

/* What was charged past the shares of a striped key is in its first stripe. When that has passed
 * into the next window, or is another key's, it is not given back from the other stripes: their
 * tokens were granted, and could be granted once more to one who is late (A). */
TEST(test_stripes_give_back_no_others_tokens) {
    const struct stint_policy about = eight_tokens(2);
    uint64_t number = stint_thread_number;
    for (unsigned lost = 0; lost < 2; lost++) {
        open_line(STINT_FULL_REFUSE, 10000 * SECOND, 10000 * SECOND);
        striped = add_made(limiter, &about);
        struct stint_verdict verdict;
        stint_thread_number = 2; /* the first stripe's */
        assert_true(stint_take(limiter, striped, KEY, 4, test_time, &verdict));
        test_time += verdict.reset_after - SECOND / 100;
        const uint64_t before = test_time;
        stint_thread_number = 3;
        assert_true(stint_take(limiter, striped, KEY, 4, test_time, NULL));
        const struct stint_request charge = {KEY, striped, 2, 0, STINT_CHARGE, 0};
        assert_true(stint_decide(limiter, &charge, test_time, &verdict));
        assert_int_equal(verdict.used, 10);
        test_time += SECOND / 50;
        stint_thread_number = 2;
        if (lost == 0)
            assert_true(stint_take(limiter, striped, KEY, 1, test_time, NULL));
        else
            fill(0, 3, 1); /* two in slots that nobody had, one in that of the first stripe */
        stint_thread_number = 3;
        assert_int_equal(stint_refund(limiter, striped, KEY, 2, verdict.window), 0);
        const uint64_t window = verdict.window;
        if (stint_take(limiter, striped, KEY, 1, before, &verdict))
            assert_true(verdict.window > window);
        stint_thread_number = number;
        assert_int_equal(close_line(NULL), 0);
    }
}

/* Several requests by one policy that fit one by one, but not one after the other. */
TEST(test_all_of_one_key_refuse_nobody) {
    static const uint32_t costs[][3] = {{4, 1, 0}, {1, 4, 0}, {2, 2, 1}, {3, 3, 3}, {4, 4, 4}};
    for (unsigned kind = 0; kind < 5; kind++) {
        struct stint_policy about = eight_tokens(kind == 4 ? 2 : 0);
        about.capacity = kind == 1 ? 8 : 0;
        about.max_reserved = kind == 2 ? 1 : 0;
        about.flags = kind == 3 ? STINT_SMOOTH : 0;
        about.limit = kind == 1 ? 5 : 8;
        for (size_t i = 0; i < sizeof costs / sizeof costs[0]; i++) {
            struct stint_request requests[3];
            for (size_t j = 0; j < 3; j++)
                requests[j] =
                    (struct stint_request){.key = KEY, .policy = ADDED, .cost = costs[i][j]};
            check_refuses_nobody(&about, requests, 3, "all");
        }
    }
}

/* ---- A rule that changes -------------------------------------------------------------------- */

static const char *changed_to;

static void change_rule(void) {
    struct stint_policy about = STINT_POLICY_INIT;
    assert_int_equal(stint_policy_parse(changed_to, &about, NULL), 0);
    strcpy(about.name, "p");
    assert_int_equal(stint_policy_change(limiter, ADDED, &about), 0);
}

/* A request is judged by one rule, the old or the new: what neither grants it does not get, what
 * both let through is, and what neither says is not said, wherever the change comes. */
TEST(test_by_one_rule) {
    static const struct {
        const char *from, *to;
        uint32_t held, cost, flags, most;
        bool allowed; /* by both */
    } changes[] = {
        {"10/100s capacity=100 name=p", "50/100s", 95, 100, 0, 0, false},
        {"10/100s capacity=100 name=p", "50/100s", 95, 100, STINT_PARTIAL, 50, false},
        {"10/100s name=p", "5/100s reserve=5", 0, 15, STINT_RESERVE, 0, false},
        {"4/100s in-flight name=p", "1/100s in-flight shadow", 2, 1, 0, 1, true},
        {"10/100s reserve=1 name=p", "1/100s reserve=1 shadow", 5, 1, STINT_RESERVE, 1, true},
        {"4/100s near=50% name=p", "4/100s", 0, 1, 0, 1, true},
    };
    for (size_t i = 0; i < 2 * sizeof changes / sizeof changes[0]; i++) {
        for (unsigned step = 0, others = 1; others != 0; step++) {
            open_line(STINT_FULL_REFUSE, 10000 * SECOND, 10000 * SECOND);
            assert_int_equal(add_text(limiter, changes[i / 2].from), ADDED);
            changed_to = changes[i / 2].to;
            (void)stint_take(limiter, ADDED, KEY, changes[i / 2].held, STINT_NOW, NULL);
            test_time += 100 * SECOND;
            const struct stint_request requests[2] = {
                {KEY, ADDED, changes[i / 2].cost, 0, changes[i / 2].flags, 0},
                {.key = KEY, .policy = brief, .cost = 1}};
            struct stint_verdict verdicts[2];
            decide_beside(step, change_rule, requests, 1 + i % 2, STINT_NOW, verdicts);
            others = meanwhile == NULL;
            if ((changes[i / 2].allowed && !verdicts[0].allowed) ||
                (verdicts[0].flags & STINT_NEAR_LIMIT) != 0)
                fail_msg("%s to %s, %zu requests: allowed %d, flags %#x at step %u",
                         changes[i / 2].from, changed_to, 1 + i % 2, verdicts[0].allowed,
                         verdicts[0].flags, step);
            if (verdicts[0].granted > changes[i / 2].most)
                fail_msg("%s to %s, %zu requests: %u granted at step %u", changes[i / 2].from,
                         changed_to, 1 + i % 2, verdicts[0].granted, step);
            assert_int_equal(close_line(NULL), 0);
        }
    }
}

static void replace_and_override(void) {
    assert_int_equal(stint_policies_apply(limiter, "1/250s name=o overrides", 0, NULL, NULL, NULL),
                     0);
    assert_int_equal(stint_override(limiter, ADDED, KEY, 5, test_time + SECOND), 0);
}

/* A request whose policy is replaced on its way is judged by the override that its key has by the
 * new one, and told so. */
TEST(test_by_override_of_replacement) {
    unsigned allowed = 0;
    for (unsigned step = 0, others = 1; others != 0; step++) {
        open_line(STINT_FULL_REFUSE, 10000 * SECOND, 10000 * SECOND);
        assert_int_equal(add_text(limiter, "1/100s name=o overrides"), ADDED);
        const struct stint_request request = {.key = KEY, .policy = ADDED, .cost = 3};
        struct stint_verdict verdict;
        allowed += decide_beside(step, replace_and_override, &request, 1, test_time, &verdict);
        others = meanwhile == NULL;
        if (verdict.allowed != (verdict.flags == STINT_OVERRIDDEN))
            fail_msg("allowed %d, flags %#x at step %u", verdict.allowed, verdict.flags, step);
        assert_int_equal(close_line(NULL), 0);
    }
    assert_true(allowed > 0);
}

static void override_other(void) {
    struct stint_policy about = STINT_POLICY_INIT;
    assert_int_equal(stint_policy_get(limiter, brief, &about), 0);
    about.flags |= STINT_OVERRIDES;
    assert_int_equal(stint_policy_change(limiter, brief, &about), 0);
    assert_int_equal(stint_override(limiter, brief, OTHER, 0, test_time + SECOND), 0);
}

/* Each request of a batch reads its policy anew: one that begins after an override was set is
 * judged by it, though the policy had none when the batch began. */
TEST(test_override_amid_a_batch) {
    open_line(STINT_FULL_REFUSE, 10000 * SECOND, 10000 * SECOND);
    for (unsigned i = 0; i < 2; i++)
        assert_true(stint_take(limiter, brief, i == 0 ? KEY : OTHER, 1, STINT_NOW, NULL));
    const struct stint_request requests[2] = {{.key = KEY, .policy = brief, .cost = 1},
                                              {.key = OTHER, .policy = brief, .cost = 1}};
    struct stint_verdict verdicts[2];
    awaited = INSTANT_LOADED;
    meanwhile = override_other;
    assert_int_equal(stint_decide_batch(limiter, requests, 2, STINT_NOW, verdicts), 1);
    assert_null(meanwhile);
    assert_int_equal(verdicts[1].flags, STINT_FIRST_REFUSAL | STINT_OVERRIDDEN);
}

static struct stint_verdict amid;

static void take_amid(void) {
    (void)stint_take(limiter, ADDED, KEY, 1, STINT_NOW, &amid);
}

/* A request at any step of a change is judged by the old rule or the new one. */
TEST(test_amid_a_change) {
    static const char *const kinds[] = {"", " overrides", " ban=60s", " stripes=2", " near=50%"};
    for (size_t kind = 0; kind < sizeof kinds / sizeof kinds[0]; kind++) {
        for (unsigned step = 0, others = 1; others != 0; step++) {
            char text[64];
            open_line(STINT_FULL_REFUSE, 10000 * SECOND, 10000 * SECOND);
            (void)snprintf(text, sizeof text, "10/100s name=p%s", kinds[kind]);
            assert_int_equal(add_text(limiter, text), ADDED);
            struct stint_policy about = STINT_POLICY_INIT;
            assert_int_equal(stint_policy_get(limiter, ADDED, &about), 0);
            assert_true(stint_take(limiter, ADDED, KEY, 1, STINT_NOW, &amid));
            assert_int_equal(stint_refund(limiter, ADDED, KEY, 1, amid.window), 1);
            about.limit = 20;
            awaited = INSTANT_SET_UP;
            passed_over = step;
            meanwhile = take_amid;
            assert_int_equal(stint_policy_change(limiter, ADDED, &about), 0);
            others = meanwhile == NULL;
            if (others != 0 && (!amid.allowed || (amid.capacity != 10 && amid.capacity != 20) ||
                                amid.remaining + amid.used != amid.capacity))
                fail_msg("%s: capacity %u, %u used at step %u", text, amid.capacity, amid.used,
                         step);
            assert_int_equal(close_line(NULL), 0);
        }
    }
}

static bool found_what_decides;

static void find_amid(void) {
    uint32_t id = 0;
    found_what_decides = stint_policy_find(limiter, "p", &id) == 0 &&
                         id == ADDED + (uint32_t)policy_gone(&limiter->policies[ADDED]);
}

/* At any step of a replacement, its name is that of the policy by which decisions are made. */
TEST(test_named_amid_a_replacement) {
    for (unsigned step = 0, others = 1; others != 0; step++) {
        open_line(STINT_FULL_REFUSE, 10000 * SECOND, 10000 * SECOND);
        assert_int_equal(add_text(limiter, "10/100s name=p"), ADDED);
        awaited = INSTANT_SET_UP;
        passed_over = step;
        meanwhile = find_amid;
        assert_int_equal(stint_policies_apply(limiter, "10/50s name=p\n", 0, NULL, NULL, NULL), 0);
        others = meanwhile == NULL;
        if (!found_what_decides)
            fail_msg("another policy at step %u", step);
        assert_int_equal(close_line(NULL), 0);
    }
}

/* ---- A clock that is set back ---------------------------------------------------------------- */

static void step_back_and_take(void) {
    test_time -= 1000 * SECOND;
    (void)stint_take(limiter, brief, KEY, 1, STINT_NOW, NULL);
}

/* H: whoever gives a time, at any step behind which the clock is set back and the key begins anew,
 * is told a window that is not over, and ends within its length. */
TEST(test_token_of_a_clock_set_back) {
    for (unsigned cost = 1; cost <= 2; cost++) {
        for (unsigned step = 0, others = 1; others != 0; step++) {
            open_line(STINT_FULL_REFUSE, 10000 * SECOND, 100 * SECOND);
            (void)stint_take(limiter, brief, KEY, 1, STINT_NOW, NULL);
            const struct stint_request request = {.key = KEY, .policy = brief, .cost = cost};
            struct stint_verdict verdict;
            (void)decide_beside(step, step_back_and_take, &request, 1, test_time, &verdict);
            others = meanwhile == NULL;
            if (verdict.reset_after == 0 || verdict.reset_after > 100 * SECOND)
                fail_msg("cost %u: reset_after %" PRIu64 " at step %u", cost, verdict.reset_after,
                         step);
            assert_int_equal(close_line(NULL), 0);
        }
    }
}

/* ---- A policy that goes ---------------------------------------------------------------------- */

static void take_rest_and_remove(void) {
    take_all_stripes();
    assert_int_equal(stint_policy_remove(limiter, striped), 0);
}

/* A: the last tokens go to others, and then the policy goes; who is on his way has none of them. */
TEST(test_no_more_of_a_removed_policy) {
    for (unsigned kind = 0; kind < 12; kind++) {
        for (unsigned step = 0, others = 1; others != 0; step++) {
            open_line(STINT_FULL_REFUSE, 10000 * SECOND, 10000 * SECOND);
            const struct stint_policy about = eight_tokens(kind % 2 * 2);
            striped = add_made(limiter, &about);
            if (kind / 2 % 2 == 1)
                assert_true(stint_take(limiter, striped, KEY, 1, test_time, NULL));
            const struct stint_request requests[2] = {
                {.key = KEY, .policy = striped, .cost = kind / 4 == 1 ? 3 : 1},
                {.key = KEY, .policy = policy, .cost = 1}};
            struct stint_verdict verdicts[2];
            decide_beside(step, take_rest_and_remove, requests, 1 + kind / 8, test_time, verdicts);
            others = meanwhile == NULL;
            if (others != 0 && verdicts[0].granted + others_allowed > 8 - kind / 2 % 2)
                fail_msg("kind %u: %u and %u granted at step %u", kind, verdicts[0].granted,
                         others_allowed, step);
            assert_int_equal(close_line(NULL), 0);
        }
    }
}

/* ---- Groups beside others ------------------------------------------------------------------- */

enum { STALE = 5, RIVAL = 9 }; /* the second takes over the slot of the first */

/* A line of slots that are over, one of them STALE's. */
static void open_stale_line(void) {
    open_line(STINT_FULL_REFUSE, 100 * SECOND, 100 * SECOND);
    test_time = EPOCH - 100 * SECOND;
    assert_true(stint_take(limiter, brief, STALE, 1, STINT_NOW, NULL));
    fill(0, 3, 1);
    test_time = EPOCH;
}

static void stale_again(void) {
    test_time = EPOCH + 101 * SECOND;
    assert_true(stint_take(limiter, brief, STALE, 1, STINT_NOW, NULL));
}

static void rival_fills_slot(void) {
    assert_true(stint_take(limiter, brief, RIVAL, 10, STINT_NOW, NULL));
    stops_at = then_stops_at;
    meanwhile = stale_again;
}

/* A late request's slot goes to a rival who uses it up, and back to its key, which has 9
 * tokens of 10. */
TEST(test_all_by_state_of_another) {
    for (unsigned first = 0, played = 1; played != 0; first++) {
        played = 0;
        for (unsigned second = 0, others = 1; others != 0; second++) {
            open_stale_line();
            then_stops_at = second;
            const struct stint_request requests[2] = {{.key = STALE, .policy = brief, .cost = 1},
                                                      {.key = KEY, .policy = policy, .cost = 1}};
            if (!decide_beside(first, rival_fills_slot, requests, 2, EPOCH, NULL))
                fail_msg("refused at %u, %u", first, second);
            others = meanwhile == NULL;
            played += meanwhile != rival_fills_slot;
            assert_int_equal(close_line(NULL), 0);
        }
    }
}

static void rival_takes(void) {
    assert_true(stint_take(limiter, ADDED, RIVAL, 1, STINT_NOW, NULL));
}

/* The slot that an earlier part was to take goes to the key of a later part, which has 4 tokens of
 * 5. */
TEST(test_all_by_slot_of_another_part) {
    for (unsigned step = 0, others = 1; others != 0; step++) {
        open_stale_line();
        assert_int_equal(add_text(limiter, "5/100s name=rival"), ADDED);
        const struct stint_request requests[2] = {{.key = STALE, .policy = brief, .cost = 6},
                                                  {.key = RIVAL, .policy = ADDED, .cost = 1}};
        if (!decide_beside(step, rival_takes, requests, 2, STINT_NOW, NULL))
            fail_msg("refused at step %u", step);
        others = meanwhile == NULL;
        assert_int_equal(close_line(NULL), 0);
    }
}

static void take_last(void) {
    (void)stint_take(limiter, brief, KEY, 1, STINT_NOW, NULL);
}

/* A key is told once that it was refused first, if only in the shadow: not by a part of a group
 * that was judged, but not charged. The statistics count those that were told. */
static void check_all_first_refusal(const char *other, uint32_t of_other) {
    unsigned refused = 0;
    for (unsigned step = 0, others = 1; others != 0; step++) {
        open_line(STINT_FULL_REFUSE, 100 * SECOND, 100 * SECOND);
        assert_int_equal(add_text(limiter, other), ADDED);
        assert_true(stint_take(limiter, brief, KEY, 9, STINT_NOW, NULL));
        assert_true(stint_take(limiter, ADDED, KEY, 1, STINT_NOW, NULL));
        const struct stint_request requests[2] = {{.key = KEY, .policy = brief, .cost = 1},
                                                  {.key = KEY, .policy = ADDED, .cost = 1}};
        struct stint_verdict verdicts[2], again;
        bool allowed = decide_beside(step, take_last, requests, 2, STINT_NOW, verdicts);
        others = meanwhile == NULL;
        refused += !allowed;
        if (!allowed && of_other == 0 && (verdicts[1].used != 1 || verdicts[1].remaining != 4))
            fail_msg("%" PRIu64 " used, %" PRIu64 " left, at step %u", (uint64_t)verdicts[1].used,
                     (uint64_t)verdicts[1].remaining, step);
        assert_true(stint_take(limiter, ADDED, KEY, 1, STINT_NOW, &again));
        if ((verdicts[1].flags & STINT_FIRST_REFUSAL) + (again.flags & STINT_FIRST_REFUSAL) !=
                of_other ||
            get_policy_stats(limiter, ADDED).first_refusals != (of_other != 0) ||
            get_policy_stats(limiter, brief).first_refusals != others)
            fail_msg("flags %x, then %x, at step %u", verdicts[1].flags, again.flags, step);
        assert_int_equal(close_line(NULL), 0);
    }
    assert_true(refused > 0);
}

TEST(test_all_first_refusal) {
    check_all_first_refusal("1/100s name=shadow shadow", STINT_FIRST_REFUSAL);
    check_all_first_refusal("5/100s name=plain", 0);
}

static void take_in_next_window(void) {
    test_time += 100 * SECOND;
    take_last();
}

/* A group that has lost a race, and fits nevertheless, ends with its last request. */
static void check_all_after_race(void (*beside)(void), bool unasked) {
    for (unsigned step = 0, others = 1; others != 0; step++) {
        open_line(STINT_FULL_REFUSE, 100 * SECOND, 100 * SECOND);
        assert_int_equal(add_text(limiter, "5/100s name=other"), ADDED);
        for (stint_key key = KEY; key < KEY + 2; key++)
            assert_true(stint_take(limiter, brief, key, 2, STINT_NOW, NULL));
        assert_true(stint_take(limiter, ADDED, KEY, 1, STINT_NOW, NULL));
        const struct stint_request requests[3] = {{.key = KEY, .policy = brief, .cost = 1},
                                                  {.key = KEY, .policy = ADDED, .cost = 1},
                                                  {.key = KEY + 1, .policy = brief, .cost = 1}};
        struct stint_verdict verdicts[3];
        struct stint_verdict *told = unasked ? NULL : verdicts;
        assert_true(decide_beside(step, beside, requests, 2, STINT_NOW, told));
        others = meanwhile == NULL;
        assert_true(stint_take(limiter, brief, KEY + 1, 1, STINT_NOW, &verdicts[2]));
        assert_int_equal(verdicts[2].used, test_time == EPOCH ? 3 : 1);
        assert_true(stint_take(limiter, brief, KEY, 1, STINT_NOW, &verdicts[2]));
        if (!unasked && verdicts[0].window != verdicts[2].window)
            assert_int_equal(verdicts[2].used, others + 1);
        else
            assert_int_equal(verdicts[2].used, others + (test_time == EPOCH ? 4 : 2));
        assert_int_equal(close_line(NULL), 0);
    }
}

TEST(test_all_after_race) {
    check_all_after_race(take_last, false);
    check_all_after_race(take_in_next_window, false);
    check_all_after_race(take_last, true); /* with nowhere to write verdicts */
}

static uint32_t others_policy;

static void take_others_last(void) {
    (void)stint_take(limiter, others_policy, KEY, 1, STINT_NOW, NULL);
}

/* A: a key whose count is full is never refused for a while. A group gives back what was counted of
 * its tokens, none, and not all that it was granted. */
static void check_all_give_back_counted(const char *text, uint32_t cost, uint32_t reserved) {
    unsigned refused = 0;
    for (unsigned step = 0, others = 1; others != 0; step++) {
        open_line(STINT_FULL_REFUSE, 100 * SECOND, 100 * SECOND);
        assert_int_equal(add_text(limiter, text), ADDED);
        others_policy = add_text(limiter, "1/100s capacity=2 name=last");
        assert_true(stint_take(limiter, ADDED, KEY, cost, STINT_NOW, NULL));
        assert_true(ask(limiter, ADDED, KEY, reserved, STINT_RESERVE).allowed);
        assert_true(stint_take(limiter, others_policy, KEY, 1, STINT_NOW, NULL));
        assert_int_equal(
            stint_override(limiter, ADDED, KEY, STINT_LIMIT_MAX, EPOCH + 1000 * SECOND), 0);
        const struct stint_request requests[2] = {{.key = KEY, .policy = ADDED, .cost = 4},
                                                  {.key = KEY, .policy = others_policy, .cost = 1}};
        struct stint_verdict verdicts[2];
        bool allowed = decide_beside(step, take_others_last, requests, 2, STINT_NOW, verdicts);
        others = meanwhile == NULL;
        refused += !allowed;
        if (verdicts[0].granted != (allowed ? 4 : 0) || verdicts[0].used != cost + reserved ||
            used_of(limiter, ADDED, KEY) != cost + reserved)
            fail_msg("%s: %" PRIu32 " granted, %" PRIu32 " told, %" PRIu32 " used at step %u", text,
                     verdicts[0].granted, verdicts[0].used, used_of(limiter, ADDED, KEY), step);
        assert_int_equal(stint_override_clear(limiter, ADDED, KEY), 0);
        assert_false(stint_take(limiter, ADDED, KEY, 1, STINT_NOW, NULL));
        assert_int_equal(close_line(NULL), 0);
    }
    assert_true(refused > 0);
}

TEST(test_all_give_back_counted) {
    check_all_give_back_counted("5/100s capacity=10 name=full overrides", 10, 0);
    check_all_give_back_counted("16383/100s smooth name=full overrides", 16383, 0);
    check_all_give_back_counted("5/100s reserve=5 name=full overrides", 5, 5);
}

/* ---- Known mistakes -------------------------------------------------------------------------- */

/* Each known mistake of the protocol does harm in its story if its guard is taken away; and none
 * if not, wherever the threads of the story are stopped: all that the stress suite's run tries, of
 * those with two threads that are stopped, and some here. (With a patch: mutants.py.) */
TEST(test_known_mistakes) {
    enum { MISTAKES_MOST = 100, ONE_IN = 8 };
    const uint64_t factor = environment_number("STINT_TEST_FACTOR", 1);
    const uint64_t divisor = environment_number("STINT_TEST_DIVISOR", 1);
    const uint64_t one_in = factor < ONE_IN ? ONE_IN * divisor / factor : 1;
    struct outcome held[MISTAKES_MOST] = {{.plays = 0}};
    assert_true(mistake_count <= MISTAKES_MOST);
    for (unsigned i = 0; i < mistake_count; i++) {
        const struct mistake *mistake = &mistakes[i];
        if (!mistake_playable(mistake))
            continue;
        struct outcome with = {.plays = 0};
        for (unsigned j = 0; j < i && with.plays == 0; j++)
            if (mistakes[j].play == mistake->play && mistakes[j].stops == mistake->stops)
                with = held[j];
        if (with.plays == 0)
            with = mistake_play(mistake, 0, one_in);
        held[i] = with;
        if (with.broken != NULL)
            fail_msg("%s: %s (stopped at %u, %u, %u)", mistake->name, with.broken, with.stops[0],
                     with.stops[1], with.stops[2]);
        if (mistake->patches != NULL || divisor > 1)
            continue;
        struct outcome without = mistake_play(mistake, mistake->guards, 1);
        print_message("%-40s holds in %5u plays; breaks %s (%u, %u, %u)\n", mistake->name,
                      with.plays, without.broken != NULL ? without.broken : "nothing",
                      without.stops[0], without.stops[1], without.stops[2]);
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
        cmocka_unit_test_teardown(test_dead_claim_before_a_step_back, close_line),
        cmocka_unit_test_teardown(test_refund_of_own_limit, close_line),
        cmocka_unit_test_teardown(test_refund_of_lowered_limit, close_line),
        cmocka_unit_test_teardown(test_refund_while_raised, close_line),
        cmocka_unit_test_teardown(test_past_the_limit, close_line),
        cmocka_unit_test_teardown(test_looks_raise_nothing, close_line),
        cmocka_unit_test_teardown(test_all_while_changed, close_line),
        cmocka_unit_test_teardown(test_all_while_changed_back, close_line),
        cmocka_unit_test_teardown(test_stripes_give_back, close_line),
        cmocka_unit_test_teardown(test_stripes_refuse_nobody, close_line),
        cmocka_unit_test_teardown(test_stripes_lose_no_token, close_line),
        cmocka_unit_test_teardown(test_stripes_see_the_last_token, close_line),
        cmocka_unit_test_teardown(test_stripes_charge_in_one_window, close_line),
        cmocka_unit_test_teardown(test_stripes_give_back_no_others_tokens, close_line),
        cmocka_unit_test_teardown(test_all_of_one_key_refuse_nobody, close_line),
        cmocka_unit_test_teardown(test_by_one_rule, close_line),
        cmocka_unit_test_teardown(test_by_override_of_replacement, close_line),
        cmocka_unit_test_teardown(test_override_amid_a_batch, close_line),
        cmocka_unit_test_teardown(test_amid_a_change, close_line),
        cmocka_unit_test_teardown(test_named_amid_a_replacement, close_line),
        cmocka_unit_test_teardown(test_token_of_a_clock_set_back, close_line),
        cmocka_unit_test_teardown(test_no_more_of_a_removed_policy, close_line),
        cmocka_unit_test_teardown(test_all_by_state_of_another, close_line),
        cmocka_unit_test_teardown(test_all_by_slot_of_another_part, close_line),
        cmocka_unit_test_teardown(test_all_first_refusal, close_line),
        cmocka_unit_test_teardown(test_all_after_race, close_line),
        cmocka_unit_test_teardown(test_all_give_back_counted, close_line),
        cmocka_unit_test(test_known_mistakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
