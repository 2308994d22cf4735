/* SPDX-License-Identifier: MIT */
#include "reach.h"

#include "limiter/limiter.h"

uint64_t table_reach(const struct stint_limiter *limiter) {
    uint64_t most = 0;

    for (size_t i = 0; i < (size_t)1 << limiter->table.shard_bits; i++) {
        uint64_t reach = atomic_load_acquire(&limiter->table.shards[i].reach);
        most = reach > most ? reach : most;
    }
    return most;
}
