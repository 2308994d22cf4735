/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * stint: a lock-free in-process rate limiter: windows, token buckets, in-flight limits.
 *
 *     struct stint_options options = STINT_OPTIONS_INIT;
 *     options.max_entries = 100000;
 *     struct stint_limiter *limiter;
 *     if (stint_open(&options, &limiter) != 0)
 *         give_up(stint_reason());
 *
 *     struct stint_policy policy = STINT_POLICY_INIT;
 *     uint32_t api;
 *     if (stint_policy_parse("100/minute name=api", &policy, NULL) != 0 ||
 *         stint_policy_add(limiter, &policy, &api) != 0)
 *         give_up(stint_reason());
 *
 *     struct stint_verdict verdict;
 *     stint_key key = stint_key_of(limiter, client, client_length);
 *     if (!stint_take(limiter, api, key, 1, STINT_NOW, &verdict))
 *         refuse_with_retry_after(verdict.retry_after);
 *
 * WHAT IT PROMISES. doc/promises.md, stint-promises(7), has each promise in full, with its
 * exceptions (A1 to A3, B1 to B5), and what is named here in capitals: TOKEN BUCKETS, STRIPED
 * POLICIES, WHAT TO KNOW, SHARED TABLES, READERS, FORK, STRUCTS. Tests and comments cite the
 * letters.
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
 * THREADS. Any number of threads may call every function at once. There are two exceptions. What
 * stint_open gives belongs to its caller until the caller shares it. After stint_close nobody may
 * call. These may be called from signal handlers: key_*, now, take, decide*, prefetch, refund*,
 * reset. They are lock-free, as override* and label are. The others are for set-up and monitoring.
 * Up to 63 threads at a time have statistics of their own: of the process, or of all processes that
 * share the table. (It is fewer with more than 4,000 max_policies.) Further threads share counters,
 * which is as exact and some nanoseconds slower.
 *
 * ARGUMENTS (where a function says nothing else of one)
 *
 *    limiter   as stint_open, stint_open_in or stint_attach gave it
 *    policy    the id of a policy, as stint_policy_add gave it: 0 .. max_policies - 1. An unknown
 *              one is refused (STINT_UNKNOWN_POLICY), or -ENOENT
 *    id        the same
 *    key       of stint_key_of, _of_id, _join or _address of this limiter, or STINT_KEY_GLOBAL
 *    now       STINT_NOW, for which the clock is read once; or ns since the epoch, by the limiter's
 *              own clock (stint_now). Whoever gives times of his own sets options.clock. stint_take
 *              says what one that is late or ahead does
 *    verdict   receives the verdict; may be NULL, which saves the writing
 *    verdicts  [verdicts, verdicts+n) receives the verdicts; may be NULL
 *    requests  [requests, requests+n); NULL only if n is 0
 *    n         how many
 *    buffer    [buffer, buffer+size) is written and NUL-terminated, cut if it is too small; may be
 *              NULL if size is 0
 *    size      bytes of it
 *    context   handed to the callback
 *
 * ERRORS. An `int` result is 0 or the length of a text, else one of these, negated. stint_reason()
 * says which argument it was, and why. A NULL that is not allowed is -EINVAL, but for pointers that
 * are marked STINT_NONNULL, STINT_READS or STINT_CHANGES: by these the function would crash.
 *
 *    EINVAL   an argument is out of range, contradicts another, or is a struct of a version that
 *             does not go with this one (wrong `size`)
 *    ENOMEM   the memory cannot be had
 *    EEXIST   a policy of that name exists, with other numbers
 *    ENOSPC   max_policies ids of policies are taken, the file system of options.path has no room,
 *             or live keys do not fit into a table that is to be resized
 *    ENOENT   no such policy, no such directory, no table to attach to, or no labels in it
 *    EAGAIN   the system has no random bytes to give for the secret
 *    EPROTO   what is at options.path, or in memory, is not a table that can be used with these
 *             options; or, by any call, it was cut off while it was open (SHARED TABLES)
 *    EBUSY    another process has held the table for set-up for 10 s (it was stopped in the
 *             middle, or resizes a large table), is making a table for other options in that
 *             memory, or has a table open that is to be resized
 *    EROFS    the limiter was attached with STINT_READ_ONLY; or, with a path, the file system may
 *             only be read
 *    ELOOP    options.path is a symbolic link, which is not followed
 *    others   that open(2), flock(2), posix_fallocate(3), mmap(2) or linkat(2) give for
 *             options.path, such as EACCES, EMFILE, ENAMETOOLONG, EOPNOTSUPP
 *
 * Out pointers are written only on success. */
#ifndef STINT_H
#define STINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define STINT_API __attribute__((visibility("default")))
#else
#define STINT_API
#endif
/* What compilers check of a call. STINT_NONNULL: these arguments are not NULL. STINT_READS: an
 * array, and how many it has; it is not NULL unless that is 0. STINT_CHANGES: one that is read and
 * written. STINT_CHECKED: the result is looked at. */
#if defined(__GNUC__)
#define STINT_NONNULL(...) __attribute__((nonnull(__VA_ARGS__)))
#define STINT_CHECKED      __attribute__((warn_unused_result))
#else
#define STINT_NONNULL(...)
#define STINT_CHECKED
#endif
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 10
#define STINT_READS(...)   __attribute__((access(read_only, __VA_ARGS__)))
#define STINT_CHANGES(...) __attribute__((access(read_write, __VA_ARGS__)))
#else
#define STINT_READS(...)
#define STINT_CHANGES(...)
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
    uint32_t max_policies; /* 0: 64; at most 65,535 */
    uint32_t on_full;      /* enum stint_on_full */
    uint32_t flags;        /* STINT_PREFAULT | STINT_SMALL_PAGES | STINT_PRECISE_CLOCK |
                            * STINT_READ_ONLY */
    const char *path;      /* NULL: private memory. Else the file of a table that processes share */
    uint64_t (*clock)(void); /* ns since the Unix epoch; NULL: the realtime clock. For whoever gives
                              * nows of his own (tests, simulations, a log that is replayed): it
                              * tells the time of the request that is decided. It is called by every
                              * thread that decides, so it must be as thread-safe and signal-safe as
                              * the caller needs; the same for all that share a table */
    const void *secret;      /* NULL: random, or that of the table which is attached to. Else
                              * [secret, secret+192) is copied: for tests, and for the same hashes
                              * in several tables */
    uint32_t mode;   /* permission bits of a file that is made, whatever the umask; 0: 0600. Readers
                      * learn a lot (READERS); writers are trusted with all */
    uint32_t labels; /* names of keys that the table has room for (stint_label), 64 bytes each; 0:
                      * none; at most 2^24. Names of keys may be personal data */
};

#define STINT_OPTIONS_INIT                                                                         \
    { sizeof(struct stint_options), 0, 0, 0, 0, 0, NULL, NULL, NULL, 0, 0 }

/* Opens a limiter and takes all the memory that it will ever use.
 *   options  made with STINT_OPTIONS_INIT; max_entries is required; copied. With STINT_READ_ONLY
 *            the file must be there (-ENOENT), and nothing is made or changed: so a user who may
 *            not start a server can find out whether the server would accept its table
 *   limiter  receives the limiter
 * Returns 0; -EINVAL, -ENOMEM, -EAGAIN; with a path also -EPROTO, -EBUSY, -ELOOP, and what the
 * system says. The reason for an error of the file begins with its path.
 * Cost: a mapping of 32 bytes per entry; with STINT_PREFAULT its pages are also zeroed now. */
STINT_API STINT_CHECKED int stint_open(const struct stint_options *options,
                                       struct stint_limiter **limiter);

/* Closes a limiter, and gives its memory back. A table in a file stays. To close a limiter twice is
 * a bug, as it is with free().
 *   limiter  as it was opened; NULL does nothing
 * Threads: nobody may use the limiter any more. */
STINT_API void stint_close(struct stint_limiter *limiter);

/* What happens to a key that has no slot when every slot it may use holds a live key:
 * stint_options.on_full. 24 lines (96 slots) are looked at. Measured: with max_entries live keys
 * none of 10 million was turned away; with 1.4 times as many, about 1 in 200,000 (`bench/run run
 * --workload first-seen --keys 10M --load 0.7`). All policies of a key begin at the same line, so
 * keys that are live by many policies crowd it. Of a million entries 3 to 10 were turned away with
 * 3 policies for each key, 20 to 40 with 4, and 800 with 7. With a quarter more max_entries
 * none of 30 million was turned away with 3, and 8 of 20 million with 4; with twice as many none of
 * a million with 7.
 *
 * A request that takes nothing and is not refused needs no slot. A look (STINT_PEEK) is told what a
 * request would be told. No key is replaced only to mark a refusal. */
enum stint_on_full {
    STINT_FULL_ADMIT = 0,   /* the request is let through, marked STINT_UNTRACKED, if its cost is
                             * not above the capacity */
    STINT_FULL_REFUSE = 1,  /* it is refused, marked STINT_UNTRACKED. Its retry_after is at least
                             * the rest of the window that the key would be in; by a bucket, at
                             * least T (TOKEN BUCKETS) */
    STINT_FULL_REPLACE = 2, /* the key takes the slot of the key with the fewest tokens used, and is
                             * marked STINT_REPLACED. A and B do not hold for the replaced key. A
                             * request of it that is under way may cost the new key a token (B2),
                             * which is not counted as stray */
};

/* Flags of stint_options, or-ed together. */
enum stint_options_flags {
    /* Touch all memory at open, so that no decision faults. */
    STINT_PREFAULT = 1 << 17,
    /* Do not ask for huge pages. */
    STINT_SMALL_PAGES = 1 << 18,
    /* Read CLOCK_REALTIME: right to the nanosecond, but dearer (its fence stops the processor from
     * overlapping the cache misses of successive calls). The default, CLOCK_REALTIME_COARSE, is one
     * kernel tick behind, 1 to 10 ms. */
    STINT_PRECISE_CLOCK = 1 << 19,
    /* With a path: read the table, and never write to it (READERS). */
    STINT_READ_ONLY = 1 << 20,
};

/* ---- Numbers ------------------------------------------------------------------------------- */

/* The version of this header; stint_version() is that of the library. Two versions before 1.0 go
 * together if MAJOR and MINOR are the same. */
#define STINT_VERSION_MAJOR 0
#define STINT_VERSION_MINOR 4
#define STINT_VERSION_PATCH 0
/* As one number, to be compared: 1.2.3 is 1002003. */
#define STINT_VERSION                                                                              \
    (STINT_VERSION_MAJOR * 1000000 + STINT_VERSION_MINOR * 1000 + STINT_VERSION_PATCH)

/* Constants are plain literals, which generators of bindings can read. */
#define STINT_KEY_GLOBAL_HASH 0ULL                    /* of STINT_KEY_GLOBAL, and of no other key */
#define STINT_NOW             18446744073709551613ULL /* let the limiter read its clock */
#define STINT_NEVER           18446744073709551615ULL /* retry_after of a cost that can never fit */

/* Ranges. They are part of the interface: code may rely on them. */
#define STINT_TICK_NS       10000000ULL          /* 10 ms: windows and starts are whole ticks */
#define STINT_WINDOW_MIN    10000000ULL          /* ns: 10 ms */
#define STINT_WINDOW_MAX    31622400000000000ULL /* ns: 366 days */
#define STINT_LIMIT_MAX     268435456U           /* tokens: 2^28 */
#define STINT_ENTRIES_MAX   1099511627776ULL     /* 2^40 */
#define STINT_POLICIES_MAX  65535U
#define STINT_SHARDS_MAX    65536U
#define STINT_BAN_AFTER_MAX 65535U    /* windows */
#define STINT_ALL_MAX       64        /* requests that stint_decide_all decides as one */
#define STINT_SECRET_SIZE   192       /* bytes */
#define STINT_NAME_SIZE     64        /* bytes, the terminating NUL included */
#define STINT_LABEL_SIZE    40        /* bytes of a key's label that are kept; no NUL */
#define STINT_LABELS_MAX    16777216U /* 2^24 */
#define STINT_NOTE_SIZE     120       /* bytes of an override's note, at most; no NUL */

/* ---- Policies ------------------------------------------------------------------------------ */

/* Flags of stint_policy, or-ed together. */
enum stint_policy_flags {
    /* Refused tokens count as used, up to 2^28, as in the INCR recipes of Redis. Refusals write. */
    STINT_COUNT_REFUSED = 1 << 0,
    /* Decide and count, but let everything through, marked STINT_SHADOWED: to try a limit before
     * enforcing it. */
    STINT_SHADOW = 1 << 1,
    /* Each key's windows start at an instant of its own, uniform over the window and computed from
     * its hash, so that clients that wait for the reset do not all come back at once. */
    STINT_START_PER_KEY = 1 << 2,
    /* Sliding window counter: a request fits if ceil(previous * time left in this window / window)
     * + current + cost <= limit, where previous and current are the tokens of the last window and
     * of this one. It grants no burst of twice the limit at a boundary, but up to 2 * limit - 1 in
     * less than the length of a window: by `10/2s smooth` 10 at the end of one window, and 9 more
     * within 1.81 s. A bucket with a small burst is stricter (TOKEN BUCKETS).
     * Under steady demand each window grants limit - 1: what is left of the last window is rounded
     * up, until it ends. By 1, every second window grants one. In 200 s `10/10s smooth` grants 181
     * of 200, `2/10s smooth` 21 of 40 and `1/10s smooth` 10 of 20. So small limits are better
     * buckets: `1/10s burst=1` grants all 20. limit at most 16,383. */
    STINT_SMOOTH = 1 << 3,
    /* A key's window begins with its first request, and lasts one window (up to 10 ms less, as it
     * begins with a tick): the recipes of INCR and EXPIRE. A request that takes nothing and is not
     * refused begins none; its verdict tells the window that would begin now. After a window the
     * key's next request begins another. Two windows of a key never have a tick in common, however
     * late a caller is (A), unless the clock is stepped. */
    STINT_START_FIRST = 1 << 4,
    /* At most `limit` held at once, instead of granted per window: requests under way, connections,
     * workers. A take holds `cost` until stint_refund gives it back, by its verdict: in any order,
     * by any thread or process. The window is a lease: what nobody gives back (its
     * holder died, say) is forgotten by itself, one to two windows after it was taken. So nothing
     * has to be cleaned up, and the window must be longer than the work. limit at most 16,383.
     *   - verdict.used is what is held now, with what this request took; remaining what is free.
     *   - Work that takes longer than its lease drops out of the count when that ends, between one
     *     and two windows after its take; its refund then gives back nothing. A counts what is held
     *     and not forgotten: it is never more than the limit. Work that takes longer than its
     *     window takes anew in each window, and then gives back what it had.
     *   - A verdict gives back what it granted, once. Work that gives back by a copy of its verdict
     *     gives back once more, and frees another's: the count does not know whose each hold is.
     *   - retry_after is an upper bound, of one or two windows: by then what is held now is
     *     forgotten. It is mostly given back long before, so a client may ask again sooner.
     *   - A caller whose `now` is ahead by a window drops what was taken in the window before, as
     *     if that lease were over. One that is ahead by two windows drops all.
     *   - A request that is refused, let through by STINT_SHADOW, or STINT_UNTRACKED holds nothing.
     *     In every case give back verdict.granted.
     *   - STINT_DRAIN and STINT_CHARGE (the look, too) are STINT_BAD_REQUEST: nobody would hold
     *     what they take. Give `cost` back in parts, if you like; STINT_PARTIAL holds what is free.
     *
     * Ten at once and 100 a minute, for each user:
     *
     *     struct stint_request both[2] = {STINT_REQUEST(ten_at_once, user, 1),
     *                                     STINT_REQUEST(per_minute, user, 1)};
     *     if (!stint_decide_all(limiter, both, 2, STINT_NOW, verdicts))
     *         return refuse(verdicts);     // a refused whole holds nothing
     *     work();
     *     stint_refund(limiter, user, &verdicts[0], verdicts[0].granted); */
    STINT_IN_FLIGHT = 1 << 5,
    /* Keys can have limits of their own for a while (stint_override), and be banned (`ban`). It
     * takes a second one of options.max_policies. Not with stripes. */
    STINT_OVERRIDES = 1 << 6,
};

/* Windows that are not all of one length: stint_policy.calendar. The end of each is its id, as ever
 * (struct stint_verdict). */
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
 * The table says what goes together (+) and what does not (-: it is -EINVAL). STINT_SHADOW,
 * near_limit and jitter go with everything, and so do all flags of requests. STINT_OVERRIDES and
 * `ban` go with everything but stripes. STINT_IN_FLIGHT goes with nothing in the table, nor with
 * STINT_OVERRIDES and `ban`, nor with requests that are STINT_DRAIN or STINT_CHARGE.
 *
 *                          capacity
 *                        below  above  reserved  stripes  refused  smooth  start  per-key  first
 *     capacity above       -
 *     max_reserved         +      +
 *     stripes              +      -       -
 *     STINT_COUNT_REFUSED  +      -       -         -
 *     STINT_SMOOTH         -      -       -         -        -
 *     start                +      +       +         +        +       +
 *     STINT_START_PER_KEY  +      +       +         -        +       +       -
 *     STINT_START_FIRST    +      -       -         -        +       -       -       -
 *     calendar             +      -       -         -        +       -       +       -       -
 *
 * `burst` goes with max_reserved, and with nothing else in the table. Its capacity must be 0. */
struct stint_policy {
    size_t size;                /* sizeof(struct stint_policy) */
    char name[STINT_NAME_SIZE]; /* unique in the limiter; printable ASCII (the letters of a
                                 * structured-field string, RFC 9651); empty: its rate in the
                                 * text notation, such as "100/minute". It stays when the
                                 * rate changes, but stint_headers tells the new rate */
    uint32_t limit;             /* tokens granted per window; 1 .. 2^28 */
    uint32_t capacity;          /* most tokens a key can hold; 0: limit; below the limit, a window
                                 * grants no more than this */
    uint32_t max_reserved;      /* tokens that STINT_RESERVE may take ahead; 0: none (in Convex's
                                 * rate limiter, leaving it out means no bound); capacity +
                                 * max_reserved <= 2^28 */
    uint32_t stripes;           /* slots that each key is split over, so that a hot key scales with
                                 * the cores; a power of two <= 64; 0 or 1: off. At most the limit,
                                 * and the capacity */
    uint64_t window;            /* ns; 10 ms .. 366 days, a multiple of 10 ms; 0 with `calendar` */
    int64_t start;              /* ns since the epoch at which one window starts, a multiple of 10
                                 * ms; 0: aligned to the epoch, so to UTC minutes and days. 0 with
                                 * STINT_START_PER_KEY and STINT_START_FIRST. With `calendar`, by
                                 * the clock of `offset`: months begin on this day of the month (1
                                 * .. 28) at this time of day, years in this month, too; 0: on the
                                 * first (of January) at 00:00 */
    uint32_t flags;             /* STINT_COUNT_REFUSED | STINT_SHADOW | STINT_START_PER_KEY |
                                 * STINT_SMOOTH | STINT_START_FIRST | STINT_IN_FLIGHT |
                                 * STINT_OVERRIDES */
    uint32_t near_limit; /* percent of the capacity, 1 .. 100: verdicts of keys that have used
                          * more are marked STINT_NEAR_LIMIT; 0: off */
    uint32_t jitter;     /* percent of the window, 0 .. 100: retry_after of a refusal is later
                          * by a part of this, computed from key and window, so that clients
                          * do not all come back at once; 0: exact */
    uint32_t calendar;   /* enum stint_calendar; 0: all windows are `window` long */
    int32_t offset;      /* of the calendar's clock: minutes east of UTC, -720 .. 840 */
    uint32_t ban_after;  /* windows, 1 .. 65,535; 0: 1. A key that was refused in so many of them,
                          * within ban_within of the first, is banned. ban_within must be longer
                          * than ban_after - 2 windows, which lie between the first refusal and the
                          * last (of a calendar the shortest, from a February on). Else no key could
                          * be banned, and the policy is -EINVAL */
    uint64_t ban;        /* ns for which a key is banned: refused everything, whatever is left; 10
                          * ms .. 366 days, a multiple of 10 ms; 0: no key is banned. It needs
                          * STINT_OVERRIDES. A ban ends with a tick, up to 10 ms sooner. With cost
                          * 1 it begins when the window is used up: if it ends before that window
                          * does, it has no effect. Take one longer than the window. If `ban` is
                          * made shorter, bans that have more than it and 60 s to go are void. A
                          * ban that is over before its window has no effect: `5/90d ban=30s`. A
                          * shadow (STINT_SHADOW) bans nobody. Once the policy is no shadow any
                          * more, what it noted of keys as a shadow is void: what was let through
                          * counts for no ban. A ban from before it became a shadow goes on */
    uint32_t burst;    /* tokens, 1 .. 2^28: the policy is a token bucket that holds so many (TOKEN
                          * BUCKETS); 0: it counts in windows. burst + max_reserved is at most 2^28,
                          * and comes back within 366 days. limit at most 10 million a second */
    uint32_t reserved; /* 0 */
    uint64_t ban_within; /* ns, in the range of `ban`: how long after a first refusal others count
                          * towards a ban (ban_after); 0: as long as `ban` */
};

#define STINT_POLICY_INIT                                                                          \
    { sizeof(struct stint_policy), {0}, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Reads a policy from the text notation.
 *
 *     COUNT / [N] UNIT  [OPTION ...]        100/minute   5/s   100/15m   10r/s   1M/day
 *     COUNT per [N] UNIT  [OPTION ...]      100 per 15 minutes
 *     COUNT / month  [OPTION ...]           10000/month   1M per year
 *
 * COUNT is 1 to 2^28, with an optional K (thousand) or M (million). UNIT is ms, s, m, h, d, w or a
 * longer form: millisecond(s), sec(s), second(s), min(s), minute(s), hr(s), hour(s), day(s),
 * week(s), in any case. (But 10/M is an error: it may be 10/m or 10/month.) A week begins on
 * Thursday, as the epoch did: `start=2024-01-01` makes it Monday. A month and a year are the
 * calendar's, and have no N. Options, in any order, each at most once:
 *     name=NAME or name="NAME"     start=2024-01-01T05:00:00Z (RFC 3339; or a date, at 00:00 UTC)
 *     start=per-key                start=first             count-refused
 *     capacity=COUNT               reserve=COUNT           stripes=COUNT
 *     smooth                       near=80%                jitter=10%
 *     shadow                       in-flight               overrides
 *     ban=10m                      after=COUNT             within=1h
 *     burst=COUNT
 *
 * A ban is a number and a unit, and implies `overrides`. `after` and `within` go with it: a key is
 * banned that was refused in `after` windows (left out: 1) in the time `within` (left out: that of
 * the ban). That time must be longer than all but two of these windows.
 *
 * A month or year that starts at 2024-01-15T09:00:00+02:00 always starts on the 15th (of January),
 * at nine by a clock two hours ahead of UTC.
 *
 *   text    NUL-terminated
 *   policy  made with STINT_POLICY_INIT; receives all fields
 *   wrong   on -EINVAL receives the character in `text` that is wrong; if two options do not go
 *           together, the first character of the later one. May be NULL
 * Returns 0; -EINVAL (the text is wrong; stint_reason names the wrong word, and what to write). */
STINT_API STINT_CHECKED int stint_policy_parse(const char *text, struct stint_policy *policy,
                                               const char **wrong);

/* Adds a policy. It takes effect at once. If the same policy is there, by its name and all its
 * numbers, this gives its id and adds none. One that was there before has its id again
 * (stint_policy_remove).
 *   policy  made with STINT_POLICY_INIT, by hand or by stint_policy_parse; copied
 *   id      receives its id, 0 .. max_policies - 1; may be NULL (stint_policy_find tells it later)
 * Returns 0; -EINVAL, -EEXIST (the name is that of a policy with other numbers), -ENOSPC, -EBUSY,
 * -EPROTO, -EROFS. */
STINT_API STINT_CHECKED int stint_policy_add(struct stint_limiter *limiter,
                                             const struct stint_policy *policy, uint32_t *id);

/* Finds a policy by its name.
 *   name  NUL-terminated
 *   id    receives its id; may be NULL, which asks whether there is one
 * Returns 0; -ENOENT, -EINVAL. */
STINT_API int stint_policy_find(const struct stint_limiter *limiter, const char *name,
                                uint32_t *id);

/* ---- Keys ---------------------------------------------------------------------------------- */

/* Who is limited: a client, a user, a user and an endpoint. It is passed by value. A number is no
 * key: stint_key_of_id makes one of it. STINT_KEY_GLOBAL is one counter shared by all. */
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
 *   bytes   [bytes, bytes+length) is readable; any bytes, NUL among them; NULL only if length is 0
 *   length  0 or more bytes
 * Returns a key, never STINT_KEY_GLOBAL.
 * Cost: about 2 ns for 16 bytes. */
STINT_API stint_key stint_key_of(const struct stint_limiter *limiter, const void *bytes,
                                 size_t length) STINT_NONNULL(1) STINT_READS(2, 3);

/* Makes a key of a number: a user's id. It is another key than stint_key_of makes of its bytes.
 *   id  any number
 * Returns a key, never STINT_KEY_GLOBAL. */
STINT_API stint_key stint_key_of_id(const struct stint_limiter *limiter, uint64_t id)
    STINT_NONNULL(1);

/* Joins one more part to a key without copying. Join a user, then an endpoint: the parts stay apart
 * ("ab", "c" is another key than "a", "bc"), and their order counts.
 *   key     what was joined so far
 *   bytes   [bytes, bytes+length) is readable; NULL only if length is 0
 *   length  0 or more bytes
 * Returns a key, never STINT_KEY_GLOBAL. */
STINT_API stint_key stint_key_join(const struct stint_limiter *limiter, stint_key key,
                                   const void *bytes, size_t length) STINT_NONNULL(1)
    STINT_READS(3, 4);

struct sockaddr; /* <sys/socket.h> */

/* Makes a key of a client's address. It is made of the address's first bits, and of their number.
 * IPv4-mapped IPv6 is IPv4. All addresses of another family (unix sockets) are one key.
 *   address  a sockaddr_in or sockaddr_in6; the port does not count
 *   prefix4  bits of an IPv4 address, 1 .. 32; 0: 32
 *   prefix6  bits of an IPv6 address, 1 .. 128; 0: 64, which is what one customer has
 * Returns a key, never STINT_KEY_GLOBAL. Other prefix lengths are other keys. */
STINT_API stint_key stint_key_address(const struct stint_limiter *limiter,
                                      const struct sockaddr *address, unsigned prefix4,
                                      unsigned prefix6) STINT_NONNULL(1, 2);

/* Compares two keys. In C and C++ structs have no ==.
 *   a  a key
 *   b  another
 * Returns whether they are one. */
STINT_API bool stint_key_equal(stint_key a, stint_key b);

/* ---- Deciding ------------------------------------------------------------------------------ */

/* Flags of stint_verdict, or-ed together. */
enum stint_verdict_flags {
    /* The first refusal of this key in this window, exactly once: log it now and the log stays
     * bounded. Shadowed refusals have it too; refusals without a slot (STINT_UNTRACKED) do not. If
     * a striped policy is removed or replaced at that instant, perhaps none has it. */
    STINT_FIRST_REFUSAL = 1 << 0,
    /* Would have been refused, but the policy is a shadow. */
    STINT_SHADOWED = 1 << 1,
    /* The table was full: nothing was counted for this key. `window` is 0, and a refund by it gives
     * nothing back; `granted` is what was let through all the same. By a lost limiter (SHARED
     * TABLES) every verdict is so, and all its other numbers are 0. */
    STINT_UNTRACKED = 1 << 2,
    /* The table was full: another key lost its slot to this one. */
    STINT_REPLACED = 1 << 3,
    /* There is no such policy, or it was removed: refused, retry_after STINT_NEVER, all else 0. */
    STINT_UNKNOWN_POLICY = 1 << 4,
    /* More than the policy's near_limit percent of the capacity is used. */
    STINT_NEAR_LIMIT = 1 << 5,
    /* The request makes no sense: refused, retry_after STINT_NEVER, all else 0. It is a bug of the
     * caller's (stint_request_check says which):
     *   - its flags are unknown to this version, do not go together, or do not go with its policy
     *     (STINT_IN_FLIGHT);
     *   - its reserved word is not 0;
     *   - it is a charge in a group;
     *   - its group has more than STINT_ALL_MAX requests, or than are left; or it has no group;
     *   - the limiter only reads (READERS). */
    STINT_BAD_REQUEST = 1 << 6,
    /* The key is banned (stint_policy.ban), perhaps since this very refusal. retry_after is the
     * time until the ban is over and the cost fits: a ban may end before its window does. With
     * STINT_SHADOW nobody is banned: the request was let through, and would have been refused for a
     * ban. */
    STINT_BANNED = 1 << 7,
    /* A ban or an override of the key (stint_override) decided: `capacity` is its limit. */
    STINT_OVERRIDDEN = 1 << 8,
};

/* The answer to a request. */
struct stint_verdict {
    bool allowed;         /* let it through */
    uint32_t flags;       /* enum stint_verdict_flags */
    uint32_t capacity;    /* most tokens the key can hold */
    uint32_t used;        /* tokens taken, those of this request included; no more than 2^32 - 1 is
                         * told. It is more than `capacity` while tokens are reserved, after a
                         * charge, after the limit was lowered, and where refusals are counted; and
                         * by one for each thread that is being refused and has not yet taken its
                         * token back (B1). Smooth: the sum that is compared with the limit. In
                         * flight: what is held */
    uint32_t remaining;   /* tokens left: capacity - used, or 0; 0 if the full table refused */
    uint32_t granted;     /* tokens this request took: the cost; with STINT_PARTIAL it may be less;
                         * with STINT_CHARGE what was charged; 0 if refused, shadowed or only
                         * looked */
    uint64_t window;      /* end of the window that was charged, ns since the epoch: its id. 0:
                         * none was charged (STINT_UNTRACKED). Of a bucket, when it is full */
    uint64_t reset_after; /* ns to the end of the window; until the bucket is full */
    uint64_t
        retry_after; /* refused or shadowed: ns until the whole cost would fit if nobody else took
                      * or gave back, and jitter; STINT_NEVER if it is more than can ever fit. What
                      * is too long for 64 bits is told as STINT_NEVER - 1. Granted: 0; of a
                      * reservation the ns to wait before its tokens are there */
    uint32_t policy; /* the id of the policy that decided, also where an older one was asked;
                         * UINT32_MAX: none did (UNKNOWN_POLICY, BAD_REQUEST, a lost table) */
    uint32_t generation; /* of that id, which a later policy may get */
    uint64_t unit;       /* of a bucket: ns that each token took; else 0 */
};

/* Reads the limiter's clock.
 * Returns ns since the Unix epoch. */
STINT_API uint64_t stint_now(const struct stint_limiter *limiter) STINT_NONNULL(1);

/* Takes `cost` tokens of a key if they are left in its present window, else takes nothing.
 *   cost     tokens, 0 or more; 0 takes nothing, and is allowed unless more is used than the
 *            capacity
 *   now      STINT_NOW, or ns since the epoch, by the limiter's own clock (see stint_now): a server
 *            that reads the time once for many requests saves the reading.
 *
 *            It may be late. If the key is in a newer window, the caller joins that. If that window
 *            began more than 60 s after `now`, the request is decided at the time of the clock
 *            instead (by an override or a ban that the key has at `now` or at that time). A key
 *            without a slot gets the window of `now`, or of the tick by which another key was done
 *            with a slot near it, if that is later; but if some window of the table began more
 *            than 60 s after `now`, its request, too, is decided at the time of the clock. (That
 *            window's begin is known to half a minute: 30 s may be enough.)
 *
 *            It may not be ahead of the clock by more than 60 s. One that is far ahead makes the
 *            next decision on a full table slow, once. Then a table may be called full although a
 *            slot that this caller opened could be taken.
 *
 *            One that is further than 366 days from the clock is a mistake (seconds, ms, us, the
 *            time since the machine started), and the request is decided at the time of the clock
 *            (stint_policy_stats.mistaken_nows).
 *            In one window it is not: that of the policy's last decision, if the clock has moved on
 *            by so much since
 * Returns verdict.allowed.
 * Cost: one cache line of the table. One token by a plain policy is one atomic add, all else one
 * compare-and-swap; a refusal only reads, but for the first of a key in a window. */
STINT_API bool stint_take(struct stint_limiter *limiter, uint32_t policy, stint_key key,
                          uint32_t cost, uint64_t now, struct stint_verdict *verdict)
    STINT_NONNULL(1);

/* Flags of stint_request, or-ed together. */
enum stint_request_flags {
    /* Look, take nothing, count nothing; verdict.allowed says whether the request would be let
     * through. */
    STINT_PEEK = 1 << 9,
    /* Take what is left if that is less than the cost; refused only if nothing is left. */
    STINT_PARTIAL = 1 << 10,
    /* If the cost does not fit, refuse it and take what is left. Not with STINT_IN_FLIGHT. (A key
     * that is never refused, by an override of STINT_LIMIT_MAX, keeps what it has left if others of
     * its group refuse.) */
    STINT_DRAIN = 1 << 11,
    /* Take up to the policy's max_reserved tokens ahead. The next windows, or the bucket's refill,
     * pay them back. A caller that is granted waits verdict.retry_after before it does the work. */
    STINT_RESERVE = 1 << 12,
    /* Charge the whole cost, whatever is left: for costs that are known only after the work (failed
     * logins, bytes, model tokens, CPU time). A charge is never refused. It is no decision: only
     * stint_policy_stats.charged counts it, and the key keeps its FIRST_REFUSAL. What is charged is
     * no grant, so A does not count it: a key can have used more than its capacity.
     *   - It charges the window of now, up to what a key can hold: 2^28 tokens; by a smooth policy
     *     16,383 in each window; where tokens carry over, capacity + max_reserved; by a bucket,
     *     burst + max_reserved. What is more is cut off: verdict.granted is what was charged.
     *   - The next window of a plain policy begins with nothing used. Where tokens carry over, what
     *     was charged is paid back like what was taken: with max_reserved it can be a debt.
     *   - Striped: the shares are filled in turn, and the rest goes to the first.
     *   - On a full table STINT_FULL_REPLACE replaces a key as ever. Else nothing is charged, and
     *     the request is allowed and marked STINT_UNTRACKED. If a striped key lacks slots for some
     *     of its stripes, what these should hold is not charged. The mark is the same, and
     *     `granted` is what was charged, and stays.
     *   - It is STINT_BAD_REQUEST with STINT_PARTIAL, STINT_DRAIN, STINT_RESERVE, a limit of the
     *     request's own, or STINT_IN_FLIGHT; so is the look. It is STINT_BAD_REQUEST in
     *     stint_decide_all and stint_decide_groups; the look is not.
     *
     * STINT_PEEK | STINT_CHARGE is the look before a charge. It takes nothing, but it is a
     * decision: it is counted as allowed or refused, and its first refusal in a window is marked
     * and told. Requests that run at the same time can all pass the look, and are then all charged:
     * the count can pass the limit by as many. Failed logins, at most so many a window for each
     * user:
     *
     *     struct stint_request login = STINT_REQUEST(failed_logins, user, 1);
     *     login.flags = STINT_PEEK | STINT_CHARGE;
     *     if (!stint_decide(limiter, &login, STINT_NOW, &verdict))
     *         return too_many_failures(&verdict);     // log it if FIRST_REFUSAL is set
     *     if (!password_is_right(...)) {
     *         login.flags = STINT_CHARGE;
     *         stint_decide(limiter, &login, STINT_NOW, NULL);
     *     } */
    STINT_CHARGE = 1 << 13,
    /* The request takes for work that may come to nothing, and settles when that is known: it gives
     * back what was not due (stint_refund), or charges what is missing. If it is refused, that is
     * nobody's failure: it tells no FIRST_REFUSAL, counts no strike, and writes no mark, so a key
     * that has no slot gets none for it. All else is as without the flag: it is counted as refused,
     * and STINT_COUNT_REFUSED and STINT_DRAIN take what they take. With STINT_PEEK | STINT_CHARGE
     * it makes the look tell no first refusal. With other looks, and with charges, it changes
     * nothing.
     *
     * Failed logins, at most so many a window, however many are tried at once:
     *
     *     struct stint_request login = STINT_REQUEST(failed_logins, user, 1);
     *     login.flags = STINT_TENTATIVE;
     *     if (!stint_decide(limiter, &login, STINT_NOW, &verdict))
     *         return try_later(&verdict);
     *     if (password_is_right(...))
     *         stint_refund(limiter, user, &verdict, verdict.granted); */
    STINT_TENTATIVE = 1 << 14,
};

/* What is asked for: tokens of a key, by a policy. STINT_REQUEST(policy, key, cost) initialises
 * one, with 0 in all else:
 *
 *     struct stint_request request = STINT_REQUEST(policy, key, 1);
 *
 * It is for C and for C++, where compilers warn of initialisers that leave fields out. */
struct stint_request {
    stint_key key;     /* who is limited */
    uint32_t policy;   /* its id */
    uint32_t cost;     /* tokens */
    uint32_t limit;    /* this call's own limit in place of the policy's capacity, for users with
                      * limits of their own; of a bucket, in place of the policy's limit. 1 .. 2^28
                      * (smooth, in flight: 16,383; striped: the policy's); more is taken as that.
                      * With what STINT_RESERVE may take it is 2^28 at most, too. 0: the policy's */
    uint32_t flags;    /* STINT_PEEK | STINT_PARTIAL | STINT_DRAIN | STINT_RESERVE | STINT_CHARGE |
                      * STINT_TENTATIVE; others are refused (STINT_BAD_REQUEST) */
    uint64_t reserved; /* 0; else it is refused (STINT_BAD_REQUEST) */
};

#define STINT_REQUEST(policy, key, cost)                                                           \
    { {(key).hash}, policy, cost, 0, 0, 0 }

/* Decides one request: stint_take with all options.
 *   request  made with STINT_REQUEST; its fields and flags have their ranges beside them
 * Returns verdict.allowed.
 * Cost: that of stint_take. */
STINT_API bool stint_decide(struct stint_limiter *limiter, const struct stint_request *request,
                            uint64_t now, struct stint_verdict *verdict) STINT_NONNULL(1, 2);

/* Decides n requests as one: all of them take their tokens, or none does. For several limits on one
 * request (2,000/hour and 33/minute), and for ladders of prefixes.
 *
 * All are looked at first. If one does not fit, nothing is taken. If all fit they take in order,
 * those whose tokens carry over last. If another thread was faster and one is refused after all,
 * what the others took is given back, in the window in which it was taken. In between, a concurrent
 * caller can see those tokens taken, and be refused for them (B4). A holds for each limit, unless
 * the key is reset in between (A1). (If a window ends before they are given back: where tokens
 * carry over, those of all but the last such request may have been carried into the next window,
 * and stay taken.)
 *
 * Several of one key and policy are judged one after the other.
 *   n         at most STINT_ALL_MAX; more are refused, each verdict marked STINT_BAD_REQUEST. 0 are
 *             allowed
 *   verdicts  [verdicts, verdicts+n) receives the verdicts; may be NULL. If the whole is refused,
 *             those with `allowed` false are what refused it. The largest retry_after of these
 *             tells when the whole would fit, all requests of one key one after the other;
 *             STINT_NEVER if it never does. (By a bucket, if the key has an override, each is told
 *             as if the others had its `limit`.) Their `used` and `remaining` count what earlier
 *             requests for the same key and policy would have taken. The others are allowed with
 *             `granted` 0, and tell what is used without this call
 * Returns whether all were allowed (shadowed ones count as allowed). If they were, the statistics
 * count them all, else only those that were refused.
 * Cost: about that of n takes; the cache misses overlap. */
STINT_API bool stint_decide_all(struct stint_limiter *limiter, const struct stint_request *requests,
                                size_t n, uint64_t now, struct stint_verdict *verdicts)
    STINT_NONNULL(1) STINT_READS(2, 3);

/* Decides n independent requests in order. Their cache misses overlap, so that out of cache a batch
 * of 16 costs a fraction of 16 calls, and one of 64 less. If you gather the requests one by one,
 * call stint_prefetch on each key as soon as you have it. Each request reads its policy anew: a
 * limit that is lowered is obeyed from the next request on.
 * Returns how many were allowed. */
STINT_API size_t stint_decide_batch(struct stint_limiter *limiter,
                                    const struct stint_request *requests, size_t n, uint64_t now,
                                    struct stint_verdict *verdicts) STINT_NONNULL(1)
    STINT_READS(2, 3);

/* Decides many groups of requests, each as stint_decide_all does. It is for the several limits of
 * the many requests that one turn of an event loop has in hand. The cache misses of all of them
 * overlap.
 *   n         how many requests all groups have
 *   sizes     [sizes, sizes+groups): how many requests each group has, one group after the other. A
 *             group of more than STINT_ALL_MAX is refused, each of its verdicts marked
 *             STINT_BAD_REQUEST; one of none is allowed. Where sizes and n differ, no request goes
 *             unseen: a group of more than are left, and all after it, are refused and marked so;
 *             so are the requests that no group has
 *   groups    0 or more
 * Returns how many groups were allowed. */
STINT_API size_t stint_decide_groups(struct stint_limiter *limiter,
                                     const struct stint_request *requests, size_t n,
                                     const size_t *sizes, size_t groups, uint64_t now,
                                     struct stint_verdict *verdicts) STINT_NONNULL(1)
    STINT_READS(2, 3) STINT_READS(4, 5);

/* Fetches the cache line that a decision on this key will need. The caller does other work
 * meanwhile. */
STINT_API void stint_prefetch(const struct stint_limiter *limiter, stint_key key) STINT_NONNULL(1);

/* ---- Giving back --------------------------------------------------------------------------- */

/* Gives back tokens that were taken, or charged, for work that was not done. In flight
 * (STINT_IN_FLIGHT) it gives back what was held by work that is done. Refusals that were counted
 * (STINT_COUNT_REFUSED) took no tokens: they stay counted.
 *   key      of the request
 *   verdict  of the request. Of it only granted, window, policy, generation and unit are read: a
 *            hold that is kept elsewhere is these. What is given back is taken off `granted`, and
 *            of a bucket off `window`. So a verdict gives back what it granted once, in parts or as
 *            a whole, and one that was refused nothing. One whose policy was removed or replaced
 *            gives nothing back: the count is gone, too
 *   tokens   no more than verdict->granted are given back. Those that were granted before a
 *            stint_reset of the key are gone: whoever gives them back after it lets as many others
 *            be granted once more (A1)
 *
 * They are given back in the window in which they were taken. Once the key has begun another one,
 * nothing is given back. (By a smooth or in-flight policy the last window still counts, and is
 * given back to.) Until then tokens are given back, and counted in stint_policy_stats.refunded,
 * even if the window is over by the clock: then only tokens that carry over are of use.
 *
 * A bucket is given back the time that the tokens took (verdict->unit for each), as far as it has
 * not come back by itself by the limiter's clock: no more than what is left to `window`, and no
 * more than makes it full. A token of which a part was given back counts as one. The bucket does
 * not know whose the time is: after an earlier take was given back, tokens of a later one may be
 * given back that had come back by themselves.
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

/* Makes a key as good as new. It has nothing used, no ban and no strikes. (An override that was set
 * by stint_override stays.) In the same window it still has had its first refusal. It forgets whose
 * the tokens were. Those that were granted before it and are given back after it, by stint_refund
 * or by a call under way that gives back what it took, may be granted once more (A).
 * Returns whether there was anything to forget: tokens, refusals or debts that still counted, a
 * ban, or strikes. */
STINT_API bool stint_reset(struct stint_limiter *limiter, uint32_t policy, stint_key key)
    STINT_NONNULL(1);

/* ---- Telling the client -------------------------------------------------------------------- */

/* Which fields stint_headers writes, or-ed together. */
enum stint_headers_style {
    /* RateLimit-Policy and RateLimit, of draft-ietf-httpapi-ratelimit-headers-11:
     *
     *     RateLimit-Policy: "permin";q=50;w=60, "perhr";q=1000;w=3600
     *     RateLimit: "permin";r=0;t=12, "perhr";r=420;t=1800
     */
    STINT_HEADERS_DRAFT = 1 << 28,
    /* The older trio that most clients read today. It tells one verdict: of those that
     * stint_headers tells, the one that stint_tightest gives.
     *
     *     X-RateLimit-Limit: 50
     *     X-RateLimit-Remaining: 0
     *     X-RateLimit-Reset: 1700000012        Unix time in seconds, rounded up, at which the
     *                                          window ends
     */
    STINT_HEADERS_LEGACY = 1 << 29,
};

/* Finds the verdict of one request that says most to the client. It is one that refused; else one
 * that a shadow would have refused; else the one with the fewest tokens left, of equals the one
 * whose window ends last. Among those that refused, and among the others, a STINT_UNTRACKED one
 * comes last.
 *   verdicts  [verdicts, verdicts+n), as they were decided; NULL only if n is 0
 * Returns its place, below n; 0 if n is 0. */
STINT_API size_t stint_tightest(const struct stint_verdict *verdicts, size_t n) STINT_READS(1, 2);

/* Writes the response fields that tell of the verdicts of one request. Each is a line that ends in
 * CR LF. After them, if a verdict refused it, comes Retry-After (RFC 9110):
 *
 *     Retry-After: 12
 *
 * Of a key that is banned, or overridden to be refused everything, t and X-RateLimit-Reset tell
 * its retry_after, unless that is STINT_NEVER.
 *
 * Seconds are rounded up. Retry-After is the longest of the refusals'; it is left out if one of
 * them can never fit. Shadow policies are advertised like any other: leave them out to try a limit
 * unseen. A verdict that is STINT_UNTRACKED is left out of all fields but Retry-After: its numbers
 * are no key's. One that no policy decided, or whose policy is there no more, is left out of all.
 * Of a calendar policy, whose windows have no one length, w is left out. q is what a
 * key can hold, and w the time in which all of it comes back: of a token bucket its burst, of a
 * policy with a capacity above the limit that, and several windows. t is the time until there is
 * more: of a token bucket, a token. It is never later than Retry-After.
 *
 * A STINT_IN_FLIGHT policy tells how many requests may be under way at once, and how many more may
 * begin. Nobody knows when others end. So it has neither w nor t, and its refusal gives no
 * Retry-After; one that can never fit takes Retry-After away. X-RateLimit is of the other verdicts.
 *
 *     RateLimit-Policy: "conns";q=10;qu="concurrent-requests"
 *     RateLimit: "conns";r=0
 *
 *   style     STINT_HEADERS_DRAFT | STINT_HEADERS_LEGACY; 0: Retry-After alone
 *   verdicts  [verdicts, verdicts+n): one of each policy
 *   size      bytes of the buffer: STINT_HEADERS_SIZE(n) are enough for n verdicts
 * Returns the length of the whole text as snprintf does; 0 if there is nothing to tell;
 * -EINVAL. */
STINT_API int stint_headers(const struct stint_limiter *limiter, uint32_t style,
                            const struct stint_verdict *verdicts, size_t n, char *buffer,
                            size_t size);
#define STINT_HEADERS_SIZE(n) (256 + 512 * (size_t)(n))

/* ---- Messages ------------------------------------------------------------------------------ */

/* Says in one sentence what an error means.
 *   error  what a function here returned, with or without the minus sign
 * Returns the sentence. */
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

/* Opens the table of a file that is there, whatever its shape. It is for tools, and for processes
 * that leave the shape to another. With STINT_READ_ONLY see READERS.
 *   options  path is required; max_entries, shards, max_policies and labels must be 0; mode does
 *            not count; the rest as for stint_open
 *   limiter  receives the limiter
 * Returns 0; -ENOENT (there is no file), -EINVAL, -ENOMEM, -EAGAIN, -EPROTO, -EBUSY, -ELOOP, and
 * what the system says.
 * Cost: that of stint_open of a table that is there. */
STINT_API STINT_CHECKED int stint_attach(const struct stint_options *options,
                                         struct stint_limiter **limiter);

/* Tells how many bytes a limiter takes. stint_open_in must be given so many. With options.path it
 * is the size of the file.
 *   options  as for stint_open
 * Returns the bytes; 0 if the options are wrong (see stint_reason). */
STINT_API size_t stint_memory_size(const struct stint_options *options);

/* Opens a limiter in memory that the caller gives. That is a server's own shared zone, or a
 * MAP_SHARED mapping that children inherit. Memory that is all zero becomes a table. If a process
 * is stopped or killed while it makes that table, the next one with the same options (the same
 * secret, too, or none) makes it whole. If there is a table for the same options, this attaches to
 * it, as it does to a file (SHARED TABLES).
 *   options  as for stint_open; path must be NULL
 *   memory   [memory, memory+size), aligned to 64 bytes; it stays the caller's, to give back when
 *            everyone has closed. It must not be unmapped before stint_close, not even in a process
 *            that only forks: a fork looks at the tables of all limiters that are open
 *   size     at least stint_memory_size(options)
 *   limiter  receives the limiter
 * Returns 0; -EINVAL, -ENOMEM, -EAGAIN, -EPROTO, -EBUSY. */
STINT_API STINT_CHECKED int stint_open_in(const struct stint_options *options, void *memory,
                                          size_t size, struct stint_limiter **limiter);

/* Makes a table in a file larger or smaller. Nobody may have it open. Every live key moves with its
 * count and its refused mark; so do all policies with their ids, the statistics, the labels, the
 * notes, the secret, and the owner and mode of the file. Windows that are over, and leave no debt,
 * are left behind.
 *
 * The new table is made beside the old one, so the file system must have room for both. It takes
 * the old one's place by a rename. So whoever opens the path finds one of the two, whole, even if
 * this process is killed. In the instant before the rename the new one is called .NAME.resize. If a
 * killed process has left such a file, the next stint_resize of the path removes it. Nobody may
 * remove the table, or put another in its place, meanwhile. Readers (STINT_READ_ONLY) do not hinder
 * it, and go on reading the old table. So does whoever opens another hard link to it.
 *   path     of the table; not a symbolic link; its last name has at most 247 bytes
 *   options  max_entries, shards, max_policies, labels, mode: 0: as it was. (But if the old shards
 *            are as many as stint chooses for the old size, it chooses anew.) clock tells which
 *            keys are live. path must be NULL, and secret NULL or that of the table. on_full does
 *            not count. NULL: all as it was
 * Returns 0; or, with the table as it was: -ENOENT (there is none), -EBUSY (a process has it open),
 * -ENOSPC (its live keys find no slots in a table of that size, or notes no room; or the file
 * system has none), -EINVAL (an argument is out of range, there are fewer max_policies than the
 * table has, or the clock is so far behind that it cannot be told what is over), -EOPNOTSUPP (the
 * file has an access control list, and options.mode is 0), -EPROTO (it is no whole table of this
 * version's layout), -EPERM (the owner cannot be kept), -ENOMEM, -ELOOP, and what the system says.
 * Threads: not while the process has the table open itself (-EBUSY).
 * Cost: the old table is read and the new one written: 0.2 s for a million keys. */
STINT_API STINT_CHECKED int stint_resize(const char *path, const struct stint_options *options);

/* Says whether a SIGBUS came of a table whose file was cut off, and if so makes its limiter a lost
 * one (SHARED TABLES). Zeros, of this process alone, take the place of the table's mapping. A
 * process has one handler of SIGBUS (SA_SIGINFO) for all that it does, which calls this. If it is
 * true, the handler returns, and the call that was under way goes on. If it is false, the fault is
 * another's. A handler that just returned would be called again at once: it first restores the
 * default action (SIG_DFL), or calls the handler that was there before.
 *   fault  the siginfo_t that the handler was given
 * Returns whether it was a table's. False, too, if the system has no memory for the zeros.
 * Threads: any. It may be called from signal handlers: it takes no lock, and allocates nothing.
 * Cost: a system call, for each limiter that is lost. */
STINT_API bool stint_on_sigbus(const void *fault);

/* ---- Reloads and checks -------------------------------------------------------------------- */

/* Flags of stint_policies_apply, or-ed together. */
enum stint_apply_flags {
    /* Check the text, and tell what would be done. Change nothing. */
    STINT_DRY_RUN = 1 << 22,
    /* Remove the policies that the text does not name. */
    STINT_PRUNE = 1 << 23,
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

/* Makes the policies of the table those of a text. All lines are parsed and checked first; if one
 * is wrong, or there is no room for all, nothing is changed. Then the policies change one by one,
 * each at once, in the order of the text; removals come last. If the process is killed on the way,
 * each policy is as it was or as it is to be, and applying the text again finishes.
 *
 * A policy is found by its name (one without is named by its rate). Where stint_policy_change could
 * make it what the text says, it is changed. Else it is replaced: by another policy of that name,
 * that counts anew. The old id leads to the new one from that instant on, in every call. So servers
 * that hold the old id go on by the new policy. They share its counts, to the token (A to I), with
 * those that have the new id. Each request looks anew where its id leads, also in a batch.
 *
 * The new policy has the id that a policy of its name had before, if stint_policy_change could make
 * that what the text says: so reloads to and fro take no ids. Else it takes one of max_policies;
 * the old id becomes free as that of a removed policy does.
 *
 * What the old policy granted is gone with its counts: its verdicts give nothing back.
 *   text     NUL-terminated; a policy a line, in the notation of stint_policy_parse; empty lines,
 *            and comments from a # at the line's beginning or after a blank, to the line's end. A
 *            text without a policy is -EINVAL: a file that was cut to nothing removes no policies
 *   flags    STINT_DRY_RUN | STINT_PRUNE
 *   wrong    if a line is wrong (-EINVAL) or has no room (-ENOSPC), receives the character in
 *            `text` that is; else NULL. stint_reason names the line. May be NULL
 *   told     called when all is done, with each line's change, in order, and with the removals.
 *            What it is given is valid during the call. It may call any function. May be NULL
 * Returns 0; -EINVAL, -ENOSPC (more than max_policies), -ENOMEM, -EBUSY, -EPROTO, -EROFS (by a
 * read-only handle, but for STINT_DRY_RUN, which then takes no lock: what others change meanwhile
 * is seen or not).
 * Cost: some microseconds for each policy. If policies were removed or replaced since somebody last
 * opened the table alone, also that of stint_policy_remove. */
STINT_API STINT_CHECKED int
stint_policies_apply(struct stint_limiter *limiter, const char *text, uint32_t flags,
                     const char **wrong,
                     void (*told)(void *context, const struct stint_change *change), void *context);

/* Changes a policy at once, for all keys. What was used stays used (10 used of 10, raised to 25: 15
 * left now; lowered to 5: none left in this window). By a bucket the time until it is full stays
 * (TOKEN BUCKETS). Each request reads the policy anew, also in a batch, so a lowered limit is
 * obeyed from the next request on. A lowered limit of a striped policy is exact from the next
 * window on: until then, a request for one token is granted by any stripe that is below its new
 * share.
 *   policy  name (or empty), window, start, calendar, offset, stripes, STINT_START_PER_KEY,
 *           STINT_START_FIRST, STINT_SMOOTH and STINT_IN_FLIGHT must be what they are, and a bucket
 *           stays one, whose window may change. A policy that carries tokens over (a capacity above
 *           the limit, or max_reserved) goes on to, and no other comes to. All else may change.
 *           stint_policies_apply makes other changes, too: it replaces the policy
 * Returns 0; -EINVAL (the policy is not valid, or cannot be changed so), -ENOENT, -EBUSY, -EPROTO,
 * -EROFS. */
STINT_API int stint_policy_change(struct stint_limiter *limiter, uint32_t id,
                                  const struct stint_policy *policy);

/* Says whether stint_policy_change would make this change, and makes none. It is for servers that
 * look at a whole configuration before they put it in force.
 *   policy  as for stint_policy_change
 * Returns 0; -EINVAL (the policy is not valid, or cannot be changed so), -ENOENT, -EBUSY, -EPROTO,
 * -EROFS. */
STINT_API int stint_policy_change_check(struct stint_limiter *limiter, uint32_t id,
                                        const struct stint_policy *policy);

/* Removes a policy at once. From now on requests by its id are refused (STINT_UNKNOWN_POLICY), and
 * its slots are free. If it comes back, with other numbers that stint_policy_change could give it,
 * it has its id again, and nothing used. Any other policy has another id.
 *
 * Ids of policies that are gone become free when a process opens the table's file and nobody else
 * has it open. So no process that decides ever holds an id that has become another name's. (READERS
 * may.) In private memory, and in memory that was given (stint_open_in), they stay taken.
 * stint_stats.gone_ids tells how many are.
 *
 * A thread in the middle of a decision goes on by the policy that it has read. It may count a token
 * in the slot that it has seen, for the key that has the slot by then (B2). That token is not
 * counted as stray.
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
 * Returns the length of the whole text as snprintf does; -EINVAL (the policy is not valid, or the
 * buffer NULL). */
STINT_API int stint_policy_format(const struct stint_policy *policy, char *buffer, size_t size);

/* Says what a policy allows, but is hardly meant:
 *   - a burst that lasts less than 20 ms at the policy's rate: the default clock stands still for
 *     up to 10 ms, so a key may get less than its rate;
 *   - STINT_SMOOTH with a limit of 1 or 2: steady demand gets about half of it;
 *   - a capacity below the limit, without max_reserved: no window grants more than the capacity,
 *     and a larger cost never fits;
 *   - a ban that is shorter than its window, or than a bucket takes for one token: it can be over
 *     before anything would be granted.
 *
 * Show it to whoever wrote the policy: `stint apply`, `stint make` and `nginx -t` do.
 *   policy  made with STINT_POLICY_INIT
 * Returns the length of the whole text as snprintf does; 0 if there is nothing to say; -EINVAL (the
 * policy is not valid, or the buffer NULL). */
STINT_API int stint_policy_note(const struct stint_policy *policy, char *buffer, size_t size);

/* Says whether a decision on this request would be marked STINT_BAD_REQUEST or
 * STINT_UNKNOWN_POLICY, and why: stint_reason tells what is wrong, and what to write instead. It is
 * for start-up, and for whoever got such a verdict. It decides nothing, and counts nothing. What a
 * group adds is not looked at: that it has no charge, and at most STINT_ALL_MAX requests.
 *   request  made with STINT_REQUEST
 * Returns 0; -EINVAL (it would be STINT_BAD_REQUEST), -ENOENT (STINT_UNKNOWN_POLICY), -EPROTO. */
STINT_API STINT_CHECKED int stint_request_check(const struct stint_limiter *limiter,
                                                const struct stint_request *request);

/* ---- Overrides and bans -------------------------------------------------------------------- */

/* BANS. They begin by themselves: by `ban=1h after=3`, a key that was refused in three windows is
 * banned for an hour. The three lie in one span of an hour (or of `within`), which begins with the
 * first refusal. The next span begins with the first refusal after the end of this one. So refusals
 * at minutes 0, 50, 70 and 80 ban nobody, though 50, 70 and 80 are within an hour; one at 90 does:
 *
 *     minute    0                   50   60   70   80   90                           150
 *     refused   1                   2         1    2    3: banned
 *     spans     |------------------------|    |----.....
 *     ban                                               |------------------------------|
 *
 * If the caller is late, the span or the ban that its refusal begins lasts until the clock's next
 * tick at least. If it is early, its refusal ends no ban and no span that goes on by the clock.
 * Strikes, and a ban, take a slot of the table, as an override does. */

/* Gives a key another limit until an instant. It stands in place of the policy's capacity, and
 * beats request.limit. All else of the policy stays. If one request is judged by several keys
 * (stint_decide_all), the override is this key's only: an override of a client never loosens the
 * limit of its network.
 *
 * It holds for decisions that begin after this call, of all processes that share the table. It
 * survives restarts, and is over at its time by itself. The tokens that the key has used stay used.
 * (By a bucket their time stays if the override is over by itself: TOKEN BUCKETS.) A refusal's
 * retry_after takes into account when the override ends. If that end is all that it waits for, it
 * has no jitter.
 *
 * It takes a slot of the table. The slot is never replaced, and no other key gets it until 60 s
 * after the override's end: another process' clock may be behind. (A stray token in it (B2) raises
 * the limit by one. One that is over may come back 628 days after its end, for as long as it was
 * set for; but from 450 days on a decision of its key, stint_each, stint_stats_get and whoever
 * opens the table alone empty its slot. If a decision sleeps while its slot goes to another key's
 * override, back, and to the other's again, all until the same instant, it goes by the other's. An
 * override that ends more than 366 days and 60 s from now, after a backward step of the clock, is
 * void.)
 *   policy  one with STINT_OVERRIDES. If that flag is taken away, its overrides are not looked at
 *           until it is given again
 *   limit   tokens, at most 2^28. 0 refuses everything, requests for no tokens too. 2^28 never
 *           refuses: all is granted, and what the count does not hold is not counted (as with
 *           STINT_CHARGE). A refund may then give back tokens of the key's other requests. A smooth
 *           policy takes a limit above 16,383 as 16,383, but 2^28 as 2^28
 *   until   ns since the epoch, by the limiter's clock (stint_now), at most 366 days ahead; rounded
 *           up to 10 ms
 * Returns 0; -EINVAL, -ENOENT (no such policy), -ENOSPC (all slots that the key may have are live),
 * -EROFS.
 * Threads: lock-free, as decisions are.
 * Cost: that of a key's first request; once the table has had a note, four cache lines more. */
STINT_API STINT_CHECKED int stint_override(struct stint_limiter *limiter, uint32_t policy,
                                           stint_key key, uint32_t limit, uint64_t until);

/* Sets an override with a note: who set it, and why. stint_each and stint_each_of tell it
 * (stint_entry.note). The note is gone when the override is over, lifted, or set again (by
 * stint_override, too). Whoever sees the override sees its note; a torn one is never shown. If a
 * thread is killed in this call, an override that the key had may be left without its note. If two
 * threads set a key's override at once, the note of either may stay, or none.
 *   policy  as for stint_override
 *   limit   as for stint_override
 *   until   as for stint_override
 *   note    1 to STINT_NOTE_SIZE bytes and a NUL, without control characters: UTF-8 by custom. It
 *           may be personal data. NULL: none
 * Returns 0; -EINVAL, -ENOENT (no such policy), -ENOSPC (all slots that the key may have are live,
 * or there is no room for the note; then nothing was changed), -EROFS. A table has room for a note
 * for each 1,024 of max_entries, 128 at least, in sets of 16 by key.
 * Threads: lock-free, as decisions are.
 * Cost: that of stint_override, and up to seven cache lines more: of a set, and of the note. */
STINT_API STINT_CHECKED int stint_override_note(struct stint_limiter *limiter, uint32_t policy,
                                                stint_key key, uint32_t limit, uint64_t until,
                                                const char *note);

/* Tells the override of a key, or its ban, which has limit 0.
 *   limit  receives its tokens; may be NULL
 *   until  receives its end, ns since the epoch; may be NULL
 * Returns 0; -ENOENT (there is none, or no such policy), -EINVAL.
 * Threads: any.
 * Cost: that of a look. */
STINT_API int stint_override_get(const struct stint_limiter *limiter, uint32_t policy,
                                 stint_key key, uint32_t *limit, uint64_t *until);

/* Ends a key's override, or its ban, now. The tokens that the key has used stay used.
 * Returns 0; -ENOENT (there is none, or no such policy), -EINVAL, -EROFS. One that is over by the
 * clock counts as none, but is there again if the clock is set back to before its end.
 * Threads: lock-free.
 * Cost: that of stint_reset. */
STINT_API int stint_override_clear(struct stint_limiter *limiter, uint32_t policy, stint_key key);

/* ---- Watching ------------------------------------------------------------------------------ */

/* Counts of a table since it was made. Each is exact once the threads that count have stopped (but
 * for those that were killed in the middle of a decision). */
struct stint_stats {
    size_t size;             /* sizeof(struct stint_stats) */
    uint64_t memory;         /* bytes of the table */
    uint64_t slots;          /* (key, policy) pairs that fit; twice max_entries or a little more */
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
    uint32_t processes;    /* that decide by the table and have counters of their own; those that
                            * died since the last set-up call too. 0 in private memory */
    uint32_t lost;      /* 1: the table's file was cut off (SHARED TABLES). `untracked` counts what
                            * this process has let through since then, and most else is 0 */
    uint64_t overrides; /* keys with an override now, set by stint_override */
    uint64_t barred;    /* of these: refused everything */
    uint64_t banned;    /* keys that are banned now (stint_policy.ban); by a shadow: would be */
    uint64_t max_entries;  /* this and the next are options that the table was made with */
    uint64_t labels;       /* rounded up to fours */
    uint64_t used_labels;  /* of these: that have a key */
    uint32_t max_policies; /* an option of the table: ids that there are for policies */
    uint32_t policy_ids;   /* of these: that are taken. A policy with overrides takes two */
    uint32_t gone_ids;     /* of the taken: of policies that were removed or replaced. They are used
                            * again, or become free, as stint_policy_remove says */
    uint32_t reach;        /* lines from its first to the one where a key was put, at most so far */
    uint32_t max_reach;    /* lines that a key may be away: 23, if a shard has as many */
    uint32_t removed;      /* 1: the table's file has no name any more. It was removed, or another
                            * took its place. This process counts apart from those that open the
                            * path */
};

#define STINT_STATS_INIT                                                                           \
    {                                                                                              \
        sizeof(struct stint_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
            0, 0, 0, 0, 0, 0, 0                                                                    \
    }

/* Counts of one policy. Every decision is in exactly one of the first three. Charges and looks are
 * no decisions; only the look before a charge (STINT_PEEK | STINT_CHARGE) is. */
struct stint_policy_stats {
    size_t size; /* sizeof(struct stint_policy_stats) */
    uint64_t allowed;
    uint64_t refused;
    uint64_t shadowed;       /* let through, but would have been refused */
    uint64_t first_refusals; /* keys refused, counted once per window; shadowed ones too */
    uint64_t untracked;      /* of the above: decided without a slot, the table being full */
    uint64_t near_limit;     /* of the allowed: marked STINT_NEAR_LIMIT */
    uint64_t charged;        /* tokens that STINT_CHARGE took */
    uint64_t refunded;       /* tokens given back by stint_refund and stint_refund_all */
    uint64_t bans;           /* times that a key was banned; by a shadow: would have been */
    uint64_t strikes_lost;   /* refusals that did not count for a ban, the table being full */
    uint64_t refunds_lost;   /* refunds of granted tokens that gave nothing back: the window was
                              * over, in flight the lease; or it was the second of a grant */
    uint64_t mistaken_nows;  /* requests whose `now` was further than 366 days from the clock, and
                              * which were decided at the clock's time (stint_take) */
};

#define STINT_POLICY_STATS_INIT                                                                    \
    { sizeof(struct stint_policy_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Reads the counts of the table.
 *   stats  made with STINT_STATS_INIT; receives all fields
 * Returns 0; -EINVAL.
 * Cost: reads every slot, about 0.1 s for 10 million keys. */
STINT_API int stint_stats_get(struct stint_limiter *limiter, struct stint_stats *stats);

/* Reads the counts of one policy.
 *   stats  made with STINT_POLICY_STATS_INIT; receives all fields
 * Returns 0; -EINVAL, -ENOENT. */
STINT_API int stint_policy_stats_get(struct stint_limiter *limiter, uint32_t id,
                                     struct stint_policy_stats *stats);

/* Flags of stint_entry, or-ed together. */
enum stint_entry_flags {
    /* The key was refused in the window of the entry: its FIRST_REFUSAL has been told. */
    STINT_ENTRY_REFUSED = 1 << 0,
    /* The top bits of `key` are 0 because they are not known, and there is no label: a table in
     * memory of fewer than 6,144 keys, or 96 for each of max_policies (I). */
    STINT_ENTRY_KEY_PART = 1 << 1,
    /* A striped key that uses too few slots to tell what key it is: `key` is the hash of one slot,
     * and no request finds it. (The key itself is always told if it was refused in the window, or
     * has a label.) With STINT_ENTRY_KEY_PART it is one slot of a striped key: `used` is what that
     * slot holds. */
    STINT_ENTRY_KEY_STRIPE = 1 << 2,
    /* This is no count: until `end` the key has another limit (stint_override), `limit`. */
    STINT_ENTRY_OVERRIDE = 1 << 3,
    /* This is no count: until `end` the key is banned (stint_policy.ban). STINT_ENTRY_OVERRIDE is
     * set, too. A limit that stint_override has set has STINT_ENTRY_OVERRIDE alone. */
    STINT_ENTRY_BAN = 1 << 4,
    /* The policy is a shadow: the ban refuses nobody. */
    STINT_ENTRY_SHADOW = 1 << 5,
    /* This is no count: until `end` the key has `used` strikes; enough of them begin a ban. Told by
     * stint_each_of alone. */
    STINT_ENTRY_STRIKES = 1 << 6,
    /* This is no count: nothing is left of the key but its label. `policy` is UINT32_MAX. Told by
     * stint_each_of alone. */
    STINT_ENTRY_LABEL = 1 << 7,
};

/* A key that has used tokens of a policy, or owes them, or was refused. */
struct stint_entry {
    stint_key key;
    uint32_t policy; /* its id */
    uint32_t flags;  /* enum stint_entry_flags */
    uint64_t used;   /* tokens, as a look at the key tells now */
    uint64_t end;    /* of the window, ns since the epoch. Of a key that has only a debt, the window
                      * of now; of a bucket, when it is full */
    const char *label;        /* [label, label+label_length): any bytes, no NUL at the end; NULL:
                               * none is known. Valid during the callback */
    uint32_t label_length;    /* bytes, at most STINT_LABEL_SIZE */
    uint32_t refused_windows; /* how often stint_label named the key; 0: no label is known */
    uint64_t limit;           /* of STINT_ENTRY_OVERRIDE: 0: refused everything; 2^28: never */
    uint64_t since;           /* ns since the epoch. STINT_ENTRY_BAN: of the refusal that began it.
                               * STINT_ENTRY_STRIKES: of the first strike (by the policy's present
                               * ban). STINT_ENTRY_REFUSED: the key was refused after this instant.
                               * Else 0 */
    uint64_t refused_last;    /* ns since the epoch, whole seconds: when stint_label last named the
                               * key; 0: no label is known */
    const char *note;         /* of STINT_ENTRY_OVERRIDE: what stint_override_note was given, with a
                               * NUL; escape it before you print it. NULL: none, and with
                               * STINT_ENTRY_KEY_PART. Valid during the callback */
    uint64_t reserved[1];     /* 0 */
};

/* Tells of every live key of the table, by each of its policies, in no order. What others do
 * meanwhile may be seen or not; a key that keeps its slot is told once. Windows that are over are
 * left out, unless they leave a debt. The slots of a striped key are added up; such keys are told
 * last. An override is told by itself, whether the key has used anything or not.
 *   callback  is given `context` and an entry, which is valid until it returns; returns false to
 *             stop. It may call any function that decides
 * Returns 0; -EINVAL, -ENOMEM (64 bytes are taken meanwhile for each slot of a striped key).
 * Cost: reads every slot, as stint_stats_get does; with labels a cache miss more for each entry;
 * slots of striped keys are sorted. */
STINT_API int stint_each(struct stint_limiter *limiter,
                         bool (*callback)(void *context, const struct stint_entry *entry),
                         void *context);

/* Tells of one key what stint_each would tell, and its strikes; if there is neither, its label. So
 * a server can show all that the table has of a client. What the key may still take, a look tells
 * (STINT_PEEK), also by policies that have no entry of it.
 *   key       as it is decided. In each of its entries it is whole, whatever the table is
 *   callback  as for stint_each
 * Returns 0; -EINVAL.
 * Threads: any. It takes no lock, allocates nothing, and stores nothing.
 * Cost: the lines that the key may be in, 24 at most; of each striped policy, those of each stripe;
 * with labels a cache miss more for each entry. */
STINT_API int stint_each_of(struct stint_limiter *limiter, stint_key key,
                            bool (*callback)(void *context, const struct stint_entry *entry),
                            void *context);

/* Leaves a key's name for readers of the table, and counts one more window in which it was refused.
 * Call it once at each STINT_FIRST_REFUSAL. Names are kept in sets of four, by key. In a full set
 * the key that was refused in the fewest windows makes room; each day since its last refusal halves
 * its number. A torn name is never shown: a thread that is killed in this call leaves the key
 * without one until it is named again.
 *   key     as it was decided
 *   bytes   [bytes, bytes+length); the first STINT_LABEL_SIZE are kept, as they are: escape control
 *           bytes before you print them. NULL only if length is 0
 *   length  0 or more bytes; 0 only counts, and forgets the name
 * Returns 0; -EINVAL, -ENOENT (the table has no room for labels), -EROFS.
 * Cost: five cache lines, one of which is written. */
STINT_API int stint_label(struct stint_limiter *limiter, stint_key key, const void *bytes,
                          size_t length);

/* Flags of stint_metrics_options, or-ed together. */
enum stint_metrics_flags {
    /* Leave "# EOF" out: other families follow in the same text. */
    STINT_METRICS_NO_EOF = 1 << 25,
    /* Do not look at every slot: it takes microseconds, and leaves out the gauges of what is in
     * use. */
    STINT_METRICS_NO_SCAN = 1 << 26,
};

/* What stint_metrics writes. */
struct stint_metrics_options {
    size_t size;               /* sizeof(struct stint_metrics_options) */
    const char *const *labels; /* for all samples: names and values by turns, NULL at the end; NULL:
                                * none. {"table", "logins", NULL} says table="logins". Names are
                                * [a-zA-Z_][a-zA-Z0-9_]*, each once, none of them "policy" or
                                * "outcome"; values are UTF-8. 1,000 bytes in all */
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
                            const struct stint_metrics_options *options, char *buffer, size_t size);

#ifdef __cplusplus
}
#endif

#endif /* STINT_H */
