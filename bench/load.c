/* SPDX-License-Identifier: MIT
 * The generator is open: arrival n is due at start + n / rate, whatever became of those before it,
 * so a stall is not hidden by fewer arrivals. It waits busily, so that no timer of its own adds to
 * the time from when a request is due until it is decided. */
#include <stint.h>

#include <stdio.h>
#include <stdlib.h>

#include "bed.h"
#include "jobs.h"
#include "pages.h"

enum { POLICIES_MAX = 16, KEY_LENGTH = 16 };

#define LATE_NS  UINT64_C(1000000)
#define START_NS UINT64_C(10000000)

/* What one thread did. */
struct served {
    uint64_t arrivals, allowed, late;
    double ns; /* of all decisions, without what timing takes */
    uint64_t ended;
    float *took, *done; /* ns of each: of the decision; from when it was due */
    char padding[16];
};

struct load {
    struct stint_limiter *limiter;
    uint32_t policies[POLICIES_MAX];
    size_t policies_n;
    unsigned threads;
    struct sequence sequence;
    uint64_t rate;
    uint64_t arrivals; /* of all threads */
    uint64_t start;
    double overhead; /* ns that reading the clock takes */
    struct served *served;
};

/* When the nth arrival is due. */
static uint64_t due(const struct load *load, uint64_t nth) {
    return load->start + (uint64_t)((double)nth * 1e9 / (double)load->rate);
}

/* Thread t serves the arrivals t, t + threads, t + 2 * threads... */
static void generate(struct member *member, void *context) {
    const struct load *load = context;
    struct served *served = &load->served[member->thread];

    for (uint64_t nth = member->thread; nth < load->arrivals; nth += load->threads) {
        uint64_t policy = scale64(mix64(nth), load->policies_n), at = due(load, nth), started;
        struct stint_verdict verdict;
        unsigned char key[KEY_LENGTH];

        key_bytes(sequence_index(&load->sequence, member->thread, served->arrivals), key,
                  sizeof(key));
        while ((started = clock_ns(CLOCK_MONOTONIC)) < at)
            continue;
        bool allowed =
            stint_take(load->limiter, load->policies[policy],
                       stint_key_of(load->limiter, key, sizeof(key)), 1, STINT_NOW, &verdict);
        uint64_t ended = clock_ns(CLOCK_MONOTONIC);
        double took = (double)(ended - started) - load->overhead;
        took = took > 0 ? took : 0;
        served->ns += took;
        served->took[served->arrivals] = (float)took;
        served->done[served->arrivals++] = (float)(ended - at);
        served->late += ended - at > LATE_NS;
        served->allowed += allowed;
    }
    served->ended = clock_ns(CLOCK_MONOTONIC);
}

/* ---- The job ---- */

/* What reading the clock takes: of some rounds, the one that was interrupted least. */
static double clock_overhead(void) {
    enum { ROUNDS = 20, READS = 1000 };
    double least = 1e9;

    for (int round = 0; round < ROUNDS; round++) {
        uint64_t began = clock_ns(CLOCK_MONOTONIC), last = began;
        for (int i = 0; i < READS; i++)
            last = clock_ns(CLOCK_MONOTONIC);
        if ((double)(last - began) / READS < least)
            least = (double)(last - began) / READS;
    }
    return least;
}

/* ns: half of the times are no longer, 90%, 99%, 99.9%, 99.99%, and all. */
static json_t *tail(float *times, uint64_t n) {
    static const double parts[] = {0.5, 0.9, 0.99, 0.999, 0.9999, 1};
    json_t *answer = json_array();

    qsort(times, n, sizeof(*times), compare_floats);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        json_array_append_new(answer,
                              json_real((double)times[(size_t)(parts[i] * (double)(n - 1))]));
    return answer;
}

static json_t *run(struct load *load) {
    uint64_t late = 0, allowed = 0, ended, each = load->arrivals * sizeof(float), at = 0;
    double ns = 0;
    /* Touched now: their page faults are no part of a decision. */
    float *took = must_have(pages_map(each)), *done = must_have(pages_map(each));

    load->served = must_have(aligned_alloc(64, load->threads * sizeof(*load->served)));
    for (unsigned i = 0; i < load->threads; i++) {
        load->served[i] = (struct served){.took = took + at, .done = done + at};
        at += (load->arrivals + load->threads - 1 - i) / load->threads;
    }
    load->overhead = clock_overhead();
    load->start = clock_ns(CLOCK_MONOTONIC) + START_NS;
    team_run(load->threads, generate, load);
    /* The last arrival is due before the end of the last interval. */
    ended = due(load, load->arrivals);
    for (unsigned i = 0; i < load->threads; i++) {
        const struct served *served = &load->served[i];
        allowed += served->allowed;
        late += served->late;
        ns += served->ns;
        if (served->ended > ended)
            ended = served->ended;
    }
    json_t *answer =
        json_pack("{s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:o, s:o}", "arrivals", (json_int_t)at,
                  "allowed", (json_int_t)allowed, "late", (json_int_t)late, "late_after_ns",
                  (json_int_t)LATE_NS, "ns", ns, "wall_ns", (double)(ended - load->start),
                  "overhead_ns", load->overhead, "took", tail(took, at), "done", tail(done, at));
    free(load->served);
    pages_unmap(took, each);
    pages_unmap(done, each);
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
                        .arrivals = job_number(asked, "arrivals")};
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
