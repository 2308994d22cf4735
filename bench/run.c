/* SPDX-License-Identifier: MIT
 * stint-bench run: what a decision costs on this machine, beside what any limiter would have to
 * pay. One row a combination of the options; measure.c makes a row, workload.c has what is timed,
 * report.c prints. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bed.h"
#include "common.h"
#include "machine.h"
#include "measure.h"
#include "report.h"

enum { LIST_MAX = 32 };

#define KEYS_MAX UINT64_C(4000000000) /* key indices are drawn as 32 bits */

struct list {
    uint64_t values[LIST_MAX];
    size_t n;
};

struct options {
    struct list workloads, keys, threads, distributions;
    size_t key_length;
    double load; /* 0: not given */
    double seconds;
    enum output_format format;
};

static void print_help(FILE *out) {
    fputs("Usage: stint-bench run [OPTIONS]\n"
          "\n"
          "Measures decisions, and in the same run the floors that no limiter can beat. Without\n"
          "--workload, --keys, --threads, --distribution and --load it measures a selection (in\n"
          "about a minute), else every combination of what is given.\n"
          "\n"
          "  --workload W,..      (take,take-at,batch)\n",
          out);
    for (size_t i = 0; i < WORKLOADS; i++)
        fprintf(out, "      %-10s %s\n", workloads[i].name, workloads[i].help);
    fputs(
        "  --keys N,..          keys in the table, 1 to 4G, as in 500, 1k, 10M (1k,100k,1M,10M)\n"
        "  --threads N,..       each pinned to a core of its own (1)\n"
        "  --distribution D,..  (uniform)\n"
        "      uniform    every key equally often\n"
        "      zipf       the nth key with weight 1/n^0.99\n"
        "      hot        one key; the table holds the others\n"
        "      first-seen, roll and churn ask for every key once in turn: uniform only.\n"
        "  --key-length N       bytes of a key, 4 to 1024 (16)\n"
        "  --load L             keys / slots of the table, 0.05 to 1 (0.5: keys is max_keys)\n"
        "  --seconds S          timed work a row, 0.001 to 3600 (0.5). Workloads that need whole\n"
        "                       passes over many keys take longer.\n"
        "  --format F           table or json (table)\n"
        "  --help\n"
        "\n"
        "Every row checks its own answers first: what each key was granted must be the smaller of\n"
        "its demand and its limit. Exit codes: 0 good, 1 wrong answers or not measured, 2 wrong\n"
        "usage.\n",
        out);
}

/* ---- Options ---- */

/* Appends the value of `text`, if it is one of the names or, without names, a count. */
static bool list_add(struct list *list, const char *text, const char *const *names, size_t n,
                     uint64_t high) {
    uint64_t value = 0;

    if (list->n == LIST_MAX)
        return false;
    if (names == NULL) {
        if (!parse_count(text, 1, high, &value))
            return false;
    } else {
        while (value < n && strcmp(names[value], text) != 0)
            value++;
        if (value == n)
            return false;
    }
    list->values[list->n++] = value;
    return true;
}

/* Reads a list separated by commas. Returns false if a part of it, copied to `wrong`, is none. */
static bool list_read(struct list *list, const char *text, const char *const *names, size_t n,
                      uint64_t high, char *wrong, size_t wrong_size) {
    list->n = 0;
    for (;;) {
        size_t length = strcspn(text, ",");
        snprintf(wrong, wrong_size, "%.*s", (int)(length < wrong_size ? length : wrong_size - 1),
                 text);
        if (length >= wrong_size || !list_add(list, wrong, names, n, high))
            return false;
        if (text[length] == '\0')
            return true;
        text += length + 1;
    }
}

static bool read_real(const char *text, double low, double high, double *value) {
    char *end;

    errno = 0;
    *value = strtod(text, &end);
    return errno == 0 && end != text && *end == '\0' && isfinite(*value) && *value >= low &&
           *value <= high;
}

static int read_options(int argc, char **argv, struct options *options) {
    const char *workload_names[WORKLOADS];
    char wrong[64];
    uint64_t count;

    for (size_t i = 0; i < WORKLOADS; i++)
        workload_names[i] = workloads[i].name;
    for (int i = 1; i < argc; i++) {
        char name[32];
        const char *equals = strchr(argv[i], '=');
        size_t length = equals != NULL ? (size_t)(equals - argv[i]) : strlen(argv[i]);
        if (strncmp(argv[i], "--", 2) != 0 || length >= sizeof(name))
            return usage_error("run", "there is no option '%s'", argv[i]);
        memcpy(name, argv[i], length);
        name[length] = '\0';
        static const char *const known[] = {
            "--workload",   "--keys", "--threads", "--distribution",
            "--key-length", "--load", "--seconds", "--format",
        };
        size_t at = 0;
        while (at < sizeof(known) / sizeof(known[0]) && strcmp(known[at], name) != 0)
            at++;
        if (at == sizeof(known) / sizeof(known[0]))
            return usage_error("run", "there is no option '%s'", argv[i]);
        const char *value = equals != NULL ? equals + 1 : i + 1 < argc ? argv[++i] : NULL;
        if (value == NULL)
            return usage_error("run", "%s needs a value", name);

        switch (at) {
        case 0:
            if (!list_read(&options->workloads, value, workload_names, WORKLOADS, 0, wrong,
                           sizeof(wrong)))
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
            if (!read_real(value, 0.05, 1, &options->load))
                return usage_error("run", "--load: '%s' is not a number from 0.05 to 1", value);
            break;
        case 6:
            if (!read_real(value, 0.001, 3600, &options->seconds))
                return usage_error("run", "--seconds: '%s' is not a number from 0.001 to 3600",
                                   value);
            break;
        default:
            if (strcmp(value, "table") == 0)
                options->format = FORMAT_TABLE;
            else if (strcmp(value, "json") == 0)
                options->format = FORMAT_JSON;
            else
                return usage_error("run", "--format: '%s' is not table or json", value);
        }
    }
    return EXIT_GOOD;
}

/* ---- Plan ---- */

struct plan {
    struct row *rows;
    size_t n;
    bool selected; /* by us: what does not fit this machine is left out, not refused */
};

static bool plan_add(struct plan *plan, const struct options *options, enum workload workload,
                     enum distribution distribution, uint64_t keys, uint64_t threads, double load) {
    struct row *rows = realloc(plan->rows, (plan->n + 1) * sizeof(*rows));

    if (rows == NULL)
        return false;
    plan->rows = rows;
    rows[plan->n++] = (struct row){
        .workload = workload,
        .distribution = distribution,
        .keys = keys,
        .threads = threads < UINT32_MAX ? (unsigned)threads : UINT32_MAX,
        .key_length = options->key_length,
        .load = load,
        .policies = 1,
    };
    return true;
}

/* What an operator wants to know first, chosen so that it takes a minute on two cores. */
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
};

static bool plan_selection(struct plan *plan, const struct options *options) {
    plan->selected = true;
    for (size_t i = 0; i < sizeof(selection) / sizeof(selection[0]); i++)
        if (!plan_add(plan, options, selection[i].workload, selection[i].distribution,
                      selection[i].keys, selection[i].threads, selection[i].load))
            return false;
    return true;
}

static bool plan_all(struct plan *plan, const struct options *options) {
    static const struct list all_workloads = {{TAKE, TAKE_AT, BATCH_16}, 3};
    static const struct list all_keys = {{1000, 100000, 1000000, 10000000}, 4};
    static const struct list one_thread = {{1}, 1}, uniform = {{UNIFORM}, 1};
    const struct list *w = options->workloads.n != 0 ? &options->workloads : &all_workloads;
    const struct list *d = options->distributions.n != 0 ? &options->distributions : &uniform;
    const struct list *k = options->keys.n != 0 ? &options->keys : &all_keys;
    const struct list *t = options->threads.n != 0 ? &options->threads : &one_thread;

    for (size_t i = 0; i < w->n; i++)
        for (size_t j = 0; j < d->n; j++)
            for (size_t m = 0; m < t->n; m++)
                for (size_t l = 0; l < k->n; l++) {
                    if (workloads[w->values[i]].each_once && d->values[j] != UNIFORM)
                        continue;
                    if (!plan_add(plan, options, (enum workload)w->values[i],
                                  (enum distribution)d->values[j], k->values[l], t->values[m],
                                  options->load != 0 ? options->load : 0.5))
                        return false;
                }
    return true;
}

/* A workload that is asked for, but not in a distribution that it has. */
static int refuse_distribution(const struct options *options) {
    for (size_t i = 0; i < options->distributions.n; i++)
        if (options->distributions.values[i] == UNIFORM)
            return EXIT_GOOD;
    for (size_t i = 0; i < options->workloads.n && options->distributions.n != 0; i++)
        if (workloads[options->workloads.values[i]].each_once)
            return usage_error("run", "--distribution %s: %s asks for every key once: uniform only",
                               distribution_names[options->distributions.values[0]],
                               workloads[options->workloads.values[i]].name);
    return EXIT_GOOD;
}

/* Rows that this machine cannot measure: refused if they were asked for, else left out, and said.
 */
static int fit_to_machine(struct plan *plan, const struct machine *machine) {
    size_t kept = 0;

    for (size_t i = 0; i < plan->n; i++) {
        struct row *row = &plan->rows[i];
        double need = (double)row_memory(row) / 0x1p30, have = (double)machine->available / 0x1p30;
        char keys[24];
        format_count(row->keys, keys, sizeof(keys));
        if (row->threads > machine->cores && !plan->selected)
            return usage_error("run", "--threads %u: there are %u cores to pin them to",
                               row->threads, machine->cores);
        if (need > have && !plan->selected)
            return usage_error("run", "--keys %s needs %.1f GiB of memory, and %.1f GiB are free",
                               keys, need, have);
        if (row->threads > machine->cores) {
            fprintf(stderr, "left out: %s with %u threads, there are %u cores\n",
                    workloads[row->workload].name, row->threads, machine->cores);
        } else if (need > have) {
            fprintf(stderr, "left out: %s of %s keys, it needs %.1f GiB and %.1f GiB are free\n",
                    workloads[row->workload].name, keys, need, have);
        } else {
            plan->rows[kept++] = *row;
        }
    }
    plan->n = kept;
    return EXIT_GOOD;
}

/* ---- Run ---- */

struct view {
    struct progress progress;
    char label[48];
    size_t row;
};

enum { PARTS = 1000 }; /* of a row, in the progress bar */

static void show_part(void *context, double part) {
    struct view *view = context;
    progress_update(&view->progress, view->row * PARTS + (uint64_t)(part * PARTS));
}

static int run_plan(const struct plan *plan, const struct options *options,
                    const struct machine *machine) {
    struct report report;
    struct view view = {.row = 0};
    int result = EXIT_GOOD;

    report_start(&report, stdout, options->format, machine, options->seconds);
    for (size_t i = 0; i < plan->n; i++) {
        struct row *row = &plan->rows[i];
        char keys[24];
        format_count(row->keys, keys, sizeof(keys));
        snprintf(view.label, sizeof(view.label), "%s, %s keys, %u %s",
                 workloads[row->workload].name, keys, row->threads,
                 row->threads == 1 ? "thread" : "threads");
        view.row = i;
        progress_start(&view.progress, view.label, plan->n * PARTS);
        show_part(&view, 0);
        row_measure(row, options->seconds, machine->cache, show_part, &view);
        progress_end(&view.progress);
        if (!row->checked) {
            fprintf(stderr, "stint-bench run: %s: wrong answers: %s\n", view.label, row->wrong);
            result = EXIT_FAILED;
        }
        report_row(&report, row);
    }
    report_end(&report);
    return ferror(stdout) ? EXIT_FAILED : result;
}

int bench_run(int argc, char **argv) {
    struct options options = {.key_length = 16, .seconds = 0.5};
    struct machine machine;
    struct plan plan = {0};

    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            print_help(stdout);
            return EXIT_GOOD;
        }
    int result = read_options(argc, argv, &options);
    if (result == EXIT_GOOD)
        result = refuse_distribution(&options);
    if (result != EXIT_GOOD)
        return result;
    bool selected = options.workloads.n == 0 && options.keys.n == 0 && options.threads.n == 0 &&
                    options.distributions.n == 0 && options.load == 0;
    machine_read(&machine);
    if (!(selected ? plan_selection(&plan, &options) : plan_all(&plan, &options))) {
        fputs("stint-bench run: no memory for the plan\n", stderr);
        result = EXIT_FAILED;
    }
    if (result == EXIT_GOOD)
        result = fit_to_machine(&plan, &machine);
    if (result == EXIT_GOOD)
        result = run_plan(&plan, &options, &machine);
    free(plan.rows);
    return result;
}
