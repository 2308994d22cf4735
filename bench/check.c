/* SPDX-License-Identifier: MIT */
#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pages.h"
#include "reach.h"

enum {
    REHEARSAL_KEYS = 20000,
    REHEARSAL_LIMIT = 3,
};

bool row_wrong(struct row *row, const char *what, uint64_t right, uint64_t found) {
    snprintf(row->wrong, sizeof(row->wrong), "%s: %llu would be right, it is %llu", what,
             (unsigned long long)right, (unsigned long long)found);
    return false;
}

void count_demand(const struct bed *bed, uint32_t *demand) {
    for (unsigned thread = 0; thread < bed->threads; thread++)
        for (uint64_t at = 0; at < bed->position[thread]; at++)
            demand[sequence_index(&bed->sequence, thread, at)]++;
}

/* What leaves nothing behind is asked for again, where the takes before it have used up some keys
 * and left others something: of those it is granted each time. */
static bool rehearse_again(struct row *row, struct span *span, uint32_t *granted,
                           const uint32_t *demand) {
    struct bed *bed = span->bed;

    memset(granted, 0, bed->keys * sizeof(*granted));
    memset(bed->position, 0, sizeof(bed->position));
    span->run = bed->run;
    span_ask(span);
    for (uint64_t i = 0; i < bed->keys; i++) {
        uint32_t right = demand[i] < bed->fit ? demand[i] : 0;
        if (granted[i] != right)
            return row_wrong(row, "rehearsal, times that a key was granted", right, granted[i]);
    }
    return true;
}

bool rehearse(struct row *row) {
    struct stint_policy_stats stats;
    struct bed bed;
    struct span span;
    uint64_t keys = smaller(row->keys, REHEARSAL_KEYS);
    uint32_t *granted = must_have(calloc(keys, sizeof(*granted)));
    uint32_t *demand = must_have(calloc(keys, sizeof(*demand)));
    struct row half = *row;

    uint32_t limit = row->stripes > REHEARSAL_LIMIT ? row->stripes : REHEARSAL_LIMIT;
    const struct path *path = workloads[row->workload].path;
    /* With room for every key: this is about counts. Several slots of a key crowd its home line. */
    half.load = path != NULL && path->parts > 1 ? 0.25 : 0.5;
    half.refused_part = 0;
    half.bare = false;
    bool good = true, again = path != NULL && path->leaves_nothing && !row->beside;
    if (again) /* threads could be refused for what others have not given back yet */
        half.threads = 1;
    bed_open(&bed, &half, keys, limit);
    uint64_t epochs = bed.kind->windows && !bed.kind->new_table ? 4 : 1;
    for (uint64_t epoch = 0; epoch < epochs && good; epoch++) {
        memset(granted, 0, keys * sizeof(*granted));
        memset(demand, 0, keys * sizeof(*demand));
        memset(bed.position, 0, sizeof(bed.position));
        span = (struct span){
            .bed = &bed, .run = again ? bed.before : bed.run, .granted = granted, .epoch = epoch};
        if (bed.kind->each_once) {
            span.once = span.shared = span.hold = true;
            span.passes = limit + 1;
            span_ask(&span);
            for (uint64_t i = 0; i < keys; i++)
                demand[i] = row->threads * (limit + 1);
        } else {
            span.budget_ns = UINT64_MAX;
            span.max_ops = (2 * limit * keys + bed.threads - 1) / bed.threads;
            span_ask(&span);
            count_demand(&bed, demand);
        }
        uint64_t shadowed = 0;
        for (uint64_t i = 0; i < keys && good; i++) {
            uint64_t right = smaller(demand[i], limit);
            if ((bed.path.policy_flags & STINT_SHADOW) != 0) {
                shadowed += demand[i] - right;
                right = demand[i];
            }
            if ((bed.path.flags & STINT_CHARGE) != 0) /* never refused */
                right = demand[i];
            if (granted[i] != right)
                good = row_wrong(row, "rehearsal, tokens granted to one key in one window", right,
                                 granted[i]);
        }
        bed_stats(&bed, &stats);
        if (good && stats.shadowed != shadowed)
            good = row_wrong(row, "rehearsal, requests shadowed", shadowed, stats.shadowed);
        good = good && (!again || rehearse_again(row, &span, granted, demand));
    }
    bed_close(&bed);
    free(granted);
    free(demand);
    return good;
}

/* Looks at one part of each of the thread's keys. */
static void audit_part(const struct audit *audit, unsigned thread, unsigned part,
                       struct found *found) {
    struct bed *bed = audit->bed;
    unsigned char *bytes = bed->chunks[thread].bytes;
    uint64_t end = bed->keys * (thread + 1) / bed->threads;
    uint64_t now = epoch_now(bed, audit->epoch);
    uint32_t limit = bed->policy.limit;

    bench_now = now;
    for (uint64_t at = bed->keys * thread / bed->threads; at < end; at += BATCH) {
        struct stint_request requests[BATCH];
        struct stint_verdict verdicts[BATCH];
        size_t n = smaller(end - at, BATCH);
        for (size_t i = 0; i < n; i++) {
            uint64_t index = epoch_index(bed, audit->epoch, at + i);
            key_bytes(bed_part_index(bed, index, part), bytes, bed->target.key_length);
            requests[i] = (struct stint_request){
                .key = stint_key_of(bed->target.limiter, bytes, bed->target.key_length),
                .policy = bed->path.parts == 1 ? bed_policy(bed, index)
                          : bed->path.each_key ? bed->target.policy
                                               : bed->target.policy + part,
                .cost = 1,
                .flags = STINT_PEEK,
            };
        }
        stint_decide_batch(bed->target.limiter, requests, n, now, verdicts);
        for (size_t i = 0; i < n; i++) {
            uint64_t demand = audit->demand != NULL ? audit->demand[at + i] : audit->each;
            uint64_t right = smaller(demand, limit);
            uint64_t used = verdicts[i].capacity - verdicts[i].remaining;
            if (used == 0) {
                found->lost += demand != 0;
                found->lost_tokens += demand;
                found->lost_used_up += bed_used_up(bed, at + i);
                continue;
            }
            found->tokens += used;
            if (used != right && found->wrong++ == 0) {
                found->right_was = right;
                found->it_was = used;
            }
        }
    }
}

static void audit_member(struct member *member, void *context) {
    struct audit *audit = context;
    struct found found = {0};

    for (unsigned part = 0; part < audit->bed->path.parts; part++)
        audit_part(audit, member->thread, part, &found);
    audit->found[member->thread] = found;
}

bool audit_table(struct row *row, struct audit *audit) {
    struct bed *bed = audit->bed;
    struct stint_policy_stats stats;
    struct found sum = {0};

    team_run(bed->threads, audit_member, audit);
    for (unsigned i = 0; i < bed->threads; i++) {
        const struct found *found = &audit->found[i];
        if (found->wrong != 0)
            return row_wrong(row, "tokens used by one key", found->right_was, found->it_was);
        sum.tokens += found->tokens;
        sum.lost += found->lost;
        sum.lost_tokens += found->lost_tokens;
        sum.lost_used_up += found->lost_used_up;
    }
    bed_stats(bed, &stats);
    if (stats.allowed != bed->allowed)
        return row_wrong(row, "requests allowed, by the limiter's own count", bed->allowed,
                         stats.allowed);
    if (stats.refused != bed->requests - bed->allowed)
        return row_wrong(row, "requests refused, by the limiter's own count",
                         bed->requests - bed->allowed, stats.refused);
    if ((sum.lost != 0) > (stats.untracked != 0))
        return row_wrong(row, "keys without a count, though none was untracked", 0, sum.lost);
    if (sum.lost > row->unplaced)
        row->unplaced = sum.lost;
    uint64_t reach = table_reach(bed->target.limiter);
    if (reach > row->reach)
        row->reach = reach;
    if (bed->kind->windows || bed->kind->path != NULL) {
        if (bed->allowed != bed->requests)
            return row_wrong(row, "requests allowed", bed->requests, bed->allowed);
        if (bed->kind->path != NULL && row->refused != 0) /* looks, too */
            return row_wrong(row, "requests refused", 0, row->refused);
        return true;
    }
    uint64_t tokens = bed->allowed + bed->extra_tokens;
    if (tokens != sum.tokens + sum.lost_tokens)
        return row_wrong(row, "tokens allowed, of all keys", sum.tokens + sum.lost_tokens, tokens);
    uint64_t lost_requests = sum.lost_tokens - sum.lost_used_up * use_up_extra(bed);
    if (stats.untracked != lost_requests)
        return row_wrong(row, "untracked requests", lost_requests, stats.untracked);
    return true;
}
