/* SPDX-License-Identifier: MIT
 * For stint_memory_size and stint_open_in. It prints:
 *
 *     the child took 4, the parent 1: 5 are used
 */
#include <stdio.h>
#include <stint.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    struct stint_options options = STINT_OPTIONS_INIT;
    struct stint_limiter *limiter;
    struct stint_policy policy = STINT_POLICY_INIT;
    struct stint_verdict verdict;
    uint32_t api;

    options.max_entries = 100000;
    size_t size = stint_memory_size(&options);
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || stint_open_in(&options, memory, size, &limiter) != 0 ||
        stint_policy_parse("10/day name=api", &policy, NULL) != 0 ||
        stint_policy_add(limiter, &policy, &api) != 0) {
        fprintf(stderr, "%s\n", stint_reason());
        return 1;
    }
    stint_key ann = stint_key_of(limiter, "ann", 3);
    pid_t child = fork();
    if (child == 0) {
        stint_take(limiter, api, ann, 4, STINT_NOW, NULL);
        _exit(0);
    }
    if (child < 0 || waitpid(child, NULL, 0) != child)
        return 1;
    stint_take(limiter, api, ann, 1, STINT_NOW, &verdict);
    printf("the child took 4, the parent 1: %u are used\n", verdict.used);
    stint_close(limiter);
    return munmap(memory, size) != 0;
}
