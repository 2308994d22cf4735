/* SPDX-License-Identifier: MIT
 * What the fuzz targets share. A target is a function that takes any bytes and fails an assertion,
 * or is stopped by a sanitizer, if something is wrong. libFuzzer calls it with bytes that it makes
 * up (meson's option `fuzz`); corpus.c calls it with files, which needs nothing but a compiler. */
#ifndef STINT_TESTS_FUZZ_H
#define STINT_TESTS_FUZZ_H

#ifdef NDEBUG
#error "tests need their assertions"
#endif

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The target; the name is libFuzzer's. Returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What of an input has not been used yet. At its end there are only zeros. */
struct input {
    const uint8_t *at;
    size_t left;
};

/* Fills [bytes, bytes+size). */
static inline void input_bytes(struct input *input, void *bytes, size_t size) {
    size_t here = size < input->left ? size : input->left;
    if (here != 0)
        memcpy(bytes, input->at, here);
    memset((char *)bytes + here, 0, size - here);
    input->at += here;
    input->left -= here;
}

/* A number of `size` bytes, at most 8, little-endian. */
static inline uint64_t input_number(struct input *input, size_t size) {
    uint8_t bytes[8];
    uint64_t number = 0;
    input_bytes(input, bytes, size);
    for (size_t i = size; i-- > 0;)
        number = number << 8 | bytes[i];
    return number;
}

/* A number in [0, n), of as few bytes as hold n - 1. */
static inline uint64_t input_below(struct input *input, uint64_t n) {
    size_t size = 0;
    for (uint64_t most = n - 1; most != 0; most >>= 8)
        size++;
    return input_number(input, size) % n;
}

static inline void *fuzz_malloc(size_t size) {
    void *memory = malloc(size != 0 ? size : 1);
    if (memory == NULL)
        abort();
    return memory;
}

/* Copies what is left, or a part of it, into memory of just that size, so that a sanitizer sees who
 * reads past its end. */
static inline char *exact_copy(const void *bytes, size_t size) {
    char *copy = fuzz_malloc(size);
    if (size != 0)
        memcpy(copy, bytes, size);
    return copy;
}

/* Likewise, with a NUL after it. */
static inline char *exact_text(const void *bytes, size_t size) {
    char *copy = fuzz_malloc(size + 1);
    if (size != 0)
        memcpy(copy, bytes, size);
    copy[size] = '\0';
    return copy;
}

#endif
