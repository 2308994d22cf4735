/* SPDX-License-Identifier: MIT
 * A key of a striped policy, as src/stripes.c and refund.c decide on it, for spin. `run` compiles and runs
 * it: good configurations, which must hold, and wrong variants (WRONG_*), which must not.
 *
 * How a stripe gets and keeps its slot is slot.pml's: here each stripe is one word, and never another
 * key's, but that it may be absent until it is first used. Each `atomic` holds at most one atomic
 * operation of the C code; the other statements in it touch locals of the thread, or ghosts. Labels are
 * named after the functions. Memory is sequentially consistent.
 *
 * Windows are numbered, and the clock is the number of the one of now. It moves at any instant; a thread
 * loads it once, when a call begins, and may sleep anywhere after that. A thread that is killed is one
 * that spin never schedules again. A thread that finds a stripe in a later window than its own joins that
 * (or the clock's, if it is so late that it reads the clock).
 *
 * Parameters (-D): STRIPES, LIMIT of all together, THREADS, CALLS0 CALLS1 CALLS2 and KINDS0 KINDS1
 * KINDS2 of each (sets of the calls below, of which a thread makes any), LAST window of the clock, CHARGED
 * tokens by a charge, USED0 USED1 tokens that the first two stripes have in
 * the first window, SAME (all threads begin at stripe 0; else each at its own), LOSES (another key takes the
 * slot of a stripe that is over, once; then no window before that instant's opens there), CHANGED (what the
 * limit is changed to, once; 0: never). AT_OTHERS: a thread whose token is gone from its stripe takes one back
 * at the others. With STRICT (who is refused for a token on its way back) and UNFORGIVEN (one that a refund left
 * in another stripe) what the header calls exceptions is found.
 *
 * With GROUP the two words are not stripes but two keys of one slot each, LIMIT is that of each, and calls are
 * requests of them one by one or of both as one (group.c). How many windows of the clock one of the
 * second key is long: LENGTH. */


/* Calls: for one token, two, three; a charge; what the thread's last call took is given back. */
#define ONE    1
#define TWO    2
#define THREE  4
#define CHARGE 16
#define REFUND 64
/* With GROUP: for one of the first key; of the second; one of each; two of the first (LIMIT is
 * 2 at least) and one of the second. */
#define FIRST  1
#define SECOND 2
#define BOTH   4
#define MORE   8
#define CHARGES (!GROUP && (KINDS0 | KINDS1 | (THREADS > 2 ? KINDS2 : 0)) & 16)

/* The state of a stripe is one word: window | refused | used. */
#define STATE(window, refused, used) ((window) << 5 | (refused) << 4 | (used))
#define USED(state)    ((state) & 15)
#define REFUSED(state) ((state) >> 4 & 1)
#define WINDOW(state)  ((state) >> 5)

#define MAX(one, other) ((one) > (other) -> (one) : (other))
#define MIN(one, other) ((one) < (other) -> (one) : (other))
#define LESS(one, other) ((one) > (other) -> (one) - (other) : 0)

byte stripe[STRIPES];
byte clock = 1;
#if GROUP /* only calls that begin look at the clock: it need not move but then */
#if LOSES
#error "other_key looks at it, too"
#endif
#define CLOCK_MOVES                                                                                \
    do                                                                                             \
    :: clock < LAST -> clock++                                                                     \
    :: break                                                                                       \
    od;
#endif
#if LOSES
byte lost; /* the watermark: the clock's window when a slot was lost */
#else
#define lost 0
#endif
#define SHARE_OF(limit, i) ((limit) / STRIPES + ((i) < (limit) % STRIPES -> 1 : 0))
#if GROUP
#define SHARE(i) LIMIT
#define GHOSTS   (2 * LAST + 2)
#else
#define SHARE(i) SHARE_OF(LIMIT, i)
#define GHOSTS   (LAST + 1)
#endif

#if CHANGED
byte limit = LIMIT;
#define MOST (limit > LIMIT -> limit : LIMIT) /* so far */
#define CAPACITY capacity
#define BEGIN     goto decision_begin
#define OWN_BEGIN goto own_begin
#else
#define MOST LIMIT
#define CAPACITY LIMIT
#define BEGIN     goto settle
#define OWN_BEGIN goto own_take
#endif

/* ---- Ghosts ----------------------------------------------------------------------------------- */

/* Of each window: tokens that are granted, less those given back; that are taken in any way; that adders
 * take back. */
byte granted[GHOSTS];
byte taken[GHOSTS];
byte returning[GHOSTS];
#ifdef STRICT
#define RETURNING(w) 0
#else
#define RETURNING(w) returning[w]
#endif
bit told[GHOSTS]; /* somebody has been told that he is the first refused */

/* Of each thread and window: tokens that others have given back since its call began. */
typedef call_t { bit busy; byte back[GHOSTS] };
call_t call[THREADS];
#define BACK_OF(t, w, n)                                                                           \
    call[t].back[w] = call[t].back[w] + (t != me && call[t].busy -> n : 0)
#if THREADS == 2
#define BACK(w, n) BACK_OF(0, w, n); BACK_OF(1, w, n)
#else
#define BACK(w, n) BACK_OF(0, w, n); BACK_OF(1, w, n); BACK_OF(2, w, n)
#endif

hidden byte before; /* no part of the state */
hidden byte lacked, kept;

#define CALL_ENDS                                                                                  \
    d_step {                                                                                       \
        call[me].busy = 0;                                                                         \
        do                                                                                         \
        :: i < GHOSTS -> call[me].back[i] = 0; i++                                                 \
        :: else -> i = 0; break                                                                    \
        od                                                                                         \
    }

/* The promises. Their names are in spin's error messages, by which `run` tells them apart. */
#define PROMISE_A_within_limit(w) (granted[w] <= MOST)
#define PROMISE_H_not_before(w)   ((w) >= now)
#define PROMISE_C_first_refusal_once(w) !told[w]
#ifdef UNFORGIVEN
#define PROMISE_back_is_there (WINDOW(stripe[OWN]) != ahead || returning[ahead] == 0)
#else
#define PROMISE_back_is_there true
#endif
#define PROMISE_I1_end_grows      (before <= WINDOW(stripe[at]))

/* B. The stripes are not seen at one instant. What a request has seen as taken was taken when it
 * ended, or given back by somebody while it looked: so no more than these two together. Where nothing is
 * given back meanwhile, this says that the tokens did not fit. (Its own it has given back by now.) */
#define NOTE_REFUSED(w, cost)                                                                      \
    lacked = taken[w] + call[me].back[w] + RETURNING(w) + (cost) > ROOM;                    \
    assert(lacked)

#define WRITE(i, next)                                                                             \
    d_step {                                                                                       \
        at = i;                                                                                    \
        before = WINDOW(stripe[at]);                                                               \
        stripe[at] = next;                                                                         \
        assert(PROMISE_I1_end_grows);                                                              \
        assert(USED(next) < 15); /* a limit of the model */                                        \
        printf("slot %d: tag 3, end %d, pending 0, refused %d, used %d\n", at, WINDOW(stripe[at]), \
               REFUSED(stripe[at]), USED(stripe[at]));                                             \
    }
hidden byte at;

#define GRANT(w, n)                                                                                \
    granted[w] = granted[w] + (n);                                                                 \
    assert(PROMISE_A_within_limit(w));                                                             \
    assert(PROMISE_H_not_before(w));                                                               \
    held = n; held_window = w; held_charge = 0

/* ---- A thread --------------------------------------------------------------------------------- */

#if !GROUP
#define OWN  (SAME -> 0 : me % STRIPES)
#define ROOM CAPACITY
#define PART(i) SHARE_OF(CAPACITY, i)

proctype thread(byte me; byte kinds; byte calls) {
    byte kind, now, cost;
    byte window;        /* of the whole */
    byte i, state;
    byte sum;           /* of the look; what is left to take, or to give back */
    byte ahead;         /* the window that a part was in */
    byte took[STRIPES]; /* struct gathered */
    byte n, count;
    bit again;          /* the look after all stripes had no token */
#if CHANGED
    byte capacity;
#endif
    byte held, held_window; bit held_charge; /* what the last call took */

next:
    atomic {
        kind = 0; now = 0; cost = 0; window = 0; i = 0; state = 0; sum = 0; ahead = 0; n = 0; count = 0;
        again = 0;
#if CHANGED
        capacity = 0;
#endif
        CALL_ENDS;
        if
        :: calls == 0 -> held = 0; held_window = 0; held_charge = 0; goto done
        :: else -> calls--
        fi;
        now = clock; window = now;
        call[me].busy = 1;
        if
        :: kinds & ONE -> kind = ONE; cost = 1
        :: kinds & TWO -> kind = TWO; cost = 2
        :: kinds & THREE -> kind = THREE; cost = 3
#if CHARGES
        :: kinds & CHARGE -> kind = CHARGE; cost = CHARGED; BEGIN
#endif
        :: kinds & REFUND && held > 0 ->
            kind = REFUND; sum = held; window = held_window; goto give_back
        fi;
        if /* is the policy's hint of the window of now? */
        :: OWN_BEGIN
#ifdef WRONG_STRIPE_WINDOW
        :: window = 1; OWN_BEGIN
#else
        :: BEGIN
#endif
        fi
    }
#if CHANGED
own_begin:
    atomic { capacity = limit; goto own_take }
#endif

    /* own_take */
own_take:
    atomic {
        state = stripe[OWN];
        if
        :: state == 0 -> window = now; BEGIN
#ifndef WRONG_STRIPE_ROOM
        :: state != 0 &&
               (WINDOW(state) != window || REFUSED(state) || USED(state) + cost > PART(OWN)) ->
            state = 0; window = now; BEGIN
#endif
        :: else -> skip
        fi;
        if
        :: cost == 1 -> state = 0; goto own_add
        :: else -> goto own_swap
        fi
    }
own_swap:
    atomic {
        if
        :: stripe[OWN] != state -> state = 0; window = now; BEGIN
        :: else
        fi;
        WRITE(OWN, state + cost);
        taken[WINDOW(state)] = taken[WINDOW(state)] + cost;
        GRANT(WINDOW(state), cost);
        goto next
    }
own_add: /* slot_add */
    atomic {
        state = stripe[OWN];
        if
        :: state == 0 -> BEGIN /* a stray, of another key's slot */
        :: else
        fi;
        n = (WINDOW(state) == window && USED(state) < PART(OWN));
        WRITE(OWN, state + 1);
        taken[WINDOW(state)] = taken[WINDOW(state)] + n;
        returning[WINDOW(state)] = returning[WINDOW(state)] + 1 - n;
        if
#ifdef WRONG_STRIPE_ADDED
        :: true -> skip
#elif defined(WRONG_BACK_NOT)
        :: n == 0 -> goto own_anew
#else
        :: n == 0 -> n = 1; ahead = WINDOW(state); i = OWN; goto back_state
#endif
        :: n == 1 -> skip
        fi;
        GRANT(WINDOW(state), 1);
        goto next
    }

    /* stint_token_back */
back_state:
    atomic {
        state = stripe[i];
        if
#ifndef WRONG_BACK_END
        :: WINDOW(state) != ahead -> goto back_left
#endif
        :: USED(state) == 0 -> goto back_left
        :: else -> goto back_swap
        fi
    }
back_left: /* none is there: a refund took it there, and left one elsewhere */
    atomic {
#ifdef AT_OTHERS
        i = (i + 1) % STRIPES;
        if
        :: i != OWN -> goto back_state
        :: else
        fi;
#endif
        assert(PROMISE_back_is_there);
        goto own_anew
    }
back_swap:
    atomic {
        if
        :: stripe[i] != state -> goto back_state
        :: else
        fi;
        WRITE(i, state - 1);
        BACK(ahead, 1);
        returning[ahead] = LESS(returning[ahead], 1);
#ifdef WRONG_BACK_TWICE
        if
        :: n == 1 -> n = 2; goto back_state
        :: else
        fi;
#endif
        goto own_anew
    }
own_anew: /* by swaps only */
    atomic { state = 0; ahead = 0; n = 0; i = 0; window = now; BEGIN }

#if LOSES /* claim_resolve: a window that is not too early for a slot that was lost */
#define OPEN_LATER(i, retry)                                                                       \
    if                                                                                             \
    :: state == 0 && lost > window ->                                                              \
        if                                                                                         \
        :: stripe[i] != 0 -> goto retry                                                            \
        :: else -> state = STATE(lost, 0, 0); WRITE(i, state)                                      \
        fi                                                                                         \
    :: else                                                                                        \
    fi;
#else
#define OPEN_LATER(i, retry)
#endif

#if CHANGED
decision_begin:
    atomic { capacity = limit; goto settle }
#endif
settle: /* stripes_round */
    atomic {
        i = 0; sum = 0; state = 0; n = 0; count = 0; again = 0; ahead = 0;
        cost = (kind == ONE -> 1 : (kind == TWO -> 2 : (kind == CHARGE -> CHARGED : 3)));
        if
        :: kind == ONE || kind == CHARGE -> sum = cost; goto gather
        :: else -> goto look_first
        fi
    }

    /* look_first: sum_used */
look_first:
    atomic {
        state = stripe[i];
        goto look_again
    }
look_again: /* slot_unchanged */
    atomic {
        if
        :: WINDOW(stripe[i]) != WINDOW(state) -> state = 0; goto look_first
        :: WINDOW(stripe[i]) == WINDOW(state) && WINDOW(state) > window -> /* move_on */
            if
            :: window = WINDOW(state)
            :: window = clock
            fi;
            sum = 0; i = 0; state = 0; goto look_first
        :: else -> sum = sum + (WINDOW(state) == window -> USED(state) : 0)
        fi;
        state = 0;
        i++;
        if
        :: i < STRIPES -> goto look_first
        :: else -> i = 0
        fi;
        /* judge */
        if
        :: sum + cost <= ROOM -> skip
        :: else -> sum = 0; again = 0; goto refuse
        fi;
        sum = cost;
        if
        :: again -> goto settle
        :: else -> goto gather
        fi
    }

    /* gather. Of a charge the last round is stripe 0 once more, for what is left. */
#define AT (i < STRIPES -> (OWN + i) % STRIPES : 0)
gather:
    atomic {
        state = stripe[AT];
        goto gather_charge
    }
gather_charge: /* slot_charge: a swap, or slot_unchanged */
    atomic {
        OPEN_LATER(AT, gather)
        if
        :: WINDOW(state) > window -> /* PART_SAME_WINDOW: takes nothing */
            if
            :: WINDOW(stripe[AT]) != WINDOW(state) -> state = 0; goto gather
            :: else
            fi;
#ifdef WRONG_STRIPES_WINDOW
            skip
#else
#ifdef WRONG_SAME_WINDOW /* takes there, and gives it back */
            if
            :: stripe[AT] == state && kind == ONE && USED(state) < SHARE(AT) ->
                WRITE(AT, state + 1); took[AT] = 1
            :: else
            fi;
            window = (took[AT] -> WINDOW(state) : window); /* all that it has taken */
#endif
            if
            :: ahead = WINDOW(state)
            :: ahead = clock
            fi;
            sum = 0; i = 0; state = 0; goto give_back
#endif
        :: else ->
            count = (WINDOW(state) == window -> USED(state) : 0);
            n = (i == STRIPES -> sum : MIN(sum, LESS(SHARE_OF(ROOM, AT), count)));
            if
            :: n == 0 ->
                if
                :: WINDOW(stripe[AT]) != WINDOW(state) ->
                    state = 0; n = 0; count = 0; goto gather
                :: else
                fi
            :: else ->
                if
                :: stripe[AT] != state -> state = 0; n = 0; count = 0; goto gather
                :: else
                fi;
                WRITE(AT, STATE(window, WINDOW(state) == window && REFUSED(state), count + n));
                taken[window] = taken[window] + n;
                took[AT] = took[AT] + n;
                sum = sum - n
            fi
        fi;
        state = 0; n = 0; count = 0;
        i++;
        if
        :: sum > 0 && i < STRIPES + (kind == CHARGE -> 1 : 0) -> goto gather
        :: else -> n = cost - sum; i = 0
        fi;
        if
        :: sum == 0 || kind == CHARGE ->
            sum = 0;
            d_step {
                do
                :: i < STRIPES -> took[i] = 0; i++
                :: else -> i = 0; break
                od
            }
            if
            :: kind == CHARGE -> held = n; held_window = window; held_charge = 1
            :: else -> GRANT(window, n)
            fi;
            goto next
        :: else -> sum = 0; n = 0; goto give_back
        fi
    }

    /* give_back, stint_key_refund: stint_slot_refund. Each stripe what was taken from it, then what is
     * left of that from all; a refund all of it from all. */
#define TOKENS (kind == REFUND || i >= STRIPES -> sum : took[i])
#define ROUNDS (kind == REFUND -> STRIPES : 2 * STRIPES)
#ifdef WRONG_BACK_ONCE
#undef ROUNDS
#define ROUNDS STRIPES
#endif
give_back:
    atomic {
#ifdef WRONG_STRIPES_BACK
        if
        :: kind != REFUND && ahead == 0 ->
            do
            :: i < STRIPES -> sum = sum + took[i]; took[i] = 0; i++
            :: else -> i = ROUNDS; break
            od
        :: else
        fi;
#endif
        do
        :: i < ROUNDS && TOKENS == 0 -> i++
        :: else -> break
        od;
        if
        :: i == ROUNDS -> goto given_back
        :: else -> skip
        fi;
#ifndef WRONG_FIRST_STRIPE
        if
        :: kind == REFUND && i == 1 -> goto first_stripe_passed
        :: else -> goto slot_refund
        fi
    }
first_stripe_passed:
    atomic {
        if
        :: WINDOW(stripe[0]) > window -> goto given_back
#ifndef WRONG_FIRST_STRIPE_LOST
        :: stripe[0] == 0 && clock > window -> goto given_back
#endif
        :: else -> skip
        fi;
#endif
        goto slot_refund
    }
slot_refund: /* stint_find_committed */
    atomic {
        state = stripe[i % STRIPES];
        if
        :: WINDOW(state) != window -> n = 0; state = 0; goto slot_refunded
        :: else -> skip
        fi;
        count = USED(state);
        n = MIN(TOKENS, count);
        if
        :: n == 0 -> state = 0; count = 0; goto slot_refunded
        :: else -> goto slot_give_back
        fi
    }
slot_give_back:
    atomic {
        if
        :: stripe[i % STRIPES] != state -> state = 0; count = 0; n = 0; goto slot_refund
        :: else
        fi;
        WRITE(i % STRIPES, STATE(window, REFUSED(state), count - n));
#ifdef WRONG_SAME_WINDOW
        n = (kind == ONE -> 0 : n); /* it was nobody's */
#endif
        taken[window] = taken[window] - n;
        BACK(window, n);
#ifdef WRONG_SAME_WINDOW
        n = (kind == ONE -> 1 : n);
#endif
        if
        :: kind == REFUND && !held_charge -> granted[window] = granted[window] - n
        :: else
        fi;
        state = 0; count = 0;
        goto slot_refunded
    }
slot_refunded:
    atomic {
        if
        :: kind == REFUND || i >= STRIPES -> sum = sum - n
        :: else -> sum = sum + took[i] - n; took[i] = 0
        fi;
        n = 0;
        i++;
        goto give_back
    }
given_back:
    atomic {
        i = 0;
        if
        :: kind == REFUND -> held = 0; held_window = 0; held_charge = 0; goto next
        :: else
        fi;
        /* Whole, but for what is in stripes that have passed the window, or were lost. */
        do
        :: i < STRIPES && WINDOW(stripe[i]) <= window && (stripe[i] != 0 || lost == 0) -> i++
        :: else -> break
        od;
        kept = (i == STRIPES && sum > 0);
#ifndef WITHOUT_WHOLE
        assert(!kept);
#endif
        taken[window] = taken[window] - (kept -> sum : 0);
        i = 0; sum = 0; kept = 0;
        if
        :: ahead != 0 -> window = ahead; goto settle
        :: ahead == 0 && kind == ONE -> again = 1; goto look_first
        :: else -> goto refuse
        fi
    }

    /* refuse: the mark is in stripe 0 */
refuse:
    atomic {
        state = stripe[0];
        goto refuse_charge
    }
refuse_charge:
    atomic {
        OPEN_LATER(0, refuse)
        if
        :: WINDOW(state) > window -> /* PART_SAME_WINDOW */
            if
            :: WINDOW(stripe[0]) != WINDOW(state) -> state = 0; goto refuse
            :: else
            fi;
            if /* move_on */
            :: window = WINDOW(state)
            :: window = clock
            fi;
            goto settle
        :: else ->
            count = (WINDOW(state) == window -> USED(state) : 0);
            if
            :: WINDOW(state) == window && REFUSED(state) ->
                if
                :: WINDOW(stripe[0]) != WINDOW(state) -> state = 0; count = 0; goto refuse
                :: else
                fi
            :: else ->
                if
                :: stripe[0] != state -> state = 0; count = 0; goto refuse
                :: else
                fi;
                assert(PROMISE_C_first_refusal_once(window)); told[window] = 1;
                WRITE(0, STATE(window, 1, count))
            fi;
            NOTE_REFUSED(window, cost)
        fi;
        goto next
    }

done:
    skip
}

#else
/* ---- A group ----------------------------------------------------------------------------------- */

#define IN(k, w)      ((k) * (LAST + 1) + (w))
#define WINDOW_NOW(k) ((k) == 0 -> now : (now + LENGTH - 1) / LENGTH)
#define COST(k)       (kind == MORE && (k) == 0 -> 2 : 1)
#define LAST_PART     (kind == FIRST -> 0 : 1)
#define FITS(k, state)                                                                             \
    (WINDOW(state) < WINDOW_NOW(k) || USED(state) + COST(k) <= LIMIT)
#undef ROOM
#define ROOM LIMIT

proctype thread(byte me; byte kinds; byte calls) {
    byte kind, now;
    byte i;             /* the part */
    byte state, window, count;
    byte seen[2];
    bit refused;
    byte had[2];        /* windows in which the parts have their tokens */
    byte held[2], held_kind;

next:
    atomic {
        kind = 0; now = 0; i = 0; state = 0; window = 0; count = 0; refused = 0;
        seen[0] = 0; seen[1] = 0; had[0] = 0; had[1] = 0;
        CALL_ENDS;
        if
        :: calls == 0 -> held[0] = 0; held[1] = 0; held_kind = 0; goto done
        :: else -> calls--
        fi;
        CLOCK_MOVES
        now = clock;
        call[me].busy = 1;
        if
        :: kinds & FIRST -> kind = FIRST
        :: kinds & SECOND -> kind = SECOND; i = 1
        :: kinds & BOTH -> kind = BOTH
        :: kinds & MORE -> kind = MORE
        :: kinds & REFUND && held_kind != 0 ->
            kind = held_kind; had[0] = held[0]; had[1] = held[1]; now = 0;
            held[0] = 0; held[1] = 0; held_kind = 0; i = 0; goto all_give_back
        fi
    }

    /* plain_see, part_judge, part_look. Of one request alone: take_in */
part_judge:
    atomic {
        seen[i] = stripe[i];
        if
        :: FITS(i, seen[i]) -> goto part_judged
        :: else -> goto part_unchanged
        fi
    }
part_unchanged:
    atomic {
        if
        :: WINDOW(stripe[i]) != WINDOW(seen[i]) -> goto part_judge
        :: else -> NOTE_REFUSED(IN(i, WINDOW(seen[i])), COST(i)); refused = 1
        fi;
        goto part_judged
    }
part_judged:
    atomic {
        i++;
        if
        :: i <= LAST_PART -> goto part_judge
        :: else -> i = (kind == SECOND -> 1 : 0)
        fi;
        if
        :: refused -> goto all_refuse
        :: else -> goto part_charge
        fi
    }

    /* part_charge: an add, a swap, or the long way */
part_charge:
    atomic {
        if
        :: WINDOW(seen[i]) == WINDOW_NOW(i) && !REFUSED(seen[i]) && COST(i) == 1 -> goto part_add
        :: WINDOW(seen[i]) > WINDOW_NOW(i) -> goto part_decide
        :: else -> goto part_swap
        fi
    }
#define HAD(w)                                                                                     \
    had[i] = w;                                                                                    \
    granted[IN(i, w)] = granted[IN(i, w)] + COST(i);                                               \
    assert(PROMISE_A_within_limit(IN(i, w)));                                                      \
    assert((w) >= WINDOW_NOW(i));                                                                  \
    goto part_had
part_add:
    atomic {
        state = stripe[i];
        WRITE(i, state + 1);
#define ADDED (WINDOW(state) == WINDOW(seen[i]) && USED(state) < LIMIT)
        taken[IN(i, WINDOW(state))] = taken[IN(i, WINDOW(state))] + ADDED;
        returning[IN(i, WINDOW(state))] = returning[IN(i, WINDOW(state))] + !ADDED;
        if
#ifndef WRONG_PARTS_ADDED
        :: !ADDED -> goto part_back
#endif
        :: else -> HAD(WINDOW(state))
        fi
    }
part_back: /* stint_token_back */
    atomic { window = WINDOW(state); state = stripe[i]; goto part_back_swap }
part_back_swap:
    atomic {
        if
        :: WINDOW(state) != window || USED(state) == 0 -> state = 0; window = 0; goto part_decide
        :: WINDOW(state) == window && USED(state) != 0 && stripe[i] != state -> goto part_back
        :: else
        fi;
        WRITE(i, state - 1);
        BACK(IN(i, window), 1);
        returning[IN(i, window)]--;
        state = 0; window = 0;
        goto part_decide
    }
part_swap:
    atomic {
        window = WINDOW_NOW(i);
        if
        :: stripe[i] != seen[i] -> window = 0; goto part_decide
        :: else -> count = (WINDOW(seen[i]) == window -> USED(seen[i]) : 0)
        fi;
        WRITE(i, STATE(window, WINDOW(seen[i]) == window && REFUSED(seen[i]), count + COST(i)));
        taken[IN(i, window)] = taken[IN(i, window)] + COST(i);
        HAD(window)
    }
part_had:
    atomic {
        state = 0; window = 0; count = 0; seen[i] = 0;
        i++;
        if
        :: i <= LAST_PART -> goto part_charge
        :: else
        fi;
        held[0] = had[0]; held[1] = had[1]; held_kind = kind;
        goto next
    }

    /* A part that lost its race; or (refused) one that is refused in earnest */
part_decide:
    atomic { state = stripe[i]; goto slot_charge }
slot_charge:
    atomic {
        window = MAX(WINDOW(state), WINDOW_NOW(i));
        count = (WINDOW(state) == window -> USED(state) : 0);
        if
        :: !refused && count + COST(i) <= LIMIT ->
            if
            :: stripe[i] != state -> state = 0; window = 0; count = 0; goto part_decide
            :: else
            fi;
            WRITE(i, STATE(window, WINDOW(state) == window && REFUSED(state), count + COST(i)));
            taken[IN(i, window)] = taken[IN(i, window)] + COST(i);
            HAD(window)
        :: else
        fi;
        if
        :: WINDOW(state) == window && REFUSED(state) ->
            if
            :: WINDOW(stripe[i]) != window -> state = 0; window = 0; count = 0; goto part_decide
            :: else
            fi
        :: else ->
            if
            :: stripe[i] != state -> state = 0; window = 0; count = 0; goto part_decide
            :: else
            fi;
            if
            :: WINDOW(state) != window || !REFUSED(state) ->
                assert(PROMISE_C_first_refusal_once(IN(i, window))); told[IN(i, window)] = 1
            :: else
            fi;
            WRITE(i, STATE(window, 1, count))
        fi;
        if
        :: refused -> state = 0; window = 0; count = 0; i++; goto all_refuse
        :: else -> NOTE_REFUSED(IN(i, window), COST(i))
        fi;
        state = 0; window = 0; count = 0; i = 0; refused = 1;
        goto all_give_back
    }

    /* all_refuse: of those that fitted, only what does not any more */
all_refuse:
    atomic {
        if
        :: i > LAST_PART -> goto next
        :: i <= LAST_PART && FITS(i, seen[i]) && FITS(i, stripe[i]) -> i++; goto all_refuse
        :: else -> goto part_decide
        fi
    }

    /* all_give_back, and a refund: stint_key_refund of each */
all_give_back:
    atomic {
        do
        :: i < 2 && had[i] == 0 -> i++
        :: else -> break
        od;
        if
        :: i == 2 -> goto next
#ifdef WRONG_PARTS_BACK
        :: i < 2 && now != 0 -> /* nobody has them, but they stay */
            taken[IN(i, had[i])] = taken[IN(i, had[i])] - COST(i);
            granted[IN(i, had[i])] = granted[IN(i, had[i])] - COST(i);
            had[i] = 0; goto all_give_back
#endif
        :: else -> goto slot_refund
        fi
    }
slot_refund:
    atomic {
        state = stripe[i];
        if
#ifndef WRONG_REFUND_WINDOW
        :: WINDOW(state) != had[i] -> state = 0; had[i] = 0; goto all_give_back
#endif
        :: else -> goto slot_give_back
        fi
    }
slot_give_back:
    atomic {
        if
        :: stripe[i] != state -> state = 0; goto slot_refund
        :: else
        fi;
        count = USED(state);
        kept = (count < COST(i)); /* less than it had is there */
#ifndef WRONG_REFUND_WINDOW
        assert(!kept);
#endif
        window = MIN(count, COST(i)); /* tokens */
        WRITE(i, STATE(WINDOW(state), REFUSED(state), count - window));
        taken[IN(i, had[i])] = taken[IN(i, had[i])] - window;
        granted[IN(i, had[i])] = granted[IN(i, had[i])] - window;
        BACK(IN(i, had[i]), window);
        state = 0; count = 0; window = 0; had[i] = 0; kept = 0;
        goto all_give_back
    }

done:
    skip
}
#endif

#if LOSES
active proctype other_key() {
    byte i;

    atomic {
        if
        :: WINDOW(stripe[0]) < clock && stripe[0] != 0
        :: WINDOW(stripe[1]) < clock && stripe[1] != 0 -> i = 1
        :: clock == LAST -> goto done
        fi;
        lost = clock;
        stripe[i] = 0;
        i = 0
    }
done:
    skip
}
#endif

#if CHANGED
active proctype policy_change() {
    atomic { limit = CHANGED }
}
#endif

#if !GROUP
active proctype clock_hand() {
    do
    :: clock < LAST -> clock++
    :: clock == LAST -> break
    od
}
#endif

init {
    atomic {
#if USED0
        stripe[0] = STATE(1, 0, USED0);
#endif
#if USED1
        stripe[1] = STATE(1, 0, USED1);
#endif
#if GROUP
        granted[IN(0, 1)] = USED0; taken[IN(0, 1)] = USED0;
        granted[IN(1, 1)] = USED1; taken[IN(1, 1)] = USED1;
#else
        granted[1] = USED0 + USED1;
        taken[1] = USED0 + USED1;
#endif
        run thread(0, KINDS0, CALLS0);
        run thread(1, KINDS1, CALLS1)
#if THREADS > 2
        ; run thread(2, KINDS2, CALLS2)
#endif
    }
}
