/* SPDX-License-Identifier: MIT */
#include "options.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"

/* Appends the value of `text`, if it is one of the names or, without names, a count. */
static bool list_add(struct list *list, const char *text, const char *const *names, size_t n,
                     uint64_t high) {
    uint64_t value = 0;

    if (list->n == LIST_MAX)
        return false;
    if (names == NULL) {
        if (!parse_count(text, 1, high, &value))
            return false;
    } else {
        while (value < n && strcmp(names[value], text) != 0)
            value++;
        if (value == n)
            return false;
    }
    list->values[list->n++] = value;
    return true;
}

bool list_read(struct list *list, const char *text, const char *const *names, size_t n,
               uint64_t high, char *wrong, size_t wrong_size) {
    list->n = 0;
    for (;;) {
        size_t length = strcspn(text, ",");
        snprintf(wrong, wrong_size, "%.*s", (int)(length < wrong_size ? length : wrong_size - 1),
                 text);
        if (length >= wrong_size || !list_add(list, wrong, names, n, high))
            return false;
        if (text[length] == '\0')
            return true;
        text += length + 1;
    }
}

bool read_real(const char *text, double low, double high, double *value) {
    char *end;

    errno = 0;
    *value = strtod(text, &end);
    return errno == 0 && end != text && *end == '\0' && isfinite(*value) && *value >= low &&
           *value <= high;
}

int option_next(const char *command, int argc, char **argv, int *at, const char *const *known,
                size_t n, struct option *option) {
    const char *argument = argv[*at], *equals = strchr(argument, '=');
    size_t length = equals != NULL ? (size_t)(equals - argument) : strlen(argument);
    size_t which = 0;

    while (which < n &&
           (strlen(known[which]) != length || strncmp(known[which], argument, length) != 0))
        which++;
    if (which == n)
        return usage_error(command, "there is no option '%s'", argument);
    const char *value = equals != NULL ? equals + 1 : *at + 1 < argc ? argv[++*at] : NULL;
    if (value == NULL)
        return usage_error(command, "%s needs a value", known[which]);
    *option = (struct option){which, known[which], value};
    return EXIT_GOOD;
}

bool help_wanted(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}
