/* SPDX-License-Identifier: MIT
 * The long way of a decision on one slot. */
#ifndef STINT_SETTLE_H
#define STINT_SETTLE_H

#include "slot.h"

/* Decides whatever it is: the key is not in its first lines, or its slot changed, is pending or in
 * another window than it should be. What came of it is in the decision. */
void stint_slot_settle(struct decision *decision);

/* Decides on a request of cost 1 whose fetch-add returned another window than was seen, or no
 * room. */
void stint_slot_settle_added(struct decision *decision, const struct added *added);

#endif
