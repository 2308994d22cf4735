/* SPDX-License-Identifier: MIT
 * What met in the worlds, and what did not. */
#include <stdio.h>
#include <string.h>

#include "world.h"

const char *const function_names[] = {
#define FUNCTION(name, text) text,
    FUNCTIONS(FUNCTION)
#undef FUNCTION
};
static const char *const feature_names[] = {
#define FEATURE(name, text) text,
    FEATURES(FEATURE)
#undef FEATURE
};
static const char *const event_names[] = {
#define EVENT(name, text) text,
    EVENTS(EVENT)
#undef EVENT
};

static bool functions_meet(unsigned one, unsigned other) {
    const uint64_t of_file = UINT64_C(1) << F_OPEN | UINT64_C(1) << F_ATTACH |
                             UINT64_C(1) << F_READER | UINT64_C(1) << F_RESIZE;
    return !((one == F_OPEN_IN && (of_file >> other & 1) != 0) ||
             (other == F_OPEN_IN && (of_file >> one & 1) != 0));
}

static bool all_meet(unsigned one, unsigned other) {
    (void)one, (void)other;
    return true;
}

/* Names the cells of a table that are empty. `possible` says whether stint.h lets the two meet. */
static unsigned count_empty(const char *where, const uint64_t *counts, unsigned rows,
                            const char *const *row_names, unsigned columns,
                            const char *const *column_names, bool (*possible)(unsigned, unsigned)) {
    unsigned empty = 0;
    for (unsigned row = 0; row < rows; row++)
        for (unsigned column = 0; column < columns; column++)
            if (possible(row, column) && counts[row * columns + column] == 0) {
                printf("never met %s: %s | %s\n", where, row_names[row], column_names[column]);
                empty++;
            }
    return empty;
}

unsigned pairs_never_met(void) {
    return count_empty("at the same moment", &pairs->functions[0][0], FUNCTIONS_END, function_names,
                       FUNCTIONS_END, function_names, functions_meet) +
           count_empty("in one request and its policy", &pairs->features[0][0], FEATURES_END,
                       feature_names, FEATURES_END, feature_names, features_fit) +
           count_empty("in two requests of a group", &pairs->groups[0][0], FEATURES_END,
                       feature_names, FEATURES_END, feature_names, all_meet) +
           count_empty("while a request is decided", &pairs->events[0][0], FEATURES_END,
                       feature_names, EVENTS_END, event_names, all_meet);
}
