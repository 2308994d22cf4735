/* SPDX-License-Identifier: MIT */
#include "bed.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jobs.h"
#include "pages.h"

struct bed bed;

static void table_close(void) {
    if (bed.target.peer != NULL) {
        bed.target.peer->close(bed.target.state);
        return;
    }
    stint_close(bed.target.limiter);
}

/* Its policies are given in stint's notation. */
static void table_open(void) {
    struct stint_options options = STINT_OPTIONS_INIT;
    struct stint_stats stats = STINT_STATS_INIT;
    json_t *policies = json_object_get(bed.asked, "policies"), *text;
    const char *clock = job_text(bed.asked, "clock");
    size_t i;

    options.max_entries = job_number(bed.asked, "max_entries");
    options.flags = STINT_PREFAULT;
    options.secret = bed.secret;
    options.clock = strcmp(clock, "turned") == 0  ? bench_clock
                    : strcmp(clock, "still") == 0 ? bench_still_clock
                                                  : NULL;
    int error = stint_open(&options, &bed.target.limiter);
    json_array_foreach(policies, i, text) {
        struct stint_policy policy = STINT_POLICY_INIT;
        if (error >= 0)
            error = stint_policy_parse(json_string_value(text), &policy, NULL);
        if (error >= 0) /* ids go up from 0 */
            error = stint_policy_add(bed.target.limiter, &policy, NULL);
    }
    if (error < 0) {
        fprintf(stderr, "stint-bench: no table for %llu keys: %s (%s)\n",
                (unsigned long long)bed.keys, stint_strerror(error), stint_reason());
        exit(EXIT_FAILURE);
    }
    stint_stats_get(bed.target.limiter, &stats);
    bed.target.line_count = (stats.slots + 3) / 4;
    memset(bed.position, 0, sizeof(bed.position));
}

/* Returns NULL, or what is wrong. */
static json_t *peer_open(json_t *asked) {
    struct peer_setup setup = {.keys = bed.keys,
                               .threads = bed.threads,
                               .connections = (unsigned)job_number(asked, "depth"),
                               .huge_pages = job_flag(asked, "huge_pages"),
                               .sharded = job_flag(asked, "sharded")};
    json_t *limits = json_object_get(asked, "limits"), *limit, *socket;
    size_t i;

    setup.limits = (unsigned)json_array_size(limits);
    json_array_foreach(limits, i, limit) if (i < PEER_LIMITS) {
        setup.limit = setup.each[i].limit = (uint32_t)job_number(limit, "limit");
        setup.window = setup.each[i].window = job_number(limit, "window");
    }
    socket = json_object_get(asked, "socket");
    if (socket != NULL)
        snprintf(setup.socket, sizeof(setup.socket), "%s", json_string_value(socket));
    bed.target.depth = setup.connections;
    bed.target.key_length = PEER_KEY;
    malloc_trim(0); /* what is free already would hide what is needed */
    if (bed.target.peer->open(&setup, &bed.target.state))
        return NULL;
    return json_pack("{s:s}", "wrong", peer_failure());
}

static void chunks_open(void) {
    size_t bytes = CHUNK_KEYS * bed.target.key_length * bed_run_keys();
    bytes = (bytes + 63) & ~(size_t)63;

    bed.chunks = must_have(aligned_alloc(64, bed.threads * sizeof(*bed.chunks)));
    for (unsigned i = 0; i < bed.threads; i++)
        bed.chunks[i] = (struct chunk){.thread = i, .bytes = must_have(aligned_alloc(64, bytes))};
}

json_t *bed_open(json_t *asked) {
    json_t *peer = json_object_get(asked, "peer"), *wrong;
    const char *version = "";

    bed = (struct bed){.asked = json_incref(asked),
                       .keys = job_number(asked, "keys"),
                       .threads = (unsigned)job_number(asked, "threads"),
                       .policies = 1,
                       .target = {.parts = 1}};
    if (peer != NULL) {
        bed.target.peer = peer_named(json_string_value(peer));
        if ((wrong = peer_open(asked)) != NULL)
            return wrong;
        if (bed.target.peer->version != NULL)
            version = bed.target.peer->version(bed.target.state);
    } else {
        bed.policies = (unsigned)json_array_size(json_object_get(asked, "policies"));
        bed.new_keys = job_flag(asked, "new_keys");
        bed.start = job_number(asked, "start");
        bed.epoch_ns = job_number(asked, "epoch_ns");
        bed.target.parts = (unsigned)job_number(asked, "parts");
        bed.target.last_cost = (uint32_t)job_number(asked, "last_cost");
        bed.target.each_key = job_flag(asked, "each_key");
        bed.target.key_length = job_number(asked, "key_length");
        bed.target.request = (struct stint_request){
            .cost = 1,
            .limit = (uint32_t)job_number(asked, "own_limit"),
            .flags = (job_flag(asked, "peek") ? STINT_PEEK : 0) |
                     (job_flag(asked, "reserve") ? STINT_RESERVE : 0) |
                     (job_flag(asked, "charge") ? STINT_CHARGE : 0),
        };
        for (size_t i = 0; i < sizeof(bed.secret); i += sizeof(uint64_t)) {
            uint64_t word = mix64(i);
            memcpy(bed.secret + i, &word, sizeof(word));
        }
        bench_now = bed.start;
        table_open();
    }
    chunks_open();
    sequence_open(
        &bed.sequence,
        (enum distribution)job_read_name(asked, "distribution", distribution_names, DISTRIBUTIONS),
        bed.keys, bed.threads, job_number(asked, "period"));
    return json_pack("{s:I, s:s}", "lines", (json_int_t)bed.target.line_count, "version", version);
}

json_t *bed_renew(json_t *asked) {
    (void)asked;
    table_close();
    table_open();
    return json_object();
}

json_t *bed_close(json_t *asked) {
    (void)asked;
    sequence_close(&bed.sequence);
    for (unsigned i = 0; i < bed.threads; i++)
        free(bed.chunks[i].bytes);
    free(bed.chunks);
    free(bed.granted);
    table_close();
    json_decref(bed.asked);
    return json_object();
}
