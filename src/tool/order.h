/* SPDX-License-Identifier: MIT
 * Which lines of a log stand far from where their times belong. */
#ifndef STINT_TOOL_ORDER_H
#define STINT_TOOL_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A request is logged when it begins or when it ends, so a line is late by the time that a request
 * takes: seconds, or hours for a download. None takes a day, and a wrong time zone is a day at
 * most. A server may be idle for longer: then the time goes ahead, and stays there. */
#define ORDER_FAR_NS UINT64_C(86400000000000)

/* Lines that follow each other, none further than ORDER_FAR_NS from the one before. */
struct run {
    uint64_t first_ns, last_ns; /* times of its first and of its last line */
    uint64_t line, last_line;   /* their numbers */
    uint64_t count;             /* of lines that can be read, at least 1 */
    bool kept;
    size_t before; /* of those that are kept with it */
    uint64_t weight;
};

/* Says of each run whether it is kept: those that are begin where the one before ended, or later
 * (or at most ORDER_FAR_NS earlier), and no other choice keeps more lines. Of equal choices
 * the one that ends later in the log is kept. Cost: n log n. */
void order_runs(struct run *runs, size_t n);

#endif
