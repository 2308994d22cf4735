/* SPDX-License-Identifier: MIT
 * The one loop that times decisions, stretch by stretch. */
#include "bed.h"

#include <ck_pr.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jobs.h"
#include "pages.h"

enum {
    CHUNK_BYTES = 16384, /* key bytes of a stretch, so that they stay in the first cache */
    CHUNK_KEYS_MIN = 64, /* fewer, and reading the timer would show */
    STRETCHES = 65536,   /* of a thread whose times are kept */
    LINE = 64,
};

/* What a thread did. */
struct tally {
    uint64_t ops, ns, cpu_ns, allowed, stretches;
    bool failed;
    char failure[256];
    float ns_each[STRETCHES]; /* of a decision in each stretch */
};

struct span {
    timed_function *run;
    bool once;         /* passes, each key once; else the sequence */
    bool shared;       /* every thread passes over all keys, not only over its part */
    bool hold;         /* all passes are in the epoch of the first */
    bool still;        /* the clock does not move from epoch to epoch */
    bool count;        /* what each key was granted is wanted */
    bool cpu;          /* and CPU times */
    unsigned from, to; /* eighths: of each thread's share of the keys, what a pass goes over */
    uint64_t epoch;    /* of the first pass */
    uint64_t passes;
    uint64_t budget_ns; /* of timed work, each thread; for the sequence */
    uint64_t max_ops;   /* each thread; for the sequence */
    size_t chunk_keys;
    struct tally *tally;
    uint32_t over; /* set when a thread has done all it should */
};

/* ---- A stretch ---- */

static void chunk_put(struct chunk *chunk, size_t at, uint64_t index) {
    unsigned keys = bed_run_keys();
    size_t length = bed.target.key_length;
    unsigned char *bytes = chunk->bytes + at * keys * length;

    for (unsigned key = 0; key < keys; key++)
        if (bed.target.peer != NULL)
            key_text(index, (char *)bytes);
        else
            key_bytes(bed_part_index(index, key), bytes + key * length, length);
}

/* `cpu` is read outside of what is timed: it costs a system call. */
static bool stretch(struct span *span, const struct chunk *chunk, struct tally *tally) {
    uint64_t cpu = span->cpu ? clock_ns(CLOCK_THREAD_CPUTIME_ID) : 0;
    uint64_t started = clock_ns(CLOCK_MONOTONIC);
    uint64_t allowed = span->run(&bed.target, chunk);
#ifdef STINT_BENCH_SLOWER /* what --compare must tell, in per cent */
    uint64_t until = (clock_ns(CLOCK_MONOTONIC) - started) * (100 + STINT_BENCH_SLOWER) / 100;
    while (clock_ns(CLOCK_MONOTONIC) - started < until)
        continue;
#endif
    uint64_t took = clock_ns(CLOCK_MONOTONIC) - started;
    if (span->cpu)
        tally->cpu_ns += clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
    if (allowed == UINT64_MAX) {
        tally->failed = true;
        snprintf(tally->failure, sizeof(tally->failure), "%s", peer_failure());
        ck_pr_store_32(&span->over, 1);
        return false;
    }
    tally->ns += took;
    tally->allowed += allowed;
    tally->ops += chunk->n;
    if (tally->stretches < STRETCHES)
        tally->ns_each[tally->stretches++] = (float)took / (float)chunk->n;
    return true;
}

/* ---- Passes ---- */

static void run_pass(struct span *span, struct chunk *chunk, struct tally *tally, uint64_t epoch) {
    unsigned threads = span->shared ? 1 : bed.threads;
    unsigned thread = span->shared ? 0 : chunk->thread;
    uint64_t from = bed.keys * thread / threads, share = bed.keys * (thread + 1) / threads - from;
    uint64_t at = from + share * span->from / 8, end = from + share * span->to / 8;

    for (; at < end; at += chunk->n) {
        chunk->n = end - at < span->chunk_keys ? end - at : span->chunk_keys;
        for (size_t i = 0; i < chunk->n; i++)
            chunk_put(chunk, i, epoch_index(epoch, at + i));
        if (!stretch(span, chunk, tally))
            return;
        for (size_t i = 0; span->count && i < chunk->n; i++)
            ck_pr_add_32(&bed.granted[at + i], chunk->answers[i]);
    }
}

/* ---- Sequence ---- */

static void run_sequence(struct span *span, struct chunk *chunk, struct tally *tally) {
    unsigned thread = chunk->thread;
    uint64_t *position = &bed.position[thread];

    while (tally->ops < span->max_ops && ck_pr_load_32(&span->over) == 0) {
        uint64_t left = span->max_ops - tally->ops;
        chunk->n = left < span->chunk_keys ? left : span->chunk_keys;
        for (size_t i = 0; i < chunk->n; i++)
            chunk_put(chunk, i, sequence_index(&bed.sequence, thread, *position + i));
        if (!stretch(span, chunk, tally))
            return;
        for (size_t i = 0; span->count && i < chunk->n; i++)
            ck_pr_add_32(&bed.granted[sequence_index(&bed.sequence, thread, *position + i)],
                         chunk->answers[i]);
        *position += chunk->n;
        if (tally->ns >= span->budget_ns) /* all end together: nobody is timed alone */
            ck_pr_store_32(&span->over, 1);
    }
}

/* ---- Span ---- */

static void span_member(struct member *member, void *context) {
    struct span *span = context;
    struct chunk *chunk = &bed.chunks[member->thread];
    struct tally *tally = &span->tally[member->thread];
    bool answers[CHUNK_KEYS];

    chunk->answers = span->count ? answers : NULL;
    chunk->now = bench_now = epoch_now(span->epoch);
    if (!span->once)
        run_sequence(span, chunk, tally);
    for (uint64_t pass = 0; span->once && pass < span->passes; pass++) {
        uint64_t epoch = span->epoch + (span->hold ? 0 : pass);
        if (!span->still)
            chunk->now = bench_now = epoch_now(epoch);
        run_pass(span, chunk, tally, epoch);
        team_wait(member); /* nobody is a window ahead */
    }
}

static uint64_t optional_number(json_t *asked, const char *member, uint64_t missing) {
    json_t *number = json_object_get(asked, member);
    return number == NULL ? missing : (uint64_t)json_integer_value(number);
}

/* Of the stretches of all threads. */
static void quantiles(const struct span *span, double *median, double *low) {
    size_t n = 0;

    for (unsigned i = 0; i < bed.threads; i++)
        n += span->tally[i].stretches;
    float *all = must_have(malloc((n + 1) * sizeof(*all))), *end = all;
    for (unsigned i = 0; i < bed.threads; i++) {
        memcpy(end, span->tally[i].ns_each, span->tally[i].stretches * sizeof(*all));
        end += span->tally[i].stretches;
    }
    qsort(all, n, sizeof(*all), compare_floats);
    *median = n == 0 ? 0 : (double)all[n / 2];
    *low = n == 0 ? 0 : (double)all[n / 10];
    free(all);
}

static json_t *span_answer(const struct span *span) {
    json_t *threads = json_array();
    double median, low;

    for (unsigned i = 0; i < bed.threads; i++) {
        const struct tally *tally = &span->tally[i];
        if (tally->failed) {
            json_decref(threads);
            return json_pack("{s:s}", "wrong", tally->failure);
        }
        json_array_append_new(threads,
                              json_pack("{s:I, s:I, s:I, s:I}", "ops", (json_int_t)tally->ops, "ns",
                                        (json_int_t)tally->ns, "cpu_ns", (json_int_t)tally->cpu_ns,
                                        "allowed", (json_int_t)tally->allowed));
    }
    quantiles(span, &median, &low);
    return json_pack("{s:f, s:f, s:o}", "median", median, "low", low, "threads", threads);
}

json_t *span_run(json_t *asked) {
    bool reference;
    size_t chunk_keys = CHUNK_BYTES / (bed.target.key_length * bed_run_keys());
    struct span span = {
        .run = timed_named(job_text(asked, "run"), &reference),
        .once = job_flag(asked, "once"),
        .shared = job_flag(asked, "shared"),
        .hold = job_flag(asked, "hold"),
        .still = job_flag(asked, "still"),
        .count = job_flag(asked, "count"),
        .cpu = job_flag(asked, "cpu"),
        .from = (unsigned)optional_number(asked, "from", 0),
        .to = (unsigned)optional_number(asked, "to", 8),
        .epoch = job_number(asked, "epoch"),
        .passes = optional_number(asked, "passes", 0),
        .budget_ns = optional_number(asked, "budget_ns", INT64_MAX),
        .max_ops = optional_number(asked, "max_ops", INT64_MAX),
        .chunk_keys = chunk_keys > CHUNK_KEYS       ? CHUNK_KEYS
                      : chunk_keys < CHUNK_KEYS_MIN ? CHUNK_KEYS_MIN
                                                    : chunk_keys,
        .tally = must_have(calloc(bed.threads, sizeof(struct tally))),
    };

    if (span.run == NULL)
        job_fail("there is no function", job_text(asked, "run"));
    /* Touched now: their page faults are no part of a decision. */
    memset(span.tally, 0, bed.threads * sizeof(*span.tally));
    if (reference)
        bed.target.lines = must_have(pages_map(bed.target.line_count * LINE));
    if (span.count && bed.granted == NULL)
        bed.granted = must_have(calloc(bed.keys, sizeof(*bed.granted)));
    bed.target.depth = (unsigned)optional_number(asked, "depth", bed.target.depth);
    team_run(bed.threads, span_member, &span);
    if (reference)
        pages_unmap(bed.target.lines, bed.target.line_count * LINE);
    json_t *answer = span_answer(&span);
    free(span.tally);
    return answer;
}
