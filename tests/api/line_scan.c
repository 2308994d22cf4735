/* SPDX-License-Identifier: MIT
 * Loads of whole lines (atomic.h): they find what the definition finds. */
#include "random.h"
#include "sys/atomic.h"
#include "test.h"

enum { LINE_WORDS = 8 };

/* What atomic.h says of struct slot_pattern, word by word. */
static bool as_asked(const uint64_t *line, const struct slot_pattern *asked) {
    for (unsigned i = 0; i < LINE_WORDS; i++) {
        uint32_t low = (uint32_t)line[i], high = (uint32_t)(line[i] >> 32);
        if (((low ^ asked->flip[i % 2]) & asked->mask[i % 2]) >= asked->below[i % 2] ||
            (uint32_t)(high - asked->base[i % 2]) >= asked->range[i % 2])
            return false;
    }
    return true;
}

/* A number that is often near the ends of what a half may be. */
static uint32_t random_edge(struct random *random) {
    static const uint32_t edges[] = {0, 1, INT32_MAX, UINT32_C(1) << 31, UINT32_MAX};
    uint64_t pick = random_below(random, 8);
    return pick < 5 ? edges[pick] : (uint32_t)random_next(random);
}

static struct slot_pattern random_asked(struct random *random) {
    struct slot_pattern asked;
    for (unsigned i = 0; i < 2; i++) {
        asked.flip[i] = random_edge(random);
        asked.mask[i] = random_edge(random) & INT32_MAX;
        asked.below[i] = random_edge(random) & INT32_MAX;
        asked.base[i] = random_edge(random);
        asked.range[i] = random_edge(random);
    }
    return asked;
}

/* A word that is as asked, if there is such a one; but for one in `odd`, whatever it is. */
static uint64_t random_word(struct random *random, const struct slot_pattern *asked, unsigned i,
                            uint64_t odd) {
    uint32_t low = random_edge(random), high = random_edge(random);
    if (random_below(random, odd) != 0) {
        uint32_t below = asked->below[i];
        uint32_t masked = below == 0 ? 0 : (uint32_t)random_below(random, below);
        low = (low & ~asked->mask[i]) | ((masked ^ asked->flip[i]) & asked->mask[i]);
        if (asked->range[i] != 0)
            high = asked->base[i] + (uint32_t)(random_next(random) % asked->range[i]);
    }
    return (uint64_t)high << 32 | low;
}

static void check_match4(const uint64_t *line, uint64_t value) {
    uint32_t match = atomic_match4(line, value);
    for (unsigned i = 0; i < LINE_WORDS; i += 2) {
        if (line[i] != value)
            continue;
        assert_int_equal(match4_offset(match), i * sizeof(*line));
        match = match4_rest(match);
    }
    assert_int_equal(match, 0);
}

TEST(test_lines) {
    _Alignas(CACHE_LINE) uint64_t line[LINE_WORDS];
    struct random random = {test_seed()};

    (void)state;
    for (uint64_t round = test_rounds(200000); round > 0; round--) {
        struct slot_pattern asked = random_asked(&random);
        uint64_t odd = random_below(&random, 40) + 1;
        uint64_t value = random_next(&random);
        for (unsigned i = 0; i < LINE_WORDS; i++)
            line[i] = random_word(&random, &asked, i % 2, odd);
        assert_int_equal(atomic_all_match(line, &asked), as_asked(line, &asked));
        /* The value, a half of it, in tags and states. */
        for (unsigned i = 0; i < LINE_WORDS; i++)
            switch (random_below(&random, odd)) {
            case 0:
                line[i] = value;
                break;
            case 1:
                line[i] = value ^ random_below(&random, 1 << 8) << 32;
                break;
            case 2:
                line[i] = value ^ (1 + random_below(&random, 1 << 8));
            }
        check_match4(line, value);
    }
}
