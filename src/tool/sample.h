/* SPDX-License-Identifier: MIT
 * What a table counted up to an instant. Commands attach to it for reading only, which no writer
 * notices. */
#ifndef STINT_TOOL_SAMPLE_H
#define STINT_TOOL_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

#include <stint.h>

#include "attach.h"

struct sample {
    uint64_t at_ns; /* of the monotonic clock; 0: there is no sample */
    uint64_t now;   /* of the table's clock */
    struct stint_stats stats;
    struct policies policies;
    struct stint_policy_stats *counts; /* of each policy, by id */
};

/* Looks at a table. `scan`: at its slots, too. */
int sample_take(struct sample *sample, const struct arguments *arguments, bool scan);
void sample_free(struct sample *sample);

void sleep_until(uint64_t at_ns);

/* How much a count grew in a second. A table that was made anew has smaller counts. */
static inline double rate(const struct sample *before, const struct sample *after, uint64_t from,
                          uint64_t to) {
    return to <= from ? 0 : (double)(to - from) * 1e9 / (double)(after->at_ns - before->at_ns);
}

/* The counts of a policy in an earlier sample. */
const struct stint_policy_stats *counts_at(const struct sample *sample, uint32_t id);

#endif
