/* SPDX-License-Identifier: MIT
 * Attacks by who can write a table's file while it is used, or its directory; and by who chooses
 * keys and does not know the secret. (Before it is opened: fuzz target `table`.) All that is tried,
 * here and elsewhere, is listed in tests/api/README.md. */
#include "limiter/limiter.h"

#include "directory.h"
#include "key_calls.h"

#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>

#include "policy/occupant.h"
#include "random.h"
#include "sys/testing.h"
#include "wrapped.h"

__attribute__((constructor)) static void begin(void) {
    NOTHING_HOLDS();
}

enum { MAX_POLICIES = 15, KEYS = 24, LABELS = 8, GROUP = 6 };

/* ---- A lock that says that somebody has it: time just passes --------------------------------- */

WRAPPED(int, clock_nanosleep, clockid_t clock, int flags, const struct timespec *until,
        struct timespec *rest) {
    (void)clock, (void)flags, (void)until, (void)rest;
    return 0;
}

/* ---- Mappings with a page on either side that nobody may touch ------------------------------- */

static bool fences;

WRAPPED(void *, mmap64, void *address, size_t length, int protection, int flags, int file,
        off_t offset) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (fences && address == NULL &&
        (flags & MAP_NORESERVE) != 0) /* a table's, before it is mapped there */
        return fenced_memory((length + page - 1) / page * page);
    return __real_mmap64(address, length, protection, flags, file, offset);
}

/* ---- What is attacked ------------------------------------------------------------------------ */

static const char *const kinds[] = {
    "3/minute name=a",
    "5/s name=b capacity=9 reserve=4",
    "4/10s name=c smooth",
    "8/minute stripes=4",
    "3/h name=f start=first",
    "2/day name=e start=per-key shadow jitter=5% near=50%",
    "3/h name=g ban=10m after=2",
    "9/month start=2024-01-15T09:00:00+05:30",
    "4/min in-flight name=i",
    "7/minute name=j count-refused overrides",
    "9/minute name=l burst=12",
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static struct stint_options table_options(void) {
    struct stint_options options = shared_options(800);
    options.secret = test_secret();
    options.shards = 2;
    options.max_policies = MAX_POLICIES;
    options.labels = LABELS;
    return options;
}

/* A policy of each kind, keys that have used them, names. One policy was replaced, one removed. */
static void table_fill(struct stint_limiter *limiter) {
    for (uint32_t id = 0; id < KINDS; id++) {
        struct stint_policy policy = STINT_POLICY_INIT;
        assert_int_equal(stint_policy_parse(kinds[id], &policy, NULL), 0);
        const uint32_t made = add_made(limiter, &policy);
        for (uint64_t key = 0; key < 20; key++)
            (void)stint_take(limiter, made, key_at(limiter, key % 5 + id), 1, STINT_NOW, NULL);
        if ((policy.flags & STINT_OVERRIDES) != 0)
            assert_int_equal(stint_override(limiter, made, 5, 2, test_time + DAY), 0);
    }
    for (uint64_t key = 0; key < LABELS + 2; key++)
        assert_int_equal(stint_label(limiter, key_at(limiter, key), "\033[31m\r\n", 7), 0);
    assert_int_equal(stint_policies_apply(limiter, "3/h name=a", 0, NULL, NULL, NULL), 0);
    assert_int_equal(stint_policy_remove(limiter, (uint32_t)policy_found(limiter, "f")), 0);
}

/* ---- Every call that is given a limiter ------------------------------------------------------ */

struct attack {
    struct stint_limiter *limiter;
    struct random random;
    uint32_t policy; /* whose id every second request names */
    bool looks;      /* requests are looks */
    struct stint_request requests[GROUP];
    struct stint_verdict verdicts[GROUP];
};

static uint32_t any_number(struct random *random) {
    static const uint32_t edges[] = {0,         1, 2, 3, 9, STINT_LIMIT_MAX, STINT_LIMIT_MAX + 1,
                                     UINT32_MAX};
    return edges[random_below(random, sizeof edges / sizeof edges[0])];
}

static void draw(struct attack *attack) {
    struct random *random = &attack->random;
    for (uint32_t i = 0; i < GROUP; i++) {
        attack->requests[i] = (struct stint_request){
            .key = key_at(attack->limiter, random_below(random, KEYS)),
            .policy = random_below(random, 2) == 0 && attack->policy != POLICY_NONE
                          ? attack->policy
                          : (uint32_t)random_below(random, MAX_POLICIES + 1),
            .cost = random_below(random, 2) == 0 ? 1 : any_number(random),
            .limit = random_below(random, 4) != 0 ? 0 : any_number(random),
            .flags =
                random_below(random, 2) == 0 ? 0 : STINT_PEEK * (uint32_t)random_below(random, 32)};
        if (attack->looks)
            attack->requests[i].flags = STINT_PEEK;
    }
}

static void call_decisions(struct attack *attack) {
    struct stint_limiter *limiter = attack->limiter;
    const struct stint_request *requests = attack->requests;
    struct stint_verdict *verdicts = attack->verdicts;
    static const size_t sizes[] = {1, 3, GROUP - 4};
    const uint64_t now =
        random_below(&attack->random, 4) == 0 ? test_time - 30 * SECOND : STINT_NOW;
    stint_prefetch(limiter, requests[0].key);
    (void)stint_take(limiter, requests[0].policy, requests[0].key, requests[0].cost, now,
                     &verdicts[0]);
    (void)stint_decide(limiter, &requests[1], now, &verdicts[1]);
    (void)stint_decide_batch(limiter, requests, GROUP, now, verdicts);
    stint_refund(limiter, requests[2].key, &verdicts[2], verdicts[2].granted);
    (void)stint_decide_groups(limiter, requests, GROUP, sizes, 3, now, verdicts);
    (void)stint_decide_all(limiter, requests, GROUP, now, verdicts);
    (void)stint_refund_all(limiter, requests, verdicts, GROUP);
    for (uint32_t i = 0; i < GROUP; i++)
        assert_true(verdicts[i].granted <= requests[i].cost);
    if (random_below(&attack->random, 8) == 0)
        stint_reset(limiter, requests[3].policy, requests[3].key);
}

static void call_overrides(struct attack *attack) {
    struct stint_limiter *limiter = attack->limiter;
    const struct stint_request *asked = &attack->requests[0];
    uint32_t limit;
    uint64_t until;
    const uint64_t end = stint_now(limiter) + random_below(&attack->random, DAY);
    int error = stint_override(limiter, asked->policy, asked->key, asked->limit, end);
    assert_true(error <= 0 && error >= -4095);
    error = stint_override_get(limiter, asked->policy, asked->key, &limit, &until);
    assert_true(error == 0 || error == -ENOENT || error == -EINVAL);
    if (random_below(&attack->random, 2) == 0)
        (void)stint_override_clear(limiter, asked->policy, asked->key);
}

static void call_keys(struct attack *attack) {
    const struct sockaddr_in address = {.sin_family = AF_INET};
    stint_key key = stint_key_address(attack->limiter, (const struct sockaddr *)&address, 24, 64);
    key = stint_key_join(attack->limiter, key, "x", 1);
    int error = stint_label(attack->limiter, attack->requests[0].key.hash ^ (key.hash & 1),
                            "a\033[2J\n", 6);
    assert_true(error == 0 || error == -EROFS);
    assert_true(stint_key_of(attack->limiter, "x", 1).hash != 0);
    assert_true(stint_key_of_id(attack->limiter, 7).hash != 0);
}

static void call_watching(struct attack *attack) {
    struct stint_limiter *limiter = attack->limiter;
    struct stint_stats stats = STINT_STATS_INIT;
    char text[400];
    assert_int_equal(stint_stats_get(limiter, &stats), 0);
    assert_true(stats.used <= stats.slots && stats.policies <= MAX_POLICIES);
    assert_entries(limiter, attack->requests[0].key);
    assert_metrics(limiter);
    for (uint32_t id = 0; id <= MAX_POLICIES; id++) {
        struct stint_policy_stats counts = STINT_POLICY_STATS_INIT;
        struct stint_policy policy = STINT_POLICY_INIT;
        (void)stint_policy_stats_get(limiter, id, &counts);
        (void)!stint_request_check(limiter, &(struct stint_request)STINT_REQUEST(id, 7, 1));
        if (stint_policy_get(limiter, id, &policy) == 0) {
            assert_non_null(memchr(policy.name, '\0', sizeof policy.name));
            (void)!stint_policy_find(limiter, policy.name, NULL);
            assert_true(stint_policy_format(&policy, text, sizeof text) != 0);
        }
        assert_fields(limiter, attack->verdicts);
    }
}

static void call_policies(struct attack *attack) {
    struct stint_limiter *limiter = attack->limiter;
    struct random *random = &attack->random;
    struct stint_policy policy = STINT_POLICY_INIT;
    const uint32_t id = (uint32_t)random_below(random, MAX_POLICIES + 1);
    const char *wrong;
    uint32_t told = 0;
    int error = 0;
    if (stint_policy_get(limiter, id, &policy) == 0) {
        policy.limit = 1 + (uint32_t)random_below(random, 9);
        (void)stint_policy_change_check(limiter, id, &policy);
        (void)!stint_policy_change(limiter, id, &policy);
    }
    assert_int_equal(stint_policy_parse(kinds[random_below(random, KINDS)], &policy, NULL), 0);
    error = stint_policy_add(limiter, &policy, NULL);
    assert_true(error <= 0 && error > -4096);
    error = stint_policies_apply(limiter, "2/h name=a\n5/s name=b\n8/min name=k stripes=8",
                                 (uint32_t)random_below(random, 4) & (STINT_DRY_RUN | STINT_PRUNE),
                                 &wrong, assert_change, &told);
    assert_true(error <= 0 && error > -4096);
    if (random_below(random, 4) == 0)
        (void)stint_policy_remove(limiter, id);
}

static void (*const calls[])(struct attack *) = {call_decisions, call_decisions, call_overrides,
                                                 call_keys,      call_watching,  call_policies};
enum { CALLS = sizeof calls / sizeof calls[0] };

/* ---- Words of a table ------------------------------------------------------------------------ */

/* A word of a part: where it is, and what may stand there instead. */
static size_t any_word(struct random *random, const struct layout *layout) {
    const uint64_t part = random_below(random, PARTS);
    return (layout->at[part] + random_below(random, layout->at[part + 1] - layout->at[part])) &
           ~7ul;
}

static uint64_t any_value(struct random *random, const uint64_t *words, const struct layout *layout,
                          uint64_t was) {
    switch (random_below(random, 8)) {
    case 0:
        return random_below(random, 2) - 1; /* all ones, or none */
    case 1:
        return (UINT64_C(1) << 63) - random_below(random, 2);
    case 7:
        return UINT64_C(1) << 31;
    case 2:
        return was ^ UINT64_C(1) << random_below(random, 64);
    case 3:
        return random_next(random);
    case 4:
        return random_below(random, 70);
    case 5:
        return UINT64_C(0x0A0D0A0D0A0D0A0D); /* CR LF: no NUL */
    default:
        return words[any_word(random, layout) / 8];
    }
}

/* ---- Opening --------------------------------------------------------------------------------- */

static void write_table(void *bytes, size_t size) {
    file_write(path, (struct bytes){bytes, size});
}

/* The bytes of a good table. */
static uint64_t *good_table(size_t *size) {
    struct stint_options options = table_options();
    test_time = T0;
    struct stint_limiter *limiter = open_with(&options);
    table_fill(limiter);
    *size = limiter->memory.size;
    uint64_t *bytes = malloc(*size);
    memcpy(bytes, limiter->header, *size);
    stint_close(limiter);
    assert_int_equal(unlink(path), 0);
    return bytes;
}

enum way { OPEN, ATTACH, READ, WAYS };

static int open_some_way(enum way way, struct stint_limiter **opened) {
    struct stint_options options = table_options(), shape = STINT_OPTIONS_INIT;
    if (way == OPEN)
        return stint_open(&options, opened);
    shape.clock = test_clock;
    shape.path = path;
    shape.flags = way == READ ? STINT_READ_ONLY : 0;
    return stint_attach(&shape, opened);
}

/* ---- A writer while the table is used -------------------------------------------------------- */

/* One word of the table is written over at one step of a call. So a call that reads it twice finds
 * it good, and then not. */
static struct {
    uint64_t *word, was, value;
    uint64_t left;  /* steps before it */
    bool written;   /* so that it is one store */
    unsigned call;  /* which is made */
    uint64_t steps; /* of that call since */
} writing;

/* More steps than any call takes here: 20 requests by 128 stripes, each a hundred times. */
enum { STEPS_MOST = 2000000 };

static void still_busy(int number) {
    fprintf(stderr, "call %u does not return (%s): word %p was %" PRIx64 ", and is %" PRIx64 "\n",
            writing.call, number == 0 ? "steps" : "no steps", (void *)writing.word, writing.was,
            writing.value);
    abort();
}

static void write_at_step(const void *word) {
    (void)word;
    if (writing.written && ++writing.steps > STEPS_MOST)
        still_busy(0);
    if (writing.written || writing.left-- != 0)
        return;
    writing.written = true;
    *writing.word = writing.value;
}

/* Ends this process after so many seconds of CPU, as a loop without steps would not end. */
static void end_after(time_t seconds) {
    const struct itimerval most = {.it_value = {.tv_sec = seconds}};
    signal(SIGVTALRM, still_busy);
    assert_int_equal(setitimer(ITIMER_VIRTUAL, &most, NULL), 0);
}

/* The calls from now on find this word written over, after so many steps. */
static void write_next(uint64_t *word, uint64_t value, uint64_t left) {
    writing.word = word;
    writing.was = *word;
    writing.value = value;
    writing.left = left;
    writing.written = false;
}

static void call_begins(unsigned number) {
    writing.call = number;
    writing.steps = 0;
    stint_test_step = write_at_step;
}

static void call_ended(void) {
    stint_test_step = NULL;
}

/* What may stand in a word that holds one number, or two. */
static uint64_t value_of(unsigned number, uint64_t was) {
    const uint64_t values[] = {0,
                               UINT64_MAX,
                               INT64_MAX,
                               UINT64_C(1) << 63,
                               was >> 32 << 32,
                               (uint32_t)was,
                               (was >> 32 << 32) + 77,
                               UINT64_C(77) << 32 | (uint32_t)was};
    return values[number % (sizeof values / sizeof *values)];
}

/* Each word of a policy and of its record is written over at each step of each call. */
TEST(test_each_word_at_each_step) {
    enum { WORDS = (sizeof(struct policy) + sizeof(struct policy_record)) / 8, PLAYS = 40 };
    struct random random = {test_seed()};
    struct stint_options options = fixture_options(200, STINT_FULL_REFUSE);
    options.max_policies = MAX_POLICIES;
    options.labels = LABELS;
    const size_t size = stint_memory_size(&options);
    uint64_t *memory = fenced_memory(size), *good = malloc(size);
    struct stint_limiter *limiter;

    test_time = T0;
    assert_int_equal(stint_open_in(&options, memory, size, &limiter), 0);
    table_fill(limiter);
    const struct layout layout = layout_of(limiter);
    /* Counters stay as they are: nobody trusts them. */
    const size_t front = layout.at[COUNTERS], rest = layout.at[SHARDS];
    memcpy(good, memory, size);
    end_after(600);
    for (uint32_t id = 0; id < limiter_policy_count(limiter); id++) {
        for (unsigned place = 0; place < WORDS * test_rounds(8); place++) {
            const unsigned number = place % WORDS, of_policy = sizeof(struct policy) / 8;
            uint64_t *const word = number < of_policy
                                       ? (uint64_t *)&limiter->policies[id] + number
                                       : (uint64_t *)&limiter->records[id] + number - of_policy;
            const uint64_t value = value_of(place / WORDS, *word);
            const stint_key key = key_at(limiter, id + random_below(&random, 7));
            const struct about about = {limiter, id, key, key, {.policy = id, .granted = 1}};
            test_time = T0 + (random_below(&random, 2) == 0 ? 0 : random_below(&random, 3 * HOUR));
            for (unsigned call = 0; call < CALLS_OF_KEY; call++) {
                uint64_t step = 0;
                do {
                    memcpy(memory, good, front);
                    memcpy((char *)memory + rest, (char *)good + rest, size - rest);
                    write_next(word, value, step++);
                    call_begins(call);
                    call_of_key(&about, call);
                    call_ended();
                } while (writing.written && step < PLAYS);
            }
            memcpy(memory, good, front);
        }
    }
    end_after(0);
    stint_close(limiter);
    fenced_free(memory, size);
    free(good);
}

/* A word of a policy, or any: none of the lock, nor of a slot that is not used. (By the magic the
 * table is lost: lost.c.) */
static size_t telling_word(struct random *random, const struct layout *layout,
                           const uint64_t *words) {
    const size_t lock = offsetof(struct header, lock), of_policies = KINDS * sizeof(struct policy);
    size_t at;
    if (random_below(random, 3) == 0)
        return layout->at[POLICIES] + random_below(random, of_policies / 8) * 8;
    do
        at = any_word(random, layout);
    while (at == 0 || (at >= lock && at < lock + sizeof(pthread_mutex_t)) ||
           (at >= layout->at[LINES] && words[at / 16 * 2] == 0));
    return at;
}

/* The policy that a word is of. */
static uint32_t policy_at(const struct layout *layout, size_t at, const uint64_t *words) {
    return at < layout->at[POLICIES] ? POLICY_NONE
           : at < layout->at[RECORDS]
               ? (uint32_t)((at - layout->at[POLICIES]) / sizeof(struct policy))
           : at < layout->at[COUNTERS]
               ? (uint32_t)((at - layout->at[RECORDS]) / sizeof(struct policy_record))
           : at >= layout->at[LINES] && at < layout->at[REACH]
               ? (uint32_t)(words[at / 16 * 2] % (MAX_POLICIES + 1)) - 1
               : POLICY_NONE;
}

/* One store into a table in use: every call returns, and stays within its memory, by who writes to
 * the table and by who only reads. */
TEST_IN_DIRECTORY(test_one_store) {
    struct attack attack = {.random = {test_seed()}};
    struct stint_limiter *limiters[2]; /* a writer, a reader */
    test_time = T0;
    fences = true;
    assert_int_equal(open_some_way(OPEN, &limiters[0]), 0);
    table_fill(limiters[0]);
    assert_int_equal(open_some_way(READ, &limiters[1]), 0);
    fences = false;
    const struct layout layout = layout_of(limiters[0]);
    const size_t size = layout.at[PARTS];
    uint64_t *memory = (uint64_t *)(void *)limiters[0]->header, *good = malloc(size);
    memcpy(good, memory, size);
    end_after(600);
    for (uint64_t store = 0; store < test_rounds(4000); store++) {
        const size_t at = telling_word(&attack.random, &layout, good);
        memcpy(memory, good, size);
        attack.policy = policy_at(&layout, at, good);
        if (store % 8 == 0) /* and a name without an end */
            memset((char *)memory + layout.at[RECORDS] +
                       random_below(&attack.random, KINDS) * sizeof(struct policy_record),
                   '\n', STINT_NAME_SIZE);
        test_time = T0 + random_below(&attack.random, 2) * random_below(&attack.random, 3 * HOUR);
        uint64_t value = good[at / 8] ^ UINT64_C(1) << random_below(&attack.random, 64);
        if (random_below(&attack.random, 2) == 0)
            value = any_value(&attack.random, good, &layout, good[at / 8]);
        write_next(&memory[at / 8], value,
                   random_below(&attack.random, 2) * random_below(&attack.random, 40));
        for (unsigned number = 0; number < 2 * CALLS; number++) {
            attack.limiter = limiters[number / CALLS];
            attack.looks = number >= CALLS;
            draw(&attack);
            call_begins(number);
            calls[number % CALLS](&attack);
            call_ended();
        }
    }
    end_after(0);
    memcpy(memory, good, size);
    stint_close(limiters[1]);
    stint_close(limiters[0]);
    free(good);
}

/* A table says that no key is as far from its home as some are (I6). */
TEST(test_reach_lowered) {
    enum { MANY = 400 };
    test_time = T0;
    struct stint_limiter *limiter = open_limiter(MANY, STINT_FULL_REFUSE);
    const uint32_t id = add_text(limiter, "1/minute ban=1h overrides name=p");
    for (uint64_t key = 0; key < MANY; key++)
        assert_int_equal(stint_override(limiter, id, number_key(limiter, key), 2, test_time + DAY),
                         0);
    assert_true(limiter->table.shards[0].reach > 1);
    alarm(60);
    for (uint64_t key = 0; key < MANY; key++) {
        memset(reach_words(&limiter->table), 0, limiter->table.line_count);
        assert_int_equal(stint_override(limiter, id, number_key(limiter, key), 3, test_time + DAY),
                         0);
    }
    alarm(0);
    stint_close(limiter);
}

/* ---- The directory, by who may write to it --------------------------------------------------- */

/* What may stand where the table is looked for: one of these takes its place at any instant. */
static const char *const swapped[] = {"link", "outside",   "pipe", "text",
                                      "cut",  "directory", "other"};
enum { SWAPPED = sizeof swapped / sizeof swapped[0] };

static unsigned open_files(void) {
    unsigned count = 0;
    for (int file = 0; file < 256; file++)
        count += fcntl(file, F_GETFD) >= 0;
    return count;
}

/* Somebody puts other things in the place of the table while it is opened: links, pipes, other
 * files. Each is refused with what is the matter, or the table is one of those that were there;
 * what is no table is never written to, and what a link leads to neither. */
TEST_IN_DIRECTORY(test_swapped_while_opened) {
    struct random random = {test_seed()};
    size_t size;
    uint64_t *good = good_table(&size);
    static const char victim[] = "no table, but long enough: ";
    char bytes[2][8192] = {"", ""};
    struct stat about, now;
    for (size_t i = 0; i + sizeof victim < sizeof bytes[0]; i += sizeof victim)
        memcpy(bytes[0] + i, victim, sizeof victim);
    write_table(bytes[0], sizeof bytes[0]);
    assert_int_equal(link(path, file_beside("victim")), 0); /* by another name, out of his reach */
    assert_int_equal(rename(path, file_beside("text")), 0);
    write_table(good, size / 2);
    assert_int_equal(rename(path, file_beside("cut")), 0);
    write_table(good, size);
    assert_int_equal(rename(path, file_beside("other")), 0);
    assert_int_equal(symlink("other", file_beside("link")), 0);
    assert_int_equal(symlink("text", file_beside("outside")), 0);
    assert_int_equal(mkfifo(file_beside("pipe"), 0600), 0);
    assert_int_equal(mkdir(file_beside("directory"), 0700), 0);
    write_table(good, size);
    assert_int_equal(stat(file_beside("victim"), &about), 0);

    const unsigned files = open_files();
    struct random swaps = {random_next(&random)};
    pid_t child = forked();
    if (child == 0)
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (child == 0)
        (void)syscall(SYS_renameat2, AT_FDCWD, path, AT_FDCWD,
                      file_beside(swapped[random_below(&swaps, SWAPPED)]), 2 /* RENAME_EXCHANGE */);
    for (uint64_t round = 0; round < test_rounds(2000); round++) {
        struct stint_limiter *limiter = NULL;
        int error = open_some_way((enum way)random_below(&random, WAYS), &limiter);
        if (error == 0) {
            assert_true(fstat(limiter->memory.file, &now) == 0 && now.st_ino != about.st_ino);
            stint_close(limiter);
            continue;
        }
        assert_true(error == -ELOOP || error == -EPROTO || error == -EISDIR || error == -ENXIO);
        assert_null(limiter);
    }
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(open_files(), files);
    int file = open(file_beside("victim"), O_RDONLY);
    assert_int_equal(read(file, bytes[1], sizeof bytes[1]), sizeof bytes[1]);
    assert_memory_equal(bytes[0], bytes[1], sizeof bytes[0]);
    assert_true(fstat(file, &now) == 0 && now.st_size == about.st_size);
    close(file);
    for (int i = 0; i < SWAPPED; i++) /* all are there, and nothing else (directory_remove) */
        assert_true(unlink(file_beside(swapped[i])) == 0 || rmdir(file_beside(swapped[i])) == 0);
    assert_int_equal(unlink(file_beside("victim")), 0);
    (void)(unlink(path) == 0 || rmdir(path) == 0);
    free(good);
}

/* ---- Keys that are alike, by who does not know the secret ------------------------------------ */

enum { FLOOD = 4000, FLOOD_KEYS = 16000 };

/* Key `i` of a family: what somebody would try who knows the hash, but not the secret. */
static stint_key family_key(const struct stint_limiter *limiter, int family, uint32_t i) {
    static _Alignas(8) char bytes[4096];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(0x0A000000 + i)}};
    uint64_t *words = (uint64_t *)(void *)bytes;
    memset(bytes, 0, sizeof bytes);
    switch (family) {
    case 0: /* numbers, of all widths up to 8 */
        words[0] = i;
        return stint_key_of(limiter, bytes, 3 + i % 6);
    case 1:
        return stint_key_of(limiter, bytes, (size_t)snprintf(bytes, 32, "%u", i));
    case 2: /* nothing but their length */
        return stint_key_of(limiter, bytes, i);
    case 3: /* two bits of 9 to 16 bytes, of 128, of 240, and of what is hashed by stripes */
    case 4:
    case 5:
    case 6: {
        static const uint32_t lengths[] = {16, 128, 240, 1100};
        const uint32_t bits = lengths[family - 3] * 8, first = i % bits,
                       second = (first + 1 + i / bits) % bits;
        bytes[first / 8] ^= (char)(1 << first % 8);
        bytes[second / 8] ^= (char)(1 << second % 8);
        return stint_key_of(limiter, bytes, bits / 8);
    }
    case 7: /* the same words in other places of one block, whose sums have no order */
        words[i % 128] = 1;
        words[(i % 128 + 1 + i / 128) % 128] = UINT64_C(1) << 63;
        return stint_key_of(limiter, bytes, 1024);
    case 8: /* of other lanes and stripes: the products of 0 and of all ones */
        memset(bytes, 0xFF, sizeof bytes);
        words[i % 512] = 0;
        words[(i % 512 + 1 + i / 512) % 512] = 0;
        return stint_key_of(limiter, bytes, sizeof bytes);
    case 9:
        return stint_key_address(limiter, (const struct sockaddr *)&address, 32, 64);
    default: /* pairs, both ways round */
        words[0] = i / 2;
        return i % 2 == 0 ? stint_key_join(limiter, key_at(limiter, i / 2 + 1), "a", 1)
                          : stint_key_join(limiter, number_key(limiter, 0), bytes, 8);
    }
}

/* I: no family of keys is worse for any secret than random ones: all are different, and no home
 * line has more of them than chance gives it. (Of 4,000 keys in 8,000 lines 20 have one home with a
 * probability of 1 in 10^21; two are one key with 1 in 10^12.) */
TEST(test_alike_without_the_secret) {
    struct stint_options options = STINT_OPTIONS_INIT;
    static stint_key keys[FLOOD];
    options.max_entries = FLOOD_KEYS;
    options.shards = 1;
    for (uint64_t table = 0; table < test_rounds(8); table++) {
        struct stint_limiter *limiter = open_with(&options); /* its secret is random */
        for (int family = 0; family < 11; family++) {
            static uint8_t homes[FLOOD_KEYS];
            memset(homes, 0, sizeof homes);
            for (uint32_t i = 0; i < FLOOD; i++) {
                keys[i] = family_key(limiter, family, i);
                assert_true(++homes[table_home(&limiter->table, keys[i].hash)] < 20);
            }
            assert_all_differ(keys, FLOOD);
        }
        stint_close(limiter);
    }
}
