/* SPDX-License-Identifier: MIT
 * stint_resize: whatever the shapes are, the new table answers as the old one would have. What
 * cannot be done is refused, and changes nothing. (Case by case: restarts.c. Whoever is killed in
 * it: faults.c. Damaged tables: fuzz_table.c.) */
#include "feature/labels.h" /* before cmocka, which defines fail() as well */

#include "directory.h"
#include "kinds.h"
#include "limiter/counters.h"
#include "random.h"
#include "twin.h"
#include "wrapped.h"

#include <sys/file.h>
#include <sys/xattr.h>

/* ---- Waits ----------------------------------------------------------------------------------- */

static unsigned pauses;

WRAPPED(int, clock_nanosleep, clockid_t clock, int flags, const struct timespec *until,
        struct timespec *rest) {
    (void)clock, (void)flags, (void)until, (void)rest;
    pauses++;
    return 0;
}

/* ---- Tables ---------------------------------------------------------------------------------- */

/* A shape for which hashes are whole. */
static struct stint_options shaped(uint64_t max_entries, uint32_t shards, uint32_t max_policies) {
    struct stint_options options = shared_options(max_entries);
    options.shards = shards;
    options.max_policies = max_policies;
    options.secret = test_secret();
    return options;
}

/* The options that stint_resize is given for a shape. */
static struct stint_options sized(uint64_t max_entries, uint32_t shards, uint32_t max_policies) {
    struct stint_options options = shaped(max_entries, shards, max_policies);
    options.path = NULL;
    return options;
}

static void resize(const struct stint_options *options) {
    if (stint_resize(path, options) != 0)
        fail_msg("%s", stint_reason());
}

static void assert_refused(const struct stint_options *options, int error, const char *reason) {
    assert_int_equal(stint_resize(path, options), -error);
    if (strstr(stint_reason(), reason) == NULL || strstr(stint_reason(), path) == NULL)
        fail_msg("%s", stint_reason());
    assert_int_equal(entries_of_directory(), 1);
}

/* ---- Random tables --------------------------------------------------------------------------- */

static struct random draws;

uint64_t random_bits(void) {
    return random_next(&draws);
}

uint64_t below(uint64_t number) {
    return random_below(&draws, number);
}

/* Of which none is too small for what the twin does. */
static void resize_anyhow(void) {
    struct stint_options given = STINT_OPTIONS_INIT;
    given.clock = test_clock;
    given.max_entries = 30000 + below(30000);
    given.shards = below(2) == 0 ? 0 : 1u << below(7);
    given.max_policies = 64 + (uint32_t)below(100);
    given.labels = (uint32_t)below(3000);
    resize(&given);
}

/* The twin's table is resized now and then, and goes on as if it were not (kit/twin.h). */
TEST_IN_DIRECTORY(test_resized_twin) {
    draws.state = twin_run.seed = test_seed();
    twin_path = path;
    for (twin_run.round = test_rounds(20); twin_run.round > 0; twin_run.round--) {
        start_round();
        for (twin_run.operation = 0; twin_run.operation < 20000; twin_run.operation++) {
            if (below(8000) == 0)
                twin_closed(resize_anyhow);
            do_operation();
        }
        end_round();
        assert_int_equal(unlink(path), 0);
    }
    test_step = 3;
}

/* The hash of each slot is found again, in tables of all shapes that hold it. */
TEST(test_hashes) {
    draws.state = test_seed();
    for (uint64_t i = 0; i < test_rounds(200000); i++) {
        uint32_t shard_bits = (uint32_t)below(12), bits = 1 + (uint32_t)below(12);
        uint64_t least = (((uint64_t)PROBE_LINES << bits) + (1u << shard_bits) - 1) >> shard_bits;
        struct table table = {
            .shard_bits = shard_bits,
            .shard_lines = least + (below(2) == 0 ? below(4) : below(10000)),
            .tag_unit = UINT64_C(1) << bits,
        };
        table.line_count = table.shard_lines << shard_bits;
        table.probe_lines =
            table.shard_lines < PROBE_LINES ? (uint16_t)table.shard_lines : PROBE_LINES;
        /* Also at the ends of what the tag lacks, and of lines. */
        uint64_t hash = random_next(&draws), found = 0;
        if (below(2) == 0)
            hash = (hash & ~(UINT64_MAX >> bits)) - below(2);
        uint64_t home = table_home(&table, hash), first = home - home % table.shard_lines;
        uint64_t line = first + (home - first + below(table.probe_lines)) % table.shard_lines;
        assert_true(table_hash(&table, line,
                               table_tag(&table, hash, (uint32_t)below((1u << bits) - 1)), &found));
        assert_int_equal(found, hash);
    }
}

/* ---- Shapes ---------------------------------------------------------------------------------- */

/* What is 0 stays, but for a number of shards that was chosen. */
TEST_IN_DIRECTORY(test_as_it_was) {
    struct stint_options options = shaped(20000, 0, 20);
    struct stint_limiter *limiter = open_with(&options);
    uint32_t id = add_policy(limiter, "p", 10, DAY, 0, 0);
    (void)ask(limiter, id, 1, 4, 0);
    stint_close(limiter);

    struct bytes before = file_read(path);
    struct stat about, now;
    assert_int_equal(stat(path, &about), 0);
    struct stint_options given = sized(0, 0, 0);
    resize(&given);
    assert_int_equal(stat(path, &now), 0);
    assert_int_not_equal(about.st_ino, now.st_ino);
    struct bytes after = file_read(path);
    assert_int_equal(after.size, before.size);
    free(before.start);
    free(after.start);
    static const struct {
        uint64_t max_entries;
        uint32_t shards, max_policies;
    } changes[] = {{100000, 0, 0}, /* 16 shards; it was 4 */ {0, 2, 30}, {30000, 0, 0}};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        given = sized(changes[i].max_entries, changes[i].shards, changes[i].max_policies);
        resize(&given);
        options.max_entries = given.max_entries != 0 ? given.max_entries : options.max_entries;
        options.shards = given.shards != 0 ? given.shards : options.shards;
        options.max_policies = given.max_policies != 0 ? given.max_policies : options.max_policies;
        limiter = open_with(&options);
        assert_int_equal(used_of(limiter, id, 1), 4);
        stint_close(limiter);
    }
}

/* What nobody counts in is left behind; of two slots of a key, as a step of the clock may leave
 * them, the later one counts. */
TEST_IN_DIRECTORY(test_odd_slots) {
    test_time = T0;
    struct stint_options options = shaped(800, 1, 4), given = sized(0, 2, 0);
    struct stint_limiter *limiter = open_with(&options);
    uint32_t id = add_policy(limiter, "p", 5, DAY, 0, 0);
    const struct table *table = &limiter->table;
    const uint64_t key = number_key(limiter, 1).hash, other = number_key(limiter, 2).hash;
    const uint64_t line = table_home(table, key), tag = table_tag(table, key, id),
                   over = (T0 / DAY + 1) * DAY / STINT_TICK_NS << 31,
                   ahead = (T0 / DAY + 2) * DAY / STINT_TICK_NS << 31;
    struct slot *slots = table->lines[line].slots;
    slots[0] = (struct slot){table_tombstone(table), ahead};
    slots[1] = (struct slot){table_tag(table, key, 3), ahead | 1}; /* of no policy */
    slots[2] = (struct slot){tag, over | 2};
    slots[3] = (struct slot){tag, over | UINT64_C(1) << 30 | 3}; /* pending */
    table_next(table, key, &table->lines[line])->slots[0] = (struct slot){tag, over | 4};
    (void)ask(limiter, id, other, 1, 0);
    limiter->records[id].alias =
        (3 + 1) | ALIAS_WAKES; /* it was about to be replaced, and was not */
    stint_close(limiter);
    resize(&given);
    given = shaped(800, 2, 4);
    limiter = open_with(&given);
    assert_int_equal(limiter->records[id].alias, 0);
    assert_int_equal(get_stats(limiter).used, 2);
    assert_int_equal(used_of(limiter, id, key), 4);
    assert_int_equal(used_of(limiter, id, other), 1);
    /* A key that cannot be where it is. */
    uint64_t hash, nowhere = 0;
    while (table_hash(&limiter->table, nowhere, tag, &hash))
        nowhere++;
    limiter->table.lines[nowhere].slots[0] = (struct slot){tag, over | 2};
    stint_close(limiter);
    given = sized(0, 0, 0);
    assert_refused(&given, EPROTO, "belongs there");
}

/* Gives a key a second place in its set, with 7 refusals, as two threads do that name it at one
 * instant. Returns false if all others have many. */
static bool label_twice(struct stint_limiter *limiter, stint_key key) {
    for (uint64_t i = 0; i < limiter->label_sets * LABELS_IN_SET; i++) {
        const struct label *label = &limiter->labels[i];
        struct label *set = &limiter->labels[i - i % LABELS_IN_SET];
        for (unsigned j = 0; label->key == key.hash && j < LABELS_IN_SET; j++) {
            if (set[j].refused >> 32 >= 100)
                continue;
            set[j] = *label;
            set[j].refused = UINT64_C(7) << 32 | (uint32_t)label->refused;
            return true;
        }
    }
    return false;
}

enum { KEYS = 150 };

/* What is told of labels. */
struct named {
    unsigned entries, labels, heavy;
    stint_key torn, twice; /* a key whose label is torn, and one with two */
    unsigned more;         /* refusals of the second */
};

static bool count_named(void *context, const struct stint_entry *entry) {
    struct named *named = context;
    named->entries++;
    named->labels += entry->label_length != 0;
    named->heavy += entry->refused_windows >= 100;
    if (stint_key_equal(entry->key, named->twice))
        assert_int_equal(entry->refused_windows, 100 + named->more);
    if (stint_key_equal(entry->key, named->torn))
        assert_true(entry->label_length == 0 && entry->refused_windows == 100);
    return true;
}

/* Fewer labels: those of the keys stay that were refused most. A torn one is not shown, and its
 * count stays. */
TEST_IN_DIRECTORY(test_labels) {
    test_time = T0;
    struct stint_options options = shaped(800, 0, 4), given = sized(0, 0, 0);
    options.labels = 800;
    struct stint_limiter *limiter = open_with(&options);
    uint32_t id = add_policy(limiter, "p", 5, DAY, 0, 0);
    for (uint64_t i = 0; i < KEYS; i++) {
        char name[16];
        int length = snprintf(name, sizeof name, "name %" PRIu64, i);
        (void)ask(limiter, id, number_key(limiter, i), 1, 0);
        for (uint64_t times = 0; times < (i < 8 ? 100 : 1); times++)
            assert_int_equal(stint_label(limiter, number_key(limiter, i), name, (size_t)length), 0);
    }
    for (uint64_t i = 0; i < limiter->label_sets * LABELS_IN_SET; i++)
        if (limiter->labels[i].key == number_key(limiter, 3).hash)
            limiter->labels[i].bytes[0]++;
    const unsigned more = label_twice(limiter, number_key(limiter, 4)) ? 7 : 0;
    stint_close(limiter);
    given.labels = 32;
    resize(&given);
    options.labels = 32;
    limiter = open_with(&options);
    struct named named = {0, 0, 0, number_key(limiter, 3), number_key(limiter, 4), more};
    assert_int_equal(stint_each(limiter, count_named, &named), 0);
    assert_int_equal(named.entries, KEYS);
    assert_in_range(named.labels, 16, 32);
    assert_int_equal(named.heavy, 8);
    stint_close(limiter);
    given = sized(0, 0, 0); /* as it was */
    resize(&given);
    stint_close(open_with(&options));
}

/* ---- What is refused ------------------------------------------------------------------------- */

TEST_IN_DIRECTORY(test_wrong_arguments) {
    struct stint_options options = shaped(6200, 0, 0), given = sized(0, 0, 0);
    assert_int_equal(stint_resize("", &given), -EINVAL);
    assert_int_equal(stint_resize(path, &options), -EINVAL);
    assert_reason("options.path");
    given.size = 3;
    assert_int_equal(stint_resize(path, &given), -EINVAL);
    given = sized(0, 0, 0);
    assert_int_equal(stint_resize(path, &given), -ENOENT);
    assert_int_equal(entries_of_directory(), 0);

    struct stint_limiter *limiter = open_with(&options);
    assert_refused(&given, EBUSY, "has the table open");
    for (unsigned i = 0; i < 3; i++) {
        char name[2] = {(char)('a' + i), '\0'};
        (void)add_policy(limiter, name, 1, DAY, 0, 0);
    }
    stint_close(limiter);
    struct bytes before = file_read(path);
#define ROW(field, value, error, reason)                                                           \
    given = sized(0, 0, 0);                                                                        \
    given.field = value;                                                                           \
    assert_refused(&given, error, reason)
    ROW(shards, 3, EINVAL, "options.shards");
    ROW(max_policies, 2, EINVAL, "at least 3");
    ROW(flags, 1u << 30, EINVAL, "options.flags");
    ROW(mode, 01000, EINVAL, "options.mode");
    ROW(secret, shared_memory(STINT_SECRET_SIZE), EPROTO, "another secret");
#undef ROW
    assert_file(before);
    /* No table, and one of a later version. */
    given = sized(0, 0, 0);
    struct bytes wrong = {calloc(1, before.size), before.size};
    file_write(path, wrong);
    assert_refused(&given, EPROTO, "no table of stint");
    ((struct header *)(void *)before.start)->layout = 99;
    file_write(path, before);
    assert_refused(&given, EPROTO, "layout, 99");
    ((struct header *)(void *)before.start)->layout = HEADER_LAYOUT;
    ((struct header *)(void *)before.start)->shards = 3;
    file_write(path, before);
    assert_refused(&given, EPROTO, "shape");
    before.size = 100;
    file_write(path, before);
    assert_refused(&given, EPROTO, "100 bytes");
    free(wrong.start);
    free(before.start);
}

/* ---- A table of version 0.4 ------------------------------------------------------------------ */

/* tests/files/table-0.4 was made by stint 0.4 on x86-64: its words that are not 0, each after its
 * offset; and at last its size. max_entries is 1, max_policies 20, labels 4, and bytes 1 to 192 are
 * the secret. Key n is n times KEY_STEP. */
#define KEY_STEP UINT64_C(0x9e3779b97f4a7c15)

static struct stint_options old_options(void) {
    static uint8_t secret[STINT_SECRET_SIZE];
    struct stint_options options = shaped(1, 0, 20);
    for (size_t i = 0; i < sizeof secret; i++)
        secret[i] = (uint8_t)(i + 1);
    options.labels = 4;
    options.secret = secret;
    return options;
}

static struct bytes old_table(void) {
    const char *name = getenv("STINT_TEST_OLD_TABLE");
    if (name == NULL)
        fail_msg("STINT_TEST_OLD_TABLE must name tests/files/table-0.4");
    const struct bytes packed = file_read(name);
    uint64_t word[2];
    memcpy(word, packed.start + packed.size - sizeof word, sizeof word);
    const struct bytes table = {calloc(1, word[0]), word[0]};
    for (size_t at = 0; at + sizeof word < packed.size; at += sizeof word) {
        memcpy(word, packed.start + at, sizeof word);
        memcpy(table.start + word[0], &word[1], sizeof word[1]);
    }
    free(packed.start);
    return table;
}

/* What keys have used, and what each may use. */
static const struct {
    const char *policy;
    uint32_t key, used, capacity;
    uint32_t flags;
} of_old[] = {
    {"window", 1, 1, 5, 0},
    {"window", 2, 40, 100, STINT_OVERRIDDEN},
    {"window", 3, 3, 5, 0},
    {"window", 8, 7, STINT_LIMIT_MAX, STINT_OVERRIDDEN},
    {"window", 9, 0, 0, STINT_OVERRIDDEN},
    {"bucket", 1, 4, 10, 0}, /* a part of one has come back */
    {"bucket", 2, 20, 50, STINT_OVERRIDDEN},
    {"bucket", 3, 10, 10, 0},
    {"carry", 1, 11, 9, 0},
    {"smooth", 1, 2, 6, 0}, /* one of now, and of the six of the day before a part */
    {"striped", 1, 7, 8, 0},
    {"first", 1, 2, 3, 0},
    {"own", 1, 2, 3, 0},
    {"month", 1, 4, 5, 0},
    {"held", 1, 2, 2, 0},
    {"changed", 1, 1, 2, 0},
    {"banning", 1, 0, 0, STINT_OVERRIDDEN | STINT_BANNED},
    {"banning", 2, 0, 1, 0},
};

/* The same is said of it as by version 0.4. */
static void assert_as_of_old(struct stint_limiter *limiter) {
    struct stint_verdict v;
    for (size_t i = 0; i < sizeof of_old / sizeof *of_old; i++) {
        const struct stint_request look = {.key = {of_old[i].key * KEY_STEP},
                                           .policy =
                                               (uint32_t)policy_found(limiter, of_old[i].policy),
                                           .flags = STINT_PEEK};
        (void)stint_decide(limiter, &look, STINT_NOW, &v);
        if (v.used != of_old[i].used || v.capacity != of_old[i].capacity ||
            (v.flags & (STINT_OVERRIDDEN | STINT_BANNED)) != of_old[i].flags)
            fail_msg("%s, key %" PRIu32 ": used %" PRIu32 ", capacity %" PRIu32 ", flags %#" PRIx32,
                     of_old[i].policy, of_old[i].key, v.used, v.capacity, v.flags);
    }
    assert_int_equal(policy_found(limiter, "gone"), -ENOENT);
    const struct stint_policy_stats of_window =
        get_policy_stats(limiter, (uint32_t)policy_found(limiter, "window"));
    assert_true(of_window.allowed == 4 && of_window.refused == 1);
    /* The second strike, and a mark that is there. */
    test_time += HOUR;
    const uint32_t banning = (uint32_t)policy_found(limiter, "banning"),
                   window = (uint32_t)policy_found(limiter, "window");
    assert_false(stint_take(limiter, banning, (stint_key){2 * KEY_STEP}, 2, STINT_NOW, &v));
    assert_int_equal(v.flags, STINT_FIRST_REFUSAL | STINT_BANNED);
    assert_false(stint_take(limiter, window, (stint_key){3 * KEY_STEP}, 4, STINT_NOW, &v));
    assert_int_equal(v.flags, 0);
    /* What was noted of a key as a shadow is void. */
    const uint32_t shadow = (uint32_t)policy_found(limiter, "shadow");
    struct stint_policy policy = parsed("3/day name=shadow ban=7d");
    assert_int_equal(stint_policy_change(limiter, shadow, &policy), 0);
    assert_true(stint_take(limiter, shadow, (stint_key){KEY_STEP}, 1, STINT_NOW, &v));
}

static bool label_told(void *context, const struct stint_entry *entry) {
    assert_int_equal(entry->label_length, 5);
    assert_memory_equal(entry->label, "three", 5);
    *(bool *)context = true;
    return false;
}

/* Whoever opens it is told what to do. That works, also beside those who have it open: they go on
 * by the file that it was. */
TEST_IN_DIRECTORY(test_of_version_0_4) {
    if (sizeof(pthread_mutex_t) != 40) /* of the header: another machine's */
        skip();
    for (unsigned used = 0; used < 2; used++) {
        const struct bytes table = old_table();
        struct stint_options options = old_options(), join = shared_options(0);
        struct stint_limiter *limiter = NULL;
        bool told = false;
        file_write(path, table);
        const int user = open(path, O_RDWR | O_CLOEXEC);
        assert_true(user >= 0 && (used == 0 || flock(user, LOCK_SH) == 0));
        test_time = UINT64_C(1700000060) * SECOND;
        for (unsigned i = 0; i < 2; i++) { /* to read, too */
            join.flags = options.flags = i == 0 ? 0 : STINT_READ_ONLY;
            static const char reason[] = "layout, 5, and this version of stint reads layout 6: "
                                         "make it this one's by stint resize";
            assert_not_opened(&options, EPROTO, reason);
            assert_not_opened(&join, EPROTO, reason);
        }
        options.flags = 0;
        assert_file(table);
        assert_int_equal(file_resize(path, 0), 0);
        limiter = open_with(&options);
        assert_as_of_old(limiter);
        assert_int_equal(stint_each_of(limiter, (stint_key){3 * KEY_STEP}, label_told, &told), 0);
        assert_true(told);
        stint_close(limiter);
        unsigned char *const left = malloc(table.size);
        assert_non_null(left);
        assert_int_equal(pread(user, left, table.size, 0), table.size);
        assert_memory_equal(left, table.start, table.size);
        (void)close(user);
        free(left);
        free(table.start);
    }
}

/* A table of version 0.3 takes two steps; of those before, there is no way. */
TEST_IN_DIRECTORY(test_of_versions_before) {
    static const struct {
        uint32_t layout;
        const char *remedy;
    } rows[] = {{4, "make it one of layout 5 by the `stint resize` of version 0.4"},
                {3, "use the version that made it, or remove the table"}};
    struct bytes table = old_table();
    struct stint_options same = STINT_OPTIONS_INIT;
    const struct stint_options options = old_options();
    same.clock = test_clock;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        memcpy(table.start + offsetof(struct header, layout), &rows[i].layout,
               sizeof rows[i].layout);
        file_write(path, table);
        assert_not_opened(&options, EPROTO, rows[i].remedy);
        assert_refused(&same, EPROTO, rows[i].remedy);
        assert_file(table);
    }
    free(table.start);
}

/* Two processes may begin this at once: who is later finds another file in its place. */
TEST_IN_DIRECTORY(test_directory_locked) {
    struct stint_options same = STINT_OPTIONS_INIT;
    const struct bytes table = old_table();
    const int place = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    file_write(path, table);
    same.clock = test_clock;
    assert_true(place >= 0 && flock(place, LOCK_EX) == 0);
    pauses = 0;
    assert_refused(&same, EBUSY, "has held the lock of the table's directory for 10 s");
    assert_int_equal(pauses, 10000);
    assert_file(table);
    (void)close(place);
    resize(&same);
    free(table.start);
}

/* A symbolic link is not followed; a name that leaves no room for another beside it. */
TEST_IN_DIRECTORY(test_names) {
    char name[NAME_MAX + 1], before[PATH_MAX];
    const char *const linked = file_beside("link");
    struct stint_options options = shaped(6200, 0, 0);
    stint_close(open_with(&options));
    assert_int_equal(symlink(path, linked), 0);
    assert_int_equal(stint_resize(linked, NULL), -ELOOP);
    assert_int_equal(unlink(linked), 0);

    memset(name, 'x', sizeof name - 1);
    for (size_t length = NAME_MAX; length >= NAME_MAX - 8; length--) {
        name[length] = '\0';
        const char *const longer = file_beside(name);
        assert_int_equal(rename(path, longer), 0);
        assert_int_equal(stint_resize(longer, NULL), length > NAME_MAX - 8 ? -ENAMETOOLONG : 0);
        assert_true(length <= NAME_MAX - 8 || strstr(stint_reason(), "247 bytes") != NULL);
        assert_int_equal(entries_of_directory(), 1);
        assert_int_equal(rename(longer, path), 0);
    }
    /* In the directory of the process. */
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(directory), 0);
    assert_int_equal(stint_resize("table", NULL), 0);
    assert_int_equal(chdir(before), 0);
    assert_int_equal(entries_of_directory(), 1);
}

/* The mode, and the owner if he may be given; what was left behind is replaced, not followed. */
TEST_IN_DIRECTORY(test_rights) {
    struct stint_options options = shaped(6200, 0, 0);
    /* Where a killed process may leave a file. */
    const char *const victim = file_beside("victim"), *const leftover =
                                                          file_beside(".table.resize");
    struct stat about;
    stint_close(open_with(&options));
    assert_int_equal(chmod(path, 0640), 0);
    bool owner = geteuid() == 0 && chown(path, 12345, 23456) == 0;
    file_write(victim, (struct bytes){(unsigned char *)path, 3});
    assert_int_equal(symlink(victim, leftover), 0);
    umask(077);
    struct stint_options given = sized(0, 0, 0);
    resize(&given);
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 07777, 0640);
    if (owner) {
        assert_int_equal(about.st_uid, 12345);
        assert_int_equal(about.st_gid, 23456);
    }
    assert_int_equal(stat(victim, &about), 0);
    assert_int_equal(about.st_size, 3);
    assert_int_equal(unlink(victim), 0);
    assert_int_equal(entries_of_directory(), 1);

    /* An access control list, in which user 34567 may read, is not lost in silence. */
    static const uint8_t list[] = {2, 0, 0,   0,   1,   0,   6,  0, 255, 255, 255, 255, 2,   0,  4,
                                   0, 7, 135, 0,   0,   4,   0,  0, 0,   255, 255, 255, 255, 16, 0,
                                   4, 0, 255, 255, 255, 255, 32, 0, 0,   0,   255, 255, 255, 255};
    bool listed = setxattr(path, "system.posix_acl_access", list, sizeof list, 0) == 0;
    if (listed)
        assert_refused(&given, EOPNOTSUPP, "access control list");
    given.mode = 0604;
    resize(&given);
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 07777, 0604);

    /* What cannot be removed is in the way, and that is said. */
    struct bytes before = file_read(path);
    assert_int_equal(mkdir(leftover, 0700), 0);
    assert_int_equal(stint_resize(path, NULL), -EISDIR);
    assert_int_equal(rmdir(leftover), 0);
    assert_file(before);
    free(before.start);
}

/* In a child that is not root, and may write to a directory and a table of another user; or not
 * read his own. */
static int resize_as_another(bool unread) {
    if (setgid(12345) != 0 || setuid(12345) != 0)
        return 77;
    return stint_resize(path, NULL) == (unread ? -EACCES : -EPERM) &&
                   (unread || strstr(stint_reason(), "owner") != NULL)
               ? 0
               : 1;
}

/* The owner of the table stays its owner, or nothing is done. */
TEST_IN_DIRECTORY(test_other_users) {
    if (geteuid() != 0)
        skip();
    struct stint_options options = shaped(6200, 0, 0);
    stint_close(open_with(&options));
    struct bytes before = file_read(path);
    for (unsigned unread = 0; unread < 2; unread++) {
        assert_int_equal(chmod(path, 0666), 0);
        assert_int_equal(chown(path, unread ? 12345 : 0, unread ? 12345 : 0), 0);
        assert_int_equal(chmod(directory, unread ? 0333 : 0777), 0);
        pid_t child = forked();
        if (child == 0)
            _exit(resize_as_another(unread));
        const int status = status_of(child);
        assert_true(WIFEXITED(status));
        if (WEXITSTATUS(status) == 77)
            skip();
        assert_int_equal(WEXITSTATUS(status), 0);
        assert_file(before);
        assert_int_equal(entries_of_directory(), 1);
    }
    free(before.start);
}
