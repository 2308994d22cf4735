/* SPDX-License-Identifier: MIT
 * The long way of a decision on one slot. */
#ifndef STINT_DECIDE_H
#define STINT_DECIDE_H

#include "decision.h"

/* Decides in any state of the table. The decision receives what came of it. */
void stint_decide_by_slot(struct decision *decision);

#endif
