/* SPDX-License-Identifier: MIT */
#include "tail.h"

json_t *tail_answer(const struct histogram *histogram) {
    static const double percents[] = {50, 90, 99, 99.9, 99.99, 100};
    json_t *answer = json_array();

    for (size_t i = 0; i < sizeof(percents) / sizeof(percents[0]); i++)
        json_array_append_new(
            answer, json_integer((json_int_t)histogram_percentile(histogram, percents[i])));
    return answer;
}
