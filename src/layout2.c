/* SPDX-License-Identifier: MIT
 * The layout of stint 0.1, of which only the header, the policies and their records differ from
 * this one. Nothing that is read here is trusted: what becomes of it is checked as policies of a
 * caller are, and as any table that is attached to. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "layout2.h"
#include "message.h"
#include "notation.h"
#include "policy.h"
#include "policy_check.h"
#include "decision.h"

/* ---- What 0.1 wrote -------------------------------------------------------------------------- */

struct header2 {
    _Alignas(CACHE_LINE) uint64_t magic;
    uint32_t layout;
    uint32_t shards;
    uint64_t max_keys;
    uint32_t max_policies;
    uint32_t lanes;
    uint64_t size;
    uint8_t secret[STINT_SECRET_SIZE];
    pthread_mutex_t lock;
    _Alignas(CACHE_LINE) uint64_t policy_count;
    uint64_t longest_window; /* ticks: as bulk_window */
    uint64_t smooth;
    uint64_t latest_begin;
    _Alignas(CACHE_LINE) uint64_t lane_owners[LANES_MAX];
};
static_assert(sizeof(struct header2) == sizeof(struct header), "the policies begin at one place");
static_assert(offsetof(struct header2, size) == offsetof(struct header, size),
              "the shape is told in the same words");

struct rule2 {
    uint32_t limit;
    uint32_t capacity;
    uint32_t max_reserved;
    uint32_t stripes; /* 1: none */
    uint32_t flags;
    uint32_t near_limit;
    uint32_t jitter;
    uint32_t capacity_given;
};

struct policy2 {
    _Alignas(CACHE_LINE) uint64_t derived[5]; /* from the rule; and a hint */
    tick_t length;
    tick_t start;
    uint64_t version; /* rules[version % 2] is the rule; 0: there is no such policy */
    _Alignas(CACHE_LINE) struct rule2 rules[2];
};
static_assert(sizeof(struct policy2) == sizeof(struct policy), "the records begin at one place");

struct record2 {
    _Alignas(CACHE_LINE) char name[STINT_NAME_SIZE];
    uint64_t refusals_count;
    uint64_t largest;
};
static_assert(sizeof(struct record2) == sizeof(struct policy_record),
              "the counters begin at one place");

/* ---- What it becomes ------------------------------------------------------------------------- */

bool stint_layout2_header(struct header *header) {
    struct header2 old;

    if (header->magic != HEADER_MAGIC || header->layout != LAYOUT_2)
        return false;
    memcpy(&old, header, sizeof(old));
    memset(header, 0, sizeof(*header));
    header->magic = HEADER_MAGIC;
    header->layout = HEADER_LAYOUT;
    header->shards = old.shards;
    header->max_keys = old.max_keys;
    header->max_policies = old.max_policies;
    header->lanes = old.lanes;
    header->size = old.size;
    memcpy(header->secret, old.secret, sizeof(header->secret));
    stint_limiter_lock_make(&header->lock);
    header->latest_begin = old.latest_begin;
    return true;
}

int stint_layout2_begin(char *start, size_t size, const struct header *header, void **front) {
    *front = malloc(size);
    if (*front == NULL)
        return stint_failed(ENOMEM, "no memory for the policies of the table");
    memcpy(*front, start, size);
    memset(start, 0, size);
    memcpy(start, header, sizeof(*header));
    return 0;
}

/* A policy as it was added; its name, if it has none, is its rate. Returns false if 0.1 makes no
 * such policy. */
static bool policy_of(const struct policy2 *old, const struct record2 *record,
                      struct stint_policy *policy) {
    const struct rule2 *rule = &old->rules[old->version % 2];
    char rate[STINT_NAME_SIZE];

    if (old->version == 0 || record->name[0] == '\0' ||
        old->length < 1 || old->length > (tick_t)(STINT_WINDOW_MAX / STINT_TICK_NS) ||
        old->start > INT64_MAX / (int64_t)STINT_TICK_NS ||
        old->start < INT64_MIN / (int64_t)STINT_TICK_NS)
        return false;
    *policy = (struct stint_policy){
        .size = sizeof(*policy),
        .limit = rule->limit,
        .capacity = rule->capacity_given != 0 ? rule->capacity : 0,
        .max_reserved = rule->max_reserved,
        .stripes = rule->stripes,
        .window = tick_ns(old->length),
        .start = old->start * (int64_t)STINT_TICK_NS,
        .flags = rule->flags,
        .near_limit = rule->near_limit,
        .jitter = rule->jitter,
    };
    memcpy(policy->name, record->name, sizeof(policy->name));
    if (stint_policy_check(policy) != 0 ||
        (rule->flags &
         ~(uint32_t)(STINT_COUNT_REFUSED | STINT_SHADOW | STINT_START_PER_KEY | STINT_SMOOTH)) != 0)
        return false;
    (void)stint_rate_format(policy, rate, sizeof(rate));
    if (strcmp(rate, policy->name) == 0)
        policy->name[0] = '\0';
    return true;
}

/* The two counts of a smooth key were 14 bits each. */
static void smooth_counts_move(struct stint_limiter *limiter) {
    const struct table *table = &limiter->table;

    for (uint64_t i = 0; i < table->line_count * LINE_SLOTS; i++) {
        struct slot *slot = &table->lines[i / LINE_SLOTS].slots[i % LINE_SLOTS];
        const struct policy *policy = limiter_tag_policy(limiter, slot->tag);
        const uint64_t count = state_used(slot->state);
        if (policy != NULL && (policy_traits(policy) & TWO_COUNTS) != 0 &&
            !state_pending(slot->state))
            slot->state = (slot->state & ~USED_MASK) |
                          two_counts(count >> SMOOTH_BITS & SMOOTH_MAX, count & SMOOTH_MAX);
    }
}

int stint_layout2_policies(struct stint_limiter *limiter, const void *front) {
    struct header2 header;
    memcpy(&header, front, sizeof(header));

    const char *policies = (const char *)front + sizeof(struct header2);
    const char *records = policies + limiter->max_policies * sizeof(struct policy2);
    if (header.policy_count > limiter->max_policies)
        return stint_failed(EPROTO, "the table is damaged: it has more policies than it can hold");
    for (uint32_t id = 0; id < header.policy_count; id++) {
        struct policy2 old;
        struct record2 record;
        struct stint_policy policy;
        uint32_t added;

        memcpy(&old, policies + id * sizeof(old), sizeof(old));
        memcpy(&record, records + id * sizeof(record), sizeof(record));
        /* Two of one name would be one. */
        if (!policy_of(&old, &record, &policy) || stint_policy_add(limiter, &policy, &added) != 0 ||
            added != id)
            return stint_failed_with(
                EPROTO, "the table is damaged: policy %u is none that stint makes", (unsigned)id);
        limiter->records[id].refusals_count |= record.refusals_count != 0;
    }
    stint_policies_repair(limiter); /* those that have counted refusals say so */
    smooth_counts_move(limiter);
    return 0;
}
