/* SPDX-License-Identifier: MIT */
#include "common.h"

#include <stdlib.h>
#include <time.h>

uint64_t monotonic_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

uint64_t thread_cpu_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void summarize(double *values, size_t n, double *median, double *min, double *max) {
    qsort(values, n, sizeof(*values), compare_doubles);
    *median = values[n / 2];
    *min = values[0];
    *max = values[n - 1];
}
