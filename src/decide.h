/* SPDX-License-Identifier: MIT
 * What is not near its key's home. */
#ifndef STINT_DECIDE_H
#define STINT_DECIDE_H

#include "search.h"

/* Decides in any state of the table. The decision receives what came of it. */
void stint_decide_by_slot(struct decision *decision);

/* The same after a look for the key's slot. */
void stint_decide_looked(struct decision *decision, struct far far);

#endif
