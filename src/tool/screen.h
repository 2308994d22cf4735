/* SPDX-License-Identifier: MIT
 * A terminal that shows one page after the other, and is asked by keys. What stood on it comes back
 * when that ends, however it ends: by a key, or by a signal. */
#ifndef STINT_TOOL_SCREEN_H
#define STINT_TOOL_SCREEN_H

#include <stdint.h>

/* What a wait ends with: a character that was typed, or one of these. */
enum {
    SCREEN_TIME = -3, /* the time has come */
    SCREEN_SIZE = -2, /* the terminal has another size */
    SCREEN_END = -1,  /* a signal ends the program, which screen_end lets happen */
    SCREEN_UP = 256,
    SCREEN_DOWN,
    SCREEN_PAGE_UP,
    SCREEN_PAGE_DOWN,
    SCREEN_HOME,
    SCREEN_BOTTOM, /* the key End */
};

void screen_begin(void);
void screen_end(void);

/* Waits for a key until an instant, ns of the monotonic clock. */
int screen_wait(uint64_t until_ns);

struct screen_size {
    unsigned rows, columns;
};
struct screen_size screen_size(void);

/* Columns of a cell in a table of a page: a third, but a key's hash fits. */
static inline unsigned cell_columns(unsigned columns) {
    return columns < 48 ? 16 : columns / 3;
}

#endif
