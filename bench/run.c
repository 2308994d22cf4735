/* SPDX-License-Identifier: MIT
 * stint-bench run: what a decision costs on this machine, beside what any limiter would have to
 * pay. One row a combination of the options; measure.c makes a row, workload.c has what is timed,
 * report.c prints. */
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "keys.h"
#include "machine.h"
#include "options.h"
#include "output.h"
#include "plan.h"
#include "report.h"
#include "team.h"

struct options {
    struct list workloads, keys, threads, distributions;
    size_t key_length;
    double load; /* 0: not given */
    bool latency;
    double seconds;
    struct output output;
};

static const char all_paths[] = "paths"; /* of --workload */

static void print_help(FILE *out) {
    fputs(
        "Usage: stint-bench run [OPTIONS]\n"
        "\n"
        "Measures decisions, and in the same run the floors that no limiter can beat. A time is\n"
        "the median of stretches of 512 decisions; min and max are those of the repeats. Without\n"
        "--workload, --keys, --threads, --distribution and --load it measures a selection (in\n"
        "a minute and a half), else every combination of what is given.\n"
        "\n"
        "  --workload W,..      (take,take-at,batch)\n",
        out);
    for (size_t i = 0; i < WORKLOADS; i++) {
        if (i == PATHS)
            fprintf(out,
                    "      %-10s all of these, by turns with plain takes, of 1k and 1M keys:\n",
                    all_paths);
        fprintf(out, "      %-10s %s\n", workloads[i].name, workloads[i].help);
    }
    fputs(
        "  --keys N,..          keys in the table, 1 to 4G, as in 500, 1k, 10M (1k,100k,1M,10M)\n"
        "  --threads N,..       each pinned to a core; more than there are cores take turns (1)\n"
        "  --distribution D,..  (uniform)\n"
        "      uniform    every key equally often\n"
        "      zipf       the nth key with weight 1/n^0.99\n"
        "      hot        one key; the table holds the others\n"
        "      first-seen, roll and churn ask for every key once in turn, roll-all draws anew in\n"
        "      every window: uniform only. So are the paths.\n"
        "  --key-length N       bytes of a key, 4 to 1024 (16)\n"
        "  --load L             keys / slots of the table, 0.05 to 2 (0.5: keys is max_keys;\n"
        "                       above 1 the last ones are a flood that finds it full; paths have\n"
        "                       room for all: at most 0.5)\n"
        "  --seconds S          timed work a row, 0.001 to 3600 (0.5). Workloads that need whole\n"
        "                       passes over many keys take longer.\n"
        "  --latency            the time of each call by itself, hashing its key included: its\n"
        "                       percentiles, beside those of a section with nothing in it, which\n"
        "                       are the machine's own noise. Without a selection: take, "
        "first-seen,\n"
        "                       roll and roll-all (on all cores), of a million keys.\n" OUTPUT_HELP
        "\n"
        "Every row checks its own answers first: what each key was granted must be the smaller of\n"
        "its demand and its limit. Exit codes: 0 good, 1 wrong answers or not measured, 2 wrong\n"
        "usage.\n",
        out);
}

/* ---- Options ---- */

/* Whether the workload's keys are drawn from no distribution but the uniform one. */
static bool uniform_only(uint64_t workload) {
    return workloads[workload].windows || workloads[workload].path != NULL;
}

/* Reads the workloads; all paths have a name together. */
static bool read_workloads(struct list *workloads_given, const char *text, char *wrong,
                           size_t wrong_size) {
    const char *names[WORKLOADS + 1];
    struct list list;

    for (size_t i = 0; i < WORKLOADS; i++)
        names[i] = workloads[i].name;
    names[WORKLOADS] = all_paths;
    if (!list_read(&list, text, names, WORKLOADS + 1, 0, wrong, wrong_size))
        return false;
    workloads_given->n = 0;
    for (size_t i = 0; i < list.n; i++) {
        uint64_t first = list.values[i], last = first;
        if (first == WORKLOADS) {
            first = PATHS;
            last = WORKLOADS - 1;
        }
        for (; first <= last && workloads_given->n < LIST_MAX; first++)
            workloads_given->values[workloads_given->n++] = first;
    }
    return true;
}

static int read_options(int argc, char **argv, struct options *options) {
    static const char *const known[] = {
        "--workload", "--keys",    "--threads", "--distribution", "--key-length",
        "--load",     "--seconds", "--format",  "--plot",         "--compare",
    };
    char wrong[64];
    uint64_t count;

    for (int i = 1; i < argc; i++) {
        struct option option;
        if (strcmp(argv[i], "--latency") == 0) {
            options->latency = true;
            continue;
        }
        int result =
            option_next("run", argc, argv, &i, known, sizeof(known) / sizeof(known[0]), &option);
        if (result != EXIT_GOOD)
            return result;
        const char *value = option.value;
        switch (option.which) {
        case 0:
            if (!read_workloads(&options->workloads, value, wrong, sizeof(wrong)))
                return usage_error("run", "--workload: '%s' is no workload", wrong);
            break;
        case 1:
            if (!list_read(&options->keys, value, NULL, 0, KEYS_MAX, wrong, sizeof(wrong)))
                return usage_error("run", "--keys: '%s' is not a count from 1 to 4G", wrong);
            break;
        case 2:
            if (!list_read(&options->threads, value, NULL, 0, UINT64_MAX, wrong, sizeof(wrong)))
                return usage_error("run", "--threads: '%s' is not a count of at least 1", wrong);
            break;
        case 3:
            if (!list_read(&options->distributions, value, distribution_names, DISTRIBUTIONS, 0,
                           wrong, sizeof(wrong)))
                return usage_error("run", "--distribution: '%s' is not uniform, zipf or hot",
                                   wrong);
            break;
        case 4:
            if (!parse_count(value, KEY_LENGTH_MIN, KEY_LENGTH_MAX, &count))
                return usage_error("run", "--key-length: '%s' is not a count from %d to %d", value,
                                   KEY_LENGTH_MIN, KEY_LENGTH_MAX);
            options->key_length = count;
            break;
        case 5:
            if (!read_real(value, 0.05, 2, &options->load))
                return usage_error("run", "--load: '%s' is not a number from 0.05 to 2", value);
            break;
        default:
            result = measure_option("run", &option, &options->seconds, &options->output);
            if (result != EXIT_GOOD)
                return result;
        }
    }
    return EXIT_GOOD;
}

/* ---- Plan ---- */

static void add(struct plan *plan, const struct options *options, enum workload workload,
                enum distribution distribution, uint64_t keys, uint64_t threads, double load) {
    struct row row = plan_row(workload, distribution, keys);

    row.threads = threads < UINT32_MAX ? (unsigned)threads : UINT32_MAX;
    row.key_length = options->key_length;
    row.load = load;
    row.latency = options->latency;
    plan_add(plan, &row);
}

/* What an operator wants to know first, chosen so that it takes little more than a minute on two
 * cores. */
static const struct {
    enum workload workload;
    enum distribution distribution;
    uint64_t keys;
    unsigned threads;
    double load;
} selection[] = {
    {TAKE, UNIFORM, 1000, 1, 0.5},
    {TAKE, UNIFORM, 100000, 1, 0.5},
    {TAKE, UNIFORM, 1000000, 1, 0.5},
    {TAKE, UNIFORM, 10000000, 1, 0.5},
    {TAKE_AT, UNIFORM, 1000, 1, 0.5},
    {TAKE_AT, UNIFORM, 100000, 1, 0.5},
    {TAKE_AT, UNIFORM, 1000000, 1, 0.5},
    {TAKE_AT, UNIFORM, 10000000, 1, 0.5},
    {BATCH_16, UNIFORM, 1000, 1, 0.5},
    {BATCH_16, UNIFORM, 100000, 1, 0.5},
    {BATCH_16, UNIFORM, 1000000, 1, 0.5},
    {BATCH_16, UNIFORM, 10000000, 1, 0.5},
    {TAKE, ZIPF, 1000000, 1, 0.5},
    {ROLL, UNIFORM, 1000000, 1, 0.5},
    {CHURN, UNIFORM, 1000000, 1, 0.5},
    {FIRST_SEEN, UNIFORM, 10000000, 1, 0.5},
    {FIRST_SEEN, UNIFORM, 10000000, 1, 0.7},
    {TAKE, UNIFORM, 10000000, 2, 0.5},
    {BATCH_16, UNIFORM, 10000000, 2, 0.5},
    {REFUSE, HOT, 1000, 1, 0.5},
    {REFUSE, HOT, 1000, 2, 0.5},
    {PATH_COST, UNIFORM, 1000, 1, 0.5},
    {PATH_OWN_LIMIT, UNIFORM, 1000, 1, 0.5},
    {PATH_PEEK, UNIFORM, 1000, 1, 0.5},
    {PATH_REFUND, UNIFORM, 1000, 1, 0.5},
    {PATH_SMOOTH, UNIFORM, 1000, 1, 0.5},
    {PATH_ALL_2, UNIFORM, 1000, 1, 0.5},
    {PATH_GROUPS, UNIFORM, 1000, 1, 0.5},
    {PATH_COST, UNIFORM, 1000000, 1, 0.5},
    {PATH_ALL_2, UNIFORM, 1000000, 1, 0.5},
};

static void plan_selection(struct plan *plan, const struct options *options) {
    plan->selected = true;
    for (size_t i = 0; i < sizeof(selection) / sizeof(selection[0]); i++)
        add(plan, options, selection[i].workload, selection[i].distribution, selection[i].keys,
            selection[i].threads, selection[i].load);
}

/* A million keys; and all cores where all keys roll over together. */
static void plan_latency(struct plan *plan, const struct options *options) {
    static const enum workload each[] = {TAKE, FIRST_SEEN, ROLL};

    plan->selected = true;
    for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++)
        add(plan, options, each[i], UNIFORM, 1000000, 1, 0.5);
    add(plan, options, ROLL_ALL, UNIFORM, 1000000, team_cores(), 0.5);
}

static void plan_all(struct plan *plan, const struct options *options) {
    static const struct list all_workloads = {{TAKE, TAKE_AT, BATCH_16}, 3};
    static const struct list all_calls = {{TAKE, FIRST_SEEN, ROLL, ROLL_ALL}, 4};
    static const struct list all_keys = {{1000, 100000, 1000000, 10000000}, 4};
    static const struct list million = {{1000000}, 1}, path_keys = {{PATH_FEW, 1000000}, 2};
    static const struct list one_thread = {{1}, 1}, uniform = {{UNIFORM}, 1};
    const struct list *w = options->workloads.n != 0 ? &options->workloads
                           : options->latency        ? &all_calls
                                                     : &all_workloads;
    const struct list *d = options->distributions.n != 0 ? &options->distributions : &uniform;
    const struct list *t = options->threads.n != 0 ? &options->threads : &one_thread;

    for (size_t i = 0; i < w->n; i++) {
        const struct list *k = options->keys.n != 0                   ? &options->keys
                               : options->latency                     ? &million
                               : workloads[w->values[i]].path != NULL ? &path_keys
                                                                      : &all_keys;
        for (size_t j = 0; j < d->n; j++)
            for (size_t m = 0; m < t->n; m++)
                for (size_t l = 0; l < k->n; l++)
                    if (!uniform_only(w->values[i]) || d->values[j] == UNIFORM)
                        add(plan, options, (enum workload)w->values[i],
                            (enum distribution)d->values[j], k->values[l], t->values[m],
                            options->load != 0 ? options->load : 0.5);
    }
}

/* Workloads for which there is a throughput, or with --latency a time of each call. */
static int refuse_workload(const struct options *options) {
    for (size_t i = 0; i < options->workloads.n; i++) {
        const struct workload_kind *kind = &workloads[options->workloads.values[i]];
        if (options->latency ? kind->timed == NULL : kind->run == NULL)
            return usage_error("run", "--workload %s: only %s --latency", kind->name,
                               options->latency ? "without" : "with");
        if (kind->path != NULL && options->load > 0.5)
            return usage_error("run", "--load %g: %s has room for all keys: at most 0.5",
                               options->load, kind->name);
    }
    return EXIT_GOOD;
}

/* A workload that is asked for, but not in a distribution that it has. */
static int refuse_distribution(const struct options *options) {
    for (size_t i = 0; i < options->distributions.n; i++)
        if (options->distributions.values[i] == UNIFORM)
            return EXIT_GOOD;
    for (size_t i = 0; i < options->workloads.n && options->distributions.n != 0; i++)
        if (uniform_only(options->workloads.values[i]))
            return usage_error("run", "--distribution %s: %s is uniform only",
                               distribution_names[options->distributions.values[0]],
                               workloads[options->workloads.values[i]].name);
    return EXIT_GOOD;
}

int bench_run(int argc, char **argv) {
    struct options options = {.key_length = 16, .seconds = 0.5};
    struct machine machine;
    struct plan plan = {.command = "run"};

    if (help_wanted(argc, argv)) {
        print_help(stdout);
        return EXIT_GOOD;
    }
    int result = read_options(argc, argv, &options);
    if (result == EXIT_GOOD)
        result = refuse_distribution(&options);
    if (result == EXIT_GOOD)
        result = refuse_workload(&options);
    if (result != EXIT_GOOD)
        return result;
    bool selected = options.workloads.n == 0 && options.keys.n == 0 && options.threads.n == 0 &&
                    options.distributions.n == 0 && options.load == 0;
    machine_read(&machine);
    if (selected && options.latency)
        plan_latency(&plan, &options);
    else if (selected)
        plan_selection(&plan, &options);
    else
        plan_all(&plan, &options);
    result = plan_fit(&plan, &machine);
    if (result == EXIT_GOOD)
        result = output_open(&options.output, "run");
    if (result == EXIT_GOOD)
        result = plan_run(&plan, options.latency ? REPORT_TAILS : REPORT_ROWS, &options.output,
                          options.seconds, &machine);
    output_close(&options.output);
    free(plan.rows);
    return result;
}
