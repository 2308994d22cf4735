/* SPDX-License-Identifier: MIT */
#include "fixture.h"

static uint64_t own_time = T0;
uint64_t *test_time_at = &own_time;

_Thread_local uint64_t test_readings;
uint64_t test_step = 3;

uint64_t test_clock(void) {
    return test_moved(__atomic_load_n(&test_time, __ATOMIC_SEQ_CST));
}

void test_begin_call(void) {
    test_readings = 0;
}

uint64_t test_moved(uint64_t time) {
    uint64_t more = test_step * test_readings++, left = STINT_TICK_NS - 1 - time % STINT_TICK_NS;
    if (left > UINT64_MAX - time)
        left = UINT64_MAX - time;
    return time + (more < left || test_step >= STINT_TICK_NS ? more : left);
}

void test_time_share(void) {
    test_time_at = shared_memory(sizeof *test_time_at);
    test_time = T0;
}

const void *test_secret(void) {
    static unsigned char secret[STINT_SECRET_SIZE];
    uint64_t x = 88172645463325252u;
    for (size_t i = 0; i < sizeof secret; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        secret[i] = (unsigned char)(x >> 32);
    }
    return secret;
}

bool emulated(const char *lacks) {
    if (getenv("STINT_TEST_EMULATED") == NULL)
        return false;
    print_message("skipped: qemu-user has no %s\n", lacks);
    return true;
}

struct stint_options fixture_options(uint64_t max_entries, enum stint_on_full on_full) {
    struct stint_options options = STINT_OPTIONS_INIT;
    options.max_entries = max_entries;
    options.on_full = on_full;
    options.clock = test_clock;
    options.secret = test_secret();
    return options;
}

struct stint_limiter *open_with(const struct stint_options *options) {
    struct stint_limiter *limiter = NULL;
    if (stint_open(options, &limiter) != 0)
        fail_msg("%s", stint_reason());
    assert_non_null(limiter);
    return limiter;
}

struct stint_limiter *open_limiter(uint64_t max_entries, enum stint_on_full on_full) {
    struct stint_options options = fixture_options(max_entries, on_full);
    return open_with(&options);
}

uint32_t add_made(struct stint_limiter *limiter, const struct stint_policy *policy) {
    int id = policy_added(limiter, policy);
    if (id < 0)
        fail_msg("policy \"%s\": %s", policy->name, stint_reason());
    return (uint32_t)id;
}

struct stint_policy parsed(const char *text) {
    struct stint_policy policy = STINT_POLICY_INIT;
    if (stint_policy_parse(text, &policy, NULL) != 0)
        fail_msg("%s: %s", text, stint_reason());
    return policy;
}

uint32_t add_text(struct stint_limiter *limiter, const char *text) {
    const struct stint_policy policy = parsed(text);
    return add_made(limiter, &policy);
}

uint32_t add_policy(struct stint_limiter *limiter, const char *name, uint32_t limit,
                    uint64_t window, int64_t start, uint32_t flags) {
    struct stint_policy policy = make_policy(name, limit, window, start, flags);
    return add_made(limiter, &policy);
}

void change_made(struct stint_limiter *limiter, uint32_t id, const struct stint_policy *policy) {
    if (stint_policy_change(limiter, id, policy) != 0)
        fail_msg("policy \"%s\": %s", policy->name, stint_reason());
}

void change_limit(struct stint_limiter *limiter, uint32_t id, uint32_t limit) {
    struct stint_policy policy = STINT_POLICY_INIT;
    assert_int_equal(stint_policy_get(limiter, id, &policy), 0);
    policy.limit = limit;
    change_made(limiter, id, &policy);
}

struct stint_stats get_stats(struct stint_limiter *limiter) {
    struct stint_stats stats = STINT_STATS_INIT;
    assert_int_equal(stint_stats_get(limiter, &stats), 0);
    return stats;
}

struct stint_policy_stats get_policy_stats(struct stint_limiter *limiter, uint32_t id) {
    struct stint_policy_stats stats = STINT_POLICY_STATS_INIT;
    assert_int_equal(stint_policy_stats_get(limiter, id, &stats), 0);
    return stats;
}

struct stint_policy make_policy(const char *name, uint32_t limit, uint64_t window, int64_t start,
                                uint32_t flags) {
    struct stint_policy policy = STINT_POLICY_INIT;
    snprintf(policy.name, sizeof policy.name, "%s", name);
    policy.limit = limit;
    policy.window = window;
    policy.start = start;
    policy.flags = flags;
    return policy;
}

stint_key number_key(const struct stint_limiter *limiter, uint64_t number) {
    return stint_key_of(limiter, &number, sizeof number);
}

static int compare_keys(const void *a, const void *b) {
    const uint64_t x = ((const stint_key *)a)->hash, y = ((const stint_key *)b)->hash;
    return (x > y) - (x < y);
}

void assert_all_differ(stint_key *keys, size_t count) {
    qsort(keys, count, sizeof *keys, compare_keys);
    for (size_t i = 1; i < count; i++)
        assert_false(stint_key_equal(keys[i], keys[i - 1]));
}

void *shared_memory(size_t size) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    return memory;
}

void *fenced_memory(size_t size) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (size + page - 1) / page * page;
    char *start = mmap(NULL, whole + 2 * page, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(start != MAP_FAILED);
    assert_int_equal(mprotect(start + page, whole, PROT_READ | PROT_WRITE), 0);
    return start + page + (whole - size);
}

void fenced_free(void *memory, size_t size) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (size + page - 1) / page * page;
    assert_int_equal(munmap((char *)memory - (whole - size) - page, whole + 2 * page), 0);
}

struct stint_verdict(ask)(struct stint_limiter *limiter, uint32_t id, stint_key key, uint32_t cost,
                          uint32_t flags) {
    const struct stint_request request = {.key = key, .policy = id, .cost = cost, .flags = flags};
    struct stint_verdict verdict;
    memset(&verdict, 0xa5, sizeof verdict);
    bool allowed = stint_decide(limiter, &request, STINT_NOW, &verdict);
    assert_int_equal(allowed, verdict.allowed);
    assert_checked(limiter, &request, verdict.flags);
    return verdict;
}

void assert_checked(struct stint_limiter *limiter, const struct stint_request *request,
                    uint32_t verdict_flags) {
    const int said = stint_request_check(limiter, request);
    const int error = (verdict_flags & STINT_BAD_REQUEST) != 0      ? -EINVAL
                      : (verdict_flags & STINT_UNKNOWN_POLICY) != 0 ? -ENOENT
                                                                    : 0;
    if (said != error && (said != -EPROTO || get_stats(limiter).lost == 0))
        fail_msg("flags %#" PRIx32 " of the verdict, and the check of policy %" PRIu32
                 ", flags %#" PRIx32 " says %d",
                 verdict_flags, request->policy, request->flags, said);
}

uint32_t(used_of)(struct stint_limiter *limiter, uint32_t id, stint_key key) {
    return ask(limiter, id, key, 0, STINT_PEEK).used;
}

uint32_t(refund_by)(struct stint_limiter *limiter, uint32_t id, stint_key key, uint32_t tokens,
                    uint64_t window) {
    struct stint_policy policy = STINT_POLICY_INIT;
    struct stint_verdict verdict = {.policy = id, .granted = tokens, .window = window};
    if (stint_policy_get(limiter, id, &policy) == 0 && policy.burst != 0 && policy.limit != 0) {
        const struct stint_request look = {.key = key, .policy = id, .flags = STINT_PEEK};
        struct stint_verdict now = {0};
        (void)stint_decide(limiter, &look, STINT_NOW, &now);
        verdict.unit = (policy.window + policy.limit - 1) / policy.limit;
        verdict.generation = now.generation;
    }
    return stint_refund(limiter, key, &verdict, tokens);
}

void assert_reason(const char *part) {
    if (strstr(stint_reason(), part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", stint_reason(), part);
}

bool same_verdict(const struct stint_verdict *a, const struct stint_verdict *b) {
    return a->allowed == b->allowed && a->flags == b->flags && a->capacity == b->capacity &&
           a->used == b->used && a->remaining == b->remaining && a->granted == b->granted &&
           a->window == b->window && a->reset_after == b->reset_after &&
           a->retry_after == b->retry_after && a->policy == b->policy &&
           a->generation == b->generation && a->unit == b->unit;
}

const char *policy_text(const struct stint_policy *policy) {
    static char text[512];
    if (stint_policy_format(policy, text, sizeof text) < 0)
        snprintf(text, sizeof text, "no policy: %s", stint_reason());
    return text;
}

const char *verdict_text(const struct stint_verdict *v) {
    static char text[300];
    snprintf(text, sizeof text,
             "%s flags %#" PRIx32 " capacity %" PRIu32 " used %" PRIu32 " remaining %" PRIu32
             " granted %" PRIu32 " window %" PRId64 " reset %" PRIu64 " retry %" PRId64
             " policy %" PRId32 " generation %" PRIu32 " unit %" PRIu64,
             v->allowed ? "allowed" : "refused", v->flags, v->capacity, v->used, v->remaining,
             v->granted, (int64_t)(v->window - T0), v->reset_after, (int64_t)v->retry_after,
             (int32_t)v->policy, v->generation, v->unit);
    return text;
}

void print_verdict(const char *label, const struct stint_verdict *v) {
    print_error("%s: %s\n", label, verdict_text(v));
}

void assert_verdict(const struct stint_verdict *got, const struct stint_verdict *expected,
                    int line) {
    if (same_verdict(got, expected))
        return;
    print_verdict("expected", expected);
    print_verdict("got     ", got);
    fail_msg("line %d", line);
}
