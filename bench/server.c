/* SPDX-License-Identifier: MIT */
#include "server.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common.h"
#include "peer.h"

const char server_socket[] = "SOCKET", server_directory[] = "DIRECTORY";

enum {
    ARGUMENTS_MAX = 30,
    SERVERS_MAX = 16,        /* at a time */
    START_MS = 10000,        /* that a server may take until it listens */
    DIRECTORY_SIZE = 96 - 8, /* with "/socket" it is struct server's path */
};

/* What the guardian tells when the server runs; if it does not run, a text follows. */
struct greeting {
    pid_t pid; /* 0: there is none */
    char directory[DIRECTORY_SIZE];
};

/* ---- Dying -------------------------------------------------------------------------------------
 * The guardians see to it that nothing is left, whatever happens. This is so that nothing is left
 * already when a process that was interrupted ends. */

static struct {
    volatile pid_t guardian; /* 0: free */
    volatile int guard;
} guarded[SERVERS_MAX];

static volatile sig_atomic_t interrupted;

static void stop_all(int number) {
    interrupted = 1;
    for (size_t i = 0; i < SERVERS_MAX; i++)
        if (guarded[i].guardian != 0) {
            shutdown(guarded[i].guard, SHUT_RDWR);
            waitpid(guarded[i].guardian, NULL, 0);
        }
    /* SA_RESETHAND: the second time it does what it does to any process. */
    raise(number);
}

void server_pause_if_interrupted(void) {
    while (interrupted)
        pause();
}

static void catch_signals(void) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    static bool caught;
    struct sigaction action = {.sa_handler = stop_all, .sa_flags = (int)SA_RESETHAND};

    if (caught)
        return;
    caught = true;
    signal(SIGPIPE, SIG_IGN); /* a server that died is an error that is told */
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        sigaddset(&action.sa_mask, numbers[i]);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        struct sigaction old;
        sigaction(numbers[i], NULL, &old);
        if (old.sa_handler != SIG_IGN) /* nohup */
            sigaction(numbers[i], &action, NULL);
    }
}

/* ---- Guardian ---- */

/* All that follows a server's death; it has written nothing but these. */
static void remove_directory(const char *directory) {
    static const char *const names[] = {"socket", "log"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char path[DIRECTORY_SIZE + 8];
        snprintf(path, sizeof(path), "%s/%s", directory, names[i]);
        unlink(path);
    }
    rmdir(directory);
}

static _Noreturn void be_server(const char *const *arguments, const char *directory,
                                pid_t guardian) {
    char socket[DIRECTORY_SIZE + 8], log[DIRECTORY_SIZE + 8];
    char *replaced[ARGUMENTS_MAX + 1] = {NULL};
    sigset_t none;

    /* Should the guardian be killed, the server does not outlive it. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != guardian)
        _exit(127);
    snprintf(socket, sizeof(socket), "%s/socket", directory);
    snprintf(log, sizeof(log), "%s/log", directory);
    for (size_t i = 0; i < ARGUMENTS_MAX && arguments[i] != NULL; i++)
        replaced[i] = strdup(arguments[i] == server_socket      ? socket
                             : arguments[i] == server_directory ? directory
                                                                : arguments[i]);
    int null = open("/dev/null", O_RDONLY);
    int file = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (null < 0 || file < 0 || dup2(null, 0) < 0 || dup2(file, 1) < 0 || dup2(file, 2) < 0)
        _exit(127);
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    close_range(3, ~0u, 0);
    execvp(replaced[0], replaced);
    fprintf(stderr, "%s: %s\n", replaced[0], strerror(errno));
    fflush(stderr);
    _exit(127);
}

/* The last that the server said, for a message. */
static void send_log(int guard, const char *directory) {
    char path[DIRECTORY_SIZE + 8], text[512];

    snprintf(path, sizeof(path), "%s/log", directory);
    int file = open(path, O_RDONLY);
    if (file < 0)
        return;
    off_t size = lseek(file, 0, SEEK_END);
    ssize_t n = pread(file, text, sizeof(text), size > 512 ? size - 512 : 0);
    if (n > 0 && write(guard, text, (size_t)n) < 0)
        errno = 0; /* nobody listens, so nobody wants to know */
    close(file);
}

static _Noreturn void be_guardian(int guard, const char *const *arguments) {
    struct greeting greeting = {0};
    const char *temporary = getenv("TMPDIR");

    /* Out of reach of the terminal's Ctrl-C and of a kill of the benchmark's process group. */
    setsid();
    for (int number = 1; number < NSIG; number++)
        if (number != SIGCHLD)
            signal(number, SIG_IGN);
    /* The other guardians' sockets must end with the benchmark, not with us. */
    if (guard != 3)
        dup2(guard, 3);
    close_range(4, ~0u, 0);
    guard = 3;

    int length = snprintf(greeting.directory, sizeof(greeting.directory), "%s/stint-bench-XXXXXX",
                          temporary != NULL && *temporary != '\0' ? temporary : "/tmp");
    if (length >= (int)sizeof(greeting.directory) || mkdtemp(greeting.directory) == NULL) {
        static const char text[] = "a temporary directory cannot be made (TMPDIR)";
        greeting.pid = 0;
        if (write(guard, &greeting, sizeof(greeting)) > 0)
            _exit(write(guard, text, sizeof(text) - 1) < 0);
        _exit(1);
    }
    pid_t guardian = getpid();
    greeting.pid = fork();
    if (greeting.pid == 0)
        be_server(arguments, greeting.directory, guardian);
    int server = greeting.pid < 0 ? -1 : pidfd_open(greeting.pid, 0);
    if (greeting.pid < 0)
        greeting.pid = 0;
    if (write(guard, &greeting, sizeof(greeting)) == sizeof(greeting) && greeting.pid != 0) {
        struct pollfd ends[] = {{.fd = guard, .events = POLLIN}, {.fd = server, .events = POLLIN}};
        while (poll(ends, 2, -1) < 0 && errno == EINTR)
            continue;
        if (ends[0].revents == 0) /* the server ended first */
            send_log(guard, greeting.directory);
    }
    if (greeting.pid != 0) {
        kill(greeting.pid, SIGKILL); /* it has nothing to save */
        waitpid(greeting.pid, NULL, 0);
    }
    remove_directory(greeting.directory);
    _exit(0);
}

/* ---- Server ---- */

bool server_installed(const char *program) {
    const char *path = getenv("PATH");
    char file[512];

    for (const char *at = path != NULL ? path : ""; *at != '\0';) {
        size_t length = strcspn(at, ":");
        snprintf(file, sizeof(file), "%.*s/%s", (int)length, at, program);
        if (length != 0 && access(file, X_OK) == 0)
            return true;
        at += length + (at[length] == ':');
    }
    return false;
}

int server_connect(const struct server *server) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -1;
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", server->socket);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

/* Reads `size` bytes, or what comes before the end. */
static size_t read_all(int fd, void *bytes, size_t size) {
    size_t at = 0;

    while (at < size) {
        ssize_t n = read(fd, (char *)bytes + at, size - at);
        if (n <= 0 && !(n < 0 && errno == EINTR))
            break;
        at += n > 0 ? (size_t)n : 0;
    }
    return at;
}

/* Waits until it listens. */
static bool await(const struct server *server) {
    for (int waited = 0; waited < START_MS; waited += 10) {
        struct pollfd end = {.fd = server->guard, .events = POLLIN};
        int fd = server_connect(server);
        if (fd >= 0) {
            close(fd);
            return true;
        }
        if (poll(&end, 1, 10) > 0) /* the guardian says nothing but good-bye */
            return false;
    }
    return false;
}

bool server_start(struct server *server, const char *const *arguments) {
    int ends[2];
    size_t at = 0;
    sigset_t all, before;
    struct greeting greeting;

    *server = (struct server){.guard = -1};
    catch_signals();
    while (at < SERVERS_MAX && guarded[at].guardian != 0)
        at++;
    if (at == SERVERS_MAX)
        return peer_fail("more than %d servers at a time", SERVERS_MAX);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return peer_fail("%s cannot be started: %s", arguments[0], strerror(errno));

    fflush(NULL);
    sigfillset(&all); /* the guardian must not run our handlers, nor be forgotten by them */
    sigprocmask(SIG_BLOCK, &all, &before);
    server->guardian = fork();
    if (server->guardian == 0)
        be_guardian(ends[1], arguments);
    if (server->guardian > 0) {
        guarded[at].guard = server->guard = ends[0];
        guarded[at].guardian = server->guardian;
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(ends[1]);
    if (server->guardian < 0) {
        close(ends[0]);
        return peer_fail("%s cannot be started: %s", arguments[0], strerror(errno));
    }

    bool good = read_all(server->guard, &greeting, sizeof(greeting)) == sizeof(greeting);
    if (good && greeting.pid != 0) {
        server->pid = greeting.pid;
        snprintf(server->socket, sizeof(server->socket), "%s/socket", greeting.directory);
        if (await(server))
            return true;
    }
    char said[513] = "";
    shutdown(server->guard, SHUT_WR); /* it has waited long enough */
    said[read_all(server->guard, said, sizeof(said) - 1)] = '\0';
    for (char *end = said + strlen(said); end > said && end[-1] == '\n';)
        *--end = '\0';
    const char *last = strrchr(said, '\n');
    server_stop(server);
    return peer_fail("%s does not start: %s", arguments[0],
                     said[0] == '\0' ? "it says nothing"
                     : last != NULL  ? last + 1
                                     : said);
}

void server_stop(struct server *server) {
    if (server->guard < 0)
        return;
    shutdown(server->guard, SHUT_RDWR);
    while (waitpid(server->guardian, NULL, 0) < 0 && errno == EINTR)
        continue;
    for (size_t i = 0; i < SERVERS_MAX; i++)
        if (guarded[i].guardian == server->guardian)
            guarded[i].guardian = 0;
    close(server->guard);
    server->guard = -1;
}

/* ---- What a process takes ---- */

uint64_t process_cpu_ns(pid_t pid) {
    clockid_t clock;
    struct timespec time = {0};

    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &time) != 0)
        return 0;
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* From smaps_rollup, which counts pages; statm is behind by what each thread has not yet added. */
uint64_t process_memory(pid_t pid) {
    char path[64], line[256];
    unsigned long long kib = 0;

    if (pid == 0)
        snprintf(path, sizeof(path), "/proc/self/smaps_rollup");
    else
        snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)pid);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return 0;
    while (fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "Rss: %llu kB", &kib) == 1)
            break;
    fclose(file);
    return kib * 1024;
}
