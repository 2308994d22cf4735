/* SPDX-License-Identifier: MIT
 * The times of access logs, in ns since the Unix epoch. Each function returns NULL, or why there is
 * no time, a constant. */
#ifndef STINT_TOOL_LOG_TIME_H
#define STINT_TOOL_LOG_TIME_H

#include <stdbool.h>
#include <stdint.h>

#include "access_log.h"

/* The latest time that is read, 2200-01-01: a policy's longest window added to it still fits the
 * signed 64 bits in which others may count nanoseconds. */
#define LOG_SECONDS_MAX INT64_C(7258118400)

/* [17/May/2015:10:05:03 +0000], outside quotes. A user's name stands before it and may hold the
 * like, so the last before a quoted field counts; quoted fields before the first are passed over.
 *   brackets  receives where it stands */
const char *log_time_clf(struct text line, struct text *brackets, uint64_t *time_ns);

/* [17/May/2015:10:05:03.042]: of the server's own zone, which is not told, and taken for UTC. */
const char *log_time_haproxy(struct text line, struct text *brackets, uint64_t *time_ns);

/* Seconds, with decimals or without. */
const char *log_time_epoch(struct text field, uint64_t *time_ns);

/* A value of JSON: seconds, ms, us or ns; 2015-05-17T10:05:03.042Z; 17/May/2015:10:05:03 +0000. */
const char *log_time_value(struct text value, uint64_t *time_ns);

#endif
