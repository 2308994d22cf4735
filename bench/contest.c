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

#include "jobs.h"
#include "keys.h"
#include "pages.h"
#include "peer.h"
#include "team.h"
#include "ticks.h"

enum {
    CHUNK = 512,       /* keys in a timed stretch */
    CHUNK_SERVER = 64, /* there a stretch is long enough without */
    FILL_DEPTH = 256,  /* pipelined when a server is filled, which is not timed */
    LOG_WORDS = 8192,  /* answers kept until they are counted, outside the timed stretches */
    FIELDS = 32,       /* peers that are open at once */
};

static const struct peer *const peers[] = {
    &peer_stint,     &peer_stint_verdict, &peer_stint_ahead,  &peer_stint_batch,
    &peer_stint_all, &peer_stint_takes,   &peer_stint_groups, &peer_counter,
    &peer_open_64,   &peer_mutex,         &peer_stint_bucket, &peer_open_64_bucket,
    &peer_rwlock,    &peer_redis_incr,    &peer_redis_lua,    &peer_memcached,
#ifdef STINT_BENCH_DPDK
    &peer_dpdk,
#endif
};
enum { PEERS = sizeof(peers) / sizeof(peers[0]) };

static _Thread_local char failure[256];

bool peer_fail(const char *format, ...) {
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(failure, sizeof(failure), format, arguments);
    va_end(arguments);
    return false;
}

const char *peer_failure(void) {
    return failure;
}

/* ---- A field: one peer, and what it was asked ---- */

struct tally {
    uint64_t ops, ns, cpu_ns;
    const char *failure; /* NULL: none; that of the thread, which stays */
};

struct field {
    const struct peer *peer;
    void *state; /* NULL: not open */
    struct peer_setup setup;
    unsigned depth; /* requests in flight of each thread */
    pid_t server;   /* 0: it is in this process */
    struct sequence sequence;
    uint64_t position[TEAM_MAX];
    uint32_t *asked, *granted; /* tokens of each key */
    struct tally tally[TEAM_MAX];

    /* the stretch in hand */
    bool
        fill; /* every key once, each thread its part; else the sequence, until budget or max_ops */
    uint64_t budget_ns, max_ops; /* of each thread */
};

static struct field *field_of(json_t *asked) {
    static struct field fields[FIELDS];
    uint64_t at = job_number(asked, "at");

    if (at >= FIELDS)
        job_fail("a job", "there is no such field");
    return &fields[at];
}

static const struct peer *peer_named(const char *name) {
    for (size_t i = 0; i < PEERS; i++)
        if (strcmp(peers[i]->name, name) == 0)
            return peers[i];
    job_fail("there is no peer", name);
}

/* An answer that says what is wrong. */
static json_t *wrong(const char *why) {
    return json_pack("{s:s}", "wrong", why);
}

/* Sixteen digits that look random. */
static void write_key(uint64_t index, char *text) {
    static const char digits[] = "0123456789abcdef";
    uint64_t word = mix64(index);

    for (size_t i = 0; i < PEER_KEY; i++, word >>= 4)
        text[i] = digits[word & 15];
}
_Static_assert(PEER_KEY == 16, "64 bits in hexadecimal: mix64 keeps different indices different");

json_t *contest_prepare(json_t *asked) {
    struct field *field = field_of(asked);
    json_t *limits = json_object_get(asked, "limits"), *limit, *socket;
    size_t i;

    malloc_trim(0); /* what is free already would hide what is needed */
    *field = (struct field){
        .peer = peer_named(job_text(asked, "peer")),
        .depth = (unsigned)job_number(asked, "depth"),
        .setup = {.keys = job_number(asked, "keys"),
                  .threads = (unsigned)job_number(asked, "threads"),
                  .limits = (unsigned)json_array_size(limits),
                  .huge_pages = job_flag(asked, "huge_pages"),
                  .sharded = job_flag(asked, "sharded")},
    };
    json_array_foreach(limits, i, limit) if (i < PEER_LIMITS) {
        field->setup.limit = (uint32_t)job_number(limit, "limit");
        field->setup.window = job_number(limit, "window");
        field->setup.each[i].limit = field->setup.limit;
        field->setup.each[i].window = field->setup.window;
    }
    socket = json_object_get(asked, "socket");
    if (socket != NULL) {
        field->server = (pid_t)job_number(asked, "server");
        snprintf(field->setup.socket, sizeof(field->setup.socket), "%s", json_string_value(socket));
    }
    uint64_t keys = field->setup.keys;
    field->asked = must_have(malloc(keys * sizeof(*field->asked)));
    field->granted = must_have(malloc(keys * sizeof(*field->granted)));
    /* Written and not only cleared: their pages must not be counted as the peer's. */
    memset(field->asked, 0, keys * sizeof(*field->asked));
    memset(field->granted, 0, keys * sizeof(*field->granted));
    sequence_open(&field->sequence, UNIFORM, keys, field->setup.threads, 0);
    return json_object();
}

json_t *contest_open(json_t *asked) {
    struct field *field = field_of(asked);

    if (!field->peer->open(&field->setup, &field->state)) {
        field->state = NULL;
        return wrong(peer_failure());
    }
    return json_pack("{s:s}", "version",
                     field->peer->version != NULL ? field->peer->version(field->state) : "");
}

json_t *contest_close(json_t *asked) {
    struct field *field = field_of(asked);

    if (field->state != NULL)
        field->peer->close(field->state);
    sequence_close(&field->sequence);
    free(field->asked);
    free(field->granted);
    field->state = NULL;
    return json_object();
}

/* ---- Asking it ---- */

static void count(struct field *field, uint64_t index, bool granted) {
    ck_pr_add_32(&field->asked[index], 1);
    if (granted)
        ck_pr_add_32(&field->granted[index], 1);
}

/* What reading the two clocks adds to the CPU time of a stretch. */
static uint64_t stretch_overhead(void) {
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < 100; i++) {
        uint64_t cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
        clock_ns(CLOCK_MONOTONIC);
        clock_ns(CLOCK_MONOTONIC);
        cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
        least = cpu < least ? cpu : least;
    }
    return least;
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
            tally->failure = peer_failure();
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
    uint64_t cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID), started = clock_ns(CLOCK_MONOTONIC);
    bool good = peer->decide(field->state, thread, keys, n, field->depth, answers);
    uint64_t ended = clock_ns(CLOCK_MONOTONIC);
    cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
    if (!good) {
        tally->failure = peer_failure();
        return false;
    }
    tally->ns += ended - started;
    tally->cpu_ns += cpu > overhead ? cpu - overhead : 0;
    tally->ops += n;
    field->position[thread] += n;
    return true;
}

static void ask_sequence(struct field *field, unsigned thread, struct tally *tally) {
    uint64_t overhead = stretch_overhead();
    size_t chunk = field->server != 0 ? CHUNK_SERVER : CHUNK;
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

/* CPU time of the server since it started, ns. */
static uint64_t server_cpu_ns(const struct field *field) {
    clockid_t clock;

    if (field->server == 0 || clock_getcpuclockid(field->server, &clock) != 0)
        return 0;
    return clock_ns(clock);
}

json_t *contest_ask(json_t *asked) {
    struct field *field = field_of(asked);
    struct tally sum = {0};
    struct rusage before, after;

    field->fill = job_flag(asked, "fill");
    field->budget_ns = field->fill ? 0 : job_number(asked, "budget_ns");
    field->max_ops = field->fill ? 0 : job_number(asked, "max_ops");
    getrusage(RUSAGE_SELF, &before);
    uint64_t server_ns = server_cpu_ns(field);
    team_run(field->setup.threads, ask_member, field);
    getrusage(RUSAGE_SELF, &after);
    for (unsigned i = 0; i < field->setup.threads; i++) {
        const struct tally *tally = &field->tally[i];
        if (tally->failure != NULL)
            return wrong(tally->failure);
        sum.ops += tally->ops;
        sum.ns += tally->ns;
        sum.cpu_ns += tally->cpu_ns;
    }
    sum.cpu_ns += server_cpu_ns(field) - server_ns;
    return json_pack("{s:I, s:I, s:I, s:I}", "ops", (json_int_t)sum.ops, "ns", (json_int_t)sum.ns,
                     "cpu_ns", (json_int_t)sum.cpu_ns, "preempted",
                     (json_int_t)(after.ru_nivcsw - before.ru_nivcsw));
}

json_t *contest_audit(json_t *asked) {
    const struct field *field = field_of(asked);
    uint64_t demand = 0, granted = 0;
    char text[128];

    for (uint64_t i = 0; i < field->setup.keys; i++) {
        uint64_t right = field->asked[i];
        if (!field->peer->one_count && right > field->setup.limit)
            right = field->setup.limit;
        if (field->granted[i] != right) {
            snprintf(text, sizeof(text),
                     "tokens granted to one key: %llu would be right, it is %llu",
                     (unsigned long long)right, (unsigned long long)field->granted[i]);
            return wrong(text);
        }
        demand += field->asked[i];
        granted += right;
    }
    return json_pack("{s:I, s:I}", "demand", (json_int_t)demand, "granted", (json_int_t)granted);
}

json_t *contest_peers(json_t *asked) {
    json_t *names = json_array();

    (void)asked;
    for (size_t i = 0; i < PEERS; i++)
        json_array_append_new(names, json_string(peers[i]->name));
    return json_pack("{s:o}", "peers", names);
}
