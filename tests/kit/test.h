/* SPDX-License-Identifier: MIT
 * A program of tests: each joins where it is written, and all are run in that order; or with
 * ONLY=PATTERN in the environment those whose names match. */
#ifndef STINT_TESTS_TEST_H
#define STINT_TESTS_TEST_H

#ifdef NDEBUG
#error "tests need their assertions"
#endif

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* With what is done before it and after it, failed or not. */
#define TEST_WITH(name, set_up, tear_down)                                                         \
    static void name(void **);                                                                     \
    __attribute__((constructor)) static void name##_joins(void) {                                  \
        test_joins((struct CMUnitTest){#name, name, set_up, tear_down, NULL});                     \
    }                                                                                              \
    static void name(__attribute__((unused)) void **state)
#define TEST(name) TEST_WITH(name, NULL, NULL)

/* A text that is made of others, in an array that has room for it. */
#define FORM(text, ...) assert_true(snprintf(text, sizeof(text), __VA_ARGS__) < (int)sizeof(text))

void test_joins(struct CMUnitTest test);

/* For a program with a main of its own. Returns its exit code. */
int tests_run(CMFixtureFunction set_up, CMFixtureFunction tear_down);

#endif
