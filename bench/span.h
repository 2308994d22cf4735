/* SPDX-License-Identifier: MIT
 * Stretches of work by all threads of a bed: passes over all keys, or draws from the sequence. */
#ifndef STINT_BENCH_SPAN_H
#define STINT_BENCH_SPAN_H

#include "bed.h"

/* A job: runs spans, by turns, as many times as asked, and tells what all threads did in each. */
json_t *spans_run(json_t *asked);

/* Adds to demand what a pass of the epoch asked of each key, by a floor that asks for keys that are
 * there ("present": in a pass over that part of them). */
void count_present(const struct bed *bed, json_t *asked, uint32_t *demand);

#endif
