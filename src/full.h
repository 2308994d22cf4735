/* SPDX-License-Identifier: MIT
 * A request for a key that has no slot and gets none. */
#ifndef STINT_FULL_H
#define STINT_FULL_H

#include "claim.h"

/* Ends a request that writes nothing for a key that has no slot. */
enum progress stint_decide_nothing(struct decision *decision, uint32_t flags);

/* The key may claim no slot, and has none: the outcome that the user chose (G). */
enum progress stint_decide_full(struct decision *decision);

#endif
