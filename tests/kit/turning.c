/* SPDX-License-Identifier: MIT */
#include "turning.h"

#include "model.h"

enum { KEYS_MOST = 5, WINDOWS = 4096 };

/* What the threads saw of one key in one window. */
struct seen {
    uint32_t granted;
    uint32_t refunded;
    uint32_t refused; /* requests for one token, without STINT_RESERVE */
    uint32_t first_refusals;
    uint64_t end;                /* BY_FIRST: of the window; 0: not seen yet */
    uint64_t least_left;         /* ns, of those granted, and at most the window */
    uint64_t least_refused_left; /* of those refused */
};

struct turning {
    struct stint_limiter *limiter;
    unsigned key_count;
    struct stint_policy policies[KEYS_MOST];
    uint32_t ids[KEYS_MOST];
    stint_key keys[KEYS_MOST];
    struct seen seen[KEYS_MOST][WINDOWS];
    uint64_t phases[KEYS_MOST]; /* where in the window its windows start, plus 1; 0: not seen yet */
    uint64_t wrong_phases;
    uint64_t over_used; /* granted with more used than its room */
    uint64_t seed;
    uint64_t requests; /* of each thread */
    bool mixed;        /* costs above 1, partial takes and refunds as well */
    uint32_t flood;    /* id of the policy of ever new keys; 0: no flood */
};

static void lower(uint64_t *least, uint64_t value) {
    uint64_t seen = __atomic_load_n(least, __ATOMIC_RELAXED);
    while (value < seen && !__atomic_compare_exchange_n(least, &seen, value, false,
                                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

static void note_phase(struct turning *turning, unsigned key, uint64_t window) {
    uint64_t phase = window % turning->policies[key].window + 1, seen = 0;
    if (!__atomic_compare_exchange_n(&turning->phases[key], &seen, phase, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED) &&
        seen != phase)
        __atomic_fetch_add(&turning->wrong_phases, 1, __ATOMIC_RELAXED);
}

/* Ends that are a window apart or more have an index each. */
static void note_end(struct turning *turning, struct seen *window, uint64_t end) {
    uint64_t seen = 0;
    if (!__atomic_compare_exchange_n(&window->end, &seen, end, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED) &&
        seen != end)
        __atomic_fetch_add(&turning->wrong_phases, 1, __ATOMIC_RELAXED);
}

static void turning_body(unsigned member, void *shared) {
    struct turning *turning = shared;
    struct random random = {turning->seed + member};

    for (uint64_t i = 0; i < turning->requests; i++) {
        unsigned key = (unsigned)random_below(&random, turning->key_count);
        const struct stint_policy *policy = &turning->policies[key];
        struct stint_request request = {
            .key = turning->keys[key], .policy = turning->ids[key], .cost = 1};
        struct stint_verdict verdict;

        /* Everybody turns the clock; some decide at a time that they read a while ago. */
        uint64_t now = test_clock();
        if (random_below(&random, 64) == 0)
            __atomic_fetch_add(&test_time, random_below(&random, TICK / 4), __ATOMIC_SEQ_CST);
        if (random_below(&random, 16) == 0)
            sched_yield();
        if (turning->flood != 0 && random_below(&random, 8) == 0)
            stint_take(turning->limiter, turning->flood, random_next(&random), 1, now, NULL);
        if (random_below(&random, 4) != 0)
            now = STINT_NOW;
        if (policy->max_reserved > 0 && random_below(&random, 3) == 0)
            request.flags = STINT_RESERVE;
        if (turning->mixed && random_below(&random, 4) == 0) {
            request.cost = (uint32_t)random_below(&random, 5);
            request.flags |= random_below(&random, 2) == 0 ? STINT_PARTIAL : 0;
        }
        stint_decide(turning->limiter, &request, now, &verdict);
        if ((verdict.flags & STINT_UNTRACKED) != 0)
            continue;
        uint64_t index = (verdict.window - EPOCH) / policy->window;
        if (index >= WINDOWS)
            abort(); /* threads cannot use cmocka's asserts */
        struct seen *seen = &turning->seen[key][index];
        uint64_t left = verdict.reset_after < policy->window ? verdict.reset_after : policy->window;
        if ((policy->flags & STINT_START_FIRST) != 0)
            note_end(turning, seen, verdict.window);
        else
            note_phase(turning, key, verdict.window);
        __atomic_fetch_add(&seen->granted, verdict.granted, __ATOMIC_RELAXED);
        if (verdict.granted > 0) {
            lower(&seen->least_left, left);
            uint32_t room = verdict.capacity;
            if ((request.flags & STINT_RESERVE) != 0)
                room += policy->max_reserved;
            if (verdict.used > room && policy->stripes <= 1)
                __atomic_fetch_add(&turning->over_used, 1, __ATOMIC_RELAXED);
        }
        if (!verdict.allowed && request.cost == 1 && (request.flags & STINT_RESERVE) == 0) {
            __atomic_fetch_add(&seen->refused, 1, __ATOMIC_RELAXED);
            lower(&seen->least_refused_left, left);
        }
        if ((verdict.flags & STINT_FIRST_REFUSAL) != 0)
            __atomic_fetch_add(&seen->first_refusals, 1, __ATOMIC_RELAXED);
        if (turning->mixed && verdict.granted != 0 && random_below(&random, 8) == 0) {
            uint32_t back = stint_refund(turning->limiter, request.policy, request.key,
                                         verdict.granted, verdict.window);
            __atomic_fetch_add(&seen->refunded, back, __ATOMIC_RELAXED);
        }
    }
}

static struct stint_policy policy_of(enum kind kind, unsigned key, uint64_t round) {
    static const uint32_t limits[] = {1, 2, 7, 60, 300};
    struct random random = {round * KEYS_MOST + key};
    struct stint_policy policy = STINT_POLICY_INIT;
    policy.limit = limits[(key + round) % 5];
    policy.window = TICK * (1 + (key * 3 + round) % 7);
    if (kind == PLAIN && policy.limit == 300)
        policy.limit = 1000;
    return kind_drawn(kind, &policy, random_drawn, &random);
}

/* Returns how many windows were full. */
static uint64_t check_key(const struct turning *turning, enum kind kind, unsigned key,
                          uint64_t strays) {
    const struct stint_policy *policy = &turning->policies[key];
    const uint64_t capacity = capacity_of(policy), room = capacity + policy->max_reserved;
    uint64_t full = 0, end = 0;
    struct model_key count = {.window = EPOCH, .known = true};

    for (unsigned w = 0; w < WINDOWS; w++) {
        const struct seen *seen = &turning->seen[key][w];
        if (seen->end != 0) {
            assert_true(seen->end >= end + policy->window);
            end = seen->end;
        }
        count = model_passed_to(policy, count, EPOCH + (w + 1) * policy->window);
        count.used += seen->granted - seen->refunded;
        /* At the least weight that anything granted had, or refused. */
        uint64_t most = count.used;
        if (seen->granted > 0 && !turning->mixed)
            most = model_sum(policy, &count, count.window - seen->least_left);
        uint64_t least = model_sum(policy, &count, count.window - seen->least_refused_left);
        if (most > room) /* A */
            fail_msg("%s, key %u, window %u: %u granted, %u refunded, %llu before: %llu of %llu",
                     kind_names[kind], key, w, seen->granted, seen->refunded,
                     (unsigned long long)count.previous, (unsigned long long)most,
                     (unsigned long long)room);
        if (!turning->mixed && seen->refused > 0 && least + strays < capacity) /* B */
            fail_msg("%s, key %u, window %u: %u refused, %u granted, %llu before: %llu of %llu",
                     kind_names[kind], key, w, seen->refused, seen->granted,
                     (unsigned long long)count.previous, (unsigned long long)least,
                     (unsigned long long)capacity);
        assert_true(seen->first_refusals <= 1);
        if (!turning->mixed && kind != RESERVING)
            assert_int_equal(seen->first_refusals, seen->refused > 0);
        if (kind == PLAIN)
            assert_true(seen->refused == 0 || seen->first_refusals == 1);
        full += seen->refused > 0;
    }
    return full;
}

void check_turning(enum kind kind, uint64_t max_keys, bool mixed) {
    static struct turning turning;
    uint64_t seed = test_seed(), full = 0;

    for (uint64_t round = 0; round < test_rounds(kind == PLAIN ? 12 : 8); round++) {
        memset(&turning, 0, sizeof(turning));
        turning.seed = seed + round * 1000;
        turning.requests = kind == PLAIN ? 40000 : 30000;
        turning.key_count = kind == PLAIN ? 5 : 4;
        turning.mixed = mixed;
        turning.limiter = open_anywhere(max_keys);
        set_time(EPOCH + TICK / 2);
        for (unsigned key = 0; key < turning.key_count; key++) {
            turning.policies[key] = policy_of(kind, key, round);
            snprintf(turning.policies[key].name, STINT_NAME_SIZE, "%u", key);
            turning.ids[key] = add_made(turning.limiter, &turning.policies[key]);
            turning.keys[key] = stint_key_of(turning.limiter, &key, sizeof(key));
            for (unsigned w = 0; w < WINDOWS; w++)
                turning.seen[key][w].least_left = turning.seen[key][w].least_refused_left =
                    turning.policies[key].window;
        }
        if (max_keys == 2 && kind != PLAIN) {
            struct stint_policy policy = STINT_POLICY_INIT;
            strcpy(policy.name, "flood");
            policy.limit = 1;
            policy.window = TICK;
            turning.flood = add_made(turning.limiter, &policy);
        }
        lose_cores(round % 2 == 1);
        run_team(turning_body, &turning);
        lose_cores(false);
        assert_int_equal(turning.wrong_phases, 0);
        assert_int_equal(turning.over_used, 0);
        for (unsigned key = 0; key < turning.key_count; key++)
            full += check_key(&turning, kind, key, get_stats(turning.limiter).stray_tokens);
        stint_close(turning.limiter);
    }
    print_message("%s: %llu full windows\n", kind_names[kind], (unsigned long long)full);
    uint64_t divisor = kind == PLAIN ? 1 : environment_number("STINT_TEST_DIVISOR", 1);
    assert_true(full > 100 / divisor); /* it has put the promises to the test */
}
