/* SPDX-License-Identifier: MIT
 * The calls around the decision: what they refuse, what they say about it, and what they leave
 * alone. */
#pragma GCC diagnostic ignored "-Wnonnull" /* a NULL is given on purpose */

#include "fixture.h"

#include <netinet/in.h>
#include <time.h>

/* Runs first: nothing has failed in this thread yet. */
TEST(test_no_reason_yet) {
    assert_string_equal(stint_reason(), "");
    struct stint_limiter *limiter = open_limiter(10, STINT_FULL_ADMIT);
    add_policy(limiter, "p", 1, MINUTE, 0, 0);
    assert_string_equal(stint_reason(), "");
    /* It stays until the next call that fails. */
    assert_int_equal(policy_found(limiter, NULL), -EINVAL);
    char reason[200];
    snprintf(reason, sizeof reason, "%s", stint_reason());
    assert_true(strlen(reason) > 0);
    add_policy(limiter, "q", 1, MINUTE, 0, 0);
    assert_string_equal(stint_reason(), reason);
    stint_close(limiter);
}

/* ---- Opening ------------------------------------------------------------------------------- */

static struct stint_options good_options(void) {
    return fixture_options(1000, STINT_FULL_ADMIT);
}

static void assert_not_opened(const struct stint_options *options, const char *word) {
    struct stint_limiter *untouched = (struct stint_limiter *)(uintptr_t)0x5a5a;
    struct stint_limiter *limiter = untouched;
    assert_int_equal(stint_open(options, &limiter), -EINVAL);
    assert_ptr_equal(limiter, untouched);
    assert_reason(word);
}

/* (With all flags: memory.c.) */
TEST(test_sizes_and_shards) {
    static const uint64_t sizes[] = {1, 2, 3, 4, 5, 7, 96, 1000, 65537, 3000000};
    struct stint_options options = good_options();
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        options.max_entries = sizes[i];
        struct stint_limiter *limiter = open_with(&options);
        const struct stint_stats stats = get_stats(limiter);
        assert_true(stats.slots >= 2 * sizes[i] && stats.memory >= 16 * stats.slots);
        assert_int_equal(stats.used + stats.live + stats.policies, 0);
        assert_true(stats.shards >= 1 && (stats.shards & (stats.shards - 1)) == 0);
        stint_close(limiter);
    }
    options.max_entries = 100000;
    for (options.shards = 1; options.shards <= STINT_SHARDS_MAX; options.shards *= 2) {
        struct stint_limiter *limiter = open_with(&options);
        assert_int_equal(get_stats(limiter).shards, options.shards);
        stint_close(limiter);
    }
    options.max_entries = options.shards = 8;
    stint_close(open_with(&options));
}

TEST(test_open_errors) {
    struct stint_options options;
#define WRONG(field, value)                                                                        \
    options = good_options();                                                                      \
    options.field = value;                                                                         \
    assert_not_opened(&options, "options." #field)
    WRONG(max_entries, 0);
    WRONG(max_entries, STINT_ENTRIES_MAX + 1);
    WRONG(max_entries, UINT64_MAX);
    WRONG(max_policies, STINT_POLICIES_MAX + 1);
    WRONG(max_policies, UINT32_MAX);
    WRONG(on_full, STINT_FULL_REPLACE + 1);
    WRONG(flags, STINT_READ_ONLY);
    /* Of 1,000 keys 1,024 is too many. */
    static const uint32_t shards[] = {3, 5, 6, 7, 12, 1023, 1024, 65535, UINT32_MAX};
    for (size_t i = 0; i < sizeof shards / sizeof shards[0]; i++) {
        WRONG(shards, shards[i]);
    }
    options.max_entries = 10000000;
    options.shards = 2 * STINT_SHARDS_MAX;
    assert_not_opened(&options, "shards");
}

/* Structs of a later version: what this one does not know must be 0, and is left alone. */
enum { LATER = 40 };
#define STRUCT_LATER(type, name, ...)                                                              \
    struct {                                                                                       \
        struct type known;                                                                         \
        unsigned char later[LATER];                                                                \
    } name = {__VA_ARGS__, {0}};                                                                   \
    name.known.size = sizeof name

TEST(test_larger_structs) {
    static const unsigned char zeros[LATER];
    static const size_t places[] = {0, 1, 8, LATER - 1};
    STRUCT_LATER(stint_options, options, good_options());
    STRUCT_LATER(stint_policy, policy, make_policy("p", 5, MINUTE, 0, 0));
    STRUCT_LATER(stint_stats, stats, STINT_STATS_INIT);
    STRUCT_LATER(stint_policy_stats, counts, STINT_POLICY_STATS_INIT);
    STRUCT_LATER(stint_metrics_options, metrics, STINT_METRICS_OPTIONS_INIT);
    struct stint_limiter *limiter = open_with(&options.known);
    char text[20000];

    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        options.later[places[i]] = policy.later[places[i]] = stats.later[places[i]] =
            metrics.later[places[i]] = 1;
        assert_not_opened(&options.known, "size");
        assert_int_equal(policy_added(limiter, &policy.known), -EINVAL);
        assert_reason("size");
        assert_int_equal(stint_policy_parse("1/s", &policy.known, NULL), -EINVAL);
        assert_int_equal(policy.later[places[i]], 1);
        assert_int_equal(stint_stats_get(limiter, &stats.known), -EINVAL);
        assert_reason("stats.size");
        assert_int_equal(stint_metrics(limiter, &metrics.known, text, sizeof text), -EINVAL);
        options.later[places[i]] = policy.later[places[i]] = stats.later[places[i]] =
            metrics.later[places[i]] = 0;
    }
    assert_true(stint_metrics(limiter, &metrics.known, text, sizeof text) > 0);
    assert_int_equal(policy_added(limiter, &policy.known), 0);
    policy.known.limit = 6;
    assert_int_equal(stint_policy_change(limiter, 0, &policy.known), 0);
    assert_int_equal(stint_policy_parse("7/hour", &policy.known, NULL), 0);
    assert_int_equal(policy.known.limit, 7);
    assert_true(stint_take(limiter, 0, 5, 1, T0, NULL));
    assert_int_equal(stint_policy_get(limiter, 0, &policy.known), 0);
    assert_int_equal(stint_stats_get(limiter, &stats.known), 0);
    assert_int_equal(stint_policy_stats_get(limiter, 0, &counts.known), 0);
    assert_int_equal(policy.known.limit, 6);
    assert_int_equal(stats.known.placed, 1);
    assert_int_equal(counts.known.allowed, 1);
    assert_true(policy.known.size == sizeof policy && stats.known.size == sizeof stats &&
                counts.known.size == sizeof counts);
    assert_memory_equal(policy.later, zeros, LATER);
    assert_memory_equal(stats.later, zeros, LATER);
    assert_memory_equal(counts.later, zeros, LATER);
    stint_close(limiter);
}

/* The beginning of a struct, with nothing after it that can be read or written. */
static void *cut_off(const void *whole, size_t size) {
    return memcpy(fenced_memory(size), whole, size);
}

/* Structs as they began: what they lack is 0, and neither read nor written. */
TEST(test_smaller_structs) {
    struct stint_options whole_options = good_options();
    struct stint_policy whole_policy = STINT_POLICY_INIT;
    struct stint_stats whole_stats = STINT_STATS_INIT;
    struct stint_policy_stats whole_counts = STINT_POLICY_STATS_INIT;
    const size_t options_size = whole_options.size = offsetof(struct stint_options, mode);
    const size_t policy_size = whole_policy.size = offsetof(struct stint_policy, offset);
    const size_t stats_size = whole_stats.size = offsetof(struct stint_stats, processes);
    const size_t counts_size = whole_counts.size = offsetof(struct stint_policy_stats, bans);
    struct stint_options *options = cut_off(&whole_options, options_size);
    struct stint_policy *policy = cut_off(&whole_policy, policy_size);
    struct stint_stats *stats = cut_off(&whole_stats, stats_size);
    struct stint_policy_stats *counts = cut_off(&whole_counts, counts_size);
    struct stint_limiter *limiter, *other;
    const char *wrong = NULL;
    char text[100];
    assert_int_equal(stint_open(options, &limiter), 0);
    const size_t memory = stint_memory_size(options);
    void *room = shared_memory(memory);
    assert_int_equal(stint_open_in(options, room, memory, &other), 0);
    stint_close(other);
    assert_int_equal(munmap(room, memory), 0);

    assert_int_equal(stint_policy_parse("7/hour name=p overrides", policy, &wrong), 0);
    assert_int_equal(policy->size, policy_size);
    assert_int_equal(policy->limit, 7);
    const char *text_too_new = "8/hour name=p ban=1h";
    assert_int_equal(stint_policy_parse(text_too_new, policy, &wrong), -EINVAL);
    assert_reason("policy.size");
    assert_ptr_equal(wrong, text_too_new);
    assert_int_equal(policy->limit, 7);
    assert_int_equal(stint_policy_format(policy, text, sizeof text), 25);
    assert_string_equal(text, "7/hour name=\"p\" overrides");
    uint32_t id = UINT32_MAX;
    assert_int_equal(stint_policy_add(limiter, policy, &id), 0);
    struct stint_policy known = STINT_POLICY_INIT;
    assert_int_equal(stint_policy_get(limiter, id, &known), 0);
    assert_int_equal(known.offset, 0);
    assert_int_equal(known.ban, 0);
    known.ban = HOUR; /* by a newer program */
    assert_int_equal(stint_policy_change(limiter, id, &known), 0);
    policy->limit = 1;
    assert_int_equal(stint_policy_get(limiter, id, policy), 0);
    assert_int_equal(policy->limit, 7);
    assert_int_equal(policy->size, policy_size);
    assert_int_equal(stint_policy_change_check(limiter, id, policy), 0);
    assert_int_equal(stint_policy_change(limiter, id, policy), 0);
    assert_int_equal(stint_policy_get(limiter, id, &known), 0);
    assert_int_equal(known.ban, 0);

    assert_true(stint_take(limiter, id, 5, 1, T0, NULL));
    assert_int_equal(stint_stats_get(limiter, stats), 0);
    assert_int_equal(stats->size, stats_size);
    assert_int_equal(stats->placed, 1);
    assert_int_equal(stint_policy_stats_get(limiter, id, counts), 0);
    assert_int_equal(counts->size, counts_size);
    assert_int_equal(counts->allowed, 1);

    /* Less is no struct, nor is more than a page: it is not even looked at. */
    for (int i = 0; i < 4; i++) {
        const size_t others[] = {0, 1, 4097, SIZE_MAX};
        options->size = i == 0 ? options_size - 1 : others[i];
        policy->size = i == 0 ? policy_size - 1 : others[i];
        stats->size = i == 0 ? stats_size - 1 : others[i];
        counts->size = i == 0 ? counts_size - 1 : others[i];
#define NO_STRUCT(call)                                                                            \
    assert_int_equal(call, -EINVAL);                                                               \
    assert_reason("size")
        assert_not_opened(options, "size");
        NO_STRUCT(stint_resize("/nowhere", options));
        NO_STRUCT(stint_policy_add(limiter, policy, &id));
        NO_STRUCT(stint_policy_change(limiter, id, policy));
        NO_STRUCT(stint_policy_get(limiter, id, policy));
        NO_STRUCT(stint_policy_parse("1/s", policy, NULL));
        NO_STRUCT(stint_policy_format(policy, text, sizeof text));
        NO_STRUCT(stint_stats_get(limiter, stats));
        NO_STRUCT(stint_policy_stats_get(limiter, id, counts));
        assert_int_equal(policy->limit, 7);
        assert_int_equal(stats->placed, 1);
    }
    stint_close(limiter);
    fenced_free(options, options_size);
    fenced_free(policy, policy_size);
    fenced_free(stats, stats_size);
    fenced_free(counts, counts_size);
}

TEST(test_clocks) {
    struct stint_options options = good_options();
    struct stint_limiter *limiter = open_with(&options);
    test_time = T0 + 12345;
    assert_true(stint_now(limiter) == T0 + 12345);
    test_time = T0 + 12346;
    assert_true(stint_now(limiter) == T0 + 12346);
    stint_close(limiter);

    /* Without one, it is the machine's. */
    for (int precise = 0; precise < 2; precise++) {
        clockid_t id = precise ? CLOCK_REALTIME : CLOCK_REALTIME_COARSE;
        options.clock = NULL;
        options.flags = precise ? STINT_PRECISE_CLOCK : 0;
        limiter = open_with(&options);
        struct timespec before, after;
        clock_gettime(id, &before);
        uint64_t now = stint_now(limiter);
        clock_gettime(id, &after);
        assert_true(now >= (uint64_t)before.tv_sec * SECOND + (uint64_t)before.tv_nsec);
        assert_true(now <= (uint64_t)after.tv_sec * SECOND + (uint64_t)after.tv_nsec);
        stint_close(limiter);
    }
}

/* ---- Policies ------------------------------------------------------------------------------ */

static void assert_name(struct stint_limiter *limiter, const char *name, bool good) {
    struct stint_policy policy = make_policy("", 10, MINUTE, 0, 0);
    memcpy(policy.name, name, sizeof policy.name);
    const uint32_t policies = get_stats(limiter).policies;
    assert_int_equal(policy_added(limiter, &policy), good ? (int)policies : -EINVAL);
    if (!good)
        assert_reason("name");
    else
        assert_int_equal(policy_found(limiter, policy.name), policies);
    assert_int_equal(get_stats(limiter).policies, policies + good);
}

/* (All other fields: windows.c.) */
TEST(test_policy_names) {
    struct stint_options options = good_options();
    options.max_policies = 1000;
    struct stint_limiter *limiter = open_with(&options);
    char name[STINT_NAME_SIZE];
    for (int c = 1; c < 256; c++) /* printable ASCII, first and last */
        for (int place = 0; place <= 3; place += 3) {
            snprintf(name, sizeof name, place == 0 ? "name" : "other");
            name[place] = (char)c;
            assert_name(limiter, name, c >= 0x20 && c <= 0x7e);
        }
    memset(name, 'x', sizeof name); /* no NUL */
    assert_name(limiter, name, false);
    name[sizeof name - 1] = '\0';
    assert_name(limiter, name, true);
    stint_close(limiter);
}

/* A name is found as a whole, and is not changed. (What else may change: apply.c. That a check only
 * looks: words.c.) */
TEST(test_names_are_whole) {
    static const char *const others[] = {"ap", "apis", "API", "apj"};
    struct stint_limiter *limiter = open_limiter(100, STINT_FULL_ADMIT);
    const uint32_t id = add_policy(limiter, "api", 100, MINUTE, 0, 0);
    struct stint_policy got = STINT_POLICY_INIT;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        const struct stint_policy policy = make_policy(others[i], 7, MINUTE, 0, 0);
        assert_int_equal(policy_found(limiter, others[i]), -ENOENT);
        assert_int_equal(stint_policy_change_check(limiter, id, &policy), -EINVAL);
        assert_reason("name");
        assert_int_equal(stint_policy_change(limiter, id, &policy), -EINVAL);
        assert_reason("name");
    }
    assert_int_equal(policy_found(limiter, "api"), id);
    assert_int_equal(stint_policy_get(limiter, id, &got), 0);
    assert_int_equal(stint_policy_get(limiter, id + 1, &got), -ENOENT);
    assert_string_equal(got.name, "api");
    assert_int_equal(got.limit, 100);
    stint_close(limiter);
}

/* Tables of many sizes, filled with names that are alike, by two handles; of 4,096 policies, too,
 * in well under a second. */
TEST(test_policy_table) {
    static const uint32_t sizes[] = {0, 1, 2, 65, 3000, STINT_POLICIES_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct stint_options options = good_options();
        options.max_policies = sizes[i];
        const size_t size = stint_memory_size(&options);
        const uint32_t most = sizes[i] ? sizes[i] : 64;
        void *memory = shared_memory(size);
        struct stint_limiter *handles[2];
        char name[STINT_NAME_SIZE];
        for (int h = 0; h < 2; h++)
            assert_int_equal(stint_open_in(&options, memory, size, &handles[h]), 0);
        for (uint32_t p = 0; p < most; p++) {
            snprintf(name, sizeof name, "%060" PRIu32, p);
            assert_int_equal(policy_found(handles[p % 3 == 0], name), -ENOENT);
            assert_int_equal(add_policy(handles[p % 2], name, p + 1, MINUTE, 0, 0), p);
            assert_int_equal(add_policy(handles[p % 5 < 2], name, p + 1, MINUTE, 0, 0), p);
        }
        struct stint_policy more = make_policy("one more", 1, MINUTE, 0, 0);
        assert_int_equal(policy_added(handles[0], &more), -ENOSPC);
        assert_reason("max_policies");
        for (uint32_t p = 0; p < 2 * most; p++) {
            snprintf(name, sizeof name, "%060" PRIu32, p / 2);
            assert_int_equal(policy_found(handles[p % 2], name), p / 2);
            assert_int_equal(ask(handles[p % 2], p / 2, 5, 1, STINT_PEEK).capacity, p / 2 + 1);
        }
        assert_int_equal(get_stats(handles[0]).policies, most);
        assert_int_equal(ask(handles[0], most, 5, 1, 0).flags, STINT_UNKNOWN_POLICY);
        for (int h = 0; h < 2; h++)
            stint_close(handles[h]);
        munmap(memory, size);
    }
}

/* ---- Keys ---------------------------------------------------------------------------------- */

/* Keys stay what they are: a table in a file outlives the process that made it, and servers of
 * several versions may share it. (That keys which are alike differ: attacks.c.) */
TEST(test_keys_stay) {
    static const struct {
        size_t length;
        uint64_t key, joined;
    } expected[] = {
        {0, UINT64_C(0x4866204368c88f08), UINT64_C(0x27bb041adc5c5aab)},
        {3, UINT64_C(0x6abfa65f68f7e0b8), UINT64_C(0x0e68b860abd630da)},
        {8, UINT64_C(0xd0e28e8f90f64c63), UINT64_C(0xb57ecbc9ad8206de)},
        {16, UINT64_C(0x6e8e1ddb1b849126), UINT64_C(0x26a674f6dd603dec)},
        {128, UINT64_C(0xa97fb2e70440ef47), UINT64_C(0x29f509df03ae14e2)},
        {240, UINT64_C(0x039b90b8629165ed), UINT64_C(0x36ae496d413b6122)},
        {1024, UINT64_C(0x56f4cc2d1d456395), UINT64_C(0x5739cde6b2f8c7a3)},
        {1 << 20, UINT64_C(0xfd8b9d9d6295ae3f), UINT64_C(0xca9ca21181408c2e)},
    };
    struct stint_limiter *limiter = open_limiter(100, STINT_FULL_ADMIT);
    static unsigned char bytes[1 << 20];

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 7 + i / 256);
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        stint_key key = stint_key_of(limiter, bytes, expected[i].length);
        assert_int_equal(key.hash, expected[i].key);
        assert_int_equal(stint_key_join(limiter, key, bytes, expected[i].length).hash,
                         expected[i].joined);
    }
    assert_int_equal(stint_key_join(limiter, 7, bytes, 8).hash, UINT64_C(0x525c1ea04fb307c4));
    assert_int_equal(stint_key_of_id(limiter, 0).hash, UINT64_C(0xbd68ede9d59c1c98));
    assert_int_equal(stint_key_of_id(limiter, 1).hash, UINT64_C(0xf626b729bf858d7e));
    assert_int_equal(stint_key_of_id(limiter, UINT64_MAX).hash, UINT64_C(0xc0207cf220f97f12));
    stint_close(limiter);
}

/* Promise I, in a batch: keys that only their home lines tell apart have the same tag, so each is
 * to be looked for at its own line. */
TEST(test_same_tags_in_a_batch) {
    enum { N = 60 };
    struct stint_limiter *limiter = open_limiter(10000, STINT_FULL_REFUSE);
    uint32_t id = add_policy(limiter, "", 1, MINUTE, 0, 0);
    struct stint_request requests[N];
    for (uint64_t i = 0; i < N; i++)
        requests[i] = (struct stint_request){.key = {i << 58 | 12345}, .policy = id, .cost = 1};
    assert_int_equal(stint_decide_batch(limiter, requests, 1, T0, NULL), 1);
    assert_int_equal(stint_decide_batch(limiter, requests, N, T0, NULL), N - 1);
    assert_int_equal(stint_decide_batch(limiter, requests, N, T0, NULL), 0);
    assert_int_equal(get_stats(limiter).live, N);
    stint_close(limiter);
}

TEST(test_secrets) {
    enum { MADE = 4 };
    static const unsigned char bytes[300];
    const struct sockaddr_in address = {.sin_family = AF_INET};
    unsigned char secret[STINT_SECRET_SIZE];
    struct stint_options options = good_options();
    struct stint_limiter *limiters[5];
    stint_key keys[5][MADE];
    memcpy(secret, test_secret(), sizeof secret);
    options.secret = secret;
    limiters[0] = open_with(&options);
    limiters[1] = open_with(&options);
    for (size_t i = 0; i < sizeof secret; i++)
        secret[i] = (unsigned char)(i * i * 31 + 7 * i); /* it was copied */
    limiters[2] = open_with(&options);
    options.secret = NULL; /* random ones */
    limiters[3] = open_with(&options);
    limiters[4] = open_with(&options);
    for (size_t length = 0; length <= 300; length++) {
        for (unsigned i = 0; i < 5; i++) {
            keys[i][0] = stint_key_of(limiters[i], bytes, length);
            keys[i][1] = stint_key_join(limiters[i], 7, bytes, length);
            keys[i][2] = stint_key_of_id(limiters[i], length);
            keys[i][3] = stint_key_address(limiters[i], (const struct sockaddr *)&address, 24, 0);
        }
        for (unsigned made = 0; made < MADE; made++) {
            assert_true(stint_key_equal(keys[0][made], keys[1][made]));
            for (unsigned i = 2; i < 5; i++)
                for (unsigned j = 1; j < i; j++)
                    assert_false(stint_key_equal(keys[i][made], keys[j][made]));
        }
    }
    for (unsigned i = 0; i < 5; i++)
        stint_close(limiters[i]);
}

/* ---- NULL ---------------------------------------------------------------------------------- */

/* What each call makes of NULL. Each pointer of stint.h that may be NULL, or is then -EINVAL, is
 * NULL in one of them: the test `header` asks for that. */
#define WITH_NULL(wanted, call) assert_with_null(#call, (int64_t)(call), wanted)

static void assert_with_null(const char *call, int64_t got, int64_t wanted) {
    if (got != wanted)
        fail_msg("%s gives %" PRId64 ", not %" PRId64, call, got, wanted);
    if (wanted == -EINVAL)
        assert_reason("NULL");
}

TEST(test_null_opening) {
    struct stint_options options = good_options();
    struct stint_limiter *limiter;
    WITH_NULL(-EINVAL, stint_open(NULL, &limiter));
    WITH_NULL(-EINVAL, stint_open(&options, NULL));
    WITH_NULL(0, stint_memory_size(NULL));
    assert_reason("NULL");
    const size_t size = stint_memory_size(&options);
    void *memory = aligned_alloc(64, size);
    assert_non_null(memory);
    WITH_NULL(-EINVAL, stint_open_in(NULL, memory, size, &limiter));
    WITH_NULL(-EINVAL, stint_open_in(&options, NULL, size, &limiter));
    WITH_NULL(-EINVAL, stint_open_in(&options, memory, size, NULL));
    free(memory);
    options = (struct stint_options){.size = sizeof(options), .path = "/none/of/that/name"};
    WITH_NULL(-EINVAL, stint_attach(NULL, &limiter));
    WITH_NULL(-EINVAL, stint_attach(&options, NULL));
    WITH_NULL(-EINVAL, stint_resize(NULL, &options));
    WITH_NULL(-ENOENT, stint_resize(options.path, NULL));
    WITH_NULL(0, stint_on_sigbus(NULL));
    stint_close(NULL);
}

TEST(test_null_policies) {
    struct stint_limiter *limiter = open_limiter(100, STINT_FULL_ADMIT);
    struct stint_policy policy = STINT_POLICY_INIT;
    const char *wrong;
    char text[100];
    uint32_t id;
    WITH_NULL(-EINVAL, stint_policy_parse(NULL, &policy, &wrong));
    WITH_NULL(-EINVAL, stint_policy_parse("2/day", NULL, &wrong));
    WITH_NULL(0, stint_policy_parse("2/day name=p", &policy, NULL));
    WITH_NULL(-EINVAL, stint_policy_format(NULL, text, sizeof(text)));
    WITH_NULL(-EINVAL, stint_policy_format(&policy, NULL, sizeof(text)));
    WITH_NULL(14, stint_policy_format(&policy, NULL, 0));
    WITH_NULL(-EINVAL, stint_policy_note(NULL, text, sizeof(text)));
    WITH_NULL(-EINVAL, stint_policy_note(&policy, NULL, sizeof(text)));
    WITH_NULL(-EINVAL, stint_policy_add(NULL, &policy, &id));
    WITH_NULL(-EINVAL, stint_policy_add(limiter, NULL, &id));
    WITH_NULL(0, stint_policy_add(limiter, &policy, NULL));
    WITH_NULL(-EINVAL, stint_policy_change(NULL, 0, &policy));
    WITH_NULL(-EINVAL, stint_policy_change(limiter, 0, NULL));
    WITH_NULL(-EINVAL, stint_policy_change_check(NULL, 0, &policy));
    WITH_NULL(-EINVAL, stint_policy_change_check(limiter, 0, NULL));
    WITH_NULL(-EINVAL, stint_policies_apply(NULL, "3/day", 0, NULL, NULL, NULL));
    WITH_NULL(-EINVAL, stint_policies_apply(limiter, NULL, 0, NULL, NULL, NULL));
    WITH_NULL(0, stint_policies_apply(limiter, "3/day name=p", 0, NULL, NULL, NULL));
    WITH_NULL(-EINVAL, stint_policy_find(NULL, "p", &id));
    WITH_NULL(-EINVAL, stint_policy_find(limiter, NULL, &id));
    WITH_NULL(0, stint_policy_find(limiter, "p", NULL));
    WITH_NULL(-EINVAL, stint_policy_get(NULL, 0, &policy));
    WITH_NULL(-EINVAL, stint_policy_get(limiter, 0, NULL));
    WITH_NULL(-EINVAL, stint_policy_remove(NULL, 0));
    stint_close(limiter);
}

TEST(test_null_deciding) {
    test_time = T0;
    struct stint_limiter *limiter = open_limiter(100, STINT_FULL_ADMIT);
    const uint32_t id = add_policy(limiter, "p", 9, MINUTE, 0, STINT_OVERRIDES);
    const stint_key key = stint_key_of(limiter, NULL, 0);
    const struct stint_request request =
        STINT_REQUEST(id, stint_key_join(limiter, key, NULL, 0), 1);
    const size_t one = 1;
    uint32_t limit;
    uint64_t until;

    WITH_NULL(true, stint_take(limiter, id, key, 1, T0, NULL));
    WITH_NULL(true, stint_decide(limiter, &request, T0, NULL));
    WITH_NULL(-EINVAL, stint_request_check(NULL, &request));
    WITH_NULL(-EINVAL, stint_request_check(limiter, NULL));
    stint_prefetch(limiter, STINT_KEY_GLOBAL);
    stint_prefetch(limiter, UINT64_MAX);
    WITH_NULL(0, stint_decide_batch(limiter, NULL, 0, T0, NULL));
    WITH_NULL(1, stint_decide_batch(limiter, &request, 1, T0, NULL));
    WITH_NULL(true, stint_decide_all(limiter, NULL, 0, T0, NULL));
    WITH_NULL(true, stint_decide_all(limiter, &request, 1, T0, NULL));
    WITH_NULL(0, stint_decide_groups(limiter, NULL, 0, NULL, 0, T0, NULL));
    WITH_NULL(1, stint_decide_groups(limiter, &request, 1, &one, 1, T0, NULL));
    WITH_NULL(0, stint_refund_all(limiter, NULL, NULL, 0));
    WITH_NULL(0, stint_tightest(NULL, 0));
    WITH_NULL(-EINVAL, stint_override(NULL, id, key, 5, T0 + HOUR));
    WITH_NULL(0, stint_override(limiter, id, key, 5, T0 + HOUR));
    WITH_NULL(-EINVAL, stint_override_get(NULL, id, key, &limit, &until));
    WITH_NULL(0, stint_override_get(limiter, id, key, NULL, NULL));
    WITH_NULL(-EINVAL, stint_override_clear(NULL, id, key));
    stint_close(limiter);
}

TEST(test_null_watching) {
    struct stint_limiter *limiter = open_limiter(100, STINT_FULL_ADMIT);
    const uint32_t id = add_policy(limiter, "p", 9, MINUTE, 0, 0);
    const stint_key key = number_key(limiter, 1);
    struct stint_stats stats = STINT_STATS_INIT;
    struct stint_policy_stats policy_stats = STINT_POLICY_STATS_INIT;
    const struct stint_metrics_options options = STINT_METRICS_OPTIONS_INIT;
    const struct stint_verdict verdict = {.allowed = true};
    char text[10000];
    WITH_NULL(-EINVAL, stint_stats_get(NULL, &stats));
    WITH_NULL(-EINVAL, stint_stats_get(limiter, NULL));
    WITH_NULL(-EINVAL, stint_policy_stats_get(NULL, id, &policy_stats));
    WITH_NULL(-EINVAL, stint_policy_stats_get(limiter, id, NULL));
    WITH_NULL(-EINVAL, stint_each(NULL, entry_ignore, NULL));
    WITH_NULL(-EINVAL, stint_each(limiter, NULL, NULL));
    WITH_NULL(0, stint_each(limiter, entry_ignore, NULL));
    WITH_NULL(-EINVAL, stint_each_of(NULL, key, entry_ignore, NULL));
    WITH_NULL(-EINVAL, stint_each_of(limiter, key, NULL, NULL));
    WITH_NULL(0, stint_each_of(limiter, key, entry_ignore, NULL));
    WITH_NULL(-EINVAL, stint_label(NULL, key, "name", 4));
    WITH_NULL(-EINVAL, stint_label(limiter, key, NULL, 4));
    WITH_NULL(-ENOENT, stint_label(limiter, key, "name", 4));
    assert_reason("options.labels"); /* it has none */
    WITH_NULL(-EINVAL, stint_metrics(NULL, &options, text, sizeof(text)));
    WITH_NULL(-EINVAL, stint_metrics(limiter, &options, NULL, sizeof(text)));
    WITH_NULL(stint_metrics(limiter, NULL, text, sizeof(text)),
              stint_metrics(limiter, &options, NULL, 0));
    WITH_NULL(-EINVAL, stint_headers(NULL, 0, &verdict, 1, text, sizeof(text)));
    WITH_NULL(-EINVAL, stint_headers(limiter, 0, NULL, 1, text, sizeof(text)));
    WITH_NULL(-EINVAL, stint_headers(limiter, 0, &verdict, 1, NULL, sizeof(text)));
    WITH_NULL(0, stint_headers(limiter, 0, NULL, 0, NULL, 0));
    stint_close(limiter);
}

/* ---- Flags --------------------------------------------------------------------------------- */

/* What is refused of a call that is given these flags, all else being right. */
enum given { TO_POLICY, TO_REQUEST, TO_OPTIONS, TO_APPLY, TO_METRICS, TO_HEADERS };

static int give(struct stint_limiter *limiter, enum given given, uint32_t flags) {
    struct stint_policy policy = make_policy("given", 9, MINUTE, 0, flags);
    const struct stint_request request = {.cost = 1, .flags = flags};
    struct stint_options options = good_options();
    struct stint_metrics_options metrics = STINT_METRICS_OPTIONS_INIT;
    struct stint_verdict verdict;
    struct stint_limiter *other;
    options.flags = metrics.flags = flags;
    switch (given) {
    case TO_POLICY:
        return stint_policy_add(limiter, &policy, NULL);
    case TO_REQUEST:
        stint_decide(limiter, &request, STINT_NOW, &verdict);
        assert_int_equal(verdict.flags, STINT_BAD_REQUEST);
        return stint_request_check(limiter, &request);
    case TO_OPTIONS:
        return stint_open(&options, &other);
    case TO_APPLY:
        return stint_policies_apply(limiter, "9/m name=p", flags, NULL, NULL, NULL);
    case TO_METRICS:
        return stint_metrics(limiter, &metrics, NULL, 0);
    case TO_HEADERS:
        return stint_headers(limiter, flags, &(struct stint_verdict){0}, 1, NULL, 0);
    }
    return 0;
}

/* A flag of no kind of input is one of another, and each call refuses all but its own. */
TEST(test_flags_of_other_kinds) {
    static const struct {
        uint32_t flags, one; /* all of the kind; one that goes with all */
        const char *reason;
    } kinds[] = {
        {STINT_COUNT_REFUSED | STINT_SHADOW | STINT_START_PER_KEY | STINT_SMOOTH |
             STINT_START_FIRST | STINT_IN_FLIGHT | STINT_OVERRIDES,
         STINT_SHADOW, "policy.flags has a flag that is none of enum stint_policy_flags"},
        {STINT_PEEK | STINT_PARTIAL | STINT_DRAIN | STINT_RESERVE | STINT_CHARGE | STINT_TENTATIVE,
         STINT_PEEK, "in which some flag is none of enum stint_request_flags"},
        {STINT_PREFAULT | STINT_SMALL_PAGES | STINT_PRECISE_CLOCK | STINT_READ_ONLY,
         STINT_SMALL_PAGES, "options.flags has a flag that is none of enum stint_options_flags"},
        {STINT_DRY_RUN | STINT_PRUNE, STINT_DRY_RUN,
         "flags has a flag that is none of enum stint_apply_flags"},
        {STINT_METRICS_NO_EOF | STINT_METRICS_NO_SCAN, STINT_METRICS_NO_EOF,
         "options.flags has a flag that is none of enum stint_metrics_flags"},
        {STINT_HEADERS_DRAFT | STINT_HEADERS_LEGACY, STINT_HEADERS_DRAFT,
         "style has a flag that is none of enum stint_headers_style"},
    };
    struct stint_limiter *limiter = open_limiter(100, STINT_FULL_ADMIT);
    add_policy(limiter, "p", 9, MINUTE, 0, 0);
    uint32_t known = 0;
    for (enum given given = TO_POLICY; given <= TO_HEADERS; given++) {
        assert_int_equal(known & kinds[given].flags, 0);
        known |= kinds[given].flags;
        for (unsigned bit = 0; bit < 32; bit++) {
            if ((kinds[given].flags >> bit & 1) != 0)
                continue;
            assert_int_equal(give(limiter, given, UINT32_C(1) << bit), -EINVAL);
            assert_reason(kinds[given].reason);
            assert_int_equal(give(limiter, given, UINT32_C(1) << bit | kinds[given].one), -EINVAL);
            assert_reason(kinds[given].reason);
        }
    }
    stint_close(limiter);
}

/* ---- Messages ------------------------------------------------------------------------------ */

TEST(test_messages) {
    static const int errors[] = {EINVAL, ENOMEM, EEXIST, ENOSPC,     ENOENT,
                                 EAGAIN, EPROTO, EBUSY,  EOPNOTSUPP, EACCES};
    size_t n = sizeof errors / sizeof errors[0];
    for (size_t i = 0; i < n; i++) {
        const char *text = stint_strerror(errors[i]);
        assert_non_null(text);
        assert_true(strlen(text) > 5);
        assert_string_equal(text, stint_strerror(-errors[i]));
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(text, stint_strerror(errors[j]));
    }
    static const int others[] = {0, 1, -1, 9999, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        assert_non_null(stint_strerror(others[i]));
        assert_true(strlen(stint_strerror(others[i])) > 0);
    }

    unsigned major, minor, patch;
    char version[64];
    assert_int_equal(sscanf(stint_version(), "%u.%u.%u", &major, &minor, &patch), 3);
    snprintf(version, sizeof version, "%u.%u.%u", major, minor, patch);
    assert_string_equal(stint_version(), version);
}
