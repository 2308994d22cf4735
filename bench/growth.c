/* SPDX-License-Identifier: MIT
 * stint-bench growth: how the cost of a decision grows with the keys, the load, the threads, the
 * length of the keys, the policies, and the part of the requests that is refused. */
#include <stdlib.h>

#include "common.h"
#include "keys.h"
#include "options.h"
#include "plan.h"

enum series { KEYS, LOAD, THREADS, KEY_LENGTH, POLICIES, REFUSED, SERIES };
static const char *const series_names[SERIES] = {
    "keys", "load", "threads", "key-length", "policies", "refused",
};

enum {
    KEYS_DEFAULT = 100000000, /* a table of 3.2 GB */
    KEYS_MILLION = 1000000,   /* where it is not the keys that grow: out of cache, or near */
    KEYS_FEW = 1000,          /* in cache, where a key's length and its policy show */
};

struct options {
    struct list series;
    uint64_t keys; /* 0: not given */
    double seconds;
    struct output output;
};

static void print_help(FILE *out) {
    fputs(
        "Usage: stint-bench growth [OPTIONS]\n"
        "\n"
        "Measures how the cost of a decision grows, one thing at a time. Times are measured as in\n"
        "stint-bench run, beside the same floors, and all answers are checked.\n"
        "\n"
        "  --by S,..            only these series (all)\n"
        "      keys         1k to 100M keys (3.2 GB, and as much again for the floor)\n"
        "      load         keys / slots of the table from 10% to 95%; unplaced keys are counted\n"
        "      threads      1 to all cores: uniform, zipf 0.99, one hot key, one refused hot key,\n"
        "                   each beside one thread that works while the others wait\n"
        "      key-length   4 to 1024 bytes\n"
        "      policies     1 to 4096, the keys spread over them\n"
        "      refused      none to all of the keys have used up their limit\n"
        "  --keys N             the largest table, 1k to 4G keys (100M)\n"
        "  --seconds S          timed work a row, 0.001 to 3600 (0.3)\n" OUTPUT_HELP "\n"
        "Exit codes: 0 good, 1 wrong answers or not measured, 2 wrong usage.\n",
        out);
}

static int read_options(int argc, char **argv, struct options *options) {
    static const char *const known[] = {
        "--by", "--keys", "--seconds", "--format", "--plot", "--compare",
    };
    char wrong[64];

    for (int i = 1; i < argc; i++) {
        struct option option;
        int result =
            option_next("growth", argc, argv, &i, known, sizeof(known) / sizeof(known[0]), &option);
        if (result != EXIT_GOOD)
            return result;
        switch (option.which) {
        case 0:
            if (!list_read(&options->series, option.value, series_names, SERIES, 0, wrong,
                           sizeof(wrong)))
                return usage_error("growth", "--by: '%s' is no series", wrong);
            break;
        case 1:
            if (!parse_count(option.value, KEYS_FEW, KEYS_MAX, &options->keys))
                return usage_error("growth", "--keys: '%s' is not a count from 1k to 4G",
                                   option.value);
            break;
        default:
            result = measure_option("growth", &option, &options->seconds, &options->output);
            if (result != EXIT_GOOD)
                return result;
        }
    }
    return EXIT_GOOD;
}

/* ---- The series ---- */

static void by_keys(struct plan *plan, uint64_t largest) {
    static const enum workload each[] = {TAKE, BATCH_16};

    for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++)
        for (uint64_t keys = KEYS_FEW; keys <= largest; keys *= 10) {
            struct row row = plan_row(each[i], UNIFORM, keys);
            row.series = "keys";
            plan_add(plan, &row);
        }
}

static void by_load(struct plan *plan, uint64_t keys) {
    static const enum workload each[] = {TAKE, FIRST_SEEN};
    static const double loads[] = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95};

    for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++)
        for (size_t j = 0; j < sizeof(loads) / sizeof(loads[0]); j++) {
            struct row row = plan_row(each[i], UNIFORM, keys);
            row.series = "load";
            row.load = loads[j];
            plan_add(plan, &row);
        }
}

static void by_threads(struct plan *plan, uint64_t keys, unsigned cores) {
    static const struct {
        enum workload workload;
        enum distribution distribution;
        bool striped;
    } each[] = {
        {TAKE, UNIFORM, false}, {TAKE, ZIPF, false},  {TAKE, HOT, false},
        {TAKE, HOT, true},      {REFUSE, HOT, false},
    };

    for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++)
        for (unsigned threads = 1; threads <= cores;) {
            struct row row = plan_row(each[i].workload, each[i].distribution, keys);
            row.series = "threads";
            row.threads = threads;
            for (row.stripes = 2; each[i].striped && row.stripes < threads && row.stripes < 64;)
                row.stripes *= 2;
            if (!each[i].striped)
                row.stripes = 0;
            row.floor_given = true;
            row.floor = FLOOR_ALONE;
            plan_add(plan, &row);
            /* 1, 2, 4, .. and all */
            threads = threads < cores && threads * 2 > cores ? cores : threads * 2;
        }
}

static void by_key_length(struct plan *plan) {
    for (size_t length = KEY_LENGTH_MIN; length <= KEY_LENGTH_MAX; length *= 2) {
        struct row row = plan_row(TAKE, UNIFORM, KEYS_FEW);
        row.series = "key-length";
        row.key_length = length;
        plan_add(plan, &row);
    }
}

static void by_policies(struct plan *plan, uint64_t keys) {
    for (unsigned policies = 1; policies <= 4096; policies *= 4) {
        struct row row = plan_row(TAKE, UNIFORM, keys);
        row.series = "policies";
        row.policies = policies;
        plan_add(plan, &row);
    }
}

static void by_refused(struct plan *plan, uint64_t keys) {
    static const double parts[] = {0, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1};

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        struct row row = plan_row(TAKE, UNIFORM, keys);
        row.series = "refused";
        row.refused_part = parts[i];
        plan_add(plan, &row);
    }
}

int bench_growth(int argc, char **argv) {
    struct options options = {.seconds = 0.3};
    struct machine machine;
    struct plan plan = {.command = "growth"};

    if (help_wanted(argc, argv)) {
        print_help(stdout);
        return EXIT_GOOD;
    }
    int result = read_options(argc, argv, &options);
    if (result != EXIT_GOOD)
        return result;
    machine_read(&machine);
    plan.selected = options.keys == 0;
    uint64_t largest = plan.selected ? KEYS_DEFAULT : options.keys;
    uint64_t keys = largest < KEYS_MILLION ? largest : KEYS_MILLION;
    for (unsigned i = 0; i < SERIES; i++) {
        bool wanted = options.series.n == 0;
        for (size_t j = 0; j < options.series.n; j++)
            wanted |= options.series.values[j] == i;
        if (!wanted)
            continue;
        switch ((enum series)i) {
        case KEYS:
            by_keys(&plan, largest);
            break;
        case LOAD:
            by_load(&plan, keys);
            break;
        case THREADS:
            by_threads(&plan, keys, machine.cores);
            break;
        case KEY_LENGTH:
            by_key_length(&plan);
            break;
        case POLICIES:
            by_policies(&plan, keys);
            break;
        default:
            by_refused(&plan, keys);
        }
    }
    result = plan_fit(&plan, &machine);
    if (result == EXIT_GOOD)
        result = output_open(&options.output, "growth");
    if (result == EXIT_GOOD)
        result = plan_run(&plan, REPORT_SERIES, &options.output, options.seconds, &machine);
    output_close(&options.output);
    free(plan.rows);
    return result;
}
