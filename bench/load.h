/* SPDX-License-Identifier: MIT
 * What the limiter costs a server, at the rate that the server has. */
#ifndef STINT_BENCH_LOAD_H
#define STINT_BENCH_LOAD_H

#include <jansson.h>

/* A job: serves arrivals on a schedule. */
json_t *load_run(json_t *asked);

#endif
