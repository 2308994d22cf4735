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

#define MAPPING_TAKEN 1

/* Most processes have no more tables than are in the first chunk. Others are added, and stay. */
enum { CHUNK = 16 };

static struct chunk {
    struct mapping entries[CHUNK];
    struct chunk *next;
} first;

static struct chunk *chunk_after(const struct chunk *chunk) {
    const uint64_t *next = (const uint64_t *)(const void *)&chunk->next;
    return (struct chunk *)(uintptr_t)atomic_load_acquire(next);
}

/* Adds one behind the last. Returns false if there is no memory. */
static bool chunk_add(struct chunk *last) {
    struct chunk *made = calloc(1, sizeof(*made));

    if (made != NULL && !atomic_cas_seq((uint64_t *)(void *)&last->next, 0, (uintptr_t)made))
        free(made); /* another thread has added one */
    return made != NULL;
}

/* Finds an entry that is nobody's. */
static struct mapping *entry_take(void) {
    for (struct chunk *chunk = &first; chunk != NULL; chunk = chunk_after(chunk)) {
        for (size_t i = 0; i < CHUNK; i++)
            if (atomic_cas_seq(&chunk->entries[i].start, 0, MAPPING_TAKEN))
                return &chunk->entries[i];
        if (chunk_after(chunk) == NULL && !chunk_add(chunk))
            break;
    }
    return NULL;
}

struct mapping *stint_mapping_list(void *start, size_t size, int access) {
    struct mapping *entry = entry_take();

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
    for (struct chunk *chunk = &first; chunk != NULL; chunk = chunk_after(chunk)) {
        for (size_t i = 0; i < CHUNK; i++) {
            struct mapping *entry = &chunk->entries[i];
            const uint64_t start = atomic_load_acquire(&entry->start);
            const uint64_t size = atomic_load_acquire(&entry->size);
            if (start > MAPPING_TAKEN && at - start < size &&
                atomic_load_relaxed(&entry->start) == start)
                return entry;
        }
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
