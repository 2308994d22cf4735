/* SPDX-License-Identifier: MIT
 * What happens to the nodes of a simulated fleet. */
#include <math.h>
#include <stdlib.h>

#include "../../bench/keys.h"
#include "../../bench/pages.h"
#include "fleet.h"

const char *const churn_names[CHURNS] = {"death", "crashes", "deploy", "flap", "stable"};

static void add_event(struct events *events, uint64_t at, uint64_t node, bool up, bool restarted) {
    if (events->n == events->room) {
        events->room = events->room * 2 + 64;
        events->each = must_have(realloc(events->each, events->room * sizeof(*events->each)));
    }
    events->each[events->n++] = (struct event){at, (uint32_t)node, up, restarted};
}

static void add_absence(struct events *events, uint64_t at, uint64_t node, uint64_t length,
                        bool restarted) {
    add_event(events, at, node, false, false);
    add_event(events, at + length, node, true, restarted);
}

static int compare_events(const void *a, const void *b) {
    const struct event *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

static uint64_t draw(uint64_t *state) {
    return mix64((*state)++);
}

/* One node in each window, at some instant of it, that is not away already. */
static void draw_deaths(const struct fleet_row *row, uint64_t *state, struct events *events) {
    uint64_t last = 0, returned = 0;

    for (uint64_t window = 0; window < row->windows; window++) {
        uint64_t at = window * row->policy.window + scale64(draw(state), row->policy.window);
        uint64_t node = scale64(draw(state), row->nodes);
        if (node == last && at <= returned)
            node = (node + 1) % row->nodes;
        add_absence(events, at, node, row->down, true);
        last = node;
        returned = at + row->down;
    }
}

/* Failures of each node are a Poisson process while it is up. */
static void draw_crashes(const struct fleet_row *row, uint64_t *state, struct events *events) {
    double end = (double)row->windows * (double)row->policy.window;

    for (uint64_t node = 0; node < row->nodes; node++)
        for (double at = 0;; at += (double)row->down) {
            double random = ((double)(draw(state) >> 11) + 0.5) * 0x1p-53;
            at -= log(random) * (double)row->between;
            if (at >= end)
                break;
            add_absence(events, (uint64_t)at, node, row->down, true);
        }
}

/* Node after node, spread over the window; several are away at once if that is too short. */
static void draw_deploys(const struct fleet_row *row, struct events *events) {
    for (uint64_t window = 0; window < row->windows; window++)
        for (uint64_t node = 0; node < row->nodes; node++)
            add_absence(events,
                        window * row->policy.window +
                            (uint64_t)((double)row->policy.window * ((double)node + 0.5) /
                                       (double)row->nodes),
                        node, row->down, true);
}

static void draw_flaps(const struct fleet_row *row, uint64_t *state, struct events *events) {
    uint64_t step = row->policy.window / (2 * CHURN_FLAPS + 1);

    for (uint64_t window = 0; window < row->windows; window++) {
        uint64_t node = scale64(draw(state), row->nodes);
        for (uint64_t i = 0; i < CHURN_FLAPS; i++)
            add_absence(events, window * row->policy.window + (2 * i + 1) * step, node, step,
                        false);
    }
}

struct events churn_draw(const struct fleet_row *row) {
    struct events events = {.n = 0};
    uint64_t state = mix64(row->seed) ^ mix64(row->nodes);

    switch (row->churn) {
    case DEATH:
        draw_deaths(row, &state, &events);
        break;
    case CRASHES:
        draw_crashes(row, &state, &events);
        break;
    case DEPLOY:
        draw_deploys(row, &events);
        break;
    case FLAP:
        draw_flaps(row, &state, &events);
        break;
    default:
        break;
    }
    if (events.n > 0)
        qsort(events.each, events.n, sizeof(*events.each), compare_events);
    return events;
}
