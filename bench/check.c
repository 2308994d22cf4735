/* SPDX-License-Identifier: MIT */
#include "bed.h"

#include <stdlib.h>
#include <string.h>

#include "jobs.h"
#include "pages.h"

/* What is wrong of one key; an answer with nothing else. */
static json_t *key_wrong(uint64_t right, uint64_t found) {
    return json_pack("{s:I, s:I}", "right", (json_int_t)right, "found", (json_int_t)found);
}

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

struct use_up {
    uint32_t limit;
    uint64_t keys[TEAM_MAX], allowed[TEAM_MAX];
};

static void use_up_member(struct member *member, void *context) {
    struct use_up *use_up = context;
    size_t length = bed.target.key_length;
    unsigned char bytes[KEY_LENGTH_MAX];
    uint64_t keys = 0, allowed = 0, end = bed.keys * (member->thread + 1) / bed.threads;

    for (uint64_t i = bed.keys * member->thread / bed.threads; i < end; i++) {
        if (!bed_used_up(i))
            continue;
        key_bytes(i, bytes, length);
        stint_key key = stint_key_of(bed.target.limiter, bytes, length);
        uint32_t policy = bed_policy(i), rest = use_up->limit - 1;
        allowed += stint_take(bed.target.limiter, policy, key, rest, STINT_NOW, NULL);
        allowed += stint_take(bed.target.limiter, policy, key, 1, STINT_NOW, NULL);
        keys++;
    }
    use_up->keys[member->thread] = keys;
    use_up->allowed[member->thread] = allowed;
}

json_t *keys_use_up(json_t *asked) {
    struct use_up use_up = {.limit = (uint32_t)job_number(asked, "limit")};
    uint64_t keys = 0, allowed = 0;

    team_run(bed.threads, use_up_member, &use_up);
    for (unsigned i = 0; i < bed.threads; i++) {
        keys += use_up.keys[i];
        allowed += use_up.allowed[i];
    }
    return json_pack("{s:I, s:I}", "keys", (json_int_t)keys, "allowed", (json_int_t)allowed);
}

/* ---- What was asked of each key ---- */

static uint32_t *demand_of(json_t *asked) {
    uint32_t *demand = must_have(calloc(bed.keys, sizeof(*demand)));
    uint32_t each = (uint32_t)job_number(asked, "each"), base = (uint32_t)job_number(asked, "base");
    uint32_t used_up = (uint32_t)job_number(asked, "used_up");

    for (unsigned thread = 0; each != 0 && thread < bed.threads; thread++)
        for (uint64_t at = 0; at < bed.position[thread]; at++)
            demand[sequence_index(&bed.sequence, thread, at)] += each;
    for (uint64_t i = 0; i < bed.keys; i++)
        demand[i] += bed_used_up(i) ? used_up : base;
    return demand;
}

json_t *keys_granted(json_t *asked) {
    enum { LIMIT, ALL, REST, APART, RIGHTS };
    static const char *const names[RIGHTS] = {"limit", "all", "rest", "apart"};
    size_t rule = job_read_name(asked, "right", names, RIGHTS);
    uint64_t limit = job_number(asked, "limit"), beyond = 0;
    uint32_t *demand = demand_of(asked);
    uint64_t shadowed = bed.target.peer == NULL ? stats_all().shadowed : 0;
    json_t *answer = NULL;

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
            answer = key_wrong(right, bed.granted[i]);
    }
    memset(bed.granted, 0, bed.keys * sizeof(*bed.granted));
    memset(bed.position, 0, sizeof(bed.position));
    free(demand);
    return answer != NULL ? answer
                          : json_pack("{s:I, s:I}", "beyond", (json_int_t)beyond, "shadowed",
                                      (json_int_t)shadowed);
}

/* ---- What each key has used ---- */

struct audit {
    uint32_t *demand; /* tokens, by each part of a run */
    uint64_t limit, epoch;
    struct found {
        uint64_t tokens;                   /* used by keys with a slot */
        uint64_t lost, lost_tokens;        /* keys without one, and what they asked for */
        uint64_t lost_used_up;             /* of them, those that used up their limit */
        uint64_t wrong, right_was, it_was; /* keys with another count; the first of them */
        char padding[8];
    } found[TEAM_MAX];
};

/* Looks at one part of each of the thread's keys. */
static void audit_part(const struct audit *audit, unsigned thread, unsigned part,
                       struct found *found) {
    unsigned char *bytes = bed.chunks[thread].bytes;
    uint64_t end = bed.keys * (thread + 1) / bed.threads;
    uint64_t now = epoch_now(audit->epoch);
    /* A token of the last part is one of a part of cost 1 so many times over. */
    uint64_t weight = part + 1 == bed.target.parts ? 1 : bed.target.last_cost;

    bench_now = now;
    for (uint64_t at = bed.keys * thread / bed.threads; at < end; at += BATCH) {
        struct stint_request requests[BATCH];
        struct stint_verdict verdicts[BATCH];
        size_t n = end - at < BATCH ? end - at : BATCH;
        for (size_t i = 0; i < n; i++) {
            uint64_t index = epoch_index(audit->epoch, at + i);
            key_bytes(bed_part_index(index, part), bytes, bed.target.key_length);
            requests[i] = (struct stint_request){
                .key = stint_key_of(bed.target.limiter, bytes, bed.target.key_length),
                .policy = bed.target.parts == 1 ? bed_policy(index)
                          : bed.target.each_key ? bed.target.policy
                                                : bed.target.policy + part,
                .cost = 1,
                .flags = STINT_PEEK,
            };
        }
        stint_decide_batch(bed.target.limiter, requests, n, now, verdicts);
        for (size_t i = 0; i < n; i++) {
            uint64_t demand = audit->demand[at + i];
            uint64_t right = demand < audit->limit ? demand : audit->limit;
            uint64_t used = (verdicts[i].capacity - verdicts[i].remaining) * weight;
            if (used == 0) {
                found->lost += demand != 0;
                found->lost_tokens += demand;
                found->lost_used_up += bed_used_up(at + i);
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

    for (unsigned part = 0; part < bed.target.parts; part++)
        audit_part(audit, member->thread, part, &found);
    audit->found[member->thread] = found;
}

json_t *keys_audit(json_t *asked) {
    struct audit audit = {.demand = demand_of(asked),
                          .limit = job_number(asked, "limit"),
                          .epoch = job_number(asked, "epoch")};
    struct stint_policy_stats stats = stats_all();
    struct found all = {0};

    team_run(bed.threads, audit_member, &audit);
    free(audit.demand);
    for (unsigned i = 0; i < bed.threads; i++) {
        const struct found *found = &audit.found[i];
        if (found->wrong != 0)
            return key_wrong(found->right_was, found->it_was);
        all.tokens += found->tokens;
        all.lost += found->lost;
        all.lost_tokens += found->lost_tokens;
        all.lost_used_up += found->lost_used_up;
    }
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "tokens", (json_int_t)all.tokens,
                     "lost", (json_int_t)all.lost, "lost_tokens", (json_int_t)all.lost_tokens,
                     "lost_used_up", (json_int_t)all.lost_used_up, "allowed",
                     (json_int_t)stats.allowed, "refused", (json_int_t)stats.refused, "untracked",
                     (json_int_t)stats.untracked);
}
