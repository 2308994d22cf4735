/* SPDX-License-Identifier: MIT
 * What somebody can do who means harm, and what is promised against it: keys that are chosen to
 * collide, files that may not grow, small stacks. (Full tables: features.c,
 * full.c. Handlers that decide in the middle of a decision: instructions.c. Numbers at the edges of
 * their types, refunds of things never taken: features.c, twin.c. 4,096 policies: api.c.) */
#include "limiter/limiter.h" /* before cmocka, which defines fail() as well */

#include <pthread.h>
#include <sys/resource.h>

#include "directory.h"

/* ---- Chosen keys ---------------------------------------------------------------------------- */

enum { SEQUENCE = PROBE_LINES * LINE_SLOTS, CHOSEN = SEQUENCE + 60, TABLE_KEYS = 40000 };

/* What an attacker does who knows the secret: he asks his own copy of the table where a name would
 * be, until he has enough names of one home line. */
static void choose_names(uint64_t home, uint64_t names[], unsigned n, uint64_t from) {
    struct stint_limiter *copy = open_limiter(TABLE_KEYS, STINT_FULL_ADMIT);
    for (uint64_t name = from; n > 0; name++)
        if (table_home(&copy->table, stint_key_of(copy, &name, sizeof name).hash) == home)
            names[--n] = name;
    stint_close(copy);
}

/* Takes away all lines but those of the pages that hold the sequence of a home line, or gives them
 * back: who looks at another one gets SIGSEGV. */
static void leave_only(const struct table *table, uint64_t home, int others) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t lines = (uintptr_t)table->lines, end = lines + table->line_count * CACHE_LINE;
    uintptr_t first = (lines + home * CACHE_LINE) / page * page;
    uintptr_t last = (lines + (home + PROBE_LINES) * CACHE_LINE + page - 1) / page * page;
    assert_int_equal(lines % page, 0);
    assert_int_equal(mprotect((void *)lines, first - lines, others), 0);
    assert_int_equal(mprotect((void *)last, end / page * page - last, others), 0);
}

/* D: keys of one home line cost a search of the 24 lines that each key may be in, and no more than
 * that, in all that can be done with a key; G: those that find no room get the outcome that was
 * chosen; F: others in these lines keep their slots; and whoever's home is behind them does not
 * notice. */
static void check_chosen(enum stint_on_full on_full, uint64_t page_line) {
    test_time = T0;
    struct stint_limiter *limiter = open_limiter(TABLE_KEYS, on_full);
    const struct table *table = &limiter->table;
    uint32_t id = add_policy(limiter, "p", 10, MINUTE, 0, 0);
    uint32_t debts = add_policy(limiter, "debts", 10, MINUTE, 0, 0);
    uint64_t page_lines = (uint64_t)sysconf(_SC_PAGESIZE) / CACHE_LINE;
    uint64_t home = 3 * page_lines + page_line;
    uint64_t names[CHOSEN], regular[2], behind;
    choose_names(home, names, CHOSEN, 0);
    choose_names(home + PROBE_LINES - 1, regular, 2, 1u << 30);
    choose_names(home + PROBE_LINES, &behind, 1, 1u << 30);

    stint_key kept = number_key(limiter, regular[0]);
    assert_int_equal(ask(limiter, id, kept, 9, 0).flags, 0);
    leave_only(table, home, PROT_NONE);
    unsigned placed = 0, outcomes = 0;
    for (unsigned i = 0; i < CHOSEN; i++) {
        stint_key key = number_key(limiter, names[i]);
        struct stint_verdict v = ask(limiter, id, key, 1 + i % 2, 0);
        placed += v.flags == 0;
        outcomes += v.flags == (on_full == STINT_FULL_REPLACE ? STINT_REPLACED : STINT_UNTRACKED);
        assert_int_equal(v.allowed, v.flags == 0 || on_full != STINT_FULL_REFUSE);
        /* All that can be done with a key, in a full sequence too. */
        const struct stint_request requests[] = {
            {.key = key, .policy = id, .cost = 1, .flags = STINT_PEEK},
            {.key = key, .policy = id, .cost = 20, .flags = STINT_PARTIAL | STINT_PEEK},
            {.key = key, .policy = id, .cost = 0},
            {.key = key, .policy = id, .cost = 11},
        };
        stint_prefetch(limiter, key);
        stint_decide_batch(limiter, requests, 4, STINT_NOW, NULL);
        stint_decide_all(limiter, requests, 4, STINT_NOW, NULL);
        if (v.flags == 0)
            assert_int_equal(stint_refund(limiter, key, &v, 1), 1);
        refund_by(limiter, debts, key, 1, v.window);
        stint_reset(limiter, debts, key);
    }
    assert_int_equal(placed, SEQUENCE - 1);
    assert_int_equal(outcomes, CHOSEN - placed);
    leave_only(table, home, PROT_READ | PROT_WRITE);

    /* `kept` is not the one with the fewest tokens. */
    assert_int_equal(used_of(limiter, id, kept), 9);
    assert_int_equal(ask(limiter, id, number_key(limiter, regular[1]), 1, 0).flags, 0);
    assert_int_equal(ask(limiter, id, number_key(limiter, behind), 1, 0).flags, 0);
    /* When their window is over, so is it all. */
    test_time = T0 + MINUTE;
    for (unsigned i = 0; i < SEQUENCE; i++)
        assert_int_equal(ask(limiter, id, number_key(limiter, names[CHOSEN - 1 - i]), 1, 0).flags,
                         0);
    stint_close(limiter);
}

TEST(test_chosen_keys) {
    uint64_t page_lines = (uint64_t)sysconf(_SC_PAGESIZE) / CACHE_LINE;
    for (uint32_t on_full = STINT_FULL_ADMIT; on_full <= STINT_FULL_REPLACE; on_full++) {
        check_chosen((enum stint_on_full)on_full, 0);                        /* first of a page */
        check_chosen((enum stint_on_full)on_full, page_lines - PROBE_LINES); /* last of a page */
    }
}

/* ---- Files that may not grow ---------------------------------------------------------------- */

/* `ulimit -f`: an error, and no death (SIGXFSZ); nothing is left. A table of just that size is
 * made. (A file system without room: files/faults.c.) */
TEST_IN_DIRECTORY(test_file_size_limit) {
    pid_t child = forked();
    if (child == 0) {
        struct stint_options options = shared_options(100000), same = STINT_OPTIONS_INIT;
        struct stint_limiter *limiter = NULL;
        struct rlimit limit = {stint_memory_size(&options), RLIM_INFINITY};
        same.max_entries = 200000;
        for (int i = 0; i < 2; i++, limit.rlim_cur--) {
            if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
                _exit(2);
            if (stint_open(&options, &limiter) != (i == 0 ? 0 : -EFBIG))
                _exit(3);
            if (i == 0) {
                stint_close(limiter);
                if (stint_resize(path, &same) != -EFBIG || unlink(path) != 0)
                    _exit(4);
            }
        }
        _exit(strstr(stint_reason(), path) != NULL && strstr(stint_reason(), "ulimit -f") != NULL
                  ? 0
                  : 1);
    }
    assert_good(child);
    assert_int_equal(entries_of_directory(), 0);
}

/* ---- Small stacks ---------------------------------------------------------------------------- */

#ifndef STINT_SANITIZERS /* which take more stack themselves */
static void ignore_change(void *context, const struct stint_change *change) {
    (void)context;
    (void)change;
}

/* Returns NULL if all is well. */
static void *decide_all_ways(void *argument) {
    enum { N = 16 };
    struct stint_limiter *limiter = argument;
    struct stint_request requests[N];
    struct stint_verdict v[N];
    const size_t sizes[] = {4, 4, 4, 4};
    for (uint32_t i = 0; i < N; i++)
        requests[i] = (struct stint_request)STINT_REQUEST(i % 5, i + 1, 1);
    for (int i = 0; i < 100; i++) {
        (void)stint_decide_all(limiter, requests, N, STINT_NOW, v);
        (void)stint_refund_all(limiter, requests, v, N);
        (void)stint_decide_groups(limiter, requests, N, sizes, 4, STINT_NOW, v);
        (void)stint_decide_batch(limiter, requests, N, STINT_NOW, v);
        (void)stint_reset(limiter, 0, 1);
    }
    return NULL;
}

static void *set_up_all(void *argument) {
    static char text[65536];
    struct stint_options options = shared_options(5000), larger = STINT_OPTIONS_INIT;
    struct stint_stats stats = STINT_STATS_INIT;
    struct stint_limiter *limiter = NULL;
    (void)argument;
    options.labels = 100;
    larger.max_entries = 9000;
    larger.clock = test_clock;
    if (stint_open(&options, &limiter) != 0 ||
        stint_policies_apply(limiter,
                             "5/m name=a overrides\n5/m burst=5 name=b\n5/m smooth name=c\n"
                             "5/10s in-flight name=d\n1M/s stripes=8 name=e\n",
                             STINT_PRUNE, NULL, ignore_change, NULL) != 0)
        return limiter;
    (void)decide_all_ways(limiter);
    const bool good = stint_override(limiter, 0, 1, 7, test_time + SECOND) == 0 &&
                      stint_label(limiter, 1, "k", 1) == 0 &&
                      stint_each(limiter, entry_ignore, NULL) == 0 &&
                      stint_each_of(limiter, 1, entry_ignore, NULL) == 0 &&
                      stint_stats_get(limiter, &stats) == 0 &&
                      stint_metrics(limiter, NULL, text, sizeof text) > 0 &&
                      stint_policies_apply(limiter, "5/h name=a overrides\n", STINT_PRUNE, NULL,
                                           ignore_change, NULL) == 0;
    stint_close(limiter);
    return good && stint_resize(path, &larger) == 0 ? NULL : text;
}

static void assert_runs(void *(*body)(void *), void *argument, size_t stack) {
    pthread_attr_t attributes;
    pthread_t thread;
    void *result = NULL;
    assert_int_equal(pthread_attr_init(&attributes), 0);
    if (stack < (size_t)PTHREAD_STACK_MIN)
        stack = (size_t)PTHREAD_STACK_MIN;
    assert_int_equal(pthread_attr_setstacksize(&attributes, stack), 0);
    assert_int_equal(pthread_create(&thread, &attributes, body, argument), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_null(result);
}

/* memcached/memcached#286, Netflix/dynomite#600, A1darbek/ayder#4: a thread of musl has 128 KiB of
 * stack. All calls need half of that at most, and decisions 32 KiB. */
TEST_IN_DIRECTORY(test_small_stacks) {
    struct stint_limiter *limiter = open_limiter(100, STINT_FULL_ADMIT);
    static const char *const texts[] = {"5/m name=a", "5/m burst=5 name=b",
                                        "5/10s in-flight name=c", "5/m smooth name=d",
                                        "8/m stripes=4 name=e"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        add_text(limiter, texts[i]);
    assert_runs(decide_all_ways, limiter, 32768);
    stint_close(limiter);
    assert_runs(set_up_all, NULL, 65536);
}
#endif
