/* SPDX-License-Identifier: MIT
 * What may stand at a place of a command line. */
#ifndef STINT_TOOL_COMPLETE_H
#define STINT_TOOL_COMPLETE_H

#include "command.h"

/* stint complete PLACE WORD...: writes the words that may stand in the place of one of the words,
 * counted from 0, the command. Returns EXIT_GOOD; EXIT_FAILED: a file stands there. */
int complete(const struct command *commands, size_t n, int argc, char **argv);

#endif
