/* SPDX-License-Identifier: MIT
 * Overrides and bans. Read slot.h first: an override is the slot of a key by a companion. So it is
 * found, shared and kept in a file as every slot, and is over at its end. But a caller sets that
 * end, and it counts nothing. Only this file writes it; decisions read it (override.h).
 *
 * Who sets or lifts one may lower the end of its slot, to the next tick of the clock at the least.
 * So it never falls to the end of a window that is over (I1). A slot that a search has seen live
 * may be free then: the table may be called full once too often.
 *
 * Companions are searched as any policy, but replace nobody and are not replaced (occupant.c). A
 * key's bits in the filter are set before its claim. They stay until a process opens the table
 * alone (open.c) and the key has no slot. */
#include "feature/override.h"
#include "feature/rate.h"
#include "sys/message.h"

struct wish {
    tick_t end;
    uint64_t rest;  /* of the state; 0: it is a strike, and `end` that of a ban, rounded down */
    tick_t span;    /* ends with that tick, of the first strike: rounded up */
    uint64_t now;   /* of the strike */
    uint64_t after; /* strikes that are a ban */
};

/* Whose overrides are meant. It is read once: a shared table may be written over at any time. */
struct ruled {
    uint32_t policy;
    uint32_t companion;
    uint32_t traits; /* the policy's, as they were read; 0: the library writes */
};

struct change {
    uint64_t was;   /* the state of the companion's slot; 0: the key had none */
    uint64_t state; /* that is written */
    uint64_t full;  /* when the key's bucket was full, ns; 0: it has no slot, or is none */
    uint64_t rate;  /* by which rate */
};

/* The state that a slot is to have; 0: it stays as it is. `state`: its own; 0: the key has none.
 * `clock` was read after the slot was seen. A caller ahead of it ends no ban and no span of
 * strikes. The end is not over by it, as the slot may have had a later one (I1). That of
 * `wish` may be: by now, or because its caller is late. */
static uint64_t wished(const struct stint_limiter *limiter, struct ruled ruled,
                       const struct wish *wish, uint64_t state, uint64_t clock) {
    const uint64_t by = wish->now < clock ? wish->now : clock;
    const tick_t now = tick_of(by), next = tick_of(clock) + 1;
    const tick_t until = wish->end > next ? wish->end : next;
    const tick_t end = end_of(state_id(state), now);
    uint64_t count = 0;

    if (wish->rest != 0)
        return state_of(until, wish->rest);
    if (stint_override_holds(limiter, ruled.policy, state, by))
        return 0; /* banned, or set by hand: no strikes */
    /* Strikes, unless their span is over, or void as that of a ban would be (H); or a ban is. */
    if ((state & STATE_REFUSED) == 0 && end > now && end <= wish->span + ALLOWANCE_TICKS &&
        !GUARD(STRIKE_BAN, override_banned(state)))
        count = state_used(state); /* strikes of the same span */
    if (count + 1 >= wish->after)
        return state_of(until, OVERRIDE_ENDLESS);
    const tick_t span = wish->span > next ? wish->span : next;
    return state_of(count == 0 ? span : end, count + 1);
}

/* When a key's bucket is full: read after the state of the companion's slot, and before that is
 * written. So none of it was taken by what is written. */
static void bucket_before(const struct stint_limiter *limiter, struct ruled ruled, uint64_t key,
                          struct change *change) {
    struct seen seen;
    struct bucket bucket;

    change->full = change->rate = 0;
    if ((ruled.traits & RULE_BUCKET) == 0 ||
        !stint_bucket_find(limiter, ruled.policy, key, &seen, &bucket))
        return;
    change->full = bucket_full(end_of(state_id(seen.state), tick_of(limiter_now(limiter))),
                               bucket_ns(seen.state));
    change->rate = bucket.rate;
}

/* GONE: the companion is gone: its policy was removed, or replaced by one without overrides.
 * RESOLVED: another thread has written; look again. */
enum written { WRITTEN, KEPT, NO_ROOM, GONE, RESOLVED };

/* Commits a claim of a companion's slot, which ends as `next` says, but not before the claim (I1).
 * A claim that seems further ahead than another clock may be was left 497 days ago, or longer. No
 * window is opened, so none is opened again: the watermark is not asked. */
static enum written companion_commit(const struct stint_limiter *limiter, uint32_t companion,
                                     const struct seat *seat, const struct seen *claim,
                                     uint64_t next) {
    const struct table *table = &limiter->table;
    const tick_t now = tick_of(seat->now), end = end_of(state_id(next), now),
                 ahead = end_of(state_id(claim->state), now);
    const tick_t claimed = ahead - now <= ALLOWANCE_TICKS + 1 ? ahead : 0;

    if (!stint_claim_stands(table, seat->hash, claim))
        return RESOLVED;
    if (claim_void(&limiter->policies[companion], false, 0)) { /* M8 */
        (void)stint_claim_cancel(table, claim->slot, claim->tag, claim->state);
        return GONE;
    }
    next = state_of(end > claimed ? end : claimed, next & (STATE_REFUSED | USED_MASK));
    return stint_claim_commit(claim, next) ? WRITTEN : RESOLVED;
}

static enum written companion_write(struct stint_limiter *limiter, struct ruled ruled, uint64_t key,
                                    const struct wish *wish, struct change *change) {
    const struct table *table = &limiter->table;
    const uint64_t tag = table_tag(table, key, ruled.companion);
    struct seat seat = {limiter, key, tag, limiter_now(limiter), 0};
    struct seen seen;
    enum written written = RESOLVED;

    while (written == RESOLVED) {
        bool committed = stint_find_committed(table, key, tag, &seen);
        enum found found = committed ? FOUND : stint_slot_find(&seat, &seen);
        if (found == FULL) { /* unless it has got the last slot meanwhile: decide.c, decide_full */
            if (!stint_find_again(table, key, tag))
                return NO_ROOM;
            continue;
        }
        if (found == FOUND && !committed) {
            seen.state = atomic_load_acquire(&seen.slot->state); /* M6 */
            /* Tag, state, tag again (M1). */
            if (atomic_load_acquire(&seen.slot->tag) != tag)
                continue;
            /* It was committed just now; or a page is lost, and only this search finds it. */
            committed = !state_pending(seen.state);
        }
        change->was = committed ? seen.state : 0;
        bucket_before(limiter, ruled, key, change);
        if (committed) {
            change->state = wished(limiter, ruled, wish, seen.state, limiter_now(limiter));
            if (change->state == 0)
                return KEPT;
            const tick_t now = tick_of(seat.now), end = end_of(state_id(change->state), now);
            shard_end_falls(table_shard_of(table, key), end_of(state_id(seen.state), now), end);
            if (slot_swap(seen.slot, tag, seen.state, change->state))
                return WRITTEN;
            continue;
        }
        if (found == ABSENT) {
            if (GUARDED(OVERRIDE_FILTER))
                filter_admit(table, key, seen.position / LINE_SLOTS);
            if (!stint_claim_free(&seat, &seen))
                continue;
        }
        change->state = wished(limiter, ruled, wish, 0, seat.now);
        written = companion_commit(limiter, ruled.companion, &seat, &seen, change->state);
    }
    return written;
}

/* Lifts a key's override or ban; unless `all`, only the library's. Returns whether it was in force.
 *
 * The slot ends with the next tick, and not before (I1). Until then it stays the key's, for its
 * next override: a tombstone would be free no earlier. */
static bool companion_clear(struct stint_limiter *limiter, struct ruled ruled, uint64_t key,
                            bool all, struct change *change) {
    const struct table *table = &limiter->table;
    const uint64_t tag = table_tag(table, key, ruled.companion);
    struct seen seen;

    while (stint_find_committed(table, key, tag, &seen)) {
        const uint64_t now = limiter_now(limiter); /* after the slot was seen, as in wished */
        const uint64_t state = seen.state;
        if (all ? !stint_override_holds(limiter, ruled.policy, state, now)
                : (state & STATE_REFUSED) != 0 || state_used(state) == 0)
            return false;
        const tick_t next = tick_of(now) + 1;
        *change = (struct change){.was = state, .state = state_of(next, 0)};
        bucket_before(limiter, ruled, key, change);
        shard_end_falls(table_shard_of(table, key), end_of(state_id(state), next), next);
        /* What is over may have counted for a late caller alone. */
        if (slot_swap(seen.slot, tag, state, change->state))
            return end_of(state_id(state), next) >= next;
    }
    return false;
}

/* The ns of a token by a state of the companion's slot. */
static uint64_t unit_by(const struct stint_limiter *limiter, struct ruled ruled,
                        const struct bucket *bucket, uint64_t state) {
    const bool holds = stint_override_holds(limiter, ruled.policy, state, limiter_now(limiter));
    return override_unit(bucket, holds ? state : 0);
}

/* Keeps the tokens that a key's bucket has used, after a caller has written the key's override: a
 * token was `from` ns, and is `to` ns now.
 *
 * Others decide meanwhile: by `from`, if they had read the override before it was written, or by
 * `to`. A holds, with the longer time that the bucket lasts and the shorter of the two. If that is
 * `from`, the instant moves ahead: it grants nothing. If `to`, each used token has that at least:
 *   - What was used before (bucket_before) was taken at `from` ns a token. It is scaled.
 *   - What was taken since is ahead of that, and keeps its time: some of it has `to` ns a token.
 *   - What came back since is taken off what was used before. So is what was given back since, if
 *     less was taken meanwhile; else the time that was given back is scaled, too (A2).
 * Calls for one key may meet. Each scales by its own two units, in either order. But what is taken
 * between the writes of the two may be scaled by both (A2). If the policy's rate changes meanwhile,
 * it is not known what was used before: all of it is scaled if that is more, none if it is less.
 *
 * The override comes first: who dies between the two leaves the time as it was, as does an override
 * that is over by itself. The other way round, tokens would be given to a key that then has none.
 *
 * No more is kept than the bucket holds, as the slot is no further ahead than its policy's may be
 * (policy.c, bucket_reach). The end may fall, as in refund.c, bucket_move_back (I1). */
static void bucket_keep(const struct stint_limiter *limiter, struct ruled ruled, uint64_t key,
                        const struct change *change) {
    struct bucket bucket;
    struct seen seen;
    uint64_t next;

    if (change->full == 0)
        return;
    do {
        if (!stint_bucket_find(limiter, ruled.policy, key, &seen, &bucket))
            return;
        const uint64_t from = unit_by(limiter, ruled, &bucket, change->was),
                       to = unit_by(limiter, ruled, &bucket, change->state),
                       tokens = (uint64_t)bucket.burst + bucket.max_reserved,
                       most = bucket_holds(tokens * bucket.unit, to) * to;
        const bool changed = change->rate != bucket.rate;
        if (from == to || (changed && to < from) || !GUARDED(KEEP_TOKENS))
            return;
        /* The watermark after the tag, whose claim raised it (M7). */
        const uint64_t now = stint_bucket_later(limiter, key, limiter_now(limiter));
        if (!stint_slot_live(limiter, seen.tag, seen.state, tick_of(now)))
            return;
        const tick_t end = end_of(state_id(seen.state), tick_of(now));
        const uint64_t full = bucket_full(end, bucket_ns(seen.state));
        const uint64_t count = bucket_count(end, bucket_ns(seen.state), now);
        const uint64_t before = (int64_t)(change->full - now) > 0 ? change->full - now : 0;
        const uint64_t used = !changed && GUARD(KEEP_BEFORE, before < count) ? before : count;
        const uint64_t scaled = ns_scaled(used, from, to) + (count - used);
        const uint64_t room = most > count ? most : count;
        next = now + (GUARD(KEEP_MOST, scaled > room) ? room : scaled);
        if (next == full || count == 0)
            return;
        if (GUARDED(BUCKET_FALLS))
            shard_end_falls(table_shard_of(&limiter->table, key), end, tick_of(next) + 1);
        next =
            bucket_state(next, bucket.rate) |
            (stint_mark_passed(limiter, ruled.policy, full, next) ? 0 : seen.state & STATE_REFUSED);
    } while (!slot_swap(seen.slot, seen.tag, seen.state, next));
}

/* ---- By hand --------------------------------------------------------------------------------- */

static int check(const struct stint_limiter *limiter, uint32_t policy_id, bool writes,
                 struct ruled *ruled) {
    *ruled = (struct ruled){POLICY_NONE, POLICY_NONE, 0};
    if (limiter == NULL)
        return stint_failed(EINVAL, "limiter is NULL");
    if (writes && limiter->memory.read_only)
        return stint_failed(EROFS, READ_ONLY);
    const int error = stint_limiter_whole(limiter);
    if (error != 0)
        return error;
    ruled->policy = stint_limiter_policy_and_traits(limiter, policy_id, &ruled->traits);
    if (ruled->policy == POLICY_NONE)
        return stint_limiter_no_policy(limiter);
    ruled->companion = limiter_companion(limiter, ruled->policy);
    if ((ruled->traits & STINT_OVERRIDES) == 0 || ruled->companion == POLICY_NONE)
        return stint_failed(EINVAL, "the policy has no STINT_OVERRIDES: stint_policy_change gives "
                                    "it to a policy that exists");
    return 0;
}

int stint_override(struct stint_limiter *limiter, uint32_t policy_id, stint_key key, uint32_t limit,
                   uint64_t until) {
    struct ruled ruled;
    int error = check(limiter, policy_id, true, &ruled);
    if (error != 0)
        return error;
    if (limit > STINT_LIMIT_MAX)
        return stint_failed(EINVAL, "limit must be at most 2^28 (268,435,456) tokens");
    const uint64_t now = limiter_now(limiter);
    if (until <= now || until - now > STINT_WINDOW_MAX)
        return stint_failed(EINVAL,
                            "until must be after now, by the limiter's clock, by 366 days at most");
    const struct wish wish = {
        .end = tick_of(until) + (until % STINT_TICK_NS != 0),
        .rest = STATE_REFUSED | (limit == 0 ? OVERRIDE_BARRED : limit), /* 2^28: never refused */
        .now = now,
    };
    struct change change;
    const enum written written = companion_write(limiter, ruled, key.hash, &wish, &change);
    if (written == WRITTEN) {
        bucket_keep(limiter, ruled, key.hash, &change);
        return 0;
    }
    return written == NO_ROOM
               ? stint_failed(ENOSPC, "the table is full: options.max_entries must be larger, or a "
                                      "window of some key over")
               : stint_limiter_no_policy(limiter); /* a moment ago it was there */
}

int stint_override_get(const struct stint_limiter *limiter, uint32_t policy_id, stint_key key,
                       uint32_t *limit, uint64_t *until) {
    struct ruled ruled;
    int error = check(limiter, policy_id, false, &ruled);
    if (error != 0)
        return error;
    const uint64_t now = limiter_now(limiter);
    const uint64_t state = stint_override_find(limiter, ruled.policy, key.hash, now);
    if (state == 0)
        return stint_failed(ENOENT, "the key has no override");
    if (limit != NULL)
        *limit = override_limit(state);
    if (until != NULL)
        *until = tick_ns(end_of(state_id(state), tick_of(now)));
    return 0;
}

int stint_override_clear(struct stint_limiter *limiter, uint32_t policy_id, stint_key key) {
    struct ruled ruled;
    int error = check(limiter, policy_id, true, &ruled);
    if (error != 0)
        return error;
    struct change change;
    if (!companion_clear(limiter, ruled, key.hash, true, &change))
        return stint_failed(ENOENT, "the key has no override");
    bucket_keep(limiter, ruled, key.hash, &change);
    return 0;
}

/* ---- By the library -------------------------------------------------------------------------- */

/* A banned key is refused by its ban, and gives no more first refusals. A thread that dies between
 * the mark of a refusal and this loses one strike. */
void stint_strike(struct stint_limiter *limiter, uint32_t policy_id, uint64_t key, uint64_t now,
                  struct stint_verdict *verdict) {
    policy_id = stint_limiter_policy_now(limiter, policy_id);
    if (policy_id == POLICY_NONE)
        return;
    const struct ruled ruled = {policy_id, limiter_companion(limiter, policy_id), 0};
    const struct ban ban = limiter_ban(limiter, policy_id);
    const uint64_t length = tick_ns((tick_t)(ban.word >> BAN_TICKS));
    const uint64_t span = now + (ban.within != 0 ? ban.within : length);
    const struct wish wish = {
        .end = tick_of(now + length),
        .span = tick_of(span) + (span % STINT_TICK_NS != 0),
        .now = now,
        .after = ban.word & STINT_BAN_AFTER_MAX,
    };
    struct change change;

    /* It was taken from the policy a moment ago. */
    if (ban.word == 0 || ruled.companion == POLICY_NONE)
        return;
    const enum written written = companion_write(limiter, ruled, key, &wish, &change);
    if (written == NO_ROOM)
        limiter_count(limiter, ruled.companion, COUNT_STRIKE_LOST);
    if (written != WRITTEN || !override_banned(change.state))
        return;
    limiter_count(limiter, ruled.companion, COUNT_BANNED);
    if (verdict == NULL)
        return;
    const uint64_t left = tick_ns(end_of(state_id(change.state), tick_of(now))) - now;
    verdict->flags |= STINT_BANNED;
    if (verdict->retry_after < left)
        verdict->retry_after = left;
}

bool stint_strikes_reset(struct stint_limiter *limiter, uint32_t policy_id, uint64_t key) {
    const struct ruled ruled = {policy_id, limiter_companion(limiter, policy_id), 0};
    struct change change;
    return ruled.companion != POLICY_NONE && companion_clear(limiter, ruled, key, false, &change);
}
