/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * Promise E: no decision makes a system call. Children decide under a seccomp filter that kills
 * them at the first one but read, write and exit. Skipped where there is no seccomp. */
#include "kinds.h"

#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "children.h"

#include <linux/seccomp.h>

enum { DECIDED = 42, WRONG = 43, NO_SECCOMP = 44, SKIPPED = 77 };

/* Leaves the child. _exit would call exit_group, which the filter does not know. */
static void leave(int code) {
    for (;;)
        syscall(SYS_exit, code);
}

/* Runs `body` in a child under the filter. Returns the status of waitpid. */
static int in_strict_child(int (*body)(void *shared), void *shared) {
    pid_t child = forked();
    if (child == 0) {
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0)
            leave(NO_SECCOMP);
        leave(body(shared));
    }
    return status_of(child);
}

static int do_nothing(void *shared) {
    (void)shared;
    return DECIDED;
}

static bool have_seccomp(void) {
    int status = in_strict_child(do_nothing, NULL);
    return WIFEXITED(status) && WEXITSTATUS(status) == DECIDED;
}

static int make_system_call(void *shared) {
    (void)shared;
    syscall(SYS_getpid);
    return DECIDED;
}

/* The filter works: or the tests below could not fail. */
TEST(test_filter) {
    int status = in_strict_child(make_system_call, NULL);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);
}

static struct stint_limiter *open_bed(uint32_t flags, uint32_t on_full) {
    struct stint_options options = STINT_OPTIONS_INIT;
    options.max_entries = 500;
    options.flags = flags;
    options.on_full = on_full;
    struct stint_limiter *limiter = open_with(&options);
    add_kinds(limiter, KINDS);
    return limiter;
}

/* All that decides: on new keys and old ones, in a full table, across windows, by its own clock. */
static int decide(void *shared) {
    struct stint_limiter *limiter = shared;
    uint64_t start = stint_now(limiter);
    unsigned allowed = 0, refused = 0, all_allowed = 0, all_refused = 0;

    for (uint32_t i = 0; i < 30000; i++) {
        struct stint_request requests[20];
        struct stint_verdict verdicts[20];
        const struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {.s_addr = i}};
        char name[40] = "a name that is longer than 16 bytes ";
        uint32_t number = i % 1500;
        memcpy(name, &number, sizeof number);
        stint_key key = stint_key_of(limiter, name, number % sizeof name);
        key = stint_key_join(limiter, key, &number, sizeof number);
        uint64_t now = i % 2 == 0 ? STINT_NOW : start + i / 3000 * MINUTE / 10;
        stint_prefetch(limiter, key);
        uint32_t policy = i % KINDS;
        bool fits = stint_take(limiter, policy, key, 1 + i % 3, now, &verdicts[0]);
        fits ? allowed++ : refused++;
        if (fits && i % 5 == 0)
            stint_refund(limiter, key, &verdicts[0], 1);
        for (uint32_t n = 0; n < 20; n++)
            requests[n] = (struct stint_request){.key = {key.hash + n % 7},
                                                 .policy = n % KINDS,
                                                 .cost = n % 4,
                                                 .limit = n % 5,
                                                 .flags = STINT_PEEK * (n % 16)};
        requests[3].key = stint_key_address(limiter, (const struct sockaddr *)&address, 24, 0);
        stint_decide_batch(limiter, requests, 20, now, verdicts);
        stint_decide(limiter, &requests[i % 20], now, NULL);
        for (uint32_t n = 0; n < 2; n++) /* by the second: the key is there, its window is known */
            stint_take(limiter, policy, key, 1, STINT_NOW, NULL);
        for (uint32_t n = 0; n < 4; n++)
            requests[n] = (struct stint_request){.key = key, .policy = n, .cost = 1};
        stint_decide_all(limiter, requests, 4, now, NULL) ? all_allowed++ : all_refused++;
        if (i % 7 == 0)
            stint_reset(limiter, policy, key);
    }
    return allowed && refused && all_allowed && all_refused ? DECIDED : WRONG;
}

static void check_decisions(uint32_t flags, uint32_t on_full) {
    struct stint_limiter *limiter = open_bed(flags, on_full);
    int status = in_strict_child(decide, limiter);
    if (WIFSIGNALED(status))
        fail_msg("killed by signal %d: a decision made a system call", WTERMSIG(status));
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), DECIDED);
    stint_close(limiter);
}

TEST(test_no_system_call) {
    check_decisions(0, STINT_FULL_REFUSE);
    check_decisions(0, STINT_FULL_ADMIT);
    check_decisions(0, STINT_FULL_REPLACE);
    check_decisions(STINT_PREFAULT, STINT_FULL_REFUSE);
}

int main(void) {
    if (!have_seccomp()) {
        puts("skipped: no seccomp here");
        return SKIPPED;
    }
    return tests_run(NULL, NULL);
}
