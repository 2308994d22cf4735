/* SPDX-License-Identifier: MIT
 * The rules of the limiter in the plainest way: one key by one policy, one request at a time. They
 * are written from the contract alone (stint.h and doc/promises.md), which the comments quote, and
 * share nothing with src/.
 *
 * A key is a value that is copied by assignment: who does not know in which state it is tries each.
 * What these leave open is a set of answers: model_allows says whether a verdict is one of them.
 * What a table adds is not said here: which keys have slots, and at which of several times a late
 * caller is decided. */
#ifndef STINT_TESTS_MODEL_H
#define STINT_TESTS_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "stint.h"

/* H: a backward step of the clock holds a key up "for its window and 60 s". */
#define MODEL_ALLOWANCE (60 * UINT64_C(1000000000))

/* ---- Policies -------------------------------------------------------------------------------- */

uint32_t capacity_of(const struct stint_policy *policy);
bool is_bucket(const struct stint_policy *policy); /* a key's window ends when it is full */
bool is_in_flight(const struct stint_policy *policy);
bool looks_back(const struct stint_policy *policy); /* the window before counts, too */
bool is_striped(const struct stint_policy *policy);
bool is_first(const struct stint_policy *policy); /* a window begins with a first request */
bool is_calendar(const struct stint_policy *policy);
bool carries(const struct stint_policy *policy); /* new windows pay back what is used */

/* The ns in which a bucket gets a token back. */
uint64_t token_time(const struct stint_policy *policy);

/* The most tokens that the count of a key's window holds. */
uint32_t count_most(const struct stint_policy *policy);

/* Whether stint_policy_add takes it. */
bool model_valid(const struct stint_policy *policy);

/* The date and time at which one window of a calendar policy starts, by its clock. */
struct tm calendar_start(const struct stint_policy *policy);

/* When a calendar policy's window of `now` begins, or ends. */
uint64_t calendar_edge(const struct stint_policy *policy, uint64_t now, bool end);

/* "A calendar policy's window counts as 31 or 366 days." */
uint64_t longest_window(const struct stint_policy *policy);

/* The end of the window of `now`, for a key whose windows start `phase` later; of STINT_START_FIRST
 * that of the window which a first request begins then. */
uint64_t window_end_at(const struct stint_policy *policy, uint64_t phase, uint64_t now);

/* Whether a window that ends at `end` is so far ahead of `now` that the clock was stepped back. */
bool is_far_ahead(const struct stint_policy *policy, uint64_t end, uint64_t now);

/* ---- Requests -------------------------------------------------------------------------------- */

bool takes_nothing(const struct stint_request *request); /* STINT_PEEK */
bool merely_looks(const struct stint_request *request); /* and it is not the look before a charge */
bool makes_charge(const struct stint_request *request);

/* The flags of requests that make no sense with a policy. */
uint32_t unfit_flags(const struct stint_policy *policy);

/* Whether a request makes no sense by a policy. */
bool unfit(const struct stint_policy *policy, const struct stint_request *request);

/* Adds what a verdict adds to its policy's statistics. */
void model_count(struct stint_policy_stats *counts, const struct stint_request *request,
                 const struct stint_verdict *verdict);

/* Which count differs, and how; NULL: none does. Bans are not compared, nor what was lost. */
const char *model_unlike(const struct stint_policy_stats *got,
                         const struct stint_policy_stats *expected);

/* ---- A key ----------------------------------------------------------------------------------- */

/* A key by a policy. All 0: it was never seen. The struct has no holes: states are compared as
 * bytes. */
struct model_key {
    uint64_t window;   /* its end, ns; of a bucket when it is full, which tells what is used */
    uint32_t used;     /* tokens; of looks_back those of this window */
    uint32_t previous; /* tokens of the window before (looks_back) */
    uint32_t refused;  /* 1: it had its first refusal in this window; 2: that is open */
    uint32_t known;    /* it has a window */
};

/* An override, a ban, or strikes of a key. All 0: none. */
struct model_ruling {
    uint32_t limit;
    uint32_t strikes; /* windows in which it was refused; 0: it is an override or a ban */
    bool banned;
    uint64_t until; /* ns */
};

/* The tokens that are compared with the limit. */
uint64_t model_sum(const struct stint_policy *policy, const struct model_key *key, uint64_t now);

/* The key as a request at `now` finds it: in its window of then, or in a later one. */
struct model_key model_at(const struct stint_policy *policy, uint64_t phase, struct model_key key,
                          uint64_t now);

/* From when on the key is as one that was never seen, and its slot is free. */
uint64_t model_free_at(const struct stint_policy *policy, struct model_key key);

/* Whether a ruling is in force at `now`, and is an override or a ban. */
bool model_rules(const struct stint_policy *policy, const struct model_ruling *ruling,
                 uint64_t now);

/* When an override ends that is set until then, and a ban that begins with a refusal at `now`. */
uint64_t model_override_end(uint64_t until);
uint64_t model_ban_end(const struct stint_policy *policy, uint64_t now);

/* What a first refusal at `now` makes of a key's ruling, which is not in force: a strike more, or a
 * ban. */
struct model_ruling model_struck(const struct stint_policy *policy,
                                 const struct model_ruling *ruling, uint64_t now);

/* ---- Deciding -------------------------------------------------------------------------------- */

/* By what a request is judged. While a policy changes, each of these may be another version of it.
 * */
struct model_by {
    const struct stint_policy *policy;
    const struct stint_policy *charging; /* where a charge is cut off */
    const struct stint_policy *telling;  /* what the verdict tells of waits */
    uint32_t near_limit;
    const struct model_ruling *ruling; /* in force; NULL: none is */
    uint64_t phase; /* STINT_START_PER_KEY: how much later its windows start, ns */
};

struct model_by model_by(const struct stint_policy *policy);

/* What a request may be answered. */
struct model_answer {
    struct stint_verdict verdict; /* with the least wait, and no jitter */
    uint64_t jitter_below;        /* the jitter of its wait is less than this, ns; 0: it has none */
    uint64_t jitter_of;           /* the end of the window by which that is computed */
    uint64_t wait_least;          /* and it waits so long, ns: a ban that it began */
    uint32_t off;                 /* `used` may be so many off: it is an estimate of stripes */
    uint32_t near_limit;          /* as of the request */
    bool maybe_first;             /* it may be told as a first refusal, or not */
    bool touched; /* it took, or was refused and no look: it begins a window of the key */
};

/* What verdicts have told of a key by a policy for good. */
struct model_jitter {
    uint64_t window; /* the end of the window; 0: none is known */
    uint64_t jitter; /* ns */
};

/* The most tokens that the key can hold, as a request is told. */
uint32_t model_capacity(const struct model_by *by, const struct stint_request *request);

/* The answers to a request at `now`, and what it makes of the key, which is in its window of now.
 * */
struct model_answer model_decide(const struct model_by *by, const struct stint_request *request,
                                 uint64_t now, struct model_key *key);

/* What becomes of a request if the table has no slot for its key. */
enum model_full {
    MODEL_NEEDS_NONE, /* it is decided as that of a new key */
    MODEL_REPLACES,   /* so it is, in the slot of another key */
    MODEL_UNTRACKED,
};
enum model_full model_on_full(const struct model_by *by, enum stint_on_full on_full,
                              const struct stint_request *request, uint64_t now);

/* The answers to one that is STINT_UNTRACKED. */
struct model_answer model_untracked(const struct model_by *by, enum stint_on_full on_full,
                                    const struct stint_request *request, uint64_t now);

/* Makes them those to a request by which the key is banned until then. */
void model_ban(struct model_answer *answer, uint64_t now, uint64_t until);

/* Makes it one of the answers by which a verdict tells what it does of a first refusal. */
void model_settle(struct model_answer *answer, const struct stint_verdict *got);

/* Whether `got` is one of the answers. `known`: what is known of the key's jitter, which it may add
 * to; NULL: the policy has none. */
bool model_allows(const struct model_answer *answer, const struct stint_verdict *got,
                  struct model_jitter *known);

/* A bucket's rate before the last change of it. */
struct model_rate {
    uint32_t generation; /* of the verdicts by the rate that stands */
    uint64_t changed;    /* ns; 0: it never changed */
    struct stint_policy before;
};

/* Notes it, if a policy that becomes another at `now` is a bucket whose rate changes, or which
 * holds less. Returns whether it is. */
bool model_rate_change(struct model_rate *rate, const struct stint_policy *from,
                       const struct stint_policy *to, uint64_t now);

/* What a key has used is kept after such a change. `ruling`: what is in force; or NULL. */
void model_rate_keep(const struct model_rate *rate, const struct stint_policy *to,
                     const struct model_ruling *ruling, struct model_key *key);

/* Makes a verdict of before one of now. Returns false if it gives nothing back. */
bool model_rate_verdict(const struct model_rate *rate, const struct stint_policy *to,
                        struct stint_verdict *verdict);

/* Gives back tokens that a verdict with this window, and this unit, granted, when the limiter's
 * clock says `now`. Returns how many. */
uint32_t model_refund(const struct stint_policy *policy, const struct stint_verdict *verdict,
                      uint32_t tokens, uint64_t now, struct model_key *key);

/* The key's ruling goes from one to another by stint_override or stint_override_clear; NULL: none
 * is in force. What a bucket has used is kept. */
void model_ruled(const struct stint_policy *policy, const struct model_ruling *from,
                 const struct model_ruling *to, uint64_t now, struct model_key *key);

void model_reset(const struct stint_policy *policy, uint64_t now, struct model_key *key);

#endif
