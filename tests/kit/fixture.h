/* SPDX-License-Identifier: MIT
 * What the tests of the public interface share: a limiter on a made-up clock, processes and memory
 * for them, and the comparison of two verdicts in all their fields. */
#ifndef STINT_TESTS_FIXTURE_H
#define STINT_TESTS_FIXTURE_H

#include "test.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "policy_id.h"
#include "stint.h"

static inline pid_t forked(void) {
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    return child;
}

/* What waitpid says of it. */
static inline int status_of(pid_t child) {
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

/* It ended with exit code 0. */
static inline void assert_good(pid_t child) {
    const int status = status_of(child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("the child ended with status %#x", (unsigned)status);
}

#define MS     UINT64_C(1000000)
#define SECOND (1000 * MS)
#define MINUTE (60 * SECOND)
#define HOUR   (60 * MINUTE)
#define DAY    (24 * HOUR)

/* How far a clock may be behind a window's usual end before it counts as stepped back. */
#define ALLOWANCE MINUTE

/* 2024-01-01T00:00:00Z, a whole minute, hour and day. */
#define T0 (UINT64_C(1704067200) * SECOND)

extern uint64_t *test_time_at;
#define test_time (*test_time_at) /* ns; T0 at first; turned by the tests, read by all threads */

/* From now on it is the clock of the children, too, and T0 again. */
void test_time_share(void);

/* The clock of the tests. As one of ns does, it has moved whenever it is read again: a call reads
 * test_time first, and test_step more at each further reading; but one in the same tick, if the
 * step is less than one. Between two calls it stands, so that tests know to the ns what a verdict
 * tells. */
uint64_t test_clock(void);
extern uint64_t test_step; /* ns; 3 */

/* How often a decision may read the clock while nobody else writes: once for its now, and again to
 * tell a late thread from a step, of each slot that it looks at. */
#define READINGS_MOST 20

/* What a clock that says `time` says at this reading. For clocks of a test's own. */
uint64_t test_moved(uint64_t time);

extern _Thread_local uint64_t test_readings; /* of the thread's last call */
void test_begin_call(void);

#define BEGIN_CALL(limiter) (test_begin_call(), (limiter))

/* Tests may name keys by numbers, which are then their hashes. */
static inline stint_key key_itself(stint_key key) {
    return key;
}
static inline stint_key key_of_number(uint64_t hash) {
    return (stint_key){hash};
}
#define KEY_OF(key) _Generic((key), stint_key : key_itself, default : key_of_number)(key)
#undef STINT_REQUEST
#define STINT_REQUEST(policy, key, cost)                                                           \
    { KEY_OF(key), policy, cost, 0, 0, 0, 0 }

#define stint_take(limiter, policy, key, ...)                                                      \
    stint_take(BEGIN_CALL(limiter), policy, KEY_OF(key), __VA_ARGS__)
#define stint_decide(limiter, ...)        stint_decide(BEGIN_CALL(limiter), __VA_ARGS__)
#define stint_decide_batch(limiter, ...)  stint_decide_batch(BEGIN_CALL(limiter), __VA_ARGS__)
#define stint_decide_all(limiter, ...)    stint_decide_all(BEGIN_CALL(limiter), __VA_ARGS__)
#define stint_decide_groups(limiter, ...) stint_decide_groups(BEGIN_CALL(limiter), __VA_ARGS__)
#define stint_refund(limiter, k, ...)     stint_refund(BEGIN_CALL(limiter), KEY_OF(k), __VA_ARGS__)
#define stint_refund_all(limiter, ...)    stint_refund_all(BEGIN_CALL(limiter), __VA_ARGS__)
#define stint_reset(limiter, policy, key) stint_reset(BEGIN_CALL(limiter), policy, KEY_OF(key))
#define stint_override(limiter, policy, key, ...)                                                  \
    stint_override(BEGIN_CALL(limiter), policy, KEY_OF(key), __VA_ARGS__)
#define stint_override_get(limiter, policy, key, ...)                                              \
    stint_override_get(BEGIN_CALL(limiter), policy, KEY_OF(key), __VA_ARGS__)
#define stint_override_clear(limiter, policy, key)                                                 \
    stint_override_clear(BEGIN_CALL(limiter), policy, KEY_OF(key))
#define stint_stats_get(limiter, ...) stint_stats_get(BEGIN_CALL(limiter), __VA_ARGS__)
#define stint_each(limiter, ...)      stint_each(BEGIN_CALL(limiter), __VA_ARGS__)
#define stint_each_of(limiter, key, ...)                                                           \
    stint_each_of(BEGIN_CALL(limiter), KEY_OF(key), __VA_ARGS__)
#define stint_label(limiter, key, ...)    stint_label(limiter, KEY_OF(key), __VA_ARGS__)
#define stint_prefetch(limiter, key)      stint_prefetch(limiter, KEY_OF(key))
#define stint_key_join(limiter, key, ...) stint_key_join(limiter, KEY_OF(key), __VA_ARGS__)
#define stint_now(limiter)                stint_now(BEGIN_CALL(limiter))

/* The same hashes in every run, so that a failure comes back. */
const void *test_secret(void);

/* qemu-user leaves some of the kernel's work undone. Who runs the tests under it says so
 * (aarch64.ini). */
bool emulated(const char *lacks);

/* Those with the test's clock and secret. */
struct stint_options fixture_options(uint64_t max_entries, enum stint_on_full on_full);

/* All of these must succeed. */
struct stint_limiter *open_with(const struct stint_options *options);
struct stint_limiter *open_limiter(uint64_t max_entries, enum stint_on_full on_full);
uint32_t add_made(struct stint_limiter *limiter, const struct stint_policy *policy);
uint32_t add_policy(struct stint_limiter *limiter, const char *name, uint32_t limit,
                    uint64_t window, int64_t start, uint32_t flags);
struct stint_policy parsed(const char *text);
uint32_t add_text(struct stint_limiter *limiter, const char *text);
void change_made(struct stint_limiter *limiter, uint32_t id, const struct stint_policy *policy);
void change_limit(struct stint_limiter *limiter, uint32_t id, uint32_t limit);
struct stint_stats get_stats(struct stint_limiter *limiter);
struct stint_policy_stats get_policy_stats(struct stint_limiter *limiter, uint32_t id);

struct stint_policy make_policy(const char *name, uint32_t limit, uint64_t window, int64_t start,
                                uint32_t flags);

stint_key number_key(const struct stint_limiter *limiter, uint64_t number);

/* For stint_each, with no context. */
static inline bool entry_ignore(void *context, const struct stint_entry *entry) {
    return context == NULL && entry != NULL;
}

/* No two of them are one. It sorts them. */
void assert_all_differ(stint_key *keys, size_t count);

/* Zeroed, and shared with the children of this process. */
void *shared_memory(size_t size);

/* The same, between two pages that nobody may touch: it ends where the second begins. */
void *fenced_memory(size_t size);
void fenced_free(void *memory, size_t size);

/* Asks at the clock's time. */
struct stint_verdict ask(struct stint_limiter *limiter, uint32_t id, stint_key key, uint32_t cost,
                         uint32_t flags);
uint32_t used_of(struct stint_limiter *limiter, uint32_t id, stint_key key);
/* Gives back by a verdict that granted so many in the window with that end: by one that the test
 * does not have, or by a copy. A bucket's tokens took the policy's T. */
uint32_t refund_by(struct stint_limiter *limiter, uint32_t id, stint_key key, uint32_t tokens,
                   uint64_t window);
#define refund_by(limiter, id, key, ...) refund_by(limiter, id, KEY_OF(key), __VA_ARGS__)
#define ask(limiter, id, key, ...)       ask(limiter, id, KEY_OF(key), __VA_ARGS__)
#define used_of(limiter, id, key)        used_of(limiter, id, KEY_OF(key))

/* The reason of the last error has this part. */
void assert_reason(const char *part);
/* stint_request_check says of a request what its verdict said. */
void assert_checked(struct stint_limiter *limiter, const struct stint_request *request,
                    uint32_t verdict_flags);

bool same_verdict(const struct stint_verdict *a, const struct stint_verdict *b);
/* All that it says, until the next such call. Its times are ns since T0. */
const char *policy_text(const struct stint_policy *policy);
const char *verdict_text(const struct stint_verdict *v);
void print_verdict(const char *label, const struct stint_verdict *v);
/* Fails, and prints both, unless they are the same. */
void assert_verdict(const struct stint_verdict *got, const struct stint_verdict *expected,
                    int line);

#endif
