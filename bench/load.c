/* SPDX-License-Identifier: MIT
 * stint-bench load: what the limiter costs a server, at the rate that the server has.
 *
 * The generator is open: arrival n is due at start + n / rate, whatever became of those before it,
 * so a stall is not hidden by fewer arrivals. It does as an epoll server does: wakes about every
 * millisecond, serves all that is due by then in order, and sleeps again. */
#include <stint.h>

#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "common.h"
#include "histogram.h"
#include "keys.h"
#include "machine.h"
#include "options.h"
#include "report.h"
#include "tail.h"
#include "team.h"
#include "ticks.h"

static const char command[] = "load";

enum {
    POLICIES_MAX = 16,
    KEY_LENGTH = 16,
    PERIOD_MAX = 1 << 22, /* zipf draws a thread, 16 MiB, read in order */
    CONTROL_SECONDS = 10, /* at most, of the run without stint */
    PARTS = 10,           /* of a run, see struct part */
};

#define RATE_MAX  UINT64_C(10000000) /* timed one by one, a core decides about so many */
#define WAKE_NS   UINT64_C(1000000)
#define LATE_NS   (2 * WAKE_NS) /* a wake-up was missed */
#define START_NS  UINT64_C(10000000)
#define SHOW_NS   UINT64_C(500000000)
#define SECOND_NS UINT64_C(1000000000)

struct options {
    uint64_t rate, keys, threads;
    double seconds;
    const char *limits[POLICIES_MAX];
    size_t limits_n;
    struct output output;
};

/* What people set side by side: a burst, a steady rate, a quota. */
static const char *const default_limits[] = {"10/second", "100/minute", "2000/hour"};

static void print_help(FILE *out) {
    fputs(
        "Usage: stint-bench load [OPTIONS]\n"
        "\n"
        "Serves arrivals on a schedule, as a server with that many requests a second does, and\n"
        "tells the share of a core that the decisions take, how long they take, and how late\n"
        "they were begun.\n"
        "\n"
        "  --rate N             arrivals a second, all threads together, 1 to 10M (400k)\n"
        "  --seconds S          0.001 to 3600 (60), and a control run of at most 10 before\n"
        "  --keys N             keys, drawn with weight 1/n^0.99 (zipf), 1 to 4G (1M)\n"
        "  --threads N          that share the arrivals, each pinned to a core of its own (1)\n"
        "  --limit L            a policy in stint's notation; up to 16 times. An arrival asks for\n"
        "                       one of them, equally often (10/second, 100/minute, "
        "2000/hour)\n" OUTPUT_HELP "\n"
        "Arrival n is due at start + n / rate. The generator wakes every millisecond and serves\n"
        "what is due by then in order. An arrival is late if its decision began more than 2 ms\n"
        "after it was due.\n"
        "\n"
        "The share of a core is the sum of the times of all decisions (hashing the key, reading\n"
        "the clock, deciding) divided by the time that the run took. Each is timed by itself by\n"
        "the time-stamp counter, with fences, what timing itself takes subtracted; so no decision\n"
        "overlaps the next, as it would in a loop, and what a decision was interrupted for is in\n"
        "it. Beside it stands the CPU time of the whole thread, with the decisions and in a\n"
        "control run without them (the same arrivals, keys and timing). The noise is how far\n"
        "tenths of the run differ.\n"
        "\n"
        "Every arrival is counted: what was allowed and refused must be what the limiter counted.\n"
        "Exit codes: 0 good, 1 wrong counts or not measured, 2 wrong usage.\n",
        out);
}

/* ---- Options ---- */

static int read_option(const struct option *option, struct options *options) {
    struct stint_policy policy = STINT_POLICY_INIT;
    const char *value = option->value, *wrong = NULL;

    switch (option->which) {
    case 0:
        if (!parse_count(value, 1, RATE_MAX, &options->rate))
            return usage_error(command, "--rate: '%s' is not a count from 1 to 10M", value);
        break;
    case 1:
        if (!parse_count(value, 1, KEYS_MAX, &options->keys))
            return usage_error(command, "--keys: '%s' is not a count from 1 to 4G", value);
        break;
    case 2:
        if (!parse_count(value, 1, UINT64_MAX, &options->threads))
            return usage_error(command, "--threads: '%s' is not a count of at least 1", value);
        break;
    case 3:
        if (stint_policy_parse(value, &policy, &wrong) != 0)
            return limit_error(command, value, wrong);
        if (options->limits_n == POLICIES_MAX)
            return usage_error(command, "--limit '%s': more than %d", value, POLICIES_MAX);
        options->limits[options->limits_n++] = value;
        break;
    default:
        return measure_option(command, option, &options->seconds, &options->output);
    }
    return EXIT_GOOD;
}

static int read_options(int argc, char **argv, struct options *options) {
    static const char *const known[] = {"--rate",    "--keys",   "--threads", "--limit",
                                        "--seconds", "--format", "--plot",    "--compare"};
    struct option option;
    int result = EXIT_GOOD;

    for (int at = 1; at < argc && result == EXIT_GOOD; at++) {
        result =
            option_next(command, argc, argv, &at, known, sizeof(known) / sizeof(known[0]), &option);
        if (result == EXIT_GOOD)
            result = read_option(&option, options);
    }
    return result;
}

/* ---- Generator ---- */

/* A tenth of the arrivals, in the order in which they are due: how far tenths differ is the
 * noise. */
struct part {
    uint64_t arrivals;
    uint64_t ticks;                  /* of all decisions, without what timing takes */
    struct histogram took, lateness; /* ns */
};

/* What one thread did. */
struct served {
    uint64_t arrivals, allowed, late;
    uint64_t cpu_ns, ended_ns;
    struct part parts[PARTS];
};

struct load {
    const struct options *options;
    struct stint_limiter *limiter; /* NULL: the control run */
    uint32_t policies[POLICIES_MAX];
    struct sequence sequence;
    uint64_t arrivals; /* of all threads */
    uint64_t start_ns; /* CLOCK_MONOTONIC */
    struct served *served;
    struct progress progress;
};

/* What came of a run, all threads together. */
struct outcome {
    uint64_t wall_ns;
    double cpu_share; /* CPU time of the threads / wall_ns */
    uint64_t preempted;
    uint64_t arrivals, allowed, late;
    double ns, ns_min, ns_max; /* of a decision: the mean, and the least and the most of a part */
    double share;              /* time of all decisions / wall_ns */
    struct tail took, lateness;
};

/* ns after the start at which the nth arrival is due. */
static uint64_t due(const struct load *load, uint64_t nth) {
    __extension__ typedef unsigned __int128 wide;
    return (uint64_t)((wide)nth * SECOND_NS / load->options->rate);
}

static void sleep_until(uint64_t ns) {
    struct timespec time = {(time_t)(ns / SECOND_NS), (long)(ns % SECOND_NS)};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) != 0)
        continue;
}

/* Serves one arrival. Returns when it was begun, in ticks. */
static uint64_t serve(const struct load *load, struct served *served, unsigned thread,
                      uint64_t nth) {
    unsigned char key[KEY_LENGTH];
    const struct options *options = load->options;
    uint64_t position = nth / options->threads;
    size_t policy = scale64(mix64(nth), options->limits_n);
    struct part *part = &served->parts[nth * PARTS / load->arrivals];
    bool allowed = false;
    struct stint_verdict verdict;

    key_bytes(sequence_index(&load->sequence, thread, position), key, sizeof(key));
    uint64_t started = ticks_start();
    if (load->limiter != NULL)
        allowed = stint_take(load->limiter, load->policies[policy],
                             stint_key_of(load->limiter, key, sizeof(key)), 1, STINT_NOW, &verdict);
    uint64_t took = ticks_stop() - started;
    took = took > ticks.overhead ? took - ticks.overhead : 0;
    part->ticks += took;
    part->arrivals++;
    histogram_add(&part->took, (uint64_t)((double)took * ticks.ns + 0.5));
    served->allowed += allowed;
    served->arrivals++;
    return started;
}

/* Thread t serves the arrivals t, t + threads, t + 2 * threads... */
static void generate(struct member *member, void *context) {
    struct load *load = context;
    struct served *served = &load->served[member->thread];
    uint64_t step = load->options->threads, nth = member->thread, shown = 0;

    prctl(PR_SET_TIMERSLACK, 1); /* wake when it is time, not 50 us after */
    sleep_until(load->start_ns);
    uint64_t cpu = thread_cpu_ns();
    while (nth < load->arrivals) {
        uint64_t now = monotonic_ns(), now_ticks = ticks_start();
        uint64_t passed = now > load->start_ns ? now - load->start_ns : 0;
        for (; nth < load->arrivals && due(load, nth) <= passed; nth += step) {
            uint64_t began = serve(load, served, member->thread, nth);
            uint64_t late =
                passed - due(load, nth) + (uint64_t)((double)(began - now_ticks) * ticks.ns);
            histogram_add(&served->parts[nth * PARTS / load->arrivals].lateness, late);
            served->late += late > LATE_NS;
        }
        if (member->thread == 0 && passed - shown > SHOW_NS) {
            shown = passed;
            progress_update(&load->progress, nth);
        }
        if (nth < load->arrivals) {
            uint64_t wake = due(load, nth) / WAKE_NS * WAKE_NS + WAKE_NS;
            sleep_until(load->start_ns + wake);
        }
    }
    served->cpu_ns = thread_cpu_ns() - cpu;
    served->ended_ns = monotonic_ns();
}

static void add_part(struct part *sum, const struct part *part) {
    sum->arrivals += part->arrivals;
    sum->ticks += part->ticks;
    histogram_merge(&sum->took, &part->took);
    histogram_merge(&sum->lateness, &part->lateness);
}

static void sum_parts(const struct load *load, struct outcome *outcome) {
    struct part *all = must_have(calloc(1, sizeof(*all))), *part = must_have(malloc(sizeof(*part)));

    for (unsigned i = 0; i < PARTS; i++) {
        memset(part, 0, sizeof(*part));
        for (uint64_t thread = 0; thread < load->options->threads; thread++)
            add_part(part, &load->served[thread].parts[i]);
        if (part->arrivals == 0)
            continue; /* of less than ten */
        bool first = all->arrivals == 0;
        double ns = (double)part->ticks * ticks.ns / (double)part->arrivals;
        if (first || ns < outcome->ns_min)
            outcome->ns_min = ns;
        if (first || ns > outcome->ns_max)
            outcome->ns_max = ns;
        tail_add(&outcome->took, &part->took, first);
        tail_add(&outcome->lateness, &part->lateness, first);
        add_part(all, part);
    }
    tail_total(&outcome->took, &all->took);
    tail_total(&outcome->lateness, &all->lateness);
    outcome->ns = (double)all->ticks * ticks.ns / (double)all->arrivals;
    outcome->share = outcome->ns * (double)all->arrivals / (double)outcome->wall_ns;
    free(all);
    free(part);
}

static void run(struct load *load, double seconds, const char *label, struct outcome *outcome) {
    struct rusage before, after;
    unsigned threads = (unsigned)load->options->threads;
    uint64_t cpu_ns = 0;

    load->arrivals = (uint64_t)((double)load->options->rate * seconds + 0.5);
    load->served = must_have(calloc(threads, sizeof(*load->served)));
    /* Touched now: their page faults are no part of a decision. */
    memset(load->served, 0, threads * sizeof(*load->served));
    progress_start(&load->progress, label, load->arrivals);
    load->start_ns = monotonic_ns() + START_NS;
    getrusage(RUSAGE_SELF, &before);
    team_run(threads, generate, load);
    getrusage(RUSAGE_SELF, &after);
    progress_end(&load->progress);

    *outcome = (struct outcome){.preempted = (uint64_t)(after.ru_nivcsw - before.ru_nivcsw)};
    for (unsigned i = 0; i < threads; i++) {
        const struct served *served = &load->served[i];
        outcome->arrivals += served->arrivals;
        outcome->allowed += served->allowed;
        outcome->late += served->late;
        cpu_ns += served->cpu_ns;
        if (served->ended_ns > load->start_ns + outcome->wall_ns)
            outcome->wall_ns = served->ended_ns - load->start_ns;
    }
    /* The last arrival is due before the end of the last interval. */
    uint64_t scheduled = due(load, load->arrivals);
    if (outcome->wall_ns < scheduled)
        outcome->wall_ns = scheduled;
    outcome->cpu_share = (double)cpu_ns / (double)outcome->wall_ns;
    sum_parts(load, outcome);
    free(load->served);
    load->served = NULL;
}

/* ---- Report ---- */

struct result {
    const struct options *options;
    struct outcome with, without;
    struct stint_stats stats;
    struct stint_policy_stats policies[POLICIES_MAX];
    bool checked;
};

static void table_head(FILE *out, double seconds) {
    (void)seconds;
    fputs("every decision is timed by itself\n\n", out);
}

/* The share of a core that so many ns a decision make. */
static double share_of(const struct result *result, double ns) {
    return result->with.share * ns / result->with.ns;
}

static void table_report(FILE *out, const void *item) {
    const struct result *result = item;
    const struct options *options = result->options;
    const struct outcome *with = &result->with;
    char keys[24];

    format_count(options->keys, keys, sizeof(keys));
    fprintf(out, "arrivals  %llu in %.3f s, %llu a second; %s keys, zipf; %llu %s\n",
            (unsigned long long)with->arrivals, (double)with->wall_ns / 1e9,
            (unsigned long long)options->rate, keys, (unsigned long long)options->threads,
            options->threads == 1 ? "thread" : "threads");
    for (size_t i = 0; i < options->limits_n; i++)
        fprintf(out, "          %-40.40s %12llu allowed %12llu refused\n", options->limits[i],
                (unsigned long long)(result->policies[i].allowed + result->policies[i].shadowed),
                (unsigned long long)result->policies[i].refused);
    if (result->stats.untracked != 0)
        fprintf(out, "          %llu of them without a slot, the table being full\n",
                (unsigned long long)result->stats.untracked);
    fprintf(out, "\ndecisions %7.3f %% of one core, %.3f to %.3f %% in a tenth of the run\n",
            100 * with->share, 100 * share_of(result, with->ns_min),
            100 * share_of(result, with->ns_max));
    fprintf(out, "          %7.1f ns each, %.1f to %.1f (%s, %.1f ns of timing subtracted)\n",
            with->ns, with->ns_min, with->ns_max, ticks_name(), ticks.overhead_ns);
    fprintf(out,
            "threads   %7.3f %% of one core with the decisions, %.3f %% without, %.3f %% apart\n",
            100 * with->cpu_share, 100 * result->without.cpu_share,
            100 * (with->cpu_share - result->without.cpu_share));
    fprintf(out, "\n%-14s", "");
    for (size_t i = 0; i < TAIL_POINTS; i++)
        fprintf(out, "%12s", tail_names[i]);
    fprintf(out, "\n%-14s", "decision, ns");
    for (size_t i = 0; i < TAIL_POINTS; i++)
        fprintf(out, "%12llu", (unsigned long long)with->took.ns[i]);
    fprintf(out, "\n%-14s", "begun, us late");
    for (size_t i = 0; i < TAIL_POINTS; i++)
        fprintf(out, "%12.1f", (double)with->lateness.ns[i] / 1e3);
    fprintf(
        out,
        "\n\nlate      %llu arrivals (%.4f %%) were begun more than %.0f ms after they were due\n",
        (unsigned long long)with->late, 100 * (double)with->late / (double)with->arrivals,
        (double)LATE_NS / 1e6);
}

static void table_foot(FILE *out) {
    (void)out;
}

static void json_limits(FILE *out, const struct result *result) {
    const struct options *options = result->options;

    fputs(", \"limits\": [", out);
    for (size_t i = 0; i < options->limits_n; i++) {
        fputs(i == 0 ? "" : ", ", out);
        put_json_string(out, options->limits[i], strlen(options->limits[i]));
    }
    fputs("], \"by_limit\": [", out);
    for (size_t i = 0; i < options->limits_n; i++)
        fprintf(out, "%s{\"allowed\": %llu, \"refused\": %llu}", i == 0 ? "" : ", ",
                (unsigned long long)(result->policies[i].allowed + result->policies[i].shadowed),
                (unsigned long long)result->policies[i].refused);
    fputc(']', out);
}

static void json_report(FILE *out, const void *item) {
    const struct result *result = item;
    const struct options *options = result->options;
    const struct outcome *with = &result->with, *without = &result->without;

    fprintf(out,
            "{\"workload\": \"arrivals\", \"distribution\": \"%s\", \"rate\": %llu, "
            "\"keys\": %llu, \"threads\": %llu, \"key_length\": %d",
            distribution_names[ZIPF], (unsigned long long)options->rate,
            (unsigned long long)options->keys, (unsigned long long)options->threads, KEY_LENGTH);
    json_limits(out, result);
    fprintf(out,
            ", \"arrivals\": %llu, \"allowed\": %llu, \"refused\": %llu, \"untracked\": %llu, "
            "\"wall_seconds\": %.6f, \"parts\": %d",
            (unsigned long long)with->arrivals, (unsigned long long)with->allowed,
            (unsigned long long)(with->arrivals - with->allowed),
            (unsigned long long)result->stats.untracked, (double)with->wall_ns / 1e9, PARTS);
    put_json_real(out, "core_share", true, with->share);
    put_json_real(out, "core_share_min", true, share_of(result, with->ns_min));
    put_json_real(out, "core_share_max", true, share_of(result, with->ns_max));
    put_json_real(out, "ns_per_op", true, with->ns);
    put_json_real(out, "ns_min", true, with->ns_min);
    put_json_real(out, "ns_max", true, with->ns_max);
    put_json_real(out, "cpu_share_with", true, with->cpu_share);
    put_json_real(out, "cpu_share_without", true, without->cpu_share);
    tail_put_json(out, "call", &with->took);
    tail_put_json(out, "empty", &without->took);
    tail_put_json(out, "late", &with->lateness);
    tail_put_json(out, "late_without", &without->lateness);
    fprintf(out,
            ", \"late_arrivals\": %llu, \"late_after_ns\": %llu, \"timer\": \"%s\", "
            "\"overhead_ns\": %.4g, \"step_ns\": %.4g, \"preempted\": %llu, \"checked\": %s}",
            (unsigned long long)with->late, (unsigned long long)LATE_NS, ticks_name(),
            ticks.overhead_ns, ticks.step_ns, (unsigned long long)with->preempted,
            result->checked ? "true" : "false");
}

static const struct report_format report_format = {
    .head = table_head,
    .table = table_report,
    .json = json_report,
    .foot = table_foot,
};

/* ---- Run ---- */

static uint64_t period_of(const struct options *options) {
    uint64_t period = 1 << 12;
    double arrivals = (double)options->rate * options->seconds / (double)options->threads;

    while (period < PERIOD_MAX && (double)period < arrivals)
        period *= 2;
    return period;
}

static double memory_of(const struct options *options) {
    return (double)options->keys * (double)options->limits_n * 64 +
           (double)(options->threads * period_of(options)) * sizeof(uint32_t) + (64 << 20);
}

static int refuse_impossible(const struct options *options, const struct machine *machine) {
    double need = memory_of(options) / 0x1p30, have = (double)machine->available / 0x1p30;
    char keys[24];

    format_count(options->keys, keys, sizeof(keys));
    if (options->threads > machine->cores)
        return usage_error(command, "--threads %llu: there are %u cores to pin them to",
                           (unsigned long long)options->threads, machine->cores);
    if (need > have)
        return usage_error(command,
                           "--keys %s needs %.1f GiB of memory for %zu policies, and %.1f GiB are "
                           "free",
                           keys, need, options->limits_n, have);
    if ((double)options->rate * options->seconds < 1)
        return usage_error(command, "--seconds %g: nothing arrives in that time, at --rate %llu",
                           options->seconds, (unsigned long long)options->rate);
    return EXIT_GOOD;
}

static int open_limiter(struct load *load) {
    const struct options *options = load->options;
    struct stint_options limiter = STINT_OPTIONS_INIT;

    limiter.max_keys = options->keys * options->limits_n; /* every key by every policy */
    limiter.flags = STINT_PREFAULT;
    int error = stint_open(&limiter, &load->limiter);
    if (error != 0) {
        fprintf(stderr, "stint-bench load: no table: %s (%s)\n", stint_strerror(error),
                stint_reason());
        return EXIT_FAILED;
    }
    for (size_t i = 0; i < options->limits_n; i++) {
        struct stint_policy policy = STINT_POLICY_INIT;
        if (stint_policy_parse(options->limits[i], &policy, NULL) != 0 ||
            stint_policy_add(load->limiter, &policy, &load->policies[i]) != 0)
            return limit_error(command, options->limits[i], NULL);
        if (load->policies[i] < i)
            return usage_error(command, "--limit '%s' is given twice", options->limits[i]);
    }
    return EXIT_GOOD;
}

/* What we counted is what the limiter counted. */
static bool check(const struct load *load, struct result *result) {
    uint64_t allowed = 0, refused = 0;
    const struct outcome *sum = &result->with;

    result->stats = (struct stint_stats)STINT_STATS_INIT;
    stint_stats_get(load->limiter, &result->stats);
    for (size_t i = 0; i < load->options->limits_n; i++) {
        result->policies[i] = (struct stint_policy_stats)STINT_POLICY_STATS_INIT;
        stint_policy_stats_get(load->limiter, load->policies[i], &result->policies[i]);
        allowed += result->policies[i].allowed + result->policies[i].shadowed;
        refused += result->policies[i].refused;
    }
    if (sum->arrivals == load->arrivals && sum->allowed == allowed &&
        sum->arrivals - sum->allowed == refused)
        return true;
    fprintf(stderr,
            "stint-bench load: wrong counts: of %llu arrivals %llu were served and %llu allowed;\n"
            "the limiter counted %llu allowed and %llu refused\n",
            (unsigned long long)load->arrivals, (unsigned long long)sum->arrivals,
            (unsigned long long)sum->allowed, (unsigned long long)allowed,
            (unsigned long long)refused);
    return false;
}

static int run_load(struct options *options, const struct machine *machine) {
    struct load load = {.options = options};
    struct result *result = must_have(calloc(1, sizeof(*result)));
    double control = options->seconds < CONTROL_SECONDS ? options->seconds : CONTROL_SECONDS;

    result->options = options;
    ticks_open();
    struct stint_limiter *limiter;
    int code = open_limiter(&load);
    limiter = load.limiter;
    if (code == EXIT_GOOD) {
        sequence_open(&load.sequence, ZIPF, options->keys, (unsigned)options->threads,
                      period_of(options));
        load.limiter = NULL;
        run(&load, control, "control run without stint", &result->without);
        load.limiter = limiter;
        run(&load, options->seconds, "load", &result->with);
        result->checked = check(&load, result);
        struct report report;
        report_start_other(&report, &report_format, &options->output, machine, options->seconds);
        /* A row is taken for about a second there. */
        report.preempted = (uint64_t)((double)result->with.preempted / options->seconds);
        report_other(&report, result);
        code = report_end(&report);
        if (!result->checked)
            code = EXIT_FAILED;
        sequence_close(&load.sequence);
    }
    stint_close(limiter);
    free(result);
    return code;
}

int bench_load(int argc, char **argv) {
    struct options options = {.rate = 400000, .keys = 1000000, .threads = 1, .seconds = 60};
    struct machine machine;

    if (help_wanted(argc, argv)) {
        print_help(stdout);
        return EXIT_GOOD;
    }
    int code = read_options(argc, argv, &options);
    if (code != EXIT_GOOD)
        return code;
    if (options.limits_n == 0) {
        options.limits_n = sizeof(default_limits) / sizeof(default_limits[0]);
        memcpy(options.limits, default_limits, sizeof(default_limits));
    }
    machine_read(&machine);
    code = refuse_impossible(&options, &machine);
    if (code == EXIT_GOOD)
        code = output_open(&options.output, command);
    if (code == EXIT_GOOD)
        code = run_load(&options, &machine);
    output_close(&options.output);
    return code;
}
