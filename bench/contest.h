/* SPDX-License-Identifier: MIT
 * Peers side by side: all are open at the same time and asked by turns, so that a machine that is
 * slower for a while is slower for all. */
#ifndef STINT_BENCH_CONTEST_H
#define STINT_BENCH_CONTEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "peer.h"

/* Short turns, so that a disturbance is in a few of them for each peer. */
enum { CONTEST_REPEATS = 15 };

/* One peer, and what came out. */
struct entrant {
    const struct peer *peer;
    bool absent;                      /* its server is not installed; nothing else is known */
    double ns[CONTEST_REPEATS];       /* of one decision on its thread, of each repeat in turn */
    double ns_per_op, ns_min, ns_max; /* the median of these, the least and the most */
    double per_second;                /* decisions of all threads together */
    double cpu_seconds;               /* of a million decisions, the server's included */
    double bytes_per_key;             /* what resident memory grew by, the server's if it has one */
    uint64_t granted, refused;        /* filling and rehearsal apart */
    uint64_t preempted;               /* times that a thread was pushed off its core, timed; a
                                       * server's clients apart, which share the cores with it */
    char version[64];                 /* of the server; else "" */
    bool checked;                     /* every answer was right */
    char wrong[256];                  /* else why not */
};

struct contest {
    uint64_t keys;
    unsigned threads;
    unsigned limits; /* of each request */
    double seconds;  /* timed, of each peer, all repeats together */
    uint64_t window; /* s */
    void (*progress)(void *context, const char *label, double part);
    void *progress_context;
};

/* Asks each: first a small one, with a limit that every key exceeds; then one that holds the keys.
 * Each must grant every key min(demand, limit), counted one by one. Look at absent and checked
 * before any number. */
void contest_run(const struct contest *contest, struct entrant *entrants, size_t n);

/* Bytes that it takes at once, about. */
double contest_memory(const struct contest *contest, const struct entrant *entrants, size_t n);

/* A length of window, s, that leaves half a day of the present one. */
uint64_t contest_window(void);

#endif
