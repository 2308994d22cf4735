/* SPDX-License-Identifier: MIT */
#include "keys.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "pages.h"
#include "team.h"

const char *const distribution_names[DISTRIBUTIONS] = {"uniform", "zipf", "hot"};

/* ---- Zipf ---- */

/* Rejection-inversion (Hoermann and Derflinger 1996): exact, and without a table, which for
 * 10 million keys would be a random read for each draw. */
struct zipf {
    double keys, first, last, cut;
};

static double zipf_integral(double x) {
    double t = (1 - ZIPF_EXPONENT) * log(x);
    return expm1(t) / (1 - ZIPF_EXPONENT);
}

static double zipf_integral_inverse(double y) {
    return exp(log1p(y * (1 - ZIPF_EXPONENT)) / (1 - ZIPF_EXPONENT));
}

static double zipf_weight(double x) {
    return exp(-ZIPF_EXPONENT * log(x));
}

static struct zipf zipf_of(uint64_t keys) {
    return (struct zipf){
        .keys = (double)keys,
        .first = zipf_integral(1.5) - 1,
        .last = zipf_integral((double)keys + 0.5),
        .cut = 2 - zipf_integral_inverse(zipf_integral(2.5) - zipf_weight(2)),
    };
}

/* Index 0 is the most wanted. */
static uint64_t zipf_draw(const struct zipf *zipf, uint64_t *state) {
    for (;;) {
        double random = (double)(mix64((*state)++) >> 11) * 0x1p-53;
        double y = zipf->last + random * (zipf->first - zipf->last);
        double x = zipf_integral_inverse(y);
        double rank = floor(x + 0.5);
        rank = rank < 1 ? 1 : rank > zipf->keys ? zipf->keys : rank;
        if (rank - x <= zipf->cut || y >= zipf_integral(rank + 0.5) - zipf_weight(rank))
            return (uint64_t)rank - 1;
    }
}

static void draw_all(struct member *member, void *context) {
    struct sequence *sequence = context;
    struct zipf zipf = zipf_of(sequence->keys);
    uint64_t state = (uint64_t)member->thread << 48;
    uint32_t *drawn = sequence->drawn + member->thread * sequence->period;

    for (uint64_t i = 0; i < sequence->period; i++)
        drawn[i] = (uint32_t)zipf_draw(&zipf, &state);
}

/* ---- Sequences ---- */

void sequence_open(struct sequence *sequence, enum distribution distribution, uint64_t keys,
                   unsigned threads, uint64_t period) {
    *sequence = (struct sequence){.distribution = distribution, .keys = keys, .period = period};
    if (distribution != ZIPF)
        return;
    sequence->drawn = must_have(malloc(threads * period * sizeof(*sequence->drawn)));
    team_run(threads, draw_all, sequence);
}

void sequence_close(struct sequence *sequence) {
    free(sequence->drawn);
    sequence->drawn = NULL;
}

/* ---- Bytes ---- */

void key_bytes(uint64_t index, unsigned char *bytes, size_t length) {
    /* An odd multiplier keeps different indices different in their low bytes too, where a short key
     * is cut. */
    uint64_t word = index * UINT64_C(0xD1342543DE82EF95);

    if (length < sizeof(word)) {
        memcpy(bytes, &word, length);
        return;
    }
    memcpy(bytes, &word, sizeof(word));
    for (size_t at = sizeof(word); at < length; at += sizeof(word)) {
        size_t left = length - at;
        word += UINT64_C(0x9E3779B97F4A7C15);
        memcpy(bytes + at, &word, left < sizeof(word) ? left : sizeof(word));
    }
}

void key_text(uint64_t index, char *text) {
    static const char digits[] = "0123456789abcdef";
    uint64_t word = mix64(index);

    for (size_t i = 0; i < 2 * sizeof(word); i++, word >>= 4)
        text[i] = digits[word & 15];
}
