/* SPDX-License-Identifier: MIT stint-bench fleet: how far the limits of a fleet are off when its
 * nodes change, behind a load balancer that sends each key to one node. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "fleet.h"
#include "machine.h"
#include "report.h"
#include "team.h"

static const char command[] = "fleet";

enum {
    NODES_MAX = 10000,
    DEPLOY_WINDOWS = 5, /* every key is moved in each: a few windows say it all */
};

static void print_help(FILE *out) {
    fputs(
        "Usage: stint-bench fleet [OPTIONS]\n"
        "\n"
        "Simulates a fleet of nodes that count for themselves, behind a load balancer that sends\n"
        "each key to one node, and tells how far the limits are off when the nodes change.\n"
        "\n"
        "  --nodes N,..      2 to 10k each (10,30,100,300,1k)\n"
        "  --balancer B,..   haproxy (consistent), nginx (consistent), envoy-ring, envoy-maglev,\n"
        "                    modulo (what is not consistent)\n"
        "  --churn C,..      what happens to the nodes:\n"
        "      death         in every window one node dies at some instant, and returns\n"
        "      crashes       every node dies now and then, whatever the others do (--between)\n"
        "      deploy        in every window all nodes restart, one after the other\n"
        "      flap          the health checks of one node in every window fail and pass 5 times;\n"
        "                    the node is well and forgets nothing\n"
        "      stable        nothing\n"
        "  --demand D,..     what the keys ask for:\n"
        "      greedy        all that they can get at every instant: the worst case\n"
        "      steady        twice their limit, evenly over the window\n"
        "      zipf          the nth key's part is 1/n^0.99 of a quarter of all limits, evenly\n"
        "  --keys N          1 to 1M (10k)\n"
        "  --limit L         of each key: a plain policy in stint's notation (100/hour)\n"
        "  --windows N       1 to 100k; deploy has 5 (100)\n"
        "  --down T          how long a node is away, such as 30s or 5m; less than a window (30s)\n"
        "  --between T       crashes: how long a node is up, in the mean (1d)\n"
        "  --weight W        of each node, for haproxy and nginx, 1 to 256 (haproxy 16, nginx 1)\n"
        "  --seed N          of all that is random (1)\n"
        "  --format F        table or json (table)\n"
        "  --plot DIR        draws over-admission by the number of nodes into DIR, as SVG (needs\n"
        "                    gnuplot)\n"
        "  --help\n"
        "\n"
        "Without --balancer, --churn and --demand: death for all balancers, all churns and all\n"
        "demands for haproxy. Nobody gets an answer from a node that is down: the time until the\n"
        "balancer notices loses requests, and admits nothing.\n"
        "Exit codes: 0 good, 1 a bound was passed, 2 wrong usage.\n",
        out);
}

/* ---- Options ---- */

/* Reads a time such as 30s: what may stand behind "1/" in the notation of policies. */
static bool read_time(const char *text, uint64_t *ns) {
    char notation[64];
    struct stint_policy policy = STINT_POLICY_INIT;
    int n = snprintf(notation, sizeof(notation), "1/%s", text);

    if (n < 0 || (size_t)n >= sizeof(notation) || strpbrk(text, " \t/") != NULL ||
        stint_policy_parse(notation, &policy, NULL) != 0)
        return false;
    *ns = policy.window;
    return true;
}

static int read_limit(const char *text, struct fleet_options *options) {
    struct stint_policy *policy = &options->policy, plain = STINT_POLICY_INIT;
    const char *wrong = NULL;

    *policy = plain;
    options->limit = text;
    if (stint_policy_parse(text, policy, &wrong) != 0)
        return usage_error(command, "--limit '%s': %s\n    %s\n    %*s^", text, stint_reason(),
                           text, wrong != NULL ? (int)(wrong - text) : 0, "");
    if ((policy->capacity != 0 && policy->capacity != policy->limit) || policy->max_reserved != 0 ||
        policy->stripes > 1 || policy->flags != 0 || policy->start != 0)
        return usage_error(command, "--limit '%s': only a count and a window are simulated", text);
    return EXIT_GOOD;
}

static int read_list(const struct option *option, struct list *list, const char *const *names,
                     size_t n, uint64_t high, const char *what) {
    char wrong[64];

    if (!list_read(list, option->value, names, n, high, wrong, sizeof(wrong)))
        return usage_error(command, "%s: '%s' is no %s", option->name, wrong, what);
    return EXIT_GOOD;
}

static int read_count(const struct option *option, uint64_t low, uint64_t high, const char *range,
                      uint64_t *value) {
    if (!parse_count(option->value, low, high, value))
        return usage_error(command, "%s: '%s' is not a count from %s", option->name, option->value,
                           range);
    return EXIT_GOOD;
}

static int read_option(const struct option *option, struct fleet_options *options) {
    uint64_t *time = &options->down;

    switch (option->which) {
    case 0:
        return read_list(option, &options->nodes, NULL, 0, NODES_MAX, "count from 2 to 10k");
    case 1:
        return read_list(option, &options->balancers, balancer_names, BALANCERS, 0, "balancer");
    case 2:
        return read_list(option, &options->churns, churn_names, CHURNS, 0, "churn");
    case 3:
        return read_list(option, &options->demands, demand_names, DEMANDS, 0, "demand");
    case 4:
        return read_count(option, 1, 1000000, "1 to 1M", &options->keys);
    case 5:
        return read_limit(option->value, options);
    case 6:
        return read_count(option, 1, 100000, "1 to 100k", &options->windows);
    case 7:
        time = &options->between; /* fall through */
    case 8:
        if (!read_time(option->value, time))
            return usage_error(command,
                               "%s: '%s' is not a time such as 30s, 10m or 7d, of 10 ms to "
                               "366 days",
                               option->name, option->value);
        return EXIT_GOOD;
    case 9:
        return read_count(option, 1, WEIGHT_MAX, "1 to 256", &options->weight);
    case 10:
        return read_count(option, 0, UINT64_MAX, "0 on", &options->seed);
    default:
        return measure_option(command, option, NULL, &options->output);
    }
}

static int read_options(int argc, char **argv, struct fleet_options *options) {
    static const char *const known[] = {
        "--nodes",   "--balancer", "--churn",  "--demand", "--keys",   "--limit", "--windows",
        "--between", "--down",     "--weight", "--seed",   "--format", "--plot"};
    struct option option;
    int result = read_limit("100/hour", options);

    for (int at = 1; at < argc && result == EXIT_GOOD; at++) {
        result =
            option_next(command, argc, argv, &at, known, sizeof(known) / sizeof(known[0]), &option);
        if (result == EXIT_GOOD)
            result = read_option(&option, options);
    }
    for (size_t i = 0; i < options->nodes.n && result == EXIT_GOOD; i++)
        if (options->nodes.values[i] < 2)
            result = usage_error(command, "--nodes: '%llu' is no count from 2 to 10k",
                                 (unsigned long long)options->nodes.values[i]);
    if (result == EXIT_GOOD && options->windows + 2 > INT64_MAX / options->policy.window)
        result = usage_error(command,
                             "--windows %llu: so many windows of that length are more than "
                             "292 years",
                             (unsigned long long)options->windows);
    if (result == EXIT_GOOD && options->down >= options->policy.window)
        result =
            usage_error(command, "--down: a node must be away for less than the limit's window");
    return result;
}

/* ---- Report ---- */

static const struct fleet_options *head_options; /* of the run: what all rows share */

static void fleet_head(FILE *out, double seconds) {
    const struct fleet_options *options = head_options;
    char keys[24];

    (void)seconds;
    format_count(options->keys, keys, sizeof(keys));
    fprintf(out, "seed %llu\n", (unsigned long long)options->seed);
    fprintf(out, "fleet    %s keys, each %.40s; a node that is away returns after %g s\n\n", keys,
            options->limit, (double)options->down / 1e9);
    fprintf(out, "%-12s %-7s %-6s %5s %7s %6s %5s %-7s %7s %8s %8s %5s %5s\n", "balancer", "churn",
            "demand", "nodes", "busiest", "moved", "moves", "restart", "over", "mean", "theory",
            "p99", "max");
}

/* Which of the two say something: health checks restart nothing. */
static bool restart_counts(const struct fleet_row *row, enum restart restart) {
    return restart == KEEPS || (row->churn != FLAP && row->churn != STABLE);
}

static void fleet_table(FILE *out, const void *item) {
    const struct fleet_row *row = item;
    double all = (double)row->windows * (double)row->options->keys;
    bool first = true;

    for (unsigned restart = 0; restart < RESTARTS; restart++) {
        const struct outcome *outcome = &row->outcomes[restart];
        char theory[16] = "";
        if (!restart_counts(row, restart))
            continue;
        if (first)
            fprintf(out, "%-12s %-7s %-6s %5u %7.2f %5.2f%% %5u ", balancer_names[row->balancer],
                    churn_names[row->churn], demand_names[row->demand], row->nodes, row->busiest,
                    row->moved * 100, row->moves_max);
        else
            fprintf(out, "%-54s", "");
        if (!isnan(outcome->theory))
            snprintf(theory, sizeof(theory), "%.3f%%", outcome->theory);
        fprintf(out, "%-7s %6.2f%% %7.3f%% %8s %4.0f%% %4.0f%%\n", restart_names[restart],
                (double)outcome->over * 100 / all, outcome->mean, theory, outcome->p99,
                outcome->max);
        first = false;
    }
    if (row->passed != 0 || row->untracked != 0)
        fprintf(out, "WRONG: %llu keys passed their bound, %llu decisions were not counted\n",
                (unsigned long long)row->passed, (unsigned long long)row->untracked);
}

static void fleet_json(FILE *out, const void *item) {
    const struct fleet_row *row = item;
    const struct fleet_options *options = row->options;

    fprintf(out,
            "{\"balancer\": \"%s\", \"churn\": \"%s\", \"demand\": \"%s\", \"nodes\": %u, "
            "\"weight\": %u, \"keys\": %llu, \"limit\": %u, \"window_s\": %.9g, \"windows\": %llu, "
            "\"down_s\": %.9g, \"between_s\": %.9g, \"seed\": %llu, \"busiest\": %.6g, "
            "\"deaths\": %llu, \"moved\": %.6g, \"moves_max\": %u, \"passed\": %llu, "
            "\"untracked\": %llu",
            balancer_names[row->balancer], churn_names[row->churn], demand_names[row->demand],
            row->nodes, row->weight, (unsigned long long)options->keys, options->policy.limit,
            (double)options->policy.window / 1e9, (unsigned long long)row->windows,
            (double)options->down / 1e9, (double)options->between / 1e9,
            (unsigned long long)options->seed, row->busiest, (unsigned long long)row->deaths,
            row->moved, row->moves_max, (unsigned long long)row->passed,
            (unsigned long long)row->untracked);
    for (unsigned restart = 0; restart < RESTARTS; restart++) {
        const struct outcome *outcome = &row->outcomes[restart];
        if (!restart_counts(row, restart))
            continue;
        fprintf(out,
                ", \"%s\": {\"over\": %llu, \"extra_limits\": %.9g, \"mean\": %.6g, \"p99\": %.6g, "
                "\"max\": %.6g, \"theory\": ",
                restart_names[restart], (unsigned long long)outcome->over, outcome->extra,
                outcome->mean, outcome->p99, outcome->max);
        if (isnan(outcome->theory))
            fputs("null}", out);
        else
            fprintf(out, "%.6g}", outcome->theory);
    }
    fputc('}', out);
}

static void fleet_foot(FILE *out) {
    fputs(
        "\nbusiest  keys of the busiest node, in times the mean\n"
        "moved    part of the keys that one change (a node away, a node back) moved, the mean\n"
        "moves    most changes of node of one key in one window\n"
        "restart  a node that returns forgets what it counted, or keeps it (it never stopped, or\n"
        "         its table is in a file that outlives it)\n"
        "over     keys that got more than their limit, of all keys in all windows\n"
        "mean, p99, max   what keys got above it in a window, in percent of the limit\n"
        "theory   the mean to expect of consistent hashing: a whole limit more from each node\n"
        "         that does not know the key\n"
        "Checked in every row: no key gets more in a window than (1 + its moves) limits.\n",
        out);
}

static const struct report_format format = {fleet_head, fleet_table, fleet_json, fleet_foot};

/* ---- Run ---- */

static int refuse_impossible(const struct fleet_row *row, const struct machine *machine) {
    double need = fleet_memory(row) / 0x1p30, have = (double)machine->available / 0x1p30;

    if (need > have)
        return usage_error(
            command, "%s with %u nodes, %s, needs %.1f GiB of memory, and %.1f GiB are free",
            churn_names[row->churn], row->nodes, balancer_names[row->balancer], need, have);
    return EXIT_GOOD;
}

struct plan_of_rows {
    struct fleet_row *rows;
    size_t n;
};

static void plan_fleet(struct plan_of_rows *plan, const struct fleet_options *options,
                       enum balancer balancer, enum churn churn, enum demand demand) {
    for (size_t i = 0; i < options->nodes.n; i++) {
        plan->rows = must_have(realloc(plan->rows, (plan->n + 1) * sizeof(*plan->rows)));
        plan->rows[plan->n++] = (struct fleet_row){
            .options = options,
            .balancer = balancer,
            .churn = churn,
            .demand = demand,
            .nodes = (uint32_t)options->nodes.values[i],
            .weight = options->weight != 0  ? (uint32_t)options->weight
                      : balancer == HAPROXY ? 16
                                            : 1,
            .windows = churn == DEPLOY && options->windows > DEPLOY_WINDOWS ? DEPLOY_WINDOWS
                                                                            : options->windows,
        };
    }
}

/* The selection: all balancers by the same churn, then one balancer by all. */
static void plan_selection(struct plan_of_rows *plan, const struct fleet_options *options) {
    for (unsigned balancer = 0; balancer < BALANCERS; balancer++)
        plan_fleet(plan, options, balancer, DEATH, GREEDY);
    plan_fleet(plan, options, HAPROXY, DEATH, STEADY);
    plan_fleet(plan, options, HAPROXY, DEATH, ZIPF_MIX);
    plan_fleet(plan, options, HAPROXY, CRASHES, GREEDY);
    plan_fleet(plan, options, HAPROXY, DEPLOY, GREEDY);
    plan_fleet(plan, options, HAPROXY, FLAP, GREEDY);
}

static void plan_all(struct plan_of_rows *plan, const struct fleet_options *options) {
    static const struct list haproxy = {{HAPROXY}, 1}, death = {{DEATH}, 1}, greedy = {{GREEDY}, 1};
    const struct list *balancers = options->balancers.n > 0 ? &options->balancers : &haproxy;
    const struct list *churns = options->churns.n > 0 ? &options->churns : &death;
    const struct list *demands = options->demands.n > 0 ? &options->demands : &greedy;

    for (size_t b = 0; b < balancers->n; b++)
        for (size_t c = 0; c < churns->n; c++)
            for (size_t d = 0; d < demands->n; d++)
                plan_fleet(plan, options, (enum balancer)balancers->values[b],
                           (enum churn)churns->values[c], (enum demand)demands->values[d]);
}

static int run_plan(const struct plan_of_rows *plan, struct fleet_options *options,
                    const struct machine *machine) {
    struct report report;
    int result = EXIT_GOOD;

    head_options = options;
    report_start_other(&report, &format, &options->output, machine, 0);
    for (size_t i = 0; i < plan->n && result == EXIT_GOOD; i++) {
        struct fleet_row *row = &plan->rows[i];
        result = fleet_simulate(row);
        if (result == EXIT_GOOD)
            report_other(&report, row);
        if (row->passed != 0 || row->untracked != 0)
            result = EXIT_FAILED;
    }
    int ended = report_end(&report);
    return result != EXIT_GOOD ? result : ended;
}

int bench_fleet(int argc, char **argv) {
    static const uint64_t nodes[] = {10, 30, 100, 300, 1000};
    struct fleet_options options = {.keys = 10000,
                                    .windows = 100,
                                    .seed = 1,
                                    .down = UINT64_C(30000000000),
                                    .between = UINT64_C(86400) * 1000000000};
    struct machine machine;
    struct plan_of_rows plan = {.n = 0};

    if (help_wanted(argc, argv)) {
        print_help(stdout);
        return EXIT_GOOD;
    }
    int result = read_options(argc, argv, &options);
    if (result == EXIT_GOOD)
        result = output_open(&options.output, command);
    if (result != EXIT_GOOD)
        return result;
    if (options.nodes.n == 0) {
        options.nodes.n = sizeof(nodes) / sizeof(nodes[0]);
        memcpy(options.nodes.values, nodes, sizeof(nodes));
    }
    if (options.balancers.n + options.churns.n + options.demands.n == 0)
        plan_selection(&plan, &options);
    else
        plan_all(&plan, &options);
    machine_read(&machine);
    for (size_t i = 0; i < plan.n && result == EXIT_GOOD; i++)
        result = refuse_impossible(&plan.rows[i], &machine);
    if (result == EXIT_GOOD)
        result = run_plan(&plan, &options, &machine);
    output_close(&options.output);
    free(plan.rows);
    return result;
}
