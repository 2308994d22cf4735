/* SPDX-License-Identifier: MIT
 * Every node counts for itself, and what it counts in a window it knows until the window ends or it
 * forgets. So one limiter stands for those of all nodes: the node, and how often it has forgotten,
 * are joined to the key. All decisions are the library's, at the simulated time.
 *
 * Between two changes of the fleet a key stays on its node. What it asks for in that visit is
 * decided as one request that takes what is left (STINT_PARTIAL), which grants as much as single
 * ones would. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../bench/jobs.h"
#include "../../bench/keys.h"
#include "../../bench/pages.h"
#include "fleet.h"

static const char *const demand_names[DEMANDS] = {"greedy", "steady", "zipf"};
static const char *const restart_names[RESTARTS] = {"forgets", "keeps"};

enum {
    STEADY_FACTOR = 2,   /* limits that a steady key asks for in a window */
    ZIPF_TOTAL_PART = 4, /* a zipf mix asks for a quarter of what all limits together allow */
    SPARE = 1000,        /* keys of room above what is needed, for small tables */
};

/* A stay of a key on a node, within one window. */
struct visit {
    uint32_t key, node, forgot; /* forgot: how often the node had, if it forgets */
    uint64_t from, to;          /* ns from the start */
};

struct fleet {
    struct fleet_row *row;
    struct route route;
    struct visit *now; /* of each key */
    uint32_t *hash, *place, *forgot;
    unsigned *moves;      /* of each key, in this window */
    double *rate;         /* tokens that each key asks for in a window; greedy: unused */
    struct visit *visits; /* of this window */
    size_t visits_n, visits_room;
    uint32_t *got;              /* by each key in this window, for each kind of restart */
    uint32_t *extras[RESTARTS]; /* above the limit, of keys in windows; those with none left out */
    size_t extras_n[RESTARTS], extras_room[RESTARTS];
    struct stint_limiter *limiter;
    uint64_t room; /* keys that fit into it */
    uint64_t events, moved;
};

/* Windows begin at whole multiples of their length since the epoch; so does the simulation, one
 * window after it. (An instant of 0 would be STINT_NOW.) */
static uint64_t instant_of(const struct fleet *fleet, uint64_t ns) {
    return fleet->row->policy.window + ns;
}

static uint64_t simulated_now;
static uint64_t simulated_clock(void) {
    return simulated_now;
}

/* What a window counted is gone when it ends, so a larger table may take the place of the last. */
static bool open_limiter(struct fleet *fleet, uint64_t room) {
    struct stint_options options = STINT_OPTIONS_INIT;
    struct stint_policy policy = fleet->row->policy;
    unsigned char secret[STINT_SECRET_SIZE];

    stint_close(fleet->limiter);
    fleet->limiter = NULL;
    for (size_t i = 0; i < sizeof(secret); i++)
        secret[i] = (unsigned char)mix64(fleet->row->seed + i);
    options.max_entries = fleet->room = room * 2 + SPARE;
    options.clock = simulated_clock;
    options.secret = secret;
    options.on_full = STINT_FULL_REFUSE;
    simulated_now = instant_of(fleet, 0);
    int error = stint_open(&options, &fleet->limiter);
    if (error == 0)
        error = stint_policy_add(fleet->limiter, &policy, NULL);
    if (error < 0)
        fprintf(stderr, "fleet-simulation: no table: %s (%s)\n", stint_strerror(error),
                stint_reason());
    return error >= 0;
}

static void end_visit(struct fleet *fleet, uint32_t key, uint64_t at) {
    struct visit *visit = &fleet->now[key];

    if (visit->node == NOWHERE || visit->from == at)
        return;
    if (fleet->visits_n == fleet->visits_room) {
        fleet->visits_room = fleet->visits_room * 2 + fleet->row->keys;
        fleet->visits =
            must_have(realloc(fleet->visits, fleet->visits_room * sizeof(*fleet->visits)));
    }
    visit->to = at;
    fleet->visits[fleet->visits_n++] = *visit;
}

static void begin_visit(struct fleet *fleet, uint32_t key, uint32_t node, uint64_t at) {
    fleet->now[key] = (struct visit){
        .key = key, .node = node, .forgot = node == NOWHERE ? 0 : fleet->forgot[node], .from = at};
}

/* Sends each key to where it belongs now. */
static void route_keys(struct fleet *fleet, uint64_t at, bool first) {
    bool keeps = route_keeps_places(&fleet->route) && !first;

    for (uint32_t key = 0; key < fleet->row->keys; key++) {
        if (!keeps)
            fleet->place[key] = route_place(&fleet->route, fleet->hash[key]);
        uint32_t node = route_node(&fleet->route, fleet->hash[key], fleet->place[key]);
        if (!first && node == fleet->now[key].node)
            continue;
        if (!first) {
            end_visit(fleet, key, at);
            fleet->moves[key]++;
            fleet->moved++;
        }
        begin_visit(fleet, key, node, at);
    }
}

static void happen(struct fleet *fleet, const struct event *event) {
    if (fleet->route.up[event->node] == event->up)
        return; /* two absences overlapped */
    fleet->forgot[event->node] += event->restarted;
    fleet->row->deaths += !event->up;
    fleet->events++;
    route_set(&fleet->route, event->node, event->up);
    route_keys(fleet, event->at, false);
}

/* Tokens that a key asks for during a visit. */
static uint32_t asked(const struct fleet *fleet, const struct visit *visit) {
    uint64_t window = fleet->row->policy.window;

    if (fleet->row->demand == GREEDY)
        return fleet->row->policy.limit;
    /* Its requests stand at even distances, with a phase of its own. */
    double phase = (double)fleet->hash[visit->key] * 0x1p-32;
    double from = (double)(visit->from % window) / (double)window;
    double to = (double)((visit->to - 1) % window + 1) / (double)window;
    double n =
        floor(fleet->rate[visit->key] * to + phase) - floor(fleet->rate[visit->key] * from + phase);
    return n > STINT_LIMIT_MAX ? STINT_LIMIT_MAX : (uint32_t)n;
}

static uint32_t decide(struct fleet *fleet, const struct visit *visit, enum restart restart) {
    struct {
        uint32_t key, node, forgot, restart;
    } bytes = {visit->key, visit->node, restart == FORGETS ? visit->forgot : 0, restart};
    struct stint_request request = {.key = stint_key_of(fleet->limiter, &bytes, sizeof(bytes)),
                                    .cost = asked(fleet, visit),
                                    .flags = STINT_PARTIAL};
    struct stint_verdict verdict;

    if (request.cost == 0)
        return 0;
    simulated_now = instant_of(fleet, visit->from);
    stint_decide(fleet->limiter, &request, simulated_now, &verdict);
    fleet->row->untracked += (verdict.flags & STINT_UNTRACKED) != 0;
    return verdict.granted;
}

static void note_extra(struct fleet *fleet, enum restart restart, uint32_t extra) {
    size_t n = fleet->extras_n[restart]++;

    if (n == fleet->extras_room[restart]) {
        fleet->extras_room[restart] = n * 2 + 1024;
        fleet->extras[restart] = must_have(realloc(
            fleet->extras[restart], fleet->extras_room[restart] * sizeof(*fleet->extras[restart])));
    }
    fleet->extras[restart][n] = extra;
}

static bool decide_window(struct fleet *fleet) {
    uint64_t keys = fleet->row->keys, limit = fleet->row->policy.limit;

    if (fleet->room < 2 * fleet->visits_n && !open_limiter(fleet, 2 * fleet->visits_n))
        return false;
    for (unsigned restart = 0; restart < RESTARTS; restart++) {
        memset(fleet->got, 0, keys * sizeof(*fleet->got));
        for (size_t i = 0; i < fleet->visits_n; i++)
            fleet->got[fleet->visits[i].key] += decide(fleet, &fleet->visits[i], restart);
        for (uint64_t key = 0; key < keys; key++) {
            if (fleet->got[key] > limit)
                note_extra(fleet, restart, fleet->got[key] - (uint32_t)limit);
            fleet->row->passed += fleet->got[key] > (1 + (uint64_t)fleet->moves[key]) * limit;
        }
    }
    return true;
}

static bool run_window(struct fleet *fleet, uint64_t window, const struct event **event,
                       const struct event *last) {
    uint64_t start = window * fleet->row->policy.window;
    uint64_t end = start + fleet->row->policy.window;

    fleet->visits_n = 0;
    memset(fleet->moves, 0, fleet->row->keys * sizeof(*fleet->moves));
    for (uint32_t key = 0; key < fleet->row->keys; key++)
        fleet->now[key].from = start;
    for (; *event < last && (*event)->at < end; ++*event)
        happen(fleet, *event);
    for (uint32_t key = 0; key < fleet->row->keys; key++) {
        end_visit(fleet, key, end);
        if (fleet->moves[key] > fleet->row->moves_max)
            fleet->row->moves_max = fleet->moves[key];
    }
    return decide_window(fleet);
}

static void set_rates(struct fleet *fleet) {
    uint64_t keys = fleet->row->keys;
    double limit = fleet->row->policy.limit, sum = 0;

    for (uint64_t key = 0; key < keys; key++)
        sum += pow((double)(key + 1), -ZIPF_EXPONENT);
    for (uint64_t key = 0; key < keys; key++)
        fleet->rate[key] = fleet->row->demand == STEADY
                               ? STEADY_FACTOR * limit
                               : pow((double)(key + 1), -ZIPF_EXPONENT) / sum * (double)keys *
                                     limit / ZIPF_TOTAL_PART;
}

/* The part of all hashes that the busiest node has, in times the mean. */
static double busiest(const struct fleet *fleet) {
    uint32_t nodes = fleet->row->nodes, most = 0;
    uint64_t samples = nodes < 1000 ? 1000 * (uint64_t)nodes : 1000000;
    uint32_t *hashes = must_have(calloc(nodes, sizeof(*hashes)));

    for (uint64_t i = 0; i < samples; i++) {
        uint32_t hash = (uint32_t)(((2 * i + 1) << 31) / samples); /* at even distances */
        uint32_t node = route_node(&fleet->route, hash, route_place(&fleet->route, hash));
        if (++hashes[node] > most)
            most = hashes[node];
    }
    free(hashes);
    return (double)most * (double)nodes / (double)samples;
}

static void open_fleet(struct fleet *fleet, struct fleet_row *row) {
    uint64_t keys = row->keys;

    *fleet = (struct fleet){.row = row};
    fleet->now = must_have(calloc(keys, sizeof(*fleet->now)));
    fleet->hash = must_have(calloc(keys, sizeof(*fleet->hash)));
    fleet->place = must_have(calloc(keys, sizeof(*fleet->place)));
    fleet->moves = must_have(calloc(keys, sizeof(*fleet->moves)));
    fleet->rate = must_have(calloc(keys, sizeof(*fleet->rate)));
    fleet->got = must_have(calloc(keys, sizeof(*fleet->got)));
    fleet->forgot = must_have(calloc(row->nodes, sizeof(*fleet->forgot)));
    for (uint64_t key = 0; key < keys; key++)
        fleet->hash[key] = (uint32_t)(mix64(mix64(row->seed + 1) + key) >> 32);
    set_rates(fleet);
    route_open(&fleet->route, row->balancer, row->nodes, row->weight, mix64(row->seed));
    route_keys(fleet, 0, true);
    row->busiest = busiest(fleet);
}

static void close_fleet(struct fleet *fleet) {
    stint_close(fleet->limiter);
    route_close(&fleet->route);
    for (unsigned restart = 0; restart < RESTARTS; restart++)
        free(fleet->extras[restart]);
    free(fleet->now);
    free(fleet->hash);
    free(fleet->place);
    free(fleet->moves);
    free(fleet->rate);
    free(fleet->got);
    free(fleet->forgot);
    free(fleet->visits);
}

/* ---- What came out ---- */

static int compare_extras(const void *a, const void *b) {
    const uint32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* The mean that consistent hashing leads one to expect, in percent of the limit. A greedy key
 * gets a whole limit at each node that does not know it in this window. A death sends it to a
 * second node, and its return to the first, which knows it unless it forgets; if the window ends
 * in between, the key meets two nodes in the next one, too. 1/N of the keys are the dead node's. */
static double theory_of(const struct fleet_row *row, enum restart restart) {
    double window = (double)row->policy.window, down = (double)row->down;
    double deaths = 0; /* of a key's node, a window */

    if (row->churn == STABLE)
        return 0;
    if (row->demand != GREEDY || row->balancer > NGINX)
        return NAN;
    switch (row->churn) {
    case DEATH:
        deaths = 1.0 / row->nodes;
        break;
    case CRASHES:
        deaths = window / ((double)row->between + down);
        break;
    case DEPLOY:
        deaths = 1;
        break;
    case FLAP: /* all in one window, and nothing is forgotten */
        return 100.0 / row->nodes;
    default:
        return 0;
    }
    return 100 * deaths * (restart == FORGETS ? 2 : 1 + down / window);
}

static void sum_up(struct fleet *fleet, enum restart restart) {
    struct fleet_row *row = fleet->row;
    struct outcome *outcome = &row->outcomes[restart];
    uint32_t *extras = fleet->extras[restart];
    size_t over = fleet->extras_n[restart], all = row->windows * row->keys;
    double percent = 100 / (double)row->policy.limit;
    double sum = 0;

    for (size_t i = 0; i < over; i++)
        sum += extras[i];
    if (over > 0)
        qsort(extras, over, sizeof(*extras), compare_extras);
    /* The nearest rank, of all: the all - over others have none. */
    size_t rank = (size_t)ceil(0.99 * (double)all);
    *outcome = (struct outcome){
        .over = over,
        .extra = sum / (double)row->policy.limit,
        .mean = sum * percent / (double)all,
        .p99 = rank > all - over ? extras[rank - (all - over) - 1] * percent : 0,
        .max = over > 0 ? extras[over - 1] * percent : 0,
        .theory = theory_of(row, restart),
    };
}

static json_t *outcome_answer(const struct outcome *outcome) {
    return json_pack("{s:I, s:f, s:f, s:f, s:f, s:o}", "over", (json_int_t)outcome->over,
                     "extra_limits", outcome->extra, "mean", outcome->mean, "p99", outcome->p99,
                     "max", outcome->max, "theory",
                     isnan(outcome->theory) ? json_null() : json_real(outcome->theory));
}

static json_t *row_answer(const struct fleet_row *row) {
    json_t *answer =
        json_pack("{s:f, s:I, s:f, s:i, s:I, s:I}", "busiest", row->busiest, "deaths",
                  (json_int_t)row->deaths, "moved", row->moved, "moves_max", (int)row->moves_max,
                  "passed", (json_int_t)row->passed, "untracked", (json_int_t)row->untracked);

    for (unsigned restart = 0; restart < RESTARTS; restart++)
        /* Health checks restart nothing. */
        if (restart == KEEPS || (row->churn != FLAP && row->churn != STABLE))
            json_object_set_new(answer, restart_names[restart],
                                outcome_answer(&row->outcomes[restart]));
    return answer;
}

static struct fleet_row row_read(json_t *asked) {
    struct fleet_row row = {.policy = STINT_POLICY_INIT};

    row.balancer = (enum balancer)job_read_name(asked, "balancer", balancer_names, BALANCERS);
    row.churn = (enum churn)job_read_name(asked, "churn", churn_names, CHURNS);
    row.demand = (enum demand)job_read_name(asked, "demand", demand_names, DEMANDS);
    if (stint_policy_parse(job_text(asked, "limit"), &row.policy, NULL) != 0)
        abort(); /* the script has asked whether it is one */
    row.nodes = (uint32_t)job_number(asked, "nodes");
    row.weight = (uint32_t)job_number(asked, "weight");
    row.keys = job_number(asked, "keys");
    row.windows = job_number(asked, "windows");
    row.seed = job_number(asked, "seed");
    row.down = job_number(asked, "down");
    row.between = job_number(asked, "between");
    return row;
}

static json_t *simulate(json_t *asked) {
    struct fleet_row row = row_read(asked);
    struct fleet fleet;
    struct events events = churn_draw(&row);
    const struct event *event = events.each, *last = events.each + events.n;
    char label[64];

    snprintf(label, sizeof(label), "%s, %s, %u nodes", balancer_names[row.balancer],
             churn_names[row.churn], row.nodes);
    open_fleet(&fleet, &row);
    bool good = open_limiter(&fleet, 2 * row.keys);
    for (uint64_t window = 0; window < row.windows && good; window++) {
        good = run_window(&fleet, window, &event, last);
        jobs_progress(label, (double)(window + 1) / (double)row.windows);
    }
    if (!good)
        exit(EXIT_FAILURE);
    double asked_to_move = (double)fleet.events * (double)row.keys;
    row.moved = fleet.events == 0 ? 0 : (double)fleet.moved / asked_to_move;
    for (unsigned restart = 0; restart < RESTARTS; restart++)
        sum_up(&fleet, restart);
    close_fleet(&fleet);
    free(events.each);
    return row_answer(&row);
}

/* About the bytes that a row needs. */
static json_t *memory(json_t *asked) {
    const struct fleet_row row = row_read(asked);
    double nodes = row.nodes, keys = (double)row.keys, windows = (double)row.windows;
    double crashes = nodes * (double)row.policy.window / (double)row.between;
    double events = row.churn == DEPLOY    ? 2 * nodes
                    : row.churn == CRASHES ? 2 * crashes
                    : row.churn == FLAP    ? 2 * CHURN_FLAPS
                                           : 2;
    double moved = row.balancer == MODULO ? 1 : 3 / nodes; /* part of the keys, by an event */
    double visits = keys * (1 + events * moved);
    double points = nodes * row.weight * (row.balancer == NGINX ? 160 : 16);

    return json_pack("{s:f}", "bytes",
                     visits * (sizeof(struct visit) + 4 * 32) + keys * 64 +
                         points * sizeof(uint64_t) + events * windows * sizeof(struct event) +
                         (16 << 20));
}

int main(int argc, char **argv) {
    static const struct job jobs[] = {{"memory", memory}, {"simulate", simulate}};
    return jobs_run(argc, argv, jobs, sizeof(jobs) / sizeof(jobs[0]));
}
