/* SPDX-License-Identifier: MIT */
#include "bed.h"

#include <stdlib.h>
#include <string.h>

#include "jobs.h"
#include "pages.h"

/* Counts of all policies together. */
static struct stint_policy_stats stats_all(void) {
    struct stint_policy_stats sum = STINT_POLICY_STATS_INIT, one = STINT_POLICY_STATS_INIT;

    for (unsigned i = 0; i < bed.policies; i++) {
        stint_policy_stats_get(bed.target.limiter, i, &one);
        sum.allowed += one.allowed;
        sum.refused += one.refused;
        sum.shadowed += one.shadowed;
        sum.untracked += one.untracked;
    }
    return sum;
}

/* ---- Keys that have used up their limit ---- */

json_t *keys_use_up(json_t *asked) {
    const uint32_t rest = (uint32_t)job_number(asked, "limit") - 1, policy = bed.target.policy;
    struct stint_limiter *limiter = bed.target.limiter;
    unsigned char bytes[KEY_LENGTH_MAX];
    uint64_t allowed = 0;

    for (uint64_t i = 0; i < bed.keys; i++) {
        key_bytes(i, bytes, bed.target.key_length);
        stint_key key = stint_key_of(limiter, bytes, bed.target.key_length);
        allowed += stint_take(limiter, policy, key, rest, STINT_NOW, NULL);
        allowed += stint_take(limiter, policy, key, 1, STINT_NOW, NULL);
    }
    return json_pack("{s:I}", "allowed", (json_int_t)allowed);
}

/* ---- What was asked of each key ---- */

json_t *keys_granted(json_t *asked) {
    enum { LIMIT, ALL, REST, APART, RIGHTS };
    static const char *const names[RIGHTS] = {"limit", "all", "rest", "apart"};
    size_t rule = job_read_name(asked, "right", names, RIGHTS);
    uint64_t limit = job_number(asked, "limit"), beyond = 0;
    uint32_t *demand = must_have(calloc(bed.keys, sizeof(*demand)));
    uint64_t shadowed = bed.target.peer == NULL ? stats_all().shadowed : 0;
    json_t *answer = NULL;

    for (unsigned thread = 0; thread < bed.threads; thread++)
        for (uint64_t at = 0; at < bed.position[thread]; at++)
            demand[sequence_index(&bed.sequence, thread, at)]++;
    for (uint64_t i = 0; i < bed.keys; i++)
        demand[i] += (uint32_t)job_number(asked, "base");
    for (uint64_t i = 0; i < bed.keys && answer == NULL; i++) {
        uint64_t fits = demand[i] < limit ? demand[i] : limit;
        uint64_t right = rule == LIMIT ? fits : rule == ALL || fits < limit ? demand[i] : 0;
        beyond += demand[i] - fits;
        uint64_t most = right;
        if (rule == APART) { /* each thread has counts of its own */
            most = limit * bed.threads < demand[i] ? limit * bed.threads : demand[i];
            right = fits;
        }
        if (bed.granted[i] < right || bed.granted[i] > most)
            answer = json_pack("{s:I, s:I}", "right", (json_int_t)right, "found",
                               (json_int_t)bed.granted[i]);
    }
    memset(bed.granted, 0, bed.keys * sizeof(*bed.granted));
    memset(bed.position, 0, sizeof(bed.position));
    free(demand);
    return answer != NULL ? answer
                          : json_pack("{s:I, s:I}", "beyond", (json_int_t)beyond, "shadowed",
                                      (json_int_t)shadowed);
}

json_t *keys_counts(json_t *asked) {
    struct stint_policy_stats stats = stats_all();

    (void)asked;
    return json_pack("{s:I, s:I, s:I}", "allowed", (json_int_t)stats.allowed, "refused",
                     (json_int_t)stats.refused, "untracked", (json_int_t)stats.untracked);
}
