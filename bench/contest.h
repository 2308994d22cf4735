/* SPDX-License-Identifier: MIT
 * Peers side by side: all are open at the same time and asked by turns, so that a machine that is
 * slower for a while is slower for all. */
#ifndef STINT_BENCH_CONTEST_H
#define STINT_BENCH_CONTEST_H

#include <jansson.h>

/* All peers, in the order of the table. */
json_t *contest_peers(void);

/* Jobs, each about some peers, whose servers run: first a small table, with a limit that every key
 * exceeds; then one that holds the keys. Each must grant every key min(demand, limit), counted one
 * by one. Look at "checked" in the answer before any number. */
json_t *contest_rehearse(json_t *asked);
json_t *contest_measure(json_t *asked);

#endif
