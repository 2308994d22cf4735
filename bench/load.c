/* SPDX-License-Identifier: MIT
 * The generator is open: arrival n is due at start + n / rate, whatever became of those before it,
 * so a stall is not hidden by fewer arrivals. It waits busily, so that no timer of its own adds to
 * the time from when a request is due until it is decided. */
#include <stint.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "histogram.h"
#include "jobs.h"
#include "keys.h"
#include "load.h"
#include "pages.h"
#include "team.h"
#include "ticks.h"

enum { POLICIES_MAX = 16, KEY_LENGTH = 16 };

#define LATE_NS  UINT64_C(1000000)
#define START_NS UINT64_C(10000000)
#define SHOW_NS  UINT64_C(500000000)

/* What one thread did. */
struct served {
    uint64_t arrivals, allowed, late;
    uint64_t ticks;              /* of all decisions, without what timing takes */
    uint64_t ended;              /* ticks */
    struct histogram took, done; /* ns: of the decision; from when it was due */
};

struct load {
    struct stint_limiter *limiter;
    uint32_t policies[POLICIES_MAX];
    size_t policies_n;
    unsigned threads;
    struct sequence sequence;
    uint64_t rate;
    uint64_t arrivals; /* of all threads */
    uint64_t start;    /* ticks */
    struct served *served;
    const char *label;
};

/* When the nth arrival is due, in ticks. */
static uint64_t due(const struct load *load, uint64_t nth) {
    return load->start + (uint64_t)((double)nth * 1e9 / (double)load->rate / ticks.ns);
}

/* Thread t serves the arrivals t, t + threads, t + 2 * threads... */
static void generate(struct member *member, void *context) {
    const struct load *load = context;
    struct served *served = &load->served[member->thread];
    const uint64_t show = (uint64_t)(SHOW_NS / ticks.ns), late = (uint64_t)(LATE_NS / ticks.ns);
    uint64_t shown = load->start, position = 0;

    for (uint64_t nth = member->thread; nth < load->arrivals; nth += load->threads) {
        uint64_t policy = scale64(mix64(nth), load->policies_n), at = due(load, nth), started;
        struct stint_verdict verdict;
        unsigned char key[KEY_LENGTH];

        key_bytes(sequence_index(&load->sequence, member->thread, position++), key, sizeof(key));
        while ((started = ticks_start()) < at)
            continue;
        bool allowed =
            stint_take(load->limiter, load->policies[policy],
                       stint_key_of(load->limiter, key, sizeof(key)), 1, STINT_NOW, &verdict);
        uint64_t ended = ticks_stop(), took = ended - started;
        took = took > ticks.overhead ? took - ticks.overhead : 0;
        served->ticks += took;
        histogram_add(&served->took, (uint64_t)((double)took * ticks.ns + 0.5));
        histogram_add(&served->done, (uint64_t)((double)(ended - at) * ticks.ns + 0.5));
        served->late += ended - at > late;
        served->allowed += allowed;
        served->arrivals++;
        if (member->thread == 0 && at - shown > show) {
            shown = at;
            jobs_progress(load->label, (double)nth / (double)load->arrivals);
        }
    }
    served->ended = ticks_start();
}

/* ---- The job ---- */

/* ns: half of the times are no longer, 90%, 99%, 99.9%, 99.99%, and all. */
static json_t *tail(const struct histogram *histogram) {
    static const double percents[] = {50, 90, 99, 99.9, 99.99, 100};
    json_t *answer = json_array();

    for (size_t i = 0; i < sizeof(percents) / sizeof(percents[0]); i++)
        json_array_append_new(
            answer, json_integer((json_int_t)histogram_percentile(histogram, percents[i])));
    return answer;
}

static json_t *run(struct load *load) {
    struct served *sum = must_have(calloc(1, sizeof(*sum)));

    load->served = must_have(calloc(load->threads, sizeof(*load->served)));
    /* Touched now: their page faults are no part of a decision. */
    memset(load->served, 0, load->threads * sizeof(*load->served));
    load->start = ticks_start() + (uint64_t)(START_NS / ticks.ns);
    team_run(load->threads, generate, load);
    /* The last arrival is due before the end of the last interval. */
    sum->ended = due(load, load->arrivals);
    for (unsigned i = 0; i < load->threads; i++) {
        const struct served *served = &load->served[i];
        sum->arrivals += served->arrivals;
        sum->allowed += served->allowed;
        sum->late += served->late;
        sum->ticks += served->ticks;
        histogram_merge(&sum->took, &served->took);
        histogram_merge(&sum->done, &served->done);
        if (served->ended > sum->ended)
            sum->ended = served->ended;
    }
    json_t *answer =
        json_pack("{s:I, s:I, s:I, s:I, s:f, s:f, s:o, s:o}", "arrivals", (json_int_t)sum->arrivals,
                  "allowed", (json_int_t)sum->allowed, "late", (json_int_t)sum->late,
                  "late_after_ns", (json_int_t)LATE_NS, "ns", (double)sum->ticks * ticks.ns,
                  "wall_ns", (double)(sum->ended - load->start) * ticks.ns, "took",
                  tail(&sum->took), "done", tail(&sum->done));
    free(sum);
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

    if (answer == NULL) {
        sequence_open(&load.sequence, ZIPF, keys, load.threads, job_number(asked, "period"));
        answer = run(&load);
        json_object_update_new(answer, count_answer(&load));
        sequence_close(&load.sequence);
    }
    stint_close(load.limiter);
    return answer;
}
