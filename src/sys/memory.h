/* SPDX-License-Identifier: MIT
 * Where the memory of a table comes from: private, or a file that processes share. Functions that
 * can fail return 0, or -errno with a reason noted. */
#ifndef STINT_MEMORY_H
#define STINT_MEMORY_H

#include <errno.h>
#include <time.h>

#include <stint.h>

#define HUGE_PAGE  ((size_t)2 << 20) /* bytes, on x86-64 and on aarch64 with 4 KiB pages */
#define SMALL_PAGE ((size_t)4096)    /* the smallest page of any supported system */

/* A set-up call waits for another, which may have been stopped, so many ms: then it is -EBUSY. */
#define SET_UP_TRIES 10000

/* 1 ms, until a time: the rest of nanosleep has some slack, so many signals would be no end. */
static inline void set_up_pause(void) {
    const int64_t second = 1000000000;
    struct timespec until;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += second / 1000;
    until.tv_sec += until.tv_nsec / second;
    until.tv_nsec %= second;
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
}

struct mapping {
    uint64_t start;     /* its address; 0: nobody's; 1: about to be somebody's */
    uint64_t size;      /* bytes */
    uint64_t lost;      /* 1: it is */
    uint32_t *deciding; /* of the limiter, which decides nothing once it is lost (limiter.h) */
    int access;         /* of mmap */
    uint64_t next;      /* the address of one that was added; 0: none */
};

struct memory {
    char *start; /* NULL: none yet */
    size_t size; /* bytes: of the opened file; once it is mapped, of that */
    int file;    /* of options.path, with a lock for as long as it is open; -1: none */
    bool mapped; /* it is ours to unmap */
    bool shared; /* other processes may use it */
    bool alone;  /* nobody else does before stint_memory_file_share */
    bool read_only;
    bool copy;               /* what is written does not come into the file */
    char *path;              /* of the file, from the root on; NULL: none, or not known */
    struct mapping *mapping; /* of the file; NULL: none */
};

/* Maps the file, or zeroed memory. What is from `lines` on begins a huge page, if it fills one. */
int stint_memory_map(struct memory *memory, size_t size, size_t lines, uint32_t flags);

/* Makes the system give the memory now, if `flags` have STINT_PREFAULT; what is in it stays. */
int stint_memory_prefault(const struct memory *memory, uint32_t flags);

void stint_memory_free(struct memory *memory);

/* Makes a mapping a lost one, in signal handlers, too. False: the system has no memory for it. */
bool stint_mapping_lose(struct mapping *mapping);

/* Opens a file that is there, and locks it unless it is read only: `alone` if no other process has
 * it open. The path still leads to it then. -ENOENT, without a reason: there is no file. */
int stint_memory_file_open(struct memory *memory, const char *path, bool read_only);

/* Returns -EBUSY: says what another process does that has a lock of the file, and names it. */
int stint_memory_file_held(int file, const char *does);

int stint_memory_file_read(const struct memory *memory, void *bytes, size_t length);

/* Reserves the blocks of a file of `size` bytes that it has not got. */
int stint_memory_file_reserve(const struct memory *memory, size_t size);

/* Makes a file without a name for `path`, of this mode, with all blocks reserved, and locks it. */
int stint_memory_file_make(struct memory *memory, const char *path, uint32_t mode, size_t size);

/* Brings the first bytes of the file that was made, all that was written, to the disk. Then gives
 * it its name: a crash leaves a whole table or none. -EEXIST, without a reason: another has it. */
int stint_memory_file_publish(struct memory *memory, const char *path, size_t written);

/* Puts a file that was made in the place of `old`, which this process has alone. It gets the owner
 * of `old`, and this mode; 0: that of `old`. The path always leads to one of the two, whole. */
int stint_memory_file_replace(struct memory *memory, const struct memory *old, uint32_t mode,
                              const char *path);

/* Notes the path of the file that is open. If it cannot, stint_memory_file_removed tells less. */
void stint_memory_file_path(struct memory *memory, const char *path);

bool stint_memory_file_removed(const struct memory *memory);

/* Lets others in: not `alone` any more. */
int stint_memory_file_share(struct memory *memory);

#endif
