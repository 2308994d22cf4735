/* SPDX-License-Identifier: MIT
 * Runs a fuzz target on files: the corpus as a test of its own, and an input that was found to
 * fail, in a build without libFuzzer.
 *
 *     corpus-TARGET CHANGES FILE-OR-DIRECTORY...
 *
 * A file whose name ends in .pack has many inputs (corpus.py). After each input come so many others
 * that differ from it in some bytes. The input in hand is named before it is run, so the last line
 * names the one that failed. */
#include "fuzz.h"

#include <errno.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include "random.h"

/* Longer than any input takes under the slowest sanitizer. */
#define SECONDS_MAX 60

static uint64_t changes;
static struct random changing;

/* Other bytes: mostly those at the ends of what one may be. */
static void change(uint8_t *data, size_t size) {
    static const uint8_t edges[] = {0, 1, 0x7f, 0x80, 0xff, '0', ' '};
    for (uint64_t n = random_below(&changing, 4); size != 0 && n < 4; n++) {
        const uint64_t pick = random_below(&changing, 2 * sizeof edges);
        data[random_below(&changing, size)] =
            pick < sizeof edges ? edges[pick] : (uint8_t)random_next(&changing);
    }
}

static void run_input(const char *path, unsigned number, const uint8_t *data, size_t size) {
    uint8_t *copy = fuzz_malloc(size); /* of just that size */
    for (uint64_t i = 0; i <= changes; i++) {
        memcpy(copy, data, size);
        if (i != 0)
            change(copy, size);
        printf("%s, input %u, change %" PRIu64 "\n", path, number, i);
        fflush(stdout);
        alarm(SECONDS_MAX);
        LLVMFuzzerTestOneInput(copy, size);
        alarm(0);
    }
    free(copy);
}

static _Noreturn void bad(const char *path, const char *why) {
    fprintf(stderr, "%s: %s\n", path, why);
    exit(1);
}

/* Returns how many inputs were run. */
static unsigned run_pack(const char *path, const uint8_t *data, size_t size) {
    struct input pack = {data, size};
    unsigned run = 0;
    while (pack.left > 0) {
        size_t length = (size_t)input_number(&pack, 4);
        if (length > pack.left)
            bad(path, "it is cut off");
        run_input(path, run++, pack.at, length);
        pack.at += length;
        pack.left -= length;
    }
    return run;
}

/* Likewise. */
static unsigned run_file(const char *path) {
    FILE *file = fopen(path, "rb");
    struct stat about;
    if (file == NULL || fstat(fileno(file), &about) != 0)
        bad(path, strerror(errno));
    const size_t size = (size_t)about.st_size, end = strlen(path);
    uint8_t *data = fuzz_malloc(size);
    unsigned run = 1;
    if (fread(data, 1, size, file) != size)
        bad(path, "it cannot be read to its end");
    fclose(file);
    if (end >= 5 && strcmp(path + end - 5, ".pack") == 0)
        run = run_pack(path, data, size);
    else
        run_input(path, 0, data, size);
    free(data);
    return run;
}

/* Of a directory, each file that is not hidden. */
static unsigned run_all(const char *path) {
    char pattern[4096];
    struct stat about;
    glob_t found;
    unsigned run = 0;
    const bool directory = stat(path, &about) == 0 && S_ISDIR(about.st_mode);
    snprintf(pattern, sizeof pattern, directory ? "%s/*" : "%s", path);
    if (glob(pattern, GLOB_NOCHECK, NULL, &found) != 0)
        bad(path, strerror(errno));
    for (size_t i = 0; i < found.gl_pathc; i++)
        run += run_file(found.gl_pathv[i]);
    globfree(&found);
    if (run == 0)
        bad(path, "no input");
    return run;
}

int main(int argc, char **argv) {
    unsigned inputs = 0;
    if (argc < 3) {
        fprintf(stderr, "Usage: %s CHANGES FILE-OR-DIRECTORY...\n", argv[0]);
        return 2;
    }
    changes = strtoull(argv[1], NULL, 10);
    changing.state = test_seed();
    for (int i = 2; i < argc; i++)
        inputs += run_all(argv[i]);
    printf("%u inputs\n", inputs);
    return 0;
}
