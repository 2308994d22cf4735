/* SPDX-License-Identifier: MIT
 * For tests that make a table for each of 100,000 plays: memory that is given back is kept, and
 * taken again. Else most of their time goes to the kernel, which gives and takes the same pages.
 *
 * Linked with --wrap for mmap64 and munmap. A table that is touched after it was closed faults in
 * the other tests, not here. */
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#include "wrapped.h"

#define MOST    8
#define LARGEST ((size_t)1 << 20)

/* One thread at a time maps memory in these tests. */
static struct kept {
    char *start; /* NULL: none */
    size_t size;
    bool free;
} all[MOST];

/* What is mapped here otherwise is kept no longer. */
static void forget(const char *start, size_t size) {
    for (struct kept *kept = all; kept < all + MOST; kept++) {
        if (kept->start != NULL && start < kept->start + kept->size && kept->start < start + size)
            kept->start = NULL;
    }
}

WRAPPED(void *, mmap64, void *where, size_t size, int protection, int flags, int file,
        off_t offset) {
    const bool plain = where == NULL && file == -1 && protection == (PROT_READ | PROT_WRITE) &&
                       (flags & MAP_PRIVATE) != 0 && size <= LARGEST;
    for (struct kept *kept = all; plain && kept < all + MOST; kept++) {
        if (kept->start != NULL && kept->free && kept->size == size) {
            kept->free = false;
            return memset(kept->start, 0, size);
        }
    }
    char *start = __real_mmap64(where, size, protection, flags, file, offset);
    if (start == MAP_FAILED)
        return start;
    forget(start, size);
    for (struct kept *kept = all; plain && kept < all + MOST; kept++) {
        if (kept->start == NULL) {
            *kept = (struct kept){start, size, false};
            break;
        }
    }
    return start;
}

WRAPPED(int, munmap, void *start, size_t size) {
    for (struct kept *kept = all; kept < all + MOST; kept++) {
        if (kept->start == start && kept->size == size) {
            kept->free = true;
            return 0;
        }
    }
    forget(start, size);
    return __real_munmap(start, size);
}
