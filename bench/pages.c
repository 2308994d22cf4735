/* SPDX-License-Identifier: MIT */
#include "pages.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)

void *pages_map(size_t size) {
    size_t slack = size >= HUGE_PAGE ? HUGE_PAGE : 0;
    char *base =
        mmap(NULL, size + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (base == MAP_FAILED)
        return NULL;
    if (slack != 0) {
        /* It starts on a huge page, and what stands over at both ends is given back. */
        size_t before = -(uintptr_t)base % HUGE_PAGE;
        if (before != 0)
            munmap(base, before);
        base += before;
        size_t pages = (size + 4095) & ~(size_t)4095;
        if (pages < size + slack - before)
            munmap(base + pages, size + slack - before - pages);
        (void)madvise(base, size, MADV_HUGEPAGE);
    }
    memset(base, 0, size);
    return base;
}

void pages_unmap(void *memory, size_t size) {
    if (memory != NULL)
        munmap(memory, size);
}

void *must_have(void *memory) {
    if (memory == NULL || memory == MAP_FAILED) {
        fputs("stint-bench: there is no memory left\n", stderr);
        exit(EXIT_FAILURE);
    }
    return memory;
}
