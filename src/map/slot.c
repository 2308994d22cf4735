/* SPDX-License-Identifier: MIT
 * What the protocol (slot.h) needs seldom, out of line: the short ways keep their registers. */
#include "map/slot.h"

#ifdef STINT_TESTING
#include <stdio.h>
#include <stdlib.h>

void (*stint_test_hook)(enum stint_test_instant instant);
void (*stint_test_step)(const void *word);
guard_set stint_test_removed;

void stint_test_broken(const char *what, const char *file, int line) {
    (void)fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
    abort();
}
#endif

/* A fetch-add may have met
 *   - the window that was seen, without room: the token is the key's, and is taken back;
 *   - a claim, as the slot changed meanwhile: the commit drops the token;
 *   - another window. If that is the key's next one, the token is taken back from it. Else it is
 *     another key's, and is left to it until its window ends: the exception of promise B.
 * The swap tells whose it is: it succeeds only if the slot has the key's tag and the end that was
 * added to, so it was the key's when it was added to (I1). That does not hold if an end fell and
 * came again (shard_end_falls), which is asked after the state was loaded (M8). In the window that
 * was seen the tag tells, unless the policy is back (policy.c, stint_policy_make). A key that was
 * reset meanwhile may have nothing left to take back, or another's token (A). */
bool stint_slot_take_back(const struct table *table, struct slot *slot, uint64_t tag, tick_t end,
                          uint64_t used, const uint32_t *again) {
    const uint64_t added = used + state_of(end, 0) - 1;
    const bool seen = state_same_window(added, state_of(end, 0));
    const struct shard *shard = table_shard_at(table, slot);

    if (state_pending(added) || !GUARDED(BACK))
        return true;
    for (;;) {
        const uint64_t state = atomic_load_acquire(&slot->state); /* M1 */
        if (GUARD(BACK_TAG, atomic_load_acquire(&slot->tag) != tag) ||
            GUARD(BACK_WINDOW, !state_same_window(state, added)) ||
            /* M15: it was written before the version by which the loaded state was. */
            ((!seen || atomic_load_relaxed_32(again) != 0) &&
             GUARD(BACK_FALLEN, shard_end_fell(shard, end_of(state_id(added), end)))))
            return seen;
        if (GUARD(BACK_ZERO, state_used(state) == 0) || slot_swap(slot, tag, state, state - 1))
            return true;
    }
}
