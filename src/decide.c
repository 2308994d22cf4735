/* SPDX-License-Identifier: MIT
 * What is not near: a search, then the steps of core.h in the slot that was found, or a claim, or
 * neither, until nothing has changed on the way. Read core.h and slot.h first. */
#include "calls.h"
#include "claim.h"
#include "feature/rate.h"

/* The key has no slot. It may claim that at `seen`, or (pending) has a claim there. */
static enum progress decide_absent(struct decision *decision, struct seen *seen, bool pending);

/* A key's slot is in a later window than that of now: this thread is late, and joins it; or the
 * clock was stepped back, and the slot starts anew. Returns whether to look at the slot again,
 * which finds it in no later window than the decision. */
static bool look_ahead(struct decision *decision, struct seen *seen) {
    uint64_t id = state_id(seen->state);
    bool stepped = stint_beyond_clock(decision, id, policy_reach(decision->policy));
    const tick_t now = tick_of(decision->now); /* it may have moved */

    if (decision->end == 0)
        (void)window_in(decision, seen->state);
    const tick_t end = end_of(id, now);
    if (end <= decision->end)
        return true; /* this thread was late; now it is not */
    if (traits_striped(decision->terms.traits) && !stepped) {
        /* The whole may have moved ahead of its caller, to where another stripe is. */
        struct decision asked = *decision;
        asked.now = decision->whole_now;
        stepped = stint_beyond_clock(&asked, id, policy_reach(decision->policy));
    }
    /* Stripes must agree on a window. A window that is left over from 2^33 ticks ago is none of the
     * policy's, and they could not agree on it. */
    if ((decision->terms.special & PART_SILENT) != 0 &&
        (end - policy_start(decision->policy)) % policy_length(decision->policy) != 0)
        stepped = true;
    if (stepped) { /* or it was touched by nobody for 497 days: it may owe tokens since */
        seen->stepped = true;
        seen->count = slot_carried(decision, seen->state);
        return false;
    }
    decision->end = end;
    return true;
}

/* The key's bucket counts by another rate than the decision. If that is not the policy's any more,
 * the decision begins anew; else the slot counts by the rate before, and is counted anew. A reader
 * stores nothing: it is told what the state means. */
static enum progress decide_changed(struct decision *decision, struct seen *seen) {
    struct bucket bucket;

    if (!stint_bucket_rule(decision->limiter, decision->policy_id, &bucket) ||
        bucket.rate != decision->terms.rate) {
        decision->charge = (struct charge){0};
        decision->flags = DECISION_GONE;
        return DONE;
    }
    if (!decision->limiter->memory.read_only) {
        stint_rate_settle(decision->limiter, decision->policy_id, decision->hash, seen, &bucket);
        return STALE;
    }
    const uint64_t state = seen->state;
    uint64_t next;
    seen->state =
        stint_rate_means(decision->limiter, decision->policy_id, decision->hash, state, &bucket);
    if (slot_look(decision, seen) == LOOK_AHEAD && look_ahead(decision, seen))
        (void)slot_look(decision, seen);
    decision_judge(decision, seen);
    (void)slot_next(decision, seen, &next);
    seen->state = state;
    return slot_as_seen(seen, decision->terms.traits) ? DONE : STALE;
}

static enum progress decide_found(struct decision *decision, struct seen *seen) {
    seen->state = atomic_load_acquire(&seen->slot->state); /* M1, M6 */
    seen->stepped = false;
    if (atomic_load_acquire(&seen->slot->tag) != decision->tag) /* M1 */
        return STALE;
    enum look look = slot_look(decision, seen);
    if (look == LOOK_AHEAD && look_ahead(decision, seen))
        look = slot_look(decision, seen);
    if (look == LOOK_PENDING)
        return decide_absent(decision, seen, true);
    if (UNLIKELY(look == LOOK_CHANGED))
        return decide_changed(decision, seen);
    decision_judge(decision, seen);
    if (!slot_charge(decision, seen))
        return STALE;
    if (UNLIKELY(seen->stepped) && (decision->charge.count != 0 || decision->flags != 0))
        limiter_count_table(decision->limiter, COUNT_CLOCK_STEP);
    return DONE;
}

static enum progress decide_absent(struct decision *decision, struct seen *seen, bool pending) {
    decision->charge = judge(&decision->terms, 0, 0);
    if (leaves_nothing(&decision->terms, &decision->charge)) {
        /* If a committed slot is beside the claim meanwhile, that one decides. */
        if (pending &&
            stint_find_committed(&decision->limiter->table, decision->hash, decision->tag, seen))
            return decide_found(decision, seen);
        return stint_decide_nothing(decision, 0);
    }
    if (!pending && !stint_claim_free(decision, seen))
        return STALE;
    return stint_claim_resolve(decision, seen, 0);
}

void stint_decide_by_slot(struct decision *decision) {
    stint_decide_looked(decision,
                        look_for(&decision->limiter->table, decision->hash, decision->tag));
}

void stint_decide_looked(struct decision *decision, struct far far) {
    const struct moment begun = {decision->now, decision->end};
    struct seen seen;
    enum progress progress = far.slot != NULL ? STALE : claim_short(decision, far.unused);

    /* Each round that ends STALE saw another thread's write. */
    while (UNLIKELY(progress == STALE)) {
        decision->now = begun.now;
        decision->end = begun.end;
        switch (stint_slot_find(decision, &seen)) {
        case FOUND:
            progress = decide_found(decision, &seen);
            break;
        case ABSENT:
            progress = decide_absent(decision, &seen, false);
            break;
        default:
            progress = stint_decide_full(decision);
        }
    }
}
