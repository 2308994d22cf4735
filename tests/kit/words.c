/* SPDX-License-Identifier: MIT */
#include "limiter/limiter.h" /* before cmocka, which defines fail() as well */

#include "directory.h"
#include "kinds.h"
#include "words.h"

#include <ctype.h>
#include <time.h>

enum way { BY_DECIDE, BY_BATCH, BY_TAKE, WAYS };
static const char *const way_names[WAYS] = {"stint_decide", "stint_decide_batch", "stint_take"};

enum { WORDS_MOST = 64, STEP_MOST = 400, KEYS_MOST = 64 };

enum handle { ONE, TWO, READER, HANDLES };

/* What is known of a key: what its next verdict says again if nothing else is due. */
struct said {
    uint32_t id, used, capacity, generation;
    stint_key key;
    uint64_t window;
    struct stint_verdict taken; /* the last that granted any */
};

static struct {
    const struct feature *feature;
    const char *sentence;
    enum way way;
    struct stint_options options;
    struct stint_limiter *limiter, *others[HANDLES]; /* the one in use, and those that are not */
    enum handle handle;
    uint64_t now, filled;
    struct said said[KEYS_MOST];
    struct stint_verdict last;
    unsigned known, step;
    char text[STEP_MOST], whole[STEP_MOST];
    const char *words[WORDS_MOST + 1], *verb;
    unsigned count, at;
    size_t verdicts;
} f;

__attribute__((format(printf, 1, 2), noreturn)) static void wrong(const char *format, ...) {
    char what[1000];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    fail_msg("\"%s\" by %s\n  contract: \"%s\"\n  policy:   %s\n  step %u:   %s\n  %s",
             f.feature->name, way_names[f.way], f.sentence, f.feature->policies, f.step, f.whole,
             what);
    abort();
}

/* ---- Words ----------------------------------------------------------------------------------- */

static const char *peeked(void) {
    return f.at < f.count ? f.words[f.at] : "";
}

static const char *word(void) {
    if (f.at == f.count)
        wrong("the step lacks a word at its end");
    return f.words[f.at++];
}

static bool is(const char *expected) {
    if (strcmp(peeked(), expected) != 0)
        return false;
    f.at++;
    return true;
}

struct named {
    const char *name;
    uint64_t value;
};
#define VALUE_OF(names, name, what) value_of(names, sizeof(names) / sizeof *(names), name, what)

static uint64_t value_of(const struct named *names, size_t count, const char *name,
                         const char *what) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i].name, name) == 0)
            return names[i].value;
    wrong("\"%s\" is no %s", name, what);
}

static uint64_t number(const char *text, const char **end) {
    char *stop;
    const uint64_t value = strtoull(text, &stop, 10);
    if (stop == text)
        wrong("\"%s\" is no number", text);
    *end = stop;
    return value;
}

static uint32_t count_of(const char *text) {
    const char *end;
    const uint64_t value = number(text, &end);
    if (*end != '\0' || value > UINT32_MAX)
        wrong("\"%s\" is no number of tokens", text);
    return (uint32_t)value;
}

static const struct named units[] = {{"d", DAY}, {"h", HOUR},  {"m", MINUTE}, {"s", SECOND},
                                     {"ms", MS}, {"us", 1000}, {"ns", 1}};

/* A time from `from` on, or of a date. */
static uint64_t time_from(uint64_t from, const char *text) {
    struct tm date = {0};
    int length = 0;
    if (sscanf(text, "%4d-%2d-%2d%n", &date.tm_year, &date.tm_mon, &date.tm_mday, &length) == 3) {
        date.tm_year -= 1900;
        date.tm_mon--;
        from = (uint64_t)timegm(&date) * SECOND;
        text += length;
    }
    while (*text != '\0' && strcmp(text, "0") != 0) {
        char unit[4] = "";
        const bool less = *text == '-';
        const uint64_t value = number(text + (less || *text == '+'), &text);
        const size_t letters = strcspn(text, "+-");
        snprintf(unit, sizeof unit, "%.*s", (int)letters, text);
        const uint64_t ns = value * VALUE_OF(units, unit, "unit of time");
        from += less ? -ns : ns;
        text += letters;
    }
    return from;
}

/* The same the other way round. */
static int print_time(char *text, size_t size, int64_t ns) {
    uint64_t left = ns < 0 ? -(uint64_t)ns : (uint64_t)ns;
    int length = snprintf(text, size, "%s", ns == 0 ? "0" : "");
    for (size_t i = 0; left != 0; left %= units[i++].value)
        if (left >= units[i].value)
            length += snprintf(text + length, size - (size_t)length, "%s%" PRIu64 "%s",
                               ns < 0        ? "-"
                               : length != 0 ? "+"
                                             : "",
                               left / units[i].value, units[i].name);
    return length;
}

static const struct named errors[] = {{"EINVAL", EINVAL},
                                      {"ENOENT", ENOENT},
                                      {"ENOSPC", ENOSPC},
                                      {"EEXIST", EEXIST},
                                      {"EROFS", EROFS}};

static int error_of(const char *text) {
    return -(int)VALUE_OF(errors, text, "error");
}

/* What comes after '='; none: `otherwise`. */
static const char *due_or(const char *otherwise) {
    return is("=") ? word() : otherwise;
}

/* The words until '=', as one text; a new line where there is a ','. */
static const char *rest(void) {
    static char text[STEP_MOST];
    size_t length = 0;
    text[0] = '\0';
    while (f.at < f.count && strcmp(peeked(), "=") != 0) {
        const char *next = is(",") ? "\n" : word();
        const bool blank = length != 0 && text[length - 1] != '\n' && *next != '\n';
        length +=
            (size_t)snprintf(text + length, sizeof text - length, "%s%s", blank ? " " : "", next);
    }
    return text;
}

/* [= ERROR [REASON]] */
static void assert_error(int got) {
    const char *due = due_or("");
    const int expected = *due == '\0' ? 0 : error_of(due);
    const char *reason = rest();
    if (got != expected || strstr(stint_reason(), reason) == NULL)
        wrong("told: %d (%s)\n  due:  %d (%s)", got, stint_reason(), expected, reason);
}

/* ---- Who, and by what ------------------------------------------------------------------------ */

static stint_key key_named(const char *name) {
    return stint_key_of(f.limiter, name, strlen(name));
}

/* Also one of another name by now, by its id. */
static uint32_t policy_named(const char *name) {
    uint32_t id;
    if (isdigit((unsigned char)*name))
        return count_of(name);
    if (stint_policy_find(f.limiter, name, &id) != 0)
        wrong("there is no policy \"%s\"", name);
    return id;
}

/* [of KEY] [by POLICY] */
static void whom(stint_key *key, uint32_t *id) {
    *key = key_named(is("of") ? word() : "a");
    *id = is("by") ? policy_named(word()) : 0;
}

static struct stint_policy policy_of(uint32_t id) {
    struct stint_policy policy = STINT_POLICY_INIT;
    (void)stint_policy_get(f.limiter, id, &policy);
    return policy;
}

static struct said *said_of(stint_key key, uint32_t id) {
    unsigned i = 0;
    while (i < f.known && (f.said[i].id != id || !stint_key_equal(f.said[i].key, key)))
        i++;
    if (i == f.known) {
        if (f.known++ == KEYS_MOST)
            wrong("too many keys");
        const struct stint_policy policy = policy_of(id);
        f.said[i] = (struct said){
            .id = id,
            .key = key,
            .capacity = policy.burst != 0      ? policy.burst
                        : policy.capacity != 0 ? policy.capacity
                                               : policy.limit,
        };
    }
    return &f.said[i];
}

/* ---- Requests -------------------------------------------------------------------------------- */

static const struct named flags[] = {{"peek", STINT_PEEK},
                                     {"partial", STINT_PARTIAL},
                                     {"drain", STINT_DRAIN},
                                     {"reserve", STINT_RESERVE},
                                     {"charge", STINT_CHARGE},
                                     {"tentative", STINT_TENTATIVE},
                                     {"look", STINT_PEEK | STINT_CHARGE}};
static const struct named marks[] = {
    {"first", STINT_FIRST_REFUSAL},    {"shadowed", STINT_SHADOWED},
    {"near", STINT_NEAR_LIMIT},        {"overridden", STINT_OVERRIDDEN},
    {"banned", STINT_BANNED},          {"untracked", STINT_UNTRACKED},
    {"replaced", STINT_REPLACED},      {"bad", STINT_BAD_REQUEST},
    {"unknown", STINT_UNKNOWN_POLICY}, {"mistaken", STINT_MISTAKEN_NOW}};

static struct stint_request request_told(void) {
    struct stint_request request = {.key = key_named("a"), .cost = 1};
    if (isdigit((unsigned char)*peeked()))
        request.cost = count_of(word());
    while (f.at < f.count && strcmp(peeked(), "=") != 0 && strcmp(peeked(), "+") != 0) {
        if (is("limit")) {
            request.limit = count_of(word());
        } else if (is("burst")) {
            request.burst = count_of(word());
        } else if (is("of")) {
            request.key = key_named(word());
        } else if (is("by")) {
            request.policy = policy_named(word());
        } else {
            request.flags |= (uint32_t)VALUE_OF(flags, word(), "word of a request");
        }
    }
    return request;
}

/* T of a bucket: by the policy, the key's override or the request's own limit. */
static uint64_t unit_of(const struct stint_request *request, uint32_t told) {
    const struct stint_policy policy = policy_of(request->policy);
    uint32_t limit = policy.limit, ruled;
    if (policy.burst == 0)
        return 0;
    if ((told & (STINT_OVERRIDDEN | STINT_BANNED)) == STINT_OVERRIDDEN) {
        if (stint_override_get(f.limiter, request->policy, request->key, &ruled, NULL) == 0 &&
            ruled != 0 && ruled != STINT_LIMIT_MAX)
            limit = ruled;
    } else if ((told & STINT_OVERRIDDEN) == 0 && request->limit != 0) {
        limit = request->limit;
    }
    const uint64_t unit = (policy.window + limit - 1) / limit;
    return unit > 100 ? unit : 100;
}

/* The verdict that is due of this request. */
static struct stint_verdict verdict_due(const struct stint_request *request) {
    const struct said *said = said_of(request->key, request->policy);
    const bool mistaken = f.now + 2 * ALLOWANCE < test_time;
    uint64_t decided = mistaken ? test_time : f.now;
    bool grants = true, counts = true;
    struct stint_verdict due = {
        .allowed = true,
        .flags = mistaken ? STINT_MISTAKEN_NOW : 0,
        .capacity = said->capacity,
        .window = said->window,
        .generation = said->generation,
        .granted = (request->flags & STINT_PEEK) != 0 ? 0 : request->cost,
        .policy = request->policy,
    };
    while (f.at < f.count && strcmp(peeked(), "+") != 0) {
        const char *told = word();
        if (strcmp(told, "no") == 0) {
            due.allowed = false;
        } else if (strcmp(told, "used") == 0) {
            due.used = count_of(word());
            counts = false;
        } else if (strcmp(told, "of") == 0) {
            due.capacity = count_of(word());
        } else if (strcmp(told, "granted") == 0) {
            due.granted = count_of(word());
            grants = false;
        } else if (strcmp(told, "until") == 0) {
            due.window = time_from(T0, word());
        } else if (strcmp(told, "wait") == 0) {
            due.retry_after = time_from(0, word());
        } else if (strcmp(told, "never") == 0) {
            due.retry_after = STINT_NEVER;
        } else if (strcmp(told, "by") == 0) {
            due.policy = policy_named(word());
        } else if (strcmp(told, "generation") == 0) {
            due.generation = count_of(word());
        } else if (strcmp(told, "at") == 0) {
            decided = time_from(T0, word());
        } else if (strcmp(told, "yes") != 0) {
            due.flags |= (uint32_t)VALUE_OF(marks, told, "word of a verdict");
        }
    }
    if (grants && (!due.allowed || (due.flags & STINT_SHADOWED) != 0))
        due.granted = 0;
    if ((due.flags & (STINT_BAD_REQUEST | STINT_UNKNOWN_POLICY)) != 0)
        return (struct stint_verdict){
            .flags = due.flags, .retry_after = STINT_NEVER, .policy = UINT32_MAX};
    if (counts)
        due.used = said->used + due.granted;
    due.reset_after = due.window - decided;
    due.unit = unit_of(request, due.flags);
    due.remaining = due.used < due.capacity ? due.capacity - due.used : 0;
    if ((due.flags & STINT_UNTRACKED) != 0) {
        due.window = 0;
        due.remaining = due.retry_after == 0 ? due.remaining : 0;
    }
    return due;
}

/* A verdict as it would be due. */
static const char *text_of(const struct stint_verdict *v, char *text, size_t size) {
    int length =
        snprintf(text, size,
                 "%s used %" PRIu32 " of %" PRIu32 " (%" PRIu32 " left) granted %" PRIu32 " until ",
                 v->allowed ? "yes" : "no", v->used, v->capacity, v->remaining, v->granted);
    length += print_time(text + length, size - (size_t)length, (int64_t)(v->window - T0));
    length += snprintf(text + length, size - (size_t)length, " (in ");
    length += print_time(text + length, size - (size_t)length, (int64_t)v->reset_after);
    length += snprintf(text + length, size - (size_t)length, ") %s",
                       v->retry_after == STINT_NEVER ? "never" : "wait ");
    if (v->retry_after != STINT_NEVER)
        length += print_time(text + length, size - (size_t)length, (int64_t)v->retry_after);
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if ((v->flags & marks[i].value) != 0)
            length += snprintf(text + length, size - (size_t)length, " %s", marks[i].name);
    snprintf(text + length, size - (size_t)length,
             ", policy %" PRId32 " generation %" PRIu32 ", a token %" PRIu64 " ns",
             (int32_t)v->policy, v->generation, v->unit);
    return text;
}

static void compare(const struct stint_request *request, const struct stint_verdict *got,
                    const struct stint_verdict *due) {
    char told[400], right[400];
    f.verdicts++;
    if (!same_verdict(got, due))
        wrong("told: %s\n  due:  %s", text_of(got, told, sizeof told),
              text_of(due, right, sizeof right));
    f.last = *got;
    if ((due->flags & (STINT_BAD_REQUEST | STINT_UNTRACKED | STINT_UNKNOWN_POLICY)) != 0)
        return;
    struct said *said = said_of(request->key, request->policy);
    said->used = due->used;
    said->capacity = due->capacity;
    said->window = due->window;
    said->generation = due->generation;
    if (got->granted != 0)
        said->taken = *got;
}

static bool ask_in_way(const struct stint_request *request, struct stint_verdict *verdict) {
    if (f.way == BY_BATCH)
        return stint_decide_batch(f.limiter, request, 1, f.now, verdict) == 1;
    if (f.way == BY_TAKE && (request->limit | request->burst | request->flags) == 0)
        return stint_take(f.limiter, request->policy, request->key, request->cost, f.now, verdict);
    return stint_decide(f.limiter, request, f.now, verdict);
}

/* C: whether this may write nothing. A bucket that is full keeps the instant of a refusal; stripes
 * that have slots give what others lack, and get it back. */
static bool writes_nothing(const struct stint_request *request, const struct stint_verdict *due) {
    const struct stint_policy policy = policy_of(request->policy);
    if ((request->flags & (STINT_PEEK | STINT_CHARGE)) == STINT_PEEK)
        return true;
    if (policy.stripes > 1 && (due->flags & STINT_UNTRACKED) != 0)
        return false;
    return !due->allowed && (due->flags & STINT_FIRST_REFUSAL) == 0 &&
           ((due->flags & STINT_BANNED) != 0 ||
            ((request->flags & STINT_DRAIN) == 0 && policy.burst == 0 &&
             (policy.flags & STINT_COUNT_REFUSED) == 0));
}

static void take(void) {
    const struct stint_request request = request_told();
    (void)is("=");
    const struct stint_verdict due = verdict_due(&request);
    const bool reads = writes_nothing(&request, &due);
    struct copied copied = copy_table(f.limiter);
    struct stint_verdict got;
    memset(&got, 0xa5, sizeof got);
    const bool allowed = ask_in_way(&request, &got);
    compare(&request, &got, &due);
    if (allowed != got.allowed)
        wrong("the call returned %d", allowed);
    if (reads && memcmp(copied.lines, f.limiter->table.lines, copied.size) != 0)
        wrong("C: it wrote to the table");
    free(copied.lines);
    assert_checked(f.limiter, &request, got.flags);
}

static void all(void) {
    enum { PARTS_MOST = 8 };
    struct stint_request requests[PARTS_MOST];
    struct stint_verdict due[PARTS_MOST], got[PARTS_MOST];
    size_t n = 0;
    bool fits = true;
    do {
        if (n == PARTS_MOST || !is("take"))
            wrong("what of a group is no take");
        requests[n++] = request_told();
    } while (is("+"));
    (void)is("=");
    for (size_t i = 0; i < n; i++) {
        due[i] = verdict_due(&requests[i]);
        fits &= due[i].allowed;
        if (i + 1 < n && !is("+"))
            wrong("not all of the group has a due");
    }
    /* Nothing is granted of a group that is refused. */
    for (size_t i = 0; i < n && !fits; i++) {
        due[i].used -= due[i].granted;
        due[i].remaining += due[i].granted;
        due[i].granted = 0;
    }
    memset(got, 0xa5, sizeof got);
    const size_t sizes[] = {0, n};
    const bool allowed =
        f.way == BY_BATCH ? stint_decide_groups(f.limiter, requests, n, sizes, 2, f.now, got) == 2
                          : stint_decide_all(f.limiter, requests, n, f.now, got);
    for (size_t i = 0; i < n; i++)
        compare(&requests[i], &got[i], &due[i]);
    if (allowed != fits)
        wrong("the call returned %d", allowed);
}

/* ---- What else there is ---------------------------------------------------------------------- */

/* By what a verdict of that window would say, or (give) by the last one. */
static void back(void) {
    const bool by_last = strcmp(f.verb, "give") == 0;
    const uint32_t tokens = count_of(word());
    stint_key key;
    uint32_t id;
    if (!by_last && !is("of"))
        wrong("back N of TIME");
    const uint64_t end = by_last || is("none") ? 0 : time_from(T0, word());
    whom(&key, &id);
    char otherwise[16];
    snprintf(otherwise, sizeof otherwise, "%" PRIu32, tokens);
    struct stint_verdict *last = &said_of(key, id)->taken;
    const struct stint_verdict was = *last;
    const uint32_t got = by_last ? stint_refund(f.limiter, key, last, tokens)
                                 : refund_by(f.limiter, id, key, tokens, end);
    const uint64_t moved = was.unit * (tokens < was.granted ? tokens : was.granted);
    const bool of_now = unit_of(&(const struct stint_request){.policy = id}, 0) == was.unit;
    if (by_last && tokens != 0 &&
        (last->granted != (got != 0 ? was.granted - got : 0) ||
         (got != 0 && of_now && last->window != was.window - moved)))
        wrong("what is left of the verdict: granted %" PRIu32, last->granted);
    const uint32_t due = count_of(due_or(otherwise));
    if (got != due)
        wrong("told: %" PRIu32 " given back\n  due:  %" PRIu32, got, due);
    said_of(key, id)->used -= got;
}

static void reset(void) {
    stint_key key;
    uint32_t id;
    whom(&key, &id);
    const bool got = stint_reset(f.limiter, id, key);
    const char *due = due_or("forgot");
    if (got != (strcmp(due, "forgot") == 0))
        wrong("told: %s forgotten\n  due:  %s", got ? "something" : "nothing", due);
    if (got)
        said_of(key, id)->used = 0;
}

static void override(void) {
    const bool clears = strcmp(f.verb, "clear") == 0;
    const uint32_t limit = clears ? 0 : count_of(word());
    const uint64_t until = clears || !is("until") ? 0 : time_from(T0, word());
    stint_key key;
    uint32_t id;
    whom(&key, &id);
    assert_error(clears ? stint_override_clear(f.limiter, id, key)
                        : stint_override(f.limiter, id, key, limit, until));
}

static void rule(void) {
    stint_key key;
    uint32_t id, limit = 0;
    uint64_t until = 0;
    whom(&key, &id);
    if (!is("="))
        wrong("rule = N until TIME");
    const int error = stint_override_get(f.limiter, id, key, &limit, &until);
    const char *due = word();
    if (!isdigit((unsigned char)*due) ? error != error_of(due)
                                      : error != 0 || limit != count_of(due) ||
                                            (is("until") && until != time_from(T0, word())))
        wrong("told: %d, %" PRIu32 " until %" PRId64, error, limit, (int64_t)(until - T0));
}

static void change(void) {
    struct stint_policy policy = STINT_POLICY_INIT;
    if (stint_policy_parse(rest(), &policy, NULL) != 0)
        wrong("%s", stint_reason());
    const uint32_t id = policy.name[0] == '\0' ? 0 : policy_named(policy.name);
    const struct stint_policy before = policy_of(id);
    const int checked = stint_policy_change_check(f.limiter, id, &policy);
    const struct stint_policy looked_at = policy_of(id);
    const int error = stint_policy_change(f.limiter, id, &policy);
    if (memcmp(&before, &looked_at, sizeof before) != 0 ||
        strcmp(before.name, policy_of(id).name) != 0)
        wrong("the check, or a change without a name, has changed more");
    if (checked != error)
        wrong("the check said %d, the change %d", checked, error);
    assert_error(error);
}

/* What is wrong stands in the line that the reason names. */
static void apply(void) {
    const uint32_t how = *f.verb == 'p' ? STINT_PRUNE : *f.verb == 'd' ? STINT_DRY_RUN : 0;
    const char *text = rest(), *wrong = NULL;
    unsigned line = 1, told = 1;
    const int error = stint_policies_apply(f.limiter, text, how, &wrong, NULL, NULL);
    for (const char *at = text; wrong != NULL && at < wrong; at++)
        line += *at == '\n';
    if (error != 0 && error != -EROFS &&
        (wrong == NULL || sscanf(stint_reason(), "line %u", &told) != 1 || told != line))
        fail_msg("told: %s, at line %u", stint_reason(), line);
    assert_error(error);
}

static void add(void) {
    const struct stint_policy policy = parsed(rest());
    assert_error(stint_policy_add(f.limiter, &policy, NULL));
}

static void remove_policy(void) {
    assert_error(stint_policy_remove(f.limiter, policy_named(word())));
}

static void clock_to(void) {
    f.now = test_time = time_from(T0, word());
}

static void fill(void) {
    const uint32_t keys = count_of(word());
    const uint32_t id = is("by") ? policy_named(word()) : 0;
    for (uint32_t i = 0; i < keys; i++, f.filled++)
        (void)stint_take(f.limiter, id, stint_key_of(f.limiter, &f.filled, sizeof f.filled), 1,
                         f.now, NULL);
}

/* kept N [by POLICY]: of each of the first N keys of `fill` its token. */
static void kept(void) {
    const uint32_t keys = count_of(word());
    const uint32_t id = is("by") ? policy_named(word()) : 0;
    for (uint64_t key = 1; key <= keys; key++)
        if (used_of(f.limiter, id, stint_key_of(f.limiter, &key, sizeof key)) != 1)
            wrong("key %" PRIu64 " has another count", key);
}

/* The value is the place of a count in its struct, and above that its size. */
#define COUNT(type, field)                                                                         \
    { #field, offsetof(struct type, field) | sizeof(((struct type *)0)->field) << 16 }
#define OF_POLICY(field) COUNT(stint_policy_stats, field)
#define OF_TABLE(field)  COUNT(stint_stats, field)
static const struct named policy_counts[] = {
    OF_POLICY(allowed),        OF_POLICY(refused),      OF_POLICY(shadowed),
    OF_POLICY(first_refusals), OF_POLICY(untracked),    OF_POLICY(near_limit),
    OF_POLICY(charged),        OF_POLICY(refunded),     OF_POLICY(bans),
    OF_POLICY(strikes_lost),   OF_POLICY(refunds_lost), OF_POLICY(mistaken_nows)};
static const struct named table_counts[] = {
    OF_TABLE(live),         OF_TABLE(placed),      OF_TABLE(slots),  OF_TABLE(untracked),
    OF_TABLE(replaced),     OF_TABLE(clock_steps), OF_TABLE(resets), OF_TABLE(unknown_policy),
    OF_TABLE(bad_requests), OF_TABLE(overrides),   OF_TABLE(barred), OF_TABLE(banned),
    OF_TABLE(policies),     OF_TABLE(policy_ids),  OF_TABLE(used)};

/* = FIELD N ... */
static void counts(const void *whole, const struct named *names, size_t count) {
    (void)is("=");
    while (f.at < f.count) {
        const char *name = word();
        const uint64_t place = value_of(names, count, name, "count");
        uint64_t got = 0;
        memcpy(&got, (const char *)whole + (place & 0xffff), place >> 16); /* little end first */
        const uint32_t due = count_of(word());
        if (got != due)
            wrong("told: %s %" PRIu64 "\n  due:  %" PRIu32, name, got, due);
    }
}

static void counts_of_policy(void) {
    const struct stint_policy_stats stats =
        get_policy_stats(f.limiter, is("by") ? policy_named(word()) : 0);
    counts(&stats, policy_counts, sizeof policy_counts / sizeof *policy_counts);
}

static void counts_of_table(void) {
    const struct stint_stats stats = get_stats(f.limiter);
    counts(&stats, table_counts, sizeof table_counts / sizeof *table_counts);
}

/* ---- A table in a file ----------------------------------------------------------------------- */

static int open_table(void) {
    struct stint_options reads = shared_options(0);
    reads.flags = STINT_READ_ONLY;
    reads.on_full = f.options.on_full;
    return f.handle == READER ? stint_attach(&reads, &f.limiter)
                              : stint_open(&f.options, &f.limiter);
}

static void reopen(void) {
    if (f.limiter != NULL)
        wrong("it is open");
    assert_error(open_table());
}

static void close_table(void) {
    stint_close(f.limiter);
    f.limiter = NULL;
}

static void use_handle(void) {
    static const struct named names[] = {{"one", ONE}, {"two", TWO}, {"reader", READER}};
    f.others[f.handle] = f.limiter;
    f.handle = (enum handle)VALUE_OF(names, word(), "handle");
    f.limiter = f.others[f.handle];
    f.others[f.handle] = NULL;
    if (f.limiter == NULL && open_table() != 0)
        wrong("%s", stint_reason());
}

/* [ENTRIES [POLICIES]] [= ERROR]. What is refused leaves the file as it is. */
static void resize(void) {
    struct stint_options given = STINT_OPTIONS_INIT;
    const struct bytes before = file_read(path);
    given.clock = test_clock;
    if (isdigit((unsigned char)*peeked()))
        given.max_entries = count_of(word());
    if (isdigit((unsigned char)*peeked()))
        given.max_policies = count_of(word());
    const int error = stint_resize(path, &given);
    assert_error(error);
    if (error != 0)
        assert_file(before);
    f.options.max_entries =
        error == 0 && given.max_entries != 0 ? given.max_entries : f.options.max_entries;
    f.options.max_policies =
        error == 0 && given.max_policies != 0 ? given.max_policies : f.options.max_policies;
    free(before.start);
}

/* ---- What is told of it ---------------------------------------------------------------------- */

/* = [q N [w N] r N t N] [retry N] */
static void fields(void) {
    const struct stint_policy policy = policy_of(f.last.policy);
    char due[2][300], got[300], window[16] = "", retry[40] = "";
    uint32_t q = 0, r = 0, t = 0;
    bool quota = false;
    (void)is("=");
    while (f.at < f.count) {
        const char *name = word();
        const uint32_t n = count_of(word());
        quota |= *name == 'q';
        q = *name == 'q' ? n : q;
        t = *name == 't' ? n : t;
        if (*name == 'w')
            snprintf(window, sizeof window, ";w=%" PRIu32, n);
        else if (strcmp(name, "retry") == 0)
            snprintf(retry, sizeof retry, "Retry-After: %" PRIu32 "\r\n", n);
        else if (strcmp(name, "r") == 0)
            r = n;
    }
    due[0][0] = due[1][0] = '\0';
    if (quota) {
        snprintf(due[0], sizeof due[0],
                 "RateLimit-Policy: \"%s\";q=%" PRIu32 "%s\r\n"
                 "RateLimit: \"%s\";r=%" PRIu32 ";t=%" PRIu32 "\r\n",
                 policy.name, q, window, policy.name, r, t);
        snprintf(due[1], sizeof due[1],
                 "X-RateLimit-Limit: %" PRIu32 "\r\nX-RateLimit-Remaining: %" PRIu32
                 "\r\nX-RateLimit-Reset: %" PRIu64 "\r\n",
                 q, r, f.now / SECOND + t);
    }
    for (uint32_t i = 0; i < 2; i++) {
        strcat(due[i], retry);
        const int length =
            stint_headers(f.limiter, i == 0 ? STINT_HEADERS_DRAFT : STINT_HEADERS_LEGACY, &f.last,
                          1, got, sizeof got);
        if (length != (int)strlen(due[i]) || strcmp(got, due[i]) != 0)
            wrong("told: %s\n  due:  %s", got, due[i]);
    }
}

/* = LINE, a whole one of the metrics; or no PART, which stands nowhere in them */
static void metrics(void) {
    static char text[1 << 16];
    char line[STEP_MOST + 2];
    if (stint_metrics(f.limiter, NULL, text, sizeof text) <= 0)
        wrong("%s", stint_reason());
    (void)is("=");
    const bool lacks = is("no");
    snprintf(line, sizeof line, lacks ? "%s" : "\n%s\n", rest());
    if ((strstr(text, line) == NULL) != lacks)
        wrong("%sin\n%s", lacks ? "" : "not ", text);
}

enum { ENTRIES_MOST = 16 };

struct entries {
    struct stint_entry entries[ENTRIES_MOST];
    size_t count;
};

static bool entry_keep(void *context, const struct stint_entry *entry) {
    struct entries *told = context;
    if (told->count == ENTRIES_MOST)
        wrong("more than %d entries", ENTRIES_MOST);
    told->entries[told->count] = *entry;
    told->entries[told->count++].label = NULL;
    return true;
}

static const struct named entry_flags[] = {{"refused", STINT_ENTRY_REFUSED},
                                           {"override", STINT_ENTRY_OVERRIDE},
                                           {"ban", STINT_ENTRY_OVERRIDE | STINT_ENTRY_BAN},
                                           {"strikes", STINT_ENTRY_STRIKES}};

/* One of the words until '+', as it is due. */
static struct stint_entry entry_due(stint_key key) {
    struct stint_entry due = {.key = key};
    while (f.at < f.count && !is("+")) {
        const char *told = word();
        if (strcmp(told, "by") == 0)
            due.policy = policy_named(word());
        else if (strcmp(told, "used") == 0)
            due.used = count_of(word());
        else if (strcmp(told, "limit") == 0)
            due.limit = count_of(word());
        else if (strcmp(told, "since") == 0)
            due.since = time_from(T0, word());
        else if (strcmp(told, "until") == 0)
            due.end = time_from(T0, word());
        else
            due.flags |= (uint32_t)VALUE_OF(entry_flags, told, "word of an entry");
    }
    return due;
}

/* [of KEY] = none, or ENTRY + ENTRY ...; in any order */
static void entries(void) {
    const stint_key key = key_named(is("of") ? word() : "a");
    struct entries told = {.count = 0};
    size_t due = 0;
    if (stint_each_of(f.limiter, key, entry_keep, &told) != 0)
        wrong("%s", stint_reason());
    (void)is("=");
    for (; !is("none") && f.at < f.count; due++) {
        const struct stint_entry expected = entry_due(key);
        size_t i = 0;
        while (i < told.count && memcmp(&told.entries[i], &expected, sizeof expected) != 0)
            i++;
        for (size_t j = 0; i == told.count && j < told.count; j++)
            print_error("told: policy %" PRIu32 ", flags %#" PRIx32 ", used %" PRIu64
                        ", limit %" PRIu64 ", since %" PRId64 ", until %" PRId64 "\n",
                        told.entries[j].policy, told.entries[j].flags, told.entries[j].used,
                        told.entries[j].limit, (int64_t)(told.entries[j].since - T0),
                        (int64_t)(told.entries[j].end - T0));
        if (i == told.count)
            wrong("no entry %zu of these", due + 1);
    }
    if (due != told.count)
        wrong("told: %zu entries", told.count);
}

static const struct {
    const char *verb;
    void (*act)(void);
} verbs[] = {{"take", take},
             {"all", all},
             {"back", back},
             {"give", back},
             {"reset", reset},
             {"override", override},
             {"clear", override},
             {"rule", rule},
             {"change", change},
             {"apply", apply},
             {"prune", apply},
             {"dry", apply},
             {"add", add},
             {"remove", remove_policy},
             {"kept", kept},
             {"clock", clock_to},
             {"fill", fill},
             {"fields", fields},
             {"metrics", metrics},
             {"entries", entries},
             {"counts", counts_of_policy},
             {"table", counts_of_table},
             {"close", close_table},
             {"open", reopen},
             {"as", use_handle},
             {"resize", resize}};

static void act(void) {
    size_t i = 0;
    f.verb = word();
    while (i < sizeof verbs / sizeof *verbs && strcmp(verbs[i].verb, f.verb) != 0)
        i++;
    if (i == sizeof verbs / sizeof *verbs)
        wrong("\"%s\" is no act", f.verb);
    if (f.limiter == NULL && strcmp(f.verb, "open") != 0 && strcmp(f.verb, "as") != 0 &&
        strcmp(f.verb, "resize") != 0 && strcmp(f.verb, "clock") != 0)
        wrong("the table is closed");
    verbs[i].act();
    if (f.at != f.count)
        wrong("\"%s\" is too much", peeked());
}

/* ---- The play -------------------------------------------------------------------------------- */

static void play_step(const char *text, size_t length) {
    if (length >= sizeof f.text)
        wrong("a step of %zu letters", length);
    snprintf(f.text, sizeof f.text, "%.*s", (int)length, text);
    snprintf(f.whole, sizeof f.whole, "%s", f.text);
    f.count = f.at = 0;
    for (char *next = strtok(f.text, " "); next != NULL; next = strtok(NULL, " ")) {
        if (f.count == WORDS_MOST)
            wrong("too many words");
        f.words[f.count++] = next;
    }
    if (f.count == 0)
        wrong("no words");
    f.step++;
    const size_t first = strlen(f.words[0]);
    if (f.words[0][first - 1] == ':') {
        ((char *)(uintptr_t)f.words[0])[first - 1] = '\0';
        f.now = time_from(T0, word());
    }
    if (f.now > test_time)
        test_time = f.now;
    act();
}

static void play(const struct feature *feature, enum way way) {
    const uint64_t step_ns = test_step;
    const char *policies = feature->policies;
    struct stint_options *options = &f.options;
    char where[6] = "", on_full[8];
    *options = fixture_options(100, STINT_FULL_REFUSE);
    if (sscanf(policies, "%5[a-z] %" SCNu64 " %7[a-z] %" SCNu32, where, &options->max_entries,
               on_full, &options->max_policies) >= 3) {
        options->on_full = *on_full == 'a'                   ? STINT_FULL_ADMIT
                           : strcmp(on_full, "replace") == 0 ? STINT_FULL_REPLACE
                                                             : STINT_FULL_REFUSE;
        policies += strcspn(policies, ";");
        policies += strspn(policies, "; ");
    }
    const bool in_file = strcmp(where, "file") == 0;
    if (in_file)
        directory_make(NULL);
    options->path = in_file ? path : NULL;
    memset(&f.said, 0, sizeof f.said);
    memset(&f.others, 0, sizeof f.others);
    f.handle = ONE;
    f.feature = feature;
    f.way = way;
    f.known = f.step = 0;
    f.filled = 1;
    f.now = T0;
    snprintf(f.whole, sizeof f.whole, "(none yet)");
    f.limiter = open_with(options);
    for (const char *at = policies; *at != '\0'; at += strspn(at, "; ")) {
        char text[STEP_MOST];
        snprintf(text, sizeof text, "%.*s", (int)strcspn(at, ";"), at);
        add_text(f.limiter, text);
        at += strcspn(at, ";");
    }
    test_step = 0; /* what is told by the clock is told to the ns */
    test_time = 0;
    for (const char *at = feature->steps; *at != '\0'; at += strspn(at, "; ")) {
        play_step(at, strcspn(at, ";"));
        at += strcspn(at, ";");
    }
    test_step = step_ns;
    stint_close(f.limiter);
    for (unsigned i = 0; i < HANDLES; i++)
        stint_close(f.others[i]);
    if (in_file && directory_remove(NULL) != 0)
        wrong("something is left beside the table");
}

size_t play_features(const struct feature *features, size_t count) {
    f.verdicts = 0;
    for (size_t i = 0; i < count; i++) {
        f.sentence = features[i].sentence != NULL ? features[i].sentence : f.sentence;
        for (enum way way = BY_DECIDE; way < WAYS; way++)
            play(&features[i], way);
    }
    return f.verdicts;
}

/* ---- The contract ---------------------------------------------------------------------------- */

/* A file of the source as words, one blank between them, without what makes comments of them. */
static char *words_of(const char *name) {
    enum { SIZE = 1 << 20 };
    char source[4096], *text = malloc(SIZE), word[200];
    size_t length = 0;
    snprintf(source, sizeof source, "%s/%s", getenv("STINT_TEST_SOURCE"), name);
    FILE *file = fopen(source, "r");
    assert_non_null(file);
    assert_non_null(text);
    while (fscanf(file, "%199s", word) == 1)
        if (strcmp(word, "*") != 0)
            length += (size_t)snprintf(text + length, SIZE - length, "%s ", word);
    fclose(file);
    return text;
}

void assert_sentences(const struct feature *features, size_t count) {
    if (getenv("STINT_TEST_SOURCE") == NULL)
        skip();
    char *texts[2] = {words_of("include/stint.h"), words_of("doc/promises.md")};
    for (size_t i = 0; i < count; i++)
        if (features[i].sentence != NULL && strstr(texts[0], features[i].sentence) == NULL &&
            strstr(texts[1], features[i].sentence) == NULL)
            fail_msg("\"%s\": \"%s\" is not in the contract", features[i].name,
                     features[i].sentence);
    free(texts[0]);
    free(texts[1]);
}
