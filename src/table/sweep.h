/* SPDX-License-Identifier: MIT
 * The slots of policies that are gone become tombstones. */
#ifndef STINT_SWEEP_H
#define STINT_SWEEP_H

#include "limiter/records.h"

/* Makes the slots of all policies that are gone free. Returns whether there are such policies.
 * A thread that still decides by one may claim a slot behind it. */
bool stint_sweep(struct stint_limiter *limiter);

#endif
