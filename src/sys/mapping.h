/* SPDX-License-Identifier: MIT
 * Mappings of tables' files. Whoever may write to a file can cut it off, and who then looks at what
 * is gone gets a SIGBUS. A list of all mappings tells whether that was a table's. If so, it is
 * lost: zeros, of this process alone, take its place. */
#ifndef STINT_MAPPING_H
#define STINT_MAPPING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mapping {
    uint64_t start;     /* its address; 0: nobody's; 1: about to be somebody's */
    uint64_t size;      /* bytes */
    uint64_t lost;      /* 1: it is */
    uint32_t *deciding; /* of the limiter, which decides nothing once it is lost (limiter.h) */
    int access;         /* of mmap */
    uint64_t next;      /* the address of one that was added; 0: none */
};

/* Lists a mapping. Returns NULL if there is no memory. */
struct mapping *stint_mapping_list(void *start, size_t size, int access);

/* Takes it off the list, before it is unmapped. Returns whether it was lost. */
bool stint_mapping_forget(struct mapping *mapping);

/* Makes it a lost one. It may be so already. For signal handlers, too. Returns false if the system
 * has no memory for it. */
bool stint_mapping_lose(struct mapping *mapping);

#endif
