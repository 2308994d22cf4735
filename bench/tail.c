/* SPDX-License-Identifier: MIT */
#include "tail.h"

static const double tail_percents[TAIL_POINTS] = {50, 90, 99, 99.9, 99.99, 100};
static const char *const tail_names[TAIL_POINTS] = {"p50", "p90", "p99", "p99.9", "p99.99", "max"};

void tail_add(struct tail *tail, const struct histogram *part, bool first) {
    for (unsigned i = 0; i < TAIL_POINTS; i++) {
        uint64_t ns = histogram_percentile(part, tail_percents[i]);
        if (first || ns < tail->min[i])
            tail->min[i] = ns;
        if (first || ns > tail->max[i])
            tail->max[i] = ns;
    }
}

void tail_total(struct tail *tail, const struct histogram *all) {
    for (unsigned i = 0; i < TAIL_POINTS; i++)
        tail->ns[i] = histogram_percentile(all, tail_percents[i]);
}

json_t *tail_answer(const struct tail *tail) {
    json_t *answer = json_object();

    for (unsigned i = 0; i < TAIL_POINTS; i++)
        json_object_set_new(answer, tail_names[i],
                            json_pack("{s:I, s:I, s:I}", "ns", (json_int_t)tail->ns[i], "min",
                                      (json_int_t)tail->min[i], "max", (json_int_t)tail->max[i]));
    return answer;
}
