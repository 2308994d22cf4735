/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * Runs a fuzz target on files: the corpus as a test of its own, and an input that was found to
 * fail, in a build without libFuzzer.
 *
 *     fuzz-TARGET FILE-OR-DIRECTORY...
 *
 * The file in hand is named before it is run, so the last line names the one that failed. */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* Longer than any input takes under the slowest sanitizer. */
#define SECONDS_MAX 60

static bool run_file(const char *path) {
    FILE *file = fopen(path, "rb");
    struct stat about;

    if (file == NULL || fstat(fileno(file), &about) != 0) {
        perror(path);
        return false;
    }
    size_t size = (size_t)about.st_size;
    uint8_t *data = fuzz_malloc(size);
    bool whole = fread(data, 1, size, file) == size;
    fclose(file);
    if (whole) {
        printf("%s\n", path);
        fflush(stdout);
        alarm(SECONDS_MAX);
        LLVMFuzzerTestOneInput(data, size);
        alarm(0);
    } else {
        fprintf(stderr, "%s: it cannot be read to its end\n", path);
    }
    free(data);
    return whole;
}

/* Returns how many files were run; -1 if one cannot be read. */
static int run_directory(const char *directory) {
    struct dirent **entries;
    int count = scandir(directory, &entries, NULL, alphasort), run = 0;

    if (count < 0)
        perror(directory);
    for (int i = 0; i < count; i++) {
        char path[4096];
        int length = snprintf(path, sizeof path, "%s/%s", directory, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.' && run >= 0)
            run = length < (int)sizeof path && run_file(path) ? run + 1 : -1;
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
    return count < 0 ? -1 : run;
}

int main(int argc, char **argv) {
    int inputs = 0;

    if (argc < 2) {
        fprintf(stderr, "Usage: %s FILE-OR-DIRECTORY...\n", argv[0]);
        return 2;
    }
    for (int i = 1; i < argc; i++) {
        struct stat about;
        int run = stat(argv[i], &about) == 0 && S_ISDIR(about.st_mode) ? run_directory(argv[i])
                  : run_file(argv[i])                                  ? 1
                                                                       : -1;
        if (run <= 0) {
            fprintf(stderr, "%s: no input\n", argv[i]);
            return 1;
        }
        inputs += run;
    }
    printf("%d inputs\n", inputs);
    return 0;
}
