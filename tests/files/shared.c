/* SPDX-License-Identifier: MIT
 * One table for many processes: files, memory that the caller shares, restarts, forks, and
 * everything that may be found where a table is expected. (Who makes it beside others: faults.c,
 * deaths.c.) */
#include "policy/occupant.h" /* before cmocka, which defines fail() as well */

#include <sys/file.h>
#include <sys/prctl.h>

#include "directory.h"
#include "wrapped.h"

/* ---- Waiting for who is stopped: time just passes where a test says so ----------------------- */

static bool time_passes;

WRAPPED(int, clock_nanosleep, clockid_t clock, int flags, const struct timespec *until,
        struct timespec *rest) {
    return time_passes ? 0 : __real_clock_nanosleep(clock, flags, until, rest);
}

/* ---- Tables in files ------------------------------------------------------------------------- */

static struct stint_limiter *open_shared(uint64_t max_entries) {
    const struct stint_options options = shared_options(max_entries);
    return open_with(&options);
}

static void take_granted(struct stint_limiter *limiter, uint32_t policy, uint64_t key, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        assert_true(stint_take(limiter, policy, key, 1, STINT_NOW, NULL));
}

/* ---- What else may be there ------------------------------------------------------------------ */

/* The bytes of its table; it is closed. */
static struct bytes bytes_of(struct stint_limiter *limiter) {
    stint_close(limiter);
    return file_read(path);
}

/* A whole table of 100 keys with one policy. */
static struct bytes whole_table(void) {
    struct stint_limiter *limiter = open_shared(100);
    uint32_t minute = add_policy(limiter, "minute", 10, MINUTE, 0, 0);
    take_granted(limiter, minute, 1, 3);
    return bytes_of(limiter);
}

TEST_IN_DIRECTORY(test_not_a_table) {
    struct stint_options options = shared_options(100), reader = attach_options(STINT_READ_ONLY);
    const struct bytes table = whole_table();
    const size_t cuts[] = {1, 64, 1000, sizeof(struct header), 8192, table.size - 1};
    static unsigned char text[] = "# not a table\n";
    unsigned char *zeros = calloc(1, table.size);
    const struct {
        struct bytes bytes;
        const char *reason;
    } files[] = {{{text, sizeof text}, "no table of stint"},
                 {{text, 0}, "it has 0 bytes"},
                 {{zeros, table.size}, "does not begin as one"}};
    enum { FILES = sizeof files / sizeof *files, CUTS = sizeof cuts / sizeof *cuts };
    for (size_t i = 0; i < FILES + CUTS; i++) {
        const struct bytes bytes =
            i < FILES ? files[i].bytes : (struct bytes){table.start, cuts[i - FILES]};
        file_write(path, bytes);
        assert_not_opened(&options, EPROTO, i < FILES ? files[i].reason : "cut off");
        assert_not_opened(&reader, EPROTO, i < FILES ? files[i].reason : "cut off");
        assert_file(bytes);
    }
    free(zeros);

    assert_int_equal(unlink(path), 0);
    assert_not_opened(&reader, ENOENT, "there is no table");
    assert_int_equal(mkdir(path, 0700), 0);
    assert_not_opened(&options, EISDIR, path);
    assert_not_opened(&reader, EPROTO, "not even a file");
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_not_opened(&options, EPROTO, "not even a file");
    assert_int_equal(unlink(path), 0);

    options.path = "";
    assert_not_opened(&options, EINVAL, "options.path");
    options.path = "/no/such/directory/table";
    assert_not_opened(&options, ENOENT, "/no/such/directory/table");
    file_write(path, table);
    free(table.start);
    stint_close(open_shared(100)); /* that one is good */
}

/* Some bits of a byte of the table that are other ones. */
struct damage {
    size_t at;
    unsigned char flip;
    const char *reason; /* NULL: nobody minds */
};

/* Whoever opens it is told the reasons. */
enum { SERVER = 1, READER = 2 };
static void assert_damages(struct bytes table, const struct damage *damages, size_t count,
                           unsigned who) {
    const struct stint_options options = shared_options(100),
                               reader = attach_options(STINT_READ_ONLY);
    for (const struct damage *damage = damages; damage < damages + count; damage++) {
        table.start[damage->at] ^= damage->flip;
        file_write(path, table);
        if (damage->reason == NULL) {
            stint_close(open_shared(100));
        } else {
            if ((who & SERVER) != 0)
                assert_not_opened(&options, EPROTO, damage->reason);
            if ((who & READER) != 0) /* which looks for a while */
                assert_not_opened(&reader, EPROTO, damage->reason);
            assert_file(table);
        }
        table.start[damage->at] ^= damage->flip;
    }
}
#define ASSERT_DAMAGES(table, rows, who)                                                           \
    assert_damages(table, rows, sizeof rows / sizeof *rows, who)

/* Where a field of the open table `limiter` stands in its file. */
#define AT(field)      ((size_t)((const char *)&(field) - (const char *)limiter->header))
#define HEADER(name)   offsetof(struct header, name)
/* The rule of a policy that is in use: its word of so many. */
#define RULE(id, word) AT(limiter->policies[id].rules[limiter->policies[id].version % 2][word])

/* Every field that is checked, spoilt in turn. */
TEST_IN_DIRECTORY(test_damaged_table) {
    const struct stint_options options = shared_options(100);
    struct bytes table = whole_table();
    struct stint_limiter *limiter = open_shared(100);
    const struct policy *policy = limiter->policies;
    const struct policy_record *record = limiter->records;
    const struct shard *shard = limiter->table.shards;
    const uint64_t now = policy->version % 2;
    const size_t traits = RULE(0, 0);
    /* Of the shape. (A server is told that it is not his: test_other_options.) */
    const struct damage read[] = {
        {HEADER(shards), 0x02, "shape is none"},
        {HEADER(shards) + 3, 0x01, "shape is none"},
        {HEADER(max_entries) + 6, 0x01, "shape is none"},
        {HEADER(max_entries) + 3, 0x01, "sizes"},
        {HEADER(max_policies) + 3, 0x01, "shape is none"},
        {HEADER(max_policies), 0x01, "sizes"},
        {HEADER(labels_count), 0x04, "sizes"},
        {HEADER(labels_count) + 7, 0x04, "shape is none"},
    };
    const struct damage damages[] = {
        {HEADER(magic) + 3, 0x20, "does not begin as one"},
        {HEADER(layout), 0x40,
         "has another version's layout, 70, and this version of stint reads layout 6"},
        {HEADER(lanes), 0x01, "sizes"},
        {HEADER(size) + 6, 0x01, "sizes"},
        {HEADER(policy_count) + 4, 0x01, "policies"},
        {AT(policy->length) + 7, 0x80, "policy 0"},
        {AT(policy->start) + 7, 0x40, "policy 0"},
        {traits + 3, 0x80, "policy 0"},  /* limit */
        {traits + 15, 0x7f, "policy 0"}, /* jitter */
        {traits + 18, 0x70, "policy 0"}, /* stripes */
        {AT(policy->reciprocal), 0x01, "policy 0"},
        {AT(policy->fade), 0x01, "policy 0"},
        {AT(record->calendar), STINT_CALENDAR_MONTH, "policy 0"},
        {AT(record->offset), 0x01, "policy 0"},
        {AT(record->name) + STINT_NAME_SIZE - 1, 0x41, NULL}, /* behind the NUL: nobody minds */
        {AT(record->name), 0x80, "policy 0"},
        {AT(shard->reach) + 4, 0x01, "shard 0"},
        {AT(*reach_words(&limiter->table)), 0xff, NULL}, /* searches end where a key may be */
        {AT(record->flags), RECORD_COMPANION, "policy 0"},
        {AT(record->companion), 0x01, "policy 0"},
        {AT(record->companion), 0x02, "policy 0"},
        {AT(record->bans[now]), 0x01, "policy 0"},
        {AT(shard->filter), 0x01, NULL}, /* a key may have an override */
        {HEADER(features), 0x02, "features"},
        {HEADER(features) + 7, 0x80, "features"},
        {HEADER(labels), 0x40, "sizes"},
        {HEADER(labels_count), 0x01, "labels"},
    };
    /* Whatever this version does not know, in the words for it; and in the word of known flags. */
    const struct {
        size_t at, bytes;
        unsigned char known;
        const char *reason;
    } later[] = {
        {AT(record->flags), 4, RECORD_UNNAMED | RECORD_COMPANION, "policy 0 of the table"},
        {AT(record->calendar), 4, STINT_CALENDAR_MONTH | STINT_CALENDAR_YEAR,
         "policy 0 of the table has"},
        {AT(record->reserved), 8, 0, "policy 0 of the table has"},
        {AT(record->rate_changed), 8, 0, "policy 0 of the table has"},
        {AT(record->rate_before), 8, 0, "policy 0 of the table has"},
        {AT(record->bucket), sizeof(uint64_t[2][2]), 0, "policy 0 of the table has"},
    };
    stint_close(limiter);
    ASSERT_DAMAGES(table, read, READER);
    ASSERT_DAMAGES(table, damages, SERVER | READER);
    for (size_t i = 0; i < sizeof later / sizeof *later; i++)
        for (size_t bit = 0; bit < 8 * later[i].bytes; bit++) {
            const struct damage one = {later[i].at + bit / 8, (unsigned char)(1 << bit % 8),
                                       later[i].reason};
            if (bit < 8 && (later[i].known & one.flip) != 0)
                continue;
            assert_damages(table, &one, 1, SERVER);
            assert_reason("use the version that made the table");
        }
    for (size_t i = 0; i < 4; i++) { /* the other byte order */
        const unsigned char byte = table.start[i];
        table.start[i] = table.start[7 - i];
        table.start[7 - i] = byte;
    }
    file_write(path, table);
    assert_not_opened(&options, EPROTO, "byte order");
    free(table.start);
}

/* Of the hidden policy that a policy with overrides has. */
TEST_IN_DIRECTORY(test_damaged_companion) {
    struct stint_limiter *limiter = open_shared(100);
    const uint32_t id = add_policy(limiter, "o", 10, MINUTE, 0, STINT_OVERRIDES);
    assert_int_equal(limiter_companion(limiter, id), 1);
    const struct policy *policy = &limiter->policies[1];
    const size_t leads = AT(limiter->records[1].companion), page = AT(*policy),
                 rule = RULE(1, RULE_TRAITS);
    const struct damage damages[] = {
        {AT(limiter->records[1].name), 0x41, "policy 1"},
        {AT(policy->length), 0x01, "policy 1"},
        {AT(policy->start), 0x01, "policy 1"},
        {AT(policy->window), 0x01, "policy 1"},
        {AT(policy->reciprocal), 0x01, "policy 1"},
        {AT(policy->fade), 0x01, "policy 1"},
        {rule + 3, 0x40, "policy 1"},
        /* Whose it is: that of policy 0, which 1 says. */
        {leads, 0x01, "policy 0"}, /* of none */
        {leads, 0x03, "policy 0"}, /* its own */
        {leads, 0x40, "policy 0"}, /* there are 64 */
        {leads + 3, 0x80, "policy 0"},
    };
    struct bytes table = bytes_of(limiter);
    ASSERT_DAMAGES(table, damages, SERVER | READER);
    file_write(path, table);
    /* Its rule or its page is lost: its id would be another policy's, whose slots would be taken
     * for overrides. */
    struct bytes lost = file_read(path);
    const struct stint_options options = shared_options(100);
    for (unsigned all = 0; all < 2; all++) {
        memset(lost.start + (all ? page : rule), 0, all ? sizeof *policy : sizeof(uint64_t));
        file_write(path, lost);
        assert_not_opened(&options, EPROTO, "policy 0");
        assert_file(lost);
    }
    free(lost.start);
    file_write(path, table);
    free(table.start);
    limiter = open_shared(100);
    assert_int_equal(stint_policy_remove(limiter, id), 0);
    table = bytes_of(limiter);
    const struct damage gone[] = {
        {leads, 0x01, "policy 1"}, {leads, 0x03, "policy 1"}, {leads, 0x40, "policy 1"}};
    ASSERT_DAMAGES(table, gone, SERVER | READER);
    free(table.start);
}

/* Of a token bucket. */
TEST_IN_DIRECTORY(test_damaged_bucket) {
    struct stint_limiter *limiter = open_shared(100);
    const uint32_t id = add_text(limiter, "600/minute burst=20 name=b");
    const struct policy *policy = &limiter->policies[id];
    const struct policy_record *record = &limiter->records[id];
    const uint64_t now = policy->version % 2;
    const size_t rule = RULE(id, 0), length = AT(policy->length), window = AT(policy->window);
    const struct damage damages[] = {
        {length, 0x01, NULL}, /* it may have been longer */
        {length + 7, 0x80, "policy 0"},
        {length + 6, 0x01, "policy 0"},
        {window, 0x80, "policy 0"},
        {window + 7, 0x80, "policy 0"},
        {rule, 0x01, "policy 0"},                      /* limit */
        {rule + sizeof(uint32_t), 0x01, "policy 0"},   /* burst */
        {RULE(id, RULE_TRAITS) + 1, 0x20, "policy 0"}, /* a bucket */
        {AT(record->bucket[now][0]), 1, "policy 0"},   /* unit */
        {AT(record->bucket[now][1]), 1, "policy 0"},
        {AT(record->bucket_window[now]), 0x80, "policy 0"},
        {AT(record->bucket_window[!now]), 0x01, NULL}, /* not in use */
    };
    struct bytes table = bytes_of(limiter);
    ASSERT_DAMAGES(table, damages, SERVER | READER);
    /* One of no tokens, in no time. */
    memset(table.start + length, 0, sizeof(uint64_t));
    memset(table.start + window, 0, sizeof(uint64_t));
    const struct damage burst[] = {{rule + sizeof(uint32_t), 20, "policy 0"}};
    ASSERT_DAMAGES(table, burst, SERVER | READER);
    free(table.start);
}

TEST_IN_DIRECTORY(test_other_options) {
    struct stint_options options = shared_options(100);
    options.secret = test_secret();
    struct stint_limiter *limiter = open_with(&options);
    const stint_key key = number_key(limiter, 7);
    unsigned char secret[STINT_SECRET_SIZE];
    memcpy(secret, options.secret, sizeof secret);
    secret[191] ^= 1;
    for (unsigned attached = 0; attached < 2; attached++) { /* beside a user, and alone */
        struct stint_options others[] = {options, options, options, options, options};
        static const char *const reasons[] = {"max_entries 100, not 101", "max_policies 64, not 65",
                                              "options.shards 1, not 4", "secret"};
        others[0].max_entries = 101;
        others[1].max_policies = 65;
        others[2].shards = 4;
        others[3].secret = secret;
        for (unsigned i = 0; i < 4; i++)
            assert_not_opened(&others[i], EPROTO, reasons[i]);
        others[4].secret = NULL; /* the table's */
        others[4].on_full = STINT_FULL_REFUSE;
        others[4].flags = STINT_PREFAULT | STINT_PRECISE_CLOCK;
        struct stint_limiter *same = open_with(&others[4]);
        assert_true(stint_key_equal(number_key(same, 7), key));
        stint_close(same);
        if (attached == 0)
            stint_close(limiter);
    }
}

/* A link is not followed, whatever it leads to; nor is anything made in its place. */
TEST_IN_DIRECTORY(test_symbolic_links) {
    struct stint_options options = shared_options(100);
    const char *const link = file_beside("link");
    static const char *const targets[] = {"table", "link", "/nowhere/at/all"};
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
        options.path = path;
        stint_close(open_shared(100));
        assert_int_equal(symlink(targets[i], link), 0);
        options.path = link;
        assert_not_opened(&options, ELOOP, "symbolic link");
        assert_int_equal(unlink(link), 0);
    }
    assert_non_null(strstr(stint_strerror(-ELOOP), "symbolic link"));
}

/* A path that is too long, or a name in it, is said to be; of the path the end is told. */
TEST_IN_DIRECTORY(test_long_paths) {
    static char text[6000];
    struct stint_options options = shared_options(100);
    struct stint_limiter *limiter = NULL;
    options.path = text;
    for (size_t length = 4096; length < sizeof text - 8; length += 100) {
        for (size_t i = 0; i < length; i++)
            text[i] = i % 100 == 0 ? '/' : 'x';
        memcpy(text + length, "the end", 8);
        assert_int_equal(stint_open(&options, &limiter), -ENAMETOOLONG);
        assert_reason("the end: options.path is too long");
    }
    for (size_t length = 256; length < 300; length++) { /* bytes of the name */
        snprintf(text, sizeof text, "%s/%0*d", directory, (int)length, 7);
        assert_int_equal(stint_open(&options, &limiter), -ENAMETOOLONG);
        assert_reason("0007: options.path is too long");
    }
    assert_null(limiter);
    assert_non_null(strstr(stint_strerror(-ENAMETOOLONG), "too long"));
}

/* The directory of a file is what stands before its name: the root, the process's own, another. */
TEST_IN_DIRECTORY(test_directories_of_paths) {
    struct stint_options options = shared_options(100);
    struct stint_limiter *limiter = NULL;
    char before[PATH_MAX], root[64], other[PATH_MAX + 64];
    int error;
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(directory), 0);
    snprintf(other, sizeof other, "..%s/table", strrchr(directory, '/'));
    const char *const paths[] = {"table", "./table", "t", other, path};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        options.path = paths[i];
        assert_int_equal(stint_open(&options, &limiter), 0);
        stint_close(limiter);
        assert_int_equal(entries_of_directory(), 1);
        assert_int_equal(unlink(paths[i]), 0);
    }
    assert_int_equal(chdir(before), 0);

    /* Not everyone may write there, and not all file systems can; but it is there. */
    snprintf(root, sizeof root, "/stint-test-%ld", (long)getpid());
    options.path = root;
    error = stint_open(&options, &limiter);
    assert_int_not_equal(error, -ENOENT);
    if (error == 0) {
        stint_close(limiter);
        assert_int_equal(unlink(root), 0);
    }
}

/* ---- Memory that the caller shares ----------------------------------------------------------- */

TEST_IN_DIRECTORY(test_open_in) {
    struct stint_options options = shared_options(1000);
    options.path = NULL;
    size_t size = stint_memory_size(&options);
    assert_true(size >= 32 * 1000 && size < 1 << 20);
    unsigned char *const pages = shared_memory(size + 128), *const memory = pages + 64;
    struct stint_limiter *one = NULL, *two = NULL;

    options.path = path;
#ifndef STINT_TESTING /* whose tables in memory may be smaller (TAG_LINES) */
    assert_int_equal(stint_memory_size(&options), size);
#endif
    assert_int_equal(stint_open_in(&options, memory, size, &one), -EINVAL);
    options.path = NULL;
    for (uint32_t policies = 500; policies < STINT_POLICIES_MAX; policies *= 2) {
        options.max_policies = policies;
        assert_in_range(stint_memory_size(&options), size, policies * 8192);
    }
    options.max_policies = 0;
    assert_int_equal(stint_open_in(&options, memory + 32, size, &one), -EINVAL);
    assert_int_equal(stint_open_in(&options, memory, size - 1, &one), -EINVAL);
    assert_null(one);
    for (size_t i = 0; i < size; i++)
        assert_int_equal(memory[i], 0);

    assert_int_equal(stint_open_in(&options, memory, size, &one), 0);
    assert_int_equal(stint_open_in(&options, memory, size + 64, &two), 0);
    uint32_t minute = add_policy(one, "minute", 10, MINUTE, 0, 0);
    take_granted(one, minute, 5, 6);
    take_granted(two, minute, 5, 4);
    assert_false(stint_take(one, minute, 5, 1, STINT_NOW, NULL));
    stint_close(one);
    stint_close(two);
    assert_int_equal(stint_open_in(&options, memory, size, &one), 0);
    assert_int_equal(used_of(one, minute, 5), 10);
    stint_close(one);

    options.max_entries = 999;
    assert_int_equal(stint_open_in(&options, memory, size, &one), -EPROTO);
    options.max_entries = 0;
    assert_int_equal(stint_memory_size(&options), 0);
    assert_reason("max_entries");
    options.max_entries = 1000;

    memset(memory, 0, sizeof(struct header));
    memory[100] = 1;
    assert_int_equal(stint_open_in(&options, memory, size, &one), -EPROTO);
    memory[100] = 0;
    struct header *header = (struct header *)(void *)memory;
    header->magic = HEADER_MAKING << 32 | 1; /* for other options, and its maker died */
    time_passes = true;
    assert_int_equal(stint_open_in(&options, memory, size, &one), -EBUSY); /* after 10 s */
    time_passes = false;
    assert_reason("other options");
    assert_int_equal(munmap(pages, size + 128), 0);
}

/* ---- Lanes of the counters ------------------------------------------------------------------- */

static unsigned lanes_owned(const struct stint_limiter *limiter) {
    unsigned owned = 0;
    for (unsigned i = 0; i < LANES_MAX; i++)
        owned += limiter->header->lane_owners[i] != 0;
    return owned;
}

static void assert_killed(pid_t child) {
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_true(WIFSIGNALED(status_of(child)));
}

/* Waits until a process that is forked has stopped itself. */
static void wait_stopped(pid_t child) {
    int status;
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    assert_true(WIFSTOPPED(status));
}

/* A process that decides, and then can be killed. */
static pid_t fork_user(struct stint_limiter *limiter, uint32_t policy) {
    pid_t child = forked();
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nobody behind */
        (void)stint_take(limiter, policy, 1, 1, STINT_NOW, NULL);
        _exit(raise(SIGSTOP));
    }
    wait_stopped(child);
    return child;
}

/* A process gives its lanes back when it closes. Those of one that was killed are found free by
 * the next to be forked, to set up or to attach. More users than lanes share one, and no count is
 * lost. */
TEST_IN_DIRECTORY(test_lane_owners) {
    if (emulated("memory that is wiped on fork"))
        skip();
    struct stint_limiter *limiter = open_shared(1000), *two = open_shared(1000);
    uint32_t minute = add_policy(limiter, "minute", STINT_LIMIT_MAX, DAY, 0, 0);
    struct stint_limiter *reader = attach(STINT_READ_ONLY);
    assert_int_equal(lanes_owned(limiter), 0);
    assert_int_equal(get_stats(reader).processes, 0);
    take_granted(limiter, minute, 1, 1);
    take_granted(two, minute, 1, 1);
    assert_int_equal(lanes_owned(limiter), 2);
    assert_int_equal(get_stats(reader).processes, 1);
    stint_close(two);
    assert_int_equal(lanes_owned(limiter), 1);

    enum { USERS = 70 };
    pid_t users[USERS];
    for (unsigned i = 0; i < USERS; i++)
        users[i] = fork_user(limiter, minute);
    assert_int_equal(lanes_owned(limiter), LANES_MAX - 1);
    assert_int_equal(get_stats(reader).processes, LANES_MAX - 1);
    stint_close(reader);
    assert_int_equal(get_policy_stats(limiter, minute).allowed, 2 + USERS);
    two = open_shared(1000);
    assert_int_equal(lanes_owned(limiter), LANES_MAX - 1);
    take_granted(two, minute, 1, 1); /* finds none left */
    for (unsigned i = 0; i < USERS; i++)
        assert_killed(users[i]);
    assert_int_equal(lanes_owned(limiter), LANES_MAX - 1);

    pid_t later = fork_user(limiter, minute);
    assert_int_equal(lanes_owned(limiter), 2);
    assert_killed(later);
    uint32_t first = stint_limiter_stripe(two);
    change_limit(two, minute, STINT_LIMIT_MAX - 1);
    assert_int_equal(lanes_owned(limiter), 1);
    take_granted(two, minute, 1, 1); /* looks again */
    assert_int_equal(lanes_owned(limiter), 2);
    assert_int_equal(stint_limiter_stripe(two), first);
    assert_killed(fork_user(limiter, minute));
    stint_close(two);
    assert_int_equal(lanes_owned(limiter), 2);
    two = open_shared(1000);
    assert_int_equal(lanes_owned(limiter), 1);
    stint_close(two);
    assert_int_equal(get_policy_stats(limiter, minute).allowed, 6 + USERS);
    stint_close(limiter);
    limiter = open_shared(1000);
    assert_int_equal(lanes_owned(limiter), 0);
    assert_int_equal(get_policy_stats(limiter, minute).allowed, 6 + USERS);
    stint_close(limiter);

    /* In memory that is given, too. */
    struct stint_options options = shared_options(1000);
    options.path = NULL;
    const size_t size = stint_memory_size(&options);
    assert_int_equal(stint_open_in(&options, shared_memory(size), size, &limiter), 0);
    minute = add_policy(limiter, "minute", STINT_LIMIT_MAX, DAY, 0, 0);
    assert_killed(fork_user(limiter, minute));
    assert_int_equal(lanes_owned(limiter), 1);
    change_limit(limiter, minute, STINT_LIMIT_MAX - 1);
    assert_int_equal(lanes_owned(limiter), 0);
    stint_close(limiter);
}

/* Processes of one thread begin at different stripes of a key, though no lane is left for any. */
TEST_IN_DIRECTORY(test_stripes_without_lanes) {
    enum { USERS = 16 };
    struct stint_limiter *limiter = open_shared(1000);
    struct stint_policy policy = make_policy("striped", USERS * LANES_MAX, DAY, 0, 0);
    policy.stripes = LANES_MAX;
    uint32_t striped = add_made(limiter, &policy);
    for (unsigned i = 1; i < LANES_MAX; i++) /* of living processes of some other namespace */
        limiter->header->lane_owners[i] = UINT64_C(7) << 32 | i;
    for (unsigned i = 0; i < USERS; i++)
        assert_killed(fork_user(limiter, striped));
    assert_in_range(get_stats(limiter).used, USERS / 2, USERS);
    assert_int_equal(used_of(limiter, striped, 1), USERS);
    stint_close(limiter);
}

/* ---- The lock for set-up --------------------------------------------------------------------- */

/* Somebody died who held the lock. (At each step of set-up: protocol/deaths.c.) */
TEST_IN_DIRECTORY(test_lock_holder_dies) {
    if (emulated("robust mutexes"))
        skip();
    struct stint_limiter *limiter = open_shared(1000);
    uint32_t minute = add_policy(limiter, "minute", 10, MINUTE, 0, 0);
    /* All died with the machine: nobody tells the next one. */
    limiter->header->lock.__data.__lock = 0x7FFFFFFF;
    stint_close(limiter);
    limiter = open_shared(1000);
    assert_int_equal(add_policy(limiter, "day", 50, DAY, 0, 0), 1);
    stint_close(limiter);

    /* What he left is looked at. If it is none that stint makes, the lock is of no more use. */
    for (unsigned damage = 0; damage < 2; damage++) {
        limiter = open_shared(1000);
        pid_t child = forked();
        if (child == 0)
            _exit(stint_limiter_lock(limiter));
        assert_good(child);
        uint64_t *reach = &limiter->table.shards[0].reach, whole = *reach;
        struct stint_policy policy = make_policy("week", 70, 7 * DAY, 0, 0);
        *reach = damage == 0 ? limiter->table.probe_lines : whole;
        limiter->records[minute].reserved = damage;
        for (unsigned again = 0; again < 2; again++) {
            assert_int_equal(stint_policy_add(limiter, &policy, NULL), -EPROTO);
            *reach = whole;
            limiter->records[minute].reserved = 0;
        }
        stint_close(limiter);
    }
}

/* A process that holds the lock of the file, or that for set-up, and is stopped. */
static pid_t stopped_holder(struct stint_limiter *limiter) {
    const pid_t child = forked();
    if (child == 0) {
        const int file = open(path, O_RDWR);
        if (limiter == NULL ? flock(file, LOCK_EX) != 0 : stint_limiter_lock(limiter) != 0)
            _exit(1);
        (void)raise(SIGSTOP);
        _exit(0);
    }
    wait_stopped(child);
    return child;
}

/* Who was stopped in the middle of an open or of a set-up call is named, after 10 s that just pass;
 * the open of another does not hang. */
TEST_IN_DIRECTORY(test_set_up_is_stopped) {
    if (emulated("robust mutexes"))
        skip();
    struct stint_limiter *limiter = open_shared(100);
    struct stint_options options = shared_options(100);
    const struct stint_policy policy = make_policy("minute", 10, MINUTE, 0, 0);
    for (int i = 0; i < 2; i++) {
        char named[64];
        const pid_t child = stopped_holder(i == 0 ? limiter : NULL);
        struct stint_limiter *none = NULL;
        time_passes = true;
        const int error =
            i == 0 ? stint_policy_add(limiter, &policy, NULL) : stint_open(&options, &none);
        time_passes = false;
        (void)kill(child, SIGCONT); /* before anything fails: it would stay stopped */
        assert_good(child);
        assert_int_equal(error, -EBUSY);
        snprintf(named, sizeof named, "process %d has held the ", (int)child);
        assert_reason(named);
        if (i == 0)
            stint_close(limiter);
    }
    stint_close(open_shared(100));
}
