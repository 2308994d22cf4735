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

/* The number of digits, so that a column is as wide as one. */
static char cell(uint64_t count, bool possible) {
    if (!possible)
        return count == 0 ? '-' : '!';
    char digits = '0';
    for (; count > 0; count /= 10)
        digits++;
    return digits == '0' ? ' ' : digits;
}

/* One table. `possible` says of a cell whether stint.h lets the two meet. */
static unsigned print_table(const char *title, const uint64_t *counts, unsigned rows,
                            const char *const *row_names, unsigned columns,
                            const char *const *column_names, bool (*possible)(unsigned, unsigned)) {
    unsigned empty = 0;
    printf("\n%s\n%44s ", title, "");
    for (unsigned column = 0; column < columns; column++)
        printf("%c", (int)(column < 26 ? 'a' + column : 'A' + column - 26));
    printf("\n");
    for (unsigned row = 0; row < rows; row++) {
        printf("%c %-42s ", (int)(row < 26 ? 'a' + row : 'A' + row - 26), row_names[row]);
        for (unsigned column = 0; column < columns; column++)
            printf("%c", cell(counts[row * columns + column], possible(row, column)));
        printf("\n");
        for (unsigned column = 0; column < columns; column++)
            empty += possible(row, column) && counts[row * columns + column] == 0;
    }
    for (unsigned column = 0; columns != rows && column < columns; column++)
        printf("%44s %c %s\n", "", (int)('a' + column), column_names[column]);
    for (unsigned row = 0; row < rows; row++)
        for (unsigned column = 0; column < columns; column++)
            if (possible(row, column) && counts[row * columns + column] == 0)
                printf("never met: %s | %s\n", row_names[row], column_names[column]);
    return empty;
}

static bool all_meet(unsigned one, unsigned other) {
    (void)one, (void)other;
    return true;
}

unsigned pairs_print(void) {
    printf(
        "Digits are the lengths of the counts; '-': stint.h rules it out, and ' ': never met.\n");
    unsigned empty = print_table("At the same moment", &pairs->functions[0][0], FUNCTIONS_END,
                                 function_names, FUNCTIONS_END, function_names, functions_meet);
    empty += print_table("In one request and its policy", &pairs->features[0][0], FEATURES_END,
                         feature_names, FEATURES_END, feature_names, features_fit);
    empty += print_table("In two requests of a group", &pairs->groups[0][0], FEATURES_END,
                         feature_names, FEATURES_END, feature_names, all_meet);
    empty += print_table("While a request is decided", &pairs->events[0][0], FEATURES_END,
                         feature_names, EVENTS_END, event_names, all_meet);
    printf("\nRuled out: open_in beside open, attach and resize: a table is in memory or a file\n");
    return empty;
}
