/* SPDX-License-Identifier: MIT */
#include "route.h"

#include <stdlib.h>
#include <string.h>

#include "../../bench/keys.h"
#include "../../bench/pages.h"

const char *const balancer_names[BALANCERS] = {"haproxy", "nginx", "envoy-ring", "envoy-maglev",
                                               "modulo"};

enum {
    HAPROXY_POINTS = 16,    /* of weight 1: BE_WEIGHT_SCALE */
    NGINX_POINTS = 160,     /* of weight 1 */
    ENVOY_RING_SIZE = 1024, /* minimum_ring_size, its default */
    MAGLEV_SIZE = 65537,    /* table_size, its default; a prime */
};

struct point {
    uint32_t hash, node;
};

/* ---- Rings ---- */

static int compare_points(const void *a, const void *b) {
    const struct point *x = a, *y = b;
    return x->hash != y->hash ? (x->hash > y->hash) - (x->hash < y->hash)
                              : (x->node > y->node) - (x->node < y->node);
}

/* Places so many points for each node, or for each that is up. */
static void ring_fill(struct route *route, uint32_t points_per_node, bool all) {
    route->points_n = 0;
    for (uint32_t node = 0; node < route->nodes; node++)
        for (uint32_t i = 0; i < points_per_node && (all || route->up[node]); i++)
            route->points[route->points_n++] = (struct point){
                (uint32_t)(mix64(route->seed ^ mix64((uint64_t)node << 32 | i)) >> 32), node};
    qsort(route->points, route->points_n, sizeof(*route->points), compare_points);
}

static uint32_t envoy_points(uint32_t nodes_up) {
    return (ENVOY_RING_SIZE + nodes_up - 1) / nodes_up;
}

/* The first point at or after the hash. */
static uint32_t ring_place(const struct route *route, uint32_t hash) {
    size_t low = 0, high = route->points_n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (route->points[middle].hash < hash)
            low = middle + 1;
        else
            high = middle;
    }
    return (uint32_t)(low == route->points_n ? 0 : low);
}

/* The first point of a node that is up, from `at` on, forwards or backwards. */
static const struct point *ring_walk(const struct route *route, size_t at, bool forwards) {
    while (!route->up[route->points[at].node])
        at = forwards ? (at + 1 == route->points_n ? 0 : at + 1)
                      : (at == 0 ? route->points_n : at) - 1;
    return &route->points[at];
}

/* HAProxy takes the nearer of the points before and after. */
static uint32_t ring_nearest(const struct route *route, uint32_t hash, uint32_t place) {
    size_t before = place == 0 ? route->points_n - 1 : place - 1;
    const struct point *next = ring_walk(route, place, true);
    const struct point *previous = ring_walk(route, before, false);
    return hash - previous->hash <= next->hash - hash ? previous->node : next->node;
}

/* ---- Maglev ---- */

/* Each node that is up goes through the entries in an order of its own and takes the first that is
 * free, by turns, until all are taken (Eisenbud et al. 2016, section 3.4). */
static void maglev_fill(struct route *route) {
    struct turn {
        uint32_t node, at, skip;
    } *turns = must_have(malloc(route->nodes * sizeof(*turns)));
    uint32_t n = 0;

    for (uint32_t node = 0; node < route->nodes; node++) {
        uint64_t hash = mix64(route->seed ^ mix64(node));
        if (route->up[node])
            turns[n++] = (struct turn){node, (uint32_t)(hash >> 32) % MAGLEV_SIZE,
                                       (uint32_t)hash % (MAGLEV_SIZE - 1) + 1};
    }
    for (uint32_t entry = 0; entry < MAGLEV_SIZE; entry++)
        route->table[entry] = NOWHERE;
    for (uint32_t taken = 0; n > 0 && taken < MAGLEV_SIZE; taken++) {
        struct turn *turn = &turns[taken % n];
        while (route->table[turn->at] != NOWHERE)
            turn->at = (turn->at + turn->skip) % MAGLEV_SIZE;
        route->table[turn->at] = turn->node;
    }
    free(turns);
}

/* ---- All ---- */

/* What depends on which nodes are up. */
static void refill(struct route *route) {
    uint32_t n = 0;

    if (route->nodes_up == 0)
        return;
    switch (route->balancer) {
    case ENVOY_RING:
        ring_fill(route, envoy_points(route->nodes_up), false);
        break;
    case ENVOY_MAGLEV:
        maglev_fill(route);
        break;
    case MODULO:
        for (uint32_t node = 0; node < route->nodes; node++)
            if (route->up[node])
                route->table[n++] = node;
        break;
    default: /* the points stay; those of nodes that are down are passed over */
        break;
    }
}

void route_open(struct route *route, enum balancer balancer, uint32_t nodes, uint32_t weight,
                uint64_t seed) {
    *route = (struct route){
        .balancer = balancer, .nodes = nodes, .weight = weight, .seed = seed, .nodes_up = nodes};
    size_t points = 0, table = 0;

    route->up = must_have(malloc(nodes * sizeof(*route->up)));
    memset(route->up, true, nodes);
    switch (balancer) {
    case HAPROXY:
        points = (size_t)nodes * weight * HAPROXY_POINTS;
        break;
    case NGINX:
        points = (size_t)nodes * weight * NGINX_POINTS;
        break;
    case ENVOY_RING:
        points = (size_t)nodes + ENVOY_RING_SIZE;
        break;
    case ENVOY_MAGLEV:
        table = MAGLEV_SIZE;
        break;
    default:
        table = nodes;
    }
    if (points > 0)
        route->points = must_have(malloc(points * sizeof(*route->points)));
    if (table > 0)
        route->table = must_have(malloc(table * sizeof(*route->table)));
    if (route_keeps_places(route) && points > 0)
        ring_fill(route, (uint32_t)(points / nodes), true);
    refill(route);
}

void route_close(struct route *route) {
    free(route->up);
    free(route->points);
    free(route->table);
    *route = (struct route){.nodes = 0};
}

void route_set(struct route *route, uint32_t node, bool up) {
    if (route->up[node] == up)
        return;
    route->up[node] = up;
    route->nodes_up += up ? 1 : UINT32_MAX;
    refill(route);
}

bool route_keeps_places(const struct route *route) {
    return route->balancer != ENVOY_RING;
}

uint32_t route_place(const struct route *route, uint32_t hash) {
    switch (route->balancer) {
    case ENVOY_MAGLEV:
        return hash % MAGLEV_SIZE;
    case MODULO:
        return 0;
    default:
        return route->nodes_up == 0 ? 0 : ring_place(route, hash);
    }
}

uint32_t route_node(const struct route *route, uint32_t hash, uint32_t place) {
    if (route->nodes_up == 0)
        return NOWHERE;
    switch (route->balancer) {
    case HAPROXY:
        return ring_nearest(route, hash, place);
    case NGINX:
        return ring_walk(route, place, true)->node;
    case ENVOY_RING:
        return route->points[place].node;
    case ENVOY_MAGLEV:
        return route->table[place];
    default:
        return route->table[hash % route->nodes_up];
    }
}
