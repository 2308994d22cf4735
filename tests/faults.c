/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * Faults from outside: each system call of set-up fails, or its process is stopped or killed there;
 * file systems that are full or may only be read; clocks that differ; forks; a library that is
 * unloaded. What was told is a reason, what was there is unharmed, and nothing is left behind. */
#include "fixture.h"
#include "random.h"
#include "small_file_system.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>

enum { KEYS = 40, LIMIT = 100000, GOOD = 0, BAD = 1 };

/* Checks of a child, which has no cmocka to fail to. */
#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            print_error("line %d: %s (%s)\n", __LINE__, #condition, stint_reason());               \
            _exit(BAD);                                                                            \
        }                                                                                          \
    } while (0)

static void assert_good(pid_t child) {
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != GOOD)
        fail_msg("the child ended with status %#x", (unsigned)status);
}

static pid_t forked(void) {
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    return child;
}

/* What is in the directory beside . and .. */
static unsigned entries(void) {
    unsigned count = 0;
    DIR *opened = opendir(directory);
    while (opened != NULL && readdir(opened) != NULL)
        count++;
    if (opened != NULL)
        closedir(opened);
    return count - 2;
}

/* Where a fault may come: of each the table in the directory is as it was before, but for CREATE,
 * before which there is none. */
/* Those before CLOSE give a limiter. */
enum operation { CREATE, OPEN, ATTACH, READ, CLOSE, APPLY, RESIZE, OPERATIONS };

static const char *const names[OPERATIONS] = {"create", "open",  "attach", "attach read-only",
                                              "close",  "apply", "resize"};

static const char *const applied[] = {
    "100000/day name=p\n5/minute name=q start=per-key\n",
    "100000/day name=p\n7/hour name=q\n8/hour name=r stripes=2\n"};

static int apply_texts(struct stint_limiter *limiter) {
    for (size_t i = 0; i < 2; i++) {
        int error = stint_policies_apply(limiter, applied[i], STINT_PRUNE, NULL, NULL, NULL);
        if (error != 0)
            return error;
    }
    return 0;
}

/* Makes the table: key n has used 1 + n % 5 of policy 0. */
static void make_table(void) {
    struct stint_options options = shared_options(1000);
    struct stint_limiter *limiter = open_with(&options);
    assert_int_equal(apply_texts(limiter), 0);
    for (uint64_t n = 0; n < KEYS; n++)
        assert_true(
            stint_take(limiter, 0, number_key(limiter, n), 1 + (uint32_t)n % 5, STINT_NOW, NULL));
    stint_close(limiter);
}

static bool table_right(struct stint_limiter *limiter) {
    for (uint64_t n = 0; n < KEYS; n++)
        if (used_of(limiter, 0, number_key(limiter, n)) != 1 + n % 5)
            return false;
    return true;
}

/* Before the fault: APPLY and CLOSE have a limiter. */
static void operation_prepare(enum operation operation, struct stint_limiter **limiter) {
    struct stint_options options = shared_options(1000);
    if (operation == APPLY || operation == CLOSE)
        EXPECT(stint_open(&options, limiter) == 0);
}

static int operate(enum operation operation, struct stint_limiter **limiter) {
    struct stint_options options = shared_options(operation <= OPEN ? 1000 : 0),
                         same = STINT_OPTIONS_INIT;
    same.clock = test_clock;
    switch (operation) {
    case APPLY:
        return apply_texts(*limiter);
    case CLOSE:
        stint_close(*limiter);
        *limiter = NULL;
        return 0;
    case RESIZE:
        return stint_resize(path, &same);
    case CREATE:
    case OPEN:
        options.flags = STINT_PREFAULT;
        return stint_open(&options, limiter);
    default:
        options.flags = operation == READ ? STINT_READ_ONLY : 0;
        return stint_attach(&options, limiter);
    }
}

/* ---- Each system call fails ------------------------------------------------------------------ */

#if defined(__x86_64__)

/* Bytes that are mapped, but for the heap, and descriptors. */
struct held {
    uint64_t mapped, files;
};

static struct held held(void) {
    struct held held = {0, 0};
    char line[PATH_MAX + 100];
    FILE *maps = fopen("/proc/self/maps", "r");
    DIR *opened = opendir("/proc/self/fd");
    EXPECT(maps != NULL && opened != NULL);
    while (fgets(line, sizeof line, maps) != NULL) {
        unsigned long begin, end;
        if (strstr(line, "[heap]") == NULL && sscanf(line, "%lx-%lx", &begin, &end) == 2)
            held.mapped += end - begin;
    }
    while (readdir(opened) != NULL)
        held.files++;
    fclose(maps);
    closedir(opened);
    return held;
}

/* What comes at a call. */
struct fault {
    unsigned at; /* the number of the call, from 1 on; 0: none */
    int error;   /* it fails with this one */
    bool on;     /* and all later ones of the same name do */
    int signal;  /* or it is made, and then this process gets this signal */
};

/* What parent and child share. */
static struct told {
    struct held held; /* after an operation without a fault */
    int result;
    unsigned calls;
    long call; /* that met the fault */
} * told;

static struct fault fault;
static bool watched;

/* The only system call of this process that is not trapped, but for returns from signals. */
long own_call(long call, ...);
extern char own_call_end[];
__asm__(".text\n"
        "own_call: mov %rdi, %rax\n mov %rsi, %rdi\n mov %rdx, %rsi\n mov %rcx, %rdx\n"
        "mov %r8, %r10\n mov %r9, %r8\n mov 8(%rsp), %r9\n syscall\n"
        "own_call_end: ret\n");

/* Calls that do not fail, or (futex) of which the C library says so. */
static bool call_spared(long call) {
    return call == SYS_munmap || call == SYS_futex || call == SYS_getpid || call == SYS_gettid;
}

/* Makes the system call that was trapped, or lets it fail. */
static void call_trapped(int number, siginfo_t *about, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const long call = about->si_syscall;
    (void)number;
    if (call == SYS_rt_sigprocmask && registers[REG_RSI] != 0) {
        /* Of this handler's mask; and the trap must stay open. */
        uint64_t set = *(uint64_t *)registers[REG_RSI] & ~(UINT64_C(1) << (SIGSYS - 1));
        uint64_t *mask = (uint64_t *)&((ucontext_t *)context)->uc_sigmask, old = *mask;
        *mask = registers[REG_RDI] == SIG_BLOCK     ? old | set
                : registers[REG_RDI] == SIG_UNBLOCK ? old & ~set
                                                    : set;
        if (registers[REG_RDX] != 0)
            *(uint64_t *)registers[REG_RDX] = old;
        registers[REG_RAX] = 0;
        return;
    }
    bool meets = watched && !call_spared(call) && ++told->calls >= fault.at && fault.at != 0;
    if (meets && told->calls == fault.at)
        told->call = call;
    meets = meets && (told->calls == fault.at || (fault.on && call == told->call));
    if (meets && fault.signal == 0 && call != SYS_close) { /* which closes whatever it says */
        registers[REG_RAX] = -fault.error;
        return;
    }
    registers[REG_RAX] =
        call == SYS_fsync ? 0 : /* the disk's time is no matter here */
            own_call(call, registers[REG_RDI], registers[REG_RSI], registers[REG_RDX],
                     registers[REG_R10], registers[REG_R8], registers[REG_R9]);
    if (meets && fault.signal == 0)
        registers[REG_RAX] = -fault.error;
    else if (meets)
        (void)own_call(SYS_kill, own_call(SYS_getpid), (long)fault.signal);
}

static bool trap_calls(void) {
    const uint64_t end = (uintptr_t)own_call_end;
    const struct sigaction trap = {.sa_sigaction = call_trapped,
                                   .sa_flags = SA_SIGINFO | SA_NODEFER};
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 4, 0),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)end, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer) + 4),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(end >> 32), 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
    };
    const struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
    return sigaction(SIGSYS, &trap, NULL) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* A child makes the operation with the fault, and then without one. */
static void fault_child(enum operation operation) {
    struct stint_limiter *limiter = NULL;
    operation_prepare(operation, &limiter);
    told->calls = 0;
    EXPECT(trap_calls());
    watched = true;
    const int result = told->result = operate(operation, &limiter);
    watched = false;

    EXPECT(result <= 0 && (result == 0 || stint_reason()[0] != '\0'));
    EXPECT((limiter != NULL) == (operation == APPLY || (result == 0 && operation < CLOSE)));
    /* A whole table, or nothing. */
    EXPECT(entries() == (access(path, F_OK) == 0) && (result != 0 || entries() == 1));
    if (operation == APPLY)
        EXPECT(apply_texts(limiter) == 0);
    if (limiter != NULL && operation != CREATE)
        EXPECT(table_right(limiter));
    stint_close(limiter);
    limiter = NULL;
    /* The next one is good. */
    operation_prepare(operation, &limiter);
    EXPECT(operate(operation, &limiter) == 0);
    if (limiter != NULL && operation != CREATE)
        EXPECT(table_right(limiter));
    stint_close(limiter);
    EXPECT(entries() == 1 && (operation != CREATE || unlink(path) == 0));
    const struct held now = held();
    if (fault.at == 0)
        told->held = now;
    if (fault.at == 0 || told->call != SYS_brk) /* by which the C library takes other memory */
        EXPECT(now.mapped == told->held.mapped && now.files == told->held.files);
    _exit(GOOD);
}

/* Runs an operation with a fault in a child. */
static void run_fault(enum operation operation, struct fault given) {
    fault = given;
    pid_t child = forked();
    if (child == 0) {
        (void)alarm(60); /* nobody tries for ever */
        fault_child(operation);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != GOOD)
        fail_msg("%s: call %u (%ld%s) fails with \"%s\", result %d: status %#x", names[operation],
                 fault.at, told->call, fault.on ? ", and all later ones" : "",
                 strerror(fault.error), told->result, (unsigned)status);
}

/* What an operation may say that met this error. */
static bool result_right(void) {
    const int result = told->result;
    const long call = told->call;
    return result == 0 || result == -fault.error ||
           (result == -ENOMEM && (call == SYS_mmap || call == SYS_madvise)) ||
           (result == -EBUSY && (call == SYS_flock || call == SYS_newfstatat)) ||
           (result == -EAGAIN && call == SYS_getrandom);
}

TEST(test_each_call_fails) {
    static const int errors[] = {EINTR, EMFILE, ENOMEM, EIO, ENOSPC, EACCES};
    enum { ERRORS = sizeof errors / sizeof errors[0] };
    unsigned failed = 0, went_on = 0;
    if (emulated("seccomp"))
        skip();
    told = shared_memory(sizeof *told);
    for (int operation = CREATE; operation < OPERATIONS; operation++) {
        if (operation != CREATE)
            make_table();
        run_fault((enum operation)operation, (struct fault){0});
        const unsigned calls = told->calls;
        assert_int_equal(told->result, 0);
        for (unsigned at = 1; at <= calls; at++)
            for (unsigned e = 0; e < ERRORS; e++) {
                run_fault((enum operation)operation,
                          (struct fault){.at = at, .error = errors[e], .on = e == ERRORS - 1});
                if (!result_right())
                    fail_msg("%s: call %u (%ld) fails with \"%s\", result %d", names[operation], at,
                             told->call, strerror(fault.error), told->result);
                told->result == 0 ? went_on++ : failed++;
            }
        print_message("%s: %u calls\n", names[operation], calls);
        if (operation != CREATE)
            assert_int_equal(unlink(path), 0);
    }
    print_message("%u failed, %u went on\n", failed, went_on);
    assert_true(failed > 100 && went_on > 0);
    munmap(told, sizeof *told);
}

#endif

static int set_up(void **state) {
    test_time = T0;
    return directory_make(state);
}

int main(void) {
#define IN_DIRECTORY(function) cmocka_unit_test_setup_teardown(function, set_up, directory_remove)
    const struct CMUnitTest tests[] = {
#if defined(__x86_64__)
        IN_DIRECTORY(test_each_call_fails),
#endif
    };
    return cmocka_run_group_tests_name("faults", tests, NULL, NULL);
}
