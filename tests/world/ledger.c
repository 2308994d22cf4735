/* SPDX-License-Identifier: MIT
 * What must hold of answers: what stint.h says of one verdict by itself, and what a ledger of all
 * verdicts says of the next. What was granted is written down late and what was given back early,
 * so that the ledger never says more than the table (A); and the other way round to judge refusals
 * (B). What a world's events leave open is not judged. */

#include "world.h"

enum { ENTRIES_MAX = 8192, MOVES_MAX = 4096, ENDLESS = 1 << 30 };

/* Features by which a window's count goes on in the next. */
enum { CARRIES = 1 << A_ABOVE | 1 << A_RESERVED | 1 << A_SMOOTH | 1 << A_IN_FLIGHT };

/* A window of a key by a name. */
struct entry {
    unsigned name, key;
    uint64_t window;
    uint64_t granted, charged; /* by calls that have ended */
    uint64_t refunded;         /* by calls that have begun */
    uint64_t refund_stamp;     /* when the last one ended */
    unsigned first_refusals, refused;
    unsigned vague, full; /* it was reset; a request emptied the key */
    bool asked;           /* the key was asked for at a time in this window */
};

/* What a call told of the instant at which a key's bucket is full. */
struct move {
    unsigned name, key;
    bool counts, back;      /* tokens were granted, or given back */
    bool moves;             /* the instant to `full` */
    bool unsettled;         /* it may have left tokens: move_adds */
    uint64_t now, full;     /* decided by; the instant then; 0: it was full */
    uint64_t began, ended;  /* stamps */
    uint64_t tokens, token; /* of so many ns each at most */
};

/* Of a key by a name. */
struct of_key {
    uint64_t dead;      /* tokens that those who died may have taken */
    bool given_by_dead; /* or given back */
    uint64_t strikes;   /* refusals that may ban it: by no shadow */
    bool known;         /* it was asked for */
    unsigned resets;
    unsigned resetting;   /* of these, how many are under way */
    uint64_t reset_stamp; /* when the last one began, or ended; UINT64_MAX: it never did */
    enum override_state override;
    uint32_t limit;
    uint64_t until, until_most; /* it ends then; or, set too late, with the next tick */
    uint64_t stamp;             /* since when that is known */
    unsigned changing;          /* calls that set or clear it */
    uint64_t changes;
    uint64_t kept;        /* stamp: since when no such call has moved the instant of a bucket */
    uint64_t ban;         /* it is banned until then, at least; 0: that is not known */
    uint64_t ban_stamp;   /* since when it is */
    uint64_t ruled;       /* no ban ends later than that, and no span of strikes */
    uint64_t ended;       /* stamp: when the last call for it did */
    uint64_t group_ended; /* when the last refused group did, which may have taken tokens (B4) */
    uint64_t marked;      /* until then a refusal has told that its bucket is not full: the mark of
                           * one that was full says so to callers whose clocks are behind */
};

static struct books {
    struct entry entries[ENTRIES_MAX];
    struct move moves[MOVES_MAX];
    unsigned entry_count, move_count;
    bool raced; /* a claim of a slot may have been given up, or slept over */
    struct of_key keys[NAMES_MAX][KEYS_MAX];
} * books;

void ledger_begin(void) {
    books = shared_memory(sizeof *books);
}

static struct of_key *of(const struct asked *asked) {
    return &books->keys[asked->name][asked->key];
}

/* The windows of a key by a name, and what was told of its bucket. */
#define each_of(type, one, all, count, by, of)                                                     \
    for (struct type *one = all; one < (all) + (count); one++)                                     \
        if (one->name == (by) && one->key == (of))
#define each_entry(one, by, of) each_of(entry, one, books->entries, books->entry_count, by, of)
#define each_move(one, by, of)  each_of(move, one, books->moves, books->move_count, by, of)

static struct entry *entry_of(unsigned name, unsigned key, uint64_t window) {
    foreach (entry, entry, name, key)
        if (entry->window == window)
            return entry;
    must(books->entry_count < ENTRIES_MAX, "the test: no room in the ledger");
    books->entries[books->entry_count] = (struct entry){.name = name, .key = key, .window = window};
    return &books->entries[books->entry_count++];
}

static uint64_t most_of(uint64_t one, uint64_t other) {
    return one > other ? one : other;
}

/* Whether a call of the other may take tokens of the key. */
static bool may_take(const struct actor *other, unsigned name, unsigned key) {
    foreach (asked, part, other)
        if (!other->dead && part->name == name && part->key == key &&
            (part->request.flags & (STINT_PEEK | STINT_CHARGE)) != STINT_PEEK)
            return true;
    return false;
}

bool is_alone(const struct actor *actor, unsigned name, unsigned key) {
    bool alone = books->keys[name][key].ended < actor->began;
    foreach (actor, other)
        alone &= other == actor || !may_take(other, name, key);
    return alone;
}

void ledger_call_ends(const struct actor *actor) {
    for (unsigned i = 0; i < actor->asked_count; i++)
        of(&actor->asked[i])->ended = world->stamp;
}

/* ---- One verdict ----------------------------------------------------------------------------- */

static void print_wrong(const char *what, const struct asked *asked,
                        const struct stint_verdict *v) {
    wrong("%s: policy %s, key %u, cost %u, limit %u, burst %u, flags %#x: %s", what,
          policy_text(&world->names[asked->name].policy), asked->key, asked->request.cost,
          asked->request.limit, asked->request.burst, asked->request.flags, verdict_text(v));
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

/* Whether it is of a key that is never refused. */
static bool is_endless(const struct stint_verdict *v) {
    return (v->flags & STINT_OVERRIDDEN) != 0 && v->capacity == STINT_LIMIT_MAX;
}

/* Marks that only a policy of that kind gives. */
static void check_marks(const struct asked *asked, const struct stint_verdict *v) {
    const struct named *named = &world->names[asked->name];
    const uint32_t flags = v->flags;
    /* It is among those that may have been strikes, if the policy may be no shadow. */
    const uint64_t own =
        named->sober && (asked->request.flags & (STINT_PEEK | STINT_CHARGE)) != STINT_PEEK;
    holds((flags & STINT_SHADOWED) == 0 || (is(named, A_SHADOW) && v->allowed && v->granted == 0),
          "SHADOWED");
    holds((flags & STINT_BANNED) == 0 || is(named, A_BAN), "BANNED");
    holds((flags & STINT_BANNED) == 0 || (flags & STINT_FIRST_REFUSAL) != 0 ||
              of(asked)->strikes > own,
          "banned for what a shadow let through");
    holds((flags & STINT_BANNED) == 0 || (flags & STINT_FIRST_REFUSAL) == 0 || !v->allowed,
          "a shadow bans");
    holds((flags & STINT_OVERRIDDEN) == 0 || is(named, A_OVERRIDES), "OVERRIDDEN");
    holds((flags & STINT_NEAR_LIMIT) == 0 || is(named, A_NEAR), "NEAR_LIMIT");
    holds((flags & STINT_FIRST_REFUSAL) == 0 ||
              ((!v->allowed || (flags & STINT_SHADOWED) != 0) && (flags & STINT_UNTRACKED) == 0 &&
               (asked->request.flags & STINT_TENTATIVE) == 0),
          "FIRST_REFUSAL");
    holds((flags & STINT_REPLACED) == 0 || world->options.on_full == STINT_FULL_REPLACE,
          "REPLACED");
    holds((flags & STINT_UNTRACKED) == 0 ||
              (v->window == 0 && !world->roomy &&
               (!v->allowed || world->options.on_full != STINT_FULL_REFUSE || is(named, A_SHADOW) ||
                is(named, A_STRIPES) || asked->request.flags != 0)),
          "UNTRACKED (G)");
    holds((flags & STINT_UNTRACKED) == 0 || !is_endless(v),
          "a key that is never refused needs none");
}

static void check_numbers(const struct asked *asked, const struct stint_verdict *v) {
    const uint32_t asks = asked->request.flags, cost = asked->request.cost;
    const bool shadowed = v->flags & STINT_SHADOWED, untracked = v->flags & STINT_UNTRACKED;
    const bool look = asks & STINT_PEEK, charge = (asks & STINT_CHARGE) != 0 && !look;
    const struct named *named = &world->names[asked->name];
    holds(v->granted <= cost, "no more is granted than asked for");
    holds(!look || v->granted == 0, "a look takes nothing");
    holds(v->allowed || v->granted == 0, "refused: nothing is granted");
    holds(!charge || v->allowed, "a charge is never refused");
    holds(!is_endless(v) || v->granted == 0, "what is never refused takes nothing");
    /* A count takes no more than it can hold, nor than it can carry. */
    holds(!charge || shadowed || untracked || v->used >= STINT_LIMIT_MAX || v->granted == cost ||
              is_endless(v) || is(named, A_ABOVE) || is(named, A_RESERVED) || is(named, A_SMOOTH) ||
              is(named, A_BURST),
          "a charge is taken whole, or untracked");
    holds(v->allowed || cost <= STINT_LIMIT_MAX || (asks & STINT_PARTIAL) != 0 ||
              v->retry_after == STINT_NEVER,
          "what can never fit is told to wait");
    /* An override may be over by now. */
    holds(v->allowed || v->retry_after > 0 || is(named, A_SHADOW) ||
              (v->flags & STINT_OVERRIDDEN) != 0,
          "refused: when to retry");
    holds(!v->allowed || shadowed || v->retry_after == 0 || (asks & STINT_RESERVE) != 0,
          "granted: no time to wait");
    if (v->allowed && !shadowed && !look && !is_endless(v) &&
        (asks & (STINT_PARTIAL | STINT_CHARGE)) == 0)
        holds(v->granted == cost, "granted is the cost");
    if (untracked || is(named, A_STRIPES))
        return;
    holds(v->remaining == (v->used < v->capacity ? v->capacity - v->used : 0),
          "remaining is capacity less used");
    holds(v->window != 0 && (v->window % STINT_TICK_NS == 0 || is(named, A_BURST)),
          "a window ends with a tick");
    holds(v->used >= v->granted, "used has what was granted");
    holds(world->far || v->reset_after <= named->longest + 2 * MINUTE,
          "reset_after is within a window");
    if (!v->allowed && (v->flags & (STINT_BANNED | STINT_OVERRIDDEN)) == 0 && !named->moved &&
        (asks & (STINT_PARTIAL | STINT_RESERVE)) == 0)
        holds((uint64_t)v->used + cost > v->capacity, "what fits is not refused (B)");
    if (v->allowed && !shadowed && (asks & (STINT_RESERVE | STINT_CHARGE | STINT_PARTIAL)) == 0 &&
        !is_endless(v) && !look)
        holds(v->used <= v->capacity, "what is granted fits (A)");
}

/* Between which times a call is decided, as far as its verdict does not tell. Who is decided by the
 * clock instead goes "by an override or a ban that the key has at `now` or at that time". */
static uint64_t decided_least(const struct actor *actor, const struct stint_verdict *v) {
    const uint64_t now = actor->at != STINT_NOW ? actor->at : actor->clock_least;
    return v->window != 0 && decided_by(v) < now ? decided_by(v) : now;
}

/* The later of the clock and what was given as now. */
static uint64_t latest_of(const struct actor *actor) {
    return actor->at != STINT_NOW ? most_of(actor->at, actor->clock_most) : actor->clock_most;
}

static uint64_t decided_most(const struct actor *actor, const struct stint_verdict *v) {
    return v->window != 0 ? decided_by(v) : latest_of(actor) + ALLOWANCE;
}

/* H: the time of a request is its now; or the clock's, or, of a bucket, one that others
 * have decided by (each "if it is within 60 s of now"). */
static void check_time(const struct actor *actor, const struct asked *asked,
                       const struct stint_verdict *v) {
    const bool mistaken = v->flags & STINT_MISTAKEN_NOW;
    const uint64_t time = decided_by(v), now = mistaken                 ? actor->clock_least
                                               : actor->at != STINT_NOW ? actor->at
                                                                        : time;
    if (v->window == 0 || actor->stale || world->far)
        return;
    holds(time == now || (time >= actor->clock_least && time <= actor->clock_most) ||
              (is(&world->names[asked->name], A_BURST) && time > now &&
               time <= most_of(now, actor->clock_most) + ALLOWANCE),
          "decided by a time that is nobody's (H)");
}

/* Whether what was set until then is there: "over" by a clock, and 60 s, it may not be any more. By
 * a policy that bans a strike may take its place as soon as it is over. */
static bool is_kept(const struct named *named, uint64_t until) {
    return world->latest_clock < until + (is(named, A_BAN) ? 0 : ALLOWANCE);
}

/* "An override that is over may be in force again 628 days after its end, and each 994 days after
 * that". */
static bool may_be_back(uint64_t time, uint64_t until) {
    return time > until + 628 * DAY - ALLOWANCE;
}

/* By which limit it was decided. An override holds for all whose time is before its end, and is
 * gone from then on. */
static void check_capacity(const struct actor *actor, const struct asked *asked,
                           const struct stint_verdict *v) {
    const struct named *named = &world->names[asked->name];
    const struct of_key *of_key = of(asked);
    const struct model_ruling ruling = {.limit = of_key->limit, .until = of_key->until};
    struct model_by by = model_by(&named->policy);
    const bool overridden = v->flags & STINT_OVERRIDDEN;
    if (of_key->override != OVERRIDE_UNKNOWN && of_key->stamp < actor->began && !world->far &&
        !named->moved && !actor->stale) {
        const bool was_set = of_key->override == OVERRIDE_SET;
        const bool set =
            was_set && decided_most(actor, v) < of_key->until && is_kept(named, of_key->until);
        holds(!set || overridden, "an override that was set holds");
        holds(!was_set || decided_least(actor, v) < of_key->until_most || !overridden ||
                  is(named, A_BAN) ||
                  may_be_back(most_of(decided_most(actor, v), latest_of(actor)), of_key->until),
              "an override that is over is back");
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

/* A ban that is known to have begun holds for all whose time is before its end; and after the last
 * end that any may have, nobody is banned, unless by this very refusal. */
static void check_ban(const struct actor *actor, const struct asked *asked,
                      const struct stint_verdict *v) {
    const struct named *named = &world->names[asked->name];
    const struct of_key *of_key = of(asked);
    const bool banned = v->flags & STINT_BANNED, begins = v->flags & STINT_FIRST_REFUSAL;
    if (!is(named, A_BAN) || named->moved || world->far || actor->stale)
        return;
    holds(of_key->ban == 0 || of_key->ban_stamp > actor->began ||
              decided_most(actor, v) >= of_key->ban || !is_kept(named, of_key->ban) || banned,
          "a ban that began holds");
    holds(!banned || begins || decided_least(actor, v) < of_key->ruled ||
              !is_alone(actor, asked->name, asked->key) ||
              may_be_back(decided_most(actor, v), of_key->ruled),
          "a ban that is over is back");
}

/* What a refusal may have begun: a ban, or strikes. */
static void ban_enter(const struct actor *actor, const struct asked *asked,
                      const struct stint_verdict *v) {
    const struct stint_policy *policy = &world->names[asked->name].policy;
    struct of_key *of_key = of(asked);
    const uint64_t next = model_override_end(actor->clock_most + 1);
    if (policy->ban == 0 || v->allowed)
        return;
    of_key->ruled = most_of(of_key->ruled, next);
    of_key->ruled = most_of(of_key->ruled, decided_most(actor, v) + STINT_TICK_NS +
                                               most_of(policy->ban, policy->ban_within));
    if ((v->flags & STINT_BANNED) == 0 || (v->flags & STINT_FIRST_REFUSAL) == 0 || v->window == 0 ||
        !is_alone(actor, asked->name, asked->key))
        return;
    of_key->ban = model_ban_end(policy, decided_by(v));
    of_key->ban_stamp = ++world->stamp;
}

/* ---- All of them ----------------------------------------------------------------------------- */

/* Tokens that calls of others which are under way may have taken, or taken for a while. */
static uint64_t under_way(const struct actor *actor, const struct asked *asked) {
    uint64_t tokens = of(asked)->dead;
    foreach (actor, other)
        foreach (asked, part, other)
            if (other != actor && !other->dead && part->name == asked->name &&
                part->key == asked->key)
                tokens += (part->request.flags & STINT_DRAIN) != 0 ? ENDLESS : part->request.cost;
    return tokens;
}

/* Whether the ledger can say that a refusal was for nothing. */
static bool refusal_judged(const struct named *named, const struct of_key *of_key) {
    return !world->far && !named->moved && !named->charged && of_key->resets == 0 &&
           world->options.on_full != STINT_FULL_REPLACE &&
           (named->features & (CARRIES | 1 << A_REFUSED | 1 << A_STRIPES | 1 << A_BURST)) == 0;
}

/* B: it is refused only if it did not fit beside all that may have been counted. */
static void check_refusal(const struct actor *actor, const struct asked *asked,
                          const struct stint_verdict *v) {
    const struct named *named = &world->names[asked->name];
    const struct of_key *of_key = of(asked);
    /* A part may be refused by an override that is cleared before its verdict is told. */
    const bool cleared = of_key->changing > 0 || of_key->stamp > actor->began ||
                         of_key->reset_stamp > actor->began || of_key->group_ended > actor->began;
    if (!refusal_judged(named, of_key) || actor->stale || cleared ||
        (v->flags & (STINT_OVERRIDDEN | STINT_UNTRACKED)) != 0)
        return;
    const struct entry *entry = entry_of(asked->name, asked->key, v->window);
    uint64_t most = entry->granted + under_way(actor, asked);
    if (entry->refund_stamp < actor->began && entry->refunded < most)
        most -= entry->refunded;
    if (!world->still)
        most += world->died + ACTORS_MAX; /* strays */
    const uint64_t cost = (asked->request.flags & STINT_PARTIAL) != 0 && asked->request.cost != 0
                              ? 1
                              : asked->request.cost;
    holds(entry->vague != 0 || entry->full != 0 || most + cost > v->capacity,
          "refused for nothing (B)");
}

/* Whether a slot that is over may have been taken over by somebody whose clock is after that time:
 * late threads then begin no window before its end, or, if it carried tokens or its windows are of
 * no grid, before that clock. It may also be a claim, which ends with the tick after its now. */
static bool is_overtaken(const struct actor *actor, uint64_t time) {
    if (!world->roomy || world->died > 0 || world->watermarked || books->raced)
        return true;
    foreach (actor, other)
        foreach (asked, part, other)
            if (other != actor && !of(part)->known)
                return true;
    for (unsigned i = 0; i < NAMES_MAX * KEYS_MAX; i++) {
        const struct of_key *of_key = &books->keys[i / KEYS_MAX][i % KEYS_MAX];
        if (of_key->changes > 0 || of_key->ruled != 0)
            return true;
    }
    for (unsigned i = 0; i < books->entry_count; i++) {
        const struct named *named = &world->names[books->entries[i].name];
        const bool plain = (named->features & (CARRIES | 1 << A_FIRST | 1 << A_BURST)) == 0;
        if (books->entries[i].window <= world->latest_clock + ALLOWANCE &&
            (!plain || books->entries[i].window > time))
            return true;
    }
    return false;
}

/* B: a key is in the window of the request's time, or in one for which it was asked: what others
 * were asked for costs it nothing. */
static void check_window(const struct actor *actor, const struct asked *asked,
                         const struct stint_verdict *v) {
    const struct named *named = &world->names[asked->name];
    struct of_key *of_key = of(asked);
    if (v->window == 0 || named->moved || actor->stale || world->far || is(named, A_BURST) ||
        is(named, A_FIRST) || is(named, A_PER_KEY))
        return;
    struct entry *entry = entry_of(asked->name, asked->key, v->window);
    if (window_end_at(&named->policy, 0, decided_by(v)) == v->window) {
        entry->asked |= (asked->request.flags & (STINT_PEEK | STINT_CHARGE)) != STINT_PEEK;
        return;
    }
    /* Who finds no slot that is over by the clock takes one that is so by his now. */
    const uint64_t latest = window_end_at(&named->policy, 0, latest_over());
    holds(entry->asked || of_key->dead > 0 || !is_alone(actor, asked->name, asked->key) ||
              (v->window <= latest && (actor->switches > 0 || is_overtaken(actor, decided_by(v)))),
          "in a window that nobody asked for (B)");
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
                          const struct stint_verdict *v, bool returned) {
    const struct named *named = &world->names[asked->name];
    struct of_key *of_key = of(asked);
    if ((v->flags & STINT_UNTRACKED) != 0) { /* some stripes may have been emptied */
        of_key->dead += is(named, A_STRIPES) ? ENDLESS : 0;
        return;
    }
    books->raced |= (!of_key->known || is(named, A_STRIPES)) &&
                    (actor->switches > 0 || !is_alone(actor, asked->name, asked->key));
    of_key->known = true;
    struct entry *entry = entry_of(asked->name, asked->key, v->window);
    entry->vague += of_key->resetting != 0 || of_key->reset_stamp >= actor->began;
    const bool charged = (asked->request.flags & STINT_CHARGE) != 0;
    *(charged ? &entry->charged : &entry->granted) += v->granted;
    const bool own = asked->request.limit != 0;
    const bool refused = !v->allowed || (v->flags & STINT_SHADOWED) != 0;
    const bool drained = refused && (asked->request.flags & STINT_DRAIN) != 0;
    /* It may also have emptied the key, as a shadow's or in a window before. */
    of_key->dead += returned && (asked->request.flags & STINT_DRAIN) != 0;
    of_key->group_ended = returned ? ++world->stamp : of_key->group_ended;
    move_enter(&(struct move){.name = asked->name,
                              .key = asked->key,
                              .back = returned,
                              .moves = v->granted != 0 || drained,
                              .unsettled = returned,
                              .counts = v->granted != 0 && !charged,
                              .now = v->window - v->reset_after,
                              .full = v->reset_after != 0 ? v->window : 0,
                              .began = actor->began,
                              .tokens = returned ? asked->request.cost : v->granted,
                              .token = own ? named->policy.window : named->token_most});
    if ((asked->request.flags & STINT_TENTATIVE) == 0)
        entry->refused += !returned && refused; /* else it is perhaps its look */
    entry->full += (asked->request.flags & STINT_DRAIN) != 0;
    entry->first_refusals += (v->flags & STINT_FIRST_REFUSAL) != 0;
    holds(entry->first_refusals <= 1 || entry->vague != 0 || named->moved || world->far ||
              is(named, A_BURST) || world->options.on_full == STINT_FULL_REPLACE,
          "a window's first refusal is told once");
    check_most(entry);
}

/* ---- Refusals of buckets --------------------------------------------------------------------- */

/* What a move may have added to the instant at which its bucket is full. A part of a group that is
 * refused may be given back too little or too much: it may have left all that it asked for. */
static uint64_t move_adds(const struct move *move) {
    return move->moves || move->unsettled ? move->tokens * move->token : 0;
}

/* The latest instant at which a key's bucket may be full, after all that was told of it and all
 * that others may be taking; 0: it was never seen; UINT64_MAX: nobody can tell. */
static uint64_t full_most(const struct actor *actor, unsigned name, unsigned key) {
    uint64_t most = books->keys[name][key].marked, taking = 0;
    foreach (move, move, name, key) {
        if (!move->moves && !move->unsettled)
            continue;
        uint64_t full = move->moves ? move->full : most_of(move->now, move->full) + move_adds(move);
        foreach (move, other, name, key)
            full += other != move && other->ended > move->began ? move_adds(other) : 0;
        most = most_of(most, full);
    }
    foreach (actor, other) {
        if (other == actor || other->function > F_GROUPS || !may_take(other, name, key))
            continue;
        most = most_of(most, latest_of(other) + ALLOWANCE);
        foreach (asked, part, other)
            if (part->name == name && part->key == key)
                taking += part->request.cost * world->names[name].policy.window;
    }
    return books->keys[name][key].dead > 0 ? UINT64_MAX : most + taking;
}

/* Whether the ledger can say that a key is refused for nothing. */
static bool bucket_judged(const struct actor *actor, const struct asked *asked,
                          const struct stint_verdict *v) {
    const struct named *named = &world->names[asked->name];
    return is(named, A_BURST) && !named->mixed && !named->moved && !world->far &&
           !asked->senseless && world->options.on_full != STINT_FULL_REPLACE &&
           of(asked)->changes == 0 && of(asked)->reset_stamp < actor->began &&
           (v->flags &
            (STINT_UNTRACKED | STINT_OVERRIDDEN | STINT_UNKNOWN_POLICY | STINT_BAD_REQUEST)) == 0;
}

/* Whether it fits at that time. */
static bool bucket_fits(const struct actor *actor, const struct asked *asked, uint64_t time) {
    const struct model_by by = model_by(&world->names[asked->name].policy);
    const uint64_t full = full_most(actor, asked->name, asked->key);
    struct model_key key = {.window = most_of(full, time), .known = 1};
    if (full == UINT64_MAX)
        return false;
    const struct model_answer answer = model_decide(&by, &asked->request, time, &key);
    return answer.verdict.allowed && (answer.verdict.flags & STINT_SHADOWED) == 0;
}

/* B: a bucket's request is refused only if it fits neither at its own time nor at the clock's, "if
 * it is within 60 s". */
static void check_bucket_refusal(const struct actor *actor, const struct asked *asked,
                                 const struct stint_verdict *v) {
    const uint64_t clock = actor->clock_least;
    uint64_t *marked = &of(asked)->marked;
    if ((v->allowed && (v->flags & STINT_SHADOWED) == 0) || !bucket_judged(actor, asked, v))
        return;
    *marked = most_of(*marked, v->window);
    /* Who sleeps in his call may have been refused at its beginning. */
    const uint64_t time = decided_by(v), now = actor->at != STINT_NOW ? actor->at : clock;
    holds(!bucket_fits(actor, asked, time) || !bucket_fits(actor, asked, now),
          "refused for nothing by a bucket (B)");
    /* He may have read it as late as it is now. */
    if (clock > time && world->latest_clock - time <= ALLOWANCE)
        holds(!bucket_fits(actor, asked, clock),
              "refused by a bucket, though it fits at the clock's time (B)");
}

/* H: "If it is more than two minutes off then, the request is decided at the clock's time, ... and
 * its verdict says so." Nobody's is, who is within 60 s of his clock. */
static void check_now(const struct actor *actor, const struct asked *asked,
                      const struct stint_verdict *v) {
    const uint64_t least = actor->at != STINT_NOW ? actor->at : actor->clock_least,
                   most = actor->at != STINT_NOW ? actor->at : actor->clock_most;
    const bool mistaken = v->flags & STINT_MISTAKEN_NOW;
    holds(mistaken || !actor->mistaken, "a now is far from the clock, and nobody says so (H)");
    holds(!mistaken || actor->mistaken || most > actor->clock_least + ALLOWANCE ||
              least + ALLOWANCE < actor->clock_most,
          "a now is near the clock, and mistaken (H)");
}

static void check_flags(const struct actor *actor, const struct asked *asked,
                        const struct stint_verdict *v) {
    const struct named *named = &world->names[asked->name];
    const bool none = (v->flags & (STINT_UNKNOWN_POLICY | STINT_BAD_REQUEST)) != 0;
    holds((v->flags & ~UINT32_C(0x3ff)) == 0, "unknown flags");
    if (!none)
        check_now(actor, asked, v);
    holds((v->policy == UINT32_MAX) == none, "no policy decided, or a void verdict names one");
    holds(named->mixed || actor->stale || (v->unit != 0) == (is(named, A_BURST) && !none),
          "a token of a bucket without a time, or of a window with one");
}

/* Whether a request may make no sense by what its name was made meanwhile. */
static bool may_be_unfit(const struct asked *asked) {
    const struct named *named = &world->names[asked->name];
    const struct stint_policy held = {.flags = STINT_IN_FLIGHT}, striped = {.stripes = 2};
    return (named->mixed && asked->request.burst != 0) ||
           (is(named, A_IN_FLIGHT) && unfit(&held, &asked->request)) ||
           (is(named, A_STRIPES) && unfit(&striped, &asked->request));
}

/* Whether two parts of a group are of one key by one policy: for certain, or perhaps, as a policy
 * that was replaced leads on. */
static bool is_twice(const struct asked *all, unsigned count, bool certain) {
    bool twice = false;
    for (unsigned i = 0; i < count; i++)
        for (unsigned j = 0; j < i; j++) {
            const uint32_t id = all[i].request.policy;
            const bool same = id == all[j].request.policy && id != UINT32_MAX;
            if (all[i].key == all[j].key)
                twice |= certain ? same && !world->names[all[i].name].moved
                                 : same || all[i].name == all[j].name;
        }
    return twice;
}

/* Of a request of its own, or of a part of a group, which is one. `returned`: it may have been
 * granted, and given back. */
static void verdict_check(struct actor *actor, const struct asked *asked,
                          const struct stint_verdict *v, bool returned) {
    check_marks(asked, v);
    if (!actor->stale) /* else the id may be another policy's */
        check_numbers(asked, v);
    check_time(actor, asked, v);
    check_capacity(actor, asked, v);
    check_ban(actor, asked, v);
    if (!actor->reads)
        ban_enter(actor, asked, v);
    if (actor->stale)
        return;
    check_window(actor, asked, v);
    check_bucket_refusal(actor, asked, v);
    if (!v->allowed || (v->flags & STINT_SHADOWED) != 0)
        check_refusal(actor, asked, v);
    if (actor->reads)
        return;
    world->names[asked->name].uncounted |= returned;
    if (!returned)
        model_count(&world->names[asked->name].counted, &asked->request, v);
    if (returned || (asked->request.flags & (STINT_PEEK | STINT_CHARGE)) != STINT_PEEK)
        verdict_enter(actor, asked, v, returned);
}

void verdicts_check(struct actor *actor, const struct asked *all,
                    const struct stint_verdict *verdicts, unsigned count, bool whole) {
    const bool twice = whole && is_twice(all, count, false);
    bool refused = false, full = false; /* the parts before may have filled the table */
    for (unsigned i = 0; i < count; i++) {
        refused |= whole && !verdicts[i].allowed;
        full |= (verdicts[i].flags & STINT_UNTRACKED) != 0;
    }
    for (unsigned i = 0; i < count; i++) {
        struct asked part = all[i], *asked = &part;
        const struct stint_verdict *v = &verdicts[i];
        const bool decides = (part.request.flags & (STINT_PEEK | STINT_CHARGE)) != STINT_PEEK;
        trace(actor, "  %c key %u cost %u limit %u burst %u flags %#x: %s", 'a' + asked->name,
              asked->key, asked->request.cost, asked->request.limit, asked->request.burst,
              asked->request.flags, verdict_text(v));
        check_flags(actor, asked, v);
        holds(!whole || !is_twice(all, count, true) || v->flags == STINT_BAD_REQUEST,
              "two parts of a key by a policy");
        if ((v->flags & (STINT_UNKNOWN_POLICY | STINT_BAD_REQUEST)) != 0) {
            check_nothing(asked, v);
            holds((v->flags & STINT_BAD_REQUEST) == 0 || actor->reads || asked->senseless ||
                      may_be_unfit(asked) || twice,
                  "a request that makes sense");
            continue;
        }
        holds(!asked->senseless && (!actor->reads || !decides),
              "a request that makes no sense, or by a reader, is decided");
        holds(!refused || v->granted == 0, "a refused group is granted nothing");
        if (refused && v->allowed) /* "that look" */
            part.request.flags = (part.request.flags & ~(uint32_t)STINT_CHARGE) | STINT_PEEK;
        verdict_check(actor, asked, v, refused && decides && (actor->switches > 0 || full));
    }
}

/* Whether nobody can tell what a key has left, whatever was granted and given back. */
static bool is_unclear(const struct of_key *of_key) {
    return world->options.on_full == STINT_FULL_REPLACE || of_key->resets > 0 ||
           of_key->given_by_dead;
}

/* The earliest instant at which a key's bucket can be full, while nobody else calls for it. */
static uint64_t full_least(unsigned name, unsigned key) {
    uint64_t least = 0;
    foreach (move, move, name, key) {
        uint64_t full = move->full;
        if (move->back || !move->moves)
            continue;
        foreach (move, other, name, key)
            if (other->back && other->ended > move->began) /* no more than makes it full */
                full -= other->tokens * other->token < full ? other->tokens * other->token : full;
        least = most_of(least, full);
    }
    return least;
}

/* What a bucket is given back is "the time that the tokens took ..., as far as it has not come back
 * by itself ...: no more than what is left to `window`, and no more than makes it full". */
static void check_refund(const struct actor *actor, const struct taken *taken, uint32_t tokens,
                         uint32_t given) {
    const unsigned name = taken->asked.name, key = taken->asked.key;
    const struct named *named = &world->names[name];
    const struct of_key *of_key = &books->keys[name][key];
    /* Or by the time at which another key's slot was over, by whatever clock or now. */
    const uint64_t time = most_of(latest_over(), decided_by(&taken->verdict));
    if (!is(named, A_BURST) || named->mixed || named->moved || actor->reads || actor->stale ||
        world->far || of_key->changes > 0 || of_key->dead > 0 || is_unclear(of_key) ||
        !is_alone(actor, name, key))
        return;
    const uint64_t token = taken->left.unit, window = taken->left.window;
    const uint64_t full = full_least(name, key);
    if (full <= world->latest_clock) /* its slot may be another's */
        return;
    uint64_t left = full < window ? full : window;
    left = left > time ? left - time : 0;
    left = left < tokens * token ? left : tokens * token;
    must(given * token >= left,
         "B: bucket %c, key %u: %u of %u tokens given back, %" PRIu64 " ns are left", 'a' + name,
         key, given, tokens, left);
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
    check_refund(actor, taken, tokens, given);
    if ((taken->asked.request.flags & STINT_CHARGE) == 0)
        entry->refunded -= tokens - given;
    else
        entry->charged -= entry->charged < given ? entry->charged : given;
    if (of(&taken->asked)->resets > 0)
        entry->vague++;
    entry->refund_stamp = ++world->stamp;
    move_enter(&(struct move){.name = taken->asked.name,
                              .key = taken->asked.key,
                              .back = true,
                              .began = actor->began,
                              .tokens = given,
                              .token = taken->verdict.unit});
    world->names[taken->asked.name].counted.refunded += given;
}

void ledger_refunded_all(const struct actor *actor, const struct taken *taken, unsigned count,
                         uint64_t given, uint64_t most) {
    for (unsigned i = 0; i < count; i++) {
        if (given == 0 || given == most) {
            ledger_refunded(actor, &taken[i], taken[i].left.granted,
                            given == 0 ? 0 : taken[i].left.granted);
            continue;
        }
        of(&taken[i].asked)->given_by_dead = true;
        world->names[taken[i].asked.name].uncounted = true;
    }
}

void group_back_check(const struct actor *actor, const struct asked *all,
                      const struct stint_verdict *verdicts, const struct stint_verdict *before,
                      const struct stint_verdict *after, unsigned count) {
    /* A bucket is given nothing back that came back by itself, by whatever clock or now. */
    const uint64_t latest = latest_over();
    for (unsigned i = 0; i < count; i++) {
        const struct named *named = &world->names[all[i].name];
        const struct of_key *of_key = of(&all[i]);
        if (named->mixed || named->moved || actor->reads || actor->stale || world->far ||
            world->options.on_full == STINT_FULL_REPLACE || of_key->dead > 0 ||
            of_key->changes > 0 || before[i].window == 0 || after[i].window == 0 ||
            before[i].policy != after[i].policy || !verdicts[i].allowed ||
            (verdicts[i].flags & STINT_SHADOWED) != 0 || !is_alone(actor, all[i].name, all[i].key))
            continue;
        if (is(named, A_BURST))
            must(most_of(after[i].window, latest) == most_of(before[i].window, latest),
                 "a refused group: bucket %c, key %u is full %" PRId64 " ns later",
                 'a' + all[i].name, all[i].key, (int64_t)(after[i].window - before[i].window));
        else if (before[i].window == after[i].window && after[i].window > world->latest)
            /* Else it is over for somebody, who may give the slot to another key. */
            must(after[i].used == before[i].used,
                 "a refused group: policy %c, key %u: %u used, %u before", 'a' + all[i].name,
                 all[i].key, after[i].used, before[i].used);
    }
}

void ledger_asked(const struct asked *asked) {
    of(asked)->strikes += world->names[asked->name].sober;
}

void ledger_untold(const struct asked *asked) {
    of(asked)->dead += (asked->request.flags & STINT_DRAIN) != 0 ? ENDLESS : asked->request.cost;
    world->names[asked->name].uncounted = true;
    of(asked)->ruled = UINT64_MAX;
}

static void entries_vague(unsigned name, unsigned key, unsigned more) {
    foreach (entry, entry, name, key)
        entry->vague += more;
}

void ledger_reset_begins(unsigned name, unsigned key) {
    books->keys[name][key].resetting++;
    books->keys[name][key].resets++;
    books->keys[name][key].ban = 0;
    books->keys[name][key].reset_stamp = ++world->stamp;
    entries_vague(name, key, 1);
}

/* Nobody else called for the key: it is "as good as new". Of a bucket, the ledger knows that it is
 * full by the clock. */
static void reset_alone(const struct actor *actor, unsigned name, unsigned key) {
    foreach (entry, entry, name, key)
        *entry = (struct entry){.name = name,
                                .key = key,
                                .window = entry->window,
                                .refund_stamp = entry->refund_stamp,
                                .vague = entry->vague,
                                .asked = entry->asked};
    foreach (move, move, name, key)
        move->name = NAMES_MAX;
    move_enter(&(struct move){.name = name,
                              .key = key,
                              .back = true,
                              .moves = true,
                              .full = actor->clock_most,
                              .began = actor->began});
    foreach (actor, other) /* nobody gives back what the key had before */
        for (struct taken *taken = other->taken; taken < &other->taken[TAKEN_MAX]; taken++)
            if (taken->asked.name == name && taken->asked.key == key)
                taken->left.granted = 0;
}

/* Whether a key has surely something to forget. */
static bool is_counted(unsigned name, unsigned key) {
    const struct named *named = &world->names[name];
    const struct of_key *of_key = &books->keys[name][key];
    if (is_unclear(of_key))
        return false;
    if (is(named, A_BURST))
        /* By the clock, or by the time at which another key's slot was over by an early now. */
        return !named->mixed && of_key->changes == 0 &&
               full_least(name, key) > world->latest_clock + ALLOWANCE;
    const struct entry *last = NULL;
    foreach (entry, entry, name, key)
        if (last == NULL || entry->window > last->window)
            last = entry;
    return last != NULL && last->vague == 1 && last->window > world->latest_clock + ALLOWANCE &&
           last->granted > last->refunded;
}

void ledger_reset_ends(struct actor *actor, unsigned name, unsigned key, bool reset) {
    struct of_key *of_key = &books->keys[name][key];
    const bool known = is_alone(actor, name, key) && !world->names[name].moved && !actor->stale &&
                       !world->far && world->died == 0 && of_key->dead == 0 &&
                       actor->ids[name] != UINT32_MAX;
    of_key->resets--; /* this one */
    must(reset || !known || !is_counted(name, key),
         "policy %c, key %u: a reset finds nothing of what was granted", 'a' + name, key);
    of_key->resets++;
    of_key->resetting--;
    of_key->reset_stamp = ++world->stamp;
    if (known && chance(actor, 2)) {
        of_key->resets--;
        entries_vague(name, key, -1u);
        reset_alone(actor, name, key);
    } else {
        entries_vague(name, key, 1);
    }
}

/* What a call that died in the middle may have done. */
void ledger_dead(const struct actor *actor) {
    world->stamp++;
    ledger_call_ends(actor);
    for (unsigned i = 0; i < actor->asked_count; i++) {
        const struct asked *asked = &actor->asked[i];
        ledger_untold(asked);
        if (actor->function == F_RESET)
            of(asked)->reset_stamp = UINT64_MAX;
        of(asked)->given_by_dead |= actor->function == F_REFUND || actor->function == F_REFUND_ALL;
    }
}

uint64_t override_begins(unsigned name, unsigned key) {
    books->keys[name][key].override = OVERRIDE_UNKNOWN;
    books->keys[name][key].ban = 0;
    books->keys[name][key].kept = UINT64_MAX;
    books->keys[name][key].changing++;
    return ++books->keys[name][key].changes;
}

void override_ends(const struct actor *actor, const struct asked *asked, uint64_t change,
                   enum override_state state, uint32_t limit, uint64_t until) {
    struct of_key *of_key = of(asked);
    of_key->changing--;
    of_key->kept = of_key->changing > 0 ? UINT64_MAX : ++world->stamp;
    of_key->changes +=
        of_key->changing > 0; /* the other one may have changed it before, or after */
    if (of_key->changing > 0 || of_key->changes != change)
        return;
    of_key->override = state;
    of_key->limit = limit;
    of_key->until = model_override_end(until);
    of_key->until_most = most_of(of_key->until, model_override_end(actor->clock_most + 1));
    of_key->stamp = ++world->stamp;
}

void override_got(const struct actor *actor, unsigned name, unsigned key, int result,
                  uint32_t limit, uint64_t until) {
    const struct of_key *of_key = &books->keys[name][key];
    if (of_key->override != OVERRIDE_SET || of_key->stamp > actor->began || world->far ||
        world->names[name].moved || actor->stale || actor->ids[name] == UINT32_MAX)
        return;
    must(result != 0 || actor->clock_least < of_key->until_most ||
             may_be_back(actor->clock_most, of_key->until_most) || is(&world->names[name], A_BAN),
         "an override that is over is found: policy %c, key %u", 'a' + name, key);
    if (actor->clock_most >= of_key->until || !is_kept(&world->names[name], of_key->until))
        return;
    must(result == 0, "an override is not found: policy %c, key %u", 'a' + name, key);
    must((until == of_key->until || until == of_key->until_most) &&
             (limit == of_key->limit || !world->still),
         "an override is another: limit %u until %" PRIu64, limit, until);
}

/* ---- When nobody calls ----------------------------------------------------------------------- */

/* A: in every span from the now of one grant to that of another "at most burst + d * limit /
 * window", but for what was given back beside them, for what calls that raise an override may
 * grant once more (A2: not the first, if the rate did not change otherwise), and for the times by
 * which the clocks of such calls differ. */
static void check_spans(const struct named *named, const struct of_key *of_key,
                        const struct move *moves, unsigned count) {
    const uint64_t raised =
        of_key->changes - (of_key->changes > 0 && !named->moved && named->generations == 1);
    const uint64_t kept = named->fills * raised + (world->still ? 0 : ALLOWANCE) * of_key->changes;
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
            must(granted <= (named->fills + to - from) * named->generations + back + kept,
                 "A: bucket %c, key %u: %" PRIu64 " ns granted from %" PRIu64 " to %" PRIu64
                 ", %" PRIu64 " given back",
                 'a' + moves[i].name, moves[i].key, granted, from, to, back);
        }
}

/* What is used is what was told of each take since `kept`, with all that was taken since and less
 * what was given back. `vague`: others may have taken, too. */
static void check_full(const struct named *named, const struct move *moves, unsigned count,
                       uint64_t full, uint64_t kept, bool vague) {
    uint64_t most = world->latest;
    for (unsigned i = 0; i < count; i++) {
        uint64_t least = moves[i].full, more = moves[i].full + world->counted.stray_tokens;
        if (moves[i].unsettled)
            most = most_of(most, most_of(moves[i].now, moves[i].full) + move_adds(&moves[i]));
        if (moves[i].back)
            continue;
        for (unsigned j = 0; j < count; j++) {
            const uint64_t ns = moves[j].tokens * moves[j].token;
            if (moves[j].back)
                least -= moves[j].ended > moves[i].began ? ns : 0;
            else if (moves[j].began > moves[i].ended)
                least += moves[j].tokens * named->token_least;
            if (j != i && moves[j].ended > moves[i].began)
                more += move_adds(&moves[j]);
        }
        must((int64_t)(full - least) >= 0 || moves[i].full == 0 || moves[i].began < kept,
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
    if (named->mixed || is_unclear(of_key))
        return;
    foreach (move, move, name, key)
        moves[count++] = *move;
    check_spans(named, of_key, moves, count);
    if (!named->moved && v->window != 0 && of_key->dead == 0)
        check_full(named, moves, count, v->window, of_key->kept,
                   is(named, A_OVERRIDES) || named->uncounted);
}

/* What is used of a key whose tokens carry over: "paid back by `limit` tokens in every new window",
 * however long nobody asked. */
static void check_owed(const struct asked *asked, const struct stint_verdict *v) {
    const struct named *named = &world->names[asked->name];
    const struct of_key *of_key = of(asked);
    uint64_t least = 0, most = of_key->dead, from = 0;
    for (;;) { /* window after window */
        const struct entry *next = NULL;
        foreach (entry, entry, asked->name, asked->key)
            if (entry->window > from && (next == NULL || entry->window < next->window))
                next = entry;
        const uint64_t until = next != NULL && next->window < v->window ? next->window : v->window;
        const uint64_t paid =
            from == 0 ? 0 : (until - from) / named->policy.window * named->policy.limit;
        least -= least < paid ? least : paid;
        most -= most < paid ? most : paid;
        if (next == NULL || next->window > v->window)
            break;
        if (next->vague > 0)
            return;
        const uint64_t taken = next->granted + next->charged;
        least = least + taken > next->refunded ? least + taken - next->refunded : 0;
        most = most + taken > next->refunded ? most + taken - next->refunded : 0;
        most += (next->full != 0 ? ENDLESS : 0);
        from = next->window;
    }
    most += world->died + world->counted.stray_tokens + of_key->dead;
    holds(v->used >= least, "what a key owes is forgotten (A)");
    holds(v->used <= most, "what a key owes is not paid (B)");
}

static void check_used(struct actor *actor, unsigned name, unsigned key) {
    const struct named *named = &world->names[name];
    const struct of_key *of_key = &books->keys[name][key];
    struct stint_verdict verdict, *v = &verdict;
    struct asked one = {name, key, STINT_REQUEST(actor->ids[name], world->keys[key], 0), false};
    const struct asked *asked = &one;
    uint64_t refunded = 0;
    one.request.flags = STINT_PEEK;
    stint_decide(actor->limiter, &one.request, world->latest, v);
    verdicts_check(actor, asked, v, 1, false);
    if (is(named, A_BURST)) {
        check_bucket(name, key, v);
        return;
    }
    if (named->moved || v->window == 0 || is_unclear(of_key))
        return;
    const struct entry *entry = entry_of(name, key, v->window);
    foreach (entry, any, name, key)
        refunded += any->refunded;
    /* Whatever is carried into a window, it has what was granted in it and not given back. */
    must(entry->vague > 0 || v->used + refunded >= entry->granted,
         "A: policy %c, key %u: %u used, %" PRIu64 " granted, %" PRIu64 " given back", 'a' + name,
         key, v->used, entry->granted, refunded);
    if (is(named, A_ABOVE) || is(named, A_RESERVED))
        check_owed(asked, v);
    if (entry->vague > 0 || (named->features & (CARRIES | 1 << A_REFUSED)) != 0)
        return;
    const uint64_t taken = entry->granted + entry->charged;
    const uint64_t used = taken > entry->refunded ? taken - entry->refunded : 0;
    holds(v->used >= used, "a token was lost (A)");
    const uint64_t more = (entry->full != 0 ? ENDLESS : 0) +
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
            struct asked one = {name, key, STINT_REQUEST(actor->ids[name], world->keys[key], 1),
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
    /* Other slots would seem to be of today: an id has 2.7 years. */
    if (most > (world->idles ? 90 : 400) * DAY)
        return;
    take_each(actor, false);
    world->time += most + 2 * MINUTE;
    take_each(actor, true);
}

/* ---- Days ------------------------------------------------------------------------------------ */

/* An end is known by 33 bits of ticks. What ended so long ago that one with the same bits is ahead,
 * or has not paid all of its debt, may be taken for that. */
static bool end_clear(uint64_t end, uint64_t ahead, uint64_t owed, uint64_t time) {
    const uint64_t round = STINT_TICK_NS << 33, ago = time > end ? time - end : 0;
    const uint64_t since = ago % round;
    return since + 100 * DAY + ahead + 2 * MINUTE < round && (ago < round || since > owed);
}

bool ledger_clear(uint64_t time) {
    bool clear = true;
    for (unsigned i = 0; i < books->entry_count; i++) {
        const struct named *named = &world->names[books->entries[i].name];
        const uint64_t owed = is(named, A_RESERVED) || is(named, A_ABOVE) ? 2 * named->largest : 1;
        clear &= end_clear(books->entries[i].window, named->longest, owed * named->longest, time);
    }
    for (unsigned i = 0; i < NAMES_MAX * KEYS_MAX; i++) {
        const struct of_key *of_key = &books->keys[i / KEYS_MAX][i % KEYS_MAX];
        if (of_key->changes > 0) /* what was set may be set by one who died */
            clear &= end_clear(world->latest + 20 * DAY, 366 * DAY + 20 * DAY, 0, time);
        if (of_key->ruled != 0)
            clear &= end_clear(of_key->ruled, 2 * 366 * DAY, 0, time);
    }
    return clear;
}
