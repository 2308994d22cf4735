/* SPDX-License-Identifier: MIT
 * stint make, apply, resize: tables as they are set up. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "attach.h"
#include "common.h"
#include "report.h"

static struct stint_options options_of(const struct arguments *arguments) {
    struct stint_options options = STINT_OPTIONS_INIT;

    options.path = arguments->file;
    options.max_keys = arguments->max_keys;
    options.shards = arguments->shards;
    options.max_policies = arguments->max_policies;
    options.labels = arguments->labels;
    options.mode = arguments->mode;
    return options;
}

/* ---- Make ---- */

int tool_make(const struct arguments *arguments) {
    struct stint_options options = options_of(arguments);
    struct stint_limiter *limiter;

    if (options.max_keys == 0)
        return usage_error(arguments->command->name, "--keys is missing");
    if (stint_open(&options, &limiter) != 0)
        return failure(arguments, "%s", stint_reason());
    stint_close(limiter);
    return EXIT_GOOD;
}

/* ---- Resize ---- */

int tool_resize(const struct arguments *arguments) {
    struct stint_options options = options_of(arguments);

    options.path = NULL;
    options.mode = 0;
    if (stint_resize(arguments->file, &options) != 0)
        return failure(arguments, "%s", stint_reason());
    return EXIT_GOOD;
}
