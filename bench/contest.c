/* SPDX-License-Identifier: MIT */
#include "contest.h"

#include <stint.h>

#include <ck_pr.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "common.h"
#include "keys.h"
#include "server.h"
#include "team.h"

enum {
    REHEARSAL_KEYS = 2000,
    REHEARSAL_KEYS_SERVER = 300, /* one request at a time is slow there */
    REHEARSAL_LIMIT = 3,
    CHUNK = 512,       /* keys in a timed stretch */
    CHUNK_SERVER = 64, /* there a stretch is long enough without */
    FILL_DEPTH = 256,  /* pipelined when a server is filled, which is not timed */
    LOG_WORDS = 8192,  /* answers kept until they are counted, outside the timed stretches */
    HALF_DAY = 43200,
};

/* More than a key is asked for while it is timed. */
#define TIMED_LIMIT STINT_LIMIT_MAX

static _Thread_local char failure[256];

bool peer_fail(const char *format, ...) {
    va_list arguments;

    server_pause_if_interrupted();
    va_start(arguments, format);
    vsnprintf(failure, sizeof(failure), format, arguments);
    va_end(arguments);
    return false;
}

const char *peer_failure(void) {
    return failure;
}

uint64_t contest_window(void) {
    uint64_t day = 2 * HALF_DAY, now = (uint64_t)time(NULL);

    for (uint64_t days = 7;; days++)
        if (now % (days * day) < days * day - HALF_DAY)
            return days * day;
}

/* ---- A field: one peer, open, and what it was asked ---- */

struct tally {
    uint64_t ops, ns, cpu_ns;
    bool failed;
    char failure[256];
};

struct field {
    struct entrant *entrant;
    const struct peer *peer;
    void *state; /* NULL: not open */
    struct peer_setup setup;
    struct sequence sequence;
    uint64_t position[TEAM_MAX];
    uint32_t *asked, *granted; /* tokens of each key */
    struct tally tally[TEAM_MAX];

    /* the stretch in hand */
    bool
        fill; /* every key once, each thread its part; else the sequence, until budget or max_ops */
    uint64_t budget_ns, max_ops; /* of each thread */

    uint64_t ops, cpu_ns; /* of all repeats */
};

static bool wrong(struct entrant *entrant, const char *what, uint64_t right, uint64_t found) {
    snprintf(entrant->wrong, sizeof(entrant->wrong), "%s: %llu would be right, it is %llu", what,
             (unsigned long long)right, (unsigned long long)found);
    return false;
}

/* Sixteen digits that look random. */
static void write_key(uint64_t index, char *text) {
    static const char digits[] = "0123456789abcdef";
    uint64_t word = mix64(index);

    for (size_t i = 0; i < PEER_KEY; i++, word >>= 4)
        text[i] = digits[word & 15];
}
_Static_assert(PEER_KEY == 16, "64 bits in hexadecimal: mix64 keeps different indices different");

static void field_prepare(struct field *field, struct entrant *entrant,
                          const struct contest *contest, uint64_t keys, uint32_t limit) {
    *field = (struct field){.entrant = entrant, .peer = entrant->peer};
    field->setup = (struct peer_setup){
        .keys = keys,
        .threads = contest->threads,
        .limit = limit,
        .window = contest->window,
        .limits = contest->limits,
    };
    for (unsigned i = 0; i < contest->limits; i++) {
        bool last = i + 1 == contest->limits;
        field->setup.each[i].limit = last || limit == STINT_LIMIT_MAX ? limit : limit + 1;
        field->setup.each[i].window = contest->window * (contest->limits - i);
    }
    field->asked = must_have(malloc(keys * sizeof(*field->asked)));
    field->granted = must_have(malloc(keys * sizeof(*field->granted)));
    /* Written and not only cleared: their pages must not be counted as the peer's. */
    memset(field->asked, 0, keys * sizeof(*field->asked));
    memset(field->granted, 0, keys * sizeof(*field->granted));
    sequence_open(&field->sequence, UNIFORM, keys, contest->threads, 0);
}

static bool field_open(struct field *field) {
    if (field->peer->open(&field->setup, &field->state))
        return true;
    field->state = NULL;
    snprintf(field->entrant->wrong, sizeof(field->entrant->wrong), "%s", peer_failure());
    return false;
}

static void field_close(struct field *field) {
    if (field->state != NULL)
        field->peer->close(field->state);
    sequence_close(&field->sequence);
    free(field->asked);
    free(field->granted);
    field->asked = field->granted = NULL;
    field->state = NULL;
}

static pid_t field_process(const struct field *field) {
    return field->peer->process != NULL ? field->peer->process(field->state) : 0;
}

static void count(struct field *field, uint64_t index, bool granted) {
    ck_pr_add_32(&field->asked[index], 1);
    if (granted)
        ck_pr_add_32(&field->granted[index], 1);
}

/* What reading the two clocks adds to the CPU time of a stretch. */
static uint64_t stretch_overhead(void) {
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < 100; i++) {
        uint64_t cpu = thread_cpu_ns();
        monotonic_ns();
        monotonic_ns();
        cpu = thread_cpu_ns() - cpu;
        least = cpu < least ? cpu : least;
    }
    return least;
}

static bool fail_tally(struct tally *tally) {
    tally->failed = true;
    snprintf(tally->failure, sizeof(tally->failure), "%s", peer_failure());
    return false;
}

static void fill_part(struct field *field, unsigned thread, struct tally *tally) {
    char keys[CHUNK * PEER_KEY];
    uint64_t answers[CHUNK / PEER_ANSWERS];
    const struct peer *peer = field->peer;
    uint64_t at = field->setup.keys * thread / field->setup.threads;
    uint64_t end = field->setup.keys * (thread + 1) / field->setup.threads;

    while (at < end) {
        size_t n = end - at < CHUNK ? end - at : CHUNK;
        for (size_t i = 0; i < n; i++)
            write_key(at + i, keys + i * PEER_KEY);
        if (!peer->decide(field->state, thread, keys, n, FILL_DEPTH, answers)) {
            fail_tally(tally);
            return;
        }
        for (size_t i = 0; i < n; i++)
            count(field, at + i, answers[i / PEER_ANSWERS] >> (i % PEER_ANSWERS) & 1);
        at += n;
    }
}

static bool ask_chunk(struct field *field, unsigned thread, size_t n, uint64_t overhead,
                      uint64_t *answers, struct tally *tally) {
    char keys[CHUNK * PEER_KEY];
    const struct peer *peer = field->peer;
    uint64_t at = field->position[thread];

    for (size_t i = 0; i < n; i++)
        write_key(sequence_index(&field->sequence, thread, at + i), keys + i * PEER_KEY);
    uint64_t cpu = thread_cpu_ns(), started = monotonic_ns();
    bool good = peer->decide(field->state, thread, keys, n, peer->depth, answers);
    uint64_t ended = monotonic_ns();
    cpu = thread_cpu_ns() - cpu;
    if (!good)
        return fail_tally(tally);
    tally->ns += ended - started;
    tally->cpu_ns += cpu > overhead ? cpu - overhead : 0;
    tally->ops += n;
    field->position[thread] += n;
    return true;
}

static void ask_sequence(struct field *field, unsigned thread, struct tally *tally) {
    uint64_t overhead = stretch_overhead();
    size_t chunk = field->peer->process != NULL ? CHUNK_SERVER : CHUNK;
    uint64_t *log = must_have(malloc(LOG_WORDS * sizeof(*log)));
    bool good = true;

    while (good && tally->ns < field->budget_ns && tally->ops < field->max_ops) {
        uint64_t first = field->position[thread];
        size_t words = 0;
        while (good && words + CHUNK / PEER_ANSWERS <= LOG_WORDS && tally->ns < field->budget_ns &&
               tally->ops < field->max_ops) {
            good = ask_chunk(field, thread, chunk, overhead, log + words, tally);
            words += good ? chunk / PEER_ANSWERS : 0;
        }
        for (size_t i = 0; i < words * PEER_ANSWERS; i++)
            count(field, sequence_index(&field->sequence, thread, first + i),
                  log[i / PEER_ANSWERS] >> (i % PEER_ANSWERS) & 1);
    }
    free(log);
}
_Static_assert(CHUNK % PEER_ANSWERS == 0 && CHUNK_SERVER % PEER_ANSWERS == 0, "words are full");

static void ask_member(struct member *member, void *context) {
    struct field *field = context;
    struct tally tally = {0};

    if (field->fill)
        fill_part(field, member->thread, &tally);
    else
        ask_sequence(field, member->thread, &tally);
    field->tally[member->thread] = tally;
}

/* Runs the stretch. What the threads did is added to `sum`. */
static bool field_ask(struct field *field, struct tally *sum) {
    team_run(field->setup.threads, ask_member, field);
    for (unsigned i = 0; i < field->setup.threads; i++) {
        const struct tally *tally = &field->tally[i];
        if (tally->failed) {
            snprintf(field->entrant->wrong, sizeof(field->entrant->wrong), "%s", tally->failure);
            return false;
        }
        sum->ops += tally->ops;
        sum->ns += tally->ns;
        sum->cpu_ns += tally->cpu_ns;
    }
    return true;
}

static bool field_fill(struct field *field) {
    struct tally sum = {0};

    field->fill = true;
    bool good = field_ask(field, &sum);
    field->fill = false;
    return good;
}

/* Every key was granted min(demand, limit), and all were asked for what was meant. */
static bool field_audit(const struct field *field, uint64_t demand) {
    uint64_t asked = 0, granted = 0, right = 0;

    for (uint64_t i = 0; i < field->setup.keys; i++) {
        uint64_t allowed = field->asked[i];
        if (!field->peer->one_count && allowed > field->setup.limit)
            allowed = field->setup.limit;
        if (field->granted[i] != allowed)
            return wrong(field->entrant, "tokens granted to one key", allowed, field->granted[i]);
        asked += field->asked[i];
        granted += field->granted[i];
        right += allowed;
    }
    if (asked != demand)
        return wrong(field->entrant, "requests, of all keys", demand, asked);
    if (granted != right)
        return wrong(field->entrant, "tokens granted, of all keys", right, granted);
    return true;
}

/* ---- Contest ---- */

static bool rehearse(struct field *field, struct entrant *entrant, const struct contest *contest) {
    uint64_t most = entrant->peer->process != NULL ? REHEARSAL_KEYS_SERVER : REHEARSAL_KEYS;
    uint64_t keys = contest->keys < most ? contest->keys : most;
    struct tally sum = {0};

    field_prepare(field, entrant, contest, keys, REHEARSAL_LIMIT);
    bool good = field_open(field);
    field->budget_ns = UINT64_MAX;
    field->max_ops = 2 * REHEARSAL_LIMIT * keys / contest->threads + 1;
    good = good && field_ask(field, &sum) && field_audit(field, sum.ops);
    field_close(field);
    return good;
}

/* Opens it and asks for every key once. Its memory is what grows meanwhile; but a server without
 * keys is no part of what its keys take. */
static bool open_full(struct field *field, struct entrant *entrant, const struct contest *contest) {
    bool is_server = entrant->peer->process != NULL;

    malloc_trim(0); /* what is free already would hide what is needed */
    field_prepare(field, entrant, contest, contest->keys, TIMED_LIMIT);
    uint64_t before = is_server ? 0 : process_memory(0);
    if (!field_open(field))
        return false;
    if (is_server)
        before = process_memory(field_process(field));
    if (entrant->peer->version != NULL)
        snprintf(entrant->version, sizeof(entrant->version), "%s",
                 entrant->peer->version(field->state));
    if (!field_fill(field))
        return false;
    uint64_t after = process_memory(field_process(field));
    if (after > before)
        entrant->bytes_per_key = (double)(after - before) / (double)contest->keys;
    return true;
}

static bool repeat(struct field *field, unsigned nth) {
    pid_t server = field_process(field);
    struct tally sum = {0};
    struct rusage before, after;

    getrusage(RUSAGE_SELF, &before);
    uint64_t server_ns = server != 0 ? process_cpu_ns(server) : 0;
    if (!field_ask(field, &sum))
        return false;
    getrusage(RUSAGE_SELF, &after);
    if (server == 0)
        field->entrant->preempted += (uint64_t)(after.ru_nivcsw - before.ru_nivcsw);
    else
        field->cpu_ns += process_cpu_ns(server) - server_ns;
    field->cpu_ns += sum.cpu_ns;
    field->ops += sum.ops;
    field->entrant->ns[nth] = (double)sum.ns / (double)sum.ops;
    return true;
}

static void conclude(struct field *field, struct entrant *entrant, const struct contest *contest) {
    uint64_t granted = 0;
    double in_order[CONTEST_REPEATS];

    memcpy(in_order, entrant->ns, sizeof(in_order));
    summarize(in_order, CONTEST_REPEATS, &entrant->ns_per_op, &entrant->ns_min, &entrant->ns_max);
    entrant->per_second = contest->threads * 1e9 / entrant->ns_per_op;
    entrant->cpu_seconds = (double)field->cpu_ns / 1e9 / (double)field->ops * 1e6;
    for (uint64_t i = 0; i < contest->keys; i++)
        granted += field->granted[i];
    entrant->granted = granted - contest->keys; /* the first of each filled */
    entrant->refused = field->ops - entrant->granted;
}

struct view {
    const struct contest *contest;
    double step, steps;
};

static void show(struct view *view, const struct entrant *entrant, const char *what) {
    char label[64];

    snprintf(label, sizeof(label), "%s: %s", entrant->peer->name, what);
    if (view->contest->progress != NULL)
        view->contest->progress(view->contest->progress_context, label, view->step / view->steps);
    view->step++;
}

void contest_run(const struct contest *contest, struct entrant *entrants, size_t n) {
    struct field *fields = must_have(calloc(n, sizeof(*fields)));
    struct view view = {contest, 0, (double)(n * (2 + CONTEST_REPEATS))};
    uint64_t window = (uint64_t)time(NULL) / contest->window;

    for (size_t i = 0; i < n; i++) {
        const struct peer *peer = entrants[i].peer;
        entrants[i] = (struct entrant){.peer = peer};
        entrants[i].absent = peer->program != NULL && !server_installed(peer->program);
        show(&view, &entrants[i], "rehearsal");
        if (!entrants[i].absent)
            entrants[i].checked = rehearse(&fields[i], &entrants[i], contest);
    }
    /* Servers first: see server_start. */
    for (int servers = 1; servers >= 0; servers--)
        for (size_t i = 0; i < n; i++)
            if (entrants[i].checked && (entrants[i].peer->process != NULL) == servers) {
                show(&view, &entrants[i], "filling");
                entrants[i].checked = open_full(&fields[i], &entrants[i], contest);
            }
    for (unsigned nth = 0; nth < CONTEST_REPEATS; nth++)
        for (size_t i = 0; i < n; i++)
            if (entrants[i].checked) {
                struct field *field = &fields[i];
                show(&view, &entrants[i], "timing");
                field->budget_ns = (uint64_t)(contest->seconds * 1e9 / CONTEST_REPEATS);
                /* No key may come to its limit, where requests become refusals. */
                double most =
                    0.9 * TIMED_LIMIT * (double)contest->keys / contest->threads / CONTEST_REPEATS;
                field->max_ops = most < 1e15 ? (uint64_t)most : (uint64_t)1e15;
                entrants[i].checked = repeat(field, nth);
            }
    for (size_t i = 0; i < n; i++) {
        if (entrants[i].checked)
            entrants[i].checked = field_audit(&fields[i], contest->keys + fields[i].ops);
        if (entrants[i].checked && (uint64_t)time(NULL) / contest->window != window)
            entrants[i].checked = wrong(&entrants[i], "the window ended; its number", window,
                                        (uint64_t)time(NULL) / contest->window);
        if (entrants[i].checked)
            conclude(&fields[i], &entrants[i], contest);
        field_close(&fields[i]);
    }
    free(fields);
}

double contest_memory(const struct contest *contest, const struct entrant *entrants, size_t n) {
    double bytes = 64 << 20;

    for (size_t i = 0; i < n; i++)
        bytes += (double)contest->keys *
                 (double)(entrants[i].peer->bytes_per_key * contest->limits + 2 * sizeof(uint32_t));
    return bytes;
}
