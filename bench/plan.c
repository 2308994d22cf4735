/* SPDX-License-Identifier: MIT */
#include "plan.h"

#include <stdio.h>
#include <stdlib.h>

#include "bed.h"
#include "common.h"
#include "measure.h"
#include "team.h"

struct row plan_row(enum workload workload, enum distribution distribution, uint64_t keys) {
    const struct path *path = workloads[workload].path;

    return (struct row){
        .workload = workload,
        .distribution = distribution,
        .keys = keys,
        .threads = 1,
        .key_length = 16,
        .load = 0.5,
        .policies = 1,
        .stripes = path != NULL ? path->stripes : 0,
    };
}

void plan_add(struct plan *plan, const struct row *row) {
    plan->rows = must_have(realloc(plan->rows, (plan->n + 1) * sizeof(*plan->rows)));
    plan->rows[plan->n++] = *row;
}

int plan_fit(struct plan *plan, const struct machine *machine) {
    size_t kept = 0;
    unsigned most = 0;

    for (size_t i = 0; i < plan->n; i++) {
        struct row *row = &plan->rows[i];
        double need = (double)row_memory(row) / 0x1p30, have = (double)machine->available / 0x1p30;
        char keys[24];
        format_count(row->keys, keys, sizeof(keys));
        if (row->threads > TEAM_MAX)
            return usage_error(plan->command, "--threads %u: at most %d", row->threads, TEAM_MAX);
        if (need > have && !plan->selected)
            return usage_error(plan->command,
                               "--keys %s needs %.1f GiB of memory, and %.1f GiB are free", keys,
                               need, have);
        if (row->threads > machine->cores && plan->selected) {
            fprintf(stderr, "left out: %s with %u threads, there are %u cores\n",
                    workloads[row->workload].name, row->threads, machine->cores);
        } else if (need > have) {
            fprintf(stderr, "left out: %s of %s keys, it needs %.1f GiB and %.1f GiB are free\n",
                    workloads[row->workload].name, keys, need, have);
        } else {
            most = row->threads > most ? row->threads : most;
            plan->rows[kept++] = *row;
        }
    }
    plan->n = kept;
    if (most > machine->cores)
        fprintf(stderr,
                "note: %u threads on %u %s take turns: this shows that they cost nothing more, not "
                "how they scale\n",
                most, machine->cores, machine->cores == 1 ? "core" : "cores");
    return EXIT_GOOD;
}

struct view {
    struct progress progress;
    char label[48];
    size_t row;
};

enum { PARTS = 1000 }; /* of a row, in the progress bar */

static void show_part(void *context, double part) {
    struct view *view = context;
    progress_update(&view->progress, view->row * PARTS + (uint64_t)(part * PARTS));
}

int plan_run(const struct plan *plan, enum report_kind kind, struct output *output, double seconds,
             const struct machine *machine) {
    struct report report;
    struct view view = {.row = 0};
    int result = EXIT_GOOD;

    report_start(&report, kind, output, machine, seconds);
    for (size_t i = 0; i < plan->n; i++) {
        struct row *row = &plan->rows[i];
        char keys[24];
        format_count(row->keys, keys, sizeof(keys));
        snprintf(view.label, sizeof(view.label), "%s, %s keys, %u %s",
                 workloads[row->workload].name, keys, row->threads,
                 row->threads == 1 ? "thread" : "threads");
        view.row = i;
        progress_start(&view.progress, view.label, plan->n * PARTS);
        show_part(&view, 0);
        row_measure(row, seconds, machine->cache, show_part, &view);
        progress_end(&view.progress);
        if (!row->checked) {
            fprintf(stderr, "stint-bench %s: %s: wrong answers: %s\n", plan->command, view.label,
                    row->wrong);
            result = EXIT_FAILED;
        }
        report_row(&report, row);
    }
    int ended = report_end(&report);
    return ended != EXIT_GOOD ? ended : result;
}
