/* SPDX-License-Identifier: MIT
 * The memory of a table: private, or a file that processes share. */
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "sys/atomic.h"
#include "sys/memory.h"
#include "sys/message.h"

/* ---- Mappings -------------------------------------------------------------------------------- */

/* Who looks at what was cut off a file gets a SIGBUS. A list of all mappings tells whether that was
 * a table's. If so, it is lost: zeros, of this process alone, take its place.
 *
 * A handler may run at any time, beside all other threads. So the list takes no lock. Its entries
 * are never freed, but become another mapping's. A handler reads an entry's start twice. A mapping
 * in which a thread faults is there meanwhile, and no other one has a part of its memory.
 *
 * Threads amid any call then find no policy, and slots that were never used. The lock for set-up is
 * free, and whoever held it gives it back as any other lock (stint_memory_free). */

#define MAPPING_CLAIMED 1

/* Most processes have no more tables than these. Others are added behind the last, and stay. */
static struct mapping first[16];
static struct mapping *const last = &first[sizeof(first) / sizeof(first[0]) - 1];

static struct mapping *mapping_after(struct mapping *entry) {
    if ((uintptr_t)entry - (uintptr_t)first < sizeof(first) && entry != last)
        return entry + 1;
    return (struct mapping *)(uintptr_t)atomic_load_acquire(&entry->next);
}

/* Lists a mapping in an entry that is nobody's, or a new one. NULL: there is no memory. */
static struct mapping *mapping_list(void *start, size_t size, int access) {
    struct mapping *entry = first;

    while (entry != NULL && !atomic_cas_seq(&entry->start, 0, MAPPING_CLAIMED))
        entry = mapping_after(entry);
    if (entry == NULL) {
        entry = calloc(1, sizeof(*entry));
        if (entry == NULL)
            return NULL;
        entry->start = MAPPING_CLAIMED;
        do
            entry->next = atomic_load_relaxed(&last->next);
        while (!atomic_cas_seq(&last->next, entry->next, (uintptr_t)entry));
    }
    entry->deciding = NULL;
    entry->access = access;
    atomic_store_relaxed(&entry->lost, 0);
    atomic_store_release(&entry->size, size);
    atomic_store_release(&entry->start, (uintptr_t)start);
    return entry;
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

bool stint_on_sigbus(const void *fault) {
    const siginfo_t *about = fault;

    if (about == NULL || about->si_code != BUS_ADRERR)
        return false;
    for (struct mapping *entry = first; entry != NULL; entry = mapping_after(entry)) {
        const uint64_t start = atomic_load_acquire(&entry->start);
        const uint64_t size = atomic_load_acquire(&entry->size);
        if (start > MAPPING_CLAIMED && (uintptr_t)about->si_addr - start < size &&
            atomic_load_relaxed(&entry->start) == start)
            return stint_mapping_lose(entry);
    }
    return false;
}

int stint_memory_prefault(const struct memory *memory, uint32_t flags) {
    if ((flags & STINT_PREFAULT) == 0)
        return 0;
    if (memory->read_only) {
#ifdef MADV_POPULATE_READ
        /* A page fault later only makes a reader slower. */
        (void)madvise(memory->start, memory->size, MADV_POPULATE_READ);
#endif
        return 0;
    }
#ifdef MADV_POPULATE_WRITE
    size_t page = (size_t)sysconf(_SC_PAGESIZE), before = (size_t)memory->start % page;
    if (madvise(memory->start - before, memory->size + before, MADV_POPULATE_WRITE) == 0)
        return 0;
    if (errno != EINVAL) /* of a kernel before 5.14 */
        return stint_failed(
            ENOMEM, "no memory to prefault the table: 32 bytes for each of options.max_entries");
#endif
    for (size_t at = 0; at < memory->size; at += SMALL_PAGE)
        atomic_add_relaxed((uint64_t *)(void *)(memory->start + at), 0);
    return 0;
}

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

#define CUT_JUST_NOW "the table was cut off just now"
#define NO_LOOK      "the table cannot be looked at"
#define NO_LOCK      "the table cannot be locked"

/* Asks how many bytes of a file are holes, without blocks. -EPROTO: it was cut off meanwhile. */
static int holes_find(const struct memory *memory, size_t size, size_t *holes) {
    struct stat about;

    if (fstat(memory->file, &about) != 0)
        return failed_file(NO_LOOK);
    const size_t blocks = (size_t)about.st_blocks * 512;
    *holes = blocks < size ? size - blocks : 0;
    return (size_t)about.st_size < memory->size ? stint_failed(EPROTO, CUT_JUST_NOW) : 0;
}

/* Reads the holes of a file that this process does not write to. A tmpfs gives a hole its page when
 * it is first looked at; if it has no room, the look kills (SIGBUS). */
static int holes_read(const struct memory *memory) {
    size_t holes = 0;
    int error = holes_find(memory, memory->size, &holes);

#ifdef MADV_POPULATE_READ /* before Linux 5.14 it is -EINVAL */
    if (error == 0 && holes != 0 && madvise(memory->start, memory->size, MADV_POPULATE_READ) != 0 &&
        errno == EFAULT)
        return stint_failed(ENOSPC, "the table has holes, for which the file system has no room");
#endif
    return error;
}

int stint_memory_map(struct memory *memory, size_t size, size_t lines, uint32_t flags) {
    const int access = memory->read_only ? PROT_READ : PROT_READ | PROT_WRITE;
    const bool file = memory->file >= 0, huge = size - lines >= HUGE_PAGE;
    const size_t slack = huge ? HUGE_PAGE : 0;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (size + page - 1) / page * page;
    char *base = mmap(NULL, size + slack, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | (file ? MAP_NORESERVE : 0), -1, 0);

    if (base != MAP_FAILED && huge) {
        char *start = base + (HUGE_PAGE - (size_t)base % HUGE_PAGE) % HUGE_PAGE;
        if (start != base)
            munmap(base, (size_t)(start - base));
        munmap(start + whole, slack - (size_t)(start - base));
        base = start;
    }
    const int way = memory->copy ? MAP_PRIVATE | MAP_NORESERVE : MAP_SHARED;
    if (base != MAP_FAILED && file &&
        (mmap(base, size, access, way | MAP_FIXED, memory->file, 0) == MAP_FAILED ||
         (memory->mapping = mapping_list(base, size, access)) == NULL)) {
        munmap(base, size);
        base = MAP_FAILED;
    }
    if (base == MAP_FAILED)
        return stint_failed(
            ENOMEM, memory->copy
                        ? "no memory for a look at the table"
                        : "no memory for the table: 32 bytes for each of options.max_entries");
    /* Advice: without huge pages all is only slower out of cache. */
    if (huge)
        (void)madvise(base + lines, size - lines,
                      (flags & STINT_SMALL_PAGES) != 0 ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
    memory->start = base;
    memory->size = size;
    memory->mapped = true;
    int error = memory->read_only || memory->copy ? holes_read(memory) : 0;
    return error != 0 ? error : stint_memory_prefault(memory, flags);
}

/* The name of a new file before it takes the place of another, for who has the directory's lock. */
#define NEW_NAME ".%s.resize"

static const char *name_of_path(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

void stint_memory_free(struct memory *memory) {
    size_t kept = 0;

    /* Of a lost table the first page stays. It has the lock for set-up. If that became zeros while
     * a thread held it, the C library's list of what the thread holds leads there for ever. */
    if (memory->mapping != NULL) {
        if (atomic_load_relaxed(&memory->mapping->lost) != 0)
            kept = (size_t)sysconf(_SC_PAGESIZE);
        atomic_store_release(&memory->mapping->start, 0); /* then it is another's */
    }
    if (memory->mapped && memory->size > kept)
        munmap(memory->start + kept, memory->size - kept);
    if (memory->file >= 0 && memory->alone) /* a child that was forked meanwhile has it open, too */
        (void)flock(memory->file, LOCK_UN);
    if (memory->file >= 0)
        close(memory->file);
    free(memory->path);
    *memory = (struct memory){.file = -1};
}

int stint_memory_file_held(int file, const char *does) {
    struct stat ours;
    char line[256], inode[64], *at; /* 1: FLOCK  ADVISORY  WRITE 1234 00:1a:5678 0 EOF */
    FILE *locks = fstat(file, &ours) == 0 ? fopen("/proc/locks", "re") : NULL;
    long found = 0; /* the process, as far as the system tells */

    if (locks == NULL)
        return stint_failed_held(0, does);
    (void)snprintf(inode, sizeof(inode), " %02x:%02x:%lu ", major(ours.st_dev), minor(ours.st_dev),
                   (unsigned long)ours.st_ino);
    while (found == 0 && fgets(line, sizeof(line), locks) != NULL) {
        if (strstr(line, ": FLOCK ") == NULL || (at = strstr(line, inode)) == NULL)
            continue;
        *at = '\0';
        const char *blank = strrchr(line, ' ');
        const pid_t process = blank == NULL ? 0 : (pid_t)strtol(blank, NULL, 10);
        /* One that took the lock, and left it to its children, may be gone. */
        if (process > 0 && process != getpid() && (kill(process, 0) == 0 || errno == EPERM))
            found = process;
    }
    (void)fclose(locks);
    return stint_failed_held(found, does);
}

static int lock_wait(int file, int lock, const char *does) {
    for (unsigned tries = 0; flock(file, lock | LOCK_NB) != 0; tries++) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return failed_file(NO_LOCK);
        if (tries == SET_UP_TRIES)
            return stint_memory_file_held(file, does);
        set_up_pause();
    }
    return 0;
}

int stint_memory_file_share(struct memory *memory) {
    if (memory->file < 0)
        return 0;
    int error = lock_wait(memory->file, LOCK_SH, /* the exclusive one's holder sets it up */
                          "has held the lock of the table's file for 10 s: is it stopped, or does "
                          "it resize a large table?");
    if (error == 0)
        memory->alone = false;
    return error;
}

static int open_locked(struct memory *memory, const char *path, bool read_only) {
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
        return failed_file(NO_LOOK);
    if (!S_ISREG(about.st_mode))
        return stint_failed(EPROTO, "this is no table of stint: it is not even a file");
    memory->size = (size_t)about.st_size;
    if (read_only)
        return 0;
    /* Each user of the table holds a shared lock, which the system gives back if it dies. */
    while (flock(file, LOCK_EX | LOCK_NB) != 0)
        if (errno != EINTR)
            return errno == EWOULDBLOCK ? stint_memory_file_share(memory) : failed_file(NO_LOCK);
    memory->alone = true;
    return 0;
}

static int file_named(const struct memory *memory, int directory, const char *name, bool *named) {
    struct stat there, ours;

    *named = false;
    if (fstat(memory->file, &ours) != 0)
        return failed_file(NO_LOOK);
    if (fstatat(directory, name, &there, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? 0 : failed_file(NO_LOOK);
    *named = there.st_dev == ours.st_dev && there.st_ino == ours.st_ino;
    return 0;
}

int stint_memory_file_open(struct memory *memory, const char *path, bool read_only) {
    for (;;) {
        bool named = read_only;
        int error = open_locked(memory, path, read_only);
        if (error == 0 && !named)
            error = file_named(memory, AT_FDCWD, path, &named);
        if (error != 0 || named)
            return error;
        stint_memory_free(memory); /* another was put in its place meanwhile: stint_resize does */
    }
}

int stint_memory_file_read(const struct memory *memory, void *bytes, size_t length) {
    if (memory->size < length)
        return stint_failed_with(EPROTO,
                                 "this is no table of stint, or it is cut off: it has %zu bytes; "
                                 "if it is one, remove it",
                                 memory->size);
    ssize_t got = pread(memory->file, bytes, length, 0);
    if (got < 0)
        return failed_file("the table cannot be read");
    return got == (ssize_t)length ? 0 : stint_failed(EPROTO, CUT_JUST_NOW);
}

int stint_memory_file_reserve(const struct memory *memory, size_t size) {
    struct rlimit most;
    sigset_t all, before;
    size_t holes = 0; /* it is new, or a copy with holes */
    struct statvfs about;
    int error = holes_find(memory, size, &holes);

    if (error != 0 || holes == 0)
        return error;
    /* Beyond this limit the system kills (SIGXFSZ), which is pending when signals are let in. */
    if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur < size)
        return stint_failed_with(EFBIG,
                                 "the table needs a file of %zu bytes, and this process may write "
                                 "files of %llu (RLIMIT_FSIZE, ulimit -f): raise that",
                                 size, (unsigned long long)most.rlim_cur);
    /* A file system may give up at each signal. */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    /* It would take what there is before it fails: until then others had no room. */
    const bool full = fstatvfs(memory->file, &about) == 0 && about.f_blocks != 0 &&
                      (uint64_t)about.f_bfree * about.f_frsize < holes;
    errno = full ? ENOSPC : posix_fallocate(memory->file, 0, (off_t)size);
    error = errno == 0 ? 0 : failed_file("there is no room for the table");
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static int open_directory(const char *path, int flags) {
    const size_t length = (size_t)(name_of_path(path) - path);
    char directory[PATH_MAX] = "."; /* and zeros */

    if (length >= sizeof(directory)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(directory, path, length);
    return open(directory, flags | O_CLOEXEC, 0600);
}

#define LINK_SIZE 64
static const char *file_link(const struct memory *memory, char link[LINK_SIZE]) {
    (void)snprintf(link, LINK_SIZE, "/proc/self/fd/%d", memory->file);
    return link;
}

int stint_memory_file_make(struct memory *memory, const char *path, uint32_t mode, size_t size) {
    char link[LINK_SIZE];
    int error = 0, file = open_directory(path, O_TMPFILE | O_RDWR);

    if (file < 0)
        return failed_file("no table can be made there");
    *memory = (struct memory){.file = file, .shared = true, .alone = true};
    if (access(file_link(memory, link), F_OK) != 0)
        error = failed_file("no table can be made without /proc, by which its file gets its name");
    else if (flock(file, LOCK_EX | LOCK_NB) != 0)
        error = failed_file(NO_LOCK);
    if (error == 0 && fchmod(memory->file, (mode_t)mode) != 0) /* whatever the umask */
        error = failed_file("the table cannot be given options.mode");
    return error != 0 ? error : stint_memory_file_reserve(memory, size);
}

static int file_name(const struct memory *memory, int directory, const char *name) {
    char link[LINK_SIZE];
    return linkat(AT_FDCWD, file_link(memory, link), directory, name, AT_SYMLINK_FOLLOW);
}

int stint_memory_file_publish(struct memory *memory, const char *path, size_t written) {
    /* The file system knows that nothing else was written. */
    if (msync(memory->start, written, MS_SYNC) != 0)
        return failed_file("the table cannot be written to the disk");
    if (file_name(memory, AT_FDCWD, path) == 0)
        return 0;
    return errno == EEXIST ? -EEXIST : failed_file("the table cannot be given its name");
}

/* Gives the file the owner of another, and a mode, or the other's. */
static int file_like(const struct memory *memory, const struct memory *other, uint32_t mode) {
    struct stat about, ours;

    if (fstat(other->file, &about) != 0 || fstat(memory->file, &ours) != 0)
        return failed_file(NO_LOOK);
    /* With an access control list, the mode's group bits are not the group's rights. */
    if (mode == 0 && fgetxattr(other->file, "system.posix_acl_access", NULL, 0) > 0)
        return stint_failed(EOPNOTSUPP, "the table has an access control list, which would be "
                                        "lost: give options.mode, and set the list anew after it");
    if ((about.st_uid != ours.st_uid || about.st_gid != ours.st_gid) &&
        fchown(memory->file, about.st_uid, about.st_gid) != 0)
        return failed_file("the new table cannot be given the owner and the group of the old one");
    if (fchmod(memory->file, mode != 0 ? (mode_t)mode : about.st_mode & 07777) != 0)
        return failed_file("the new table cannot be given its mode");
    return 0;
}

/* Gives the file the name `given` in a directory, and then that of another. */
static int file_rename(struct memory *memory, const struct memory *old, int directory,
                       const char *given, const char *name) {
    bool named;

    /* A file cannot be linked over another, which a process that was killed has left. */
    if (unlinkat(directory, given, 0) != 0 && errno != ENOENT)
        return failed_file("what a resize before this one has left cannot be removed");
    if (file_name(memory, directory, given) != 0)
        return failed_file("the new table cannot be given a name beside the old one");
    int error = file_named(old, directory, name, &named);
    if (error == 0 && !named)
        error = stint_failed(EBUSY, "somebody has put another file in the place of the table "
                                    "meanwhile");
    else if (error == 0 && renameat(directory, given, directory, name) != 0)
        error = failed_file("the new table cannot be put in the place of the old one");
    if (error != 0)
        (void)unlinkat(directory, given, 0);
    return error;
}

int stint_memory_file_replace(struct memory *memory, const struct memory *old, uint32_t mode,
                              const char *path) {
    char given[NAME_MAX + 1];
    int error = file_like(memory, old, mode);

    /* The bytes before the name: what a crash of the machine leaves is one of the two tables. */
    if (error == 0 && fsync(memory->file) != 0)
        error = failed_file("the new table cannot be written to the disk");
    if (error != 0)
        return error;
    if ((size_t)snprintf(given, sizeof(given), NEW_NAME, name_of_path(path)) > NAME_MAX)
        return stint_failed_with(ENAMETOOLONG,
                                 "the name of a table that is resized may have %d bytes: rename it",
                                 (int)(NAME_MAX + 1 - sizeof(NEW_NAME) + 2));
    int directory = open_directory(path, O_RDONLY | O_DIRECTORY);
    if (directory < 0)
        return failed_file("the directory of the table cannot be opened");
    /* Two may replace one table of the layout before. */
    error = lock_wait(directory, LOCK_EX,
                      "has held the lock of the table's directory for 10 s: is it stopped?");
    if (error == 0)
        error = file_rename(memory, old, directory, given, name_of_path(path));
    if (error == 0)
        (void)fsync(directory); /* done, even if only the disk does not know yet */
    (void)close(directory);
    return error;
}

void stint_memory_file_path(struct memory *memory, const char *path) {
    char directory[PATH_MAX] = "";

    if (*path != '/' && getcwd(directory, sizeof(directory)) == NULL)
        return;
    const size_t size = strlen(directory) + 1 + strlen(path) + 1;
    memory->path = malloc(size);
    if (memory->path != NULL)
        (void)snprintf(memory->path, size, "%s%s%s", directory, *path == '/' ? "" : "/", path);
}

bool stint_memory_file_removed(const struct memory *memory) {
    struct stat ours, there;

    if (memory->file < 0 || fstat(memory->file, &ours) != 0)
        return false;
    if (ours.st_nlink == 0 || memory->path == NULL)
        return ours.st_nlink == 0;
    if (lstat(memory->path, &there) != 0)
        return errno == ENOENT || errno == ENOTDIR; /* else this process may not look there */
    return there.st_dev != ours.st_dev || there.st_ino != ours.st_ino;
}
