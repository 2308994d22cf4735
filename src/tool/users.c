/* SPDX-License-Identifier: MIT
 * What /proc tells of mappings and descriptors. */
#include "users.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common.h"

/* ---- The table at the path ----
 *
 * Device and inode of a mapping are not those of stat on each file system (overlayfs, btrfs). So
 * this process maps the file, too, and looks for what the system writes there. */

enum { MAPPED = 64 };

/* A line of /proc/PID/maps: begin-end rw-s offset device inode path. */
struct line {
    uint64_t begin;
    char rights[8], device[MAPPED], inode[MAPPED];
    char *text; /* all of it, which whoever reads lines frees */
    size_t size;
};

static bool line_read(struct line *line, FILE *maps) {
    char *end;

    if (getline(&line->text, &line->size, maps) <= 0)
        return false;
    line->begin = strtoull(line->text, &end, 16);
    return sscanf(end, "-%*x %7s %*x %63s %63s", line->rights, line->device, line->inode) == 3;
}

/* How the table's mappings are written; false: there is no such file. */
static bool table_find(struct line *table, const char *path) {
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    void *page = file < 0 ? MAP_FAILED : mmap(NULL, 1, PROT_READ, MAP_SHARED, file, 0);
    FILE *maps = page == MAP_FAILED ? NULL : fopen("/proc/self/maps", "re");
    bool found = false;

    while (maps != NULL && !found && line_read(table, maps))
        found = table->begin == (uintptr_t)page;
    free(table->text);
    if (maps != NULL)
        fclose(maps);
    if (page != MAP_FAILED)
        munmap(page, 1);
    if (file >= 0)
        close(file);
    return found;
}

/* Whether a process has the table mapped, and whether it may write. False, and errno EACCES: it may
 * not be looked at. */
static bool has_mapped(const struct line *table, const char *process, bool *writes) {
    char path[64];
    struct line line = {.text = NULL};
    bool has = false;

    *writes = false;
    snprintf(path, sizeof(path), "/proc/%.20s/maps", process);
    errno = 0;
    FILE *maps = fopen(path, "re");
    if (maps == NULL)
        return false;
    while (line_read(&line, maps))
        if (strcmp(line.device, table->device) == 0 && strcmp(line.inode, table->inode) == 0) {
            has = true;
            *writes |= line.rights[1] == 'w';
        }
    free(line.text);
    fclose(maps);
    return has;
}

/* ---- Tables that were there ----
 *
 * The link of a file that has no name any more is "PATH (deleted)". That of a table's maker is
 * always "DIRECTORY/#INODE (deleted)": it was made without a name; which it had is not known. */

#define DELETED " (deleted)"

/* Where tables were. */
struct place {
    char directory[PATH_MAX]; /* without links, and with a '/' at its end */
    size_t length;
    const char *name;
};

static bool place_find(struct place *place, const char *path) {
    const char *slash = strrchr(path, '/');
    char *given = slash == NULL ? strdup(".") : strndup(path, (size_t)(slash - path) + 1);
    const bool found = given != NULL && realpath(given, place->directory) != NULL;

    free(given);
    place->name = slash == NULL ? path : slash + 1;
    place->length = found ? strlen(place->directory) : 0;
    if (place->length > 1 && place->length + 1 < sizeof(place->directory))
        memcpy(place->directory + place->length++, "/", 2);
    return found;
}

/* Whether a link is that of a file without a name that may have been in the place. */
static bool link_fits(const struct place *place, const char *link, size_t length) {
    const size_t end = length < strlen(DELETED) ? 0 : length - strlen(DELETED);

    if (end <= place->length || memcmp(link + end, DELETED, strlen(DELETED)) != 0 ||
        memcmp(link, place->directory, place->length) != 0)
        return false;
    const char *name = link + place->length;
    const size_t name_length = end - place->length;
    return memchr(name, '/', name_length) == NULL &&
           (name[0] == '#' ||
            (name_length == strlen(place->name) && memcmp(name, place->name, name_length) == 0));
}

/* Whether a descriptor is of a table without a name, and may be written to. */
static bool is_removed_table(int descriptors, const char *descriptor) {
    static const char begin[] = {'s', 't', 'i', 'n', 't', '\r', '\n'};
    char bytes[sizeof(begin)];
    struct stat link, file;

    if (fstatat(descriptors, descriptor, &link, AT_SYMLINK_NOFOLLOW) != 0 ||
        (link.st_mode & S_IWUSR) == 0 || fstatat(descriptors, descriptor, &file, 0) != 0 ||
        !S_ISREG(file.st_mode) || file.st_nlink != 0)
        return false;
    const int opened = openat(descriptors, descriptor, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const ssize_t got = opened < 0 ? 0 : pread(opened, bytes, sizeof(bytes), 0);
    if (opened >= 0)
        close(opened);
    return got == (ssize_t)sizeof(bytes) && memcmp(bytes, begin, sizeof(bytes)) == 0;
}

static bool process_has_one(const struct place *place, const char *process) {
    char path[64], link[PATH_MAX];
    bool has = false;

    snprintf(path, sizeof(path), "/proc/%.20s/fd", process);
    DIR *descriptors = opendir(path);
    if (descriptors == NULL)
        return false;
    for (struct dirent *entry; !has && (entry = readdir(descriptors)) != NULL;) {
        const ssize_t length = readlinkat(dirfd(descriptors), entry->d_name, link, sizeof(link));
        has = length > 0 && link_fits(place, link, (size_t)length) &&
              is_removed_table(dirfd(descriptors), entry->d_name);
    }
    closedir(descriptors);
    return has;
}

/* ---- All of them ---- */

static void add(struct users *users, const char *process, bool writes, bool removed) {
    users->of = must_have(realloc(users->of, (users->count + 1) * sizeof(*users->of)));
    struct user *user = &users->of[users->count++];
    char path[64];

    *user = (struct user){strtoull(process, NULL, 10), "", writes, removed};
    snprintf(path, sizeof(path), "/proc/%.20s/comm", process);
    FILE *comm = fopen(path, "re");
    if (comm != NULL && fgets(user->program, sizeof(user->program), comm) != NULL)
        user->program[strcspn(user->program, "\n")] = '\0';
    if (comm != NULL)
        fclose(comm);
}

static int by_process(const void *a, const void *b) {
    const struct user *one = a, *other = b;
    return one->process < other->process ? -1 : one->process > other->process;
}

void users_find(struct users *users, const char *path) {
    struct place place;
    struct line table = {.text = NULL};
    const bool there = table_find(&table, path), was_there = place_find(&place, path);
    DIR *processes = opendir("/proc");
    bool writes;

    *users = (struct users){.of = NULL};
    for (struct dirent *entry; processes != NULL && (entry = readdir(processes)) != NULL;) {
        const char *process = entry->d_name;
        if (process[0] < '0' || process[0] > '9' || strtoll(process, NULL, 10) == getpid())
            continue;
        if (there && has_mapped(&table, process, &writes))
            add(users, process, writes, false);
        else if (there && errno == EACCES)
            users->hidden++;
        if (was_there && process_has_one(&place, process))
            add(users, process, true, true);
    }
    if (processes != NULL)
        closedir(processes);
    if (users->count != 0)
        qsort(users->of, users->count, sizeof(*users->of), by_process);
}

void users_free(struct users *users) {
    free(users->of);
}
