/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * A limiter and its twin of models (model.h), and drawn operations under policies of all kinds on
 * both: start_round(), do_operation() as often as wanted, end_round(). Every field of every verdict
 * is compared. */
#ifndef STINT_TESTS_TWIN_H
#define STINT_TESTS_TWIN_H

#include "fixture.h"
#include "model.h"

/* ---- Where the draws come from: whoever links this has these ------------------------------- */

/* 64 bits of a secret. */
uint64_t random_bits(void);

/* A draw from [0, n). */
uint64_t below(uint64_t n);

/* ---- Operations ---------------------------------------------------------------------------- */

void start_round(void);
void do_operation(void);
void end_round(void);

/* ---- The twin ------------------------------------------------------------------------------ */

enum { KEYS = 4096, POLICIES = 5, WHOLE = 6 };

struct pair {
    struct model_key key; /* known: it was given a slot */
    bool unsure;          /* whether it still has it, or what it says, was left open */
    bool
        may_have_gone; /* a caller was there when the slot was free, by the policy as it was then */
    bool lowered;      /* striped: the limit was lowered in this window, or changed after more was
                        * charged: some stripes may be above their share, others below */
    uint64_t doubt_end; /* unsure: until when, ns */
};

/* What verdicts told about a key and policy for good. */
struct lesson {
    uint64_t phase; /* STINT_START_PER_KEY: how much later its windows start, ns */
    struct model_jitter jitter;
};

/* An override that was set by hand, a ban, or strikes. */
struct ruled {
    struct model_ruling is;
    bool open; /* it was void after a step back, and may have lost its slot */
};

struct twin {
    struct stint_limiter *limiter;
    stint_key keys[KEYS];
    struct stint_policy policies[POLICIES];
    bool refusals_counted[POLICIES]; /* at some time */
    uint32_t largest[POLICIES];    /* capacity that there ever was, of the policy or of a request: a
                                 * refund takes no more than this for granted */
    bool may_be_largest[POLICIES]; /* a charge that took nothing may have raised that */
    struct stint_policy_stats counts[POLICIES];
    struct pair pairs[KEYS][POLICIES];
    struct lesson lessons[KEYS][POLICIES];
    struct ruled ruled[KEYS][POLICIES];
    bool ruled_is_placed; /* there is room for an override of each pair */
    uint32_t key_count, policy_count;
    uint32_t on_full;
    uint64_t certain;     /* live slots that are placed for certain */
    uint64_t most_slots;  /* that all pairs can take */
    bool one_line;        /* of four slots, and a fifth is not placed */
    uint64_t highest;     /* latest time that a caller has shown since the last step back */
    uint64_t highest_yet; /* and before it */
    uint64_t untracked, replaced, unknown_policy, bad_requests;
    bool stepped; /* the clock was stepped back in this round */
    uint64_t round_start;
    uint64_t seed, round, operation, compared;
};
extern struct twin m;

/* A key under a policy. */
struct subject {
    uint32_t key, id;
    const struct stint_policy *policy;
    struct pair *pair;
    struct lesson *lesson;
    struct ruled *ruled;
};
struct subject subject_of(uint32_t key, uint32_t id);

/* How far ahead its override holds for certain: further, the clock may have been stepped back. */
uint64_t ruled_reach(const struct subject *s);

void note_capacity(uint32_t id, uint64_t capacity);
uint64_t window_end(const struct subject *s, uint64_t now);

/* The time from which the slot says no more than its absence would. */
uint64_t free_at(const struct subject *s);

/* A caller was there when the slot was free, so it may have gone. */
bool may_be_lost(const struct subject *s);
void make_unsure(const struct subject *s, uint64_t until);

/* A caller so late that a live slot may be too far ahead of it may be decided at the clock's time.
 */
bool is_very_late(uint64_t now);

/* Whether the contract says what a request will do, with `more` new pairs before it. */
bool is_decided(const struct stint_request *request, uint32_t key, uint64_t now, uint64_t more);

/* Requests of one key and policy: one by itself, or the parts of a whole that was granted, or was
 * refused. */
enum asked { ALONE, GRANTED, REFUSED };

/* Compares what they got with what they may get, and brings the twin to what they did. Fails if
 * they may not get it. Returns whether they fit. */
bool compare(const struct stint_request *requests, uint32_t key, size_t n, uint64_t now,
             enum asked asked, const struct stint_verdict *got, const char *what);

void explain(const struct stint_request *request, uint64_t now, const char *what);

/* A caller has shown that time. */
void show(uint64_t now);

#endif
