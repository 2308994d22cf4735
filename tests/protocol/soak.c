/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * A long run of everything at once on one shared table: processes of several threads with policies
 * of all kinds, which are killed, stopped, started again, and open the table anew, while the clock
 * jumps and policies change. A ledger beside the table adds up every grant as it is made:
 *
 *   A  the grants to a key in a window never exceed what its policy allows;
 *   B  a request of the plain policy is refused only if the window is full: all but what was
 *      under way, or died with its process between the grant and the ledger, is in the ledger by
 *      then;
 *      what is held in flight is given back by others or, if its holder was killed or forgot it, is
 *      free after the next window: A and B are of two windows' holds;
 *      a key with an override is judged by its limit: that which was set before the decision began,
 *      by the one who turns the clock, and which is not over by any clock; and by no other key's;
 *   E  every thread that is not stopped gets on.
 *
 * The last line says how much of all there was. Exit codes: 0 none was broken, 1 one was, 2 wrong
 * usage. */
#ifdef NDEBUG
#error "tests need their assertions"
#endif

#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "policy_id.h"
#include "random.h"
#include "stint.h"

#define MS     UINT64_C(1000000)
#define SECOND (1000 * MS)
#define T0     (UINT64_C(1704067200) * SECOND) /* 2024-01-01T00:00:00Z */

enum {
    PROCESSES = 4,
    THREADS = 2, /* of each */
    KEYS = 6,    /* in the ledger; others come and go, and fill the table */
    NOISE = 6000,
    MAX_KEYS = 2000, /* so the table is full at times */
    WINDOWS = 32,    /* of a key and policy in the ledger: older ones are forgotten */
    HELD = 64,       /* holds that wait for whoever gives them back */
    STUCK = 20,      /* s without a decision: more than a loaded machine explains */
};

/* ---- What is limited ------------------------------------------------------------------------- */

static const struct {
    const char *notation;
    uint32_t flags; /* of its requests, at random */
    uint32_t bound; /* tokens that a key may be granted in a window */
    uint32_t cost;  /* at most */
} kinds[] = {
    {"100/s name=plain", 0, 100, 1},
    {"5000/minute name=costs", STINT_PARTIAL | STINT_PEEK, 5000, 40},
    {"50/s capacity=200 name=carries", STINT_PARTIAL | STINT_DRAIN, 200, 5},
    {"50/s reserve=100 name=reserves", STINT_RESERVE, 150, 7},
    {"100/s count-refused name=counts", 0, 100, 2},
    {"100/s smooth name=smooth", STINT_PARTIAL, 100, 3},
    {"100/s start=per-key name=phases", 0, 100, 2},
    {"400/s stripes=4 name=stripes", STINT_PARTIAL, 400, 3},
    {"100/s name=changes", 0, 200, 2},
    {"3/10ms name=short", 0, 3, 1},
    {"1M/day name=daily", 0, 1000000, 3},
    {"100/s near=50% jitter=20% name=near", 0, 100, 2},
    {"100/s start=first name=first", 0, 100, 2},
    {"1M/month name=monthly", 0, 1000000, 3},
    {"120/200ms in-flight name=holds", STINT_PARTIAL, 120, 3},
    {"100/s overrides name=ruled", STINT_PARTIAL, 100, 3},
    {"50/s ban=100ms name=bans", STINT_PARTIAL, 50, 2},
};
enum {
    KINDS = sizeof(kinds) / sizeof(kinds[0]),
    PLAIN = 0,
    CHANGES = 8,
    HOLDS = 14,
    RULED = 15,
    BANS = 16
};

/* ---- What all processes share, beside the table ---------------------------------------------- */

/* A window of a key: epoch 6 | end of the window in ticks 38 | tokens granted 20. An epoch is the
 * time from one backward step of the clock to the next. */
#define ROW_EPOCH  58
#define ROW_WINDOW 20
#define ROW_TOKENS ((UINT64_C(1) << ROW_WINDOW) - 1)

struct row {
    uint64_t word;
    uint64_t lost; /* the value of shared.lost when its window began, or less */
};

struct worker {
    uint64_t decisions[THREADS];
    uint64_t paused[THREADS];
    uint64_t started; /* the n-th process in this place */
};

/* The override of a key. */
struct ruling {
    uint64_t changes; /* odd: it is being changed, or not known */
    uint64_t limit;   /* NO_LIMIT: there is none */
    uint64_t until;
};
#define NO_LIMIT UINT64_MAX

static struct shared {
    uint64_t time; /* ns: the clock of all */
    uint64_t epoch;
    uint64_t pause; /* no thread may be in a decision */
    uint64_t stop;
    uint64_t lost;   /* threads that were killed: each may have had a grant in its hands */
    uint64_t strays; /* stray tokens, as far as seen */
    uint64_t violations, reopened, unchecked, windows, decisions;
    struct worker workers[PROCESSES];
    uint64_t held[HELD];
    uint64_t given_back[KEYS]; /* tokens, at most: counted before they are */
    uint64_t refused_holds;
    struct ruling rulings[KEYS];
    uint64_t ruled[KEYS][WINDOWS]; /* as a row: the largest limit that anybody was granted by */
    uint64_t overridden, overrides;
    struct row rows[KINDS][KEYS][WINDOWS];
} * shared;

static struct {
    uint64_t seconds, seed, kills;
    const char *path;
} options = {.seconds = 10, .kills = 1000};

static uint64_t load(const uint64_t *word) {
    return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

static uint64_t add(uint64_t *word, uint64_t value) {
    return __atomic_add_fetch(word, value, __ATOMIC_SEQ_CST);
}

static uint64_t shared_clock(void) {
    static _Thread_local uint64_t readings;
    const uint64_t time = load(&shared->time), left = STINT_TICK_NS - 1 - time % STINT_TICK_NS;
    const uint64_t more = readings++ % 1000; /* it moves while a decision is under way */
    return time + (more < left ? more : left);
}

__attribute__((format(printf, 1, 2))) static void violated(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "seed %" PRIu64 ": ", options.seed);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    add(&shared->violations, 1);
}

/* ---- The ledger ------------------------------------------------------------------------------ */

static struct row *row_of(uint32_t kind, uint32_t key, uint64_t end, uint64_t length) {
    return &shared->rows[kind][key][end / length % WINDOWS];
}

/* Adds `tokens`, or takes them off, in the window that ends at `end`. Returns the sum, or
 * UINT64_MAX if the window is too long past to have a row. */
static uint64_t ledger_add(uint32_t kind, uint32_t key, uint64_t epoch, uint64_t end,
                           uint64_t length, int64_t tokens) {
    struct row *row = row_of(kind, key, end, length);
    uint64_t window = epoch << ROW_EPOCH | end / STINT_TICK_NS << ROW_WINDOW;
    uint64_t word = load(&row->word), next;

    do {
        if ((word & ~ROW_TOKENS) > window)
            return UINT64_MAX;
        if ((word & ~ROW_TOKENS) == window)
            next = word + (uint64_t)tokens;
        else if (tokens >= 0)
            next = window | (uint64_t)tokens;
        else
            return UINT64_MAX;
    } while (!__atomic_compare_exchange_n(&row->word, &word, next, false, __ATOMIC_SEQ_CST,
                                          __ATOMIC_SEQ_CST));
    if ((word & ~ROW_TOKENS) != window) {
        __atomic_store_n(&row->lost, load(&shared->lost), __ATOMIC_SEQ_CST);
        add(&shared->windows, 1);
    }
    return next & ROW_TOKENS;
}

static void check_granted(uint32_t kind, uint32_t key, uint64_t epoch, uint64_t length,
                          const struct stint_verdict *verdict) {
    uint64_t sum = ledger_add(kind, key, epoch, verdict->window, length, (int64_t)verdict->granted);
    if (sum == UINT64_MAX)
        add(&shared->unchecked, 1);
    else if (sum > kinds[kind].bound)
        violated("A: %s, key %u, window %" PRIu64 ": %" PRIu64 " granted", kinds[kind].notation,
                 (unsigned)key, verdict->window, sum);
}

/* A refusal of the plain policy: the ledger must show why. */
static void check_refused(uint32_t key, uint64_t epoch, uint64_t length,
                          const struct stint_verdict *verdict) {
    const struct row *row = row_of(PLAIN, key, verdict->window, length);
    uint64_t lost = load(&row->lost); /* before the sum: it may be that of an earlier window */
    uint64_t word = load(&row->word);
    uint64_t window = epoch << ROW_EPOCH | verdict->window / STINT_TICK_NS << ROW_WINDOW;

    if ((word & ~ROW_TOKENS) != window)
        return;
    uint64_t may_miss = PROCESSES * THREADS + (load(&shared->lost) - lost) + load(&shared->strays);
    if ((word & ROW_TOKENS) + may_miss < kinds[PLAIN].bound &&
        load(&row->word) >> ROW_WINDOW == word >> ROW_WINDOW)
        violated("B: plain, key %u, window %" PRIu64 ": refused with %" PRIu64
                 " granted and at most %" PRIu64 " under way",
                 (unsigned)key, verdict->window, word & ROW_TOKENS, may_miss);
}

/* ---- Held in flight -------------------------------------------------------------------------- */

/* A hold that anybody may give back: epoch 6 | end of the window in ticks 38 | key 4 | tokens 8. */
static uint64_t hold_of(uint32_t key, uint64_t epoch, uint64_t end, uint32_t tokens) {
    return epoch << 58 | end / STINT_TICK_NS << 12 | (uint64_t)key << 8 | tokens;
}

/* The row of a key's window that ends at `end`; NULL: there is none. `tokens`: what it says. */
static const struct row *row_if(uint32_t key, uint64_t epoch, uint64_t end, uint64_t length,
                                uint64_t *tokens) {
    const struct row *row = row_of(HOLDS, key, end, length);
    uint64_t word = load(&row->word);
    bool is_its = word >> ROW_WINDOW == (epoch << (ROW_EPOCH - ROW_WINDOW) | end / STINT_TICK_NS);
    *tokens = is_its ? word & ROW_TOKENS : 0;
    return is_its ? row : NULL;
}

/* Grants come to the ledger late and what is given back leaves it early: it never says more than is
 * held. Nobody can be granted more in the window before. */
static void check_held(uint32_t key, uint64_t epoch, uint64_t length,
                       const struct stint_verdict *verdict) {
    uint64_t before;
    uint64_t sum = ledger_add(HOLDS, key, epoch, verdict->window, length, verdict->granted);
    (void)row_if(key, epoch, verdict->window - length, length, &before);
    if (sum == UINT64_MAX)
        add(&shared->unchecked, 1);
    else if (sum + before > kinds[HOLDS].bound)
        violated("A: %s, key %u, window %" PRIu64 ": %" PRIu64 " held, and %" PRIu64 " from before",
                 kinds[HOLDS].notation, (unsigned)key, verdict->window, sum, before);
}

/* A refusal: so much is held by those of two windows, or by nobody who could tell. Of whoever was
 * killed since the window before those, each thread may have held as much as it may ask for. What
 * was given back since `given_back` was read may have been held then. */
static void check_not_held(uint32_t key, uint64_t epoch, uint64_t length, uint64_t cost,
                           uint64_t given_back, const struct stint_verdict *verdict) {
    uint64_t tokens, before, ignored;
    const struct row *first = row_if(key, epoch, verdict->window - 2 * length, length, &ignored);
    uint64_t lost = first != NULL ? load(&first->lost) : 0;
    (void)row_if(key, epoch, verdict->window, length, &tokens);
    (void)row_if(key, epoch, verdict->window - length, length, &before);
    uint64_t hands = PROCESSES * THREADS + (load(&shared->lost) - lost);
    given_back = load(&shared->given_back[key]) - given_back;
    uint64_t may_miss = hands * kinds[HOLDS].cost + given_back + load(&shared->strays);

    add(&shared->refused_holds, 1);
    /* By now it may be later, and the windows others'. */
    if (first == NULL || load(&shared->time) > verdict->window + length)
        return;
    if (tokens + before + cost + may_miss <= kinds[HOLDS].bound)
        violated("B: holds, key %u, window %" PRIu64 ": refused with %" PRIu64 " and %" PRIu64
                 " held and at most %" PRIu64 " under way",
                 (unsigned)key, verdict->window, tokens, before, may_miss);
}

/* ---- Overrides ------------------------------------------------------------------------------- */

/* Whose it is shows in a limit. */
static bool is_limit_of(uint32_t key, uint32_t limit) {
    return limit % 8 == key;
}

static bool strays(struct stint_limiter *limiter) {
    struct stint_stats stats = STINT_STATS_INIT;
    return stint_stats_get(limiter, &stats) != 0 || stats.stray_tokens != 0;
}

/* A verdict by the policy with overrides; `before` is the key's ruling before the decision. */
static void check_ruled(struct stint_limiter *limiter, uint32_t key, uint64_t epoch,
                        uint64_t length, struct ruling before,
                        const struct stint_verdict *verdict) {
    const struct ruling *ruling = &shared->rulings[key];
    bool overridden = (verdict->flags & STINT_OVERRIDDEN) != 0, good = true;
    uint64_t time = load(&shared->time);

    if (overridden)
        good = is_limit_of(key, verdict->capacity);
    if (before.changes % 2 == 0 && load(&ruling->changes) == before.changes) {
        if (before.limit == NO_LIMIT)
            good &= !overridden;
        else if (time < before.until)
            good &= overridden && verdict->capacity == before.limit;
    }
    if (!good && !strays(limiter))
        violated("key %u has an override of %" PRIu64 ", and was judged by %" PRIu32
                 " (overridden: %d)",
                 (unsigned)key, before.limit, verdict->capacity, overridden);
    add(&shared->overridden, overridden);
    if (verdict->granted == 0)
        return;
    /* Each window keeps the largest limit that one of its grants has told: before the grant is in
     * the ledger, so the sum is at most that. */
    uint64_t *most = &shared->ruled[key][verdict->window / length % WINDOWS];
    uint64_t window = epoch << ROW_EPOCH | verdict->window / STINT_TICK_NS << ROW_WINDOW;
    uint64_t seen = load(most);
    while (seen < (window | verdict->capacity) &&
           !__atomic_compare_exchange_n(most, &seen, window | verdict->capacity, false,
                                        __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
    uint64_t sum = ledger_add(RULED, key, epoch, verdict->window, length, verdict->granted);
    seen = load(most);
    if (sum == UINT64_MAX)
        add(&shared->unchecked, 1);
    else if (seen >> ROW_WINDOW == window >> ROW_WINDOW && sum > (seen & ROW_TOKENS))
        violated("A: ruled, key %u, window %" PRIu64 ": %" PRIu64 " granted by at most %" PRIu64,
                 (unsigned)key, verdict->window, sum, seen & ROW_TOKENS);
}

/* The latest time of this epoch. */
static uint64_t latest;

/* Only the one who turns the clock sets overrides of these keys. */
static void set_ruling(struct stint_limiter *limiter, uint32_t policy, struct random *random) {
    uint32_t key = (uint32_t)random_below(random, KEYS);
    stint_key hash = stint_key_of(limiter, &key, sizeof(key));
    struct ruling *ruling = &shared->rulings[key];
    bool clears = random_below(random, 4) == 0;
    uint32_t limit = 8 * (uint32_t)random_below(random, 30) + key;
    uint64_t now = load(&shared->time);
    uint64_t until = (now > latest ? now : latest) + 1 + random_below(random, 5 * SECOND);

    if (ruling->changes % 2 == 0)
        add(&ruling->changes, 1);
    int error = clears ? stint_override_clear(limiter, policy, hash)
                       : stint_override(limiter, policy, hash, limit, until);
    if (error != 0 && error != (clears ? -ENOENT : -ENOSPC))
        violated("override: %s (%s)", stint_strerror(error), stint_reason());
    if (error != 0) /* there may still be an older one; also over by the clock, which may go back */
        return;
    __atomic_store_n(&ruling->limit, clears ? NO_LIMIT : limit, __ATOMIC_SEQ_CST);
    __atomic_store_n(&ruling->until, until, __ATOMIC_SEQ_CST);
    add(&ruling->changes, 1);
    add(&shared->overrides, 1);
}

/* Before the clock goes on, or back: an override that is over by a clock may be lost, or be there
 * again. Where the clock went back, some thread may still hold the latest time. */
static void forget_rulings(bool all) {
    for (unsigned key = 0; key < KEYS; key++) {
        struct ruling *ruling = &shared->rulings[key];
        bool over = ruling->limit != NO_LIMIT && ruling->until <= latest;
        if (ruling->changes % 2 == 0 && (over || all))
            add(&ruling->changes, 1);
    }
}

/* ---- Workers --------------------------------------------------------------------------------- */

struct handle {
    struct stint_limiter *limiter;
    uint32_t policies[KINDS];
    uint64_t lengths[KINDS];
};

static void *table_memory;
static size_t table_size;

static bool handle_open(struct handle *handle) {
    struct stint_options about = STINT_OPTIONS_INIT;
    about.max_keys = MAX_KEYS;
    about.clock = shared_clock;
    about.path = options.path;
    int error = options.path != NULL
                    ? stint_open(&about, &handle->limiter)
                    : stint_open_in(&about, table_memory, table_size, &handle->limiter);
    if (error != 0) {
        violated("the table cannot be opened: %s (%s)", stint_strerror(error), stint_reason());
        return false;
    }
    for (uint32_t kind = 0; kind < KINDS; kind++) {
        struct stint_policy policy = STINT_POLICY_INIT;
        int id = stint_policy_parse(kinds[kind].notation, &policy, NULL);
        if (id == 0)
            id = policy_added(handle->limiter, &policy);
        if (id == -EEXIST)
            id = policy_found(handle->limiter, policy.name);
        if (id < 0) {
            violated("%s: %s (%s)", policy.name, stint_strerror(id), stint_reason());
            return false;
        }
        handle->policies[kind] = (uint32_t)id;
        /* Of a month: that ends have rows of their own. */
        handle->lengths[kind] = policy.window != 0 ? policy.window : 28 * UINT64_C(86400000000000);
    }
    return true;
}

/* Gives back what somebody holds. */
static void give_back(const struct handle *handle, uint64_t hold) {
    uint32_t key = (uint32_t)(hold >> 8 & 15), tokens = (uint32_t)(hold & 255);
    uint64_t end = (hold >> 12 & ((UINT64_C(1) << 38) - 1)) * STINT_TICK_NS;
    uint64_t length = handle->lengths[HOLDS], epoch = hold >> 58;
    stint_key hash = stint_key_of(handle->limiter, &key, sizeof(key));

    if (hold == 0 || epoch != load(&shared->epoch) % 64)
        return;
    add(&shared->given_back[key], tokens);
    if (ledger_add(HOLDS, key, epoch, end, length, -(int64_t)tokens) == UINT64_MAX)
        return;
    uint32_t back = stint_refund(handle->limiter, handle->policies[HOLDS], hash, tokens, end);
    (void)ledger_add(HOLDS, key, epoch, end, length, (int64_t)(tokens - back));
}

/* Holds tokens of a key, and leaves them to others to give back, or to nobody. */
static void hold_checked(const struct handle *handle, struct random *random) {
    uint32_t key = (uint32_t)random_below(random, KEYS);
    uint64_t length = handle->lengths[HOLDS], epoch = load(&shared->epoch);
    uint64_t *place = &shared->held[random_below(random, HELD)];
    struct stint_verdict verdict;
    struct stint_request request = {
        .key = stint_key_of(handle->limiter, &key, sizeof(key)),
        .policy = handle->policies[HOLDS],
        .cost = 1 + (uint32_t)random_below(random, kinds[HOLDS].cost),
        .flags = (uint32_t)random_next(random) & kinds[HOLDS].flags,
    };

    if (random_below(random, 3) == 0) {
        give_back(handle, __atomic_exchange_n(place, 0, __ATOMIC_SEQ_CST));
        return;
    }
    uint64_t given_back = load(&shared->given_back[key]);
    (void)stint_decide(handle->limiter, &request, STINT_NOW, &verdict);
    if ((verdict.flags & STINT_UNTRACKED) != 0)
        return;
    if (!verdict.allowed)
        check_not_held(key, epoch, length, request.cost, given_back, &verdict);
    if (verdict.granted == 0)
        return;
    check_held(key, epoch, length, &verdict);
    if (random_below(random, 3) != 0) {
        uint64_t hold = hold_of(key, epoch, verdict.window, verdict.granted);
        give_back(handle, __atomic_exchange_n(place, hold, __ATOMIC_SEQ_CST));
    }
}

/* One of the keys of the ledger. */
static void decide_checked(const struct handle *handle, struct random *random) {
    uint32_t kind = random_below(random, 3) == 0 ? PLAIN : (uint32_t)random_below(random, KINDS);
    uint32_t key = (uint32_t)random_below(random, KEYS);
    uint64_t length = handle->lengths[kind];
    if (kind == HOLDS) {
        hold_checked(handle, random);
        return;
    }
    struct stint_request request = {
        .key = stint_key_of(handle->limiter, &key, sizeof(key)),
        .policy = handle->policies[kind],
        .cost = 1 + (uint32_t)random_below(random, kinds[kind].cost),
        .flags = (uint32_t)random_next(random) & kinds[kind].flags,
    };
    struct stint_verdict verdict;
    struct ruling ruling = {.changes = load(&shared->rulings[key].changes)};
    ruling.limit = load(&shared->rulings[key].limit);
    ruling.until = load(&shared->rulings[key].until);
    uint64_t epoch = load(&shared->epoch);

    if (random_below(random, 8) == 0)
        (void)stint_decide_batch(handle->limiter, &request, 1, STINT_NOW, &verdict);
    else if (request.flags == 0)
        (void)stint_take(handle->limiter, request.policy, request.key, request.cost, STINT_NOW,
                         &verdict);
    else
        (void)stint_decide(handle->limiter, &request, STINT_NOW, &verdict);
    if ((verdict.flags & STINT_UNTRACKED) != 0)
        return;
    if (kind == RULED)
        check_ruled(handle->limiter, key, epoch, length, ruling, &verdict);
    else if (verdict.granted > 0)
        check_granted(kind, key, epoch, length, &verdict);
    else if (!verdict.allowed && kind == PLAIN)
        check_refused(key, epoch, length, &verdict);

    if (verdict.granted > 0 && kind != PLAIN && kind != RULED && random_below(random, 16) == 0) {
        /* Off the ledger first: from the refund on, others may be granted them. */
        uint32_t tokens = 1 + (uint32_t)random_below(random, verdict.granted);
        if (ledger_add(kind, key, epoch, verdict.window, length, -(int64_t)tokens) == UINT64_MAX)
            return;
        uint32_t back =
            stint_refund(handle->limiter, request.policy, request.key, tokens, verdict.window);
        (void)ledger_add(kind, key, epoch, verdict.window, length, (int64_t)(tokens - back));
    }
}

/* Several policies of a key as one. */
static void decide_checked_all(const struct handle *handle, struct random *random) {
    static const uint32_t members[] = {1, 2, 8, 10};
    enum { N = sizeof(members) / sizeof(members[0]) };
    uint32_t key = (uint32_t)random_below(random, KEYS);
    struct stint_request requests[N];
    struct stint_verdict verdicts[N];
    uint64_t epoch = load(&shared->epoch);

    for (uint32_t i = 0; i < N; i++)
        requests[i] =
            (struct stint_request){.key = stint_key_of(handle->limiter, &key, sizeof(key)),
                                   .policy = handle->policies[members[i]],
                                   .cost = 1 + (uint32_t)random_below(random, 3)};
    if (!stint_decide_all(handle->limiter, requests, N, STINT_NOW, verdicts))
        return;
    for (uint32_t i = 0; i < N; i++)
        if ((verdicts[i].flags & STINT_UNTRACKED) == 0)
            check_granted(members[i], key, epoch, handle->lengths[members[i]], &verdicts[i]);
}

/* One of the keys that nobody adds up: they share lines with the others, and fill the table. */
static void decide_noise(const struct handle *handle, struct random *random) {
    uint64_t number = KEYS + random_below(random, NOISE);
    uint32_t policy = handle->policies[random_below(random, KINDS)];
    stint_key key = stint_key_of(handle->limiter, &number, sizeof(number));
    struct stint_request request = {
        .key = key,
        .policy = policy,
        .cost = (uint32_t)random_below(random, 10),
        .limit = random_below(random, 4) == 0 ? 1 + (uint32_t)random_below(random, 1000) : 0,
        .flags = (uint32_t)random_below(random, 16),
    };
    struct stint_verdict verdict;

    switch (random_below(random, 8)) {
    case 0:
        stint_reset(handle->limiter, policy, key);
        policy = handle->policies[RULED];
        if (random_below(random, 2) == 0)
            (void)!stint_override(handle->limiter, policy, key, request.limit,
                                  load(&shared->time) + SECOND / 2);
        else
            (void)!stint_override_clear(handle->limiter, policy, key);
        break;
    case 1:
        (void)stint_refund(handle->limiter, policy, key, 5, load(&shared->time) + SECOND);
        break;
    case 2:
    case 3:
        (void)stint_decide(handle->limiter, &request, STINT_NOW, &verdict);
        break;
    case 4: /* by a clock that was read long ago */
        (void)stint_take(handle->limiter, policy, key, 1,
                         load(&shared->time) - random_below(random, 50 * SECOND), &verdict);
        break;
    default:
        (void)stint_take(handle->limiter, policy, key, 1, STINT_NOW, &verdict);
    }
}

struct place {
    unsigned worker, thread;
    struct handle *handle;
    uint64_t rounds; /* after which the process opens the table anew */
};

static void *work(void *argument) {
    const struct place *place = argument;
    struct worker *worker = &shared->workers[place->worker];
    struct random random = {options.seed ^ load(&worker->started) << 8 ^
                            (uint64_t)place->worker << 4 ^ place->thread};

    __atomic_store_n(&worker->paused[place->thread], 0, __ATOMIC_SEQ_CST);
    for (uint64_t round = 0; round < place->rounds; round++) {
        if (load(&shared->stop) != 0)
            break;
        if (load(&shared->pause) != 0) {
            __atomic_store_n(&worker->paused[place->thread], 1, __ATOMIC_SEQ_CST);
            while (load(&shared->pause) != 0)
                usleep(200);
            __atomic_store_n(&worker->paused[place->thread], 0, __ATOMIC_SEQ_CST);
            continue;
        }
        switch (random_below(&random, 8)) {
        case 0:
        case 1:
        case 2:
            decide_noise(place->handle, &random);
            break;
        case 3:
            decide_checked_all(place->handle, &random);
            break;
        default:
            decide_checked(place->handle, &random);
        }
        add(&worker->decisions[place->thread], 1);
    }
    /* Between two handles a thread is in no decision either. */
    __atomic_store_n(&worker->paused[place->thread], 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static void worker_main(unsigned number) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    errno = 0;
    (void)nice(10); /* who turns the clock comes first */
    while (load(&shared->stop) == 0) {
        struct handle handle;
        pthread_t threads[THREADS];
        struct place places[THREADS];
        if (!handle_open(&handle))
            _exit(1);
        for (unsigned i = 0; i < THREADS; i++) {
            places[i] = (struct place){number, i, &handle, 20000};
            if (pthread_create(&threads[i], NULL, work, &places[i]) != 0)
                _exit(1);
        }
        for (unsigned i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        stint_close(handle.limiter);
        add(&shared->reopened, 1);
    }
    _exit(0);
}

/* ---- The one who turns the clock, kills and changes ------------------------------------------ */

static pid_t processes[PROCESSES];
static uint64_t kills, stops, changes, steps;

static void process_start(unsigned number) {
    struct worker *worker = &shared->workers[number];
    for (unsigned i = 0; i < THREADS; i++)
        worker->paused[i] = 0;
    add(&worker->started, 1);
    fflush(NULL);
    processes[number] = fork();
    if (processes[number] == 0)
        worker_main(number);
    if (processes[number] < 0) {
        perror("fork");
        exit(1);
    }
}

static void process_kill(unsigned number) {
    (void)kill(processes[number], SIGKILL);
    (void)waitpid(processes[number], NULL, 0);
    add(&shared->lost, THREADS);
    kills++;
    process_start(number);
}

/* A step back that no allowance covers: windows are counted anew after it, so nobody may be in the
 * middle of a decision by the time before. */
static void step_back(struct random *random) {
    __atomic_store_n(&shared->pause, 1, __ATOMIC_SEQ_CST);
    for (unsigned i = 0; i < PROCESSES; i++)
        for (unsigned thread = 0; thread < THREADS; thread++)
            while (load(&shared->workers[i].paused[thread]) == 0 && load(&shared->violations) == 0)
                usleep(200);
    forget_rulings(true);
    __atomic_store_n(&shared->time,
                     load(&shared->time) - 2 * 3600 * SECOND - random_below(random, 3600) * SECOND,
                     __ATOMIC_SEQ_CST);
    add(&shared->epoch, 1);
    __atomic_store_n(&shared->pause, 0, __ATOMIC_SEQ_CST);
    steps++;
}

static void turn_clock(struct random *random) {
    static uint64_t epoch;
    uint64_t now = load(&shared->time);

    if (epoch != load(&shared->epoch) || latest < now) {
        epoch = load(&shared->epoch);
        latest = now;
    }
    forget_rulings(false);
    switch (random_below(random, 400)) {
    case 0: /* what NTP may do: never more than the allowance of 60 s behind what was shown once */
        now -= random_below(random, 20 * SECOND);
        if (latest - now > 50 * SECOND)
            now = latest - 50 * SECOND;
        break;
    case 1: /* a machine that slept */
        now += random_below(random, 3 * 3600 * SECOND);
        break;
    default:
        now += random_below(random, 50 * MS);
    }
    __atomic_store_n(&shared->time, now, __ATOMIC_SEQ_CST);
}

static void change_policy(const struct handle *handle, struct random *random) {
    struct stint_policy policy = STINT_POLICY_INIT;
    int error = stint_policy_parse(kinds[CHANGES].notation, &policy, NULL);
    policy.limit = 100 + (uint32_t)random_below(random, 101);
    if (error == 0)
        error = stint_policy_change(handle->limiter, handle->policies[CHANGES], &policy);
    if (error != 0)
        violated("policy change: %s (%s)", stint_strerror(error), stint_reason());
    changes++;
}

static uint64_t decided(const struct worker *worker) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < THREADS; i++)
        sum += load(&worker->decisions[i]);
    return sum;
}

/* Every thread must have decided since it was last looked at. */
static void check_progress(void) {
    static uint64_t seen[PROCESSES][THREADS];
    for (unsigned i = 0; i < PROCESSES; i++)
        for (unsigned thread = 0; thread < THREADS; thread++) {
            uint64_t now = load(&shared->workers[i].decisions[thread]);
            if (now == seen[i][thread])
                violated("E: process %u, thread %u has not decided for %u s", i, thread,
                         (unsigned)STUCK);
            seen[i][thread] = now;
        }
}

static double wall(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void soak(const struct handle *handle, struct random *random) {
    double begin = wall(), end = begin + (double)options.seconds, look = begin + STUCK;
    double killing = (double)options.seconds / (double)(options.kills == 0 ? 1 : options.kills);
    double next_kill = options.kills == 0 ? end : begin + killing;
    double step_after = (double)options.seconds / 8 < 15 ? (double)options.seconds / 8 : 15;
    double next_step = begin + step_after;
    struct stint_stats stats = STINT_STATS_INIT;

    /* A machine with other work to do may need longer for all the kills. */
    while ((wall() < end || (kills < options.kills && wall() < end + (end - begin) * 5)) &&
           load(&shared->violations) == 0) {
        turn_clock(random);
        if (random_below(random, 20) == 0)
            change_policy(handle, random);
        if (random_below(random, 4) == 0)
            set_ruling(handle->limiter, handle->policies[RULED], random);
        if (wall() >= next_kill) {
            process_kill((unsigned)random_below(random, PROCESSES));
            next_kill += killing;
        }
        if (random_below(random, 500) ==
            0) { /* one is stopped wherever it is, and the others go on */
            pid_t process = processes[random_below(random, PROCESSES)];
            (void)kill(process, SIGSTOP);
            for (unsigned i = 0; i < 20; i++) {
                turn_clock(random);
                usleep((useconds_t)random_below(random, 5000));
            }
            (void)kill(process, SIGCONT);
            stops++;
        }
        if (wall() >= next_step) {
            step_back(random);
            next_step += step_after;
        }
        if (random_below(random, 20) == 0 && stint_stats_get(handle->limiter, &stats) == 0)
            __atomic_store_n(&shared->strays, stats.stray_tokens, __ATOMIC_SEQ_CST);
        if (wall() >= look) {
            check_progress();
            look += STUCK;
        }
        usleep((useconds_t)random_below(random, 2000));
    }
}

static int report(const struct handle *handle) {
    struct stint_stats stats = STINT_STATS_INIT;
    uint64_t decisions = 0;

    for (unsigned i = 0; i < PROCESSES; i++) {
        int status = 0;
        decisions += decided(&shared->workers[i]);
        (void)kill(processes[i], SIGCONT);
        if (waitpid(processes[i], &status, 0) != processes[i] || !WIFEXITED(status) ||
            WEXITSTATUS(status) != 0)
            violated("a process ended with status %#x", (unsigned)status);
    }
    if (stint_stats_get(handle->limiter, &stats) != 0)
        violated("no statistics: %s", stint_reason());
    struct stint_policy_stats bans = STINT_POLICY_STATS_INIT;
    if (stint_policy_stats_get(handle->limiter, handle->policies[BANS], &bans) != 0)
        violated("no statistics of a policy: %s", stint_reason());
    uint64_t violations = load(&shared->violations), given_back = 0;
    for (unsigned key = 0; key < KEYS; key++)
        given_back += load(&shared->given_back[key]);
    printf("decisions %" PRIu64 ", windows passed %" PRIu64 ", kills survived %" PRIu64
           ", stops %" PRIu64 ", tables opened anew %" PRIu64 ", policy changes %" PRIu64
           ", clock steps back %" PRIu64 ", given back %" PRIu64 ", refused holds %" PRIu64
           ", overrides %" PRIu64 ", judged by them %" PRIu64 ", bans %" PRIu64
           ", untracked %" PRIu64 ", stray tokens %" PRIu64
           ", grants too late for the ledger %" PRIu64 ", violations %" PRIu64 "\n",
           decisions, load(&shared->windows), kills, stops, load(&shared->reopened), changes, steps,
           given_back, load(&shared->refused_holds), load(&shared->overrides),
           load(&shared->overridden), bans.bans, stats.untracked, stats.stray_tokens,
           load(&shared->unchecked), violations);
    /* Not nothing: a run that saw none of it has shown nothing. */
    bool seen = decisions > 1000 && load(&shared->windows) > 100 && steps > 0 && changes > 0 &&
                given_back > 0 && load(&shared->overridden) > 0 && kills >= options.kills;
    if (!seen)
        fprintf(stderr, "too little has happened\n");
    return violations == 0 && seen ? 0 : 1;
}

/* ---- Usage ----------------------------------------------------------------------------------- */

static const char usage[] =
    "Usage: test-soak [--seconds N] [--kills N] [--file PATH] [--seed N]\n"
    "\n"
    "  --seconds N   how long (10)\n"
    "  --kills N     processes killed over all, each at any instant (1000)\n"
    "  --file PATH   the table is this file, which must not exist (shared memory)\n"
    "  --seed N      of the random numbers (STINT_TEST_SEED, or another one in every run)\n";

static bool number(const char *option, const char *text, uint64_t *value) {
    char *end;
    errno = 0;
    *value = strtoull(text, &end, 10);
    if (errno == 0 && end != text && *end == '\0' && *text != '-')
        return true;
    fprintf(stderr, "test-soak: %s '%s' is no number\n%s", option, text, usage);
    return false;
}

static int parse(int argc, char **argv) {
    static const struct option known[] = {
        {"seconds", required_argument, NULL, 's'}, {"kills", required_argument, NULL, 'k'},
        {"file", required_argument, NULL, 'f'},    {"seed", required_argument, NULL, 'r'},
        {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0}};
    bool seeded = false;
    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        bool good = true;
        switch (option) {
        case 's':
            good = number("--seconds", optarg, &options.seconds);
            break;
        case 'k':
            good = number("--kills", optarg, &options.kills);
            break;
        case 'f':
            options.path = optarg;
            break;
        case 'r':
            good = seeded = number("--seed", optarg, &options.seed);
            break;
        case 'h':
            fputs(usage, stdout);
            exit(0);
        default:
            good = false;
            fputs(usage, stderr);
        }
        if (!good)
            return 2;
    }
    if (optind < argc) {
        fprintf(stderr, "test-soak: '%s' is no option\n%s", argv[optind], usage);
        return 2;
    }
    if (!seeded)
        options.seed = test_seed();
    return 0;
}

static void *map_shared(size_t size) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return memory;
}

int main(int argc, char **argv) {
    int wrong = parse(argc, argv);
    if (wrong != 0)
        return wrong;
    if (getenv("STINT_TEST_EMULATED") != NULL) {
        printf("skipped: qemu-user has no robust mutexes\n");
        return 77;
    }
    struct stint_options about = STINT_OPTIONS_INIT;
    about.max_keys = MAX_KEYS;
    table_size = stint_memory_size(&about);
    table_memory = map_shared(table_size);
    shared = map_shared(sizeof(*shared));
    shared->time = T0;
    for (unsigned key = 0; key < KEYS; key++)
        shared->rulings[key].limit = NO_LIMIT;

    struct random random = {options.seed};
    struct handle handle;
    if (!handle_open(&handle))
        return 1;
    for (unsigned i = 0; i < PROCESSES; i++)
        process_start(i);
    soak(&handle, &random);
    __atomic_store_n(&shared->stop, 1, __ATOMIC_SEQ_CST);
    int result = report(&handle);
    stint_close(handle.limiter);
    if (options.path != NULL)
        (void)unlink(options.path);
    return result;
}
