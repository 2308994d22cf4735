/* SPDX-License-Identifier: MIT
 * stint-bench goals: the speeds that the library promises itself, each beside the floor that was
 * measured by turns with it. */
#include <stdlib.h>
#include <string.h>

#include "bed.h"
#include "common.h"
#include "contest.h"
#include "measure.h"
#include "options.h"
#include "plan.h"
#include "report.h"
#include "team.h"

enum {
    FEW = 1000,
    LARGEST = 10,
    KEYS_DEFAULT = 10000000,
    KEYS_OUT = 1000000, /* out of cache: in it, stint gains far more than Redis does */
};

struct options {
    uint64_t keys;
    bool keys_given;
    double seconds;
    struct output output;
};

static void print_help(FILE *out) {
    fputs(
        "Usage: stint-bench goals [OPTIONS]\n"
        "\n"
        "Measures what the library is meant to reach, and prints a line for each goal: the goal,\n"
        "what was measured (the median of the repeats, the least and the most), the floor, and\n"
        "whether it is met. On ratios, because absolute times are the machine's.\n"
        "\n"
        "Redis is asked by one thread on one connection for the same decisions, of a million keys\n"
        "(or of --keys, if that is less), by its faster recipe: INCR and EXPIRE, sent together.\n"
        "Like is set beside like: one request at a time beside single takes, 16 pipelined beside\n"
        "batches of 16. The other two ratios are shown beside those and decide nothing.\n"
        "\n"
        "  --keys N             keys of the large table, 1k to 400M (10M); the largest has ten\n"
        "                       times as many, which takes 7 GiB for 100M\n"
        "  --seconds S          timed work a measurement, 0.001 to 3600 (1)\n" FORMAT_HELP
            COMPARE_HELP "\n"
        "Exit codes: 0 all are met, 1 one is missed, or could not be measured, 2 wrong usage. "
        "That\n"
        "redis-server is not installed is said, and counts as neither.\n",
        out);
}

static int read_options(int argc, char **argv, struct options *options) {
    static const char *const known[] = {"--keys", "--seconds", "--format", "--compare"};

    for (int i = 1; i < argc; i++) {
        struct option option;
        int result =
            option_next("goals", argc, argv, &i, known, sizeof(known) / sizeof(known[0]), &option);
        if (result != EXIT_GOOD)
            return result;
        if (option.which == 0) {
            if (!parse_count(option.value, FEW, 400000000, &options->keys))
                return usage_error("goals", "--keys: '%s' is not a count from 1k to 400M",
                                   option.value);
            options->keys_given = true;
            continue;
        }
        result = measure_option("goals", &option, &options->seconds, &options->output);
        if (result != EXIT_GOOD)
            return result;
    }
    return EXIT_GOOD;
}

/* ---- A line ---- */

struct goal {
    unsigned point;
    const char *name;
    bool at_least; /* else at most */
    double limit;
    double measured, min, max;
    char floor[32];
    const char *why; /* it was not measured; NULL: it was */
    bool absent;     /* because what it is compared with is not installed */
    bool aside;      /* it is shown, and decides nothing */
    bool reached;    /* it is as near its floor as can be asked */
};

static bool goal_met(const struct goal *goal) {
    return goal->why == NULL && (goal->reached || (goal->at_least ? goal->measured >= goal->limit
                                                                  : goal->measured <= goal->limit));
}

static void goals_head(FILE *out, double seconds) {
    (void)seconds;
    fputs("work and floor by turns\n\n", out);
    fprintf(out, "%-2s %-36s %-8s %8s %-14s %-20s\n", "", "goal", "", "measured", "", "floor");
}

/* Three digits, and all that are left of the point. */
static void format_ratio(double ratio, char *text, size_t size) {
    snprintf(text, size, ratio < 1000 ? "%.3g" : "%.0f", ratio);
}

static void goals_table(FILE *out, const void *item) {
    const struct goal *goal = item;
    char range[40] = "", measured[16], min[16], max[16];

    fprintf(out, "%u  %-36s %s %-5g ", goal->point, goal->name,
            goal->at_least ? ">=" : "<=", goal->limit);
    if (goal->why != NULL) {
        fprintf(out, "%s: %s\n", goal->absent ? "absent" : "not measured", goal->why);
        return;
    }
    format_ratio(goal->measured, measured, sizeof(measured));
    format_ratio(goal->min, min, sizeof(min));
    format_ratio(goal->max, max, sizeof(max));
    if (goal->min != goal->max)
        snprintf(range, sizeof(range), "[%s, %s]", min, max);
    fprintf(out, "%8s %-14s %-20s %s\n", measured, range, goal->floor,
            goal->aside      ? "aside"
            : goal_met(goal) ? "met"
                             : "MISSED");
}

static void goals_json(FILE *out, const void *item) {
    const struct goal *goal = item;

    fprintf(out, "{\"point\": %u, \"goal\": ", goal->point);
    put_json_string(out, goal->name, strlen(goal->name));
    fprintf(out, ", \"better\": \"%s\", \"limit\": %g", goal->at_least ? "higher" : "lower",
            goal->limit);
    if (goal->why == NULL)
        fprintf(out, ", \"measured\": %.6g, \"measured_min\": %.6g, \"measured_max\": %.6g",
                goal->measured, goal->min, goal->max);
    else
        fputs(", \"measured\": null", out);
    fputs(", \"floor\": ", out);
    put_json_string(out, goal->floor, strlen(goal->floor));
    fprintf(out, ", \"absent\": %s, \"aside\": %s, \"reached\": %s, \"met\": %s}",
            goal->absent ? "true" : "false", goal->aside ? "true" : "false",
            goal->reached ? "true" : "false",
            goal->absent || goal->aside ? "null"
            : goal_met(goal)            ? "true"
                                        : "false");
}

static void goals_foot(FILE *out) {
    fputs(
        "\nAll times are medians of stretches of 512 decisions, by turns of 16 with the floor; "
        "the\n"
        "range is that of the repeats. Goals for times are ratios to the floor; for two threads,\n"
        "to one thread alone, and their floor is what the same floor gains by a second core. For\n"
        "more keys the floor is a dependent load in the one table, to one in the other. For Redis\n"
        "it is what Redis takes, like beside like; what is aside is shown for comparison. Other\n"
        "kinds of decisions stand beside plain takes; their floor does the same locked "
        "operations,\n"
        "and who is within 15% of it has met the goal.\n",
        out);
}

static const struct report_format format = {goals_head, goals_table, goals_json, goals_foot};

/* ---- The goals ---- */

struct goals {
    const struct options *options;
    const struct machine *machine;
    struct report report;
    struct progress progress;
    unsigned done;
    bool all_met, good;
};

enum { MEASUREMENTS = 13 + 2 * (WORKLOADS - PATHS) };

/* Of a table out of cache, if --keys is not less. */
static uint64_t keys_out(const struct goals *goals) {
    return goals->options->keys < KEYS_OUT ? goals->options->keys : KEYS_OUT;
}

static void show(struct goals *goals, const char *label) {
    progress_start(&goals->progress, label, MEASUREMENTS);
    progress_update(&goals->progress, goals->done++);
}

static bool measure(struct goals *goals, struct row *row) {
    show(goals, workloads[row->workload].name);
    row_measure(row, goals->options->seconds, goals->machine->cache, NULL, NULL);
    progress_end(&goals->progress);
    if (!row->checked) {
        fprintf(stderr, "stint-bench goals: %s: wrong answers: %s\n", workloads[row->workload].name,
                row->wrong);
        goals->good = false;
    }
    return row->checked;
}

static void print(struct goals *goals, const struct goal *goal) {
    report_other(&goals->report, goal);
    goals->all_met &= goal_met(goal) || goal->absent || goal->aside;
}

static void floor_text(struct goal *goal, const struct row *row) {
    snprintf(goal->floor, sizeof(goal->floor), "%.15s %.3g", floors[row->floor].name,
             row->floor_ns);
}

/* A row's ratio to its floor. */
static void ratio_goal(struct goals *goals, unsigned point, const char *name, double limit,
                       const struct row *row) {
    struct goal goal = {.point = point, .name = name, .limit = limit};

    if (!row->checked)
        goal.why = "wrong answers";
    goal.measured = row->ratio;
    goal.min = row->ratio_min;
    goal.max = row->ratio_max;
    floor_text(&goal, row);
    print(goals, &goal);
}

static struct row row_beside(enum workload workload, enum distribution distribution, uint64_t keys,
                             enum floor floor) {
    struct row row = plan_row(workload, distribution, keys);
    row.floor_given = true;
    row.floor = floor;
    return row;
}

static void goal_cache(struct goals *goals) {
    struct row row = row_beside(TAKE, UNIFORM, FEW, FLOOR_TAKE);
    measure(goals, &row);
    ratio_goal(goals, 1, "take in cache / clock+hash+xadd", 1.5, &row);
}

static void goal_batch(struct goals *goals) {
    struct row row = row_beside(BATCH_16, UNIFORM, goals->options->keys, FLOOR_XADD);
    measure(goals, &row);
    ratio_goal(goals, 2, "batch out of cache / xadd", 2, &row);
}

static void goal_overlap(struct goals *goals) {
    struct row row = row_beside(TAKE, UNIFORM, goals->options->keys, FLOOR_LOAD);
    measure(goals, &row);
    ratio_goal(goals, 3, "take out of cache / dependent load", 0.6, &row);
}

/* Two threads at once, to one while the other waits. */
static void scale_goal(struct goals *goals, const char *name, double limit, enum workload workload,
                       enum distribution distribution, uint64_t keys, unsigned stripes) {
    struct goal goal = {.point = 4, .name = name, .at_least = true, .limit = limit};
    struct row row = row_beside(workload, distribution, keys, FLOOR_ALONE);
    struct row bare = row;

    row.threads = bare.threads = 2;
    row.stripes = stripes;
    bare.bare = true;
    if (goals->machine->cores < 2) {
        goal.why = "there is one core";
    } else if (!measure(goals, &row) || (stripes == 0 && !measure(goals, &bare))) {
        goal.why = "wrong answers";
    } else {
        goal.measured = 2 / row.ratio;
        goal.min = 2 / row.ratio_max;
        goal.max = 2 / row.ratio_min;
        /* Both on one line are no floor of what stripes set apart. */
        if (stripes == 0)
            snprintf(goal.floor, sizeof(goal.floor), "bare %.3g", 2 / bare.ratio);
        else
            snprintf(goal.floor, sizeof(goal.floor), "ideal 2");
    }
    print(goals, &goal);
}

static void goal_threads(struct goals *goals) {
    scale_goal(goals, "two threads, uniform", 1.9, TAKE, UNIFORM, goals->options->keys, 0);
    scale_goal(goals, "two threads, one hot key refused", 1.9, REFUSE, HOT, FEW, 0);
    scale_goal(goals, "two threads, one hot key in stripes", 1.7, TAKE, HOT, FEW, 2);
}

static void unplaced_goal(struct goals *goals, const char *name, double limit,
                          const struct row *row) {
    struct goal goal = {.point = 5, .name = name, .limit = limit};

    if (!row->checked)
        goal.why = "wrong answers";
    goal.measured = goal.min = goal.max = (double)row->unplaced;
    snprintf(goal.floor, sizeof(goal.floor), "none");
    print(goals, &goal);
}

static void goal_new_keys(struct goals *goals) {
    uint64_t keys = goals->options->keys;
    struct row half = row_beside(FIRST_SEEN, UNIFORM, keys, FLOOR_PRESENT), more = half;

    measure(goals, &half);
    ratio_goal(goals, 5, "first seen at 50% load / present key", 2.3, &half);
    unplaced_goal(goals, "keys unplaced at 50% load", 0, &half);
    more.load = 0.7;
    measure(goals, &more);
    unplaced_goal(goals, "keys unplaced at 70% load", (double)keys / 10000, &more);
}

/* Two rows by turns. Returns whether their ratio was measured. */
static bool measure_beside(struct goals *goals, struct row *a, struct row *b, const char *label,
                           struct goal *goal) {
    struct ratio ratio;

    show(goals, label);
    rows_measure_beside(a, b, goals->options->seconds, &ratio);
    progress_end(&goals->progress);
    if (!a->checked || !b->checked) {
        fprintf(stderr, "stint-bench goals: %s: wrong answers: %s\n", label,
                a->checked ? b->wrong : a->wrong);
        goal->why = "wrong answers";
        goals->good = false;
        return false;
    }
    goal->measured = ratio.median;
    goal->min = ratio.min;
    goal->max = ratio.max;
    return true;
}

static void goal_churn(struct goals *goals) {
    struct goal goal = {.point = 5, .name = "churn / first seen, 1M keys", .limit = 2};
    struct row seen = row_beside(FIRST_SEEN, UNIFORM, keys_out(goals), FLOOR_PRESENT);
    struct row churn = row_beside(CHURN, UNIFORM, keys_out(goals), FLOOR_PRESENT);

    if (measure_beside(goals, &seen, &churn, "churn", &goal))
        snprintf(goal.floor, sizeof(goal.floor), "reach %llu lines",
                 (unsigned long long)churn.reach);
    print(goals, &goal);
}

static void goal_many_keys(struct goals *goals) {
    struct goal goal = {.point = 6, .name = "take, ten times as many keys / large", .limit = 1.5};
    struct row large = row_beside(TAKE, UNIFORM, goals->options->keys, FLOOR_LOAD);
    struct row largest = row_beside(TAKE, UNIFORM, LARGEST * goals->options->keys, FLOOR_LOAD);

    if (row_memory(&large) + row_memory(&largest) > goals->machine->available)
        goal.why = "too little memory is free";
    else if (measure_beside(goals, &large, &largest, "the largest table", &goal))
        snprintf(goal.floor, sizeof(goal.floor), "dependent load %.3g",
                 largest.floor_ns / large.floor_ns);
    print(goals, &goal);
}

enum { OURS_TAKE, OURS_BATCH, REDIS, REDIS_16, ENTRANTS };

/* How many times Redis's ns ours are. */
static void redis_goal(struct goals *goals, const struct entrant *entrants, unsigned redis,
                       unsigned ours, const char *name, double limit) {
    const struct entrant *a = &entrants[ours], *b = &entrants[redis];
    struct goal goal = {.point = 7, .name = name, .at_least = true, .limit = limit};

    goal.aside = (redis == REDIS) != (ours == OURS_TAKE);
    goal.absent = b->absent;
    if (b->absent) {
        goal.why = "redis-server; ./bench/run goals installs it";
    } else if (!a->checked || !b->checked) {
        goal.why = "it failed";
    } else {
        double ratios[CONTEST_REPEATS];
        for (unsigned i = 0; i < CONTEST_REPEATS; i++)
            ratios[i] = b->ns[i] / a->ns[i];
        summarize(ratios, CONTEST_REPEATS, &goal.measured, &goal.min, &goal.max);
        snprintf(goal.floor, sizeof(goal.floor), "Redis %.3g us", b->ns_per_op / 1e3);
    }
    print(goals, &goal);
}

static void goal_redis(struct goals *goals) {
    struct entrant entrants[ENTRANTS] = {
        [OURS_TAKE] = {.peer = &peer_stint},
        [OURS_BATCH] = {.peer = &peer_stint_batch},
        [REDIS] = {.peer = &peer_redis_incr},
        [REDIS_16] = {.peer = &peer_redis_incr_16},
    };
    struct contest contest = {
        .keys = keys_out(goals),
        .threads = 1,
        .limits = 1,
        .seconds = goals->options->seconds,
        .window = contest_window(),
    };

    show(goals, "Redis");
    contest_run(&contest, entrants, ENTRANTS);
    progress_end(&goals->progress);
    for (unsigned i = 0; i < ENTRANTS; i++)
        if (!entrants[i].checked && !entrants[i].absent) {
            fprintf(stderr, "stint-bench goals: %s: %s\n", entrants[i].peer->name,
                    entrants[i].wrong);
            goals->good = false;
        }
    redis_goal(goals, entrants, REDIS, OURS_TAKE, "Redis one at a time / take", 300);
    redis_goal(goals, entrants, REDIS, OURS_BATCH, "Redis one at a time / batch", 300);
    redis_goal(goals, entrants, REDIS_16, OURS_TAKE, "Redis 16 pipelined / take", 20);
    redis_goal(goals, entrants, REDIS_16, OURS_BATCH, "Redis 16 pipelined / batch", 20);
}

/* Every other kind of decision beside plain takes, in cache and out. */
static void goal_paths(struct goals *goals) {
    const uint64_t keys[] = {PATH_FEW, keys_out(goals)};

    for (unsigned i = 0; i < 2; i++)
        for (enum workload path = PATHS; path < WORKLOADS; path++) {
            struct row row = plan_row(path, UNIFORM, keys[i]);
            char name[40];
            measure(goals, &row);
            snprintf(name, sizeof(name), "%s %s / %s", workloads[path].name,
                     i == 0 ? "in cache" : "out", floors[workloads[path].floor].name);
            struct goal goal = {
                .point = 8,
                .name = name,
                .limit = workloads[path].path->goal[i],
                .measured = row.ratio,
                .min = row.ratio_min,
                .max = row.ratio_max,
                .why = row.checked ? NULL : "wrong answers",
                .reached = row.checked && row.ns_per_op <= 1.15 * row.locked_ns,
            };
            snprintf(goal.floor, sizeof(goal.floor), "%.15s %.3g",
                     floors[workloads[path].path->locked].name, row.locked_ns);
            print(goals, &goal);
        }
}

/* In the order of their numbers. */
static void (*const all_goals[])(struct goals *) = {
    goal_cache, goal_batch,     goal_overlap, goal_threads, goal_new_keys,
    goal_churn, goal_many_keys, goal_redis,   goal_paths,
};

int bench_goals(int argc, char **argv) {
    struct options options = {.keys = KEYS_DEFAULT, .seconds = 1};
    struct machine machine;
    struct goals goals = {.options = &options, .machine = &machine, .all_met = true, .good = true};

    if (help_wanted(argc, argv)) {
        print_help(stdout);
        return EXIT_GOOD;
    }
    int result = read_options(argc, argv, &options);
    if (result != EXIT_GOOD)
        return result;
    machine_read(&machine);
    struct row largest = plan_row(TAKE, UNIFORM, LARGEST * options.keys);
    struct plan plan = {.command = "goals"};
    if (options.keys_given) {
        plan_add(&plan, &largest); /* refused, if that was asked for and does not fit */
        result = plan_fit(&plan, &machine);
        free(plan.rows);
    }
    if (result == EXIT_GOOD)
        result = output_open(&options.output, "goals");
    if (result == EXIT_GOOD) {
        report_start_other(&goals.report, &format, &options.output, &machine, options.seconds);
        for (size_t i = 0; i < sizeof(all_goals) / sizeof(all_goals[0]); i++)
            all_goals[i](&goals);
        result = report_end(&goals.report);
        if (!goals.all_met || !goals.good)
            result = EXIT_FAILED;
    }
    output_close(&options.output);
    return result;
}
