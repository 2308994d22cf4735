/* SPDX-License-Identifier: MIT */
#include "test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static struct CMUnitTest tests[64];
static size_t count;

void test_joins(struct CMUnitTest test) {
    if (count == sizeof tests / sizeof tests[0]) {
        fputs("more tests than there is room for in kit/test.c\n", stderr);
        abort();
    }
    tests[count++] = test;
}

int tests_run(CMFixtureFunction set_up, CMFixtureFunction tear_down) {
    cmocka_set_test_filter(getenv("ONLY"));
    return _cmocka_run_group_tests(program_invocation_short_name, tests, count, set_up, tear_down);
}

__attribute__((weak)) int main(void) {
    return tests_run(NULL, NULL);
}
