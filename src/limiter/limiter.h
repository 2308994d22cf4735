/* SPDX-License-Identifier: MIT
 * What a limiter is made of: the process's own handle, and the policies and counters that live in
 * the mapping beside the table. */
#ifndef STINT_LIMITER_H
#define STINT_LIMITER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <stint.h>

#include "limiter/table.h"
#include "rule/calendar.h"
#include "rule/judge.h"
#include "rule/window.h"
#include "sys/atomic.h"
#include "sys/clock.h"
#include "sys/memory.h"

/* The part of the secret that joins keys, and hashes ids, starts here. For keys of up to 16 bytes
 * XXH3 reads the first 72 bytes that it is given. So short keys, pairs and ids are hashed by
 * different bytes. */
#define JOIN_SECRET_OFFSET 56

/* All that a decision reads of a policy. The atomic add (fast.h) reads the first line only. */
struct policy {
    /* The end (tick) of the window of the last decision: a hint that saves the division. Any end of
     * the policy's is safe. A calendar policy's has the window's days above the end (HINT_DAYS): 30
     * January is not in the window that ends with February. */
    _Alignas(CACHE_LINE) uint64_t current_end;
    uint64_t hot_window;   /* ns; 0: the atomic add is not for this policy */
    uint64_t hot_capacity; /* tokens up to which a fetch-add counts; 0: it may not */
    uint64_t window;       /* ns; bucket: the longest that it ever had (policy_record) */
    uint64_t reciprocal;   /* of the window (reciprocal_of) */
    tick_t length;         /* of the window; calendar: `length` and `window` are of the longest;
                            * bucket: the longest that one was ever not full (policy_reach) */
    tick_t start; /* of a window, but for a key's own phase; calendar: by the clock of the offset */
    uint64_t identity; /* policy_identity: its id, and the generation of its record */
    /* Second line: the rule. The one that counts is rules[version % 2]: the other can be written
     * meanwhile. The version is written last; 0: there is no such policy. */
    _Alignas(CACHE_LINE) uint64_t version;
    uint64_t rules[2][RULE_WORDS];
    uint64_t fade; /* ns; of the previous window's tokens (count_fade) */
};
static_assert(sizeof(struct policy) == (size_t)2 * CACHE_LINE, "a policy is two lines");

/* The rest of a policy. */
struct policy_record {
    _Alignas(CACHE_LINE) char name[STINT_NAME_SIZE];
    uint64_t rate_changed; /* ns: when a bucket's rate changed last (rate.h); 0: it did not */
    uint64_t bans[2];      /* by the policy's version, as its rules are (limiter_ban) */
    uint64_t reserved;     /* 0; a table of layout 5 may have what 0.3 wrote */
    uint32_t flags;        /* enum record_flags */
    uint32_t alias;        /* once it is gone: the id of the policy in its place + 1; 0: none */
    uint32_t companion;    /* the id of its companion + 1; 0: none. Of a companion: whose it is */
    uint32_t calendar;     /* enum stint_calendar; 0: all windows are of one length */
    int32_t offset;        /* of the calendar, minutes east of UTC */
    uint32_t generation;   /* how often the id was used again, or a bucket's rate changed */
    uint64_t rate_before;  /* of a bucket: the window before, ticks 32 | the limit before 32 */
    /* By the policy's version. Of a policy that is no bucket its words are 0. */
    uint64_t bucket_window[2]; /* ns: a bucket's window may change; 0: that of its policy */
    uint64_t ban_within[2];    /* ns in which strikes count; 0: as long as a ban */
    uint64_t bucket[2][2];     /* a bucket's rate, and the reciprocal of its unit (judge.h): the
                                * rate's number 4 | unit 60 */
};
static_assert(sizeof(struct policy_record) == (size_t)3 * CACHE_LINE, "a record is three lines");
static_assert(offsetof(struct policy_record, bucket_window) == (size_t)2 * CACHE_LINE,
              "a bucket reads one line of it");

enum record_flags {
    RECORD_UNNAMED = 1 << 0,   /* the name is the rate that the policy was added with */
    RECORD_COMPANION = 1 << 1, /* a companion, which has no name */
    RECORD_TWO_RATES = 1 << 2, /* slots may count by the rate before (rate.h) */
};

/* Counters (counters.h). A lane has a line for each policy, and one for the table. The first
 * LANES_MAX - 1 threads have a lane each, and add to it without a lock prefix. All others share
 * lane 0. */
enum {
    COUNT_ALLOWED,
    COUNT_REFUSED,
    COUNT_SHADOWED,
    COUNT_FIRST_REFUSAL,
    COUNT_UNTRACKED,
    COUNT_NEAR_LIMIT,
    COUNT_CHARGED,
    COUNT_REFUNDED,
};
/* Of a companion: what it did for its policy. */
enum {
    COUNT_BANNED,
    COUNT_STRIKE_LOST,
};
enum {
    COUNT_PLACED,
    COUNT_REPLACED,
    COUNT_CLOCK_STEP,
    COUNT_STRAY,
    COUNT_UNKNOWN_POLICY,
    COUNT_RESET,
    COUNT_BAD_REQUEST,
    COUNT_UNTRACKED_GONE, /* COUNT_UNTRACKED of policies whose ids are free */
};

struct counters {
    _Alignas(CACHE_LINE) uint64_t count[CACHE_LINE / sizeof(uint64_t)];
};

/* Counts of a policy that are seldom added to: one line, which all threads share. */
enum {
    RARE_REFUND_LOST,
    RARE_NOW_MISTAKEN,
};

#define LANES_MAX 64

/* The start of the mapping. What stands before the lock never changes; each process that attaches
 * checks it (open.c). */
struct header {
    _Alignas(CACHE_LINE) uint64_t magic; /* HEADER_MAGIC; written last. 0: not a table yet */
    uint32_t layout;                     /* HEADER_LAYOUT */
    uint32_t shards;
    uint64_t max_entries;
    uint32_t max_policies;
    uint32_t lanes;
    uint64_t size;     /* bytes, of the mapping */
    uint64_t features; /* a bit for each thing that an opener must know of: FEATURE_LOCK */
    uint64_t labels;   /* the offset of the labels, bytes; 0: there are none */
    uint64_t labels_count;
    _Alignas(CACHE_LINE) uint8_t secret[STINT_SECRET_SIZE];

    pthread_mutex_t lock; /* for set-up. Robust: after its holder died, the next one repairs */
    uint64_t unused[3];   /* 0; layout 5 has notes of overrides */

    _Alignas(CACHE_LINE) uint64_t policy_count;
    uint64_t smooth; /* a policy has two counts (TWO_COUNTS): those of slots are not tokens */
    uint64_t known;  /* the clock, as it was last read for a now (limiter_knows_now); ticks */
    _Alignas(CACHE_LINE) uint64_t lane_owners[LANES_MAX]; /* 0: nobody's, or lane 0 */
};

/* "stint", a line end that text transfers change, and 1. It tells the byte order, too. */
#define HEADER_MAGIC  UINT64_C(0x010a0d746e697473)
/* The upper half of the magic while a table is made. The lower half tells for which options. */
#define HEADER_MAKING UINT64_C(0x656b616d) /* "make" */
#define BEGIN_ANEW    "or remove the table to begin anew"
#define LATER_TABLE                                                                                \
    "what this version of stint does not know: use the version that made the table, " BEGIN_ANEW

/* Changes with anything that two processes must see alike: parts and sizes, tags and states, the
 * protocol, the hash. stint_resize reads the layout before its own, too. */
#define HEADER_LAYOUT 6

/* The set-up lock is not glibc's but, most likely, musl's. */
#define FEATURE_LOCK UINT64_C(1)
#ifdef __GLIBC__
#define HEADER_FEATURES UINT64_C(0)
#else
#define HEADER_FEATURES FEATURE_LOCK
#endif

/* Threads of a process have numbers from 1 to LANES_MAX - 1. 0: none yet. THREAD_NUMBERS - 1: none
 * was free at its first decision, or the thread is at its end. */
#define THREAD_NUMBERS (LANES_MAX + 1)

/* What each thread of this process has, by thread number: above all its lane. If the table is
 * shared, a child after fork finds these pages empty, and takes lanes of its own. */
struct own_lanes {
    struct {
        _Alignas(CACHE_LINE) uint64_t now; /* ns: the latest by which a bucket has decided */
    } latest[THREAD_NUMBERS];
    struct counters *rows[THREAD_NUMBERS]; /* NULL: none so far */
    uint64_t left;                         /* enum lanes_left */
    uint8_t firsts[THREAD_NUMBERS];        /* what stint_limiter_stripe says; 0: nothing so far */
};

enum lanes_left {
    LANES_TO_TRY, /* there may be one left for a thread that has none */
    LANES_NONE,   /* none was when somebody looked */
    LANES_GIVEN,  /* there never will be: they are not taken one by one */
};

#define CLOCK_GIVEN ((clockid_t)-1)

struct stint_limiter {
    /* Read by every decision, never written after open (but for `deciding`). */
    _Alignas(CACHE_LINE) struct table table;
    struct policy *policies;
    struct policy_record *records; /* of policies */
    struct own_lanes *own;
    struct counters *counters;
    uint32_t deciding; /* requests may name ids below this: max_policies; read-only, lost: 0 */
    uint32_t lanes;
    uint64_t (*clock)(void);
    clock_read *clock_read;
    clockid_t clock_id; /* for `clock_read`; CLOCK_GIVEN: `clock` is asked */
    uint32_t on_full;
    uint32_t max_policies;
    struct label *labels; /* NULL: there are none */
    uint64_t label_sets;
    _Alignas(CACHE_LINE) uint8_t secret[STINT_SECRET_SIZE];
    struct header *header;

    /* Set-up and monitoring. */
    struct counters *rare; /* of policies */
    struct memory memory;
    uint64_t forks; /* stint_limiter_process_lock, when the lock of private memory was made */
    /* A read-only handle's twin, in which requests may name all policies. Looks use it, which store
     * nothing. Else NULL. */
    struct stint_limiter *looking;
    struct stint_limiter *next; /* of those whose table is shared (counters.c) */
};

static inline uint64_t limiter_now(const struct stint_limiter *limiter) {
    struct timespec time;

    if (UNLIKELY(limiter->clock_id == CLOCK_GIVEN))
        return limiter->clock();
    if (UNLIKELY(limiter->clock_read(limiter->clock_id, &time) != 0)) /* the vDSO cannot */
        (void)clock_gettime(limiter->clock_id, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* Whether a caller's now is within the allowance of the clock, as it was last read for a now. Any
 * process may have read it, long ago: then who is early is less so, and who is late is later than
 * that. No count depends on it. */
static ALWAYS_INLINE bool limiter_knows_now(const struct stint_limiter *limiter, tick_t now) {
    const uint64_t known = atomic_load_relaxed(&limiter->header->known); /* M16 */
    return known - (uint64_t)now + (uint64_t)ALLOWANCE_TICKS <= 2 * (uint64_t)ALLOWANCE_TICKS;
}

/* Notes that a slot's end falls (I1): of a policy that is gone, a companion, a replaced key, or a
 * bucket. Steps of the clock are not noted. The slot may have this end again, for another key.
 * Until that window is over, a thread that added a token to it does not take it for its own key's
 * (slot.c, stint_slot_take_back). */
static inline void shard_end_falls(struct shard *shard, tick_t end, tick_t to) {
    if (end > to)
        atomic_raise(&shard->fallen_end, (uint64_t)end); /* M7: then it falls */
}

/* Whether this end, or a later one, may have fallen in a shard. */
static inline bool shard_end_fell(const struct shard *shard, tick_t end) {
    return end <= (tick_t)atomic_load_relaxed(&shard->fallen_end); /* M8 */
}

/* How far ahead of now the slots of a policy may be. A bucket's grows while others look. It may be
 * any number: the table may have been written over. */
static ALWAYS_INLINE tick_t policy_reach(const struct policy *policy) {
    return (tick_t)atomic_load_relaxed((const uint64_t *)&policy->length); /* M12 */
}

/* ---- Hints (policy.current_end) -------------------------------------------------------------- */

/* No end of ns since the epoch has more bits. */
#define HINT_DAYS 48 /* shift */
static_assert(UINT64_MAX / STINT_TICK_NS < UINT64_C(1) << HINT_DAYS, "days stand above an end");

static ALWAYS_INLINE tick_t hint_end(uint64_t hint) {
    return (tick_t)(hint & ((UINT64_C(1) << HINT_DAYS) - 1));
}

/* Whether now is outside the window of a hint: unless end > now >= end - window. */
static ALWAYS_INLINE bool hint_foreign(tick_t end, uint64_t window, uint64_t now) {
    return GUARD(HINT_WINDOW, tick_ns(end) - now - 1 >= window);
}

/* The length of a calendar window, ns. */
static ALWAYS_INLINE uint64_t hint_window(uint64_t hint) {
    return (hint >> HINT_DAYS) * (uint64_t)TICKS_IN_DAY * STINT_TICK_NS;
}

static inline uint64_t hint_of(struct span window, bool calendar) {
    uint64_t days = (uint64_t)((window.end - window.begin) / TICKS_IN_DAY);
    return (uint64_t)window.end | (calendar ? days << HINT_DAYS : 0);
}

/* The hint of a policy by which nobody has decided: the window of the clock's time. Where no hint
 * may have that (stint_window_compute), it is the next window, or the one before. */
uint64_t stint_limiter_hint_first(const struct stint_limiter *limiter, const struct policy *policy);

/* How many policies were added. Even in a damaged table it is at most max_policies. */
static inline uint32_t limiter_policy_count(const struct stint_limiter *limiter) {
    uint64_t count = atomic_load_acquire(&limiter->header->policy_count); /* M15 */
    return count < limiter->max_policies ? (uint32_t)count : limiter->max_policies;
}

/* A policy that exists, or NULL. What was written before its version is visible to the caller. */
static inline struct policy *limiter_policy(const struct stint_limiter *limiter, uint32_t id) {
    if (UNLIKELY(id >= limiter->max_policies))
        return NULL;
    struct policy *policy = &limiter->policies[id];
    return atomic_load_acquire(&policy->version) == 0 ? NULL : policy; /* M15 */
}

/* The length of a policy's window, by which others divide: a possible one, whatever is in the
 * table. A thread that sees a policy may sleep until its id is another's. */
static ALWAYS_INLINE tick_t policy_length(const struct policy *policy) {
    /* M15: written before the version. */
    const uint64_t length = atomic_load_relaxed((const uint64_t *)&policy->length);
    return UNLIKELY(GUARD(POLICY_LENGTH, length - 1 >= STINT_WINDOW_MAX / STINT_TICK_NS))
               ? 1
               : (tick_t)length;
}

/* The start of a policy's windows, likewise: its ns fit in 64 bits. */
static inline tick_t policy_start(const struct policy *policy) {
    const tick_t most = INT64_MAX / (tick_t)STINT_TICK_NS;
    /* M15 */
    const tick_t start = (tick_t)atomic_load_relaxed((const uint64_t *)&policy->start);
    return UNLIKELY(start < -most || start > most) ? 0 : start;
}

static inline const struct policy_record *limiter_record(const struct stint_limiter *limiter,
                                                         const struct policy *policy) {
    return &limiter->records[policy - limiter->policies];
}

/* The window of a calendar policy that holds a tick. */
static inline struct span limiter_calendar_window(const struct stint_limiter *limiter,
                                                  const struct policy *policy, tick_t tick) {
    const struct policy_record *record = limiter_record(limiter, policy);
    return calendar_window(tick, policy_start(policy), record->calendar, record->offset);
}

/* The policy of a slot's tag. NULL: a tombstone's, or nonsense. */
static inline struct policy *limiter_tag_policy(const struct stint_limiter *limiter, uint64_t tag) {
    return limiter_policy(limiter, tag_policy(&limiter->table, tag));
}

/* The traits and the capacity of a policy (judge.h, word 2 of a rule): one word, so both are of one
 * rule. 0: there is no such policy, or it is gone. */
static ALWAYS_INLINE uint64_t policy_word(const struct policy *policy) {
    uint64_t version = atomic_load_acquire(&policy->version); /* M15 */
    if (UNLIKELY(version == 0))
        return 0;
    return atomic_load_acquire(&policy->rules[version % 2][RULE_TRAITS]); /* M13 */
}

/* A policy's id and, above it, the generation of that id, as a verdict has them. The upper word is
 * 0, where a verdict has its unit. Whoever charges reads it first: the slots of a generation are
 * swept before the next one begins. So no verdict tells a later generation than was charged. */
static ALWAYS_INLINE words_2 policy_identity(const struct policy *policy) {
    return atomic_load_widened(&policy->identity); /* M15 */
}

/* Whether requests are decided by this id: its policy exists, and is no companion. */
static inline bool limiter_decides_by(const struct stint_limiter *limiter, uint32_t id) {
    return id < limiter->max_policies && (policy_word(&limiter->policies[id]) & TRAIT_EXISTS) != 0;
}

/* A whole copy of the rule. A writer writes the one that is not in use, and then the version. So a
 * writer that was killed holds up nobody. If the version has moved, a reader reads again. */
static ALWAYS_INLINE struct rule policy_rule(const struct policy *policy) {
    uint64_t words[RULE_WORDS];
    uint64_t version;

    do {
        version = atomic_load_acquire(&policy->version);                /* M15 */
        words[0] = atomic_load_acquire(&policy->rules[version % 2][0]); /* M13 */
        words[1] = atomic_load_acquire(&policy->rules[version % 2][1]); /* M13 */
    } while (UNLIKELY(atomic_load_relaxed(&policy->version) != version));
    return rule_unpack(words);
}

/* The window of a bucket, ns, by this version of its policy: a possible one, as policy_length. */
static ALWAYS_INLINE uint64_t limiter_bucket_window(const struct stint_limiter *limiter,
                                                    uint32_t id, uint64_t version) {
    /* M13 */
    uint64_t window = atomic_load_acquire(&limiter->records[id].bucket_window[version % 2]);
    if (UNLIKELY(window == 0))
        window = atomic_load_relaxed(&limiter->policies[id].window); /* M12 */
    return LIKELY(window - 1 < STINT_WINDOW_MAX && window % STINT_TICK_NS == 0) ? window
                                                                                : STINT_TICK_NS;
}

/* The rule of a bucket with these traits; if not `whole`, without its limit and its reserve.
 * Returns false if the policy has others by now. */
static ALWAYS_INLINE bool limiter_bucket_load(const struct stint_limiter *limiter, uint32_t id,
                                              uint32_t traits, bool whole, struct bucket *bucket) {
    const struct policy *policy = &limiter->policies[id];
    const uint64_t version = atomic_load_acquire(&policy->version); /* M15 */
    const uint64_t *words = policy->rules[version % 2];
    const uint64_t *of = limiter->records[id].bucket[version % 2];
    const uint64_t has = atomic_load_acquire(&words[RULE_TRAITS]); /* M13 */

    if (whole) {
        bucket->limit = (uint32_t)atomic_load_acquire(&words[0]);        /* M13 */
        bucket->max_reserved = (uint32_t)atomic_load_acquire(&words[1]); /* M13 */
        bucket->window = limiter_bucket_window(limiter, id, version);
    }
    const uint64_t rate = atomic_load_acquire(&of[0]); /* M13 */
    bucket->burst = (uint32_t)(has >> 32);
    bucket->unit = rate & UNIT_MASK;
    bucket->rate = rate >> RATE_NUMBER << STATE_RATE_SHIFT;
    bucket->version = version;
    bucket->reciprocal = atomic_load_acquire(&of[1]); /* M13 */
    return LIKELY(version != 0) && LIKELY((uint32_t)has == traits) &&
           LIKELY(atomic_load_relaxed(&policy->version) == version); /* M13 */
}

static ALWAYS_INLINE bool limiter_bucket(const struct stint_limiter *limiter, uint32_t id,
                                         uint32_t traits, struct bucket *bucket) {
    return limiter_bucket_load(limiter, id, traits, true, bucket);
}

/* What bans keys. */
struct ban {
    /* From this bit up, its ticks; below, in how many windows a key must have been refused. 0: the
     * policy bans nobody. */
#define BAN_TICKS 16
    uint64_t word;
    uint64_t within; /* ns in which these windows lie; 0: as long as the ban */
};

/* The ban that goes with the rule, read as the rule is. */
static inline struct ban limiter_ban(const struct stint_limiter *limiter, uint32_t id) {
    const struct policy *policy = &limiter->policies[id];
    const struct policy_record *record = &limiter->records[id];
    struct ban ban;
    uint64_t version;

    do {
        version = atomic_load_acquire(&policy->version);                    /* M15 */
        ban.word = atomic_load_acquire(&record->bans[version % 2]);         /* M13 */
        ban.within = atomic_load_acquire(&record->ban_within[version % 2]); /* M13 */
    } while (UNLIKELY(atomic_load_relaxed(&policy->version) != version));
    return ban;
}

/* Whether a policy was removed or replaced. */
static inline bool policy_gone(const struct policy *policy) {
    return atomic_load_acquire(&policy->version) != 0 && policy_word(policy) == 0; /* M15 */
}

#define POLICY_NONE UINT32_MAX

/* With this bit, an alias names a policy that is to decide as soon as this one is gone: it has all
 * but its version, which counts one too few (limiter.c, policy_wake). */
#define ALIAS_WAKES (UINT32_C(1) << 31)
static_assert(STINT_POLICIES_MAX < ALIAS_WAKES, "an id + 1 is below the bit");

/* The id that took the place of a policy that is gone. POLICY_NONE: there is none. */
static inline uint32_t limiter_policy_after(const struct stint_limiter *limiter, uint32_t id) {
    if (limiter_policy(limiter, id) == NULL) /* its record may be being written, plainly */
        return POLICY_NONE;
    /* After the traits, which are an acquire (M15). 0: POLICY_NONE. */
    return ((uint32_t)atomic_load_relaxed_32(&limiter->records[id].alias) & ~ALIAS_WAKES) - 1;
}

/* The id of the policy that decides for requests by this id: itself, or the one in its place.
 * POLICY_NONE: there is none. */
uint32_t stint_limiter_policy_now(const struct stint_limiter *limiter, uint32_t id);

/* The same id, and the traits that it had then. Read again, they may be 0: it was replaced. */
uint32_t stint_limiter_policy_and_traits(const struct stint_limiter *limiter, uint32_t id,
                                         uint32_t *traits);

/* The id of a policy's companion (override.h), or POLICY_NONE. */
static inline uint32_t limiter_companion(const struct stint_limiter *limiter, uint32_t id) {
    /* M15 */
    uint32_t companion = (uint32_t)atomic_load_relaxed_32(&limiter->records[id].companion);
    return companion <= limiter->max_policies ? companion - 1 : POLICY_NONE;
}

/* Of a record, enum record_flags. One changes while others look (rate.h). */
static inline uint32_t record_flags(const struct stint_limiter *limiter, uint32_t id) {
    return (uint32_t)atomic_load_relaxed_32(&limiter->records[id].flags); /* M15 */
}

static inline bool is_companion(const struct stint_limiter *limiter, uint32_t id) {
    return (record_flags(limiter, id) & RECORD_COMPANION) != 0;
}

/* ---- Lost tables ----------------------------------------------------------------------------- */

/* Whether the table is lost: its file was cut off. A SIGBUS shows it (mapping.h). If the file has
 * grown again before anybody looked, there is none; but then the header is zeros: this looks at it,
 * too. Decisions ask only if they find no policy. */
bool stint_limiter_lost(const struct stint_limiter *limiter);

/* Returns 0; of a lost table -EPROTO. */
int stint_limiter_whole(const struct stint_limiter *limiter);

/* Returns -ENOENT, as there is no policy of that id; of a lost table -EPROTO. */
int stint_limiter_no_policy(const struct stint_limiter *limiter);

/* ---- The lock for set-up --------------------------------------------------------------------- */

/* Makes a new table's lock for set-up. */
void stint_limiter_lock_make(pthread_mutex_t *lock);

/* Takes the table's lock for set-up, for stint_policies_lock alone. Returns 0; EOWNERDEAD: its
 * holder died, and the caller repairs what was left; -EBUSY: it was held for too long; -EPROTO. */
int stint_limiter_lock(struct stint_limiter *limiter);

/* Gives the lock back. Returns `error`, which is the caller's; or -EPROTO: the table was lost
 * meanwhile. */
int stint_limiter_unlock(struct stint_limiter *limiter, int error);

#endif
