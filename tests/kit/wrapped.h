/* SPDX-License-Identifier: MIT
 * A function of the C library that the linker puts a test's own in the place of
 * (tests/meson.build): WRAPPED(int, flock, int file, int operation) {...}. The other one is
 * __real_flock. */
#ifndef STINT_TESTS_WRAPPED_H
#define STINT_TESTS_WRAPPED_H

#define WRAPPED(type, name, ...)                                                                   \
    type __real_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__)

#endif
