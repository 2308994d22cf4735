/* SPDX-License-Identifier: MIT
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <stint.h>

#include "atomic.h"
#include "memory.h"
#include "message.h"

/* Maps memory that starts on a huge page if the lines fill some, so that they do, too: private, or
 * a file's. */
static char *map(size_t size, size_t lines, uint32_t flags, int file, int access) {
    bool huge = size - lines >= HUGE_PAGE;
    size_t slack = huge ? HUGE_PAGE : 0;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (size + page - 1) / page * page;
    char *base = mmap(NULL, size + slack, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | (file >= 0 ? MAP_NORESERVE : 0), -1, 0);
    if (base == MAP_FAILED)
        return NULL;
    if (huge) {
        char *start = base + (HUGE_PAGE - (size_t)base % HUGE_PAGE) % HUGE_PAGE;
        if (start != base)
            munmap(base, (size_t)(start - base));
        munmap(start + whole, slack - (size_t)(start - base));
        base = start;
    }
    if (file >= 0 && mmap(base, size, access, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
        munmap(base, size);
        return NULL;
    }
    /* Advice: without huge pages all is right, and slower out of cache. */
    if (huge)
        (void)madvise(base + lines, size - lines,
                      (flags & STINT_SMALL_PAGES) != 0 ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
    return base;
}

int stint_memory_map(struct memory *memory, size_t size, size_t lines, uint32_t flags) {
    int access = memory->read_only ? PROT_READ : PROT_READ | PROT_WRITE;
    char *start = map(size, lines, flags, memory->file, access);
    if (start == NULL)
        return stint_failed(ENOMEM,
                            "no memory for the table: 32 bytes for each of options.max_keys");
    memory->start = start;
    memory->size = size;
    memory->mapped = true;
    return 0;
}

bool stint_memory_prefault(const struct memory *memory) {
    if (memory->read_only) {
#ifdef MADV_POPULATE_READ
        /* A reader who meets a page fault later is slower, and that is all. */
        (void)madvise(memory->start, memory->size, MADV_POPULATE_READ);
#endif
        return true;
    }
#ifdef MADV_POPULATE_WRITE
    size_t page = (size_t)sysconf(_SC_PAGESIZE), before = (size_t)memory->start % page;
    if (madvise(memory->start - before, memory->size + before, MADV_POPULATE_WRITE) == 0)
        return true;
    if (errno != EINVAL) /* of a kernel before 5.14 */
        return false;
#endif
    for (size_t at = 0; at < memory->size; at += SMALL_PAGE)
        atomic_add_relaxed((uint64_t *)(void *)(memory->start + at), 0);
    return true;
}

void stint_memory_free(struct memory *memory) {
    if (memory->mapped)
        munmap(memory->start, memory->size);
    if (memory->file >= 0)
        close(memory->file);
    *memory = (struct memory){.file = -1};
}

/* ---- Files ----------------------------------------------------------------------------------- */

#ifndef STINT_HAVE_STRERRORDESC
#define strerrordesc_np strerror /* musl's are constants, too */
#endif

/* stint_open puts the path before what the functions here say. */
static int failed_file(const char *what) {
    int error = errno;
    if (error == ENAMETOOLONG)
        return stint_failed(error, "options.path is too long: it may have 4,095 bytes, and each "
                                   "name in it 255");
    return stint_failed_with(error, "%s: %s", what, strerrordesc_np(error));
}

/* A shared lock, for those who use the table. Who has the other one is setting it up. */
static int lock_shared(int file) {
    for (unsigned tries = 0; flock(file, LOCK_SH | LOCK_NB) != 0; tries++) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return failed_file("the table cannot be locked");
        if (tries == SET_UP_TRIES)
            return stint_failed(
                EBUSY, "another process has held the lock of the table's file for 10 s: is it "
                       "stopped?");
        set_up_pause();
    }
    return 0;
}

/* Reserves all blocks of a file. Later there might be none, and whoever wrote to the mapping would
 * die of SIGBUS. Signals wait meanwhile: a file system may give up at each of them. */
static int reserve(int file, size_t size) {
    sigset_t all, before;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    errno = posix_fallocate(file, 0, (off_t)size);
    int error = errno == 0 ? 0 : failed_file("there is no room for the table");
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* Opens a file that is there, and locks it unless it is to be read only. */
static int open_locked(struct memory *memory, const char *path, bool read_only, size_t *size) {
    struct stat about;
    int file = open(path, (read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK |
                              O_NOCTTY);

    if (file < 0 && errno == ELOOP && lstat(path, &about) == 0 && S_ISLNK(about.st_mode))
        return stint_failed(ELOOP, "options.path is a symbolic link, which is not followed: give "
                                   "the path of the file itself");
    if (file < 0)
        return errno == ENOENT ? -ENOENT : failed_file("the table cannot be opened");
    *memory = (struct memory){.file = file, .shared = true, .read_only = read_only};
    if (fstat(file, &about) != 0)
        return failed_file("the table cannot be looked at");
    if (!S_ISREG(about.st_mode))
        return stint_failed(EPROTO, "this is no table of stint: it is not even a file");
    *size = (size_t)about.st_size;
    if (read_only)
        return 0;
    /* Whoever uses the table holds a shared lock, which the system gives back if he dies. */
    memory->alone = flock(file, LOCK_EX | LOCK_NB) == 0;
    return memory->alone ? 0 : lock_shared(file);
}

/* Whether a file that was opened still has its name: while it was waited for, another may have been
 * put in its place (stint_resize does). */
static bool still_named(int file, const char *path) {
    struct stat opened, named;
    return fstat(file, &opened) == 0 && lstat(path, &named) == 0 && opened.st_dev == named.st_dev &&
           opened.st_ino == named.st_ino;
}

int stint_memory_file_open(struct memory *memory, const char *path, bool read_only, size_t *size) {
    for (;;) {
        int error = open_locked(memory, path, read_only, size);
        if (error != 0 || read_only || still_named(memory->file, path))
            return error;
        stint_memory_free(memory);
    }
}

int stint_memory_file_read(const struct memory *memory, size_t size, void *bytes, size_t length) {
    if (size < length)
        return stint_failed_with(
            EPROTO, "this is no table of stint, or it is cut off: it has %zu bytes", size);
    ssize_t got = pread(memory->file, bytes, length, 0);
    if (got < 0)
        return failed_file("the table cannot be read");
    return got == (ssize_t)length ? 0 : stint_failed(EPROTO, "the table was cut off just now");
}

int stint_memory_file_reserve(const struct memory *memory, size_t size) {
    struct stat about;

    if (fstat(memory->file, &about) == 0 && (size_t)about.st_blocks * 512 >= size)
        return 0;
    return reserve(memory->file, size); /* a copy with holes */
}

int stint_memory_file_make(struct memory *memory, const char *path, uint32_t mode, size_t size) {
    const char *slash = strrchr(path, '/');
    char directory[PATH_MAX] = ".";
    size_t length = slash == NULL ? 1 : slash == path ? 1 : (size_t)(slash - path);

    if (length >= sizeof(directory)) {
        errno = ENAMETOOLONG;
        return failed_file("no table can be made there");
    }
    if (slash != NULL)
        memcpy(directory, path, length);
    directory[length] = '\0';
    int file = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (file < 0)
        return failed_file("no table can be made there");
    *memory = (struct memory){.file = file, .shared = true, .alone = true};
    if (fchmod(file, (mode_t)mode) != 0) /* whatever the umask */
        return failed_file("the table cannot be given options.mode");
    if (flock(file, LOCK_EX | LOCK_NB) != 0)
        return failed_file("the table cannot be locked");
    return reserve(file, size);
}

int stint_memory_file_publish(struct memory *memory, const char *path) {
    char name[64];

    (void)snprintf(name, sizeof(name), "/proc/self/fd/%d", memory->file);
    if (linkat(AT_FDCWD, name, AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0)
        return 0;
    return errno == EEXIST ? -EEXIST : failed_file("the table cannot be given its name");
}

int stint_memory_file_share(struct memory *memory) {
    if (memory->file < 0)
        return 0;
    int error = lock_shared(memory->file);
    if (error == 0)
        memory->alone = false;
    return error;
}
