/* SPDX-License-Identifier: MIT
 * Faults from outside: each system call of set-up fails, or its process is stopped or killed there;
 * file systems that are full or may only be read; a library that is unloaded.
 * What was told is a reason, what was there is unharmed, and nothing is left behind. */
#include "decisions.h"
#include "directory.h"
#include "kinds.h"

#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
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

/* Where a fault may come: of each the table in the directory is as it was before, but for CREATE,
 * before which there is none. Those before CLOSE give a limiter. */
enum operation { CREATE, OPEN, ATTACH, READ, CLOSE, APPLY, RESIZE, OPERATIONS };

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

/* How it is opened. */
static struct stint_options table_options(void) {
    struct stint_options options = shared_options(1000);
    options.labels = 64;
    return options;
}

/* Makes the table: key n has used 1 + n % 5 of policy 0. */
static void make_table(void) {
    struct stint_options options = table_options();
    struct stint_limiter *limiter = NULL;
    EXPECT(stint_open(&options, &limiter) == 0 && apply_texts(limiter) == 0);
    for (uint64_t n = 0; n < KEYS; n++)
        EXPECT(
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
    struct stint_options options = table_options();
    if (operation == APPLY || operation == CLOSE)
        EXPECT(stint_open(&options, limiter) == 0);
}

static int operate(enum operation operation, struct stint_limiter **limiter) {
    struct stint_options options = operation <= OPEN ? table_options() : attach_options(0);
    switch (operation) {
    case APPLY:
        return apply_texts(*limiter);
    case CLOSE:
        stint_close(*limiter);
        *limiter = NULL;
        return 0;
    case RESIZE:
        return file_resize(path, 0);
    case CREATE:
    case OPEN:
        options.flags = STINT_PREFAULT;
        return stint_open(&options, limiter);
    default:
        options.flags = operation == READ ? STINT_READ_ONLY : 0;
        return stint_attach(&options, limiter);
    }
}

/* ---- A small file system of a child's own ---------------------------------------------------- */

enum { NO_MOUNT = 77 };

/* Mounts one with these options of tmpfs. Returns false if that is not allowed here. */
static bool small_file_system_mount(const char *place, const char *options) {
    return (unshare(CLONE_NEWNS) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0) &&
           mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("tmpfs", place, "tmpfs", 0, options) == 0;
}

/* Runs in a child what returns 0, NO_MOUNT, or what CHECK says. */
static void small_file_system_test(int (*use)(void)) {
    pid_t child = forked();
    if (child == 0)
        _exit(use());
    const int status = status_of(child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == NO_MOUNT) {
        print_message("skipped: no file system can be mounted here\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- Without /proc --------------------------------------------------------------------------- */

/* A file without a name gets one by /proc alone: without, no table is made, one stays as it is. */
static int make_bare(void) {
    const struct stint_options options = table_options();
    struct stint_limiter *limiter = NULL;
    make_table();
    if (!small_file_system_mount("/proc", "size=4k"))
        return NO_MOUNT;
    EXPECT(file_resize(path, 0) == -ENOENT && strstr(stint_reason(), "without /proc") != NULL);
    EXPECT(entries_of_directory() == 1);
    EXPECT(stint_open(&options, &limiter) == 0 && table_right(limiter));
    stint_close(limiter);
    EXPECT(unlink(path) == 0);
    EXPECT(stint_open(&options, &limiter) == -ENOENT);
    EXPECT(strstr(stint_reason(), "without /proc") != NULL && entries_of_directory() == 0);
    return 0;
}

TEST_IN_DIRECTORY(test_without_proc) {
    small_file_system_test(make_bare);
}

/* ---- Each system call fails ------------------------------------------------------------------ */

/* Has a filter answer this process's system calls from now on. */
static bool filter_calls(struct sock_filter *filter, size_t length) {
    const struct sock_fprog program = {(unsigned short)length, filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

#if defined(__x86_64__)

static const char *const names[OPERATIONS] = {"create", "open",  "attach", "attach read-only",
                                              "close",  "apply", "resize"};

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
    bool forks;  /* or another thread forks before it */
};

/* What parent and child share. */
static struct told {
    struct held held; /* after an operation without a fault */
    int result;
    unsigned calls, any; /* but those that are spared; and with these */
    long call;           /* that met the fault */
    bool on_disk, early; /* what a new file has; it had its name before that */
    bool interrupted;    /* signals could come to where a file system may give up at each */
} * told;

static struct fault fault;
static bool watched;
static enum operation forked_in;
static pid_t fork_made; /* by fork_here */
static void fork_here(void);

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
    told->any += watched;
    bool meets = watched && !call_spared(call) && ++told->calls >= fault.at && fault.at != 0;
    if (meets && told->calls == fault.at)
        told->call = call;
    meets = meets && (told->calls == fault.at || (fault.on && call == told->call));
    if (meets && fault.forks) {
        if (told->calls == fault.at)
            fork_here();
        meets = false;
    }
    if (meets && fault.signal == 0 && call != SYS_close) { /* which closes whatever it says */
        registers[REG_RAX] = -fault.error;
        return;
    }
    const bool syncs = call == SYS_fsync || call == SYS_msync;
    told->interrupted |=
        call == SYS_fallocate && !sigismember(&((ucontext_t *)context)->uc_sigmask, SIGALRM);
    told->on_disk |= syncs;
    told->early |= (call == SYS_linkat || call == SYS_renameat2) && !told->on_disk;
    registers[REG_RAX] =
        syncs ? 0 : /* the disk's time is no matter here */
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
    return sigaction(SIGSYS, &trap, NULL) == 0 &&
           filter_calls(filter, sizeof filter / sizeof filter[0]);
}

/* Makes the operation with its system calls watched. */
static int operate_watched(enum operation operation, struct stint_limiter **limiter) {
    operation_prepare(operation, limiter);
    EXPECT(trap_calls());
    watched = true;
    const int result = operate(operation, limiter);
    watched = false;
    return result;
}

/* A child makes the operation with the fault, and then without one. */
static void fault_child(enum operation operation) {
    struct stint_limiter *limiter = NULL;
    told->calls = 0;
    told->on_disk = told->early = told->interrupted = false;
    const int result = told->result = operate_watched(operation, &limiter);

    EXPECT(result <= 0 && (result == 0 || stint_reason()[0] != '\0'));
    EXPECT(!told->early); /* or a loss of power might leave zeros under it */
    EXPECT(!told->interrupted);
    EXPECT((limiter != NULL) == (operation == APPLY || (result == 0 && operation < CLOSE)));
    /* A whole table, or nothing. */
    EXPECT(entries_of_directory() == (access(path, F_OK) == 0) &&
           (result != 0 || entries_of_directory() == 1));
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
    EXPECT(entries_of_directory() == 1 && (operation != CREATE || unlink(path) == 0));
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
    const int status = status_of(child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != GOOD)
        fail_msg("%s: call %u (%ld%s) fails with \"%s\", result %d: status %#x", names[operation],
                 fault.at, told->call, fault.on ? ", and all later ones" : "",
                 strerror(fault.error), told->result, (unsigned)status);
}

/* Checks each system call of each operation, on a table that is there for all but CREATE. */
static void check_each_call(void (*check)(enum operation operation, unsigned at)) {
    if (emulated("seccomp"))
        skip();
    told = shared_memory(sizeof *told);
    for (int i = 0; i < OPERATIONS; i++) {
        const enum operation operation = (enum operation)i;
        if (operation != CREATE)
            make_table();
        run_fault(operation, (struct fault){0});
        const unsigned calls = told->calls;
        assert_int_equal(told->result, 0);
        for (unsigned at = 1; at <= calls; at++)
            check(operation, at);
        if (operation != CREATE)
            assert_int_equal(unlink(path), 0);
    }
    munmap(told, sizeof *told);
}

/* What an operation may say that met this error. Who waits for a lock is interrupted by nothing. */
static bool result_right(enum operation operation) {
    const int result = told->result;
    const long call = told->call;
    const bool waits = call == SYS_flock && (operation == OPEN || operation == ATTACH);
    return result == 0 || (result == -fault.error && !(waits && result == -EINTR)) ||
           (result == -ENOMEM && (call == SYS_mmap || call == SYS_madvise)) ||
           (result == -EAGAIN && call == SYS_getrandom);
}

static unsigned failed, went_on;

static void call_fails(enum operation operation, unsigned at) {
    static const int errors[] = {EINTR, EMFILE, ENOMEM, EIO, ENOSPC, EACCES};
    enum { ERRORS = sizeof errors / sizeof errors[0] };
    for (unsigned e = 0; e < ERRORS; e++) {
        run_fault(operation, (struct fault){.at = at, .error = errors[e], .on = e == ERRORS - 1});
        if (!result_right(operation))
            fail_msg("%s: call %u (%ld) fails with \"%s\", result %d", names[operation], at,
                     told->call, strerror(fault.error), told->result);
        told->result == 0 ? went_on++ : failed++;
    }
}

TEST_IN_DIRECTORY(test_each_call_fails) {
    check_each_call(call_fails);
    assert_true(failed > 100 && went_on > 0);
}

/* ---- Each system call is where a process stops, or dies -------------------------------------- */

/* Sets up while the fault comes, and if it goes on, to a good end; unless a table is to be resized
 * that the other one has open. `beside`: he surely has. */
static void watched_child(enum operation operation, bool beside) {
    struct stint_limiter *limiter = NULL;
    (void)alarm(60);
    const int result = operate_watched(operation, &limiter);
    EXPECT(operation == RESIZE ? result == -EBUSY || (result == 0 && !beside) : result == 0);
    if (limiter != NULL && operation != CREATE)
        EXPECT(table_right(limiter));
    if (fault.forks)
        EXPECT(fork_made > 0 && status_of(fork_made) == 0);
    stint_close(limiter);
    _exit(GOOD);
}

/* Who comes meanwhile. */
static void other_child(enum operation operation) {
    const struct stint_policy added = make_policy("added", 5, HOUR, 0, 0);
    struct stint_options options = table_options();
    struct stint_limiter *limiter = NULL;
    (void)alarm(60);
    EXPECT(stint_open(&options, &limiter) == 0);
    if (operation != CREATE)
        EXPECT(table_right(limiter));
    EXPECT(policy_added(limiter, &added) >= 0);
    stint_close(limiter);
    _exit(GOOD);
}

/* Whether it ends within some ms. */
static bool ended(pid_t child, unsigned ms) {
    siginfo_t about = {0};
    for (; ms > 0; ms--) {
        if (waitid(P_PID, (id_t)child, &about, WEXITED | WNOHANG | WNOWAIT) == 0 &&
            about.si_pid == child)
            return true;
        usleep(1000);
    }
    return false;
}

static unsigned waited;

/* `limiter`: this process has the table open, and decides while the other one is stopped. */
static void check_signal(enum operation operation, unsigned at, int signal,
                         struct stint_limiter *limiter) {
    fault = (struct fault){.at = at, .signal = signal};
    told->calls = 0;
    pid_t child = forked();
    if (child == 0)
        watched_child(operation, limiter != NULL);
    int status;
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    if (WIFEXITED(status)) { /* it did not come so far */
        assert_int_equal(WEXITSTATUS(status), GOOD);
        return;
    }
    assert_int_equal(WIFSTOPPED(status) ? WSTOPSIG(status) : WTERMSIG(status), signal);
    if (limiter != NULL)
        assert_true(stint_take(limiter, 0, 1, 1, STINT_NOW, NULL));
    pid_t other = forked();
    if (other == 0)
        other_child(operation);
    if (signal == SIGSTOP) {
        waited += !ended(other, 10);
        assert_int_equal(kill(child, SIGCONT), 0);
        assert_good(child);
    }
    assert_good(other);
}

static void call_stops(enum operation operation, unsigned at) {
    struct stint_options options = table_options();
    struct stint_limiter *limiter = NULL;
    for (int i = 0; i < 2; i++) {
        check_signal(operation, at, i == 0 ? SIGSTOP : SIGKILL, NULL);
        if (operation == CREATE)
            assert_int_equal(unlink(path), 0);
        if (operation == RESIZE && entries_of_directory() == 2) /* what the dead has left */
            assert_int_equal(operate(RESIZE, &limiter), 0);
        assert_int_equal(entries_of_directory(), operation != CREATE);
    }
    if (operation == CREATE)
        return;
    limiter = open_with(&options);
    check_signal(operation, at, SIGSTOP, limiter);
    assert_true(table_right(limiter));
    stint_close(limiter);
}

/* Others go on without the one who is stopped or was killed, or when he goes on. */
TEST_IN_DIRECTORY(test_each_call_stops) {
    check_each_call(call_stops);
    assert_true(waited > 0); /* for who resizes */
}

/* ---- Each system call is where another thread forks ------------------------------------------ */

/* As another thread would: the child does not come back to what this one is at. (No thread can be
 * made in a trap.) */
static void fork_here(void) {
    watched = false;
    fork_made = fork();
    if (fork_made == 0)
        other_child(forked_in);
    watched = true;
}

static void call_forks(enum operation operation, unsigned at) {
    fault = (struct fault){.at = at, .forks = true};
    forked_in = operation;
    told->calls = 0;
    pid_t child = forked();
    if (child == 0)
        watched_child(operation, false);
    assert_good(child);
    assert_int_equal(entries_of_directory(), 1);
    if (operation == CREATE)
        assert_int_equal(unlink(path), 0);
}

TEST_IN_DIRECTORY(test_each_call_forks) {
    check_each_call(call_forks);
}

/* ---- Decisions make none --------------------------------------------------------------------- */

/* Promise E. */
static void decisions_child(uint32_t flags, enum stint_on_full on_full) {
    struct stint_options options = STINT_OPTIONS_INIT;
    struct stint_limiter *limiter = NULL;
    options.max_entries = 500;
    options.flags = flags;
    options.on_full = on_full;
    EXPECT(stint_open(&options, &limiter) == 0);
    add_kinds(limiter, KINDS);
    told->any = 0;
    EXPECT(trap_calls());
    watched = true;
    const bool decided = decide(limiter);
    const unsigned made = told->any;
    (void)syscall(SYS_getpid); /* is seen */
    watched = false;
    EXPECT(decided && made == 0 && told->any == 1);
    _exit(GOOD);
}

TEST(test_no_system_call) {
    if (emulated("seccomp"))
        skip();
    told = shared_memory(sizeof *told);
    for (int i = 0; i < 4; i++) {
        pid_t child = forked();
        if (child == 0)
            decisions_child(i == 3 ? STINT_PREFAULT : 0, (enum stint_on_full)(i % 3));
        assert_good(child);
    }
    munmap(told, sizeof *told);
}

#endif

/* ---- File systems ---------------------------------------------------------------------------- */

/* A file with all the bytes of another that are not zero, and holes. */
static void copy_with_holes(const char *from, const char *to) {
    static char block[4096], zeros[4096];
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT, 0600);
    off_t at = 0;
    EXPECT(in >= 0 && out >= 0);
    for (; read(in, block, sizeof block) > 0; at += (off_t)sizeof block)
        if (memcmp(block, zeros, sizeof block) != 0)
            EXPECT(pwrite(out, block, sizeof block, at) == (ssize_t)sizeof block);
    EXPECT(ftruncate(out, lseek(in, 0, SEEK_END)) == 0);
    close(in);
    close(out);
}

/* Takes all that is left. */
static void fill(const char *name) {
    static const char block[4096];
    int filler = open(name, O_WRONLY | O_CREAT | O_APPEND, 0600);
    EXPECT(filler >= 0);
    while (write(filler, block, sizeof block) == (ssize_t)sizeof block)
        ;
    EXPECT(errno == ENOSPC);
    close(filler);
}

static void use_all_slots(struct stint_limiter *limiter) {
    const uint32_t id = add_policy(limiter, "p", 2, MINUTE, 0, 0);
    for (uint64_t n = 0; n < 20000; n++)
        (void)stint_take(limiter, id, number_key(limiter, n), 1, STINT_NOW, NULL);
    EXPECT(get_stats(limiter).used == get_stats(limiter).slots);
    stint_close(limiter);
}

/* Returns what opening says where blocks cannot be asked for (EIO), in a child. */
static int opened_without_blocks(const struct stint_options *options) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fallocate, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EIO),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct stint_limiter *limiter = NULL;
    const pid_t child = forked();
    if (child == 0) {
        EXPECT(filter_calls(filter, sizeof filter / sizeof filter[0]));
        _exit(-stint_open(options, &limiter));
    }
    return -WEXITSTATUS(status_of(child));
}

/* Too large a table is refused, takes no room until then, and leaves nothing behind. Whatever is
 * done with one that fits needs no room but for another table, or for holes: all its blocks were
 * reserved, so there is no SIGBUS. */
static int use_full_file_system(void) {
    const char *const filler = file_beside("filler"), *const sparse = file_beside("sparse"),
                      *const untouched = file_beside("untouched");
    struct stint_options options;
    struct stint_limiter *limiter = NULL;
    struct stat before, about;
    struct statvfs room, left;
    if (!small_file_system_mount(directory, "size=1536k,mode=700"))
        return NO_MOUNT;
    options = shared_options(1000000);
    EXPECT(statvfs(directory, &room) == 0);
    const bool emulated = getenv("STINT_TEST_EMULATED") != NULL; /* without madvise and seccomp */
    EXPECT(emulated || opened_without_blocks(&options) == -ENOSPC);
    EXPECT(stint_open(&options, &limiter) == -ENOSPC && limiter == NULL);
    EXPECT(strstr(stint_reason(), path) != NULL && entries_of_directory() == 0);
    EXPECT(statvfs(directory, &left) == 0 && left.f_bavail == room.f_bavail);
    options.max_entries = 1000;
    EXPECT(emulated || opened_without_blocks(&options) == -EIO);
    make_table();
    copy_with_holes(path, sparse);
    options = table_options();
    options.path = untouched;
    EXPECT(stint_open(&options, &limiter) == 0);
    fill(filler);
    EXPECT(statvfs(directory, &left) == 0 && left.f_bavail == 0);
    use_all_slots(limiter);
    EXPECT(stint_open(&options, &limiter) == 0); /* there for the next one, too */
    stint_close(limiter);
    EXPECT(unlink(untouched) == 0);
    fill(filler);
    options = table_options();
    EXPECT(stint_open(&options, &limiter) == 0 && table_right(limiter));
    for (unsigned i = 0; i < 10; i++)
        EXPECT(stint_policies_apply(limiter,
                                    i % 2 == 0 ? "9/minute name=s overrides" : "9/hour name=s",
                                    STINT_PRUNE, NULL, NULL, NULL) == 0);
    EXPECT(stint_policies_apply(limiter, "9/minute name=s overrides\n100000/day name=p", 0, NULL,
                                NULL, NULL) == 0);
    const uint32_t id = (uint32_t)policy_found(limiter, "s");
    for (uint64_t n = 0; n < 4000; n++) {
        (void)stint_take(limiter, id, number_key(limiter, n), 1, STINT_NOW, NULL);
        (void)stint_label(limiter, number_key(limiter, n), "name", 4);
        if (n < 100)
            EXPECT(stint_override(limiter, id, number_key(limiter, n), 0, test_time + HOUR) == 0);
    }
    EXPECT(!stint_take(limiter, id, number_key(limiter, 7), 1, STINT_NOW, NULL));
    stint_close(limiter);

    EXPECT(stat(path, &before) == 0 && file_resize(path, 0) == -ENOSPC);
    EXPECT(strstr(stint_reason(), path) != NULL && entries_of_directory() == 3);
    EXPECT(stat(path, &about) == 0 && about.st_ino == before.st_ino);
    options = shared_options(0);
    EXPECT(stint_attach(&options, &limiter) == 0);
    EXPECT(!stint_take(limiter, id, number_key(limiter, 7), 1, STINT_NOW, NULL));
    stint_close(limiter);
    options.path = sparse;
    EXPECT(stint_attach(&options, &limiter) == -ENOSPC);
    EXPECT(strstr(stint_reason(), sparse) != NULL);
    options.flags = STINT_READ_ONLY; /* not even a look has room */
    if (!emulated) {
        EXPECT(stint_attach(&options, &limiter) == -ENOSPC);
        EXPECT(strstr(stint_reason(), "has holes") != NULL);
        EXPECT(file_resize(sparse, 0) == -ENOSPC);
    }
    options.flags = 0;
    EXPECT(unlink(filler) == 0);
    EXPECT(stat(sparse, &about) == 0 && about.st_blocks * 512 < about.st_size);
    EXPECT(stint_attach(&options, &limiter) == 0 && table_right(limiter));
    EXPECT(stat(sparse, &about) == 0 && about.st_blocks * 512 >= about.st_size);
    stint_close(limiter);
    EXPECT(file_resize(path, 0) == 0 && file_resize(sparse, 0) == 0);
    return 0;
}

TEST_IN_DIRECTORY(test_full_file_system) {
    small_file_system_test(use_full_file_system);
}

/* What may only be read is refused with this error, but to readers. */
static void check_readable(int error) {
    struct stint_options options = attach_options(0);
    struct stint_limiter *limiter = NULL;
    EXPECT(stint_attach(&options, &limiter) == -error && strstr(stint_reason(), path) != NULL);
    options = table_options();
    EXPECT(stint_open(&options, &limiter) == -error && strstr(stint_reason(), path) != NULL);
    EXPECT(file_resize(path, 0) == -error && strstr(stint_reason(), path) != NULL);
    options = attach_options(STINT_READ_ONLY);
    EXPECT(limiter == NULL && stint_attach(&options, &limiter) == 0 && table_right(limiter));
    stint_close(limiter);
}

/* No file can be made here. */
static void check_no_new_file(int error) {
    struct stint_options options = table_options();
    struct stint_limiter *limiter = NULL;
    options.path = file_beside("other");
    EXPECT(stint_open(&options, &limiter) == -error && limiter == NULL);
    EXPECT(strstr(stint_reason(), options.path) != NULL && entries_of_directory() == 1);
}

static int use_read_only_file_system(void) {
    if (!small_file_system_mount(directory, "size=1m,mode=700"))
        return NO_MOUNT;
    make_table();
    if (mount(NULL, directory, NULL, MS_REMOUNT | MS_RDONLY, NULL) != 0)
        return NO_MOUNT;
    check_readable(EROFS);
    check_no_new_file(EROFS);
    return 0;
}

TEST_IN_DIRECTORY(test_read_only_file_system) {
    small_file_system_test(use_read_only_file_system);
}

/* A file without the right to write to it, then a directory. */
TEST_IN_DIRECTORY(test_no_rights) {
    make_table();
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(chmod(path, i == 0 ? 0444 : 0666), 0);
        assert_int_equal(chmod(directory, 0555), 0);
        pid_t child = forked();
        if (child == 0) {
            struct stint_options options = table_options();
            struct stint_limiter *limiter = NULL;
            EXPECT(geteuid() != 0 || setuid(65534) == 0);
            check_no_new_file(EACCES);
            if (i == 0) {
                check_readable(EACCES);
                _exit(GOOD);
            }
            EXPECT(file_resize(path, 0) == -EACCES && entries_of_directory() == 1);
            EXPECT(stint_open(&options, &limiter) == 0 && table_right(limiter));
            EXPECT(apply_texts(limiter) == 0);
            stint_close(limiter);
            _exit(GOOD);
        }
        assert_good(child);
    }
    assert_int_equal(chmod(directory, 0700), 0);
}

/* ---- A library that is unloaded -------------------------------------------------------------- */

static struct unloaded {
    __typeof__(stint_open) *open;
    __typeof__(stint_policy_add) *add;
    __typeof__(stint_take) *take;
    __typeof__(stint_close) *close;
    struct stint_limiter *limiter;
    pthread_barrier_t barrier;
} library;

static void *decide_by_library(void *ignored) {
    for (uint64_t key = 0; key < 100; key++)
        EXPECT(library.take(library.limiter, 0, KEY_OF(key), 1, STINT_NOW, NULL));
    pthread_barrier_wait(&library.barrier);
    pthread_barrier_wait(
        &library.barrier); /* the library is gone; what it had of the thread, too */
    return ignored;
}

/* Loads the library, lets threads decide by it, and unloads it while they live. */
static void use_library(const char *name, size_t count) {
    pthread_t threads[70];
    struct stint_options options = STINT_OPTIONS_INIT;
    const struct stint_policy policy = make_policy("p", STINT_LIMIT_MAX, DAY, 0, 0);
    uint32_t id;
    void *loaded = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (loaded == NULL)
        print_error("%s\n", dlerror());
    EXPECT(loaded != NULL);
    EXPECT((*(void **)&library.open = dlsym(loaded, "stint_open")) != NULL);
    EXPECT((*(void **)&library.add = dlsym(loaded, "stint_policy_add")) != NULL);
    EXPECT((*(void **)&library.take = dlsym(loaded, "stint_take")) != NULL);
    EXPECT((*(void **)&library.close = dlsym(loaded, "stint_close")) != NULL);
    options.max_entries = 1000;
    options.path = path;
    EXPECT(library.open(&options, &library.limiter) == 0);
    EXPECT(library.add(library.limiter, &policy, &id) == 0 && id == 0);
    EXPECT(pthread_barrier_init(&library.barrier, NULL, (unsigned)count + 1) == 0);
    for (size_t i = 0; i < count; i++)
        EXPECT(pthread_create(&threads[i], NULL, decide_by_library, NULL) == 0);
    pthread_barrier_wait(&library.barrier);
    library.close(library.limiter);
    EXPECT(dlclose(loaded) == 0);
#ifdef __GLIBC__ /* musl keeps what it has loaded */
    EXPECT(dlopen(name, RTLD_NOW | RTLD_NOLOAD) == NULL);
#endif
    pid_t child = fork(); /* which calls no handler of the library either */
    if (child == 0)
        _exit(GOOD);
    EXPECT(status_of(child) == 0);
    pthread_barrier_wait(&library.barrier);
    for (size_t i = 0; i < count; i++)
        EXPECT(pthread_join(threads[i], NULL) == 0);
    pthread_barrier_destroy(&library.barrier);
}

/* As often as one likes: no key of the threads (PTHREAD_KEYS_MAX) is left behind. */
TEST_IN_DIRECTORY(test_unloaded) {
    const char *name = getenv("STINT_TEST_LIBRARY");
    if (name == NULL)
        skip();
    pid_t child = forked();
    if (child == 0) {
        pthread_key_t before, after;
        EXPECT(pthread_key_create(&before, NULL) == 0 && pthread_key_delete(before) == 0);
        for (unsigned n = 0; n < 40; n++)
            use_library(name, n == 20 ? 70 : 1);
        EXPECT(pthread_key_create(&after, NULL) == 0 && after == before);
        _exit(unlink(path) == 0 ? GOOD : BAD);
    }
    assert_good(child);
}
