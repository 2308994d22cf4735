/* SPDX-License-Identifier: MIT */
#include "sample.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "common.h"

void sample_free(struct sample *sample) {
    policies_free(&sample->policies);
    free(sample->counts);
    *sample = (struct sample){0};
}

static void sample_policies(struct sample *sample, const struct stint_limiter *limiter) {
    struct policies *policies = &sample->policies;

    policies_read(policies, limiter);
    sample->counts = must_have(calloc(policies->count + 1, sizeof(*sample->counts)));
    for (uint32_t id = 0; id < policies->count; id++) {
        sample->counts[id].size = sizeof(*sample->counts);
        (void)stint_policy_stats_get((struct stint_limiter *)limiter, id, &sample->counts[id]);
    }
}

int sample_take(struct sample *sample, const struct arguments *arguments, bool scan) {
    struct stint_limiter *limiter;
    int code = attach(arguments, STINT_READ_ONLY, &limiter);

    if (code != EXIT_GOOD)
        return code;
    *sample = (struct sample){.at_ns = monotonic_ns(), .now = stint_now(limiter)};
    sample->stats.size = sizeof(sample->stats);
    if (scan)
        (void)stint_stats_get(limiter, &sample->stats);
    sample_policies(sample, limiter);
    stint_close(limiter);
    return EXIT_GOOD;
}

void sleep_until(uint64_t at_ns) {
    struct timespec until = {.tv_sec = (time_t)(at_ns / 1000000000u),
                             .tv_nsec = (long)(at_ns % 1000000000u)};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        continue;
}

const struct stint_policy_stats *counts_at(const struct sample *sample, uint32_t id) {
    static const struct stint_policy_stats none;
    return id < sample->policies.count ? &sample->counts[id] : &none;
}
