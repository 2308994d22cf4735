/* SPDX-License-Identifier: MIT */
#include "machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "build.h" /* made by meson: STINT_BENCH_COMMIT, STINT_BENCH_FLAGS */
#include "team.h"

const char build_commit[] = STINT_BENCH_COMMIT;
const char build_flags[] = STINT_BENCH_FLAGS;
#if defined(__clang__)
const char build_compiler[] = __VERSION__;
#else
const char build_compiler[] = "gcc " __VERSION__;
#endif

/* Copies what follows the colon in the first line of `path` that starts with `name`. */
static void read_field(const char *path, const char *name, char *value, size_t size) {
    char line[512];
    FILE *file = fopen(path, "r");

    if (file == NULL)
        return;
    while (fgets(line, sizeof(line), file) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, name, strlen(name)) != 0 || colon == NULL)
            continue;
        colon += 1 + strspn(colon + 1, " \t");
        snprintf(value, size, "%.*s", (int)strcspn(colon, "\n"), colon);
        break;
    }
    fclose(file);
}

/* The number at the start of a file; `missing` if there is none ("max" in a control group). */
static uint64_t read_number(const char *path, uint64_t missing) {
    char text[32] = "";
    char *end;
    FILE *file = fopen(path, "r");

    if (file == NULL)
        return missing;
    if (fgets(text, sizeof(text), file) == NULL)
        text[0] = '\0';
    fclose(file);
    uint64_t number = strtoull(text, &end, 10);
    return end == text ? missing : number;
}

static void read_huge_pages(char *value, size_t size) {
    char line[128] = "";
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");

    snprintf(value, size, "unknown");
    if (file == NULL)
        return;
    if (fgets(line, sizeof(line), file) != NULL) {
        const char *chosen = strchr(line, '['); /* always [madvise] never */
        if (chosen != NULL)
            snprintf(value, size, "%.*s", (int)strcspn(chosen + 1, "]"), chosen + 1);
    }
    fclose(file);
}

/* From the kernel and not from sysconf(), which on AMD adds up the caches of cores that a virtual
 * machine does not have. Files say "32768K". */
static uint64_t last_level_cache(void) {
    uint64_t largest = 0;

    for (int index = 0; index < 8; index++) {
        char path[96];
        snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu0/cache/index%d/size", index);
        uint64_t size = read_number(path, 0) * 1024;
        if (size > largest)
            largest = size;
    }
    return largest;
}

void machine_read(struct machine *machine) {
    struct utsname name;
    char available[64] = "";

    memset(machine, 0, sizeof(*machine));
    if (uname(&name) == 0) {
        snprintf(machine->kernel, sizeof(machine->kernel), "%.63s %.63s", name.sysname,
                 name.release);
        snprintf(machine->cpu, sizeof(machine->cpu), "%.63s", name.machine);
    }
    read_field("/proc/cpuinfo", "model name", machine->cpu, sizeof(machine->cpu));
    read_huge_pages(machine->huge_pages, sizeof(machine->huge_pages));
    machine->cores = team_cores();
    machine->cache = last_level_cache();
    machine->memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

    read_field("/proc/meminfo", "MemAvailable", available, sizeof(available));
    machine->available = strtoull(available, NULL, 10) * 1024;
    if (machine->available == 0)
        machine->available = machine->memory;
    uint64_t limit = read_number("/sys/fs/cgroup/memory.max", UINT64_MAX);
    if (limit < machine->available)
        machine->available = limit;
}
