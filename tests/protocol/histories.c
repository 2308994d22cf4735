/* SPDX-License-Identifier: MIT
 * The library's own code under random histories, checked for linearizability (history.c).
 *
 *     STINT_TEST_SEED=7   the first history's seed; each next one's is one more. Else it is 1: the
 *                         suites make the same histories each time (tests/README.md says why) */
#include "fixture.h"

#include "history.h"
#include "random.h"

static void make_histories(enum history_threads threads, uint64_t count) {
    struct history_totals totals = {0};
    uint64_t seed = environment_number("STINT_TEST_SEED", 1);
    print_message("STINT_TEST_SEED=%" PRIu64 "\n", seed);

    for (uint64_t i = 0; i < count; i++)
        if (!history_holds(seed + i, threads, &totals, stderr))
            fail_msg("STINT_TEST_SEED=%" PRIu64, seed + i);
    print_message("%" PRIu64 " histories of %" PRIu64 " operations, %" PRIu64
                  " of them overlapping; %" PRIu64 " switches, %" PRIu64 " refusals, %" PRIu64
                  " untracked, %" PRIu64 " replaced, %" PRIu64 " overridden, %" PRIu64
                  " bans, %" PRIu64 " changes, %" PRIu64 " backward steps (%" PRIu64
                  " slots anew), %" PRIu64 " late, %" PRIu64 " strays, %" PRIu64
                  " threads stopped; %" PRIu64 " states\n",
                  totals.histories, totals.operations, totals.overlapping, totals.switches,
                  totals.refusals, totals.untracked, totals.replaced, totals.overridden,
                  totals.bans, totals.changes, totals.backs, totals.clock_steps, totals.late,
                  totals.strays, totals.stopped, totals.states);
}

TEST(test_one_at_a_time) {
    if (!history_schedulable())
        skip();
    make_histories(HISTORY_SCHEDULED, test_rounds(20000));
}

TEST(test_at_once) {
    make_histories(HISTORY_FREE, test_rounds(2000));
}
