/* SPDX-License-Identifier: MIT
 * What a script asks of a program that measures. Each line of the standard input is a job: a JSON
 * object that names it in "job". The answer is a line of the standard output. */
#ifndef STINT_BENCH_JOBS_H
#define STINT_BENCH_JOBS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct job {
    const char *name;
    /* Returns the answer, a new reference. One with "usage" says what was asked wrongly. */
    json_t *(*run)(json_t *asked);
};

/* Does the jobs of the standard input until it ends, and dies with the process that asks. Beside
 * the jobs given there are "policy", which reads a policy's notation, and "build", which tells
 * how the program was built. Returns an exit code. */
int jobs_run(int argc, char **argv, const struct job *jobs, size_t n);

/* Members of what is asked. These end the process if the member is not there, ... */
uint64_t job_number(json_t *asked, const char *member); /* 0 to 2^63 - 1 */
const char *job_text(json_t *asked, const char *member);

/* ... and here that means no. */
bool job_flag(json_t *asked, const char *member);

/* The index of a member's value among the names. Ends the process if it is none of them. */
size_t job_read_name(json_t *asked, const char *member, const char *const *names, size_t n);

/* Ends the process, and says why. */
_Noreturn void job_fail(const char *what, const char *why);

/* An answer that says what was asked wrongly. */
json_t *job_refused(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
