/* SPDX-License-Identifier: MIT */
#include "attach.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "common.h"
#include "trail.h"
#include "users.h"

/* ---- The table ---- */

/* The process that has the lock of a file for itself alone; 0: nobody has; -1: one that is not
 * seen from here. */
static long locker(const char *path) {
    char line[256], place[64], *at; /* 1: FLOCK  ADVISORY  WRITE 1234 00:1a:5678 0 EOF */
    struct stat about;
    long process = 0;
    FILE *locks = stat(path, &about) == 0 ? fopen("/proc/locks", "re") : NULL;

    if (locks == NULL)
        return 0;
    snprintf(place, sizeof(place), " %02x:%02x:%lu ", major(about.st_dev), minor(about.st_dev),
             (unsigned long)about.st_ino);
    while (process == 0 && fgets(line, sizeof(line), locks) != NULL)
        if (strstr(line, ": FLOCK ") != NULL && strstr(line, place) != NULL &&
            (at = strstr(line, " WRITE ")) != NULL)
            process = strtol(at + 7, NULL, 10) > 0 ? strtol(at + 7, NULL, 10) : -1;
    fclose(locks);
    return process;
}

void tell_lock(const struct arguments *arguments) {
    const struct timespec pause = {.tv_nsec = 10000000};
    const uint64_t begin = monotonic_ns();
    char shown[256];
    long process;

    while ((process = locker(arguments->file)) != 0 && monotonic_ns() - begin < 1000000000)
        nanosleep(&pause, NULL);
    if (process == 0)
        return;
    fprintf(stderr, "stint %s: %s: ", arguments->command->name,
            printable(shown, sizeof(shown), arguments->file, strlen(arguments->file)));
    if (process > 0)
        fprintf(stderr, "process %ld", process);
    else
        fputs("another process", stderr);
    fputs(" has the lock: it makes or resizes the table. Waiting for it, for 10 s at most\n",
          stderr);
}

/* Whether a process is stopped, as by SIGSTOP. */
static bool stopped(uint64_t process) {
    char line[64];
    bool found = false;

    snprintf(line, sizeof(line), "/proc/%" PRIu64 "/status", process);
    FILE *status = fopen(line, "re");
    while (status != NULL && !found && fgets(line, sizeof(line), status) != NULL)
        found = strncmp(line, "State:\tT", 8) == 0;
    if (status != NULL)
        fclose(status);
    return found;
}

/* A call that may wait for the table's own lock, which no list of the system has. */
struct attaching {
    const struct arguments *arguments;
    pthread_mutex_t lock;
    pthread_cond_t ends;
    bool over;
};

/* Names the processes that hold it up, after a second: those that have the table open and are
 * stopped. */
static void *tell_stopped(void *context) {
    struct attaching *attaching = context;
    const struct arguments *arguments = attaching->arguments;
    struct timespec until;
    struct users users;
    char shown[256];
    int error = 0;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    pthread_mutex_lock(&attaching->lock);
    while (!attaching->over && error == 0)
        error = pthread_cond_timedwait(&attaching->ends, &attaching->lock, &until);
    pthread_mutex_unlock(&attaching->lock);
    if (error == 0)
        return NULL;
    users_find(&users, arguments->file);
    for (size_t i = 0; i < users.count; i++)
        if (!users.of[i].removed && stopped(users.of[i].process))
            fprintf(stderr,
                    "stint %s: %s: process %" PRIu64 ", which has the table open, is stopped. "
                    "Waiting for it, for 10 s at most\n",
                    arguments->command->name,
                    printable(shown, sizeof(shown), arguments->file, strlen(arguments->file)),
                    users.of[i].process);
    users_free(&users);
    return NULL;
}

int attach_writer(const struct arguments *arguments, open_call *call,
                  const struct stint_options *options, struct stint_limiter **limiter) {
    struct attaching attaching = {arguments, PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER,
                                  false};
    pthread_t thread;

    tell_lock(arguments);
    const bool told = pthread_create(&thread, NULL, tell_stopped, &attaching) == 0;
    const int error = call(options, limiter);
    pthread_mutex_lock(&attaching.lock);
    attaching.over = true;
    pthread_cond_signal(&attaching.ends);
    pthread_mutex_unlock(&attaching.lock);
    if (told)
        pthread_join(thread, NULL);
    return error;
}

int attach(const struct arguments *arguments, uint32_t flags, struct stint_limiter **limiter) {
    struct stint_options options = STINT_OPTIONS_INIT;

    options.path = arguments->file;
    options.flags = flags;
    options.on_full = arguments->on_full;
    const int error = (flags & STINT_READ_ONLY) != 0
                          ? stint_attach(&options, limiter)
                          : attach_writer(arguments, stint_attach, &options, limiter);
    if (error == 0)
        return EXIT_GOOD;
    if (error == -ENOENT)
        return failure(arguments, "%s: there is no table: stint make makes one", arguments->file);
    return failure(arguments, "%s", reason());
}

/* ---- Policies ---- */

/* Gives a policy the name that it has in a table: that of one that nobody else sees. */
static bool name_policy(struct stint_policy *policy) {
    struct stint_options options = STINT_OPTIONS_INIT;
    struct stint_limiter *limiter;
    uint32_t id;

    options.max_entries = 1;
    options.max_policies = 2; /* one with overrides takes two */
    if (stint_open(&options, &limiter) != 0)
        return false;
    bool named =
        stint_policy_add(limiter, policy, &id) == 0 && stint_policy_get(limiter, id, policy) == 0;
    stint_close(limiter);
    return named;
}

/* Whether two policies have the same numbers. */
static bool same(const struct stint_policy *a, const struct stint_policy *b) {
    char texts[2][512];

    stint_policy_format(a, texts[0], sizeof(texts[0]));
    stint_policy_format(b, texts[1], sizeof(texts[1]));
    return strcmp(texts[0], texts[1]) == 0;
}

void policies_read(struct policies *policies, const struct stint_limiter *limiter) {
    struct stint_policy policy = STINT_POLICY_INIT;
    uint32_t room = 0, found;

    *policies = (struct policies){0};
    for (uint32_t id = 0; id < STINT_POLICIES_MAX; id++) {
        /* An id that leads to another is no policy of its own. */
        if (stint_policy_get(limiter, id, &policy) != 0 ||
            stint_policy_find(limiter, policy.name, &found) != 0 || found != id)
            continue;
        if (id >= room) {
            uint32_t more = 2 * id + 16;
            policies->of = must_have(realloc(policies->of, more * sizeof(*policies->of)));
            memset(policies->of + room, 0, (more - room) * sizeof(*policies->of));
            room = more;
        }
        struct policy_here *here = &policies->of[id];
        struct stint_policy unnamed = policy;
        unnamed.name[0] = '\0';
        here->there = true;
        here->policy = policy;
        stint_policy_format(&unnamed, here->notation, sizeof(here->notation));
        policies->count = id + 1;
    }
}

void policies_free(struct policies *policies) {
    free(policies->of);
}

const struct stint_policy *policies_at(const struct policies *policies, uint32_t id) {
    return id < policies->count && policies->of[id].there ? &policies->of[id].policy : NULL;
}

const char *policies_said(const struct stint_limiter *limiter, char said[POLICIES_SAID]) {
    enum { MOST = 8 }; /* that are named */
    struct policies policies;
    size_t count = 0, at;
    char name[40];

    policies_read(&policies, limiter);
    for (uint32_t id = 0; id < policies.count; id++)
        count += policies.of[id].there;
    at = (size_t)snprintf(said, POLICIES_SAID, count == 0 ? "the table has none" : "there is");
    for (uint32_t id = 0, told = 0; id < policies.count && told < MOST; id++) {
        const struct stint_policy *policy = policies_at(&policies, id);
        if (policy != NULL)
            at +=
                (size_t)snprintf(said + at, POLICIES_SAID - at, "%s'%s'", told++ == 0 ? " " : ", ",
                                 printable(name, sizeof(name), policy->name, strlen(policy->name)));
    }
    if (count > MOST)
        snprintf(said + at, POLICIES_SAID - at, ", and %zu more", count - MOST);
    policies_free(&policies);
    return said;
}

/* What there is in the place of a policy that a notation describes: another, or none. */
static int other_policy(const struct arguments *arguments, struct stint_limiter *limiter,
                        struct stint_policy *policy, uint32_t *id) {
    struct stint_policy there = STINT_POLICY_INIT;
    char said[POLICIES_SAID];

    if (!name_policy(policy))
        return failure(arguments, "POLICY '%s': %s", arguments->policy, reason());
    if (stint_policy_find(limiter, policy->name, id) != 0)
        failure(arguments, "POLICY '%s': the table has no policy of the name '%s': %s%s",
                arguments->policy, policy->name, policies_said(limiter, said),
                (arguments->command->options & OPTION(ADD)) != 0 ? ". --add adds it" : "");
    else if (stint_policy_get(limiter, *id, &there) != 0 || !same(policy, &there))
        failure(arguments, "POLICY '%s': the policy '%s' of the table has other numbers",
                arguments->policy, policy->name);
    else
        return EXIT_GOOD;
    return EXIT_USAGE;
}

int attach_policy(const struct arguments *arguments, struct stint_limiter *limiter, uint32_t *id) {
    struct stint_policy policy = STINT_POLICY_INIT;
    char said[POLICIES_SAID], what[POLICIES_SAID + 80];
    const char *wrong;

    if (stint_policy_find(limiter, arguments->policy, id) == 0)
        return EXIT_GOOD;
    int error = stint_policy_parse(arguments->policy, &policy, &wrong);
    if (error != 0) {
        snprintf(what, sizeof(what),
                 "there is no policy of that name (%s), and it is no notation of one:",
                 policies_said(limiter, said));
        error = stint_policy_parse(arguments->policy, &policy, &wrong); /* the reason, again */
    }
    if (error != 0)
        return notation_error(arguments->command->name, what, arguments->policy, wrong);
    if (!arguments->add)
        return other_policy(arguments, limiter, &policy, id);
    const bool there = (policy.name[0] != '\0' || name_policy(&policy)) &&
                       stint_policy_find(limiter, policy.name, id) == 0;
    error = stint_policy_add(limiter, &policy, id);
    if (error == 0 && !there)
        trail(&(struct arguments){.command = arguments->command, .file = arguments->file},
              policy.name, NULL, arguments->policy);
    if (error == 0)
        return EXIT_GOOD;
    int code = failure(arguments, "POLICY '%s': %s", arguments->policy, reason());
    return error == -EEXIST ? EXIT_USAGE : code;
}

/* ---- Entries ---- */

struct walk {
    bool (*callback)(void *context, const struct stint_entry *entry);
    void *context;
    uint64_t count, begun_ns, shown_ns; /* 0: nothing was shown */
    bool on;
};

static bool step(void *context, const struct stint_entry *entry) {
    enum { OFTEN = 1 << 14 }; /* entries between two looks at the clock */
    struct walk *walk = context;
    char count[32];

    if (++walk->count % OFTEN == 0 && walk->on) {
        const uint64_t now = monotonic_ns();
        if (now - walk->begun_ns > 1000000000 && now - walk->shown_ns > 100000000) {
            fprintf(stderr, "\r%s entries read", grouped(count, walk->count));
            walk->shown_ns = now;
        }
    }
    return walk->callback(walk->context, entry);
}

int attach_each(struct stint_limiter *limiter, bool shown,
                bool (*callback)(void *context, const struct stint_entry *entry), void *context) {
    struct walk walk = {callback, context, 0, monotonic_ns(), 0, shown && isatty(STDERR_FILENO)};
    const int error = stint_each(limiter, step, &walk);

    if (walk.shown_ns != 0)
        fprintf(stderr, "\r%50s\r", "");
    return error;
}

uint64_t entry_refused_since(const struct stint_entry *entry) {
    if ((entry->flags & (STINT_ENTRY_REFUSED | STINT_ENTRY_BAN)) == 0)
        return 0;
    /* The name's time is that of the first refusal in a window, by whatever policy. */
    return (entry->flags & STINT_ENTRY_BAN) == 0 && entry->refused_last > entry->since
               ? entry->refused_last
               : entry->since;
}

const char *entry_kind(const struct stint_entry *entry) {
    return (entry->flags & STINT_ENTRY_OVERRIDE) == 0 ? "count"
           : (entry->flags & STINT_ENTRY_BAN) == 0    ? "override"
                                                      : "ban";
}

/* ---- Texts ---- */

int attach_text(const struct arguments *arguments, const char *path, char **text) {
    enum { TEXT_MAX = 64 << 20 }; /* 4,096 policies are far less */
    bool standard_input = strcmp(path, "-") == 0;
    FILE *file = standard_input ? stdin : fopen(path, "re");
    size_t room = 4096, length = 0, got;
    char *bytes;

    if (file == NULL)
        return failure(arguments, "%s: %s", path, strerror(errno));
    bytes = must_have(malloc(room));
    while ((got = fread(bytes + length, 1, room - length - 1, file)) > 0) {
        length += got;
        if (length + 1 == room && room < TEXT_MAX)
            bytes = must_have(realloc(bytes, room *= 2));
    }
    const char *why = ferror(file)                    ? strerror(errno)
                      : length + 1 >= TEXT_MAX        ? "it is too long"
                      : memchr(bytes, 0, length) != 0 ? "it is no text: it has a byte 0"
                                                      : NULL;
    if (!standard_input)
        fclose(file);
    if (why != NULL) {
        free(bytes);
        return failure(arguments, "%s: %s", standard_input ? "standard input" : path, why);
    }
    bytes[length] = '\0';
    if (strncmp(bytes, BYTE_ORDER_MARK, 3) == 0)
        memmove(bytes, bytes + 3, length - 2);
    *text = bytes;
    return EXIT_GOOD;
}
