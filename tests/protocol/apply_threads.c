/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * Policies are replaced while threads of two processes decide by their old ids and by their new
 * ones; who applies the text is killed in the middle, and another one finishes. Each replacement
 * has a window of its own, so that verdicts tell by whom they were given. In each window no key is
 * granted more than that policy's limit (A), and in the last one both ids have the same count, to
 * the token. */
#include "team.h"

#include <sys/prctl.h>

#include "base/limiter.h"
#include "dying.h"

enum { GENERATIONS = 60, KEYS = 4, MOST = 100, PROCESSES = 2 };

/* In a thread of a child, which has no runner of tests. */
#define CHECK(condition) ((condition) ? (void)0 : child_fails(__LINE__, #condition))

static void child_fails(int line, const char *condition) {
    fprintf(stderr, "apply_threads.c:%d: %s\n", line, condition);
    _exit(1);
}

/* What the processes share besides the table. */
struct shared {
    uint64_t now;
    uint64_t stop;
    uint64_t granted[GENERATIONS][KEYS]; /* without what was given back */
    uint64_t unknown;
    uint64_t decided;
};

static struct stint_limiter *own; /* this process's */
static void *memory;
static size_t size;
static struct shared *shared;

static uint64_t shared_clock(void) {
    return test_moved(__atomic_load_n(&shared->now, __ATOMIC_SEQ_CST));
}

static struct stint_options table_options(void) {
    struct stint_options options = fixture_options(8000, STINT_FULL_REFUSE);
    options.max_policies = 2 * GENERATIONS;
    options.clock = shared_clock;
    return options;
}

static struct stint_limiter *attach(void) {
    const struct stint_options options = table_options();
    struct stint_limiter *limiter;
    if (stint_open_in(&options, memory, size, &limiter) != 0)
        fail_msg("%s", stint_reason());
    return limiter;
}

static uint32_t limit_of(unsigned generation) {
    return MOST - 20 * (generation % 3);
}

/* Of each generation another window; by turns plain, striped, smooth and carrying. */
static void text_of(unsigned generation, char *text, size_t length) {
    static const char *const kinds[] = {"", " stripes=4", " smooth", ""};
    snprintf(text, length, "%u/%uh name=x start=2024-01-01%s\n", (unsigned)limit_of(generation),
             generation + 1, kinds[generation % 4]);
}

static unsigned generation_of(const struct stint_verdict *verdict) {
    uint64_t hours = (verdict->window - T0) / HOUR;
    CHECK(hours >= 1 && hours <= GENERATIONS);
    CHECK(verdict->window == T0 + hours * HOUR);
    return (unsigned)hours - 1;
}

static void count(uint64_t key, const struct stint_verdict *verdict, uint32_t back) {
    if ((verdict->flags & STINT_UNKNOWN_POLICY) != 0) {
        __atomic_fetch_add(&shared->unknown, 1, __ATOMIC_RELAXED);
        return;
    }
    CHECK((verdict->flags & STINT_UNTRACKED) == 0);
    if (verdict->granted != 0)
        __atomic_fetch_add(&shared->granted[generation_of(verdict)][key],
                           (uint64_t)verdict->granted - back, __ATOMIC_RELAXED);
}

static void decide(struct stint_limiter *limiter, struct random *random) {
    int found = policy_found(limiter, "x");
    uint64_t key = random_below(random, KEYS);
    CHECK(found >= 0);
    const struct stint_request requests[] = {
        {.key = key + 1, .policy = 0, .cost = 1 + (uint32_t)random_below(random, 3)},
        {.key = key + 1, .policy = (uint32_t)found, .cost = 1},
        {.key = key + 1, .policy = 0, .cost = 1},
    };
    struct stint_verdict verdicts[3];
    switch (random_below(random, 4)) {
    case 0:
        stint_decide_all(limiter, requests, 3, STINT_NOW, verdicts);
        for (size_t i = 0; i < 3; i++)
            count(key, &verdicts[i], 0);
        break;
    case 1:
        stint_decide_batch(limiter, requests, 3, STINT_NOW, verdicts);
        for (size_t i = 0; i < 3; i++)
            count(key, &verdicts[i], 0);
        break;
    case 2:
        stint_decide(limiter, &requests[0], STINT_NOW, verdicts);
        count(key, verdicts,
              verdicts->granted == 0
                  ? 0
                  : stint_refund(limiter, 0, key + 1, verdicts->granted, verdicts->window));
        break;
    default:
        stint_take(limiter, requests[1].policy, key + 1, 1, STINT_NOW, verdicts);
        count(key, verdicts, 0);
    }
    __atomic_fetch_add(&shared->decided, 1, __ATOMIC_RELAXED);
}

static void *decider(void *argument) {
    struct random random = {.state = (uintptr_t)argument + 1};
    while (__atomic_load_n(&shared->stop, __ATOMIC_ACQUIRE) == 0)
        decide(own, &random);
    return NULL;
}

/* A process that decides in two threads, until it is told to stop. */
static pid_t decider_process(unsigned number) {
    pthread_t threads[2];
    pid_t child = forked();
    if (child != 0)
        return child;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    own = attach();
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(
            pthread_create(&threads[i], NULL, decider, (void *)(uintptr_t)(2 * number + i)), 0);
    for (unsigned i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    _exit(0);
}

static void apply(struct stint_limiter *limiter, const char *text) {
    if (stint_policies_apply(limiter, text, STINT_PRUNE, NULL, NULL, NULL) != 0)
        fail_msg("%s", stint_reason());
}

/* Applies a text in a process that is killed after so many steps, or never. */
static void apply_and_die(const char *text, uint64_t steps) {
    pid_t child = forked_to_die(steps, false);
    if (child == 0) {
        apply(own, text);
        _exit(0);
    }
    (void)has_died(child);
}

/* Waits until the deciders have gone on by so many. */
static void let_decide(uint64_t more) {
    uint64_t until = __atomic_load_n(&shared->decided, __ATOMIC_RELAXED) + more;
    while (__atomic_load_n(&shared->decided, __ATOMIC_RELAXED) < until) {
        assert_int_equal(waitpid(-1, NULL, WNOHANG), 0); /* they are all there */
        sched_yield();
    }
}

static void deciders_end(const pid_t *children) {
    __atomic_store_n(&shared->stop, 1, __ATOMIC_RELEASE);
    for (unsigned i = 0; i < PROCESSES; i++)
        assert_good(children[i]);
}

static void begin(pid_t *children) {
    char text[100];
    memset(memory, 0, size);
    *shared = (struct shared){.now = T0};
    own = attach();
    text_of(0, text, sizeof text);
    apply(own, text);
    for (unsigned i = 0; i < PROCESSES; i++)
        children[i] = decider_process(i);
    let_decide(10);
}

TEST(test_replaced_under_way) {
    if (emulated("robust mutexes"))
        skip();
    struct random random = {.state = 7};
    pid_t children[PROCESSES];
    char text[100];
    alarm(100);
    begin(children);
    for (unsigned generation = 1; generation < GENERATIONS; generation++) {
        text_of(generation, text, sizeof text);
        if (generation % 2 != 0)
            apply_and_die(text, random_below(&random, 400));
        apply(own, text);
        /* What was swept is free. */
        __atomic_fetch_add(&shared->now, 10 * MS, __ATOMIC_SEQ_CST);
        let_decide(300);
    }
    deciders_end(children);
    assert_int_equal(shared->unknown, 0);
    uint32_t last = (uint32_t)policy_found(own, "x");
    for (uint64_t key = 0; key < KEYS; key++) {
        for (unsigned generation = 0; generation < GENERATIONS; generation++)
            if (shared->granted[generation][key] > limit_of(generation))
                fail_msg("generation %u: %" PRIu64 " granted of %" PRIu32, generation,
                         shared->granted[generation][key], limit_of(generation));
        assert_int_equal(used_of(own, 0, key + 1), used_of(own, last, key + 1));
        assert_int_equal(used_of(own, last, key + 1), shared->granted[GENERATIONS - 1][key]);
    }
    assert_int_equal(get_stats(own).stray_tokens, 0);
    print_message("%" PRIu64 " decisions\n", shared->decided);
    stint_close(own);
    alarm(0);
}

int main(void) {
    const struct stint_options options = table_options();
    size = stint_memory_size(&options);
    memory = shared_memory(size);
    shared = shared_memory(sizeof *shared);
    return tests_run(NULL, NULL);
}
