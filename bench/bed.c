/* SPDX-License-Identifier: MIT */
#include "bed.h"

#include <ck_pr.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "common.h"
#include "pages.h"

enum {
    ZIPF_PERIOD_MIN = 1 << 18,
    ZIPF_PERIOD_MAX = 1 << 22, /* 16 MiB a thread: read in order, so it costs no misses */
    CHUNK_BYTES = 16384,       /* key bytes of a stretch, so that they stay in the first cache */
    CHUNK_KEYS_MIN = 64,       /* fewer, and reading the timer would show */
};

static const uint64_t DAY = UINT64_C(86400) * 1000000000;
static const uint64_t SECOND = UINT64_C(1000000000);

/* ---- Bed ---- */

/* A striped key may take a slot for each stripe, and several parts take one each. */
static uint64_t max_keys_of(const struct row *row, uint64_t keys) {
    const struct path *path = workloads[row->workload].path;
    unsigned slots_key = (row->stripes > 1 ? row->stripes : 1) * (path != NULL ? path->parts : 1);
    double slots = (double)keys * slots_key / row->load;
    return slots < 2 ? 1 : (uint64_t)(slots * 0.5 + 0.5);
}

/* Long enough that it does not repeat within what a cache or a branch predictor remembers. */
static uint64_t zipf_period(uint64_t keys) {
    uint64_t period = ZIPF_PERIOD_MIN;

    while (period < ZIPF_PERIOD_MAX && period < 4 * keys)
        period *= 2;
    return period;
}

uint64_t row_memory(const struct row *row) {
    uint64_t tables = workloads[row->workload].path != NULL ? 2 : 1;
    uint64_t table = max_keys_of(row, row->keys) * 32 * tables;
    uint64_t drawn = row->distribution == ZIPF ? row->threads * zipf_period(row->keys) * 4 : 0;

    return 2 * table + row->keys * sizeof(uint32_t) + drawn + (UINT64_C(64) << 20);
}

static void table_open(struct bed *bed) {
    int error = stint_open(&bed->options, &bed->target.limiter);

    for (unsigned i = 0; error >= 0 && i < bed->policies; i++) {
        struct stint_policy policy = bed->policy;
        snprintf(policy.name, sizeof(policy.name), "bench-%u", i);
        error = stint_policy_add(bed->target.limiter, &policy, NULL);
    }
    if (error < 0) {
        fprintf(stderr, "stint-bench: no table for %llu keys: %s (%s)\n",
                (unsigned long long)bed->keys, stint_strerror(error), stint_reason());
        exit(EXIT_FAILURE);
    }
    bed->target.policy = 0; /* ids go up from 0 */
    bed->requests = bed->allowed = bed->extra_tokens = 0;
}

void bed_renew(struct bed *bed) {
    stint_close(bed->target.limiter);
    table_open(bed);
    memset(bed->position, 0, sizeof(bed->position));
}

void bed_stats(const struct bed *bed, struct stint_policy_stats *stats) {
    struct stint_policy_stats sum = STINT_POLICY_STATS_INIT, one = STINT_POLICY_STATS_INIT;

    for (unsigned i = 0; i < bed->policies; i++) {
        stint_policy_stats_get(bed->target.limiter, i, &one);
        sum.allowed += one.allowed;
        sum.refused += one.refused;
        sum.shadowed += one.shadowed;
        sum.untracked += one.untracked;
    }
    *stats = sum;
}

static void floor_open(struct bed *bed) {
    struct stint_stats stats = STINT_STATS_INIT;

    stint_stats_get(bed->target.limiter, &stats);
    bed->target.line_count = (stats.slots + 3) / 4;
    bed->floor_bytes = bed->target.line_count * sizeof(struct line);
    bed->target.lines = must_have(pages_map(bed->floor_bytes));
}

static void chunks_open(struct bed *bed) {
    size_t bytes = CHUNK_KEYS * bed->target.key_length * bed_run_keys(bed);
    bytes = (bytes + 63) & ~(size_t)63;

    bed->chunks = must_have(aligned_alloc(64, bed->threads * sizeof(*bed->chunks)));
    for (unsigned i = 0; i < bed->threads; i++)
        bed->chunks[i] = (struct chunk){.bytes = must_have(aligned_alloc(64, bytes))};
}

/* That of the row; of one that is beside a path, of as many plain takes. */
static struct path path_of(const struct row *row) {
    const struct path *path = workloads[row->workload].path;

    if (path == NULL)
        return (struct path){.cost = 1, .parts = 1};
    if (row->beside)
        return (struct path){
            .cost = 1, .parts = path->parts, .each_key = path->each_key, .still = path->still};
    return *path;
}

/* The first of January or of July, whichever is months away on both sides, so that no year that
 * starts there ends during the run. */
static uint64_t begun_long_ago(time_t now) {
    struct tm tm;
    (void)gmtime_r(&now, &tm);
    return tm.tm_mon >= 3 && tm.tm_mon < 9 ? 0 : 181 * DAY;
}

void bed_open(struct bed *bed, const struct row *row, uint64_t keys, uint32_t fit) {
    const struct workload_kind *kind = &workloads[row->workload];
    const struct path path = path_of(row);
    *bed = (struct bed){
        .kind = kind,
        .path = path,
        .run = row->bare           ? floors[kind->used_up ? FLOOR_LOAD : kind->floor].run
               : row->beside       ? floors[kind->floor].run
               : row->latency      ? kind->timed
               : row->policies > 1 ? policies_take
                                   : kind->run,
        .counted = (path.flags & (STINT_PEEK | STINT_CHARGE)) != 0 ? 0 : path.parts,
        .keys = keys,
        .threads = row->threads,
        .policies = path.parts > 1 && !path.each_key ? path.parts : row->policies,
        .refused_part = kind->used_up ? 1 : row->refused_part,
        .fit = fit,
    };
    bed->before = row->policies > 1     ? policies_take
                  : kind->path == NULL  ? workloads[BATCH_16].run
                  : path.before != NULL ? path.before
                                        : bed->run;
    for (size_t i = 0; i < sizeof(bed->secret); i += sizeof(uint64_t)) {
        uint64_t word = mix64(i);
        memcpy(bed->secret + i, &word, sizeof(word));
    }
    bed->target.key_length = row->key_length;
    bed->target.secret = bed->secret;
    bed->options = (struct stint_options)STINT_OPTIONS_INIT;
    bed->options.max_keys = max_keys_of(row, keys);
    bed->options.max_policies = row->policies > 64 ? row->policies : 0;
    bed->options.flags = STINT_PREFAULT;
    bed->options.secret = bed->secret;
    bed->policy = (struct stint_policy)STINT_POLICY_INIT;
    bed->policy.limit = fit * path.cost;
    bed->policy.stripes = row->stripes;
    bed->policy.flags = path.policy_flags;
    bed->policy.max_reserved = path.max_reserved;
    bed->target.path = &bed->path;
    bed->target.request = (struct stint_request){.cost = path.cost, .flags = path.flags};
    if (path.own_limit)
        bed->target.request.limit = bed->policy.limit++;
    if (path.roll_over)
        bed->policy.capacity = bed->policy.limit--;
    if ((path.flags & STINT_RESERVE) != 0)
        bed->policy.limit -= path.max_reserved;

    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    bed->start = ((uint64_t)time.tv_sec + 1) * SECOND;
    if (bed->kind->windows) {
        bed->options.clock = bench_clock;
        bed->policy.window = SECOND;
    } else {
        /* The limiter reads the real clock here, so the window must not end during the run: a year
         * of which half has passed. Those of each key's own begin when they do. */
        bed->options.clock = path.still ? bench_still_clock : NULL;
        bed->policy.window = path.calendar != 0 ? 0 : 366 * DAY;
        bed->policy.calendar = path.calendar;
        if (path.calendar != 0)
            bed->policy.start = (int64_t)begun_long_ago(time.tv_sec);
        else if ((path.policy_flags & (STINT_START_PER_KEY | STINT_START_FIRST)) == 0)
            bed->policy.start = (int64_t)(bed->start - 183 * DAY);
    }
    bed->epoch_ns = bed->kind->windows || path.still ? bed->policy.window : 0;
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
    pages_unmap(bed->target.lines, bed->floor_bytes);
    stint_close(bed->target.limiter);
}

/* ---- Stretches ---- */

static size_t chunk_keys(const struct bed *bed) {
    size_t keys = CHUNK_BYTES / (bed->target.key_length * bed_run_keys(bed));
    return keys > CHUNK_KEYS ? CHUNK_KEYS : keys < CHUNK_KEYS_MIN ? CHUNK_KEYS_MIN : keys;
}

uint64_t epoch_index(const struct bed *bed, uint64_t epoch, uint64_t nth) {
    return bed->kind->new_keys ? epoch * bed->keys + nth : nth;
}

uint64_t epoch_now(const struct bed *bed, uint64_t epoch) {
    return bed->start + epoch * bed->epoch_ns;
}

static void chunk_put(const struct bed *bed, struct chunk *chunk, size_t at, uint64_t index) {
    unsigned keys = bed_run_keys(bed);
    unsigned char *bytes = chunk->bytes + at * keys * bed->target.key_length;

    for (unsigned key = 0; key < keys; key++)
        key_bytes(bed_part_index(bed, index, key), bytes + key * bed->target.key_length,
                  bed->target.key_length);
    uint64_t hash = stint_key_of(bed->target.limiter, bytes, bed->target.key_length);
    chunk->line[at] = scale64(hash, bed->target.line_count);
    if (bed->policies > 1)
        chunk->policy[at] = bed_policy(bed, index);
}

static void samples_add(struct samples *samples, double ns) {
    if (samples->n == samples->room) {
        samples->room = samples->room == 0 ? 1024 : 2 * samples->room;
        samples->ns = must_have(realloc(samples->ns, samples->room * sizeof(*samples->ns)));
    }
    samples->ns[samples->n++] = (float)ns;
}

static int compare_floats(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

double samples_median(struct samples *samples, unsigned threads) {
    struct samples all = {0};

    for (unsigned i = 0; i < threads; i++) {
        for (size_t at = 0; at < samples[i].n; at++)
            samples_add(&all, samples[i].ns[at]);
        free(samples[i].ns);
        samples[i] = (struct samples){0};
    }
    if (all.n == 0)
        return 0;
    qsort(all.ns, all.n, sizeof(*all.ns), compare_floats);
    double median = (all.ns[all.n / 2] + all.ns[(all.n - 1) / 2]) / 2;
    free(all.ns);
    return median;
}

/* What a thread does in a turn, and where it notes that. */
struct turn {
    timed_function *run;
    struct chunk *chunk;
    struct tally tally;
    struct samples *samples; /* NULL: not kept */
};

static void turn_run(const struct span *span, struct turn *turn) {
    uint64_t started = monotonic_ns();
    uint64_t allowed = turn->run(&span->bed->target, turn->chunk);
    uint64_t took = monotonic_ns() - started;

    turn->tally.ns += took;
    turn->tally.allowed += allowed;
    turn->tally.ops += turn->chunk->n;
    if (turn->samples != NULL)
        samples_add(turn->samples, (double)took / (double)turn->chunk->n);
}

/* ---- Passes ---- */

struct range {
    uint64_t from, to;
};

/* Part number `at` of `parts` equal ones. */
static struct range range_part(struct range range, uint64_t at, uint64_t parts) {
    uint64_t n = range.to - range.from;
    return (struct range){range.from + n * at / parts, range.from + n * (at + 1) / parts};
}

static uint64_t parts_of(uint64_t n, uint64_t most) {
    return (n + most - 1) / most;
}

/* Where a thread's share of the keys begins, which part of it the pass goes over, and into how many
 * turns that is cut: as many for each thread, as they wait for each other. */
static struct range pass_range(const struct span *span, unsigned thread, uint64_t *share_from,
                               uint64_t *turns) {
    const struct bed *bed = span->bed;
    struct range share = {0, bed->keys};
    uint64_t largest = bed->keys;

    if (!span->shared) {
        share = range_part(share, thread, bed->threads);
        largest = parts_of(bed->keys, bed->threads);
    }
    uint64_t cut = share.from + (share.to - share.from) * 7 / 8;
    *share_from = share.from;
    *turns = parts_of(largest, TURN_CHUNKS * chunk_keys(bed));
    if (span->part == FIRST_PART)
        share.to = cut;
    else if (span->part == LAST_PART)
        share.from = cut;
    return share;
}

/* The key that the floor asks for beside key number `nth` of the turn: any that came before it or
 * with its turn, so that it is as far from the caches as chance will have it. */
static uint64_t present_nth(uint64_t epoch, uint64_t nth, uint64_t share_from, struct range turn) {
    return share_from + scale64(mix64(epoch << 40 ^ nth), turn.to - share_from);
}

static void pass_turn(const struct span *span, struct turn *turn, struct range range,
                      uint64_t epoch, uint64_t share_from, bool present) {
    const struct bed *bed = span->bed;
    struct chunk *chunk = turn->chunk;
    uint64_t chunks = parts_of(range.to - range.from, chunk_keys(bed));

    for (uint64_t part = 0; part < chunks; part++) {
        struct range keys = range_part(range, part, chunks);
        chunk->n = keys.to - keys.from;
        for (size_t i = 0; i < chunk->n; i++) {
            uint64_t nth = keys.from + i;
            if (present)
                nth = present_nth(epoch, nth, share_from, range);
            chunk_put(bed, chunk, i, epoch_index(bed, epoch, nth));
        }
        turn_run(span, turn);
        if (span->granted != NULL)
            for (size_t i = 0; i < chunk->n; i++)
                ck_pr_add_32(&span->granted[keys.from + i], chunk->answers[i]);
    }
}

static void run_pass(struct member *member, struct span *span, struct turn *work,
                     struct turn *floor, uint64_t epoch) {
    uint64_t share_from, turns;
    struct range range = pass_range(span, member->thread, &share_from, &turns);

    for (uint64_t at = 0; at < turns; at++) {
        struct range keys = range_part(range, at, turns);
        pass_turn(span, work, keys, epoch, share_from, false);
        if (span->floor == NULL)
            continue;
        team_wait(member);
        pass_turn(span, floor, keys, epoch, share_from, span->floor->present);
        team_wait(member);
    }
}

void count_present(const struct span *span, uint32_t *demand) {
    for (unsigned thread = 0; thread < span->bed->threads; thread++) {
        uint64_t share_from, turns;
        struct range range = pass_range(span, thread, &share_from, &turns);
        for (uint64_t at = 0; at < turns; at++) {
            struct range keys = range_part(range, at, turns);
            for (uint64_t nth = keys.from; nth < keys.to; nth++)
                demand[present_nth(span->epoch, nth, share_from, keys)]++;
        }
    }
}

/* ---- Sequence ---- */

static void sequence_turn(const struct span *span, struct turn *turn, unsigned thread,
                          uint64_t position, uint64_t ops) {
    const struct bed *bed = span->bed;
    struct chunk *chunk = turn->chunk;
    size_t most = chunk_keys(bed);

    for (uint64_t end = position + ops; position < end; position += chunk->n) {
        chunk->n = end - position < most ? end - position : most;
        for (size_t i = 0; i < chunk->n; i++)
            chunk_put(bed, chunk, i, sequence_index(&bed->sequence, thread, position + i));
        turn_run(span, turn);
        if (span->granted != NULL)
            for (size_t i = 0; i < chunk->n; i++) {
                uint64_t index = sequence_index(&bed->sequence, thread, position + i);
                ck_pr_add_32(&span->granted[index], chunk->answers[i]);
            }
    }
}

static void run_sequence(struct member *member, struct span *span, struct turn *work,
                         struct turn *floor) {
    struct bed *bed = span->bed;
    uint64_t *position = &bed->position[member->thread];
    uint64_t most = TURN_CHUNKS * chunk_keys(bed);

    for (unsigned at = 0; ck_pr_load_32(&span->over) == 0; at++) {
        uint64_t left = span->max_ops - work->tally.ops;
        uint64_t ops = left < most ? left : most;
        sequence_turn(span, work, member->thread, *position, ops);
        if (span->floor != NULL && span->floor->alone) {
            *position += ops;
            team_wait(member);
            if (at % bed->threads == member->thread) {
                sequence_turn(span, floor, member->thread, *position, ops);
                *position += ops;
            }
        } else {
            team_wait(member);
            if (span->floor != NULL) /* over the same keys again */
                sequence_turn(span, floor, member->thread, *position, ops);
            *position += ops;
        }
        /* All have read `over` by now: they have come to the last barrier. */
        if (work->tally.ns >= span->budget_ns || work->tally.ops >= span->max_ops)
            ck_pr_store_32(&span->over, 1);
        team_wait(member);
    }
}

/* ---- Span ---- */

static void span_member(struct member *member, void *context) {
    struct span *span = context;
    struct bed *bed = span->bed;
    unsigned thread = member->thread;
    struct chunk *chunk = &bed->chunks[thread];
    struct turn work = {.run = span->run, .chunk = chunk}, floor = {.chunk = chunk};
    bool answers[CHUNK_KEYS];

    if (span->samples != NULL)
        work.samples = &span->samples[thread];
    if (span->floor != NULL) {
        floor.run = span->floor->run != NULL ? span->floor->run : span->run;
        floor.samples = &span->floor_samples[thread];
    }
    chunk->answers = span->granted != NULL ? answers : NULL;
    chunk->now = bench_now = epoch_now(bed, span->epoch);
    if (!span->once)
        run_sequence(member, span, &work, &floor);
    for (uint64_t pass = 0; span->once && pass < span->passes; pass++) {
        uint64_t epoch = span->epoch + (span->hold ? 0 : pass);
        if (!span->still)
            chunk->now = bench_now = epoch_now(bed, epoch);
        run_pass(member, span, &work, &floor, epoch);
        team_wait(member); /* nobody is a window ahead */
    }
    span->tally[thread] = work.tally;
    span->floor_tally[thread] = floor.tally;
}

static void tally_add(struct tally *sum, const struct tally *tally) {
    sum->ops += tally->ops;
    sum->ns += tally->ns;
    sum->allowed += tally->allowed;
}

struct tally span_run(struct span *span) {
    struct bed *bed = span->bed;
    struct tally sum = {0};

    struct rusage before, after;
    span->over = 0;
    getrusage(RUSAGE_SELF, &before);
    team_run(bed->threads, span_member, span);
    getrusage(RUSAGE_SELF, &after);
    bed->preempted += (uint64_t)(after.ru_nivcsw - before.ru_nivcsw);
    for (unsigned i = 0; i < bed->threads; i++)
        tally_add(&sum, &span->tally[i]);
    return sum;
}

struct tally span_ask(struct span *span) {
    struct tally sum = span_run(span), all = sum;

    if (span->floor != NULL && (span->floor->present || span->floor->alone))
        for (unsigned i = 0; i < span->bed->threads; i++)
            tally_add(&all, &span->floor_tally[i]);
    unsigned counted = span->run == span->bed->before ? span->bed->path.parts : span->bed->counted;
    span->bed->requests += all.ops * counted;
    span->bed->allowed += all.allowed * counted;
    return sum;
}
