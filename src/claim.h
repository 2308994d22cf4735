/* SPDX-License-Identifier: MIT
 * A key without a slot gets one: claim, look at the others, commit. Or it does without. */
#ifndef STINT_CLAIM_H
#define STINT_CLAIM_H

#include "search.h"

/* Tries the short way of a new key while the table is young. */
enum progress stint_claim_short(struct decision *decision);

/* Claims a free slot that was seen. If a key had it before, the watermark is raised first. */
bool stint_claim_free(struct decision *decision, struct seen *seen);

/* Commits a claim with this request's charge, whoever claimed it. */
enum progress stint_claim_resolve(struct decision *decision, const struct seen *claim,
                                  uint32_t flags);

/* Commits a claim of a companion's slot. Its state is `end` and `rest`. */
enum progress stint_claim_override(struct decision *decision, const struct seen *claim, tick_t end,
                                   uint64_t rest);

/* Ends a request that writes nothing for a key that has no slot. */
enum progress stint_decide_nothing(struct decision *decision, uint32_t flags);

/* The key may claim no slot, and has none: the outcome that the user chose (G). */
enum progress stint_decide_full(struct decision *decision);

#endif
