/* SPDX-License-Identifier: MIT
 * What /proc tells of descriptors. The link of a file that has no name any more is
 * "PATH (deleted)". That of a table's maker always is "DIRECTORY/#INODE (deleted)", as it was made
 * without a name: which name it had is not known. */
#include "removed.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common.h"

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

size_t removed_users(const char *path, uint64_t **users) {
    struct place place;
    size_t count = 0;
    DIR *processes = place_find(&place, path) ? opendir("/proc") : NULL;

    *users = NULL;
    if (processes == NULL)
        return 0;
    for (struct dirent *entry; (entry = readdir(processes)) != NULL;) {
        if (entry->d_name[0] < '0' || entry->d_name[0] > '9' ||
            !process_has_one(&place, entry->d_name))
            continue;
        *users = must_have(realloc(*users, (count + 1) * sizeof(**users)));
        (*users)[count++] = strtoull(entry->d_name, NULL, 10);
    }
    closedir(processes);
    return count;
}
