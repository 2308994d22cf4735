/* SPDX-License-Identifier: MIT */
#include "jobs.h"

#include <stint.h>

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "build.h" /* made by meson: STINT_BENCH_COMMIT; and STINT_BENCH_FLAGS */

#if defined(__clang__)
#define COMPILER __VERSION__
#else
#define COMPILER "gcc " __VERSION__
#endif

void job_fail(const char *what, const char *why) {
    fprintf(stderr, "stint-bench: %s: %s\n", what, why);
    exit(EXIT_FAILURE);
}

static void put_line(json_t *line) {
    if (line == NULL || json_dumpf(line, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9)) != 0)
        job_fail("an answer", "it is no JSON");
    json_decref(line);
    putchar('\n');
    fflush(stdout);
}

/* A member that must be there, of that kind. */
static json_t *member_of(json_t *asked, const char *member, bool good) {
    if (!good)
        job_fail("a job lacks", member);
    return json_object_get(asked, member);
}

uint64_t job_number(json_t *asked, const char *member) {
    bool good = json_is_integer(json_object_get(asked, member));
    return (uint64_t)json_integer_value(member_of(asked, member, good));
}

const char *job_text(json_t *asked, const char *member) {
    bool good = json_is_string(json_object_get(asked, member));
    return json_string_value(member_of(asked, member, good));
}

bool job_flag(json_t *asked, const char *member) {
    return json_is_true(json_object_get(asked, member));
}

size_t job_read_name(json_t *asked, const char *member, const char *const *names, size_t n) {
    const char *name = job_text(asked, member);

    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    job_fail(member, name);
}

json_t *job_refused(const char *format, ...) {
    char text[1024];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return json_pack("{s:s}", "usage", text);
}

static json_t *read_policy(json_t *asked) {
    struct stint_policy policy = STINT_POLICY_INIT;
    const char *text = job_text(asked, "text"), *wrong = NULL;

    if (stint_policy_parse(text, &policy, &wrong) != 0)
        return json_pack("{s:s, s:I}", "wrong", stint_reason(), "at",
                         (json_int_t)(wrong != NULL ? wrong - text : 0));
    bool plain = (policy.capacity == 0 || policy.capacity == policy.limit) &&
                 policy.max_reserved == 0 && policy.stripes <= 1 && policy.flags == 0 &&
                 policy.start == 0;
    return json_pack("{s:I, s:I, s:b}", "limit", (json_int_t)policy.limit, "window",
                     (json_int_t)policy.window, "plain", plain);
}

static json_t *tell_build(json_t *asked) {
    (void)asked;
    return json_pack("{s:s, s:s, s:s, s:s}", "version", stint_version(), "commit",
                     STINT_BENCH_COMMIT, "compiler", COMPILER, "flags", STINT_BENCH_FLAGS);
}

static json_t *run_job(json_t *asked, const struct job *jobs, size_t n) {
    static const struct job shared[] = {{"policy", read_policy}, {"build", tell_build}};
    const char *name = job_text(asked, "job");

    for (size_t i = 0; i < sizeof(shared) / sizeof(shared[0]); i++)
        if (strcmp(shared[i].name, name) == 0)
            return shared[i].run(asked);
    for (size_t i = 0; i < n; i++)
        if (strcmp(jobs[i].name, name) == 0)
            return jobs[i].run(asked);
    job_fail("there is no job", name);
}

int jobs_run(int argc, char **argv, const struct job *jobs, size_t n) {
    char *line = NULL;
    size_t room = 0;
    json_error_t error;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN); /* a server that died is an error that is told */
    if (argc > 1)
        job_fail(argv[1], "a script asks this program, see bench/run");
    while (getline(&line, &room, stdin) > 0) {
        json_t *asked = json_loads(line, 0, &error);
        if (asked == NULL)
            job_fail("a job", error.text);
        put_line(run_job(asked, jobs, n));
        json_decref(asked);
    }
    free(line);
    return EXIT_SUCCESS;
}
