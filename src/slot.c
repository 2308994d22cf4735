/* SPDX-License-Identifier: MIT
 * The slot protocol: read the comment in slot.h first. Functions stand in the order in which a
 * decision may need them: find, end, decide, claim and resolve, a full table; then refund and reset. */
#include "slot.h"

#ifdef STINT_TESTING
void (*stint_test_hook)(enum stint_test_instant instant);
void (*stint_test_step)(const void *word);
uint64_t stint_test_removed;
#endif

/* ---- The sequence of slots that a key may be in --------------------------------------------- */

/* The lines that a key may be in: its home line, and those after it, which go round in the shard.
 */
struct sequence {
    struct line *home;
    struct line *shard_end;
    uint64_t shard_lines;
    bool avx2;
};

static inline struct sequence sequence_of(const struct table *table, uint64_t hash) {
    return (struct sequence){
        .home = &table->lines[table_home(table, hash)],
        .shard_end = &table->lines[(table_shard(table, hash) + 1) * table->shard_lines],
        .shard_lines = table->shard_lines,
        .avx2 = table->avx2,
    };
}

static inline struct line *sequence_line(const struct sequence *sequence, uint32_t number) {
    struct line *line = sequence->home + number;
    return line < sequence->shard_end ? line : line - sequence->shard_lines;
}

/* The line after one of them. */
static inline struct line *sequence_next(const struct sequence *sequence, struct line *line) {
    line++;
    if (UNLIKELY(line == sequence->shard_end))
        line -= sequence->shard_lines;
    return line;
}

/* Lines that stand one after the other in memory. */
struct run {
    const uint64_t *line, *end;
};

/* Those of the sequence from number `from` on to before `lines`, as far as they do not go round. */
static inline struct run sequence_run(const struct sequence *sequence, uint32_t from,
                                      uint32_t lines) {
    const struct line *line = sequence_line(sequence, from), *end = line + (lines - from);
    if (end > sequence->shard_end)
        end = sequence->shard_end;
    return (struct run){&line->slots[0].tag, &end->slots[0].tag};
}

static inline uint32_t run_lines(const uint64_t *line, const uint64_t *end) {
    return (uint32_t)((size_t)(end - line) / (sizeof(struct line) / sizeof(*line)));
}

/* The number of the first line from number `from` on whose slots are not all as asked; `lines` if there is
 * none before it. */
static inline uint32_t sequence_all4(const struct sequence *sequence, uint32_t from, uint32_t lines,
                                     const struct all4 *asked) {
    while (from < lines) {
        struct run run = sequence_run(sequence, from, lines);
        const uint64_t *found = atomic_all4_run(run.line, run.end, asked, sequence->avx2);
        from += run_lines(run.line, found);
        if (found != run.end)
            break;
    }
    return from;
}

/* Likewise, of the first one that has the tag. */
static inline uint32_t sequence_match(const struct sequence *sequence, uint32_t from,
                                      uint32_t lines, uint64_t tag) {
    while (from < lines) {
        struct run run = sequence_run(sequence, from, lines);
        const uint64_t *found = atomic_match4_run(run.line, run.end, tag, sequence->avx2);
        from += run_lines(run.line, found);
        if (found != run.end)
            break;
    }
    return from;
}

/* Slot number `position` of the sequence. */
static inline struct slot *sequence_slot(const struct sequence *sequence, uint32_t position) {
    return &sequence_line(sequence, position / LINE_SLOTS)->slots[position % LINE_SLOTS];
}

static inline uint32_t sequence_length(const struct table *table) {
    return table->probe_lines * LINE_SLOTS;
}

/* Lines of the sequence that may have the key's tag (I6). Never more than a key may be in, whatever somebody has
 * written over a shared table. */
static inline uint32_t sequence_reach(const struct table *table, uint64_t hash) {
    uint64_t reach = atomic_load_acquire(&table_shard_of(table, hash)->reach);
    return LIKELY(reach < table->probe_lines) ? (uint32_t)reach + 1 : table->probe_lines;
}

/* A slot as it was seen. */
struct place {
    struct slot *slot; /* NULL: none */
    uint64_t tag;
    uint64_t state;
    uint32_t position;
    bool stepped; /* it may be claimed only because the clock was stepped back */
};

/* ---- Time ----------------------------------------------------------------------------------- */

/* Reads the clock, because something is too far ahead of this decision's now. A late thread is not
 * late any more after this. Returns the clock's tick. */
static tick_t decision_read_clock(struct decision *decision) {
    uint64_t clock = limiter_now(decision->limiter);
    if (clock > decision->now)
        decision->now = clock;
    return tick_of(clock);
}

/* Whether an end that was loaded before is so far ahead that only a step of the clock explains it.
 * `length` is that of the window it ends. May move decision->now. */
static bool beyond_clock(struct decision *decision, uint64_t id, tick_t length) {
    tick_t now = tick_of(decision->now);
    if (LIKELY(end_of(id, now) - now <= length + ALLOWANCE_TICKS))
        return false;
    tick_t clock = decision_read_clock(decision);
    return end_of(id, clock) - clock > length + ALLOWANCE_TICKS;
}

/* Whether a used slot can be taken over: it says no more than its absence would, whoever's it is.
 */
static bool slot_reusable(struct decision *decision, struct place *place) {
    const struct table *table = &decision->limiter->table;
    bool key = place->tag != table_tombstone(table) && !state_pending(place->state);
    const struct policy *policy = key ? limiter_tag_policy(decision->limiter, place->tag) : NULL;
    tick_t now = tick_of(decision->now);

    if (end_of(state_id(place->state), now) <= now)
        return policy == NULL || !GUARD(REUSE_CARRIES, slot_carries(policy, place->state, now));
    if (!GUARDED(REUSE_TOMBSTONE) && place->tag == table_tombstone(table))
        return true;
    place->stepped =
        beyond_clock(decision, state_id(place->state), policy == NULL ? 1 : policy->length);
    return place->stepped;
}

/* The first slot of the sequence, from number `position` on, that is not plainly live; sequence_length if
 * there is none. Plainly live is a slot that slot_reusable would find live by its policy's window alone: those
 * of a full table nearly all are. */
static uint32_t next_not_live(const struct decision *decision, const struct sequence *sequence,
                              uint32_t position, tick_t now) {
    const struct table *table = &decision->limiter->table;
    const struct policy *policies = decision->limiter->policies;
    const uint64_t max_policies = decision->limiter->max_policies;
    const uint64_t policy_mask = table_tombstone(table) - 1;
    const uint64_t next = state_of(now + 1, 0);
    const uint32_t length = sequence_length(table);
    struct line *line = sequence_line(sequence, position / LINE_SLOTS);

    while (position < length) {
        do {
            const struct slot *slot = &line->slots[position % LINE_SLOTS];
            uint64_t tag = atomic_load_acquire(&slot->tag);
            uint64_t state = atomic_load_acquire(&slot->state);
            uint64_t policy = (tag & policy_mask) - 1; /* no number: never used, tombstone */
            if (UNLIKELY(policy >= max_policies || state_pending(state)))
                return position;
            /* The id is in the top bits: one that is behind makes the difference more than any of these. */
            uint64_t most = (uint64_t)(policies[policy].length + ALLOWANCE_TICKS) << STATE_ID;
            if (UNLIKELY(state - next >= most))
                return position;
        } while (++position % LINE_SLOTS != 0);
        line = sequence_next(sequence, line);
    }
    return length;
}

/* ---- Find ----------------------------------------------------------------------------------- */

enum found { FOUND, ABSENT, FULL };

/* Looks for a tag in the lines from number `from` on to before `lines`, as far as it can be (I5). */
static struct search find_tag(const struct table *table, uint64_t hash, uint64_t tag, uint32_t from,
                              uint32_t lines) {
    struct sequence sequence = sequence_of(table, hash);

    for (uint32_t i = from; i < lines; i++) {
        if (i >= UNUSED_LINES)
            i = sequence_match(&sequence, i, lines, tag);
        if (i == lines)
            break;
        struct line *line = sequence_line(&sequence, i);
        struct slot *slot = line_find(line, tag);
        if (slot != NULL)
            return (struct search){slot, i};
        if (i < UNUSED_LINES && line_match(line, 0) != 0) /* I5 */
            break;
    }
    return (struct search){0};
}

/* What atomic_all4 asks of the slots of a line that needs no closer look: that all are keys', not pending, and
 * none has the tag. Of the two tags it compares the high halves only: a line that differs in less gets a
 * closer look for nothing. */
static inline struct all4 others_of(const struct table *table, uint64_t tag) {
    const uint32_t policy_mask = (uint32_t)table_tombstone(table) - 1;

    return (struct all4){
        .flip[0] = policy_mask, /* mask - x < mask: x is not 0, as never used and tombstones are */
        .mask[0] = policy_mask,
        .below[0] = policy_mask,
        .base[0] = (uint32_t)(tag >> 32) + 1,
        .range[0] = UINT32_MAX,
        .mask[1] = (uint32_t)STATE_PENDING,
        .below[1] = 1,
    };
}

/* Whether a window begins so late in some slot that only a step of the clock explains it, or that this thread
 * is late. */
static inline bool latest_beyond(const struct stint_limiter *limiter, tick_t now) {
    return (tick_t)atomic_load_relaxed(&limiter->header->latest) - now > ALLOWANCE_TICKS;
}

/* Likewise, and that all are live, whatever their policies: by a window of `longest` ticks. Of an id it compares
 * all but the last bit: those from the first even one behind that of now on, as far as the odd ones are not
 * beyond what a live slot may be ahead. */
static inline struct all4 plainly_live(const struct table *table, uint64_t tag, tick_t longest,
                                       tick_t now) {
    struct all4 asked = others_of(table, tag);
    asked.base[1] = (uint32_t)(id_of(now) >> 1) + 1;
    asked.range[1] = (uint32_t)((longest + ALLOWANCE_TICKS - 1) / 2);
    return asked;
}

struct search slot_search(const struct stint_limiter *limiter, uint64_t hash, uint64_t tag,
                          tick_t now) {
    const struct table *table = &limiter->table;
    const struct sequence sequence = sequence_of(table, hash);
    /* What is ahead by the allowance at most is live by any window. */
    const bool beyond = latest_beyond(limiter, now);
    const tick_t longest =
        beyond ? 1 : (tick_t)atomic_load_relaxed(&limiter->header->longest_glanced);
    const struct all4 plain = plainly_live(table, tag, longest, now);
    uint32_t i = 0;

    /* Most searches end in the home line, unless the table is full. */
    if (atomic_all4(&sequence.home->slots[0].tag, &plain))
        i = sequence_all4(&sequence, 1, table->probe_lines, &plain);
    atomic_fence_acquire();
    /* Again: this thread may have slept in between (M8). */
    if (UNLIKELY(!beyond && GUARD(LATEST_AGAIN, latest_beyond(limiter, now))))
        i = 0;
    if (i == table->probe_lines)
        return (struct search){NULL, i};
    struct line *line = sequence_line(&sequence, i);
    struct slot *slot = line_find(line, tag);
    if (slot != NULL)
        return (struct search){slot, i};
    struct search rest = {0};
    if (line_match(line, 0) == 0) /* I5 */
        rest = find_tag(table, hash, tag, i + 1, sequence_reach(table, hash));
    return rest.slot != NULL ? rest : (struct search){NULL, i};
}

static struct place place_found(const struct search *search, uint64_t tag) {
    struct slot *slot = search->slot;
    uint32_t number = (uint32_t)((uintptr_t)slot % sizeof(struct line) / sizeof(*slot));
    return (struct place){.slot = slot, .tag = tag, .position = search->line * LINE_SLOTS + number};
}

/* Looks for the key. FOUND: `place` is its slot, of which only the tag was seen. ABSENT: `place` is the
 * first slot that it may claim. FULL: it may claim none; whether it has one is to be looked at again. */
static enum found slot_find(struct decision *decision, struct place *place) {
    const struct table *table = &decision->limiter->table;
    uint64_t now = decision->now;
    tick_t tick = tick_of(now);
    bool earlier = decision->searched != NULL;
    struct search search =
        earlier ? *decision->searched
                : slot_search(decision->limiter, decision->hash, decision->tag, tick);

    decision->searched = NULL; /* good for once */
    if (search.slot != NULL) {
        *place = place_found(&search, decision->tag);
        return FOUND;
    }
    struct sequence sequence = sequence_of(table, decision->hash);
    uint32_t end = sequence_length(table);
    for (uint32_t i = search.line * LINE_SLOTS;
         (i = next_not_live(decision, &sequence, i, tick)) < end; i++) {
        struct slot *slot = sequence_slot(&sequence, i);
        *place =
            (struct place){.slot = slot, .tag = atomic_load_acquire(&slot->tag), .position = i};
        place->state = atomic_load_acquire(&slot->state); /* 0 with tag 0, but of nonsense */
        if (place->tag == 0 || slot_reusable(decision, place)) {
            if (!earlier)
                return ABSENT;
            /* It is a while since that search, and two claims of a key use up a slot until the next tick.
             * Another thread's is likely to be in a slot that this one would have taken: before this one. */
            search = find_tag(table, decision->hash, decision->tag, 0, i / LINE_SLOTS + 1);
            if (search.slot == NULL)
                return ABSENT;
            *place = place_found(&search, decision->tag);
            return FOUND;
        }
        tick = tick_of(decision->now); /* it may have moved */
    }
    if (GUARD(FULL_LATE, decision->now != now))
        /* this thread was late, and judged the first slots by a `now` of then */
        return slot_find(decision, place);
    return FULL;
}

/* After FULL: all slots were live, and stay so at this now (I1). But the key may have got the last of them
 * since it was looked for: look again, or a key that has a slot is treated as if it had none. */
static bool found_again(const struct decision *decision) {
    const struct table *table = &decision->limiter->table;

    atomic_fence_acquire();
    uint32_t lines = sequence_reach(table, decision->hash);
    return GUARD(FULL_AGAIN, find_tag(table, decision->hash, decision->tag, 0, lines).slot != NULL);
}

/* The committed slot of a key as it was seen (I3: there is one at most), or none. */
static bool find_committed(const struct table *table, uint64_t hash, uint64_t tag,
                           struct place *place) {
    struct sequence sequence = sequence_of(table, hash);

    for (uint32_t i = 0, n = sequence_reach(table, hash) * LINE_SLOTS; i < n; i++) {
        struct slot *slot = sequence_slot(&sequence, i);
        uint64_t seen = atomic_load_acquire(&slot->tag);
        if (seen == 0)
            return false;
        if (seen != tag)
            continue;
        uint64_t state = atomic_load_acquire(&slot->state);
        if (!GUARD(REFUND_TAG, atomic_load_acquire(&slot->tag) != tag) && !state_pending(state)) {
            *place = (struct place){.slot = slot, .tag = tag, .state = state, .position = i};
            return true;
        }
    }
    return false;
}

/* ---- Verdict -------------------------------------------------------------------------------- */

void slot_count(struct stint_limiter *limiter, uint32_t policy_id, uint32_t flags, bool allowed) {
    bool shadowed = (flags & STINT_SHADOWED) != 0;
    uint32_t counter = shadowed ? COUNT_SHADOWED : allowed ? COUNT_ALLOWED : COUNT_REFUSED;

    limiter_count(limiter, policy_id, counter);
    if ((flags & STINT_FIRST_REFUSAL) != 0)
        limiter_count(limiter, policy_id, COUNT_FIRST_REFUSAL);
    if ((flags & STINT_UNTRACKED) != 0)
        limiter_count(limiter, policy_id, COUNT_UNTRACKED);
    if ((flags & STINT_NEAR_LIMIT) != 0 && allowed && !shadowed)
        limiter_count(limiter, policy_id, COUNT_NEAR_LIMIT);
}

bool decision_end(struct decision *decision, const struct charge *charge, uint64_t used, tick_t end,
                  uint32_t flags, struct stint_verdict *verdict) {
    const struct terms *terms = &decision->terms;
    const struct rule *rule = &terms->rule;
    bool peek = (terms->flags & STINT_PEEK) != 0;
    bool shadowed = !charge->fits && (rule->flags & STINT_SHADOW) != 0;
    bool allowed = charge->fits || shadowed;
    uint64_t left = tick_ns(end) - decision->now;

    if (shadowed)
        flags |= STINT_SHADOWED;
    if (rule->near_limit != 0 && used * 100 > terms->capacity * rule->near_limit)
        flags |= STINT_NEAR_LIMIT;
    if (!peek && (terms->flags & DECIDE_PART) == 0 &&
        !(allowed && (terms->flags & DECIDE_QUIET) != 0))
        slot_count(decision->limiter, decision->policy_id, flags, allowed);
    if (verdict == NULL)
        return allowed;
    uint64_t wait = charge_wait(terms, charge, left);
    uint64_t remaining = used < terms->capacity ? terms->capacity - used : 0;
    if (!charge->fits && (flags & STINT_UNTRACKED) != 0) {
        remaining = 0; /* of nothing that this key could be given */
        wait = wait < left ? left : wait;
    }
    if (rule->jitter != 0 && !charge->fits && wait != STINT_NEVER)
        wait = wait_add(wait, part_of(mix(decision->hash, (uint64_t)end),
                                      tick_ns(decision->policy->length) / 100 * rule->jitter));
    *verdict = (struct stint_verdict){
        .allowed = allowed,
        .flags = flags,
        .capacity = (uint32_t)terms->capacity,
        .used = (uint32_t)used,
        .remaining = (uint32_t)remaining,
        .granted = peek ? 0 : charge->granted,
        .window = tick_ns(end),
        .reset_after = left,
        .retry_after = wait,
    };
    return allowed;
}

/* ---- Decide --------------------------------------------------------------------------------- */

/* STALE: the slots changed meanwhile, start over. */
enum progress { DONE, STALE };

static enum progress decide_found(struct decision *decision, struct place *place,
                                  struct stint_verdict *verdict, bool *allowed);
static enum progress decide_absent(struct decision *decision, struct place *place, bool pending,
                                   struct stint_verdict *verdict, bool *allowed);
static enum progress decide_full(struct decision *decision, struct stint_verdict *verdict,
                                 bool *allowed);

bool slot_decide(struct decision *decision, struct stint_verdict *verdict) {
    struct place place;
    bool allowed = false;
    enum progress progress;

    /* Each round that ends STALE saw another thread's write, or moved its own now to the clock's.
     */
    do {
        switch (slot_find(decision, &place)) {
        case FOUND:
            progress = decide_found(decision, &place, verdict, &allowed);
            break;
        case ABSENT:
            progress = decide_absent(decision, &place, false, verdict, &allowed);
            break;
        default:
            progress = decide_full(decision, verdict, &allowed);
        }
    } while (UNLIKELY(progress == STALE));
    return allowed;
}

/* Whether a refusal sets the refused bit. */
static bool refusal_marked(const struct terms *terms) {
    return (terms->flags & STINT_PEEK) == 0 &&
           ((terms->flags & DECIDE_PART) == 0 || (terms->flags & DECIDE_MARK) != 0);
}

/* A slot's count less what fetch-adds of refused requests have left above every limit that there ever
 * was. The largest limit is loaded after the state, so that no token that was granted is cut off. */
static uint64_t count_believed(const struct decision *decision, uint64_t count) {
    const struct rule *rule = &decision->terms.rule;
    const struct policy_record *record = &decision->limiter->records[decision->policy_id];
    if (!GUARDED(BELIEVED) || rule_carries(rule) ||
        atomic_load_relaxed(&record->refusals_count) != 0)
        return count; /* fetch-adds do not pass the limit, or refusals are meant to count */
    uint64_t largest = atomic_load_relaxed(&record->largest);
    uint64_t most = stripe_share(largest, rule->stripes, decision->stripe);
    return count < most ? count : most;
}

/* Whether a decision must not be in the window that ends at `end`. */
static bool decided_elsewhere(const struct decision *decision, tick_t end) {
    return (decision->terms.flags & DECIDE_HERE) != 0 && end != decision->here;
}

/* The key's slot was found: decide in its window, or open the next one in place. */
static enum progress decide_found(struct decision *decision, struct place *place,
                                  struct stint_verdict *verdict, bool *allowed) {
    const struct policy *policy = decision->policy;
    struct slot *slot = place->slot;

    /* The state, then the tag, then whatever confirms the two: see "Find". */
    uint64_t state = atomic_load_acquire(&slot->state);
    if (GUARD(FOUND_TAG, atomic_load_acquire(&slot->tag) != decision->tag))
        return STALE;
    if (UNLIKELY(GUARD(FOUND_PENDING, state_pending(state)))) {
        place->state = state;
        return decide_absent(decision, place, true, verdict, allowed);
    }
    tick_t now = tick_of(decision->now);
    tick_t end = end_of(state_id(state), now);
    bool stepped = beyond_clock(decision, state_id(state), policy->length);
    if (UNLIKELY(now != tick_of(decision->now))) {
        now = tick_of(decision->now); /* this thread was late; now it is not */
        end = end_of(state_id(state), now);
    }
    /* Stripes must agree on a window, and could not on one that is left over from 2^33 ticks ago, which is
     * none of the policy's. */
    if ((decision->terms.flags & DECIDE_PART) != 0 && (end - decision->start) % policy->length != 0)
        stepped = true;
    uint64_t count = count_believed(decision, state_used(state)), refused = state & STATE_REFUSED;
    if (end <= now || stepped) {
        tick_t next = window_end(now, decision->start, policy->length);
        count = stepped ? 0
                        : count_carry(&decision->terms.rule, count,
                                      (uint64_t)(next - end) / (uint64_t)policy->length);
        refused = 0;
        end = next;
        limiter_latest(decision->limiter, now);
    }

    uint64_t left = tick_ns(end) - decision->now;
    struct charge charge = charge_of(&decision->terms, count, left);
    bool peek = (decision->terms.flags & STINT_PEEK) != 0;
    bool first_refusal = !charge.fits && refused == 0 && refusal_marked(&decision->terms);
    if (UNLIKELY(decided_elsewhere(decision, end))) {
        peek = true;
        charge = (struct charge){.count = count};
        first_refusal = false;
    }
    if (peek || (charge.count == count && !first_refusal)) {
        /* Nothing to write. */
        if (GUARD(FOUND_STATE, !state_same_window(atomic_load_acquire(&slot->state), state)))
            return STALE;
    } else {
        uint64_t next = state_of(end, (first_refusal ? STATE_REFUSED : refused) | charge.count);
        if (!slot_swap(slot, decision->tag, state, next))
            return STALE;
        if (UNLIKELY(stepped))
            limiter_count_table(decision->limiter, COUNT_CLOCK_STEP);
    }
    uint64_t used = peek ? count_total(&decision->terms, count, left) : charge.total;
    *allowed = decision_end(decision, &charge, used, end, first_refusal ? STINT_FIRST_REFUSAL : 0,
                            verdict);
    return DONE;
}

bool slot_added_ours(const struct decision *decision, struct slot *slot, uint64_t seen,
                     uint64_t added) {
    if (state_same_window(added, seen))
        return true;
    if (GUARD(ADDED_PENDING, state_pending(added))) /* the commit drops it */
        return false;
    /* Tag, then state: if both are the key's with the end that was added to, it was the key's when
     * it was added to (I1). */
    if (!GUARD(ADDED_TAG, atomic_load_acquire(&slot->tag) != decision->tag) &&
        !GUARD(ADDED_STATE, !state_same_window(atomic_load_acquire(&slot->state), added)))
        return true;
    limiter_count_table(decision->limiter, COUNT_STRAY);
    if (!GUARDED(ADDED_STAYS))
        (void)atomic_fetch_add_seq(&slot->state, (uint64_t)-1);
    return false;
}

bool slot_decide_added(struct decision *decision, struct slot *slot, uint64_t seen, uint64_t added,
                       struct stint_verdict *verdict) {
    bool ours = slot_added_ours(decision, slot, seen, added);

    if (ours && !GUARD(ADDED_ROOM, state_used(added) >= decision->terms.capacity)) {
        uint64_t used = state_used(added) + 1;
        struct charge charge = {used, used, 1, true};
        tick_t end = end_of(state_id(added), tick_of(decision->now));
        return decision_end(decision, &charge, used, end, 0, verdict);
    }
    decision->terms.counted = GUARD(ADDED_ONCE, ours);
    return slot_decide(decision, verdict);
}

/* ---- Claim and resolve ------------------------------------------------------------------------
 */

/* Raises the watermark of the key's shard to now: but not beyond the clock and the allowance, so
 * that no caller with a wrong `now` can spoil the windows of all keys of the shard. */
static void watermark_raise(struct decision *decision) {
    const struct table *table = &decision->limiter->table;
    uint64_t *watermark = &table_shard_of(table, decision->hash)->watermark;
    uint64_t seen = atomic_load_relaxed(watermark);
    tick_t now = tick_of(decision->now);

    if (LIKELY((tick_t)seen >= now) || !GUARDED(WATERMARK_RAISE))
        return;
    tick_t most = tick_of(limiter_now(decision->limiter)) + ALLOWANCE_TICKS;
    tick_t raised = now < most ? now : most;
    atomic_raise(watermark, (uint64_t)raised);
}

/* The tick in whose window a claim is committed, loaded after the look at the other slots. */
static tick_t commit_tick(struct decision *decision, uint64_t claim_id) {
    const struct table *table = &decision->limiter->table;
    uint64_t *watermark = &table_shard_of(table, decision->hash)->watermark;
    uint64_t seen = GUARDED(WATERMARK_READ) ? atomic_load_acquire(watermark) : 0;
    tick_t now = tick_of(decision->now);
    tick_t claimed = GUARDED(COMMIT_END) ? end_of(claim_id, now) - 1 : now;

    if (UNLIKELY((tick_t)seen > now + ALLOWANCE_TICKS || claimed > now + ALLOWANCE_TICKS)) {
        tick_t clock = decision_read_clock(decision);
        now = tick_of(decision->now);
        if ((tick_t)seen > clock + ALLOWANCE_TICKS) { /* the clock was stepped back */
            if (atomic_cas_seq(watermark, seen, (uint64_t)clock))
                limiter_count_table(decision->limiter, COUNT_CLOCK_STEP);
            seen = (uint64_t)clock;
        }
        if (claimed > clock + ALLOWANCE_TICKS)
            claimed = clock;
    }
    tick_t tick = now > claimed ? now : claimed;
    return tick > (tick_t)seen ? tick : (tick_t)seen;
}

/* Turns a claim into a tombstone, unless it is no longer as it was (whatever `used`). */
static bool claim_cancel(const struct decision *decision, struct slot *slot, uint64_t claim) {
    uint64_t state = claim;
    do {
        const uint64_t expected[2] = {decision->tag, state};
        uint64_t kept = !GUARDED(CANCEL_END) ? 0
                        : !GUARDED(CANCEL_PENDING)
                            ? state & ~USED_MASK
                            : state & ~(STATE_PENDING | STATE_REFUSED | USED_MASK);
        const uint64_t tombstone[2] = {table_tombstone(&decision->limiter->table), kept};
        if (atomic_cas2_seq(slot, expected, tombstone))
            return true;
        state = atomic_load_acquire(&slot->state);
    } while (state_same_window(state, claim) && atomic_load_relaxed(&slot->tag) == decision->tag);
    return false;
}

/* Deals with another slot of the sequence that had the key's tag. Returns whether the claim may
 * still stand; if not, it has been cancelled. */
static bool claim_outranks(const struct decision *decision, const struct place *claim,
                           struct slot *other, uint32_t position) {
    while (atomic_load_acquire(&other->tag) == decision->tag) {
        uint64_t state = atomic_load_acquire(&other->state);
        if (GUARD(RIVAL_TAG, atomic_load_acquire(&other->tag) != decision->tag))
            break;
        if (GUARD(RIVAL_COMMITTED, !state_pending(state)) ||
            GUARD(RIVAL_EARLIER, position < claim->position)) {
            (void)claim_cancel(decision, claim->slot, claim->state);
            return false;
        }
        if (!GUARDED(RIVAL_LATER) || claim_cancel(decision, other, state))
            break;
        /* It was committed meanwhile, or is another's: look again. */
    }
    return true;
}

/* Looks at the other slots of the sequence for the key. Returns whether this claim may be
 * committed; if not, it has been cancelled. Later claims have been cancelled then. */
static bool claim_stands(const struct decision *decision, const struct place *claim) {
    const struct table *table = &decision->limiter->table;
    struct sequence sequence = sequence_of(table, decision->hash);

    uint32_t lines = GUARDED(REACH_READ) ? sequence_reach(table, decision->hash)
                                         : claim->position / LINE_SLOTS + 1;

    for (uint32_t i = 0; i < lines; i++) {
        if (i >= UNUSED_LINES)
            i = sequence_match(&sequence, i, lines, decision->tag);
        if (i == lines)
            break;
        struct line *line = sequence_line(&sequence, i);
        for (uint32_t match = line_match(line, decision->tag); match != 0;
             match = match4_rest(match)) {
            uint32_t position = i * LINE_SLOTS + match4_index(match);
            if (position != claim->position &&
                !claim_outranks(decision, claim, &line->slots[position % LINE_SLOTS], position))
                return false;
        }
        if (i < UNUSED_LINES && line_match(line, 0) != 0) /* I5 */
            break;
    }
    atomic_fence_acquire(); /* the watermark is loaded after all of these */
    return true;
}

/* Commits a claim with this request's charge, whoever claimed it. */
static enum progress claim_resolve(struct decision *decision, const struct place *claim,
                                   uint32_t flags, struct stint_verdict *verdict, bool *allowed) {
    const struct policy *policy = decision->policy;

    INSTANT(INSTANT_CLAIMED);
    tick_t early = GUARDED(WATERMARK_LAST) ? 0 : commit_tick(decision, state_id(claim->state));
    if (GUARD(PENDING, !claim_stands(decision, claim)))
        return STALE;
    INSTANT(INSTANT_LOOKED);
    tick_t tick = GUARDED(WATERMARK_LAST) ? commit_tick(decision, state_id(claim->state)) : early;
    tick_t end = window_end(tick, decision->start, policy->length);
    limiter_latest(decision->limiter, tick);
    struct charge charge = charge_of(&decision->terms, 0, tick_ns(end) - decision->now);
    bool first_refusal = !charge.fits && refusal_marked(&decision->terms);
    if (UNLIKELY(decided_elsewhere(decision, end))) {
        charge = (struct charge){0};
        first_refusal = false;
    }
    uint64_t next = state_of(end, (first_refusal ? STATE_REFUSED : 0) | charge.count);
    uint64_t state = claim->state;
    while (!slot_swap(claim->slot, decision->tag, state, next)) {
        state = atomic_load_acquire(&claim->slot->state);
        /* Another thread resolved it; or with STINT_FULL_REPLACE the slot is another key's by now, whose
         * claim may have the same end. */
        if (!state_same_window(state, claim->state) ||
            GUARD(COMMIT_TAG, atomic_load_relaxed(&claim->slot->tag) != decision->tag))
            return STALE;
        if (!GUARDED(COMMIT_USED))
            state = claim->state;
    }
    if (first_refusal)
        flags |= STINT_FIRST_REFUSAL;
    *allowed = decision_end(decision, &charge, charge.total, end, flags, verdict);
    return DONE;
}

/* Claims the slot seen at `place` with one double-width CAS. */
static bool claim_slot(struct decision *decision, struct place *place) {
    if (GUARDED(REACH_RAISE))
        atomic_raise(&table_shard_of(&decision->limiter->table, decision->hash)->reach,
                     place->position / LINE_SLOTS);
    tick_t end = tick_of(decision->now) + 1;
    const uint64_t expected[2] = {place->tag, place->state};
    const uint64_t claim[2] = {decision->tag, state_of(end, STATE_PENDING)};

    if (!atomic_cas2_seq(place->slot, expected, claim))
        return false;
    place->tag = claim[0];
    place->state = claim[1];
    if (UNLIKELY(place->stepped))
        limiter_count_table(decision->limiter, COUNT_CLOCK_STEP);
    limiter_count_table(decision->limiter, COUNT_PLACED);
    return true;
}

/* Ends a request that leaves a key without a slot as it is: a look, or one for no tokens. */
static enum progress decide_nothing(struct decision *decision, const struct charge *charge,
                                    struct stint_verdict *verdict, bool *allowed) {
    tick_t end = window_end(tick_of(decision->now), decision->start, decision->policy->length);
    *allowed = decision_end(decision, charge, 0, end, 0, verdict);
    return DONE;
}

/* The key has no slot, but may claim the one at `place`; or (pending) has a claim there that
 * somebody has not resolved yet. */
static enum progress decide_absent(struct decision *decision, struct place *place, bool pending,
                                   struct stint_verdict *verdict, bool *allowed) {
    struct charge charge = charge_of(&decision->terms, 0, 0);
    bool peek = (decision->terms.flags & STINT_PEEK) != 0;

    if (peek || (charge.count == 0 && (charge.fits || !refusal_marked(&decision->terms)))) {
        /* A claim may stand, for a while, beside the slot that the key has. */
        if (pending &&
            find_committed(&decision->limiter->table, decision->hash, decision->tag, place))
            return decide_found(decision, place, verdict, allowed);
        return decide_nothing(decision, &charge, verdict, allowed);
    }
    if (!pending) {
        INSTANT(INSTANT_ABSENT);
        if (place->tag != 0)
            watermark_raise(decision);
        if (!claim_slot(decision, place))
            return STALE;
    }
    return claim_resolve(decision, place, 0, verdict, allowed);
}

/* ---- A full table --------------------------------------------------------------------------- */

/* Tokens that a slot of a key holds. */
static uint64_t slot_tokens(const struct decision *decision, const struct place *place) {
    const struct policy *policy = limiter_tag_policy(decision->limiter, place->tag);
    if (policy == NULL)
        return 0;
    uint64_t count = state_used(place->state);
    if (LIKELY((atomic_load_relaxed(&policy->edges) & EDGE_CARRIES) == 0)) /* as smooth ones do */
        return count;
    struct rule rule = policy_rule(policy);
    return (rule.flags & STINT_SMOOTH) == 0 ? count : (count & SMOOTH_MAX) + (count >> SMOOTH_BITS);
}

/* What atomic_all4 asks of the slots of a line among which none has used fewer tokens (UINT64_MAX: none passes).
 * Nothing of the ids, but that a range that has all of them cannot be written. */
static inline struct all4 used_at_least(const struct table *table, uint64_t tag, uint64_t fewest) {
    struct all4 asked = others_of(table, tag);
    asked.flip[1] = (uint32_t)USED_MASK;
    asked.mask[1] = (uint32_t)(STATE_PENDING | USED_MASK);
    asked.below[1] = fewest <= USED_MASK ? (uint32_t)(USED_MASK - fewest) + 1 : 0;
    asked.range[1] = UINT32_MAX;
    return asked;
}

/* Finds the slot of the sequence with the fewest tokens used. ABSENT: it is `place`. FULL: all are
 * claims or tombstones, which are free in the next tick. FOUND: the key has been given one
 * meanwhile: this is the second search for it, too. */
static enum found find_least_used(const struct decision *decision, struct place *place) {
    const struct table *table = &decision->limiter->table;
    struct sequence sequence = sequence_of(table, decision->hash);
    /* Whether slots hold as many tokens as they count: most lines need no closer look then. */
    bool counts = atomic_load_acquire(&decision->limiter->header->smooth) == 0;
    struct all4 enough = used_at_least(table, decision->tag, UINT64_MAX);
    uint64_t fewest = UINT64_MAX;

    atomic_fence_acquire();
    for (uint32_t i = 0; i < table->probe_lines; i++) {
        if (counts)
            i = sequence_all4(&sequence, i, table->probe_lines, &enough);
        if (i == table->probe_lines)
            break;
        struct line *line = sequence_line(&sequence, i);
        for (uint32_t j = 0; j < LINE_SLOTS; j++) {
            struct place seen = {.slot = &line->slots[j], .position = i * LINE_SLOTS + j};
            seen.tag = atomic_load_acquire(&seen.slot->tag);
            seen.state = atomic_load_acquire(&seen.slot->state);
            if (GUARD(REPLACE_OWN, seen.tag == decision->tag))
                return FOUND;
            if (seen.tag == 0 || GUARD(REPLACE_FREE, seen.tag == table_tombstone(table) ||
                                                         state_pending(seen.state)))
                continue;
            uint64_t tokens = slot_tokens(decision, &seen);
            if (tokens < fewest) {
                fewest = tokens;
                *place = seen;
            }
        }
        enough = used_at_least(table, decision->tag, fewest);
    }
    return fewest != UINT64_MAX ? ABSENT : FULL;
}

/* The key may claim no slot, and has none: the outcome that the user chose (G). */
static enum progress decide_full(struct decision *decision, struct stint_verdict *verdict,
                                 bool *allowed) {
    struct charge charge = charge_of(&decision->terms, 0, 0);
    bool peek = (decision->terms.flags & STINT_PEEK) != 0;
    bool replace = decision->limiter->on_full == STINT_FULL_REPLACE;
    bool nothing = charge.count == 0 && (charge.fits || !refusal_marked(&decision->terms));
    /* A refusal that leaves nothing behind but its mark replaces nobody. */
    bool worth = charge.fits || charge.count != 0;

    if (replace && !peek && !nothing && worth) {
        struct place place;
        enum found found = find_least_used(decision, &place);
        if (found == FOUND || (found == ABSENT && !claim_slot(decision, &place)))
            return STALE;
        if (found == ABSENT) {
            limiter_count_table(decision->limiter, COUNT_REPLACED);
            return claim_resolve(decision, &place, STINT_REPLACED, verdict, allowed);
        }
        /* Every slot is changing hands at this instant: admit rather than wait. */
    } else {
        if (found_again(decision))
            return STALE;
        if (peek ? replace : nothing)
            return decide_nothing(decision, &charge, verdict, allowed);
    }
    if (decision->limiter->on_full == STINT_FULL_REFUSE)
        charge = (struct charge){.fits = false};
    tick_t end = window_end(tick_of(decision->now), decision->start, decision->policy->length);
    uint64_t used = peek || !charge.fits ? 0 : charge.total;
    *allowed = decision_end(decision, &charge, used, end, STINT_UNTRACKED, verdict);
    return DONE;
}

/* ---- Refund and reset ------------------------------------------------------------------------ */

/* Tokens of a slot that may have been granted: where a fetch-add may have counted refused requests past a
 * limit, what is above every limit that there ever was is none. */
static uint64_t most_granted(const struct stint_limiter *limiter, uint32_t policy_id,
                             const struct rule *rule, uint32_t stripe) {
    if (rule_carries(rule))
        return STINT_LIMIT_MAX;
    uint64_t largest = atomic_load_relaxed(&limiter->records[policy_id].largest);
    return stripe_share(largest, rule->stripes, stripe);
}

uint32_t slot_refund(const struct stint_limiter *limiter, uint32_t policy_id,
                     const struct rule *rule, uint64_t hash, uint32_t stripe, uint64_t id,
                     uint32_t tokens) {
    const struct table *table = &limiter->table;
    uint64_t tag = table_tag(table, hash, policy_id);
    bool smooth = (rule->flags & STINT_SMOOTH) != 0;
    tick_t length = limiter->policies[policy_id].length;
    struct place place;

    INSTANT(INSTANT_REFUND);
    while (find_committed(table, hash, tag, &place)) {
        /* Which of the two counts of a smooth policy; the only count of others. */
        uint32_t shift = 0;
        uint64_t mask = smooth ? SMOOTH_MAX : USED_MASK;
        if (GUARD(REFUND_WINDOW, state_id(place.state) != id)) {
            if (!smooth || ((id + (uint64_t)length) & ID_MASK) != state_id(place.state))
                return 0;
            shift = SMOOTH_BITS;
        }
        uint64_t count = state_used(place.state) >> shift & mask;
        /* Loaded after the state, or tokens granted by a limit that was raised since would be cut off. */
        uint64_t most = most_granted(limiter, policy_id, rule, stripe);
        uint64_t held = GUARD(REFUND_MOST, count > most) ? most : count;
        uint64_t back = GUARD(REFUND_ZERO, tokens > held) ? held : tokens;
        if (back == 0)
            return 0;
        uint64_t next = (place.state & ~(mask << shift)) | (held - back) << shift;
        if (slot_swap(place.slot, tag, place.state, next))
            return (uint32_t)back;
    }
    return 0;
}

bool slot_reset(const struct table *table, uint64_t hash, uint64_t tag) {
    struct place place;

    while (find_committed(table, hash, tag, &place))
        if (slot_swap(place.slot, tag, place.state, place.state & ~USED_MASK))
            return true;
    return false;
}
