/* SPDX-License-Identifier: MIT
 * The library with a mistake in it: the stories of stories.c must find it out. mutants.py runs this
 * program, once for all guards of kit/guards.h and once in each build of a patched library.
 *
 *     mutants stories                  the stories that need a patched library
 *     mutants guards GUARD...          takes each of these guards away
 *     mutants patched MUTANT PATCHES   this library has these patches
 *
 * Prints a line for each mutant: its name, a tab, the story and the promise that it breaks. What
 * was not found is "-".
 *
 * Each story runs in a process of its own, as a mutant may crash or hang. */
#ifdef NDEBUG
#error "tests need their assertions"
#endif

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stories.h"
#include "sys/testing.h"

enum { SECONDS_HUNG = 60 }; /* of the processor's time: other processes may be running */

static const char *const names[] = {
#define NAME(name, mistake) #name,
    STINT_TEST_GUARDS(NAME)
#undef NAME
};

/* A library with a mistake in it. */
struct mutant {
    const char *name;
    const char *patches; /* those that this library has; NULL: none */
};

/* Runs a story without these guards in a process of its own. */
static struct outcome run_mutant(const struct story *story, guard_set removed) {
    static const struct itimerval hung = {.it_value.tv_sec = SECONDS_HUNG};
    static struct outcome *told; /* by the process */
    int status = 0;
    if (told == NULL)
        told = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (told == MAP_FAILED)
        abort();
    *told = (struct outcome){.broken = "crashes"};
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        setitimer(ITIMER_PROF, &hung, NULL);
        *told = scene_play(&story->scene, removed, 1, 1);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        abort();
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGPROF)
        snprintf(told->broken, sizeof told->broken, "does not end");
    return *told;
}

static bool same(const char *one, const char *other) {
    return one == NULL || other == NULL ? one == other : strcmp(one, other) == 0;
}

/* Prints the line of a mutant: its stories in this library. */
static void find_out(const struct mutant *mutant) {
    bool found = false;
    printf("%s\t", mutant->name);
    for (unsigned i = 0; i < story_count; i++) {
        const struct story *story = &stories[i];
        if (!same(story->mutant, mutant->name) || !same(story->patches, mutant->patches))
            continue;
        const struct outcome told = run_mutant(story, story->guards);
        const bool breaks = told.broken[0] != '\0';
        if (breaks && !found)
            printf("%s: %s", story->scene.name, told.broken);
        found |= breaks;
        fprintf(stderr, "%-16s  %s, %u plays: %s\n", mutant->name, story->scene.name, told.plays,
                breaks ? told.broken : "nothing");
    }
    printf("%s\n", found ? "" : "-");
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "stories") == 0) {
        for (unsigned i = 0; i < story_count; i++)
            if (stories[i].patches != NULL)
                printf("%s\t%s\n", stories[i].mutant, stories[i].patches);
    } else if (argc >= 2 && strcmp(argv[1], "guards") == 0) {
        for (unsigned guard = 0; guard < GUARDS_END; guard++) {
            const struct mutant mutant = {names[guard], NULL};
            for (int i = 2; i < argc; i++)
                if (strcmp(argv[i], names[guard]) == 0)
                    find_out(&mutant);
        }
    } else if (argc == 4 && strcmp(argv[1], "patched") == 0) {
        const struct mutant mutant = {argv[2], argv[3]};
        find_out(&mutant);
    } else {
        fprintf(stderr, "usage: mutants stories | guards GUARD... | patched MUTANT PATCHES\n");
        return 2;
    }
    return 0;
}
