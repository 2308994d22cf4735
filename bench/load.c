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
    PARTS = 10, /* of a run, see struct part */
};

#define WAKE_NS   UINT64_C(1000000)
#define LATE_NS   (2 * WAKE_NS) /* a wake-up was missed */
#define START_NS  UINT64_C(10000000)
#define SHOW_NS   UINT64_C(500000000)
#define SECOND_NS UINT64_C(1000000000)

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
    struct stint_limiter *limiter; /* NULL: the control run */
    uint32_t policies[POLICIES_MAX];
    size_t policies_n;
    unsigned threads;
    struct sequence sequence;
    uint64_t rate;
    uint64_t arrivals; /* of all threads */
    uint64_t start_ns; /* CLOCK_MONOTONIC */
    struct served *served;
    const char *label;
};

/* ns after the start at which the nth arrival is due. */
static uint64_t due(const struct load *load, uint64_t nth) {
    __extension__ typedef unsigned __int128 wide;
    return (uint64_t)((wide)nth * SECOND_NS / load->rate);
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
    uint64_t position = nth / load->threads;
    size_t policy = scale64(mix64(nth), load->policies_n);
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
    uint64_t step = load->threads, nth = member->thread, shown = 0;

    prctl(PR_SET_TIMERSLACK, 1); /* wake when it is time, not 50 us after */
    sleep_until(load->start_ns);
    uint64_t cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    while (nth < load->arrivals) {
        uint64_t now = clock_ns(CLOCK_MONOTONIC), now_ticks = ticks_start();
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
    served->cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
    served->ended_ns = clock_ns(CLOCK_MONOTONIC);
}

/* ---- The job ---- */

/* A tenth of the run, or all of it: all threads together. */
static json_t *part_answer(const struct part *part) {
    return json_pack("{s:I, s:f, s:o, s:o}", "arrivals", (json_int_t)part->arrivals, "ns",
                     (double)part->ticks * ticks.ns, "took", tail_answer(&part->took), "late",
                     tail_answer(&part->lateness));
}

static void add_part(struct part *sum, const struct part *part) {
    sum->arrivals += part->arrivals;
    sum->ticks += part->ticks;
    histogram_merge(&sum->took, &part->took);
    histogram_merge(&sum->lateness, &part->lateness);
}

static json_t *parts_answer(const struct load *load) {
    struct part *all = must_have(calloc(1, sizeof(*all))), *part = must_have(malloc(sizeof(*part)));
    json_t *parts = json_array();

    for (unsigned i = 0; i < PARTS; i++) {
        memset(part, 0, sizeof(*part));
        for (unsigned thread = 0; thread < load->threads; thread++)
            add_part(part, &load->served[thread].parts[i]);
        if (part->arrivals > 0) /* else of less than ten */
            json_array_append_new(parts, part_answer(part));
        add_part(all, part);
    }
    json_t *answer = json_pack("{s:o, s:o}", "all", part_answer(all), "parts", parts);
    free(all);
    free(part);
    return answer;
}

static json_t *run(struct load *load) {
    struct rusage before, after;
    struct served sum = {0};

    load->served = must_have(calloc(load->threads, sizeof(*load->served)));
    /* Touched now: their page faults are no part of a decision. */
    memset(load->served, 0, load->threads * sizeof(*load->served));
    load->start_ns = clock_ns(CLOCK_MONOTONIC) + START_NS;
    getrusage(RUSAGE_SELF, &before);
    team_run(load->threads, generate, load);
    getrusage(RUSAGE_SELF, &after);
    /* The last arrival is due before the end of the last interval. */
    sum.ended_ns = load->start_ns + due(load, load->arrivals);
    for (unsigned i = 0; i < load->threads; i++) {
        const struct served *served = &load->served[i];
        sum.arrivals += served->arrivals;
        sum.allowed += served->allowed;
        sum.late += served->late;
        sum.cpu_ns += served->cpu_ns;
        if (served->ended_ns > sum.ended_ns)
            sum.ended_ns = served->ended_ns;
    }
    json_t *answer = parts_answer(load);
    json_object_update_new(
        answer,
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "arrivals", (json_int_t)sum.arrivals,
                  "allowed", (json_int_t)sum.allowed, "late", (json_int_t)sum.late, "late_after_ns",
                  (json_int_t)LATE_NS, "cpu_ns", (json_int_t)sum.cpu_ns, "wall_ns",
                  (json_int_t)(sum.ended_ns - load->start_ns), "preempted",
                  (json_int_t)(after.ru_nivcsw - before.ru_nivcsw)));
    free(load->served);
    return answer;
}

/* NULL, or what was asked wrongly. */
static json_t *open_limiter(struct load *load, json_t *limits, uint64_t keys) {
    struct stint_options options = STINT_OPTIONS_INIT;
    json_t *limit;
    size_t i;

    load->policies_n = json_array_size(limits);
    options.max_entries = keys * load->policies_n; /* every key by every policy */
    options.flags = STINT_PREFAULT;
    int error = stint_open(&options, &load->limiter);
    if (error != 0) {
        fprintf(stderr, "stint-bench load: no table: %s (%s)\n", stint_strerror(error),
                stint_reason());
        exit(EXIT_FAILURE);
    }
    json_array_foreach(limits, i, limit) {
        struct stint_policy policy = STINT_POLICY_INIT;
        const char *text = json_string_value(limit);
        if (i >= POLICIES_MAX)
            return job_refused("--limit '%s': more than %d", text, POLICIES_MAX);
        if (stint_policy_parse(text, &policy, NULL) != 0 ||
            stint_policy_add(load->limiter, &policy, &load->policies[i]) != 0)
            return job_refused("--limit '%s': %s", text, stint_reason());
        if (load->policies[i] < i)
            return job_refused("--limit '%s' is given twice", text);
    }
    return NULL;
}

/* What the limiter counted. */
static json_t *count_answer(const struct load *load) {
    struct stint_stats stats = STINT_STATS_INIT;
    json_t *each = json_array();

    stint_stats_get(load->limiter, &stats);
    for (size_t i = 0; i < load->policies_n; i++) {
        struct stint_policy_stats policy = STINT_POLICY_STATS_INIT;
        stint_policy_stats_get(load->limiter, load->policies[i], &policy);
        json_array_append_new(each, json_pack("{s:I, s:I}", "allowed",
                                              (json_int_t)(policy.allowed + policy.shadowed),
                                              "refused", (json_int_t)policy.refused));
    }
    return json_pack("{s:o, s:I}", "by_limit", each, "untracked", (json_int_t)stats.untracked);
}

json_t *load_run(json_t *asked) {
    uint64_t keys = job_number(asked, "keys");
    struct load load = {.threads = (unsigned)job_number(asked, "threads"),
                        .rate = job_number(asked, "rate"),
                        .arrivals = job_number(asked, "arrivals"),
                        .label = job_text(asked, "label")};
    json_t *answer = open_limiter(&load, json_object_get(asked, "limits"), keys);
    struct stint_limiter *limiter = load.limiter;

    if (answer == NULL) {
        sequence_open(&load.sequence, ZIPF, keys, load.threads, job_number(asked, "period"));
        if (job_flag(asked, "control"))
            load.limiter = NULL;
        answer = run(&load);
        load.limiter = limiter;
        json_object_update_new(answer, count_answer(&load));
        sequence_close(&load.sequence);
    }
    stint_close(limiter);
    return answer;
}
