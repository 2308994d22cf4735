/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * Conformance with the fixed window of Convex's rate limiter: roll-over up to a capacity, and
 * reservations. Its state is a value, the tokens that a key has; stint's is what is used, so value
 * = capacity - used. Its rules:
 *
 *     a new key has `capacity`
 *     value' = min(value + rate * windows passed, capacity) - count
 *     ok if value' >= 0, or if reserving and -value' <= max_reserved
 *     retry_after = window start + window * ceil(-value' / rate) - now, if value' < 0
 *     a refused call and a check store nothing
 *
 * Each table is run on the library and on these rules as they are written here, so that a table
 * cannot be wrong unseen. Where stint differs, on purpose:
 *  - A count that can never fit is refused with STINT_NEVER; Convex throws.
 *  - A refused reservation is told when the same reservation would be accepted; Convex tells when
 *    the count would be there without one.
 *  - A live change keeps what is used, in both directions; Convex keeps the value.
 */
#include "random.h"
#include "script.h"

/* What Convex is asked; what stint is asked is in script.h. */
enum operation { NONE, LIMIT, LIMIT_RESERVE, CHECK, CHECK_RESERVE, FORGET, RECONFIGURE };

struct row {
    uint64_t now;
    enum operation operation;
    uint32_t count; /* RECONFIGURE: the new rate */
    bool ok;
    uint64_t retry_after; /* RECONFIGURE: the new capacity */
    int64_t value;        /* afterwards */
};

struct table {
    const char *name;
    uint32_t rate, capacity, max_reserved;
    uint64_t window;
    int64_t start;
    struct row rows[STEPS_MOST];
};

#undef ok
#undef no

/* clang-format off */
#define ok(now, operation, count, value)        {now, operation, count, true, 0, value}
#define no(now, operation, count, retry, value) {now, operation, count, false, retry, value}
#define later(now, count, wait, value)          {now, LIMIT_RESERVE, count, true, wait, value}
#define reconfigure(now, rate, capacity, value) {now, RECONFIGURE, rate, true, capacity, value}

static const struct table tables[] = {
    {"100 a minute, capacity 150", 100, 150, 0, W, 0, {
        ok(T0, CHECK, 0, 150),
        ok(T0, CHECK, 150, 150),
        ok(T0, LIMIT, 150, 0),
        no(T0, LIMIT, 1, W, 0),
        no(E - 1, LIMIT, 1, 1, 0),
        no(E - 1, CHECK, 100, 1, 0),
        no(E - 1, CHECK, 101, 1 + W, 0),
        ok(E, CHECK, 0, 100),
        no(E, LIMIT, 101, W, 100),
        ok(E, CHECK, 100, 100),
        ok(E + W, CHECK, 0, 150),
        ok(E + W, LIMIT, 150, 0)}},
    {"unused tokens roll over, up to the capacity", 100, 150, 0, W, 0, {
        ok(T0, LIMIT, 80, 70),
        ok(E, CHECK, 0, 150),
        ok(E, LIMIT, 120, 30),
        ok(E + W, LIMIT, 120, 10),
        ok(E + 2 * W, LIMIT, 100, 10),
        no(E + 2 * W, LIMIT, 20, W, 10),
        ok(E + 3 * W, LIMIT, 20, 90),
        no(E + 3 * W, LIMIT, 151, STINT_NEVER, 90)}},
    {"several idle windows", 10, 35, 0, W, 0, {
        ok(T0, LIMIT, 35, 0),
        no(T0, LIMIT, 25, 3 * W, 0),
        no(T0 + 1, LIMIT, 10, W - 1, 0),
        no(T0 + 1, LIMIT, 11, 2 * W - 1, 0),
        no(T0 + 1, LIMIT, 35, 4 * W - 1, 0),
        no(T0 + W, LIMIT, 11, W, 10),
        ok(T0 + 2 * W, CHECK, 0, 20),
        ok(T0 + 3 * W - 1, CHECK, 20, 20),
        no(T0 + 3 * W - 1, CHECK, 21, 1, 20),
        ok(T0 + 3 * W, CHECK, 30, 30),
        ok(T0 + 3 * W + 30 * SECOND, LIMIT, 25, 5),
        no(T0 + 3 * W + 30 * SECOND, LIMIT, 6, 30 * SECOND, 5),
        no(T0 + 3 * W + 30 * SECOND, LIMIT, 16, 90 * SECOND, 5),
        ok(T0 + 4 * W, LIMIT, 15, 0),
        ok(T0 + 104 * W, CHECK, 0, 35),
        ok(T0 + 1000000 * W, LIMIT, 35, 0),
        ok(T0 + 1000001 * W, LIMIT, 10, 0)}},
    {"debts", 10, 10, 15, W, 0, {
        ok(T0, LIMIT_RESERVE, 10, 0),
        later(T0 + SECOND, 5, 59 * SECOND, -5),
        later(T0 + SECOND, 10, 119 * SECOND, -15),
        no(T0 + SECOND, LIMIT_RESERVE, 1, 59 * SECOND, -15),
        no(T0 + SECOND, LIMIT, 1, 119 * SECOND, -15),
        no(T0 + SECOND, LIMIT, 10, 179 * SECOND, -15),
        no(T0 + SECOND, CHECK, 0, 119 * SECOND, -15),
        no(E - 1, CHECK_RESERVE, 10, 1, -15),
        no(E - 1, CHECK_RESERVE, 11, 1 + W, -15),
        no(E, CHECK, 0, W, -5),
        later(E, 10, 2 * W, -15),
        no(E, LIMIT_RESERVE, 11, 2 * W, -15),
        no(E + W, LIMIT_RESERVE, 26, STINT_NEVER, -5),
        no(E + W, LIMIT_RESERVE, 25, 2 * W, -5),
        no(E + W, LIMIT, 11, STINT_NEVER, -5),
        no(E + W, LIMIT, 10, 2 * W, -5),
        ok(E + 2 * W, LIMIT, 5, 0),
        later(E + 3 * W - 1, 1, 1, -1),
        ok(E + 3 * W, LIMIT, 9, 0),
        ok(E + 4 * W, CHECK, 0, 10)}},
    {"a debt of a key not seen before", 10, 10, 15, W, 0, {
        no(T0, LIMIT_RESERVE, 26, STINT_NEVER, 10),
        {T0, CHECK_RESERVE, 20, true, W, 10},
        later(T0, 20, W, -10),
        no(T0, LIMIT_RESERVE, 6, W, -10),
        later(T0 + 1, 5, 2 * W - 1, -15),
        {T0 + 1, FORGET, 0, true, 0, 10},
        later(T0 + 1, 25, 2 * W - 1, -15),
        no(E, LIMIT, 1, W, -5),
        ok(E + W, LIMIT, 5, 0)}},
    {"a reservation that needs none waits for nothing", 3, 9, 4, W, 0, {
        ok(T0, LIMIT_RESERVE, 9, 0),
        later(E - 1, 4, 1 + W, -4),
        no(E, LIMIT, 1, W, -1),
        later(E, 3, 2 * W, -4),
        ok(E + 2 * W, LIMIT_RESERVE, 2, 0),
        ok(E + 3 * W, LIMIT_RESERVE, 0, 3),
        ok(E + 5 * W, LIMIT_RESERVE, 9, 0)}},
    {"what is used stays when rate and capacity change", 10, 10, 5, W, 0, {
        ok(T0, LIMIT, 10, 0),
        reconfigure(T0, 25, 25, 15),
        ok(T0, LIMIT, 15, 0),
        reconfigure(T0, 5, 5, -20),
        no(T0, CHECK, 0, 4 * W, -20),
        no(E, LIMIT, 1, 4 * W, -15),
        no(E, LIMIT_RESERVE, 5, 3 * W, -15),
        no(E + 3 * W, LIMIT, 1, W, 0),
        later(E + 3 * W, 2, W, -2),
        reconfigure(E + 3 * W, 2, 5, -2),
        no(E + 4 * W, LIMIT, 3, 2 * W, 0),
        reconfigure(E + 4 * W, 2, 6, 1),
        ok(E + 4 * W, LIMIT, 1, 0)}},
    {"the capacity alone", 10, 20, 0, W, 0, {
        ok(T0, LIMIT, 20, 0),
        reconfigure(T0, 10, 50, 30),
        ok(T0, LIMIT, 30, 0),
        reconfigure(T0, 10, 20, -30),
        no(T0, CHECK, 0, 3 * W, -30),
        no(E, LIMIT, 1, 3 * W, -20),
        no(E + W, LIMIT, 20, 3 * W, -10),
        ok(E + 3 * W, LIMIT, 10, 0),
        reconfigure(E + 3 * W, 10, 11, -9),
        no(E + 3 * W, CHECK, 0, W, -9),
        ok(E + 4 * W, LIMIT, 1, 0)}},
    {"the rate of windows that nobody touched is the present one", 10, 100, 0, W, 0, {
        ok(T0, LIMIT, 100, 0),
        reconfigure(E + W, 20, 100, 40),
        no(E + W, LIMIT, 61, 2 * W, 40),
        ok(E + W, LIMIT, 40, 0),
        reconfigure(E + W, 1, 100, 0),
        no(E + W, LIMIT, 100, 100 * W, 0)}},
    {"a capacity below the rate caps", 10, 4, 3, W, 0, {
        ok(T0, LIMIT, 4, 0),
        later(T0, 3, W, -3),
        no(T0, LIMIT_RESERVE, 1, W, -3),
        no(T0, LIMIT, 5, STINT_NEVER, -3),
        ok(E, CHECK, 0, 4),
        no(E, LIMIT_RESERVE, 8, STINT_NEVER, 4),
        later(E, 7, W, -3)}},
    {"a capacity below the rate, without reservations", 10, 4, 0, W, 0, {
        ok(T0, LIMIT, 4, 0),
        no(T0, LIMIT, 4, W, 0),
        no(T0, LIMIT, 5, STINT_NEVER, 0),
        ok(E, LIMIT, 4, 0)}},
    {"the largest numbers", 1, STINT_LIMIT_MAX, 0, W, 0, {
        ok(T0, LIMIT, STINT_LIMIT_MAX, 0),
        no(T0, LIMIT, 1, W, 0),
        no(T0, LIMIT, STINT_LIMIT_MAX, STINT_LIMIT_MAX * W, 0),
        no(T0, LIMIT, STINT_LIMIT_MAX + 1, STINT_NEVER, 0),
        ok(E + 6 * W, LIMIT, 6, 1)}},
    {"the largest debt", 2, 1, STINT_LIMIT_MAX - 1, W, 0, {
        later(T0 + 5, STINT_LIMIT_MAX, STINT_LIMIT_MAX / 2 * W - 5, 1 - (int64_t)STINT_LIMIT_MAX),
        no(T0 + 5, LIMIT_RESERVE, 1, W - 5, 1 - (int64_t)STINT_LIMIT_MAX),
        no(E, LIMIT_RESERVE, 3, W, 3 - (int64_t)STINT_LIMIT_MAX),
        later(E, 2, STINT_LIMIT_MAX / 2 * W, 1 - (int64_t)STINT_LIMIT_MAX)}},
    {"windows of 10 ms from a start", 3, 7, 0, 10 * MS, -(int64_t)(30 * MS), {
        ok(T0 + 5, LIMIT, 7, 0),
        no(T0 + 5, LIMIT, 7, 30 * MS - 5, 0),
        no(T0 + 10 * MS - 1, LIMIT, 3, 1, 0),
        no(T0 + 10 * MS, LIMIT, 7, 20 * MS, 3),
        ok(T0 + 20 * MS, LIMIT, 6, 0),
        ok(T0 + 50 * MS, LIMIT, 7, 0)}},
    {"a start between", 5, 10, 5, HOUR, (int64_t)(T0 + 20 * MINUTE), {
        later(T0, 15, 20 * MINUTE, -5),
        no(T0 + 20 * MINUTE - 1, LIMIT, 1, 1 + HOUR, -5),
        no(T0 + 20 * MINUTE, LIMIT, 1, HOUR, 0),
        ok(T0 + 80 * MINUTE, LIMIT, 5, 0)}},
};
/* clang-format on */

/* ---- Convex's rules ------------------------------------------------------------------------- */

struct convex {
    uint64_t rate, capacity, max_reserved, window;
    int64_t start;
    int64_t value;
    uint64_t window_start; /* 0: a key that was never seen */
    uint64_t refused;      /* stint's: end of the last window in which it was refused */
};

struct answer {
    bool ok;
    uint64_t retry_after;
    int64_t value;
};

static uint64_t convex_window_start(const struct convex *convex, uint64_t now) {
    int64_t into = ((int64_t)now - convex->start) % (int64_t)convex->window;
    return now - (uint64_t)(into < 0 ? into + (int64_t)convex->window : into);
}

static struct answer convex_limit(struct convex *convex, uint64_t now, uint64_t count, bool reserve,
                                  bool check) {
    uint64_t window_start = convex_window_start(convex, now);
    int64_t capacity = (int64_t)convex->capacity, had = capacity;
    if (convex->window_start != 0) {
        uint64_t passed = (window_start - convex->window_start) / convex->window;
        had = convex->value + (int64_t)(convex->rate * passed);
        if (had > capacity)
            had = capacity;
    }
    int64_t value = had - (int64_t)count;
    int64_t debt = reserve ? (int64_t)convex->max_reserved : 0;
    struct answer answer = {.ok = value + debt >= 0, .value = had};

    /* Refused: what would have to be there. Reserved: what is not there yet. */
    int64_t missing = answer.ok ? -value : -value - debt;
    if ((int64_t)count > capacity + debt)
        answer.retry_after = STINT_NEVER;
    else if (missing > 0)
        answer.retry_after =
            window_start + convex->window * (((uint64_t)missing - 1) / convex->rate + 1) - now;
    if (answer.ok && !check) {
        convex->value = answer.value = value;
        convex->window_start = window_start;
    }
    return answer;
}

static void convex_change(struct convex *convex, uint64_t rate, uint64_t capacity) {
    convex->value += (int64_t)capacity - (int64_t)convex->capacity;
    convex->rate = rate;
    convex->capacity = capacity;
}

/* ---- Both, row by row ----------------------------------------------------------------------- */

static struct stint_policy policy_of(const struct convex *convex) {
    struct stint_policy policy =
        make_policy("convex", (uint32_t)convex->rate, convex->window, convex->start, 0);
    policy.capacity = (uint32_t)convex->capacity;
    policy.max_reserved = (uint32_t)convex->max_reserved;
    return policy;
}

static bool is_reserving(const struct row *row) {
    return row->operation == LIMIT_RESERVE || row->operation == CHECK_RESERVE;
}

static bool is_check(const struct row *row) {
    return row->operation != LIMIT && row->operation != LIMIT_RESERVE;
}

/* Whether the row is more than a change or a reset, which are followed by a look. */
static bool is_answer(const struct row *row) {
    return row->operation != RECONFIGURE && row->operation != FORGET;
}

static struct answer convex_row(struct convex *convex, const struct row *row) {
    if (row->operation == RECONFIGURE)
        convex_change(convex, row->count, row->retry_after);
    if (row->operation == FORGET)
        convex->window_start = 0;
    return convex_limit(convex, row->now, is_answer(row) ? row->count : 0, is_reserving(row),
                        is_check(row));
}

/* The library must answer the row as Convex did, in all that Convex does not say, too. */
static void stint_row(struct play *play, struct convex *convex, const struct row *row,
                      const struct answer *answer) {
    if (row->operation == RECONFIGURE)
        play_step(play, &(struct step)change((uint32_t)convex->rate, (uint32_t)convex->capacity,
                                             (uint32_t)convex->max_reserved));
    if (row->operation == FORGET)
        play_step(play, &(struct step)reset());
    struct step step = {
        .action = DECIDE,
        .now = row->now,
        .cost = is_answer(row) ? row->count : 0,
        .flags = (is_check(row) ? PEEK : 0) | (is_reserving(row) ? RESERVE : 0),
        .allowed = answer->ok,
        .capacity = (uint32_t)convex->capacity,
        .used = (uint32_t)((int64_t)convex->capacity - answer->value),
        .granted = answer->ok && !is_check(row) ? row->count : 0,
        .window = convex_window_start(convex, row->now) + convex->window,
        .retry_after = answer->retry_after,
    };
    if (!answer->ok && !is_check(row) && convex->refused != step.window) {
        convex->refused = step.window;
        step.marks = FIRST;
    }
    play_step(play, &step);
}

/* ---- The tables ----------------------------------------------------------------------------- */

static size_t run_table(const struct table *table, enum way way) {
    struct convex convex = {.rate = table->rate,
                            .capacity = table->capacity,
                            .max_reserved = table->max_reserved,
                            .window = table->window,
                            .start = table->start};
    struct stint_policy policy = policy_of(&convex);
    struct play play = play_begin(table->name, &policy, way);
    size_t i = 0;
    for (; i < STEPS_MOST && table->rows[i].operation != NONE; i++) {
        const struct row *row = &table->rows[i];
        struct answer rules = convex_row(&convex, row);
        if (rules.value != row->value ||
            (is_answer(row) && (rules.ok != row->ok || rules.retry_after != row->retry_after)))
            fail_msg("\"%s\", row %zu: Convex says ok %d, retry_after %" PRIu64 ", value %" PRId64,
                     table->name, i, rules.ok, rules.retry_after, rules.value);
        stint_row(&play, &convex, row, &rules);
    }
    play_end(&play);
    return i;
}

TEST(test_tables) {
    size_t cases = 0;
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        for (enum way way = BY_DECIDE; way < WAYS; way++)
            cases += run_table(&tables[i], way);
    print_message("%zu cases\n", cases / WAYS);
    assert_true(cases / WAYS >= 40);
}

/* Random runs of the rules and the library, side by side. */
TEST(test_random_runs) {
    struct random random = {test_seed()};
    static const uint64_t windows[] = {10 * MS, SECOND, MINUTE, DAY};
    uint64_t ok = 0, refused = 0, reserved = 0;

    for (uint64_t round = 0; round < test_rounds(2000); round++) {
        struct convex convex = {.rate = random_below(&random, 20) + 1,
                                .window = windows[random_below(&random, 4)]};
        convex.capacity = random_below(&random, 60) + 1;
        if (random_below(&random, 2) == 0)
            convex.max_reserved = random_below(&random, 60) + 1;
        convex.start = (int64_t)(random_below(&random, 10000) * STINT_TICK_NS);
        char name[200];
        snprintf(name, sizeof name,
                 "round %" PRIu64 ": rate %" PRIu64 ", capacity %" PRIu64 ", max_reserved %" PRIu64
                 ", window %" PRIu64,
                 round, convex.rate, convex.capacity, convex.max_reserved, convex.window);
        struct stint_policy policy = policy_of(&convex);
        struct play play = play_begin(name, &policy, (enum way)(round % WAYS));
        play.key = number_key(play.limiter, round);
        /* A plain policy forgets, so it is not Convex's when its capacity was lowered. */
        bool carries = convex.capacity > convex.rate || convex.max_reserved > 0;
        uint64_t now = T0 + random_below(&random, DAY);
        bool taken = false;

        for (unsigned i = 0; i < 200; i++) {
            struct row row = {.now = now, .count = (uint32_t)random_below(&random, 12)};
            if (random_below(&random, 10) == 0)
                row.count = (uint32_t)random_below(&random, convex.capacity + 70);
            row.operation = (enum operation)(LIMIT + random_below(&random, 4));
            if (random_below(&random, 40) == 0)
                row.operation = FORGET;
            /* Windows that passed before a change are paid by whoever looks at them first, at the
             * rate of then: so change right after a take. */
            if (taken && carries && random_below(&random, 20) == 0) {
                row.operation = RECONFIGURE;
                row.count = (uint32_t)random_below(&random, 20) + 1;
                row.retry_after = random_below(&random, 60) + 1;
                if (convex.max_reserved == 0 && row.retry_after <= row.count)
                    row.retry_after = row.count + 1;
            }
            struct answer rules = convex_row(&convex, &row);
            stint_row(&play, &convex, &row, &rules);
            ok += rules.ok;
            refused += !rules.ok;
            reserved += rules.ok && rules.retry_after > 0;
            taken = !is_check(&row) && rules.ok && row.count > 0;
            switch (random_below(&random, 8)) {
            case 0:
                now = convex_window_start(&convex, now) + convex.window;
                taken = false;
                break;
            case 1:
                now = convex_window_start(&convex, now) + convex.window - 1;
                break;
            case 2:
                now += random_below(&random, 4 * convex.window);
                taken = false;
                break;
            }
        }
        play_end(&play);
    }
    print_message("%" PRIu64 " ok, %" PRIu64 " of them reserved, %" PRIu64 " refused\n", ok,
                  reserved, refused);
    assert_true(reserved > 1000 / environment_number("STINT_TEST_DIVISOR", 1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_random_runs),
    };
    return cmocka_run_group_tests_name("convex", tests, NULL, NULL);
}
