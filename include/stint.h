/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * stint: a lock-free in-process rate limiter: windows, token buckets, in-flight limits.
 *
 *     struct stint_options options = STINT_OPTIONS_INIT;
 *     struct stint_limiter *limiter;
 *     const char *text = "100/minute name=api\n5/day name=login";
 *     uint32_t api;
 *     options.max_entries = 100000;
 *     if (stint_open(&options, &limiter) != 0 ||
 *         stint_policies_apply(limiter, text, 0, NULL, NULL, NULL) != 0 ||
 *         stint_policy_find(limiter, "api", &api) != 0)
 *         give_up(stint_reason());
 *
 *     struct stint_verdict verdict;
 *     stint_key key = stint_key_of(limiter, client, client_length);
 *     if (!stint_take(limiter, api, key, 1, STINT_NOW, &verdict))
 *         refuse_with_retry_after(verdict.retry_after);
 *
 * WHAT IT PROMISES. Tests and comments cite the letters.
 *
 *  A  Never over-admits: a key is granted no more in a window than its policy allows.
 *  B  Never refuses for nothing: what is refused did not fit at some instant during the call.
 *  C  A refused request costs nothing, but for one bit at a key's first refusal in a window.
 *  D  Bounded: all memory is taken at open; a decision looks at a bounded number of cache lines.
 *  E  Lock-free: no lock, no system call, nothing allocated; who stops or dies holds up nobody.
 *  F  A live key is never dropped to make room, unless STINT_FULL_REPLACE was chosen.
 *  G  A full table is a stated outcome: STINT_FULL_ADMIT, _REFUSE or _REPLACE.
 *  H  Time is an argument: late threads take no window back, a clock set back costs 60 s at most.
 *  I  Keys are full 64-bit keyed hashes.
 *
 * The contract is stint.h and doc/promises.md, stint-promises(7). That page has each promise in
 * full with its exceptions (A1 to A3, B1 to B5), the sections that stand here in capitals, and WHAT
 * TO KNOW before you depend on stint.
 *
 * THREADS. Any number of threads may call every function at once, but none may after stint_close.
 * Signal handlers may make keys, decide and give back.
 *
 * ARGUMENTS. A struct that begins with `size` is made with its _INIT macro (STRUCTS). A policy is
 * an id that stint_policy_add gave, a key one that its limiter made. A verdict may be NULL. Text is
 * NUL-terminated; in a buffer it is cut if it is too long.
 *
 * ERRORS. An int is 0 or the length of a text, else one of ERROR CODES, negated: -EINVAL. Then
 * stint_reason says what is wrong, and what to write. Out pointers are written only on success. */
#ifndef STINT_H
#define STINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What compilers check of a call: no NULL; an array and its length (no NULL unless that is 0), that
 * is read, read and written, or written; its result. */
#if defined(__GNUC__)
#define STINT_API          __attribute__((visibility("default")))
#define STINT_CHECKED      __attribute__((warn_unused_result))
#define STINT_NONNULL(...) __attribute__((nonnull(__VA_ARGS__)))
#else
#define STINT_API
#define STINT_CHECKED
#define STINT_NONNULL(...)
#endif
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 10
#define STINT_READS(...)   __attribute__((access(read_only, __VA_ARGS__)))
#define STINT_CHANGES(...) __attribute__((access(read_write, __VA_ARGS__)))
#define STINT_WRITES(...)  __attribute__((access(write_only, __VA_ARGS__)))
#else
#define STINT_READS(...)
#define STINT_CHANGES(...)
#define STINT_WRITES(...)
#endif

struct stint_limiter; /* opaque */

/* ---- Opening ------------------------------------------------------------------------------- */

/* The shape of a table, and how this process uses it. */
struct stint_options {
    size_t size;           /* sizeof(struct stint_options) */
    uint64_t max_entries;  /* live (key, policy) pairs to hold at once: clients times policies, from
                            * 3 policies on a quarter more; an override, a ban and strikes take one
                            * more each. 1 .. 2^40; required */
    uint32_t shards;       /* a power of two, at most 2^16 and at most max_entries; 0: chosen */
    uint32_t max_policies; /* ids of policies; 0: 64; at most 4,096 */
    uint32_t on_full;      /* enum stint_on_full */
    uint32_t flags;        /* enum stint_options_flags */
    const char *path;      /* NULL: private memory. Else a file, which processes share, and which
                            * restarts keep (SHARED TABLES) */
    uint64_t (*clock)(void); /* ns since the epoch; NULL: the realtime clock (CLOCKS) */
    const void *secret; /* NULL: random, or that of the table which is attached to. Else [secret,
                         * secret+192) is copied: for tests, and for equal hashes in many tables */
    uint32_t mode;   /* permission bits of a file that is made, whatever the umask; 0: 0600. Readers
                      * learn a lot (READERS); writers are trusted with all */
    uint32_t labels; /* names of keys that it has room for (stint_label), 64 bytes each, at most
                      * 2^24; 0: none. Names of keys may be personal data */
};

#define STINT_OPTIONS_INIT                                                                         \
    { sizeof(struct stint_options), 0, 0, 0, 0, 0, NULL, NULL, NULL, 0, 0 }

/* Opens a limiter and takes all the memory that it will ever use. After a fork, one in private
 * memory is two, which count apart (FORK).
 *   options  made with STINT_OPTIONS_INIT; max_entries is required; copied. With STINT_READ_ONLY
 *            the file must be there (-ENOENT): it shows whether a server would accept its table
 *   limiter  receives the limiter
 * Returns 0; -EINVAL, -ENOMEM, -EAGAIN; with a path also -EPROTO, -EBUSY, -ELOOP, and what the
 * system says. The reason for an error of the file begins with its path.
 * Cost: a mapping of 32.5 bytes per entry; with STINT_PREFAULT its pages are also zeroed now. */
STINT_API STINT_CHECKED int stint_open(const struct stint_options *options,
                                       struct stint_limiter **limiter);

/* Closes a limiter, and gives its memory back. A table in a file stays. To close a limiter twice is
 * a bug, as it is with free().
 *   limiter  as it was opened; NULL does nothing
 * Threads: nobody may use the limiter any more. */
STINT_API void stint_close(struct stint_limiter *limiter);

/* What happens to a key that has no slot when every slot it may use holds a live key:
 * stint_options.on_full (FULL TABLES). */
enum stint_on_full {
    STINT_FULL_ADMIT = 0,   /* what is within the capacity is let through (STINT_UNTRACKED) */
    STINT_FULL_REFUSE = 1,  /* it is refused (STINT_UNTRACKED) */
    STINT_FULL_REPLACE = 2, /* it takes the slot of the key that has used least (STINT_REPLACED) */
};

/* Flags of stint_options, or-ed together. */
enum stint_options_flags {
    STINT_PREFAULT = 1 << 17,      /* touch all memory at open, so that no decision faults */
    STINT_SMALL_PAGES = 1 << 18,   /* do not ask for huge pages */
    STINT_PRECISE_CLOCK = 1 << 19, /* CLOCK_REALTIME: not 1 to 10 ms behind, but dearer (CLOCKS) */
    STINT_READ_ONLY = 1 << 20,     /* with a path: never write to the table (READERS) */
};

/* ---- Numbers ------------------------------------------------------------------------------- */

/* The version of this header; stint_version() is that of the library. Before 1.0 two go together if
 * MAJOR and MINOR are the same. STINT_VERSION of 1.2.3 is 1002003. */
#define STINT_VERSION_MAJOR 0
#define STINT_VERSION_MINOR 5
#define STINT_VERSION_PATCH 0
#define STINT_VERSION                                                                              \
    (STINT_VERSION_MAJOR * 1000000 + STINT_VERSION_MINOR * 1000 + STINT_VERSION_PATCH)

/* Plain literals, for generators of bindings. */
#define STINT_KEY_GLOBAL_HASH 0ULL                    /* of STINT_KEY_GLOBAL, and of no other key */
#define STINT_NOW             18446744073709551613ULL /* let the limiter read its clock */
#define STINT_NEVER           18446744073709551615ULL /* retry_after of a cost that can never fit */
#define STINT_TICK_NS         10000000ULL          /* 10 ms: windows and starts are whole ticks */
#define STINT_WINDOW_MIN      10000000ULL          /* ns: 10 ms */
#define STINT_WINDOW_MAX      31622400000000000ULL /* ns: 366 days */
#define STINT_LIMIT_MAX       268435456U           /* tokens: 2^28 */
#define STINT_ENTRIES_MAX     1099511627776ULL     /* 2^40 */
#define STINT_POLICIES_MAX    4096U
#define STINT_SHARDS_MAX      65536U
#define STINT_BAN_AFTER_MAX   65535U    /* windows */
#define STINT_ALL_MAX         64        /* requests that stint_decide_all decides as one */
#define STINT_SECRET_SIZE     192       /* bytes */
#define STINT_NAME_SIZE       64        /* bytes, the terminating NUL included */
#define STINT_LABEL_SIZE      40        /* bytes of a key's label that are kept; no NUL */
#define STINT_LABELS_MAX      16777216U /* 2^24 */

/* ---- Policies ------------------------------------------------------------------------------ */

/* Flags of stint_policy, or-ed together. */
enum stint_policy_flags {
    /* Refused tokens count as used, up to 2^28, as in the INCR recipes of Redis. Refusals write. */
    STINT_COUNT_REFUSED = 1 << 0,
    /* Decide and count, but let everything through (STINT_SHADOWED): to try a limit. */
    STINT_SHADOW = 1 << 1,
    /* Each key's windows start at an instant of its own: not all clients come back at once. */
    STINT_START_PER_KEY = 1 << 2,
    /* Sliding window counter: a request fits if ceil(previous * time left in this window / window)
     * + current + cost <= limit, where previous and current are the tokens of the last window and
     * of this one. limit at most 16,383. Small limits are better buckets (SMOOTH WINDOWS). */
    STINT_SMOOTH = 1 << 3,
    /* A key's window begins with its first request, and lasts one window (up to 10 ms less, as it
     * begins with a tick): the recipes of INCR and EXPIRE. A request that takes nothing and is not
     * refused begins none; its verdict tells the window that would begin now. */
    STINT_START_FIRST = 1 << 4,
    /* At most `limit` held at once, instead of granted per window. A take holds `cost` until
     * stint_refund gives it back, by its verdict, in any thread or process. The window is a lease:
     * what nobody gives back is forgotten by itself, one to two windows after it was taken. So
     * `10/30s in-flight` is ten at once, for work below 30 s. limit at most 16,383 (IN FLIGHT). */
    STINT_IN_FLIGHT = 1 << 5,
    /* Keys can have limits of their own for a while (stint_override), and be banned (`ban`). It
     * takes a second id. Not with stripes. */
    STINT_OVERRIDES = 1 << 6,
};

/* Windows that are not all of one length: stint_policy.calendar. The end of each is its id. */
enum stint_calendar {
    STINT_CALENDAR_MONTH = 1,
    STINT_CALENDAR_YEAR = 2,
};

/* A limit, its windows, and what else requests are decided by. Windows are [start + k * window,
 * start + (k + 1) * window) for every integer k, or those of STINT_START_FIRST, or of the calendar.
 *
 * A plain policy (capacity <= limit, max_reserved 0) begins every window with nothing used. With a
 * capacity above the limit, or with max_reserved, what is used is paid back by `limit` tokens in
 * every new window: used = max(0, used - limit * windows passed). So unused tokens roll over up to
 * the capacity, and debts are paid. A key that was never seen has used nothing.
 *
 * Some fields and flags do not go together, which is -EINVAL (WHAT GOES TOGETHER). */
struct stint_policy {
    size_t size;                /* sizeof(struct stint_policy) */
    char name[STINT_NAME_SIZE]; /* unique in the limiter; printable ASCII (as a string of RFC
                                 * 9651); empty: its rate in the notation, such as "100/minute" */
    uint32_t limit;        /* tokens granted per window; 1 .. 2^28. For larger quotas let a token be
                            * a KiB or a MiB */
    uint32_t capacity;     /* most tokens a key can hold; 0: limit; below the limit, a window grants
                            * no more than this */
    uint32_t max_reserved; /* tokens that STINT_RESERVE may take ahead; at most 2^28 - capacity */
    uint32_t stripes;      /* slots that each key is split over, for hot keys (STRIPED POLICIES); a
                            * power of two <= 64, limit and capacity; 0 or 1: off */
    uint64_t window;       /* ns; 10 ms .. 366 days, a multiple of 10 ms; 0 with `calendar` */
    int64_t start;         /* ns since the epoch at which one window starts, a multiple of 10 ms; 0:
                            * aligned to the epoch, so to UTC minutes and days. 0 with
                            * STINT_START_PER_KEY and STINT_START_FIRST. With `calendar`, the day
                            * and time at which months or years begin (NOTATION) */
    uint32_t flags;        /* enum stint_policy_flags */
    uint32_t near_limit;   /* percent of the capacity, 1 .. 100: STINT_NEAR_LIMIT; 0: off */
    uint32_t jitter;       /* percent of the window, 0 .. 100: retry_after of a refusal is later by
                            * a part of this, which key and window tell; 0: exact */
    uint32_t calendar;     /* enum stint_calendar; 0: all windows are `window` long */
    int32_t offset;        /* of the calendar's clock: minutes east of UTC, -720 .. 840 */
    uint32_t ban_after;    /* windows, 1 .. 65,535; 0: 1. A key that was refused in so many of them,
                            * within ban_within of the first, is banned */
    uint64_t ban;          /* ns for which a key is banned: refused everything, whatever is left; 10
                            * ms .. 366 days, a multiple of 10 ms; 0: no key is banned. It needs
                            * STINT_OVERRIDES. Take one longer than the window (BANS) */
    uint32_t burst;        /* tokens, 1 .. 2^28: the policy is a token bucket that holds so many
                            * (TOKEN BUCKETS); 0: it counts in windows. burst + max_reserved is at
                            * most 2^28, and comes back within 366 days. limit at most 10 million a
                            * second */
    uint32_t reserved;     /* 0 */
    uint64_t ban_within;   /* ns, in the range of `ban`: how long after a first refusal others count
                            * towards a ban (ban_after); 0: as long as `ban` */
};

#define STINT_POLICY_INIT                                                                          \
    { sizeof(struct stint_policy), {0}, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Reads a policy from the text notation.
 *
 *     COUNT / [N] UNIT  [OPTION ...]        100/minute   5/s   100/15m   1M/day
 *     COUNT per [N] UNIT  [OPTION ...]      100 per 15 minutes
 *     COUNT / month  [OPTION ...]           10000/month   1M per year
 *                                           10/s burst=20 (a token bucket)   10/30s in-flight
 *
 * COUNT is 1 to 2^28, with an optional K (thousand) or M (million). UNIT is ms, s, m, h, d, w or a
 * longer form, in any case. Options, in any order, each at most once:
 *     name=NAME or name="NAME"     start=2024-01-01T05:00:00Z (RFC 3339; or a date, at 00:00 UTC)
 *     burst=COUNT      in-flight       smooth         start=per-key    start=first
 *     capacity=COUNT   reserve=COUNT   shadow         count-refused    stripes=COUNT
 *     overrides        ban=10m         after=COUNT    within=1h        near=80%    jitter=10%
 *
 * Each sets the field or flag of that name, or nearly so: near= near_limit, reserve= max_reserved,
 * after= ban_after. NOTATION has longer forms, and what weeks, months and bans are.
 *   policy  made with STINT_POLICY_INIT; receives all fields
 *   wrong   on -EINVAL receives the character in `text` that is wrong; if two options do not go
 *           together, the first character of the later one. May be NULL
 * Returns 0; -EINVAL (the text is wrong; stint_reason names the wrong word, and what to write). */
STINT_API STINT_CHECKED int stint_policy_parse(const char *text, struct stint_policy *policy,
                                               const char **wrong);

/* Adds a policy. It takes effect at once. If the same policy is there, by its name and all its
 * numbers, this gives its id and adds none: so each worker adds its policies when it starts. No
 * worker has to find an id again: while it has the table open the id is good, also if a reload
 * changes or replaces the policy (RELOADS).
 *   policy  made with STINT_POLICY_INIT, by hand or by stint_policy_parse; copied
 *   id      receives its id, 0 .. max_policies - 1; may be NULL (stint_policy_find tells it later)
 * Returns 0; -EINVAL, -EEXIST (the name is that of a policy with other numbers), -ENOSPC, -EBUSY,
 * -EPROTO, -EROFS. */
STINT_API STINT_CHECKED int stint_policy_add(struct stint_limiter *limiter,
                                             const struct stint_policy *policy, uint32_t *id);

/* Finds a policy by its name.
 *   id  receives its id; may be NULL, which asks whether there is one
 * Returns 0; -ENOENT, -EINVAL. */
STINT_API STINT_CHECKED int stint_policy_find(const struct stint_limiter *limiter, const char *name,
                                              uint32_t *id);

/* ---- Keys ---------------------------------------------------------------------------------- */

/* Who is limited: a client, a user, a user and an endpoint. It is passed by value. A number is no
 * key: stint_key_of_id makes one of it. STINT_KEY_GLOBAL is one counter shared by all, and no key
 * that is made. */
struct stint_key {
    uint64_t hash; /* keyed, so it is of use with its own table only */
};
typedef struct stint_key stint_key;

#ifdef __cplusplus
#define STINT_KEY_GLOBAL (stint_key{STINT_KEY_GLOBAL_HASH})
#else
#define STINT_KEY_GLOBAL ((stint_key){STINT_KEY_GLOBAL_HASH})
#endif

/* Makes a key of bytes. They are hashed with the limiter's secret (XXH3, 64 bits; promise I).
 *   bytes  [bytes, bytes+length) is readable; any bytes, NUL among them; NULL only if length is 0
 * Returns the key.
 * Cost: about 2 ns for 16 bytes. */
STINT_API stint_key stint_key_of(const struct stint_limiter *limiter, const void *bytes,
                                 size_t length) STINT_NONNULL(1) STINT_READS(2, 3);

/* Makes a key of a number: a user's id. It is another key than stint_key_of makes of its bytes.
 *   id  any number
 * Returns the key. */
STINT_API stint_key stint_key_of_id(const struct stint_limiter *limiter, uint64_t id)
    STINT_NONNULL(1);

/* Joins one more part to a key without copying: a user, then an endpoint. The parts stay apart
 * ("ab", "c" is another key than "a", "bc"), and their order counts.
 *   key  what was joined so far
 * Returns the key. */
STINT_API stint_key stint_key_join(const struct stint_limiter *limiter, stint_key key,
                                   const void *bytes, size_t length) STINT_NONNULL(1)
    STINT_READS(3, 4);

struct sockaddr; /* <sys/socket.h> */
/* Makes a key of a client's address. It is made of the address's first bits, and of their number.
 * IPv4-mapped IPv6 is IPv4. All addresses of another family (unix sockets) are one key.
 *   address  a sockaddr_in or sockaddr_in6; the port does not count
 *   prefix4  bits of an IPv4 address, 1 .. 32; 0: 32
 *   prefix6  bits of an IPv6 address, 1 .. 128; 0: 64, which is what one customer has
 * Returns the key. Other prefix lengths are other keys. */
STINT_API stint_key stint_key_address(const struct stint_limiter *limiter,
                                      const struct sockaddr *address, unsigned prefix4,
                                      unsigned prefix6) STINT_NONNULL(1, 2);

/* Compares two keys: structs have no ==.
 *   a  a key
 *   b  another
 * Returns whether they are one. */
STINT_API bool stint_key_equal(stint_key a, stint_key b);

/* ---- Deciding ------------------------------------------------------------------------------ */

/* Flags of stint_verdict, or-ed together. */
enum stint_verdict_flags {
    /* The first refusal of this key in this window, exactly once: log it, the log stays bounded.
     * Shadowed refusals have it too; refusals without a slot do not. */
    STINT_FIRST_REFUSAL = 1 << 0,
    /* Would have been refused, but the policy is a shadow. */
    STINT_SHADOWED = 1 << 1,
    /* The table was full: nothing was counted for this key. `window` is 0, and a refund by it gives
     * nothing back; `granted` is what was let through. By a lost limiter (SHARED TABLES) every
     * verdict is so, and all its other numbers are 0. */
    STINT_UNTRACKED = 1 << 2,
    /* The table was full: another key lost its slot to this one. */
    STINT_REPLACED = 1 << 3,
    /* There is no such policy, or it was removed: refused, retry_after STINT_NEVER, all else 0. The
     * client is not at fault: let it through, or answer 500, and log it. */
    STINT_UNKNOWN_POLICY = 1 << 4,
    /* More than the policy's near_limit percent of the capacity is used. */
    STINT_NEAR_LIMIT = 1 << 5,
    /* The request makes no sense: refused, retry_after STINT_NEVER, all else 0. It is a bug of the
     * caller's, which stint_request_check names: flags that are unknown, or do not go together or
     * with the policy; a reserved word that is not 0; a charge in a group, or two requests of one
     * key by one policy; a wrong size of a group; a limiter that only reads (READERS). */
    STINT_BAD_REQUEST = 1 << 6,
    /* The key is banned (stint_policy.ban), perhaps since this very refusal. retry_after is the
     * time until the ban is over and the cost fits. A shadow lets it through (BANS). */
    STINT_BANNED = 1 << 7,
    /* A ban or an override of the key (stint_override) decided: `capacity` is its limit. */
    STINT_OVERRIDDEN = 1 << 8,
    /* `now` was more than two minutes from the clock, and the request was decided at the clock's
     * time (LATE AND EARLY). It is a bug of the caller's; a test sets options.clock. */
    STINT_MISTAKEN_NOW = 1 << 9,
};

/* The answer to a request. */
struct stint_verdict {
    bool allowed;         /* let it through */
    uint32_t flags;       /* enum stint_verdict_flags */
    uint32_t capacity;    /* most tokens the key can hold */
    uint32_t used;        /* tokens taken, those of this request included. Smooth: the sum that is
                           * compared with the limit. In flight: what is held. It can be more than
                           * `capacity` (VERDICTS) */
    uint32_t remaining;   /* tokens left: capacity - used, or 0; 0 if the full table refused */
    uint32_t granted;     /* tokens this request took: the cost; with STINT_PARTIAL it may be less;
                           * with STINT_CHARGE what was charged; 0 if refused, shadowed or only
                           * looked, and of a key that is never refused */
    uint64_t window;      /* end of the window that was charged, ns since the epoch: its id. 0: none
                           * was charged (STINT_UNTRACKED). Of a bucket, when it is full */
    uint64_t reset_after; /* ns to the end of the window; until the bucket is full */
    uint64_t retry_after; /* refused or shadowed: ns until the whole cost would fit if nobody else
                           * took or gave back, and jitter; STINT_NEVER: it never fits. Granted: 0;
                           * of a reservation the ns to wait before its tokens are there */
    uint32_t policy;      /* the id of the policy that decided, also where an older one was asked;
                           * UINT32_MAX: none did (UNKNOWN_POLICY, BAD_REQUEST, a lost table) */
    uint32_t generation;  /* of that id, which a later policy may get; of a bucket's rate */
    uint64_t unit;        /* of a bucket: ns that each token took; else 0 */
};

/* Takes `cost` tokens of a key if they are left in its present window, else takes nothing.
 *   cost  tokens, 0 or more; 0 takes nothing, and is allowed unless more is used than the capacity
 *   now   STINT_NOW, or ns since the epoch by the limiter's own clock (stint_now), within 60 s. One
 *         that is more than two minutes off is decided at the clock's time (STINT_MISTAKEN_NOW)
 * Returns verdict.allowed.
 * Cost: one cache line of the table. One token by most policies is one atomic add, all else one
 * compare-and-swap; a refusal only reads, but for the first of a key in a window. */
STINT_API bool stint_take(struct stint_limiter *limiter, uint32_t policy, stint_key key,
                          uint32_t cost, uint64_t now, struct stint_verdict *verdict)
    STINT_NONNULL(1);

/* Reads the limiter's clock: once for many requests, say.
 * Returns ns since the Unix epoch. */
STINT_API uint64_t stint_now(const struct stint_limiter *limiter) STINT_NONNULL(1);

/* Flags of stint_request, or-ed together. */
enum stint_request_flags {
    /* Look, take nothing, count nothing: whether the request would be let through, and what it
     * would be told, by a full table too. */
    STINT_PEEK = 1 << 9,
    /* Take what is left if that is less than the cost; refused if nothing is. Not with stripes. */
    STINT_PARTIAL = 1 << 10,
    /* If the cost does not fit, refuse it and take what is left. Not in flight, nor striped. */
    STINT_DRAIN = 1 << 11,
    /* Take up to the policy's max_reserved tokens ahead. The next windows, or the bucket's refill,
     * pay them back. A caller that is granted waits verdict.retry_after before it does the work. */
    STINT_RESERVE = 1 << 12,
    /* Charge the whole cost, whatever is left: for costs that are known only after the work (bytes,
     * model tokens, CPU time). A charge is never refused. STINT_PEEK | STINT_CHARGE is the look
     * before one. Not in groups (but the look), nor with STINT_PARTIAL, STINT_DRAIN,
     * STINT_RESERVE, STINT_IN_FLIGHT, or a limit or burst of the request's own (CHARGES). */
    STINT_CHARGE = 1 << 13,
    /* Take for work that may come to nothing (a login is a failed one until it succeeds): then give
     * it back. A refusal is no first one, and no strike (TENTATIVE REQUESTS). */
    STINT_TENTATIVE = 1 << 14,
};

/* What is asked for: tokens of a key, by a policy. STINT_REQUEST(policy, key, cost) initialises
 * one, with 0 in all else, in C and in C++. */
struct stint_request {
    stint_key key;     /* who is limited */
    uint32_t policy;   /* its id */
    uint32_t cost;     /* tokens */
    uint32_t limit;    /* this call's own limit in place of the policy's capacity (of a bucket: of
                        * its limit). 1 .. 2^28 (smooth, in flight: 16,383); more is taken as that,
                        * also with what STINT_RESERVE may take. 0: the policy's holds: it blocks
                        * nobody. Not with stripes */
    uint32_t flags;    /* enum stint_request_flags; others are refused (STINT_BAD_REQUEST) */
    uint32_t burst;    /* how much of a bucket, and of what STINT_RESERVE takes ahead, may be used
                        * after this request, tokens; 0, or more: all that the policy allows. Not
                        * by other policies, nor with STINT_CHARGE (STINT_BAD_REQUEST) */
    uint32_t reserved; /* 0 */
};

#define STINT_REQUEST(policy, key, cost)                                                           \
    { {(key).hash}, policy, cost, 0, 0, 0, 0 }

/* Decides one request: stint_take with all options.
 *   request  made with STINT_REQUEST; its fields and flags have their ranges beside them
 * Returns verdict.allowed. */
STINT_API bool stint_decide(struct stint_limiter *limiter, const struct stint_request *request,
                            uint64_t now, struct stint_verdict *verdict) STINT_NONNULL(1, 2);

/* Decides n requests as one: all of them take their tokens, or none does. For several limits on one
 * request (2,000/hour and 33/minute), and for ladders of prefixes. It looks at each request. If all
 * fit, it decides each, and gives all back if one is refused after all (GROUPS).
 *   n         at most STINT_ALL_MAX; 0 are allowed. More are refused, and so are two of one key by
 *             one policy (add their costs): each verdict is marked STINT_BAD_REQUEST
 *   verdicts  [verdicts, verdicts+n) receives the verdicts; may be NULL. If the whole is refused,
 *             those with `allowed` false are what refused it, and the largest retry_after of these
 *             is when it is worth asking again. The others are looks
 * Returns whether all were allowed (shadowed ones count as allowed).
 * Cost: about that of n takes; the cache misses overlap. */
STINT_API bool stint_decide_all(struct stint_limiter *limiter, const struct stint_request *requests,
                                size_t n, uint64_t now, struct stint_verdict *verdicts)
    STINT_NONNULL(1) STINT_READS(2, 3);

/* Decides n independent requests in order. Their cache misses overlap, so that out of cache a batch
 * of 16 costs a fraction of 16 calls, and one of 64 less. If you gather the requests one by one,
 * call stint_prefetch on each key as soon as you have it.
 * Returns how many were allowed. */
STINT_API size_t stint_decide_batch(struct stint_limiter *limiter,
                                    const struct stint_request *requests, size_t n, uint64_t now,
                                    struct stint_verdict *verdicts) STINT_NONNULL(1)
    STINT_READS(2, 3);

/* Decides many groups of requests, each as stint_decide_all does: the several limits of the many
 * requests that one turn of an event loop has in hand. The cache misses of all of them overlap.
 *   n       how many requests all groups have
 *   sizes   [sizes, sizes+groups): how many requests each group has, STINT_ALL_MAX at most; in all
 *           n. If they are wrong, requests are refused as STINT_BAD_REQUEST (GROUPS)
 *   groups  0 or more
 * Returns how many groups were allowed. */
STINT_API size_t stint_decide_groups(struct stint_limiter *limiter,
                                     const struct stint_request *requests, size_t n,
                                     const size_t *sizes, size_t groups, uint64_t now,
                                     struct stint_verdict *verdicts) STINT_NONNULL(1)
    STINT_READS(2, 3) STINT_READS(4, 5);

/* Fetches the cache line that a decision on this key will need. Do other work meanwhile. */
STINT_API void stint_prefetch(const struct stint_limiter *limiter, stint_key key) STINT_NONNULL(1);

/* ---- Giving back --------------------------------------------------------------------------- */

/* Gives back tokens that were taken, or charged, for work that was not done. In flight
 * (STINT_IN_FLIGHT) it gives back what was held by work that is done. Once the key has begun
 * another window, nothing is given back (GIVING BACK).
 *   key      of the request
 *   verdict  of the request. What is given back is taken off its `granted`: once, in parts or as a
 *            whole. If nothing is, what it held is over (its window, its lease or its policy), and
 *            `granted` is 0: while (verdict.granted != 0) ends
 *   tokens   no more than verdict->granted are given back
 * Returns the tokens given back. */
STINT_API uint32_t stint_refund(struct stint_limiter *limiter, stint_key key,
                                struct stint_verdict *verdict, uint32_t tokens) STINT_NONNULL(1, 3)
    STINT_CHANGES(3);

/* Gives back all that stint_decide_all or stint_decide_groups took: every verdict's `granted`, as
 * stint_refund does.
 *   requests  [requests, requests+n), as they were decided
 *   verdicts  [verdicts, verdicts+n): what was decided of each
 * Returns the tokens given back. */
STINT_API uint64_t stint_refund_all(struct stint_limiter *limiter,
                                    const struct stint_request *requests,
                                    struct stint_verdict *verdicts, size_t n) STINT_NONNULL(1)
    STINT_READS(2, 4) STINT_CHANGES(3, 4);

/* Makes a key as good as new. It has nothing used, no ban and no strikes, and its next refusal is a
 * first one. (An override that was set by stint_override stays.) To end a ban and keep the count,
 * call stint_override_clear. Tokens that were granted before it and are given back after it may be
 * granted once more (A1).
 * Returns whether there was anything to forget: tokens, refusals or debts that still counted, a
 * ban, or strikes. */
STINT_API bool stint_reset(struct stint_limiter *limiter, uint32_t policy, stint_key key)
    STINT_NONNULL(1);

/* ---- Telling the client -------------------------------------------------------------------- */

/* Which fields stint_headers writes, or-ed together. */
enum stint_headers_style {
    /* RateLimit-Policy and RateLimit, of draft-ietf-httpapi-ratelimit-headers-11:
     *     RateLimit-Policy: "permin";q=50;w=60, "perhr";q=1000;w=3600
     *     RateLimit: "permin";r=0;t=12, "perhr";r=420;t=1800 */
    STINT_HEADERS_DRAFT = 1 << 28,
    /* The older trio that most clients read today: X-RateLimit-Limit, X-RateLimit-Remaining and
     * X-RateLimit-Reset. It tells one verdict: of those that stint_headers tells, the one that
     * stint_tightest gives. */
    STINT_HEADERS_LEGACY = 1 << 29,
};

/* Finds the verdict of one request that says most to the client: one that refused; else one that a
 * shadow would have refused; else that with the fewest tokens left, of equals the one whose window
 * ends last. Among those that refused, and among the others, STINT_UNTRACKED is last.
 *   verdicts  [verdicts, verdicts+n), as they were decided; NULL only if n is 0
 * Returns its place, below n; 0 if n is 0. */
STINT_API size_t stint_tightest(const struct stint_verdict *verdicts, size_t n) STINT_READS(1, 2);

/* Writes the response fields that tell of the verdicts of one request, each a line that ends in CR
 * LF, ready to be sent. The last is Retry-After in seconds, if one refused the request and all can
 * fit later. RESPONSE FIELDS says which verdicts are told, and how.
 *   style     STINT_HEADERS_DRAFT | STINT_HEADERS_LEGACY; 0: Retry-After alone
 *   verdicts  [verdicts, verdicts+n): one of each policy
 *   size      bytes of the buffer: STINT_HEADERS_SIZE(n) are enough for n verdicts
 * Returns the length of the whole text as snprintf does; 0 if it is empty; -EINVAL. */
STINT_API int stint_headers(const struct stint_limiter *limiter, uint32_t style,
                            const struct stint_verdict *verdicts, size_t n, char *buffer,
                            size_t size) STINT_WRITES(5, 6);
#define STINT_HEADERS_SIZE(n) (256 + 512 * (size_t)(n))

/* ---- Messages ------------------------------------------------------------------------------ */

/* Says in one sentence what an error means.
 *   error  what a function here returned, with or without the minus sign */
STINT_API const char *stint_strerror(int error);

/* Says why the last call of this thread that returned an error did so.
 * Returns one sentence that names the argument and its range; "" before any error. It is valid
 * until the next call that fails. */
STINT_API const char *stint_reason(void);

/* Tells the version of the library that is running.
 * Returns "MAJOR.MINOR.PATCH". */
STINT_API const char *stint_version(void);

/* ==== For operators and tools =============================================================== */

/* ---- Tables -------------------------------------------------------------------------------- */

/* Opens the table of a file that is there, whatever its shape. With STINT_READ_ONLY see READERS.
 *   options  path is required; max_entries, shards, max_policies and labels must be 0; mode does
 *            not count; the rest as for stint_open
 *   limiter  receives the limiter
 * Returns 0; -ENOENT (there is no file), -EINVAL, -ENOMEM, -EAGAIN, -EPROTO, -EBUSY, -ELOOP, and
 * what the system says. */
STINT_API STINT_CHECKED int stint_attach(const struct stint_options *options,
                                         struct stint_limiter **limiter);

/* Tells how many bytes a limiter takes: of its memory, or of its file. stint_open_in must be given
 * so many.
 *   options  as for stint_open
 * Returns the bytes; 0 if the options are wrong (see stint_reason). */
STINT_API size_t stint_memory_size(const struct stint_options *options);

/* Opens a limiter in memory that the caller gives: a server's own shared zone, or a MAP_SHARED
 * mapping that children inherit. Memory that is all zero becomes a table. A table for the same
 * options is attached to, as one in a file is (SHARED TABLES).
 *   options  as for stint_open; path must be NULL
 *   memory   [memory, memory+size), aligned to 64 bytes; it stays the caller's, to give back when
 *            everyone has closed, and stays mapped until stint_close (FORK)
 *   size     at least stint_memory_size(options)
 *   limiter  receives the limiter
 * Returns 0; -EINVAL, -ENOMEM, -EAGAIN, -EPROTO, -EBUSY. */
STINT_API STINT_CHECKED int stint_open_in(const struct stint_options *options, void *memory,
                                          size_t size, struct stint_limiter **limiter);

/* Makes a table in a file larger or smaller; its counts stay. Only readers may have it open
 * (RESIZING).
 *   path     of the table; not a symbolic link; its last name has at most 247 bytes
 *   options  max_entries, shards, max_policies, labels, mode: 0: as it was. clock tells which keys
 *            are live. path must be NULL, and secret NULL or that of the table. on_full does not
 *            count. NULL: all as it was
 * Returns 0; or, with the table as it was: -ENOENT, -EBUSY (a process has it open), -ENOSPC (no
 * room for its live keys, or in the file system), -EINVAL (also: fewer max_policies than it has; a
 * clock that is far behind), -EOPNOTSUPP (it has an access control list, and options.mode is 0),
 * -EPROTO (no whole table of this layout or of 0.4's), -EPERM (the owner cannot be kept), -ENOMEM,
 * -ELOOP, and what the system says.
 * Threads: not while the process has the table open itself (-EBUSY).
 * Cost: the old table is read and the new one written: 0.2 s for a million keys. */
STINT_API STINT_CHECKED int stint_resize(const char *path, const struct stint_options *options);

/* Says whether a SIGBUS came of a table whose file was cut off, and if so makes its limiter a lost
 * one (SHARED TABLES). A handler of SIGBUS (SA_SIGINFO) calls this. If it is true, the handler
 * returns, and the call that was under way goes on. Else the handler restores the default action
 * (SIG_DFL), or calls the handler that was there before.
 *   fault  the siginfo_t that the handler was given
 * Returns whether it was a table's. False, too, if the system has no memory for the zeros.
 * Threads: any. It takes no lock, and allocates nothing. */
STINT_API bool stint_on_sigbus(const void *fault);

/* ---- Reloads and checks -------------------------------------------------------------------- */

/* Flags of stint_policies_apply, or-ed together. */
enum stint_apply_flags {
    STINT_DRY_RUN = 1 << 22, /* check the text, tell what would be done, and change nothing */
    STINT_PRUNE = 1 << 23,   /* remove the policies that the text does not name */
};

/* What happened to a policy: stint_change.kind. */
enum stint_change_kind {
    STINT_POLICY_UNCHANGED = 0, /* it is there, as the text says */
    STINT_POLICY_ADDED = 1,
    STINT_POLICY_CHANGED = 2,  /* what was used stays, as by stint_policy_change */
    STINT_POLICY_REPLACED = 3, /* another policy has its name, and counts anew */
    STINT_POLICY_REMOVED = 4,
};

/* What stint_policies_apply tells of a policy. */
struct stint_change {
    size_t size;      /* sizeof(struct stint_change) of the library: read no field beyond it */
    uint32_t kind;    /* enum stint_change_kind */
    uint32_t id;      /* its id when all is done; UINT32_MAX: it would get one (STINT_DRY_RUN) */
    const char *name; /* by which it is found */
    const char *text; /* as it is to be, in the text notation; NULL: it is removed */
    const char *was;  /* as it was; NULL: it was not there */
    uint64_t decided; /* decisions that were made by it, as it was: how much it was in use */
};

/* Makes the policies of the table those of a text, each found by its name. What can be changed is
 * changed, and what was used stays; else it is replaced, and counts anew. The old id leads to the
 * new policy. If a line is wrong, nothing is changed (RELOADS).
 *   text     a policy a line, in the notation of stint_policy_parse, one at least;
 *            empty lines, and comments from a # at the line's beginning or after a blank, to the
 *            line's end
 *   flags    STINT_DRY_RUN | STINT_PRUNE
 *   wrong    if a line is wrong (-EINVAL) or has no room (-ENOSPC), receives the character in
 *            `text` that is; else NULL. stint_reason names the line. May be NULL
 *   told     called when all is done, with each line's change, in order, and with the removals.
 *            What it is given is valid during the call. It may call any function. May be NULL
 * Returns 0; -EINVAL, -ENOSPC (more than max_policies), -ENOMEM, -EBUSY, -EPROTO, -EROFS (by a
 * read-only handle, but for STINT_DRY_RUN).
 * Cost: some microseconds for each policy. If policies were removed or replaced since somebody last
 * opened the table alone, also that of stint_policy_remove. */
STINT_API STINT_CHECKED int
stint_policies_apply(struct stint_limiter *limiter, const char *text, uint32_t flags,
                     const char **wrong,
                     void (*told)(void *context, const struct stint_change *change), void *context);

/* Changes a policy at once, for all keys. What was used stays used. Limits and options may change;
 * windows (but a bucket's) and kinds may not (RELOADS).
 *   policy  as it is to be
 * Returns 0; -EINVAL (not valid, or no such change), -ENOENT, -EBUSY, -EPROTO, -EROFS. */
STINT_API STINT_CHECKED int stint_policy_change(struct stint_limiter *limiter, uint32_t id,
                                                const struct stint_policy *policy);

/* Says whether stint_policy_change would make this change, and makes none.
 *   policy  as for stint_policy_change
 * Returns 0; -EINVAL (not valid, or no such change), -ENOENT, -EBUSY, -EPROTO, -EROFS. */
STINT_API int stint_policy_change_check(struct stint_limiter *limiter, uint32_t id,
                                        const struct stint_policy *policy);

/* Removes a policy at once. Requests by its id are refused (STINT_UNKNOWN_POLICY), its slots are
 * free. RELOADS says when its id is used again.
 *   id  its id, or one that leads to it (stint_policies_apply)
 * Returns 0; -EINVAL, -ENOENT, -EBUSY, -EPROTO, -EROFS.
 * Cost: reads every slot, about 0.1 s for 10 million keys. */
STINT_API int stint_policy_remove(struct stint_limiter *limiter, uint32_t id);

/* Copies a policy out.
 *   policy  made with STINT_POLICY_INIT; receives all fields
 * Returns 0; -EINVAL, -ENOENT. */
STINT_API int stint_policy_get(const struct stint_limiter *limiter, uint32_t id,
                               struct stint_policy *policy);

/* Writes a policy in the text notation, so that stint_policy_parse gives the same policy back.
 *   policy  made with STINT_POLICY_INIT
 * Returns the length of the whole text as snprintf does; -EINVAL. */
STINT_API int stint_policy_format(const struct stint_policy *policy, char *buffer, size_t size)
    STINT_WRITES(2, 3);

/* Says what a policy allows, but is hardly meant, such as a ban that is shorter than its window
 * (HARDLY MEANT). Show it to whoever wrote the policy, as `stint apply` and `nginx -t` do.
 *   policy  made with STINT_POLICY_INIT
 * Returns the length of the whole text as snprintf does; 0 if there is nothing to say; -EINVAL. */
STINT_API int stint_policy_note(const struct stint_policy *policy, char *buffer, size_t size)
    STINT_WRITES(2, 3);

/* Says whether a decision on this request would be marked STINT_BAD_REQUEST or
 * STINT_UNKNOWN_POLICY, and why (stint_reason). It counts nothing, and does not look at what a
 * group adds (GROUPS).
 *   request  made with STINT_REQUEST
 * Returns 0; -EINVAL (it would be STINT_BAD_REQUEST), -ENOENT (STINT_UNKNOWN_POLICY), -EPROTO. */
STINT_API STINT_CHECKED int stint_request_check(const struct stint_limiter *limiter,
                                                const struct stint_request *request);

/* ---- Overrides and bans -------------------------------------------------------------------- */

/* Gives a key another limit until an instant, in place of the policy's capacity and request.limit.
 * What the key has used stays used. It survives restarts, and takes a slot (OVERRIDES).
 *   policy  one with STINT_OVERRIDES. If that flag is taken away, its overrides are not looked at
 *           until it is given again
 *   limit   tokens, at most 2^28. 0 refuses everything, requests for no tokens too. 2^28 never
 *           refuses, and takes nothing. Else a smooth policy takes 16,383 at most
 *   until   ns since the epoch, by the limiter's clock (stint_now), at most 366 days ahead; rounded
 *           up to 10 ms
 * Returns 0; -EINVAL, -ENOENT (no such policy), -ENOSPC (all slots that the key may have are live),
 * -EROFS.
 * Threads: lock-free. */
STINT_API STINT_CHECKED int stint_override(struct stint_limiter *limiter, uint32_t policy,
                                           stint_key key, uint32_t limit, uint64_t until);

/* Tells the override of a key, or its ban, which has limit 0.
 *   limit  receives its tokens; may be NULL
 *   until  receives its end, ns since the epoch; may be NULL
 * Returns 0; -ENOENT (there is none, or no such policy), -EINVAL. */
STINT_API int stint_override_get(const struct stint_limiter *limiter, uint32_t policy,
                                 stint_key key, uint32_t *limit, uint64_t *until);

/* Ends a key's override, or its ban, now. The tokens that the key has used stay used.
 * Returns 0; -ENOENT (there is none, or no such policy), -EINVAL, -EROFS.
 * Threads: lock-free. */
STINT_API int stint_override_clear(struct stint_limiter *limiter, uint32_t policy, stint_key key);

/* ---- Watching ------------------------------------------------------------------------------ */

/* Counts of a table since it was made, exact once the threads that count have stopped. */
struct stint_stats {
    size_t size;             /* sizeof(struct stint_stats) */
    uint64_t memory;         /* bytes of the table */
    uint64_t slots;          /* (key, policy) pairs that fit: twice max_entries or more (D) */
    uint64_t used;           /* slots that ever held a key */
    uint64_t live;           /* slots that are not free to be reused, by the limiter's clock */
    uint64_t placed;         /* times that a key was given a slot */
    uint64_t untracked;      /* decisions on keys without a slot, the table being full */
    uint64_t replaced;       /* live keys that lost their slot (STINT_FULL_REPLACE) */
    uint64_t clock_steps;    /* slots and shards started anew after a backward step of the clock */
    uint64_t stray_tokens;   /* tokens of exception B2, as far as they were seen */
    uint64_t unknown_policy; /* decisions refused because there was no such policy */
    uint64_t resets;         /* calls of stint_reset that had something to forget */
    uint32_t shards;
    uint32_t policies;     /* policies that there are */
    uint64_t bad_requests; /* requests refused because they made no sense */
    uint32_t processes;    /* that decide by the table, and those that died since the last set-up
                            * call. 0 in private memory */
    uint32_t lost;         /* 1: the table's file was cut off (SHARED TABLES): `untracked` counts
                            * what was let through since then */
    uint64_t overrides;    /* keys with an override now, set by stint_override */
    uint64_t barred;       /* of these: refused everything */
    uint64_t banned;       /* keys that are banned now (stint_policy.ban) */
    uint64_t max_entries;  /* this and the next are options that the table was made with */
    uint64_t labels;       /* rounded up to fours */
    uint64_t used_labels;  /* of these: that have a key */
    uint32_t max_policies; /* an option of the table: ids that there are for policies */
    uint32_t policy_ids;   /* of these: that are taken. A policy with overrides takes two */
    uint32_t gone_ids;     /* of the taken: of policies that were removed or replaced (RELOADS) */
    uint32_t reach;        /* lines from its first to the one where a key was put, at most so far */
    uint32_t max_reach;    /* lines that a key may be away: 23, if a shard has as many */
    uint32_t removed;      /* 1: the path leads to the table's file no more: it was removed, moved
                            * or replaced. This process counts apart from whoever opens the path */
};

#define STINT_STATS_INIT                                                                           \
    {                                                                                              \
        sizeof(struct stint_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
            0, 0, 0, 0, 0, 0, 0                                                                    \
    }

/* Counts of one policy. Every decision is in exactly one of the first three. Charges and looks are
 * no decisions; only the look before a charge (STINT_PEEK | STINT_CHARGE) is. What a group took and
 * gave back (GROUPS) may have counted as allowed, and then as refunded. */
struct stint_policy_stats {
    size_t size; /* sizeof(struct stint_policy_stats) */
    uint64_t allowed;
    uint64_t refused;
    uint64_t shadowed;       /* let through, but would have been refused */
    uint64_t first_refusals; /* keys refused, counted once per window; shadowed ones too */
    uint64_t untracked;      /* of the above: decided without a slot, the table being full */
    uint64_t near_limit;     /* of the allowed: marked STINT_NEAR_LIMIT */
    uint64_t charged;        /* tokens that STINT_CHARGE took */
    uint64_t refunded;       /* tokens given back */
    uint64_t bans;           /* times that a key was banned */
    uint64_t strikes_lost;   /* refusals that did not count for a ban, the table being full */
    uint64_t refunds_lost;   /* refunds of granted tokens that gave nothing back: their window,
                              * lease or policy was over; or it was the second of a grant */
    uint64_t mistaken_nows;  /* requests decided at the clock's time (STINT_MISTAKEN_NOW) */
};

#define STINT_POLICY_STATS_INIT                                                                    \
    { sizeof(struct stint_policy_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Reads the counts of the table.
 * Returns 0; -EINVAL.
 * Cost: reads every slot, about 0.1 s for 10 million keys. */
STINT_API int stint_stats_get(struct stint_limiter *limiter, struct stint_stats *stats);

/* Reads the counts of one policy.
 * Returns 0; -EINVAL, -ENOENT. */
STINT_API int stint_policy_stats_get(struct stint_limiter *limiter, uint32_t id,
                                     struct stint_policy_stats *stats);

/* Flags of stint_entry, or-ed together. */
enum stint_entry_flags {
    /* The key was refused in the window of the entry: its FIRST_REFUSAL has been told. */
    STINT_ENTRY_REFUSED = 1 << 0,
    /* `key` is the hash of one slot of a striped key, and no request finds it (LIVE KEYS). */
    STINT_ENTRY_KEY_STRIPE = 1 << 2,
    /* No count: until `end` the key has another limit (stint_override), `limit`. */
    STINT_ENTRY_OVERRIDE = 1 << 3,
    /* No count: until `end` the key is banned (stint_policy.ban). STINT_ENTRY_OVERRIDE is set, too;
     * it stands alone if stint_override has set the limit. */
    STINT_ENTRY_BAN = 1 << 4,
    /* No count: until `end` the key has `used` strikes; enough of them begin a ban. Told by
     * stint_each_of alone. */
    STINT_ENTRY_STRIKES = 1 << 6,
    /* No count: nothing is left of the key but its label. `policy` is UINT32_MAX. Told by
     * stint_each_of alone. */
    STINT_ENTRY_LABEL = 1 << 7,
};

/* A key that has used tokens of a policy, or owes them, or was refused; or what its flags say. */
struct stint_entry {
    stint_key key;
    uint32_t policy; /* its id */
    uint32_t flags;  /* enum stint_entry_flags */
    uint64_t used;   /* tokens, as a look at the key tells now */
    uint64_t end;    /* of the window (of a debt, the present one); of a bucket, when it is full */
    const char *label;     /* [label, label+label_length): any bytes, no NUL; NULL: none is known */
    uint32_t label_length; /* bytes, at most STINT_LABEL_SIZE */
    uint32_t refused_windows; /* how often stint_label named the key; 0: no label is known */
    uint64_t limit;           /* of STINT_ENTRY_OVERRIDE: 0: refused everything; 2^28: never */
    uint64_t since;           /* ns; else 0. STINT_ENTRY_BAN: of the refusal that began it.
                               * _STRIKES: of the first. _REFUSED: it was refused after this */
    uint64_t refused_last;    /* ns, whole seconds: when stint_label last named the key; else 0 */
    uint64_t reserved[1];     /* 0 */
};

/* Tells of every live key of the table, by each of its policies, and of each override, in no order
 * (LIVE KEYS).
 *   callback  is given `context` and an entry, which is valid until it returns; returns false to
 *             stop. It may call any function that decides
 * Returns 0; -EINVAL, -ENOMEM (56 bytes are taken meanwhile for each slot of a striped key).
 * Cost: that of stint_stats_get; a cache miss for each label; striped keys' slots are sorted. */
STINT_API int stint_each(struct stint_limiter *limiter,
                         bool (*callback)(void *context, const struct stint_entry *entry),
                         void *context);

/* Tells of one key what stint_each would tell, and its strikes; if there is neither, its label.
 * What the key may still take, a look tells (STINT_PEEK), also by policies without an entry of it.
 *   callback  as for stint_each
 * Returns 0; -EINVAL.
 * Threads: any. It takes no lock, allocates nothing, and stores nothing.
 * Cost: the lines that the key may be in, 24 at most, for each stripe. */
STINT_API int stint_each_of(struct stint_limiter *limiter, stint_key key,
                            bool (*callback)(void *context, const struct stint_entry *entry),
                            void *context);

/* Leaves a key's name for readers of the table, and counts one more window in which it was refused.
 * Call it once at each STINT_FIRST_REFUSAL (LIVE KEYS says whose name makes room).
 *   key     as it was decided
 *   bytes   [bytes, bytes+length); the first STINT_LABEL_SIZE are kept, as they are: escape control
 *           bytes before you print them. NULL only if length is 0
 *   length  0 or more bytes; 0 only counts, and forgets the name
 * Returns 0; -EINVAL, -ENOENT (the table has no room for labels), -EROFS.
 * Cost: five cache lines, one of which is written; if another name makes room, those of its key. */
STINT_API int stint_label(struct stint_limiter *limiter, stint_key key, const void *bytes,
                          size_t length);

/* Flags of stint_metrics_options, or-ed together. */
enum stint_metrics_flags {
    STINT_METRICS_NO_EOF = 1 << 25,  /* no "# EOF": other families follow in the same text */
    STINT_METRICS_NO_SCAN = 1 << 26, /* look at no slot: microseconds, no gauges of what is used */
};

/* What stint_metrics writes. */
struct stint_metrics_options {
    size_t size;               /* sizeof(struct stint_metrics_options) */
    const char *const *labels; /* for all samples: names and values by turns, NULL at the end:
                                * {"table", "logins", NULL}; NULL: none. Names are
                                * [a-zA-Z_][a-zA-Z0-9_]*, each once, not "policy" nor "outcome";
                                * values are UTF-8. 1,000 bytes in all */
    uint32_t flags;            /* STINT_METRICS_NO_EOF | STINT_METRICS_NO_SCAN */
    uint32_t reserved;         /* 0 */
};

#define STINT_METRICS_OPTIONS_INIT                                                                 \
    { sizeof(struct stint_metrics_options), NULL, 0, 0 }

/* Writes all counts in the OpenMetrics text format (as Prometheus reads it), "# EOF" at the end.
 *   options  made with STINT_METRICS_OPTIONS_INIT; NULL: no labels, and no flags
 * Returns the length of the whole text as snprintf does; -EINVAL.
 * Cost: that of stint_stats_get; with STINT_METRICS_NO_SCAN some microseconds for each policy. */
STINT_API int stint_metrics(struct stint_limiter *limiter,
                            const struct stint_metrics_options *options, char *buffer, size_t size)
    STINT_WRITES(3, 4);

#ifdef __cplusplus
}
#endif

#endif /* STINT_H */
