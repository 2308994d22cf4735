/* SPDX-License-Identifier: MIT
 * Buckets whose rate changes. Read slot.h first.
 *
 * The tokens that a bucket's instant stands for depend on the rate. So each slot says by which it
 * counts: its state has the low bits of the rate's number (STATE_RATE). That is the next one when
 * unit or window change, or when the bucket holds less. The record keeps the rate before, and the
 * instant of the change. A slot of the rate before is counted anew, as at that instant:
 *
 *     full = changed + (full - changed) * unit / unit before, and no more than the bucket holds
 *
 * Whoever meets it first does that (stint_rate_settle), or the sweep which ends each change
 * (stint_rate_sweep). Both swap tag and state. So it is counted anew once.
 *
 * Why a slot is never of a rate before the one before. A change sweeps after its version is stored,
 * and the next change begins with a sweep if the last one was not finished (under the lock). A
 * sweep leaves no slot of an older number, and no claim. What is written behind it:
 *   - A swap compares the state that was seen, with its number, which its terms have, too
 *     (slot_look). If the sweep has passed the slot, the number is another, and the swap fails. So
 *     it does for a thread that sleeps across two changes; across sixteen, it must meet the same
 *     instant, to the ns, in the same slot.
 *   - A claim is committed after the version is read again (occupant.h, claim_void). If that is the
 *     older one, the claim was there before the sweep began, which cancels it.
 *
 * The record's words about the rate before are written before the version. Until then no slot needs
 * them, as all were swept. Whoever has read them confirms the state that he read them for: if that
 * is still there, no later change has written them. (When such a slot is over: slot_end.)
 *
 * A death leaves slots of two rates, which count as before. The next change sweeps. */
#ifndef STINT_RATE_H
#define STINT_RATE_H

#include "policy/occupant.h"

/* ns * to / from, rounded up. */
static inline uint64_t ns_scaled(uint64_t ns, uint64_t from, uint64_t to) {
    __extension__ typedef unsigned __int128 wide;
    const uint64_t by = from != 0 ? from : 1; /* 0: the table was written over */
    const wide much = ((wide)ns * to + by - 1) / by;
    return much < UINT64_MAX / 2 ? (uint64_t)much : UINT64_MAX / 2;
}

/* The state of a bucket's committed slot by the rate `to`, which stands. The caller confirms it. */
uint64_t stint_rate_means(const struct stint_limiter *limiter, uint32_t id, uint64_t hash,
                          uint64_t state, const struct bucket *to);

/* Counts a slot anew that counts by the rate before `to`. If that fails, the slot has changed. */
void stint_rate_settle(const struct stint_limiter *limiter, uint32_t id, uint64_t hash,
                       const struct seen *seen, const struct bucket *to);

/* The slot of a key's bucket, by the rate that stands. Returns false if it has none. */
bool stint_bucket_find(const struct stint_limiter *limiter, uint32_t policy_id, uint64_t key,
                       struct seen *seen, struct bucket *bucket);

/* What a verdict of the rate before `to` tells by `to`: as many tokens, and no more time than they
 * are worth. Returns false if it is older than that. */
bool stint_rate_verdict(const struct stint_limiter *limiter, const struct bucket *to,
                        struct stint_verdict *verdict);

/* Counts all slots anew that count by a rate before the present one. Under the lock. */
void stint_rate_sweep(struct stint_limiter *limiter);

#endif
