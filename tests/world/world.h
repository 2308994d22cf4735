/* SPDX-License-Identifier: MIT
 * The world: a random test in which every public function meets every other (world.c says how). */
#ifndef STINT_TESTS_WORLD_H
#define STINT_TESTS_WORLD_H

#include <stdarg.h>

#include "fixture.h"
#include "model.h"
#include "random.h"
#include "schedule.h"

enum {
    ACTORS_MAX = SCHEDULED_MAX,
    NAMES_MAX = 5, /* of policies */
    KEYS_MAX = 4,
    ASKED_MAX = 12, /* requests of a call */
    TAKEN_MAX = 6,  /* verdicts that an actor remembers, to give back */
};

/* ---- What meets ------------------------------------------------------------------------------ */

/* Public functions, and who calls them (calls.c): a limiter that is open may be closed, to be
 * opened again. Those that only compute are two: of texts, and of verdicts. */
#define FUNCTIONS(X)                                                                               \
    X(TAKE, "take", call_one)                                                                      \
    X(DECIDE, "decide", call_one)                                                                  \
    X(BATCH, "decide_batch", call_several)                                                         \
    X(ALL, "decide_all", call_several)                                                             \
    X(GROUPS, "decide_groups", call_groups)                                                        \
    X(REFUND, "refund", call_refund)                                                               \
    X(REFUND_ALL, "refund_all", call_refund_all)                                                   \
    X(RESET, "reset", call_reset)                                                                  \
    X(PREFETCH, "prefetch", call_prefetch)                                                         \
    X(NOW, "now", call_now)                                                                        \
    X(KEY, "key_of, _join, _address", call_key)                                                    \
    X(OVERRIDE, "override", call_override)                                                         \
    X(OVERRIDE_GET, "override_get", call_override_get)                                             \
    X(OVERRIDE_CLEAR, "override_clear", call_override_clear)                                       \
    X(LABEL, "label", call_label)                                                                  \
    X(ADD, "policy_add", call_add)                                                                 \
    X(CHANGE, "policy_change", call_change)                                                        \
    X(CHANGE_CHECK, "policy_change_check", call_change)                                            \
    X(REMOVE, "policy_remove", call_remove)                                                        \
    X(APPLY, "policies_apply", call_apply)                                                         \
    X(FIND, "policy_find", actor_find)                                                             \
    X(GET, "policy_get", call_get)                                                                 \
    X(STATS, "stats_get", call_stats)                                                              \
    X(POLICY_STATS, "policy_stats_get", call_policy_stats)                                         \
    X(EACH, "each", call_each)                                                                     \
    X(EACH_OF, "each_of", call_each)                                                               \
    X(METRICS, "metrics", call_metrics)                                                            \
    X(HEADERS, "headers, tightest", call_headers)                                                  \
    X(TEXTS, "policy_parse, _format, strerror, memory_size", call_texts)                           \
    X(OPEN, "open", call_close)                                                                    \
    X(OPEN_IN, "open_in", call_close)                                                              \
    X(ATTACH, "attach", call_close)                                                                \
    X(READER, "attach to read", call_close)                                                        \
    X(CLOSE, "close", call_close)                                                                  \
    X(RESIZE, "resize", call_resize)

enum function {
#define FUNCTION(name, text, call) F_##name,
    FUNCTIONS(FUNCTION)
#undef FUNCTION
        FUNCTIONS_END
};

/* Of a policy. */
enum feature {
    A_PLAIN, /* none of these */
    A_ABOVE,
    A_BELOW,
    A_RESERVED,
    A_STRIPES,
    A_REFUSED,
    A_SMOOTH,
    A_IN_FLIGHT,
    A_START,
    A_PER_KEY,
    A_FIRST,
    A_MONTH,
    A_YEAR,
    A_NEAR,
    A_JITTER,
    A_SHADOW,
    A_OVERRIDES,
    A_BAN,
    A_WITHIN,
    A_BURST,
    FEATURES_END,
};

extern const char *const function_names[];

/* ---- A world --------------------------------------------------------------------------------- */

enum place { IN_PRIVATE, IN_MEMORY, IN_FILE };

/* A policy of the world, by its name. */
struct named {
    struct stint_policy policy; /* as it was added, or changed last */
    struct stint_policy before; /* another one that it was, which may come back; size 0: none */
    uint32_t features;          /* it ever had, or may have */
    bool overridable;           /* all that had the name had STINT_OVERRIDES */
    uint64_t largest;           /* limit that anything ever had, with what may be reserved */
    uint64_t longest;           /* window, or time in which a bucket fills, ns */
    uint64_t token_least, token_most, fills; /* of buckets: ns, by all that ever was */
    bool mixed;           /* some that had the name were buckets, others were not */
    unsigned generations; /* policies that had the name */
    uint64_t since;       /* when it was known to be there; 0: it is not */
    bool moved;           /* it was changed, replaced or removed, or is being */
    bool charged;         /* a count of it may have tokens that nobody was granted */
    bool sober;           /* it may be no shadow */
    /* Decisions since its first generation was added. */
    struct stint_policy_stats counted;
    bool uncounted; /* somebody died who decided by it */
};

/* A request of a call, by the world's names for things. */
struct asked {
    unsigned name, key;
    struct stint_request request;
    bool senseless; /* STINT_BAD_REQUEST */
};

/* What an actor was granted, and may give back. */
struct taken {
    struct asked asked;
    struct stint_verdict verdict; /* as it was given */
    struct stint_verdict left;    /* less what was given back */
};

/* A thread of a process of its own, or (IN_PRIVATE) of the one. */
struct actor {
    unsigned number;
    struct random random;
    struct stint_limiter *limiter; /* NULL: none is open */
    bool reads, stale;             /* read-only; of a table that was resized since */
    bool dead;
    int64_t skew; /* of its clock, ns */
    uint32_t ids[NAMES_MAX];
    unsigned calls; /* left in this round */
    struct taken taken[TAKEN_MAX];
    unsigned taken_count;
    /* The call under way. */
    bool calling;
    enum function function;
    uint64_t began, steps, readings, switches;
    uint64_t at;                      /* the now that it was given; STINT_NOW */
    bool mistaken;                    /* what it gave as now is far from its clock */
    uint64_t clock_least, clock_most; /* what its clock said meanwhile */
    uint64_t read;                    /* a time that was read before; 0: none */
    struct asked asked[ASKED_MAX];
    unsigned asked_count;
    struct stint_policy adding; /* of policy_add */
};

struct world {
    uint64_t seed;
    bool verbose;
    enum place place;
    struct stint_options options;
    char path[64];
    void *memory;
    size_t size;
    bool roomy; /* no key can be without a slot */
    bool still; /* windows do not end */
    bool far;   /* a clock was stepped by more than the allowance, or differs by more */
    bool steps_far, steps_little, deaths, processes, idles;
    uint64_t apart;        /* clocks differ by so many ns at most */
    bool reopened;         /* opened alone since the round before */
    uint64_t functions;    /* that may be called: bits */
    uint64_t time, latest; /* ns; latest that any clock, or caller, said */
    uint64_t latest_clock; /* that any clock said */
    uint64_t clear;        /* until then no slot's end is taken for another (ledger_clear) */
    uint64_t first;        /* when it began */
    uint64_t stamp;        /* of beginnings and ends of calls */
    struct named names[NAMES_MAX];
    unsigned name_count, key_count;
    stint_key keys[KEYS_MAX];
    struct actor actors[ACTORS_MAX + 1]; /* the last: a process that is forked */
    unsigned actor_count;
    unsigned died;              /* in the middle of a call */
    uint64_t resized;           /* calls */
    bool watermarked;           /* a resize may have raised watermarks to its clock */
    uint64_t hash;              /* of all that was answered */
    struct stint_stats counted; /* what is seen at least from now on */
};
/* Shared by the processes of a world, as the ledger is. */
extern struct world *world;

/* Fails the world. */
__attribute__((noreturn, format(printf, 1, 2))) void wrong(const char *format, ...);
#define must(condition, ...)                                                                       \
    do {                                                                                           \
        if (!(condition))                                                                          \
            wrong(__VA_ARGS__);                                                                    \
    } while (0)

/* With --seed, writes a line; and what it says is a part of the hash. */
__attribute__((format(printf, 2, 3))) void trace(const struct actor *actor, const char *format,
                                                 ...);

static inline bool is(const struct named *named, enum feature feature) {
    return named->features >> feature & 1;
}

/* All actors, a process that is forked among them; the requests of a call that is under way. */
#define foreach(kind, ...) each_##kind(__VA_ARGS__)
#define each_actor(one)                                                                            \
    for (struct actor *one = world->actors; one <= &world->actors[ACTORS_MAX]; one++)
#define each_asked(one, actor)                                                                     \
    for (const struct asked *one = (actor)->asked;                                                 \
         (actor)->calling && one < (actor)->asked + (actor)->asked_count; one++)

static inline bool chance(struct actor *actor, uint64_t one_in) {
    return random_below(&actor->random, one_in) == 0;
}

/* ---- Policies of all kinds (policies.c) ------------------------------------------------------ */

/* A policy with features that go together. */
struct stint_policy policy_draw(struct random *random, unsigned name);

/* One that stint_policy_change can make of it. */
struct stint_policy policy_vary(struct random *random, const struct stint_policy *policy);

uint32_t policy_features(const struct stint_policy *policy);

/* Before a policy gets, or may get, these numbers: as the first or the next of its name, or as what
 * the name's last one becomes. */
void named_new(struct named *named, const struct stint_policy *policy);
void named_moves(struct named *named); /* it is changed, replaced or removed */
void named_changes(struct named *named, const struct stint_policy *policy);
void named_limit(struct named *named, uint64_t limit); /* a key or a request may have its own */

/* ---- Calls (calls.c) ------------------------------------------------------------------------- */

void actor_call(struct actor *actor);

/* Opens the table by a function that does. */
int actor_open(struct actor *actor, enum function function);
void actor_close(struct actor *actor);
void actor_find(struct actor *actor); /* the ids of all names */

void call_begin(struct actor *actor, enum function function, const struct asked *asked,
                unsigned count);
void call_end(struct actor *actor);
/* ---- What must hold (ledger.c) --------------------------------------------------------------- */

/* A decision's verdicts, all of its call. `whole`: they are decided as one. */
void verdicts_check(struct actor *actor, const struct asked *asked,
                    const struct stint_verdict *verdicts, unsigned count, bool whole);
void ledger_begin(void);
void ledger_call_ends(const struct actor *actor);
void ledger_refund_begins(const struct taken *taken, uint32_t tokens);
void ledger_refunded(const struct actor *actor, const struct taken *taken, uint32_t tokens,
                     uint32_t given);
/* Of several: of all that each has left, `given` of `most` in all. */
void ledger_refunded_all(const struct actor *actor, const struct taken *taken, unsigned count,
                         uint64_t given, uint64_t most);
/* A refused group left its parts' keys as looks at the group's time told them before it. */
void group_back_check(const struct actor *actor, const struct asked *all,
                      const struct stint_verdict *verdicts, const struct stint_verdict *before,
                      const struct stint_verdict *after, unsigned count);
void ledger_asked(const struct asked *asked);  /* before it is decided */
void ledger_untold(const struct asked *asked); /* nobody knows what was granted */
void ledger_reset_begins(unsigned name, unsigned key);
void ledger_reset_ends(struct actor *actor, unsigned name, unsigned key, bool reset);
void ledger_dead(const struct actor *actor);

/* What is known of a key's override. While calls that change it overlap, nothing is; nor is it when
 * one of them has died. */
enum override_state { OVERRIDE_NONE, OVERRIDE_SET, OVERRIDE_UNKNOWN };
uint64_t override_begins(unsigned name, unsigned key);
void override_ends(const struct actor *actor, const struct asked *asked, uint64_t change,
                   enum override_state state, uint32_t limit, uint64_t until);

/* What stint_override_get told. */
void override_got(const struct actor *actor, unsigned name, unsigned key, int result,
                  uint32_t limit, uint64_t until);

/* Asks without being interrupted, or noticed. */
struct stint_verdict look_aside(struct actor *actor, const struct stint_request *request,
                                uint64_t now);
/* The same, when all clocks say that time. */
struct stint_verdict look_then(struct actor *actor, const struct stint_request *request,
                               uint64_t time);

/* Whether nobody else was in the middle of a call that may change the key, since this one began. */
bool is_alone(const struct actor *actor, unsigned name, unsigned key);

/* What refusals tell of waits, and all of what is used, is what a look then says (waits.c). */
void waits_check(struct actor *actor, const struct asked *asked,
                 const struct stint_verdict *verdicts, unsigned count);

/* The latest time by which a slot may be over for somebody: an early now counts, too, up to the
 * allowance. */
static inline uint64_t latest_over(void) {
    const uint64_t most = world->latest_clock + ALLOWANCE;
    return world->latest < most ? world->latest : most;
}

/* The time that a verdict was decided by, unless it is STINT_UNTRACKED. */
static inline uint64_t decided_by(const struct stint_verdict *verdict) {
    return verdict->window - verdict->reset_after;
}

/* Whether no slot that nobody touched is taken for another one, from then on for 100 days. */
bool ledger_clear(uint64_t time);

/* When nobody calls: all keys have used what the ledger says. */
void quiet_check(struct actor *actor);
/* And all that was held up is free in time. */
void end_check(struct actor *actor);

#endif
