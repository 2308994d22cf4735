/* SPDX-License-Identifier: MIT
 * One table for processes that are killed at random instants: some decide, some change its
 * policies, one reads it, one makes it another size. Two things must hold. Nobody has more than his
 * limit (A), or less than what the killed may have taken. And nobody is held up (E).
 * (Project-HAMi/HAMi-core#248, krakjoe/apcu#632, otovo/redis-rate-limiters#7,
 * swoole/swoole-src#3644: who was killed held the lock for ever.) */
#include "directory.h"
#include "random.h"
#include "sys/testing.h"

#include <sched.h>

enum { KEYS = 2, LIMIT = 6, COST_MOST = 2, KILLS_MOST = 4, SECONDS_MOST = 60, ENTRIES = 1000 };

/* Of a key and policy no more is granted than LIMIT in a round, which is in one window. */
static const char *const kept[] = {"6/d name=a",           "6/d smooth name=b",
                                   "6/d burst=6 name=c",   "6/d stripes=2 name=d",
                                   "6/d in-flight name=e", "6/d overrides name=f"};
enum { KEPT = sizeof kept / sizeof *kept };

/* What the children share. */
static struct {
    bool over;
    uint32_t granted[KEPT][KEYS]; /* and not given back */
} * round_of;

/* In the middle of a call, now and then, where who is killed or stopped does most harm. */
static void lose_core(const void *word) {
    static struct random random;
    (void)word;
    random.state += random.state == 0 ? (uint64_t)getpid() : 0;
    const uint64_t drawn = random_below(&random, 4000);
    if (drawn == 0)
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    else if (drawn < 200)
        sched_yield();
}

static void nap(struct random *random, uint64_t us) {
    nanosleep(&(struct timespec){.tv_nsec = (long)random_below(random, 1000 * us)}, NULL);
}

/* Ends a child whose call failed. */
static void must(bool holds, const char *what) {
    if (holds)
        return;
    fprintf(stderr, "%s (the last error: %s)\n", what, stint_reason());
    _exit(1);
}

static struct stint_limiter *attached(uint32_t flags) {
    const struct stint_options options = attach_options(flags);
    struct stint_limiter *limiter = NULL;
    must(stint_attach(&options, &limiter) == 0, "attach");
    return limiter;
}

/* ---- Roles: what each does until it is killed, or the round is over -------------------------- */

static void writes(struct random *random) {
    enum { HOLDS = 16 };
    static struct {
        struct stint_verdict v;
        uint32_t p, k;
    } holds[HOLDS];
    struct stint_limiter *limiter = attached(0);
    memset(holds, 0, sizeof holds);
    for (uint64_t left = HOLDS + random_below(random, 200); left != 0; left--) {
        const uint64_t hold = left <= HOLDS ? left - 1 : random_below(random, HOLDS);
        struct stint_verdict *v = &holds[hold].v;
        uint32_t *granted = &round_of->granted[holds[hold].p][holds[hold].k];
        if (v->granted != 0) {
            /* Who is killed here has taken it with him. */
            __atomic_fetch_sub(granted, v->granted, __ATOMIC_SEQ_CST);
            must(stint_refund(limiter, stint_key_of_id(limiter, holds[hold].k), v, v->granted) != 0,
                 "refund");
            continue;
        }
        if (left <= HOLDS) /* all is given back */
            continue;
        const uint32_t p = (uint32_t)random_below(random, KEPT + 1);
        const uint32_t k = (uint32_t)random_below(random, KEYS);
        const char name[2] = {p == KEPT ? 'r' : (char)('a' + p), '\0'};
        uint32_t id;
        if (stint_policy_find(limiter, name, &id) != 0) {
            must(p == KEPT, name); /* which comes and goes */
            continue;
        }
        const uint32_t cost = 1 + (uint32_t)random_below(random, COST_MOST);
        stint_take(limiter, id, stint_key_of_id(limiter, k), cost, STINT_NOW, v);
        if (p == KEPT) {
            v->granted = 0;
            continue;
        }
        must((v->flags & STINT_UNTRACKED) == 0, "untracked");
        holds[hold].p = p;
        holds[hold].k = k;
        granted = &round_of->granted[p][k];
        must(__atomic_add_fetch(granted, v->granted, __ATOMIC_SEQ_CST) <= LIMIT,
             "A: more than the limit");
    }
    stint_close(limiter);
}

static void applies(struct random *random, const char *more, uint32_t flags) {
    char text[500] = "";
    struct stint_limiter *limiter = attached(0);
    for (size_t i = 0; i < KEPT; i++)
        strcat(strcat(text, kept[i]), "\n");
    must(stint_policies_apply(limiter, strcat(text, random_below(random, 2) == 0 ? "" : more),
                              flags, NULL, NULL, NULL) == 0,
         "apply");
    stint_close(limiter);
}

static void prunes(struct random *random) {
    applies(random, "1/s name=x", STINT_PRUNE);
}

static void replaces(struct random *random) {
    applies(random, random_below(random, 2) == 0 ? "7/s ban=1h name=r" : "7/m ban=1h name=r", 0);
}

static bool told(void *context, const struct stint_entry *entry) {
    enum { WRITERS = 5 };
    (void)context;
    /* B1: who is refused may have added a token that he has not taken back yet. */
    must(entry->used <= LIMIT + WRITERS || entry->policy >= KEPT, "each");
    return true;
}

static void reads(struct random *random) {
    (void)random;
    struct stint_limiter *limiter = attached(STINT_READ_ONLY);
    struct stint_stats stats = STINT_STATS_INIT;
    must(stint_stats_get(limiter, &stats) == 0 && stint_each(limiter, told, NULL) == 0, "read");
    stint_close(limiter);
}

static unsigned *resized;

static void resizes(struct random *random) {
    const uint64_t entries = ENTRIES + random_below(random, ENTRIES);
    int error = -EBUSY;
    for (int tries = 0; error == -EBUSY && tries < 100; tries++) {
        error = file_resize(path, entries);
        nap(random, 100); /* somebody has it open */
    }
    must(error == 0 || error == -EBUSY, "resize");
    *resized += error == 0;
}

static const struct {
    const char *name;
    void (*acts)(struct random *random);
} roles[] = {{"writer", writes},
             {"writer", writes},
             {"writer", writes},
             {"writer", writes},
             {"writer", writes},
             {"one that prunes", prunes},
             {"one that replaces", replaces},
             {"reader", reads},
             {"resizer", resizes}};
enum { ROLES = sizeof roles / sizeof *roles };

static pid_t started(size_t role, uint64_t seed) {
    const pid_t child = forked();
    if (child == 0) {
        struct random random = {seed};
        alarm(SECONDS_MOST); /* or it is stuck */
        stint_test_step = lose_core;
        while (!__atomic_load_n(&round_of->over, __ATOMIC_SEQ_CST)) {
            nap(&random, 3000);
            roles[role].acts(&random);
        }
        _exit(0);
    }
    return child;
}

/* ---- Rounds ---------------------------------------------------------------------------------- */

/* Each is what it was granted, and nobody is above his limit. */
static void check(unsigned killed) {
    struct stint_limiter *limiter = attach(0);
    uint32_t lost = 0;
    for (uint32_t p = 0; p < KEPT; p++) {
        const char name[2] = {(char)('a' + p), '\0'};
        uint32_t id;
        assert_int_equal(stint_policy_find(limiter, name, &id), 0);
        for (uint64_t k = 0; k < KEYS; k++) {
            uint32_t granted = round_of->granted[p][k];
            while (granted <= LIMIT &&
                   stint_take(limiter, id, stint_key_of_id(limiter, k), 1, STINT_NOW, NULL))
                granted++;
            if (granted > LIMIT)
                fail_msg("A: key %" PRIu64 " by %s was granted more", k, kept[p]);
            lost += LIMIT - granted;
        }
    }
    if (lost > killed * (COST_MOST + 1))
        fail_msg("B: %u killed processes took %" PRIu32 " tokens with them", killed, lost);
    stint_close(limiter);
}

TEST_IN_DIRECTORY(test_killed_at_any_instant) {
    if (emulated("robust mutexes"))
        skip();
    struct random random = {test_seed()};
    unsigned kills = 0;
    round_of = shared_memory(sizeof *round_of);
    resized = shared_memory(sizeof *resized);
    test_time_share();
    struct stint_options options = shared_options(ENTRIES);
    struct stint_limiter *limiter = open_with(&options);
    for (size_t i = 0; i < KEPT; i++)
        add_text(limiter, kept[i]);
    stint_close(limiter);

    for (uint64_t round = test_rounds(20); round != 0; round--) {
        pid_t children[ROLES];
        bool dead[ROLES] = {false};
        unsigned killed = 0;
        memset(round_of, 0, sizeof *round_of);
        test_time += 3 * DAY + random_below(&random, DAY) / STINT_TICK_NS * STINT_TICK_NS;
        for (size_t i = 0; i < ROLES; i++)
            children[i] = started(i, random_next(&random));
        for (uint64_t i = 1 + random_below(&random, KILLS_MOST); i != 0; i--) {
            const size_t role = random_below(&random, ROLES);
            nap(&random, 4000);
            if (dead[role])
                continue;
            if (random_below(&random, 2) == 0) {
                (void)kill(children[role], SIGSTOP);
                nap(&random, 4000);
            }
            (void)kill(children[role], SIGKILL);
            dead[role] = true;
            killed++;
        }
        nap(&random, 4000);
        __atomic_store_n(&round_of->over, true, __ATOMIC_SEQ_CST);
        for (size_t i = 0; i < ROLES; i++) {
            const int status = status_of(children[i]);
            if (dead[i] ? !WIFSIGNALED(status) : status != 0)
                fail_msg("%s ended with status %#x%s", roles[i].name, (unsigned)status,
                         status == SIGALRM ? ": E: it was stuck" : "");
        }
        check(killed);
        kills += killed;
    }
    print_message("%u killed, the table resized %u times\n", kills, *resized);
    assert_int_equal(file_resize(path, 0), 0);
    assert_int_equal(entries_of_directory(), 1); /* what the killed left is gone */
}
