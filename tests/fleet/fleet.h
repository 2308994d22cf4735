/* SPDX-License-Identifier: MIT
 * A simulated fleet: what is asked of it, what happens to its nodes, and what came out. */
#ifndef STINT_FLEET_H
#define STINT_FLEET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stint.h>

#include "route.h"

enum churn { DEATH, CRASHES, DEPLOY, FLAP, STABLE, CHURNS };
extern const char *const churn_names[CHURNS];

enum demand { GREEDY, STEADY, ZIPF_MIX, DEMANDS };

/* What a node knows of the window when it returns. */
enum restart { FORGETS, KEEPS, RESTARTS };

enum { CHURN_FLAPS = 5 }; /* of a window */

/* What came out, for one kind of restart. */
struct outcome {
    uint64_t over;         /* keys in a window that got more than their limit */
    double extra;          /* what they got above it, in limits, the sum */
    double mean, p99, max; /* of all keys in all windows, in percent of the limit */
    double theory;         /* what `mean` is expected to be; NAN: there is no formula */
};

struct fleet_row {
    /* what is asked */
    enum balancer balancer;
    enum churn churn;
    enum demand demand;
    uint32_t nodes, weight;
    uint64_t keys, windows, seed;
    struct stint_policy policy;
    uint64_t down, between; /* ns */

    double busiest;     /* keys of the busiest node, in times the mean, while all are up */
    uint64_t deaths;    /* events that took a node out */
    double moved;       /* part of the keys that an event moved, the mean */
    unsigned moves_max; /* of a key in a window */
    uint64_t passed;    /* keys that got more in a window than (1 + moves) x limit */
    uint64_t untracked; /* decisions without a slot: must be 0 */
    struct outcome outcomes[RESTARTS];
};

/* A node leaves the balancer's choice, or comes back to it. */
struct event {
    uint64_t at; /* ns from the start */
    uint32_t node;
    bool up, restarted; /* restarted: it has forgotten, if it forgets */
};

struct events {
    struct event *each;
    size_t n, room;
};

/* Draws what happens to the nodes in all windows, in order. The caller frees `each`. */
struct events churn_draw(const struct fleet_row *row);

#endif
