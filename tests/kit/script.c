/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors */
#include "limiter/limiter.h" /* before cmocka, which defines fail() as well */

#include "script.h"

struct play play_begin(const char *name, const struct stint_policy *made, enum way way) {
    struct play play = {.name = name, .way = way, .policy = *made};
    play.limiter = open_limiter(100, STINT_FULL_REFUSE);
    play.id = add_made(play.limiter, made);
    play.key = number_key(play.limiter, 1);
    test_time = 0;
    return play;
}

void play_end(struct play *play) {
    stint_close(play->limiter);
}

static bool ask_in_way(const struct play *play, const struct stint_request *request, uint64_t now,
                       struct stint_verdict *verdict) {
    if (play->way == BY_BATCH)
        return stint_decide_batch(play->limiter, request, 1, now, verdict) == 1;
    if (play->way == BY_TAKE && (request->limit | request->burst | request->flags) == 0)
        return stint_take(play->limiter, play->id, play->key, request->cost, now, verdict);
    return stint_decide(play->limiter, request, now, verdict);
}

/* A bucket's T: by the policy, the key's override or the request's own limit. */
static uint64_t unit_of(const struct play *play, const struct step *step) {
    const struct stint_policy *policy = &play->policy;
    uint32_t limit = policy->limit;
    if (policy->burst == 0)
        return 0;
    if ((step->marks & (OVER | BANNED)) == OVER && play->ruled != 0 && play->ruled != MOST)
        limit = play->ruled;
    else if ((step->marks & OVER) == 0 && step->limit != 0)
        limit = step->limit;
    const uint64_t unit = (policy->window + limit - 1) / limit;
    return unit > 100 ? unit : 100;
}

static void decide(const struct play *play, const struct step *step) {
    /* The clock is right; only the argument may be late. Whoever is later than two minutes is told
     * by the clock. */
    if (step->now > test_time)
        test_time = step->now;
    const bool mistaken = step->now + 2 * ALLOWANCE < test_time;
    uint64_t now = step->later != 0 ? step->later : mistaken ? test_time : step->now;
    const struct stint_verdict expected = {
        .allowed = step->allowed,
        .flags = step->marks | (mistaken ? STINT_MISTAKEN_NOW : 0),
        .capacity = step->capacity,
        .used = step->used,
        .remaining = step->used < step->capacity ? step->capacity - step->used : 0,
        .granted = step->granted,
        .window = step->window,
        .reset_after = step->window - now,
        .retry_after = step->retry_after,
        .policy = play->id,
        .unit = unit_of(play, step),
        .generation = play->rate.generation,
    };
    const struct stint_request request = {.key = play->key,
                                          .policy = play->id,
                                          .cost = step->cost,
                                          .limit = step->limit,
                                          .flags = step->flags};
    struct stint_verdict got;
    memset(&got, 0xa5, sizeof got);
    const uint64_t step_ns = test_step;
    test_step = 0; /* what is told by the clock is told to the ns */
    bool allowed = ask_in_way(play, &request, step->now, &got);
    test_step = step_ns;
    if (allowed != step->allowed || !same_verdict(&got, &expected)) {
        print_verdict("expected", &expected);
        print_verdict("got     ", &got);
        fail_msg("\"%s\", step %u, way %d", play->name, play->steps, play->way);
    }
}

void play_step(struct play *play, const struct step *step) {
    switch (step->action) {
    case END:
        break;
    case DECIDE:
        decide(play, step);
        break;
    case CHANGE: {
        const struct stint_policy was = play->policy;
        play->policy.limit = step->cost;
        play->policy.capacity = step->limit;
        play->policy.max_reserved = step->flags;
        play->policy.burst = (uint32_t)step->window;
        const uint64_t step_ns = test_step;
        test_step = 0; /* what a bucket has used goes by the clock, to the ns */
        change_made(play->limiter, play->id, &play->policy);
        test_step = step_ns;
        (void)model_rate_change(&play->rate, &was, &play->policy, test_time);
        break;
    }
    case FLAGS:
        play->policy.flags = step->flags;
        change_made(play->limiter, play->id, &play->policy);
        break;
    case REFUND: {
        uint32_t back = refund_by(play->limiter, play->id, play->key, step->cost, step->window);
        if (back != step->granted)
            fail_msg("\"%s\", step %u: %" PRIu32 " given back, not %" PRIu32, play->name,
                     play->steps, back, step->granted);
        break;
    }
    case RESET:
        stint_reset(play->limiter, play->id, play->key);
        break;
    case OVERRIDE:
    case CLEAR: {
        const uint64_t step_ns = test_step;
        if (test_time < T0) /* nobody has asked yet */
            test_time = T0;
        play->ruled = step->limit;
        test_step = 0; /* what a bucket has used goes by the clock, to the ns */
        int error = step->action == CLEAR ? stint_override_clear(play->limiter, play->id, play->key)
                                          : stint_override(play->limiter, play->id, play->key,
                                                           step->limit, step->window);
        if (error != -(int)step->granted)
            fail_msg("\"%s\", step %u: error %d, not %" PRIu32, play->name, play->steps, -error,
                     step->granted);
        test_step = step_ns;
        break;
    }
    }
    play->steps++;
}

size_t play_scripts(const struct script *scripts, size_t count) {
    size_t verdicts = 0;
    for (size_t i = 0; i < count; i++) {
        for (enum way way = BY_DECIDE; way < WAYS; way++) {
            struct play play = play_begin(scripts[i].name, &scripts[i].policy, way);
            const struct step *step = scripts[i].steps;
            for (; step < scripts[i].steps + STEPS_MOST && step->action != END; step++) {
                play_step(&play, step);
                verdicts += step->action == DECIDE;
            }
            play_end(&play);
        }
    }
    return verdicts;
}
