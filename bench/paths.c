/* SPDX-License-Identifier: MIT */
#include "paths.h"

#include <ck_cc.h>

enum { PARTS_MAX = 3, GROUP_REQUESTS = 64 /* in a call */ };

static inline stint_key key_at(const struct target *target, const struct chunk *chunk, size_t i) {
    return stint_key_of(target->limiter, chunk->bytes + i * target->key_length, target->key_length);
}

/* ---- One request ---- */

uint64_t path_decide(const struct target *target, const struct chunk *chunk) {
    const struct stint_request like = target->request;
    uint64_t count = 0;
    struct stint_verdict verdict;

    for (size_t i = 0; i < chunk->n; i++) {
        struct stint_request request = like;
        request.key = key_at(target, chunk, i);
        bool allowed = stint_decide(target->limiter, &request, STINT_NOW, &verdict);
        count += allowed;
        answer(chunk, i, allowed);
    }
    return count;
}

uint64_t path_refund(const struct target *target, const struct chunk *chunk) {
    uint64_t count = 0;
    struct stint_verdict verdict;

    for (size_t i = 0; i < chunk->n; i++) {
        stint_key key = key_at(target, chunk, i);
        bool allowed = stint_take(target->limiter, target->policy, key, 1, STINT_NOW, &verdict) &&
                       stint_refund(target->limiter, key, &verdict, 1) == 1;
        count += allowed;
        answer(chunk, i, allowed);
    }
    return count;
}

/* ---- Several requests ---- */

/* The requests of op number i: of one key by each policy, or of several keys by one. */
static CK_CC_FORCE_INLINE void parts_at(const struct target *target, const struct chunk *chunk,
                                        size_t i, unsigned parts, struct stint_request *requests) {
    bool each_key = target->each_key;
    stint_key key = key_at(target, chunk, each_key ? i * parts : i);

    for (unsigned part = 0; part < parts; part++) {
        if (each_key && part != 0)
            key = key_at(target, chunk, i * parts + part);
        requests[part] = (struct stint_request){.key = key,
                                                .policy = target->policy + (each_key ? 0 : part),
                                                .cost = part + 1 == parts ? target->last_cost : 1};
    }
}

/* As one, or one by one: then all get the same answer, as all are asked for the same. */
static CK_CC_FORCE_INLINE uint64_t parts_each(const struct target *target,
                                              const struct chunk *chunk, unsigned parts,
                                              bool as_one) {
    struct stint_request requests[PARTS_MAX];
    struct stint_verdict verdicts[PARTS_MAX];
    uint64_t count = 0;

    for (size_t i = 0; i < chunk->n; i++) {
        bool allowed = true;
        parts_at(target, chunk, i, parts, requests);
        if (as_one)
            allowed = stint_decide_all(target->limiter, requests, parts, chunk->now, verdicts);
        else
            for (unsigned part = 0; part < parts; part++)
                allowed = stint_take(target->limiter, requests[part].policy, requests[part].key,
                                     requests[part].cost, chunk->now, &verdicts[part]);
        count += allowed;
        answer(chunk, i, allowed);
    }
    return count;
}

/* The number of limits is a constant of the server. */
static CK_CC_FORCE_INLINE uint64_t parts_run(const struct target *target, const struct chunk *chunk,
                                             bool as_one) {
    switch (target->parts) {
    case 1:
        return parts_each(target, chunk, 1, as_one);
    case 2:
        return parts_each(target, chunk, 2, as_one);
    default:
        return parts_each(target, chunk, PARTS_MAX, as_one);
    }
}

uint64_t path_all(const struct target *target, const struct chunk *chunk) {
    return parts_run(target, chunk, true);
}

uint64_t path_takes(const struct target *target, const struct chunk *chunk) {
    return parts_run(target, chunk, false);
}

/* Groups of two, or their requests as a batch. As in the other batches, lines are fetched as keys
 * become known. */
static CK_CC_FORCE_INLINE uint64_t groups_each(const struct target *target,
                                               const struct chunk *chunk, bool grouped) {
    enum { PARTS = 2, GROUPS = GROUP_REQUESTS / PARTS };
    struct stint_request requests[GROUP_REQUESTS];
    struct stint_verdict verdicts[GROUP_REQUESTS];
    size_t sizes[GROUPS];
    uint64_t count = 0;

    for (size_t i = 0; i < chunk->n; i += GROUPS) {
        size_t n = chunk->n - i < GROUPS ? chunk->n - i : GROUPS;
        for (size_t j = 0; j < n; j++) {
            parts_at(target, chunk, i + j, PARTS, &requests[j * PARTS]);
            stint_prefetch(target->limiter, requests[j * PARTS].key);
            sizes[j] = PARTS;
        }
        if (grouped)
            count += stint_decide_groups(target->limiter, requests, n * PARTS, sizes, n, STINT_NOW,
                                         verdicts);
        else
            count += stint_decide_batch(target->limiter, requests, n * PARTS, STINT_NOW, verdicts) /
                     PARTS;
        for (size_t j = 0; chunk->answers != NULL && j < n; j++)
            chunk->answers[i + j] = verdicts[j * PARTS + PARTS - 1].granted != 0;
    }
    return count;
}

uint64_t path_groups(const struct target *target, const struct chunk *chunk) {
    return groups_each(target, chunk, true);
}

uint64_t path_batch(const struct target *target, const struct chunk *chunk) {
    return groups_each(target, chunk, false);
}
