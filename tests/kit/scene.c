/* SPDX-License-Identifier: MIT
 * No threads of the system: what others do is done inside the thread's own call, before one of its
 * atomic operations; a second thread that is stopped as well has a stack of its own. Who is to die
 * is a process. */
#include "scene.h"

#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "limiter/counters.h" /* for the number of the thread */
#include "policy/occupant.h"
#include "policy_id.h"

#include "model.h"
#include "named.h"
#include "random.h"
#include "schedule.h"
#include "watch.h"

#define EPOCH     UINT64_C(1700000000000000000) /* ns: a multiple of every window of the scenes */
#define TICK      STINT_TICK_NS
#define LATE_MOST UINT64_C(60000000000) /* ns: the allowance */

enum {
    STEPS_MAX = 20000, /* of all threads: more is waiting for a thread that does not go on */
    LOG_MAX = 512,
    STOPS_TRIED = 40, /* of the second of two threads, and of the first meanwhile */
    STOPS_ALL = 240,  /* then it looks at the many slots of a table in a file */
    STACK = 256 * 1024,
    MEMORY_MOST = 1 << 18,
    POLICIES_MAX = 16,
    LIMITS_MAX = 8,
    ACTS_MAX = 40,
    CALLS_MAX = 400,
    JUDGED_MAX = 256,
    PARTS_MAX = 4,
    TEXT_MAX = 200,
    STRIPE_OF_ALL = 2, /* the number of threads that have none of their own: of a first stripe */
    REST = 40,         /* tokens that are taken at most until one is refused */
};

/* A policy that a scene names need not be added. */
static const char *const known_policies[] = {
    "one 1/100ms",
    "two 2/100ms",
    "near 2/100ms near=50%",
    "striped 4/100ms stripes=2",
    "debt 1/100ms reserve=1",
    "later 1/160ms",
    "half 1/40s",
    "once 1/100s",
    "long 10/100s",
    "own 2/100s start=per-key",
    "first 1/100ms start=first",
    "month 1/month",
    "held 2/100ms in-flight",
    "smooth 16383/100ms smooth",
    "ruled 2/100s overrides",
};

/* ---- Acts ------------------------------------------------------------------------------------ */

/* clang-format off */
#define NAME(name) #name,
#define VERBS_NAMED(X) \
    X(TAKE) X(ALL) X(BATCH) X(HOLD) X(REFUND) X(BACK) X(RESET) X(TURN) X(TELL) X(DIE) X(STRAY) \
    X(ADD) X(CHANGE) X(APPLY) X(REMOVE) X(FIND) X(PRUNE) X(TIDY) X(LABEL) X(SEEN) X(CLOSE) \
    X(OPEN) X(EACH) X(HEADERS) X(OVERRIDE) X(CLEAR) X(AS)
/* What must come of a request. Those from USED on have a number. */
#define EXPECTED_NAMED(X) \
    X(YES) X(NO) X(FAR) X(PLACED) X(FRESH) X(SOON) X(NEVER) X(COUNTED) X(PLAIN) X(RULED) \
    X(USED) X(CAPACITY) X(GRANTED) X(MOST) X(BACK) X(WINDOW)
/* clang-format on */

#define VERB(name) name,
enum verb { VERBS_NAMED(VERB) VERBS };
static const char *const verbs[VERBS] = {VERBS_NAMED(NAME)};

#define EXPECT(name) EXPECT_##name,
enum { EXPECTED_NAMED(EXPECT) EXPECTED };
static const char *const expected_names[EXPECTED] = {EXPECTED_NAMED(NAME)};

/* One request of an act, and what must come of it. */
struct part {
    unsigned policy; /* its place in s.policies */
    uint64_t key;
    uint32_t cost, limit, flags;
    bool by_decide; /* else by stint_take */
    bool expected[EXPECTED];
    int64_t due[EXPECTED];
    uint32_t marks; /* verdict.flags that must be set */
    bool either;    /* `used`, or `capacity`, may be this if `a` was killed: */
    int64_t before;
    bool otherwise; /* all that is expected, if the group is refused */
};

struct act {
    enum verb verb;
    const char *text; /* of the scene, */
    int length;
    struct part parts[PARTS_MAX];
    unsigned count;
    unsigned times; /* at most, if it goes on until one is refused */
    bool rest, late, unasked, quiet, beside;
    int64_t tick, beside_at;
    char notation[TEXT_MAX];
};

struct acts {
    struct act acts[ACTS_MAX];
    unsigned count;
};

/* ---- A play ---------------------------------------------------------------------------------- */

struct named {
    char name[24];
    struct stint_policy policy; /* as it was first */
    uint32_t id;
    bool added, replaced;
    bool uncapped;        /* more can be used in a window than its limit: A is not asked, nor B */
    uint32_t most, least; /* limits that it had, or that a key or a request had in its place */
    uint64_t span, token; /* of a bucket, ns: the longest that it fills, the shortest of a token */
    uint64_t slowest;     /* the longest of a token */
    bool rates;           /* these were of several rates */
    unsigned kept;        /* calls that kept the tokens of one, after its rate had changed */
    uint32_t limits[LIMITS_MAX];
    unsigned limit_count;
};

/* An act that was made once. */
struct call {
    const struct act *act;
    unsigned role;
    uint64_t now;
    int result;
    unsigned began, ended; /* in the order of all beginnings and ends */
};

/* What was asked and answered. */
struct logged {
    unsigned call;
    uint64_t key;
    unsigned policy;
    unsigned role; /* whose it is */
    uint64_t now;
    bool whole; /* one token, without flags: B can be told from the answer */
    bool quiet;
    uint32_t asked; /* tokens, all or none; 0: not so */
    struct stint_verdict verdict;
    uint32_t given_back;
    bool reset;
};

enum { KEY = 77, OTHER, THIRD, HOLDER = 100 };

enum { NOBODY, FIRST, SECOND, ROLES }; /* others; `a`; `b` where it is stopped as well */

static struct {
    const struct scene *scene;
    struct acts before, a, b, c, after;
    struct named policies[POLICIES_MAX];
    unsigned policy_count;

    struct stint_limiter *limiter;
    struct watch watch;
    uint64_t time;
    struct logged log[LOG_MAX];
    unsigned logged;
    struct call calls[CALLS_MAX];
    unsigned call_count, events;
    unsigned call[ROLES]; /* that they are in */
    unsigned role;
    uint64_t number[ROLES];
    unsigned steps[ROLES], all_steps;
    unsigned stops[3];
    bool second_done, waits, deaths, set_back, killed;
    bool opened; /* once more: ids may be free */
    bool labelled;
    struct stint_limiter *writer; /* others' handle, if `a` has one of its own */
    char broken[SCENE_BROKEN_MAX];
    jmp_buf stuck, died;
} s;

static void breaks(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void breaks(const char *format, ...) {
    va_list arguments;
    if (s.broken[0] != '\0')
        return;
    va_start(arguments, format);
    (void)vsnprintf(s.broken, sizeof(s.broken), format, arguments);
    va_end(arguments);
}

static uint64_t tick_time(int64_t tick) {
    return EPOCH + (uint64_t)tick * TICK;
}

/* ---- Words ----------------------------------------------------------------------------------- */

static _Noreturn void no_scene(const char *text, const char *why) {
    fprintf(stderr, "scene \"%s\": %s: '%s'\n", s.scene->name, why, text);
    abort();
}

/* The next word of a text, behind which the text goes on. Returns false at its end. */
static bool next_word(const char **text, char word[TEXT_MAX]) {
    const char *start = *text + strspn(*text, " \n");
    size_t length = strcspn(start, " \n");
    if (length == 0 || length >= TEXT_MAX)
        return false;
    memcpy(word, start, length);
    word[length] = '\0';
    *text = start + length;
    return true;
}

static int64_t next_number(const char **text) {
    char word[TEXT_MAX], *end;
    if (!next_word(text, word))
        no_scene(*text, "a number is missing");
    if (strcmp(word, "zero") == 0) /* the epoch */
        return -(int64_t)(EPOCH / TICK);
    if (strcmp(word, "wrap") == 0) { /* before the window whose end is 0 in the bits of a slot */
        const uint64_t around = (UINT64_C(1) << ID_BITS) * TICK;
        return (int64_t)(((EPOCH / around + 1) * around - EPOCH) / TICK) - 1;
    }
    int64_t number = strtoll(word, &end, 10);
    if (*end != '\0')
        no_scene(word, "no number");
    return number;
}

static unsigned policy_of(const char *name) {
    const size_t length = strlen(name);
    for (unsigned i = 0; i < s.policy_count; i++)
        if (strcmp(s.policies[i].name, name) == 0)
            return i;
    if (s.policy_count == POLICIES_MAX || length >= sizeof(s.policies[0].name))
        no_scene(name, "too many policies, or too long a name");
    struct named *named = &s.policies[s.policy_count];
    *named = (struct named){.id = UINT32_MAX};
    memcpy(named->name, name, length + 1);
    return s.policy_count++;
}

static unsigned next_policy(const char **text) {
    char word[TEXT_MAX];
    if (!next_word(text, word))
        no_scene(*text, "a policy is missing");
    return policy_of(word);
}

static uint64_t next_key(const char **text) {
    char word[TEXT_MAX];
    if (!next_word(text, word))
        no_scene(*text, "a key is missing");
    if (strcmp(word, "key") == 0)
        return KEY;
    if (strcmp(word, "other") == 0)
        return OTHER;
    if (strcmp(word, "third") == 0)
        return THIRD;
    uint64_t holder = HOLDER + strtoull(word + 1, NULL, 10);
    if (word[0] != 'h' && word[0] != 'f')
        no_scene(word, "no key");
    return word[0] == 'f' ? holder << 40 : holder;
}

static bool read_expected(struct part *part, const char *word, const char **text) {
    static const struct {
        const char *word;
        uint32_t flag;
    } marks[] = {{"first", STINT_FIRST_REFUSAL},
                 {"near", STINT_NEAR_LIMIT},
                 {"over", STINT_OVERRIDDEN},
                 {"untracked", STINT_UNTRACKED}};
    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
        if (strcmp(word, marks[i].word) == 0) {
            part->marks |= marks[i].flag;
            return true;
        }
    for (int i = 0; i < EXPECTED; i++)
        if (strcasecmp(word, expected_names[i]) == 0) {
            part->expected[i] = true;
            part->due[i] = i < EXPECT_USED ? 0 : next_number(text);
            return true;
        }
    part->otherwise |= strcmp(word, "else") == 0;
    if (strcmp(word, "or") == 0) {
        int64_t *number = &part->due[part->expected[EXPECT_USED] ? EXPECT_USED : EXPECT_CAPACITY];
        part->before = *number;
        part->either = true;
        *number = next_number(text);
        return true;
    }
    return strcmp(word, "else") == 0;
}

static bool read_request(struct act *act, struct part *part, const char *word, const char **text) {
    static const struct {
        const char *word;
        uint32_t flags;
    } flags[] = {
        {"long", STINT_PARTIAL},        {"partial", STINT_PARTIAL}, {"reserve", STINT_RESERVE},
        {"drain", STINT_DRAIN},         {"charge", STINT_CHARGE},   {"look", STINT_PEEK},
        {"tentative", STINT_TENTATIVE},
    };
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
        if (strcmp(word, flags[i].word) == 0) {
            part->flags |= flags[i].flags;
            part->by_decide = true;
            return true;
        }
    if (strcmp(word, "cost") == 0) {
        part->cost = (uint32_t)next_number(text);
        part->by_decide = true;
    } else if (strcmp(word, "limit") == 0) {
        part->limit = (uint32_t)next_number(text);
        part->by_decide = true;
    } else if (strcmp(word, "at") == 0) {
        act->tick = next_number(text);
        act->late = true;
    } else if (word[0] == 'x' && word[1] >= '1' && word[1] <= '9') {
        act->times = (unsigned)strtoul(word + 1, NULL, 10);
    } else if (strcmp(word, "rest") == 0) {
        act->rest = true;
    } else if (strcmp(word, "unasked") == 0) {
        act->unasked = true;
    } else if (strcmp(word, "quiet") == 0) {
        act->quiet = true;
    } else if (strcmp(word, "beside") == 0) {
        act->beside = true;
        act->beside_at = next_number(text);
    } else {
        return false;
    }
    return true;
}

/* What follows the verb, the policy and the key of an act. */
static void read_words(struct act *act, const char *text) {
    char word[TEXT_MAX];
    unsigned part = 0;
    bool expects = false;
    while (next_word(&text, word)) {
        if (strcmp(word, "=") == 0) {
            expects = true;
            part = 0;
        } else if (strcmp(word, "+") == 0) {
            if (!expects) {
                act->parts[act->count].policy = next_policy(&text);
                act->parts[act->count].key = next_key(&text);
                act->parts[act->count++].cost = 1;
            }
            part++;
        } else if (part >= act->count || part >= PARTS_MAX - 1 ||
                   !(expects ? read_expected(&act->parts[part], word, &text)
                             : read_request(act, &act->parts[part], word, &text))) {
            no_scene(word, "no word of an act");
        }
    }
}

/* Numbers of names, a bit each. */
static void read_names(struct part *part, const char **text) {
    char word[TEXT_MAX];
    for (const char *rest = *text; next_word(&rest, word) && word[0] != '='; *text = rest)
        if (strcmp(word, "or") == 0) {
            part->flags = part->limit;
            part->limit = 0;
        } else {
            part->limit |= UINT32_C(1) << strtoul(word, NULL, 10);
        }
}

static void read_act(struct act *act, const char *text) {
    char word[TEXT_MAX];
    struct part *part = &act->parts[0];
    *part = (struct part){.cost = 1};
    act->count = 1;
    act->times = 1;
    if (!next_word(&text, word))
        no_scene(text, "no act");
    while (act->verb < VERBS && strcasecmp(word, verbs[act->verb]) != 0)
        act->verb++;
    switch (act->verb) {
    case VERBS:
        no_scene(word, "no verb");
    case HOLD:
        part->policy = policy_of("long");
        part->key = HOLDER;
        part->by_decide = true;
        act->times = (unsigned)next_number(&text);
        break;
    case TURN:
    case AS:
        act->tick = next_number(&text);
        break;
    case APPLY:
    case PRUNE:
    case TIDY:
    case CLOSE:
    case OPEN:
    case EACH:
        (void)snprintf(act->notation, sizeof(act->notation), "%s", text);
        return;
    case ADD:
    case CHANGE:
    case FIND:
    case HEADERS:
        part->policy = next_policy(&text);
        (void)snprintf(act->notation, sizeof(act->notation), "%s", text);
        return;
    case LABEL:
        part->key = next_key(&text);
        part->cost = (uint32_t)next_number(&text);
        break;
    case SEEN:
        part->key = next_key(&text);
        read_names(part, &text);
        break;
    default:
        part->policy = next_policy(&text);
        if (act->verb != TELL && act->verb != REMOVE)
            part->key = next_key(&text);
        break;
    }
    if (act->verb == OVERRIDE) {
        part->limit = (uint32_t)next_number(&text);
        act->tick = next_number(&text);
    } else if (act->verb == REFUND) {
        part->cost = (uint32_t)next_number(&text);
        if (!next_word(&text, word) || strcmp(word, "of") != 0)
            no_scene(text, "'of' and a window are missing");
        act->tick = next_number(&text);
    }
    read_words(act, text);
}

static void read_acts(struct acts *acts, const char *text) {
    acts->count = 0;
    while (text != NULL && *text != '\0') {
        char one[TEXT_MAX];
        int length = (int)strcspn(text, ";");
        if (acts->count == ACTS_MAX || length >= TEXT_MAX)
            no_scene(text, "too many acts, or too long");
        memcpy(one, text, (size_t)length);
        one[length] = '\0';
        struct act *act = &acts->acts[acts->count++];
        *act = (struct act){.text = text + strspn(text, " ")};
        act->length = length - (int)(act->text - text);
        read_act(act, one);
        text += length + (text[length] == ';');
        while (!act->rest && act->times > 1) {
            if (acts->count == ACTS_MAX)
                no_scene(one, "too many acts");
            act->times--;
            acts->acts[acts->count++] = *act;
            act->times = 1;
            act = &acts->acts[acts->count - 1];
            act->parts[0].key += act->verb == HOLD;
        }
    }
}

/* ---- Calls ----------------------------------------------------------------------------------- */

static void step(const void *word);

static uint64_t scene_clock(void) {
    if (stint_test_step != NULL)
        step(NULL);
    return s.time;
}

static void knows_limit(struct named *named, uint32_t limit) {
    named->most = limit > named->most ? limit : named->most;
    named->least = limit < named->least ? limit : named->least;
    if (named->limit_count == LIMITS_MAX)
        abort();
    named->limits[named->limit_count++] = limit;
}

/* "In a span in which they change, A holds with the longer of the two burst * T and the shorter
 * T." An override keeps the first of these. */
static void knows_rate(struct named *named, uint64_t token, uint64_t span) {
    named->rates |= named->token != 0 && named->token != token;
    named->token = named->token == 0 || token < named->token ? token : named->token;
    named->slowest = token > named->slowest ? token : named->slowest;
    named->span = span > named->span ? span : named->span;
}

static void knows(struct named *named, const struct stint_policy *policy) {
    named->uncapped |= carries(policy) || (policy->max_reserved != 0 && !is_bucket(policy));
    knows_limit(named, capacity_of(policy));
    if (is_bucket(policy))
        knows_rate(named, token_time(policy), count_most(policy) * token_time(policy));
}

/* A2: "for each such call, as many tokens as the bucket then holds". */
static void knows_kept(struct named *named) {
    named->kept += named->rates && is_bucket(&named->policy);
}

/* An override of a key, or a request's own limit: of a bucket it is another rate. */
static void knows_other(struct named *named, uint32_t limit) {
    struct stint_policy policy = named->policy;
    policy.limit = limit;
    if (!is_bucket(&policy))
        knows_limit(named, limit);
    else if (limit != 0)
        knows_rate(named, token_time(&policy), 0);
}

static struct stint_policy read_policy(const struct named *named, const char *notation) {
    struct stint_policy policy = STINT_POLICY_INIT;
    char text[TEXT_MAX + 40];
    (void)snprintf(text, sizeof(text), "%s name=%s", notation, named->name);
    if (stint_policy_parse(text, &policy, NULL) != 0)
        no_scene(text, stint_reason());
    return policy;
}

static void add_policy(struct named *named, const char *notation) {
    named->policy = read_policy(named, notation);
    named->added = true;
    named->least = UINT32_MAX;
    knows(named, &named->policy);
    if (stint_policy_add(s.limiter, &named->policy, &named->id) != 0)
        breaks("add %s: %s", named->name, stint_reason());
}

static struct logged *log_call(const struct part *part, uint64_t now) {
    if (s.logged == LOG_MAX)
        abort();
    struct logged *logged = &s.log[s.logged++];
    *logged = (struct logged){.call = s.call[s.role],
                              .key = part->key,
                              .policy = part->policy,
                              .role = s.role,
                              .now = now};
    return logged;
}

static bool tracked(const struct logged *logged) {
    return logged->verdict.capacity != 0 && (logged->verdict.flags & STINT_UNTRACKED) == 0;
}

static bool is_quiet(const struct logged *which) {
    for (unsigned i = 0; i < s.logged; i++)
        if (s.log[i].quiet && s.log[i].key == which->key && s.log[i].policy == which->policy)
            return true;
    return false;
}

/* What is granted in the window of an answer, less what is given back. */
static int64_t tokens_in(const struct logged *which) {
    int64_t tokens = 0;
    for (unsigned i = 0; i < s.logged; i++) {
        const struct logged *logged = &s.log[i];
        if (logged->key != which->key || logged->policy != which->policy)
            continue;
        if (logged->reset)
            tokens = 0;
        else if (logged->verdict.window == which->verdict.window &&
                 (logged->verdict.flags & STINT_UNTRACKED) == 0)
            tokens += (int64_t)logged->verdict.granted - logged->given_back;
    }
    return tokens;
}

static void not_so(const struct act *act) {
    breaks("not so: %.*s", act->length, act->text);
}

static bool is_due(const struct part *part, int which, uint32_t number) {
    return number == part->due[which] || (part->either && s.killed && number == part->before);
}

static void expect_part(const struct act *act, const struct part *part,
                        const struct logged *logged) {
    const struct stint_verdict *v = &logged->verdict;
    const int64_t *due = part->due;
    const uint64_t length = s.policies[part->policy].policy.window;
    const bool is_so[EXPECTED] = {
        [EXPECT_YES] = v->allowed,
        [EXPECT_NO] = !v->allowed,
        [EXPECT_FAR] = (v->flags & STINT_NEAR_LIMIT) == 0,
        [EXPECT_PLACED] = tracked(logged),
        [EXPECT_FRESH] = v->window > s.time,
        [EXPECT_SOON] = v->reset_after != 0 && v->reset_after <= length,
        [EXPECT_NEVER] = v->allowed || v->retry_after == STINT_NEVER,
        [EXPECT_COUNTED] = v->used == tokens_in(logged),
        [EXPECT_PLAIN] = v->flags == 0,
        [EXPECT_RULED] = v->allowed == (v->flags == STINT_OVERRIDDEN),
        [EXPECT_USED] = is_due(part, EXPECT_USED, v->used),
        [EXPECT_CAPACITY] = is_due(part, EXPECT_CAPACITY, v->capacity),
        [EXPECT_GRANTED] = v->granted == due[EXPECT_GRANTED],
        [EXPECT_MOST] = v->granted <= due[EXPECT_MOST],
        [EXPECT_BACK] = logged->given_back == due[EXPECT_BACK],
        [EXPECT_WINDOW] = v->window == tick_time(due[EXPECT_WINDOW]),
    };
    bool as_expected = (v->flags & part->marks) == part->marks;
    for (int i = 0; i < EXPECTED; i++)
        as_expected &= !part->expected[i] || is_so[i];
    if (!as_expected)
        not_so(act);
}

static void answered(const struct act *act, const struct part *part, uint64_t now,
                     const struct stint_verdict *verdict, bool all) {
    struct named *named = &s.policies[part->policy];
    /* By the clock's time, of a late caller and of one behind whom it was set back. */
    const uint64_t told = verdict->window - verdict->reset_after;
    const bool by_told = part->by_decide || act->count > 1 || told > now || s.time < now ||
                         is_bucket(&named->policy);
    struct logged *logged = log_call(part, by_told ? told : now);
    logged->verdict = *verdict;
    logged->quiet = act->quiet;
    if (act->count == 1 && (part->flags & ~(uint32_t)(STINT_RESERVE | STINT_CHARGE)) == 0)
        logged->asked = part->cost;
    logged->whole = act->count == 1 && part->cost == 1 && part->limit == 0 &&
                    (part->flags & ~(uint32_t)STINT_PARTIAL) == 0;
    named->uncapped |= (part->flags & (STINT_CHARGE | STINT_PEEK)) == STINT_CHARGE;
    if (part->limit != 0 && named->limits[named->limit_count - 1] != part->limit)
        knows_other(named, part->limit);
    if (!part->otherwise || !all)
        expect_part(act, part, logged);
    if (verdict->allowed && (verdict->flags & STINT_FIRST_REFUSAL) != 0 &&
        (verdict->flags & STINT_SHADOWED) == 0)
        breaks("C: a first refusal of what was let through");
}

/* Asks. Returns whether it was allowed. */
static bool ask(const struct act *act, uint64_t now) {
    struct stint_request requests[PARTS_MAX];
    struct stint_verdict verdicts[PARTS_MAX];
    bool allowed;
    for (unsigned i = 0; i < act->count; i++) {
        const struct part *part = &act->parts[i];
        requests[i] = (struct stint_request){
            {part->key}, s.policies[part->policy].id, part->cost, part->limit, part->flags, 0, 0};
    }
    if (act->verb == BATCH)
        allowed = stint_decide_batch(s.limiter, requests, act->count, now, verdicts) == act->count;
    else if (act->verb == ALL)
        allowed =
            stint_decide_all(s.limiter, requests, act->count, now, act->unasked ? NULL : verdicts);
    else if (act->parts[0].by_decide)
        allowed = stint_decide(s.limiter, requests, now, verdicts);
    else
        allowed = stint_take(s.limiter, requests[0].policy, requests[0].key, 1, now, verdicts);
    for (unsigned i = 0; i < act->count && !act->unasked; i++)
        answered(act, &act->parts[i], now, &verdicts[i], allowed);
    return allowed;
}

static void refund(const struct act *act, struct stint_verdict verdict) {
    const struct part *part = &act->parts[0];
    struct logged *logged = log_call(part, s.time);
    logged->verdict.window = verdict.window;
    logged->given_back = verdict.granted; /* if it is killed */
    logged->quiet = act->quiet;
    logged->given_back = stint_refund(s.limiter, (stint_key){part->key}, &verdict, verdict.granted);
    expect_part(act, part, logged);
}

/* What the thread was granted last of the key. */
static void give_back(const struct act *act) {
    const struct part *part = &act->parts[0];
    for (unsigned i = s.logged; i-- > 0;) {
        const struct logged *logged = &s.log[i];
        if (logged->role != s.role || logged->policy != part->policy || logged->key != part->key)
            continue;
        if (logged->verdict.granted != 0)
            refund(act, logged->verdict);
        return;
    }
}

/* What dies. */
static const struct act *dying;

static void die_hook(enum stint_test_instant instant) {
    if (instant == INSTANT_CLAIMED)
        longjmp(s.died, 1);
    if (instant != INSTANT_ABSENT || !dying->beside)
        return;
    struct act beside = *dying;
    beside.verb = TAKE;
    stint_test_hook = NULL;
    (void)ask(&beside, tick_time(dying->beside_at));
    stint_test_hook = die_hook;
}

static void take_and_die(const struct act *act, uint64_t now) {
    void (*hook)(enum stint_test_instant instant) = stint_test_hook;
    dying = act;
    if (setjmp(s.died) == 0) {
        stint_test_hook = die_hook;
        (void)ask(act, now);
    }
    stint_test_hook = hook;
    s.deaths = true;
}

/* The fetch-add of a thread that had seen room in a slot, slept, and was killed after it. */
static void add_and_die(const struct part *part) {
    const struct table *table = &s.limiter->table;
    struct slot *slot =
        line_find(table->lines, table_tag(table, part->key, s.policies[part->policy].id));
    if (slot != NULL)
        (void)atomic_fetch_add_seq(&slot->state, 1);
    s.deaths = true;
}

static int set_up(const struct act *act, int result) {
    if (result != 0 && !s.scene->in_order)
        breaks("%.*s: %s", act->length, act->text, stint_reason());
    return result;
}

static int change(const struct act *act, struct named *named) {
    const struct stint_policy policy = read_policy(named, act->notation);
    knows(named, &policy);
    return set_up(act, stint_policy_change(s.limiter, named->id, &policy));
}

/* Reads the line of a text that names a policy. */
static void knows_line(struct named *named, const char *text, const char *name) {
    const char *line = text;
    struct stint_policy policy = STINT_POLICY_INIT;
    char copy[TEXT_MAX];
    for (const char *at = text; at < name; at++)
        line = *at == '\n' ? at + 1 : line;
    (void)snprintf(copy, sizeof(copy), "%.*s", (int)strcspn(line, "\n"), line);
    if (stint_policy_parse(copy, &policy, NULL) == 0)
        knows(named, &policy);
}

static int apply(const struct act *act) {
    const bool prunes = act->verb == PRUNE;
    for (unsigned i = 0; i < s.policy_count; i++) {
        char name[40];
        (void)snprintf(name, sizeof(name), "name=%s", s.policies[i].name);
        const char *found = strstr(act->notation, name);
        s.policies[i].replaced |= prunes || found != NULL;
        if (found != NULL && !s.policies[i].added)
            knows_line(&s.policies[i], act->notation, found);
    }
    return set_up(act, stint_policies_apply(s.limiter, act->notation, prunes ? STINT_PRUNE : 0,
                                            NULL, NULL, NULL));
}

/* What a policy says, and what `key` has used of it. */
struct said {
    char text[TEXT_MAX];
    uint32_t used;
};

static struct said said_by(uint32_t id) {
    const struct stint_request look = {.key = {KEY}, .policy = id, .flags = STINT_PEEK};
    struct stint_policy policy = STINT_POLICY_INIT;
    struct stint_verdict verdict;
    (void)stint_decide(s.limiter, &look, s.time, &verdict);
    struct said said = {"none", verdict.used};
    const bool found = stint_policy_get(s.limiter, id, &policy) == 0;
    if (found)
        (void)stint_policy_format(&policy, said.text, sizeof(said.text));
    if (found == ((verdict.flags & STINT_UNKNOWN_POLICY) != 0))
        breaks("a policy is there, or decides, but not both");
    return said;
}

/* Whether it says what the notation says, up to the end. */
static bool says(const struct said *said, const struct named *named, const char *notation,
                 const char *end) {
    char one[TEXT_MAX], text[TEXT_MAX] = "none";
    (void)snprintf(one, sizeof(one), "%.*s", (int)(end - notation), notation);
    if (strcmp(one, " none") != 0) {
        const struct stint_policy policy = read_policy(named, one);
        (void)stint_policy_format(&policy, text, sizeof(text));
    }
    return strcmp(said->text, text) == 0;
}

/* By its name is found what has decisions. */
static void find(const struct act *act, struct named *named) {
    const char *text = act->notation, *end = text + strlen(text), *old_end = strstr(text, " or ");
    const char *new = old_end == NULL ? text : old_end + 3;
    uint32_t id = UINT32_MAX;
    const int error = stint_policy_find(s.limiter, named->name, &id);
    const struct said said = said_by(id);
    if (error == 0 && policy_gone(&s.limiter->policies[id]))
        not_so(act);
    if (text == end) {
        (void)set_up(act, error);
        return;
    }
    const bool is_old = s.killed && old_end != NULL && says(&said, named, text, old_end);
    if (!is_old && !says(&said, named, new, end))
        not_so(act);
    if (named->id == UINT32_MAX || s.opened) {
        named->id = id;
        return;
    }
    const struct said by_first = said_by(named->id);
    if (strcmp(said.text, by_first.text) != 0 || said.used != by_first.used)
        not_so(act);
}

static void tidy(const struct act *act) {
    const struct table *table = &s.limiter->table;
    uint32_t ids = 0;
    for (uint64_t i = 0; i < table->line_count * LINE_SLOTS; i++) {
        const struct slot *slot = &table->lines[i / LINE_SLOTS].slots[i % LINE_SLOTS];
        const struct policy *policy = limiter_tag_policy(s.limiter, slot->tag);
        if (policy != NULL && policy_gone(policy))
            not_so(act);
    }
    for (uint32_t id = 0; id < s.limiter->max_policies; id++)
        ids += limiter_policy(s.limiter, id) != NULL;
    if (act->notation[0] != '\0' && ids != strtoul(act->notation, NULL, 10))
        breaks("not so, but %u: %.*s", ids, act->length, act->text);
}

/* ---- Names of keys --------------------------------------------------------------------------- */

static uint32_t name_bit(uint64_t key, uint32_t *refused) {
    const int name = name_seen(s.limiter, key, refused);
    if (name < 0)
        breaks("a key has a name that it was never given");
    return name < 0 ? 0 : UINT32_C(1) << name;
}

static void seen(const struct act *act) {
    const struct part *part = &act->parts[0];
    uint32_t refused;
    const uint32_t name = name_bit(part->key, &refused);
    if (((part->limit | (s.killed ? part->flags : 0)) & name) == 0 ||
        (part->expected[EXPECT_USED] && !is_due(part, EXPECT_USED, refused)))
        not_so(act);
}

static void look_at_names(void) {
    static const uint64_t keys[] = {KEY, OTHER, HOLDER, HOLDER + 1, HOLDER + 2, HOLDER + 3};
    uint32_t refused;
    for (unsigned i = 0; i < sizeof keys / sizeof keys[0] && s.labelled; i++)
        (void)name_bit(keys[i], &refused);
}

/* ---- Handles --------------------------------------------------------------------------------- */

static struct stint_limiter *open_handle(bool reads);

static bool ignore_entry(void *context, const struct stint_entry *entry) {
    (void)context;
    return entry->end != 0;
}

static void close_handle(void) {
    struct stint_limiter *limiter = s.limiter;
    s.limiter = NULL;
    stint_close(limiter);
}

/* Returns whether it was allowed, or an error of set-up. */
static int make(const struct act *act, uint64_t now) {
    const struct part *part = &act->parts[0];
    struct named *named = &s.policies[part->policy];
    struct stint_verdict verdict = {0};
    char text[1000];
    switch (act->verb) {
    case TAKE:
    case ALL:
    case BATCH:
    case HOLD:
        return ask(act, now);
    case REFUND:
        refund(act, (struct stint_verdict){
                        .policy = named->id,
                        .granted = part->cost,
                        .window = tick_time(act->tick),
                        .unit = is_bucket(&named->policy) ? token_time(&named->policy) : 0});
        break;
    case BACK:
        give_back(act);
        break;
    case RESET:
        stint_reset(s.limiter, named->id, (stint_key){part->key});
        log_call(part, s.time)->reset = true;
        break;
    case TURN:
        s.set_back |= tick_time(act->tick) < s.time;
        s.time = tick_time(act->tick);
        break;
    case TELL: {
        struct act look = {.count = 1};
        look.parts[0] = (struct part){
            .policy = part->policy, .key = THIRD, .flags = STINT_PEEK, .by_decide = true};
        (void)ask(&look, now);
        break;
    }
    case DIE:
        take_and_die(act, now);
        break;
    case STRAY:
        add_and_die(part);
        break;
    case ADD:
        add_policy(named, act->notation);
        break;
    case CHANGE:
        return change(act, named);
    case APPLY:
    case PRUNE:
        return apply(act);
    case TIDY:
        tidy(act);
        break;
    case LABEL:
        s.labelled = true;
        return set_up(act, name_key(s.limiter, part->key, part->cost));
    case SEEN:
        seen(act);
        break;
    case CLOSE:
        close_handle();
        break;
    case OPEN:
        if (s.limiter != NULL)
            close_handle();
        s.opened = true; /* ids may be free */
        s.watch.limiter = s.limiter = open_handle(false);
        break;
    case EACH:
        return stint_each(s.limiter, ignore_entry, NULL) == 0;
    case HEADERS:
        verdict.policy = named->id;
        return stint_headers(s.limiter, STINT_HEADERS_DRAFT, &verdict, 1, text, sizeof(text)) <
               (int)sizeof(text);
    case REMOVE:
        named->replaced = true;
        return set_up(act, stint_policy_remove(s.limiter, named->id));
    case FIND:
        find(act, named);
        break;
    case OVERRIDE:
        knows_kept(named);
        knows_other(named, part->limit);
        return set_up(act, stint_override(s.limiter, named->id, (stint_key){part->key}, part->limit,
                                          tick_time(act->tick)));
    case CLEAR: /* there is none any more, if its policy is gone */
        knows_kept(named);
        (void)stint_override_clear(s.limiter, named->id, (stint_key){part->key});
        break;
    case AS:
        stint_thread_number = (uint64_t)act->tick;
        break;
    case VERBS:
        abort();
    }
    return 1;
}

static void play_act(const struct act *act) {
    bool again = true;
    for (unsigned i = 0; i < (act->rest && act->times == 1 ? REST : act->times) && again; i++) {
        const uint64_t now = act->late ? tick_time(act->tick) : s.time;
        if (s.call_count == CALLS_MAX)
            abort();
        struct call *call = &s.calls[s.call_count];
        *call = (struct call){.act = act, .role = s.role, .now = now, .began = ++s.events};
        s.call[s.role] = s.call_count++;
        call->result = make(act, now);
        again = call->result != 0 || !act->rest;
        call->ended = ++s.events;
    }
}

static void play_acts(const struct acts *acts) {
    for (unsigned i = 0; i < acts->count; i++)
        play_act(&acts->acts[i]);
}

/* What processes share: the table, unless it is in a file; and what one knew at its end. */
static char path[40];
static void *memory, *left;

static struct stint_limiter *open_handle(bool reads) {
    static const char secret[STINT_SECRET_SIZE] = "scene";
    struct stint_options options = STINT_OPTIONS_INIT;
    struct stint_limiter *limiter = NULL;
    options.clock = scene_clock;
    options.path = s.scene->in_file ? path : NULL;
    options.flags = reads ? STINT_READ_ONLY : 0;
    if (reads && stint_attach(&options, &limiter) == 0)
        return limiter;
    /* A line of four slots for each, but in a file. */
    options.max_entries = 2 * (s.scene->lines == 0 ? 1 : s.scene->lines);
    /* One is replaced, and one has a companion. A file's table is as small as they are few. */
    options.max_policies = s.scene->in_file ? 7 : POLICIES_MAX + 2;
    options.labels = LABELS_IN_SET;
    options.on_full = s.scene->on_full;
    options.secret = secret;
    if ((s.scene->dies && !s.scene->in_file ? stint_open_in(&options, memory, MEMORY_MOST, &limiter)
                                            : stint_open(&options, &limiter)) != 0)
        breaks("the table cannot be opened: %s", stint_reason());
    if (limiter == NULL && stint_test_step == NULL)
        no_scene("", s.broken);
    if (limiter == NULL)
        longjmp(s.stuck, 1);
    return limiter;
}

static void *shared_memory(size_t size) {
    void *start = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        abort();
    return start;
}

static void open_table(void) {
    s.time = EPOCH;
    if (memory == NULL) {
        (void)snprintf(path, sizeof(path), "/dev/shm/stint-scene-%d", (int)getpid());
        memory = shared_memory(MEMORY_MOST);
        left = shared_memory(sizeof(s));
    }
    if (s.scene->dies)
        memset(memory, 0, MEMORY_MOST);
    if (s.scene->in_file)
        (void)unlink(path);
    s.limiter = open_handle(false);
    for (unsigned i = 0; i < s.policy_count; i++) {
        struct named *named = &s.policies[i];
        const size_t length = strlen(named->name);
        struct named anew = {.id = UINT32_MAX};
        memcpy(anew.name, named->name, sizeof(anew.name));
        *named = anew;
        for (size_t j = 0; j < sizeof(known_policies) / sizeof(known_policies[0]); j++)
            if (strncmp(known_policies[j], anew.name, length) == 0 &&
                known_policies[j][length] == ' ')
                add_policy(named, known_policies[j] + length + 1);
    }
}

static void begin_play(void) {
    s.logged = s.call_count = s.events = s.all_steps = 0;
    s.role = NOBODY;
    s.deaths = s.waits = s.set_back = s.killed = s.opened = s.labelled = false;
    s.writer = NULL;
    s.second_done = true;
    s.broken[0] = '\0';
    stint_thread_number = STRIPE_OF_ALL;
    for (unsigned i = 0; i < ROLES; i++)
        s.number[i] = STRIPE_OF_ALL;
    open_table();
}

/* ---- What came of it ------------------------------------------------------------------------- */

/* What counts in a window: in flight, also what has been held since the one before. */
static int64_t counted_in(const struct logged *which) {
    const struct stint_policy *policy = &s.policies[which->policy].policy;
    struct logged before = *which;
    before.verdict.window -= policy->window;
    return tokens_in(which) + (is_in_flight(policy) ? tokens_in(&before) : 0);
}

static unsigned first_refusals(const struct logged *which) {
    unsigned count = 0;
    for (unsigned i = 0; i < s.logged; i++)
        count += s.log[i].key == which->key && s.log[i].policy == which->policy &&
                 s.log[i].verdict.window == which->verdict.window &&
                 (s.log[i].verdict.flags & STINT_FIRST_REFUSAL) != 0;
    return count;
}

/* "The first refusal of this key in this window, exactly once"; a reset makes the key "as good as
 * new". */
static bool first_told_once(const struct logged *which) {
    const unsigned count = first_refusals(which);
    unsigned resets = 0;
    for (unsigned i = 0; i < s.logged; i++)
        resets += s.log[i].reset && s.log[i].key == which->key && s.log[i].policy == which->policy;
    return count >= 1 && count <= 1 + resets;
}

/* Whether a window can be one of the policy's, and of a key: what first requests begin has no tick
 * in common, and a key's own windows follow each other. */
static bool window_may_be(const struct logged *logged) {
    const struct stint_policy *policy = &s.policies[logged->policy].policy;
    const uint64_t window = logged->verdict.window;
    if (is_bucket(policy))
        return true;
    if (is_calendar(policy))
        return calendar_edge(policy, window - 1, true) == window;
    if (!is_first(policy) && (policy->flags & STINT_START_PER_KEY) == 0)
        return (window > EPOCH ? window - EPOCH : EPOCH - window) % policy->window == 0;
    for (unsigned i = 0; i < s.logged; i++) {
        const struct logged *other = &s.log[i];
        uint64_t apart = other->verdict.window > window ? other->verdict.window - window
                                                        : window - other->verdict.window;
        if (other->key == logged->key && other->policy == logged->policy && tracked(other) &&
            apart != 0 && (is_first(policy) ? apart < policy->window : apart % policy->window != 0))
            return false;
    }
    return true;
}

static bool capacity_may_be(const struct logged *logged) {
    const struct named *named = &s.policies[logged->policy];
    if (is_bucket(&named->policy) && !logged->whole) /* it may be by a limit of its own */
        return true;
    for (unsigned i = 0; i < named->limit_count; i++)
        if (named->limits[i] == logged->verdict.capacity)
            return true;
    return named->replaced || named->policy.flags & STINT_OVERRIDES;
}

/* Tokens that `a`, which was killed, may have taken, or have given back, without a word. */
static int64_t lost_with(const struct logged *which) {
    int64_t lost = 0;
    for (unsigned i = 0; s.killed && i < s.a.count; i++) {
        const struct act *act = &s.a.acts[i];
        for (unsigned j = 0; j < act->count; j++)
            if (act->parts[j].policy == which->policy && act->parts[j].key == which->key)
                lost += (int64_t)act->parts[j].cost * act->times;
    }
    return lost;
}

/* Whether this is a part of a group that was refused. "If one is refused after all, the others are
 * given back". */
static bool of_refused_group(const struct logged *part) {
    bool refused = false;
    for (unsigned i = 0; i < s.logged; i++)
        refused |= s.log[i].call == part->call && &s.log[i] != part && !s.log[i].verdict.allowed;
    return refused && part->verdict.allowed;
}

/* Whether what was given back was granted to a request of a span, as far as can be told: those of
 * no verdict may be anybody's. */
static bool takes_from_span(const struct logged *back, uint64_t from, uint64_t to) {
    bool known = false;
    for (unsigned i = 0; i < s.logged; i++) {
        const struct logged *logged = &s.log[i];
        if (logged->key != back->key || logged->policy != back->policy ||
            logged->verdict.granted == 0 || logged->verdict.window != back->verdict.window)
            continue;
        known = true;
        if (logged->now >= from && logged->now <= to)
            return true;
    }
    return !known;
}

/* The tokens of a bucket that were granted to requests from one now to another, less those of them
 * that were given back: "the time in which as many tokens as are given back come back by the slower
 * rate". */
static uint64_t granted_in(const struct logged *which, uint64_t from, uint64_t to) {
    const struct named *named = &s.policies[which->policy];
    uint64_t tokens = 0, back = 0;
    for (unsigned i = 0; i < s.logged; i++) {
        const struct logged *logged = &s.log[i];
        if (logged->key != which->key || logged->policy != which->policy)
            continue;
        if (logged->reset)
            tokens = back = 0;
        else if (logged->given_back != 0)
            back += takes_from_span(logged, from, to) ? logged->given_back : 0;
        else if (tracked(logged) && logged->now >= from && logged->now <= to)
            tokens += logged->verdict.granted;
    }
    back = back * named->slowest / named->token;
    return tokens > back ? tokens - back : 0;
}

/* A and B of an answer by a bucket. */
static void judge_bucket(const struct logged *logged, bool all) {
    const struct named *named = &s.policies[logged->policy];
    /* A refused one is asked once more, by the clock. */
    const uint64_t now = logged->verdict.allowed || logged->now > s.time ? logged->now : s.time;
    bool was_full = false, late = false;
    for (unsigned i = 0; i < s.logged; i++) {
        const struct logged *other = &s.log[i];
        if (other->key != logged->key || other->policy != logged->policy || !tracked(other))
            continue;
        late |= other->now > now;
        if (other->now > now)
            continue;
        const uint64_t long_ago = now - other->now;
        const uint64_t tokens = granted_in(logged, other->now, now);
        if (tokens > (named->span * (1 + named->kept) + long_ago) / named->token)
            breaks("A: more than the burst and what comes back in a span");
        was_full |= (tokens + 1) * named->token > named->span + long_ago;
    }
    if (all && !logged->verdict.allowed && !was_full && !late && !named->rates)
        breaks("B: refused though there was room");
}

/* Whether another request was granted the token that this one is told, of a single count of which
 * nothing was given back, on a clock that was not set back. */
static bool told_twice(const struct logged *which) {
    const struct stint_policy *policy = &s.policies[which->policy].policy;
    bool twice = false, given_back = is_striped(policy) || looks_back(policy) || s.set_back;
    for (unsigned i = 0; i < s.logged; i++) {
        const struct logged *logged = &s.log[i];
        if (logged->key != which->key || logged->policy != which->policy)
            continue;
        given_back |= logged->reset || logged->given_back != 0 || of_refused_group(logged);
        twice |= logged != which && logged->verdict.granted != 0 && tracked(logged) &&
                 logged->verdict.window == which->verdict.window &&
                 logged->verdict.used == which->verdict.used;
    }
    return twice && !given_back;
}

/* "Tokens that were granted before a stint_reset and are given back after it may be granted once
 * more" (A), and the policy in the place of another counts anew. */
static bool begins_anew(const struct logged *which) {
    bool reset = s.policies[which->policy].replaced;
    for (unsigned i = 0; i < s.logged; i++)
        reset |= s.log[i].reset;
    return reset;
}

/* One key by one policy: A, B, C and H of an answer. */
static void judge_answer(const struct logged *logged, bool replaced) {
    const struct named *named = &s.policies[logged->policy];
    if (!tracked(logged) || is_quiet(logged) || (s.scene->in_order && begins_anew(logged)))
        return;
    if (!named->replaced && !s.scene->in_order && !window_may_be(logged))
        breaks(is_first(&named->policy) ? "A: two windows of a key at once"
                                        : "A: a window that is none of the policy's");
    const bool bucket = is_bucket(&named->policy); /* it may be full */
    if (bucket ? logged->verdict.window < logged->now : logged->verdict.window <= logged->now)
        breaks("H: a window that is over");
    if (!s.scene->in_order && logged->asked != 0 && logged->verdict.allowed &&
        logged->verdict.granted != logged->asked && (logged->verdict.flags & STINT_SHADOWED) == 0)
        breaks("granted is not what was asked for");
    if (!capacity_may_be(logged))
        breaks("A: a limit that was never the policy's");
    if (named->uncapped || (named->policy.flags & STINT_SHADOW) != 0 ||
        (replaced && (s.scene->key_replaced || logged->key != 77)))
        return;
    if (bucket) {
        judge_bucket(logged, logged->whole && !replaced && !named->replaced && !s.scene->in_order &&
                                 named->policy.max_reserved == 0 && !s.deaths);
        return;
    }
    const int64_t tokens = counted_in(logged);
    if (logged->verdict.granted != 0 && told_twice(logged))
        breaks("A: two requests are told the same token");
    if (tokens > named->most)
        breaks("A: more than the limit in one window");
    if (logged->verdict.allowed || !logged->whole || replaced || named->replaced ||
        s.scene->in_order ||
        /* What a smooth key has of the window before is not known. */
        (s.scene->any_order && (named->policy.flags & STINT_SMOOTH) != 0))
        return;
    struct stint_stats stats = STINT_STATS_INIT;
    stint_stats_get(s.limiter, &stats);
    if (tokens + (int64_t)stats.stray_tokens + lost_with(logged) < named->least)
        breaks("B: refused though there was room");
    if (!first_told_once(logged) && !s.killed)
        breaks("C: the first refusal is told once");
}

/* The statistics count the first refusals that were told. */
static void judge_counters(void) {
    for (unsigned i = 0; i < s.policy_count; i++) {
        struct stint_policy_stats stats = STINT_POLICY_STATS_INIT;
        uint64_t told = 0;
        if (!s.policies[i].added || s.policies[i].replaced ||
            stint_policy_stats_get(s.limiter, s.policies[i].id, &stats) != 0)
            continue;
        for (unsigned j = 0; j < s.logged; j++)
            told += s.log[j].policy == i && (s.log[j].verdict.flags & STINT_FIRST_REFUSAL) != 0;
        if (stats.first_refusals != told)
            breaks("C: first refusals are not counted as they are told");
    }
}

/* Everybody takes all that is left; then the promises are held against the log. */
static void judge_log(void) {
    struct stint_stats stats = STINT_STATS_INIT;
    const unsigned calls = s.logged;
    for (unsigned i = 0; i < calls; i++) {
        const struct logged *logged = &s.log[i];
        const struct named *named = &s.policies[logged->policy];
        bool again = is_quiet(logged) || strcmp(named->name, "long") == 0;
        for (unsigned j = 0; j < i; j++)
            again |= s.log[j].key == logged->key && s.log[j].policy == logged->policy;
        const struct act take = {
            .verb = TAKE,
            .count = 1,
            .times = 8,
            .rest = true,
            .parts = {{.policy = logged->policy, .key = logged->key, .cost = 1}}};
        if (!again)
            play_act(&take);
    }
    stint_stats_get(s.limiter, &stats);
    for (unsigned i = 0; i < s.logged; i++)
        judge_answer(&s.log[i], stats.replaced != 0);
    if (!s.deaths)
        judge_counters();
}

/* ---- Playing --------------------------------------------------------------------------------- */

static void others(const struct acts *acts) {
    const uint64_t number = stint_thread_number;
    void (*hook)(enum stint_test_instant instant) = stint_test_hook;
    struct stint_limiter *limiter = s.limiter;
    s.role = NOBODY;
    s.limiter = s.writer != NULL ? s.writer : limiter;
    stint_test_hook = NULL;
    stint_thread_number = s.number[NOBODY];
    play_acts(acts);
    stint_thread_number = number;
    stint_test_hook = hook;
    s.role = FIRST;
    if (s.writer == NULL)
        return;
    s.writer = s.limiter;
    s.limiter = limiter;
}

/* The second thread. */
static ucontext_t first_context, second_context;
static char second_stack[STACK] __attribute__((aligned(64)));

static void second_main(void) {
    play_acts(&s.b);
    s.second_done = true;
    swapcontext(&second_context, &first_context);
}

static void second_goes_on(void) {
    const uint64_t number = stint_thread_number;
    if (s.second_done)
        return;
    s.role = SECOND;
    stint_thread_number = s.number[SECOND];
    swapcontext(&first_context, &second_context);
    s.number[SECOND] = stint_thread_number;
    stint_thread_number = number;
    s.role = FIRST;
    if (s.waits)
        longjmp(s.stuck, 1);
}

static void second_begins(void) {
    getcontext(&second_context);
    second_context.uc_stack.ss_sp = second_stack;
    second_context.uc_stack.ss_size = STACK;
    second_context.uc_link = NULL;
    makecontext(&second_context, second_main, 0);
    s.second_done = false;
    second_goes_on();
}

/* A process that ends, or is killed, tells what it knew. */
static _Noreturn void leave(void) {
    memcpy(left, &s, sizeof(s));
    if (s.killed)
        (void)raise(SIGKILL);
    _exit(0);
}

static void first_dies(void) {
    struct stint_limiter *limiter = s.limiter;
    int status;
    const pid_t child = fork();
    if (child == 0) {
        s.role = FIRST;
        if (setjmp(s.stuck) == 0)
            play_acts(&s.a);
        else
            breaks("E: a thread waits for one that does not go on");
        leave();
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        abort();
    if (status != 0 && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL))
        breaks("a process ends with status %#x", (unsigned)status);
    else
        memcpy(&s, left, sizeof(s));
    s.watch.limiter = s.limiter = limiter; /* the child may have had another handle */
    s.deaths |= s.killed;
}

static void step_of_first(void) {
    unsigned at = s.steps[FIRST];
    if (s.scene->dies) {
        s.killed = at == s.stops[0];
        if (s.killed)
            leave();
    } else if (s.scene->stops == 3) {
        if (at == s.stops[0])
            second_begins();
        if (at == s.stops[2]) {
            second_goes_on();
            others(&s.c);
        }
    } else {
        if (at == s.stops[0])
            others(&s.b);
        if (at == s.stops[1])
            others(&s.c);
    }
}

/* Of a policy, or of another table than the one of the scene. */
static bool is_apart(const void *word) {
    const struct stint_limiter *limiter = s.limiter;
    if (word == NULL || limiter == NULL || s.labelled)
        return false;
    return (const char *)word < (const char *)limiter->table.shards
               ? s.role == SECOND || !s.scene->of_policies
               : (const char *)word >= (const char *)(reach_words(&limiter->table) +
                                                      (limiter->table.line_count + 7) / 8);
}

/* I1, I3 and I5 to I7, after each atomic operation. */
static void look_at_table(void) {
    void (*hook)(const void *word) = stint_test_step;
    if (s.scene->in_file || s.limiter == NULL)
        return;
    stint_test_step = NULL; /* its own loads are no steps */
    s.watch.stepped_back |= s.set_back;
    (void)watch_look(&s.watch);
    look_at_names();
    stint_test_step = hook;
    if (s.watch.broken != NULL)
        breaks("%s", s.watch.broken);
}

static void step(const void *word) {
    look_at_table();
    if (++s.all_steps > STEPS_MAX) {
        s.waits = true;
        if (s.role == SECOND)
            swapcontext(&second_context, &first_context);
        longjmp(s.stuck, 1);
    }
    if (s.role == NOBODY || s.scene->at_instant || is_apart(word))
        return;
    s.steps[s.role]++;
    if (s.role == FIRST)
        step_of_first();
    else if (s.steps[SECOND] == s.stops[1])
        swapcontext(&second_context, &first_context);
}

/* An instant of set-up is a step where policies are written. */
static void instant_step(enum stint_test_instant instant) {
    if (s.role != FIRST)
        return;
    if (!s.scene->at_instant) {
        if (s.scene->of_policies && instant == INSTANT_SET_UP)
            step(NULL);
    } else if (instant == s.scene->instant &&
               ++s.steps[FIRST] == (s.scene->stops == 0 ? 1 : s.stops[0])) {
        others(&s.b);
    }
}

/* ---- In some order --------------------------------------------------------------------------- */

/* What was answered must be what the same calls are answered one after the other, in an order that
 * agrees with the play: who had ended before another began comes first. */
static struct {
    struct logged log[LOG_MAX];
    struct call calls[CALLS_MAX];
    unsigned logged, count;
    bool open; /* any order will do */
    unsigned order[CALLS_MAX];
    uint64_t known[JUDGED_MAX]; /* hashes of what was judged in another play of the scene */
    unsigned known_count;
} told;

enum { ANSWER = 9 };

static void answer_of(const struct logged *logged, uint64_t answer[ANSWER]) {
    const struct stint_verdict *v = &logged->verdict;
    /* Without the times of who asks the clock ("to tell a late thread from a clock that was stepped
     * back", H): who is later than the allowance, or to whom a month's slot seems far ahead. */
    const bool clock = is_calendar(&s.policies[logged->policy].policy) ||
                       told.calls[logged->call].now + LATE_MOST < s.time;
    /* "Where requests race": a refused one can add a token to the count for an instant. */
    const uint32_t used = v->used > v->capacity ? v->capacity : v->used;
    memcpy(answer,
           (const uint64_t[ANSWER]){logged->given_back, v->allowed, v->flags, v->capacity, used,
                                    v->granted, v->window, clock ? 0 : v->reset_after,
                                    clock ? 0 : v->retry_after},
           ANSWER * sizeof answer[0]);
}

static bool same_answer(const struct logged *one, const struct logged *other) {
    uint64_t answers[2][ANSWER];
    answer_of(one, answers[0]);
    answer_of(other, answers[1]);
    return memcmp(answers[0], answers[1], sizeof answers[0]) == 0;
}

/* Whether a late caller was told a later window than one that its key was in, and that was not over
 * by its time. */
static bool lost_its_window(const struct logged *which) {
    for (unsigned i = 0; i < s.logged; i++)
        if (s.log[i].key == which->key && s.log[i].policy == which->policy &&
            s.log[i].verdict.window > which->now && s.log[i].verdict.window < which->verdict.window)
            return true;
    return false;
}

/* Whether a request met its key without a slot. */
static bool some_without_slot(void) {
    for (unsigned i = 0; i < s.logged; i++)
        if ((s.log[i].verdict.flags & STINT_UNTRACKED) != 0 || lost_its_window(&s.log[i]))
            return true;
    return false;
}

/* What the contract leaves open of a call that meets others: its answer need be in no order. It is
 * held against A, B, C and H all the same. */
static bool is_open(const struct call *call) {
    const struct act *act = call->act;
    /* Each request reads the policy (stint_policy_change): what is under way goes by the old one,
     * or has no slot any more. A batch is one request after the other. */
    if (act->verb == CHANGE || act->verb == APPLY || act->verb == REMOVE || act->verb == BATCH)
        return true;
    /* An override "holds for decisions that begin after the call", and "takes a slot": one that
     * has none by then, as the table is full, or as its window is over by the clock, and not by a
     * late caller's time. Of a bucket "requests between the two go by the new limit and the old
     * instant". */
    if (act->verb == OVERRIDE || act->verb == CLEAR)
        return call->result == -ENOSPC || some_without_slot() ||
               is_bucket(&s.policies[act->parts[0].policy].policy);
    /* "A striped key's slots are read one after the other, which is no snapshot" (B). */
    for (unsigned i = 0; i < act->count; i++)
        if (act->parts[i].key != 0 && is_striped(&s.policies[act->parts[i].policy].policy))
            return true;
    if (act->verb != TAKE && act->verb != ALL)
        return false;
    for (unsigned i = 0; i < act->count; i++) {
        const struct part *part = &act->parts[i];
        const struct stint_policy *policy = &s.policies[part->policy].policy;
        /* A group "can hold tokens for an instant and give them back" (B). */
        if (act->count > 1)
            return true;
        /* "Where requests race": who has a limit above the policy's finds tokens of refused
         * requests counted, and so do all after a charge. */
        if ((part->flags & STINT_CHARGE) != 0 || part->limit > policy->limit)
            return true;
        /* "By a policy with a ban, a first refusal also counts a strike in a slot of its own"
         * (C). */
        if (policy->ban != 0)
            return true;
    }
    return false;
}

static bool is_open_play(void) {
    struct stint_stats stats = STINT_STATS_INIT;
    /* "After a real backward step of the clock, windows that were already counted are counted
     * again"; a full table replaces keys (G). */
    stint_stats_get(s.limiter, &stats);
    if (s.set_back || stats.replaced != 0)
        return true;
    for (unsigned i = 0; i < s.call_count; i++)
        for (unsigned j = 0; j < s.call_count; j++)
            if (i != j && s.calls[i].began < s.calls[j].ended &&
                s.calls[j].began < s.calls[i].ended && is_open(&s.calls[i]))
                return true;
    return false;
}

/* Makes the calls in the order, the watermark raised before one of them. Returns whether their
 * answers are those of the play. */
static bool same_in_order(unsigned raised, uint64_t raised_to) {
    bool same = true;
    begin_play();
    for (unsigned i = 0; i < told.count && same; i++) {
        const struct call *call = &told.calls[told.order[i]];
        const unsigned before = s.logged;
        if (i == raised)
            atomic_raise(&s.limiter->table.shards->watermark, (uint64_t)tick_of(raised_to));
        s.role = call->role;
        stint_thread_number = s.number[s.role];
        s.call[s.role] = told.order[i];
        same = make(call->act, call->now) == call->result && s.broken[0] == '\0';
        s.number[s.role] = stint_thread_number;
        for (unsigned j = 0, at = before; j < told.logged && same; j++)
            if (told.log[j].call == told.order[i])
                same = at < s.logged && same_answer(&told.log[j], &s.log[at++]);
    }
    stint_close(s.limiter);
    return same;
}

/* The time that a call tells to have been decided by, or by which its key's window began, if that
 * is between these; else `least`. */
static uint64_t decided_by(unsigned call, uint64_t least, uint64_t most) {
    for (unsigned i = 0; i < told.logged; i++) {
        const struct stint_verdict *v = &told.log[i].verdict;
        const struct stint_policy *policy = &s.policies[told.log[i].policy].policy;
        const uint64_t by =
            v->window - (is_bucket(policy) ? v->reset_after : longest_window(policy));
        if (told.log[i].call == call && by > least && by < most)
            return by;
    }
    return least;
}

/* A key without a slot may begin in any window from that of the call's time to that of the latest
 * time of a call that had begun: as if the watermark had been raised before it. */
static bool same_in_order_raised(void) {
    if (same_in_order(told.count, 0))
        return true;
    for (unsigned i = 0; i < told.count; i++)
        for (unsigned j = i + 1; j < told.count; j++) {
            const struct call *one = &told.calls[told.order[i]];
            const struct call *later = &told.calls[told.order[j]];
            if (later->began < one->ended && later->now > one->now &&
                (same_in_order(i, later->now) ||
                 same_in_order(i, decided_by(told.order[i], one->now, later->now))))
                return true;
        }
    return false;
}

/* Whether some order that begins with so many calls gives these answers. */
static bool same_from(unsigned length) {
    bool is_made[CALLS_MAX] = {false};
    unsigned first_end = UINT_MAX;
    if (length == told.count)
        return same_in_order_raised();
    for (unsigned i = 0; i < length; i++)
        is_made[told.order[i]] = true;
    for (unsigned i = 0; i < told.count; i++)
        if (!is_made[i] && told.calls[i].ended < first_end)
            first_end = told.calls[i].ended;
    for (unsigned i = 0; i < told.count; i++) {
        told.order[length] = i;
        if (!is_made[i] && told.calls[i].began < first_end && same_from(length + 1))
            return true;
    }
    return false;
}

static uint64_t mixed(uint64_t hash, uint64_t with) {
    hash = (hash ^ with) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> 32;
}

/* Whether these answers are new in the scene. */
static bool is_new(void) {
    uint64_t hash = 1;
    for (unsigned i = 0; i < told.count; i++)
        hash = mixed(mixed(hash, told.calls[i].began), told.calls[i].ended);
    for (unsigned i = 0; i < told.logged; i++) {
        uint64_t answer[ANSWER];
        answer_of(&told.log[i], answer);
        for (unsigned j = 0; j < ANSWER; j++)
            hash = mixed(hash, answer[j]);
    }
    for (unsigned i = 0; i < told.known_count; i++)
        if (told.known[i] == hash)
            return false;
    if (told.known_count < JUDGED_MAX)
        told.known[told.known_count++] = hash;
    return true;
}

/* The calls of the play that has ended, before everybody took what is left. */
static void note_told(void) {
    told.open = s.deaths || s.scene->any_order || s.scene->in_file || is_open_play();
    told.logged = s.logged;
    told.count = s.call_count;
    memcpy(told.log, s.log, s.logged * sizeof(s.log[0]));
    memcpy(told.calls, s.calls, s.call_count * sizeof(s.calls[0]));
}

static void judge_order(void) {
    const guard_set removed = stint_test_removed;
    if (told.open || s.broken[0] != '\0' || !is_new())
        return;
    stint_test_removed = 0;
    const bool same = same_from(0);
    stint_test_removed = removed;
    s.broken[0] = '\0';
    if (!same)
        breaks("no order of these calls gives these answers");
}

/* ---- One play -------------------------------------------------------------------------------- */

/* Plays the scene with the threads stopped at these of their steps (0: not). */
static void play_once(const unsigned stops[3]) {
    const uint64_t number = stint_thread_number;
    memset(s.steps, 0, sizeof(s.steps));
    memcpy(s.stops, stops, sizeof(s.stops));
    begin_play();
    if (!s.scene->in_file)
        watch_begin(&s.watch, s.limiter);
    play_acts(&s.before);
    s.opened = false;
    if (s.scene->reads) {
        s.writer = s.limiter;
        s.limiter = open_handle(true);
    }
    stint_test_step = step;
    stint_test_hook = instant_step;
    if (s.scene->dies)
        first_dies();
    if (setjmp(s.stuck) == 0) {
        s.role = FIRST;
        if (!s.scene->dies)
            play_acts(&s.a);
        second_goes_on();
        /* Those come behind who did not come between its steps. */
        if (s.scene->stops != 0 && s.steps[FIRST] < s.stops[0])
            others(&s.b);
        if (s.scene->stops < 3 && s.steps[FIRST] < s.stops[1])
            others(&s.c);
        s.role = NOBODY;
        if (s.writer != NULL) {
            stint_close(s.limiter);
            s.limiter = s.writer;
        }
        play_acts(&s.after);
        note_told();
        judge_log();
        look_at_table();
    } else {
        breaks("E: a thread waits for one that does not go on");
    }
    stint_test_step = NULL;
    stint_test_hook = NULL;
    stint_close(s.limiter);
    judge_order();
    stint_thread_number = number;
}

/* Moves a stop to the next step, if the thread came to this one: it came so far by itself, and
 * where it goes from there the next play tells. */
static bool next_stop(unsigned *stop, unsigned steps, unsigned most) {
    const bool reached = *stop <= steps && *stop < most;
    ++*stop;
    return reached;
}

/* The next stops to try. Returns whether there are any. */
static bool next_stops(unsigned stops[3]) {
    const unsigned first = s.steps[FIRST];
    if (s.scene->stops == 3) {
        if (next_stop(&stops[2], first, stops[0] + STOPS_TRIED))
            return true;
        stops[2] = stops[0];
        if (next_stop(&stops[1], s.steps[SECOND], STOPS_TRIED + STOPS_TRIED / 2))
            return true;
        stops[1] = 1;
        stops[2] = stops[0] + 1;
    } else if (s.scene->stops == 2) {
        if (next_stop(&stops[1], first, STEPS_MAX))
            return true;
        stops[1] = stops[0] + 1;
    }
    return stops[0] != 0 && next_stop(&stops[0], first, STEPS_MAX);
}

uint64_t scene_one_in = 1;

/* STINT_TEST_ONE_IN=N: a build makes one play in so many, other ones each time, where another build
 * makes all. Of each scene the first are made. */
static bool is_left_out(const struct outcome *so_far) {
    static struct random random;
    static uint64_t one_in;
    if (one_in == 0) {
        one_in = environment_number("STINT_TEST_ONE_IN", scene_one_in);
        random.state = one_in > 1 ? test_seed() : 0;
    }
    return so_far->plays > 4 && random_below(&random, one_in) != 0;
}

struct outcome scene_play(const struct scene *scene, guard_set removed, uint64_t one_in,
                          uint64_t seed) {
    const guard_set before = stint_test_removed;
    struct random random = {seed};
    struct outcome outcome = {.plays = 0};
    unsigned stops[3];
    if (scene->stops == 3 && !SCHEDULABLE)
        return outcome;
    s.scene = scene;
    s.policy_count = told.known_count = 0;
    read_acts(&s.before, scene->before);
    read_acts(&s.a, scene->a);
    read_acts(&s.b, scene->b);
    read_acts(&s.c, scene->c);
    read_acts(&s.after, scene->after);
    for (unsigned i = 0; i < 3; i++)
        stops[i] = i < scene->stops || (scene->dies && i == 0);
    stint_test_removed = before | removed;
    do {
        if (scene->stops == 3 && outcome.plays > 0 && random_below(&random, one_in) != 0)
            continue;
        if (scene->stops != 3 && is_left_out(&outcome))
            continue;
        if (scene->in_file && stops[0] > STOPS_ALL)
            stops[0] += (unsigned)random_below(&random, 2 * one_in - 1);
        play_once(stops);
        outcome.plays++;
        memcpy(outcome.stops, stops, sizeof(stops));
    } while (s.broken[0] == '\0' && next_stops(stops));
    if (scene->in_file)
        (void)unlink(path);
    memcpy(outcome.broken, s.broken, sizeof(outcome.broken));
    stint_test_removed = before;
    return outcome;
}
