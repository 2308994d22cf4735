/* SPDX-License-Identifier: MIT */
#include "watch.h"

#include <stdlib.h>
#include <string.h>

#include "policy/occupant.h"

static struct slot *slot_at(const struct watch *watch, uint64_t i) {
    return &watch->limiter->table.lines[i / LINE_SLOTS].slots[i % LINE_SLOTS];
}

static uint64_t slot_count(const struct watch *watch) {
    return watch->limiter->table.line_count * LINE_SLOTS;
}

static uint64_t shard_count(const struct watch *watch) {
    return UINT64_C(1) << watch->limiter->table.shard_bits;
}

/* NULL: the slot is no key's. */
static const struct policy *policy_of(const struct watch *watch, const struct slot *slot) {
    return slot->tag == 0 || slot->tag == table_tombstone(&watch->limiter->table)
               ? NULL
               : limiter_tag_policy(watch->limiter, slot->tag);
}

static bool committed(const struct watch *watch, const struct slot *slot) {
    return policy_of(watch, slot) != NULL && !state_pending(slot->state);
}

/* Ends fall where an override is lifted or set anew, where a policy that is gone is swept, and
 * where a bucket is given tokens back: then it is still the same key's. */
static bool end_may_fall(const struct watch *watch, const struct slot *now,
                         const struct slot *before) {
    const struct policy *policy = policy_of(watch, before);
    if (policy == NULL)
        return false;
    return (policy_word(policy) & TRAIT_COMPANION) != 0 || policy_gone(policy) ||
           ((policy_word(policy) & RULE_BUCKET) != 0 && now->tag == before->tag);
}

static bool committed_twice(const struct watch *watch, const struct slot *slot) {
    for (uint64_t i = 0; i < slot_count(watch) && committed(watch, slot); i++) {
        const struct slot *other = slot_at(watch, i);
        if (other != slot && other->tag == slot->tag && !state_pending(other->state))
            return true;
    }
    return false;
}

/* The invariant that a slot breaks, which was another. */
static const char *slot_broken(const struct watch *watch, const struct slot *now,
                               const struct slot *before) {
    const uint64_t tombstone = table_tombstone(&watch->limiter->table);
    const uint64_t end = state_id(now->state), end_before = state_id(before->state);
    if (now->tag == 0 && before->tag != 0)
        return "I5: a used slot has become never-used";
    if (watch->stepped_back)
        return NULL;
    if (now->tag == tombstone && state_pending(now->state))
        return "a tombstone is pending";
    if (committed_twice(watch, now))
        return "I3: a key has two committed slots";
    if (watch->replaces || end_may_fall(watch, now, before))
        return NULL;
    if (before->state != 0 && end_of(end, (tick_t)end_before) < (tick_t)end_before)
        return "I1: the end of a slot has fallen";
    if (now->tag != before->tag && before->tag != 0 && end == end_before && now->tag != tombstone)
        return "I1: a slot has changed hands within its window";
    return NULL;
}

static const char *shard_broken(const struct shard *now, const struct shard *before) {
    if (now->reach < before->reach)
        return "a shard's reach has fallen";
    for (unsigned i = 0; i < sizeof(now->filter) / sizeof(now->filter[0]); i++)
        if ((before->filter[i] & ~now->filter[i]) != 0)
            return "I6: a shard's filter has lost a key";
    return NULL;
}

void watch_begin(struct watch *watch, const struct stint_limiter *limiter) {
    *watch = (struct watch){.limiter = limiter, .replaces = limiter->on_full == STINT_FULL_REPLACE};
    if (slot_count(watch) > WATCHED_LINES * LINE_SLOTS || shard_count(watch) > WATCHED_SHARDS)
        abort();
    memcpy(watch->slots, limiter->table.lines, slot_count(watch) * sizeof(watch->slots[0]));
    memcpy(watch->reach, reach_words(&limiter->table), limiter->table.line_count);
    memcpy(watch->shards, limiter->table.shards, shard_count(watch) * sizeof(watch->shards[0]));
}

bool watch_look(struct watch *watch) {
    bool changed = false;
    for (uint64_t i = 0; i < slot_count(watch); i++) {
        const struct slot *slot = slot_at(watch, i);
        if (slot->tag == watch->slots[i].tag && slot->state == watch->slots[i].state)
            continue;
        if (watch->broken == NULL)
            watch->broken = slot_broken(watch, slot, &watch->slots[i]);
        watch->slots[i] = *slot;
        changed = true;
    }
    const struct table *table = &watch->limiter->table;
    const uint8_t *reach = (const uint8_t *)reach_words(table);
    for (uint64_t i = 0; i < WATCHED_LINES && i < table->line_count; i++) {
        if (watch->broken == NULL && reach[i] < watch->reach[i])
            watch->broken = "I6: the reach of a line has fallen";
        watch->reach[i] = reach[i];
    }
    for (uint64_t i = 0; i < shard_count(watch); i++) {
        const struct shard *shard = &watch->limiter->table.shards[i];
        if (watch->broken == NULL)
            watch->broken = shard_broken(shard, &watch->shards[i]);
        watch->shards[i] = *shard;
    }
    return changed;
}
