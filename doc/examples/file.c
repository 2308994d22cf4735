/* SPDX-License-Identifier: MIT
 * For stint_attach and stint_resize. It prints:
 *
 *     a reader sees that 4 are used
 *     while it is open it keeps its size
 *     in a table of twice the size 4 are used
 */
#include <stdio.h>
#include <stdlib.h>
#include <stint.h>
#include <unistd.h>

int main(void) {
    char directory[] = "/dev/shm/stint-XXXXXX", path[40];
    struct stint_options options = STINT_OPTIONS_INIT, attach = STINT_OPTIONS_INIT;
    struct stint_limiter *limiter, *reader;
    struct stint_policy policy = STINT_POLICY_INIT;
    struct stint_verdict verdict;
    uint32_t daily;

    if (mkdtemp(directory) == NULL)
        return 1;
    snprintf(path, sizeof(path), "%s/table", directory);
    options.path = attach.path = path;
    options.max_entries = 1000;
    attach.flags = STINT_READ_ONLY;
    if (stint_open(&options, &limiter) != 0 ||
        stint_policy_parse("10/day name=daily", &policy, NULL) != 0 ||
        stint_policy_add(limiter, &policy, &daily) != 0 || stint_attach(&attach, &reader) != 0) {
        fprintf(stderr, "%s\n", stint_reason());
        return 1;
    }
    struct stint_request look = STINT_REQUEST(daily, stint_key_of(limiter, "ann", 3), 1);
    look.flags = STINT_PEEK;
    stint_take(limiter, daily, look.key, 4, STINT_NOW, NULL);
    stint_decide(reader, &look, STINT_NOW, &verdict);
    printf("a reader sees that %u are used\n", verdict.used);
    stint_close(reader);

    options.max_entries = 2000;
    options.path = NULL;
    if (stint_resize(path, &options) != 0)
        printf("while it is open it keeps its size\n");
    stint_close(limiter);
    if (stint_resize(path, &options) != 0 || stint_attach(&attach, &reader) != 0) {
        fprintf(stderr, "%s\n", stint_reason());
        return 1;
    }
    stint_decide(reader, &look, STINT_NOW, &verdict);
    printf("in a table of twice the size %u are used\n", verdict.used);
    stint_close(reader);
    return unlink(path) != 0 || rmdir(directory) != 0;
}
