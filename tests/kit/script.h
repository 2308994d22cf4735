/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * Scripts: a policy, and rows that say what is asked of one key at what time and what must come
 * of it. Every field of every verdict is compared, in each way to ask. */
#ifndef STINT_TESTS_SCRIPT_H
#define STINT_TESTS_SCRIPT_H

#include "model.h"
#include "told.h"

enum action {
    END, /* of the script */
    DECIDE,
    CHANGE, /* of the policy: cost is the new limit, limit the capacity, flags max_reserved, window
             * the burst */
    FLAGS,  /* of the policy: flags */
    REFUND, /* cost tokens of a window; granted is what it must return */
    RESET,
    OVERRIDE, /* of the key: limit, until the end `window`; granted is the error it must return */
    CLEAR,    /* granted likewise */
};

/* One row. Of a verdict `remaining` and `reset_after` follow from the other fields. */
struct step {
    enum action action;
    uint64_t now; /* the clock says the latest of them */
    uint32_t cost, limit, flags;
    bool allowed;
    uint32_t marks; /* verdict.flags */
    uint32_t capacity, used, granted;
    uint64_t window, retry_after;
    uint64_t later; /* than now: when it is decided, by the clock (a bucket); 0: at now */
};

enum { STEPS_MOST = 24 };

struct script {
    const char *name;
    struct stint_policy policy;
    struct step steps[STEPS_MOST];
};

/* clang-format off */
#define ok(now, cost, limit, flags, marks, capacity, used, granted, window) \
    {DECIDE, now, cost, limit, flags, true, marks, capacity, used, granted, window, 0, 0}
#define ok_later(now, at, cost, capacity, used, granted, window) \
    {DECIDE, now, cost, 0, 0, true, 0, capacity, used, granted, window, 0, at}
#define wait(now, cost, flags, marks, capacity, used, granted, window, retry) \
    {DECIDE, now, cost, 0, flags, true, marks, capacity, used, granted, window, retry, 0}
#define no(now, cost, limit, flags, marks, capacity, used, window, retry) \
    {DECIDE, now, cost, limit, flags, false, marks, capacity, used, 0, window, retry, 0}
#define change(limit_, capacity_, reserved_) \
    {.action = CHANGE, .cost = limit_, .limit = capacity_, .flags = reserved_}
#define change_bucket(limit_, burst_, reserved_) \
    {.action = CHANGE, .cost = limit_, .window = burst_, .flags = reserved_}
#define flags(bits)                  {.action = FLAGS, .flags = bits}
#define refund(tokens, end, back) \
    {.action = REFUND, .cost = tokens, .window = end, .granted = back}
#define reset()                      {.action = RESET}
#define override(limit_, until) {.action = OVERRIDE, .limit = limit_, .window = until}
#define clear(error)                 {.action = CLEAR, .granted = error}
#define policy(length, ...) \
    {.size = sizeof(struct stint_policy), .name = "p", .window = length, __VA_ARGS__}
/* clang-format on */

#define W  MINUTE        /* window of most scripts */
#define E  (T0 + MINUTE) /* its end */
#define E2 (T0 + 2 * MINUTE)

/* How it is asked. stint_take cannot say all that a row can: then it is stint_decide. */
enum way { BY_DECIDE, BY_BATCH, BY_TAKE, WAYS };

/* A script that is played. */
struct play {
    const char *name;
    enum way way;
    struct stint_limiter *limiter;
    struct stint_policy policy;
    uint32_t id;
    stint_key key;
    uint32_t ruled; /* the last override's limit */
    struct model_rate rate;
    unsigned steps;
};

struct play play_begin(const char *name, const struct stint_policy *policy, enum way way);
void play_step(struct play *play, const struct step *step);
void play_end(struct play *play);

/* Plays all of them in all ways. Returns the number of verdicts that were compared. */
size_t play_scripts(const struct script *scripts, size_t count);

#endif
