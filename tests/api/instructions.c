/* SPDX-License-Identifier: MIT
 * A signal between any two instructions of a decision, whose handler decides too: as another thread
 * might just then. The processor is told to stop after each instruction, so this is the code that
 * users run, in the order in which the compiler has put its loads; test builds have their steps in
 * the program's order. x86-64 only. */
#include <pthread.h>
#include <ucontext.h>

#include "fixture.h"

#include "limiter/counters.h"

enum { KEY = 100, OTHER = 200, LATER = 300, LIMIT = 2 };

static struct {
    struct stint_limiter *limiter;
    uint32_t policy;
    uint64_t other;               /* the handler's key */
    unsigned long count, at;      /* instructions, and after which of them the handler decides */
    bool copies;                  /* after each, in a copy of the process */
    bool fired, wrong;            /* the handler has decided; a copy found something wrong */
    struct stint_verdict verdict; /* the handler's */
} bed;

#define TRAP_FLAG 0x100

/* Whether this is the process in which the handler decides. The library is not told of the copy: it
 * goes on as if it was the same process. */
static bool decides_here(void) {
    bed.count++;
    if (!bed.copies)
        return bed.count > bed.at;
    if (bed.wrong)
        return false;
    pid_t copy = _Fork();
    int status = 0;
    if (copy != 0)
        bed.wrong = copy < 0 || waitpid(copy, &status, 0) != copy || status != 0;
    bed.copies = copy != 0;
    return copy == 0;
}

static void stepped(int signal, siginfo_t *info, void *context) {
    (void)signal;
    (void)info;
    if (!decides_here())
        return;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)TRAP_FLAG; /* no more */
    bed.fired = true;
    stint_take(bed.limiter, bed.policy, number_key(bed.limiter, bed.other), 1, STINT_NOW,
               &bed.verdict);
}

/* The trap flag: a signal after each instruction. It is off in the handler. */
static inline void steps_begin(void) {
    __asm__ volatile("pushfq\n\torq $0x100, (%%rsp)\n\tpopfq" ::: "memory", "cc");
}

static inline void steps_end(void) {
    __asm__ volatile("pushfq\n\tandq $~0x100, (%%rsp)\n\tpopfq" ::: "memory", "cc");
}

static struct stint_verdict take(uint64_t number) {
    struct stint_verdict verdict;
    stint_take(bed.limiter, bed.policy, number_key(bed.limiter, number), 1, STINT_NOW, &verdict);
    return verdict;
}

static bool untracked(const struct stint_verdict *verdict) {
    return (verdict->flags & STINT_UNTRACKED) != 0;
}

/* Interrupts a decision after each of its instructions, each time in a copy of this process. */
static void interrupt(uint64_t max_entries, uint64_t held, uint64_t key, uint64_t other) {
    test_time = T0;
    bed.limiter = open_limiter(max_entries, STINT_FULL_ADMIT);
    bed.policy = add_policy(bed.limiter, "second", LIMIT, SECOND, 0, 0);
    bed.other = other;
    for (uint64_t i = 0; i < held; i++)
        (void)take(i);
    bed.copies = true;
    bed.fired = bed.wrong = false;
    bed.count = 0;
    struct stint_verdict one;
    stint_key hash = number_key(bed.limiter, key);
    steps_begin();
    stint_take(bed.limiter, bed.policy, hash, 1, STINT_NOW, &one);
    steps_end();
    bed.copies = false;
    bool fired = bed.fired;
    struct stint_verdict two = bed.verdict;

    const struct table *table = &bed.limiter->table;
    for (uint64_t i = 0; i < UINT64_C(1) << table->shard_bits; i++)
        assert_true(table->shards[i].reach < table->probe_lines);
    /* Each key gets its limit, no more and no less, whoever it was that asked. */
    uint32_t used = (key < held ? 1 : 0) + one.granted + (fired && other == key ? two.granted : 0);
    if (!untracked(&one) && !(fired && untracked(&two))) {
        struct stint_verdict rest;
        for (unsigned i = 0; i < 2 * LIMIT; i++, used += rest.granted)
            rest = take(key);
        assert_int_equal(used, LIMIT);
    }
    /* All windows are over: there is room for any key. */
    test_time += MINUTE;
    used = 0;
    for (unsigned i = 0; i < 2 * LIMIT; i++) {
        struct stint_verdict later = take(LATER);
        assert_false(untracked(&later));
        used += later.granted;
    }
    assert_int_equal(used, LIMIT);
    stint_close(bed.limiter);
    if (fired)
        _exit(0);
    assert_false(bed.wrong);
    assert_true(bed.count > 50);
    print_message("%" PRIu64 " keys at most, %" PRIu64 " there: %lu instructions\n", max_entries,
                  held, bed.count);
}

static struct sigaction before_steps;

static int steps_set_up(void **state) {
    const struct sigaction action = {.sa_sigaction = stepped, .sa_flags = SA_SIGINFO};
    (void)state;
    return sigaction(SIGTRAP, &action, &before_steps);
}

static int steps_tear_down(void **state) {
    (void)state;
    return sigaction(SIGTRAP, &before_steps, NULL);
}

#define TEST_STEPPED(name)                                                                         \
    static void name##_stepped(void);                                                              \
    TEST_WITH(name, steps_set_up, steps_tear_down) {                                               \
        if (emulated("trap flag"))                                                                 \
            skip();                                                                                \
        name##_stepped();                                                                          \
    }                                                                                              \
    static void name##_stepped(void)

TEST_STEPPED(test_every_instruction) {
    interrupt(2, 3, KEY, OTHER); /* one line, and its last slot */
    interrupt(2, 3, KEY, KEY);
    interrupt(2, 3, 0, OTHER); /* a key that is there */
    interrupt(2, 3, 0, 0);
    interrupt(2, 4, KEY, OTHER); /* a full table */
    interrupt(4, 3, KEY, KEY);
}

/* ---- What decisions cost --------------------------------------------------------------------- */

/* Instructions of a take. */
static unsigned long length_of(struct stint_limiter *limiter, uint64_t key, uint32_t cost,
                               uint64_t now, struct stint_verdict *verdict) {
    bed.copies = bed.fired = false;
    bed.at = ULONG_MAX;
    bed.count = 0;
    steps_begin();
    stint_take(limiter, 0, key, cost, now, verdict);
    steps_end();
    return bed.count;
}

/* No option of a policy sends its requests the long way, which a mistaken now goes. They are takes
 * of a key that has a slot: of two tokens, or of one that is refused. */
TEST_STEPPED(test_options) {
    static const char *const texts[] = {"99/m burst=99",
                                        "99/m burst=99 near=50%",
                                        "99/m burst=99 shadow",
                                        "99/m burst=99 ban=1h",
                                        "99/m burst=99 jitter=10%",
                                        "99/m burst=99 overrides",
                                        "99/m",
                                        "99/m near=50%",
                                        "99/m shadow",
                                        "99/m ban=1h",
                                        "99/m jitter=10%",
                                        "99/m overrides",
                                        "1/m",
                                        "1/m overrides"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct stint_limiter *limiter = open_limiter(100, STINT_FULL_ADMIT);
        const uint64_t key = number_key(limiter, KEY).hash;
        const uint32_t cost = texts[i][0] == '1' ? 1 : 2;
        struct stint_verdict verdict;
        unsigned long near = 0;
        test_time = T0;
        add_text(limiter, texts[i]);
        for (int takes = 0; takes < 3; takes++)
            near = length_of(limiter, key, cost, T0, &verdict);
        assert_int_equal(verdict.allowed, cost == 2);
        const unsigned long far = length_of(limiter, key, cost, T0 - HOUR, &verdict);
        assert_int_equal(verdict.flags & STINT_MISTAKEN_NOW, STINT_MISTAKEN_NOW);
        print_message("%s: %lu instructions, the long way %lu\n", texts[i], near, far);
        assert_true(2 * near < far);
        stint_close(limiter);
    }
}

/* ---- The first decision of a thread ---------------------------------------------------------- */

/* A thread's whole life: one decision, interrupted after instruction number bed.at. */
static void *first_decision(void *key) {
    steps_begin();
    stint_take(bed.limiter, bed.policy, *(stint_key *)key, 1, STINT_NOW, NULL);
    steps_end();
    return NULL;
}

static void run_thread(void *(*body)(void *), void *argument) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, body, argument), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* The number of the second of two new threads: the handler's is the second free one, too. */
static void *number_of_second(void *number) {
    (void)take(LATER);
    if (*(uint64_t *)number == 0)
        run_thread(number_of_second, memset(number, 1, sizeof(uint64_t)));
    else
        *(uint64_t *)number = stint_thread_number;
    return NULL;
}

/* Of a table that others may share each thread has to find a lane, too. */
static void open_bed(void *memory, size_t size) {
    struct stint_options options = STINT_OPTIONS_INIT;
    options.max_entries = 1000;
    options.clock = test_clock;
    if (memory == NULL) {
        bed.limiter = open_with(&options);
    } else {
        memset(memory, 0, size);
        assert_int_equal(stint_open_in(&options, memory, size, &bed.limiter), 0);
    }
    bed.policy = add_policy(bed.limiter, "many", STINT_LIMIT_MAX, DAY, 0, 0);
}

static uint64_t lanes_owned(void) {
    uint64_t owned = 0;
    for (unsigned i = 0; i < LANES_MAX; i++)
        owned += bed.limiter->header->lane_owners[i] != 0;
    return owned;
}

/* Whatever the handler comes between, the thread has one number, and one lane at most. */
static void interrupt_threads(void *memory, size_t size) {
    uint64_t before = 0, after = 0;
    open_bed(memory, size);
    run_thread(number_of_second, &before);
    stint_close(bed.limiter);
    bed.other = OTHER;
    for (bed.at = 0, bed.fired = true; bed.fired; bed.at++) {
        open_bed(memory, size);
        (void)take(KEY); /* shorter, and a lane for this thread */
        (void)take(OTHER);
        stint_key key = number_key(bed.limiter, KEY);
        bed.fired = false;
        bed.count = 0;
        run_thread(first_decision, &key);
        assert_int_equal(lanes_owned(), memory == NULL ? 0 : 2);
        assert_int_equal(get_policy_stats(bed.limiter, bed.policy).allowed, 3 + bed.fired);
        stint_close(bed.limiter);
    }
    open_bed(memory, size);
    run_thread(number_of_second, &after);
    assert_int_equal(after, before);
    stint_close(bed.limiter);
    assert_true(bed.at > 50);
    print_message("%lu instructions\n", bed.at - 1);
}

TEST_STEPPED(test_every_instruction_of_first) {
    interrupt_threads(NULL, 0);

    struct stint_options options = STINT_OPTIONS_INIT;
    options.max_entries = 1000;
    size_t size = stint_memory_size(&options);
    void *memory = shared_memory(size);
    interrupt_threads(memory, size);
    assert_int_equal(munmap(memory, size), 0);
}
