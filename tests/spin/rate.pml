/* SPDX-License-Identifier: MIT
 * A bucket whose rate changes: src/feature/rate.h, as src/core.h, decide.c, occupant.h, rate.c and policy.c do it,
 * for spin. `run` compiles and runs it.
 *
 * One key's slot, one clock that stands. TAKERS take a token each time, CALLS times; one of them may
 * find no slot, and claim it. A changer changes the rate CHANGES times: it may die after any step,
 * and another goes on from the beginning of a change (the lock is robust). Every `atomic` holds at
 * most one atomic operation of the C code.
 *
 * A token by rate r takes UNIT(r) ns. The slot's ns are true by one rate, which the ghost `by` has:
 * who reads them by another has another count than was taken. Numbers of rates are modulo MODULO,
 * of which the C code has 16. */

#define LIMIT   3 /* tokens: the burst */
#define UNIT(r) ((r) % 2 + 1)

#ifndef WRONG_CLAIM /* commits by a rate that may be two changes old */
#define WRONG_CLAIM false
#endif
#ifndef WRONG_LOOK /* takes a slot that counts by another rate as it is */
#define WRONG_LOOK false
#endif
#ifndef WRONG_SWEEP /* counts no slot anew */
#define WRONG_SWEEP false
#endif
#ifndef WRONG_SWEEP_CLAIMS /* leaves claims */
#define WRONG_SWEEP_CLAIMS false
#endif

c_decl {
    \#include <stdio.h>
    \#include <stdlib.h>
    static unsigned char happened[2];
    static void report_transitions(void) {
        if (happened[0])
            printf("transition: COMMITTED COMMITTED D rate\n");
        if (happened[1])
            printf("transition: PENDING TOMBSTONE D rate\n");
    }
    static void report_at_exit(void) {
        static int asked;
        if (!asked++)
            atexit(report_transitions);
    }
};

#define NEVER     0
#define PENDING   1
#define COMMITTED 2
#define TOMBSTONE 3

/* The slot: one word. */
byte kind, number, ns;
byte end;      /* it grows with each claim: a tombstone is not free before the next tick (I1) */
byte by;       /* ghost: the rate by which its ns are true */
byte taken;    /* ghost: tokens that were granted */

/* The policy: its version is the number of its rate, not cut. The record: the rate before, and
 * whether slots of two rates may be there. */
byte version;
byte before = 255;
bool two_rates;

bool died;
byte ended; /* processes */

#define NUMBER(r) ((r) % MODULO)
#define COUNT     (ns / UNIT(by))

/* Who has seen `s_...` swaps the slot: as it was, it is as it is to be. */
#define AS_SEEN (kind == s_kind && end == s_end && number == s_number && ns == s_ns)

inline load() {
    atomic { s_kind = kind; s_number = number; s_ns = ns; s_end = end; s_by = by; }
}

/* Counts anew what was seen by the rate `v`, of which the record's words are. */
inline settle(v) {
    atomic { was = before; };
    atomic {
        if
        :: AS_SEEN ->
            /* The ghosts: it was true by the rate before, and the record has that one. */
            assert(by == v - 1 && was == v - 1);
            ns = s_ns * UNIT(v) / UNIT(was);
            number = NUMBER(v);
            by = v;
            c_code { happened[0] = 1; };
        :: else
        fi
    }
}

proctype taker(byte calls) {
    byte v, s_kind, s_number, s_ns, s_end, s_by, was;
    bool done;

    do
    :: calls == 0 -> break
    :: else ->
        atomic { v = version };
        load();
        if
        :: s_kind == NEVER || s_kind == TOMBSTONE ->
            atomic {
                if
                :: AS_SEEN -> kind = PENDING; number = 0; ns = 0; end++; s_end = end
                :: else -> goto again
                fi
            };
            goto resolve
        :: s_kind == PENDING ->
resolve:
            /* claim_void, after the look */
            if
            :: version != v && !WRONG_CLAIM ->
                atomic {
                    if
                    :: kind == PENDING && end == s_end -> kind = TOMBSTONE
                    :: else
                    fi
                };
                goto again
            :: else
            fi;
            atomic {
                if
                :: kind == PENDING && end == s_end ->
                    kind = COMMITTED; number = NUMBER(v); ns = UNIT(v); by = v;
                    /* No other rate is in force than this one, or the one after. */
                    assert(version - v <= 1);
                    taken++; done = true
                :: else
                fi
            }
        :: s_kind == COMMITTED && s_number != NUMBER(v) && !WRONG_LOOK ->
            if
            :: version == v -> settle(v)
            :: else /* begin anew */
            fi
        :: else ->
            if
            :: s_ns + UNIT(v) <= LIMIT * UNIT(v) ->
                atomic {
                    if
                    :: AS_SEEN ->
                        assert(s_by == v && ns == taken * UNIT(v)); /* A */
                        ns = ns + UNIT(v); taken++; done = true
                    :: else
                    fi
                }
            :: else ->
                /* A refusal, confirmed: B. */
                atomic {
                    if
                    :: AS_SEEN -> assert(taken == LIMIT); done = true
                    :: else
                    fi
                }
            fi
        fi;
again:
        atomic { /* forget, so that fewer states differ */
            calls = calls - (done -> 1 : 0);
            v = 0; s_kind = 0; s_number = 0; s_ns = 0; s_end = 0; s_by = 0; was = 0; done = false
        }
    od;
    ended++
}

/* Sweeps the slot: rate.c, slot_sweep. */
inline sweep() {
    do
    :: !two_rates -> break
    :: else ->
        load();
        if
        :: s_kind == PENDING && !WRONG_SWEEP_CLAIMS ->
            atomic {
                if
                :: AS_SEEN ->
                    kind = TOMBSTONE;
                    c_code { happened[1] = 1; };
                    two_rates = false;
                    s_kind = 0; s_number = 0; s_ns = 0; s_end = 0; s_by = 0; was = 0;
                    break
                :: else
                fi
            }
        :: s_kind == COMMITTED && s_number != NUMBER(version) && !WRONG_SWEEP ->
            settle(version)
        :: else ->
            atomic {
                two_rates = false;
                s_kind = 0; s_number = 0; s_ns = 0; s_end = 0; s_by = 0; was = 0;
                break
            }
        fi
    od
}

active proctype changer() {
    byte s_kind, s_number, s_ns, s_end, s_by, was;

    do
    :: version == CHANGES && !two_rates -> break
    :: else ->
        sweep();
        if
        :: version < CHANGES ->
            atomic { before = version };
            atomic { two_rates = true };
            atomic { version++ }
        :: else
        fi;
        if
        :: !died -> died = true /* before its sweep; another one goes on */
        :: true -> sweep()
        fi
    od;
    ended++
}

init {
    c_code { report_at_exit(); };
    atomic {
        run taker(CALLS0);
        run taker(CALLS1)
    };
    ended == 3;
    assert(kind != COMMITTED || COUNT == taken)
}
