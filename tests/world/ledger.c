/* SPDX-License-Identifier: MIT
 * What must hold of answers: what stint.h says of one verdict by itself, and what a ledger of all
 * verdicts says of the next. What was granted is written down late and what was given back early,
 * so that the ledger never says more than the table (A); and the other way round to judge refusals
 * (B). What a world's events leave open is not judged. */
#include <string.h>

#include "world.h"

enum { ENTRIES_MAX = 8192, MOVES_MAX = 4096, ENDLESS = 1 << 30 };

/* A window of a key by a name. */
struct entry {
    unsigned name, key;
    uint64_t window;
    uint64_t granted, charged; /* by calls that have ended */
    uint64_t refunded;         /* by calls that have begun */
    uint64_t refund_stamp;     /* when the last one ended */
    unsigned first_refusals, refused;
    uint64_t endless;     /* granted by an override that never refuses, and perhaps not counted */
    unsigned vague, full; /* it was reset; a request emptied the key */
};

/* What a call told of the instant at which a key's bucket is full. */
struct move {
    unsigned name, key;
    bool counts, back;      /* tokens were granted, or given back */
    uint64_t now, full;     /* decided by; the instant then; 0: it was full */
    uint64_t began, ended;  /* stamps */
    uint64_t tokens, token; /* of so many ns each at most */
};

/* Of a key by a name. */
struct of_key {
    uint64_t dead;      /* tokens that those who died may have taken */
    bool given_by_dead; /* or given back */
    uint64_t strikes;   /* refusals that may ban it: by no shadow */
    unsigned resets;
    unsigned resetting;   /* of these, how many are under way */
    uint64_t reset_stamp; /* when the last one began, or ended; UINT64_MAX: it never did */
    enum override_state override;
    uint32_t limit;
    uint64_t until;
    uint64_t stamp;    /* since when that is known */
    unsigned changing; /* calls that set or clear it */
    uint64_t changes;
};

static struct books {
    struct entry entries[ENTRIES_MAX];
    struct move moves[MOVES_MAX];
    unsigned entry_count, move_count;
    struct of_key keys[NAMES_MAX][KEYS_MAX];
} * books;

void ledger_begin(void) {
    books = shared_memory(sizeof *books);
}

static bool is(const struct named *named, enum feature feature) {
    return named->features >> feature & 1;
}

static struct entry *entry_of(unsigned name, unsigned key, uint64_t window) {
    for (unsigned i = books->entry_count; i-- > 0;)
        if (books->entries[i].name == name && books->entries[i].key == key &&
            books->entries[i].window == window)
            return &books->entries[i];
    must(books->entry_count < ENTRIES_MAX, "the test: no room in the ledger");
    books->entries[books->entry_count] = (struct entry){.name = name, .key = key, .window = window};
    return &books->entries[books->entry_count++];
}

/* ---- One verdict ----------------------------------------------------------------------------- */

static void print_wrong(const char *what, const struct asked *asked,
                        const struct stint_verdict *v) {
    wrong("%s: policy %s, key %u, cost %u, limit %u, flags %#x: %s", what,
          policy_text(&world->names[asked->name].policy), asked->key, asked->request.cost,
          asked->request.limit, asked->request.flags, verdict_text(v));
}
#define holds(condition, what)                                                                     \
    do {                                                                                           \
        if (!(condition))                                                                          \
            print_wrong(what, asked, v);                                                           \
    } while (0)

/* Of a request that was not decided at all. */
static void check_nothing(const struct asked *asked, const struct stint_verdict *v) {
    holds(!v->allowed && v->retry_after == STINT_NEVER && v->capacity == 0 && v->used == 0 &&
              v->remaining == 0 && v->granted == 0 && v->window == 0 && v->reset_after == 0,
          "a request without a policy, or sense, has all else 0");
    holds(v->flags == STINT_UNKNOWN_POLICY || v->flags == STINT_BAD_REQUEST, "one flag");
}

/* Marks that only a policy of that kind gives. */
static void check_marks(const struct asked *asked, const struct stint_verdict *v) {
    const struct named *named = &world->names[asked->name];
    const uint32_t flags = v->flags;
    /* It is among those that may have been strikes. */
    const uint64_t own = (asked->request.flags & (STINT_PEEK | STINT_CHARGE)) != STINT_PEEK;
    holds((flags & STINT_SHADOWED) == 0 || (is(named, A_SHADOW) && v->allowed && v->granted == 0),
          "SHADOWED");
    holds((flags & STINT_BANNED) == 0 || is(named, A_BAN), "BANNED");
    holds((flags & STINT_BANNED) == 0 || v->allowed || (flags & STINT_FIRST_REFUSAL) != 0 ||
              books->keys[asked->name][asked->key].strikes > own,
          "banned for what a shadow let through");
    holds((flags & STINT_OVERRIDDEN) == 0 || is(named, A_OVERRIDES), "OVERRIDDEN");
    holds((flags & STINT_NEAR_LIMIT) == 0 || is(named, A_NEAR), "NEAR_LIMIT");
    holds((flags & STINT_FIRST_REFUSAL) == 0 ||
              ((!v->allowed || (flags & STINT_SHADOWED) != 0) && (flags & STINT_UNTRACKED) == 0 &&
               (asked->request.flags & STINT_TENTATIVE) == 0),
          "FIRST_REFUSAL");
    holds((flags & STINT_REPLACED) == 0 || world->options.on_full == STINT_FULL_REPLACE,
          "REPLACED");
    holds(
        (flags & STINT_UNTRACKED) == 0 ||
            (v->window == 0 && !world->roomy &&
             (!v->allowed || world->options.on_full != STINT_FULL_REFUSE || is(named, A_SHADOW) ||
              is(named, A_STRIPES) || asked->request.flags != 0 || v->capacity == STINT_LIMIT_MAX)),
        "UNTRACKED (G)");
}

/* `whole`: granted 0 may be that of a refused group. */
static void check_numbers(const struct asked *asked, const struct stint_verdict *v, bool whole) {
    const uint32_t asks = asked->request.flags, cost = asked->request.cost;
    const bool shadowed = v->flags & STINT_SHADOWED, untracked = v->flags & STINT_UNTRACKED;
    const bool look = asks & STINT_PEEK, charge = (asks & STINT_CHARGE) != 0 && !look;
    const struct named *named = &world->names[asked->name];

    holds(v->granted <= cost, "no more is granted than asked for");
    holds(!look || v->granted == 0, "a look takes nothing");
    holds(v->allowed || v->granted == 0, "refused: nothing is granted");
    holds(!charge || v->allowed, "a charge is never refused");
    /* A count that is carried, or smooth, takes no more than it can carry. */
    holds(!charge || shadowed || untracked || v->granted == cost || is(named, A_ABOVE) ||
              is(named, A_RESERVED) || is(named, A_SMOOTH) || is(named, A_BURST),
          "a charge is taken whole, or untracked");
    /* A group's parts may have met different overrides of the key, or policies. */
    const bool differ = whole && (named->moved || (v->flags & STINT_OVERRIDDEN) != 0);
    holds(v->allowed || differ || cost <= STINT_LIMIT_MAX || (asks & STINT_PARTIAL) != 0 ||
              v->retry_after == STINT_NEVER,
          "what can never fit is told to wait");
    /* A part may have begun to fit, and an override may be over by now. */
    holds(v->allowed || v->retry_after > 0 || is(named, A_SHADOW) || whole ||
              (v->flags & STINT_OVERRIDDEN) != 0,
          "refused: when to retry");
    holds(!v->allowed || shadowed || v->retry_after == 0 || (asks & STINT_RESERVE) != 0,
          "granted: no time to wait");
    if (v->allowed && !shadowed && !look && !whole && (asks & (STINT_PARTIAL | STINT_CHARGE)) == 0)
        holds(v->granted == cost, "granted is the cost");
    if (untracked || is(named, A_STRIPES))
        return;
    holds(v->remaining == (v->used < v->capacity ? v->capacity - v->used : 0),
          "remaining is capacity less used");
    holds(v->window != 0 && (v->window % STINT_TICK_NS == 0 || is(named, A_BURST)),
          "a window ends with a tick");
    holds(v->used >= v->granted || v->capacity == STINT_LIMIT_MAX, "used has what was granted");
    holds(world->far || (whole && is(named, A_BURST)) ||
              v->reset_after <= named->longest + 2 * MINUTE,
          "reset_after is within a window");
    if (!v->allowed && (v->flags & (STINT_BANNED | STINT_OVERRIDDEN)) == 0 && !named->moved &&
        !whole && (asks & (STINT_PARTIAL | STINT_RESERVE)) == 0)
        holds((uint64_t)v->used + cost > v->capacity, "what fits is not refused (B)");
    if (v->allowed && !shadowed && (asks & (STINT_RESERVE | STINT_CHARGE | STINT_PARTIAL)) == 0 &&
        v->capacity != STINT_LIMIT_MAX && !look && !whole)
        holds(v->used <= v->capacity, "what is granted fits (A)");
}

/* By which limit it was decided. */
static void check_capacity(const struct actor *actor, const struct asked *asked,
                           const struct stint_verdict *v) {
    const struct named *named = &world->names[asked->name];
    const struct of_key *of_key = &books->keys[asked->name][asked->key];
    const struct model_ruling ruling = {.limit = of_key->limit, .until = of_key->until};
    struct model_by by = model_by(&named->policy);
    const bool overridden = v->flags & STINT_OVERRIDDEN;

    if (of_key->override != OVERRIDE_UNKNOWN && of_key->stamp < actor->began && !world->far &&
        !named->moved && !actor->stale) {
        const bool set = of_key->override == OVERRIDE_SET && world->latest < of_key->until;
        holds(!set || overridden, "an override that was set holds");
        by.ruling = &ruling;
        holds(!set || v->capacity == model_capacity(&by, &asked->request) || world->died > 0 ||
                  !world->still,
              "an override's limit is the capacity");
        by.ruling = NULL;
        holds(set || of_key->override == OVERRIDE_SET || !overridden || is(named, A_BAN),
              "nobody set an override");
    }
    if (overridden || named->moved || (v->flags & STINT_BANNED) != 0)
        return;
    holds(v->capacity == model_capacity(&by, &asked->request), "capacity");
}

/* ---- All of them ----------------------------------------------------------------------------- */

/* Tokens that calls of others which are under way may have taken, or taken for a while. */
static uint64_t under_way(const struct actor *actor, const struct asked *asked) {
    uint64_t tokens = books->keys[asked->name][asked->key].dead;
    for (unsigned i = 0; i < world->actor_count; i++) {
        const struct actor *other = &world->actors[i];
        if (other == actor || !other->calling || other->dead)
            continue;
        for (unsigned j = 0; j < other->asked_count; j++)
            if (other->asked[j].name == asked->name && other->asked[j].key == asked->key)
                tokens += (other->asked[j].request.flags & STINT_DRAIN) != 0
                              ? ENDLESS
                              : other->asked[j].request.cost;
    }
    return tokens;
}

/* A group that is refused waits until all parts of a key fit, one after the other: for ever, if
 * together they are more than it can have. */
static void check_together(const struct asked *all, const struct stint_verdict *verdicts,
                           unsigned count, unsigned part) {
    const struct asked *asked = &all[part];
    const struct stint_verdict *v = &verdicts[part];
    const struct named *named = &world->names[asked->name];
    uint64_t costs = 0;
    for (unsigned i = 0; i < count; i++) {
        const struct stint_request *request = &all[i].request;
        if (all[i].name != asked->name || all[i].key != asked->key)
            continue;
        if (all[i].senseless || request->limit != 0 || request->policy != asked->request.policy ||
            (request->flags & (STINT_PEEK | STINT_PARTIAL | STINT_CHARGE)) != 0 ||
            (verdicts[i].flags & (STINT_UNKNOWN_POLICY | STINT_BAD_REQUEST)) != 0)
            return;
        costs += request->cost;
    }
    if (v->allowed || named->moved || (named->features & (1 << A_OVERRIDES)) != 0)
        return;
    holds(costs <= named->largest || v->retry_after == STINT_NEVER,
          "a group that can never fit is told to wait");
}

/* Whether the ledger can say that a refusal was for nothing. */
static bool refusal_judged(const struct named *named, const struct of_key *of_key) {
    return !world->far && !named->moved && !named->charged && of_key->resets == 0 &&
           world->options.on_full != STINT_FULL_REPLACE &&
           !(is(named, A_REFUSED) || is(named, A_STRIPES) || is(named, A_SMOOTH) ||
             is(named, A_IN_FLIGHT) || is(named, A_ABOVE) || is(named, A_RESERVED) ||
             is(named, A_BURST));
}

/* B: it is refused only if it did not fit beside all that may have been counted. `own`: tokens that
 * the parts before it of the same group would have taken. */
static void check_refusal(const struct actor *actor, const struct asked *asked,
                          const struct stint_verdict *v, uint64_t own) {
    const struct named *named = &world->names[asked->name];
    const struct of_key *of_key = &books->keys[asked->name][asked->key];
    /* A part may be refused by an override that is cleared before its verdict is told. */
    const bool cleared = of_key->changing > 0 || of_key->stamp > actor->began;
    if (!refusal_judged(named, of_key) || actor->stale || cleared ||
        (v->flags & (STINT_BANNED | STINT_OVERRIDDEN | STINT_UNTRACKED)) != 0)
        return;
    const struct entry *entry = entry_of(asked->name, asked->key, v->window);
    uint64_t most = entry->granted + under_way(actor, asked) + own;
    if (entry->refund_stamp < actor->began && entry->refunded < most)
        most -= entry->refunded;
    if (!world->still)
        most += world->died + ACTORS_MAX; /* strays */
    const uint64_t cost = (asked->request.flags & STINT_PARTIAL) != 0 && asked->request.cost != 0
                              ? 1
                              : asked->request.cost;
    most += entry->endless;
    holds(entry->vague != 0 || entry->full != 0 || most + cost > v->capacity,
          "refused for nothing (B)");
}

/* A: the ledger never says more than the policy, or what else there was, allows. */
static void check_most(const struct entry *entry) {
    const struct named *named = &world->names[entry->name];
    const uint64_t most = named->largest * named->generations;
    if (world->far || is(named, A_BURST) || entry->vague != 0 ||
        world->options.on_full == STINT_FULL_REPLACE)
        return;
    must(entry->granted <= most + entry->refunded,
         "A: policy %c, key %u, window %" PRIu64 ": %" PRIu64 " granted, %" PRIu64
         " given back, limit %" PRIu64,
         'a' + entry->name, entry->key, entry->window, entry->granted, entry->refunded, most);
}

static void move_enter(const struct move *move) {
    if (!is(&world->names[move->name], A_BURST))
        return;
    must(books->move_count < MOVES_MAX, "the test: no room in the ledger");
    books->moves[books->move_count] = *move;
    books->moves[books->move_count++].ended = ++world->stamp;
}

static void verdict_enter(const struct actor *actor, const struct asked *asked,
                          const struct stint_verdict *v, bool group_refused) {
    const struct named *named = &world->names[asked->name];
    struct of_key *of_key = &books->keys[asked->name][asked->key];
    if ((v->flags & STINT_UNTRACKED) != 0) { /* some stripes may have been emptied */
        of_key->dead += is(named, A_STRIPES) ? ENDLESS : 0;
        return;
    }
    struct entry *entry = entry_of(asked->name, asked->key, v->window);
    entry->vague += of_key->resetting != 0 || of_key->reset_stamp >= actor->began;
    if ((asked->request.flags & STINT_CHARGE) != 0)
        entry->charged += v->granted;
    else if ((v->flags & STINT_OVERRIDDEN) != 0 && v->capacity == STINT_LIMIT_MAX)
        entry->endless += v->granted;
    else
        entry->granted += v->granted;
    const bool own = asked->request.limit != 0, endless = v->capacity == STINT_LIMIT_MAX;
    const bool charged = (asked->request.flags & STINT_CHARGE) != 0;
    /* A part of a refused group is told beside what others would have taken. It may have taken its
     * cost, and given it back, or have emptied the key. */
    of_key->dead += group_refused && (asked->request.flags & STINT_DRAIN) != 0;
    move_enter(&(struct move){.name = asked->name,
                              .key = asked->key,
                              .back = group_refused,
                              .counts = v->granted != 0 && !charged && !endless,
                              .now = v->window - v->reset_after,
                              .full = v->reset_after != 0 ? v->window : 0,
                              .began = actor->began,
                              .tokens = group_refused ? asked->request.cost
                                        : endless     ? 0
                                                      : v->granted,
                              .token = own ? named->policy.window : named->token_most});
    if ((asked->request.flags & STINT_TENTATIVE) == 0)
        entry->refused += !v->allowed || (!group_refused && (v->flags & STINT_SHADOWED) != 0);
    entry->full += (asked->request.flags & STINT_DRAIN) != 0;
    entry->first_refusals += (v->flags & STINT_FIRST_REFUSAL) != 0;
    holds(entry->first_refusals <= 1 || named->moved || world->far || is(named, A_BURST) ||
              world->options.on_full == STINT_FULL_REPLACE,
          "a window's first refusal is told once");
    check_most(entry);
}

static void check_flags(struct actor *actor, const struct asked *asked,
                        const struct stint_verdict *v) {
    static const enum event full[] = {E_ADMIT, E_REFUSE, E_REPLACE};
    holds((v->flags & ~UINT32_C(0x1ff)) == 0 && v->reserved[0] == 0 && v->reserved[1] == 0,
          "unknown flags, or what is reserved");
    if ((v->flags & (STINT_UNTRACKED | STINT_REPLACED)) != 0)
        event_met(actor, full[world->options.on_full]);
}

void verdicts_check(struct actor *actor, const struct asked *all,
                    const struct stint_verdict *verdicts, unsigned count, bool whole) {
    bool refused = false;
    for (unsigned i = 0; i < count; i++)
        refused |= whole && !verdicts[i].allowed;
    for (unsigned i = 0; i < count; i++) {
        const struct asked *asked = &all[i];
        const struct stint_verdict *v = &verdicts[i];
        trace(actor, "  %c key %u cost %u limit %u flags %#x: %s", 'a' + asked->name, asked->key,
              asked->request.cost, asked->request.limit, asked->request.flags, verdict_text(v));
        check_flags(actor, asked, v);
        if ((v->flags & (STINT_UNKNOWN_POLICY | STINT_BAD_REQUEST)) != 0) {
            check_nothing(asked, v);
            const bool held = is(&world->names[asked->name], A_IN_FLIGHT) &&
                              (asked->request.flags & (STINT_DRAIN | STINT_CHARGE)) != 0;
            holds((v->flags & STINT_BAD_REQUEST) == 0 || actor->reads || asked->senseless || held,
                  "a request that makes sense");
            continue;
        }
        holds(!asked->senseless && (!actor->reads || (asked->request.flags &
                                                      (STINT_PEEK | STINT_CHARGE)) == STINT_PEEK),
              "a request that makes no sense, or by a reader, is decided");
        check_marks(asked, v);
        check_numbers(asked, v, whole && refused);
        if (whole)
            check_together(all, verdicts, count, i);
        holds(!(whole && refused) || v->granted == 0, "a refused group is granted nothing");
        check_capacity(actor, asked, v);
        if (actor->stale)
            continue;
        uint64_t own = 0;
        for (unsigned j = 0; j < i && whole; j++)
            if (all[j].name == asked->name && all[j].key == asked->key)
                own += all[j].request.cost;
        /* A part that was refused in one window may be marked in the next. */
        if ((!v->allowed || (v->flags & STINT_SHADOWED) != 0) && (!whole || world->still))
            check_refusal(actor, asked, v, own);
        if (actor->reads)
            continue;
        model_count(&world->names[asked->name].counted, &asked->request, v, refused);
        if ((asked->request.flags & (STINT_PEEK | STINT_CHARGE)) != STINT_PEEK)
            verdict_enter(actor, asked, v, refused);
    }
}

void ledger_refund_begins(const struct taken *taken, uint32_t tokens) {
    struct entry *entry = entry_of(taken->asked.name, taken->asked.key, taken->verdict.window);
    if ((taken->asked.request.flags & STINT_CHARGE) == 0)
        entry->refunded += tokens;
    entry->refund_stamp = UINT64_MAX;
}

void ledger_refunded(const struct actor *actor, const struct taken *taken, uint32_t tokens,
                     uint32_t given) {
    struct entry *entry = entry_of(taken->asked.name, taken->asked.key, taken->verdict.window);
    must(given <= tokens, "more was given back (%u) than told to (%u)", given, tokens);
    must(given == 0 || taken->verdict.window != 0, "given back by a verdict of no window");
    if ((taken->asked.request.flags & STINT_CHARGE) == 0)
        entry->refunded -= tokens - given;
    else
        entry->charged -= entry->charged < given ? entry->charged : given;
    if (books->keys[taken->asked.name][taken->asked.key].resets > 0)
        entry->vague++;
    entry->refund_stamp = ++world->stamp;
    move_enter(&(struct move){.name = taken->asked.name,
                              .key = taken->asked.key,
                              .back = true,
                              .began = actor->began,
                              .tokens = given,
                              .token = world->names[taken->asked.name].token_most});
    world->names[taken->asked.name].counted.refunded += given;
}

void ledger_refunded_all(const struct actor *actor, const struct taken *taken,
                         const struct stint_verdict *verdicts, unsigned count, uint64_t given,
                         uint64_t most) {
    for (unsigned i = 0; i < count; i++) {
        if (given == 0 || given == most) {
            ledger_refunded(actor, &taken[i], verdicts[i].granted,
                            given == 0 ? 0 : verdicts[i].granted);
            continue;
        }
        books->keys[taken[i].asked.name][taken[i].asked.key].given_by_dead = true;
        world->names[taken[i].asked.name].uncounted = true;
    }
}

void ledger_asked(const struct asked *asked) {
    books->keys[asked->name][asked->key].strikes += world->names[asked->name].sober;
}

void ledger_untold(const struct asked *asked) {
    books->keys[asked->name][asked->key].dead +=
        (asked->request.flags & STINT_DRAIN) != 0 ? ENDLESS : asked->request.cost;
    world->names[asked->name].uncounted = true;
}

void ledger_reset(unsigned name, unsigned key, bool begins) {
    books->keys[name][key].resetting += begins ? 1 : -1u;
    books->keys[name][key].resets++;
    books->keys[name][key].reset_stamp = ++world->stamp;
    for (unsigned i = 0; i < books->entry_count; i++)
        books->entries[i].vague += books->entries[i].name == name && books->entries[i].key == key;
}

/* What a call that died in the middle may have done. */
void ledger_dead(const struct actor *actor) {
    for (unsigned i = 0; i < actor->asked_count; i++) {
        const struct asked *asked = &actor->asked[i];
        ledger_untold(asked);
        if (actor->function == F_RESET)
            books->keys[asked->name][asked->key].reset_stamp = UINT64_MAX;
        books->keys[asked->name][asked->key].given_by_dead |=
            actor->function == F_REFUND || actor->function == F_REFUND_ALL;
    }
}

uint64_t override_begins(unsigned name, unsigned key) {
    books->keys[name][key].override = OVERRIDE_UNKNOWN;
    books->keys[name][key].changing++;
    return ++books->keys[name][key].changes;
}

void override_ends(unsigned name, unsigned key, uint64_t change, enum override_state state,
                   uint32_t limit, uint64_t until) {
    struct of_key *of_key = &books->keys[name][key];
    of_key->changing--;
    if (of_key->changing > 0 || of_key->changes != change)
        return;
    of_key->override = state;
    of_key->limit = limit;
    of_key->until = until;
    of_key->stamp = ++world->stamp;
}

void override_got(const struct actor *actor, unsigned name, unsigned key, int result,
                  uint32_t limit, uint64_t until) {
    const struct of_key *of_key = &books->keys[name][key];
    if (of_key->override != OVERRIDE_SET || of_key->stamp > actor->began || world->far ||
        world->names[name].moved || world->latest >= of_key->until || actor->stale ||
        actor->ids[name] == UINT32_MAX)
        return;
    must(result == 0, "an override is not found: policy %c, key %u", 'a' + name, key);
    must(until == (of_key->until + STINT_TICK_NS - 1) / STINT_TICK_NS * STINT_TICK_NS &&
             (limit == of_key->limit || !world->still),
         "an override is another: limit %u until %" PRIu64, limit, until);
}

/* ---- When nobody calls ----------------------------------------------------------------------- */

/* A: in every span from the now of one grant to that of another "at most burst + d * limit /
 * window", but for what was given back beside them. */
static void check_spans(const struct named *named, const struct move *moves, unsigned count) {
    for (unsigned i = 0; i < count; i++)
        for (unsigned j = 0; j < count && moves[i].counts; j++) {
            const uint64_t from = moves[i].now, to = moves[j].now;
            uint64_t granted = 0, back = 0, began = UINT64_MAX, ended = 0;
            for (unsigned k = 0; k < count && moves[j].counts; k++) {
                const struct move *move = &moves[k];
                if (!move->counts || move->now < from || move->now > to)
                    continue;
                granted += move->tokens * named->token_least;
                began = move->began < began ? move->began : began;
                ended = move->ended > ended ? move->ended : ended;
            }
            for (unsigned k = 0; k < count; k++)
                if (moves[k].back && moves[k].began < ended && moves[k].ended > began)
                    back += moves[k].tokens * moves[k].token;
            must(granted <= (named->fills + to - from) * named->generations + back,
                 "A: bucket %c, key %u: %" PRIu64 " ns granted from %" PRIu64 " to %" PRIu64
                 ", %" PRIu64 " given back",
                 'a' + moves[i].name, moves[i].key, granted, from, to, back);
        }
}

/* What is used is what was told of each take, with all that was taken since and less what was given
 * back. `vague`: others may have taken, too. */
static void check_full(const struct named *named, const struct move *moves, unsigned count,
                       uint64_t full, bool vague) {
    uint64_t most = world->latest;
    for (unsigned i = 0; i < count; i++) {
        uint64_t least = moves[i].full, more = moves[i].full + world->counted.stray_tokens;
        if (moves[i].back)
            continue;
        for (unsigned j = 0; j < count; j++) {
            const uint64_t ns = moves[j].tokens * moves[j].token;
            if (moves[j].back)
                least -= moves[j].ended > moves[i].began ? ns : 0;
            else if (moves[j].began > moves[i].ended)
                least += moves[j].tokens * named->token_least;
            if (!moves[j].back && j != i && moves[j].ended > moves[i].began)
                more += ns;
        }
        must((int64_t)(full - least) >= 0 || moves[i].full == 0,
             "A: bucket %c, key %u is full at %" PRIu64 ", not %" PRIu64, 'a' + moves[i].name,
             moves[i].key, full, least);
        most = more > most ? more : most;
    }
    must(vague || full <= most, "B: bucket full at %" PRIu64 ", not %" PRIu64, full, most);
}

static void check_bucket(unsigned name, unsigned key, const struct stint_verdict *v) {
    const struct named *named = &world->names[name];
    const struct of_key *of_key = &books->keys[name][key];
    struct move moves[MOVES_MAX];
    unsigned count = 0;
    if (named->mixed || world->options.on_full == STINT_FULL_REPLACE || of_key->resets > 0 ||
        of_key->given_by_dead)
        return;
    for (unsigned i = 0; i < books->move_count; i++)
        if (books->moves[i].name == name && books->moves[i].key == key)
            moves[count++] = books->moves[i];
    check_spans(named, moves, count);
    if (!named->moved && v->window != 0 && of_key->dead == 0)
        check_full(named, moves, count, v->window, is(named, A_OVERRIDES) || named->uncounted);
}

/* Whatever is carried into a window, it has what was granted in it and not given back (A). */
static void used_least(unsigned name, unsigned key, const struct stint_verdict *v) {
    const struct named *named = &world->names[name];
    const struct of_key *of_key = &books->keys[name][key];
    uint64_t refunded = 0;
    if (named->moved || v->window == 0 || world->options.on_full == STINT_FULL_REPLACE ||
        of_key->resets > 0 || of_key->given_by_dead)
        return;
    const struct entry *entry = entry_of(name, key, v->window);
    for (unsigned i = 0; i < books->entry_count; i++)
        if (books->entries[i].name == name && books->entries[i].key == key)
            refunded += books->entries[i].refunded;
    must(entry->vague > 0 || v->used + refunded >= entry->granted,
         "A: policy %c, key %u: %u used, %" PRIu64 " granted, %" PRIu64 " given back", 'a' + name,
         key, v->used, entry->granted, refunded);
}

static void check_used(struct actor *actor, unsigned name, unsigned key) {
    const struct named *named = &world->names[name];
    const struct of_key *of_key = &books->keys[name][key];
    struct stint_verdict verdict, *v = &verdict;
    struct asked one = {name, key, STINT_REQUEST(world->keys[key], actor->ids[name], 0), false};
    const struct asked *asked = &one;

    one.request.flags = STINT_PEEK;
    stint_decide(actor->limiter, &one.request, world->latest, v);
    verdicts_check(actor, asked, v, 1, false);
    if (is(named, A_BURST)) {
        check_bucket(name, key, v);
        return;
    }
    used_least(name, key, v);
    if (named->moved || v->window == 0 || world->options.on_full == STINT_FULL_REPLACE ||
        is(named, A_REFUSED) || is(named, A_SMOOTH) || is(named, A_IN_FLIGHT) ||
        is(named, A_ABOVE) || is(named, A_RESERVED) || of_key->resets > 0 || of_key->given_by_dead)
        return;
    const struct entry *entry = entry_of(name, key, v->window);
    if (entry->vague > 0)
        return;
    const uint64_t taken = entry->granted + entry->charged;
    const uint64_t used = taken > entry->refunded ? taken - entry->refunded : 0;
    holds(v->used >= used, "a token was lost (A)");
    const uint64_t more = entry->endless + (entry->full != 0 ? ENDLESS : 0) +
                          (world->still ? 0 : world->died + world->counted.stray_tokens) +
                          of_key->dead;
    holds(v->used <= used + more, "more is used than was granted (B)");
    holds(entry->refused == 0 || entry->first_refusals > 0 || of_key->dead > 0 ||
              named->uncounted || is(named, A_OVERRIDES),
          "a window's first refusal was not told");
}

static void check_counts(const struct actor *actor, unsigned name) {
    struct stint_policy_stats stats = STINT_POLICY_STATS_INIT;
    if (world->names[name].generations != 1 || world->names[name].moved ||
        world->names[name].uncounted || world->died > 0)
        return;
    must(stint_policy_stats_get(actor->limiter, actor->ids[name], &stats) == 0, "policy_stats");
    const char *unlike = model_unlike(&stats, &world->names[name].counted);
    must(unlike == NULL, "statistics of policy %c: %s", 'a' + name, unlike);
}

void quiet_check(struct actor *actor) {
    struct stint_stats stats = STINT_STATS_INIT;
    must(stint_stats_get(actor->limiter, &stats) == 0, "stats");
    world->counted.stray_tokens = stats.stray_tokens;
    actor->began = ++world->stamp;
    actor_find(actor);
    for (unsigned name = 0; name < world->name_count; name++) {
        if (actor->ids[name] == UINT32_MAX)
            continue;
        for (unsigned key = 0; key < world->key_count && !world->far; key++)
            check_used(actor, name, key);
        check_counts(actor, name);
    }
}

/* H: how long a step of the clock can hold up a key of this policy, and what its policy asks. */
static uint64_t held_up(const struct named *named) {
    const uint64_t windows = named->longest > 60 * DAY ? 1 : 2;
    const uint64_t owed = is(named, A_RESERVED) || is(named, A_ABOVE) ? 1 + named->largest * 2 : 0;
    if (is(named, A_BURST) && !named->mixed)
        return named->longest + MINUTE;
    return named->longest * (windows + owed) + MINUTE;
}

/* A request for a token of each key by each policy. `must_be`: it must be granted. */
static void take_each(struct actor *actor, bool must_be) {
    for (unsigned name = 0; name < world->name_count; name++)
        for (unsigned key = 0; key < world->key_count && actor->ids[name] != UINT32_MAX; key++) {
            struct stint_verdict verdict, *v = &verdict;
            struct asked one = {name, key, STINT_REQUEST(world->keys[key], actor->ids[name], 1),
                                false};
            const struct asked *asked = &one;
            stint_decide(actor->limiter, &one.request, STINT_NOW, v);
            holds(!must_be || v->allowed || (v->flags & (STINT_OVERRIDDEN | STINT_BANNED)) != 0 ||
                      ((v->flags & STINT_UNTRACKED) != 0 && !world->roomy),
                  "held up by what is over (E, H)");
        }
}

/* Who asks is told for how long he is held up: from then on, if he was not before. */
void end_check(struct actor *actor) {
    uint64_t most = 0;
    for (unsigned name = 0; name < world->name_count; name++)
        if (held_up(&world->names[name]) > most)
            most = held_up(&world->names[name]);
    if (most > 400 * DAY) /* other slots would seem to be of today: an id has 2.7 years */
        return;
    take_each(actor, false);
    world->time += most + 2 * MINUTE;
    take_each(actor, true);
}
