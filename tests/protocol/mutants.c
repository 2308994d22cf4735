/* SPDX-License-Identifier: MIT
 * The library with a mistake in it: the stories of stories.c and the random histories of history.c
 * must find it out within seconds. mutants.py runs this program, once for all guards
 * of kit/guards.h and once in each build of a patched library.
 *
 *     mutants stories                        the stories that need a patched library
 *     mutants guards SEED GUARD...           takes each of these guards away
 *     mutants patched MUTANT PATCHES SEED    this library has these patches
 *
 * Prints a line for each mutant, its fields divided by tabs: name; what is expected ("found", or
 * why the mistake is harmless); story and promise that it breaks; histories until one was wrong,
 * and how. What was not found is "-".
 *
 * Each mutant runs in a process of its own, as it may crash or hang. */
#ifdef NDEBUG
#error "tests need their assertions"
#endif

#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "history.h"
#include "stories.h"
#include "sys/testing.h"

enum {
    HISTORIES_MOST = 300000,
    HISTORIES_MORE = 5000, /* of a mutant that has a story, or that nothing will find out */
    /* Of the processor's time: other processes may be running. */
    SECONDS_MOST = 40, /* of histories */
    SECONDS_HUNG = 60,
};

static const char *const names[] = {
#define NAME(name, mistake) #name,
    STINT_TEST_GUARDS(NAME)
#undef NAME
};

/* Guards without which no promise is broken, and why they stand. */
static const struct {
    enum stint_test_guard guard;
    const char *why;
} harmless[] = {
    /* If the state was another's, the swap that follows compares the tag; or this thread gives up a
     * claim that would have stood, and starts over. */
    {GUARD_RIVAL_TAG, "a claim may be given up for nothing"},
    /* Of two claims each may cancel the other, by swaps that compare; both start over. Every round
     * uses up slots until the next tick, so it ends. */
    {GUARD_RIVAL_EARLIER, "both of two claims may be given up"},
    /* The claimed slot was never used, so when it was claimed no slot of a later line was the key's
     * (I5); and who claims one there later looks at this claim. */
    {GUARD_SHORT_UNUSED, "the long way round would come to the same"},
};

static const char *harmless_why(unsigned guard) {
    for (size_t i = 0; i < sizeof(harmless) / sizeof(harmless[0]); i++)
        if (harmless[i].guard == guard)
            return harmless[i].why;
    return NULL;
}

/* A library with a mistake in it. */
struct mutant {
    const char *name;
    guard_set removed;   /* guards that are taken away */
    const char *patches; /* those that this library has; NULL: none */
    const char *harmless;
};

/* What a mutant's process tells. */
struct told {
    uint64_t tried; /* histories, or plays of a story */
    uint64_t ns;
    char broken[SCENE_BROKEN_MAX]; /* empty: nothing was found yet */
};

static uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void set_broken(struct told *told, const char *broken) {
    (void)snprintf(told->broken, sizeof(told->broken), "%s", broken);
}

static void tell(int to, const struct told *told) {
    if (write(to, told, sizeof(*told)) != (ssize_t)sizeof(*told))
        _exit(1);
}

/* Random histories of a mutant. The last that is told is what it came to. */
static void run_histories(int to, const struct mutant *mutant, uint64_t seed, uint64_t most) {
    struct history_totals totals = {0};
    uint64_t started = now_ns();
    struct told told = {0};

    stint_test_removed = mutant->removed;
    while (told.tried < most && told.broken[0] == '\0' &&
           told.ns < SECONDS_MOST * UINT64_C(1000000000)) {
        told.tried++;
        told.ns = now_ns() - started;
        tell(to, &told); /* for the case that it crashes */
        if (!history_holds(seed + told.tried - 1, HISTORY_SCHEDULED, &totals, NULL))
            set_broken(&told, history_wrong());
    }
    told.ns = now_ns() - started;
    tell(to, &told);
}

static void run_story(int to, const struct story *story) {
    uint64_t started = now_ns();
    struct outcome outcome = scene_play(&story->scene, story->guards, 1, 0);
    struct told told = {.tried = outcome.plays, .ns = now_ns() - started};
    set_broken(&told, outcome.broken);
    tell(to, &told);
}

/* Runs a mutant in a process of its own: a story, or else histories. Exits if that is not
 * possible. */
static struct told run_mutant(const struct mutant *mutant, const struct story *story, uint64_t seed,
                              uint64_t most) {
    int ends[2], status = 0;
    struct told told = {0}, last;

    fflush(stdout);
    if (pipe(ends) != 0)
        abort();
    pid_t child = fork();
    if (child < 0)
        abort();
    if (child == 0) {
        const struct itimerval hung = {.it_value.tv_sec = SECONDS_HUNG};
        setitimer(ITIMER_PROF, &hung, NULL);
        close(ends[0]);
        if (story != NULL)
            run_story(ends[1], story);
        else
            run_histories(ends[1], mutant, seed, most);
        _exit(0);
    }
    close(ends[1]);
    while (read(ends[0], &last, sizeof(last)) == (ssize_t)sizeof(last))
        told = last;
    close(ends[0]);
    if (waitpid(child, &status, 0) != child)
        abort();
    if (WIFSIGNALED(status))
        set_broken(&told, WTERMSIG(status) == SIGPROF ? "does not end" : "crashes");
    return told;
}

static bool same(const char *one, const char *other) {
    return one == NULL || other == NULL ? one == other : strcmp(one, other) == 0;
}

/* Prints the line of a mutant: its stories in this library, and histories if it is no more than
 * the mutant. */
static void find_out(const struct mutant *mutant, uint64_t seed) {
    bool alone = mutant->patches == NULL || same(mutant->name, mutant->patches);
    bool found = false, has_story = false; /* in whatever library */

    printf("%s\t%s\t", mutant->name, mutant->harmless != NULL ? mutant->harmless : "found");
    for (unsigned i = 0; i < story_count; i++) {
        const struct story *story = &stories[i];
        has_story |= same(story->mutant, mutant->name);
        if (!same(story->mutant, mutant->name) || !same(story->patches, mutant->patches))
            continue;
        struct told told = run_mutant(mutant, story, 0, 0);
        const bool breaks = told.broken[0] != '\0';
        if (breaks && !found)
            printf("%s: %s", story->scene.name, told.broken);
        found |= breaks;
        fprintf(stderr, "%-16s  %s, %" PRIu64 " plays, %.1f ms: %s\n", mutant->name,
                story->scene.name, told.tried, (double)told.ns / 1e6,
                breaks ? told.broken : "nothing");
    }
    printf("%s\t", found ? "" : "-");
    if (alone) {
        uint64_t most = mutant->harmless != NULL || has_story ? HISTORIES_MORE : HISTORIES_MOST;
        struct told told = run_mutant(mutant, NULL, seed, most);
        found = told.broken[0] != '\0';
        if (found)
            printf("%" PRIu64 ": %s", told.tried, told.broken);
        fprintf(stderr, "%-16s  %" PRIu64 " histories, %.1f ms: %s\n", mutant->name, told.tried,
                (double)told.ns / 1e6, found ? told.broken : "nothing");
    }
    printf("%s\n", alone && found ? "" : "-");
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "stories") == 0) {
        for (unsigned i = 0; i < story_count; i++)
            if (stories[i].patches != NULL)
                printf("%s\t%s\n", stories[i].mutant, stories[i].patches);
    } else if (argc >= 3 && strcmp(argv[1], "guards") == 0) {
        for (unsigned guard = 0; guard < GUARDS_END; guard++) {
            struct mutant mutant = {names[guard], GUARD_BIT(guard), NULL, harmless_why(guard)};
            for (int i = 3; i < argc; i++)
                if (strcmp(argv[i], names[guard]) == 0)
                    find_out(&mutant, strtoull(argv[2], NULL, 0));
        }
    } else if (argc == 5 && strcmp(argv[1], "patched") == 0) {
        struct mutant mutant = {argv[2], 0, argv[3], NULL};
        find_out(&mutant, strtoull(argv[4], NULL, 0));
    } else {
        fprintf(stderr, "usage: mutants stories | guards SEED GUARD... | "
                        "patched MUTANT PATCHES SEED\n");
        return 2;
    }
    return 0;
}
