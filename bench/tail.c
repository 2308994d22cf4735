/* SPDX-License-Identifier: MIT */
#include "tail.h"

const double tail_percents[TAIL_POINTS] = {50, 90, 99, 99.9, 99.99, 100};
const char *const tail_names[TAIL_POINTS] = {"p50", "p90", "p99", "p99.9", "p99.99", "max"};

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

void tail_put_json(FILE *out, const char *name, const struct tail *tail) {
    fprintf(out, ", \"%s\": {", name);
    for (unsigned i = 0; i < TAIL_POINTS; i++)
        fprintf(out, "%s\"%s\": {\"ns\": %llu, \"min\": %llu, \"max\": %llu}", i == 0 ? "" : ", ",
                tail_names[i], (unsigned long long)tail->ns[i], (unsigned long long)tail->min[i],
                (unsigned long long)tail->max[i]);
    fputc('}', out);
}
