/* SPDX-License-Identifier: MIT
 * Rows to measure, one after the other. */
#ifndef STINT_BENCH_PLAN_H
#define STINT_BENCH_PLAN_H

#include <stdbool.h>
#include <stddef.h>

#include "machine.h"
#include "output.h"
#include "report.h"
#include "row.h"

struct plan {
    const char *command;
    struct row *rows;
    size_t n;
    bool selected; /* by us: what does not fit this machine is left out, not refused */
};

/* A row with all that is usual: one thread, 16 bytes, a load of 0.5, one policy. */
struct row plan_row(enum workload workload, enum distribution distribution, uint64_t keys);

void plan_add(struct plan *plan, const struct row *row);

/* Rows that this machine cannot measure are refused if they were asked for, else left out, and
 * said. Returns an exit code. */
int plan_fit(struct plan *plan, const struct machine *machine);

/* Measures all rows and reports them. Returns an exit code. */
int plan_run(const struct plan *plan, enum report_kind kind, struct output *output, double seconds,
             const struct machine *machine);

#endif
