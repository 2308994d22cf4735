/* SPDX-License-Identifier: MIT
 * What a histogram of times is told by. */
#ifndef STINT_BENCH_TAIL_H
#define STINT_BENCH_TAIL_H

#include <jansson.h>

#include "histogram.h"

/* ns: half of the times are no longer, 90%, 99%, 99.9%, 99.99%, and all. */
json_t *tail_answer(const struct histogram *histogram);

#endif
