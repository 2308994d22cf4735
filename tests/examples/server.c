/* SPDX-License-Identifier: MIT
 * An HTTP server that limits its clients.
 *
 *     server ADDRESS PORT TABLE POLICIES [TRUSTED ...]
 *
 * It shows
 *  - decisions on all requests of one turn of the event loop, by one call (turn);
 *  - several limits on a request, all or nothing: the client's network, and the plan of its API
 *    key (limits_of);
 *  - a look before the work and a charge after it: the bytes that were sent (limits_of, answer);
 *  - RateLimit and Retry-After fields; /metrics, for those inside;
 *  - the client's address behind proxies that are trusted: 10.0.0.0/8, ::1 (client_of);
 *  - SIGHUP: other limits, while it runs (policies_apply);
 *  - SIGUSR2: another program takes over the listener and the counts (restart). SIGTERM: the end,
 *    after the answers that are under way.
 *
 * It leaves out TLS, bodies of requests, time limits for slow clients, waiting for what they still
 * send when a connection is closed, and threads: several of these servers can share the table, or
 * one server's threads the limiter, each with a loop like this one.
 *
 * POLICIES is a file like this; the four names are needed:
 *
 *     300/minute   name=client     # requests, by the client's network
 *     50M/hour     name=traffic    # bytes, by API key, or by network without one
 *     1000/day     name=free       # requests, by API key
 *     100K/day     name=paid */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <stint.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TURN = 64 };       /* connections that one turn serves */
enum { HEAD_MAX = 8192 }; /* bytes of a request */
enum { DRAIN = 5 };       /* s that idle clients have to leave in */

enum policy { CLIENT, TRAFFIC, FREE, PAID, POLICIES };
static const char *const policy_names[POLICIES] = {"client", "traffic", "free", "paid"};
static uint32_t policies[POLICIES]; /* ids */
enum { LIMITS = 3 };                /* at most, on one request */

struct connection {
    int fd;
    bool closing; /* when `out` is sent */
    struct in6_addr peer;
    char *out; /* what the socket has not taken yet; NULL: nothing */
    size_t out_length, out_sent;
    size_t length;
    char in[HEAD_MAX];
};

struct request {
    size_t length; /* bytes of its head */
    const char *method, *path, *api_key;
    struct in6_addr client;
    bool close;
};

struct prefix {
    struct in6_addr address;
    unsigned bits;
};

static struct stint_limiter *limiter;
static const char *policies_path;
static struct prefix *trusted;
static size_t trusted_count;
static int epoll = -1, listener = -1;
static size_t connections;
static bool draining;

static _Noreturn void die(const char *what, const char *why) {
    fprintf(stderr, "server: %s: %s\n", what, why);
    exit(1);
}

/* ---- Addresses ---- */

/* An IPv4 address is its IPv4-mapped one, here and for stint_key_address. */
static struct in6_addr mapped(const struct in_addr *four) {
    struct in6_addr six = {.s6_addr = {[10] = 0xff, [11] = 0xff}};
    memcpy(&six.s6_addr[12], four, sizeof(*four));
    return six;
}

static bool address_parse(const char *text, struct in6_addr *address) {
    struct in_addr four;
    if (inet_pton(AF_INET6, text, address) == 1)
        return true;
    if (inet_pton(AF_INET, text, &four) != 1)
        return false;
    *address = mapped(&four);
    return true;
}

static bool prefix_parse(char *text, struct prefix *prefix) {
    char *slash = strchr(text, '/'), *end = NULL;
    if (slash != NULL)
        *slash = '\0';
    if (!address_parse(text, &prefix->address))
        return false;
    bool four = strchr(text, ':') == NULL;
    unsigned long most = four ? 32 : 128;
    unsigned long bits = slash == NULL ? most : strtoul(slash + 1, &end, 10);
    if (bits > most || (slash != NULL && (end == slash + 1 || *end != '\0')))
        return false;
    prefix->bits = (unsigned)bits + (four ? 96 : 0);
    return true;
}

static bool is_trusted(const struct in6_addr *address) {
    for (size_t i = 0; i < trusted_count; i++) {
        const uint8_t *of = trusted[i].address.s6_addr;
        unsigned bytes = trusted[i].bits / 8, rest = trusted[i].bits % 8;
        if (memcmp(of, address->s6_addr, bytes) == 0 &&
            (rest == 0 || (of[bytes] ^ address->s6_addr[bytes]) >> (8 - rest) == 0))
            return true;
    }
    return false;
}

/* Each proxy adds at the right of X-Forwarded-For whom it was asked by. So only what a trusted one
 * has added counts: from the right, up to the first that is not trusted. What stands left of that
 * is what the client made up. */
static struct in6_addr client_of(const struct in6_addr *peer, char *forwarded) {
    struct in6_addr client = *peer, next;
    for (char *comma = forwarded; comma != NULL && is_trusted(&client); client = next) {
        comma = strrchr(forwarded, ',');
        char *one = comma == NULL ? forwarded : comma + 1;
        if (comma != NULL)
            *comma = '\0';
        one += strspn(one, " \t");
        one[strcspn(one, " \t")] = '\0';
        if (!address_parse(one, &next))
            break;
    }
    return client;
}

/* ---- Policies ---- */

/* Makes the table's policies those of the file, or says why not and changes nothing. */
static bool policies_apply(void) {
    char text[65536];
    uint32_t ids[POLICIES];
    FILE *file = fopen(policies_path, "r");
    if (file == NULL) {
        perror(policies_path);
        return false;
    }
    size_t length = fread(text, 1, sizeof(text) - 1, file);
    bool whole = feof(file) && !ferror(file);
    fclose(file);
    text[length] = '\0';
    if (!whole) {
        fprintf(stderr, "%s: cannot be read, or has more than %zu bytes\n", policies_path,
                sizeof(text) - 1);
        return false;
    }
    if (stint_policies_apply(limiter, text, 0, NULL, NULL, NULL) != 0) {
        fprintf(stderr, "%s: %s\n", policies_path, stint_reason());
        return false;
    }
    for (size_t i = 0; i < POLICIES; i++) {
        if (stint_policy_find(limiter, policy_names[i], &ids[i]) != 0) {
            fprintf(stderr, "%s: there is no policy of the name %s\n", policies_path,
                    policy_names[i]);
            return false;
        }
    }
    memcpy(policies, ids, sizeof(ids));
    return true;
}

/* To others /metrics is a page like any. */
static bool is_metrics(const struct request *request) {
    return strcmp(request->path, "/metrics") == 0 && is_trusted(&request->client);
}

/* The limits of a request, at `to`. Returns how many. */
static size_t limits_of(const struct request *request, struct stint_request *to) {
    struct sockaddr_in6 from = {.sin6_family = AF_INET6, .sin6_addr = request->client};
    stint_key client = stint_key_address(limiter, (const struct sockaddr *)&from, 32, 64);
    stint_key payer = client;
    size_t n = 0;
    if (is_metrics(request))
        return 0;
    to[n++] = (struct stint_request)STINT_REQUEST(policies[CLIENT], client, 1);
    if (request->api_key != NULL) {
        /* Here the plan is in the key. A real server looks the key up, and refuses what it does not
         * know: else who makes up keys has only the limit of his network. */
        enum policy plan = strncmp(request->api_key, "paid-", 5) == 0 ? PAID : FREE;
        payer = stint_key_of(limiter, request->api_key, strlen(request->api_key));
        to[n++] = (struct stint_request)STINT_REQUEST(policies[plan], payer, 1);
    }
    to[n] = (struct stint_request)STINT_REQUEST(policies[TRAFFIC], payer, 1);
    to[n++].flags = STINT_PEEK | STINT_CHARGE;
    return n;
}

/* ---- Connections ---- */

static void connection_close(struct connection *connection) {
    close(connection->fd);
    free(connection->out);
    free(connection);
    connections--;
}

static void connection_watch(struct connection *connection, int how, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = connection};
    if (epoll_ctl(epoll, how, connection->fd, &event) != 0)
        die("epoll_ctl", strerror(errno));
}

/* Sends what is left. Returns whether the connection is there and can be given more. */
static bool connection_flush(struct connection *connection) {
    while (connection->out_sent < connection->out_length) {
        ssize_t sent = send(connection->fd, connection->out + connection->out_sent,
                            connection->out_length - connection->out_sent, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            connection_watch(connection, EPOLL_CTL_MOD, EPOLLOUT);
            return false;
        }
        if (sent < 0) {
            connection_close(connection);
            return false;
        }
        connection->out_sent += (size_t)sent;
    }
    free(connection->out);
    connection->out = NULL;
    if (connection->closing) {
        connection_close(connection);
        return false;
    }
    return true;
}

/* Answers, with these fields (lines that end in CR LF). `sent` receives the bytes of the answer.
 * Returns whether the connection is there and can be given more. */
static bool respond(struct connection *connection, const char *status, const char *fields,
                    const char *body, uint32_t *sent) {
    static const char format[] = "HTTP/1.1 %s\r\nContent-Length: %zu\r\n%s%s\r\n%s";
    const char *close_field = connection->closing ? "Connection: close\r\n" : "";
    size_t body_length = strlen(body);
    int length = snprintf(NULL, 0, format, status, body_length, close_field, fields, body);
    connection->out = malloc((size_t)length + 1);
    if (connection->out == NULL)
        die("malloc", strerror(errno));
    snprintf(connection->out, (size_t)length + 1, format, status, body_length, close_field, fields,
             body);
    connection->out_length = *sent = (uint32_t)length;
    connection->out_sent = 0;
    return connection_flush(connection);
}

/* All counts as text, which the caller frees. */
static char *metrics(void) {
    int length = stint_metrics(limiter, NULL, NULL, 0);
    size_t size = (size_t)length + 4096; /* the counts grow meanwhile */
    char *text = length < 0 ? NULL : malloc(size);
    if (text == NULL || stint_metrics(limiter, NULL, text, size) < 0)
        die("metrics", stint_reason());
    return text;
}

/* ---- Requests ---- */

enum head { HEAD_BAD, HEAD_INCOMPLETE, HEAD_WHOLE };

/* Reads the first request that the connection holds, in its buffer. */
static enum head head_parse(struct connection *connection, struct request *request) {
    char forwarded[HEAD_MAX + 1] = ""; /* the values of all such fields, as one list */
    char *in = connection->in, *end = memmem(in, connection->length, "\r\n\r\n", 4), *next;
    if (end == NULL)
        return connection->length == HEAD_MAX ? HEAD_BAD : HEAD_INCOMPLETE;
    *request = (struct request){.length = (size_t)(end - in) + 4, .method = in};
    *end = '\0';
    if (strlen(in) != (size_t)(end - in))
        return HEAD_BAD;
    for (char *line = in; line != NULL; line = next) {
        next = strstr(line, "\r\n");
        if (next != NULL) {
            *next = '\0';
            next += 2;
        }
        if (strpbrk(line, "\r\n") != NULL)
            return HEAD_BAD;
        if (line == in) {
            char *path = strchr(line, ' '), *version = strrchr(line, ' ');
            if (path == NULL || path == version || strncmp(version, " HTTP/1.", 8) != 0)
                return HEAD_BAD;
            *path = *version = '\0';
            request->path = path + 1;
            request->close = strcmp(version + 1, "HTTP/1.0") == 0;
            continue;
        }
        char *value = strchr(line, ':');
        if (value == NULL)
            return HEAD_BAD;
        *value++ = '\0';
        value += strspn(value, " \t");
        for (char *last = value + strlen(value); last > value && strchr(" \t", last[-1]) != NULL;)
            *--last = '\0';
        if (strcasecmp(line, "X-API-Key") == 0) {
            request->api_key = value;
        } else if (strcasecmp(line, "X-Forwarded-For") == 0) {
            if (forwarded[0] != '\0')
                strcat(forwarded, ",");
            strcat(forwarded, value);
        } else if (strcasecmp(line, "Connection") == 0) {
            request->close |= strcasecmp(value, "close") == 0;
        } else if (strcasecmp(line, "Transfer-Encoding") == 0 ||
                   (strcasecmp(line, "Content-Length") == 0 && strcmp(value, "0") != 0)) {
            return HEAD_BAD; /* bodies are left out */
        }
    }
    request->client = client_of(&connection->peer, forwarded);
    return HEAD_WHOLE;
}

/* Answers a request by the verdicts on its n limits. Returns as respond does. */
static bool answer(struct connection *connection, const struct request *request,
                   const struct stint_request *limits, const struct stint_verdict *verdicts,
                   size_t n, uint64_t now) {
    const char *status = "200 OK", *body = "Hello.\n";
    char fields[STINT_HEADERS_SIZE(LIMITS)] = "", *text = NULL;
    uint32_t sent;
    bool allowed = true;
    for (size_t i = 0; i < n; i++) {
        allowed &= verdicts[i].allowed;
        if (verdicts[i].flags & STINT_FIRST_REFUSAL) { /* once a window for each key */
            char client[INET6_ADDRSTRLEN];
            inet_ntop(AF_INET6, &request->client, client, sizeof(client));
            fprintf(stderr, "server: %s: refused, limit %u\n", client, verdicts[i].capacity);
        }
    }
    (void)stint_headers(limiter, STINT_HEADERS_DRAFT, verdicts, n, fields, sizeof(fields));
    if (!allowed) {
        status = "429 Too Many Requests";
        body = "Too many requests.\n";
    } else if (strcmp(request->method, "GET") != 0) {
        status = "501 Not Implemented";
        body = "";
    } else if (is_metrics(request)) {
        body = text = metrics();
        strcpy(fields, "Content-Type: application/openmetrics-text; version=1.0.0; "
                       "charset=utf-8\r\n");
    }
    connection->closing = request->close || draining;
    connection->length -= request->length; /* the request ends here */
    memmove(connection->in, connection->in + request->length, connection->length);
    bool more = respond(connection, status, fields, body, &sent);
    free(text);
    if (allowed && n > 0) {
        struct stint_request charge = limits[n - 1]; /* the one that looked */
        charge.cost = sent;
        charge.flags = STINT_CHARGE;
        stint_decide(limiter, &charge, now, NULL);
    }
    return more;
}

/* Serves the connections that have something to read, until they have no whole request left. One
 * call decides the first request of each. */
static void turn(struct connection **ready, size_t n) {
    while (n > 0) {
        static struct request requests[TURN];
        struct stint_request limits[TURN * LIMITS];
        struct stint_verdict verdicts[TURN * LIMITS];
        size_t sizes[TURN], groups = 0, all = 0, left = 0;
        for (size_t i = 0; i < n; i++) {
            enum head head = head_parse(ready[i], &requests[groups]);
            if (head == HEAD_BAD) {
                uint32_t sent;
                ready[i]->closing = true;
                respond(ready[i], "400 Bad Request", "", "", &sent);
            } else if (head == HEAD_WHOLE) {
                ready[groups] = ready[i];
                sizes[groups] = limits_of(&requests[groups], &limits[all]);
                all += sizes[groups++];
            }
        }
        uint64_t now = stint_now(limiter);
        stint_decide_groups(limiter, limits, all, sizes, groups, now, verdicts);
        for (size_t i = 0, first = 0; i < groups; first += sizes[i++])
            if (answer(ready[i], &requests[i], &limits[first], &verdicts[first], sizes[i], now))
                ready[left++] = ready[i];
        n = left;
    }
}

/* ---- The event loop ---- */

static void accept_all(void) {
    for (;;) {
        struct sockaddr_storage peer;
        socklen_t length = sizeof(peer);
        int fd = accept4(listener, (struct sockaddr *)&peer, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return; /* none waits; or no descriptor is free: epoll tells of it again */
        struct connection *connection = calloc(1, sizeof(*connection));
        if (connection == NULL) {
            close(fd);
            return;
        }
        connection->fd = fd;
        connection->peer = peer.ss_family == AF_INET6
                               ? ((const struct sockaddr_in6 *)&peer)->sin6_addr
                               : mapped(&((const struct sockaddr_in *)&peer)->sin_addr);
        connections++;
        connection_watch(connection, EPOLL_CTL_ADD, EPOLLIN);
    }
}

/* Reads or writes as the event says. Returns whether there may be requests to answer. */
static bool connection_ready(struct connection *connection) {
    if (connection->out != NULL) {
        if (!connection_flush(connection))
            return false;
        connection_watch(connection, EPOLL_CTL_MOD, EPOLLIN);
        return true;
    }
    ssize_t got = recv(connection->fd, connection->in + connection->length,
                       sizeof(connection->in) - connection->length, 0);
    if (got > 0) {
        connection->length += (size_t)got;
        return true;
    }
    if (got == 0 || (errno != EAGAIN && errno != EINTR))
        connection_close(connection);
    return false;
}

static void stop_listening(void) {
    if (draining)
        return;
    draining = true;
    epoll_ctl(epoll, EPOLL_CTL_DEL, listener, NULL);
    close(listener);
    alarm(DRAIN); /* what is still there then is idle */
}

/* Starts the program anew beside this one, with the same listener: no connection is refused. Both
 * decide by the same table until this one is told to end. */
static void restart(char **arguments) {
    char number[16], pid[16];
    snprintf(number, sizeof(number), "%d", listener);
    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    pid_t child = draining ? -1 : fork();
    if (child != 0)
        return;
    fcntl(listener, F_SETFD, 0);
    setenv("SERVER_LISTENER", number, 1);
    setenv("SERVER_BEFORE", pid, 1);
    execvp(arguments[0], arguments);
    perror(arguments[0]);
    _exit(1);
}

/* The listener of the server before, or one of its own. */
static void listen_at(const char *address, const char *port) {
    const char *inherited = getenv("SERVER_LISTENER");
    struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found;
    if (inherited != NULL) {
        listener = atoi(inherited);
        fcntl(listener, F_SETFD, FD_CLOEXEC);
        return;
    }
    int error = getaddrinfo(address, port, &hints, &found);
    if (error != 0)
        die(address, gai_strerror(error));
    listener = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (listener < 0 ||
        setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) != 0 ||
        bind(listener, found->ai_addr, found->ai_addrlen) != 0 || listen(listener, 1024) != 0)
        die(address, strerror(errno));
    freeaddrinfo(found);
}

static void signal_take(int signals, char **arguments) {
    struct signalfd_siginfo info;
    if (read(signals, &info, sizeof(info)) != (ssize_t)sizeof(info))
        return;
    switch (info.ssi_signo) {
    case SIGHUP:
        if (policies_apply())
            fprintf(stderr, "server: policies applied\n");
        break;
    case SIGUSR2:
        restart(arguments);
        break;
    case SIGALRM:
        exit(0);
    default:
        stop_listening();
    }
}

int main(int count, char **arguments) {
    if (count < 5)
        die("usage", "server ADDRESS PORT TABLE POLICIES [TRUSTED ...]");
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < 5; i++)
        sigaddset(&set, (int[]){SIGHUP, SIGUSR2, SIGTERM, SIGINT, SIGALRM}[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGCHLD, SIG_IGN); /* of a restart that failed */
    int signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);

    trusted = calloc((size_t)count, sizeof(*trusted));
    for (int i = 5; i < count; i++) {
        char text[64];
        snprintf(text, sizeof(text), "%s", arguments[i]);
        if (trusted == NULL || !prefix_parse(text, &trusted[trusted_count++]))
            die(arguments[i], "not an address, nor a prefix such as 10.0.0.0/8");
    }
    struct stint_options options = STINT_OPTIONS_INIT;
    options.max_entries = 100000;
    options.path = arguments[3];
    policies_path = arguments[4];
    if (stint_open(&options, &limiter) != 0)
        die("table", stint_reason());
    if (!policies_apply())
        exit(1);
    listen_at(arguments[1], arguments[2]);

    epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &listener};
    struct epoll_event event_of_signals = {.events = EPOLLIN, .data.ptr = &event_of_signals};
    if (signals < 0 || epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event) != 0 ||
        epoll_ctl(epoll, EPOLL_CTL_ADD, signals, &event_of_signals) != 0)
        die("epoll", strerror(errno));
    fprintf(stderr, "server: %d is ready\n", (int)getpid());
    const char *before = getenv("SERVER_BEFORE");
    if (before != NULL && getppid() == atoi(before))
        kill(getppid(), SIGTERM);

    while (!draining || connections > 0) {
        struct epoll_event events[TURN];
        struct connection *ready[TURN];
        size_t n = 0;
        int got = epoll_wait(epoll, events, TURN, -1);
        for (int i = 0; i < got; i++) {
            if (events[i].data.ptr == &listener)
                accept_all();
            else if (events[i].data.ptr == &event_of_signals)
                signal_take(signals, arguments);
            else if (connection_ready(events[i].data.ptr))
                ready[n++] = events[i].data.ptr;
        }
        turn(ready, n);
    }
    stint_close(limiter);
    return 0;
}
