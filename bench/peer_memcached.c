/* SPDX-License-Identifier: MIT
 * memcached: incr, and add where there is nothing to increment. The text protocol needs no more
 * than a page, so there is no client library. */
#include <errno.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "pages.h"
#include "peer.h"

enum {
    DEPTH_MAX = 256,
    LINE_SIZE = 80, /* of an answer */
};

struct memcached {
    struct peer_setup setup;
    char version[64];
    struct connection {
        FILE *in, *out;
    } connection[];
};

static bool flush(struct connection *connection) {
    return fflush(connection->out) == 0 || peer_fail("memcached: %s", strerror(errno));
}

/* Reads the next line of the answer, without its end. */
static bool read_line(struct connection *connection, char *line) {
    errno = 0;
    if (fgets(line, LINE_SIZE, connection->in) == NULL)
        return peer_fail("memcached: %s",
                         errno == 0 ? "it closed the connection" : strerror(errno));
    line[strcspn(line, "\r\n")] = '\0';
    return true;
}

static void memcached_close(void *state) {
    struct memcached *memcached = state;

    for (unsigned i = 0; i < memcached->setup.threads * memcached->setup.connections; i++) {
        if (memcached->connection[i].in != NULL)
            fclose(memcached->connection[i].in);
        if (memcached->connection[i].out != NULL)
            fclose(memcached->connection[i].out);
    }
    free(memcached);
}

static bool read_version(struct memcached *memcached) {
    struct connection *connection = &memcached->connection[0];
    char line[LINE_SIZE];

    fputs("version\r\n", connection->out);
    if (!flush(connection) || !read_line(connection, line))
        return false;
    snprintf(memcached->version, sizeof(memcached->version), "memcached %.40s",
             strncmp(line, "VERSION ", 8) == 0 ? line + 8 : line);
    return true;
}

static bool connect_unix(struct connection *connection, const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0) {
        connection->in = must_have(fdopen(fd, "r"));
        connection->out = must_have(fdopen(dup(fd), "w"));
        /* One thread has it: no locks. */
        __fsetlocking(connection->in, FSETLOCKING_BYCALLER);
        __fsetlocking(connection->out, FSETLOCKING_BYCALLER);
        return true;
    }
    peer_fail("no connection to memcached: %s", strerror(errno));
    if (fd >= 0)
        close(fd);
    return false;
}

static bool memcached_open(const struct peer_setup *setup, void **state) {
    struct memcached *memcached;
    bool good = true;

    unsigned connections = setup->threads * setup->connections;
    memcached = calloc(1, sizeof(*memcached) + connections * sizeof(struct connection));
    if (memcached == NULL)
        return peer_fail("no memory");
    memcached->setup = *setup;
    for (unsigned i = 0; good && i < connections; i++)
        good = connect_unix(&memcached->connection[i], setup->socket);
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

/* Asks for those of the n keys whose count is 0: incr writes the count, or leaves it 0 where there
 * is no such key; add writes 1, or leaves it 0 where there is one by now. Requests are spread over
 * the connections. */
static bool ask(struct memcached *memcached, struct connection *connections, enum verb verb,
                const char *keys, size_t n, uint64_t window, uint64_t *counts) {
    unsigned long long number = window, seconds = memcached->setup.window;
    unsigned of = memcached->setup.connections;
    char line[LINE_SIZE];
    bool asked[DEPTH_MAX];

    for (size_t i = 0; i < n; i++) {
        const char *key = keys + i * PEER_KEY;
        FILE *out = connections[i % of].out;
        asked[i] = counts[i] == 0;
        if (asked[i] && verb == INCR)
            fprintf(out, "incr %.*s:%llu 1\r\n", PEER_KEY, key, number);
        else if (asked[i])
            fprintf(out, "add %.*s:%llu 0 %llu 1\r\n1\r\n", PEER_KEY, key, number, seconds);
    }
    for (unsigned i = 0; i < of; i++)
        if (!flush(&connections[i]))
            return false;
    for (size_t i = 0; i < n; i++) {
        if (!asked[i])
            continue;
        if (!read_line(&connections[i % of], line))
            return false;
        if (verb == INCR && *line >= '0' && *line <= '9')
            counts[i] = strtoull(line, NULL, 10);
        else if (verb == ADD && strcmp(line, "STORED") == 0)
            counts[i] = 1;
        else if (strcmp(line, verb == INCR ? "NOT_FOUND" : "NOT_STORED") != 0)
            return peer_fail("memcached: %s", line);
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
    struct connection *connections = &memcached->connection[thread * memcached->setup.connections];
    size_t most = depth < DEPTH_MAX ? depth : DEPTH_MAX;

    for (size_t at = 0; at < n; at += most) {
        size_t batch = n - at < most ? n - at : most;
        uint64_t counts[DEPTH_MAX], window = peer_window(&memcached->setup);
        memset(counts, 0, batch * sizeof(counts[0]));
        for (enum verb verb = INCR; !all_counted(counts, batch); verb = verb == INCR ? ADD : INCR)
            if (!ask(memcached, connections, verb, keys + at * PEER_KEY, batch, window, counts))
                return false;
        for (size_t i = 0; i < batch; i++) {
            uint64_t granted = counts[i] <= memcached->setup.limit;
            answers[(at + i) / PEER_ANSWERS] |= granted << ((at + i) % PEER_ANSWERS);
        }
    }
    return true;
}

const struct peer peer_memcached = {.name = "memcached",
                                    .open = memcached_open,
                                    .close = memcached_close,
                                    .decide = decide,
                                    .version = memcached_version};
