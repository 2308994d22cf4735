/* SPDX-License-Identifier: MIT
 * What a number depends on: the machine, and how the program was built. */
#ifndef STINT_BENCH_MACHINE_H
#define STINT_BENCH_MACHINE_H

#include <stdint.h>

struct machine {
    char cpu[128];
    char kernel[128];
    char huge_pages[32]; /* transparent huge pages: always, madvise, never or unknown */
    unsigned cores;      /* that this process may run on */
    uint64_t memory;     /* bytes */
    uint64_t available;  /* bytes that can be had now, a control group's limit included */
    uint64_t cache;      /* bytes of the last-level cache; 0: unknown */
};

void machine_read(struct machine *machine);

extern const char build_commit[]; /* "unknown" outside a git checkout */
extern const char build_compiler[];
extern const char build_flags[];

#endif
