/* SPDX-License-Identifier: MIT
 * All that is live in a table, slot by slot. */
#include <errno.h>

#include "labels.h"
#include "message.h"
#include "slot.h"

/* What is told of a table at one instant. */
struct telling {
    struct stint_limiter *limiter;
    uint64_t now;
    bool whole; /* line and tag tell a key's hash */
};

/* Tag and state of a slot, of one occupant. Returns false if it is changing hands. */
static bool slot_read(const struct slot *slot, uint64_t *tag, uint64_t *state) {
    *tag = atomic_load_acquire(&slot->tag); /* M15: its policy is read */
    if (*tag == 0)
        return false;
    *state = atomic_load_acquire(&slot->state); /* M1 */
    return atomic_load_acquire(&slot->tag) == *tag &&
           state_same_window(atomic_load_relaxed(&slot->state), *state); /* M2, I1 */
}

/* What a slot holds by the limiter's clock, as a look at its key would tell. */
static void slot_tell(const struct telling *telling, const struct policy *policy, uint64_t hash,
                      uint64_t state, struct stint_entry *entry) {
    const uint32_t traits = (uint32_t)policy_traits(policy);
    const tick_t now = tick_of(telling->now), end = end_of(state_id(state), now);
    const struct decision decision = {
        .policy = (struct policy *)(uintptr_t)policy,
        .terms = {.traits = traits, .window = policy->window, .reciprocal = policy->reciprocal}};
    uint64_t count = count_granted(&decision, state_used(state));

    entry->end = tick_ns(end);
    if (end > now) {
        entry->flags |= (state & STATE_REFUSED) != 0 ? STINT_ENTRY_REFUSED : 0;
    } else { /* what is carried into the window of now */
        const struct rule rule = policy_rule(policy);
        tick_t later = stint_window_at(telling->limiter, policy, traits, hash, now);
        count = count_carry(&rule, count, (uint64_t)((later - end) / policy->length));
        entry->end = tick_ns(later);
    }
    entry->used = count_total(&decision.terms, count, entry->end - telling->now);
}

/* Tells of one slot. Returns what the callback says. */
static bool slot_each(const struct telling *telling, uint64_t line, const struct slot *slot,
                      bool (*callback)(void *context, const struct stint_entry *entry),
                      void *context) {
    const struct stint_limiter *limiter = telling->limiter;
    const struct table *table = &limiter->table;
    struct label_read label = {0};
    uint64_t tag, state, hash;

    if (!slot_read(slot, &tag, &state) ||
        !stint_slot_live(limiter, tag, state, tick_of(telling->now)) ||
        !table_hash(table, line, tag, &hash))
        return true;
    struct stint_entry entry = {.key = hash, .policy = tag_policy(table, tag)};
    const struct policy *policy = limiter_policy(limiter, entry.policy);
    if (policy == NULL)
        return true;
    if (!telling->whole)
        entry.flags |= STINT_ENTRY_KEY_PART;
    if (traits_striped((uint32_t)policy_traits(policy)))
        entry.flags |= STINT_ENTRY_STRIPE;
    slot_tell(telling, policy, hash, state, &entry);
    if (limiter->labels != NULL && telling->whole) {
        stint_label_read(limiter, hash, &label);
        entry.refused_windows = label.refused;
        entry.label_length = label.length;
        entry.label = label.length == 0 ? NULL : label.bytes;
    }
    return callback(context, &entry);
}

int stint_each(struct stint_limiter *limiter,
               bool (*callback)(void *context, const struct stint_entry *entry), void *context) {
    if (limiter == NULL || callback == NULL)
        return stint_failed(EINVAL, "limiter or callback is NULL");
    const struct table *table = &limiter->table;
    const struct telling telling = {limiter, limiter_now(limiter), table_hashes_whole(table)};

    for (uint64_t line = 0; line < table->line_count; line++)
        for (uint32_t i = 0; i < LINE_SLOTS; i++)
            if (!slot_each(&telling, line, &table->lines[line].slots[i], callback, context))
                return 0;
    return 0;
}
