/* SPDX-License-Identifier: MIT */
#include "bed.h"

#include <ck_pr.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#include "common.h"

enum {
    ZIPF_PERIOD_MIN = 1 << 18,
    ZIPF_PERIOD_MAX = 1 << 22, /* 16 MiB a thread: read in order, so it costs no misses */
    CHUNK_BYTES = 16384,       /* key bytes of a stretch, so that they stay in the first cache */
    CHUNK_KEYS_MIN = 64,       /* fewer, and reading the timer would show */
};

static const uint64_t DAY = UINT64_C(86400) * 1000000000;
static const uint64_t SECOND = UINT64_C(1000000000);

/* ---- Bed ---- */

static uint64_t max_keys_of(const struct row *row, uint64_t keys) {
    double max_keys = (double)keys * 0.5 / row->load;
    return max_keys < 1 ? 1 : (uint64_t)(max_keys + 0.5);
}

/* Long enough that it does not repeat within what a cache or a branch predictor remembers. */
static uint64_t zipf_period(uint64_t keys) {
    uint64_t period = ZIPF_PERIOD_MIN;

    while (period < ZIPF_PERIOD_MAX && period < 4 * keys)
        period *= 2;
    return period;
}

uint64_t row_memory(const struct row *row) {
    uint64_t table = max_keys_of(row, row->keys) * 32;
    uint64_t drawn = row->distribution == ZIPF ? row->threads * zipf_period(row->keys) * 4 : 0;

    return 2 * table + row->keys * sizeof(uint32_t) + drawn + (UINT64_C(64) << 20);
}

static void table_open(struct bed *bed) {
    int error = stint_open(&bed->options, &bed->target.limiter);

    if (error == 0)
        error = stint_policy_add(bed->target.limiter, &bed->policy);
    if (error < 0) {
        fprintf(stderr, "stint-bench run: no table for %llu keys: %s (%s)\n",
                (unsigned long long)bed->keys, stint_strerror(error), stint_reason());
        exit(EXIT_FAILED);
    }
    bed->target.policy = (uint32_t)error;
    bed->requests = bed->allowed = 0;
}

void bed_renew(struct bed *bed) {
    stint_close(bed->target.limiter);
    table_open(bed);
}

static void floor_open(struct bed *bed) {
    struct stint_stats stats = STINT_STATS_INIT;

    stint_stats(bed->target.limiter, &stats);
    bed->target.line_count = (stats.slots + 3) / 4;
    bed->floor_bytes = bed->target.line_count * sizeof(struct line);
    bed->target.lines = must_have(
        mmap(NULL, bed->floor_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    madvise(bed->target.lines, bed->floor_bytes, MADV_HUGEPAGE); /* as the limiter does */
    memset(bed->target.lines, 0, bed->floor_bytes);
}

static void chunks_open(struct bed *bed) {
    size_t bytes = (CHUNK_KEYS * bed->target.key_length + 63) & ~(size_t)63;

    bed->chunks = must_have(aligned_alloc(64, bed->threads * sizeof(*bed->chunks)));
    for (unsigned i = 0; i < bed->threads; i++)
        bed->chunks[i] = (struct chunk){.bytes = must_have(aligned_alloc(64, bytes))};
}

void bed_open(struct bed *bed, const struct row *row, uint64_t keys, uint32_t limit) {
    *bed = (struct bed){.kind = &workloads[row->workload], .keys = keys, .threads = row->threads};
    for (size_t i = 0; i < sizeof(bed->secret); i += sizeof(uint64_t)) {
        uint64_t word = mix64(i);
        memcpy(bed->secret + i, &word, sizeof(word));
    }
    bed->target.key_length = row->key_length;
    bed->target.secret = bed->secret;
    bed->target.cost = 1;
    bed->options = (struct stint_options)STINT_OPTIONS_INIT;
    bed->options.max_keys = max_keys_of(row, keys);
    bed->options.flags = STINT_PREFAULT;
    bed->options.secret = bed->secret;
    bed->policy = (struct stint_policy)STINT_POLICY_INIT;
    memcpy(bed->policy.name, "bench", sizeof("bench"));
    bed->policy.limit = limit;

    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    bed->start = ((uint64_t)time.tv_sec + 1) * SECOND;
    if (bed->kind->each_once) {
        bed->options.clock = bench_clock;
        bed->policy.window = SECOND;
    } else {
        /* The limiter reads the real clock here, so the window must not end during the run: a year
         * of which half has passed. */
        bed->policy.window = 366 * DAY;
        bed->policy.start = (int64_t)(bed->start - 183 * DAY);
    }
    bench_now = bed->start;
    table_open(bed);
    floor_open(bed);
    chunks_open(bed);
    sequence_open(&bed->sequence, row->distribution, keys, row->threads, zipf_period(keys));
}

void bed_close(struct bed *bed) {
    sequence_close(&bed->sequence);
    for (unsigned i = 0; i < bed->threads; i++)
        free(bed->chunks[i].bytes);
    free(bed->chunks);
    munmap(bed->target.lines, bed->floor_bytes);
    stint_close(bed->target.limiter);
}

/* ---- Span ---- */

static size_t chunk_keys(size_t key_length) {
    size_t keys = CHUNK_BYTES / key_length;
    return keys > CHUNK_KEYS ? CHUNK_KEYS : keys < CHUNK_KEYS_MIN ? CHUNK_KEYS_MIN : keys;
}

uint64_t epoch_index(const struct bed *bed, uint64_t epoch, uint64_t nth) {
    return bed->kind->new_keys ? epoch * bed->keys + nth : nth;
}

uint64_t epoch_now(const struct bed *bed, uint64_t epoch) {
    return bed->kind->each_once ? bed->start + epoch * SECOND : bed->start;
}

static void chunk_put(const struct bed *bed, struct chunk *chunk, size_t at, uint64_t index) {
    unsigned char *bytes = chunk->bytes + at * bed->target.key_length;

    key_bytes(index, bytes, bed->target.key_length);
    uint64_t hash = stint_key_of(bed->target.limiter, bytes, bed->target.key_length);
    chunk->line[at] = scale64(hash, bed->target.line_count);
}

static void chunk_run(const struct span *span, struct chunk *chunk, struct tally *tally) {
    uint64_t started = monotonic_ns();
    uint64_t allowed = span->run(&span->bed->target, chunk);
    tally->ns += monotonic_ns() - started;
    tally->allowed += allowed;
    tally->ops += chunk->n;
}

static void run_pass(struct span *span, struct chunk *chunk, struct tally *tally, unsigned thread,
                     uint64_t epoch) {
    const struct bed *bed = span->bed;
    size_t most = chunk_keys(bed->target.key_length);
    uint64_t at = span->shared ? 0 : bed->keys * thread / bed->threads;
    uint64_t end = span->shared ? bed->keys : bed->keys * (thread + 1) / bed->threads;

    while (at < end) {
        chunk->n = end - at < most ? end - at : most;
        for (size_t i = 0; i < chunk->n; i++)
            chunk_put(bed, chunk, i, epoch_index(bed, epoch, at + i));
        chunk_run(span, chunk, tally);
        if (span->granted != NULL)
            for (size_t i = 0; i < chunk->n; i++)
                ck_pr_add_32(&span->granted[at + i], chunk->answers[i]);
        at += chunk->n;
    }
}

static void run_sequence(struct span *span, struct chunk *chunk, struct tally *tally,
                         unsigned thread) {
    struct bed *bed = span->bed;
    uint64_t *position = &bed->position[thread];
    size_t most = chunk_keys(bed->target.key_length);

    while (tally->ns < span->budget_ns && tally->ops < span->max_ops) {
        chunk->n = span->max_ops - tally->ops < most ? span->max_ops - tally->ops : most;
        for (size_t i = 0; i < chunk->n; i++)
            chunk_put(bed, chunk, i, sequence_index(&bed->sequence, thread, *position + i));
        chunk_run(span, chunk, tally);
        if (span->granted != NULL)
            for (size_t i = 0; i < chunk->n; i++) {
                uint64_t index = sequence_index(&bed->sequence, thread, *position + i);
                ck_pr_add_32(&span->granted[index], chunk->answers[i]);
            }
        *position += chunk->n;
    }
}

static void span_member(struct member *member, void *context) {
    struct span *span = context;
    struct bed *bed = span->bed;
    struct chunk *chunk = &bed->chunks[member->thread];
    struct tally tally = {0};
    bool answers[CHUNK_KEYS];

    chunk->answers = span->granted != NULL ? answers : NULL;
    chunk->now = bench_now = epoch_now(bed, span->epoch);
    if (!span->once)
        run_sequence(span, chunk, &tally, member->thread);
    for (uint64_t pass = 0; span->once && pass < span->passes; pass++) {
        uint64_t epoch = span->epoch + (span->hold ? 0 : pass);
        if (!span->still)
            chunk->now = bench_now = epoch_now(bed, epoch);
        run_pass(span, chunk, &tally, member->thread, epoch);
        team_wait(member); /* nobody is a window ahead */
    }
    span->tally[member->thread] = tally;
}

struct tally span_run(struct span *span) {
    struct bed *bed = span->bed;
    struct tally sum = {0};

    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    team_run(bed->threads, span_member, span);
    getrusage(RUSAGE_SELF, &after);
    bed->preempted += (uint64_t)(after.ru_nivcsw - before.ru_nivcsw);
    for (unsigned i = 0; i < bed->threads; i++) {
        sum.ops += span->tally[i].ops;
        sum.ns += span->tally[i].ns;
        sum.allowed += span->tally[i].allowed;
    }
    return sum;
}

struct tally span_ask(struct span *span) {
    struct tally sum = span_run(span);

    span->bed->requests += sum.ops;
    span->bed->allowed += sum.allowed;
    return sum;
}
