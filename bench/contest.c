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
#include <unistd.h>

#include "common.h"
#include "jobs.h"
#include "keys.h"
#include "pages.h"
#include "peer.h"
#include "team.h"

enum {
    REHEARSAL_KEYS = 2000,
    REHEARSAL_KEYS_SERVER = 300, /* one request at a time is slow there */
    REHEARSAL_LIMIT = 3,
    CHUNK = 512,       /* keys in a timed stretch */
    CHUNK_SERVER = 64, /* there a stretch is long enough without */
    FILL_DEPTH = 256,  /* pipelined when a server is filled, which is not timed */
    LOG_WORDS = 8192,  /* answers kept until they are counted, outside the timed stretches */
};

/* Short turns, so that a disturbance is in a few of them for each peer. */
enum { REPEATS = 15 };

/* More than a key is asked for while it is timed. */
#define TIMED_LIMIT STINT_LIMIT_MAX

/* In the order of the table: each after what it is to be compared with; from peer_stint_all on
 * those that decide by several limits at once. */
static const struct peer *const peers[] = {
    &peer_stint,         &peer_stint_verdict,    &peer_stint_ahead,
    &peer_stint_batch,   &peer_stint_batch_64,
#ifdef STINT_BENCH_DPDK
    &peer_dpdk,
#endif
    &peer_counter,       &peer_open_64,          &peer_open_64_huge,
    &peer_rwlock,        &peer_mutex_64,         &peer_mutex,
    &peer_memcached,     &peer_memcached_16,     &peer_redis_incr,
    &peer_redis_incr_16, &peer_redis_lua,        &peer_redis_lua_16,
    &peer_stint_all,     &peer_stint_takes,      &peer_stint_groups,
    &peer_open_64_all,   &peer_open_64_huge_all, &peer_mutex_64_all,
    &peer_mutex_all,     &peer_redis_all,        &peer_redis_all_16};
enum { PEERS = sizeof(peers) / sizeof(peers[0]) };

/* One peer, and what came out. */
struct entrant {
    const struct peer *peer;
    const char *socket; /* of its server; NULL: it is in this process */
    pid_t server;
    double ns[REPEATS];               /* of one decision on its thread, of each repeat in turn */
    double ns_per_op, ns_min, ns_max; /* the median of these, the least and the most */
    double per_second;                /* decisions of all threads together */
    double cpu_seconds;               /* of a million decisions, the server's included */
    double bytes_per_key;             /* what resident memory grew by, the server's if it has one */
    uint64_t granted, refused;        /* filling and rehearsal apart */
    uint64_t preempted;               /* times that a thread was pushed off its core, timed; a
                                       * server's clients apart, which share the cores with it */
    char version[64];                 /* of the server; else "" */
    bool checked;                     /* every answer was right */
    char wrong[256];                  /* else why not */
};

struct contest {
    uint64_t keys;
    unsigned threads;
    unsigned limits; /* of each request */
    double seconds;  /* timed, of each peer, all repeats together */
    uint64_t window; /* s */
    struct entrant entrants[PEERS];
    size_t n;
    double step; /* of steps, for the bar */
};

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
        .socket = entrant->socket,
        .server = entrant->server,
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
    size_t chunk = field->peer->program != NULL ? CHUNK_SERVER : CHUNK;
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

/* ---- What a process takes ---- */

/* CPU time since it started, ns. */
static uint64_t process_cpu_ns(pid_t pid) {
    clockid_t clock;
    struct timespec time = {0};

    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &time) != 0)
        return 0;
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* Bytes of memory that are resident; 0 is the calling process. From smaps_rollup, which counts
 * pages; statm is behind by what each thread has not yet added. */
static uint64_t process_memory(pid_t pid) {
    char path[64], line[256];
    unsigned long long kib = 0;

    snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)(pid != 0 ? pid : getpid()));
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return 0;
    while (fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "Rss: %llu kB", &kib) == 1)
            break;
    fclose(file);
    return kib * 1024;
}

/* ---- Contest ---- */

static bool rehearse(struct field *field, struct entrant *entrant, const struct contest *contest) {
    uint64_t most = entrant->peer->program != NULL ? REHEARSAL_KEYS_SERVER : REHEARSAL_KEYS;
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
    bool is_server = entrant->peer->program != NULL;

    malloc_trim(0); /* what is free already would hide what is needed */
    field_prepare(field, entrant, contest, contest->keys, TIMED_LIMIT);
    uint64_t before = is_server ? 0 : process_memory(0);
    if (!field_open(field))
        return false;
    if (is_server)
        before = process_memory(field->setup.server);
    if (entrant->peer->version != NULL)
        snprintf(entrant->version, sizeof(entrant->version), "%s",
                 entrant->peer->version(field->state));
    if (!field_fill(field))
        return false;
    uint64_t after = process_memory(field->setup.server);
    if (after > before)
        entrant->bytes_per_key = (double)(after - before) / (double)contest->keys;
    return true;
}

static bool repeat(struct field *field, unsigned nth) {
    pid_t server = field->setup.server;
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
    double in_order[REPEATS];

    memcpy(in_order, entrant->ns, sizeof(in_order));
    summarize(in_order, REPEATS, &entrant->ns_per_op, &entrant->ns_min, &entrant->ns_max);
    entrant->per_second = contest->threads * 1e9 / entrant->ns_per_op;
    entrant->cpu_seconds = (double)field->cpu_ns / 1e9 / (double)field->ops * 1e6;
    for (uint64_t i = 0; i < contest->keys; i++)
        granted += field->granted[i];
    entrant->granted = granted - contest->keys; /* the first of each filled */
    entrant->refused = field->ops - entrant->granted;
}

static void show(struct contest *contest, const struct entrant *entrant, const char *what) {
    double steps = (double)(contest->n * (2 + REPEATS));
    char label[64];

    snprintf(label, sizeof(label), "%s: %s", entrant->peer->name, what);
    jobs_progress(label, contest->step++ / steps);
}

static void contest_open_all(struct contest *contest, struct field *fields) {
    /* Servers first: what they take is theirs alone. */
    for (int servers = 1; servers >= 0; servers--)
        for (size_t i = 0; i < contest->n; i++) {
            struct entrant *entrant = &contest->entrants[i];
            if ((entrant->peer->program != NULL) == servers) {
                show(contest, entrant, "filling");
                entrant->checked = open_full(&fields[i], entrant, contest);
            }
        }
}

static void contest_time_all(struct contest *contest, struct field *fields) {
    for (unsigned nth = 0; nth < REPEATS; nth++)
        for (size_t i = 0; i < contest->n; i++)
            if (contest->entrants[i].checked) {
                struct field *field = &fields[i];
                show(contest, &contest->entrants[i], "timing");
                field->budget_ns = (uint64_t)(contest->seconds * 1e9 / REPEATS);
                /* No key may come to its limit, where requests become refusals. */
                double most =
                    0.9 * TIMED_LIMIT * (double)contest->keys / contest->threads / REPEATS;
                field->max_ops = most < 1e15 ? (uint64_t)most : (uint64_t)1e15;
                contest->entrants[i].checked = repeat(field, nth);
            }
}

static void contest_close_all(struct contest *contest, struct field *fields, uint64_t window) {
    for (size_t i = 0; i < contest->n; i++) {
        struct entrant *entrant = &contest->entrants[i];
        if (entrant->checked)
            entrant->checked = field_audit(&fields[i], contest->keys + fields[i].ops);
        if (entrant->checked && (uint64_t)time(NULL) / contest->window != window)
            entrant->checked = wrong(entrant, "the window ended; its number", window,
                                     (uint64_t)time(NULL) / contest->window);
        if (entrant->checked)
            conclude(&fields[i], entrant, contest);
        field_close(&fields[i]);
    }
}

/* ---- Jobs ---- */

static const struct peer *peer_named(const char *name) {
    for (size_t i = 0; i < PEERS; i++)
        if (strcmp(peers[i]->name, name) == 0)
            return peers[i];
    return NULL;
}

static struct contest contest_read(json_t *asked) {
    struct contest contest = {.n = 0};
    json_int_t keys, window;
    int threads, limits;
    json_t *entrants, *entrant;
    size_t at;

    job_read(asked, "{s:I, s:i, s:i, s:F, s:I, s:o}", "keys", &keys, "threads", &threads, "limits",
             &limits, "seconds", &contest.seconds, "window", &window, "entrants", &entrants);
    contest.keys = (uint64_t)keys;
    contest.threads = (unsigned)threads;
    contest.limits = (unsigned)limits;
    contest.window = (uint64_t)window;
    json_array_foreach(entrants, at, entrant) {
        struct entrant *added = &contest.entrants[contest.n];
        const char *name;
        int server = 0;
        job_read(entrant, "{s:s, s?s, s?i}", "peer", &name, "socket", &added->socket, "server",
                 &server);
        added->server = server;
        added->peer = peer_named(name);
        if (added->peer != NULL && contest.n < PEERS)
            contest.n++;
    }
    return contest;
}

static json_t *answer_entrants(const struct contest *contest) {
    json_t *entrants = json_array();

    for (size_t i = 0; i < contest->n; i++) {
        const struct entrant *entrant = &contest->entrants[i];
        json_t *ns = json_array();
        for (unsigned nth = 0; nth < REPEATS; nth++)
            json_array_append_new(ns, json_real(entrant->ns[nth]));
        json_array_append_new(
            entrants,
            json_pack("{s:s, s:o, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:s, s:b, s:s}",
                      "peer", entrant->peer->name, "ns", ns, "decisions_per_second",
                      entrant->per_second, "ns_per_op", entrant->ns_per_op, "ns_min",
                      entrant->ns_min, "ns_max", entrant->ns_max, "cpu_seconds_per_million",
                      entrant->cpu_seconds, "bytes_per_key", entrant->bytes_per_key, "granted",
                      (json_int_t)entrant->granted, "refused", (json_int_t)entrant->refused,
                      "preempted", (json_int_t)entrant->preempted, "version", entrant->version,
                      "checked", entrant->checked, "wrong", entrant->wrong));
    }
    return json_pack("{s:o}", "entrants", entrants);
}

json_t *contest_rehearse(json_t *asked) {
    struct contest contest = contest_read(asked);
    struct field *field = must_have(calloc(1, sizeof(*field)));

    for (size_t i = 0; i < contest.n; i++) {
        show(&contest, &contest.entrants[i], "rehearsal");
        contest.entrants[i].checked = rehearse(field, &contest.entrants[i], &contest);
    }
    free(field);
    return answer_entrants(&contest);
}

json_t *contest_measure(json_t *asked) {
    struct contest contest = contest_read(asked);
    struct field *fields = must_have(calloc(contest.n, sizeof(*fields)));
    uint64_t window = (uint64_t)time(NULL) / contest.window;

    contest.step = (double)contest.n;
    contest_open_all(&contest, fields);
    contest_time_all(&contest, fields);
    contest_close_all(&contest, fields, window);
    free(fields);
    return answer_entrants(&contest);
}

json_t *contest_peers(void) {
    json_t *answer = json_array();

    for (size_t i = 0; i < PEERS; i++) {
        const struct peer *peer = peers[i];
        json_array_append_new(answer, json_pack("{s:s, s:s, s:s, s:s?, s:i, s:b, s:i}", "name",
                                                peer->name, "label", peer->label, "help",
                                                peer->help, "program", peer->program, "depth",
                                                (int)peer->depth, "one_count", peer->one_count,
                                                "bytes_per_key", (int)peer->bytes_per_key));
    }
    return answer;
}
