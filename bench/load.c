/* SPDX-License-Identifier: MIT
 * The generator is open: arrival n is due at start + n / rate, whatever became of those before
 * it, so a stall is not hidden by fewer arrivals. It does as an epoll server does: wakes about
 * every millisecond, serves all that is due by then in order, and sleeps again. */
#include "load.h"

#include <stint.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>

#include "common.h"
#include "histogram.h"
#include "jobs.h"
#include "keys.h"
#include "pages.h"
#include "tail.h"
#include "team.h"
#include "ticks.h"

enum {
    POLICIES_MAX = 16,
    KEY_LENGTH = 16,
    PERIOD_MAX = 1 << 22, /* zipf draws a thread, 16 MiB, read in order */
    CONTROL_SECONDS = 10, /* at most, of the run without stint */
    PARTS = 10,           /* of a run, see struct part */
};

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
};

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
    const char *label;
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
            jobs_progress(load->label, (double)nth / (double)load->arrivals);
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
    load->label = label;
    load->start_ns = monotonic_ns() + START_NS;
    getrusage(RUSAGE_SELF, &before);
    team_run(threads, generate, load);
    getrusage(RUSAGE_SELF, &after);

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

/* ---- Answer ---- */

struct result {
    struct outcome with, without;
    struct stint_stats stats;
    struct stint_policy_stats policies[POLICIES_MAX];
    bool checked;
};

/* The share of a core that so many ns a decision make. */
static double share_of(const struct result *result, double ns) {
    return result->with.share * ns / result->with.ns;
}

static json_t *answer_limits(const struct options *options, const struct result *result) {
    json_t *each = json_array();

    for (size_t i = 0; i < options->limits_n; i++) {
        const struct stint_policy_stats *stats = &result->policies[i];
        json_array_append_new(each, json_pack("{s:I, s:I}", "allowed",
                                              (json_int_t)(stats->allowed + stats->shadowed),
                                              "refused", (json_int_t)stats->refused));
    }
    return each;
}

static json_t *load_answer(const struct options *options, const struct result *result) {
    const struct outcome *with = &result->with, *without = &result->without;
    json_t *answer = json_pack("{s:s, s:s, s:i, s:o, s:I, s:I, s:I, s:I, s:f, s:i}", "workload",
                               "arrivals", "distribution", distribution_names[ZIPF], "key_length",
                               KEY_LENGTH, "by_limit", answer_limits(options, result), "arrivals",
                               (json_int_t)with->arrivals, "allowed", (json_int_t)with->allowed,
                               "refused", (json_int_t)(with->arrivals - with->allowed), "untracked",
                               (json_int_t)result->stats.untracked, "wall_seconds",
                               (double)with->wall_ns / 1e9, "parts", PARTS);

    json_object_update_new(
        answer, json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "core_share", with->share,
                          "core_share_min", share_of(result, with->ns_min), "core_share_max",
                          share_of(result, with->ns_max), "ns_per_op", with->ns, "ns_min",
                          with->ns_min, "ns_max", with->ns_max, "cpu_share_with", with->cpu_share,
                          "cpu_share_without", without->cpu_share));
    json_object_update_new(
        answer,
        json_pack("{s:o, s:o, s:o, s:o, s:I, s:I, s:s, s:f, s:f, s:I, s:b}", "call",
                  tail_answer(&with->took), "empty", tail_answer(&without->took), "late",
                  tail_answer(&with->lateness), "late_without", tail_answer(&without->lateness),
                  "late_arrivals", (json_int_t)with->late, "late_after_ns", (json_int_t)LATE_NS,
                  "timer", ticks_name(), "overhead_ns", ticks.overhead_ns, "step_ns", ticks.step_ns,
                  "preempted", (json_int_t)with->preempted, "checked", result->checked));
    return answer;
}

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

/* NULL, or what was asked wrongly. */
static json_t *refuse_memory(const struct options *options, double have) {
    double need = memory_of(options);

    if (need <= have)
        return NULL;
    return job_refused("--keys %llu needs %.1f GiB of memory for %zu policies, and %.1f GiB are "
                       "free",
                       (unsigned long long)options->keys, need / 0x1p30, options->limits_n,
                       have / 0x1p30);
}

/* NULL, or what was asked wrongly. */
static json_t *open_limiter(struct load *load) {
    const struct options *options = load->options;
    struct stint_options limiter = STINT_OPTIONS_INIT;

    limiter.max_keys = options->keys * options->limits_n; /* every key by every policy */
    limiter.flags = STINT_PREFAULT;
    int error = stint_open(&limiter, &load->limiter);
    if (error != 0) {
        fprintf(stderr, "stint-bench load: no table: %s (%s)\n", stint_strerror(error),
                stint_reason());
        exit(EXIT_FAILURE);
    }
    for (size_t i = 0; i < options->limits_n; i++) {
        struct stint_policy policy = STINT_POLICY_INIT;
        if (stint_policy_parse(options->limits[i], &policy, NULL) != 0 ||
            stint_policy_add(load->limiter, &policy, &load->policies[i]) != 0)
            return job_refused("--limit '%s': %s", options->limits[i], stint_reason());
        if (load->policies[i] < i)
            return job_refused("--limit '%s' is given twice", options->limits[i]);
    }
    return NULL;
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

static json_t *run_both(struct load *load) {
    const struct options *options = load->options;
    struct stint_limiter *limiter = load->limiter;
    struct result *result = must_have(calloc(1, sizeof(*result)));
    double control = options->seconds < CONTROL_SECONDS ? options->seconds : CONTROL_SECONDS;

    ticks_open();
    sequence_open(&load->sequence, ZIPF, options->keys, (unsigned)options->threads,
                  period_of(options));
    load->limiter = NULL;
    run(load, control, "control run without stint", &result->without);
    load->limiter = limiter;
    run(load, options->seconds, "load", &result->with);
    result->checked = check(load, result);
    json_t *answer = load_answer(options, result);
    sequence_close(&load->sequence);
    free(result);
    return answer;
}

json_t *load_run(json_t *asked) {
    struct options options = {.limits_n = 0};
    struct load load = {.options = &options};
    json_int_t rate, keys, threads;
    json_t *limits, *limit;
    double have;
    size_t i;

    job_read(asked, "{s:I, s:I, s:I, s:F, s:F, s:o}", "rate", &rate, "keys", &keys, "threads",
             &threads, "seconds", &options.seconds, "available", &have, "limits", &limits);
    options.rate = (uint64_t)rate;
    options.keys = (uint64_t)keys;
    options.threads = (uint64_t)threads;
    json_array_foreach(limits, i, limit) if (i < POLICIES_MAX) options.limits[options.limits_n++] =
        json_string_value(limit);
    json_t *answer = refuse_memory(&options, have);
    if (answer == NULL)
        answer = open_limiter(&load);
    if (answer == NULL)
        answer = run_both(&load);
    stint_close(load.limiter);
    return answer;
}
