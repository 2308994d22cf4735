/* SPDX-License-Identifier: MIT */
#include "output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int measure_option(const char *command, const struct option *option, double *seconds,
                   struct output *output) {
    const char *value = option->value;

    if (strcmp(option->name, "--seconds") == 0) {
        if (!read_real(value, 0.001, 3600, seconds))
            return usage_error(command, "--seconds: '%s' is not a number from 0.001 to 3600",
                               value);
    } else if (strcmp(option->name, "--format") == 0) {
        if (strcmp(value, "table") == 0)
            output->format = FORMAT_TABLE;
        else if (strcmp(value, "json") == 0)
            output->format = FORMAT_JSON;
        else
            return usage_error(command, "--format: '%s' is not table or json", value);
    } else if (strcmp(option->name, "--plot") == 0) {
        output->plot = value;
    } else {
        output->compare = value;
    }
    return EXIT_GOOD;
}

static bool in_path(const char *program) {
    const char *path = getenv("PATH");
    char file[4096];

    while (path != NULL && *path != '\0') {
        size_t length = strcspn(path, ":");
        int n = snprintf(file, sizeof(file), "%.*s/%s", (int)length, path, program);
        if (n > 0 && (size_t)n < sizeof(file) && access(file, X_OK) == 0)
            return true;
        path += length + (path[length] == ':');
    }
    return false;
}

static int open_plot(const char *command, const char *directory) {
    if (mkdir(directory, 0777) != 0 && errno != EEXIST)
        return usage_error(command, "--plot %s: %s", directory, strerror(errno));
    struct stat status;
    if (stat(directory, &status) != 0 || !S_ISDIR(status.st_mode))
        return usage_error(command, "--plot '%s': it is no directory", directory);
    if (access(directory, W_OK | X_OK) != 0)
        return usage_error(command, "--plot '%s': %s", directory, strerror(errno));
    if (in_path("gnuplot"))
        return EXIT_GOOD;
    fprintf(stderr,
            "stint-bench %s: --plot needs gnuplot, which is not there (Debian: gnuplot-nox)\n",
            command);
    return EXIT_FAILED;
}

static int open_old(struct output *output) {
    json_error_t error;

    errno = 0;
    output->old = json_load_file(output->compare, 0, &error);
    if (output->old == NULL)
        return usage_error(output->command, "--compare '%s': %s", output->compare, error.text);
    const char *command = json_string_value(json_object_get(output->old, "command"));
    if (command == NULL || json_object_get(output->old, "machine") == NULL ||
        !json_is_array(json_object_get(output->old, "rows")))
        return usage_error(output->command, "--compare '%s': it is no result of stint-bench",
                           output->compare);
    if (strcmp(command, output->command) != 0)
        return usage_error(output->command, "--compare '%s': it is a result of stint-bench %s",
                           output->compare, command);
    return EXIT_GOOD;
}

int output_open(struct output *output, const char *command) {
    int result = EXIT_GOOD;

    output->command = command;
    if (output->plot != NULL)
        result = open_plot(command, output->plot);
    if (result == EXIT_GOOD && output->compare != NULL)
        result = open_old(output);
    return result;
}

void output_close(struct output *output) {
    json_decref(output->old);
    output->old = NULL;
}
