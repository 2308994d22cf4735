/* SPDX-License-Identifier: MIT
 * For stint_on_sigbus. It prints:
 *
 *     1 used, and counted
 *     the file is cut off: let through, and not counted
 *     the table was lost: 1 request was not counted
 *     1 used, and counted
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <stint.h>
#include <unistd.h>

/* The process's handler of SIGBUS. A fault that is not stint's kills, as it would without one. */
static void on_sigbus(int number, siginfo_t *fault, void *context) {
    (void)context;
    if (!stint_on_sigbus(fault))
        signal(number, SIG_DFL);
}

static struct stint_limiter *open_table(const char *path) {
    struct stint_options options = STINT_OPTIONS_INIT;
    struct stint_policy policy = STINT_POLICY_INIT;
    struct stint_limiter *limiter;

    options.path = path;
    options.max_entries = 1000;
    if (stint_open(&options, &limiter) != 0 ||
        stint_policy_parse("10/day name=daily", &policy, NULL) != 0 ||
        stint_policy_add(limiter, &policy, NULL) != 0) {
        fprintf(stderr, "%s\n", stint_reason());
        exit(1);
    }
    return limiter;
}

static void take(struct stint_limiter *limiter) {
    struct stint_verdict verdict;
    bool allowed = stint_take(limiter, 0, stint_key_of(limiter, "ann", 3), 1, STINT_NOW, &verdict);

    if (allowed && (verdict.flags & STINT_UNTRACKED) != 0)
        printf("the file is cut off: let through, and not counted\n");
    else
        printf("%u used, and counted\n", verdict.used);
}

int main(void) {
    char directory[] = "/dev/shm/stint-XXXXXX", path[40];
    struct sigaction action = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO};
    struct stint_stats stats = STINT_STATS_INIT;

    if (sigaction(SIGBUS, &action, NULL) != 0 || mkdtemp(directory) == NULL)
        return 1;
    snprintf(path, sizeof(path), "%s/table", directory);
    struct stint_limiter *limiter = open_table(path);
    take(limiter);
    if (truncate(path, 0) != 0) /* somebody's mistake */
        return 1;
    take(limiter);
    if (stint_stats_get(limiter, &stats) == 0 && stats.lost != 0)
        printf("the table was lost: %llu request was not counted\n",
               (unsigned long long)stats.untracked);
    stint_close(limiter);
    if (unlink(path) != 0)
        return 1;
    limiter = open_table(path);
    take(limiter);
    stint_close(limiter);
    return unlink(path) != 0 || rmdir(directory) != 0;
}
