/* SPDX-License-Identifier: MIT
 * A table whose file is cut off while processes use it: before each step of each call, beside
 * threads that decide, under readers, and before forks. Nobody dies of it who has a handler, no
 * call is without end, and what comes after is told as doc/promises.md says (SHARED TABLES). */
#include "limiter/limiter.h" /* before cmocka, which defines fail() as well */

#include "kinds.h"

#include <pthread.h>
#include <sys/syscall.h>

#include "directory.h"
#include "key_calls.h"
#include "sys/testing.h"

/* In memory: some file systems bring a file that is cut to nothing and written again to their disk
 * at once. */
__attribute__((constructor)) static void begin_in_memory(void) {
    (void)setenv("TMPDIR", "/dev/shm", 1);
    NOTHING_HOLDS();
}

enum { MAX_KEYS = 100, MAX_POLICIES = 24 };

static struct stint_options lost_options(void) {
    struct stint_options options = shared_options(MAX_KEYS);
    options.max_policies = MAX_POLICIES;
    options.labels = 8;
    return options;
}

/* ---- The process's handler ------------------------------------------------------------------- */

static sigjmp_buf foreign; /* where a fault leads that is not stint's */

static void on_sigbus(int number, siginfo_t *fault, void *context) {
    (void)number;
    (void)context;
    const int before = errno = EDOM;
    if (!stint_on_sigbus(fault))
        siglongjmp(foreign, 1);
    if (errno != before)
        abort();
}

static void handle_sigbus(bool on) {
    struct sigaction action = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO};
    if (!on)
        action = (struct sigaction){.sa_handler = SIG_DFL};
    assert_int_equal(sigaction(SIGBUS, &action, NULL), 0);
}

/* With the handler: cmocka has its own at first. */
#define TEST_HANDLED(name)                                                                         \
    static void name##_handled(void);                                                              \
    TEST_IN_DIRECTORY(name) {                                                                      \
        if (emulated("a signal for a page that is gone"))                                          \
            return;                                                                                \
        handle_sigbus(true);                                                                       \
        name##_handled();                                                                          \
    }                                                                                              \
    static void name##_handled(void)

/* ---- Cuts ------------------------------------------------------------------------------------ */

/* NO_HEADER: the file grows again at once, so no look at it is a SIGBUS. */
enum cut { TO_NOTHING, TO_A_PAGE, TO_HALF, NO_HEADER, CUTS };

static void cut(enum cut how) {
    struct stint_options options = lost_options();
    const size_t whole = stint_memory_size(&options);
    const size_t left[CUTS] = {[TO_A_PAGE] = SMALL_PAGE, [TO_HALF] = whole / 2};
    if (truncate(path, (off_t)left[how]) != 0 ||
        (how == NO_HEADER && truncate(path, (off_t)whole) != 0))
        abort();
}

/* ---- What a lost limiter says ---------------------------------------------------------------- */

static void assert_let_through(struct stint_verdict verdict, uint32_t granted) {
    const struct stint_verdict expected = {
        .allowed = true, .flags = STINT_UNTRACKED, .granted = granted, .policy = UINT32_MAX};
    assert_verdict(&verdict, &expected, __LINE__);
}

#define ASSERT_LOST(call)                                                                          \
    do {                                                                                           \
        assert_int_equal(call, -EPROTO);                                                           \
        assert_reason("cut off while it was open");                                                \
    } while (0)

/* Every call of a limiter that is known to be lost. */
static void assert_lost(struct stint_limiter *limiter, bool reads) {
    const struct stint_request good[] = {STINT_REQUEST(PLAIN, 7, 2),
                                         STINT_REQUEST(STRIPED, 7, 1),
                                         {{8}, HELD, 1, 0, STINT_PEEK, 0, 0},
                                         {{8}, BUCKET, 3, 0, STINT_PARTIAL, 0, 0},
                                         {{9}, PLAIN, 1, 5, STINT_TENTATIVE, 0, 0},
                                         {{10}, PLAIN, 1, 0, STINT_PEEK | STINT_CHARGE, 0, 0}};
    enum { GOOD = sizeof good / sizeof *good };
    const uint32_t granted[GOOD] = {2, 1, 0, 3, 1, 0};
    const uint64_t before = get_stats(limiter).untracked;
    struct stint_verdict verdicts[GOOD];
    const struct stint_policy added = make_policy("added", 5, HOUR, 0, 0);
    struct stint_policy policy = STINT_POLICY_INIT;
    struct stint_policy_stats policy_stats = STINT_POLICY_STATS_INIT;
    char text[20000];
    uint32_t id;
    uint64_t until;
    assert_int_equal(get_stats(limiter).lost, 1);
    ASSERT_LOST(stint_policy_find(limiter, "plain", &id));
    ASSERT_LOST(stint_policy_get(limiter, PLAIN, &policy));
    ASSERT_LOST(stint_policy_stats_get(limiter, PLAIN, &policy_stats));
    ASSERT_LOST(stint_request_check(limiter, &good[2]));
    ASSERT_LOST(stint_policies_apply(limiter, "1/s", STINT_DRY_RUN, NULL, NULL, NULL));
    ASSERT_LOST(stint_override_get(limiter, BANNING, 7, &id, &until));
    ASSERT_LOST(stint_each(limiter, entry_ignore, NULL));
    ASSERT_LOST(stint_each_of(limiter, 7, entry_ignore, NULL));
    assert_true(stint_metrics(limiter, NULL, text, sizeof text) > 0);
    assert_non_null(strstr(text, "\nstint_table_lost 1\n"));
    assert_int_equal(refund_by(limiter, PLAIN, 7, 1, T0 + MINUTE), 0);
    assert_false(stint_reset(limiter, PLAIN, 7));
    if (reads) {
        ASSERT_LOST(
            stint_headers(limiter, 0, &(struct stint_verdict){.policy = PLAIN}, 1, NULL, 0));
        assert_let_through(ask(limiter, PLAIN, 7, 1, STINT_PEEK), 0);
        assert_true(stint_decide_all(limiter, &good[2], 1, STINT_NOW, verdicts));
        assert_let_through(verdicts[0], 0);
        assert_int_equal(ask(limiter, PLAIN, 7, 1, 0).flags, STINT_BAD_REQUEST);
        return;
    }
    ASSERT_LOST(policy_added(limiter, &added));
    ASSERT_LOST(stint_policy_change(limiter, PLAIN, &added));
    ASSERT_LOST(stint_policy_change_check(limiter, PLAIN, &added));
    ASSERT_LOST(stint_policies_apply(limiter, "1/s", 0, NULL, NULL, NULL));
    ASSERT_LOST(stint_policy_remove(limiter, PLAIN));
    ASSERT_LOST(stint_override(limiter, BANNING, 7, 3, test_time + HOUR));
    ASSERT_LOST(stint_override_clear(limiter, BANNING, 7));
    ASSERT_LOST(stint_label(limiter, 7, "seven", 5));
    for (size_t i = 0; i < GOOD; i++) {
        assert_true(stint_decide(limiter, &good[i], STINT_NOW, &verdicts[i]));
        assert_let_through(verdicts[i], granted[i]);
    }
    assert_int_equal(stint_decide_batch(limiter, good, GOOD, STINT_NOW, verdicts), GOOD);
    assert_true(stint_decide_all(limiter, good, GOOD, STINT_NOW, verdicts));
    for (size_t i = 0; i < GOOD; i++)
        assert_let_through(verdicts[i], granted[i]);
    assert_int_equal(
        stint_decide_groups(limiter, good, 3, (const size_t[]){2, 1}, 2, STINT_NOW, verdicts), 2);
    /* Looks are no decisions. */
    assert_int_equal(get_stats(limiter).untracked - before, 3 * (GOOD - 1) + 2);
    assert_int_equal(stint_headers(limiter, STINT_HEADERS_DRAFT | STINT_HEADERS_LEGACY, verdicts,
                                   GOOD, text, sizeof text),
                     0);
    assert_int_equal(stint_refund_all(limiter, good, verdicts, GOOD), 0);
    /* What makes no sense makes none now. */
    assert_int_equal(ask(limiter, PLAIN, 7, 1, 1u << 31).flags, STINT_BAD_REQUEST);
    assert_int_equal(ask(limiter, MAX_POLICIES, 7, 1, 0).flags, STINT_UNKNOWN_POLICY);
    const struct stint_request charge[] = {good[0], {{9}, PLAIN, 1, 0, STINT_CHARGE, 0, 0}};
    assert_false(stint_decide_all(limiter, charge, 2, STINT_NOW, verdicts));
    assert_let_through(verdicts[0], 0);
    assert_int_equal(verdicts[1].flags, STINT_BAD_REQUEST);
    assert_let_through(ask(limiter, PLAIN, 7, 1, STINT_CHARGE), 0);
}

/* The C library's list of the locks that this thread holds leads to memory that is there: the next
 * lock that is taken is put before it. */
static void assert_locks_whole(void) {
#ifdef SYS_get_robust_list
    struct list {
        struct list *next;
    } *head = NULL;
    size_t length;
    unsigned char there;
    if (emulated("lists of locks") || syscall(SYS_get_robust_list, 0, &head, &length) != 0)
        return;
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    if (head->next != head)
        assert_int_equal(mincore((void *)((uintptr_t)head->next / page * page), 1, &there), 0);
#endif
}

/* ---- Before each step of each call ----------------------------------------------------------- */

static struct stint_limiter *limiter; /* of the call that is under way */
static enum kind kind;                /* of which the calls are */
static enum cut how;
static size_t steps, cut_at;

/* The file is cut before the step of that number. No call takes as many as `MOST`. */
enum { MOST = 1000000 };

static void cut_before(const void *word) {
    (void)word;
    if (++steps == cut_at)
        cut(how);
    if (steps > MOST)
        abort();
}

static void cut_before_write(enum stint_test_instant instant) {
    cut_before(&instant);
}

/* 0: before none. */
static void cut_at_step(size_t at) {
    steps = at == 0 ? steps : 0;
    cut_at = at;
    stint_test_step = at == 0 ? NULL : cut_before;
    stint_test_hook = at == 0 ? NULL : cut_before_write;
}

/* What a call of set-up says: that it is done, or why it is not. */
static void assert_said(int error) {
    if (error < 0 && error != -EPROTO)
        fail_msg("%d: %s", error, stint_reason());
    if (error < 0)
        assert_reason("cut off while it was open");
}

/* Those of the whole table. */
enum { OF_TABLE = 9 };

static int call_of_table(unsigned number) {
    const struct stint_policy added = make_policy("added", 5, HOUR, 0, STINT_OVERRIDES);
    struct stint_policy policy = STINT_POLICY_INIT, changed = kind_policy(PLAIN);
    struct stint_policy_stats stats = STINT_POLICY_STATS_INIT;
    int error;
    changed.limit = 11;
    switch (number) {
    case 0:
        return stint_label(limiter, 7, "seven", 5);
    case 1:
        (void)get_stats(limiter);
        return stint_policy_stats_get(limiter, BANNING, &stats);
    case 2:
        assert_true(stint_metrics(limiter, NULL, NULL, 0) > 0);
        return 0;
    case 3:
        return stint_each(limiter, entry_ignore, NULL);
    case 4:
        error = stint_policy_get(limiter, MONTHLY, &policy);
        assert_said(error);
        if (error == 0)
            assert_int_equal(policy.limit, 10);
        return stint_policy_find(limiter, kind_names[MONTHLY], NULL);
    case 5:
        return policy_added(limiter, &added);
    case 6:
        return stint_policy_change(limiter, PLAIN, &changed);
    case 7:
        return stint_policies_apply(limiter, "1/s name=a overrides\n2/s name=b", STINT_PRUNE, NULL,
                                    NULL, NULL);
    default:
        return stint_policy_remove(limiter, BANNING);
    }
}

enum { CALLS = CALLS_OF_KEY + OF_TABLE };

/* Writes the table as it was, and makes the call with a cut before its step of that number. Returns
 * whether it came so far. */
static bool run_call(unsigned number, struct bytes whole, size_t at) {
    const struct stint_options options = lost_options();
    file_write(path, whole);
    limiter = open_with(&options);
    const struct stint_verdict taken = ask(limiter, kind, 7, 1, 0);
    cut_at_step(at);
    if (number < CALLS_OF_KEY)
        call_of_key(&(struct about){limiter, kind, {7}, {99}, taken}, number);
    else
        assert_said(call_of_table(number - CALLS_OF_KEY));
    cut_at_step(0);
    const bool done = steps >= at;
    if (done) {
        (void)ask(limiter, PLAIN, 7, 1, 0);
        (void)get_stats(limiter); /* looks at all there is */
        assert_lost(limiter, false);
    }
    stint_close(limiter);
    assert_locks_whole();
    return done;
}

TEST_HANDLED(test_each_step) {
    const struct stint_options options = lost_options();
    size_t runs = 0;
    limiter = open_with(&options);
    add_kinds(limiter, KINDS);
    for (unsigned i = 0; i < KINDS; i++)
        (void)stint_take(limiter, i, 7, 2, STINT_NOW, NULL);
    assert_int_equal(stint_override(limiter, BANNING, 7, 8, test_time + DAY), 0);
    stint_close(limiter);
    const struct bytes whole = file_read(path);
    for (unsigned number = 0; number < CALLS; number++)
        for (kind = PLAIN; kind < (number < CALLS_OF_KEY ? KINDS : 1); kind++)
            /* Each step of those that have few. Of set-up, each cut. */
            for (size_t at = 1, n = 0;; n++) {
                how = (enum cut)((number < CALLS_OF_KEY ? runs : n) % CUTS);
                if (!run_call(number, whole, at))
                    break;
                if (number < CALLS_OF_KEY || how + 1 == CUTS)
                    at += 1 + at / 16;
                runs++;
            }
    free(whole.start);
}

/* ---- Beside threads -------------------------------------------------------------------------- */

enum { THREADS = 3, AFTER = 200 };

static struct beside {
    pthread_barrier_t begun;
    struct stint_limiter *reader;
} beside;

/* Decides until it has been let through uncounted for a while. Once it is, it always is. */
static void *decide_until_lost(void *argument) {
    const uint64_t first = (uintptr_t)argument * 1000;
    struct stint_verdict verdict;
    unsigned after = 0;
    for (uint64_t i = 0; after < AFTER; i++) {
        const enum kind of = (enum kind)(i % KINDS);
        const bool reads = first == 0;
        const struct stint_request request = {
            number_key(limiter, first + i / KINDS % 20), of, 1, 0, reads ? STINT_PEEK : 0, 0, 0};
        (void)stint_decide(reads ? beside.reader : limiter, &request, STINT_NOW, &verdict);
        /* A full table, too, lets what is only watched (STINT_SHADOW) through uncounted. */
        const bool lost = verdict.allowed && verdict.policy == UINT32_MAX;
        if (after != 0 && !lost)
            return "it was lost, and is not";
        after += lost;
        if (i == 500)
            pthread_barrier_wait(&beside.begun);
    }
    return NULL;
}

static void assert_forks_live(bool decide) {
    const pid_t child = forked();
    if (child == 0) {
        struct stint_verdict verdict = {.flags = STINT_UNTRACKED};
        if (decide)
            verdict = ask(limiter, PLAIN, 1, 1, 0);
        _exit((verdict.flags & STINT_UNTRACKED) == 0);
    }
    assert_good(child);
}

/* Threads decide, by handles to write and to read, while the file is cut off. Then it is closed and
 * opened again, as a whole. */
TEST_HANDLED(test_threads) {
    struct stint_options options = lost_options(), reader = attach_options(STINT_READ_ONLY);
    options.on_full = reader.on_full = STINT_FULL_REFUSE;
    for (how = TO_NOTHING; how < CUTS; how++) {
        pthread_t threads[THREADS];
        limiter = open_with(&options);
        add_kinds(limiter, KINDS);
        assert_int_equal(stint_attach(&reader, &beside.reader), 0);
        assert_int_equal(pthread_barrier_init(&beside.begun, NULL, THREADS + 1), 0);
        for (uintptr_t i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, decide_until_lost, (void *)i), 0);
        pthread_barrier_wait(&beside.begun);
        cut(how);
        for (unsigned i = 0; i < THREADS; i++) {
            void *wrong;
            assert_int_equal(pthread_join(threads[i], &wrong), 0);
            if (wrong != NULL)
                fail_msg("cut %d: %s", how, (const char *)wrong);
        }
        pthread_barrier_destroy(&beside.begun);
        assert_in_range(get_stats(limiter).untracked, 1, THREADS * AFTER);
        assert_lost(limiter, false);
        assert_lost(beside.reader, true);
        assert_forks_live(true);
        stint_close(limiter);
        stint_close(beside.reader);
        /* What is left is no table, and is not written to. */
        const struct bytes left = file_read(path);
        assert_not_opened(&options, EPROTO, "");
        assert_file(left);
        free(left.start);
        assert_int_equal(unlink(path), 0);
        limiter = open_with(&options);
        add_kinds(limiter, KINDS);
        assert_int_equal(ask(limiter, PLAIN, 7, 1, 0).used, 1);
        assert_int_equal(get_stats(limiter).lost, 0);
        stint_close(limiter);
        assert_int_equal(unlink(path), 0);
    }
}

/* Who forks looks at nothing that may be gone: without a handler, too, the child is born. */
TEST_IN_DIRECTORY(test_fork) {
    if (emulated("a signal for a page that is gone"))
        return;
    struct stint_options options = lost_options();
    for (how = TO_NOTHING; how < CUTS; how++) {
        limiter = open_with(&options);
        add_kinds(limiter, KINDS);
        (void)ask(limiter, PLAIN, 7, 1, 0);
        cut(how);
        handle_sigbus(false);
        assert_forks_live(false);
        handle_sigbus(true);
        assert_forks_live(true);
        assert_int_equal(get_stats(limiter).lost, 1);
        assert_forks_live(true);
        stint_close(limiter);
        assert_int_equal(unlink(path), 0);
    }
}

/* ---- While it is opened, or resized ---------------------------------------------------------- */

/* Opens, attaches, reads and resizes while the file is cut off: it is told why that fails, or is
 * done. `whole`: of the file. Returns whether the cut came so late that there was none. */
static bool run_opening(unsigned which, struct bytes whole, size_t at) {
    struct stint_options options =
        which % 3 == 0 ? lost_options() : attach_options(which == 2 ? STINT_READ_ONLY : 0);
    struct stint_limiter *opened = NULL;
    int error;
    file_write(path, whole);
    cut_at_step(at);
    error = which == 0   ? stint_open(&options, &opened)
            : which == 3 ? file_resize(path, 0)
                         : stint_attach(&options, &opened);
    cut_at_step(0);
    if (error != 0 && error != -EPROTO)
        fail_msg("%d: %s", error, stint_reason());
    assert_true(error == 0 || steps >= at);
    assert_int_equal(entries_of_directory(), 1);
    if (which == 3 && error == 0) { /* all was moved before */
        opened = open_with(&options);
        assert_int_equal(used_of(opened, PLAIN, 49), 1);
        assert_int_equal(policy_found(opened, kind_names[MONTHLY]), MONTHLY);
    } else if (error == 0) {
        (void)ask(opened, PLAIN, 7, 1, STINT_PEEK);
        if (get_stats(opened).lost != (steps >= at))
            fail_msg("%u: cut %d before step %zu of %zu, and lost is %u", which, how, at, steps,
                     get_stats(opened).lost);
    }
    stint_close(opened);
    return steps < at;
}

TEST_HANDLED(test_opening) {
    const struct stint_options options = lost_options();
    size_t runs = 0;
    limiter = open_with(&options);
    add_kinds(limiter, KINDS);
    for (uint64_t i = 0; i < 50; i++)
        (void)ask(limiter, PLAIN, i, 1, 0);
    assert_int_equal(stint_policy_remove(limiter, BANNING), 0); /* so there is something to sweep */
    stint_close(limiter);
    const struct bytes whole = file_read(path);
    for (unsigned which = 0; which < 4; which++)
        for (size_t at = 1;; at += 1 + at / 16, runs++) {
            how = (enum cut)(runs % CUTS);
            if (run_opening(which, whole, at))
                break;
        }
    free(whole.start);
}

/* ---- What is not a table's ------------------------------------------------------------------- */

TEST_HANDLED(test_faults_of_others) {
    const struct stint_options options = lost_options();
    siginfo_t fault = {.si_signo = SIGBUS, .si_code = BUS_ADRERR};
    const char *const other = file_beside("other");
    limiter = open_with(&options);
    assert_int_equal(add_text(limiter, "5/minute name=plain"), PLAIN);
    char *table = (char *)limiter->header;
    assert_false(stint_on_sigbus(NULL));
    assert_false(stint_on_sigbus(&fault));
    fault.si_addr = table - 1;
    assert_false(stint_on_sigbus(&fault));
    fault.si_addr = table + limiter->memory.size;
    assert_false(stint_on_sigbus(&fault));
    fault.si_addr = table;
    fault.si_code = SI_USER;
    assert_false(stint_on_sigbus(&fault));
    fault.si_code = BUS_MCEERR_AR; /* the memory is broken */
    assert_false(stint_on_sigbus(&fault));

    const int file = open(other, O_RDWR | O_CREAT | O_EXCL, 0600);
    assert_true(file >= 0 && ftruncate(file, 100) == 0);
    volatile char *mapped = mmap(NULL, 100, PROT_READ, MAP_SHARED, file, 0);
    assert_ptr_not_equal(mapped, MAP_FAILED);
    assert_int_equal(ftruncate(file, 0), 0);
    if (sigsetjmp(foreign, 1) == 0) {
        (void)mapped[0];
        fail_msg("a look at nothing");
    }
    assert_int_equal(munmap((void *)(uintptr_t)mapped, 100), 0);
    close(file);
    assert_int_equal(unlink(other), 0);
    assert_int_equal(ask(limiter, PLAIN, 7, 1, 0).used, 1);
    assert_int_equal(get_stats(limiter).lost, 0);

    /* Nor is that of a table that was closed; the entry of its mapping is the next one's. */
    struct stint_limiter *closed = limiter;
    stint_close(closed);
    fault = (siginfo_t){.si_signo = SIGBUS, .si_code = BUS_ADRERR};
    fault.si_addr = table;
    assert_false(stint_on_sigbus(&fault));
    limiter = open_with(&options);
    cut(TO_NOTHING);
    assert_let_through(ask(limiter, PLAIN, 7, 1, 0), 1);
    stint_close(limiter);
}
