/* SPDX-License-Identifier: MIT
 * The library's own code under random histories, checked for linearizability (history.c).
 *
 *     STINT_TEST_SEED=7   the first history's seed; each next one's is one more. Else it is 1: the
 *                         suites make the same histories each time (tests/README.md says why) */
#include "fixture.h"

#include "history.h"
#include "random.h"
#include "schedule.h"

static void make_histories(enum history_threads threads, uint64_t count) {
    struct history_totals totals = {0};
    uint64_t seed = environment_number("STINT_TEST_SEED", 1);
    print_message("STINT_TEST_SEED=%" PRIu64 "\n", seed);

    for (uint64_t i = 0; i < count; i++)
        if (!history_holds(seed + i, threads, &totals, stderr))
            fail_msg("STINT_TEST_SEED=%" PRIu64, seed + i);
    print_message("%" PRIu64 " histories of %" PRIu64 " operations, %" PRIu64
                  " of them overlapping; %" PRIu64 " refusals, %" PRIu64 " strays, %" PRIu64
                  " states\n",
                  count, totals.operations, totals.overlapping, totals.refusals, totals.strays,
                  totals.states);
}

TEST(test_one_at_a_time) {
    if (!SCHEDULABLE)
        skip();
    make_histories(HISTORY_SCHEDULED, test_rounds(20000));
}

TEST(test_at_once) {
    make_histories(HISTORY_FREE, test_rounds(2000));
}
