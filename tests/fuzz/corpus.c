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

#include <dirent.h>
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

/* Returns how many inputs were run; -1 if one cannot be read. */
static int run_pack(const char *path, const uint8_t *data, size_t size) {
    struct input pack = {data, size};
    int run = 0;
    while (pack.left > 0) {
        size_t length = (size_t)input_number(&pack, 4);
        if (length > pack.left) {
            fprintf(stderr, "%s: it is cut off\n", path);
            return -1;
        }
        run_input(path, (unsigned)run++, pack.at, length);
        pack.at += length;
        pack.left -= length;
    }
    return run;
}

/* Likewise. */
static int run_file(const char *path) {
    FILE *file = fopen(path, "rb");
    struct stat about;

    if (file == NULL || fstat(fileno(file), &about) != 0) {
        perror(path);
        return -1;
    }
    size_t size = (size_t)about.st_size, end = strlen(path);
    uint8_t *data = fuzz_malloc(size);
    bool whole = fread(data, 1, size, file) == size;
    int run = 1;
    fclose(file);
    if (!whole) {
        fprintf(stderr, "%s: it cannot be read to its end\n", path);
        run = -1;
    } else if (end >= 5 && strcmp(path + end - 5, ".pack") == 0) {
        run = run_pack(path, data, size);
    } else {
        run_input(path, 0, data, size);
    }
    free(data);
    return run;
}

/* Likewise. */
static int run_directory(const char *directory) {
    struct dirent **entries;
    int count = scandir(directory, &entries, NULL, alphasort), run = 0;
    if (count < 0)
        perror(directory);
    for (int i = 0; i < count; i++) {
        char path[4096];
        int length = snprintf(path, sizeof path, "%s/%s", directory, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.' && run >= 0) {
            int more = length < (int)sizeof path ? run_file(path) : -1;
            run = more < 0 ? -1 : run + more;
        }
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
    return count < 0 ? -1 : run;
}

int main(int argc, char **argv) {
    int inputs = 0;
    if (argc < 3) {
        fprintf(stderr, "Usage: %s CHANGES FILE-OR-DIRECTORY...\n", argv[0]);
        return 2;
    }
    changes = strtoull(argv[1], NULL, 10);
    changing.state = test_seed();
    for (int i = 2; i < argc; i++) {
        struct stat about;
        bool directory = stat(argv[i], &about) == 0 && S_ISDIR(about.st_mode);
        int run = directory ? run_directory(argv[i]) : run_file(argv[i]);
        if (run <= 0) {
            fprintf(stderr, "%s: no input\n", argv[i]);
            return 1;
        }
        inputs += run;
    }
    printf("%d inputs\n", inputs);
    return 0;
}
