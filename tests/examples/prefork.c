/* SPDX-License-Identifier: MIT
 * A server of several processes that count together.
 *
 *     prefork PORT WORKERS LIMIT
 *
 * Each connection to 127.0.0.1:PORT gets one line: whether its address may go on, and which worker
 * said so. LIMIT is a policy, such as 20/minute.
 *
 * It shows a table in memory that the parent maps and the workers inherit; no file is left behind.
 * A worker that dies, even in the middle of a decision, leaves the others as they were: another
 * takes its place, and the counts go on.
 *
 * It leaves out all that makes a server (tests/examples/server.c), and restarts: with
 * options.path in place of stint_open_in the counts survive the parent, too. */
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <stint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static _Noreturn void die(const char *what, const char *why) {
    fprintf(stderr, "prefork: %s: %s\n", what, why);
    exit(1);
}

/* One connection after the other, for as long as the process lives. */
static _Noreturn void work(struct stint_limiter *limiter, uint32_t policy, int listener) {
    for (;;) {
        struct sockaddr_in client;
        socklen_t length = sizeof(client);
        struct stint_verdict verdict;
        char line[100];
        int connection = accept(listener, (struct sockaddr *)&client, &length);
        if (connection < 0)
            continue;
        stint_key key = stint_key_address(limiter, (const struct sockaddr *)&client, 0, 0);
        if (stint_take(limiter, policy, key, 1, STINT_NOW, &verdict))
            snprintf(line, sizeof(line), "granted by %d\n", (int)getpid());
        else
            snprintf(line, sizeof(line), "refused by %d, wait %.3f s\n", (int)getpid(),
                     (double)verdict.retry_after / 1e9);
        (void)!send(connection, line, strlen(line), MSG_NOSIGNAL);
        close(connection);
    }
}

int main(int count, char **arguments) {
    struct stint_options options = STINT_OPTIONS_INIT;
    struct stint_policy policy = STINT_POLICY_INIT;
    struct stint_limiter *limiter;
    uint32_t id;
    if (count != 4)
        die("usage", "prefork PORT WORKERS LIMIT");
    int workers = atoi(arguments[2]);

    options.max_entries = 100000;
    size_t size = stint_memory_size(&options);
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        die("mmap", strerror(errno));
    if (stint_open_in(&options, memory, size, &limiter) != 0 ||
        stint_policy_parse(arguments[3], &policy, NULL) != 0 ||
        stint_policy_add(limiter, &policy, &id) != 0)
        die("stint", stint_reason());

    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)atoi(arguments[1])),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 ||
        setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) != 0 ||
        bind(listener, (const struct sockaddr *)&address, sizeof(address)) != 0 ||
        listen(listener, 1024) != 0)
        die("listen", strerror(errno));

    /* These signals are blocked and waited for: none comes at a wrong moment. A worker that is told
     * to end before it takes signals ends when it does. */
    sigset_t awaited, before;
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGTERM);
    sigaddset(&awaited, SIGINT);
    sigaddset(&awaited, SIGCHLD);
    sigprocmask(SIG_BLOCK, &awaited, &before);
    int received = SIGCHLD;
    for (int running = 0; received == SIGCHLD; sigwait(&awaited, &received)) {
        while (waitpid(-1, NULL, WNOHANG) > 0)
            running--;
        for (; running < workers; running++) {
            pid_t child = fork();
            if (child < 0)
                die("fork", strerror(errno));
            if (child == 0) {
                sigprocmask(SIG_SETMASK, &before, NULL);
                work(limiter, id, listener); /* with the limiter that it inherited */
            }
        }
    }
    kill(0, SIGTERM);
    while (wait(NULL) > 0)
        ;
    stint_close(limiter);
    return 0;
}
