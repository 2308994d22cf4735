/* SPDX-License-Identifier: MIT
 * Few keys, under policies of one kind, whose windows all turn while threads decide. What is
 * checked is exact, and follows from the order in which a slot's words were written, whatever
 * that was (model.h knows what a count comes to in a new window):
 *
 *  - Roll-over and reservations. Let level(w) = max(0, level(w - 1) - limit) + granted(w) be what
 *    is used at the end of window w. It is never more than capacity + max_reserved; that is the
 *    same as granted <= capacity + max_reserved + limit * (n - 1) over any run of n windows. If a
 *    request for one token was refused in w without reserving, level(w) >= capacity.
 *  - Smooth. All that is granted in w is granted against the whole of granted(w - 1), and the last
 *    of it when no less time was left than `least_left`, the least of any granted in w. So
 *    ceil(granted(w - 1) * least_left / window) + granted(w) <= limit. If one token was refused
 *    with `left`, then ceil(granted(w - 1) * left / window) + granted(w) >= limit.
 *  - Others: granted(w) <= limit; if one token was refused, equal. Windows that begin with first
 *    requests have no tick in common. */
#ifndef STINT_TESTS_TURNING_H
#define STINT_TESTS_TURNING_H

#include "kinds.h"
#include "team.h"

/* In a table of one line (max_keys 2) slots change hands at every boundary; if not plain, with a
 * flood of ever new keys beside. Mixed are costs above 1, partial takes and refunds as well. */
void check_turning(enum kind kind, uint64_t max_keys, bool mixed);

#endif
