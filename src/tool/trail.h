/* SPDX-License-Identifier: MIT
 * Who changed what, and why: the system's log keeps it (syslog, facility auth). */
#ifndef STINT_TOOL_TRAIL_H
#define STINT_TOOL_TRAIL_H

#include "command.h"

/* Writes a change that the command has made, with the user, the file and the KEYs as they were
 * given. NULL: there is none. Without a log nothing happens. */
void trail(const struct arguments *arguments, const char *policy, const char *was, const char *is);

#endif
