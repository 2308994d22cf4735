/* SPDX-License-Identifier: MIT
 * The world: one random test in which every public function meets every other, in tables of all
 * kinds, by policies of all kinds, while clocks step, threads and processes die, tables are full,
 * opened alone and resized.
 *
 *     world [--seconds N] [--short] [--day]
 *     world --seed N        one world, and each of its calls on the standard error
 *
 * A world is what its seed makes of it, and the same each time: its threads run one at a time
 * (schedule.h), each with a handle of its own, as threads of processes have; and a process that is
 * forked runs while they stand still. A thread that dies is never heard of again, and leaves what a
 * process leaves that is killed. Each world draws what happens in it, so that many are quiet enough
 * to be judged closely (swarm testing: Groce et al., 2012). FoundationDB and TigerBeetle simulate
 * their clusters like this.
 *
 * A world has rounds. In a round all threads call. Between two rounds nobody does: what was counted
 * is compared with the ledger (ledger.c), and perhaps somebody opens the table alone. */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/times.h>

#include "limiter/counters.h" /* files, and numbers of threads, are not those of the system here */
#include "sys/testing.h"

#include "world.h"
#include "wrapped.h"

enum {
    ROUNDS_MAX = 6,
    STEPS_MOST = 600000,
    WAIT_STEPS = 20,
    WORLDS_SHORT = 1500,
    SECONDS_HUNG = 60
};

struct world *world;

const char *const function_names[] = {
#define FUNCTION(name, text, call) text,
    FUNCTIONS(FUNCTION)
#undef FUNCTION
};

static struct actor *self; /* who goes on now; NULL: nobody of a world */
static bool running;       /* threads of a round */
static bool is_child;
static uint64_t dies_in; /* steps, of a process that was forked; 0: it does not */

void wrong(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "world --seed %" PRIu64 ", %s of thread %u: ", world->seed,
            self != NULL && self->calling ? function_names[self->function] : "between the calls",
            self != NULL ? self->number : 99);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    _exit(1);
}

void trace(const struct actor *actor, const char *format, ...) {
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    for (const char *at = line; *at != '\0'; at++)
        world->hash = (world->hash ^ (unsigned char)*at) * UINT64_C(0x100000001b3);
    if (world->verbose)
        fprintf(stderr, "%u: %s\n", actor->number, line);
}

/* ---- Steps ----------------------------------------------------------------------------------- */

static void step(const void *word) {
    (void)word;
    if (self == NULL || !self->calling)
        return;
    self->steps++;
    if (is_child && dies_in != 0 && --dies_in == 0)
        (void)raise(SIGKILL);
    if (running)
        schedule_step();
}

void call_begin(struct actor *actor, enum function function, const struct asked *asked,
                unsigned count) {
    actor->function = function;
    actor->steps = actor->readings = actor->switches = 0;
    actor->at = STINT_NOW;
    actor->mistaken = false;
    actor->clock_least = actor->clock_most = world->time + (uint64_t)actor->skew;
    actor->began = ++world->stamp;
    actor->asked_count = count;
    for (unsigned i = 0; i < count; i++)
        actor->asked[i] = asked[i];
    actor->calling = true;
    trace(actor, "%s", function_names[function]);
    step(NULL); /* so that those meet, too, that take none */
}

void call_end(struct actor *actor) {
    actor->calling = false;
    world->stamp++;
    ledger_call_ends(actor);
}

static void later(uint64_t *latest, uint64_t time) {
    *latest = time > *latest ? time : *latest;
}

static uint64_t then; /* what all clocks say; 0: the world's time */

/* Each reading moves it. */
static uint64_t world_clock(void) {
    if (then != 0)
        return then;
    if (running && self->calling)
        schedule_step();
    world->time += 3;
    const uint64_t time = world->time + (self != NULL ? (uint64_t)self->skew : 0);
    later(&world->latest, time);
    later(&world->latest_clock, time);
    if (self == NULL)
        return time;
    self->readings++;
    later(&self->clock_most, time);
    if (time < self->clock_least)
        self->clock_least = time;
    return time;
}

struct stint_verdict look_aside(struct actor *actor, const struct stint_request *request,
                                uint64_t now) {
    const struct actor was = *actor;
    const bool ran = running;
    struct stint_verdict verdict;
    running = false;
    (void)stint_decide(actor->limiter, request, now, &verdict);
    running = ran;
    *actor = was;
    return verdict;
}

struct stint_verdict look_then(struct actor *actor, const struct stint_request *request,
                               uint64_t time) {
    then = time;
    const struct stint_verdict verdict = look_aside(actor, request, time);
    then = 0;
    return verdict;
}

/* ---- Locks: those of the system belong to threads of the system, of which there is one ------- */

enum { NOBODY, SOMEBODY, OF_DEAD = 98, BROKEN = 99 };
static struct lock {
    unsigned owner;
    bool inconsistent;
} * set_up;
static unsigned of_process[ACTORS_MAX + 2]; /* the library's lock in each process */
static pthread_mutex_t *process_mutex;

static unsigned who(void) {
    return self == NULL ? SOMEBODY : SOMEBODY + 1 + self->number;
}

static unsigned *process_owner(void) {
    return &of_process[world->place == IN_PRIVATE || self == NULL ? ACTORS_MAX + 1 : self->number];
}

WRAPPED(int, pthread_mutex_lock, pthread_mutex_t *mutex) {
    process_mutex = mutex;
    for (; *process_owner() != NOBODY; schedule_wait())
        must(running, "a process's lock was not given back");
    *process_owner() = who();
    return 0;
}

WRAPPED(int, pthread_mutex_trylock, pthread_mutex_t *mutex) {
    (void)mutex;
    if (set_up->owner != NOBODY && set_up->owner != OF_DEAD)
        return set_up->owner == BROKEN ? ENOTRECOVERABLE : EBUSY;
    set_up->inconsistent = set_up->owner == OF_DEAD;
    set_up->owner = who();
    return set_up->inconsistent ? EOWNERDEAD : 0;
}

WRAPPED(int, pthread_mutex_consistent, pthread_mutex_t *mutex) {
    (void)mutex;
    set_up->inconsistent = false;
    return 0;
}

WRAPPED(int, pthread_mutex_unlock, pthread_mutex_t *mutex) {
    if (mutex == process_mutex) {
        must(*process_owner() == who(), "a process's lock is given back by another");
        *process_owner() = NOBODY;
        return 0;
    }
    must(set_up->owner == who(), "the lock for set-up is given back by another");
    set_up->owner = set_up->inconsistent ? BROKEN : NOBODY;
    return 0;
}

WRAPPED(int, clock_nanosleep, clockid_t clock, int flags, const struct timespec *until,
        struct timespec *rest) {
    (void)clock, (void)flags, (void)until, (void)rest;
    const unsigned owner = set_up->owner;
    /* A millisecond, in which a sweep of the table takes more than a step. */
    for (unsigned i = 0; running && (i == 0 || (i < WAIT_STEPS && set_up->owner == owner)); i++)
        schedule_wait();
    return 0;
}

/* ---- Deaths ---------------------------------------------------------------------------------- */

/* Somebody died in the middle of a call: what the system does, and what may have been done. */
static void bury(struct actor *actor) {
    actor->dead = true;
    world->died++;
    trace(actor, "dies in %s after %" PRIu64 " steps", function_names[actor->function],
          actor->steps);
    ledger_dead(actor);
    of_process[actor->number] = NOBODY; /* in which nobody else is */
    if (set_up->owner == SOMEBODY + 1 + actor->number)
        set_up->owner = OF_DEAD;
    if (!is_child && actor->limiter != NULL && actor->limiter->memory.file >= 0) {
        close(actor->limiter->memory.file);
        actor->limiter->memory.file = -1;
    }
}

static struct schedule schedule;

/* In openings files have no owner yet: there, processes die that are forked. And where threads
 * share a handle, none dies but in a decision: the others would wait for its locks. */
static bool may_stop(unsigned thread) {
    const struct actor *actor = &world->actors[thread];
    if (!actor->calling || actor->dead)
        return false;
    return world->place == IN_PRIVATE ? actor->function <= F_RESET : actor->function < F_OPEN;
}

static void switched(unsigned thread) {
    if (schedule.stopped < ACTORS_MAX && !world->actors[schedule.stopped].dead)
        bury(&world->actors[schedule.stopped]);
    self = &world->actors[thread];
    self->switches++;
    stint_thread_number = thread + 1; /* of its stripes, and its counters */
}

/* ---- What happens beside calls --------------------------------------------------------------- */

static void set_time(struct actor *actor, uint64_t time) {
    if (time > world->clear)
        return;
    trace(actor, "the clock goes from %" PRIu64 " to %" PRIu64, world->time, time);
    world->time = time;
    later(&world->latest, time);
    later(&world->latest_clock, time);
}

/* To a window's end, or the ns before. */
static void turn_window(struct actor *actor) {
    const unsigned name = (unsigned)random_below(&actor->random, world->name_count);
    if (actor->limiter == NULL || actor->ids[name] == UINT32_MAX)
        return;
    struct stint_request look = STINT_REQUEST(actor->ids[name], world->keys[0], 0);
    look.flags = STINT_PEEK;
    const struct stint_verdict verdict = look_aside(actor, &look, STINT_NOW);
    const uint64_t end = verdict.window - (uint64_t)actor->skew;
    if (verdict.window == 0 || end < world->time)
        return;
    set_time(actor, end - (chance(actor, 4) ? 1 : 0));
}

static void step_back(struct actor *actor) {
    const uint64_t little = random_below(&actor->random, 20 * SECOND);
    if (world->steps_far && chance(actor, 4)) {
        world->far = true;
        set_time(actor, world->time - 61 * SECOND - random_below(&actor->random, 2 * DAY));
    } else if (world->steps_little && world->time - little + MINUTE > world->latest) {
        set_time(actor, world->time - little);
    }
}

static void turn_clock(struct actor *actor) {
    if (world->still)
        return;
    const uint64_t drawn = random_below(&actor->random, 8);
    if (drawn < 3)
        turn_window(actor);
    else if (drawn == 3)
        step_back(actor);
    else
        set_time(actor, world->time + random_below(&actor->random,
                                                   drawn == 4 ? 3 * HOUR : 3 * STINT_TICK_NS));
}

/* A process begins, makes a few calls, and ends or is killed. All others stand still meanwhile. */
static void process(struct actor *from) {
    struct actor *actor = &world->actors[ACTORS_MAX];
    int status;
    *actor = (struct actor){.number = ACTORS_MAX, .skew = from->skew};
    actor->random.state = random_next(&from->random);
    const uint64_t dies = chance(from, 2) ? 1 + random_below(&from->random, 3000) : 0;
    trace(from, "a process begins");
    const pid_t child = fork();
    must(child >= 0, "fork: %s", strerror(errno));
    if (child == 0) {
        is_child = true;
        running = false;
        self = actor;
        of_process[ACTORS_MAX] = NOBODY;
        stint_thread_number = 0;
        dies_in = dies;
        for (unsigned i = 0; i < 1 + dies % 6; i++)
            actor_call(actor);
        if (actor->limiter != NULL && dies % 2 == 0)
            actor_close(actor);
        _exit(0);
    }
    must(waitpid(child, &status, 0) == child, "waitpid");
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
        const bool was = actor->calling;
        is_child = true; /* its handle is not of this process */
        if (was)
            bury(actor);
        is_child = false;
    } else {
        must(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a process: status %#x",
             (unsigned)status);
    }
    actor->calling = false;
    if (set_up->owner == SOMEBODY + 1 + ACTORS_MAX)
        set_up->owner = OF_DEAD;
}

static void thread_body(unsigned thread) {
    struct actor *actor = &world->actors[thread];
    for (; actor->calls > 0; actor->calls--) {
        if (chance(actor, 4))
            turn_clock(actor);
        if (world->processes && chance(actor, 12))
            process(actor);
        actor_call(actor);
    }
}

/* ---- A world --------------------------------------------------------------------------------- */

static void functions_draw(struct random *random) {
    world->functions = 0;
    for (unsigned function = 0; function < FUNCTIONS_END; function++)
        if (random_below(random, 3) != 0)
            world->functions |= UINT64_C(1) << function;
    if (random_below(random, 2) == 0) /* nothing changes */
        world->functions &=
            ~(UINT64_C(1) << F_CHANGE | UINT64_C(1) << F_REMOVE | UINT64_C(1) << F_APPLY);
    world->functions |= 1 << F_TAKE | 1 << F_DECIDE;
}

static void options_draw(struct random *random) {
    static const uint64_t tight[] = {2, 4, 4, 6, 12};
    struct stint_options *options = &world->options;
    static const unsigned char secret[STINT_SECRET_SIZE] = {1, 2, 3};
    *options = (struct stint_options)STINT_OPTIONS_INIT;
    world->roomy = random_below(random, 3) != 0;
    options->max_entries = world->roomy ? 1000 : tight[random_below(random, 5)];
    options->max_policies = random_below(random, 4) == 0 ? 31 : 15;
    options->on_full = (uint32_t)random_below(random, 3);
    options->labels = random_below(random, 2) == 0 ? 8 : 0;
    options->clock = world_clock;
    options->secret = secret;
    options->flags = STINT_SMALL_PAGES;
    options->path = world->place == IN_FILE ? world->path : NULL;
    if (world->place == IN_MEMORY) {
        world->size = stint_memory_size(options);
        world->memory = shared_memory(world->size);
    }
}

/* Clocks of processes differ by nothing, by a tick of the kernel's or two, or by all they may. */
static void clocks_draw(struct random *random) {
    static const uint64_t aparts[] = {0, 24 * MS, 58 * SECOND, 59 * SECOND};
    if (!world->still && world->place != IN_PRIVATE)
        world->apart = aparts[random_below(random, 4)];
    for (unsigned i = 0; i < world->actor_count; i++)
        world->actors[i].skew =
            (int64_t)(random_below(random, 2) == 0 ? world->apart * random_below(random, 2)
                                                   : random_below(random, world->apart + 1));
}

static void world_draw(struct random *random) {
    world->place = (enum place)(random_below(random, 5) % 3);
    functions_draw(random);
    world->still = random_below(random, 4) == 0;
    world->steps_little = random_below(random, 2) == 0;
    world->steps_far = random_below(random, 5) == 0;
    world->idles = !world->still && random_below(random, 4) == 0;
    world->deaths = random_below(random, 2) == 0;
    world->processes = world->place != IN_PRIVATE && random_below(random, 3) == 0;
    world->first = T0 + random_below(random, 360) * DAY +
                   random_below(random, 1000000) * STINT_TICK_NS + 2 * MS;
    world->time = world->latest = world->latest_clock = world->first;
    world->clear = world->first + 100 * DAY;
    options_draw(random);
    world->name_count = 1 + (unsigned)random_below(random, NAMES_MAX);
    world->key_count = 1 + (unsigned)random_below(random, KEYS_MAX);
    world->actor_count = 2 + (unsigned)random_below(random, ACTORS_MAX - 1);
    for (unsigned i = 0; i < world->actor_count; i++) {
        struct actor *actor = &world->actors[i];
        actor->number = i;
        actor->random.state = random_next(random);
    }
    clocks_draw(random);
    for (unsigned name = 0; name < world->name_count; name++)
        world->names[name].policy = policy_draw(random, name);
}

/* A process is there, with the table open, or else will open it in the round. */
static void actor_begin(struct actor *actor, bool writes) {
    static const enum function by[] = {F_OPEN, F_OPEN, F_ATTACH, F_READER, F_CLOSE};
    enum function function =
        world->place == IN_FILE ? by[random_below(&actor->random, 5)] : F_OPEN_IN;
    self = actor;
    actor->dead = actor->calling = false;
    actor->taken_count = 0;
    if (world->place == IN_PRIVATE) {
        const struct actor *first = &world->actors[0];
        actor->limiter = first->limiter;
        if (first->limiter == NULL)
            must(actor_open(actor, F_OPEN) == 0, "open: %s", stint_reason());
        else
            actor_find(actor);
        return;
    }
    if (writes && function != F_OPEN_IN)
        function = F_OPEN;
    actor->limiter = NULL;
    if (function != F_CLOSE)
        must(actor_open(actor, function) == 0, "open: %s", stint_reason());
}

/* Other keys have all slots of a table in a file, which is never small. */
static void fill(struct actor *actor) {
    struct stint_policy filler = STINT_POLICY_INIT;
    uint32_t id;
    filler.limit = 100;
    filler.window = 366 * DAY;
    strcpy(filler.name, "filler");
    must(stint_policy_add(actor->limiter, &filler, &id) == 0, "filler: %s", stint_reason());
    for (uint64_t i = 0; i < 3 * actor->limiter->table.line_count * LINE_SLOTS; i++)
        (void)stint_take(actor->limiter, id, random_next(&actor->random) | 1, 1, STINT_NOW, NULL);
}

static void world_describe(void) {
    trace(&world->actors[0],
          "place %d, max_entries %" PRIu64
          ", on_full %u, still %d, far %d, deaths %d, processes %d, "
          "from %" PRIu64,
          world->place, world->options.max_entries, world->options.on_full, world->still,
          world->steps_far, world->deaths, world->processes, world->first);
    for (unsigned name = 0; name < world->name_count; name++)
        trace(&world->actors[0], "%s", policy_text(&world->names[name].policy));
    for (unsigned i = 0; i < world->actor_count; i++)
        trace(&world->actors[i], "skew %" PRId64, world->actors[i].skew);
}

static void world_begin(struct random *random) {
    struct actor *first = &world->actors[0];
    world_describe();
    for (unsigned i = 0; i < world->actor_count; i++)
        actor_begin(&world->actors[i], i == 0);
    self = first;
    for (unsigned key = 1; key < world->key_count; key++)
        world->keys[key] = stint_key_of(first->limiter, &key, sizeof key);
    for (unsigned name = 0; name < world->name_count; name++) {
        if (random_below(random, 6) == 0)
            continue;
        named_new(&world->names[name], &world->names[name].policy);
        must(stint_policy_add(first->limiter, &world->names[name].policy, NULL) == 0,
             "policy %c: %s", 'a' + name, stint_reason());
        world->names[name].since = 1;
    }
    if (!world->roomy && world->place == IN_FILE)
        fill(first);
    for (unsigned i = 0; i < world->actor_count; i++)
        if (world->actors[i].limiter != NULL)
            actor_find(&world->actors[i]);
}

static void round_run(struct random *random) {
    unsigned calls = 0;
    for (unsigned i = 0; i < world->actor_count; i++) {
        world->actors[i].calls = 2 + (unsigned)random_below(random, 9);
        calls += world->actors[i].calls;
    }
    schedule = (struct schedule){
        .threads = world->actor_count,
        .body = thread_body,
        .switched = switched,
        .seed = random_next(random),
        .most_steps = STEPS_MOST,
        .usual_steps = calls * UINT64_C(40),
        .stops = world->deaths && random_below(random, 2) == 0,
        .may_stop = may_stop,
    };
    running = true;
    schedule_run(&schedule);
    running = false;
    if (schedule.stopped < ACTORS_MAX && !world->actors[schedule.stopped].dead)
        bury(&world->actors[schedule.stopped]);
    stint_thread_number = 1;
    must(!schedule.stuck, "E: the threads do not get on");
}

/* By how much the clock is wrong while somebody opens the table alone: ahead by hours, or behind by
 * days and all windows, as before NTP has set it. Nothing that is in force is lost by that. */
static int64_t wrong_clock(struct random *random) {
    bool before_all = world->roomy;
    for (unsigned name = 0; name < world->name_count; name++)
        before_all &= world->names[name].longest <= DAY;
    if (world->far || random_below(random, 2) == 0)
        return 0;
    if (before_all && random_below(random, 2) == 0)
        return -(int64_t)((5 + random_below(random, 20)) * DAY);
    return (int64_t)(2 * MINUTE * 60 + random_below(random, 3 * DAY));
}

/* Everybody who has died is there again. `alone`: nobody had the table open in between. */
static void all_begin(struct random *random, bool alone) {
    for (unsigned i = 0; i < world->actor_count && alone; i++) {
        self = &world->actors[i];
        if (self->limiter != NULL && !self->dead)
            actor_close(self);
        self->limiter = NULL;
    }
    if (alone && world->place == IN_FILE) {
        world->reopened = true;
        set_up->owner = NOBODY; /* who opens alone makes it anew */
    }
    const int64_t wrong_by = world->reopened ? wrong_clock(random) : 0;
    for (unsigned i = 0; i < world->actor_count; i++) {
        struct actor *actor = &world->actors[i];
        const bool writes = i == 0;
        const uint64_t latest = world->latest, latest_clock = world->latest_clock;
        self = actor;
        if (writes && actor->limiter != NULL && (actor->reads || actor->stale) && !actor->dead)
            actor_close(actor);
        world->time += i == 0 ? (uint64_t)wrong_by : 0;
        if (actor->dead || actor->limiter == NULL || alone)
            actor_begin(actor, writes);
        world->time -= i == 0 ? (uint64_t)wrong_by : 0;
        world->latest = i == 0 && wrong_by != 0 ? latest : world->latest;
        world->latest_clock = i == 0 && wrong_by != 0 ? latest_clock : world->latest_clock;
    }
    self = &world->actors[0];
}

/* Nobody decides for 1 to 2,700 days. */
static void days_pass(struct random *random) {
    static const uint64_t most[] = {3, 40, 400, 2700};
    const uint64_t days = 1 + random_below(random, most[random_below(random, 4)]);
    const uint64_t until = world->time + days * DAY + random_below(random, DAY);
    struct actor *first = &world->actors[0];
    if (!ledger_clear(until))
        return;
    trace(first, "nobody decides from %" PRIu64 " to %" PRIu64, world->time, until);
    world->time = until;
    world->clear = until + 100 * DAY;
    later(&world->latest, until);
    later(&world->latest_clock, until);
    for (unsigned i = 0; i < world->actor_count; i++)
        world->actors[i].read = 0;
    quiet_check(first);
}

static void world_run(uint64_t seed) {
    struct random random = {seed * UINT64_C(0xD1342543DE82EF95)};
    world->seed = seed;
    snprintf(world->path, sizeof world->path, "/dev/shm/stint-world.%d", (int)getpid());
    (void)unlink(world->path);
    ledger_begin();
    world_draw(&random);
    stint_thread_number = 1;
    stint_test_step = step;
    world_begin(&random);
    const unsigned rounds = 1 + (unsigned)random_below(&random, ROUNDS_MAX);
    for (unsigned i = 0; i < rounds; i++) {
        round_run(&random);
        world->reopened = false;
        all_begin(&random, world->place != IN_PRIVATE && random_below(&random, 4) == 0);
        quiet_check(&world->actors[0]);
        if (world->idles && random_below(&random, 2) == 0)
            days_pass(&random);
    }
    end_check(&world->actors[0]);
    (void)unlink(world->path);
    (void)unlink(".stint-world.resize");
}

/* ---- All worlds ------------------------------------------------------------------------------ */

static struct world *worlds; /* two, to be compared */

/* Runs a world in a process of its own. Returns whether all was right. */
static bool world_fork(uint64_t seed, unsigned which) {
    int status;
    char path[64];
    world = &worlds[which];
    memset(world, 0, sizeof *world);
    memset(set_up, 0, sizeof *set_up);
    world->seed = seed;
    fflush(stdout);
    const pid_t child = fork();
    if (child < 0)
        abort();
    if (child == 0) {
        const struct itimerval hung = {.it_value.tv_sec = SECONDS_HUNG};
        setitimer(ITIMER_PROF, &hung, NULL);
        world_run(seed);
        _exit(0);
    }
    if (waitpid(child, &status, 0) != child)
        abort();
    snprintf(path, sizeof path, "/dev/shm/stint-world.%d", (int)child);
    (void)unlink(path);
    if (WIFSIGNALED(status))
        fprintf(stderr, "world --seed %" PRIu64 ": %s\n", seed,
                WTERMSIG(status) == SIGPROF ? "does not end" : strsignal(WTERMSIG(status)));
    return status == 0;
}

/* Two worlds of one seed are the same. */
static bool replayed(uint64_t seed) {
    if (!world_fork(seed, 1))
        return false;
    if (worlds[0].hash == worlds[1].hash && worlds[0].time == worlds[1].time)
        return true;
    fprintf(stderr, "world --seed %" PRIu64 " is another one each time\n", seed);
    return false;
}

static double seconds_used(void) {
    struct tms used;
    (void)times(&used);
    return (double)(used.tms_utime + used.tms_stime + used.tms_cutime + used.tms_cstime) /
           (double)sysconf(_SC_CLK_TCK);
}

static int run_all(double seconds, bool is_short, uint64_t first) {
    uint64_t seed = environment_number("STINT_TEST_SEED", first), count = 0;
    printf("STINT_TEST_SEED=%" PRIu64 "\n", seed);
    for (; seconds_used() < seconds; count++) {
        if (is_short && count == WORLDS_SHORT)
            break;
        if (!world_fork(seed + count, 0) || (count % 16 == 0 && !replayed(seed + count))) {
            printf("wrong after %" PRIu64 " worlds, %.1f s\n", count + 1, seconds_used());
            return 1;
        }
    }
    printf("%" PRIu64 " worlds from seed %" PRIu64 ", %.1f s\n", count, seed, seconds_used());
    return 0;
}

int main(int argc, char **argv) {
    double seconds = 50;
    bool is_short = false;
    uint64_t seed = 0, first = 1;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--short") == 0) {
            is_short = true;
        } else if (strcmp(argv[i], "--day") == 0) {
            first = (uint64_t)time(NULL) / 86400 * 1000000; /* no day has a million worlds */
        } else if (strcmp(argv[i], "--seconds") == 0) {
            seconds = strtod(value, NULL);
            i++;
        } else if (strcmp(argv[i], "--seed") == 0) {
            seed = strtoull(value, NULL, 0);
            i++;
        } else {
            fprintf(stderr, "usage: world [--seconds N] [--short] [--day] [--seed N]\n");
            return 2;
        }
    }
#ifdef STINT_THREAD_SANITIZER
    return 77; /* it does not know other stacks */
#endif
    set_up = shared_memory(sizeof *set_up);
    worlds = shared_memory(2 * sizeof *worlds);
    if (seed == 0)
        return run_all(seconds, is_short, first);
    world = worlds;
    world->verbose = true;
    world_run(seed);
    return 0;
}
