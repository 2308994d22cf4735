/* SPDX-License-Identifier: MIT
 * Calls of each public function, with what can be said of its answer by itself. */
#include <arpa/inet.h>

#include "world.h"

enum { CANARY = 64 };

/* `box`: what a call writes to, between bytes that it must not write. */
#define BOXED(type, count)                                                                         \
    struct {                                                                                       \
        uint8_t before[CANARY];                                                                    \
        type is[count];                                                                            \
        uint8_t after[CANARY];                                                                     \
    } box;                                                                                         \
    memset(&box, 0xa5, sizeof box)
/* From `last` on nothing was written either. */
#define box_check(last) box_whole(box.before, box.after, last)

static void box_whole(const uint8_t before[CANARY], const uint8_t *after, const void *last) {
    for (const uint8_t *byte = last; byte < after + CANARY; byte++)
        must(*byte == 0xa5, "what is behind a result was written");
    for (unsigned i = 0; i < CANARY; i++)
        must(before[i] == 0xa5, "what is before a result was written");
}

/* An error is one of these, and has a reason. */
static void check_error(const struct actor *actor, int result, const int *errors) {
    trace(actor, "  = %d", result);
    if (result >= 0)
        return;
    if (world->verbose) /* a path differs from run to run */
        fprintf(stderr, "%s\n", stint_reason());
    if (actor->number == ACTORS_MAX && result == -EBUSY)
        return; /* those who wait for it stand still */
    while (*errors != 0 && *errors != -result)
        errors++;
    must(*errors != 0, "%s: %s (%d): %s", function_names[actor->function], stint_strerror(result),
         result, stint_reason());
    must(stint_reason()[0] != '\0' && stint_strerror(result)[0] != '\0', "an error says nothing");
}
#define check(actor, result, ...) check_error(actor, result, (const int[]){__VA_ARGS__, 0})

static unsigned name_draw(struct actor *actor) {
    return (unsigned)random_below(&actor->random, world->name_count);
}

static unsigned key_draw(struct actor *actor) {
    return (unsigned)random_below(&actor->random, world->key_count);
}

/* ---- Requests -------------------------------------------------------------------------------- */

static uint32_t flags_draw(struct actor *actor, const struct named *named, uint32_t *limit) {
    const bool in_flight = is(named, A_IN_FLIGHT), striped = is(named, A_STRIPES);
    *limit = 0;
    if (chance(actor, 2))
        return chance(actor, 3) ? STINT_PEEK : 0;
    if (chance(actor, 4) && !in_flight)
        return STINT_CHARGE | (chance(actor, 2) ? STINT_PEEK : 0);
    if (chance(actor, 2) && !striped) /* now and then above all that the policy has */
        *limit = 1 + (uint32_t)random_below(&actor->random, chance(actor, 4) ? 40 : 8);
    return STINT_PEEK * (uint32_t)random_below(&actor->random, 16) &
           ~(in_flight ? (uint32_t)STINT_DRAIN
             : striped ? (uint32_t)(STINT_DRAIN | STINT_PARTIAL)
                       : 0);
}

/* Of all requests that make sense, and now and then of others. */
static struct asked ask_draw(struct actor *actor, bool of_group) {
    struct asked asked = {.name = name_draw(actor), .key = key_draw(actor)};
    const struct named *named = &world->names[asked.name];
    struct stint_request *request = &asked.request;
    request->key = world->keys[asked.key];
    request->policy = actor->ids[asked.name];
    request->cost = chance(actor, 3) ? (uint32_t)random_below(&actor->random, 12) : 1;
    request->flags = flags_draw(actor, named, &request->limit);
    if (actor->reads && !chance(actor, 8))
        request->flags = STINT_PEEK;
    if (of_group && (request->flags & (STINT_CHARGE | STINT_PEEK)) == STINT_CHARGE)
        request->flags |= STINT_PEEK;
    if (chance(actor, 60) && !is(named, A_STRIPES)) { /* it never fits */
        request->flags = STINT_PEEK | (chance(actor, 2) ? STINT_RESERVE : 0);
        request->limit = STINT_LIMIT_MAX;
        request->cost = STINT_LIMIT_MAX + 1 + (uint32_t)random_below(&actor->random, 8);
    }
    if (is(named, A_BURST) && !named->mixed && chance(actor, 6) &&
        (request->flags & STINT_CHARGE) == 0)
        request->burst = 1 + (uint32_t)random_below(&actor->random, 12);
    request->flags |= chance(actor, 8) ? STINT_TENTATIVE : 0;
    if (chance(actor, 80)) {
        asked.senseless = true;
        if (chance(actor, 2))
            request->reserved = 1;
        else
            request->flags |= STINT_OVERRIDES; /* a flag of policies */
    }
    return asked;
}

/* The world's books are told before: what the policy has so far is raised by the request's own. */
static void ask_enter(const struct actor *actor, const struct asked *asked) {
    struct named *named = &world->names[asked->name];
    const uint64_t limit = asked->request.limit;
    const uint32_t asks = asked->request.flags & (STINT_PEEK | STINT_CHARGE);
    if (actor->reads || asked->senseless || asks == STINT_PEEK)
        return;
    ledger_asked(asked); /* the look before a charge may be a strike, too */
    if ((asks & STINT_PEEK) != 0)
        return;
    if (limit > (is_bucket(&named->policy) ? named->policy.limit : capacity_of(&named->policy)))
        named_limit(named, limit);
    named->charged |= (asked->request.flags & STINT_CHARGE) != 0;
}

/* At what time to ask: by the clock, by a time that was read before, late, or ahead of it. Nobody
 * is ahead of the world's time by more than 60 s, with what his clock is. */
static uint64_t now_draw(struct actor *actor) {
    const uint64_t time = world->time + (uint64_t)actor->skew;
    const uint64_t ahead = world->still ? 1 : MINUTE - (uint64_t)actor->skew;
    const uint64_t late[] = {3 * SECOND, 24 * MS /* as a server that read it a turn ago */,
                             world->still ? 1 : 10 * DAY, world->still ? 1 : MINUTE};
    const uint64_t drawn = random_below(&actor->random, 15);
    uint64_t now = time;
    if (drawn > 8)
        return STINT_NOW;
    if (drawn == 8) { /* in seconds, ms or us, or ns since the machine started: the clock decides */
        const uint64_t mistakes[] = {time / SECOND, time / MS, time / 1000, time % (30 * DAY)};
        now = mistakes[random_below(&actor->random, 4)];
        actor->mistaken = time - now > DAY;
        return now;
    }
    if (drawn == 1)
        now = actor->read != 0 ? actor->read : time;
    else if (drawn > 5)
        now = time + random_below(&actor->random, ahead);
    else if (drawn > 1)
        now = time - random_below(&actor->random, late[drawn - 2]);
    actor->read = time;
    actor->at = now;
    if (world->latest < (now > time ? now : time))
        world->latest = now > time ? now : time;
    return now;
}

static void decided(struct actor *actor, const struct asked *asked,
                    const struct stint_verdict *verdicts, unsigned count, bool whole) {
    /* A part of a group is looked at, decided and given back. */
    const uint64_t n = actor->asked_count, most = 25 * (whole ? 3 * n + 1 : n + 1);
    must(actor->readings <= most * (actor->switches + 1),
         "D: the clock is read %" PRIu64 " times for %u requests, interrupted %" PRIu64 " times",
         actor->readings, count, actor->switches);
    if (verdicts == NULL) {
        for (unsigned i = 0; i < count; i++)
            ledger_untold(&asked[i]);
        return;
    }
    verdicts_check(actor, asked, verdicts, count, whole);
    if (actor->function != F_GROUPS && (whole || count == 1))
        waits_check(actor, asked, verdicts, count);
    for (unsigned i = 0; i < count; i++)
        if (verdicts[i].granted != 0 && !actor->reads)
            actor->taken[actor->taken_count++ % TAKEN_MAX] =
                (struct taken){asked[i], verdicts[i], verdicts[i]};
}

static void call_one(struct actor *actor) {
    const enum function function = actor->function;
    struct asked asked = ask_draw(actor, false);
    BOXED(struct stint_verdict, 1);
    const bool told = !chance(actor, 10);
    if (function == F_TAKE) {
        asked.request.limit = asked.request.flags = asked.request.burst = 0;
        asked.request.reserved = 0;
        asked.senseless = false;
        asked.request.cost %= STINT_LIMIT_MAX;
    }
    ask_enter(actor, &asked);
    call_begin(actor, function, &asked, 1);
    const uint64_t now = now_draw(actor);
    struct stint_verdict *verdict = told ? box.is : NULL;
    const struct stint_request *request = &asked.request;
    const bool allowed = function == F_TAKE ? stint_take(actor->limiter, request->policy,
                                                         request->key, request->cost, now, verdict)
                                            : stint_decide(actor->limiter, request, now, verdict);
    box_check(told ? &box.is[1] : &box.is[0]);
    must(!told || allowed == box.is->allowed, "what is returned is what is told");
    decided(actor, &asked, verdict, 1, false);
}

/* A part of a group, as another part of it: by one more limit of the client. Its refusal may take,
 * mark, or do neither. */
static struct asked part_draw(struct actor *actor, const struct asked *first) {
    static const uint32_t flags[] = {0, STINT_DRAIN, STINT_TENTATIVE, STINT_PEEK};
    struct asked asked = *first;
    asked.name = name_draw(actor);
    asked.request =
        (struct stint_request)STINT_REQUEST(actor->ids[asked.name], world->keys[asked.key],
                                            1 + (uint32_t)random_below(&actor->random, 3));
    asked.request.flags = actor->reads ? STINT_PEEK : flags[random_below(&actor->random, 4)];
    if (is(&world->names[asked.name], A_IN_FLIGHT) || is(&world->names[asked.name], A_STRIPES))
        asked.request.flags &= ~(uint32_t)STINT_DRAIN;
    asked.senseless = false;
    return asked;
}

/* Whether the part of this number is of a key and policy that one before it is of. */
static bool asked_twice(const struct asked *asked, unsigned part) {
    for (unsigned i = 0; i < part; i++)
        if (asked[i].name == asked[part].name && asked[i].key == asked[part].key)
            return true;
    return false;
}

static unsigned asks_draw(struct actor *actor, struct asked *asked, bool of_group) {
    const bool alike = of_group && chance(actor, 2);
    unsigned count = alike ? 2 + (unsigned)random_below(&actor->random, 2)
                           : (unsigned)random_below(&actor->random, ASKED_MAX / 2 + 1);
    const unsigned same_key = key_draw(actor);
    for (unsigned i = 0; i < count; i++) {
        asked[i] = ask_draw(actor, of_group);
        if (of_group && !chance(actor, 3)) { /* as the several limits of one client are */
            asked[i].key = same_key;
            asked[i].request.key = world->keys[same_key];
        }
        if (alike)
            asked[i] = part_draw(actor, &asked[0]);
        if (of_group && asked_twice(asked, i) && !chance(actor, 8))
            count = i; /* without it */
        else
            ask_enter(actor, &asked[i]);
    }
    return count;
}

static void requests_of(const struct asked *asked, unsigned count, struct stint_request *requests) {
    for (unsigned i = 0; i < count; i++)
        requests[i] = asked[i].request;
}

/* What a look tells of each part's key now: how much was used. */
static void looks_aside(struct actor *actor, const struct asked *asked, unsigned count,
                        uint64_t now, struct stint_verdict *looks) {
    for (unsigned i = 0; i < count; i++) {
        struct stint_request look = asked[i].request;
        look.cost = look.limit = 0;
        look.flags = STINT_PEEK;
        looks[i] = look_aside(actor, &look, now);
    }
}

/* Of a batch, or of one group. */
static void call_several(struct actor *actor) {
    const enum function function = actor->function;
    struct asked asked[ASKED_MAX] = {0};
    struct stint_request requests[ASKED_MAX];
    BOXED(struct stint_verdict, ASKED_MAX);
    struct stint_verdict before[ASKED_MAX], after[ASKED_MAX];
    const bool whole = function == F_ALL;
    const unsigned count = asks_draw(actor, asked, whole);
    const bool told = !chance(actor, 8);
    const struct stint_request *first = count == 0 ? NULL : requests;
    struct stint_verdict *verdicts = told ? box.is : NULL;
    requests_of(asked, count, requests);
    call_begin(actor, function, asked, count);
    const uint64_t now = now_draw(actor);
    if (whole)
        looks_aside(actor, asked, count, now, before);
    const size_t allowed = whole ? stint_decide_all(actor->limiter, first, count, now, verdicts)
                                 : stint_decide_batch(actor->limiter, first, count, now, verdicts);
    size_t found = 0;
    box_check(told ? &box.is[count] : &box.is[0]);
    for (unsigned i = 0; i < count && told; i++)
        found += box.is[i].allowed;
    must(!told || allowed == (whole ? found == count : found), "as many as were allowed");
    decided(actor, asked, verdicts, count, whole);
    if (whole && told && allowed == 0) {
        looks_aside(actor, asked, count, now, after);
        group_back_check(actor, asked, verdicts, before, after, count);
    }
}

/* What all parts of a group share. */
static bool group_check(struct actor *actor, const struct asked *asked,
                        const struct stint_verdict *verdicts, unsigned count) {
    bool all = true;
    for (unsigned i = 0; i < count; i++)
        all &= verdicts[i].allowed;
    decided(actor, asked, verdicts, count, true);
    return all;
}

static void call_groups(struct actor *actor) {
    struct asked asked[ASKED_MAX];
    struct stint_request requests[ASKED_MAX];
    BOXED(struct stint_verdict, ASKED_MAX);
    size_t sizes[3], begin = 0, right = 0, allowed = 0;
    const unsigned count = asks_draw(actor, asked, true);
    requests_of(asked, count, requests);
    sizes[0] = random_below(&actor->random, count + 1);
    sizes[1] = random_below(&actor->random, count + 1 - sizes[0]);
    sizes[2] = count - sizes[0] - sizes[1];
    if (chance(actor, 10)) { /* too many, or too few */
        size_t *wrong = &sizes[random_below(&actor->random, 3)];
        *wrong = *wrong > 0 && chance(actor, 2) ? *wrong - 1
                                                : *wrong + 1 + random_below(&actor->random, 100);
    }
    for (; right < 3 && sizes[right] <= count - begin; right++)
        begin += sizes[right];
    for (size_t i = begin; i < count; i++)
        asked[i].senseless = true;
    call_begin(actor, F_GROUPS, asked, count);
    const size_t told =
        stint_decide_groups(actor->limiter, requests, count, sizes, 3, now_draw(actor), box.is);
    box_check(&box.is[count]);
    begin = 0;
    for (size_t i = 0; i < right; begin += sizes[i++])
        allowed += group_check(actor, asked + begin, box.is + begin, (unsigned)sizes[i]);
    group_check(actor, asked + begin, box.is + begin, (unsigned)(count - begin));
    if (right > 0)
        waits_check(actor, asked + begin - sizes[right - 1], box.is + begin - sizes[right - 1],
                    (unsigned)sizes[right - 1]);
    must(allowed == told, "as many groups as were allowed: %zu, %zu", allowed, told);
}

/* ---- Giving back, and forgetting ------------------------------------------------------------- */

static void call_refund(struct actor *actor) {
    struct taken *taken =
        actor->taken_count == 0
            ? NULL
            : &actor->taken[random_below(&actor->random, actor->taken_count) % TAKEN_MAX];
    if (taken == NULL || taken->left.granted == 0) {
        struct asked none = ask_draw(actor, false);
        struct stint_verdict nothing = {.policy = none.request.policy, .granted = 3};
        call_begin(actor, F_REFUND, &none, 0);
        must(stint_refund(actor->limiter, none.request.key, &nothing, 3) == 0,
             "a window of 0 gives nothing back");
        return;
    }
    const uint32_t tokens = 1 + (uint32_t)random_below(&actor->random, taken->left.granted);
    const struct taken given = *taken;
    call_begin(actor, F_REFUND, &given.asked, 1);
    ledger_refund_begins(&given, tokens);
    const uint32_t back =
        stint_refund(actor->limiter, given.asked.request.key, &taken->left, tokens);
    trace(actor, "  %c key %u: %u of %u tokens of %" PRIu64, 'a' + given.asked.name,
          given.asked.key, back, tokens, given.verdict.window);
    must(!actor->reads || back == 0, "a reader gives nothing back");
    must(taken->left.granted == (back != 0 ? given.left.granted - back : 0),
         "%u are left of %u tokens, of which %u were given back", taken->left.granted,
         given.left.granted, back);
    ledger_refunded(actor, &given, tokens, back);
}

static void call_refund_all(struct actor *actor) {
    struct stint_request requests[TAKEN_MAX];
    struct stint_verdict verdicts[TAKEN_MAX];
    struct asked asked[TAKEN_MAX] = {0};
    struct taken given[TAKEN_MAX];
    unsigned count = 0;
    for (unsigned i = 0; i < TAKEN_MAX && i < actor->taken_count; i++) {
        struct taken *taken = &actor->taken[i];
        if (taken->left.granted == 0 || chance(actor, 2))
            continue;
        given[count] = *taken;
        verdicts[count] = taken->left;
        asked[count] = taken->asked;
        requests[count++] = taken->asked.request;
        taken->left.granted = 0;
    }
    call_begin(actor, F_REFUND_ALL, asked, count);
    uint64_t most = 0;
    for (unsigned i = 0; i < count; i++) {
        ledger_refund_begins(&given[i], verdicts[i].granted);
        most += verdicts[i].granted;
    }
    const uint64_t back = stint_refund_all(actor->limiter, requests, verdicts, count);
    trace(actor, "  %" PRIu64 " of %" PRIu64 " tokens, %u parts", back, most, count);
    must(back <= most && (!actor->reads || back == 0), "more was given back than told to");
    ledger_refunded_all(actor, given, count, back, most);
}

static void call_reset(struct actor *actor) {
    const unsigned name = name_draw(actor), key = key_draw(actor);
    const struct asked asked = {name, key, STINT_REQUEST(0, world->keys[key], 0), false};
    call_begin(actor, F_RESET, &asked, 1);
    if (!actor->reads)
        ledger_reset_begins(name, key);
    const bool reset = stint_reset(actor->limiter, actor->ids[name], world->keys[key]);
    trace(actor, "  %c key %u: %d", 'a' + name, key, reset);
    must(!actor->reads || !reset, "a reader resets nothing");
    if (!actor->reads)
        ledger_reset_ends(actor, name, key, reset);
}

static void call_override(struct actor *actor) {
    const unsigned name = name_draw(actor), key = key_draw(actor);
    const struct asked asked = {name, key, STINT_REQUEST(0, world->keys[key], 0), false};
    struct named *named = &world->names[name];
    static const uint32_t limits[] = {0, 1, 3, 9, STINT_LIMIT_MAX};
    const uint32_t limit = limits[random_below(&actor->random, 5)];
    static const uint64_t spans[] = {30 * MS, SECOND, MINUTE, DAY, 20 * DAY};
    const uint64_t until = world->time + spans[random_below(&actor->random, 5)];
    const uint64_t change = actor->reads ? 0 : override_begins(name, key);
    if (limit != STINT_LIMIT_MAX && limit != 0)
        named_limit(named, limit);
    call_begin(actor, F_OVERRIDE, &asked, 1);
    const int result =
        stint_override(actor->limiter, actor->ids[name], world->keys[key], limit, until);
    trace(actor, "  %c key %u: limit %u until %" PRIu64, 'a' + name, key, limit, until);
    check(actor, result, EINVAL, ENOENT, ENOSPC, EROFS);
    must(result != -EINVAL || !named->overridable || until <= world->time + (uint64_t)actor->skew,
         "a policy with overrides has them while it is replaced");
    must(!actor->reads || result == -EROFS, "a reader sets no override");
    must(actor->reads || result != -ENOSPC || !world->roomy, "an override finds no slot");
    if (!actor->reads)
        override_ends(actor, &asked, change, result == 0 ? OVERRIDE_SET : OVERRIDE_UNKNOWN, limit,
                      until);
}

static void call_override_get(struct actor *actor) {
    const unsigned name = name_draw(actor), key = key_draw(actor);
    const struct asked asked = {name, key, STINT_REQUEST(0, world->keys[key], 0), false};
    BOXED(uint64_t, 1);
    uint32_t limit = 77;
    call_begin(actor, F_OVERRIDE_GET, &asked, 1);
    const int result =
        stint_override_get(actor->limiter, actor->ids[name], world->keys[key], &limit, &box.is[0]);
    check(actor, result, EINVAL, ENOENT);
    box_check(result == 0 ? &box.is[1] : &box.is[0]);
    must(result == 0 || limit == 77, "written without success");
    override_got(actor, name, key, result, limit, box.is[0]);
}

static void call_override_clear(struct actor *actor) {
    const unsigned name = name_draw(actor), key = key_draw(actor);
    const struct asked asked = {name, key, STINT_REQUEST(0, world->keys[key], 0), false};
    const uint64_t change = actor->reads ? 0 : override_begins(name, key);
    call_begin(actor, F_OVERRIDE_CLEAR, &asked, 1);
    const int result = stint_override_clear(actor->limiter, actor->ids[name], world->keys[key]);
    trace(actor, "  %c key %u", 'a' + name, key);
    check(actor, result, EINVAL, ENOENT, EROFS);
    if (!actor->reads)
        override_ends(actor, &asked, change, result == 0 ? OVERRIDE_NONE : OVERRIDE_UNKNOWN, 0, 0);
}

/* ---- Policies -------------------------------------------------------------------------------- */

static void call_add(struct actor *actor) {
    const unsigned name = name_draw(actor);
    struct named *named = &world->names[name];
    const bool there = named->since != 0 && !named->moved;
    const bool other = there && chance(actor, 3);
    struct stint_policy policy = named->policy;
    uint32_t id = UINT32_MAX;
    if (other)
        policy = policy_draw(&actor->random, name);
    actor->adding = policy;
    call_begin(actor, F_ADD, NULL, 0);
    if (!other && !actor->reads && (named->moved || named->generations == 0))
        named_new(named, &policy);
    const int result = stint_policy_add(actor->limiter, &policy, &id);
    trace(actor, "  %c: id %u", 'a' + name, id);
    check(actor, result, EEXIST, ENOSPC, EROFS);
    must((result == 0) == (id != UINT32_MAX), "an id is written on success only");
    must(result != 0 || !other || named->moved ||
             memcmp(&policy, &named->policy, sizeof policy) == 0,
         "two policies of a name");
    if (result == 0)
        actor->ids[name] = id;
    call_end(actor);
    if (result == 0 && named->since == 0)
        named->since = world->stamp;
}

static void call_change(struct actor *actor) {
    const bool checks = actor->function == F_CHANGE_CHECK;
    const unsigned name = name_draw(actor);
    struct named *named = &world->names[name];
    struct stint_policy policy = policy_vary(&actor->random, &named->policy);
    call_begin(actor, actor->function, NULL, 0);
    if (!checks && !actor->reads) {
        named_moves(named);
        named_changes(named, &policy);
    }
    const uint32_t id = actor->ids[name];
    const int result = checks ? stint_policy_change_check(actor->limiter, id, &policy)
                              : stint_policy_change(actor->limiter, id, &policy);
    trace(actor, "  %c: limit %u", 'a' + name, policy.limit);
    check(actor, result, EINVAL, ENOENT, ENOSPC, EROFS);
    if (!checks && result == 0) {
        named->policy = policy;
        bool alone = true;
        foreach (actor, other)
            alone &= other == actor || !other->calling || other->function < F_ADD ||
                     other->function > F_APPLY;
        named->sober &= !alone || (policy.flags & STINT_SHADOW) == 0;
    }
}

static void call_remove(struct actor *actor) {
    const unsigned name = name_draw(actor);
    call_begin(actor, F_REMOVE, NULL, 0);
    if (!actor->reads)
        named_moves(&world->names[name]);
    const int result = stint_policy_remove(actor->limiter, actor->ids[name]);
    trace(actor, "  %c", 'a' + name);
    check(actor, result, EINVAL, ENOENT, EROFS);
}

/* A line for a name: as it is, changed, another policy, or one that it was. Returns its end in the
 * text. */
static char *line_write(struct actor *actor, unsigned name, bool dry, char *text, size_t room) {
    struct named *named = &world->names[name];
    struct stint_policy policy = named->policy;
    const unsigned how = (unsigned)random_below(&actor->random, named->before.size == 0 ? 3 : 5);
    if (how == 1)
        policy = policy_vary(&actor->random, &policy);
    if (how == 2)
        policy = policy_draw(&actor->random, name);
    if (how > 2)
        policy = named->before;
    if (!dry) {
        if (how > 1)
            named->before = named->policy;
        if (how != 0 || named->since == 0)
            named_moves(named);
        named_new(named, &policy);
        named->policy = policy;
    }
    const int length = stint_policy_format(&policy, text, room);
    must(length > 0 && (size_t)length + 2 < room, "a policy has no text: %s", stint_reason());
    strcpy(text + length, chance(actor, 2) ? "\n" : " # why\n");
    return text + strlen(text);
}

struct told {
    struct actor *actor;
    unsigned count;
};

static void apply_told(void *context, const struct stint_change *change) {
    struct told *told = context;
    const unsigned name = (unsigned)(change->name[0] - 'a');
    told->count++;
    trace(told->actor, "  %s: kind %u, id %u, was %s, is %s, %" PRIu64 " decided", change->name,
          change->kind, change->id, change->was != NULL ? change->was : "none",
          change->text != NULL ? change->text : "none", change->decided);
    must(name < world->name_count || strcmp(change->name, "filler") == 0,
         "a name that nobody gave");
    must((change->text == NULL) == (change->kind == STINT_POLICY_REMOVED) &&
             (change->was == NULL) == (change->kind == STINT_POLICY_ADDED),
         "what is told of a change");
}

/* A file that was cut to nothing takes no policy away. */
static void call_apply_nothing(struct actor *actor) {
    static const char *const texts[] = {"", "\n \n", "# none\n"};
    const uint32_t flags = STINT_PRUNE | (chance(actor, 4) ? (uint32_t)STINT_DRY_RUN : 0);
    call_begin(actor, F_APPLY, NULL, 0);
    const int result = stint_policies_apply(actor->limiter, texts[random_below(&actor->random, 3)],
                                            flags, NULL, NULL, NULL);
    check(actor, result, EINVAL, EROFS);
    must(result != 0, "a text without a policy is applied");
}

static void call_apply(struct actor *actor) {
    char text[2048], *end = text;
    const uint32_t flags = STINT_DRY_RUN * (uint32_t)random_below(&actor->random, 4);
    const bool dry = (flags & STINT_DRY_RUN) != 0 || actor->reads;
    const char *wrong_at = NULL;
    struct told told = {actor, 0};
    uint32_t names = 0;
    if (chance(actor, 8)) {
        call_apply_nothing(actor);
        return;
    }
    call_begin(actor, F_APPLY, NULL, 0);
    for (unsigned lines = 1 + (unsigned)random_below(&actor->random, 3); lines > 0; lines--) {
        const unsigned name = name_draw(actor);
        if ((names >> name & 1) == 0)
            end = line_write(actor, name, dry, end, (size_t)(text + sizeof text - end));
        names |= UINT32_C(1) << name;
    }
    for (unsigned name = 0; name < world->name_count && !dry; name++)
        if ((flags & STINT_PRUNE) != 0 && (names >> name & 1) == 0)
            named_moves(&world->names[name]);
    trace(actor, "  %#x %s", flags, text);
    const int result =
        stint_policies_apply(actor->limiter, text, flags, &wrong_at, apply_told, &told);
    check(actor, result, EINVAL, ENOSPC, EROFS);
    must(result == 0 || told.count == 0, "an error, and changes are told");
    must(result != -EINVAL, "a text of policies: %s", stint_reason());
    call_end(actor);
    if (result == 0)
        actor_find(actor);
}

void actor_find(struct actor *actor) {
    for (unsigned name = 0; name < world->name_count; name++) {
        const char text[] = {(char)('a' + name), '\0'};
        uint32_t id = UINT32_MAX;
        call_begin(actor, F_FIND, NULL, 0);
        const int result = stint_policy_find(actor->limiter, text, &id);
        check(actor, result, ENOENT);
        must((result == 0) == (id != UINT32_MAX), "an id is written on success only");
        must(result == 0 || world->names[name].moved || world->names[name].since == 0 ||
                 world->names[name].since > actor->began || actor->stale,
             "policy %s is not found", text);
        actor->ids[name] = id;
        call_end(actor);
    }
}

static void call_get(struct actor *actor) {
    const unsigned name = name_draw(actor);
    const struct named *named = &world->names[name];
    BOXED(struct stint_policy, 1);
    /* As the first version had it, or as this one has. */
    const size_t least = offsetof(struct stint_policy, calendar) + sizeof named->policy.calendar;
    const size_t size = chance(actor, 4) ? least : sizeof box.is[0];
    memset(box.is, 0, size);
    box.is[0].size = size;
    call_begin(actor, F_GET, NULL, 0);
    const int result = stint_policy_get(actor->limiter, actor->ids[name], &box.is[0]);
    check(actor, result, ENOENT);
    box_check((const char *)box.is + size);
    if (result == 0 && size == sizeof box.is[0]) {
        /* One who reads may have it from before somebody had the table alone. */
        must(actor->reads || box.is[0].name[0] == 'a' + (char)name, "another policy's name");
        must(named->moved || actor->stale ||
                 policy_features(&box.is[0]) == policy_features(&named->policy),
             "policy %c is not what was added", 'a' + name);
    }
}

/* ---- Watching -------------------------------------------------------------------------------- */

static void call_stats(struct actor *actor) {
    static const size_t offsets[] = {
        offsetof(struct stint_stats, placed),       offsetof(struct stint_stats, untracked),
        offsetof(struct stint_stats, replaced),     offsetof(struct stint_stats, clock_steps),
        offsetof(struct stint_stats, stray_tokens), offsetof(struct stint_stats, unknown_policy),
        offsetof(struct stint_stats, resets),       offsetof(struct stint_stats, bad_requests)};
    BOXED(struct stint_stats, 1);
    const struct stint_stats before = world->counted;
    box.is[0] = (struct stint_stats)STINT_STATS_INIT;
    call_begin(actor, F_STATS, NULL, 0);
    const int result = stint_stats_get(actor->limiter, &box.is[0]);
    check(actor, result, EINVAL);
    box_check(&box.is[1]);
    must(result == 0, "stats");
    for (unsigned i = 0; i < sizeof offsets / sizeof *offsets && !actor->stale; i++) {
        uint64_t *seen = (uint64_t *)(void *)((char *)&world->counted + offsets[i]);
        uint64_t was, is;
        memcpy(&was, (const char *)&before + offsets[i], sizeof was);
        memcpy(&is, (const char *)&box.is[0] + offsets[i], sizeof is);
        must(is >= was, "a count of the table fell: field at %zu, %" PRIu64 " to %" PRIu64,
             offsets[i], was, is);
        *seen = *seen < is ? is : *seen;
    }
    must(box.is[0].used <= box.is[0].slots && box.is[0].live <= box.is[0].used, "stats of slots");
}

static void call_policy_stats(struct actor *actor) {
    const unsigned name = name_draw(actor);
    BOXED(struct stint_policy_stats, 1);
    box.is[0] = (struct stint_policy_stats)STINT_POLICY_STATS_INIT;
    call_begin(actor, F_POLICY_STATS, NULL, 0);
    const struct stint_policy_stats least = world->names[name].counted;
    const int result = stint_policy_stats_get(actor->limiter, actor->ids[name], &box.is[0]);
    check(actor, result, ENOENT);
    box_check(&box.is[1]);
    if (result == 0 && !world->names[name].moved && !actor->stale)
        must(box.is[0].allowed >= least.allowed && box.is[0].refused >= least.refused &&
                 box.is[0].charged >= least.charged && box.is[0].refunded >= least.refunded,
             "statistics of policy %c lack what was told before", 'a' + name);
}

struct told_entries {
    struct actor *actor;
    unsigned left, count;
};

static bool each_told(void *context, const struct stint_entry *entry) {
    struct told_entries *told = context;
    told->count++;
    must(entry->label == NULL || entry->label_length <= STINT_LABEL_SIZE, "a label's length");
    must(entry->label == NULL || memcmp(entry->label, "labellabellabel", entry->label_length) == 0,
         "a torn label");
    must(entry->reserved[0] == 0 && (entry->flags & ~UINT32_C(255)) == 0,
         "an entry has what is reserved");
    uint32_t features = 0; /* its policy may be another's by now */
    for (unsigned name = 0; name < world->name_count; name++)
        features |= world->names[name].features;
    must(entry->end % STINT_TICK_NS == 0 || (features >> A_BURST & 1) != 0,
         "an entry's window ends with a tick");
    return --told->left > 0;
}

static void call_each(struct actor *actor) {
    const bool all = actor->function == F_EACH;
    const unsigned key = all ? 0 : key_draw(actor);
    struct told_entries told = {actor, chance(actor, 2) ? 3 : UINT32_MAX, 0};
    call_begin(actor, actor->function, NULL, 0);
    const int result = all ? stint_each(actor->limiter, each_told, &told)
                           : stint_each_of(actor->limiter, world->keys[key], each_told, &told);
    trace(actor, "  %u entries", told.count);
    check(actor, result, EINVAL);
}

static void call_metrics(struct actor *actor) {
    static const char *const labels[] = {"table", "world", NULL};
    struct stint_metrics_options options = STINT_METRICS_OPTIONS_INIT;
    BOXED(char, 4096);
    options.labels = chance(actor, 2) ? labels : NULL;
    options.flags = STINT_METRICS_NO_EOF * (uint32_t)random_below(&actor->random, 4);
    const size_t size = random_below(&actor->random, sizeof box.is);
    call_begin(actor, F_METRICS, NULL, 0);
    const int length =
        stint_metrics(actor->limiter, chance(actor, 3) ? NULL : &options, box.is, size);
    must(length > 0, "metrics: %s", stint_reason());
    box_check(&box.is[size]);
    must(size == 0 || memchr(box.is, '\0', size) != NULL, "metrics have an end");
}

static void call_headers(struct actor *actor) {
    struct stint_verdict verdicts[TAKEN_MAX];
    BOXED(char, 1024);
    unsigned count = 0;
    for (; count < TAKEN_MAX && count < actor->taken_count; count++)
        verdicts[count] = actor->taken[count].verdict;
    const size_t size = random_below(&actor->random, sizeof box.is);
    call_begin(actor, F_HEADERS, NULL, 0);
    must(stint_tightest(verdicts, count) < (count == 0 ? 1 : count), "tightest");
    const int length = stint_headers(
        actor->limiter, STINT_HEADERS_DRAFT * (uint32_t)random_below(&actor->random, 4), verdicts,
        count, box.is, size);
    check(actor, length, 0);
    box_check(length >= 0 ? &box.is[size] : &box.is[0]);
    must(length <= 0 || size == 0 || memchr(box.is, '\0', size) != NULL, "headers have an end");
}

static void call_label(struct actor *actor) {
    const unsigned key = key_draw(actor);
    call_begin(actor, F_LABEL, NULL, 0);
    const int result = stint_label(actor->limiter, world->keys[key], "labellabellabel",
                                   random_below(&actor->random, 16));
    check(actor, result, ENOENT, EROFS);
    must(result != -ENOENT || world->options.labels == 0, "there are labels");
    must(!actor->reads || result != 0, "a reader names nobody");
}

/* ---- What touches no count ------------------------------------------------------------------- */

static void call_key(struct actor *actor) {
    const unsigned key = key_draw(actor);
    const struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(key)};
    call_begin(actor, F_KEY, NULL, 0);
    const stint_key made = stint_key_of(actor->limiter, &key, sizeof key);
    must(key == 0 || stint_key_equal(made, world->keys[key]), "a key is another by another handle");
    must(made.hash != STINT_KEY_GLOBAL_HASH &&
             stint_key_join(actor->limiter, made, "x", 1).hash != STINT_KEY_GLOBAL_HASH &&
             stint_key_address(actor->limiter, (const struct sockaddr *)&address, 24, 0).hash !=
                 STINT_KEY_GLOBAL_HASH,
         "the global key is nobody's");
}

static void call_now(struct actor *actor) {
    call_begin(actor, F_NOW, NULL, 0);
    const uint64_t now = stint_now(actor->limiter);
    must(actor->readings == 1 && now >= world->first - 400 * DAY, "now");
}

static void call_prefetch(struct actor *actor) {
    call_begin(actor, F_PREFETCH, NULL, 0);
    stint_prefetch(actor->limiter, world->keys[key_draw(actor)]);
}

static void call_texts(struct actor *actor) {
    const struct stint_policy policy = policy_draw(&actor->random, 0);
    struct stint_policy parsed = STINT_POLICY_INIT;
    char text[256];
    const char *at = NULL;
    call_begin(actor, F_TEXTS, NULL, 0);
    must(stint_policy_format(&policy, text, sizeof text) > 0, "features %#x: %s",
         policy_features(&policy), stint_reason());
    must(stint_policy_parse(text, &parsed, &at) == 0, "%s: %s", text, stint_reason());
    must(memcmp(&parsed, &policy, sizeof policy) == 0, "%s is another policy", text);
    must(stint_memory_size(&world->options) != 0 && stint_version()[0] != '\0', "memory_size");
}

/* ---- Opening --------------------------------------------------------------------------------- */

/* Whoever opens a table alone may give an id away that one who only reads still holds. */
static void readers_outlived(const struct actor *actor) {
    foreach (actor, other)
        if (other != actor && other->limiter != NULL && !other->reads)
            return;
    foreach (actor, other)
        other->stale |= other->limiter != NULL && other->reads;
}

int actor_open(struct actor *actor, enum function function) {
    struct stint_options options = world->options;
    struct stint_limiter *limiter = NULL;
    const uint64_t resized = world->resized;
    int result;
    if (function == F_ATTACH || function == F_READER)
        options.max_entries = options.shards = options.max_policies = options.labels = 0;
    if (function == F_READER)
        options.flags |= STINT_READ_ONLY;
    actor->stale = false;
    call_begin(actor, function, NULL, 0);
    if (function == F_OPEN_IN)
        result = stint_open_in(&options, world->memory, world->size, &limiter);
    else if (function == F_OPEN)
        result = stint_open(&options, &limiter);
    else
        result = stint_attach(&options, &limiter);
    /* The shape may be an older one; and whoever resizes has it for himself. */
    if (world->resized != resized || (result == -EBUSY && world->place == IN_FILE))
        check(actor, result, EPROTO, EBUSY);
    else
        check(actor, result, 0);
    must((result == 0) == (limiter != NULL), "a limiter is written on success only");
    call_end(actor);
    actor->limiter = limiter;
    actor->reads = function == F_READER;
    if (result == 0 && !actor->reads)
        readers_outlived(actor);
    if (result == 0)
        actor_find(actor);
    return result;
}

void actor_close(struct actor *actor) {
    struct stint_limiter *limiter = actor->limiter;
    call_begin(actor, F_CLOSE, NULL, 0);
    actor->limiter = NULL;
    stint_close(limiter);
    call_end(actor);
    actor->reads = actor->stale = false;
}

static void call_close(struct actor *actor) {
    if (world->place != IN_PRIVATE && chance(actor, 3))
        actor_close(actor);
}

static void call_resize(struct actor *actor) {
    struct stint_options options = STINT_OPTIONS_INIT;
    if (world->place != IN_FILE)
        return;
    options.clock = world->options.clock;
    const bool reshapes = chance(actor, 3);
    if (reshapes)
        options.max_entries = world->options.max_entries + random_below(&actor->random, 100);
    call_begin(actor, F_RESIZE, NULL, 0);
    world->resized += reshapes;
    world->watermarked = true;
    const int result = stint_resize(world->path, &options);
    check(actor, result, EBUSY, ENOSPC);
    must(result != -ENOSPC || !world->roomy, "no room: %s", stint_reason());
    if (result == 0) {
        if (reshapes)
            world->options.max_entries = options.max_entries;
        world->resized += reshapes;
        for (unsigned i = 0; i < world->actor_count; i++) { /* one who reads takes no lock */
            struct actor *other = &world->actors[i];
            other->stale =
                other->limiter != NULL || (other->calling && other->function == F_READER);
        }
    }
}

/* One that has no handle can open, resize, and what needs none. */
static void call_without(struct actor *actor) {
    static const enum function of_file[] = {F_OPEN, F_ATTACH, F_READER, F_RESIZE, F_TEXTS};
    const enum function function =
        world->place == IN_FILE ? of_file[random_below(&actor->random, 5)] : F_OPEN_IN;
    if (function == F_RESIZE)
        call_resize(actor);
    else if (function == F_TEXTS)
        call_texts(actor);
    else
        (void)actor_open(actor, function);
}

/* Of those that are in use, most often one that takes. */
static enum function function_draw(struct actor *actor) {
    enum function function = chance(actor, 4) ? F_ALL : F_TAKE;
    if (!chance(actor, 3) || (world->functions >> function & 1) == 0)
        do
            function = (enum function)random_below(&actor->random, FUNCTIONS_END);
        while ((world->functions >> function & 1) == 0);
    return function;
}

void actor_call(struct actor *actor) {
    static void (*const calls[])(struct actor *) = {
#define FUNCTION(name, text, call) call,
        FUNCTIONS(FUNCTION)
#undef FUNCTION
    };
    if (actor->limiter == NULL)
        call_without(actor);
    else
        calls[actor->function = function_draw(actor)](actor);
    if (actor->calling)
        call_end(actor);
}
