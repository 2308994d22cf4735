/* SPDX-License-Identifier: MIT
 * A server that the benchmark starts for itself, on a unix socket in a temporary directory.
 *
 * A guardian process of ours stands between: it starts the server, and waits for the end of the
 * benchmark, which it sees at the end of a socket whatever the benchmark died of. Then it kills
 * the server and removes the directory. */
#ifndef STINT_BENCH_SERVER_H
#define STINT_BENCH_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct server {
    pid_t pid;       /* of the server itself: its memory, its time */
    pid_t guardian;  /* our child */
    int guard;       /* the guardian's other end */
    char socket[96]; /* path of the server's socket; a socket's name has room for 107 */
};

/* These arguments are replaced by the path of the socket, and of the directory that it is in. */
extern const char server_socket[], server_directory[];

/* Whether PATH has a program of this name. */
bool server_installed(const char *program);

/* Starts arguments[0], looked up in PATH, and waits until its socket takes connections.
 *   arguments  at most 30, ended by NULL
 * Must be called by the first thread, and before large memory is filled: it forks, and what both
 * processes have is copied when it is written to next.
 * Returns false, with the reason by peer_fail(). */
bool server_start(struct server *server, const char *const *arguments);

/* Returns a connected socket; -1, with errno. */
int server_connect(const struct server *server);

/* Stops it; nothing of it is left when this returns. */
void server_stop(struct server *server);

/* Does not return while the process is being ended by a signal: that servers fail is then no news.
 */
void server_pause_if_interrupted(void);

/* CPU time that the process took since it started, ns. */
uint64_t process_cpu_ns(pid_t pid);

/* Bytes of memory that are resident. 0 is the calling process. */
uint64_t process_memory(pid_t pid);

#endif
