/* SPDX-License-Identifier: MIT
 * The machine loses power: of each page of a table's file the disk has what it was at some instant.
 * What opens is a table whose promises hold from there on; what does not is refused, and left as it
 * is. */
#include "policy/occupant.h" /* before cmocka, which defines fail() as well */

#include "random.h"

#include "directory.h"

enum { PAGE = 4096, SNAPSHOTS = 5, KEYS = 80, POLICIES = 10 };

/* The policies, and what they are changed to, or replaced by. After four idle hours each grants its
 * capacity. */
static const struct {
    const char *name, *text, *other;
} kinds[POLICIES] = {
    {"plain", "4/hour", "6/hour"},
    {"minute", "3/minute", "3/hour"},
    {"phase", "4/hour start=per-key", "2/hour start=per-key"},
    {"first", "3/hour start=first", "3/hour"},
    {"smooth", "4/hour smooth", "4/hour"},
    {"burst", "2/hour capacity=5", "3/hour capacity=5"},
    {"striped", "4/hour stripes=2", "4/hour stripes=4"},
    {"strict", "3/hour ban=10m after=2", "3/hour"},
    {"held", "5/hour in-flight", "5/hour in-flight near=50%"},
    {"special", "4/hour overrides", "4/hour overrides start=per-key"},
};

/* What the processes share. */
static struct shared {
    uint64_t done; /* decisions */
    uint32_t granted[POLICIES][KEYS];
} * shared;

static struct stint_options options_of(uint64_t max_entries) {
    struct stint_options options = shared_options(max_entries);
    options.on_full = STINT_FULL_REFUSE;
    if (max_entries != 0)
        options.secret = test_secret(); /* keys that all find room, in every run */
    options.labels = max_entries == 0 ? 0 : 64;
    return options;
}

/* All policies, each as it was or, if its bit is set, as the other one. */
static const char *policies_text(uint64_t changed) {
    static char text[1024];
    size_t length = 0;
    for (unsigned p = 0; p < POLICIES; p++)
        length +=
            (size_t)snprintf(text + length, sizeof text - length, "%s name=%s\n",
                             changed >> p & 1 ? kinds[p].other : kinds[p].text, kinds[p].name);
    return text;
}

/* ---- Load ------------------------------------------------------------------------------------ */

enum load { DECIDES, TIME_PASSES, POLICIES_CHANGE, LOADS };

/* A decision, or what else is done with a table. */
static void step(struct stint_limiter *limiter, enum load load, struct random *random) {
    const uint32_t p = (uint32_t)random_below(random, POLICIES);
    const uint64_t number = random_below(random, KEYS), rare = random_below(random, 100);
    const stint_key key = number_key(limiter, number);
    struct stint_verdict verdict;
    uint32_t id = 0;
    if (stint_policy_find(limiter, kinds[p].name, &id) == 0 &&
        stint_take(limiter, id, key, 1, STINT_NOW, &verdict)) {
        __atomic_fetch_add(&shared->granted[p][number], 1, __ATOMIC_SEQ_CST);
        if (load != DECIDES && rare < 20)
            stint_refund(limiter, key, &verdict, 1);
    }
    __atomic_fetch_add(&shared->done, 1, __ATOMIC_SEQ_CST);
    if (rare < 3)
        (void)stint_label(limiter, key, kinds[p].name, strlen(kinds[p].name));
    if (load == DECIDES)
        return;
    if (rare == 3)
        stint_reset(limiter, id, key);
    if (rare < 6) /* of the last policy; others have none */
        (void)!stint_override(limiter, id, key, (uint32_t)random_below(random, 3),
                              test_clock() + random_below(random, HOUR));
    if (rare == 6)
        (void)stint_override_clear(limiter, id, key);
    if (load == TIME_PASSES && rare == 7)
        __atomic_fetch_add(&test_time, random_below(random, 30 * SECOND), __ATOMIC_SEQ_CST);
    if (load == POLICIES_CHANGE && rare == 8) /* until there is no room for more */
        (void)!stint_policies_apply(limiter, policies_text(random_next(random)),
                                    random_below(random, 2) == 0 ? STINT_PRUNE : 0, NULL, NULL,
                                    NULL);
    if (load == POLICIES_CHANGE && rare == 9)
        (void)stint_policy_remove(limiter, id);
}

static pid_t fork_user(enum load load, uint64_t seed) {
    pid_t child = forked();
    if (child == 0) {
        struct random random = {seed};
        struct stint_options options = options_of(0);
        struct stint_limiter *limiter = NULL;
        (void)alarm(120);
        if (stint_attach(&options, &limiter) != 0)
            _exit(1);
        for (;;)
            step(limiter, load, &random);
    }
    return child;
}

/* ---- Snapshots ------------------------------------------------------------------------------- */

/* The table's file, which others write meanwhile. */
static struct bytes snapshot(void) {
    struct stat about;
    int file = open(path, O_RDONLY);
    assert_true(file >= 0 && fstat(file, &about) == 0);
    struct bytes bytes = {malloc((size_t)about.st_size), (size_t)about.st_size};
    assert_non_null(bytes.start);
    for (size_t at = 0; at < bytes.size; at += PAGE) {
        /* Each by itself: others write meanwhile. A disk reads whole cache lines, so no slot is
         * torn; here what is the same twice is not. (Of counters it does not matter.) */
        unsigned char again[PAGE];
        ssize_t got = 0;
        for (unsigned tries = 0; tries < 1000; tries++) {
            got = pread(file, bytes.start + at, PAGE, (off_t)at);
            assert_true(got > 0);
            if (pread(file, again, PAGE, (off_t)at) == got &&
                memcmp(again, bytes.start + at, (size_t)got) == 0)
                break;
        }
    }
    close(file);
    return bytes;
}

/* Snapshots of a table that two processes use, the first one before they come, and one of the table
 * at the end, in another size. Returns what had been granted at the first one. */
struct loss {
    struct bytes snapshots[SNAPSHOTS], resized;
    uint32_t granted[POLICIES][KEYS];
};

static void lose_power(struct loss *loss, enum load load, struct random *random) {
    struct stint_options options = options_of(6000);
    pid_t users[2];
    memset(shared, 0, sizeof *shared);
    test_time = T0 + random_below(random, HOUR);
    struct stint_limiter *limiter = open_with(&options);
    assert_int_equal(stint_policies_apply(limiter, policies_text(0), 0, NULL, NULL, NULL), 0);
    for (unsigned n = 0; n < 1000; n++)
        step(limiter, load == POLICIES_CHANGE ? TIME_PASSES : load, random);
    stint_close(limiter);
    memcpy(loss->granted, shared->granted, sizeof loss->granted);
    for (unsigned i = 0; i < SNAPSHOTS; i++) {
        loss->snapshots[i] = snapshot();
        for (unsigned u = 0; i == 0 && u < 2; u++)
            users[u] = fork_user(load, random_next(random));
        const uint64_t until = shared->done + random_below(random, 1500);
        while (__atomic_load_n(&shared->done, __ATOMIC_SEQ_CST) < until) {
            assert_int_equal(waitpid(-1, NULL, WNOHANG), 0); /* both are there */
            usleep(100);
        }
    }
    for (unsigned u = 0; u < 2; u++) {
        assert_int_equal(kill(users[u], SIGKILL), 0);
        const int status = status_of(users[u]);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
    if (file_resize(path, 9000) != 0)
        fail_msg("%s", stint_reason());
    loss->resized = file_read(path);
    assert_int_equal(unlink(path), 0);
}

/* ---- Mixtures -------------------------------------------------------------------------------- */

/* Of what a page of a mixture may be. */
enum pages { PAGES_OF_TABLE, PAGES_OF_ZEROS, PAGES_OF_OTHER_SIZE, CUT_OFF, MIXTURES };

/* Takes each page from one of two snapshots, at any odds; some are what `pages` says. */
static struct bytes mixture(const struct loss *loss, enum pages pages, struct random *random) {
    const struct bytes *from[2] = {&loss->snapshots[random_below(random, SNAPSHOTS)],
                                   &loss->snapshots[random_below(random, SNAPSHOTS)]};
    const uint64_t odds = 1 + random_below(random, 63), few = UINT64_C(1)
                                                              << random_below(random, 7);
    struct bytes mixed = *from[0];
    if (pages == PAGES_OF_OTHER_SIZE && random_below(random, 2) == 0)
        mixed.size = loss->resized.size;
    mixed.start = calloc(1, mixed.size);
    assert_non_null(mixed.start);
    for (size_t at = 0; at < mixed.size; at += PAGE) {
        const struct bytes *taken = from[random_below(random, 64) < odds];
        if (pages == PAGES_OF_OTHER_SIZE && random_below(random, few) == 0)
            taken = &loss->resized;
        if ((pages != PAGES_OF_ZEROS || random_below(random, 8 * few) != 0) && at < taken->size)
            memcpy(mixed.start + at, taken->start + at,
                   taken->size - at < PAGE ? taken->size - at : PAGE);
    }
    if (pages == CUT_OFF)
        mixed.size = random_below(random, mixed.size);
    return mixed;
}

/* All that looks. */
static void look(struct stint_limiter *limiter) {
    static char text[1 << 16];
    const struct stint_stats stats = get_stats(limiter);
    assert_true(stats.live <= stats.slots && stats.used <= stats.slots);
    assert_int_equal(stint_each(limiter, entry_ignore, NULL), 0);
    assert_true(stint_metrics(limiter, NULL, text, sizeof text) > 0);
}

/* Takes what there is of each key by each policy: at most the capacity with what was granted
 * before, or just that. */
static void take_all(struct stint_limiter *limiter, const uint32_t granted[POLICIES][KEYS],
                     bool exact) {
    for (unsigned p = 0; p < POLICIES; p++) {
        struct stint_policy policy = STINT_POLICY_INIT;
        uint32_t id = 0;
        assert_int_equal(stint_policy_find(limiter, kinds[p].name, &id), 0);
        assert_int_equal(stint_policy_get(limiter, id, &policy), 0);
        const uint32_t most = policy.capacity == 0 ? policy.limit : policy.capacity;
        for (unsigned number = 0; number < KEYS; number++) {
            const stint_key key = number_key(limiter, number);
            uint32_t taken = granted == NULL ? 0 : granted[p][number];
            for (unsigned n = 0; n < 20; n++)
                taken += stint_take(limiter, id, key, 1, STINT_NOW, NULL);
            if (taken > most || (exact && taken < most))
                fail_msg("key %u, policy %s: %u of %u", number, kinds[p].name, taken, most);
        }
    }
}

enum outcome { REFUSED, NO_ROOM, WORKS, OUTCOMES };

/* Opens what is left after a power loss. */
static enum outcome check_mixture(const struct loss *loss, struct bytes mixed, bool bounded,
                                  struct random *random) {
    struct stint_options options = options_of(0);
    struct stint_limiter *limiter = NULL;
    const uint64_t way = random_below(random, 16);
    file_write(path, mixed);
    if (way == 0) { /* first by a reader */
        options.flags = STINT_READ_ONLY;
        if (stint_attach(&options, &limiter) == 0)
            look(limiter);
        stint_close(limiter);
        assert_file(mixed);
        limiter = NULL;
        options.flags = 0;
    }
    int error = way == 1 ? file_resize(path, 0) : stint_attach(&options, &limiter);
    if (error != 0) {
        if (error != -EPROTO || strstr(stint_reason(), path) == NULL)
            fail_msg("%d: %s", error, stint_reason());
        assert_null(limiter);
        assert_file(mixed);
        return REFUSED;
    }
    if (way == 1)
        assert_int_equal(stint_attach(&options, &limiter), 0);
    look(limiter);
    error = stint_policies_apply(limiter, policies_text(bounded ? 0 : random_next(random)),
                                 STINT_PRUNE, NULL, NULL, NULL);
    if (error == 0) {
        const uint64_t now = test_time;
        take_all(limiter, bounded ? loss->granted : NULL, false);
        look(limiter);
        test_time += 4 * HOUR;
        take_all(limiter, NULL, true);
        test_time = now;
    } else if (error != -ENOSPC) {
        fail_msg("%d: %s", error, stint_reason());
    }
    stint_close(limiter);
    return error == 0 ? WORKS : NO_ROOM;
}

/* What was granted until the oldest page was written is never granted again, nor more than the
 * capacity after the loss; and after a while all is as it was. */
TEST_IN_DIRECTORY(test_power_loss) {
    struct random random = {test_seed()};
    unsigned outcomes[MIXTURES][OUTCOMES] = {{0}};
    shared = shared_memory(sizeof *shared);
    test_time_share();
    for (uint64_t round = test_rounds(2); round > 0; round--)
        for (int load = DECIDES; load < LOADS; load++) {
            static struct loss loss;
            lose_power(&loss, (enum load)load, &random);
            for (unsigned n = 0; n < 24; n++) {
                const enum pages pages = n < 12 ? PAGES_OF_TABLE : (enum pages)(n % MIXTURES);
                struct bytes mixed = mixture(&loss, pages, &random);
                outcomes[pages][check_mixture(
                    &loss, mixed, load == DECIDES && pages == PAGES_OF_TABLE, &random)]++;
                free(mixed.start);
                assert_int_equal(unlink(path), 0);
            }
            for (unsigned i = 0; i < SNAPSHOTS; i++)
                free(loss.snapshots[i].start);
            free(loss.resized.start);
        }
    assert_true(outcomes[PAGES_OF_TABLE][WORKS] > 0);
    assert_int_equal(outcomes[CUT_OFF][WORKS] + outcomes[CUT_OFF][NO_ROOM], 0);
    munmap(shared, sizeof *shared);
}

/* A page of never-used slots before the slot of a companion: whoever writes in it comes to an
 * end. */
TEST_IN_DIRECTORY(test_hole) {
    struct stint_options options = options_of(100);
    struct stint_limiter *limiter = open_with(&options);
    assert_int_equal(
        stint_policies_apply(limiter, "1/day ban=1h\n1/hour overrides", 0, NULL, NULL, NULL), 0);
    for (uint32_t id = 0; id < 3; id += 2) { /* their companions are 1 and 3 */
        const stint_key key = number_key(limiter, id);
        assert_true(stint_take(limiter, id, key, 1, STINT_NOW, NULL));
        struct slot *first = home_of(&limiter->table, key.hash)->slots;
        assert_true(tag_policy(&limiter->table, first->tag) == id);
        if (id == 0)
            assert_false(stint_take(limiter, id, key, 1, STINT_NOW, NULL));
        else
            assert_int_equal(stint_override(limiter, id, key, 7, T0 + HOUR), 0);
        *first = (struct slot){0, 0};
        (void)alarm(60);
        if (id == 0) {
            test_time += 2 * HOUR; /* the ban is over, and begins anew */
            assert_true(stint_take(limiter, id, key, 1, STINT_NOW, NULL));
            *first = (struct slot){0, 0};
            first[2] = (struct slot){0, 0};
            assert_false(stint_take(limiter, id, key, 2, STINT_NOW, NULL));
            test_time -= 2 * HOUR;
        } else {
            assert_int_equal(stint_override(limiter, id, key, 8, T0 + HOUR), 0);
        }
        (void)alarm(0);
    }
    stint_close(limiter);
}
