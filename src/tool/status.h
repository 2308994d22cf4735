/* SPDX-License-Identifier: MIT
 * The status of a table, in one writer for all who show it. */
#ifndef STINT_TOOL_STATUS_H
#define STINT_TOOL_STATUS_H

#include "report.h"
#include "sample.h"

/* before: rates are since that; one without time: none are told. */
void status_print(struct report *report, const struct arguments *arguments,
                  const struct sample *sample, const struct sample *before);

/* Whether so much of it is taken that people are told. */
static inline bool nearly_full(uint64_t taken, uint64_t of) {
    return taken >= of - of / 5 && taken != 0;
}

#endif
