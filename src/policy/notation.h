/* SPDX-License-Identifier: MIT
 * The text notation of policies, read and written. */
#ifndef STINT_NOTATION_H
#define STINT_NOTATION_H

#include <stddef.h>

#include <stint.h>

/* Writes "100/minute" or "100/15 minutes" as snprintf does. */
int stint_rate_format(const struct stint_policy *policy, char *buffer, size_t size);

#endif
