/* SPDX-License-Identifier: MIT
 * Policies: add, change, find, get. Set-up functions: they take the table's lock, which no
 * decision takes. Decisions read a rule, or its traits, by the policy's version (limiter.h); the
 * hot path reads what policy_heat makes of it. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "counters.h"
#include "message.h"
#include "notation.h"
#include "policy.h"
#include "policy_check.h"

static struct rule rule_of(const struct stint_policy *policy) {
    return (struct rule){
        .limit = policy->limit,
        .capacity = policy->capacity == 0 ? policy->limit : policy->capacity,
        .max_reserved = policy->max_reserved,
        .stripes = policy->stripes == 0 ? 1 : policy->stripes,
        .flags = policy->flags,
        .near_limit = policy->near_limit,
        .jitter = policy->jitter,
        .capacity_given = policy->capacity != 0,
    };
}

/* The longest window, in ticks. */
static tick_t longest_of(const struct stint_policy *policy) {
    return policy->calendar != 0 ? calendar_longest(policy->calendar)
                                 : (tick_t)(policy->window / STINT_TICK_NS);
}

/* What must be known of a rule at a glance. `of_policy` are those of its traits that no rule has:
 * TRAIT_REFUSALS and TRAIT_CALENDAR. */
static uint64_t traits_of(const struct rule *rule, uint32_t of_policy) {
    const bool carries = rule_carries(rule);
    const bool plain = !carries && of_policy == 0 && rule->near_limit == 0 && rule->jitter == 0 &&
                       rule->stripes == 1 && rule->flags == 0;
    return (uint64_t)rule->capacity << 32 | rule->flags | TRAIT_EXISTS | (plain ? TRAIT_PLAIN : 0) |
           (carries ? TRAIT_CARRIES : 0) | of_policy | (rule->near_limit != 0 ? TRAIT_NEAR : 0) |
           (rule->jitter != 0 ? TRAIT_JITTER : 0) |
           (uint64_t)__builtin_ctz(rule->stripes) << TRAIT_STRIPES;
}

static uint32_t calendar_trait(const struct stint_limiter *limiter, uint32_t id) {
    return limiter->records[id].calendar != 0 ? TRAIT_CALENDAR : 0;
}

/* Raises what charges, and bulk checks of a full table, are compared with (M10). Returns the traits
 * that no rule has: whether windows are of the calendar, and whether the policy has ever counted
 * refusals, or does so by this rule. */
static uint32_t policy_raise(struct stint_limiter *limiter, uint32_t id, const struct rule *rule) {
    struct policy *policy = &limiter->policies[id];
    uint64_t *refusals = &limiter->records[id].refusals_count;

    /* M10: all of these before the rule is stored. */
    atomic_raise(&policy->largest, (uint64_t)rule->capacity + rule->max_reserved);
    atomic_raise(refusals, (rule->flags & STINT_COUNT_REFUSED) != 0);
    atomic_raise(&limiter->header->smooth, (rule->flags & STINT_SMOOTH) != 0);
    /* M10 */
    atomic_raise(&limiter->header->bulk_window,
                 (uint64_t)(policy->length < BULK_WINDOW_MAX ? policy->length : BULK_WINDOW_MAX));
    /* M10 */
    return calendar_trait(limiter, id) | (atomic_load_relaxed(refusals) != 0 ? TRAIT_REFUSALS : 0);
}

/* Lets the hot path decide, if the rule is for it. It is not if each key has a window of its own,
 * two counts in one, or several slots, or windows are of different lengths. Nor if a count past the
 * capacity would be carried over, or if the verdict says more. */
static void policy_heat(struct stint_limiter *limiter, uint32_t id, const struct rule *rule) {
    struct policy *policy = &limiter->policies[id];
    bool hot = (rule->flags & (TRAITS_OWN_WINDOW | STINT_SMOOTH)) == 0 &&
               calendar_trait(limiter, id) == 0 && rule->stripes == 1 && !rule_carries(rule) &&
               rule->near_limit == 0;
    /* M10: the largest limit was raised before. */
    atomic_store_relaxed(&policy->hot_capacity, hot ? rule->capacity : 0);
    atomic_store_relaxed(&policy->hot_window, hot ? policy->window : 0);
}

/* Writes the rule, and what the hot path reads of it. The store of the version makes a new policy
 * known, and changes one that exists, at once. Meanwhile the hot path is not for it: if this
 * process dies here, the policy is slower, but still by one whole rule. */
static void rule_write(struct stint_limiter *limiter, uint32_t id, const struct rule *rule) {
    struct policy *policy = &limiter->policies[id];
    uint64_t words[RULE_WORDS];
    /* Under the lock: M12, M14 are for those who read. */
    uint64_t version = atomic_load_relaxed(&policy->version) + 1;

    rule_pack(rule, words);
    words[RULE_TRAITS] = traits_of(rule, policy_raise(limiter, id, rule));
    /* Not hot while the rule is written, M14 and M12. */
    atomic_store_relaxed(&policy->hot_capacity, 0);
    atomic_store_relaxed(&policy->hot_window, 0);
    for (uint32_t i = 0; i < RULE_WORDS; i++)
        atomic_store_release(&policy->rules[version % 2][i], words[i]); /* M14 */
    atomic_store_release(&policy->version, version);                    /* M12 */
    policy_heat(limiter, id, rule);
}

/* The name that the policy will have: its own, or its rate in the text notation. */
static void name_of(const struct stint_policy *policy, char name[STINT_NAME_SIZE]) {
    memset(name, 0, STINT_NAME_SIZE);
    if (policy->name[0] == '\0')
        stint_rate_format(policy, name, STINT_NAME_SIZE);
    else
        memcpy(name, policy->name, strlen(policy->name));
}

/* Ids by name, so that many policies are not compared with each other. Names are written once, in
 * the order of ids, by any process: whoever looks puts in what came since. At most half of the
 * places are taken. */
struct names {
    pthread_mutex_t lock;
    uint32_t known; /* ids below are in */
    uint32_t places;
    uint32_t ids[]; /* each plus one, in the first free place from its hash on; 0: free */
};

struct names *stint_names_make(uint32_t max_policies) {
    uint32_t places = 2;
    while (places < 2 * max_policies)
        places *= 2;
    struct names *names = calloc(1, sizeof(*names) + places * sizeof(names->ids[0]));
    if (names == NULL)
        return NULL;
    names->places = places;
    (void)pthread_mutex_init(&names->lock, NULL);
    return names;
}

void stint_names_free(struct names *names) {
    (void)pthread_mutex_destroy(&names->lock);
    free(names);
}

/* The place of a name, or the free one where it would be. */
static uint32_t *name_place(const struct stint_limiter *limiter, const char *name) {
    struct names *names = limiter->names;
    uint64_t hash = 0;

    for (size_t i = 0; i < STINT_NAME_SIZE && name[i] != '\0'; i++)
        hash = mix(hash, (unsigned char)name[i]);
    for (;; hash++) {
        uint32_t *place = &names->ids[hash & (names->places - 1)];
        if (*place == 0 || strncmp(limiter->records[*place - 1].name, name, STINT_NAME_SIZE) == 0)
            return place;
    }
}

/* Id of the policy of that name among the first `count`, or -1. */
static int find_name(const struct stint_limiter *limiter, uint32_t count, const char *name) {
    struct names *names = limiter->names;

    (void)pthread_mutex_lock(&names->lock);
    for (; names->known < count; names->known++) {
        uint32_t *place = name_place(limiter, limiter->records[names->known].name);
        if (*place == 0) /* else the first of that name stays the one that is found */
            *place = names->known + 1;
    }
    int found = (int)*name_place(limiter, name) - 1;
    (void)pthread_mutex_unlock(&names->lock);
    return found;
}

/* What a policy is, by its parts in the table. */
static struct stint_policy policy_read(const struct stint_limiter *limiter, uint32_t id) {
    const struct policy *policy = &limiter->policies[id];
    const struct policy_record *record = &limiter->records[id];
    struct rule rule = policy_rule(policy);
    struct stint_policy read = {
        .size = sizeof(read),
        .limit = rule.limit,
        .capacity = rule.capacity_given ? rule.capacity : 0,
        .max_reserved = rule.max_reserved,
        .stripes = rule.stripes == 1 ? 0 : rule.stripes,
        .window = record->calendar != 0 ? 0 : tick_ns(policy->length),
        .start = policy->start * (int64_t)STINT_TICK_NS,
        .flags = rule.flags,
        .near_limit = rule.near_limit,
        .jitter = rule.jitter,
        .calendar = record->calendar,
        .offset = record->offset,
    };
    memcpy(read.name, record->name, sizeof(read.name));
    return read;
}

struct stint_policy stint_policy_told(const struct stint_limiter *limiter, uint32_t id) {
    struct stint_policy policy = policy_read(limiter, id);

    if ((limiter->records[id].flags & RECORD_UNNAMED) != 0)
        (void)stint_rate_format(&policy, policy.name, sizeof(policy.name));
    return policy;
}

/* In what a policy differs from one that exists, or NULL: in nothing that makes a difference. */
static const char *difference(const struct stint_limiter *limiter, uint32_t id,
                              const struct stint_policy *policy) {
    const struct stint_policy old = policy_read(limiter, id);
    struct rule rule = rule_of(policy), old_rule = rule_of(&old);

    return rule.limit != old_rule.limit                 ? "limit"
           : policy->window != old.window               ? "window"
           : policy->calendar != old.calendar           ? "calendar"
           : policy->offset != old.offset               ? "offset"
           : policy->start != old.start                 ? "start"
           : rule.capacity != old_rule.capacity         ? "capacity"
           : rule.max_reserved != old_rule.max_reserved ? "max_reserved"
           : rule.stripes != old_rule.stripes           ? "stripes"
           : rule.flags != old_rule.flags               ? "flags"
           : rule.near_limit != old_rule.near_limit     ? "near_limit"
           : rule.jitter != old_rule.jitter             ? "jitter"
                                                        : NULL;
}

/* Takes the lock, and on the way takes lanes of the dead back. */
static int set_up_begin(struct stint_limiter *limiter) {
    if (limiter->memory.read_only)
        return stint_failed(EROFS, READ_ONLY);
    int error = stint_policies_lock(limiter);
    if (error == 0)
        stint_limiter_lanes_reclaim(limiter, false);
    return error;
}

static int add_locked(struct stint_limiter *limiter, const struct stint_policy *policy,
                      uint32_t *added_id) {
    uint32_t id = limiter_policy_count(limiter);
    char name[STINT_NAME_SIZE];

    name_of(policy, name);
    int old = find_name(limiter, id, name);
    if (old >= 0) {
        const char *what = difference(limiter, (uint32_t)old, policy);
        if (what != NULL)
            return stint_failed_with(EEXIST,
                                     "a policy named %s exists with another %s: if that is to be "
                                     "changed, stint_policy_change does it",
                                     name, what);
        *added_id = (uint32_t)old;
        return 0;
    }
    if (id == limiter->max_policies)
        return stint_failed(ENOSPC, "options.max_policies policies have been added");
    struct rule rule = rule_of(policy);
    struct policy *added = &limiter->policies[id];
    limiter->records[id] =
        (struct policy_record){0}; /* whoever died here may have left something */
    memcpy(limiter->records[id].name, name, sizeof(name));
    limiter->records[id].flags = policy->name[0] == '\0' ? RECORD_UNNAMED : 0;
    limiter->records[id].calendar = policy->calendar;
    limiter->records[id].offset = policy->offset;
    added->length = longest_of(policy);
    added->start = policy->start / (int64_t)STINT_TICK_NS;
    added->window = tick_ns(added->length);
    added->reciprocal = reciprocal_of(added->window);
    added->largest = 0;
    added->reserved = 0;
    added->current_end = stint_limiter_hint_first(limiter, added);
    limiter_raise_latest_begin(limiter, hint_begin(added, added->current_end));
    rule_write(limiter, id, &rule);
    atomic_store_release(&limiter->header->policy_count, id + 1); /* M12 */
    *added_id = id;
    return 0;
}

int stint_policy_add(struct stint_limiter *limiter, const struct stint_policy *policy,
                     uint32_t *id) {
    uint32_t ignored;

    if (limiter == NULL)
        return stint_failed(EINVAL, "limiter is NULL");
    int error = stint_policy_check(policy);
    if (error == 0)
        error = set_up_begin(limiter);
    if (error != 0)
        return error;
    error = add_locked(limiter, policy, id == NULL ? &ignored : id);
    stint_limiter_unlock(limiter);
    return error;
}

/* Whether what stays as it is in a policy that exists is the same in another. */
static int change_check(const struct rule *old, const struct rule *rule, bool refusals_counted) {
    if (rule->stripes != old->stripes)
        return stint_failed(EINVAL, "policy.stripes cannot change: add another policy");
    if (((rule->flags ^ old->flags) & (TRAITS_OWN_WINDOW | STINT_SMOOTH)) != 0)
        return stint_failed(EINVAL,
                            "STINT_START_PER_KEY, STINT_START_FIRST and STINT_SMOOTH cannot "
                            "change: add another policy");
    if (refusals_counted && rule_carries(rule))
        return stint_failed(EINVAL,
                            "policy.capacity above the limit, and max_reserved, cannot come to a "
                            "policy that has ever counted refusals: they would be carried over as "
                            "debts");
    return 0;
}

/* Changes a policy, or only says whether that may be. */
static int change(struct stint_limiter *limiter, uint32_t id, const struct stint_policy *policy,
                  bool only_check) {
    if (limiter == NULL)
        return stint_failed(EINVAL, "limiter is NULL");
    int error = stint_policy_check(policy);
    if (error != 0)
        return error;
    struct policy *changed = limiter_policy(limiter, id);
    if (changed == NULL)
        return stint_failed(ENOENT, "there is no policy of that id");
    if (policy->name[0] != '\0' && strcmp(policy->name, limiter->records[id].name) != 0)
        return stint_failed(EINVAL, "policy.name is not the name of the policy of that id");
    if (policy->calendar != limiter->records[id].calendar ||
        policy->offset != limiter->records[id].offset)
        return stint_failed(EINVAL,
                            "policy.calendar and policy.offset cannot change: add another policy");
    if (longest_of(policy) != changed->length)
        return stint_failed(EINVAL, "policy.window cannot change: add another policy");
    if (policy->start / (int64_t)STINT_TICK_NS != changed->start)
        return stint_failed(EINVAL, "policy.start cannot change: add another policy");
    error = set_up_begin(limiter);
    if (error != 0)
        return error;
    struct rule rule = rule_of(policy), old = policy_rule(changed);
    error = change_check(&old, &rule, limiter->records[id].refusals_count != 0);
    if (error == 0 && !only_check)
        rule_write(limiter, id, &rule);
    stint_limiter_unlock(limiter);
    return error;
}

int stint_policy_change(struct stint_limiter *limiter, uint32_t id,
                        const struct stint_policy *policy) {
    return change(limiter, id, policy, false);
}

int stint_policy_change_check(struct stint_limiter *limiter, uint32_t id,
                              const struct stint_policy *policy) {
    return change(limiter, id, policy, true);
}

/* Whether a policy of a table that somebody else wrote is one that stint_policy_add can have
 * made. */
static bool policy_whole(const struct stint_limiter *limiter, uint32_t id) {
    const struct policy *policy = &limiter->policies[id];
    const struct policy_record *record = &limiter->records[id];

    /* M15 */
    if (atomic_load_acquire(&policy->version) == 0 || policy->largest > LARGEST_MAX ||
        record->name[0] == '\0' || policy->length < 1 ||
        policy->length > (tick_t)(STINT_WINDOW_MAX / STINT_TICK_NS) ||
        policy->start > INT64_MAX / (int64_t)STINT_TICK_NS ||
        policy->start < INT64_MIN / (int64_t)STINT_TICK_NS ||
        policy->window != tick_ns(policy->length) ||
        policy->reciprocal != reciprocal_of(policy->window))
        return false;
    const struct stint_policy read = policy_read(limiter, id);
    if (longest_of(&read) != policy->length)
        return false;
    struct rule rule = policy_rule(policy), right = rule_of(&read);
    uint64_t words[RULE_WORDS], right_words[RULE_WORDS];
    rule_pack(&rule, words);
    rule_pack(&right, right_words);
    words[RULE_TRAITS] = policy_traits(policy);
    right_words[RULE_TRAITS] = traits_of(&right, (uint32_t)(words[RULE_TRAITS] & TRAIT_REFUSALS) |
                                                     calendar_trait(limiter, id));
    return stint_policy_check(&read) == 0 && memcmp(words, right_words, sizeof(words)) == 0;
}

/* Whether a policy has nothing that only later versions know. */
static bool policy_known(const struct stint_limiter *limiter, uint32_t id) {
    const struct policy_record *record = &limiter->records[id];
    uint64_t unknown = limiter->policies[id].reserved |
                       (record->flags & ~(uint32_t)RECORD_UNNAMED) | record->alias |
                       record->companion | record->ban_after | record->ban |
                       (record->calendar > STINT_CALENDAR_YEAR);

    for (size_t i = 0; i < sizeof(record->reserved) / sizeof(record->reserved[0]); i++)
        unknown |= record->reserved[i];
    return unknown == 0;
}

int stint_policies_check(const struct stint_limiter *limiter) {
    uint32_t count = limiter_policy_count(limiter);

    /* Under the lock, as its writer (M12). */
    if (atomic_load_relaxed(&limiter->header->policy_count) > limiter->max_policies)
        return stint_failed(EPROTO, "the table is damaged: it has more policies than it can hold");
    for (uint32_t id = 0; id < count; id++) {
        if (!policy_known(limiter, id))
            return stint_failed_with(EPROTO, "policy %u of the table has " LATER_TABLE,
                                     (unsigned)id);
        if (!policy_whole(limiter, id))
            return stint_failed_with(
                EPROTO, "the table is damaged: policy %u is none that stint makes", (unsigned)id);
    }
    return 0;
}

void stint_policies_repair(struct stint_limiter *limiter) {
    uint32_t count = limiter_policy_count(limiter);

    for (uint32_t id = 0; id < count; id++) {
        struct rule rule = policy_rule(&limiter->policies[id]);
        struct policy *policy = &limiter->policies[id];
        /* M10: after what policy_raise raises. */
        atomic_store_release(&policy->rules[policy->version % 2][RULE_TRAITS],
                             traits_of(&rule, policy_raise(limiter, id, &rule)));
        policy_heat(limiter, id, &rule);
    }
    for (uint32_t id = count; id < limiter->max_policies; id++) {
        /* Under the lock, as its writer (M12). */
        if (atomic_load_relaxed(&limiter->policies[id].version) == 0)
            continue;
        memset(&limiter->policies[id], 0, sizeof(limiter->policies[id]));
        memset(&limiter->records[id], 0, sizeof(limiter->records[id]));
    }
}

int stint_policies_lock(struct stint_limiter *limiter) {
    int error = stint_limiter_lock(limiter);

    if (error != EOWNERDEAD)
        return error;
    error = stint_limiter_shards_check(limiter);
    if (error == 0)
        error = stint_policies_check(limiter);
    if (error == 0) {
        stint_policies_repair(limiter);
        stint_limiter_lock_mend(limiter);
    } else { /* the lock is of no more use, and says so from now on */
        stint_limiter_unlock(limiter);
    }
    return error;
}

int stint_policy_find(const struct stint_limiter *limiter, const char *name, uint32_t *id) {
    if (limiter == NULL || name == NULL)
        return stint_failed(EINVAL, "limiter or name is NULL");
    int found = find_name(limiter, limiter_policy_count(limiter), name);
    if (found < 0)
        return stint_failed(ENOENT, "there is no policy of that name");
    if (id != NULL)
        *id = (uint32_t)found;
    return 0;
}

int stint_policy_get(const struct stint_limiter *limiter, uint32_t id,
                     struct stint_policy *policy) {
    if (limiter == NULL || policy == NULL)
        return stint_failed(EINVAL, "limiter or policy is NULL");
    int error = stint_struct_check(policy, policy->size, sizeof(*policy),
                                   "policy.size is wrong: " WRONG_SIZE);
    if (error != 0)
        return error;
    if (limiter_policy(limiter, id) == NULL)
        return stint_failed(ENOENT, "there is no policy of that id");
    const struct stint_policy known = policy_read(limiter, id);
    stint_struct_write(policy, policy->size, &known, sizeof(known));
    return 0;
}
