/* SPDX-License-Identifier: MIT
 * Peers side by side: several are open at the same time, each at a place of its own ("at"), and
 * asked by turns. All are jobs. */
#ifndef STINT_BENCH_CONTEST_H
#define STINT_BENCH_CONTEST_H

#include <jansson.h>

/* The peers that there are, by name. */
json_t *contest_peers(json_t *asked);

/* What asking a peer needs beside it; opens it, and tells its version; closes both. */
json_t *contest_prepare(json_t *asked);
json_t *contest_open(json_t *asked);
json_t *contest_close(json_t *asked);

/* Asks for every key once, or for keys in random order until the time is over. */
json_t *contest_ask(json_t *asked);

/* Whether every key was granted the smaller of its demand and its limit, counted one by one. */
json_t *contest_audit(json_t *asked);

#endif
