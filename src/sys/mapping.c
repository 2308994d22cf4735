/* SPDX-License-Identifier: MIT
 * The list of mappings, and what a signal handler does with it.
 *
 * A handler may run at any time, beside all other threads. So the list takes no lock. Its entries
 * are never freed: the next mapping takes the place of one that is gone. A handler that reads an
 * entry while it changes hands reads its start twice. A mapping in which a thread faults is there
 * meanwhile, and no other one has a part of its memory.
 *
 * Threads may be in the middle of any call when zeros take the place of the table, or be so once
 * more, if several lose it at one instant. They find what is in a table that was written over: no
 * policy, and slots that were never used. The lock for set-up is free then, and whoever held it
 * gives it back as any other lock (memory.c, stint_memory_free). */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <stint.h>

#include "sys/atomic.h"
#include "sys/mapping.h"

#define MAPPING_CLAIMED 1

/* Most processes have no more tables than these. Others are added behind the last, and stay. */
static struct mapping first[16];
static struct mapping *const last = &first[sizeof(first) / sizeof(first[0]) - 1];

static struct mapping *mapping_after(struct mapping *entry) {
    if ((uintptr_t)entry - (uintptr_t)first < sizeof(first) && entry != last)
        return entry + 1;
    return (struct mapping *)(uintptr_t)atomic_load_acquire(&entry->next);
}

/* Finds an entry that is nobody's, or makes one. Returns NULL if there is no memory. */
static struct mapping *entry_claim(void) {
    for (struct mapping *entry = first; entry != NULL; entry = mapping_after(entry))
        if (atomic_cas_seq(&entry->start, 0, MAPPING_CLAIMED))
            return entry;
    struct mapping *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return NULL;
    made->start = MAPPING_CLAIMED;
    do
        made->next = atomic_load_relaxed(&last->next);
    while (!atomic_cas_seq(&last->next, made->next, (uintptr_t)made));
    return made;
}

struct mapping *stint_mapping_list(void *start, size_t size, int access) {
    struct mapping *entry = entry_claim();

    if (entry == NULL)
        return NULL;
    entry->deciding = NULL;
    entry->access = access;
    atomic_store_relaxed(&entry->lost, 0);
    atomic_store_release(&entry->size, size);
    atomic_store_release(&entry->start, (uintptr_t)start);
    return entry;
}

bool stint_mapping_forget(struct mapping *mapping) {
    const bool lost = atomic_load_relaxed(&mapping->lost) != 0;
    atomic_store_release(&mapping->start, 0);
    return lost;
}

bool stint_mapping_lose(struct mapping *mapping) {
    const int before = errno;
    void *start = (void *)(uintptr_t)atomic_load_acquire(&mapping->start);

    if (atomic_load_acquire(&mapping->lost) != 0)
        return true;
    const void *again = mmap(start, mapping->size, mapping->access,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    if (again == MAP_FAILED) {
        errno = before;
        return false;
    }
    if (mapping->deciding != NULL)
        atomic_store_relaxed_32(mapping->deciding, 0);
    atomic_store_release(&mapping->lost, 1);
    return true;
}

/* The mapping that has this address; NULL: none. */
static struct mapping *mapping_of(uint64_t at) {
    for (struct mapping *entry = first; entry != NULL; entry = mapping_after(entry)) {
        const uint64_t start = atomic_load_acquire(&entry->start);
        const uint64_t size = atomic_load_acquire(&entry->size);
        if (start > MAPPING_CLAIMED && at - start < size &&
            atomic_load_relaxed(&entry->start) == start)
            return entry;
    }
    return NULL;
}

bool stint_on_sigbus(const void *fault) {
    const siginfo_t *about = fault;

    if (about == NULL || about->si_code != BUS_ADRERR)
        return false;
    struct mapping *mapping = mapping_of((uintptr_t)about->si_addr);
    return mapping != NULL && stint_mapping_lose(mapping);
}
