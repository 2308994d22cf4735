/* SPDX-License-Identifier: MIT */
#include "bed.h"

#include <ck_pr.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "jobs.h"
#include "pages.h"
#include "tail.h"

enum { BEDS = 2 };

struct bed *bed_of(json_t *asked) {
    static struct bed beds[BEDS];
    uint64_t at = job_number(asked, "bed");

    if (at >= BEDS)
        job_fail("a job", "there is no such bed");
    return &beds[at];
}

/* Its policies are given in stint's notation. */
/* Looks at a key a thousand times a second, as who watches a table does. */
static void *watch(void *of) {
    struct bed *bed = of;
    const struct stint_request look = {
        .key = stint_key_of(bed->reader, "", 0), .cost = 1, .flags = STINT_PEEK};
    const struct timespec pause = {.tv_nsec = 1000000};

    while (!ck_pr_load_32(&bed->watched_enough)) {
        (void)stint_decide(bed->reader, &look, STINT_NOW, NULL);
        (void)nanosleep(&pause, NULL);
    }
    return NULL;
}

/* Attaches to the table's file, and watches it from another thread. Returns a negative number if
 * that fails. */
static int watch_begin(struct bed *bed, const char *path) {
    struct stint_options options = STINT_OPTIONS_INIT;

    options.path = path;
    options.flags = STINT_READ_ONLY;
    int error = stint_attach(&options, &bed->reader);
    bed->watched_enough = 0;
    return error < 0 ? error : -pthread_create(&bed->watcher, NULL, watch, bed);
}

static void table_close(struct bed *bed) {
    if (bed->reader != NULL) {
        ck_pr_store_32(&bed->watched_enough, 1);
        pthread_join(bed->watcher, NULL);
        stint_close(bed->reader);
        bed->reader = NULL;
    }
    stint_close(bed->target.limiter);
}

static void table_open(struct bed *bed) {
    struct stint_options options = STINT_OPTIONS_INIT;
    char path[64];
    json_t *policies = json_object_get(bed->asked, "policies"), *text;
    const char *clock = job_text(bed->asked, "clock");
    size_t i;

    options.max_entries = job_number(bed->asked, "max_entries");
    options.max_policies = bed->policies > 64 ? bed->policies : 0;
    options.flags = STINT_PREFAULT;
    options.labels = (uint32_t)job_number(bed->asked, "labels");
    snprintf(path, sizeof(path), "/dev/shm/stint-bench-%ld", (long)getpid());
    options.path = job_flag(bed->asked, "file") ? path : NULL;
    options.secret = bed->secret;
    options.clock = strcmp(clock, "turned") == 0  ? bench_clock
                    : strcmp(clock, "still") == 0 ? bench_still_clock
                                                  : NULL;
    int error = stint_open(&options, &bed->target.limiter);
    json_array_foreach(policies, i, text) {
        struct stint_policy policy = STINT_POLICY_INIT;
        if (error >= 0)
            error = stint_policy_parse(json_string_value(text), &policy, NULL);
        if (error >= 0) /* ids go up from 0 */
            error = stint_policy_add(bed->target.limiter, &policy, NULL);
    }
    if (error >= 0 && job_flag(bed->asked, "watched"))
        error = watch_begin(bed, path);
    if (options.path != NULL)
        (void)unlink(path); /* who has it open has it until it is closed */
    if (error < 0) {
        fprintf(stderr, "stint-bench: no table for %llu keys: %s (%s)\n",
                (unsigned long long)bed->keys, stint_strerror(error), stint_reason());
        exit(EXIT_FAILURE);
    }
    memset(bed->position, 0, sizeof(bed->position));
}

static void floor_open(struct bed *bed) {
    struct stint_stats stats = STINT_STATS_INIT;

    stint_stats_get(bed->target.limiter, &stats);
    bed->target.line_count = (stats.slots + 3) / 4;
    bed->floor_bytes = bed->target.line_count * sizeof(struct line);
    bed->target.lines = must_have(pages_map(bed->floor_bytes));
}

static void chunks_open(struct bed *bed, bool latency) {
    size_t bytes = CHUNK_KEYS * bed->target.key_length * bed_run_keys(bed);
    bytes = (bytes + 63) & ~(size_t)63;

    if (latency)
        bed->timings = must_have(calloc(bed->threads + 1, sizeof(*bed->timings)));
    bed->chunks = must_have(aligned_alloc(64, bed->threads * sizeof(*bed->chunks)));
    for (unsigned i = 0; i < bed->threads; i++)
        bed->chunks[i] = (struct chunk){.bytes = must_have(aligned_alloc(64, bytes)),
                                        .timings = latency ? &bed->timings[i] : NULL};
}

json_t *bed_open(json_t *asked) {
    struct bed *bed = bed_of(asked);

    *bed = (struct bed){
        .asked = json_incref(asked),
        .keys = job_number(asked, "keys"),
        .threads = (unsigned)job_number(asked, "threads"),
        .policies = (unsigned)json_array_size(json_object_get(asked, "policies")),
        .refused_part = job_real(asked, "refused_part"),
        .new_keys = job_flag(asked, "new_keys"),
        .start = job_number(asked, "start"),
        .epoch_ns = job_number(asked, "epoch_ns"),
        .target = {.parts = (unsigned)job_number(asked, "parts"),
                   .last_cost = (uint32_t)job_number(asked, "last_cost"),
                   .each_key = job_flag(asked, "each_key"),
                   .key_length = job_number(asked, "key_length"),
                   .secret = bed->secret},
    };
    bed->target.request = (struct stint_request){
        .cost = 1,
        .limit = (uint32_t)job_number(asked, "own_limit"),
        .flags = (job_flag(asked, "peek") ? STINT_PEEK : 0) |
                 (job_flag(asked, "reserve") ? STINT_RESERVE : 0) |
                 (job_flag(asked, "charge") ? STINT_CHARGE : 0),
    };
    for (size_t i = 0; i < sizeof(bed->secret); i += sizeof(uint64_t)) {
        uint64_t word = mix64(i);
        memcpy(bed->secret + i, &word, sizeof(word));
    }
    bench_now = bed->start;
    table_open(bed);
    floor_open(bed);
    chunks_open(bed, job_flag(asked, "latency"));
    sequence_open(
        &bed->sequence,
        (enum distribution)job_read_name(asked, "distribution", distribution_names, DISTRIBUTIONS),
        bed->keys, bed->threads, job_number(asked, "period"));
    return json_pack("{s:I, s:I}", "floor_bytes", (json_int_t)bed->floor_bytes, "lines",
                     (json_int_t)bed->target.line_count);
}

json_t *bed_renew(json_t *asked) {
    struct bed *bed = bed_of(asked);

    table_close(bed);
    table_open(bed);
    return json_object();
}

json_t *bed_close(json_t *asked) {
    struct bed *bed = bed_of(asked);

    sequence_close(&bed->sequence);
    for (unsigned i = 0; i < bed->threads; i++)
        free(bed->chunks[i].bytes);
    free(bed->chunks);
    free(bed->timings);
    free(bed->granted);
    pages_unmap(bed->target.lines, bed->floor_bytes);
    table_close(bed);
    json_decref(bed->asked);
    return json_object();
}

json_t *bed_tails(json_t *asked) {
    struct bed *bed = bed_of(asked);
    struct timings *all = &bed->timings[bed->threads],
                   *since = must_have(calloc(1, sizeof(*since)));

    for (unsigned i = 0; i < bed->threads; i++) {
        histogram_merge(&since->call, &bed->timings[i].call);
        histogram_merge(&since->empty, &bed->timings[i].empty);
    }
    memset(bed->timings, 0, bed->threads * sizeof(*bed->timings));
    histogram_merge(&all->call, &since->call);
    histogram_merge(&all->empty, &since->empty);
    json_t *answer =
        json_pack("{s:{s:o, s:o}, s:{s:o, s:o}, s:I}", "since", "call", tail_answer(&since->call),
                  "empty", tail_answer(&since->empty), "all", "call", tail_answer(&all->call),
                  "empty", tail_answer(&all->empty), "calls", (json_int_t)all->call.count);
    free(since);
    return answer;
}
