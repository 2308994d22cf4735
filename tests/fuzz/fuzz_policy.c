/* SPDX-License-Identifier: MIT
 * Policies as structs with any values and names, and what is written of them for others: the
 * response's fields under any verdicts, and the metrics. The input is read field by field. What is
 * written is read back by its grammar, and says what it was written from. */

#include <ctype.h>
#include <errno.h>

#include "policy_text.h"

enum { POLICIES = 4, DIGITS_MAX = 15 }; /* of an integer, RFC 9651 */

/* A caller's struct, of a later version perhaps. */
struct given {
    struct stint_policy policy;
    uint8_t later[16];
};

static struct given read_policy(struct input *input) {
    struct given given = {.policy = STINT_POLICY_INIT};
    struct stint_policy policy = STINT_POLICY_INIT;
    uint8_t odd = (uint8_t)input_number(input, 1);
    input_bytes(input, policy.name, input_below(input, STINT_NAME_SIZE + 1));
    policy.limit = (uint32_t)input_number(input, 4);
    policy.capacity = (uint32_t)input_number(input, 4);
    policy.max_reserved = (uint32_t)input_number(input, 4);
    policy.stripes = (uint32_t)input_number(input, 1);
    policy.window = input_number(input, 4) * STINT_TICK_NS;
    policy.start = (int64_t)input_below(input, INT64_MAX / (int64_t)STINT_TICK_NS + 1) *
                   (int64_t)STINT_TICK_NS;
    policy.flags = (uint32_t)input_number(input, 1);
    policy.near_limit = (uint32_t)input_number(input, 1);
    policy.jitter = (uint32_t)input_number(input, 1);
    /* Mostly what does not go together for reasons of its own is left out. */
    if ((odd & 1) == 0) {
        policy.limit &= STINT_LIMIT_MAX - 1;
        policy.capacity &= STINT_LIMIT_MAX - 1;
        policy.max_reserved &= STINT_LIMIT_MAX - 1;
        policy.flags &= 63 | STINT_OVERRIDES;
        policy.near_limit &= 63;
        policy.jitter &= 63;
    }
    if ((odd & 2) != 0)
        policy.start = -policy.start;
    if ((odd & 4) != 0)
        policy.capacity = policy.max_reserved = 0;
    if ((odd & 8) != 0)
        policy.stripes = 0;
    if ((odd & 16) != 0)
        policy.start = 0;
    if ((odd & 32) != 0)
        policy.window = input_number(input, 8);
    if ((odd & 128) != 0) {
        policy.window = 0;
        policy.calendar = 1 + (uint32_t)input_below(input, 2);
        policy.offset = (int32_t)input_below(input, 840 + 720 + 1) - 720;
        policy.start /= 2; /* more of these are on the days 1 to 28 */
        policy.start -= policy.start % (int64_t)STINT_TICK_NS;
    }
    if ((odd & 64) != 0) {
        policy.calendar ^= (uint32_t)input_number(input, 1);
        policy.start = (int64_t)input_number(input, 8);
        policy.size = input_below(input, sizeof given + 1);
        given.later[input_below(input, sizeof given.later)] = (uint8_t)input_number(input, 1);
    }
    /* Not before the rest, so that the corpus says what it said. */
    if ((policy.flags & STINT_OVERRIDES) != 0) {
        policy.ban = input_number(input, 4) * ((odd & 32) != 0 ? 1 : STINT_TICK_NS);
        policy.ban_after = (uint32_t)input_number(input, (odd & 1) != 0 ? 4 : 2);
    }
    given.policy = policy;
    return given;
}

/* ---- What is written, read back ------------------------------------------------------------- */

static void expect_text(const char **at, const char *text) {
    assert(strncmp(*at, text, strlen(text)) == 0);
    *at += strlen(text);
}

/* In quotes, and with nothing in them that would end or escape. */
static void expect_quoted(const char **at, const char *name) {
    expect_text(at, "\"");
    for (; *name != '\0'; name++) {
        if (**at == '\\') {
            ++*at;
            assert(**at == '"' || **at == '\\');
        } else {
            assert(**at != '"' && isprint((unsigned char)**at));
        }
        assert(**at == *name);
        ++*at;
    }
    expect_text(at, "\"");
}

static uint64_t expect_number(const char **at) {
    char *end;
    uint64_t number = strtoull(*at, &end, 10);
    assert(isdigit((unsigned char)**at) && end - *at <= DIGITS_MAX);
    *at = end;
    return number;
}

static uint64_t seconds_up(uint64_t ns) {
    return ns / 1000000000 + (ns % 1000000000 != 0);
}

/* ---- The response's fields ------------------------------------------------------------------ */

struct response {
    struct stint_limiter *limiter;
    uint32_t style;
    const char *names[POLICIES];
    const char *told[POLICIES]; /* by what clients know them */
    struct stint_policy policies[POLICIES];
    struct stint_verdict verdicts[POLICIES];
    size_t n;
};

static bool is_in_flight(const struct response *response, size_t i) {
    return (response->policies[i].flags & STINT_IN_FLIGHT) != 0;
}

static bool is_bucket(const struct response *response, size_t i) {
    return response->policies[i].burst != 0;
}

static int write_headers(const void *object, char *buffer, size_t size) {
    const struct response *response = object;
    return stint_headers(response->limiter, response->style, response->verdicts, response->n,
                         buffer, size);
}

static void expect_retry_after(const char *at, const struct response *response) {
    uint64_t longest = 0;
    bool refused = false;
    for (size_t i = 0; i < response->n; i++) {
        const struct stint_verdict *verdict = &response->verdicts[i];
        if (is_in_flight(response, i) && verdict->retry_after != STINT_NEVER)
            continue;
        refused |= !verdict->allowed;
        if (!verdict->allowed && verdict->retry_after > longest)
            longest = verdict->retry_after;
    }
    if (refused && longest != STINT_NEVER) {
        expect_text(&at, "Retry-After: ");
        assert(expect_number(&at) == seconds_up(longest));
        expect_text(&at, "\r\n");
    }
    assert(*at == '\0');
}

/* A key that is refused everything has tokens when that ends; others when the request fits, at the
 * latest. */
static uint64_t told_after(const struct stint_verdict *verdict) {
    bool barred = (verdict->flags & STINT_BANNED) != 0 ||
                  ((verdict->flags & STINT_OVERRIDDEN) != 0 && verdict->capacity == 0);
    bool sooner = !verdict->allowed && verdict->retry_after < verdict->reset_after;
    bool waits = verdict->retry_after != STINT_NEVER && verdict->retry_after != 0;
    return waits && (barred || sooner) ? verdict->retry_after : verdict->reset_after;
}

/* A verdict of a policy that was not there yet has the capacity 0. */
static void expect_quota(const char **at, const struct stint_verdict *verdict) {
    const uint64_t quota = expect_number(at);
    assert(quota == verdict->capacity || verdict->capacity == 0);
}

static void expect_draft(const char **at, const struct response *response) {
    size_t told = 0; /* those that the table has counted */
    for (size_t i = 0; i < response->n; i++) {
        if ((response->verdicts[i].flags & STINT_UNTRACKED) != 0)
            continue;
        expect_text(at, told++ == 0 ? "RateLimit-Policy: " : ", ");
        expect_quoted(at, response->told[i]);
        expect_text(at, ";q=");
        expect_quota(at, &response->verdicts[i]);
        if (is_in_flight(response, i))
            expect_text(at, ";qu=\"concurrent-requests\"");
        if (response->policies[i].calendar != 0 || is_in_flight(response, i))
            continue;
        expect_text(at, ";w=");
        /* Of what a key can hold: several windows bring it. */
        const struct stint_policy *policy = &response->policies[i];
        const bool several = policy->capacity > policy->limit || policy->max_reserved != 0;
        const uint64_t seconds = expect_number(at), window = seconds_up(policy->window);
        assert(is_bucket(response, i) || (several ? seconds >= window : seconds == window));
    }
    told = 0;
    for (size_t i = 0; i < response->n; i++) {
        if ((response->verdicts[i].flags & STINT_UNTRACKED) != 0)
            continue;
        expect_text(at, told++ == 0 ? "\r\nRateLimit: " : ", ");
        expect_quoted(at, response->told[i]);
        expect_text(at, ";r=");
        assert(expect_number(at) == response->verdicts[i].remaining);
        if (is_in_flight(response, i))
            continue;
        expect_text(at, ";t=");
        const uint64_t seconds = expect_number(at);
        const uint64_t most = seconds_up(told_after(&response->verdicts[i]));
        assert(is_bucket(response, i) ? seconds <= most : seconds == most);
    }
    if (told != 0)
        expect_text(at, "\r\n");
}

/* Of the tightest of those that have a reset to tell. */
static void expect_legacy(const char **at, const struct response *response) {
    struct stint_verdict told[POLICIES];
    bool bucket[POLICIES];
    size_t count = 0;
    for (size_t i = 0; i < response->n; i++) {
        if ((response->verdicts[i].flags & STINT_UNTRACKED) != 0 || is_in_flight(response, i))
            continue;
        bucket[count] = is_bucket(response, i);
        told[count++] = response->verdicts[i];
    }
    if (count == 0)
        return;
    const size_t tightest = stint_tightest(told, count);
    const struct stint_verdict *verdict = &told[tightest];
    expect_text(at, "X-RateLimit-Limit: ");
    expect_quota(at, verdict);
    expect_text(at, "\r\nX-RateLimit-Remaining: ");
    assert(expect_number(at) == verdict->remaining);
    expect_text(at, "\r\nX-RateLimit-Reset: ");
    const uint64_t seconds = expect_number(at);
    const uint64_t most = seconds_up(verdict->window - verdict->reset_after + told_after(verdict));
    assert(bucket[tightest] || seconds == most);
    expect_text(at, "\r\n");
}

static void check_headers(struct response *response) {
    static const uint32_t styles[] = {0, STINT_HEADERS_DRAFT, STINT_HEADERS_LEGACY,
                                      STINT_HEADERS_DRAFT | STINT_HEADERS_LEGACY};
    for (size_t i = 0; i < sizeof styles / sizeof styles[0]; i++) {
        response->style = styles[i];
        char *text = whole_text(write_headers, response);
        const char *at = text;
        if ((styles[i] & STINT_HEADERS_DRAFT) != 0)
            expect_draft(&at, response);
        if ((styles[i] & STINT_HEADERS_LEGACY) != 0)
            expect_legacy(&at, response);
        expect_retry_after(at, response);
        free(text);
    }
}

static struct stint_verdict read_verdict(struct input *input) {
    return (struct stint_verdict){
        .allowed = input_number(input, 1) & 1,
        .flags = (uint32_t)input_number(input, 1),
        .capacity = (uint32_t)input_number(input, 4),
        .remaining = (uint32_t)input_number(input, 4),
        .window = input_number(input, 8),
        .reset_after = input_number(input, 8),
        .retry_after = input_number(input, 8),
    };
}

/* ---- The metrics ---------------------------------------------------------------------------- */

static int write_metrics(const void *object, char *buffer, size_t size) {
    const struct response *response = object;
    return stint_metrics(response->limiter, NULL, buffer, size);
}

/* The names and limits of all, in their order. (All samples: tests/api/metrics.py.) */
static void check_metrics(const struct response *response) {
    char *text = whole_text(write_metrics, response);
    const char *at = strstr(text, "\nstint_policy_limit{");
    assert(at != NULL || response->n == 0);
    for (size_t i = 0; i < response->n; i++) {
        expect_text(&at, "\nstint_policy_limit{policy=");
        expect_quoted(&at, response->names[i]);
        expect_text(&at, "} ");
        assert(expect_number(&at) == response->policies[i].limit);
    }
    assert(strcmp(text + strlen(text) - 7, "\n# EOF\n") == 0);
    free(text);
}

/* ---- The target ----------------------------------------------------------------------------- */

/* Writes nothing when it refuses. */
static void check_invalid(const struct stint_policy *policy, struct stint_limiter *limiter) {
    char untouched[] = "untouched";
    assert(stint_policy_format(policy, untouched, sizeof untouched) == -EINVAL);
    assert(stint_policy_note(policy, untouched, sizeof untouched) == -EINVAL);
    assert(strcmp(untouched, "untouched") == 0);
    assert(policy_added(limiter, policy) == -EINVAL);
    assert(stint_policy_change(limiter, 0, policy) == -EINVAL);
}

/* The name that a policy without one is given. */
static const char *rate_name(struct stint_policy *policy) {
    struct stint_limiter *limiter = open_for(2); /* it, and a companion */
    assert(policy_added(limiter, policy) == 0);
    assert(stint_policy_get(limiter, 0, policy) == 0);
    stint_close(limiter);
    return policy->name;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input input = {data, size};
    struct response response = {.limiter = open_for(2 * POLICIES)};
    struct stint_policy *const got = response.policies, rate;
    bool unnamed = false;     /* the first of them */
    bool overridable = false; /* likewise, at some time */
    int next = 0;             /* id */
    while (input.left > 0 && response.n < POLICIES) {
        struct given given = read_policy(&input);
        if (stint_policy_format(&given.policy, NULL, 0) < 0) {
            check_invalid(&given.policy, response.limiter);
            continue;
        }
        const size_t told = given.policy.size; /* what it lacks is 0: it is of an older version */
        if (told < sizeof given.policy)
            memset((char *)&given.policy + told, 0, sizeof given.policy - told);
        int id = policy_added(response.limiter, &given.policy);
        given.policy.size = sizeof given.policy;
        check_policy_text(&given.policy);
        check_policy_taken(&given.policy);
        assert(id == -EEXIST || (id >= 0 && id <= next));
        if (id < 0 || id < next) /* there is one of that name */
            continue;
        const size_t n = response.n++;
        got[n] = (struct stint_policy)STINT_POLICY_INIT;
        assert(stint_policy_get(response.limiter, (uint32_t)id, &got[n]) == 0);
        assert(policy_found(response.limiter, got[n].name) == id);
        response.names[n] = response.told[n] = got[n].name;
        next += 1 + ((got[n].flags & STINT_OVERRIDES) != 0); /* and its companion */
        if (n == 0) {
            unnamed = given.policy.name[0] == '\0';
            overridable = (got[0].flags & STINT_OVERRIDES) != 0;
        }
        response.verdicts[n] = read_verdict(&input);
        response.verdicts[n].policy = (uint32_t)id;
        /* To one policy's rule from another's: either that, or nothing changes. */
        struct stint_policy after = STINT_POLICY_INIT, *first = &got[0];
        struct stint_policy rule = got[n];
        memcpy(rule.name, first->name, sizeof rule.name);
        rule.window = first->window;
        rule.calendar = first->calendar;
        rule.offset = first->offset;
        rule.start = first->start;
        int error = stint_policy_change(response.limiter, 0, &rule);
        assert(error == 0 || error == -EINVAL);
        assert(stint_policy_get(response.limiter, 0, &after) == 0);
        assert(memcmp(&after, error == 0 ? &rule : first, sizeof after) == 0);
        *first = after;
        if (!overridable && (after.flags & STINT_OVERRIDES) != 0) {
            overridable = true;
            next++;
        }
    }
    if (unnamed) { /* the rate is what it would be called if it were added now */
        rate = got[0];
        rate.name[0] = '\0';
        response.told[0] = rate_name(&rate);
    }
    check_headers(&response);
    check_metrics(&response);
    stint_close(response.limiter);
    return 0;
}
