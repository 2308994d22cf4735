/* SPDX-License-Identifier: MIT */
#include "measure.h"

#include <stdlib.h>
#include <string.h>

#include "bed.h"
#include "check.h"
#include "common.h"
#include "pages.h"
#include "ticks.h"

enum {
    REPEATS = 5,
    REPEATS_LONG = 3, /* where one pass over the keys takes longer than a repeat should */
    REPEATS_MAX = 9,  /* where every repeat has tables of its own */
    PASS_KEY_NS = 50, /* about, to choose how many passes make a repeat */
    TABLES_MAX = 100, /* in a repeat: opening one takes longer than filling a small one */
    ALONE_NS = 100,   /* about, of one call that is timed by itself */
    FAR = 4,          /* a table of so many caches is far beyond the cache */
    SLICES = 50,      /* of a repeat of two rows by turns, at most */
    SLICE_NS = 1000000,
    SMOOTH_LIMIT_MAX = 16383,
    PATH_FIT = STINT_LIMIT_MAX / 8, /* five times that is a limit, too */
};

/* ---- The state that a workload starts from ---- */

struct use_up {
    struct bed *bed;
    struct tally tally[TEAM_MAX];
    uint64_t extra[TEAM_MAX];
};

/* The keys that shall be refused take all that is left, and are refused once: the first refusal,
 * which marks the slot, is not what is measured. */
static void use_up_member(struct member *member, void *context) {
    struct use_up *use_up = context;
    const struct bed *bed = use_up->bed;
    size_t length = bed->target.key_length;
    unsigned char bytes[KEY_LENGTH_MAX];
    struct tally tally = {0};
    uint64_t extra = 0, end = bed->keys * (member->thread + 1) / bed->threads;

    for (uint64_t i = bed->keys * member->thread / bed->threads; i < end; i++) {
        if (!bed_used_up(bed, i))
            continue;
        key_bytes(i, bytes, length);
        stint_key key = stint_key_of(bed->target.limiter, bytes, length);
        uint32_t policy = bed_policy(bed, i), rest = bed->policy.limit - 1;
        tally.allowed += stint_take(bed->target.limiter, policy, key, rest, STINT_NOW, NULL);
        tally.allowed += stint_take(bed->target.limiter, policy, key, 1, STINT_NOW, NULL);
        tally.ops += 2;
        extra += use_up_extra(bed);
    }
    use_up->tally[member->thread] = tally;
    use_up->extra[member->thread] = extra;
}

/* Brings the table to the state that the workload starts from. Returns the next epoch. */
static uint64_t fill(struct bed *bed) {
    struct span span = {.bed = bed, .once = true, .passes = 1};
    struct use_up use_up = {.bed = bed};

    span.run = bed->before;
    if (bed->kind->new_table)
        return 0;
    if (bed->path.windows != 0)
        span.passes = bed->path.windows;
    if (bed->kind->new_keys) {
        /* As many keys as there are slots, all in one window: nearly every slot is used, and stale
         * from the next window on. */
        span.still = true;
        span.passes = (bed->target.line_count * 4 + bed->keys - 1) / bed->keys;
    }
    span_ask(&span);
    if (bed->refused_part > 0) {
        team_run(bed->threads, use_up_member, &use_up);
        for (unsigned i = 0; i < bed->threads; i++) {
            bed->requests += use_up.tally[i].ops;
            bed->allowed += use_up.tally[i].allowed;
            bed->extra_tokens += use_up.extra[i];
        }
    }
    return span.passes;
}

/* ---- Repeats ---- */

struct context {
    struct row *row;
    struct bed *bed;
    struct span span; /* that is measured */
    uint64_t tables;  /* of a repeat, if every pass has one of its own */
    uint64_t budget;  /* ns of a repeat */
    double ns[REPEATS_MAX], floor_ns[REPEATS_MAX];
    struct samples *samples, *floor_samples; /* of each thread */
    struct timings *timings;                 /* of each thread, in this repeat */
    struct timings *repeat, *total;          /* of all threads: in this repeat, in all */
    void (*progress)(void *context, double part);
    void *progress_context;
};

static void repeat_start(const struct context *context, unsigned repeat) {
    if (context->progress != NULL)
        context->progress(context->progress_context, (repeat + 1.0) / (context->row->repeats + 1));
}

static void repeat_end(struct context *context, unsigned repeat) {
    struct row *row = context->row;

    context->ns[repeat] = samples_median(context->samples, row->threads);
    context->floor_ns[repeat] = samples_median(context->floor_samples, row->threads);
    if (!row->latency)
        return;
    memset(context->repeat, 0, sizeof(*context->repeat));
    for (unsigned i = 0; i < row->threads; i++) {
        histogram_merge(&context->repeat->call, &context->timings[i].call);
        histogram_merge(&context->repeat->empty, &context->timings[i].empty);
    }
    memset(context->timings, 0, row->threads * sizeof(*context->timings));
    tail_add(&row->call, &context->repeat->call, repeat == 0);
    tail_add(&row->empty, &context->repeat->empty, repeat == 0);
    histogram_merge(&context->total->call, &context->repeat->call);
    histogram_merge(&context->total->empty, &context->repeat->empty);
}

/* The span that is measured. Each call by itself needs no floor: it has the empty section. */
static struct span measured_span(const struct context *context) {
    return (struct span){
        .bed = context->bed,
        .run = context->bed->run,
        .floor = context->row->latency ? NULL : &floors[context->row->floor],
        .samples = context->samples,
        .floor_samples = context->floor_samples,
    };
}

static void ask(struct context *context, struct span *span) {
    if (context->row->bare) {
        span_run(span);
        return;
    }
    struct tally tally = span_ask(span);
    context->row->allowed += tally.allowed;
    context->row->refused += tally.ops - tally.allowed;
}

/* The span that draws from the sequence until a repeat's time, or a part of it, is over. */
static struct span sequence_span(const struct context *context, unsigned parts) {
    struct span span = measured_span(context);
    const struct row *row = context->row;

    /* No key may come to its limit, where requests become refusals: the repeats end before. Half of
     * them may be the floor's. */
    uint32_t fit = context->bed->kind->used_up ? STINT_LIMIT_MAX : context->bed->fit;
    double most = 0.45 * fit / sequence_top_share(row->distribution, row->keys) / row->threads /
                  REPEATS / parts;
    span.budget_ns = context->budget / parts;
    span.max_ops = most < 1 ? 1 : most < 1e15 ? (uint64_t)most : (uint64_t)1e15;
    return span;
}

/* Whether what the sequence asked of every key is what it has used. */
static bool audit_sequence(struct context *context) {
    struct bed *bed = context->bed;
    uint32_t *demand = must_have(calloc(bed->keys, sizeof(*demand)));

    /* What it was filled with: half a window's share of one token is one (STINT_SMOOTH). */
    uint32_t once = bed->path.cost * (bed->path.windows != 0 ? bed->path.windows : 1);
    uint32_t each = bed->path.leaves_nothing ? 0 : bed->path.cost;
    count_demand(bed, demand);
    for (uint64_t i = 0; i < bed->keys; i++)
        demand[i] = each * demand[i] + (bed_used_up(bed, i) ? bed->policy.limit + 1 : once);
    struct audit audit = {.bed = bed, .demand = demand, .epoch = context->span.epoch};
    bool good = audit_table(context->row, &audit);
    free(demand);
    return good;
}

/* Fills the table; a repeat is then `parts` of these spans. */
static void sequence_begin(struct context *context, unsigned parts) {
    uint64_t next = fill(context->bed);

    context->span = sequence_span(context, parts);
    context->span.epoch = next - 1;
}

static bool measure_sequence(struct context *context) {
    struct row *row = context->row;

    sequence_begin(context, 1);
    for (unsigned repeat = 0; repeat < row->repeats; repeat++) {
        repeat_start(context, repeat);
        ask(context, &context->span);
        repeat_end(context, repeat);
    }
    return row->bare || audit_sequence(context);
}

/* What every key was asked for in the last pass is what it has used. */
static bool audit_pass(struct context *context) {
    struct bed *bed = context->bed;
    uint32_t *demand = must_have(malloc(bed->keys * sizeof(*demand)));
    struct span last = context->span;

    for (uint64_t i = 0; i < bed->keys; i++)
        demand[i] = 1;
    last.epoch--;
    if (last.floor != NULL && last.floor->present)
        count_present(&last, demand);
    struct audit audit = {.bed = bed, .demand = demand, .epoch = last.epoch};
    bool good = audit_table(context->row, &audit);
    free(demand);
    return good;
}

/* Passes over all keys, each a window or a table of its own, workload and floor by turns. */
static void passes_begin(struct context *context) {
    const struct bed *bed = context->bed;
    uint64_t pass_ns = PASS_KEY_NS * bed->keys / bed->threads + 1;

    context->span = measured_span(context);
    context->span.epoch = fill(context->bed);
    context->span.once = true;
    context->span.passes = (context->budget + pass_ns - 1) / pass_ns;
    context->tables = 1;
    if (bed->kind->new_table) {
        context->tables = smaller(context->span.passes, TABLES_MAX);
        context->span.passes = 1;
    }
    if (pass_ns > context->budget)
        context->row->repeats = REPEATS_LONG;
}

static bool passes_repeat(struct context *context) {
    struct span *span = &context->span;
    struct bed *bed = context->bed;

    for (uint64_t table = 0; table < context->tables; table++) {
        if (bed->kind->new_table) {
            struct span first = {.bed = bed,
                                 .run = bed->before,
                                 .once = true,
                                 .passes = 1,
                                 .part = FIRST_PART,
                                 .epoch = span->epoch};
            bed_renew(bed);
            span_ask(&first);
            span->part = LAST_PART;
        }
        ask(context, span);
        span->epoch += span->passes;
        if (bed->kind->new_keys && !audit_pass(context))
            return false;
    }
    return true;
}

static bool measure_passes(struct context *context) {
    passes_begin(context);
    for (unsigned repeat = 0; repeat < context->row->repeats; repeat++) {
        repeat_start(context, repeat);
        if (!passes_repeat(context))
            return false;
        repeat_end(context, repeat);
    }
    return audit_pass(context);
}

/* All windows end at one instant, at which all threads stand ready; then as many draws as there are
 * keys. The first to ask for a key rolls it over, and threads may meet there. */
static bool measure_together(struct context *context) {
    struct span span = measured_span(context);
    struct row *row = context->row;
    struct bed *bed = context->bed;
    uint64_t epoch = fill(bed);
    uint32_t *demand = must_have(calloc(bed->keys, sizeof(*demand)));

    span.budget_ns = UINT64_MAX;
    span.max_ops = (bed->keys + row->threads - 1) / row->threads;
    uint64_t windows = 1 + context->budget / (ALONE_NS * span.max_ops);
    for (unsigned repeat = 0; repeat < row->repeats; repeat++) {
        repeat_start(context, repeat);
        for (uint64_t i = 0; i < windows; i++) {
            memset(bed->position, 0, sizeof(bed->position));
            span.epoch = epoch++;
            ask(context, &span);
        }
        repeat_end(context, repeat);
    }
    count_demand(bed, demand); /* in the last window */
    struct audit audit = {.bed = bed, .demand = demand, .epoch = epoch - 1};
    bool good = audit_table(row, &audit);
    free(demand);
    return good;
}

/* ---- A row ---- */

static void context_open(struct context *context) {
    struct row *row = context->row;

    context->samples = must_have(calloc(row->threads, sizeof(*context->samples)));
    context->floor_samples = must_have(calloc(row->threads, sizeof(*context->floor_samples)));
    if (!row->latency)
        return;
    ticks_open();
    context->timings = must_have(calloc(row->threads, sizeof(*context->timings)));
    context->repeat = must_have(calloc(1, sizeof(*context->repeat)));
    context->total = must_have(calloc(1, sizeof(*context->total)));
    for (unsigned i = 0; i < row->threads; i++)
        context->bed->chunks[i].timings = &context->timings[i];
}

static void context_close(struct context *context) {
    samples_median(context->samples, context->row->threads);
    samples_median(context->floor_samples, context->row->threads);
    free(context->samples);
    free(context->floor_samples);
    free(context->timings);
    free(context->repeat);
    free(context->total);
}

/* Threads that run at once. */
static unsigned running(const struct row *row) {
    return row->threads < team_cores() ? row->threads : team_cores();
}

static void row_result(struct context *context) {
    struct row *row = context->row;
    double ratio[REPEATS_MAX], unused;

    if (row->latency) {
        tail_total(&row->call, &context->total->call);
        tail_total(&row->empty, &context->total->empty);
        row->calls = context->total->call.count;
        return;
    }
    for (unsigned i = 0; i < row->repeats; i++)
        ratio[i] = context->ns[i] / context->floor_ns[i];
    summarize(ratio, row->repeats, &row->ratio, &row->ratio_min, &row->ratio_max);
    summarize(context->ns, row->repeats, &row->ns_per_op, &row->ns_min, &row->ns_max);
    summarize(context->floor_ns, row->repeats, &row->floor_ns, &row->floor_min, &unused);
    row->mops = running(row) * 1000.0 / row->ns_per_op;
}

/* What of a row each key is granted while it is timed. */
static uint32_t timed_fit(const struct row *row) {
    const struct path *path = workloads[row->workload].path;

    if (workloads[row->workload].used_up)
        return 10;
    if (path == NULL)
        return STINT_LIMIT_MAX;
    return (path->policy_flags & STINT_SMOOTH) != 0 ? SMOOTH_LIMIT_MAX : PATH_FIT;
}

/* A repeat of two rows by turns: their passes, or slices of it, so that what disturbs the one
 * disturbs the other. */
static void repeat_beside(struct context contexts[2], unsigned slices) {
    if (!contexts[0].bed->kind->each_once)
        for (unsigned slice = 0; slice < 2 * slices; slice++)
            ask(&contexts[slice % 2], &contexts[slice % 2].span);
    else
        for (unsigned i = 0; i < 2; i++)
            contexts[i].row->checked = passes_repeat(&contexts[i]);
}

void rows_measure_beside(struct row *a, struct row *b, double seconds, struct ratio *ratio) {
    struct row *rows[2] = {a, b};
    struct bed *beds = must_have(calloc(2, sizeof(*beds)));
    struct context *contexts = must_have(calloc(2, sizeof(*contexts)));
    bool renew = workloads[a->workload].path != NULL && a->keys <= PATH_FEW;
    unsigned repeats = renew ? REPEATS_MAX : REPEATS;
    uint64_t budget = (uint64_t)(seconds * 1e9 / repeats);
    unsigned slices = (unsigned)smaller(budget / SLICE_NS + 1, SLICES);
    double ratios[REPEATS_MAX];

    a->checked = rehearse(a);
    b->checked = rehearse(b);
    for (unsigned i = 0; i < 2; i++) {
        rows[i]->repeats = repeats;
        contexts[i] = (struct context){.row = rows[i], .bed = &beds[i], .budget = budget};
        bed_open(&beds[i], rows[i], rows[i]->keys, timed_fit(rows[i]));
        context_open(&contexts[i]);
        if (beds[i].kind->each_once)
            passes_begin(&contexts[i]);
        else
            sequence_begin(&contexts[i], slices);
    }
    bool good = a->checked && b->checked;
    for (unsigned repeat = 0; good && repeat < a->repeats; repeat++) {
        for (unsigned i = 0; renew && repeat > 0 && i < 2; i++) {
            bed_renew(&beds[i]);
            fill(&beds[i]);
        }
        repeat_beside(contexts, slices);
        for (unsigned i = 0; i < 2; i++) {
            repeat_end(&contexts[i], repeat);
            if (!beds[i].kind->each_once && (renew || repeat + 1 == a->repeats))
                rows[i]->checked = audit_sequence(&contexts[i]);
        }
        good = a->checked && b->checked;
        ratios[repeat] = contexts[1].ns[repeat] / contexts[0].ns[repeat];
    }
    for (unsigned i = 0; i < 2; i++) {
        rows[i]->preempted = beds[i].preempted;
        bed_close(&beds[i]);
        if (good)
            row_result(&contexts[i]);
        context_close(&contexts[i]);
    }
    if (good)
        summarize(ratios, a->repeats, &ratio->median, &ratio->min, &ratio->max);
    free(beds);
    free(contexts);
}

/* A path, by turns with what it is measured beside. A table's place in memory can make half as much
 * again of a decision in cache: so there every repeat has tables of its own, and the fastest one
 * counts. */
static void measure_path(struct row *row, double seconds) {
    const struct workload_kind *kind = &workloads[row->workload];
    struct row beside;
    struct ratio ratio = {0};

    row->floor = kind->path->locked; /* in turn; the other one is beside */
    beside = *row;
    beside.beside = true;
    beside.stripes = 0;
    rows_measure_beside(&beside, row, seconds / 2, &ratio);
    row->locked_ns = row->floor_min;
    row->floor = kind->floor;
    row->floor_ns = beside.ns_min;
    row->ns_per_op = row->ns_min;
    row->mops = running(row) * 1000.0 / row->ns_per_op;
    row->ratio = row->ns_per_op / row->floor_ns;
    row->ratio_min = ratio.min;
    row->ratio_max = ratio.max;
    row->preempted += beside.preempted;
    if (row->checked && !beside.checked) {
        row->checked = false;
        memcpy(row->wrong, beside.wrong, sizeof(row->wrong));
    }
}

void row_measure(struct row *row, double seconds, uint64_t cache,
                 void (*progress)(void *context, double part), void *progress_context) {
    struct bed bed;
    struct context context = {
        .row = row,
        .bed = &bed,
        .budget = (uint64_t)(seconds * 1e9 / REPEATS),
        .progress = progress,
        .progress_context = progress_context,
    };
    const struct workload_kind *kind = &workloads[row->workload];

    if (kind->path != NULL) {
        measure_path(row, seconds);
        return;
    }
    row->repeats = REPEATS;
    row->checked = rehearse(row);
    if (!row->checked)
        return;
    bed_open(&bed, row, row->keys, timed_fit(row));
    context_open(&context);
    bool far = bed.floor_bytes > FAR * (cache != 0 ? cache : UINT64_C(32) << 20) &&
               row->distribution != HOT;
    if (!row->floor_given)
        row->floor = far ? kind->far_floor : kind->floor;
    row->checked = kind->each_once ? measure_passes(&context)
                   : kind->windows ? measure_together(&context)
                                   : measure_sequence(&context);
    row->preempted = bed.preempted;
    bed_close(&bed);
    if (row->checked)
        row_result(&context);
    context_close(&context);
}
