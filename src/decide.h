/* SPDX-License-Identifier: MIT
 * The long way of a decision on one slot. */
#ifndef STINT_DECIDE_H
#define STINT_DECIDE_H

#include "decision.h"

/* Decides whatever it is: the key is not in its first lines, or its slot changed, is pending or in
 * a later window. What came of it is in the decision. */
void stint_slot_settle(struct decision *decision);

#endif
