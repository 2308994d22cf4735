/* SPDX-License-Identifier: MIT
 * The slot protocol on a machine that reorders loads and stores, for spin: the orders M1 to M15 of
 * src/ordering.md, each in the pattern that needs it. `run` compiles and runs it.
 *
 * The machine is ARMv8 as far as these patterns go. Memory is one for all (a store that one other
 * thread has seen, all see). A thread performs its operations one at a time, in any order but for what
 * holds them: an order Mn; a dependency (a store waits for the loads that decide whether it is done,
 * and for what; a load for its address); and one word's own (two loads of one word, or a load and an
 * operation on it, do not change places). Branches hold no load up. So an operation here has a set of
 * operations that come before it, and is done at any time after these: every order of operations that
 * the architecture's axioms allow is a run. No pattern loads a word that the same thread has a store to
 * under way, so that buffers of stores would add nothing. A compare-and-swap is one operation, also
 * where it is a loop of exclusive loads and stores: they are done when the store is.
 *
 * Parameters (-D): the pattern's name; WITHOUT=n: without the order Mn, which must go wrong. */

/* These operations come first, by order Mn. */
#define M(n, operations) (WITHOUT == (n) -> 0 : (operations))

/* One operation of a thread, a bit in `done`, and those that come before it. */
#define DO(operation, before)                                                                      \
    atomic {                                                                                       \
        !(done & (operation)) && (done & (before)) == (before) -> done = done | (operation);
#define OD }

#define MAX(one, other) ((one) > (other) -> (one) : (other))


/* ---- One slot ------------------------------------------------------------------------------- */

#if defined(REFUSE) || defined(ADD)
/* The slot is K's, then L's, then K's again. A double-width CAS changes tag and state at once, so one
 * number says what both are: its window ends at `occupant`, a later one each time (I1). */
byte occupant;
#define TAG_IS_K(n) ((n) != 1)

active proctype others() {
    atomic { occupant = 1 }
    atomic { occupant = 2 }
}
#endif

#ifdef REFUSE
/* slot_look, slot_unchanged: K is refused by a state that was L's. The tag that led here is a hint of any
 * age. */
#define STATE 1
#define TAG   2
#define AGAIN 4

active proctype refuse() {
    byte done, state, tag, again;
    do
    :: DO(STATE, 0) state = occupant OD
    :: DO(TAG, M(1, STATE)) tag = occupant OD
    :: DO(AGAIN, STATE | M(2, TAG)) again = occupant OD
    :: done == (STATE | TAG | AGAIN) -> break
    od;
    /* The same end, committed, and without room: refused. */
    assert(!(TAG_IS_K(tag) && state == again && state == 1))
}
#endif

#ifdef ADD
/* take_in: K's token is counted in L's window. */
#define STATE   1
#define TAG     2
#define ADDITION 4

active proctype take() {
    byte done, state, tag, added;
    do
    :: DO(STATE, 0) state = occupant OD
    :: DO(TAG, M(1, STATE)) tag = occupant OD
    :: DO(ADDITION, STATE | M(2, TAG)) added = occupant OD
    :: done == (STATE | TAG | ADDITION) -> break
    od;
    assert(!(TAG_IS_K(tag) && state == added && state == 1))
}
#endif

/* ---- Claims --------------------------------------------------------------------------------- */

#ifdef CLAIMS
/* Two threads claim different slots for one key. One of them sees the other's claim. */
#define CLAIM 1
#define LOOK  2

bool claimed[2], missed[2];

proctype claimer(byte me) {
    byte done;
    do
    :: DO(CLAIM, 0) claimed[me] = true OD
    :: DO(LOOK, M(5, CLAIM)) missed[me] = !claimed[1 - me] OD
    :: done == (CLAIM | LOOK) -> break
    od;
    assert(!(missed[0] && missed[1]))
}

init { atomic { run claimer(0); run claimer(1) } }
#endif

#ifdef HELP
/* The first claimer was killed after its claim. Who meets the claim looks in its place. */
#define CLAIM 1
#define SEE   1
#define LOOK  2

bool claimed[2], stands[2];

active proctype killed() {
    claimed[0] = true
}

active proctype helper() {
    byte done;
    bool seen, missed;
    do
    :: DO(SEE, 0) seen = claimed[0] OD
    :: DO(LOOK, M(6, SEE)) missed = !claimed[1] OD
    :: done == (SEE | LOOK) -> break
    od;
    stands[0] = seen && missed;
    assert(!(stands[0] && stands[1]))
}

active proctype claimer() {
    byte done;
    bool missed;
    do
    :: DO(CLAIM, 0) claimed[1] = true OD
    :: DO(LOOK, M(5, CLAIM)) missed = !claimed[0] OD
    :: done == (CLAIM | LOOK) -> break
    od;
    stands[1] = missed;
    assert(!(stands[0] && stands[1]))
}
#endif

#ifdef REACH
/* One claims in the home line; the other in the next, for which the reach is raised, by itself or by a
 * third. The first looks at the next line only if the reach says so: those two loads may be done in any
 * order. */
#define CLAIM 1
#define RAISE 2
#define LOAD  2
#define LOOK  4

bool claimed[2], missed[2];
byte reach;

active proctype third() {
    atomic { reach = 1 }
}

active proctype near() {
    byte done, lines;
    bool other;
    do
    :: DO(CLAIM, 0) claimed[0] = true OD
    :: DO(LOAD, M(5, CLAIM)) lines = reach OD
    :: DO(LOOK, M(5, CLAIM)) other = claimed[1] OD
    :: done == (CLAIM | LOAD | LOOK) -> break
    od;
    missed[0] = lines == 0 || !other;
    assert(!(missed[0] && missed[1]))
}

active proctype far() {
    byte done;
    do
    :: DO(RAISE, 0) reach = MAX(reach, 1) OD
    :: DO(CLAIM, M(7, RAISE)) claimed[1] = true OD
    :: DO(LOOK, M(5, CLAIM)) missed[1] = !claimed[0] OD
    :: done == (RAISE | CLAIM | LOOK) -> break
    od;
    assert(!(missed[0] && missed[1]))
}
#endif

#ifdef UNUSED
/* A look stops at a never-used slot (I5). The home line has slot a, which one thread takes over and the
 * other, which is late, took for live; and b, never used until a third claims it for another key. The
 * late one claims beyond the line, when it has seen b used. */
#define CLAIM 1
#define ZERO  2
#define LOOK  4
#define USED  2

bool a_claimed, b_used, beyond_claimed, missed_beyond, missed_a;

active proctype third() {
    b_used = true
}

active proctype home() {
    byte done;
    bool stop, other;
    do
    :: DO(CLAIM, 0) a_claimed = true OD
    :: DO(ZERO, M(5, CLAIM)) stop = !b_used OD
    :: DO(LOOK, M(5, CLAIM)) other = beyond_claimed OD
    :: done == (CLAIM | ZERO | LOOK) -> break
    od;
    missed_beyond = stop || !other;
    assert(!(missed_beyond && missed_a))
}

active proctype beyond() {
    byte done;
    bool used, other;
    do
    :: DO(USED, 0) used = b_used OD
    :: DO(CLAIM, USED) beyond_claimed = used OD /* a store: it waits for what decides on it */
    :: DO(LOOK, M(5, CLAIM)) other = a_claimed OD
    :: done == (USED | CLAIM | LOOK) -> break
    od;
    missed_a = used && !other;
    assert(!(missed_beyond && missed_a))
}
#endif

#ifdef WATERMARK
/* The key's old slot is over and is taken over for another key. A late thread that finds it gone does
 * not open that window again. */
#define RAISE 1
#define TAKE  2
#define LOOK  1
#define MARK  2

byte watermark; /* 1: the old slot's window is over */
bool gone;

active proctype takeover() {
    byte done;
    do
    :: DO(RAISE, 0) watermark = MAX(watermark, 1) OD
    :: DO(TAKE, M(7, RAISE)) gone = true OD
    :: done == (RAISE | TAKE) -> break
    od
}

active proctype late() {
    byte done, mark;
    bool absent;
    do
    :: DO(LOOK, 0) absent = gone OD
    :: DO(MARK, M(8, LOOK)) mark = watermark OD
    :: done == (LOOK | MARK) -> break
    od;
    assert(!(absent && mark == 0))
}
#endif

#ifdef FULL
/* slot_find: the key gets the last free slot, in the line after the home line, while another thread finds
 * none free. At every instant either a slot was free or the key had one, so that thread must find the
 * key. */
#define RAISE  1
#define CLAIM  2
#define REACH  1
#define SEARCH 2
#define PASS   4
#define REACH2 8
#define SECOND 16

bool placed; /* tag: the key's; state: live */
byte reach;

active proctype claimer() {
    byte done;
    do
    :: DO(RAISE, 0) reach = MAX(reach, 1) OD
    :: DO(CLAIM, M(7, RAISE)) placed = true OD
    :: done == (RAISE | CLAIM) -> break
    od
}

active proctype find() {
    byte done, lines, lines_then;
    bool found, live, found_then;
    do
    :: DO(REACH, 0) lines = reach OD
    :: DO(SEARCH, 0) found = placed OD
    :: DO(PASS, 0) live = placed OD
    :: DO(REACH2, REACH | M(9, PASS)) lines_then = reach OD
    :: DO(SECOND, SEARCH | M(9, PASS)) found_then = placed OD
    :: done == (REACH | SEARCH | PASS | REACH2 | SECOND) -> break
    od;
    assert(!live || (lines > 0 && found) || (lines_then > 0 && found_then))
}
#endif

/* ---- Policies ------------------------------------------------------------------------------- */

#ifdef RULE
/* policy_rule: a copy whose words are all of its version, while the policy is changed twice. */
#define WORD0   1
#define WORD1   2
#define STORE   4
#define NEXT0   8
#define NEXT1   16
#define NEXT    32
#define VERSION 4
#define AGAIN   8

byte version = 1;
byte rules[4] = 1; /* two words of each of the two rules */

active proctype change() {
    byte done;
    do
    :: DO(WORD0, 0) rules[0] = 2 OD
    :: DO(WORD1, 0) rules[1] = 2 OD
    :: DO(STORE, M(12, WORD0 | WORD1)) version = 2 OD
    :: DO(NEXT0, M(14, STORE)) rules[2] = 3 OD
    :: DO(NEXT1, M(14, STORE)) rules[3] = 3 OD
    :: DO(NEXT, STORE | M(12, NEXT0 | NEXT1)) version = 3 OD
    :: done == 63 -> break
    od
}

active proctype copy() {
    byte done, first, word0, word1, again;
    do
    :: DO(VERSION, 0) first = version OD
    :: DO(WORD0, VERSION) word0 = rules[(first % 2) * 2] OD /* their address is the version's */
    :: DO(WORD1, VERSION) word1 = rules[(first % 2) * 2 + 1] OD
    :: DO(AGAIN, VERSION | M(13, WORD0 | WORD1)) again = version OD
    :: done == (VERSION | WORD0 | WORD1 | AGAIN) -> break
    od;
    assert(first != again || (word0 == first && word1 == first))
}
#endif

#ifdef ADDED_POLICY
/* A policy is added: its version says so. One thread finds it and leaves a slot's tag that names it. Who
 * finds the version, or that tag, finds all that was written before the policy was there. */
#define WORDS   1
#define VERSION 2
#define FIND    1
#define NAME    2
#define SEE     1
#define READ    4

bool words, version, tag;

active proctype add() {
    byte done;
    do
    :: DO(WORDS, 0) words = true OD
    :: DO(VERSION, M(12, WORDS)) version = true OD
    :: done == (WORDS | VERSION) -> break
    od
}

active proctype first() {
    byte done;
    bool found, read;
    do
    :: DO(FIND, 0) found = version OD
    :: DO(READ, M(15, FIND)) read = words OD
    :: DO(NAME, FIND) tag = found OD
    :: done == (FIND | READ | NAME) -> break
    od;
    assert(!found || read)
}

active proctype second() {
    byte done;
    bool seen, read;
    do
    :: DO(SEE, 0) seen = tag OD
    :: DO(READ, M(15, SEE)) read = words OD
    :: done == (SEE | READ) -> break
    od;
    assert(!seen || read)
}
#endif
