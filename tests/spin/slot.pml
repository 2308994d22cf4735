/* SPDX-License-Identifier: MIT
 * The slot protocol of src/map/slot.h, as src/take.c, decide.c, map/ and refund.c do it, for spin. `run`
 * compiles and runs it: good configurations, which must hold, and wrong variants (WRONG_*), which must
 * not. A part of a group (group.c) that is charged by an add is a take here, one that is charged by
 * a swap a decide; so is STINT_CHARGE, and a stripe's request.
 *
 * Every `atomic` holds at most one atomic operation of the C code; the other statements in it touch
 * locals of the thread, or ghosts. A loop around a compare-and-swap that only comes again because
 * `used` changed (stint_claim_cancel, claim_resolve, watermark_raise) is one step here: its failed rounds
 * write nothing. Memory is sequentially consistent.
 *
 * Time is a few ticks. The clock moves at any instant; a thread loads it once, when a call begins,
 * and may sleep anywhere after that, so it is late by any amount. A thread that is killed is one
 * that spin never schedules again: every prefix of a run is a run. So promise E is that the state
 * graph has no cycle (a thread that goes round while all others stand still would be one) and no
 * state in which a thread waits (spin's invalid end states).
 *
 * Parameters (-D): SLOTS of the keys' sequence, HOME of them in the two lines that are always looked at (here
 * they are one) and the others behind, where the reach of their home line leads,
 * THREADS, CALLS0 CALLS1 CALLS2 of each, KEYS0 KEYS1 KEYS2 (bit set of the keys that it calls for), LIMIT of both
 * policies, LENGTH0 START0 LENGTH1 START1 of their windows, FIRST (bit set of the keys whose windows
 * begin with their first request: START does not count), LAST tick of the clock, USED (slots that
 * other keys had before), HELD (the last of these is the first key's), REFUND, RESET, PEEK (calls
 * that threads may make beside takes), REPLACE (STINT_FULL_REPLACE).
 *
 * With OVERRIDES there are three processes more: two hands, which set and lift overrides (HAND0 HAND1,
 * the keys that they do that for; SETS0 SETS1, how often), and an asker, which looks for the override
 * of the first key as a decision does (ASKS times). UNTIL is the end that overrides have that are
 * not short; SHORT: hands may set such as end with the tick; VOID: the last used slot is an override
 * that is too far ahead. AFTER: the second hand counts strikes instead, the first one, too, if STRIKES is 2;
 * so many, within BAN ticks of the first, are a ban for BAN ticks.
 *
 * FALLS: ends that fall are told (fallen_end), also those of overrides.
 *
 * GONE: the policy of key GONE - 1 is removed, and its slots are swept; ALIAS: the other key's takes its
 * place.
 *
 * Of the first key's policy: CHANGE: its limit becomes that; OWN: requests may have this limit of their own,
 * or by an override; CHARGE: there are charges, which bring a count up to that; CARRY: it carries what is above
 * its limit, and so much may be reserved.
 *
 * BUCKET: the second key's policy is a token bucket of so many tokens, one of which comes back in each of
 * the STEPS of a tick; the clock goes by steps then, until LAST. AHEAD: nows may be so many steps ahead of the
 * clock. The first thread alone gives back: in another order it is an exception.
 *
 * What the header calls exceptions is found with UNFORGIVEN (a reset before a token is back) and STRICT (who
 * is refused for one on its way back). */

#ifndef HOME
#define HOME SLOTS
#endif
/* Of slot i: its line, where that begins, and where the first so many lines end. */
#define LINE_OF(i)      ((i) < HOME -> 0 : 1)
#define BEGIN_OF(i)     ((i) < HOME -> 0 : HOME)
#define END_OF_LINES(n) ((n) > 1 -> SLOTS : HOME)
#ifndef FALLS
#define FALLS (GONE || REPLACE || BUCKET)
#endif

/* Something of each slot, or of each thread. */
#if SLOTS == 1
#define EACH_SLOT(what, t, and) what(t, 0)
#elif SLOTS == 2
#define EACH_SLOT(what, t, and) what(t, 0) and what(t, 1)
#else
#define EACH_SLOT(what, t, and) what(t, 0) and what(t, 1) and what(t, 2)
#endif
#if THREADS == 2
#define EACH_THREAD(what, i, and) what(0, i) and what(1, i)
#else
#define EACH_THREAD(what, i, and) what(0, i) and what(1, i) and what(2, i)
#endif

/* Threads that make the same calls begin in their order: every other order is this one with other numbers. So
 * many there are after the first. */
#if KEYS0 != KEYS1 || CALLS0 != CALLS1 || BUCKET
#define TWINS 0
#elif THREADS == 2 || KEYS1 != KEYS2 || CALLS1 != CALLS2
#define TWINS 1
#else
#define TWINS 2
#endif

/* Tags. The keys' own are KEY and KEY + 1; those of the companion's slots are OVERRIDE and
 * OVERRIDE + 1. */
#define NEVER     0
#define TOMBSTONE 1
#define OTHER     2 /* a key that had a slot before, and is not called for any more */
#define KEY       3
#define OVERRIDE  5

#define MAX(one, other) ((one) > (other) -> (one) : (other))

/* A state is one word, as in slot.h: end | pending | refused | used. */
#define STATE(end, pending, refused, used) ((end) << 6 | (pending) << 5 | (refused) << 4 | (used))
#define STATE_USED(state)    ((state) & 15)
#define STATE_REFUSED(state) ((state) >> 4 & 1)
#define STATE_PENDING(state) ((state) >> 5 & 1)
#define STATE_ID(state)      ((state) >> 6)
#define SAME_WINDOW(one, other) (((one) >> 5) == ((other) >> 5))

#define LENGTH(key) ((key) == 0 -> LENGTH0 : LENGTH1)
#define START(key)  ((key) == 0 -> START0 : START1)
#define IS_FIRST(key) (FIRST >> (key) & 1)
#define WINDOW_END(key, tick)                                                                      \
    (IS_FIRST(key) -> (tick) + LENGTH(key)                                                         \
     : ((tick) + 8 * LENGTH(key) - START(key)) / LENGTH(key) * LENGTH(key) - 7 * LENGTH(key) +     \
           START(key))
#if FIRST && LENGTH0 > 2
#error "PROMISE_A_windows_apart looks at the ends beside an end"
#endif
#if LAST + LENGTH0 > 14 || LAST + LENGTH1 > 14
#error "16 ends fit in a word of counts"
#endif

/* The id that stands for an end, and the end that an id of a slot stands for. */
#ifdef WRONG_IDS /* windows counted for each policy, from 1: the same number twice in a slot */
#define ID(key, end) ((end) / LENGTH(key))
#define END_OF(holder, state)                                                                      \
    ((holder) < KEY || STATE_PENDING(state) -> STATE_ID(state)                                     \
                                            : STATE_ID(state) * LENGTH((holder) - KEY))
#else
#define ID(key, end)          (end)
#define END_OF(holder, state) STATE_ID(state)
#endif

#define VARIES (CHANGE || OWN || CHARGE || CARRY)
#if VARIES
#define CAPACITY(t) call[t].capacity
byte limit = LIMIT, hot_limit = (CARRY -> 0 : LIMIT); /* of the first key's policy */
#else
#define CAPACITY(t) LIMIT
#endif
#define HAS_ROOM(state) (STATE_USED(state) < CAPACITY(me))
#if BUCKET /* of the second key. All of it counts in steps */
#if LAST + AHEAD > 9
#error "10 steps fit in a word of counts"
#endif
#define IS_BUCKET              (call[me].key == 1)
#define FULL_AT(state)         ((STATE_ID(state) - 1) * STEPS + STATE_USED(state)) /* bucket_full */
#define FROM(state, t)         MAX(FULL_AT(state), call[t].at)
#define BUCKET_STATE(fills)    STATE((fills) / STEPS + 1, 0, 0, (fills) % STEPS)
#define BUCKET_ROOM(state, t, time) (MAX(FULL_AT(state), time) + call[t].cost - (time) <= BUCKET)
/* It has no room by the clock, either. */
#define BUCKET_FOR(t, i)                                                                           \
    (call[t].key == 1 && !BUCKET_ROOM(slot[i].state, t, MAX(call[t].at, clock)))
#define IN_WINDOWS(t)          (call[t].key == 0)
#define TICK_OF(time)          ((time) / STEPS)
#else
#define IS_BUCKET              false
#define IN_WINDOWS(t)          true
#define BUCKET_FOR(t, i)       false
#define TICK_OF(time)          (time)
#endif
#if CARRY /* of the first key's policy: count_carry */
#define OVER(used, windows)  ((used) > LIMIT * (windows) -> (used) - LIMIT * (windows) : 0)
/* From when on the key of a slot that is over is judged the same without it: slot_done. */
#define OVER_BY(holder, state, now)                                                                \
    (STATE_USED(state) > LIMIT                                                                     \
         -> END_OF(holder, state) + (STATE_USED(state) - 1) / LIMIT * LENGTH(0) : END_OF(holder, state))
#define CARRIED(state, used, now) OVER(used, (WINDOW_END(0, now) - STATE_ID(state)) / LENGTH(0))
#else
#define OVER_BY(holder, state, now) END_OF(holder, state)
#endif

typedef slot_t {
    byte tag;
    short state
};
slot_t slot[SLOTS];
byte watermark;
#if HOME < SLOTS
byte reach;
#define REACH reach
#else
#define REACH 0
#endif
#if BUCKET
byte clock = STEPS;
#else
byte clock = 1;
#endif
/* Where it is looked at once by a call, or a sweep, that begins, it need not move but then. */
#if OVERRIDES
#define CLOCK_MOVES
#else
#define CLOCK_MOVES                                                                                \
    do                                                                                             \
    :: clock < LAST -> clock++                                                                     \
    :: break                                                                                       \
    od;
#endif
#if TWINS
byte begun; /* threads, of those that are alike */
#define MAY_BEGIN (me > TWINS || begun >= me)
#define HAS_BEGUN begun = begun + (me <= TWINS && begun == me);
#else
#define MAY_BEGIN true
#define HAS_BEGUN
#endif
#if FALLS
byte fallen; /* fallen_end */
#define END_FALLS(end, to) fallen = ((end) > (to) -> MAX(fallen, end) : fallen)
#ifdef WRONG_FALLEN_NOT_RAISED
#undef END_FALLS
#define END_FALLS(end, to) skip
#endif
#ifdef WRONG_FALLEN
#define MAY_HAVE_FALLEN(end) false
#else
#define MAY_HAVE_FALLEN(end) ((end) <= fallen)
#endif
#else
#define END_FALLS(end, to)
#define MAY_HAVE_FALLEN(end) false
#endif
#if GONE
#define GONE_KEY (GONE - 1)
bit gone; /* the policy's version says so */
#define POLICY_GONE (gone && call[me].key == GONE_KEY)
#define BEGIN       goto decision_begin
#define LOOKED      claim_gone
#else
#if VARIES
#define BEGIN goto decision_begin
#else
#define BEGIN goto find
#endif
#define LOOKED commit_tick
#endif

/* ---- Ghosts: what the promises are about ------------------------------------------------------ */

/* Tokens of a key in force in each window: granted, less given back. So many bits for each end; of a bucket,
 * for each step: by the now of the grant. */
int granted[2];
#define GRANT_BITS           (2 + (CHANGE > 2 || OWN > 2 || CARRY > 0 || BUCKET > 0))
#define GRANTS               ((1 << GRANT_BITS) - 1)
#define GRANTED_IN(key, end) (granted[key] >> GRANT_BITS * (end) & GRANTS)
#define GRANT_MORE(key, end) granted[key] = granted[key] + (1 << GRANT_BITS * (end))
#define GRANT_LESS(key, end) granted[key] = granted[key] - (1 << GRANT_BITS * (end))
hidden byte count;
short told[2]; /* bit of each end: somebody has been told that he is the first refused */
byte charged[SLOTS]; /* tokens in a slot that stay: granted, charged, or strays */
typedef call_t {
    byte mine; /* slot + 1: there its fetch-add has put a token into the key's own window, and ... */
    bit token; /* ... it fitted; else it is on its way back. 0: none, or it is there no more */
    bit busy;
    bit lacked; /* the key had no room at some instant of this call */
    bit crowded; /* at some instant it had no slot and, by its now, could have had none */
#if VARIES
    byte capacity;
#endif
#if BUCKET
    byte at;   /* its now in steps */
    byte cost; /* of a bucket */
#endif
    byte key;
    byte now
};
call_t call[THREADS];
bit replaced[2]; /* the key has lost a live slot: A and B are off */

/* Tokens that are on their way back, of a slot. */
#define BACK_FROM(t, i) (call[t].mine == (i) + 1 && !call[t].token)
#define ON_THEIR_WAY(i) (EACH_THREAD(BACK_FROM, i, +))

/* What others are refused for: `used` (I4). */
#ifdef STRICT
#define COUNTED(i) charged[i]
#else
#define COUNTED(i) (charged[i] + ON_THEIR_WAY(i))
#endif
#if CARRY
#define FULL_FOR(t, i)                                                                             \
    ((STATE_ID(slot[i].state) > call[t].now                                                        \
          -> COUNTED(i) : CARRIED(slot[i].state, COUNTED(i), call[t].now)) >= CAPACITY(t))
#else
#define FULL_FOR(t, i)                                                                             \
    (END_OF(slot[i].tag, slot[i].state) > call[t].now && COUNTED(i) >= CAPACITY(t))
#endif
#define NO_ROOM(t, i)                                                                              \
    (slot[i].tag == KEY + call[t].key && !STATE_PENDING(slot[i].state) &&                          \
     ((IN_WINDOWS(t) && FULL_FOR(t, i)) || BUCKET_FOR(t, i)))
#define NO_ROOM_ANYWHERE(t) (EACH_SLOT(NO_ROOM, t, ||))
#define COMMITTED_TO(i, t)               (slot[i].tag == (t) && !STATE_PENDING(slot[i].state))
#define NOT_FOR(t, i)                                                                              \
    (slot[i].tag != NEVER && !COMMITTED_TO(i, KEY + call[t].key) &&                                \
     END_OF(slot[i].tag, slot[i].state) > call[t].now)
#define NONE_FOR(t) (EACH_SLOT(NOT_FOR, t, &&))
#define NOTE_FULL_OF(t)                                                                            \
    call[t].lacked = call[t].lacked || (call[t].busy && NO_ROOM_ANYWHERE(t));                      \
    call[t].crowded = call[t].crowded || (call[t].busy && NONE_FOR(t))
#if THREADS == 2
#define NOTE_FULL NOTE_FULL_OF(0); NOTE_FULL_OF(1)
#else
#define NOTE_FULL NOTE_FULL_OF(0); NOTE_FULL_OF(1); NOTE_FULL_OF(2)
#endif

/* The promises. Their names are in spin's error messages, by which `run` tells them apart. */
#if CARRY /* what one window had of the next is not had there */
#define PROMISE_A_within_limit(k, end)                                                             \
    (GRANTED_IN(k, end) <= CAPACITY(me) &&                                                         \
     GRANTED_IN(k, end) + ((end) > 2 -> GRANTED_IN(k, (end) - 2) : 0) <=                           \
         LIMIT + CAPACITY(me))
#else
#define PROMISE_A_within_limit(k, end)   (replaced[k] || GRANTED_IN(k, end) <= CAPACITY(me))
#endif
/* Windows that begin with first requests have no tick in common: no two ends are beside each other. */
#define PROMISE_A_windows_apart(k, end)                                                            \
    (replaced[k] || !IS_FIRST(k) || LENGTH(k) == 1 ||                                              \
     (GRANTED_IN(k, end + 1) == 0 && GRANTED_IN(k, end - 1) == 0))
/* In steps a to b no more than BUCKET + b - a, as `spent` is the most of their sum, less one for each. */
#define PROMISE_A_in_spans (spent < BUCKET)
#define PROMISE_A_counted_by_own(k, i)   (replaced[k] || slot[i].tag == KEY + (k))
#define PROMISE_A_commits_own(i)         (slot[i].tag == KEY + call[me].key)
#define PROMISE_A_token_is_counted(k, l) (replaced[k] || (l))
#ifdef UNFORGIVEN
#define FORGIVES_RESET false
#else
#define FORGIVES_RESET RESET
#endif
#ifdef WITHOUT_I4
#define I4_takes_back_own     true
#define I4_all_are_counted(i) true
#else
/* Who takes a token back takes his own: that of another only after a reset, or an exception of I1. */
#define I4_takes_back_own                                                                          \
    (replaced[call[me].key] || FORGIVES_RESET || call[me].mine != 0)
/* What is used was counted, or is on its way back. */
#define I4_all_are_counted(i)                                                                      \
    (REPLACE || KIND(i) != 2 || slot[i].tag < KEY || slot[i].tag >= OVERRIDE - (BUCKET > 0) ||     \
     STATE_USED(slot[i].state) == charged[i] + ON_THEIR_WAY(i))
#endif
#define PROMISE_B_was_full(t)            (replaced[call[t].key] || call[t].lacked)
#define PROMISE_G_was_crowded(t)                                                                   \
    (OVERRIDES || GONE || call[t].crowded) /* overrides.c, sweep.c; here its now may move */
#define PROMISE_C_first_refusal_once(k, end) (replaced[k] || !(told[k] >> (end) & 1))
#define COMMITTED_IN(t, i)  COMMITTED_TO(i, t)
#define COMMITTED_COUNT(t) (EACH_SLOT(COMMITTED_IN, t, +))

#define I3_one_slot_of_a_key (COMMITTED_COUNT(KEY) <= 1 && COMMITTED_COUNT(KEY + 1) <= 1)
#define I3_one_override (COMMITTED_COUNT(OVERRIDE) <= 1 && COMMITTED_COUNT(OVERRIDE + 1) <= 1)
/* An override of key k counts as a limit of 4 (k + 1): strays add less. Strikes are fewer. */
#define LIMIT_OF(k) (4 * ((k) + 1))
#define BAN_OF(k)   (12 + (k))
#define HOLDS(state) (STATE_REFUSED(state) || STATE_USED(state) >= 12)
#define PROMISE_O_of_own_key(state)                                                                \
    (STATE_REFUSED(state) -> STATE_USED(state) / 4 == 1 : STATE_USED(state) == BAN_OF(0))
#define PROMISE_O_no_strike_lost(used) ((used) == strikes)
#define PROMISE_O_is_seen            !due
#define PROMISE_O_none_void(state)   (STATE_ID(state) <= clock + MOST)
#define PROMISE_O_replaces_none(tag) ((tag) < OVERRIDE)
#define MOST 8 /* ticks that an override can be set ahead */

/* ---- Transitions: each write to a slot names its own ------------------------------------------ */

/* `run` compares the set of those that happen with the table in map/slot.h. */
#define BY_CLAIM   0
#define BY_RESOLVE 1
#define BY_TAKE    2
#define BY_DECIDE  3
#define BY_REFUND  4
#define BY_RESET   5
#define BY_REPLACE 6
#define BY_OVERRIDE 7
#define BY_SWEEP   8
#define HOW_DOUBLE 0
#define HOW_SINGLE 1
#define HOW_ADD    2

c_decl {
    \#include <stdio.h>
    \#include <stdlib.h>
    static unsigned char happened[4][4][3][9];
    static void report_transitions(void) {
        static const char *const states[] = {"NEVER", "PENDING", "COMMITTED", "TOMBSTONE"};
        static const char *const hows[] = {"D", "S", "+"};
        static const char *const bys[] = {"claim", "resolve", "take", "decide", "refund", "reset",
                                          "replace", "override", "sweep"};
        for (int i = 0; i < 4 * 4 * 3 * 9; i++)
            if (happened[i / 108][i / 27 % 4][i / 9 % 3][i % 9])
                printf("transition: %s %s %s %s\n", states[i / 108], states[i / 27 % 4],
                       hows[i / 9 % 3], bys[i % 9]);
    }
    static void report_at_exit(void) {
        static int asked;
        if (!asked++)
            atexit(report_transitions);
    }
};

hidden byte from, to; /* no part of the state */
hidden short before;

#define KIND(i)                                                                                    \
    (slot[i].tag == NEVER     -> 0                                                                 \
     : (slot[i].tag == TOMBSTONE -> 3 : (STATE_PENDING(slot[i].state) -> 1 : 2)))

/* I1: the end only grows, and with another tag it does grow, except into a tombstone. That of an
 * override may fall, that of a policy that is gone, and that of a bucket, after it was told; but to none that
 * a count of another in the slot had: `floor` is the last of those. */
#if GONE || BUCKET
byte floor[SLOTS];
#if BUCKET
#define OF_FALLING KEY + 1
#else
#define OF_FALLING KEY + GONE_KEY
#endif
#define NOTE_OVERRIDE(i)                                                                           \
    if                                                                                             \
    :: slot[i].tag >= KEY && slot[i].tag != OF_FALLING ->                                          \
        floor[i] = MAX(floor[i], STATE_ID(slot[i].state))                                          \
    :: else                                                                                        \
    fi;
#define NOTE_TAG(i)
#elif OVERRIDES
byte floor[SLOTS];
byte until; /* ghost: the end of the first key's override; 0: it has none */
bit due; /* ghost: the asker's key has had an override since it began to ask */
byte asked; /* its now */
#if AFTER
byte strikes, strikes_end; /* ghosts: the first key's, as they are counted one after the other */
#endif
#define NOTE_OVERRIDE(i)                                                                           \
    if                                                                                             \
    :: slot[i].tag >= KEY && slot[i].tag < OVERRIDE ->                                             \
        floor[i] = MAX(floor[i], STATE_ID(slot[i].state))                                          \
    :: else                                                                                        \
    fi;                                                                                            \
    if                                                                                             \
    :: COMMITTED_TO(i, OVERRIDE) ->                                                                \
        until = (HOLDS(slot[i].state) -> STATE_ID(slot[i].state) : 0)                              \
    :: !COMMITTED_TO(i, OVERRIDE) && was == OVERRIDE && !STATE_PENDING(before) -> until = 0        \
    :: else                                                                                        \
    fi;                                                                                            \
    due = due && until > asked;
hidden byte was;
#define NOTE_TAG(i) was = slot[i].tag;
#else
#define floor before_none
hidden byte before_none[SLOTS];
#define NOTE_OVERRIDE(i)
#define NOTE_TAG(i)
#endif
#if BUCKET
#define MAY_FALL(by) ((by) == BY_REFUND || (by) == BY_RESET) && STATE_ID(before) <= fallen
#else
#define MAY_FALL(by) (by) >= BY_OVERRIDE
#endif
#ifdef WITHOUT_I1
#define I1_end_grows(i, new_tag, by) true
#else
#define I1_end_grows(i, new_tag, by)                                                               \
    (REPLACE || (MAY_FALL(by) && STATE_ID(slot[i].state) + ((by) == BY_SWEEP) > floor[i]) ||       \
     STATE_ID(slot[i].state) > STATE_ID(before) ||                                                 \
     (STATE_ID(slot[i].state) == STATE_ID(before) &&                                               \
      (slot[i].tag == (new_tag) || (new_tag) == TOMBSTONE)))
#endif

/* What was added before another window, or a reset, is there no more. */
#define GONE_FROM(t, i) call[t].mine = (call[t].mine == (i) + 1 -> 0 : call[t].mine)
#define ALL_GONE_FROM(i) EACH_THREAD(GONE_FROM, i, ;)

#define WRITE(i, new_tag, new_state, how, by)                                                      \
    d_step {                                                                                       \
        from = KIND(i);                                                                            \
        NOTE_TAG(i)                                                                                \
        before = slot[i].state;                                                                    \
        slot[i].state = new_state;                                                                 \
        assert(I1_end_grows(i, new_tag, by));                                                      \
        if                                                                                         \
        :: slot[i].tag != (new_tag) || !SAME_WINDOW(slot[i].state, before) || (by) == BY_RESET ->  \
            ALL_GONE_FROM(i)                                                                       \
        :: else                                                                                    \
        fi;                                                                                        \
        slot[i].tag = new_tag;                                                                     \
        assert(I4_all_are_counted(i));                                                             \
        to = KIND(i);                                                                              \
        c_code { happened[from][to][how][by] = 1; };                                               \
        printf("slot %d: tag %d, end %d, pending %d, refused %d, used %d\n", i, slot[i].tag,       \
               STATE_ID(slot[i].state), STATE_PENDING(slot[i].state),                              \
               STATE_REFUSED(slot[i].state), STATE_USED(slot[i].state));                           \
        NOTE_OVERRIDE(i)                                                                           \
        NOTE_FULL                                                                                  \
    }

/* ---- A thread --------------------------------------------------------------------------------- */

#define NONE SLOTS
#define TAG  (KEY + call[me].key)
#define NOW  call[me].now

#define FORGET                                                                                     \
    i = 0; at = NONE; held_tag = 0; held = 0; state = 0; added = 0; tag = 0; tick = 0;             \
    lines = 1; match = 0; sure = 0

/* STALE: start over. */
#define START_OVER FORGET; goto find

#define GRANT(end)                                                                                 \
    GRANT_MORE(call[me].key, end);                                                                 \
    assert(PROMISE_A_within_limit(call[me].key, end));                                             \
    assert(PROMISE_A_windows_apart(call[me].key, end)); assert(I3_one_slot_of_a_key)

#define GRANTED(end)                                                                               \
    granted_key = call[me].key; granted_end = end; goto next

/* A token was counted in slot n, by a compare-and-swap or a commit. */
#define OPENED(n)                                                                                  \
    assert(PROMISE_A_counted_by_own(call[me].key, n));                                             \
    CHARGED;                                                                                       \
    GRANT(tick); GRANTED(tick)
#if CHARGE /* no grant, nor refused */
#define CHARGED                                                                                    \
    if                                                                                             \
    :: charge -> goto next                                                                         \
    :: else                                                                                        \
    fi
#else
#define CHARGED skip
#endif

#if BUCKET /* the cost was counted in a slot, which is full at `fills` by then */
hidden short spent;
#define FILLED(n)                                                                                  \
    assert(PROMISE_A_counted_by_own(1, n)); assert(I3_one_slot_of_a_key);                          \
    d_step {                                                                                       \
        granted[1] = granted[1] + (call[me].cost << GRANT_BITS * call[me].at);                     \
        spent = 0;                                                                                 \
        do                                                                                         \
        :: count <= LAST + AHEAD ->                                                                \
            spent = MAX(spent, 0) + GRANTED_IN(1, count) - 1;                                      \
            assert(PROMISE_A_in_spans);                                                            \
            count++                                                                                \
        :: else -> count = 0; break                                                                \
        od;                                                                                        \
        granted_key = 1; granted_end = fills; granted_at = call[me].at; granted_cost = call[me].cost\
    }                                                                                              \
    fills = 0; goto next
#endif

#define REFUSED                                                                                    \
    CHARGED; assert(PROMISE_B_was_full(me)); goto next

#define FIRST_REFUSED(end)                                                                         \
    assert(PROMISE_C_first_refusal_once(call[me].key, end));                                       \
    told[call[me].key] = told[call[me].key] | 1 << (end)

proctype thread(byte me; byte keys; byte calls) { /* calls: still to be made */
    byte i;                     /* slot that is looked at */
    byte at;                    /* slot that may be claimed, or is */
    byte held_tag; short held;  /* what it held */
    short state, added;
    byte tag, tick;
    byte lines; /* that may hold the key */
    bit sure;   /* none may be claimed; the tag is looked for once more */
    byte match; /* slots of a line that have the tag: a bit of each */
#if GONE
    bit instead;                /* ghost: the fetch-add has put a token into another key's window */
#else
#define instead false
#endif
    bit hot;                    /* one token, which a fetch-add may count: take() */
    bit near;                   /* the first two lines, with the short claim, are still to be tried */
    byte granted_key, granted_end; /* what may be given back; 0: nothing */
#if BUCKET
    byte granted_at, granted_cost, fills; /* of a bucket */
#endif
#if VARIES
    bit charge;
#endif

next:
    atomic {
        MAY_BEGIN; HAS_BEGUN
        FORGET;
#if VARIES
        charge = 0; call[me].capacity = 15;
#endif
        call[me].busy = 0; call[me].lacked = 0; call[me].crowded = 0; call[me].mine = 0;
        call[me].token = 0; call[me].key = 0; call[me].now = 0; hot = 0; near = 0;
#if BUCKET
        call[me].at = 0; call[me].cost = 0; fills = 0;
#endif
        if
        ::  calls == 0 -> granted_key = 0; granted_end = 0;
#if BUCKET
            granted_at = 0; granted_cost = 0;
#endif
            goto done
        :: else -> calls--
        fi;
        CLOCK_MOVES
        NOW = TICK_OF(clock);
        if
        :: keys & 1 -> call[me].key = 0
        :: keys & 2 -> call[me].key = 1
        fi;
#if BUCKET
        call[me].at = clock;
        if
        :: skip
#if AHEAD
        :: call[me].at = clock + AHEAD; NOW = TICK_OF(call[me].at)
#endif
        fi;
        if
        :: call[me].cost = 1
        :: IS_BUCKET -> call[me].cost = BUCKET
        fi;
#endif
        if
        :: !IS_BUCKET -> hot = 1; near = 1; call[me].busy = 1; NOTE_FULL_OF(me); BEGIN /* take */
        :: near = 1; call[me].busy = 1; NOTE_FULL_OF(me); BEGIN          /* decide_as */
#if USED < SLOTS /* very late, or a stripe's that must stay in its window: the long claim only */
        :: call[me].busy = 1; NOTE_FULL_OF(me); BEGIN
#endif
#if REFUND
#if BUCKET && !defined(UNFORGIVEN)
        :: granted_end != 0 && me == 0 -> call[me].key = granted_key; goto committed_tag
#else
        :: granted_end != 0 -> call[me].key = granted_key; goto committed_tag
#endif
#endif
#if RESET
        :: granted_end = 0; goto committed_tag
#endif
        fi
    }

#if GONE
decision_begin: /* and stint_decision_begin_now */
    atomic {
        if
        :: POLICY_GONE ->
#if ALIAS
            call[me].key = 1 - GONE_KEY; hot = 0; near = 1;
            call[me].lacked = 0; call[me].crowded = 0; NOTE_FULL_OF(me);
            goto find
#else
            goto next
#endif
        :: else -> goto find
        fi
    }
#endif


#if VARIES
decision_begin: /* or what take reads of the policy */
    atomic {
        if
        :: call[me].key != 0 -> call[me].capacity = LIMIT
        :: call[me].key == 0 && hot && hot_limit != 0 -> call[me].capacity = hot_limit
        :: call[me].key == 0 && !(hot && hot_limit != 0) -> hot = 0; call[me].capacity = limit
#if OWN
        :: call[me].key == 0 -> hot = 0; call[me].capacity = OWN
#endif
#if CHARGE
        :: call[me].key == 0 -> hot = 0; charge = 1; call[me].capacity = CHARGE
#endif
#if CARRY /* STINT_RESERVE */
        :: call[me].key == 0 -> hot = 0; call[me].capacity = LIMIT + CARRY
#endif
        fi;
        NOTE_FULL_OF(me)
    }
#endif

    /* stint_search: the tag. Likewise slot_near_home, while `near`. It sees live slots on the way, which the
     * second pass then leaves out: as they stay live, that is the same as to see them there. */
find:
#if HOME < SLOTS
    atomic { lines = REACH + 1; goto stint_find_tag }
#endif
stint_find_tag: /* line_match */
    atomic {
        tag = slot[i].tag;
        if
        :: tag == TAG && !sure -> tag = 0; lines = 0; goto found_state
        :: tag == TAG && sure -> START_OVER /* found_again */
        :: else -> goto find_next
        fi
    }
find_next:
    atomic {
        tag = 0;
        i++;
        if
        :: near && i == HOME ->
            i = 0;
            hot = 0; goto short_tag
        :: i < (near -> HOME : END_OF_LINES(lines)) -> goto stint_find_tag
        :: !near && i >= END_OF_LINES(lines) -> i = 0; lines = 0;
            if
            :: sure -> sure = 0; goto table_full
            :: else -> goto reusable_tag
            fi
        fi
    }

    /* slot_find, second pass: a slot that may be claimed */
reusable_tag:
    atomic {
        tag = slot[i].tag;
        if
        :: tag == NEVER -> at = i; goto reach_raise
        :: else -> goto reusable
        fi
    }
reusable: /* slot_reusable */
    atomic {
        state = slot[i].state;
        if
        :: END_OF(tag, state) <= NOW -> at = i; held_tag = tag; held = state
#ifdef WRONG_TOMBSTONE
        :: END_OF(tag, state) > NOW && tag == TOMBSTONE -> at = i; held_tag = tag; held = state
#endif
        :: else
        fi;
        state = 0; tag = 0;
        i++;
        if
        :: at != NONE -> i = 0; goto watermark_raise
        :: at == NONE && i < SLOTS -> goto reusable_tag
#if defined(WRONG_FULL_WITH_SLOT) || REPLACE /* stint_claim_least is the second search for the tag */
        :: else -> i = 0; goto table_full
#else
        :: else -> i = 0; lines = 1; sure = 1; goto find /* found_again: the tag once more */
#endif
        fi
    }

    /* slot_look: of decide_in and decide_found */
found_state:
    atomic { state = slot[i].state }
found_tag:
    atomic {
        if
#ifdef WRONG_NO_SECOND_TAG
        :: false
#else
        :: slot[i].tag != TAG -> START_OVER
#endif
        :: else
        fi;
        if
        :: STATE_PENDING(state) -> at = i; held = state; state = 0; i = 0; goto resolve
        :: else
        fi;
#if BUCKET
        if
        :: IS_BUCKET && BUCKET_ROOM(state, me, call[me].at) -> goto bucket_cas
        :: IS_BUCKET && !BUCKET_ROOM(state, me, call[me].at) -> goto bucket_again
        :: else
        fi;
#endif
        if
        :: END_OF(TAG, state) <= NOW -> goto decide_carry /* a new window in place */
        :: else
        fi;
        if
        :: HAS_ROOM(state) -> goto decide_cas /* a cost, flags, a limit of its own */
        :: HAS_ROOM(state) && hot && !STATE_REFUSED(state) && !IS_FIRST(call[me].key) &&
           STATE_ID(state) == ID(call[me].key, WINDOW_END(call[me].key, NOW)) -> goto take_add
#if VARIES
        :: !HAS_ROOM(state) && hot -> goto take_slot
#endif
        :: !HAS_ROOM(state) && STATE_REFUSED(state) -> goto refuse
        :: !HAS_ROOM(state) && !STATE_REFUSED(state) -> goto decide_cas
#if PEEK
        :: goto refuse
#endif
        fi
    }
#if VARIES
take_slot: /* by what the policy says now */
    atomic { hot = 0; call[me].capacity = (call[me].key == 0 -> limit : LIMIT); goto found_state }
#endif
#if BUCKET
bucket_again: /* core.h */
#ifdef WRONG_BUCKET_ONCE
    goto refuse;
#endif
    atomic {
        CLOCK_MOVES
        fills = MAX(clock, watermark * STEPS);
        if
        :: fills > call[me].at && BUCKET_ROOM(state, me, fills) ->
            call[me].at = fills; fills = 0; goto bucket_cas
        :: else -> fills = 0; goto refuse
        fi
    }
bucket_cas: /* core.h, slot_charge */
    atomic {
        if
        :: slot[i].tag != TAG || slot[i].state != state -> START_OVER
        :: else
        fi;
        fills = FROM(state, me) + call[me].cost;
        WRITE(i, TAG, BUCKET_STATE(fills), HOW_DOUBLE, BY_DECIDE);
        FILLED(i)
    }
#endif
decide_carry: /* count_carry */
#if CARRY
    atomic {
        held = (call[me].key == 0 -> CARRIED(state, STATE_USED(state), NOW) : 0);
        goto decide_cas
    }
#define BEGINS_WITH held
#else
#define BEGINS_WITH 0
#endif
decide_cas: /* slot_charge: a swap */
    atomic {
        hot = 0;
        if
        :: slot[i].tag != TAG || slot[i].state != state -> START_OVER
        :: else
        fi;
        if
        :: END_OF(TAG, state) <= NOW ->
            tick = ID(call[me].key, WINDOW_END(call[me].key, NOW));
            state = STATE(tick, 0, 0, BEGINS_WITH);
            charged[i] = BEGINS_WITH
        :: else -> tick = STATE_ID(state)
        fi;
        if
        :: HAS_ROOM(state) ->
            charged[i]++;
            WRITE(i, TAG, state + 1, HOW_DOUBLE, BY_DECIDE)
        :: else -> /* the first refusal */
#ifdef WRONG_CUT /* what is above the limit */
            WRITE(i, TAG, STATE(tick, 0, 1, LIMIT), HOW_DOUBLE, BY_DECIDE);
#else
            WRITE(i, TAG, STATE(tick, 0, 1, STATE_USED(state)), HOW_DOUBLE, BY_DECIDE);
#endif
            FIRST_REFUSED(tick);
            REFUSED
        fi;
        OPENED(i)
    }
refuse: /* slot_unchanged: nothing to write */
    atomic {
        if
#ifndef WRONG_NO_SECOND_STATE
        :: !SAME_WINDOW(slot[i].state, state) -> START_OVER
#endif
#if BUCKET
        :: IS_BUCKET && slot[i].state != state && SAME_WINDOW(slot[i].state, state) -> START_OVER
#endif
        :: else -> skip
        fi;
#if PEEK
        if
        :: HAS_ROOM(state) -> goto next
        :: else
        fi;
#endif
        REFUSED
    }
take_add: /* slot_add */
    atomic {
        hot = 0;
        added = slot[i].state;
#if GONE /* or it is granted another key's */
        instead = (POLICY_GONE && slot[i].tag == KEY + 1 - GONE_KEY && !STATE_PENDING(added));
#endif
        match = SAME_WINDOW(added, state);
        call[me].mine = (slot[i].tag == TAG && !STATE_PENDING(added) -> i + 1 : 0);
        call[me].token = (call[me].mine != 0 && match && HAS_ROOM(added));
        charged[i] = charged[i] + (call[me].token || call[me].mine == 0);
        WRITE(i, slot[i].tag, added + 1, HOW_ADD, BY_TAKE);
        if
        :: call[me].token -> GRANT(STATE_ID(added))
        :: else
        fi;
        if
        :: match && HAS_ROOM(added) ->
            assert(PROMISE_A_token_is_counted(call[me].key, call[me].token || instead));
            GRANTED(STATE_ID(added))
#ifdef WRONG_BACK_NOT
        :: else -> goto added_anew
#else
#ifndef WRONG_BACK_PENDING
        :: STATE_PENDING(added) -> goto stray
#endif
        :: else -> goto back_state
#endif
        fi
    }

    /* stint_token_back */
back_state:
    atomic { state = slot[i].state; goto back_tag }
back_tag:
    atomic {
        tag = slot[i].tag;
        if
#ifndef WRONG_BACK_TAG
        :: tag != TAG -> goto stray
#endif
#ifndef WRONG_BACK_END
        :: STATE_ID(state) != STATE_ID(added) -> goto stray
#endif
#ifndef WRONG_BACK_PENDING
        :: STATE_PENDING(state) -> goto stray
#endif
#if FALLS
        :: else -> goto back_fallen
        fi
    }
back_fallen:
    atomic {
        if
        :: !match && MAY_HAVE_FALLEN(STATE_ID(added)) -> goto stray
#endif
        :: else -> goto back_swap
        fi
    }
back_swap:
    atomic {
        if
        :: STATE_USED(state) == 0 -> goto added_anew
        :: slot[i].tag != tag || slot[i].state != state -> goto back_state
        :: else
        fi;
        assert(I4_takes_back_own);
        if
        :: call[me].mine == 0 && FORGIVES_RESET -> /* another's, which may be granted once more */
            charged[i]--; GRANT_LESS(call[me].key, STATE_ID(added))
        :: else
        fi;
        call[me].mine = 0;
        WRITE(i, tag, state - 1, HOW_DOUBLE, BY_DECIDE);
#ifdef WRONG_BACK_TWICE
        if
        :: tick == 0 -> tick = 1; goto back_state
        :: else
        fi;
#endif
        goto added_anew
    }
stray: /* it is left where it is */
    atomic {
        charged[i] = charged[i] + (call[me].mine != 0);
        goto added_anew
    }
added_anew: /* by swaps only */
    atomic {
        call[me].mine = 0; call[me].token = 0;
#if VARIES
        FORGET; goto decision_begin
#else
        START_OVER
#endif
    }

    /* decide_absent */
watermark_raise: /* of the slot's tag, not of a never-used one */
#ifndef WRONG_WATERMARK_NOT_RAISED
    atomic { watermark = MAX(watermark, OVER_BY(held_tag, held, NOW)); goto reach_raise }
#endif
reach_raise:
#if HOME < SLOTS && !defined(WRONG_REACH_NOT_RAISED)
    atomic { reach = MAX(reach, LINE_OF(at)); goto claim }
#endif
claim: /* stint_claim_slot */
    atomic {
        i = 0;
        if
        :: slot[at].tag != held_tag || slot[at].state != held -> START_OVER
        :: else
        fi;
        charged[at] = 0;
#ifdef WRONG_NO_PENDING
        tick = MAX(NOW, watermark);
        tick = WINDOW_END(call[me].key, tick);
        charged[at] = 1;
        WRITE(at, TAG, STATE(tick, 0, 0, 1), HOW_DOUBLE, BY_CLAIM);
        OPENED(at)
#else
        held = STATE(NOW + 1, 1, 0, 0);
        WRITE(at, TAG, held, HOW_DOUBLE, BY_CLAIM);
        held_tag = 0
#endif
    }

    /* claim_resolve, by the claimer or by who met the claim */
resolve:
#ifdef WRONG_WATERMARK_BEFORE_LOOK
    atomic { tick = watermark }
#endif
#ifdef WRONG_NO_LOOK
    goto LOOKED;
#endif
    /* stint_claim_stands */
#if HOME < SLOTS
    atomic {
#ifdef WRONG_REACH_OF_CLAIM
        lines = LINE_OF(at) + 1;
#else
        lines = REACH + 1;
#endif
        goto look
    }
#endif
look: /* line_match */
    atomic {
        if
        :: i != at && slot[i].tag == TAG -> match = match | 1 << (i - BEGIN_OF(i))
        :: else
        fi;
        if
        :: i + 1 != HOME && i + 1 != SLOTS -> i++; goto look
        :: else -> i = BEGIN_OF(i); goto look_match
        fi
    }
look_match:
    atomic {
        if
        :: match & 1 -> goto look_tag
        :: match != 0 && !(match & 1) -> goto look_next
        :: match == 0 -> i = END_OF_LINES(LINE_OF(i) + 1); goto look_line
        fi
    }
look_line:
    atomic {
        if
        :: i < END_OF_LINES(lines) -> goto look
        :: else -> goto LOOKED
        fi
    }
look_tag: /* claim_outranks */
    atomic {
        if
        :: slot[i].tag != TAG -> goto look_next
        :: else -> goto look_state
        fi
    }
look_state:
    atomic { state = slot[i].state; goto look_tag_again }
look_tag_again:
    atomic {
        if
        :: slot[i].tag != TAG -> goto look_next
        :: slot[i].tag == TAG && (!STATE_PENDING(state) || i < at) -> goto cancel
        :: else -> goto cancel_other
        fi
    }
#if defined(WRONG_CANCEL_KEEPS_PENDING)
#define TOMBSTONE_OF(claim) STATE(STATE_ID(claim), 1, 0, 0)
#elif defined(WRONG_CANCEL_ZERO)
#define TOMBSTONE_OF(claim) 0
#else
#define TOMBSTONE_OF(claim) STATE(STATE_ID(claim), 0, 0, 0)
#endif
cancel: /* stint_claim_cancel, of the claim that is resolved */
    atomic {
        if
        :: slot[at].tag == TAG && SAME_WINDOW(slot[at].state, held) ->
            WRITE(at, TOMBSTONE, TOMBSTONE_OF(held), HOW_DOUBLE, BY_RESOLVE)
        :: else
        fi;
        START_OVER
    }
cancel_other: /* stint_claim_cancel, of a later one */
    atomic {
        if
        :: slot[i].tag == TAG && SAME_WINDOW(slot[i].state, state) ->
            WRITE(i, TOMBSTONE, TOMBSTONE_OF(state), HOW_DOUBLE, BY_RESOLVE);
            goto look_next
        :: else -> state = 0; goto look_tag
        fi
    }
look_next:
    atomic {
        state = 0; match = match >> 1;
        if
        :: match == 0 -> i = END_OF_LINES(LINE_OF(i) + 1); goto look_line
        :: else -> i++; goto look_match
        fi
    }
#if GONE
claim_gone:
    atomic {
        if
#ifndef WRONG_GONE_UNSEEN
        :: POLICY_GONE -> goto cancel_gone
#endif
        :: else -> goto commit_tick
        fi
    }
cancel_gone:
    atomic {
        if
        :: slot[at].tag == TAG && SAME_WINDOW(slot[at].state, held) ->
            WRITE(at, TOMBSTONE, TOMBSTONE_OF(held), HOW_DOUBLE, BY_RESOLVE)
        :: else
        fi;
        FORGET; goto decision_begin
    }
#endif
commit_tick:
    atomic {
        i = 0; tag = 0; state = 0; lines = 1; match = 0;
#ifndef WRONG_WATERMARK_BEFORE_LOOK
        tick = watermark;
#endif
        tick = MAX(tick, NOW);
        tick = MAX(tick, STATE_ID(held) - 1);
#if BUCKET
#ifdef WRONG_BUCKET_CLAIM
        fills = call[me].at;
#else
        fills = MAX(tick * STEPS, call[me].at);
#endif
#endif
        tick = ID(call[me].key, WINDOW_END(call[me].key, tick));
        goto commit
    }
#ifdef WRONG_COMMIT_OF_STATE /* compares the state alone */
#define IS_CLAIM(n) SAME_WINDOW(slot[n].state, held)
#else
#define IS_CLAIM(n) (slot[n].tag == TAG && SAME_WINDOW(slot[n].state, held))
#endif
commit:
    atomic {
        if
        :: !IS_CLAIM(at) -> START_OVER
#ifdef WRONG_COMMIT_WAITS
        :: SAME_WINDOW(slot[at].state, held) && STATE_USED(slot[at].state) != 0 -> goto commit
#endif
        :: else
        fi;
#if BUCKET
        if
        :: IS_BUCKET -> /* it is full */
            call[me].at = fills;
            fills = fills + call[me].cost;
            WRITE(at, slot[at].tag, BUCKET_STATE(fills), HOW_DOUBLE, BY_RESOLVE);
            FILLED(at)
        :: else -> fills = 0
        fi;
#endif
        charged[at] = 1;
        WRITE(at, slot[at].tag, STATE(tick, 0, 0, 1), HOW_DOUBLE, BY_RESOLVE);
        OPENED(at)
    }
table_full: /* decide_full: a stated outcome, G */
#if !REPLACE
    atomic { assert(PROMISE_G_was_crowded(me)); goto next }
#else
least_tag: /* stint_claim_least */
    atomic { tag = slot[i].tag; goto least_state }
least_state:
    atomic {
        state = slot[i].state;
        if
        :: STATE_PENDING(state) -> goto least_next
#ifndef WRONG_REPLACE_TOMBSTONE
        :: !STATE_PENDING(state) && tag == TOMBSTONE -> goto least_next
#endif
#if OVERRIDES && !defined(WRONG_REPLACE_OVERRIDE)
        :: !STATE_PENDING(state) && tag >= OVERRIDE -> goto least_next
#endif
#ifndef WRONG_REPLACE_OWN
        :: !STATE_PENDING(state) && tag == TAG -> START_OVER
#endif
        :: else
        fi;
        if
        :: at == NONE || STATE_USED(state) < STATE_USED(held) ->
            at = i; held_tag = tag; held = state
        :: else
        fi;
        goto least_next
    }
least_next:
    atomic {
        tag = 0; state = 0;
        i++;
        if
        :: i < SLOTS -> goto least_tag
        :: i == SLOTS && at != NONE -> i = 0; goto replace_falls
        :: else -> goto next /* admitted */
        fi
    }
replace_falls:
    atomic { END_FALLS(STATE_ID(held), NOW); goto replace }
replace: /* stint_claim_slot */
    atomic {
        if
        :: slot[at].tag != held_tag || slot[at].state != held -> START_OVER
        :: else
        fi;
        assert(PROMISE_O_replaces_none(held_tag));
        if
        :: held_tag >= KEY && held_tag != TAG -> replaced[held_tag - KEY] = 1
        :: else
        fi;
        charged[at] = 0;
        held = STATE(NOW + 1, 1, 0, 0);
        WRITE(at, TAG, held, HOW_DOUBLE, BY_REPLACE);
        held_tag = 0;
        goto resolve
    }
#endif

    /* take.c, decide_begun: neither the home line nor the next has got the key */
short_tag: /* line_match: which is never used? */
    atomic {
        if
        :: slot[i].tag == NEVER -> at = i; i = 0; goto short_claim
        :: slot[i].tag != NEVER && i + 1 < HOME -> i++; goto short_tag
        :: else -> near = 0; START_OVER /* stint_search is the next find */
        fi
    }
short_claim:
    atomic {
        near = 0;
        if
        :: slot[at].tag != NEVER -> START_OVER
        :: else
        fi;
        charged[at] = 0;
        held = STATE(NOW + 1, 1, 1, 0); /* the slot's first claim */
        WRITE(at, TAG, held, HOW_DOUBLE, BY_CLAIM);
        goto short_look
    }
short_look: /* line_match: are there other claims? */
    atomic {
        match = match + (slot[i].tag == TAG);
        i++;
        if
        :: i < HOME -> goto short_look
        :: else -> i = 0; goto short_still
        fi
    }
short_still: /* line_match: is any slot still never used? */
    atomic {
#ifndef WRONG_SHORT_NO_LOOK
        if
        :: match > 1 -> START_OVER
        :: else
        fi;
#endif
        if
        :: slot[i].tag == NEVER -> goto short_watermark
        :: slot[i].tag != NEVER && i + 1 < HOME -> i++; goto short_still
        :: else -> START_OVER
        fi
    }
short_watermark:
    atomic {
        match = 0; i = 0;
        if
        :: watermark > NOW -> START_OVER
        :: else
        fi;
        tick = ID(call[me].key, WINDOW_END(call[me].key, NOW))
    }
#if GONE && !defined(WRONG_SHORT_GONE_UNSEEN)
short_gone:
    atomic {
        if
        :: POLICY_GONE -> START_OVER
        :: else -> goto short_commit
        fi
    }
#endif
short_commit:
    atomic {
        if
        :: slot[at].state != held -> START_OVER
        :: else
        fi;
        assert(PROMISE_A_commits_own(at));
#if BUCKET
        if
        :: IS_BUCKET ->
            fills = call[me].at + call[me].cost;
            WRITE(at, slot[at].tag, BUCKET_STATE(fills), HOW_SINGLE, BY_RESOLVE);
            FILLED(at)
        :: else
        fi;
#endif
        charged[at] = 1;
        WRITE(at, slot[at].tag, STATE(tick, 0, 0, 1), HOW_SINGLE, BY_RESOLVE);
        OPENED(at)
    }

#if REFUND || RESET
    /* stint_find_committed, stint_slot_refund, stint_slot_reset */
committed_tag:
    atomic {
        tag = slot[i].tag;
        if
        :: tag == NEVER -> goto given_back
        :: tag == TAG -> tag = 0; goto committed_state
        :: else -> goto committed_next
        fi
    }
committed_state:
    atomic { state = slot[i].state; goto committed_tag_again }
committed_tag_again:
    atomic {
        if
        :: slot[i].tag == TAG && !STATE_PENDING(state) && !IS_BUCKET -> goto give_back
#if BUCKET
        :: slot[i].tag == TAG && !STATE_PENDING(state) && IS_BUCKET -> goto move_clock
#endif
        :: else -> goto committed_next
        fi
    }
committed_next:
    atomic {
        tag = 0; state = 0;
        i++;
        if
        :: i < SLOTS -> goto committed_tag
        :: else -> goto given_back
        fi
    }
give_back:
    atomic {
        if
        :: granted_end != 0 && granted_end != STATE_ID(state) -> goto given_back
        :: slot[i].tag != TAG || slot[i].state != state -> i = 0; state = 0; goto committed_tag
        :: else
        fi;
        if
        :: granted_end == 0 ->
            charged[i] = 0;
            granted[call[me].key] =
                granted[call[me].key] & ~(GRANTS << GRANT_BITS * STATE_ID(state));
            told[call[me].key] = told[call[me].key] & ~(1 << STATE_ID(state));
            WRITE(i, TAG, state - STATE_USED(state) - (STATE_REFUSED(state) << 4), HOW_DOUBLE,
                  BY_RESET)
        :: else ->
#ifdef WRONG_REFUND_BELOW_ZERO
            tick = REFUND;
#else
            tick = (STATE_USED(state) < REFUND -> STATE_USED(state) : REFUND);
#endif
            if
            :: tick == 0 -> goto given_back
            :: else
            fi;
#if RESET /* of what was granted before, one on its way back may go, which the adder then finds gone */
            count = 0;
            do
            :: charged[i] < tick && count < THREADS ->
                if
                :: BACK_FROM(count, i) -> call[count].mine = 0; charged[i]++
                :: else
                fi;
                count++
            :: else -> break
            od;
            count = 0;
#endif
            charged[i] = charged[i] - tick;
            WRITE(i, TAG, state - tick, HOW_DOUBLE, BY_REFUND);
            do
            :: tick > 0 && GRANTED_IN(call[me].key, granted_end) > 0 ->
                GRANT_LESS(call[me].key, granted_end);
                tick--
            :: else -> break
            od
        fi;
        goto given_back
    }
#if BUCKET
    /* bucket_move_back: to `fills`. A reset: granted_end is 0 */
#ifdef WRONG_BUCKET_TAKEN
#define NOT_BACK_AT(time) granted_cost
#else
#define NOT_BACK_AT(time) (granted_end > (time) -> granted_end - (time) : 0)
#endif
#define MIN(one, other) ((one) < (other) -> (one) : (other))
move_clock:
    atomic { CLOCK_MOVES fills = clock; goto move_over }
move_over:
    atomic {
#ifndef WRONG_BUCKET_OVER
        fills = MAX(fills, watermark * STEPS);
#endif
        if
        :: FULL_AT(state) <= fills -> goto given_back
        :: FULL_AT(state) > fills && granted_end != 0 ->
            tick = MIN(granted_cost, NOT_BACK_AT(fills));
            fills = MAX(fills, FULL_AT(state) - tick); tick = 0
        :: else
        fi;
        if
        :: FULL_AT(state) == fills -> goto given_back
        :: else -> goto move_falls
        fi
    }
move_falls:
    atomic { END_FALLS(STATE_ID(state), fills / STEPS + 1); goto move_cas }
move_cas:
    atomic {
        if
        :: slot[i].tag != TAG || slot[i].state != state ->
            fills = 0; i = 0; state = 0; goto committed_tag
        :: else
        fi;
        if
        :: granted_end != 0 ->
            granted[1] = granted[1] - ((FULL_AT(state) - fills) << GRANT_BITS * granted_at);
            WRITE(i, TAG, BUCKET_STATE(fills), HOW_DOUBLE, BY_REFUND)
        :: else ->
            granted[1] = 0;
            WRITE(i, TAG, BUCKET_STATE(fills), HOW_DOUBLE, BY_RESET)
        fi;
        goto given_back
    }
#endif
given_back:
    atomic {
        granted_key = 0; granted_end = 0;
#if BUCKET
        granted_at = 0; granted_cost = 0;
#endif
        goto next
    }
#endif

done:
    skip
}

#if GONE
/* ---- A policy is removed ---------------------------------------------------------------------- */

/* policy.c, policy_end; sweep.c */
proctype sweeper() {
    byte i, over;
    short state;

    atomic { gone = 1 }
slot_sweep:
    atomic {
        over = 0; state = 0;
        if
        :: i == SLOTS -> goto done
        :: i < SLOTS && slot[i].tag != KEY + GONE_KEY -> i++; goto slot_sweep
        :: else
        fi
    }
    atomic { state = slot[i].state }
    atomic {
        over = watermark
#ifdef WRONG_SWEEP_END
        ; over = 0
#endif
    }
    atomic {
        if
        :: STATE_PENDING(state) || STATE_ID(state) <= over -> over = STATE_ID(state)
        :: else -> END_FALLS(STATE_ID(state), over)
        fi
    }
    atomic {
        if
        :: slot[i].tag != KEY + GONE_KEY || slot[i].state != state -> goto slot_sweep
        :: else
        fi;
#ifdef WRONG_SWEEP_ROOM
        state = STATE(over, 0, 0, 0);
#else
        state = STATE(over, 0, 0, 8); /* full */
#endif
        WRITE(i, TOMBSTONE, state, HOW_DOUBLE, BY_SWEEP);
        goto slot_sweep
    }
done:
    skip
}
#endif


#if CHANGE
/* policy.c, rule_write */
proctype changer() {
    atomic { hot_limit = 0 }
    atomic { limit = CHANGE }
    atomic { hot_limit = CHANGE }
}
#endif

#if OVERRIDES
/* ---- Overrides -------------------------------------------------------------------------------- */

byte filter; /* a bit of each key */

#define MINE (OVERRIDE + key)

#if AFTER
/* A strike is written. Those before it that are in force by the clock were counted, and nothing else was in
 * force that it may not end. */
#define NOTE_STRIKE                                                                                \
    if                                                                                             \
    :: key == 0 ->                                                                                 \
        strikes = (strikes_end > clock -> strikes : struck) + 1;                                    \
        strikes = (strikes >= AFTER && strikes <= 12 -> BAN_OF(0) : strikes);                      \
        strikes_end = end;                                                                         \
        assert(PROMISE_O_no_strike_lost(STATE_USED(rest)))                                         \
    :: else                                                                                        \
    fi;
/* Likewise an override, or none. */
#define NOTE_SET(to)                                                                               \
    if                                                                                             \
    :: key == 0 -> strikes = ((to) == 0 -> 0 : 14); strikes_end = to                               \
    :: else                                                                                        \
    fi;
#define STRIKE(state)                                                                              \
    struck = (!STATE_REFUSED(state) && STATE_ID(state) > late -> STATE_USED(state) : 0);            \
    rest = (struck + 1 >= AFTER -> BAN_OF(key) : struck + 1);                                        \
    end = (struck == 0 || struck + 1 >= AFTER -> late + BAN : STATE_ID(state))
#else
#define NOTE_SET(to)
#endif

/* override_set.c: stint_override, stint_override_clear, stint_strike */
proctype hand(byte key; byte calls; bit strike) {
    byte i, at, now, end, tag;
#if AFTER
    byte struck, late; /* strikes that were there; the now of this one */
    short rest;
#endif
    byte held_tag; short held;
    short state;

next:
    atomic {
        i = 0; at = 0; tag = 0; held_tag = 0; held = 0; state = 0; end = 0; now = 0;
#if AFTER
        struck = 0; late = 0; rest = 0;
#endif
        if
        :: calls == 0 -> goto done
        :: else -> calls--
        fi;
        now = clock;
#if AFTER
        late = now;
#endif
        if
        :: strike -> end = now + BAN
        :: !strike -> end = UNTIL
#if SHORT
        :: !strike -> end = now + 1
#endif
        :: !strike -> end = 0 /* clear */
        fi
    }
mine_tag: /* stint_find_committed; for a claim stint_search */
    atomic {
        tag = slot[i].tag;
        if
        :: tag == MINE -> tag = 0; goto mine_state
        :: tag != MINE && tag != NEVER && i + 1 < SLOTS -> tag = 0; i++; goto mine_tag
        :: else -> i = 0; tag = 0;
            if
            :: end == 0 -> goto next
            :: else -> goto free_tag
            fi
        fi
    }
mine_state:
    atomic { state = slot[i].state; goto mine_tag_again }
mine_tag_again:
    atomic {
        if
        :: slot[i].tag != MINE -> i = 0; state = 0; goto mine_tag
        :: slot[i].tag == MINE && STATE_PENDING(state) && end == 0 -> goto next
        :: slot[i].tag == MINE && STATE_PENDING(state) && end != 0 ->
            at = i; held = state; state = 0; i = 0; goto stands_tag
        :: else -> goto clock_again
        fi
    }
clock_again: /* after the state: the end is beyond that at which the slot became the companion's */
#ifndef WRONG_LATE_END
    atomic { now = clock }
#endif
    atomic { /* companion_clear */
        if
        :: end == 0 && !STATE_REFUSED(state) && STATE_USED(state) == 0 -> goto next /* nothing */
        :: else
        fi
    }
#if AFTER
    atomic { /* wished */
        if
        :: strike && HOLDS(state) && STATE_ID(state) > late -> goto next /* KEPT */
        :: strike && !(HOLDS(state) && STATE_ID(state) > late) -> STRIKE(state)
        :: else
        fi
    }
#endif
#if FALLS
    atomic { END_FALLS(STATE_ID(state), (end == 0 -> now + 1 : MAX(end, now + 1))); goto swap }
#endif
#ifdef WRONG_CLEAR_FREE /* free at once, not with the next tick */
#define CLEARED now
#else
#define CLEARED (now + 1)
#endif
swap: /* companion_write, companion_clear */
    atomic {
        if
#ifdef WRONG_STRIKE_END
        :: slot[i].tag != MINE || !SAME_WINDOW(slot[i].state, state) ->
#else
        :: slot[i].tag != MINE || slot[i].state != state ->
#endif
            i = 0; state = 0; goto mine_tag
        :: else
        fi;
        if
        :: end == 0 -> WRITE(i, MINE, STATE(CLEARED, 0, 0, 0), HOW_DOUBLE, BY_OVERRIDE); NOTE_SET(0)
        :: else ->
#ifndef WRONG_LATE_END
            end = MAX(end, now + 1);
#endif
#if AFTER
            if
            :: strike -> WRITE(i, MINE, STATE(end, 0, 0, 0) + rest, HOW_DOUBLE, BY_OVERRIDE); NOTE_STRIKE goto next
            :: else
            fi;
#endif
            WRITE(i, MINE, STATE(end, 0, 1, LIMIT_OF(key)), HOW_DOUBLE, BY_OVERRIDE);
            NOTE_SET(end)
        fi;
        goto next
    }
free_tag: /* slot_find, second pass */
    atomic {
        tag = slot[i].tag;
        if
        :: tag == NEVER -> at = i; held_tag = 0; held = 0; tag = 0; i = 0; goto filter_add
        :: else -> goto free_state
        fi
    }
free_state:
    atomic {
        state = slot[i].state;
        if
        :: STATE_ID(state) <= now ->
            at = i; held_tag = tag; held = state; tag = 0; state = 0; i = 0; goto filter_add
        :: STATE_ID(state) > now && i + 1 < SLOTS -> i++; tag = 0; state = 0; goto free_tag
        :: else -> goto next /* NO_ROOM: it replaces nobody */
        fi
    }
filter_add:
#ifndef WRONG_FILTER_AFTER
    atomic { filter = filter | 1 << key; goto raise }
#endif
raise: /* watermark_raise */
    atomic { watermark = (held_tag != NEVER -> MAX(watermark, STATE_ID(held)) : watermark); goto claim }
claim: /* stint_claim_slot */
    atomic {
        if
        :: slot[at].tag != held_tag || slot[at].state != held ->
            at = 0; held_tag = 0; held = 0; goto mine_tag
        :: else
        fi;
        charged[at] = 0;
        held_tag = 0; held = STATE(now + 1, 1, 0, 0);
        WRITE(at, MINE, held, HOW_DOUBLE, BY_CLAIM);
        goto stands_tag
    }
stands_tag: /* companion_commit: stint_claim_stands */
    atomic {
        if
#ifdef WRONG_OVERRIDE_NO_LOOK
        :: true -> goto commit
#else
        :: i == SLOTS -> goto commit
        :: i < SLOTS && (i == at || slot[i].tag != MINE) -> i++; goto stands_tag
        :: else -> goto stands_state
#endif
        fi
    }
stands_state:
    atomic { state = slot[i].state; goto stands_tag_again }
stands_tag_again:
    atomic {
        if
        :: slot[i].tag != MINE -> state = 0; i++; goto stands_tag
        :: slot[i].tag == MINE && (!STATE_PENDING(state) || i < at) -> goto cancel
        :: else -> goto cancel_other
        fi
    }
cancel: /* stint_claim_cancel */
    atomic {
        if
        :: slot[at].tag == MINE && SAME_WINDOW(slot[at].state, held) ->
            WRITE(at, TOMBSTONE, STATE(STATE_ID(held), 0, 0, 0), HOW_DOUBLE, BY_RESOLVE)
        :: else
        fi;
        i = 0; at = 0; held = 0; state = 0; goto mine_tag
    }
cancel_other:
    atomic {
        if
        :: slot[i].tag == MINE && SAME_WINDOW(slot[i].state, state) ->
            WRITE(i, TOMBSTONE, STATE(STATE_ID(state), 0, 0, 0), HOW_DOUBLE, BY_RESOLVE); i++
        :: else
        fi;
        state = 0; goto stands_tag
    }
commit: /* stint_claim_commit */
    atomic {
        i = 0;
        if
        :: slot[at].tag != MINE || !SAME_WINDOW(slot[at].state, held) ->
            at = 0; held = 0; goto mine_tag
        :: else
        fi;
#if AFTER
        if
        :: strike ->
            STRIKE(0);
            end = MAX(end, STATE_ID(held));
            WRITE(at, MINE, STATE(end, 0, 0, 0) + rest, HOW_DOUBLE, BY_RESOLVE);
            assert(I3_one_override);
            NOTE_STRIKE
            goto next
        :: else
        fi;
#endif
        end = MAX(end, STATE_ID(held));
        WRITE(at, MINE, STATE(end, 0, 1, LIMIT_OF(key)), HOW_DOUBLE, BY_RESOLVE);
        NOTE_SET(end)
        assert(I3_one_override)
    }
#ifdef WRONG_FILTER_AFTER
    atomic { filter = filter | 1 << key }
#endif
    goto next;
done:
    skip
}

/* override.c: stint_override_find, of the first key. A slot may have been another key's override in
 * between, until the same end: so override_in compares the whole state. */
proctype asker(byte calls) {
    byte i;
    short state;

next:
    atomic {
        i = 0; state = 0; due = 0; asked = 0;
        if
        :: calls == 0 -> goto done
        :: else -> calls--
        fi;
        asked = clock;
        due = until > asked && until <= asked + MOST
    }
possible: /* override_possible */
    atomic {
        if
        :: filter & 1 -> skip
        :: else -> goto none
        fi
    }
line_tag:
    atomic {
        if
        :: i == SLOTS -> goto none
        :: i < SLOTS && slot[i].tag != OVERRIDE -> i++; goto line_tag
        :: else -> goto in_state
        fi
    }
in_state: /* override_in */
    atomic { state = slot[i].state; goto in_tag }
in_tag:
    atomic {
        if
#ifdef WRONG_OVERRIDE_TAG
        :: STATE_PENDING(state) -> state = 0; i++; goto line_tag
#else
        :: slot[i].tag != OVERRIDE || STATE_PENDING(state) -> state = 0; i++; goto line_tag
#endif
        :: else -> goto in_again
        fi
    }
in_again:
    atomic {
        if
#ifdef WRONG_OVERRIDE_END /* compares the end alone, and believes the second */
        :: !SAME_WINDOW(slot[i].state, state) -> state = 0; goto in_state
#else
        :: slot[i].state != state -> state = 0; goto in_state
#endif
        :: else -> skip
        fi;
#ifdef WRONG_OVERRIDE_END
        state = slot[i].state;
#endif
        /* stint_override_holds */
        if
#ifdef WRONG_VOID
        :: STATE_ID(state) > asked ->
#else
        :: HOLDS(state) && STATE_ID(state) > asked && STATE_ID(state) <= asked + MOST ->
#endif
            assert(PROMISE_O_of_own_key(state));
            assert(PROMISE_O_none_void(state));
            goto next
        :: else -> state = 0; i++; goto line_tag
        fi
    }
none:
    atomic { assert(PROMISE_O_is_seen); goto next }
done:
    skip
}
#endif

#if OVERRIDES
active proctype clock_hand() {
    do
    :: clock < LAST -> clock++
    :: clock == LAST -> break
    od
}
#endif

init {
    byte n;
    atomic {
        c_code { report_at_exit(); };
        /* Slots that other keys had: over by now, or at the next tick. */
        do
        :: n < USED -> slot[n].tag = OTHER; slot[n].state = STATE(1, 0, 0, 1); n++
        :: n < USED -> slot[n].tag = OTHER; slot[n].state = STATE(2, 0, 0, 1); n++
        :: else -> break
        od;
#if HELD
        /* The last of them is the first key's, with one token used. */
        n = n - 1;
        slot[n].tag = KEY; slot[n].state = STATE(ID(0, WINDOW_END(0, 1)), 0, 0, 1);
        charged[n] = 1; GRANT_MORE(0, ID(0, WINDOW_END(0, 1)));
#if HOME < SLOTS
        reach = LINE_OF(n);
#endif
#endif
#if VOID
        n = n - 1;
        slot[n].tag = OVERRIDE; slot[n].state = STATE(1 + MOST + 5, 0, 1, LIMIT_OF(0));
        filter = 1;
#endif
#if GONE
        run sweeper();
#endif
#if CHANGE
        run changer();
#endif
#if OVERRIDES
        run hand(HAND0, SETS0, AFTER && STRIKES == 2);
        run hand(HAND1, SETS1, AFTER != 0);
        run asker(ASKS);
#if HELD
        floor[n] = STATE_ID(slot[n].state);
#endif
#endif
        n = 0;
        run thread(0, KEYS0, CALLS0);
        run thread(1, KEYS1, CALLS1)
#if THREADS > 2
        ; run thread(2, KEYS2, CALLS2)
#endif
    }
}
