/* SPDX-License-Identifier: MIT
 * Memory as a limiter takes it, so that what is compared with it has the same pages. */
#ifndef STINT_BENCH_PAGES_H
#define STINT_BENCH_PAGES_H

#include <stddef.h>

/* Maps zeroed memory, on huge pages as far as it fills some and the system has them, and touches
 * all of it. Returns NULL if there is none. */
void *pages_map(size_t size);
void pages_unmap(void *memory, size_t size); /* NULL is allowed */

/* Returns `memory`, or ends the process if it is none (NULL, MAP_FAILED): who asks for
 * much has looked before whether there is enough, so this is rare. */
void *must_have(void *memory);

#endif
