/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * Everything at once, for as long as is wanted: policies of all kinds, in tables that are large
 * or of one line, by threads of this process, which signals interrupt, or of several, which are
 * killed, stopped and started again, and open the table anew; while the clock turns, steps and
 * jumps, and policies change. A ledger beside the table adds up what each key was granted in each
 * window. When a round is over (model.h knows what a count comes to in the next window):
 *
 *   A  no window was granted more than its policy allows beside what those before have left, and
 *      no span of ticks more than a bucket of its policy allows
 *      (openresty/lua-resty-limit-traffic#44, Kong/kong#8227, Kong/kong#13811, apache/apisix#4080,
 *      boinkor-net/governor#16);
 *   B  a token was refused only in a window that was full (a smooth one: at the least weight of the
 *      one before), and when all but what was under way was in the ledger;
 *   C  each window that was full has told of one first refusal;
 *   E  every thread has got on;
 *      each key has used what was granted, charged and not given back, and the policies count all
 *      decisions: to the token, where nobody was killed. Of a group, all got their tokens or none.
 *      A key with an override is judged by that, and no other is.
 *
 * Exit codes: 0 none was broken, 1 one was, or too little has happened, 2 wrong usage. */
#include "fixture.h"

#include <getopt.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kinds.h"
#include "model.h"
#include "random.h"
#include "sys/testing.h"

#define TICK STINT_TICK_NS

enum {
    PROCESSES = 4,
    THREADS_MOST = 8, /* of all processes */
    PAIRS_MOST = 32,
    PAIRS_FEW = 5,
    PAIRS_OF_KEY = 4,
    WINDOWS = 4096,
    COST_MOST = 5,
    PLACES = 64,  /* verdicts that wait for whoever gives their tokens back */
    NOISE = 6000, /* keys that nobody adds up: they share lines with others, and fill the table */
    ROUNDS = 2,   /* of a table */
    STUCK = 30,   /* s: more than a loaded machine explains */
};

/* How long a round may be by the clock: as many of the shortest windows as have rows. */
#define ROUND         ((WINDOWS - 100) * TICK)
#define ROUND_SECONDS 0.25

/* What all threads saw of a key in a window. */
struct row {
    uint64_t held;    /* tokens granted or charged, but for those that were given back */
    uint64_t granted; /* likewise without those charged */
    uint64_t refused; /* requests for one token, without STINT_RESERVE */
    uint64_t first_refusals;
    uint64_t least_left;         /* ns to its end, of those granted, and at most the window */
    uint64_t least_refused_left; /* of those refused */
    uint64_t least_held;         /* when one was refused */
};

/* A key by a policy of its own. */
struct pair {
    enum kind kind;
    struct stint_policy policy; /* with the largest limit that it comes to have */
    uint32_t id;
    bool charged, changes;
    uint64_t key;                   /* its number */
    uint32_t override;              /* of the key in this round; 0: it has none */
    uint64_t back;                  /* tokens given back in this round */
    struct stint_policy_stats told; /* by all verdicts on the policy */
    struct row rows[WINDOWS];       /* of a bucket: the ticks of the nows decided by */
};

static struct shared {
    uint64_t begin; /* of the round */
    uint64_t stop;
    uint64_t
        lost; /* threads that were killed in this round: each may have had tokens in its hands */
    uint64_t lost_ever; /* since the table was made */
    uint64_t decisions, violations, reopened, full, given_back, overridden, interrupted;
    uint64_t held[PLACES]; /* end of the window in ticks 38 | pair 8 | tokens 18 */
    unsigned pair_count;
    bool limits; /* requests have limits of their own, of keys that nobody adds up */
    bool mixed;  /* costs above 1, partial takes, refunds */
    bool groups; /* several policies of a key as one */
    bool steps;  /* the clock steps back a little */
    struct pair pairs[PAIRS_MOST];
} * shared;

static struct {
    uint64_t seconds, seed, kills, threads; /* threads: of this process alone; 0: in processes */
    const char *path;
} options = {.seconds = 10};

static uint64_t load(const uint64_t *word) {
    return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

static uint64_t add(uint64_t *word, uint64_t value) {
    return __atomic_add_fetch(word, value, __ATOMIC_SEQ_CST);
}

static void lower(uint64_t *least, uint64_t value) {
    uint64_t seen = load(least);
    while (value < seen && !__atomic_compare_exchange_n(least, &seen, value, false,
                                                        __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
}

__attribute__((format(printf, 2, 3))) static void violated(const struct pair *pair,
                                                           const char *format, ...) {
    char what[500] = "";
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    fprintf(stderr, "seed %" PRIu64 ": %s%s%s\n", options.seed,
            pair != NULL ? kind_names[pair->kind] : "", pair != NULL ? ": " : "", what);
    add(&shared->violations, 1);
}

/* ---- Deciding -------------------------------------------------------------------------------- */

/* A thread, and what it does in a handler. */
struct place {
    unsigned number;
    struct stint_limiter *limiter;
    struct random random, of_handler;
    uint64_t rounds; /* after which its process opens the table anew; 0: it does not */
    pthread_t thread;
};

static _Thread_local struct place *self;

static stint_key key_of(uint64_t number) {
    return number_key(self->limiter, number);
}

static bool is_refused(const struct stint_verdict *v) {
    return !v->allowed || (v->flags & STINT_SHADOWED) != 0;
}

/* Every decision on a policy comes here. */
static void tell(struct pair *pair, const struct stint_request *request,
                 const struct stint_verdict *v, bool group_refused) {
    add(&shared->decisions, 1);
    model_count(&pair->told, request, v, group_refused);
}

static uint64_t row_length(const struct stint_policy *policy) {
    return is_bucket(policy) ? TICK : longest_window(policy);
}

static struct row *row_of(struct pair *pair, uint64_t window) {
    const uint64_t index = (window - shared->begin) / row_length(&pair->policy);
    if (index < WINDOWS)
        return &pair->rows[index];
    violated(pair, "H: window %" PRIu64 " in a round of %" PRIu64, window, shared->begin);
    return &pair->rows[0];
}

/* Off the ledger first: from the refund on, others may be granted them. To a bucket they are given
 * back at an instant of their own. */
static void give_back(struct pair *pair, struct stint_verdict *verdict, uint64_t tokens) {
    const bool bucket = is_bucket(&pair->policy);
    struct row *row = bucket ? NULL : row_of(pair, verdict->window);
    if (row != NULL) {
        add(&row->held, -tokens);
        add(&row->granted, -tokens);
    }
    const uint32_t back = stint_refund(self->limiter, key_of(pair->key), verdict, (uint32_t)tokens);
    if (row != NULL) {
        add(&row->held, tokens - back);
        add(&row->granted, tokens - back);
    }
    add(&pair->back, back);
    add(&pair->told.refunded, back);
    add(&shared->given_back, back);
}

static void note(struct pair *pair, const struct stint_request *request,
                 const struct stint_verdict *v, bool group_refused) {
    tell(pair, request, v, group_refused);
    if ((v->flags & STINT_UNTRACKED) != 0)
        return;
    const bool bucket = is_bucket(&pair->policy);
    struct row *row = row_of(pair, bucket ? v->window - v->reset_after : v->window);
    const bool overridden = (v->flags & (STINT_OVERRIDDEN | STINT_BANNED)) == STINT_OVERRIDDEN;
    if (pair->policy.ban == 0 && (overridden ? v->capacity : 0) != pair->override &&
        get_stats(self->limiter).stray_tokens == 0)
        violated(pair, "override %" PRIu32 ", judged by %" PRIu32, pair->override, v->capacity);
    add(&shared->overridden, overridden);
    if (v->granted != 0) {
        lower(&row->least_left, v->reset_after);
        add(&row->held, v->granted);
        add(&row->granted, makes_charge(request) ? 0 : v->granted);
    }
    if (is_refused(v) && !(group_refused && v->allowed) && request->cost == 1 &&
        (v->flags & STINT_BANNED) == 0 && (request->flags & STINT_RESERVE) == 0) {
        lower(&row->least_held, load(&row->held));
        lower(&row->least_refused_left, v->reset_after);
        add(&row->refused, 1);
    }
    add(&row->first_refusals, (v->flags & STINT_FIRST_REFUSAL) != 0);
}

static void decide_one(struct random *random, uint64_t now) {
    const unsigned number = (unsigned)random_below(random, shared->pair_count);
    struct pair *pair = &shared->pairs[number];
    struct stint_request request = {.key = key_of(pair->key), .policy = pair->id, .cost = 1};
    struct stint_verdict v;
    if (pair->policy.max_reserved > 0 && random_below(random, 3) == 0)
        request.flags = STINT_RESERVE;
    if (shared->mixed && random_below(random, 4) == 0) {
        request.cost = (uint32_t)random_below(random, COST_MOST + 1);
        request.flags |= random_below(random, 2) == 0 ? STINT_PARTIAL : 0;
    }
    if (pair->charged && random_below(random, 2) == 0)
        request.flags = STINT_CHARGE;
    switch (random_below(random, 8)) {
    case 0:
        (void)stint_decide_batch(self->limiter, &request, 1, now, &v);
        break;
    case 1:
        (void)stint_decide(self->limiter, &request, now, &v);
        break;
    default:
        if (request.flags == 0)
            (void)stint_take(self->limiter, pair->id, request.key, request.cost, now, &v);
        else
            (void)stint_decide(self->limiter, &request, now, &v);
    }
    note(pair, &request, &v, false);
    const bool tracked = (v.flags & STINT_UNTRACKED) == 0, back = shared->mixed && !pair->charged;
    if (v.granted != 0 && tracked && back &&
        random_below(random, is_in_flight(&pair->policy) ? 2 : 8) == 0) {
        uint64_t held = v.window / TICK << 26 | number << 18 | v.granted;
        if (is_bucket(&pair->policy) || random_below(random, 2) == 0) {
            give_back(pair, &v, v.granted);
            return;
        }
        /* It may be left to others, or to nobody. */
        held = __atomic_exchange_n(&shared->held[random_below(random, PLACES)], held,
                                   __ATOMIC_SEQ_CST);
        if (held == 0)
            return;
        struct pair *of = &shared->pairs[held >> 18 & 255];
        struct stint_verdict verdict = {.policy = of->id,
                                        .granted = (uint32_t)held & ((1 << 18) - 1),
                                        .window = (held >> 26) * TICK};
        give_back(of, &verdict, verdict.granted);
    }
}

/* Several policies of a key as one, in any order. */
static void decide_several(struct random *random, uint64_t now) {
    struct stint_request requests[PAIRS_OF_KEY];
    struct stint_verdict v[PAIRS_OF_KEY];
    const unsigned first =
        PAIRS_OF_KEY * (unsigned)random_below(random, shared->pair_count / PAIRS_OF_KEY);
    const size_t n = 2 + random_below(random, PAIRS_OF_KEY - 1), turned = random_below(random, 4);
    const size_t sizes[] = {0, n, 0}; /* empty groups are allowed */
    bool all;
    for (size_t i = 0; i < n; i++) {
        const struct pair *pair = &shared->pairs[first + (i + turned) % PAIRS_OF_KEY];
        requests[i] = (struct stint_request){.key = key_of(pair->key),
                                             .policy = pair->id,
                                             .cost = 1 + (uint32_t)random_below(random, 3)};
    }
    if (random_below(random, 2) == 0)
        all = stint_decide_all(self->limiter, requests, n, now, v);
    else
        all = stint_decide_groups(self->limiter, requests, n, sizes, 3, now, v) == 3;
    for (size_t i = 0; i < n; i++) {
        struct pair *pair = &shared->pairs[first + (i + turned) % PAIRS_OF_KEY];
        if ((v[i].flags & STINT_SHADOWED) == 0 && v[i].granted != (all ? requests[i].cost : 0))
            violated(pair, "%" PRIu32 " granted in a group that was %s", v[i].granted,
                     all ? "granted" : "refused");
        note(pair, &requests[i], &v[i], !all);
    }
}

static void decide_noise(struct random *random) {
    struct pair *pair = &shared->pairs[random_below(random, shared->pair_count)];
    const stint_key key = key_of(UINT64_MAX - random_below(random, NOISE));
    const uint64_t now = load(&test_time), later = now + SECOND / 2;
    struct stint_request request = {
        .key = key,
        .policy = pair->id,
        .cost = (uint32_t)random_below(random, 10),
        .limit = shared->limits ? (uint32_t)random_below(random, 1000) : 0,
        .flags = STINT_PEEK * (uint32_t)random_below(random, 16) & ~unfit_flags(&pair->policy),
    };
    struct stint_verdict v;
    switch (random_below(random, 16)) {
    case 0:
        stint_reset(self->limiter, pair->id, key);
        break;
    case 1:
        add(&pair->told.refunded, refund_by(self->limiter, pair->id, key, 5, later));
        break;
    case 2:
        if ((pair->policy.flags & STINT_OVERRIDES) != 0)
            (void)!stint_override(self->limiter, pair->id, key, 8, later);
        break;
    case 3:
        if ((pair->policy.flags & STINT_OVERRIDES) != 0)
            (void)!stint_override_clear(self->limiter, pair->id, key);
        break;
    case 4: /* by a clock that was read long ago */
        (void)stint_decide(self->limiter, &request, now - random_below(random, 50 * SECOND), &v);
        tell(pair, &request, &v, false);
        break;
    default:
        (void)stint_decide(self->limiter, &request, STINT_NOW, &v);
        tell(pair, &request, &v, false);
    }
}

/* ---- Threads --------------------------------------------------------------------------------- */

static void turn(struct random *random, uint64_t most) {
    if (load(&test_time) < shared->begin + ROUND)
        __atomic_fetch_add(&test_time, random_below(random, most), __ATOMIC_SEQ_CST);
}

static void decide(struct random *random) {
    /* Some decide at a time that they read a while ago. */
    const uint64_t now = load(&test_time);
    if (random_below(random, 64) == 0)
        turn(random, TICK / 4);
    if (random_below(random, 16) == 0)
        sched_yield();
    if (random_below(random, 4) == 0)
        decide_noise(random);
    else if (shared->groups && random_below(random, 4) == 0)
        decide_several(random, random_below(random, 4) == 0 ? now : STINT_NOW);
    else
        decide_one(random, random_below(random, 4) == 0 ? now : STINT_NOW);
}

static void handle(int signal) {
    static _Thread_local bool within;
    (void)signal;
    if (self == NULL || within)
        return;
    within = true;
    decide(&self->of_handler);
    within = false;
    add(&shared->interrupted, 1);
}

/* Before an atomic operation a thread may lose its core, or be interrupted. */
static void lose_core(const void *word) {
    static _Thread_local struct random random;
    (void)word;
    if (self == NULL)
        return;
    if (random.state == 0)
        random.state = (uintptr_t)&random;
    const uint64_t drawn = random_below(&random, 12800);
    if (drawn == 0)
        (void)nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    else if (drawn < 32)
        sched_yield();
    else if (drawn < 64)
        handle(0);
}

static void *work(void *argument) {
    self = argument;
    for (uint64_t i = 0; load(&shared->stop) == 0 && (i < self->rounds || self->rounds == 0); i++)
        decide(&self->random);
    self = NULL;
    return NULL;
}

static struct stint_options about_table;
static void *table_memory;

static struct stint_limiter *open_table(void) {
    struct stint_limiter *limiter = NULL;
    const size_t size = stint_memory_size(&about_table);
    const int error = options.path != NULL
                          ? stint_open(&about_table, &limiter)
                          : stint_open_in(&about_table, table_memory, size, &limiter);
    if (error != 0) {
        violated(NULL, "the table cannot be opened: %s (%s)", stint_strerror(error),
                 stint_reason());
        exit(1);
    }
    return limiter;
}

static struct place places[THREADS_MOST];

static void start_threads(unsigned first, unsigned count, struct stint_limiter *limiter) {
    for (unsigned i = first; i < first + count; i++) {
        places[i].limiter = limiter;
        if (pthread_create(&places[i].thread, NULL, work, &places[i]) != 0)
            abort();
    }
}

static void join_threads(unsigned first, unsigned count) {
    for (unsigned i = first; i < first + count; i++)
        pthread_join(places[i].thread, NULL);
}

enum { OF_PROCESS = THREADS_MOST / PROCESSES };

static pid_t processes[PROCESSES];

static void start_process(unsigned number, uint64_t seed) {
    fflush(NULL);
    processes[number] = fork();
    if (processes[number] < 0)
        abort();
    if (processes[number] > 0)
        return;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)!nice(10); /* who turns the clock comes first */
    for (unsigned i = 0; i < OF_PROCESS; i++)
        places[number * OF_PROCESS + i] =
            (struct place){.random = {seed + i}, .of_handler = {~seed + i}, .rounds = 20000};
    while (load(&shared->stop) == 0) {
        struct stint_limiter *limiter = open_table();
        start_threads(number * OF_PROCESS, OF_PROCESS, limiter);
        join_threads(number * OF_PROCESS, OF_PROCESS);
        stint_close(limiter);
        add(&shared->reopened, 1);
    }
    _exit(0);
}

/* ---- A round --------------------------------------------------------------------------------- */

static struct stint_limiter *table;
static struct random random_of_main;
static uint64_t kills, stops, changes, rounds, next_key;

static uint64_t draw(uint64_t below) {
    return random_below(&random_of_main, below);
}

static double wall(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void make_table(void) {
    static const uint32_t limits[] = {1, 2, 7, 60, 300, 1000};
    /* Many of all kinds; or a few of one, in turn, which are hot, or have a slot too few. */
    const bool few = draw(4) != 0, crowded = few && draw(2) == 0;
    static unsigned of_few;
    of_few += few;
    about_table = fixture_options(crowded ? 2 : 2000, STINT_FULL_REFUSE);
    about_table.max_policies = 2 * PAIRS_MOST;
    about_table.secret = NULL; /* keys meet in other lines in each table */
    about_table.path = options.path;
    if (options.path == NULL)
        table_memory = shared_memory(stint_memory_size(&about_table));
    table = open_table();
    shared->lost_ever = 0;
    shared->limits = draw(2) == 0;
    shared->pair_count = few ? PAIRS_FEW : PAIRS_MOST;
    for (unsigned i = 0; i < shared->pair_count; i++) {
        struct pair *pair = &shared->pairs[i];
        memset(pair, 0, sizeof *pair);
        pair->kind = (enum kind)(few ? of_few % KINDS : i % KINDS);
        struct stint_policy base =
            make_policy("", limits[draw(6)], TICK * (1 + draw(draw(4) == 0 ? 100 : 7)), 0, 0);
        snprintf(base.name, sizeof base.name, "%u", i);
        pair->policy = kind_drawn(pair->kind, &base, random_drawn, &random_of_main);
        if (pair->kind == PLAIN && draw(2) == 0)
            pair->policy.flags |= STINT_OVERRIDES;
        pair->id = add_made(table, &pair->policy);
        pair->charged = draw(4) == 0 && pair->kind != HELD;
        pair->changes = pair->kind == PLAIN && !pair->charged && draw(4) == 0;
        if (pair->changes)
            pair->policy.limit *= 2;
    }
}

static void begin_round(void) {
    shared->begin = test_time;
    shared->lost = shared->stop = 0;
    shared->mixed = draw(2) == 0;
    shared->groups = draw(4) == 0;
    shared->steps = draw(2) == 0;
    memset(shared->held, 0, sizeof shared->held);
    for (unsigned i = 0; i < shared->pair_count; i++) {
        struct pair *pair = &shared->pairs[i];
        pair->key = next_key + i / PAIRS_OF_KEY;
        pair->override = 0;
        pair->back = 0;
        for (unsigned w = 0; w < WINDOWS; w++)
            pair->rows[w] = (struct row){.least_left = longest_window(&pair->policy),
                                         .least_refused_left = longest_window(&pair->policy),
                                         .least_held = UINT64_MAX};
        const uint32_t limit = 1 + (uint32_t)draw(2 * (uint64_t)pair->policy.limit);
        if (pair->kind == PLAIN && (pair->policy.flags & STINT_OVERRIDES) != 0 && draw(2) == 0 &&
            stint_override(table, pair->id, number_key(table, pair->key), limit, test_time + DAY) ==
                0)
            pair->override = limit;
    }
    next_key += PAIRS_MOST;
}

static void kill_one(void) {
    const unsigned number = (unsigned)draw(PROCESSES);
    (void)kill(processes[number], SIGKILL);
    (void)waitpid(processes[number], NULL, 0);
    add(&shared->lost, 2 * OF_PROCESS); /* with their handlers */
    add(&shared->lost_ever, 2 * OF_PROCESS);
    kills++;
    start_process(number, random_next(&random_of_main));
}

/* One is stopped wherever it is, and the others go on. */
static void stop_one(void) {
    const pid_t process = processes[draw(PROCESSES)];
    (void)kill(process, SIGSTOP);
    for (unsigned i = 0; i < 20; i++) {
        turn(&random_of_main, 50 * MS);
        usleep((useconds_t)draw(2000));
    }
    (void)kill(process, SIGCONT);
    stops++;
}

static void change_one(void) {
    struct pair *pair = &shared->pairs[draw(shared->pair_count)];
    struct stint_policy policy = pair->policy;
    if (!pair->changes)
        return;
    policy.limit -= (uint32_t)draw(policy.limit / 2 + 1);
    change_made(table, pair->id, &policy);
    changes++;
}

/* Returns the latest time before the last step back. */
static uint64_t turn_and_meddle(double end, double kill_each) {
    double next_kill = wall() + kill_each;
    uint64_t latest = load(&test_time);
    while (wall() < end && load(&test_time) < shared->begin + ROUND && shared->violations == 0) {
        uint64_t now = load(&test_time);
        latest = now > latest ? now : latest;
        turn(&random_of_main, 50 * MS);
        if (shared->steps &&
            draw(100) == 0) { /* what NTP may do: never more than the allowance behind */
            now -= draw(20 * SECOND);
            now = now + 50 * SECOND < latest ? latest - 50 * SECOND : now;
            now = __atomic_exchange_n(&test_time, now > shared->begin ? now : shared->begin,
                                      __ATOMIC_SEQ_CST);
            latest = now > latest ? now : latest; /* others turn it, too */
        }
        if (draw(20) == 0)
            change_one();
        if (kill_each > 0 && wall() >= next_kill) {
            kill_one();
            next_kill += kill_each;
        }
        if (options.threads == 0 && draw(500) == 0)
            stop_one();
        usleep((useconds_t)draw(2000));
    }
    return latest;
}

static void stop_all(void) {
    const struct sigaction get_on = {.sa_handler = SIG_DFL};
    __atomic_store_n(&shared->stop, 1, __ATOMIC_SEQ_CST);
    (void)sigaction(SIGALRM, &get_on, NULL);
    alarm(STUCK); /* E */
    if (options.threads != 0)
        join_threads(0, (unsigned)options.threads);
    for (unsigned i = 0; options.threads == 0 && i < PROCESSES; i++) {
        int status = 0;
        if (waitpid(processes[i], &status, 0) != processes[i] || status != 0)
            violated(NULL, "a process ended with status %#x", (unsigned)status);
    }
    alarm(0);
}

/* ---- The ledger ------------------------------------------------------------------------------ */

/* What may have been counted or given back without the ledger. */
static uint64_t slack(void) {
    return shared->lost * COST_MOST + get_stats(table).stray_tokens;
}

/* A, B and C in a window, which `count` is the end of. */
static void check_window(const struct pair *pair, const struct row *row, struct model_key count) {
    const struct stint_policy *policy = &pair->policy;
    const uint64_t capacity = pair->override != 0 ? pair->override : capacity_of(policy);
    const uint64_t room = capacity + policy->max_reserved;
    const bool by_one = !shared->mixed && !shared->groups && !pair->changes;
    uint64_t most = pair->charged ? row->granted : count.used;
    if (by_one && !pair->charged && shared->lost == 0 && row->granted > 0)
        most = model_sum(policy, &count, count.window - row->least_left);
    if (most > room)
        violated(pair, "A: %" PRIu64 " granted, %" PRIu32 " before: %" PRIu64 " of %" PRIu64,
                 row->granted, count.previous, most, room);
    const bool told = row->first_refusals > 0 || row->refused == 0 || policy->max_reserved != 0;
    if (row->first_refusals > 1 || (!told && shared->lost == 0))
        violated(pair, "C: %" PRIu64 " first refusals of %" PRIu64, row->first_refusals,
                 row->refused);
    shared->full += row->refused > 0;
    if (row->refused == 0 || !by_one || pair->kind == COUNTING || pair->kind == BANNING)
        return;
    const uint64_t least = model_sum(policy, &count, count.window - row->least_refused_left);
    const uint64_t under_way = 2 * THREADS_MOST; /* with handlers */
    /* The stripes of a key are read one after the other. */
    if (least + slack() + (pair->kind == STRIPED ? under_way : 0) < capacity)
        violated(pair,
                 "B: refused, %" PRIu64 " granted, %" PRIu32 " before: %" PRIu64 " of %" PRIu64,
                 row->granted, count.previous, least, capacity);
    if (!carries(policy) && !looks_back(policy) &&
        row->least_held + slack() + under_way * COST_MOST < capacity)
        violated(pair, "B: refused beside %" PRIu64 " of %" PRIu64, row->least_held, capacity);
}

/* What a key has used is what the ledger says. */
static void check_used(const struct pair *pair, const struct stint_verdict *look,
                       struct model_key count) {
    const uint64_t used = model_sum(&pair->policy, &count, count.window - look->reset_after);
    /* B1: of a striped key a refund may take a token that is on its way back. */
    const uint64_t left = pair->kind == STRIPED ? 2 * THREADS_MOST : 0;
    const uint64_t most = used + slack() + left;
    /* What is left of a refused group may be carried (stint_decide_all). */
    const bool counts_more =
        pair->kind == COUNTING || pair->changes || (shared->groups && carries(&pair->policy));
    if (look->used < used || (look->used > most && !counts_more))
        violated(pair, "%" PRIu32 " used, and %" PRIu64 " in the ledger (+%" PRIu64 ")", look->used,
                 used, most - used);
}

/* A of a bucket: "in every span of length d at most burst + d * limit / window", of whole ticks;
 * and what was granted since any of them is not lost. */
static void check_bucket(const struct pair *pair, const struct stint_verdict *look) {
    const struct stint_policy *policy = &pair->policy;
    const uint64_t token = token_time(policy), more = (pair->back + slack()) * token;
    const uint64_t room = count_most(policy) * token;
    const uint64_t full = look->window != 0 ? look->window : test_time; /* without a slot */
    int64_t most = 0, span = 0, held = 0;
    for (unsigned w = 0; w < WINDOWS; w++) { /* the span with the most that ends here */
        span = (span > 0 ? span : 0) + (int64_t)(pair->rows[w].granted * token - TICK);
        most = span > most ? span : most;
        shared->full += pair->rows[w].refused > 0;
    }
    if ((uint64_t)most > room + more)
        violated(pair, "A: %" PRId64 " ns granted beyond a span, of %" PRIu64 "+%" PRIu64, most,
                 room, more);
    for (unsigned w = WINDOWS; w-- > 0;) {
        held += (int64_t)(pair->rows[w].held * token);
        const uint64_t least = shared->begin + w * TICK + (uint64_t)held;
        if (held > 0 && least > full + more)
            violated(pair, "A: full at %" PRIu64 ", not %" PRIu64, full, least);
    }
}

static void check_pair(const struct pair *pair) {
    const uint64_t length = longest_window(&pair->policy);
    const struct stint_verdict look =
        ask(table, pair->id, number_key(table, pair->key), 0, STINT_PEEK);
    struct model_key count = {.window = shared->begin, .known = true};
    if (is_bucket(&pair->policy)) {
        check_bucket(pair, &look);
        return;
    }
    for (unsigned w = 0; w < WINDOWS; w++) {
        count = model_passed_to(&pair->policy, count, shared->begin + (w + 1) * length);
        count.used += (uint32_t)pair->rows[w].held;
        check_window(pair, &pair->rows[w], count);
        if ((look.window - shared->begin) / length == w)
            check_used(pair, &look, count);
    }
}

static void check_counts(const struct pair *pair) {
    const struct stint_policy_stats stats = get_policy_stats(table, pair->id);
    const char *unlike = model_unlike(&stats, &pair->told);
    if (unlike != NULL)
        violated(pair, "counted: %s", unlike);
}

static void play_round(void) {
    const struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    const struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    const double kill_each = options.kills != 0 && rounds % 2 == 0
                                 ? (double)options.seconds / (double)options.kills / 2
                                 : 0;
    begin_round();
    stint_test_step = draw(2) == 0 ? lose_core : NULL;
    for (unsigned i = 0; i < options.threads; i++)
        places[i] = (struct place){.random = {random_next(&random_of_main)},
                                   .of_handler = {random_next(&random_of_main)}};
    if (options.threads != 0)
        start_threads(0, (unsigned)options.threads, table);
    for (unsigned i = 0; options.threads == 0 && i < PROCESSES; i++)
        start_process(i, random_next(&random_of_main));
#ifndef STINT_THREAD_SANITIZER /* it holds signals back until the thread calls the C library */
    (void)sigaction(SIGALRM, &action, NULL);
    (void)setitimer(ITIMER_REAL, options.threads != 0 && draw(2) == 0 ? &often : &never, NULL);
#else
    (void)action, (void)often;
#endif
    const uint64_t latest = turn_and_meddle(wall() + ROUND_SECONDS, kill_each);
    (void)setitimer(ITIMER_REAL, &never, NULL);
    stop_all();
    stint_test_step = NULL;
    test_time = latest > test_time ? latest : test_time;
    for (unsigned i = 0; i < shared->pair_count; i++)
        check_pair(&shared->pairs[i]);
    rounds++;
}

/* ---- Tables ---------------------------------------------------------------------------------- */

static void play_table(void) {
    uint64_t first = test_time, last = test_time;
    make_table();
    for (unsigned i = 0; i < ROUNDS && shared->violations == 0; i++) {
        play_round();
        last = test_time > last ? test_time : last;
        /* A machine that slept; or a step back that no allowance covers. */
        if (draw(2) == 0)
            test_time = last + draw(3 * HOUR);
        else
            test_time = first -= 2 * HOUR + draw(HOUR);
    }
    for (unsigned i = 0; i < shared->pair_count && shared->lost_ever == 0; i++)
        check_counts(&shared->pairs[i]);
    stint_close(table);
    if (options.path != NULL)
        (void)unlink(options.path);
    else
        (void)munmap(table_memory, stint_memory_size(&about_table));
}

static int report(void) {
    printf("seed %" PRIu64 ": %" PRIu64 " rounds, %" PRIu64 " decisions, %" PRIu64
           " full windows, %" PRIu64 " tokens given back, %" PRIu64 " judged by overrides, %" PRIu64
           " policy changes, %" PRIu64 " interrupted, %" PRIu64 " kills, %" PRIu64
           " stops, %" PRIu64 " tables opened anew, %" PRIu64 " violations\n",
           options.seed, rounds, shared->decisions, shared->full, shared->given_back,
           shared->overridden, changes, shared->interrupted, kills, stops, shared->reopened,
           shared->violations);
    /* A run that saw none of it has shown nothing. */
    const bool seen = rounds >= ROUNDS && shared->full > 100 && kills >= options.kills;
    if (!seen)
        fprintf(stderr, "too little has happened\n");
    return shared->violations == 0 && seen ? 0 : 1;
}

static const char usage[] =
    "Usage: test-soak [--seconds N] [--threads N | --kills N] [--file PATH] [--seed N]\n"
    "\n"
    "  --seconds N   how long (10)\n"
    "  --threads N   by so many threads of this process, at most 8 (by processes)\n"
    "  --kills N     processes killed over all, each at any instant (0)\n"
    "  --file PATH   the tables are this file, which must not exist (shared memory)\n"
    "  --seed N      of the random numbers (STINT_TEST_SEED, or another one in every run)\n";

static bool parse(int argc, char **argv) {
    static const struct option known[] = {
        {"seconds", required_argument, NULL, 's'}, {"kills", required_argument, NULL, 'k'},
        {"threads", required_argument, NULL, 't'}, {"file", required_argument, NULL, 'f'},
        {"seed", required_argument, NULL, 'r'},    {NULL, 0, NULL, 0}};
    uint64_t *const numbers[] = {['s'] = &options.seconds,
                                 ['k'] = &options.kills,
                                 ['t'] = &options.threads,
                                 ['r'] = &options.seed};
    bool seeded = false;
    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        char *end = "";
        if (option == '?')
            return false;
        if (option == 'f')
            options.path = optarg;
        else
            *numbers[option] = strtoull(optarg, &end, 10);
        if (*end != '\0')
            return false;
        seeded |= option == 'r';
    }
    if (!seeded)
        options.seed = test_seed();
    return optind == argc && options.threads <= THREADS_MOST &&
           (options.threads == 0 || options.kills == 0);
}

int main(int argc, char **argv) {
    if (!parse(argc, argv)) {
        fputs(usage, stderr);
        return 2;
    }
    if (options.threads == 0 && emulated("robust mutexes"))
        return 77;
    shared = shared_memory(sizeof *shared);
    test_time_share();
    random_of_main.state = options.seed;
    const double begin = wall(), end = begin + (double)options.seconds;
    /* A machine with other work to do may need longer for all the kills. */
    while (shared->violations == 0 && (wall() < end || rounds < ROUNDS ||
                                       (kills < options.kills && wall() < end + 5 * (end - begin))))
        play_table();
    return report();
}
