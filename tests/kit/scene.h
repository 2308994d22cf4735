/* SPDX-License-Identifier: MIT
 * A scene: who does what on a table of one line, four slots, or a few, in words. It is played with
 * its threads stopped at each of their atomic operations in turn, and what came of it is held
 * against the promises of stint.h.
 *
 *     {"two threads and one token", .before = "take two key", .a = "take two key",
 *      .b = "take two key", .stops = 1}
 *
 * Acts are divided by ';'. TICK counts 10 ms from a common start of all windows. A policy is one of
 * those in scene.c, or one that the scene adds. A key is `key`, `other`, `third` or h0 .. h99; f0
 * .. f99 are keys whose hashes differ in their upper halves, too.
 *
 *     take POLICY KEY [WORD ...]      one token, by stint_take
 *     all POLICY KEY [WORD ...] + ... a group; `batch` a batch
 *     hold N [cost N]                 the keys h0 .. take tokens of the policy `long`
 *     refund POLICY KEY N of TICK     into the window that ends then
 *     back POLICY KEY                 what the thread took last of the key is given back
 *     reset POLICY KEY
 *     turn TICK                       what the clock says
 *     tell POLICY                     its present window, by a look at another key
 *     die POLICY KEY [at TICK] [beside TICK]   a thread is killed while it has a claim; before the
 *                                     claim another takes a token of the key, by the later TICK
 *     stray POLICY KEY                a thread is killed after the fetch-add of a refused token
 *     add NAME NOTATION               a policy; `change` changes one
 *     apply TEXT                      stint_policies_apply
 *     remove POLICY
 *     find POLICY [OLD or] [NEW]      by its name: it has decisions, and is NEW, or OLD only if `a`
 *                                     was killed; by its first id, too; none: there is none
 *     prune TEXT                      `apply` that removes what the text does not name
 *     tidy [N]                        no slot is a policy's that is gone; N ids are in use
 *     label KEY N                     it is given its name number N, 1 to 4
 *     seen KEY [N ... or] [N ...]     what its name may be; 0: none. Its `used`: refused windows
 *     close, open                     the table; in a file: who opens it is alone
 *     each, headers POLICY            reads
 *     override POLICY KEY LIMIT TICK
 *     clear POLICY KEY                its override
 *     as N                            the thread's number from now on, which chooses stripes
 *
 * Words of a request: cost N, limit N, at TICK, partial, reserve, drain, charge, look, tentative;
 * long: it goes the long way. xN: so many times; rest: until one is refused, or N times. unasked:
 * nobody reads the verdicts; quiet: the promises are not asked of this key.
 *
 * Behind '=' stands what must come of an act, for each part of a group:
 *     yes, no           allowed or not
 *     used N, capacity N, granted N, most N (granted), back N (given back)
 *     or N              used or capacity: N, and what stands before it only if `a` was killed
 *     first, near, over, untracked: the flag is set; far: NEAR_LIMIT is not; plain: none is
 *     else              what follows, if the group is refused
 *     placed            the key has a slot
 *     window TICK; fresh: it is not over by the clock; soon: it ends within its length
 *     never             where it is refused, it is told never to ask again
 *     counted           used is what was granted in the window, less what was given back
 *     ruled             by an override if it was allowed, and else by none */
#ifndef STINT_TESTS_SCENE_H
#define STINT_TESTS_SCENE_H

#include "stint.h"
#include "sys/testing.h"

struct scene {
    const char *name;
    const char *before; /* what was there */
    const char *a;      /* the thread that is stopped */
    const char *b;      /* what others do while it is stopped, or a second thread */
    const char *c;      /* what others do when it is stopped again */
    const char *after;  /* what comes after all */
    /* 0: nobody is stopped. 1, 2: `a` is; in the last play `b` and `c` come behind it. 3: `a` is
     * stopped, `b` begins and is stopped, `a` goes on and is stopped again, and `b` goes on. */
    unsigned stops;
    unsigned lines; /* of the table; 0: one */
    bool dies;      /* instead, `a` is a process that is killed before each of its steps */
    enum stint_on_full on_full;
    bool key_replaced; /* a full table may replace `key`, of which A and B need not hold then (G) */
    bool in_order;     /* B and C are those of its calls one after the other; set-up may fail */
    bool of_policies;  /* it is stopped where it reads or writes a policy, too */
    bool any_order;    /* its answers need be those of no order: who slept tells the time anew */
    bool in_file;      /* the table is: nobody watches it, nor its order */
    bool reads;        /* `a` has a handle of its own, in a file, which only reads */
    /* `a` is stopped only at instants of this name; 0 stops: at the first. */
    bool at_instant;
    enum stint_test_instant instant;
};

enum { SCENE_BROKEN_MAX = 160 };

/* What came of a scene that was played with its threads stopped at all their steps in turn. */
struct outcome {
    char broken[SCENE_BROKEN_MAX]; /* what was broken; empty: nothing */
    unsigned stops[3];             /* steps at which threads were stopped then */
    unsigned plays;                /* until then, or of all */
};

/* Of all plays one in so many is made, unless STINT_TEST_ONE_IN says another number. */
extern uint64_t scene_one_in;

/* Plays a scene with these guards (guards.h) taken away. Of the many plays of one with two threads
 * that are stopped, or of a table in a file, one in `one_in` is drawn by the seed; none, if it is
 * not SCHEDULABLE. */
struct outcome scene_play(const struct scene *scene, guard_set removed, uint64_t one_in,
                          uint64_t seed);

#endif
