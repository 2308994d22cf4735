/* SPDX-License-Identifier: MIT */
#include "peer.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "jobs.h"

static _Thread_local char failure[256];

bool peer_fail(const char *format, ...) {
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(failure, sizeof(failure), format, arguments);
    va_end(arguments);
    return false;
}

const char *peer_failure(void) {
    return failure;
}

const struct peer *peer_named(const char *name) {
    static const struct peer *const peers[] = {
        &peer_stint,        &peer_stint_verdict,  &peer_stint_batch,
        &peer_stint_all,    &peer_stint_takes,    &peer_stint_groups,
        &peer_own,          &peer_open_64,        &peer_mutex,
        &peer_stint_bucket, &peer_open_64_bucket, &peer_redis_incr,
        &peer_redis_lua,
#ifdef STINT_BENCH_DPDK
        &peer_dpdk,
#endif
    };

    for (size_t i = 0; i < sizeof(peers) / sizeof(peers[0]); i++)
        if (strcmp(peers[i]->name, name) == 0)
            return peers[i];
    job_fail("there is no peer", name);
}
