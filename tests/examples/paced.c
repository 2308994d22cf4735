/* SPDX-License-Identifier: MIT
 * An event loop that lets requests wait for their turn instead of refusing them.
 *
 *     paced LIMIT
 *
 * LIMIT is a token bucket that may be reserved from, such as `5/s burst=2 reserve=10`. Each line
 * of the standard input, CLIENT JOB, is a job of a client. It is done when the client's bucket says
 * so: at once, or after a wait of which it is told. Who would have to wait for more than the
 * reserve is refused. The line - CLIENT JOB cancels a job that waits.
 *
 * It shows what to do with the time that a reservation tells, and how a reservation is given back.
 * A job that waits takes a place in a list, and nothing else: no thread sleeps, and the bucket has
 * no timer.
 *
 * It leaves out what is done (it prints it), and a heap for more jobs than a list is good for. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <stint.h>
#include <string.h>
#include <unistd.h>

enum { WAITING_MAX = 1000, NAME_SIZE = 64 };

/* A place in a client's queue: from when on a job may be done. */
struct place {
    stint_key client;
    uint64_t due;                 /* ns since the epoch */
    struct stint_verdict verdict; /* by which the token is given back */
    char job[NAME_SIZE];
};

static struct stint_limiter *limiter;
static uint32_t policy;
static struct place places[WAITING_MAX]; /* those of a client in the order of their times */
static size_t count;

static _Noreturn void die(const char *what, const char *why) {
    fprintf(stderr, "paced: %s: %s\n", what, why);
    exit(1);
}

static void remove_place(size_t at) {
    memmove(&places[at], &places[at + 1], (--count - at) * sizeof(*places));
}

/* ---- A job comes ---- */

static void ask(stint_key client, const char *job, uint64_t now) {
    struct stint_request request = STINT_REQUEST(policy, client, 1);
    struct stint_verdict verdict;
    if (count < WAITING_MAX) /* else only what need not wait is taken */
        request.flags = STINT_RESERVE;
    if (!stint_decide(limiter, &request, now, &verdict)) {
        printf("%s: refused, try again in %.1f s\n", job, (double)verdict.retry_after / 1e9);
    } else if (verdict.retry_after == 0) {
        printf("%s: done\n", job);
    } else {
        struct place *place = &places[count++];
        *place = (struct place){client, now + verdict.retry_after, verdict, ""};
        memcpy(place->job, job, strlen(job) + 1);
        printf("%s: waits %.1f s\n", job, (double)verdict.retry_after / 1e9);
    }
}

/* ---- A job is cancelled ----
 *
 * The client's jobs behind it move up, each to the time of the one before it. It is the last place
 * that is given back: the next job to come gets it again. (If the place in the middle were given
 * back, that job would be told the time of the last one, and both would be done at once.) */

static void cancel(stint_key client, const char *job) {
    size_t at = 0;
    while (at < count &&
           (!stint_key_equal(places[at].client, client) || strcmp(places[at].job, job) != 0))
        at++;
    if (at == count) {
        printf("%s: does not wait\n", job);
        return;
    }
    for (size_t next = at + 1; next < count; next++) {
        if (!stint_key_equal(places[next].client, client))
            continue;
        memcpy(places[at].job, places[next].job, NAME_SIZE);
        at = next;
    }
    stint_refund(limiter, client, &places[at].verdict, 1);
    remove_place(at);
    printf("%s: cancelled\n", job);
}

/* ---- The loop ---- */

/* Does what is due. Returns ms until the next job is, rounded up, -1 if none waits. */
static int do_due(uint64_t now) {
    for (;;) {
        size_t first = 0;
        for (size_t i = 1; i < count; i++)
            if (places[i].due < places[first].due)
                first = i;
        if (count == 0)
            return -1;
        if (places[first].due > now)
            return (int)((places[first].due - now + 999999) / 1000000);
        printf("%s: done\n", places[first].job);
        remove_place(first);
    }
}

static void do_line(char *line, uint64_t now) {
    bool cancels = strncmp(line, "- ", 2) == 0;
    char *job = cancels ? line + 2 : line;
    stint_key client = stint_key_of(limiter, job, strcspn(job, " "));
    if (strlen(job) >= NAME_SIZE)
        printf("%.20s...: the name is too long\n", job);
    else if (cancels)
        cancel(client, job);
    else
        ask(client, job, now);
}

/* The lines that have come. Returns false at the end of the input. */
static bool read_lines(uint64_t now) {
    static char buffer[8192];
    static size_t held;
    char *line = buffer, *end;
    ssize_t got = read(STDIN_FILENO, buffer + held, sizeof(buffer) - held);
    if (got <= 0)
        return false;
    held += (size_t)got;
    while ((end = memchr(line, '\n', held - (size_t)(line - buffer))) != NULL) {
        *end = '\0';
        do_line(line, now);
        line = end + 1;
    }
    held -= (size_t)(line - buffer);
    memmove(buffer, line, held);
    if (held == sizeof(buffer))
        die("standard input", "a line is too long");
    return true;
}

int main(int arguments_count, char **arguments) {
    struct stint_options options = STINT_OPTIONS_INIT;
    struct stint_policy rule = STINT_POLICY_INIT;
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    int wait = 0;
    if (arguments_count != 2)
        die("usage", "paced LIMIT");
    options.max_entries = 100000;
    if (stint_policy_parse(arguments[1], &rule, NULL) != 0 || stint_open(&options, &limiter) != 0 ||
        stint_policy_add(limiter, &rule, &policy) != 0)
        die(arguments[1], stint_reason());
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (input.fd >= 0 || count > 0) {
        bool ready = poll(&input, 1, wait) > 0;
        uint64_t now = stint_now(limiter); /* of all that is decided in this turn */
        if (ready && !read_lines(now))
            input.fd = -1; /* which poll passes over */
        wait = do_due(now);
    }
    stint_close(limiter);
    return 0;
}
