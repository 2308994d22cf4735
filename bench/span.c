/* SPDX-License-Identifier: MIT */
#include "span.h"

#include <ck_pr.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "jobs.h"
#include "pages.h"
#include "ticks.h"

enum {
    CHUNK_BYTES = 16384, /* key bytes of a stretch, so that they stay in the first cache */
    CHUNK_KEYS_MIN = 64, /* fewer, and reading the timer would show */
    TURN_CHUNKS = 16,
    SPANS_MAX = 2,
};

/* What a thread did. */
struct tally {
    uint64_t ops, ns, allowed;
    float *samples; /* nanoseconds a decision of each stretch */
    size_t samples_n, samples_room;
    char padding[16];
};
_Static_assert(sizeof(struct tally) == 64, "threads do not share a line");

/* Of each key's share in a pass, what the pass goes over. */
enum part { WHOLE, FIRST_PART, LAST_PART, PARTS }; /* seven eighths, and the eighth that is left */

static enum part part_of(json_t *asked, const char *member) {
    static const char *const names[PARTS] = {"whole", "first", "last"};

    return (enum part)job_read_name(asked, member, names, PARTS);
}

/* With a floor, work and floor take turns of TURN_CHUNKS stretches, so that what disturbs the one
 * disturbs the other, and threads wait for each other between turns. */
struct span {
    struct bed *bed;
    timed_function *run;
    timed_function *floor; /* NULL: none */
    bool present;          /* the floor asks the limiter for keys that this pass has brought */
    bool alone;            /* one thread runs the floor and the others wait */
    bool once;             /* passes, each key once; else the sequence */
    bool shared;           /* every thread passes over all keys, not only over its part */
    bool hold;             /* all passes are in the epoch of the first */
    bool still;            /* the clock does not move from epoch to epoch */
    bool restart;          /* each time it starts the sequence again, in the next epoch */
    bool sample;           /* the times of stretches are wanted */
    bool count;            /* and what each key was granted */
    enum part part;        /* of a pass */
    uint64_t epoch;        /* of the first pass */
    uint64_t passes;
    uint64_t budget_ns; /* of timed work, each thread; for the sequence */
    uint64_t max_ops;   /* each thread; for the sequence */
    struct tally work_tally[TEAM_MAX], floor_tally[TEAM_MAX];
    uint64_t preempted; /* times that a thread lost its core */
    uint32_t over;      /* set when a thread has done all it should */
};
static struct span spans[SPANS_MAX];

/* ---- Stretches ---- */

static size_t chunk_keys(const struct bed *bed) {
    size_t keys = CHUNK_BYTES / (bed->target.key_length * bed_run_keys(bed));
    return keys > CHUNK_KEYS ? CHUNK_KEYS : keys < CHUNK_KEYS_MIN ? CHUNK_KEYS_MIN : keys;
}

static void chunk_put(const struct bed *bed, struct chunk *chunk, size_t at, uint64_t index) {
    unsigned keys = bed_run_keys(bed);
    unsigned char *bytes = chunk->bytes + at * keys * bed->target.key_length;

    for (unsigned key = 0; key < keys; key++)
        key_bytes(bed_part_index(bed, index, key), bytes + key * bed->target.key_length,
                  bed->target.key_length);
    stint_key key = stint_key_of(bed->target.limiter, bytes, bed->target.key_length);
    chunk->line[at] = scale64(key.hash, bed->target.line_count);
    if (bed->policies > 1)
        chunk->policy[at] = bed_policy(bed, index);
}

/* What a thread does in a turn, and where it notes that. */
struct turn {
    timed_function *run;
    struct chunk *chunk;
    struct tally tally; /* without samples */
    struct tally *sum;  /* of all times that the span runs */
};

static void tally_sample(struct tally *tally, double ns) {
    if (tally->samples_n == tally->samples_room) {
        tally->samples_room = tally->samples_room == 0 ? 1024 : 2 * tally->samples_room;
        tally->samples =
            must_have(realloc(tally->samples, tally->samples_room * sizeof(*tally->samples)));
    }
    tally->samples[tally->samples_n++] = (float)ns;
}

static void turn_run(const struct span *span, struct turn *turn) {
    uint64_t started = clock_ns(CLOCK_MONOTONIC);
    uint64_t allowed = turn->run(&span->bed->target, turn->chunk);
    uint64_t took = clock_ns(CLOCK_MONOTONIC) - started;

    turn->tally.ns += took;
    turn->tally.allowed += allowed;
    turn->tally.ops += turn->chunk->n;
    if (span->sample)
        tally_sample(turn->sum, (double)took / (double)turn->chunk->n);
}

static void turns_end(const struct turn *turn) {
    turn->sum->ops += turn->tally.ops;
    turn->sum->allowed += turn->tally.allowed;
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
static struct range pass_range(const struct bed *bed, bool shared, enum part part, unsigned thread,
                               uint64_t *share_from, uint64_t *turns) {
    struct range share = {0, bed->keys};
    uint64_t largest = bed->keys;

    if (!shared) {
        share = range_part(share, thread, bed->threads);
        largest = parts_of(bed->keys, bed->threads);
    }
    uint64_t cut = share.from + (share.to - share.from) * 7 / 8;
    *share_from = share.from;
    *turns = parts_of(largest, TURN_CHUNKS * chunk_keys(bed));
    if (part == FIRST_PART)
        share.to = cut;
    else if (part == LAST_PART)
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
        if (span->count)
            for (size_t i = 0; i < chunk->n; i++)
                ck_pr_add_32(&bed->granted[keys.from + i], chunk->answers[i]);
    }
}

static void run_pass(struct member *member, struct span *span, struct turn *work,
                     struct turn *floor, uint64_t epoch) {
    uint64_t share_from, turns;
    struct range range =
        pass_range(span->bed, span->shared, span->part, member->thread, &share_from, &turns);

    for (uint64_t at = 0; at < turns; at++) {
        struct range keys = range_part(range, at, turns);
        pass_turn(span, work, keys, epoch, share_from, false);
        if (span->floor == NULL)
            continue;
        team_wait(member);
        pass_turn(span, floor, keys, epoch, share_from, span->present);
        team_wait(member);
    }
}

void count_present(const struct bed *bed, json_t *asked, uint32_t *demand) {
    enum part part = part_of(asked, "present");
    uint64_t epoch = job_number(asked, "epoch");

    for (unsigned thread = 0; thread < bed->threads; thread++) {
        uint64_t share_from, turns;
        struct range range = pass_range(bed, false, part, thread, &share_from, &turns);
        for (uint64_t at = 0; at < turns; at++) {
            struct range keys = range_part(range, at, turns);
            for (uint64_t nth = keys.from; nth < keys.to; nth++)
                demand[present_nth(epoch, nth, share_from, keys)]++;
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
        if (span->count)
            for (size_t i = 0; i < chunk->n; i++) {
                uint64_t index = sequence_index(&bed->sequence, thread, position + i);
                ck_pr_add_32(&bed->granted[index], chunk->answers[i]);
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
        if (span->alone) {
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
    struct turn work = {.run = span->run, .chunk = chunk, .sum = &span->work_tally[thread]};
    struct turn floor = {.run = span->floor, .chunk = chunk, .sum = &span->floor_tally[thread]};
    bool answers[CHUNK_KEYS];

    chunk->answers = span->count ? answers : NULL;
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
    turns_end(&work);
    turns_end(&floor);
}

/* Adds to what it did before. */
static void span_run(struct span *span) {
    struct rusage before, after;

    if (span->restart)
        memset(span->bed->position, 0, sizeof(span->bed->position));
    span->over = 0;
    getrusage(RUSAGE_SELF, &before);
    team_run(span->bed->threads, span_member, span);
    getrusage(RUSAGE_SELF, &after);
    span->preempted += (uint64_t)(after.ru_nivcsw - before.ru_nivcsw);
    span->epoch += span->restart;
}

static uint64_t optional_number(json_t *asked, const char *member) {
    return (uint64_t)json_integer_value(json_object_get(asked, member));
}

static timed_function *function_of(json_t *asked, const char *member) {
    timed_function *run = timed_named(job_text(asked, member));

    if (run == NULL)
        job_fail("there is no function", job_text(asked, member));
    return run;
}

static void span_read(json_t *asked, struct span *span) {
    *span = (struct span){
        .bed = bed_of(asked),
        .run = function_of(asked, "run"),
        .present = job_flag(asked, "present"),
        .alone = job_flag(asked, "alone"),
        .once = job_flag(asked, "once"),
        .shared = job_flag(asked, "shared"),
        .hold = job_flag(asked, "hold"),
        .still = job_flag(asked, "still"),
        .restart = job_flag(asked, "restart"),
        .sample = job_flag(asked, "sample"),
        .count = job_flag(asked, "count"),
        .part = part_of(asked, "part"),
        .epoch = job_number(asked, "epoch"),
        .passes = optional_number(asked, "passes"),
        .budget_ns = optional_number(asked, "budget_ns"),
        .max_ops = optional_number(asked, "max_ops"),
    };
    if (json_object_get(asked, "floor") != NULL)
        span->floor = function_of(asked, "floor");
    if (span->count && span->bed->granted == NULL)
        span->bed->granted = must_have(calloc(span->bed->keys, sizeof(*span->bed->granted)));
}

/* What all threads did. */
static json_t *tally_answer(struct tally *tally, unsigned threads) {
    uint64_t ops = 0, allowed = 0;
    json_t *samples = json_array();

    for (unsigned i = 0; i < threads; i++) {
        ops += tally[i].ops;
        allowed += tally[i].allowed;
        for (size_t at = 0; at < tally[i].samples_n; at++)
            json_array_append_new(samples, json_real(tally[i].samples[at]));
        free(tally[i].samples);
    }
    return json_pack("{s:I, s:I, s:o}", "ops", (json_int_t)ops, "allowed", (json_int_t)allowed,
                     "ns", samples);
}

json_t *spans_run(json_t *asked) {
    json_t *each = json_object_get(asked, "spans"), *one, *answers = json_array();
    size_t n = json_array_size(each), i;

    if (n > SPANS_MAX)
        job_fail("a job", "it has too many spans");
    json_array_foreach(each, i, one) span_read(one, &spans[i]);
    for (uint64_t time = job_number(asked, "times"); time > 0; time--)
        for (i = 0; i < n; i++)
            span_run(&spans[i]);
    for (i = 0; i < n; i++)
        json_array_append_new(
            answers, json_pack("{s:o, s:o, s:I}", "work",
                               tally_answer(spans[i].work_tally, spans[i].bed->threads), "floor",
                               tally_answer(spans[i].floor_tally, spans[i].bed->threads),
                               "preempted", (json_int_t)spans[i].preempted));
    return json_pack("{s:o}", "spans", answers);
}
