/* SPDX-License-Identifier: MIT
 * Which node a load balancer sends a key to, while some of the nodes are down: the rules of those
 * that can be sticky.
 *
 * Where a balancer hashes the names of nodes and the bytes of keys by a function of its own
 * (CRC32, sdbm, xxHash), 64 random bits stand for it: what is asked here depends on the number
 * of points of a node and on the rule that picks one, not on the function. */
#ifndef STINT_BENCH_ROUTE_H
#define STINT_BENCH_ROUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum balancer {
    HAPROXY,      /* hash-type consistent: 16 points by weight, the nearest of a node that is up */
    NGINX,        /* hash ... consistent: 160 points by weight, the next of a node that is up */
    ENVOY_RING,   /* ring_hash: 1,024 points shared among the nodes that are up, the next point */
    ENVOY_MAGLEV, /* maglev: a table of 65,537 entries, filled by the nodes that are up in turns */
    MODULO,       /* the hash modulo the nodes that are up: HAProxy's map-based, its default */
    BALANCERS
};
extern const char *const balancer_names[BALANCERS];

enum { WEIGHT_MAX = 256 };
#define NOWHERE UINT32_MAX /* no node is up */

struct point;
struct route {
    enum balancer balancer;
    uint32_t nodes, weight;
    uint64_t seed; /* of the names of the nodes */
    bool *up;
    uint32_t nodes_up;
    struct point *points; /* of a ring, in order */
    size_t points_n;
    uint32_t *table; /* maglev: a node for each entry; modulo: the nodes that are up */
};

/* Opens a route with all nodes up. weight counts for HAPROXY and NGINX. */
void route_open(struct route *route, enum balancer balancer, uint32_t nodes, uint32_t weight,
                uint64_t seed);
void route_close(struct route *route);

/* Takes a node out of the balancer's choice, or back in. */
void route_set(struct route *route, uint32_t node, bool up);

/* Where a key's hash stands. It holds until the next route_set, and for good if
 * route_keeps_places. */
uint32_t route_place(const struct route *route, uint32_t hash);
bool route_keeps_places(const struct route *route);

/* The node for a key, given its hash and its place; NOWHERE if none is up. */
uint32_t route_node(const struct route *route, uint32_t hash, uint32_t place);

#endif
