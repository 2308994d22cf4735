/* SPDX-License-Identifier: MIT */
#include "measure.h"

#include <stdlib.h>
#include <string.h>

#include "bed.h"
#include "check.h"

enum {
    REPEATS = 5,
    REPEATS_LONG = 3, /* where one pass over the keys takes longer than a repeat should */
    PASS_KEY_NS = 50, /* about, to choose how many passes make a repeat */
    TABLES_MAX = 100, /* in a repeat: opening one takes longer than filling a small one */
    FAR = 4,          /* a table of so many caches is far beyond the cache */
};

struct timing {
    double ns[REPEATS];
};

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double ns_of(struct tally tally) {
    return (double)tally.ns / (double)tally.ops;
}

static uint64_t untracked(const struct bed *bed) {
    struct stint_policy_stats stats = STINT_POLICY_STATS_INIT;

    stint_policy_stats(bed->target.limiter, bed->target.policy, &stats);
    return stats.untracked;
}

/* Brings the table to the state that the workload starts from. Returns the next epoch. */
static uint64_t fill(struct bed *bed) {
    struct span span;

    span = (struct span){.bed = bed, .run = workloads[BATCH_16].run, .once = true, .passes = 1};
    if (bed->kind->new_table)
        return 0;
    if (bed->kind->new_keys) {
        /* As many keys as there are slots, all in one window: nearly every slot is used, and stale
         * from the next window on. */
        span.still = true;
        span.passes = (bed->target.line_count * 4 + bed->keys - 1) / bed->keys;
    }
    if (bed->kind->used_up)
        bed->target.cost = bed->policy.limit;
    span_ask(&span);
    bed->target.cost = 1;
    if (bed->kind->used_up)
        span_ask(&span); /* the first refusal, which marks the slot, is not what is measured */
    return span.passes;
}

struct context {
    struct row *row;
    struct bed *bed;
    uint64_t budget; /* ns of a repeat */
    void (*progress)(void *context, double part);
    void *progress_context;
};

static void show_progress(const struct context *context, unsigned repeat) {
    if (context->progress != NULL)
        context->progress(context->progress_context, (repeat + 1.0) / (context->row->repeats + 1));
}

/* Draws from the sequence until the time is over, workload and floor by turns. */
static bool measure_sequence(struct context *context, struct timing *work, struct timing *base) {
    struct span span;
    struct audit audit;
    struct row *row = context->row;
    struct bed *bed = context->bed;
    uint32_t fill_cost = bed->kind->used_up ? bed->policy.limit : 1;

    fill(bed);
    /* No key may come to its limit, where requests become refusals: the repeats end before. */
    double most = 0.9 * STINT_LIMIT_MAX / sequence_top_share(row->distribution, row->keys) /
                  row->threads / REPEATS;
    span = (struct span){.bed = bed, .budget_ns = context->budget};
    span.max_ops = most < 1e15 ? (uint64_t)most : (uint64_t)1e15;
    for (unsigned repeat = 0; repeat < row->repeats; repeat++) {
        show_progress(context, repeat);
        span.run = bed->kind->run;
        struct tally tally = span_ask(&span);
        work->ns[repeat] = ns_of(tally);
        row->allowed += tally.allowed;
        row->refused += tally.ops - tally.allowed;
        /* The floor goes over the same keys again, its positions are put back. */
        uint64_t position[TEAM_MAX];
        memcpy(position, bed->position, sizeof(position));
        for (unsigned i = 0; i < bed->threads; i++)
            bed->position[i] -= span.tally[i].ops;
        span.run = floors[row->floor].run;
        base->ns[repeat] = ns_of(span_run(&span));
        memcpy(bed->position, position, sizeof(position));
    }
    uint32_t *demand = must_have(malloc(bed->keys * sizeof(*demand)));
    for (uint64_t i = 0; i < bed->keys; i++)
        demand[i] = bed->kind->used_up ? fill_cost + 1 : 1;
    count_demand(bed, demand);
    audit = (struct audit){.bed = bed, .demand = demand};
    bool good = audit_table(row, &audit, fill_cost);
    free(demand);
    return good;
}

/* Passes over all keys, each a window or a table of its own, workload and floor by turns. */
static bool measure_passes(struct context *context, struct timing *work, struct timing *base) {
    struct span span;
    struct audit audit;
    struct row *row = context->row;
    struct bed *bed = context->bed;
    bool present = row->floor == FLOOR_PRESENT;
    struct tally tally;
    uint64_t epoch = fill(bed);

    span = (struct span){.bed = bed, .once = true};
    uint64_t pass_ns = PASS_KEY_NS * bed->keys / bed->threads + 1;
    uint64_t passes = (context->budget + pass_ns - 1) / pass_ns, tables = 1;
    if (bed->kind->new_table) {
        tables = smaller(passes, TABLES_MAX);
        passes = 1;
    }
    if (pass_ns > context->budget)
        row->repeats = REPEATS_LONG;

    for (unsigned repeat = 0; repeat < row->repeats; repeat++) {
        struct tally work_sum = {0}, base_sum = {0};
        show_progress(context, repeat);
        for (uint64_t table = 0; table < tables; table++) {
            if (bed->kind->new_table)
                bed_renew(bed);
            uint64_t before = untracked(bed);
            span.epoch = epoch;
            span.passes = passes;
            span.run = bed->kind->run;
            tally = span_ask(&span);
            work_sum.ops += tally.ops;
            work_sum.ns += tally.ns;
            row->allowed += tally.allowed;
            row->refused += tally.ops - tally.allowed;
            uint64_t unplaced = (untracked(bed) - before + passes - 1) / passes;
            if (bed->kind->new_keys && unplaced > row->unplaced)
                row->unplaced = unplaced;
            epoch += passes;

            /* The floor: as many passes, over the keys that the last pass brought if they must be
             * there, and in its window. */
            struct span base_span = span;
            base_span.run = floors[row->floor].run;
            base_span.hold = present;
            base_span.epoch = present ? epoch - 1 : span.epoch;
            tally = present ? span_ask(&base_span) : span_run(&base_span);
            base_sum.ops += tally.ops;
            base_sum.ns += tally.ns;
        }
        work->ns[repeat] = ns_of(work_sum);
        base->ns[repeat] = ns_of(base_sum);
    }
    audit = (struct audit){.bed = bed, .epoch = epoch - 1};
    audit.each = (uint32_t)(1 + (present ? passes : 0));
    return audit_table(row, &audit, 1);
}

void row_measure(struct row *row, double seconds, uint64_t cache,
                 void (*progress)(void *context, double part), void *progress_context) {
    struct bed bed;
    struct timing work, base;
    struct context context = {
        .row = row,
        .bed = &bed,
        .budget = (uint64_t)(seconds * 1e9 / REPEATS),
        .progress = progress,
        .progress_context = progress_context,
    };
    const struct workload_kind *kind = &workloads[row->workload];

    row->repeats = REPEATS;
    row->checked = rehearse(row);
    if (!row->checked)
        return;
    uint32_t limit = kind->used_up ? 10 : STINT_LIMIT_MAX;
    bed_open(&bed, row, row->keys, limit);
    bool far = bed.floor_bytes > FAR * (cache != 0 ? cache : UINT64_C(32) << 20) &&
               row->distribution != HOT;
    row->floor = far ? kind->far_floor : kind->floor;
    row->checked = kind->each_once ? measure_passes(&context, &work, &base)
                                   : measure_sequence(&context, &work, &base);
    row->preempted = bed.preempted;
    bed_close(&bed);
    if (!row->checked)
        return;

    qsort(work.ns, row->repeats, sizeof(work.ns[0]), compare_doubles);
    qsort(base.ns, row->repeats, sizeof(base.ns[0]), compare_doubles);
    row->ns_per_op = work.ns[row->repeats / 2];
    row->ns_min = work.ns[0];
    row->ns_max = work.ns[row->repeats - 1];
    row->mops = row->threads * 1000.0 / row->ns_per_op;
    row->floor_ns = base.ns[row->repeats / 2];
}
