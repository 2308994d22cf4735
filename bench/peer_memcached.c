/* SPDX-License-Identifier: MIT
 * memcached: incr, and add where there is nothing to increment. The text protocol needs no more
 * than a page, so there is no client library. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "peer.h"

enum {
    DEPTH_MAX = 256,
    LINE_SIZE = 80,   /* of a request: "add", a key with its window, a time, a value */
    READ_SIZE = 4096, /* answers are short lines */
};

struct connection {
    int fd;
    size_t start, end; /* of what was read and not looked at */
    char bytes[READ_SIZE];
};

struct memcached {
    struct peer_setup setup;
    char version[64];
    struct connection connection[]; /* one a thread */
};

static bool write_all(struct connection *connection, const char *bytes, size_t size) {
    for (size_t at = 0; at < size;) {
        ssize_t n = send(connection->fd, bytes + at, size - at, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR)
            return peer_fail("memcached: %s", strerror(errno));
        at += n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* The next line of the answer, without its end; NULL if the connection failed. It is there until
 * the next call. */
static char *read_line(struct connection *connection) {
    for (;;) {
        char *line = connection->bytes + connection->start;
        char *end = memchr(line, '\n', connection->end - connection->start);
        if (end != NULL) {
            connection->start = (size_t)(end + 1 - connection->bytes);
            if (end > line && end[-1] == '\r')
                end--;
            *end = '\0';
            return line;
        }
        memmove(connection->bytes, line, connection->end - connection->start);
        connection->end -= connection->start;
        connection->start = 0;
        ssize_t n = recv(connection->fd, connection->bytes + connection->end,
                         READ_SIZE - connection->end, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            peer_fail("memcached: %s", n == 0 ? "it closed the connection" : strerror(errno));
            return NULL;
        }
        connection->end += (size_t)n;
    }
}

static void memcached_close(void *state) {
    struct memcached *memcached = state;

    for (unsigned i = 0; i < memcached->setup.threads; i++)
        if (memcached->connection[i].fd >= 0)
            close(memcached->connection[i].fd);
    free(memcached);
}

static bool read_version(struct memcached *memcached) {
    struct connection *connection = &memcached->connection[0];

    if (!write_all(connection, "version\r\n", 9))
        return false;
    const char *line = read_line(connection);
    if (line == NULL)
        return false;
    snprintf(memcached->version, sizeof(memcached->version), "memcached %.40s",
             strncmp(line, "VERSION ", 8) == 0 ? line + 8 : line);
    return true;
}

static int connect_unix(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static bool memcached_open(const struct peer_setup *setup, void **state) {
    struct memcached *memcached;

    memcached = calloc(1, sizeof(*memcached) + setup->threads * sizeof(struct connection));
    if (memcached == NULL)
        return peer_fail("no memory");
    memcached->setup = *setup;
    for (unsigned i = 0; i < setup->threads; i++)
        memcached->connection[i].fd = -1;
    bool good = true;
    for (unsigned i = 0; good && i < setup->threads; i++) {
        memcached->connection[i].fd = connect_unix(setup->socket);
        good = memcached->connection[i].fd >= 0;
        if (!good)
            peer_fail("no connection to memcached: %s", strerror(errno));
    }
    if (!good || !read_version(memcached)) {
        memcached_close(memcached);
        return false;
    }
    *state = memcached;
    return true;
}

static const char *memcached_version(void *state) {
    return ((struct memcached *)state)->version;
}

/* ---- The recipe ---- */

enum verb { INCR, ADD };

/* Writes one request. Returns its length. */
static size_t put(char *text, enum verb verb, const struct memcached *memcached, const char *key,
                  uint64_t window) {
    unsigned long long number = window, seconds = memcached->setup.window;
    int n = verb == INCR ? snprintf(text, LINE_SIZE, "incr %.*s:%llu 1\r\n", PEER_KEY, key, number)
                         : snprintf(text, LINE_SIZE, "add %.*s:%llu 0 %llu 1\r\n1\r\n", PEER_KEY,
                                    key, number, seconds);
    return (size_t)n;
}

/* Asks for those of the n keys whose count is 0: incr writes the count, or leaves it 0 where there
 * is no such key; add writes 1, or leaves it 0 where there is one by now. */
static bool ask(struct memcached *memcached, struct connection *connection, enum verb verb,
                const char *keys, size_t n, uint64_t window, uint64_t *counts) {
    char text[DEPTH_MAX * LINE_SIZE];
    bool asked[DEPTH_MAX];
    size_t size = 0;

    text[0] = '\0';
    for (size_t i = 0; i < n; i++) {
        asked[i] = counts[i] == 0;
        if (asked[i])
            size += put(text + size, verb, memcached, keys + i * PEER_KEY, window);
    }
    if (!write_all(connection, text, size))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (!asked[i])
            continue;
        const char *line = read_line(connection);
        if (line == NULL)
            return false;
        if (verb == INCR && *line >= '0' && *line <= '9')
            counts[i] = strtoull(line, NULL, 10);
        else if (verb == ADD && strcmp(line, "STORED") == 0)
            counts[i] = 1;
        else if (strcmp(line, verb == INCR ? "NOT_FOUND" : "NOT_STORED") != 0)
            return peer_fail("memcached: %.100s", line);
    }
    return true;
}

static bool all_counted(const uint64_t *counts, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (counts[i] == 0)
            return false;
    return true;
}

static bool decide(void *state, unsigned thread, const char *keys, size_t n, unsigned depth,
                   uint64_t *answers) {
    struct memcached *memcached = state;
    struct connection *connection = &memcached->connection[thread];
    size_t most = depth < DEPTH_MAX ? depth : DEPTH_MAX;

    memset(answers, 0, (n + PEER_ANSWERS - 1) / PEER_ANSWERS * sizeof(*answers));
    for (size_t at = 0; at < n; at += most) {
        size_t batch = n - at < most ? n - at : most;
        uint64_t counts[DEPTH_MAX], window = peer_window(&memcached->setup);
        memset(counts, 0, batch * sizeof(counts[0]));
        for (enum verb verb = INCR; !all_counted(counts, batch); verb = verb == INCR ? ADD : INCR)
            if (!ask(memcached, connection, verb, keys + at * PEER_KEY, batch, window, counts))
                return false;
        for (size_t i = 0; i < batch; i++) {
            uint64_t granted = counts[i] <= memcached->setup.limit;
            answers[(at + i) / PEER_ANSWERS] |= granted << ((at + i) % PEER_ANSWERS);
        }
    }
    return true;
}

#define MEMCACHED_PEER                                                                             \
    .program = "memcached", .bytes_per_key = 160, .open = memcached_open,                          \
    .close = memcached_close, .version = memcached_version

const struct peer peer_memcached =
    PEER("memcached", "memcached", 1, decide,
         "memcached: incr, or add where there is none, one request at a time", MEMCACHED_PEER);

const struct peer peer_memcached_16 =
    PEER("memcached-16", "memcached, 16 pipelined", PEER_DEPTH, decide,
         "the same, 16 requests pipelined", MEMCACHED_PEER);
